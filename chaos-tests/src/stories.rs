//! What is done to a cluster of real processes, and what must be true afterwards.
//! Law: a story waits for conditions, never for time to pass; it ends with the comparison of what was promised and what is there.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use kuorum_admin_api::Event;

use crate::admin::Admin;
use crate::cluster::{LocalCluster, Process};
use crate::history::{Verdict, judge};
use crate::workload::{self, Writing};

const TOPIC: &str = "bank-transfers";
const PARTITIONS: i32 = 3;
/// The orders all six are started again in: controllers are 0–2, brokers 3–5.
const RESTART_ORDERS: [[usize; 6]; 3] =
    [[0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0], [3, 0, 5, 2, 4, 1]];

/// Kills the leader of partition 0 under a stream of acks=all writes, round after round; then all six processes at once, under
/// a stream too (D1, R22).
#[derive(Clone, Copy, Debug)]
pub struct KillTheLeader {
    pub rounds: u32,
    /// Records a second.
    pub rate: u64,
    /// How long the cluster may take to be whole again after a round.
    pub settle: Duration,
}

/// What such a story found.
#[derive(Clone, Debug)]
pub struct Report {
    /// After the rounds, and again each time all six were killed at once: everything that was written until then.
    pub verdicts: Vec<(String, Verdict)>,
    /// What the cluster's own history says of leaders that may lack records. All that died came back: there may be none.
    pub unclean_elections: Vec<String>,
    /// Leaders that were elected after another one, by the same history.
    pub leader_changes: usize,
    /// From SIGKILL of the leader to the next acknowledged write anywhere in the topic that was sent after it.
    pub until_next_write: Vec<Duration>,
}

impl Report {
    /// Whether every comparison held, and nobody led who may have lacked records.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.unclean_elections.is_empty()
            && self.leader_changes >= self.until_next_write.len()
            && self.verdicts.iter().all(|(_, verdict)| verdict.holds())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (when, verdict) in &self.verdicts {
            writeln!(f, "{when}:\n{verdict}")?;
        }
        writeln!(
            f,
            "unclean elections: {}, of {} changes of leaders",
            self.unclean_elections.len(),
            self.leader_changes,
        )?;
        for election in &self.unclean_elections {
            writeln!(f, "  {election}")?;
        }
        let mut times = self.until_next_write.clone();
        times.sort_unstable();
        if let (Some(last), Some(median)) = (times.last(), times.get(times.len() / 2)) {
            writeln!(
                f,
                "kill to next acknowledged write of the partition: median {} ms, longest {} ms, {} rounds",
                median.as_millis(),
                last.as_millis(),
                times.len(),
            )?;
        }
        Ok(())
    }
}

impl KillTheLeader {
    /// Runs the story on a cluster that is up; says each step to `tell`.
    ///
    /// # Errors
    /// When the cluster does not become whole again, or cannot be driven.
    pub async fn run(self, cluster: &LocalCluster, tell: impl Fn(String)) -> Result<Report> {
        let admin = Admin::new(cluster.admin()?)?;
        let bootstrap = cluster.bootstrap()?;
        admin
            .create_topic(TOPIC, PARTITIONS, &[("min.insync.replicas", "2")])
            .await?;
        let writing = Writing::begin(&bootstrap, TOPIC, 0, self.rate);
        let mut until_next_write = Vec::new();
        for round in 1..=self.rounds {
            // A round begins in full flow.
            writing.flow(&admin, self.rate / 2, self.settle).await?;
            let leader = admin
                .partition(TOPIC, 0)
                .await?
                .leader
                .context("partition 0 has no leader")?;
            let killed = Instant::now();
            cluster.kill(Process::Broker(leader))?;
            admin
                .wait_until(self.settle, "another broker leads", async || {
                    Ok(admin
                        .partition(TOPIC, 0)
                        .await?
                        .leader
                        .is_some_and(|now| now != leader))
                })
                .await?;
            let elected = killed.elapsed();
            let sent = writing.progress.sent();
            admin
                .wait_until(self.settle, "writes are acknowledged again", async || {
                    Ok(writing.progress.acknowledged() > sent)
                })
                .await?;
            until_next_write.push(killed.elapsed());
            cluster.start(Process::Broker(leader))?;
            admin.wait_until_whole(TOPIC, self.settle).await?;
            tell(format!(
                "round {round}: killed broker {leader}; next leader after {} ms, acknowledged again after {} ms; whole after {} ms",
                elected.as_millis(),
                until_next_write
                    .last()
                    .copied()
                    .unwrap_or_default()
                    .as_millis(),
                killed.elapsed().as_millis(),
            ));
        }
        let mut writes = writing.end().await?;
        let mut verdicts = Vec::new();
        let reads = workload::read_all(&bootstrap, TOPIC, PARTITIONS, &AtomicU64::new(0)).await?;
        verdicts.push((
            format!("after {} rounds", self.rounds),
            judge(&writes, &reads),
        ));
        for order in RESTART_ORDERS {
            let first = writes.len() as u64;
            let writing = Writing::begin(&bootstrap, TOPIC, first, self.rate);
            writing.flow(&admin, self.rate / 2, self.settle).await?;
            kill_everything_and_restart(cluster, order)?;
            let under_way = writing.progress.sent();
            let under_way = under_way.saturating_sub(writing.progress.acknowledged());
            admin.wait_until_whole(TOPIC, self.settle).await?;
            writing.flow(&admin, self.rate / 2, self.settle).await?;
            tell(format!(
                "killed all six at once, started again in the order {order:?}; {under_way} writes had no answer by then"
            ));
            let stream = writing.end().await?;
            let longest_pause = judge(&stream, &[]).longest_pause;
            writes.extend(stream);
            let reads =
                workload::read_all(&bootstrap, TOPIC, PARTITIONS, &AtomicU64::new(0)).await?;
            let verdict = Verdict {
                longest_pause,
                ..judge(&writes, &reads)
            };
            verdicts.push((
                format!("after everything was killed under writes, restarted as {order:?}"),
                verdict,
            ));
        }
        let led = admin.events("leader_changed,unclean_election").await?;
        let (unclean, changed): (Vec<Event>, Vec<Event>) = led
            .into_iter()
            .partition(|event| event.kind == "unclean_election");
        Ok(Report {
            verdicts,
            unclean_elections: unclean.into_iter().map(|event| event.message).collect(),
            leader_changes: changed.len(),
            until_next_write,
        })
    }
}

/// Kills and pauses each controller in turn, the active one among them, under a stream of acks=all writes: producing must not notice.
#[derive(Clone, Copy, Debug)]
pub struct WithoutAController {
    /// Records a second.
    pub rate: u64,
    /// How long anything may take.
    pub settle: Duration,
}

impl WithoutAController {
    /// Runs the story on a cluster that is up; says each step to `tell`. The verdict's longest pause is what it is about.
    ///
    /// # Errors
    /// When writes stop for longer than `settle`, or the cluster cannot be driven.
    pub async fn run(self, cluster: &LocalCluster, tell: impl Fn(String)) -> Result<Verdict> {
        const TOPIC: &str = "without-a-controller";
        let admin = Admin::new(cluster.admin()?)?;
        let bootstrap = cluster.bootstrap()?;
        admin
            .create_topic(TOPIC, PARTITIONS, &[("min.insync.replicas", "2")])
            .await?;
        let writing = Writing::begin(&bootstrap, TOPIC, 0, self.rate);
        let flow = async || writing.flow(&admin, 2 * self.rate, self.settle).await;
        flow().await?;
        for id in 1..=3 {
            let controller = Process::Controller(id);
            cluster.kill(controller)?;
            flow().await?;
            cluster.start(controller)?;
            flow().await?;
            cluster.pause(controller)?;
            let flowed = flow().await;
            cluster.resume(controller)?;
            flowed?;
            flow().await?;
            tell(format!(
                "controller {id} was killed and restarted, paused and resumed"
            ));
        }
        let writes = writing.end().await?;
        let reads = workload::read_all(&bootstrap, TOPIC, PARTITIONS, &AtomicU64::new(0)).await?;
        Ok(judge(&writes, &reads))
    }
}

/// SIGKILL of all six processes, then each is started again in the order given: controllers are 0–2, brokers 3–5.
///
/// # Errors
/// When a process does not go or does not come back.
pub fn kill_everything_and_restart(cluster: &LocalCluster, order: [usize; 6]) -> Result<()> {
    let process = |i: usize| match i as i32 {
        i @ 0..3 => Process::Controller(i + 1),
        i => Process::Broker(i - 2),
    };
    cluster.kill_all(&std::array::from_fn::<_, 6, _>(process))?;
    order
        .into_iter()
        .try_for_each(|i| cluster.start(process(i)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_holds_only_if_nothing_was_lost_and_nobody_led_uncleanly() {
        let lost = Verdict {
            lost: vec![7],
            ..Verdict::default()
        };
        // (verdicts, unclean elections, changes of leaders, rounds) ⇒ holds
        let rows = [
            (vec![Verdict::default(); 2], 0, 2, 2, true),
            (vec![Verdict::default(), lost], 0, 2, 2, false),
            (vec![Verdict::default()], 1, 2, 2, false),
            // Then the history that was asked for unclean elections is not that of this story.
            (vec![Verdict::default()], 0, 1, 2, false),
        ];
        for (verdicts, unclean, leader_changes, rounds, holds) in rows {
            let report = Report {
                verdicts: verdicts
                    .into_iter()
                    .map(|verdict| ("then".to_owned(), verdict))
                    .collect(),
                unclean_elections: vec!["broker 2 leads".to_owned(); unclean],
                leader_changes,
                until_next_write: vec![Duration::ZERO; rounds],
            };
            assert_eq!(report.holds(), holds, "{report}");
        }
    }
}
