//! What ISR and ELR promise, held against logs: whoever may be elected has everything that was ever below a high watermark.
//! Brokers here are logs and late readers of the metadata; a leader raises its high watermark by the rule that brokers
//! follow, from what it knows, which may be old. min.insync.replicas changes at any time.

use std::collections::{BTreeMap, BTreeSet};

use kuorum_metadata::control::isr;
use kuorum_metadata::record::{ConfigResource, LeaderRecoveryState};
use kuorum_metadata::rpc::{AlterPartition, AlterPartitionRequest, AlterPartitionResult};
use kuorum_metadata::{MetadataImage, PartitionImage};
use kuorum_protocol::{BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch};
use proptest::prelude::*;

use crate::world::{World, ids, list};

const BROKERS: i32 = 4;
const REPLICAS: &str = "1,2,3,4";
const TOPIC: &str = "t";

#[derive(Clone, Debug)]
enum Event {
    /// The process ends; its disk stays.
    Kill(i32),
    /// A new incarnation with its disk as it was, or with less of it, which it tells.
    Start {
        broker: i32,
        kept: Option<usize>,
    },
    /// It reads so many more entries of the metadata.
    Learn {
        broker: i32,
        entries: usize,
    },
    /// One that thinks that it leads writes a record.
    Append(i32),
    /// A follower asks whom it thinks the leader is, and gets what it lacks.
    Fetch(i32),
    /// A leader asks for an ISR without these; the answer may be lost.
    Shrink {
        broker: i32,
        without: Vec<i32>,
        answered: bool,
    },
    /// A leader asks for an ISR with this one more.
    Expand {
        broker: i32,
        with: i32,
        answered: bool,
    },
    Min(i32),
    Drain {
        broker: i32,
        draining: bool,
    },
    NewController,
}

fn event() -> impl Strategy<Value = Event> {
    let broker = 1..=BROKERS;
    prop_oneof![
        2 => broker.clone().prop_map(Event::Kill),
        3 => (broker.clone(), prop::option::weighted(0.1, 0..8usize)).prop_map(|(broker, kept)| Event::Start { broker, kept }),
        8 => (broker.clone(), 1..4usize).prop_map(|(broker, entries)| Event::Learn { broker, entries }),
        6 => broker.clone().prop_map(Event::Append),
        10 => broker.clone().prop_map(Event::Fetch),
        3 => (broker.clone(), prop::collection::vec(broker.clone(), 1..3), prop::bool::weighted(0.7))
            .prop_map(|(broker, without, answered)| Event::Shrink { broker, without, answered }),
        3 => (broker.clone(), broker.clone(), prop::bool::weighted(0.7))
            .prop_map(|(broker, with, answered)| Event::Expand { broker, with, answered }),
        2 => (1..4).prop_map(Event::Min),
        1 => (broker, any::<bool>()).prop_map(|(broker, draining)| Event::Drain { broker, draining }),
        1 => Just(Event::NewController),
    ]
}

/// A record: the epoch it was written in, and its number.
type Record = (LeaderEpoch, u32);

/// What a leader knows of its epoch.
#[derive(Clone, Debug)]
struct Leading {
    epoch: LeaderEpoch,
    partition_epoch: PartitionEpoch,
    isr: BTreeSet<BrokerId>,
    elr: Vec<BrokerId>,
    /// Who is in the ISR too if the proposal on its way was accepted.
    joining: Option<BrokerId>,
    pending: bool,
    start: usize,
    ends: BTreeMap<BrokerId, usize>,
}

#[derive(Clone, Debug)]
struct Broker {
    alive: bool,
    image: MetadataImage,
    /// How many entries of the metadata it has read.
    read: usize,
    log: Vec<Record>,
    leading: Option<Leading>,
}

struct History {
    world: World,
    brokers: BTreeMap<i32, Broker>,
    /// Everything that was ever below a high watermark.
    committed: Vec<Record>,
    written: u32,
}

impl History {
    fn new() -> Self {
        let mut world = World::with_brokers(BROKERS);
        world.topic(TOPIC, REPLICAS);
        let broker = |_| Broker {
            alive: true,
            image: MetadataImage::default(),
            read: 0,
            log: Vec::new(),
            leading: None,
        };
        let mut history = Self {
            brokers: (1..=BROKERS).map(|id| (id, broker(id))).collect(),
            world,
            committed: Vec::new(),
            written: 0,
        };
        for id in 1..=BROKERS {
            history.learn(id, usize::MAX);
        }
        history
    }

    fn decided(&self) -> &PartitionImage {
        self.world.partition(TOPIC, 0)
    }

    fn learn(&mut self, id: i32, entries: usize) {
        let broker = self.brokers.get_mut(&id).unwrap();
        if !broker.alive {
            return;
        }
        let unread = self.world.log.iter().skip(broker.read).take(entries);
        for (offset, batch) in unread {
            let _ = broker.image.apply_batch(*offset, batch);
            broker.read += 1;
            let Some(topic) = broker.image.topic(TOPIC) else {
                continue;
            };
            let partition = topic.partition(0).unwrap();
            let known = broker.leading.as_ref().map(|leading| leading.epoch);
            if known != Some(partition.leader_epoch) {
                broker.leading = (partition.leader == Some(BrokerId(id))).then(|| Leading {
                    epoch: partition.leader_epoch,
                    partition_epoch: PartitionEpoch(-1),
                    isr: BTreeSet::new(),
                    elr: Vec::new(),
                    joining: None,
                    pending: false,
                    start: broker.log.len(),
                    ends: BTreeMap::new(),
                });
            }
            if let Some(leading) = &mut broker.leading {
                leading.settle(partition.partition_epoch, &partition.isr, &partition.elr);
            }
        }
        self.commit(id);
    }

    /// The rule by which a leader raises its high watermark.
    fn commit(&mut self, id: i32) {
        let broker = &self.brokers[&id];
        let Some(leading) = &broker.leading else {
            return;
        };
        let topic = broker.image.topic(TOPIC).unwrap();
        let replicas = topic.partition(0).unwrap().replicas.len();
        let min = broker.image.min_insync_replicas(TOPIC).min(replicas);
        if leading.isr.len() < min || !leading.elr.is_empty() {
            return;
        }
        let maximal = leading.isr.iter().copied().chain(leading.joining);
        let mut end = broker.log.len();
        for member in maximal.filter(|member| member.0 != id) {
            match leading.ends.get(&member) {
                Some(known) => end = end.min(*known),
                None => return,
            }
        }
        let new = &broker.log[..end];
        let agreed = new.len().min(self.committed.len());
        assert_eq!(
            new[..agreed],
            self.committed[..agreed],
            "{id} shows other records than were visible"
        );
        if new.len() > agreed {
            self.committed = new.to_vec();
        }
    }

    fn fetch(&mut self, id: i32) {
        let follower = &self.brokers[&id];
        let Some(topic) = follower.image.topic(TOPIC).filter(|_| follower.alive) else {
            return;
        };
        let partition = topic.partition(0).unwrap();
        let (Some(leader), epoch) = (partition.leader, partition.leader_epoch) else {
            return;
        };
        if leader.0 == id || !partition.replicas.contains(&BrokerId(id)) {
            return;
        }
        let source = &self.brokers[&leader.0];
        let leads = source
            .leading
            .as_ref()
            .is_some_and(|leading| leading.epoch == epoch);
        if !source.alive || !leads {
            return;
        }
        let log = source.log.clone();
        let end = log.len();
        self.brokers.get_mut(&id).unwrap().log = log;
        let leading = self
            .brokers
            .get_mut(&leader.0)
            .unwrap()
            .leading
            .as_mut()
            .unwrap();
        leading.ends.insert(BrokerId(id), end);
        self.commit(leader.0);
    }

    fn propose(
        &mut self,
        id: i32,
        change: impl FnOnce(&mut Leading) -> Option<BTreeSet<BrokerId>>,
        answered: bool,
    ) {
        let topic_id = self.world.image.topic(TOPIC).unwrap().id;
        let broker = self.brokers.get_mut(&id).unwrap();
        let Some(epoch) = broker.image.broker(BrokerId(id)).map(|broker| broker.epoch) else {
            return;
        };
        let Some(leading) = broker
            .leading
            .as_mut()
            .filter(|leading| broker.alive && !leading.pending)
        else {
            return;
        };
        let Some(members) = change(leading) else {
            return;
        };
        leading.pending = true;
        // As the leader heard from them: the incarnation it knows of.
        let heard = |member: BrokerId| {
            broker
                .image
                .broker(member)
                .map_or(BrokerEpoch(0), |broker| broker.epoch)
        };
        let request = AlterPartitionRequest {
            broker_id: BrokerId(id),
            broker_epoch: epoch,
            partitions: vec![AlterPartition {
                topic_id,
                partition: 0,
                leader_epoch: leading.epoch,
                partition_epoch: leading.partition_epoch,
                new_isr: members
                    .into_iter()
                    .map(|member| (member, heard(member)))
                    .collect(),
                leader_recovery_state: LeaderRecoveryState::Recovered,
            }],
        };
        let reply: Option<AlterPartitionResult> = isr::alter_partition(&self.world.image, &request)
            .ok()
            .map(|decision| self.world.commit(decision).partitions.remove(0));
        let leading = self.brokers.get_mut(&id).unwrap().leading.as_mut().unwrap();
        match reply {
            // INELIGIBLE_REPLICA: certainly not applied.
            Some(result) if result.error == 107 => {
                leading.pending = false;
                leading.joining = None;
            }
            Some(result) if result.error == 0 && answered => {
                leading.settle(result.partition_epoch, &result.isr, &result.elr);
                self.commit(id);
            }
            // Whether it was applied the metadata will tell.
            _ => {}
        }
    }

    /// One of those that think that they lead.
    fn leader(&self, pick: i32) -> Option<i32> {
        let leading = |(_, broker): &(&i32, &Broker)| broker.alive && broker.leading.is_some();
        let leaders: Vec<i32> = self
            .brokers
            .iter()
            .filter(leading)
            .map(|(id, _)| *id)
            .collect();
        leaders.get(pick as usize % leaders.len().max(1)).copied()
    }

    fn step(&mut self, event: &Event) {
        match event {
            Event::Kill(id) => {
                let broker = self.brokers.get_mut(id).unwrap();
                if std::mem::replace(&mut broker.alive, false) {
                    broker.leading = None;
                    self.world.fence(*id);
                }
            }
            Event::Start { broker: id, kept } => {
                let mut request = self.world.request(*id);
                let broker = self.brokers.get_mut(id).unwrap();
                broker.leading = None;
                broker.alive = true;
                if let Some(kept) = kept {
                    broker.log.truncate(*kept);
                    request.not_intact = vec![(self.world.image.topic(TOPIC).unwrap().id, 0)];
                }
                self.world.register(&request).unwrap();
                self.world.beat(*id);
                // What it was told before it started says nothing of its roles.
                let broker = self.brokers.get_mut(id).unwrap();
                broker.image = MetadataImage::default();
                broker.read = self.world.log.len() - 1;
                for (offset, batch) in &self.world.log[..broker.read] {
                    let _ = broker.image.apply_batch(*offset, batch);
                }
                self.learn(*id, 1);
            }
            Event::Learn { broker, entries } => self.learn(*broker, *entries),
            Event::Append(pick) => {
                self.written += 1;
                let record = self.written;
                if let Some(id) = self.leader(*pick) {
                    let broker = self.brokers.get_mut(&id).unwrap();
                    let epoch = broker.leading.as_ref().unwrap().epoch;
                    broker.log.push((epoch, record));
                    self.commit(id);
                }
            }
            Event::Fetch(id) => self.fetch(*id),
            Event::Shrink {
                broker,
                without,
                answered,
            } => {
                let Some(broker) = self.leader(*broker) else {
                    return;
                };
                let me = BrokerId(broker);
                let leave = |leading: &mut Leading| {
                    let mut isr = leading.isr.clone();
                    isr.retain(|member| *member == me || !without.contains(&member.0));
                    (isr != leading.isr).then_some(isr)
                };
                self.propose(broker, leave, *answered);
            }
            Event::Expand {
                broker,
                with,
                answered,
            } => {
                let Some(broker) = self.leader(*broker) else {
                    return;
                };
                let with = BrokerId(*with);
                let visible = self.committed.len();
                let join = |leading: &mut Leading| {
                    let end = *leading.ends.get(&with)?;
                    let may_join =
                        end >= visible && end >= leading.start && !leading.isr.contains(&with);
                    may_join.then(|| {
                        leading.joining = Some(with);
                        leading.isr.iter().copied().chain([with]).collect()
                    })
                };
                self.propose(broker, join, *answered);
            }
            Event::Min(min) => {
                let topic = ConfigResource::Topic(TOPIC.to_owned());
                self.world
                    .set(topic, "min.insync.replicas", Some(&min.to_string()));
            }
            Event::Drain { broker, draining } => {
                self.world
                    .command(&kuorum_metadata::control::Command::DrainBroker {
                        broker_id: BrokerId(*broker),
                        draining: *draining,
                    });
            }
            Event::NewController => {
                let id = self.world.image.controller_id().unwrap() + 1;
                self.world.new_controller(id, &BTreeMap::new());
                // Those that live are heard from before anything is decided.
                let alive: Vec<i32> = self
                    .brokers
                    .iter()
                    .filter(|(_, broker)| broker.alive)
                    .map(|(id, _)| *id)
                    .collect();
                for id in alive {
                    self.world.beat(id);
                }
            }
        }
        self.world.tick();
    }

    /// Whoever may lead has everything.
    fn check(&self) {
        let decided = self.decided();
        for member in decided.isr.iter().chain(&decided.elr) {
            let log = &self.brokers[&member.0].log;
            let agreed = log.len().min(self.committed.len());
            assert_eq!(
                log[..agreed],
                self.committed[..],
                "broker {member} may lead (isr {}, elr {}) and lacks what was visible",
                list(&decided.isr),
                list(&decided.elr)
            );
        }
    }
}

impl Leading {
    fn settle(&mut self, partition_epoch: PartitionEpoch, isr: &[BrokerId], elr: &[BrokerId]) {
        if partition_epoch > self.partition_epoch {
            self.partition_epoch = partition_epoch;
            self.isr = isr.iter().copied().collect();
            self.elr = elr.to_vec();
            self.joining = None;
            self.pending = false;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn histories(events in prop::collection::vec(event(), 1..120)) {
        let mut history = History::new();
        for event in &events {
            history.step(event);
            history.check();
        }
        // Nobody was ever elected who lacked something, and once all are back somebody leads, unless the last one with
        // everything has lost its disk.
        for id in 1..=BROKERS {
            if !history.brokers[&id].alive {
                history.step(&Event::Start { broker: id, kept: None });
            }
        }
        let decided = history.decided();
        prop_assert!(decided.leader.is_some() || decided.isr.is_empty() && decided.elr.is_empty());
        prop_assert!(decided.last_unclean_epoch.is_none());
    }
}

/// R21: two of three die one after the other, then the last, and the others return first.
#[test]
fn last_replica_standing() {
    for (killed, returns, expected) in [
        ([2, 3, 1], [3, 2], "leader=3 epoch=2 isr=3 elr=1"),
        ([2, 3, 1], [2, 3], "leader=3 epoch=2 isr=3 elr=1"),
        ([2, 3, 1], [2, 1], "leader=1 epoch=2 isr=1 elr=3"),
        ([3, 2, 1], [3, 2], "leader=2 epoch=2 isr=2 elr=1"),
        ([1, 2, 3], [1, 2], "leader=2 epoch=4 isr=2 elr=3"),
    ] {
        let mut world = World::with_brokers(3);
        world.topic(TOPIC, "1,2,3");
        let topic = ConfigResource::Topic(TOPIC.to_owned());
        world.set(topic, "min.insync.replicas", Some("2"));
        for broker in killed {
            world.fence(broker);
        }
        let row = format!("killed {killed:?}, back {returns:?}");
        assert_eq!(world.partition(TOPIC, 0).leader, None, "{row}");
        assert_eq!(
            world.partition(TOPIC, 0).isr,
            ids(&killed[2].to_string()),
            "{row}"
        );
        assert_eq!(
            world.partition(TOPIC, 0).elr,
            ids(&killed[1].to_string()),
            "{row}"
        );
        for broker in returns {
            world.start(broker);
        }
        assert_eq!(world.line(TOPIC), expected, "{row}");
    }
}
