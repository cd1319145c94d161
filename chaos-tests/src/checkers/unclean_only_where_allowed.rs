//! R18, R19, R20: a leader that may lack records is elected only where the topic's own policy, or somebody by hand, says
//! so.

use super::{Checker, Event, Verdict};

#[derive(Debug, Default)]
pub struct UncleanOnlyWhereAllowed;

impl Checker for UncleanOnlyWhereAllowed {
    fn name(&self) -> &'static str {
        "unclean-only-where-allowed"
    }

    fn on_event(&mut self, event: &Event) -> Verdict {
        match event {
            Event::UncleanElection {
                partition,
                leader,
                leader_epoch,
                allowed: false,
                ..
            } => Err(format!(
                "partition {partition}: {leader} was elected uncleanly in epoch {leader_epoch}, which nobody had allowed"
            )),
            _ => Ok(()),
        }
    }
}
