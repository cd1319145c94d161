//! Who says what to whom, and how long it takes: messages are late, lost, overtake each other and arrive twice, and
//! links are cut in one direction or both.

use std::collections::BTreeSet;
use std::time::Duration;

use super::random::Random;
use bytes::Bytes;
use kuorum_broker::partition::Fetched;
use kuorum_metadata::rpc::{HeartbeatRequest, RegisterRequest};
use kuorum_protocol::{BrokerEpoch, BrokerId, ErrorCode, LeaderEpoch, Offset};
use kuorum_replication::acks::Acks;
use kuorum_replication::{IsrProposal, IsrReply, Ticket};

use super::plan;
use crate::checkers::PartitionNumber;

/// An end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Peer {
    Broker(BrokerId),
    Controller,
    Client(usize),
}

/// A message on its way.
#[derive(Clone, Debug)]
pub(super) struct Envelope {
    pub(super) from: Peer,
    pub(super) to: Peer,
    /// The run of the process it is meant for, if only that one may read it: an answer comes over the connection its
    /// question went out on.
    pub(super) to_run: Option<u64>,
    pub(super) message: Message,
}

/// Everything that is said.
#[derive(Clone, Debug)]
pub(super) enum Message {
    Fetch {
        partition: PartitionNumber,
        run: u64,
        broker_epoch: BrokerEpoch,
        offset: Offset,
        last_fetched_epoch: Option<LeaderEpoch>,
        current_leader_epoch: LeaderEpoch,
        ticket: Ticket,
        request: u64,
    },
    FetchAnswer {
        partition: PartitionNumber,
        ticket: Ticket,
        request: u64,
        result: Result<Fetched, (ErrorCode, Option<Offset>)>,
    },
    EpochEnd {
        partition: PartitionNumber,
        run: u64,
        epoch: LeaderEpoch,
        current_leader_epoch: LeaderEpoch,
        ticket: Ticket,
        request: u64,
    },
    EpochEndAnswer {
        partition: PartitionNumber,
        ticket: Ticket,
        request: u64,
        result: Result<Option<(LeaderEpoch, Offset)>, ErrorCode>,
    },
    Alter {
        partition: PartitionNumber,
        run: u64,
        broker_epoch: BrokerEpoch,
        proposal: IsrProposal,
    },
    AlterAnswer {
        partition: PartitionNumber,
        number: u64,
        reply: IsrReply,
    },
    Register {
        run: u64,
        request: RegisterRequest,
    },
    /// `None` when refused.
    RegisterAnswer {
        broker_epoch: Option<BrokerEpoch>,
    },
    Heartbeat {
        run: u64,
        request: HeartbeatRequest,
    },
    HeartbeatAnswer {
        may_shut_down: bool,
    },
    /// A client asks who leads.
    Metadata {
        client: usize,
        partition: PartitionNumber,
    },
    /// `None` if nobody does, or the broker does not know.
    MetadataAnswer {
        leader: Option<(BrokerId, LeaderEpoch)>,
    },
    Produce {
        client: usize,
        attempt: u64,
        partition: PartitionNumber,
        acks: Acks,
        batch: Bytes,
        values: Vec<u64>,
        producer: Option<u64>,
    },
    ProduceAnswer {
        attempt: u64,
        result: Result<Offset, ErrorCode>,
    },
    Consume {
        client: usize,
        attempt: u64,
        partition: PartitionNumber,
        from: Offset,
        current_leader_epoch: LeaderEpoch,
        last_fetched_epoch: Option<LeaderEpoch>,
    },
    ConsumeAnswer {
        attempt: u64,
        broker: BrokerId,
        answered_under: LeaderEpoch,
        result: Result<Read, (ErrorCode, Option<Offset>)>,
    },
    Latest {
        client: usize,
        attempt: u64,
        partition: PartitionNumber,
        current_leader_epoch: LeaderEpoch,
    },
    LatestAnswer {
        attempt: u64,
        answered_under: LeaderEpoch,
        result: Result<Offset, ErrorCode>,
    },
}

/// What a consumer is answered: records, or where its history parts from the leader's.
#[derive(Clone, Debug)]
pub(super) struct Read {
    pub(super) records: Bytes,
    pub(super) diverging: Option<(LeaderEpoch, Offset)>,
}

/// The state of the links.
#[derive(Debug)]
pub(super) struct Network {
    cut: BTreeSet<(Peer, Peer)>,
    weather: plan::Network,
    rough: bool,
}

impl Network {
    pub(super) fn new(weather: plan::Network) -> Self {
        Self {
            cut: BTreeSet::new(),
            weather,
            rough: false,
        }
    }

    /// Bad weather, or good.
    pub(super) fn set_rough(&mut self, rough: bool) {
        self.rough = rough;
    }

    /// Nothing goes from `from` to `to` any more.
    pub(super) fn cut(&mut self, from: Peer, to: Peer) {
        self.cut.insert((from, to));
    }

    /// It does again.
    pub(super) fn mend(&mut self, from: Peer, to: Peer) {
        self.cut.remove(&(from, to));
    }

    /// Every link is whole again.
    pub(super) fn mend_all(&mut self) {
        self.cut.clear();
    }

    /// Whether nothing goes from `from` to `to`.
    pub(super) fn is_cut(&self, from: Peer, to: Peer) -> bool {
        self.cut.contains(&(from, to))
    }

    /// When the copies of a message arrive: none, one, or two.
    pub(super) fn arrivals(&self, from: Peer, to: Peer, random: &mut Random) -> Vec<Duration> {
        if self.is_cut(from, to) {
            return Vec::new();
        }
        let weather = &self.weather;
        if self.rough && random.below(1000) < weather.lost {
            return Vec::new();
        }
        let copies = 1 + usize::from(self.rough && random.below(1000) < weather.twice);
        (0..copies).map(|_| self.delay(random)).collect()
    }

    fn delay(&self, random: &mut Random) -> Duration {
        let quick = Duration::from_micros(150 + random.below(1_500) as u64);
        if self.rough && random.below(1000) < self.weather.late {
            let latest = self.weather.latest.as_micros() as usize;
            return quick + Duration::from_micros(random.below(latest) as u64);
        }
        quick
    }
}
