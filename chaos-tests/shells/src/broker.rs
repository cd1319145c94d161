//! One broker process of the simulated world: all of `kuorum-broker`, from its log directories to its listeners.
//! Law: nothing here stands in for the product but the doors: disk, network, clock, and the hands that flush.

use std::future::pending;
use std::sync::{Arc, Weak};
use std::time::Duration;

use kuorum_broker::broker::{Broker, Outside};
use kuorum_broker::context::Rooms;
use kuorum_controller::quorum::Ended;
use kuorum_metadata::config_def::{BrokerConfig, parse_properties};
use kuorum_protocol::DirectoryId;
use kuorum_storage::{AnyDir, Dir, Flusher, Flushes, LogDirs, LogDirsError};
use kuorum_transport::Clock;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::controller::CLUSTER;
use crate::disk::Disk;
use crate::network::{PORT, Roads};
use crate::plan::{CONTROLLERS, Machine, broker_host, controller_host};
use crate::world::Cluster;

/// Where clients connect.
pub(crate) const CLIENT_PORT: u16 = 9092;
const INTERNAL_PORT: u16 = 9094;
const HTTP_PORT: u16 = 8080;
/// The log directories of a broker, both on its one disk.
const DIRECTORIES: [&str; 2] = ["one", "two"];

/// What the world sees of a process that runs.
pub(crate) struct Running {
    /// Gone when the process has closed its logs.
    pub(crate) rooms: Weak<Rooms>,
    pub(crate) clock: Clock,
    /// Makes it go down in good order.
    pub(crate) leave: CancellationToken,
}

/// Gives a new disk its identity, before the process first runs.
pub(crate) fn format(disk: &Disk, id: i32) -> Result<(), LogDirsError> {
    for (dir, number) in DIRECTORIES.iter().zip(1..) {
        let directory_id = DirectoryId(Uuid::from_u128(1_000 * id as u128 + number));
        LogDirs::format(&disk.subdirectory(dir), CLUSTER, id, directory_id)?;
    }
    Ok(())
}

/// Runs until the host crashes. A process that ends, or would end itself, says so and stands still.
pub(crate) async fn run(cluster: Arc<Cluster>, id: i32) -> turmoil::Result {
    let machine = Machine::Broker(id);
    let clock = Clock::seeded(cluster.number(100 + id as u64));
    if let Some(elapsed) = turmoil::sim_elapsed() {
        clock.move_wall(elapsed.as_millis() as i64);
    }
    match start(&cluster, id, &clock).await {
        Err(error) => cluster.ended(machine, Ended::for_good(format!("cannot start: {error}"))),
        Ok(broker) => {
            let leave = CancellationToken::new();
            let running = Running {
                rooms: Arc::downgrade(broker.rooms()),
                clock,
                leave: leave.clone(),
            };
            cluster.broker_started(id, running);
            tokio::select! {
                failure = broker.failed() => cluster.ended(machine, Ended::for_good(failure.to_string())),
                () = leave.cancelled() => {
                    broker.stop().await;
                    cluster.left(machine);
                }
            }
        }
    }
    pending().await
}

async fn start(
    cluster: &Arc<Cluster>,
    id: i32,
    clock: &Clock,
) -> Result<Broker, Box<dyn std::error::Error>> {
    let disk = cluster.disk(Machine::Broker(id));
    let values = BrokerConfig::load(&parse_properties(&properties(cluster, id))?)?;
    let (flusher, flushes) = Flusher::borrowed();
    tokio::spawn(flush(
        flushes,
        clock.clone(),
        cluster.plan.slowest_write.as_millis() as u64,
    ));
    let roads = Roads::default();
    let outside = Outside {
        clock: clock.clone(),
        disks: DIRECTORIES
            .iter()
            .map(|dir| AnyDir::new(disk.subdirectory(dir)))
            .collect(),
        flusher,
        network: Arc::new(roads.clone()),
        carrier: Arc::new(roads),
    };
    Ok(Broker::start(values, outside).await?)
}

/// Shorter times than the defaults, so that what they are for happens within a run.
fn properties(cluster: &Cluster, id: i32) -> String {
    let voters: Vec<String> = CONTROLLERS
        .iter()
        .map(|id| format!("{id}@{}:{PORT}", controller_host(*id)))
        .collect();
    let host = broker_host(id);
    format!(
        "node.id={id}\n\
         controller.quorum.voters={}\n\
         log.dirs=/one,/two\n\
         listeners=CLIENT://0.0.0.0:{CLIENT_PORT},INTERNAL://0.0.0.0:{INTERNAL_PORT}\n\
         advertised.listeners=CLIENT://{host}:{CLIENT_PORT},INTERNAL://{host}:{INTERNAL_PORT}\n\
         http.listener=0.0.0.0:{HTTP_PORT}\n\
         broker.session.timeout.ms=4000\n\
         broker.heartbeat.interval.ms=500\n\
         replica.lag.time.max.ms={}\n\
         replica.high.watermark.checkpoint.interval.ms={}\n\
         controlled.shutdown.timeout.ms=3000\n",
        voters.join(","),
        cluster.plan.replica_lag.as_millis(),
        cluster.plan.checkpoints.as_millis(),
    )
}

/// Flushes what is dirty, each log after a while of its own.
async fn flush(mut flushes: Flushes, clock: Clock, slowest_millis: u64) {
    while let Some(due) = flushes.next().await {
        let clock = clock.clone();
        tokio::spawn(async move {
            let wait = clock.random_below(slowest_millis + 1);
            clock.sleep(Duration::from_millis(wait)).await;
            due.run();
        });
    }
}
