//! Who leads, as an operator meets it: drained, given back, and elected uncleanly by hand.

use kuorum_admin_api::{Broker, BrokerState, ElectionReport, Health, PartitionPage, Problem};
use kuorum_metadata::rpc::{HeartbeatReply, PATH_HEARTBEAT, PATH_SESSION, SessionRequest};
use kuorum_protocol::{BrokerEpoch, BrokerId};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::support::{Cluster, PATIENCE, heartbeat};

async fn get<T: DeserializeOwned>(cluster: &Cluster, path: &str) -> T {
    let url = cluster.admin_url(cluster.active().await, path);
    let response = cluster
        .client
        .get(url)
        .timeout(PATIENCE)
        .send()
        .await
        .unwrap();
    response.json().await.unwrap()
}

async fn post(cluster: &Cluster, path: &str, body: Value) -> reqwest::Response {
    let url = cluster.admin_url(cluster.active().await, path);
    let request = cluster.client.post(url).timeout(PATIENCE).json(&body);
    request.send().await.unwrap()
}

async fn beat(cluster: &Cluster, id: i32, epoch: BrokerEpoch) {
    let _: HeartbeatReply = cluster.ask(PATH_HEARTBEAT, &heartbeat(id, epoch)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drained_broker_leads_nothing_until_it_is_undrained() {
    let mut cluster =
        Cluster::start_with(3, &[("leader.imbalance.check.interval.seconds", "1")]).await;
    let epochs = [(1, cluster.join(1).await), (2, cluster.join(2).await)];
    cluster.create_topic("payments", 4, 2).await;
    let before: Broker = get(&cluster, "/api/v1/brokers/1").await;
    assert_eq!((before.state, before.leaders), (BrokerState::Active, 2));

    let drained = post(&cluster, "/api/v1/brokers/1/drain", json!({})).await;
    assert_eq!(drained.status().as_u16(), 200);
    let drained: Broker = drained.json().await.unwrap();
    assert_eq!(
        (
            drained.state,
            drained.draining,
            drained.leaders,
            drained.in_sync
        ),
        (BrokerState::Draining, true, 0, 4)
    );

    // Another controller knows it too.
    let active = cluster.active().await;
    cluster.stop_one(active).await;
    for (id, epoch) in epochs {
        beat(&cluster, id, epoch).await;
    }
    let after: Broker = get(&cluster, "/api/v1/brokers/1").await;
    assert_eq!((after.state, after.leaders), (BrokerState::Draining, 0));

    // And gives leadership back by itself once that is over.
    let undrained = post(&cluster, "/api/v1/brokers/1/undrain", json!({})).await;
    assert_eq!(undrained.status().as_u16(), 200);
    let quorum = cluster.running[&cluster.active().await].quorum().clone();
    let mut applied = quorum.published().watch();
    let leads = || {
        let image = quorum.image();
        let leads = image.partitions();
        leads
            .filter(|(_, _, partition)| partition.leader == Some(BrokerId(1)))
            .count()
    };
    let given_back = applied.wait_for(|_| leads() == 2);
    tokio::time::timeout(PATIENCE, given_back)
        .await
        .expect("given back within the interval")
        .unwrap();
    for controller in cluster.running.into_values() {
        controller.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unclean_election_by_hand_is_confirmed_by_name_and_tells_the_loss() {
    let cluster = Cluster::start(1).await;
    let active = cluster.active().await;
    let epochs = [cluster.join(1).await, cluster.join(2).await];
    cluster.create_topic("payments", 1, 2).await;
    let quorum = cluster.running[&active].quorum().clone();
    let partition = || {
        quorum
            .image()
            .topic("payments")
            .unwrap()
            .partition(0)
            .unwrap()
            .clone()
    };
    let leader = partition().leader.unwrap().0;
    let other = 3 - leader;
    // The follower falls out of sync, and then the leader dies.
    let mut out = heartbeat(other, epochs[other as usize - 1]);
    out.want_fence = true;
    let _: HeartbeatReply = cluster.ask(PATH_HEARTBEAT, &out).await;
    beat(&cluster, other, epochs[other as usize - 1]).await;
    assert_eq!(partition().isr, [BrokerId(leader)]);
    let request = SessionRequest {
        broker_id: BrokerId(leader),
        broker_epoch: epochs[leader as usize - 1],
    };
    let session = cluster
        .post(active, PATH_SESSION)
        .json(&request)
        .send()
        .await
        .unwrap();
    drop(session);
    let mut applied = quorum.published().watch();
    let dead = applied.wait_for(|_| partition().leader.is_none());
    tokio::time::timeout(PATIENCE, dead)
        .await
        .expect("fenced")
        .unwrap();

    let health: Health = get(&cluster, "/api/v1/cluster/health").await;
    let code = "LEADERLESS_PARTITIONS";
    let reason = health
        .reasons
        .iter()
        .find(|reason| reason.code == code)
        .unwrap();
    assert!(
        reason.cause.contains(&format!("broker {leader} is fenced")),
        "{reason:?}"
    );
    assert!(
        reason.cure.contains(&format!("start broker {leader}")),
        "{reason:?}"
    );
    assert!(
        reason.cure.contains("--type unclean --topic payments"),
        "{reason:?}"
    );

    let mut body =
        json!({"type": "unclean", "partitions": [{"topic": "payments", "partition": 0}]});
    let refused = post(&cluster, "/api/v1/elections", body.clone()).await;
    assert_eq!(refused.status().as_u16(), 400);
    let problem: Problem = refused.json().await.unwrap();
    assert_eq!(problem.errors[0].pointer, "/confirm");
    assert_eq!(partition().leader, None, "nothing was changed");

    body["confirm"] = json!("payments");
    let done = post(&cluster, "/api/v1/elections", body.clone()).await;
    assert_eq!(done.status().as_u16(), 200);
    let report: ElectionReport = done.json().await.unwrap();
    let item = &report.items[0];
    assert_eq!((item.elected, item.leader), (true, Some(other)));
    let loss = item.loss.as_ref().unwrap();
    // The brokers of this story serve nothing, so nobody knows.
    assert_eq!((loss.records, loss.elected_end_offset), (None, None));
    assert!(loss.summary.contains("not known"), "{loss:?}");
    assert_eq!(
        partition().last_unclean_epoch,
        Some(partition().leader_epoch)
    );
    let page: PartitionPage = get(&cluster, "/api/v1/topics/payments/partitions").await;
    assert_eq!(page.items[0].isr, [other]);
    let again = post(&cluster, "/api/v1/elections", body).await;
    let report: ElectionReport = again.json().await.unwrap();
    assert_eq!(
        report.items[0].error.as_deref(),
        Some("ELECTION_NOT_NEEDED")
    );
    for controller in cluster.running.into_values() {
        controller.stop().await;
    }
}
