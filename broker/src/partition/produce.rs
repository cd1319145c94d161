//! The leader's side of a produce: admit, append, wait.
//! Law: the three are called under one hold of the lock, and what waits, waits in the epoch that appended it. Who is told that
//! a sequence does not fit is told by who leads at that moment: a deposed leader lacks what its successor has acknowledged,
//! and a producer that believed it would write under a new number what is there already.

use kuorum_protocol::{LeaderEpoch, Monotonic, Now, Offset, Timestamp};
use kuorum_replication::acks::{Acks, Completion};
use kuorum_replication::mutation::{self, Mutation};
use kuorum_storage::{AppendError, Dir};

use super::{Effects, Partition, ProduceError, Role};

/// What an append did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Offset of the first record; of the first time, if the batch is a duplicate.
    pub base_offset: Offset,
    /// The offset after the last record: what acks=all waits for.
    pub until: Offset,
    /// `Timestamp::NONE` with CreateTime.
    pub log_append_time: Timestamp,
    pub log_start: Offset,
    pub leader_epoch: LeaderEpoch,
    /// The batch was here already; nothing was appended.
    pub duplicate: bool,
}

impl<D: Dir, T> Partition<D, T> {
    /// Whether a produce with these acks may append now.
    ///
    /// # Errors
    /// `NotLeader`, `NotEnoughReplicas`, `Storage`.
    pub fn admit(&self, acks: Acks) -> Result<(), ProduceError> {
        match &self.role {
            Role::Leader(leader) if leader.admits(acks) => Ok(()),
            Role::Leader(_) => Err(ProduceError::NotEnoughReplicas),
            Role::Failed(failure) => Err(ProduceError::Storage(failure.clone())),
            Role::Follower(_) | Role::Leaderless => {
                Err(ProduceError::NotLeader(self.leader_hint()))
            }
        }
    }

    /// Appends one validated batch, patching its offset and epoch where it lies. [`Self::admit`] comes first, and
    /// [`Self::park`] after, under the same lock.
    ///
    /// # Errors
    /// `NotLeader`; `Refused` for what the log does not take, with nothing changed; `Storage`, and the partition is
    /// offline.
    pub fn append(
        &mut self,
        batch: &mut [u8],
        now: Now,
        fx: &mut Effects<T>,
    ) -> Result<Appended, ProduceError> {
        let leader_epoch = match &self.role {
            Role::Leader(leader) => leader.leader_epoch(),
            Role::Failed(failure) => return Err(ProduceError::Storage(failure.clone())),
            Role::Follower(_) | Role::Leaderless => {
                return Err(ProduceError::NotLeader(self.leader_hint()));
            }
        };
        let before = self.log_view();
        let info = match self.log.append_as_leader(batch, leader_epoch, now) {
            Ok(info) => info,
            Err(AppendError::Storage(failure)) => {
                self.last_words = Some(before);
                self.fail(&failure, fx);
                return Err(ProduceError::Storage(failure));
            }
            Err(refused) => return Err(ProduceError::Refused(refused)),
        };
        if !info.duplicate {
            fx.appended = true;
            self.log_changed(now, fx);
            self.ask_for_flush(now, fx);
        }
        Ok(Appended {
            base_offset: info.first_offset,
            until: info.last_offset.plus(1),
            log_append_time: info.log_append_time,
            log_start: self.log.start_offset(),
            leader_epoch,
            duplicate: info.duplicate,
        })
    }

    /// Waits for the high watermark to reach `until` (what [`Appended`] says); `token` comes back in
    /// `Effects::completed`, perhaps at once.
    pub fn park(&mut self, until: Offset, deadline: Monotonic, token: T, fx: &mut Effects<T>) {
        match &self.role {
            Role::Leader(leader) => match leader.completion(until) {
                Some(completion) => fx.completed.push((token, outcome(completion))),
                None => self.waiters.park(until, deadline, token),
            },
            Role::Failed(_) | Role::Follower(_) | Role::Leaderless => {
                let outcome = self.not_leading();
                fx.completed.push((token, Err(outcome)));
            }
        }
    }

    /// Waits, after [`Self::append`] refused something for what this log lacks ([`ProduceError::is_gap`]), until the
    /// controllers have confirmed that this replica leads. `token` comes back with `Ok` when the refusal holds, with an error
    /// when that is to be said instead.
    pub fn park_refusal(&mut self, now: Now, deadline: Monotonic, token: T, fx: &mut Effects<T>) {
        let Role::Leader(leader) = &mut self.role else {
            let outcome = self.not_leading();
            fx.completed.push((token, Err(outcome)));
            return;
        };
        if mutation::off(Mutation::GapsUnconfirmed) {
            fx.completed.push((token, Ok(())));
            return;
        }
        let (number, step) = leader.confirm(now.monotonic);
        self.refusals.park(number, deadline, token);
        self.after(step, fx);
    }

    fn not_leading(&self) -> ProduceError {
        match &self.role {
            Role::Failed(failure) => ProduceError::Storage(failure.clone()),
            _ => ProduceError::NotLeader(self.leader_hint()),
        }
    }
}

pub(super) fn outcome(completion: Completion) -> Result<(), ProduceError> {
    match completion {
        Completion::Done => Ok(()),
        Completion::NotEnoughReplicas => Err(ProduceError::NotEnoughReplicasAfterAppend),
    }
}
