//! What must hold while the simulated cluster is being hurt, and after it has healed: one property, one file.
//! Law: a checker sees what happened and how things stand; it never touches the cluster. Letters and numbers are
//! the rows of the replication section of the project's correctness notes.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kuorum_metadata::image::PartitionImage;
use kuorum_protocol::{BrokerId, ErrorCode, LeaderEpoch, Offset};

mod acked_is_durable;
mod consistent_read;
mod convergence;
mod epoch_table;
mod high_watermark_after_shrink;
mod high_watermark_monotone;
mod idle_no_flap;
mod isr_join;
mod log_matching;
mod min_isr_visibility;
mod no_stale_epoch_ack;
mod no_wedge;
mod no_zombie_reads;
mod replication_quorum_superset;
mod restart_is_new;

pub use convergence::converged;

/// A partition of the simulated cluster, by number.
pub type PartitionNumber = usize;

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

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// A process began to lead.
    Led {
        partition: PartitionNumber,
        broker: BrokerId,
        /// Which run of the broker's process.
        run: u64,
        leader_epoch: LeaderEpoch,
    },
    /// A leader's high watermark was found at another place than before.
    HighWatermark {
        partition: PartitionNumber,
        broker: BrokerId,
        leader_epoch: LeaderEpoch,
        from: Offset,
        to: Offset,
        /// Members of the ISR as that leader knows it decided.
        committed_isr: usize,
        min_isr: usize,
        /// Replicas that have everything below `to`, as durably as it counts.
        holders: usize,
    },
    /// What became visible at an offset, told by the leader whose high watermark passed it.
    Committed {
        partition: PartitionNumber,
        broker: BrokerId,
        offset: Offset,
        record: Logged,
    },
    /// A broker told a producer that its record is there.
    Acked {
        partition: PartitionNumber,
        broker: BrokerId,
        /// `None` for a producer that is not idempotent.
        producer: Option<u64>,
        value: u64,
        offset: Offset,
        /// acks=all.
        all: bool,
        appended_under: LeaderEpoch,
        /// The epoch this very process led in when it answered.
        led_under: Option<LeaderEpoch>,
    },
    /// A consumer received a record.
    Read {
        partition: PartitionNumber,
        broker: BrokerId,
        /// The leader epoch the consumer's request named.
        asked_under: LeaderEpoch,
        /// The leader epoch of the one who answered.
        answered_under: LeaderEpoch,
        offset: Offset,
        value: u64,
    },
    /// A consumer that had read up to `position` was told that there is nothing there.
    OutOfRange {
        partition: PartitionNumber,
        broker: BrokerId,
        position: Offset,
        log_start: Offset,
    },
    /// A client was told where the partition ends.
    Latest {
        partition: PartitionNumber,
        client: usize,
        asked_under: LeaderEpoch,
        answered_under: LeaderEpoch,
        offset: Offset,
    },
    /// The controllers decided another ISR.
    IsrChanged {
        partition: PartitionNumber,
        from: Vec<BrokerId>,
        to: Vec<BrokerId>,
        cause: String,
    },
    /// From now on nothing is written and nothing is broken; or that is over.
    Quiet(bool),
    /// A produce waited for a follower that had stopped to fetch.
    ShrinkProbe {
        partition: PartitionNumber,
        /// `None` if it was not acknowledged at all.
        waited: Option<Duration>,
        allowed: Duration,
    },
    /// A leader was asked where an epoch ends.
    EpochAnswer {
        partition: PartitionNumber,
        leader_epoch: LeaderEpoch,
        log_start: Offset,
        log_end: Offset,
        current: LeaderEpoch,
        asked: LeaderEpoch,
        answer: Result<Option<(LeaderEpoch, Offset)>, ErrorCode>,
        /// Every committed epoch and where it begins.
        epochs: Vec<(LeaderEpoch, Offset)>,
        committed_end: Offset,
    },
    /// The cluster was given time to heal, and did not.
    NotHealed { what: String },
}

/// A record as a log holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Logged {
    pub epoch: LeaderEpoch,
    pub value: u64,
}

/// How things stand.
#[derive(Debug)]
pub struct State<'a> {
    pub partitions: Vec<PartitionState<'a>>,
}

/// How one partition stands.
#[derive(Debug)]
pub struct PartitionState<'a> {
    pub number: PartitionNumber,
    /// As the controllers have decided it.
    pub decided: Arc<PartitionImage>,
    pub min_isr: usize,
    /// Records below this were deleted by request. What replicas still have there, and know of it, is no promise.
    pub deleted_below: Offset,
    /// Everything any leader has ever made visible.
    pub committed: &'a Ledger,
    pub replicas: Vec<ReplicaState>,
}

/// How one replica stands; of a dead one, what its disk holds.
#[derive(Clone, Debug)]
pub struct ReplicaState {
    pub broker: BrokerId,
    pub alive: bool,
    /// Its disk was taken away, and the controllers do not know yet.
    pub lost: bool,
    pub log_start: Offset,
    pub log_end: Offset,
    /// Everything before this is there as durably as it counts.
    pub durable_end: Offset,
    pub high_watermark: Offset,
    pub epochs: Vec<(LeaderEpoch, Offset)>,
    pub leading: Option<Leading>,
    /// At rest: every record from `log_start` on.
    pub records: Vec<(Offset, Logged)>,
}

/// What a leading replica believes.
#[derive(Clone, Debug)]
pub struct Leading {
    pub leader_epoch: LeaderEpoch,
    pub maximal: BTreeSet<BrokerId>,
    pub pending: bool,
    pub isr: BTreeSet<BrokerId>,
    pub partition_epoch: kuorum_protocol::PartitionEpoch,
}

impl ReplicaState {
    /// The epoch of the record at `offset`.
    #[must_use]
    pub fn epoch_at(&self, offset: Offset) -> Option<LeaderEpoch> {
        self.epochs
            .iter()
            .rev()
            .find(|(_, start)| *start <= offset)
            .map(|(epoch, _)| *epoch)
    }
}

/// Everything that was ever visible in one partition, by offset.
#[derive(Debug, Default)]
pub struct Ledger {
    records: Vec<Logged>,
    epochs: Vec<(LeaderEpoch, Offset)>,
}

impl Ledger {
    /// The offset after the last visible record.
    #[must_use]
    pub fn end(&self) -> Offset {
        Offset(self.records.len() as i64)
    }

    /// Every epoch with a visible record, and the first such offset.
    #[must_use]
    pub fn epochs(&self) -> &[(LeaderEpoch, Offset)] {
        &self.epochs
    }

    /// The record at `offset`.
    #[must_use]
    pub fn get(&self, offset: Offset) -> Option<Logged> {
        self.records.get(usize::try_from(offset.0).ok()?).copied()
    }

    /// The record that became visible at the end.
    pub fn push(&mut self, record: Logged) {
        if self.epochs.last().map(|last| last.0) != Some(record.epoch) {
            self.epochs.push((record.epoch, self.end()));
        }
        self.records.push(record);
    }
}

/// All checkers, and the first violation they found.
#[derive(Debug)]
pub struct Checkers {
    all: Vec<Box<dyn Checker>>,
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
            ],
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
        self.each(|checker| checker.on_event(event));
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
