//! Produce: appends one batch per partition (API 0).
//! Law: two phases. Everything is appended before the next request of the connection begins; only the wait for replicas
//! (acks=all) overlaps what follows. An answer never claims more than the epoch that appended has kept.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kuorum_metadata::image::{MetadataImage, TopicImage};
use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::messages::produce::{
    BatchIndexAndErrorMessage, LeaderIdAndEpoch, NodeEndpoint, PartitionProduceData,
    PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceResponse,
};
use kuorum_protocol::record::{
    BatchMut, BatchView, Codec, DecompressLimit, InvalidBatch, TimestampType, validate_within,
};
use kuorum_protocol::{Monotonic, PartitionIndex, TopicId};
use kuorum_replication::acks::Acks;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::leaders::{self, Elsewhere, Endpoints};
use crate::authorizer::{Operation, Resource};
use crate::context::Context;
use crate::dispatch::Answer;
use crate::partition::{Appended, LeaderHint, ProduceError};
use crate::replica_fetcher::with_patience;

/// Topics have ids on the wire from this version on.
const BY_ID: i16 = 13;

/// TRANSACTION_ABORTABLE is known to clients from this version on.
const KNOWS_ABORTABLE: i16 = 11;

/// So many compressed bytes are opened where they are.
const LIGHT: usize = 16 * 1024;

/// What all batches of a request may decompress to together.
const ROOM: usize = DecompressLimit::PRODUCED.max_bytes;

/// A wait for replicas is bounded whatever the client says.
const MAX_WAIT: Duration = Duration::from_secs(600);

/// Appends, then answers as `acks` asks.
pub async fn produce(
    cx: &Context,
    request: ProduceRequest,
    version: i16,
) -> Answer<ProduceResponse> {
    let acks = Acks::from_wire(request.acks);
    cx.metrics.produce_requests.inc();
    let outcome = if is_heavy(&request) {
        // Many at once would keep everything else from running, heartbeats too.
        let turn = cx.unpacking.acquire().await;
        let turn = turn.expect("nobody closes it");
        let outcome = with_patience(|| append_all(cx, request, acks, version));
        drop(turn);
        outcome
    } else {
        append_all(cx, request, acks, version)
    };
    match acks {
        Some(Acks::None) => match outcome.first_error() {
            // Nobody reads an answer; only the end of the connection tells.
            Some(error) => Answer::Close(format!("a produce with acks=0 failed: {error}")),
            None => Answer::Silent,
        },
        _ if outcome.waits() => {
            let cx = cx.clone();
            Answer::Later(Box::pin(async move {
                let settled = outcome.settle().await;
                settled.answer(&cx)
            }))
        }
        _ => Answer::Now(outcome.settled().answer(cx)),
    }
}

/// Whether opening its compressed batches may take long.
fn is_heavy(request: &ProduceRequest) -> bool {
    let data = request
        .topic_data
        .iter()
        .flat_map(|topic| &topic.partition_data);
    let compressed = data
        .filter_map(|data| data.records.as_ref())
        .filter(|records| {
            BatchView::parse(records).is_ok_and(|batch| batch.compression() != Codec::None)
        });
    compressed.map(Bytes::len).sum::<usize>() > LIGHT
}

/// A topic of the request, and what became of each of its partitions.
struct PerTopic<S> {
    name: String,
    id: TopicId,
    partitions: Vec<(PartitionIndex, S)>,
}

/// What became of every partition so far.
struct Progress {
    topics: Vec<PerTopic<State>>,
    deadline: Instant,
}

/// What became of every partition in the end.
struct Settled {
    topics: Vec<PerTopic<Result<Appended, Refusal>>>,
}

enum State {
    Done(Result<Appended, Refusal>),
    /// Appended; the replicas are waited for.
    Waiting(Appended, Parked),
    /// Refused; that this broker leads is waited for.
    Doubted(ProduceError, Parked),
}

type Parked = oneshot::Receiver<Result<(), ProduceError>>;

/// Why a partition did not take its batch.
enum Refusal {
    Acks,
    Denied,
    Elsewhere(Elsewhere),
    Batch(InvalidBatch),
    /// Part of a transaction that was never begun here.
    NoTransaction {
        /// The version knows TRANSACTION_ABORTABLE (KIP-890).
        abortable: bool,
    },
    Partition(ProduceError),
}

fn append_all(cx: &Context, request: ProduceRequest, acks: Option<Acks>, version: i16) -> Progress {
    let image = cx.metadata.image();
    let patience = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
    let deadline = cx.clock.now().monotonic + patience.min(MAX_WAIT);
    let mut room = ROOM;
    let topics = request
        .topic_data
        .into_iter()
        .map(|topic| {
            let id = TopicId(topic.topic_id);
            let found = leaders::topic(&image, &topic.name, id, version >= BY_ID);
            let partitions = topic
                .partition_data
                .into_iter()
                .map(|data| {
                    let index = data.index;
                    let state = match (acks, &found) {
                        (None, _) => State::Done(Err(Refusal::Acks)),
                        (_, Err(elsewhere)) => State::Done(Err(Refusal::Elsewhere(*elsewhere))),
                        (Some(acks), Ok(topic)) => {
                            let terms = Terms {
                                acks,
                                version,
                                deadline,
                            };
                            append_one(cx, &image, topic, data, terms, &mut room)
                                .unwrap_or_else(|refusal| State::Done(Err(refusal)))
                        }
                    };
                    (index, state)
                })
                .collect();
            PerTopic {
                name: topic.name,
                id,
                partitions,
            }
        })
        .collect();
    Progress {
        topics,
        deadline: cx.clock.instant(deadline),
    }
}

/// What holds for the whole request.
#[derive(Clone, Copy)]
struct Terms {
    acks: Acks,
    version: i16,
    deadline: Monotonic,
}

fn append_one(
    cx: &Context,
    image: &MetadataImage,
    topic: &TopicImage,
    data: PartitionProduceData,
    terms: Terms,
    room: &mut usize,
) -> Result<State, Refusal> {
    let Terms {
        acks,
        version,
        deadline,
    } = terms;
    if !cx.may(Operation::Write, Resource::Topic(&topic.name)) {
        return Err(Refusal::Denied);
    }
    let hosted = leaders::replica(cx, topic, data.index).map_err(Refusal::Elsewhere)?;
    let now = cx.clock.now();
    // Who does not lead need not look at the batch.
    cx.replicas
        .with(&hosted, |partition, _| partition.admit(acks))
        .map_err(Refusal::Partition)?;
    let limits = cx.topic_limits.of(image, topic, version, now.wall);
    let records = data.records.unwrap_or_default();
    let (count, mended) = {
        let produced = validate_within(&records, &limits, room).map_err(Refusal::Batch)?;
        let batch = produced.batch;
        if batch.is_transactional() {
            return Err(Refusal::NoTransaction {
                abortable: version >= KNOWS_ABORTABLE,
            });
        }
        // A header that promises later records than there are would keep them from ever expiring.
        let wrong = limits.timestamp_type == TimestampType::CreateTime
            && batch.max_timestamp() != produced.max_timestamp;
        (
            batch.record_count(),
            wrong.then_some(produced.max_timestamp),
        )
    };
    let size = records.len();
    let mut batch = writable(records);
    if let Some(timestamp) = mended {
        BatchMut::parse(&mut batch)
            .expect("it was validated a moment ago")
            .set_max_timestamp(timestamp);
    }
    let (sender, receiver) = oneshot::channel();
    let appended = cx.replicas.with(&hosted, |partition, fx| {
        // Again: the first look was another turn of the lock, and the epoch may have changed since.
        partition.admit(acks)?;
        let appended = partition.append(&mut batch, now, fx);
        match (&appended, acks) {
            (Ok(appended), Acks::All) => partition.park(appended.until, deadline, sender, fx),
            (Err(error), Acks::All | Acks::Leader) if error.is_gap() => {
                partition.park_refusal(now, deadline, sender, fx);
            }
            _ => {}
        }
        appended
    });
    let appended = match appended {
        Ok(appended) => appended,
        Err(error) if error.is_gap() && acks != Acks::None => {
            return Ok(State::Doubted(error, receiver));
        }
        Err(error) => return Err(Refusal::Partition(error)),
    };
    cx.metrics.bytes_in.inc_by(size as u64);
    cx.metrics.messages_in.inc_by(count.max(0) as u64);
    Ok(match acks {
        Acks::All => State::Waiting(appended, receiver),
        Acks::None | Acks::Leader => State::Done(Ok(appended)),
    })
}

/// The batch as bytes that can be patched: where it lies if the request holds nothing else, a copy otherwise.
fn writable(records: Bytes) -> BytesMut {
    records
        .try_into_mut()
        .unwrap_or_else(|shared| BytesMut::from(&shared[..]))
}

impl Progress {
    fn waits(&self) -> bool {
        self.states()
            .any(|state| matches!(state, State::Waiting(..) | State::Doubted(..)))
    }

    fn states(&self) -> impl Iterator<Item = &State> {
        self.topics
            .iter()
            .flat_map(|topic| topic.partitions.iter().map(|(_, state)| state))
    }

    fn first_error(&self) -> Option<String> {
        self.states().find_map(|state| match state {
            State::Done(Err(refusal)) => Some(refusal.to_string()),
            _ => None,
        })
    }

    /// Waits for the replicas. Partitions are waited for one after the other; all of them share one deadline.
    async fn settle(self) -> Settled {
        let mut topics = Vec::with_capacity(self.topics.len());
        for topic in self.topics {
            let mut partitions = Vec::with_capacity(topic.partitions.len());
            for (index, state) in topic.partitions {
                partitions.push((index, state.settle(self.deadline).await));
            }
            topics.push(PerTopic {
                name: topic.name,
                id: topic.id,
                partitions,
            });
        }
        Settled { topics }
    }

    /// The same when nothing is waited for.
    fn settled(self) -> Settled {
        let done = |state| match state {
            State::Done(result) => result,
            State::Waiting(..) | State::Doubted(..) => {
                Err(Refusal::Partition(ProduceError::TimedOut))
            }
        };
        let topics = self.topics.into_iter().map(|topic| PerTopic {
            name: topic.name,
            id: topic.id,
            partitions: topic
                .partitions
                .into_iter()
                .map(|(index, state)| (index, done(state)))
                .collect(),
        });
        Settled {
            topics: topics.collect(),
        }
    }
}

impl State {
    async fn settle(self, deadline: Instant) -> Result<Appended, Refusal> {
        let (done, parked) = match self {
            Self::Done(result) => return result,
            Self::Waiting(appended, parked) => (Ok(appended), parked),
            Self::Doubted(refused, parked) => (Err(Refusal::Partition(refused)), parked),
        };
        match timeout_at(deadline, parked).await {
            Ok(Ok(Ok(()))) => done,
            Ok(Ok(Err(error))) => Err(Refusal::Partition(error)),
            // The partition went away with its waiters; whether the batch survives is unknown.
            Ok(Err(_)) => Err(Refusal::Partition(ProduceError::TimedOut)),
            Err(_) => Err(Refusal::Partition(ProduceError::TimedOut)),
        }
    }
}

impl Settled {
    fn answer(self, cx: &Context) -> ProduceResponse {
        let image = cx.metadata.image();
        let mut endpoints = Endpoints::default();
        let mut failed = 0;
        let responses = self
            .topics
            .into_iter()
            .map(|topic| TopicProduceResponse {
                name: topic.name,
                topic_id: topic.id.0,
                partition_responses: topic
                    .partitions
                    .into_iter()
                    .map(|(index, result)| match result {
                        Ok(appended) => success(index, &appended),
                        Err(refusal) => {
                            failed += 1;
                            refusal.on_the_wire(index, &image, &cx.listener, &mut endpoints)
                        }
                    })
                    .collect(),
            })
            .collect();
        cx.metrics.failed_produce_requests.inc_by(failed);
        ProduceResponse {
            responses,
            throttle_time_ms: 0,
            node_endpoints: endpoints
                .into_nodes()
                .map(|node| NodeEndpoint {
                    node_id: node.id.0,
                    host: node.host,
                    port: i32::from(node.port),
                    rack: node.rack,
                })
                .collect(),
        }
    }
}

fn success(index: i32, appended: &Appended) -> PartitionProduceResponse {
    PartitionProduceResponse {
        index,
        error_code: ErrorCode::None.code(),
        base_offset: appended.base_offset.0,
        log_append_time_ms: appended.log_append_time.0,
        log_start_offset: appended.log_start.0,
        ..PartitionProduceResponse::default()
    }
}

impl Refusal {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Acks => ErrorCode::InvalidRequiredAcks,
            Self::Denied => ErrorCode::TopicAuthorizationFailed,
            Self::Elsewhere(elsewhere) => (*elsewhere).into(),
            Self::Batch(invalid) => invalid.into(),
            Self::NoTransaction { abortable: true } => ErrorCode::TransactionAbortable,
            Self::NoTransaction { abortable: false } => ErrorCode::InvalidTxnState,
            Self::Partition(error) => error.into(),
        }
    }

    /// Whom to ask instead, if that is the trouble.
    fn hint(&self) -> Option<LeaderHint> {
        match self {
            Self::Elsewhere(Elsewhere::NotHere(hint))
            | Self::Partition(ProduceError::NotLeader(hint)) => Some(*hint),
            _ => None,
        }
    }

    fn on_the_wire(
        &self,
        index: i32,
        image: &MetadataImage,
        listener: &str,
        endpoints: &mut Endpoints,
    ) -> PartitionProduceResponse {
        let current_leader =
            self.hint()
                .map_or_else(LeaderIdAndEpoch::default, |hint| LeaderIdAndEpoch {
                    leader_id: endpoints.add(image, listener, hint).0,
                    leader_epoch: hint.leader_epoch.0,
                });
        let record_errors = match self {
            Self::Batch(invalid) => invalid
                .record_errors()
                .iter()
                .map(|batch_index| BatchIndexAndErrorMessage {
                    batch_index: *batch_index,
                    batch_index_error_message: Some(invalid.to_string()),
                })
                .collect(),
            _ => Vec::new(),
        };
        PartitionProduceResponse {
            index,
            error_code: self.code().code(),
            base_offset: -1,
            record_errors,
            error_message: Some(self.to_string()),
            current_leader,
            ..PartitionProduceResponse::default()
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Acks => f.write_str("acks must be -1, 0 or 1"),
            Self::Batch(invalid) => invalid.fmt(f),
            Self::Partition(error) => error.fmt(f),
            Self::Denied | Self::Elsewhere(_) | Self::NoTransaction { .. } => {
                f.write_str(self.code().name())
            }
        }
    }
}
