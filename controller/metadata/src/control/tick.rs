//! What time itself asks for.
//! Law: one broker is fenced per decision, so that each sees what the one before meant for the partitions; who is about to
//! be fenced as well is given nothing.

use kuorum_protocol::{BrokerId, Now};

use super::heartbeats::{Heartbeats, Silence};
use super::{Decision, brokers, election, reassignment};
use crate::image::MetadataImage;

/// What a tick decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ticked {
    /// A silent broker was fenced.
    Fenced(BrokerId, Silence),
    /// So many partitions were brought in line with who is alive: leaders found, fenced members gone.
    Reconciled(usize),
    /// So many reassignments have come to their end.
    Moved(usize),
}

impl std::fmt::Display for Ticked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Fenced(broker, silence) => write!(f, "broker {broker}: {}", silence.cause()),
            Self::Reconciled(partitions) => write!(f, "reconciled {partitions} partition(s)"),
            Self::Moved(partitions) => write!(f, "completed {partitions} reassignment(s)"),
        }
    }
}

/// The next thing to decide, to be called until there is none: first the silent brokers, the longest silent first; then
/// partitions for which something has become possible: a leader where there was none because its stream is back, because
/// this controller has now heard from it, or because unclean election was allowed; last the reassignments that nothing
/// keeps from their end any more.
pub fn tick(image: &MetadataImage, soft: &Heartbeats, now: Now) -> Option<Decision<Ticked>> {
    if let Some((broker, silence)) = soft.expired(image, now) {
        let fenced = brokers::fence(image, soft, broker, silence, now);
        return Some(fenced.map(|()| Ticked::Fenced(broker, silence)));
    }
    let records = election::reconcile(image, |id| soft.standing(image, id), None, "reconciled");
    if !records.is_empty() {
        return Some(Decision {
            response: Ticked::Reconciled(records.len()),
            records,
        });
    }
    let completed = reassignment::complete_all(image);
    (completed.response > 0).then(|| completed.map(Ticked::Moved))
}
