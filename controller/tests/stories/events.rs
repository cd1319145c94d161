//! What happened, as an operator asks for it and follows it: through a failover, a restart and a snapshot.

use kuorum_admin_api::{EpochPage, Event, EventPage, Problem};
use kuorum_metadata::record::BrokerEventKind;
use kuorum_metadata::rpc::{
    HEADER_CLUSTER_ID, PATH_REPORT_EVENTS, PATH_SESSION, ReportEventsRequest, ReportedEvent,
    SessionRequest,
};
use kuorum_protocol::{BrokerEpoch, BrokerId, LeaderEpoch, Offset, Timestamp};

use crate::support::{CLUSTER, Cluster, PATIENCE};

const EVENTS: &str = "/api/v1/events";

async fn page(cluster: &Cluster, to: u64, query: &str) -> EventPage {
    let url = cluster.admin_url(to, &format!("{EVENTS}{query}"));
    let response = cluster.client.get(&url).timeout(PATIENCE).send().await;
    let response = response.unwrap();
    assert!(
        response.status().is_success(),
        "{url}: {}",
        response.status()
    );
    response.json().await.unwrap()
}

/// Everything a controller tells, by small pages.
async fn all(cluster: &Cluster, to: u64) -> Vec<Event> {
    let mut items = Vec::new();
    let mut query = "?page_size=3".to_owned();
    loop {
        let page = page(cluster, to, &query).await;
        items.extend(page.items);
        match page.next_page_token {
            None => return items,
            Some(token) => query = format!("?page_size=3&page_token={token}"),
        }
    }
}

fn kinds(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.kind.as_str()).collect()
}

/// A stream of events, read frame by frame.
struct Follow {
    response: reqwest::Response,
    buffer: String,
    last_id: String,
}

/// One frame: its `event:` and its `data:`.
type Frame = (String, String);

impl Follow {
    async fn open(cluster: &Cluster, to: u64, query: &str, last_id: Option<&str>) -> Self {
        let url = cluster.admin_url(to, &format!("{EVENTS}{query}"));
        let mut request = cluster
            .client
            .get(url)
            .header("accept", "text/event-stream");
        if let Some(id) = last_id {
            request = request.header("last-event-id", id);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status().as_u16(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self {
            response,
            buffer: String::new(),
            last_id: String::new(),
        }
    }

    /// The next frame with data; ids of others are kept. `None` when the stream has ended.
    async fn frame(&mut self) -> Option<Frame> {
        loop {
            while let Some((frame, rest)) = self.buffer.split_once("\n\n") {
                let (mut event, mut data) = (String::new(), String::new());
                for line in frame.lines() {
                    if let Some(id) = line.strip_prefix("id: ") {
                        id.clone_into(&mut self.last_id);
                    } else if let Some(name) = line.strip_prefix("event: ") {
                        name.clone_into(&mut event);
                    } else if let Some(text) = line.strip_prefix("data: ") {
                        data.push_str(text);
                    }
                }
                self.buffer = rest.to_owned();
                if !data.is_empty() {
                    return Some((event, data));
                }
            }
            let chunk = tokio::time::timeout(PATIENCE, self.response.chunk());
            let chunk = chunk.await.expect("a frame").ok()??;
            self.buffer.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    async fn event(&mut self) -> Option<Event> {
        let (name, data) = self.frame().await?;
        assert_eq!(name, "", "{data}");
        Some(serde_json::from_str(&data).unwrap())
    }

    /// Reads until an event of a kind, that one included.
    async fn until(&mut self, kind: &str) -> Vec<Event> {
        let mut events = Vec::new();
        loop {
            let event = self.event().await.expect("the stream goes on");
            let found = event.kind == kind;
            events.push(event);
            if found {
                return events;
            }
        }
    }
}

async fn report(cluster: &Cluster, broker: i32, epoch: BrokerEpoch, topic: &str, number: u64) {
    let active = cluster.active().await;
    let image = cluster.running[&active].quorum().image();
    let request = ReportEventsRequest {
        broker_id: BrokerId(broker),
        broker_epoch: epoch,
        events: vec![ReportedEvent {
            number,
            at: Timestamp(7),
            topic_id: image.topic(topic).unwrap().id,
            partition: 0,
            what: BrokerEventKind::ReplicaTruncated {
                from: Offset(200),
                to: Offset(150),
                epoch: Some(LeaderEpoch(0)),
                leader_epoch: LeaderEpoch(1),
                unclean: true,
            },
        }],
    };
    let () = cluster.ask(PATH_REPORT_EVENTS, &request).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_goes_on_at_another_controller_with_the_same_ids() {
    let mut cluster = Cluster::start(3).await;
    let first = cluster.active().await;
    // Of the whole history; another one listens to a single topic, and one never reads.
    let mut follow = Follow::open(&cluster, first, "?after=0", None).await;
    let mut topic = Follow::open(&cluster, first, "?topic=wanted&since=0", None).await;
    let mut deaf = Follow::open(&cluster, first, "?after=0", None).await;

    let epoch = cluster.join(1).await;
    cluster.join(2).await;
    cluster.create_topic("wanted", 1, 2).await;
    cluster.create_topic("other", 1, 2).await;
    let mut seen = follow.until("topic_created").await;
    assert_eq!(
        kinds(&seen)[..4],
        [
            "feature_finalized",
            "controller_changed",
            "broker_registered",
            "broker_unfenced"
        ]
    );
    let wanted = topic.event().await.unwrap();
    assert_eq!(
        (wanted.topic.as_deref(), &wanted),
        (Some("wanted"), seen.last().unwrap())
    );
    assert_eq!(wanted.details["partitions"], 1);

    // The active controller is lost; the stream ends, and goes on elsewhere after the last event seen.
    let last_id = follow.last_id.clone();
    cluster.stop_one(first).await;
    let second = cluster.active().await;
    let third = (1..=3).find(|id| ![first, second].contains(id)).unwrap();
    report(&cluster, 1, epoch, "wanted", 1).await;
    report(&cluster, 1, epoch, "wanted", 1).await;
    let ends = async { while follow.frame().await.is_some() {} };
    tokio::time::timeout(PATIENCE, ends).await.expect("it ends");
    for id in [second, third] {
        let mut follow = Follow::open(&cluster, id, "", Some(&last_id)).await;
        let more = follow.until("replica_truncated").await;
        assert_eq!(
            kinds(&more)[..2],
            ["topic_created", "controller_changed"],
            "at controller {id}"
        );
        let truncated = more.last().unwrap();
        assert_eq!(
            truncated.message,
            "wanted-0: broker 1 cut 50 offsets, [150, 200)"
        );
        assert_eq!((truncated.broker, truncated.partition), (Some(1), Some(0)));
        assert_eq!(truncated.details["happened_at_ms"], 7);
        if id == second {
            seen.extend(more);
        } else {
            assert!(seen.ends_with(&more), "the same events under the same ids");
        }
    }
    assert!(seen.windows(2).all(|pair| pair[0].id < pair[1].id));
    assert!(
        seen.iter()
            .all(|event| event.at_ms > 0 && event.id < 1 << 53)
    );

    // Both tell the same history as a list, which is asked of the active one; the report sent twice is in it once.
    cluster.start_one(first).await;
    let end = cluster.running[&second].quorum().published().applied_end() - 1;
    cluster.caught_up(end).await;
    for id in 1..=3 {
        assert_eq!(all(&cluster, id).await, seen, "controller {id}");
    }
    // And the one that was started again knows it by itself.
    let mut again = Follow::open(&cluster, first, "?after=0", None).await;
    for event in &seen {
        assert_eq!(again.event().await.as_ref(), Some(event));
    }
    // Whoever does not read has kept nobody from anything.
    assert!(deaf.event().await.is_some());
    for id in 1..=3 {
        cluster.stop_one(id).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_dropped_is_told_and_a_snapshot_brings_what_was_kept() {
    let few = [
        ("metadata.log.max.records.between.snapshots", "10"),
        ("metadata.log.kept.after.snapshot", "0"),
        ("metadata.events.max.count", "25"),
    ];
    let mut cluster = Cluster::start_with(3, &few).await;
    let active = cluster.active().await;
    cluster.join(1).await;
    let away = (1..=3).find(|id| *id != active).unwrap();
    cluster.stop_one(away).await;
    for round in 0..60 {
        cluster.create_topic(&format!("topic-{round}"), 1, 1).await;
    }
    cluster.start_one(away).await;
    let leader = cluster.active().await;
    let end = cluster.running[&leader].quorum().published().applied_end() - 1;
    cluster.caught_up(end).await;
    let known = |id: u64| {
        cluster.running[&id]
            .quorum()
            .published()
            .with_history(|history| history.events().map(|event| event.id).collect::<Vec<_>>())
    };
    assert_eq!(known(away), known(leader));

    let list = page(&cluster, leader, "?type=topic_created").await;
    assert_eq!(list.items.len(), 25);
    assert_eq!(list.items[24].topic.as_deref(), Some("topic-59"));
    assert!(list.dropped_through > 0 && list.dropped_through < list.items[0].id);
    let mut follow = Follow::open(&cluster, away, "", Some("1")).await;
    let (name, data) = follow.frame().await.unwrap();
    assert_eq!(name, "reset");
    let expected = format!(
        "{{\"asked_after\":1,\"dropped_through\":{}}}",
        list.dropped_through
    );
    assert_eq!(data, expected);
    for event in &list.items {
        assert_eq!(follow.event().await.as_ref(), Some(event));
    }
    // Newest first, by pages.
    let newest = page(&cluster, leader, "?order=desc&page_size=2").await;
    assert_eq!(newest.items[0], list.items[24]);
    let token = newest.next_page_token.unwrap();
    let query = format!("?order=desc&page_size=2&page_token={token}");
    assert_eq!(
        page(&cluster, leader, &query).await.items[0],
        list.items[22]
    );
    for id in 1..=3 {
        cluster.stop_one(id).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partitions_epochs_and_what_is_refused() {
    let cluster = Cluster::start(1).await;
    cluster.active().await;
    let mut sessions = Vec::new();
    for broker_id in [1, 2].map(BrokerId) {
        let broker_epoch = cluster.join(broker_id.0).await;
        let request = SessionRequest {
            broker_id,
            broker_epoch,
        };
        let session = cluster.post(1, PATH_SESSION).json(&request).send().await;
        sessions.push(session.unwrap());
    }
    cluster.create_topic("led", 1, 2).await;
    let mut follow = Follow::open(&cluster, 1, "?type=leader_changed,isr_shrunk", None).await;
    let image = cluster.running[&1].quorum().image();
    let topic = image.topic("led").unwrap();
    let leader = topic.partition(0).unwrap().leader.unwrap().0;
    // Its stream breaks: it is fenced after the grace.
    drop(sessions.remove(leader as usize - 1));
    let changed = follow.event().await.unwrap();
    assert_eq!(changed.kind, "leader_changed");
    assert_eq!(changed.cause, "broker fenced: session stream broken");
    assert_eq!(changed.details["previous_leader"], leader);
    assert_eq!(changed.details["leader"], 3 - leader);
    assert_eq!(follow.event().await.unwrap().kind, "isr_shrunk");
    let about = page(&cluster, 1, &format!("?broker={leader}&order=desc")).await;
    assert_eq!(
        kinds(&about.items)[..3],
        ["isr_shrunk", "leader_changed", "broker_fenced"]
    );

    let get = |path: String| cluster.client.get(cluster.admin_url(1, &path)).send();
    let response = get("/api/v1/topics/led/partitions/0/epochs".to_owned()).await;
    let epochs: EpochPage = response.unwrap().json().await.unwrap();
    let leaders: Vec<_> = epochs
        .items
        .iter()
        .map(|epoch| (epoch.epoch, epoch.leader, epoch.cause.as_deref()))
        .collect();
    assert_eq!(
        leaders,
        [
            (0, Some(leader), Some("topic created")),
            (
                1,
                Some(3 - leader),
                Some("broker fenced: session stream broken")
            ),
        ]
    );
    assert_eq!(epochs.items[1].event_id, Some(changed.id));
    assert_eq!(epochs.items[1].since_ms, Some(changed.at_ms));
    // The brokers of this story serve nothing.
    assert_eq!(epochs.unreachable_brokers, [3 - leader]);
    assert_eq!(epochs.items[0].start_offset, None);

    for (path, accept, last_id, status, names) in [
        (
            "?type=leader_changed,nonsense",
            "*/*",
            None,
            400,
            "nonsense",
        ),
        ("?partition=1", "*/*", None, 400, "topic"),
        ("?colour=red", "*/*", None, 400, "colour"),
        ("?since=yesterday", "*/*", None, 400, "invalid digit"),
        ("?after=-1", "*/*", None, 400, "after"),
        ("?order=up", "*/*", None, 400, "order"),
        ("?page_size=5", "text/event-stream", None, 400, "page_size"),
        ("", "text/event-stream", Some("x"), 400, "Last-Event-ID"),
    ] {
        let mut request = cluster
            .client
            .get(cluster.admin_url(1, &format!("{EVENTS}{path}")))
            .header("accept", accept);
        if let Some(id) = last_id {
            request = request.header("last-event-id", id);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status().as_u16(), status, "{path} {accept}");
        let problem: Problem = response.json().await.unwrap();
        assert_eq!(problem.code, "INVALID_QUERY", "{path}");
        assert!(problem.detail.contains(names), "{path}: {}", problem.detail);
    }
    for path in ["absent/partitions/0", "led/partitions/7"] {
        let response = get(format!("/api/v1/topics/{path}/epochs")).await.unwrap();
        assert_eq!(response.status().as_u16(), 404, "{path}");
    }

    // A report of nobody's is refused, and so is one with nonsense in it.
    let response = cluster
        .post(1, PATH_REPORT_EVENTS)
        .header(HEADER_CLUSTER_ID, CLUSTER)
        .json(&ReportEventsRequest {
            broker_id: BrokerId(9),
            broker_epoch: BrokerEpoch(1),
            events: Vec::new(),
        });
    let text = response.send().await.unwrap().text().await.unwrap();
    assert!(text.contains("broker 9 is not registered"), "{text}");
    drop(follow);
    for controller in cluster.running.into_values() {
        controller.stop().await;
    }
}
