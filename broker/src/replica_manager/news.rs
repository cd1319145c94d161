//! What the metadata says of the partitions here, and what is done about it.
//! Law: the next change waits until this one is acted on; metadata older than a log removes nothing.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kuorum_metadata::record::ConfigResource;
use kuorum_metadata::{MetadataDelta, MetadataImage, PartitionImage};
use kuorum_protocol::{DirectoryId, Now, Offset};
use kuorum_replication::Assignment;
use kuorum_storage::{AnyDir, Log, LogError, PutAside, StorageFailure};
use tracing::{error, info, warn};

use super::parallel::in_parallel;
use super::{Hosted, Key, ReplicaManager};
use crate::topic_settings::TopicSettings;

impl ReplicaManager {
    /// Acts on what changed: makes logs, changes roles and settings, deletes what is gone. Without a delta everything
    /// is looked at. The next change waits until this one is acted on.
    pub async fn apply(self: &Arc<Self>, image: &Arc<MetadataImage>, delta: Option<MetadataDelta>) {
        if delta.as_ref().is_some_and(MetadataDelta::is_empty) {
            return;
        }
        let (this, image) = (Arc::clone(self), Arc::clone(image));
        // Logs are made and cut here, which blocks.
        let acted = tokio::task::spawn_blocking(move || this.act_on(&image, delta.as_ref())).await;
        if let Err(panic) = acted {
            std::panic::resume_unwind(panic.into_panic());
        }
    }

    fn act_on(self: &Arc<Self>, image: &MetadataImage, delta: Option<&MetadataDelta>) {
        self.tell_addresses(image);
        self.remove_gone(image, delta);
        let mine: Vec<(Key, Arc<str>, Arc<PartitionImage>)> = self.assigned_to_me(image, delta);
        self.make_missing(image, &mine);
        let brokers_changed = delta.is_none_or(|delta| !delta.brokers_changed.is_empty());
        let looked_at: HashSet<Key> = mine.iter().map(|(key, ..)| *key).collect();
        for (key, _, partition) in &mine {
            if let Some(hosted) = self.get(key.0, key.1) {
                let cause = match delta {
                    None => "the broker has come up",
                    Some(delta) => delta
                        .leader_causes
                        .get(key)
                        .map_or("a snapshot of the metadata", String::as_str),
                };
                self.assign(&hosted, image, partition, cause);
            }
        }
        if brokers_changed {
            // Who may join an ISR depends on the brokers.
            for hosted in self.all() {
                if !looked_at.contains(&hosted.key())
                    && let Some(partition) = image.partition(hosted.topic_id, hosted.index)
                {
                    self.assign(&hosted, image, partition, "brokers changed");
                }
            }
        }
        self.change_settings(image, delta);
    }

    fn tell_addresses(&self, image: &MetadataImage) {
        let addresses = image
            .brokers()
            .filter(|broker| broker.id != self.me)
            .filter_map(|broker| {
                let address = broker.listener(crate::context::INTERNAL)?;
                Some((broker.id, format!("{}:{}", address.host, address.port)))
            });
        self.tools.fetchers.know(addresses);
    }

    /// The partitions to look at that have a replica here.
    fn assigned_to_me(
        &self,
        image: &MetadataImage,
        delta: Option<&MetadataDelta>,
    ) -> Vec<(Key, Arc<str>, Arc<PartitionImage>)> {
        let mine = |partition: &PartitionImage| partition.replicas.contains(&self.me);
        match delta {
            None => image
                .partitions()
                .filter(|(_, _, partition)| mine(partition))
                .map(|(topic, index, partition)| {
                    (
                        (topic.id, index),
                        Arc::from(topic.name.as_str()),
                        Arc::clone(partition),
                    )
                })
                .collect(),
            Some(delta) => delta
                .partitions_changed
                .iter()
                .filter_map(|key| {
                    let topic = image.topic_by_id(key.0)?;
                    let partition = topic.partition(key.1)?;
                    mine(partition)
                        .then(|| (*key, Arc::from(topic.name.as_str()), Arc::clone(partition)))
                })
                .collect(),
        }
    }

    /// Makes the logs of partitions that are new here, several at a time.
    fn make_missing(
        self: &Arc<Self>,
        image: &MetadataImage,
        mine: &[(Key, Arc<str>, Arc<PartitionImage>)],
    ) {
        let working: BTreeSet<DirectoryId> = self
            .tools
            .log_dirs
            .directories()
            .into_iter()
            .filter_map(|(directory, works)| works.then_some(directory))
            .collect();
        let missing: Vec<_> = mine
            .iter()
            .filter(|(key, topic, partition)| {
                if self.get(key.0, key.1).is_some() {
                    return false;
                }
                // A replica that lived in a directory that failed is not made anew elsewhere (KAFKA-16234).
                match partition.directory(self.me) {
                    Some(directory)
                        if !working.contains(&directory)
                            && self.tools.log_dirs.directories().iter().any(|(known, _)| *known == directory) =>
                    {
                        warn!(%topic, partition = key.1, %directory, "a replica stays offline with its directory");
                        false
                    }
                    _ => true,
                }
            })
            .collect();
        let made = AtomicUsize::new(0);
        in_parallel(&missing, |(key, topic, _)| {
            let settings = TopicSettings::of(image, topic, self.tools.replica_lag_time_max);
            let now = self.tools.clock.now();
            match self.create_log(topic, *key, &settings, now) {
                Ok((directory, log)) => {
                    let hosted = self.host(topic, key.0, key.1, directory, log, Offset::ZERO);
                    hosted.with(|partition, effects| {
                        partition.set_salvage_policy(settings.salvage);
                        partition.set_terms(settings.terms, now, effects);
                    });
                    made.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => {
                    error!(%topic, partition = key.1, cause = %error, "a log could not be made");
                }
            }
        });
        let made = made.into_inner();
        if made > 0 {
            info!(logs = made, "made new logs");
        }
    }

    /// Makes a log; where a directory turns out to have failed, in another.
    fn create_log(
        &self,
        topic: &str,
        (topic_id, index): Key,
        settings: &TopicSettings,
        now: Now,
    ) -> Result<(DirectoryId, Log<AnyDir>), LogError> {
        let log_dirs = &self.tools.log_dirs;
        loop {
            let failed = log_dirs.failed().len();
            let made = log_dirs.create_log(topic, index, topic_id, settings.log.clone(), now);
            let fails_no_more = || log_dirs.failed().len() == failed;
            match made {
                Err(error) if fails_no_more() => return Err(error),
                Err(error) => warn!(%topic, partition = index, cause = %error,
                    "a log could not be made in a directory that has failed; trying the next"),
                Ok(made) => return Ok(made),
            }
        }
    }

    /// Tells a replica what the image says of it; `cause` is for the log.
    fn assign(
        &self,
        hosted: &Arc<Hosted>,
        image: &MetadataImage,
        partition: &PartitionImage,
        cause: &str,
    ) {
        hosted.note_throttle(image, partition, self.me);
        let assignment = Assignment::of(image, partition);
        let now = self.tools.clock.now();
        let (before, after) = hosted.with(|replica, effects| {
            let before = (replica.is_leader(), replica.leader_hint());
            replica.apply(&assignment, now, effects);
            (before, (replica.is_leader(), replica.leader_hint()))
        });
        if before != after {
            info!(
                topic = %hosted.topic,
                partition = hosted.index,
                leader = partition.leader.map(|leader| leader.0),
                leader_epoch = partition.leader_epoch.0,
                broker_epoch = self.tools.membership.epoch().map(|epoch| epoch.0),
                leads = after.0,
                cause,
                "a partition's leader changed"
            );
        }
        match partition.leader {
            Some(leader) if leader != self.me => {
                self.tools
                    .fetchers
                    .follow(hosted, leader, partition.leader_epoch)
            }
            _ => self.tools.fetchers.leave(hosted),
        }
        if partition.directory(self.me) != Some(hosted.directory) {
            self.tools
                .placements
                .push(hosted.topic_id, hosted.index, hosted.directory);
        }
    }

    /// Lets go of replicas of deleted topics, and of those that were assigned elsewhere.
    fn remove_gone(self: &Arc<Self>, image: &MetadataImage, delta: Option<&MetadataDelta>) {
        let gone: Vec<Arc<Hosted>> = self
            .all()
            .into_iter()
            .filter(|hosted| {
                let touched = delta.is_none_or(|delta| {
                    delta.topics_removed.contains_key(&hosted.topic_id)
                        || delta.partitions_changed.contains(&hosted.key())
                });
                touched
                    && match image.partition(hosted.topic_id, hosted.index) {
                        None => true,
                        // A replica leaves with a new leader epoch: one that knows a later epoch than this image stays.
                        Some(partition) => {
                            !partition.replicas.contains(&self.me)
                                && hosted.state.lock().knows_until() <= partition.leader_epoch
                        }
                    }
            })
            .collect();
        if gone.is_empty() {
            return;
        }
        if delta.is_none() && image.topic_count() == 0 {
            // More likely the controllers were formatted anew than that every topic was deleted while this broker was down.
            warn!(
                logs = gone.len(),
                "the cluster knows no topic at all; the logs that lie here are left alone"
            );
            return;
        }
        let mut kept: HashSet<Key> = HashSet::new();
        // One moment for all: what they may copy before they go is bounded by the time since then, however many they are.
        let now = self.tools.clock.now();
        for hosted in &gone {
            self.hosted.write().remove(&hosted.key());
            self.tools.fetchers.leave(hosted);
            let nobody = Assignment {
                leader: None,
                ..known_assignment(hosted)
            };
            let deleted = StorageFailure {
                what: "use",
                path: format!("{}-{}", hosted.topic, hosted.index),
                cause: Arc::new(std::io::Error::other("the log is being deleted")),
            };
            let moved = image.partition(hosted.topic_id, hosted.index);
            hosted.with(|partition, effects| {
                partition.go_offline(&nobody, effects);
                if let Some(moved) = &moved {
                    // One that was opened a moment ago does not know yet what its topic wants.
                    partition.set_salvage_policy(self.settings(image, &hosted.topic).salvage);
                    if !partition.leave_for_good(moved.last_unclean_epoch, now, effects) {
                        kept.insert(hosted.key());
                    }
                }
            });
            // Whoever still holds it must not write where another log may be made under the same name.
            hosted.removed.store(true, Ordering::Release);
            hosted.with(|partition, effects| partition.disk_failed(&deleted, effects));
            drop(hosted.flushing.lock());
            if !kept.contains(&hosted.key()) {
                info!(topic = %hosted.topic, partition = hosted.index, "deleting a log");
            }
        }
        // What the checkpoints say of these logs is not true of a later topic of the same name. If they cannot be written, whoever
        // makes a log under such a name takes it back (`LogDirs::create_log`).
        self.checkpoint();
        let failed = |hosted: &Hosted, error: &LogError| {
            warn!(topic = %hosted.topic, partition = hosted.index, cause = %error, "a log could not be deleted");
        };
        // The name is free from here on: a replica may leave, and come back with the next change.
        let aside: Vec<(Arc<Hosted>, PutAside)> = gone
            .into_iter()
            .filter_map(|hosted| {
                let log_dirs = &self.tools.log_dirs;
                let (index, id) = (hosted.index, hosted.topic_id);
                if kept.contains(&hosted.key()) {
                    match log_dirs.put_astray(&hosted.topic, index, id, hosted.directory) {
                        Ok(stray) => warn!(topic = %hosted.topic, partition = index, stray,
                            "a replica that was moved away could not be set aside whole, and nobody else may have its records; \
                             its directory is kept: delete it when it is not needed"),
                        Err(error) => failed(&hosted, &error),
                    }
                    return None;
                }
                match log_dirs.put_aside(&hosted.topic, index, id, hosted.directory) {
                    Ok(aside) => aside.map(|aside| (hosted, aside)),
                    Err(error) => {
                        failed(&hosted, &error);
                        None
                    }
                }
            })
            .collect();
        let this = Arc::clone(self);
        // Files may be many and large; nobody waits for them.
        std::thread::spawn(move || {
            for (hosted, aside) in aside {
                if let Err(error) = this.tools.log_dirs.remove_aside(&aside) {
                    failed(&hosted, &error);
                }
            }
        });
    }

    fn settings(&self, image: &MetadataImage, topic: &str) -> TopicSettings {
        TopicSettings::of(image, topic, self.tools.replica_lag_time_max)
    }

    fn change_settings(&self, image: &MetadataImage, delta: Option<&MetadataDelta>) {
        let everywhere = delta.is_none_or(|delta| {
            delta.configs_changed.iter().any(|resource| {
                matches!(
                    resource,
                    ConfigResource::ClusterDefault | ConfigResource::ControllerFile
                )
            })
        });
        let changed: HashSet<&str> = delta
            .into_iter()
            .flat_map(|delta| &delta.configs_changed)
            .filter_map(|resource| match resource {
                ConfigResource::Topic(name) => Some(name.as_str()),
                _ => None,
            })
            .collect();
        let mine = ConfigResource::Broker(self.me);
        if everywhere || delta.is_some_and(|delta| delta.configs_changed.contains(&mine)) {
            self.hands.throttle.configure(image, self.me);
        }
        if !everywhere && changed.is_empty() {
            return;
        }
        let now = self.tools.clock.now();
        let mut settings: HashMap<Arc<str>, TopicSettings> = HashMap::new();
        for hosted in self.all() {
            if !everywhere && !changed.contains(&*hosted.topic) {
                continue;
            }
            let wanted = settings
                .entry(Arc::clone(&hosted.topic))
                .or_insert_with(|| self.settings(image, &hosted.topic))
                .clone();
            hosted.with(|partition, effects| {
                partition.set_terms(wanted.terms, now, effects);
                partition.set_log_config(wanted.log);
                partition.set_salvage_policy(wanted.salvage);
            });
            if let Some(partition) = image.partition(hosted.topic_id, hosted.index) {
                hosted.note_throttle(image, partition, self.me);
            }
        }
    }
}

/// What the partition knows already, as an assignment that names nobody.
fn known_assignment(hosted: &Arc<Hosted>) -> Assignment {
    let hint = hosted.state.lock().leader_hint();
    Assignment {
        leader_epoch: hint.leader_epoch,
        ..Assignment::default()
    }
}
