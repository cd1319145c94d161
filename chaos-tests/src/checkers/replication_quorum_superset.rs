//! Whoever the controllers may elect is someone the current leader waits for: the leader's maximal ISR holds the
//! decided ISR and ELR.

use super::{Checker, State, Verdict};

#[derive(Debug, Default)]
pub struct ReplicationQuorumSuperset;

impl Checker for ReplicationQuorumSuperset {
    fn name(&self) -> &'static str {
        "replication-quorum-superset"
    }

    fn on_state(&mut self, state: &State<'_>) -> Verdict {
        for partition in &state.partitions {
            let decided = &partition.decided;
            if decided.isr.len() < partition.min_isr {
                continue;
            }
            for replica in &partition.replicas {
                let Some(leading) = replica
                    .leading
                    .as_ref()
                    .filter(|leading| leading.leader_epoch == decided.leader_epoch)
                else {
                    continue;
                };
                let electable = decided.isr.iter().chain(&decided.elr);
                if let Some(missing) = electable
                    .copied()
                    .find(|broker| !leading.maximal.contains(broker))
                {
                    return Err(format!(
                        "partition {}: broker {missing} may be elected, and leader {} in epoch {} waits only for {:?}",
                        partition.number, replica.broker, leading.leader_epoch, leading.maximal
                    ));
                }
            }
        }
        Ok(())
    }
}
