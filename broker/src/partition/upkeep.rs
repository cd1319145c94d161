//! What disk and time do to a replica: flushes, checkpoints, retention, deadlines, and the end.
//! Law: a disk that failed once has failed; from that step on nothing is appended, acknowledged or read.

use std::io;
use std::sync::Arc;

use kuorum_protocol::{Now, Offset};
use kuorum_replication::Durability;
use kuorum_replication::leader::{LogEnds, Step};
use kuorum_replication::mutation::{self, Mutation};
use kuorum_storage::{Dir, FlushJob, LogError, RecoveryPoint, StorageFailure};

use super::produce::outcome;
use super::{Effects, Partition, ProduceError, Role};

impl<D: Dir, T> Partition<D, T> {
    /// What to flush, if anything and if no flush is under way. Run the job without the lock, then hand it back.
    pub fn begin_flush(&mut self) -> Option<FlushJob<D>> {
        match self.role {
            Role::Failed(_) => None,
            _ => self.log.begin_flush(),
        }
    }

    /// A flush has ended. An error is final: the partition is offline.
    pub fn finish_flush(
        &mut self,
        job: FlushJob<D>,
        result: io::Result<()>,
        now: Now,
        fx: &mut Effects<T>,
    ) {
        match self.log.finish_flush(job, result) {
            Ok(_) if matches!(self.role, Role::Failed(_)) => {}
            Ok(_) => {
                self.dirty_since = None;
                self.log_changed(now, fx);
                fx.fetcher_ready |= matches!(self.role, Role::Follower(_));
                self.ask_for_flush(now, fx);
            }
            Err(error) => {
                self.log_failed(error, fx);
            }
        }
    }

    /// Gets the log ready for its recovery-point checkpoint; `None` once the disk has failed. Write the checkpoint, then
    /// call [`Self::checkpointed`] with the same point.
    pub fn prepare_checkpoint(&mut self, fx: &mut Effects<T>) -> Option<RecoveryPoint> {
        if matches!(self.role, Role::Failed(_)) {
            return None;
        }
        match self.log.prepare_checkpoint() {
            Ok(point) => Some(point),
            Err(error) => {
                self.log_failed(error, fx);
                None
            }
        }
    }

    /// The checkpoint that says `point` is durable.
    pub fn checkpointed(&mut self, point: RecoveryPoint, fx: &mut Effects<T>) {
        if matches!(self.role, Role::Failed(_)) {
            return;
        }
        if let Err(error) = self.log.checkpointed(point) {
            self.log_failed(error, fx);
        }
    }

    /// Deletes what retention no longer keeps, below the high watermark. Returns the log's start.
    pub fn delete_expired(&mut self, now: Now, fx: &mut Effects<T>) -> Offset {
        if !matches!(self.role, Role::Failed(_)) {
            match self.log.delete_expired(now, self.high_watermark) {
                Ok(start) => return start,
                Err(error) => {
                    self.log_failed(error, fx);
                }
            }
        }
        self.log.start_offset()
    }

    /// Time has passed: ends produces whose deadline has come, looks for followers out of sync, sends proposals
    /// again, and flushes by `flush.ms`.
    pub fn tick(&mut self, now: Now, fx: &mut Effects<T>) {
        let mut late = self.waiters.expire(now.monotonic);
        late.extend(self.refusals.expire(now.monotonic));
        for token in late {
            fx.completed.push((token, Err(ProduceError::TimedOut)));
        }
        if let Role::Leader(leader) = &mut self.role {
            let step = leader.tick(now.monotonic);
            self.after(step, fx);
        }
        if matches!(self.role, Role::Failed(_)) {
            return;
        }
        if let Some(since) = self.dirty_since {
            let due = u64::try_from(self.log.config().flush_ms).unwrap_or(0);
            let age = now.monotonic.since(since).as_millis();
            fx.log_dirty |= age >= u128::from(due);
        }
    }

    /// The disk of this replica failed in someone else's hands (another partition of the same directory): offline.
    pub fn disk_failed(&mut self, failure: &StorageFailure, fx: &mut Effects<T>) {
        self.fail(failure, fx);
    }

    pub(super) fn ends(&self) -> LogEnds {
        LogEnds {
            log_end: self.log.end_offset(),
            flushed_end: self.log.flushed_end(),
        }
    }

    /// Tells the leader that its log has grown or more of it is flushed.
    pub(super) fn log_changed(&mut self, now: Now, fx: &mut Effects<T>) {
        let ends = self.ends();
        if let Role::Leader(leader) = &mut self.role {
            let step = leader.on_log(ends, now.monotonic);
            self.after(step, fx);
        }
    }

    /// Asks for a flush if something unflushed must not wait: always when only flushed records count, otherwise by
    /// `flush.messages` now and by `flush.ms` later.
    pub(super) fn ask_for_flush(&mut self, now: Now, fx: &mut Effects<T>) {
        let LogEnds {
            log_end,
            flushed_end,
        } = self.ends();
        if flushed_end >= log_end {
            return;
        }
        let by_count = log_end.0 - flushed_end.0 >= self.log.config().flush_messages;
        if self.terms.durability == Durability::Flushed || by_count {
            fx.log_dirty = true;
        } else {
            self.dirty_since.get_or_insert(now.monotonic);
        }
    }

    pub(super) fn after(&mut self, step: Step, fx: &mut Effects<T>) {
        if step.proposal.is_some() {
            fx.propose_isr = step.proposal;
        }
        if step.high_watermark_advanced {
            self.follow_leaders_high_watermark(fx);
        }
        self.release_refusals(fx);
        if mutation::off(Mutation::AckOutlivesEpoch) {
            self.release_waiters(fx);
        }
    }

    pub(super) fn follow_leaders_high_watermark(&mut self, fx: &mut Effects<T>) {
        let Role::Leader(leader) = &self.role else {
            return;
        };
        let high_watermark = leader.high_watermark();
        if high_watermark <= self.high_watermark && !mutation::off(Mutation::HighWatermarkFalls) {
            return;
        }
        assert!(
            high_watermark <= self.log.end_offset(),
            "nobody may read what is not here"
        );
        self.high_watermark = high_watermark;
        fx.high_watermark_advanced = true;
        self.release_waiters(fx);
    }

    pub(super) fn release_waiters(&mut self, fx: &mut Effects<T>) {
        for (until, token) in self.waiters.release(self.high_watermark) {
            let result = match &self.role {
                Role::Leader(leader) => leader.completion(until).map_or(Ok(()), outcome),
                _ => Ok(()),
            };
            fx.completed.push((token, result));
        }
    }

    fn release_refusals(&mut self, fx: &mut Effects<T>) {
        let Role::Leader(leader) = &self.role else {
            return;
        };
        let Some(confirmed) = leader.confirmed() else {
            return;
        };
        for (_, token) in self.refusals.release(confirmed) {
            fx.completed.push((token, Ok(())));
        }
    }

    pub(super) fn log_failed(&mut self, error: LogError, fx: &mut Effects<T>) -> StorageFailure {
        let failure = match error {
            LogError::Storage(failure) => failure,
            other => StorageFailure {
                what: "working on the log",
                path: format!("{}-{}", self.identity.topic, self.identity.index),
                cause: Arc::new(io::Error::other(other.to_string())),
            },
        };
        self.fail(&failure, fx);
        failure
    }

    /// In the same step as the error: nothing is appended, acknowledged or read from here on (KAFKA-10778).
    pub(super) fn fail(&mut self, failure: &StorageFailure, fx: &mut Effects<T>) {
        if matches!(self.role, Role::Failed(_)) {
            return;
        }
        self.role = Role::Failed(failure.clone());
        let mut waiting = self.waiters.drain();
        waiting.extend(self.refusals.drain());
        for token in waiting {
            fx.completed
                .push((token, Err(ProduceError::Storage(failure.clone()))));
        }
        fx.storage_failed = Some(failure.clone());
        fx.role_changed = true;
    }
}
