//! What idempotence knows of a producer is part of the log: a producer whose records were all acknowledged with acks=all
//! is never told that its sequence does not fit, whoever leads; unless an unclean election has given records up.

use std::collections::BTreeSet;

use super::{Checker, Event, PartitionNumber, Verdict};

#[derive(Debug, Default)]
pub struct SequencesAreKept {
    cut: BTreeSet<PartitionNumber>,
}

impl Checker for SequencesAreKept {
    fn name(&self) -> &'static str {
        "sequences-are-kept"
    }

    fn on_event(&mut self, event: &Event) -> Verdict {
        match event {
            Event::UncleanElection { partition, .. } => {
                self.cut.insert(*partition);
                Ok(())
            }
            Event::SequenceRefused {
                partition,
                client,
                all: true,
                code,
            } if !self.cut.contains(partition) => Err(format!(
                "partition {partition}: producer {client} was refused with {code:?}"
            )),
            _ => Ok(()),
        }
    }
}
