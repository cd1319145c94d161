//! What must hold while the simulated cluster is being hurt, and after it has healed: one property, one file.
//! Law: a checker sees what happened and how things stand; it never touches the cluster. Letters and numbers are
//! the rows of the replication section of the project's correctness notes.
//!
//! An unclean election may lose what the elected leader did not have at that moment, and nothing else. From then on
//! that end of the history is abandoned: what leaders of earlier epochs said or say of it is no promise, and is shown
//! only to the checkers that ask for it. All that lies before is held to the same rules as ever.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kuorum_metadata::image::PartitionImage;
use kuorum_protocol::{BrokerId, ErrorCode, LeaderEpoch, Offset};

mod acked_is_durable;
mod consistent_read;
mod convergence;
mod epoch_table;
mod failover_after_both_died;
mod high_watermark_after_shrink;
mod high_watermark_monotone;
mod idle_no_flap;
mod isr_join;
mod log_matching;
mod min_isr_visibility;
mod no_leaving_member;
mod no_stale_epoch_ack;
mod no_wedge;
mod no_zombie_reads;
mod readers_are_told;
mod replication_quorum_superset;
mod restart_is_new;
mod sequences_are_kept;
mod shutdown_hands_over;
mod unclean_only_where_allowed;

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
        leader_epoch: LeaderEpoch,
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
    /// An idempotent producer that has lost nothing itself was told that its sequence does not fit.
    SequenceRefused {
        partition: PartitionNumber,
        client: usize,
        /// acks=all.
        all: bool,
        code: ErrorCode,
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
        /// Which consumer, if it is one that reads everything in order and compares epochs (KIP-320).
        consumer: Option<usize>,
    },
    /// A consumer that compares epochs was told that the history it has read ends at `to`.
    CutTold {
        partition: PartitionNumber,
        consumer: usize,
        to: Offset,
    },
    /// A leader was elected that may lack records.
    UncleanElection {
        partition: PartitionNumber,
        leader: BrokerId,
        leader_epoch: LeaderEpoch,
        /// How much of what was ever visible the elected leader held.
        keeps: Offset,
        /// Whether the topic's policy, or somebody by hand, allowed it.
        allowed: bool,
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
        /// New members that are fenced or shutting down, as the controllers know it.
        not_admissible: Vec<BrokerId>,
        cause: String,
    },
    /// A leader asked for another ISR.
    IsrProposed {
        partition: PartitionNumber,
        leader: BrokerId,
        /// Members that its own metadata show as fenced or shutting down.
        not_admissible: Vec<BrokerId>,
    },
    /// The controllers let a broker go that had asked to shut down.
    LeaveGiven {
        broker: BrokerId,
        /// What it still leads, as the controllers know it.
        leads: Vec<PartitionNumber>,
        /// Where it is still in sync although somebody else leads.
        in_sync: Vec<PartitionNumber>,
    },
    /// A leader was asked to shut down in a healthy cluster, under load.
    ShutdownProbe {
        broker: BrokerId,
        /// `None` if it was not let go at all.
        waited: Option<Duration>,
        /// The longest a produce waited meanwhile.
        longest_pause: Duration,
        allowed: Duration,
    },
    /// A leader and the active controller died together.
    FailoverProbe {
        partition: PartitionNumber,
        /// `None` if nobody took over.
        waited: Option<Duration>,
        allowed: Duration,
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

/// The unclean elections of one partition: the leader epoch each began, and how much of the history it kept.
#[derive(Clone, Debug, Default)]
pub struct Cuts(Vec<(LeaderEpoch, Offset)>);

impl Cuts {
    /// An unclean election began `leader_epoch` and kept what lies before `keeps`.
    pub fn add(&mut self, leader_epoch: LeaderEpoch, keeps: Offset) {
        self.0.push((leader_epoch, keeps));
    }

    /// Up to where what a leader of `epoch` says still holds: as much as every later unclean election has kept.
    #[must_use]
    pub fn firm_below(&self, epoch: LeaderEpoch) -> Offset {
        self.0
            .iter()
            .filter(|(cut, _)| *cut > epoch)
            .map(|(_, keeps)| *keeps)
            .min()
            .unwrap_or(Offset(i64::MAX))
    }

    /// Whether there was none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Up to where every history there ever was agrees.
    #[must_use]
    pub fn shared_by_all(&self) -> Offset {
        self.firm_below(LeaderEpoch::UNKNOWN)
    }
}

/// Everything that was ever visible in one partition, by offset; without what unclean elections have abandoned.
#[derive(Debug, Default)]
pub struct Ledger {
    records: Vec<Logged>,
    epochs: Vec<(LeaderEpoch, Offset)>,
    cuts: Cuts,
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

    /// The unclean elections there were.
    #[must_use]
    pub fn cuts(&self) -> &Cuts {
        &self.cuts
    }

    /// How much of it a replica with these epochs, whose log lies in `[start, end)`, holds. What it has deleted at its
    /// start it once held, unless that is of a later epoch than what it has there.
    #[must_use]
    pub fn held_by(&self, epochs: &[(LeaderEpoch, Offset)], end: Offset, start: Offset) -> Offset {
        let epoch_at = |offset: Offset| {
            let mut known = epochs.iter().rev();
            known
                .find(|(_, first)| *first <= offset)
                .map(|(epoch, _)| *epoch)
        };
        let mut held = self.end().min(end);
        for (place, record) in self.records.iter().enumerate() {
            let offset = Offset(place as i64);
            if offset >= held {
                break;
            }
            let holds = match offset >= start {
                true => epoch_at(offset) == Some(record.epoch),
                false => epoch_at(start).is_none_or(|epoch| record.epoch <= epoch),
            };
            if !holds {
                held = offset;
            }
        }
        held
    }

    /// An unclean election began `leader_epoch` and kept what lies before `keeps`: the rest is no more.
    pub fn abandon(&mut self, leader_epoch: LeaderEpoch, keeps: Offset) {
        self.cuts.add(leader_epoch, keeps);
        self.records.truncate(usize::try_from(keeps.0).unwrap_or(0));
        self.epochs.retain(|(_, start)| *start < keeps);
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
