//! `GET /brokers`, `GET` and `DELETE /brokers/{id}`, `POST /brokers/{id}/drain`, `POST /brokers/{id}/undrain`.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use kuorum_admin_api::{Broker, BrokerState, ListenerAddress, Page, PageQuery, Problem};
use kuorum_metadata::control::{Command, CommandReply};
use kuorum_metadata::{BrokerImage, MetadataImage};
use kuorum_protocol::BrokerId;
use kuorum_protocol::error_code::ErrorCode;

use super::page::{number_key, page};
use super::problem::{Path, Query, Refused};
use super::{Admin, mismatched};

/// How much of the cluster rests on a broker.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    leaders: usize,
    replicas: usize,
    in_sync: usize,
}

/// Registered brokers, by id.
#[utoipa::path(get, operation_id = "listBrokers", tag = "brokers", path = "/api/v1/brokers", params(PageQuery), responses(
    (status = 200, body = Page<Broker>), (status = 503, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn list(
    State(admin): State<Admin>,
    Query(query): Query<PageQuery>,
) -> Result<Json<Page<Broker>>, Refused> {
    let image = admin.quorum.image();
    let loads = loads(&image);
    let brokers = image.brokers().map(|broker| view(broker, &loads));
    page(&query, "brokers", brokers, |broker| number_key(broker.id)).map(Json)
}

/// One broker.
#[utoipa::path(get, operation_id = "getBroker", tag = "brokers", path = "/api/v1/brokers/{id}", params(("id" = i32, Path)), responses(
    (status = 200, body = Broker), (status = 404, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn get(
    State(admin): State<Admin>,
    Path(id): Path<i32>,
) -> Result<Json<Broker>, Refused> {
    let image = admin.quorum.image();
    let broker = image.broker(BrokerId(id)).ok_or_else(|| {
        Refused::kafka(
            ErrorCode::BrokerIdNotRegistered,
            format!("no broker {id} is registered"),
        )
        .at(&format!("/api/v1/brokers/{id}"))
    })?;
    Ok(Json(view(broker, &loads(&image))))
}

/// Takes leadership from a broker and keeps it away until it is undrained, restarts or not. Leadership only moves within
/// the ISR: what no other member can lead stays. Answers with the broker as it then is; asking again changes nothing.
#[utoipa::path(post, operation_id = "drainBroker", tag = "brokers", path = "/api/v1/brokers/{id}/drain", params(("id" = i32, Path)), responses(
    (status = 200, body = Broker), (status = 404, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn drain(
    State(admin): State<Admin>,
    Path(id): Path<i32>,
) -> Result<Json<Broker>, Refused> {
    set_draining(&admin, id, true, "drain").await
}

/// Lets a broker lead again. Its partitions come back with the next election of preferred leaders.
#[utoipa::path(post, operation_id = "undrainBroker", tag = "brokers", path = "/api/v1/brokers/{id}/undrain", params(("id" = i32, Path)), responses(
    (status = 200, body = Broker), (status = 404, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn undrain(
    State(admin): State<Admin>,
    Path(id): Path<i32>,
) -> Result<Json<Broker>, Refused> {
    set_draining(&admin, id, false, "undrain").await
}

/// Forgets a broker that is gone for good. It must be stopped, and hold no replica any more.
#[utoipa::path(delete, operation_id = "unregisterBroker", tag = "brokers", path = "/api/v1/brokers/{id}", params(("id" = i32, Path)), responses(
    (status = 204), (status = 400, body = Problem, content_type = "application/problem+json"),
    (status = 404, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn unregister(
    State(admin): State<Admin>,
    Path(id): Path<i32>,
) -> Result<StatusCode, Refused> {
    let command = Command::UnregisterBroker {
        broker_id: BrokerId(id),
    };
    let CommandReply::UnregisterBroker(outcome) = admin.decide(command).await? else {
        return Err(mismatched());
    };
    match outcome.is_ok() {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Refused::outcome(&outcome).at(&format!("/api/v1/brokers/{id}"))),
    }
}

async fn set_draining(
    admin: &Admin,
    id: i32,
    draining: bool,
    action: &str,
) -> Result<Json<Broker>, Refused> {
    let command = Command::DrainBroker {
        broker_id: BrokerId(id),
        draining,
    };
    let CommandReply::DrainBroker(outcome) = admin.decide(command).await? else {
        return Err(mismatched());
    };
    let path = format!("/api/v1/brokers/{id}/{action}");
    if !outcome.is_ok() {
        return Err(Refused::outcome(&outcome).at(&path));
    }
    let image = admin.quorum.image();
    let broker = image.broker(BrokerId(id)).ok_or_else(|| {
        Refused::kafka(
            ErrorCode::BrokerIdNotRegistered,
            format!("broker {id} was forgotten since"),
        )
        .at(&path)
    })?;
    Ok(Json(view(broker, &loads(&image))))
}

fn loads(image: &MetadataImage) -> BTreeMap<BrokerId, Load> {
    let mut loads: BTreeMap<BrokerId, Load> = BTreeMap::new();
    for (_, _, partition) in image.partitions() {
        for replica in &partition.replicas {
            let load = loads.entry(*replica).or_default();
            load.replicas += 1;
            load.in_sync += usize::from(partition.isr.contains(replica));
            load.leaders += usize::from(partition.leader == Some(*replica));
        }
    }
    loads
}

fn state(broker: &BrokerImage) -> BrokerState {
    match (broker.fenced, broker.in_controlled_shutdown) {
        // Its shutdown has ended: it is gone.
        (true, _) => BrokerState::Fenced,
        (false, true) => BrokerState::ShuttingDown,
        (false, false) if broker.draining => BrokerState::Draining,
        (false, false) => BrokerState::Active,
    }
}

fn view(broker: &BrokerImage, loads: &BTreeMap<BrokerId, Load>) -> Broker {
    let load = loads.get(&broker.id).copied().unwrap_or_default();
    Broker {
        id: broker.id.0,
        state: state(broker),
        draining: broker.draining,
        broker_epoch: broker.epoch.0,
        incarnation_id: broker.incarnation_id.to_string(),
        rack: broker.rack.clone(),
        listeners: broker
            .listeners
            .iter()
            .map(|listener| ListenerAddress {
                name: listener.name.clone(),
                host: listener.host.clone(),
                port: listener.port,
                security_protocol: listener.security_protocol.clone(),
            })
            .collect(),
        http: broker.http.clone(),
        directories: broker.directories.iter().map(ToString::to_string).collect(),
        version: broker.version.clone(),
        leaders: load.leaders,
        replicas: load.replicas,
        in_sync: load.in_sync,
    }
}
