//! Stories of a broker whose replica cut off what an unclean election took from it.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use kuorum_metadata::record::{ConfigResource, MetadataRecord, PartitionChange};
use kuorum_protocol::record::{BatchView, DecompressLimit, RecordsReader};
use kuorum_protocol::{BrokerId, LeaderEpoch, Offset, PartitionEpoch};
use kuorum_replication::FollowerStep;
use kuorum_transport::tcp;
use serde_json::Value;

use super::*;
use crate::partition::Effects;
use crate::testing::{Desk, Topic, batch_at, topic_id};

const TOPIC: &str = "telemetry-logs";

/// A broker that led in epoch 0, and wrote records of which the unclean leader of epoch 1 knows `known`.
async fn after_an_unclean_election(records: usize, known: i64) -> Desk {
    let desk = Desk::with(&[Topic {
        name: TOPIC,
        replicas: &[1, 2],
        ..Topic::default()
    }])
    .await;
    lose(&desk, records, known, 1).await;
    desk
}

async fn lose(desk: &Desk, records: usize, known: i64, epoch: i32) {
    let hosted = desk.rooms.replicas.get(topic_id(TOPIC), 0).unwrap();
    let now = desk.rooms.clock.now();
    for at in 0..records {
        let value = format!("value {at}");
        let mut bytes = batch_at(1_000 + at as i64, &[&value]).to_vec();
        hosted
            .with(|partition, effects| partition.append(&mut bytes, now, effects))
            .unwrap();
    }
    let mut change = PartitionChange::of(topic_id(TOPIC), 0, PartitionEpoch(epoch), "test");
    change.leader = Some(Some(BrokerId(2)));
    change.leader_epoch = Some(LeaderEpoch(epoch));
    change.last_unclean_epoch = Some(LeaderEpoch(epoch));
    desk.learn(vec![MetadataRecord::PartitionChange(change)])
        .await;
    hosted.with(|partition, effects: &mut Effects| {
        let FollowerStep::EpochEnd { ticket, epoch, .. } = partition.next_step(now) else {
            panic!("a new follower compares histories");
        };
        partition.on_epoch_end(&ticket, Some((epoch, Offset(known))), now, effects);
        assert_eq!(partition.log().end_offset(), Offset(known));
    });
}

fn only_item(desk: &Desk) -> Entry {
    let items = desk.rooms.salvage.list("", 10);
    assert_eq!(items.len(), 1, "{items:?}");
    items.into_iter().next().unwrap()
}

fn data(desk: &Desk) -> PathBuf {
    desk.rooms.config.log_dirs[0].clone()
}

#[tokio::test]
async fn what_was_cut_is_one_item_and_comes_back_as_a_producers_batches() {
    let desk = after_an_unclean_election(50, 20).await;
    desk.rooms.salvage.look(None);
    let entry = only_item(&desk);
    let item = entry.item();
    assert_eq!((item.first_offset.0, item.end_offset.0), (20, 50));
    assert_eq!((item.topic.as_str(), item.unclean_epoch.0), (TOPIC, 1));
    assert_eq!(entry.summary.records, 30);

    let (mut index, mut batches) = (0, 0);
    while let Some(bytes) = batch_from(&entry, index, 200, ProducerId(9)).unwrap() {
        let batch = BatchView::parse(&bytes).unwrap();
        assert!(batch.crc_is_valid());
        assert_eq!(batch.producer_id(), ProducerId(9));
        assert_eq!(batch.base_sequence(), Sequence(index as i32));
        assert_eq!(batch.base_offset(), Offset(0), "as a producer sends it");
        for record in RecordsReader::new(&bytes, DecompressLimit::PRODUCED).unwrap() {
            let record = record.unwrap();
            let value = format!("value {}", 20 + index);
            assert_eq!(record.value.as_deref(), Some(value.as_bytes()));
            assert_eq!(record.timestamp, Timestamp(1_020 + index as i64));
            index += 1;
        }
        batches += 1;
    }
    assert_eq!(index, 30);
    assert!(batches > 3, "pages are bounded: {batches}");
}

#[tokio::test]
async fn an_ordinary_cut_keeps_nothing_and_so_does_a_topic_that_does_not_want_it() {
    let desk = Desk::with(&[Topic {
        name: TOPIC,
        replicas: &[1, 2],
        configs: &[("salvage.enable", "false")],
        ..Topic::default()
    }])
    .await;
    lose(&desk, 10, 5, 1).await;
    desk.rooms.salvage.look(None);
    assert!(desk.rooms.salvage.list("", 10).is_empty());
    assert!(!data(&desk).join("salvage").exists());
}

/// sled lets one in at a time, and threads of its own may be in for a moment longer than who opened it.
fn await_release(path: &Path) {
    if let Ok(db) = File::open(path.join("db")) {
        db.lock().unwrap();
    }
}

#[tokio::test]
async fn the_catalogue_is_made_again_from_the_files() {
    let desk = after_an_unclean_election(50, 20).await;
    desk.rooms.salvage.look(None);
    let counted = only_item(&desk).summary;
    let path = data(&desk).join("salvage").join(catalogue::DIRECTORY);
    let reopened = || {
        await_release(&path);
        let salvage = Salvage::open(
            desk.rooms.replicas.log_dirs(),
            SalvageLimits::default(),
            desk.rooms.clock.clone(),
            Arc::default(),
        );
        salvage.look(None);
        salvage
    };
    *desk.rooms.salvage.catalogue.lock() = None;
    {
        await_release(&path);
        let catalogue = Catalogue::open(&path).unwrap();
        let item = only_item(&desk).item().clone();
        assert_eq!(catalogue.get(&item).as_ref(), Some(&*counted));
        let other = Item {
            bytes: item.bytes + 1,
            ..item
        };
        assert_eq!(catalogue.get(&other), None, "counted in another item");
    }
    fs::write(path.join("snap.0000000000000007.generating"), b"half").unwrap();
    assert_eq!(reopened().list("", 10)[0].summary, counted);
    assert!(!path.with_file_name(".catalogue-damaged").exists());

    let rows: [&dyn Fn(); 3] = [
        &|| fs::write(path.join("db"), vec![7; 100_000]).unwrap(),
        &|| fs::write(path.join("conf"), b"nonsense").unwrap(),
        &|| {
            fs::create_dir_all(path.join("blobs")).unwrap();
            fs::write(path.join("blobs").join("1"), b"large").unwrap();
        },
    ];
    for (row, damage) in rows.iter().enumerate() {
        damage();
        let salvage = reopened();
        assert_eq!(salvage.list("", 10)[0].summary, counted, "row {row}");
        assert!(salvage.catalogue.lock().is_some(), "row {row}");
        drop(salvage);
    }
    fs::remove_dir_all(&path).unwrap();
    assert_eq!(reopened().list("", 10)[0].summary, counted);
}

#[tokio::test]
async fn the_oldest_goes_first() {
    let desk = after_an_unclean_election(50, 20).await;
    let salvage = &desk.rooms.salvage;
    salvage.look(None);
    let item = only_item(&desk);
    let bytes = item.item().bytes;
    let set = |name: &str, value: String| MetadataRecord::Config {
        resource: ConfigResource::Topic(TOPIC.to_owned()),
        name: name.to_owned(),
        value: Some(value),
    };
    let keeps = async |records: Vec<MetadataRecord>| {
        desk.learn(records).await;
        salvage.look(Some(&desk.rooms.metadata.image()));
        salvage.list("", 10).len()
    };
    assert_eq!(
        keeps(vec![set("salvage.retention.bytes", bytes.to_string())]).await,
        1
    );
    assert_eq!(
        keeps(vec![set("salvage.retention.ms", "-1".to_owned())]).await,
        1
    );
    // A smaller limit: it alone is too much.
    let less = (bytes - 1).to_string();
    assert_eq!(keeps(vec![set("salvage.retention.bytes", less)]).await, 0);
    assert!(!salvage.delete(&item.item().id()).unwrap());

    // A store that holds one such item holds the newest one.
    let item_bytes = bytes;
    let small = Salvage::open(
        desk.rooms.replicas.log_dirs(),
        SalvageLimits {
            total_bytes: item_bytes + 10,
            ..SalvageLimits::default()
        },
        desk.rooms.clock.clone(),
        Arc::default(),
    );
    let made = |epoch: i32, created_at: i64| {
        let dir = data(&desk).join("salvage");
        let mut renamed = item.item().clone();
        renamed.unclean_epoch = LeaderEpoch(epoch);
        renamed.created_at = Timestamp(created_at);
        let inside = dir.join(renamed.id().to_string());
        fs::create_dir_all(&inside).unwrap();
        for part in &renamed.parts {
            fs::write(inside.join(&part.name), vec![0; part.bytes as usize]).unwrap();
        }
        let json = serde_json::to_string(&renamed).unwrap();
        let crc = crc32c::crc32c(json.as_bytes());
        fs::write(
            inside.join("item"),
            format!("kuorum salvage 1\n{json}\n{crc:08x}\n"),
        )
        .unwrap();
    };
    let now = desk.rooms.clock.now().wall.0;
    made(3, now - 1);
    made(2, now);
    made(9, now - 2);
    small.look(Some(&MetadataImage::default()));
    let kept: Vec<i32> = small
        .list("", 10)
        .iter()
        .map(|entry| entry.item().unclean_epoch.0)
        .collect();
    assert_eq!(kept, [2]);
}

async fn serve(desk: &Desk) -> SocketAddr {
    let socket = tcp::listen("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let rooms = Arc::downgrade(&desk.rooms);
    tokio::spawn(crate::http::serve(socket, rooms, CancellationToken::new()));
    address
}

#[tokio::test]
async fn controllers_are_told_and_may_delete() {
    let desk = after_an_unclean_election(50, 20).await;
    desk.rooms.salvage.look(None);
    let id = only_item(&desk).item().id().to_string();
    let base = format!("http://{}/internal/v1/salvage", serve(&desk).await);
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let ask = async |path: &str| {
        let response = client.get(format!("{base}{path}")).send().await.unwrap();
        (response.status().as_u16(), response.bytes().await.unwrap())
    };
    let json = async |path: &str| -> Value {
        let (status, body) = ask(path).await;
        assert_eq!(status, 200, "{path}");
        serde_json::from_slice(&body).unwrap()
    };
    let list = json("").await;
    assert_eq!(list["items"][0]["id"], *id);
    assert_eq!(list["items"][0]["records"], 30);
    assert_eq!(
        json(&format!("?after={id}")).await["items"],
        serde_json::json!([])
    );
    assert_eq!(json(&format!("/{id}")).await["end_offset"], 50);
    let page = json(&format!("/{id}/records?from=7&limit=2")).await;
    assert_eq!(page["items"][1]["offset"], 28);
    assert_eq!(page["items"][1]["value"], "value 28");
    assert_eq!(page["next"], 9);
    let last = json(&format!("/{id}/records?from=29")).await;
    assert_eq!(
        (last["items"].as_array().unwrap().len(), &last["next"]),
        (1, &Value::Null)
    );
    let (_, raw) = ask(&format!("/{id}/segment")).await;
    assert_eq!(raw.len() as u64, only_item(&desk).item().bytes);
    assert_eq!(
        ask(&format!("/{id}/segment?from=5&max_bytes=3")).await.1,
        raw[5..8]
    );
    let (_, batch) = ask(&format!("/{id}/batch?from=28&max_bytes=1&producer_id=4")).await;
    assert_eq!(BatchView::parse(&batch).unwrap().record_count(), 1);
    let (_, end) = ask(&format!("/{id}/batch?from=30&max_bytes=1&producer_id=4")).await;
    assert!(end.is_empty());
    for path in ["/nonsense", "/..%2F..%2Fdata", &format!("/{id}9")] {
        assert_eq!(ask(path).await.0, 404, "{path}");
    }
    let delete = async |cluster: &str| {
        let request = client
            .delete(format!("{base}/{id}"))
            .header("kuorum-cluster-id", cluster);
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!(delete("another").await, 403);
    assert_eq!(desk.rooms.salvage.list("", 10).len(), 1);
    assert_eq!(delete("test-cluster").await, 204);
    assert_eq!(delete("test-cluster").await, 404);
    assert!(desk.rooms.salvage.list("", 10).is_empty());
}
