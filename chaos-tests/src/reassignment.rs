//! Replicas move under load: to brokers one of which dies on the way, back again, and past a topic that was made anew.
//! Law: as in the other stories, what was acknowledged is there once, and nothing waits for time to pass.

use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use kuorum_admin_api::{PartitionAssignment, ReassignmentRequest};

use crate::admin::Admin;
use crate::cluster::{LocalCluster, Process};
use crate::history::{Verdict, judge};
use crate::workload::{self, Progress, Stream, Writing};

const TOPIC: &str = "moving";
const PARTITIONS: i32 = 12;
/// The brokers that are added to the three nodes.
const NEW: [i32; 3] = [4, 5, 6];
/// So slow that a move is still on its way when somebody dies.
const SLOWLY: i64 = 100_000;
const FAST: i64 = 1_000_000_000;

/// Moves a topic of 12 partitions from brokers 1, 2, 3 to 4, 5, 6 under a stream of acks=all writes.
#[derive(Clone, Copy, Debug)]
pub struct Moves {
    /// Records written before anything moves.
    pub before: u64,
    /// Records a second while it moves.
    pub rate: u64,
    /// How long anything may take.
    pub settle: Duration,
}

impl Moves {
    /// Runs the stories on a cluster of three nodes that is up; says each step to `tell`. Adds the new brokers.
    ///
    /// # Errors
    /// When a move does not do what it should, or the cluster cannot be driven.
    pub async fn run(
        self,
        cluster: &LocalCluster,
        tell: impl Fn(String),
    ) -> Result<Vec<(String, Verdict)>> {
        let admin = Admin::new(cluster.admin()?)?;
        let bootstrap = cluster.bootstrap()?;
        admin
            .create_topic(TOPIC, PARTITIONS, &[("min.insync.replicas", "2")])
            .await?;
        NEW.into_iter().try_for_each(|id| cluster.add_broker(id))?;
        self.wait_for_brokers(&admin, 3 + NEW.len()).await?;

        let writing = Writing::begin(&bootstrap, TOPIC, 0, self.rate);
        writing.flow(&admin, self.before, self.settle).await?;
        self.clean_move(cluster, &admin, &writing, &tell).await?;
        self.cancelled_move(cluster, &admin, &tell).await?;
        let writes = writing.end().await?;
        let reads = workload::read_all(&bootstrap, TOPIC, PARTITIONS, &AtomicU64::new(0)).await?;
        let moved = judge(&writes, &reads);
        let anew = self.made_anew(cluster, &admin, &bootstrap).await?;
        tell("a topic was made anew while a replica of the old one slept".to_owned());
        Ok(vec![
            ("after the moves".to_owned(), moved),
            ("after a topic was made anew".to_owned(), anew),
        ])
    }

    /// R29: one of the brokers that are added dies on the way, and so does the active controller.
    async fn clean_move(
        self,
        cluster: &LocalCluster,
        admin: &Admin,
        writing: &Writing,
        tell: &impl Fn(String),
    ) -> Result<()> {
        let wanted = admin.reassign(&onto(&NEW, Some(SLOWLY))).await?;
        ensure!(
            wanted.items.len() == PARTITIONS as usize,
            "{} partitions move",
            wanted.items.len()
        );
        self.until(admin, "copying has begun everywhere", async || {
            let moving = admin.reassignments().await?.items;
            let mut progress = moving.iter().flat_map(|one| &one.progress);
            Ok(progress.all(|replica| replica.log_end_offset.is_some()))
        })
        .await?;
        let active = admin.active_controller().await?;
        cluster.kill(Process::Broker(5))?;
        cluster.kill(Process::Controller(active))?;
        tell(format!(
            "killed broker 5 and controller {active} on the way"
        ));
        // Writes go on, and so does the copying to the others; what 5 had not copied yet cannot come to its end.
        writing.flow(admin, self.rate, self.settle).await?;
        let moving = admin.reassignments().await?;
        ensure!(
            !moving.items.is_empty() && moving.throttle == Some(SLOWLY),
            "everything had moved before broker 5 died: {moving:?}"
        );
        cluster.start(Process::Controller(active))?;
        cluster.start(Process::Broker(5))?;
        // The same again with another limit is how a limit is changed.
        admin.reassign(&exactly(&wanted.items, Some(FAST))).await?;
        self.until(admin, "everything has moved", async || {
            let partitions = admin.partitions(TOPIC).await?;
            let moved = partitions.iter().all(|partition| {
                partition.replicas.iter().all(|id| NEW.contains(id)) && partition.isr.len() == 3
            });
            Ok(moved && admin.reassignments().await?.items.is_empty())
        })
        .await?;
        let throttle = admin.reassignments().await?.throttle;
        ensure!(
            throttle.is_none(),
            "the limit outlived the moves: {throttle:?}"
        );
        writing.flow(admin, self.rate, self.settle).await?;
        self.until_gone(cluster, admin, "what was left behind is deleted")
            .await?;
        tell(
            "all 12 partitions lie on brokers 4, 5 and 6, and nothing of them anywhere else"
                .to_owned(),
        );
        Ok(())
    }

    /// R30: cancelled half-way, everything is as it was.
    async fn cancelled_move(
        self,
        cluster: &LocalCluster,
        admin: &Admin,
        tell: &impl Fn(String),
    ) -> Result<()> {
        let before = admin.partitions(TOPIC).await?;
        admin.reassign(&onto(&[1, 2, 3], Some(1))).await?;
        self.until(admin, "copying has begun somewhere", async || {
            Ok(logs_of(TOPIC, &cluster.broker_data(1))? > 0)
        })
        .await?;
        for one in admin.reassignments().await?.items {
            admin.cancel_reassignment(&one.topic, one.partition).await?;
        }
        let after = admin.partitions(TOPIC).await?;
        for (before, after) in before.iter().zip(&after) {
            ensure!(
                before.replicas == after.replicas && before.partition == after.partition,
                "{before:?} became {after:?}"
            );
        }
        self.until_gone(cluster, admin, "what was begun is deleted")
            .await?;
        tell("a move was cancelled half-way, and everything is where it was".to_owned());
        Ok(())
    }

    /// R31: a topic is deleted and made anew under the same name while one of its replicas sleeps.
    async fn made_anew(
        self,
        cluster: &LocalCluster,
        admin: &Admin,
        bootstrap: &str,
    ) -> Result<Verdict> {
        const AGAIN: &str = "made-anew";
        const SLEEPER: i32 = 3;
        let write = async |first, count| {
            let stream = Stream {
                topic: AGAIN.to_owned(),
                first,
                count,
                rate: None,
            };
            workload::write(bootstrap, stream, Progress::default()).await
        };
        let place = |replicas: &[i32]| ReassignmentRequest {
            partitions: Some(vec![PartitionAssignment {
                topic: AGAIN.to_owned(),
                partition: 0,
                replicas: replicas.to_vec(),
            }]),
            ..ReassignmentRequest::default()
        };
        let settled = async |replicas: &[i32]| {
            admin.reassign(&place(replicas)).await?;
            self.until(admin, "it lies there", async || {
                let partition = admin.partition(AGAIN, 0).await?;
                Ok(partition.replicas == replicas && partition.isr.len() == replicas.len())
            })
            .await
        };
        admin
            .create_topic(AGAIN, 1, &[("min.insync.replicas", "2")])
            .await?;
        settled(&[1, 2, SLEEPER]).await?;
        write(1_000_000, 500).await?;
        cluster.pause(Process::Broker(SLEEPER))?;
        let woken = async {
            admin.delete_topic(AGAIN).await?;
            admin
                .create_topic(AGAIN, 1, &[("min.insync.replicas", "2")])
                .await?;
            admin.reassign(&place(&[1, 2, SLEEPER])).await?;
            // Fewer than before: what the sleeper has would fit.
            write(0, 200).await
        };
        let woken = woken.await;
        cluster.resume(Process::Broker(SLEEPER))?;
        let writes = woken?;
        self.wait_for_brokers(admin, 3 + NEW.len()).await?;
        settled(&[SLEEPER, 1, 2]).await?;
        self.until(admin, "it leads", async || {
            admin.elect_preferred().await?;
            Ok(admin.partition(AGAIN, 0).await?.leader == Some(SLEEPER))
        })
        .await?;
        let reads = workload::read_all(bootstrap, AGAIN, 1, &AtomicU64::new(0)).await?;
        Ok(judge(&writes, &reads))
    }

    /// Waits until the topic has no log on brokers 1, 2 and 3.
    async fn until_gone(self, cluster: &LocalCluster, admin: &Admin, what: &str) -> Result<()> {
        let has_none = |id| logs_of(TOPIC, &cluster.broker_data(id)).is_ok_and(|logs| logs == 0);
        self.until(admin, what, async || {
            Ok([1, 2, 3].into_iter().all(has_none))
        })
        .await
    }

    async fn wait_for_brokers(self, admin: &Admin, count: usize) -> Result<()> {
        self.until(admin, "all brokers are active", async || {
            let brokers = admin.brokers().await?;
            let active = brokers
                .iter()
                .filter(|broker| broker.state == kuorum_admin_api::BrokerState::Active);
            Ok(active.count() == count)
        })
        .await
    }

    async fn until(
        self,
        admin: &Admin,
        what: &str,
        condition: impl AsyncFnMut() -> Result<bool>,
    ) -> Result<()> {
        admin.wait_until(self.settle, what, condition).await
    }
}

fn onto(brokers: &[i32], throttle: Option<i64>) -> ReassignmentRequest {
    ReassignmentRequest {
        topics: Some(vec![TOPIC.to_owned()]),
        brokers: Some(brokers.to_vec()),
        throttle,
        ..ReassignmentRequest::default()
    }
}

fn exactly(
    items: &[kuorum_admin_api::PlannedReassignment],
    throttle: Option<i64>,
) -> ReassignmentRequest {
    let partitions = items.iter().map(|item| PartitionAssignment {
        topic: item.topic.clone(),
        partition: item.partition,
        replicas: item.replicas.clone(),
    });
    ReassignmentRequest {
        partitions: Some(partitions.collect()),
        throttle,
        ..ReassignmentRequest::default()
    }
}

/// How many partitions of a topic have their log in a broker's folder, those half deleted among them.
fn logs_of(topic: &str, data: &Path) -> Result<usize> {
    let mut count = 0;
    for entry in std::fs::read_dir(data).with_context(|| data.display().to_string())? {
        let name = entry?.file_name();
        let Some(name) = name.to_str() else {
            bail!("{name:?} is no name of ours");
        };
        count += usize::from(name.starts_with(&format!("{topic}-")));
    }
    Ok(count)
}
