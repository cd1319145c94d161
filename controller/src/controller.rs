//! One controller process: which rooms there are and how they are joined.
//! Law: wiring only. Tasks are owned here, and there is one way down: leave office, end the servers, stop the quorum.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use kuorum_metadata::config_def::{ControllerConfig, ListenAddress};
use kuorum_transport::{Clock, http, tcp};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::active::Active;
use crate::admin::{self, Admin};
use crate::events;
use crate::fleet::Fleet;
use crate::identity::{self, Home, IdentityError};
use crate::probe;
use crate::quorum::{Ended, Failure, Quorum, QuorumConfig, Threads, http_client};
use crate::replay::Replays;
use crate::rpc::{self, Rpc};
use crate::ticker;

/// Connections to the quorum listener: three controllers and every broker, several each.
const RPC_CONNECTIONS: usize = 2_048;
/// Connections to the admin listener.
const ADMIN_CONNECTIONS: usize = 512;

/// Why a controller did not start. The sentence says what to do.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(
        "{key}={address} cannot be used: {cause}; another process may have the port, choose another one or stop it"
    )]
    Listen {
        key: &'static str,
        address: ListenAddress,
        // Not its `source`: the sentence says it already, and whoever prints the causes behind it would say it twice.
        cause: io::Error,
    },
    #[error("the metadata log in {path} cannot be opened: {cause}")]
    Quorum { path: String, cause: io::Error },
    #[error("no HTTP client: {0}")]
    Client(#[from] reqwest::Error),
}

/// A running controller.
#[derive(Debug)]
pub struct Controller {
    quorum: Quorum,
    active: Active,
    failure: Failure,
    going_down: CancellationToken,
    tasks: JoinSet<()>,
    rpc_address: SocketAddr,
    admin_address: SocketAddr,
    /// Held to the end.
    _home: Home,
}

impl Controller {
    /// Opens the directory, binds both listeners and starts. Returns before there is a quorum.
    ///
    /// # Errors
    /// If a directory or a port cannot be used.
    pub async fn start(config: ControllerConfig, clock: Clock) -> Result<Self, StartError> {
        let home = identity::open(&config.metadata_log_dir, config.node_id)?;
        let rpc_listener = listen("controller.listener", &config.controller_listener).await?;
        let admin_listener = listen("admin.listener", &config.admin_listener).await?;
        let (rpc_address, admin_address) = (
            address_of(&rpc_listener, &config)?,
            address_of(&admin_listener, &config)?,
        );
        let failure = Failure::new();
        let client = http_client()?;
        let quorum = Quorum::open(
            home.dir.clone(),
            home.identity.clone(),
            quorum_config(&config),
            // Of its own: connections live on the threads that opened them.
            Arc::new(http_client()?),
            clock.clone(),
            failure.clone(),
            Threads::Own,
        )
        .await
        .map_err(|cause| StartError::Quorum {
            path: config.metadata_log_dir.display().to_string(),
            cause,
        })?;
        let active = Active::new(
            quorum.clone(),
            clock.clone(),
            config.timings(),
            config.recorded_values(),
        );
        let going_down = CancellationToken::new();
        let rebalance = config
            .auto_leader_rebalance_enable
            .then_some(config.leader_imbalance_check_interval);
        let voters: BTreeMap<u64, String> = config
            .voters
            .iter()
            .map(|voter| (voter.id, voter.address.to_string()))
            .collect();
        let fleet = Fleet::new(client.clone(), clock.clone());
        let replays = Replays::new(active.clone(), quorum.clone(), fleet.clone(), clock.clone());
        let admin = Admin {
            active: active.clone(),
            quorum: quorum.clone(),
            replays: replays.clone(),
            fleet: fleet.clone(),
            client,
            clock: clock.clone(),
            config: Arc::new(config),
            event_streams: events::streams(),
            going_down: going_down.clone(),
        };
        let rpc = Rpc {
            active: active.clone(),
            quorum: quorum.clone(),
            clock: clock.clone(),
            going_down: going_down.clone(),
        };
        // Peers pass admin requests on over the quorum's listener, which only members can use.
        let rpc_router = rpc::router(rpc, admin::relayed(admin.clone()));
        let admin_router = admin::router(admin);
        let mut tasks = JoinSet::new();
        tasks.spawn(http::serve(
            rpc_listener,
            RPC_CONNECTIONS,
            rpc_router,
            clock.clone(),
            going_down.clone(),
        ));
        tasks.spawn(http::serve(
            admin_listener,
            ADMIN_CONNECTIONS,
            admin_router,
            clock.clone(),
            going_down.clone(),
        ));
        tasks.spawn(active.clone().run());
        let founder = quorum.clone();
        tasks.spawn(async move { founder.found(voters).await });
        let (ticking, probing, looking, replaying, stopped) = (
            ticker::run(active.clone(), clock.clone(), rebalance),
            probe::run(active.clone(), clock.clone()),
            ticker::look_around(active.clone(), quorum.clone(), fleet, clock),
            replays.take_over(),
            going_down.clone(),
        );
        tasks.spawn(async move {
            tokio::select! {
                () = ticking => {}
                () = probing => {}
                () = looking => {}
                () = replaying => {}
                () = stopped.cancelled() => {}
            }
        });
        Ok(Self {
            quorum,
            active,
            failure,
            going_down,
            tasks,
            rpc_address,
            admin_address,
            _home: home,
        })
    }

    /// The quorum this controller belongs to.
    pub fn quorum(&self) -> &Quorum {
        &self.quorum
    }

    /// Its desk.
    pub fn active(&self) -> &Active {
        &self.active
    }

    /// Where `controller.listener` is bound.
    pub fn rpc_address(&self) -> SocketAddr {
        self.rpc_address
    }

    /// Where `admin.listener` is bound.
    pub fn admin_address(&self) -> SocketAddr {
        self.admin_address
    }

    /// Waits for a failure that this process cannot survive.
    pub async fn failed(&self) -> Ended {
        self.failure.reported().await
    }

    /// The one way down.
    pub async fn stop(mut self) {
        // First out of office, so that a session that ends now is not taken for a broker's death.
        self.active.retire();
        self.going_down.cancel();
        self.quorum.shut_down().await;
        let drained = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(std::time::Duration::from_secs(5), drained)
            .await
            .is_err()
        {
            tracing::warn!("some requests did not end in time");
            self.tasks.abort_all();
        }
    }
}

async fn listen(
    key: &'static str,
    address: &ListenAddress,
) -> Result<tcp::TcpListener, StartError> {
    tcp::listen(&address.to_string())
        .await
        .map_err(|cause| StartError::Listen {
            key,
            address: address.clone(),
            cause,
        })
}

fn address_of(
    listener: &tcp::TcpListener,
    config: &ControllerConfig,
) -> Result<SocketAddr, StartError> {
    listener.local_addr().map_err(|cause| StartError::Listen {
        key: "controller.listener",
        address: config.controller_listener.clone(),
        cause,
    })
}

fn quorum_config(config: &ControllerConfig) -> QuorumConfig {
    QuorumConfig {
        heartbeat_interval: config.quorum_heartbeat_interval,
        election_timeout_min: config.quorum_election_timeout_min,
        election_timeout_max: config.quorum_election_timeout_max,
        install_snapshot_timeout: config.quorum_install_snapshot_timeout,
        snapshot_entries: config.max_records_between_snapshots,
        kept_entries: config.records_kept_after_snapshot,
        kept_events: config.max_events,
    }
}
