//! A reader receives every offset in turn ("poll-skip" and "nonmonotonic-poll" in Jepsen's words). There are no markers in these logs, so
//! offsets have no holes.

use std::collections::HashMap;

use super::{Checker, Event, Run};

pub(super) const CHECKER: Checker = Checker {
    name: "poll-order",
    says: "a reader receives the offsets of a partition one after the other, none twice and none left out",
    check,
};

fn check(run: &Run<'_>) -> Vec<String> {
    let mut positions: HashMap<(&str, &str, i32), i64> = HashMap::new();
    let mut wrong = Vec::new();
    for entry in run.entries {
        match &entry.event {
            Event::Assigned { reader, topic } => {
                positions.retain(|place, _| place.0 != &**reader || place.1 != &**topic);
            }
            Event::Polled {
                reader,
                topic,
                partition,
                offset,
                ..
            } => {
                let before = positions.insert((reader, topic, *partition), *offset);
                if let Some(before) = before
                    && *offset != before + 1
                {
                    wrong.push(format!(
                        "{reader} read {topic}-{partition} offset {offset} after offset {before}"
                    ));
                }
            }
            _ => {}
        }
    }
    wrong
}
