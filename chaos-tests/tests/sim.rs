//! The simulation as a test: some seeds find nothing, and a seed replays. `make sim SEEDS=n` runs as many as one likes.

use kuorum_chaos_tests::sim::{Options, Tally, run};

/// Seeds enough to meet every kind of fault, and few enough for every build.
const SEEDS: u64 = 24;

#[test]
fn nothing_is_found() {
    let mut total = Tally::default();
    for seed in 1..=SEEDS {
        let outcome = run(seed, Options::default());
        total.add(&outcome.tally);
        if let Some(violation) = outcome.violation {
            panic!(
                "{violation}\n{}\nreplay with: make sim SEED={seed}",
                outcome.plan
            );
        }
    }
    // A simulation in which nothing happens finds nothing either. Far below what so many seeds bring on average: which seed has a move depends on
    // every rule.
    assert!(total.acked > 1_000, "{total}");
    assert!(total.elections > 50, "{total}");
    assert!(total.truncations > 5, "{total}");
    assert!(total.isr_changes > 100, "{total}");
    assert!(total.leaves > 20, "{total}");
    assert!(total.unclean_elections > 2, "{total}");
    assert!(total.told > 0, "{total}");
    assert!(total.moves > 5, "{total}");
    assert!(total.taken_back > 0, "{total}");
    assert!(total.set_aside > 0, "{total}");
}

/// A run follows from its seed alone, event by event: not from what else runs, nor from whether it is watched.
#[test]
fn a_seed_replays_bit_for_bit() {
    let other = std::thread::spawn(|| {
        [1, 2, 3, 5].map(|seed| {
            let watched = Options {
                trace: true,
                ..Options::default()
            };
            run(seed, watched)
        })
    });
    let first = [1, 2, 3, 5].map(|seed| run(seed, Options::default()));
    let other = other.join().expect("a run ends");
    for (first, second) in first.into_iter().zip(other) {
        let seed = first.seed;
        assert_eq!(first.digest, second.digest, "seed {seed}");
        assert_eq!(first.tally, second.tally, "seed {seed}");
    }
}
