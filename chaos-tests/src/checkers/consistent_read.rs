//! R17: what was visible at an offset is what is visible there for ever, whoever leads and whoever reads; as far as
//! unclean elections have kept it.

use std::collections::BTreeMap;

use kuorum_protocol::Offset;

use super::{Checker, Cuts, Event, PartitionNumber, State, Verdict};

#[derive(Debug, Default)]
pub struct ConsistentRead {
    seen: BTreeMap<(PartitionNumber, Offset), u64>,
    cuts: BTreeMap<PartitionNumber, Cuts>,
}

impl Checker for ConsistentRead {
    fn name(&self) -> &'static str {
        "consistent-read"
    }

    fn on_event(&mut self, event: &Event) -> Verdict {
        match event {
            Event::Read {
                partition,
                broker,
                offset,
                value,
                ..
            } => self.see(*partition, *offset, *value, *broker),
            Event::Committed {
                partition,
                broker,
                offset,
                record,
                ..
            } => self.see(*partition, *offset, record.value, *broker),
            Event::UncleanElection {
                partition,
                leader_epoch,
                keeps,
                ..
            } => {
                self.seen
                    .retain(|(number, offset), _| number != partition || offset < keeps);
                let cuts = self.cuts.entry(*partition).or_default();
                cuts.add(*leader_epoch, *keeps);
                Ok(())
            }
            Event::OutOfRange {
                partition,
                broker,
                position,
                log_start,
            } if self
                .cuts
                .get(partition)
                .is_none_or(|cuts| *position <= cuts.shared_by_all()) =>
            {
                Err(format!(
                    "partition {partition}: a consumer at {position} was told by broker {broker} that it is out of range, and the log starts at {log_start}"
                ))
            }
            _ => Ok(()),
        }
    }

    fn at_rest(&mut self, state: &State<'_>) -> Verdict {
        for partition in &state.partitions {
            for replica in &partition.replicas {
                for (offset, record) in &replica.records {
                    if let Some(value) = self.seen.get(&(partition.number, *offset))
                        && *value != record.value
                    {
                        return Err(format!(
                            "partition {}, broker {}: offset {offset} was visible as {value} and is {}",
                            partition.number, replica.broker, record.value
                        ));
                    }
                }
                let beyond = self
                    .seen
                    .range((partition.number, replica.log_end)..(partition.number + 1, Offset(0)))
                    .next();
                if let Some(((_, offset), value)) = beyond {
                    return Err(format!(
                        "partition {}, broker {}: {value} was visible at offset {offset}, and the log ends at {}",
                        partition.number, replica.broker, replica.log_end
                    ));
                }
            }
        }
        Ok(())
    }
}

impl ConsistentRead {
    fn see(
        &mut self,
        partition: PartitionNumber,
        offset: Offset,
        value: u64,
        broker: kuorum_protocol::BrokerId,
    ) -> Verdict {
        match self.seen.insert((partition, offset), value) {
            Some(before) if before != value => Err(format!(
                "partition {partition}: offset {offset} was {before}, and is {value} at broker {broker}"
            )),
            _ => Ok(()),
        }
    }
}
