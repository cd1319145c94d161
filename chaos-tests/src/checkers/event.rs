//! What happens in a simulated cluster, as far as a property speaks of it.
//! Law: an event says what was seen, never whether that is right.

use std::sync::Arc;
use std::time::Duration;

use kuorum_metadata::image::PartitionImage;
use kuorum_protocol::{BrokerId, ErrorCode, LeaderEpoch, Offset};

use super::{Logged, PartitionNumber, SetAside};

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// A process began to lead.
    Led {
        partition: PartitionNumber,
        broker: BrokerId,
        /// Which run of the broker's process.
        run: u64,
        leader_epoch: LeaderEpoch,
    },
    /// A leader's high watermark was found at another place than before.
    HighWatermark {
        partition: PartitionNumber,
        broker: BrokerId,
        leader_epoch: LeaderEpoch,
        from: Offset,
        to: Offset,
        /// Members of the ISR as that leader knows it decided.
        committed_isr: usize,
        min_isr: usize,
        /// Replicas that have everything below `to`, as durably as it counts.
        holders: usize,
    },
    /// What became visible at an offset, told by the leader whose high watermark passed it.
    Committed {
        partition: PartitionNumber,
        broker: BrokerId,
        leader_epoch: LeaderEpoch,
        offset: Offset,
        record: Logged,
    },
    /// A broker told a producer that its record is there.
    Acked {
        partition: PartitionNumber,
        broker: BrokerId,
        /// `None` for a producer that is not idempotent.
        producer: Option<u64>,
        value: u64,
        offset: Offset,
        /// acks=all.
        all: bool,
        appended_under: LeaderEpoch,
        /// The epoch this very process led in when it answered.
        led_under: Option<LeaderEpoch>,
    },
    /// An idempotent producer that has lost nothing itself was told that its sequence does not fit.
    SequenceRefused {
        partition: PartitionNumber,
        client: usize,
        /// acks=all.
        all: bool,
        code: ErrorCode,
    },
    /// A consumer received a record.
    Read {
        partition: PartitionNumber,
        broker: BrokerId,
        /// The leader epoch the consumer's request named.
        asked_under: LeaderEpoch,
        /// The leader epoch of the one who answered.
        answered_under: LeaderEpoch,
        offset: Offset,
        value: u64,
        /// Which consumer, if it is one that reads everything in order and compares epochs (KIP-320).
        consumer: Option<usize>,
    },
    /// A consumer that compares epochs was told that the history it has read ends at `to`.
    CutTold {
        partition: PartitionNumber,
        consumer: usize,
        to: Offset,
    },
    /// A leader was elected that may lack records.
    UncleanElection {
        partition: PartitionNumber,
        leader: BrokerId,
        leader_epoch: LeaderEpoch,
        /// How much of what was ever visible the elected leader held.
        keeps: Offset,
        /// What was visible, and not deleted by request, and is not kept.
        gives_up: Vec<(Offset, Logged)>,
        /// Whether the topic's policy, or somebody by hand, allowed it.
        allowed: bool,
    },
    /// A leader deleted records by request.
    RecordsDeleted {
        partition: PartitionNumber,
        below: Offset,
        /// The epochs of its log before that.
        epochs: Vec<(LeaderEpoch, Offset)>,
    },
    /// A replica cut off `[first, end)` of its log, or is about to be deleted with it.
    Cut {
        partition: PartitionNumber,
        broker: BrokerId,
        first: Offset,
        end: Offset,
        /// It was written before the partition's last unclean election.
        unclean: bool,
        /// `None` if nothing was tried.
        aside: Option<SetAside>,
    },
    /// All that a broker's disk held is gone.
    DiskLost { broker: BrokerId },
    /// The controllers decided other replicas: a move began, completed or was taken back.
    ReplicasChanged {
        partition: PartitionNumber,
        before: Arc<PartitionImage>,
        after: Arc<PartitionImage>,
        /// Somebody asked to take the move back.
        cancelled: bool,
        /// The topic prefers being there to being complete.
        may_lose: bool,
    },
    /// A consumer that had read up to `position` was told that there is nothing there.
    OutOfRange {
        partition: PartitionNumber,
        broker: BrokerId,
        position: Offset,
        log_start: Offset,
    },
    /// A client was told where the partition ends.
    Latest {
        partition: PartitionNumber,
        client: usize,
        asked_under: LeaderEpoch,
        answered_under: LeaderEpoch,
        offset: Offset,
    },
    /// The controllers decided another ISR.
    IsrChanged {
        partition: PartitionNumber,
        from: Vec<BrokerId>,
        to: Vec<BrokerId>,
        /// New members that are fenced or shutting down, as the controllers know it.
        not_admissible: Vec<BrokerId>,
        cause: String,
    },
    /// A leader asked for another ISR.
    IsrProposed {
        partition: PartitionNumber,
        leader: BrokerId,
        /// Members that its own metadata show as fenced or shutting down.
        not_admissible: Vec<BrokerId>,
    },
    /// The controllers let a broker go that had asked to shut down.
    LeaveGiven {
        broker: BrokerId,
        /// What it still leads, as the controllers know it.
        leads: Vec<PartitionNumber>,
        /// Where it is still in sync although somebody else leads.
        in_sync: Vec<PartitionNumber>,
    },
    /// A leader was asked to shut down in a healthy cluster, under load.
    ShutdownProbe {
        broker: BrokerId,
        /// `None` if it was not let go at all.
        waited: Option<Duration>,
        /// The longest a produce waited meanwhile.
        longest_pause: Duration,
        allowed: Duration,
    },
    /// A leader and the active controller died together.
    FailoverProbe {
        partition: PartitionNumber,
        /// `None` if nobody took over.
        waited: Option<Duration>,
        allowed: Duration,
    },
    /// From now on nothing is written and nothing is broken; or that is over.
    Quiet(bool),
    /// A produce waited for a follower that had stopped to fetch.
    ShrinkProbe {
        partition: PartitionNumber,
        /// `None` if it was not acknowledged at all.
        waited: Option<Duration>,
        allowed: Duration,
    },
    /// A leader was asked where an epoch ends.
    EpochAnswer {
        partition: PartitionNumber,
        leader_epoch: LeaderEpoch,
        log_start: Offset,
        log_end: Offset,
        current: LeaderEpoch,
        asked: LeaderEpoch,
        answer: Result<Option<(LeaderEpoch, Offset)>, ErrorCode>,
        /// Every committed epoch and where it begins.
        epochs: Vec<(LeaderEpoch, Offset)>,
        committed_end: Offset,
    },
    /// The cluster was given time to heal, and did not.
    NotHealed { what: String },
}
