//! No record is in the log twice ("duplicate" in Jepsen's words), but for those of producers that are not idempotent.

use std::collections::{HashMap, HashSet};

use super::{Checker, FINAL, Run};

pub(super) const CHECKER: Checker = Checker {
    name: "duplicate",
    says: "no record of an idempotent producer is read at two places at the end",
    check,
};

fn check(run: &Run<'_>) -> Vec<String> {
    let mut places: HashMap<(&str, u64), (i32, i64)> = HashMap::new();
    let repeating: HashSet<u64> = run
        .writes()
        .filter(|write| run.may_repeat(write.stream))
        .map(|write| write.id)
        .collect();
    let mut wrong = Vec::new();
    for poll in run.polls().filter(|poll| poll.reader == FINAL) {
        let place = (poll.partition, poll.offset);
        if let Some(before) = places.insert((poll.topic, poll.id), place)
            && before != place
            && !repeating.contains(&poll.id)
        {
            wrong.push(format!(
                "{} is in {} at {before:?} and at {place:?}",
                poll.id, poll.topic
            ));
        }
    }
    wrong
}
