//! What is told of the cluster's history: each decision's events, and the bounded list of them.

use std::collections::BTreeMap;

use kuorum_metadata::control::command::{CreatePartitions, NewPartitions, NewTopic};
use kuorum_metadata::control::{Command, reports};
use kuorum_metadata::events::{Event, EventFilter, EventId, EventKind, History, Overrun, derive};
use kuorum_metadata::record::{
    BrokerEventKind, ConfigResource, LeaderRecoveryState, MetadataRecord, PartitionChange,
};
use kuorum_metadata::rpc::{REPORTED_EVENTS_MOST, ReportEventsRequest, ReportedEvent};
use kuorum_metadata::{MetadataImage, snapshot};
use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::{
    BrokerEpoch, BrokerId, DirectoryId, LeaderEpoch, Offset, PartitionEpoch, Timestamp, TopicId,
};
use uuid::Uuid;

use crate::world::{World, ids};

/// `type | sentence | cause` of everything after an event.
fn told(world: &World, after: EventId) -> Vec<String> {
    let events = world.history.after(after).unwrap();
    events
        .map(|event| format!("{} | {event} | {}", event.what.name(), event.cause))
        .collect()
}

type Step = fn(&mut World);

#[test]
fn a_story_and_what_is_told_of_it() {
    let story: [(&str, Step, &[&str]); 12] = [
        (
            "a topic with a setting",
            |world| {
                world.create(&NewTopic {
                    name: "a".to_owned(),
                    num_partitions: -1,
                    replication_factor: -1,
                    assignments: vec![(0, ids("1,2,3")), (1, ids("2,3,1"))],
                    configs: vec![("retention.ms".to_owned(), Some("1000".to_owned()))],
                });
            },
            &["topic_created | topic a: created, 2 partitions, 3 replicas each | topic created"],
        ),
        (
            "a broker dies",
            |world| world.fence(1),
            &[
                "broker_fenced | broker 1: fenced | broker fenced: session stream broken",
                "leader_changed | a-0: broker 2 leads in epoch 1, before it 1 | broker fenced: session stream broken",
                "isr_shrunk | a-0: in sync 2,3, was 1,2,3 | broker fenced: session stream broken",
                "isr_shrunk | a-1: in sync 2,3, was 2,3,1 | broker fenced: session stream broken",
            ],
        ),
        (
            "it comes back",
            |world| {
                world.start(1);
            },
            &[
                "broker_registered | broker 1: registered in epoch 9 | broker restarted",
                "broker_unfenced | broker 1: unfenced | heard from, and caught up with the metadata log",
            ],
        ),
        (
            "its log directory fails",
            |world| {
                let mut heartbeat = world.heartbeat(1);
                heartbeat.offline_directories = vec![crate::world::home(1)];
                world.send(&heartbeat).unwrap();
            },
            &[
                "log_directories_offline | broker 1: 1 log directory offline, 0 left | log directory offline",
            ],
        ),
        (
            "a broker stops in good order",
            |world| {
                let mut heartbeat = world.heartbeat(2);
                heartbeat.want_shut_down = true;
                world.send(&heartbeat).unwrap();
            },
            &[
                "controlled_shutdown_started | broker 2: hands over its leaderships | controlled shutdown",
                "leader_changed | a-0: broker 3 leads in epoch 2, before it 2 | controlled shutdown",
                "isr_shrunk | a-0: in sync 3, was 2,3 | controlled shutdown",
                "leader_changed | a-1: broker 3 leads in epoch 1, before it 2 | controlled shutdown",
                "isr_shrunk | a-1: in sync 3, was 2,3 | controlled shutdown",
            ],
        ),
        (
            "more partitions",
            |world| {
                world.command(&Command::CreatePartitions(CreatePartitions {
                    topics: vec![NewPartitions {
                        name: "a".to_owned(),
                        count: 3,
                        assignments: Some(vec![ids("3,1,2")]),
                    }],
                    validate_only: false,
                }));
            },
            &["partitions_added | topic a: grew from 2 to 3 partitions | partitions added"],
        ),
        (
            "a setting",
            |world| {
                world.set(
                    ConfigResource::Topic("a".to_owned()),
                    "retention.ms",
                    Some("2000"),
                );
            },
            &["config_changed | topic a: retention.ms = 2000, was 1000 | changed on request"],
        ),
        (
            "a setting of the cluster, set and set back",
            |world| {
                for value in [Some("5"), None] {
                    world.set(ConfigResource::ClusterDefault, "segment.ms", value);
                    world.set(ConfigResource::ClusterDefault, "log.roll.ms", value);
                }
            },
            &[
                "config_changed | cluster default log.roll.ms = 5, was (default) | changed on request",
                "config_changed | cluster default log.roll.ms = (default), was 5 | changed on request",
            ],
        ),
        (
            "another controller, whose file says more",
            |world| {
                let file = BTreeMap::from([("num.partitions".to_owned(), "7".to_owned())]);
                world.new_controller(2, &file);
            },
            &[
                "controller_changed | controller 2 is active in epoch 2 | controller took office",
                "config_changed | controllers' file num.partitions = 7, was (default) | the active controller's file says so",
            ],
        ),
        (
            "a truncation is reported",
            |world| {
                let request = reported(world, 2, &[(1, truncated(20, 15, true))]);
                let decision = reports::report(&world.image, &request).unwrap();
                world.commit(decision);
            },
            &[
                "replica_truncated | a-0: broker 2 cut 5 offsets, [15, 20) | written before an unclean election whose \
                 leader did not have it",
            ],
        ),
        (
            "a topic is deleted",
            |world| {
                let topic_id = world.image.topic("a").unwrap().id;
                world.put(MetadataRecord::RemoveTopic { topic_id });
            },
            &["topic_deleted | topic a: deleted, 3 partitions | topic deleted"],
        ),
        (
            "a broker is forgotten",
            |world| {
                let broker_epoch = world.epoch(1);
                world.put(MetadataRecord::UnregisterBroker {
                    broker_id: BrokerId(1),
                    broker_epoch,
                });
            },
            &["broker_unregistered | broker 1: unregistered | broker unregistered"],
        ),
    ];
    let mut world = World::with_brokers(3);
    for (what, act, expected) in story {
        let before = world.history.end();
        world.pass(10);
        act(&mut world);
        assert_eq!(told(&world, before), expected, "{what}");
        for event in world.history.after(before).unwrap() {
            assert_eq!(event.at, world.now.wall, "{what}: {event}");
        }
    }

    // Whoever derives the events of an entry from an image that came through a snapshot derives the same.
    let mut image = MetadataImage::default();
    let mut again = History::new(10_000, 1 << 24);
    for (offset, batch) in &world.log {
        image = snapshot::decode(&snapshot::encode(&image)).unwrap();
        again.push(derive(&image, *offset, batch.decided_at, &batch.records));
        let _ = image.apply_batch(*offset, batch);
    }
    assert!(again.events().eq(world.history.events()));
    // And from the bytes of a log that was written as JSON.
    for (_, batch) in &world.log {
        let text = serde_json::to_string(batch).unwrap();
        assert_eq!(
            serde_json::from_str::<kuorum_metadata::RecordBatch>(&text).unwrap(),
            *batch
        );
    }
}

fn change(world: &World, epoch: i32, with: impl FnOnce(&mut PartitionChange)) -> MetadataRecord {
    let topic_id = world.image.topic("a").unwrap().id;
    let mut change = PartitionChange::of(topic_id, 0, PartitionEpoch(epoch), "why");
    with(&mut change);
    MetadataRecord::PartitionChange(change)
}

#[test]
fn rows() {
    type Record = fn(&World) -> MetadataRecord;
    let rows: [(&str, Record, &[&str]); 14] = [
        (
            "an unclean election",
            |world| {
                change(world, 1, |change| {
                    change.leader = Some(Some(BrokerId(3)));
                    change.leader_epoch = Some(LeaderEpoch(1));
                    change.isr = Some(ids("3"));
                    change.leader_recovery_state = Some(LeaderRecoveryState::Recovering);
                    change.last_unclean_epoch = Some(LeaderEpoch(1));
                })
            },
            &[
                "leader_changed | a-0: broker 3 leads in epoch 1, before it 1 | why",
                "unclean_election | a-0: broker 3 was elected uncleanly in epoch 1, in sync were 1,2 | why",
                "isr_changed | a-0: in sync 3, was 1,2 | why",
            ],
        ),
        (
            "the last leader goes",
            |world| {
                change(world, 1, |change| {
                    change.leader = Some(None);
                    change.leader_epoch = Some(LeaderEpoch(1));
                })
            },
            &["leader_changed | a-0: nobody leads, epoch 1, before it 1 | why"],
        ),
        (
            "a higher epoch under the same leader",
            |world| {
                change(world, 1, |change| {
                    change.leader_epoch = Some(LeaderEpoch(1))
                })
            },
            &["leader_changed | a-0: broker 1 leads in epoch 1, before it 1 | why"],
        ),
        (
            "a joiner",
            |world| change(world, 1, |change| change.isr = Some(ids("1,2,3"))),
            &["isr_expanded | a-0: in sync 1,2,3, was 1,2 | why"],
        ),
        (
            "another order of the ISR",
            |world| change(world, 1, |change| change.isr = Some(ids("2,1"))),
            &[],
        ),
        (
            "eligible replicas",
            |world| change(world, 1, |change| change.elr = Some(ids("3"))),
            &["elr_changed | a-0: eligible 3, was nobody | why"],
        ),
        (
            "a reassignment begins",
            |world| {
                change(world, 1, |change| {
                    change.replicas = Some(ids("1,2,3,4"));
                    change.adding_replicas = Some(ids("4"));
                    change.removing_replicas = Some(ids("1"));
                })
            },
            &["reassignment_started | a-0: reassignment adds 4 and removes 1 | why"],
        ),
        (
            "other replicas at once",
            |world| change(world, 1, |change| change.replicas = Some(ids("2,1,3"))),
            &["reassignment_completed | a-0: reassigned to 2,1,3 | why"],
        ),
        (
            "a directory is told",
            |world| {
                change(world, 1, |change| {
                    change.directories = Some(vec![DirectoryId(Uuid::from_u128(7)); 3]);
                })
            },
            &[],
        ),
        (
            "a partition nobody knows",
            |_| {
                let topic_id = TopicId(Uuid::from_u128(99));
                let mut change = PartitionChange::of(topic_id, 0, PartitionEpoch(1), "why");
                change.leader = Some(None);
                MetadataRecord::PartitionChange(change)
            },
            &[],
        ),
        (
            "fencing an older incarnation",
            |_| MetadataRecord::BrokerRegistrationChange {
                broker_id: BrokerId(1),
                broker_epoch: BrokerEpoch(0),
                fenced: Some(true),
                in_controlled_shutdown: None,
                online_directories: None,
                cause: "why".to_owned(),
            },
            &[],
        ),
        (
            "fencing",
            |world| MetadataRecord::BrokerRegistrationChange {
                broker_id: BrokerId(1),
                broker_epoch: world.epoch(1),
                fenced: Some(true),
                in_controlled_shutdown: None,
                online_directories: None,
                cause: "why".to_owned(),
            },
            &["broker_fenced | broker 1: fenced | why"],
        ),
        (
            "unfencing one that is not fenced",
            |world| MetadataRecord::BrokerRegistrationChange {
                broker_id: BrokerId(1),
                broker_epoch: world.epoch(1),
                fenced: Some(false),
                in_controlled_shutdown: None,
                online_directories: None,
                cause: "why".to_owned(),
            },
            &[],
        ),
        (
            "a feature",
            |_| MetadataRecord::FeatureLevel {
                name: "metadata.version".to_owned(),
                level: 26,
            },
            &["feature_finalized | metadata.version is 26 | feature finalized"],
        ),
    ];
    for (what, record, expected) in rows {
        let mut world = World::with_brokers(3);
        world.topic("a", "1,2,3");
        world.put(change(&world, 1, |change| change.isr = Some(ids("1,2"))));
        let before = world.history.end();
        world.put(record(&world));
        assert_eq!(told(&world, before), expected, "{what}");
    }
}

#[test]
fn a_reassignment_ends_one_way_or_the_other() {
    for (what, replicas, expected) in [
        (
            "completed",
            "4,2,3",
            "reassignment_completed | a-0: reassigned to 4,2,3 | why",
        ),
        (
            "cancelled",
            "1,2,3",
            "reassignment_cancelled | a-0: reassignment cancelled, replicas 1,2,3 | why",
        ),
    ] {
        let mut world = World::with_brokers(4);
        world.topic("a", "1,2,3");
        world.put(change(&world, 1, |change| {
            change.replicas = Some(ids("1,2,3,4"));
            change.adding_replicas = Some(ids("4"));
            change.removing_replicas = Some(ids("1"));
        }));
        let before = world.history.end();
        world.put(change(&world, 2, |change| {
            change.replicas = Some(ids(replicas));
            change.adding_replicas = Some(Vec::new());
            change.removing_replicas = Some(Vec::new());
        }));
        assert_eq!(told(&world, before), [expected], "{what}");
    }
}

#[test]
fn a_recovered_leader_is_told() {
    let mut world = World::with_brokers(2);
    world.topic("a", "1,2");
    world.put(change(&world, 1, |change| {
        change.leader_recovery_state = Some(LeaderRecoveryState::Recovering);
    }));
    let before = world.history.end();
    world.put(change(&world, 2, |change| {
        change.leader_recovery_state = Some(LeaderRecoveryState::Recovered);
    }));
    assert_eq!(
        told(&world, before),
        ["leader_recovered | a-0: the leader of epoch 0 has recovered | why"]
    );
}

#[test]
fn ids_grow_with_the_log_and_too_many_are_counted() {
    let mut last = EventId(0);
    for (offset, place) in [
        (0, 1),
        (0, 2),
        (1, 1),
        (1, 70_000),
        (2, 1),
        ((1 << 37) - 1, 9),
    ] {
        let id = EventId::new(offset, place);
        assert!(id > last && id.0 < 1 << 53, "{offset} {place}");
        assert_eq!(id.offset(), offset);
        last = id;
    }

    // One decision about more partitions than an id can count.
    let mut world = World::with_brokers(1);
    world.topic("a", "1");
    let many: Vec<MetadataRecord> = (0..70_000)
        .map(|epoch| {
            change(&world, epoch, |change| {
                change.leader_epoch = Some(LeaderEpoch(epoch + 1));
            })
        })
        .collect();
    let events = derive(&world.image, 50, Timestamp(7), &many);
    assert_eq!(events.len(), 65_535);
    let last = events.last().unwrap();
    assert_eq!(
        last.what,
        EventKind::Gap {
            missing: 70_000 - 65_534
        }
    );
    assert_eq!(last.id, EventId::new(50, 65_535));
    assert!(events.windows(2).all(|pair| pair[0].id < pair[1].id));
}

fn truncated(from: i64, to: i64, unclean: bool) -> BrokerEventKind {
    BrokerEventKind::ReplicaTruncated {
        from: Offset(from),
        to: Offset(to),
        epoch: Some(LeaderEpoch(1)),
        leader_epoch: LeaderEpoch(2),
        unclean,
    }
}

fn reported(world: &World, broker: i32, events: &[(u64, BrokerEventKind)]) -> ReportEventsRequest {
    let topic_id = world.image.topic("a").unwrap().id;
    ReportEventsRequest {
        broker_id: BrokerId(broker),
        broker_epoch: world.epoch(broker),
        events: events
            .iter()
            .map(|(number, what)| ReportedEvent {
                number: *number,
                at: Timestamp(5),
                topic_id,
                partition: 0,
                what: what.clone(),
            })
            .collect(),
    }
}

#[test]
fn a_report_is_recorded_once() {
    let mut world = World::with_brokers(2);
    world.topic("a", "1,2");
    let before = world.history.end();
    let digest = world.image.digest();
    let report = |world: &mut World, numbers: &[u64]| {
        let events: Vec<_> = numbers
            .iter()
            .map(|number| (*number, truncated(10 + *number as i64, 5, false)))
            .collect();
        let decision = reports::report(&world.image, &reported(world, 2, &events)).unwrap();
        let recorded = decision.records.len();
        world.commit(decision);
        recorded
    };
    assert_eq!(report(&mut world, &[1, 2]), 2);
    assert_ne!(
        world.image.digest(),
        digest,
        "how far it has come is remembered"
    );
    assert_eq!(report(&mut world, &[1, 2]), 0, "the answer was lost");
    assert_eq!(report(&mut world, &[2, 3]), 1);
    // The records are safe to apply again, too.
    let (_, batch) = world.log.last().unwrap().clone();
    world.append(batch);
    assert_eq!(
        told(&world, before),
        [6, 7, 8].map(|records| format!(
            "replica_truncated | a-0: broker 2 cut {records} offsets, [5, {}) | the leader does not have it",
            records + 5
        ))
    );
    // It outlives a snapshot, and a new incarnation counts anew.
    world.image = snapshot::decode(&snapshot::encode(&world.image)).unwrap();
    assert_eq!(report(&mut world, &[3]), 0);
    world.fence(2);
    world.start(2);
    assert_eq!(report(&mut world, &[1]), 1);

    // A topic that is gone by then is named by its id.
    let request = reported(&world, 2, &[(2, truncated(9, 3, false))]);
    let topic_id = world.image.topic("a").unwrap().id;
    world.put(MetadataRecord::RemoveTopic { topic_id });
    let before = world.history.end();
    let decision = reports::report(&world.image, &request).unwrap();
    world.commit(decision);
    let event = world.history.after(before).unwrap().next().unwrap();
    assert_eq!((&event.topic, event.topic_id), (&None, Some(topic_id)));
}

#[test]
fn a_report_with_anything_wrong_in_it_is_refused_whole() {
    let mut world = World::with_brokers(1);
    world.topic("a", "1");
    let many = vec![(1, truncated(2, 1, false)); REPORTED_EVENTS_MOST + 1];
    type Spoil = fn(&mut ReportEventsRequest);
    type Events<'a> = &'a [(u64, BrokerEventKind)];
    let rows: [(&str, Events<'_>, Spoil, ErrorCode, &str); 7] = [
        (
            "another incarnation",
            &[(1, truncated(2, 1, false))],
            |request| request.broker_epoch = BrokerEpoch(0),
            ErrorCode::StaleBrokerEpoch,
            "epoch",
        ),
        (
            "nobody",
            &[(1, truncated(2, 1, false))],
            |request| request.broker_id = BrokerId(9),
            ErrorCode::BrokerIdNotRegistered,
            "broker 9",
        ),
        (
            "too many",
            &many,
            |_| {},
            ErrorCode::InvalidRequest,
            "events holds 257",
        ),
        (
            "number 0",
            &[(0, truncated(2, 1, false))],
            |_| {},
            ErrorCode::InvalidRequest,
            "events[0].number",
        ),
        (
            "numbers that do not rise",
            &[(2, truncated(2, 1, false)), (2, truncated(2, 1, false))],
            |_| {},
            ErrorCode::InvalidRequest,
            "events[1].number",
        ),
        (
            "a truncation that cuts nothing",
            &[(1, truncated(1, 1, false))],
            |_| {},
            ErrorCode::InvalidRequest,
            "events[0].what",
        ),
        (
            "a negative offset",
            &[(1, truncated(1, -1, false))],
            |_| {},
            ErrorCode::InvalidRequest,
            "events[0].what",
        ),
    ];
    for (what, events, spoil, code, names) in rows {
        let mut request = reported(&world, 1, events);
        spoil(&mut request);
        let refusal = reports::report(&world.image, &request).unwrap_err();
        assert_eq!(refusal.code, code, "{what}");
        assert!(refusal.message.contains(names), "{what}: {refusal}");
    }
}

fn numbered(id: i64) -> Event {
    Event {
        id: EventId(id),
        at: Timestamp(1_000 + id),
        topic: Some(format!("topic-{}", id % 3)),
        topic_id: Some(TopicId(Uuid::from_u128(1))),
        partition: Some(0),
        broker: None,
        cause: "why".to_owned(),
        what: EventKind::LeaderRecovered {
            leader_epoch: LeaderEpoch(1),
        },
    }
}

fn ids_of(history: &History) -> Vec<i64> {
    history.events().map(|event| event.id.0).collect()
}

#[test]
fn a_history_is_bounded_and_says_what_it_dropped() {
    let mut history = History::new(4, 1 << 20);
    assert_eq!(history.after(EventId(0)).unwrap().count(), 0);
    history.push((1..=3).map(numbered));
    // A restart derives again what is known.
    history.push((1..=5).map(numbered));
    assert_eq!(ids_of(&history), [2, 3, 4, 5]);
    let overrun = Overrun { floor: EventId(1) };
    assert_eq!(history.after(EventId(0)).err(), Some(overrun));
    assert_eq!(history.after(EventId(1)).unwrap().count(), 4);
    assert_eq!(history.after(EventId(5)).unwrap().count(), 0);
    let ahead = history
        .read(EventId(99), &EventFilter::default(), 10)
        .unwrap();
    assert_eq!(
        ahead,
        (Vec::new(), EventId(99)),
        "a reader is never sent back"
    );

    let (wanted, seen) = history
        .read(EventId(1), &EventFilter::default(), 2)
        .unwrap();
    assert_eq!((wanted.len(), seen), (2, EventId(3)));
    let filter = EventFilter {
        topic: Some("topic-2".to_owned()),
        ..EventFilter::default()
    };
    let (wanted, seen) = history.read(EventId(1), &filter, 10).unwrap();
    let wanted: Vec<i64> = wanted.iter().map(|event| event.id.0).collect();
    assert_eq!(
        (wanted, seen),
        (vec![2, 5], EventId(5)),
        "what is not wanted is seen"
    );

    // The bound in bytes.
    let size = serde_json::to_vec(&numbered(1)).unwrap().len() + 1;
    let mut small = History::new(100, size * 3);
    small.push((1..=9).map(numbered));
    assert_eq!(ids_of(&small), [7, 8, 9]);

    // Through a snapshot, and into a build with other bounds.
    let bytes = history.encode();
    let read = History::decode(&bytes, 4, 1 << 20).unwrap();
    assert_eq!(ids_of(&read), [2, 3, 4, 5]);
    assert_eq!((read.floor(), read.end()), (EventId(1), EventId(5)));
    let fewer = History::decode(&bytes, 2, 1 << 20).unwrap();
    assert_eq!((ids_of(&fewer), fewer.floor()), (vec![4, 5], EventId(3)));
    let none = History::decode(&History::new(4, 99).encode(), 4, 99).unwrap();
    assert!(none.is_empty() && none.end() == EventId(0));
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        assert!(History::decode(&damaged, 4, 1 << 20).is_err(), "byte {at}");
        assert!(
            at == 0 || History::decode(&bytes[..at], 4, 1 << 20).is_err(),
            "{at} bytes"
        );
    }

    // Behind an image.
    let image = MetadataImage::default();
    let mut both = snapshot::encode(&image);
    let alone = both.len();
    both.extend(&bytes);
    let (first, second) = snapshot::split(&both);
    assert_eq!((first.len(), second), (alone, bytes.as_slice()));
    assert_eq!(snapshot::split(&both[..alone]).1.len(), 0);
    assert_eq!(snapshot::split(&both[..5]).1.len(), 0);
}

#[test]
fn filters() {
    let mut world = World::with_brokers(3);
    world.topic("a", "1,2,3");
    world.topic("b", "2,3");
    world.pass(50);
    world.fence(1);
    let all: Vec<_> = world.history.events().cloned().collect();
    let kinds = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let rows: [(&str, EventFilter, &[&str]); 6] = [
        (
            "kinds",
            EventFilter {
                kinds: kinds(&["broker_fenced", "isr_shrunk"]),
                ..EventFilter::default()
            },
            &["broker_fenced", "isr_shrunk"],
        ),
        (
            "topic",
            EventFilter {
                topic: Some("a".to_owned()),
                ..EventFilter::default()
            },
            &["topic_created", "leader_changed", "isr_shrunk"],
        ),
        (
            "partition",
            EventFilter {
                topic: Some("a".to_owned()),
                partition: Some(0),
                ..EventFilter::default()
            },
            &["leader_changed", "isr_shrunk"],
        ),
        (
            "a broker that led and left",
            EventFilter {
                broker: Some(BrokerId(1)),
                since: Some(world.now.wall),
                ..EventFilter::default()
            },
            &["broker_fenced", "leader_changed", "isr_shrunk"],
        ),
        (
            "a broker that leads now",
            EventFilter {
                broker: Some(BrokerId(2)),
                since: Some(world.now.wall),
                ..EventFilter::default()
            },
            &["leader_changed"],
        ),
        (
            "nothing",
            EventFilter {
                since: Some(Timestamp(world.now.wall.0 + 1)),
                ..EventFilter::default()
            },
            &[],
        ),
    ];
    for (what, filter, expected) in rows {
        let found: Vec<&str> = all
            .iter()
            .filter(|event| filter.matches(event))
            .map(|event| event.what.name())
            .collect();
        assert_eq!(found, expected, "{what}");
    }
}

#[test]
fn a_kinds_name_is_its_type_in_json() {
    let mut world = World::with_brokers(2);
    world.topic("a", "1,2");
    world.fence(1);
    for event in world.history.events() {
        let json = serde_json::to_value(event.as_ref()).unwrap();
        assert_eq!(json["type"], event.what.name());
        assert!(EventKind::NAMES.contains(&event.what.name()));
        assert!(json["details"].is_object(), "{json}");
        let back: Event = serde_json::from_value(json).unwrap();
        assert_eq!(back, **event);
    }
}
