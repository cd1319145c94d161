//! R17, R19: a consumer that compares epochs (KIP-320) never holds other records than the partition does without having
//! been told that what it had read was cut off; and it is never led past any.

use std::collections::BTreeMap;

use kuorum_protocol::Offset;

use super::{Checker, Event, PartitionNumber, State, Verdict};

#[derive(Debug, Default)]
pub struct ReadersAreTold {
    held: BTreeMap<(PartitionNumber, usize), BTreeMap<Offset, u64>>,
}

impl Checker for ReadersAreTold {
    fn name(&self) -> &'static str {
        "readers-are-told"
    }

    fn sees_abandoned(&self) -> bool {
        true
    }

    fn on_event(&mut self, event: &Event) -> Verdict {
        match event {
            Event::Read {
                partition,
                broker,
                offset,
                value,
                consumer: Some(consumer),
                ..
            } => {
                let held = self.held.entry((*partition, *consumer)).or_default();
                match held.insert(*offset, *value) {
                    Some(before) if before != *value => Err(format!(
                        "partition {partition}: consumer {consumer} had read {before} at offset {offset}, and reads {value} there from broker {broker}, without a word"
                    )),
                    _ => Ok(()),
                }
            }
            Event::CutTold {
                partition,
                consumer,
                to,
            } => {
                let held = self.held.entry((*partition, *consumer)).or_default();
                held.split_off(to);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn at_rest(&mut self, state: &State<'_>) -> Verdict {
        for partition in &state.partitions {
            let number = partition.number;
            for replica in &partition.replicas {
                let readers = self
                    .held
                    .range((number, 0)..(number + 1, 0))
                    .map(|((_, consumer), held)| (consumer, held));
                for (consumer, held) in readers {
                    let beyond = held.range(replica.log_end..).next();
                    if let Some((offset, value)) = beyond {
                        return Err(format!(
                            "partition {number}: consumer {consumer} holds {value} at offset {offset}, where broker {} has nothing, and was never told",
                            replica.broker
                        ));
                    }
                    for (offset, record) in &replica.records {
                        let missing_is_fine =
                            *offset < partition.deleted_below || *offset < replica.log_start;
                        match held.get(offset) {
                            Some(value) if *value == record.value => {}
                            None if missing_is_fine => {}
                            other => {
                                return Err(format!(
                                    "partition {number}: consumer {consumer} holds {other:?} at offset {offset}, where broker {} has {}, and was never told",
                                    replica.broker, record.value
                                ));
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }
}
