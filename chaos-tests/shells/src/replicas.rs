//! What the brokers hold in the end: whether the replicas of each partition have come together, and whether they are the same.
//! Law: looks at the product's own logs, from outside and without changing anything.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use kuorum_broker::context::Rooms;
use kuorum_metadata::MetadataImage;
use kuorum_protocol::record::{BatchView, DecompressLimit, RecordsReader, batches};
use kuorum_protocol::{Offset, TopicId};

use crate::ledger::{Contents, Place};

/// Bytes of a log that are read at once.
const READ: usize = 1 << 20;

/// The rooms of each broker that runs.
pub(crate) type Brokers = BTreeMap<i32, Arc<Rooms>>;

/// The end of every log that has come together, or what is still missing.
pub(crate) fn ends(
    image: &MetadataImage,
    brokers: &Brokers,
) -> Result<BTreeMap<Place, i64>, String> {
    let mut ends = BTreeMap::new();
    for (topic, index, partition) in image.partitions() {
        let place = (topic.name.clone(), index);
        if partition.leader.is_none() {
            return Err(format!("nobody leads {place:?}"));
        }
        if partition.isr.len() != partition.replicas.len() {
            return Err(format!(
                "only {:?} of {:?} are in sync in {place:?}",
                partition.isr, partition.replicas
            ));
        }
        let mut stands = Vec::new();
        for replica in &partition.replicas {
            let rooms = brokers.get(&replica.0);
            let hosted = rooms.and_then(|rooms| rooms.replicas.get(topic.id, index));
            let Some(hosted) = hosted else {
                return Err(format!("broker {replica} has no log of {place:?}"));
            };
            stands.push(hosted.with(|partition, _| {
                let log = partition.log();
                (
                    log.end_offset().0,
                    log.flushed_end().0,
                    partition.high_watermark().0,
                )
            }));
        }
        let end = stands[0].0;
        if stands.iter().any(|stand| *stand != (end, end, end)) {
            return Err(format!(
                "the replicas of {place:?} have ends, flushed ends and high watermarks {stands:?}"
            ));
        }
        ends.insert(place, end);
    }
    Ok(ends)
}

/// What the logs hold, which is the same on every replica, or else why not.
pub(crate) fn contents(
    image: &MetadataImage,
    brokers: &Brokers,
) -> Result<BTreeMap<Place, Contents>, String> {
    let mut all = BTreeMap::new();
    for (topic, index, partition) in image.partitions() {
        let place = (topic.name.clone(), index);
        if let Some(epoch) = partition.last_unclean_epoch {
            return Err(format!(
                "clean-elections: {place:?} was given a leader uncleanly in epoch {epoch}"
            ));
        }
        let mut first: Option<(i32, Bytes)> = None;
        for replica in &partition.replicas {
            let bytes = read(&brokers[&replica.0], topic.id, index)
                .map_err(|error| format!("readable: {place:?} on broker {replica}: {error}"))?;
            match &first {
                None => first = Some((replica.0, bytes)),
                Some((_, known)) if *known == bytes => {}
                Some((other, known)) => {
                    return Err(format!(
                        "same-bytes: {place:?} differs on brokers {other} and {replica}: {:?}, {:?}",
                        values(known),
                        values(&bytes)
                    ));
                }
            }
        }
        let (_, bytes) = first.unwrap_or_default();
        let contents = values(&bytes).map_err(|error| format!("readable: {place:?}: {error}"))?;
        all.insert(place, contents);
    }
    Ok(all)
}

/// All of a replica's log.
fn read(rooms: &Rooms, topic: TopicId, index: i32) -> Result<Bytes, String> {
    let hosted = rooms
        .replicas
        .get(topic, index)
        .ok_or("there is no log of it")?;
    hosted.with(|partition, _| {
        let log = partition.log();
        let (mut next, end) = (log.start_offset(), log.end_offset());
        let mut all = Vec::new();
        while next < end {
            let bytes = log
                .read(next, end, READ, true)
                .map_err(|error| error.to_string())?;
            next = after(&bytes)?;
            all.extend_from_slice(&bytes);
        }
        Ok(all.into())
    })
}

/// The offset after the last batch.
fn after(bytes: &Bytes) -> Result<Offset, String> {
    match batches(bytes).last() {
        Some(Ok(batch)) => Ok(batch.next_offset()),
        Some(Err(error)) => Err(error.to_string()),
        None => Err("nothing is there".to_owned()),
    }
}

fn values(bytes: &Bytes) -> Result<Contents, String> {
    let mut contents = Contents::new();
    let mut at = 0;
    while at < bytes.len() {
        let batch = BatchView::parse(&bytes[at..]).map_err(|error| error.to_string())?;
        let size = batch.size();
        let records = RecordsReader::new(&bytes.slice(at..at + size), DecompressLimit::CONSUMED)
            .map_err(|error| error.to_string())?;
        for record in records {
            let record = record.map_err(|error| error.to_string())?;
            let value = record.value.unwrap_or_default();
            let value = String::from_utf8_lossy(&value).into_owned();
            if contents.insert(record.offset.0, value).is_some() {
                return Err(format!("offset {} is there twice", record.offset));
            }
        }
        at += size;
    }
    Ok(contents)
}
