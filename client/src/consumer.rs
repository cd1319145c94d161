//! A consumer by assignment: it is told which partitions to read and from where, and returns their records in order.
//! Law: within a partition no record is returned twice and none is skipped, except where the log itself has lost it; that
//! is an error, or a jump that `auto.offset.reset` allows.

mod batches;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use kuorum_protocol::messages::fetch::{
    FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData,
};
use kuorum_protocol::messages::list_offsets::{
    EARLIEST, LATEST, ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse,
    ListOffsetsTopic,
};
use kuorum_protocol::record::Header;
use kuorum_protocol::{ErrorCode, LeaderEpoch, TopicId};
use kuorum_transport::{Clock, Dialing, Instant, SystemNetwork};

use self::batches::Opened;
use crate::cluster::{Cluster, Link, View};
use crate::config::{ConsumerConfig, IsolationLevel, OffsetReset};
use crate::error::{ClientError, ConsumeError};

/// After so long beyond `fetch.max.wait.ms` without an answer somebody else is asked who leads.
const STALLED: Duration = Duration::from_secs(1);

/// A partition by its topic's name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: i32,
}

impl TopicPartition {
    /// Names a partition.
    pub fn new(topic: impl Into<Arc<str>>, partition: i32) -> Self {
        Self {
            topic: topic.into(),
            partition,
        }
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// Where to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartAt {
    /// With the first record that is there.
    Beginning,
    /// With the first record that comes from now on.
    End,
    /// With this offset.
    Offset(i64),
    /// With the first record whose timestamp is this or later, in milliseconds since 1970; the end if there is none.
    Timestamp(i64),
}

impl StartAt {
    fn wire(self) -> i64 {
        match self {
            Self::Beginning => EARLIEST,
            Self::End => LATEST,
            Self::Offset(offset) => offset,
            Self::Timestamp(timestamp) => timestamp.max(0),
        }
    }
}

/// A record on its way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerRecord {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: i32,
    /// Its place in the partition.
    pub offset: i64,
    /// Milliseconds since 1970.
    pub timestamp: i64,
    /// The epoch of the leader that appended it.
    pub leader_epoch: LeaderEpoch,
    /// The key.
    pub key: Option<Bytes>,
    /// The content; `None` is a tombstone.
    pub value: Option<Bytes>,
    /// Notes beside the content.
    pub headers: Vec<Header>,
}

/// Where the next fetch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// To be asked of the leader.
    Unknown(StartAt),
    At(i64),
}

#[derive(Debug)]
struct Assigned {
    place: Place,
    /// What is under way for an older one is ignored when it comes.
    generation: u64,
    /// Who is being asked, and since when.
    asking: Option<(i32, Instant)>,
    paused: bool,
    /// Not asked before.
    retry_at: Instant,
    /// The epoch of the last record read, or −1.
    last_epoch: LeaderEpoch,
    /// The end of what may be read, as last heard.
    readable_end: Option<i64>,
    buffer: VecDeque<ConsumerRecord>,
}

impl Assigned {
    fn position(&self) -> Option<i64> {
        match (self.buffer.front(), self.place) {
            (Some(record), _) => Some(record.offset),
            (None, Place::At(offset)) => Some(offset),
            (None, Place::Unknown(_)) => None,
        }
    }
}

/// One question under way: to whom, about what, as of which generation.
type Asked = Vec<(TopicPartition, u64)>;

enum Event {
    Fetched {
        broker: i32,
        asked: Asked,
        link: Option<Link>,
        result: Result<FetchResponse, ClientError>,
    },
    Located {
        asked: Asked,
        result: Result<ListOffsetsResponse, ClientError>,
    },
    Metadata(Result<(), ClientError>),
}

/// Reads records. [`poll`](Self::poll) may be dropped half-way without losing any.
pub struct Consumer {
    config: ConsumerConfig,
    cluster: Cluster,
    assigned: BTreeMap<TopicPartition, Assigned>,
    links: HashMap<i32, Link>,
    /// Leaders that a Fetch is under way to.
    busy: BTreeSet<i32>,
    waits: FuturesUnordered<BoxFuture<'static, Event>>,
    generation: u64,
    metadata_asked: bool,
    next_metadata: Instant,
    /// Whose records come first this time.
    turn: usize,
    failed: Option<ConsumeError>,
    /// The last of each partition that nobody has taken.
    resets: BTreeMap<TopicPartition, PositionReset>,
}

/// A position that was not in the log any more, so that reading went on elsewhere, as `auto.offset.reset` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PositionReset {
    /// The offset of the record that would have been next.
    pub offset: i64,
    /// Where the shared history ends and reading goes on, if the log was cut below the position (an unclean election);
    /// `None` if the offset is out of the log's range, and reading goes on at its beginning or end.
    pub cut_at: Option<i64>,
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("assigned", &self.assigned)
            .finish_non_exhaustive()
    }
}

impl Consumer {
    /// A consumer that nothing is assigned to yet.
    pub fn new(config: ConsumerConfig) -> Self {
        Self::over(Arc::new(SystemNetwork), Clock::system(), config)
    }

    /// The same over another network than the machine's, by another clock.
    pub fn over(network: Arc<dyn Dialing>, clock: Clock, config: ConsumerConfig) -> Self {
        let cluster = Cluster::over(network, config.client.clone(), false, clock);
        Self {
            config,
            cluster,
            assigned: BTreeMap::new(),
            links: HashMap::new(),
            busy: BTreeSet::new(),
            waits: FuturesUnordered::new(),
            generation: 0,
            metadata_asked: false,
            next_metadata: Instant::now(),
            turn: 0,
            failed: None,
            resets: BTreeMap::new(),
        }
    }

    /// The positions that were reset since this was last asked, for each partition the last: what was read before is not
    /// in the log any more, and what is read next may stand at offsets that were read already.
    pub fn take_resets(&mut self) -> BTreeMap<TopicPartition, PositionReset> {
        std::mem::take(&mut self.resets)
    }

    /// What is known of the cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Reads these partitions from now on and no others.
    pub fn assign(&mut self, partitions: impl IntoIterator<Item = (TopicPartition, StartAt)>) {
        self.assigned.clear();
        for (partition, start) in partitions {
            self.add(partition, start);
        }
    }

    /// Also reads all partitions of a topic; returns how many there are.
    ///
    /// # Errors
    /// If the topic is not known before `timeout`.
    pub async fn assign_topic(
        &mut self,
        topic: &str,
        start: StartAt,
        timeout: Duration,
    ) -> Result<i32, ClientError> {
        let known = self.cluster.topic(topic, Instant::now() + timeout).await?;
        let name: Arc<str> = topic.into();
        let count = i32::try_from(known.partitions.len()).unwrap_or(i32::MAX);
        for partition in 0..count {
            self.add(TopicPartition::new(Arc::clone(&name), partition), start);
        }
        Ok(count)
    }

    fn add(&mut self, partition: TopicPartition, start: StartAt) {
        self.cluster.want(&partition.topic);
        self.generation += 1;
        let place = match start {
            StartAt::Offset(offset) => Place::At(offset),
            start => Place::Unknown(start),
        };
        let assigned = Assigned {
            place,
            generation: self.generation,
            asking: None,
            paused: false,
            retry_at: Instant::now(),
            last_epoch: LeaderEpoch::UNKNOWN,
            readable_end: None,
            buffer: VecDeque::new(),
        };
        self.assigned.insert(partition, assigned);
    }

    /// Goes on somewhere else.
    ///
    /// # Errors
    /// If the partition is not assigned.
    pub fn seek(&mut self, partition: &TopicPartition, to: StartAt) -> Result<(), ConsumeError> {
        let paused = self.get(partition)?.paused;
        self.add(partition.clone(), to);
        self.pause(partition, paused)
    }

    /// Holds a partition back, with what was fetched of it already, or lets it go on.
    ///
    /// # Errors
    /// If the partition is not assigned.
    pub fn pause(&mut self, partition: &TopicPartition, paused: bool) -> Result<(), ConsumeError> {
        self.get(partition)?;
        if let Some(assigned) = self.assigned.get_mut(partition) {
            assigned.paused = paused;
        }
        Ok(())
    }

    fn get(&self, partition: &TopicPartition) -> Result<&Assigned, ConsumeError> {
        self.assigned
            .get(partition)
            .ok_or_else(|| ConsumeError::NotAssigned {
                topic: partition.topic.to_string(),
                partition: partition.partition,
            })
    }

    /// The offset of the next record of a partition; `None` while it is being found.
    ///
    /// # Errors
    /// If the partition is not assigned.
    pub fn position(&self, partition: &TopicPartition) -> Result<Option<i64>, ConsumeError> {
        Ok(self.get(partition)?.position())
    }

    /// The end of what may be read of a partition, as last heard: its high watermark, or its last stable offset with
    /// `read_committed`.
    ///
    /// # Errors
    /// If the partition is not assigned.
    pub fn readable_end(&self, partition: &TopicPartition) -> Result<Option<i64>, ConsumeError> {
        Ok(self.get(partition)?.readable_end)
    }

    /// What is assigned.
    pub fn assignment(&self) -> impl Iterator<Item = &TopicPartition> {
        self.assigned.keys()
    }

    /// Finds the same place in many partitions, asking until every leader has answered.
    ///
    /// # Errors
    /// If one has not before `timeout`, or refuses.
    pub async fn offsets(
        &self,
        partitions: &[TopicPartition],
        place: StartAt,
        timeout: Duration,
    ) -> Result<BTreeMap<TopicPartition, i64>, ClientError> {
        let begin = Instant::now();
        let deadline = begin + timeout;
        let mut found = BTreeMap::new();
        let mut last = "no leader is known".to_owned();
        let mut seen = 0;
        loop {
            let missing: Vec<_> = partitions
                .iter()
                .filter(|partition| !found.contains_key(*partition))
                .collect();
            if missing.is_empty() {
                return Ok(found);
            }
            missing
                .iter()
                .for_each(|partition| self.cluster.want(&partition.topic));
            let view = self.cluster.refresh(seen, deadline).await?;
            seen = view.version;
            let mut by_leader: BTreeMap<i32, Vec<(TopicPartition, StartAt)>> = BTreeMap::new();
            for partition in missing {
                if let Some((leader, _)) = view.leader(&partition.topic, partition.partition) {
                    by_leader
                        .entry(leader)
                        .or_default()
                        .push((partition.clone(), place));
                }
            }
            for (leader, asked) in by_leader {
                let request = locate(&view, &asked, self.config.own.isolation_level);
                let response = async {
                    self.cluster
                        .link(leader, deadline)
                        .await?
                        .call(&request, deadline)
                        .await
                };
                let response = match response.await {
                    Ok(response) => response,
                    Err(error) => {
                        last = error.to_string();
                        continue;
                    }
                };
                for (partition, _) in asked {
                    let Some((offset, code)) = located(&response, &partition) else {
                        continue;
                    };
                    match code {
                        ErrorCode::None => {
                            found.insert(partition, offset);
                        }
                        code if code.is_retriable() => last = code.name().to_owned(),
                        code => {
                            return Err(ClientError::Refused {
                                doing: format!("offsets of {partition}"),
                                code,
                                message: String::new(),
                            });
                        }
                    }
                }
            }
            if found.len() < partitions.len() {
                let wait = self.config.client.retry_backoff;
                if Instant::now() + wait >= deadline {
                    return Err(ClientError::Unreachable {
                        waited: begin.elapsed(),
                        last,
                    });
                }
                self.cluster.clock().sleep(wait).await;
            }
        }
    }

    /// The next records, up to `max.poll.records`, as soon as there are any; none if `timeout` goes by.
    ///
    /// # Errors
    /// What the consumer cannot mend by itself. Other partitions are not affected: the next call goes on.
    pub async fn poll(&mut self, timeout: Duration) -> Result<Vec<ConsumerRecord>, ConsumeError> {
        if self.assigned.is_empty() {
            return Err(ConsumeError::NothingAssigned);
        }
        let deadline = Instant::now() + timeout;
        loop {
            let wake_at = self.ask();
            let records = self.take();
            if !records.is_empty() {
                return Ok(records);
            }
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
            if Instant::now() >= deadline {
                return Ok(records);
            }
            tokio::select! {
                biased;
                Some(event) = self.waits.next(), if !self.waits.is_empty() => self.on_event(event),
                () = tokio::time::sleep_until(wake_at.min(deadline)) => {}
            }
        }
    }

    /// Takes records out of the buffers, each partition's in turn.
    fn take(&mut self) -> Vec<ConsumerRecord> {
        let max = self.config.own.max_poll_records.max(1);
        let mut records = Vec::new();
        self.turn = self.turn.wrapping_add(1);
        let start = self.turn % self.assigned.len().max(1);
        let (before, after): (Vec<_>, Vec<_>) = self
            .assigned
            .values_mut()
            .enumerate()
            .partition(|(index, _)| *index < start);
        for (_, assigned) in after.into_iter().chain(before) {
            if !assigned.paused {
                let count = assigned.buffer.len().min(max - records.len());
                records.extend(assigned.buffer.drain(..count));
            }
        }
        records
    }

    /// Asks for all that is worth asking now; returns when to look again.
    fn ask(&mut self) -> Instant {
        let now = Instant::now();
        let view = self.cluster.view();
        let mut wake_at = now + STALLED;
        let mut wants_metadata = self.cluster.is_stale();
        let mut fetch: BTreeMap<i32, Vec<TopicPartition>> = BTreeMap::new();
        let mut find: BTreeMap<i32, Vec<(TopicPartition, StartAt)>> = BTreeMap::new();
        let patience = self.config.own.fetch_max_wait + STALLED;
        for (partition, assigned) in &mut self.assigned {
            let leader = view.leader(&partition.topic, partition.partition);
            if let Some((broker, since)) = assigned.asking {
                wants_metadata |= now >= since + patience;
                if leader.is_none_or(|(leader, _)| leader == broker) {
                    continue;
                }
                // Somebody else leads now: what the old one may still say does not count.
                self.generation += 1;
                assigned.generation = self.generation;
                assigned.asking = None;
            }
            let enough = assigned.buffer.len() >= self.config.own.max_poll_records.max(1);
            if assigned.paused || enough {
                continue;
            }
            if assigned.retry_at > now {
                wake_at = wake_at.min(assigned.retry_at);
                continue;
            }
            let Some((leader, _)) = leader else {
                wants_metadata = true;
                assigned.retry_at = now + self.config.client.retry_backoff;
                wake_at = wake_at.min(assigned.retry_at);
                continue;
            };
            match assigned.place {
                Place::Unknown(start) => {
                    find.entry(leader)
                        .or_default()
                        .push((partition.clone(), start));
                    assigned.asking = Some((leader, now));
                }
                Place::At(_) if !self.busy.contains(&leader) => {
                    fetch.entry(leader).or_default().push(partition.clone());
                    assigned.asking = Some((leader, now));
                }
                Place::At(_) => {}
            }
        }
        for (leader, partitions) in find {
            self.find(leader, &view, partitions);
        }
        for (leader, mut partitions) in fetch {
            // An answer has an end, and those that are asked for last may always be beyond it.
            self.cluster.shuffle(&mut partitions);
            self.fetch(leader, &view, &partitions);
        }
        if wants_metadata && !self.metadata_asked {
            if self.next_metadata <= now {
                self.ask_metadata(now);
            } else {
                wake_at = wake_at.min(self.next_metadata);
            }
        }
        wake_at
    }

    fn asked(&self, partitions: impl IntoIterator<Item = TopicPartition>) -> Asked {
        partitions
            .into_iter()
            .map(|partition| {
                let generation = self.assigned[&partition].generation;
                (partition, generation)
            })
            .collect()
    }

    fn find(&mut self, leader: i32, view: &View, partitions: Vec<(TopicPartition, StartAt)>) {
        let request = locate(view, &partitions, self.config.own.isolation_level);
        let asked = self.asked(partitions.into_iter().map(|(partition, _)| partition));
        let cluster = self.cluster.clone();
        let deadline = Instant::now() + self.config.client.request_timeout;
        self.waits.push(Box::pin(async move {
            let result = async {
                cluster
                    .link(leader, deadline)
                    .await?
                    .call(&request, deadline)
                    .await
            };
            Event::Located {
                asked,
                result: result.await,
            }
        }));
    }

    fn fetch(&mut self, leader: i32, view: &View, partitions: &[TopicPartition]) {
        let request = self.fetch_request(view, partitions);
        let asked = self.asked(partitions.iter().cloned());
        let cluster = self.cluster.clone();
        let link = self.links.remove(&leader).filter(|link| !link.is_closed());
        let timeout = self.config.client.request_timeout + self.config.own.fetch_max_wait;
        let deadline = Instant::now() + timeout;
        self.busy.insert(leader);
        self.waits.push(Box::pin(async move {
            let link = match link {
                Some(link) => Ok(link),
                None => cluster.open_link(leader, deadline).await,
            };
            let (link, result) = match link {
                Ok(link) => {
                    let result = link.call(&request, deadline).await;
                    (Some(link).filter(|_| result.is_ok()), result)
                }
                Err(error) => (None, Err(error)),
            };
            Event::Fetched {
                broker: leader,
                asked,
                link,
                result,
            }
        }));
    }

    fn fetch_request(&self, view: &View, partitions: &[TopicPartition]) -> FetchRequest {
        let own = &self.config.own;
        let mut topics: Vec<FetchTopic> = Vec::new();
        for partition in partitions {
            let assigned = &self.assigned[partition];
            let Place::At(fetch_offset) = assigned.place else {
                continue;
            };
            let epoch = view
                .leader(&partition.topic, partition.partition)
                .map(|(_, epoch)| epoch);
            let part = FetchPartition {
                partition: partition.partition,
                current_leader_epoch: epoch.unwrap_or(LeaderEpoch::UNKNOWN).0,
                fetch_offset,
                last_fetched_epoch: assigned.last_epoch.0,
                partition_max_bytes: own.max_partition_fetch_bytes,
                ..FetchPartition::default()
            };
            match topics
                .iter_mut()
                .find(|topic| *topic.topic == *partition.topic)
            {
                Some(topic) => topic.partitions.push(part),
                None => topics.push(FetchTopic {
                    topic: partition.topic.to_string(),
                    topic_id: topic_id(view, partition).0,
                    partitions: vec![part],
                }),
            }
        }
        FetchRequest {
            max_wait_ms: i32::try_from(own.fetch_max_wait.as_millis()).unwrap_or(i32::MAX),
            min_bytes: own.fetch_min_bytes,
            max_bytes: own.fetch_max_bytes,
            isolation_level: isolation(own.isolation_level),
            topics,
            ..FetchRequest::default()
        }
    }

    fn ask_metadata(&mut self, now: Instant) {
        self.metadata_asked = true;
        self.next_metadata = now + self.config.client.retry_backoff;
        let cluster = self.cluster.clone();
        let seen = cluster.view().version;
        let deadline = now + self.config.client.request_timeout;
        self.waits.push(Box::pin(async move {
            Event::Metadata(cluster.refresh(seen, deadline).await.map(|_| ()))
        }));
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Metadata(result) => {
                self.metadata_asked = false;
                if let Err(error) = result {
                    tracing::warn!(%error, "metadata could not be refreshed");
                }
            }
            Event::Located { asked, result } => self.on_located(asked, &result),
            Event::Fetched {
                broker,
                asked,
                link,
                result,
            } => {
                self.busy.remove(&broker);
                if let Some(link) = link {
                    self.links.insert(broker, link);
                }
                self.on_fetched(asked, result);
            }
        }
    }

    /// The partition, if the answer is still waited for.
    fn awaited(&mut self, partition: &TopicPartition, generation: u64) -> Option<&mut Assigned> {
        let assigned = self.assigned.get_mut(partition)?;
        (assigned.generation == generation).then(|| {
            assigned.asking = None;
            assigned
        })
    }

    fn on_located(&mut self, asked: Asked, result: &Result<ListOffsetsResponse, ClientError>) {
        let retry_at = Instant::now() + self.config.client.retry_backoff;
        let mut lost = false;
        for (partition, generation) in asked {
            let Some(assigned) = self.awaited(&partition, generation) else {
                continue;
            };
            assigned.retry_at = retry_at;
            let answer = result
                .as_ref()
                .ok()
                .and_then(|response| located(response, &partition));
            match answer {
                // No record is so young: the end it is.
                Some((-1, ErrorCode::None)) => assigned.place = Place::Unknown(StartAt::End),
                Some((offset, ErrorCode::None)) => {
                    assigned.place = Place::At(offset);
                    assigned.retry_at = Instant::now();
                }
                Some((_, code)) if !code.is_retriable() => {
                    let doing = format!("offsets of {partition}");
                    let message = String::new();
                    self.failed = Some(
                        ClientError::Refused {
                            doing,
                            code,
                            message,
                        }
                        .into(),
                    );
                }
                _ => lost = true,
            }
        }
        if lost {
            self.want_metadata();
        }
    }

    /// Asks for metadata at the next opportunity, whether or not a leader is known.
    fn want_metadata(&mut self) {
        let now = Instant::now();
        if !self.metadata_asked && self.next_metadata <= now {
            self.ask_metadata(now);
        }
    }

    fn on_fetched(&mut self, asked: Asked, result: Result<FetchResponse, ClientError>) {
        let view = self.cluster.view();
        let retry_at = Instant::now() + self.config.client.retry_backoff;
        let response = match result {
            Ok(response) if response.error_code == 0 => Some(response),
            Ok(response) => {
                let code = ErrorCode::from(response.error_code).name();
                tracing::debug!(code, "a fetch was refused as a whole");
                None
            }
            Err(error) => {
                tracing::debug!(%error, "a fetch failed");
                None
            }
        };
        let mut lost = response.is_none();
        for (partition, generation) in asked {
            let id = topic_id(&view, &partition);
            let Some(assigned) = self.awaited(&partition, generation) else {
                continue;
            };
            let data = response
                .as_ref()
                .and_then(|response| data_of(response, &partition, id));
            let Some(data) = data else {
                assigned.retry_at = retry_at;
                lost = true;
                continue;
            };
            lost |= self.on_data(&partition, data, retry_at);
        }
        if lost {
            self.want_metadata();
        }
    }

    /// Takes one partition's share of a fetch. `true` if the leader must be looked for.
    fn on_data(
        &mut self,
        partition: &TopicPartition,
        data: &PartitionData,
        retry_at: Instant,
    ) -> bool {
        let reset = self.config.own.auto_offset_reset;
        let committed = self.config.own.isolation_level == IsolationLevel::ReadCommitted;
        let Some(assigned) = self.assigned.get_mut(partition) else {
            return false;
        };
        let Place::At(offset) = assigned.place else {
            return false;
        };
        let (topic, index) = (partition.topic.to_string(), partition.partition);
        match ErrorCode::from(data.error_code) {
            ErrorCode::None if data.diverging_epoch.end_offset >= 0 => {
                let end_offset = data.diverging_epoch.end_offset;
                tracing::warn!(%partition, offset, end_offset, "the log was cut below the position");
                if reset == OffsetReset::None {
                    assigned.retry_at = retry_at;
                    let error = ConsumeError::LogTruncation {
                        topic,
                        partition: index,
                        offset,
                        end_offset,
                    };
                    self.failed = Some(error);
                } else {
                    assigned.place = Place::At(end_offset.min(offset));
                    assigned.last_epoch = LeaderEpoch::UNKNOWN;
                    let cut_at = Some(end_offset.min(offset));
                    let reset = PositionReset { offset, cut_at };
                    self.resets.insert(partition.clone(), reset);
                }
                false
            }
            ErrorCode::None => {
                let end = if committed {
                    data.last_stable_offset
                } else {
                    data.high_watermark
                };
                assigned.readable_end = Some(end);
                let check = self.config.own.check_crcs;
                match batches::open(partition, offset, data, committed, check) {
                    Ok(Opened {
                        records,
                        next,
                        epoch,
                    }) => {
                        assigned.buffer.extend(records);
                        assigned.place = Place::At(next);
                        assigned.last_epoch = epoch.unwrap_or(assigned.last_epoch);
                    }
                    Err(error) => {
                        assigned.retry_at = retry_at;
                        self.failed = Some(error);
                    }
                }
                false
            }
            ErrorCode::OffsetOutOfRange => {
                tracing::warn!(%partition, offset, "the position is not in the log");
                match reset {
                    OffsetReset::Earliest => assigned.place = Place::Unknown(StartAt::Beginning),
                    OffsetReset::Latest => assigned.place = Place::Unknown(StartAt::End),
                    OffsetReset::None => {
                        assigned.retry_at = retry_at;
                        let error = ConsumeError::OffsetOutOfRange {
                            topic,
                            partition: index,
                            offset,
                        };
                        self.failed = Some(error);
                    }
                }
                assigned.last_epoch = LeaderEpoch::UNKNOWN;
                if reset != OffsetReset::None {
                    let reset = PositionReset {
                        offset,
                        cut_at: None,
                    };
                    self.resets.insert(partition.clone(), reset);
                }
                false
            }
            // The broker is behind what this client knows; it will catch up.
            ErrorCode::UnknownLeaderEpoch | ErrorCode::OffsetNotAvailable => {
                assigned.retry_at = retry_at;
                false
            }
            code if code.is_retriable() || code == ErrorCode::UnknownServerError => {
                tracing::debug!(%partition, code = code.name(), "a fetch was refused");
                assigned.retry_at = retry_at;
                let leader = &data.current_leader;
                let epoch = LeaderEpoch(leader.leader_epoch);
                let name = &partition.topic;
                !self
                    .cluster
                    .learn_leader(name, index, leader.leader_id, epoch)
            }
            code => {
                assigned.retry_at = retry_at;
                let doing = format!("fetch of {partition}");
                let message = String::new();
                self.failed = Some(
                    ClientError::Refused {
                        doing,
                        code,
                        message,
                    }
                    .into(),
                );
                false
            }
        }
    }
}

fn isolation(level: IsolationLevel) -> i8 {
    match level {
        IsolationLevel::ReadUncommitted => 0,
        IsolationLevel::ReadCommitted => 1,
    }
}

fn topic_id(view: &View, partition: &TopicPartition) -> TopicId {
    view.topics
        .get(&*partition.topic)
        .map_or(TopicId::ZERO, |topic| topic.id)
}

/// A partition's share of an answer, in which topics stand by name or by id, as the version has it.
fn data_of<'a>(
    response: &'a FetchResponse,
    partition: &TopicPartition,
    id: TopicId,
) -> Option<&'a PartitionData> {
    response
        .responses
        .iter()
        .filter(|topic| {
            *topic.topic == *partition.topic || (topic.topic.is_empty() && topic.topic_id == id.0)
        })
        .flat_map(|topic| &topic.partitions)
        .find(|data| data.partition_index == partition.partition)
}

/// The request that finds places.
fn locate(
    view: &View,
    partitions: &[(TopicPartition, StartAt)],
    level: IsolationLevel,
) -> ListOffsetsRequest {
    let mut topics: Vec<ListOffsetsTopic> = Vec::new();
    for (partition, start) in partitions {
        let epoch = view
            .leader(&partition.topic, partition.partition)
            .map(|(_, epoch)| epoch);
        let part = ListOffsetsPartition {
            partition_index: partition.partition,
            current_leader_epoch: epoch.unwrap_or(LeaderEpoch::UNKNOWN).0,
            timestamp: start.wire(),
        };
        match topics
            .iter_mut()
            .find(|topic| *topic.name == *partition.topic)
        {
            Some(topic) => topic.partitions.push(part),
            None => topics.push(ListOffsetsTopic {
                name: partition.topic.to_string(),
                partitions: vec![part],
            }),
        }
    }
    ListOffsetsRequest {
        isolation_level: isolation(level),
        topics,
        ..ListOffsetsRequest::default()
    }
}

/// What the answer says of a partition.
fn located(response: &ListOffsetsResponse, partition: &TopicPartition) -> Option<(i64, ErrorCode)> {
    response
        .topics
        .iter()
        .filter(|topic| *topic.name == *partition.topic)
        .flat_map(|topic| &topic.partitions)
        .find(|part| part.partition_index == partition.partition)
        .map(|part| (part.offset, ErrorCode::from(part.error_code)))
}

#[cfg(test)]
mod tests {
    use kuorum_protocol::messages::fetch::EpochEndOffset;

    use super::*;

    /// Whoever reads on by a policy is told that the log is not the one it read before.
    #[test]
    fn a_reset_is_told_once() {
        let cut = PartitionData {
            diverging_epoch: EpochEndOffset {
                epoch: 3,
                end_offset: 100,
            },
            ..PartitionData::default()
        };
        let beyond = PartitionData {
            error_code: i16::from(ErrorCode::OffsetOutOfRange),
            ..PartitionData::default()
        };
        for (policy, data, cut_at) in [
            ("earliest", &cut, Some(Some(100))),
            ("latest", &beyond, Some(None)),
            ("none", &cut, None),
            ("none", &beyond, None),
        ] {
            let mut config = ConsumerConfig::new("localhost:1").expect("an address");
            config
                .set("auto.offset.reset", policy)
                .expect("one of its values");
            let mut consumer = Consumer::new(config);
            let partition = TopicPartition::new("telemetry-logs", 0);
            consumer.assign([(partition.clone(), StartAt::Offset(150))]);
            consumer.on_data(&partition, data, Instant::now());
            assert_eq!(consumer.failed.is_some(), cut_at.is_none(), "{policy}");
            let told = consumer.take_resets();
            let expected = cut_at.map(|cut_at| PositionReset {
                offset: 150,
                cut_at,
            });
            assert_eq!(told.get(&partition).copied(), expected, "{policy}");
            assert_eq!(consumer.take_resets(), BTreeMap::new());
        }
    }
}
