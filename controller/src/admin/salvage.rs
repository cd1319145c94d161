//! `GET /salvage`, `/salvage/{id}`, its records and its raw batches; `POST /salvage/{id}/replay`; `DELETE`.
//! Law: what is asked of brokers is bounded in time, and the answer says who did not answer. A replay that is done is not
//! done again: whoever asks gets the first one's result.

use std::collections::HashMap;
use std::time::Duration;

use axum::Json;
use axum::body::Body as Content;
use axum::extract::{FromRequest, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use kuorum_admin_api::{
    MAX_PAGE_SIZE, PageQuery, Problem, ReplaySalvage, ReplayState, SalvageDeleted, SalvageDetail,
    SalvageItem, SalvagePage, SalvageRecords, SalvageReplay,
};
use kuorum_metadata::events::EventKind;
use kuorum_metadata::image::SalvageReplayImage;
use kuorum_metadata::{MetadataImage, TopicImage};
use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::{BrokerId, PartitionIndex};
use kuorum_storage::salvage::ItemId;
use serde::Deserialize;

use super::Admin;
use super::page::page;
use super::problem::{Body, Path, Query, Refused};
use crate::fleet::Held;
use crate::replay::Progress;

/// How long a request for a replay waits for its end.
const REPLAY_WAIT: Duration = Duration::from_secs(10);
/// Raw bytes asked of a broker at once.
const CHUNK: usize = 4 * 1024 * 1024;

/// Salvaged items, by id. Every broker is asked for a page of its own.
#[utoipa::path(get, operation_id = "listSalvage", tag = "salvage", path = "/api/v1/salvage", params(PageQuery), responses(
    (status = 200, body = SalvagePage), (status = 503, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn list(
    State(admin): State<Admin>,
    Query(query): Query<PageQuery>,
) -> Result<Json<SalvagePage>, Refused> {
    let image = admin.quorum.image();
    // The token and the size are judged before anybody is asked.
    let after = super::page::after(&query, "salvage")?.unwrap_or_default();
    if after.chars().any(|letter| !is_plain(letter)) {
        return Err(Refused::new(
            StatusCode::BAD_REQUEST,
            "INVALID_PAGE_TOKEN",
            "page_token is not one that this list gave out",
        ));
    }
    let size = query.page_size.unwrap_or(MAX_PAGE_SIZE).min(MAX_PAGE_SIZE);
    // One more than the page shows whether there is another.
    let survey = admin.fleet.salvage(&image, &after, size + 1).await;
    let causes = causes(&admin);
    let items = survey
        .items
        .into_values()
        .map(|held| view(&admin, &image, &causes, held.item));
    let page = page(&query, "salvage", items, |item| item.id.clone())?;
    Ok(Json(SalvagePage {
        items: page.items,
        next_page_token: page.next_page_token,
        unreachable_brokers: survey.unreachable.iter().map(|broker| broker.0).collect(),
    }))
}

fn is_plain(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '-'
}

/// One salvaged item.
#[utoipa::path(get, operation_id = "getSalvage", tag = "salvage", path = "/api/v1/salvage/{id}", params(("id" = String, Path)), responses(
    (status = 200, body = SalvageDetail), (status = 404, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn get(
    State(admin): State<Admin>,
    Path(id): Path<String>,
) -> Result<Json<SalvageDetail>, Refused> {
    let image = admin.quorum.image();
    let path = format!("/api/v1/salvage/{id}");
    let (held, unreachable_brokers) = find(&admin, &image, &id, &path).await?;
    Ok(Json(SalvageDetail {
        item: view(&admin, &image, &causes(&admin), held.item),
        unreachable_brokers,
    }))
}

/// The item as whoever holds it says, and who did not answer.
async fn find(
    admin: &Admin,
    image: &MetadataImage,
    id: &str,
    path: &str,
) -> Result<(Held, Vec<i32>), Refused> {
    let parsed = parse(id, path)?;
    let mut survey = admin.fleet.salvaged(image, &parsed.to_string()).await;
    let unreachable: Vec<i32> = survey.unreachable.iter().map(|broker| broker.0).collect();
    match survey.items.remove(id) {
        Some(held) => Ok((held, unreachable)),
        None => Err(missing(id, path, &unreachable)),
    }
}

fn parse(id: &str, path: &str) -> Result<ItemId, Refused> {
    // What is no id names nothing.
    id.parse().map_err(|_| missing(id, path, &[]))
}

fn missing(id: &str, path: &str, unreachable: &[i32]) -> Refused {
    let mut detail = format!("there is no salvaged item {id:?}");
    if !unreachable.is_empty() {
        detail.push_str(&format!(
            " on the brokers that answered; broker {} did not",
            names(unreachable)
        ));
    }
    Refused::kafka(ErrorCode::ResourceNotFound, detail).at(path)
}

fn names(brokers: &[i32]) -> String {
    let names: Vec<String> = brokers.iter().map(ToString::to_string).collect();
    names.join(", ")
}

/// The event of each unclean election that is still remembered, by the topic's id, the partition and the leader epoch.
type Causes = HashMap<(String, PartitionIndex, i32), i64>;

fn causes(admin: &Admin) -> Causes {
    admin.quorum.published().with_history(|history| {
        let events = history.events().filter_map(|event| {
            let EventKind::UncleanElection { leader_epoch, .. } = &event.what else {
                return None;
            };
            let place = (
                event.topic_id?.to_string(),
                event.partition?,
                leader_epoch.0,
            );
            Some((place, event.id.0))
        });
        events.collect()
    })
}

fn view(admin: &Admin, image: &MetadataImage, causes: &Causes, item: SalvageItem) -> SalvageItem {
    let replays = image
        .salvage_replays(&item.id)
        .filter_map(|(target, replay)| {
            let topic = image.topic_by_id(target)?;
            let carried = admin.replays.carried(&item.id, target).unwrap_or(0);
            let reached = replay.acknowledged.max(carried);
            Some(report(&item.id, topic, &replay, reached))
        })
        .collect();
    let place = (item.topic_id.clone(), item.partition, item.unclean_epoch);
    SalvageItem {
        cause: causes.get(&place).copied(),
        replays,
        ..item
    }
}

fn report(
    id: &str,
    target: &TopicImage,
    replay: &SalvageReplayImage,
    reached: u64,
) -> SalvageReplay {
    let done = replay.replayed;
    SalvageReplay {
        id: id.to_owned(),
        target: target.name.clone(),
        partition: replay.partition,
        state: match done {
            Some(_) => ReplayState::Done,
            None if replay.stopped => ReplayState::Stopped,
            None => ReplayState::Running,
        },
        replayed: done.map_or(reached, |done| done.records),
        producer_id: replay.producer_id.0,
        finished_at: done.map(|done| done.at.0),
    }
}

/// The records that count, decoded, a page at a time.
#[utoipa::path(get, operation_id = "getSalvageRecords", tag = "salvage", path = "/api/v1/salvage/{id}/records", params(("id" = String, Path), PageQuery), responses(
    (status = 200, body = SalvageRecords), (status = 404, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn records(
    State(admin): State<Admin>,
    Path(id): Path<String>,
    Query(query): Query<PageQuery>,
) -> Result<Json<SalvageRecords>, Refused> {
    let path = format!("/api/v1/salvage/{id}/records");
    let list = format!("salvage/{id}/records");
    let image = admin.quorum.image();
    let from = match super::page::after(&query, &list)? {
        None => 0,
        Some(next) => next.parse().map_err(|_| {
            Refused::new(
                StatusCode::BAD_REQUEST,
                "INVALID_PAGE_TOKEN",
                "page_token is not one that this list gave out",
            )
            .at(&path)
        })?,
    };
    let (held, _) = find(&admin, &image, &id, &path).await?;
    let limit = query.page_size.unwrap_or(MAX_PAGE_SIZE);
    let records = admin
        .fleet
        .salvaged_records(&image, &held, from, limit)
        .await;
    let records = records.ok_or_else(|| no_holder(&held).at(&path))?;
    Ok(Json(SalvageRecords {
        items: records.items,
        next_page_token: records
            .next
            .map(|next| super::page::token(&list, &next.to_string())),
    }))
}

fn no_holder(held: &Held) -> Refused {
    let holders: Vec<i32> = held.holders.iter().map(|BrokerId(id)| *id).collect();
    Refused::kafka(
        ErrorCode::BrokerNotAvailable,
        format!(
            "broker {} holds the item and cannot read it now",
            names(&holders)
        ),
    )
}

/// Which part of the raw batches.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
pub(super) struct SegmentQuery {
    /// The byte to begin at.
    #[serde(default)]
    from: u64,
    /// How many bytes at most; all that follow when left out.
    max_bytes: Option<u64>,
}

/// The raw batches, as they lay in the log: a segment that tools for Kafka's logs can read.
#[utoipa::path(get, operation_id = "getSalvageSegment", tag = "salvage", path = "/api/v1/salvage/{id}/segment", params(("id" = String, Path), SegmentQuery), responses(
    (status = 200, description = "Record batches", content_type = "application/octet-stream"),
    (status = 404, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn segment(
    State(admin): State<Admin>,
    Path(id): Path<String>,
    Query(query): Query<SegmentQuery>,
) -> Result<Response, Refused> {
    let path = format!("/api/v1/salvage/{id}/segment");
    let image = admin.quorum.image();
    let (held, _) = find(&admin, &image, &id, &path).await?;
    let end = query
        .max_bytes
        .map_or(held.item.bytes, |most| query.from.saturating_add(most))
        .min(held.item.bytes);
    let name = format!("{:020}.log", held.item.first_offset);
    let bytes = async_stream::stream! {
        let mut at = query.from;
        while at < end {
            let wanted = usize::try_from(end - at).unwrap_or(CHUNK).min(CHUNK);
            match admin.fleet.salvaged_bytes(&image, &held, at, wanted).await {
                Some(chunk) if !chunk.is_empty() => {
                    at += chunk.len() as u64;
                    yield Ok(chunk);
                }
                // The connection breaks: half a segment is not to be taken for a whole one.
                _ => {
                    yield Err(std::io::Error::other("the item cannot be read any more"));
                    return;
                }
            }
        }
    };
    Ok((
        [
            (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
            (
                header::CONTENT_DISPOSITION,
                format!("attachment; filename=\"{name}\""),
            ),
        ],
        Content::from_stream(bytes),
    )
        .into_response())
}

/// Replays the item's records into a topic, each once, however often this is asked for. Answers when it is done, or after some
/// seconds with how far it is: it goes on, and asking again waits for it again.
#[utoipa::path(post, operation_id = "replaySalvage", tag = "salvage", path = "/api/v1/salvage/{id}/replay", params(("id" = String, Path)), request_body = ReplaySalvage, responses(
    (status = 200, body = SalvageReplay, description = "Done, now or before"),
    (status = 202, body = SalvageReplay, description = "Going on"),
    (status = 400, body = Problem, content_type = "application/problem+json"),
    (status = 404, body = Problem, content_type = "application/problem+json"),
    (status = 409, body = Problem, content_type = "application/problem+json", description = "The target takes no more of it"),
    (status = 503, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn replay(
    State(admin): State<Admin>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    let path = format!("/api/v1/salvage/{id}/replay");
    let has_body = request
        .headers()
        .get(header::CONTENT_LENGTH)
        .is_none_or(|length| length != "0")
        && request.headers().contains_key(header::CONTENT_TYPE);
    let Body(asked) = match has_body {
        true => match Body::<ReplaySalvage>::from_request(request, &admin).await {
            Ok(body) => body,
            Err(refusal) => return refusal,
        },
        false => Body(ReplaySalvage::default()),
    };
    match replay_into(&admin, &id, &path, asked).await {
        Ok(response) => response,
        Err(refused) => refused.at(&path).into_response(),
    }
}

async fn replay_into(
    admin: &Admin,
    id: &str,
    path: &str,
    asked: ReplaySalvage,
) -> Result<Response, Refused> {
    let parsed = parse(id, path)?;
    let image = admin.quorum.image();
    let target = match &asked.target {
        Some(name) => image.topic(name).ok_or_else(|| {
            Refused::kafka(
                ErrorCode::UnknownTopicOrPartition,
                format!("there is no topic {name:?} to replay into"),
            )
            .in_field("/target")
        })?,
        None => match image.topic_by_id(parsed.topic_id) {
            Some(topic) => topic,
            None => {
                // An item that nobody holds is missing first of all.
                find(admin, &image, id, path).await?;
                return Err(Refused::kafka(
                    ErrorCode::UnknownTopicId,
                    "the topic these records were of is deleted: name another one",
                )
                .in_field("/target"));
            }
        },
    };
    // Known, even if nobody holds the item any more.
    if let Some(known) = image.salvage_replay(id, target.id)
        && known.replayed.is_some()
    {
        return Ok(Json(report(id, target, &known, 0)).into_response());
    }
    let (held, _) = find(admin, &image, id, path).await?;
    let begins = image
        .salvage_replay(id, target.id)
        .is_none_or(|known| known.stopped);
    let reserved = admin
        .active
        .reserve_replay(id, target.id, parsed.partition, held.item.records)
        .await
        .map_err(|error| match ErrorCode::from(error.code) {
            ErrorCode::InvalidPartitions => Refused::new(
                StatusCode::BAD_REQUEST,
                "FEWER_PARTITIONS_THAN_NEEDED",
                error.message,
            )
            .in_field("/target"),
            ErrorCode::InvalidTopicException | ErrorCode::UnknownTopicId => {
                Refused::from(error).in_field("/target")
            }
            _ => Refused::from(error),
        })?;
    let mut progress = match admin.replays.start(held, target.id, reserved) {
        Ok(progress) => progress,
        Err(error) => {
            let why = error.to_string();
            // One that was begun before waits its turn all the same.
            if begins {
                let reached = reserved.acknowledged;
                admin.replays.give_up(id, target.id, reached, &why).await;
            }
            return Err(Refused::kafka(ErrorCode::ThrottlingQuotaExceeded, why));
        }
    };
    let ended = progress.wait_for(|progress| !matches!(progress, Progress::Running(_)));
    let seen = tokio::select! {
        ended = ended => ended.map(|progress| progress.clone()).ok(),
        () = admin.clock.sleep(REPLAY_WAIT) => None,
    };
    let seen = seen.unwrap_or_else(|| progress.borrow().clone());
    let now = admin.quorum.image().salvage_replay(id, target.id);
    let known = now.unwrap_or(reserved);
    if let Progress::Stopped { replayed, why, .. } = &seen
        && !known.stopped
        && admin.replays.carried(id, target.id).is_none()
    {
        // Asked for in the moment it was given up.
        let reached = *replayed;
        admin.replays.give_up(id, target.id, reached, why).await;
    }
    match seen {
        Progress::Done(_) => Ok(Json(report(id, target, &known, 0)).into_response()),
        Progress::Running(reached) => {
            let report = report(id, target, &known, reached);
            Ok((StatusCode::ACCEPTED, Json(report)).into_response())
        }
        Progress::Stopped {
            replayed,
            why,
            refused: true,
        } => Err(Refused::new(
            StatusCode::CONFLICT,
            "REPLAY_REFUSED",
            format!("{replayed} records are replayed, then: {why}"),
        )),
        Progress::Stopped { replayed, why, .. } => Err(Refused::kafka(
            ErrorCode::BrokerNotAvailable,
            format!("{replayed} records are replayed, then: {why}; asked for again it goes on"),
        )),
    }
}

/// Deletes an item on every broker that answers.
#[utoipa::path(delete, operation_id = "deleteSalvage", tag = "salvage", path = "/api/v1/salvage/{id}", params(("id" = String, Path)), responses(
    (status = 200, body = SalvageDeleted),
    (status = 404, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn delete(
    State(admin): State<Admin>,
    Path(id): Path<String>,
) -> Result<Json<SalvageDeleted>, Refused> {
    let path = format!("/api/v1/salvage/{id}");
    parse(&id, &path)?;
    let image = admin.quorum.image();
    let cluster_id = &admin.quorum.identity().cluster_id;
    let (deleted, unreachable) = admin.fleet.delete_salvaged(&image, cluster_id, &id).await;
    let unreachable_brokers: Vec<i32> = unreachable.iter().map(|broker| broker.0).collect();
    if deleted.is_empty() {
        return Err(missing(&id, &path, &unreachable_brokers));
    }
    tracing::info!(item = id, brokers = ?deleted, "a salvaged item was deleted on request");
    Ok(Json(SalvageDeleted {
        id,
        deleted_from: deleted.iter().map(|broker| broker.0).collect(),
        unreachable_brokers,
    }))
}
