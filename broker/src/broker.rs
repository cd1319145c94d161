//! One broker process: which rooms it has, in which order they open, and in which order they close.
//! Law: wiring only. A broker opens its doors when it knows what the cluster agreed on, and closes its logs when nobody
//! can reach them any more.
//!
//! ```text
//! up:   directories locked → ports bound → logs opened → metadata followed → registered → caught up → requests served
//! down: leave asked for and given → doors closed → followers and timers ended → logs closed → directories marked clean
//! ```

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use kuorum_metadata::config_def::{self, ListenAddress};
use kuorum_metadata::control::office;
use kuorum_metadata::rpc::is_cluster_id;
use kuorum_protocol::{DirectoryId, IncarnationId};
use kuorum_storage::{AnyDir, Dir, Flusher, LogDirs, LogDirsError, RealDir};
use kuorum_transport::{
    Accepting, Clock, Dialing, Network, Server, ServerConfig, SystemNetwork, descriptors,
};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::alter_partition::{self, IsrProposals};
use crate::assign_directories::{self, Placements};
use crate::authorizer::Authorizer;
use crate::cluster::carrier::{self, Carrier};
use crate::cluster::controller_client::{ControllerPeer, ForeignCluster};
use crate::cluster::lifecycle::{Introduction, Lifecycle};
use crate::cluster::metadata_follower::MetadataFollower;
use crate::cluster::{ControllerClient, Membership, MetadataCache};
use crate::config::BrokerConfig;
use crate::context::{CLIENT, INTERNAL, Rooms};
use crate::dispatch::Dispatch;
use crate::event_reporter::{self, EventReports};
use crate::fetch_memory::FetchMemory;
use crate::fetch_session::FetchSessions;
use crate::handlers::log::limits::TopicLimits;
use crate::http;
use crate::log_maintenance;
use crate::metrics::Metrics;
use crate::producer_ids::ProducerIds;
use crate::replica_fetcher::{FetchLimits, Fetchers};
use crate::replica_manager::{Opened, ReplicaManager, Tools};
use crate::salvage::{Salvage, SalvageLimits};

/// The file that says whose a directory is.
const META_PROPERTIES: &str = "meta.properties";

/// How long after the shutdown of the doors a request may still be answered.
const DRAIN: Duration = Duration::from_secs(2);

/// CLIENT and INTERNAL, which share what connections may take.
const LISTENERS: usize = 2;

/// How many threads make records durable; each waits for a disk, not for a processor.
const FLUSH_THREADS: usize = 8;

/// Why a broker cannot start. The display is one line that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(
        "{path} is not formatted; run: kuorum-broker format --config FILE --cluster-id ID, with the id that the \
         controllers were formatted with"
    )]
    Unformatted { path: String },
    #[error(
        "{path} belongs to another node or cluster ({reason}); point log.dirs or node.id elsewhere, or if it holds nothing \
         that is needed, empty it and format it anew"
    )]
    Foreign { path: String, reason: String },
    #[error(
        "{path} cannot be used: {reason}; put that file back as it was, or if its records can be spared, empty the \
         directory and format it"
    )]
    Damaged { path: String, reason: String },
    #[error(
        "{path} is in use by another process; stop that broker, or give this one a log.dirs of its own"
    )]
    Locked { path: String },
    #[error(
        "{path} cannot be used: {cause}; make it a directory this user may write to, or change log.dirs"
    )]
    Directory { path: String, cause: String },
    #[error("cannot listen on {address} ({key}): {cause}{}", port_advice(cause))]
    Listen {
        key: &'static str,
        address: String,
        cause: io::Error,
    },
    #[error(
        "{0:?} is no cluster id: use letters, digits, - and _, at most 64 of them; it is the one that the controllers were \
         formatted with (cluster.id in their meta.properties)"
    )]
    ClusterId(String),
    #[error("the system gives no {what}: {cause}")]
    System { what: &'static str, cause: String },
}

fn port_advice(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::AddrInUse => {
            "; stop what listens there (ss -ltnp shows it) or configure another port"
        }
        io::ErrorKind::AddrNotAvailable => "; this machine has no such address",
        io::ErrorKind::PermissionDenied => "; ports below 1024 need a privilege",
        _ => "",
    }
}

impl From<LogDirsError> for StartError {
    fn from(error: LogDirsError) -> Self {
        match error {
            LogDirsError::Locked { path } => Self::Locked { path },
            LogDirsError::Unformatted { path } => Self::Unformatted { path },
            LogDirsError::Foreign { path, reason } => Self::Foreign { path, reason },
            LogDirsError::Damaged { path, reason } => Self::Damaged { path, reason },
            LogDirsError::Storage(failure) => Self::Directory {
                path: failure.path.clone(),
                cause: failure.to_string(),
            },
        }
    }
}

/// Why a broker that has started must end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// A task without which a broker is none has panicked: what is in memory may not be what was agreed on.
    #[error("the {0} has failed; the lines above say why. Start this broker again")]
    Task(&'static str),
    /// It is in order itself, and not wanted.
    #[error(transparent)]
    ForeignCluster(#[from] ForeignCluster),
}

/// A running broker.
#[derive(Debug)]
pub struct Broker {
    rooms: Arc<Rooms>,
    client_address: SocketAddr,
    internal_address: SocketAddr,
    http_address: SocketAddr,
    /// Asks the controllers for leave.
    leave: CancellationToken,
    /// Closes the doors.
    shut: CancellationToken,
    /// Ends everything else.
    stop: CancellationToken,
    life: JoinHandle<()>,
    doors: TaskTracker,
    tasks: Tasks,
}

/// The tasks without which a broker is none: when one of them panics, the process must not go on as if it had not.
#[derive(Debug, Default)]
struct Tasks {
    tracker: TaskTracker,
    failed: watch::Sender<Option<&'static str>>,
}

impl Tasks {
    fn spawn(
        &self,
        what: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        let failed = self.failed.clone();
        self.tracker.spawn(async move {
            // Nothing the task was working on is looked at again.
            if AssertUnwindSafe(task).catch_unwind().await.is_err() {
                failed.send_replace(Some(what));
            }
        })
    }
}

/// The sockets, bound before anything that takes long.
struct Sockets<L> {
    client: L,
    internal: L,
    http: L,
}

/// The doors of a broker to everything that is not itself. Production hands in the machine's ([`Outside::machine`]), a simulation its
/// own (docs/adr/0007-shells-under-turmoil.md).
#[derive(Debug)]
pub struct Outside<N> {
    pub clock: Clock,
    /// The log directories.
    pub disks: Vec<AnyDir>,
    /// Who makes records durable.
    pub flusher: Flusher,
    /// Where it listens, and how it reaches other brokers.
    pub network: Arc<N>,
    /// How it reaches the controllers.
    pub carrier: Arc<dyn Carrier>,
}

impl Outside<SystemNetwork> {
    /// What the machine has.
    pub fn machine(values: &config_def::BrokerConfig, clock: Clock) -> Result<Self, StartError> {
        let system = |what, cause: String| StartError::System { what, cause };
        let flusher = Flusher::new(FLUSH_THREADS)
            .map_err(|cause| system("threads to flush logs", cause.to_string()))?;
        let client =
            carrier::http_client().map_err(|cause| system("HTTP client", cause.to_string()))?;
        Ok(Self {
            clock,
            disks: real_dirs(values).map(AnyDir::new).collect(),
            flusher,
            network: Arc::new(SystemNetwork),
            carrier: Arc::new(client),
        })
    }
}

/// What the rooms are made of.
struct Materials {
    clock: Clock,
    log_dirs: LogDirs<AnyDir>,
    flusher: Flusher,
    network: Arc<dyn Dialing>,
    carrier: Arc<dyn Carrier>,
}

impl Broker {
    /// Opens everything. Returns once the ports are bound and the logs are open; the broker then finds its way into the
    /// cluster by itself, however long that takes.
    pub async fn start<N: Network>(
        values: config_def::BrokerConfig,
        outside: Outside<N>,
    ) -> Result<Self, StartError> {
        let Outside {
            clock,
            disks,
            flusher,
            network,
            carrier,
        } = outside;
        let cluster_id = cluster_id(&disks)?;
        let log_dirs = LogDirs::open(disks, &cluster_id, values.node_id.0)?;
        let sockets = Sockets::bind(&*network, &values).await?;
        let config = Arc::new(BrokerConfig::new(values, cluster_id));
        let addresses = sockets.addresses()?;

        let stop = CancellationToken::new();
        let tasks = Tasks::default();
        let materials = Materials {
            clock,
            log_dirs,
            flusher,
            network,
            carrier,
        };
        let rooms = open_rooms(&config, materials, &tasks, &stop);
        let (shut, doors) = (CancellationToken::new(), TaskTracker::new());
        doors.spawn(http::serve(
            sockets.http,
            Arc::downgrade(&rooms),
            shut.clone(),
        ));
        let replicas = Arc::clone(&rooms.replicas);
        let opened = tokio::task::spawn_blocking(move || replicas.open_found())
            .await
            .map_err(|error| StartError::System {
                what: "thread to open the logs",
                cause: error.to_string(),
            })?;
        let leave = CancellationToken::new();
        let life = tasks.spawn(
            "membership in the cluster",
            live(Arc::clone(&rooms), opened, leave.clone()),
        );
        for (socket, listener) in [(sockets.client, CLIENT), (sockets.internal, INTERNAL)] {
            doors.spawn(open_door(
                Arc::clone(&rooms),
                socket,
                listener,
                shut.clone(),
            ));
        }
        let [client_address, internal_address, http_address] = addresses;
        Ok(Self {
            rooms,
            client_address,
            internal_address,
            http_address,
            leave,
            shut,
            stop,
            life,
            doors,
            tasks,
        })
    }

    /// Where Kafka clients connect.
    pub fn client_address(&self) -> SocketAddr {
        self.client_address
    }

    /// Where other brokers connect.
    pub fn internal_address(&self) -> SocketAddr {
        self.internal_address
    }

    /// Where health and metrics are served.
    pub fn http_address(&self) -> SocketAddr {
        self.http_address
    }

    /// The rooms, to look at.
    pub fn rooms(&self) -> &Arc<Rooms> {
        &self.rooms
    }

    /// Ends when this broker cannot go on, and says why.
    pub async fn failed(&self) -> Failure {
        let mut failed = self.tasks.failed.subscribe();
        tokio::select! {
            what = failed.wait_for(Option::is_some) => {
                // The sender lives as long as this broker.
                Failure::Task(what.ok().and_then(|what| *what).unwrap_or("task"))
            }
            foreign = self.rooms.controllers.foreign() => foreign.into(),
        }
    }

    /// Leaves the cluster in good order: leaderships are handed over first, then the doors are closed, then the logs.
    pub async fn stop(self) {
        self.leave.cancel();
        // Its failure, if there was one, has been said.
        let _ = self.life.await;
        self.shut.cancel();
        self.doors.close();
        self.doors.wait().await;
        self.stop.cancel();
        self.tasks.tracker.close();
        self.tasks.tracker.wait().await;
        let Some(rooms) = Arc::into_inner(self.rooms) else {
            tracing::warn!("somebody still uses the logs; they will be checked at the next start");
            return;
        };
        let replicas = Arc::clone(&rooms.replicas);
        drop(rooms);
        if tokio::task::spawn_blocking(move || replicas.close())
            .await
            .is_err()
        {
            tracing::error!("the logs could not be closed; they will be checked at the next start");
        }
    }
}

/// Gives the directories of a broker their identity, each only once. Returns the ones that were formatted.
pub fn format(
    values: &config_def::BrokerConfig,
    cluster_id: &str,
) -> Result<Vec<String>, StartError> {
    if !is_cluster_id(cluster_id) {
        return Err(StartError::ClusterId(cluster_id.to_owned()));
    }
    let mut formatted = Vec::new();
    for dir in real_dirs(values) {
        let directory_id = DirectoryId(Uuid::new_v4());
        let trouble = |cause: io::Error| StartError::Directory {
            path: dir.path(),
            cause: cause.to_string(),
        };
        let is_new = dir
            .create()
            .and_then(|_| dir.read_file(META_PROPERTIES))
            .map_err(trouble)?
            .is_none();
        LogDirs::format(&dir, cluster_id, values.node_id.0, directory_id)?;
        if is_new {
            formatted.push(dir.path());
        }
    }
    Ok(formatted)
}

fn real_dirs(values: &config_def::BrokerConfig) -> impl Iterator<Item = RealDir> {
    values.log_dirs.iter().map(RealDir::new)
}

/// The cluster that the first readable directory was formatted for; the others must agree.
fn cluster_id(dirs: &[AnyDir]) -> Result<String, StartError> {
    let mut trouble = None;
    for dir in dirs {
        match dir.read_file(META_PROPERTIES) {
            Ok(Some(bytes)) => {
                let text = String::from_utf8_lossy(&bytes);
                let id = text
                    .lines()
                    .find_map(|line| line.trim().strip_prefix("cluster.id="));
                return id.map(str::to_owned).ok_or_else(|| StartError::Damaged {
                    path: dir.path(),
                    reason: format!("{META_PROPERTIES} has no cluster.id"),
                });
            }
            Ok(None) => return Err(StartError::Unformatted { path: dir.path() }),
            Err(cause) => {
                trouble = Some(StartError::Directory {
                    path: dir.path(),
                    cause: cause.to_string(),
                });
            }
        }
    }
    Err(trouble.unwrap_or(StartError::System {
        what: "log directory",
        cause: "log.dirs names none".to_owned(),
    }))
}

impl<L: Accepting> Sockets<L> {
    async fn bind<N: Network<Listener = L>>(
        network: &N,
        values: &config_def::BrokerConfig,
    ) -> Result<Self, StartError> {
        Ok(Self {
            client: listen(network, "listeners, CLIENT", &values.client_listener).await?,
            internal: listen(network, "listeners, INTERNAL", &values.internal_listener).await?,
            http: listen(network, "http.listener", &values.http_listener).await?,
        })
    }

    fn addresses(&self) -> Result<[SocketAddr; 3], StartError> {
        let local = |socket: &L| {
            socket.local_addr().map_err(|cause| StartError::System {
                what: "address of a listening socket",
                cause: cause.to_string(),
            })
        };
        Ok([
            local(&self.client)?,
            local(&self.internal)?,
            local(&self.http)?,
        ])
    }
}

async fn listen<N: Network>(
    network: &N,
    key: &'static str,
    address: &ListenAddress,
) -> Result<N::Listener, StartError> {
    let address = address.to_string();
    network
        .listen(&address)
        .await
        .map_err(|cause| StartError::Listen {
            key,
            address,
            cause,
        })
}

/// Builds the rooms and starts what runs in the background in them.
fn open_rooms(
    config: &Arc<BrokerConfig>,
    materials: Materials,
    tasks: &Tasks,
    stop: &CancellationToken,
) -> Arc<Rooms> {
    let Materials {
        clock,
        log_dirs,
        flusher,
        network,
        carrier,
    } = materials;
    let incarnation = IncarnationId(Uuid::from_u128(clock.random_u128()));
    let membership = Arc::new(Membership::new(config.node_id, incarnation));
    let metadata = Arc::new(MetadataCache::new());
    let cluster_id = config.cluster_id.clone();
    let controllers = ControllerClient::new(carrier, cluster_id, config.node_id, peers(config));
    let limits = FetchLimits {
        wait_max: config.replica_fetch_wait_max,
        min_bytes: config.replica_fetch_min_bytes,
        backoff: config.replica_fetch_backoff,
        partition_max_bytes: usize::try_from(config.replica_fetch_max_bytes).unwrap_or(0),
        response_max_bytes: usize::try_from(config.replica_fetch_response_max_bytes).unwrap_or(0),
    };
    let fetchers = Arc::new(Fetchers::new(
        clock.clone(),
        Arc::clone(&membership),
        limits,
        network,
        tokio::runtime::Handle::current(),
        stop.clone(),
    ));
    let proposals = Arc::new(IsrProposals::default());
    let placements = Arc::new(Placements::default());
    let metrics = Arc::new(Metrics::new());
    let reports = Arc::new(EventReports::new(metrics.events_dropped.clone()));
    let salvage = Salvage::open(
        &log_dirs,
        SalvageLimits {
            total_bytes: config.salvage_max_bytes,
            copy_max: config.salvage_copy_max,
        },
        clock.clone(),
        Arc::clone(&reports),
    );
    let replicas = ReplicaManager::new(Tools {
        clock: clock.clone(),
        metrics: Arc::clone(&metrics),
        log_dirs: Arc::new(log_dirs),
        flusher,
        membership: Arc::clone(&membership),
        proposals: Arc::clone(&proposals),
        placements: Arc::clone(&placements),
        reports: Arc::clone(&reports),
        fetchers: Arc::clone(&fetchers),
        salvage: Arc::clone(&salvage),
        replica_lag_time_max: config.replica_lag_time_max,
    });
    tasks.spawn(
        "metadata follower",
        MetadataFollower {
            controllers: controllers.clone(),
            cache: Arc::clone(&metadata),
            replicas: Arc::clone(&replicas),
            membership: Arc::clone(&membership),
        }
        .run(stop.clone()),
    );
    tasks.spawn(
        "proposer of ISR changes",
        alter_partition::run(
            proposals,
            controllers.clone(),
            Arc::clone(&membership),
            stop.clone(),
        ),
    );
    tasks.spawn(
        "reporter of placements",
        assign_directories::run(
            placements,
            Arc::clone(&replicas),
            controllers.clone(),
            Arc::clone(&membership),
            stop.clone(),
        ),
    );
    tasks.spawn(
        "reporter of events",
        event_reporter::run(
            reports,
            controllers.clone(),
            Arc::clone(&membership),
            stop.clone(),
        ),
    );
    tasks.spawn(
        "log maintenance",
        log_maintenance::run(
            Arc::clone(&replicas),
            clock.clone(),
            log_maintenance::Intervals {
                checkpoints: config.high_watermark_checkpoint_interval,
                retention: config.log_retention_check_interval,
            },
            stop.clone(),
        ),
    );
    tasks.spawn(
        "keeper of what was salvaged",
        Arc::clone(&salvage).run(
            Arc::clone(&metadata),
            config.log_retention_check_interval,
            stop.clone(),
        ),
    );
    tasks.spawn(
        "watch over failed disks",
        Arc::clone(&replicas).watch_failures(stop.clone()),
    );
    let producer_ids = Arc::new(ProducerIds::new(
        controllers.clone(),
        Arc::clone(&membership),
    ));
    tasks.spawn(
        "keeper of producer ids",
        Arc::clone(&producer_ids).keep_stocked(stop.clone()),
    );
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    Arc::new(Rooms {
        config: Arc::clone(config),
        clock,
        membership,
        metadata,
        replicas,
        controllers,
        producer_ids,
        sessions: FetchSessions::new(config.fetch_session_slots),
        fetch_memory: FetchMemory::new(config.fetch_memory_max_bytes),
        topic_limits: TopicLimits::default(),
        unpacking: Semaphore::new(processors),
        metrics,
        salvage,
        authorizer: Authorizer,
    })
}

fn peers(config: &BrokerConfig) -> Vec<ControllerPeer> {
    config
        .voters
        .iter()
        .map(|voter| ControllerPeer {
            id: voter.id,
            address: voter.address.to_string(),
        })
        .collect()
}

/// Says where this broker's file says something else than the cluster of values that all share.
fn compare_file(rooms: &Rooms) {
    let file = rooms.config.cluster_values();
    for difference in office::differences(&rooms.metadata.image(), &file) {
        let built_in = config_def::file_key(&difference.name).and_then(|key| key.default_value());
        let holds = difference.recorded.as_deref().or(built_in);
        // What the file leaves out it leaves to the cluster.
        if difference.file.is_some() && difference.file.as_deref() != holds {
            tracing::warn!(
                key = difference.name,
                file = difference.file,
                cluster = holds,
                "this broker's file differs from what the active controller has recorded, which holds"
            );
        }
    }
}

/// The broker's life in its cluster, from its first look at the metadata to its leave.
async fn live(rooms: Arc<Rooms>, opened: Opened, leave: CancellationToken) {
    // Which replicas are not intact depends on what the cluster agreed on.
    tokio::select! {
        () = leave.cancelled() => return,
        () = rooms.metadata.caught_up() => {}
    }
    compare_file(&rooms);
    let not_intact = rooms.replicas.not_intact(opened, &rooms.metadata.image());
    let directories = rooms.replicas.log_dirs().directories();
    let config = &rooms.config;
    let lifecycle = Lifecycle {
        controllers: rooms.controllers.clone(),
        cache: Arc::clone(&rooms.metadata),
        membership: Arc::clone(&rooms.membership),
        introduction: Introduction {
            listeners: config.advertised_listeners.clone(),
            http: config.http_listener.to_string(),
            rack: config.rack.clone(),
            directories: directories
                .into_iter()
                .filter(|(_, works)| *works)
                .map(|(directory, _)| directory)
                .collect(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            not_intact,
        },
        heartbeat_interval: config.heartbeat_interval,
        shutdown_patience: match config.controlled_shutdown_enable {
            true => config.controlled_shutdown_timeout,
            false => Duration::ZERO,
        },
    };
    drop(rooms);
    lifecycle.run(leave).await;
}

/// Serves a listener once the broker knows what the cluster agreed on, its own registration included: before that it would
/// call topics unknown that exist. Whoever connects earlier waits in the socket's queue.
async fn open_door<L: Accepting>(
    rooms: Arc<Rooms>,
    socket: L,
    listener: &'static str,
    shut: CancellationToken,
) {
    let mut phase = rooms.membership.subscribe();
    let mut offset = rooms.metadata.subscribe();
    let is_ready = async {
        let registered = phase.wait_for(|phase| phase.epoch.is_some()).await;
        let epoch = registered.ok().and_then(|phase| phase.epoch);
        let _ = offset
            .wait_for(|offset| epoch.is_some_and(|epoch| *offset >= epoch.0))
            .await;
    };
    tokio::select! {
        () = shut.cancelled() => return,
        () = is_ready => {}
    }
    let config = ServerConfig {
        max_connections: rooms
            .config
            .max_connections
            .min(descriptors::for_connections() / LISTENERS),
        max_request_bytes: rooms.config.socket_request_max_bytes,
        max_idle: rooms.config.connections_max_idle,
        drain: DRAIN,
        ..ServerConfig::new(listener)
    };
    Server::new(socket, config, Dispatch::new(rooms))
        .run(shut)
        .await;
}
