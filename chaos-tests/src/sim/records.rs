//! Records of the simulation: a batch of numbers, and the numbers of a batch.

use bytes::Bytes;
use kuorum_protocol::record::record::RawRecords;
use kuorum_protocol::record::{BatchBuilder, Codec, batches};
use kuorum_protocol::{
    BrokerId, Offset, PartitionIndex, ProducerEpoch, ProducerId, Sequence, Timestamp, TopicId,
};
use kuorum_storage::salvage::{self, SALVAGE};
use kuorum_storage::{Dir, Log, SimDir};

use crate::checkers::{Logged, Salvaged};

/// Who sends a batch: an idempotent producer and the sequence of its first record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Idempotence {
    pub(super) producer_id: ProducerId,
    pub(super) sequence: Sequence,
}

/// A batch whose records' values are `values`.
pub(super) fn batch(values: &[u64], now: Timestamp, idempotence: Option<Idempotence>) -> Bytes {
    let mut builder = BatchBuilder::new(Codec::None);
    if let Some(Idempotence {
        producer_id,
        sequence,
    }) = idempotence
    {
        builder = builder.producer(producer_id, ProducerEpoch(0), sequence);
    }
    for value in values {
        builder = builder.push(now, None, Some(&value.to_be_bytes()), &[]);
    }
    builder.build()
}

/// The records of whole batches, each with its offset.
///
/// # Errors
/// What is wrong with the bytes.
pub(super) fn records(bytes: &[u8]) -> Result<Vec<(Offset, Logged)>, String> {
    let mut found = Vec::new();
    for batch in batches(bytes) {
        let batch = batch.map_err(|error| error.to_string())?;
        if !batch.crc_is_valid() {
            return Err(format!("the batch at {} is damaged", batch.base_offset()));
        }
        for record in RawRecords::new(batch.payload(), batch.record_count()) {
            let record = record.map_err(|error| error.to_string())?;
            let value = record
                .value
                .and_then(|value| value.try_into().ok())
                .map(u64::from_be_bytes)
                .ok_or_else(|| "a record of another making".to_owned())?;
            let offset = batch.base_offset().plus(i64::from(record.offset_delta));
            let epoch = batch.leader_epoch();
            found.push((offset, Logged { epoch, value }));
        }
    }
    Ok(found)
}

/// The records of a log in `[from, until)`: one read ends with its segment, so it may take several.
///
/// # Errors
/// What cannot be read.
pub(super) fn read_log(
    log: &Log<SimDir>,
    from: Offset,
    until: Offset,
) -> Result<Vec<(Offset, Logged)>, String> {
    let mut found: Vec<(Offset, Logged)> = Vec::new();
    let mut next = from;
    while next < until {
        let bytes = log
            .read(next, until, usize::MAX, true)
            .map_err(|error| error.to_string())?;
        found.extend(
            records(&bytes)?
                .into_iter()
                .filter(|(offset, _)| *offset >= next),
        );
        match found.last() {
            Some((last, _)) if *last >= next => next = last.plus(1),
            _ => return Err(format!("nothing was read at {next}")),
        }
    }
    Ok(found)
}

/// What a machine has set aside of one partition.
///
/// # Errors
/// What cannot be read.
pub(super) fn salvaged(
    broker: BrokerId,
    disk: &SimDir,
    topic_id: TopicId,
    partition: PartitionIndex,
) -> Result<Vec<Salvaged>, String> {
    let dir = disk.subdirectory(SALVAGE);
    let items = salvage::items(&dir).map_err(|error| error.to_string())?;
    let mut found = Vec::new();
    for item in items {
        if item.topic_id != topic_id || item.partition != partition {
            continue;
        }
        let within = dir.subdirectory(&item.id().to_string());
        let mut held = Vec::new();
        for part in &item.parts {
            let bytes = within
                .read_file(&part.name)
                .map_err(|error| error.to_string())?
                .and_then(|bytes| Some(bytes.get(..part.bytes as usize)?.to_vec()))
                .ok_or_else(|| format!("{} of {} is not there", part.name, item.id()))?;
            let range = item.first_offset..item.end_offset;
            let of_it = records(&bytes)?.into_iter();
            held.extend(of_it.filter(|(offset, _)| range.contains(offset)));
        }
        found.push(Salvaged {
            broker,
            first: item.first_offset,
            end: item.end_offset,
            records: held,
        });
    }
    Ok(found)
}
