//! Stories of the client and two brokers that say what the story asks for: on real sockets, with real frames.

#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use kuorum_client::{
    Consumer, ConsumerConfig, ProduceError, Producer, ProducerConfig, ProducerRecord, StartAt,
    TopicPartition,
};
use kuorum_protocol::frame::{decode_request_header, encode_response};
use kuorum_protocol::messages::api_versions::{ApiVersion, ApiVersionsResponse};
use kuorum_protocol::messages::fetch::{
    FetchRequest, FetchResponse, FetchableTopicResponse, PartitionData,
};
use kuorum_protocol::messages::init_producer_id::InitProducerIdResponse;
use kuorum_protocol::messages::list_offsets::{
    EARLIEST, ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse,
    ListOffsetsTopicResponse,
};
use kuorum_protocol::messages::metadata::{
    MetadataRequest, MetadataResponse, MetadataResponseBroker, MetadataResponsePartition,
    MetadataResponseTopic,
};
use kuorum_protocol::messages::produce::{
    LeaderIdAndEpoch, PartitionProduceResponse, ProduceRequest, ProduceResponse,
    TopicProduceResponse,
};
use kuorum_protocol::messages::{Request, fetch};
use kuorum_protocol::record::{BatchMut, BatchView};
use kuorum_protocol::{ApiKey, ErrorCode, LeaderEpoch, Message, Offset};
use kuorum_transport::server::{Outcome, Peer, Server, ServerConfig, Service};
use kuorum_transport::tcp::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

const TOPIC: &str = "payments";
const TOPIC_ID: Uuid = Uuid::from_u128(7);
const PATIENCE: Duration = Duration::from_secs(20);

/// What a broker does with a Produce, in the order of the story.
#[derive(Clone, Copy, Debug)]
enum Turn {
    /// Appends nothing and says who leads instead.
    Elsewhere { leader: i32 },
    /// Appends nothing and refuses.
    Refuse(ErrorCode),
    /// Appends, and the connection breaks before the answer.
    BreakAfter,
    /// Appends nothing, and the connection breaks.
    BreakBefore,
}

#[derive(Debug, Default)]
struct Cluster {
    ports: Vec<u16>,
    leader: i32,
    epoch: i32,
    script: VecDeque<Turn>,
    /// Every Produce that was read: to whom, and the batch's base sequence.
    produced: Vec<(i32, i32)>,
    /// Batches, one log for both brokers.
    log: Vec<Bytes>,
    start: i64,
    metadata_asked: u32,
    /// Fetches that get a code before they get records.
    fetch_codes: VecDeque<ErrorCode>,
}

impl Cluster {
    fn end(&self) -> i64 {
        let last = self
            .log
            .last()
            .map(|batch| BatchView::parse(batch).unwrap().next_offset().0);
        last.unwrap_or(self.start)
    }

    fn sequences(&self) -> Vec<i32> {
        let view = |batch| BatchView::parse(batch).unwrap().base_sequence().0;
        self.log.iter().map(|batch| view(batch)).collect()
    }

    /// Appends unless it is there already; returns the base offset.
    fn append(&mut self, bytes: &Bytes) -> i64 {
        let sequence = BatchView::parse(bytes).unwrap().base_sequence();
        let known = self
            .log
            .iter()
            .map(|batch| BatchView::parse(batch).unwrap());
        let known = known.filter(|batch| sequence.0 >= 0 && batch.base_sequence() == sequence);
        if let Some(batch) = known.last() {
            return batch.base_offset().0;
        }
        let base = self.end();
        let mut bytes = bytes.to_vec();
        let mut batch = BatchMut::parse(&mut bytes).unwrap();
        batch.set_base_offset(Offset(base));
        batch.set_leader_epoch(LeaderEpoch(self.epoch));
        self.log.push(bytes.into());
        base
    }

    fn metadata(&mut self, request: &MetadataRequest) -> MetadataResponse {
        self.metadata_asked += 1;
        let names = request
            .topics
            .iter()
            .flatten()
            .filter_map(|topic| topic.name.clone());
        MetadataResponse {
            brokers: (1..)
                .zip(&self.ports)
                .map(|(node_id, port)| MetadataResponseBroker {
                    node_id,
                    host: "127.0.0.1".to_owned(),
                    port: i32::from(*port),
                    ..Default::default()
                })
                .collect(),
            topics: names
                .map(|name| match name == TOPIC {
                    false => MetadataResponseTopic {
                        error_code: ErrorCode::UnknownTopicOrPartition.code(),
                        name: Some(name),
                        ..Default::default()
                    },
                    true => MetadataResponseTopic {
                        name: Some(name),
                        topic_id: TOPIC_ID,
                        partitions: vec![MetadataResponsePartition {
                            leader_id: self.leader,
                            leader_epoch: self.epoch,
                            replica_nodes: vec![1, 2],
                            isr_nodes: vec![1, 2],
                            ..Default::default()
                        }],
                        ..Default::default()
                    },
                })
                .collect(),
            ..Default::default()
        }
    }

    /// The answer, or none if the connection breaks.
    fn produce(&mut self, broker: i32, request: &ProduceRequest) -> Option<ProduceResponse> {
        let topic = &request.topic_data[0];
        let bytes = topic.partition_data[0].records.clone().unwrap();
        self.produced
            .push((broker, BatchView::parse(&bytes).unwrap().base_sequence().0));
        let mut part = PartitionProduceResponse::default();
        match self.script.pop_front() {
            Some(Turn::Elsewhere { leader }) => {
                self.leader = leader;
                self.epoch += 1;
                part.error_code = ErrorCode::NotLeaderOrFollower.code();
                part.current_leader = LeaderIdAndEpoch {
                    leader_id: leader,
                    leader_epoch: self.epoch,
                };
            }
            Some(Turn::Refuse(code)) => part.error_code = code.code(),
            Some(Turn::BreakBefore) => return None,
            Some(Turn::BreakAfter) => {
                self.append(&bytes);
                return None;
            }
            None => part.base_offset = self.append(&bytes),
        }
        Some(ProduceResponse {
            responses: vec![TopicProduceResponse {
                name: topic.name.clone(),
                topic_id: topic.topic_id,
                partition_responses: vec![part],
            }],
            ..Default::default()
        })
    }

    fn fetch(&mut self, broker: i32, request: &FetchRequest) -> FetchResponse {
        let topic = &request.topics[0];
        let asked = &topic.partitions[0];
        let mut part = PartitionData {
            high_watermark: self.end(),
            last_stable_offset: self.end(),
            ..Default::default()
        };
        let code = match self.fetch_codes.pop_front() {
            Some(code) => code,
            None if broker != self.leader => ErrorCode::NotLeaderOrFollower,
            None if asked.fetch_offset < self.start || asked.fetch_offset > self.end() => {
                ErrorCode::OffsetOutOfRange
            }
            None => ErrorCode::None,
        };
        part.error_code = code.code();
        if code == ErrorCode::NotLeaderOrFollower {
            part.current_leader = fetch::LeaderIdAndEpoch {
                leader_id: self.leader,
                leader_epoch: self.epoch,
            };
        }
        if code == ErrorCode::None {
            let next = |batch: &&Bytes| {
                BatchView::parse(batch).unwrap().next_offset().0 > asked.fetch_offset
            };
            // One batch at a time, whole, as a broker does.
            part.records = self.log.iter().find(next).cloned();
        }
        FetchResponse {
            responses: vec![FetchableTopicResponse {
                topic: topic.topic.clone(),
                topic_id: topic.topic_id,
                partitions: vec![part],
            }],
            ..Default::default()
        }
    }

    fn list_offsets(&self, request: &ListOffsetsRequest) -> ListOffsetsResponse {
        let timestamp = request.topics[0].partitions[0].timestamp;
        let offset = if timestamp == EARLIEST {
            self.start
        } else {
            self.end()
        };
        ListOffsetsResponse {
            topics: vec![ListOffsetsTopicResponse {
                name: TOPIC.to_owned(),
                partitions: vec![ListOffsetsPartitionResponse {
                    offset,
                    ..Default::default()
                }],
            }],
            ..Default::default()
        }
    }
}

struct Broker {
    id: i32,
    cluster: Arc<Mutex<Cluster>>,
}

impl Service for Broker {
    type Session = ();

    fn connected(&self, _: &Peer) -> Self::Session {}

    async fn handle(&self, (): &mut (), mut frame: Bytes) -> Outcome {
        let header = decode_request_header(&mut frame).expect("a header");
        let (api, version, id) = (header.api_key, header.api_version, header.correlation_id);
        let mut cluster = self
            .cluster
            .lock()
            .expect("no test panics while it holds the cluster");
        match Request::decode(api, version, frame).expect("a request") {
            Request::ApiVersions(_) => {
                let api_keys = ApiKey::ALL
                    .iter()
                    .map(|api| ApiVersion::advertise(*api))
                    .collect();
                let response = ApiVersionsResponse {
                    api_keys,
                    ..Default::default()
                };
                reply(version, id, &response)
            }
            Request::Metadata(request) => reply(version, id, &cluster.metadata(&request)),
            Request::InitProducerId(_) => {
                let response = InitProducerIdResponse {
                    producer_id: 9999,
                    ..Default::default()
                };
                reply(version, id, &response)
            }
            Request::Produce(request) => match cluster.produce(self.id, &request) {
                Some(_) if request.acks == 0 => Outcome::Silent,
                Some(response) => reply(version, id, &response),
                None => Outcome::Close("the story says so".to_owned()),
            },
            Request::Fetch(request) => reply(version, id, &cluster.fetch(self.id, &request)),
            Request::ListOffsets(request) => reply(version, id, &cluster.list_offsets(&request)),
            other => panic!("nobody asks for {other:?}"),
        }
    }
}

fn reply<M: Message>(version: i16, correlation_id: i32, message: &M) -> Outcome {
    let frame = encode_response(M::API, version, correlation_id, message).expect("a response");
    Outcome::Reply(frame.into())
}

struct Stage {
    cluster: Arc<Mutex<Cluster>>,
    bootstrap: String,
    _stop: DropGuard,
}

impl Stage {
    async fn new(script: &[Turn]) -> Self {
        let cluster = Arc::new(Mutex::new(Cluster {
            leader: 1,
            script: script.iter().copied().collect(),
            ..Cluster::default()
        }));
        let stop = CancellationToken::new();
        let mut ports = Vec::new();
        for id in [1, 2] {
            let socket = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
            let broker = Broker {
                id,
                cluster: Arc::clone(&cluster),
            };
            let server = Server::new(socket, ServerConfig::new("CLIENT"), broker);
            ports.push(server.local_addr().expect("it is bound").port());
            tokio::spawn(server.run(stop.clone()));
        }
        let bootstrap = format!("127.0.0.1:{}", ports[0]);
        cluster.lock().expect("nobody holds it yet").ports = ports;
        Self {
            cluster,
            bootstrap,
            _stop: stop.drop_guard(),
        }
    }

    fn cluster(&self) -> MutexGuard<'_, Cluster> {
        self.cluster
            .lock()
            .expect("no test panics while it holds the cluster")
    }

    fn producer(&self, settings: &[(&str, &str)]) -> Producer {
        let mut config = ProducerConfig::new(&self.bootstrap).unwrap();
        config.set("linger.ms", "0").unwrap();
        config.set("retry.backoff.ms", "10").unwrap();
        for (name, value) in settings {
            config.set(name, value).unwrap();
        }
        Producer::new(config).unwrap()
    }

    fn consumer(&self, settings: &[(&str, &str)]) -> Consumer {
        let mut config = ConsumerConfig::new(&self.bootstrap).unwrap();
        config.set("fetch.max.wait.ms", "10").unwrap();
        config.set("retry.backoff.ms", "10").unwrap();
        for (name, value) in settings {
            config.set(name, value).unwrap();
        }
        Consumer::new(config)
    }

    /// Puts records into the log, one batch each.
    async fn fill(&self, records: std::ops::Range<i64>) {
        let producer = self.producer(&[]);
        for record in records {
            let record = ProducerRecord::new(TOPIC, record.to_string());
            producer.send(record).await.unwrap().await.unwrap();
        }
        producer.close(PATIENCE).await;
    }
}

/// Sends 1, 2 and 3 one after the other and returns their offsets.
async fn send_three(producer: &Producer) -> Vec<Result<i64, ProduceError>> {
    let mut outcomes = Vec::new();
    for value in ["1", "2", "3"] {
        let delivery = producer
            .send(ProducerRecord::new(TOPIC, value))
            .await
            .unwrap();
        outcomes.push(delivery.await.map(|place| place.offset));
    }
    outcomes
}

async fn read(consumer: &mut Consumer, count: usize) -> Vec<i64> {
    let mut offsets = Vec::new();
    while offsets.len() < count {
        let records = consumer.poll(PATIENCE).await.unwrap();
        assert!(!records.is_empty(), "only {offsets:?} came");
        offsets.extend(records.iter().map(|record| record.offset));
    }
    offsets
}

#[tokio::test]
async fn whatever_happens_on_the_way_a_record_is_there_once_and_in_order() {
    let refuse = Turn::Refuse;
    // What happens, and every try as (broker, sequence).
    type Story<'a> = (&'a str, &'a [Turn], &'a [(i32, i32)]);
    let stories: [Story<'_>; 6] = [
        ("nothing", &[], &[(1, 0), (1, 1), (1, 2)]),
        (
            "a lost request",
            &[Turn::BreakBefore],
            &[(1, 0), (1, 0), (1, 1), (1, 2)],
        ),
        (
            "a lost answer",
            &[Turn::BreakAfter],
            &[(1, 0), (1, 0), (1, 1), (1, 2)],
        ),
        (
            "a new leader",
            &[Turn::Elsewhere { leader: 2 }],
            &[(1, 0), (2, 0), (2, 1), (2, 2)],
        ),
        (
            "too few replicas",
            &[
                refuse(ErrorCode::NotEnoughReplicas),
                refuse(ErrorCode::NotEnoughReplicas),
            ],
            &[(1, 0), (1, 0), (1, 0), (1, 1), (1, 2)],
        ),
        (
            "a lost answer and then a new leader",
            &[Turn::BreakAfter, Turn::Elsewhere { leader: 2 }],
            &[(1, 0), (1, 0), (2, 0), (2, 1), (2, 2)],
        ),
    ];
    for (name, script, expected) in stories {
        let stage = Stage::new(script).await;
        let producer = stage.producer(&[]);
        assert!(producer.is_idempotent());
        let offsets = tokio::time::timeout(PATIENCE, send_three(&producer))
            .await
            .unwrap();
        assert_eq!(offsets, [Ok(0), Ok(1), Ok(2)], "{name}");
        assert_eq!(stage.cluster().produced, expected, "{name}");
        assert_eq!(stage.cluster().sequences(), [0, 1, 2], "{name}");
        assert!(producer.close(PATIENCE).await);
    }
}

#[tokio::test]
async fn a_leader_named_in_the_answer_is_not_asked_for() {
    let stage = Stage::new(&[Turn::Elsewhere { leader: 2 }]).await;
    let producer = stage.producer(&[]);
    send_three(&producer).await;
    assert_eq!(stage.cluster().metadata_asked, 1);
}

#[tokio::test]
async fn a_refusal_for_good_is_the_records_outcome() {
    let stage = Stage::new(&[Turn::Refuse(ErrorCode::InvalidRecord)]).await;
    let outcomes = send_three(&stage.producer(&[])).await;
    let refused = outcomes[0].as_ref().unwrap_err();
    let code = ErrorCode::InvalidRecord;
    assert!(matches!(refused, ProduceError::Refused { code: found, .. } if *found == code));
    assert!(!refused.possibly_persisted());
    assert_eq!(outcomes[1..], [Ok(0), Ok(1)]);
    assert_eq!(
        stage.cluster().sequences(),
        [0, 1],
        "its number was taken by the next"
    );
}

#[tokio::test]
async fn without_acknowledgements_offsets_are_not_known() {
    let stage = Stage::new(&[]).await;
    let producer = stage.producer(&[("acks", "0")]);
    assert!(!producer.is_idempotent());
    assert_eq!(send_three(&producer).await, [Ok(-1), Ok(-1), Ok(-1)]);
}

#[tokio::test]
async fn what_cannot_be_sent_is_said_at_once_or_after_max_block() {
    let stage = Stage::new(&[]).await;
    let producer = stage.producer(&[("max.block.ms", "50"), ("max.request.size", "1000")]);
    let unknown = producer
        .send(ProducerRecord::new("nowhere", "1"))
        .await
        .unwrap_err();
    assert!(
        matches!(unknown, ProduceError::NoMetadata { .. }),
        "{unknown}"
    );
    let large = producer
        .send(ProducerRecord::new(TOPIC, vec![0; 1000]))
        .await
        .unwrap_err();
    assert!(
        matches!(large, ProduceError::RecordTooLarge { limit: 1000, .. }),
        "{large}"
    );
    let record = ProducerRecord::new(TOPIC, "1").with_partition(1);
    let partition = producer.send(record).await.unwrap_err();
    assert!(matches!(
        partition,
        ProduceError::NoMetadata { .. } | ProduceError::UnknownPartition { .. }
    ));
}

#[tokio::test]
async fn a_full_buffer_makes_send_wait_and_then_fail() {
    let stage = Stage::new(&[Turn::Refuse(ErrorCode::NotEnoughReplicas); 1000]).await;
    let producer = stage.producer(&[
        ("max.block.ms", "100"),
        ("buffer.memory", "20000"),
        ("batch.size", "10000"),
    ]);
    let record = || ProducerRecord::new(TOPIC, vec![0; 9000]);
    let first = producer.send(record()).await.unwrap();
    let _second = producer.send(record()).await.unwrap();
    let third = producer.send(record()).await.unwrap_err();
    assert!(matches!(third, ProduceError::BufferFull(_)), "{third}");
    drop(producer);
    assert_eq!(first.await.unwrap_err(), ProduceError::Closed);
}

#[tokio::test]
async fn a_full_buffer_ends_the_lingering() {
    let stage = Stage::new(&[]).await;
    let producer = stage.producer(&[
        ("linger.ms", "60000"),
        ("buffer.memory", "20000"),
        ("batch.size", "16000"),
    ]);
    let record = || ProducerRecord::new(TOPIC, vec![0; 9000]);
    let first = producer.send(record()).await.unwrap();
    let second = producer.send(record()).await.unwrap();
    let _third = tokio::time::timeout(PATIENCE, producer.send(record()))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(first.await.unwrap().offset, 0);
    assert_eq!(second.await.unwrap().offset, 1);
}

#[tokio::test]
async fn a_consumer_reads_on_at_the_new_leader() {
    let stage = Stage::new(&[]).await;
    stage.fill(0..6).await;
    let mut consumer = stage.consumer(&[("max.poll.records", "1")]);
    consumer
        .assign_topic(TOPIC, StartAt::Beginning, PATIENCE)
        .await
        .unwrap();
    assert_eq!(read(&mut consumer, 3).await, [0, 1, 2]);
    {
        let mut cluster = stage.cluster();
        cluster.leader = 2;
        cluster.epoch += 1;
        cluster.fetch_codes = [ErrorCode::UnknownLeaderEpoch, ErrorCode::KafkaStorageError].into();
    }
    assert_eq!(read(&mut consumer, 3).await, [3, 4, 5]);
    let partition = TopicPartition::new(TOPIC, 0);
    assert_eq!(consumer.position(&partition).unwrap(), Some(6));
    assert!(
        consumer
            .poll(Duration::from_millis(50))
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn a_position_that_is_not_in_the_log_is_reset_or_said() {
    let rows = [("earliest", Some(2)), ("latest", None), ("none", None)];
    for (reset, first) in rows {
        let stage = Stage::new(&[]).await;
        stage.cluster().start = 2;
        stage.fill(2..4).await;
        let mut consumer = stage.consumer(&[("auto.offset.reset", reset)]);
        let partition = TopicPartition::new(TOPIC, 0);
        consumer.assign([(partition.clone(), StartAt::Offset(0))]);
        match (reset, first) {
            ("none", _) => {
                let error = consumer.poll(PATIENCE).await.unwrap_err().to_string();
                assert_eq!(error, "offset 0 of payments-0 is not in the log");
            }
            (_, Some(first)) => assert_eq!(read(&mut consumer, 2).await, [first, first + 1]),
            (_, None) => {
                let none = consumer.poll(Duration::from_millis(300)).await.unwrap();
                assert!(none.is_empty());
                assert_eq!(consumer.position(&partition).unwrap(), Some(4));
            }
        }
    }
}

#[tokio::test]
async fn a_consumer_begins_where_it_is_told() {
    let stage = Stage::new(&[]).await;
    stage.fill(0..4).await;
    let partition = TopicPartition::new(TOPIC, 0);
    let mut consumer = stage.consumer(&[]);
    let ends = consumer
        .offsets(std::slice::from_ref(&partition), StartAt::End, PATIENCE)
        .await;
    assert_eq!(ends.unwrap()[&partition], 4);
    consumer.assign([(partition.clone(), StartAt::Offset(2))]);
    assert_eq!(read(&mut consumer, 2).await, [2, 3]);
    consumer.seek(&partition, StartAt::Beginning).unwrap();
    assert_eq!(read(&mut consumer, 4).await, [0, 1, 2, 3]);
    consumer.seek(&partition, StartAt::Offset(1)).unwrap();
    consumer.pause(&partition, true).unwrap();
    assert!(
        consumer
            .poll(Duration::from_millis(50))
            .await
            .unwrap()
            .is_empty()
    );
    consumer.pause(&partition, false).unwrap();
    assert_eq!(read(&mut consumer, 3).await, [1, 2, 3]);
}
