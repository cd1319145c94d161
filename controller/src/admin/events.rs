//! `GET /events`: what happened, as a list or as a stream.
//! Law: a list is asked of the active controller; a stream is served by whichever controller is asked, as a feed is, for
//! every one knows the same events by the same ids.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use kuorum_admin_api::{Event, EventOrder, EventPage, EventQuery, Page, PageQuery, Problem};
use kuorum_metadata::EventId;
use kuorum_metadata::config_def::nearest;
use kuorum_metadata::events::{EventFilter, EventKind};
use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::{BrokerId, Timestamp};
use std::sync::Arc;

use super::Admin;
use super::page::page;
use super::problem::{Query, Refused};
use crate::events::{frames, view};
use crate::feed::in_sight;

const PATH: &str = "/api/v1/events";
const EVENT_STREAM: &str = "text/event-stream";
const LAST_EVENT_ID: &str = "last-event-id";

/// Whether a request asks for a stream of events.
pub(super) fn is_stream(path: &str, headers: &HeaderMap) -> bool {
    let accepts = headers
        .get(header::ACCEPT)
        .and_then(|accept| accept.to_str().ok());
    path == PATH
        && accepts.is_some_and(|accepts| {
            accepts
                .split(',')
                .filter_map(|kind| kind.split(';').next())
                .any(|kind| kind.trim().eq_ignore_ascii_case(EVENT_STREAM))
        })
}

/// What happened, a page at a time; or with `Accept: text/event-stream` as it happens, from `Last-Event-ID`, `after` or
/// `since` on. A stream sends each event as JSON under its id, a comment at least every 15 seconds, and `event: reset`
/// when some of the events asked for are no longer kept.
#[utoipa::path(get, operation_id = "listEvents", tag = "events", path = "/api/v1/events", params(EventQuery), responses(
    (status = 200, body = EventPage), (status = 400, body = Problem, content_type = "application/problem+json"),
    (status = 503, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn list(
    State(admin): State<Admin>,
    headers: HeaderMap,
    Query(query): Query<EventQuery>,
) -> Result<Response, Refused> {
    let filter = filter(&query)?;
    let after = query.after.map(id("after")).transpose()?;
    if is_stream(PATH, &headers) {
        return stream(&admin, &headers, &query, filter, after);
    }
    let newest_first = query.order == Some(EventOrder::Desc);
    let list = format!("events {filter:?} {after:?} {newest_first}");
    let asked = PageQuery {
        page_size: query.page_size,
        page_token: query.page_token,
    };
    let (found, dropped_through) = admin.quorum.published().with_history(|history| {
        let events = history
            .events()
            .filter(|event| after.is_none_or(|after| event.id > after) && filter.matches(event))
            .map(Arc::clone);
        let found = match newest_first {
            false => page(&asked, &list, events, |event| key(event.id.0)),
            true => page(&asked, &list, events.rev(), |event| {
                key(i64::MAX - event.id.0)
            }),
        };
        (found, history.floor().0)
    });
    let Page {
        items,
        next_page_token,
    } = found.map_err(|refused| refused.at(PATH))?;
    let items: Vec<Event> = items.iter().map(|event| view(event)).collect();
    Ok(Json(EventPage {
        items,
        next_page_token,
        dropped_through,
    })
    .into_response())
}

fn stream(
    admin: &Admin,
    headers: &HeaderMap,
    query: &EventQuery,
    filter: EventFilter,
    after: Option<EventId>,
) -> Result<Response, Refused> {
    if query.page_size.is_some() || query.page_token.is_some() || query.order.is_some() {
        return Err(invalid(
            "page_size, page_token and order belong to a list, not to a stream",
        ));
    }
    let last = headers
        .get(LAST_EVENT_ID)
        .map(|last| {
            let last = last.to_str().ok().and_then(|last| last.trim().parse().ok());
            id("Last-Event-ID")(last.unwrap_or(-1))
        })
        .transpose()?;
    if !in_sight(&admin.quorum) {
        return Err(Refused::no_controller(
            None,
            "this controller has lost sight of the quorum: ask another one",
        )
        .at(PATH));
    }
    let permit = Arc::clone(&admin.event_streams)
        .try_acquire_owned()
        .map_err(|_| {
            Refused::kafka(
                ErrorCode::ThrottlingQuotaExceeded,
                "this controller serves as many streams of events as it can",
            )
            .at(PATH)
        })?;
    let published = Arc::clone(admin.quorum.published());
    let from = last.or(after).unwrap_or_else(|| {
        published.with_history(|history| match query.since {
            Some(_) => history.floor(),
            None => history.end(),
        })
    });
    let quorum = admin.quorum.clone();
    let frames = frames(
        published,
        move || in_sight(&quorum),
        admin.clock.clone(),
        admin.going_down.clone(),
        filter,
        from,
        permit,
    );
    Ok((
        [
            (header::CONTENT_TYPE, EVENT_STREAM),
            (header::CACHE_CONTROL, "no-store"),
        ],
        Body::from_stream(frames),
    )
        .into_response())
}

/// A number that sorts as text.
fn key(number: i64) -> String {
    format!("{number:020}")
}

fn id(parameter: &'static str) -> impl Fn(i64) -> Result<EventId, Refused> {
    move |number| match number {
        0.. => Ok(EventId(number)),
        _ => Err(invalid(format!(
            "{parameter} is the id of an event, a number from 0"
        ))),
    }
}

fn invalid(sentence: impl Into<String>) -> Refused {
    Refused::new(StatusCode::BAD_REQUEST, "INVALID_QUERY", sentence).at(PATH)
}

fn filter(query: &EventQuery) -> Result<EventFilter, Refused> {
    let kinds = query
        .kind
        .iter()
        .flat_map(|kinds| kinds.split(','))
        .map(|kind| match EventKind::NAMES.contains(&kind) {
            true => Ok(kind.to_owned()),
            false => Err(invalid(match nearest(kind, EventKind::NAMES.into_iter()) {
                Some(known) => format!("there is no type {kind:?}; did you mean {known}?"),
                None => format!(
                    "type {kind:?} is not one of {}",
                    EventKind::NAMES.join(", ")
                ),
            })),
        })
        .collect::<Result<_, _>>()?;
    if query.partition.is_some() && query.topic.is_none() {
        return Err(invalid("partition says nothing without topic"));
    }
    Ok(EventFilter {
        kinds,
        topic: query.topic.clone(),
        partition: query.partition,
        broker: query.broker.map(BrokerId),
        since: query.since.map(Timestamp),
    })
}
