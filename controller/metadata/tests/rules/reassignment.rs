//! Reassignment. In the table, brokers 1 to 6 are active unless `dead`; the partition begins with `on`, its ISR is `isr`
//! (or all), and each step is told as `replicas/adding/removing leader epoch isr`. What a row does not say is not so.

use std::collections::BTreeMap;

use kuorum_metadata::control::command::{
    DeleteTopics, Outcome, Reassign, ReassignPartition, TopicSelector,
};
use kuorum_metadata::control::reassignment::{self, is_listed, plan};
use kuorum_metadata::control::{Command, CommandReply, isr};
use kuorum_metadata::record::{ConfigResource, LeaderRecoveryState};
use kuorum_metadata::rpc::{AlterPartition, AlterPartitionRequest};
use kuorum_metadata::{MetadataImage, PartitionImage};
use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::{BrokerEpoch, BrokerId, TopicId};
use proptest::prelude::*;

use crate::world::{World, ids, list};

/// What it shows, where the partition begins, and each step with what it leads to.
type Story = (
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
);

const STORIES: &[Story] = &[
    (
        "a move to other brokers",
        "1,2,3",
        &[
            (
                "to 4,5,6",
                "4,5,6,1,2,3/4,5,6/1,2,3 leader=1 epoch=0 isr=1,2,3",
            ),
            (
                "isr 1,2,3,4",
                "4,5,6,1,2,3/4,5,6/1,2,3 leader=1 epoch=0 isr=1,2,3,4",
            ),
            (
                "isr 1,2,3,4,5",
                "4,5,6,1,2,3/4,5,6/1,2,3 leader=1 epoch=0 isr=1,2,3,4,5",
            ),
            (
                "isr 1,2,3,4,5,6",
                "NEW_LEADER_ELECTED 4,5,6// leader=4 epoch=1 isr=4,5,6",
            ),
        ],
    ),
    (
        "one of several leaves",
        "1,2,3",
        &[
            ("to 1,2,4", "1,2,4,3/4/3 leader=1 epoch=0 isr=1,2,3"),
            ("isr 1,2,3,4", "1,2,4// leader=1 epoch=1 isr=1,2,4"),
        ],
    ),
    (
        "more replicas: nobody leaves, and the epoch stays",
        "1,2",
        &[
            ("to 1,2,3", "1,2,3/3/ leader=1 epoch=0 isr=1,2"),
            ("isr 1,2,3", "1,2,3// leader=1 epoch=0 isr=1,2,3"),
        ],
    ),
    (
        "fewer replicas: over at once",
        "1,2,3",
        &[("to 1,2", "1,2// leader=1 epoch=1 isr=1,2")],
    ),
    (
        "fewer, without the leader",
        "1,2,3",
        &[("to 3,2", "3,2// leader=3 epoch=1 isr=2,3")],
    ),
    (
        "another order is another preferred leader",
        "1,2,3",
        &[("to 2,1,3", "2,1,3// leader=1 epoch=0 isr=1,2,3")],
    ),
    (
        "as it is already",
        "1,2,3",
        &[("to 1,2,3", "1,2,3// leader=1 epoch=0 isr=1,2,3")],
    ),
    (
        "a target that is in the way: all of it must be in sync, not only what is added (KAFKA-15665)",
        "1,2,3",
        &[
            ("isr 1,3", "1,2,3// leader=1 epoch=0 isr=1,3"),
            ("to 2,4", "2,4,1,3/4/1,3 leader=1 epoch=0 isr=1,3"),
            ("isr 1,3,4", "2,4,1,3/4/1,3 leader=1 epoch=0 isr=1,3,4"),
            (
                "isr 1,2,3,4",
                "NEW_LEADER_ELECTED 2,4// leader=2 epoch=1 isr=2,4",
            ),
        ],
    ),
    (
        "cancelled: back in the order it had",
        "1,2,3",
        &[
            ("to 3,4,1", "3,4,1,2/4/2 leader=1 epoch=0 isr=1,2,3"),
            ("cancel", "1,2,3// leader=1 epoch=1 isr=1,2,3"),
            (
                "cancel",
                "NO_REASSIGNMENT_IN_PROGRESS 1,2,3// leader=1 epoch=1 isr=1,2,3",
            ),
        ],
    ),
    (
        "cancelled while an added one leads",
        "1,2,3",
        &[
            ("to 4,5", "4,5,1,2,3/4,5/1,2,3 leader=1 epoch=0 isr=1,2,3"),
            (
                "isr 1,2,3,4",
                "4,5,1,2,3/4,5/1,2,3 leader=1 epoch=0 isr=1,2,3,4",
            ),
            ("die 1", "4,5,1,2,3/4,5/1,2,3 leader=4 epoch=1 isr=2,3,4"),
            ("cancel", "1,2,3// leader=2 epoch=2 isr=2,3"),
        ],
    ),
    (
        "the last complete replica is not cancelled away",
        "1,2",
        &[
            ("to 3", "3,1,2/3/1,2 leader=1 epoch=0 isr=1,2"),
            ("to 3,4", "3,4,1,2/3,4/1,2 leader=1 epoch=0 isr=1,2"),
            ("isr 1,2,3", "3,4,1,2/3,4/1,2 leader=1 epoch=0 isr=1,2,3"),
            ("die 2", "3,4,1,2/3,4/1,2 leader=1 epoch=0 isr=1,3"),
            ("die 1", "3,4,1,2/3,4/1,2 leader=3 epoch=1 isr=3"),
            (
                "cancel",
                "INVALID_REPLICA_ASSIGNMENT 3,4,1,2/3,4/1,2 leader=3 epoch=1 isr=3",
            ),
            ("unclean", "3,4,1,2/3,4/1,2 leader=3 epoch=1 isr=3"),
            (
                "cancel",
                "INVALID_REPLICA_ASSIGNMENT 3,4,1,2/3,4/1,2 leader=3 epoch=1 isr=3",
            ),
            ("start 2", "3,4,1,2/3,4/1,2 leader=3 epoch=1 isr=3"),
            ("cancel", "1,2// leader=2 epoch=2 isr=2 recovering"),
        ],
    ),
    (
        "replaced: what was added and is complete stays until the end",
        "1,2",
        &[
            ("to 3,4", "3,4,1,2/3,4/1,2 leader=1 epoch=0 isr=1,2"),
            ("isr 1,2,3", "3,4,1,2/3,4/1,2 leader=1 epoch=0 isr=1,2,3"),
            ("to 5,2", "5,2,3,4,1/5/3,4,1 leader=1 epoch=0 isr=1,2,3"),
            (
                "isr 1,2,3,5",
                "NEW_LEADER_ELECTED 5,2// leader=5 epoch=1 isr=2,5",
            ),
        ],
    ),
    (
        "replaced, and then cancelled: back to the first",
        "2,1",
        &[
            ("to 3,4", "3,4,2,1/3,4/2,1 leader=2 epoch=0 isr=2,1"),
            ("to 4,5", "4,5,3,2,1/4,5/3,2,1 leader=2 epoch=0 isr=2,1"),
            ("cancel", "2,1// leader=2 epoch=1 isr=2,1"),
        ],
    ),
    (
        "back by a move to where it was",
        "1,2",
        &[
            ("to 3,2", "3,2,1/3/1 leader=1 epoch=0 isr=1,2"),
            ("to 1,2", "1,2// leader=1 epoch=1 isr=1,2"),
        ],
    ),
    (
        "to a dead broker: it waits",
        "1,2",
        &[
            ("die 5", "1,2// leader=1 epoch=0 isr=1,2"),
            ("to 5,2", "5,2,1/5/1 leader=1 epoch=0 isr=1,2"),
            (
                "isr 1,2,5",
                "INELIGIBLE_REPLICA 5,2,1/5/1 leader=1 epoch=0 isr=1,2",
            ),
            ("start 5", "5,2,1/5/1 leader=1 epoch=0 isr=1,2"),
            (
                "isr 1,2,5",
                "NEW_LEADER_ELECTED 5,2// leader=5 epoch=1 isr=2,5",
            ),
        ],
    ),
    (
        "what leaves may die on the way",
        "1,2",
        &[
            ("to 3,2", "3,2,1/3/1 leader=1 epoch=0 isr=1,2"),
            ("die 1", "3,2,1/3/1 leader=2 epoch=1 isr=2"),
            ("isr 2,3", "3,2// leader=2 epoch=2 isr=2,3"),
        ],
    ),
    (
        "refusals change nothing",
        "1,2,3",
        &[
            (
                "to 4,4,5",
                "INVALID_REPLICA_ASSIGNMENT 1,2,3// leader=1 epoch=0 isr=1,2,3",
            ),
            (
                "to 4,5,9",
                "INVALID_REPLICA_ASSIGNMENT 1,2,3// leader=1 epoch=0 isr=1,2,3",
            ),
            (
                "to ",
                "INVALID_REPLICA_ASSIGNMENT 1,2,3// leader=1 epoch=0 isr=1,2,3",
            ),
            (
                "exactly 4,5",
                "INVALID_REPLICATION_FACTOR 1,2,3// leader=1 epoch=0 isr=1,2,3",
            ),
            (
                "cancel",
                "NO_REASSIGNMENT_IN_PROGRESS 1,2,3// leader=1 epoch=0 isr=1,2,3",
            ),
            (
                "elsewhere",
                "UNKNOWN_TOPIC_OR_PARTITION 1,2,3// leader=1 epoch=0 isr=1,2,3",
            ),
        ],
    ),
];

#[test]
fn stories() {
    for (story, on, steps) in STORIES {
        let mut world = World::with_brokers(6);
        world.topic("t", on);
        for (step, expected) in *steps {
            let error = take(&mut world, step);
            let told = match error {
                ErrorCode::None => told(&world),
                error => format!("{} {}", error.name(), told(&world)),
            };
            assert_eq!(told, *expected, "{story}: {step}");
            whole(world.partition("t", 0), story);
        }
    }
}

fn told(world: &World) -> String {
    let partition = world.partition("t", 0);
    let recovering = match partition.leader_recovery_state {
        LeaderRecoveryState::Recovering => " recovering",
        LeaderRecoveryState::Recovered => "",
    };
    let leader = partition.leader.map_or(-1, |leader| leader.0);
    format!(
        "{}/{}/{} leader={leader} epoch={} isr={}{recovering}",
        list(&partition.replicas),
        list(&partition.adding_replicas),
        list(&partition.removing_replicas),
        partition.leader_epoch,
        list(&partition.isr),
    )
}

fn take(world: &mut World, step: &str) -> ErrorCode {
    let (verb, what) = step.split_once(' ').unwrap_or((step, ""));
    match verb {
        "to" => reassign(world, "t", Some(what), true).code(),
        "exactly" => reassign(world, "t", Some(what), false).code(),
        "elsewhere" => reassign(world, "u", Some("1"), true).code(),
        "cancel" => reassign(world, "t", None, true).code(),
        "isr" => propose(world, "t", &ids(what)),
        "die" => {
            world.fence(what.parse().unwrap());
            ErrorCode::None
        }
        "start" => {
            world.start(what.parse().unwrap());
            ErrorCode::None
        }
        "unclean" => {
            let resource = ConfigResource::Topic("t".to_owned());
            world
                .set(resource, "unclean.leader.election.enable", Some("true"))
                .code()
        }
        other => panic!("no step is called {other}"),
    }
}

fn request(topic: &str, replicas: Option<&str>) -> Reassign {
    Reassign {
        partitions: vec![ReassignPartition {
            topic: topic.to_owned(),
            partition: 0,
            replicas: replicas.map(ids),
        }],
        allow_replication_factor_change: true,
        ..Reassign::default()
    }
}

fn command(world: &mut World, request: Reassign) -> Vec<Outcome> {
    let CommandReply::Reassign(results) = world.command(&Command::Reassign(request)) else {
        panic!("an answer to another command");
    };
    results.into_iter().map(|result| result.outcome).collect()
}

fn reassign(world: &mut World, topic: &str, replicas: Option<&str>, any_factor: bool) -> Outcome {
    let request = Reassign {
        allow_replication_factor_change: any_factor,
        ..request(topic, replicas)
    };
    command(world, request).remove(0)
}

/// The leader proposes an ISR.
fn propose(world: &mut World, topic: &str, members: &[BrokerId]) -> ErrorCode {
    let topic_id = world.image.topic(topic).unwrap().id;
    let partition = world.partition(topic, 0);
    let Some(leader) = partition.leader else {
        return ErrorCode::None;
    };
    let epoch = |id: &BrokerId| match world.image.broker(*id) {
        Some(broker) => broker.epoch,
        None => BrokerEpoch(0),
    };
    let request = AlterPartitionRequest {
        broker_id: leader,
        broker_epoch: world.epoch(leader.0),
        partitions: vec![AlterPartition {
            topic_id,
            partition: 0,
            leader_epoch: partition.leader_epoch,
            partition_epoch: partition.partition_epoch,
            new_isr: members.iter().map(|id| (*id, epoch(id))).collect(),
            leader_recovery_state: LeaderRecoveryState::Recovered,
        }],
    };
    let decision = isr::alter_partition(&world.image, &request).unwrap();
    let reply = world.commit(decision);
    ErrorCode::from(reply.partitions[0].error)
}

/// What holds of a partition at any time.
fn whole(partition: &PartitionImage, story: &str) {
    let replicas = &partition.replicas;
    assert_eq!(
        partition.directories.len(),
        replicas.len(),
        "{story}: directories"
    );
    for members in [
        &partition.isr,
        &partition.adding_replicas,
        &partition.removing_replicas,
    ] {
        assert!(
            members.iter().all(|id| replicas.contains(id)),
            "{story}: {partition:?}"
        );
    }
    let adding = partition.adding_replicas.iter();
    let both = adding.filter(|id| partition.removing_replicas.contains(id));
    assert_eq!(both.count(), 0, "{story}: added and removed at once");
    assert!(
        !partition.target_replicas().is_empty(),
        "{story}: nothing would be left"
    );
    assert_eq!(
        partition.is_reassigning(),
        !partition.original_replicas.is_empty(),
        "{story}"
    );
    if let Some(leader) = partition.leader {
        assert!(
            partition.isr.contains(&leader),
            "{story}: a leader out of sync"
        );
    }
}

#[test]
fn a_move_under_way_may_be_asked_for_again_with_another_throttle() {
    let mut world = World::with_brokers(3);
    world.topic("one", "1,2");
    assert!(reassign(&mut world, "one", Some("1,2,3"), true).is_ok());
    let epoch = world.partition("one", 0).partition_epoch;
    // That the number of replicas may change was said when it began.
    for rate in [5_000, 7_000] {
        let again = Reassign {
            throttle: Some(rate),
            allow_replication_factor_change: false,
            ..request("one", Some("1,2,3"))
        };
        let outcome = command(&mut world, again).remove(0);
        assert!(outcome.is_ok(), "{outcome:?}");
        let shared = world.image.configs_of(&ConfigResource::ClusterDefault);
        let now = shared.and_then(|values| values.get("leader.replication.throttled.rate"));
        assert_eq!(now, Some(&rate.to_string()));
    }
    assert_eq!(world.partition("one", 0).partition_epoch, epoch);
    // Somewhere else is another move.
    let other = reassign(&mut world, "one", Some("1,2,3,4"), false);
    assert!(!other.is_ok());
    let shorter = reassign(&mut world, "one", Some("3"), false);
    let words = shorter.message.unwrap_or_default();
    assert!(
        words.contains("--allow-replication-factor-change"),
        "{words}"
    );
}

#[test]
fn a_throttle_comes_with_the_moves_and_goes_with_the_last_of_them() {
    let mut world = World::with_brokers(4);
    let one = world.topic("one", "1,2");
    world.topic("two", "2,1");
    let throttled = |topic: &str, replicas| Reassign {
        throttle: Some(5_000),
        ..request(topic, Some(replicas))
    };
    assert!(command(&mut world, throttled("one", "3,2"))[0].is_ok());
    assert!(command(&mut world, throttled("two", "4,1"))[0].is_ok());
    let values = |world: &World, resource: ConfigResource| -> BTreeMap<String, String> {
        let values = world.image.configs_of(&resource);
        let pairs = values.into_iter().flatten();
        pairs
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    };
    let topic = |name: &str| ConfigResource::Topic(name.to_owned());
    let of = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    };
    assert_eq!(
        values(&world, topic("one")),
        of(&[
            (reassignment::LEADER_REPLICAS, "0:3,0:2,0:1"),
            (reassignment::FOLLOWER_REPLICAS, "0:3"),
        ])
    );
    let rates = of(&[
        (reassignment::LEADER_RATE, "5000"),
        (reassignment::FOLLOWER_RATE, "5000"),
    ]);
    assert_eq!(values(&world, ConfigResource::ClusterDefault), rates);
    assert_eq!(
        world
            .image
            .broker_number(BrokerId(3), reassignment::LEADER_RATE),
        5000
    );
    // The first ends by being completed, the second by being cancelled.
    assert_eq!(
        propose(&mut world, "one", &ids("1,2,3")),
        ErrorCode::NewLeaderElected
    );
    assert_eq!(world.image.partition(one, 0).unwrap().replicas, ids("3,2"));
    assert_eq!(values(&world, topic("one")), of(&[]));
    assert_eq!(values(&world, ConfigResource::ClusterDefault), rates);
    assert!(reassign(&mut world, "two", None, true).is_ok());
    assert_eq!(values(&world, topic("two")), of(&[]));
    assert_eq!(values(&world, ConfigResource::ClusterDefault), of(&[]));
    // A topic that is deleted on the way takes its throttle with it.
    assert!(command(&mut world, throttled("two", "4,1"))[0].is_ok());
    world.command(&Command::DeleteTopics(DeleteTopics {
        topics: vec![TopicSelector::Name("two".to_owned())],
    }));
    assert_eq!(values(&world, ConfigResource::ClusterDefault), of(&[]));
    let refused = command(
        &mut world,
        Reassign {
            throttle: Some(0),
            ..request("one", Some("1,2"))
        },
    );
    assert!(
        refused[0]
            .message
            .as_deref()
            .unwrap()
            .starts_with("throttle:")
    );
}

#[test]
fn throttled_lists() {
    for (text, expected) in [
        ("0:3", true),
        ("0:4,0:3", true),
        (" 0 : 3 ", true),
        ("*", true),
        ("1:3", false),
        ("0:33", false),
        ("", false),
        ("0", false),
        ("0:3:1", false),
        ("a:b", false),
    ] {
        assert_eq!(is_listed(text, 0, BrokerId(3)), expected, "{text:?}");
    }
}

#[test]
fn all_or_nothing_and_a_dry_run_change_nothing() {
    let mut world = World::with_brokers(4);
    world.topic("t", "1,2");
    let move_of = |topic: &str| ReassignPartition {
        topic: topic.to_owned(),
        partition: 0,
        replicas: Some(ids("3,4")),
    };
    let before = world.image.offset();
    let both = Reassign {
        partitions: vec![move_of("t"), move_of("nowhere"), move_of("t")],
        all_or_nothing: true,
        ..Reassign::default()
    };
    let outcomes = command(&mut world, both.clone());
    let codes: Vec<_> = outcomes.iter().map(Outcome::code).collect();
    let unknown = ErrorCode::UnknownTopicOrPartition;
    assert_eq!(codes, [ErrorCode::None, unknown, ErrorCode::InvalidRequest]);
    let dry = Reassign {
        validate_only: true,
        ..request("t", Some("3,4"))
    };
    assert!(command(&mut world, dry)[0].is_ok());
    assert_eq!(world.image.offset(), before);
    // Without it the good ones go.
    command(
        &mut world,
        Reassign {
            all_or_nothing: false,
            ..both
        },
    );
    assert!(world.partition("t", 0).is_reassigning());
}

#[test]
fn new_partitions_have_as_many_replicas_as_the_moved_ones_will_have() {
    let mut world = World::with_brokers(4);
    world.topic("t", "1,2");
    assert!(reassign(&mut world, "t", Some("3,4"), true).is_ok());
    world.command(&Command::CreatePartitions(
        kuorum_metadata::control::command::CreatePartitions {
            topics: vec![kuorum_metadata::control::command::NewPartitions {
                name: "t".to_owned(),
                count: 2,
                assignments: None,
            }],
            validate_only: false,
        },
    ));
    assert_eq!(world.partition("t", 1).replicas.len(), 2);
}

/// A cluster of six brokers in `racks` racks (none if 0), and topics of 3 replicas, each partition placed by the product.
fn placed(racks: i32, partitions: i32) -> World {
    let mut world = World::new();
    for broker in 1..=6 {
        let mut request = world.request(broker);
        request.rack = (racks > 0).then(|| format!("r{}", broker % racks));
        world.register(&request).unwrap();
        world.beat(broker);
    }
    for name in ["a", "b"] {
        let (error, _) = world.create(&kuorum_metadata::control::command::NewTopic {
            name: name.to_owned(),
            num_partitions: partitions,
            replication_factor: 3,
            assignments: Vec::new(),
            configs: Vec::new(),
        });
        assert_eq!(error, ErrorCode::None);
    }
    world
}

fn spread(counts: &BTreeMap<BrokerId, usize>) -> usize {
    counts.values().max().unwrap() - counts.values().min().unwrap()
}

#[test]
fn plans_are_balanced_and_move_no_more_than_they_must() {
    for (racks, partitions, brokers) in [
        (0, 12, "4,5,6"),
        (0, 7, "1,2,3,4,5,6"),
        (3, 12, "1,2,3,4,5,6"),
        (3, 9, "1,2,3"),
        (3, 10, "4,5,6,1"),
        (2, 6, "1,2,3,4"),
        (0, 5, "2,3,4,5,6"),
        (6, 11, "1,2,3,4,5"),
    ] {
        let what = format!("{racks} racks, {partitions} partitions onto {brokers}");
        let world = placed(racks, partitions);
        let brokers = ids(brokers);
        let topics = ["a".to_owned(), "b".to_owned()];
        let planned = plan(&world.image, &topics, &brokers).unwrap();
        assert_eq!(planned.len(), 2 * partitions as usize, "{what}");
        let mut holds: BTreeMap<BrokerId, usize> = brokers.iter().map(|id| (*id, 0)).collect();
        let mut leads = holds.clone();
        for one in &planned {
            let mut distinct = one.replicas.clone();
            distinct.sort_unstable();
            distinct.dedup();
            assert_eq!(distinct.len(), 3, "{what}: {one:?}");
            for replica in &one.replicas {
                *holds
                    .get_mut(replica)
                    .unwrap_or_else(|| panic!("{what}: {one:?}")) += 1;
            }
            *leads.get_mut(&one.replicas[0]).unwrap() += 1;
            let rack = |id: &BrokerId| world.image.broker(*id).unwrap().rack.clone();
            let available: std::collections::BTreeSet<_> =
                brokers.iter().filter_map(rack).collect();
            let used: std::collections::BTreeSet<_> =
                one.replicas.iter().filter_map(rack).collect();
            assert_eq!(used.len(), available.len().min(3), "{what}: {one:?}");
        }
        let tolerated = if racks == 2 || brokers.len() == 4 {
            usize::MAX
        } else {
            2
        };
        assert!(spread(&holds) <= tolerated, "{what}: {holds:?}");
        assert!(spread(&leads) <= 2.max(tolerated), "{what}: {leads:?}");
        assert_eq!(
            plan(&world.image, &topics, &brokers).unwrap(),
            planned,
            "{what}: again"
        );
    }
    // What lies well stays.
    let world = placed(0, 6);
    let planned = plan(&world.image, &["a".to_owned()], &ids("1,2,3,4,5,6")).unwrap();
    let moved: usize = planned
        .iter()
        .map(|one| {
            one.replicas
                .iter()
                .filter(|id| !one.now.contains(id))
                .count()
        })
        .sum();
    assert!(moved <= 3, "{moved} of 18 replicas would move");
}

#[test]
fn plans_that_cannot_be() {
    let world = placed(0, 2);
    for (topics, brokers, field) in [
        (vec!["a"], "4,5", "brokers:"),
        (vec!["a"], "4,5,9", "brokers:"),
        (vec!["a"], "4,5,5", "brokers:"),
        (vec!["c"], "4,5,6", "topics:"),
        (vec!["a"], "", "brokers:"),
    ] {
        let topics: Vec<String> = topics.into_iter().map(str::to_owned).collect();
        let refusal = plan(&world.image, &topics, &ids(brokers)).unwrap_err();
        assert!(refusal.message.starts_with(field), "{brokers}: {refusal}");
    }
    assert_eq!(plan(&world.image, &[], &ids("1")).unwrap(), []);
}

#[derive(Clone, Debug)]
enum Event {
    Die(i32),
    Start(i32),
    Propose(Vec<i32>),
    Reassign(Vec<i32>),
    Cancel,
    Tick,
}

fn event() -> impl Strategy<Value = Event> {
    let broker = 1..=6;
    let some = prop::collection::btree_set(broker.clone(), 1..5);
    prop_oneof![
        3 => broker.clone().prop_map(Event::Die),
        4 => broker.prop_map(Event::Start),
        8 => some.clone().prop_map(|members| Event::Propose(members.into_iter().collect())),
        3 => (some, any::<usize>()).prop_map(|(members, turn)| {
            let mut target: Vec<i32> = members.into_iter().collect();
            let turn = turn % target.len();
            target.rotate_left(turn);
            Event::Reassign(target)
        }),
        1 => Just(Event::Cancel),
        1 => Just(Event::Tick),
    ]
}

fn step(world: &mut World, event: &Event) {
    let fenced = |world: &World, id: i32| world.image.broker(BrokerId(id)).unwrap().fenced;
    match event {
        Event::Die(id) if !fenced(world, *id) => world.fence(*id),
        Event::Start(id) if fenced(world, *id) => world.start(*id),
        Event::Die(_) | Event::Start(_) => {}
        Event::Propose(members) => {
            // A leader proposes itself and some of the replicas.
            let partition = world.partition("t", 0);
            let leader = partition.leader;
            let mut members: Vec<BrokerId> = members.iter().copied().map(BrokerId).collect();
            members.retain(|id| partition.replicas.contains(id) && Some(*id) != leader);
            members.extend(leader);
            propose(world, "t", &members);
        }
        Event::Reassign(target) => {
            let target: Vec<BrokerId> = target.iter().copied().map(BrokerId).collect();
            reassign(world, "t", Some(&list(&target)), true);
        }
        Event::Cancel => {
            reassign(world, "t", None, true);
        }
        Event::Tick => {
            world.tick();
        }
    }
}

/// From one entry to the next. What is in the ISR is complete; nothing else is.
fn follows(old: &PartitionImage, new: &PartitionImage, events: &[Event]) {
    let told = format!("{old:?}\n→ {new:?}\nafter {events:?}");
    whole(new, &told);
    assert!(!new.isr.is_empty(), "nobody is complete: {told}");
    // What a leader vouches for in the very entry that completes a move has never been seen in an ISR before.
    let completed = old.is_reassigning() && new.replicas == old.target_replicas();
    let joined = completed && matches!(events.last(), Some(Event::Propose(_)));
    assert!(
        joined || new.isr.iter().any(|id| old.isr.contains(id)),
        "the last complete replica is gone: {told}"
    );
    if new.leader != old.leader || old.replicas.iter().any(|id| !new.replicas.contains(id)) {
        assert!(new.leader_epoch > old.leader_epoch, "an old epoch: {told}");
    }
    if let Some(leader) = new.leader
        && new.leader != old.leader
    {
        assert!(
            joined || old.isr.contains(&leader),
            "an unclean leader: {told}"
        );
    }
    if old.is_reassigning() && !new.is_reassigning() {
        let back = new.replicas == old.original_replicas;
        let elsewhere = matches!(events.last(), Some(Event::Reassign(target)) if list(&new.replicas) == list(&target.iter().copied().map(BrokerId).collect::<Vec<_>>()));
        assert!(completed || back || elsewhere, "ended nowhere: {told}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn histories(events in prop::collection::vec(event(), 1..60)) {
        let mut world = World::with_brokers(6);
        let id: TopicId = world.topic("t", "1,2,3");
        for (turn, event) in events.iter().enumerate() {
            let entries = world.log.len();
            let mut before = MetadataImage::from_records(world.image.offset(), &world.image.to_records());
            step(&mut world, event);
            for (offset, batch) in &world.log[entries..] {
                let mut after = before.clone();
                let _ = after.apply_batch(*offset, batch);
                follows(before.partition(id, 0).unwrap(), after.partition(id, 0).unwrap(), &events[..=turn]);
                before = after;
            }
            prop_assert_eq!(&before, &world.image);
        }
        // When everybody is well again and caught up, what runs comes to its end.
        for broker in 1..=6 {
            step(&mut world, &Event::Start(broker));
        }
        world.tick();
        let all = world.partition("t", 0).replicas.clone();
        let target = world.partition("t", 0).target_replicas();
        propose(&mut world, "t", &all);
        let partition = world.partition("t", 0);
        prop_assert!(!partition.is_reassigning(), "{:?}", partition);
        prop_assert_eq!(&partition.replicas, &target);
    }
}
