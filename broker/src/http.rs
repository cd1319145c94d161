//! The broker's HTTP listener: whether it lives, whether it serves, its numbers, and what controllers ask about partitions.
//! Law: reads only, but for what [`crate::salvage::http`] may delete; a scrape is cheap; there are no secrets here.

use std::sync::Weak;

use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::{Router, routing::get};
use kuorum_transport::{Accepting, http};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::context::Rooms;
use crate::metrics::partitions as partition_metrics;

/// As Prometheus asks for it.
const METRICS_CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// So many connections are open at once; the next wait. Controllers, Prometheus and people need few.
const MOST: usize = 256;

/// The rooms, as long as they stand: a slow reader must not keep the logs from being closed.
type Visit = State<Weak<Rooms>>;

/// Serves until `shutdown`.
pub async fn serve<L: Accepting>(socket: L, rooms: Weak<Rooms>, shutdown: CancellationToken) {
    let clock = match rooms.upgrade() {
        Some(rooms) => rooms.clock.clone(),
        None => return,
    };
    http::serve(socket, MOST, router(rooms), clock, shutdown).await;
}

/// The routes.
pub fn router(rooms: Weak<Rooms>) -> Router {
    Router::new()
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .route("/metrics/partitions", get(metrics_of_partitions))
        .route("/internal/v1/partitions", get(partitions))
        .route("/internal/v1/epochs", get(epochs))
        .merge(crate::salvage::http::routes())
        .with_state(rooms)
}

/// Said instead of an answer when the broker goes down.
fn going_down() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, "going down\n").into_response()
}

#[derive(Debug, Deserialize)]
struct ReadyQuery {
    verbose: Option<String>,
    exclude: Option<String>,
}

/// Ready when registered, in service, and following the metadata log. `?verbose` names each check, `?exclude=` leaves one out.
async fn ready(State(rooms): Visit, Query(query): Query<ReadyQuery>) -> Response {
    let Some(rooms) = rooms.upgrade() else {
        return going_down();
    };
    let phase = rooms.membership.phase();
    let checks = [
        ("registered", phase.epoch.is_some()),
        ("unfenced", phase.unfenced),
        (
            "metadata",
            phase
                .epoch
                .is_some_and(|epoch| rooms.metadata.offset() >= epoch.0),
        ),
    ];
    let excluded = query.exclude.as_deref().unwrap_or("");
    let is_excluded = |name: &str| excluded.split(',').any(|excluded| excluded == name);
    let is_ready = checks
        .iter()
        .all(|(name, holds)| *holds || is_excluded(name));
    let status = match is_ready {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    let mut text = String::new();
    if query.verbose.is_some() || !is_ready {
        for (name, holds) in checks {
            let mark = if holds { "+" } else { "-" };
            text.push_str(&format!("[{mark}] {name}\n"));
        }
    }
    text.push_str(if is_ready { "ready\n" } else { "not ready\n" });
    (status, text).into_response()
}

async fn metrics(State(rooms): Visit) -> Response {
    let Some(rooms) = rooms.upgrade() else {
        return going_down();
    };
    let text = rooms.metrics.scrape(&rooms);
    ([(header::CONTENT_TYPE, METRICS_CONTENT_TYPE)], text).into_response()
}

/// What would be too many series for every scrape: one set for each replica here, of one topic or of all.
async fn metrics_of_partitions(
    State(rooms): Visit,
    Query(query): Query<PartitionsQuery>,
) -> Response {
    let Some(rooms) = rooms.upgrade() else {
        return going_down();
    };
    let text = partition_metrics::scrape(&rooms, query.topic.as_deref());
    ([(header::CONTENT_TYPE, METRICS_CONTENT_TYPE)], text).into_response()
}

#[derive(Debug, Deserialize)]
struct PartitionsQuery {
    topic: Option<String>,
}

/// A partition as its leader sees it.
#[derive(Debug, Serialize)]
struct PartitionReport {
    topic: String,
    partition: i32,
    leader_epoch: i32,
    /// Where the log ended when this leader took over.
    leader_epoch_start_offset: Option<i64>,
    log_start_offset: i64,
    high_watermark: i64,
    last_stable_offset: i64,
    log_end_offset: i64,
    flushed_end_offset: i64,
    /// Bytes of its log here.
    size_bytes: u64,
    replicas: Vec<ReplicaReport>,
}

/// A follower as its leader sees it.
#[derive(Debug, Serialize)]
struct ReplicaReport {
    broker: i32,
    leo: Option<i64>,
    /// About how many bytes of the leader's log it lacks.
    bytes_behind: Option<u64>,
    last_fetch_ms_ago: Option<u64>,
    caught_up_ms_ago: Option<u64>,
}

/// The partitions this broker leads, of one topic or of all.
async fn partitions(State(rooms): Visit, Query(query): Query<PartitionsQuery>) -> Response {
    let Some(rooms) = rooms.upgrade() else {
        return going_down();
    };
    let now = rooms.clock.now();
    let me = rooms.membership.id.0;
    let mut reports: Vec<PartitionReport> = rooms
        .replicas
        .all()
        .iter()
        .filter(|hosted| {
            query
                .topic
                .as_deref()
                .is_none_or(|topic| topic == &*hosted.topic)
        })
        .filter_map(|hosted| {
            let (status, last_stable, epoch_start, size_bytes, behind) =
                rooms.replicas.with(hosted, |partition, _| {
                    let epoch_start = partition.leader()?.epoch_start();
                    let status = partition.status(now);
                    let log = partition.log();
                    let ends = status.followers.iter().map(|follower| follower.log_end);
                    let behind: Vec<Option<u64>> = ends
                        .map(|end| end.map(|end| log.bytes_after(end)))
                        .collect();
                    let last_stable = partition.last_stable_offset();
                    let size_bytes = log.size_bytes();
                    Some((status, last_stable, epoch_start, size_bytes, behind))
                })?;
            let mut replicas = vec![ReplicaReport {
                broker: me,
                leo: Some(status.log_end.0),
                bytes_behind: Some(0),
                last_fetch_ms_ago: Some(0),
                caught_up_ms_ago: Some(0),
            }];
            let followers = status.followers.iter().zip(behind);
            replicas.extend(followers.map(|(follower, bytes_behind)| ReplicaReport {
                broker: follower.broker.0,
                leo: follower.log_end.map(|end| end.0),
                bytes_behind,
                last_fetch_ms_ago: follower.last_fetch_ms_ago,
                caught_up_ms_ago: follower.caught_up_ms_ago,
            }));
            Some(PartitionReport {
                topic: hosted.topic.to_string(),
                partition: hosted.index,
                leader_epoch: status.leader_epoch.0,
                leader_epoch_start_offset: Some(epoch_start.0),
                log_start_offset: status.log_start.0,
                high_watermark: status.high_watermark.0,
                last_stable_offset: last_stable.0,
                log_end_offset: status.log_end.0,
                flushed_end_offset: status.flushed_end.0,
                size_bytes,
                replicas,
            })
        })
        .collect();
    reports.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
    Json(reports).into_response()
}

#[derive(Debug, Deserialize)]
struct EpochsQuery {
    topic: String,
    partition: i32,
}

/// Where the leader epochs of a partition begin.
#[derive(Debug, Serialize)]
struct EpochReport {
    leader_epoch: i32,
    log_end_offset: i64,
    /// Those that have records in the leader's log, oldest first.
    epochs: Vec<EpochStart>,
}

#[derive(Debug, Serialize)]
struct EpochStart {
    epoch: i32,
    start_offset: i64,
}

/// The leader epochs of one partition that this broker leads; 404 if it does not.
async fn epochs(State(rooms): Visit, Query(query): Query<EpochsQuery>) -> Response {
    let Some(rooms) = rooms.upgrade() else {
        return going_down();
    };
    let now = rooms.clock.now();
    let image = rooms.metadata.image();
    let hosted = image
        .topic(&query.topic)
        .and_then(|topic| rooms.replicas.get(topic.id, query.partition));
    let report = hosted.and_then(|hosted| {
        rooms.replicas.with(&hosted, |partition, _| {
            partition.is_leader().then(|| {
                let status = partition.status(now);
                EpochReport {
                    leader_epoch: status.leader_epoch.0,
                    log_end_offset: status.log_end.0,
                    epochs: partition
                        .epoch_starts()
                        .into_iter()
                        .map(|entry| EpochStart {
                            epoch: entry.epoch.0,
                            start_offset: entry.start.0,
                        })
                        .collect(),
                }
            })
        })
    });
    match report {
        Some(report) => Json(report).into_response(),
        None => (
            StatusCode::NOT_FOUND,
            "this broker does not lead the partition\n",
        )
            .into_response(),
    }
}
