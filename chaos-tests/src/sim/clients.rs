//! Producers and consumers: they know what metadata told them, try again, and never know more than they were answered.

use std::time::Duration;

use kuorum_protocol::{BrokerId, ErrorCode, LeaderEpoch, Offset, ProducerId, Sequence};
use kuorum_replication::acks::Acks;

use super::network::{Message, Peer};
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
}

impl Clients {
    pub(super) fn new(plan: &Plan) -> Self {
        let mut all = Vec::new();
        for partition in 0..plan.partitions {
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
                }));
            }
            all.push(Client::Consumer {
                partition,
                position: Offset::ZERO,
                known: LeaderEpoch::UNKNOWN,
                attempt: 0,
                asked: (Offset::ZERO, LeaderEpoch::UNKNOWN),
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
        let now = self.now();
        let count = 1 + self.random.below(3) as u64;
        let producing = self.clients.producing;
        let Some(producer) = self.clients.producer(client) else {
            return;
        };
        let values = match &producer.outstanding {
            Some(values) => values.clone(),
            None if producing => {
                let values: Vec<u64> = (0..count)
                    .map(|place| ((client as u64) << 40) | (producer.serial + place))
                    .collect();
                producer.serial += count;
                producer.outstanding = Some(values.clone());
                values
            }
            None => return,
        };
        producer.attempt += 1;
        let attempt = producer.attempt;
        let partition = producer.partition;
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
        let patience = self.between(500_000, 900_000);
        self.plan_in(patience, Happening::ProduceTimeout { client, attempt });
        if let Some((leader, _)) = self.ask_metadata(partition) {
            self.send(Peer::Client(client), Peer::Broker(leader), None, message);
        }
    }

    pub(super) fn produce_timed_out(&mut self, client: usize, attempt: u64) {
        let Some(producer) = self.clients.producer(client) else {
            return;
        };
        if producer.attempt == attempt && producer.outstanding.is_some() {
            self.produce_unknown(client, Duration::ZERO);
        }
    }

    /// The outcome is unknown or bad: an idempotent producer sends the same again, another gives up what it sent.
    fn produce_unknown(&mut self, client: usize, pause: Duration) {
        let Some(producer) = self.clients.producer(client) else {
            return;
        };
        if producer.idempotence.is_none() {
            producer.outstanding = None;
        }
        producer.attempt += 1;
        self.plan_in(pause, Happening::Produce { client });
    }

    fn produce_answered(&mut self, client: usize, attempt: u64, result: Result<(), ErrorCode>) {
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
        match result {
            Ok(()) => {
                let sent = producer.outstanding.take().map_or(0, |values| values.len());
                if let Some(idempotence) = &mut producer.idempotence {
                    idempotence.sequence = idempotence.sequence.plus(sent as i32);
                }
                self.plan_in(pause, Happening::Produce { client });
            }
            Err(ErrorCode::OutOfOrderSequenceNumber | ErrorCode::InvalidProducerEpoch) => {
                // Records acknowledged by the leader alone are gone: begin anew, as another producer.
                producer.outstanding = None;
                producer.idempotence = Some(Idempotence {
                    producer_id: ProducerId(fresh_id),
                    sequence: Sequence(0),
                });
                self.clients.next_producer_id += 1;
                self.plan_in(pause, Happening::Produce { client });
            }
            Err(_) => self.produce_unknown(client, pause + Duration::from_millis(20)),
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
        result: Result<bytes::Bytes, (ErrorCode, Option<Offset>)>,
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
        let bytes = match result {
            Ok(bytes) => bytes,
            Err((ErrorCode::OffsetOutOfRange, start)) => {
                let start = start.unwrap_or_default();
                if let Client::Consumer { position, .. } = &mut self.clients.all[client] {
                    if start > from {
                        *position = start;
                    } else {
                        let event = Event::OutOfRange {
                            partition,
                            broker,
                            position: from,
                            log_start: start,
                        };
                        self.checkers.event(&event);
                    }
                }
                return;
            }
            Err(_) => return,
        };
        let found = match records::records(&bytes) {
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
            self.checkers.event(&Event::Read {
                partition,
                broker,
                asked_under,
                answered_under,
                offset,
                value: record.value,
            });
            if let Client::Consumer { position, .. } = &mut self.clients.all[client] {
                *position = offset.plus(1);
            }
        }
    }

    /// Sends one batch with acks=all, for a probe; returns who sends it.
    pub(super) fn produce_once(&mut self, partition: PartitionNumber) -> Option<usize> {
        let client = self.clients.all.iter().position(
            |client| matches!(client, Client::Producer(producer) if producer.partition == partition && producer.acks == Acks::All),
        )?;
        self.clients.producing = true;
        self.produce(client);
        self.clients.producing = false;
        Some(client)
    }

    /// Whether that producer has been answered.
    pub(super) fn is_answered(&mut self, client: usize) -> bool {
        self.clients
            .producer(client)
            .is_some_and(|producer| producer.outstanding.is_none())
    }
}
