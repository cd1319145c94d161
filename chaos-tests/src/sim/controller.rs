//! The controllers as a linear log: each decision is the product of `control`, each batch is applied to one image, and
//! brokers see the log later. What Raft does is assumed; that it may be away for a while, and come back under another
//! epoch with everything forgotten that was not recorded, is not.

use std::collections::BTreeMap;
use std::time::Duration;

use kuorum_metadata::control;
use kuorum_metadata::control::command::{CreateTopics, ElectLeaders, ElectionType, NewTopic};
use kuorum_metadata::control::heartbeats::{SessionId, Timings};
use kuorum_metadata::control::{
    Command, CommandReply, Decision, Heartbeats, brokers, decide, isr, office, tick,
};
use kuorum_metadata::image::MetadataImage;
use kuorum_metadata::record::{MetadataRecord, RecordBatch};
use kuorum_metadata::rpc::{
    AlterPartition, AlterPartitionRequest, HeartbeatReply, HeartbeatRequest, RegisterRequest,
};
use kuorum_protocol::{BrokerEpoch, BrokerId, ErrorCode, Now, PartitionIndex, Timestamp, TopicId};
use kuorum_replication::{Durability, IsrProposal, IsrReply};

use super::plan::Plan;
use super::random::Random;

/// The quorum, seen from outside.
#[derive(Debug)]
pub(super) struct Controller {
    log: Vec<RecordBatch>,
    image: MetadataImage,
    soft: Heartbeats,
    timings: Timings,
    /// Who is in office; `None` between two.
    active: Option<u64>,
    next_id: u64,
    sessions: BTreeMap<BrokerId, (u64, SessionId)>,
}

impl Controller {
    pub(super) fn new(plan: &Plan, now: Now) -> Self {
        let timings = Timings {
            session_timeout: plan.session_timeout,
            disconnect_grace: Duration::from_millis(250),
        };
        let mut controller = Self {
            log: Vec::new(),
            image: MetadataImage::default(),
            soft: Heartbeats::new(timings),
            timings,
            active: None,
            next_id: 1,
            sessions: BTreeMap::new(),
        };
        controller.take_office(now);
        controller
    }

    /// How things are decided.
    pub(super) fn image(&self) -> &MetadataImage {
        &self.image
    }

    /// The offset after the last entry.
    pub(super) fn end(&self) -> i64 {
        self.log.len() as i64
    }

    /// The entries from `from` on.
    pub(super) fn entries(&self, from: i64) -> impl Iterator<Item = (i64, &RecordBatch)> {
        (from..self.end()).map(|offset| (offset, &self.log[offset as usize]))
    }

    /// Whether somebody is in office.
    pub(super) fn is_active(&self) -> bool {
        self.active.is_some()
    }

    /// Nobody decides for a while.
    pub(super) fn leave_office(&mut self) {
        self.active = None;
    }

    /// Another controller takes office: it knows what is recorded, and nobody's heartbeats.
    pub(super) fn take_office(&mut self, now: Now) {
        let id = 1 + self.next_id % 3;
        self.next_id += 1;
        self.active = Some(id);
        let batch = office::take_office(&self.image, id, &BTreeMap::new());
        self.append(batch);
        self.soft = Heartbeats::new(self.timings);
        self.soft.take_office(&self.image, now);
        self.sessions.clear();
    }

    /// Registers a process. `None` if it must wait.
    pub(super) fn register(&mut self, request: &RegisterRequest, now: Now) -> Option<BrokerEpoch> {
        self.active?;
        let decision = brokers::register(&self.image, &self.soft, request, now).ok()?;
        self.commit(decision);
        let epoch = self.image.broker(request.broker_id)?.epoch;
        self.soft.registered(request.broker_id, epoch, now);
        Some(epoch)
    }

    pub(super) fn heartbeat(
        &mut self,
        run: u64,
        request: &HeartbeatRequest,
        now: Now,
    ) -> Result<HeartbeatReply, ErrorCode> {
        if self.active.is_none() {
            return Err(ErrorCode::NotController);
        }
        self.soft.heard(
            request.broker_id,
            request.broker_epoch,
            request.metadata_offset,
            now,
        );
        let decision = brokers::heartbeat(&self.image, &mut self.soft, request, now)
            .map_err(|refusal| refusal.code)?;
        let has_session = self
            .sessions
            .get(&request.broker_id)
            .is_some_and(|session| session.0 == run);
        if !has_session {
            let session = self
                .soft
                .session_opened(request.broker_id, request.broker_epoch, now);
            self.sessions.insert(request.broker_id, (run, session));
        }
        Ok(self.commit(decision))
    }

    /// The connection of a process has ended.
    pub(super) fn connection_lost(&mut self, broker: BrokerId, run: u64, now: Now) {
        if let Some((_, session)) = self.sessions.get(&broker).filter(|known| known.0 == run) {
            self.soft.session_closed(broker, *session, now);
            self.sessions.remove(&broker);
        }
    }

    /// A leader asks for another ISR.
    pub(super) fn alter(
        &mut self,
        broker: BrokerId,
        broker_epoch: BrokerEpoch,
        (topic_id, partition): (TopicId, PartitionIndex),
        proposal: &IsrProposal,
    ) -> IsrReply {
        if self.active.is_none() {
            return IsrReply::from_error(ErrorCode::NotController as i16);
        }
        let request = AlterPartitionRequest {
            broker_id: broker,
            broker_epoch,
            partitions: vec![AlterPartition {
                topic_id,
                partition,
                leader_epoch: proposal.leader_epoch,
                partition_epoch: proposal.partition_epoch,
                new_isr: proposal.new_isr.clone(),
                leader_recovery_state: proposal.leader_recovery_state,
            }],
        };
        match isr::alter_partition(&self.image, &request) {
            Ok(decision) => {
                let reply = self.commit(decision);
                reply
                    .partitions
                    .first()
                    .map_or(IsrReply::Unanswered, IsrReply::from)
            }
            Err(refusal) => IsrReply::from_error(refusal.code as i16),
        }
    }

    /// Time has passed.
    pub(super) fn tick(&mut self, now: Now) {
        if self.active.is_none() {
            return;
        }
        while let Some(decision) = tick::tick(&self.image, &self.soft, now) {
            self.commit(decision);
        }
    }

    /// Creates the topic; whether that went well.
    pub(super) fn create_topic(&mut self, plan: &Plan, random: &mut Random, now: Now) -> bool {
        let durability = match plan.durability {
            Durability::Flushed => "flushed",
            Durability::PageCache => "page.cache",
        };
        let command = Command::CreateTopics(CreateTopics {
            topics: vec![NewTopic {
                name: "bank-transfers".to_owned(),
                num_partitions: plan.partitions as i32,
                replication_factor: plan.replication_factor as i16,
                assignments: Vec::new(),
                configs: vec![
                    (
                        "min.insync.replicas".to_owned(),
                        Some(plan.min_isr.to_string()),
                    ),
                    ("acks.durability".to_owned(), Some(durability.to_owned())),
                ],
            }],
            validate_only: false,
        });
        match self.command(&command, random, now) {
            CommandReply::CreateTopics(results) => {
                results.iter().all(|result| result.outcome.is_ok())
            }
            _ => false,
        }
    }

    /// Gives every partition back to the first of its assignment.
    pub(super) fn elect_preferred(&mut self, random: &mut Random, now: Now) {
        if self.active.is_some() {
            let command = Command::ElectLeaders(ElectLeaders {
                election: ElectionType::Preferred,
                partitions: None,
            });
            let _ = self.command(&command, random, now);
        }
    }

    fn command(&mut self, command: &Command, random: &mut Random, now: Now) -> CommandReply {
        let mut fresh = control::Random::new(random.number());
        let decision = decide(&self.image, &self.soft, command, now, &mut fresh);
        self.commit(decision)
    }

    fn commit<R>(&mut self, decision: Decision<R>) -> R {
        if !decision.records.is_empty() {
            self.append(RecordBatch {
                controller_epoch: self.image.controller_epoch(),
                decided_at: Timestamp::NONE,
                records: decision.records,
            });
        }
        decision.response
    }

    fn append(&mut self, batch: RecordBatch) {
        let offset = self.end();
        let _ = self.image.apply_batch(offset, &batch);
        self.log.push(batch);
    }

    /// Why a partition changed in the entries from `from` on, for reports.
    pub(super) fn causes(&self, from: i64, topic: TopicId, index: PartitionIndex) -> String {
        self.entries(from)
            .flat_map(|(_, batch)| &batch.records)
            .filter_map(|record| match record {
                MetadataRecord::PartitionChange(change)
                    if change.topic_id == topic && change.partition == index =>
                {
                    Some(change.cause.as_str())
                }
                _ => None,
            })
            .collect::<Vec<_>>()
            .join(", ")
    }
}
