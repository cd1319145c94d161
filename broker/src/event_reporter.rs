//! Tells the controllers what happened on this broker and is to be remembered as an event: truncations and the like.
//! Law: one request in flight, in the order of the numbers, sent again until it is acknowledged. What does not fit into the
//! queue is dropped, counted and said.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use kuorum_metadata::record::BrokerEventKind;
use kuorum_metadata::rpc::{REPORTED_EVENTS_MOST, ReportEventsRequest, ReportedEvent};
use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::{PartitionIndex, Timestamp, TopicId};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::cluster::{ControllerClient, Membership};

/// How long a request may look for the active controller.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long to wait before trying again.
const REST: Duration = Duration::from_millis(500);
/// Events that may wait.
const WAITING_MOST: usize = 4_096;

/// Events that the controllers have not acknowledged yet.
#[derive(Debug, Default)]
pub struct EventReports {
    queue: Mutex<Queue>,
    nudge: Notify,
    dropped: Counter,
}

#[derive(Debug, Default)]
struct Queue {
    /// The number of the last event that was taken in.
    last: u64,
    waiting: VecDeque<ReportedEvent>,
    /// How many were dropped since the queue was last empty enough.
    dropped: u64,
}

impl EventReports {
    /// Has nothing to tell yet; what does not fit is counted in `dropped`.
    pub fn new(dropped: Counter) -> Self {
        Self {
            queue: Mutex::default(),
            nudge: Notify::new(),
            dropped,
        }
    }

    /// Something happened to a replica. Never waits.
    pub fn push(
        &self,
        topic_id: TopicId,
        partition: PartitionIndex,
        at: Timestamp,
        what: BrokerEventKind,
    ) {
        let mut queue = self.queue.lock();
        if queue.waiting.len() >= WAITING_MOST {
            queue.dropped += 1;
            let first = queue.dropped == 1;
            drop(queue);
            self.dropped.inc();
            if first {
                warn!(%topic_id, partition, ?what, waiting = WAITING_MOST,
                      "an event will not be remembered: too many wait to be told to the controllers");
            }
            return;
        }
        queue.last += 1;
        let number = queue.last;
        queue.waiting.push_back(ReportedEvent {
            number,
            at,
            topic_id,
            partition,
            what,
        });
        drop(queue);
        self.nudge.notify_one();
    }

    /// The oldest that wait, which go on waiting.
    pub(crate) fn oldest(&self) -> Vec<ReportedEvent> {
        let queue = self.queue.lock();
        let oldest = queue.waiting.iter().take(REPORTED_EVENTS_MOST);
        oldest.cloned().collect()
    }

    /// Everything up to a number is settled.
    fn settle(&self, number: u64) {
        let mut queue = self.queue.lock();
        while queue
            .waiting
            .front()
            .is_some_and(|event| event.number <= number)
        {
            queue.waiting.pop_front();
        }
        let dropped = std::mem::take(&mut queue.dropped);
        drop(queue);
        if dropped > 0 {
            warn!(
                dropped,
                "events were not remembered while too many waited to be told"
            );
        }
    }
}

/// Tells until `stop` is cancelled.
pub async fn run(
    reports: Arc<EventReports>,
    controllers: ControllerClient,
    membership: Arc<Membership>,
    stop: CancellationToken,
) {
    loop {
        let events = reports.oldest();
        let Some(last) = events.last().map(|event| event.number) else {
            tokio::select! {
                () = stop.cancelled() => return,
                () = reports.nudge.notified() => continue,
            }
        };
        let count = events.len();
        let told = match membership.epoch() {
            None => Err("not registered yet".to_owned()),
            Some(broker_epoch) => {
                let request = ReportEventsRequest {
                    broker_id: membership.id,
                    broker_epoch,
                    events,
                };
                let told = tokio::select! {
                    () = stop.cancelled() => return,
                    told = controllers.report_events(&request, PATIENCE) => told,
                };
                match told {
                    Ok(()) => Ok(()),
                    // It would be refused for ever, and what waits behind it with it.
                    Err(error) if error.is(ErrorCode::InvalidRequest) => {
                        warn!(cause = %error, events = count, "the controllers do not take what this broker reports");
                        reports.dropped.inc_by(count as u64);
                        Ok(())
                    }
                    Err(error) => Err(error.to_string()),
                }
            }
        };
        match told {
            Ok(()) => {
                debug!(events = count, "events were told to the controllers");
                reports.settle(last);
            }
            Err(cause) => {
                info!(%cause, events = count, "the controllers were not told what happened here; trying again");
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(REST) => {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use kuorum_protocol::{LeaderEpoch, Offset};
    use uuid::Uuid;

    use super::*;

    fn push(reports: &EventReports, times: usize) {
        for _ in 0..times {
            let what = BrokerEventKind::ReplicaRestarted {
                from: Offset(1),
                to: Offset(2),
                leader_epoch: LeaderEpoch(3),
            };
            reports.push(TopicId(Uuid::from_u128(1)), 0, Timestamp(9), what);
        }
    }

    fn numbers(reports: &EventReports) -> Vec<u64> {
        let oldest = reports.oldest();
        oldest.iter().map(|event| event.number).collect()
    }

    #[test]
    fn what_waits_stays_until_it_is_settled() {
        let reports = EventReports::new(Counter::default());
        assert!(numbers(&reports).is_empty());
        push(&reports, 3);
        assert_eq!(numbers(&reports), [1, 2, 3]);
        // More comes while the request is under way.
        push(&reports, 1);
        reports.settle(3);
        assert_eq!(numbers(&reports), [4]);
        reports.settle(3);
        assert_eq!(numbers(&reports), [4], "settled twice");
    }

    #[test]
    fn a_full_queue_drops_and_counts_and_leaves_no_gap_in_the_numbers() {
        let dropped = Counter::default();
        let reports = EventReports::new(dropped.clone());
        push(&reports, WAITING_MOST + 7);
        assert_eq!(dropped.get(), 7);
        let batch = numbers(&reports);
        assert_eq!(batch.len(), REPORTED_EVENTS_MOST);
        reports.settle(batch[batch.len() - 1]);
        push(&reports, 1);
        assert_eq!(dropped.get(), 7);
        let last = reports
            .queue
            .lock()
            .waiting
            .back()
            .map(|event| event.number);
        assert_eq!(last, Some(WAITING_MOST as u64 + 1));
    }
}
