//! Every process makes the same of the metadata log (C8): the controllers' decisions are facts, not opinions.

use super::{Checker, Event, Run};

pub(super) const CHECKER: Checker = Checker {
    name: "metadata-digests",
    says: "controllers and brokers have built the same metadata",
    check,
};

fn check(run: &Run<'_>) -> Vec<String> {
    let mut first: Option<(&str, &str)> = None;
    let mut wrong = Vec::new();
    for entry in run.entries {
        if let Event::Digest { process, digest } = &entry.event {
            let (other, same) = *first.get_or_insert((process, digest));
            if same != digest {
                wrong.push(format!("{other} has {same}, {process} has {digest}"));
            }
        }
    }
    wrong
}
