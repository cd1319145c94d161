//! No record is in the log twice ("duplicate" in Jepsen's words): the producers are idempotent.

use std::collections::HashMap;

use super::{Checker, FINAL, Run};

pub(super) const CHECKER: Checker = Checker {
    name: "duplicate",
    says: "no record is read at two places at the end",
    check,
};

fn check(run: &Run<'_>) -> Vec<String> {
    let mut places: HashMap<(&str, u64), (i32, i64)> = HashMap::new();
    let mut wrong = Vec::new();
    for poll in run.polls().filter(|poll| poll.reader == FINAL) {
        let place = (poll.partition, poll.offset);
        if let Some(before) = places.insert((poll.topic, poll.id), place)
            && before != place
        {
            wrong.push(format!(
                "{} is in {} at {before:?} and at {place:?}",
                poll.id, poll.topic
            ));
        }
    }
    wrong
}
