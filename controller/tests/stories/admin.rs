//! The admin API as an operator meets it.

use kuorum_admin_api::{
    AddPartitionsReport, Broker, ConfigEntry, ConfigSource, Health, Page, PartitionPage, Problem,
    Quorum, Topic,
};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Cluster, PATIENCE};

pub(crate) async fn send(
    cluster: &Cluster,
    to: u64,
    method: Method,
    path: &str,
    body: Option<Value>,
) -> reqwest::Response {
    let mut request = cluster
        .client
        .request(method, cluster.admin_url(to, path))
        .timeout(PATIENCE);
    if let Some(body) = body {
        request = request.json(&body);
    }
    request.send().await.unwrap()
}

pub(crate) async fn get(cluster: &Cluster, to: u64, path: &str) -> reqwest::Response {
    send(cluster, to, Method::GET, path, None).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_controller_answers_and_the_active_one_decides() {
    let mut cluster = Cluster::start(3).await;
    let active = cluster.active().await;
    let other = (1..=3).find(|id| *id != active).unwrap();
    cluster.join(1).await;
    cluster.join(2).await;
    // Asked of one that is not active.
    let body = json!({"name": "payments", "partitions": 3, "replication_factor": 2, "configs": {"retention.ms": "1000"}});
    let response = send(&cluster, other, Method::POST, "/api/v1/topics", Some(body)).await;
    assert_eq!(response.status().as_u16(), 201);
    let topic: Topic = response.json().await.unwrap();
    assert_eq!(
        (topic.partitions, topic.replication_factor, topic.leaderless),
        (3, 2, 0)
    );
    for id in 1..=3 {
        let topics: Page<Topic> = get(&cluster, id, "/api/v1/topics?page_size=10")
            .await
            .json()
            .await
            .unwrap();
        assert_eq!(topics.items.len(), 1, "controller {id}");
        let brokers: Page<Broker> = get(&cluster, id, "/api/v1/brokers")
            .await
            .json()
            .await
            .unwrap();
        assert_eq!(brokers.items.len(), 2);
        let quorum: Quorum = get(&cluster, id, "/api/v1/quorum")
            .await
            .json()
            .await
            .unwrap();
        assert_eq!(quorum.leader, Some(active));
        assert_eq!(quorum.voters.len(), 3);
    }
    let health: Health = get(&cluster, other, "/api/v1/cluster/health")
        .await
        .json()
        .await
        .unwrap();
    assert!(health.healthy, "{health:?}");

    // The brokers of this story serve nothing: their offsets are unknown, and the page says whom it asked.
    let page: PartitionPage = get(&cluster, other, "/api/v1/topics/payments/partitions")
        .await
        .json()
        .await
        .unwrap();
    assert_eq!(page.items.len(), 3);
    assert!(
        page.items
            .iter()
            .all(|p| p.high_watermark.is_none() && p.isr.len() == 2)
    );
    assert!(!page.unreachable_brokers.is_empty());

    let configs = "/api/v1/topics/payments/configs";
    let patch = json!({"set": {"min.insync.replicas": "2"}, "unset": ["retention.ms"]});
    let entries: Page<ConfigEntry> = send(&cluster, other, Method::PATCH, configs, Some(patch))
        .await
        .json()
        .await
        .unwrap();
    let entry = |name: &str| {
        entries
            .items
            .iter()
            .find(|entry| entry.name == name)
            .unwrap()
            .clone()
    };
    assert_eq!(entry("min.insync.replicas").source, ConfigSource::Topic);
    let retention = entry("retention.ms");
    assert_eq!(retention.source, ConfigSource::Default);
    assert_eq!(retention.default, retention.value, "in the same unit");

    let partitions = "/api/v1/topics/payments/partitions";
    let dry = send(
        &cluster,
        other,
        Method::POST,
        partitions,
        Some(json!({"count": 4, "dry_run": true})),
    );
    let report: AddPartitionsReport = dry.await.json().await.unwrap();
    assert!((report.keys_moved - 0.75).abs() < 1e-9);
    let unasked = send(
        &cluster,
        other,
        Method::POST,
        partitions,
        Some(json!({"count": 4})),
    )
    .await;
    let problem: Problem = unasked.json().await.unwrap();
    assert_eq!(
        (problem.code.as_str(), problem.errors[0].pointer.as_str()),
        ("CONFIRMATION_REQUIRED", "/confirm")
    );
    let done = send(
        &cluster,
        other,
        Method::POST,
        partitions,
        Some(json!({"count": 4, "confirm": "payments"})),
    );
    assert_eq!(done.await.status().as_u16(), 200);

    let deleted = send(
        &cluster,
        other,
        Method::DELETE,
        "/api/v1/topics/payments",
        None,
    )
    .await;
    assert_eq!(deleted.status().as_u16(), 204);
    assert_eq!(
        get(&cluster, active, "/api/v1/topics/payments")
            .await
            .status()
            .as_u16(),
        404
    );

    // With one controller left nothing is decided, and health says why.
    let last = other;
    for id in (1..=3).filter(|id| *id != last) {
        cluster.stop_one(id).await;
    }
    let health: Health = get(&cluster, last, "/api/v1/cluster/health")
        .await
        .json()
        .await
        .unwrap();
    assert!(!health.healthy);
    let unreachable = health
        .reasons
        .iter()
        .find(|reason| reason.code == "CONTROLLERS_UNREACHABLE")
        .unwrap();
    assert_eq!(unreachable.count, 2);
    let response = get(&cluster, last, "/api/v1/topics").await;
    assert_eq!(response.status().as_u16(), 503);
    assert!(response.headers().contains_key("retry-after"));
    cluster.stop_one(last).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_problem_names_the_field_and_says_what_to_do() {
    let cluster = Cluster::start(1).await;
    cluster.active().await;
    cluster.join(1).await;
    let post = |path: &'static str, body: Value| (Method::POST, path, Some(body));
    let topics = "/api/v1/topics";
    let rows = [
        (
            post(
                topics,
                json!({"name": "bad name", "partitions": 1, "replication_factor": 1}),
            ),
            400,
            "INVALID_TOPIC",
            Some("/name"),
        ),
        (
            post(topics, json!({"name": "a", "partitions": 0})),
            400,
            "INVALID_PARTITIONS",
            Some("/partitions"),
        ),
        (
            post(topics, json!({"name": "a", "replication_factor": 9})),
            400,
            "INVALID_REPLICATION_FACTOR",
            Some("/replication_factor"),
        ),
        (
            post(
                topics,
                json!({"name": "a", "replication_factor": 1, "configs": {"retention.mz": "1"}}),
            ),
            400,
            "INVALID_CONFIG",
            Some("/configs/retention.mz"),
        ),
        (
            post(topics, json!({"name": "a", "partitions": "three"})),
            400,
            "INVALID_BODY",
            Some("/partitions"),
        ),
        (
            post(topics, json!({"nmae": "a"})),
            400,
            "INVALID_BODY",
            Some("/nmae"),
        ),
        (post(topics, json!({})), 400, "INVALID_BODY", Some("/name")),
        (
            post(topics, json!(["a", 1, 1, {}, false])),
            400,
            "INVALID_BODY",
            None,
        ),
        (
            (Method::GET, "/api/v1/topics/absent", None),
            404,
            "UNKNOWN_TOPIC_OR_PARTITION",
            None,
        ),
        (
            (Method::GET, "/api/v1/topics/absent/partitions/0", None),
            404,
            "UNKNOWN_TOPIC_OR_PARTITION",
            None,
        ),
        (
            (Method::GET, "/api/v1/brokers/77", None),
            404,
            "BROKER_ID_NOT_REGISTERED",
            None,
        ),
        (
            (Method::GET, "/api/v1/brokers/seven", None),
            400,
            "INVALID_PATH",
            None,
        ),
        (
            (Method::GET, "/api/v1/topics?page_size=0", None),
            400,
            "INVALID_QUERY",
            None,
        ),
        (
            (Method::GET, "/api/v1/topics?page_token=ff", None),
            400,
            "INVALID_PAGE_TOKEN",
            None,
        ),
        (
            (Method::GET, "/api/v1/topics?colour=red", None),
            400,
            "INVALID_QUERY",
            None,
        ),
        (
            (Method::GET, "/api/v1/nothing", None),
            404,
            "NOT_FOUND",
            None,
        ),
        (
            (Method::PUT, "/api/v1/topics", None),
            405,
            "METHOD_NOT_ALLOWED",
            None,
        ),
        (
            post(
                "/api/v1/elections",
                json!({"type": "unclean", "partitions": [{"topic": "a", "partition": 0}]}),
            ),
            400,
            "CONFIRMATION_REQUIRED",
            Some("/confirm"),
        ),
        (
            post(
                "/api/v1/elections",
                json!({"type": "unclean", "partitions": [{"topic": "a", "partition": 0}], "confirm": "unclean"}),
            ),
            400,
            "CONFIRMATION_REQUIRED",
            Some("/confirm"),
        ),
        (
            post(
                "/api/v1/elections",
                json!({"type": "unclean", "confirm": "a",
                       "partitions": [{"topic": "a", "partition": 0}, {"topic": "b", "partition": 0}]}),
            ),
            400,
            "INVALID_REQUEST",
            Some("/partitions"),
        ),
        (
            (Method::DELETE, "/api/v1/brokers/77", None),
            404,
            "BROKER_ID_NOT_REGISTERED",
            None,
        ),
        (
            post("/api/v1/brokers/77/drain", json!({})),
            404,
            "BROKER_ID_NOT_REGISTERED",
            None,
        ),
        (
            (
                Method::PATCH,
                "/api/v1/cluster/configs",
                Some(json!({"set": {"num.partitions": "none"}})),
            ),
            400,
            "INVALID_CONFIG",
            Some("/set/num.partitions"),
        ),
    ];
    for ((method, path, body), status, code, pointer) in rows {
        let shown = format!("{method} {path} {body:?}");
        let response = send(&cluster, 1, method, path, body).await;
        assert_eq!(response.status().as_u16(), status, "{shown}");
        assert_eq!(
            response.headers()["content-type"],
            "application/problem+json",
            "{shown}"
        );
        let problem: Problem = response.json().await.unwrap();
        assert_eq!(
            (problem.code.as_str(), problem.status),
            (code, status),
            "{shown}"
        );
        assert_eq!(
            problem.errors.first().map(|error| error.pointer.as_str()),
            pointer,
            "{shown}: {problem:?}"
        );
        assert!(
            !problem.detail.is_empty() && path.starts_with(&problem.instance),
            "{shown}: {problem:?}"
        );
    }

    // A browser that was lured here is refused.
    for (name, value) in [("host", "evil.example"), ("origin", "https://evil.example")] {
        let request = cluster
            .client
            .get(cluster.admin_url(1, topics))
            .header(name, value);
        let response = request.send().await.unwrap();
        assert_eq!(response.status().as_u16(), 403, "{name}");
    }
    let metrics = get(&cluster, 1, "/metrics").await.text().await.unwrap();
    for line in [
        "kafka_controller_kafkacontroller_activecontrollercount 1",
        "kafka_controller_kafkacontroller_lastappliedrecordlagms 0",
        "kafka_controller_controllerstats_uncleanleaderelections_total 0",
        "kafka_controller_controllerstats_electionfromeligibleleaderreplicas_total 0",
        "kafka_server_raftmetrics_current_state{state=\"leader\"} 1",
        "kafka_server_raftmetrics_current_vote 1",
        "kafka_server_raftmetrics_number_of_voters 1",
        "kuorum_topics{acks_durability=\"page.cache\"} 0",
    ] {
        assert!(metrics.contains(line), "{line} in\n{metrics}");
    }
    for name in [
        "process_cpu_seconds_total",
        "process_start_time_seconds",
        "kafka_server_raftmetrics_commit_latency_seconds_count",
    ] {
        let value = metrics
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        assert!(value > Some(0.0), "{name} is {value:?} in\n{metrics}");
    }
    for path in ["/livez", "/readyz"] {
        assert_eq!(
            get(&cluster, 1, path).await.status().as_u16(),
            200,
            "{path}"
        );
    }
    let description: Value = get(&cluster, 1, "/api/v1/openapi.json")
        .await
        .json()
        .await
        .unwrap();
    assert!(description["paths"]["/api/v1/topics/{topic}/partitions"]["post"].is_object());
}
