//! Replicas move from broker to broker: begun, replaced, completed, cancelled, and planned (KIP-455).
//! Law: what is new is added first, and what is old leaves when all that is to stay is in sync. A set that shrinks raises
//! the leader epoch, so that who has left counts no more. Without an unclean policy the last complete replica never goes.

use std::collections::{BTreeMap, BTreeSet};

use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::{BrokerId, DirectoryId, PartitionIndex, TopicId};

use super::command::{Outcome, Reassign, ReassignPartition, ReassignResult};
use super::election::{self, Elected, Policy, Standing, Terms};
use super::heartbeats::Heartbeats;
use super::topics::check_budget;
use super::{Decision, Refusal, topics};
use crate::config_def::items;
use crate::image::{MetadataImage, PartitionImage, TopicImage};
use crate::mutation::{self, Mutation};
use crate::record::{ConfigResource, LeaderRecoveryState, MetadataRecord, PartitionChange};

/// How fast a broker serves throttled replicas that are not in sync.
pub const LEADER_RATE: &str = "leader.replication.throttled.rate";
/// How fast a broker fetches throttled replicas that are not in sync.
pub const FOLLOWER_RATE: &str = "follower.replication.throttled.rate";
/// The replicas that are throttled where they are served.
pub const LEADER_REPLICAS: &str = "leader.replication.throttled.replicas";
/// The replicas that are throttled where they are fetched.
pub const FOLLOWER_REPLICAS: &str = "follower.replication.throttled.replicas";

/// Begins, replaces and cancels. Every partition asked for is answered.
pub fn reassign(
    image: &MetadataImage,
    soft: &Heartbeats,
    request: &Reassign,
) -> Decision<Vec<ReassignResult>> {
    let mut after = image.clone();
    let mut records = Vec::new();
    let mut results = Vec::new();
    let mut seen = BTreeSet::new();
    for wanted in &request.partitions {
        let decided = if request.throttle.is_some_and(|rate| rate < 1) {
            Err(Refusal::new(
                ErrorCode::InvalidRequest,
                "throttle: a limit is at least 1 byte a second",
            ))
        } else if !seen.insert((&wanted.topic, wanted.partition)) {
            Err(Refusal::new(
                ErrorCode::InvalidRequest,
                format!(
                    "partitions: {}-{} is named twice",
                    wanted.topic, wanted.partition
                ),
            ))
        } else {
            let budget = topics::MAX_RECORDS_PER_COMMAND.saturating_sub(records.len());
            check_budget(1, budget).and_then(|()| decide(&after, soft, request, wanted))
        };
        let outcome = match decided {
            Ok(decided) => {
                after.apply_records(image.offset(), &decided);
                records.extend(decided);
                Outcome::ok()
            }
            Err(refusal) => refusal.into(),
        };
        results.push(ReassignResult {
            topic: wanted.topic.clone(),
            partition: wanted.partition,
            outcome,
        });
    }
    let refused = results.iter().any(|result| !result.outcome.is_ok());
    if request.validate_only || request.all_or_nothing && refused {
        records.clear();
    }
    Decision {
        records,
        response: results,
    }
}

fn decide(
    image: &MetadataImage,
    soft: &Heartbeats,
    request: &Reassign,
    wanted: &ReassignPartition,
) -> Result<Vec<MetadataRecord>, Refusal> {
    let index = wanted.partition;
    let (topic, partition) = topics::partition(image, &wanted.topic, index)?;
    let change = match &wanted.replicas {
        None => Some(cancel(image, soft, topic, index, partition)?),
        Some(target) => {
            check_target(
                image,
                partition,
                target,
                request.allow_replication_factor_change,
            )?;
            begin(image, topic, index, partition, target)
        }
    };
    let mut records: Vec<MetadataRecord> = change
        .map(MetadataRecord::PartitionChange)
        .into_iter()
        .collect();
    let mut after = image.clone();
    after.apply_records(image.offset(), &records);
    let runs = after
        .partition(topic.id, index)
        .is_some_and(|partition| partition.is_reassigning());
    match request.throttle {
        _ if !runs => records.extend(unthrottle(&after, topic.id, index)),
        Some(rate) => records.extend(throttle(&after, topic.id, index, rate)),
        None => {}
    }
    Ok(records)
}

/// Whether a partition can be given to these brokers.
fn check_target(
    image: &MetadataImage,
    partition: &PartitionImage,
    target: &[BrokerId],
    allow_replication_factor_change: bool,
) -> Result<(), Refusal> {
    let refuse = |message: String| Err(Refusal::new(ErrorCode::InvalidReplicaAssignment, message));
    if target.is_empty() {
        return refuse("replicas: a partition needs at least one".to_owned());
    }
    let mut seen = BTreeSet::new();
    if let Some(twice) = target.iter().find(|id| !seen.insert(**id)) {
        return refuse(format!("replicas: broker {twice} is named twice"));
    }
    if let Some(unknown) = target.iter().find(|id| image.broker(**id).is_none()) {
        return refuse(format!("replicas: broker {unknown} is not registered"));
    }
    let factor = originals(partition).len();
    let under_way = partition.is_reassigning() && partition.target_replicas() == target;
    if !allow_replication_factor_change && target.len() != factor && !under_way {
        return Err(Refusal::new(
            ErrorCode::InvalidReplicationFactor,
            format!(
                "replicas: the partition has {factor}, not {}; if it shall get more or fewer, say so with \
                 allow_replication_factor_change (--allow-replication-factor-change of kuorum reassignments run)",
                target.len()
            ),
        ));
    }
    Ok(())
}

/// The first step of a move, or of another one instead of what is running; `None` if that is how it is already.
///
/// What the running one added and the new one does not want is among what leaves: it may be the only complete replica.
fn begin(
    image: &MetadataImage,
    topic: &TopicImage,
    index: PartitionIndex,
    partition: &PartitionImage,
    target: &[BrokerId],
) -> Option<PartitionChange> {
    if partition.target_replicas() == target {
        return None;
    }
    let originals = originals(partition);
    let is_new = |replica: &&BrokerId| !originals.contains(replica);
    let adding: Vec<BrokerId> = target.iter().filter(is_new).copied().collect();
    let leaves = |replica: &&BrokerId| !target.contains(replica);
    let removing: Vec<BrokerId> = partition.replicas.iter().filter(leaves).copied().collect();
    let replicas = [target, &removing[..]].concat();
    let runs = !adding.is_empty() || !removing.is_empty();
    let mut change = PartitionChange::of(
        topic.id,
        index,
        partition.partition_epoch.next(),
        "reassignment begun",
    );
    change.directories = Some(directories(partition, &replicas));
    change.replicas = Some(replicas);
    change.adding_replicas = Some(adding);
    change.removing_replicas = Some(removing);
    change.original_replicas = Some(if runs { originals } else { Vec::new() });
    complete(image, topic, partition, &mut change);
    Some(change)
}

/// Takes a move back. Refused where that would give up the last complete replica, unless the topic prefers to be available.
fn cancel(
    image: &MetadataImage,
    soft: &Heartbeats,
    topic: &TopicImage,
    index: PartitionIndex,
    partition: &PartitionImage,
) -> Result<PartitionChange, Refusal> {
    if !partition.is_reassigning() {
        return Err(Refusal::new(
            ErrorCode::NoReassignmentInProgress,
            format!("no reassignment of {}-{index} is running", topic.name),
        ));
    }
    let kept = narrowed(partition, originals(partition));
    let terms = Terms::of(image, topic, &kept);
    let complete = !kept.isr.is_empty() || !kept.elr.is_empty();
    let refuse = |message: &str| {
        Err(Refusal::new(
            ErrorCode::InvalidReplicaAssignment,
            format!("replicas: {message}"),
        ))
    };
    // The election below would find nobody either; this says why.
    if !complete && terms.policy == Policy::Clean {
        return refuse(
            "none of the original ones is in sync, so going back would lose records; let the move complete, or wait for one of them",
        );
    }
    let standing = |replica| {
        election::standing_of_replica(image, &kept, replica, |id| soft.standing(image, id))
    };
    let elected = election::elect(&kept, standing, terms);
    if elected.leader.is_none() && (partition.leader.is_some() || !complete) {
        return refuse("none of the original ones that could lead is alive; wait for one of them");
    }
    let mut change = PartitionChange::of(
        topic.id,
        index,
        partition.partition_epoch.next(),
        "reassignment cancelled",
    );
    settle(partition, &kept, &elected, &mut change);
    Ok(change)
}

/// Completes a reassignment within `change` if, with it, every replica that is to stay is in sync: the others leave in the
/// same record, and if the leader is one of them another one leads. Answers whether it did.
pub(super) fn complete(
    image: &MetadataImage,
    topic: &TopicImage,
    partition: &PartitionImage,
    change: &mut PartitionChange,
) -> bool {
    let mut after = partition.clone();
    after.change(change);
    if !after.is_reassigning() || after.leader.is_none() {
        return false;
    }
    let target = after.target_replicas();
    if !target.iter().all(|replica| after.isr.contains(replica))
        && !mutation::off(Mutation::MoveCompletesTooSoon)
    {
        return false;
    }
    let kept = narrowed(&after, target);
    let by_record = |id| match image.is_active(id) {
        true => Standing::Active,
        false => Standing::Out,
    };
    let standing = |replica| election::standing_of_replica(image, &kept, replica, by_record);
    let terms = Terms {
        policy: Policy::Clean,
        ..Terms::of(image, topic, &kept)
    };
    let elected = election::elect(&kept, standing, terms);
    if elected.leader.is_none() {
        return false;
    }
    settle(partition, &kept, &elected, change);
    change.cause = format!(
        "reassignment of {}-{} completed",
        topic.name, change.partition
    );
    true
}

/// Completes every reassignment that can be; answers how many.
pub(super) fn complete_all(image: &MetadataImage) -> Decision<usize> {
    let mut after = image.clone();
    let mut records = Vec::new();
    let mut completed = 0;
    for (topic, index, partition) in image.partitions() {
        if !partition.is_reassigning() {
            continue;
        }
        let epoch = partition.partition_epoch.next();
        let mut change = PartitionChange::of(topic.id, index, epoch, "");
        if !complete(image, topic, partition, &mut change) {
            continue;
        }
        completed += 1;
        let mut decided = vec![MetadataRecord::PartitionChange(change)];
        after.apply_records(image.offset(), &decided);
        let unthrottled = unthrottle(&after, topic.id, index);
        after.apply_records(image.offset(), &unthrottled);
        decided.extend(unthrottled);
        records.extend(decided);
    }
    Decision {
        records,
        response: completed,
    }
}

/// The replicas before the running reassignment, or as they are.
fn originals(partition: &PartitionImage) -> Vec<BrokerId> {
    if !partition.original_replicas.is_empty() {
        return partition.original_replicas.clone();
    }
    let is_old = |replica: &&BrokerId| !partition.adding_replicas.contains(replica);
    partition.replicas.iter().filter(is_old).copied().collect()
}

/// The partition with no other replicas than `to`, and nothing running.
fn narrowed(partition: &PartitionImage, to: Vec<BrokerId>) -> PartitionImage {
    let mut kept = partition.clone();
    kept.directories = directories(partition, &to);
    for members in [&mut kept.isr, &mut kept.elr, &mut kept.last_known_elr] {
        members.retain(|member| to.contains(member));
    }
    kept.replicas = to;
    kept.adding_replicas.clear();
    kept.removing_replicas.clear();
    kept.original_replicas.clear();
    kept
}

/// Writes into `change` what turns `partition` into `kept` under who was elected.
fn settle(
    partition: &PartitionImage,
    kept: &PartitionImage,
    elected: &Elected,
    change: &mut PartitionChange,
) {
    let leader_epoch = partition.leader_epoch.next();
    let mut replicas = partition.replicas.iter();
    let shrinks = replicas.any(|replica| !kept.replicas.contains(replica))
        && !mutation::off(Mutation::MoveKeepsLeaderEpoch);
    let new_leader = elected.leader != partition.leader;
    change.leader = new_leader.then_some(elected.leader);
    change.leader_epoch = (new_leader || shrinks).then_some(leader_epoch);
    change.isr = (elected.isr != partition.isr).then(|| elected.isr.clone());
    change.elr = (elected.elr != partition.elr).then(|| elected.elr.clone());
    change.last_known_elr =
        (kept.last_known_elr != partition.last_known_elr).then(|| kept.last_known_elr.clone());
    if elected.unclean {
        change.leader_recovery_state = Some(LeaderRecoveryState::Recovering);
        change.last_unclean_epoch = Some(leader_epoch);
    }
    change.replicas = Some(kept.replicas.clone());
    change.directories = Some(kept.directories.clone());
    change.adding_replicas = Some(Vec::new());
    change.removing_replicas = Some(Vec::new());
    change.original_replicas = Some(Vec::new());
}

/// The directory of each of these replicas, where it is known.
fn directories(partition: &PartitionImage, replicas: &[BrokerId]) -> Vec<DirectoryId> {
    let directory = |replica: &BrokerId| partition.directory(*replica);
    let known = replicas.iter().map(directory);
    known
        .map(|directory| directory.unwrap_or(DirectoryId::ZERO))
        .collect()
}

/// Names the replicas of a move in the topic's throttled lists, and sets the rate of every broker.
fn throttle(
    image: &MetadataImage,
    id: TopicId,
    index: PartitionIndex,
    rate: i64,
) -> Vec<MetadataRecord> {
    let Some(topic) = image.topic_by_id(id) else {
        return Vec::new();
    };
    let Some(partition) = topic.partition(index) else {
        return Vec::new();
    };
    let mut records = Vec::new();
    // Whoever leads on the way serves; whoever is added fetches. `*` names them already.
    let lists = [
        (LEADER_REPLICAS, &partition.replicas),
        (FOLLOWER_REPLICAS, &partition.adding_replicas),
    ];
    for (name, replicas) in lists {
        let present = listed(image, &topic.name, name);
        if present.iter().any(|item| item == "*") {
            continue;
        }
        let mut list = present.clone();
        for replica in replicas {
            let item = format!("{index}:{replica}");
            if !list.contains(&item) {
                list.push(item);
            }
        }
        if list != present {
            records.push(MetadataRecord::Config {
                resource: ConfigResource::Topic(topic.name.clone()),
                name: name.to_owned(),
                value: Some(list.join(",")),
            });
        }
    }
    for name in [LEADER_RATE, FOLLOWER_RATE] {
        let rate = rate.to_string();
        let present = image.configs_of(&ConfigResource::ClusterDefault);
        if present.and_then(|values| values.get(name)) != Some(&rate) {
            records.push(MetadataRecord::Config {
                resource: ConfigResource::ClusterDefault,
                name: name.to_owned(),
                value: Some(rate),
            });
        }
    }
    records
}

/// Takes a partition that is no longer moving off its topic's throttled lists; once nothing is listed anywhere, the rate
/// that all brokers share goes too. `*`, which an operator wrote, stays.
pub(super) fn unthrottle(
    image: &MetadataImage,
    id: TopicId,
    index: PartitionIndex,
) -> Vec<MetadataRecord> {
    let Some(topic) = image.topic_by_id(id) else {
        return Vec::new();
    };
    let mut records = Vec::new();
    let own = format!("{index}:");
    for name in [LEADER_REPLICAS, FOLLOWER_REPLICAS] {
        let present = listed(image, &topic.name, name);
        let mut list = present.clone();
        list.retain(|item| !item.starts_with(&own));
        if list.len() < present.len() {
            records.push(MetadataRecord::Config {
                resource: ConfigResource::Topic(topic.name.clone()),
                name: name.to_owned(),
                value: (!list.is_empty()).then(|| list.join(",")),
            });
        }
    }
    if !records.is_empty() {
        let lifted = lift_rates(image, &records);
        records.extend(lifted);
    }
    records
}

/// The same for topics that `records` delete.
pub(super) fn forget_throttled(
    image: &MetadataImage,
    deleted: &BTreeSet<TopicId>,
    records: &[MetadataRecord],
) -> Vec<MetadataRecord> {
    let mut deleted = deleted.iter().filter_map(|id| image.topic_by_id(*id));
    let was_throttled = deleted.any(|topic| is_throttled(image, topic));
    if was_throttled {
        lift_rates(image, records)
    } else {
        Vec::new()
    }
}

fn is_throttled(image: &MetadataImage, topic: &TopicImage) -> bool {
    let lists = [LEADER_REPLICAS, FOLLOWER_REPLICAS];
    lists
        .iter()
        .any(|name| !listed(image, &topic.name, name).is_empty())
}

/// Takes the cluster's rates away if after `records` no topic lists a replica any more.
fn lift_rates(image: &MetadataImage, records: &[MetadataRecord]) -> Vec<MetadataRecord> {
    let mut after = image.clone();
    after.apply_records(image.offset(), records);
    let throttled = after.topics().any(|topic| is_throttled(&after, topic));
    let shared = image.configs_of(&ConfigResource::ClusterDefault);
    let mut lifted = Vec::new();
    for name in [LEADER_RATE, FOLLOWER_RATE] {
        if !throttled && shared.is_some_and(|values| values.contains_key(name)) {
            lifted.push(MetadataRecord::Config {
                resource: ConfigResource::ClusterDefault,
                name: name.to_owned(),
                value: None,
            });
        }
    }
    lifted
}

fn listed(image: &MetadataImage, topic: &str, name: &str) -> Vec<String> {
    let values = image.configs_of(&ConfigResource::Topic(topic.to_owned()));
    let list = values.and_then(|values| values.get(name));
    list.map(|list| items(list).map(str::to_owned).collect())
        .unwrap_or_default()
}

/// Whether a topic's throttled list (`partition:broker`, or `*`) names a replica. What is not of that form names none.
pub fn is_listed(list: &str, index: PartitionIndex, replica: BrokerId) -> bool {
    items(list).any(|item| {
        item == "*"
            || item.split_once(':').is_some_and(|(partition, broker)| {
                partition.trim().parse() == Ok(index) && broker.trim().parse() == Ok(replica.0)
            })
    })
}

/// One partition's share of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    pub topic: String,
    pub partition: PartitionIndex,
    /// As it is, or is becoming.
    pub now: Vec<BrokerId>,
    /// As proposed, the preferred leader first.
    pub replicas: Vec<BrokerId>,
}

/// Proposes where the replicas of some topics go if they are to lie on these brokers and no others: as many on each as on
/// any other, no two of a partition in one rack if there are racks enough, leaderships spread likewise, and what lies well
/// stays. Deterministic; nothing is decided by it.
///
/// # Errors
/// Unknown topics and brokers, a broker named twice, and fewer brokers than a partition has replicas.
pub fn plan(
    image: &MetadataImage,
    topics: &[String],
    brokers: &[BrokerId],
) -> Result<Vec<Planned>, Refusal> {
    let refuse = |message: String| Err(Refusal::new(ErrorCode::InvalidReplicaAssignment, message));
    let mut chosen = BTreeSet::new();
    if let Some(twice) = brokers.iter().find(|id| !chosen.insert(**id)) {
        return refuse(format!("brokers: broker {twice} is named twice"));
    }
    if let Some(unknown) = brokers.iter().find(|id| image.broker(**id).is_none()) {
        return refuse(format!("brokers: broker {unknown} is not registered"));
    }
    let mut partitions = Vec::new();
    let mut named = BTreeSet::new();
    for name in topics {
        let Some(topic) = image.topic(name) else {
            return Err(Refusal::new(
                ErrorCode::UnknownTopicOrPartition,
                format!("topics: there is no topic {name}"),
            ));
        };
        if !named.insert(name) {
            continue;
        }
        for (index, partition) in &topic.partitions {
            let now = partition.target_replicas();
            if now.len() > brokers.len() {
                return refuse(format!(
                    "brokers: {name}-{index} has {} replicas, and only {} broker(s) are given",
                    now.len(),
                    brokers.len()
                ));
            }
            partitions.push((name, *index, now));
        }
    }
    let wanted: usize = partitions.iter().map(|(_, _, now)| now.len()).sum();
    let mut shares = Shares::new(image, &chosen, wanted);
    let stay: Vec<Vec<BrokerId>> = partitions
        .iter()
        .map(|(_, _, now)| shares.keep(now))
        .collect();
    let placed: Vec<Vec<BrokerId>> = partitions
        .iter()
        .zip(stay)
        .enumerate()
        .map(|(turn, ((_, _, now), stay))| shares.fill(stay, now.len(), turn))
        .collect();
    let leaders_most = partitions.len().div_ceil(chosen.len().max(1));
    Ok(partitions
        .into_iter()
        .zip(placed)
        .map(|((topic, partition, now), replicas)| Planned {
            topic: topic.clone(),
            partition,
            replicas: shares.lead(replicas, now.first().copied(), leaders_most),
            now,
        })
        .collect())
}

/// How much of a plan each broker has got so far.
struct Shares {
    racks: BTreeMap<BrokerId, Option<String>>,
    holds: BTreeMap<BrokerId, usize>,
    leads: BTreeMap<BrokerId, usize>,
    /// No broker keeps more than this.
    most: usize,
    rack_count: usize,
}

impl Shares {
    fn new(image: &MetadataImage, brokers: &BTreeSet<BrokerId>, wanted: usize) -> Self {
        let rack = |id: &BrokerId| image.broker(*id).and_then(|broker| broker.rack.clone());
        let racks: BTreeMap<_, _> = brokers.iter().map(|id| (*id, rack(id))).collect();
        let distinct: BTreeSet<&String> = racks.values().flatten().collect();
        Self {
            rack_count: distinct.len(),
            holds: brokers.iter().map(|id| (*id, 0)).collect(),
            leads: brokers.iter().map(|id| (*id, 0)).collect(),
            most: wanted.div_ceil(brokers.len().max(1)),
            racks,
        }
    }

    /// How many of `replicas` stand in the rack of `broker`.
    fn beside(&self, broker: BrokerId, replicas: &[BrokerId]) -> usize {
        let rack = self.racks.get(&broker).and_then(Option::as_ref);
        let same = |other: &&BrokerId| {
            rack.is_some() && self.racks.get(other).and_then(Option::as_ref) == rack
        };
        replicas.iter().filter(same).count()
    }

    /// What of a partition may stay where it is.
    fn keep(&mut self, now: &[BrokerId]) -> Vec<BrokerId> {
        let allowed = now.len().div_ceil(self.rack_count.max(1)).max(1);
        let mut stay = Vec::new();
        for replica in now {
            let fits = self.beside(*replica, &stay) < allowed;
            match self.holds.get_mut(replica) {
                Some(held) if *held < self.most && fits => {
                    *held += 1;
                    stay.push(*replica);
                }
                _ => {}
            }
        }
        stay
    }

    /// Adds what is missing: in other racks, where least is held, and then by turns.
    fn fill(&mut self, mut replicas: Vec<BrokerId>, factor: usize, turn: usize) -> Vec<BrokerId> {
        while replicas.len() < factor {
            let count = self.holds.len();
            let next = self
                .holds
                .iter()
                .enumerate()
                .filter(|(_, (id, _))| !replicas.contains(id))
                .min_by_key(|(place, (id, held))| {
                    let by_turns = (place + count - turn % count) % count;
                    (self.beside(**id, &replicas), **held, by_turns)
                })
                .map(|(_, (id, _))| *id)
                .expect("there are at least as many brokers as replicas");
            *self.holds.entry(next).or_default() += 1;
            replicas.push(next);
        }
        replicas
    }

    /// Puts the preferred leader first: the present one if its share allows, else who leads least.
    fn lead(
        &mut self,
        mut replicas: Vec<BrokerId>,
        present: Option<BrokerId>,
        most: usize,
    ) -> Vec<BrokerId> {
        let leads = |id: &BrokerId| self.leads.get(id).copied().unwrap_or_default();
        let stays = present.filter(|id| replicas.contains(id) && leads(id) < most);
        let leader = stays.or_else(|| replicas.iter().copied().min_by_key(|id| leads(id)));
        if let Some(leader) = leader {
            *self.leads.entry(leader).or_default() += 1;
            replicas.retain(|replica| *replica != leader);
            replicas.insert(0, leader);
        }
        replicas
    }
}
