//! The image that committed entries build, and its snapshots.
//! Law: applying is total and deterministic; what a restart loads is the last snapshot, and the log does the rest. A
//! snapshot is made from a clone and replaces its predecessor whole. The history of events is part of both, so that no
//! controller lacks one that another has.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::io::{self, Cursor};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use arc_swap::ArcSwap;
use kuorum_metadata::control::office::check_understood;
use kuorum_metadata::{Applied, Event, History, MetadataImage, MetadataRecord, events, snapshot};
use kuorum_protocol::Timestamp;
use kuorum_storage::Dir;
use openraft::storage::RaftStateMachine;
use openraft::{EntryPayload, OptionalSend, RaftSnapshotBuilder};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::failure::Failure;
use super::file::SNAPSHOT;
use super::types::{
    Entry, LogId, Outcome, Snapshot, SnapshotMeta, StorageError, StorageIOError, StoredMembership,
    TypeConfig,
};

/// How many bytes of applied entries are kept for brokers that follow.
const RECENT_BYTES: usize = 16 * 1024 * 1024;

/// How many bytes of events, as JSON, are kept.
const EVENT_BYTES: usize = 16 * 1024 * 1024;

/// What has been applied, for everybody in the process to read.
#[derive(Debug)]
pub struct Published {
    image: ArcSwap<MetadataImage>,
    /// The offset after the last applied entry, blank ones counted.
    applied_end: watch::Sender<i64>,
    recent: Mutex<Recent>,
    /// What happened, as the applied entries tell it.
    history: Mutex<History>,
    /// When the last applied batch was decided, in milliseconds since 1970; 0 before the first since the start.
    last_decided_at: AtomicI64,
    /// The last snapshot, as far as metrics go.
    snapshot: Mutex<Option<SnapshotFacts>>,
}

/// What is worth knowing of a snapshot without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotFacts {
    pub bytes: u64,
    /// The offset after the last entry in it.
    pub end: i64,
    /// When the last batch in it was decided; `None` for one that was made before this process began, or elsewhere.
    pub as_of: Option<Timestamp>,
}

/// An applied entry: its offset and records.
pub type AppliedEntry = (i64, Arc<[MetadataRecord]>);

/// What a follower of the log gets next.
#[derive(Clone, Debug)]
pub enum Next {
    /// Entries from the offset asked for; after them everything below the offset has been delivered.
    Entries(Vec<AppliedEntry>, i64),
    /// The entries asked for are no longer at hand: the whole image, in which everything up to its offset is contained.
    Image(Arc<MetadataImage>, i64),
}

/// The applied entries of late, without those that changed nothing.
#[derive(Debug, Default)]
struct Recent {
    /// Entries below this are not at hand.
    from: i64,
    entries: VecDeque<(AppliedEntry, usize)>,
    bytes: usize,
}

impl Published {
    pub(crate) fn new(image: MetadataImage, applied_end: i64, history: History) -> Self {
        Self {
            image: ArcSwap::from_pointee(image),
            applied_end: watch::channel(applied_end).0,
            recent: Mutex::new(Recent {
                from: applied_end,
                ..Recent::default()
            }),
            history: Mutex::new(history),
            last_decided_at: AtomicI64::new(0),
            snapshot: Mutex::new(None),
        }
    }

    /// When the last applied batch was decided; `None` before the first since the start.
    pub fn last_decided_at(&self) -> Option<Timestamp> {
        let at = self.last_decided_at.load(Ordering::Relaxed);
        (at > 0).then_some(Timestamp(at))
    }

    /// The last snapshot on the disk, if there is one.
    pub fn snapshot(&self) -> Option<SnapshotFacts> {
        *self.snapshot.lock()
    }

    /// Looks at the events of what has been applied. Nobody else sees them meanwhile.
    pub fn with_history<R>(&self, look: impl FnOnce(&History) -> R) -> R {
        look(&self.history.lock())
    }

    /// The image as of now.
    pub fn image(&self) -> Arc<MetadataImage> {
        self.image.load_full()
    }

    /// The offset after the last applied entry.
    pub fn applied_end(&self) -> i64 {
        *self.applied_end.borrow()
    }

    /// Changes whenever entries are applied.
    pub fn watch(&self) -> watch::Receiver<i64> {
        self.applied_end.subscribe()
    }

    /// What comes at and after `from`, at most about `max_bytes` of it.
    pub fn next(&self, from: i64, max_bytes: usize) -> Next {
        let recent = self.recent.lock();
        let end = self.applied_end();
        if from > end {
            // The reader has followed somebody who was ahead of this controller.
            return Next::Entries(Vec::new(), end);
        }
        if from < recent.from {
            return Next::Image(self.image(), end);
        }
        let begin = recent
            .entries
            .partition_point(|((offset, _), _)| *offset < from);
        let mut taken = Vec::new();
        let mut bytes = 0;
        for ((offset, records), size) in recent.entries.iter().skip(begin) {
            if bytes >= max_bytes {
                return Next::Entries(taken, *offset);
            }
            bytes += size;
            taken.push((*offset, Arc::clone(records)));
        }
        Next::Entries(taken, end)
    }

    /// Image, entries and end change together under the lock of `recent`, so that `next` sees them agree.
    pub(crate) fn advance(
        &self,
        image: MetadataImage,
        entries: Vec<(AppliedEntry, usize)>,
        events: Vec<Event>,
        end: i64,
    ) {
        // Whoever is woken by the end finds them.
        self.history.lock().push(events);
        let mut recent = self.recent.lock();
        for (entry, size) in entries {
            recent.bytes += size;
            recent.entries.push_back((entry, size));
        }
        while recent.bytes > RECENT_BYTES && recent.entries.len() > 1 {
            if let Some(((offset, _), size)) = recent.entries.pop_front() {
                recent.bytes -= size;
                recent.from = offset + 1;
            }
        }
        self.image.store(Arc::new(image));
        self.applied_end.send_replace(end);
    }

    /// A snapshot has been written; of two the later one counts.
    fn note_snapshot(&self, facts: SnapshotFacts) {
        let mut known = self.snapshot.lock();
        if known.is_none_or(|known| known.end <= facts.end) {
            *known = Some(facts);
        }
    }

    fn replace(&self, image: MetadataImage, history: History, end: i64) {
        *self.history.lock() = history;
        let mut recent = self.recent.lock();
        *recent = Recent {
            from: end,
            ..Recent::default()
        };
        self.image.store(Arc::new(image));
        self.applied_end.send_replace(end);
    }
}

/// The state machine that openraft drives.
pub struct StateMachine<D: Dir> {
    dir: D,
    image: MetadataImage,
    last_applied: Option<LogId>,
    membership: StoredMembership,
    published: Arc<Published>,
    /// The last snapshot, shared with whoever builds the next.
    current: Arc<Mutex<Option<Stored>>>,
    failure: Failure,
    max_events: usize,
}

impl<D: Dir> Debug for StateMachine<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StateMachine")
            .field("last_applied", &self.last_applied)
            .finish_non_exhaustive()
    }
}

/// A snapshot as it lies on disk and travels between controllers.
#[derive(Clone)]
struct Stored {
    meta: SnapshotMeta,
    data: Arc<Vec<u8>>,
}

/// The first line of a snapshot file's body; the image follows it.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
struct Head {
    meta: SnapshotMeta,
}

impl Stored {
    fn to_bytes(&self) -> io::Result<Vec<u8>> {
        let mut bytes = serde_json::to_vec(&Head {
            meta: self.meta.clone(),
        })?;
        bytes.push(b'\n');
        bytes.extend_from_slice(&self.data);
        Ok(bytes)
    }

    fn from_bytes(bytes: &[u8]) -> io::Result<Self> {
        let end = bytes
            .iter()
            .position(|&byte| byte == b'\n')
            .ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidData, "the snapshot's head has no end")
            })?;
        let head: Head = serde_json::from_slice(&bytes[..end])?;
        Ok(Self {
            meta: head.meta,
            data: Arc::new(bytes[end + 1..].to_vec()),
        })
    }

    fn facts(&self, as_of: Option<Timestamp>) -> SnapshotFacts {
        SnapshotFacts {
            bytes: self.data.len() as u64,
            end: end_of(self.meta.last_log_id),
            as_of,
        }
    }

    fn to_snapshot(&self) -> Snapshot {
        Snapshot {
            meta: self.meta.clone(),
            snapshot: Box::new(Cursor::new(self.data.as_ref().clone())),
        }
    }
}

impl<D: Dir> StateMachine<D> {
    /// Loads the last snapshot in `dir`, if there is one. So many events are kept; those that are not in the snapshot are
    /// derived again as its successors are applied.
    ///
    /// # Errors
    /// If the snapshot cannot be read, is damaged, or is of a newer format.
    pub fn open(dir: D, failure: Failure, max_events: usize) -> io::Result<Self> {
        let stored = SNAPSHOT
            .read(&dir)?
            .map(|bytes| Stored::from_bytes(&bytes))
            .transpose()?;
        let (image, history, last_applied, membership) = match &stored {
            None => (
                MetadataImage::default(),
                History::new(max_events, EVENT_BYTES),
                None,
                StoredMembership::default(),
            ),
            Some(stored) => {
                let (image, history) = unpack(&stored.data, max_events)?;
                let membership = stored.meta.last_membership.clone();
                (image, history, stored.meta.last_log_id, membership)
            }
        };
        check_understood(&image).map_err(io::Error::other)?;
        let published = Published::new(image.clone(), end_of(last_applied), history);
        *published.snapshot.lock() = stored.as_ref().map(|stored| stored.facts(None));
        let published = Arc::new(published);
        Ok(Self {
            dir,
            image,
            last_applied,
            membership,
            published,
            current: Arc::new(Mutex::new(stored)),
            failure,
            max_events,
        })
    }

    /// A cluster that has moved on stops a build that does not understand it.
    fn check_understood(&self) {
        if let Err(sentence) = check_understood(&self.image) {
            self.failure.report(sentence);
        }
    }

    /// What the process reads.
    pub fn published(&self) -> Arc<Published> {
        Arc::clone(&self.published)
    }
}

/// The bytes of a snapshot: the image, and the history behind it.
fn pack(image: &MetadataImage, history: &History) -> Vec<u8> {
    let mut data = snapshot::encode(image);
    data.extend(history.encode());
    data
}

fn unpack(data: &[u8], max_events: usize) -> io::Result<(MetadataImage, History)> {
    let (image, history) = snapshot::split(data);
    let image = snapshot::decode(image).map_err(io::Error::other)?;
    let history = History::decode(history, max_events, EVENT_BYTES).map_err(io::Error::other)?;
    Ok((image, history))
}

fn end_of(last_applied: Option<LogId>) -> i64 {
    last_applied.map_or(0, |id| id.index as i64 + 1)
}

impl<D: Dir> RaftStateMachine<TypeConfig> for StateMachine<D> {
    type SnapshotBuilder = Builder<D>;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), StorageError> {
        Ok((self.last_applied, self.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<Outcome>, StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut outcomes = Vec::new();
        let mut fed = Vec::new();
        let mut told = Vec::new();
        for entry in entries {
            let offset = entry.log_id.index as i64;
            self.last_applied = Some(entry.log_id);
            let mut skipped = false;
            match entry.payload {
                EntryPayload::Blank => {}
                EntryPayload::Membership(membership) => {
                    self.membership = StoredMembership::new(Some(entry.log_id), membership);
                }
                EntryPayload::Normal(batch) => {
                    let before = self.image.clone();
                    match self.image.apply_batch(offset, &batch) {
                        Applied::Done(delta) => {
                            let decided_at = batch.decided_at.0;
                            let published = &self.published;
                            published
                                .last_decided_at
                                .store(decided_at, Ordering::Relaxed);
                            told.extend(events::derive(
                                &before,
                                offset,
                                batch.decided_at,
                                &batch.records,
                            ));
                            if delta.features_changed {
                                self.check_understood();
                            }
                            let size = 256 * batch.records.len();
                            fed.push(((offset, Arc::from(batch.records.as_slice())), size));
                        }
                        Applied::Skipped { current } => {
                            skipped = true;
                            tracing::info!(
                                offset,
                                decided_under = %batch.controller_epoch,
                                in_office = %current,
                                "skipped a decision of a controller that had left office"
                            );
                        }
                    }
                }
            }
            outcomes.push(Outcome { offset, skipped });
        }
        self.published
            .advance(self.image.clone(), fed, told, end_of(self.last_applied));
        Ok(outcomes)
    }

    async fn get_snapshot_builder(&mut self) -> Builder<D> {
        Builder {
            dir: self.dir.clone(),
            image: self.image.clone(),
            history: self.published.with_history(History::clone),
            last_applied: self.last_applied,
            membership: self.membership.clone(),
            current: Arc::clone(&self.current),
            published: Arc::clone(&self.published),
            as_of: self.published.last_decided_at(),
            failure: self.failure.clone(),
        }
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<Cursor<Vec<u8>>>, StorageError> {
        Ok(Box::new(Cursor::new(Vec::new())))
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        snapshot: Box<Cursor<Vec<u8>>>,
    ) -> Result<(), StorageError> {
        let data = snapshot.into_inner();
        let fail =
            |error: io::Error| StorageIOError::write_snapshot(Some(meta.signature()), &error);
        let (image, history) = unpack(&data, self.max_events).map_err(fail)?;
        let stored = Stored {
            meta: meta.clone(),
            data: Arc::new(data),
        };
        let facts = stored.facts(None);
        store(&self.dir, &self.current, stored, &self.failure)
            .await
            .map_err(fail)?;
        self.published.note_snapshot(facts);
        self.image = image;
        self.last_applied = meta.last_log_id;
        self.membership = meta.last_membership.clone();
        self.published
            .replace(self.image.clone(), history, end_of(self.last_applied));
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, StorageError> {
        Ok(self.current.lock().as_ref().map(Stored::to_snapshot))
    }
}

/// Makes a snapshot from clones of the image and the history, beside the state machine.
pub struct Builder<D: Dir> {
    dir: D,
    image: MetadataImage,
    history: History,
    last_applied: Option<LogId>,
    membership: StoredMembership,
    current: Arc<Mutex<Option<Stored>>>,
    published: Arc<Published>,
    /// When the last batch in the image was decided.
    as_of: Option<Timestamp>,
    failure: Failure,
}

impl<D: Dir> Debug for Builder<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
            .field("last_applied", &self.last_applied)
            .finish_non_exhaustive()
    }
}

impl<D: Dir> RaftSnapshotBuilder<TypeConfig> for Builder<D> {
    async fn build_snapshot(&mut self) -> Result<Snapshot, StorageError> {
        let id = self
            .last_applied
            .map_or_else(|| "empty".to_owned(), |id| id.to_string());
        let (image, history) = (self.image.clone(), self.history.clone());
        let data = tokio::task::spawn_blocking(move || pack(&image, &history))
            .await
            .map_err(|error| StorageIOError::write_snapshot(None, &io::Error::other(error)))?;
        let stored = Stored {
            meta: SnapshotMeta {
                last_log_id: self.last_applied,
                last_membership: self.membership.clone(),
                snapshot_id: id,
            },
            data: Arc::new(data),
        };
        let snapshot = stored.to_snapshot();
        let facts = stored.facts(self.as_of);
        store(&self.dir, &self.current, stored, &self.failure)
            .await
            .map_err(|error| {
                StorageIOError::write_snapshot(Some(snapshot.meta.signature()), &error)
            })?;
        self.published.note_snapshot(facts);
        Ok(snapshot)
    }
}

/// Replaces the snapshot on disk and then in memory, unless a later one is already there.
async fn store<D: Dir>(
    dir: &D,
    current: &Arc<Mutex<Option<Stored>>>,
    stored: Stored,
    failure: &Failure,
) -> io::Result<()> {
    let (dir, current) = (dir.clone(), Arc::clone(current));
    let result = tokio::task::spawn_blocking(move || {
        // The lock is held while writing, so that two snapshots are never written at once.
        let mut current = current.lock();
        if current
            .as_ref()
            .is_some_and(|newer| newer.meta.last_log_id > stored.meta.last_log_id)
        {
            return Ok(());
        }
        SNAPSHOT.write(&dir, &stored.to_bytes()?)?;
        *current = Some(stored);
        Ok(())
    })
    .await
    .unwrap_or_else(|error| Err(io::Error::other(error)));
    if let Err(error) = &result {
        failure.report(format!("cannot write a snapshot of the metadata: {error}"));
    }
    result
}
