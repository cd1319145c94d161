//! Stories of a broker's replicas, and what it tells of them.

use kuorum_metadata::MetadataImage;
use kuorum_metadata::record::{BrokerEventKind, MetadataRecord, PartitionRecord, RegisterBroker};
use kuorum_protocol::{
    BrokerId, DirectoryId, IncarnationId, LeaderEpoch, Offset, PartitionEpoch, TopicId,
};
use kuorum_replication::Assignment;
use uuid::Uuid;

use super::hosted::event_of;
use super::parallel::in_parallel;
use crate::partition::Truncation;
use crate::testing::{Desk, Topic, topic_id};

fn directory(number: u128) -> DirectoryId {
    DirectoryId(Uuid::from_u128(number))
}

fn broker(id: i32, online: &[u128], fenced: bool, leaving: bool) -> MetadataRecord {
    MetadataRecord::RegisterBroker(RegisterBroker {
        broker_id: BrokerId(id),
        incarnation_id: IncarnationId(Uuid::nil()),
        broker_epoch: None,
        listeners: Vec::new(),
        http: String::new(),
        rack: None,
        directories: online.iter().copied().map(directory).collect(),
        fenced,
        in_controlled_shutdown: leaving,
        version: String::new(),
        last_report: 0,
    })
}

#[tokio::test]
async fn the_checkpoints_forget_a_topic_before_its_name_is_free() {
    let desk = Desk::with(&[Topic::default()]).await;
    let log_starts = || {
        let dir = &desk.rooms.config.log_dirs[0];
        let path = std::path::Path::new(dir).join("log-start-offset-checkpoint");
        std::fs::read_to_string(path).expect("a checkpoint")
    };
    desk.rooms.replicas.checkpoint();
    assert_eq!(log_starts(), "0\n1\norders 0 0\n");
    let topic_id = topic_id("orders");
    desk.learn(vec![MetadataRecord::RemoveTopic { topic_id }])
        .await;
    assert_eq!(log_starts(), "0\n0\n");
}

/// What the cluster says of the one partition of `orders`.
fn replicas(brokers: &[i32], leader: i32, epoch: i32) -> MetadataRecord {
    let brokers: Vec<BrokerId> = brokers.iter().copied().map(BrokerId).collect();
    let mut change = kuorum_metadata::record::PartitionChange::of(
        topic_id("orders"),
        0,
        PartitionEpoch(epoch),
        "a move",
    );
    change.leader_epoch = Some(LeaderEpoch(epoch));
    change.leader = Some(Some(BrokerId(leader)));
    change.directories = Some(vec![DirectoryId::ZERO; brokers.len()]);
    change.isr = Some(vec![BrokerId(leader)]);
    change.replicas = Some(brokers);
    MetadataRecord::PartitionChange(change)
}

#[tokio::test]
async fn a_replica_that_left_has_no_log_and_one_that_comes_back_begins_anew() {
    let desk = Desk::with(&[Topic::default()]).await;
    let manager = &desk.rooms.replicas;
    let data = std::path::PathBuf::from(&desk.rooms.config.log_dirs[0]);
    let found = || std::fs::exists(data.join("orders-0")).expect("a directory to look into");
    let end = || {
        let hosted = manager.get(topic_id("orders"), 0).expect("it is hosted");
        manager.with(&hosted, |partition, _| partition.log().end_offset().0)
    };
    for round in 0..3 {
        // Written in the epoch it leads in.
        let hosted = manager.get(topic_id("orders"), 0).expect("it is hosted");
        let now = desk.rooms.clock.now();
        let appended = manager.with(&hosted, |partition, effects| {
            let mut batch = crate::testing::batch(&["a", "b"]).to_vec();
            partition.append(&mut batch, now, effects)
        });
        assert_eq!(appended.expect("it leads").until.0, 2, "round {round}");
        drop(hosted);
        assert!(found() && end() == 2);
        // On the way it is still one of them; then it is not, and at once it is again.
        let epoch = 3 * round + 1;
        desk.learn(vec![replicas(&[2, 1], 2, epoch)]).await;
        assert!(found(), "round {round}: it is still a replica");
        desk.learn(vec![replicas(&[2], 2, epoch + 1)]).await;
        assert!(
            manager.is_empty() && !found(),
            "round {round}: its files are gone"
        );
        desk.learn(vec![replicas(&[1, 2], 1, epoch + 2)]).await;
        assert!(found() && end() == 0, "round {round}: a new log");
    }
}

#[tokio::test]
async fn metadata_older_than_the_log_removes_nothing() {
    let desk = Desk::with(&[Topic::default()]).await;
    desk.learn(vec![replicas(&[1], 1, 7)]).await;
    desk.learn(vec![replicas(&[2], 2, 6)]).await;
    assert!(!desk.rooms.replicas.is_empty());
    desk.learn(vec![replicas(&[2], 2, 8)]).await;
    assert!(desk.rooms.replicas.is_empty());
}

#[tokio::test]
async fn a_cut_is_reported() {
    let desk = Desk::with(&[Topic::default()]).await;
    let hosted = desk.rooms.replicas.get(topic_id("orders"), 0).unwrap();
    let reports = &desk.rooms.replicas.tools.reports;
    assert!(reports.oldest().is_empty());
    hosted.with(|_, effects| {
        effects.truncated = Some(Truncation {
            from: Offset(9),
            to: Offset(4),
            epoch: None,
            leader_epoch: LeaderEpoch(2),
            unclean: false,
        });
    });
    let waiting = reports.oldest();
    assert_eq!(waiting.len(), 1);
    assert_eq!(
        (waiting[0].number, waiting[0].topic_id),
        (1, topic_id("orders"))
    );
    assert!(matches!(
        waiting[0].what,
        BrokerEventKind::ReplicaTruncated {
            from: Offset(9),
            to: Offset(4),
            ..
        }
    ));
}

#[test]
fn what_is_remembered_of_a_cut() {
    let cut = |from, to| Truncation {
        from: Offset(from),
        to: Offset(to),
        epoch: Some(LeaderEpoch(3)),
        leader_epoch: LeaderEpoch(5),
        unclean: true,
    };
    let (from, leader_epoch) = (Offset(200), LeaderEpoch(5));
    assert_eq!(
        event_of(&cut(200, 150)),
        BrokerEventKind::ReplicaTruncated {
            from,
            to: Offset(150),
            epoch: Some(LeaderEpoch(3)),
            leader_epoch,
            unclean: true,
        }
    );
    assert_eq!(
        event_of(&cut(200, 900)),
        BrokerEventKind::ReplicaRestarted {
            from,
            to: Offset(900),
            leader_epoch,
        }
    );
}

#[test]
fn who_may_join_an_isr() {
    let topic_id = TopicId(Uuid::from_u128(1));
    let rows = [
        ("active", broker(2, &[7], false, false), Some(true)),
        ("fenced", broker(2, &[7], true, false), Some(false)),
        ("leaving", broker(2, &[7], false, true), Some(false)),
        (
            "its directory is offline",
            broker(2, &[8], false, false),
            Some(false),
        ),
        ("not registered", broker(3, &[7], false, false), None),
    ];
    for (name, record, may_join) in rows {
        let mut image = MetadataImage::default();
        let partition = MetadataRecord::Partition(PartitionRecord {
            directories: vec![DirectoryId::ZERO, directory(7)],
            isr: vec![BrokerId(1)],
            ..PartitionRecord::of(topic_id, 0, vec![BrokerId(1), BrokerId(2)])
        });
        let topic = MetadataRecord::Topic {
            name: "t".to_owned(),
            topic_id,
        };
        image.apply_records(4, &[record, topic, partition]);
        let partition = image.partition(topic_id, 0).expect("it was made");
        let standing = Assignment::of(&image, partition).standing;
        let of_two = standing.get(&BrokerId(2)).map(|standing| standing.may_join);
        assert_eq!(of_two, may_join, "{name}");
    }
}

#[test]
fn results_come_in_the_order_of_the_items() {
    let items: Vec<usize> = (0..100).collect();
    let doubled = in_parallel(&items, |item| item * 2);
    assert_eq!(
        doubled,
        items.iter().map(|item| item * 2).collect::<Vec<_>>()
    );
    assert!(in_parallel(&[], |item: &usize| *item).is_empty());
}
