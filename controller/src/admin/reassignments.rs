//! `GET|POST /reassignments`, `DELETE /reassignments/{topic}/{partition}`.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use kuorum_admin_api::{
    Page, PageQuery, PartitionAssignment, PlannedReassignment, Problem, Reassignment,
    ReassignmentPage, ReassignmentProgress, ReassignmentReport, ReassignmentRequest,
};
use kuorum_metadata::control::command::{Reassign, ReassignPartition};
use kuorum_metadata::control::{Command, CommandReply, reassignment};
use kuorum_metadata::record::ConfigResource;
use kuorum_metadata::{MetadataImage, PartitionImage, TopicImage};
use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::{BrokerId, PartitionIndex, TopicId};

use super::page::{number_key, page};
use super::problem::{Body, Path, Query, Refused};
use super::{Admin, mismatched};
use crate::fleet::Survey;

const PATH: &str = "/api/v1/reassignments";

/// What is on the move, by topic and partition, a page at a time; the leaders of that page are asked how far it is.
#[utoipa::path(get, operation_id = "listReassignments", tag = "reassignments", path = "/api/v1/reassignments", params(PageQuery), responses(
    (status = 200, body = ReassignmentPage), (status = 503, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn list(
    State(admin): State<Admin>,
    Query(query): Query<PageQuery>,
) -> Result<Json<ReassignmentPage>, Refused> {
    let image = admin.quorum.image();
    let moving = image.topics().flat_map(|topic| {
        let partitions = topic.partitions.iter();
        partitions
            .filter(|(_, partition)| partition.is_reassigning())
            .map(move |(index, _)| (topic, *index))
    });
    // No character of a name sorts before the one in between.
    let Page {
        items,
        next_page_token,
    } = page(&query, "reassignments", moving, |(topic, index)| {
        format!("{}\0{}", topic.name, number_key(*index))
    })?;
    let mut wanted: BTreeMap<TopicId, Vec<PartitionIndex>> = BTreeMap::new();
    for (topic, index) in &items {
        wanted.entry(topic.id).or_default().push(*index);
    }
    let surveys = wanted.iter().map(async |(id, indexes)| {
        let survey = admin.fleet.survey(&image, *id, indexes).await;
        (*id, survey)
    });
    let surveys: BTreeMap<TopicId, Survey> = futures_util::future::join_all(surveys)
        .await
        .into_iter()
        .collect();
    let mut unreachable_brokers: Vec<i32> = surveys
        .values()
        .flat_map(|survey| survey.unreachable.iter().map(|broker| broker.0))
        .collect();
    unreachable_brokers.sort_unstable();
    unreachable_brokers.dedup();
    Ok(Json(ReassignmentPage {
        items: items
            .into_iter()
            .filter_map(|(topic, index)| {
                let survey = surveys.get(&topic.id);
                Some(view(topic, index, topic.partition(index)?, survey))
            })
            .collect(),
        next_page_token,
        throttle: throttle_in_force(&image),
        unreachable_brokers,
    }))
}

/// Moves replicas, or says how it would. Refused as a whole if any of it cannot be.
#[utoipa::path(post, operation_id = "runReassignments", tag = "reassignments", path = "/api/v1/reassignments", request_body = ReassignmentRequest, responses(
    (status = 202, body = ReassignmentReport), (status = 200, body = ReassignmentReport, description = "With dry_run"),
    (status = 400, body = Problem, content_type = "application/problem+json"),
    (status = 404, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn run(
    State(admin): State<Admin>,
    Body(request): Body<ReassignmentRequest>,
) -> Result<Response, Refused> {
    let image = admin.quorum.image();
    let (wanted, named) = wanted(&image, &request)?;
    let command = Command::Reassign(Reassign {
        partitions: wanted.iter().map(asked).collect(),
        allow_replication_factor_change: request.allow_replication_factor_change,
        all_or_nothing: true,
        throttle: request.throttle,
        validate_only: request.dry_run,
    });
    let CommandReply::Reassign(results) = admin.decide(command).await? else {
        return Err(mismatched());
    };
    let mut failed = results
        .iter()
        .enumerate()
        .filter(|(_, result)| !result.outcome.is_ok())
        .peekable();
    if let Some((_, first)) = failed.peek() {
        let mut refused = Refused::outcome(&first.outcome).at(PATH);
        for (place, result) in failed {
            let message = result.outcome.message.clone();
            let message = message.unwrap_or_else(|| result.outcome.code().name().to_owned());
            refused = match message.split_once(": ") {
                Some(("throttle", detail)) => {
                    // Each of them says the same.
                    return Err(refused.field("/throttle", detail));
                }
                Some(("replicas", detail)) if named => {
                    refused.field(format!("/partitions/{place}/replicas"), detail)
                }
                _ if named => refused.field(format!("/partitions/{place}"), message),
                _ => refused,
            };
        }
        return Err(refused);
    }
    let report = ReassignmentReport {
        items: wanted
            .iter()
            .map(|wanted| planned(&image, wanted))
            .collect(),
        throttle: request.throttle,
        dry_run: request.dry_run,
    };
    let status = match request.dry_run {
        true => StatusCode::OK,
        false => StatusCode::ACCEPTED,
    };
    Ok((status, Json(report)).into_response())
}

/// Takes a running move back.
#[utoipa::path(delete, operation_id = "cancelReassignment", tag = "reassignments", path = "/api/v1/reassignments/{topic}/{partition}",
    params(("topic" = String, Path), ("partition" = i32, Path)), responses(
    (status = 204, description = "Cancelled"),
    (status = 400, body = Problem, content_type = "application/problem+json"),
    (status = 404, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn cancel(
    State(admin): State<Admin>,
    Path((topic, partition)): Path<(String, PartitionIndex)>,
) -> Result<StatusCode, Refused> {
    let path = format!("{PATH}/{topic}/{partition}");
    let command = Command::Reassign(Reassign {
        partitions: vec![ReassignPartition {
            topic,
            partition,
            replicas: None,
        }],
        ..Reassign::default()
    });
    let CommandReply::Reassign(mut results) = admin.decide(command).await? else {
        return Err(mismatched());
    };
    let result = results.pop().ok_or_else(mismatched)?;
    match result.outcome.is_ok() {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Refused::outcome(&result.outcome).at(&path)),
    }
}

/// What is asked for, partition by partition, and whether the request named them itself.
fn wanted(
    image: &MetadataImage,
    request: &ReassignmentRequest,
) -> Result<(Vec<PartitionAssignment>, bool), Refused> {
    let refuse = |field: &str, detail: &str| {
        Err(Refused::kafka(ErrorCode::InvalidRequest, detail)
            .in_field(field)
            .at(PATH))
    };
    match (&request.partitions, &request.topics, &request.brokers) {
        (Some(partitions), None, None) if !partitions.is_empty() => Ok((partitions.clone(), true)),
        (Some(_), None, None) => refuse("/partitions", "names no partition"),
        (Some(_), _, _) => refuse(
            "/partitions",
            "name either partitions with their replicas, or topics and brokers to plan for",
        ),
        (None, Some(topics), Some(brokers)) => {
            if topics.is_empty() {
                return refuse("/topics", "names no topic");
            }
            let brokers: Vec<BrokerId> = brokers.iter().copied().map(BrokerId).collect();
            let planned = reassignment::plan(image, topics, &brokers).map_err(|refusal| {
                let refused = Refused::kafka(refusal.code, &refusal.message).at(PATH);
                match refusal.message.split_once(": ") {
                    Some((field, detail)) => refused.field(format!("/{field}"), detail),
                    None => refused,
                }
            })?;
            // What is on its way there already is asked for again: its throttle may be another one.
            let moves = |one: &reassignment::Planned| {
                one.now != one.replicas || is_moving(image, &one.topic, one.partition)
            };
            let changed = planned.into_iter().filter(moves);
            let partitions = changed.map(|one| PartitionAssignment {
                topic: one.topic,
                partition: one.partition,
                replicas: numbers(&one.replicas),
            });
            Ok((partitions.collect(), false))
        }
        (None, Some(_), None) => refuse("/brokers", "the brokers to plan for are missing"),
        (None, None, Some(_)) => refuse("/topics", "the topics to plan for are missing"),
        (None, None, None) => refuse(
            "/partitions",
            "name partitions with their replicas, or topics and brokers to plan for",
        ),
    }
}

fn asked(wanted: &PartitionAssignment) -> ReassignPartition {
    ReassignPartition {
        topic: wanted.topic.clone(),
        partition: wanted.partition,
        replicas: Some(wanted.replicas.iter().copied().map(BrokerId).collect()),
    }
}

fn is_moving(image: &MetadataImage, topic: &str, index: PartitionIndex) -> bool {
    let topic = image.topic(topic);
    let partition = topic.and_then(|topic| topic.partition(index));
    partition.is_some_and(|partition| partition.is_reassigning())
}

fn planned(image: &MetadataImage, wanted: &PartitionAssignment) -> PlannedReassignment {
    let topic = image.topic(&wanted.topic);
    let partition = topic.and_then(|topic| topic.partition(wanted.partition));
    if let Some(partition) = partition
        && partition.is_reassigning()
        && numbers(&partition.target_replicas()) == wanted.replicas
    {
        return PlannedReassignment {
            topic: wanted.topic.clone(),
            partition: wanted.partition,
            before: numbers(&partition.original_replicas),
            replicas: wanted.replicas.clone(),
            adding: numbers(&partition.adding_replicas),
            removing: numbers(&partition.removing_replicas),
            under_way: true,
        };
    }
    let before = partition.map_or_else(Vec::new, |partition| numbers(&partition.replicas));
    let without = |all: &[i32], those: &[i32]| -> Vec<i32> {
        let all = all.iter().copied();
        all.filter(|id| !those.contains(id)).collect()
    };
    PlannedReassignment {
        topic: wanted.topic.clone(),
        partition: wanted.partition,
        adding: without(&wanted.replicas, &before),
        removing: without(&before, &wanted.replicas),
        replicas: wanted.replicas.clone(),
        before,
        under_way: false,
    }
}

fn throttle_in_force(image: &MetadataImage) -> Option<i64> {
    let shared = image.configs_of(&ConfigResource::ClusterDefault)?;
    shared.get(reassignment::LEADER_RATE)?.trim().parse().ok()
}

fn view(
    topic: &TopicImage,
    index: PartitionIndex,
    partition: &PartitionImage,
    survey: Option<&Survey>,
) -> Reassignment {
    let found = survey.and_then(|survey| survey.reports.get(&index));
    // What was remembered of a leader that is gone says nothing of how far anybody is now.
    let report = found.and_then(|(report, age)| age.is_none().then_some(report));
    let end = report.and_then(|report| report.log_end_offset);
    let progress = partition.adding_replicas.iter().map(|broker| {
        let seen = report.and_then(|report| {
            let mut replicas = report.replicas.iter();
            replicas.find(|seen| seen.broker == broker.0)
        });
        let log_end_offset = seen.and_then(|seen| seen.leo);
        ReassignmentProgress {
            broker: broker.0,
            in_sync: partition.isr.contains(broker),
            log_end_offset,
            lag: end
                .zip(log_end_offset)
                .map(|(end, leo)| end.saturating_sub(leo).max(0)),
            bytes_remaining: seen.and_then(|seen| seen.bytes_behind),
        }
    });
    Reassignment {
        topic: topic.name.clone(),
        partition: index,
        leader: partition.leader.map(|leader| leader.0),
        replicas: numbers(&partition.replicas),
        target: numbers(&partition.target_replicas()),
        original: numbers(&partition.original_replicas),
        adding: numbers(&partition.adding_replicas),
        removing: numbers(&partition.removing_replicas),
        isr: numbers(&partition.isr),
        size_bytes: report.and_then(|report| report.size_bytes),
        progress: progress.collect(),
    }
}

fn numbers(brokers: &[BrokerId]) -> Vec<i32> {
    brokers.iter().map(|broker| broker.0).collect()
}
