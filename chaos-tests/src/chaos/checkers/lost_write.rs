//! No reader has passed an acknowledged record that nobody has ever read ("lost-write" in Jepsen's words).

use std::collections::{BTreeMap, BTreeSet};

use super::{Checker, Outcome, Run};

pub(super) const CHECKER: Checker = Checker {
    name: "lost-write",
    says: "no record that was acknowledged below what was read has never been read",
    check,
};

fn check(run: &Run<'_>) -> Vec<String> {
    let mut furthest: BTreeMap<(&str, i32), i64> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for poll in run.polls() {
        let place = furthest.entry((poll.topic, poll.partition)).or_default();
        *place = (*place).max(poll.offset);
        seen.insert(poll.id);
    }
    run.writes()
        .filter(|write| write.outcome == Outcome::Acked && !seen.contains(&write.id))
        .filter(|write| !run.may_lose(write.topic, write.partition, write.offset))
        .filter(|write| {
            furthest
                .get(&(write.topic, write.partition))
                .is_some_and(|furthest| write.offset < *furthest)
        })
        .map(|write| {
            format!(
                "{} was acknowledged at {}-{} offset {}; reading went past it, and nobody saw it",
                write.id, write.topic, write.partition, write.offset
            )
        })
        .collect()
}
