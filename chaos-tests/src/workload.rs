//! A stream of bank transfers: what the stories write, and read back.
//! Law: every record carries the number it was sent under, so that what is read can be held against what was written.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use kuorum_client::{
    Consumer, ConsumerConfig, Producer, ProducerConfig, ProducerRecord, StartAt, TopicPartition,
};
use kuorum_protocol::Offset;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::admin::Admin;
use crate::history::{Outcome, Read, Write};

/// Accounts money moves between.
const ACCOUNTS: u64 = 5_000;
/// Records whose acknowledgement may be outstanding.
const UNACKNOWLEDGED: usize = 50_000;
/// How long reading may go without a record although there must be more.
const READ_STALLED: Duration = Duration::from_secs(30);

/// One bank transfer.
#[derive(Debug, Serialize, Deserialize)]
struct Transfer {
    id: u64,
    from: String,
    to: String,
    /// In cents.
    amount: u64,
    currency: String,
    reference: String,
}

impl Transfer {
    /// The transfer of this number; always the same one.
    fn number(id: u64) -> Self {
        // Odd multipliers spread consecutive numbers over the accounts.
        let from = id.wrapping_mul(2_654_435_761) % ACCOUNTS;
        let to = (from + 1 + id.wrapping_mul(40_503) % (ACCOUNTS - 1)) % ACCOUNTS;
        Self {
            id,
            from: format!("ID{from:08}"),
            to: format!("ID{to:08}"),
            amount: 1 + id.wrapping_mul(6_364_136_223_846_793_005) % 100_000_000,
            currency: "IDR".to_owned(),
            reference: format!("invoice {} of {}", id % 977, id % 89),
        }
    }
}

/// The transfer of a number as a record: key and value.
///
/// # Errors
/// When it cannot be written as JSON.
pub fn record_of(id: u64) -> Result<(String, Vec<u8>)> {
    let transfer = Transfer::number(id);
    Ok((transfer.from.clone(), serde_json::to_vec(&transfer)?))
}

/// The number of the transfer in a record's value.
///
/// # Errors
/// When there is no transfer in it.
pub fn number_in(value: &[u8]) -> Result<u64> {
    Ok(serde_json::from_slice::<Transfer>(value)?.id)
}

/// A stream being written: where it stands, and how to end it.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    sent: Arc<AtomicU64>,
    acknowledged: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Progress {
    /// Records handed to the producer.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Records acknowledged.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// One more record was handed over.
    pub(crate) fn count_sent(&self) {
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    /// One more record was acknowledged.
    pub(crate) fn count_acknowledged(&self) {
        self.acknowledged.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the stream is to end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Ends the stream after the record being sent.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// An endless stream that is being written, until it is ended.
#[derive(Debug)]
pub struct Writing {
    pub progress: Progress,
    task: JoinHandle<Result<Vec<Write>>>,
}

impl Writing {
    /// Begins to write so many records a second into a topic, numbered from `first` on.
    #[must_use]
    pub fn begin(bootstrap: &str, topic: &str, first: u64, rate: u64) -> Self {
        let stream = Stream {
            topic: topic.to_owned(),
            first,
            count: u64::MAX / 2,
            rate: Some(rate),
        };
        let progress = Progress::default();
        let task = tokio::spawn({
            let (bootstrap, progress) = (bootstrap.to_owned(), progress.clone());
            async move { write(&bootstrap, stream, progress).await }
        });
        Self { progress, task }
    }

    /// Waits until so many more records are acknowledged than there are now.
    ///
    /// # Errors
    /// When they are not in time.
    pub async fn flow(&self, admin: &Admin, records: u64, settle: Duration) -> Result<()> {
        let enough = self.progress.acknowledged() + records;
        admin
            .wait_until(settle, "writes are flowing", async || {
                Ok(self.progress.acknowledged() >= enough)
            })
            .await
    }

    /// Sends nothing more, waits until every record has ended, and returns what became of each.
    ///
    /// # Errors
    /// When the producer could not be made, or stopped taking records.
    pub async fn end(self) -> Result<Vec<Write>> {
        self.progress.stop();
        self.task.await?
    }
}

/// What to write, and how fast.
#[derive(Clone, Debug)]
pub struct Stream {
    pub topic: String,
    /// The number of the first record.
    pub first: u64,
    /// How many; fewer if it is stopped.
    pub count: u64,
    /// Records a second, `None` for as fast as it goes.
    pub rate: Option<u64>,
}

/// Writes a stream with acks=all through an idempotent producer, and returns what became of each record.
///
/// # Errors
/// When the producer cannot be made.
pub async fn write(bootstrap: &str, stream: Stream, progress: Progress) -> Result<Vec<Write>> {
    let config = ProducerConfig::new(bootstrap)?
        .with("acks", "all")?
        .with("linger.ms", "2")?;
    let producer = Producer::new(config)?;
    let began = Instant::now();
    let (sender, mut deliveries) = mpsc::channel(UNACKNOWLEDGED);
    let acknowledged = Arc::clone(&progress.acknowledged);
    let collector = tokio::spawn(async move {
        let mut writes = Vec::new();
        while let Some((id, delivery)) = deliveries.recv().await {
            let delivery: kuorum_client::Delivery = delivery;
            let (partition, outcome) = match delivery.await {
                Ok(at) => {
                    acknowledged.fetch_add(1, Ordering::Relaxed);
                    let offset = Offset(at.offset);
                    (
                        at.partition,
                        Outcome::Acknowledged {
                            offset,
                            at: began.elapsed(),
                        },
                    )
                }
                Err(error) if error.possibly_persisted() => (-1, Outcome::Unknown),
                Err(_) => (-1, Outcome::Refused),
            };
            writes.push(Write {
                id,
                partition,
                outcome,
            });
        }
        writes
    });
    for id in stream.first..stream.first + stream.count {
        if progress.stop.load(Ordering::Relaxed) {
            break;
        }
        if let Some(rate) = stream.rate {
            until_due(began, id - stream.first, rate).await;
        }
        let transfer = Transfer::number(id);
        let record = ProducerRecord::new(&stream.topic, serde_json::to_vec(&transfer)?)
            .with_key(Bytes::from(transfer.from.clone()));
        let delivery = producer
            .send(record)
            .await
            .with_context(|| format!("transfer {id} was not taken"))?;
        progress.sent.fetch_add(1, Ordering::Relaxed);
        if sender.send((id, delivery)).await.is_err() {
            bail!("the collector of acknowledgements is gone");
        }
    }
    drop(sender);
    producer.flush().await;
    let writes = collector.await?;
    producer.close(Duration::from_secs(10)).await;
    Ok(writes)
}

/// Waits until record number `place` of a stream that began then is due, at so many a second.
pub(crate) async fn until_due(began: Instant, place: u64, rate: u64) {
    let due = Duration::from_secs_f64(place as f64 / rate as f64);
    let early = due.saturating_sub(began.elapsed());
    // The timer counts in milliseconds: what is due within one is due.
    if early >= Duration::from_millis(1) {
        tokio::time::sleep(early).await;
    }
}

/// Reads every partition from the beginning to where it ends now.
///
/// # Errors
/// When a partition cannot be read to its end.
pub async fn read_all(
    bootstrap: &str,
    topic: &str,
    partitions: i32,
    seen: &AtomicU64,
) -> Result<Vec<Read>> {
    let mut consumer = Consumer::new(ConsumerConfig::new(bootstrap)?);
    let all: Vec<TopicPartition> = (0..partitions)
        .map(|partition| TopicPartition::new(topic, partition))
        .collect();
    let found = consumer.offsets(&all, StartAt::End, READ_STALLED).await?;
    consumer.assign(
        all.into_iter()
            .map(|partition| (partition, StartAt::Beginning)),
    );
    let mut ends = vec![0; partitions as usize];
    for (partition, end) in found {
        ends[partition.partition as usize] = end;
    }
    let mut reads = Vec::new();
    let mut position = vec![0; partitions as usize];
    let mut last_record = Instant::now();
    while position
        .iter()
        .zip(&ends)
        .any(|(position, end)| position < end)
    {
        for record in consumer.poll(Duration::from_millis(500)).await? {
            let value = record.value.context("a transfer has a value")?;
            let transfer: Transfer = serde_json::from_slice(&value).with_context(|| {
                format!("offset {} of partition {}", record.offset, record.partition)
            })?;
            position[record.partition as usize] = record.offset + 1;
            reads.push(Read {
                partition: record.partition,
                offset: Offset(record.offset),
                id: transfer.id,
            });
            seen.fetch_add(1, Ordering::Relaxed);
            last_record = Instant::now();
        }
        if last_record.elapsed() > READ_STALLED {
            bail!("nothing more to read at {position:?}, though the partitions end at {ends:?}");
        }
    }
    Ok(reads)
}
