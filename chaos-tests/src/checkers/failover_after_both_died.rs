//! R27: when a leader and the active controller die together, the next controller misses the broker all the same, and
//! somebody takes over.

use super::{Checker, Event, Verdict};

#[derive(Debug, Default)]
pub struct FailoverAfterBothDied;

impl Checker for FailoverAfterBothDied {
    fn name(&self) -> &'static str {
        "failover-after-both-died"
    }

    fn on_event(&mut self, event: &Event) -> Verdict {
        match event {
            Event::FailoverProbe {
                partition,
                waited,
                allowed,
            } if waited.is_none_or(|waited| waited > *allowed) => Err(format!(
                "partition {partition}: its leader and the active controller died, and somebody took over after {waited:?}; {allowed:?} is allowed"
            )),
            _ => Ok(()),
        }
    }
}
