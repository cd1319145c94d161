//! The seeded simulation: brokers' partitions, replication and the controllers' decisions, the very types that run in
//! production, on simulated disks, under a simulated network and clock.
//! Law: one thread, one queue, one seed. Nothing here reads a real clock or asks for real chance, so a seed replays a run
//! event by event.
//!
//! A run has four acts: the cluster comes up; it is loaded and hurt; it heals and must come together again; it is
//! left alone, probed, and compared record by record.

mod broker;
mod clients;
mod controller;
mod faults;
mod network;
mod plan;
mod probes;
mod queue;
mod random;
mod records;
pub mod stories;
mod view;
mod world;

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use kuorum_replication::Mutation;

use crate::checkers::Violation;

pub use plan::{Plan, Topic};
use world::{Trace, World};

/// How a run is to be made.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Keeps the last events, to print them with a violation.
    pub trace: bool,
    /// One rule switched off; only with the feature `mutations`.
    pub without: Option<Mutation>,
}

/// What a run did, so that a report can show that it did something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub events: u64,
    pub messages: u64,
    pub acked: u64,
    pub read: u64,
    pub elections: u64,
    pub isr_changes: u64,
    pub truncations: u64,
    pub faults: u64,
    pub restarts: u64,
    /// Brokers that asked to shut down and were let go.
    pub leaves: u64,
    pub unclean_elections: u64,
    /// Visible records that unclean elections gave up.
    pub given_up: u64,
    /// Consumers that were told that what they had read was cut off.
    pub told: u64,
    /// Batches of deposed controllers that did not count.
    pub deposed: u64,
    /// Moves of replicas that completed.
    pub moves: u64,
    /// Moves of replicas that were taken back.
    pub taken_back: u64,
    /// Cuts that were set aside.
    pub set_aside: u64,
}

impl Tally {
    /// Adds another run's numbers.
    pub fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.messages += other.messages;
        self.acked += other.acked;
        self.read += other.read;
        self.elections += other.elections;
        self.isr_changes += other.isr_changes;
        self.truncations += other.truncations;
        self.faults += other.faults;
        self.restarts += other.restarts;
        self.leaves += other.leaves;
        self.unclean_elections += other.unclean_elections;
        self.given_up += other.given_up;
        self.told += other.told;
        self.deposed += other.deposed;
        self.moves += other.moves;
        self.taken_back += other.taken_back;
        self.set_aside += other.set_aside;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} events, {} messages, {} acknowledged, {} read, {} elections, {} ISR changes, {} truncations, {} faults, {} restarts, {} shut down in order, {} unclean elections that gave up {} records, {} readers told of it, {} batches of deposed controllers, {} moves completed and {} taken back, {} cuts set aside",
            self.events,
            self.messages,
            self.acked,
            self.read,
            self.elections,
            self.isr_changes,
            self.truncations,
            self.faults,
            self.restarts,
            self.leaves,
            self.unclean_elections,
            self.given_up,
            self.told,
            self.deposed,
            self.moves,
            self.taken_back,
            self.set_aside
        )
    }
}

/// The end of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub seed: u64,
    pub plan: String,
    pub tally: Tally,
    /// A hash of every event of the run: when, to whom, what came of it, and how much chance was used. Two runs of one
    /// seed have the same.
    pub digest: u64,
    pub violation: Option<Violation>,
    /// The last events before the end, with `Options::trace`.
    pub trace: Vec<String>,
}

/// Runs one seed from beginning to end, or to its first violation.
#[must_use]
pub fn run(seed: u64, options: Options) -> Outcome {
    let trace = Trace::default();
    let kept = Trace::clone(&trace);
    let play = move || World::new(Plan::from_seed(seed), options, kept).play();
    let play = move || catch_unwind(AssertUnwindSafe(play));
    #[cfg(feature = "mutations")]
    let played = kuorum_replication::mutation::without(options.without, play);
    #[cfg(not(feature = "mutations"))]
    let played = {
        assert!(
            options.without.is_none(),
            "rules can be switched off only with the feature `mutations`"
        );
        play()
    };
    let mut outcome = played.unwrap_or_else(|panic| Outcome {
        seed,
        plan: Plan::from_seed(seed).to_string(),
        tally: Tally::default(),
        digest: 0,
        violation: Some(Violation {
            checker: "no-panic",
            what: panic_message(panic.as_ref()),
        }),
        trace: Vec::new(),
    });
    outcome.trace = trace.borrow().iter().cloned().collect();
    outcome
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_default()
}
