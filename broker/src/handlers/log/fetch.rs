//! Fetch: reads batches, for consumers and for followers (API 1).
//! Law: interest is registered before anything is read, so nothing that happens in between is slept through. What is
//! returned are whole batches; a batch larger than every limit is still returned if it is the first thing there is.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kuorum_metadata::image::MetadataImage;
use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::messages::fetch::{
    EpochEndOffset, FetchRequest, FetchResponse, FetchableTopicResponse, LeaderIdAndEpoch,
    NodeEndpoint, PartitionData,
};
use kuorum_protocol::{BrokerEpoch, BrokerId, LeaderEpoch, Offset, TopicId};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::leaders::{self, Elsewhere, Endpoints};
use crate::authorizer::{Operation, Resource};
use crate::context::Context;
use crate::fetch_memory::Share;
use crate::fetch_session::{FetchPlan, Finding, SessionAsk, Told, TopicKey, Wanted};
use crate::partition::{Isolation, LeaderHint, ReadError, ReadOutcome, ReadSpec, Reader};
use crate::replica_manager::Hosted;

/// Topics have ids on the wire from this version on.
const BY_ID: i16 = 13;

/// A parked fetch waits no longer than this, whatever the client says.
const MAX_WAIT: Duration = Duration::from_secs(300);

/// The isolation level that sees only what committed transactions have written.
const READ_COMMITTED: i8 = 1;

/// Reads what there is, waiting for `min_bytes` up to `max_wait_ms`.
pub async fn fetch(cx: &Context, request: FetchRequest, version: i16) -> FetchResponse {
    let asker = Asker::read(&request);
    cx.metrics.fetch_requests.inc();
    if asker.is_replica() && !cx.is_internal() {
        return refused(&request, ErrorCode::ClusterAuthorizationFailed);
    }
    let ask = SessionAsk {
        id: request.session_id,
        epoch: request.session_epoch,
        by_id: version >= BY_ID,
        privileged: asker.is_replica(),
    };
    let now = cx.clock.now();
    let random = cx.clock.random();
    let forgotten = forgotten(&request, version);
    let limits = Limits::read(cx, &request);
    let named = named(request, version);
    let plan = match cx
        .sessions
        .begin(ask, named, &forgotten, now.monotonic, random)
    {
        Ok(plan) => plan,
        Err(error) => {
            return FetchResponse {
                error_code: error.code(),
                ..FetchResponse::default()
            };
        }
    };
    let deadline = cx.clock.instant(now.monotonic + limits.max_wait);
    let (reads, share) = read_until(cx, &plan, &asker, &limits, deadline).await;
    answer(cx, &plan, reads, share, &asker)
}

/// Who fetches.
#[derive(Clone, Copy, Debug)]
struct Asker {
    reader: Reader,
}

impl Asker {
    fn read(request: &FetchRequest) -> Self {
        // Version 15 moved the replica's id into a struct of its own (KIP-903).
        let state = &request.replica_state;
        let (id, epoch) = match state.replica_id {
            -1 => (request.replica_id, BrokerEpoch::UNKNOWN),
            id => (id, BrokerEpoch(state.replica_epoch)),
        };
        let isolation = match request.isolation_level {
            READ_COMMITTED => Isolation::ReadCommitted,
            _ => Isolation::ReadUncommitted,
        };
        Self {
            reader: match id {
                0.. => Reader::Replica {
                    broker: BrokerId(id),
                    broker_epoch: epoch,
                },
                _ => Reader::Consumer { isolation },
            },
        }
    }

    fn is_replica(&self) -> bool {
        matches!(self.reader, Reader::Replica { .. })
    }

    fn wants_aborted(&self) -> bool {
        matches!(
            self.reader,
            Reader::Consumer {
                isolation: Isolation::ReadCommitted
            }
        )
    }
}

/// How much, and for how long.
#[derive(Clone, Copy, Debug)]
struct Limits {
    min_bytes: usize,
    max_bytes: usize,
    max_wait: Duration,
}

impl Limits {
    fn read(cx: &Context, request: &FetchRequest) -> Self {
        let max_bytes = usize::try_from(request.max_bytes)
            .unwrap_or(0)
            .min(cx.config.fetch_max());
        Self {
            min_bytes: usize::try_from(request.min_bytes).unwrap_or(0),
            max_bytes,
            max_wait: Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0))
                .min(MAX_WAIT),
        }
    }
}

/// What one partition had to say.
#[derive(Debug)]
enum Read {
    Found(ReadOutcome),
    Failed(Trouble),
}

/// All that one turn of reading found.
#[derive(Debug)]
struct Turn {
    reads: Vec<Read>,
    bytes: usize,
    /// A throttled follower may have more after so long.
    withheld: Option<Duration>,
}

#[derive(Debug)]
enum Trouble {
    Denied,
    Elsewhere(Elsewhere),
    Partition(ReadError),
}

/// Reads until there is enough, something must be said at once, or `deadline` has come.
async fn read_until(
    cx: &Context,
    plan: &FetchPlan,
    asker: &Asker,
    limits: &Limits,
    deadline: Instant,
) -> (Vec<Read>, Option<Share>) {
    // A follower that asks again wants this answer now, whatever is in it.
    let superseded = match asker.reader {
        Reader::Replica { broker, .. } => Some(cx.replicas.fetch_begins(broker)),
        Reader::Consumer { .. } => None,
    };
    let mut last_turn = false;
    loop {
        // A new one each turn: those it was left with by quiet partitions in the turn before are forgotten with it.
        let waiter = Arc::new(Notify::new());
        last_turn |= Instant::now() >= deadline;
        let interest = (!last_turn).then_some(&waiter);
        let mut share = match asker.reader {
            Reader::Replica { .. } => None,
            Reader::Consumer { .. } => Some(cx.fetch_memory.take(limits.max_bytes)),
        };
        let room = share.as_ref().map_or(limits.max_bytes, Share::bytes);
        // Where memory is short, only who is first has its turn for sure. A session sees to it that it is not always the same one.
        let mut order: Vec<usize> = (0..plan.wanted.len()).collect();
        if room < limits.max_bytes && !plan.is_in_turns() {
            order.sort_by_cached_key(|_| cx.clock.random());
        }
        let Turn {
            reads,
            bytes,
            withheld,
        } = read_all(cx, plan, &order, asker, room, interest);
        if let Some(share) = &mut share {
            share.settle(bytes);
        }
        let is_urgent = reads.iter().any(|read| match read {
            Read::Found(outcome) => outcome.diverging.is_some(),
            Read::Failed(_) => true,
        });
        // What was cut short does not grow by waiting.
        let is_cut_short = || bytes > 0 && withheld.is_none() && is_cut_short(plan, &reads);
        let is_enough = bytes >= limits.min_bytes || is_cut_short();
        if last_turn || is_urgent || plan.wanted.is_empty() || is_enough {
            return (reads, share);
        }
        // Dropped before the wait: a parked fetch holds no records.
        drop((reads, share));
        let until = withheld.map_or(deadline, |wait| deadline.min(Instant::now() + wait));
        tokio::select! {
            _ = timeout_at(until, waiter.notified()) => {}
            () = notified(superseded.as_deref()) => last_turn = true,
        }
    }
}

/// Whether something could have been read and was not: for want of room, or beyond the end of a segment.
fn is_cut_short(plan: &FetchPlan, reads: &[Read]) -> bool {
    plan.wanted
        .iter()
        .zip(reads)
        .any(|(wanted, read)| match read {
            Read::Found(outcome) => outcome.is_cut_short(Offset(wanted.fetch_offset)),
            Read::Failed(_) => false,
        })
}

async fn notified(waiter: Option<&Notify>) {
    match waiter {
        Some(waiter) => waiter.notified().await,
        None => std::future::pending().await,
    }
}

/// Reads what is wanted, in this order; returns it in that of the plan.
fn read_all(
    cx: &Context,
    plan: &FetchPlan,
    order: &[usize],
    asker: &Asker,
    max_bytes: usize,
    interest: Option<&Arc<Notify>>,
) -> Turn {
    let image = cx.metadata.image();
    let mut bytes = 0;
    let mut withheld = None;
    let mut reads: Vec<(usize, Read)> = order
        .iter()
        .map(|place| {
            let room = max_bytes.saturating_sub(bytes);
            let wanted = &plan.wanted[*place];
            let read = match read_one(cx, &image, wanted, asker, room, bytes == 0, interest) {
                Ok((outcome, wait)) => {
                    bytes += outcome.records.len();
                    withheld = withheld.max(wait);
                    Read::Found(outcome)
                }
                Err(trouble) => Read::Failed(trouble),
            };
            (*place, read)
        })
        .collect();
    reads.sort_unstable_by_key(|(place, _)| *place);
    Turn {
        reads: reads.into_iter().map(|(_, read)| read).collect(),
        bytes,
        withheld,
    }
}

/// Reads one partition; of one whose follower is throttled and has used up its budget nothing is read, and the time until
/// it has more is said.
fn read_one(
    cx: &Context,
    image: &MetadataImage,
    wanted: &Wanted,
    asker: &Asker,
    room: usize,
    is_first: bool,
    interest: Option<&Arc<Notify>>,
) -> Result<(ReadOutcome, Option<Duration>), Trouble> {
    let hosted = find(cx, image, wanted)?;
    if let Some(waiter) = interest {
        hosted.wake_on_change(waiter);
    }
    let now = cx.clock.now();
    let limit = match asker.reader {
        Reader::Replica { broker, .. } => hosted.serving_limit(broker),
        Reader::Consumer { .. } => None,
    };
    let wait = limit.and_then(|limit| limit.admit(now.monotonic).err());
    let room = if wait.is_some() { 0 } else { room };
    let spec = ReadSpec {
        from: Offset(wanted.fetch_offset),
        max_bytes: usize::try_from(wanted.max_bytes).unwrap_or(0).min(room),
        at_least_one: is_first && wait.is_none(),
        current_leader_epoch: known_epoch(wanted.current_leader_epoch),
        last_fetched_epoch: known_epoch(wanted.last_fetched_epoch),
        reader: asker.reader,
    };
    let outcome = cx
        .replicas
        .with(&hosted, |partition, fx| partition.read(spec, now, fx))
        .map_err(Trouble::Partition)?;
    if let Some(limit) = limit {
        limit.charge(outcome.records.len(), now.monotonic);
    }
    Ok((outcome, wait))
}

fn find(cx: &Context, image: &MetadataImage, wanted: &Wanted) -> Result<Arc<Hosted>, Trouble> {
    let (topic, index) = &wanted.key;
    let topic = match topic {
        TopicKey::Name(name) => leaders::topic(image, name, TopicId::ZERO, false),
        TopicKey::Id(id) => leaders::topic(image, "", *id, true),
    }
    .map_err(Trouble::Elsewhere)?;
    if !cx.may(Operation::Read, Resource::Topic(&topic.name)) {
        return Err(Trouble::Denied);
    }
    leaders::replica(cx, topic, *index).map_err(Trouble::Elsewhere)
}

fn known_epoch(on_the_wire: i32) -> Option<LeaderEpoch> {
    (on_the_wire >= 0).then_some(LeaderEpoch(on_the_wire))
}

fn named(request: FetchRequest, version: i16) -> Vec<Wanted> {
    let mut named = Vec::new();
    for topic in request.topics {
        let key = topic_key(&topic.topic, TopicId(topic.topic_id), version);
        named.extend(topic.partitions.into_iter().map(|partition| Wanted {
            key: (key.clone(), partition.partition),
            current_leader_epoch: partition.current_leader_epoch,
            fetch_offset: partition.fetch_offset,
            last_fetched_epoch: partition.last_fetched_epoch,
            log_start_offset: partition.log_start_offset,
            max_bytes: partition.partition_max_bytes,
        }));
    }
    named
}

fn forgotten(request: &FetchRequest, version: i16) -> Vec<(TopicKey, i32)> {
    request
        .forgotten_topics_data
        .iter()
        .flat_map(|topic| {
            let key = topic_key(&topic.topic, TopicId(topic.topic_id), version);
            topic
                .partitions
                .iter()
                .map(move |partition| (key.clone(), *partition))
        })
        .collect()
}

fn topic_key(name: &str, id: TopicId, version: i16) -> TopicKey {
    if version >= BY_ID {
        TopicKey::Id(id)
    } else {
        TopicKey::Name(name.into())
    }
}

fn answer(
    cx: &Context,
    plan: &FetchPlan,
    reads: Vec<Read>,
    share: Option<Share>,
    asker: &Asker,
) -> FetchResponse {
    let share = share.map(Arc::new);
    let findings: Vec<Finding> = reads.iter().map(Read::finding).collect();
    let tell = cx.sessions.finish(plan, &findings);
    let image = cx.metadata.image();
    let mut endpoints = Endpoints::default();
    let mut responses: Vec<FetchableTopicResponse> = Vec::new();
    let (mut bytes, mut failed) = (0, 0);
    for ((wanted, read), told) in plan.wanted.iter().zip(reads).zip(tell) {
        if !told {
            continue;
        }
        let (topic, index) = &wanted.key;
        let partition = match read {
            Read::Found(mut outcome) => {
                bytes += outcome.records.len();
                if let Some(share) = &share {
                    outcome.records = share.hold(outcome.records);
                }
                found(*index, outcome, asker)
            }
            Read::Failed(trouble) => {
                failed += 1;
                trouble.on_the_wire(*index, &image, &cx.listener, &mut endpoints)
            }
        };
        match responses.last_mut() {
            // Order is kept, so a topic may come up again later; it then gets another entry.
            Some(last) if is_topic(last, topic) => last.partitions.push(partition),
            _ => responses.push(topic_response(topic, partition)),
        }
    }
    let counter = match asker.reader {
        Reader::Replica { .. } => &cx.metrics.replication_bytes_out,
        Reader::Consumer { .. } => &cx.metrics.bytes_out,
    };
    counter.inc_by(bytes as u64);
    cx.metrics.failed_fetch_requests.inc_by(failed);
    FetchResponse {
        session_id: plan.session_id(),
        responses,
        node_endpoints: endpoints
            .into_nodes()
            .map(|node| NodeEndpoint {
                node_id: node.id.0,
                host: node.host,
                port: i32::from(node.port),
                rack: node.rack,
            })
            .collect(),
        ..FetchResponse::default()
    }
}

fn is_topic(response: &FetchableTopicResponse, topic: &TopicKey) -> bool {
    match topic {
        TopicKey::Name(name) => *response.topic == **name,
        TopicKey::Id(id) => response.topic_id == id.0,
    }
}

fn topic_response(topic: &TopicKey, partition: PartitionData) -> FetchableTopicResponse {
    let partitions = vec![partition];
    match topic {
        TopicKey::Name(name) => FetchableTopicResponse {
            topic: name.to_string(),
            partitions,
            ..FetchableTopicResponse::default()
        },
        TopicKey::Id(id) => FetchableTopicResponse {
            topic_id: id.0,
            partitions,
            ..FetchableTopicResponse::default()
        },
    }
}

impl Read {
    fn finding(&self) -> Finding {
        match self {
            Self::Found(outcome) => Finding {
                told: Told {
                    high_watermark: outcome.high_watermark.0,
                    log_start_offset: outcome.log_start.0,
                    last_stable_offset: outcome.last_stable_offset.0,
                },
                must_tell: !outcome.records.is_empty() || outcome.diverging.is_some(),
                has_records: !outcome.records.is_empty(),
            },
            Self::Failed(_) => Finding {
                told: Told {
                    high_watermark: -1,
                    log_start_offset: -1,
                    last_stable_offset: -1,
                },
                must_tell: true,
                has_records: false,
            },
        }
    }
}

fn found(index: i32, outcome: ReadOutcome, asker: &Asker) -> PartitionData {
    PartitionData {
        partition_index: index,
        error_code: ErrorCode::None.code(),
        high_watermark: outcome.high_watermark.0,
        last_stable_offset: outcome.last_stable_offset.0,
        log_start_offset: outcome.log_start.0,
        diverging_epoch: outcome
            .diverging
            .map_or_else(EpochEndOffset::default, |(epoch, end)| EpochEndOffset {
                epoch: epoch.0,
                end_offset: end.0,
            }),
        aborted_transactions: asker.wants_aborted().then(Vec::new),
        records: Some(outcome.records),
        ..PartitionData::default()
    }
}

impl Trouble {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Denied => ErrorCode::TopicAuthorizationFailed,
            Self::Elsewhere(elsewhere) => (*elsewhere).into(),
            Self::Partition(error) => error.into(),
        }
    }

    /// Whom to ask instead, if that is the trouble (KIP-951).
    fn hint(&self) -> Option<LeaderHint> {
        match self {
            Self::Elsewhere(Elsewhere::NotHere(hint))
            | Self::Partition(ReadError::NotLeader(hint) | ReadError::FencedLeaderEpoch(hint)) => {
                Some(*hint)
            }
            _ => None,
        }
    }

    fn on_the_wire(
        &self,
        index: i32,
        image: &MetadataImage,
        listener: &str,
        endpoints: &mut Endpoints,
    ) -> PartitionData {
        let current_leader =
            self.hint()
                .map_or_else(LeaderIdAndEpoch::default, |hint| LeaderIdAndEpoch {
                    leader_id: endpoints.add(image, listener, hint).0,
                    leader_epoch: hint.leader_epoch.0,
                });
        // A follower whose log ends before this one's begins must learn where to begin.
        let log_start_offset = match self {
            Self::Partition(ReadError::OffsetOutOfRange { log_start, .. }) => log_start.0,
            _ => -1,
        };
        PartitionData {
            partition_index: index,
            error_code: self.code().code(),
            high_watermark: -1,
            log_start_offset,
            current_leader,
            records: Some(Bytes::new()),
            ..PartitionData::default()
        }
    }
}

/// The same error for everything that was asked, and, where the version has it, for the request itself.
fn refused(request: &FetchRequest, error: ErrorCode) -> FetchResponse {
    let responses = request
        .topics
        .iter()
        .map(|topic| FetchableTopicResponse {
            topic: topic.topic.clone(),
            topic_id: topic.topic_id,
            partitions: topic
                .partitions
                .iter()
                .map(|partition| PartitionData {
                    partition_index: partition.partition,
                    error_code: error.code(),
                    high_watermark: -1,
                    records: Some(Bytes::new()),
                    ..PartitionData::default()
                })
                .collect(),
        })
        .collect();
    FetchResponse {
        error_code: error.code(),
        responses,
        ..FetchResponse::default()
    }
}
