//! The end of a partition, as clients are told it, never goes back (R2): what has been visible stays visible.

use std::collections::BTreeMap;

use super::{Checker, Event, Run};

pub(super) const CHECKER: Checker = Checker {
    name: "monotone-end",
    says: "the high watermark that clients are told never goes back",
    check,
};

fn check(run: &Run<'_>) -> Vec<String> {
    let mut ends: BTreeMap<(&str, i32), i64> = BTreeMap::new();
    let mut wrong = Vec::new();
    for entry in run.entries {
        let Event::Latest {
            topic,
            partition,
            offset,
        } = &entry.event
        else {
            continue;
        };
        let end = ends.entry((topic, *partition)).or_insert(*offset);
        if offset < end && !run.may_lose(topic, *partition, *offset) {
            wrong.push(format!(
                "{topic}-{partition} ended at {end}, and {:.0} ms into the run at {offset}",
                entry.at
            ));
        }
        *end = *offset;
    }
    wrong
}
