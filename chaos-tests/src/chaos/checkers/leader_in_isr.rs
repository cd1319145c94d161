//! Whoever the controllers let lead is in sync.

use super::{Checker, Event, Run};

pub(super) const CHECKER: Checker = Checker {
    name: "leader-in-isr",
    says: "a leader is a member of the in-sync set",
    check,
};

fn check(run: &Run<'_>) -> Vec<String> {
    let decisions = run.entries.iter().filter_map(|entry| match &entry.event {
        Event::Decided {
            topic,
            partition,
            leader: Some(leader),
            leader_epoch,
            isr,
            ..
        } if !isr.contains(leader) => Some(format!(
            "{topic}-{partition}: broker {leader} leads under epoch {leader_epoch}, and in sync are {isr:?}"
        )),
        _ => None,
    });
    decisions.collect()
}
