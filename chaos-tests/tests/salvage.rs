//! The night of the power cut, small: what the old leader has to cut off is set aside on it, and comes back once.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use kuorum_admin_api::{ReplayState, SalvageItem, SalvagePage, SalvageReplay};
use kuorum_chaos_tests::admin::Admin;
use kuorum_chaos_tests::cluster::{LocalCluster, Process};
use kuorum_chaos_tests::workload::{Progress, Stream, read_all, write};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

const SETTLE: Duration = Duration::from_secs(90);
/// Between two rounds of asking every controller.
const BETWEEN_TRIES: Duration = Duration::from_millis(50);
const TOPIC: &str = "telemetry-logs";

/// Whichever controller answers.
struct Api {
    controllers: Vec<String>,
    http: reqwest::Client,
}

impl Api {
    async fn ask(&self, method: Method, path: &str, body: Option<Value>) -> (StatusCode, Value) {
        let deadline = Instant::now() + SETTLE;
        loop {
            for controller in &self.controllers {
                let url = format!("{controller}/api/v1{path}");
                let mut request = self.http.request(method.clone(), url);
                if let Some(body) = &body {
                    request = request
                        .header("content-type", "application/json")
                        .body(body.to_string());
                }
                let Ok(response) = request.send().await else {
                    continue;
                };
                let status = response.status();
                if status != StatusCode::SERVICE_UNAVAILABLE {
                    let text = response.text().await.expect("an answer");
                    return (status, serde_json::from_str(&text).unwrap_or(Value::Null));
                }
            }
            assert!(
                Instant::now() < deadline,
                "no controller answers {path} within {SETTLE:?}"
            );
            tokio::time::sleep(BETWEEN_TRIES).await;
        }
    }

    async fn items(&self) -> (Vec<SalvageItem>, Vec<i32>) {
        let (status, body) = self.ask(Method::GET, "/salvage", None).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        let page: SalvagePage = serde_json::from_value(body).expect("a page");
        (page.items, page.unreachable_brokers)
    }

    async fn replay(&self, id: &str) -> SalvageReplay {
        let deadline = Instant::now() + SETTLE;
        loop {
            assert!(
                Instant::now() < deadline,
                "{id} is not replayed within {SETTLE:?}"
            );
            let path = format!("/salvage/{id}/replay");
            let (status, body) = self.ask(Method::POST, &path, None).await;
            assert!(status.is_success(), "{body}");
            let replay: SalvageReplay = serde_json::from_value(body).expect("a replay");
            if replay.state == ReplayState::Done {
                return replay;
            }
        }
    }
}

/// How often each id in `[0, upto)` is read.
async fn counts(bootstrap: &str, upto: u64) -> BTreeMap<u64, usize> {
    let reads = read_all(bootstrap, TOPIC, 1, &AtomicU64::new(0))
        .await
        .expect("the topic can be read");
    let mut counts: BTreeMap<u64, usize> = (0..upto).map(|id| (id, 0)).collect();
    for read in reads {
        *counts.entry(read.id).or_default() += 1;
    }
    counts
}

async fn produce(bootstrap: &str, first: u64, count: u64) {
    let stream = Stream {
        topic: TOPIC.to_owned(),
        first,
        count,
        rate: None,
    };
    let progress = Progress::default();
    write(bootstrap, stream, progress.clone())
        .await
        .expect("the stream is written");
    assert_eq!(progress.acknowledged(), count, "all were acknowledged");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_unclean_election_cut_off_comes_back_once() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let binaries = LocalCluster::built_binaries().expect("this test is a program");
    let cluster = LocalCluster::at(folder.path().join("cluster"), 26_092, binaries).for_test();
    cluster.up("").expect("the cluster comes up");
    let admin = Admin::new(cluster.admin().expect("controllers")).expect("a client");
    let bootstrap = cluster.bootstrap().expect("brokers");
    let api = Api {
        controllers: cluster.admin().expect("controllers"),
        http: reqwest::Client::builder()
            .no_proxy()
            .timeout(Duration::from_secs(30))
            .build()
            .expect("a client"),
    };
    let configs = [
        ("unclean.leader.election.enable", "true"),
        ("min.insync.replicas", "1"),
    ];
    admin
        .create_topic(TOPIC, 1, &configs)
        .await
        .expect("a topic");
    produce(&bootstrap, 0, 1_500).await;
    admin.wait_until_whole(TOPIC, SETTLE).await.expect("whole");

    let old = admin
        .partition(TOPIC, 0)
        .await
        .expect("it")
        .leader
        .expect("led");
    let others: Vec<i32> = (1..=3).filter(|broker| *broker != old).collect();
    for broker in &others {
        cluster.kill(Process::Broker(*broker)).expect("killed");
    }
    admin
        .wait_until(SETTLE, "the old leader is alone", async || {
            let partition = admin.partition(TOPIC, 0).await?;
            Ok(partition.leader == Some(old) && partition.isr == [old])
        })
        .await
        .expect("alone");
    produce(&bootstrap, 1_500, 500).await;
    cluster.kill(Process::Broker(old)).expect("killed");
    cluster.start(Process::Broker(others[0])).expect("started");
    admin
        .wait_until(SETTLE, "a replica that lacks records leads", async || {
            Ok(admin.partition(TOPIC, 0).await?.leader == Some(others[0]))
        })
        .await
        .expect("an unclean election");
    produce(&bootstrap, 2_000, 100).await;
    let (items, unreachable) = api.items().await;
    assert_eq!(items, [], "nothing was cut yet");
    assert!(unreachable.contains(&old), "{unreachable:?}");

    for broker in [old, others[1]] {
        cluster.start(Process::Broker(broker)).expect("started");
    }
    admin.wait_until_whole(TOPIC, SETTLE).await.expect("whole");
    let mut found = Vec::new();
    admin
        .wait_until(SETTLE, "an item is set aside", async || {
            found = api.items().await.0;
            Ok(!found.is_empty())
        })
        .await
        .expect("an item");
    let [item] = found.as_slice() else {
        panic!("{found:?}");
    };
    assert_eq!((item.first_offset, item.end_offset), (1_500, 2_000));
    assert_eq!((item.records, item.complete), (500, true));
    assert_eq!((item.topic.as_str(), item.partition), (TOPIC, 0));
    assert_eq!(item.brokers, [old]);
    let before = counts(&bootstrap, 2_100).await;
    for (id, count) in &before {
        assert_eq!(*count, usize::from(!(1_500..2_000).contains(id)), "{id}");
    }

    let path = format!("/salvage/{}", item.id);
    let (_, records) = api
        .ask(Method::GET, &format!("{path}/records?page_size=2"), None)
        .await;
    assert_eq!(records["items"][1]["offset"], 1_501);
    assert!(records["next_page_token"].is_string(), "{records}");
    let (status, problem) = api
        .ask(
            Method::POST,
            &format!("{path}/replay"),
            Some(json!({ "target": "nowhere" })),
        )
        .await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert_eq!(problem["errors"][0]["pointer"], "/target", "{problem}");
    for (method, path) in [
        (Method::GET, format!("{path}9")),
        (Method::POST, "/salvage/nothing/replay".to_owned()),
        (Method::DELETE, format!("{path}9")),
    ] {
        let (status, problem) = api.ask(method, &path, None).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{path}: {problem}");
        assert_eq!(problem["code"], "RESOURCE_NOT_FOUND");
    }

    // Two at once, and the active controller dies on the way: each record comes back once.
    let (one, two) = tokio::join!(api.replay(&item.id), api.replay(&item.id));
    assert_eq!((one.replayed, &one), (500, &two));
    let (_, quorum) = api.ask(Method::GET, "/quorum", None).await;
    let active = quorum["leader"].as_i64().expect("a leader") as i32;
    cluster.kill(Process::Controller(active)).expect("killed");
    assert_eq!(api.replay(&item.id).await, one, "the first result");
    cluster.start(Process::Controller(active)).expect("started");
    let after = counts(&bootstrap, 2_100).await;
    assert!(after.values().all(|count| *count == 1), "{after:?}");

    let (status, deleted) = api.ask(Method::DELETE, &path, None).await;
    assert_eq!(status, StatusCode::OK, "{deleted}");
    assert_eq!(deleted["deleted_from"], json!([old]));
    assert_eq!(api.items().await.0, []);
    assert_eq!(api.replay(&item.id).await, one, "known even now");
}
