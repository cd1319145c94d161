//! Topics are created and deleted.
//! Law: every topic asked for has its own answer, and one that is refused stops none of the others.

use std::collections::{BTreeMap, BTreeSet};

use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::{BrokerId, PartitionIndex, TopicId};

use super::command::{
    CreateTopicResult, CreateTopics, DeleteTopicResult, DeleteTopics, NewTopic, Outcome,
    TopicSelector,
};
use super::configs;
use super::placement::Placer;
use super::reassignment;
use super::{Decision, Random, Refusal};
use crate::image::configs::{CONSUMER_OFFSETS, TRANSACTION_STATE};
use crate::image::{MetadataImage, PartitionImage, TopicImage};
use crate::record::{ConfigResource, MetadataRecord, PartitionRecord};

/// The longest name: a directory is named after topic and partition, and file systems end at 255 bytes.
const NAME_LIMIT: usize = 249;

/// The most records one command may lead to; beyond it the controller would be busy for everybody else.
pub const MAX_RECORDS_PER_COMMAND: usize = 10_000;

/// The metadata log's own name, which is no topic of brokers.
const CLUSTER_METADATA: &str = "__cluster_metadata";

/// Creates topics. New partitions have their active replicas in sync, and the first of them leads.
pub fn create(
    image: &MetadataImage,
    request: &CreateTopics,
    random: &mut Random,
) -> Decision<Vec<CreateTopicResult>> {
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    for topic in &request.topics {
        *names.entry(&topic.name).or_default() += 1;
    }
    let mut placer = Placer::new(image, random);
    let mut taken = Names::of(image);
    let mut records = Vec::new();
    let mut response = Vec::new();
    for topic in &request.topics {
        let budget = MAX_RECORDS_PER_COMMAND - records.len();
        let planned = if names.get(topic.name.as_str()) > Some(&1) {
            Err(Refusal::new(
                ErrorCode::InvalidRequest,
                format!("the request names topic {} twice", topic.name),
            ))
        } else {
            taken
                .admit(&topic.name)
                .and_then(|()| plan(image, topic, &mut placer, budget))
        };
        match planned {
            Err(refusal) => response.push(refused(topic, refusal)),
            Ok(plan) => {
                taken.add(&topic.name);
                let topic_id = if request.validate_only {
                    TopicId::ZERO
                } else {
                    fresh_topic_id(image, random)
                };
                response.push(CreateTopicResult {
                    name: topic.name.clone(),
                    topic_id,
                    outcome: Outcome::ok(),
                    num_partitions: plan.replicas.len() as i32,
                    replication_factor: plan.replicas.first().map_or(0, Vec::len) as i16,
                    configs: plan.configs.clone(),
                });
                if !request.validate_only {
                    records.extend(plan.records(image, &topic.name, topic_id));
                }
            }
        }
    }
    Decision { records, response }
}

/// A topic that may be created, before it has an id.
struct Plan {
    replicas: Vec<Vec<BrokerId>>,
    configs: BTreeMap<String, String>,
}

impl Plan {
    fn records(
        self,
        image: &MetadataImage,
        name: &str,
        topic_id: TopicId,
    ) -> impl Iterator<Item = MetadataRecord> {
        let topic = MetadataRecord::Topic {
            name: name.to_owned(),
            topic_id,
        };
        let resource = ConfigResource::Topic(name.to_owned());
        let configs = self
            .configs
            .into_iter()
            .map(move |(name, value)| MetadataRecord::Config {
                resource: resource.clone(),
                name,
                value: Some(value),
            });
        let partitions = self
            .replicas
            .into_iter()
            .enumerate()
            .map(move |(index, replicas)| {
                new_partition(image, topic_id, index as PartitionIndex, replicas)
            });
        std::iter::once(topic).chain(configs).chain(partitions)
    }
}

fn plan(
    image: &MetadataImage,
    topic: &NewTopic,
    placer: &mut Placer,
    budget: usize,
) -> Result<Plan, Refusal> {
    let configs = first_configs(image, topic)?;
    let left = budget.saturating_sub(1 + configs.len());
    let replicas = if topic.assignments.is_empty() {
        automatic(image, topic, placer, left)?
    } else {
        manual(image, topic, left)?
    };
    Ok(Plan { replicas, configs })
}

fn first_configs(
    image: &MetadataImage,
    topic: &NewTopic,
) -> Result<BTreeMap<String, String>, Refusal> {
    let mut given: BTreeMap<String, String> = internal_configs(image, &topic.name);
    let mut seen = BTreeSet::new();
    for (name, value) in &topic.configs {
        if !seen.insert(name) {
            return Err(Refusal::new(
                ErrorCode::InvalidConfig,
                format!("the request sets {name} twice"),
            ));
        }
        if let Some(value) = value {
            given.insert(name.clone(), value.clone());
        }
    }
    configs::check_topic_values(image, &topic.name, &given)?;
    Ok(given)
}

/// What the coordinators' topics need whatever anybody says.
fn internal_configs(image: &MetadataImage, name: &str) -> BTreeMap<String, String> {
    let shared = |key: &str| image.cluster_value(key).unwrap_or_default();
    let configs = match name {
        CONSUMER_OFFSETS => vec![
            ("cleanup.policy", "compact".to_owned()),
            ("compression.type", "producer".to_owned()),
            ("segment.bytes", shared("offsets.topic.segment.bytes")),
        ],
        TRANSACTION_STATE => vec![
            ("cleanup.policy", "compact".to_owned()),
            ("compression.type", "uncompressed".to_owned()),
            (
                "min.insync.replicas",
                shared("transaction.state.log.min.isr"),
            ),
            (
                "segment.bytes",
                shared("transaction.state.log.segment.bytes"),
            ),
        ],
        _ => Vec::new(),
    };
    let named = configs
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value));
    named.collect()
}

fn automatic(
    image: &MetadataImage,
    topic: &NewTopic,
    placer: &mut Placer,
    budget: usize,
) -> Result<Vec<Vec<BrokerId>>, Refusal> {
    let (partitions_key, factor_key) = match topic.name.as_str() {
        CONSUMER_OFFSETS => (
            "offsets.topic.num.partitions",
            "offsets.topic.replication.factor",
        ),
        TRANSACTION_STATE => (
            "transaction.state.log.num.partitions",
            "transaction.state.log.replication.factor",
        ),
        _ => ("num.partitions", "default.replication.factor"),
    };
    let partitions = match topic.num_partitions {
        -1 => image.cluster_number(partitions_key),
        partitions if partitions > 0 => i64::from(partitions),
        partitions => {
            return Err(Refusal::new(
                ErrorCode::InvalidPartitions,
                format!("a topic has at least one partition, not {partitions}"),
            ));
        }
    };
    let factor = match topic.replication_factor {
        -1 => image.cluster_number(factor_key),
        factor if factor > 0 => i64::from(factor),
        factor => {
            return Err(Refusal::new(
                ErrorCode::InvalidReplicationFactor,
                format!("a partition has at least one replica, not {factor}"),
            ));
        }
    };
    check_budget(partitions as usize, budget)?;
    // On a copy, so that a topic that is refused half-way does not count as load.
    let mut trial = placer.clone();
    let replicas: Result<Vec<_>, Refusal> = (0..partitions)
        .map(|_| trial.place(factor as usize))
        .collect();
    let replicas = replicas?;
    *placer = trial;
    Ok(replicas)
}

pub(super) fn check_budget(partitions: usize, budget: usize) -> Result<(), Refusal> {
    if partitions <= budget {
        return Ok(());
    }
    Err(Refusal::new(
        ErrorCode::PolicyViolation,
        format!(
            "one request may lead to {MAX_RECORDS_PER_COMMAND} changes and no more, a partition being one; ask for less at once"
        ),
    ))
}

fn manual(
    image: &MetadataImage,
    topic: &NewTopic,
    budget: usize,
) -> Result<Vec<Vec<BrokerId>>, Refusal> {
    if topic.num_partitions != -1 || topic.replication_factor != -1 {
        return Err(Refusal::new(
            ErrorCode::InvalidRequest,
            "with assignments, the number of partitions and the replication factor must be -1",
        ));
    }
    check_budget(topic.assignments.len(), budget)?;
    let by_index: BTreeMap<PartitionIndex, &Vec<BrokerId>> = topic
        .assignments
        .iter()
        .map(|(index, replicas)| (*index, replicas))
        .collect();
    let complete = by_index.len() == topic.assignments.len()
        && by_index
            .keys()
            .copied()
            .eq(0..topic.assignments.len() as i32);
    if !complete {
        return Err(Refusal::new(
            ErrorCode::InvalidReplicaAssignment,
            "the partitions of an assignment must be 0, 1, 2 … without gap or repetition",
        ));
    }
    let replicas: Vec<Vec<BrokerId>> = by_index.into_values().cloned().collect();
    let factor = replicas.first().map_or(0, Vec::len);
    for assignment in &replicas {
        check_assignment(image, assignment, factor)?;
    }
    Ok(replicas)
}

/// Whether a list of replicas can be: so many as the others, registered, none twice, one of them alive.
pub(super) fn check_assignment(
    image: &MetadataImage,
    replicas: &[BrokerId],
    factor: usize,
) -> Result<(), Refusal> {
    let refuse = |message: String| Err(Refusal::new(ErrorCode::InvalidReplicaAssignment, message));
    if replicas.is_empty() {
        return refuse("an assignment needs at least one replica".to_owned());
    }
    if replicas.len() != factor {
        return refuse(format!(
            "all partitions of a topic have equally many replicas: {factor}, not {}",
            replicas.len()
        ));
    }
    let distinct: BTreeSet<&BrokerId> = replicas.iter().collect();
    if distinct.len() != replicas.len() {
        return refuse("an assignment names a broker twice".to_owned());
    }
    if let Some(unknown) = replicas.iter().find(|id| image.broker(**id).is_none()) {
        return refuse(format!("broker {unknown} is not registered"));
    }
    if !replicas.iter().any(|replica| image.is_active(*replica)) {
        return refuse("none of the brokers of an assignment is alive".to_owned());
    }
    Ok(())
}

/// The partition of a topic by the topic's name.
pub(super) fn partition<'a>(
    image: &'a MetadataImage,
    name: &str,
    index: PartitionIndex,
) -> Result<(&'a TopicImage, &'a PartitionImage), Refusal> {
    image
        .topic(name)
        .and_then(|topic| Some((&**topic, &**topic.partition(index)?)))
        .ok_or_else(|| {
            Refusal::new(
                ErrorCode::UnknownTopicOrPartition,
                format!("there is no partition {name}-{index}"),
            )
        })
}

/// A new partition's record: its active replicas are in sync, the first of them leads. Where they lie is for the brokers to tell,
/// also if they have one directory: a replica that is known to lie somewhere and is not there counts as lost, and until it is told
/// of it may never have been made.
pub(super) fn new_partition(
    image: &MetadataImage,
    topic_id: TopicId,
    partition: PartitionIndex,
    replicas: Vec<BrokerId>,
) -> MetadataRecord {
    let isr: Vec<BrokerId> = replicas
        .iter()
        .copied()
        .filter(|replica| image.is_active(*replica))
        .collect();
    MetadataRecord::Partition(PartitionRecord {
        leader: isr
            .iter()
            .find(|member| {
                image
                    .broker(**member)
                    .is_some_and(|broker| !broker.draining)
            })
            .or(isr.first())
            .copied(),
        isr,
        ..PartitionRecord::of(topic_id, partition, replicas)
    })
}

fn fresh_topic_id(image: &MetadataImage, random: &mut Random) -> TopicId {
    loop {
        let id = TopicId(random.uuid());
        if image.topic_by_id(id).is_none() {
            return id;
        }
    }
}

fn refused(topic: &NewTopic, refusal: Refusal) -> CreateTopicResult {
    CreateTopicResult {
        name: topic.name.clone(),
        topic_id: TopicId::ZERO,
        outcome: refusal.into(),
        num_partitions: -1,
        replication_factor: -1,
        configs: BTreeMap::new(),
    }
}

/// The names that are in use, and how each looks where `.` and `_` are the same.
struct Names<'a> {
    image: &'a MetadataImage,
    new: BTreeSet<String>,
}

impl<'a> Names<'a> {
    fn of(image: &'a MetadataImage) -> Self {
        Self {
            image,
            new: BTreeSet::new(),
        }
    }

    fn add(&mut self, name: &str) {
        self.new.insert(name.to_owned());
    }

    fn admit(&self, name: &str) -> Result<(), Refusal> {
        check_name(name)?;
        if self.image.topic(name).is_some() || self.new.contains(name) {
            return Err(Refusal::new(
                ErrorCode::TopicAlreadyExists,
                format!("Topic '{name}' already exists."),
            ));
        }
        if !name.contains(['.', '_']) {
            return Ok(());
        }
        let plain = name.replace('.', "_");
        let existing = self.image.topics().map(|topic| topic.name.as_str());
        let mut names = existing.chain(self.new.iter().map(String::as_str));
        match names.find(|other| other.replace('.', "_") == plain) {
            None => Ok(()),
            Some(other) => Err(Refusal::new(
                ErrorCode::InvalidTopicException,
                format!(
                    "topic {name} would share its metrics with topic {other}: . and _ are the same there"
                ),
            )),
        }
    }
}

/// Whether a topic may be called so.
pub fn check_name(name: &str) -> Result<(), Refusal> {
    let refuse = |message: String| Err(Refusal::new(ErrorCode::InvalidTopicException, message));
    if name.is_empty() {
        return refuse("a topic's name cannot be empty".to_owned());
    }
    if name == "." || name == ".." {
        return refuse(format!("a topic cannot be called {name}"));
    }
    if name.len() > NAME_LIMIT {
        return refuse(format!(
            "a topic's name has at most {NAME_LIMIT} characters, not {}",
            name.len()
        ));
    }
    let is_legal =
        |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-');
    if !name.chars().all(is_legal) {
        return refuse(format!(
            "topic name '{name}' holds something other than ASCII letters, digits, '.', '_' and '-'"
        ));
    }
    if name == CLUSTER_METADATA {
        return refuse(format!("{name} is the controllers' own log"));
    }
    Ok(())
}

/// Deletes topics, by name or by id, with their configuration.
pub fn delete(image: &MetadataImage, request: &DeleteTopics) -> Decision<Vec<DeleteTopicResult>> {
    let allowed = image.cluster_value("delete.topic.enable").as_deref() != Some("false");
    let mut gone: BTreeSet<TopicId> = BTreeSet::new();
    let mut records = Vec::new();
    let mut response = Vec::new();
    for selector in &request.topics {
        let found = match selector {
            TopicSelector::Name(name) => image.topic(name),
            TopicSelector::Id(id) => image.topic_by_id(*id),
        };
        let outcome = match found {
            _ if !allowed => Refusal::new(
                ErrorCode::TopicDeletionDisabled,
                "delete.topic.enable is false",
            )
            .into(),
            None => missing(selector).into(),
            Some(topic) if !gone.insert(topic.id) => Refusal::new(
                ErrorCode::InvalidRequest,
                format!("the request names topic {} twice", topic.name),
            )
            .into(),
            Some(topic) => {
                records.push(MetadataRecord::RemoveTopic { topic_id: topic.id });
                Outcome::ok()
            }
        };
        response.push(DeleteTopicResult {
            name: match (found, selector) {
                (Some(topic), _) => Some(topic.name.clone()),
                (None, TopicSelector::Name(name)) => Some(name.clone()),
                (None, TopicSelector::Id(_)) => None,
            },
            topic_id: match (found, selector) {
                (Some(topic), _) => topic.id,
                (None, TopicSelector::Id(id)) => *id,
                (None, TopicSelector::Name(_)) => TopicId::ZERO,
            },
            outcome,
        });
    }
    let lifted = reassignment::forget_throttled(image, &gone, &records);
    records.extend(lifted);
    Decision { records, response }
}

fn missing(selector: &TopicSelector) -> Refusal {
    match selector {
        TopicSelector::Name(name) => Refusal::new(
            ErrorCode::UnknownTopicOrPartition,
            format!("there is no topic {name}"),
        ),
        TopicSelector::Id(id) => Refusal::new(
            ErrorCode::UnknownTopicId,
            format!("there is no topic with id {id}"),
        ),
    }
}
