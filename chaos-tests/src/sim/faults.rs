//! The weather: what goes wrong, when, and for how long.
//! Law: nothing is done here that could excuse a loss. A disk is taken away only from a member whose place in the ISR
//! somebody else can take.

use std::time::Duration;

use kuorum_protocol::{BrokerId, Offset};

use super::network::Peer;
use super::plan::TELEMETRY;
use super::world::{Happening, World};
use crate::checkers::{Event, PartitionNumber};

impl World {
    pub(super) fn plan_fault(&mut self) {
        let every = self.plan.faults.every.as_micros() as u64;
        let delay = self.between(every / 4, every * 2);
        self.plan_in(delay, Happening::Fault);
    }

    /// Something goes wrong.
    pub(super) fn fault(&mut self) {
        if !self.rough {
            return;
        }
        self.plan_fault();
        let faults = self.plan.faults;
        type Fault = fn(&mut World, BrokerId);
        let kinds: [(usize, Fault); 17] = [
            (faults.kill, World::kill),
            (faults.power_cut, World::cut_power),
            (faults.power_cut_everywhere, World::cut_power_everywhere),
            (faults.pause, World::pause),
            (faults.cut_link, World::cut_links),
            (faults.disk, World::fail_disk),
            (faults.wipe, World::take_disk),
            (faults.controller, World::depose_controller),
            (faults.preferred_election, World::elect_preferred),
            (faults.delete_records, World::delete_records),
            (faults.slow_feed, World::stop_feed),
            (faults.shut_down, World::shut_down),
            (faults.clock, World::jump_clock),
            (faults.drain, World::drain),
            (faults.policy, World::change_policy),
            (faults.unclean_election, World::elect_uncleanly),
            (faults.reassign, World::move_replicas),
        ];
        let total: usize = kinds.iter().map(|(weight, _)| weight).sum();
        if total == 0 {
            return;
        }
        let victim = self.victim();
        let mut pick = self.random.below(total);
        for (weight, fault) in kinds {
            if pick < weight {
                self.tally.faults += 1;
                fault(self, victim);
                return;
            }
            pick -= weight;
        }
    }

    /// Leaders are hit more often than others.
    fn victim(&mut self) -> BrokerId {
        let leaders: Vec<BrokerId> = self
            .partitions
            .iter()
            .filter_map(|(topic, index)| self.controller.image().partition(*topic, *index)?.leader)
            .collect();
        if !leaders.is_empty() && self.random.below(2) == 0 {
            return leaders[self.random.below(leaders.len())];
        }
        BrokerId(1 + self.random.below(self.plan.brokers) as i32)
    }

    /// Sometimes faster than anybody notices, sometimes not.
    fn restart_delay(&mut self) -> Duration {
        match self.random.below(3) {
            0 => self.between(2_000, 100_000),
            1 => self.between(100_000, 1_000_000),
            _ => self.between(1_000_000, 5_000_000),
        }
    }

    fn kill(&mut self, victim: BrokerId) {
        let restart = self.restart_delay();
        self.end_process(victim, false, restart);
    }

    fn cut_power(&mut self, victim: BrokerId) {
        let restart = self.restart_delay();
        self.end_process(victim, true, restart);
    }

    fn cut_power_everywhere(&mut self, _: BrokerId) {
        let all: Vec<BrokerId> = self.nodes.keys().copied().collect();
        for broker in all {
            let restart = self.restart_delay();
            self.end_process(broker, true, restart);
        }
    }

    fn pause(&mut self, victim: BrokerId) {
        let span = self.restart_delay();
        self.note(|| format!("broker {victim} stands still for {span:?}"));
        let until = self.queue.elapsed() + span;
        self.node(victim).pause_until(until);
    }

    fn cut_links(&mut self, victim: BrokerId) {
        let span = self.restart_delay();
        let me = Peer::Broker(victim);
        let mut others: Vec<Peer> = self
            .nodes
            .keys()
            .filter(|id| **id != victim)
            .map(|id| Peer::Broker(*id))
            .collect();
        let whom = match self.random.below(4) {
            // From one other broker.
            0 => vec![others[self.random.below(others.len())]],
            // From the brokers, not from the controllers.
            1 => others,
            // From the controllers only.
            2 => vec![Peer::Controller],
            // From all.
            _ => {
                others.push(Peer::Controller);
                others
            }
        };
        let direction = self.random.below(3);
        self.note(|| {
            format!("broker {victim} is cut off from {whom:?}, direction {direction}, for {span:?}")
        });
        for other in whom {
            if direction != 0 {
                self.network.cut(me, other);
                self.plan_in(
                    span,
                    Happening::Mend {
                        from: me,
                        to: other,
                    },
                );
            }
            if direction != 1 {
                self.network.cut(other, me);
                self.plan_in(
                    span,
                    Happening::Mend {
                        from: other,
                        to: me,
                    },
                );
            }
        }
    }

    fn fail_disk(&mut self, victim: BrokerId) {
        self.note(|| format!("broker {victim}: the next sync will fail"));
        self.node(victim).disk.fail_next_sync();
    }

    fn take_disk(&mut self, victim: BrokerId) {
        let nothing_lost = self.nodes.values().all(|node| node.lost.is_empty());
        let replaceable = self.partitions.iter().all(|(topic, index)| {
            self.controller
                .image()
                .partition(*topic, *index)
                .is_some_and(|partition| {
                    let others = partition.isr.iter().filter(|broker| **broker != victim);
                    // Somebody alive and in sync must remain, or the partition would wait for a disk that is gone.
                    others.filter(|broker| self.nodes[*broker].is_up()).count() > 0
                })
        });
        if nothing_lost && replaceable && self.nodes[&victim].is_up() {
            self.wipe(victim);
            if self.random.below(2) == 0 {
                self.silence(victim);
            }
        }
    }

    /// For a while nothing new from this broker reaches another; what is under way does.
    fn silence(&mut self, victim: BrokerId) {
        let span = self.between(500_000, 2_500_000);
        self.note(|| format!("broker {victim} reaches no other broker for {span:?}"));
        let from = Peer::Broker(victim);
        let others: Vec<BrokerId> = self.nodes.keys().copied().collect();
        for to in others.into_iter().map(Peer::Broker) {
            self.network.cut(from, to);
            self.plan_in(span, Happening::Mend { from, to });
        }
    }

    fn depose_controller(&mut self, _: BrokerId) {
        let knows = self.random.below(2) == 0;
        self.note(|| format!("nobody is in office, and the last one knows: {knows}"));
        self.controller.leave_office(knows);
        if !knows {
            let until = self.between(200_000, 2_500_000);
            self.plan_in(until, Happening::FormerLearns);
        }
        let delay = self.between(50_000, 1_500_000);
        self.plan_in(delay, Happening::ControllerBack);
    }

    fn elect_preferred(&mut self, _: BrokerId) {
        let now = self.now();
        self.decided(|controller, random| controller.elect_preferred(random, now));
    }

    fn delete_records(&mut self, victim: BrokerId) {
        for number in 0..self.partitions.len() {
            let before = self.ledgers[number].end();
            let until = Offset(self.random.below(before.0 as usize + 1) as i64);
            self.delete_records_at(victim, number, until);
        }
    }

    /// DeleteRecords at one broker: where its log begins then, if it leads.
    pub(super) fn delete_records_at(
        &mut self,
        broker: BrokerId,
        number: PartitionNumber,
        until: Offset,
    ) -> Option<Offset> {
        let (start, epoch, epochs) = self.with_partition(broker, number, |it, _, fx| {
            let epochs = it.epoch_starts();
            let start = it.delete_records(Some(until), fx).ok()?;
            Some((start, it.leader_hint().leader_epoch, epochs))
        })??;
        self.checkers.event(&Event::RecordsDeleted {
            partition: number,
            below: start,
            epochs: epochs
                .iter()
                .map(|entry| (entry.epoch, entry.start))
                .collect(),
        });
        // What a leader deletes whom an unclean election has replaced counts as far as that election has kept it.
        let firm = self.ledgers[number].cuts().firm_below(epoch);
        self.deleted[number] = self.deleted[number].max(start.min(firm));
        Some(start)
    }

    fn stop_feed(&mut self, victim: BrokerId) {
        let span = self.restart_delay();
        self.note(|| format!("broker {victim} hears nothing of the metadata log for {span:?}"));
        let until = self.queue.elapsed() + span;
        self.node(victim).feed_stopped_until = until;
    }

    fn shut_down(&mut self, victim: BrokerId) {
        let restart = self.restart_delay();
        self.ask_to_leave(victim, restart);
    }

    fn jump_clock(&mut self, victim: BrokerId) {
        let hours = self.random.below(13) as i64 - 6;
        self.note(|| format!("broker {victim}: its wall clock is {hours} hours off"));
        self.node(victim).wall_offset = hours * 3_600_000;
    }

    fn drain(&mut self, victim: BrokerId) {
        let draining = self.random.below(3) > 0;
        self.set_draining(victim, draining);
    }

    /// Takes leadership from a broker, or lets it lead again.
    pub(super) fn set_draining(&mut self, broker: BrokerId, draining: bool) {
        self.note(|| format!("broker {broker} is drained: {draining}"));
        self.decided(|controller, _| controller.drain(broker, draining));
    }

    fn change_policy(&mut self, _: BrokerId) {
        let allowed = self.random.below(2) == 0;
        self.set_policy(TELEMETRY, allowed);
    }

    fn elect_uncleanly(&mut self, _: BrokerId) {
        self.elect_uncleanly_by_hand(TELEMETRY);
    }

    /// Moves the replicas of a partition; of one that is moving already, elsewhere or back.
    fn move_replicas(&mut self, _: BrokerId) {
        let number = self.random.below(self.partitions.len());
        let (topic, index) = self.partitions[number];
        let Some(partition) = self.controller.image().partition(topic, index) else {
            return;
        };
        let (moving, factor) = (partition.is_reassigning(), partition.replication_factor());
        if moving && self.random.below(2) == 0 {
            self.reassign(number, None);
            return;
        }
        let mut target: Vec<BrokerId> = self.nodes.keys().copied().collect();
        for place in (1..target.len()).rev() {
            target.swap(place, self.random.below(place + 1));
        }
        target.truncate(factor);
        self.reassign(number, Some(target));
        let delay = self.between(3_000, 250_000);
        self.plan_in(delay, Happening::HurtMove { partition: number });
    }

    /// The worst moment of a move: who is being added dies, the controllers change, somebody thinks better of it.
    pub(super) fn hurt_move(&mut self, number: PartitionNumber) {
        let (topic, index) = self.partitions[number];
        let adding = match self.controller.image().partition(topic, index) {
            Some(partition) if self.rough && partition.is_reassigning() => {
                partition.adding_replicas.clone()
            }
            _ => return,
        };
        match self.random.below(6) {
            0 | 1 if !adding.is_empty() => {
                let victim = adding[self.random.below(adding.len())];
                self.kill(victim);
            }
            2 => self.depose_controller(BrokerId::NONE),
            3 => {
                self.reassign(number, None);
            }
            _ => {}
        }
    }

    /// Asks for other replicas, the preferred leader first, or to take a move back; whether that was granted.
    pub(super) fn reassign(
        &mut self,
        number: PartitionNumber,
        replicas: Option<Vec<BrokerId>>,
    ) -> bool {
        let name = self.plan.topic_of(number).name;
        let (_, index) = self.partitions[number];
        self.note(|| format!("partition {number} is to move to {replicas:?}"));
        let now = self.now();
        self.decided(|controller, random| controller.reassign(name, index, replicas, random, now))
    }

    /// Changes a topic's unclean.leader.election.enable.
    pub(super) fn set_policy(&mut self, topic: &str, allowed: bool) {
        self.note(|| format!("{topic}: unclean elections allowed: {allowed}"));
        let now = self.now();
        self.decided(|controller, random| controller.set_unclean(topic, allowed, random, now));
    }

    /// Elects leaders that may lack records, where there are none.
    pub(super) fn elect_uncleanly_by_hand(&mut self, topic: &str) {
        let now = self.now();
        self.by_hand = true;
        self.decided(|controller, random| controller.elect_uncleanly(topic, random, now));
        self.by_hand = false;
    }
}
