//! Produce, Fetch and the requests about offsets, against real partitions of one broker.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kuorum_metadata::MetadataRecord;
use kuorum_metadata::record::PartitionChange;
use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::messages::delete_records::{
    DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic,
};
use kuorum_protocol::messages::fetch::{
    FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData, ReplicaState,
};
use kuorum_protocol::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsTopic,
};
use kuorum_protocol::messages::offset_for_leader_epoch::{
    OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kuorum_protocol::messages::produce::{
    PartitionProduceData, PartitionProduceResponse, ProduceRequest, ProduceResponse,
    TopicProduceData,
};
use kuorum_protocol::record::batch::{BatchMut, BatchView, batches};
use kuorum_protocol::record::writer::BatchBuilder;
use kuorum_protocol::record::{Codec, ControlType, end_marker};
use kuorum_protocol::{
    BrokerId, LeaderEpoch, Offset, PartitionEpoch, ProducerEpoch, ProducerId, Sequence, Timestamp,
    TopicId,
};
use kuorum_replication::IsrReply;
use uuid::Uuid;

use super::delete_records::delete_records;
use super::fetch::fetch;
use super::list_offsets::list_offsets;
use super::offset_for_leader_epoch::offset_for_leader_epoch;
use super::produce::produce;
use crate::context::Context;
use crate::dispatch::Answer;
use crate::testing::{Desk, ME, Topic, batch, batch_at, topic_id};

/// The versions these tests speak unless a row says otherwise.
const PRODUCE: i16 = 12;
const FETCH: i16 = 12;

fn produce_request(topic: &str, partition: i32, acks: i16, records: Bytes) -> ProduceRequest {
    ProduceRequest {
        acks,
        timeout_ms: 10_000,
        topic_data: vec![TopicProduceData {
            name: topic.to_owned(),
            topic_id: topic_id(topic).0,
            partition_data: vec![PartitionProduceData {
                index: partition,
                records: Some(records),
            }],
        }],
        ..ProduceRequest::default()
    }
}

async fn settle(answer: Answer<ProduceResponse>) -> ProduceResponse {
    match answer {
        Answer::Now(response) => response,
        Answer::Later(pending) => tokio::time::timeout(Duration::from_secs(10), pending)
            .await
            .expect("in time"),
        other => panic!("no answer: {other:?}"),
    }
}

fn only(response: ProduceResponse) -> PartitionProduceResponse {
    let mut topics = response.responses;
    assert_eq!(topics.len(), 1);
    topics.remove(0).partition_responses.remove(0)
}

/// Produces with acks=all and returns what became of the one partition.
async fn produced(cx: &Context, topic: &str, records: Bytes) -> PartitionProduceResponse {
    let answer = produce(cx, produce_request(topic, 0, -1, records), PRODUCE).await;
    only(settle(answer).await)
}

#[tokio::test]
async fn what_is_produced_is_fetched() {
    let desk = Desk::with(&[Topic::default()]).await;
    let cx = desk.client();
    let first = produced(&cx, "orders", batch(&["a", "b", "c"])).await;
    assert_eq!((first.error_code, first.base_offset), (0, 0), "{first:?}");
    let second = produced(&cx, "orders", batch(&["d"])).await;
    assert_eq!((second.error_code, second.base_offset), (0, 3));
    assert_eq!(second.log_append_time_ms, -1);
    assert_eq!(second.log_start_offset, 0);

    let response = fetch(&cx, fetch_request("orders", 0, 0), FETCH).await;
    let partition = the_partition(&response);
    assert_eq!(partition.error_code, 0);
    assert_eq!(
        (partition.high_watermark, partition.last_stable_offset),
        (4, 4)
    );
    assert_eq!(partition.aborted_transactions, None);
    assert_eq!(base_offsets(partition), [0, 3]);

    // From the middle of a batch: the whole batch comes, and the client skips.
    let response = fetch(&cx, fetch_request("orders", 0, 1), FETCH).await;
    assert_eq!(base_offsets(the_partition(&response)), [0, 3]);
    let response = fetch(&cx, fetch_request("orders", 0, 3), FETCH).await;
    assert_eq!(base_offsets(the_partition(&response)), [3]);
}

#[tokio::test]
async fn acks_decide_when_the_answer_comes() {
    let desk = Desk::with(&[Topic::default()]).await;
    let cx = desk.client();
    let request = |acks| produce_request("orders", 0, acks, batch(&["x"]));
    let none = produce(&cx, request(0), PRODUCE).await;
    assert!(matches!(none, Answer::Silent), "{none:?}");
    let leader = produce(&cx, request(1), PRODUCE).await;
    assert!(matches!(leader, Answer::Now(_)), "{leader:?}");
    assert_eq!(only(settle(leader).await).base_offset, 1);
    let all = produce(&cx, request(-1), PRODUCE).await;
    assert!(matches!(all, Answer::Later(_)), "{all:?}");
    assert_eq!(only(settle(all).await).base_offset, 2);
    let failed = produce(
        &cx,
        produce_request("nothing", 0, 0, batch(&["x"])),
        PRODUCE,
    )
    .await;
    assert!(matches!(failed, Answer::Close(_)), "{failed:?}");
}

#[tokio::test]
async fn refused_batches() {
    let desk = Desk::with(&[
        Topic::default(),
        Topic {
            name: "elsewhere",
            replicas: &[2, 3],
            ..Topic::default()
        },
        Topic {
            name: "short-of-replicas",
            replicas: &[1],
            configs: &[("min.insync.replicas", "1")],
            ..Topic::default()
        },
        Topic {
            name: "small",
            configs: &[("max.message.bytes", "100")],
            ..Topic::default()
        },
        Topic {
            name: "keyed",
            configs: &[("cleanup.policy", "compact")],
            ..Topic::default()
        },
    ])
    .await;
    let cx = desk.client();
    let plain = || batch(&["a", "b"]);
    let changed = |at: usize, value: u8, renew_crc: bool| {
        let mut bytes = BytesMut::from(&plain()[..]);
        bytes[at] = value;
        if renew_crc {
            BatchMut::parse(&mut bytes).expect("a batch").renew_crc();
        }
        bytes.freeze()
    };
    let twice = Bytes::from([&plain()[..], &plain()[..]].concat());
    let marker = end_marker(
        ControlType::Commit,
        ProducerId(1),
        ProducerEpoch(0),
        0,
        Timestamp(0),
    );
    let long = "x".repeat(200);
    // Sound by its header and checksum, and no consumer could read it.
    let packed = |change: fn(&mut [u8])| {
        let mut bytes = BatchBuilder::new(Codec::Gzip)
            .push(desk.rooms.clock.now().wall, None, Some(b"v"), &[])
            .build()
            .to_vec();
        change(&mut bytes);
        BatchMut::parse(&mut bytes).expect("a batch").renew_crc();
        Bytes::from(bytes)
    };
    let garbage = packed(|bytes| bytes[61..].fill(0x5a));
    let claims = packed(|bytes| {
        bytes[23..27].copy_from_slice(&(i32::MAX - 1).to_be_bytes());
        bytes[57..61].copy_from_slice(&i32::MAX.to_be_bytes());
    });
    let nobody = packed(|bytes| bytes[43..51].copy_from_slice(&(-2_i64).to_be_bytes()));
    let transactional = BatchBuilder::new(Codec::None)
        .producer(ProducerId(5), ProducerEpoch(0), Sequence(0))
        .transactional()
        .push(desk.rooms.clock.now().wall, None, Some(b"v"), &[])
        .build();
    let rows = [
        (
            "acks",
            produce_request("orders", 0, 2, plain()),
            ErrorCode::InvalidRequiredAcks,
        ),
        (
            "topic",
            produce_request("nothing", 0, 1, plain()),
            ErrorCode::UnknownTopicOrPartition,
        ),
        (
            "partition",
            produce_request("orders", 1, 1, plain()),
            ErrorCode::UnknownTopicOrPartition,
        ),
        (
            "negative partition",
            produce_request("orders", -1, 1, plain()),
            ErrorCode::UnknownTopicOrPartition,
        ),
        (
            "leader",
            produce_request("elsewhere", 0, 1, plain()),
            ErrorCode::NotLeaderOrFollower,
        ),
        (
            "nothing",
            produce_request("orders", 0, 1, Bytes::new()),
            ErrorCode::InvalidRecord,
        ),
        (
            "half",
            produce_request("orders", 0, 1, plain().slice(..40)),
            ErrorCode::InvalidRecord,
        ),
        (
            "two",
            produce_request("orders", 0, 1, twice),
            ErrorCode::InvalidRecord,
        ),
        (
            "magic",
            produce_request("orders", 0, 1, changed(16, 1, false)),
            ErrorCode::InvalidRecord,
        ),
        (
            "crc",
            produce_request("orders", 0, 1, changed(65, 0xff, false)),
            ErrorCode::CorruptMessage,
        ),
        (
            "count",
            produce_request("orders", 0, 1, changed(60, 7, true)),
            ErrorCode::InvalidRecord,
        ),
        (
            "compressed garbage",
            produce_request("orders", 0, 1, garbage),
            ErrorCode::InvalidRecord,
        ),
        (
            "compressed, one record that claims to be 2³¹ − 1",
            produce_request("orders", 0, 1, claims),
            ErrorCode::InvalidRecord,
        ),
        (
            "producer id −2",
            produce_request("orders", 0, 1, nobody),
            ErrorCode::InvalidRecord,
        ),
        (
            "control",
            produce_request("orders", 0, 1, marker),
            ErrorCode::InvalidRecord,
        ),
        (
            "size",
            produce_request("small", 0, 1, batch(&[&long])),
            ErrorCode::MessageTooLarge,
        ),
        (
            "key",
            produce_request("keyed", 0, 1, plain()),
            ErrorCode::InvalidRecord,
        ),
        (
            "transaction",
            produce_request("orders", 0, 1, transactional),
            ErrorCode::TransactionAbortable,
        ),
        (
            "future",
            produce_request("orders", 0, 1, batch_at(i64::MAX / 2, &["x"])),
            ErrorCode::InvalidTimestamp,
        ),
    ];
    for (what, request, expected) in rows {
        let answer = only(settle(produce(&cx, request, PRODUCE).await).await);
        assert_eq!(ErrorCode::from(answer.error_code), expected, "{what}");
        assert_eq!(answer.base_offset, -1, "{what}");
        assert!(answer.error_message.is_some(), "{what}");
    }
    let end = desk
        .rooms
        .replicas
        .get(topic_id("orders"), 0)
        .expect("here");
    let end = desk
        .rooms
        .replicas
        .with(&end, |partition, _| partition.log().end_offset());
    assert_eq!(end, Offset(0), "nothing of it was appended");
}

/// What the header says of the future would keep the segment from ever expiring.
#[tokio::test]
async fn the_highest_timestamp_is_that_of_the_records() {
    let desk = Desk::with(&[Topic::default()]).await;
    let cx = desk.client();
    let now = desk.rooms.clock.now().wall;
    for codec in [Codec::None, Codec::Zstd] {
        let mut late = BatchBuilder::new(codec)
            .push(now, None, Some(b"v"), &[])
            .build()
            .to_vec();
        BatchMut::parse(&mut late)
            .expect("a batch")
            .set_max_timestamp(Timestamp(i64::MAX));
        let answer = produced(&cx, "orders", late.into()).await;
        assert_eq!(answer.error_code, 0, "{codec}: {answer:?}");
        let request = fetch_request("orders", 0, answer.base_offset);
        let response = fetch(&cx, request, FETCH).await;
        let records = the_partition(&response).records.clone().expect("records");
        let batch = BatchView::parse(&records).expect("a batch");
        assert!(batch.crc_is_valid());
        assert_eq!(batch.max_timestamp(), now, "{codec}");
    }
}

#[tokio::test]
async fn record_errors_name_the_records() {
    let desk = Desk::with(&[Topic {
        configs: &[("cleanup.policy", "compact")],
        ..Topic::default()
    }])
    .await;
    let now = desk.rooms.clock.now().wall;
    let mixed = BatchBuilder::new(Codec::None)
        .push(now, Some(b"k"), Some(b"v"), &[])
        .push(now, None, Some(b"v"), &[])
        .build();
    let answer = produced(&desk.client(), "orders", mixed).await;
    let named: Vec<i32> = answer
        .record_errors
        .iter()
        .map(|error| error.batch_index)
        .collect();
    assert_eq!(named, [1]);
}

#[tokio::test]
async fn whoever_asks_the_wrong_broker_is_told_the_right_one() {
    let desk = Desk::with(&[Topic {
        replicas: &[2, 1],
        ..Topic::default()
    }])
    .await;
    for (cx, port) in [(desk.client(), 9093), (desk.internal(), 9103)] {
        let request = produce_request("orders", 0, 1, batch(&["x"]));
        let response = settle(produce(&cx, request, PRODUCE).await).await;
        let [endpoint] = &response.node_endpoints[..] else {
            panic!("one endpoint: {response:?}");
        };
        assert_eq!((endpoint.node_id, endpoint.port), (2, port));
        let answer = only(response);
        assert_eq!(answer.error_code, ErrorCode::NotLeaderOrFollower.code());
        assert_eq!(answer.current_leader.leader_id, 2);
        assert_eq!(answer.current_leader.leader_epoch, 0);

        let response = fetch(&cx, fetch_request("orders", 0, 0), 16).await;
        assert_eq!(response.node_endpoints.len(), 1);
        let partition = the_partition(&response);
        assert_eq!(partition.error_code, ErrorCode::NotLeaderOrFollower.code());
        assert_eq!(partition.current_leader.leader_id, 2);
    }
}

#[tokio::test]
async fn topics_are_found_by_id_since_version_13() {
    let desk = Desk::with(&[Topic::default()]).await;
    let cx = desk.client();
    let mut request = produce_request("orders", 0, -1, batch(&["x"]));
    request.topic_data[0].name = String::new();
    let response = settle(produce(&cx, request.clone(), 13).await).await;
    assert_eq!(response.responses[0].topic_id, topic_id("orders").0);
    assert_eq!(only(response).error_code, 0);
    request.topic_data[0].topic_id = Uuid::from_u128(1);
    request.topic_data[0].partition_data[0].records = Some(batch(&["x"]));
    let response = settle(produce(&cx, request, 13).await).await;
    assert_eq!(only(response).error_code, ErrorCode::UnknownTopicId.code());

    let mut request = fetch_request("orders", 0, 0);
    request.topics[0].topic = String::new();
    request.topics[0].topic_id = topic_id("orders").0;
    let response = fetch(&cx, request.clone(), 13).await;
    assert_eq!(base_offsets(the_partition(&response)), [0]);
    request.topics[0].topic_id = Uuid::from_u128(1);
    let response = fetch(&cx, request, 13).await;
    assert_eq!(
        the_partition(&response).error_code,
        ErrorCode::UnknownTopicId.code()
    );
}

#[tokio::test]
async fn a_duplicate_gets_its_first_offset_and_a_gap_waits_for_the_controllers() {
    let desk = Desk::with(&[Topic::default()]).await;
    let cx = desk.client();
    let numbered = |sequence| {
        BatchBuilder::new(Codec::None)
            .producer(ProducerId(9), ProducerEpoch(0), Sequence(sequence))
            .push(desk.rooms.clock.now().wall, None, Some(b"v"), &[])
            .build()
    };
    let (first, second) = (numbered(0), numbered(1));
    assert_eq!(produced(&cx, "orders", first.clone()).await.base_offset, 0);
    assert_eq!(produced(&cx, "orders", second).await.base_offset, 1);
    let again = produced(&cx, "orders", first).await;
    assert_eq!((again.error_code, again.base_offset), (0, 0));

    // What is missing here may be elsewhere, unless the controllers say that this one leads.
    let hosted = desk.rooms.replicas.get(topic_id("orders"), 0).unwrap();
    for (reply, code) in [
        (Some(ErrorCode::None), ErrorCode::OutOfOrderSequenceNumber),
        (
            Some(ErrorCode::FencedLeaderEpoch),
            ErrorCode::RequestTimedOut,
        ),
        (None, ErrorCode::RequestTimedOut),
    ] {
        let mut request = produce_request("orders", 0, -1, numbered(7));
        request.timeout_ms = if code == ErrorCode::RequestTimedOut {
            50
        } else {
            10_000
        };
        let answer = produce(&cx, request, PRODUCE).await;
        assert!(matches!(answer, Answer::Later(_)), "not yet");
        let (number, partition_epoch) = hosted.with(|partition, _| {
            let leader = partition.leader().unwrap();
            (leader.next_proposal() - 1, leader.partition_epoch())
        });
        match reply {
            Some(ErrorCode::None) => hosted.isr_decided(
                number,
                IsrReply::Accepted {
                    leader_epoch: LeaderEpoch(0),
                    partition_epoch,
                    isr: [ME].into(),
                    elr: [].into(),
                },
            ),
            Some(refused) => hosted.isr_decided(number, IsrReply::from_error(refused.code())),
            None => {}
        }
        assert_eq!(only(settle(answer).await).error_code, code.code());
    }
}

#[tokio::test]
async fn a_produce_that_is_not_replicated_in_time_says_so() {
    let desk = Desk::with(&[Topic {
        replicas: &[1, 2],
        ..Topic::default()
    }])
    .await;
    let cx = desk.client();
    let mut request = produce_request("orders", 0, -1, batch(&["x"]));
    request.timeout_ms = 20;
    let answer = only(settle(produce(&cx, request, PRODUCE).await).await);
    assert_eq!(answer.error_code, ErrorCode::RequestTimedOut.code());
    // It is in the log, and no consumer sees it.
    let response = fetch(&cx, fetch_request("orders", 0, 0), FETCH).await;
    let partition = the_partition(&response);
    assert_eq!((partition.error_code, partition.high_watermark), (0, 0));
    assert!(base_offsets(partition).is_empty());
}

#[tokio::test]
async fn a_followers_fetch_completes_a_parked_produce() {
    let desk = Desk::with(&[Topic {
        replicas: &[1, 2],
        configs: &[("min.insync.replicas", "2")],
        ..Topic::default()
    }])
    .await;
    let cx = desk.client();
    let request = produce_request("orders", 0, -1, batch(&["x", "y"]));
    let answer = produce(&cx, request, PRODUCE).await;
    let waiting = tokio::spawn(settle(answer));
    let read = fetch(&desk.internal(), follower_fetch(0), 15).await;
    assert_eq!(
        base_offsets(the_partition(&read)),
        [0],
        "a follower sees the tail"
    );
    assert_eq!(the_partition(&read).high_watermark, 0);
    // The leader counts itself only once it has flushed, the follower once it asks for what comes next.
    loop {
        let read = fetch(&desk.internal(), follower_fetch(2), 15).await;
        if the_partition(&read).high_watermark == 2 {
            break;
        }
    }
    assert_eq!(only(waiting.await.expect("joined")).error_code, 0);
}

#[tokio::test]
async fn a_parked_produce_dies_with_its_epoch() {
    let desk = Desk::with(&[Topic {
        replicas: &[1, 2],
        ..Topic::default()
    }])
    .await;
    let cx = desk.client();
    let request = produce_request("orders", 0, -1, batch(&["x"]));
    let answer = produce(&cx, request, PRODUCE).await;
    desk.learn(vec![leader_change("orders", Some(2), 1)]).await;
    let response = settle(answer).await;
    assert_eq!(
        response.node_endpoints.len(),
        1,
        "and is told who leads now"
    );
    let answer = only(response);
    assert_eq!(answer.error_code, ErrorCode::NotLeaderOrFollower.code());
    assert_eq!(answer.current_leader.leader_epoch, 1);
}

#[tokio::test]
async fn too_few_in_sync_is_said_before_the_append() {
    let desk = Desk::with(&[Topic {
        replicas: &[1, 2],
        configs: &[("min.insync.replicas", "2")],
        ..Topic::default()
    }])
    .await;
    let mut shrunk = change("orders");
    shrunk.isr = Some(vec![BrokerId(1)]);
    desk.learn(vec![MetadataRecord::PartitionChange(shrunk)])
        .await;
    let cx = desk.client();
    let answer = produced(&cx, "orders", batch(&["x"])).await;
    assert_eq!(answer.error_code, ErrorCode::NotEnoughReplicas.code());
    let accepted = produce(&cx, produce_request("orders", 0, 1, batch(&["x"])), PRODUCE).await;
    assert_eq!(
        only(settle(accepted).await).base_offset,
        0,
        "acks=1 does not ask"
    );
}

// ----- Fetch -----

fn fetch_request(topic: &str, partition: i32, fetch_offset: i64) -> FetchRequest {
    FetchRequest {
        max_wait_ms: 0,
        min_bytes: 1,
        max_bytes: 1 << 20,
        topics: vec![FetchTopic {
            topic: topic.to_owned(),
            topic_id: topic_id(topic).0,
            partitions: vec![FetchPartition {
                partition,
                fetch_offset,
                partition_max_bytes: 1 << 20,
                ..FetchPartition::default()
            }],
        }],
        ..FetchRequest::default()
    }
}

fn follower_fetch(fetch_offset: i64) -> FetchRequest {
    let mut request = fetch_request("orders", 0, fetch_offset);
    request.replica_state = ReplicaState {
        replica_id: 2,
        replica_epoch: 102,
    };
    request
}

fn the_partition(response: &FetchResponse) -> &PartitionData {
    assert_eq!(response.error_code, 0, "{response:?}");
    &response.responses[0].partitions[0]
}

fn base_offsets(partition: &PartitionData) -> Vec<i64> {
    let records = partition.records.as_deref().unwrap_or_default();
    batches(records)
        .map(|batch: Result<BatchView<'_>, _>| batch.expect("whole batches").base_offset().0)
        .collect()
}

fn change(topic: &str) -> PartitionChange {
    PartitionChange {
        topic_id: topic_id(topic),
        partition: 0,
        partition_epoch: PartitionEpoch(1),
        leader_epoch: None,
        leader: None,
        isr: None,
        replicas: None,
        directories: None,
        leader_recovery_state: None,
        elr: None,
        last_known_elr: None,
        last_unclean_epoch: None,
        adding_replicas: None,
        removing_replicas: None,
        original_replicas: None,
        cause: String::new(),
    }
}

fn leader_change(topic: &str, leader: Option<i32>, epoch: i32) -> MetadataRecord {
    MetadataRecord::PartitionChange(PartitionChange {
        partition_epoch: PartitionEpoch(epoch),
        leader_epoch: Some(LeaderEpoch(epoch)),
        leader: Some(leader.map(BrokerId)),
        ..change(topic)
    })
}

#[tokio::test]
async fn offsets_outside_the_log() {
    let desk = Desk::with(&[Topic::default()]).await;
    let cx = desk.client();
    produced(&cx, "orders", batch(&["a", "b"])).await;
    let rows = [
        (-1, ErrorCode::OffsetOutOfRange),
        (0, ErrorCode::None),
        (2, ErrorCode::None),
        (3, ErrorCode::OffsetOutOfRange),
    ];
    for (offset, expected) in rows {
        let response = fetch(&cx, fetch_request("orders", 0, offset), FETCH).await;
        let code = the_partition(&response).error_code;
        assert_eq!(ErrorCode::from(code), expected, "{offset}");
    }
}

#[tokio::test]
async fn epochs_of_those_who_ask_are_checked() {
    let desk = Desk::with(&[Topic::default()]).await;
    desk.learn(vec![leader_change("orders", Some(1), 5)]).await;
    let cx = desk.client();
    let rows = [
        (4, ErrorCode::FencedLeaderEpoch),
        (5, ErrorCode::None),
        (6, ErrorCode::UnknownLeaderEpoch),
        (-1, ErrorCode::None),
    ];
    for (epoch, expected) in rows {
        let mut request = fetch_request("orders", 0, 0);
        request.topics[0].partitions[0].current_leader_epoch = epoch;
        let response = fetch(&cx, request, FETCH).await;
        let code = the_partition(&response).error_code;
        assert_eq!(ErrorCode::from(code), expected, "Fetch in epoch {epoch}");
        let listed = listed(&cx, -1, epoch, 9).await;
        assert_eq!(
            ErrorCode::from(listed.error_code),
            expected,
            "ListOffsets in epoch {epoch}"
        );
    }
}

#[tokio::test]
async fn a_history_that_parted_is_told_where() {
    let desk = Desk::with(&[Topic::default()]).await;
    let cx = desk.client();
    produced(&cx, "orders", batch(&["a", "b"])).await;
    desk.learn(vec![leader_change("orders", Some(1), 3)]).await;
    produced(&cx, "orders", batch(&["c"])).await;
    let mut request = fetch_request("orders", 0, 3);
    request.topics[0].partitions[0].last_fetched_epoch = 1;
    let response = fetch(&cx, request, FETCH).await;
    let partition = the_partition(&response);
    assert_eq!(
        (
            partition.diverging_epoch.epoch,
            partition.diverging_epoch.end_offset
        ),
        (0, 2)
    );
    assert!(base_offsets(partition).is_empty());
}

#[tokio::test]
async fn a_fetch_waits_for_what_comes() {
    let desk = Desk::with(&[Topic::default()]).await;
    let cx = desk.client();
    let mut request = fetch_request("orders", 0, 0);
    request.max_wait_ms = 60_000;
    let parked = tokio::spawn({
        let cx = cx.clone();
        async move { fetch(&cx, request, FETCH).await }
    });
    tokio::task::yield_now().await;
    produced(&cx, "orders", batch(&["a"])).await;
    let response = tokio::time::timeout(Duration::from_secs(10), parked)
        .await
        .expect("long before its own deadline")
        .expect("joined");
    assert_eq!(base_offsets(the_partition(&response)), [0]);
}

/// R34: whoever is parked when the leader changes is told so, and not kept until its deadline.
#[tokio::test]
async fn a_parked_fetch_looks_again_at_who_leads() {
    let desk = Desk::with(&[Topic {
        replicas: &[1, 2],
        ..Topic::default()
    }])
    .await;
    let cx = desk.client();
    let mut request = fetch_request("orders", 0, 0);
    request.max_wait_ms = 60_000;
    let parked = tokio::spawn(async move { fetch(&cx, request, FETCH).await });
    tokio::task::yield_now().await;
    desk.learn(vec![leader_change("orders", Some(2), 1)]).await;
    let response = tokio::time::timeout(Duration::from_secs(10), parked)
        .await
        .expect("long before its own deadline")
        .expect("joined");
    let partition = the_partition(&response);
    assert_eq!(partition.error_code, ErrorCode::NotLeaderOrFollower.code());
    assert_eq!(partition.current_leader.leader_id, 2);
}

#[tokio::test]
async fn a_fetch_gives_up_at_its_deadline() {
    let desk = Desk::with(&[Topic::default()]).await;
    let mut request = fetch_request("orders", 0, 0);
    request.max_wait_ms = 20;
    let response = fetch(&desk.client(), request, FETCH).await;
    assert!(base_offsets(the_partition(&response)).is_empty());
}

#[tokio::test]
async fn one_batch_comes_however_small_the_limits_are() {
    let desk = Desk::with(&[Topic {
        partitions: 2,
        ..Topic::default()
    }])
    .await;
    let cx = desk.client();
    for partition in [0, 0, 1] {
        let long = "x".repeat(1000);
        let request = produce_request("orders", partition, -1, batch(&[&long]));
        settle(produce(&cx, request, PRODUCE).await).await;
    }
    let mut request = fetch_request("orders", 0, 0);
    request.max_bytes = 10;
    request.topics[0].partitions[0].partition_max_bytes = 10;
    let second = FetchPartition {
        partition: 1,
        ..request.topics[0].partitions[0].clone()
    };
    request.topics[0].partitions.push(second);
    let response = fetch(&cx, request, FETCH).await;
    let partitions = &response.responses[0].partitions;
    assert_eq!(base_offsets(&partitions[0]), [0]);
    assert!(base_offsets(&partitions[1]).is_empty());
}

#[tokio::test]
async fn consumers_that_take_nothing_leave_others_a_batch_at_a_time_and_followers_everything() {
    let desk = Desk::with(&[Topic {
        replicas: &[1, 2],
        ..Topic::default()
    }])
    .await;
    let cx = desk.client();
    for value in ["x", "y"] {
        let request = produce_request("orders", 0, 1, batch(&[value]));
        settle(produce(&cx, request, PRODUCE).await).await;
    }
    let read = fetch(&desk.internal(), follower_fetch(0), 15).await;
    assert_eq!(base_offsets(the_partition(&read)), [0, 1]);
    // A consumer sees what the follower has.
    while the_partition(&fetch(&desk.internal(), follower_fetch(2), 15).await).high_watermark < 2 {}
    let patient = FetchRequest {
        max_wait_ms: 60_000,
        min_bytes: 1 << 19,
        ..fetch_request("orders", 0, 0)
    };
    let mut greedy = cx.fetch_memory.take(0);
    greedy.settle(usize::MAX / 2);
    let response = fetch(&cx, patient, FETCH).await;
    assert_eq!(base_offsets(the_partition(&response)), [0]);
    let read = fetch(&desk.internal(), follower_fetch(0), 15).await;
    assert_eq!(base_offsets(the_partition(&read)), [0, 1]);
    drop(greedy);
    assert!(
        cx.fetch_memory.used() > 0,
        "the answer has not been taken yet"
    );
    drop(response);
    assert_eq!(cx.fetch_memory.used(), 0);
}

/// Where memory is short a fetch returns one batch; it is not always that of the partition that is asked for first.
#[tokio::test]
async fn no_partition_keeps_another_from_its_turn() {
    let desk = Desk::with(&[Topic {
        partitions: 2,
        ..Topic::default()
    }])
    .await;
    let cx = desk.client();
    for partition in [0, 1] {
        let request = produce_request("orders", partition, -1, batch(&["x"]));
        settle(produce(&cx, request, PRODUCE).await).await;
    }
    let mut both = fetch_request("orders", 0, 0);
    let second = FetchPartition {
        partition: 1,
        ..both.topics[0].partitions[0].clone()
    };
    both.topics[0].partitions.push(second);
    let mut greedy = cx.fetch_memory.take(0);
    greedy.settle(usize::MAX / 2);
    let mut had_a_turn = [false; 2];
    for _ in 0..100 {
        let response = fetch(&cx, both.clone(), FETCH).await;
        for partition in &response.responses[0].partitions {
            had_a_turn[partition.partition_index as usize] |= !base_offsets(partition).is_empty();
        }
    }
    assert_eq!(had_a_turn, [true, true]);

    // Nobody is told at once that there is nothing.
    let mut end = fetch_request("orders", 0, 1);
    end.max_wait_ms = 60_000;
    let parked = tokio::spawn({
        let cx = cx.clone();
        async move { fetch(&cx, end, FETCH).await }
    });
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!parked.is_finished());
    let request = produce_request("orders", 0, -1, batch(&["y"]));
    settle(produce(&cx, request, PRODUCE).await).await;
    assert_eq!(base_offsets(the_partition(&parked.await.unwrap())), [1]);
}

/// What stands behind a limit or in the next segment does not come by waiting for `min_bytes`.
#[tokio::test]
async fn a_fetch_that_is_cut_short_does_not_wait_for_more() {
    let desk = Desk::with(&[Topic {
        partitions: 2,
        configs: &[("segment.bytes", "1048576")],
        ..Topic::default()
    }])
    .await;
    let cx = desk.client();
    // Two of the first do not fit into a segment.
    for (partition, size) in [(0, 600_000), (0, 600_000), (1, 100_000), (1, 100_000)] {
        let long = "x".repeat(size);
        let request = produce_request("orders", partition, -1, batch(&[&long]));
        settle(produce(&cx, request, PRODUCE).await).await;
    }
    for (what, partition, limit, min_bytes) in [
        ("the end of a segment", 0, 1 << 22, 1 << 20),
        ("the limit of the partition", 1, 150_000, 150_000),
    ] {
        let mut request = fetch_request("orders", partition, 0);
        request.max_wait_ms = 300_000;
        request.max_bytes = 1 << 22;
        request.min_bytes = min_bytes;
        request.topics[0].partitions[0].partition_max_bytes = limit;
        let response = tokio::time::timeout(Duration::from_secs(30), fetch(&cx, request, FETCH));
        let response = response.await.expect(what);
        assert_eq!(base_offsets(the_partition(&response)), [0], "{what}");
    }
}

#[tokio::test]
async fn replicas_come_through_the_internal_door_only() {
    let desk = Desk::with(&[Topic {
        replicas: &[1, 2],
        ..Topic::default()
    }])
    .await;
    let response = fetch(&desk.client(), follower_fetch(0), 15).await;
    assert_eq!(
        response.error_code,
        ErrorCode::ClusterAuthorizationFailed.code()
    );
    let mut old = fetch_request("orders", 0, 0);
    old.replica_id = 2;
    let response = fetch(&desk.client(), old, 11).await;
    assert_eq!(
        response.error_code,
        ErrorCode::ClusterAuthorizationFailed.code()
    );
    let response = fetch(&desk.internal(), follower_fetch(0), 15).await;
    assert_eq!(the_partition(&response).error_code, 0);
}

#[tokio::test]
async fn a_session_tells_only_what_is_new() {
    let desk = Desk::with(&[Topic {
        partitions: 3,
        ..Topic::default()
    }])
    .await;
    let cx = desk.client();
    let mut request = fetch_request("orders", 0, 0);
    for partition in [1, 2] {
        let more = FetchPartition {
            partition,
            ..request.topics[0].partitions[0].clone()
        };
        request.topics[0].partitions.push(more);
    }
    request.session_epoch = 0;
    let first = fetch(&cx, request, FETCH).await;
    assert_ne!(first.session_id, 0);
    assert_eq!(first.responses[0].partitions.len(), 3);

    settle(
        produce(
            &cx,
            produce_request("orders", 1, -1, batch(&["x"])),
            PRODUCE,
        )
        .await,
    )
    .await;
    let again = |session_epoch| FetchRequest {
        session_id: first.session_id,
        session_epoch,
        max_bytes: 1 << 20,
        min_bytes: 1,
        ..FetchRequest::default()
    };
    let second = fetch(&cx, again(1), FETCH).await;
    assert_eq!(second.responses.len(), 1);
    assert_eq!(the_partition(&second).partition_index, 1);
    assert_eq!(base_offsets(the_partition(&second)), [0]);
    let out_of_step = fetch(&cx, again(1), FETCH).await;
    assert_eq!(
        out_of_step.error_code,
        ErrorCode::InvalidFetchSessionEpoch.code()
    );
    assert!(out_of_step.responses.is_empty());
}

/// R37 (KAFKA-9338): the leader epoch that is compared is the one the consumer named last, not the one its session began with.
#[tokio::test]
async fn a_session_carries_the_leader_epoch() {
    let desk = Desk::with(&[Topic {
        partitions: 2,
        ..Topic::default()
    }])
    .await;
    let cx = desk.client();
    let in_epoch = |epoch: i32, session: (i32, i32)| {
        let mut request = fetch_request("orders", 0, 0);
        (request.session_id, request.session_epoch) = session;
        request.topics[0].partitions[0].current_leader_epoch = epoch;
        request
    };
    let mut first = in_epoch(0, (0, 0));
    let other = FetchPartition {
        partition: 1,
        ..first.topics[0].partitions[0].clone()
    };
    first.topics[0].partitions.push(other);
    let id = fetch(&cx, first, FETCH).await.session_id;
    assert_ne!(id, 0);
    let unchanged = |epoch| FetchRequest {
        topics: Vec::new(),
        ..in_epoch(-1, (id, epoch))
    };
    desk.learn(vec![leader_change("orders", Some(1), 5)]).await;
    produced(&cx, "orders", batch(&["a"])).await;
    // request ⇒ error and records of partition 0; of partition 1 there is no news
    let rows = [
        (unchanged(1), ErrorCode::FencedLeaderEpoch, 0),
        (in_epoch(5, (id, 2)), ErrorCode::None, 1),
        (unchanged(3), ErrorCode::None, 1),
        (in_epoch(6, (id, 4)), ErrorCode::UnknownLeaderEpoch, 0),
        (unchanged(5), ErrorCode::UnknownLeaderEpoch, 0),
        (in_epoch(5, (id, 6)), ErrorCode::None, 1),
    ];
    for (request, error, records) in rows {
        let epoch = request.session_epoch;
        let response = fetch(&cx, request, FETCH).await;
        assert_eq!(response.session_id, id, "request {epoch}");
        let partition = the_partition(&response);
        let found = (partition.partition_index, partition.error_code.into());
        assert_eq!(found, (0, error), "request {epoch}");
        assert_eq!(base_offsets(partition).len(), records, "request {epoch}");
        assert_eq!(response.responses[0].partitions.len(), 1);
    }
}

// ----- Nobody leads -----

/// R18: NOT_LEADER_OR_FOLLOWER, never LEADER_NOT_AVAILABLE, which is for Metadata: whether this broker has the log or not, and
/// at once, however long the client would wait.
#[tokio::test]
async fn a_partition_that_nobody_leads() {
    let desk = Desk::with(&[
        Topic {
            replicas: &[1, 2],
            ..Topic::default()
        },
        Topic {
            name: "elsewhere",
            replicas: &[2, 3],
            ..Topic::default()
        },
    ])
    .await;
    let offline = ["orders", "elsewhere"].map(|topic| leader_change(topic, None, 4));
    desk.learn(offline.into()).await;
    let cx = desk.client();
    // By name and by id.
    let versions = [12, 13];
    for (topic, version) in ["orders", "elsewhere"]
        .map(|topic| versions.map(|v| (topic, v)))
        .concat()
    {
        for acks in [1, -1] {
            let request = produce_request(topic, 0, acks, batch(&["x"]));
            let answer = produce(&cx, request, version).await;
            assert!(matches!(answer, Answer::Now(_)), "{topic}: {answer:?}");
            let response = settle(answer).await;
            assert!(response.node_endpoints.is_empty(), "{topic}: {response:?}");
            let answer = only(response);
            let what = format!("Produce to {topic}, acks={acks}, version {version}");
            assert_eq!(answer.error_code, 6, "{what}");
            assert_eq!(answer.base_offset, -1, "{what}");
            let leader = &answer.current_leader;
            assert_eq!((leader.leader_id, leader.leader_epoch), (-1, 4), "{what}");
        }
        let closed = produce(&cx, produce_request(topic, 0, 0, batch(&["x"])), version).await;
        assert!(matches!(closed, Answer::Close(_)), "{topic}: {closed:?}");
        for known_epoch in [-1, 4] {
            let mut request = fetch_request(topic, 0, 0);
            request.max_wait_ms = 60_000;
            request.topics[0].partitions[0].current_leader_epoch = known_epoch;
            let answer =
                tokio::time::timeout(Duration::from_secs(10), fetch(&cx, request, version));
            let response = answer.await.expect("long before its deadline");
            assert!(response.node_endpoints.is_empty(), "{topic}: {response:?}");
            let partition = the_partition(&response);
            let what = format!("Fetch from {topic}, version {version}");
            assert_eq!(partition.error_code, 6, "{what}");
            let leader = &partition.current_leader;
            assert_eq!((leader.leader_id, leader.leader_epoch), (-1, 4), "{what}");
        }
    }
    let end = desk
        .rooms
        .replicas
        .get(topic_id("orders"), 0)
        .expect("here");
    let end = end.with(|partition, _| partition.log().end_offset());
    assert_eq!(end, Offset(0), "nothing of it was appended");
}

// ----- Offsets -----

async fn listed(
    cx: &Context,
    timestamp: i64,
    current_leader_epoch: i32,
    version: i16,
) -> ListOffsetsPartitionResponse {
    let request = ListOffsetsRequest {
        topics: vec![ListOffsetsTopic {
            name: "orders".to_owned(),
            partitions: vec![ListOffsetsPartition {
                partition_index: 0,
                current_leader_epoch,
                timestamp,
            }],
        }],
        ..ListOffsetsRequest::default()
    };
    let mut response = list_offsets(cx, request, version).await;
    response.topics.remove(0).partitions.remove(0)
}

#[tokio::test]
async fn offsets_by_name_and_by_time() {
    let desk = Desk::with(&[Topic::default()]).await;
    let cx = desk.client();
    let start = desk.rooms.clock.now().wall.0 - 10_000;
    produced(&cx, "orders", batch_at(start, &["a", "b"])).await;
    produced(&cx, "orders", batch_at(start + 1000, &["c"])).await;
    // asked for ⇒ offset, timestamp
    let rows = [
        (-1, 3, -1),
        (-2, 0, -1),
        (-3, 2, start + 1000),
        (-4, 0, -1),
        (-5, -1, -1),
        (start, 0, start),
        (start + 1, 1, start + 1),
        (start + 2, 2, start + 1000),
        (start + 1000, 2, start + 1000),
        (start + 1001, -1, -1),
        (0, 0, start),
    ];
    for (asked, offset, timestamp) in rows {
        let found = listed(&cx, asked, -1, 10).await;
        assert_eq!(found.error_code, 0, "{asked}");
        assert_eq!(
            (found.offset, found.timestamp),
            (offset, timestamp),
            "{asked}"
        );
    }
}

#[tokio::test]
async fn a_partition_asked_for_twice_is_not_answered() {
    let desk = Desk::with(&[Topic::default()]).await;
    let one = ListOffsetsPartition {
        partition_index: 0,
        current_leader_epoch: -1,
        timestamp: -1,
    };
    let request = ListOffsetsRequest {
        topics: vec![ListOffsetsTopic {
            name: "orders".to_owned(),
            partitions: vec![one.clone(), one],
        }],
        ..ListOffsetsRequest::default()
    };
    let response = list_offsets(&desk.client(), request, 5).await;
    for partition in &response.topics[0].partitions {
        assert_eq!(partition.error_code, ErrorCode::InvalidRequest.code());
    }
}

#[tokio::test]
async fn ends_of_epochs() {
    let desk = Desk::with(&[Topic::default()]).await;
    let cx = desk.client();
    produced(&cx, "orders", batch(&["a", "b"])).await;
    desk.learn(vec![leader_change("orders", Some(1), 3)]).await;
    produced(&cx, "orders", batch(&["c"])).await;
    // epoch asked for ⇒ epoch, end offset
    let rows = [(0, 0, 2), (1, 0, 2), (2, 0, 2), (3, 3, 3), (4, -1, -1)];
    for (asked, epoch, end) in rows {
        let request = OffsetForLeaderEpochRequest {
            topics: vec![OffsetForLeaderTopic {
                topic: "orders".to_owned(),
                partitions: vec![OffsetForLeaderPartition {
                    partition: 0,
                    current_leader_epoch: 3,
                    leader_epoch: asked,
                }],
            }],
            ..OffsetForLeaderEpochRequest::default()
        };
        let response = offset_for_leader_epoch(&cx, request, 4).await;
        let found = &response.topics[0].partitions[0];
        assert_eq!(found.error_code, 0);
        assert_eq!(
            (found.leader_epoch, found.end_offset),
            (epoch, end),
            "epoch {asked}"
        );
    }
}

#[tokio::test]
async fn the_beginning_can_be_deleted() {
    let desk = Desk::with(&[Topic::default()]).await;
    let cx = desk.client();
    produced(&cx, "orders", batch(&["a", "b", "c"])).await;
    let delete = async |offset| {
        let request = DeleteRecordsRequest {
            topics: vec![DeleteRecordsTopic {
                name: "orders".to_owned(),
                partitions: vec![DeleteRecordsPartition {
                    partition_index: 0,
                    offset,
                }],
            }],
            ..DeleteRecordsRequest::default()
        };
        let mut response = delete_records(&cx, request, 2).await;
        response.topics.remove(0).partitions.remove(0)
    };
    // before this offset ⇒ error, where the log begins now
    let rows = [
        (4, ErrorCode::OffsetOutOfRange, -1),
        (2, ErrorCode::None, 2),
        (1, ErrorCode::None, 2),
        (-1, ErrorCode::None, 3),
    ];
    for (offset, error, start) in rows {
        let answer = delete(offset).await;
        assert_eq!(ErrorCode::from(answer.error_code), error, "{offset}");
        assert_eq!(answer.low_watermark, start, "{offset}");
    }
    assert_eq!(listed(&cx, -2, -1, 5).await.offset, 3);
    let response = fetch(&cx, fetch_request("orders", 0, 2), FETCH).await;
    assert_eq!(
        the_partition(&response).error_code,
        ErrorCode::OffsetOutOfRange.code()
    );
    let unknown: TopicId = topic_id("nothing");
    assert!(desk.rooms.replicas.get(unknown, 0).is_none());
}

#[tokio::test]
async fn a_throttled_replica_that_is_behind_waits_and_nobody_else_does() {
    let desk = Desk::with(&[Topic {
        replicas: &[1, 2],
        configs: &[("leader.replication.throttled.replicas", "0:1")],
        ..Topic::default()
    }])
    .await;
    let isr = |members: &[i32], epoch: i32| {
        MetadataRecord::PartitionChange(PartitionChange {
            partition_epoch: PartitionEpoch(epoch),
            isr: Some(members.iter().copied().map(BrokerId).collect()),
            ..change("orders")
        })
    };
    let rate = |value: Option<&str>| MetadataRecord::Config {
        resource: kuorum_metadata::record::ConfigResource::Broker(BrokerId(1)),
        name: "leader.replication.throttled.rate".to_owned(),
        value: value.map(str::to_owned),
    };
    desk.learn(vec![isr(&[1], 1), rate(Some("1"))]).await;
    // Acknowledged by all, so the high watermark is where a follower at the beginning is not.
    produced(&desk.client(), "orders", batch(&["a", "b"])).await;
    let count = async |from: i64| {
        let response = fetch(&desk.internal(), follower_fetch(from), 15).await;
        base_offsets(the_partition(&response)).len()
    };
    assert_eq!(count(0).await, 1, "within the budget");
    assert_eq!(count(0).await, 0, "a debt is waited for");
    let consumer = fetch(&desk.client(), fetch_request("orders", 0, 0), 12).await;
    assert_eq!(the_partition(&consumer).error_code, 0);
    desk.learn(vec![isr(&[1, 2], 2)]).await;
    assert_eq!(count(0).await, 1, "who is in sync is not held up");
    desk.learn(vec![isr(&[1], 3)]).await;
    assert_eq!(count(0).await, 0);
    desk.learn(vec![rate(None)]).await;
    assert_eq!(count(0).await, 1, "lifted");
}
