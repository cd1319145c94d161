//! How a process follows: it asks leaders, and takes what they answer.

use kuorum_broker::partition::Fetched;
use kuorum_protocol::{BrokerEpoch, BrokerId, ErrorCode, Offset};
use kuorum_replication::follower::FetchFailure;
use kuorum_replication::{FollowerStep, Ticket};

use crate::checkers::PartitionNumber;
use crate::sim::network::{Message, Peer};
use crate::sim::world::{Happening, World};

impl World {
    pub(super) fn fetched(
        &mut self,
        broker: BrokerId,
        number: PartitionNumber,
        ticket: &Ticket,
        request: u64,
        result: Result<Fetched, (ErrorCode, Option<Offset>)>,
    ) {
        self.request_ended(broker, number, request);
        let more = matches!(&result, Ok(fetched) if !fetched.records.is_empty() || fetched.diverging.is_some());
        if !matches!(&result, Ok(fetched) if fetched.records.is_empty() && fetched.diverging.is_none())
        {
            self.note(|| {
                let told = match &result {
                    Ok(fetched) => format!(
                        "{} bytes, high watermark {}, diverging {:?}",
                        fetched.records.len(),
                        fetched.high_watermark,
                        fetched.diverging
                    ),
                    Err(error) => format!("{error:?}"),
                };
                format!(
                    "broker {broker}, partition {number}: fetched from {} in epoch {}: {told}",
                    ticket.offset, ticket.leader_epoch
                )
            });
        }
        self.with_partition(broker, number, |it, now, fx| match result {
            Ok(fetched) => {
                it.on_fetched(ticket, &fetched, now, fx);
                fx.fetcher_ready &= more;
            }
            Err((code, start)) => {
                let failure = FetchFailure::from_error(code as i16, start);
                it.on_fetch_error(ticket, failure, now, fx);
            }
        });
    }

    /// Asks the leader what the follower wants to know, unless a question is under way.
    pub(in crate::sim) fn fetch_now(&mut self, broker: BrokerId, number: PartitionNumber) {
        let now = self.now();
        let node = self.node(broker);
        let run = node.run;
        let Some(process) = &mut node.process else {
            return;
        };
        let broker_epoch = process.broker_epoch.unwrap_or(BrokerEpoch::UNKNOWN);
        let Some(hosted) = process.hosted.get_mut(&number) else {
            return;
        };
        if hosted.fetching.is_some() {
            return;
        }
        let request = process.next_request;
        let (leader, ticket, message) = match hosted.partition.next_step(now) {
            FollowerStep::EpochEnd {
                leader,
                epoch,
                current_leader_epoch,
                ticket,
            } => {
                let message = Message::EpochEnd {
                    partition: number,
                    run,
                    epoch,
                    current_leader_epoch,
                    ticket,
                    request,
                };
                (leader, ticket, message)
            }
            FollowerStep::Fetch {
                leader,
                offset,
                last_fetched_epoch,
                current_leader_epoch,
                ticket,
                ..
            } => {
                let message = Message::Fetch {
                    partition: number,
                    run,
                    broker_epoch,
                    offset,
                    last_fetched_epoch,
                    current_leader_epoch,
                    ticket,
                    request,
                };
                (leader, ticket, message)
            }
            FollowerStep::Nothing => return,
        };
        process.next_request += 1;
        hosted.fetching = Some(request);
        self.send(Peer::Broker(broker), Peer::Broker(leader), None, message);
        let patience = self.between(80_000, 300_000);
        self.plan_in(
            patience,
            Happening::FetchTimeout {
                broker,
                run,
                partition: number,
                request,
                ticket,
            },
        );
    }

    pub(in crate::sim) fn fetch_timed_out(
        &mut self,
        broker: BrokerId,
        number: PartitionNumber,
        request: u64,
        ticket: &Ticket,
    ) {
        if self.request_ended(broker, number, request) {
            self.with_partition(broker, number, |it, now, fx| {
                it.on_fetch_error(ticket, FetchFailure::Retry, now, fx);
            });
        }
    }

    /// Whether that request was still under way.
    pub(super) fn request_ended(
        &mut self,
        broker: BrokerId,
        number: PartitionNumber,
        request: u64,
    ) -> bool {
        let Some(hosted) = self.hosted(broker, number) else {
            return false;
        };
        let current = hosted.fetching == Some(request);
        if current {
            hosted.fetching = None;
        }
        current
    }
}
