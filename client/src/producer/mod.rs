//! The producer: records go in, and for each comes out where it is, or why it is not acknowledged.
//! Law: records of one partition are written in the order in which `send` was called; with idempotence, which is the
//! default, each of them once.

mod core;
mod sender;

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use kuorum_protocol::Timestamp;
use kuorum_protocol::record::{BatchBuilder, HEADER_SIZE, Header};
use kuorum_transport::{Clock, Dialing, Instant, SystemNetwork};
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::JoinHandle;

use self::core::{Core, Done, Key, Settings};
use crate::cluster::{Cluster, TopicView};
use crate::config::{ConfigError, ProducerConfig};
use crate::error::{ClientError, ProduceError};
use crate::partitioner::{DefaultPartitioner, Partitioner};

/// A record on its way in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProducerRecord {
    /// Where to.
    pub topic: String,
    /// The partition; `None` leaves it to the key, or to the producer if there is none.
    pub partition: Option<i32>,
    /// The key, which may be empty.
    pub key: Option<Bytes>,
    /// The content; `None` is a tombstone.
    pub value: Option<Bytes>,
    /// Notes beside the content.
    pub headers: Vec<Header>,
    /// Milliseconds since 1970; `None` is now.
    pub timestamp: Option<i64>,
}

impl ProducerRecord {
    /// A record without a key.
    pub fn new(topic: impl Into<String>, value: impl Into<Bytes>) -> Self {
        Self {
            topic: topic.into(),
            value: Some(value.into()),
            ..Self::default()
        }
    }

    /// The same with a key.
    #[must_use]
    pub fn with_key(self, key: impl Into<Bytes>) -> Self {
        Self {
            key: Some(key.into()),
            ..self
        }
    }

    /// The same for a certain partition.
    #[must_use]
    pub fn with_partition(self, partition: i32) -> Self {
        Self {
            partition: Some(partition),
            ..self
        }
    }
}

/// Where a record is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordMetadata {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: i32,
    /// The offset; −1 with `acks=0`.
    pub offset: i64,
    /// The timestamp it has there, in milliseconds since 1970.
    pub timestamp: i64,
}

/// The outcome of one record, to be waited for. Dropping it changes nothing.
#[derive(Debug)]
pub struct Delivery(oneshot::Receiver<Result<RecordMetadata, ProduceError>>);

impl Future for Delivery {
    type Output = Result<RecordMetadata, ProduceError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0)
            .poll(context)
            .map(|answer| answer.unwrap_or(Err(ProduceError::Closed)))
    }
}

/// What the core hands back for each record.
#[derive(Debug)]
struct Token {
    topic: Arc<str>,
    partition: i32,
    reply: oneshot::Sender<Result<RecordMetadata, ProduceError>>,
    /// Its share of `buffer.memory`.
    _memory: OwnedSemaphorePermit,
}

/// The partition that keyless records of a topic go to for now (KIP-794).
#[derive(Clone, Copy, Debug)]
struct Sticky {
    partition: i32,
    bytes: usize,
}

#[derive(Debug)]
struct State {
    core: Core<Token>,
    topics: HashMap<Arc<str>, Option<Sticky>>,
}

#[derive(Debug)]
struct Shared {
    config: ProducerConfig,
    idempotent: bool,
    cluster: Cluster,
    clock: Clock,
    partitioner: Box<dyn Partitioner>,
    state: Mutex<State>,
    memory: Arc<Semaphore>,
    /// Wakes the sender.
    wake: Notify,
    /// Tells those who flush that something has its outcome.
    progress: Notify,
    /// Batches up to this place do not linger.
    flush: AtomicU64,
    closing: AtomicBool,
}

/// Writes records. Clones are not needed: every method takes `&self`.
///
/// Dropping it gives up what is not acknowledged; [`close`](Self::close) waits for it.
#[derive(Debug)]
pub struct Producer {
    shared: Arc<Shared>,
    sender: JoinHandle<()>,
}

impl Producer {
    /// A producer that partitions as Java does. It connects when there is something to send.
    ///
    /// # Errors
    /// If the settings contradict each other.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn new(config: ProducerConfig) -> Result<Self, ConfigError> {
        Self::with_partitioner(config, Box::new(DefaultPartitioner))
    }

    /// The same with another way to choose partitions for keys.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_partitioner(
        config: ProducerConfig,
        partitioner: Box<dyn Partitioner>,
    ) -> Result<Self, ConfigError> {
        Self::over(
            Arc::new(SystemNetwork),
            Clock::system(),
            config,
            partitioner,
        )
    }

    /// The same over another network than the machine's, by another clock.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn over(
        network: Arc<dyn Dialing>,
        clock: Clock,
        config: ProducerConfig,
        partitioner: Box<dyn Partitioner>,
    ) -> Result<Self, ConfigError> {
        let idempotence = config.validate()?;
        if let Some(reason) = idempotence.ruled_out_by {
            tracing::warn!(
                reason,
                "the producer is not idempotent: retries may repeat or reorder"
            );
        }
        let own = &config.own;
        let core = Core::new(Settings {
            idempotent: idempotence.enabled,
            max_in_flight: usize::try_from(own.max_in_flight).unwrap_or(1),
            batch_size: own.batch_size,
            linger: own.linger,
            retries: own.retries,
            delivery_timeout: own.delivery_timeout,
            retry_backoff: config.client.retry_backoff,
            retry_backoff_max: config.client.retry_backoff_max,
            max_request_size: own.max_request_size,
            codec: own.compression_type,
        });
        let memory = own.buffer_memory.min(Semaphore::MAX_PERMITS);
        let shared = Arc::new(Shared {
            idempotent: idempotence.enabled,
            cluster: Cluster::over(network, config.client.clone(), true, clock.clone()),
            clock,
            partitioner,
            state: Mutex::new(State {
                core,
                topics: HashMap::new(),
            }),
            memory: Arc::new(Semaphore::new(memory)),
            wake: Notify::new(),
            progress: Notify::new(),
            flush: AtomicU64::new(0),
            closing: AtomicBool::new(false),
            config,
        });
        let sender = tokio::spawn(sender::run(Arc::clone(&shared)));
        Ok(Self { shared, sender })
    }

    /// What is known of the cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.shared.cluster
    }

    /// Whether retries are recognised by the broker.
    pub fn is_idempotent(&self) -> bool {
        self.shared.idempotent
    }

    /// Takes a record. The order of calls is the order in the partition; the outcome comes later. Waits only while the
    /// topic's partitions are not known or `buffer.memory` is full, `max.block.ms` at most.
    ///
    /// # Errors
    /// If the record was not taken; then nothing of it is sent.
    pub async fn send(&self, record: ProducerRecord) -> Result<Delivery, ProduceError> {
        let shared = &self.shared;
        let own = &shared.config.own;
        let begin = Instant::now();
        let deadline = begin + own.max_block;
        let (key, value) = (record.key.as_deref(), record.value.as_deref());
        let size = HEADER_SIZE + BatchBuilder::record_size_bound(key, value, &record.headers);
        let limit = own.max_request_size.min(own.buffer_memory);
        if size > limit {
            return Err(ProduceError::RecordTooLarge { size, limit });
        }
        let topic = match self.known_topic(&record) {
            Some(topic) => topic,
            None => shared
                .cluster
                .topic(&record.topic, deadline)
                .await
                .map_err(|error| match error {
                    ClientError::Refused { code, message, .. } => ProduceError::Refused {
                        code,
                        message,
                        possibly_persisted: false,
                    },
                    error => ProduceError::NoMetadata {
                        topic: record.topic.clone(),
                        waited: begin.elapsed(),
                        reason: error.to_string(),
                    },
                })?,
        };
        let permits = u32::try_from(size).unwrap_or(u32::MAX);
        let memory = match Arc::clone(&shared.memory).try_acquire_many_owned(permits) {
            Ok(memory) => memory,
            Err(_) => {
                // What lingers holds the memory that is waited for.
                self.hurry();
                let memory = Arc::clone(&shared.memory).acquire_many_owned(permits);
                tokio::time::timeout_at(deadline, memory)
                    .await
                    .map_err(|_| ProduceError::BufferFull(begin.elapsed()))?
                    .map_err(|_| ProduceError::Closed)?
            }
        };

        let (reply, outcome) = oneshot::channel();
        let now = shared.clock.now();
        let timestamp = record.timestamp.map_or(now.wall, Timestamp);
        let news = {
            let mut state = shared.state.lock();
            if shared.closing.load(Ordering::Acquire) {
                return Err(ProduceError::Closed);
            }
            let name = state.intern(&record.topic);
            let partition = shared.partition(&mut state, &name, &topic, &record, size)?;
            let token = Token {
                topic: Arc::clone(&name),
                partition,
                reply,
                _memory: memory,
            };
            let place = Key {
                topic: name,
                partition,
            };
            state
                .core
                .append(
                    &place,
                    timestamp,
                    key,
                    value,
                    &record.headers,
                    token,
                    now.monotonic,
                )
                .map_err(|(_, error)| error)?
        };
        if news {
            shared.wake.notify_one();
        }
        Ok(Delivery(outcome))
    }

    /// The topic, if what is known of it is enough for this record.
    fn known_topic(&self, record: &ProducerRecord) -> Option<Arc<TopicView>> {
        let view = self.shared.cluster.view();
        let topic = view.topics.get(&record.topic)?;
        let enough = i64::from(record.partition.unwrap_or(0)) < topic.partitions.len() as i64;
        enough.then(|| Arc::clone(topic))
    }

    /// Ends the lingering of everything taken so far; returns the place of the last of it.
    fn hurry(&self) -> u64 {
        let up_to = self.shared.state.lock().core.last_place();
        self.shared.flush.fetch_max(up_to, Ordering::AcqRel);
        self.shared.wake.notify_one();
        up_to
    }

    /// Sends everything taken so far without lingering, and waits until all of it has its outcome, whichever.
    pub async fn flush(&self) {
        let up_to = self.hurry();
        loop {
            let progress = self.shared.progress.notified();
            tokio::pin!(progress);
            progress.as_mut().enable();
            if self.shared.state.lock().core.is_resolved(up_to) || self.sender.is_finished() {
                return;
            }
            progress.await;
        }
    }

    /// Takes nothing more, waits for outcomes up to `timeout`, and gives up the rest, whose futures then say
    /// [`ProduceError::Closed`]. `true` if nothing was given up.
    pub async fn close(self, timeout: Duration) -> bool {
        self.shared.closing.store(true, Ordering::Release);
        tokio::time::timeout(timeout, self.flush()).await.is_ok()
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::Release);
        self.shared.memory.close();
        self.sender.abort();
        self.shared.fail_all(&ProduceError::Closed);
    }
}

impl State {
    fn intern(&mut self, topic: &str) -> Arc<str> {
        match self.topics.get_key_value(topic) {
            Some((name, _)) => Arc::clone(name),
            None => {
                let name: Arc<str> = topic.into();
                self.topics.insert(Arc::clone(&name), None);
                name
            }
        }
    }
}

impl Shared {
    /// Chooses the partition of a record that takes `size` bytes.
    fn partition(
        &self,
        state: &mut State,
        name: &Arc<str>,
        topic: &TopicView,
        record: &ProducerRecord,
        size: usize,
    ) -> Result<i32, ProduceError> {
        let count = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
        if let Some(partition) = record.partition {
            return match (0..count).contains(&partition) {
                true => Ok(partition),
                false => Err(ProduceError::UnknownPartition {
                    topic: record.topic.clone(),
                    partition,
                }),
            };
        }
        if let Some(key) = &record.key {
            return Ok(self.partitioner.partition(name, key, count));
        }
        let sticky = state
            .topics
            .get_mut(name)
            .expect("the name was just interned");
        let kept = sticky
            .filter(|s| s.partition < count && s.bytes < self.config.own.batch_size)
            .unwrap_or_else(|| Sticky {
                partition: self.any_partition(topic),
                bytes: 0,
            });
        *sticky = Some(Sticky {
            bytes: kept.bytes + size,
            ..kept
        });
        Ok(kept.partition)
    }

    /// A partition that has a leader, if any has.
    fn any_partition(&self, topic: &TopicView) -> i32 {
        let led: Vec<i32> = (0..)
            .zip(&topic.partitions)
            .filter(|(_, partition)| partition.leader.is_some())
            .map(|(index, _)| index)
            .collect();
        match led.len() {
            0 => self.clock.random_below(topic.partitions.len() as u64) as i32,
            count => led[self.clock.random_below(count as u64) as usize],
        }
    }

    /// Hands outcomes to those who wait for them.
    fn complete(&self, done: Done<Token>) {
        if done.is_empty() {
            return;
        }
        for (token, result) in done {
            let Token {
                topic,
                partition,
                reply,
                _memory,
            } = token;
            let result = result.map(|written| RecordMetadata {
                topic,
                partition,
                offset: written.offset,
                timestamp: written.timestamp,
            });
            // Nobody may be waiting any more.
            let _ = reply.send(result);
        }
        self.progress.notify_waiters();
    }

    fn fail_all(&self, error: &ProduceError) {
        let mut done = Vec::new();
        self.state.lock().core.fail_all(error, &mut done);
        self.complete(done);
    }
}
