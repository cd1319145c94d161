//! R1: what was acknowledged with acks=all is in every replica at the end, at the offset it was acknowledged with;
//! an idempotent producer's records are there once and in the order it sent them.

use std::collections::BTreeMap;

use kuorum_protocol::Offset;

use super::{Checker, Event, PartitionNumber, State, Verdict};

#[derive(Debug, Default)]
pub struct AckedIsDurable {
    acked: BTreeMap<(PartitionNumber, Offset), Ack>,
}

#[derive(Debug)]
struct Ack {
    value: u64,
    producer: Option<u64>,
}

impl Checker for AckedIsDurable {
    fn name(&self) -> &'static str {
        "acked-is-durable"
    }

    fn on_event(&mut self, event: &Event) -> Verdict {
        if let Event::UncleanElection {
            partition, keeps, ..
        } = event
        {
            self.acked
                .retain(|(number, offset), _| number != partition || offset < keeps);
            return Ok(());
        }
        let Event::Acked {
            partition,
            producer,
            value,
            offset,
            all: true,
            ..
        } = event
        else {
            return Ok(());
        };
        let ack = Ack {
            value: *value,
            producer: *producer,
        };
        match self.acked.insert((*partition, *offset), ack) {
            Some(before) if before.value != *value => Err(format!(
                "partition {partition}: offset {offset} was acknowledged for {} and for {value}",
                before.value
            )),
            _ => Ok(()),
        }
    }

    fn at_rest(&mut self, state: &State<'_>) -> Verdict {
        for partition in &state.partitions {
            for replica in &partition.replicas {
                let held: BTreeMap<Offset, u64> = replica
                    .records
                    .iter()
                    .map(|(offset, record)| (*offset, record.value))
                    .collect();
                let mut places: BTreeMap<u64, Offset> = BTreeMap::new();
                for (offset, value) in &held {
                    if let Some(other) = places.insert(*value, *offset)
                        && self
                            .acked
                            .values()
                            .any(|ack| ack.value == *value && ack.producer.is_some())
                    {
                        return Err(format!(
                            "partition {}, broker {}: {value} lies at {other} and at {offset}",
                            partition.number, replica.broker
                        ));
                    }
                }
                let mut last: BTreeMap<u64, (u64, Offset)> = BTreeMap::new();
                let acked = self.acked.range(
                    (partition.number, replica.log_start)..(partition.number + 1, Offset(0)),
                );
                for ((_, offset), ack) in acked {
                    if held.get(offset) != Some(&ack.value) {
                        return Err(format!(
                            "partition {}, broker {}: {} was acknowledged at offset {offset}, where there is {:?} now",
                            partition.number,
                            replica.broker,
                            ack.value,
                            held.get(offset)
                        ));
                    }
                    let Some(producer) = ack.producer else {
                        continue;
                    };
                    if let Some((value, earlier)) = last.insert(producer, (ack.value, *offset))
                        && value > ack.value
                    {
                        return Err(format!(
                            "partition {}: producer {producer} sent {} before {value}, which lies first, at {earlier}",
                            partition.number, ack.value
                        ));
                    }
                }
            }
        }
        Ok(())
    }
}
