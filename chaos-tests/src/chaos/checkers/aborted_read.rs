//! Nothing is read that was refused, or that nobody wrote ("G1a" in Jepsen's words).

use std::collections::HashMap;

use super::{Checker, Outcome, Run};

pub(super) const CHECKER: Checker = Checker {
    name: "aborted-read",
    says: "nothing is read that was refused for certain, or that nobody wrote",
    check,
};

fn check(run: &Run<'_>) -> Vec<String> {
    let mut possible: HashMap<u64, bool> = HashMap::new();
    for write in run.writes() {
        *possible.entry(write.id).or_default() |= write.outcome != Outcome::Failed;
    }
    let mut wrong = Vec::new();
    for poll in run.polls() {
        let place = format!("{}-{} offset {}", poll.topic, poll.partition, poll.offset);
        match possible.get(&poll.id) {
            Some(true) => {}
            Some(false) => wrong.push(format!("{} was refused and is read at {place}", poll.id)),
            None => wrong.push(format!(
                "{} was never written and is read at {place}",
                poll.id
            )),
        }
    }
    wrong
}
