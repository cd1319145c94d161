//! Group commit.

use std::io;
use std::sync::Arc;

use kuorum_protocol::Offset;

use crate::dir::Dir;

/// What was dirty when it was made; running it makes that durable.
#[derive(Debug)]
pub struct FlushJob<D: Dir> {
    pub(crate) upto: Offset,
    pub(crate) dir: D,
}

impl<D: Dir> FlushJob<D> {
    /// Makes everything durable that was appended before the job was made. Needs no lock.
    pub fn run(&self) -> io::Result<()> {
        self.dir.sync()
    }

    /// The end offset that is durable once the job has run.
    pub fn upto(&self) -> Offset {
        self.upto
    }
}

/// Something that can be dirty: begins a flush under its lock, runs it without, finishes under the lock again.
pub trait Flushable: Send + Sync + 'static {
    /// One group commit. Called by a flusher thread, never twice at once for one handle.
    fn flush(&self);
}

/// A few dedicated threads that run group commits, several at once.
#[derive(Debug)]
pub struct Flusher {}

/// What is submitted: says "I am dirty" as often as it likes, and is flushed once for all of them.
#[derive(Clone, Debug)]
pub struct FlushHandle {}

#[allow(clippy::todo, unused_variables, clippy::needless_pass_by_value)]
impl Flusher {
    /// Starts `threads` threads.
    pub fn new(threads: usize) -> io::Result<Self> {
        todo!()
    }

    /// A handle for `target`.
    pub fn register(&self, target: Arc<dyn Flushable>) -> FlushHandle {
        todo!()
    }

    /// Runs what is queued, then ends the threads.
    pub fn shutdown(self) {
        todo!()
    }
}

#[allow(clippy::todo)]
impl FlushHandle {
    /// Asks for a flush that begins after this call.
    pub fn submit(&self) {
        todo!()
    }
}
