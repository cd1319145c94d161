//! What unclean elections made this broker's replicas cut off: kept for a while, shown, and given away again.
//! Law: the files are the truth; everything here is read from them and can be read again. Nothing is deleted but by policy
//! or on request, oldest first, and every deletion is told.

pub mod catalogue;
pub mod http;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kuorum_metadata::MetadataImage;
use kuorum_metadata::record::BrokerEventKind;
use kuorum_protocol::record::{BatchBuilder, Codec};
use kuorum_protocol::{
    DirectoryId, PartitionIndex, ProducerEpoch, ProducerId, Sequence, Timestamp, TopicId,
};
use kuorum_storage::salvage::{self, Aside, Contents, Item, ItemId, Summary, Visit};
use kuorum_storage::{AnyDir, Log, LogDirs};
use kuorum_transport::Clock;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::cluster::MetadataCache;
use crate::event_reporter::EventReports;
use crate::partition::{Salvager, Stopwatch};
use catalogue::Catalogue;

/// Items that are kept at most, however small they are.
const MAX_ITEMS: usize = 10_000;
/// Readers of contents at the same time.
const READERS: usize = 4;

/// What all of it may cost.
#[derive(Clone, Copy, Debug)]
pub struct SalvageLimits {
    /// `salvage.max.bytes`.
    pub total_bytes: u64,
    /// `salvage.copy.max.ms`.
    pub copy_max: Duration,
}

impl Default for SalvageLimits {
    fn default() -> Self {
        Self {
            total_bytes: 10 << 30,
            copy_max: Duration::from_secs(2),
        }
    }
}

/// An item, and what was found in it.
#[derive(Clone, Debug)]
pub struct Entry {
    pub contents: Contents<AnyDir>,
    pub summary: Arc<Summary>,
    directory: DirectoryId,
}

impl Entry {
    /// The item.
    pub fn item(&self) -> &Item {
        self.contents.item()
    }
}

/// The room.
#[derive(Debug)]
pub struct Salvage {
    dirs: Vec<(DirectoryId, AnyDir)>,
    limits: SalvageLimits,
    clock: Clock,
    reports: Arc<EventReports>,
    entries: RwLock<BTreeMap<ItemId, Entry>>,
    /// Held while the files are looked at. Opened when there is something to remember.
    catalogue: Mutex<Option<Catalogue>>,
    wake: Notify,
    /// Who may read contents now.
    readers: Semaphore,
}

/// Why an item goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gone {
    /// `salvage.retention.ms`.
    Expired,
    /// `salvage.retention.bytes`.
    PartitionFull,
    /// `salvage.max.bytes`, or too many items.
    StoreFull,
    /// Somebody said so.
    Deleted,
}

impl Gone {
    fn words(self) -> &'static str {
        match self {
            Self::Expired => "its time is over (salvage.retention.ms)",
            Self::PartitionFull => "its partition has newer ones (salvage.retention.bytes)",
            Self::StoreFull => {
                "the salvage store is full, the oldest goes first (salvage.max.bytes)"
            }
            Self::Deleted => "on request",
        }
    }
}

impl Salvage {
    /// Removes what was left unfinished; called before any log is opened.
    pub fn open(
        log_dirs: &LogDirs<AnyDir>,
        limits: SalvageLimits,
        clock: Clock,
        reports: Arc<EventReports>,
    ) -> Arc<Self> {
        let dirs = log_dirs.salvage_dirs();
        for (directory, dir) in &dirs {
            if let Err(cause) = salvage::tidy(dir) {
                warn!(%directory, %cause, "what was left of salvaging could not be removed");
            }
        }
        Arc::new(Self {
            dirs,
            limits,
            clock,
            reports,
            entries: RwLock::default(),
            catalogue: Mutex::new(None),
            wake: Notify::new(),
            readers: Semaphore::new(READERS),
        })
    }

    /// How replicas of a directory set things aside.
    pub fn salvager(&self, directory: DirectoryId) -> Option<Salvager<AnyDir>> {
        let clock = self.clock.clone();
        Some(Salvager {
            dir: self.dir(directory)?.clone(),
            item_bytes: self.limits.total_bytes,
            copy_max: self.limits.copy_max,
            stopwatch: Stopwatch::new(move || clock.now().monotonic),
        })
    }

    fn dir(&self, directory: DirectoryId) -> Option<&AnyDir> {
        let found = self.dirs.iter().find(|(id, _)| *id == directory);
        found.map(|(_, dir)| dir)
    }

    /// A log has just been opened: what was set aside of it and never cut is no salvage.
    pub fn forget_uncut(
        &self,
        directory: DirectoryId,
        topic_id: TopicId,
        partition: PartitionIndex,
        log: &Log<AnyDir>,
    ) {
        let Some(dir) = self.dir(directory) else {
            return;
        };
        match salvage::forget_uncut(dir, topic_id, partition, log) {
            Ok(forgotten) => {
                for item in forgotten {
                    info!(id = %item.id(), topic = item.topic, partition,
                          "what was set aside had not been cut; it is in its log still");
                }
            }
            Err(cause) => warn!(%directory, %cause, "salvaged items could not be looked at"),
        }
    }

    /// A replica has set something aside, or tried to.
    pub fn was_set_aside(&self, topic: &str, partition: PartitionIndex, aside: Aside) {
        match aside {
            Aside::Kept(item) => {
                let (id, bytes, complete) = (item.id(), item.bytes, item.complete);
                warn!(%id, topic, partition, from = item.first_offset.0, to = item.end_offset.0, bytes, complete,
                      cause = item.cause, "set aside what an unclean election makes this replica cut off; kuorum salvage shows it");
                let kept = BrokerEventKind::SalvageSetAside {
                    item: id.to_string(),
                    first_offset: item.first_offset,
                    end_offset: item.end_offset,
                    bytes,
                    complete,
                };
                self.report(&id, kept);
                self.wake.notify_one();
            }
            Aside::KeptBefore(item) => {
                info!(id = %item.id(), topic, partition, "what is cut off was set aside before");
                self.wake.notify_one();
            }
            Aside::OutOfBounds => {
                error!(
                    topic,
                    partition,
                    "nothing of what is cut off could be set aside within salvage.max.bytes"
                );
            }
            Aside::Failed(cause) => {
                error!(topic, partition, %cause, "what is cut off could not be set aside");
            }
        }
    }

    /// Looks after the items until `stop` is cancelled: takes note of new ones, and lets go of old ones every `interval`.
    pub async fn run(
        self: Arc<Self>,
        metadata: Arc<MetadataCache>,
        interval: Duration,
        stop: CancellationToken,
    ) {
        let mut caught_up = false;
        loop {
            let this = Arc::clone(&self);
            // Before the topics' settings are known nothing is old.
            let image = caught_up.then(|| metadata.image());
            let looked = tokio::task::spawn_blocking(move || this.look(image.as_deref())).await;
            if let Err(panic) = looked {
                std::panic::resume_unwind(panic.into_panic());
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.wake.notified() => {}
                () = self.clock.sleep(interval) => {}
                () = metadata.caught_up(), if !caught_up => caught_up = true,
            }
        }
    }

    /// Reads what lies in the directories, counts what is new, and lets go of what `image` says is too old or too much.
    pub fn look(&self, image: Option<&MetadataImage>) {
        let mut catalogue = self.catalogue.lock();
        let mut found: BTreeMap<ItemId, Entry> = BTreeMap::new();
        for (directory, dir) in &self.dirs {
            let items = match salvage::items(dir) {
                Ok(items) => items,
                Err(cause) => {
                    warn!(%directory, %cause, "salvaged items could not be looked at");
                    continue;
                }
            };
            for item in items {
                let id = item.id();
                let known = self.entries.read().get(&id).cloned();
                if let Some(known) = known.filter(|known| *known.item() == item) {
                    found.insert(id, known);
                    continue;
                }
                match self.count(&mut catalogue, dir, item) {
                    Ok((contents, summary)) => {
                        let entry = Entry {
                            contents,
                            summary,
                            directory: *directory,
                        };
                        found.insert(id, entry);
                    }
                    Err(cause) => warn!(%id, %cause, "a salvaged item cannot be read"),
                }
            }
        }
        if let Some(catalogue) = catalogue.as_ref() {
            catalogue.keep_only(|id| found.contains_key(id));
        }
        *self.entries.write() = found;
        if let Some(image) = image {
            for (id, why) in self.too_many(image) {
                self.let_go(catalogue.as_ref(), &id, why);
            }
        }
    }

    /// What an item holds: from the catalogue, or from the item itself.
    fn count(
        &self,
        catalogue: &mut Option<Catalogue>,
        dir: &AnyDir,
        item: Item,
    ) -> io::Result<(Contents<AnyDir>, Arc<Summary>)> {
        if catalogue.is_none()
            && let Some(path) = dir.as_path()
        {
            // Beside the first items: it dies with them or not at all.
            *catalogue = Catalogue::open(&path.join(catalogue::DIRECTORY));
        }
        let contents = Contents::of(dir, item);
        let known = catalogue
            .as_ref()
            .and_then(|catalogue| catalogue.get(contents.item()));
        let summary = match known {
            Some(summary) => summary,
            None => {
                let summary = contents.summarise()?;
                if let Some(damage) = &summary.damage {
                    error!(id = %contents.id(), file = damage.part, position = damage.position, reason = damage.reason,
                           "a salvaged item is damaged; what lies before the damage counts");
                }
                if let Some(catalogue) = catalogue {
                    catalogue.put(contents.item(), &summary);
                }
                summary
            }
        };
        Ok((contents, Arc::new(summary)))
    }

    /// What is too old, and the oldest of what is too much.
    fn too_many(&self, image: &MetadataImage) -> Vec<(ItemId, Gone)> {
        let now = self.clock.now().wall;
        let mut newest_first: Vec<(Timestamp, ItemId, u64, String)> = self
            .entries
            .read()
            .iter()
            .map(|(id, entry)| {
                let item = entry.item();
                (item.created_at, *id, item.bytes, item.topic.clone())
            })
            .collect();
        newest_first.sort_by(|a, b| (b.0, &b.1).cmp(&(a.0, &a.1)));
        let mut gone = Vec::new();
        let (mut total, mut count) = (0_u64, 0);
        let mut of_partition: BTreeMap<(TopicId, PartitionIndex), u64> = BTreeMap::new();
        for (created_at, id, bytes, topic) in newest_first {
            // A topic that is deleted has the cluster's defaults.
            let policy = image.effective_topic_config(&topic);
            let age = now.0.saturating_sub(created_at.0);
            let share = of_partition
                .get(&(id.topic_id, id.partition))
                .copied()
                .unwrap_or(0);
            let is_over = |limit: Option<i64>, value: u64| {
                limit.is_some_and(|limit| value > limit.unsigned_abs())
            };
            let why = if policy.salvage_retention_ms.is_some_and(|keep| age > keep) {
                Gone::Expired
            } else if is_over(policy.salvage_retention_bytes, share.saturating_add(bytes)) {
                // Nothing older stays in the place of this one.
                of_partition.insert((id.topic_id, id.partition), u64::MAX);
                Gone::PartitionFull
            } else if total.saturating_add(bytes) > self.limits.total_bytes || count >= MAX_ITEMS {
                total = u64::MAX;
                Gone::StoreFull
            } else {
                of_partition.insert((id.topic_id, id.partition), share + bytes);
                total += bytes;
                count += 1;
                continue;
            };
            gone.push((id, why));
        }
        gone.reverse();
        gone
    }

    /// Deletes an item; `false` if there is none.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn delete(&self, id: &ItemId) -> io::Result<bool> {
        let catalogue = self.catalogue.lock();
        self.try_let_go(catalogue.as_ref(), id, Gone::Deleted)
    }

    fn let_go(&self, catalogue: Option<&Catalogue>, id: &ItemId, why: Gone) {
        if let Err(cause) = self.try_let_go(catalogue, id, why) {
            warn!(%id, %cause, "a salvaged item could not be deleted");
        }
    }

    fn try_let_go(
        &self,
        catalogue: Option<&Catalogue>,
        id: &ItemId,
        why: Gone,
    ) -> io::Result<bool> {
        let entry = self.entries.write().remove(id);
        let mut there = false;
        // Set aside a moment ago, it may not be known yet.
        for (directory, dir) in &self.dirs {
            if entry
                .as_ref()
                .is_none_or(|entry| entry.directory == *directory)
            {
                there |= salvage::remove(dir, id)?;
            }
        }
        if let Some(catalogue) = catalogue {
            catalogue.forget(id);
        }
        if there {
            self.tell_gone(id, entry.as_ref(), why);
        }
        Ok(there)
    }

    fn tell_gone(&self, id: &ItemId, entry: Option<&Entry>, why: Gone) {
        let item = entry.map(Entry::item);
        let records = entry.map(|entry| entry.summary.records);
        warn!(
            %id,
            topic = item.map(|item| item.topic.as_str()),
            partition = id.partition,
            records,
            bytes = item.map(|item| item.bytes),
            cause = why.words(),
            "a salvaged item is gone"
        );
        let gone = BrokerEventKind::SalvageDeleted {
            item: id.to_string(),
            records,
            reason: why.words().to_owned(),
        };
        self.report(id, gone);
    }

    fn report(&self, id: &ItemId, what: BrokerEventKind) {
        let at = self.clock.now().wall;
        self.reports.push(id.topic_id, id.partition, at, what);
    }

    /// One item.
    pub fn get(&self, id: &ItemId) -> Option<Entry> {
        self.entries.read().get(id).cloned()
    }

    /// So many items whose names come after `after`, in the order of the names.
    pub fn list(&self, after: &str, limit: usize) -> Vec<Entry> {
        let entries = self.entries.read();
        // The order of the names, which is what pages go by, is not that of the numbers in them.
        let by_name: BTreeMap<String, &Entry> = entries
            .iter()
            .map(|(id, entry)| (id.to_string(), entry))
            .filter(|(name, _)| name.as_str() > after)
            .collect();
        by_name.into_values().take(limit).cloned().collect()
    }
}

/// A producer's batch of an item's records from the one with index `from` on: its sequence is the index. `None` at the end.
/// It holds about `max_bytes` before compression, one record at least.
///
/// # Errors
/// If the item cannot be read.
pub fn batch_from(
    entry: &Entry,
    from: u64,
    max_bytes: usize,
    producer_id: ProducerId,
) -> io::Result<Option<Bytes>> {
    let mut builder: Option<(BatchBuilder, Codec)> = None;
    entry.contents.visit(&entry.summary, from, |visit| {
        let Visit { record, codec, .. } = visit;
        let (key, value) = (record.key.as_deref(), record.value.as_deref());
        let (building, its_codec) =
            builder.get_or_insert_with(|| (BatchBuilder::new(codec), codec));
        let size = BatchBuilder::record_size_bound(key, value, &record.headers);
        if !building.is_empty() && (building.size() + size > max_bytes || *its_codec != codec) {
            return ControlFlow::Break(());
        }
        building.append(record.timestamp, key, value, &record.headers);
        ControlFlow::Continue(())
    })?;
    let Some((mut builder, _)) = builder else {
        return Ok(None);
    };
    let sequence = i32::try_from(from).map_err(|_| io::Error::other("too many records"))?;
    builder.set_producer(producer_id, ProducerEpoch(0), Sequence(sequence));
    Ok(Some(builder.build()))
}
