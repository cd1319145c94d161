//! What holds after every entry of every history: brokers that start, die, stall and are wiped, controllers that change,
//! leaders that propose whatever they like.

use std::collections::{BTreeMap, BTreeSet};

use kuorum_metadata::control::command::{ElectLeaders, ElectionType};
use kuorum_metadata::control::election::{Standing, effective_min_isr};
use kuorum_metadata::control::heartbeats::SessionId;
use kuorum_metadata::control::{Command, isr};
use kuorum_metadata::record::{ConfigResource, LeaderRecoveryState};
use kuorum_metadata::rpc::{AlterPartition, AlterPartitionRequest};
use kuorum_metadata::{MetadataImage, snapshot};
use kuorum_protocol::{BrokerEpoch, BrokerId, DirectoryId};
use proptest::prelude::*;
use uuid::Uuid;

use crate::world::World;

const BROKERS: i32 = 4;
const TOPICS: [(&str, &str); 3] = [("a", "1,2,3"), ("b", "4,2"), ("c", "3,1,4,2")];

#[derive(Clone, Debug)]
enum Event {
    /// A new incarnation, with all its replicas intact or none.
    Restart {
        broker: i32,
        intact: bool,
    },
    /// A new incarnation on an empty disk.
    Wiped {
        broker: i32,
        disk: u128,
    },
    Beat {
        broker: i32,
        leave: bool,
        fence: bool,
    },
    Open {
        broker: i32,
    },
    Break {
        broker: i32,
    },
    /// Its address refuses connections.
    Refuse {
        broker: i32,
    },
    Pass {
        millis: u64,
    },
    /// A leader, or somebody who thinks so, proposes an ISR.
    Propose {
        broker: i32,
        topic: usize,
        members: Vec<i32>,
        stale: bool,
        recovered: bool,
    },
    Preferred,
    /// min.insync.replicas of a topic is changed.
    Min {
        topic: usize,
        min: i32,
    },
    Drain {
        broker: i32,
        draining: bool,
    },
    NewController,
}

fn event() -> impl Strategy<Value = Event> {
    let broker = 1..=BROKERS;
    prop_oneof![
        2 => (broker.clone(), prop::bool::weighted(0.8)).prop_map(|(broker, intact)| Event::Restart { broker, intact }),
        1 => (broker.clone(), 1..1000u128).prop_map(|(broker, disk)| Event::Wiped { broker, disk }),
        8 => (broker.clone(), prop::bool::weighted(0.1), prop::bool::weighted(0.05))
            .prop_map(|(broker, leave, fence)| Event::Beat { broker, leave, fence }),
        2 => broker.clone().prop_map(|broker| Event::Open { broker }),
        2 => broker.clone().prop_map(|broker| Event::Break { broker }),
        2 => broker.clone().prop_map(|broker| Event::Refuse { broker }),
        3 => prop_oneof![Just(100u64), Just(300), Just(3000), Just(9000)].prop_map(|millis| Event::Pass { millis }),
        6 => (broker.clone(), 0..TOPICS.len(), prop::collection::vec(broker.clone(), 0..5), prop::bool::weighted(0.2), prop::bool::weighted(0.9))
            .prop_map(|(broker, topic, members, stale, recovered)| Event::Propose { broker, topic, members, stale, recovered }),
        1 => Just(Event::Preferred),
        2 => (0..TOPICS.len(), 1..4).prop_map(|(topic, min)| Event::Min { topic, min }),
        1 => (broker, any::<bool>()).prop_map(|(broker, draining)| Event::Drain { broker, draining }),
        1 => Just(Event::NewController),
    ]
}

struct History {
    world: World,
    sessions: BTreeMap<i32, SessionId>,
}

impl History {
    fn new(unclean: bool) -> Self {
        let mut world = World::with_brokers(BROKERS);
        for (name, replicas) in TOPICS {
            world.topic(name, replicas);
        }
        if unclean {
            let resource = ConfigResource::Topic("c".to_owned());
            world.set(resource, "unclean.leader.election.enable", Some("true"));
        }
        Self {
            world,
            sessions: BTreeMap::new(),
        }
    }

    fn step(&mut self, event: &Event) {
        let world = &mut self.world;
        match event {
            Event::Restart { broker, intact } => {
                if let Some(session) = self.sessions.remove(broker) {
                    // It died, and its sockets with it.
                    world
                        .soft
                        .session_closed(BrokerId(*broker), session, world.now);
                }
                let mut request = world.request(*broker);
                let known = world.image.broker(BrokerId(*broker)).unwrap();
                if !known.directories.is_empty() {
                    request.directories = known.directories.clone();
                }
                if !intact {
                    let partitions = world.image.partitions();
                    request.not_intact = partitions
                        .map(|(topic, index, _)| (topic.id, index))
                        .collect();
                }
                world.register(&request).unwrap();
            }
            Event::Wiped { broker, disk } => {
                let mut request = world.request(*broker);
                request.directories =
                    vec![DirectoryId(Uuid::from_u128((*broker as u128) << 32 | disk))];
                // Refused while the earlier one's session is valid.
                let _ = world.register(&request);
            }
            Event::Beat {
                broker,
                leave,
                fence,
            } => {
                let mut beat = world.heartbeat(*broker);
                beat.want_shut_down = *leave;
                beat.want_fence = *fence;
                world.send(&beat).unwrap();
            }
            Event::Open { broker } => {
                let session = world.open(*broker);
                self.sessions.insert(*broker, session);
            }
            Event::Break { broker } => {
                if let Some(session) = self.sessions.remove(broker) {
                    world
                        .soft
                        .session_closed(BrokerId(*broker), session, world.now);
                }
            }
            Event::Refuse { broker } => {
                let epoch = world.epoch(*broker);
                world.soft.refused(BrokerId(*broker), epoch, world.now);
            }
            Event::Pass { millis } => {
                world.pass(*millis);
                world.tick();
                self.quiet();
            }
            Event::Propose {
                broker,
                topic,
                members,
                stale,
                recovered,
            } => {
                let (name, _) = TOPICS[*topic];
                let topic_id = world.image.topic(name).unwrap().id;
                let partition = world.partition(name, 0);
                let epoch = |id: i32| match stale {
                    true => BrokerEpoch(world.epoch(id).0 - 1),
                    false => world.epoch(id),
                };
                let request = AlterPartitionRequest {
                    broker_id: BrokerId(*broker),
                    broker_epoch: world.epoch(*broker),
                    partitions: vec![AlterPartition {
                        topic_id,
                        partition: 0,
                        leader_epoch: partition.leader_epoch,
                        partition_epoch: partition.partition_epoch,
                        new_isr: members
                            .iter()
                            .map(|id| (BrokerId(*id), epoch(*id)))
                            .collect(),
                        leader_recovery_state: match recovered {
                            true => LeaderRecoveryState::Recovered,
                            false => LeaderRecoveryState::Recovering,
                        },
                    }],
                };
                let decision = isr::alter_partition(&world.image, &request).unwrap();
                world.commit(decision);
            }
            Event::Preferred => {
                world.command(&Command::ElectLeaders(ElectLeaders {
                    election: ElectionType::Preferred,
                    partitions: None,
                }));
            }
            Event::Min { topic, min } => {
                let resource = ConfigResource::Topic(TOPICS[*topic].0.to_owned());
                world.set(resource, "min.insync.replicas", Some(&min.to_string()));
            }
            Event::Drain { broker, draining } => {
                world.command(&Command::DrainBroker {
                    broker_id: BrokerId(*broker),
                    draining: *draining,
                });
            }
            Event::NewController => {
                let id = world.image.controller_id().unwrap() + 1;
                world.new_controller(id, &BTreeMap::new());
                self.sessions.clear();
            }
        }
    }

    /// What holds once time has nothing more to ask for.
    fn quiet(&self) {
        let world = &self.world;
        let standing = |id: BrokerId| world.soft.standing(&world.image, id);
        for (topic, _, partition) in world.image.partitions() {
            match partition.leader {
                Some(leader) => {
                    assert_ne!(
                        standing(leader),
                        Standing::Out,
                        "{}: a dead leader",
                        topic.name
                    );
                    if standing(leader) == Standing::Draining {
                        let other = partition
                            .isr
                            .iter()
                            .any(|id| standing(*id) == Standing::Active);
                        assert!(!other, "{}: a drained leader", topic.name);
                    }
                    if standing(leader) == Standing::Active {
                        let out = partition
                            .isr
                            .iter()
                            .any(|id| standing(*id) == Standing::Out);
                        assert!(!out, "{}: a fenced broker in sync", topic.name);
                    }
                }
                None => {
                    let able =
                        partition.isr.iter().chain(&partition.elr).any(|id| {
                            matches!(standing(*id), Standing::Active | Standing::Draining)
                        });
                    assert!(!able, "{}: somebody could lead", topic.name);
                }
            }
        }
    }
}

/// What holds after every entry, and from one to the next.
fn check(before: &MetadataImage, after: &MetadataImage, unclean: bool) {
    for (topic, index, partition) in after.partitions() {
        let name = &topic.name;
        let members: BTreeSet<_> = partition.isr.iter().collect();
        assert_eq!(members.len(), partition.isr.len(), "{name}: a member twice");
        assert!(
            partition
                .isr
                .iter()
                .all(|id| partition.replicas.contains(id)),
            "{name}"
        );
        if let Some(leader) = partition.leader {
            assert!(
                partition.isr.contains(&leader),
                "{name}: a leader that is not in sync"
            );
        }
        if partition.isr.is_empty() && partition.elr.is_empty() {
            // Only a replica that is not intact leaves as the last.
            assert!(
                partition.leader.is_none() && !partition.last_known_elr.is_empty(),
                "{name}"
            );
        }
        let min = effective_min_isr(after, topic, partition);
        assert!(
            partition.elr.is_empty() || partition.isr.len() < min || partition.leader.is_none(),
            "{name}: an ELR beside enough in sync"
        );
        assert!(
            partition
                .elr
                .iter()
                .all(|id| partition.replicas.contains(id) && !partition.isr.contains(id)),
            "{name}: an ELR member that is in sync, or no replica"
        );
        let Some(old) = before.partition(topic.id, index) else {
            continue;
        };
        assert!(
            partition.leader_epoch >= old.leader_epoch,
            "{name}: an older leader epoch"
        );
        assert!(partition.partition_epoch >= old.partition_epoch, "{name}");
        if partition != old {
            assert!(
                partition.partition_epoch > old.partition_epoch,
                "{name}: a silent change"
            );
        }
        if partition.leader != old.leader {
            assert!(
                partition.leader_epoch > old.leader_epoch,
                "{name}: two leaders of one epoch"
            );
        }
        if let Some(leader) = partition.leader
            && partition.leader != old.leader
        {
            assert!(
                after.is_active(leader),
                "{name}: a new leader that is not alive"
            );
            let knows_all = old.isr.contains(&leader) || old.elr.contains(&leader);
            assert!(
                knows_all || unclean && name == "c",
                "{name}: an unclean election"
            );
            assert_eq!(
                !knows_all,
                partition.leader_recovery_state == LeaderRecoveryState::Recovering
                    && partition.last_unclean_epoch == Some(partition.leader_epoch),
                "{name}"
            );
        }
        for joined in partition.isr.iter().filter(|id| !old.isr.contains(id)) {
            assert!(after.is_active(*joined), "{name}: joined and not alive");
        }
        for joined in partition.elr.iter().filter(|id| !old.elr.contains(id)) {
            assert!(
                old.isr.contains(joined),
                "{name}: into the ELR from nowhere"
            );
        }
    }
    for broker in after.brokers() {
        if let Some(old) = before.broker(broker.id) {
            assert!(broker.epoch >= old.epoch, "an older broker epoch");
        }
    }
    assert!(after.controller_epoch() >= before.controller_epoch());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn histories(events in prop::collection::vec(event(), 1..80), unclean in any::<bool>()) {
        let mut history = History::new(unclean);
        for event in &events {
            let entries = history.world.log.len();
            let mut before = MetadataImage::from_records(
                history.world.image.offset(),
                &history.world.image.to_records(),
            );
            history.step(event);
            for (offset, batch) in &history.world.log[entries..] {
                let mut after = before.clone();
                let _ = after.apply_batch(*offset, batch);
                check(&before, &after, unclean);
                before = after;
            }
            prop_assert_eq!(&before, &history.world.image);
        }

        // The log, a snapshot and the image say the same.
        let mut replayed = MetadataImage::default();
        for (offset, batch) in &history.world.log {
            let _ = replayed.apply_batch(*offset, batch);
        }
        prop_assert_eq!(&replayed, &history.world.image);
        let read = snapshot::decode(&snapshot::encode(&replayed)).unwrap();
        prop_assert_eq!(&read, &replayed);
        prop_assert_eq!(read.digest(), replayed.digest());
        for (_, batch) in &history.world.log {
            let text = serde_json::to_string(batch).unwrap();
            let back: kuorum_metadata::RecordBatch = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(&back, batch);
        }

        // And when everybody is well again, everything is led.
        history.world.pass(9000);
        for broker in 1..=BROKERS {
            history.world.start(broker);
        }
        history.world.pass(100);
        for broker in 1..=BROKERS {
            history.world.beat(broker);
        }
        history.world.tick();
        for (topic, _, partition) in history.world.image.partitions() {
            prop_assert!(partition.leader.is_some() || partition.isr.is_empty() && partition.elr.is_empty(), "{} has no leader", topic.name);
        }
    }

    #[test]
    fn hostile_snapshots(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(snapshot::decode(&bytes).is_err());
    }

    #[test]
    fn hostile_properties(text in "\\PC{0,200}") {
        let _ = kuorum_metadata::config_def::parse_properties(&text);
    }
}
