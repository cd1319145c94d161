//! R11, R25: a broker is let go only when it leads nothing and no live leader counts on it; in a healthy cluster that is
//! soon, and nobody who writes has to wait for it.

use super::{Checker, Event, Verdict};

#[derive(Debug, Default)]
pub struct ShutdownHandsOver;

impl Checker for ShutdownHandsOver {
    fn name(&self) -> &'static str {
        "shutdown-hands-over"
    }

    fn on_event(&mut self, event: &Event) -> Verdict {
        match event {
            Event::LeaveGiven {
                broker,
                leads,
                in_sync,
            } if !leads.is_empty() || !in_sync.is_empty() => Err(format!(
                "broker {broker} was let go, still leads {leads:?} and is in sync in {in_sync:?}"
            )),
            Event::ShutdownProbe {
                broker,
                waited,
                longest_pause,
                allowed,
            } if waited.is_none_or(|waited| waited > *allowed) || longest_pause > allowed => {
                Err(format!(
                    "broker {broker} asked to shut down and was let go after {waited:?}; a produce waited {longest_pause:?}; {allowed:?} is allowed"
                ))
            }
            _ => Ok(()),
        }
    }
}
