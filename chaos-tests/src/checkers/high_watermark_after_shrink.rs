//! R5, R10: when a follower stops fetching, a produce that waits for it is acknowledged soon after
//! replica.lag.time.max.ms, with no other traffic.

use super::{Checker, Event, Verdict};

#[derive(Debug, Default)]
pub struct HighWatermarkAfterShrink;

impl Checker for HighWatermarkAfterShrink {
    fn name(&self) -> &'static str {
        "high-watermark-after-shrink"
    }

    fn on_event(&mut self, event: &Event) -> Verdict {
        match event {
            Event::ShrinkProbe {
                partition,
                waited,
                allowed,
            } if waited.is_none_or(|waited| waited > *allowed) => Err(format!(
                "partition {partition}: a produce waited {waited:?} for a silent follower, {allowed:?} is allowed"
            )),
            _ => Ok(()),
        }
    }
}
