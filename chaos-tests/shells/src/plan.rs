//! What a seed decides before a run begins, and which fault comes next.
//! Law: every choice comes from the seed's own numbers, in one order.

use std::fmt;
use std::time::Duration;

use kuorum_controller::quorum::{ControllerId, QuorumConfig};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// The controllers.
pub(crate) const CONTROLLERS: [ControllerId; 3] = [1, 2, 3];
/// The brokers.
pub(crate) const BROKERS: [i32; 3] = [1, 2, 3];
/// The clients of the brokers.
pub(crate) const CLIENTS: [u64; 2] = [1, 2];

/// What is built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Controllers, and outsiders that ask them for things as brokers do.
    #[default]
    Controllers,
    /// Controllers, brokers, and clients of the brokers.
    Brokers,
}

/// A machine with a disk, whose power may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Machine {
    Controller(ControllerId),
    Broker(i32),
}

impl Machine {
    /// Its name in the network.
    pub(crate) fn host(self) -> String {
        match self {
            Self::Controller(id) => controller_host(id),
            Self::Broker(id) => broker_host(id),
        }
    }
}

/// A topic that clients write to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Topic {
    pub(crate) name: &'static str,
    pub(crate) partitions: i32,
    pub(crate) copies: i16,
    pub(crate) min_insync: i32,
}

/// Those that clients write to: what is acknowledged must last even where one replica may acknowledge alone.
pub(crate) const TOPICS: [Topic; 3] = [
    Topic {
        name: "three-of-which-two",
        partitions: 2,
        copies: 3,
        min_insync: 2,
    },
    Topic {
        name: "three-of-which-one",
        partitions: 2,
        copies: 3,
        min_insync: 1,
    },
    Topic {
        name: "two",
        partitions: 2,
        copies: 2,
        min_insync: 1,
    },
];

/// How a run is set up.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) kind: Kind,
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
    /// How long a replica may lag before it is not in sync any more.
    pub(crate) replica_lag: Duration,
    /// How often brokers write their checkpoints.
    pub(crate) checkpoints: Duration,
    /// How long producers wait for company.
    pub(crate) linger: Duration,
    /// How many requests a producer may have under way on one connection.
    pub(crate) in_flight: u32,
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
    /// Nothing passes between a machine and the others of its kind.
    Isolate(Machine),
    /// Everything is mended but the processes.
    Mend,
    /// Messages take up to so long from now on.
    Slow(Duration),
    /// The power goes: what was not synced may be lost.
    PowerCut(Machine, Duration),
    /// The power goes after so many changes of the disk.
    PowerCutAfter(Machine, u64, Duration),
    /// The process ends; its page cache does not.
    Kill(Machine, Duration),
    /// A broker goes down in good order.
    Leave(i32, Duration),
    /// A broker's disk cannot make something durable: a log directory fails.
    BadSync(i32),
    /// The power goes everywhere at once.
    PowerCutEverywhere(Duration),
    /// A wall clock jumps by so many milliseconds.
    MoveClock(Machine, i64),
}

pub(crate) fn controller_host(id: ControllerId) -> String {
    format!("controller-{id}")
}

pub(crate) fn broker_host(id: i32) -> String {
    format!("broker-{id}")
}

pub(crate) fn client_host(id: u64) -> String {
    format!("client-{id}")
}

impl Plan {
    pub(crate) fn new(kind: Kind, seed: u64) -> (Self, StdRng) {
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
        let [replica_lag, checkpoints, linger] = match kind {
            Kind::Controllers => [Duration::ZERO; 3],
            Kind::Brokers => [
                millis(&mut random, 1_000, 5_000),
                millis(&mut random, 200, 3_000),
                millis(&mut random, 0, 20),
            ],
        };
        let plan = Self {
            kind,
            seed,
            latency,
            slowest_write,
            trouble,
            pause,
            shuffled,
            quorum,
            replica_lag,
            checkpoints,
            linger,
            in_flight: 1 + (seed % 5) as u32,
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
        if self.kind == Kind::Brokers {
            write!(
                f,
                ", replicas may lag {:?}, checkpoints every {:?}, producers linger {:?} and have {} requests under way",
                self.replica_lag, self.checkpoints, self.linger, self.in_flight
            )?;
        }
        Ok(())
    }
}

impl Fault {
    pub(crate) fn next(kind: Kind, random: &mut StdRng) -> Self {
        match kind {
            Kind::Controllers => Self::of_controllers(random),
            Kind::Brokers => Self::of_all(random),
        }
    }

    fn of_controllers(random: &mut StdRng) -> Self {
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
        let machine = Machine::Controller(id);
        match random.random_range(0..100_u32) {
            0..12 => Self::Cut(from, to),
            12..26 => Self::CutOneWay(from, to),
            26..36 => Self::Hold(from, to),
            36..46 => Self::Isolate(machine),
            46..60 => Self::Mend,
            60..66 => Self::Slow(Duration::from_millis(random.random_range(2..120))),
            66..76 => Self::PowerCut(machine, down),
            76..86 => Self::PowerCutAfter(machine, random.random_range(0..24), down),
            86..92 => Self::Kill(machine, down),
            92..95 => Self::PowerCutEverywhere(down),
            _ => Self::MoveClock(machine, random.random_range(-3_600_000..3_600_000)),
        }
    }

    fn of_all(random: &mut StdRng) -> Self {
        let broker = BROKERS[random.random_range(0..BROKERS.len())];
        let controller = CONTROLLERS[random.random_range(0..CONTROLLERS.len())];
        // What befalls brokers matters most here; controllers have a world of their own.
        let machine = match random.random_bool(0.75) {
            true => Machine::Broker(broker),
            false => Machine::Controller(controller),
        };
        let down = Duration::from_millis(random.random_range(20..4_000));
        let host = machine.host();
        let peer = match random.random_range(0..10_u32) {
            0..5 => broker_host(BROKERS[random.random_range(0..BROKERS.len())]),
            5..8 => controller_host(CONTROLLERS[random.random_range(0..CONTROLLERS.len())]),
            _ => client_host(CLIENTS[random.random_range(0..CLIENTS.len())]),
        };
        let (from, to) = if random.random_bool(0.5) {
            (host, peer)
        } else {
            (peer, host)
        };
        match random.random_range(0..100_u32) {
            // Nobody is cut off from itself.
            0..34 if from == to => Self::Mend,
            0..12 => Self::Cut(from, to),
            12..24 => Self::CutOneWay(from, to),
            24..34 => Self::Hold(from, to),
            34..42 => Self::Isolate(machine),
            42..56 => Self::Mend,
            56..60 => Self::Slow(Duration::from_millis(random.random_range(2..120))),
            60..69 => Self::PowerCut(machine, down),
            69..78 => Self::PowerCutAfter(machine, random.random_range(0..40), down),
            78..84 => Self::Kill(machine, down),
            84..91 => Self::Leave(broker, down),
            91..94 => Self::BadSync(broker),
            94..97 => Self::PowerCutEverywhere(down),
            _ => Self::MoveClock(machine, random.random_range(-3_600_000..3_600_000)),
        }
    }
}
