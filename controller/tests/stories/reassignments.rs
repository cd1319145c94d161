//! Reassignment as an operator meets it: planned, begun, watched, taken back, and refused.

use kuorum_admin_api::{Problem, ReassignmentPage, ReassignmentReport, Topic};
use reqwest::Method;
use serde_json::{Value, json};

use crate::admin::{get, send};
use crate::support::Cluster;

const PATH: &str = "/api/v1/reassignments";

async fn moving(cluster: &Cluster) -> ReassignmentPage {
    get(cluster, 1, PATH).await.json().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_is_planned_begun_watched_and_taken_back() {
    let cluster = Cluster::start(1).await;
    cluster.active().await;
    cluster.join(1).await;
    cluster.create_topic("payments", 2, 1).await;
    cluster.join(2).await;

    let plan = json!({"topics": ["payments"], "brokers": [2], "throttle": 1000, "dry_run": true});
    let response = send(&cluster, 1, Method::POST, PATH, Some(plan)).await;
    assert_eq!(response.status().as_u16(), 200);
    let plan: ReassignmentReport = response.json().await.unwrap();
    assert!(plan.dry_run && plan.items.len() == 2, "{plan:?}");
    assert_eq!(
        (&plan.items[0].adding, &plan.items[0].removing),
        (&vec![2], &vec![1])
    );
    assert!(
        moving(&cluster).await.items.is_empty(),
        "a plan changes nothing"
    );

    let run = json!({"topics": ["payments"], "brokers": [2], "throttle": 1000});
    let response = send(&cluster, 1, Method::POST, PATH, Some(run)).await;
    assert_eq!(response.status().as_u16(), 202);
    let page = moving(&cluster).await;
    assert_eq!((page.items.len(), page.throttle), (2, Some(1000)));
    let first = &page.items[0];
    assert_eq!(
        (&first.replicas, &first.target, &first.original),
        (&vec![2, 1], &vec![2], &vec![1])
    );
    // The leader is a registration without a broker behind it: nobody says how far it is.
    let progress = &first.progress[0];
    assert_eq!((progress.broker, progress.in_sync), (2, false));
    assert_eq!(
        (progress.lag, progress.bytes_remaining, first.size_bytes),
        (None, None, None)
    );
    assert_eq!(page.unreachable_brokers, [1]);
    let topic: Topic = get(&cluster, 1, "/api/v1/topics/payments")
        .await
        .json()
        .await
        .unwrap();
    assert_eq!(topic.replication_factor, 1, "as many as there are to be");

    // The same again with another limit: nothing is begun, and what is under way goes on at the new rate.
    let again = json!({"topics": ["payments"], "brokers": [2], "throttle": 2000});
    let response = send(&cluster, 1, Method::POST, PATH, Some(again)).await;
    assert_eq!(response.status().as_u16(), 202);
    let report: ReassignmentReport = response.json().await.unwrap();
    assert_eq!(report.items.len(), 2, "{report:?}");
    for item in &report.items {
        assert!(item.under_way, "{item:?}");
        assert_eq!((&item.before, &item.replicas), (&vec![1], &vec![2]));
        assert_eq!((&item.adding, &item.removing), (&vec![2], &vec![1]));
    }
    let page = moving(&cluster).await;
    assert_eq!((page.items.len(), page.throttle), (2, Some(2000)));

    let second_page = get(&cluster, 1, &format!("{PATH}?page_size=1")).await;
    let page: ReassignmentPage = second_page.json().await.unwrap();
    let token = page.next_page_token.expect("one more");
    let path = format!("{PATH}?page_size=1&page_token={token}");
    let page: ReassignmentPage = get(&cluster, 1, &path).await.json().await.unwrap();
    assert_eq!((page.items[0].partition, page.next_page_token), (1, None));

    for index in 0..2 {
        let path = format!("{PATH}/payments/{index}");
        let response = send(&cluster, 1, Method::DELETE, &path, None).await;
        assert_eq!(response.status().as_u16(), 204);
    }
    let page = moving(&cluster).await;
    assert_eq!(
        (page.items.len(), page.throttle),
        (0, None),
        "and the throttle is gone"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_move_names_the_field_and_changes_nothing() {
    let cluster = Cluster::start(1).await;
    cluster.active().await;
    for id in 1..=3 {
        cluster.join(id).await;
    }
    cluster.create_topic("payments", 2, 2).await;
    let one = |replicas: Value| json!({"partitions": [{"topic": "payments", "partition": 0, "replicas": replicas}]});
    let post = |body: Value| (Method::POST, PATH, Some(body));
    let replicas = Some("/partitions/0/replicas");
    let rows = [
        (
            post(one(json!([1, 9]))),
            400,
            "INVALID_REPLICA_ASSIGNMENT",
            replicas,
        ),
        (
            post(one(json!([1, 1]))),
            400,
            "INVALID_REPLICA_ASSIGNMENT",
            replicas,
        ),
        (
            post(one(json!([]))),
            400,
            "INVALID_REPLICA_ASSIGNMENT",
            replicas,
        ),
        (
            post(one(json!([3]))),
            400,
            "INVALID_REPLICATION_FACTOR",
            replicas,
        ),
        (
            post(one(json!("3"))),
            400,
            "INVALID_BODY",
            Some("/partitions/0/replicas"),
        ),
        (post(json!({})), 400, "INVALID_REQUEST", Some("/partitions")),
        (
            post(json!({"partitions": []})),
            400,
            "INVALID_REQUEST",
            Some("/partitions"),
        ),
        (
            post(json!({"topics": ["payments"]})),
            400,
            "INVALID_REQUEST",
            Some("/brokers"),
        ),
        (
            post(json!({"brokers": [1, 2]})),
            400,
            "INVALID_REQUEST",
            Some("/topics"),
        ),
        (
            post(json!({"topics": ["payments"], "brokers": [1]})),
            400,
            "INVALID_REPLICA_ASSIGNMENT",
            Some("/brokers"),
        ),
        (
            post(json!({"topics": ["payments"], "brokers": [1, 1]})),
            400,
            "INVALID_REPLICA_ASSIGNMENT",
            Some("/brokers"),
        ),
        (
            post(json!({"topics": ["payments"], "brokers": [1, 9]})),
            400,
            "INVALID_REPLICA_ASSIGNMENT",
            Some("/brokers"),
        ),
        (
            post(json!({"topics": ["absent"], "brokers": [1]})),
            404,
            "UNKNOWN_TOPIC_OR_PARTITION",
            Some("/topics"),
        ),
        (
            post(
                json!({"throttle": 0, "partitions": [{"topic": "payments", "partition": 0, "replicas": [3, 1]}]}),
            ),
            400,
            "INVALID_REQUEST",
            Some("/throttle"),
        ),
        (
            // One that could be, and one that cannot: neither is.
            post(json!({"partitions": [
                {"topic": "payments", "partition": 0, "replicas": [3, 1]},
                {"topic": "payments", "partition": 7, "replicas": [3, 1]},
            ]})),
            404,
            "UNKNOWN_TOPIC_OR_PARTITION",
            Some("/partitions/1"),
        ),
        (
            post(json!({"partitions": [
                {"topic": "payments", "partition": 0, "replicas": [3, 1]},
                {"topic": "payments", "partition": 0, "replicas": [3, 2]},
            ]})),
            400,
            "INVALID_REQUEST",
            Some("/partitions/1"),
        ),
        (
            (Method::DELETE, "/api/v1/reassignments/payments/0", None),
            404,
            "NO_REASSIGNMENT_IN_PROGRESS",
            None,
        ),
        (
            (Method::DELETE, "/api/v1/reassignments/absent/0", None),
            404,
            "UNKNOWN_TOPIC_OR_PARTITION",
            None,
        ),
    ];
    for ((method, path, body), status, code, pointer) in rows {
        let shown = format!("{method} {path} {body:?}");
        let response = send(&cluster, 1, method, path, body).await;
        assert_eq!(response.status().as_u16(), status, "{shown}");
        let problem: Problem = response.json().await.unwrap();
        assert_eq!(problem.code, code, "{shown}: {problem:?}");
        let named = problem.errors.first().map(|error| error.pointer.as_str());
        assert_eq!(named, pointer, "{shown}: {problem:?}");
        assert_eq!(problem.instance, path, "{shown}");
    }
    assert!(moving(&cluster).await.items.is_empty());
    let description: Value = get(&cluster, 1, "/api/v1/openapi.json")
        .await
        .json()
        .await
        .unwrap();
    assert!(description["paths"][PATH]["post"].is_object());
}
