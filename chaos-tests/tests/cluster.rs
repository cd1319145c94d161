//! Stories with real processes, started by the very script behind `make up`. Cargo builds the programs before it
//! runs any test of the workspace (`make test`).

use std::time::Duration;

use kuorum_chaos_tests::cluster::LocalCluster;
use kuorum_chaos_tests::stories::{KillTheLeader, WithoutAController};

const SETTLE: Duration = Duration::from_secs(90);

/// A cluster of its own, on ports of its own, gone when the test ends.
fn cluster(folder: &tempfile::TempDir, port_base: u16) -> LocalCluster {
    let binaries = LocalCluster::built_binaries().expect("this test is a program");
    let cluster = LocalCluster::at(folder.path().join("cluster"), port_base, binaries).for_test();
    cluster.up("").expect("the cluster comes up");
    cluster
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_and_then_a_killed_cluster_lose_nothing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let cluster = cluster(&folder, 24_092);
    let story = KillTheLeader {
        rounds: 3,
        rate: 500,
        settle: SETTLE,
    };
    let report = story
        .run(&cluster, |line| println!("{line}"))
        .await
        .expect("the story runs to its end");
    println!("{report}");
    assert!(report.holds(), "{report:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn producing_goes_on_without_a_controller() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let cluster = cluster(&folder, 25_092);
    let story = WithoutAController {
        rate: 200,
        settle: SETTLE,
    };
    let verdict = story
        .run(&cluster, |line| println!("{line}"))
        .await
        .expect("the story runs to its end");
    println!("{verdict}");
    assert!(verdict.holds(), "{verdict:?}");
}
