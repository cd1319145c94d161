//! A client of the brokers: the product's own producer and consumer, and what only an administrator asks for.
//! Law: it says what it was told and shown, and judges nothing.

use std::sync::Arc;
use std::time::Duration;

use kuorum_client::{
    Cluster as Brokers, ConsumeError, Consumer, ConsumerConfig, DefaultPartitioner, ProduceError,
    Producer, ProducerConfig, ProducerRecord, RecordMetadata, StartAt, TopicPartition,
};
use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::messages::create_topics::{
    CreatableTopic, CreatableTopicConfig, CreateTopicsRequest,
};
use kuorum_protocol::messages::init_producer_id::InitProducerIdRequest;
use kuorum_protocol::{ProducerId, TopicId};
use kuorum_transport::{Clock, Instant};

use crate::broker::CLIENT_PORT;
use crate::history::Told;
use crate::ledger::{Fate, Place, value};
use crate::network::Roads;
use crate::plan::{BROKERS, TOPICS, broker_host, client_host};
use crate::world::Cluster;

/// How long what an administrator asks for may take.
const ASKED: Duration = Duration::from_secs(5);
/// How long a consumer waits for records before it looks around.
const POLL: Duration = Duration::from_millis(500);
/// Records sent together at most.
const BURST: u64 = 5;

struct Client {
    cluster: Arc<Cluster>,
    name: String,
    clock: Clock,
    roads: Arc<Roads>,
    brokers: Brokers,
}

/// Every partition that records are sent to.
pub(crate) fn places() -> impl Iterator<Item = Place> {
    TOPICS
        .iter()
        .flat_map(|topic| (0..topic.partitions).map(|partition| (topic.name.to_owned(), partition)))
}

/// Runs for ever.
pub(crate) async fn run(cluster: Arc<Cluster>, id: u64) -> turmoil::Result {
    let clock = Clock::seeded(cluster.number(400 + id));
    let roads = Arc::new(Roads::default());
    let settings = producer_settings(&cluster, id)?;
    let producer = Producer::over(
        roads.clone(),
        clock.clone(),
        settings.clone(),
        Box::new(DefaultPartitioner),
    )?;
    let client = Arc::new(Client {
        brokers: Brokers::over(roads.clone(), settings.client, false, clock.clone()),
        name: client_host(id),
        cluster,
        clock,
        roads,
    });
    client.make_topics().await;
    tokio::spawn(Arc::clone(&client).read());
    client.write(&producer).await;
    Ok(())
}

fn bootstrap() -> String {
    let addresses: Vec<String> = BROKERS
        .iter()
        .map(|id| format!("{}:{CLIENT_PORT}", broker_host(*id)))
        .collect();
    addresses.join(",")
}

fn producer_settings(
    cluster: &Cluster,
    id: u64,
) -> Result<ProducerConfig, Box<dyn std::error::Error>> {
    let plan = &cluster.plan;
    let settings = ProducerConfig::new(&bootstrap())?
        .with("client.id", &client_host(id))?
        .with("allow.auto.create.topics", "false")?
        .with("request.timeout.ms", "2000")?
        .with("delivery.timeout.ms", "9000")?
        .with("max.block.ms", "5000")?
        .with("socket.connection.setup.timeout.ms", "1000")?
        .with("linger.ms", &plan.linger.as_millis().to_string())?
        .with(
            "max.in.flight.requests.per.connection",
            &plan.in_flight.to_string(),
        )?;
    Ok(settings)
}

impl Client {
    async fn pause(&self, most_millis: u64) {
        let millis = 5 + self.clock.random_below(most_millis);
        self.clock.sleep(Duration::from_millis(millis)).await;
    }

    /// Makes the topics that everybody uses, unless somebody else does.
    async fn make_topics(&self) {
        for topic in TOPICS {
            loop {
                let wanted = CreatableTopic {
                    name: topic.name.to_owned(),
                    num_partitions: topic.partitions,
                    replication_factor: topic.copies,
                    configs: [
                        ("min.insync.replicas", topic.min_insync.to_string()),
                        ("segment.bytes", "4096".to_owned()),
                    ]
                    .into_iter()
                    .map(|(name, value)| CreatableTopicConfig {
                        name: name.to_owned(),
                        value: Some(value),
                    })
                    .collect(),
                    ..CreatableTopic::default()
                };
                match self.create(wanted).await {
                    Some((ErrorCode::None | ErrorCode::TopicAlreadyExists, _)) => break,
                    _ => self.pause(300).await,
                }
            }
        }
    }

    /// Asks brokers to create a topic until one has an answer; none if there is none in time.
    async fn create(&self, topic: CreatableTopic) -> Option<(ErrorCode, TopicId)> {
        let request = CreateTopicsRequest {
            topics: vec![topic],
            timeout_ms: ASKED.as_millis() as i32,
            validate_only: false,
        };
        let answer = self
            .brokers
            .ask_any(&request, Instant::now() + ASKED, |_| None)
            .await;
        let result = answer.ok()?.topics.pop()?;
        Some((ErrorCode::from(result.error_code), TopicId(result.topic_id)))
    }

    async fn write(self: &Arc<Self>, producer: &Producer) {
        let mut number = 0;
        let mut topics = 0;
        let mut probed = 0;
        let places: Vec<Place> = places().collect();
        loop {
            self.pause(120).await;
            let orders = self.cluster.orders();
            if orders.probe > probed {
                if self.probe(producer, &places, &mut number).await {
                    probed = orders.probe;
                    self.cluster.probed(self.name.clone(), probed);
                }
            } else if orders.busy {
                match self.clock.random_below(24) {
                    0 => {
                        topics += 1;
                        tokio::spawn(Arc::clone(self).make_one(topics));
                    }
                    1 => {
                        tokio::spawn(Arc::clone(self).take_identity());
                    }
                    _ => self.burst(producer, &places, &mut number).await,
                }
            }
        }
    }

    /// Sends a few records, whose outcome is noted when it comes.
    async fn burst(self: &Arc<Self>, producer: &Producer, places: &[Place], number: &mut u64) {
        for _ in 0..=self.clock.random_below(BURST) {
            let place = &places[self.clock.random_below(places.len() as u64) as usize];
            let outcome = self.send(producer, place, number).await;
            let client = Arc::clone(self);
            tokio::spawn(async move {
                let (value, outcome) = outcome;
                let outcome = match outcome {
                    Ok(delivery) => delivery.await,
                    Err(error) => Err(error),
                };
                client.note(&value, &outcome);
            });
        }
    }

    async fn send(
        &self,
        producer: &Producer,
        place: &Place,
        number: &mut u64,
    ) -> (String, Result<kuorum_client::Delivery, ProduceError>) {
        *number += 1;
        let value = value(&self.name, *number);
        self.cluster
            .ledger
            .lock()
            .sent(value.clone(), place.clone());
        let record = ProducerRecord::new(place.0.clone(), value.clone()).with_partition(place.1);
        let taken = producer.send(record).await;
        (value, taken)
    }

    fn note(&self, value: &str, outcome: &Result<RecordMetadata, ProduceError>) -> bool {
        let mut ledger = self.cluster.ledger.lock();
        let fate = match outcome {
            Ok(place) => Fate::At(place.offset),
            Err(error) if error.possibly_persisted() => Fate::Unknown,
            Err(_) => Fate::Absent,
        };
        ledger.told(value, fate);
        if let Err(error @ (ProduceError::Fenced(_) | ProduceError::Closed)) = outcome {
            ledger.violated(format!(
                "producers-go-on: {value} was the last record of its producer: {error}"
            ));
        }
        outcome.is_ok()
    }

    /// A record for every partition; whether all were acknowledged.
    async fn probe(&self, producer: &Producer, places: &[Place], number: &mut u64) -> bool {
        let mut deliveries = Vec::new();
        for place in places {
            deliveries.push(self.send(producer, place, number).await);
        }
        let mut all = true;
        for (value, taken) in deliveries {
            let outcome = match taken {
                Ok(delivery) => delivery.await,
                Err(error) => Err(error),
            };
            all &= self.note(&value, &outcome);
        }
        all
    }

    /// Creates a topic nobody else creates, through whatever broker answers.
    async fn make_one(self: Arc<Self>, number: u64) {
        let name = format!("{}-{number}", self.name);
        let asked = now();
        let answer = self
            .create(CreatableTopic {
                name: name.clone(),
                num_partitions: 1,
                replication_factor: 1 + (number % 3) as i16,
                ..CreatableTopic::default()
            })
            .await;
        // A broker asks again for itself, so a refusal may come after a success.
        let told = match answer {
            Some((ErrorCode::None, id)) => Told::Created(name, id),
            Some((ErrorCode::TopicAlreadyExists, _)) => Told::Exists(name),
            _ => Told::Unknown(name),
        };
        self.cluster.history.lock().told(told, asked, now());
    }

    /// Asks for a producer id as if it were a producer of its own.
    async fn take_identity(self: Arc<Self>) {
        let request = InitProducerIdRequest {
            transaction_timeout_ms: 60_000,
            ..InitProducerIdRequest::default()
        };
        let refuse = |code: i16| (code != 0).then(|| ErrorCode::from(code).name().to_owned());
        let answer = self
            .brokers
            .ask_any(&request, Instant::now() + ASKED, |answer| {
                refuse(answer.error_code)
            })
            .await;
        if let Ok(answer) = answer {
            let id = ProducerId(answer.producer_id);
            self.cluster.ledger.lock().producer_id(id);
        }
    }

    /// Reads everything, for ever.
    async fn read(self: Arc<Self>) {
        loop {
            if let Err(error) = self.read_on().await {
                match error {
                    ConsumeError::OffsetOutOfRange { .. }
                    | ConsumeError::LogTruncation { .. }
                    | ConsumeError::Corrupt { .. } => {
                        let what = format!("reads-on: {} is told: {error}", self.name);
                        self.cluster.ledger.lock().violated(what);
                    }
                    _ => {}
                }
            }
            self.pause(200).await;
        }
    }

    async fn read_on(&self) -> Result<(), ConsumeError> {
        let settings = ConsumerConfig::new(&bootstrap())
            .and_then(|settings| settings.with("auto.offset.reset", "none"))
            .and_then(|settings| settings.with("request.timeout.ms", "2000"))
            .and_then(|settings| settings.with("socket.connection.setup.timeout.ms", "1000"))
            .expect("the settings are well formed");
        let mut consumer = Consumer::over(self.roads.clone(), self.clock.clone(), settings);
        let places: Vec<_> = {
            let ledger = self.cluster.ledger.lock();
            let at = |place: &Place| StartAt::Offset(ledger.position(&self.name, place));
            places()
                .map(|place| {
                    let start = at(&place);
                    (TopicPartition::new(place.0, place.1), start)
                })
                .collect()
        };
        consumer.assign(places);
        loop {
            for record in consumer.poll(POLL).await? {
                let value = record.value.unwrap_or_default();
                let value = String::from_utf8_lossy(&value);
                let place = (record.topic.to_string(), record.partition);
                let mut ledger = self.cluster.ledger.lock();
                ledger.seen(&self.name, &place, record.offset, &value);
            }
            // Now and then another one takes over.
            if self.clock.random_below(40) == 0 {
                return Ok(());
            }
        }
    }
}

/// The world's time.
fn now() -> Duration {
    turmoil::sim_elapsed().expect("a client runs in the simulation")
}
