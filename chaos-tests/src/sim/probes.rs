//! Act four: the healed cluster is left alone, asked, and provoked a little.

use std::time::Duration;

use kuorum_protocol::{BrokerId, ErrorCode, LeaderEpoch};

use super::network::Peer;
use super::world::World;
use crate::checkers::{Event, PartitionNumber};

impl World {
    /// All probes, and the last look.
    pub(super) fn be_probed(&mut self) {
        let probes = [
            Self::probe_epochs,
            Self::probe_shrink,
            Self::probe_elections_without_data,
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
        if self.plan.min_isr >= self.plan.replication_factor {
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

    /// R9: nothing is written, nothing is broken.
    fn stay_idle(&mut self) {
        self.checkers.event(&Event::Quiet(true));
        let span = self.plan.replica_lag_time_max * 4 + self.plan.session_timeout;
        self.run_for(span);
        self.checkers.event(&Event::Quiet(false));
    }
}
