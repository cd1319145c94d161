//! The HTTP admin API, on `admin.listener`.
//! Law: every controller answers, the active one decides; a request is passed on once at most. Whatever is not 2xx is a
//! problem (RFC 9457). Lists are answered from memory and never ask a broker.

mod brokers;
mod configs;
mod elections;
mod epochs;
mod events;
mod guard;
mod health;
mod metrics;
mod openapi;
mod page;
mod partitions;
mod problem;
mod quorum;
mod reassignments;
mod relay;
mod salvage;
mod topics;

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use kuorum_metadata::config_def::ControllerConfig;
use kuorum_metadata::control::{Command, CommandReply};
use kuorum_protocol::error_code::ErrorCode;
use kuorum_transport::Clock;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::active::Active;
use crate::fleet::Fleet;
use crate::quorum::Quorum;
use crate::replay::Replays;

use problem::{Asked, Refused};

/// The largest body of an admin request.
const BODY_BYTES: usize = 1024 * 1024;
/// How long one request may take.
const DEADLINE: std::time::Duration = std::time::Duration::from_secs(30);

/// What the handlers need.
#[derive(Clone, Debug)]
pub struct Admin {
    pub active: Active,
    pub quorum: Quorum,
    pub fleet: Fleet,
    pub replays: Replays,
    pub client: reqwest::Client,
    pub clock: Clock,
    pub config: Arc<ControllerConfig>,
    /// A permit for each stream of events that may be open.
    pub event_streams: Arc<Semaphore>,
    pub going_down: CancellationToken,
}

/// What answers on `admin.listener`.
pub fn router(admin: Admin) -> Router {
    Router::new()
        .nest(kuorum_admin_api::BASE_PATH, api(admin.clone()))
        .route("/livez", get(metrics::livez))
        .route("/readyz", get(metrics::readyz))
        .route("/metrics", get(metrics::metrics))
        .fallback(unknown_path)
        .layer(DefaultBodyLimit::max(BODY_BYTES))
        .layer(middleware::from_fn(deadline))
        .layer(middleware::from_fn_with_state(admin.clone(), guard::check))
        .with_state(admin)
}

/// What other controllers pass on. The header checks of the quorum's listener stand before it.
pub fn relayed(admin: Admin) -> Router {
    Router::new()
        .nest(kuorum_admin_api::BASE_PATH, api(admin.clone()))
        .fallback(unknown_path)
        .layer(DefaultBodyLimit::max(BODY_BYTES))
        .layer(middleware::from_fn(deadline))
        .with_state(admin)
}

/// The paths below `/api/v1`.
fn api(admin: Admin) -> Router<Admin> {
    Router::new()
        .route("/brokers", get(brokers::list))
        .route(
            "/brokers/{id}",
            get(brokers::get).delete(brokers::unregister),
        )
        .route("/brokers/{id}/drain", post(brokers::drain))
        .route("/brokers/{id}/undrain", post(brokers::undrain))
        .route("/topics", get(topics::list).post(topics::create))
        .route("/topics/{topic}", get(topics::get).delete(topics::delete))
        .route(
            "/topics/{topic}/configs",
            get(configs::get_topic).patch(configs::patch_topic),
        )
        .route(
            "/topics/{topic}/partitions",
            get(partitions::list).post(topics::add_partitions),
        )
        .route(
            "/topics/{topic}/partitions/{partition}",
            get(partitions::get),
        )
        .route(
            "/topics/{topic}/partitions/{partition}/epochs",
            get(epochs::list),
        )
        .route("/events", get(events::list))
        .route("/elections", post(elections::elect))
        .route(
            "/reassignments",
            get(reassignments::list).post(reassignments::run),
        )
        .route(
            "/reassignments/{topic}/{partition}",
            delete(reassignments::cancel),
        )
        .route("/salvage", get(salvage::list))
        .route("/salvage/{id}", get(salvage::get).delete(salvage::delete))
        .route("/salvage/{id}/records", get(salvage::records))
        .route("/salvage/{id}/segment", get(salvage::segment))
        .route("/salvage/{id}/replay", post(salvage::replay))
        .route("/quorum", get(quorum::get))
        .route("/cluster/health", get(health::get))
        .route(
            "/cluster/configs",
            get(configs::get_cluster).patch(configs::patch_cluster),
        )
        .route("/openapi.json", get(openapi::get))
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(admin, relay::to_active))
}

async fn deadline(mut request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let asked = Asked(request.uri().clone());
    request.extensions_mut().insert(asked);
    match tokio::time::timeout(DEADLINE, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Refused::kafka(ErrorCode::RequestTimedOut, "the request took too long")
            .at(&path)
            .into_response(),
    }
}

async fn unknown_path(request: Request) -> Response {
    Refused::new(
        StatusCode::NOT_FOUND,
        "NOT_FOUND",
        "there is nothing at this path",
    )
    .at(request.uri().path())
    .into_response()
}

async fn wrong_method(request: Request) -> Response {
    Refused::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "METHOD_NOT_ALLOWED",
        format!("{} is not possible here", request.method()),
    )
    .at(&problem::path_of(
        request.extensions(),
        request.uri().path(),
    ))
    .into_response()
}

impl Admin {
    /// Has the active controller, which is this one, decide.
    async fn decide(&self, command: Command) -> Result<CommandReply, Refused> {
        let (reply, _) = self.active.command(command).await?;
        Ok(reply)
    }
}

/// The answer to a command has the command's name; another one would be a mistake in `control`.
fn mismatched() -> Refused {
    Refused::kafka(
        ErrorCode::UnknownServerError,
        "the decision and its answer do not match",
    )
}
