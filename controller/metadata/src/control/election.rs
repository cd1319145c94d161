//! Who leads a partition: one total function, and the change it means.
//! Law: without an unclean policy nobody outside ISR ∪ ELR is ever elected, and the ISR does not become empty here: the
//! last member keeps its place until it is back, or registers with a replica that is not intact.

use std::collections::BTreeMap;

use kuorum_protocol::{BrokerId, PartitionIndex, TopicId};

use super::heartbeats::Heartbeats;
use crate::image::{MetadataImage, PartitionImage, TopicImage};
use crate::record::{LeaderRecoveryState, MetadataRecord, PartitionChange};

/// What a replica's broker may do in an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Unfenced and heard from: it may lead.
    Active,
    /// Unfenced, but its stream broke or this controller has not heard from it yet: it keeps what it has and gets nothing.
    Suspect,
    /// Shutting down: it gives up whatever another can take over.
    Leaving,
    /// Fenced, and heard from all the same: it is starting. It is as good as out, except that nobody is elected
    /// uncleanly over its head.
    Returning,
    /// Fenced and silent, unknown, or its directory is offline.
    Out,
}

/// Whether a replica outside ISR ∪ ELR may lead when no other can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// No: the partition waits.
    Clean,
    /// Yes: records may be lost.
    Unclean,
}

/// What an election decided.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Elected {
    /// `None` when nobody may lead.
    pub leader: Option<BrokerId>,
    /// The ISR under that leader.
    pub isr: Vec<BrokerId>,
    /// The ELR under that leader.
    pub elr: Vec<BrokerId>,
    /// Whether the leader may lack records.
    pub unclean: bool,
}

/// Elects the leader of a partition, in this order: the present leader if it still may lead; the first active member of
/// the ISR in assignment order; with an empty ISR, the first active member of the ELR; a leader that is shutting down, if
/// nobody can take over; and, only under an unclean policy and when every member of the ISR and ELR is out, the first
/// active replica.
pub fn elect(
    partition: &PartitionImage,
    standing: impl Fn(BrokerId) -> Standing,
    policy: Policy,
) -> Elected {
    let is_active = |replica: &BrokerId| standing(*replica) == Standing::Active;
    let unchanged = |leader| Elected {
        leader,
        isr: partition.isr.clone(),
        elr: partition.elr.clone(),
        unclean: false,
    };

    let current = partition
        .leader
        .filter(|leader| partition.isr.contains(leader));
    match current.map(&standing) {
        Some(Standing::Active) => return under_leader(partition, current, &standing),
        Some(Standing::Suspect) => return unchanged(current),
        Some(Standing::Leaving | Standing::Returning | Standing::Out) | None => {}
    }

    let first_in = |eligible: &[BrokerId]| {
        let mut replicas = partition.replicas.iter().copied();
        replicas.find(|replica| eligible.contains(replica) && is_active(replica))
    };
    if let Some(leader) = first_in(&partition.isr) {
        return under_leader(partition, Some(leader), &standing);
    }
    if partition.isr.is_empty()
        && let Some(leader) = first_in(&partition.elr)
    {
        return Elected {
            leader: Some(leader),
            isr: vec![leader],
            elr: without(&partition.elr, leader),
            unclean: false,
        };
    }
    if current.map(&standing) == Some(Standing::Leaving) {
        return unchanged(current);
    }

    let mut known_good = partition.isr.iter().chain(&partition.elr);
    let all_out = known_good.all(|member| standing(*member) == Standing::Out);
    if policy == Policy::Unclean
        && all_out
        && let Some(leader) = first_in(&partition.replicas)
    {
        return Elected {
            leader: Some(leader),
            isr: vec![leader],
            elr: Vec::new(),
            unclean: true,
        };
    }
    unchanged(None)
}

/// The ISR once somebody live leads: who is out or leaving loses its place.
fn under_leader(
    partition: &PartitionImage,
    leader: Option<BrokerId>,
    standing: impl Fn(BrokerId) -> Standing,
) -> Elected {
    let keeps_place =
        |member: &BrokerId| matches!(standing(*member), Standing::Active | Standing::Suspect);
    Elected {
        leader,
        isr: partition.isr.iter().copied().filter(keeps_place).collect(),
        elr: partition.elr.clone(),
        unclean: false,
    }
}

fn without(members: &[BrokerId], gone: BrokerId) -> Vec<BrokerId> {
    members
        .iter()
        .copied()
        .filter(|member| *member != gone)
        .collect()
}

/// The record that turns a partition as it is into what was elected; `None` if that is how it is.
///
/// A change of leader raises the leader epoch, leaderless or not; every change raises the partition epoch.
pub fn change(
    topic_id: TopicId,
    index: PartitionIndex,
    partition: &PartitionImage,
    elected: &Elected,
    cause: &str,
) -> Option<PartitionChange> {
    let new_leader = elected.leader != partition.leader;
    let new_isr = elected.isr != partition.isr;
    let new_elr = elected.elr != partition.elr;
    if !new_leader && !new_isr && !new_elr {
        return None;
    }
    let leader_epoch = partition.leader_epoch.next();
    let led = elected.leader.is_some() && !elected.isr.is_empty();
    let forget_last_known = led && !partition.last_known_elr.is_empty();
    Some(PartitionChange {
        leader_epoch: new_leader.then_some(leader_epoch),
        leader: new_leader.then_some(elected.leader),
        isr: new_isr.then(|| elected.isr.clone()),
        elr: new_elr.then(|| elected.elr.clone()),
        last_known_elr: forget_last_known.then(Vec::new),
        leader_recovery_state: elected.unclean.then_some(LeaderRecoveryState::Recovering),
        last_unclean_epoch: elected.unclean.then_some(leader_epoch),
        ..PartitionChange::of(topic_id, index, partition.partition_epoch.next(), cause)
    })
}

/// Brings the partitions in line with who may lead now: the one path by which leaders and ISRs follow the brokers.
/// With `of`, only those of which that broker has a replica.
pub fn reconcile(
    image: &MetadataImage,
    soft: &Heartbeats,
    of: Option<BrokerId>,
    cause: &str,
) -> Vec<MetadataRecord> {
    let standings: BTreeMap<BrokerId, Standing> = image
        .brokers()
        .map(|broker| (broker.id, soft.standing(image, broker.id)))
        .collect();
    let standing = |id| standings.get(&id).copied().unwrap_or(Standing::Out);
    let mut records = Vec::new();
    for (topic, index, partition) in image.partitions() {
        if of.is_some_and(|broker| !partition.replicas.contains(&broker)) {
            continue;
        }
        let change = reconcile_partition(image, topic, index, partition, standing, cause);
        records.extend(change.map(MetadataRecord::PartitionChange));
    }
    records
}

/// The same for one partition; a replica in a directory that is offline is out whatever its broker says.
pub fn reconcile_partition(
    image: &MetadataImage,
    topic: &TopicImage,
    index: PartitionIndex,
    partition: &PartitionImage,
    standing: impl Fn(BrokerId) -> Standing,
    cause: &str,
) -> Option<PartitionChange> {
    let standing = |replica| standing_of_replica(image, partition, replica, &standing);
    let settled = partition
        .leader
        .is_some_and(|leader| partition.isr.contains(&leader))
        && partition
            .isr
            .iter()
            .all(|member| standing(*member) == Standing::Active);
    if settled {
        return None;
    }
    let elected = elect(partition, standing, policy_of(image, topic));
    change(topic.id, index, partition, &elected, cause)
}

/// A broker's standing for one of its replicas: with the directory offline it is out.
pub fn standing_of_replica(
    image: &MetadataImage,
    partition: &PartitionImage,
    replica: BrokerId,
    standing: impl Fn(BrokerId) -> Standing,
) -> Standing {
    let directory_is_offline = partition.directory(replica).is_some_and(|directory| {
        image
            .broker(replica)
            .is_some_and(|broker| !broker.directories.contains(&directory))
    });
    if directory_is_offline {
        Standing::Out
    } else {
        standing(replica)
    }
}

/// The policy a topic's configuration asks for, as of now.
pub fn policy_of(image: &MetadataImage, topic: &TopicImage) -> Policy {
    if image.unclean_election_allowed(&topic.name) {
        Policy::Unclean
    } else {
        Policy::Clean
    }
}
