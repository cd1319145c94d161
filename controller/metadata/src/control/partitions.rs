//! A topic gets more partitions.
//! Law: never fewer, and the ones there are stay where they are. That keys move to other partitions is the caller's to say.

use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::{BrokerId, PartitionIndex};

use super::command::{CreatePartitions, CreatePartitionsResult, NewPartitions, Outcome};
use super::placement::Placer;
use super::topics::{MAX_RECORDS_PER_COMMAND, check_assignment, check_budget, new_partition};
use super::{Decision, Random, Refusal};
use crate::image::{MetadataImage, TopicImage};

/// Adds partitions. Every topic asked for is answered.
pub fn create(
    image: &MetadataImage,
    request: &CreatePartitions,
    random: &mut Random,
) -> Decision<Vec<CreatePartitionsResult>> {
    let mut placer = Placer::new(image, random);
    let mut records = Vec::new();
    let mut response = Vec::new();
    for (place, wanted) in request.topics.iter().enumerate() {
        let mut others = request.topics.iter().enumerate();
        let is_repeated = others.any(|(other, topic)| other != place && topic.name == wanted.name);
        let budget = MAX_RECORDS_PER_COMMAND - records.len();
        let planned = match image.topic(&wanted.name) {
            _ if is_repeated => Err(Refusal::new(
                ErrorCode::InvalidRequest,
                format!("the request names topic {} twice", wanted.name),
            )),
            None => Err(Refusal::new(
                ErrorCode::UnknownTopicOrPartition,
                format!("there is no topic {}", wanted.name),
            )),
            Some(topic) => {
                plan(image, topic, wanted, &mut placer, budget).map(|replicas| (topic, replicas))
            }
        };
        let outcome =
            match planned {
                Err(refusal) => refusal.into(),
                Ok((topic, replicas)) => {
                    let first = topic.partitions.len() as PartitionIndex;
                    let new = (first..).zip(replicas);
                    if !request.validate_only {
                        records.extend(new.map(|(index, replicas)| {
                            new_partition(image, topic.id, index, replicas)
                        }));
                    }
                    Outcome::ok()
                }
            };
        response.push(CreatePartitionsResult {
            name: wanted.name.clone(),
            outcome,
        });
    }
    Decision { records, response }
}

fn plan(
    image: &MetadataImage,
    topic: &TopicImage,
    wanted: &NewPartitions,
    placer: &mut Placer,
    budget: usize,
) -> Result<Vec<Vec<BrokerId>>, Refusal> {
    let present = topic.partitions.len();
    let refuse = |message: String| Err(Refusal::new(ErrorCode::InvalidPartitions, message));
    let count = match usize::try_from(wanted.count) {
        Ok(count) if count > present => count,
        Ok(count) if count == present => {
            return refuse(format!("Topic already has {present} partition(s)."));
        }
        _ => {
            return refuse(format!(
                "The topic {} currently has {present} partition(s); {} would not be an increase.",
                topic.name, wanted.count
            ));
        }
    };
    let new = count - present;
    check_budget(new, budget)?;
    let factor = topic
        .partition(0)
        .map_or(1, |partition| partition.replication_factor());
    match &wanted.assignments {
        None => {
            let mut trial = placer.clone();
            let replicas: Result<Vec<_>, Refusal> = (0..new).map(|_| trial.place(factor)).collect();
            let replicas = replicas?;
            *placer = trial;
            Ok(replicas)
        }
        Some(assignments) if assignments.len() != new => Err(Refusal::new(
            ErrorCode::InvalidReplicaAssignment,
            format!(
                "{new} partition(s) are to be added, but {} assignment(s) were given",
                assignments.len()
            ),
        )),
        Some(assignments) => {
            for assignment in assignments {
                check_assignment(image, assignment, factor)?;
            }
            Ok(assignments.clone())
        }
    }
}
