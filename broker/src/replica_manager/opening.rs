//! How the logs of this broker are opened when it starts, and closed when it ends.
//! Law: a log that is not what it promised to be is named; what could not be closed in an orderly way is checked at the
//! next start.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kuorum_metadata::MetadataImage;
use kuorum_protocol::{DirectoryId, TopicId};
use kuorum_replication::{Durability, Mutation, mutation};
use kuorum_storage::{AnyDir, FoundLog, LogDirs};
use parking_lot::Mutex;
use tracing::{error, info, warn};

use super::parallel::{PARALLEL, in_parallel};
use super::{Hosted, Key, ReplicaManager};
use crate::topic_settings::TopicSettings;

/// What opening the logs at the start of the process found.
#[derive(Debug, Default)]
pub struct Opened {
    /// Replicas whose log is not what it promised to be: damaged, or shorter than its high watermark.
    pub damaged: Vec<Key>,
    /// Replicas that are intact only if their records count as safe once they are on the disk, because the machine
    /// has booted since.
    pub after_a_boot: Vec<(Arc<str>, Key)>,
}

impl ReplicaManager {
    /// Opens every log that lies in the directories, several at a time. Blocks; called once, before the broker
    /// registers. The logs' settings come later, with the metadata.
    pub fn open_found(self: &Arc<Self>) -> Opened {
        let found: Vec<(FoundLog<AnyDir>, TopicId)> = self
            .tools
            .log_dirs
            .found()
            .iter()
            .filter_map(|found| match found.topic_id {
                Some(topic_id) => Some((found.clone(), topic_id)),
                None => {
                    warn!(topic = %found.topic, partition = found.partition,
                          "a log without a topic id is left alone: nobody can say whose it is");
                    None
                }
            })
            .collect();
        let results = in_parallel(&found, |(found, topic_id)| self.open_one(found, *topic_id));
        let mut opened = Opened::default();
        for ((found, topic_id), result) in found.iter().zip(results) {
            let key = (*topic_id, found.partition);
            match result {
                Some(true) if !found.known.same_boot => {
                    opened
                        .after_a_boot
                        .push((Arc::from(found.topic.as_str()), key));
                }
                Some(true) => {}
                Some(false) => opened.damaged.push(key),
                // Offline with its directory, which the registration does not list.
                None => {}
            }
        }
        info!(
            logs = found.len(),
            damaged = opened.damaged.len(),
            "opened the logs"
        );
        opened
    }

    /// Opens one log and says whether it is what it promised to be; `None` if its disk failed.
    fn open_one(self: &Arc<Self>, found: &FoundLog<AnyDir>, topic_id: TopicId) -> Option<bool> {
        let opened =
            self.tools
                .log_dirs
                .open_log(found, Default::default(), self.tools.clock.now());
        let (log, recovery) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                error!(topic = %found.topic, partition = found.partition, directory = %found.directory,
                       cause = %error, "a log could not be opened");
                return None;
            }
        };
        let mut intact = true;
        if let Some(torn) = &recovery.torn {
            info!(topic = %found.topic, partition = found.partition, end = torn.at.0, bytes = recovery.truncated_bytes,
                  reason = %torn.reason, "cut away the torn end of a log; nothing that was acknowledged is in it");
        }
        if let Some(corruption) = &recovery.corruption {
            error!(topic = %found.topic, partition = found.partition, offset = corruption.at.0,
                   reason = %corruption.reason, "a log is damaged below its flushed end; its leader will be asked for the records");
            intact = false;
        }
        let high_watermark = recovery.high_watermark(found.known.high_watermark);
        if log.end_offset() < high_watermark {
            error!(topic = %found.topic, partition = found.partition, end = log.end_offset().0,
                   high_watermark = high_watermark.0, "a log ends before its high watermark");
            intact = false;
        }
        self.tools
            .salvage
            .forget_uncut(found.directory, topic_id, found.partition, &log);
        self.host(
            &found.topic,
            topic_id,
            found.partition,
            found.directory,
            log,
            high_watermark,
        );
        Some(intact || mutation::off(Mutation::DamageGoesUntold))
    }

    /// The replicas that are not intact (docs/storage.md): damaged or too short; gone from a directory they were told to lie
    /// in, or perhaps from one that failed before anything was told; or kept in the page cache only, and the machine has booted since.
    pub fn not_intact(&self, opened: Opened, image: &MetadataImage) -> Vec<Key> {
        let mut not_intact: BTreeSet<Key> = opened.damaged.into_iter().collect();
        for (topic, key) in opened.after_a_boot {
            let settings = TopicSettings::of(image, &topic, self.tools.replica_lag_time_max);
            if settings.terms.durability == Durability::PageCache {
                not_intact.insert(key);
            }
        }
        let offline: HashSet<DirectoryId> = self
            .tools
            .log_dirs
            .directories()
            .into_iter()
            .filter_map(|(directory, works)| (!works).then_some(directory))
            .collect();
        let all_work = self.tools.log_dirs.all_work();
        for (topic, index, partition) in image.partitions() {
            let key = (topic.id, index);
            let may_be_gone = match partition.directory(self.me) {
                Some(DirectoryId::LOST) => false,
                // One that is offline with its directory may have it all still.
                Some(directory) => !offline.contains(&directory),
                // It was never made, and has lost nothing; unless it lies where nothing can be read now.
                None => !all_work && partition.replicas.contains(&self.me),
            };
            if may_be_gone && self.get(key.0, key.1).is_none() {
                error!(topic = %topic.name, partition = index, "a replica's log is gone; its leader will be asked for all of it");
                not_intact.insert(key);
            }
        }
        not_intact.into_iter().collect()
    }

    /// Closes every log in an orderly way and marks the directories as cleanly shut down. Blocks. Everything that
    /// uses a partition must have ended.
    pub fn close(self: Arc<Self>) {
        let Some(this) = Arc::into_inner(self) else {
            warn!("somebody still uses the logs; they will be checked at the next start");
            return;
        };
        let Self { tools, hosted, .. } = this;
        tools.fetchers.close();
        tools.proposals.clear();
        tools.flusher.shutdown();
        let hosted: Vec<Arc<Hosted>> = hosted.into_inner().into_values().collect();
        crate::log_maintenance::checkpoint(&tools.log_dirs, &hosted);
        let closing = Mutex::new(hosted);
        let all_closed = AtomicBool::new(true);
        std::thread::scope(|scope| {
            for _ in 0..PARALLEL {
                scope.spawn(|| {
                    loop {
                        let Some(next) = closing.lock().pop() else {
                            return;
                        };
                        if !close_one(next) {
                            all_closed.store(false, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        if !all_closed.into_inner() {
            warn!(
                "some logs could not be closed in an orderly way; they will be checked at the next start"
            );
            return;
        }
        match Arc::into_inner(tools.log_dirs).map(LogDirs::close) {
            Some(Ok(())) => {}
            Some(Err(error)) => {
                warn!(cause = %error, "the log directories could not be marked as cleanly shut down");
            }
            None => warn!(
                "somebody still uses the log directories; they will be checked at the next start"
            ),
        }
    }
}

fn close_one(hosted: Arc<Hosted>) -> bool {
    let (topic, index) = (Arc::clone(&hosted.topic), hosted.index);
    let Some(hosted) = Arc::into_inner(hosted) else {
        warn!(%topic, partition = index, "somebody still uses a log that is being closed");
        return false;
    };
    match hosted.state.into_inner().into_log().close() {
        Ok(_) => true,
        Err(error) => {
            warn!(%topic, partition = index, cause = %error, "a log could not be closed");
            false
        }
    }
}
