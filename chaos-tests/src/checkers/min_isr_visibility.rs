//! R3: nothing becomes visible while fewer than min.insync.replicas are in sync, and whatever becomes visible lies,
//! as durably as it counts, on that many replicas.

use super::{Checker, Event, Verdict};

#[derive(Debug, Default)]
pub struct MinIsrVisibility;

impl Checker for MinIsrVisibility {
    fn name(&self) -> &'static str {
        "min-isr-visibility"
    }

    fn on_event(&mut self, event: &Event) -> Verdict {
        let Event::HighWatermark {
            partition,
            broker,
            from,
            to,
            committed_isr,
            min_isr,
            holders,
            ..
        } = event
        else {
            return Ok(());
        };
        if to <= from {
            return Ok(());
        }
        if committed_isr < min_isr {
            return Err(format!(
                "partition {partition}: broker {broker} made [{from}, {to}) visible with {committed_isr} in sync of {min_isr}"
            ));
        }
        if holders < min_isr {
            return Err(format!(
                "partition {partition}: broker {broker} made [{from}, {to}) visible, and {holders} replicas have it of {min_isr}"
            ));
        }
        Ok(())
    }
}
