//! Real processes, hurt on purpose: six nouns. A [`laboratory`](lab) is a cluster under test; a [`workload`] writes and reads; [`faults`]
//! and the [`network`] hurt it; the [`history`] notes what was told and seen; [`checkers`] hold the history against what was promised;
//! the [`report`] shows it all on one page. [`scenarios`] are what is done, by name.
//! Law: a scenario states which rule it guards, waits for conditions and never for time to pass, and leaves nothing behind.

pub mod checkers;
pub mod faults;
pub mod history;
pub mod lab;
pub mod network;
pub mod report;
pub mod sandbox;
pub mod scenarios;
pub mod stock;
pub mod watch;
pub mod workload;
