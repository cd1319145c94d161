//! The hands of a replica: they carry out what it asks for.

use kuorum_broker::partition::{Effects, Partition, ProduceError};
use kuorum_protocol::{BrokerEpoch, BrokerId, ErrorCode, Now};
use kuorum_replication::IsrReply;
use kuorum_replication::follower::LogView;
use kuorum_storage::SimDir;
use kuorum_storage::salvage::Aside;

use super::{Hosted, Token};
use crate::checkers::{Event, PartitionNumber, SetAside};
use crate::sim::network::{Message, Peer};
use crate::sim::world::{Happening, World};

impl World {
    pub(in crate::sim) fn flush_done(&mut self, broker: BrokerId, number: PartitionNumber) {
        let Some(job) = self
            .hosted(broker, number)
            .and_then(|hosted| hosted.flush.take())
        else {
            return;
        };
        let result = job.run();
        self.with_partition(broker, number, |it, now, fx| {
            it.finish_flush(job, result, now, fx);
        });
    }

    pub(in crate::sim) fn alter_timed_out(
        &mut self,
        broker: BrokerId,
        number: PartitionNumber,
        proposal: u64,
    ) {
        let Some(hosted) = self.hosted(broker, number) else {
            return;
        };
        if hosted.altering == Some(proposal) {
            hosted.altering = None;
            self.with_partition(broker, number, |it, now, fx| {
                it.isr_decided(proposal, IsrReply::Unanswered, now, fx);
            });
        }
    }

    pub(in crate::sim) fn hosted(
        &mut self,
        broker: BrokerId,
        number: PartitionNumber,
    ) -> Option<&mut Hosted> {
        self.node(broker).process.as_mut()?.hosted.get_mut(&number)
    }

    /// Runs `act` on a replica and carries out what it asks for. `None` if the process holds no such replica.
    pub(in crate::sim) fn with_partition<R>(
        &mut self,
        broker: BrokerId,
        number: PartitionNumber,
        act: impl FnOnce(&mut Partition<SimDir, Token>, Now, &mut Effects<Token>) -> R,
    ) -> Option<R> {
        let mut now = self.now();
        now.wall.0 += self.nodes[&broker].wall_offset;
        let mut fx = Effects::default();
        let hosted = self.hosted(broker, number)?;
        let before = hosted.partition.log_view();
        let result = act(&mut hosted.partition, now, &mut fx);
        self.watch_cut(broker, number, &before, &mut fx);
        self.watch_leader(broker, number);
        self.carry_out(broker, number, fx);
        Some(result)
    }

    /// Tells the checkers what a replica has cut off, and what became of it.
    fn watch_cut(
        &mut self,
        broker: BrokerId,
        number: PartitionNumber,
        before: &LogView,
        fx: &mut Effects<Token>,
    ) {
        let aside = fx.set_aside.take().map(|aside| match aside {
            Aside::Kept(item) => SetAside::Kept {
                first: item.first_offset,
                end: item.end_offset,
                complete: item.complete,
            },
            Aside::KeptBefore(item) => SetAside::KeptBefore {
                first: item.first_offset,
                end: item.end_offset,
            },
            Aside::OutOfBounds => SetAside::OutOfBounds,
            Aside::Failed(_) => SetAside::Failed,
        });
        let (first, end, unclean) = match (fx.truncated, &aside) {
            // Within the log its end is cut off; anywhere else it begins anew.
            (Some(cut), _) => {
                let within = cut.to >= before.log_start && cut.to <= before.log_end;
                let first = if within { cut.to } else { before.log_start };
                (first, before.log_end, cut.unclean)
            }
            // It was to be cut or deleted; whether it was, its disk decides.
            (None, Some(_)) => (before.log_start, before.log_end, true),
            (None, None) => return,
        };
        if let Some(aside) = aside {
            self.tally.set_aside += 1;
            self.digest(&[4, broker.0 as u64, first.0 as u64, end.0 as u64]);
            self.note(|| {
                format!(
                    "broker {broker}, partition {number}: [{first}, {end}) set aside: {aside:?}"
                )
            });
        }
        if fx.storage_failed.is_none() {
            self.checkers.event(&Event::Cut {
                partition: number,
                broker,
                first,
                end,
                unclean,
                aside,
            });
        }
    }

    pub(super) fn carry_out(
        &mut self,
        broker: BrokerId,
        number: PartitionNumber,
        fx: Effects<Token>,
    ) {
        let run = self.nodes[&broker].run;
        for (token, result) in fx.completed {
            self.produce_ended(broker, number, token, result);
        }
        if let Some(proposal) = fx.propose_isr {
            self.note(|| format!("broker {broker}, partition {number}: proposes {proposal:?}"));
            let Some(process) = &mut self.node(broker).process else {
                return;
            };
            let broker_epoch = process.broker_epoch.unwrap_or(BrokerEpoch::UNKNOWN);
            // Whom the controllers have left in the ISR may stay there; only new members are asked about.
            let hosted = process.hosted.get(&number);
            let committed =
                hosted.and_then(|hosted| Some(hosted.partition.leader()?.isr().committed()));
            let not_admissible = proposal
                .new_isr
                .iter()
                .map(|(member, _)| *member)
                .filter(|member| committed.is_none_or(|isr| !isr.contains(member)))
                .filter(|member| !process.image.is_active(*member))
                .collect();
            let mut again = false;
            if let Some(hosted) = process.hosted.get_mut(&number) {
                hosted.altering = Some(proposal.number);
                again = hosted.proposed.replace(proposal.number) == Some(proposal.number);
            }
            // A proposal that is sent again may have been decided already: it must not be another one.
            if !again {
                self.checkers.event(&Event::IsrProposed {
                    partition: number,
                    leader: broker,
                    not_admissible,
                });
            }
            let patience = self.between(300_000, 800_000);
            self.plan_in(
                patience,
                Happening::AlterTimeout {
                    broker,
                    run,
                    partition: number,
                    number: proposal.number,
                },
            );
            self.send(
                Peer::Broker(broker),
                Peer::Controller,
                None,
                Message::Alter {
                    partition: number,
                    run,
                    broker_epoch,
                    proposal,
                },
            );
        }
        if let Some(truncation) = fx.truncated {
            self.tally.truncations += 1;
            self.digest(&[2, broker.0 as u64, truncation.to.0 as u64]);
            self.cut_off.push((number, broker, truncation));
            self.note(|| format!("broker {broker}, partition {number}: {truncation:?}"));
        }
        if let Some(misfit) = fx.misfit {
            self.note(|| format!("broker {broker}, partition {number}: {misfit}"));
        }
        if fx.log_dirty {
            self.begin_flush(broker, number, run);
        }
        if fx.fetcher_ready {
            self.fetch_now(broker, number);
        }
        if let Some(failure) = fx.storage_failed {
            self.note(|| format!("broker {broker}, partition {number}: {failure}"));
            let delay = self.between(100, 10_000);
            self.plan_in(delay, Happening::DiskDied { broker, run });
        }
    }

    pub(super) fn begin_flush(&mut self, broker: BrokerId, number: PartitionNumber, run: u64) {
        let Some(hosted) = self.hosted(broker, number) else {
            return;
        };
        if hosted.flush.is_some() {
            return;
        }
        hosted.flush = hosted.partition.begin_flush();
        if hosted.flush.is_none() {
            return;
        }
        let slow = self.rough && self.random.below(100) == 0;
        let delay = if slow {
            self.between(20_000, 700_000)
        } else {
            self.between(200, 4_000)
        };
        self.plan_in(
            delay,
            Happening::FlushDone {
                broker,
                run,
                partition: number,
            },
        );
    }

    pub(super) fn produce_ended(
        &mut self,
        broker: BrokerId,
        number: PartitionNumber,
        token: Token,
        result: Result<(), ProduceError>,
    ) {
        let Some(parked) = self
            .node(broker)
            .process
            .as_mut()
            .and_then(|process| process.parked.remove(&token))
        else {
            return;
        };
        let result = match (result, parked.outcome) {
            (Ok(()), Ok(appended)) => {
                self.acknowledged(broker, number, &parked, &appended, true);
                Ok(appended.base_offset)
            }
            (Ok(()), Err(refused)) => Err(refused),
            (Err(error), _) => Err(ErrorCode::from(&error)),
        };
        self.answer_producer(broker, parked.client, parked.attempt, result);
    }
}
