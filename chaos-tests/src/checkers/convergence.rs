//! R13, R29: once healed, every partition has a leader, all replicas in sync, the same end everywhere, and all of it
//! visible; no move is under way, and nobody has a log who is no replica.

use super::{Checker, State, Verdict};

#[derive(Debug, Default)]
pub struct Convergence;

impl Checker for Convergence {
    fn name(&self) -> &'static str {
        "convergence"
    }

    fn at_rest(&mut self, state: &State<'_>) -> Verdict {
        converged(state)
    }
}

/// Whether everything has come together, or what has not.
///
/// # Errors
/// The first thing that has not.
pub fn converged(state: &State<'_>) -> Verdict {
    for partition in &state.partitions {
        let number = partition.number;
        let decided = &partition.decided;
        let Some(leader) = decided.leader else {
            return Err(format!("partition {number} has no leader"));
        };
        if decided.is_reassigning() {
            return Err(format!(
                "partition {number} is still moving, from {:?} to {:?}",
                decided.original_replicas,
                decided.target_replicas()
            ));
        }
        if let Some(stray) = partition.strays.first() {
            return Err(format!(
                "partition {number}: broker {stray} has a log of it and is none of {:?}",
                decided.replicas
            ));
        }
        if decided.isr.len() != decided.replicas.len() {
            return Err(format!(
                "partition {number}: in sync are {:?} of {:?}",
                decided.isr, decided.replicas
            ));
        }
        let end = partition
            .replicas
            .iter()
            .find(|replica| replica.broker == leader)
            .map(|replica| replica.log_end);
        for replica in &partition.replicas {
            if !replica.alive {
                return Err(format!("broker {} is down", replica.broker));
            }
            if Some(replica.log_end) != end {
                return Err(format!(
                    "partition {number}: broker {} ends at {}, its leader {leader} at {end:?}",
                    replica.broker, replica.log_end
                ));
            }
            if replica.high_watermark != replica.log_end {
                return Err(format!(
                    "partition {number}: broker {} ends at {} and has the high watermark at {}",
                    replica.broker, replica.log_end, replica.high_watermark
                ));
            }
            let leads = replica
                .leading
                .as_ref()
                .is_some_and(|leading| leading.leader_epoch == decided.leader_epoch);
            if leads != (replica.broker == leader) {
                return Err(format!(
                    "partition {number}: {leader} was elected in epoch {}, and broker {} has {:?}",
                    decided.leader_epoch, replica.broker, replica.leading
                ));
            }
            if let Some(leading) = &replica.leading
                && (leading.pending || leading.partition_epoch != decided.partition_epoch)
            {
                return Err(format!(
                    "partition {number}: a change of the ISR is still on its way: {leading:?}"
                ));
            }
        }
    }
    Ok(())
}
