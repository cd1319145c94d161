//! Replays of salvaged items: the active controller carries their records from a holder to the leader of the target.
//! Law: one page in memory at a time, a deadline on every step. The record's index is its sequence, so the leader's log says
//! how far a replay is, whoever carried it so far; what two carriers send at once comes into the log once. A replay that the
//! metadata log calls neither done nor stopped is carried by whoever is in office.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kuorum_metadata::MetadataImage;
use kuorum_metadata::image::SalvageReplayImage;
use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::messages::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use kuorum_protocol::record::BatchView;
use kuorum_protocol::{BrokerId, ProducerId, Sequence, TopicId};
use kuorum_transport::{Clock, Connection};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::active::Active;
use crate::fleet::{Fleet, Held};
use crate::quorum::Quorum;

/// Replays at the same time.
const AT_ONCE: usize = 4;
/// The largest page, in bytes before compression.
const PAGE_BYTES: usize = 512 * 1024;
/// After so many records the metadata log takes note of how far a replay is.
const NOTED_EVERY: u64 = 10_000;
/// Without a single record acknowledged, or a holder found, for so long a replay is given up; asked for again it goes on.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a leader has to answer.
const PRODUCE_DEADLINE: Duration = Duration::from_secs(10);
/// How long to wait after something did not work.
const PAUSE: Duration = Duration::from_millis(200);
/// Produce by topic id: nothing goes into another topic of the same name.
const PRODUCE_VERSION: i16 = 13;
const CLIENT_ID: &str = "kuorum-salvage-replay";
/// All in sync.
const ACKS: i16 = -1;

/// An item and the topic it goes into.
type Key = (String, TopicId);

/// How far a replay is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// So many records are in the target.
    Running(u64),
    /// All of them.
    Done(u64),
    /// Given up, and why; asked for again it goes on, unless the target takes no more of it.
    Stopped {
        replayed: u64,
        why: String,
        refused: bool,
    },
}

/// The replays of this controller. Clones share them.
#[derive(Clone, Debug)]
pub struct Replays {
    active: Active,
    quorum: Quorum,
    fleet: Fleet,
    clock: Clock,
    running: Arc<Mutex<HashMap<Key, watch::Receiver<Progress>>>>,
}

/// Too many replays run already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{AT_ONCE} replays run already: try again later")]
pub struct TooMany;

/// Why a step did not work.
enum Trouble {
    /// Another try may help.
    Passing(String),
    /// It would not.
    Lasting(String),
}

impl Replays {
    /// None runs yet.
    pub fn new(active: Active, quorum: Quorum, fleet: Fleet, clock: Clock) -> Self {
        Self {
            active,
            quorum,
            fleet,
            clock,
            running: Arc::default(),
        }
    }

    /// Starts the replay of an item into `target`, or joins the one that runs.
    ///
    /// # Errors
    /// If too many run.
    pub fn start(
        &self,
        held: Held,
        target: TopicId,
        replay: SalvageReplayImage,
    ) -> Result<watch::Receiver<Progress>, TooMany> {
        let key = (held.item.id.clone(), target);
        let mut running = self.running.lock();
        if let Some(progress) = running.get(&key) {
            return Ok(progress.clone());
        }
        if running.len() >= AT_ONCE {
            return Err(TooMany);
        }
        let (sender, progress) = watch::channel(Progress::Running(replay.acknowledged));
        running.insert(key.clone(), progress.clone());
        let carrier = Carrier {
            all: self.clone(),
            held,
            target,
            replay,
            progress: sender,
        };
        drop(running);
        tokio::spawn(async move {
            // Leaves the list however it ends.
            let _place = Place {
                running: Arc::clone(&carrier.all.running),
                key,
            };
            carrier.run().await;
        });
        Ok(progress)
    }

    /// How many records are in the target of a replay that this controller carries.
    pub fn carried(&self, item: &str, target: TopicId) -> Option<u64> {
        let running = self.running.lock();
        match *running.get(&(item.to_owned(), target))?.borrow() {
            Progress::Running(replayed) => Some(replayed),
            Progress::Done(_) | Progress::Stopped { .. } => None,
        }
    }

    /// Carries on, one after another, what was begun and neither ended nor given up: when this controller takes office what
    /// another had begun, and later what lost whoever carried it. Runs until it is dropped.
    pub async fn take_over(self) {
        let mut office = self.active.watch();
        loop {
            if office.borrow_and_update().is_some() {
                let image = self.quorum.image();
                for (item, target, _) in image.running_replays() {
                    if self.carried(item, target).is_none() {
                        self.carry_on(item, target).await;
                    }
                }
            }
            tokio::select! {
                changed = office.changed() => if changed.is_err() {
                    return;
                },
                () = self.clock.sleep(PATIENCE) => {}
            }
        }
    }

    /// Returns when the replay has ended, or this controller cannot carry it.
    async fn carry_on(&self, item: &str, target: TopicId) {
        let began = self.clock.now().monotonic;
        while self.active.office().is_some() {
            let image = self.quorum.image();
            // It may have been asked for meanwhile, and be over.
            let running = image
                .salvage_replay(item, target)
                .filter(|known| known.replayed.is_none() && !known.stopped);
            let Some(replay) = running else {
                return;
            };
            let mut survey = self.fleet.salvaged(&image, item).await;
            let started = match survey.items.remove(item) {
                Some(held) => self
                    .start(held, target, replay)
                    .map_err(|error| error.to_string()),
                None => Err("nobody who answers holds the item".to_owned()),
            };
            let why = match started {
                Ok(mut progress) => {
                    // The sender goes with the carrier, whatever it last said.
                    let _ = progress
                        .wait_for(|progress| !matches!(progress, Progress::Running(_)))
                        .await;
                    return;
                }
                Err(why) => why,
            };
            if self.clock.now().monotonic.since(began) >= PATIENCE {
                return self.give_up(item, target, replay.acknowledged, &why).await;
            }
            self.clock.sleep(PAUSE).await;
        }
    }

    /// Takes note that a replay goes on only when it is asked for again.
    pub async fn give_up(&self, item: &str, target: TopicId, replayed: u64, why: &str) {
        tracing::warn!(item, %target, replayed, why, "a replay stopped");
        if let Err(error) = self.active.stop_replay(item, target, replayed).await {
            // Whoever is in office next carries it on, unless its target is gone.
            tracing::debug!(item, %target, %error.message, "that it stopped could not be noted");
        }
    }
}

struct Place {
    running: Arc<Mutex<HashMap<Key, watch::Receiver<Progress>>>>,
    key: Key,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.running.lock().remove(&self.key);
    }
}

struct Carrier {
    all: Replays,
    held: Held,
    target: TopicId,
    replay: SalvageReplayImage,
    progress: watch::Sender<Progress>,
}

/// A leader to write to.
struct Desk {
    connection: Connection,
    image: Arc<MetadataImage>,
}

impl Carrier {
    async fn run(mut self) {
        let id = self.held.item.id.clone();
        tracing::info!(item = id, target = %self.target, records = self.held.item.records, from = self.replay.acknowledged, "a replay begins");
        let (mut replayed, mut moved) = (self.replay.acknowledged, self.now());
        let (why, refused) = loop {
            if self.all.active.office().is_none() {
                let why = "another controller is active now and carries it on".to_owned();
                tracing::info!(item = id, target = %self.target, replayed, why, "a replay is left");
                self.progress.send_replace(Progress::Stopped {
                    replayed,
                    why,
                    refused: false,
                });
                return;
            }
            let trouble = match self.carry(&mut replayed, &mut moved).await {
                Ok(()) => {
                    match self
                        .all
                        .active
                        .finish_replay(&id, self.target, replayed)
                        .await
                    {
                        Ok(result) => {
                            tracing::info!(item = id, target = %self.target, records = result.records, "a replay is done");
                            self.progress.send_replace(Progress::Done(result.records));
                            return;
                        }
                        Err(error) => Trouble::Passing(error.message),
                    }
                }
                Err(trouble) => trouble,
            };
            match trouble {
                Trouble::Lasting(why) => break (why, true),
                Trouble::Passing(why) if self.now() - moved >= PATIENCE => break (why, false),
                Trouble::Passing(why) => {
                    tracing::debug!(item = id, why, "a replay tries again");
                    self.all.clock.sleep(PAUSE).await;
                    self.find_holders().await;
                }
            }
        };
        self.all.give_up(&id, self.target, replayed, &why).await;
        self.progress.send_replace(Progress::Stopped {
            replayed,
            why,
            refused,
        });
    }

    fn now(&self) -> Duration {
        self.all.clock.now().monotonic.0
    }

    /// A holder may have gone or come back.
    async fn find_holders(&mut self) {
        let image = self.all.quorum.image();
        let id = self.held.item.id.clone();
        let mut survey = self.all.fleet.salvaged(&image, &id).await;
        let Some(held) = survey.items.remove(&id) else {
            return;
        };
        let is_too_short = self.held.item.records < self.asked_for();
        // A copy that is longer than was asked for is another replay's: this one's number of records stays as it is.
        if held.item.records == self.held.item.records || is_too_short {
            self.held = held;
        }
    }

    /// How many records are to be replayed: more than at the beginning if somebody who found a longer copy has asked too.
    fn asked_for(&self) -> u64 {
        let image = self.all.quorum.image();
        let known = image.salvage_replay(&self.held.item.id, self.target);
        known.map_or(self.replay.records, |known| known.records)
    }

    /// Carries records until all are in the target for good, or something does not work.
    async fn carry(&self, replayed: &mut u64, moved: &mut Duration) -> Result<(), Trouble> {
        let records = self.held.item.records;
        let mut desk = self.find_leader().await?;
        let mut next = self.reached(&desk).await?;
        let max_bytes = self.page_bytes(&desk.image)?;
        let mut noted = next;
        while next < records {
            let page = self
                .all
                .fleet
                .salvaged_batch(
                    &desk.image,
                    &self.held,
                    next,
                    max_bytes,
                    self.replay.producer_id,
                )
                .await
                .ok_or_else(|| Trouble::Passing("no holder of the item answers".to_owned()))?;
            let count = checked(&page, next, self.replay.producer_id)?;
            self.produce(&mut desk, page).await?;
            next += count;
            *replayed = next;
            *moved = self.now();
            self.progress.send_replace(Progress::Running(next));
            if next - noted >= NOTED_EVERY {
                noted = next;
                self.note(next).await?;
            }
        }
        let wanted = self.asked_for().max(next);
        if records < wanted {
            return Err(Trouble::Passing(format!(
                "the copies that can be read have {records} records, and the item had {wanted} when it was asked for"
            )));
        }
        *replayed = records;
        Ok(())
    }

    async fn note(&self, acknowledged: u64) -> Result<(), Trouble> {
        let id = &self.held.item.id;
        let noted = self
            .all
            .active
            .acknowledge_replay(id, self.target, acknowledged)
            .await;
        noted.map_err(|error| match ErrorCode::from(error.code) {
            ErrorCode::ResourceNotFound => Trouble::Lasting("the target was deleted".to_owned()),
            _ => Trouble::Passing(error.message),
        })
    }

    async fn find_leader(&self) -> Result<Desk, Trouble> {
        let image = self.all.quorum.image();
        let leader = self.leader(&image)?;
        let address = image
            .broker(leader)
            .and_then(|broker| {
                broker
                    .listener("INTERNAL")
                    .or_else(|| broker.listener("CLIENT"))
            })
            .map(|listener| format!("{}:{}", listener.host, listener.port))
            .ok_or_else(|| Trouble::Passing(format!("broker {leader} has no address")))?;
        let deadline = self.deadline(PRODUCE_DEADLINE);
        let connection = Connection::connect(&address, Some(CLIENT_ID), deadline)
            .await
            .map_err(|error| Trouble::Passing(error.to_string()))?;
        Ok(Desk { connection, image })
    }

    fn leader(&self, image: &MetadataImage) -> Result<BrokerId, Trouble> {
        let partition = image
            .partition(self.target, self.replay.partition)
            .ok_or_else(|| Trouble::Lasting("the target was deleted".to_owned()))?;
        partition
            .leader
            .ok_or_else(|| Trouble::Passing("the target's partition has no leader".to_owned()))
    }

    fn page_bytes(&self, image: &MetadataImage) -> Result<usize, Trouble> {
        let topic = image
            .topic_by_id(self.target)
            .ok_or_else(|| Trouble::Lasting("the target was deleted".to_owned()))?;
        let largest = image.effective_topic_config(&topic.name).max_message_bytes;
        Ok(usize::try_from(largest).unwrap_or(0).min(PAGE_BYTES))
    }

    fn deadline(&self, patience: Duration) -> kuorum_transport::Instant {
        self.all
            .clock
            .instant(self.all.clock.now().monotonic + patience)
    }

    /// How many records are in the target already, and stay there.
    async fn reached(&self, desk: &Desk) -> Result<u64, Trouble> {
        let leader = self.leader(&desk.image)?;
        let report = self
            .all
            .fleet
            .producer(
                &desk.image,
                leader,
                self.replay.producer_id,
                self.target,
                self.replay.partition,
            )
            .await
            .ok_or_else(|| Trouble::Passing("the target's leader does not answer".to_owned()))?;
        let Some(last) = report.last_sequence else {
            // The leader has forgotten, which takes a day, or there is nothing yet.
            return Ok(self.replay.acknowledged);
        };
        if report
            .last_offset
            .is_some_and(|offset| offset >= report.high_watermark)
        {
            return Err(Trouble::Passing(
                "what was written before is not committed yet".to_owned(),
            ));
        }
        Ok(u64::try_from(last).map_or(0, |last| last + 1))
    }

    async fn produce(&self, desk: &mut Desk, records: Bytes) -> Result<(), Trouble> {
        let timeout_ms = i32::try_from(PRODUCE_DEADLINE.as_millis()).unwrap_or(i32::MAX);
        let request = ProduceRequest {
            transactional_id: None,
            acks: ACKS,
            timeout_ms,
            topic_data: vec![TopicProduceData {
                topic_id: self.target.0,
                partition_data: vec![PartitionProduceData {
                    index: self.replay.partition,
                    records: Some(records),
                }],
                ..TopicProduceData::default()
            }],
        };
        let deadline = self.deadline(PRODUCE_DEADLINE + Duration::from_secs(1));
        let response = desk
            .connection
            .call(PRODUCE_VERSION, &request, deadline)
            .await
            .map_err(|error| Trouble::Passing(error.to_string()))?;
        let answer = response
            .responses
            .first()
            .and_then(|topic| topic.partition_responses.first())
            .ok_or_else(|| Trouble::Passing("the leader's answer says nothing".to_owned()))?;
        let code = ErrorCode::from(answer.error_code);
        if code == ErrorCode::None {
            return Ok(());
        }
        let words = match &answer.error_message {
            Some(message) => format!("{}: {message}", code.name()),
            None => code.name().to_owned(),
        };
        Err(match code {
            // Somebody else carries the same records: the leader says how far they are.
            ErrorCode::OutOfOrderSequenceNumber | ErrorCode::UnknownTopicId => {
                Trouble::Passing(words)
            }
            code if code.is_retriable() => Trouble::Passing(words),
            _ => Trouble::Lasting(format!("the target refuses a record: {words}")),
        })
    }
}

/// How many records a page has, if it is what was asked for.
fn checked(page: &[u8], index: u64, producer: ProducerId) -> Result<u64, Trouble> {
    let wrong = |what: &str| Trouble::Passing(format!("a holder's page {what}"));
    let batch = BatchView::parse(page).map_err(|error| wrong(&error.to_string()))?;
    let sequence = i32::try_from(index)
        .map(Sequence)
        .map_err(|_| Trouble::Lasting("an item of more than 2^31 records".to_owned()))?;
    let fits = batch.size() == page.len()
        && batch.crc_is_valid()
        && batch.producer_id() == producer
        && batch.base_sequence() == sequence;
    match u64::try_from(batch.record_count()) {
        Ok(count) if fits && count > 0 => Ok(count),
        _ => Err(wrong("is not what was asked for")),
    }
}
