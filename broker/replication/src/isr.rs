//! The in-sync replicas of a partition, as its leader sees them while a change is on its way.
//! Law: one change in flight. The high watermark is held back by `maximal`, and does not move at all while somebody
//! outside the ISR may lead (the ELR); acks=all is admitted by `committed`.

use std::collections::BTreeSet;

use kuorum_metadata::record::LeaderRecoveryState;
use kuorum_metadata::rpc::AlterPartitionResult;
use kuorum_protocol::{BrokerEpoch, BrokerId, LeaderEpoch, Monotonic, PartitionEpoch};

use crate::assignment::Assignment;
use crate::mutation::{self, Mutation};

/// A set of brokers.
pub type Replicas = BTreeSet<BrokerId>;

/// The ISR and what is being asked for (KIP-497).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Isr {
    /// As the controllers decided it.
    Committed { isr: Replicas },
    /// One follower has been proposed as a new member.
    Expanding { isr: Replicas, joining: BrokerId },
    /// Some members have been proposed to leave.
    Shrinking { isr: Replicas, leaving: Replicas },
    /// Nobody joins or leaves: the leader says that its log is in order after an unclean election (KIP-704).
    Recovering { isr: Replicas },
    /// Nobody joins or leaves: the leader asks whether it still leads. An answer that accepts was decided after the question.
    Confirming { isr: Replicas },
}

impl Isr {
    /// The last ISR known to be decided.
    #[must_use]
    pub fn committed(&self) -> &Replicas {
        match self {
            Self::Committed { isr }
            | Self::Recovering { isr }
            | Self::Confirming { isr }
            | Self::Expanding { isr, .. }
            | Self::Shrinking { isr, .. } => isr,
        }
    }

    /// Everyone who may be in the ISR as the controllers see it: the only set that may hold back the high watermark.
    #[must_use]
    pub fn maximal(&self) -> Replicas {
        match self {
            Self::Committed { isr } | Self::Recovering { isr } | Self::Confirming { isr } => {
                isr.clone()
            }
            Self::Expanding { isr, joining } => {
                let mut all = isr.clone();
                if !mutation::off(Mutation::HighWatermarkIgnoresMaximalIsr) {
                    all.insert(*joining);
                }
                all
            }
            Self::Shrinking { isr, leaving } => {
                if mutation::off(Mutation::HighWatermarkIgnoresMaximalIsr) {
                    return isr.difference(leaving).copied().collect();
                }
                isr.clone()
            }
        }
    }

    /// How many are in `maximal`.
    #[must_use]
    pub fn maximal_len(&self) -> usize {
        match self {
            Self::Expanding { isr, .. } => isr.len() + 1,
            Self::Committed { isr }
            | Self::Recovering { isr }
            | Self::Confirming { isr }
            | Self::Shrinking { isr, .. } => isr.len(),
        }
    }

    /// What the controllers are asked for; the committed set when nothing is.
    #[must_use]
    pub fn proposed(&self) -> Replicas {
        match self {
            Self::Committed { isr } | Self::Recovering { isr } | Self::Confirming { isr } => {
                isr.clone()
            }
            Self::Expanding { isr, joining } => {
                let mut all = isr.clone();
                all.insert(*joining);
                all
            }
            Self::Shrinking { isr, leaving } => isr.difference(leaving).copied().collect(),
        }
    }

    /// Whether a change is on its way.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        !matches!(self, Self::Committed { .. })
    }
}

/// What a leader asks the controllers for. It goes into an `AlterPartition` as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IsrProposal {
    /// Distinguishes this proposal from others of the same partition on this broker; the answer must carry it.
    pub number: u64,
    pub leader_epoch: LeaderEpoch,
    pub partition_epoch: PartitionEpoch,
    /// Each member with the incarnation the leader heard from, −1 if it never did.
    pub new_isr: Vec<(BrokerId, BrokerEpoch)>,
    /// A leader that proposes has put its log in order (KIP-704).
    pub leader_recovery_state: LeaderRecoveryState,
}

/// What became of a proposal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IsrReply {
    /// It was decided; this is how the partition stands.
    Accepted {
        leader_epoch: LeaderEpoch,
        partition_epoch: PartitionEpoch,
        isr: Replicas,
        /// Who else may lead (KIP-966).
        elr: Replicas,
    },
    /// It was certainly not applied (INELIGIBLE_REPLICA, OPERATION_NOT_ATTEMPTED).
    NotApplied,
    /// Refused because the two sides know different things: the metadata on its way will tell which holds
    /// (FENCED_LEADER_EPOCH, INVALID_UPDATE_VERSION, UNKNOWN_*, NEW_LEADER_ELECTED, INVALID_REQUEST).
    WaitForMetadata,
    /// No answer, or one that says nothing about the proposal (timeouts, NOT_CONTROLLER): ask again.
    Unanswered,
}

impl IsrReply {
    /// Reads the code of an `AlterPartition` answer that is an error.
    #[must_use]
    pub fn from_error(code: i16) -> Self {
        const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
        const INVALID_REQUEST: i16 = 42;
        const OPERATION_NOT_ATTEMPTED: i16 = 55;
        const FENCED_LEADER_EPOCH: i16 = 74;
        const UNKNOWN_LEADER_EPOCH: i16 = 75;
        const INVALID_UPDATE_VERSION: i16 = 95;
        const UNKNOWN_TOPIC_ID: i16 = 100;
        const INELIGIBLE_REPLICA: i16 = 107;
        const NEW_LEADER_ELECTED: i16 = 108;
        match code {
            INELIGIBLE_REPLICA | OPERATION_NOT_ATTEMPTED => Self::NotApplied,
            UNKNOWN_TOPIC_OR_PARTITION
            | INVALID_REQUEST
            | FENCED_LEADER_EPOCH
            | UNKNOWN_LEADER_EPOCH
            | INVALID_UPDATE_VERSION
            | UNKNOWN_TOPIC_ID
            | NEW_LEADER_ELECTED => Self::WaitForMetadata,
            _ => Self::Unanswered,
        }
    }
}

impl From<&AlterPartitionResult> for IsrReply {
    fn from(result: &AlterPartitionResult) -> Self {
        match result.error {
            0 => Self::Accepted {
                leader_epoch: result.leader_epoch,
                partition_epoch: result.partition_epoch,
                isr: result.isr.iter().copied().collect(),
                elr: result.elr.iter().copied().collect(),
            },
            code => Self::from_error(code),
        }
    }
}

/// The ISR, the proposal that is on its way for it, and how replies change both.
#[derive(Clone, Debug)]
pub(crate) struct IsrState {
    pub(crate) isr: Isr,
    /// Who may be elected although it is not in the ISR: the high watermark waits until there is nobody.
    pub(crate) elr: Replicas,
    /// Whether the controllers still take the log for one that is being put in order.
    pub(crate) recovering: bool,
    pub(crate) partition_epoch: PartitionEpoch,
    request: Option<Request>,
    next_number: u64,
    /// The newest proposal that was accepted: when it was sent the leader still led.
    pub(crate) accepted: Option<u64>,
    /// After a refusal nothing is proposed before this.
    not_before: Monotonic,
}

#[derive(Clone, Debug)]
struct Request {
    proposal: IsrProposal,
    awaiting: Awaiting,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaiting {
    Reply,
    /// Send the same again at this time.
    Retry(Monotonic),
    Metadata,
}

impl IsrState {
    pub(crate) fn new(assignment: &Assignment, next_number: u64) -> Self {
        Self {
            isr: Isr::Committed {
                isr: assignment.isr.clone(),
            },
            elr: assignment.elr.clone(),
            recovering: assignment.recovering,
            partition_epoch: assignment.partition_epoch,
            request: None,
            next_number,
            accepted: None,
            not_before: Monotonic::default(),
        }
    }

    pub(crate) fn next_number(&self) -> u64 {
        self.next_number
    }

    /// Whether a new change may be proposed.
    pub(crate) fn may_propose(&self, now: Monotonic) -> bool {
        !self.isr.is_pending() && now >= self.not_before
    }

    /// Goes into `pending` and returns what to send.
    pub(crate) fn propose(
        &mut self,
        pending: Isr,
        leader_epoch: LeaderEpoch,
        broker_epoch: impl Fn(BrokerId) -> BrokerEpoch,
    ) -> IsrProposal {
        assert!(!self.isr.is_pending(), "one change is in flight at a time");
        assert!(pending.is_pending(), "a proposal asks for a change");
        let proposal = IsrProposal {
            number: self.next_number,
            leader_epoch,
            partition_epoch: self.partition_epoch,
            new_isr: pending
                .proposed()
                .into_iter()
                .map(|broker| (broker, broker_epoch(broker)))
                .collect(),
            leader_recovery_state: LeaderRecoveryState::Recovered,
        };
        self.next_number += 1;
        self.isr = pending;
        self.request = Some(Request {
            proposal: proposal.clone(),
            awaiting: Awaiting::Reply,
        });
        proposal
    }

    /// The metadata image shows the partition so. Older news is ignored; newer news settles whatever was pending.
    /// Returns whether anything changed.
    pub(crate) fn on_metadata(&mut self, assignment: &Assignment) -> bool {
        if assignment.partition_epoch <= self.partition_epoch
            || (self.isr.is_pending() && mutation::off(Mutation::MetadataSettlesNothing))
        {
            return false;
        }
        self.recovering = assignment.recovering;
        self.settle(
            assignment.isr.clone(),
            assignment.elr.clone(),
            assignment.partition_epoch,
        );
        true
    }

    /// A reply to proposal `number` has come, or will never come. Returns whether the ISR changed.
    pub(crate) fn on_reply(
        &mut self,
        number: u64,
        reply: IsrReply,
        leader_epoch: LeaderEpoch,
        now: Monotonic,
        backoff: std::time::Duration,
    ) -> bool {
        let Some(request) = &mut self.request else {
            return false;
        };
        if request.proposal.number != number {
            return false; // it answers a proposal that was given up (KAFKA-12686)
        }
        match reply {
            IsrReply::Accepted {
                leader_epoch: decided_for,
                partition_epoch,
                isr,
                elr,
            } => {
                if decided_for != leader_epoch || partition_epoch < self.partition_epoch {
                    request.awaiting = Awaiting::Metadata;
                    return false;
                }
                // Equal: the controllers had it so already (KAFKA-12751).
                // Every proposal says that the log is in order.
                self.recovering = false;
                self.accepted = Some(number);
                self.settle(isr, elr, partition_epoch);
                true
            }
            IsrReply::NotApplied => {
                let committed = self.isr.committed().clone();
                self.isr = Isr::Committed { isr: committed };
                self.request = None;
                self.not_before = now + backoff;
                true
            }
            IsrReply::WaitForMetadata => {
                request.awaiting = Awaiting::Metadata;
                false
            }
            IsrReply::Unanswered => {
                if !mutation::off(Mutation::UnansweredIsForgotten) {
                    request.awaiting = Awaiting::Retry(now + backoff);
                }
                false
            }
        }
    }

    /// The proposal that is due to be sent again.
    pub(crate) fn due_retry(&mut self, now: Monotonic) -> Option<IsrProposal> {
        let request = self.request.as_mut()?;
        match request.awaiting {
            Awaiting::Retry(at) if at <= now => {
                request.awaiting = Awaiting::Reply;
                Some(request.proposal.clone())
            }
            _ => None,
        }
    }

    fn settle(&mut self, isr: Replicas, elr: Replicas, partition_epoch: PartitionEpoch) {
        self.isr = Isr::Committed { isr };
        self.elr = elr;
        self.partition_epoch = partition_epoch;
        self.request = None;
    }
}
