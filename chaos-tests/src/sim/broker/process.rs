//! Processes begin and end: by themselves, on request, killed, or with their machine.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kuorum_broker::partition::{Identity, Partition};
use kuorum_metadata::image::MetadataImage;
use kuorum_protocol::{BrokerId, IncarnationId, Offset};
use kuorum_storage::salvage::{self, SALVAGE};
use kuorum_storage::{Dir, Known, Log, LogError};

use super::{Checkpoint, Hosted, Leaving, Process, directory_name, log_config, salvager, terms};
use crate::checkers::{Event, PartitionNumber};
use crate::sim::network::Peer;
use crate::sim::world::{Happening, World};

impl World {
    /// Writes the checkpoint files.
    pub(in crate::sim) fn checkpoint(&mut self, broker: BrokerId) {
        for number in self.nodes[&broker].hosted() {
            let prepared = self.with_partition(broker, number, |it, _, fx| {
                let point = it.prepare_checkpoint(fx)?;
                let checkpoint = Checkpoint {
                    log_start: it.log().start_offset(),
                    recovery_point: point.offset,
                    high_watermark: it.high_watermark_to_checkpoint(),
                };
                it.checkpointed(point, fx);
                Some(checkpoint)
            });
            if let Some(checkpoint) = prepared.flatten() {
                self.node(broker).checkpoints.insert(number, checkpoint);
            }
        }
    }

    /// Starts a process on `broker`'s machine: it opens what lies on the disk and introduces itself.
    pub(in crate::sim) fn start_process(&mut self, broker: BrokerId) {
        let now = self.now();
        let incarnation = IncarnationId(self.random.uuid());
        let plan = self.plan.clone();
        let places: BTreeMap<PartitionNumber, Identity> = self.identities(broker);
        let node = self.node(broker);
        if node.disk_failed {
            node.disk.crash();
            node.disk_failed = false;
        }
        node.run += 1;
        node.paused_until = Duration::ZERO;
        let run = node.run;
        let boot = node.disk.boot_id().unwrap_or_default();
        let same_boot = boot == node.boot;
        node.boot = boot;
        let mut process = Process {
            incarnation,
            broker_epoch: None,
            image: MetadataImage::default(),
            hosted: BTreeMap::new(),
            not_intact: BTreeSet::new(),
            parked: BTreeMap::new(),
            next_token: 0,
            next_request: 0,
            leaving: None,
        };
        let clean = std::mem::take(&mut node.closed);
        let mut unreadable = None;
        let _ = salvage::tidy(&node.disk.subdirectory(SALVAGE));
        for (number, checkpoint) in node.checkpoints.clone() {
            let known = Known {
                log_start: checkpoint.log_start,
                recovery_point: checkpoint.recovery_point,
                high_watermark: checkpoint.high_watermark,
                clean,
                same_boot,
            };
            let lost = node.lost.contains(&number);
            let known = if lost { Known::default() } else { known };
            let dir = node.disk.subdirectory(&directory_name(&plan, number));
            match Log::open(dir, log_config(&plan), known, now) {
                Ok((log, recovery)) => {
                    let floor = if lost {
                        Offset::ZERO
                    } else {
                        recovery.high_watermark(checkpoint.high_watermark)
                    };
                    if lost || recovery.corruption.is_some() || log.end_offset() < floor {
                        process.not_intact.insert(number);
                    }
                    let identity = places[&number].clone();
                    // As in a real start: what was set aside and never cut still stands in the log.
                    let _ = salvage::forget_uncut(
                        &node.disk.subdirectory(SALVAGE),
                        identity.topic_id,
                        identity.index,
                        &log,
                    );
                    let partition = Partition::new(identity, log, terms(&plan, number), floor)
                        .with_salvager(Some(salvager(&node.disk)));
                    process.hosted.insert(number, Hosted::new(partition));
                }
                Err(LogError::Storage(_)) => node.disk_failed = true,
                Err(error) => {
                    unreadable = Some(format!("broker {broker}, partition {number}: {error}"));
                }
            }
        }
        let not_intact = process.not_intact.clone();
        node.remains
            .retain(|number, _| !process.hosted.contains_key(number));
        node.process = Some(process);
        self.tally.restarts += 1;
        self.note(|| format!("broker {broker} starts run {run}, not intact: {not_intact:?}"));
        if let Some(what) = unreadable {
            self.not_healed(what);
        }
        if self.nodes[&broker].disk_failed {
            self.plan_in(
                Duration::from_millis(1),
                Happening::DiskDied { broker, run },
            );
            return;
        }
        let first = self.between(100, 20_000);
        for (delay, happening) in [
            (first, Happening::Register { broker, run }),
            (
                Duration::from_millis(200),
                Happening::Heartbeat { broker, run },
            ),
            (Duration::from_millis(5), Happening::Feed { broker, run }),
            (Duration::from_millis(20), Happening::Tick { broker, run }),
            (
                Duration::from_millis(25),
                Happening::FetchPoll { broker, run },
            ),
            (
                Duration::from_millis(500),
                Happening::Checkpoint { broker, run },
            ),
        ] {
            self.plan_in(delay, happening);
        }
    }

    /// Ends a process. With the power cut, what is not flushed goes with it.
    pub(in crate::sim) fn end_process(
        &mut self,
        broker: BrokerId,
        power_cut: bool,
        restart: Duration,
    ) {
        let node = self.node(broker);
        if !node.is_up() {
            return;
        }
        let run = node.run;
        let remains = crate::sim::view::remains(node, power_cut);
        node.remains.extend(remains);
        node.process = None;
        if power_cut {
            node.disk.crash();
        } else {
            node.disk.kill();
        }
        self.note(|| {
            let how = if power_cut {
                "loses its power"
            } else {
                "is killed"
            };
            format!("broker {broker} {how}")
        });
        self.delay_last_words(broker);
        // A killed process's sockets are closed for it; of a machine without power nobody hears.
        if !power_cut || self.random.below(4) == 0 {
            let delay = self.between(500, 20_000);
            self.plan_in(delay, Happening::ConnectionLost { broker, run });
        }
        self.plan_in(restart, Happening::Restart { broker, run });
    }

    /// SIGTERM: the process asks for leave and goes on until it is given, or until its patience is at an end.
    pub(in crate::sim) fn ask_to_leave(&mut self, broker: BrokerId, restart: Duration) {
        let since = self.queue.elapsed();
        let Some(process) = &mut self.node(broker).process else {
            return;
        };
        if process.leaving.is_some() {
            return;
        }
        process.leaving = Some(Leaving {
            since,
            restart,
            unheard: 0,
        });
        self.note(|| format!("broker {broker} is told to shut down"));
    }

    /// The end of a process that was told to end: it closes its logs in an orderly way and says goodbye.
    pub(super) fn leave(&mut self, broker: BrokerId) {
        self.checkpoint(broker);
        let heard = !self.network.is_cut(Peer::Broker(broker), Peer::Controller);
        let node = self.node(broker);
        let run = node.run;
        let Some(mut process) = node.process.take() else {
            return;
        };
        let Some(leaving) = process.leaving else {
            return;
        };
        let mut closed = true;
        let mut remains = BTreeMap::new();
        for (number, hosted) in std::mem::take(&mut process.hosted) {
            remains.insert(number, crate::sim::view::left_behind(broker, &hosted));
            if let Some(checkpoint) = node.checkpoints.get_mut(&number) {
                checkpoint.high_watermark = hosted.partition.high_watermark();
            }
            match hosted.partition.into_log().close() {
                Ok(end) => {
                    if let Some(checkpoint) = node.checkpoints.get_mut(&number) {
                        checkpoint.recovery_point = end;
                    }
                }
                Err(_) => closed = false,
            }
        }
        node.remains.extend(remains);
        if closed {
            node.closed = true;
            node.disk.kill();
        } else {
            node.disk_failed = true;
        }
        self.note(|| format!("broker {broker} ends, closed in an orderly way: {closed}"));
        if heard && let Some(broker_epoch) = process.broker_epoch {
            self.controller.goodbye(broker, broker_epoch);
        }
        self.delay_last_words(broker);
        let delay = self.between(500, 20_000);
        self.plan_in(delay, Happening::ConnectionLost { broker, run });
        self.plan_in(leaving.restart, Happening::Restart { broker, run });
    }

    /// What a process has sent outlives it, and now and then arrives when its successor is long there.
    pub(super) fn delay_last_words(&mut self, broker: BrokerId) {
        if !self.rough || self.random.below(2) == 0 {
            return;
        }
        let late = self.between(200_000, 1_500_000);
        self.queue.put_off(|happening| match happening {
            Happening::Deliver(envelope) if envelope.from == Peer::Broker(broker) => late,
            _ => Duration::ZERO,
        });
    }

    pub(in crate::sim) fn disk_died(&mut self, broker: BrokerId) {
        self.note(|| format!("broker {broker}: its only disk failed"));
        self.node(broker).disk_failed = true;
        let restart = self.between(300_000, 1_500_000);
        self.end_process(broker, true, restart);
    }

    /// The data of all replicas of a machine are gone; the directory is still the same.
    pub(in crate::sim) fn wipe(&mut self, broker: BrokerId) {
        let restart = self.between(5_000, 800_000);
        // The worst moment: what it had is on its way to the leader.
        for partition in self.nodes[&broker].hosted() {
            self.fetch_now(broker, partition);
        }
        let process = self.nodes[&broker].process.as_ref();
        let epoch = process.and_then(|process| process.broker_epoch);
        self.end_process(broker, false, restart);
        let plan = self.plan.clone();
        let node = self.node(broker);
        let numbers: Vec<PartitionNumber> = node.checkpoints.keys().copied().collect();
        for number in numbers {
            let name = directory_name(&plan, number);
            if node.disk.remove_all(&name).is_ok() {
                node.lost.insert(number);
                node.taken_from.extend(epoch.map(|epoch| (number, epoch)));
            }
        }
        let _ = node.disk.sync();
        self.checkers.event(&Event::DiskLost { broker });
        self.note(|| format!("broker {broker} loses its data"));
    }

    /// Nothing holds this machine back any more.
    pub(in crate::sim) fn mend_node(&mut self, broker: BrokerId) {
        let node = self.node(broker);
        node.paused_until = Duration::ZERO;
        node.feed_stopped_until = Duration::ZERO;
        let run = node.run;
        if !node.is_up() {
            let delay = self.between(10_000, 400_000);
            self.plan_in(delay, Happening::Restart { broker, run });
        }
    }
}
