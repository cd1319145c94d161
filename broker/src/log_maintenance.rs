//! What partitions need now and then: a look at the clock, checkpoints, and the deletion of what retention gives up.
//! Law: timers only. Each partition decides for itself what the time means to it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use kuorum_protocol::{DirectoryId, Offset, PartitionIndex};
use kuorum_storage::{AnyDir, LogDirs, RecoveryPoint};
use kuorum_transport::Clock;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::replica_manager::{Hosted, ReplicaManager};

/// How often partitions look at the clock: the precision of a produce's deadline and of ISR checks.
const TICK: Duration = Duration::from_millis(100);

/// How often what is done.
#[derive(Clone, Copy, Debug)]
pub struct Intervals {
    /// `replica.high.watermark.checkpoint.interval.ms`: recovery points and log starts are written with them, so that the
    /// three never tell different stories.
    pub checkpoints: Duration,
    /// `log.retention.check.interval.ms`.
    pub retention: Duration,
}

/// Runs until `stop` is cancelled.
pub async fn run(
    replicas: Arc<ReplicaManager>,
    clock: Clock,
    intervals: Intervals,
    stop: CancellationToken,
) {
    let mut tick = every(TICK);
    let mut checkpoints = every(intervals.checkpoints);
    let mut retention = every(intervals.retention);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = tick.tick() => {
                for hosted in replicas.all() {
                    let now = clock.now();
                    hosted.with(|partition, effects| partition.tick(now, effects));
                }
            }
            _ = checkpoints.tick() => {
                let replicas = Arc::clone(&replicas);
                blocking(move || replicas.checkpoint()).await;
            }
            _ = retention.tick() => {
                let (replicas, clock) = (Arc::clone(&replicas), clock.clone());
                blocking(move || delete_expired(&replicas, &clock)).await;
            }
        }
    }
}

fn every(period: Duration) -> tokio::time::Interval {
    let mut interval = tokio::time::interval_at(tokio::time::Instant::now() + period, period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

async fn blocking(work: impl FnOnce() + Send + 'static) {
    if let Err(error) = tokio::task::spawn_blocking(work).await
        && error.is_panic()
    {
        std::panic::resume_unwind(error.into_panic());
    }
}

/// Writes the checkpoints of every directory that works: what the next start may rely on. A log that has not moved since the last
/// time is asked for nothing.
pub fn checkpoint(log_dirs: &LogDirs<AnyDir>, hosted: &[Arc<Hosted>]) {
    // One that holds nothing any more must not go on telling of what it held.
    let mut directories: HashMap<DirectoryId, Checkpoints> = log_dirs
        .directories()
        .into_iter()
        .filter(|(_, works)| *works)
        .map(|(id, _)| (id, Checkpoints::default()))
        .collect();
    for replica in hosted {
        let Some(checkpoints) = directories.get_mut(&replica.directory) else {
            continue;
        };
        let (mark, start, point, prepared) = replica.with(|partition, effects| {
            let moved = partition.log_view().flushed_end != replica.checkpointed();
            let prepared = if moved {
                partition.prepare_checkpoint(effects)
            } else {
                None
            };
            let view = partition.log_view();
            let point = prepared.map_or(view.flushed_end, |point| point.offset);
            (
                partition.high_watermark_to_checkpoint(),
                view.log_start,
                point,
                prepared,
            )
        });
        let line = |offset| (replica.topic.to_string(), replica.index, offset);
        checkpoints.high_watermarks.push(line(mark));
        checkpoints.recovery_points.push(line(point));
        checkpoints.log_starts.push(line(start));
        checkpoints
            .prepared
            .extend(prepared.map(|point| (replica, point)));
    }
    for (directory, checkpoints) in directories {
        let written = log_dirs
            .checkpoint_recovery_points(directory, &checkpoints.recovery_points)
            .and_then(|()| log_dirs.checkpoint_log_starts(directory, &checkpoints.log_starts))
            .and_then(|()| {
                log_dirs.checkpoint_high_watermarks(directory, &checkpoints.high_watermarks)
            });
        if let Err(error) = written {
            warn!(%directory, cause = %error, "a directory's checkpoints could not be written");
            continue;
        }
        for (replica, point) in checkpoints.prepared {
            replica.with(|partition, effects| partition.checkpointed(point, effects));
            replica.note_checkpoint(point.offset);
        }
    }
}

/// What one directory's checkpoints will say, and the logs that got ready for them.
#[derive(Default)]
struct Checkpoints<'a> {
    high_watermarks: Vec<Line>,
    recovery_points: Vec<Line>,
    log_starts: Vec<Line>,
    prepared: Vec<(&'a Arc<Hosted>, RecoveryPoint)>,
}

type Line = (String, PartitionIndex, Offset);

fn delete_expired(replicas: &ReplicaManager, clock: &Clock) {
    for hosted in replicas.all() {
        let now = clock.now();
        let (before, after) = hosted.with(|partition, effects| {
            (
                partition.log().start_offset(),
                partition.delete_expired(now, effects),
            )
        });
        if after > before {
            debug!(topic = %hosted.topic, partition = hosted.index, start = after.0, "retention moved the start of a log");
        }
    }
}
