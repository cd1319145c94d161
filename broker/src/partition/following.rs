//! The follower's side: what it asks the leader, and what the answers do to its log.
//! Law: an answer to a question of another epoch or another log changes nothing.

use bytes::Bytes;
use kuorum_protocol::{LeaderEpoch, Now, Offset};
use kuorum_replication::follower::{Cut, FetchFailure, LogView};
use kuorum_replication::mutation::{self, Mutation};
use kuorum_replication::{FollowerStep, Ticket};
use kuorum_storage::{AppendError, Dir, LogError};

use super::salvager::{Loss, Why};
use super::{Effects, Partition, Role, Truncation};

/// What a leader answered to a fetch.
#[derive(Clone, Debug)]
pub struct Fetched {
    pub records: Bytes,
    pub high_watermark: Offset,
    pub log_start: Offset,
    pub diverging: Option<(LeaderEpoch, Offset)>,
}

impl<D: Dir, T> Partition<D, T> {
    /// What to ask the leader now.
    #[must_use]
    pub fn next_step(&self, now: Now) -> FollowerStep {
        match &self.role {
            Role::Follower(follower) => {
                follower.next_step(&self.log_view(), self.terms.durability, now.monotonic)
            }
            _ => FollowerStep::Nothing,
        }
    }

    /// The leader has answered [`FollowerStep::EpochEnd`]; `None` when it knows no such epoch.
    pub fn on_epoch_end(
        &mut self,
        ticket: &Ticket,
        answer: Option<(LeaderEpoch, Offset)>,
        now: Now,
        fx: &mut Effects<T>,
    ) {
        let view = self.log_view();
        let log = &self.log;
        let Role::Follower(follower) = &mut self.role else {
            return;
        };
        if !follower.is_current(ticket, &view) {
            return;
        }
        let cut = follower.on_epoch_end(ticket, answer, &view, |epoch| {
            log.leader_epochs().end_offset_for(epoch, view.log_end)
        });
        self.cut(cut, now, fx);
    }

    /// The leader has answered [`FollowerStep::Fetch`].
    pub fn on_fetched(
        &mut self,
        ticket: &Ticket,
        fetched: &Fetched,
        now: Now,
        fx: &mut Effects<T>,
    ) {
        let view = self.log_view();
        let log = &self.log;
        let Role::Follower(follower) = &mut self.role else {
            return;
        };
        if !follower.is_current(ticket, &view) {
            return;
        }
        if let Some(diverging) = fetched.diverging {
            // Nothing else of this answer counts: its high watermark belongs to another history (KAFKA-14704).
            let cut = follower.on_diverging(ticket, diverging, &view, |epoch| {
                log.leader_epochs().end_offset_for(epoch, view.log_end)
            });
            self.cut(cut, now, fx);
            return;
        }
        if view.log_start < view.log_end
            && view.log_end <= fetched.log_start
            && view.latest_epoch.max(self.agreed_in) < self.known.last_unclean_epoch
            && let Err(error) = self.leave_behind(&view, fetched.log_start, now, fx)
        {
            self.last_words = Some(view);
            self.log_failed(error, fx);
            return;
        }
        let Role::Follower(follower) = &mut self.role else {
            return;
        };
        if !fetched.records.is_empty() {
            let leader_epoch = follower.leader_epoch();
            match self.append_fetched(fetched, leader_epoch, &view, now) {
                Ok(()) => fx.appended = true,
                Err(AppendError::Storage(failure)) => {
                    self.last_words = Some(view);
                    self.fail(&failure, fx);
                    return;
                }
                Err(misfit) => {
                    fx.misfit = Some(misfit);
                    let failure = FetchFailure::OutOfRange {
                        leader_log_start: None,
                    };
                    if let Role::Follower(follower) = &mut self.role {
                        let cut = follower.on_failure(failure, &view, now.monotonic);
                        self.cut(cut, now, fx);
                    }
                    return;
                }
            }
        }
        let Role::Follower(follower) = &mut self.role else {
            return;
        };
        follower.on_fetched();
        self.agreed_in = Some(follower.leader_epoch());
        self.leaders_high_watermark = Some(fetched.high_watermark);
        let high_watermark = fetched.high_watermark.min(self.log.end_offset());
        if high_watermark > self.high_watermark {
            self.high_watermark = high_watermark;
            fx.high_watermark_advanced = true;
        }
        if mutation::off(Mutation::AckOutlivesEpoch) {
            self.release_waiters(fx);
        }
        let log_start = fetched.log_start.min(self.high_watermark);
        // Not made durable here, where the fetches of all others wait: the leader says it again after a restart, and retention
        // notes it before it deletes anything.
        if log_start > self.log.start_offset()
            && let Err(error) = self.log.raise_start(log_start)
        {
            self.log_failed(error, fx);
            return;
        }
        self.ask_for_flush(now, fx);
        fx.fetcher_ready = true;
    }

    /// The leader has deleted everything before its `start`, all of this log lies there, and it was not compared before that
    /// since an unclean election: nobody can say any more how much of it was the leader's, too. All of it is set aside, and
    /// the log begins anew, so that no restart brings it back.
    fn leave_behind(
        &mut self,
        view: &LogView,
        start: Offset,
        now: Now,
        fx: &mut Effects<T>,
    ) -> Result<(), LogError> {
        self.set_aside(view.log_start, view.latest_epoch, Why::Outrun, now, fx)?;
        self.log.reset_to(start)?;
        self.high_watermark = self.high_watermark.max(start);
        Ok(())
    }

    /// Appends what the leader sent. The leader's log may start inside a batch (DeleteRecords), and whoever fetches from
    /// there gets the whole batch. If nothing here is beyond that start, the log begins anew with that batch: what it
    /// held is deleted anyway, and may even be of an epoch that the leader no longer remembers the end of.
    fn append_fetched(
        &mut self,
        fetched: &Fetched,
        leader_epoch: LeaderEpoch,
        view: &LogView,
        now: Now,
    ) -> Result<(), AppendError> {
        let records = &fetched.records;
        match self.log.append_as_follower(records, leader_epoch, now) {
            Ok(_) => Ok(()),
            Err(AppendError::OutOfSequence { expected, found })
                if found < expected && view.log_end <= fetched.log_start =>
            {
                let storage = |error: LogError| match error {
                    LogError::Storage(failure) => AppendError::Storage(failure),
                    _ => AppendError::OutOfSequence { expected, found },
                };
                self.log.reset_to(found).map_err(storage)?;
                let appended = self.log.append_as_follower(records, leader_epoch, now);
                if appended.is_err() {
                    self.log.reset_to(fetched.log_start).map_err(storage)?;
                }
                let start = fetched.log_start.min(self.log.end_offset());
                self.log.raise_start(start).map_err(storage)?;
                self.high_watermark = self.high_watermark.max(start).min(self.log.end_offset());
                appended.map(|_| ())
            }
            Err(error) => Err(error),
        }
    }

    /// The leader answered a step with an error, or did not answer it.
    pub fn on_fetch_error(
        &mut self,
        ticket: &Ticket,
        failure: FetchFailure,
        now: Now,
        fx: &mut Effects<T>,
    ) {
        let view = self.log_view();
        let Role::Follower(follower) = &mut self.role else {
            return;
        };
        if !follower.is_current(ticket, &view) {
            return;
        }
        let cut = follower.on_failure(failure, &view, now.monotonic);
        self.cut(cut, now, fx);
    }

    pub(super) fn cut(&mut self, cut: Cut, now: Now, fx: &mut Effects<T>) {
        if let Role::Follower(follower) = &self.role {
            self.generation = follower.generation();
        }
        let before = self.log_view();
        let (from, epoch) = (before.log_end, before.latest_epoch);
        let first_cut = match cut {
            Cut::None => return,
            Cut::To(end) => end,
            Cut::Restart(_) => before.log_start,
        };
        if from <= first_cut && mutation::off(Mutation::EmptyEpochsStay) {
            fx.fetcher_ready = true;
            return;
        }
        let set_aside = self.set_aside(first_cut, epoch, Why::Cut, now, fx);
        let done = set_aside.and_then(|()| match cut {
            Cut::Restart(start) => self.log.reset_to(start).map(|()| start),
            _ => self.log.truncate_to(first_cut),
        });
        let to = match done {
            Ok(to) => to,
            Err(error) => {
                self.last_words = Some(before);
                self.log_failed(error, fx);
                return;
            }
        };
        self.high_watermark = match cut {
            Cut::Restart(start) => start,
            _ => self.high_watermark.min(to),
        };
        if to != from {
            fx.truncated = Some(Truncation {
                from,
                to,
                epoch,
                leader_epoch: self.known.leader_epoch,
                unclean: epoch < self.known.last_unclean_epoch,
            });
        }
        self.ask_for_flush(now, fx);
        fx.fetcher_ready = true;
    }

    /// Before a cut from `first` on: what was written before the partition's last unclean election is set aside. Committed
    /// records may be among it, and nobody else may have them. An ordinary cut takes only what was never committed.
    pub(super) fn set_aside(
        &mut self,
        first: Offset,
        latest_epoch: Option<LeaderEpoch>,
        why: Why,
        now: Now,
        fx: &mut Effects<T>,
    ) -> Result<(), LogError> {
        let Some(unclean_epoch) = self.known.last_unclean_epoch else {
            return Ok(());
        };
        let policy = self.salvage_policy;
        let Some(salvager) = self.salvager.as_ref().filter(|_| policy.enable) else {
            return Ok(());
        };
        if latest_epoch >= Some(unclean_epoch) || mutation::off(Mutation::CutWithoutSalvage) {
            return Ok(());
        }
        let loss = Loss {
            first,
            unclean_epoch,
            why,
        };
        fx.set_aside = salvager.set_aside(&mut self.log, &self.identity, policy, loss, now)?;
        Ok(())
    }

    pub(super) fn own_end_of(&self, epoch: LeaderEpoch) -> Option<(LeaderEpoch, Offset)> {
        self.log
            .leader_epochs()
            .end_offset_for(epoch, self.log.end_offset())
    }

    /// Where the log begins and ends; of a failed one, where it did.
    #[must_use]
    pub fn log_view(&self) -> LogView {
        if let Some(last_words) = self.last_words {
            return last_words;
        }
        LogView {
            log_start: self.log.start_offset(),
            log_end: self.log.end_offset(),
            flushed_end: self.log.flushed_end(),
            high_watermark: self.high_watermark,
            latest_epoch: self.log.leader_epochs().latest(),
        }
    }
}

#[cfg(test)]
mod tests;
