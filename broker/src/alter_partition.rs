//! Carries what leaders propose about their ISRs to the active controller, many at once.
//! Law: one request in flight; each proposal gets exactly one reply, and what the reply means is the partition's business.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use kuorum_metadata::rpc::{AlterPartition, AlterPartitionRequest};
use kuorum_protocol::BrokerEpoch;
use kuorum_replication::{IsrProposal, IsrReply};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use crate::cluster::{ControllerClient, Membership};
use crate::replica_manager::{Hosted, Key};

/// How long a request may look for the active controller before its proposals count as unanswered.
const PATIENCE: Duration = Duration::from_secs(5);
/// Proposals in one request.
const BATCH_MOST: usize = 1000;

/// A proposal and whose it is, and whether it lets the ISR grow, or shrink, or neither.
type Waiting = (Arc<Hosted>, IsrProposal, Ordering);

/// Proposals that wait to be sent: at most one a partition, the newest.
#[derive(Debug, Default)]
pub struct IsrProposals {
    waiting: Mutex<HashMap<Key, Waiting>>,
    nudge: Notify,
}

impl IsrProposals {
    /// Queues a proposal. An older one of the same partition was given up by it, and is forgotten; two threads may
    /// come here in either order.
    pub fn push(&self, hosted: &Arc<Hosted>, proposal: IsrProposal) {
        // Asked now, because the answer may come by the metadata before it comes as a reply.
        let grows = hosted.with(|partition, _| {
            partition.leader().map_or(Ordering::Equal, |leader| {
                let present = leader.isr().committed().len();
                proposal.new_isr.len().cmp(&present)
            })
        });
        let mut waiting = self.waiting.lock();
        let key = hosted.key();
        let newer_waits = waiting
            .get(&key)
            .is_some_and(|(_, known, _)| known.number > proposal.number);
        if !newer_waits {
            waiting.insert(key, (Arc::clone(hosted), proposal, grows));
        }
        drop(waiting);
        self.nudge.notify_one();
    }

    /// Forgets what waits: the broker is going down.
    pub fn clear(&self) {
        self.waiting.lock().clear();
    }

    fn take(&self) -> Vec<Waiting> {
        let mut waiting = self.waiting.lock();
        let keys: Vec<_> = waiting.keys().take(BATCH_MOST).copied().collect();
        keys.iter().filter_map(|key| waiting.remove(key)).collect()
    }
}

/// Sends proposals until `stop` is cancelled.
pub async fn run(
    proposals: Arc<IsrProposals>,
    controllers: ControllerClient,
    membership: Arc<Membership>,
    stop: CancellationToken,
) {
    loop {
        let batch = proposals.take();
        if batch.is_empty() {
            tokio::select! {
                () = stop.cancelled() => return,
                () = proposals.nudge.notified() => continue,
            }
        }
        let broker_epoch = membership.epoch();
        let replies = tokio::select! {
            () = stop.cancelled() => return,
            replies = ask(&controllers, &membership, broker_epoch, &batch) => replies,
        };
        for (hosted, proposal, grows) in batch {
            let reply = replies
                .get(&(hosted.topic_id, hosted.index))
                .cloned()
                .unwrap_or(IsrReply::Unanswered);
            report(&hosted, &proposal, &reply, broker_epoch, grows);
            match reply {
                IsrReply::Accepted { .. } => hosted.count_isr_change(grows),
                _ => hosted.count_failed_isr_update(),
            }
            hosted.isr_decided(proposal.number, reply);
        }
    }
}

async fn ask(
    controllers: &ControllerClient,
    membership: &Membership,
    broker_epoch: Option<BrokerEpoch>,
    batch: &[Waiting],
) -> HashMap<Key, IsrReply> {
    let Some(broker_epoch) = broker_epoch else {
        return HashMap::new();
    };
    let partitions = batch
        .iter()
        .map(|(hosted, proposal, _)| AlterPartition {
            topic_id: hosted.topic_id,
            partition: hosted.index,
            leader_epoch: proposal.leader_epoch,
            partition_epoch: proposal.partition_epoch,
            new_isr: proposal.new_isr.clone(),
            leader_recovery_state: proposal.leader_recovery_state,
        })
        .collect();
    let request = AlterPartitionRequest {
        broker_id: membership.id,
        broker_epoch,
        partitions,
    };
    match controllers.alter_partition(&request, PATIENCE).await {
        Ok(reply) => reply
            .partitions
            .iter()
            .map(|result| ((result.topic_id, result.partition), IsrReply::from(result)))
            .collect(),
        Err(error) => {
            info!(cause = %error, proposals = batch.len(), "ISR proposals were not answered");
            HashMap::new()
        }
    }
}

/// Why a leader proposed another ISR, by which way it goes.
fn cause(grows: Ordering) -> &'static str {
    match grows {
        Ordering::Greater => "a follower has caught up",
        Ordering::Less => "a follower is behind for longer than replica.lag.time.max.ms",
        Ordering::Equal => "the leader has put its log in order after an unclean election",
    }
}

fn report(
    hosted: &Hosted,
    proposal: &IsrProposal,
    reply: &IsrReply,
    broker_epoch: Option<BrokerEpoch>,
    grows: Ordering,
) {
    let broker_epoch = broker_epoch.map(|epoch| epoch.0);
    let cause = cause(grows);
    match reply {
        IsrReply::Accepted {
            partition_epoch, ..
        } if *partition_epoch == proposal.partition_epoch => {
            debug!(topic = %hosted.topic, partition = hosted.index, leader_epoch = proposal.leader_epoch.0, broker_epoch,
                   "the controllers confirm the leader");
        }
        IsrReply::Accepted {
            partition_epoch,
            isr,
            ..
        } => {
            let isr: Vec<i32> = isr.iter().map(|broker| broker.0).collect();
            info!(topic = %hosted.topic, partition = hosted.index, leader_epoch = proposal.leader_epoch.0, broker_epoch,
                  partition_epoch = partition_epoch.0, ?isr, cause, "the ISR changed");
        }
        other => {
            let asked: Vec<i32> = proposal
                .new_isr
                .iter()
                .map(|(broker, _)| broker.0)
                .collect();
            debug!(topic = %hosted.topic, partition = hosted.index, leader_epoch = proposal.leader_epoch.0, broker_epoch,
                   ?asked, cause, reply = ?other, "the ISR did not change");
        }
    }
}
