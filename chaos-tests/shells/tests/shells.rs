//! Some seeds of the shells under turmoil, and what shows that a failure would be seen. `make sim-shells SEEDS=n` runs as
//! many as one likes.

use kuorum_shell_tests::{Kind, Lie, Options, Tally, run};

/// Few enough for every build.
const SEEDS: u64 = 6;

fn total(kind: Kind, seeds: u64) -> Tally {
    let mut total = Tally::default();
    for seed in 1..=seeds {
        let options = Options { kind, lie: None };
        let outcome = run(seed, options);
        total.add(&outcome.tally);
        if let Some(violation) = outcome.violation {
            panic!(
                "{violation}\n{}\n{}\nrun it again with: make sim-shells SEED={seed}",
                outcome.events.join("\n"),
                outcome.plan
            );
        }
    }
    total
}

/// A run in which nothing happens finds nothing either.
#[test]
fn nothing_is_found_in_controllers() {
    let total = total(Kind::Controllers, SEEDS);
    assert!(total.acknowledged > 200, "{total}");
    assert!(total.offices > 3 * SEEDS, "{total}");
    assert!(total.crashes > 6 * SEEDS, "{total}");
    assert!(total.cuts > 3 * SEEDS, "{total}");
    assert!(total.snapshots > 0, "{total}");
}

#[test]
fn nothing_is_found_in_brokers() {
    let seeds = SEEDS / 2;
    let total = total(Kind::Brokers, seeds);
    assert!(total.records > 200 * seeds, "{total}");
    assert!(total.elections > 20 * seeds, "{total}");
    assert!(total.crashes > 6 * seeds, "{total}");
    assert!(total.cuts > 2 * seeds, "{total}");
}

/// A disk that says something is durable before it is: entries that were acknowledged are missed, and votes.
#[test]
fn what_is_acknowledged_before_it_is_flushed_is_missed() {
    for (kind, lie) in [
        (Kind::Controllers, Lie::LogIsSynced),
        (Kind::Controllers, Lie::VoteIsSynced),
        (Kind::Brokers, Lie::RecordsAreSynced),
    ] {
        let noticed = (1..=10).find_map(|seed| {
            let options = Options {
                kind,
                lie: Some(lie),
            };
            let violation = run(seed, options).violation?;
            // A panic would say nothing about the rule.
            (!violation.starts_with("panic")).then_some((seed, violation))
        });
        match noticed {
            Some((seed, violation)) => println!("{lie:?}: seed {seed}: {violation}"),
            None => panic!("{lie:?}: nobody missed anything"),
        }
    }
}
