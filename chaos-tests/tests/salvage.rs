//! The night of the power cut, small: what the old leader has to cut off is set aside on it, and comes back once, whoever dies
//! on the way.

use std::collections::BTreeMap;
use std::ops::Range;
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
#[derive(Clone)]
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

    async fn replay(&self, id: &str, target: &str) -> SalvageReplay {
        let deadline = Instant::now() + SETTLE;
        loop {
            assert!(
                Instant::now() < deadline,
                "{id} is not replayed within {SETTLE:?}"
            );
            let path = format!("/salvage/{id}/replay");
            let into = json!({ "target": target });
            let (status, body) = self.ask(Method::POST, &path, Some(into)).await;
            assert!(status.is_success(), "{body}");
            let replay: SalvageReplay = serde_json::from_value(body).expect("a replay");
            if replay.state == ReplayState::Done {
                return replay;
            }
        }
    }
}

/// How often each id is read, those in `ids` at least.
async fn counts(bootstrap: &str, topic: &str, ids: Range<u64>) -> BTreeMap<u64, usize> {
    let reads = read_all(bootstrap, topic, 1, &AtomicU64::new(0))
        .await
        .expect("the topic can be read");
    let mut counts: BTreeMap<u64, usize> = ids.map(|id| (id, 0)).collect();
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
    let cause = item.cause.expect("the election is remembered");
    let (_, events) = api
        .ask(Method::GET, &format!("/events?after={}", cause - 1), None)
        .await;
    let event = &events["items"][0];
    assert_eq!(event["id"], cause, "{events}");
    assert_eq!(event["type"], "unclean_election");
    assert_eq!(event["details"]["leader_epoch"], item.unclean_epoch);
    let before = counts(&bootstrap, TOPIC, 0..2_100).await;
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

    // Two at once, and the active controller dies afterwards: each record comes back once.
    let (one, two) = tokio::join!(api.replay(&item.id, TOPIC), api.replay(&item.id, TOPIC));
    assert_eq!((one.replayed, &one), (500, &two));
    let active = admin.active_controller().await.expect("one is active");
    cluster.kill(Process::Controller(active)).expect("killed");
    assert_eq!(api.replay(&item.id, TOPIC).await, one, "the first result");
    cluster.start(Process::Controller(active)).expect("started");
    let after = counts(&bootstrap, TOPIC, 0..2_100).await;
    assert!(after.values().all(|count| *count == 1), "{after:?}");

    let story = InPieces {
        cluster: &cluster,
        admin: &admin,
        api: &api,
        item,
    };
    story
        .dies_on_the_way("without-its-controller", async || {
            let active = admin.active_controller().await.expect("one is active");
            cluster.kill(Process::Controller(active)).expect("killed");
            Process::Controller(active)
        })
        .await;
    story
        .dies_on_the_way("without-its-holder", async || {
            cluster.kill(Process::Broker(old)).expect("killed");
            Process::Broker(old)
        })
        .await;

    let (status, deleted) = api.ask(Method::DELETE, &path, None).await;
    assert_eq!(status, StatusCode::OK, "{deleted}");
    assert_eq!(deleted["deleted_from"], json!([old]));
    assert_eq!(api.items().await.0, []);
    assert_eq!(api.replay(&item.id, TOPIC).await, one, "known even now");
}

/// Replays that somebody dies in the middle of.
struct InPieces<'a> {
    cluster: &'a LocalCluster,
    admin: &'a Admin,
    api: &'a Api,
    item: &'a SalvageItem,
}

impl InPieces<'_> {
    /// Replays the item into a new topic in hundreds of pages, has `kill` kill a process after the first of them, and starts
    /// it again. Nobody asks for the replay again: it goes on by itself.
    async fn dies_on_the_way(&self, target: &str, kill: impl AsyncFnOnce() -> Process) {
        let Self {
            cluster,
            admin,
            api,
            item,
        } = self;
        // Two records a page.
        let configs = [("max.message.bytes", "500"), ("min.insync.replicas", "1")];
        admin
            .create_topic(target, 1, &configs)
            .await
            .expect("a topic");
        admin.wait_until_whole(target, SETTLE).await.expect("whole");
        let leader = admin.partition(target, 0).await.expect("it").leader;
        let mut others = (1..=3).filter(|broker| !item.brokers.contains(broker));
        let witness = others
            .find(|broker| leader != Some(*broker))
            .expect("one neither leads nor holds the item");
        let asked = tokio::spawn({
            let (api, id, target) = ((*api).clone(), item.id.clone(), target.to_owned());
            async move { api.replay(&id, &target).await }
        });
        let reached = async || {
            let partition = admin.partition(target, 0).await?;
            Ok::<i64, anyhow::Error>(partition.high_watermark.unwrap_or(0))
        };
        admin
            .wait_until(SETTLE, "the replay has begun", async || {
                Ok(reached().await? > 0)
            })
            .await
            .expect("begun");
        // Without one of the in-sync replicas nothing more is acknowledged, so that it stays in the middle.
        cluster.pause(Process::Broker(witness)).expect("paused");
        let middle = reached().await.expect("the leader answers");
        assert!(
            middle < item.records as i64,
            "{middle} records: the replay was over before anybody died"
        );
        asked.abort();
        let dead = kill().await;
        cluster.resume(Process::Broker(witness)).expect("resumed");
        cluster.start(dead).expect("started");
        let mut seen = None;
        admin
            .wait_until(SETTLE, "the replay is done", async || {
                let items = api.items().await.0;
                let found = items.into_iter().find(|one| one.id == item.id);
                let replays = found.map(|one| one.replays).unwrap_or_default();
                seen = replays.into_iter().find(|replay| replay.target == target);
                Ok(seen
                    .as_ref()
                    .is_some_and(|replay| replay.state == ReplayState::Done))
            })
            .await
            .unwrap_or_else(|error| panic!("{target}: {error}: {seen:?}"));
        let done = seen.expect("it was seen");
        assert_eq!(done.replayed, item.records, "{target}");
        let again = api.replay(&item.id, target).await;
        assert_eq!(again, done, "asked for again");
        admin.wait_until_whole(target, SETTLE).await.expect("whole");
        let bootstrap = cluster.bootstrap().expect("brokers");
        let counts = counts(&bootstrap, target, 1_500..2_000).await;
        assert!(
            counts.len() == 500 && counts.values().all(|count| *count == 1),
            "{target}: {counts:?}"
        );
    }
}
