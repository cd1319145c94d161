//! R9: while nothing is written and nothing is broken, no ISR changes and nobody takes over.

use super::{Checker, Event, Verdict};

#[derive(Debug, Default)]
pub struct IdleNoFlap {
    quiet: bool,
}

impl Checker for IdleNoFlap {
    fn name(&self) -> &'static str {
        "idle-no-flap"
    }

    fn on_event(&mut self, event: &Event) -> Verdict {
        match event {
            Event::Quiet(quiet) => {
                self.quiet = *quiet;
                Ok(())
            }
            Event::IsrChanged {
                partition,
                from,
                to,
                cause,
                ..
            } if self.quiet => Err(format!(
                "partition {partition}: the ISR went from {from:?} to {to:?} ({cause}) while nothing happened"
            )),
            Event::Led {
                partition,
                broker,
                leader_epoch,
                ..
            } if self.quiet => Err(format!(
                "partition {partition}: broker {broker} took over in epoch {leader_epoch} while nothing happened"
            )),
            _ => Ok(()),
        }
    }
}
