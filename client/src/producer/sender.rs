//! The task that carries out what the core decides: connects, sends, asks who leads, and brings the answers back.
//! Law: requests to one broker leave in the order in which the core gave them, on one connection.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use kuorum_protocol::messages::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use kuorum_protocol::messages::produce::{
    PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData,
};
use kuorum_protocol::{ErrorCode, LeaderEpoch, Monotonic, ProducerEpoch, ProducerId};
use kuorum_transport::{Backoff, CallError, Instant};

use super::Shared;
use super::core::{Ack, Failure, Key, Leader, OutRequest, Ticket};
use crate::cluster::Link;
use crate::config::Acks;
use crate::error::ClientError;

/// After so long without an answer somebody else is asked who leads.
const STALLED: Duration = Duration::from_secs(1);

/// And again so long after the answer before, if that names the same leader.
const ASK_AGAIN: Duration = Duration::from_millis(250);

/// Something that has been waited for.
enum Event {
    Produced(Answer),
    Connected(i32, Result<Link, ClientError>),
    Identity(Result<InitProducerIdResponse, ClientError>),
    Metadata(Result<(), ClientError>),
}

/// What became of one request.
struct Answer {
    request: u64,
    broker: i32,
    results: Vec<(Key, Ticket, Result<Ack, Failure>)>,
    /// Who leads instead.
    leaders: Vec<(Key, i32, LeaderEpoch)>,
    /// So many of its batches went to a broker that is not their leader, or cannot be reached.
    astray: usize,
}

/// The connection to one broker.
enum Line {
    Connecting {
        since: Instant,
    },
    Open(Link),
    /// Not before then.
    Broken {
        until: Instant,
    },
}

struct Sender {
    shared: Arc<Shared>,
    lines: HashMap<i32, Line>,
    reconnect: HashMap<i32, Backoff>,
    waits: FuturesUnordered<BoxFuture<'static, Event>>,
    identity_asked: bool,
    metadata_asked: bool,
    /// Metadata is wanted whether or not something waits for it.
    ask_again: bool,
    /// Not before then.
    next_metadata: Instant,
    next_identity: Instant,
    asking: Backoff,
}

/// Runs until the producer is dropped, which aborts it.
pub(super) async fn run(shared: Arc<Shared>) {
    let client = &shared.config.client;
    let asking = Backoff::new(client.retry_backoff, client.retry_backoff_max);
    let now = Instant::now();
    let mut sender = Sender {
        lines: HashMap::new(),
        reconnect: HashMap::new(),
        waits: FuturesUnordered::new(),
        identity_asked: false,
        metadata_asked: false,
        ask_again: false,
        next_metadata: now,
        next_identity: now,
        asking,
        shared,
    };
    loop {
        let wake_at = sender.act().await;
        let shared = Arc::clone(&sender.shared);
        tokio::select! {
            biased;
            Some(event) = sender.waits.next(), if !sender.waits.is_empty() => sender.on_event(event),
            () = shared.wake.notified() => {}
            () = tokio::time::sleep_until(wake_at) => {}
        }
    }
}

impl Sender {
    /// Does all that can be done now; returns when to look again.
    async fn act(&mut self) -> Instant {
        self.lines.retain(|_, line| match line {
            Line::Open(link) => !link.is_closed(),
            Line::Connecting { .. } => true,
            Line::Broken { until } => *until > Instant::now(),
        });
        let now = self.shared.clock.now().monotonic;
        let flush = self.shared.flush.load(Ordering::Acquire);
        let view = self.shared.cluster.view();
        let mut done = Vec::new();
        let (drained, oldest) = {
            let mut state = self.shared.state.lock();
            state.core.expire(now, &mut done);
            let leader = |key: &Key| {
                let (broker, _) = view.leader(&key.topic, key.partition)?;
                let topic_id = view.topics.get(&*key.topic)?.id;
                Some(Leader { broker, topic_id })
            };
            let connected = |broker| matches!(self.lines.get(&broker), Some(Line::Open(_)));
            let drained = state.core.drain(now, flush, leader, connected);
            (drained, state.core.oldest_in_flight())
        };
        self.shared.complete(done);

        for request in drained.requests {
            self.send(request).await;
        }
        let mut wake_at = self
            .shared
            .clock
            .instant(now + self.shared.config.client.metadata_max_age);
        let mut waiting_since = oldest.map(|since| self.shared.clock.instant(since));
        for broker in drained.connect {
            match self.lines.get(&broker) {
                None => {
                    self.connect(broker);
                    waiting_since = waiting_since.or(Some(Instant::now()));
                }
                Some(Line::Broken { until }) => wake_at = wake_at.min(*until),
                // The kernel of a stopped process still takes connections: nobody answers on them.
                Some(Line::Connecting { since }) => {
                    waiting_since = Some(waiting_since.map_or(*since, |other| other.min(*since)));
                }
                Some(Line::Open(_)) => {}
            }
        }
        if drained.needs_identity && !self.identity_asked {
            match self.next_identity <= Instant::now() {
                true => self.ask_identity(),
                false => wake_at = wake_at.min(self.next_identity),
            }
        }
        let stalled_at = waiting_since.map(|since| since + STALLED);
        let stalled = stalled_at.is_some_and(|at| at <= Instant::now());
        let wanted =
            drained.needs_metadata || self.ask_again || stalled || self.shared.cluster.is_stale();
        if !self.metadata_asked && wanted {
            match self.next_metadata <= Instant::now() {
                true => self.ask_metadata(stalled),
                false => wake_at = wake_at.min(self.next_metadata),
            }
        }
        if let Some(at) = stalled_at.filter(|at| *at > Instant::now()) {
            wake_at = wake_at.min(at);
        }
        if let Some(at) = drained.wake_at {
            wake_at = wake_at.min(self.shared.clock.instant(at));
        }
        wake_at
    }

    /// Hands one request to its connection. The first poll puts it into the connection's queue, so the order of calls is
    /// the order on the wire.
    async fn send(&mut self, request: OutRequest) {
        let Some(Line::Open(link)) = self.lines.get(&request.broker) else {
            unreachable!("the core sends only to brokers that are connected");
        };
        let link = link.clone();
        let acks = self.shared.config.own.acks;
        let timeout = self.shared.config.client.request_timeout;
        let mut call: BoxFuture<'static, Event> =
            Box::pin(async move { Event::Produced(produce(&link, request, acks, timeout).await) });
        match poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await {
            Poll::Ready(event) => self.waits.push(Box::pin(std::future::ready(event))),
            Poll::Pending => self.waits.push(call),
        }
    }

    fn connect(&mut self, broker: i32) {
        let since = Instant::now();
        self.lines.insert(broker, Line::Connecting { since });
        let cluster = self.shared.cluster.clone();
        let deadline = Instant::now() + self.shared.config.client.connection_setup_timeout;
        self.waits.push(Box::pin(async move {
            Event::Connected(broker, cluster.open_link(broker, deadline).await)
        }));
    }

    fn ask_identity(&mut self) {
        self.identity_asked = true;
        let cluster = self.shared.cluster.clone();
        let deadline = Instant::now() + self.shared.config.client.request_timeout;
        self.waits.push(Box::pin(async move {
            // The timeout is without meaning for a producer that is only idempotent, but must be positive.
            let request = InitProducerIdRequest {
                transaction_timeout_ms: 60_000,
                producer_epoch: -1,
                ..InitProducerIdRequest::default()
            };
            let refuse = |response: &InitProducerIdResponse| {
                let code = ErrorCode::from(response.error_code);
                code.is_retriable().then(|| code.name().to_owned())
            };
            Event::Identity(cluster.ask_any(&request, deadline, refuse).await)
        }));
    }

    fn ask_metadata(&mut self, stalled: bool) {
        self.metadata_asked = true;
        self.ask_again = false;
        let client = &self.shared.config.client;
        let pause = if stalled {
            ASK_AGAIN
        } else {
            client.retry_backoff
        };
        self.next_metadata = Instant::now() + pause;
        let deadline = Instant::now() + client.request_timeout;
        let cluster = self.shared.cluster.clone();
        let seen = cluster.view().version;
        self.waits.push(Box::pin(async move {
            Event::Metadata(cluster.refresh(seen, deadline).await.map(|_| ()))
        }));
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Produced(answer) => self.on_answer(answer),
            Event::Connected(broker, Ok(link)) => {
                self.reconnect.remove(&broker);
                self.lines.insert(broker, Line::Open(link));
            }
            Event::Connected(broker, Err(error)) => {
                tracing::debug!(broker, %error, "cannot connect");
                let client = &self.shared.config.client;
                let (first, max) = (client.reconnect_backoff, client.reconnect_backoff_max);
                let backoff = self
                    .reconnect
                    .entry(broker)
                    .or_insert_with(|| Backoff::new(first, max));
                let wait = backoff.next_wait(self.shared.clock.random());
                self.lines.insert(
                    broker,
                    Line::Broken {
                        until: Instant::now() + wait,
                    },
                );
                self.ask_again = true;
            }
            Event::Identity(result) => self.on_identity(result),
            Event::Metadata(result) => {
                self.metadata_asked = false;
                if let Err(error) = result {
                    tracing::warn!(%error, "metadata could not be refreshed");
                    self.ask_again = true;
                }
            }
        }
    }

    fn on_identity(&mut self, result: Result<InitProducerIdResponse, ClientError>) {
        self.identity_asked = false;
        let response = match result {
            Ok(response) if response.error_code == 0 => response,
            failed => {
                let reason = match failed {
                    Ok(response) => ErrorCode::from(response.error_code).name().to_owned(),
                    Err(error) => error.to_string(),
                };
                tracing::warn!(reason, "no producer id yet");
                let wait = self.asking.next_wait(self.shared.clock.random());
                self.next_identity = Instant::now() + wait;
                return;
            }
        };
        self.asking.reset();
        let (id, epoch) = (
            ProducerId(response.producer_id),
            ProducerEpoch(response.producer_epoch),
        );
        tracing::debug!(
            producer_id = id.0,
            producer_epoch = epoch.0,
            "the producer has its id"
        );
        self.shared.state.lock().core.set_producer(id, epoch);
    }

    fn on_answer(&mut self, answer: Answer) {
        let now: Monotonic = self.shared.clock.now().monotonic;
        let told = answer.leaders.iter();
        let told = told.map(|(key, leader, epoch)| (&*key.topic, key.partition, *leader, *epoch));
        let learned = self.shared.cluster.learn_leaders(told);
        self.ask_again |= answer.astray > learned;
        let mut done = Vec::new();
        {
            let mut state = self.shared.state.lock();
            state.core.request_done(answer.request);
            for (key, ticket, result) in answer.results {
                if let Err(failure) = &result {
                    tracing::debug!(
                        topic = &*key.topic,
                        partition = key.partition,
                        broker = answer.broker,
                        ?failure,
                        "a batch was not acknowledged"
                    );
                }
                state.core.on_result(&key, ticket, result, now, &mut done);
            }
        }
        self.shared.complete(done);
    }
}

/// Sends one request and takes its answer apart.
async fn produce(link: &Link, request: OutRequest, acks: Acks, timeout: Duration) -> Answer {
    let deadline = Instant::now() + timeout;
    let (message, places) = to_message(&request, acks, timeout);
    let mut answer = Answer {
        request: request.id,
        broker: request.broker,
        results: Vec::with_capacity(places.len()),
        leaders: Vec::new(),
        astray: 0,
    };
    let response = if acks == Acks::None {
        link.tell(&message, deadline).await.map(|()| None)
    } else {
        link.call(&message, deadline).await.map(Some)
    };
    match response {
        Ok(None) => {
            let ack = Ack {
                base_offset: -1,
                log_append_time: -1,
            };
            answer.results.extend(
                places
                    .into_iter()
                    .map(|(key, ticket)| (key, ticket, Ok(ack))),
            );
        }
        Ok(Some(response)) => take_apart(&response, &request, places, &mut answer),
        Err(error) => {
            answer.astray = places.len();
            let sent = matches!(
                error,
                ClientError::Call(
                    CallError::TimedOut | CallError::Closed(_) | CallError::Decode(_)
                )
            );
            if sent {
                // What comes late on it would be taken for nobody's; a new connection begins clean.
                link.close();
            }
            let reason = error.to_string();
            answer
                .results
                .extend(places.into_iter().map(|(key, ticket)| {
                    let failure = match sent {
                        true => Failure::NoAnswer(reason.clone()),
                        false => Failure::NotSent(reason.clone()),
                    };
                    (key, ticket, Err(failure))
                }));
        }
    }
    answer
}

fn to_message(
    request: &OutRequest,
    acks: Acks,
    timeout: Duration,
) -> (ProduceRequest, Vec<(Key, Ticket)>) {
    let mut topics: Vec<TopicProduceData> = Vec::new();
    let mut places = Vec::with_capacity(request.batches.len());
    for batch in &request.batches {
        let partition = PartitionProduceData {
            index: batch.key.partition,
            records: Some(batch.bytes.clone()),
        };
        match topics
            .iter_mut()
            .find(|topic| *topic.name == *batch.key.topic)
        {
            Some(topic) => topic.partition_data.push(partition),
            None => topics.push(TopicProduceData {
                name: batch.key.topic.to_string(),
                topic_id: batch.topic_id.0,
                partition_data: vec![partition],
            }),
        }
        places.push((batch.key.clone(), batch.ticket));
    }
    let message = ProduceRequest {
        transactional_id: None,
        acks: acks.wire(),
        timeout_ms: i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX),
        topic_data: topics,
    };
    (message, places)
}

/// Finds each batch's part of the answer. Topics come back by name or by id, as the version has it.
fn take_apart(
    response: &ProduceResponse,
    request: &OutRequest,
    places: Vec<(Key, Ticket)>,
    answer: &mut Answer,
) {
    for (batch, (key, ticket)) in request.batches.iter().zip(places) {
        let part = response
            .responses
            .iter()
            .filter(|topic| {
                *topic.name == *key.topic
                    || (topic.name.is_empty() && topic.topic_id == batch.topic_id.0)
            })
            .flat_map(|topic| &topic.partition_responses)
            .find(|partition| partition.index == key.partition);
        let Some(part) = part else {
            let reason = "the answer says nothing of it".to_owned();
            answer
                .results
                .push((key, ticket, Err(Failure::NoAnswer(reason))));
            continue;
        };
        let code = ErrorCode::from(part.error_code);
        let result = if code == ErrorCode::None {
            let (base_offset, log_append_time) = (part.base_offset, part.log_append_time_ms);
            Ok(Ack {
                base_offset,
                log_append_time,
            })
        } else {
            let leader = &part.current_leader;
            if leader.leader_id >= 0 {
                let epoch = LeaderEpoch(leader.leader_epoch);
                answer.leaders.push((key.clone(), leader.leader_id, epoch));
            }
            answer.astray += usize::from(matches!(
                code,
                ErrorCode::NotLeaderOrFollower
                    | ErrorCode::LeaderNotAvailable
                    | ErrorCode::UnknownTopicOrPartition
                    | ErrorCode::UnknownTopicId
                    | ErrorCode::KafkaStorageError
                    | ErrorCode::FencedLeaderEpoch
            ));
            Err(Failure::Refused {
                code,
                message: part.error_message.clone().unwrap_or_default(),
                records: part
                    .record_errors
                    .iter()
                    .map(|error| error.batch_index)
                    .collect(),
            })
        };
        answer.results.push((key, ticket, result));
    }
}
