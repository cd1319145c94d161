//! Replicas move between real processes: R29, R30 and R31 in one cluster, which takes long enough to start.

use std::time::Duration;

use kuorum_chaos_tests::cluster::LocalCluster;
use kuorum_chaos_tests::reassignment::Moves;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moves_lose_and_duplicate_nothing_whoever_dies_on_the_way() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let binaries = LocalCluster::built_binaries().expect("this test is a program");
    let cluster = LocalCluster::at(folder.path().join("cluster"), 22_092, binaries).for_test();
    cluster.up("").expect("the cluster comes up");
    let moves = Moves {
        before: 5_000,
        rate: 1_000,
        settle: Duration::from_secs(90),
    };
    let verdicts = moves.run(&cluster, |line| println!("{line}")).await;
    let verdicts = verdicts.expect("the stories run to their end");
    for (when, verdict) in verdicts {
        println!("{when}:\n{verdict}");
        assert!(
            verdict.holds() && verdict.acknowledged > 0,
            "{when}: {verdict:?}"
        );
    }
}
