//! `GET /topics/{t}/partitions`, `GET /topics/{t}/partitions/{p}`: what the metadata says, and what the leaders say.

use axum::Json;
use axum::extract::State;
use kuorum_admin_api::{Page, PageQuery, Partition, PartitionPage, Problem, Replica, ReplicaState};
use kuorum_metadata::{MetadataImage, PartitionImage, TopicImage};
use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::{BrokerId, PartitionIndex};

use super::Admin;
use super::page::{number_key, page};
use super::problem::{Path, Query, Refused};
use super::topics::unknown;
use crate::fleet::{PartitionReport, Survey};

/// A topic's partitions, a page at a time; the leaders of that page are asked.
#[utoipa::path(get, operation_id = "listPartitions", tag = "partitions", path = "/api/v1/topics/{topic}/partitions", params(("topic" = String, Path), PageQuery), responses(
    (status = 200, body = PartitionPage), (status = 404, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn list(
    State(admin): State<Admin>,
    Path(name): Path<String>,
    Query(query): Query<PageQuery>,
) -> Result<Json<PartitionPage>, Refused> {
    let image = admin.quorum.image();
    let topic = image.topic(&name).ok_or_else(|| unknown(&image, &name))?;
    let list = format!("topics/{name}/partitions");
    let Page {
        items: indexes,
        next_page_token,
    } = page(&query, &list, topic.partitions.keys().copied(), |index| {
        number_key(*index)
    })?;
    let survey = admin.fleet.survey(&image, topic.id, &indexes).await;
    Ok(Json(PartitionPage {
        items: indexes
            .into_iter()
            .filter_map(|index| Some(view(&image, topic, index, topic.partition(index)?, &survey)))
            .collect(),
        next_page_token,
        unreachable_brokers: unreachable(&survey),
    }))
}

/// One partition, as a page of one.
#[utoipa::path(get, operation_id = "getPartition", tag = "partitions", path = "/api/v1/topics/{topic}/partitions/{partition}",
    params(("topic" = String, Path), ("partition" = i32, Path)), responses(
    (status = 200, body = PartitionPage), (status = 404, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn get(
    State(admin): State<Admin>,
    Path((name, index)): Path<(String, PartitionIndex)>,
) -> Result<Json<PartitionPage>, Refused> {
    let image = admin.quorum.image();
    let topic = image.topic(&name).ok_or_else(|| unknown(&image, &name))?;
    let partition = topic.partition(index).ok_or_else(|| {
        Refused::kafka(
            ErrorCode::UnknownTopicOrPartition,
            format!("topic {name:?} has no partition {index}"),
        )
        .at(&format!("/api/v1/topics/{name}/partitions/{index}"))
    })?;
    let survey = admin.fleet.survey(&image, topic.id, &[index]).await;
    Ok(Json(PartitionPage {
        items: vec![view(&image, topic, index, partition, &survey)],
        next_page_token: None,
        unreachable_brokers: unreachable(&survey),
    }))
}

fn unreachable(survey: &Survey) -> Vec<i32> {
    survey.unreachable.iter().map(|broker| broker.0).collect()
}

fn view(
    image: &MetadataImage,
    topic: &TopicImage,
    index: PartitionIndex,
    partition: &PartitionImage,
    survey: &Survey,
) -> Partition {
    let found = survey.reports.get(&index);
    let report = found.map(|(report, _)| report);
    let age = found.and_then(|(_, age)| *age);
    let ids = |brokers: &[BrokerId]| brokers.iter().map(|broker| broker.0).collect::<Vec<_>>();
    Partition {
        topic: topic.name.clone(),
        partition: index,
        leader: partition.leader.map(|leader| leader.0),
        leader_epoch: partition.leader_epoch.0,
        partition_epoch: partition.partition_epoch.0,
        replicas: ids(&partition.replicas),
        adding_replicas: ids(&partition.adding_replicas),
        removing_replicas: ids(&partition.removing_replicas),
        isr: ids(&partition.isr),
        osr: partition
            .replicas
            .iter()
            .filter(|replica| !partition.isr.contains(replica))
            .map(|replica| replica.0)
            .collect(),
        elr: ids(&partition.elr),
        last_known_elr: ids(&partition.last_known_elr),
        log_start_offset: report.and_then(|report| report.log_start_offset),
        high_watermark: report.and_then(|report| report.high_watermark),
        last_stable_offset: report.and_then(|report| report.last_stable_offset),
        log_end_offset: report.and_then(|report| report.log_end_offset),
        stale: age.is_some(),
        known_ms_ago: age.map(|age| age.as_millis() as u64),
        replica_states: partition
            .replicas
            .iter()
            .map(|replica| replica_view(image, partition, *replica, report))
            .collect(),
    }
}

fn replica_view(
    image: &MetadataImage,
    partition: &PartitionImage,
    broker: BrokerId,
    report: Option<&PartitionReport>,
) -> Replica {
    let leads = partition.leader == Some(broker);
    let state = if leads {
        ReplicaState::Leader
    } else if image.broker(broker).is_none_or(|broker| broker.fenced) {
        ReplicaState::Offline
    } else if partition.isr.contains(&broker) {
        ReplicaState::InSync
    } else {
        ReplicaState::OutOfSync
    };
    let follower =
        report.and_then(|report| report.replicas.iter().find(|seen| seen.broker == broker.0));
    let end = report.and_then(|report| report.log_end_offset);
    let leo = if leads {
        end
    } else {
        follower.and_then(|follower| follower.leo)
    };
    Replica {
        broker: broker.0,
        state,
        leo,
        lag: end
            .zip(leo)
            .map(|(end, leo)| end.saturating_sub(leo).max(0)),
        last_fetch_ms_ago: follower.and_then(|follower| follower.last_fetch_ms_ago),
        caught_up_ms_ago: if leads {
            report.map(|_| 0)
        } else {
            follower.and_then(|follower| follower.caught_up_ms_ago)
        },
    }
}
