//! An epoch has one leader, by the brokers' own logs; by the controllers' log epochs only rise.

use std::collections::BTreeMap;

use super::{Checker, Event, Run};

pub(super) const CHECKER: Checker = Checker {
    name: "one-leader-per-epoch",
    says: "no two brokers led a partition under one epoch, and the records of an epoch follow those of the one before",
    check,
};

fn check(run: &Run<'_>) -> Vec<String> {
    let mut leaders: BTreeMap<(&str, i32, i32), i32> = BTreeMap::new();
    let mut wrong = Vec::new();
    for entry in run.entries {
        if let Event::Led {
            broker,
            topic,
            partition,
            leader_epoch,
        } = &entry.event
        {
            let before = *leaders
                .entry((topic, *partition, *leader_epoch))
                .or_insert(*broker);
            if before != *broker {
                wrong.push(format!(
                    "brokers {before} and {broker} both led {topic}-{partition} under epoch {leader_epoch}"
                ));
            }
        }
        if let Event::Replica {
            broker,
            topic,
            partition,
            batches,
            ..
        } = &entry.event
        {
            for pair in batches.windows(2) {
                if pair[1].leader_epoch < pair[0].leader_epoch || pair[1].first != pair[0].end {
                    wrong.push(format!(
                        "broker {broker}, {topic}-{partition}: after offset {} of epoch {} comes offset {} of epoch {}",
                        pair[0].end - 1,
                        pair[0].leader_epoch,
                        pair[1].first,
                        pair[1].leader_epoch
                    ));
                }
            }
        }
    }
    wrong
}
