//! R29, R30: a replica leaves with a move only when all that are to stay are in sync, or when the move is taken back to the
//! replicas there were, one of whom has all there is. Either way it leaves with a new leader epoch, and wholly. Who is in
//! sync and shuts down may leave the ISR in that very moment: it has all there is.

use kuorum_metadata::image::PartitionImage;
use kuorum_protocol::BrokerId;

use super::{Checker, Event, Verdict};

#[derive(Debug, Default)]
pub struct MovesGiveNothingUp;

impl Checker for MovesGiveNothingUp {
    fn name(&self) -> &'static str {
        "moves-give-nothing-up"
    }

    fn on_event(&mut self, event: &Event) -> Verdict {
        let Event::ReplicasChanged {
            partition,
            before,
            after,
            cancelled,
            may_lose,
        } = event
        else {
            return Ok(());
        };
        let mut leaves = before.replicas.iter();
        if leaves.all(|replica| after.replicas.contains(replica)) {
            return Ok(());
        }
        judge(before, after, *cancelled, *may_lose).map_err(|what| {
            format!(
                "partition {partition} went from {:?} (to be {:?}) to {:?} with ISR {:?}: {what}",
                before.replicas,
                before.target_replicas(),
                after.replicas,
                after.isr
            )
        })
    }
}

/// Some of the replicas have left.
fn judge(
    before: &PartitionImage,
    after: &PartitionImage,
    cancelled: bool,
    may_lose: bool,
) -> Verdict {
    if after.is_reassigning() {
        return Err("some have left, and the move goes on".to_owned());
    }
    if after.leader_epoch <= before.leader_epoch {
        return Err("the leader epoch is the same".to_owned());
    }
    let counted = after.isr.iter().chain(&after.elr).chain(&after.leader);
    if let Some(gone) = counted.copied().find(|id| !after.replicas.contains(id)) {
        return Err(format!("broker {gone} has left and still counts"));
    }
    if cancelled {
        if after.replicas != before.original_replicas {
            return Err(format!("it had begun at {:?}", before.original_replicas));
        }
        let nobody_is_complete = after.isr.is_empty() && after.elr.is_empty();
        return match nobody_is_complete && !may_lose {
            true => Err("none of those who stay has all there is".to_owned()),
            false => Ok(()),
        };
    }
    let missing: Vec<BrokerId> = after
        .replicas
        .iter()
        .copied()
        .filter(|replica| !after.isr.contains(replica) && !before.isr.contains(replica))
        .collect();
    match missing.is_empty() {
        true => Ok(()),
        false => Err(format!("{missing:?} are not in sync")),
    }
}
