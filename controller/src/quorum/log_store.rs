//! The Raft log and the vote, on disk.
//! Law: an index is an offset of a `storage::Log`, one record batch an entry. Every write goes through one thread (in a
//! simulation one task), in the order of the calls; a callback or an answer means "fsynced". An IO error is reported once and ends the process.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use kuorum_protocol::record::{
    BatchBuilder, BatchMut, BatchView, Codec, DecompressLimit, RecordsReader,
};
use kuorum_protocol::{Monotonic, Offset, Timestamp};
use kuorum_storage::{Dir, Known, Log, LogConfig};
use kuorum_transport::Clock;
use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{LogState, OptionalSend, RaftLogReader};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::Threads;
use super::failure::Failure;
use super::file::{DAMAGE, DURABLE, PURGED, VOTE};
use super::types::{Entry, LogId, StorageError, StorageIOError, TypeConfig, Vote};

/// How many bytes of entries one AppendEntries carries at most, unless a single entry is larger.
const READ_BUDGET: usize = 256 * 1024;
/// How many bytes of the newest entries are kept in memory, so that followers and the state machine do not read the disk.
const TAIL_BYTES: usize = 4 * 1024 * 1024;
/// Where the log lives inside the quorum's directory: as Kafka names it, so that Kafka's tools know it.
const LOG_DIRECTORY: &str = "__cluster_metadata-0";
/// How far the file that names the durable end may lag behind it. Damage younger than this looks like an entry that was being
/// written.
const MARK_EVERY: Duration = Duration::from_secs(1);
/// What an operator can do whose controller has lost what it promised the others to keep.
const NO_WAY_BACK: &str = "This controller cannot take part any more: do not format it anew, the quorum would not take it back either (docs/controller.md). Keep the others running; they are enough as long as they are a majority";
const CANNOT_MARK: &str = "cannot note the durable end of the metadata log";
/// When the log goes on in a new file.
const SEGMENT_BYTES: u64 = 16 * 1024 * 1024;
/// How much is read from the disk at once.
const READ_BYTES: usize = 1024 * 1024;

/// What an entry's record holds.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
struct Stored {
    log_id: LogId,
    payload: openraft::EntryPayload<TypeConfig>,
}

/// The log and the vote. A clone is the same log.
pub struct LogStore<D: Dir> {
    shared: Arc<Shared<D>>,
}

impl<D: Dir> Clone for LogStore<D> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<D: Dir> Debug for LogStore<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogStore").finish_non_exhaustive()
    }
}

struct Shared<D: Dir> {
    state: Mutex<State<D>>,
    jobs: Jobs,
    clock: Clock,
}

/// The way to the writer. openraft waits for each answer, so that hardly anything ever waits in it.
enum Jobs {
    Thread(mpsc::Sender<Job>),
    Task(UnboundedSender<Job>),
}

impl Jobs {
    /// `false` if the writer has ended.
    fn send(&self, job: Job) -> bool {
        match self {
            Self::Thread(jobs) => jobs.send(job).is_ok(),
            Self::Task(jobs) => jobs.send(job).is_ok(),
        }
    }
}

struct State<D: Dir> {
    log: Log<D>,
    vote: Option<Vote>,
    purged: Option<LogId>,
    last: Option<LogId>,
    /// What the file says of the durable end.
    marked: u64,
    tail: Tail,
}

/// One write, in the order of the calls.
enum Job {
    Append {
        batches: Vec<(Entry, Vec<u8>)>,
        written: oneshot::Sender<io::Result<()>>,
        flushed: LogFlushed<TypeConfig>,
    },
    SaveVote(Vote, oneshot::Sender<io::Result<()>>),
    /// Removes the entries from this index on.
    Truncate(u64, oneshot::Sender<io::Result<()>>),
    /// Removes the entries up to and with this one.
    Purge(LogId, oneshot::Sender<io::Result<()>>),
    /// Notes how far the log is durable.
    Mark(oneshot::Sender<io::Result<()>>),
}

impl<D: Dir> LogStore<D> {
    /// Opens the log in `dir` and starts its writer, on a thread of its own.
    ///
    /// # Errors
    /// If a file cannot be read, is damaged, or is of a newer format. Damage below the durable end of the log is never
    /// repaired by cutting: those entries may have been acknowledged.
    pub fn open(dir: D, clock: Clock, failure: Failure) -> io::Result<Self> {
        Self::open_on(dir, clock, failure, Threads::Own)
    }

    /// Opens the log, and says where its writer works.
    pub(crate) fn open_on(
        dir: D,
        clock: Clock,
        failure: Failure,
        threads: Threads,
    ) -> io::Result<Self> {
        Self::open_sized(dir, clock, failure, threads, SEGMENT_BYTES)
    }

    /// As `open_on`, with files of another size.
    pub(super) fn open_sized(
        dir: D,
        clock: Clock,
        failure: Failure,
        threads: Threads,
        segment_bytes: u64,
    ) -> io::Result<Self> {
        let damage: Option<String> = DAMAGE.read_json(&dir)?;
        if let Some(damage) = damage {
            return Err(io::Error::new(io::ErrorKind::InvalidData, damage));
        }
        let vote = VOTE.read_json(&dir)?;
        let purged: Option<LogId> = PURGED.read_json(&dir)?;
        let marked: u64 = DURABLE.read_json(&dir)?.unwrap_or_default();
        let start = Offset(purged.map_or(0, |id| id.index as i64 + 1));
        let log_dir = dir.subdirectory(LOG_DIRECTORY);
        if log_dir.create()? {
            log_dir.sync_parent()?;
        }
        // That a snapshot takes the place of a log which ends before it is noted first, and the log begins anew after that: if the
        // power fails in between, the log is sound and behind its start.
        let sure = start.min(Offset(marked as i64));
        let known = Known {
            log_start: sure,
            // The log is short, so all of it is checked.
            recovery_point: sure,
            high_watermark: sure,
            clean: false,
            same_boot: false,
        };
        let config = LogConfig {
            segment_bytes,
            segment_ms: i64::MAX,
            max_message_bytes: usize::MAX,
            retention_ms: None,
            retention_bytes: None,
            delete: false,
            ..LogConfig::default()
        };
        let (mut log, recovery) =
            Log::open(log_dir, config, known, clock.now()).map_err(io::Error::other)?;
        if let Some(corruption) = &recovery.corruption {
            let (at, reason) = (corruption.at, &corruption.reason);
            let damage = format!(
                "the metadata log is damaged at {at} ({reason}): what could not stay in it is kept beside it, in files named .damaged. {NO_WAY_BACK}"
            );
            // What is left looks sound to the next start, which must say the same.
            DAMAGE.write_json(&dir, &damage)?;
            return Err(io::Error::new(io::ErrorKind::InvalidData, damage));
        }
        // Below its start nothing can be missed: a snapshot has it.
        let end = log.end_offset();
        if (end.0 as u64) < marked && Offset(marked as i64) > start {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "the metadata log ends at {end}, though it was durable up to {marked}: entries that were acknowledged are gone. {NO_WAY_BACK}"
                ),
            ));
        }
        if recovery.truncated_bytes > 0 {
            tracing::info!(
                bytes = recovery.truncated_bytes,
                "cut off an entry of the metadata log that was being written when the process ended"
            );
        }
        if log.end_offset() < start {
            // A snapshot had been installed over a log that was behind it.
            log.reset_to(start).map_err(io::Error::other)?;
        } else if log.start_offset() < start {
            log.advance_start(start).map_err(io::Error::other)?;
        } else if log.start_offset() > start {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "the metadata log begins at {} and nothing says what came before. {NO_WAY_BACK}",
                    log.start_offset()
                ),
            ));
        }
        // The first entry of all is stored before the first vote; whoever stored more has voted, and would vote twice.
        if vote.is_none() && log.end_offset() > Offset(1) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "the file {:?} is gone, though there are entries: restore it from a copy, if there is one as new as the log. {NO_WAY_BACK}",
                    VOTE.name
                ),
            ));
        }
        let mut last = purged;
        if log.end_offset() > start {
            let index = log.end_offset().0 as u64 - 1;
            last = read_entries(&log, index, index + 1, usize::MAX)?
                .pop()
                .map(|entry| entry.log_id);
        }
        let state = State {
            log,
            vote,
            purged,
            last,
            marked,
            tail: Tail::default(),
        };
        let share = |jobs| {
            let timer = clock.clone();
            let shared = Arc::new(Shared {
                state: Mutex::new(state),
                jobs,
                clock,
            });
            let writer = Writer {
                dir,
                shared: Arc::downgrade(&shared),
                due: timer.now().monotonic + MARK_EVERY,
                timer,
                failure,
            };
            (Self { shared }, writer)
        };
        match threads {
            Threads::Own => {
                let (jobs, queue) = mpsc::channel();
                let (store, writer) = share(Jobs::Thread(jobs));
                thread::Builder::new()
                    .name("quorum-writer".to_owned())
                    .spawn(move || writer.work(&queue))?;
                Ok(store)
            }
            Threads::Borrowed { slowest_write } => {
                let (jobs, queue) = unbounded_channel();
                let (store, writer) = share(Jobs::Task(jobs));
                tokio::spawn(writer.work_slowly(queue, slowest_write));
                Ok(store)
            }
        }
    }

    /// Notes how far the log is durable, now and not within the second: an orderly end leaves nothing to doubt.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) async fn mark_durable_end(&self) -> io::Result<()> {
        self.submit(Job::Mark).await
    }

    /// The first index in the log, and the one after the last.
    pub(crate) fn bounds(&self) -> (u64, u64) {
        let state = self.shared.state.lock();
        (
            state.log.start_offset().0 as u64,
            state.log.end_offset().0 as u64,
        )
    }

    /// Whether a vote was ever given here, or an entry stored.
    pub(crate) fn is_pristine(&self) -> bool {
        let state = self.shared.state.lock();
        state.vote.is_none() && state.last.is_none()
    }

    async fn submit(
        &self,
        job: impl FnOnce(oneshot::Sender<io::Result<()>>) -> Job,
    ) -> io::Result<()> {
        let (done, answer) = oneshot::channel();
        let gone = || io::Error::other("the writer of the metadata log has ended");
        if !self.shared.jobs.send(job(done)) {
            return Err(gone());
        }
        answer.await.unwrap_or_else(|_| Err(gone()))
    }

    fn entries(&self, from: u64, until: u64, budget: usize) -> io::Result<Vec<Entry>> {
        let state = self.shared.state.lock();
        let from = from.max(state.log.start_offset().0 as u64);
        let until = until.min(state.log.end_offset().0 as u64);
        if from >= until {
            return Ok(Vec::new());
        }
        if let Some(entries) = state.tail.read(from, until, budget) {
            return Ok(entries);
        }
        read_entries(&state.log, from, until, budget)
    }
}

/// Carries out the jobs, one after another. Ends when the last handle is gone: nothing can be asked any more.
struct Writer<D: Dir> {
    dir: D,
    shared: Weak<Shared<D>>,
    timer: Clock,
    failure: Failure,
    /// When the durable end is to be noted again.
    due: Monotonic,
}

impl<D: Dir> Writer<D> {
    fn work(mut self, queue: &mpsc::Receiver<Job>) {
        let _guard = Guard(self.failure.clone());
        loop {
            let job = match queue.recv_timeout(MARK_EVERY) {
                Ok(job) => Some(job),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let Some(shared) = self.shared.upgrade() else {
                return;
            };
            let idle = job.is_none();
            if let Some(job) = job {
                run(&self.dir, &shared.state, job, &self.failure);
            }
            self.mark_in_time(&shared.state, idle);
        }
    }

    /// The same as a task, with a disk that takes its time: the world goes on between a write and its flush.
    async fn work_slowly(mut self, mut queue: UnboundedReceiver<Job>, slowest: Duration) {
        let _guard = Guard(self.failure.clone());
        loop {
            let job = match tokio::time::timeout(MARK_EVERY, queue.recv()).await {
                Ok(Some(job)) => Some(job),
                Ok(None) => return,
                Err(_) => None,
            };
            let Some(shared) = self.shared.upgrade() else {
                return;
            };
            let idle = job.is_none();
            self.pass_time(slowest).await;
            match job {
                Some(Job::Append {
                    batches,
                    written,
                    flushed,
                }) => {
                    let result = write_and_tell(&shared.state, batches, written);
                    self.pass_time(slowest).await;
                    flush_and_tell(&shared.state, result, flushed, &self.failure);
                }
                Some(job) => run(&self.dir, &shared.state, job, &self.failure),
                None => {}
            }
            self.mark_in_time(&shared.state, idle);
        }
    }

    async fn pass_time(&self, slowest: Duration) {
        let micros = self.timer.random_below(slowest.as_micros() as u64 + 1);
        self.timer.sleep(Duration::from_micros(micros)).await;
    }

    fn mark_in_time(&mut self, state: &Mutex<State<D>>, idle: bool) {
        let now = self.timer.now().monotonic;
        if idle || now >= self.due {
            self.due = now + MARK_EVERY;
            if let Err(error) = mark(&self.dir, state) {
                self.failure.report(format!("{CANNOT_MARK}: {error}"));
            }
        }
    }
}

/// A writer that panics takes the process down with it, as a failed write does.
struct Guard(Failure);

impl Drop for Guard {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0
                .report("the writer of the metadata log has panicked".to_owned());
        }
    }
}

fn run<D: Dir>(dir: &D, state: &Mutex<State<D>>, job: Job, failure: &Failure) {
    match job {
        Job::Append {
            batches,
            written,
            flushed,
        } => {
            let result = write_and_tell(state, batches, written);
            flush_and_tell(state, result, flushed, failure);
        }
        Job::SaveVote(vote, done) => {
            let result = VOTE.write_json(dir, &vote);
            if result.is_ok() {
                state.lock().vote = Some(vote);
            }
            answer(result, done, "cannot write the vote", failure);
        }
        Job::Truncate(from, done) => {
            let result = truncate(dir, state, from);
            answer(result, done, "cannot cut the metadata log", failure);
        }
        Job::Purge(upto, done) => {
            let result = purge(dir, state, upto);
            answer(
                result,
                done,
                "cannot remove old entries of the metadata log",
                failure,
            );
        }
        Job::Mark(done) => answer(mark(dir, state), done, CANNOT_MARK, failure),
    }
}

fn answer(
    result: io::Result<()>,
    done: oneshot::Sender<io::Result<()>>,
    what: &str,
    failure: &Failure,
) {
    if let Err(error) = &result {
        failure.report(format!("{what}: {error}"));
    }
    let _ = done.send(result);
}

fn write_and_tell<D: Dir>(
    state: &Mutex<State<D>>,
    batches: Vec<(Entry, Vec<u8>)>,
    written: oneshot::Sender<io::Result<()>>,
) -> io::Result<()> {
    let result = write_batches(state, batches);
    let told = match &result {
        Ok(()) => Ok(()),
        Err(error) => Err(copy_of(error)),
    };
    // The receiver waits in RaftCore; if that is gone, nobody needs the answer.
    let _ = written.send(told);
    result
}

fn flush_and_tell<D: Dir>(
    state: &Mutex<State<D>>,
    written: io::Result<()>,
    flushed: LogFlushed<TypeConfig>,
    failure: &Failure,
) {
    let result = written.and_then(|()| flush(state));
    if let Err(error) = &result {
        failure.report(format!("cannot write the metadata log: {error}"));
    }
    flushed.log_io_completed(result);
}

/// An `io::Error` cannot be cloned; two who wait need two.
fn copy_of(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), error.to_string())
}

fn write_batches<D: Dir>(
    state: &Mutex<State<D>>,
    batches: Vec<(Entry, Vec<u8>)>,
) -> io::Result<()> {
    let mut state = state.lock();
    let state = &mut *state;
    for (entry, bytes) in batches {
        let appended = state.log.append_at(&bytes).map_err(io::Error::other)?;
        assert_eq!(
            appended.first_offset.0 as u64, entry.log_id.index,
            "an entry's index is its offset"
        );
        state.last = Some(entry.log_id);
        state.tail.push(entry, bytes.len());
    }
    Ok(())
}

fn flush<D: Dir>(state: &Mutex<State<D>>) -> io::Result<()> {
    let Some(job) = state.lock().log.begin_flush() else {
        return Ok(());
    };
    let result = job.run();
    state
        .lock()
        .log
        .finish_flush(job, result)
        .map_err(io::Error::other)?;
    Ok(())
}

/// Notes how far the log is durable, if that is not noted yet.
fn mark<D: Dir>(dir: &D, state: &Mutex<State<D>>) -> io::Result<()> {
    let (point, durable) = {
        let state = state.lock();
        let point = state.log.flushed_point();
        let durable = point.offset.0 as u64;
        if state.log.failure().is_some() || durable == state.marked {
            return Ok(());
        }
        (point, durable)
    };
    DURABLE.write_json(dir, &durable)?;
    let mut state = state.lock();
    state.marked = durable;
    state.log.checkpointed(point).map_err(io::Error::other)
}

fn truncate<D: Dir>(dir: &D, state: &Mutex<State<D>>, from: u64) -> io::Result<()> {
    {
        let mut state = state.lock();
        let start = state.log.start_offset().0 as u64;
        let from = from.max(start);
        if from >= state.log.end_offset().0 as u64 {
            return Ok(());
        }
        // What is cut on purpose must not be missed at the next start.
        if from < state.marked {
            DURABLE.write_json(dir, &from)?;
            state.marked = from;
        }
        state
            .log
            .truncate_to(Offset(from as i64))
            .map_err(io::Error::other)?;
        state.tail.truncate(from);
        state.last = if from == start {
            state.purged
        } else {
            read_entries(&state.log, from - 1, from, usize::MAX)?
                .pop()
                .map(|entry| entry.log_id)
        };
    }
    flush(state)
}

fn purge<D: Dir>(dir: &D, state: &Mutex<State<D>>, upto: LogId) -> io::Result<()> {
    if state
        .lock()
        .purged
        .is_some_and(|purged| purged.index >= upto.index)
    {
        return Ok(());
    }
    // First it is durable what the log begins after; only then may it begin there.
    PURGED.write_json(dir, &upto)?;
    let mut state = state.lock();
    let start = Offset(upto.index as i64 + 1);
    if state.log.end_offset() < start {
        state.log.reset_to(start).map_err(io::Error::other)?;
        state.tail = Tail::default();
    } else {
        state.log.advance_start(start).map_err(io::Error::other)?;
    }
    state.purged = Some(upto);
    if state.log.start_offset() == state.log.end_offset() {
        state.last = Some(upto);
    }
    Ok(())
}

/// One entry as one record batch; the partition leader epoch stays 0, for the value holds the full log id.
fn encode(entry: &Entry, now: Timestamp) -> io::Result<Vec<u8>> {
    let value = serde_json::to_vec(&Stored {
        log_id: entry.log_id,
        payload: entry.payload.clone(),
    })?;
    let batch = BatchBuilder::new(Codec::None)
        .push(now, None, Some(&value), &[])
        .build();
    let mut bytes = Vec::from(batch);
    let mut patch = BatchMut::parse(&mut bytes).map_err(io::Error::other)?;
    patch.set_base_offset(Offset(entry.log_id.index as i64));
    Ok(bytes)
}

fn read_entries<D: Dir>(
    log: &Log<D>,
    from: u64,
    until: u64,
    budget: usize,
) -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    let mut next = from;
    let mut spent = 0;
    while next < until && (spent < budget || entries.is_empty()) {
        let room = READ_BYTES.min(budget.saturating_sub(spent)).max(1);
        let bytes = log
            .read(Offset(next as i64), Offset(until as i64), room, true)
            .map_err(io::Error::other)?;
        if bytes.is_empty() {
            break;
        }
        let mut rest = bytes;
        while !rest.is_empty() && next < until {
            let size = BatchView::parse(&rest).map_err(io::Error::other)?.size();
            let batch = rest.split_to(size);
            let entry = decode(&batch)?;
            if entry.log_id.index != next {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!(
                        "entry {} of the metadata log is found at {next}",
                        entry.log_id.index
                    ),
                ));
            }
            spent += size;
            next += 1;
            entries.push(entry);
        }
    }
    Ok(entries)
}

fn decode(batch: &bytes::Bytes) -> io::Result<Entry> {
    let record = RecordsReader::new(batch, DecompressLimit::CONSUMED)
        .map_err(io::Error::other)?
        .next()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a batch without a record"))?
        .map_err(io::Error::other)?;
    let stored: Stored = serde_json::from_slice(record.value.as_deref().unwrap_or_default())?;
    Ok(Entry {
        log_id: stored.log_id,
        payload: stored.payload,
    })
}

/// The newest entries, so that replication and the state machine rarely read the disk.
#[derive(Default)]
struct Tail {
    entries: VecDeque<(Entry, usize)>,
    bytes: usize,
}

impl Tail {
    fn push(&mut self, entry: Entry, size: usize) {
        if self
            .entries
            .back()
            .is_some_and(|(last, _)| last.log_id.index + 1 != entry.log_id.index)
        {
            *self = Self::default();
        }
        self.entries.push_back((entry, size));
        self.bytes += size;
        while self.bytes > TAIL_BYTES && self.entries.len() > 1 {
            if let Some((_, size)) = self.entries.pop_front() {
                self.bytes -= size;
            }
        }
    }

    fn truncate(&mut self, from: u64) {
        while let Some((entry, size)) = self.entries.back()
            && entry.log_id.index >= from
        {
            self.bytes -= size;
            self.entries.pop_back();
        }
    }

    /// The entries of `from..until` within the budget, at least one; `None` if `from` is older than the tail.
    fn read(&self, from: u64, until: u64, budget: usize) -> Option<Vec<Entry>> {
        let first = self.entries.front()?.0.log_id.index;
        let skip = usize::try_from(from.checked_sub(first)?).ok()?;
        let mut spent = 0;
        let mut entries = Vec::new();
        for (entry, size) in self.entries.iter().skip(skip) {
            if entry.log_id.index >= until || (spent + size > budget && !entries.is_empty()) {
                break;
            }
            spent += size;
            entries.push(entry.clone());
        }
        if entries.is_empty() {
            None
        } else {
            Some(entries)
        }
    }
}

impl<D: Dir> RaftLogReader<TypeConfig> for LogStore<D> {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry>, StorageError> {
        let from = match range.start_bound() {
            Bound::Included(&index) => index,
            Bound::Excluded(&index) => index + 1,
            Bound::Unbounded => 0,
        };
        let until = match range.end_bound() {
            Bound::Included(&index) => index + 1,
            Bound::Excluded(&index) => index,
            Bound::Unbounded => u64::MAX,
        };
        // The tail may stop short of its budget; without one it returns the whole range.
        Ok(self
            .entries(from, until, usize::MAX)
            .map_err(|e| StorageIOError::read_logs(&e))?)
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<Entry>, StorageError> {
        Ok(self
            .entries(start, end, READ_BUDGET)
            .map_err(|e| StorageIOError::read_logs(&e))?)
    }
}

impl<D: Dir> RaftLogStorage<TypeConfig> for LogStore<D> {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, StorageError> {
        let state = self.shared.state.lock();
        Ok(LogState {
            last_purged_log_id: state.purged,
            last_log_id: state.last,
        })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), StorageError> {
        let vote = *vote;
        let result = self.submit(|done| Job::SaveVote(vote, done)).await;
        Ok(result.map_err(|e| StorageIOError::write_vote(&e))?)
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, StorageError> {
        Ok(self.shared.state.lock().vote)
    }

    async fn append<I>(
        &mut self,
        entries: I,
        callback: LogFlushed<TypeConfig>,
    ) -> Result<(), StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        // For people and tools: nothing is decided by an entry's timestamp.
        let now = self.shared.clock.now().wall;
        let batches: io::Result<Vec<_>> = entries
            .into_iter()
            .map(|entry| encode(&entry, now).map(|bytes| (entry, bytes)))
            .collect();
        let batches = batches.map_err(|e| StorageIOError::write_logs(&e))?;
        let result = self
            .submit(|written| Job::Append {
                batches,
                written,
                flushed: callback,
            })
            .await;
        Ok(result.map_err(|e| StorageIOError::write_logs(&e))?)
    }

    async fn truncate(&mut self, log_id: LogId) -> Result<(), StorageError> {
        let result = self.submit(|done| Job::Truncate(log_id.index, done)).await;
        Ok(result.map_err(|e| StorageIOError::write_logs(&e))?)
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), StorageError> {
        let result = self.submit(|done| Job::Purge(log_id, done)).await;
        Ok(result.map_err(|e| StorageIOError::write_logs(&e))?)
    }
}
