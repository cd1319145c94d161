//! A broker that only the controllers know, and that holds nothing: it registers, sends heartbeats, keeps a session open, follows the log, and passes on
//! what its clients ask for.
//! Law: it believes nothing it was not told. An attempt without an answer may have come to pass, so it asks again until
//! somebody knows.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use axum::http::Request;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use kuorum_controller::quorum::Carrier;
use kuorum_metadata::MetadataImage;
use kuorum_metadata::control::Command;
use kuorum_metadata::control::command::{CommandReply, CreateTopicResult, CreateTopics, NewTopic};
use kuorum_metadata::record::Listener;
use kuorum_metadata::rpc::{
    AllocateProducerIdsReply, AllocateProducerIdsRequest, FeedLine, HEADER_CLUSTER_ID, HEADER_FROM,
    HEADER_TO, HEADER_VERSION, HeartbeatReply, HeartbeatRequest, PATH_COMMAND, PATH_FEED,
    PATH_HEARTBEAT, PATH_PRODUCER_IDS, PATH_REGISTER, PATH_SESSION, RegisterReply, RegisterRequest,
    Reply, RpcError, SessionRequest, VERSION,
};
use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::{BrokerEpoch, BrokerId, DirectoryId, IncarnationId};
use kuorum_transport::Clock;
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::controller::CLUSTER;
use crate::history::Told;
use crate::network::{PORT, Roads};
use crate::plan::{CONTROLLERS, broker_host, controller_host};
use crate::world::Cluster;

/// How long one request may take.
const DEADLINE: Duration = Duration::from_secs(2);
/// How long a stream may be silent: the controllers say something every second.
const SILENCE: Duration = Duration::from_secs(3);
/// How many attempts a topic is worth while there is trouble.
const ATTEMPTS: u32 = 12;

/// Why a request has no result.
enum Failed {
    /// Nobody knows what became of it.
    Unknown,
    /// It was refused, and has changed nothing.
    Refused(RpcError),
}

struct Outsider {
    cluster: Arc<Cluster>,
    id: i32,
    roads: Roads,
    clock: Clock,
    incarnation: IncarnationId,
    /// Whom it takes for the active controller.
    active: AtomicU64,
    /// −1 until it is registered.
    epoch: AtomicI64,
    /// How far its image has come.
    offset: AtomicI64,
}

/// Runs for ever.
pub(crate) async fn run(cluster: Arc<Cluster>, id: i32) -> turmoil::Result {
    let incarnation = u128::from(cluster.number(200 + id as u64));
    let broker = Arc::new(Outsider {
        incarnation: IncarnationId(Uuid::from_u128(incarnation)),
        clock: Clock::seeded(cluster.number(100 + id as u64)),
        cluster,
        id,
        roads: Roads::default(),
        active: AtomicU64::new(1),
        epoch: AtomicI64::new(-1),
        offset: AtomicI64::new(-1),
    });
    tokio::spawn(Arc::clone(&broker).follow());
    tokio::spawn(Arc::clone(&broker).stay_known());
    tokio::spawn(Arc::clone(&broker).keep_session());
    broker.ask_for_things().await;
    Ok(())
}

impl Outsider {
    async fn pause(&self, most_millis: u64) {
        let millis = 5 + self.clock.random_below(most_millis);
        self.clock.sleep(Duration::from_millis(millis)).await;
    }

    fn epoch(&self) -> Option<BrokerEpoch> {
        let epoch = self.epoch.load(Ordering::Relaxed);
        (epoch >= 0).then_some(BrokerEpoch(epoch))
    }

    fn request(&self, method: &str, to: u64, path: &str, body: Vec<u8>) -> Request<Vec<u8>> {
        let host = controller_host(to);
        Request::builder()
            .method(method)
            .uri(format!("http://{host}:{PORT}{path}"))
            .header(HEADER_CLUSTER_ID, CLUSTER)
            .header(HEADER_FROM, broker_host(self.id))
            .header(HEADER_TO, host)
            .header(HEADER_VERSION, VERSION)
            .header("content-type", "application/json")
            .body(body)
            .expect("every part is well formed")
    }

    /// Asks whoever is taken for the active controller, and learns from the answer who it is.
    async fn call<Q: Serialize, A: DeserializeOwned>(
        &self,
        path: &str,
        question: &Q,
    ) -> Result<A, Failed> {
        let to = self.active.load(Ordering::Relaxed);
        let next = to % CONTROLLERS.len() as u64 + 1;
        let body = serde_json::to_vec(question).expect("a request is plain data");
        let request = self.request("POST", to, path, body);
        let reply: Option<Reply<A>> = match self.roads.carry(request, DEADLINE).await {
            Ok(answer) => serde_json::from_slice(answer.body()).ok(),
            Err(_) => None,
        };
        match reply {
            Some(Reply::Ok(answer)) => Ok(answer),
            Some(Reply::Err(error)) => match ErrorCode::from(error.code) {
                // It may have lost office while the proposal was on its way.
                ErrorCode::NotController => {
                    let active = error.active_controller.unwrap_or(next);
                    self.active.store(active, Ordering::Relaxed);
                    Err(Failed::Unknown)
                }
                ErrorCode::RequestTimedOut => Err(Failed::Unknown),
                _ => Err(Failed::Refused(error)),
            },
            None => {
                self.active.store(next, Ordering::Relaxed);
                Err(Failed::Unknown)
            }
        }
    }

    /// Registers, and is heard from again and again.
    async fn stay_known(self: Arc<Self>) {
        loop {
            self.pause(600).await;
            let Some(broker_epoch) = self.epoch() else {
                let request = RegisterRequest {
                    broker_id: BrokerId(self.id),
                    incarnation_id: self.incarnation,
                    listeners: vec![Listener {
                        name: "INTERNAL".to_owned(),
                        host: broker_host(self.id),
                        port: 9092,
                        security_protocol: "PLAINTEXT".to_owned(),
                    }],
                    http: format!("{}:8080", broker_host(self.id)),
                    rack: None,
                    directories: vec![DirectoryId(Uuid::from_u128(100 + self.id as u128))],
                    version: "0".to_owned(),
                    not_intact: Vec::new(),
                };
                match self.call(PATH_REGISTER, &request).await {
                    Ok(RegisterReply { broker_epoch }) => {
                        self.epoch.store(broker_epoch.0, Ordering::Relaxed);
                    }
                    Err(Failed::Unknown) => {}
                    Err(Failed::Refused(error)) => self.violated("registration", &error),
                }
                continue;
            };
            let request = HeartbeatRequest {
                broker_id: BrokerId(self.id),
                broker_epoch,
                metadata_offset: self.offset.load(Ordering::Relaxed),
                want_fence: false,
                want_shut_down: false,
                offline_directories: Vec::new(),
            };
            let reply: Result<HeartbeatReply, Failed> = self.call(PATH_HEARTBEAT, &request).await;
            if let Err(Failed::Refused(error)) = reply {
                // It was registered, and nobody else uses its number: who denies that has forgotten.
                self.violated("heartbeat", &error);
            }
        }
    }

    fn violated(&self, what: &str, error: &RpcError) {
        self.cluster.history.lock().violated(format!(
            "known-is-known: the {what} of broker {} was refused: {error:?}",
            self.id
        ));
    }

    async fn keep_session(self: Arc<Self>) {
        loop {
            self.pause(200).await;
            let Some(broker_epoch) = self.epoch() else {
                continue;
            };
            let question = SessionRequest {
                broker_id: BrokerId(self.id),
                broker_epoch,
            };
            let body = serde_json::to_vec(&question).expect("a request is plain data");
            let to = self.active.load(Ordering::Relaxed);
            let request = self.request("POST", to, PATH_SESSION, body);
            self.read(request, |_| ()).await;
        }
    }

    /// Reads a stream until it ends or is silent.
    async fn read(&self, request: Request<Vec<u8>>, mut take: impl FnMut(&[u8])) {
        let opened = tokio::time::timeout(DEADLINE, self.roads.open(request)).await;
        let Ok(Ok((answer, _connection))) = opened else {
            return;
        };
        if !answer.status().is_success() {
            return;
        }
        let mut body: Incoming = answer.into_body();
        while let Ok(Some(Ok(frame))) = tokio::time::timeout(SILENCE, body.frame()).await {
            if let Ok(bytes) = frame.into_data() {
                take(&bytes);
            }
        }
    }

    /// Follows the log at one controller after another.
    async fn follow(self: Arc<Self>) {
        let mut image = MetadataImage::default();
        let who = broker_host(self.id);
        loop {
            self.pause(200).await;
            let to = CONTROLLERS[self.clock.random_below(CONTROLLERS.len() as u64) as usize];
            let from = self.offset.load(Ordering::Relaxed) + 1;
            let request = self.request("GET", to, &format!("{PATH_FEED}?from={from}"), Vec::new());
            let mut rest = Vec::new();
            self.read(request, |bytes| {
                rest.extend_from_slice(bytes);
                while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = rest.drain(..=end).collect();
                    match serde_json::from_slice(&line) {
                        Ok(line) => self.take(&who, &mut image, line),
                        Err(error) => self.cluster.history.lock().violated(format!(
                            "feed: controller {to} sent what is no line: {error}"
                        )),
                    }
                }
            })
            .await;
        }
    }

    fn take(&self, who: &str, image: &mut MetadataImage, line: FeedLine) {
        let reached = self.offset.load(Ordering::Relaxed);
        let reached = match line {
            FeedLine::Snapshot { offset, records } => {
                self.cluster.history.lock().tally.snapshots += 1;
                *image = MetadataImage::from_records(offset, &records);
                offset
            }
            FeedLine::Entry { offset, records } => {
                if offset > reached {
                    image.apply_records(offset, &records);
                }
                let records = Arc::from(records);
                self.cluster.history.lock().applied(who, offset, records);
                reached.max(offset)
            }
            FeedLine::Idle { offset } => reached.max(offset),
        };
        self.offset.store(reached, Ordering::Relaxed);
        self.cluster.followed(self.id, reached, image);
    }

    async fn ask_for_things(&self) {
        let mut number = 0;
        let mut probed = 0;
        loop {
            self.pause(120).await;
            let orders = self.cluster.orders();
            if orders.probe > probed {
                number += 1;
                if self.create(number, 1, None).await {
                    probed = orders.probe;
                    self.cluster.probed(broker_host(self.id), probed);
                }
            } else if orders.busy {
                if self.clock.random_below(4) == 0 {
                    self.allocate().await;
                } else {
                    number += 1;
                    let copies = 1 + self.clock.random_below(3) as i16;
                    self.create(number, copies, Some(ATTEMPTS)).await;
                }
            }
        }
    }

    async fn allocate(&self) {
        let Some(broker_epoch) = self.epoch() else {
            return;
        };
        let request = AllocateProducerIdsRequest {
            broker_id: BrokerId(self.id),
            broker_epoch,
        };
        let asked = now();
        match self.call(PATH_PRODUCER_IDS, &request).await {
            Ok(AllocateProducerIdsReply { first, count }) => {
                self.tell(Told::Block(first, count), asked);
            }
            // A block whose answer was lost belongs to nobody.
            Err(Failed::Unknown) => {}
            Err(Failed::Refused(error)) => self.violated("request for producer ids", &error),
        }
    }

    fn tell(&self, told: Told, asked: Duration) {
        self.cluster.history.lock().told(told, asked, now());
    }

    /// Creates a topic nobody else creates. Returns whether it exists now.
    async fn create(&self, number: u64, copies: i16, attempts: Option<u32>) -> bool {
        let name = format!("{}-{number}", broker_host(self.id));
        let command = Command::CreateTopics(CreateTopics {
            topics: vec![NewTopic {
                name: name.clone(),
                num_partitions: 1 + (number % 3) as i32,
                replication_factor: copies,
                assignments: Vec::new(),
                configs: Vec::new(),
            }],
            validate_only: false,
        });
        let mut maybe = false;
        let mut attempt = 0;
        loop {
            attempt += 1;
            let asked = now();
            let result = match self.call(PATH_COMMAND, &command).await {
                Ok(CommandReply::CreateTopics(mut results)) => results.pop(),
                Ok(_) | Err(Failed::Unknown) => None,
                Err(Failed::Refused(error)) => Some(CreateTopicResult {
                    name: name.clone(),
                    topic_id: Default::default(),
                    outcome: kuorum_metadata::control::command::Outcome {
                        error: error.code,
                        message: Some(error.message),
                    },
                    num_partitions: -1,
                    replication_factor: -1,
                    configs: Default::default(),
                }),
            };
            if let Some(result) = result {
                let created = result.outcome.is_ok();
                let exists = result.outcome.code() == ErrorCode::TopicAlreadyExists;
                let told = match (created, exists) {
                    (true, _) => Told::Created(name, result.topic_id),
                    (false, true) if maybe => Told::Exists(name),
                    (false, false) if maybe => Told::Unknown(name),
                    (false, _) => Told::Refused(name),
                };
                self.tell(told, asked);
                return created || exists;
            }
            maybe = true;
            if attempts.is_some_and(|most| attempt >= most) {
                self.tell(Told::Unknown(name), asked);
                return false;
            }
            self.pause(150).await;
        }
    }
}

/// The world's time.
fn now() -> Duration {
    turmoil::sim_elapsed().expect("a broker runs in the simulation")
}
