//! The simulation as a test: some seeds, the same seed twice, and every rule missed when it is switched off.

use kuorum_chaos_tests::sim::{Options, run};

/// A run follows from its seed alone.
#[test]
fn a_seed_replays() {
    for seed in [1, 2, 3] {
        let first = run(seed, Options::default());
        let second = run(seed, Options::default());
        assert_eq!(first.digest, second.digest, "seed {seed}");
        assert_eq!(first.tally, second.tally, "seed {seed}");
    }
}
