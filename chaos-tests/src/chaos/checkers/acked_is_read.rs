//! Every acknowledged record is read at the end, at the offset that was told (R1, D1, D2; "unseen" in Jepsen's words).

use std::collections::HashMap;

use super::{Checker, FINAL, Outcome, Run};

pub(super) const CHECKER: Checker = Checker {
    name: "acked-is-read",
    says: "every acknowledged record is read at the end, at the offset that was told",
    check,
};

fn check(run: &Run<'_>) -> Vec<String> {
    let mut found: HashMap<u64, Vec<i64>> = HashMap::new();
    for poll in run.polls().filter(|poll| poll.reader == FINAL) {
        found.entry(poll.id).or_default().push(poll.offset);
    }
    let mut wrong = Vec::new();
    for write in run.writes().filter(|write| write.outcome == Outcome::Acked) {
        let (topic, partition, offset) = (write.topic, write.partition, write.offset);
        if run.may_lose(topic, partition, offset) {
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
