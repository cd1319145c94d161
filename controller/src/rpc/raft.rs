//! What the members of the quorum call.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use openraft::raft::{AppendEntriesRequest, InstallSnapshotRequest, VoteRequest};

use super::{Payload, Rpc};
use crate::quorum::{ControllerId, TypeConfig};

/// openraft's results travel as they are, errors included.
pub(super) async fn append(
    State(rpc): State<Rpc>,
    Payload(request): Payload<AppendEntriesRequest<TypeConfig>>,
) -> Response {
    Json(rpc.quorum.on_append(request).await).into_response()
}

pub(super) async fn vote(
    State(rpc): State<Rpc>,
    Payload(request): Payload<VoteRequest<ControllerId>>,
) -> Response {
    Json(rpc.quorum.on_vote(request).await).into_response()
}

pub(super) async fn snapshot(
    State(rpc): State<Rpc>,
    Payload(request): Payload<InstallSnapshotRequest<TypeConfig>>,
) -> Response {
    Json(rpc.quorum.on_snapshot(request).await).into_response()
}

pub(super) async fn identity(State(rpc): State<Rpc>) -> Response {
    Json(rpc.quorum.introduction()).into_response()
}
