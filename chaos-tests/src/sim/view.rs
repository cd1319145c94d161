//! How things stand, as the checkers see it.

use std::collections::BTreeMap;

use kuorum_protocol::{BrokerId, Offset, PartitionIndex, TopicId};
use kuorum_replication::Durability;

use super::broker::{Hosted, Node};
use super::controller::Controller;
use super::plan::Plan;
use super::records;
use super::world::World;
use crate::checkers::{Leading, Ledger, PartitionNumber, PartitionState, ReplicaState, State};

/// Everything, with the records of every replica if asked for.
pub(super) fn state_of<'a>(
    plan: &Plan,
    controller: &Controller,
    nodes: &mut BTreeMap<BrokerId, Node>,
    partitions: &[(TopicId, PartitionIndex)],
    ledgers: &'a [Ledger],
    deleted: &[Offset],
    with_records: bool,
) -> State<'a> {
    let partitions = partitions
        .iter()
        .enumerate()
        .filter_map(|(number, (topic, index))| {
            let decided = controller.image().partition(*topic, *index)?.clone();
            let replicas = decided
                .replicas
                .iter()
                .filter_map(|broker| replica(plan, &nodes[broker], number, with_records))
                .collect();
            let strays = nodes
                .values()
                .filter(|node| !decided.replicas.contains(&node.id) && node.holds(number))
                .map(|node| node.id)
                .collect();
            let salvaged = nodes
                .values()
                .filter(|_| with_records)
                .flat_map(|node| {
                    // What cannot be read is missing, and that is noticed.
                    records::salvaged(node.id, &node.disk, *topic, *index).unwrap_or_default()
                })
                .collect();
            Some(PartitionState {
                number,
                decided,
                min_isr: plan.topic_of(number).min_isr,
                deleted_below: deleted[number],
                committed: &ledgers[number],
                replicas,
                strays,
                salvaged,
            })
        })
        .collect();
    State { partitions }
}

/// One replica, living or not; `None` if the broker never had it.
fn replica(
    plan: &Plan,
    node: &Node,
    number: PartitionNumber,
    with_records: bool,
) -> Option<ReplicaState> {
    let lost = node.lost.contains(&number);
    let hosted = node
        .process
        .as_ref()
        .and_then(|process| process.hosted.get(&number));
    let Some(hosted) = hosted else {
        return node.remains.get(&number).map(|remains| ReplicaState {
            lost,
            ..remains.clone()
        });
    };
    let mut state = living(node.id, hosted, plan.durability);
    state.lost = lost;
    if with_records {
        let log = hosted.partition.log();
        state.records =
            records::read_log(log, log.start_offset(), log.end_offset()).unwrap_or_default();
    }
    Some(state)
}

fn living(broker: BrokerId, hosted: &Hosted, durability: Durability) -> ReplicaState {
    let log = hosted.partition.log();
    let view = hosted.partition.log_view();
    ReplicaState {
        broker,
        alive: true,
        lost: false,
        log_start: view.log_start,
        log_end: view.log_end,
        durable_end: match durability {
            Durability::Flushed => view.flushed_end,
            Durability::PageCache => view.log_end,
        },
        high_watermark: hosted.partition.high_watermark(),
        epochs: log
            .leader_epochs()
            .entries()
            .iter()
            .map(|entry| (entry.epoch, entry.start))
            .collect(),
        leading: hosted.partition.leader().map(|leader| Leading {
            leader_epoch: leader.leader_epoch(),
            maximal: leader.isr().maximal(),
            pending: leader.isr().is_pending(),
            isr: leader.isr().committed().clone(),
            partition_epoch: leader.partition_epoch(),
        }),
        records: Vec::new(),
    }
}

/// What will be left of the replicas of a process that is about to end.
pub(super) fn remains(node: &Node, power_cut: bool) -> BTreeMap<PartitionNumber, ReplicaState> {
    let Some(process) = &node.process else {
        return BTreeMap::new();
    };
    process
        .hosted
        .iter()
        .map(|(number, hosted)| {
            let mut state = living(node.id, hosted, Durability::Flushed);
            if power_cut {
                state.log_end = state.durable_end;
            } else {
                state.durable_end = state.log_end;
            }
            state.alive = false;
            state.leading = None;
            (*number, state)
        })
        .collect()
}

/// What a process leaves behind that closes its logs in an orderly way.
pub(super) fn left_behind(broker: BrokerId, hosted: &Hosted) -> ReplicaState {
    let mut state = living(broker, hosted, Durability::PageCache);
    state.alive = false;
    state.leading = None;
    state
}

impl World {
    /// How many replicas have everything below `end`, as durably as it counts. One whose disk was taken away counts for a
    /// leader who does not know yet: it had it when it said so.
    pub(super) fn holders(
        &mut self,
        leader: BrokerId,
        number: PartitionNumber,
        end: Offset,
    ) -> usize {
        let leads = replica(&self.plan, &self.nodes[&leader], number, false);
        let counted: Vec<BrokerId> = self
            .hosted(leader, number)
            .and_then(|hosted| hosted.partition.leader())
            .map_or_else(Vec::new, |leader| {
                leader.isr().committed().iter().copied().collect()
            });
        let state = self.state(false);
        let partition = &state.partitions[number];
        let is_replica = |broker: &BrokerId| partition.decided.replicas.contains(broker);
        // Whom a move has just taken away still counts for a leader who does not know it: it had what it said.
        let left = counted
            .iter()
            .filter(|broker| **broker != leader && !is_replica(broker))
            .count();
        let others = partition.replicas.iter();
        let others = others.filter(|replica| replica.broker != leader).cloned();
        let replicas: Vec<ReplicaState> = leads.into_iter().chain(others).collect();
        let last = Offset(end.0 - 1);
        let epoch = replicas
            .iter()
            .find(|replica| replica.broker == leader)
            .and_then(|replica| replica.epoch_at(last));
        let holds = |replica: &&ReplicaState| {
            replica.durable_end >= end
                && (last < replica.log_start || replica.epoch_at(last) == epoch)
        };
        let image = self.nodes[&leader].image();
        let had_it = |replica: &&ReplicaState| {
            let taken_from = self.nodes[&replica.broker].taken_from.get(&number);
            let known = image.and_then(|image| image.broker(replica.broker));
            replica.lost || known.is_some_and(|known| Some(&known.epoch) == taken_from)
        };
        replicas
            .iter()
            .filter(|replica| had_it(replica) || holds(replica))
            .count()
            + left
    }

    /// How much of what was ever visible a replica holds, as durably as it counts.
    pub(super) fn held_by(&mut self, number: PartitionNumber, broker: BrokerId) -> Offset {
        let state = self.state(false);
        let partition = &state.partitions[number];
        partition
            .replicas
            .iter()
            .find(|replica| replica.broker == broker && !replica.lost)
            .map_or(Offset::ZERO, |replica| {
                let end = replica.durable_end;
                let start = replica.log_start;
                partition.committed.held_by(&replica.epochs, end, start)
            })
    }
}
