//! A broker in the simulation: a disk that outlives processes, and the process of the moment, which carries out what its
//! partitions ask for just as the real shell does.

mod fetcher;
mod ledger;
mod membership;
mod metadata;
mod process;
mod replica;
mod requests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::random::Random;
use kuorum_broker::partition::{Appended, Partition, Salvager, Stopwatch};
use kuorum_metadata::image::MetadataImage;
use kuorum_protocol::{
    BrokerEpoch, BrokerId, DirectoryId, ErrorCode, IncarnationId, LeaderEpoch, Monotonic, Offset,
};
use kuorum_replication::Terms;
use kuorum_storage::salvage::SALVAGE;
use kuorum_storage::{Dir, FlushJob, LogConfig, SimDir};

use super::plan::Plan;
use crate::checkers::{PartitionNumber, ReplicaState};

/// A parked produce: a key into [`Process::parked`].
pub(super) type Token = u64;

/// A machine: its disk and, at times, a process.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) id: BrokerId,
    pub(super) disk: SimDir,
    directory: DirectoryId,
    run: u64,
    pub(super) process: Option<Process>,
    paused_until: Duration,
    pub(super) feed_stopped_until: Duration,
    checkpoints: BTreeMap<PartitionNumber, Checkpoint>,
    boot: String,
    /// What the disk held of each replica when the last process ended.
    pub(super) remains: BTreeMap<PartitionNumber, ReplicaState>,
    /// Replicas whose data were taken away, until the controllers know.
    pub(super) lost: BTreeSet<PartitionNumber>,
    /// Replicas whose data were taken away from the process of that registration.
    pub(super) taken_from: BTreeMap<PartitionNumber, BrokerEpoch>,
    /// The disk said no: it needs a power cycle before it is used again.
    disk_failed: bool,
    /// How far its wall clock is off, in milliseconds.
    pub(super) wall_offset: i64,
    /// The last process closed its logs in an orderly way.
    closed: bool,
}

/// What the checkpoint files say of one replica.
#[derive(Clone, Copy, Debug, Default)]
struct Checkpoint {
    log_start: Offset,
    recovery_point: Offset,
    high_watermark: Offset,
}

/// One run of a broker's process.
#[derive(Debug)]
pub(super) struct Process {
    incarnation: IncarnationId,
    broker_epoch: Option<BrokerEpoch>,
    image: MetadataImage,
    pub(super) hosted: BTreeMap<PartitionNumber, Hosted>,
    not_intact: BTreeSet<PartitionNumber>,
    parked: BTreeMap<Token, Parked>,
    next_token: Token,
    next_request: u64,
    leaving: Option<Leaving>,
}

/// A process that was told to end, and asks the controllers for leave.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    since: Duration,
    /// When its successor starts, counted from its end.
    restart: Duration,
    /// Heartbeats that were not answered, one after the other.
    unheard: u32,
}

/// How long a process waits for leave.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(6);
/// So many heartbeats without an answer, and it does not wait for one.
const UNHEARD_MOST: u32 = 15;

/// A replica a process holds.
#[derive(Debug)]
pub(super) struct Hosted {
    pub(super) partition: Partition<SimDir, Token>,
    flush: Option<FlushJob<SimDir>>,
    fetching: Option<u64>,
    altering: Option<u64>,
    /// The last proposal that was sent.
    proposed: Option<u64>,
    led: Option<LeaderEpoch>,
    high_watermark: Offset,
}

/// A produce that waits.
#[derive(Debug)]
struct Parked {
    client: usize,
    attempt: u64,
    values: Vec<u64>,
    producer: Option<u64>,
    /// What is said when the wait is over; a refusal waits for the controllers.
    outcome: Result<Appended, ErrorCode>,
}

impl Node {
    pub(super) fn new(id: BrokerId, random: &mut Random) -> Self {
        Self {
            id,
            disk: SimDir::new(random.number()),
            directory: DirectoryId(random.uuid()),
            run: 0,
            process: None,
            paused_until: Duration::ZERO,
            feed_stopped_until: Duration::ZERO,
            checkpoints: BTreeMap::new(),
            boot: String::new(),
            remains: BTreeMap::new(),
            lost: BTreeSet::new(),
            taken_from: BTreeMap::new(),
            disk_failed: false,
            wall_offset: 0,
            closed: false,
        }
    }

    /// The number of the process, counted from 1.
    pub(super) fn run(&self) -> u64 {
        self.run
    }

    pub(super) fn is_up(&self) -> bool {
        self.process.is_some()
    }

    /// How long the process will stand still yet.
    pub(super) fn pause_left(&self, elapsed: Duration) -> Option<Duration> {
        self.paused_until
            .checked_sub(elapsed)
            .filter(|left| !left.is_zero())
    }

    pub(super) fn pause_until(&mut self, until: Duration) {
        self.paused_until = until;
    }

    /// The partitions this process holds.
    pub(super) fn hosted(&self) -> Vec<PartitionNumber> {
        self.process
            .as_ref()
            .map_or_else(Vec::new, |process| process.hosted.keys().copied().collect())
    }

    /// Whether its process has a log of that partition.
    pub(super) fn holds(&self, partition: PartitionNumber) -> bool {
        let process = self.process.as_ref();
        process.is_some_and(|process| process.hosted.contains_key(&partition))
    }

    /// The controllers know what this process said of its replicas.
    pub(super) fn registered(&mut self) {
        self.lost.clear();
    }

    /// The image of the process, if it has one.
    pub(super) fn image(&self) -> Option<&MetadataImage> {
        self.process.as_ref().map(|process| &process.image)
    }
}

impl Hosted {
    fn new(partition: Partition<SimDir, Token>) -> Self {
        Self {
            partition,
            flush: None,
            fetching: None,
            altering: None,
            proposed: None,
            led: None,
            high_watermark: Offset::ZERO,
        }
    }
}

fn directory_name(plan: &Plan, number: PartitionNumber) -> String {
    format!("{}-{number}", plan.topic_of(number).name)
}

fn terms(plan: &Plan, number: PartitionNumber) -> Terms {
    Terms {
        min_insync_replicas: plan.topic_of(number).min_isr,
        durability: plan.durability,
        replica_lag_time_max: plan.replica_lag_time_max,
        isr_retry_backoff: Duration::from_millis(50),
    }
}

fn log_config(plan: &Plan) -> LogConfig {
    LogConfig {
        segment_bytes: plan.segment_bytes,
        retention_ms: None,
        preallocate: false,
        ..LogConfig::default()
    }
}

/// Where a machine sets aside what it cuts off. A clock that stands still is always in time.
fn salvager(disk: &SimDir) -> Salvager<SimDir> {
    Salvager {
        dir: disk.subdirectory(SALVAGE),
        item_bytes: u64::MAX,
        copy_max: Duration::from_secs(1),
        stopwatch: Stopwatch::new(Monotonic::default),
    }
}
