//! The rules for changing what the cluster has agreed on. Each takes an image and what is known of the moment (who has
//! been heard from, what time it is) and returns the records that say what was decided, and the answer.
//! Law: a decision changes nothing but the soft state it is handed. What its answer promises is true once the records
//! are applied, and not before.

pub mod command;

pub mod brokers;
pub mod configs;
pub mod election;
pub mod heartbeats;
pub mod isr;
pub mod leaders;
pub mod office;
pub mod partitions;
pub mod placement;
pub mod producer_ids;
pub mod reassignment;
pub mod reports;
pub mod salvage;
pub mod tick;
pub mod topics;

mod random;

use kuorum_protocol::Now;
use kuorum_protocol::error_code::ErrorCode;

pub use command::{Command, CommandReply};
pub use heartbeats::Heartbeats;
pub use random::Random;

use crate::image::MetadataImage;
use crate::record::MetadataRecord;
use crate::rpc::RpcError;

/// What was decided: the records to propose, and what to answer once they are applied.
///
/// A batch that registers a broker must be the last decision of its entry of the log: a broker epoch is the offset of
/// its entry, and two registrations of one broker in one entry would get the same.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a decision that is not proposed never happens"]
pub struct Decision<R> {
    /// Empty when nothing needs to change.
    pub records: Vec<MetadataRecord>,
    /// For the one who asked.
    pub response: R,
}

impl<R> Decision<R> {
    /// Nothing to record.
    pub fn unchanged(response: R) -> Self {
        Self {
            records: Vec::new(),
            response,
        }
    }

    /// Whether the answer may be given at once.
    pub fn is_unchanged(&self) -> bool {
        self.records.is_empty()
    }
}

/// Why something was not decided: Kafka's error code, and a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The code as it goes over the wire.
    pub code: ErrorCode,
    /// What was wrong and, where one knows, what to do.
    pub message: String,
}

impl Refusal {
    /// A refusal with its sentence.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }
}

impl From<&Refusal> for ErrorCode {
    fn from(refusal: &Refusal) -> Self {
        refusal.code
    }
}

impl From<Refusal> for RpcError {
    fn from(refusal: Refusal) -> Self {
        Self::new(refusal.code, refusal.message)
    }
}

/// Decides what a client asked for through a broker or the admin API.
///
/// `random` is fresh for every decision: topic ids and placement come from it.
pub fn decide(
    image: &MetadataImage,
    soft: &Heartbeats,
    command: &Command,
    now: Now,
    random: &mut Random,
) -> Decision<CommandReply> {
    match command {
        Command::CreateTopics(request) => {
            topics::create(image, request, random).map(CommandReply::CreateTopics)
        }
        Command::DeleteTopics(request) => {
            topics::delete(image, request).map(CommandReply::DeleteTopics)
        }
        Command::CreatePartitions(request) => {
            partitions::create(image, request, random).map(CommandReply::CreatePartitions)
        }
        Command::AlterConfigs(request) => {
            let decision = configs::alter(image, request).map(CommandReply::AlterConfigs);
            with_consequences(image, soft, decision)
        }
        Command::ReplaceConfigs(request) => {
            let decision = configs::replace(image, request).map(CommandReply::AlterConfigs);
            with_consequences(image, soft, decision)
        }
        Command::ElectLeaders(request) => {
            leaders::elect(image, soft, request).map(CommandReply::ElectLeaders)
        }
        Command::Reassign(request) => {
            reassignment::reassign(image, soft, request).map(CommandReply::Reassign)
        }
        Command::UnregisterBroker { broker_id } => {
            brokers::unregister(image, soft, *broker_id, now).map(CommandReply::UnregisterBroker)
        }
        Command::DrainBroker {
            broker_id,
            draining,
        } => brokers::drain(image, soft, *broker_id, *draining).map(CommandReply::DrainBroker),
    }
}

/// Adds what changed settings mean for the partitions, in the same batch: leaders where unclean election is now allowed,
/// and no ELR where the minimum is now met.
fn with_consequences<R>(
    image: &MetadataImage,
    soft: &Heartbeats,
    mut decision: Decision<R>,
) -> Decision<R> {
    if !decision.is_unchanged() {
        let mut after = image.clone();
        after.apply_records(image.offset(), &decision.records);
        let consequences = election::reconcile(
            &after,
            |id| soft.standing(&after, id),
            None,
            "configuration changed",
        );
        decision.records.extend(consequences);
    }
    decision
}

impl<R> Decision<R> {
    /// The same records with another form of the answer.
    pub fn map<S>(self, form: impl FnOnce(R) -> S) -> Decision<S> {
        Decision {
            records: self.records,
            response: form(self.response),
        }
    }
}
