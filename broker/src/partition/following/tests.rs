//! What a follower does to its disk when its leader's log begins higher.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kuorum_protocol::record::{BatchBuilder, BatchMut, Codec};
use kuorum_protocol::{BrokerEpoch, BrokerId, PartitionEpoch, Timestamp, TopicId};
use kuorum_replication::{Assignment, Standing};
use kuorum_storage::{Known, Log, LogConfig, SimDir};

use super::*;
use crate::partition::{Identity, Terms};

const LEADER_EPOCH: LeaderEpoch = LeaderEpoch(1);

fn now(seconds: u64) -> Now {
    Now::default() + Duration::from_secs(seconds)
}

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 500,
        ..LogConfig::default()
    }
}

fn open(disk: &SimDir, known: Known) -> Log<SimDir> {
    let dir = disk.subdirectory("telemetry-0");
    Log::open(dir, config(), known, now(0)).unwrap().0
}

/// A follower of broker 1 that has so many records, each in a batch of its own, all of them flushed.
fn follower(disk: &SimDir, records: i64) -> Partition<SimDir, ()> {
    let mut log = open(disk, Known::default());
    for at in 0..records {
        let batch = BatchBuilder::new(Codec::None).push(Timestamp(1), None, Some(b"a value"), &[]);
        let mut bytes = batch.build().to_vec();
        let mut patched = BatchMut::parse(&mut bytes).unwrap();
        patched.set_base_offset(Offset(at));
        patched.set_leader_epoch(LEADER_EPOCH);
        log.append_as_follower(&bytes, LEADER_EPOCH, now(1))
            .unwrap();
    }
    let job = log.begin_flush().unwrap();
    let result = job.run();
    log.finish_flush(job, result).unwrap();
    let identity = Identity {
        topic: "telemetry".into(),
        topic_id: TopicId::default(),
        index: 0,
        me: BrokerId(2),
    };
    let mut follower = Partition::new(identity, log, Terms::default(), Offset(records));
    let standing = Standing {
        broker_epoch: BrokerEpoch(100),
        may_join: true,
    };
    let brokers = [BrokerId(1), BrokerId(2)];
    let assignment = Assignment {
        leader: Some(BrokerId(1)),
        leader_epoch: LEADER_EPOCH,
        partition_epoch: PartitionEpoch(1),
        replicas: brokers.to_vec(),
        isr: brokers.into_iter().collect(),
        elr: BTreeSet::new(),
        standing: brokers
            .into_iter()
            .map(|id| (id, standing))
            .collect::<BTreeMap<_, _>>(),
        ..Assignment::default()
    };
    follower.apply(&assignment, now(1), &mut Effects::default());
    if let FollowerStep::EpochEnd { ticket, epoch, .. } = follower.next_step(now(2)) {
        let answer = Some((epoch, Offset(records)));
        follower.on_epoch_end(&ticket, answer, now(2), &mut Effects::default());
    }
    follower
}

/// The leader has nothing new, and its log begins at `start`.
fn hears_of_start(follower: &mut Partition<SimDir, ()>, start: i64) {
    let FollowerStep::Fetch { ticket, .. } = follower.next_step(now(3)) else {
        panic!("who has compared fetches");
    };
    let nothing = Fetched {
        records: Bytes::new(),
        high_watermark: ticket.offset,
        log_start: Offset(start),
        diverging: None,
    };
    follower.on_fetched(&ticket, &nothing, now(3), &mut Effects::default());
    assert_eq!(follower.log().start_offset(), Offset(start));
}

/// One task fetches for all partitions of a leader: it must not wait for the disk once for each whose retention has moved.
#[test]
fn a_start_that_rises_with_the_leaders_waits_for_no_disk() {
    let disk = SimDir::new(7);
    let mut follower = follower(&disk, 60);
    let syncs = disk.sync_count();
    let segments = follower.log().segments().len();
    for start in 1..50 {
        hears_of_start(&mut follower, start);
    }
    assert_eq!(disk.sync_count(), syncs, "no disk was waited for");
    assert_eq!(
        follower.log().segments().len(),
        segments,
        "nothing was deleted"
    );
    let start = follower.delete_expired(now(4), &mut Effects::default());
    assert_eq!(start, Offset(49));
    assert!(disk.sync_count() > syncs);
    let first = follower.log().segments()[0].base_offset;
    assert!(
        first > Offset(40),
        "the segments below go with retention: {first}"
    );
}

/// What was heard is heard again after a restart; what was deleted stays deleted.
#[test]
fn a_start_that_rose_outlasts_a_power_cut_once_something_is_deleted() {
    for seed in 0..20 {
        for deleted in [false, true] {
            let disk = SimDir::new(seed);
            let mut follower = follower(&disk, 60);
            hears_of_start(&mut follower, 41);
            if deleted {
                follower.delete_expired(now(4), &mut Effects::default());
            }
            drop(follower);
            disk.crash();
            let known = Known {
                recovery_point: Offset(60),
                high_watermark: Offset(60),
                ..Known::default()
            };
            let dir = disk.subdirectory("telemetry-0");
            let (log, recovery) = Log::open(dir, config(), known, now(0)).unwrap();
            assert_eq!(recovery.corruption, None, "seed {seed}, deleted: {deleted}");
            let start = if deleted { 41 } else { 0 };
            let bounds = (log.start_offset(), log.end_offset());
            assert_eq!(bounds, (Offset(start), Offset(60)), "seed {seed}");
        }
    }
}

/// A log that was begun anew at its leader's start holds nothing that says so to the next, who was elected uncleanly and
/// may have records before it.
#[test]
fn where_an_empty_log_begins_is_not_kept_over_an_unclean_election() {
    let disk = SimDir::new(7);
    let mut follower = follower(&disk, 10);
    let FollowerStep::Fetch { ticket, .. } = follower.next_step(now(3)) else {
        panic!("who has compared fetches");
    };
    let beyond = FetchFailure::OutOfRange {
        leader_log_start: Some(Offset(50)),
    };
    follower.on_fetch_error(&ticket, beyond, now(3), &mut Effects::default());
    assert_eq!(follower.log().start_offset(), Offset(50));
    let next = LeaderEpoch(LEADER_EPOCH.0 + 1);
    for (isr, expected) in [(&[1, 2][..], 50), (&[1], 0)] {
        let assignment = Assignment {
            leader_epoch: LeaderEpoch(next.0 + i32::from(isr.len() == 1)),
            last_unclean_epoch: Some(next),
            isr: isr.iter().copied().map(BrokerId).collect(),
            ..follower.known.clone()
        };
        follower.apply(&assignment, now(4), &mut Effects::default());
        let step = follower.next_step(now(4));
        assert!(
            matches!(step, FollowerStep::Fetch { offset, log_start, .. }
                if (offset, log_start) == (Offset(expected), Offset(expected))),
            "{isr:?}: {step:?}"
        );
    }
}

/// A leader answers DeleteRecords with what lasts, also where it had only heard of it while it followed.
#[test]
fn delete_records_makes_a_start_last_that_was_only_heard_of() {
    for seed in 0..20 {
        let disk = SimDir::new(seed);
        let mut replica = follower(&disk, 60);
        hears_of_start(&mut replica, 41);
        let assignment = Assignment {
            leader: Some(BrokerId(2)),
            leader_epoch: LeaderEpoch(2),
            partition_epoch: PartitionEpoch(2),
            replicas: vec![BrokerId(2)],
            isr: [BrokerId(2)].into(),
            ..Assignment::default()
        };
        replica.apply(&assignment, now(4), &mut Effects::default());
        let start = replica.delete_records(Some(Offset(20)), &mut Effects::default());
        assert_eq!(start.unwrap(), Offset(41));
        drop(replica);
        disk.crash();
        let log = open(&disk, Known::default());
        assert_eq!(log.start_offset(), Offset(41), "seed {seed}");
    }
}
