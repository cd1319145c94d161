//! A broker that leads every partition of a topic is told to go, under a stream of acks=all writes: nobody may notice.
//! Law: a write's latency counts from when it was due, not from when it could be sent.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use kuorum_admin_api::{Broker, BrokerState};

use crate::admin::Admin;
use crate::cluster::{LocalCluster, Process};
use crate::history::{Outcome, Verdict, judge};
use crate::workload::{self, Progress, Stream, Writing};

const TOPIC: &str = "handed-over";

/// SIGTERM of the broker that leads everything.
#[derive(Clone, Copy, Debug)]
pub struct Handover {
    pub partitions: i32,
    /// Records a second.
    pub rate: u64,
    /// How long anything may take.
    pub settle: Duration,
}

/// What was seen.
#[derive(Clone, Debug)]
pub struct Report {
    pub verdict: Verdict,
    /// Writes that were not acknowledged.
    pub failed: usize,
    /// The longest a write waited for its acknowledgement while all was quiet.
    pub slowest_before: Duration,
    /// The same from the signal on.
    pub slowest: Duration,
    /// From the signal until other brokers led every partition.
    pub handed_over: Duration,
    /// From the signal until the process was gone.
    pub gone: Duration,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.verdict)?;
        for (what, time) in [
            ("slowest write before the signal", self.slowest_before),
            ("slowest write from the signal on", self.slowest),
            ("everything led by others after", self.handed_over),
            ("process gone after", self.gone),
        ] {
            writeln!(f, "  {what:<34} {:>6} ms", time.as_millis())?;
        }
        write!(f, "  {:<34} {:>6}", "writes that failed", self.failed)
    }
}

impl Handover {
    /// Runs the story on a cluster that is up: leadership of everything is brought to `broker` by draining the others.
    ///
    /// # Errors
    /// When the cluster cannot be driven, or does not do what it is told in time.
    pub async fn run(self, cluster: &LocalCluster, broker: i32) -> Result<Report> {
        let admin = Admin::new(cluster.admin()?)?;
        let bootstrap = cluster.bootstrap()?;
        let min_isr = [("min.insync.replicas", "2")];
        admin.create_topic(TOPIC, self.partitions, &min_isr).await?;
        let others: Vec<i32> = (1..=3).filter(|id| *id != broker).collect();
        for other in &others {
            admin.act(&format!("/brokers/{other}/drain")).await?;
        }
        admin
            .wait_until(self.settle, "one broker leads everything", async || {
                let all = admin.partitions(TOPIC).await?;
                Ok(all.iter().all(|partition| partition.leader == Some(broker)))
            })
            .await?;
        for other in &others {
            admin.act(&format!("/brokers/{other}/undrain")).await?;
        }

        admin.wait_until_whole(TOPIC, self.settle).await?;

        let started = Instant::now();
        let writing = Writing::begin(&bootstrap, TOPIC, 0, self.rate);
        let progress = writing.progress.clone();
        let flow = async || {
            let enough = progress.acknowledged() + 3 * self.rate;
            admin
                .wait_until(self.settle, "writes are flowing", async || {
                    let acknowledged = progress.acknowledged();
                    let due = started.elapsed().as_secs_f64() * self.rate as f64;
                    let keeps_up = due - (acknowledged as f64) < self.rate as f64 / 2.0;
                    Ok(acknowledged >= enough && keeps_up)
                })
                .await
        };
        // The first seconds fill caches and open connections.
        flow().await?;
        let quiet_from = progress.sent();
        flow().await?;

        let signalled = progress.sent();
        let began = Instant::now();
        let handle = tokio::runtime::Handle::current();
        let stopping = std::thread::scope(|scope| {
            let stop = scope.spawn(|| {
                let stopped = cluster.stop(Process::Broker(broker));
                (stopped, began.elapsed())
            });
            let moved = scope.spawn(|| {
                let moved = handle.block_on(admin.wait_until(
                    self.settle,
                    "others lead everything",
                    async || {
                        let all = admin.partitions(TOPIC).await?;
                        Ok(all
                            .iter()
                            .all(|partition| partition.leader.is_some_and(|id| id != broker)))
                    },
                ));
                (moved, began.elapsed())
            });
            let panicked = "a thread that panicked is a bug";
            tokio::task::block_in_place(|| {
                (stop.join().expect(panicked), moved.join().expect(panicked))
            })
        });
        let ((stopped, gone), (moved, handed_over)) = stopping;
        stopped?;
        moved?;
        flow().await?;
        let writes = writing.end().await?;
        cluster.start(Process::Broker(broker))?;
        let reads =
            workload::read_all(&bootstrap, TOPIC, self.partitions, &AtomicU64::new(0)).await?;

        let (mut failed, mut slowest_before, mut slowest) = (0, Duration::ZERO, Duration::ZERO);
        for write in &writes {
            let Outcome::Acknowledged { at, .. } = write.outcome else {
                failed += 1;
                continue;
            };
            let due = Duration::from_secs_f64(write.id as f64 / self.rate as f64);
            let waited = at.saturating_sub(due);
            if write.id + self.rate / 10 >= signalled {
                slowest = slowest.max(waited);
            } else if write.id >= quiet_from {
                slowest_before = slowest_before.max(waited);
            }
        }
        if writes.is_empty() {
            bail!("nothing was written");
        }
        Ok(Report {
            verdict: judge(&writes, &reads),
            failed,
            slowest_before,
            slowest,
            handed_over,
            gone,
        })
    }
}

/// The first partition of `topic`, as it is now.
async fn first(admin: &Admin, topic: &str) -> Result<kuorum_admin_api::Partition> {
    admin
        .partition(topic, 0)
        .await
        .with_context(|| topic.to_owned())
}

/// Loss versus availability, decided per topic (R18, R19, R20): the only complete replica is gone, and only the topic that
/// prefers availability gets a leader, at the moment it says so.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// How long anything may take.
    pub settle: Duration,
}

/// What was seen.
#[derive(Clone, Debug)]
pub struct PolicyReport {
    /// The topics of which the cluster's history tells an unclean election.
    pub unclean: Vec<String>,
    /// From the answer to the change of the policy until the partition was led.
    pub led_after: Duration,
    /// Of the topic that stayed clean, after the complete replica came back.
    pub clean: Verdict,
}

impl Policy {
    /// Runs the story on a cluster that is up.
    ///
    /// # Errors
    /// When a rule is broken, or the cluster cannot be driven.
    pub async fn run(self, cluster: &LocalCluster) -> Result<PolicyReport> {
        const CLEAN: &str = "bank-transfers";
        const UNCLEAN: &str = "telemetry-logs";
        const RECORDS: u64 = 100;
        let admin = Admin::new(cluster.admin()?)?;
        let bootstrap = cluster.bootstrap()?;
        let led_by = async |topic: &str, wanted: Option<i32>| {
            admin
                .wait_until(
                    self.settle,
                    &format!("{topic} is led by {wanted:?}"),
                    async || Ok(first(&admin, topic).await?.leader == wanted),
                )
                .await
        };
        let mut writes = Vec::new();
        for topic in [CLEAN, UNCLEAN] {
            admin
                .create_topic(topic, 1, &[("min.insync.replicas", "1")])
                .await?;
        }
        // Broker 1 leads both, and in the end it alone has what is acknowledged.
        for id in [2, 3] {
            admin.act(&format!("/brokers/{id}/drain")).await?;
        }
        led_by(CLEAN, Some(1)).await?;
        led_by(UNCLEAN, Some(1)).await?;
        for id in [2, 3] {
            cluster.kill(Process::Broker(id))?;
        }
        for topic in [CLEAN, UNCLEAN] {
            admin
                .wait_until(self.settle, "broker 1 is alone in sync", async || {
                    Ok(first(&admin, topic).await?.isr == [1])
                })
                .await?;
            let stream = Stream {
                topic: topic.to_owned(),
                first: 0,
                count: RECORDS,
                rate: None,
            };
            let written = workload::write(&bootstrap, stream, Progress::default()).await?;
            let is_acknowledged = |write: &crate::history::Write| {
                matches!(write.outcome, Outcome::Acknowledged { .. })
            };
            if !written.iter().all(is_acknowledged) {
                bail!("{topic}: a write failed although its leader lives");
            }
            if topic == CLEAN {
                writes = written;
            }
        }
        cluster.kill(Process::Broker(1))?;
        for id in [2, 3] {
            cluster.start(Process::Broker(id))?;
            admin.act(&format!("/brokers/{id}/undrain")).await?;
        }
        admin
            .wait_until(self.settle, "2 and 3 are in service", async || {
                let brokers = admin.brokers().await?;
                let serves = |broker: &Broker| broker.state == BrokerState::Active;
                // Broker 1 is taken for alive for a moment after it was killed.
                Ok(brokers
                    .iter()
                    .all(|broker| serves(broker) == (broker.id != 1)))
            })
            .await?;
        // R18: nobody leads, and everybody knows why.
        for topic in [CLEAN, UNCLEAN] {
            let partition = first(&admin, topic).await?;
            if partition.leader.is_some() || partition.isr != [1] {
                bail!("{topic}: {partition:?} although the policy is clean");
            }
        }
        let health = admin.health().await?;
        let reason = health
            .reasons
            .iter()
            .find(|reason| reason.code == "LEADERLESS_PARTITIONS");
        let named = reason.is_some_and(|reason| {
            reason.count == 2
                && reason.cause.contains("broker 1")
                && reason.cure.contains("start broker 1")
        });
        if !named {
            bail!(
                "health does not name the cause and the cure: {:?}",
                health.reasons
            );
        }
        // R19 and R20: one topic is changed, and it alone is led.
        let set = serde_json::json!({"set": {"unclean.leader.election.enable": "true"}});
        admin
            .patch(&format!("/topics/{UNCLEAN}/configs"), &set)
            .await?;
        let changed = Instant::now();
        admin
            .wait_until(self.settle, "the unclean topic is led", async || {
                Ok(first(&admin, UNCLEAN).await?.leader.is_some())
            })
            .await?;
        let led_after = changed.elapsed();
        if first(&admin, CLEAN).await?.leader.is_some() {
            bail!("{CLEAN} was led although only {UNCLEAN} allows it");
        }
        // R18: the complete one comes back, leads, and everything is there; of the other topic it is a follower.
        cluster.start(Process::Broker(1))?;
        led_by(CLEAN, Some(1)).await?;
        admin.wait_until_whole(CLEAN, self.settle).await?;
        admin.wait_until_whole(UNCLEAN, self.settle).await?;
        let reads = workload::read_all(&bootstrap, CLEAN, 1, &AtomicU64::new(0)).await?;
        let unclean = workload::read_all(&bootstrap, UNCLEAN, 1, &AtomicU64::new(0)).await?;
        if !unclean.is_empty() {
            bail!(
                "{UNCLEAN}: {} records came back that were cut",
                unclean.len()
            );
        }
        let events = admin.events("unclean_election").await?;
        let unclean = events.into_iter().filter_map(|event| event.topic).collect();
        Ok(PolicyReport {
            unclean,
            led_after,
            clean: judge(&writes, &reads),
        })
    }
}
