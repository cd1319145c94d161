//! Stories with real processes, started by the very script behind `make up`. Cargo builds the programs before it
//! runs any test of the workspace (`make test`).

use std::time::Duration;

use kuorum_chaos_tests::cluster::LocalCluster;
use kuorum_chaos_tests::handover::{Handover, Policy};
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
    // That nobody notices is measured by chaos-tests/scripts/kill-a-broker.sh, with the machine to itself. This is less than the session of a
    // broker, which is what writes would wait for if brokers needed that very controller.
    assert!(
        verdict.longest_pause < Duration::from_secs(5),
        "{verdict:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_topic_that_prefers_availability_is_led_without_its_records() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let cluster = cluster(&folder, 26_092);
    let report = Policy { settle: SETTLE }
        .run(&cluster)
        .await
        .expect("the story runs to its end");
    println!(
        "led {} ms after the policy was changed",
        report.led_after.as_millis()
    );
    assert!(report.clean.holds(), "{report:?}");
    assert_eq!(report.unclean, ["telemetry-logs"]);
    assert!(report.led_after < Duration::from_secs(1), "{report:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_is_told_to_go_fails_no_write() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let cluster = cluster(&folder, 27_092);
    let story = Handover {
        partitions: 60,
        rate: 1_000,
        settle: SETTLE,
    };
    let report = story
        .run(&cluster, 1)
        .await
        .expect("the story runs to its end");
    println!("{report}");
    assert!(report.verdict.holds(), "{report:?}");
    assert_eq!(report.failed, 0, "{report:?}");
    assert!(report.gone < Duration::from_secs(10), "{report:?}");
}
