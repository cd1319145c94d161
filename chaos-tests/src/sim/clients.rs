//! Producers and consumers: they know what metadata told them, try again, and never know more than they were answered.

use std::time::Duration;

use kuorum_protocol::{BrokerId, ErrorCode, LeaderEpoch, Offset, ProducerId, Sequence};
use kuorum_replication::acks::Acks;

use super::network::{Message, Peer, Read};
use super::plan::Plan;
use super::records::{self, Idempotence};
use super::world::{Happening, World};
use crate::checkers::{Event, PartitionNumber};

/// All clients, by number.
#[derive(Debug)]
pub(super) struct Clients {
    all: Vec<Client>,
    producing: bool,
    next_producer_id: i64,
}

#[derive(Debug)]
enum Client {
    Producer(Producer),
    /// Reads a partition from the beginning to its end, from whoever metadata says leads.
    Consumer {
        partition: PartitionNumber,
        position: Offset,
        known: LeaderEpoch,
        attempt: u64,
        /// What the last request named.
        asked: (Offset, LeaderEpoch),
        /// The leader epochs of what it has read, and where each began.
        epochs: Vec<(LeaderEpoch, Offset)>,
    },
    /// Reads anywhere from anyone, under the epoch that one believes in: what a zombie may show must be true too.
    Wanderer {
        partition: PartitionNumber,
        attempt: u64,
        asked: (Offset, LeaderEpoch),
    },
    /// Asks where the partition ends.
    Poller {
        partition: PartitionNumber,
        known: LeaderEpoch,
        attempt: u64,
        asked: LeaderEpoch,
        answered: bool,
    },
}

#[derive(Debug)]
struct Producer {
    partition: PartitionNumber,
    acks: Acks,
    idempotence: Option<Idempotence>,
    serial: u64,
    attempt: u64,
    outstanding: Option<Vec<u64>>,
    /// When what is outstanding was sent first.
    since: Duration,
    /// What metadata told last of who leads; `None` when it is to be asked again.
    leader: Option<BrokerId>,
    known: LeaderEpoch,
    /// What the last answered produce was answered.
    last_answer: Option<Result<Offset, ErrorCode>>,
}

impl Clients {
    pub(super) fn new(plan: &Plan) -> Self {
        let mut all = Vec::new();
        for partition in 0..plan.topic_of_partitions().count() {
            for place in 0..plan.producers {
                all.push(Client::Producer(Producer {
                    partition,
                    acks: if place == 2 { Acks::Leader } else { Acks::All },
                    idempotence: (place % 2 == 0).then_some(Idempotence {
                        producer_id: ProducerId(all.len() as i64),
                        sequence: Sequence(0),
                    }),
                    serial: 0,
                    attempt: 0,
                    outstanding: None,
                    since: Duration::ZERO,
                    leader: None,
                    known: LeaderEpoch::UNKNOWN,
                    last_answer: None,
                }));
            }
            all.push(Client::Consumer {
                partition,
                position: Offset::ZERO,
                known: LeaderEpoch::UNKNOWN,
                attempt: 0,
                asked: (Offset::ZERO, LeaderEpoch::UNKNOWN),
                epochs: Vec::new(),
            });
            all.push(Client::Wanderer {
                partition,
                attempt: 0,
                asked: (Offset::ZERO, LeaderEpoch::UNKNOWN),
            });
            all.push(Client::Poller {
                partition,
                known: LeaderEpoch::UNKNOWN,
                attempt: 0,
                asked: LeaderEpoch::UNKNOWN,
                answered: true,
            });
        }
        Self {
            next_producer_id: 1_000,
            all,
            producing: false,
        }
    }

    /// No new records from now on; what is outstanding is still tried.
    pub(super) fn stop_producing(&mut self) {
        self.producing = false;
    }

    /// A producer that has not been answered yet.
    pub(super) fn waiting(&self) -> Option<String> {
        self.all.iter().find_map(|client| match client {
            Client::Producer(producer) if producer.outstanding.is_some() => {
                Some(format!("{producer:?}"))
            }
            _ => None,
        })
    }

    fn producer(&mut self, client: usize) -> Option<&mut Producer> {
        match self.all.get_mut(client)? {
            Client::Producer(producer) => Some(producer),
            _ => None,
        }
    }
}

impl Producer {
    /// Goes on as another producer, whose sequence begins at 0.
    fn begin_anew(&mut self, producer_id: i64) {
        self.idempotence = Some(Idempotence {
            producer_id: ProducerId(producer_id),
            sequence: Sequence(0),
        });
    }
}

impl World {
    pub(super) fn start_clients(&mut self) {
        self.clients.producing = true;
        for client in 0..self.clients.all.len() {
            let delay = self.between(1_000, 50_000);
            let happening = match &self.clients.all[client] {
                Client::Producer(_) => Happening::Produce { client },
                _ => Happening::Consume { client },
            };
            self.plan_in(delay, happening);
        }
    }

    pub(super) fn resume_producers(&mut self) {
        self.clients.producing = true;
        for client in 0..self.clients.all.len() {
            if self.clients.producer(client).is_some() {
                let delay = self.between(1_000, 50_000);
                self.plan_in(delay, Happening::Produce { client });
            }
        }
    }

    /// Who leads, as some broker's metadata has it.
    fn ask_metadata(&mut self, partition: PartitionNumber) -> Option<(BrokerId, LeaderEpoch)> {
        let (topic, index) = self.partitions[partition];
        let up: Vec<BrokerId> = self
            .nodes
            .values()
            .filter(|node| node.is_up())
            .map(|node| node.id)
            .collect();
        if up.is_empty() {
            return None;
        }
        let asked = up[self.random.below(up.len())];
        let image = self.nodes[&asked].image()?.partition(topic, index)?;
        image.leader.map(|leader| (leader, image.leader_epoch))
    }

    /// A producer sends what is outstanding, or something new.
    pub(super) fn produce(&mut self, client: usize) {
        let count = 1 + self.random.below(3) as u64;
        self.produce_records(client, count);
    }

    /// The same; if it is something new, so many records.
    pub(super) fn produce_records(&mut self, client: usize, count: u64) {
        let now = self.now();
        let elapsed = self.queue.elapsed();
        let producing = self.clients.producing;
        let delivery_timeout = self.plan.delivery_timeout;
        let fresh_id = self.clients.next_producer_id;
        let Some(producer) = self.clients.producer(client) else {
            return;
        };
        let late = elapsed >= producer.since + delivery_timeout;
        if producer.outstanding.is_some() && late {
            // Nobody will ever know what became of it; an idempotent producer must not go on from there.
            producer.outstanding = None;
            producer.last_answer = Some(Err(ErrorCode::RequestTimedOut));
            if producer.idempotence.is_some() {
                producer.begin_anew(fresh_id);
                self.clients.next_producer_id += 1;
            }
        }
        let Some(producer) = self.clients.producer(client) else {
            return;
        };
        if producer.outstanding.is_none() {
            if !producing {
                return;
            }
            let values =
                (0..count).map(|place| ((client as u64) << 40) | (producer.serial + place));
            producer.outstanding = Some(values.collect());
            producer.serial += count;
            producer.since = elapsed;
        }
        let partition = producer.partition;
        let Some(leader) = producer.leader else {
            let broker = BrokerId(1 + self.random.below(self.plan.brokers) as i32);
            let question = Message::Metadata { client, partition };
            self.send(Peer::Client(client), Peer::Broker(broker), None, question);
            let again = self.between(10_000, 80_000);
            return self.plan_in(again, Happening::Produce { client });
        };
        producer.attempt += 1;
        let attempt = producer.attempt;
        let values = producer.outstanding.clone().unwrap_or_default();
        let message = Message::Produce {
            client,
            attempt,
            partition,
            acks: producer.acks,
            batch: records::batch(&values, now.wall, producer.idempotence),
            values,
            producer: producer
                .idempotence
                .map(|idempotence| idempotence.producer_id.0 as u64),
        };
        // Where no process is, the connection is refused at once.
        let patience = match self.nodes[&leader].is_up() {
            true => self.between(500_000, 900_000),
            false => self.between(1_000, 20_000),
        };
        self.plan_in(patience, Happening::ProduceTimeout { client, attempt });
        self.send(Peer::Client(client), Peer::Broker(leader), None, message);
    }

    pub(super) fn produce_timed_out(&mut self, client: usize, attempt: u64) {
        let Some(producer) = self.clients.producer(client) else {
            return;
        };
        if producer.attempt == attempt && producer.outstanding.is_some() {
            let backoff = Duration::from_millis(20);
            self.produce_unknown(client, ErrorCode::RequestTimedOut, backoff);
        }
    }

    /// The outcome is unknown or bad: an idempotent producer sends the same again, another gives up what it sent. Both ask
    /// again who leads.
    fn produce_unknown(&mut self, client: usize, error: ErrorCode, pause: Duration) {
        let Some(producer) = self.clients.producer(client) else {
            return;
        };
        if producer.idempotence.is_none() {
            producer.outstanding = None;
        }
        producer.last_answer = Some(Err(error));
        producer.leader = None;
        producer.attempt += 1;
        self.plan_in(pause, Happening::Produce { client });
    }

    fn produce_answered(&mut self, client: usize, attempt: u64, result: Result<Offset, ErrorCode>) {
        let mut pause = self.between(1_000, 40_000);
        if result.is_ok() && self.random.below(100) < self.plan.rests {
            pause += self.between(300_000, 2_500_000);
        }
        let fresh_id = self.clients.next_producer_id;
        let Some(producer) = self.clients.producer(client) else {
            return;
        };
        if producer.attempt != attempt || producer.outstanding.is_none() {
            return;
        }
        producer.last_answer = Some(result);
        match result {
            Ok(_) => {
                let sent = producer.outstanding.take().map_or(0, |values| values.len());
                if let Some(idempotence) = &mut producer.idempotence {
                    idempotence.sequence = idempotence.sequence.plus(sent as i32);
                }
                self.plan_in(pause, Happening::Produce { client });
            }
            Err(code @ (ErrorCode::OutOfOrderSequenceNumber | ErrorCode::InvalidProducerEpoch)) => {
                // Records acknowledged by the leader alone, or given up by an unclean election, are gone: begin anew,
                // as another producer.
                let (partition, acks) = (producer.partition, producer.acks);
                producer.outstanding = None;
                producer.begin_anew(fresh_id);
                self.clients.next_producer_id += 1;
                self.checkers.event(&Event::SequenceRefused {
                    partition,
                    client,
                    all: acks == Acks::All,
                    code,
                });
                self.plan_in(pause, Happening::Produce { client });
            }
            Err(code) => self.produce_unknown(client, code, pause + Duration::from_millis(20)),
        }
    }

    /// A consumer, wanderer or poller asks for more.
    pub(super) fn consume(&mut self, client: usize) {
        let pause = self.between(10_000, 80_000);
        self.plan_in(pause, Happening::Consume { client });
        let partition = match &self.clients.all[client] {
            Client::Consumer { partition, .. }
            | Client::Wanderer { partition, .. }
            | Client::Poller { partition, .. } => *partition,
            Client::Producer(_) => return,
        };
        let metadata = self.ask_metadata(partition);
        let anyone = self.anyone_with_an_opinion(partition);
        let end = self.ledgers[partition].end();
        let somewhere = Offset(self.random.below(end.0 as usize + 20) as i64);
        let (to, message) = match &mut self.clients.all[client] {
            Client::Consumer {
                position,
                known,
                attempt,
                asked,
                epochs,
                ..
            } => {
                let Some((leader, epoch)) = metadata else {
                    return;
                };
                // Metadata from a broker that lags must not lead a client back.
                *known = (*known).max(epoch);
                *attempt += 1;
                *asked = (*position, *known);
                let message = Message::Consume {
                    client,
                    attempt: *attempt,
                    partition,
                    from: *position,
                    current_leader_epoch: *known,
                    last_fetched_epoch: epochs.last().map(|(epoch, _)| *epoch),
                };
                (leader, message)
            }
            Client::Wanderer { attempt, asked, .. } => {
                let Some((broker, epoch)) = anyone else {
                    return;
                };
                *attempt += 1;
                *asked = (somewhere, epoch);
                let message = Message::Consume {
                    client,
                    attempt: *attempt,
                    partition,
                    from: somewhere,
                    current_leader_epoch: epoch,
                    last_fetched_epoch: None,
                };
                (broker, message)
            }
            Client::Poller {
                known,
                attempt,
                asked,
                answered,
                ..
            } => {
                let Some((leader, epoch)) = metadata else {
                    return;
                };
                *known = (*known).max(epoch);
                *attempt += 1;
                *asked = *known;
                *answered = false;
                let message = Message::Latest {
                    client,
                    attempt: *attempt,
                    partition,
                    current_leader_epoch: *known,
                };
                (leader, message)
            }
            Client::Producer(_) => return,
        };
        self.send(Peer::Client(client), Peer::Broker(to), None, message);
    }

    /// Some broker, and the leader epoch it believes in.
    fn anyone_with_an_opinion(
        &mut self,
        partition: PartitionNumber,
    ) -> Option<(BrokerId, LeaderEpoch)> {
        let opinions: Vec<(BrokerId, LeaderEpoch)> = self
            .nodes
            .values()
            .filter_map(|node| {
                let hosted = node.process.as_ref()?.hosted.get(&partition)?;
                Some((node.id, hosted.partition.leader_hint().leader_epoch))
            })
            .collect();
        if opinions.is_empty() {
            return None;
        }
        Some(opinions[self.random.below(opinions.len())])
    }

    pub(super) fn client_hears(&mut self, client: usize, message: Message) {
        match message {
            Message::ProduceAnswer { attempt, result } => {
                self.produce_answered(client, attempt, result);
            }
            Message::ConsumeAnswer {
                attempt,
                broker,
                answered_under,
                result,
            } => self.consumed(client, attempt, broker, answered_under, result),
            Message::MetadataAnswer { leader } => {
                // Metadata from a broker that lags must not lead a client back.
                if let Some(producer) = self.clients.producer(client)
                    && let Some((leader, epoch)) = leader
                    && epoch >= producer.known
                {
                    producer.known = epoch;
                    producer.leader = Some(leader);
                }
            }
            Message::LatestAnswer {
                attempt: answer,
                answered_under,
                result: Ok(offset),
            } => {
                let Client::Poller {
                    partition,
                    attempt,
                    asked,
                    answered,
                    ..
                } = &mut self.clients.all[client]
                else {
                    return;
                };
                if *attempt != answer || *answered {
                    return;
                }
                *answered = true;
                let event = Event::Latest {
                    partition: *partition,
                    client,
                    asked_under: *asked,
                    answered_under,
                    offset,
                };
                self.checkers.event(&event);
            }
            _ => {}
        }
    }

    fn consumed(
        &mut self,
        client: usize,
        answer: u64,
        broker: BrokerId,
        answered_under: LeaderEpoch,
        result: Result<Read, (ErrorCode, Option<Offset>)>,
    ) {
        let (partition, (from, asked_under)) = match &self.clients.all[client] {
            Client::Consumer {
                partition,
                attempt,
                asked,
                ..
            }
            | Client::Wanderer {
                partition,
                attempt,
                asked,
            } if *attempt == answer => (*partition, *asked),
            _ => return,
        };
        let read = match result {
            Ok(read) => read,
            Err((ErrorCode::OffsetOutOfRange, start)) => {
                let start = start.unwrap_or_default();
                let Client::Consumer {
                    position, epochs, ..
                } = &mut self.clients.all[client]
                else {
                    return;
                };
                // What it starts from now, it is told together with the epoch.
                let goes_on = start > from;
                *position = start;
                *epochs = vec![(answered_under, start)];
                if !goes_on {
                    self.checkers.event(&Event::OutOfRange {
                        partition,
                        broker,
                        position: from,
                        log_start: start,
                    });
                    self.told_of_a_cut(client, partition, start);
                }
                return;
            }
            Err(_) => return,
        };
        if let Some((epoch, end)) = read.diverging {
            let Client::Consumer {
                position, epochs, ..
            } = &mut self.clients.all[client]
            else {
                return;
            };
            // As a follower does: back to where its own history and the leader's part, perhaps in several steps.
            let newer = epochs.iter().find(|(known, _)| *known > epoch);
            let own_end = newer.map_or(*position, |(_, start)| *start);
            let to = own_end.min(end).min(*position);
            *position = to;
            epochs.retain(|(_, start)| *start < to);
            return self.told_of_a_cut(client, partition, to);
        }
        let found = match records::records(&read.records) {
            Ok(found) => found,
            Err(what) => {
                return self.not_healed(format!("a consumer received garbage: {what}"));
            }
        };
        for (offset, record) in found {
            if offset < from {
                continue;
            }
            self.tally.read += 1;
            let mut consumer = None;
            if let Client::Consumer {
                position, epochs, ..
            } = &mut self.clients.all[client]
            {
                consumer = Some(client);
                *position = offset.plus(1);
                if epochs.last().is_none_or(|(last, _)| *last != record.epoch) {
                    epochs.push((record.epoch, offset));
                }
            }
            self.checkers.event(&Event::Read {
                partition,
                broker,
                asked_under,
                answered_under,
                offset,
                value: record.value,
                consumer,
            });
        }
    }

    fn told_of_a_cut(&mut self, client: usize, partition: PartitionNumber, to: Offset) {
        self.tally.told += 1;
        self.note(|| {
            format!("consumer {client}, partition {partition}: told that its history ends at {to}")
        });
        self.checkers.event(&Event::CutTold {
            partition,
            consumer: client,
            to,
        });
    }

    /// Sends one batch with acks=all, for a probe; returns who sends it.
    pub(super) fn produce_once(&mut self, partition: PartitionNumber) -> Option<usize> {
        let client = self.producer_of(partition)?;
        self.send_at_once(client, 1);
        Some(client)
    }

    /// The first producer of a partition that waits for all replicas.
    pub(super) fn producer_of(&self, partition: PartitionNumber) -> Option<usize> {
        self.clients.all.iter().position(
            |client| matches!(client, Client::Producer(producer) if producer.partition == partition && producer.acks == Acks::All),
        )
    }

    /// A producer takes that broker for the leader.
    pub(super) fn mislead(&mut self, client: usize, leader: BrokerId) {
        if let Some(producer) = self.clients.producer(client) {
            producer.leader = Some(leader);
        }
    }

    /// Sends one batch of so many records.
    pub(super) fn send_at_once(&mut self, client: usize, count: u64) {
        if let Some(producer) = self.clients.producer(client) {
            producer.last_answer = None;
        }
        self.clients.producing = true;
        self.produce_records(client, count);
        self.clients.producing = false;
    }

    /// Whether that producer has been answered.
    pub(super) fn is_answered(&mut self, client: usize) -> bool {
        self.clients
            .producer(client)
            .is_some_and(|producer| producer.outstanding.is_none())
    }

    /// What the last produce of that producer came to.
    pub(super) fn last_answer(&mut self, client: usize) -> Option<Result<Offset, ErrorCode>> {
        self.clients.producer(client)?.last_answer
    }
}
