//! Three controllers: one is elected, decides, is lost, and the others go on.

use kuorum_controller::quorum::{
    HEADER_FROM_DIRECTORY, HEADER_TO_DIRECTORY, PATH_VOTE, controller_name,
};
use kuorum_metadata::control::Command;
use kuorum_metadata::control::CommandReply;
use kuorum_metadata::control::command::CreateTopics;
use kuorum_metadata::record::MetadataRecord;
use kuorum_metadata::rpc::{
    FeedLine, HEADER_CLUSTER_ID, HEADER_FROM, HEADER_TO, HEADER_VERSION, HeartbeatReply,
    PATH_COMMAND, PATH_GOODBYE, PATH_HEARTBEAT, PATH_REGISTER, PATH_SESSION, RegisterReply,
    SessionRequest, VERSION,
};
use kuorum_protocol::BrokerId;

use crate::support::{Cluster, PATIENCE, heartbeat, registration};

fn created(reply: &CommandReply) -> bool {
    matches!(reply, CommandReply::CreateTopics(results) if results.iter().all(|r| r.outcome.is_ok()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_active_controller_is_lost_and_the_others_go_on() {
    let mut cluster = Cluster::start(3).await;
    let first = cluster.active().await;
    let epoch = cluster.join(1).await;
    let reply = cluster.create_topic("before", 3, 1).await;
    assert!(created(&reply), "{reply:?}");

    // Those who are not in office say who is.
    let other = (1..=3).find(|id| *id != first).unwrap();
    let empty = Command::CreateTopics(CreateTopics::default());
    let refused = cluster
        .call::<_, CommandReply>(other, PATH_COMMAND, &empty)
        .await
        .unwrap_err();
    assert_eq!((refused.code, refused.active_controller), (41, Some(first)));

    cluster.stop_one(first).await;
    let second = cluster.active().await;
    assert_ne!(second, first);
    // The new one knows the broker and everything that was decided.
    let answer: HeartbeatReply = cluster.ask(PATH_HEARTBEAT, &heartbeat(1, epoch)).await;
    assert!(!answer.fenced, "a broker outlives a controller");
    let reply = cluster.create_topic("before", 1, 1).await;
    assert!(!created(&reply), "it exists: {reply:?}");
    let reply = cluster.create_topic("after", 3, 1).await;
    assert!(created(&reply), "{reply:?}");

    // The lost one comes back, catches up, and all agree.
    cluster.start_one(first).await;
    let offset = cluster.running[&second].quorum().published().applied_end() - 1;
    cluster.caught_up(offset).await;
    let image = cluster.running[&second].quorum().image();
    assert!(image.topic("before").is_some() && image.topic("after").is_some());
    let back = cluster.running[&first].quorum().image();
    assert_eq!(back.topic("after"), image.topic("after"));

    // Everything stops and starts again in another order.
    for id in 1..=3 {
        cluster.stop_one(id).await;
    }
    for id in [3, 1, 2] {
        cluster.start_one(id).await;
    }
    let third = cluster.active().await;
    let offset = cluster.running[&third].quorum().published().applied_end() - 1;
    cluster.caught_up(offset).await;
    let digests: Vec<u64> = cluster
        .running
        .values()
        .map(|one| one.quorum().image().digest())
        .collect();
    assert!(
        digests.iter().all(|digest| *digest == digests[0]),
        "{digests:?}"
    );
    assert!(
        cluster.running[&third]
            .quorum()
            .image()
            .topic("after")
            .is_some()
    );
    for id in 1..=3 {
        cluster.stop_one(id).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_feed_tells_everything_in_order_and_resumes() {
    let mut cluster = Cluster::start(3).await;
    let active = cluster.active().await;
    let follower = (1..=3).find(|id| *id != active).unwrap();
    let mut feed = cluster.follow(follower, 0).await;
    cluster.join(1).await;
    assert!(created(&cluster.create_topic("fed", 2, 1).await));
    let mut last = -1;
    let mut seen = Vec::new();
    while !seen
        .iter()
        .any(|record| matches!(record, MetadataRecord::Topic { .. }))
    {
        match feed.next().await.expect("the feed goes on") {
            FeedLine::Entry { offset, records } => {
                assert!(offset > last, "{offset} after {last}");
                last = offset;
                seen.extend(records);
            }
            FeedLine::Idle { offset } => assert!(offset >= last),
            FeedLine::Snapshot { .. } => panic!("nothing has been purged"),
        }
    }
    assert!(
        matches!(seen.first(), Some(MetadataRecord::FeatureLevel { .. })),
        "{:?}",
        seen.first()
    );
    let registered = seen.iter().any(|record| {
        matches!(record, MetadataRecord::RegisterBroker(broker) if broker.broker_id == BrokerId(1))
    });
    assert!(registered, "the broker is told of itself");

    // Another controller goes on where this one stopped.
    let mut resumed = cluster.follow(active, last + 1).await;
    match resumed.next().await.expect("the feed goes on") {
        FeedLine::Idle { offset } => assert!(offset >= last),
        FeedLine::Entry { offset, .. } => assert!(offset > last),
        FeedLine::Snapshot { .. } => panic!("nothing has been purged"),
    }
    drop(resumed);
    drop(feed);
    for id in 1..=3 {
        cluster.stop_one(id).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_session_fences_and_a_goodbye_does_not() {
    let cluster = Cluster::start(1).await;
    let active = cluster.active().await;
    let quorum = cluster.running[&active].quorum().clone();
    let fenced = |id| {
        quorum
            .image()
            .broker(BrokerId(id))
            .is_none_or(|broker| broker.fenced)
    };
    for (id, goodbye) in [(1, true), (2, false)] {
        let broker_epoch = cluster.join(id).await;
        let request = SessionRequest {
            broker_id: BrokerId(id),
            broker_epoch,
        };
        let mut session = cluster
            .post(active, PATH_SESSION)
            .json(&request)
            .send()
            .await
            .unwrap();
        assert_eq!(session.chunk().await.unwrap().unwrap(), "\n");
        assert!(!fenced(id));
        if goodbye {
            cluster
                .call::<_, ()>(active, PATH_GOODBYE, &request)
                .await
                .unwrap();
        }
        drop(session);
    }
    let mut applied = quorum.published().watch();
    let broken = applied.wait_for(|_| fenced(2));
    tokio::time::timeout(PATIENCE, broken)
        .await
        .expect("fenced after the grace")
        .unwrap();
    assert!(
        !fenced(1),
        "it had said goodbye, and its session timeout has not passed"
    );
    for controller in cluster.running.into_values() {
        controller.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decisions_made_at_once_see_each_other() {
    let cluster = std::sync::Arc::new(Cluster::start(1).await);
    cluster.active().await;
    cluster.join(1).await;
    // Of many who ask for the same name at once exactly one gets it.
    let mut asking = tokio::task::JoinSet::new();
    for round in 0..40 {
        let cluster = std::sync::Arc::clone(&cluster);
        asking.spawn(async move {
            created(
                &cluster
                    .create_topic(&format!("topic-{}", round % 4), 1, 1)
                    .await,
            )
        });
    }
    let mut granted = 0;
    while let Some(result) = asking.join_next().await {
        granted += usize::from(result.unwrap());
    }
    assert_eq!(granted, 4);
    // Two incarnations of one broker at once never share an epoch.
    let one: RegisterReply = cluster.ask(PATH_REGISTER, &registration(5)).await;
    let mut two = registration(5);
    two.directories = registration(5).directories;
    let two: RegisterReply = cluster.ask(PATH_REGISTER, &two).await;
    assert!(two.broker_epoch > one.broker_epoch);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_formatted_anew_gets_no_vote() {
    let mut cluster = Cluster::start(3).await;
    let active = cluster.active().await;
    cluster.join(1).await;
    let wiped = (1..=3).find(|id| *id != active).unwrap();
    let former = cluster.running[&wiped].quorum().identity().directory_id;
    cluster.stop_one(wiped).await;
    let data = cluster.configs[&wiped].metadata_log_dir.clone();
    std::fs::remove_dir_all(&data).unwrap();
    kuorum_controller::identity::format(&data, crate::support::CLUSTER, wiped).unwrap();
    cluster.start_one(wiped).await;
    // The other two go on.
    assert!(created(&cluster.create_topic("without-it", 1, 1).await));
    // What is meant for its former self is refused, and what it says under its old number too.
    let leader = cluster.active().await;
    let directory = |id: u64| cluster.running[&id].quorum().identity().directory_id;
    for (from, from_directory, to, to_directory) in [
        (leader, directory(leader), wiped, former),
        (wiped, directory(wiped), leader, directory(leader)),
    ] {
        let request = cluster
            .client
            .post(cluster.rpc_url(to, PATH_VOTE))
            .header(HEADER_CLUSTER_ID, crate::support::CLUSTER)
            .header(HEADER_FROM, controller_name(from))
            .header(HEADER_TO, controller_name(to))
            .header(HEADER_VERSION, VERSION)
            .header(HEADER_FROM_DIRECTORY, from_directory.to_string())
            .header(HEADER_TO_DIRECTORY, to_directory.to_string());
        let response = request.body("{}").send().await.unwrap();
        assert_eq!(response.status().as_u16(), 403, "{from} to {to}");
        assert!(response.text().await.unwrap().contains("formatted anew"));
    }
    assert!(!cluster.running[&wiped].quorum().is_initialised());
    for id in 1..=3 {
        cluster.stop_one(id).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_that_was_away_for_long_gets_a_snapshot() {
    let few = [
        ("metadata.log.max.records.between.snapshots", "10"),
        ("metadata.log.kept.after.snapshot", "0"),
    ];
    let mut cluster = Cluster::start_with(3, &few).await;
    let active = cluster.active().await;
    cluster.join(1).await;
    let away = (1..=3).find(|id| *id != active).unwrap();
    let seen = cluster.running[&away].quorum().published().applied_end();
    cluster.stop_one(away).await;
    for round in 0..60 {
        assert!(created(
            &cluster.create_topic(&format!("topic-{round}"), 1, 1).await
        ));
    }
    let leader = cluster.active().await;
    let status = cluster.running[&leader].quorum().status();
    assert!(
        status.log.0 as i64 > seen,
        "{status:?}: the log no longer reaches back"
    );

    // Nor does anybody's memory after a restart: a reader of old offsets begins with the whole image.
    cluster.start_one(away).await;
    cluster.caught_up(status.applied_end - 1).await;
    let mut feed = cluster.follow(away, 0).await;
    match feed.next().await.expect("the feed begins") {
        FeedLine::Snapshot { offset, records } => {
            assert!(offset >= seen);
            let topics = records
                .iter()
                .filter(|r| matches!(r, MetadataRecord::Topic { .. }));
            assert!(topics.count() >= 10);
        }
        other => panic!("{other:?}"),
    }
    drop(feed);
    let digest = |id| cluster.running[&id].quorum().image().digest();
    assert_eq!(digest(away), digest(leader));

    // What was installed is there after another restart.
    cluster.stop_one(away).await;
    cluster.start_one(away).await;
    cluster.caught_up(status.applied_end - 1).await;
    assert!(
        cluster.running[&away]
            .quorum()
            .image()
            .topic("topic-59")
            .is_some()
    );
    for id in 1..=3 {
        cluster.stop_one(id).await;
    }
}
