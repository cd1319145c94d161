//! Which partitions to ask which leader about, in one round.
//! Law: one request per leader and kind, bounded in partitions; whoever was left out goes first in the next round.

use std::collections::BTreeMap;

use kuorum_protocol::BrokerId;

use crate::follower::FollowerStep;

/// What to ask one leader: `(partition, step)` pairs, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderPlan<K> {
    /// Steps that are `EpochEnd`.
    pub epoch_ends: Vec<(K, FollowerStep)>,
    /// Steps that are `Fetch`.
    pub fetches: Vec<(K, FollowerStep)>,
}

impl<K> Default for LeaderPlan<K> {
    fn default() -> Self {
        Self {
            epoch_ends: Vec::new(),
            fetches: Vec::new(),
        }
    }
}

/// Shares out rounds among partitions, so that a request's size bound starves nobody.
#[derive(Clone, Debug)]
pub struct FetchPlanner {
    max_partitions: usize,
    turn: usize,
}

impl FetchPlanner {
    /// At most `max_partitions` in one request.
    #[must_use]
    pub fn new(max_partitions: usize) -> Self {
        Self {
            max_partitions: max_partitions.max(1),
            turn: 0,
        }
    }

    /// One round: what to ask each leader. The partition a request begins with moves on with every round, because
    /// the first partition of a fetch is the one whose records are sure to fit.
    pub fn plan<K>(
        &mut self,
        steps: impl IntoIterator<Item = (K, FollowerStep)>,
    ) -> BTreeMap<BrokerId, LeaderPlan<K>> {
        let mut plans: BTreeMap<BrokerId, LeaderPlan<K>> = BTreeMap::new();
        for (partition, step) in steps {
            match step {
                FollowerStep::EpochEnd { leader, .. } => plans
                    .entry(leader)
                    .or_default()
                    .epoch_ends
                    .push((partition, step)),
                FollowerStep::Fetch { leader, .. } => plans
                    .entry(leader)
                    .or_default()
                    .fetches
                    .push((partition, step)),
                FollowerStep::Nothing => {}
            }
        }
        for plan in plans.values_mut() {
            for list in [&mut plan.epoch_ends, &mut plan.fetches] {
                if !list.is_empty() {
                    let first = self.turn % list.len();
                    list.rotate_left(first);
                    list.truncate(self.max_partitions);
                }
            }
        }
        self.turn = self.turn.wrapping_add(self.max_partitions.min(7));
        plans
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use kuorum_protocol::{LeaderEpoch, Offset};

    use super::*;
    use crate::follower::Ticket;

    fn fetch(leader: i32) -> FollowerStep {
        FollowerStep::Fetch {
            leader: BrokerId(leader),
            offset: Offset(0),
            last_fetched_epoch: None,
            current_leader_epoch: LeaderEpoch(0),
            log_start: Offset(0),
            ticket: Ticket {
                leader_epoch: LeaderEpoch(0),
                generation: 1,
                offset: Offset(0),
                epoch: LeaderEpoch::UNKNOWN,
            },
        }
    }

    #[test]
    fn grouped_by_leader_and_idle_ones_left_out() {
        let mut planner = FetchPlanner::new(10);
        let plans = planner.plan([(1, fetch(1)), (2, fetch(2)), (3, FollowerStep::Nothing)]);
        assert_eq!(plans.len(), 2);
        assert_eq!(plans[&BrokerId(2)].fetches[0].0, 2);
    }

    #[test]
    fn everyone_gets_a_turn() {
        let mut planner = FetchPlanner::new(2);
        let mut served = BTreeSet::new();
        for _ in 0..5 {
            let plans = planner.plan((0..5).map(|partition| (partition, fetch(1))));
            let plan = &plans[&BrokerId(1)];
            assert_eq!(plan.fetches.len(), 2);
            served.extend(plan.fetches.iter().map(|(partition, _)| *partition));
        }
        assert_eq!(served, (0..5).collect());
    }
}
