//! What a process learns from the metadata log, and does about it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::time::Duration;

use kuorum_broker::partition::{Identity, Partition};
use kuorum_protocol::{BrokerId, Offset};
use kuorum_replication::Assignment;
use kuorum_replication::mutation::{self, Mutation};
use kuorum_storage::{Dir, Known, Log, SimDir};

use super::{Checkpoint, Hosted, directory_name, log_config, salvager, terms};
use crate::checkers::PartitionNumber;
use crate::sim::network::Peer;
use crate::sim::world::{Happening, World};

impl World {
    /// The metadata log reaches the process, some of it or all.
    pub(in crate::sim) fn feed(&mut self, broker: BrokerId, run: u64) {
        let again = self.between(3_000, 20_000);
        self.plan_in(again, Happening::Feed { broker, run });
        let elapsed = self.queue.elapsed();
        if self.nodes[&broker].feed_stopped_until > elapsed
            || self.network.is_cut(Peer::Controller, Peer::Broker(broker))
        {
            return;
        }
        let end = self.controller.end();
        let Some(process) = self
            .nodes
            .get_mut(&broker)
            .and_then(|node| node.process.as_mut())
        else {
            return;
        };
        let from = process.image.offset() + 1;
        if from >= end {
            return;
        }
        let count = if self.random.below(4) == 0 {
            1 + self.random.below((end - from) as usize) as i64
        } else {
            end - from
        };
        for (offset, batch) in self.controller.entries(from).take(count as usize) {
            let _ = process.image.apply_batch(offset, batch);
        }
        // Until its own registration is in the image, the image may show what another process was.
        let registered = process
            .broker_epoch
            .is_some_and(|epoch| process.image.offset() >= epoch.0);
        if registered || mutation::off(Mutation::RestartedLeaderResumes) {
            self.act_on_image(broker);
        }
    }

    pub(super) fn act_on_image(&mut self, broker: BrokerId) {
        if !self.delete_what_moved(broker) {
            return;
        }
        let now = self.now();
        let plan = self.plan.clone();
        let identities = self.identities(broker);
        for number in 0..self.partitions.len() {
            let (topic, index) = self.partitions[number];
            let node = self
                .nodes
                .get_mut(&broker)
                .expect("every broker that is named is one of the plan's");
            let Some(process) = &mut node.process else {
                return;
            };
            let Some(image) = process.image.partition(topic, index) else {
                continue;
            };
            if !image.replicas.contains(&broker) {
                continue;
            }
            let assignment = Assignment::of(&process.image, image);
            if let Entry::Vacant(place) = process.hosted.entry(number) {
                let dir = node.disk.subdirectory(&directory_name(&plan, number));
                let opened = Log::open(dir, log_config(&plan), Known::default(), now);
                let Ok((log, _)) = opened else {
                    let run = node.run;
                    let delay = Duration::from_millis(1);
                    self.plan_in(delay, Happening::DiskDied { broker, run });
                    return;
                };
                let identity = identities[&number].clone();
                let partition = Partition::new(identity, log, terms(&plan, number), Offset::ZERO)
                    .with_salvager(Some(salvager(&node.disk)));
                place.insert(Hosted::new(partition));
                node.checkpoints.insert(number, Checkpoint::default());
            }
            self.with_partition(broker, number, |it, now, fx| {
                it.apply(&assignment, now, fx);
            });
        }
    }

    /// Deletes the logs of replicas that are no longer this broker's; `false` if its disk would not.
    fn delete_what_moved(&mut self, broker: BrokerId) -> bool {
        for number in self.nodes[&broker].hosted() {
            let (topic, index) = self.partitions[number];
            let Some(process) = &self.nodes[&broker].process else {
                return false;
            };
            let Some(image) = process.image.partition(topic, index) else {
                continue;
            };
            let knows_until = process.hosted[&number].partition.knows_until();
            // Who leaves does so with a new leader epoch: one that knows a later one has come back since.
            if image.replicas.contains(&broker) || knows_until > image.leader_epoch {
                continue;
            }
            let nobody = Assignment {
                leader: None,
                ..Assignment::of(&process.image, image)
            };
            self.note(|| format!("broker {broker}, partition {number}: its replica is deleted"));
            self.with_partition(broker, number, |it, now, fx| {
                it.go_offline(&nobody, fx);
                // What could not be set aside would be kept under another name, where nobody here looks: the check excuses it.
                let _ = it.leave_for_good(nobody.last_unclean_epoch, now, fx);
            });
            let name = directory_name(&self.plan, number);
            let node = self.node(broker);
            if let Some(process) = &mut node.process {
                process.hosted.remove(&number);
                process.not_intact.remove(&number);
            }
            node.lost.remove(&number);
            node.remains.remove(&number);
            if delete_directory(&node.disk, &name).is_err() {
                // What is there of it is found at the next start, and deleted then.
                node.checkpoints.insert(number, Checkpoint::default());
                let run = node.run;
                let delay = Duration::from_millis(1);
                self.plan_in(delay, Happening::DiskDied { broker, run });
                return false;
            }
            node.checkpoints.remove(&number);
        }
        true
    }

    pub(super) fn identities(&self, broker: BrokerId) -> BTreeMap<PartitionNumber, Identity> {
        self.partitions
            .iter()
            .enumerate()
            .map(|(number, (topic_id, index))| {
                let identity = Identity {
                    topic: self.plan.topic_of(number).name.into(),
                    topic_id: *topic_id,
                    index: *index,
                    me: broker,
                };
                (number, identity)
            })
            .collect()
    }
}

/// Gives the directory another name first, so that it is gone as a whole.
fn delete_directory(disk: &SimDir, name: &str) -> io::Result<()> {
    let aside = format!("{name}.removed");
    if disk.subdirectory(&aside).exists()? {
        disk.remove_all(&aside)?;
        disk.sync()?;
    }
    disk.rename(name, &aside)?;
    disk.sync()?;
    disk.remove_all(&aside)?;
    disk.sync()
}
