//! AlterPartition. The partition has replicas 1,2,3,4, leader 1, leader epoch 5, partition epoch 7, ISR 1,2. Brokers 1, 2
//! and 3 are active, 4 is fenced, 5 is active and no replica. A member's broker epoch is right unless the row says so.

use kuorum_metadata::control::isr::alter_partition;
use kuorum_metadata::record::{LeaderRecoveryState, MetadataRecord, PartitionRecord};
use kuorum_metadata::rpc::{AlterPartition, AlterPartitionRequest, AlterPartitionResult};
use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::{BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch, TopicId};

use crate::world::{World, ids, list};

const ROWS: &str = "
    isr=1,2,3                            => NONE pe=8 isr=1,2,3 le=5
    isr=1                                => NONE pe=8 isr=1 le=5
    isr=1,3                              => NONE pe=8 isr=1,3 le=5
    isr=1,2                              => NONE pe=7 isr=1,2 le=5
    topic=unknown isr=1                  => UNKNOWN_TOPIC_ID
    partition=9 isr=1                    => UNKNOWN_TOPIC_OR_PARTITION
    le=6 isr=1,2,3                       => NOT_CONTROLLER
    pe=8 isr=1,2,3                       => NOT_CONTROLLER
    le=4 pe=8 isr=1,2,3                  => NOT_CONTROLLER
    le=6 pe=6 from=2 isr=9               => NOT_CONTROLLER
    le=4 isr=1,2,3                       => FENCED_LEADER_EPOCH
    le=4 pe=6 from=2 isr=9               => FENCED_LEADER_EPOCH
    from=2 isr=1,2,3                     => INVALID_REQUEST
    from=2 pe=6 isr=1,2,3                => INVALID_REQUEST
    pe=6 isr=1,2,3                       => INVALID_UPDATE_VERSION
    pe=6 isr=9                           => INVALID_UPDATE_VERSION
    isr=1,2,5                            => INVALID_REQUEST
    isr=2,3                              => INVALID_REQUEST
    isr=                                 => INVALID_REQUEST
    isr=1,2,2                            => INVALID_REQUEST
    isr=2,4                              => INVALID_REQUEST
    isr=1,2 state=recovering             => INVALID_REQUEST
    isr=1 state=recovering               => INVALID_REQUEST
    isr=1,4 state=recovering             => INVALID_REQUEST
    isr=1,2,4                            => INELIGIBLE_REPLICA
    isr=1,2,3 unknown=3                  => INELIGIBLE_REPLICA
    isr=1,2,3 old=3                      => INELIGIBLE_REPLICA
    isr=1,2,3 old=2                      => INELIGIBLE_REPLICA
    isr=1,2,3 unknown=2                  => NONE pe=8 isr=1,2,3 le=5
    leaving=3 isr=1,2,3                  => INELIGIBLE_REPLICA
    leaving=2 isr=1,2,3                  => INELIGIBLE_REPLICA
    leaving=1 isr=1,2,3                  => NONE pe=8 isr=1,2,3 le=5
    offline=3 isr=1,2,3                  => INELIGIBLE_REPLICA
    gone=3 isr=1,2,3                     => INELIGIBLE_REPLICA
    was=recovering isr=1 state=recovering => NONE pe=7 isr=1 le=5
    was=recovering isr=1,2 state=recovering => INVALID_REQUEST
    was=recovering isr=1,2,3             => NONE pe=8 isr=1,2,3 le=5
";

#[test]
fn rows() {
    for row in ROWS.lines().map(str::trim).filter(|row| !row.is_empty()) {
        let (given, expected) = row.split_once("=>").unwrap();
        let result = outcome(given);
        let error = ErrorCode::from(result.error);
        let told = match error {
            ErrorCode::None => format!(
                "NONE pe={} isr={} le={}",
                result.partition_epoch,
                list(&result.isr),
                result.leader_epoch
            ),
            error => error.name().to_owned(),
        };
        assert_eq!(told, expected.trim(), "{row}");
    }
}

fn outcome(given: &str) -> AlterPartitionResult {
    let get = |key: &str| {
        let mut words = given.split_whitespace();
        words.find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
    };
    let named = |key: &str| ids(get(key).unwrap_or_default());
    let number = |key: &str, otherwise: i32| get(key).map_or(otherwise, |n| n.parse().unwrap());
    let state = |key: &str| match get(key) {
        Some("recovering") => LeaderRecoveryState::Recovering,
        _ => LeaderRecoveryState::Recovered,
    };

    let mut world = World::with_brokers(5);
    world.fence(4);
    let topic_id = world.topic("t", "1,2,3,4");
    let old = world.epoch(3);
    let directories: Vec<_> = world.partition("t", 0).directories.clone();
    world.put(MetadataRecord::Partition(PartitionRecord {
        directories,
        isr: match state("was") {
            LeaderRecoveryState::Recovered => ids("1,2"),
            LeaderRecoveryState::Recovering => ids("1"),
        },
        leader_epoch: LeaderEpoch(5),
        partition_epoch: PartitionEpoch(7),
        leader_recovery_state: state("was"),
        ..PartitionRecord::of(topic_id, 0, ids("1,2,3,4"))
    }));
    for id in named("leaving").into_iter().chain(named("offline")) {
        world.put(MetadataRecord::BrokerRegistrationChange {
            broker_id: id,
            broker_epoch: world.epoch(id.0),
            fenced: None,
            in_controlled_shutdown: named("leaving").contains(&id).then_some(true),
            online_directories: named("offline").contains(&id).then(Vec::new),
            cause: String::new(),
        });
    }
    let mut epochs: Vec<(BrokerId, BrokerEpoch)> = Vec::new();
    for member in named("isr") {
        let epoch = match world.image.broker(member) {
            Some(broker) => broker.epoch,
            None => BrokerEpoch(0),
        };
        let epoch = if named("unknown").contains(&member) {
            BrokerEpoch::UNKNOWN
        } else if named("old").contains(&member) {
            BrokerEpoch(old.0 - 100)
        } else {
            epoch
        };
        epochs.push((member, epoch));
    }
    for id in named("gone") {
        world.put(MetadataRecord::UnregisterBroker {
            broker_id: id,
            broker_epoch: world.epoch(id.0),
        });
    }
    let from = number("from", 1);
    let request = AlterPartitionRequest {
        broker_id: BrokerId(from),
        broker_epoch: world.epoch(from),
        partitions: vec![AlterPartition {
            topic_id: match get("topic") {
                Some(_) => TopicId::ZERO,
                None => topic_id,
            },
            partition: number("partition", 0),
            leader_epoch: LeaderEpoch(number("le", 5)),
            partition_epoch: PartitionEpoch(number("pe", 7)),
            new_isr: epochs,
            leader_recovery_state: state("state"),
        }],
    };
    let before = world.image.clone();
    let decision = alter_partition(&world.image, &request).unwrap();
    assert_eq!(world.image, before, "deciding changes nothing");
    let mut reply = world.commit(decision);
    let result = reply.partitions.remove(0);
    if result.error != 0 {
        assert_eq!(world.image, before, "a refused proposal changes nothing");
    } else {
        let partition = world.partition("t", 0);
        assert_eq!(result.isr, partition.isr, "the answer is what was applied");
        assert_eq!(result.partition_epoch, partition.partition_epoch);
    }
    result
}

#[test]
fn an_older_incarnation_of_the_leader_is_refused() {
    let mut world = World::with_brokers(2);
    world.topic("t", "1,2");
    let request = AlterPartitionRequest {
        broker_id: BrokerId(1),
        broker_epoch: BrokerEpoch(world.epoch(1).0 - 1),
        partitions: Vec::new(),
    };
    let refusal = alter_partition(&world.image, &request).unwrap_err();
    assert_eq!(refusal.code, ErrorCode::StaleBrokerEpoch);
}

#[test]
fn the_second_proposal_of_a_request_sees_the_first() {
    let mut world = World::with_brokers(3);
    let topic_id = world.topic("t", "1,2,3");
    let proposal = |partition_epoch, members: &[i32]| AlterPartition {
        topic_id,
        partition: 0,
        leader_epoch: LeaderEpoch(0),
        partition_epoch: PartitionEpoch(partition_epoch),
        new_isr: members
            .iter()
            .map(|id| (BrokerId(*id), world.epoch(*id)))
            .collect(),
        leader_recovery_state: LeaderRecoveryState::Recovered,
    };
    let request = AlterPartitionRequest {
        broker_id: BrokerId(1),
        broker_epoch: world.epoch(1),
        partitions: vec![proposal(0, &[1, 2]), proposal(0, &[1, 3])],
    };
    let decision = alter_partition(&world.image, &request).unwrap();
    let reply = world.commit(decision);
    let errors: Vec<ErrorCode> = reply
        .partitions
        .iter()
        .map(|result| ErrorCode::from(result.error))
        .collect();
    assert_eq!(errors, [ErrorCode::None, ErrorCode::InvalidUpdateVersion]);
    assert_eq!(world.line("t"), "leader=1 epoch=0 isr=1,2");
}

#[test]
fn the_elr_is_empty_once_enough_are_in_sync() {
    let mut world = World::with_brokers(3);
    let topic_id = world.topic("t", "1,2,3");
    let elr = |world: &mut World, elr: &str| {
        let mut record = world.partition("t", 0).to_record(topic_id, 0);
        record.isr = ids("1");
        record.elr = ids(elr);
        world.put(MetadataRecord::Partition(record));
    };
    let propose = |world: &mut World, members: &str| {
        let partition = world.partition("t", 0);
        let request = AlterPartitionRequest {
            broker_id: BrokerId(1),
            broker_epoch: world.epoch(1),
            partitions: vec![AlterPartition {
                topic_id,
                partition: 0,
                leader_epoch: partition.leader_epoch,
                partition_epoch: partition.partition_epoch,
                new_isr: ids(members)
                    .into_iter()
                    .map(|id| (id, world.epoch(id.0)))
                    .collect(),
                leader_recovery_state: LeaderRecoveryState::Recovered,
            }],
        };
        let decision = alter_partition(&world.image, &request).unwrap();
        world.commit(decision);
        list(&world.partition("t", 0).elr)
    };
    let resource = kuorum_metadata::record::ConfigResource::Topic("t".to_owned());
    assert!(
        world
            .set(resource, "min.insync.replicas", Some("3"))
            .is_ok()
    );
    elr(&mut world, "2,3");
    assert_eq!(propose(&mut world, "1,2"), "3");
    assert_eq!(propose(&mut world, "1,2,3"), "");
    // Who leaves while fewer than the minimum stay can lead as well as those who stay.
    assert_eq!(propose(&mut world, "1,3"), "2");
    assert_eq!(propose(&mut world, "1"), "2,3");
    assert_eq!(propose(&mut world, "1,2"), "3");
    assert_eq!(propose(&mut world, "1,2,3"), "");
}

#[test]
fn the_answer_names_the_elr() {
    let mut world = World::with_brokers(2);
    let topic_id = world.topic("t", "1,2");
    let resource = kuorum_metadata::record::ConfigResource::Topic("t".to_owned());
    world.set(resource, "min.insync.replicas", Some("2"));
    let request = AlterPartitionRequest {
        broker_id: BrokerId(1),
        broker_epoch: world.epoch(1),
        partitions: vec![AlterPartition {
            topic_id,
            partition: 0,
            leader_epoch: LeaderEpoch(0),
            partition_epoch: PartitionEpoch(0),
            new_isr: vec![(BrokerId(1), world.epoch(1))],
            leader_recovery_state: LeaderRecoveryState::Recovered,
        }],
    };
    let decision = alter_partition(&world.image, &request).unwrap();
    let reply = world.commit(decision);
    assert_eq!(reply.partitions[0].elr, ids("2"));
    assert_eq!(world.line("t"), "leader=1 epoch=0 isr=1 elr=2");
}
