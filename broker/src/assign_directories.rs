//! Tells the controllers in which log directory each new replica lies (KIP-858).
//! Law: one request in flight; what was not acknowledged is told again, as it then is. A replica that was told of and is gone counts
//! as lost, so an empty log is told of only when its being there outlasts a power cut; and one whose directory failed before that is
//! told of all the same, so that nobody takes it for one that works.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use kuorum_metadata::rpc::AssignDirectoriesRequest;
use kuorum_protocol::{DirectoryId, PartitionIndex, TopicId};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::cluster::{ControllerClient, Membership};
use crate::replica_manager::ReplicaManager;

const PATIENCE: Duration = Duration::from_secs(10);
const REST: Duration = Duration::from_millis(500);
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
                () = placements.nudge.notified() => continue,
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
