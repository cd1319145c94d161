//! Replays of salvaged items: who writes them, how far they are, and that each is done once.
//! Law: one producer id for each pair of item and target, for ever; it is in the log before its first record is written. A
//! replay that is over stays over.

use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::{BrokerEpoch, BrokerId, PartitionIndex, ProducerId, Timestamp, TopicId};

use super::{Decision, Refusal};
use crate::image::{MetadataImage, SalvageReplayImage, SalvageReplayedImage, is_internal_topic};
use crate::record::MetadataRecord;

/// Keeps a producer id for the replay of `item`, which has so many records, into a partition of `target`. Asked again, answers
/// with what is there, and a replay that was given up goes on.
///
/// # Errors
/// UNKNOWN_TOPIC_ID, INVALID_PARTITIONS if the target has no such partition, INVALID_TOPIC_EXCEPTION for the coordinators'
/// own topics.
pub fn reserve(
    image: &MetadataImage,
    item: &str,
    target: TopicId,
    partition: PartitionIndex,
    records: u64,
) -> Result<Decision<SalvageReplayImage>, Refusal> {
    if let Some(known) = image.salvage_replay(item, target) {
        let is_news = known.stopped || records > known.records;
        if known.replayed.is_some() || !is_news {
            return Ok(Decision::unchanged(known));
        }
        let goes_on = SalvageReplayImage {
            records: known.records.max(records),
            stopped: false,
            ..known
        };
        return Ok(Decision {
            records: vec![record_of(item, target, &goes_on)],
            response: goes_on,
        });
    }
    let topic = image.topic_by_id(target).ok_or_else(|| {
        Refusal::new(
            ErrorCode::UnknownTopicId,
            format!("there is no topic with the id {target}"),
        )
    })?;
    if is_internal_topic(&topic.name) {
        return Err(Refusal::new(
            ErrorCode::InvalidTopicException,
            format!(
                "nothing is replayed into {}: it is the cluster's own",
                topic.name
            ),
        ));
    }
    if topic.partition(partition).is_none() {
        return Err(Refusal::new(
            ErrorCode::InvalidPartitions,
            format!(
                "{} has {} partitions, fewer than needed: the records are of partition {partition} and keep their number",
                topic.name,
                topic.partitions.len()
            ),
        ));
    }
    let producer_id = image.producer_ids().map_or(ProducerId(0), |ids| ids.next);
    let next = producer_id.0.checked_add(1).ok_or_else(|| {
        Refusal::new(
            ErrorCode::UnknownServerError,
            "there are no producer ids left",
        )
    })?;
    Ok(Decision {
        records: vec![
            MetadataRecord::ProducerIds {
                broker_id: BrokerId::NONE,
                broker_epoch: BrokerEpoch::UNKNOWN,
                next_producer_id: ProducerId(next),
            },
            MetadataRecord::SalvageReplay {
                item: item.to_owned(),
                target,
                partition,
                producer_id,
                records,
                acknowledged: 0,
                stopped: false,
            },
        ],
        response: SalvageReplayImage {
            partition,
            producer_id,
            records,
            acknowledged: 0,
            stopped: false,
            replayed: None,
        },
    })
}

/// So many records of a replay are in the target, and stay there.
///
/// # Errors
/// RESOURCE_NOT_FOUND if there is no such replay: its target is gone.
pub fn acknowledge(
    image: &MetadataImage,
    item: &str,
    target: TopicId,
    acknowledged: u64,
) -> Result<Decision<()>, Refusal> {
    let replay = known(image, item, target)?;
    if replay.replayed.is_some() || replay.acknowledged >= acknowledged {
        return Ok(Decision::unchanged(()));
    }
    let further = SalvageReplayImage {
        acknowledged,
        ..replay
    };
    Ok(Decision {
        records: vec![record_of(item, target, &further)],
        response: (),
    })
}

/// A replay is given up until somebody asks for it again; so many records are in the target.
///
/// # Errors
/// RESOURCE_NOT_FOUND if there is no such replay: its target is gone.
pub fn stop(
    image: &MetadataImage,
    item: &str,
    target: TopicId,
    acknowledged: u64,
) -> Result<Decision<()>, Refusal> {
    let replay = known(image, item, target)?;
    if replay.replayed.is_some() || replay.stopped {
        return Ok(Decision::unchanged(()));
    }
    let stopped = SalvageReplayImage {
        acknowledged: replay.acknowledged.max(acknowledged),
        stopped: true,
        ..replay
    };
    Ok(Decision {
        records: vec![record_of(item, target, &stopped)],
        response: (),
    })
}

/// The record of a replay that is not over.
fn record_of(item: &str, target: TopicId, replay: &SalvageReplayImage) -> MetadataRecord {
    MetadataRecord::SalvageReplay {
        item: item.to_owned(),
        target,
        partition: replay.partition,
        producer_id: replay.producer_id,
        records: replay.records,
        acknowledged: replay.acknowledged,
        stopped: replay.stopped,
    }
}

/// All records of a replay are in the target. The first one who says so is right.
///
/// # Errors
/// RESOURCE_NOT_FOUND if there is no such replay: its target is gone. INVALID_REQUEST if more were asked for.
pub fn finish(
    image: &MetadataImage,
    item: &str,
    target: TopicId,
    records: u64,
    at: Timestamp,
) -> Result<Decision<SalvageReplayedImage>, Refusal> {
    let replay = known(image, item, target)?;
    if let Some(replayed) = replay.replayed {
        return Ok(Decision::unchanged(replayed));
    }
    if records < replay.records {
        return Err(Refusal::new(
            ErrorCode::InvalidRequest,
            format!(
                "{records} records are replayed, and {} were asked for",
                replay.records
            ),
        ));
    }
    Ok(Decision {
        records: vec![MetadataRecord::SalvageReplayed {
            item: item.to_owned(),
            target,
            records,
            at,
        }],
        response: SalvageReplayedImage { records, at },
    })
}

fn known(
    image: &MetadataImage,
    item: &str,
    target: TopicId,
) -> Result<SalvageReplayImage, Refusal> {
    image.salvage_replay(item, target).ok_or_else(|| {
        Refusal::new(
            ErrorCode::ResourceNotFound,
            format!("{item} is not being replayed into that topic"),
        )
    })
}
