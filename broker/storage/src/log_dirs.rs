//! The log directories of one broker: whose they are, what lies in them, what is known of it, and which still work.
//! Law: a directory is held by an exclusive lock. The mark of an orderly shutdown is deleted as soon as it is read
//! (KAFKA-10471). One directory's failure takes only its own partitions, and nothing moves elsewhere by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kuorum_protocol::{DirectoryId, Now, Offset, PartitionIndex, TopicId};
use parking_lot::Mutex;
use thiserror::Error;

use crate::checkpoint::{
    HIGH_WATERMARKS, LOG_STARTS, OffsetLine, RECOVERY_POINTS, offsets_from_text, offsets_to_text,
    write_atomically,
};
use crate::config::LogConfig;
use crate::dir::{Dir, DirFile};
use crate::error::{LogError, StorageFailure};
use crate::log::{Known, Log};
use crate::mark::{FLOOR, START};
use crate::meta_properties::{META_PROPERTIES, MetaProperties, id_from_text, id_to_text};
use crate::recovery::Recovery;
use crate::salvage::SALVAGE;

/// The lock that a running process holds.
const LOCK: &str = ".lock";
/// The mark of an orderly shutdown.
const CLEAN_SHUTDOWN: &str = ".kafka_cleanshutdown";
/// Which boot of the kernel the directory was last used under: a file of ours.
const BOOT_ID: &str = ".boot-id";
const BOOT_ID_HEAD: &str = "kuorum boot-id 1";
/// The topic's id, beside a partition's log.
const PARTITION_METADATA: &str = "partition.metadata";
/// The ending of a partition's directory that is being deleted.
const DELETED: &str = "-delete";
/// The ending of a partition's directory that nobody knows the topic of.
const STRAY: &str = "-stray";
/// The longest name that file systems take.
const LONGEST_NAME: usize = 255;

/// Whether a directory still works; shared by every log in it.
#[derive(Debug, Default)]
pub struct DirHealth {
    failure: Mutex<Option<StorageFailure>>,
    failed: AtomicBool,
}

impl DirHealth {
    /// # Errors
    /// The failure that took the directory offline.
    pub fn check(&self) -> Result<(), StorageFailure> {
        if !self.failed.load(Ordering::Acquire) {
            return Ok(());
        }
        self.failure.lock().clone().map_or(Ok(()), Err)
    }

    /// Takes the directory offline, for good. The first failure is the one that is told.
    pub fn fail(&self, failure: &StorageFailure) {
        let mut known = self.failure.lock();
        if known.is_none() {
            tracing::error!(%failure, "a log directory is offline");
            *known = Some(failure.clone());
            self.failed.store(true, Ordering::Release);
        }
    }
}

/// A partition found in a directory.
#[derive(Clone, Debug)]
pub struct FoundLog<D: Dir> {
    /// The topic's name.
    pub topic: String,
    /// The partition.
    pub partition: PartitionIndex,
    /// The topic's id, from partition.metadata; `None` if the file is missing or damaged.
    pub topic_id: Option<TopicId>,
    /// The directory it lies in.
    pub directory: DirectoryId,
    /// The partition's own directory.
    pub dir: D,
    /// What the checkpoints say of it.
    pub known: Known,
}

/// Why the log directories could not be opened.
#[derive(Debug, Error)]
pub enum LogDirsError {
    /// Another process holds it.
    #[error("{path} is in use by another process")]
    Locked {
        /// The directory.
        path: String,
    },
    /// It has no meta.properties.
    #[error("{path} is not formatted")]
    Unformatted {
        /// The directory.
        path: String,
    },
    /// It belongs to another cluster or node.
    #[error("{path} cannot be used: {reason}")]
    Foreign {
        /// The directory.
        path: String,
        /// Whose it is.
        reason: String,
    },
    /// Its meta.properties cannot be read.
    #[error("{path} cannot be used: {reason}")]
    Damaged {
        /// The directory.
        path: String,
        /// What is wrong with the file.
        reason: String,
    },
    /// No directory works.
    #[error(transparent)]
    Storage(#[from] StorageFailure),
}

/// The log directories of one broker.
#[derive(Debug)]
pub struct LogDirs<D: Dir> {
    directories: Vec<Directory<D>>,
    /// Of those that were named some could not be read when the others were opened.
    some_unread: bool,
    found: Vec<FoundLog<D>>,
    /// Makes the names of deleted directories different.
    deletions: AtomicU64,
}

#[derive(Debug)]
struct Directory<D: Dir> {
    dir: D,
    id: DirectoryId,
    health: Arc<DirHealth>,
    was_clean: bool,
    same_boot: bool,
    /// Held while a partition's directory gets or loses its name.
    names: Mutex<()>,
    /// Partitions whose log was found here and has not been opened yet.
    unopened: Mutex<BTreeSet<String>>,
    /// How many partitions live here.
    partitions: AtomicU64,
    /// What each checkpoint on the disk may name, by its file: a log that is made under such a name is not the one it tells of.
    told: Mutex<ToldBy>,
    _lock: Option<D::Lock>,
}

/// The partitions that a checkpoint says something of.
type Told = BTreeSet<(String, PartitionIndex)>;
/// The same of each checkpoint, by its file.
type ToldBy = BTreeMap<&'static str, Told>;

fn told_of(lines: &[OffsetLine]) -> Told {
    let says_something = lines.iter().filter(|(_, _, offset)| offset.0 > 0);
    says_something
        .map(|(topic, partition, _)| (topic.clone(), *partition))
        .collect()
}

/// What reading one directory gives.
enum Read<D: Dir> {
    Working(Directory<D>, Vec<FoundLog<D>>),
    Refused(LogDirsError),
}

/// A log that lost its name and waits to be removed.
#[derive(Debug)]
#[must_use = "its files are still there"]
pub struct PutAside {
    directory: DirectoryId,
    name: String,
}

impl<D: Dir> LogDirs<D> {
    /// Opens, locks and reads `dirs`. A directory that is not formatted, foreign or locked refuses everything; one whose
    /// disk fails is offline, and at least one must work.
    ///
    /// # Errors
    /// `Locked`, `Unformatted`, `Foreign`; `Storage` if no directory works.
    pub fn open(dirs: Vec<D>, cluster_id: &str, node_id: i32) -> Result<Self, LogDirsError> {
        let mut directories: Vec<Directory<D>> = Vec::new();
        let mut found: Vec<FoundLog<D>> = Vec::new();
        let mut broken: Option<StorageFailure> = None;
        for dir in dirs {
            match read_directory(&dir, cluster_id, node_id) {
                Ok(Read::Working(directory, logs)) => {
                    directories.push(directory);
                    found.extend(logs);
                }
                Ok(Read::Refused(error)) => return Err(error),
                Err(cause) => {
                    let failure = failure(&dir, "open", cause);
                    tracing::error!(%failure, "a log directory is offline");
                    broken.get_or_insert(failure);
                }
            }
        }
        if directories.is_empty() {
            let nothing = || StorageFailure {
                what: "open",
                path: "log.dirs".to_owned(),
                cause: Arc::new(io::Error::new(
                    io::ErrorKind::NotFound,
                    "no directory is named",
                )),
            };
            return Err(broken.unwrap_or_else(nothing).into());
        }
        let found = without_doubles(found);
        Ok(Self {
            directories,
            some_unread: broken.is_some(),
            found,
            deletions: AtomicU64::new(0),
        })
    }

    /// Gives `dir`, which is made if need be, an identity. One that it has already stays, if it is this node's.
    ///
    /// # Errors
    /// `Foreign` if it has another identity; `Storage`.
    pub fn format(
        dir: &D,
        cluster_id: &str,
        node_id: i32,
        directory_id: DirectoryId,
    ) -> Result<(), LogDirsError> {
        let io = |cause| failure(dir, "format", cause);
        dir.create().map_err(io)?;
        if let Some(bytes) = dir.read_file(META_PROPERTIES).map_err(io)? {
            return identity(dir.path(), &bytes, cluster_id, node_id).map(|_| ());
        }
        let meta = MetaProperties {
            cluster_id: cluster_id.to_owned(),
            node_id,
            directory_id,
        };
        write_atomically(dir, META_PROPERTIES, meta.to_text().as_bytes()).map_err(io)?;
        Ok(dir.sync_parent().map_err(io)?)
    }

    /// Every partition found, whether its log has been opened or not.
    pub fn found(&self) -> &[FoundLog<D>] {
        &self.found
    }

    /// The ids of the directories that could be read, and whether each still works.
    pub fn directories(&self) -> Vec<(DirectoryId, bool)> {
        self.directories
            .iter()
            .map(|directory| (directory.id, directory.health.check().is_ok()))
            .collect()
    }

    /// Whether every directory that was named works.
    pub fn all_work(&self) -> bool {
        !self.some_unread && self.directories().iter().all(|(_, works)| *works)
    }

    /// The directories that have failed since they were opened, and how.
    pub fn failed(&self) -> Vec<(DirectoryId, StorageFailure)> {
        let failed =
            |directory: &Directory<D>| Some((directory.id, directory.health.check().err()?));
        self.directories.iter().filter_map(failed).collect()
    }

    /// The directory at this path, and whether it still works; `None` if it could not be read when the others were opened.
    pub fn directory_at(&self, path: &str) -> Option<(DirectoryId, bool)> {
        let found = self
            .directories
            .iter()
            .find(|directory| directory.dir.path() == path)?;
        Some((found.id, found.health.check().is_ok()))
    }

    /// Where each working directory keeps what was set aside before a cut (see [`crate::salvage`]), whether it exists yet or
    /// not.
    pub fn salvage_dirs(&self) -> Vec<(DirectoryId, D)> {
        self.directories
            .iter()
            .filter(|directory| directory.health.check().is_ok())
            .map(|directory| (directory.id, directory.dir.subdirectory(SALVAGE)))
            .collect()
    }

    /// Why a directory is offline; `None` if it works or is not known.
    pub fn failure(&self, directory: DirectoryId) -> Option<StorageFailure> {
        self.directory(directory).ok()?.health.check().err()
    }

    /// Whether every directory was closed in an orderly way.
    pub fn was_clean(&self) -> bool {
        self.directories.iter().all(|directory| directory.was_clean)
    }

    /// Whether the kernel has not booted since every directory was last used: the page cache has lost nothing.
    pub fn same_boot(&self) -> bool {
        self.directories.iter().all(|directory| directory.same_boot)
    }

    /// Opens a log that was found.
    ///
    /// # Errors
    /// As `Log::open`.
    pub fn open_log(
        &self,
        found: &FoundLog<D>,
        config: LogConfig,
        now: Now,
    ) -> Result<(Log<D>, Recovery), LogError> {
        let directory = self.directory(found.directory)?;
        let health = Arc::clone(&directory.health);
        let mut opened = Log::open_in(found.dir.clone(), config, found.known, now, health)?;
        if !found.known.clean {
            // Whether an earlier process got as far as syncing it is not known.
            opened.0.cover_with_next_flush(PARTITION_METADATA);
        }
        directory
            .unopened
            .lock()
            .remove(&directory_name(&found.topic, found.partition));
        Ok(opened)
    }

    /// Makes the directory of a new partition, in the working directory with the fewest, and opens its empty log. Both
    /// become durable with the log's first flush ([`Log::is_named`]).
    ///
    /// # Errors
    /// `Storage`, also when no directory works.
    pub fn create_log(
        &self,
        topic: &str,
        partition: PartitionIndex,
        topic_id: TopicId,
        config: LogConfig,
        now: Now,
    ) -> Result<(DirectoryId, Log<D>), LogError> {
        let working = self
            .directories
            .iter()
            .filter(|directory| directory.health.check().is_ok());
        let fewest = |directory: &&Directory<D>| directory.partitions.load(Ordering::Relaxed);
        let Some(directory) = working.min_by_key(fewest) else {
            let first = &self.directories[0];
            first.health.check()?;
            return Err(failure(&first.dir, "create a log", io::ErrorKind::NotFound.into()).into());
        };
        let name = directory_name(topic, partition);
        let is_told_of = {
            let told = directory.told.lock();
            let key = (topic.to_owned(), partition);
            told.values().any(|told| told.contains(&key))
        };
        let made = self.make_partition(directory, &name, topic_id, is_told_of);
        let dir = made.map_err(|cause| match cause.kind() {
            // The caller's mistake, not the disk's.
            io::ErrorKind::AlreadyExists => failure(&directory.dir, "create a log", cause),
            _ => directory.fail("create a log", cause),
        })?;
        let health = Arc::clone(&directory.health);
        let (mut log, _) = Log::open_in(dir, config, Known::default(), now, health)?;
        log.cover_with_next_flush(PARTITION_METADATA);
        directory.partitions.fetch_add(1, Ordering::Relaxed);
        Ok((directory.id, log))
    }

    fn make_partition(
        &self,
        directory: &Directory<D>,
        name: &str,
        topic_id: TopicId,
        is_told_of: bool,
    ) -> io::Result<D> {
        let dir = directory.dir.subdirectory(name);
        let _names = directory.names.lock();
        if dir.exists()? {
            self.clear_the_way(directory, name, topic_id)?;
        }
        dir.create()?;
        if is_told_of {
            // A checkpoint tells of another log under this name, until the next one is written.
            FLOOR.write(&dir, Offset::ZERO)?;
            START.write(&dir, Offset::ZERO)?;
        }
        let metadata = dir.create_file(PARTITION_METADATA)?;
        let text = format!("version: 0\ntopic_id: {}\n", id_to_text(topic_id.0));
        metadata.write_at(text.as_bytes(), 0)?;
        Ok(dir)
    }

    /// A directory of that name is there already: what is left of another topic goes, and what nobody knows the topic of
    /// is set aside. The same topic's own log should have been opened, not made again.
    fn clear_the_way(
        &self,
        directory: &Directory<D>,
        name: &str,
        topic_id: TopicId,
    ) -> io::Result<()> {
        match topic_id_of(&directory.dir.subdirectory(name))? {
            Some(known) if known == topic_id => Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                format!("{name} holds this partition's log already"),
            )),
            Some(_) => {
                let deleted = self.unused_name(directory, name, DELETED)?;
                directory.dir.rename(name, &deleted)?;
                directory.dir.sync()?;
                directory.dir.remove_all(&deleted)
            }
            None => {
                let stray = self.unused_name(directory, name, STRAY)?;
                tracing::warn!(name, stray, "a log without a topic id is set aside");
                directory.dir.rename(name, &stray)?;
                directory.dir.sync()
            }
        }
    }

    /// Removes a partition's directory. Whoever still has the log open can go on reading it, but must not write. A later
    /// topic of the same name may have taken the directory's name meanwhile: then the old log is gone already.
    ///
    /// # Errors
    /// `Storage`.
    pub fn remove_log(
        &self,
        topic: &str,
        partition: PartitionIndex,
        topic_id: TopicId,
        directory: DirectoryId,
    ) -> Result<(), LogError> {
        match self.put_aside(topic, partition, topic_id, directory)? {
            Some(aside) => self.remove_aside(&aside),
            None => Ok(()),
        }
    }

    /// The quick half of [`Self::remove_log`]: takes the log's name away, so that a new log may have it. `None` if there is
    /// no such log. Whatever is not removed after that goes at the next start.
    ///
    /// # Errors
    /// `Storage`; the directory is then offline.
    pub fn put_aside(
        &self,
        topic: &str,
        partition: PartitionIndex,
        topic_id: TopicId,
        directory: DirectoryId,
    ) -> Result<Option<PutAside>, LogError> {
        let renamed = self.take_name(topic, partition, topic_id, directory, DELETED)?;
        Ok(renamed.map(|name| PutAside { directory, name }))
    }

    /// Takes a log's name away and keeps its files: nobody may have what is in them. Returns what the directory is called
    /// from now on, `None` if there is no such log. Nothing of ours ever deletes it.
    ///
    /// # Errors
    /// `Storage`; the directory is then offline.
    pub fn put_astray(
        &self,
        topic: &str,
        partition: PartitionIndex,
        topic_id: TopicId,
        directory: DirectoryId,
    ) -> Result<Option<String>, LogError> {
        let renamed = self.take_name(topic, partition, topic_id, directory, STRAY)?;
        let place = self.directory(directory)?;
        let synced = place.dir.sync();
        synced.map_err(|cause| place.fail("keep a log", cause))?;
        Ok(renamed)
    }

    fn take_name(
        &self,
        topic: &str,
        partition: PartitionIndex,
        topic_id: TopicId,
        directory: DirectoryId,
        ending: &str,
    ) -> Result<Option<String>, LogError> {
        let directory = self.directory(directory)?;
        directory.health.check()?;
        let name = directory_name(topic, partition);
        let renamed = self.rename_log(directory, &name, topic_id, ending);
        let renamed = renamed.map_err(|cause| directory.fail("delete a log", cause))?;
        directory.unopened.lock().remove(&name);
        let one_less = |count: u64| Some(count.saturating_sub(1));
        let _ = directory
            .partitions
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
        Ok(renamed)
    }

    /// The slow half of [`Self::remove_log`].
    ///
    /// # Errors
    /// `Storage`; the directory is then offline.
    pub fn remove_aside(&self, aside: &PutAside) -> Result<(), LogError> {
        let directory = self.directory(aside.directory)?;
        let removed = directory
            .dir
            .sync()
            .and_then(|()| directory.dir.remove_all(&aside.name));
        Ok(removed.map_err(|cause| directory.fail("delete a log", cause))?)
    }

    /// Gone in one step, however long the removal takes.
    fn rename_log(
        &self,
        directory: &Directory<D>,
        name: &str,
        topic_id: TopicId,
        ending: &str,
    ) -> io::Result<Option<String>> {
        let _names = directory.names.lock();
        let dir = directory.dir.subdirectory(name);
        if !dir.exists()? || topic_id_of(&dir)? != Some(topic_id) {
            return Ok(None);
        }
        let unused = self.unused_name(directory, name, ending)?;
        directory.dir.rename(name, &unused)?;
        Ok(Some(unused))
    }

    fn unused_name(
        &self,
        directory: &Directory<D>,
        name: &str,
        ending: &str,
    ) -> io::Result<String> {
        loop {
            let tail = format!(
                ".{}{ending}",
                self.deletions.fetch_add(1, Ordering::Relaxed)
            );
            let head: String = name.chars().take(LONGEST_NAME - tail.len()).collect();
            let unused = head + &tail;
            if !directory.dir.subdirectory(&unused).exists()? {
                return Ok(unused);
            }
        }
    }

    /// Writes `recovery-point-offset-checkpoint` of one directory.
    ///
    /// # Errors
    /// `Storage`; the directory is then offline.
    pub fn checkpoint_recovery_points(
        &self,
        directory: DirectoryId,
        points: &[OffsetLine],
    ) -> Result<(), LogError> {
        self.checkpoint(directory, RECOVERY_POINTS, points)
    }

    /// Writes `log-start-offset-checkpoint` of one directory.
    ///
    /// # Errors
    /// `Storage`; the directory is then offline.
    pub fn checkpoint_log_starts(
        &self,
        directory: DirectoryId,
        starts: &[OffsetLine],
    ) -> Result<(), LogError> {
        self.checkpoint(directory, LOG_STARTS, starts)
    }

    /// Writes `replication-offset-checkpoint` of one directory. A mark above the log's flushed end would call a torn end
    /// damage: pass the lower of the two.
    ///
    /// # Errors
    /// `Storage`; the directory is then offline.
    pub fn checkpoint_high_watermarks(
        &self,
        directory: DirectoryId,
        marks: &[OffsetLine],
    ) -> Result<(), LogError> {
        self.checkpoint(directory, HIGH_WATERMARKS, marks)
    }

    fn checkpoint(
        &self,
        directory: DirectoryId,
        name: &'static str,
        lines: &[OffsetLine],
    ) -> Result<(), LogError> {
        let directory = self.directory(directory)?;
        directory.health.check()?;
        let names = told_of(lines);
        let written = write_atomically(&directory.dir, name, offsets_to_text(lines).as_bytes());
        let mut told = directory.told.lock();
        let told = told.entry(name).or_default();
        match &written {
            Ok(()) => *told = names,
            // The old one or the new one.
            Err(_) => told.extend(names),
        }
        written.map_err(|cause| {
            let what = "write a checkpoint";
            match is_short_of_descriptors(&cause) {
                // Nothing was written, and nothing is wrong with the disk: the one before stands.
                true => failure(&directory.dir, what, cause).into(),
                false => directory.fail(what, cause).into(),
            }
        })
    }

    /// Marks the directories as closed in an orderly way; every log must have been closed and every checkpoint written. A
    /// directory that failed gets no mark, nor one whose logs were not all opened unless it was marked before
    /// (KAFKA-15375).
    ///
    /// # Errors
    /// `Storage`.
    pub fn close(self) -> Result<(), LogError> {
        for directory in &self.directories {
            let untouched = directory.unopened.lock().is_empty() || directory.was_clean;
            if directory.health.check().is_err() || !untouched {
                continue;
            }
            let mark = b"{\"version\":0,\"brokerEpoch\":-1}\n";
            write_atomically(&directory.dir, CLEAN_SHUTDOWN, mark)
                .map_err(|cause| directory.fail("mark the shutdown", cause))?;
        }
        Ok(())
    }

    fn directory(&self, id: DirectoryId) -> Result<&Directory<D>, StorageFailure> {
        self.directories
            .iter()
            .find(|directory| directory.id == id)
            .ok_or_else(|| StorageFailure {
                what: "find the directory",
                path: id.to_string(),
                cause: Arc::new(io::Error::new(
                    io::ErrorKind::NotFound,
                    "no such log directory",
                )),
            })
    }
}

/// EMFILE or ENFILE.
fn is_short_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(23 | 24))
}

impl<D: Dir> Directory<D> {
    fn fail(&self, what: &'static str, cause: io::Error) -> StorageFailure {
        let failure = failure(&self.dir, what, cause);
        self.health.fail(&failure);
        failure
    }
}

fn failure<D: Dir>(dir: &D, what: &'static str, cause: io::Error) -> StorageFailure {
    StorageFailure {
        what,
        path: dir.path(),
        cause: Arc::new(cause),
    }
}

/// What a directory's meta.properties says, if it is of this node of this cluster.
fn identity(
    path: String,
    bytes: &[u8],
    cluster_id: &str,
    node_id: i32,
) -> Result<MetaProperties, LogDirsError> {
    let meta = match MetaProperties::from_text(&String::from_utf8_lossy(bytes)) {
        Ok(meta) => meta,
        Err(reason) => return Err(LogDirsError::Damaged { path, reason }),
    };
    match meta.verify(cluster_id, node_id) {
        Ok(()) => Ok(meta),
        Err(reason) => Err(LogDirsError::Foreign { path, reason }),
    }
}

fn read_directory<D: Dir>(dir: &D, cluster_id: &str, node_id: i32) -> io::Result<Read<D>> {
    let path = dir.path();
    if !dir.exists()? {
        return Ok(Read::Refused(LogDirsError::Unformatted { path }));
    }
    let Some(meta) = dir.read_file(META_PROPERTIES)? else {
        return Ok(Read::Refused(LogDirsError::Unformatted { path }));
    };
    let meta = match identity(path.clone(), &meta, cluster_id, node_id) {
        Ok(meta) => meta,
        Err(refused) => return Ok(Read::Refused(refused)),
    };
    let Some(lock) = dir.lock(LOCK)? else {
        return Ok(Read::Refused(LogDirsError::Locked { path }));
    };
    let was_clean = take_clean_mark(dir)?;
    let same_boot = renew_boot_id(dir)?;
    let (found, told) = find_logs(dir, meta.directory_id, was_clean, same_boot)?;
    let openable = found.iter().filter(|found| found.topic_id.is_some());
    let unopened = openable
        .map(|found| directory_name(&found.topic, found.partition))
        .collect();
    let directory = Directory {
        dir: dir.clone(),
        id: meta.directory_id,
        health: Arc::default(),
        was_clean,
        same_boot,
        names: Mutex::new(()),
        unopened: Mutex::new(unopened),
        partitions: AtomicU64::new(found.len() as u64),
        told: Mutex::new(told),
        _lock: Some(lock),
    };
    Ok(Read::Working(directory, found))
}

/// A crash from here on must not be taken for an orderly shutdown.
fn take_clean_mark<D: Dir>(dir: &D) -> io::Result<bool> {
    match dir.remove(CLEAN_SHUTDOWN) {
        Ok(()) => {
            dir.sync()?;
            Ok(true)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether the directory was last used under this boot of the kernel.
fn renew_boot_id<D: Dir>(dir: &D) -> io::Result<bool> {
    let text = format!("{BOOT_ID_HEAD}\n{}\n", dir.boot_id()?);
    if dir
        .read_file(BOOT_ID)?
        .is_some_and(|known| known == text.as_bytes())
    {
        return Ok(true);
    }
    write_atomically(dir, BOOT_ID, text.as_bytes())?;
    Ok(false)
}

fn find_logs<D: Dir>(
    dir: &D,
    directory: DirectoryId,
    clean: bool,
    same_boot: bool,
) -> io::Result<(Vec<FoundLog<D>>, ToldBy)> {
    let mut told = ToldBy::new();
    let mut read = |name| {
        let lines = read_offsets(dir, name)?;
        told.insert(name, told_of(&lines));
        let by_partition = lines
            .into_iter()
            .map(|(topic, partition, offset)| ((topic, partition), offset));
        io::Result::Ok(by_partition.collect::<BTreeMap<_, _>>())
    };
    let recovery_points = read(RECOVERY_POINTS)?;
    let log_starts = read(LOG_STARTS)?;
    let high_watermarks = read(HIGH_WATERMARKS)?;
    let mut found = Vec::new();
    for entry in dir.list()?.into_iter().filter(|entry| entry.is_dir) {
        if entry.name.ends_with(DELETED) {
            // Its deletion was cut short.
            dir.remove_all(&entry.name)?;
            continue;
        }
        let Some((topic, partition)) = parse_directory_name(&entry.name) else {
            continue;
        };
        let of = |offsets: &BTreeMap<(String, PartitionIndex), Offset>| {
            offsets
                .get(&(topic.to_owned(), partition))
                .copied()
                .unwrap_or(Offset::ZERO)
        };
        let partition_dir = dir.subdirectory(&entry.name);
        found.push(FoundLog {
            topic: topic.to_owned(),
            partition,
            topic_id: topic_id_of(&partition_dir)?,
            directory,
            dir: partition_dir,
            known: Known {
                log_start: of(&log_starts),
                recovery_point: of(&recovery_points),
                high_watermark: of(&high_watermarks),
                clean,
                same_boot,
            },
        });
    }
    Ok((found, told))
}

/// A checkpoint that cannot be read says nothing: more is read at the start, and nothing is lost.
fn read_offsets<D: Dir>(dir: &D, name: &str) -> io::Result<Vec<OffsetLine>> {
    let Some(bytes) = dir.read_file(name)? else {
        return Ok(Vec::new());
    };
    let lines = offsets_from_text(&String::from_utf8_lossy(&bytes));
    if lines.is_none() {
        tracing::warn!(dir = dir.path(), name, "a damaged checkpoint is ignored");
    }
    Ok(lines.unwrap_or_default())
}

/// The same partition in two directories: the first one is used, and somebody should look. One whose topic nobody knows, as a power
/// cut leaves it behind, is nobody's, and stands in the way of none.
fn without_doubles<D: Dir>(found: Vec<FoundLog<D>>) -> Vec<FoundLog<D>> {
    let mut seen = BTreeSet::new();
    let mut kept = Vec::new();
    for log in found {
        if seen.insert((log.topic.clone(), log.partition, log.topic_id)) {
            kept.push(log);
        } else {
            tracing::error!(
                path = log.dir.path(),
                "a second log of the same partition is ignored"
            );
        }
    }
    kept
}

fn directory_name(topic: &str, partition: PartitionIndex) -> String {
    format!("{topic}-{partition}")
}

fn parse_directory_name(name: &str) -> Option<(&str, PartitionIndex)> {
    let (topic, partition) = name.rsplit_once('-')?;
    let digits = !partition.is_empty() && partition.bytes().all(|byte| byte.is_ascii_digit());
    let partition = digits.then(|| partition.parse().ok()).flatten()?;
    (!topic.is_empty()).then_some((topic, partition))
}

/// The topic id that a partition's directory says it holds.
fn topic_id_of<D: Dir>(dir: &D) -> io::Result<Option<TopicId>> {
    let Some(bytes) = dir.read_file(PARTITION_METADATA)? else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(&bytes);
    let value = |key: &str| {
        text.lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(name, _)| name.trim() == key)
            .map(|(_, value)| value.trim().to_owned())
    };
    let known = value("version").is_some_and(|version| version == "0");
    Ok(value("topic_id")
        .filter(|_| known)
        .and_then(|id| id_from_text(&id))
        .map(TopicId))
}

#[cfg(test)]
mod tests;
