//! R4: an acknowledgement is given by the process, and in the leader epoch, that appended the record.

use super::{Checker, Event, Verdict};

#[derive(Debug, Default)]
pub struct NoStaleEpochAck;

impl Checker for NoStaleEpochAck {
    fn name(&self) -> &'static str {
        "no-stale-epoch-ack"
    }

    fn sees_abandoned(&self) -> bool {
        true
    }

    fn on_event(&mut self, event: &Event) -> Verdict {
        match event {
            Event::Acked {
                partition,
                broker,
                offset,
                appended_under,
                led_under,
                ..
            } if *led_under != Some(*appended_under) => Err(format!(
                "partition {partition}: broker {broker} appended offset {offset} in epoch {appended_under} and acknowledged it when it led in {led_under:?}"
            )),
            _ => Ok(()),
        }
    }
}
