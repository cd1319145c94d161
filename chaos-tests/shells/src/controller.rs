//! One controller process of the simulated world: the rooms of production, wired as `Controller::start` does.
//! Law: nothing here stands in for the product but the doors: disk, network, clock.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use kuorum_controller::active::Active;
use kuorum_controller::quorum::{
    ControllerId, Ended, Failure, Identity, Next, Published, Quorum, Threads,
};
use kuorum_controller::rpc::{self, Rpc};
use kuorum_controller::ticker;
use kuorum_metadata::control::heartbeats::Timings;
use kuorum_protocol::DirectoryId;
use kuorum_storage::Dir;
use kuorum_transport::{Clock, http};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::network::{PORT, Roads, Socket};
use crate::plan::{CONTROLLERS, Machine, controller_host};
use crate::world::Cluster;

/// Names the cluster in every request.
pub(crate) const CLUSTER: &str = "under-turmoil";
/// Connections a controller takes, far more than there are.
const CONNECTIONS: usize = 4_096;
/// Shorter than in production, so that brokers that are cut off are fenced within a run.
const TIMINGS: Timings = Timings {
    session_timeout: Duration::from_secs(4),
    disconnect_grace: Duration::from_millis(250),
};

/// What the world sees of a process that runs.
pub(crate) struct Running {
    pub(crate) quorum: Quorum,
    pub(crate) active: Active,
    pub(crate) clock: Clock,
}

/// Runs until the host crashes. A process that would end itself says why, and stands still.
pub(crate) async fn run(cluster: Arc<Cluster>, id: ControllerId) -> turmoil::Result {
    let failure = Failure::new();
    let ended = match start(&cluster, id, &failure).await {
        Ok(()) => failure.reported().await,
        Err(error) => Ended::for_good(format!("cannot start: {error}")),
    };
    cluster.ended(Machine::Controller(id), ended);
    pending().await
}

async fn start(
    cluster: &Arc<Cluster>,
    id: ControllerId,
    failure: &Failure,
) -> Result<(), Box<dyn std::error::Error>> {
    let disk = cluster.disk(Machine::Controller(id)).clone();
    if disk.create()? {
        disk.sync_parent()?;
    }
    let clock = Clock::seeded(cluster.number(id));
    if let Some(elapsed) = turmoil::sim_elapsed() {
        clock.move_wall(elapsed.as_millis() as i64);
    }
    let identity = Identity {
        cluster_id: CLUSTER.to_owned(),
        controller_id: id,
        directory_id: DirectoryId(Uuid::from_u128(u128::from(id))),
    };
    let quorum = Quorum::open(
        disk,
        identity,
        cluster.plan.quorum.clone(),
        Arc::new(Roads::default()),
        clock.clone(),
        failure.clone(),
        Threads::Borrowed {
            slowest_write: cluster.plan.slowest_write,
        },
    )
    .await?;
    let active = Active::new(quorum.clone(), clock.clone(), TIMINGS, BTreeMap::new());
    let going_down = CancellationToken::new();
    let rpc = Rpc {
        active: active.clone(),
        quorum: quorum.clone(),
        clock: clock.clone(),
        going_down: going_down.clone(),
    };
    // Nobody passes on admin requests here: what they ask for, brokers may ask for as well.
    let router = rpc::router(rpc, Router::new());
    tokio::spawn(http::serve(
        Socket::bind(PORT).await?,
        CONNECTIONS,
        router,
        clock.clone(),
        going_down,
    ));
    tokio::spawn(active.clone().run());
    let (founder, voters) = (quorum.clone(), voters());
    tokio::spawn(async move { founder.found(voters).await });
    tokio::spawn(ticker::run(active.clone(), clock.clone(), None));
    tokio::spawn(watch_log(
        Arc::clone(cluster),
        id,
        Arc::clone(quorum.published()),
    ));
    tokio::spawn(watch_office(Arc::clone(cluster), id, active.clone()));
    cluster.started(
        id,
        Running {
            quorum,
            active,
            clock,
        },
    );
    Ok(())
}

fn voters() -> BTreeMap<ControllerId, String> {
    CONTROLLERS
        .iter()
        .map(|id| (*id, format!("{}:{PORT}", controller_host(*id))))
        .collect()
}

/// Notes every entry that is applied here.
async fn watch_log(cluster: Arc<Cluster>, id: ControllerId, published: Arc<Published>) {
    let who = controller_host(id);
    let mut applied = published.watch();
    let mut next = 0;
    loop {
        applied.mark_unchanged();
        match published.next(next, usize::MAX) {
            // What the snapshot holds has been applied by another before.
            Next::Image(_, end) => {
                cluster.history.lock().tally.snapshots += 1;
                next = end;
            }
            Next::Entries(entries, end) => {
                let mut history = cluster.history.lock();
                for (offset, records) in entries {
                    history.applied(&who, offset, records);
                }
                next = next.max(end);
            }
        }
        if applied.changed().await.is_err() {
            return;
        }
    }
}

/// Notes under which epochs this controller is in office.
async fn watch_office(cluster: Arc<Cluster>, id: ControllerId, active: Active) {
    let mut office = active.watch();
    loop {
        let held = *office.borrow_and_update();
        if let Some(epoch) = held {
            cluster.history.lock().in_office(id, epoch);
        }
        if office.changed().await.is_err() {
            return;
        }
    }
}
