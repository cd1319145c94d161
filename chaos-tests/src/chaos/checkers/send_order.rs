//! What one producer sends into one partition lies there in the order in which it was sent ("nonmonotonic-send" in Jepsen's words).

use std::collections::BTreeMap;

use super::{Checker, Outcome, Run};

pub(super) const CHECKER: Checker = Checker {
    name: "send-order",
    says: "one idempotent producer's records of one partition lie in the order they were sent in",
    check,
};

fn check(run: &Run<'_>) -> Vec<String> {
    let mut sent: BTreeMap<(&str, &str, i32), BTreeMap<u64, i64>> = BTreeMap::new();
    for write in run.writes().filter(|write| write.outcome == Outcome::Acked) {
        // Offsets that were taken away come again.
        if !run.may_lose_of(write.topic, write.partition) && !run.may_repeat(write.stream) {
            let place = (write.stream, write.topic, write.partition);
            sent.entry(place)
                .or_default()
                .insert(write.id, write.offset);
        }
    }
    let mut wrong = Vec::new();
    for ((stream, topic, partition), offsets) in sent {
        let pairs = offsets.iter().zip(offsets.iter().skip(1));
        for ((one, first), (other, second)) in pairs {
            if second <= first {
                wrong.push(format!(
                    "{stream} sent {one} before {other} to {topic}-{partition}; they are at {first} and {second}"
                ));
            }
        }
    }
    wrong
}
