//! What was read at an offset under one epoch is what is there for ever, over restarts, truncations and elections of every kind (R33).

use std::collections::HashMap;

use super::{Checker, Run};

pub(super) const CHECKER: Checker = Checker {
    name: "offset-immutable",
    says: "an offset and the epoch it was written under name one record, even through unclean elections",
    check,
};

fn check(run: &Run<'_>) -> Vec<String> {
    let mut values: HashMap<(&str, i32, i64, i32), u64> = HashMap::new();
    let mut wrong = Vec::new();
    for poll in run.polls() {
        let place = (poll.topic, poll.partition, poll.offset, poll.leader_epoch);
        let before = *values.entry(place).or_insert(poll.id);
        if before != poll.id {
            wrong.push(format!(
                "{}-{} offset {} of epoch {} was {before} and is {} to {}",
                poll.topic, poll.partition, poll.offset, poll.leader_epoch, poll.id, poll.reader
            ));
        }
    }
    wrong
}
