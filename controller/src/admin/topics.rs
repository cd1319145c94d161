//! `GET|POST /topics`, `GET|DELETE /topics/{t}`, `POST /topics/{t}/partitions`.

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use kuorum_admin_api::{
    AddPartitions, AddPartitionsReport, CreateTopic, Page, PageQuery, Problem, Topic,
};
use kuorum_metadata::config_def::nearest;
use kuorum_metadata::control::command::{
    CreatePartitions, CreateTopics, DeleteTopics, NewPartitions, NewTopic, TopicSelector,
};
use kuorum_metadata::control::{Command, CommandReply};
use kuorum_metadata::image::is_internal_topic;
use kuorum_metadata::{MetadataImage, TopicImage};
use kuorum_protocol::error_code::ErrorCode;

use super::page::page;
use super::problem::{Body, Path, Query, Refused};
use super::{Admin, mismatched};

/// Topics, by name. Nothing is asked of brokers.
#[utoipa::path(get, operation_id = "listTopics", tag = "topics", path = "/api/v1/topics", params(PageQuery), responses(
    (status = 200, body = Page<Topic>), (status = 503, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn list(
    State(admin): State<Admin>,
    Query(query): Query<PageQuery>,
) -> Result<Json<Page<Topic>>, Refused> {
    let image = admin.quorum.image();
    let topics = image.topics().map(|topic| view(&image, topic));
    page(&query, "topics", topics, |topic| topic.name.clone()).map(Json)
}

/// One topic.
#[utoipa::path(get, operation_id = "getTopic", tag = "topics", path = "/api/v1/topics/{topic}", params(("topic" = String, Path)), responses(
    (status = 200, body = Topic), (status = 404, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn get(
    State(admin): State<Admin>,
    Path(name): Path<String>,
) -> Result<Json<Topic>, Refused> {
    let image = admin.quorum.image();
    let topic = image.topic(&name).ok_or_else(|| unknown(&image, &name))?;
    Ok(Json(view(&image, topic)))
}

/// Creates a topic.
#[utoipa::path(post, operation_id = "createTopic", tag = "topics", path = "/api/v1/topics", request_body = CreateTopic, responses(
    (status = 201, body = Topic), (status = 200, body = Topic, description = "With dry_run"),
    (status = 400, body = Problem, content_type = "application/problem+json"),
    (status = 409, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn create(
    State(admin): State<Admin>,
    Body(request): Body<CreateTopic>,
) -> Result<Response, Refused> {
    let path = "/api/v1/topics";
    // −1 is how the wire asks for a default; here a default is asked for by leaving the field out.
    if request.partitions.is_some_and(|count| count < 1) {
        return Err(Refused::kafka(
            ErrorCode::InvalidPartitions,
            "a topic has at least one partition",
        )
        .in_field("/partitions")
        .at(path));
    }
    if request.replication_factor.is_some_and(|count| count < 1) {
        return Err(Refused::kafka(
            ErrorCode::InvalidReplicationFactor,
            "a partition has at least one replica",
        )
        .in_field("/replication_factor")
        .at(path));
    }
    let keys: Vec<String> = request.configs.keys().cloned().collect();
    let command = Command::CreateTopics(CreateTopics {
        topics: vec![NewTopic {
            name: request.name.clone(),
            num_partitions: request.partitions.unwrap_or(-1),
            replication_factor: request.replication_factor.unwrap_or(-1),
            assignments: Vec::new(),
            configs: request
                .configs
                .into_iter()
                .map(|(key, value)| (key, Some(value)))
                .collect(),
        }],
        validate_only: request.dry_run,
    });
    let CommandReply::CreateTopics(mut results) = admin.decide(command).await? else {
        return Err(mismatched());
    };
    let result = results.pop().ok_or_else(mismatched)?;
    if !result.outcome.is_ok() {
        let refused = Refused::outcome(&result.outcome).at(path);
        let detail = result.outcome.message.unwrap_or_default();
        let pointer = match refused.kafka_code() {
            Some(ErrorCode::InvalidTopicException | ErrorCode::TopicAlreadyExists) => {
                Some("/name".to_owned())
            }
            Some(ErrorCode::InvalidPartitions | ErrorCode::PolicyViolation) => {
                Some("/partitions".to_owned())
            }
            Some(ErrorCode::InvalidReplicationFactor) => Some("/replication_factor".to_owned()),
            Some(ErrorCode::InvalidConfig) => Some(config_pointer("/configs", &keys, &detail)),
            _ => None,
        };
        return Err(match pointer {
            Some(pointer) => refused.in_field(pointer),
            None => refused,
        });
    }
    if request.dry_run {
        let partitions = usize::try_from(result.num_partitions).unwrap_or(0);
        let topic = Topic {
            name: result.name,
            topic_id: result.topic_id.to_string(),
            partitions,
            replication_factor: usize::try_from(result.replication_factor).unwrap_or(0),
            most_replicas: None,
            fewest_replicas: None,
            internal: is_internal_topic(&request.name),
            leaderless: 0,
            under_replicated: 0,
            under_min_isr: 0,
            reassigning: 0,
        };
        return Ok(Json(topic).into_response());
    }
    let image = admin.quorum.image();
    let topic = image
        .topic(&request.name)
        .ok_or_else(|| unknown(&image, &request.name))?;
    let location = format!("/api/v1/topics/{}", topic.name);
    Ok((
        StatusCode::CREATED,
        [(header::LOCATION, location)],
        Json(view(&image, topic)),
    )
        .into_response())
}

/// Deletes a topic and everything in it.
#[utoipa::path(delete, operation_id = "deleteTopic", tag = "topics", path = "/api/v1/topics/{topic}", params(("topic" = String, Path)), responses(
    (status = 204, description = "Deleted"),
    (status = 404, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn delete(
    State(admin): State<Admin>,
    Path(name): Path<String>,
) -> Result<StatusCode, Refused> {
    let path = format!("/api/v1/topics/{name}");
    let command = Command::DeleteTopics(DeleteTopics {
        topics: vec![TopicSelector::Name(name.clone())],
    });
    let CommandReply::DeleteTopics(mut results) = admin.decide(command).await? else {
        return Err(mismatched());
    };
    let result = results.pop().ok_or_else(mismatched)?;
    if result.outcome.is_ok() {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(Refused::outcome(&result.outcome).at(&path))
    }
}

/// Adds partitions. Keys move to other partitions, so the topic's name must be repeated in `confirm`.
#[utoipa::path(post, operation_id = "addPartitions", tag = "topics", path = "/api/v1/topics/{topic}/partitions", params(("topic" = String, Path)),
    request_body = AddPartitions, responses((status = 200, body = AddPartitionsReport),
    (status = 400, body = Problem, content_type = "application/problem+json"),
    (status = 404, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn add_partitions(
    State(admin): State<Admin>,
    Path(name): Path<String>,
    Body(request): Body<AddPartitions>,
) -> Result<Json<AddPartitionsReport>, Refused> {
    let path = format!("/api/v1/topics/{name}/partitions");
    let image = admin.quorum.image();
    let topic = image
        .topic(&name)
        .ok_or_else(|| unknown(&image, &name).at(&path))?;
    let before = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
    let command = |validate_only| {
        Command::CreatePartitions(CreatePartitions {
            topics: vec![NewPartitions {
                name: name.clone(),
                count: request.count,
                assignments: None,
            }],
            validate_only,
        })
    };
    let run = async |validate_only| -> Result<(), Refused> {
        let CommandReply::CreatePartitions(mut results) =
            admin.decide(command(validate_only)).await?
        else {
            return Err(mismatched());
        };
        let result = results.pop().ok_or_else(mismatched)?;
        if result.outcome.is_ok() {
            return Ok(());
        }
        let refused = Refused::outcome(&result.outcome).at(&path);
        Err(match refused.kafka_code() {
            Some(ErrorCode::InvalidPartitions | ErrorCode::PolicyViolation) => {
                refused.in_field("/count")
            }
            _ => refused,
        })
    };
    // What cannot be done is said before anybody is asked to confirm it.
    run(true).await?;
    let report = AddPartitionsReport {
        topic: name.clone(),
        partitions_before: before,
        partitions_after: request.count,
        keys_moved: keys_moved(before, request.count),
        dry_run: request.dry_run,
    };
    if request.dry_run {
        return Ok(Json(report));
    }
    if request.confirm.as_deref() != Some(name.as_str()) {
        return Err(Refused::new(
            StatusCode::BAD_REQUEST,
            "CONFIRMATION_REQUIRED",
            format!(
                "{:.0} % of all keys will go to another partition than before and lose their order with earlier records: repeat the topic's name in confirm",
                report.keys_moved * 100.0
            ),
        )
        .field("/confirm", format!("must be {name:?}"))
        .at(&path));
    }
    run(false).await?;
    Ok(Json(report))
}

/// The share of keys whose hash modulo `after` is not their hash modulo `before`.
///
/// Of every lcm(before, after) hashes in a row, exactly the first `before` keep their partition.
fn keys_moved(before: i32, after: i32) -> f64 {
    if before < 1 || after <= before {
        return 0.0;
    }
    let (mut a, mut b) = (f64::from(before), f64::from(after));
    while b > 0.0 {
        (a, b) = (b, a % b);
    }
    // before / lcm = gcd / after.
    1.0 - a / f64::from(after)
}

/// The key at fault inside a map of configuration values, as far as the sentence names one.
pub(super) fn config_pointer(map: &str, keys: &[String], sentence: &str) -> String {
    let named = keys
        .iter()
        .filter(|key| sentence.contains(key.as_str()))
        .max_by_key(|key| key.len());
    match named.or(keys.first().filter(|_| keys.len() == 1)) {
        Some(key) => format!("{map}/{}", key.replace('~', "~0").replace('/', "~1")),
        None => map.to_owned(),
    }
}

/// Among how many topics the one that was meant is looked for.
const LIKELY: usize = 1_000;

/// The refusal of a topic that does not exist, with the one that was probably meant.
pub(super) fn unknown(image: &MetadataImage, name: &str) -> Refused {
    let topics = image.topics().take(LIKELY);
    let meant = match nearest(name, topics.map(|topic| topic.name.as_str())) {
        Some(known) => format!("; did you mean {known}?"),
        None => String::new(),
    };
    Refused::kafka(
        ErrorCode::UnknownTopicOrPartition,
        format!("there is no topic {name:?}{meant}"),
    )
    .at(&format!("/api/v1/topics/{name}"))
}

fn view(image: &MetadataImage, topic: &TopicImage) -> Topic {
    let min_isr = image.min_insync_replicas(&topic.name);
    let count = |wanted: &dyn Fn(&kuorum_metadata::PartitionImage) -> bool| {
        topic
            .partitions
            .values()
            .filter(|partition| wanted(partition))
            .count()
    };
    let factors = || {
        let partitions = topic.partitions.values();
        partitions.map(|partition| partition.replication_factor())
    };
    let (fewest, most) = (factors().min(), factors().max());
    let differ = fewest != most;
    Topic {
        name: topic.name.clone(),
        topic_id: topic.id.to_string(),
        partitions: topic.partitions.len(),
        replication_factor: topic
            .partition(0)
            .map_or(0, |partition| partition.replication_factor()),
        most_replicas: most.filter(|_| differ),
        fewest_replicas: fewest.filter(|_| differ),
        internal: is_internal_topic(&topic.name),
        leaderless: count(&|partition| partition.leader.is_none()),
        under_replicated: count(&|partition| partition.isr.len() < partition.replication_factor()),
        under_min_isr: count(&|partition| {
            partition.isr.len() < min_isr.min(partition.replication_factor())
        }),
        reassigning: count(&|partition| partition.is_reassigning()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_keys_that_move() {
        for (before, after) in [
            (1, 2),
            (2, 4),
            (3, 4),
            (4, 6),
            (3, 9),
            (12, 13),
            (5, 5),
            (5, 3),
        ] {
            let hashes = 0..before * after;
            let moved = hashes
                .clone()
                .filter(|hash| hash % before != hash % after)
                .count();
            let share = if after > before {
                moved as f64 / f64::from(before * after)
            } else {
                0.0
            };
            assert!(
                (keys_moved(before, after) - share).abs() < 1e-9,
                "{before} to {after}"
            );
        }
    }
}
