//! R12: below the lower of their high watermarks two replicas have the same history; at rest they are the same, record
//! by record.

use kuorum_protocol::{LeaderEpoch, Offset};

use super::{Checker, PartitionState, ReplicaState, State, Verdict};

#[derive(Debug, Default)]
pub struct LogMatching;

impl Checker for LogMatching {
    fn name(&self) -> &'static str {
        "log-matching"
    }

    fn on_state(&mut self, state: &State<'_>) -> Verdict {
        for partition in &state.partitions {
            for (index, one) in partition.replicas.iter().enumerate() {
                for other in &partition.replicas[index + 1..] {
                    if !one.lost && !other.lost {
                        matches_below_high_watermark(partition, one, other)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn at_rest(&mut self, state: &State<'_>) -> Verdict {
        self.on_state(state)?;
        for partition in &state.partitions {
            for (index, one) in partition.replicas.iter().enumerate() {
                for other in &partition.replicas[index + 1..] {
                    let start = one.log_start.max(other.log_start);
                    let from_start = |replica: &ReplicaState| {
                        replica
                            .records
                            .iter()
                            .filter(|(offset, _)| *offset >= start)
                            .copied()
                            .collect::<Vec<_>>()
                    };
                    let (mine, others) = (from_start(one), from_start(other));
                    if let Some((left, right)) =
                        mine.iter().zip(&others).find(|(left, right)| left != right)
                    {
                        return Err(format!(
                            "partition {}: broker {} has {left:?} where broker {} has {right:?}",
                            partition.number, one.broker, other.broker
                        ));
                    }
                    if mine.len() != others.len() {
                        return Err(format!(
                            "partition {}: broker {} ends at {}, broker {} at {}",
                            partition.number, one.broker, one.log_end, other.broker, other.log_end
                        ));
                    }
                }
            }
        }
        Ok(())
    }
}

fn matches_below_high_watermark(
    partition: &PartitionState<'_>,
    one: &ReplicaState,
    other: &ReplicaState,
) -> Verdict {
    let start = one
        .log_start
        .max(other.log_start)
        .max(partition.deleted_below);
    // A replica that has not yet come to the history of the last unclean election agrees with it only so far.
    let cuts = partition.committed.cuts();
    let end = [one, other]
        .iter()
        .map(|replica| {
            let newest = replica.epochs.last().map(|(epoch, _)| *epoch);
            let firm = cuts.firm_below(newest.unwrap_or(LeaderEpoch::UNKNOWN));
            replica.high_watermark.min(replica.log_end).min(firm)
        })
        .min()
        .unwrap_or_default();
    let boundaries = one
        .epochs
        .iter()
        .chain(&other.epochs)
        .map(|(_, boundary)| *boundary)
        .chain([start, Offset(end.0 - 1)])
        .filter(|offset| *offset >= start && *offset < end);
    for offset in boundaries {
        let (left, right) = (one.epoch_at(offset), other.epoch_at(offset));
        if left != right {
            return Err(format!(
                "partition {}: below both high watermarks, at offset {offset}, broker {} has epoch {left:?} and broker {} has {right:?}",
                partition.number, one.broker, other.broker
            ));
        }
    }
    Ok(())
}
