//! Clients are told errors that mean something: never that the server does not know, nor that data is corrupt.

use std::collections::BTreeSet;

use super::{Checker, Run};

pub(super) const CHECKER: Checker = Checker {
    name: "documented-errors",
    says: "no client is told UNKNOWN_SERVER_ERROR, a corrupt message or a broken sequence",
    check,
};

/// What no fault of a minority explains.
const NEVER: [&str; 5] = [
    "UNKNOWN_SERVER_ERROR",
    "CORRUPT_MESSAGE",
    "OUT_OF_ORDER_SEQUENCE_NUMBER",
    "INVALID_RECORD",
    "UNSUPPORTED_VERSION",
];

fn check(run: &Run<'_>) -> Vec<String> {
    let errors: BTreeSet<&str> = run.writes().filter_map(|write| write.error).collect();
    errors
        .into_iter()
        .filter(|error| NEVER.iter().any(|code| error.contains(code)))
        .map(str::to_owned)
        .collect()
}
