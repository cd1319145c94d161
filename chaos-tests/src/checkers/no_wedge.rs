//! R8: whatever was lost on the way, once the cluster has healed every ISR is full again and every produce ends.

use super::{Checker, Event, Verdict};

#[derive(Debug, Default)]
pub struct NoWedge;

impl Checker for NoWedge {
    fn name(&self) -> &'static str {
        "no-wedge"
    }

    fn on_event(&mut self, event: &Event) -> Verdict {
        match event {
            Event::NotHealed { what } => Err(what.clone()),
            _ => Ok(()),
        }
    }
}
