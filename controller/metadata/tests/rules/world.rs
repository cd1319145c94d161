//! A cluster of numbers: an image, the soft state of its controller, and a clock that is moved by hand.

use std::collections::BTreeMap;
use std::time::Duration;

use kuorum_metadata::control::command::{
    AlterConfigs, AlterConfigsResource, ConfigOp, ConfigOpKind, CreateTopics, NewTopic,
};
use kuorum_metadata::control::heartbeats::{SessionId, Silence, Timings};
use kuorum_metadata::control::tick::{Ticked, tick};
use kuorum_metadata::control::{
    self, Command, CommandReply, Decision, Heartbeats, Random, Refusal, brokers, office,
};
use kuorum_metadata::record::{
    ConfigResource, Listener, MetadataRecord, PartitionChange, RecordBatch,
};
use kuorum_metadata::rpc::{HeartbeatReply, HeartbeatRequest, RegisterRequest};
use kuorum_metadata::{Applied, History, MetadataImage, PartitionImage, events};
use kuorum_protocol::{
    BrokerEpoch, BrokerId, DirectoryId, IncarnationId, Now, PartitionIndex, TopicId,
};
use uuid::Uuid;

pub struct World {
    pub image: MetadataImage,
    pub soft: Heartbeats,
    pub now: Now,
    pub random: Random,
    /// All entries so far.
    pub log: Vec<(i64, RecordBatch)>,
    /// The events of all that is in the log.
    pub history: History,
    incarnations: u128,
}

pub fn incarnation(number: u128) -> IncarnationId {
    IncarnationId(Uuid::from_u128(number))
}

/// The directory a broker begins with.
pub fn home(broker: i32) -> DirectoryId {
    DirectoryId(Uuid::from_u128(0xd000 + broker as u128))
}

pub fn ids(text: &str) -> Vec<BrokerId> {
    text.split(',')
        .filter(|id| !id.is_empty())
        .map(|id| BrokerId(id.parse().unwrap()))
        .collect()
}

pub fn list(ids: &[BrokerId]) -> String {
    let texts: Vec<String> = ids.iter().map(ToString::to_string).collect();
    texts.join(",")
}

/// A partition in one line.
pub fn line(partition: &PartitionImage) -> String {
    let leader = partition
        .leader
        .map_or("none".to_owned(), |leader| leader.to_string());
    let elr = match &partition.elr[..] {
        [] => String::new(),
        elr => format!(" elr={}", list(elr)),
    };
    format!(
        "leader={leader} epoch={} isr={}{elr}",
        partition.leader_epoch,
        list(&partition.isr)
    )
}

/// Brokers with a single directory tell where a replica lies as soon as there is one: here in the record that makes it.
fn tell_place(image: &MetadataImage, record: &mut MetadataRecord) {
    let (replicas, directories) = match record {
        MetadataRecord::Partition(partition) => (&partition.replicas, &mut partition.directories),
        MetadataRecord::PartitionChange(PartitionChange {
            replicas: Some(replicas),
            directories: Some(directories),
            ..
        }) => (&*replicas, directories),
        _ => return,
    };
    for (replica, directory) in replicas.iter().zip(directories) {
        let broker = image.broker(*replica);
        if directory.is_zero()
            && let Some([only]) = broker.map(|broker| &broker.directories[..])
        {
            *directory = *only;
        }
    }
}

impl World {
    /// A cluster whose first controller is in office.
    pub fn new() -> Self {
        let mut world = Self {
            image: MetadataImage::default(),
            soft: Heartbeats::new(Timings::default()),
            now: Now::default(),
            random: Random::new(1),
            log: Vec::new(),
            history: History::new(10_000, 1 << 24),
            incarnations: 0,
        };
        world.new_controller(1, &BTreeMap::new());
        world
    }

    /// A cluster with brokers 1 to `count`, unfenced.
    pub fn with_brokers(count: i32) -> Self {
        let mut world = Self::new();
        for broker in 1..=count {
            world.start(broker);
        }
        world
    }

    pub fn new_controller(&mut self, id: u64, file: &BTreeMap<String, String>) {
        let mut batch = office::take_office(&self.image, id, file);
        batch.decided_at = self.now.wall;
        self.append(batch);
        self.soft = Heartbeats::new(Timings::default());
        self.soft.take_office(&self.image, self.now);
    }

    pub fn append(&mut self, mut batch: RecordBatch) {
        for record in &mut batch.records {
            tell_place(&self.image, record);
        }
        let offset = self.image.offset() + 1;
        let events = events::derive(&self.image, offset, batch.decided_at, &batch.records);
        self.history.push(events);
        let applied = self.image.apply_batch(offset, &batch);
        assert!(matches!(applied, Applied::Done(_)), "skipped: {batch:?}");
        self.log.push((offset, batch));
    }

    pub fn commit<R>(&mut self, decision: Decision<R>) -> R {
        if !decision.records.is_empty() {
            self.append(RecordBatch {
                controller_epoch: self.image.controller_epoch(),
                decided_at: self.now.wall,
                records: decision.records,
            });
        }
        decision.response
    }

    pub fn command(&mut self, command: &Command) -> CommandReply {
        let decision =
            control::decide(&self.image, &self.soft, command, self.now, &mut self.random);
        self.commit(decision)
    }

    pub fn epoch(&self, broker: i32) -> BrokerEpoch {
        self.image.broker(BrokerId(broker)).unwrap().epoch
    }

    pub fn request(&mut self, broker: i32) -> RegisterRequest {
        self.incarnations += 1;
        RegisterRequest {
            broker_id: BrokerId(broker),
            incarnation_id: incarnation(self.incarnations),
            listeners: vec![Listener {
                name: "CLIENT".to_owned(),
                host: "127.0.0.1".to_owned(),
                port: 9091 + broker as u16,
                security_protocol: "PLAINTEXT".to_owned(),
            }],
            http: format!("127.0.0.1:{}", 9111 + broker),
            rack: None,
            directories: vec![home(broker)],
            version: "0.1.0".to_owned(),
            not_intact: Vec::new(),
        }
    }

    /// A new incarnation registers; it stays fenced.
    pub fn register(&mut self, request: &RegisterRequest) -> Result<BrokerEpoch, Refusal> {
        let decision = brokers::register(&self.image, &self.soft, request, self.now)?;
        self.commit(decision);
        let epoch = self.image.broker(request.broker_id).unwrap().epoch;
        self.soft.registered(request.broker_id, epoch, self.now);
        Ok(epoch)
    }

    /// A new incarnation registers and is unfenced.
    pub fn start(&mut self, broker: i32) {
        let request = self.request(broker);
        self.register(&request).unwrap();
        assert!(!self.beat(broker).fenced);
    }

    /// A heartbeat of a broker that knows everything.
    pub fn beat(&mut self, broker: i32) -> HeartbeatReply {
        let request = self.heartbeat(broker);
        self.send(&request).unwrap()
    }

    pub fn heartbeat(&self, broker: i32) -> HeartbeatRequest {
        HeartbeatRequest {
            broker_id: BrokerId(broker),
            broker_epoch: self.epoch(broker),
            metadata_offset: self.image.offset(),
            want_fence: false,
            want_shut_down: false,
            offline_directories: Vec::new(),
        }
    }

    pub fn send(&mut self, request: &HeartbeatRequest) -> Result<HeartbeatReply, Refusal> {
        let decision = brokers::heartbeat(&self.image, &mut self.soft, request, self.now)?;
        Ok(self.commit(decision))
    }

    pub fn open(&mut self, broker: i32) -> SessionId {
        let epoch = self.epoch(broker);
        self.soft.session_opened(BrokerId(broker), epoch, self.now)
    }

    pub fn pass(&mut self, millis: u64) {
        self.now = self.now + Duration::from_millis(millis);
    }

    /// Decides all that time asks for.
    pub fn tick(&mut self) -> Vec<Ticked> {
        let mut ticked = Vec::new();
        while let Some(decision) = tick(&self.image, &self.soft, self.now) {
            ticked.push(self.commit(decision));
            assert!(ticked.len() < 100, "time never comes to rest: {ticked:?}");
        }
        ticked
    }

    /// A broker dies and is fenced, while the others go on.
    pub fn fence(&mut self, broker: i32) {
        let session = self.open(broker);
        let id = BrokerId(broker);
        self.soft.session_closed(id, session, self.now);
        let decision = brokers::fence(&self.image, &self.soft, id, Silence::Disconnected, self.now);
        self.commit(decision);
    }

    pub fn create(
        &mut self,
        topic: &NewTopic,
    ) -> (kuorum_protocol::error_code::ErrorCode, TopicId) {
        let command = Command::CreateTopics(CreateTopics {
            topics: vec![topic.clone()],
            validate_only: false,
        });
        let CommandReply::CreateTopics(results) = self.command(&command) else {
            panic!("an answer to another command");
        };
        (results[0].outcome.code(), results[0].topic_id)
    }

    /// A topic of one partition with these replicas.
    pub fn topic(&mut self, name: &str, replicas: &str) -> TopicId {
        let (error, id) = self.create(&NewTopic {
            name: name.to_owned(),
            num_partitions: -1,
            replication_factor: -1,
            assignments: vec![(0, ids(replicas))],
            configs: Vec::new(),
        });
        assert_eq!(error, kuorum_protocol::error_code::ErrorCode::None);
        id
    }

    pub fn partition(&self, topic: &str, index: PartitionIndex) -> &PartitionImage {
        self.image.topic(topic).unwrap().partition(index).unwrap()
    }

    pub fn line(&self, topic: &str) -> String {
        line(self.partition(topic, 0))
    }

    pub fn set(
        &mut self,
        resource: ConfigResource,
        name: &str,
        value: Option<&str>,
    ) -> control::command::Outcome {
        let command = Command::AlterConfigs(AlterConfigs {
            resources: vec![AlterConfigsResource {
                resource,
                ops: vec![ConfigOp {
                    name: name.to_owned(),
                    kind: match value {
                        Some(_) => ConfigOpKind::Set,
                        None => ConfigOpKind::Delete,
                    },
                    value: value.map(str::to_owned),
                }],
            }],
            validate_only: false,
        });
        let CommandReply::AlterConfigs(results) = self.command(&command) else {
            panic!("an answer to another command");
        };
        results[0].outcome.clone()
    }

    /// Makes a partition exactly so, for tables.
    pub fn put(&mut self, record: MetadataRecord) {
        self.append(RecordBatch {
            controller_epoch: self.image.controller_epoch(),
            decided_at: self.now.wall,
            records: vec![record],
        });
    }
}
