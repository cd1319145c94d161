//! Disks that forget, tear, rot, fill up, slow down or are replaced, and clocks that jump.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kuorum_admin_api::{BrokerState, Partition};
use tokio::time::sleep;

use super::{CHAOS_BUILD, Lab, Mutation, NOTHING, QUICK, Scenario};
use crate::chaos::lab::every_process;
use crate::chaos::sandbox;
use crate::chaos::watch::{log_lines, wall_clock};
use crate::chaos::workload::{Stream, Writing};
use crate::cluster::Process;

const TOPIC: &str = "bank-transfers";
const PARTITIONS: i32 = 3;
const RATE: u64 = 1_000;
const MIN_ISR: (&str, &str) = ("min.insync.replicas", "2");
/// By when a broker has told in which directories its new replicas lie.
const TOLD: Duration = Duration::from_secs(3);

pub(super) const POWER_LOSS: Scenario = Scenario {
    name: "power-loss",
    story: "The power of all six processes goes at once under a stream of acks=all writes: what was not synced is lost, kept or torn, by seed. Three times, started again in three orders; then twice when the leader's disk is by far the slowest, and twice when a follower's is, and the slow one comes back before the others.",
    guards: "D1, D2, D3, R22: an acknowledged record is on the disks of every member of the ISR; a torn tail is cut, in any order of restart",
    without: "a leader or follower that counts what it has not flushed acknowledges what this takes away (acked-is-read)",
    fails_without: &[
        Mutation::FollowerReportsUnflushed,
        Mutation::LeaderCountsUnflushed,
    ],
    checkers: &["acked-is-read", "offset-immutable"],
    needs: CHAOS_BUILD,
    smoke: true,
    set: "",
    run: |lab| Box::pin(power_loss(lab)),
};

async fn power_loss(lab: &Lab) -> Result<()> {
    lab.topic(
        TOPIC,
        PARTITIONS,
        3,
        &[MIN_ISR, ("segment.bytes", "1048576")],
    )
    .await?;
    // Disks that take their time have more to lose: leaders that are slower than their followers, and the other way round.
    for (broker, delay) in [(1, 150), (2, 60), (3, 20)] {
        let order = format!("sync bank-transfers delay={delay}\n");
        lab.faults.disk(Process::Broker(broker), &order)?;
    }
    let stream = lab.write(Stream::endless("transfers", TOPIC, RATE));
    for round in 0..3_u64 {
        lab.flow(&stream, RATE).await?;
        no_power(lab, round)?;
        let mut order = every_process();
        order.rotate_left(2 * round as usize);
        for process in order {
            lab.faults.start(process)?;
        }
        lab.whole().await?;
    }
    for (round, leads) in (3..).zip([true, true, false, false]) {
        let (slow, led) = one_is_slow(lab, &stream, leads).await?;
        no_power(lab, round)?;
        let (first, others): (Vec<Process>, Vec<Process>) =
            every_process().into_iter().partition(|one| {
                matches!(one, Process::Controller(_)) || *one == Process::Broker(slow)
            });
        lab.faults.start_all(&first)?;
        lab.partition_until(TOPIC, "the slow one leads", |one| {
            one.leader == Some(slow) && one.leader_epoch > led.leader_epoch
        })
        .await?;
        lab.faults.start_all(&others)?;
        lab.whole().await?;
    }
    lab.flow(&stream, RATE).await?;
    stream.stop().await
}

/// Makes the disk of the leader, or of a follower, by far the slowest, and waits until all three are in sync with it. Returns whose.
async fn one_is_slow(lab: &Lab, stream: &Writing, leads: bool) -> Result<(i32, Partition)> {
    // What controllers say just after they came back is from before: writes in between make it news.
    for _ in 0..10 {
        lab.flow(stream, RATE).await?;
        let led = lab
            .partition_until(TOPIC, "all three are in sync", |one| {
                one.leader.is_some() && one.isr.len() == 3
            })
            .await?;
        let leader = led.leader.context("it has a leader")?;
        let slow = if leads { leader } else { leader % 3 + 1 };
        for broker in 1..=3 {
            let delay = if broker == slow { 300 } else { 1 };
            let order = format!("sync bank-transfers delay={delay}\n");
            lab.faults.disk(Process::Broker(broker), &order)?;
        }
        lab.flow(stream, RATE).await?;
        let now = lab.admin.partition(TOPIC, 0).await?;
        if now.leader_epoch == led.leader_epoch && now.isr.len() == 3 {
            return Ok((slow, now));
        }
    }
    bail!("nobody goes on leading all three")
}

/// The power of all six processes goes.
fn no_power(lab: &Lab, round: u64) -> Result<()> {
    let seed = lab.seed.wrapping_add(round);
    let cut = lab.faults.cut_power(&every_process(), seed)?;
    lab.step(format!("the power was gone: {cut:?}"));
    ensure!(
        cut.pending > 0,
        "nothing was on its way to a disk: this proves nothing"
    );
    Ok(())
}

pub(super) const TORN_TAIL_AND_BIT_FLIPS: Scenario = Scenario {
    name: "torn-tail-and-bit-flips",
    story: "Of killed followers' logs one gets half a batch more at its end, one loses its last bytes, and one has a bit flipped in the middle of what was flushed. Then the last of them has to lead. In the end all brokers die, and a damaged one comes back alone.",
    guards: "D3, D4: a torn end is cut; damage below the flushed end is found before it is served, and mended from the leader",
    without: "a broker that takes damage for a torn tail forgets what it had acknowledged; one that does not look serves it",
    fails_without: &[Mutation::DamageGoesUntold],
    checkers: &["replicas-identical", "acked-is-read", "offset-immutable"],
    needs: NOTHING,
    smoke: false,
    set: QUICK,
    run: |lab| Box::pin(torn_tail_and_bit_flips(lab)),
};

async fn torn_tail_and_bit_flips(lab: &Lab) -> Result<()> {
    lab.topic(TOPIC, 1, 3, &[MIN_ISR]).await?;
    let stream = lab.write(Stream::endless("transfers", TOPIC, RATE));
    lab.flow(&stream, 2 * RATE).await?;
    lab.whole().await?;
    let mut last = 0;
    for damage in [
        "half a batch at its end",
        "its last bytes gone",
        "a bit flipped in the middle",
    ] {
        let leader = lab.leader(TOPIC).await?;
        let follower = (1..=3)
            .find(|id| *id != leader && *id != last)
            .context("there are three")?;
        last = follower;
        lab.faults.kill(Process::Broker(follower))?;
        let log = segment(lab, follower)?;
        let mut bytes = fs::read(&log)?;
        let middle = bytes.len() / 2;
        match damage {
            "half a batch at its end" => {
                let first = bytes[..200].to_vec();
                bytes.extend(first);
            }
            "its last bytes gone" => bytes.truncate(bytes.len() - 100),
            _ => bytes[middle] ^= 0x10,
        }
        fs::write(&log, bytes)?;
        let restarted = wall_clock();
        lab.faults.start(Process::Broker(follower))?;
        lab.whole().await?;
        lab.step(format!(
            "broker {follower} with {damage}: {}",
            complaints(lab, follower, restarted)?
        ));
        lab.flow(&stream, RATE / 2).await?;
    }
    // What was mended is now what is served.
    let leader = lab.leader(TOPIC).await?;
    let other = (1..=3)
        .find(|id| *id != leader && *id != last)
        .context("there are three")?;
    let killed = wall_clock();
    let unmended = [Process::Broker(leader), Process::Broker(other)];
    lab.faults.kill_all(&unmended)?;
    lab.faults.start(unmended[0])?;
    lab.partition_until(TOPIC, "two are in sync", |one| {
        one.leader.is_some() && one.isr.len() == 2
    })
    .await?;
    lab.flow(&stream, RATE / 2).await?;
    lab.step(format!(
        "broker {last} served what it had: {}",
        complaints(lab, last, killed)?
    ));
    lab.faults.start(unmended[1])?;
    lab.whole().await?;
    lab.flow(&stream, RATE / 2).await?;
    alone_at_first(lab, "damaged in the middle", |broker| {
        let log = segment(lab, broker)?;
        let mut bytes = fs::read(&log)?;
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x10;
        Ok(fs::write(&log, bytes)?)
    })
    .await?;
    stream.stop().await
}

/// All brokers die at once. One on which everything may hang (it was in sync, or is eligible) comes back alone, and not as
/// it was: it must not lead. Then the others come back.
async fn alone_at_first(lab: &Lab, how: &str, harm: impl Fn(i32) -> Result<()>) -> Result<()> {
    let all = [1, 2, 3].map(Process::Broker);
    lab.faults.kill_all(&all)?;
    lab.until("all three are missed", async || {
        let brokers = lab.admin.brokers().await?;
        Ok(brokers.iter().all(|one| one.state == BrokerState::Fenced))
    })
    .await?;
    let left = lab.admin.partition(TOPIC, 0).await?;
    let mut complete = left.isr.iter().chain(&left.elr);
    let alone = *complete.next().context("somebody was in sync last")?;
    ensure!(
        complete.next().is_some(),
        "only broker {alone} has it all: {left:?}"
    );
    harm(alone)?;
    lab.faults.start(Process::Broker(alone))?;
    lab.until("it is back", async || {
        let brokers = lab.admin.brokers().await?;
        let mut back = brokers
            .iter()
            .filter(|one| one.state == BrokerState::Active);
        Ok(back.any(|one| one.id == alone))
    })
    .await?;
    // It tells where its replicas lie only after a while, and cannot lead before.
    let start = Instant::now();
    while start.elapsed() < TOLD {
        let found = lab.admin.partition(TOPIC, 0).await?;
        ensure!(
            found.leader.is_none(),
            "broker {alone}, {how}, was alone and led: {found:?}"
        );
        sleep(TOLD / 20).await;
    }
    lab.step(format!(
        "all three were killed; broker {alone} came back first, {how}, and did not lead"
    ));
    for other in all.iter().filter(|one| **one != Process::Broker(alone)) {
        lab.faults.start(*other)?;
    }
    lab.whole().await
}

/// What a broker has said of damage since then.
fn complaints(lab: &Lab, broker: i32, since: f64) -> Result<String> {
    let home = lab.faults.homes(Process::Broker(broker)).remove(0);
    let lines = log_lines(&home)?.into_iter();
    let said: Vec<String> = lines
        .filter(|line| line.at >= since)
        .filter(|line| line.message.contains("torn end") || line.text("level") == Some("ERROR"))
        .map(|line| line.message)
        .collect();
    Ok(match said.is_empty() {
        true => "it said nothing".to_owned(),
        false => format!("it said: {}", said.join("; ")),
    })
}

/// The newest segment of partition 0 on a broker.
fn segment(lab: &Lab, broker: i32) -> Result<PathBuf> {
    let home = lab.faults.cluster.homes(Process::Broker(broker)).remove(0);
    let folder = home.join("data").join(format!("{TOPIC}-0"));
    let mut logs: Vec<PathBuf> = fs::read_dir(&folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<_>>()?;
    logs.retain(|path| path.extension().is_some_and(|ending| ending == "log"));
    logs.sort();
    logs.pop().context("a partition has a segment")
}

pub(super) const WIPED_FOLLOWER: Scenario = Scenario {
    name: "wiped-follower",
    story: "A follower is killed, its disk replaced by an empty one, and it is started again at once; the leader is killed right after. Three times. In the end all brokers die, and an emptied one comes back alone.",
    guards: "R7 (KIP-903): an empty replica is not taken for the one it replaces",
    without: "the empty replica keeps the place of the one before, and leads with nothing (acked-is-read)",
    fails_without: &[Mutation::WipedCountsAsIntact],
    checkers: &["acked-is-read"],
    needs: NOTHING,
    smoke: false,
    set: QUICK,
    run: |lab| Box::pin(wiped_follower(lab)),
};

async fn wiped_follower(lab: &Lab) -> Result<()> {
    lab.topic(TOPIC, 1, 3, &[MIN_ISR]).await?;
    let stream = lab.write(Stream::endless("transfers", TOPIC, RATE));
    lab.flow(&stream, 2 * RATE).await?;
    for round in 1..=3 {
        let leader = lab.leader(TOPIC).await?;
        let follower = leader % 3 + 1;
        lab.faults.kill(Process::Broker(follower))?;
        lab.faults.wipe(follower)?;
        lab.faults.start(Process::Broker(follower))?;
        lab.faults.kill(Process::Broker(leader))?;
        let next = lab.another_leader(TOPIC, leader).await?;
        lab.step(format!(
            "round {round}: broker {follower} came back empty, broker {leader} was killed, broker {next} leads"
        ));
        lab.faults.start(Process::Broker(leader))?;
        lab.whole().await?;
        lab.flow(&stream, RATE / 2).await?;
    }
    alone_at_first(lab, "with an empty disk", |broker| lab.faults.wipe(broker)).await?;
    stream.stop().await
}

pub(super) const FAILING_DISKS: Scenario = Scenario {
    name: "failing-disks",
    story: "The leader's disk becomes slow; a follower's says that it is full; the leader's refuses to sync; the leader's, a small one, is filled to the last byte. Each is mended by a restart.",
    guards: "D6, rule 10: an IO error takes the directory out of service, leadership moves, nothing that was acknowledged is lost; a slow disk loses nothing",
    without: "a broker that tries a failed sync again acknowledges what the kernel has dropped; one that stays leader stops all writes",
    fails_without: &[Mutation::DiskFailureGoesUntold],
    checkers: &["acked-is-read"],
    needs: CHAOS_BUILD,
    smoke: false,
    set: QUICK,
    run: |lab| Box::pin(failing_disks(lab)),
};

async fn failing_disks(lab: &Lab) -> Result<()> {
    lab.topic(TOPIC, 1, 3, &[MIN_ISR]).await?;
    let stream = lab.write(Stream::endless("transfers", TOPIC, RATE));
    lab.flow(&stream, RATE).await?;
    let leader = lab.leader(TOPIC).await?;
    let slow = Process::Broker(leader);
    lab.faults.disk(slow, "sync bank-transfers delay=300\n")?;
    lab.flow(&stream, RATE).await?;
    lab.faults.disk(slow, "")?;
    lab.step(format!(
        "the disk of the leader, broker {leader}, took 300 ms to sync; writes went on"
    ));

    let follower = leader % 3 + 1;
    let full = Process::Broker(follower);
    lab.faults.disk(full, "write bank-transfers enospc\n")?;
    lab.partition_until(TOPIC, "the full follower is out", |one| {
        !one.isr.contains(&follower)
    })
    .await?;
    lab.flow(&stream, RATE).await?;
    lab.step(format!(
        "the disk of broker {follower} is full; it left the ISR and writes went on"
    ));
    mend(lab, full).await?;

    let leader = lab.leader(TOPIC).await?;
    let broken = Process::Broker(leader);
    lab.faults.disk(broken, "sync bank-transfers eio\n")?;
    let next = lab.another_leader(TOPIC, leader).await?;
    lab.flow(&stream, RATE).await?;
    lab.step(format!(
        "the disk of broker {leader} refused to sync; broker {next} leads and writes went on"
    ));
    mend(lab, broken).await?;
    if sandbox::inside() {
        full_for_real(lab, &stream).await?;
    } else {
        lab.step("left out: this machine lets nobody mount a small disk to fill it");
    }
    stream.stop().await
}

/// The leader's data lies on a disk of its own, which is filled and given room again.
async fn full_for_real(lab: &Lab, stream: &Writing) -> Result<()> {
    const MIB: u32 = 64;
    let replicas = lab.admin.partition(TOPIC, 0).await?.replicas;
    let preferred = *replicas.first().context("it has replicas")?;
    let process = Process::Broker(preferred);
    lab.faults.stop(process)?;
    lab.faults.small_disk(preferred, MIB)?;
    lab.faults.start(process)?;
    lab.whole().await?;
    lab.admin.elect_preferred().await?;
    lab.partition_until(TOPIC, "the broker with the small disk leads", |one| {
        one.leader == Some(preferred)
    })
    .await?;
    lab.flow(stream, RATE).await?;

    let filled = wall_clock();
    lab.faults.fill(preferred)?;
    let next = lab.another_leader(TOPIC, preferred).await?;
    lab.partition_until(TOPIC, "the broker with the full disk is out", |one| {
        !one.isr.contains(&preferred)
    })
    .await?;
    lab.flow(stream, RATE).await?;
    let said = complaints(lab, preferred, filled)?;
    ensure!(
        said.contains("is offline"),
        "broker {preferred} did not say that its directory is offline: {said}"
    );
    lab.step(format!(
        "the disk of the leader, broker {preferred}, is full to the last byte; broker {next} leads and writes went on; {said}"
    ));

    lab.faults.make_room(preferred)?;
    lab.faults.kill(process)?;
    lab.faults.start(process)?;
    lab.whole().await?;
    lab.step("the disk has room again, and the broker was started again");
    lab.flow(stream, RATE).await?;
    lab.faults.stop(process)?;
    lab.faults.usual_disk(preferred)?;
    lab.faults.start(process)?;
    lab.whole().await
}

async fn mend(lab: &Lab, process: Process) -> Result<()> {
    lab.faults.disk(process, "")?;
    lab.faults.kill(process)?;
    lab.faults.start(process)?;
    lab.whole().await
}

pub(super) const CLOCK_JUMP: Scenario = Scenario {
    name: "clock-jump",
    story: "The wall clocks of brokers and controllers jump by fifty minutes, forwards and backwards, one at a time.",
    guards: "Sessions and deadlines are counted by the monotonic clock alone: nobody is fenced, no leader changes",
    without: "a session that ends by the wall clock fences a healthy broker, and leadership moves",
    fails_without: &[Mutation::SessionsByWallClock],
    checkers: &["monotone-end", "one-leader-per-epoch"],
    needs: CHAOS_BUILD,
    smoke: false,
    set: "",
    run: |lab| Box::pin(clock_jump(lab)),
};

async fn clock_jump(lab: &Lab) -> Result<()> {
    // A broker an hour behind rightly refuses what claims to come from the future (message.timestamp.after.max.ms).
    const JUMP: i64 = 50 * 60_000;
    lab.topic(TOPIC, PARTITIONS, 3, &[MIN_ISR]).await?;
    lab.whole().await?;
    let before = epochs(lab).await?;
    let stream = lab.write(Stream::endless("transfers", TOPIC, RATE));
    for process in every_process() {
        for millis in [JUMP, -JUMP, 0] {
            lab.faults.clock(process, millis)?;
            lab.flow(&stream, RATE / 3).await?;
        }
    }
    stream.stop().await?;
    let after = epochs(lab).await?;
    ensure!(
        before == after,
        "leader epochs were {before:?} and are {after:?}"
    );
    let pause = lab.longest_pause();
    ensure!(pause.as_secs() < 2, "writes paused for {pause:?}");
    lab.step(format!(
        "no leader changed; the longest pause was {} ms",
        pause.as_millis()
    ));
    lab.ensure_no_failed_write()
}

async fn epochs(lab: &Lab) -> Result<Vec<i32>> {
    let partitions = lab.admin.partitions(TOPIC).await?;
    Ok(partitions.iter().map(|one| one.leader_epoch).collect())
}
