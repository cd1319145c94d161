//! Elections that somebody asks for: back to the preferred leader, or of a leader that may lack records.
//! Law: a preferred election never leaves the ISR. An unclean one only ever replaces "nobody".

use kuorum_protocol::BrokerId;
use kuorum_protocol::error_code::ErrorCode;

use super::command::{ElectLeaders, ElectLeadersResult, ElectionType, Outcome};
use super::election::{self, Elected, Policy, Standing, Terms, UNCLEAN_ELECTION};
use super::heartbeats::Heartbeats;
use super::{Decision, Refusal, topics};
use crate::image::{MetadataImage, PartitionImage, TopicImage};
use crate::mutation::{self, Mutation};
use crate::record::{MetadataRecord, PartitionChange};

/// Elects the leaders that were asked for. Asked for all partitions, those that need nothing are not answered.
pub fn elect(
    image: &MetadataImage,
    soft: &Heartbeats,
    request: &ElectLeaders,
) -> Decision<Vec<ElectLeadersResult>> {
    let mut after = image.clone();
    let mut records = Vec::new();
    let mut results = Vec::new();
    let all = request.partitions.is_none();
    let wanted = request.partitions.clone().unwrap_or_else(|| {
        let partitions = image.partitions();
        partitions
            .map(|(topic, index, _)| (topic.name.clone(), index))
            .collect()
    });
    for (name, index) in wanted {
        let decided = decide(&after, soft, request.election, &name, index);
        let outcome = match decided {
            Ok(change) => {
                let record = MetadataRecord::PartitionChange(change);
                after.apply_records(image.offset(), std::slice::from_ref(&record));
                records.push(record);
                Outcome::ok()
            }
            Err(refusal) if all && refusal.code == ErrorCode::ElectionNotNeeded => continue,
            Err(refusal) => refusal.into(),
        };
        results.push(ElectLeadersResult {
            topic: name,
            partition: index,
            outcome,
        });
    }
    Decision {
        records,
        response: results,
    }
}

fn decide(
    image: &MetadataImage,
    soft: &Heartbeats,
    kind: ElectionType,
    name: &str,
    index: i32,
) -> Result<PartitionChange, Refusal> {
    let (topic, partition) = topics::partition(image, name, index)?;
    match kind {
        ElectionType::Preferred => preferred(image, soft, topic, index, partition),
        ElectionType::Unclean => unclean(image, soft, topic, index, partition),
    }
}

fn preferred(
    image: &MetadataImage,
    soft: &Heartbeats,
    topic: &TopicImage,
    index: i32,
    partition: &PartitionImage,
) -> Result<PartitionChange, Refusal> {
    let preferred = partition.preferred_leader();
    if preferred == partition.leader {
        return Err(Refusal::new(
            ErrorCode::ElectionNotNeeded,
            "the preferred leader leads",
        ));
    }
    let standing = standing(image, soft, partition);
    let candidate = preferred
        .filter(|replica| {
            partition.isr.contains(replica) || mutation::off(Mutation::PreferredOutsideIsr)
        })
        .filter(|replica| standing(*replica) == Standing::Active);
    let Some(leader) = candidate else {
        return Err(Refusal::new(
            ErrorCode::PreferredLeaderNotAvailable,
            "the preferred leader is not in sync, not alive, or being drained",
        ));
    };
    // As if the present leader had gone, except that it keeps its place in the ISR.
    let elected = Elected {
        leader: Some(leader),
        isr: partition.isr.clone(),
        elr: partition.elr.clone(),
        unclean: false,
    };
    Ok(
        election::change(topic.id, index, partition, &elected, "preferred election")
            .expect("another leader is a change"),
    )
}

fn unclean(
    image: &MetadataImage,
    soft: &Heartbeats,
    topic: &TopicImage,
    index: i32,
    partition: &PartitionImage,
) -> Result<PartitionChange, Refusal> {
    if partition.leader.is_some() {
        return Err(Refusal::new(
            ErrorCode::ElectionNotNeeded,
            "the partition has a leader",
        ));
    }
    let terms = Terms {
        policy: Policy::Unclean,
        ..Terms::of(image, topic, partition)
    };
    let elected = election::elect(partition, standing(image, soft, partition), terms);
    election::change(topic.id, index, partition, &elected, UNCLEAN_ELECTION).ok_or_else(|| {
        Refusal::new(
            ErrorCode::EligibleLeadersNotAvailable,
            "no replica may lead: none is alive, or one that is in sync is just returning",
        )
    })
}

/// Gives leadership back where somebody else leads although the preferred leader could, in at most `limit` partitions;
/// answers how many.
pub fn rebalance(image: &MetadataImage, soft: &Heartbeats, limit: usize) -> Decision<usize> {
    let records: Vec<MetadataRecord> = image
        .partitions()
        .filter(|(_, _, partition)| partition.leader.is_some())
        .filter_map(|(topic, index, partition)| {
            preferred(image, soft, topic, index, partition).ok()
        })
        .take(limit)
        .map(MetadataRecord::PartitionChange)
        .collect();
    Decision {
        response: records.len(),
        records,
    }
}

fn standing<'a>(
    image: &'a MetadataImage,
    soft: &'a Heartbeats,
    partition: &'a PartitionImage,
) -> impl Fn(BrokerId) -> Standing + 'a {
    move |replica| {
        election::standing_of_replica(image, partition, replica, |id| soft.standing(image, id))
    }
}
