//! What a history of real processes must show: one property, one file. The table of anomalies is Jepsen's for logs, as far as it needs no
//! transactions; beside it what replicas, leaders and the controllers' metadata must be like.
//! Law: pure, and knows nothing of how the history came about but what was allowed to be lost. Each has a history it must refuse.

use std::ops::Range;
use std::sync::Arc;

use super::history::{Entry, Event, Outcome};

mod aborted_read;
mod acked_is_read;
mod documented_errors;
mod duplicate;
mod inconsistent_offsets;
mod leader_in_isr;
mod lost_write;
mod metadata_digests;
mod monotone_end;
mod offset_immutable;
mod one_leader_per_epoch;
mod poll_order;
mod replicas_identical;
mod send_order;

/// The reader that reads everything once the cluster is whole again.
pub const FINAL: &str = "final";

/// Offsets of a partition that an unclean election may take away, acknowledged or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    pub topic: Arc<str>,
    pub partition: i32,
    pub offsets: Range<i64>,
}

/// A history, and what it may have lost.
#[derive(Debug)]
pub struct Run<'a> {
    pub entries: &'a [Entry],
    pub allowed: &'a [Loss],
    /// Streams of producers that are not idempotent: what they send again may be there twice, and out of turn.
    pub repeating: &'a [Arc<str>],
}

impl Run<'_> {
    /// Whether this offset may have been taken away.
    #[must_use]
    pub fn may_lose(&self, topic: &str, partition: i32, offset: i64) -> bool {
        self.allowed.iter().any(|loss| {
            &*loss.topic == topic && loss.partition == partition && loss.offsets.contains(&offset)
        })
    }

    /// Whether anything of this partition may have been taken away.
    #[must_use]
    pub fn may_lose_of(&self, topic: &str, partition: i32) -> bool {
        let mut losses = self.allowed.iter();
        losses.any(|loss| &*loss.topic == topic && loss.partition == partition)
    }

    /// Whether this stream's producer may write a record twice, and out of turn.
    #[must_use]
    pub fn may_repeat(&self, stream: &str) -> bool {
        self.repeating.iter().any(|one| &**one == stream)
    }

    /// Every record that was read: reader, topic, partition, offset, epoch, id.
    pub(crate) fn polls(&self) -> impl Iterator<Item = Poll<'_>> {
        self.entries.iter().filter_map(|entry| match &entry.event {
            Event::Polled {
                reader,
                topic,
                partition,
                offset,
                leader_epoch,
                id,
            } => Some(Poll {
                reader,
                topic,
                partition: *partition,
                offset: *offset,
                leader_epoch: *leader_epoch,
                id: *id,
            }),
            _ => None,
        })
    }

    /// Every write that ended.
    pub(crate) fn writes(&self) -> impl Iterator<Item = Wrote<'_>> {
        self.entries.iter().filter_map(|entry| match &entry.event {
            Event::Wrote {
                stream,
                topic,
                partition,
                id,
                outcome,
                offset,
                error,
                ..
            } => Some(Wrote {
                stream,
                topic,
                partition: *partition,
                id: *id,
                outcome: *outcome,
                offset: offset.unwrap_or(-1),
                error: error.as_deref(),
            }),
            _ => None,
        })
    }
}

/// A record that was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Poll<'a> {
    pub reader: &'a str,
    pub topic: &'a str,
    pub partition: i32,
    pub offset: i64,
    pub leader_epoch: i32,
    pub id: u64,
}

/// A write that ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wrote<'a> {
    pub stream: &'a str,
    pub topic: &'a str,
    pub partition: i32,
    pub id: u64,
    pub outcome: Outcome,
    /// −1 if it was not acknowledged.
    pub offset: i64,
    pub error: Option<&'a str>,
}

/// One property: its name, what it says, and what is wrong with a history by it.
#[derive(Clone, Copy, Debug)]
pub struct Checker {
    pub name: &'static str,
    pub says: &'static str,
    /// Everything that is wrong; empty when the property holds.
    pub check: fn(&Run<'_>) -> Vec<String>,
}

/// All of them.
pub const ALL: &[Checker] = &[
    acked_is_read::CHECKER,
    lost_write::CHECKER,
    duplicate::CHECKER,
    aborted_read::CHECKER,
    inconsistent_offsets::CHECKER,
    offset_immutable::CHECKER,
    poll_order::CHECKER,
    send_order::CHECKER,
    monotone_end::CHECKER,
    one_leader_per_epoch::CHECKER,
    leader_in_isr::CHECKER,
    replicas_identical::CHECKER,
    metadata_digests::CHECKER,
    documented_errors::CHECKER,
];

/// What one property makes of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub name: &'static str,
    pub says: &'static str,
    pub wrong: Vec<String>,
}

/// Asks every checker.
#[must_use]
pub fn check(run: &Run<'_>) -> Vec<Verdict> {
    ALL.iter()
        .map(|checker| Verdict {
            name: checker.name,
            says: checker.says,
            wrong: (checker.check)(run),
        })
        .collect()
}

#[cfg(test)]
mod tests;
