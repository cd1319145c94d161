//! Everything a seed decides before the first event: the cluster's shape, its settings, and how rough the weather is.
//! Law: a plan follows from its seed alone.

use std::fmt;
use std::time::Duration;

use super::random::Random;
use kuorum_replication::Durability;

/// What one run is like.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub brokers: usize,
    /// Each with its own policy; all with the same placement.
    pub topics: Vec<Topic>,
    pub replication_factor: usize,
    pub durability: Durability,
    pub segment_bytes: u64,
    pub replica_lag_time_max: Duration,
    pub session_timeout: Duration,
    /// Producers for each partition; the first is idempotent, the others by turns.
    pub producers: usize,
    /// How many of a hundred acknowledgements a producer takes a long rest after.
    pub rests: usize,
    /// How long a producer tries before it gives up what it sent.
    pub delivery_timeout: Duration,
    /// How long the cluster is hurt.
    pub rough: Duration,
    pub faults: Faults,
    pub network: Network,
}

/// One topic of a run.
#[derive(Clone, Copy, Debug)]
pub struct Topic {
    pub name: &'static str,
    pub partitions: usize,
    pub min_isr: usize,
    /// `unclean.leader.election.enable` when it is created.
    pub unclean: bool,
}

/// The topic that loses nothing.
pub(super) const TRANSFERS: &str = "bank-transfers";
/// The topic that would rather be there than be complete.
pub(super) const TELEMETRY: &str = "telemetry-logs";

/// Which faults there are, each as a weight; 0 for none.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// Average time between two.
    pub every: Duration,
    pub kill: usize,
    pub power_cut: usize,
    pub power_cut_everywhere: usize,
    pub pause: usize,
    pub cut_link: usize,
    pub disk: usize,
    pub wipe: usize,
    pub controller: usize,
    pub preferred_election: usize,
    pub delete_records: usize,
    pub slow_feed: usize,
    /// SIGTERM.
    pub shut_down: usize,
    /// A wall clock jumps; the monotonic one does not.
    pub clock: usize,
    /// The policy of `telemetry-logs` is changed.
    pub policy: usize,
    /// Leadership is taken from a broker, or it may lead again.
    pub drain: usize,
    /// An unclean election of `telemetry-logs` by hand.
    pub unclean_election: usize,
    /// Replicas are moved to other brokers, and moves are taken back.
    pub reassign: usize,
}

/// How messages travel while the cluster is hurt.
#[derive(Clone, Copy, Debug)]
pub struct Network {
    /// Per thousand.
    pub lost: usize,
    /// Per thousand.
    pub twice: usize,
    /// Per thousand.
    pub late: usize,
    /// The longest a late one takes.
    pub latest: Duration,
}

impl Plan {
    /// The plan of a seed.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        let random = &mut Random::new(seed ^ 0x6b75_6f72_756d);
        let brokers = pick(random, &[3, 3, 3, 4, 5]);
        let replication_factor = pick(random, &[3, 3, 3, 2]).min(brokers);
        let min_isr = match replication_factor {
            2 => pick(random, &[1, 2]),
            _ => pick(random, &[2, 2, 2, 1]),
        };
        let mut topics = vec![Topic {
            name: TRANSFERS,
            partitions: pick(random, &[1, 1, 2, 3]),
            min_isr,
            unclean: false,
        }];
        let telemetry = random.below(5) < 2;
        if telemetry {
            topics.push(Topic {
                name: TELEMETRY,
                partitions: pick(random, &[1, 2]),
                min_isr: pick(random, &[1, 1, 2]),
                unclean: pick(random, &[true, true, false]),
            });
        }
        let durability = pick(
            random,
            &[
                Durability::Flushed,
                Durability::Flushed,
                Durability::PageCache,
            ],
        );
        let flushed = durability == Durability::Flushed;
        let calm_network = pick(random, &[true, false, false]);
        // Swarm testing: each run leaves most faults out, so that those it has get far.
        let mut maybe = |weight: usize| if random.below(2) == 0 { weight } else { 0 };
        let faults = Faults {
            every: Duration::from_millis(900),
            kill: maybe(4),
            power_cut: if flushed { maybe(4) } else { 0 },
            power_cut_everywhere: if flushed { maybe(1) } else { 0 },
            pause: maybe(4),
            cut_link: maybe(4),
            disk: if flushed { maybe(1) } else { 0 },
            wipe: if topics.iter().all(|topic| topic.min_isr > 1) {
                maybe(2)
            } else {
                0
            },
            controller: maybe(1),
            preferred_election: maybe(3),
            delete_records: maybe(2),
            slow_feed: maybe(3),
            shut_down: maybe(3),
            clock: maybe(1),
            drain: maybe(2),
            policy: if telemetry { maybe(2) } else { 0 },
            unclean_election: if telemetry { maybe(2) } else { 0 },
            reassign: 0,
        };
        let faults = Faults {
            every: pick(
                random,
                &[
                    faults.every,
                    Duration::from_millis(400),
                    Duration::from_secs(2),
                ],
            ),
            ..faults
        };
        let network = if calm_network {
            Network {
                lost: 0,
                twice: 0,
                late: 2,
                latest: Duration::from_millis(100),
            }
        } else {
            Network {
                lost: pick(random, &[0, 5, 20, 60]),
                twice: pick(random, &[0, 10, 50]),
                late: pick(random, &[5, 30, 100]),
                latest: Duration::from_millis(pick(random, &[50, 400, 2_500])),
            }
        };
        let mut plan = Self {
            seed,
            brokers,
            topics,
            replication_factor,
            durability,
            segment_bytes: pick(random, &[1 << 11, 1 << 13, 1 << 20]),
            replica_lag_time_max: Duration::from_millis(pick(random, &[600, 1_500, 3_000])),
            session_timeout: Duration::from_millis(pick(random, &[900, 1_800])),
            producers: pick(random, &[1, 2, 3]),
            rests: pick(random, &[0, 0, 5, 20]),
            delivery_timeout: Duration::from_secs(12),
            rough: Duration::from_secs(pick(random, &[8, 15, 25])),
            faults,
            network,
        };
        if random.below(2) == 0 {
            plan.faults.reassign = 4;
            // A move needs somewhere to go.
            plan.brokers = plan.brokers.max(plan.replication_factor + 1);
        }
        plan
    }

    /// A plan for a story: three brokers, nothing that goes wrong by itself, and nobody who writes unasked.
    #[must_use]
    pub fn calm(seed: u64, topics: &[Topic]) -> Self {
        Self {
            seed,
            brokers: 3,
            topics: topics.to_vec(),
            replication_factor: 3,
            durability: Durability::Flushed,
            segment_bytes: 1 << 13,
            replica_lag_time_max: Duration::from_secs(30),
            session_timeout: Duration::from_secs(9),
            producers: 1,
            rests: 0,
            delivery_timeout: Duration::from_secs(120),
            rough: Duration::ZERO,
            faults: Faults {
                every: Duration::from_secs(1),
                kill: 0,
                power_cut: 0,
                power_cut_everywhere: 0,
                pause: 0,
                cut_link: 0,
                disk: 0,
                wipe: 0,
                controller: 0,
                preferred_election: 0,
                delete_records: 0,
                slow_feed: 0,
                shut_down: 0,
                clock: 0,
                drain: 0,
                policy: 0,
                unclean_election: 0,
                reassign: 0,
            },
            network: Network {
                lost: 0,
                twice: 0,
                late: 0,
                latest: Duration::from_millis(1),
            },
        }
    }

    /// The topic of every partition, in the order the partitions are numbered in.
    pub(super) fn topic_of_partitions(&self) -> impl Iterator<Item = (Topic, i32)> {
        self.topics
            .iter()
            .flat_map(|topic| (0..topic.partitions as i32).map(move |index| (*topic, index)))
    }

    /// The topic of one partition.
    pub(super) fn topic_of(&self, partition: usize) -> Topic {
        self.topic_of_partitions()
            .nth(partition)
            .map(|(topic, _)| topic)
            .expect("partitions are numbered through the plan's topics")
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} brokers, {:?}, rf {}, {:?}, lag {:?}, session {:?}, {:?} of {:?}, {:?}",
            self.brokers,
            self.topics,
            self.replication_factor,
            self.durability,
            self.replica_lag_time_max,
            self.session_timeout,
            self.rough,
            self.faults,
            self.network
        )
    }
}

/// One of `choices`.
pub(super) fn pick<T: Copy>(random: &mut Random, choices: &[T]) -> T {
    choices[random.below(choices.len())]
}
