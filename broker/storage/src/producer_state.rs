//! Idempotent producers (KIP-98): what each wrote last, so that a retry is recognised and a gap refused.
//! Law: pure, and part of the log: followers, recovery and truncation arrive at the same state by replaying the same
//! batches. A batch is applied only after it was appended; after a truncation the state is loaded again, never patched.
//! What a producer wrote is forgotten by when it was appended here, never by what its records say of their time.

use std::collections::{BTreeMap, VecDeque};

use kuorum_protocol::record::BatchView;
use kuorum_protocol::{Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};

use crate::error::AppendError;

/// Batches that are remembered of each producer: as many as it may have in flight.
pub const REMEMBERED_BATCHES: usize = 5;

const MAGIC: &[u8; 4] = b"KUPS";
/// The version without times of append is still read.
const VERSION: u16 = 2;

/// One batch of a producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducedBatch {
    /// Sequence of its first record.
    pub first_sequence: Sequence,
    /// Sequence of its last record; lower than the first if it wrapped.
    pub last_sequence: Sequence,
    /// Offset of its first record.
    pub first_offset: Offset,
    /// Offset of its last record.
    pub last_offset: Offset,
    /// Its highest timestamp.
    pub timestamp: Timestamp,
}

/// What is known of one producer.
#[derive(Clone, Debug)]
pub struct Producer {
    /// Its incarnation.
    pub epoch: ProducerEpoch,
    /// A transaction of this epoch was ended by a marker.
    pub marked: bool,
    /// Timestamp of its last batch or marker.
    pub last_timestamp: Timestamp,
    /// When its last batch or marker was appended, by the clock of this replica: not before it was, but later if that was
    /// learnt from the log again. The time it is forgotten is counted from here.
    pub last_append: Timestamp,
    /// Where its open transaction began in this partition.
    pub open_transaction: Option<Offset>,
    /// Its last batches, oldest first.
    pub batches: VecDeque<ProducedBatch>,
}

/// Replicas know the same of a producer, whenever each of them heard of it.
impl PartialEq for Producer {
    fn eq(&self, other: &Self) -> bool {
        let Self {
            epoch,
            marked,
            last_timestamp,
            last_append: _,
            open_transaction,
            batches,
        } = self;
        *epoch == other.epoch
            && *marked == other.marked
            && *last_timestamp == other.last_timestamp
            && *open_transaction == other.open_transaction
            && *batches == other.batches
    }
}

impl Eq for Producer {}

impl Producer {
    fn new(epoch: ProducerEpoch) -> Self {
        Self {
            epoch,
            marked: false,
            last_timestamp: Timestamp::NONE,
            last_append: Timestamp::NONE,
            open_transaction: None,
            batches: VecDeque::new(),
        }
    }

    /// The sequence of its last record in this epoch.
    pub fn last_sequence(&self) -> Option<Sequence> {
        self.batches.back().map(|batch| batch.last_sequence)
    }
}

/// What a check allows.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Append it.
    New,
    /// It is here already, as this batch.
    Duplicate(ProducedBatch),
}

/// Every idempotent producer of one log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProducerStates {
    producers: BTreeMap<ProducerId, Producer>,
}

impl ProducerStates {
    /// Nobody yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// What is known of one producer.
    pub fn get(&self, id: ProducerId) -> Option<&Producer> {
        self.producers.get(&id)
    }

    /// Every producer, by id.
    pub fn iter(&self) -> impl Iterator<Item = (ProducerId, &Producer)> {
        self.producers.iter().map(|(id, producer)| (*id, producer))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.producers.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.producers.is_empty()
    }

    /// The first offset of any open transaction.
    pub fn first_open_transaction(&self) -> Option<Offset> {
        self.producers
            .values()
            .filter_map(|producer| producer.open_transaction)
            .min()
    }

    /// Judges a batch that a client sent, before it has an offset.
    ///
    /// # Errors
    /// `OutOfOrderSequence`, `InvalidProducerEpoch`, `InvalidTransactionState`.
    pub fn check(&self, batch: &BatchView<'_>) -> Result<Verdict, AppendError> {
        let Some(producer) = self.known(batch) else {
            return Ok(Verdict::New);
        };
        let (first, last) = (batch.base_sequence(), batch.last_sequence());
        let epoch = batch.producer_epoch();
        if epoch < producer.epoch {
            return Err(AppendError::InvalidProducerEpoch {
                current: producer.epoch,
                found: epoch,
            });
        }
        if batch.is_control() {
            return Ok(Verdict::New);
        }
        let out_of_order = |expected| {
            Err(AppendError::OutOfOrderSequence {
                expected,
                found: first,
            })
        };
        if epoch > producer.epoch {
            return if first == Sequence(0) {
                Ok(Verdict::New)
            } else {
                out_of_order(Sequence(0))
            };
        }
        let same =
            |known: &&ProducedBatch| known.first_sequence == first && known.last_sequence == last;
        if let Some(original) = producer.batches.iter().find(same) {
            return Ok(Verdict::Duplicate(*original));
        }
        // A marker may be all that is known: its transaction's batches may be gone, so any sequence is as good.
        let expected = match producer.last_sequence() {
            Some(last) => last.plus(1),
            None if producer.marked => return Ok(Verdict::New),
            None => Sequence(0),
        };
        if first != expected {
            return out_of_order(expected);
        }
        if producer.open_transaction.is_some() && !batch.is_transactional() {
            return Err(AppendError::InvalidTransactionState);
        }
        Ok(Verdict::New)
    }

    fn known(&self, batch: &BatchView<'_>) -> Option<&Producer> {
        if batch.producer_id() == ProducerId::NONE {
            return None;
        }
        self.producers.get(&batch.producer_id())
    }

    /// Takes note of a batch that is in the log, whatever it says: followers and recovery never refuse (KAFKA-6003).
    /// `appended` is what the clock says, or said when it was appended.
    pub fn apply(&mut self, batch: &BatchView<'_>, appended: Timestamp) {
        let id = batch.producer_id();
        if id == ProducerId::NONE {
            return;
        }
        let epoch = batch.producer_epoch();
        let producer = self
            .producers
            .entry(id)
            .or_insert_with(|| Producer::new(epoch));
        if producer.epoch != epoch {
            producer.epoch = epoch;
            producer.marked = false;
            producer.batches.clear();
        }
        producer.last_timestamp = batch.max_timestamp();
        producer.last_append = appended;
        if batch.is_control() {
            producer.open_transaction = None;
            producer.marked = true;
            return;
        }
        if batch.is_transactional() {
            producer.open_transaction.get_or_insert(batch.base_offset());
        }
        if producer.batches.len() == REMEMBERED_BATCHES {
            producer.batches.pop_front();
        }
        producer.batches.push_back(ProducedBatch {
            first_sequence: batch.base_sequence(),
            last_sequence: batch.last_sequence(),
            first_offset: batch.base_offset(),
            last_offset: batch.last_offset(),
            timestamp: batch.max_timestamp(),
        });
    }

    /// Forgets producers of which nothing was appended for `expiration_ms`, except those with an open transaction.
    pub fn expire(&mut self, wall: Timestamp, expiration_ms: i64) {
        self.producers.retain(|_, producer| {
            producer.open_transaction.is_some()
                || wall.0.saturating_sub(producer.last_append.0) < expiration_ms
        });
    }

    /// Forgets everybody.
    pub fn clear(&mut self) {
        self.producers.clear();
    }

    /// The bytes of a `.snapshot` file.
    pub fn to_snapshot(&self) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend_from_slice(&(self.producers.len() as u32).to_be_bytes());
        for (id, producer) in &self.producers {
            body.extend_from_slice(&id.0.to_be_bytes());
            body.extend_from_slice(&producer.epoch.0.to_be_bytes());
            body.push(producer.marked.into());
            body.extend_from_slice(&producer.last_timestamp.0.to_be_bytes());
            body.extend_from_slice(&producer.last_append.0.to_be_bytes());
            let open = producer.open_transaction.unwrap_or(Offset::UNKNOWN);
            body.extend_from_slice(&open.0.to_be_bytes());
            body.push(producer.batches.len() as u8);
            for batch in &producer.batches {
                body.extend_from_slice(&batch.first_sequence.0.to_be_bytes());
                body.extend_from_slice(&batch.last_sequence.0.to_be_bytes());
                body.extend_from_slice(&batch.first_offset.0.to_be_bytes());
                body.extend_from_slice(&batch.last_offset.0.to_be_bytes());
                body.extend_from_slice(&batch.timestamp.0.to_be_bytes());
            }
        }
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&VERSION.to_be_bytes());
        bytes.extend_from_slice(&crc32c::crc32c(&body).to_be_bytes());
        bytes.extend_from_slice(&body);
        bytes
    }

    /// Reads a `.snapshot` file. What an older version of it does not say of the time of an append counts as `now`.
    ///
    /// # Errors
    /// If a newer version wrote it, or it is damaged.
    pub fn from_snapshot(bytes: &[u8], now: Timestamp) -> Result<Self, BadSnapshot> {
        let mut input = Input(bytes);
        if input.take::<4>()? != *MAGIC {
            return Err(BadSnapshot::Damaged);
        }
        let version = u16::from_be_bytes(input.take()?);
        if version > VERSION {
            return Err(BadSnapshot::Newer {
                version,
                known: VERSION,
            });
        }
        if u32::from_be_bytes(input.take()?) != crc32c::crc32c(input.0) {
            return Err(BadSnapshot::Damaged);
        }
        let mut producers = BTreeMap::new();
        for _ in 0..u32::from_be_bytes(input.take()?) {
            let id = ProducerId(i64::from_be_bytes(input.take()?));
            let mut producer = Producer::new(ProducerEpoch(i16::from_be_bytes(input.take()?)));
            producer.marked = u8::from_be_bytes(input.take()?) != 0;
            producer.last_timestamp = Timestamp(i64::from_be_bytes(input.take()?));
            producer.last_append = match version {
                0 | 1 => now,
                _ => Timestamp(i64::from_be_bytes(input.take()?)),
            };
            let open = Offset(i64::from_be_bytes(input.take()?));
            producer.open_transaction = (open != Offset::UNKNOWN).then_some(open);
            for _ in 0..u8::from_be_bytes(input.take()?) {
                producer.batches.push_back(ProducedBatch {
                    first_sequence: Sequence(i32::from_be_bytes(input.take()?)),
                    last_sequence: Sequence(i32::from_be_bytes(input.take()?)),
                    first_offset: Offset(i64::from_be_bytes(input.take()?)),
                    last_offset: Offset(i64::from_be_bytes(input.take()?)),
                    timestamp: Timestamp(i64::from_be_bytes(input.take()?)),
                });
            }
            producers.insert(id, producer);
        }
        if input.0.is_empty() {
            Ok(Self { producers })
        } else {
            Err(BadSnapshot::Damaged)
        }
    }
}

/// Why a `.snapshot` file is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadSnapshot {
    /// It is not what was written.
    Damaged,
    /// A newer program wrote it.
    Newer {
        /// Its version.
        version: u16,
        /// The newest known here.
        known: u16,
    },
}

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], BadSnapshot> {
        let (taken, rest) = self
            .0
            .split_first_chunk::<N>()
            .ok_or(BadSnapshot::Damaged)?;
        self.0 = rest;
        Ok(*taken)
    }
}

#[cfg(test)]
mod tests;
