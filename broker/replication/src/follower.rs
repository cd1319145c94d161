//! The follower's side of one partition: first cut back to where the histories part, then copy.
//! Law: every new leader epoch starts at `Truncating`, even under the same leader (KAFKA-7164). An answer counts only
//! for the request it belongs to: same leader epoch, same generation, same offset.

#[cfg(test)]
mod tests;

use std::time::Duration;

use kuorum_protocol::{BrokerId, LeaderEpoch, Monotonic, Offset};

use crate::assignment::Durability;
use crate::mutation::{self, Mutation};

/// What the follower must know of its own log to decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogView {
    pub log_start: Offset,
    pub log_end: Offset,
    pub flushed_end: Offset,
    pub high_watermark: Offset,
    /// The newest leader epoch in the log; `None` if it knows none.
    pub latest_epoch: Option<LeaderEpoch>,
}

/// Names one request. Hand it back with the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub leader_epoch: LeaderEpoch,
    /// Rises with every cut and every new beginning.
    pub generation: u64,
    /// The offset fetched from; −1 for a question about epochs.
    pub offset: Offset,
    /// The epoch asked about, or the last fetched epoch; −1 for none.
    pub epoch: LeaderEpoch,
}

/// What to ask the leader next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowerStep {
    /// OffsetsForLeaderEpoch: where does `epoch` end in the leader's log?
    EpochEnd {
        leader: BrokerId,
        epoch: LeaderEpoch,
        current_leader_epoch: LeaderEpoch,
        ticket: Ticket,
    },
    /// Fetch from `offset`, which also reports everything before it.
    Fetch {
        leader: BrokerId,
        offset: Offset,
        last_fetched_epoch: Option<LeaderEpoch>,
        current_leader_epoch: LeaderEpoch,
        log_start: Offset,
        ticket: Ticket,
    },
    /// Nothing now: nobody leads, a flush is under way, or it is too early to try again.
    Nothing,
}

/// What an answer demands of the log.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Nothing: the answer is stale, or asks for another question.
    None,
    /// Remove everything from this offset on, epoch entries included, even if the log ends there already.
    To(Offset),
    /// Nothing of this log is the leader's, or the leader's begins after this one ends: start anew at this offset, the high
    /// watermark with it (KAFKA-9491).
    Restart(Offset),
}

/// What a fetch that went wrong says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchFailure {
    /// OFFSET_OUT_OF_RANGE, with where the leader's log starts if the answer told.
    OutOfRange { leader_log_start: Option<Offset> },
    /// FENCED_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_*: newer metadata is on its way.
    WaitForMetadata,
    /// Anything else: try again.
    Retry,
}

impl FetchFailure {
    /// Reads the error code of a partition in a Fetch or OffsetForLeaderEpoch answer.
    #[must_use]
    pub fn from_error(code: i16, leader_log_start: Option<Offset>) -> Self {
        match code {
            1 => Self::OutOfRange { leader_log_start },
            3 | 6 | 74 | 100 => Self::WaitForMetadata,
            _ => Self::Retry,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Truncating,
    Fetching,
}

/// One follower, under one leader epoch.
#[derive(Clone, Debug)]
pub struct Follower {
    leader: BrokerId,
    leader_epoch: LeaderEpoch,
    last_unclean_epoch: Option<LeaderEpoch>,
    phase: Phase,
    generation: u64,
    not_before: Monotonic,
}

/// How long to wait after an error before asking again.
const BACKOFF: Duration = Duration::from_millis(100);
/// How long to wait when only newer metadata can help.
const METADATA_BACKOFF: Duration = Duration::from_millis(500);

impl Follower {
    /// Follows `leader` in `leader_epoch`. Generations count on from `generation`, so that no ticket of an earlier
    /// life fits.
    #[must_use]
    pub fn new(leader: BrokerId, leader_epoch: LeaderEpoch, generation: u64) -> Self {
        // The rule about divergence in a fetch shows only where nothing was compared before.
        let by_fetching_alone = mutation::off(Mutation::NoTruncation)
            || mutation::off(Mutation::NoTruncatingPhase)
            || mutation::off(Mutation::DivergenceIsProgress);
        let phase = if by_fetching_alone {
            Phase::Fetching
        } else {
            Phase::Truncating
        };
        Self {
            leader,
            leader_epoch,
            last_unclean_epoch: None,
            phase,
            generation: generation + 1,
            not_before: Monotonic::default(),
        }
    }

    /// The partition's last unclean election: a log without an epoch as new has not been compared with a leader's since.
    #[must_use]
    pub fn after_unclean(mut self, last_unclean_epoch: Option<LeaderEpoch>) -> Self {
        self.last_unclean_epoch = last_unclean_epoch;
        self
    }

    /// What is to be done before the first question. A log that is empty, begins somewhere, and knows no epoch was begun
    /// there because an earlier leader's log did. There is nothing in it to compare, and a leader elected uncleanly since
    /// may have records before that place: the log begins at the very beginning again, so that this leader says where its
    /// own begins. Not if the replica is `counted_on` (of the ISR or eligible): then it was complete under this history.
    pub fn at_first(&mut self, log: &LogView, counted_on: bool) -> Cut {
        let holds_nothing = log.latest_epoch.is_none() && log.log_start == log.log_end;
        if holds_nothing
            && log.log_start > Offset::ZERO
            && self.last_unclean_epoch.is_some()
            && !counted_on
        {
            self.generation += 1;
            return Cut::Restart(Offset::ZERO);
        }
        Cut::None
    }

    #[must_use]
    pub fn leader(&self) -> BrokerId {
        self.leader
    }

    #[must_use]
    pub fn leader_epoch(&self) -> LeaderEpoch {
        self.leader_epoch
    }

    /// The current generation, to build the next follower from.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether the histories have not been compared yet in this epoch.
    #[must_use]
    pub fn is_truncating(&self) -> bool {
        self.phase == Phase::Truncating
    }

    /// What to ask next. With durability `Flushed` nothing is fetched until all that was fetched is flushed: the next
    /// fetch is what tells the leader.
    #[must_use]
    pub fn next_step(&self, log: &LogView, durability: Durability, now: Monotonic) -> FollowerStep {
        if now < self.not_before {
            return FollowerStep::Nothing;
        }
        match (self.phase, log.latest_epoch) {
            (Phase::Truncating, Some(epoch)) => FollowerStep::EpochEnd {
                leader: self.leader,
                epoch,
                current_leader_epoch: self.leader_epoch,
                ticket: self.ticket(Offset::UNKNOWN, Some(epoch)),
            },
            // Nothing written under any epoch: there is no history that could differ.
            (Phase::Truncating, None) | (Phase::Fetching, _) => {
                if durability == Durability::Flushed
                    && log.flushed_end < log.log_end
                    && !mutation::off(Mutation::FollowerReportsUnflushed)
                {
                    return FollowerStep::Nothing;
                }
                let last_fetched_epoch = match self.phase {
                    Phase::Fetching
                        if !mutation::off(Mutation::NoTruncation)
                            && !mutation::off(Mutation::StaleAnswersAppended) =>
                    {
                        log.latest_epoch
                    }
                    _ => None,
                };
                FollowerStep::Fetch {
                    leader: self.leader,
                    offset: log.log_end,
                    last_fetched_epoch,
                    current_leader_epoch: self.leader_epoch,
                    log_start: log.log_start,
                    ticket: self.ticket(log.log_end, last_fetched_epoch),
                }
            }
        }
    }

    /// Whether an answer is one to the question that stands.
    #[must_use]
    pub fn is_current(&self, ticket: &Ticket, log: &LogView) -> bool {
        if mutation::off(Mutation::StaleAnswersAppended) {
            return ticket.offset == Offset::UNKNOWN || ticket.offset == log.log_end;
        }
        ticket.leader_epoch == self.leader_epoch
            && ticket.generation == self.generation
            && (ticket.offset == Offset::UNKNOWN || ticket.offset == log.log_end)
    }

    /// The leader says that `answer.0`, the newest epoch it knows not above the one asked about, ends at `answer.1`;
    /// `None` if it knows none. `own_end_of` tells, for this log, the newest epoch not above the given one and where
    /// it ends. A current ticket is assumed.
    pub fn on_epoch_end(
        &mut self,
        ticket: &Ticket,
        answer: Option<(LeaderEpoch, Offset)>,
        log: &LogView,
        own_end_of: impl Fn(LeaderEpoch) -> Option<(LeaderEpoch, Offset)>,
    ) -> Cut {
        if ticket.offset == Offset::UNKNOWN && self.phase != Phase::Truncating {
            return Cut::None; // a second copy of an answer already acted upon
        }
        self.generation += 1;
        if mutation::off(Mutation::TruncateToHighWatermark) {
            self.phase = Phase::Fetching;
            return Cut::To(log.high_watermark);
        }
        let Some((epoch, leader_end)) = answer else {
            // A log from before there were epochs: only what is below the high watermark is sure to be shared.
            self.phase = Phase::Fetching;
            return Cut::To(log.high_watermark.max(log.log_start));
        };
        match own_end_of(epoch) {
            Some((own, own_end)) if own == epoch => {
                self.phase = Phase::Fetching;
                self.cut_to(own_end.min(leader_end), log)
            }
            // The leader's epoch is unknown here: cut off everything newer than what is known, and ask again (KIP-279).
            Some((_, own_end)) => {
                self.phase = Phase::Truncating;
                self.cut_to(own_end, log)
            }
            None => {
                self.phase = Phase::Fetching;
                self.cut_to(leader_end, log)
            }
        }
    }

    /// A fetch was answered with a divergence: back to truncating, with that answer. A current ticket is assumed.
    pub fn on_diverging(
        &mut self,
        ticket: &Ticket,
        answer: (LeaderEpoch, Offset),
        log: &LogView,
        own_end_of: impl Fn(LeaderEpoch) -> Option<(LeaderEpoch, Offset)>,
    ) -> Cut {
        self.phase = Phase::Truncating;
        self.on_epoch_end(ticket, Some(answer), log, own_end_of)
    }

    /// A fetch was answered with records, or with none, and the histories agree.
    pub fn on_fetched(&mut self) {
        self.phase = Phase::Fetching;
    }

    /// A request failed. A current ticket is assumed.
    pub fn on_failure(&mut self, failure: FetchFailure, log: &LogView, now: Monotonic) -> Cut {
        match failure {
            FetchFailure::OutOfRange {
                leader_log_start: Some(start),
            } if start > log.log_end => {
                self.generation += 1;
                self.phase = Phase::Fetching;
                Cut::Restart(start)
            }
            // This log is the longer one, or nobody knows: compare histories again.
            FetchFailure::OutOfRange { .. } => {
                self.generation += 1;
                if !mutation::off(Mutation::NoTruncation) {
                    self.phase = Phase::Truncating;
                }
                self.not_before = now + BACKOFF;
                Cut::None
            }
            FetchFailure::WaitForMetadata => {
                self.not_before = now + METADATA_BACKOFF;
                Cut::None
            }
            FetchFailure::Retry => {
                self.not_before = now + BACKOFF;
                Cut::None
            }
        }
    }

    /// Cuts where the histories part. After an unclean election that may lie at this log's start or before it: the leader
    /// need not have deleted what was deleted here. Then nothing that is left of this log is known to be shared, and it
    /// begins anew: not there, since what the leader has before that is not here, but at the very beginning, so that the
    /// leader says where its log begins. (Nobody who may be waited for or elected does so: only the leader outlives an
    /// unclean election in the ISR.)
    fn cut_to(&self, end: Offset, log: &LogView) -> Cut {
        let was_compared = log.latest_epoch >= self.last_unclean_epoch;
        let nothing_shared = end < log.log_start
            || end == log.log_start && log.log_start > Offset::ZERO && !was_compared;
        if nothing_shared && !mutation::off(Mutation::CutStopsAtLogStart) {
            return Cut::Restart(Offset::ZERO);
        }
        Cut::To(end.min(log.log_end).max(log.log_start))
    }

    fn ticket(&self, offset: Offset, epoch: Option<LeaderEpoch>) -> Ticket {
        Ticket {
            leader_epoch: self.leader_epoch,
            generation: self.generation,
            offset,
            epoch: epoch.unwrap_or(LeaderEpoch::UNKNOWN),
        }
    }
}
