//! Passing a request on to the active controller.
//! Law: one hop, over the quorum's listener, never a redirect. Without an active controller the answer is 503, except
//! where saying so is the answer.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderName, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use kuorum_admin_api::{HEADER_HOPS, HEADER_METADATA_OFFSET};
use kuorum_metadata::rpc::{HEADER_CLUSTER_ID, HEADER_FROM, HEADER_TO, HEADER_VERSION, VERSION};

use super::events;
use super::problem::{Asked, Refused, path_of};
use super::{Admin, BODY_BYTES};
use crate::quorum::controller_name;
use crate::rpc::RELAY;

/// How long the active controller has to answer.
const DEADLINE: Duration = Duration::from_secs(28);
/// How long a majority has to confirm that this controller may answer.
const BARRIER: Duration = Duration::from_secs(2);
/// What any controller can say of itself.
const LOCAL: [&str; 1] = ["/api/v1/openapi.json"];
/// What any controller says if the active one cannot.
const LOCAL_IF_NEED_BE: [&str; 2] = ["/api/v1/cluster/health", "/api/v1/quorum"];

/// Answers here if this controller is active, and has the active one answer otherwise.
pub(super) async fn to_active(
    State(admin): State<Admin>,
    request: Request,
    next: Next,
) -> Response {
    let plain = path_of(request.extensions(), request.uri().path());
    if LOCAL.contains(&plain.as_str()) || events::is_stream(&plain, request.headers()) {
        return next.run(request).await;
    }
    let local_if_need_be = LOCAL_IF_NEED_BE.contains(&plain.as_str());
    if admin.active.may_decide() {
        // A decision waits for a majority anyway; reading asks one whether this controller is still the one to ask.
        if request.method() == Method::GET {
            let barrier = tokio::time::timeout(BARRIER, admin.quorum.read_barrier());
            if !matches!(barrier.await, Ok(Ok(()))) && !local_if_need_be {
                return Refused::no_controller(
                    None,
                    "a majority of the controllers cannot be reached",
                )
                .at(&plain)
                .into_response();
            }
        }
        return answer_here(&admin, request, next).await;
    }
    let me = admin.quorum.identity().controller_id;
    let hops = request.headers().contains_key(HEADER_HOPS);
    let active = admin
        .quorum
        .leader()
        .filter(|leader| *leader != me)
        .and_then(|leader| Some((leader, admin.quorum.voter(leader)?.address)));
    let (request, why) = match active {
        Some((leader, address)) if !hops => {
            let (parts, body) = request.into_parts();
            let Ok(bytes) = axum::body::to_bytes(body, BODY_BYTES).await else {
                return Refused::new(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    "BODY_TOO_LARGE",
                    format!("a body has at most {BODY_BYTES} bytes"),
                )
                .at(&plain)
                .into_response();
            };
            let uri = parts.extensions.get::<Asked>().map_or(&parts.uri, |uri| &uri.0);
            let target = uri.path_and_query().map_or("/", |target| target.as_str());
            let identity = admin.quorum.identity();
            let mut passed_on = admin
                .client
                .request(parts.method.clone(), format!("http://{address}{RELAY}{target}"))
                .header(HEADER_CLUSTER_ID, &identity.cluster_id)
                .header(HEADER_FROM, controller_name(me))
                .header(HEADER_TO, controller_name(leader))
                .header(HEADER_VERSION, VERSION)
                .header(HEADER_HOPS, "1")
                .timeout(DEADLINE)
                .body(bytes.clone());
            if let Some(kind) = parts.headers.get(header::CONTENT_TYPE) {
                passed_on = passed_on.header(header::CONTENT_TYPE, kind);
            }
            match passed_on.send().await {
                Ok(answer) => return pass_back(answer),
                Err(error) => (
                    Request::from_parts(parts, Body::from(bytes)),
                    format!("controller {leader} is active and does not answer: {error}"),
                ),
            }
        }
        Some((leader, _)) => (request, format!("controller {leader} has just become active")),
        None if !admin.quorum.is_initialised() => (request, super::health::unfounded(admin.config.voters.len())),
        None => (request, "no controller is active: an election is under way, or no majority of the controllers is up".to_owned()),
    };
    if local_if_need_be {
        return answer_here(&admin, request, next).await;
    }
    Refused::no_controller(active_id(&admin), why)
        .at(&plain)
        .into_response()
}

fn active_id(admin: &Admin) -> Option<u64> {
    let me = admin.quorum.identity().controller_id;
    admin.quorum.leader().filter(|leader| *leader != me)
}

async fn answer_here(admin: &Admin, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let offset = admin.quorum.published().applied_end() - 1;
    response.headers_mut().insert(
        HeaderName::from_static(HEADER_METADATA_OFFSET),
        offset.into(),
    );
    response
}

fn pass_back(answer: reqwest::Response) -> Response {
    let mut response = Response::builder().status(answer.status());
    for name in [
        header::CONTENT_TYPE,
        header::RETRY_AFTER,
        header::LOCATION,
        HeaderName::from_static(HEADER_METADATA_OFFSET),
    ] {
        if let Some(value) = answer.headers().get(&name) {
            response = response.header(name, value);
        }
    }
    response
        .body(Body::from_stream(answer.bytes_stream()))
        .unwrap_or_else(|_| StatusCode::BAD_GATEWAY.into_response())
}
