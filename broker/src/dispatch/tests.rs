//! The door as a stranger finds it: what is answered, and what closes the connection.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use kuorum_protocol::api_key::ApiKey;
use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::frame::{self, RequestHeader};
use kuorum_protocol::message::RequestMessage;
use kuorum_protocol::messages::api_versions::ApiVersionsRequest;
use kuorum_protocol::messages::metadata::MetadataRequest;
use kuorum_protocol::messages::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use kuorum_transport::tcp::{self, TcpStream};
use kuorum_transport::{Connection, Instant, Server, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use super::Dispatch;
use crate::context::CLIENT;
use crate::testing::{Desk, Topic, batch, topic_id};

fn no_topics() -> MetadataRequest {
    MetadataRequest {
        topics: Some(Vec::new()),
        ..MetadataRequest::default()
    }
}

struct Door {
    desk: Desk,
    address: String,
    _shut: tokio_util::sync::DropGuard,
}

async fn door() -> Door {
    let desk = Desk::with(&[Topic::default()]).await;
    let socket = tcp::listen("127.0.0.1:0").await.expect("a free port");
    let dispatch = Dispatch::new(Arc::clone(&desk.rooms));
    let server = Server::new(socket, ServerConfig::new(CLIENT), dispatch);
    let address = server.local_addr().expect("bound").to_string();
    let shut = CancellationToken::new();
    tokio::spawn(server.run(shut.clone()));
    Door {
        desk,
        address,
        _shut: shut.drop_guard(),
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

async fn knock(door: &Door) -> TcpStream {
    tcp::connect(&door.address).await.expect("connected")
}

/// What comes back until the connection ends or, if it does not, until one answer has come.
async fn answer(stream: &mut TcpStream) -> Option<Bytes> {
    let read = async {
        let size = stream.read_u32().await.ok()?;
        let mut frame = vec![0; size as usize];
        stream.read_exact(&mut frame).await.ok()?;
        Some(Bytes::from(frame))
    };
    tokio::time::timeout(Duration::from_secs(10), read)
        .await
        .expect("answered or closed")
}

fn raw(api_key: i16, version: i16, body: &[u8]) -> Vec<u8> {
    let mut frame = BytesMut::new();
    frame.put_i16(api_key);
    frame.put_i16(version);
    frame.put_i32(77);
    frame.put_i16(-1);
    frame.put_slice(body);
    let mut wire = BytesMut::new();
    wire.put_u32(frame.len() as u32);
    wire.put_slice(&frame);
    wire.to_vec()
}

fn encoded<Q: RequestMessage>(version: i16, request: &Q) -> Bytes {
    let header = RequestHeader {
        api_key: Q::API,
        api_version: version,
        correlation_id: 77,
        client_id: None,
    };
    frame::encode_request(&header, request).expect("encodes")
}

#[tokio::test]
async fn what_cannot_be_understood_closes_the_connection() {
    let door = door().await;
    let metadata = encoded(4, &no_topics());
    let cut = |bytes: &Bytes, by: usize| {
        let mut shorter = bytes[..bytes.len() - by].to_vec();
        let size = (shorter.len() - 4) as u32;
        shorter[..4].copy_from_slice(&size.to_be_bytes());
        shorter
    };
    let grown = |bytes: &Bytes| {
        let mut longer = bytes.to_vec();
        longer.push(0);
        let size = (longer.len() - 4) as u32;
        longer[..4].copy_from_slice(&size.to_be_bytes());
        longer
    };
    let most = i32::MAX.to_be_bytes();
    let rows: [(&str, Vec<u8>); 11] = [
        ("an API nobody has", raw(9999, 0, &[])),
        ("a negative API", raw(-1, 0, &[])),
        ("an API between brokers", raw(4, 0, &[])),
        ("a version too high", raw(ApiKey::Metadata.key(), 99, &[])),
        (
            "a version below zero",
            raw(ApiKey::Metadata.key(), -1, &most),
        ),
        (
            "a Produce only advertised",
            raw(ApiKey::Produce.key(), 2, &[0; 16]),
        ),
        ("a truncated body", cut(&metadata, 1)),
        ("trailing bytes", grown(&metadata)),
        ("a count of 2³¹−1", raw(ApiKey::Metadata.key(), 1, &most)),
        (
            "counts of 2³¹−1 in a Fetch",
            raw(
                ApiKey::Fetch.key(),
                4,
                &[[0xff; 4], most, most, most, most].concat(),
            ),
        ),
        ("a client id longer than the frame", {
            let mut wire = raw(ApiKey::Metadata.key(), 1, &[]);
            let at = wire.len() - 2;
            wire[at..].copy_from_slice(&i16::MAX.to_be_bytes());
            wire
        }),
    ];
    for (what, wire) in rows {
        let mut stream = knock(&door).await;
        stream.write_all(&wire).await.expect("sent");
        assert_eq!(answer(&mut stream).await, None, "{what}");
    }
    // And the door is still open to others.
    let connection = Connection::connect(&door.address, Some("test"), soon())
        .await
        .expect("connected");
    let response = connection
        .call(4, &no_topics(), soon())
        .await
        .expect("answered");
    assert_eq!(response.topics.len(), 0, "none were asked for");
}

#[tokio::test]
async fn a_client_from_the_future_learns_what_is_spoken_here() {
    let door = door().await;
    let mut stream = knock(&door).await;
    stream
        .write_all(&raw(ApiKey::ApiVersions.key(), 99, b"who knows"))
        .await
        .expect("sent");
    let mut frame = answer(&mut stream).await.expect("answered");
    let correlation_id =
        frame::decode_response_header(ApiKey::ApiVersions, 0, &mut frame).expect("a header");
    assert_eq!(correlation_id, 77);
    let response = frame::decode_api_versions_body(99, frame).expect("version 0");
    assert_eq!(response.error_code, ErrorCode::UnsupportedVersion.code());
    let [row] = &response.api_keys[..] else {
        panic!("its own row: {response:?}");
    };
    assert_eq!((row.api_key, row.min_version, row.max_version), (18, 0, 4));

    stream
        .write_all(&encoded(
            4,
            &ApiVersionsRequest {
                client_software_name: "test".to_owned(),
                client_software_version: "1.0".to_owned(),
            },
        ))
        .await
        .expect("sent on the same connection");
    assert!(answer(&mut stream).await.is_some());
}

#[tokio::test]
async fn produces_overlap_and_are_answered_in_order() {
    let door = door().await;
    let mut stream = knock(&door).await;
    let produce = |acks| ProduceRequest {
        acks,
        timeout_ms: 10_000,
        topic_data: vec![TopicProduceData {
            name: "orders".to_owned(),
            topic_id: topic_id("orders").0,
            partition_data: vec![PartitionProduceData {
                index: 0,
                records: Some(batch(&["x"])),
            }],
        }],
        ..ProduceRequest::default()
    };
    // The third has no answer at all.
    for acks in [-1, 1, 0, -1, 1] {
        stream
            .write_all(&encoded(9, &produce(acks)))
            .await
            .expect("sent");
    }
    let mut offsets = Vec::new();
    for _ in 0..4 {
        let mut frame = answer(&mut stream).await.expect("answered");
        frame::decode_response_header(ApiKey::Produce, 9, &mut frame).expect("a header");
        let response: kuorum_protocol::messages::produce::ProduceResponse =
            frame::decode_body(9, frame).expect("a body");
        offsets.push(response.responses[0].partition_responses[0].base_offset);
    }
    assert_eq!(offsets, [0, 1, 3, 4]);
    // Of another topic, which is not there.
    let mut elsewhere = produce(1);
    elsewhere.topic_data[0].name = "nowhere".to_owned();
    stream
        .write_all(&encoded(9, &elsewhere))
        .await
        .expect("sent");
    answer(&mut stream).await.expect("answered");
    let scraped = door.desk.rooms.metrics.scrape(&door.desk.rooms);
    for line in [
        "kafka_network_requestmetrics_requests_total{request=\"Produce\"} 6",
        "kafka_network_requestmetrics_errors_total{request=\"Produce\",error=\"UNKNOWN_TOPIC_OR_PARTITION\"} 1",
        "kafka_server_brokertopicmetrics_messagesin_total 5",
        "kafka_server_replicamanager_leadercount 1",
        "kafka_server_replicamanager_isrshrinks_total 0",
        "kafka_server_replicamanager_isrshrinkspersec 0",
        "kafka_server_replicamanager_failedisrupdates_total 0",
        "kafka_server_replicamanager_produceridcount 0",
        "kafka_server_replicafetchermanager_maxlag 0",
        "kafka_server_delayedoperationpurgatory_purgatorysize{delayedOperation=\"Produce\"} 0",
        "kafka_server_delayedoperationpurgatory_purgatorysize{delayedOperation=\"Fetch\"} 0",
        "kafka_server_brokertopicmetrics_reassignmentbytesin_total 0",
        "kafka_server_socketservermetrics_connection_count 1",
    ] {
        assert!(scraped.contains(line), "{line} in\n{scraped}");
    }
    for name in [
        "process_cpu_seconds_total",
        "process_start_time_seconds",
        "kuorum_broker_log_size_bytes",
        "kafka_log_logflushstats_logflushtime_seconds_count",
    ] {
        let value = scraped
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        assert!(value > Some(0.0), "{name} is {value:?} in\n{scraped}");
    }
    let by_partition = crate::metrics::partitions::scrape(&door.desk.rooms, Some("orders"));
    let of = "{topic=\"orders\",partition=\"0\"}";
    for line in [
        format!("kafka_topic_partition_current_offset{of} 5"),
        format!("kafka_topic_partition_oldest_offset{of} 0"),
        format!("kafka_topic_partition_leader{of} 1"),
        format!("kafka_topic_partition_leader_is_preferred{of} 1"),
        format!("kafka_topic_partition_in_sync_replica{of} 1"),
        format!("kafka_topic_partition_replicas{of} 1"),
        format!("kafka_topic_partition_under_replicated_partition{of} 0"),
        format!("kafka_cluster_partition_atminisr{of} 1"),
        format!("kafka_cluster_partition_underminisr{of} 0"),
    ] {
        assert!(by_partition.contains(&line), "{line} in\n{by_partition}");
    }
    assert!(by_partition.contains(&format!("kafka_log_log_size{of} ")));
    let none = crate::metrics::partitions::scrape(&door.desk.rooms, Some("nowhere"));
    assert!(
        !none.contains("nowhere") && !none.contains("orders"),
        "{none}"
    );
}
