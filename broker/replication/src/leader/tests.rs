//! The leader's rules as rows, its dealings with the controllers as stories, and two properties under random events.

use std::collections::BTreeSet;
use std::time::Duration;

use kuorum_metadata::record::LeaderRecoveryState;
use proptest::prelude::*;

use super::*;

const ME: BrokerId = BrokerId(1);
const F2: BrokerId = BrokerId(2);
const F3: BrokerId = BrokerId(3);
const LAG: Duration = Duration::from_secs(30);

fn at(seconds: u64) -> Monotonic {
    Monotonic(Duration::from_secs(seconds))
}

fn brokers(ids: &[i32]) -> Replicas {
    ids.iter().map(|id| BrokerId(*id)).collect()
}

fn assignment(isr: &[i32], partition_epoch: i32) -> Assignment {
    Assignment {
        leader: Some(ME),
        leader_epoch: LeaderEpoch(5),
        partition_epoch: PartitionEpoch(partition_epoch),
        replicas: vec![ME, F2, F3],
        removing: Replicas::new(),
        isr: brokers(isr),
        elr: BTreeSet::new(),
        recovering: false,
        last_unclean_epoch: None,
        standing: [(1, 101), (2, 102), (3, 103)]
            .into_iter()
            .map(|(id, epoch)| {
                let standing = Standing {
                    broker_epoch: BrokerEpoch(epoch),
                    may_join: true,
                };
                (BrokerId(id), standing)
            })
            .collect(),
    }
}

fn terms(min_isr: usize) -> Terms {
    Terms {
        min_insync_replicas: min_isr,
        ..Terms::default()
    }
}

fn ends(log_end: i64, flushed_end: i64) -> LogEnds {
    LogEnds {
        log_end: Offset(log_end),
        flushed_end: Offset(flushed_end),
    }
}

/// A leader whose epoch starts at 10, all of it flushed, the high watermark at 8.
fn leader(isr: &[i32], min_isr: usize) -> Leader {
    Leader::new(
        ME,
        &assignment(isr, 1),
        terms(min_isr),
        ends(10, 10),
        Offset(8),
        1,
        at(0),
    )
}

/// A fetch by the follower's registered incarnation.
fn fetch(leader: &mut Leader, broker: BrokerId, from: i64, now: u64) -> Step {
    let fetch = FollowerFetch {
        broker,
        broker_epoch: BrokerEpoch(100 + i64::from(broker.0)),
        from: Offset(from),
        leader_end: leader.ends.log_end,
    };
    leader.on_follower_fetch(fetch, at(now)).unwrap()
}

fn accepted(partition_epoch: i32, isr: &[i32]) -> IsrReply {
    IsrReply::Accepted {
        leader_epoch: LeaderEpoch(5),
        partition_epoch: PartitionEpoch(partition_epoch),
        isr: brokers(isr),
        elr: brokers(&[]),
    }
}

#[test]
fn high_watermark_rows() {
    struct Row {
        story: &'static str,
        isr: &'static [i32],
        min_isr: usize,
        durability: Durability,
        ends: (i64, i64),
        fetches: &'static [(i32, i64)],
        expected: i64,
    }
    let flushed = Row {
        story: "everyone has everything",
        isr: &[1, 2, 3],
        min_isr: 2,
        durability: Durability::Flushed,
        ends: (20, 20),
        fetches: &[(2, 20), (3, 20)],
        expected: 20,
    };
    let rows = [
        Row { ..flushed },
        Row {
            story: "the slowest member decides",
            fetches: &[(2, 20), (3, 12)],
            expected: 12,
            ..flushed
        },
        Row {
            story: "a member that has not been heard from in this epoch holds it",
            fetches: &[(2, 20)],
            expected: 8,
            ..flushed
        },
        Row {
            story: "the leader counts what it has flushed",
            ends: (20, 15),
            expected: 15,
            ..flushed
        },
        Row {
            story: "with page-cache durability it counts its log end",
            durability: Durability::PageCache,
            ends: (20, 15),
            expected: 20,
            ..flushed
        },
        Row {
            story: "too few in sync: nothing advances",
            isr: &[1],
            min_isr: 2,
            fetches: &[],
            expected: 8,
            ..flushed
        },
        Row {
            story: "alone, where one is enough",
            isr: &[1],
            min_isr: 1,
            fetches: &[],
            expected: 20,
            ..flushed
        },
        Row {
            story: "min.insync.replicas above the replica count means all of them",
            min_isr: 7,
            ..flushed
        },
        Row {
            story: "a caught-up replica on its way in is waited for",
            isr: &[1, 2],
            fetches: &[(3, 20), (3, 12), (2, 20)],
            expected: 12,
            ..flushed
        },
        Row {
            story: "a replica far behind is not",
            isr: &[1, 2],
            fetches: &[(3, 3), (2, 20)],
            expected: 20,
            ..flushed
        },
    ];
    for row in rows {
        let mut leader = leader(row.isr, row.min_isr);
        let terms = Terms {
            durability: row.durability,
            ..terms(row.min_isr)
        };
        let _ = leader.set_terms(terms, at(0));
        let _ = leader.on_log(ends(row.ends.0, row.ends.1), at(1));
        for (broker, from) in row.fetches {
            let _ = fetch(&mut leader, BrokerId(*broker), *from, 1);
        }
        assert_eq!(
            leader.high_watermark(),
            Offset(row.expected),
            "{}",
            row.story
        );
    }
}

#[test]
fn who_may_join_rows() {
    struct Row {
        story: &'static str,
        from: i64,
        broker_epoch: i64,
        standing: Option<Standing>,
        proposed: bool,
    }
    let good = Standing {
        broker_epoch: BrokerEpoch(103),
        may_join: true,
    };
    let whole = Row {
        story: "at the start of the epoch, the right incarnation",
        from: 10,
        broker_epoch: 103,
        standing: Some(good),
        proposed: true,
    };
    let rows = [
        Row { ..whole },
        Row {
            story: "past the high watermark, before the start of the epoch (KAFKA-7128)",
            from: 9,
            proposed: false,
            ..whole
        },
        Row {
            story: "behind the high watermark",
            from: 7,
            proposed: false,
            ..whole
        },
        Row {
            story: "fenced or shutting down (KIP-841)",
            standing: Some(Standing {
                may_join: false,
                ..good
            }),
            proposed: false,
            ..whole
        },
        Row {
            story: "an incarnation the metadata does not show yet (KIP-903)",
            broker_epoch: 200,
            proposed: false,
            ..whole
        },
        Row {
            story: "a request from before incarnations were told",
            broker_epoch: -1,
            ..whole
        },
        Row {
            story: "not registered",
            standing: None,
            proposed: false,
            ..whole
        },
    ];
    for row in rows {
        let mut leader = leader(&[1, 2], 1);
        match row.standing {
            Some(standing) => leader.standing.insert(F3, standing),
            None => leader.standing.remove(&F3),
        };
        let fetch = FollowerFetch {
            broker: F3,
            broker_epoch: BrokerEpoch(row.broker_epoch),
            from: Offset(row.from),
            leader_end: Offset(10),
        };
        let step = leader.on_follower_fetch(fetch, at(1)).unwrap();
        assert_eq!(step.proposal.is_some(), row.proposed, "{}", row.story);
    }
}

#[test]
fn refused_fetches() {
    let mut leader = leader(&[1, 2], 1);
    let mut fetch = FollowerFetch {
        broker: F3,
        broker_epoch: BrokerEpoch(99),
        from: Offset(10),
        leader_end: Offset(10),
    };
    assert_eq!(
        leader.on_follower_fetch(fetch, at(1)),
        Err(FetchRefused::StaleBrokerEpoch)
    );
    fetch.broker = BrokerId(9);
    assert_eq!(
        leader.on_follower_fetch(fetch, at(1)),
        Err(FetchRefused::NotAReplica)
    );
}

/// The reaction to each reply (KIP-497), told by a leader that proposed to let 3 in.
#[test]
fn reply_rows() {
    type Check = fn(&mut Leader, u64) -> bool;
    let rows: &[(&str, IsrReply, Check)] = &[
        ("accepted", accepted(2, &[1, 2, 3]), |leader, _| {
            leader.isr().committed() == &brokers(&[1, 2, 3]) && !leader.isr().is_pending()
        }),
        (
            "accepted, the partition epoch already known: settled (KAFKA-12751)",
            accepted(1, &[1, 2, 3]),
            |leader, _| !leader.isr().is_pending(),
        ),
        (
            "accepted under an older partition epoch: ignored",
            accepted(0, &[1, 2, 3]),
            |leader, _| leader.isr().is_pending(),
        ),
        (
            "certainly not applied: back to what was decided",
            IsrReply::NotApplied,
            |leader, _| {
                leader.isr()
                    == &Isr::Committed {
                        isr: brokers(&[1, 2]),
                    }
            },
        ),
        (
            "perhaps applied: stays pending, and does not ask again",
            IsrReply::WaitForMetadata,
            |leader, _| leader.isr().is_pending() && leader.tick(at(60)).proposal.is_none(),
        ),
        (
            "no answer: the same again",
            IsrReply::Unanswered,
            |leader, number| {
                leader
                    .tick(at(2))
                    .proposal
                    .is_some_and(|proposal| proposal.number == number)
                    && leader.tick(at(2)).proposal.is_none()
            },
        ),
    ];
    for (story, reply, check) in rows {
        let mut leader = leader(&[1, 2], 1);
        let proposal = fetch(&mut leader, F3, 10, 1).proposal.unwrap();
        assert_eq!(
            proposal.new_isr,
            vec![
                (ME, BrokerEpoch(101)),
                (F2, BrokerEpoch::UNKNOWN),
                (F3, BrokerEpoch(103))
            ]
        );
        assert_eq!(
            proposal.leader_recovery_state,
            LeaderRecoveryState::Recovered
        );
        let _ = leader.isr_decided(proposal.number, reply.clone(), at(1));
        assert!(check(&mut leader, proposal.number), "{story}");
    }
}

#[test]
fn a_reply_to_a_proposal_given_up_is_ignored() {
    let mut leader = leader(&[1, 2], 1);
    let first = fetch(&mut leader, F3, 10, 1).proposal.unwrap();
    let _ = leader.on_metadata(&assignment(&[1, 2], 2), at(1));
    let second = fetch(&mut leader, F3, 10, 2).proposal.unwrap();
    let _ = leader.isr_decided(first.number, IsrReply::NotApplied, at(2));
    assert!(leader.isr().is_pending(), "the second is still on its way");
    let _ = leader.isr_decided(second.number, accepted(3, &[1, 2, 3]), at(2));
    assert_eq!(leader.isr().committed(), &brokers(&[1, 2, 3]));
}

#[test]
fn metadata_settles_what_a_lost_reply_left_open() {
    let mut leader = leader(&[1, 2], 1);
    let proposal = fetch(&mut leader, F3, 10, 1).proposal.unwrap();
    let _ = leader.isr_decided(proposal.number, IsrReply::WaitForMetadata, at(1));
    let _ = leader.on_metadata(&assignment(&[1, 2, 3], 2), at(2));
    assert_eq!(
        leader.isr(),
        &Isr::Committed {
            isr: brokers(&[1, 2, 3])
        }
    );
    let _ = leader.isr_decided(proposal.number, accepted(2, &[1, 2, 3]), at(3));
    assert_eq!(
        leader.isr(),
        &Isr::Committed {
            isr: brokers(&[1, 2, 3])
        }
    );
}

/// R5 and R10: without new traffic, the high watermark moves when the silent follower is out.
#[test]
fn a_shrink_lets_the_high_watermark_go_on() {
    let mut leader = leader(&[1, 2, 3], 2);
    let _ = leader.on_log(ends(20, 20), at(1));
    let _ = fetch(&mut leader, F2, 20, 2);
    let _ = fetch(&mut leader, F3, 12, 2);
    assert_eq!(leader.high_watermark(), Offset(12));
    assert_eq!(
        leader.tick(at(15)).proposal,
        None,
        "its benefit of the doubt lasts"
    );
    let _ = fetch(&mut leader, F2, 20, 30);
    let proposal = leader.tick(at(32)).proposal.unwrap();
    assert_eq!(
        proposal
            .new_isr
            .iter()
            .map(|(id, _)| *id)
            .collect::<Vec<_>>(),
        vec![ME, F2]
    );
    assert_eq!(
        leader.high_watermark(),
        Offset(12),
        "the maximal set still holds it"
    );
    assert!(leader.admits(Acks::All));
    let step = leader.isr_decided(proposal.number, accepted(2, &[1, 2]), at(33));
    assert!(step.high_watermark_advanced);
    assert_eq!(leader.high_watermark(), Offset(20));
}

/// R9: nothing is written, followers come by now and then, nobody leaves.
#[test]
fn idle_followers_stay() {
    let mut leader = leader(&[1, 2, 3], 2);
    let _ = fetch(&mut leader, F2, 10, 1);
    let _ = fetch(&mut leader, F3, 10, 1);
    for second in 2..600 {
        assert_eq!(leader.tick(at(second)).proposal, None);
    }
}

#[test]
fn a_new_incarnation_is_not_what_the_old_one_was() {
    let mut leader = leader(&[1, 2], 1);
    let _ = leader.on_log(ends(20, 20), at(1));
    let _ = fetch(&mut leader, F2, 20, 1);
    let mut news = assignment(&[1], 2);
    news.standing.insert(
        F2,
        Standing {
            broker_epoch: BrokerEpoch(202),
            may_join: true,
        },
    );
    let _ = leader.on_metadata(&news, at(2));
    let stale = FollowerFetch {
        broker: F2,
        broker_epoch: BrokerEpoch(102),
        from: Offset(20),
        leader_end: Offset(20),
    };
    assert_eq!(
        leader.on_follower_fetch(stale, at(3)),
        Err(FetchRefused::StaleBrokerEpoch)
    );
    let empty = FollowerFetch {
        broker_epoch: BrokerEpoch(202),
        from: Offset(0),
        ..stale
    };
    let step = leader.on_follower_fetch(empty, at(3)).unwrap();
    assert_eq!(step.proposal, None);
}

#[test]
fn latest_is_not_known_before_the_start_of_the_epoch() {
    let mut leader = leader(&[1, 2], 1);
    assert!(!leader.knows_high_watermark());
    let _ = fetch(&mut leader, F2, 10, 1);
    assert!(leader.knows_high_watermark());
}

#[derive(Clone, Debug)]
enum Event {
    Append(i64),
    Flush,
    Fetch(i32, i64),
    Tick(u64),
    Decide(bool),
    Lose,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (1..5i64).prop_map(Event::Append),
        Just(Event::Flush),
        (2..4i32, 0..40i64).prop_map(|(broker, from)| Event::Fetch(broker, from)),
        (1..40u64).prop_map(Event::Tick),
        any::<bool>().prop_map(Event::Decide),
        Just(Event::Lose),
    ]
}

proptest! {
    /// The high watermark never falls, never passes what every member of the maximal set has reported, and never
    /// moves while too few are in sync.
    #[test]
    fn the_high_watermark_is_safe(events in prop::collection::vec(event(), 1..80)) {
        let mut leader = leader(&[1, 2, 3], 2);
        let mut now = 1;
        let mut flight: Option<IsrProposal> = None;
        let mut epoch = 1;
        for event in events {
            let before = leader.high_watermark();
            let step = match event {
                Event::Append(count) => {
                    let LogEnds { log_end, flushed_end } = leader.ends;
                    leader.on_log(ends(log_end.0 + count, flushed_end.0), at(now))
                }
                Event::Flush => {
                    let log_end = leader.ends.log_end.0;
                    leader.on_log(ends(log_end, log_end), at(now))
                }
                Event::Fetch(broker, from) => {
                    let from = from.min(leader.ends.log_end.0);
                    fetch(&mut leader, BrokerId(broker), from, now)
                }
                Event::Tick(seconds) => {
                    now += seconds;
                    leader.tick(at(now))
                }
                Event::Decide(yes) => match flight.take() {
                    Some(proposal) if yes => {
                        epoch += 1;
                        let isr: Vec<i32> = proposal.new_isr.iter().map(|(id, _)| id.0).collect();
                        leader.isr_decided(proposal.number, accepted(epoch, &isr), at(now))
                    }
                    Some(proposal) => {
                        leader.isr_decided(proposal.number, IsrReply::NotApplied, at(now))
                    }
                    None => Step::default(),
                },
                Event::Lose => match flight.take() {
                    Some(proposal) => {
                        leader.isr_decided(proposal.number, IsrReply::Unanswered, at(now))
                    }
                    None => Step::default(),
                },
            };
            if step.proposal.is_some() {
                flight = step.proposal;
            }
            let high_watermark = leader.high_watermark();
            prop_assert!(high_watermark >= before);
            if high_watermark > before {
                prop_assert!(leader.isr().committed().len() >= 2);
                prop_assert!(high_watermark <= leader.ends.flushed_end);
                for (broker, progress) in leader.followers() {
                    if leader.isr().maximal().contains(&broker) {
                        prop_assert!(progress.log_end().is_some_and(|end| end >= high_watermark));
                    }
                }
            }
            prop_assert!(leader.isr().committed().contains(&ME));
        }
    }
}

#[test]
fn the_lag_is_the_configured_one() {
    assert_eq!(Terms::default().replica_lag_time_max, LAG);
}

/// Replicas that come are followed from their first fetch on, and those that leave count until they have left; what must
/// be in sync is held against what there will be.
#[test]
fn the_replica_set_changes_under_a_leader_that_stays() {
    const F4: BrokerId = BrokerId(4);
    let mut leader = leader(&[1, 2, 3], 3);
    let stranger = FollowerFetch {
        broker: F4,
        broker_epoch: BrokerEpoch(104),
        from: Offset(0),
        leader_end: Offset(10),
    };
    let refused = leader.on_follower_fetch(stranger, at(1));
    assert_eq!(refused, Err(FetchRefused::NotAReplica));
    assert_eq!(leader.min_isr(), 3);

    // From three to two: 4 comes, 2 and 3 leave.
    let mut moving = assignment(&[1, 2, 3], 8);
    moving.replicas = vec![ME, F4, F2, F3];
    moving.removing = brokers(&[2, 3]);
    let standing = Standing {
        broker_epoch: BrokerEpoch(104),
        may_join: true,
    };
    moving.standing.insert(F4, standing);
    let _ = leader.on_metadata(&moving, at(2));
    assert_eq!(leader.min_isr(), 2);
    let behind = fetch(&mut leader, F4, 0, 2);
    assert_eq!(behind.proposal, None);
    let _ = fetch(&mut leader, F2, 10, 3);
    let _ = fetch(&mut leader, F3, 10, 3);
    assert_eq!(
        leader.high_watermark(),
        Offset(10),
        "one far behind holds nothing back"
    );
    let proposal = fetch(&mut leader, F4, 10, 4).proposal;
    let proposal = proposal.expect("it is complete");
    assert_eq!(proposal.partition_epoch, PartitionEpoch(8));
    assert_eq!(proposal.new_isr.len(), 4);

    // The end of the move raises the leader epoch, which the answer tells: the metadata will say the rest.
    let completed = IsrReply::Accepted {
        leader_epoch: LeaderEpoch(6),
        partition_epoch: PartitionEpoch(9),
        isr: brokers(&[1, 4]),
        elr: Replicas::new(),
    };
    let _ = leader.isr_decided(proposal.number, completed, at(5));
    assert!(leader.isr().is_pending());
    assert_eq!(leader.isr().maximal(), brokers(&[1, 2, 3, 4]));
}

/// The answer to a proposal tells of a partition epoch before the metadata does; what else the metadata says of that epoch
/// counts all the same.
#[test]
fn an_answer_that_is_faster_than_the_metadata_hides_no_replica() {
    let mut leader = leader(&[1, 2], 1);
    let proposal = fetch(&mut leader, F3, 10, 1)
        .proposal
        .expect("it is complete");
    let _ = leader.isr_decided(proposal.number, accepted(2, &[1, 2, 3]), at(2));
    let mut shown = assignment(&[1, 2, 3], 2);
    shown.replicas = vec![ME, F2, F3, BrokerId(4)];
    let _ = leader.on_metadata(&shown, at(3));
    assert_eq!(leader.replicas(), shown.replicas);
    assert!(leader.followers().any(|(broker, _)| broker == BrokerId(4)));
}

/// The controllers know of a higher minimum before this leader does, and let its ISR shrink under it: who left may be
/// elected, so nothing may become visible that it does not have.
#[test]
fn the_high_watermark_waits_while_somebody_else_may_lead() {
    let mut leader = leader(&[1, 2], 1);
    let _ = fetch(&mut leader, F2, 10, 1);
    assert_eq!(leader.high_watermark(), Offset(10));
    let _ = leader.on_log(ends(15, 15), at(2));
    let _ = leader.tick(at(20));
    let proposal = leader.tick(at(40)).proposal.unwrap();
    assert_eq!(proposal.new_isr.len(), 1);
    let reply = IsrReply::Accepted {
        leader_epoch: LeaderEpoch(5),
        partition_epoch: PartitionEpoch(2),
        isr: brokers(&[1]),
        elr: brokers(&[2]),
    };
    let _ = leader.isr_decided(proposal.number, reply, at(40));
    let step = leader.on_log(ends(20, 20), at(41));
    assert!(
        !step.high_watermark_advanced,
        "2 may be elected and lacks this"
    );
    assert_eq!(leader.completion(Offset(20)), None);
    // The new minimum arrives, and is taken back: only the second says that 2 is out.
    let _ = leader.set_terms(terms(2), at(42));
    let _ = leader.set_terms(terms(1), at(43));
    assert_eq!(leader.high_watermark(), Offset(10));
    let step = leader.on_metadata(&assignment(&[1], 3), at(44));
    assert!(step.high_watermark_advanced);
    assert_eq!(leader.high_watermark(), Offset(20));
}

/// KIP-704: after an unclean election the leader says that its log is in order before anybody joins.
#[test]
fn recovered_is_said_before_anybody_joins() {
    let recovering = Assignment {
        recovering: true,
        ..assignment(&[1], 1)
    };
    let fresh = || Leader::new(ME, &recovering, terms(1), ends(10, 10), Offset(8), 1, at(0));
    let is_declaration = |proposal: &IsrProposal| {
        proposal.new_isr == [(ME, BrokerEpoch(101))]
            && proposal.leader_recovery_state == LeaderRecoveryState::Recovered
    };
    // By itself, at the next tick.
    let mut leader = fresh();
    let proposal = leader.tick(at(1)).proposal.unwrap();
    assert!(is_declaration(&proposal));
    assert_eq!(leader.tick(at(1)).proposal, None, "once");
    let _ = leader.isr_decided(proposal.number, accepted(2, &[1]), at(1));
    assert_eq!(leader.tick(at(2)).proposal, None);

    // A follower that is level comes second.
    let mut leader = fresh();
    let first = fetch(&mut leader, F2, 10, 1).proposal.unwrap();
    assert!(is_declaration(&first));
    assert_eq!(fetch(&mut leader, F2, 10, 1).proposal, None);
    let _ = leader.isr_decided(first.number, accepted(2, &[1]), at(1));
    let second = fetch(&mut leader, F2, 10, 1).proposal.unwrap();
    assert_eq!(second.new_isr.len(), 2);

    // Refused, it is said again after a while.
    let mut leader = fresh();
    let first = leader.tick(at(1)).proposal.unwrap();
    let _ = leader.isr_decided(first.number, IsrReply::NotApplied, at(1));
    assert_eq!(leader.tick(at(1)).proposal, None);
    assert!(is_declaration(&leader.tick(at(2)).proposal.unwrap()));
}
