//! What a producer sends when, and what it makes of the answers.
//! Law: no clock, no socket, no task. Within a partition an idempotent producer never lets a batch overtake another and
//! never writes one twice:
//!
//! - A batch gets its sequence when it is first sent and keeps it on every retry, because an answer that did not come
//!   says nothing about the log.
//! - A batch that is sent again goes alone: what was sent after it has been refused as out of sequence, or is waited for.
//! - Five batches at most are numbered from the oldest without an outcome on: no broker recognises an older one.
//! - Until the broker has acknowledged something of this incarnation, one batch is under way at a time: a broker that knows
//!   nothing of a producer takes any sequence, also that of the second batch when the first has failed.
//! - Out of sequence with nothing older outstanding proves that the batch and all after it are not in the log. Only after
//!   such a proof for everything in doubt does the epoch rise and the numbering begin again at 0. The higher epoch also
//!   fences what may still be on its way.
//! - There is no such proof for a batch that was sent to the same broker before and never answered: that try may still lie
//!   in a socket there. Such a batch fails, and the error says that it may be in the log.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kuorum_protocol::record::batch::BatchMut;
use kuorum_protocol::record::{BatchBuilder, Codec, DecompressLimit, Header, RecordsReader};
use kuorum_protocol::{
    ErrorCode, Monotonic, ProducerEpoch, ProducerId, Sequence, Timestamp, TopicId,
};
use kuorum_transport::Backoff;

use crate::error::ProduceError;

/// After so long without an acknowledgement a broker may have forgotten the producer.
const WARMTH: Duration = Duration::from_secs(600);

/// How far apart the places of new batches are, so that the parts of a split one fit between.
const SPAN: u64 = 1 << 24;

/// What the core needs of the producer's configuration.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) idempotent: bool,
    pub(crate) max_in_flight: usize,
    pub(crate) batch_size: usize,
    pub(crate) linger: Duration,
    pub(crate) retries: i32,
    pub(crate) delivery_timeout: Duration,
    pub(crate) retry_backoff: Duration,
    pub(crate) retry_backoff_max: Duration,
    pub(crate) max_request_size: usize,
    pub(crate) codec: Codec,
}

/// A partition by its topic's name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) topic: Arc<str>,
    pub(crate) partition: i32,
}

/// Who leads a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leader {
    pub(crate) broker: i32,
    pub(crate) topic_id: TopicId,
}

/// One try of one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ticket {
    place: u64,
    attempt: i32,
}

/// A batch on its way out.
#[derive(Clone, Debug)]
pub(crate) struct OutBatch {
    pub(crate) key: Key,
    pub(crate) topic_id: TopicId,
    pub(crate) ticket: Ticket,
    pub(crate) bytes: Bytes,
}

/// A request to one broker; it takes one of the broker's slots until [`Core::request_done`].
#[derive(Clone, Debug)]
pub(crate) struct OutRequest {
    pub(crate) id: u64,
    pub(crate) broker: i32,
    pub(crate) batches: Vec<OutBatch>,
}

/// What [`Core::drain`] finds to do.
#[derive(Debug, Default)]
pub(crate) struct Drained {
    /// Requests, in the order in which they must be sent.
    pub(crate) requests: Vec<OutRequest>,
    /// Brokers that something waits for and that are not connected.
    pub(crate) connect: BTreeSet<i32>,
    /// Something waits for a partition whose leader is not known.
    pub(crate) needs_metadata: bool,
    /// Something waits for the producer's identity.
    pub(crate) needs_identity: bool,
    /// When to look again, if nothing happens before.
    pub(crate) wake_at: Option<Monotonic>,
}

/// The broker has the batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ack {
    /// The offset of its first record, or −1.
    pub(crate) base_offset: i64,
    /// The log's timestamp, or −1 if those of the records count.
    pub(crate) log_append_time: i64,
}

/// The broker has not acknowledged the batch.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// It never left.
    NotSent(String),
    /// It left, and no answer came.
    NoAnswer(String),
    /// The broker's answer.
    Refused {
        code: ErrorCode,
        message: String,
        records: Vec<i32>,
    },
}

/// Where a record went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) offset: i64,
    pub(crate) timestamp: i64,
}

/// What is handed back for each record.
pub(crate) type Done<T> = Vec<(T, Result<Written, ProduceError>)>;

#[derive(Debug)]
enum Content {
    /// Still takes records.
    Open(BatchBuilder),
    /// Has been sent.
    Sealed(Bytes),
}

#[derive(Debug)]
struct Batch<T> {
    /// Its place in the order of the partition; everything hangs on it.
    place: u64,
    /// The places up to `place + span` are its own.
    span: u64,
    content: Content,
    records: Vec<(T, Timestamp)>,
    created: Monotonic,
    expires: Monotonic,
    sequence: Option<Sequence>,
    /// How many of its partition were numbered before it.
    ordinal: u64,
    attempts: i32,
    /// An earlier try may have brought it into the log.
    in_doubt: bool,
    /// Brokers that were sent it and never answered.
    unanswered: Vec<i32>,
    last_error: String,
}

impl<T> Batch<T> {
    fn count(&self) -> i32 {
        self.records.len() as i32
    }

    fn acknowledge(self, ack: Ack, done: &mut Done<T>) {
        for (index, (token, timestamp)) in (0..).zip(self.records) {
            let offset = if ack.base_offset < 0 {
                -1
            } else {
                ack.base_offset + index
            };
            let timestamp = if ack.log_append_time < 0 {
                timestamp.0
            } else {
                ack.log_append_time
            };
            done.push((token, Ok(Written { offset, timestamp })));
        }
    }

    fn fail(self, error: &ProduceError, to_blame: &[i32], done: &mut Done<T>) {
        for (index, (token, _)) in (0..).zip(self.records) {
            let innocent = !to_blame.is_empty() && !to_blame.contains(&index);
            let error = if innocent {
                ProduceError::InvalidNeighbour
            } else {
                error.clone()
            };
            done.push((token, Err(error)));
        }
    }

    /// `asked`: the broker that has it and has not answered yet, if it is under way.
    fn time_out(self, asked: Option<i32>, done: &mut Done<T>) {
        let last = match (asked, self.attempts) {
            (None, _) => self.last_error.clone(),
            (Some(broker), ..=1) => format!("broker {broker} has not answered"),
            (Some(broker), _) => {
                format!(
                    "broker {broker} has not answered; before that: {}",
                    self.last_error
                )
            }
        };
        let error = ProduceError::Timeout {
            possibly_persisted: asked.is_some() || self.in_doubt,
            last,
        };
        self.fail(&error, &[], done);
    }
}

#[derive(Debug)]
struct InFlight<T> {
    batch: Batch<T>,
    broker: i32,
    since: Monotonic,
}

#[derive(Debug)]
struct Queue<T> {
    /// By ascending place; only the last may be open.
    waiting: VecDeque<Batch<T>>,
    /// By ascending place.
    in_flight: VecDeque<InFlight<T>>,
    producer: Option<(ProducerId, ProducerEpoch)>,
    next_sequence: Sequence,
    /// How many batches have been numbered.
    numbered: u64,
    /// When the broker last acknowledged something of this incarnation.
    acknowledged: Option<Monotonic>,
    /// The numbering has to begin again, as soon as nothing is under way or in doubt.
    renumber: bool,
    /// Nothing is sent before.
    retry_at: Monotonic,
    topic_id: TopicId,
}

impl<T> Queue<T> {
    fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            in_flight: VecDeque::new(),
            producer: None,
            next_sequence: Sequence(0),
            numbered: 0,
            acknowledged: None,
            renumber: false,
            retry_at: Monotonic::default(),
            topic_id: TopicId::ZERO,
        }
    }

    /// Puts a batch back where it belongs in the order.
    fn put_back(&mut self, batch: Batch<T>) {
        let at = self
            .waiting
            .partition_point(|other| other.place < batch.place);
        self.waiting.insert(at, batch);
    }

    /// Whether a batch before `place` has a sequence and no outcome.
    fn has_older(&self, place: u64) -> bool {
        self.in_flight
            .iter()
            .any(|flight| flight.batch.place < place)
            || self
                .waiting
                .iter()
                .any(|batch| batch.place < place && batch.sequence.is_some())
    }

    /// Whether a batch after `place` has a sequence and no outcome.
    fn has_younger(&self, place: u64) -> bool {
        self.in_flight
            .iter()
            .any(|flight| flight.batch.place > place)
            || self
                .waiting
                .iter()
                .any(|batch| batch.place > place && batch.sequence.is_some())
    }

    fn is_warm(&self, now: Monotonic) -> bool {
        self.acknowledged.is_some_and(|at| now.since(at) < WARMTH)
    }

    /// Which waiting batch may be sent next, given that the leader is at `broker`.
    fn next(&self, settings: &Settings, broker: i32, now: Monotonic) -> Option<usize> {
        if self.in_flight.iter().any(|flight| flight.broker != broker) {
            return None;
        }
        let front = self.waiting.front()?;
        if !settings.idempotent {
            return Some(0);
        }
        if self.renumber {
            // Nothing may be renumbered while it could be in the log: it is asked for once more under its old number.
            let doubtful = |batch: &Batch<T>| batch.sequence.is_some() && batch.in_doubt;
            return self
                .in_flight
                .is_empty()
                .then(|| self.waiting.iter().position(doubtful))?;
        }
        let Some(oldest) = self.in_flight.front() else {
            return Some(0);
        };
        if front.attempts > 0 || !self.is_warm(now) {
            return None;
        }
        // A broker remembers five batches. The oldest that is under way has to be among them when it comes again, so it
        // counts how many were numbered since, not how many are still under way.
        let ordinal = front.sequence.map_or(self.numbered, |_| front.ordinal);
        (ordinal - oldest.batch.ordinal < settings.max_in_flight as u64).then_some(0)
    }

    /// Begins the numbering again under the next epoch. `false` if there is none left: then a new identity is needed.
    fn begin_again(&mut self) -> bool {
        for batch in &mut self.waiting {
            batch.sequence = None;
            batch.unanswered.clear();
        }
        self.next_sequence = Sequence(0);
        self.acknowledged = None;
        self.renumber = false;
        self.producer = match self.producer {
            Some((id, ProducerEpoch(epoch))) if epoch < i16::MAX => {
                Some((id, ProducerEpoch(epoch + 1)))
            }
            _ => None,
        };
        self.producer.is_some()
    }

    /// Gives the batch its sequence, if it has none, and its final bytes.
    fn seal(&mut self, index: usize, idempotent: bool) -> Bytes {
        let batch = &mut self.waiting[index];
        let number = match (idempotent, batch.sequence, self.producer) {
            (true, None, Some((id, epoch))) => {
                let sequence = self.next_sequence;
                self.next_sequence = sequence.plus(batch.count());
                batch.sequence = Some(sequence);
                batch.ordinal = self.numbered;
                self.numbered += 1;
                Some((id, epoch, sequence))
            }
            _ => None,
        };
        let content = std::mem::replace(&mut batch.content, Content::Sealed(Bytes::new()));
        let bytes = match (content, number) {
            (Content::Open(builder), None) => builder.build(),
            (Content::Open(mut builder), Some((id, epoch, sequence))) => {
                builder.set_producer(id, epoch, sequence);
                builder.build()
            }
            (Content::Sealed(bytes), None) => bytes,
            (Content::Sealed(bytes), Some((id, epoch, sequence))) => {
                let mut bytes = bytes.to_vec();
                BatchMut::parse(&mut bytes)
                    .expect("it was built here")
                    .set_producer(id, epoch, sequence);
                bytes.into()
            }
        };
        batch.content = Content::Sealed(bytes.clone());
        bytes
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.in_flight.is_empty()
    }
}

/// All that a producer has not yet had acknowledged. `T` is handed back for each record.
#[derive(Debug)]
pub(crate) struct Core<T> {
    settings: Settings,
    producer: Option<(ProducerId, ProducerEpoch)>,
    queues: BTreeMap<Key, Queue<T>>,
    next_place: u64,
    next_request: u64,
    /// Open requests and where they went.
    requests: HashMap<u64, i32>,
    /// Which queue comes first this time.
    turn: usize,
    fenced: Option<ProduceError>,
}

impl<T> Core<T> {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            producer: None,
            queues: BTreeMap::new(),
            next_place: SPAN,
            next_request: 0,
            requests: HashMap::new(),
            turn: 0,
            fenced: None,
        }
    }

    /// Adds a record. Returns whether there is something new for [`drain`](Self::drain) to look at; a record that joins a
    /// batch with room left is not.
    #[allow(
        clippy::too_many_arguments,
        reason = "the parts of one record, taken apart by the caller"
    )]
    pub(crate) fn append(
        &mut self,
        key: &Key,
        timestamp: Timestamp,
        record_key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[Header],
        token: T,
        now: Monotonic,
    ) -> Result<bool, (T, ProduceError)> {
        if let Some(error) = &self.fenced {
            return Err((token, error.clone()));
        }
        let queue = match self.queues.get_mut(key) {
            Some(queue) => queue,
            None => self.queues.entry(key.clone()).or_insert_with(Queue::new),
        };
        let room = BatchBuilder::record_size_bound(record_key, value, headers);
        let limit = self.settings.batch_size;
        let fits = queue
            .waiting
            .back()
            .is_some_and(|batch| match &batch.content {
                Content::Open(builder) => builder.size() + room <= limit,
                Content::Sealed(_) => false,
            });
        if !fits {
            queue.waiting.push_back(Batch {
                place: self.next_place,
                span: SPAN,
                content: Content::Open(BatchBuilder::new(self.settings.codec)),
                records: Vec::new(),
                created: now,
                expires: now + self.settings.delivery_timeout,
                sequence: None,
                ordinal: 0,
                attempts: 0,
                in_doubt: false,
                unanswered: Vec::new(),
                last_error:
                    "it was never sent: its partition has no leader, or the leader does not answer"
                        .to_owned(),
            });
            self.next_place += SPAN;
        }
        let batch = queue.waiting.back_mut().expect("one was just made sure of");
        let Content::Open(builder) = &mut batch.content else {
            unreachable!("a sealed batch does not fit");
        };
        builder.append(timestamp, record_key, value, headers);
        batch.records.push((token, timestamp));
        Ok(!fits || builder.size() >= limit)
    }

    /// The identity under which partitions are numbered from now on.
    pub(crate) fn set_producer(&mut self, id: ProducerId, epoch: ProducerEpoch) {
        self.producer = Some((id, epoch));
    }

    /// All batches that exist now have places up to this one.
    pub(crate) fn last_place(&self) -> u64 {
        self.next_place - 1
    }

    /// Whether everything up to a place has its outcome.
    pub(crate) fn is_resolved(&self, up_to: u64) -> bool {
        !self.queues.values().any(|queue| {
            queue
                .waiting
                .front()
                .is_some_and(|batch| batch.place <= up_to)
                || queue
                    .in_flight
                    .front()
                    .is_some_and(|flight| flight.batch.place <= up_to)
        })
    }

    /// Since when the longest-waiting request has been without an answer.
    pub(crate) fn oldest_in_flight(&self) -> Option<Monotonic> {
        let flights = self.queues.values().flat_map(|queue| &queue.in_flight);
        flights.map(|flight| flight.since).min()
    }

    /// Decides what to send. `leader` says who leads a partition, `connected` whether a broker can be sent to; what has a
    /// place up to `flush` does not linger.
    pub(crate) fn drain(
        &mut self,
        now: Monotonic,
        flush: u64,
        leader: impl Fn(&Key) -> Option<Leader>,
        connected: impl Fn(i32) -> bool,
    ) -> Drained {
        let mut drained = Drained::default();
        self.turn = self.turn.wrapping_add(1);
        let start = self.turn % self.queues.len().max(1);
        while self.pass(now, flush, start, &leader, &connected, &mut drained) {}
        for queue in self.queues.values() {
            let flights = queue.in_flight.iter().map(|flight| flight.batch.expires);
            let expiries = queue
                .waiting
                .iter()
                .map(|batch| batch.expires)
                .chain(flights);
            drained.wake_at = drained.wake_at.into_iter().chain(expiries.min()).min();
        }
        drained
    }

    /// One request at most for each broker. `false` if there was nothing (more) to send.
    fn pass(
        &mut self,
        now: Monotonic,
        flush: u64,
        start: usize,
        leader: &impl Fn(&Key) -> Option<Leader>,
        connected: &impl Fn(i32) -> bool,
        drained: &mut Drained,
    ) -> bool {
        let settings = &self.settings;
        let mut requests: BTreeMap<i32, (usize, OutRequest)> = BTreeMap::new();
        let (before, after): (Vec<_>, Vec<_>) = self
            .queues
            .iter_mut()
            .enumerate()
            .partition(|(index, _)| *index < start);
        for (_, (key, queue)) in after.into_iter().chain(before) {
            if queue.is_idle() {
                continue;
            }
            let Some(Leader { broker, topic_id }) = leader(key) else {
                drained.needs_metadata |= !queue.waiting.is_empty();
                continue;
            };
            if settings.idempotent {
                take_leader_change(queue, broker);
                if queue.waiting.is_empty() {
                    continue;
                }
                if !topic_id.is_zero() && topic_id != queue.topic_id {
                    if !queue.in_flight.is_empty() {
                        continue;
                    }
                    if !queue.topic_id.is_zero() {
                        // A topic that was made again has a log that knows none of these batches.
                        queue
                            .waiting
                            .iter_mut()
                            .for_each(|batch| batch.in_doubt = false);
                        queue.renumber = true;
                    }
                    queue.topic_id = topic_id;
                }
                let doubt = |batch: &Batch<T>| batch.sequence.is_some() && batch.in_doubt;
                if queue.renumber
                    && queue.in_flight.is_empty()
                    && !queue.waiting.iter().any(doubt)
                    && !queue.begin_again()
                {
                    self.producer = None;
                }
                if queue.producer.is_none() {
                    queue.producer = self.producer;
                }
                if queue.producer.is_none() {
                    drained.needs_identity = true;
                    continue;
                }
            }
            let Some(index) = queue.next(settings, broker, now) else {
                continue;
            };
            let batch = &queue.waiting[index];
            let more_behind = index + 1 < queue.waiting.len();
            let full = match &batch.content {
                Content::Open(builder) => more_behind || builder.size() >= settings.batch_size,
                Content::Sealed(_) => true,
            };
            let due = match full || batch.place <= flush {
                true => queue.retry_at,
                false => queue.retry_at.max(batch.created + settings.linger),
            };
            if due > now {
                drained.wake_at = Some(drained.wake_at.map_or(due, |at| at.min(due)));
                continue;
            }
            if !connected(broker) {
                drained.connect.insert(broker);
                continue;
            }
            let open = self.requests.values().filter(|b| **b == broker).count();
            if open >= settings.max_in_flight {
                continue;
            }
            let bytes = queue.seal(index, settings.idempotent);
            let (size, request) = requests.entry(broker).or_insert_with(|| {
                let id = self.next_request;
                self.next_request += 1;
                (
                    0,
                    OutRequest {
                        id,
                        broker,
                        batches: Vec::new(),
                    },
                )
            });
            if *size > 0 && *size + bytes.len() > settings.max_request_size {
                // It is sealed and numbered and keeps its place: the next pass takes it.
                continue;
            }
            *size += bytes.len();
            let mut batch = queue
                .waiting
                .remove(index)
                .expect("the index was just found");
            batch.attempts += 1;
            request.batches.push(OutBatch {
                key: key.clone(),
                topic_id,
                ticket: Ticket {
                    place: batch.place,
                    attempt: batch.attempts,
                },
                bytes,
            });
            let at = queue
                .in_flight
                .partition_point(|f| f.batch.place < batch.place);
            queue.in_flight.insert(
                at,
                InFlight {
                    batch,
                    broker,
                    since: now,
                },
            );
        }
        let any = !requests.is_empty();
        for (_, (_, request)) in requests {
            self.requests.insert(request.id, request.broker);
            drained.requests.push(request);
        }
        any
    }

    /// A request has its answer, or never will: its slot is free.
    pub(crate) fn request_done(&mut self, id: u64) {
        self.requests.remove(&id);
    }

    /// What became of one try of one batch. An answer to a try that is no longer waited for is ignored.
    pub(crate) fn on_result(
        &mut self,
        key: &Key,
        ticket: Ticket,
        result: Result<Ack, Failure>,
        now: Monotonic,
        done: &mut Done<T>,
    ) {
        let Some(queue) = self.queues.get_mut(key) else {
            return;
        };
        let found = queue.in_flight.iter().position(|flight| {
            flight.batch.place == ticket.place && flight.batch.attempts == ticket.attempt
        });
        let Some(flight) = found.and_then(|at| queue.in_flight.remove(at)) else {
            return;
        };
        let InFlight {
            mut batch, broker, ..
        } = flight;
        let failure = match result {
            Ok(ack) => {
                queue.acknowledged = Some(now);
                queue.retry_at = now;
                return batch.acknowledge(ack, done);
            }
            Err(failure) => failure,
        };
        let idempotent = self.settings.idempotent;
        match failure {
            Failure::NotSent(reason) => {
                self.retry(key, batch, ErrorCode::NetworkException, reason, now, done);
            }
            Failure::NoAnswer(reason) => {
                batch.in_doubt = true;
                batch.unanswered.push(broker);
                self.retry(key, batch, ErrorCode::NetworkException, reason, now, done);
            }
            Failure::Refused {
                code: ErrorCode::DuplicateSequenceNumber,
                ..
            } => {
                batch.acknowledge(
                    Ack {
                        base_offset: -1,
                        log_append_time: -1,
                    },
                    done,
                );
            }
            Failure::Refused {
                code: ErrorCode::OutOfOrderSequenceNumber | ErrorCode::UnknownProducerId,
                ..
            } if idempotent => on_out_of_order(queue, batch, broker, done),
            Failure::Refused {
                code: ErrorCode::InvalidProducerEpoch | ErrorCode::ProducerFenced,
                message,
                ..
            } if idempotent => {
                let error = ProduceError::Fenced(message);
                batch.fail(&error, &[], done);
                self.fail_all(&error, done);
                self.fenced = Some(error);
            }
            Failure::Refused {
                code: ErrorCode::MessageTooLarge,
                ..
            } if batch.count() > 1 && !batch.in_doubt => {
                split(queue, batch, self.settings.codec, idempotent, done);
            }
            Failure::Refused { code, message, .. } if code.is_retriable() => {
                batch.in_doubt |= !proves_absence(code);
                self.retry(key, batch, code, message, now, done);
            }
            Failure::Refused {
                code,
                message,
                records,
            } => {
                let in_doubt = batch.in_doubt || !proves_absence(code);
                if !in_doubt && !queue.has_younger(batch.place) {
                    // The number was not used: the next batch takes it.
                    queue.next_sequence = batch.sequence.unwrap_or(queue.next_sequence);
                }
                let error = ProduceError::Refused {
                    code,
                    message,
                    possibly_persisted: in_doubt,
                };
                batch.fail(&error, &records, done);
            }
        }
    }

    /// Puts a batch back to be sent again, unless its tries or its time are used up.
    fn retry(
        &mut self,
        key: &Key,
        mut batch: Batch<T>,
        code: ErrorCode,
        message: String,
        now: Monotonic,
        done: &mut Done<T>,
    ) {
        if batch.attempts > self.settings.retries {
            let possibly_persisted = batch.in_doubt;
            let error = ProduceError::Refused {
                code,
                message,
                possibly_persisted,
            };
            return batch.fail(&error, &[], done);
        }
        batch.last_error = match message.is_empty() {
            true => code.name().to_owned(),
            false => format!("{}: {message}", code.name()),
        };
        if now >= batch.expires {
            return batch.time_out(None, done);
        }
        let mut backoff =
            Backoff::new(self.settings.retry_backoff, self.settings.retry_backoff_max);
        let mut wait = Duration::ZERO;
        for _ in 0..batch.attempts.clamp(1, 16) {
            // The middle of the jitter: batches of one producer need not be spread.
            wait = backoff.next_wait(u64::MAX / 2);
        }
        let queue = self.queues.get_mut(key).expect("the batch came out of it");
        queue.retry_at = now + wait;
        queue.put_back(batch);
    }

    /// Fails what has waited too long.
    pub(crate) fn expire(&mut self, now: Monotonic, done: &mut Done<T>) {
        for queue in self.queues.values_mut() {
            while queue
                .in_flight
                .front()
                .is_some_and(|flight| flight.batch.expires <= now)
            {
                if let Some(flight) = queue.in_flight.pop_front() {
                    flight.batch.time_out(Some(flight.broker), done);
                }
            }
            while queue
                .waiting
                .front()
                .is_some_and(|batch| batch.expires <= now)
            {
                if let Some(batch) = queue.waiting.pop_front() {
                    batch.time_out(None, done);
                }
            }
        }
    }

    /// Fails everything.
    pub(crate) fn fail_all(&mut self, error: &ProduceError, done: &mut Done<T>) {
        for queue in self.queues.values_mut() {
            let flights = queue.in_flight.drain(..).map(|flight| flight.batch);
            for batch in flights.chain(queue.waiting.drain(..)) {
                batch.fail(error, &[], done);
            }
        }
    }
}

/// An idempotent producer need not wait for a leader that is none any more: the next one recognises what it has already.
fn take_leader_change<T>(queue: &mut Queue<T>, leader: i32) {
    if queue.in_flight.iter().all(|flight| flight.broker == leader) {
        return;
    }
    while let Some(flight) = queue.in_flight.pop_back() {
        let mut batch = flight.batch;
        batch.in_doubt = true;
        batch.unanswered.push(flight.broker);
        batch.last_error = format!("broker {} no longer leads", flight.broker);
        queue.put_back(batch);
    }
}

/// The broker expected another sequence.
fn on_out_of_order<T>(queue: &mut Queue<T>, mut batch: Batch<T>, broker: i32, done: &mut Done<T>) {
    "the broker expected another sequence".clone_into(&mut batch.last_error);
    if queue.has_older(batch.place) && !queue.renumber {
        // Expected: what comes before it has failed, and will be sent again before it.
        return queue.put_back(batch);
    }
    // Nothing comes before it, so the broker's log lacks something it once acknowledged, or something that was given up.
    // In any case neither this batch is there nor any that was numbered after it.
    queue.renumber = true;
    for younger in queue
        .waiting
        .iter_mut()
        .filter(|younger| younger.place > batch.place)
    {
        younger.in_doubt &= younger.unanswered.contains(&broker);
    }
    if batch.unanswered.contains(&broker) {
        let error = ProduceError::Refused {
            code: ErrorCode::OutOfOrderSequenceNumber,
            message: "an earlier try was never answered and may still reach the log".to_owned(),
            possibly_persisted: true,
        };
        return batch.fail(&error, &[], done);
    }
    batch.in_doubt = false;
    queue.put_back(batch);
}

/// Makes two batches of one that is too large.
fn split<T>(
    queue: &mut Queue<T>,
    batch: Batch<T>,
    codec: Codec,
    renumber: bool,
    done: &mut Done<T>,
) {
    let Content::Sealed(bytes) = &batch.content else {
        unreachable!("only what was sent can be refused");
    };
    let read = RecordsReader::new(bytes, DecompressLimit::CONSUMED)
        .and_then(|reader| reader.collect::<Result<Vec<_>, _>>());
    let Ok(records) = read else {
        let error = ProduceError::Refused {
            code: ErrorCode::MessageTooLarge,
            message: "the batch could not be split".to_owned(),
            possibly_persisted: false,
        };
        return batch.fail(&error, &[], done);
    };
    let half = records.len() / 2;
    let span = (batch.span / 2).max(1);
    let mut tokens = batch.records;
    let second_tokens = tokens.split_off(half);
    let part = |place, tokens, records: &[kuorum_protocol::record::Record]| {
        let mut builder = BatchBuilder::new(codec);
        for record in records {
            let (key, value) = (record.key.as_deref(), record.value.as_deref());
            builder.append(record.timestamp, key, value, &record.headers);
        }
        Batch {
            place,
            span,
            content: Content::Sealed(builder.build()),
            records: tokens,
            created: batch.created,
            expires: batch.expires,
            sequence: None,
            ordinal: 0,
            attempts: 0,
            in_doubt: false,
            unanswered: Vec::new(),
            last_error: "the batch was too large and has been split".to_owned(),
        }
    };
    let first = part(batch.place, tokens, &records[..half]);
    let second = part(batch.place + span, second_tokens, &records[half..]);
    queue.put_back(first);
    queue.put_back(second);
    // What was numbered after it cannot be in the log, and has to be numbered again behind the two parts.
    queue.renumber = renumber;
}

/// Whether that answer says for sure that the batch was not appended by this try. Not so when a leader is deposed while a
/// batch waits for its replicas, or when the wait times out.
fn proves_absence(code: ErrorCode) -> bool {
    !matches!(
        code,
        ErrorCode::NotLeaderOrFollower
            | ErrorCode::NotEnoughReplicasAfterAppend
            | ErrorCode::RequestTimedOut
            | ErrorCode::NetworkException
            | ErrorCode::KafkaStorageError
            | ErrorCode::UnknownServerError
            | ErrorCode::FencedLeaderEpoch
    )
}

#[cfg(test)]
mod tests;
