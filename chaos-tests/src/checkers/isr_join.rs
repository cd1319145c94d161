//! R6, R7 and leader completeness: whoever is in the ISR or ELR, and so may be elected, has every record that was ever
//! visible, as durably as it counts, with the history it was visible with.

use kuorum_protocol::Offset;

use super::{Checker, PartitionState, ReplicaState, State, Verdict};

#[derive(Debug, Default)]
pub struct IsrJoin;

impl Checker for IsrJoin {
    fn name(&self) -> &'static str {
        "isr-join"
    }

    fn on_state(&mut self, state: &State<'_>) -> Verdict {
        for partition in &state.partitions {
            let candidates = partition.decided.isr.iter().chain(&partition.decided.elr);
            for candidate in candidates {
                let replica = partition
                    .replicas
                    .iter()
                    .find(|replica| replica.broker == *candidate);
                if let Some(replica) = replica.filter(|replica| !replica.lost) {
                    has_all(partition, replica)?;
                }
            }
        }
        Ok(())
    }
}

fn has_all(partition: &PartitionState<'_>, replica: &ReplicaState) -> Verdict {
    let number = partition.number;
    let broker = replica.broker;
    let isr = &partition.decided.isr;
    let end = partition.committed.end();
    if replica.durable_end < end {
        return Err(format!(
            "partition {number}: broker {broker} may be elected (ISR {isr:?}) with records up to {}, and {end} was visible",
            replica.durable_end
        ));
    }
    let epochs = partition.committed.epochs();
    for (index, (epoch, start)) in epochs.iter().enumerate() {
        let next = epochs.get(index + 1).map_or(end, |(_, start)| *start);
        for offset in [*start, Offset(next.0 - 1)] {
            let kept = offset >= replica.log_start && offset >= partition.deleted_below;
            if kept && replica.epoch_at(offset) != Some(*epoch) {
                return Err(format!(
                    "partition {number}: broker {broker} may be elected (ISR {isr:?}) and has epoch {:?} at offset {offset}, where epoch {epoch} was visible",
                    replica.epoch_at(offset)
                ));
            }
        }
    }
    Ok(())
}
