//! Stories of loss and availability, told in the simulation: what happens is asked for step by step, and every property
//! of the seeded runs is checked on the way.

use std::time::Duration;

use kuorum_chaos_tests::sim::stories::Story;
use kuorum_chaos_tests::sim::{Plan, Topic};
use kuorum_protocol::{BrokerId, Offset};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn transfers(min_isr: usize) -> Topic {
    Topic {
        name: "bank-transfers",
        partitions: 1,
        min_isr,
        unclean: false,
    }
}

fn telemetry(min_isr: usize, unclean: bool) -> Topic {
    Topic {
        name: "telemetry-logs",
        partitions: 1,
        min_isr,
        unclean,
    }
}

/// The plan of a story on two brokers.
fn pair(seed: u64, topics: &[Topic]) -> Plan {
    Plan {
        brokers: 2,
        replication_factor: 2,
        ..Plan::calm(seed, topics)
    }
}

fn told(story: Story) {
    if let Err(what) = story.end() {
        panic!("{what}");
    }
}

/// Three brokers, log ends 100, 100 and 80; broker 3 was last caught up 45 seconds ago, broker 2 a second ago; then the
/// two that are in sync are gone.
fn crisis(topic: Topic) -> Story {
    let mut story = Story::begin(Plan::calm(1, &[topic]));
    assert_eq!(story.produce(0, 80, SECOND), Ok(Offset(0)));
    story.settle();
    story.part(3, 1);
    // Acknowledged when broker 3 has left the ISR, which is looked at every 15 seconds.
    assert_eq!(story.produce(0, 20, MINUTE), Ok(Offset(80)));
    story.wait(SECOND);
    assert_eq!(story.log_ends(0), [(1, 100), (2, 100), (3, 80)]);
    assert_eq!(story.decided(0).isr, [BrokerId(1), BrokerId(2)]);
    story.kill(1);
    story.kill(2);
    story.wait(10 * SECOND);
    story
}

#[test]
fn the_crisis_decided_for_no_loss() {
    let mut story = crisis(transfers(1));
    assert_eq!(story.leader(0), None, "offline");
    let isr = story.decided(0).isr;
    assert_eq!(isr, [BrokerId(1), BrokerId(2)], "and remembered");
    assert!(story.produce(0, 1, 5 * SECOND).is_err());
    story.start(2);
    story.wait(3 * SECOND);
    assert_eq!(story.leader(0), Some(2), "the first in sync to come back");
    story.heal();
    let ends = story.log_ends(0);
    assert!(ends.iter().all(|(_, end)| *end >= 100), "{ends:?}");
    assert_eq!(story.cut_off(), []);
    told(story);
}

#[test]
fn the_crisis_decided_for_availability() {
    let mut story = crisis(telemetry(1, true));
    assert_eq!(story.leader(0), Some(3));
    let (epoch, start) = story.epoch_start(0).expect("broker 3 leads");
    assert_eq!(start, Offset(80), "its epoch begins where its log ends");
    assert_eq!(story.decided(0).last_unclean_epoch, Some(epoch));
    assert_eq!(story.produce(0, 1, SECOND), Ok(Offset(80)));
    story.heal();
    let mut cut: Vec<(i32, i64, i64, bool)> = story
        .cut_off()
        .into_iter()
        .map(|(_, broker, cut)| (broker, cut.to.0, cut.from.0, cut.unclean))
        .collect();
    cut.sort_unstable();
    assert_eq!(cut, [(1, 80, 100, true), (2, 80, 100, true)]);
    assert_eq!(story.salvaged(0), [(1, 80, 100), (2, 80, 100)]);
    assert_eq!(story.log_ends(0), [(1, 81), (2, 81), (3, 81)]);
    told(story);
}

/// R18, R19, R20: two topics on the same two brokers; the follower is behind when the leader dies.
#[test]
fn each_topic_has_its_own_policy() {
    for changed_live in [false, true] {
        let topics = [transfers(1), telemetry(1, !changed_live)];
        let mut story = Story::begin(pair(18, &topics));
        story.part(1, 2);
        for partition in [0, 1] {
            assert_eq!(story.produce(partition, 100, MINUTE), Ok(Offset(0)));
            assert_eq!(story.decided(partition).isr, [BrokerId(1)]);
        }
        story.kill(1);
        story.mend();
        story.wait(3 * SECOND);
        assert_eq!(story.leader(0), None, "R18");
        assert_eq!(story.decided(0).isr, [BrokerId(1)], "remembered");
        if changed_live {
            assert_eq!(story.leader(1), None);
            let before = story.decided(1).leader_epoch;
            story.allow_unclean("telemetry-logs", true);
            story.wait(SECOND / 10);
            assert_eq!(story.leader(1), Some(2), "R19: at once");
            assert!(story.decided(1).leader_epoch > before);
        }
        assert_eq!(story.leader(0), None, "R20");
        assert_eq!(story.leader(1), Some(2), "R20");
        assert_eq!(story.produce(1, 7, SECOND), Ok(Offset(0)));
        story.start(1);
        story.wait(3 * SECOND);
        assert_eq!(story.leader(0), Some(1));
        story.heal();
        assert_eq!(story.log_ends(0), [(1, 100), (2, 100)]);
        assert_eq!(story.log_ends(1), [(1, 7), (2, 7)]);
        told(story);
    }
}

/// An unclean election by hand needs no policy, and touches no partition that has a leader.
#[test]
fn an_unclean_election_by_hand() {
    let topics = [transfers(1), telemetry(1, false)];
    let mut story = Story::begin(pair(19, &topics));
    story.part(1, 2);
    assert_eq!(story.produce(1, 10, MINUTE), Ok(Offset(0)));
    story.elect_uncleanly("telemetry-logs");
    assert_eq!(story.leader(1), Some(1), "there is a leader");
    story.kill(1);
    story.mend();
    story.wait(3 * SECOND);
    story.elect_uncleanly("telemetry-logs");
    story.wait(SECOND / 10);
    assert_eq!((story.leader(0), story.leader(1)), (None, Some(2)));
    story.heal();
    told(story);
}

/// R14: two brokers take turns at being the only one alive, three times over, each writing its own history (KIP-279).
#[test]
fn three_alternating_unclean_elections_converge() {
    for seed in 1..=8 {
        let mut story = Story::begin(pair(seed, &[telemetry(1, true)]));
        assert!(story.produce(0, 3, SECOND).is_ok());
        story.settle();
        story.kill(2);
        story.wait(2 * SECOND);
        for round in 0..3_u64 {
            assert!(story.produce(0, 2 + round, SECOND).is_ok());
            story.kill(1);
            story.start(2);
            story.wait(3 * SECOND);
            assert_eq!(story.leader(0), Some(2), "seed {seed}, round {round}");
            assert!(story.produce(0, 5 - round, SECOND).is_ok());
            story.kill(2);
            story.start(1);
            story.wait(3 * SECOND);
            assert_eq!(story.leader(0), Some(1), "seed {seed}, round {round}");
        }
        story.heal();
        assert_eq!(story.records(0, 1), story.records(0, 2), "seed {seed}");
        told(story);
    }
}

/// R21: the last one in sync dies and loses what it had not flushed. Those who were in sync while enough were have all that
/// was acknowledged: one of them leads (KIP-966).
#[test]
fn the_last_replica_standing() {
    let mut story = Story::begin(Plan::calm(21, &[transfers(2)]));
    assert_eq!(story.produce(0, 30, SECOND), Ok(Offset(0)));
    story.settle();
    story.part(1, 2);
    story.part(1, 3);
    assert!(story.produce(0, 1, MINUTE).is_err(), "acks=all refused");
    assert_eq!(story.decided(0).isr, [BrokerId(1)]);
    story.cut_power(1);
    story.mend();
    story.wait(15 * SECOND);
    assert!(!story.is_up(1));
    let leader = story.leader(0).expect("2 or 3 of the ELR leads");
    let ends = story.log_ends(0);
    let led = ends.iter().find(|(broker, _)| *broker == leader);
    assert!(
        led.is_some_and(|(_, end)| *end >= 30),
        "{leader} of {ends:?}"
    );
    assert_eq!(story.decided(0).last_unclean_epoch, None);
    story.heal();
    told(story);
}

/// R22: the power goes everywhere at once. Whoever comes back first, nothing acknowledged is lost, and all orders lead to
/// the same log.
#[test]
fn the_order_of_return_does_not_matter() {
    let orders = [
        [1, 2, 3],
        [1, 3, 2],
        [2, 1, 3],
        [2, 3, 1],
        [3, 1, 2],
        [3, 2, 1],
    ];
    let mut logs = Vec::new();
    for order in orders {
        let mut story = Story::begin(Plan::calm(22, &[transfers(2)]));
        for _ in 0..20 {
            assert!(story.produce(0, 3, SECOND).is_ok());
        }
        for broker in [1, 2, 3] {
            story.cut_power(broker);
        }
        story.wait(15 * SECOND);
        // They were fenced one after the other, and whoever was first is no longer in sync.
        let decided = story.decided(0);
        let complete = |broker: &i32| {
            let broker = BrokerId(*broker);
            decided.isr.contains(&broker) || decided.elr.contains(&broker)
        };
        let first = order.into_iter().find(complete);
        for broker in order {
            story.start(broker);
            story.wait(3 * SECOND);
        }
        assert_eq!(story.leader(0), first, "{order:?}: the first to come back");
        story.heal();
        let values: Vec<u64> = story
            .records(0, 1)
            .iter()
            .map(|(_, record)| record.value)
            .collect();
        assert_eq!(values.len(), 60, "{order:?}");
        logs.push(values);
        told(story);
    }
    assert!(logs.windows(2).all(|pair| pair[0] == pair[1]));
}

/// What was deleted at the old leader's request may lie beyond all that an unclean leader has. A follower that comes back
/// to it shares nothing with it, and must have all that it has.
#[test]
fn a_follower_whose_log_begins_beyond_its_leaders_end() {
    let mut story = Story::begin(pair(23, &[telemetry(1, true)]));
    assert!(story.produce(0, 10, SECOND).is_ok());
    story.settle();
    story.part(1, 2);
    assert_eq!(story.produce(0, 40, MINUTE), Ok(Offset(10)));
    assert_eq!(story.delete_records(0, 45), Some(Offset(45)));
    story.wait(SECOND);
    story.kill(1);
    story.mend();
    story.wait(3 * SECOND);
    assert_eq!(story.leader(0), Some(2));
    for _ in 0..10 {
        assert!(story.produce(0, 10, SECOND).is_ok());
    }
    story.start(1);
    story.wait(5 * SECOND);
    story.kill(2);
    story.wait(5 * SECOND);
    assert_eq!(story.leader(0), Some(1));
    story.heal();
    assert_eq!(story.log_ends(0), [(1, 110), (2, 110)]);
    let first = story.records(0, 1).first().map(|(offset, _)| *offset);
    assert_eq!(first, Some(Offset(0)), "all that the new leader had");
    assert_eq!(story.salvaged(0), [(1, 45, 50)], "all that broker 1 had");
    told(story);
}

/// A replica that was cut back below its checkpointed high watermark, caught up, and was killed before the next checkpoint
/// has lost nothing: no number of SIGKILLs needs an unclean election.
#[test]
fn killed_between_a_cut_and_the_next_checkpoint() {
    for seed in 1..=8 {
        let mut story = Story::begin(pair(seed, &[telemetry(1, true)]));
        assert!(story.produce(0, 10, SECOND).is_ok());
        story.settle();
        story.part(1, 2);
        assert_eq!(story.produce(0, 40, MINUTE), Ok(Offset(10)));
        story.wait(SECOND);
        story.kill(1);
        story.mend();
        story.wait(3 * SECOND);
        assert_eq!(story.leader(0), Some(2));
        assert_eq!(story.produce(0, 5, SECOND), Ok(Offset(10)));
        story.allow_unclean("telemetry-logs", false);
        story.start(1);
        for _ in 0..100 {
            if story.decided(0).isr.len() < 2 {
                story.wait(SECOND / 100);
            }
        }
        assert_eq!(story.decided(0).isr.len(), 2, "seed {seed}");
        story.kill(1);
        story.kill(2);
        story.wait(3 * SECOND);
        let last = story.decided(0).isr[0].0;
        story.start(last);
        story.wait(3 * SECOND);
        assert_eq!(story.leader(0), Some(last), "seed {seed}");
        story.heal();
        assert_eq!(story.log_ends(0), [(1, 15), (2, 15)]);
        told(story);
    }
}

/// The old leader is moved away while it is down, so that it deletes its log when it comes back. What the unclean election
/// has given up is nowhere else.
#[test]
fn a_replica_that_was_moved_away_sets_aside_what_it_alone_has() {
    let plan = Plan {
        brokers: 3,
        ..pair(24, &[telemetry(1, true)])
    };
    let mut story = Story::begin(plan);
    assert!(story.produce(0, 10, SECOND).is_ok());
    story.settle();
    story.part(1, 2);
    assert_eq!(story.produce(0, 40, MINUTE), Ok(Offset(10)));
    story.wait(SECOND);
    story.kill(1);
    story.mend();
    story.wait(3 * SECOND);
    assert_eq!(story.leader(0), Some(2));
    assert!(story.reassign(0, &[2, 3]));
    story.wait(3 * SECOND);
    assert_eq!(story.decided(0).replicas, [BrokerId(2), BrokerId(3)]);
    story.heal();
    assert_eq!(story.holders(0), [2, 3]);
    assert_eq!(story.log_ends(0), [(2, 10), (3, 10)]);
    assert_eq!(story.salvaged(0), [(1, 0, 50)]);
    told(story);
}

/// R29: three replicas move to three other brokers. One of those is down, and the active controller dies on the way.
#[test]
fn replicas_move_although_a_broker_and_a_controller_die() {
    let plan = Plan {
        brokers: 6,
        ..Plan::calm(29, &[transfers(2)])
    };
    let mut story = Story::begin(plan);
    assert_eq!(story.produce(0, 30, SECOND), Ok(Offset(0)));
    story.kill(5);
    assert!(story.reassign(0, &[4, 5, 6]));
    story.wait(SECOND);
    story.depose();
    assert_eq!(story.produce(0, 30, SECOND), Ok(Offset(30)));
    story.take_office();
    story.wait(3 * SECOND);
    let decided = story.decided(0);
    assert!(decided.is_reassigning(), "{decided:?}");
    assert_eq!(story.holders(0), [1, 2, 3, 4, 6], "nobody has left");
    story.start(5);
    story.settle();
    assert_eq!(story.decided(0).replicas, [4, 5, 6].map(BrokerId));
    assert_eq!(story.holders(0), [4, 5, 6]);
    assert_eq!(story.produce(0, 5, SECOND), Ok(Offset(60)));
    story.settle();
    told(story);
}

/// R30: a move that waits for a dead broker is taken back.
#[test]
fn a_move_is_taken_back() {
    let plan = Plan {
        brokers: 4,
        ..pair(30, &[transfers(1)])
    };
    let mut story = Story::begin(plan);
    assert_eq!(story.produce(0, 30, SECOND), Ok(Offset(0)));
    story.kill(4);
    assert!(story.reassign(0, &[3, 4]));
    story.wait(3 * SECOND);
    assert!(story.decided(0).isr.contains(&BrokerId(3)));
    assert!(story.cancel(0));
    assert!(!story.cancel(0), "nothing is moving");
    story.heal();
    assert_eq!(story.decided(0).replicas, [1, 2].map(BrokerId));
    assert_eq!(story.holders(0), [1, 2]);
    assert_eq!(story.log_ends(0), [(1, 30), (2, 30)]);
    told(story);
}

/// R30: only the broker that was added has all there is. Going back would lose records, so the move goes on.
#[test]
fn a_move_is_not_taken_back_at_a_loss() {
    let plan = Plan {
        brokers: 4,
        ..pair(31, &[transfers(1)])
    };
    let mut story = Story::begin(plan);
    assert_eq!(story.produce(0, 30, SECOND), Ok(Offset(0)));
    story.kill(4);
    assert!(story.reassign(0, &[3, 4]));
    story.wait(3 * SECOND);
    story.kill(1);
    story.kill(2);
    story.wait(3 * SECOND);
    assert_eq!(story.leader(0), Some(3));
    assert_eq!(story.produce(0, 5, SECOND), Ok(Offset(30)));
    assert!(!story.cancel(0), "refused");
    story.heal();
    assert_eq!(story.log_ends(0), [(3, 35), (4, 35)]);
    told(story);
}

/// R11: the leader of both partitions is told to shut down; it is let go soon, and back in sync only when it is back.
#[test]
fn a_leader_that_shuts_down_hands_over() {
    let mut story = Story::begin(Plan::calm(11, &[transfers(2), telemetry(2, false)]));
    assert!(story.produce(0, 5, SECOND).is_ok());
    story.settle();
    assert_eq!(story.leader(0), Some(1));
    story.shut_down(1);
    story.wait(2 * SECOND);
    assert!(!story.is_up(1), "let go");
    for partition in [0, 1] {
        let decided = story.decided(partition);
        assert_eq!(decided.leader, Some(BrokerId(2)));
        assert_eq!(decided.isr, [BrokerId(2), BrokerId(3)]);
        assert!(story.produce(partition, 5, SECOND).is_ok());
    }
    story.heal();
    told(story);
}

/// R11: the only one in sync is told to shut down while another is coming back: it waits for that one, lets it in, and
/// hands over.
#[test]
fn the_only_one_in_sync_hands_over_to_the_one_that_catches_up() {
    let mut story = Story::begin(Plan::calm(12, &[transfers(1)]));
    assert!(story.produce(0, 5, SECOND).is_ok());
    story.settle();
    story.part(1, 3);
    story.part(1, 2);
    assert_eq!(story.produce(0, 20, MINUTE), Ok(Offset(5)));
    assert_eq!(story.decided(0).isr, [BrokerId(1)]);
    story.kill(2);
    story.shut_down(1);
    story.wait(SECOND);
    assert!(story.is_up(1), "nobody may take over yet");
    story.mend();
    story.wait(3 * SECOND);
    assert_eq!(story.leader(0), Some(3));
    assert!(!story.is_up(1));
    assert_eq!(story.produce(0, 5, SECOND), Ok(Offset(25)));
    story.heal();
    told(story);
}

/// A leader that was replaced and does not know it lacks what its successor has acknowledged. A producer whose next batch
/// comes to it is not told that its sequence does not fit: believing that, it would number the batch anew.
#[test]
fn a_deposed_leader_says_nothing_of_sequences() {
    let mut story = Story::begin(Plan::calm(21, &[transfers(1)]));
    assert_eq!(story.produce(0, 5, SECOND), Ok(Offset(0)));
    story.settle();
    story.cut_off_from_controllers(1);
    story.part(1, 2);
    story.part(1, 3);
    story.wait(20 * SECOND);
    assert_eq!(story.leader(0), Some(2), "the others go on");
    story.mislead(0, 2);
    assert_eq!(story.produce(0, 5, SECOND), Ok(Offset(5)));
    story.mislead(0, 1);
    assert_eq!(story.produce(0, 5, MINUTE), Ok(Offset(10)));
    story.heal();
    assert_eq!(story.log_ends(0), [(1, 15), (2, 15), (3, 15)]);
    told(story);
}

/// Each of these stories ends badly without its rule; *cut at the high watermark*, as Kafka did before 0.11, among them.
#[cfg(feature = "mutations")]
#[test]
fn stories_miss_their_rules() {
    use kuorum_replication::mutation::{Mutation, without};
    let rows: [(Mutation, fn()); 9] = [
        (
            Mutation::TruncateToHighWatermark,
            the_crisis_decided_for_availability,
        ),
        (
            Mutation::UncleanWhateverThePolicy,
            the_crisis_decided_for_no_loss,
        ),
        (
            Mutation::CutStopsAtLogStart,
            a_follower_whose_log_begins_beyond_its_leaders_end,
        ),
        (
            Mutation::CutWithoutSalvage,
            a_follower_whose_log_begins_beyond_its_leaders_end,
        ),
        (
            Mutation::DeletedWithoutSalvage,
            a_replica_that_was_moved_away_sets_aside_what_it_alone_has,
        ),
        (
            Mutation::MoveCompletesTooSoon,
            replicas_move_although_a_broker_and_a_controller_die,
        ),
        (
            Mutation::LeavingKeepsLeading,
            a_leader_that_shuts_down_hands_over,
        ),
        (
            Mutation::LeavingLeaderKeepsTheDead,
            the_only_one_in_sync_hands_over_to_the_one_that_catches_up,
        ),
        (
            Mutation::GapsUnconfirmed,
            a_deposed_leader_says_nothing_of_sequences,
        ),
    ];
    for (rule, story) in rows {
        let told = without(Some(rule), || std::panic::catch_unwind(story));
        assert!(told.is_err(), "nobody missed {rule:?}");
    }
}
