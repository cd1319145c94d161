//! Tells the controllers in which log directory each new replica lies (KIP-858).
//! Law: one request in flight; what was not acknowledged is told again, as it then is. A replica that was told of and is gone counts
//! as lost, so an empty log is told of only when its being there outlasts a power cut; and one whose directory failed before that is
//! told of all the same, so that nobody takes it for one that works: as lost, if nothing was in it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use kuorum_metadata::rpc::AssignDirectoriesRequest;
use kuorum_protocol::{DirectoryId, PartitionIndex, TopicId};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::cluster::{ControllerClient, Membership};
use crate::replica_manager::ReplicaManager;

const PATIENCE: Duration = Duration::from_secs(10);
const REST: Duration = Duration::from_millis(500);
/// Topics are often made many at once, and making their logs last keeps the disk busy: it begins when none has come for so long, or after `SETTLED_AT_LAST`
/// whatever comes. A replica that was not told of is no worse off: it has nothing to lose that was promised.
const SETTLED: Duration = Duration::from_millis(500);
const SETTLED_AT_LAST: Duration = Duration::from_secs(10);
/// Assignments in one request: so many logs are made to last before the next are told of.
const BATCH_MOST: usize = 200;

/// A replica, and the directory its log lies in.
pub type Placement = (TopicId, PartitionIndex, DirectoryId);

/// Placements that the controllers have not been told yet.
#[derive(Debug, Default)]
pub struct Placements {
    waiting: Mutex<HashMap<(TopicId, PartitionIndex), DirectoryId>>,
    nudge: Notify,
}

impl Placements {
    /// A replica lies in `directory`.
    pub fn push(&self, topic_id: TopicId, index: PartitionIndex, directory: DirectoryId) {
        self.waiting.lock().insert((topic_id, index), directory);
        self.nudge.notify_one();
    }

    /// Waits for the first, and then until no more come.
    async fn settle(&self) {
        self.nudge.notified().await;
        let at_last = Instant::now() + SETTLED_AT_LAST;
        while Instant::now() < at_last {
            let until = at_last.min(Instant::now() + SETTLED);
            if timeout_at(until, self.nudge.notified()).await.is_err() {
                return;
            }
        }
    }

    fn take(&self) -> Vec<Placement> {
        let mut waiting = self.waiting.lock();
        let keys: Vec<_> = waiting.keys().take(BATCH_MOST).copied().collect();
        keys.into_iter()
            .filter_map(|key| {
                waiting
                    .remove(&key)
                    .map(|directory| (key.0, key.1, directory))
            })
            .collect()
    }

    /// Back into the queue, unless something newer is known.
    fn put_back(&self, batch: Vec<Placement>) {
        let mut waiting = self.waiting.lock();
        for (topic_id, index, directory) in batch {
            waiting.entry((topic_id, index)).or_insert(directory);
        }
    }
}

/// Tells until `stop` is cancelled.
pub async fn run(
    placements: Arc<Placements>,
    replicas: Arc<ReplicaManager>,
    controllers: ControllerClient,
    membership: Arc<Membership>,
    stop: CancellationToken,
) {
    loop {
        let batch = placements.take();
        if batch.is_empty() {
            tokio::select! {
                () = stop.cancelled() => return,
                () = placements.settle() => continue,
            }
        }
        let batch = replicas.settled(batch).await;
        if batch.is_empty() {
            continue;
        }
        let told = match membership.epoch() {
            None => Err("not registered yet".to_owned()),
            Some(broker_epoch) => {
                let request = AssignDirectoriesRequest {
                    broker_id: membership.id,
                    broker_epoch,
                    assignments: batch.clone(),
                };
                tokio::select! {
                    () = stop.cancelled() => return,
                    told = controllers.assign_directories(&request, PATIENCE) => {
                        told.map_err(|error| error.to_string())
                    }
                }
            }
        };
        if let Err(cause) = told {
            info!(%cause, placements = batch.len(), "the controllers were not told where replicas lie; trying again");
            placements.put_back(batch);
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(REST) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn push(placements: &Placements, index: PartitionIndex) {
        let id = Uuid::from_u128(1);
        placements.push(TopicId(id), index, DirectoryId(id));
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_told_while_more_come_and_something_always_is_in_the_end() {
        let placements = Placements::default();
        for (every, taken_after) in [(10_000, SETTLED), (400, SETTLED_AT_LAST)] {
            let began = Instant::now();
            let coming = async {
                for index in 0.. {
                    push(&placements, index);
                    tokio::time::sleep(Duration::from_millis(every)).await;
                }
            };
            tokio::select! {
                () = coming => unreachable!("they come without end"),
                () = placements.settle() => {}
            }
            let took = began.elapsed();
            assert!(
                (taken_after..=taken_after + SETTLED).contains(&took),
                "one every {every} ms: {took:?}"
            );
            assert!(!placements.take().is_empty());
        }
    }
}
