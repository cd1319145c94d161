//! What happened to a partition between two images of it.
//! Law: told from what it was and what it is, whatever the record between them states.

use std::collections::BTreeSet;

use kuorum_protocol::BrokerId;

use super::{EventKind, IsrChange};
use crate::image::PartitionImage;
use crate::record::LeaderRecoveryState;

/// What happened to a partition between two images of it.
pub(super) fn differences(before: &PartitionImage, after: &PartitionImage) -> Vec<EventKind> {
    let mut kinds = Vec::new();
    let moved = |partition: &PartitionImage| {
        !partition.adding_replicas.is_empty() || !partition.removing_replicas.is_empty()
    };
    let target_changed = before.adding_replicas != after.adding_replicas
        || before.removing_replicas != after.removing_replicas;
    if moved(after) && target_changed {
        kinds.push(EventKind::ReassignmentStarted {
            replicas: after.replicas.clone(),
            adding: after.adding_replicas.clone(),
            removing: after.removing_replicas.clone(),
        });
    }
    let new_epoch = after.leader_epoch != before.leader_epoch;
    let unclean = after.last_unclean_epoch != before.last_unclean_epoch;
    if after.leader != before.leader || new_epoch {
        kinds.push(EventKind::LeaderChanged {
            leader: after.leader,
            previous_leader: before.leader,
            leader_epoch: after.leader_epoch,
            previous_leader_epoch: before.leader_epoch,
            partition_epoch: after.partition_epoch,
            unclean,
        });
    }
    if unclean && let Some(leader) = after.leader {
        kinds.push(EventKind::UncleanElection {
            leader,
            leader_epoch: after.leader_epoch,
            lost_isr: before.isr.clone(),
            lost_elr: before.elr.clone(),
        });
    }
    isr_difference(before, after, &mut kinds);
    let recovered = |partition: &PartitionImage| {
        partition.leader_recovery_state == LeaderRecoveryState::Recovered
    };
    if recovered(after) && !recovered(before) {
        kinds.push(EventKind::LeaderRecovered {
            leader_epoch: after.leader_epoch,
        });
    }
    let replicas_changed = before.replicas != after.replicas;
    if !moved(after) && (moved(before) || replicas_changed) {
        let target_reached = before
            .adding_replicas
            .iter()
            .all(|replica| after.replicas.contains(replica))
            && !before
                .removing_replicas
                .iter()
                .any(|replica| after.replicas.contains(replica));
        let (replicas, previous_replicas) = (after.replicas.clone(), before.replicas.clone());
        kinds.push(match target_reached {
            true => EventKind::ReassignmentCompleted {
                replicas,
                previous_replicas,
            },
            false => EventKind::ReassignmentCancelled {
                replicas,
                previous_replicas,
            },
        });
    }
    kinds
}

fn isr_difference(before: &PartitionImage, after: &PartitionImage, kinds: &mut Vec<EventKind>) {
    let set = |brokers: &[BrokerId]| brokers.iter().copied().collect::<BTreeSet<_>>();
    let (was, is) = (set(&before.isr), set(&after.isr));
    let change = || IsrChange {
        isr: after.isr.clone(),
        previous_isr: before.isr.clone(),
        elr: after.elr.clone(),
        leader: after.leader,
        leader_epoch: after.leader_epoch,
        partition_epoch: after.partition_epoch,
    };
    if was == is {
        // An ISR in another order is the same ISR.
        if set(&before.elr) != set(&after.elr) {
            kinds.push(EventKind::ElrChanged {
                elr: after.elr.clone(),
                previous_elr: before.elr.clone(),
            });
        }
    } else if is.is_subset(&was) {
        kinds.push(EventKind::IsrShrunk(change()));
    } else if is.is_superset(&was) {
        kinds.push(EventKind::IsrExpanded(change()));
    } else {
        kinds.push(EventKind::IsrChanged(change()));
    }
}
