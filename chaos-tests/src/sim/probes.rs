//! Act four: the healed cluster is left alone, asked, and provoked a little.

use std::time::Duration;

use kuorum_protocol::{BrokerId, ErrorCode, LeaderEpoch};

use super::network::Peer;
use super::world::{Happening, World};
use crate::checkers::{Event, PartitionNumber};

impl World {
    /// All probes, and the last look.
    pub(super) fn be_probed(&mut self) {
        let probes = [
            Self::probe_epochs,
            Self::probe_shrink,
            Self::probe_elections_without_data,
            Self::probe_drain,
            Self::probe_shutdown,
            Self::probe_shutdown_of_the_only_one,
            Self::probe_failover,
            Self::stay_idle,
            Self::look_at_rest,
        ];
        for probe in probes {
            if self.checkers.found().is_none() {
                probe(self);
            }
        }
    }

    fn leader_of(&self, partition: PartitionNumber) -> Option<BrokerId> {
        let (topic, index) = self.partitions[partition];
        self.controller.image().partition(topic, index)?.leader
    }

    /// R15: every epoch there was, and the two ways to be wrong about the current one.
    fn probe_epochs(&mut self) {
        for partition in 0..self.partitions.len() {
            let Some(leader) = self.leader_of(partition) else {
                continue;
            };
            let (epochs, committed_end) = self.visible(partition);
            let Some((leader_epoch, log_start, log_end)) =
                self.with_partition(leader, partition, |it, _, _| {
                    let log = it.log();
                    let epoch = it.leader_hint().leader_epoch;
                    (epoch, log.start_offset(), log.end_offset())
                })
            else {
                continue;
            };
            let currents = [
                leader_epoch,
                LeaderEpoch(leader_epoch.0 - 1),
                leader_epoch.next(),
            ];
            for asked in -1..=leader_epoch.0 + 1 {
                for current in currents.into_iter().filter(|epoch| epoch.0 >= 0) {
                    let asked = LeaderEpoch(asked);
                    let answer = self.with_partition(leader, partition, |it, _, _| {
                        it.end_offset_for_epoch(Some(current), asked)
                            .map_err(|error| ErrorCode::from(&error))
                    });
                    let Some(answer) = answer else {
                        continue;
                    };
                    self.checkers.event(&Event::EpochAnswer {
                        partition,
                        leader_epoch,
                        log_start,
                        log_end,
                        current,
                        asked,
                        answer,
                        epochs: epochs.clone(),
                        committed_end,
                    });
                }
            }
        }
    }

    /// R5, R10: one follower stops fetching; its heartbeats go on.
    fn probe_shrink(&mut self) {
        if self.plan.topic_of(0).min_isr >= self.plan.replication_factor {
            return;
        }
        let Some(leader) = self.leader_of(0) else {
            return;
        };
        let (topic, index) = self.partitions[0];
        let Some(silent) = self
            .controller
            .image()
            .partition(topic, index)
            .and_then(|partition| partition.replicas.iter().copied().find(|id| *id != leader))
        else {
            return;
        };
        self.note(|| format!("broker {silent} no longer reaches leader {leader}"));
        self.network.cut(Peer::Broker(silent), Peer::Broker(leader));
        let since = self.queue.elapsed();
        let Some(client) = self.produce_once(0) else {
            return;
        };
        let lag = self.plan.replica_lag_time_max;
        let allowed = lag + lag / 2 + Duration::from_secs(2);
        let answered = self.run_until(allowed * 2, |world| world.is_answered(client));
        let waited = answered.then(|| self.queue.elapsed() - since);
        self.checkers.event(&Event::ShrinkProbe {
            partition: 0,
            waited,
            allowed,
        });
        self.network.mend_all();
        self.await_convergence("the follower that had been silent did not come back");
    }

    /// R13: leadership goes around, nothing is written meanwhile.
    fn probe_elections_without_data(&mut self) {
        for _ in 0..3 {
            let Some(leader) = self.leader_of(0) else {
                break;
            };
            self.end_process(leader, false, Duration::from_millis(600));
            let restart = self.between(300_000, 900_000);
            self.run_for(restart);
        }
        let now = self.now();
        self.decided(|controller, random| controller.elect_preferred(random, now));
        self.await_convergence("elections without data were not sorted out");
        self.decided(|controller, random| controller.elect_preferred(random, now));
        self.await_convergence("a preferred election was not sorted out");
    }

    /// A leader is drained: another one that is in sync leads at once, and it stays in sync.
    fn probe_drain(&mut self) {
        let Some(leader) = self.leader_of(0) else {
            return;
        };
        self.set_draining(leader, true);
        let moved = self.run_until(Duration::from_secs(1), |world| {
            world.leader_of(0).is_some_and(|now| now != leader)
        });
        if !moved && self.checkers.found().is_none() {
            return self.not_healed(format!("broker {leader} was drained and still leads"));
        }
        self.await_convergence("a broker that was drained did not stay in sync");
        self.set_draining(leader, false);
    }

    /// R11, R25: a leader is told to shut down while somebody writes.
    fn probe_shutdown(&mut self) {
        if self.plan.topic_of(0).min_isr >= self.plan.replication_factor {
            return;
        }
        let Some(leader) = self.leader_of(0) else {
            return;
        };
        let allowed = Duration::from_secs(2);
        let since = self.queue.elapsed();
        let run = self.nodes[&leader].run();
        self.ask_to_leave(leader, Duration::from_secs(1));
        let mut longest_pause = Duration::ZERO;
        while self.is_running(leader, run) && self.queue.elapsed() < since + allowed * 2 {
            let sent = self.queue.elapsed();
            let Some(client) = self.produce_once(0) else {
                return;
            };
            self.run_until(allowed * 2, |world| world.is_answered(client));
            longest_pause = longest_pause.max(self.queue.elapsed() - sent);
            if self.checkers.found().is_some() {
                return;
            }
        }
        let waited = (!self.is_running(leader, run)).then(|| self.queue.elapsed() - since);
        self.checkers.event(&Event::ShutdownProbe {
            broker: leader,
            waited,
            longest_pause,
            allowed,
        });
        self.await_convergence("a broker that had shut down did not come back");
    }

    /// R11: the only one in sync is told to shut down. It goes on until another has caught up, and hands over.
    fn probe_shutdown_of_the_only_one(&mut self) {
        let Some(leader) = self.leader_of(0) else {
            return;
        };
        let (topic, index) = self.partitions[0];
        let others: Vec<BrokerId> = self.nodes.keys().copied().collect();
        for other in others.into_iter().filter(|other| *other != leader) {
            self.network.cut(Peer::Broker(other), Peer::Broker(leader));
        }
        // Who has all there is stays in sync for as long as nothing is written.
        if self.produce_once(0).is_none() {
            return;
        }
        let lag = self.plan.replica_lag_time_max;
        let alone = self.run_until(lag * 2 + Duration::from_secs(2), |world| {
            let partition = world.controller.image().partition(topic, index);
            partition.is_some_and(|partition| partition.isr == [leader])
        });
        if alone {
            let run = self.nodes[&leader].run();
            self.ask_to_leave(leader, Duration::from_secs(1));
            self.run_for(Duration::from_millis(400));
            self.network.mend_all();
            let since = self.queue.elapsed();
            let allowed = Duration::from_secs(3);
            let gone = self.run_until(allowed * 2, |world| !world.is_running(leader, run));
            self.checkers.event(&Event::ShutdownProbe {
                broker: leader,
                waited: gone.then(|| self.queue.elapsed() - since),
                longest_pause: Duration::ZERO,
                allowed,
            });
        }
        self.network.mend_all();
        self.await_convergence("the only one in sync had shut down and did not come back");
    }

    fn is_running(&self, broker: BrokerId, run: u64) -> bool {
        let node = &self.nodes[&broker];
        node.run() == run && node.is_up()
    }

    /// R27: a leader and the active controller die together, and the broker's host says that nobody listens there.
    fn probe_failover(&mut self) {
        let Some(leader) = self.leader_of(0) else {
            return;
        };
        let gap = Duration::from_millis(300);
        let allowed = gap + Duration::from_secs(2);
        let since = self.queue.elapsed();
        self.controller.leave_office(true);
        self.end_process(leader, false, allowed * 2);
        self.plan_in(gap, Happening::ControllerBack);
        let taken_over = self.run_until(allowed * 2, |world| {
            world.leader_of(0).is_some_and(|now| now != leader)
        });
        let waited = taken_over.then(|| self.queue.elapsed() - since);
        self.checkers.event(&Event::FailoverProbe {
            partition: 0,
            waited,
            allowed,
        });
        self.await_convergence("a broker that had died with the controller did not come back");
    }

    /// R9, R26: nothing is written, nothing is broken; that another controller takes office is nobody's business.
    fn stay_idle(&mut self) {
        self.checkers.event(&Event::Quiet(true));
        let span = self.plan.replica_lag_time_max * 4 + self.plan.session_timeout;
        self.run_for(span / 2);
        self.controller.leave_office(true);
        self.run_for(Duration::from_millis(300));
        let now = self.now();
        self.decided(|controller, _| controller.take_office(now));
        self.run_for(span / 2);
        self.checkers.event(&Event::Quiet(false));
    }
}
