//! File descriptors: as many as the system allows this process.
//! Law: connections never take those that files need. A client that opens too many is turned away, and no disk is taken for broken.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Below this a busy broker runs out: each segment of a log takes three.
const FEW: u64 = 16_384;

/// Raises the limit of this process to the highest that it may have, and says so if that is little.
pub fn raise() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let wanted = Rlimit {
        current: maximum,
        maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, wanted) {
        tracing::warn!(%error, "the limit on open files could not be raised");
    }
    let limit = limit();
    if limit < FEW {
        tracing::warn!(
            limit,
            "few files may be open at once: each segment of a log takes three and each connection one. Raise the hard limit (ulimit -Hn)"
        );
    }
}

/// How many connections all listeners together may hold: half of what may be open.
pub fn for_connections() -> usize {
    usize::try_from(limit() / 2).unwrap_or(usize::MAX)
}

/// How many files this process may have open.
pub(crate) fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
