//! Who writes and who reads while the cluster is being hurt, with this project's own client.
//! Law: every write ends in the history, as acknowledged, failed or unknown; every read does, with the epoch it was written under.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use kuorum_client::{
    ConsumeError, Consumer, ConsumerConfig, Delivery, ProduceError, Producer, ProducerConfig,
    ProducerRecord, StartAt, TopicPartition,
};
use kuorum_protocol::Timestamp;
use kuorum_protocol::messages::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use kuorum_protocol::record::{BatchBuilder, Codec};
use kuorum_transport::Connection;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::history::{Event, History, Outcome};
use crate::workload::{Progress, number_in, record_of, until_due};

/// Records whose acknowledgement may be outstanding.
const UNACKNOWLEDGED: usize = 60_000;
/// How long reading may go without a record although there must be more.
const READ_STALLED: Duration = Duration::from_secs(30);
/// How often a client asks where partitions end.
const LATEST_EVERY: Duration = Duration::from_millis(200);

/// What to write.
#[derive(Clone, Debug)]
pub struct Stream {
    pub name: Arc<str>,
    pub topic: Arc<str>,
    /// The number of the first record; numbers are unique in a run.
    pub first: u64,
    /// How many; fewer if it is stopped.
    pub count: u64,
    /// Records a second; `None` for as fast as it goes.
    pub rate: Option<u64>,
    /// As the producer's setting of this name. Idempotent with `all`.
    pub acks: &'static str,
    /// `None`: by key.
    pub partition: Option<i32>,
    pub delivery_timeout: Duration,
}

impl Stream {
    /// An idempotent stream with acks=all, by key, that goes on until it is stopped.
    #[must_use]
    pub fn endless(name: &str, topic: &str, rate: u64) -> Self {
        Self {
            name: name.into(),
            topic: topic.into(),
            first: 0,
            count: u64::MAX / 2,
            rate: Some(rate),
            acks: "all",
            partition: None,
            delivery_timeout: Duration::from_secs(120),
        }
    }

    /// The records `first..end` into partition 0, as fast as it goes.
    #[must_use]
    pub fn numbers(name: &str, topic: &str, first: u64, end: u64) -> Self {
        Self {
            first,
            count: end - first,
            rate: None,
            partition: Some(0),
            ..Self::endless(name, topic, 1)
        }
    }
}

/// A stream being written.
#[derive(Debug)]
pub struct Writing {
    pub progress: Progress,
    task: JoinHandle<Result<()>>,
}

impl Writing {
    /// Waits until every record of it has ended.
    ///
    /// # Errors
    /// When the producer could not be made.
    pub async fn end(self) -> Result<()> {
        self.task.await?
    }

    /// Sends nothing more, and waits until every record has ended.
    ///
    /// # Errors
    /// When the producer could not be made.
    pub async fn stop(self) -> Result<()> {
        self.progress.stop();
        self.end().await
    }
}

/// Begins to write.
#[must_use]
pub fn write(bootstrap: String, stream: Stream, history: History) -> Writing {
    let progress = Progress::default();
    let task = tokio::spawn(write_all(bootstrap, stream, history, progress.clone()));
    Writing { progress, task }
}

async fn write_all(
    bootstrap: String,
    stream: Stream,
    history: History,
    progress: Progress,
) -> Result<()> {
    let timeout = stream.delivery_timeout.as_millis();
    let config = ProducerConfig::new(&bootstrap)?
        .with("acks", stream.acks)?
        .with("linger.ms", "2")?
        .with("batch.size", "65536")?
        .with("request.timeout.ms", &(timeout / 2).min(30_000).to_string())?
        .with("delivery.timeout.ms", &timeout.to_string())?;
    let producer = Producer::new(config)?;
    let (sender, mut deliveries) = mpsc::channel::<(u64, f64, Delivery)>(UNACKNOWLEDGED);
    let collector = tokio::spawn({
        let (history, progress, stream) = (history.clone(), progress.clone(), stream.clone());
        async move {
            while let Some((id, sent, delivery)) = deliveries.recv().await {
                let event = match delivery.await {
                    Ok(at) => {
                        progress.count_acknowledged();
                        wrote(&stream, id, sent, at.partition, Ok(at.offset))
                    }
                    Err(error) => wrote(&stream, id, sent, -1, Err(error)),
                };
                history.note(event);
            }
        }
    });
    let began = Instant::now();
    for id in stream.first..stream.first + stream.count {
        if progress.is_stopped() {
            break;
        }
        if let Some(rate) = stream.rate {
            until_due(began, id - stream.first, rate).await;
        }
        let (key, value) = record_of(id)?;
        let mut record = ProducerRecord::new(&*stream.topic, value).with_key(key);
        if let Some(partition) = stream.partition {
            record = record.with_partition(partition);
        }
        let sent = history.now();
        match producer.send(record).await {
            Ok(delivery) => {
                progress.count_sent();
                if sender.send((id, sent, delivery)).await.is_err() {
                    bail!("the collector of acknowledgements is gone");
                }
            }
            Err(error) => history.note(wrote(&stream, id, sent, -1, Err(error))),
        }
    }
    drop(sender);
    producer.flush().await;
    collector.await?;
    producer.close(Duration::from_secs(10)).await;
    Ok(())
}

/// A client with one connection, to one broker, which waits there for its answer whatever becomes of the broker: as other
/// clients do whose request is under way.
#[derive(Debug)]
pub struct Waiting {
    connection: Connection,
    stream: Stream,
    history: History,
}

/// The newest version of Produce that names topics.
const PRODUCE_BY_NAME: i16 = 12;

impl Waiting {
    /// Connects to `address`.
    ///
    /// # Errors
    /// When it does not.
    pub async fn at(address: &str, stream: Stream, history: History) -> Result<Self> {
        let deadline = Instant::now() + Duration::from_secs(5);
        let connection = Connection::connect(address, Some(&stream.name), deadline.into()).await?;
        Ok(Self {
            connection,
            stream,
            history,
        })
    }

    /// Writes all records of its stream to partition 0, as one batch.
    ///
    /// # Errors
    /// When a record cannot be made.
    pub async fn write(self) -> Result<()> {
        let Self {
            connection,
            stream,
            history,
        } = self;
        let ids = stream.first..stream.first + stream.count;
        let mut batch = BatchBuilder::new(Codec::None);
        for id in ids.clone() {
            let (key, value) = record_of(id)?;
            batch.append(Timestamp(0), Some(key.as_bytes()), Some(&value), &[]);
        }
        let request = ProduceRequest {
            transactional_id: None,
            acks: -1,
            timeout_ms: i32::try_from(stream.delivery_timeout.as_millis())?,
            topic_data: vec![TopicProduceData {
                name: stream.topic.to_string(),
                partition_data: vec![PartitionProduceData {
                    index: 0,
                    records: Some(batch.build()),
                }],
                ..Default::default()
            }],
        };
        let (sent, deadline) = (history.now(), Instant::now() + stream.delivery_timeout);
        let answer = connection.call(PRODUCE_BY_NAME, &request, deadline.into());
        let written = match answer.await {
            Ok(answer) => answer
                .responses
                .iter()
                .flat_map(|topic| &topic.partition_responses)
                .map(|place| match place.error_code {
                    0 => Ok(place.base_offset),
                    code => Err(format!("error {code}")),
                })
                .next()
                .unwrap_or_else(|| Err("an answer about nothing".to_owned())),
            Err(error) => Err(error.to_string()),
        };
        for id in ids {
            let (outcome, offset, error) = match &written {
                Ok(base) => (
                    Outcome::Acked,
                    Some(base + (id - stream.first) as i64),
                    None,
                ),
                // Whoever leads next may have it.
                Err(error) => (Outcome::Unknown, None, Some(error.clone())),
            };
            history.note(Event::Wrote {
                stream: Arc::clone(&stream.name),
                topic: Arc::clone(&stream.topic),
                partition: 0,
                id,
                sent,
                outcome,
                offset,
                error,
            });
        }
        Ok(())
    }
}

fn wrote(
    stream: &Stream,
    id: u64,
    sent: f64,
    partition: i32,
    result: Result<i64, ProduceError>,
) -> Event {
    let (outcome, offset, error) = match result {
        // One leader's word: it may be taken back.
        Ok(offset) if stream.acks != "all" => (Outcome::Unknown, Some(offset), None),
        Ok(offset) => (Outcome::Acked, Some(offset), None),
        Err(error) if error.possibly_persisted() => {
            (Outcome::Unknown, None, Some(error.to_string()))
        }
        Err(error) => (Outcome::Failed, None, Some(error.to_string())),
    };
    Event::Wrote {
        stream: Arc::clone(&stream.name),
        topic: Arc::clone(&stream.topic),
        partition,
        id,
        sent,
        outcome,
        offset,
        error,
    }
}

/// A reader that follows a topic, or a client that asks where it ends.
#[derive(Debug)]
pub struct Following {
    stop: Arc<AtomicBool>,
    task: JoinHandle<Result<()>>,
}

impl Following {
    /// Ends it.
    ///
    /// # Errors
    /// What ended it before.
    pub async fn stop(mut self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        (&mut self.task).await?
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn partitions_of(topic: &str, partitions: i32) -> Vec<TopicPartition> {
    (0..partitions)
        .map(|partition| TopicPartition::new(topic, partition))
        .collect()
}

/// Reads a topic from the beginning and follows it, noting what it is told when the log was cut.
///
/// # Errors
/// When the consumer cannot be made.
pub fn follow(
    bootstrap: &str,
    name: &str,
    topic: &str,
    partitions: i32,
    history: History,
) -> Result<Following> {
    let config = ConsumerConfig::new(bootstrap)?.with("auto.offset.reset", "none")?;
    let (reader, topic): (Arc<str>, Arc<str>) = (name.into(), topic.into());
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let task = tokio::spawn(async move {
        let mut consumer = Consumer::new(config);
        let all = partitions_of(&topic, partitions);
        consumer.assign(all.into_iter().map(|one| (one, StartAt::Beginning)));
        let assigned = || Event::Assigned {
            reader: Arc::clone(&reader),
            topic: Arc::clone(&topic),
        };
        history.note(assigned());
        while !stopped.load(Ordering::Relaxed) {
            let told = |partition, position, end| Event::Told {
                reader: Arc::clone(&reader),
                topic: Arc::clone(&topic),
                partition,
                position,
                end,
            };
            match consumer.poll(Duration::from_millis(200)).await {
                Ok(records) => {
                    for record in records {
                        history.note(polled(&reader, &topic, &record)?);
                    }
                }
                Err(ConsumeError::LogTruncation {
                    partition,
                    offset,
                    end_offset,
                    ..
                }) => {
                    history.note(told(partition, offset, Some(end_offset)));
                    history.note(assigned());
                    consumer.seek(
                        &TopicPartition::new(&*topic, partition),
                        StartAt::Offset(end_offset),
                    )?;
                }
                Err(ConsumeError::OffsetOutOfRange {
                    partition, offset, ..
                }) => {
                    history.note(told(partition, offset, None));
                    history.note(assigned());
                    consumer.seek(&TopicPartition::new(&*topic, partition), StartAt::Beginning)?;
                }
                Err(error @ ConsumeError::Corrupt { .. }) => return Err(error.into()),
                // It goes on when the cluster does.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
        Ok(())
    });
    Ok(Following { stop, task })
}

fn polled(
    reader: &Arc<str>,
    topic: &Arc<str>,
    record: &kuorum_client::ConsumerRecord,
) -> Result<Event> {
    let value = record.value.as_ref().context("a transfer has a value")?;
    let place = || format!("offset {} of {topic}-{}", record.offset, record.partition);
    Ok(Event::Polled {
        reader: Arc::clone(reader),
        topic: Arc::clone(topic),
        partition: record.partition,
        offset: record.offset,
        leader_epoch: record.leader_epoch.0,
        id: number_in(value).with_context(place)?,
    })
}

/// Asks again and again where a topic's partitions end.
///
/// # Errors
/// When the client cannot be made.
pub fn ask_latest(
    bootstrap: &str,
    topic: &str,
    partitions: i32,
    history: History,
) -> Result<Following> {
    let config = ConsumerConfig::new(bootstrap)?;
    let topic: Arc<str> = topic.into();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    // A consumer that is asked by reference stays on one thread, which has a runtime of its own.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let task = tokio::task::spawn_blocking(move || {
        runtime.block_on(async move {
            let consumer = Consumer::new(config);
            while !stopped.load(Ordering::Relaxed) {
                for one in partitions_of(&topic, partitions) {
                    // No answer is no statement.
                    let found = consumer
                        .offsets(
                            std::slice::from_ref(&one),
                            StartAt::End,
                            Duration::from_secs(1),
                        )
                        .await;
                    if let Ok(found) = found
                        && let Some(offset) = found.get(&one)
                    {
                        history.note(Event::Latest {
                            topic: Arc::clone(&topic),
                            partition: one.partition,
                            offset: *offset,
                        });
                    }
                }
                tokio::time::sleep(LATEST_EVERY).await;
            }
            Ok(())
        })
    });
    Ok(Following { stop, task })
}

/// Reads every partition from the beginning to where it ends now.
///
/// # Errors
/// When a partition cannot be read to its end.
pub async fn read_all(
    bootstrap: &str,
    name: &str,
    topic: &str,
    partitions: i32,
    history: &History,
) -> Result<()> {
    let (reader, topic): (Arc<str>, Arc<str>) = (name.into(), topic.into());
    let mut consumer = Consumer::new(ConsumerConfig::new(bootstrap)?);
    let all = partitions_of(&topic, partitions);
    let ends = consumer.offsets(&all, StartAt::End, READ_STALLED).await?;
    consumer.assign(all.into_iter().map(|one| (one, StartAt::Beginning)));
    history.note(Event::Assigned {
        reader: Arc::clone(&reader),
        topic: Arc::clone(&topic),
    });
    let mut position = vec![0; partitions as usize];
    let mut last_record = Instant::now();
    while ends
        .iter()
        .any(|(one, end)| position[one.partition as usize] < *end)
    {
        for record in consumer.poll(Duration::from_millis(500)).await? {
            position[record.partition as usize] = record.offset + 1;
            history.note(polled(&reader, &topic, &record)?);
            last_record = Instant::now();
        }
        if last_record.elapsed() > READ_STALLED {
            bail!("nothing more to read at {position:?}, though the partitions end at {ends:?}");
        }
    }
    Ok(())
}
