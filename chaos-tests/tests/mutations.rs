//! Every rule of replication, switched off: the simulation must notice, and by the property that guards the rule.
//! `make sim-mutations`
#![cfg(feature = "mutations")]

use std::collections::BTreeSet;

use kuorum_chaos_tests::chaos::scenarios;
use kuorum_chaos_tests::checkers::{self, Checkers};
use kuorum_chaos_tests::sim::{Options, run};
use kuorum_replication::Mutation;

/// A rule, how many seeds it may take, and the properties that may be the first to notice.
type Row = (Mutation, u64, &'static [&'static str]);

const ROWS: &[Row] = &[
    (
        Mutation::HighWatermarkIgnoresMaximalIsr,
        20,
        &[
            "replication-quorum-superset",
            "isr-join",
            "min-isr-visibility",
        ],
    ),
    (
        Mutation::HighWatermarkIgnoresMinIsr,
        60,
        &["min-isr-visibility", "isr-join"],
    ),
    (
        Mutation::LeaderAcknowledgesAlone,
        60,
        &["min-isr-visibility", "replication-quorum-superset"],
    ),
    (Mutation::EmptyEpochsStay, 60, &["convergence", "no-wedge"]),
    (
        Mutation::WipedCountsAsIntact,
        300,
        &["isr-join", "replication-quorum-superset"],
    ),
    (
        Mutation::HighWatermarkFalls,
        60,
        &["high-watermark-monotone"],
    ),
    (
        Mutation::LeaderCountsUnflushed,
        60,
        &["min-isr-visibility", "isr-join"],
    ),
    (
        Mutation::FollowerReportsUnflushed,
        60,
        &["min-isr-visibility", "isr-join"],
    ),
    (
        Mutation::AckOutlivesEpoch,
        100,
        &["no-stale-epoch-ack", "acked-is-durable"],
    ),
    (Mutation::JoinBeforeEpochStart, 200, &["isr-join"]),
    (Mutation::JoinIgnoresBrokerEpoch, 1_000, &["isr-join"]),
    (
        Mutation::ShrinkForgetsHighWatermark,
        200,
        &["high-watermark-after-shrink"],
    ),
    (
        Mutation::NeverShrinks,
        30,
        &["high-watermark-after-shrink", "no-wedge"],
    ),
    (
        Mutation::NoTruncation,
        60,
        &["isr-join", "log-matching", "consistent-read"],
    ),
    (
        Mutation::TruncateToHighWatermark,
        100,
        &["isr-join", "log-matching", "acked-is-durable"],
    ),
    (
        Mutation::DivergenceIsProgress,
        100,
        &[
            "isr-join",
            "min-isr-visibility",
            "replication-quorum-superset",
            "log-matching",
        ],
    ),
    (
        Mutation::StaleAnswersAppended,
        1_000,
        &["isr-join", "log-matching"],
    ),
    (Mutation::MetadataSettlesNothing, 200, &["no-wedge"]),
    (Mutation::UnansweredIsForgotten, 300, &["no-wedge"]),
    (Mutation::IdleFollowersLeave, 10, &["idle-no-flap"]),
    (
        Mutation::ConsumersReadToLogEnd,
        30,
        &["consistent-read", "high-watermark-monotone"],
    ),
    (
        Mutation::LatestBeforeEpochStart,
        30,
        &["high-watermark-monotone"],
    ),
    (
        Mutation::DeposedLeaderStays,
        30,
        &["no-wedge", "convergence"],
    ),
    (Mutation::RestartedLeaderResumes, 30, &["restart-is-new"]),
    (
        Mutation::EpochsNotCompared,
        30,
        &["no-zombie-reads", "epoch-table"],
    ),
    (Mutation::EpochsEndAtLogEnd, 30, &["epoch-table"]),
    (Mutation::LeavingIsProposed, 30, &["no-leaving-member"]),
    (Mutation::LeavingMayJoin, 30, &["no-leaving-member"]),
    (Mutation::LeavingKeepsLeading, 30, &["shutdown-hands-over"]),
    (
        Mutation::LeavingLeaderKeepsTheDead,
        30,
        &["shutdown-hands-over"],
    ),
    (
        Mutation::LetGoWhileCountedOn,
        1_500,
        &["shutdown-hands-over"],
    ),
    (
        Mutation::UncleanWhateverThePolicy,
        30,
        &["unclean-only-where-allowed"],
    ),
    (
        Mutation::PreferredOutsideIsr,
        300,
        &["isr-join", "replication-quorum-superset", "log-matching"],
    ),
    (
        Mutation::DeposedControllerDecides,
        500,
        &["no-leaving-member", "isr-join", "no-wedge"],
    ),
    (
        Mutation::DeadBrokersForgotten,
        30,
        &["failover-after-both-died"],
    ),
    (
        Mutation::MoveCompletesTooSoon,
        60,
        &["moves-give-nothing-up"],
    ),
    (
        Mutation::MoveKeepsLeaderEpoch,
        60,
        &["moves-give-nothing-up"],
    ),
    (Mutation::CutWithoutSalvage, 100, &["given-up-is-salvaged"]),
];

/// Rules that something else guards as well: nothing may be noticed. That the high watermark waits for an empty ELR shows
/// only when min.insync.replicas is changed under way, which the metadata's own property test does.
const SPARE: &[Mutation] = &[
    Mutation::NoTruncatingPhase,
    Mutation::HighWatermarkIgnoresElr,
];

/// Rules that too few seeds need: a story of `tests/stories.rs` misses them.
const TOLD: &[Mutation] = &[
    Mutation::CutStopsAtLogStart,
    Mutation::DeletedWithoutSalvage,
    Mutation::GapsUnconfirmed,
];

/// Rules of what the simulation leaves out: a scenario with real processes misses them (`make chaos-mutations`).
const REAL: &[Mutation] = &[
    Mutation::DamageGoesUntold,
    Mutation::DiskFailureGoesUntold,
    Mutation::SessionsByWallClock,
    Mutation::OneControllerDecides,
];

fn without(rule: Mutation) -> Options {
    Options {
        without: Some(rule),
        ..Options::default()
    }
}

#[test]
fn every_rule_is_missed() {
    let mut unnoticed = Vec::new();
    for (rule, seeds, guards) in ROWS {
        // What another property notices first counts as well, once the right one has had its turn.
        let noticed = (1..=*seeds).find_map(|seed| {
            let violation = run(seed, without(*rule)).violation?;
            guards
                .contains(&violation.checker)
                .then_some((seed, violation))
        });
        match noticed {
            Some((seed, violation)) => println!("{rule:?}: seed {seed}: {violation}"),
            None => unnoticed.push(*rule),
        }
    }
    assert_eq!(unnoticed, vec![], "rules nobody missed");
}

#[test]
fn every_rule_has_a_row() {
    let rows: BTreeSet<String> = ROWS
        .iter()
        .map(|(rule, ..)| *rule)
        .chain(SPARE.iter().copied())
        .chain(TOLD.iter().copied())
        .chain(REAL.iter().copied())
        .map(|rule| format!("{rule:?}"))
        .collect();
    let all: BTreeSet<String> = Mutation::ALL
        .iter()
        .map(|rule| format!("{rule:?}"))
        .collect();
    assert_eq!(rows, all);
}

/// A property that is one of several which may notice need not be the one: then a history shows that it refuses.
#[test]
fn every_property_is_seen_to_refuse() {
    let sure = ROWS.iter().filter_map(|(.., guards)| match guards {
        [only] => Some(*only),
        _ => None,
    });
    let seen: BTreeSet<&str> = sure
        .chain(checkers::SHOWN_BY_HISTORIES.iter().copied())
        .collect();
    let all: BTreeSet<&str> = Checkers::default().names().into_iter().collect();
    assert_eq!(seen, all);
}

#[test]
fn every_rule_of_real_processes_has_a_scenario() {
    for rule in REAL {
        let mut scenarios = scenarios::ALL.iter();
        assert!(
            scenarios.any(|one| one.fails_without.contains(rule)),
            "{rule:?}"
        );
    }
}

#[test]
fn spare_rules_are_not_missed() {
    for rule in SPARE {
        for seed in 1..=60 {
            let violation = run(seed, without(*rule)).violation;
            assert_eq!(violation, None, "{rule:?}, seed {seed}");
        }
    }
}
