//! The follower's hands: one task per leader, which asks that leader about all partitions that follow it.
//! Law: what to ask is each partition's decision (`Partition::next_step`), what an answer means too; here requests are
//! put together and carried. A partition whose disk is still flushing holds the others up for a moment at most.
//!
//! ```text
//!            ┌── Fetch of everyone, parked at the leader until there is something new for anyone
//! one leader ┼── Fetch of everyone again, when somebody became ready meanwhile: the leader then answers the other one at once
//!            └── OffsetForLeaderEpoch, never parked
//! ```

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::messages::fetch::{
    FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData, ReplicaState,
};
use kuorum_protocol::messages::offset_for_leader_epoch::{
    OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, OffsetForLeaderPartition,
    OffsetForLeaderTopic,
};
use kuorum_protocol::{BrokerId, LeaderEpoch, Now, Offset, TopicId};
use kuorum_replication::follower::FetchFailure;
use kuorum_replication::{FollowerStep, Ticket};
use kuorum_transport::{Backoff, CallError, Clock, Connection, Dialing, Watch};
use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};

use crate::cluster::Membership;
use crate::partition::Fetched;
use crate::replica_manager::{Hosted, Key};

/// The versions brokers speak among themselves.
const FETCH_VERSION: i16 = 18;
const EPOCHS_VERSION: i16 = 4;
/// How long those that are ready wait for those whose flush is under way, so that one request carries them all.
const HOLD: Duration = Duration::from_millis(4);
/// How often partitions that wait out an error are looked at again.
const SECOND_LOOK: Duration = Duration::from_millis(50);
/// After the first failure in a row; no rest is shorter.
const FIRST_REST: Duration = Duration::from_millis(20);
/// Beyond the time a leader may park a request, how long its answer may take.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);
const CONNECT_PATIENCE: Duration = Duration::from_secs(2);
/// Partitions in one request.
const PARTITIONS_MOST: usize = 4000;

/// The bounds of a follower's fetches.
#[derive(Clone, Copy, Debug)]
pub struct FetchLimits {
    /// `replica.fetch.wait.max.ms`: how long a leader may park a fetch that finds nothing.
    pub wait_max: Duration,
    /// `replica.fetch.min.bytes`: with how little a parked fetch is answered.
    pub min_bytes: i32,
    /// `replica.fetch.backoff.ms`: the longest rest after a failed fetch; the first is shorter.
    pub backoff: Duration,
    /// `replica.fetch.max.bytes`, for one partition.
    pub partition_max_bytes: usize,
    /// `replica.fetch.response.max.bytes`, for one answer.
    pub response_max_bytes: usize,
}

/// How long clients are told that nobody leads where a leader has just been lost from sight. By then it is fenced, or was found again; a leader
/// that only this broker cannot reach is named again.
const DOUBTED: Duration = Duration::from_secs(1);

/// All fetchers of this broker, one per leader that it follows.
#[derive(Debug)]
pub struct Fetchers {
    clock: Clock,
    membership: Arc<Membership>,
    limits: FetchLimits,
    network: Arc<dyn Dialing>,
    runtime: Handle,
    tasks: TaskTracker,
    stop: CancellationToken,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    addresses: HashMap<BrokerId, Arc<Mutex<String>>>,
    leaders: HashMap<BrokerId, Arc<Shared>>,
    /// Whom each partition follows.
    following: HashMap<Key, BrokerId>,
}

/// What a fetcher shares with those who give it work.
#[derive(Debug)]
struct Shared {
    leader: BrokerId,
    nudge: Arc<Notify>,
    /// The partitions that follow this leader, and in which leader epoch: a new one is a new beginning.
    partitions: Mutex<HashMap<Key, (Arc<Hosted>, LeaderEpoch)>>,
    address: Arc<Mutex<String>>,
    sight: Mutex<Sight>,
}

/// Whether a leader can be fetched from, as far as connections tell. That an answer is late does not count: it may be a slow disk's.
#[derive(Debug, Default)]
struct Sight {
    /// The connection over which the last answer came.
    last: Option<Watch>,
    /// Since when connections break, or are refused.
    lost: Option<Instant>,
}

impl Sight {
    fn answered(&mut self, over: Option<&Connection>) {
        self.last = over.map(Connection::watch);
        self.lost = None;
    }

    fn broke(&mut self) {
        self.lost.get_or_insert_with(Instant::now);
    }

    /// Since when it is lost, if that was a moment ago. Clients ask within a millisecond, maybe between two fetches.
    fn just_lost(&mut self) -> Option<Instant> {
        if self.last.as_ref().is_some_and(Watch::is_broken) {
            self.broke();
        }
        self.lost.filter(|since| since.elapsed() < DOUBTED)
    }
}

impl Fetchers {
    /// Follows nobody yet. Leaders are reached over `network`; tasks run on `runtime` until `stop` is cancelled.
    pub fn new(
        clock: Clock,
        membership: Arc<Membership>,
        limits: FetchLimits,
        network: Arc<dyn Dialing>,
        runtime: Handle,
        stop: CancellationToken,
    ) -> Self {
        Self {
            clock,
            membership,
            limits,
            network,
            runtime,
            tasks: TaskTracker::new(),
            stop,
            state: Mutex::new(State::default()),
        }
    }

    /// Where brokers listen for each other.
    pub fn know(&self, addresses: impl Iterator<Item = (BrokerId, String)>) {
        let mut state = self.state.lock();
        for (broker, address) in addresses {
            let known = state.addresses.entry(broker).or_default();
            let mut known = known.lock();
            if *known != address {
                *known = address;
            }
        }
    }

    /// `hosted` follows `leader` in `epoch` from now on. In a new epoch it begins anew: it is asked for at once, whatever
    /// request of the epoch before is still under way.
    pub fn follow(&self, hosted: &Arc<Hosted>, leader: BrokerId, epoch: LeaderEpoch) {
        let mut state = self.state.lock();
        let before = state.following.insert(hosted.key(), leader);
        if let Some(before) = before
            && before != leader
            && let Some(shared) = state.leaders.get(&before)
        {
            shared.partitions.lock().remove(&hosted.key());
        }
        let shared = self.fetcher_of(&mut state, leader);
        let mut partitions = shared.partitions.lock();
        partitions.insert(hosted.key(), (Arc::clone(hosted), epoch));
        drop(partitions);
        hosted.set_fetcher(Some(Arc::clone(&shared.nudge)));
        shared.nudge.notify_one();
    }

    /// `hosted` follows nobody.
    pub fn leave(&self, hosted: &Arc<Hosted>) {
        let mut state = self.state.lock();
        if let Some(leader) = state.following.remove(&hosted.key())
            && let Some(shared) = state.leaders.get(&leader)
        {
            shared.partitions.lock().remove(&hosted.key());
            hosted.set_fetcher(None);
        }
    }

    /// Waits for the tasks, which `stop` must have ended, and lets go of every partition. Blocks.
    pub fn close(&self) {
        self.tasks.close();
        self.runtime.block_on(self.tasks.wait());
        let mut state = self.state.lock();
        state.following.clear();
        for (_, shared) in state.leaders.drain() {
            shared.partitions.lock().clear();
        }
    }

    /// Leaders that could be fetched from until a moment ago, and since when they cannot. Before a controller may call one of them dead a
    /// client asks who leads, and if it were told the same name again, some would not ask a second time for a second.
    pub fn just_lost(&self) -> Vec<(BrokerId, Instant)> {
        let state = self.state.lock();
        let followed = state.leaders.values();
        let followed = followed.filter(|shared| !shared.partitions.lock().is_empty());
        let lost = followed.filter_map(|shared| {
            let since = shared.sight.lock().just_lost()?;
            Some((shared.leader, since))
        });
        lost.collect()
    }

    /// The task of a leader, begun when it is first followed. There are never more than there are brokers.
    fn fetcher_of(&self, state: &mut State, leader: BrokerId) -> Arc<Shared> {
        if let Some(shared) = state.leaders.get(&leader) {
            return Arc::clone(shared);
        }
        let shared = Arc::new(Shared {
            leader,
            nudge: Arc::new(Notify::new()),
            partitions: Mutex::new(HashMap::new()),
            address: Arc::clone(state.addresses.entry(leader).or_default()),
            sight: Mutex::default(),
        });
        state.leaders.insert(leader, Arc::clone(&shared));
        let fetcher = LeaderFetcher::new(self, Arc::clone(&shared));
        self.tasks
            .spawn_on(fetcher.run(self.stop.clone()), &self.runtime);
        shared
    }
}

/// One partition of one request.
#[derive(Clone, Debug)]
struct Asked {
    hosted: Arc<Hosted>,
    epoch: LeaderEpoch,
    step: FollowerStep,
}

/// A request that has been sent, and what came of it.
struct Returned {
    lane: usize,
    number: u64,
    asked: Vec<Asked>,
    /// The connection, unless it is broken.
    connection: Option<Connection>,
    answer: Result<Answer, CallError>,
}

enum Answer {
    Fetched(FetchResponse),
    Epochs(OffsetForLeaderEpochResponse),
}

/// The lane of questions about epochs; those before it carry fetches.
const EPOCHS_LANE: usize = 2;

/// One connection, on which one request at a time is under way.
#[derive(Debug, Default)]
struct Lane {
    busy: bool,
    connection: Option<Connection>,
}

struct LeaderFetcher {
    shared: Arc<Shared>,
    clock: Clock,
    membership: Arc<Membership>,
    limits: FetchLimits,
    network: Arc<dyn Dialing>,
    lanes: [Lane; 3],
    /// The newest request that is under way for each partition, by number, and what it asks.
    under_way: HashMap<Key, (u64, Asked)>,
    next_number: u64,
    requests: FuturesUnordered<BoxFuture<'static, Returned>>,
    backoff: Backoff,
    /// Nobody is connected to before this.
    rest_until: Option<Instant>,
    /// Since when somebody ready has been held back for the sake of a flush.
    held_since: Option<Instant>,
    turn: usize,
}

/// What the partitions want.
#[derive(Default)]
struct Wishes {
    epochs: Vec<Asked>,
    fetches: Vec<Asked>,
    /// A flush is under way somewhere; its end will nudge.
    flushing: bool,
    /// Somebody waits out an error.
    waiting: bool,
}

impl LeaderFetcher {
    fn new(fetchers: &Fetchers, shared: Arc<Shared>) -> Self {
        Self {
            shared,
            clock: fetchers.clock.clone(),
            membership: Arc::clone(&fetchers.membership),
            limits: fetchers.limits,
            network: Arc::clone(&fetchers.network),
            lanes: Default::default(),
            under_way: HashMap::new(),
            next_number: 0,
            requests: FuturesUnordered::new(),
            backoff: Backoff::new(FIRST_REST, fetchers.limits.backoff.max(FIRST_REST)),
            rest_until: None,
            held_since: None,
            turn: 0,
        }
    }

    async fn run(mut self, stop: CancellationToken) {
        let nudge = Arc::clone(&self.shared.nudge);
        loop {
            let look_again = self.send_what_is_due();
            tokio::select! {
                () = stop.cancelled() => return,
                () = nudge.notified() => {}
                Some(returned) = self.requests.next(), if !self.requests.is_empty() => self.take(returned),
                () = wait(look_again), if look_again.is_some() => {}
            }
        }
    }

    /// Sends what can be sent now; returns when to look again if nothing happens before.
    fn send_what_is_due(&mut self) -> Option<Instant> {
        let instant = Instant::now();
        if let Some(until) = self.rest_until {
            if instant < until {
                return Some(until);
            }
            self.rest_until = None;
        }
        let wishes = self.wishes(self.clock.now());
        let mut look_again = wishes.waiting.then(|| instant + SECOND_LOOK);
        if !wishes.epochs.is_empty() && !self.lanes[EPOCHS_LANE].busy {
            self.send(EPOCHS_LANE, wishes.epochs);
        }
        if wishes.fetches.is_empty() {
            self.held_since = None;
            return look_again;
        }
        let Some(lane) = (0..EPOCHS_LANE).find(|lane| !self.lanes[*lane].busy) else {
            return look_again;
        };
        let held_since = *self.held_since.get_or_insert(instant);
        if wishes.flushing && instant < held_since + HOLD {
            let until = held_since + HOLD;
            look_again = Some(look_again.map_or(until, |look| look.min(until)));
            return look_again;
        }
        self.held_since = None;
        let everyone = self.with_those_parked(wishes.fetches);
        self.send(lane, everyone);
        look_again
    }

    /// Those who are ready first, then everyone whose fetch is parked at the leader: the new request takes its place.
    fn with_those_parked(&self, mut ready: Vec<Asked>) -> Vec<Asked> {
        let partitions = self.shared.partitions.lock();
        let parked = self.under_way.values().filter(|(_, asked)| {
            let current = partitions.get(&asked.hosted.key());
            matches!(asked.step, FollowerStep::Fetch { .. })
                && current.is_some_and(|(_, epoch)| *epoch == asked.epoch)
        });
        let mut parked: Vec<Asked> = parked.map(|(_, asked)| asked.clone()).collect();
        parked.sort_unstable_by_key(|asked| asked.hosted.key());
        ready.extend(parked);
        ready.truncate(PARTITIONS_MOST);
        ready
    }

    fn wishes(&mut self, now: Now) -> Wishes {
        let mut wishes = Wishes::default();
        let partitions = self.shared.partitions.lock();
        for (key, (hosted, epoch)) in &*partitions {
            let sent_in = self.under_way.get(key).map(|(_, asked)| asked.epoch);
            if sent_in == Some(*epoch) {
                continue;
            }
            let (step, flushing) = hosted.with(|partition, _| {
                let log = partition.log_view();
                (partition.next_step(now), log.flushed_end < log.log_end)
            });
            let asked = Asked {
                hosted: Arc::clone(hosted),
                epoch: *epoch,
                step,
            };
            let limit = hosted.fetching_limit();
            match step {
                FollowerStep::Fetch { .. }
                    if limit.is_some_and(|limit| limit.admit(now.monotonic).is_err()) =>
                {
                    wishes.waiting = true;
                }
                FollowerStep::EpochEnd { leader, .. } if leader == self.shared.leader => {
                    wishes.epochs.push(asked);
                }
                FollowerStep::Fetch { leader, .. } if leader == self.shared.leader => {
                    wishes.fetches.push(asked);
                }
                // About to be given to another leader's fetcher.
                FollowerStep::EpochEnd { .. } | FollowerStep::Fetch { .. } => {}
                FollowerStep::Nothing if flushing => wishes.flushing = true,
                FollowerStep::Nothing => wishes.waiting = true,
            }
        }
        drop(partitions);
        for list in [&mut wishes.epochs, &mut wishes.fetches] {
            if !list.is_empty() {
                // The first partitions of a request are the ones whose records are sure to fit.
                list.sort_unstable_by_key(|asked| asked.hosted.key());
                let first = self.turn % list.len();
                list.rotate_left(first);
                list.truncate(PARTITIONS_MOST);
            }
        }
        self.turn = self.turn.wrapping_add(1);
        wishes
    }

    fn send(&mut self, lane: usize, asked: Vec<Asked>) {
        let number = self.next_number;
        self.next_number += 1;
        for one in &asked {
            self.under_way
                .insert(one.hosted.key(), (number, one.clone()));
        }
        let place = &mut self.lanes[lane];
        place.busy = true;
        let connection = place
            .connection
            .take()
            .filter(|connection| !connection.is_closed());
        let address = self.shared.address.lock().clone();
        let client_id = format!("broker-{}-fetcher", self.membership.id);
        let request = if lane == EPOCHS_LANE {
            Question::Epochs(self.epochs_request(&asked))
        } else {
            let wait = self.limits.wait_max;
            Question::Fetch(self.fetch_request(&asked, wait), wait)
        };
        let network = Arc::clone(&self.network);
        self.requests.push(Box::pin(async move {
            let (connection, answer) =
                ask(connection, &*network, &address, &client_id, request).await;
            Returned {
                lane,
                number,
                asked,
                connection,
                answer,
            }
        }));
    }

    fn fetch_request(&self, asked: &[Asked], wait: Duration) -> FetchRequest {
        let mut topics: Vec<FetchTopic> = Vec::new();
        for one in asked {
            let FollowerStep::Fetch {
                offset,
                last_fetched_epoch,
                current_leader_epoch,
                log_start,
                ..
            } = one.step
            else {
                continue;
            };
            let partition = FetchPartition {
                partition: one.hosted.index,
                current_leader_epoch: current_leader_epoch.0,
                fetch_offset: offset.0,
                last_fetched_epoch: last_fetched_epoch.unwrap_or(LeaderEpoch::UNKNOWN).0,
                log_start_offset: log_start.0,
                partition_max_bytes: bounded(self.limits.partition_max_bytes),
                replica_directory_id: one.hosted.directory.0,
                ..Default::default()
            };
            match topics.last_mut() {
                Some(topic) if topic.topic_id == one.hosted.topic_id.0 => {
                    topic.partitions.push(partition)
                }
                _ => topics.push(FetchTopic {
                    topic_id: one.hosted.topic_id.0,
                    partitions: vec![partition],
                    ..Default::default()
                }),
            }
        }
        FetchRequest {
            replica_state: ReplicaState {
                replica_id: self.membership.id.0,
                replica_epoch: self.membership.epoch().map_or(-1, |epoch| epoch.0),
            },
            max_wait_ms: bounded(usize::try_from(wait.as_millis()).unwrap_or(usize::MAX)),
            min_bytes: self.limits.min_bytes,
            max_bytes: bounded(self.limits.response_max_bytes),
            topics,
            ..Default::default()
        }
    }

    fn epochs_request(&self, asked: &[Asked]) -> OffsetForLeaderEpochRequest {
        let mut topics: Vec<OffsetForLeaderTopic> = Vec::new();
        for one in asked {
            let FollowerStep::EpochEnd {
                epoch,
                current_leader_epoch,
                ..
            } = one.step
            else {
                continue;
            };
            let partition = OffsetForLeaderPartition {
                partition: one.hosted.index,
                current_leader_epoch: current_leader_epoch.0,
                leader_epoch: epoch.0,
            };
            match topics.last_mut() {
                Some(topic) if *topic.topic == *one.hosted.topic => {
                    topic.partitions.push(partition)
                }
                _ => topics.push(OffsetForLeaderTopic {
                    topic: one.hosted.topic.to_string(),
                    partitions: vec![partition],
                }),
            }
        }
        OffsetForLeaderEpochRequest {
            replica_id: self.membership.id.0,
            topics,
        }
    }

    /// Hands each partition what the leader said about it.
    fn take(&mut self, returned: Returned) {
        let Returned {
            lane,
            number,
            asked,
            connection,
            answer,
        } = returned;
        self.lanes[lane] = Lane {
            busy: false,
            connection,
        };
        let asked: Vec<Asked> = asked
            .into_iter()
            .filter(|one| self.settle(number, one))
            .collect();
        match answer {
            Ok(Answer::Fetched(response)) => {
                self.answered(lane);
                self.take_fetched(&asked, response);
            }
            Ok(Answer::Epochs(response)) => {
                self.answered(lane);
                self.take_epochs(&asked, &response);
            }
            Err(error) => {
                let rest = self.backoff.next_wait(self.clock.random());
                self.rest_until = Some(Instant::now() + rest);
                if matches!(error, CallError::Closed(_) | CallError::Connect(_)) {
                    self.shared.sight.lock().broke();
                }
                if self.backoff.tries() == 1 {
                    info!(leader = self.shared.leader.0, partitions = asked.len(), cause = %error, "cannot fetch from a leader");
                } else {
                    debug!(leader = self.shared.leader.0, cause = %error, "still cannot fetch from a leader");
                }
            }
        }
    }

    fn answered(&mut self, lane: usize) {
        self.backoff.reset();
        let over = self.lanes[lane].connection.as_ref();
        self.shared.sight.lock().answered(over);
    }

    /// Request `number` has ended for this partition; `false` if the partition has begun anew or moved on since.
    fn settle(&mut self, number: u64, one: &Asked) -> bool {
        let key = one.hosted.key();
        // A later request that asks the same goes on.
        if self
            .under_way
            .get(&key)
            .is_some_and(|(newest, _)| *newest == number)
        {
            self.under_way.remove(&key);
        }
        self.shared
            .partitions
            .lock()
            .get(&key)
            .is_some_and(|(_, epoch)| *epoch == one.epoch)
    }

    fn take_fetched(&mut self, asked: &[Asked], response: FetchResponse) {
        if response.error_code != ErrorCode::None.code() {
            warn!(
                leader = self.shared.leader.0,
                error = ErrorCode::from(response.error_code).name(),
                "a leader refused a whole fetch"
            );
        }
        let mut answers: HashMap<Key, PartitionData> = HashMap::new();
        for topic in response.responses {
            for partition in topic.partitions {
                answers.insert(
                    (TopicId(topic.topic_id), partition.partition_index),
                    partition,
                );
            }
        }
        for one in asked {
            let FollowerStep::Fetch { ticket, .. } = one.step else {
                continue;
            };
            let key = one.hosted.key();
            match answers.remove(&key) {
                Some(data) => {
                    let is_news = data.error_code != ErrorCode::None.code()
                        || data.diverging_epoch.end_offset >= 0
                        || data
                            .records
                            .as_ref()
                            .is_some_and(|records| !records.is_empty());
                    if is_news {
                        // A later request still asks what this answer has settled.
                        self.under_way.remove(&key);
                    }
                    self.take_partition(&one.hosted, &ticket, data);
                }
                None => self.failed(&one.hosted, &ticket, FetchFailure::Retry),
            }
        }
    }

    fn take_partition(&self, hosted: &Arc<Hosted>, ticket: &Ticket, data: PartitionData) {
        let now = self.clock.now();
        if data.error_code != ErrorCode::None.code() {
            let log_start = (data.log_start_offset >= 0).then_some(Offset(data.log_start_offset));
            debug!(topic = %hosted.topic, partition = hosted.index, leader = self.shared.leader.0,
                   error = ErrorCode::from(data.error_code).name(), offset = ticket.offset.0, "a leader refused a fetch");
            self.failed(hosted, ticket, failure(data.error_code, log_start));
            return;
        }
        let diverging = (data.diverging_epoch.end_offset >= 0).then_some((
            LeaderEpoch(data.diverging_epoch.epoch),
            Offset(data.diverging_epoch.end_offset),
        ));
        let fetched = Fetched {
            records: data.records.unwrap_or_default(),
            high_watermark: Offset(data.high_watermark),
            log_start: Offset(data.log_start_offset),
            diverging,
        };
        hosted.count_fetched(fetched.records.len());
        if let Some(limit) = hosted.fetching_limit() {
            limit.charge(fetched.records.len(), now.monotonic);
        }
        let act = || {
            hosted.with(|partition, effects| partition.on_fetched(ticket, &fetched, now, effects));
        };
        // The leader's log may begin inside a batch, and this log anew with it.
        let begins_anew = !fetched.records.is_empty()
            && fetched.log_start > Offset::ZERO
            && fetched.log_start >= ticket.offset;
        match fetched.diverging {
            None if !begins_anew => act(),
            _ => with_patience(act),
        }
    }

    fn take_epochs(&self, asked: &[Asked], response: &OffsetForLeaderEpochResponse) {
        let mut answers = HashMap::new();
        for topic in &response.topics {
            for partition in &topic.partitions {
                answers.insert((topic.topic.as_str(), partition.partition), partition);
            }
        }
        let now = self.clock.now();
        for one in asked {
            let FollowerStep::EpochEnd { ticket, .. } = one.step else {
                continue;
            };
            let Some(end) = answers.get(&(&*one.hosted.topic, one.hosted.index)) else {
                self.failed(&one.hosted, &ticket, FetchFailure::Retry);
                continue;
            };
            if end.error_code != ErrorCode::None.code() {
                debug!(topic = %one.hosted.topic, partition = one.hosted.index, leader = self.shared.leader.0,
                       error = ErrorCode::from(end.error_code).name(), "a leader did not say where an epoch ends");
                self.failed(&one.hosted, &ticket, failure(end.error_code, None));
                continue;
            }
            let answer = (end.end_offset >= 0)
                .then_some((LeaderEpoch(end.leader_epoch), Offset(end.end_offset)));
            with_patience(|| {
                one.hosted.with(|partition, effects| {
                    partition.on_epoch_end(&ticket, answer, now, effects);
                });
            });
        }
    }

    fn failed(&self, hosted: &Arc<Hosted>, ticket: &Ticket, failure: FetchFailure) {
        let now = self.clock.now();
        let act = || {
            hosted
                .with(|partition, effects| partition.on_fetch_error(ticket, failure, now, effects));
        };
        match failure {
            FetchFailure::OutOfRange { .. } => with_patience(act),
            _ => act(),
        }
    }
}

enum Question {
    /// And how long the leader may park it.
    Fetch(FetchRequest, Duration),
    Epochs(OffsetForLeaderEpochRequest),
}

/// One exchange, on a new connection if there is none. The connection is returned if it can be used again.
async fn ask(
    connection: Option<Connection>,
    network: &dyn Dialing,
    address: &str,
    client_id: &str,
    question: Question,
) -> (Option<Connection>, Result<Answer, CallError>) {
    let connection = match connection {
        Some(connection) => connection,
        None => {
            let deadline = Instant::now() + CONNECT_PATIENCE;
            match network.dial(address, Some(client_id), deadline).await {
                Ok(connection) => connection,
                Err(error) => return (None, Err(error)),
            }
        }
    };
    let answer = match question {
        Question::Fetch(request, wait) => connection
            .call(
                FETCH_VERSION,
                &request,
                Instant::now() + wait + ANSWER_PATIENCE,
            )
            .await
            .map(Answer::Fetched),
        Question::Epochs(request) => connection
            .call(EPOCHS_VERSION, &request, Instant::now() + ANSWER_PATIENCE)
            .await
            .map(Answer::Epochs),
    };
    // An answer that is late would still come, in the way of the next.
    let usable = answer.is_ok().then_some(connection);
    (usable, answer)
}

/// A leader that does not know the partition, or that it leads it, mostly has not heard of it yet: it is asked again soon.
fn failure(code: i16, leader_log_start: Option<Offset>) -> FetchFailure {
    match ErrorCode::from(code) {
        ErrorCode::NotLeaderOrFollower
        | ErrorCode::UnknownTopicOrPartition
        | ErrorCode::UnknownTopicId => FetchFailure::Retry,
        _ => FetchFailure::from_error(code, leader_log_start),
    }
}

async fn wait(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}

fn bounded(bytes: usize) -> i32 {
    i32::try_from(bytes).unwrap_or(i32::MAX)
}
/// Runs what may take long (cutting a log, and before that setting aside what is cut; opening what is compressed): others must not wait for
/// this thread meanwhile.
pub(crate) fn with_patience<R>(work: impl FnOnce() -> R) -> R {
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::MultiThread => tokio::task::block_in_place(work),
        _ => work(),
    }
}

#[cfg(test)]
mod tests;
