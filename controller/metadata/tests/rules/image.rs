//! The image: the fold of its records, whole or through a snapshot.

use std::collections::BTreeMap;

use kuorum_metadata::image::METADATA_VERSION;
use kuorum_metadata::record::{ConfigResource, MetadataRecord, PartitionChange, RecordBatch};
use kuorum_metadata::snapshot::{self, SnapshotError};
use kuorum_metadata::{Applied, MetadataDelta, MetadataImage};
use kuorum_protocol::{BrokerEpoch, BrokerId, ControllerEpoch, PartitionEpoch, Timestamp};

use crate::world::World;

fn some_cluster() -> World {
    let mut world = World::with_brokers(3);
    world.topic("a", "1,2,3");
    world.topic("b", "2,3");
    world.fence(2);
    world.set(
        ConfigResource::ClusterDefault,
        "log.retention.ms",
        Some("1000"),
    );
    world.set(
        ConfigResource::Topic("a".to_owned()),
        "segment.bytes",
        Some("1000"),
    );
    world
}

#[test]
fn record_0_says_the_version_and_the_controller_is_in_office_after_it() {
    let world = World::new();
    assert_eq!(world.image.feature(METADATA_VERSION), 25);
    assert_eq!(world.image.controller_epoch(), ControllerEpoch(1));
    assert_eq!(world.image.controller_id(), Some(1));
    assert!(matches!(
        world.log[0].1.records[0],
        MetadataRecord::FeatureLevel { .. }
    ));
}

#[test]
fn a_controller_that_left_office_changes_nothing() {
    let mut world = some_cluster();
    let late = RecordBatch {
        controller_epoch: ControllerEpoch(1),
        decided_at: Timestamp::NONE,
        records: vec![MetadataRecord::RemoveTopic {
            topic_id: world.image.topic("a").unwrap().id,
        }],
    };
    world.new_controller(2, &BTreeMap::new());
    let before = world.image.digest();
    let offset = world.image.offset() + 1;
    let applied = world.image.apply_batch(offset, &late);
    assert_eq!(
        applied,
        Applied::Skipped {
            current: ControllerEpoch(2)
        }
    );
    assert_eq!(world.image.digest(), before);
    assert_eq!(
        world.image.offset(),
        offset,
        "the offset counts all the same"
    );
}

#[test]
fn of_two_that_take_office_at_once_the_log_lets_one_through() {
    use kuorum_metadata::control::office::take_office;
    let mut image = MetadataImage::default();
    let one = take_office(&image, 1, &BTreeMap::new());
    let two = take_office(&image, 2, &BTreeMap::new());
    assert!(matches!(image.apply_batch(0, &one), Applied::Done(_)));
    assert!(matches!(
        image.apply_batch(1, &two),
        Applied::Skipped { .. }
    ));
    assert_eq!(image.controller_id(), Some(1));
    let again = take_office(&image, 2, &BTreeMap::new());
    assert!(matches!(image.apply_batch(2, &again), Applied::Done(_)));
    assert_eq!(image.controller_epoch(), ControllerEpoch(2));
}

#[test]
fn a_file_is_compared_with_what_is_recorded() {
    use kuorum_metadata::control::office::{differences, take_office};
    let file = |values: &[(&str, &str)]| -> BTreeMap<String, String> {
        let values = values.iter();
        values
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    };
    let mut image = MetadataImage::default();
    let one = file(&[("num.partitions", "3"), ("min.insync.replicas", "2")]);
    let batch = take_office(&image, 1, &one);
    assert!(matches!(image.apply_batch(0, &batch), Applied::Done(_)));
    assert_eq!(differences(&image, &one), []);
    let other = file(&[("num.partitions", "6"), ("log.retention.ms", "1000")]);
    let shown = |image: &MetadataImage, file| -> Vec<String> {
        let found = differences(image, file).into_iter();
        let say = |value: Option<String>| value.unwrap_or("–".to_owned());
        found
            .map(|one| format!("{}: {} not {}", one.name, say(one.file), say(one.recorded)))
            .collect()
    };
    assert_eq!(
        shown(&image, &other),
        [
            "log.retention.ms: 1000 not –",
            "num.partitions: 6 not 3",
            "min.insync.replicas: – not 2"
        ]
    );
    // Whoever takes office makes its own file the one that holds.
    let batch = take_office(&image, 2, &other);
    assert!(matches!(image.apply_batch(1, &batch), Applied::Done(_)));
    assert_eq!(differences(&image, &other), []);
}

#[test]
fn nothing_is_accepted_before_a_controller_is_in_office() {
    let mut image = MetadataImage::default();
    let batch = RecordBatch {
        controller_epoch: ControllerEpoch(0),
        decided_at: Timestamp::NONE,
        records: vec![MetadataRecord::FeatureLevel {
            name: "x".to_owned(),
            level: 1,
        }],
    };
    assert!(matches!(
        image.apply_batch(0, &batch),
        Applied::Skipped { .. }
    ));
    let future = RecordBatch {
        controller_epoch: ControllerEpoch(3),
        ..batch
    };
    assert!(matches!(
        image.apply_batch(1, &future),
        Applied::Skipped { .. }
    ));
}

#[test]
fn changes_of_an_older_incarnation_are_passed_over() {
    let mut world = some_cluster();
    let before = world.image.digest();
    world.put(MetadataRecord::BrokerRegistrationChange {
        broker_id: BrokerId(1),
        broker_epoch: BrokerEpoch(0),
        fenced: Some(true),
        in_controlled_shutdown: None,
        online_directories: None,
        cause: String::new(),
    });
    world.put(MetadataRecord::UnregisterBroker {
        broker_id: BrokerId(1),
        broker_epoch: BrokerEpoch(0),
    });
    assert_eq!(world.image.digest(), before);
}

#[test]
fn what_names_nothing_known_changes_nothing() {
    let mut world = some_cluster();
    let before = world.image.digest();
    let nowhere = kuorum_protocol::TopicId(uuid::Uuid::from_u128(99));
    let known = world.image.topic("a").unwrap().id;
    for (topic, partition) in [(nowhere, 0), (known, 7)] {
        let change = PartitionChange::of(topic, partition, PartitionEpoch(9), "test");
        world.put(MetadataRecord::PartitionChange(change));
    }
    world.put(MetadataRecord::RemoveTopic { topic_id: nowhere });
    assert_eq!(world.image.digest(), before);
}

#[test]
fn a_removed_topic_takes_its_configuration_with_it() {
    let mut world = some_cluster();
    let topic = world.image.topic("a").unwrap().clone();
    let mut delta = MetadataDelta::default();
    let remove = MetadataRecord::RemoveTopic { topic_id: topic.id };
    world.image.apply(100, &remove, &mut delta);
    assert!(world.image.topic("a").is_none());
    assert!(world.image.topic_by_id(topic.id).is_none());
    assert_eq!(
        world.image.effective_topic_config("a").segment_bytes,
        1 << 30
    );
    assert_eq!(delta.topics_removed.get(&topic.id), Some(&topic));
    assert!(delta.partitions_changed.is_empty());
}

#[test]
fn the_delta_names_what_changed() {
    let mut world = World::with_brokers(2);
    let topic = world.topic("t", "1,2");
    let before = world.image.clone();
    world.fence(1);
    let offset = world.image.offset();
    let (_, batch) = world.log.last().unwrap();
    let mut delta = before.clone().apply_records(offset, &batch.records);
    assert_eq!(delta.brokers_changed, [BrokerId(1)].into());
    assert_eq!(delta.partitions_changed, [(topic, 0)].into());
    assert!(delta.topics_created.is_empty() && delta.configs_changed.is_empty());
    let causes = std::mem::take(&mut delta.leader_causes);
    assert_eq!(causes.len(), 1);
    assert!(
        causes[&(topic, 0)].starts_with("broker fenced"),
        "{causes:?}"
    );
    assert_eq!(
        world.image.changed_since(&before),
        delta,
        "a jump says the same, but not why"
    );
}

#[test]
fn a_jump_says_everything_that_is_different() {
    let world = some_cluster();
    let delta = world.image.changed_since(&MetadataImage::default());
    assert_eq!(delta.topics_created.len(), 2);
    assert_eq!(delta.brokers_changed.len(), 3);
    assert_eq!(delta.configs_changed.len(), 2);
    let back = MetadataImage::default().changed_since(&world.image);
    assert_eq!(back.topics_removed.len(), 2);
    assert_eq!(back.brokers_changed.len(), 3);
    assert!(world.image.changed_since(&world.image).is_empty());
}

#[test]
fn merged_deltas_forget_what_did_not_last() {
    let mut world = World::with_brokers(1);
    let before = world.image.clone();
    let topic = world.topic("t", "1");
    world.put(MetadataRecord::RemoveTopic { topic_id: topic });
    let mut image = before;
    let mut merged = MetadataDelta::default();
    for (offset, batch) in &world.log {
        if *offset > image.offset() {
            let delta = image.apply_records(*offset, &batch.records);
            merged.merge(delta);
        }
    }
    assert!(merged.topics_created.is_empty() && merged.partitions_changed.is_empty());
    assert!(merged.leader_causes.is_empty());
    assert!(merged.topics_removed.contains_key(&topic));
}

#[test]
fn a_snapshot_is_the_same_image() {
    let world = some_cluster();
    let bytes = snapshot::encode(&world.image);
    let read = snapshot::decode(&bytes).unwrap();
    assert_eq!(read, world.image);
    assert_eq!(read.digest(), world.image.digest());
    assert_eq!(snapshot::encode(&read), bytes);
}

#[test]
fn a_damaged_snapshot_is_refused() {
    let bytes = snapshot::encode(&some_cluster().image);
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        assert!(snapshot::decode(&damaged).is_err(), "byte {at}");
    }
    for length in 0..bytes.len() {
        assert!(
            snapshot::decode(&bytes[..length]).is_err(),
            "cut at {length}"
        );
    }
    let mut longer = bytes;
    longer.push(0);
    assert!(matches!(
        snapshot::decode(&longer),
        Err(SnapshotError::WrongLength { .. })
    ));
}

#[test]
fn a_newer_snapshot_is_refused_by_name() {
    let mut bytes = snapshot::encode(&MetadataImage::default());
    bytes[9] = 2;
    assert_eq!(snapshot::decode(&bytes), Err(SnapshotError::NewerFormat(2)));
}

/// Checksums and lengths that a hostile writer made right.
#[test]
fn a_snapshot_does_not_take_more_memory_than_it_declares() {
    let forge = |text_length: u64, body: &[u8]| {
        let mut bytes = snapshot::encode(&MetadataImage::default())[..20].to_vec();
        bytes.extend(text_length.to_be_bytes());
        bytes.extend((body.len() as u64).to_be_bytes());
        let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes), body);
        bytes.extend(crc.to_be_bytes());
        bytes.extend(body);
        bytes
    };
    let bomb = zstd::bulk::compress(&vec![b'\n'; 64 << 20], 1).unwrap();
    assert!(matches!(
        snapshot::decode(&forge(10, &bomb)),
        Err(SnapshotError::NotUnderstood(_))
    ));
    assert!(matches!(
        snapshot::decode(&forge(u64::MAX, &bomb)),
        Err(SnapshotError::TooLarge(_))
    ));
    let strange = zstd::bulk::compress(b"{\"type\":\"Strange\"}\n", 1).unwrap();
    assert!(matches!(
        snapshot::decode(&forge(19, &strange)),
        Err(SnapshotError::NotUnderstood(_))
    ));
}

/// The language of the log is on disks: a change here is a change of format.
#[test]
fn records_on_disk() {
    let change = PartitionChange {
        leader: Some(None),
        ..PartitionChange::of(kuorum_protocol::TopicId::ZERO, 0, PartitionEpoch(1), "test")
    };
    let record = MetadataRecord::PartitionChange(change);
    let text = serde_json::to_string(&record).unwrap();
    assert_eq!(
        text,
        r#"{"type":"PartitionChange","topic_id":"00000000-0000-0000-0000-000000000000","partition":0,"partition_epoch":1,"leader":null,"cause":"test"}"#
    );
    assert_eq!(
        serde_json::from_str::<MetadataRecord>(&text).unwrap(),
        record
    );
    let absent = text.replace(r#""leader":null,"#, "");
    let MetadataRecord::PartitionChange(read) = serde_json::from_str(&absent).unwrap() else {
        panic!("another record");
    };
    assert_eq!(read.leader, None);
}
