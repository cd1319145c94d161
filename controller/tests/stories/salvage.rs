//! Salvaged items as an operator meets them; the brokers are told what to say.

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use kuorum_admin_api::{Problem, SalvageDeleted, SalvageDetail, SalvagePage, SalvageRecords};
use kuorum_metadata::rpc::{
    HeartbeatReply, PATH_HEARTBEAT, PATH_REGISTER, RegisterReply, RegisterRequest,
};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Cluster, PATIENCE, heartbeat, registration};

/// An item of partition 1 of a topic, set aside from offset 10 on.
fn item(topic_id: &str, end_offset: i64) -> Value {
    json!({
        "id": id_of(topic_id), "topic": "telemetry-logs", "topic_id": topic_id, "partition": 1, "unclean_epoch": 5,
        "first_offset": 10, "end_offset": end_offset, "records": end_offset - 10, "bytes": 7, "first_timestamp": 1,
        "last_timestamp": 2, "epochs": [{"epoch": 3, "start_offset": 10}], "complete": true, "damage": null,
        "skipped_transactions": 0, "reason": "unclean election of leader epoch 5", "created_at": 3,
    })
}

fn id_of(topic_id: &str) -> String {
    format!("{topic_id}-1-5-10")
}

/// A broker's HTTP listener that holds this one item, and where it listens.
async fn holder(item: Value) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let path = format!("/internal/v1/salvage/{}", item["id"].as_str().unwrap());
    let list = json!({ "items": [item.clone()] });
    let records = json!({ "items": [
        {"index": 0, "offset": 10, "leader_epoch": 3, "timestamp": 1, "key": null, "value": "a", "headers": []},
    ], "next": 1 });
    let router = Router::new()
        .route("/internal/v1/salvage", get(async move || list.to_string()))
        .route(
            &path,
            get(async move || item.to_string()).delete(async || StatusCode::NO_CONTENT),
        )
        .route(
            &format!("{path}/records"),
            get(async move || records.to_string()),
        )
        .route(&format!("{path}/segment"), get(async || "batches"));
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

async fn join(cluster: &Cluster, id: i32, http: &str) {
    let request = RegisterRequest {
        http: http.to_owned(),
        ..registration(id)
    };
    let reply: RegisterReply = cluster.ask(PATH_REGISTER, &request).await;
    let heartbeat = heartbeat(id, reply.broker_epoch);
    loop {
        let answer: HeartbeatReply = cluster.ask(PATH_HEARTBEAT, &heartbeat).await;
        if !answer.fenced {
            return;
        }
    }
}

async fn send(
    cluster: &Cluster,
    method: Method,
    path: &str,
    body: Option<Value>,
) -> reqwest::Response {
    let url = cluster.admin_url(1, &format!("/api/v1{path}"));
    let mut request = cluster.client.request(method, url).timeout(PATIENCE);
    if let Some(body) = body {
        request = request.json(&body);
    }
    request.send().await.unwrap()
}

async fn read<T: serde::de::DeserializeOwned>(cluster: &Cluster, path: &str) -> T {
    let response = send(cluster, Method::GET, path, None).await;
    assert_eq!(response.status().as_u16(), 200, "{path}");
    response.json().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_brokers_hold_is_one_list_and_a_mistake_changes_nothing() {
    let cluster = Cluster::start(1).await;
    cluster.active().await;
    let known = "6f1c2d7e-0000-4000-8000-000000000007";
    let holders = [
        holder(item(known, 20)).await,
        holder(item(known, 30)).await,
        // Nobody listens there.
        "127.0.0.1:1".to_owned(),
    ];
    for (id, http) in (1..).zip(&holders) {
        join(&cluster, id, http).await;
    }
    let page: SalvagePage = read(&cluster, "/salvage").await;
    assert_eq!(page.unreachable_brokers, [3]);
    assert_eq!(page.items.len(), 1, "{page:?}");
    let shown = &page.items[0];
    assert_eq!((shown.end_offset, shown.records), (30, 20), "the longest");
    assert_eq!(shown.brokers, [1, 2]);
    let id = id_of(known);
    let detail: SalvageDetail = read(&cluster, &format!("/salvage/{id}")).await;
    assert_eq!(detail.item, *shown);
    assert_eq!(detail.unreachable_brokers, [3]);
    let records: SalvageRecords =
        read(&cluster, &format!("/salvage/{id}/records?page_size=1")).await;
    assert_eq!(records.items[0].value.as_deref(), Some("a"));
    let token = records.next_page_token.expect("there is more");
    let next = format!("/salvage/{id}/records?page_size=1&page_token={token}");
    read::<SalvageRecords>(&cluster, &next).await;
    let segment = send(
        &cluster,
        Method::GET,
        &format!("/salvage/{id}/segment"),
        None,
    )
    .await;
    assert_eq!(segment.text().await.unwrap(), "batches");

    cluster.create_topic("narrow", 1, 1).await;
    cluster.create_topic("wide", 2, 1).await;
    let replay = format!("/salvage/{id}/replay");
    let other = "/salvage/6f1c2d7e-0000-4000-8000-000000000007-1-5-11";
    let nothing = "/salvage/..%2f..%2fbrokers";
    let into = |target: &str| Some(json!({ "target": target }));
    let rows = [
        (
            Method::GET,
            other.to_owned(),
            None,
            404,
            "RESOURCE_NOT_FOUND",
            None,
        ),
        (
            Method::GET,
            nothing.to_owned(),
            None,
            404,
            "RESOURCE_NOT_FOUND",
            None,
        ),
        (
            Method::DELETE,
            other.to_owned(),
            None,
            404,
            "RESOURCE_NOT_FOUND",
            None,
        ),
        (
            Method::POST,
            format!("{other}/replay"),
            into("wide"),
            404,
            "RESOURCE_NOT_FOUND",
            None,
        ),
        // Neither such an item nor its topic exists.
        (
            Method::POST,
            format!("{other}/replay"),
            None,
            404,
            "RESOURCE_NOT_FOUND",
            None,
        ),
        // The topic it was of does not exist.
        (
            Method::POST,
            replay.clone(),
            None,
            404,
            "UNKNOWN_TOPIC_ID",
            Some("/target"),
        ),
        (
            Method::POST,
            replay.clone(),
            into("nowhere"),
            404,
            "UNKNOWN_TOPIC_OR_PARTITION",
            Some("/target"),
        ),
        (
            Method::POST,
            replay.clone(),
            into("narrow"),
            400,
            "FEWER_PARTITIONS_THAN_NEEDED",
            Some("/target"),
        ),
        (
            Method::POST,
            replay.clone(),
            Some(json!({ "traget": "wide" })),
            400,
            "INVALID_BODY",
            Some("/traget"),
        ),
        (
            Method::POST,
            replay.clone(),
            Some(json!([])),
            400,
            "INVALID_BODY",
            None,
        ),
        (
            Method::GET,
            "/salvage?page_token=zz".to_owned(),
            None,
            400,
            "INVALID_PAGE_TOKEN",
            None,
        ),
        (
            Method::GET,
            "/salvage?page_size=0".to_owned(),
            None,
            400,
            "INVALID_QUERY",
            None,
        ),
    ];
    for (method, path, body, status, code, pointer) in rows {
        let response = send(&cluster, method, &path, body).await;
        assert_eq!(response.status().as_u16(), status, "{path}");
        let problem: Problem = response.json().await.unwrap();
        assert_eq!(problem.code, code, "{path}");
        let named = problem.errors.first().map(|error| error.pointer.as_str());
        assert_eq!(named, pointer, "{path}: {problem:?}");
    }
    let detail: SalvageDetail = read(&cluster, &format!("/salvage/{id}")).await;
    assert!(detail.item.replays.is_empty(), "nothing was changed");

    let response = send(&cluster, Method::DELETE, &format!("/salvage/{id}"), None).await;
    let deleted: SalvageDeleted = response.json().await.unwrap();
    assert_eq!(deleted.deleted_from, [1, 2]);
    assert_eq!(deleted.unreachable_brokers, [3]);
}
