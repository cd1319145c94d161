//! `GET /quorum`.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use futures_util::future::join_all;
use kuorum_admin_api::{Quorum, QuorumRole, QuorumVoter};

use super::Admin;
use crate::quorum::ControllerId;

/// How long another controller has to answer.
const DEADLINE: Duration = Duration::from_millis(500);

/// The controllers that do not answer this one.
pub(super) async fn silent(admin: &Admin) -> Vec<ControllerId> {
    let me = admin.quorum.identity().controller_id;
    let others = admin.config.voters.iter().filter(|voter| voter.id != me);
    let questions = others.map(|voter| async move {
        let address = voter.address.to_string();
        let answers = admin.quorum.answers(&address, DEADLINE).await;
        (!answers).then_some(voter.id)
    });
    join_all(questions).await.into_iter().flatten().collect()
}

/// The quorum, as the controller that answers sees it: the active one if there is one.
#[utoipa::path(get, operation_id = "getQuorum", tag = "quorum", path = "/api/v1/quorum", responses((status = 200, body = Quorum)))]
pub(super) async fn get(State(admin): State<Admin>) -> Json<Quorum> {
    let silent = silent(&admin).await;
    let status = admin.quorum.status();
    let image = admin.quorum.image();
    let end = status.log.1 as i64;
    let voters = status
        .voters
        .iter()
        .map(|(id, voter)| {
            let here = *id == status.id;
            let reached = if here {
                Some(end)
            } else {
                status.matched.get(id).copied().flatten()
            };
            QuorumVoter {
                id: *id,
                role: if status.leader == Some(*id) {
                    QuorumRole::Leader
                } else {
                    QuorumRole::Follower
                },
                reachable: Some(!silent.contains(id)),
                address: voter.address.clone(),
                directory_id: voter.directory_id.to_string(),
                log_end_offset: reached,
                lag: reached.map(|reached| (end - reached).max(0)),
            }
        })
        .collect();
    Json(Quorum {
        cluster_id: admin.quorum.identity().cluster_id.clone(),
        leader: status.leader,
        controller_epoch: image.controller_epoch().0,
        term: status.term,
        high_watermark: status.applied_end,
        log_end_offset: end,
        log_start_offset: status.log.0 as i64,
        quorum_acked_ms_ago: status.quorum_acked_ms_ago,
        voters,
    })
}
