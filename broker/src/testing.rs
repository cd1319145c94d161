//! A broker's rooms without a cluster around them: what handlers and doors are tested against.
//! Law: tests only. The metadata is whatever the test says; the logs lie in a temporary directory.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kuorum_metadata::config_def::{self, parse_properties};
use kuorum_metadata::image::MetadataImage;
use kuorum_metadata::record::{
    ConfigResource, Listener, MetadataRecord, PartitionRecord, RegisterBroker,
};
use kuorum_protocol::record::Codec;
use kuorum_protocol::record::writer::BatchBuilder;
use kuorum_protocol::{BrokerEpoch, BrokerId, DirectoryId, IncarnationId, Timestamp, TopicId};
use kuorum_storage::{AnyDir, Flusher, LogDirs, RealDir};
use kuorum_transport::{Clock, SystemNetwork};
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::alter_partition::IsrProposals;
use crate::assign_directories::Placements;
use crate::authorizer::Authorizer;
use crate::cluster::carrier::http_client;
use crate::cluster::controller_client::ControllerPeer;
use crate::cluster::{ControllerClient, Membership, MetadataCache};
use crate::config::BrokerConfig;
use crate::context::{ANONYMOUS, CLIENT, Context, INTERNAL, Rooms};
use crate::event_reporter::EventReports;
use crate::fetch_memory::FetchMemory;
use crate::fetch_session::FetchSessions;
use crate::handlers::log::limits::TopicLimits;
use crate::metrics::Metrics;
use crate::producer_ids::ProducerIds;
use crate::replica_fetcher::{FetchLimits, Fetchers};
use crate::replica_manager::{ReplicaManager, Tools};
use crate::salvage::{Salvage, SalvageLimits};

/// The broker under test.
pub(crate) const ME: BrokerId = BrokerId(1);

const CLUSTER: &str = "test-cluster";

/// A broker's rooms.
pub(crate) struct Desk {
    pub(crate) rooms: Arc<Rooms>,
    /// Of the partitions that others lead.
    pub(crate) fetchers: Arc<Fetchers>,
    image: Mutex<MetadataImage>,
    stop: CancellationToken,
    _dir: TempDir,
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A topic as a test wants it: its partitions are led by the first replica, in epoch 0.
pub(crate) struct Topic<'a> {
    pub(crate) name: &'a str,
    pub(crate) partitions: i32,
    pub(crate) replicas: &'a [i32],
    pub(crate) configs: &'a [(&'a str, &'a str)],
}

impl Default for Topic<'_> {
    fn default() -> Self {
        Self {
            name: "orders",
            partitions: 1,
            replicas: &[1],
            configs: &[],
        }
    }
}

impl Desk {
    /// Three brokers, of which this is the first, and these topics.
    pub(crate) async fn with(topics: &[Topic<'_>]) -> Self {
        let desk = Self::new();
        desk.learn((1..=3).map(broker).collect()).await;
        for topic in topics {
            desk.learn(records_of(topic)).await;
        }
        desk
    }

    fn new() -> Self {
        let dir = TempDir::new().expect("a temporary directory");
        let data = RealDir::new(dir.path().join("data"));
        LogDirs::format(&data, CLUSTER, ME.0, DirectoryId(Uuid::from_u128(77))).expect("formatted");
        let log_dirs =
            LogDirs::open(vec![AnyDir::new(data.clone())], CLUSTER, ME.0).expect("opened");
        let text = format!(
            "node.id=1\ncontroller.quorum.voters=1@127.0.0.1:1\nlog.dirs={},{}\nhttp.listener=127.0.0.1:0\n\
             listeners=CLIENT://127.0.0.1:0,INTERNAL://127.0.0.1:0\n\
             advertised.listeners=CLIENT://127.0.0.1:9092,INTERNAL://127.0.0.1:9102\n",
            data.as_path().display(),
            // A disk that had failed before the start.
            dir.path().join("gone").display()
        );
        let values = config_def::BrokerConfig::load(&parse_properties(&text).expect("properties"))
            .expect("a valid configuration");
        let config = Arc::new(BrokerConfig::new(values, CLUSTER.to_owned()));
        let clock = Clock::system();
        let stop = CancellationToken::new();
        let membership = Arc::new(Membership::new(ME, IncarnationId(Uuid::from_u128(1))));
        let controllers = ControllerClient::new(
            Arc::new(http_client().expect("a client")),
            CLUSTER.to_owned(),
            ME,
            vec![ControllerPeer {
                id: 1,
                address: "127.0.0.1:1".to_owned(),
            }],
        );
        let limits = FetchLimits {
            wait_max: Duration::from_millis(500),
            min_bytes: 1,
            backoff: Duration::from_secs(1),
            partition_max_bytes: 1 << 20,
            response_max_bytes: 1 << 20,
        };
        let fetchers = Arc::new(Fetchers::new(
            clock.clone(),
            Arc::clone(&membership),
            limits,
            Arc::new(SystemNetwork),
            tokio::runtime::Handle::current(),
            stop.clone(),
        ));
        let metrics = Arc::new(Metrics::new());
        let reports = Arc::new(EventReports::new(metrics.events_dropped.clone()));
        let salvage = Salvage::open(
            &log_dirs,
            SalvageLimits::default(),
            clock.clone(),
            Arc::clone(&reports),
        );
        let replicas = ReplicaManager::new(Tools {
            clock: clock.clone(),
            metrics: Arc::clone(&metrics),
            log_dirs: Arc::new(log_dirs),
            flusher: Flusher::new(1).expect("a thread"),
            membership: Arc::clone(&membership),
            proposals: Arc::new(IsrProposals::default()),
            placements: Arc::new(Placements::default()),
            reports,
            fetchers: Arc::clone(&fetchers),
            salvage: Arc::clone(&salvage),
            replica_lag_time_max: Duration::from_secs(30),
        });
        let rooms = Rooms {
            config,
            clock,
            membership: Arc::clone(&membership),
            metadata: Arc::new(MetadataCache::new()),
            replicas,
            controllers: controllers.clone(),
            producer_ids: Arc::new(ProducerIds::new(controllers, membership)),
            sessions: FetchSessions::new(10),
            fetch_memory: FetchMemory::new(1 << 30),
            topic_limits: TopicLimits::default(),
            unpacking: Semaphore::new(2),
            metrics,
            salvage,
            authorizer: Authorizer,
        };
        Self {
            rooms: Arc::new(rooms),
            fetchers,
            image: Mutex::default(),
            stop,
            _dir: dir,
        }
    }

    /// The cluster agrees on these records, and the broker acts on them.
    pub(crate) async fn learn(&self, records: Vec<MetadataRecord>) {
        let (image, delta) = {
            let mut image = self.image.lock();
            let offset = image.offset() + 1;
            let delta = image.apply_records(offset, &records);
            (Arc::new(image.clone()), delta)
        };
        self.rooms.replicas.apply(&image, Some(delta)).await;
        let offset = image.offset();
        self.rooms.metadata.publish(image, offset);
    }

    /// A request from a client.
    pub(crate) fn client(&self) -> Context {
        self.context(CLIENT)
    }

    /// A request from another broker.
    pub(crate) fn internal(&self) -> Context {
        self.context(INTERNAL)
    }

    fn context(&self, listener: &str) -> Context {
        Context::new(
            Arc::clone(&self.rooms),
            ANONYMOUS.into(),
            listener.into(),
            Some("test".into()),
        )
    }
}

/// The id of a topic of that name.
pub(crate) fn topic_id(name: &str) -> TopicId {
    let sum = name.bytes().fold(1_u128, |sum, byte| {
        sum.wrapping_mul(257).wrapping_add(u128::from(byte))
    });
    TopicId(Uuid::from_u128(sum))
}

fn broker(id: i32) -> MetadataRecord {
    let listener = |name: &str, port: u16| Listener {
        name: name.to_owned(),
        host: "127.0.0.1".to_owned(),
        port: port + id as u16 - 1,
        security_protocol: "PLAINTEXT".to_owned(),
    };
    MetadataRecord::RegisterBroker(RegisterBroker {
        broker_id: BrokerId(id),
        incarnation_id: IncarnationId(Uuid::from_u128(id as u128)),
        broker_epoch: Some(BrokerEpoch(100 + i64::from(id))),
        listeners: vec![listener(CLIENT, 9092), listener(INTERNAL, 9102)],
        http: "127.0.0.1:9112".to_owned(),
        rack: None,
        directories: vec![DirectoryId(Uuid::from_u128(76 + id as u128))],
        fenced: false,
        in_controlled_shutdown: false,
        version: "test".to_owned(),
        last_report: 0,
    })
}

fn records_of(topic: &Topic<'_>) -> Vec<MetadataRecord> {
    let topic_id = topic_id(topic.name);
    let replicas: Vec<BrokerId> = topic.replicas.iter().copied().map(BrokerId).collect();
    let mut records = vec![MetadataRecord::Topic {
        name: topic.name.to_owned(),
        topic_id,
    }];
    records.extend(
        topic
            .configs
            .iter()
            .map(|(name, value)| MetadataRecord::Config {
                resource: ConfigResource::Topic(topic.name.to_owned()),
                name: (*name).to_owned(),
                value: Some((*value).to_owned()),
            }),
    );
    records.extend((0..topic.partitions).map(|partition| {
        MetadataRecord::Partition(PartitionRecord::of(topic_id, partition, replicas.clone()))
    }));
    records
}

/// A batch of records with these values, a millisecond apart, from `timestamp` on.
pub(crate) fn batch_at(timestamp: i64, values: &[&str]) -> Bytes {
    let mut batch = BatchBuilder::new(Codec::None);
    for (value, at) in values.iter().zip(timestamp..) {
        batch.append(Timestamp(at), None, Some(value.as_bytes()), &[]);
    }
    batch.build()
}

/// The same, written today.
pub(crate) fn batch(values: &[&str]) -> Bytes {
    batch_at(Clock::system().now().wall.0, values)
}
