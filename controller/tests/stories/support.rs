//! Three controllers on ports of their own, and somebody who talks to them like a broker.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::time::Duration;

use kuorum_controller::controller::Controller;
use kuorum_controller::identity;
use kuorum_metadata::config_def::{ControllerConfig, RawConfig};
use kuorum_metadata::control::command::{CreateTopics, NewTopic};
use kuorum_metadata::control::{Command, CommandReply};
use kuorum_metadata::record::Listener;
use kuorum_metadata::rpc::{
    FeedLine, HEADER_CLUSTER_ID, HEADER_FROM, HEADER_TO, HEADER_VERSION, HeartbeatReply,
    HeartbeatRequest, PATH_COMMAND, PATH_FEED, PATH_HEARTBEAT, PATH_REGISTER, RegisterReply,
    RegisterRequest, Reply, RpcError, VERSION,
};
use kuorum_protocol::{BrokerEpoch, BrokerId, DirectoryId, IncarnationId};
use kuorum_transport::Clock;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tempfile::TempDir;
use uuid::Uuid;

pub const CLUSTER: &str = "stories-of-controllers";
/// Nothing here takes as long as this, even on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub struct Cluster {
    pub configs: BTreeMap<u64, ControllerConfig>,
    pub running: BTreeMap<u64, Controller>,
    pub client: reqwest::Client,
    _home: TempDir,
}

impl Cluster {
    /// Formats and starts `size` controllers.
    pub async fn start(size: u64) -> Self {
        Self::start_with(size, &[]).await
    }

    pub async fn start_with(size: u64, extra: &[(&str, &str)]) -> Self {
        let home = tempfile::tempdir().unwrap();
        // Held until all are chosen, so that they differ.
        let held: Vec<TcpListener> = (0..size * 2)
            .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
            .collect();
        let ports: Vec<u16> = held
            .iter()
            .map(|listener| listener.local_addr().unwrap().port())
            .collect();
        drop(held);
        let voters: Vec<String> = (1..=size)
            .map(|id| format!("{id}@127.0.0.1:{}", ports[id as usize - 1]))
            .collect();
        let mut configs = BTreeMap::new();
        for id in 1..=size {
            let data = home.path().join(format!("controller-{id}"));
            let mut raw = RawConfig::default();
            raw.set("node.id", id.to_string());
            raw.set("controller.quorum.voters", voters.join(","));
            raw.set(
                "controller.listener",
                format!("127.0.0.1:{}", ports[id as usize - 1]),
            );
            raw.set(
                "admin.listener",
                format!("127.0.0.1:{}", ports[(size + id) as usize - 1]),
            );
            raw.set("metadata.log.dir", data.display().to_string());
            // Tests share the machine with builds: a late heartbeat is not yet an election.
            raw.set("quorum.election.timeout.min.ms", "500");
            raw.set("quorum.election.timeout.max.ms", "1000");
            for (key, value) in extra {
                raw.set(*key, *value);
            }
            identity::format(&data, CLUSTER, id).unwrap();
            configs.insert(id, ControllerConfig::load(&raw).unwrap());
        }
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let mut cluster = Self {
            configs,
            running: BTreeMap::new(),
            client,
            _home: home,
        };
        for id in 1..=size {
            cluster.start_one(id).await;
        }
        cluster
    }

    pub async fn start_one(&mut self, id: u64) {
        let config = self.configs[&id].clone();
        let controller = Controller::start(config, Clock::system()).await.unwrap();
        self.running.insert(id, controller);
    }

    pub async fn stop_one(&mut self, id: u64) {
        self.running.remove(&id).unwrap().stop().await;
    }

    /// The controller in office, once there is one.
    pub async fn active(&self) -> u64 {
        let waiting = async {
            let mut offices: Vec<_> = self
                .running
                .values()
                .map(|one| one.active().watch())
                .collect();
            loop {
                for office in &mut offices {
                    office.mark_unchanged();
                }
                let decides = |one: &Controller| one.active().may_decide();
                if let Some((id, _)) = self.running.iter().find(|(_, one)| decides(one)) {
                    return *id;
                }
                // In office, or heard by a majority again: the latter is seen by the next look.
                let changes = offices.iter_mut().map(|office| Box::pin(office.changed()));
                let _ = tokio::time::timeout(
                    Duration::from_millis(100),
                    futures_util::future::select_all(changes),
                )
                .await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting)
            .await
            .expect("a controller takes office")
    }

    /// Waits until every running controller has applied up to `offset`.
    pub async fn caught_up(&self, offset: i64) {
        for controller in self.running.values() {
            let mut applied = controller.quorum().published().watch();
            let waiting = applied.wait_for(|end| *end > offset);
            tokio::time::timeout(PATIENCE, waiting)
                .await
                .expect("catches up")
                .unwrap();
        }
    }

    pub fn rpc_url(&self, id: u64, path: &str) -> String {
        format!("http://{}{path}", self.configs[&id].controller_listener)
    }

    pub fn admin_url(&self, id: u64, path: &str) -> String {
        format!("http://{}{path}", self.configs[&id].admin_listener)
    }

    pub fn post(&self, to: u64, path: &str) -> reqwest::RequestBuilder {
        self.client
            .post(self.rpc_url(to, path))
            .timeout(PATIENCE)
            .header(HEADER_CLUSTER_ID, CLUSTER)
            .header(HEADER_FROM, "broker-1")
            .header(HEADER_TO, format!("controller-{to}"))
            .header(HEADER_VERSION, VERSION)
    }

    /// Asks one controller as a broker would.
    pub async fn call<Q: Serialize, A: DeserializeOwned>(
        &self,
        to: u64,
        path: &str,
        request: &Q,
    ) -> Result<A, RpcError> {
        let response = self.post(to, path).json(request).send().await.unwrap();
        match response.json::<Reply<A>>().await.unwrap() {
            Reply::Ok(answer) => Ok(answer),
            Reply::Err(error) => Err(error),
        }
    }

    /// Asks whoever is in office, again if that changes.
    pub async fn ask<Q: Serialize, A: DeserializeOwned>(&self, path: &str, request: &Q) -> A {
        loop {
            match self.call(self.active().await, path, request).await {
                Ok(answer) => return answer,
                Err(error) => assert_eq!(error.code, 41, "{error}"),
            }
        }
    }

    /// Registers a broker and has it unfenced.
    pub async fn join(&self, id: i32) -> BrokerEpoch {
        let reply: RegisterReply = self.ask(PATH_REGISTER, &registration(id)).await;
        let heartbeat = heartbeat(id, reply.broker_epoch);
        loop {
            let answer: HeartbeatReply = self.ask(PATH_HEARTBEAT, &heartbeat).await;
            if !answer.fenced {
                return reply.broker_epoch;
            }
        }
    }

    pub async fn create_topic(&self, name: &str, partitions: i32, replicas: i16) -> CommandReply {
        let command = Command::CreateTopics(CreateTopics {
            topics: vec![NewTopic {
                name: name.to_owned(),
                num_partitions: partitions,
                replication_factor: replicas,
                assignments: Vec::new(),
                configs: Vec::new(),
            }],
            validate_only: false,
        });
        self.ask(PATH_COMMAND, &command).await
    }

    /// Opens a feed.
    pub async fn follow(&self, id: u64, from: i64) -> Feed {
        let response = self
            .client
            .get(self.rpc_url(id, &format!("{PATH_FEED}?from={from}")))
            .header(HEADER_CLUSTER_ID, CLUSTER)
            .header(HEADER_FROM, "broker-1")
            .header(HEADER_TO, format!("controller-{id}"))
            .header(HEADER_VERSION, VERSION)
            .send()
            .await
            .unwrap();
        assert!(response.status().is_success(), "{}", response.status());
        Feed {
            response,
            buffer: Vec::new(),
        }
    }
}

pub struct Feed {
    response: reqwest::Response,
    buffer: Vec<u8>,
}

impl Feed {
    pub async fn next(&mut self) -> Option<FeedLine> {
        loop {
            if let Some(end) = self.buffer.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let chunk = tokio::time::timeout(PATIENCE, self.response.chunk())
                .await
                .expect("a line");
            self.buffer.extend_from_slice(&chunk.ok()??);
        }
    }
}

pub fn registration(id: i32) -> RegisterRequest {
    let listener = |name: &str, port| Listener {
        name: name.to_owned(),
        host: "127.0.0.1".to_owned(),
        port,
        security_protocol: "PLAINTEXT".to_owned(),
    };
    RegisterRequest {
        broker_id: BrokerId(id),
        incarnation_id: IncarnationId(Uuid::new_v4()),
        listeners: vec![listener("CLIENT", 9091), listener("INTERNAL", 9101)],
        // Nobody listens there: what is asked of it stays unanswered.
        http: "127.0.0.1:1".to_owned(),
        rack: None,
        directories: vec![DirectoryId(Uuid::from_u128(id as u128))],
        version: "test".to_owned(),
        not_intact: Vec::new(),
    }
}

pub fn heartbeat(id: i32, broker_epoch: BrokerEpoch) -> HeartbeatRequest {
    HeartbeatRequest {
        broker_id: BrokerId(id),
        broker_epoch,
        metadata_offset: broker_epoch.0,
        want_fence: false,
        want_shut_down: false,
        offline_directories: Vec::new(),
    }
}
