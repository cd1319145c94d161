//! Group commit: one flush covers everything appended before it began, for everybody who waits.
//! Law: what a job covers is fixed under the log's lock before the first sync, and the syncs run without the lock. One
//! flush of a log is under way at a time; a failed one is never repeated.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::thread::{Builder, JoinHandle};

use kuorum_protocol::Offset;
use parking_lot::{Condvar, Mutex};

use crate::checkpoint::write_atomically;
use crate::dir::{Dir, DirFile};
use crate::log::EPOCHS;
use crate::mark::START;

/// What was dirty when it was made; running it makes that durable.
#[derive(Debug)]
pub struct FlushJob<D: Dir> {
    pub(crate) dir: D,
    pub(crate) upto: Offset,
    /// Which history of the log `upto` belongs to; a truncation begins another.
    pub(crate) history: u64,
    pub(crate) files: Vec<Arc<D::File>>,
    /// A file that nobody keeps open.
    pub(crate) beside: Option<&'static str>,
    /// What the mark of the log's start says, if nobody knows whether that is durable.
    pub(crate) start_mark: Option<Offset>,
    pub(crate) epochs: Option<String>,
    pub(crate) sync_dir: bool,
    pub(crate) sync_parent: bool,
}

impl<D: Dir> FlushJob<D> {
    /// Makes everything durable that was appended before the job was made: bytes, then the epochs they belong to, then
    /// the names of new files. Needs no lock.
    ///
    /// # Errors
    /// Whatever the disk says. Hand it to `Log::finish_flush`; running the job again proves nothing.
    pub fn run(&self) -> io::Result<()> {
        for file in &self.files {
            file.sync_data()?;
        }
        if let Some(name) = self.beside {
            self.dir.open(name)?.sync_data()?;
        }
        if self.start_mark.is_some() {
            self.dir.open(START.name)?.sync_data()?;
        }
        match &self.epochs {
            Some(text) => write_atomically(&self.dir, EPOCHS, text.as_bytes())?,
            None if self.sync_dir => self.dir.sync()?,
            None => {}
        }
        if self.sync_parent {
            self.dir.sync_parent()?;
        }
        Ok(())
    }

    /// The end offset that is durable once the job has run.
    pub fn upto(&self) -> Offset {
        self.upto
    }
}

/// Something that can be dirty: begins a flush under its lock, runs it without, finishes it under the lock again.
pub trait Flushable: Send + Sync + 'static {
    /// One group commit. Called by a thread or a task of the flusher, never twice at once for one handle.
    fn flush(&self);
}

/// A few dedicated threads that run group commits, several at once, because a hundred syncs one after the other take a
/// hundred times as long (docs/adr/0002-group-commit.md). A simulation lends it tasks instead, which live on its clock.
pub struct Flusher {
    queue: Arc<Queue>,
    /// None if they are borrowed.
    threads: Vec<JoinHandle<()>>,
}

impl fmt::Debug for Flusher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flusher")
            .field("threads", &self.threads.len())
            .finish_non_exhaustive()
    }
}

/// What is submitted: says "I am dirty" as often as it likes, and is flushed once for all that was said before the
/// flush began. A queue of handles is bounded by their number.
#[derive(Clone)]
pub struct FlushHandle {
    ticket: Arc<Ticket>,
    queue: Arc<Queue>,
}

impl fmt::Debug for FlushHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlushHandle")
            .field("state", &*self.ticket.state.lock())
            .finish_non_exhaustive()
    }
}

struct Ticket {
    target: Arc<dyn Flushable>,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Queued,
    Running,
    /// Submitted again while running: what came since is not covered by that run.
    RunningAndDirty,
}

#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    tickets: VecDeque<Arc<Ticket>>,
    closed: bool,
    /// The task that waits for the next ticket, if a task does.
    task: Option<Waker>,
}

impl Queue {
    fn push(&self, ticket: Arc<Ticket>) {
        let mut waiting = self.waiting.lock();
        waiting.tickets.push_back(ticket);
        let task = waiting.task.take();
        drop(waiting);
        self.changed.notify_one();
        if let Some(task) = task {
            task.wake();
        }
    }

    /// The next ticket; `None` once the queue is closed and empty.
    fn pop(&self) -> Option<Arc<Ticket>> {
        let mut waiting = self.waiting.lock();
        loop {
            if let Some(ticket) = waiting.tickets.pop_front() {
                return Some(ticket);
            }
            if waiting.closed {
                return None;
            }
            self.changed.wait(&mut waiting);
        }
    }

    fn work(&self) {
        while let Some(ticket) = self.pop() {
            self.flush(ticket);
        }
    }

    fn flush(&self, ticket: Arc<Ticket>) {
        *ticket.state.lock() = State::Running;
        ticket.target.flush();
        let mut state = ticket.state.lock();
        if *state == State::RunningAndDirty {
            *state = State::Queued;
            drop(state);
            self.push(ticket);
        } else {
            *state = State::Idle;
        }
    }

    fn close(&self) {
        let mut waiting = self.waiting.lock();
        waiting.closed = true;
        let task = waiting.task.take();
        drop(waiting);
        self.changed.notify_all();
        if let Some(task) = task {
            task.wake();
        }
    }
}

/// What a flusher without threads of its own has to do: one task takes it, and may let time pass before each flush.
pub struct Flushes {
    queue: Arc<Queue>,
}

impl fmt::Debug for Flushes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flushes").finish_non_exhaustive()
    }
}

/// A flush that was asked for and has not begun. Dropping it loses it, as the end of a process does.
pub struct DueFlush {
    ticket: Arc<Ticket>,
    queue: Arc<Queue>,
}

impl fmt::Debug for DueFlush {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DueFlush").finish_non_exhaustive()
    }
}

impl Flushes {
    /// Waits for the next one; `None` once the flusher is shut down and nothing is left.
    pub async fn next(&mut self) -> Option<DueFlush> {
        poll_fn(|context| {
            let mut waiting = self.queue.waiting.lock();
            if let Some(ticket) = waiting.tickets.pop_front() {
                let queue = Arc::clone(&self.queue);
                return Poll::Ready(Some(DueFlush { ticket, queue }));
            }
            if waiting.closed {
                return Poll::Ready(None);
            }
            waiting.task = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

impl DueFlush {
    /// Runs it. What was submitted until now is covered.
    pub fn run(self) {
        self.queue.flush(self.ticket);
    }
}

impl Flusher {
    /// Starts `threads` threads, at least one.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn new(threads: usize) -> io::Result<Self> {
        let queue = Arc::new(Queue::default());
        let start = |number| {
            let queue = Arc::clone(&queue);
            Builder::new()
                .name(format!("flush-{number}"))
                .spawn(move || queue.work())
        };
        let threads = (0..threads.max(1)).map(start).collect::<io::Result<_>>()?;
        Ok(Self { queue, threads })
    }

    /// One without threads: whoever calls takes what is to be done, and does it.
    pub fn borrowed() -> (Self, Flushes) {
        let queue = Arc::new(Queue::default());
        let flushes = Flushes {
            queue: Arc::clone(&queue),
        };
        let flusher = Self {
            queue,
            threads: Vec::new(),
        };
        (flusher, flushes)
    }

    /// A handle through which `target` is flushed.
    pub fn register(&self, target: Arc<dyn Flushable>) -> FlushHandle {
        let ticket = Ticket {
            target,
            state: Mutex::new(State::Idle),
        };
        FlushHandle {
            ticket: Arc::new(ticket),
            queue: Arc::clone(&self.queue),
        }
    }

    /// Runs what is queued, then ends the threads and waits for them.
    pub fn shutdown(mut self) {
        self.end();
        // Without threads nobody has done it yet.
        self.queue.work();
    }

    fn end(&mut self) {
        self.queue.close();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a flush thread panicked");
            }
        }
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        self.end();
    }
}

impl FlushHandle {
    /// Asks for a flush that begins after this call. Cheap, and never waits for a disk.
    pub fn submit(&self) {
        let mut state = self.ticket.state.lock();
        match *state {
            State::Idle => {
                *state = State::Queued;
                drop(state);
                self.queue.push(Arc::clone(&self.ticket));
            }
            State::Running => *state = State::RunningAndDirty,
            State::Queued | State::RunningAndDirty => {}
        }
    }
}

#[cfg(test)]
mod tests;
