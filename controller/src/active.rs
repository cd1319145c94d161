//! The controller in office: it decides, proposes, and answers when what it decided has been applied.
//! Law: one decider at a time, and the next decision sees the records of the one before (in `ahead`). Nothing is decided
//! before this controller's own ControllerEpoch record is applied; on loss of office all that waits fails NOT_CONTROLLER.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use kuorum_metadata::config_def::INTERNAL;
use kuorum_metadata::control::heartbeats::{SessionId, Timings};
use kuorum_metadata::control::tick::Ticked;
use kuorum_metadata::control::{
    self, Command, CommandReply, Decision, Heartbeats, Random, Refusal,
};
use kuorum_metadata::image::{SalvageReplayImage, SalvageReplayedImage};
use kuorum_metadata::mutation::{self, Mutation};
use kuorum_metadata::rpc::{
    AllocateProducerIdsReply, AllocateProducerIdsRequest, AlterPartitionReply,
    AlterPartitionRequest, AssignDirectoriesRequest, HeartbeatReply, HeartbeatRequest,
    RegisterReply, RegisterRequest, ReportEventsRequest, RpcError, SessionRequest,
};
use kuorum_metadata::{MetadataDelta, MetadataImage, MetadataRecord, RecordBatch};
use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::{
    BrokerEpoch, BrokerId, ControllerEpoch, Monotonic, Now, PartitionIndex, Timestamp, TopicId,
};
use kuorum_transport::Clock;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot, watch};

use crate::office_metrics::{Elections, OfficeMetrics};
use crate::quorum::{Outcome, ProposeError, Quorum, Term};

/// Decisions of at most this many records share an entry: about 64 KiB of JSON.
const GROUP_RECORDS: usize = 160;
/// Entries on their way at once.
const IN_FLIGHT: usize = 2;
/// Decisions that may wait for their entry; one more is refused as busy.
const WAITING: usize = 8_192;
/// How long an answer may wait for a majority.
const COMMIT_DEADLINE: Duration = Duration::from_secs(20);
/// How long taking office may wait for a majority before it looks again whether it still leads.
const BARRIER_DEADLINE: Duration = Duration::from_secs(5);
/// After an attempt at taking office that failed: peers that refuse connections would make it a busy loop.
const OFFICE_REST: Duration = Duration::from_millis(50);
/// How often leaderless partitions and the like are looked for; each time all partitions are.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// How many partitions get their preferred leader back at once.
const REBALANCE_PARTITIONS: usize = 1_000;
/// Things that time asks for are decided at most this many at once.
const TICK_DECISIONS: usize = 64;

/// The active controller's desk. Every controller has one; it is occupied on one of them. Clones share it.
#[derive(Clone)]
pub struct Active {
    inner: Arc<Inner>,
}

impl fmt::Debug for Active {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Active")
            .field("in_office", &self.office())
            .finish_non_exhaustive()
    }
}

struct Inner {
    quorum: Quorum,
    clock: Clock,
    timings: Timings,
    /// The topic and cluster keys of this controller's file, recorded on taking office.
    file: BTreeMap<String, String>,
    desk: Mutex<Option<Desk>>,
    /// Told of each session stream that ends.
    stream_ended: Notify,
    office: watch::Sender<Option<ControllerEpoch>>,
    metrics: OfficeMetrics,
    /// Set when this process is going down: it takes no office any more.
    retired: Mutex<bool>,
}

/// What exists only while this controller is in office.
struct Desk {
    term: Term,
    epoch: ControllerEpoch,
    /// The applied image and all that has been decided since.
    ahead: MetadataImage,
    heartbeats: Heartbeats,
    /// Entries that have been proposed, oldest first.
    flying: VecDeque<Group>,
    /// Entries that will be.
    queued: VecDeque<Group>,
    /// The offset the next new entry will get.
    next_offset: i64,
    waiting: usize,
    /// When what time asks for was last looked at.
    looked: Monotonic,
    wake: Arc<Notify>,
    clock: Clock,
}

/// The decisions that share one entry.
struct Group {
    /// The entry's offset, foreseen.
    offset: i64,
    /// When the first of them was taken.
    decided_at: Timestamp,
    /// The same moment by the clock that does not jump.
    decided: Monotonic,
    elections: Elections,
    records: Vec<MetadataRecord>,
    /// A registration is the last decision of its entry: its offset is the broker's epoch.
    closed: bool,
    waiters: Vec<oneshot::Sender<i64>>,
}

/// What was decided, after its records have been applied.
#[derive(Debug)]
struct Decided<R> {
    response: R,
    /// The offset of the records; `None` if nothing needed to change.
    offset: Option<i64>,
}

/// Why a decision was not taken or not applied.
enum Failed {
    NotInOffice,
    Busy,
    Refused(Refusal),
    TimedOut,
}

impl Active {
    /// The desk of a controller; [`Active::run`] occupies it.
    pub fn new(
        quorum: Quorum,
        clock: Clock,
        timings: Timings,
        file: BTreeMap<String, String>,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                quorum,
                clock,
                timings,
                file,
                desk: Mutex::new(None),
                stream_ended: Notify::new(),
                office: watch::channel(None).0,
                metrics: OfficeMetrics::default(),
                retired: Mutex::new(false),
            }),
        }
    }

    /// The epoch under which this controller is in office, if it is.
    pub fn office(&self) -> Option<ControllerEpoch> {
        *self.inner.office.borrow()
    }

    /// Changes when this controller takes or leaves office.
    pub fn watch(&self) -> watch::Receiver<Option<ControllerEpoch>> {
        self.inner.office.subscribe()
    }

    /// Whether this controller may decide now: in office, and heard by a majority of late.
    pub fn may_decide(&self) -> bool {
        self.office().is_some() && self.inner.quorum.heard_of_late()
    }

    /// The refusal of a controller that is not in office.
    pub fn not_controller(&self) -> RpcError {
        let me = self.inner.quorum.identity().controller_id;
        RpcError::not_controller(self.inner.quorum.leader().filter(|leader| *leader != me))
    }

    /// Takes and leaves office as the quorum elects. Ends with the quorum.
    pub async fn run(self) {
        let mut changes = self.inner.quorum.changes();
        let mut compared = ControllerEpoch(0);
        loop {
            let term = changes.leading();
            let held = self.inner.desk.lock().as_ref().map(|desk| desk.term);
            if held.is_some() && held != term {
                self.leave("leadership of the quorum was lost");
            }
            if let Some(term) = term
                && held != Some(term)
                && !*self.inner.retired.lock()
                && !self.take_office(term).await
            {
                self.inner.clock.sleep(OFFICE_REST).await;
            }
            if self.office().is_none() {
                self.compare_file(&mut compared);
            }
            if !changes.changed().await {
                self.leave("the quorum has stopped");
                return;
            }
        }
    }

    /// Says once for each controller that takes office where its file and this one's differ.
    fn compare_file(&self, compared: &mut ControllerEpoch) {
        let image = self.inner.quorum.image();
        let epoch = image.controller_epoch();
        if std::mem::replace(compared, epoch) == epoch {
            return;
        }
        for difference in control::office::differences(&image, &self.inner.file) {
            tracing::warn!(
                key = difference.name,
                file = difference.file,
                recorded = difference.recorded,
                controller_epoch = %epoch,
                "this controller's file differs from that of the active one, whose value holds; this one's would if it took office"
            );
        }
    }

    /// Leaves office for good: the process is going down.
    pub fn retire(&self) {
        *self.inner.retired.lock() = true;
        self.leave("the process is going down");
    }

    /// Takes office for a term, unless it has passed by then. If it did not succeed it is called again, after a rest and with the
    /// next news of the quorum.
    async fn take_office(&self, term: Term) -> bool {
        let quorum = &self.inner.quorum;
        // Everything of the leaders before must be applied here, to know which epoch comes next.
        let barrier = tokio::time::timeout(BARRIER_DEADLINE, quorum.read_barrier());
        if !matches!(barrier.await, Ok(Ok(()))) || quorum.leading() != Some(term) {
            return false;
        }
        let id = quorum.identity().controller_id;
        let before = quorum.image();
        for difference in control::office::differences(&before, &self.inner.file) {
            tracing::info!(
                key = difference.name,
                file = difference.file,
                recorded = difference.recorded,
                "this controller's file is recorded as it takes office"
            );
        }
        let mut batch = control::office::take_office(&before, id, &self.inner.file);
        batch.decided_at = self.inner.clock.now().wall;
        let epoch = batch.controller_epoch;
        let Ok(Outcome {
            offset,
            skipped: false,
        }) = quorum.propose(batch).await
        else {
            return false;
        };
        let image = quorum.image();
        if quorum.leading() != Some(term) || image.controller_epoch() != epoch {
            return false;
        }
        let mut heartbeats = Heartbeats::new(self.inner.timings);
        heartbeats.take_office(&image, self.now());
        let wake = Arc::new(Notify::new());
        {
            let retired = self.inner.retired.lock();
            if *retired {
                return false;
            }
            *self.inner.desk.lock() = Some(Desk {
                term,
                epoch,
                ahead: MetadataImage::clone(&image),
                heartbeats,
                flying: VecDeque::new(),
                queued: VecDeque::new(),
                next_offset: offset + 1,
                waiting: 0,
                looked: Monotonic::default(),
                wake: Arc::clone(&wake),
                clock: self.inner.clock.clone(),
            });
            self.inner.office.send_replace(Some(epoch));
        }
        tracing::info!(controller_epoch = %epoch, term = term.0, offset, "took office as the active controller");
        tokio::spawn(self.clone().pump(term, wake));
        true
    }

    fn leave(&self, why: &str) {
        let desk = self.inner.desk.lock().take();
        if let Some(desk) = desk {
            self.inner.office.send_replace(None);
            // Dropping the desk drops every waiter, and that is their answer.
            desk.wake.notify_one();
            tracing::info!(controller_epoch = %desk.epoch, "left office: {why}");
        }
    }

    fn leave_term(&self, term: Term, why: &str) {
        let held = self
            .inner
            .desk
            .lock()
            .as_ref()
            .is_some_and(|desk| desk.term == term);
        if held {
            self.leave(why);
        }
    }

    /// Proposes what is queued, a few entries at once, in order.
    async fn pump(self, term: Term, wake: Arc<Notify>) {
        let mut flying = FuturesOrdered::new();
        loop {
            while flying.len() < IN_FLIGHT {
                let Some(batch) = self.next_batch(term) else {
                    break;
                };
                match self.inner.quorum.submit(batch).await {
                    Ok(proposal) => flying.push_back(proposal.applied()),
                    Err(error) => return self.leave_term(term, &error.to_string()),
                }
            }
            tokio::select! {
                Some(result) = flying.next(), if !flying.is_empty() => {
                    if let Err(why) = self.settle(term, result) {
                        return self.leave_term(term, &why);
                    }
                }
                () = wake.notified() => {
                    if self.inner.desk.lock().as_ref().is_none_or(|desk| desk.term != term) {
                        return;
                    }
                }
            }
        }
    }

    fn next_batch(&self, term: Term) -> Option<RecordBatch> {
        let mut desk = self.inner.desk.lock();
        let desk = desk.as_mut().filter(|desk| desk.term == term)?;
        let group = desk.queued.pop_front()?;
        let batch = RecordBatch {
            controller_epoch: desk.epoch,
            decided_at: group.decided_at,
            records: group.records.clone(),
        };
        desk.flying.push_back(group);
        Some(batch)
    }

    /// The oldest entry on its way has been applied, or will not be.
    fn settle(&self, term: Term, result: Result<Outcome, ProposeError>) -> Result<(), String> {
        let outcome = result.map_err(|error| error.to_string())?;
        if outcome.skipped {
            return Err("another controller has taken office".to_owned());
        }
        let mut desk = self.inner.desk.lock();
        let Some(desk) = desk.as_mut().filter(|desk| desk.term == term) else {
            return Err("another term has begun".to_owned());
        };
        let Some(group) = desk.flying.pop_front() else {
            return Err("an entry was applied that nobody proposed".to_owned());
        };
        desk.waiting -= group.waiters.len();
        if outcome.offset != group.offset {
            // An entry of the quorum's own came in between: the epochs foreseen for what follows were wrong.
            desk.foresee_again(&self.inner.quorum.image(), outcome.offset + 1);
        } else if desk.flying.is_empty() && desk.queued.is_empty() {
            desk.ahead = MetadataImage::clone(&self.inner.quorum.image());
        }
        let took = self.inner.clock.now().monotonic.since(group.decided);
        self.inner.metrics.applied(group.elections, took);
        tell(&self.inner.quorum.image(), desk.epoch, &group.records);
        for waiter in group.waiters {
            // Whoever waited may have given up.
            let _ = waiter.send(outcome.offset);
        }
        Ok(())
    }

    /// Decides, and waits until what was decided has been applied. The closure runs under the lock of the desk.
    async fn decide<R>(
        &self,
        decide: impl FnOnce(
            &MetadataImage,
            &mut Heartbeats,
            Now,
            &mut Random,
        ) -> Result<Decision<R>, Refusal>,
    ) -> Result<Decided<R>, RpcError> {
        self.try_decide(decide).await.map_err(|failed| match failed {
            Failed::NotInOffice => self.not_controller(),
            Failed::Busy => RpcError::new(
                ErrorCode::ThrottlingQuotaExceeded,
                "the active controller has too much to decide: try again later",
            ),
            Failed::Refused(refusal) => refusal.into(),
            Failed::TimedOut => RpcError::new(
                ErrorCode::RequestTimedOut,
                "no majority of the controllers has confirmed the decision yet; it may still come to pass",
            ),
        })
    }

    async fn try_decide<R>(
        &self,
        decide: impl FnOnce(
            &MetadataImage,
            &mut Heartbeats,
            Now,
            &mut Random,
        ) -> Result<Decision<R>, Refusal>,
    ) -> Result<Decided<R>, Failed> {
        let heard = self.inner.quorum.heard_of_late();
        let mut random = Random::new(self.inner.clock.random());
        let (decision, changed, receiver) = {
            let mut desk = self.inner.desk.lock();
            let desk = desk.as_mut().filter(|_| heard).ok_or(Failed::NotInOffice)?;
            if desk.waiting >= WAITING {
                return Err(Failed::Busy);
            }
            let now = self.now();
            let decision = decide(&desk.ahead, &mut desk.heartbeats, now, &mut random);
            let (records, decision) = match decision {
                Ok(Decision { records, response }) => (records, Ok(response)),
                Err(refusal) => (Vec::new(), Err(refusal)),
            };
            let changed = !records.is_empty();
            let receiver = if changed {
                Some(desk.record(records))
            } else {
                desk.wait_for_last()
            };
            (decision, changed, receiver)
        };
        let offset = match receiver {
            None => None,
            Some(receiver) => match tokio::time::timeout(COMMIT_DEADLINE, receiver).await {
                Ok(Ok(offset)) => Some(offset),
                Ok(Err(_)) => return Err(Failed::NotInOffice),
                Err(_) => return Err(Failed::TimedOut),
            },
        };
        let response = decision.map_err(Failed::Refused)?;
        Ok(Decided {
            response,
            offset: offset.filter(|_| changed),
        })
    }

    /// What time it is, for sessions and for decisions.
    fn now(&self) -> Now {
        let now = self.inner.clock.now();
        if mutation::off(Mutation::SessionsByWallClock) {
            let since_1970 = Duration::from_millis(now.wall.0.unsigned_abs());
            let monotonic = Monotonic(since_1970);
            return Now { monotonic, ..now };
        }
        now
    }

    /// Decides what time asks for: expired sessions, and leaders that have become possible.
    pub(crate) fn tick(&self) {
        self.with_desk(|desk, now| {
            let expired = desk.heartbeats.next_deadline(&desk.ahead);
            let looked = now.monotonic.since(desk.looked) >= LOOK_INTERVAL
                || expired.is_some_and(|deadline| deadline <= now.monotonic);
            if !looked {
                return;
            }
            for _ in 0..TICK_DECISIONS {
                if desk.waiting >= WAITING {
                    return;
                }
                let Some(decision) = control::tick::tick(&desk.ahead, &desk.heartbeats, now) else {
                    break;
                };
                if decision.records.is_empty() {
                    break;
                }
                match decision.response {
                    Ticked::Fenced(broker, silence) => {
                        let broker_epoch = desk.ahead.broker(broker).map(|broker| broker.epoch.0);
                        tracing::warn!(%broker, broker_epoch, cause = silence.cause(), "broker fenced");
                    }
                    Ticked::Reconciled(partitions) => {
                        tracing::info!(partitions, "partitions brought in line with who is alive");
                    }
                    Ticked::Moved(partitions) => {
                        tracing::info!(partitions, "reassignments completed");
                    }
                }
                // Nobody waits for it.
                drop(desk.record(decision.records));
            }
            desk.looked = now.monotonic;
        });
    }

    /// Gives leadership back to preferred leaders, some partitions at a time. Returns whether there may be more of them.
    pub(crate) fn rebalance(&self) -> bool {
        let mut given = 0;
        self.with_desk(|desk, _| {
            if desk.waiting >= WAITING {
                return;
            }
            let decision =
                control::leaders::rebalance(&desk.ahead, &desk.heartbeats, REBALANCE_PARTITIONS);
            if !decision.records.is_empty() {
                tracing::info!(
                    partitions = decision.response,
                    "leadership goes back to preferred leaders"
                );
                given = decision.response;
                drop(desk.record(decision.records));
            }
        });
        given >= REBALANCE_PARTITIONS
    }

    fn with_desk(&self, act: impl FnOnce(&mut Desk, Now)) {
        if self.inner.quorum.heard_of_late() {
            let mut desk = self.inner.desk.lock();
            if let Some(desk) = desk.as_mut() {
                act(desk, self.now());
            }
        }
    }

    /// Returns when a session stream has ended since it was last asked.
    pub(crate) async fn stream_ended(&self) {
        self.inner.stream_ended.notified().await;
    }

    /// The brokers that are out of this controller's sight, and where they listen for each other.
    pub(crate) fn missing(&self) -> Vec<(BrokerId, BrokerEpoch, String)> {
        let mut missing = Vec::new();
        self.with_desk(|desk, now| {
            let listener = |id| {
                let listeners = &desk.ahead.broker(id)?.listeners;
                listeners.iter().find(|one| one.name == INTERNAL)
            };
            for (id, epoch) in desk.heartbeats.missing(&desk.ahead, now) {
                if let Some(listener) = listener(id) {
                    missing.push((id, epoch, format!("{}:{}", listener.host, listener.port)));
                }
            }
        });
        missing
    }

    /// Nobody listens at a missing broker's address.
    pub(crate) fn refused(&self, broker: BrokerId, epoch: BrokerEpoch) {
        self.with_desk(|desk, now| desk.heartbeats.refused(broker, epoch, now));
    }

    /// Answers a broker that introduces itself.
    ///
    /// # Errors
    /// As the decision, or NOT_CONTROLLER.
    pub async fn register(&self, request: RegisterRequest) -> Result<RegisterReply, RpcError> {
        self.decide(|image, heartbeats, now, _| {
            control::brokers::register(image, heartbeats, &request, now)
        })
        .await?;
        let image = self.inner.quorum.image();
        let broker = image
            .broker(request.broker_id)
            .filter(|broker| broker.incarnation_id == request.incarnation_id)
            .ok_or_else(|| {
                RpcError::new(
                    ErrorCode::DuplicateBrokerRegistration,
                    format!(
                        "another process has registered as broker {} since",
                        request.broker_id
                    ),
                )
            })?;
        if let Some(desk) = self.inner.desk.lock().as_mut() {
            desk.heartbeats
                .registered(broker.id, broker.epoch, self.now());
        }
        tracing::info!(broker = %broker.id, broker_epoch = %broker.epoch, incarnation = %broker.incarnation_id, "broker registered");
        Ok(RegisterReply {
            broker_epoch: broker.epoch,
        })
    }

    /// Answers a heartbeat.
    ///
    /// # Errors
    /// As the decision, or NOT_CONTROLLER.
    pub async fn heartbeat(&self, request: HeartbeatRequest) -> Result<HeartbeatReply, RpcError> {
        let decided = self
            .decide(|image, heartbeats, now, _| {
                control::brokers::heartbeat(image, heartbeats, &request, now)
            })
            .await?;
        Ok(decided.response)
    }

    /// A broker opened its session stream.
    ///
    /// # Errors
    /// NOT_CONTROLLER, or the broker is not registered under this epoch.
    pub fn open_session(&self, request: &SessionRequest) -> Result<Session, RpcError> {
        let mut desk = self.inner.desk.lock();
        let Some(desk) = desk.as_mut() else {
            return Err(self.not_controller());
        };
        match desk.ahead.broker(request.broker_id) {
            None => Err(RpcError::new(
                ErrorCode::BrokerIdNotRegistered,
                format!("broker {} is not registered", request.broker_id),
            )),
            Some(broker) if broker.epoch != request.broker_epoch => Err(RpcError::new(
                ErrorCode::StaleBrokerEpoch,
                format!(
                    "broker {} is registered under another epoch",
                    request.broker_id
                ),
            )),
            Some(_) => {
                let now = self.now();
                let id =
                    desk.heartbeats
                        .session_opened(request.broker_id, request.broker_epoch, now);
                Ok(Session {
                    active: self.clone(),
                    broker: request.broker_id,
                    epoch: desk.epoch,
                    id,
                })
            }
        }
    }

    /// A broker will close its session stream on purpose.
    ///
    /// # Errors
    /// NOT_CONTROLLER.
    pub fn goodbye(&self, request: &SessionRequest) -> Result<(), RpcError> {
        let mut desk = self.inner.desk.lock();
        let Some(desk) = desk.as_mut() else {
            return Err(self.not_controller());
        };
        desk.heartbeats
            .goodbye(request.broker_id, request.broker_epoch);
        Ok(())
    }

    /// Answers a leader that wants to change ISRs.
    ///
    /// # Errors
    /// As the decision, or NOT_CONTROLLER.
    pub async fn alter_partition(
        &self,
        request: AlterPartitionRequest,
    ) -> Result<AlterPartitionReply, RpcError> {
        let decided = self
            .decide(|image, _, _, _| control::isr::alter_partition(image, &request))
            .await?;
        Ok(decided.response)
    }

    /// Notes where a broker has placed its replicas.
    ///
    /// # Errors
    /// As the decision, or NOT_CONTROLLER.
    pub async fn assign_directories(
        &self,
        request: AssignDirectoriesRequest,
    ) -> Result<(), RpcError> {
        self.decide(|image, soft, _, _| {
            control::brokers::assign_directories(image, soft, &request)
        })
        .await?;
        Ok(())
    }

    /// Records what a broker reports, to be remembered.
    ///
    /// # Errors
    /// As the decision, or NOT_CONTROLLER.
    pub async fn report_events(&self, request: ReportEventsRequest) -> Result<(), RpcError> {
        self.decide(|image, _, _, _| control::reports::report(image, &request))
            .await?;
        Ok(())
    }

    /// Hands out a block of producer ids.
    ///
    /// # Errors
    /// As the decision, or NOT_CONTROLLER.
    pub async fn allocate_producer_ids(
        &self,
        request: AllocateProducerIdsRequest,
    ) -> Result<AllocateProducerIdsReply, RpcError> {
        let decided = self
            .decide(|image, _, _, _| control::producer_ids::allocate(image, &request))
            .await?;
        Ok(decided.response)
    }

    /// Keeps a producer id for the replay of a salvaged item of so many records into a topic.
    ///
    /// # Errors
    /// As the decision, or NOT_CONTROLLER.
    pub async fn reserve_replay(
        &self,
        item: &str,
        target: TopicId,
        partition: PartitionIndex,
        records: u64,
    ) -> Result<SalvageReplayImage, RpcError> {
        let decided = self
            .decide(|image, _, _, _| {
                control::salvage::reserve(image, item, target, partition, records)
            })
            .await?;
        Ok(decided.response)
    }

    /// Takes note of how far a replay is.
    ///
    /// # Errors
    /// As the decision, or NOT_CONTROLLER.
    pub async fn acknowledge_replay(
        &self,
        item: &str,
        target: TopicId,
        acknowledged: u64,
    ) -> Result<(), RpcError> {
        self.decide(|image, _, _, _| {
            control::salvage::acknowledge(image, item, target, acknowledged)
        })
        .await?;
        Ok(())
    }

    /// Takes note that a replay is given up until it is asked for again.
    ///
    /// # Errors
    /// As the decision, or NOT_CONTROLLER.
    pub async fn stop_replay(
        &self,
        item: &str,
        target: TopicId,
        acknowledged: u64,
    ) -> Result<(), RpcError> {
        self.decide(|image, _, _, _| control::salvage::stop(image, item, target, acknowledged))
            .await?;
        Ok(())
    }

    /// Takes note that a replay is over; the first note counts.
    ///
    /// # Errors
    /// As the decision, or NOT_CONTROLLER.
    pub async fn finish_replay(
        &self,
        item: &str,
        target: TopicId,
        records: u64,
    ) -> Result<SalvageReplayedImage, RpcError> {
        let decided = self
            .decide(|image, _, now, _| {
                control::salvage::finish(image, item, target, records, now.wall)
            })
            .await?;
        Ok(decided.response)
    }

    /// Decides what a client asked for. Also returns the offset of the records, if there are any.
    ///
    /// # Errors
    /// NOT_CONTROLLER, busy, or no majority.
    pub async fn command(&self, command: Command) -> Result<(CommandReply, Option<i64>), RpcError> {
        let decided = self
            .decide(|image, heartbeats, now, random| {
                Ok(control::decide(image, heartbeats, &command, now, random))
            })
            .await?;
        Ok((decided.response, decided.offset))
    }
}

impl Active {
    /// What this controller has counted while it was active.
    pub fn metrics(&self) -> &OfficeMetrics {
        &self.inner.metrics
    }
}

impl Desk {
    /// Takes note of a decision's records; the receiver learns the offset once they are applied.
    fn record(&mut self, records: Vec<MetadataRecord>) -> oneshot::Receiver<i64> {
        let registers = records
            .iter()
            .any(|record| matches!(record, MetadataRecord::RegisterBroker(_)));
        let fits = self.queued.back().is_some_and(|group| {
            !group.closed && group.records.len() + records.len() <= GROUP_RECORDS
        });
        if !fits {
            let now = self.clock.now();
            self.queued.push_back(Group {
                offset: self.next_offset,
                decided_at: now.wall,
                decided: now.monotonic,
                elections: Elections::default(),
                records: Vec::new(),
                closed: false,
                waiters: Vec::new(),
            });
            self.next_offset += 1;
        }
        let group = self
            .queued
            .back_mut()
            .expect("one was pushed if there was none");
        let mut delta = MetadataDelta::default();
        for record in &records {
            group.elections.count(&self.ahead, record);
            self.ahead.apply(group.offset, record, &mut delta);
        }
        group.records.extend(records);
        group.closed |= registers;
        let (sender, receiver) = oneshot::channel();
        group.waiters.push(sender);
        self.waiting += 1;
        self.wake.notify_one();
        receiver
    }

    /// Waits for what has been decided so far: an answer may rest on it. `None` if all of it is applied.
    fn wait_for_last(&mut self) -> Option<oneshot::Receiver<i64>> {
        let group = self.queued.back_mut().or(self.flying.back_mut())?;
        let (sender, receiver) = oneshot::channel();
        group.waiters.push(sender);
        self.waiting += 1;
        Some(receiver)
    }

    /// Builds `ahead` anew from what is applied, with the right offsets for what is not.
    fn foresee_again(&mut self, applied: &MetadataImage, next_offset: i64) {
        self.ahead = applied.clone();
        self.next_offset = next_offset;
        let mut delta = MetadataDelta::default();
        for group in self.flying.iter_mut().chain(&mut self.queued) {
            group.offset = self.next_offset;
            self.next_offset += 1;
            for record in &group.records {
                self.ahead.apply(group.offset, record, &mut delta);
            }
        }
    }
}

/// Says in the log what has been applied, one line for each thing an operator may look for.
fn tell(image: &MetadataImage, controller_epoch: ControllerEpoch, records: &[MetadataRecord]) {
    for record in records {
        match record {
            MetadataRecord::BrokerRegistrationChange {
                broker_id,
                broker_epoch,
                fenced,
                in_controlled_shutdown,
                cause,
                ..
            } => tracing::info!(
                %controller_epoch, broker = %broker_id, %broker_epoch, ?fenced, ?in_controlled_shutdown, cause,
                "broker changed"
            ),
            MetadataRecord::UnregisterBroker {
                broker_id,
                broker_epoch,
            } => tracing::info!(
                %controller_epoch, broker = %broker_id, %broker_epoch, "broker unregistered"
            ),
            MetadataRecord::BrokerDrain {
                broker_id,
                draining,
            } => tracing::info!(%controller_epoch, broker = %broker_id, draining, "broker drained"),
            MetadataRecord::Topic { name, topic_id } => {
                tracing::info!(%controller_epoch, topic = name, %topic_id, "topic created");
            }
            MetadataRecord::RemoveTopic { topic_id } => {
                tracing::info!(%controller_epoch, %topic_id, "topic deleted");
            }
            MetadataRecord::PartitionChange(change)
                if change.leader.is_some() || change.isr.is_some() =>
            {
                let topic = image
                    .topic_by_id(change.topic_id)
                    .map(|topic| topic.name.as_str());
                let Some(now) = image.partition(change.topic_id, change.partition) else {
                    continue;
                };
                let isr: Vec<i32> = now.isr.iter().map(|broker| broker.0).collect();
                let elr: Vec<i32> = now.elr.iter().map(|broker| broker.0).collect();
                // Of the process that leads: which of its lives this is.
                let leader = now.leader.and_then(|leader| image.broker(leader));
                let broker_epoch = leader.map(|broker| broker.epoch.0);
                tracing::info!(
                    %controller_epoch,
                    topic,
                    partition = change.partition,
                    leader = now.leader.map(|leader| leader.0),
                    leader_epoch = now.leader_epoch.0,
                    broker_epoch,
                    partition_epoch = change.partition_epoch.0,
                    ?isr,
                    ?elr,
                    cause = change.cause,
                    "partition changed"
                );
            }
            MetadataRecord::Config {
                resource,
                name,
                value,
            } => tracing::info!(
                %controller_epoch, ?resource, name, value, "configuration changed"
            ),
            _ => {}
        }
    }
}

/// An open session stream. Dropping it is how its end is noticed.
#[derive(Debug)]
pub struct Session {
    active: Active,
    broker: BrokerId,
    /// The office it was opened under; a later one knows nothing of it.
    epoch: ControllerEpoch,
    id: SessionId,
}

impl Drop for Session {
    fn drop(&mut self) {
        let now = self.active.now();
        let mut desk = self.active.inner.desk.lock();
        if let Some(desk) = desk.as_mut().filter(|desk| desk.epoch == self.epoch) {
            desk.heartbeats.session_closed(self.broker, self.id, now);
            self.active.inner.stream_ended.notify_one();
        }
    }
}
