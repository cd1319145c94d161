//! Every acknowledged record is read at the end, at the offset that was told (R1, D1, D2; "unseen" in Jepsen's words).

use std::collections::{BTreeSet, HashMap};

use super::{Checker, Event, FINAL, Outcome, Run};

pub(super) const CHECKER: Checker = Checker {
    name: "acked-is-read",
    says: "every acknowledged record is read at the end, at the offset that was told",
    check,
};

fn check(run: &Run<'_>) -> Vec<String> {
    let read: BTreeSet<&str> = run
        .entries
        .iter()
        .filter_map(|entry| match &entry.event {
            Event::Assigned { reader, topic } if &**reader == FINAL => Some(&**topic),
            _ => None,
        })
        .collect();
    let mut found: HashMap<u64, Vec<i64>> = HashMap::new();
    for poll in run.polls().filter(|poll| poll.reader == FINAL) {
        found.entry(poll.id).or_default().push(poll.offset);
    }
    let mut wrong = Vec::new();
    for write in run.writes().filter(|write| write.outcome == Outcome::Acked) {
        let (topic, partition, offset) = (write.topic, write.partition, write.offset);
        // Of a story that ended early nothing was read at the end.
        if !read.contains(topic) || run.may_lose(topic, partition, offset) {
            continue;
        }
        let place = format!("{topic}-{partition} offset {offset}");
        match found.get(&write.id) {
            None => wrong.push(format!(
                "{} was acknowledged at {place} and is lost",
                write.id
            )),
            Some(offsets) if !offsets.contains(&offset) => wrong.push(format!(
                "{} was acknowledged at {place} and is read at {offsets:?}",
                write.id
            )),
            Some(_) => {}
        }
    }
    wrong
}
