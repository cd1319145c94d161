//! R11: no leader proposes a member that it knows to be fenced or shutting down, and none ever enters an ISR
//! (KIP-841).

use super::{Checker, Event, Verdict};

#[derive(Debug, Default)]
pub struct NoLeavingMember;

impl Checker for NoLeavingMember {
    fn name(&self) -> &'static str {
        "no-leaving-member"
    }

    fn on_event(&mut self, event: &Event) -> Verdict {
        match event {
            Event::IsrProposed {
                partition,
                leader,
                not_admissible,
            } if !not_admissible.is_empty() => Err(format!(
                "partition {partition}: leader {leader} proposes {not_admissible:?}, which it knows to be fenced or shutting down"
            )),
            Event::IsrChanged {
                partition,
                from,
                to,
                not_admissible,
                cause,
            } if !not_admissible.is_empty() => Err(format!(
                "partition {partition}: the ISR went from {from:?} to {to:?} ({cause}), and {not_admissible:?} are fenced or shutting down"
            )),
            _ => Ok(()),
        }
    }
}
