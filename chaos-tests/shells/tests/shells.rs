//! Some seeds of the controllers under turmoil, and what shows that a failure would be seen. `make sim-shells SEEDS=n` runs as
//! many as one likes.

use kuorum_shell_tests::{Lie, Options, Tally, run};

/// Few enough for every build.
const SEEDS: u64 = 6;

#[test]
fn nothing_is_found() {
    let mut total = Tally::default();
    for seed in 1..=SEEDS {
        let outcome = run(seed, Options::default());
        total.add(&outcome.tally);
        if let Some(violation) = outcome.violation {
            panic!(
                "{violation}\n{}\n{}\nrun it again with: make sim-shells SEED={seed}",
                outcome.events.join("\n"),
                outcome.plan
            );
        }
    }
    // A run in which nothing happens finds nothing either.
    println!("{total}");
    assert!(total.acknowledged > 200, "{total}");
    assert!(total.offices > 3 * SEEDS, "{total}");
    assert!(total.crashes > 6 * SEEDS, "{total}");
    assert!(total.cuts > 3 * SEEDS, "{total}");
    assert!(total.snapshots > 0, "{total}");
}

/// A disk that says something is durable before it is: entries that were acknowledged are missed, and votes.
#[test]
fn what_is_acknowledged_before_it_is_flushed_is_missed() {
    for lie in [Lie::LogIsSynced, Lie::VoteIsSynced] {
        let noticed = (1..=10).find_map(|seed| {
            let violation = run(seed, Options { lie: Some(lie) }).violation?;
            // A panic would say nothing about the rule.
            (!violation.starts_with("panic")).then_some((seed, violation))
        });
        match noticed {
            Some((seed, violation)) => println!("{lie:?}: seed {seed}: {violation}"),
            None => panic!("{lie:?}: nobody missed anything"),
        }
    }
}
