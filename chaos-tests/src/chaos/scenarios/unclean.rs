//! Loss against availability, decided per topic: who may lead when nobody who has everything is left, and what that costs.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{AVAILABLE, CHAOS_BUILD, Lab, Mutation, NOTHING, QUICK, Scenario};
use crate::chaos::history::{Event, Outcome};
use crate::chaos::workload::Stream;
use crate::cluster::Process;

const CLEAN: &str = "bank-transfers";
const UNCLEAN: &str = "telemetry-logs";
const EVER: i64 = i64::MAX;
/// The two that have everything.
const COMPLETE: [Process; 2] = [Process::Broker(1), Process::Broker(2)];

pub(super) const THE_CRISIS: Scenario = Scenario {
    name: "the-crisis",
    story: "Log ends 100, 100 and 80; the two that have everything die. The topic that says false waits for them; the one that says true is led by the third, from offset 80.",
    guards: "R17–R20 and the third seed's table: the policy is the topic's; a returning log is cut to where the new epoch begins",
    without: "cut at the high watermark (Kafka before 0.11) the returning logs keep [80, 100) beside the new records: replicas-identical",
    fails_without: &[
        Mutation::TruncateToHighWatermark,
        Mutation::UncleanWhateverThePolicy,
    ],
    checkers: &["replicas-identical"],
    needs: NOTHING,
    smoke: true,
    set: QUICK,
    run: |lab| Box::pin(the_crisis(lab)),
};

async fn the_crisis(lab: &Lab) -> Result<()> {
    let one = ("min.insync.replicas", "1");
    let policy = |value| ("unclean.leader.election.enable", value);
    lab.topic(CLEAN, 1, 3, &[one, policy("false")]).await?;
    lab.topic(UNCLEAN, 1, 3, &[one, policy("true")]).await?;
    for (topic, first) in [(CLEAN, 0), (UNCLEAN, 1_000)] {
        lab.write(Stream::numbers("all three", topic, first, first + 80))
            .end()
            .await?;
    }
    lab.whole().await?;
    lab.faults.separate(3)?;
    for (topic, first) in [(CLEAN, 80), (UNCLEAN, 1_080)] {
        lab.partition_until(topic, "broker 3 is out of sync", |one| {
            !one.isr.contains(&3)
        })
        .await?;
        lab.write(Stream::numbers("two of three", topic, first, first + 20))
            .end()
            .await?;
        // Both have all of it: what the leader alone had would be a smaller loss.
        lab.partition_until(topic, "two log ends are 100", |one| {
            let ends = one
                .replica_states
                .iter()
                .filter(|replica| replica.leo == Some(100));
            ends.count() == 2
        })
        .await?;
    }
    // Cut at what they take for committed, they would lose nothing.
    for broker in [1, 2] {
        lab.until("it is on their disks that 100 are committed", async || {
            lab.has_checkpointed(broker, UNCLEAN, 100)
        })
        .await?;
    }
    lab.step("log ends: 100, 100, 80; all that the two have is committed");
    lab.may_lose(UNCLEAN, 0, 80, EVER);
    lab.faults.kill_all(&COMPLETE)?;
    lab.faults.join(3)?;
    lab.partition_until(UNCLEAN, "broker 3 leads the one that says true", |one| {
        one.leader == Some(3)
    })
    .await?;
    let clean = lab
        .partition_until(CLEAN, "nobody leads the one that says false", |one| {
            one.leader.is_none()
        })
        .await?;
    let remembered = clean
        .isr
        .iter()
        .chain(&clean.elr)
        .any(|member| *member != 3);
    ensure!(
        remembered && !clean.isr.contains(&3),
        "who has everything is not forgotten: {clean:?}"
    );
    lab.step("broker 3 leads telemetry-logs; bank-transfers waits");
    lab.write(Stream::numbers("after", UNCLEAN, 1_500, 1_510))
        .end()
        .await?;
    let first = offset_of(lab, 1_500)?;
    ensure!(
        first == 80,
        "the first record of the new epoch is at {first}"
    );
    let still = lab.admin.partition(CLEAN, 0).await?;
    ensure!(
        still.leader.is_none(),
        "the policy is the topic's alone: {still:?}"
    );
    let health = lab.admin.health().await?;
    let named = health.reasons.iter().any(|reason| {
        let mut sample = reason.sample.iter();
        sample.any(|one| one.contains(CLEAN))
    });
    ensure!(named, "health names the offline partition: {health:?}");
    lab.faults.start_all(&COMPLETE)?;
    lab.whole().await?;
    lab.write(Stream::numbers("later", CLEAN, 100, 110))
        .end()
        .await?;
    ensure!(
        offset_of(lab, 100)? == 100,
        "the one that waited goes on where it stopped"
    );
    // Whoever returned was cut to 80 and has the new records: the comparison of the disks at the end says whether that is so.
    Ok(())
}

/// Where a record was acknowledged.
pub(super) fn offset_of(lab: &Lab, id: u64) -> Result<i64> {
    let entries = lab.history.entries();
    let found = entries.iter().rev().find_map(|entry| match entry.event {
        Event::Wrote {
            id: this,
            outcome: Outcome::Acked,
            offset,
            ..
        } if this == id => offset,
        _ => None,
    });
    found.with_context(|| format!("{id} was not acknowledged"))
}

/// How a record's write ended, and the error if it was none.
fn end_of(lab: &Lab, id: u64) -> Result<(Outcome, String)> {
    let entries = lab.history.entries();
    let found = entries.iter().rev().find_map(|entry| match &entry.event {
        Event::Wrote {
            id: this,
            outcome,
            error,
            ..
        } if *this == id => Some((*outcome, error.clone().unwrap_or_default())),
        _ => None,
    });
    found.with_context(|| format!("the write of {id} did not end"))
}

/// Whether a leader has said where a record is; with acks=1 that is all it says.
fn is_taken(lab: &Lab, id: u64) -> bool {
    let entries = lab.history.entries();
    entries.iter().any(
        |entry| matches!(entry.event, Event::Wrote { id: this, offset: Some(_), .. } if this == id),
    )
}

pub(super) const BOTH_SETTINGS: Scenario = Scenario {
    name: "both-settings",
    story: "unclean.leader.election.enable=true and min.insync.replicas=2: the last broker leads, acks=1 is taken, and acks=all is refused.",
    guards: "R3 and the seeds' point 11: availability needs both settings; one replica never acknowledges for two",
    without: "a leader that ignores min.insync.replicas acknowledges what one disk has",
    fails_without: &[Mutation::HighWatermarkIgnoresMinIsr],
    checkers: &["acked-is-read"],
    needs: NOTHING,
    smoke: false,
    set: QUICK,
    run: |lab| Box::pin(both_settings(lab)),
};

async fn both_settings(lab: &Lab) -> Result<()> {
    let configs = [
        ("min.insync.replicas", "2"),
        ("unclean.leader.election.enable", "true"),
    ];
    lab.topic(UNCLEAN, 1, 3, &configs).await?;
    lab.write(Stream::numbers("before", UNCLEAN, 0, 100))
        .end()
        .await?;
    lab.whole().await?;
    lab.faults.separate(3)?;
    lab.partition_until(UNCLEAN, "broker 3 is out of sync", |one| {
        !one.isr.contains(&3)
    })
    .await?;
    lab.write(Stream::numbers("two of three", UNCLEAN, 100, 150))
        .end()
        .await?;
    lab.may_lose(UNCLEAN, 0, 100, EVER);
    lab.faults.kill_all(&COMPLETE)?;
    lab.faults.join(3)?;
    lab.partition_until(UNCLEAN, "broker 3 leads", |one| one.leader == Some(3))
        .await?;
    let short = Duration::from_secs(3);
    let refused = Stream {
        delivery_timeout: short,
        ..Stream::numbers("acks=all", UNCLEAN, 200, 201)
    };
    lab.write(refused).end().await?;
    let (outcome, error) = end_of(lab, 200)?;
    ensure!(
        outcome != Outcome::Acked && error.contains("NOT_ENOUGH_REPLICAS"),
        "acks=all: {outcome:?}, {error}"
    );
    lab.step(format!("acks=all is refused: {error}"));
    let taken = Stream {
        acks: "1",
        ..Stream::numbers("acks=1", UNCLEAN, 300, 310)
    };
    lab.write(taken).end().await?;
    ensure!(
        is_taken(lab, 300),
        "acks=1 is taken: {:?}",
        end_of(lab, 300)?
    );
    let health = lab.admin.health().await?;
    let mut samples = health.reasons.iter().flat_map(|reason| &reason.sample);
    ensure!(
        samples.any(|sample| sample.contains(UNCLEAN)),
        "health says that the topic takes no acks=all writes: {health:?}"
    );
    lab.faults.start_all(&COMPLETE)?;
    lab.whole().await?;
    lab.write(Stream::numbers("after", UNCLEAN, 400, 410))
        .end()
        .await?;
    ensure!(
        end_of(lab, 400)?.0 == Outcome::Acked,
        "with two in sync acks=all is taken again"
    );
    Ok(())
}

pub(super) const THREE_UNCLEAN_ELECTIONS: Scenario = Scenario {
    name: "three-unclean-elections",
    story: "Two replicas; in turn only one of them lives, leads uncleanly and is written to. Three rounds; then both live.",
    guards: "R14 (KIP-279): divergence over several epochs resolves; logs are identical, offsets unique, no hole",
    without: "a follower that asks for one epoch's end only keeps records of an epoch the leader never had: replicas-identical",
    fails_without: &[Mutation::NoTruncation],
    checkers: &["replicas-identical", "offset-immutable"],
    needs: NOTHING,
    smoke: false,
    set: QUICK,
    run: |lab| Box::pin(three_unclean_elections(lab)),
};

async fn three_unclean_elections(lab: &Lab) -> Result<()> {
    lab.topic(UNCLEAN, 1, 2, &AVAILABLE).await?;
    lab.may_lose(UNCLEAN, 0, 0, EVER);
    let replicas = lab.admin.partition(UNCLEAN, 0).await?.replicas;
    lab.write(Stream::numbers("both", UNCLEAN, 0, 50))
        .end()
        .await?;
    lab.whole().await?;
    let (mut alive, mut dead) = (replicas[0], replicas[1]);
    lab.faults.kill(Process::Broker(dead))?;
    for round in 0..3 {
        let leads = lab
            .partition_until(UNCLEAN, "the one that lives leads", |one| {
                one.leader == Some(alive)
            })
            .await?;
        let first = 1_000 * (round + 1);
        let stream = Stream {
            acks: "1",
            ..Stream::numbers("alone", UNCLEAN, first, first + 20 + round * 7)
        };
        lab.write(stream).end().await?;
        ensure!(is_taken(lab, first), "{first}: {:?}", end_of(lab, first)?);
        lab.step(format!(
            "round {}: broker {alive} alone leads under epoch {} and is written to",
            round + 1,
            leads.leader_epoch
        ));
        if round < 2 {
            // Only once the other has been fenced may the one that returns be elected over its head.
            lab.faults.kill(Process::Broker(alive))?;
            lab.partition_until(UNCLEAN, "nobody leads", |one| one.leader.is_none())
                .await?;
            lab.faults.start(Process::Broker(dead))?;
            (alive, dead) = (dead, alive);
        }
    }
    lab.faults.start(Process::Broker(dead))?;
    lab.whole().await
}

pub(super) const LAST_REPLICA_STANDING: Scenario = Scenario {
    name: "last-replica-standing",
    story: "Both followers freeze until the leader is alone; then its power goes, with all that was not synced; then the followers thaw.",
    guards: "R3, R18, R21: nothing is acknowledged by one for two; whoever leads next has all that was acknowledged",
    without: "without the gate on min.insync.replicas the leader acknowledges alone, and the follower that leads next has none of it (acked-is-read)",
    fails_without: &[Mutation::HighWatermarkIgnoresMinIsr],
    checkers: &["acked-is-read", "monotone-end"],
    needs: CHAOS_BUILD,
    smoke: true,
    set: QUICK,
    run: |lab| Box::pin(last_replica_standing(lab)),
};

async fn last_replica_standing(lab: &Lab) -> Result<()> {
    lab.topic(CLEAN, 1, 3, &[("min.insync.replicas", "2")])
        .await?;
    lab.write(Stream::numbers("before", CLEAN, 0, 2_000))
        .end()
        .await?;
    lab.whole().await?;
    let leader = lab.leader(CLEAN).await?;
    let followers: Vec<i32> = (1..=3).filter(|id| *id != leader).collect();
    for follower in &followers {
        lab.faults.pause(Process::Broker(*follower))?;
    }
    let alone = lab
        .partition_until(CLEAN, "the leader is alone", |one| one.isr == [leader])
        .await?;
    lab.step(format!(
        "only broker {leader} is in sync; eligible besides: {:?}",
        alone.elr
    ));
    let refused = Stream {
        delivery_timeout: Duration::from_secs(3),
        ..Stream::numbers("alone", CLEAN, 5_000, 5_050)
    };
    lab.write(refused).end().await?;
    for id in 5_000..5_050 {
        ensure!(
            end_of(lab, id)?.0 != Outcome::Acked,
            "{id} was acknowledged by one alone"
        );
    }
    let cut = lab.faults.cut_power(&[Process::Broker(leader)], lab.seed)?;
    lab.step(format!(
        "the power of broker {leader} is gone, and with it {cut:?}"
    ));
    for follower in &followers {
        lab.faults.resume(Process::Broker(*follower))?;
    }
    let next = lab
        .partition_until(CLEAN, "somebody decides who leads", |one| {
            one.leader.is_none_or(|now| now != leader)
        })
        .await?;
    lab.step(format!("now leads: {:?}", next.leader));
    lab.faults.start(Process::Broker(leader))?;
    lab.whole().await?;
    lab.write(Stream::numbers("after", CLEAN, 10_000, 10_100))
        .end()
        .await?;
    ensure!(end_of(lab, 10_000)?.0 == Outcome::Acked, "writes go on");
    Ok(())
}
