//! Topics, partitions, where they go, who leads them on demand, and producer ids.

use std::collections::{BTreeMap, BTreeSet};

use kuorum_metadata::control::command::{
    CreatePartitions, CreateTopics, DeleteTopics, ElectLeaders, ElectionType, NewPartitions,
    NewTopic, TopicSelector,
};
use kuorum_metadata::control::{Command, CommandReply, leaders, producer_ids};
use kuorum_metadata::record::{ConfigResource, MetadataRecord};
use kuorum_metadata::rpc::AllocateProducerIdsRequest;
use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::{BrokerId, ProducerId, TopicId};

use crate::world::{World, ids};

fn new_topic(name: &str, num_partitions: i32, replication_factor: i16) -> NewTopic {
    NewTopic {
        name: name.to_owned(),
        num_partitions,
        replication_factor,
        assignments: Vec::new(),
        configs: Vec::new(),
    }
}

#[test]
fn names() {
    use ErrorCode::{InvalidTopicException as Bad, None as Fine};
    let long = "x".repeat(249);
    let too_long = "x".repeat(250);
    let rows = [
        ("a", Fine),
        ("a.b_c-D9", Fine),
        (long.as_str(), Fine),
        (too_long.as_str(), Bad),
        ("", Bad),
        (".", Bad),
        ("..", Bad),
        ("...", Fine),
        ("a b", Bad),
        ("a/b", Bad),
        ("ä", Bad),
        ("__cluster_metadata", Bad),
        ("__consumer_offsets", Fine),
    ];
    for (name, error) in rows {
        let mut world = World::with_brokers(1);
        let (code, _) = world.create(&new_topic(name, 1, 1));
        assert_eq!(code, error, "{name}");
    }
}

#[test]
fn names_that_share_their_metrics() {
    let mut world = World::with_brokers(1);
    assert_eq!(world.create(&new_topic("a.b", 1, 1)).0, ErrorCode::None);
    assert_eq!(
        world.create(&new_topic("a_b", 1, 1)).0,
        ErrorCode::InvalidTopicException
    );
    assert_eq!(
        world.create(&new_topic("a.b", 1, 1)).0,
        ErrorCode::TopicAlreadyExists
    );
    assert_eq!(world.create(&new_topic("ab", 1, 1)).0, ErrorCode::None);
}

#[test]
fn counts() {
    let rows = [
        (1, 1, ErrorCode::None),
        (-1, -1, ErrorCode::None),
        (12, 3, ErrorCode::None),
        (0, 1, ErrorCode::InvalidPartitions),
        (-2, 1, ErrorCode::InvalidPartitions),
        (1, 0, ErrorCode::InvalidReplicationFactor),
        (1, -2, ErrorCode::InvalidReplicationFactor),
        (1, 4, ErrorCode::InvalidReplicationFactor),
        (i32::MAX, 1, ErrorCode::PolicyViolation),
        (10_000, 1, ErrorCode::PolicyViolation),
        (9_999, 1, ErrorCode::None),
    ];
    for (partitions, factor, error) in rows {
        let mut world = World::with_brokers(3);
        let (code, id) = world.create(&new_topic("t", partitions, factor));
        assert_eq!(code, error, "{partitions} partitions, {factor} replicas");
        assert_eq!(id.is_zero(), code != ErrorCode::None);
        assert_eq!(world.image.topic("t").is_some(), code == ErrorCode::None);
    }
}

#[test]
fn defaults_are_the_clusters() {
    let mut world = World::with_brokers(3);
    let file = BTreeMap::from([
        ("num.partitions".to_owned(), "4".to_owned()),
        ("default.replication.factor".to_owned(), "3".to_owned()),
        ("offsets.topic.num.partitions".to_owned(), "5".to_owned()),
        (
            "offsets.topic.replication.factor".to_owned(),
            "2".to_owned(),
        ),
    ]);
    world.new_controller(2, &file);
    world.create(&new_topic("t", -1, -1));
    assert_eq!(world.image.topic("t").unwrap().partitions.len(), 4);
    assert_eq!(world.partition("t", 0).replicas.len(), 3);
    world.create(&new_topic("__consumer_offsets", -1, -1));
    assert_eq!(
        world
            .image
            .topic("__consumer_offsets")
            .unwrap()
            .partitions
            .len(),
        5
    );
    assert_eq!(world.partition("__consumer_offsets", 0).replicas.len(), 2);
    let config = world.image.effective_topic_config("__consumer_offsets");
    assert!(config.cleanup_policy.compact && !config.cleanup_policy.delete);
    world.create(&new_topic("__transaction_state", 1, 3));
    let config = world.image.effective_topic_config("__transaction_state");
    assert_eq!(config.min_insync_replicas, 2);
}

#[test]
fn assignments() {
    use ErrorCode::{InvalidReplicaAssignment as Bad, InvalidRequest, None as Fine};
    let rows: [(&str, i32, ErrorCode); 10] = [
        ("0=1,2 1=2,3", -1, Fine),
        ("1=2,3 0=1,2", -1, Fine),
        ("0=1,2", 1, InvalidRequest),
        ("1=1,2", -1, Bad),
        ("0=1,2 0=2,3", -1, Bad),
        ("0=1,2 1=3", -1, Bad),
        ("0=1,1", -1, Bad),
        ("0=1,9", -1, Bad),
        ("0=", -1, Bad),
        ("0=4", -1, Bad),
    ];
    for (text, partitions, error) in rows {
        let mut world = World::with_brokers(4);
        world.fence(4);
        let mut topic = new_topic("t", partitions, -1);
        topic.assignments = text
            .split(' ')
            .map(|one| one.split_once('=').unwrap())
            .map(|(index, replicas)| (index.parse().unwrap(), ids(replicas)))
            .collect();
        assert_eq!(world.create(&topic).0, error, "{text}");
        if error == Fine {
            assert_eq!(world.partition("t", 1).replicas, ids("2,3"));
        }
    }
}

#[test]
fn a_fenced_broker_is_a_replica_and_not_in_sync() {
    let mut world = World::with_brokers(3);
    world.fence(2);
    let (code, _) = world.create(&new_topic("t", 30, 3));
    assert_eq!(code, ErrorCode::None);
    let two = BrokerId(2);
    for index in 0..30 {
        let partition = world.partition("t", index);
        assert_eq!(partition.replicas.last(), Some(&two), "a last resort");
        assert_eq!(partition.isr.len(), 2);
        assert!(!partition.isr.contains(&two));
        assert_eq!(partition.leader, partition.preferred_leader());
    }
    world.fence(1);
    world.fence(3);
    assert_eq!(
        world.create(&new_topic("u", 1, 1)).0,
        ErrorCode::InvalidReplicationFactor
    );
}

#[test]
fn each_topic_of_a_request_has_its_own_answer() {
    let mut world = World::with_brokers(1);
    let mut bad_config = new_topic("config", 1, 1);
    bad_config.configs = vec![("retention.ms".to_owned(), Some("x".to_owned()))];
    let mut good_config = new_topic("good", 1, 1);
    good_config.configs = vec![
        ("retention.ms".to_owned(), Some("5".to_owned())),
        ("segment.ms".to_owned(), None),
    ];
    let request = |validate_only| {
        Command::CreateTopics(CreateTopics {
            topics: vec![
                new_topic("twice", 1, 1),
                new_topic("twice", 1, 1),
                bad_config.clone(),
                good_config.clone(),
                new_topic("far", 1, 3),
            ],
            validate_only,
        })
    };
    for validate_only in [true, false] {
        let CommandReply::CreateTopics(results) = world.command(&request(validate_only)) else {
            panic!("an answer to another command");
        };
        let codes: Vec<ErrorCode> = results.iter().map(|result| result.outcome.code()).collect();
        assert_eq!(
            codes,
            [
                ErrorCode::InvalidRequest,
                ErrorCode::InvalidRequest,
                ErrorCode::InvalidConfig,
                ErrorCode::None,
                ErrorCode::InvalidReplicationFactor
            ]
        );
        assert_eq!(world.image.topic_count(), usize::from(!validate_only));
    }
    assert_eq!(
        world.image.effective_topic_config("good").retention_ms,
        Some(5)
    );
}

#[test]
fn replicas_are_balanced_and_spread_over_racks() {
    for seed in 0..20 {
        let mut world = World::new();
        world.random = kuorum_metadata::control::Random::new(seed);
        for broker in 1..=6 {
            let mut request = world.request(broker);
            request.rack = Some(format!("r{}", broker % 3));
            world.register(&request).unwrap();
            world.beat(broker);
        }
        for topic in 0..4 {
            world.create(&new_topic(&format!("t{topic}"), 9, 3));
        }
        let mut leads: BTreeMap<BrokerId, usize> = BTreeMap::new();
        let mut holds: BTreeMap<BrokerId, usize> = BTreeMap::new();
        let mut heirs: BTreeMap<BrokerId, BTreeSet<BrokerId>> = BTreeMap::new();
        for (_, _, partition) in world.image.partitions() {
            let racks: BTreeSet<_> = partition
                .replicas
                .iter()
                .map(|id| world.image.broker(*id).unwrap().rack.clone())
                .collect();
            assert_eq!(racks.len(), 3, "seed {seed}: {:?}", partition.replicas);
            let leader = partition.replicas[0];
            *leads.entry(leader).or_default() += 1;
            heirs
                .entry(leader)
                .or_default()
                .insert(partition.replicas[1]);
            for replica in &partition.replicas {
                *holds.entry(*replica).or_default() += 1;
            }
        }
        assert!(
            leads.values().all(|count| *count == 6),
            "seed {seed}: {leads:?}"
        );
        assert!(
            holds.values().all(|count| (17..=19).contains(count)),
            "seed {seed}: {holds:?}"
        );
        assert!(
            heirs.values().all(|heirs| heirs.len() > 1),
            "seed {seed}: {heirs:?}"
        );
    }
}

#[test]
fn with_three_brokers_leaders_and_heirs_take_turns() {
    let mut world = World::with_brokers(3);
    world.create(&new_topic("t", 12, 3));
    let mut pairs: BTreeMap<(BrokerId, BrokerId), usize> = BTreeMap::new();
    for (_, _, partition) in world.image.partitions() {
        *pairs
            .entry((partition.replicas[0], partition.replicas[1]))
            .or_default() += 1;
    }
    assert!(
        pairs.values().all(|count| *count == 2) && pairs.len() == 6,
        "{pairs:?}"
    );
}

#[test]
fn many_small_topics_are_balanced_too() {
    let mut world = World::with_brokers(3);
    for topic in 0..30 {
        world.create(&new_topic(&format!("t{topic}"), 1, 2));
    }
    let leads = |id| {
        let partitions = world.image.partitions();
        partitions
            .filter(|(_, _, partition)| partition.leader == Some(BrokerId(id)))
            .count()
    };
    assert_eq!([leads(1), leads(2), leads(3)], [10, 10, 10]);
}

#[test]
fn the_same_seed_places_the_same() {
    let place = |seed| {
        let mut world = World::with_brokers(5);
        world.random = kuorum_metadata::control::Random::new(seed);
        world.create(&new_topic("t", 10, 3));
        world.image.digest()
    };
    assert_eq!(place(7), place(7));
    assert_ne!(place(7), place(8));
}

#[test]
fn deleting() {
    let mut world = World::with_brokers(1);
    let a = world.topic("a", "1");
    world.topic("b", "1");
    let unknown = TopicId(uuid::Uuid::from_u128(5));
    let by_name = |name: &str| TopicSelector::Name(name.to_owned());
    let delete = |topics: Vec<TopicSelector>| Command::DeleteTopics(DeleteTopics { topics });
    let codes = |reply| match reply {
        CommandReply::DeleteTopics(results) => results
            .iter()
            .map(|result| result.outcome.code())
            .collect::<Vec<_>>(),
        other => panic!("an answer to another command: {other:?}"),
    };
    let forbid = world.set(
        ConfigResource::ClusterDefault,
        "delete.topic.enable",
        Some("false"),
    );
    assert!(forbid.is_ok());
    let reply = world.command(&delete(vec![by_name("a")]));
    assert_eq!(codes(reply), [ErrorCode::TopicDeletionDisabled]);
    world.set(ConfigResource::ClusterDefault, "delete.topic.enable", None);
    let reply = world.command(&delete(vec![
        TopicSelector::Id(a),
        by_name("c"),
        TopicSelector::Id(unknown),
        by_name("a"),
    ]));
    assert_eq!(
        codes(reply),
        [
            ErrorCode::None,
            ErrorCode::UnknownTopicOrPartition,
            ErrorCode::UnknownTopicId,
            ErrorCode::InvalidRequest
        ]
    );
    assert!(world.image.topic("a").is_none());
    assert_ne!(world.topic("a", "1"), a, "made again it is another topic");
}

#[test]
fn more_partitions() {
    let rows: [(&str, i32, Option<&str>, ErrorCode); 9] = [
        ("t", 5, None, ErrorCode::None),
        ("t", 3, None, ErrorCode::InvalidPartitions),
        ("t", 2, None, ErrorCode::InvalidPartitions),
        ("t", -1, None, ErrorCode::InvalidPartitions),
        ("u", 5, None, ErrorCode::UnknownTopicOrPartition),
        ("t", i32::MAX, None, ErrorCode::PolicyViolation),
        ("t", 5, Some("1,2 2,3"), ErrorCode::None),
        ("t", 5, Some("1,2"), ErrorCode::InvalidReplicaAssignment),
        ("t", 4, Some("1,2,3"), ErrorCode::InvalidReplicaAssignment),
    ];
    for (name, count, assignments, error) in rows {
        let mut world = World::with_brokers(3);
        world.create(&new_topic("t", 3, 2));
        let old: Vec<_> = (0..3)
            .map(|index| world.partition("t", index).clone())
            .collect();
        let command = Command::CreatePartitions(CreatePartitions {
            topics: vec![NewPartitions {
                name: name.to_owned(),
                count,
                assignments: assignments.map(|text| text.split(' ').map(ids).collect()),
            }],
            validate_only: false,
        });
        let CommandReply::CreatePartitions(results) = world.command(&command) else {
            panic!("an answer to another command");
        };
        assert_eq!(results.len(), 1, "every topic is answered");
        assert_eq!(results[0].outcome.code(), error, "{name} to {count}");
        let expected = if error == ErrorCode::None { count } else { 3 };
        assert_eq!(
            world.image.topic("t").unwrap().partitions.len(),
            expected as usize
        );
        for (index, partition) in old.iter().enumerate() {
            assert_eq!(world.partition("t", index as i32), partition);
        }
        if error == ErrorCode::None {
            assert_eq!(world.partition("t", 4).replicas.len(), 2);
        }
    }
}

fn elect(
    world: &mut World,
    election: ElectionType,
    partitions: Option<&str>,
) -> Vec<(String, ErrorCode)> {
    let partitions = partitions.map(|names| {
        let names = names.split(',');
        names.map(|name| (name.to_owned(), 0)).collect()
    });
    let command = Command::ElectLeaders(ElectLeaders {
        election,
        partitions,
    });
    let CommandReply::ElectLeaders(results) = world.command(&command) else {
        panic!("an answer to another command");
    };
    let results = results.into_iter();
    results
        .map(|result| (result.topic, result.outcome.code()))
        .collect()
}

#[test]
fn preferred_elections_stay_in_the_isr() {
    let mut world = World::with_brokers(3);
    world.topic("a", "1,2,3");
    world.topic("b", "2,1,3");
    world.start(1);
    assert_eq!(world.line("a"), "leader=2 epoch=1 isr=2,3");
    let preferred = ElectionType::Preferred;
    let code = |results: Vec<(String, ErrorCode)>| results[0].1;
    assert_eq!(
        code(elect(&mut world, preferred, Some("a"))),
        ErrorCode::PreferredLeaderNotAvailable
    );
    assert_eq!(
        code(elect(&mut world, preferred, Some("b"))),
        ErrorCode::ElectionNotNeeded
    );
    assert_eq!(
        code(elect(&mut world, preferred, Some("c"))),
        ErrorCode::UnknownTopicOrPartition
    );
    let topic_id = world.image.topic("a").unwrap().id;
    let mut record = world.partition("a", 0).to_record(topic_id, 0);
    record.isr = ids("2,3,1");
    world.put(MetadataRecord::Partition(record));
    // Asked for all, those that need nothing are left out.
    assert_eq!(
        elect(&mut world, preferred, None),
        [("a".to_owned(), ErrorCode::None)]
    );
    assert_eq!(world.line("a"), "leader=1 epoch=2 isr=2,3,1");
}

#[test]
fn leadership_goes_back_by_itself_a_few_at_a_time() {
    let mut world = World::with_brokers(2);
    world.topic("a", "1,2");
    world.topic("b", "1,2");
    world.start(1);
    assert_eq!(
        leaders::rebalance(&world.image, &world.soft, 10).response,
        0,
        "1 is not in sync"
    );
    for name in ["a", "b"] {
        let topic_id = world.image.topic(name).unwrap().id;
        let mut record = world.partition(name, 0).to_record(topic_id, 0);
        record.isr = ids("1,2");
        world.put(MetadataRecord::Partition(record));
    }
    let decision = leaders::rebalance(&world.image, &world.soft, 1);
    assert_eq!(world.commit(decision), 1);
    let decision = leaders::rebalance(&world.image, &world.soft, 10);
    assert_eq!(world.commit(decision), 1);
    assert_eq!(world.line("b"), "leader=1 epoch=2 isr=1,2");
}

#[test]
fn an_unclean_election_on_demand_only_replaces_nobody() {
    let mut world = World::with_brokers(2);
    world.topic("a", "1,2");
    let unclean = ElectionType::Unclean;
    let ask = |world: &mut World| elect(world, unclean, Some("a"))[0].1;
    assert_eq!(ask(&mut world), ErrorCode::ElectionNotNeeded);
    world.fence(2);
    world.fence(1);
    assert_eq!(ask(&mut world), ErrorCode::EligibleLeadersNotAvailable);
    world.start(2);
    assert_eq!(world.line("a"), "leader=none epoch=1 isr=1");
    assert_eq!(ask(&mut world), ErrorCode::None);
    assert_eq!(world.line("a"), "leader=2 epoch=2 isr=2");
}

#[test]
fn producer_id_blocks_never_overlap() {
    let mut world = World::with_brokers(2);
    let mut firsts = Vec::new();
    for round in 0..6 {
        let broker = 1 + round % 2;
        if round == 3 {
            world.new_controller(2, &BTreeMap::new());
        }
        let request = AllocateProducerIdsRequest {
            broker_id: BrokerId(broker),
            broker_epoch: world.epoch(broker),
        };
        let decision = producer_ids::allocate(&world.image, &request).unwrap();
        let reply = world.commit(decision);
        assert_eq!(reply.count, 1000);
        firsts.push(reply.first);
    }
    let expected: Vec<ProducerId> = (0..6).map(|block| ProducerId(block * 1000)).collect();
    assert_eq!(firsts, expected);
    let request = AllocateProducerIdsRequest {
        broker_id: BrokerId(1),
        broker_epoch: kuorum_protocol::BrokerEpoch(0),
    };
    let refusal = producer_ids::allocate(&world.image, &request).unwrap_err();
    assert_eq!(refusal.code, ErrorCode::StaleBrokerEpoch);
}
