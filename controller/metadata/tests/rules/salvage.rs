//! Replays of salvaged items: reserved once, done once.

use std::collections::BTreeMap;

use kuorum_metadata::MetadataImage;
use kuorum_metadata::control::command::NewTopic;
use kuorum_metadata::control::salvage::{acknowledge, finish, reserve, stop};
use kuorum_metadata::record::MetadataRecord;
use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::{ProducerId, Timestamp, TopicId};

use crate::world::World;

const ITEM: &str = "6f1c2d7e-0000-4000-8000-000000000007-1-5-150000";

fn world() -> (World, TopicId, TopicId) {
    let mut world = World::with_brokers(3);
    let narrow = world.topic("narrow", "1,2,3");
    let wide = two_partitions(&mut world, "wide");
    (world, narrow, wide)
}

fn two_partitions(world: &mut World, name: &str) -> TopicId {
    let (error, id) = world.create(&NewTopic {
        name: name.to_owned(),
        num_partitions: 2,
        replication_factor: 3,
        assignments: Vec::new(),
        configs: Vec::new(),
    });
    assert_eq!(error, ErrorCode::None);
    id
}

#[test]
fn a_replay_has_one_producer_and_one_end() {
    let (mut world, _, wide) = world();
    let decision = reserve(&world.image, ITEM, wide, 1, 1_000).unwrap();
    let first = world.commit(decision);
    assert_eq!((first.acknowledged, first.replayed), (0, None));
    let again = reserve(&world.image, ITEM, wide, 1, 1_000).unwrap();
    assert!(again.is_unchanged());
    assert_eq!(again.response, first);
    // Another item gets another producer, and so does whoever asks for a block.
    let other = reserve(&world.image, "other", wide, 0, 10).unwrap();
    let other = world.commit(other);
    assert_eq!(other.producer_id, ProducerId(first.producer_id.0 + 1));
    assert_eq!(
        world.image.producer_ids().unwrap().next,
        ProducerId(other.producer_id.0 + 1)
    );

    let decision = acknowledge(&world.image, ITEM, wide, 700).unwrap();
    world.commit(decision);
    assert!(
        acknowledge(&world.image, ITEM, wide, 600)
            .unwrap()
            .is_unchanged()
    );
    world.new_controller(2, &BTreeMap::new());
    let known = world.image.salvage_replay(ITEM, wide).unwrap();
    assert_eq!(
        (known.producer_id, known.acknowledged),
        (first.producer_id, 700)
    );

    let decision = finish(&world.image, ITEM, wide, 1_000, Timestamp(9)).unwrap();
    let done = world.commit(decision);
    let later = finish(&world.image, ITEM, wide, 2_000, Timestamp(10)).unwrap();
    assert!(later.is_unchanged());
    assert_eq!(later.response, done);
    assert!(
        acknowledge(&world.image, ITEM, wide, 5_000)
            .unwrap()
            .is_unchanged()
    );
    let known = world.image.salvage_replay(ITEM, wide).unwrap();
    assert_eq!((known.replayed, known.acknowledged), (Some(done), 1_000));
    let targets: Vec<TopicId> = world
        .image
        .salvage_replays(ITEM)
        .map(|(target, _)| target)
        .collect();
    assert_eq!(targets, [wide]);

    let copy = MetadataImage::from_records(world.image.offset(), &world.image.to_records());
    assert_eq!(copy, world.image, "a snapshot tells of it");
    world.put(MetadataRecord::RemoveTopic { topic_id: wide });
    assert_eq!(
        world.image.salvage_replay(ITEM, wide),
        None,
        "its target is gone"
    );
}

#[test]
fn a_replay_that_is_given_up_goes_on_when_it_is_asked_for() {
    let (mut world, _, wide) = world();
    let running = |world: &World| -> Vec<u64> {
        let running = world.image.running_replays();
        running.map(|(_, _, replay)| replay.acknowledged).collect()
    };
    let decision = reserve(&world.image, ITEM, wide, 1, 1_000).unwrap();
    let first = world.commit(decision);
    world.new_controller(2, &BTreeMap::new());
    assert_eq!(running(&world), [0], "the next controller carries it on");

    let decision = stop(&world.image, ITEM, wide, 300).unwrap();
    world.commit(decision);
    assert!(stop(&world.image, ITEM, wide, 400).unwrap().is_unchanged());
    assert!(running(&world).is_empty(), "given up");
    let copy = MetadataImage::from_records(world.image.offset(), &world.image.to_records());
    assert_eq!(copy, world.image, "a snapshot tells of it");

    // Asked of holders of a shorter copy: the longer one is still what is wanted.
    let decision = reserve(&world.image, ITEM, wide, 1, 400).unwrap();
    let again = world.commit(decision);
    assert_eq!(again.records, 1_000);
    let decision = reserve(&world.image, ITEM, wide, 1, 1_200).unwrap();
    assert_eq!(world.commit(decision).records, 1_200, "one longer still");
    assert_eq!(again.producer_id, first.producer_id, "the same, for ever");
    assert_eq!((again.acknowledged, again.stopped), (300, false));
    assert_eq!(running(&world), [300]);
    let short = finish(&world.image, ITEM, wide, 1_000, Timestamp(9)).unwrap_err();
    assert_eq!(short.code, ErrorCode::InvalidRequest, "more was asked for");
    let decision = finish(&world.image, ITEM, wide, 1_200, Timestamp(9)).unwrap();
    world.commit(decision);
    assert!(stop(&world.image, ITEM, wide, 500).unwrap().is_unchanged());
    assert!(running(&world).is_empty(), "over");
}

#[test]
fn what_cannot_be_replayed_changes_nothing() {
    let (mut world, narrow, wide) = world();
    let internal = two_partitions(&mut world, "__consumer_offsets");
    let rows = [
        (TopicId::ZERO, 0, ErrorCode::UnknownTopicId),
        (narrow, 1, ErrorCode::InvalidPartitions),
        (wide, 2, ErrorCode::InvalidPartitions),
        (wide, -1, ErrorCode::InvalidPartitions),
        (internal, 0, ErrorCode::InvalidTopicException),
    ];
    for (target, partition, expected) in rows {
        let refusal = reserve(&world.image, ITEM, target, partition, 1_000).unwrap_err();
        assert_eq!(refusal.code, expected, "{partition}");
    }
    let refusal = finish(&world.image, ITEM, wide, 1, Timestamp(0)).unwrap_err();
    assert_eq!(refusal.code, ErrorCode::ResourceNotFound);
    let refusal = acknowledge(&world.image, ITEM, wide, 1).unwrap_err();
    assert_eq!(refusal.code, ErrorCode::ResourceNotFound);
    let refusal = stop(&world.image, ITEM, wide, 1).unwrap_err();
    assert_eq!(refusal.code, ErrorCode::ResourceNotFound);
}
