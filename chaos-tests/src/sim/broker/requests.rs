//! What is said to a process, and what it answers.

use std::time::Duration;

use kuorum_broker::partition::{
    Appended, Fetched, Isolation, OffsetQuery, ReadError, ReadSpec, Reader,
};
use kuorum_protocol::{BrokerId, ErrorCode, LeaderEpoch, Offset};
use kuorum_replication::acks::Acks;
use kuorum_replication::follower::FetchFailure;

use super::Parked;
use crate::checkers::{Event, PartitionNumber};
use crate::sim::network::{Message, Peer, Read};
use crate::sim::world::World;

impl World {
    pub(in crate::sim) fn broker_hears(&mut self, broker: BrokerId, from: Peer, message: Message) {
        match message {
            Message::RegisterAnswer { broker_epoch } => {
                if let Some(process) = &mut self.node(broker).process
                    && process.broker_epoch.is_none()
                {
                    process.broker_epoch = broker_epoch;
                }
            }
            Message::HeartbeatAnswer { may_shut_down } => {
                let Some(process) = &mut self.node(broker).process else {
                    return;
                };
                if let Some(leaving) = &mut process.leaving {
                    leaving.unheard = 0;
                    if may_shut_down {
                        self.leave(broker);
                    }
                }
            }
            Message::Metadata { client, partition } => {
                let (topic, index) = self.partitions[partition];
                let leader = self.nodes[&broker]
                    .image()
                    .and_then(|image| image.partition(topic, index))
                    .and_then(|partition| Some((partition.leader?, partition.leader_epoch)));
                self.send(
                    Peer::Broker(broker),
                    Peer::Client(client),
                    None,
                    Message::MetadataAnswer { leader },
                );
            }
            Message::AlterAnswer {
                partition,
                number,
                reply,
            } => {
                if let Some(hosted) = self.hosted(broker, partition)
                    && hosted.altering == Some(number)
                {
                    hosted.altering = None;
                }
                self.note(|| {
                    format!("broker {broker}, partition {partition}: proposal {number}: {reply:?}")
                });
                self.with_partition(broker, partition, |it, now, fx| {
                    it.isr_decided(number, reply, now, fx);
                });
            }
            Message::Fetch {
                partition,
                run,
                broker_epoch,
                offset,
                last_fetched_epoch,
                current_leader_epoch,
                ticket,
                request,
            } => {
                let Peer::Broker(follower) = from else {
                    return;
                };
                let spec = ReadSpec {
                    from: offset,
                    max_bytes: 200 + self.random.below(2_000),
                    at_least_one: true,
                    current_leader_epoch: Some(current_leader_epoch),
                    last_fetched_epoch,
                    reader: Reader::Replica {
                        broker: follower,
                        broker_epoch,
                    },
                };
                let result = match self
                    .with_partition(broker, partition, |it, now, fx| it.read(spec, now, fx))
                {
                    Some(Ok(outcome)) => Ok(Fetched {
                        records: outcome.records,
                        high_watermark: outcome.high_watermark,
                        log_start: outcome.log_start,
                        diverging: outcome.diverging,
                    }),
                    Some(Err(error)) => Err(code_and_start(&error)),
                    None => Err((ErrorCode::NotLeaderOrFollower, None)),
                };
                self.answer(
                    broker,
                    from,
                    run,
                    Message::FetchAnswer {
                        partition,
                        ticket,
                        request,
                        result,
                    },
                );
            }
            Message::FetchAnswer {
                partition,
                ticket,
                request,
                result,
            } => self.fetched(broker, partition, &ticket, request, result),
            Message::EpochEnd {
                partition,
                run,
                epoch,
                current_leader_epoch,
                ticket,
                request,
            } => {
                let result = match self.with_partition(broker, partition, |it, _, _| {
                    it.end_offset_for_epoch(Some(current_leader_epoch), epoch)
                }) {
                    Some(Ok(found)) => Ok(found),
                    Some(Err(error)) => Err(ErrorCode::from(&error)),
                    None => Err(ErrorCode::NotLeaderOrFollower),
                };
                self.answer(
                    broker,
                    from,
                    run,
                    Message::EpochEndAnswer {
                        partition,
                        ticket,
                        request,
                        result,
                    },
                );
            }
            Message::EpochEndAnswer {
                partition,
                ticket,
                request,
                result,
            } => {
                self.request_ended(broker, partition, request);
                self.note(|| {
                    format!(
                        "broker {broker}, partition {partition}: epoch {} ends: {result:?}",
                        ticket.epoch
                    )
                });
                self.with_partition(broker, partition, |it, now, fx| match result {
                    Ok(found) => it.on_epoch_end(&ticket, found, now, fx),
                    Err(code) => {
                        let failure = FetchFailure::from_error(code as i16, None);
                        it.on_fetch_error(&ticket, failure, now, fx);
                    }
                });
            }
            Message::Produce {
                client,
                attempt,
                partition,
                acks,
                batch,
                values,
                producer,
            } => {
                let parked = Parking {
                    client,
                    attempt,
                    acks,
                    values,
                    producer,
                };
                self.append(broker, partition, &batch, parked);
            }
            Message::Consume {
                client,
                attempt,
                partition,
                from: offset,
                current_leader_epoch,
                last_fetched_epoch,
            } => {
                let spec = ReadSpec {
                    from: offset,
                    max_bytes: 100 + self.random.below(4_000),
                    at_least_one: true,
                    current_leader_epoch: Some(current_leader_epoch),
                    last_fetched_epoch,
                    reader: Reader::Consumer {
                        isolation: Isolation::ReadUncommitted,
                    },
                };
                let answer = self.with_partition(broker, partition, |it, now, fx| {
                    (it.leader_hint().leader_epoch, it.read(spec, now, fx))
                });
                let (answered_under, result) = match answer {
                    Some((epoch, Ok(outcome))) => {
                        let read = Read {
                            records: outcome.records,
                            diverging: outcome.diverging,
                        };
                        (epoch, Ok(read))
                    }
                    Some((epoch, Err(error))) => (epoch, Err(code_and_start(&error))),
                    None => (
                        LeaderEpoch::UNKNOWN,
                        Err((ErrorCode::NotLeaderOrFollower, None)),
                    ),
                };
                self.send(
                    Peer::Broker(broker),
                    Peer::Client(client),
                    None,
                    Message::ConsumeAnswer {
                        attempt,
                        broker,
                        answered_under,
                        result,
                    },
                );
            }
            Message::Latest {
                client,
                attempt,
                partition,
                current_leader_epoch,
            } => {
                let reader = Reader::Consumer {
                    isolation: Isolation::ReadUncommitted,
                };
                let answer = self.with_partition(broker, partition, |it, _, fx| {
                    let epoch = it.leader_hint().leader_epoch;
                    let latest =
                        it.list_offset(OffsetQuery::Latest, Some(current_leader_epoch), reader, fx);
                    (epoch, latest)
                });
                let (answered_under, result) = match answer {
                    Some((epoch, Ok(found))) => (
                        epoch,
                        found
                            .map(|found| found.offset)
                            .ok_or(ErrorCode::UnknownServerError),
                    ),
                    Some((epoch, Err(error))) => (epoch, Err(ErrorCode::from(&error))),
                    None => (LeaderEpoch::UNKNOWN, Err(ErrorCode::NotLeaderOrFollower)),
                };
                self.send(
                    Peer::Broker(broker),
                    Peer::Client(client),
                    None,
                    Message::LatestAnswer {
                        attempt,
                        answered_under,
                        result,
                    },
                );
            }
            _ => {}
        }
    }

    pub(super) fn answer(&mut self, broker: BrokerId, to: Peer, to_run: u64, message: Message) {
        self.send(Peer::Broker(broker), to, Some(to_run), message);
    }

    fn append(&mut self, broker: BrokerId, number: PartitionNumber, batch: &[u8], asked: Parking) {
        let deadline = self.now().monotonic + Duration::from_millis(600);
        let appended = self.with_partition(broker, number, |it, now, fx| {
            it.admit(asked.acks)?;
            let mut bytes = batch.to_vec();
            it.append(&mut bytes, now, fx)
        });
        let appended = match appended {
            Some(Ok(appended)) => Ok(appended),
            Some(Err(error)) if error.is_gap() => Err(ErrorCode::from(&error)),
            other => {
                let code = match other {
                    Some(Err(error)) => ErrorCode::from(&error),
                    _ => ErrorCode::NotLeaderOrFollower,
                };
                return self.answer_producer(broker, asked.client, asked.attempt, Err(code));
            }
        };
        let parked = Parked {
            client: asked.client,
            attempt: asked.attempt,
            values: asked.values,
            producer: asked.producer,
            outcome: appended,
        };
        if let (Acks::Leader, Ok(appended)) = (asked.acks, &appended) {
            self.acknowledged(broker, number, &parked, appended, false);
            let offset = appended.base_offset;
            self.answer_producer(broker, parked.client, parked.attempt, Ok(offset));
            return;
        }
        let Some(process) = &mut self.node(broker).process else {
            return;
        };
        let token = process.next_token;
        process.next_token += 1;
        process.parked.insert(token, parked);
        self.with_partition(broker, number, |it, now, fx| match appended {
            Ok(appended) => it.park(appended.until, deadline, token, fx),
            Err(_) => it.park_refusal(now, deadline, token, fx),
        });
    }

    pub(super) fn answer_producer(
        &mut self,
        broker: BrokerId,
        client: usize,
        attempt: u64,
        result: Result<Offset, ErrorCode>,
    ) {
        self.send(
            Peer::Broker(broker),
            Peer::Client(client),
            None,
            Message::ProduceAnswer { attempt, result },
        );
    }

    pub(super) fn acknowledged(
        &mut self,
        broker: BrokerId,
        partition: PartitionNumber,
        parked: &Parked,
        appended: &Appended,
        all: bool,
    ) {
        let led_under = self
            .hosted(broker, partition)
            .and_then(|hosted| hosted.partition.leader())
            .map(|leader| leader.leader_epoch());
        for (place, value) in parked.values.iter().enumerate() {
            self.tally.acked += 1;
            let offset = appended.base_offset.plus(place as i64);
            self.digest(&[1, broker.0 as u64, offset.0 as u64, *value]);
            self.note(|| {
                format!("broker {broker}, partition {partition}: acknowledges {value} at {offset}, all: {all}")
            });
            self.checkers.event(&Event::Acked {
                partition,
                broker,
                producer: parked.producer,
                value: *value,
                offset,
                all,
                appended_under: appended.leader_epoch,
                led_under,
            });
        }
    }
}

/// What a produce asked for.
struct Parking {
    client: usize,
    attempt: u64,
    acks: Acks,
    values: Vec<u64>,
    producer: Option<u64>,
}

fn code_and_start(error: &ReadError) -> (ErrorCode, Option<Offset>) {
    let start = match error {
        ReadError::OffsetOutOfRange { log_start, .. } => Some(*log_start),
        _ => None,
    };
    (ErrorCode::from(error), start)
}
