//! What a seed decides before a run begins, and which fault comes next.
//! Law: every choice comes from the seed's own numbers, in one order.

use std::fmt;
use std::time::Duration;

use kuorum_controller::quorum::{ControllerId, QuorumConfig};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// The controllers.
pub(crate) const CONTROLLERS: [ControllerId; 3] = [1, 2, 3];
/// The brokers, who are the clients.
pub(crate) const BROKERS: [i32; 3] = [1, 2, 3];

/// How a run is set up.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// The longest a message takes.
    pub(crate) latency: Duration,
    pub(crate) slowest_write: Duration,
    /// How long there is trouble.
    pub(crate) trouble: Duration,
    /// The longest pause between two faults.
    pub(crate) pause: Duration,
    /// Whether the processes take their turns in another order each time.
    pub(crate) shuffled: bool,
    pub(crate) quorum: QuorumConfig,
}

/// One thing that goes wrong, or is mended.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// Nothing passes between two hosts.
    Cut(String, String),
    /// Nothing passes from the first to the second.
    CutOneWay(String, String),
    /// What is sent between two hosts arrives all at once, when the link is mended.
    Hold(String, String),
    /// Nothing passes between a controller and the other two.
    Isolate(ControllerId),
    /// Everything is mended but the processes.
    Mend,
    /// Messages take up to so long from now on.
    Slow(Duration),
    /// The power goes: what was not synced may be lost.
    PowerCut(ControllerId, Duration),
    /// The power goes after so many changes of the disk.
    PowerCutAfter(ControllerId, u64, Duration),
    /// The process ends; its page cache does not.
    Kill(ControllerId, Duration),
    /// The power goes everywhere at once.
    PowerCutEverywhere(Duration),
    /// A wall clock jumps by so many milliseconds.
    MoveClock(ControllerId, i64),
}

pub(crate) fn controller_host(id: ControllerId) -> String {
    format!("controller-{id}")
}

pub(crate) fn broker_host(id: i32) -> String {
    format!("broker-{id}")
}

impl Plan {
    pub(crate) fn new(seed: u64) -> (Self, StdRng) {
        let mut random = StdRng::seed_from_u64(seed);
        let millis = |random: &mut StdRng, from: u64, to: u64| {
            Duration::from_millis(random.random_range(from..=to))
        };
        let latency = millis(&mut random, 4, 30);
        let slowest_write = millis(&mut random, 0, 12);
        let trouble = millis(&mut random, 8_000, 16_000);
        let pause = millis(&mut random, 300, 1_500);
        let shuffled = random.random_bool(0.5);
        // Half of the runs make snapshots so often, and keep so few entries, that members and followers need them.
        let snapshots = random.random_bool(0.5).then(|| {
            (
                random.random_range(8..60_u64),
                random.random_range(0..30_u64),
            )
        });
        let mut quorum = QuorumConfig::default();
        if let Some((entries, kept)) = snapshots {
            quorum.snapshot_entries = entries;
            quorum.kept_entries = kept;
        }
        let plan = Self {
            seed,
            latency,
            slowest_write,
            trouble,
            pause,
            shuffled,
            quorum,
        };
        (plan, random)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "messages up to {:?}, writes up to {:?}, {:?} of trouble with pauses up to {:?}, snapshots every {} entries of which {} are kept",
            self.latency,
            self.slowest_write,
            self.trouble,
            self.pause,
            self.quorum.snapshot_entries,
            self.quorum.kept_entries
        )?;
        if self.shuffled {
            f.write_str(", turns shuffled")?;
        }
        Ok(())
    }
}

impl Fault {
    pub(crate) fn next(random: &mut StdRng) -> Self {
        let id = CONTROLLERS[random.random_range(0..CONTROLLERS.len())];
        let other = CONTROLLERS[(id as usize + random.random_range(0..2_usize)) % 3];
        let down = Duration::from_millis(random.random_range(20..3_000));
        let host = controller_host(id);
        // Mostly another controller, sometimes a broker.
        let peer = if random.random_bool(0.7) {
            controller_host(other)
        } else {
            broker_host(BROKERS[random.random_range(0..BROKERS.len())])
        };
        let (from, to) = if random.random_bool(0.5) {
            (host, peer)
        } else {
            (peer, host)
        };
        match random.random_range(0..100_u32) {
            0..12 => Self::Cut(from, to),
            12..26 => Self::CutOneWay(from, to),
            26..36 => Self::Hold(from, to),
            36..46 => Self::Isolate(id),
            46..60 => Self::Mend,
            60..66 => Self::Slow(Duration::from_millis(random.random_range(2..120))),
            66..76 => Self::PowerCut(id, down),
            76..86 => Self::PowerCutAfter(id, random.random_range(0..24), down),
            86..92 => Self::Kill(id, down),
            92..95 => Self::PowerCutEverywhere(down),
            _ => Self::MoveClock(id, random.random_range(-3_600_000..3_600_000)),
        }
    }
}
