//! An offset holds one value for whoever reads it and whenever (R17; "inconsistent-offsets" in Jepsen's words). Only what an unclean
//! election took away may be replaced, and then under another epoch.

use std::collections::HashMap;

use super::{Checker, Run};

pub(super) const CHECKER: Checker = Checker {
    name: "inconsistent-offsets",
    says: "an offset holds one value, whoever reads it and whenever",
    check,
};

fn check(run: &Run<'_>) -> Vec<String> {
    let mut values: HashMap<(&str, i32, i64), u64> = HashMap::new();
    let reads = run.polls().map(|poll| {
        let place = (poll.topic, poll.partition, poll.offset);
        (place, poll.id)
    });
    let mut wrong = Vec::new();
    for (place, id) in reads {
        let before = *values.entry(place).or_insert(id);
        let (topic, partition, offset) = place;
        if before != id && !run.may_lose(topic, partition, offset) {
            wrong.push(format!(
                "{topic}-{partition} offset {offset} was {before} and is {id}"
            ));
        }
    }
    wrong
}
