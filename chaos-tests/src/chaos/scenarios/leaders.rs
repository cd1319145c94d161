//! Leaders that die, freeze, are cut off or restarted: writes go on elsewhere, and nothing that was acknowledged is lost.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::{HOSTS, Lab, Mutation, NOTHING, QUICK, Scenario};
use crate::chaos::workload::Stream;
use crate::cluster::Process;

const TOPIC: &str = "bank-transfers";
const PARTITIONS: i32 = 3;
const RATE: u64 = 1_000;
const MIN_ISR: (&str, &str) = ("min.insync.replicas", "2");

pub(super) const KILL_THE_LEADER: Scenario = Scenario {
    name: "kill-the-leader",
    story: "The leader of a partition is killed under a stream of acks=all writes, and started again, five times.",
    guards: "R1, R2, R17, R24: acknowledged records survive any min.isr−1 replicas; a restarted leader does not resume its epoch",
    without: "a leader that acknowledges before its followers have a record loses it here (acked-is-read); that a restarted one does not resume its epoch is shown by the simulation (restart-is-new)",
    fails_without: &[Mutation::LeaderAcknowledgesAlone],
    checkers: &["acked-is-read", "one-leader-per-epoch"],
    needs: NOTHING,
    smoke: true,
    set: "",
    run: |lab| Box::pin(kill_the_leader(lab)),
};

async fn kill_the_leader(lab: &Lab) -> Result<()> {
    lab.topic(TOPIC, PARTITIONS, 3, &[MIN_ISR]).await?;
    let stream = lab.write(Stream::endless("transfers", TOPIC, RATE));
    for round in 1..=5 {
        lab.flow(&stream, RATE / 2).await?;
        let leader = lab.leader(TOPIC).await?;
        // Followers whose disks take their time are behind: what the leader has, they need not have yet.
        if cfg!(feature = "chaos") {
            for broker in 1..=3 {
                let delay = if broker == leader { 0 } else { 60 };
                let order = format!("sync bank-transfers delay={delay}\n");
                lab.faults.disk(Process::Broker(broker), &order)?;
            }
            lab.flow(&stream, RATE / 2).await?;
        }
        let killed = Instant::now();
        lab.faults.kill(Process::Broker(leader))?;
        let next = lab.another_leader(TOPIC, leader).await?;
        let elected = killed.elapsed();
        lab.flow(&stream, RATE / 4).await?;
        lab.step(format!(
            "round {round}: broker {leader} was killed; broker {next} leads after {} ms, writes flow after {} ms",
            elected.as_millis(),
            killed.elapsed().as_millis()
        ));
        lab.faults.start(Process::Broker(leader))?;
        lab.whole().await?;
    }
    stream.stop().await?;
    lab.ensure_no_failed_write()
}

/// A process that is told to stop and may is gone by then; `controlled.shutdown.timeout.ms`, the patience of one that may not, is 25 s.
const GONE: Duration = Duration::from_secs(10);

pub(super) const ROLLING_RESTART: Scenario = Scenario {
    name: "rolling-restart",
    story: "Every controller and every broker is told to stop and started again, one after the other, under a stream of acks=all writes.",
    guards: "R11, R25, R26: an orderly stop hands over first; no write fails",
    without: "a broker that cannot hand over goes on until its patience ends, and then leaves its partitions to be missed",
    fails_without: &[Mutation::LeavingKeepsLeading],
    checkers: &["acked-is-read", "duplicate", "send-order"],
    needs: NOTHING,
    smoke: true,
    set: "",
    run: |lab| Box::pin(rolling_restart(lab)),
};

async fn rolling_restart(lab: &Lab) -> Result<()> {
    lab.topic(TOPIC, PARTITIONS, 3, &[MIN_ISR]).await?;
    let stream = lab.write(Stream::endless("transfers", TOPIC, RATE));
    lab.flow(&stream, RATE / 2).await?;
    for id in 1..=3 {
        for process in [Process::Broker(id), Process::Controller(id)] {
            let told = Instant::now();
            lab.faults.stop(process)?;
            let took = told.elapsed();
            lab.step(format!("{process} was gone after {} ms", took.as_millis()));
            ensure!(
                took < GONE,
                "{process} was gone after {took:?} only: nobody took over what it led"
            );
            lab.faults.start(process)?;
            lab.whole().await?;
            lab.flow(&stream, RATE / 4).await?;
        }
    }
    stream.stop().await?;
    let pause = lab.longest_pause();
    lab.step(format!("the longest pause was {} ms", pause.as_millis()));
    ensure!(
        pause.as_secs() < 3,
        "writes paused for {pause:?} although every stop was announced"
    );
    lab.ensure_no_failed_write()
}

pub(super) const ISOLATE_THE_LEADER: Scenario = Scenario {
    name: "isolate-the-leader",
    story: "The leader's host is cut off from the other hosts: both ways, then only what it sends, then only what it receives. Clients reach all of them all the time.",
    guards: "R2, R4, R16, R17: a leader that is alone acknowledges nothing and serves nothing that is taken back",
    without: "an old leader that still acknowledges loses what it acknowledged (acked-is-read), or readers of two leaders disagree (inconsistent-offsets); one that goes on leading never comes back in sync",
    fails_without: &[
        Mutation::LeaderAcknowledgesAlone,
        Mutation::DeposedLeaderStays,
    ],
    checkers: &["inconsistent-offsets"],
    needs: HOSTS,
    smoke: true,
    set: QUICK,
    run: |lab| Box::pin(isolate_the_leader(lab)),
};

async fn isolate_the_leader(lab: &Lab) -> Result<()> {
    lab.topic(TOPIC, 1, 3, &[MIN_ISR]).await?;
    let stream = lab.write(Stream::endless("transfers", TOPIC, RATE));
    for way in ["both ways", "what it sends", "what it receives"] {
        lab.flow(&stream, RATE / 2).await?;
        let leader = lab.leader(TOPIC).await?;
        let mut lost = Vec::new();
        for other in (1..=3).filter(|other| *other != leader) {
            if way != "what it receives" {
                lost.push((leader, other));
            }
            if way != "what it sends" {
                lost.push((other, leader));
            }
        }
        for (from, to) in &lost {
            lab.faults.cut(*from, *to)?;
        }
        let cut = Instant::now();
        let next = lab.another_leader(TOPIC, leader).await?;
        lab.flow(&stream, RATE / 2).await?;
        lab.step(format!(
            "cut off, {way}: broker {next} leads instead of {leader}, writes flow after {} ms",
            cut.elapsed().as_millis()
        ));
        for (from, to) in &lost {
            lab.faults.mend(*from, *to)?;
        }
        lab.whole().await?;
    }
    stream.stop().await?;
    lab.ensure_no_failed_write()
}

pub(super) const PAUSE_A_ZOMBIE: Scenario = Scenario {
    name: "pause-a-zombie",
    story: "The leader is frozen until another one leads and has been written to, then thawed with requests still in its sockets. Three times, no restart.",
    guards: "R4, R16, R28: what was pending when leadership was lost is not acknowledged by the old leader",
    without: "a thawed leader that answers from before its sleep acknowledges records the log does not have (acked-is-read); one that goes on leading never comes back in sync",
    fails_without: &[
        Mutation::LeaderAcknowledgesAlone,
        Mutation::AckOutlivesEpoch,
        Mutation::DeposedLeaderStays,
    ],
    checkers: &["acked-is-read", "duplicate"],
    needs: NOTHING,
    smoke: false,
    set: QUICK,
    run: |lab| Box::pin(pause_a_zombie(lab)),
};

async fn pause_a_zombie(lab: &Lab) -> Result<()> {
    lab.topic(TOPIC, 1, 3, &[MIN_ISR]).await?;
    let stream = lab.write(Stream::endless("transfers", TOPIC, RATE));
    for round in 1..=3 {
        lab.flow(&stream, RATE / 2).await?;
        let leader = lab.leader(TOPIC).await?;
        let mut waiting = Vec::new();
        for client in 0..8 {
            let first = round * 1_000_000_000 + 500_000_000 + client * 1_000;
            let stream = Stream::numbers("under way", TOPIC, first, first + 5);
            waiting.push(lab.wait_at(leader, stream).await?);
        }
        lab.faults.pause(Process::Broker(leader))?;
        let frozen = Instant::now();
        let under_way: Vec<_> = waiting
            .into_iter()
            .map(|client| tokio::spawn(client.write()))
            .collect();
        let next = lab.another_leader(TOPIC, leader).await?;
        // A stream of its own: the first may be waiting for the frozen broker's answer until its request times out.
        let fresh = lab.write(Stream {
            first: round * 1_000_000_000,
            count: 500,
            partition: Some(0),
            ..Stream::endless("fresh", TOPIC, RATE)
        });
        fresh.end().await?;
        lab.step(format!(
            "round {round}: broker {leader} is frozen; broker {next} leads and has 500 more records after {} ms",
            frozen.elapsed().as_millis()
        ));
        lab.faults.resume(Process::Broker(leader))?;
        for client in under_way {
            client.await??;
        }
        lab.whole().await?;
    }
    stream.stop().await
}

pub(super) const CONTROLLER_AND_BROKER: Scenario = Scenario {
    name: "controller-and-broker",
    story: "The active controller and the leader of a partition are killed at the same moment, three times.",
    guards: "R26, R27: a controller that has just taken office still fences who is dead, and nobody else; at once, since the dead broker's host refuses connections",
    without: "a new controller that forgets whom to expect never fences the dead broker, one that asks nobody does so after a minute: no leader, no writes",
    fails_without: &[Mutation::DeadBrokersForgotten],
    checkers: &["leader-in-isr", "metadata-digests"],
    needs: NOTHING,
    smoke: true,
    set: "broker.session.timeout.ms=60000 broker.heartbeat.interval.ms=500 replica.lag.time.max.ms=4000",
    run: |lab| Box::pin(controller_and_broker(lab)),
};

async fn controller_and_broker(lab: &Lab) -> Result<()> {
    lab.topic(TOPIC, PARTITIONS, 3, &[MIN_ISR]).await?;
    let stream = lab.write(Stream::endless("transfers", TOPIC, RATE));
    for round in 1..=3 {
        lab.flow(&stream, RATE / 2).await?;
        let leader = lab.leader(TOPIC).await?;
        let active = lab.admin.active_controller().await?;
        let both = [Process::Controller(active), Process::Broker(leader)];
        let killed = Instant::now();
        lab.faults.kill_all(&both)?;
        let next = lab.another_leader(TOPIC, leader).await?;
        let elected = killed.elapsed();
        lab.flow(&stream, RATE / 4).await?;
        lab.step(format!(
            "round {round}: controller {active} and broker {leader} were killed; broker {next} leads after {} ms",
            elected.as_millis()
        ));
        // The controllers' own election, two looks, and room for a busy machine; the session is over after a minute.
        ensure!(elected.as_secs() < 10, "{elected:?} until another leader");
        lab.faults.start_all(&both)?;
        lab.whole().await?;
    }
    stream.stop().await?;
    lab.ensure_no_failed_write()
}

pub(super) const BACK_TO_BACK: Scenario = Scenario {
    name: "back-to-back-elections",
    story: "Leadership goes from A to B and back to A, twice, without a record in between, while C sleeps through all of it; then C wakes.",
    guards: "R13 (KAFKA-10706): epochs without records resolve; nobody stays out of sync",
    without: "a replica that keeps the conflicting empty epoch never finds where to continue: C stays out of sync for ever",
    fails_without: &[Mutation::EmptyEpochsStay],
    checkers: &["replicas-identical"],
    needs: NOTHING,
    smoke: false,
    set: QUICK,
    run: |lab| Box::pin(back_to_back(lab)),
};

async fn back_to_back(lab: &Lab) -> Result<()> {
    lab.topic(TOPIC, 1, 3, &[MIN_ISR]).await?;
    let first = lab.write(Stream::numbers("before", TOPIC, 0, 500));
    first.end().await?;
    let found = lab
        .partition_until(TOPIC, "all are in sync", |one| one.isr.len() == 3)
        .await?;
    let (a, c) = (found.replicas[0], found.replicas[2]);
    lab.admin.elect_preferred().await.ok();
    lab.partition_until(TOPIC, "the preferred replica leads", |one| {
        one.leader == Some(a)
    })
    .await?;
    lab.faults.pause(Process::Broker(c))?;
    for round in 1..=2 {
        lab.faults.kill(Process::Broker(a))?;
        let b = lab.another_leader(TOPIC, a).await?;
        lab.faults.start(Process::Broker(a))?;
        lab.partition_until(TOPIC, "A is in sync", |one| one.isr.contains(&a))
            .await?;
        lab.until("A leads again", async || {
            let answer = lab.admin.elect_preferred().await;
            let leader = lab.admin.partition(TOPIC, 0).await?.leader;
            answer.map(|_| leader == Some(a))
        })
        .await?;
        lab.step(format!(
            "round {round}: from broker {a} to broker {b} and back, without a record"
        ));
    }
    lab.faults.resume(Process::Broker(c))?;
    lab.whole().await?;
    lab.write(Stream::numbers("after", TOPIC, 500, 1_000))
        .end()
        .await?;
    lab.ensure_no_failed_write()
}
