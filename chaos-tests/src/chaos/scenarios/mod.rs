//! What is done to a cluster, by name. Each scenario names the rules that it guards, how it fails when one of them is removed, and which
//! of them `make chaos-mutations` removes to see it fail.
//! Law: a scenario waits for conditions; only to show that something does *not* happen does it let time pass.

use std::future::Future;
use std::pin::Pin;

use anyhow::Result;

use kuorum_replication::Mutation;

use super::lab::Lab;

mod disks;
mod leaders;
mod power_cut;
mod unclean;

type Story<'a> = Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

/// One scenario.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    pub name: &'static str,
    /// What happens, in a sentence.
    pub story: &'static str,
    /// The rows of the project's correctness notes.
    pub guards: &'static str,
    /// How it fails when the rule is removed.
    pub without: &'static str,
    /// The rules whose removal makes it fail, each by itself.
    pub fails_without: &'static [Mutation],
    /// The properties that matter most to it, by the checkers' names; each has a history that it refuses (`checkers/tests.rs`).
    pub checkers: &'static [&'static str],
    pub needs: Needs,
    /// Whether `make chaos-smoke` runs it.
    pub smoke: bool,
    /// What the processes are configured with beside the defaults.
    pub set: &'static str,
    pub run: for<'a> fn(&'a Lab) -> Story<'a>,
}

/// What a scenario cannot do without.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Each node is a host of its own.
    pub hosts: bool,
    /// The programs are those of the chaos build.
    pub chaos_build: bool,
}

const NOTHING: Needs = Needs {
    hosts: false,
    chaos_build: false,
};
const HOSTS: Needs = Needs {
    hosts: true,
    chaos_build: false,
};
const CHAOS_BUILD: Needs = Needs {
    hosts: false,
    chaos_build: true,
};

/// Timeouts of a third of the product's own, so that a silent broker is missed sooner.
const QUICK: &str =
    "broker.session.timeout.ms=3000 broker.heartbeat.interval.ms=500 replica.lag.time.max.ms=4000";

/// What a topic says that prefers to be available: one replica is enough, and any may lead.
const AVAILABLE: [(&str, &str); 2] = [
    ("min.insync.replicas", "1"),
    ("unclean.leader.election.enable", "true"),
];

/// All scenarios, in the order they are run in.
pub const ALL: &[Scenario] = &[
    leaders::KILL_THE_LEADER,
    leaders::ROLLING_RESTART,
    leaders::ISOLATE_THE_LEADER,
    leaders::PAUSE_A_ZOMBIE,
    leaders::CONTROLLER_AND_BROKER,
    leaders::BACK_TO_BACK,
    unclean::THE_CRISIS,
    unclean::BOTH_SETTINGS,
    unclean::THREE_UNCLEAN_ELECTIONS,
    unclean::LAST_REPLICA_STANDING,
    disks::POWER_LOSS,
    disks::TORN_TAIL_AND_BIT_FLIPS,
    disks::WIPED_FOLLOWER,
    disks::FAILING_DISKS,
    disks::CLOCK_JUMP,
    power_cut::PATH_A,
    power_cut::PATH_B,
    power_cut::TWO_CONTROLLERS,
];

/// The scenario of this name.
#[must_use]
pub fn named(name: &str) -> Option<&'static Scenario> {
    ALL.iter().find(|scenario| scenario.name == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::chaos::checkers;

    #[test]
    fn every_scenario_names_a_rule_and_checkers_that_exist() {
        let names: BTreeSet<&str> = ALL.iter().map(|scenario| scenario.name).collect();
        assert_eq!(names.len(), ALL.len(), "no name twice");
        for scenario in ALL {
            assert!(!scenario.fails_without.is_empty(), "{}", scenario.name);
            for name in scenario.checkers {
                let known = checkers::ALL.iter().any(|one| one.name == *name);
                assert!(known, "{}: {name}", scenario.name);
            }
        }
    }
}
