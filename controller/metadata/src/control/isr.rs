//! A leader's request to change its ISR (KIP-497, KIP-841, KIP-903).
//! Law: the order of the checks is the contract: a leader tells from the error whether its change may still be applied.
//! A member that is not who the leader heard from never joins. Who leaves while fewer than min.insync.replicas stay goes
//! to the ELR, and the answer says so: the leader's high watermark stands still until the ELR is empty again.

use std::collections::BTreeSet;

use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::{BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch};

use super::election::{self, Standing, standing_of_replica};
use super::{Decision, Refusal, brokers, reassignment};
use crate::image::{MetadataImage, PartitionImage};
use crate::mutation::{self, Mutation};
use crate::record::{LeaderRecoveryState, MetadataRecord, PartitionChange};
use crate::rpc::{
    AlterPartition, AlterPartitionReply, AlterPartitionRequest, AlterPartitionResult,
};

/// Decides a leader's proposals, each for itself. An accepted one raises the partition epoch by one and leaves the
/// leader epoch as it is; one that changes nothing is answered with the state as it is.
pub fn alter_partition(
    image: &MetadataImage,
    request: &AlterPartitionRequest,
) -> Result<Decision<AlterPartitionReply>, Refusal> {
    brokers::known_incarnation(image, request.broker_id, request.broker_epoch)
        .map_err(|refusal| Refusal::new(ErrorCode::StaleBrokerEpoch, refusal.message))?;
    let mut after = image.clone();
    let mut records = Vec::new();
    let mut results = Vec::new();
    for proposal in &request.partitions {
        let error = match decide(&after, request.broker_id, proposal) {
            Ok(None) => ErrorCode::None,
            Ok(Some(change)) => {
                let completes = change.removing_replicas.is_some();
                let change = MetadataRecord::PartitionChange(change);
                let mut decided = vec![change];
                after.apply_records(image.offset(), &decided);
                if completes {
                    let id = proposal.topic_id;
                    let unthrottled = reassignment::unthrottle(&after, id, proposal.partition);
                    after.apply_records(image.offset(), &unthrottled);
                    decided.extend(unthrottled);
                }
                records.extend(decided);
                let partition = after.partition(proposal.topic_id, proposal.partition);
                match partition.and_then(|partition| partition.leader) {
                    Some(leader) if leader == request.broker_id => ErrorCode::None,
                    // What was proposed is decided, and somebody else leads: both.
                    _ => ErrorCode::NewLeaderElected,
                }
            }
            Err(error) => error,
        };
        results.push(result(&after, proposal, error));
    }
    Ok(Decision {
        records,
        response: AlterPartitionReply {
            partitions: results,
        },
    })
}

fn decide(
    image: &MetadataImage,
    sender: BrokerId,
    proposal: &AlterPartition,
) -> Result<Option<PartitionChange>, ErrorCode> {
    let topic = image
        .topic_by_id(proposal.topic_id)
        .ok_or(ErrorCode::UnknownTopicId)?;
    let partition = topic
        .partition(proposal.partition)
        .ok_or(ErrorCode::UnknownTopicOrPartition)?;
    check(image, sender, partition, proposal)?;

    let isr: Vec<BrokerId> = proposal.new_isr.iter().map(|(member, _)| *member).collect();
    let new_isr = isr != partition.isr;
    let new_state = proposal.leader_recovery_state != partition.leader_recovery_state;
    if !new_isr && !new_state {
        return Ok(None);
    }
    let min_isr = election::effective_min_isr(image, topic, partition);
    let elr = election::elr_beside(partition, &isr, min_isr);
    let mut change = PartitionChange::of(
        proposal.topic_id,
        proposal.partition,
        partition.partition_epoch.next(),
        cause(partition, &isr),
    );
    change.leader_recovery_state = new_state.then_some(proposal.leader_recovery_state);
    change.elr = (elr != partition.elr).then_some(elr);
    change.isr = new_isr.then_some(isr);
    reassignment::complete(image, topic, partition, &mut change);
    Ok(Some(change))
}

fn check(
    image: &MetadataImage,
    sender: BrokerId,
    partition: &PartitionImage,
    proposal: &AlterPartition,
) -> Result<(), ErrorCode> {
    // A leader that knows more than this controller: it is this controller that is out of date.
    if proposal.leader_epoch > partition.leader_epoch
        || proposal.partition_epoch > partition.partition_epoch
    {
        return Err(ErrorCode::NotController);
    }
    if proposal.leader_epoch < partition.leader_epoch {
        return Err(ErrorCode::FencedLeaderEpoch);
    }
    if partition.leader != Some(sender) {
        return Err(ErrorCode::InvalidRequest);
    }
    if proposal.partition_epoch < partition.partition_epoch {
        return Err(ErrorCode::InvalidUpdateVersion);
    }
    let members: BTreeSet<BrokerId> = proposal.new_isr.iter().map(|(member, _)| *member).collect();
    let all_are_replicas = members
        .iter()
        .all(|member| partition.replicas.contains(member));
    if members.len() != proposal.new_isr.len() || !all_are_replicas || !members.contains(&sender) {
        return Err(ErrorCode::InvalidRequest);
    }
    if proposal.leader_recovery_state == LeaderRecoveryState::Recovering {
        if members.len() > 1 {
            return Err(ErrorCode::InvalidRequest);
        }
        if partition.leader_recovery_state == LeaderRecoveryState::Recovered {
            return Err(ErrorCode::InvalidRequest);
        }
    }
    let eligible =
        |(member, epoch): &(BrokerId, BrokerEpoch)| is_eligible(image, partition, *member, *epoch);
    if !proposal.new_isr.iter().all(eligible) {
        return Err(ErrorCode::IneligibleReplica);
    }
    Ok(())
}

/// Whether a replica may be in the ISR: its broker is registered, unfenced, not shutting down unless it is the leader, its
/// directory is online, and it is the incarnation the leader heard from. Only a present member may be one the leader has not heard from yet:
/// had it restarted, it would have left and raised the partition epoch.
fn is_eligible(
    image: &MetadataImage,
    partition: &PartitionImage,
    member: BrokerId,
    epoch: BrokerEpoch,
) -> bool {
    let Some(broker) = image.broker(member) else {
        return false;
    };
    let same_incarnation =
        broker.epoch == epoch || epoch == BrokerEpoch::UNKNOWN && partition.isr.contains(&member);
    // A leader that is shutting down must be able to take in the one that is to take over.
    let leads_on = partition.leader == Some(member)
        && !broker.fenced
        && !mutation::off(Mutation::LeavingLeaderKeepsTheDead);
    let may_join = broker.is_active() || leads_on || mutation::off(Mutation::LeavingMayJoin);
    let standing = |_| match may_join {
        true => Standing::Active,
        false => Standing::Out,
    };
    same_incarnation && standing_of_replica(image, partition, member, standing) == Standing::Active
}

fn cause(partition: &PartitionImage, isr: &[BrokerId]) -> &'static str {
    match isr.len().cmp(&partition.isr.len()) {
        std::cmp::Ordering::Less => "isr shrunk",
        std::cmp::Ordering::Greater => "isr expanded",
        std::cmp::Ordering::Equal if partition.isr == isr => "leader recovered",
        std::cmp::Ordering::Equal => "isr changed",
    }
}

fn result(
    image: &MetadataImage,
    proposal: &AlterPartition,
    error: ErrorCode,
) -> AlterPartitionResult {
    let partition = image.partition(proposal.topic_id, proposal.partition);
    AlterPartitionResult {
        topic_id: proposal.topic_id,
        partition: proposal.partition,
        error: error.into(),
        leader: partition.and_then(|partition| partition.leader),
        leader_epoch: partition.map_or(LeaderEpoch::UNKNOWN, |partition| partition.leader_epoch),
        partition_epoch: partition
            .map_or(PartitionEpoch(-1), |partition| partition.partition_epoch),
        isr: partition.map_or_else(Vec::new, |partition| partition.isr.clone()),
        elr: partition.map_or_else(Vec::new, |partition| partition.elr.clone()),
        leader_recovery_state: partition.map_or_else(Default::default, |partition| {
            partition.leader_recovery_state
        }),
    }
}
