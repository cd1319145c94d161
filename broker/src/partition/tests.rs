//! Stories of replicas, told through their public face, on simulated disks.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::record::{BatchBuilder, BatchMut, Codec};
use kuorum_protocol::{BrokerEpoch, ProducerEpoch, ProducerId, Sequence};
use kuorum_replication::acks::Acks;
use kuorum_replication::follower::FetchFailure;
use kuorum_replication::{Durability, FollowerStep, IsrProposal, Standing};
use kuorum_storage::salvage::Aside;
use kuorum_storage::{Known, SimDir};

use super::*;

const LAG: Duration = Duration::from_secs(30);

fn now(seconds: u64) -> Now {
    Now::default() + Duration::from_secs(seconds)
}

/// One replica, and a clock that only its stories move.
struct Replica {
    disk: SimDir,
    it: Partition<SimDir, &'static str>,
    seconds: u64,
    completed: Vec<(&'static str, Option<ErrorCode>)>,
    proposals: Vec<IsrProposal>,
    /// What the last step asked for, less what is collected above.
    last: Effects<&'static str>,
}

impl Replica {
    fn new(broker: i32, terms: Terms) -> Self {
        let disk = SimDir::new(7);
        let it = Self::open(&disk, broker, terms, Known::default());
        Self {
            disk,
            it,
            seconds: 1,
            completed: Vec::new(),
            proposals: Vec::new(),
            last: Effects::default(),
        }
    }

    fn open(
        disk: &SimDir,
        broker: i32,
        terms: Terms,
        known: Known,
    ) -> Partition<SimDir, &'static str> {
        let dir = disk.subdirectory("bank-transfers-0");
        let (log, _) = Log::open(dir, LogConfig::default(), known, now(0)).unwrap();
        let identity = Identity {
            topic: "bank-transfers".into(),
            topic_id: TopicId::default(),
            index: 0,
            me: BrokerId(broker),
        };
        Partition::new(identity, log, terms, known.high_watermark)
    }

    fn step<R>(
        &mut self,
        act: impl FnOnce(&mut Partition<SimDir, &'static str>, Now, &mut Effects<&'static str>) -> R,
    ) -> R {
        let mut fx = Effects::default();
        let result = act(&mut self.it, now(self.seconds), &mut fx);
        self.completed.extend(
            fx.completed
                .drain(..)
                .map(|(token, result)| (token, result.err().map(|error| ErrorCode::from(&error)))),
        );
        self.proposals.extend(fx.propose_isr.take());
        self.last = fx;
        result
    }

    fn lead(&mut self, epoch: i32, partition_epoch: i32, isr: &[i32]) {
        let me = self.it.identity().me.0;
        let assignment = assignment(Some(me), epoch, partition_epoch, isr);
        self.step(|it, now, fx| it.apply(&assignment, now, fx));
    }

    fn follow(&mut self, leader: i32, epoch: i32, partition_epoch: i32) {
        let assignment = assignment(Some(leader), epoch, partition_epoch, &[1, 2, 3]);
        self.step(|it, now, fx| it.apply(&assignment, now, fx));
    }

    fn append(&mut self, values: usize) -> Result<Appended, ProduceError> {
        self.append_as(values, None)
    }

    fn append_as(
        &mut self,
        values: usize,
        sequence: Option<i32>,
    ) -> Result<Appended, ProduceError> {
        let batch = batch(values, sequence);
        self.step(|it, now, fx| {
            it.admit(Acks::All)?;
            it.append(&mut batch.to_vec(), now, fx)
        })
    }

    fn park(&mut self, until: Offset, seconds: u64, token: &'static str) {
        let deadline = now(seconds).monotonic;
        self.step(|it, _, fx| it.park(until, deadline, token, fx));
    }

    fn park_refusal(&mut self, seconds: u64, token: &'static str) {
        let deadline = now(seconds).monotonic;
        self.step(|it, now, fx| it.park_refusal(now, deadline, token, fx));
    }

    fn flush(&mut self) {
        while let Some(job) = self.it.begin_flush() {
            let result = job.run();
            self.step(|it, now, fx| it.finish_flush(job, result, now, fx));
        }
    }

    fn fetch_as(&mut self, broker: i32, from: i64) -> Result<ReadOutcome, ReadError> {
        let spec = ReadSpec {
            reader: Reader::Replica {
                broker: BrokerId(broker),
                broker_epoch: BrokerEpoch(100 + i64::from(broker)),
            },
            ..consume(from)
        };
        self.read(spec)
    }

    fn read(&mut self, spec: ReadSpec) -> Result<ReadOutcome, ReadError> {
        self.step(|it, now, fx| it.read(spec, now, fx))
    }

    fn code(&mut self, spec: ReadSpec) -> Option<ErrorCode> {
        self.read(spec).err().map(|error| ErrorCode::from(&error))
    }
}

fn consume(from: i64) -> ReadSpec {
    ReadSpec {
        from: Offset(from),
        max_bytes: 1 << 20,
        at_least_one: true,
        current_leader_epoch: None,
        last_fetched_epoch: None,
        reader: Reader::Consumer {
            isolation: Isolation::ReadUncommitted,
        },
    }
}

fn batch(values: usize, sequence: Option<i32>) -> Bytes {
    let mut builder = BatchBuilder::new(Codec::None);
    if let Some(sequence) = sequence {
        builder = builder.producer(ProducerId(9999), ProducerEpoch(0), Sequence(sequence));
    }
    for _ in 0..values {
        builder = builder.push(now(0).wall, None, Some(b"Rp1,000,000"), &[]);
    }
    builder.build()
}

fn assignment(leader: Option<i32>, epoch: i32, partition_epoch: i32, isr: &[i32]) -> Assignment {
    let standing: BTreeMap<BrokerId, Standing> = (1..=3)
        .map(|id| {
            let standing = Standing {
                broker_epoch: BrokerEpoch(100 + i64::from(id)),
                may_join: true,
            };
            (BrokerId(id), standing)
        })
        .collect();
    Assignment {
        leader: leader.map(BrokerId),
        leader_epoch: LeaderEpoch(epoch),
        partition_epoch: PartitionEpoch(partition_epoch),
        replicas: vec![BrokerId(1), BrokerId(2), BrokerId(3)],
        removing: Default::default(),
        isr: isr.iter().map(|id| BrokerId(*id)).collect(),
        elr: BTreeSet::new(),
        recovering: false,
        last_unclean_epoch: None,
        standing,
    }
}

fn terms(min_isr: usize) -> Terms {
    Terms {
        min_insync_replicas: min_isr,
        replica_lag_time_max: LAG,
        ..Terms::default()
    }
}

/// Lets `follower` ask `leader` once, whatever it wants to know.
fn exchange(leader: &mut Replica, follower: &mut Replica) {
    let at = now(follower.seconds);
    let me = follower.it.identity().me;
    match follower.it.next_step(at) {
        FollowerStep::EpochEnd {
            epoch,
            current_leader_epoch,
            ticket,
            ..
        } => {
            let answer = leader
                .it
                .end_offset_for_epoch(Some(current_leader_epoch), epoch)
                .unwrap();
            follower.step(|it, now, fx| it.on_epoch_end(&ticket, answer, now, fx));
        }
        FollowerStep::Fetch {
            offset,
            last_fetched_epoch,
            current_leader_epoch,
            ticket,
            ..
        } => {
            let spec = ReadSpec {
                current_leader_epoch: Some(current_leader_epoch),
                last_fetched_epoch,
                reader: Reader::Replica {
                    broker: me,
                    broker_epoch: BrokerEpoch(100 + i64::from(me.0)),
                },
                ..consume(offset.0)
            };
            match leader.read(spec) {
                Ok(outcome) => {
                    let fetched = Fetched {
                        records: outcome.records,
                        high_watermark: outcome.high_watermark,
                        log_start: outcome.log_start,
                        diverging: outcome.diverging,
                    };
                    follower.step(|it, now, fx| it.on_fetched(&ticket, &fetched, now, fx));
                }
                Err(error) => {
                    let start = match error {
                        ReadError::OffsetOutOfRange { log_start, .. } => Some(log_start),
                        _ => None,
                    };
                    let code = ErrorCode::from(&error).code();
                    let failure = FetchFailure::from_error(code, start);
                    follower.step(|it, now, fx| it.on_fetch_error(&ticket, failure, now, fx));
                }
            }
        }
        FollowerStep::Nothing => {}
    }
    follower.flush();
}

#[test]
fn acks_all_waits_for_flushed_replicas_and_not_longer() {
    let mut leader = Replica::new(1, terms(2));
    leader.lead(5, 1, &[1, 2]);
    let appended = leader.append(3).unwrap();
    assert_eq!(
        (appended.base_offset, appended.until),
        (Offset(0), Offset(3))
    );
    leader.park(appended.until, 60, "transfer");
    leader.fetch_as(2, 3).unwrap();
    assert_eq!(
        leader.it.high_watermark(),
        Offset(0),
        "the leader has not flushed"
    );
    assert!(leader.completed.is_empty());
    leader.flush();
    assert_eq!(leader.it.high_watermark(), Offset(3));
    assert_eq!(leader.completed, vec![("transfer", None)]);
}

#[test]
fn page_cache_durability_does_not_wait_for_the_disk() {
    let terms = Terms {
        durability: Durability::PageCache,
        ..terms(2)
    };
    let mut leader = Replica::new(1, terms);
    leader.lead(5, 1, &[1, 2]);
    leader.append(1).unwrap();
    assert!(!leader.last.log_dirty, "nothing asks for a flush");
    leader.fetch_as(2, 1).unwrap();
    assert_eq!(leader.it.high_watermark(), Offset(1));
}

/// R4: the leader is deposed while a produce is pending.
#[test]
fn a_parked_produce_dies_with_its_epoch() {
    let mut leader = Replica::new(1, terms(1));
    leader.lead(5, 1, &[1, 2]);
    let appended = leader.append(1).unwrap();
    leader.park(appended.until, 60, "transfer");
    leader.flush();
    leader.lead(7, 3, &[1, 2]);
    assert_eq!(
        leader.completed,
        vec![("transfer", Some(ErrorCode::NotLeaderOrFollower))],
        "even if the same broker leads again"
    );
    leader.fetch_as(2, 1).unwrap();
    assert_eq!(leader.it.high_watermark(), Offset(1));
    assert_eq!(leader.completed.len(), 1);
}

#[test]
fn a_parked_produce_has_a_deadline() {
    let mut leader = Replica::new(1, terms(1));
    leader.lead(5, 1, &[1, 2]);
    let appended = leader.append(1).unwrap();
    leader.park(appended.until, 10, "transfer");
    leader.seconds = 9;
    leader.step(|it, now, fx| it.tick(now, fx));
    assert!(leader.completed.is_empty());
    leader.seconds = 10;
    leader.step(|it, now, fx| it.tick(now, fx));
    assert_eq!(
        leader.completed,
        vec![("transfer", Some(ErrorCode::RequestTimedOut))]
    );
}

#[test]
fn a_duplicate_gets_its_first_offsets_and_still_waits() {
    let mut leader = Replica::new(1, terms(1));
    leader.lead(5, 1, &[1, 2]);
    let first = leader.append_as(2, Some(0)).unwrap();
    let again = leader.append_as(2, Some(0)).unwrap();
    assert!(again.duplicate && !leader.last.appended);
    assert_eq!(
        (again.base_offset, again.until),
        (first.base_offset, first.until)
    );
    leader.park(again.until, 60, "again");
    assert!(leader.completed.is_empty());
    leader.flush();
    leader.fetch_as(2, 2).unwrap();
    assert_eq!(leader.completed, vec![("again", None)]);
    let gap = leader.append_as(1, Some(7)).unwrap_err();
    assert_eq!(ErrorCode::from(&gap), ErrorCode::OutOfOrderSequenceNumber);
}

/// A leader that was replaced lacks what its successor has acknowledged: that a sequence does not fit is said when the
/// controllers have said that it leads, later than it was asked.
#[test]
fn a_gap_is_refused_when_the_leader_is_confirmed() {
    let accepted = |partition_epoch| IsrReply::Accepted {
        leader_epoch: LeaderEpoch(5),
        partition_epoch: PartitionEpoch(partition_epoch),
        isr: [BrokerId(1), BrokerId(2)].into(),
        elr: BTreeSet::new(),
    };
    let mut leader = Replica::new(1, terms(1));
    leader.lead(5, 1, &[1, 2]);
    leader.append_as(1, Some(0)).unwrap();
    assert!(leader.append_as(1, Some(7)).unwrap_err().is_gap());
    leader.park_refusal(60, "one");
    assert_eq!(leader.proposals.len(), 1, "asked at once");
    assert_eq!(
        leader.proposals[0].new_isr.len(),
        2,
        "for what it has already"
    );
    // Asked after that question was sent: its answer is no answer to this one.
    leader.park_refusal(60, "two");
    assert_eq!(leader.proposals.len(), 1, "one is on its way");
    let first = leader.proposals[0].number;
    leader.step(|it, now, fx| it.isr_decided(first, accepted(1), now, fx));
    assert_eq!(leader.completed, [("one", None)]);
    leader.seconds += 1;
    leader.step(|it, now, fx| it.tick(now, fx));
    let second = leader.proposals[1].number;
    let fenced = IsrReply::from_error(ErrorCode::FencedLeaderEpoch.code());
    leader.step(|it, now, fx| it.isr_decided(second, fenced, now, fx));
    assert_eq!(leader.completed.len(), 1, "no answer yet");
    leader.park_refusal(4, "three");
    leader.seconds += 10;
    leader.step(|it, now, fx| it.tick(now, fx));
    let late = ("three", Some(ErrorCode::RequestTimedOut));
    assert_eq!(leader.completed[1..], [late]);

    leader.follow(2, 6, 2);
    let moved = ("two", Some(ErrorCode::NotLeaderOrFollower));
    assert_eq!(leader.completed[2..], [moved]);
    leader.park_refusal(60, "four");
    let moved = ("four", Some(ErrorCode::NotLeaderOrFollower));
    assert_eq!(leader.completed[3..], [moved]);
}

/// A replica that was added and fetched all there is knows what idempotent producers wrote (AutoMQ#437): a retry after the
/// move is no second record.
#[test]
fn an_added_replica_that_leads_recognises_what_was_written_before_it_came() {
    let mut leader = Replica::new(1, terms(1));
    leader.lead(5, 1, &[1]);
    let first = leader.append_as(2, Some(0)).unwrap();
    let second = leader.append_as(3, Some(2)).unwrap();
    leader.flush();

    let mut added = Replica::new(2, terms(1));
    added.follow(1, 5, 2);
    for _ in 0..4 {
        exchange(&mut leader, &mut added);
    }
    assert_eq!(added.it.log().end_offset(), second.until);
    let proposal = leader.proposals.pop().expect("it is complete");
    assert!(proposal.new_isr.iter().any(|(id, _)| *id == BrokerId(2)));

    // The move ends: 1 is gone, 2 leads.
    added.lead(6, 3, &[2]);
    for (values, sequence, original) in [(3, 2, &second), (2, 0, &first)] {
        let again = added.append_as(values, Some(sequence)).unwrap();
        assert!(again.duplicate, "sequence {sequence}");
        assert_eq!(again.base_offset, original.base_offset);
    }
    let next = added.append_as(1, Some(5)).unwrap();
    assert!(!next.duplicate && next.base_offset == second.until);
}

#[test]
fn too_few_in_sync_refuse_acks_all_before_anything_is_appended() {
    let mut leader = Replica::new(1, terms(2));
    leader.lead(5, 1, &[1]);
    let refused = leader.append(1).unwrap_err();
    assert_eq!(ErrorCode::from(&refused), ErrorCode::NotEnoughReplicas);
    assert_eq!(leader.it.log().end_offset(), Offset(0));
    assert!(leader.it.admit(Acks::Leader).is_ok());
}

#[test]
fn read_rows() {
    let mut leader = Replica::new(1, terms(1));
    leader.lead(5, 1, &[1, 2]);
    leader.append(10).unwrap();
    leader.append(10).unwrap();
    leader.flush();
    leader.fetch_as(2, 10).unwrap();
    assert_eq!(leader.it.high_watermark(), Offset(10));
    let with_epoch = |epoch: i32| ReadSpec {
        current_leader_epoch: Some(LeaderEpoch(epoch)),
        ..consume(0)
    };
    let rows = [
        ("below the high watermark", consume(0), None, false),
        ("at it", consume(10), None, true),
        ("above it, in the log", consume(15), None, true),
        ("at the log end", consume(20), None, true),
        (
            "beyond",
            consume(21),
            Some(ErrorCode::OffsetOutOfRange),
            true,
        ),
        ("the right epoch", with_epoch(5), None, false),
        (
            "an older epoch",
            with_epoch(4),
            Some(ErrorCode::FencedLeaderEpoch),
            true,
        ),
        (
            "a newer epoch",
            with_epoch(6),
            Some(ErrorCode::UnknownLeaderEpoch),
            true,
        ),
    ];
    for (story, spec, code, empty) in rows {
        match leader.read(spec) {
            Ok(outcome) => {
                assert_eq!(code, None, "{story}");
                assert_eq!(outcome.records.is_empty(), empty, "{story}");
            }
            Err(error) => assert_eq!(Some(ErrorCode::from(&error)), code, "{story}"),
        }
    }
    leader.follow(2, 6, 2);
    assert_eq!(
        leader.code(consume(0)),
        Some(ErrorCode::NotLeaderOrFollower)
    );
    assert_eq!(
        leader.code(with_epoch(5)),
        Some(ErrorCode::FencedLeaderEpoch)
    );
}

#[test]
fn a_new_leader_does_not_tell_the_end_before_it_knows() {
    let mut leader = Replica::new(1, terms(1));
    leader.lead(5, 1, &[1, 2]);
    leader.append(4).unwrap();
    leader.flush();
    leader.lead(6, 2, &[1, 2]);
    let reader = Reader::Consumer {
        isolation: Isolation::ReadUncommitted,
    };
    let latest = |leader: &mut Replica| {
        leader.step(|it, _, fx| it.list_offset(OffsetQuery::Latest, None, reader, fx))
    };
    let early = latest(&mut leader).unwrap_err();
    assert_eq!(ErrorCode::from(&early), ErrorCode::OffsetNotAvailable);
    leader.fetch_as(2, 4).unwrap();
    let found = latest(&mut leader).unwrap().unwrap();
    assert_eq!(
        (found.offset, found.leader_epoch),
        (Offset(4), LeaderEpoch(6))
    );
}

#[test]
fn a_follower_cuts_what_the_new_leader_never_had() {
    let mut old = Replica::new(1, terms(1));
    let mut new = Replica::new(2, terms(1));
    old.lead(1, 1, &[1, 2]);
    old.append(5).unwrap();
    old.flush();
    new.follow(1, 1, 1);
    for _ in 0..4 {
        exchange(&mut old, &mut new);
    }
    assert_eq!(new.it.log().end_offset(), Offset(5));
    old.append(7).unwrap();
    old.flush();
    new.lead(2, 2, &[2]);
    new.append(1).unwrap();
    new.flush();
    old.follow(2, 2, 2);
    for _ in 0..6 {
        old.seconds += 1;
        exchange(&mut new, &mut old);
    }
    assert_eq!(old.it.log().end_offset(), Offset(6));
    assert_eq!(
        old.it.log().leader_epochs().entries(),
        new.it.log().leader_epochs().entries()
    );
}

/// KAFKA-13141: a divergence is no progress.
#[test]
fn a_diverging_fetch_tells_the_boundary_and_counts_for_nothing() {
    let mut leader = Replica::new(1, terms(1));
    leader.lead(1, 1, &[1, 2]);
    leader.append(5).unwrap();
    leader.lead(4, 2, &[1, 2]);
    leader.append(5).unwrap();
    leader.flush();
    let spec = ReadSpec {
        last_fetched_epoch: Some(LeaderEpoch(3)),
        reader: Reader::Replica {
            broker: BrokerId(2),
            broker_epoch: BrokerEpoch(102),
        },
        ..consume(10)
    };
    let outcome = leader.read(spec).unwrap();
    assert_eq!(outcome.diverging, Some((LeaderEpoch(1), Offset(5))));
    assert!(outcome.records.is_empty());
    assert_eq!(leader.it.high_watermark(), Offset(0));
}

#[test]
fn a_follower_far_behind_starts_where_the_leader_does() {
    let mut leader = Replica::new(1, terms(1));
    let mut follower = Replica::new(2, terms(1));
    leader.lead(1, 1, &[1]);
    leader.append(5).unwrap();
    leader.append(5).unwrap();
    leader.flush();
    leader
        .step(|it, _, fx| it.delete_records(Some(Offset(5)), fx))
        .unwrap();
    follower.follow(1, 1, 1);
    for _ in 0..4 {
        follower.seconds += 1;
        exchange(&mut leader, &mut follower);
    }
    assert_eq!(follower.it.log().start_offset(), Offset(5));
    assert_eq!(follower.it.log().end_offset(), Offset(10));
    assert_eq!(follower.it.high_watermark(), Offset(10));
    let beyond = leader.step(|it, _, fx| it.delete_records(Some(Offset(11)), fx));
    assert_eq!(
        beyond.err().map(|error| ErrorCode::from(&error)),
        Some(ErrorCode::OffsetOutOfRange)
    );
}

/// DeleteRecords may leave a leader's start inside a batch: a follower that begins there gets the whole batch.
#[test]
fn a_follower_may_begin_in_the_middle_of_a_batch() {
    let mut leader = Replica::new(1, terms(1));
    let mut follower = Replica::new(2, terms(1));
    leader.lead(1, 1, &[1]);
    leader.append(5).unwrap();
    leader.append(5).unwrap();
    leader.flush();
    leader
        .step(|it, _, fx| it.delete_records(Some(Offset(7)), fx))
        .unwrap();
    follower.follow(1, 1, 1);
    for _ in 0..4 {
        follower.seconds += 1;
        exchange(&mut leader, &mut follower);
    }
    assert_eq!(follower.it.log().start_offset(), Offset(7));
    assert_eq!(follower.it.log().end_offset(), Offset(10));
    assert_eq!(follower.it.high_watermark(), Offset(10));
}

/// R36: what a leader sent and this log cannot take is no part of it, and nothing else that came with it counts; histories are
/// compared again, and then it goes on.
#[test]
fn a_batch_that_does_not_fit_sends_its_own_partition_back_to_comparing_histories() {
    type Harm = fn(&mut Vec<u8>);
    let rows: [(&str, Harm); 6] = [
        ("a flipped bit", |bytes| {
            *bytes.last_mut().unwrap() ^= 1;
        }),
        ("half a batch", |bytes| bytes.truncate(bytes.len() / 2)),
        ("a gap before it", |bytes| {
            BatchMut::parse(bytes).unwrap().set_base_offset(Offset(4));
        }),
        ("offsets that are here already", |bytes| {
            BatchMut::parse(bytes).unwrap().set_base_offset(Offset(2));
        }),
        ("an epoch that is still to come", |bytes| {
            let epoch = LeaderEpoch(2);
            BatchMut::parse(bytes).unwrap().set_leader_epoch(epoch);
        }),
        ("an epoch that is over", |bytes| {
            let epoch = LeaderEpoch(0);
            BatchMut::parse(bytes).unwrap().set_leader_epoch(epoch);
        }),
    ];
    for (harm, act) in rows {
        let mut leader = Replica::new(1, terms(1));
        let mut follower = Replica::new(2, terms(1));
        leader.lead(1, 1, &[1]);
        leader.append(3).unwrap();
        leader.flush();
        follower.follow(1, 1, 1);
        for _ in 0..2 {
            exchange(&mut leader, &mut follower);
        }
        let place = |one: &Replica| (one.it.log().end_offset().0, one.it.high_watermark().0);
        assert_eq!(place(&follower), (3, 3), "{harm}");
        leader.append(2).unwrap();
        leader.flush();

        let FollowerStep::Fetch { ticket, .. } = follower.it.next_step(now(1)) else {
            panic!("{harm}: it is not fetching");
        };
        let sound = leader.fetch_as(2, 3).unwrap();
        let mut bytes = sound.records.to_vec();
        act(&mut bytes);
        let mut fetched = Fetched {
            records: bytes.into(),
            high_watermark: Offset(5),
            log_start: Offset(0),
            diverging: None,
        };
        follower.step(|it, now, fx| it.on_fetched(&ticket, &fetched, now, fx));
        let done = &follower.last;
        assert!(done.misfit.is_some(), "{harm}: for the log");
        assert!(!done.appended && !done.high_watermark_advanced, "{harm}");
        assert!(done.truncated.is_none() && done.storage_failed.is_none());
        assert_eq!(place(&follower), (3, 3), "{harm}");

        fetched.records = sound.records;
        follower.step(|it, now, fx| it.on_fetched(&ticket, &fetched, now, fx));
        assert_eq!(place(&follower), (3, 3), "{harm}: that question is closed");
        let next = follower.it.next_step(now(2));
        assert!(
            matches!(next, FollowerStep::EpochEnd { epoch, .. } if epoch == LeaderEpoch(1)),
            "{harm}: {next:?}"
        );
        for _ in 0..3 {
            follower.seconds += 1;
            exchange(&mut leader, &mut follower);
        }
        assert_eq!(place(&follower), (5, 5), "{harm}: it goes on");
    }
}

#[test]
fn a_failed_sync_ends_everything_at_once() {
    let mut leader = Replica::new(1, terms(1));
    leader.lead(5, 1, &[1]);
    let appended = leader.append(1).unwrap();
    leader.park(appended.until, 60, "transfer");
    leader.disk.fail_next_sync();
    let job = leader.it.begin_flush().unwrap();
    let result = job.run();
    assert!(result.is_err());
    leader.step(|it, now, fx| it.finish_flush(job, result, now, fx));
    assert!(leader.last.storage_failed.is_some());
    assert_eq!(
        leader.completed,
        vec![("transfer", Some(ErrorCode::KafkaStorageError))]
    );
    let refused = leader.append(1).unwrap_err();
    assert_eq!(ErrorCode::from(&refused), ErrorCode::KafkaStorageError);
    assert_eq!(leader.code(consume(0)), Some(ErrorCode::KafkaStorageError));
}

#[test]
fn a_restarted_leader_never_resumes_its_epoch() {
    let mut leader = Replica::new(1, terms(1));
    leader.lead(5, 1, &[1]);
    leader.append(1).unwrap();
    leader.flush();
    leader.disk.kill();
    let known = Known {
        high_watermark: Offset(1),
        ..Known::default()
    };
    leader.it = Replica::open(&leader.disk, 1, terms(1), known);
    leader.lead(5, 1, &[1]);
    assert!(!leader.it.is_leader());
    leader.lead(6, 2, &[1]);
    assert!(leader.it.is_leader());
    assert_eq!(leader.it.high_watermark(), Offset(1));
}

#[test]
fn a_stale_assignment_is_ignored() {
    let mut leader = Replica::new(1, terms(1));
    leader.lead(5, 3, &[1, 2]);
    leader.follow(2, 4, 2);
    assert!(leader.it.is_leader());
    assert_eq!(leader.proposals, vec![]);
}

/// A replica that sets aside what an unclean election makes it cut off, with 5 records of epoch 5 that the leader has
/// and 4 that it does not.
fn deposed(last_unclean_epoch: Option<i32>, salvages: bool) -> Replica {
    let mut replica = Replica::new(1, terms(1));
    let salvager = Salvager {
        dir: replica.disk.subdirectory("salvage"),
        item_bytes: u64::MAX,
        copy_max: LAG,
        stopwatch: Stopwatch::new(Monotonic::default),
    };
    let disk = replica.disk.clone();
    replica.it = Replica::open(&disk, 1, terms(1), Known::default()).with_salvager(Some(salvager));
    replica.it.set_salvage_policy(SalvagePolicy {
        enable: salvages,
        item_bytes: None,
    });
    replica.lead(5, 1, &[1, 2]);
    replica.append(5).unwrap();
    replica.append(4).unwrap();
    replica.flush();
    let assignment = Assignment {
        last_unclean_epoch: last_unclean_epoch.map(LeaderEpoch),
        ..assignment(Some(2), 7, 3, &[1, 2, 3])
    };
    replica.step(|it, now, fx| it.apply(&assignment, now, fx));
    replica
}

#[test]
fn only_what_an_unclean_election_takes_is_set_aside() {
    let rows = [
        ("never unclean", None, true, false),
        ("unclean now", Some(7), true, true),
        (
            "unclean before, and never followed since",
            Some(6),
            true,
            true,
        ),
        (
            "its own epoch was the unclean one: this cut is clean",
            Some(5),
            true,
            false,
        ),
        ("the topic does not want it", Some(7), false, false),
    ];
    for (name, last_unclean_epoch, salvages, kept) in rows {
        let mut replica = deposed(last_unclean_epoch, salvages);
        let FollowerStep::EpochEnd { ticket, epoch, .. } = replica.it.next_step(now(2)) else {
            panic!("{name}: a new follower compares histories");
        };
        let answer = Some((epoch, Offset(5)));
        replica.step(|it, now, fx| it.on_epoch_end(&ticket, answer, now, fx));
        assert_eq!(replica.it.log().end_offset(), Offset(5), "{name}");
        let unclean = replica.last.truncated.map(|cut| cut.unclean);
        assert_eq!(unclean, Some(kept || !salvages), "{name}");
        match (&replica.last.set_aside, kept) {
            (Some(Aside::Kept(item)), true) => {
                assert_eq!((item.first_offset, item.end_offset), (Offset(5), Offset(9)));
                assert_eq!(Some(item.unclean_epoch.0), last_unclean_epoch, "{name}");
            }
            (None, false) => {}
            (other, _) => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn a_follower_that_begins_anew_sets_all_of_it_aside() {
    let mut replica = deposed(Some(7), true);
    let FollowerStep::EpochEnd { ticket, epoch, .. } = replica.it.next_step(now(2)) else {
        panic!("a new follower compares histories");
    };
    let answer = Some((epoch, Offset(9)));
    replica.step(|it, now, fx| it.on_epoch_end(&ticket, answer, now, fx));
    assert!(replica.last.set_aside.is_none(), "nothing was cut");
    let FollowerStep::Fetch { ticket, .. } = replica.it.next_step(now(2)) else {
        panic!("it fetches");
    };
    let failure = FetchFailure::OutOfRange {
        leader_log_start: Some(Offset(100)),
    };
    replica.step(|it, now, fx| it.on_fetch_error(&ticket, failure, now, fx));
    assert_eq!(replica.it.log().start_offset(), Offset(100));
    let Some(Aside::Kept(item)) = &replica.last.set_aside else {
        panic!("{:?}", replica.last.set_aside);
    };
    assert_eq!((item.first_offset, item.end_offset), (Offset(0), Offset(9)));
}

/// The leader's end lies below where this log begins, so nothing is shared: the whole log goes, and is set aside.
#[test]
fn a_follower_that_begins_anew_below_its_start_sets_all_of_it_aside() {
    let mut replica = deposed(Some(7), true);
    let FollowerStep::EpochEnd { ticket, epoch, .. } = replica.it.next_step(now(2)) else {
        panic!("a new follower compares histories");
    };
    let answer = Some((epoch, Offset(9)));
    replica.step(|it, now, fx| it.on_epoch_end(&ticket, answer, now, fx));
    let deleted_below = Fetched {
        records: Bytes::new(),
        high_watermark: Offset(9),
        log_start: Offset(7),
        diverging: None,
    };
    let diverged = Fetched {
        diverging: Some((epoch, Offset(3))),
        ..deleted_below.clone()
    };
    for fetched in [deleted_below, diverged] {
        let FollowerStep::Fetch { ticket, .. } = replica.it.next_step(now(2)) else {
            panic!("it fetches");
        };
        replica.step(|it, now, fx| it.on_fetched(&ticket, &fetched, now, fx));
    }
    let log = replica.it.log();
    assert_eq!(
        (log.start_offset(), log.end_offset()),
        (Offset(0), Offset(0))
    );
    let Some(Aside::Kept(item)) = &replica.last.set_aside else {
        panic!("{:?}", replica.last.set_aside);
    };
    assert_eq!((item.first_offset, item.end_offset), (Offset(7), Offset(9)));
}

/// Told only that everything up to its own end is deleted, it cannot tell what it shared; later deletions are of shared records.
#[test]
fn a_follower_whose_log_the_leader_has_deleted_sets_it_aside_unless_it_was_compared() {
    for is_compared in [false, true] {
        let mut replica = deposed(Some(7), true);
        if is_compared {
            compare(&mut replica);
        } else if let FollowerStep::EpochEnd { ticket, epoch, .. } = replica.it.next_step(now(2)) {
            let answer = Some((epoch, Offset(9)));
            replica.step(|it, now, fx| it.on_epoch_end(&ticket, answer, now, fx));
        }
        let FollowerStep::Fetch { ticket, .. } = replica.it.next_step(now(3)) else {
            panic!("who has compared fetches");
        };
        let deleted = Fetched {
            records: Bytes::new(),
            high_watermark: Offset(9),
            log_start: Offset(9),
            diverging: None,
        };
        replica.step(|it, now, fx| it.on_fetched(&ticket, &deleted, now, fx));
        assert_eq!(replica.it.log().start_offset(), Offset(9));
        replica.disk.kill();
        let again = Replica::open(&replica.disk, 1, terms(1), Known::default());
        let start = if is_compared { 0 } else { 9 };
        assert_eq!(again.log().start_offset(), Offset(start), "after a restart");
        match (&replica.last.set_aside, is_compared) {
            (Some(Aside::Kept(item)), false) => {
                assert_eq!((item.first_offset, item.end_offset), (Offset(0), Offset(9)));
                assert!(item.cause.contains("deleted"), "{}", item.cause);
            }
            (None, true) => {}
            (other, _) => panic!("compared {is_compared}: {other:?}"),
        }
    }
}

#[test]
fn a_replica_that_leaves_sets_aside_what_it_alone_may_have() {
    let rows = [
        ("never unclean", None, false, false),
        ("unclean after what it has", Some(7), false, true),
        ("it has the history that won", Some(5), false, false),
        (
            "it was compared since, though nothing was written",
            Some(7),
            true,
            false,
        ),
        (
            "it was compared, but unclean again since",
            Some(8),
            true,
            true,
        ),
    ];
    for (name, last_unclean_epoch, is_compared, kept) in rows {
        let mut replica = deposed(Some(7), true);
        if is_compared {
            compare(&mut replica);
        }
        let end = replica.it.log().end_offset();
        let mut may_be_deleted = false;
        replica.step(|it, now, fx| {
            may_be_deleted = it.leave_for_good(last_unclean_epoch.map(LeaderEpoch), now, fx);
        });
        assert!(may_be_deleted, "{name}");
        match (&replica.last.set_aside, kept) {
            (Some(Aside::Kept(item)), true) => {
                assert_eq!((item.first_offset, item.end_offset), (Offset(0), end));
                assert!(item.cause.contains("moved away"), "{}", item.cause);
            }
            (None, false) => {}
            (other, _) => panic!("{name}: {other:?}"),
        }
    }
}

/// The new leader has the log as it is here, and nothing to add.
fn compare(replica: &mut Replica) {
    let FollowerStep::EpochEnd { ticket, epoch, .. } = replica.it.next_step(now(2)) else {
        panic!("a new follower compares histories");
    };
    let end = replica.it.log().end_offset();
    replica.step(|it, now, fx| it.on_epoch_end(&ticket, Some((epoch, end)), now, fx));
    let FollowerStep::Fetch { ticket, .. } = replica.it.next_step(now(3)) else {
        panic!("who has compared fetches");
    };
    let nothing = Fetched {
        records: Bytes::new(),
        high_watermark: Offset(0),
        log_start: Offset(0),
        diverging: None,
    };
    replica.step(|it, now, fx| it.on_fetched(&ticket, &nothing, now, fx));
}

/// Nobody else may have it, so it is not deleted either.
#[test]
fn what_cannot_be_set_aside_may_not_be_deleted() {
    let mut replica = deposed(Some(7), true);
    replica.disk.fail_next_write();
    let mut may_be_deleted = true;
    replica.step(|it, now, fx| {
        may_be_deleted = it.leave_for_good(Some(LeaderEpoch(7)), now, fx);
    });
    assert!(matches!(replica.last.set_aside, Some(Aside::Failed(_))));
    assert!(!may_be_deleted);
}

/// The store is out of order: the replica follows its leader all the same.
#[test]
fn a_cut_does_not_need_the_salvage() {
    let mut replica = deposed(Some(7), true);
    replica.disk.fail_next_write();
    let FollowerStep::EpochEnd { ticket, epoch, .. } = replica.it.next_step(now(2)) else {
        panic!("a new follower compares histories");
    };
    let answer = Some((epoch, Offset(5)));
    replica.step(|it, now, fx| it.on_epoch_end(&ticket, answer, now, fx));
    assert_eq!(replica.it.log().end_offset(), Offset(5));
    assert!(matches!(replica.last.set_aside, Some(Aside::Failed(_))));
    assert!(replica.last.storage_failed.is_none());
}
