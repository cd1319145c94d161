//! The leader's view of one partition: who is in sync and how far anyone may read.
//! Law: no clock, no file, no socket. Whoever may be elected is waited for. A follower outside `maximal` holds the high watermark back only while it is
//! caught up and allowed to join; the high watermark never falls; everything known of followers is of this epoch.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use kuorum_protocol::{BrokerEpoch, BrokerId, LeaderEpoch, Monotonic, Offset, PartitionEpoch};

use crate::acks::{self, Acks, Completion};
use crate::assignment::{Assignment, Durability, Standing, Terms};
use crate::follower_progress::FollowerProgress;
use crate::isr::{Isr, IsrProposal, IsrReply, IsrState, Replicas};
use crate::mutation::{self, Mutation};

/// How long a leader that was confirmed does not ask again: other proposals must get their turn.
const CONFIRM_PAUSE: Duration = Duration::from_millis(100);

/// Where the leader's own log ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEnds {
    /// Everything before this is appended.
    pub log_end: Offset,
    /// Everything before this is flushed; never beyond `log_end`.
    pub flushed_end: Offset,
}

/// What a step has led to. Both must be acted upon.
#[must_use]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Waiters are to be released, parked fetches woken.
    pub high_watermark_advanced: bool,
    /// To be sent to the controllers.
    pub proposal: Option<IsrProposal>,
}

/// One fetch of a follower, found to be within the log and not diverging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FollowerFetch {
    pub broker: BrokerId,
    /// The follower's incarnation, −1 if the request does not carry it (before Fetch v15).
    pub broker_epoch: BrokerEpoch,
    /// The follower has everything before this, flushed if that is what counts.
    pub from: Offset,
    /// The leader's log end, taken before anything was read for this fetch.
    pub leader_end: Offset,
}

/// Why a follower's fetch is not taken as progress, and must not be answered with records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchRefused {
    /// The leader's metadata does not list it as a replica (yet): UNKNOWN_LEADER_EPOCH, so that it asks again.
    NotAReplica,
    /// A later incarnation of the same broker is registered.
    StaleBrokerEpoch,
}

/// The leader of one partition for one leader epoch.
#[derive(Clone, Debug)]
pub struct Leader {
    me: BrokerId,
    leader_epoch: LeaderEpoch,
    epoch_start: Offset,
    replicas: Vec<BrokerId>,
    /// How many replicas there are to be, without those that leave.
    replication_factor: usize,
    isr: IsrState,
    followers: BTreeMap<BrokerId, FollowerProgress>,
    standing: BTreeMap<BrokerId, Standing>,
    terms: Terms,
    ends: LogEnds,
    high_watermark: Offset,
    next_lag_check: Monotonic,
    /// Somebody waits for this proposal, or a later one, to be accepted.
    to_confirm: Option<u64>,
    next_confirm: Monotonic,
}

impl Leader {
    /// Takes office for the leader epoch of `assignment`, which starts at the log end. `high_watermark` is what this
    /// replica knew before: a floor. Proposals are numbered from `first_proposal` on.
    ///
    /// # Panics
    /// If the assignment does not make `me` the leader, or the high watermark lies beyond the log.
    #[must_use]
    pub fn new(
        me: BrokerId,
        assignment: &Assignment,
        terms: Terms,
        ends: LogEnds,
        high_watermark: Offset,
        first_proposal: u64,
        now: Monotonic,
    ) -> Self {
        assert_eq!(assignment.leader, Some(me), "only the elected one leads");
        assert!(
            high_watermark <= ends.log_end,
            "nobody may read what is not here: high watermark {high_watermark}, log end {}",
            ends.log_end
        );
        let mut leader = Self {
            me,
            leader_epoch: assignment.leader_epoch,
            epoch_start: ends.log_end,
            replicas: assignment.replicas.clone(),
            replication_factor: assignment.replication_factor(),
            isr: IsrState::new(assignment, first_proposal),
            followers: BTreeMap::new(),
            standing: assignment.standing.clone(),
            terms,
            ends,
            high_watermark,
            next_lag_check: now + terms.replica_lag_time_max / 2,
            to_confirm: None,
            next_confirm: now,
        };
        leader.follow_replica_set(now);
        leader.advance_high_watermark(now);
        leader
    }

    #[must_use]
    pub fn leader_epoch(&self) -> LeaderEpoch {
        self.leader_epoch
    }

    #[must_use]
    pub fn partition_epoch(&self) -> PartitionEpoch {
        self.isr.partition_epoch
    }

    /// Where the log ended when this epoch began.
    #[must_use]
    pub fn epoch_start(&self) -> Offset {
        self.epoch_start
    }

    /// Everything before this may be read by anyone.
    #[must_use]
    pub fn high_watermark(&self) -> Offset {
        self.high_watermark
    }

    /// Whether the high watermark is the true one: not before it has reached the start of this epoch.
    #[must_use]
    pub fn knows_high_watermark(&self) -> bool {
        self.high_watermark >= self.epoch_start || mutation::off(Mutation::LatestBeforeEpochStart)
    }

    /// The ISR and what is being asked for.
    #[must_use]
    pub fn isr(&self) -> &Isr {
        &self.isr.isr
    }

    /// In assignment order.
    #[must_use]
    pub fn replicas(&self) -> &[BrokerId] {
        &self.replicas
    }

    /// Each follower and how far it has come.
    pub fn followers(&self) -> impl Iterator<Item = (BrokerId, &FollowerProgress)> {
        self.followers.iter().map(|(id, progress)| (*id, progress))
    }

    /// How many replicas must have a record.
    #[must_use]
    pub fn min_isr(&self) -> usize {
        if mutation::off(Mutation::HighWatermarkIgnoresMinIsr) {
            return 1;
        }
        self.terms.effective_min_isr(self.replication_factor)
    }

    /// The number the next proposal will have.
    #[must_use]
    pub fn next_proposal(&self) -> u64 {
        self.isr.next_number()
    }

    /// Whether a produce may append (NOT_ENOUGH_REPLICAS if not).
    #[must_use]
    pub fn admits(&self, acks: Acks) -> bool {
        acks::admits(acks, self.isr.isr.committed().len(), self.min_isr())
    }

    /// Whether a produce whose records end before `until` is over, and how.
    #[must_use]
    pub fn completion(&self, until: Offset) -> Option<Completion> {
        acks::completion(
            until,
            self.high_watermark,
            self.isr.isr.maximal_len(),
            self.min_isr(),
        )
    }

    /// The settings have changed.
    pub fn set_terms(&mut self, terms: Terms, now: Monotonic) -> Step {
        self.terms = terms;
        self.next_lag_check = self
            .next_lag_check
            .min(now + terms.replica_lag_time_max / 2);
        self.stepped(now, None)
    }

    /// The leader's own log has grown, or more of it is flushed.
    pub fn on_log(&mut self, ends: LogEnds, now: Monotonic) -> Step {
        assert!(
            ends.log_end >= self.ends.log_end,
            "a leader's log only grows: {} after {}",
            ends.log_end,
            self.ends.log_end
        );
        self.ends = ends;
        self.stepped(now, None)
    }

    /// A follower asks for more, which tells what it has. May propose it as a new member of the ISR.
    ///
    /// # Errors
    /// If it is not a replica or not its broker's current incarnation.
    pub fn on_follower_fetch(
        &mut self,
        fetch: FollowerFetch,
        now: Monotonic,
    ) -> Result<Step, FetchRefused> {
        let FollowerFetch {
            broker,
            broker_epoch,
            from,
            leader_end,
        } = fetch;
        assert!(
            from <= self.ends.log_end,
            "a follower cannot have more than its leader"
        );
        if let Some(standing) = self.standing.get(&broker)
            && broker_epoch != BrokerEpoch::UNKNOWN
            && broker_epoch < standing.broker_epoch
            && !mutation::off(Mutation::JoinIgnoresBrokerEpoch)
        {
            return Err(FetchRefused::StaleBrokerEpoch);
        }
        let progress = self
            .followers
            .get_mut(&broker)
            .ok_or(FetchRefused::NotAReplica)?;
        progress.on_fetch(now, broker_epoch, from, leader_end);
        let proposal = self
            .propose_recovered(now)
            .or_else(|| self.propose_to_expand(broker, now));
        Ok(self.stepped(now, proposal))
    }

    /// The metadata image shows the partition, or the brokers of its replicas, differently, in the same leader epoch.
    pub fn on_metadata(&mut self, assignment: &Assignment, now: Monotonic) -> Step {
        assert_eq!(
            assignment.leader_epoch, self.leader_epoch,
            "another epoch is another leader"
        );
        self.isr.on_metadata(assignment);
        // The answer to a proposal may have told of this partition epoch first, but not of its replicas.
        if assignment.partition_epoch >= self.isr.partition_epoch {
            self.replicas.clone_from(&assignment.replicas);
            self.replication_factor = assignment.replication_factor();
            self.follow_replica_set(now);
        }
        self.standing.clone_from(&assignment.standing);
        for (broker, standing) in &self.standing {
            if let Some(progress) = self.followers.get_mut(broker)
                && progress.broker_epoch() != BrokerEpoch::UNKNOWN
                && progress.broker_epoch() < standing.broker_epoch
            {
                progress.restart(standing.broker_epoch);
            }
        }
        if mutation::off(Mutation::ShrinkForgetsHighWatermark) {
            return Step::default();
        }
        self.stepped(now, None)
    }

    /// The controllers have answered proposal `number`, or the answer is lost.
    pub fn isr_decided(&mut self, number: u64, reply: IsrReply, now: Monotonic) -> Step {
        let changed = self.isr.on_reply(
            number,
            reply,
            self.leader_epoch,
            now,
            self.terms.isr_retry_backoff,
        );
        if !changed || mutation::off(Mutation::ShrinkForgetsHighWatermark) {
            return Step::default();
        }
        self.stepped(now, None)
    }

    /// What is about to be said rests on being the leader now: to be said when [`Self::confirmed`] reaches the number returned.
    pub fn confirm(&mut self, now: Monotonic) -> (u64, Step) {
        let number = self.isr.next_number();
        self.to_confirm = Some(number);
        let proposal = self.propose_to_confirm(now);
        (number, self.stepped(now, proposal))
    }

    /// The newest proposal of which the controllers have said that it came from the leader.
    #[must_use]
    pub fn confirmed(&self) -> Option<u64> {
        self.isr.accepted
    }

    /// Time has passed: proposes to remove members that are out of sync, every half of the lag allowed, sends an unanswered
    /// proposal again, says after an unclean election that the log is in order, and asks what is still to be confirmed.
    pub fn tick(&mut self, now: Monotonic) -> Step {
        let mut proposal = self
            .isr
            .due_retry(now)
            .or_else(|| self.propose_recovered(now));
        if now >= self.next_lag_check {
            self.next_lag_check = now + self.terms.replica_lag_time_max / 2;
            if proposal.is_none() {
                proposal = self.propose_to_shrink(now);
            }
        }
        let proposal = proposal.or_else(|| self.propose_to_confirm(now));
        if mutation::off(Mutation::ShrinkForgetsHighWatermark) {
            return Step {
                high_watermark_advanced: false,
                proposal,
            };
        }
        self.stepped(now, proposal)
    }

    /// Members of the ISR that have fallen out of sync.
    fn out_of_sync(&self, now: Monotonic) -> Replicas {
        self.isr
            .isr
            .committed()
            .iter()
            .copied()
            .filter(|member| *member != self.me)
            .filter(|member| {
                self.followers
                    .get(member)
                    .is_none_or(|progress| !self.is_caught_up(progress, now))
            })
            .collect()
    }

    fn is_caught_up(&self, progress: &FollowerProgress, now: Monotonic) -> bool {
        progress.is_caught_up(now, self.ends.log_end, self.terms.replica_lag_time_max)
    }

    fn propose_to_shrink(&mut self, now: Monotonic) -> Option<IsrProposal> {
        if !self.isr.may_propose(now) || mutation::off(Mutation::NeverShrinks) {
            return None;
        }
        let leaving = self.out_of_sync(now);
        if leaving.is_empty() {
            return None;
        }
        let isr = self.isr.isr.committed().clone();
        Some(self.propose(Isr::Shrinking { isr, leaving }))
    }

    /// After an unclean election this log is the partition's from now on: said before anybody joins.
    fn propose_recovered(&mut self, now: Monotonic) -> Option<IsrProposal> {
        if !self.isr.recovering || !self.isr.may_propose(now) {
            return None;
        }
        let isr = self.isr.isr.committed().clone();
        Some(self.propose(Isr::Recovering { isr }))
    }

    fn propose_to_confirm(&mut self, now: Monotonic) -> Option<IsrProposal> {
        let is_wanted = self.to_confirm.is_some() && self.to_confirm > self.isr.accepted;
        if !is_wanted || now < self.next_confirm || !self.isr.may_propose(now) {
            return None;
        }
        self.next_confirm = now + CONFIRM_PAUSE;
        let isr = self.isr.isr.committed().clone();
        Some(self.propose(Isr::Confirming { isr }))
    }

    fn propose_to_expand(&mut self, joining: BrokerId, now: Monotonic) -> Option<IsrProposal> {
        if !self.isr.may_propose(now) || !self.may_join(joining) {
            return None;
        }
        let isr = self.isr.isr.committed().clone();
        Some(self.propose(Isr::Expanding { isr, joining }))
    }

    /// Whether a follower has what a member of the ISR must have: everything below the high watermark *and*
    /// everything up to the start of this epoch (KAFKA-7128), told by its current incarnation in this epoch.
    fn may_join(&self, broker: BrokerId) -> bool {
        let Some(progress) = self.followers.get(&broker) else {
            return false;
        };
        let far_enough = progress.log_end().is_some_and(|end| {
            end >= self.high_watermark
                && (end >= self.epoch_start || mutation::off(Mutation::JoinBeforeEpochStart))
        });
        !self.isr.isr.committed().contains(&broker)
            && far_enough
            && self.is_eligible(broker, progress)
    }

    /// Whether the controllers would take it: registered, not fenced, not leaving, and the very incarnation that
    /// fetched.
    fn is_eligible(&self, broker: BrokerId, progress: &FollowerProgress) -> bool {
        self.standing.get(&broker).is_some_and(|standing| {
            (standing.may_join
                || mutation::off(Mutation::LeavingIsProposed)
                || mutation::off(Mutation::LeavingMayJoin))
                && (progress.broker_epoch() == standing.broker_epoch
                    || progress.broker_epoch() == BrokerEpoch::UNKNOWN
                    || mutation::off(Mutation::JoinIgnoresBrokerEpoch))
        })
    }

    fn propose(&mut self, pending: Isr) -> IsrProposal {
        let me = self.me;
        let own = self
            .standing
            .get(&me)
            .map_or(BrokerEpoch::UNKNOWN, |standing| standing.broker_epoch);
        let followers = &self.followers;
        let standing = &self.standing;
        self.isr.propose(pending, self.leader_epoch, |broker| {
            if broker == me {
                return own;
            }
            if mutation::off(Mutation::JoinIgnoresBrokerEpoch) {
                return standing
                    .get(&broker)
                    .map_or(BrokerEpoch::UNKNOWN, |standing| standing.broker_epoch);
            }
            followers
                .get(&broker)
                .map_or(BrokerEpoch::UNKNOWN, FollowerProgress::broker_epoch)
        })
    }

    /// Where the leader's own log ends, as far as it counts.
    fn counted_end(&self) -> Offset {
        match self.terms.durability {
            Durability::Flushed if !mutation::off(Mutation::LeaderCountsUnflushed) => {
                self.ends.flushed_end
            }
            Durability::Flushed | Durability::PageCache => self.ends.log_end,
        }
    }

    /// Raises the high watermark to what everyone who matters has. Returns whether it rose.
    fn advance_high_watermark(&mut self, now: Monotonic) -> bool {
        let in_sync = self.isr.isr.committed().len();
        if in_sync < self.min_isr() {
            return false; // KAFKA-15583
        }
        let elr_counts = !mutation::off(Mutation::HighWatermarkIgnoresElr)
            && !mutation::off(Mutation::HighWatermarkIgnoresMinIsr);
        if !self.isr.elr.is_empty() && elr_counts {
            // The controllers may elect somebody who does not follow. That fewer are in sync than the minimum says so
            // already, except while a new minimum is known there and not here.
            return false;
        }
        let maximal = self.isr.isr.maximal();
        let mut common = self.counted_end();
        for (broker, progress) in &self.followers {
            if mutation::off(Mutation::LeaderAcknowledgesAlone) {
                break;
            }
            let holds = maximal.contains(broker)
                || (self.is_caught_up(progress, now) && self.is_eligible(*broker, progress));
            if !holds {
                continue;
            }
            match progress.log_end() {
                Some(end) => common = common.min(end),
                None if maximal.contains(broker) => return false,
                None => {}
            }
        }
        if common <= self.high_watermark && !mutation::off(Mutation::HighWatermarkFalls) {
            return false;
        }
        self.high_watermark = common;
        true
    }

    fn stepped(&mut self, now: Monotonic, proposal: Option<IsrProposal>) -> Step {
        Step {
            high_watermark_advanced: self.advance_high_watermark(now),
            proposal,
        }
    }

    /// Keeps the progress of those who stay, and makes room for those who are new.
    fn follow_replica_set(&mut self, now: Monotonic) {
        let me = self.me;
        let replicas = &self.replicas;
        self.followers.retain(|broker, _| replicas.contains(broker));
        for broker in replicas.iter().filter(|broker| **broker != me) {
            let in_sync_since = self.isr.isr.committed().contains(broker).then_some(now);
            self.followers
                .entry(*broker)
                .or_insert_with(|| FollowerProgress::unheard(in_sync_since));
        }
    }
}
