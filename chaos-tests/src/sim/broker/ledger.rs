//! What leaders make visible, written down.

use kuorum_protocol::{BrokerId, LeaderEpoch, Offset};

use crate::checkers::{Event, Logged, NOT_SEEN, PartitionNumber};
use crate::sim::records;
use crate::sim::world::World;

impl World {
    /// Tells the checkers when a replica begins to lead and when its high watermark moves.
    pub(super) fn watch_leader(&mut self, broker: BrokerId, number: PartitionNumber) {
        let run = self.nodes[&broker].run;
        let Some(hosted) = self.hosted(broker, number) else {
            return;
        };
        let Some(leader) = hosted.partition.leader() else {
            hosted.led = None;
            return;
        };
        let leader_epoch = leader.leader_epoch();
        let committed_isr = leader.isr().committed().len();
        let min_isr = leader.min_isr();
        let high_watermark = hosted.partition.high_watermark();
        let began = hosted.led != Some(leader_epoch);
        let before = if began {
            Offset::ZERO
        } else {
            hosted.high_watermark
        };
        hosted.led = Some(leader_epoch);
        hosted.high_watermark = high_watermark;
        if began {
            self.note(|| {
                format!("broker {broker}, partition {number}: leads in epoch {leader_epoch}, high watermark {high_watermark}")
            });
            self.checkers.event(&Event::Led {
                partition: number,
                broker,
                run,
                leader_epoch,
            });
            return;
        }
        if before == high_watermark {
            return;
        }
        self.digest(&[3, broker.0 as u64, high_watermark.0 as u64]);
        let holders = self.holders(broker, number, high_watermark);
        self.checkers.event(&Event::HighWatermark {
            partition: number,
            broker,
            leader_epoch,
            from: before,
            to: high_watermark,
            committed_isr,
            min_isr,
            holders,
        });
        self.write_ledger(broker, number, leader_epoch, high_watermark);
    }

    /// Notes what has become visible. What was visible before must be the same.
    /// What leaders say whom an unclean election has replaced counts only as far as that election has kept it.
    pub(super) fn write_ledger(
        &mut self,
        broker: BrokerId,
        number: PartitionNumber,
        leader_epoch: LeaderEpoch,
        end: Offset,
    ) {
        let from = self.ledgers[number].end();
        let end = end.min(self.ledgers[number].cuts().firm_below(leader_epoch));
        if end <= from {
            return;
        }
        let Some(hosted) = self.hosted(broker, number) else {
            return;
        };
        let (log_start, epoch) = {
            let log = hosted.partition.log();
            let start = log.start_offset();
            (start, log.leader_epochs().epoch_at(start))
        };
        let given_up = !self.ledgers[number].cuts().is_empty();
        if from < log_start && given_up {
            // An unclean leader whose log begins beyond all that was kept: nobody will ever see what lies between.
            let gone = Logged {
                epoch: epoch.unwrap_or(leader_epoch),
                value: NOT_SEEN,
            };
            while self.ledgers[number].end() < log_start.min(end) {
                self.ledgers[number].push(gone);
            }
            self.deleted[number] = self.deleted[number].max(log_start.min(end));
            return self.write_ledger(broker, number, leader_epoch, end);
        }
        let Some(hosted) = self.hosted(broker, number) else {
            return;
        };
        let found = match records::read_log(hosted.partition.log(), from, end) {
            Ok(found) => found,
            Err(what) => {
                self.not_healed(format!(
                    "broker {broker}, partition {number}: what became visible in [{from}, {end}) cannot be read: {what}"
                ));
                return;
            }
        };
        for (offset, record) in found {
            if offset == self.ledgers[number].end() && offset < end {
                self.ledgers[number].push(record);
                self.checkers.event(&Event::Committed {
                    partition: number,
                    broker,
                    leader_epoch,
                    offset,
                    record,
                });
            }
        }
    }
}
