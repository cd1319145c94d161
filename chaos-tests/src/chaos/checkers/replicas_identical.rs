//! Replicas are the same, byte for byte, below every high watermark (R12), and have all of it.

use std::collections::BTreeMap;

use super::{Checker, Event, Run};
use crate::chaos::history::Batch;

pub(super) const CHECKER: Checker = Checker {
    name: "replicas-identical",
    says: "below the high watermark the replicas on the stopped brokers' disks are the same, byte for byte",
    check,
};

/// A broker, its high watermark, and its batches.
type Replica<'a> = (i32, i64, &'a [Batch]);

fn check(run: &Run<'_>) -> Vec<String> {
    let mut replicas: BTreeMap<(&str, i32), Vec<Replica<'_>>> = BTreeMap::new();
    for entry in run.entries {
        if let Event::Replica {
            broker,
            topic,
            partition,
            high_watermark,
            batches,
        } = &entry.event
        {
            replicas.entry((topic, *partition)).or_default().push((
                *broker,
                *high_watermark,
                batches,
            ));
        }
    }
    let mut wrong = Vec::new();
    for ((topic, partition), replicas) in replicas {
        let mut known: BTreeMap<i64, (i32, Batch)> = BTreeMap::new();
        for (broker, high_watermark, batches) in &replicas {
            let end = batches.last().map_or(0, |batch| batch.end);
            if end < *high_watermark {
                wrong.push(format!(
                    "{topic}-{partition}: broker {broker} has everything below {end}, and its high watermark is {high_watermark}"
                ));
            }
            for batch in batches.iter().filter(|batch| batch.end <= *high_watermark) {
                let (other, same) = *known.entry(batch.first).or_insert((*broker, *batch));
                if same != *batch {
                    wrong.push(format!(
                        "{topic}-{partition}: at offset {} brokers {other} and {broker} differ: {same:?}, {batch:?}",
                        batch.first
                    ));
                }
            }
        }
    }
    wrong
}
