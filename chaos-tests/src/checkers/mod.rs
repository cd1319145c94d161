//! What must hold while the simulated cluster is being hurt, and after it has healed: one property, one file.
//! Law: a checker sees what happened and how things stand; it never touches the cluster. Letters and numbers are
//! the rows of the replication section of the project's correctness notes.
//!
//! An unclean election may lose what the elected leader did not have at that moment, and nothing else. From then on
//! that end of the history is abandoned: what leaders of earlier epochs said or say of it is no promise, and is shown
//! only to the checkers that ask for it. All that lies before is held to the same rules as ever.

use std::collections::BTreeMap;
use std::fmt;

mod acked_is_durable;
mod consistent_read;
mod convergence;
mod epoch_table;
mod event;
mod failover_after_both_died;
mod given_up_is_salvaged;
mod high_watermark_after_shrink;
mod high_watermark_monotone;
mod idle_no_flap;
mod isr_join;
mod ledger;
mod log_matching;
mod min_isr_visibility;
mod moves_give_nothing_up;
mod no_leaving_member;
mod no_stale_epoch_ack;
mod no_wedge;
mod no_zombie_reads;
mod readers_are_told;
mod replication_quorum_superset;
mod restart_is_new;
mod sequences_are_kept;
mod shutdown_hands_over;
mod state;
#[cfg(test)]
mod tests;
mod unclean_only_where_allowed;

pub use convergence::converged;
pub use event::Event;
pub use ledger::{Cuts, Ledger};
pub use state::{Leading, Logged, PartitionState, ReplicaState, Salvaged, SetAside, State};

/// A partition of the simulated cluster, by number.
pub type PartitionNumber = usize;

/// The value of a record that was deleted before anybody saw it.
pub const NOT_SEEN: u64 = u64::MAX;

/// Properties that no single rule, switched off, is sure to break first. That they refuse is shown by histories (`tests.rs`), of all others by
/// the simulation without the rule (`tests/mutations.rs`).
pub const SHOWN_BY_HISTORIES: &[&str] = &[
    "acked-is-durable",
    "log-matching",
    "consistent-read",
    "readers-are-told",
    "sequences-are-kept",
    "replication-quorum-superset",
    "convergence",
    "no-zombie-reads",
    "no-stale-epoch-ack",
    "min-isr-visibility",
];

/// A property was found broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which checker found it.
    pub checker: &'static str,
    /// What it found.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.checker, self.what)
    }
}

/// Whether a checker is content; if not, what is wrong.
pub type Verdict = Result<(), String>;

/// One property.
pub trait Checker: fmt::Debug {
    /// Its name, as reports show it.
    fn name(&self) -> &'static str;

    /// Whether it is also to see what leaders say of an end of the history that an unclean election has abandoned.
    fn sees_abandoned(&self) -> bool {
        false
    }

    /// Something happened.
    ///
    /// # Errors
    /// What is wrong about it.
    fn on_event(&mut self, _event: &Event) -> Verdict {
        Ok(())
    }

    /// How things stand, every now and then and after every decision of the controller.
    ///
    /// # Errors
    /// What is wrong about it.
    fn on_state(&mut self, _state: &State<'_>) -> Verdict {
        Ok(())
    }

    /// How things stand at the end: healed, caught up, and with the records of every replica.
    ///
    /// # Errors
    /// What is wrong about it.
    fn at_rest(&mut self, _state: &State<'_>) -> Verdict {
        Ok(())
    }
}

/// All checkers, and the first violation they found.
#[derive(Debug)]
pub struct Checkers {
    all: Vec<Box<dyn Checker>>,
    cuts: BTreeMap<PartitionNumber, Cuts>,
    found: Option<Violation>,
}

impl Default for Checkers {
    fn default() -> Self {
        Self {
            all: vec![
                Box::<acked_is_durable::AckedIsDurable>::default(),
                Box::<high_watermark_monotone::HighWatermarkMonotone>::default(),
                Box::<min_isr_visibility::MinIsrVisibility>::default(),
                Box::<no_stale_epoch_ack::NoStaleEpochAck>::default(),
                Box::<high_watermark_after_shrink::HighWatermarkAfterShrink>::default(),
                Box::<isr_join::IsrJoin>::default(),
                Box::<replication_quorum_superset::ReplicationQuorumSuperset>::default(),
                Box::<no_wedge::NoWedge>::default(),
                Box::<idle_no_flap::IdleNoFlap>::default(),
                Box::<log_matching::LogMatching>::default(),
                Box::<convergence::Convergence>::default(),
                Box::<epoch_table::EpochTable>::default(),
                Box::<no_zombie_reads::NoZombieReads>::default(),
                Box::<consistent_read::ConsistentRead>::default(),
                Box::<restart_is_new::RestartIsNew>::default(),
                Box::<no_leaving_member::NoLeavingMember>::default(),
                Box::<shutdown_hands_over::ShutdownHandsOver>::default(),
                Box::<unclean_only_where_allowed::UncleanOnlyWhereAllowed>::default(),
                Box::<readers_are_told::ReadersAreTold>::default(),
                Box::<sequences_are_kept::SequencesAreKept>::default(),
                Box::<failover_after_both_died::FailoverAfterBothDied>::default(),
                Box::<moves_give_nothing_up::MovesGiveNothingUp>::default(),
                Box::<given_up_is_salvaged::GivenUpIsSalvaged>::default(),
            ],
            cuts: BTreeMap::new(),
            found: None,
        }
    }
}

impl Checkers {
    /// The names of all properties.
    #[must_use]
    pub fn names(&self) -> Vec<&'static str> {
        self.all.iter().map(|checker| checker.name()).collect()
    }

    /// The first violation, if any.
    #[must_use]
    pub fn found(&self) -> Option<&Violation> {
        self.found.as_ref()
    }

    /// Shows every checker what happened.
    pub fn event(&mut self, event: &Event) {
        if let Event::UncleanElection {
            partition,
            leader_epoch,
            keeps,
            ..
        } = event
        {
            let cuts = self.cuts.entry(*partition).or_default();
            cuts.add(*leader_epoch, *keeps);
        }
        let abandoned = self.is_abandoned(event);
        self.each(|checker| match abandoned && !checker.sees_abandoned() {
            true => Ok(()),
            false => checker.on_event(event),
        });
    }

    /// Whether it is said of an end of the history that is no more.
    fn is_abandoned(&self, event: &Event) -> bool {
        let (partition, epoch, last) = match event {
            Event::Acked {
                partition,
                appended_under,
                offset,
                ..
            } => (partition, appended_under, *offset),
            Event::Read {
                partition,
                answered_under,
                offset,
                ..
            } => (partition, answered_under, *offset),
            Event::Committed {
                partition,
                leader_epoch,
                offset,
                ..
            } => (partition, leader_epoch, *offset),
            Event::HighWatermark {
                partition,
                leader_epoch,
                to,
                ..
            } => (partition, leader_epoch, *to),
            Event::Latest {
                partition,
                answered_under,
                offset,
                ..
            } => (partition, answered_under, *offset),
            _ => return false,
        };
        self.cuts
            .get(partition)
            .is_some_and(|cuts| last >= cuts.firm_below(*epoch))
    }

    /// Shows every checker how things stand.
    pub fn state(&mut self, state: &State<'_>) {
        self.each(|checker| checker.on_state(state));
    }

    /// Shows every checker how things stand at the end.
    pub fn rest(&mut self, state: &State<'_>) {
        self.each(|checker| checker.at_rest(state));
    }

    fn each(&mut self, mut ask: impl FnMut(&mut dyn Checker) -> Verdict) {
        for checker in &mut self.all {
            if let Err(what) = ask(checker.as_mut())
                && self.found.is_none()
            {
                self.found = Some(Violation {
                    checker: checker.name(),
                    what,
                });
            }
        }
    }
}
