//! The controllers as a linear log: each decision is the product of `control`, each batch is applied to one image, and
//! brokers see the log later. What Raft does is assumed; that it may be away for a while, and come back under another
//! epoch with everything forgotten that was not recorded, is not. Nor is that one who has left office does not know it
//! yet: for a while he goes on deciding, from what he knew, and the log must show that he no longer counts.

use std::collections::BTreeMap;
use std::time::Duration;

use kuorum_metadata::control;
use kuorum_metadata::control::command::{
    AlterConfigs, AlterConfigsResource, ConfigOp, ConfigOpKind, CreateTopics, ElectLeaders,
    ElectionType, NewTopic, Reassign, ReassignPartition,
};
use kuorum_metadata::control::heartbeats::{SessionId, Timings};
use kuorum_metadata::control::{
    Command, CommandReply, Decision, Heartbeats, brokers, decide, isr, office, tick,
};
use kuorum_metadata::image::{Applied, MetadataImage};
use kuorum_metadata::record::{ConfigResource, MetadataRecord, RecordBatch};
use kuorum_metadata::rpc::{
    AlterPartitionRequest, HeartbeatReply, HeartbeatRequest, RegisterRequest,
};
use kuorum_protocol::{BrokerEpoch, BrokerId, ErrorCode, Now, PartitionIndex, Timestamp, TopicId};
use kuorum_replication::{Durability, IsrReply};

use super::plan::Plan;
use super::random::Random;

const UNCLEAN: &str = "unclean.leader.election.enable";

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
    /// The last one in office, as long as he believes that he still is.
    former: Option<Former>,
    /// Batches in the log that did not count.
    pub(super) skipped: u64,
}

/// A controller that does not know that it was deposed.
#[derive(Debug)]
struct Former {
    image: MetadataImage,
    soft: Heartbeats,
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
            former: None,
            skipped: 0,
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

    /// Nobody decides for a while; except that the one who did may not know that he no longer does.
    pub(super) fn leave_office(&mut self, knows: bool) {
        if self.active.take().is_some() && !knows {
            self.former = Some(Former {
                image: self.image.clone(),
                soft: self.soft.clone(),
            });
        }
    }

    /// Whether somebody still believes to be in office who is not.
    pub(super) fn has_former(&self) -> bool {
        self.former.is_some()
    }

    /// He has learnt it.
    pub(super) fn former_learns(&mut self) {
        self.former = None;
    }

    /// The one who believes to be in office decides about an ISR. What he proposes goes into the log, and he is answered
    /// for by nobody: he learns from the log that it did not count.
    pub(super) fn former_alters(&mut self, request: &AlterPartitionRequest) {
        let Some(former) = &self.former else {
            return;
        };
        if let Ok(decision) = isr::alter_partition(&former.image, request) {
            self.former_proposes(decision.records);
        }
    }

    /// He hears nothing from the brokers any more, and fences them one by one.
    pub(super) fn former_ticks(&mut self, now: Now) {
        let Some(former) = &self.former else {
            return;
        };
        if let Some(decision) = tick::tick(&former.image, &former.soft, now) {
            self.former_proposes(decision.records);
        }
    }

    fn former_proposes(&mut self, records: Vec<MetadataRecord>) {
        let Some(former) = &self.former else {
            return;
        };
        if records.is_empty() || self.active.is_none() {
            return; // only a quorum with a leader takes anything into its log
        }
        let batch = RecordBatch {
            controller_epoch: former.image.controller_epoch(),
            decided_at: Timestamp::NONE,
            records,
        };
        self.append(batch);
        self.former = None;
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

    /// A process will close its connection on purpose.
    pub(super) fn goodbye(&mut self, broker: BrokerId, broker_epoch: BrokerEpoch) {
        self.soft.goodbye(broker, broker_epoch);
    }

    /// The connection of a process has ended.
    pub(super) fn connection_lost(&mut self, broker: BrokerId, run: u64, now: Now) {
        if let Some((_, session)) = self.sessions.get(&broker).filter(|known| known.0 == run) {
            self.soft.session_closed(broker, *session, now);
            self.sessions.remove(&broker);
        }
    }

    /// A leader asks for another ISR.
    pub(super) fn alter(&mut self, request: &AlterPartitionRequest) -> IsrReply {
        if self.active.is_none() {
            return IsrReply::from_error(ErrorCode::NotController as i16);
        }
        match isr::alter_partition(&self.image, request) {
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

    /// Whom the controller in office misses.
    pub(super) fn missing(&self, now: Now) -> Vec<(BrokerId, BrokerEpoch)> {
        match self.active {
            Some(_) => self.soft.missing(&self.image, now),
            None => Vec::new(),
        }
    }

    /// The host of a missing broker says that nobody listens there.
    pub(super) fn refused(&mut self, broker: BrokerId, epoch: BrokerEpoch, now: Now) {
        self.soft.refused(broker, epoch, now);
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

    /// Creates the topics, all with the same placement; whether that went well.
    pub(super) fn create_topics(&mut self, plan: &Plan, random: &mut Random, now: Now) -> bool {
        let durability = match plan.durability {
            Durability::Flushed => "flushed",
            Durability::PageCache => "page.cache",
        };
        let mut placement: Vec<Vec<BrokerId>> = Vec::new();
        for topic in &plan.topics {
            while placement.len() < topic.partitions {
                let mut brokers: Vec<BrokerId> = (1..=plan.brokers as i32).map(BrokerId).collect();
                // The first of a story's partitions lies on the brokers in their order.
                if !plan.rough.is_zero() {
                    for place in (1..brokers.len()).rev() {
                        brokers.swap(place, random.below(place + 1));
                    }
                }
                brokers.truncate(plan.replication_factor);
                placement.push(brokers);
            }
        }
        let topics = plan.topics.iter().map(|topic| NewTopic {
            name: topic.name.to_owned(),
            num_partitions: -1,
            replication_factor: -1,
            assignments: (0..topic.partitions)
                .map(|index| (index as PartitionIndex, placement[index].clone()))
                .collect(),
            configs: [
                ("min.insync.replicas", topic.min_isr.to_string()),
                ("acks.durability", durability.to_owned()),
                (UNCLEAN, topic.unclean.to_string()),
            ]
            .map(|(name, value)| (name.to_owned(), Some(value)))
            .to_vec(),
        });
        let command = Command::CreateTopics(CreateTopics {
            topics: topics.collect(),
            validate_only: false,
        });
        match self.command(&command, random, now) {
            CommandReply::CreateTopics(results) => {
                results.iter().all(|result| result.outcome.is_ok())
            }
            _ => false,
        }
    }

    /// Changes a topic's policy while it is in use.
    pub(super) fn set_unclean(
        &mut self,
        topic: &str,
        allowed: bool,
        random: &mut Random,
        now: Now,
    ) {
        if self.active.is_none() {
            return;
        }
        let command = Command::AlterConfigs(AlterConfigs {
            resources: vec![AlterConfigsResource {
                resource: ConfigResource::Topic(topic.to_owned()),
                ops: vec![ConfigOp {
                    name: UNCLEAN.to_owned(),
                    kind: ConfigOpKind::Set,
                    value: Some(allowed.to_string()),
                }],
            }],
            validate_only: false,
        });
        let _ = self.command(&command, random, now);
    }

    /// Takes leadership from a broker and keeps it away, or lets it lead again.
    pub(super) fn drain(&mut self, broker: BrokerId, draining: bool) {
        if self.active.is_some() {
            let decision = brokers::drain(&self.image, &self.soft, broker, draining);
            let _ = self.commit(decision);
        }
    }

    /// Elects by hand leaders that may lack records, wherever `topic` has none.
    pub(super) fn elect_uncleanly(&mut self, topic: &str, random: &mut Random, now: Now) {
        if self.active.is_none() {
            return;
        }
        let partitions = self
            .image
            .partitions()
            .filter(|(of, _, partition)| of.name == topic && partition.leader.is_none())
            .map(|(of, index, _)| (of.name.clone(), index))
            .collect();
        let command = Command::ElectLeaders(ElectLeaders {
            election: ElectionType::Unclean,
            partitions: Some(partitions),
        });
        let _ = self.command(&command, random, now);
    }

    /// Moves the replicas of a partition, or takes a move back; whether that was granted.
    pub(super) fn reassign(
        &mut self,
        topic: &str,
        partition: PartitionIndex,
        replicas: Option<Vec<BrokerId>>,
        random: &mut Random,
        now: Now,
    ) -> bool {
        if self.active.is_none() {
            return false;
        }
        let command = Command::Reassign(Reassign {
            partitions: vec![ReassignPartition {
                topic: topic.to_owned(),
                partition,
                replicas,
            }],
            ..Reassign::default()
        });
        match self.command(&command, random, now) {
            CommandReply::Reassign(results) => results.iter().all(|result| result.outcome.is_ok()),
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
        if let Applied::Skipped { .. } = self.image.apply_batch(offset, &batch) {
            self.skipped += 1;
        }
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
