//! R2: a leader's high watermark never falls, and no client is ever told an earlier end than before.

use std::collections::BTreeMap;

use kuorum_protocol::Offset;

use super::{Checker, Event, PartitionNumber, Verdict};

#[derive(Debug, Default)]
pub struct HighWatermarkMonotone {
    told: BTreeMap<(usize, PartitionNumber), Offset>,
}

impl Checker for HighWatermarkMonotone {
    fn name(&self) -> &'static str {
        "high-watermark-monotone"
    }

    fn on_event(&mut self, event: &Event) -> Verdict {
        match event {
            Event::HighWatermark {
                partition,
                broker,
                leader_epoch,
                from,
                to,
                ..
            } if to < from => Err(format!(
                "partition {partition}: broker {broker}, leader in epoch {leader_epoch}, went back from {from} to {to}"
            )),
            Event::UncleanElection {
                partition, keeps, ..
            } => {
                let told = self.told.iter_mut();
                for (_, told) in told.filter(|((_, number), _)| number == partition) {
                    *told = (*told).min(*keeps);
                }
                Ok(())
            }
            Event::Latest {
                partition,
                client,
                offset,
                ..
            } => {
                let told = self.told.entry((*client, *partition)).or_default();
                if offset < told {
                    return Err(format!(
                        "partition {partition}: client {client} was told that it ends at {told}, and then at {offset}"
                    ));
                }
                *told = *offset;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
