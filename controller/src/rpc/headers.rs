//! Who sends, who is meant, and which cluster.
//! Law: a request that is not meant for this controller is answered 403 before its body is read.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use kuorum_metadata::rpc::{
    HEADER_CLUSTER_ID, HEADER_FROM, HEADER_TO, HEADER_VERSION, RpcError, VERSION,
};
use kuorum_protocol::DirectoryId;
use kuorum_protocol::error_code::ErrorCode;

use super::{Rpc, refuse};
use crate::quorum::{
    ControllerId, HEADER_FROM_DIRECTORY, HEADER_TO_DIRECTORY, Quorum, controller_name,
};

/// Checks the headers every request carries.
pub(super) async fn check(State(rpc): State<Rpc>, request: Request, next: Next) -> Response {
    match check_request(&rpc.quorum, request.headers()) {
        Ok(()) => next.run(request).await,
        Err(error) => refuse(StatusCode::FORBIDDEN, error),
    }
}

/// Checks the directories that requests between members of the quorum carry.
pub(super) async fn check_member(State(rpc): State<Rpc>, request: Request, next: Next) -> Response {
    match check_directories(&rpc.quorum, request.headers()) {
        Ok(()) => next.run(request).await,
        Err(error) => {
            tracing::warn!("refused a request of the quorum: {error}");
            refuse(StatusCode::FORBIDDEN, error)
        }
    }
}

fn check_request(quorum: &Quorum, headers: &HeaderMap) -> Result<(), RpcError> {
    let me = quorum.identity();
    let cluster = text(headers, HEADER_CLUSTER_ID)?;
    if cluster != me.cluster_id {
        return Err(RpcError::new(
            ErrorCode::InconsistentClusterId,
            format!(
                "this controller belongs to cluster {}, not to {cluster}: controller.quorum.voters or a data \
                 directory of the one who asks is of another cluster",
                me.cluster_id
            ),
        ));
    }
    let version = text(headers, HEADER_VERSION)?;
    if version != VERSION {
        return Err(RpcError::new(
            ErrorCode::UnsupportedVersion,
            format!("this controller speaks version {VERSION}, not {version}"),
        ));
    }
    let to = text(headers, HEADER_TO)?;
    let name = controller_name(me.controller_id);
    if to != name {
        return Err(RpcError::new(
            ErrorCode::InvalidRequest,
            format!("this is {name}, not {to}: an address in controller.quorum.voters is wrong"),
        ));
    }
    text(headers, HEADER_FROM).map(drop)
}

fn check_directories(quorum: &Quorum, headers: &HeaderMap) -> Result<(), RpcError> {
    let me = quorum.identity();
    let meant = directory(headers, HEADER_TO_DIRECTORY)?;
    if meant != me.directory_id {
        return Err(RpcError::new(
            ErrorCode::InvalidRequest,
            format!(
                "the quorum knows controller {} with directory {meant}, this one has {}: it was formatted anew and may not vote under its old id",
                me.controller_id, me.directory_id
            ),
        ));
    }
    let from = text(headers, HEADER_FROM)?;
    let sender = from
        .strip_prefix("controller-")
        .and_then(|id| id.parse::<ControllerId>().ok())
        .ok_or_else(|| {
            RpcError::new(
                ErrorCode::InvalidRequest,
                format!("{from} is no controller"),
            )
        })?;
    let directory = directory(headers, HEADER_FROM_DIRECTORY)?;
    if !quorum.is_member_directory(sender, directory) {
        return Err(RpcError::new(
            ErrorCode::InvalidRequest,
            format!(
                "{from} is not a member of the quorum with directory {directory}: it was formatted anew and may not vote under its old id"
            ),
        ));
    }
    Ok(())
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Result<&'a str, RpcError> {
    headers
        .get(name)
        .and_then(|value| value.to_str().ok())
        .ok_or_else(|| {
            RpcError::new(
                ErrorCode::InvalidRequest,
                format!("the header {name} is missing"),
            )
        })
}

fn directory(headers: &HeaderMap, name: &str) -> Result<DirectoryId, RpcError> {
    text(headers, name)?.parse().map(DirectoryId).map_err(|_| {
        RpcError::new(
            ErrorCode::InvalidRequest,
            format!("the header {name} holds no directory id"),
        )
    })
}
