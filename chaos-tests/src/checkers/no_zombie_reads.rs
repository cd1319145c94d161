//! R16: a client that knows a leader epoch is answered by the leader of that epoch, or not at all.

use super::{Checker, Event, Verdict};

#[derive(Debug, Default)]
pub struct NoZombieReads;

impl Checker for NoZombieReads {
    fn name(&self) -> &'static str {
        "no-zombie-reads"
    }

    fn sees_abandoned(&self) -> bool {
        true
    }

    fn on_event(&mut self, event: &Event) -> Verdict {
        let (Event::Read {
            partition,
            asked_under,
            answered_under,
            ..
        }
        | Event::Latest {
            partition,
            asked_under,
            answered_under,
            ..
        }) = event
        else {
            return Ok(());
        };
        if asked_under.0 >= 0 && asked_under != answered_under {
            return Err(format!(
                "partition {partition}: asked under epoch {asked_under}, answered under {answered_under}"
            ));
        }
        Ok(())
    }
}
