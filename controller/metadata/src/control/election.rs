//! Who leads a partition: one total function, and the change it means.
//! Law: without an unclean policy nobody outside ISR ∪ ELR is ever elected. Everybody in ISR ∪ ELR has everything below
//! the high watermark: who leaves the ISR while fewer than min.insync.replicas stay in it goes to the ELR, and while the
//! ELR is not empty its leader's high watermark stands still. The ISR does not become empty here: the last member keeps
//! its place until it is back, or registers with a replica that is not intact.

use std::collections::BTreeMap;

use kuorum_protocol::{BrokerId, PartitionIndex, TopicId};

use crate::image::{MetadataImage, PartitionImage, TopicImage};
use crate::mutation::{self, Mutation};
use crate::record::{LeaderRecoveryState, MetadataRecord, PartitionChange};

/// How the cause of every unclean election begins.
pub const UNCLEAN_ELECTION: &str = "unclean election";

/// What a replica's broker may do in an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Unfenced and heard from: it may lead.
    Active,
    /// As active, but leadership is to be taken from it: it leads only what nobody else may lead.
    Draining,
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

/// What is in force for a partition when its leader is elected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// What may be done when nobody in ISR ∪ ELR can lead.
    pub policy: Policy,
    /// `min.insync.replicas`, but never more than there are replicas.
    pub min_isr: usize,
}

impl Terms {
    /// What is in force now.
    pub fn of(image: &MetadataImage, topic: &TopicImage, partition: &PartitionImage) -> Self {
        Self {
            policy: policy_of(image, topic),
            min_isr: effective_min_isr(image, topic, partition),
        }
    }
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

/// Elects the leader of a partition. The first of these that there is, each time in assignment order:
///
/// 1. the present leader, if it still may lead;
/// 2. an active member of the ISR;
/// 3. the present leader, if it is being drained or is shutting down. A member of the ELR would lead as safely, but
///    without what was written since with less than acks=all: it catches up first, and takes over from the ISR;
/// 4. an active member of the ELR: the members of the ISR are out, and what the ELR has is complete;
/// 5. a member of the ISR, then of the ELR, that is being drained;
/// 6. only under an unclean policy, and when every member of the ISR and ELR is out: the replica that was the last to
///    lose its place in them, if it is active, or else any active replica.
pub fn elect(
    partition: &PartitionImage,
    standing: impl Fn(BrokerId) -> Standing,
    terms: Terms,
) -> Elected {
    let unchanged = |leader: Option<BrokerId>| Elected {
        leader,
        isr: partition.isr.clone(),
        elr: match leader {
            Some(_) => elr_beside(partition, &partition.isr, terms.min_isr),
            None => partition.elr.clone(),
        },
        unclean: false,
    };
    let first_in = |eligible: &[BrokerId], wanted: Standing| {
        let mut replicas = partition.replicas.iter().copied();
        replicas.find(|replica| eligible.contains(replica) && standing(*replica) == wanted)
    };
    let led_by = |leader| under_leader(partition, leader, &standing, terms.min_isr);

    let current = partition
        .leader
        .filter(|leader| partition.isr.contains(leader));
    let current_standing = current.map(&standing);
    match (current, current_standing) {
        (Some(leader), Some(Standing::Active)) => return led_by(leader),
        (_, Some(Standing::Suspect)) => return unchanged(current),
        (_, Some(Standing::Leaving)) if mutation::off(Mutation::LeavingKeepsLeading) => {
            return unchanged(current);
        }
        _ => {}
    }
    if let Some(leader) = first_in(&partition.isr, Standing::Active) {
        return led_by(leader);
    }
    match (current, current_standing) {
        (Some(leader), Some(Standing::Draining)) => return led_by(leader),
        (Some(leader), Some(Standing::Leaving)) => {
            if let Some(drained) = first_in(&partition.isr, Standing::Draining) {
                return led_by(drained);
            }
            if mutation::off(Mutation::LeavingLeaderKeepsTheDead) {
                return unchanged(current);
            }
            // It goes on alone: with members that are out in its ISR nobody else could ever join, and take over.
            let mut isr = partition.isr.clone();
            isr.retain(|member| *member == leader || standing(*member) == Standing::Suspect);
            return Elected {
                leader: current,
                elr: elr_beside(partition, &isr, terms.min_isr),
                isr,
                unclean: false,
            };
        }
        _ => {}
    }
    let complete = first_in(&partition.elr, Standing::Active)
        .or_else(|| first_in(&partition.isr, Standing::Draining))
        .or_else(|| first_in(&partition.elr, Standing::Draining));
    if let Some(leader) = complete {
        return led_by(leader);
    }

    let mut complete = partition.isr.iter().chain(&partition.elr);
    let all_out = complete.all(|member| standing(*member) == Standing::Out);
    if terms.policy == Policy::Unclean && all_out {
        let mut last_known = partition.last_known_elr.iter().rev().copied();
        let leader = last_known
            .find(|replica| {
                standing(*replica) == Standing::Active && partition.replicas.contains(replica)
            })
            .or_else(|| first_in(&partition.replicas, Standing::Active))
            .or_else(|| first_in(&partition.replicas, Standing::Draining));
        if let Some(leader) = leader {
            return Elected {
                leader: Some(leader),
                isr: vec![leader],
                elr: Vec::new(),
                unclean: true,
            };
        }
    }
    unchanged(None)
}

/// The ISR and ELR once somebody of them leads: who is out or leaving loses its place in the ISR.
fn under_leader(
    partition: &PartitionImage,
    leader: BrokerId,
    standing: impl Fn(BrokerId) -> Standing,
    min_isr: usize,
) -> Elected {
    let keeps_place = |member: &BrokerId| {
        matches!(
            standing(*member),
            Standing::Active | Standing::Draining | Standing::Suspect
        )
    };
    let mut isr: Vec<BrokerId> = partition.isr.iter().copied().filter(keeps_place).collect();
    if !isr.contains(&leader) {
        isr.insert(0, leader);
    }
    Elected {
        leader: Some(leader),
        elr: elr_beside(partition, &isr, min_isr),
        isr,
        unclean: false,
    }
}

/// The ELR beside a new ISR (KIP-966): nobody once enough are in sync, since from then on the high watermark moves
/// without the others; before that everybody who was in the ISR or ELR, in assignment order.
pub fn elr_beside(partition: &PartitionImage, isr: &[BrokerId], min_isr: usize) -> Vec<BrokerId> {
    if isr.len() >= min_isr {
        return Vec::new();
    }
    let was_complete =
        |replica: &BrokerId| partition.isr.contains(replica) || partition.elr.contains(replica);
    partition
        .replicas
        .iter()
        .copied()
        .filter(|replica| was_complete(replica) && !isr.contains(replica))
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
    let forget_last_known = elected.leader.is_some() && !partition.last_known_elr.is_empty();
    Some(PartitionChange {
        leader_epoch: new_leader.then_some(leader_epoch),
        leader: new_leader.then_some(elected.leader),
        isr: new_isr.then(|| elected.isr.clone()),
        elr: new_elr.then(|| elected.elr.clone()),
        last_known_elr: forget_last_known.then(Vec::new),
        leader_recovery_state: elected.unclean.then_some(LeaderRecoveryState::Recovering),
        last_unclean_epoch: elected.unclean.then_some(leader_epoch),
        ..PartitionChange::of(
            topic_id,
            index,
            partition.partition_epoch.next(),
            match elected.unclean {
                // Nobody asked for it but the topic's setting.
                true if cause != UNCLEAN_ELECTION => {
                    format!("{UNCLEAN_ELECTION}, which the topic allows: {cause}")
                }
                _ => cause.to_owned(),
            },
        )
    })
}

/// Brings the partitions in line with who may lead now: the one path by which leaders and ISRs follow the brokers.
/// With `of`, only those of which that broker has a replica.
pub fn reconcile(
    image: &MetadataImage,
    standing: impl Fn(BrokerId) -> Standing,
    of: Option<BrokerId>,
    cause: &str,
) -> Vec<MetadataRecord> {
    let standings: BTreeMap<BrokerId, Standing> = image
        .brokers()
        .map(|broker| (broker.id, standing(broker.id)))
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
    let leader_stays = partition.leader.is_some_and(|leader| {
        partition.isr.contains(&leader) && standing(leader) == Standing::Active
    });
    let members_stay = partition
        .isr
        .iter()
        .all(|member| matches!(standing(*member), Standing::Active | Standing::Draining));
    // The minimum may have been lowered, or there are fewer replicas than there were.
    let elr_stays = partition.elr.is_empty()
        || partition.isr.len() < effective_min_isr(image, topic, partition);
    if leader_stays && members_stay && elr_stays {
        return None;
    }
    let elected = elect(partition, standing, Terms::of(image, topic, partition));
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
    if image.unclean_election_allowed(&topic.name)
        || mutation::off(Mutation::UncleanWhateverThePolicy)
    {
        Policy::Unclean
    } else {
        Policy::Clean
    }
}

/// How many replicas of a partition must be in sync for the high watermark to move: never more than there are.
pub fn effective_min_isr(
    image: &MetadataImage,
    topic: &TopicImage,
    partition: &PartitionImage,
) -> usize {
    image
        .min_insync_replicas(&topic.name)
        .min(partition.replication_factor())
}
