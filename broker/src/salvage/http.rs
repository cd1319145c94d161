//! What controllers ask this broker about salvaged items, on its HTTP listener.
//! Law: answers are bounded and readers few; contents are read off the async threads. The one change that can be asked for
//! is the deletion of an item, by a caller that names this cluster.

use std::io;
use std::ops::ControlFlow;
use std::sync::{Arc, Weak};

use axum::Router;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use bytes::Bytes;
use kuorum_metadata::rpc::HEADER_CLUSTER_ID;
use kuorum_protocol::record::Record;
use kuorum_protocol::{ProducerId, TopicId};
use kuorum_storage::salvage::{Began, ItemId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Entry, batch_from};
use crate::context::Rooms;

/// Items in one answer.
const ITEMS: usize = 1_000;
/// Records in one answer.
const RECORDS: usize = 1_000;
/// Bytes of keys and values in one answer, about.
const RECORD_BYTES: usize = 2 * 1024 * 1024;
/// Raw bytes in one answer.
const RAW_BYTES: usize = 4 * 1024 * 1024;

type Visit = State<Weak<Rooms>>;

/// The routes.
pub fn routes() -> Router<Weak<Rooms>> {
    Router::new()
        .route("/internal/v1/salvage", get(list))
        .route("/internal/v1/salvage/{id}", get(show).delete(delete))
        .route("/internal/v1/salvage/{id}/records", get(records))
        .route("/internal/v1/salvage/{id}/segment", get(segment))
        .route("/internal/v1/salvage/{id}/batch", get(batch))
        .route("/internal/v1/producers/{producer_id}", get(producer))
}

fn going_down() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, "going down\n").into_response()
}

fn unknown() -> Response {
    (StatusCode::NOT_FOUND, "no such item\n").into_response()
}

fn failed(error: &io::Error) -> Response {
    (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response()
}

/// An item as this broker has it.
#[derive(Debug, Serialize)]
struct Report {
    id: String,
    topic: String,
    topic_id: String,
    partition: i32,
    unclean_epoch: i32,
    first_offset: i64,
    end_offset: i64,
    records: u64,
    bytes: u64,
    first_timestamp: Option<i64>,
    last_timestamp: Option<i64>,
    epochs: Vec<Began>,
    /// Transactions whose records do not count.
    skipped_transactions: usize,
    complete: bool,
    damage: Option<String>,
    reason: String,
    created_at: i64,
}

impl Report {
    fn of(entry: &Entry) -> Self {
        let (item, summary) = (entry.item(), &entry.summary);
        Self {
            id: item.id().to_string(),
            topic: item.topic.clone(),
            topic_id: item.topic_id.to_string(),
            partition: item.partition,
            unclean_epoch: item.unclean_epoch.0,
            first_offset: item.first_offset.0,
            end_offset: item.end_offset.0,
            records: summary.records,
            bytes: item.bytes,
            first_timestamp: summary.first_timestamp.map(|at| at.0),
            last_timestamp: summary.last_timestamp.map(|at| at.0),
            epochs: item.epochs.clone(),
            skipped_transactions: summary.skipped.len(),
            complete: item.complete,
            damage: summary
                .damage
                .as_ref()
                .map(|damage| format!("{} at {}: {}", damage.part, damage.position, damage.reason)),
            reason: item.cause.clone(),
            created_at: item.created_at.0,
        }
    }
}

#[derive(Debug, Deserialize)]
struct ListQuery {
    /// The id before the first wanted.
    #[serde(default)]
    after: String,
    limit: Option<usize>,
}

async fn list(State(rooms): Visit, Query(query): Query<ListQuery>) -> Response {
    let Some(rooms) = rooms.upgrade() else {
        return going_down();
    };
    let limit = query.limit.unwrap_or(ITEMS).min(ITEMS);
    let entries = rooms.salvage.list(&query.after, limit);
    let items: Vec<Report> = entries.iter().map(Report::of).collect();
    Json(json!({ "items": items })).into_response()
}

/// The item a path names.
fn find(rooms: &Rooms, id: &str) -> Option<Entry> {
    rooms.salvage.get(&id.parse::<ItemId>().ok()?)
}

async fn show(State(rooms): Visit, Path(id): Path<String>) -> Response {
    let Some(rooms) = rooms.upgrade() else {
        return going_down();
    };
    match find(&rooms, &id) {
        Some(entry) => Json(Report::of(&entry)).into_response(),
        None => unknown(),
    }
}

async fn delete(State(rooms): Visit, Path(id): Path<String>, headers: HeaderMap) -> Response {
    let Some(rooms) = rooms.upgrade() else {
        return going_down();
    };
    let cluster = headers
        .get(HEADER_CLUSTER_ID)
        .and_then(|id| id.to_str().ok());
    if cluster != Some(rooms.config.cluster_id.as_str()) {
        return (StatusCode::FORBIDDEN, "not of this cluster\n").into_response();
    }
    let Ok(id) = id.parse::<ItemId>() else {
        return unknown();
    };
    let salvage = Arc::clone(&rooms.salvage);
    match off_thread(move || salvage.delete(&id)).await {
        Ok(true) => StatusCode::NO_CONTENT.into_response(),
        Ok(false) => unknown(),
        Err(error) => failed(&error),
    }
}

/// Runs what reads or writes files.
async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error.to_string())))
}

/// Reads contents when it is this reader's turn.
async fn read<T: Send + 'static>(
    rooms: &Rooms,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let _turn = rooms
        .salvage
        .readers
        .acquire()
        .await
        .map_err(|error| io::Error::other(error.to_string()))?;
    off_thread(work).await
}

#[derive(Debug, Deserialize)]
struct RecordsQuery {
    /// The index of the first wanted.
    #[serde(default)]
    from: u64,
    limit: Option<usize>,
}

async fn records(
    State(rooms): Visit,
    Path(id): Path<String>,
    Query(query): Query<RecordsQuery>,
) -> Response {
    let Some(rooms) = rooms.upgrade() else {
        return going_down();
    };
    let Some(entry) = find(&rooms, &id) else {
        return unknown();
    };
    let limit = query.limit.unwrap_or(RECORDS).clamp(1, RECORDS);
    let page = read(&rooms, move || {
        let (mut items, mut bytes) = (Vec::new(), 0);
        entry.contents.visit(&entry.summary, query.from, |visit| {
            bytes += visit.record.key.as_ref().map_or(0, Bytes::len)
                + visit.record.value.as_ref().map_or(0, Bytes::len);
            items.push(record_json(
                visit.index,
                visit.leader_epoch.0,
                &visit.record,
            ));
            match items.len() < limit && bytes < RECORD_BYTES {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        })?;
        let next = query.from + items.len() as u64;
        let next = (!items.is_empty() && next < entry.summary.records).then_some(next);
        Ok(json!({ "items": items, "next": next }))
    });
    match page.await {
        Ok(page) => Json(page).into_response(),
        Err(error) => failed(&error),
    }
}

fn record_json(index: u64, leader_epoch: i32, record: &Record) -> Value {
    let mut object = Map::new();
    object.insert("index".to_owned(), json!(index));
    object.insert("offset".to_owned(), json!(record.offset));
    object.insert("leader_epoch".to_owned(), json!(leader_epoch));
    object.insert("timestamp".to_owned(), json!(record.timestamp));
    insert_bytes(&mut object, "key", record.key.as_deref());
    insert_bytes(&mut object, "value", record.value.as_deref());
    let headers: Vec<Value> = record
        .headers
        .iter()
        .map(|(name, value)| {
            let mut header = Map::new();
            header.insert("name".to_owned(), json!(name));
            insert_bytes(&mut header, "value", value.as_deref());
            Value::Object(header)
        })
        .collect();
    object.insert("headers".to_owned(), Value::Array(headers));
    Value::Object(object)
}

/// Adds bytes as text under `name`, or in hex under `name_hex`.
fn insert_bytes(object: &mut Map<String, Value>, name: &str, bytes: Option<&[u8]>) {
    match bytes.map(std::str::from_utf8) {
        None => object.insert(name.to_owned(), Value::Null),
        Some(Ok(text)) => object.insert(name.to_owned(), json!(text)),
        Some(Err(_)) => {
            let bytes = bytes.unwrap_or_default().iter();
            let hex: String = bytes.map(|byte| format!("{byte:02x}")).collect();
            object.insert(format!("{name}_hex"), Value::String(hex))
        }
    };
}

#[derive(Debug, Deserialize)]
struct SegmentQuery {
    /// The byte to begin at.
    #[serde(default)]
    from: u64,
    max_bytes: Option<usize>,
}

async fn segment(
    State(rooms): Visit,
    Path(id): Path<String>,
    Query(query): Query<SegmentQuery>,
) -> Response {
    let Some(rooms) = rooms.upgrade() else {
        return going_down();
    };
    let Some(entry) = find(&rooms, &id) else {
        return unknown();
    };
    let max_bytes = query.max_bytes.unwrap_or(RAW_BYTES).min(RAW_BYTES);
    let bytes = read(&rooms, move || entry.contents.raw(query.from, max_bytes));
    binary(bytes.await)
}

fn binary(bytes: io::Result<Bytes>) -> Response {
    match bytes {
        Ok(bytes) => ([(header::CONTENT_TYPE, "application/octet-stream")], bytes).into_response(),
        Err(error) => failed(&error),
    }
}

#[derive(Debug, Deserialize)]
struct BatchQuery {
    /// The index of the first record wanted.
    from: u64,
    max_bytes: usize,
    producer_id: i64,
}

/// Records as a producer's batch whose sequence is the first one's index; empty at the end.
async fn batch(
    State(rooms): Visit,
    Path(id): Path<String>,
    Query(query): Query<BatchQuery>,
) -> Response {
    let Some(rooms) = rooms.upgrade() else {
        return going_down();
    };
    let Some(entry) = find(&rooms, &id) else {
        return unknown();
    };
    let batch = read(&rooms, move || {
        let max_bytes = query.max_bytes.min(RAW_BYTES);
        let producer_id = ProducerId(query.producer_id);
        let batch = batch_from(&entry, query.from, max_bytes, producer_id)?;
        Ok(batch.unwrap_or_default())
    });
    binary(batch.await)
}

#[derive(Debug, Deserialize)]
struct ProducerQuery {
    topic_id: TopicId,
    partition: i32,
}

/// What the leader of a partition knows of an idempotent producer.
async fn producer(
    State(rooms): Visit,
    Path(producer_id): Path<i64>,
    Query(query): Query<ProducerQuery>,
) -> Response {
    let Some(rooms) = rooms.upgrade() else {
        return going_down();
    };
    let Some(hosted) = rooms.replicas.get(query.topic_id, query.partition) else {
        return (StatusCode::NOT_FOUND, "no such replica\n").into_response();
    };
    let report = rooms.replicas.with(&hosted, |partition, _| {
        if !partition.is_leader() {
            return None;
        }
        let producer = partition.log().producers().get(ProducerId(producer_id));
        let last = producer.and_then(|producer| producer.batches.back());
        Some(json!({
            "last_sequence": last.map(|batch| batch.last_sequence),
            "last_offset": last.map(|batch| batch.last_offset),
            "high_watermark": partition.high_watermark(),
        }))
    });
    match report {
        Some(report) => Json(report).into_response(),
        None => (StatusCode::CONFLICT, "not the leader\n").into_response(),
    }
}
