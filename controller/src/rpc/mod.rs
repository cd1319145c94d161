//! What brokers and controllers call, on `controller.listener`.
//! Law: who sends, who is meant and which cluster are checked before a body is read; a handler hands over and answers.

mod headers;
mod raft;
mod session;

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{
    DefaultBodyLimit, FromRequest, Query, Request, State, rejection::JsonRejection,
};
use axum::http::{StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use kuorum_metadata::control::Command;
use kuorum_metadata::rpc::{
    AllocateProducerIdsRequest, AlterPartitionRequest, AssignDirectoriesRequest, HeartbeatRequest,
    PATH_ALTER_PARTITION, PATH_ASSIGN_DIRECTORIES, PATH_COMMAND, PATH_FEED, PATH_GOODBYE,
    PATH_HEARTBEAT, PATH_PRODUCER_IDS, PATH_REGISTER, PATH_REPORT_EVENTS, PATH_SESSION,
    RegisterRequest, Reply, ReportEventsRequest, RpcError, SessionRequest,
};
use kuorum_protocol::error_code::ErrorCode;
use kuorum_transport::Clock;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::active::Active;
use crate::feed;
use crate::quorum::{PATH_APPEND, PATH_IDENTITY, PATH_SNAPSHOT, PATH_VOTE, Quorum};

/// Admin requests that another controller passes on lie below this path.
pub const RELAY: &str = "/relay";
/// The largest body a broker may send.
const BODY_BYTES: usize = 4 * 1024 * 1024;
/// The largest body of a Raft request: a piece of a snapshot as JSON numbers, or one oversized entry.
const RAFT_BODY_BYTES: usize = 64 * 1024 * 1024;
/// How long one request may take, streams excepted.
const DEADLINE: Duration = Duration::from_secs(30);

/// What the handlers need.
#[derive(Clone, Debug)]
pub struct Rpc {
    pub active: Active,
    pub quorum: Quorum,
    pub clock: Clock,
    pub going_down: CancellationToken,
}

/// Every path of the listener; `relayed` is what other controllers pass on, below [`RELAY`].
pub fn router(rpc: Rpc, relayed: Router) -> Router {
    let short = Router::new()
        .route(PATH_REGISTER, post(register))
        .route(PATH_HEARTBEAT, post(heartbeat))
        .route(PATH_GOODBYE, post(goodbye))
        .route(PATH_ALTER_PARTITION, post(alter_partition))
        .route(PATH_ASSIGN_DIRECTORIES, post(assign_directories))
        .route(PATH_REPORT_EVENTS, post(report_events))
        .route(PATH_PRODUCER_IDS, post(allocate_producer_ids))
        .route(PATH_COMMAND, post(command))
        .layer(DefaultBodyLimit::max(BODY_BYTES));
    let raft = Router::new()
        .route(PATH_APPEND, post(raft::append))
        .route(PATH_VOTE, post(raft::vote))
        .route(PATH_SNAPSHOT, post(raft::snapshot))
        .layer(DefaultBodyLimit::max(RAFT_BODY_BYTES))
        .layer(middleware::from_fn_with_state(
            rpc.clone(),
            headers::check_member,
        ));
    let streams = Router::new()
        .route(PATH_SESSION, post(session::open))
        .route(PATH_FEED, get(follow))
        .layer(DefaultBodyLimit::max(BODY_BYTES));
    short
        .merge(raft)
        .layer(middleware::from_fn(deadline))
        .merge(streams)
        .nest_service(RELAY, relayed)
        .layer(middleware::from_fn_with_state(rpc.clone(), headers::check))
        // Before there is a quorum nobody knows whom to address.
        .route(PATH_IDENTITY, get(raft::identity))
        .with_state(rpc)
}

/// Nobody holds a handler for longer than this.
async fn deadline(request: Request, next: middleware::Next) -> Response {
    match tokio::time::timeout(DEADLINE, next.run(request)).await {
        Ok(response) => response,
        Err(_) => refuse(
            StatusCode::REQUEST_TIMEOUT,
            RpcError::new(ErrorCode::RequestTimedOut, "the request took too long"),
        ),
    }
}

/// A refusal with a status of its own.
fn refuse(status: StatusCode, error: RpcError) -> Response {
    (status, axum::Json(Reply::<()>::Err(error))).into_response()
}

/// An answer: `{"ok":…}` or `{"err":…}`.
fn reply<T: Serialize>(result: Result<T, RpcError>) -> Response {
    axum::Json(match result {
        Ok(value) => Reply::Ok(value),
        Err(error) => Reply::Err(error),
    })
    .into_response()
}

/// A JSON body, refused in the words of this listener.
struct Payload<T>(T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Payload<T> {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        match axum::Json::<T>::from_request(request, state).await {
            Ok(axum::Json(value)) => Ok(Self(value)),
            Err(rejection) => Err(refuse_body(&rejection)),
        }
    }
}

fn refuse_body(rejection: &JsonRejection) -> Response {
    refuse(
        rejection.status(),
        RpcError::new(ErrorCode::InvalidRequest, rejection.body_text()),
    )
}

async fn register(State(rpc): State<Rpc>, Payload(request): Payload<RegisterRequest>) -> Response {
    reply(rpc.active.register(request).await)
}

async fn heartbeat(
    State(rpc): State<Rpc>,
    Payload(request): Payload<HeartbeatRequest>,
) -> Response {
    reply(rpc.active.heartbeat(request).await)
}

async fn goodbye(State(rpc): State<Rpc>, Payload(request): Payload<SessionRequest>) -> Response {
    reply(rpc.active.goodbye(&request))
}

async fn alter_partition(
    State(rpc): State<Rpc>,
    Payload(request): Payload<AlterPartitionRequest>,
) -> Response {
    reply(rpc.active.alter_partition(request).await)
}

async fn assign_directories(
    State(rpc): State<Rpc>,
    Payload(request): Payload<AssignDirectoriesRequest>,
) -> Response {
    reply(rpc.active.assign_directories(request).await)
}

async fn report_events(
    State(rpc): State<Rpc>,
    Payload(request): Payload<ReportEventsRequest>,
) -> Response {
    reply(rpc.active.report_events(request).await)
}

async fn allocate_producer_ids(
    State(rpc): State<Rpc>,
    Payload(request): Payload<AllocateProducerIdsRequest>,
) -> Response {
    reply(rpc.active.allocate_producer_ids(request).await)
}

async fn command(State(rpc): State<Rpc>, Payload(request): Payload<Command>) -> Response {
    reply(rpc.active.command(request).await.map(|(answer, _)| answer))
}

/// Where a follower wants to begin.
#[derive(Debug, Deserialize)]
struct From {
    from: i64,
}

async fn follow(State(rpc): State<Rpc>, Query(from): Query<From>) -> Response {
    let lines = feed::lines(rpc.quorum, rpc.clock, from.from, rpc.going_down);
    (
        [(header::CONTENT_TYPE, "application/x-ndjson")],
        Body::from_stream(lines),
    )
        .into_response()
}
