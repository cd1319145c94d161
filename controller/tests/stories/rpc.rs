//! What the quorum's listener refuses before it reads a body.

use kuorum_controller::quorum::{HEADER_FROM_DIRECTORY, HEADER_TO_DIRECTORY, PATH_VOTE};
use kuorum_metadata::rpc::{
    HEADER_CLUSTER_ID, HEADER_FROM, HEADER_TO, HEADER_VERSION, PATH_HEARTBEAT, Reply,
};
use kuorum_protocol::BrokerEpoch;
use uuid::Uuid;

use crate::support::{CLUSTER, Cluster, heartbeat};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_meant_for_this_controller_is_refused() {
    let cluster = Cluster::start(1).await;
    cluster.active().await;
    let right = [
        (HEADER_CLUSTER_ID, CLUSTER),
        (HEADER_FROM, "broker-1"),
        (HEADER_TO, "controller-1"),
        (HEADER_VERSION, "1"),
    ];
    let rows: [(&str, Option<&str>, u16, i16); 8] = [
        (HEADER_CLUSTER_ID, Some(CLUSTER), 200, 102),
        (HEADER_CLUSTER_ID, Some("another"), 403, 104),
        (HEADER_CLUSTER_ID, None, 403, 42),
        (HEADER_TO, Some("controller-2"), 403, 42),
        (HEADER_TO, None, 403, 42),
        (HEADER_FROM, None, 403, 42),
        (HEADER_VERSION, Some("2"), 403, 35),
        (HEADER_VERSION, None, 403, 42),
    ];
    for (changed, value, status, code) in rows {
        let mut request = cluster
            .client
            .post(cluster.rpc_url(1, PATH_HEARTBEAT))
            .json(&heartbeat(9, BrokerEpoch(1)));
        for (name, usual) in right {
            let value = if name == changed { value } else { Some(usual) };
            if let Some(value) = value {
                request = request.header(name, value);
            }
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status().as_u16(), status, "{changed}: {value:?}");
        let Reply::<()>::Err(error) = response.json().await.unwrap() else {
            panic!("{changed}: {value:?} was accepted");
        };
        assert_eq!(error.code, code, "{changed}: {value:?}: {error}");
    }

    // Between members of the quorum the directories must be the ones the membership names.
    let own = cluster.running[&1]
        .quorum()
        .identity()
        .directory_id
        .to_string();
    let foreign = Uuid::new_v4().to_string();
    for (from, to) in [(&foreign, &own), (&own, &foreign), (&foreign, &foreign)] {
        let response = cluster
            .post(1, PATH_VOTE)
            .header(HEADER_FROM, "controller-1")
            .header(HEADER_FROM_DIRECTORY, from)
            .header(HEADER_TO_DIRECTORY, to)
            .body("{}")
            .send()
            .await
            .unwrap();
        assert_eq!(response.status().as_u16(), 403, "{from} {to}");
    }

    // A body that is no JSON or too large is refused, the latter without being read to its end: the connection goes with it.
    let garbled = cluster
        .post(1, PATH_HEARTBEAT)
        .header("content-type", "application/json");
    assert_eq!(
        garbled.body("{").send().await.unwrap().status().as_u16(),
        400
    );
    let large = cluster
        .post(1, PATH_HEARTBEAT)
        .header("content-type", "application/json");
    let response = large.body(vec![b' '; 5 * 1024 * 1024]).send().await;
    assert!(response.is_err() || response.unwrap().status().as_u16() == 413);
}
