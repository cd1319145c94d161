//! Stories and properties of the log, told on the lossy twin of the disk.

use std::time::Duration;

use kuorum_protocol::record::{BatchBuilder, Codec};
use kuorum_protocol::{ProducerEpoch, ProducerId, Sequence};
use proptest::prelude::*;

use super::*;
use crate::mark::Marked;
use crate::sim_dir::SimDir;

const EPOCH: LeaderEpoch = LeaderEpoch(1);

fn now(millis: u64) -> Now {
    Now {
        monotonic: Monotonic(Duration::from_millis(millis)),
        wall: Timestamp(millis as i64),
    }
}

fn small_segments() -> LogConfig {
    LogConfig {
        segment_bytes: 2_000,
        index_interval_bytes: 200,
        ..LogConfig::default()
    }
}

fn builder(records: i32, size: usize, fill: u8, timestamp: i64) -> BatchBuilder {
    let mut builder = BatchBuilder::new(Codec::None);
    for at in 0..records {
        builder.append(
            Timestamp(timestamp + i64::from(at)),
            None,
            Some(&vec![fill; size]),
            &[],
        );
    }
    builder
}

fn plain(records: i32, size: usize, fill: u8) -> Vec<u8> {
    builder(records, size, fill, 1_000).build().to_vec()
}

fn produced(id: i64, epoch: i16, sequence: i32, records: i32) -> Vec<u8> {
    builder(records, 10, 7, 1_000)
        .producer(ProducerId(id), ProducerEpoch(epoch), Sequence(sequence))
        .build()
        .to_vec()
}

fn open(dir: &SimDir, config: LogConfig, known: Known) -> (Log<SimDir>, Recovery) {
    Log::open(dir.subdirectory("t-0"), config, known, now(0)).unwrap()
}

fn fresh(dir: &SimDir) -> Log<SimDir> {
    open(dir, small_segments(), Known::default()).0
}

fn flush<D: Dir>(log: &mut Log<D>) -> Offset {
    match log.begin_flush() {
        Some(job) => {
            let result = job.run();
            log.finish_flush(job, result).unwrap()
        }
        None => log.flushed_end(),
    }
}

fn append(log: &mut Log<SimDir>, mut batch: Vec<u8>) -> AppendInfo {
    log.append_as_leader(&mut batch, EPOCH, now(1)).unwrap()
}

fn everything<D: Dir>(log: &Log<D>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut at = log.start_offset();
    while at < log.end_offset() {
        let read = log.read(at, log.end_offset(), 1, true).unwrap();
        let batch = BatchView::parse(&read).unwrap();
        assert!(batch.crc_is_valid());
        at = batch.next_offset();
        bytes.extend_from_slice(&read);
    }
    bytes
}

fn name(offset: i64, extension: &str) -> String {
    file_name(Offset(offset), extension)
}

#[test]
fn what_is_appended_is_read_in_whole_batches() {
    let dir = SimDir::new(1);
    let mut log = fresh(&dir);
    for fill in 0..40 {
        let info = append(&mut log, plain(3, 50, fill));
        assert_eq!(info.first_offset, Offset(i64::from(fill) * 3));
        assert_eq!(info.last_offset, Offset(i64::from(fill) * 3 + 2));
    }
    assert_eq!(log.end_offset(), Offset(120));
    assert!(log.segments().len() > 3);
    for from in 0..120 {
        let bytes = log.read(Offset(from), Offset(120), 1, true).unwrap();
        let batch = BatchView::parse(&bytes).unwrap();
        assert_eq!(batch.size(), bytes.len());
        assert_eq!(batch.base_offset(), Offset(from / 3 * 3));
        assert_eq!(batch.leader_epoch(), EPOCH);
        assert!(batch.crc_is_valid());
    }
    let size = log.read(Offset(0), Offset(120), 1, true).unwrap().len();
    assert_eq!(
        log.read(Offset(0), Offset(120), size * 2 + 5, true)
            .unwrap()
            .len(),
        size * 2
    );
    assert_eq!(
        log.read(Offset(0), Offset(3), 9_999, true).unwrap().len(),
        size
    );
    assert!(
        log.read(Offset(0), Offset(2), 9_999, true)
            .unwrap()
            .is_empty(),
        "it reaches too far"
    );
    assert!(
        log.read(Offset(0), Offset(120), 10, false)
            .unwrap()
            .is_empty()
    );
    assert!(
        log.read(Offset(120), Offset(120), 10, true)
            .unwrap()
            .is_empty()
    );
    let error = log.read(Offset(121), Offset(121), 10, true).unwrap_err();
    assert!(matches!(
        error,
        ReadError::OutOfRange {
            offset: Offset(121),
            ..
        }
    ));
}

#[test]
fn a_flush_covers_what_was_appended_before_it_began() {
    let dir = SimDir::new(1);
    let mut log = fresh(&dir);
    append(&mut log, plain(1, 10, 1));
    assert_eq!(log.flushed_end(), Offset(0));
    let job = log.begin_flush().unwrap();
    append(&mut log, plain(1, 10, 2));
    assert!(log.begin_flush().is_none(), "one at a time");
    let result = job.run();
    assert_eq!(log.finish_flush(job, result).unwrap(), Offset(1));
    assert_eq!(flush(&mut log), Offset(2));
    assert!(log.begin_flush().is_none(), "nothing is dirty");
    dir.crash();
    let known = Known {
        recovery_point: Offset(2),
        ..Known::default()
    };
    let (log, recovery) = open(&dir, small_segments(), known);
    assert_eq!((log.end_offset(), recovery.corruption), (Offset(2), None));
}

#[test]
fn a_truncation_while_a_flush_is_under_way_makes_it_count_for_nothing() {
    let dir = SimDir::new(1);
    let mut log = fresh(&dir);
    append(&mut log, plain(4, 10, 1));
    append(&mut log, plain(4, 10, 2));
    let job = log.begin_flush().unwrap();
    assert_eq!(log.truncate_to(Offset(4)).unwrap(), Offset(4));
    append(&mut log, plain(9, 10, 3));
    let result = job.run();
    assert_eq!(log.finish_flush(job, result).unwrap(), Offset(0));
    assert_eq!(flush(&mut log), Offset(13));
}

#[test]
fn a_log_whose_reset_failed_may_still_be_asked_where_it_ends() {
    let faults: [fn(&SimDir); 2] = [SimDir::fail_next_sync, SimDir::fail_next_write];
    for fail in faults {
        let dir = SimDir::new(1);
        let mut log = fresh(&dir);
        append(&mut log, plain(3, 10, 1));
        flush(&mut log);
        fail(&dir);
        assert!(log.reset_to(Offset(100)).is_err());
        assert!(log.end_offset() >= log.start_offset());
    }
}

#[test]
fn after_a_failed_flush_every_call_fails() {
    let dir = SimDir::new(1);
    let mut log = fresh(&dir);
    append(&mut log, plain(1, 10, 1));
    dir.fail_next_sync();
    let job = log.begin_flush().unwrap();
    let result = job.run();
    assert!(matches!(
        log.finish_flush(job, result),
        Err(LogError::Storage(_))
    ));
    let mut batch = plain(1, 10, 1);
    let appended = log.append_as_leader(&mut batch, EPOCH, now(1));
    assert!(matches!(appended, Err(AppendError::Storage(_))));
    assert!(matches!(
        log.read(Offset(0), Offset(1), 1, true),
        Err(ReadError::Storage(_))
    ));
    assert!(matches!(
        log.truncate_to(Offset(0)),
        Err(LogError::Storage(_))
    ));
    assert!(log.begin_flush().is_none());
    assert!(log.failure().is_some());
}

#[test]
fn a_full_disk_ends_the_log_and_space_and_a_restart_bring_it_back() {
    let dir = SimDir::new(1);
    let mut log = open(
        &dir,
        LogConfig {
            preallocate: false,
            ..small_segments()
        },
        Known::default(),
    )
    .0;
    append(&mut log, plain(1, 10, 1));
    flush(&mut log);
    dir.set_full(true);
    let mut batch = plain(1, 10, 1);
    let appended = log.append_as_leader(&mut batch, EPOCH, now(1));
    assert!(matches!(appended, Err(AppendError::Storage(_))));
    dir.set_full(false);
    let appended = log.append_as_leader(&mut batch, EPOCH, now(1));
    assert!(
        matches!(appended, Err(AppendError::Storage(_))),
        "never retried"
    );
    dir.kill();
    let known = Known {
        recovery_point: Offset(1),
        same_boot: true,
        ..Known::default()
    };
    let (mut log, recovery) = open(&dir, small_segments(), known);
    assert_eq!(recovery.corruption, None);
    assert_eq!(append(&mut log, batch).first_offset, Offset(1));
}

#[test]
fn followers_take_only_what_follows() {
    let dir = SimDir::new(1);
    let mut leader = fresh(&dir.subdirectory("leader"));
    for fill in 0..9 {
        append(&mut leader, plain(2, 30, fill));
    }
    let bytes = everything(&leader);
    let mut follower = fresh(&dir.subdirectory("follower"));
    let info = follower.append_as_follower(&bytes, EPOCH, now(1)).unwrap();
    assert_eq!(
        (info.first_offset, info.last_offset),
        (Offset(0), Offset(17))
    );
    assert_eq!(everything(&follower), bytes);
    assert_eq!(follower.leader_epochs(), leader.leader_epochs());
    assert_eq!(follower.segments(), leader.segments());

    let again = follower
        .append_as_follower(&bytes, EPOCH, now(1))
        .unwrap_err();
    assert!(matches!(
        again,
        AppendError::OutOfSequence {
            expected: Offset(18),
            found: Offset(0)
        }
    ));
    append(&mut leader, plain(1, 30, 9));
    let mut next = leader
        .read(Offset(18), Offset(19), 1, true)
        .unwrap()
        .to_vec();
    let newer = follower
        .append_as_follower(&next, LeaderEpoch(0), now(1))
        .unwrap_err();
    assert!(
        matches!(newer, AppendError::WrongEpoch { .. }),
        "KAFKA-18723"
    );
    *next.last_mut().unwrap() ^= 1;
    let damaged = follower
        .append_as_follower(&next, EPOCH, now(1))
        .unwrap_err();
    assert!(matches!(
        damaged,
        AppendError::Corrupt {
            offset: Offset(18),
            ..
        }
    ));
    let nothing = follower.append_as_follower(&[], EPOCH, now(1)).unwrap();
    assert_eq!((nothing.first_offset, nothing.bytes), (Offset(18), 0));
}

#[test]
fn a_follower_that_begins_inside_a_batch_gets_it_whole() {
    let dir = SimDir::new(1);
    let mut leader = fresh(&dir.subdirectory("leader"));
    append(&mut leader, plain(10, 10, 1));
    append(&mut leader, plain(10, 10, 2));
    leader.advance_start(Offset(4)).unwrap();
    let bytes = leader.read(Offset(4), Offset(20), 9_999, true).unwrap();
    let mut follower = fresh(&dir.subdirectory("follower"));
    follower.reset_to(Offset(4)).unwrap();
    let info = follower.append_as_follower(&bytes, EPOCH, now(1)).unwrap();
    assert_eq!(
        (info.first_offset, info.last_offset),
        (Offset(0), Offset(19))
    );
    assert_eq!(
        (follower.start_offset(), follower.end_offset()),
        (Offset(4), Offset(20))
    );
    assert_eq!(
        follower.read(Offset(4), Offset(20), 9_999, true).unwrap(),
        bytes
    );
    assert!(follower.read(Offset(3), Offset(20), 1, true).is_err());
}

#[test]
fn the_raft_log_wants_the_very_next_offset() {
    let dir = SimDir::new(1);
    let mut log = fresh(&dir);
    let at = |offset| {
        let mut batch = plain(1, 10, 1);
        BatchMut::parse(&mut batch)
            .unwrap()
            .set_base_offset(Offset(offset));
        batch
    };
    assert_eq!(log.append_at(&at(0)).unwrap().last_offset, Offset(0));
    assert_eq!(log.append_at(&at(1)).unwrap().last_offset, Offset(1));
    for wrong in [1, 3] {
        let error = log.append_at(&at(wrong)).unwrap_err();
        assert!(matches!(
            error,
            AppendError::OutOfSequence {
                expected: Offset(2),
                ..
            }
        ));
    }
    log.reset_to(Offset(100)).unwrap();
    assert_eq!(log.append_at(&at(100)).unwrap().last_offset, Offset(100));
    assert_eq!(
        (log.start_offset(), log.end_offset()),
        (Offset(100), Offset(101))
    );
    assert_eq!(log.truncate_to(Offset(100)).unwrap(), Offset(100));
    assert_eq!(
        (log.start_offset(), log.end_offset()),
        (Offset(100), Offset(100))
    );
}

#[test]
fn duplicates_are_answered_and_gaps_refused_across_roll_restart_and_retention() {
    let dir = SimDir::new(1);
    let mut log = fresh(&dir);
    for at in 0..6 {
        append(&mut log, produced(9, 0, at * 2, 2));
    }
    // E1: one of the last five. E2: the sixth is too old. E3: a gap.
    let retry = append(&mut log, produced(9, 0, 4, 2));
    assert!(retry.duplicate && retry.first_offset == Offset(4) && retry.last_offset == Offset(5));
    for sequence in [0, 14] {
        let error = log.append_as_leader(&mut produced(9, 0, sequence, 2), EPOCH, now(1));
        assert!(matches!(
            error,
            Err(AppendError::OutOfOrderSequence {
                expected: Sequence(12),
                ..
            })
        ));
    }
    assert_eq!(log.end_offset(), Offset(12));
    // E6: other data rolls the log, then everything but the last segment goes.
    for _ in 0..40 {
        append(&mut log, plain(1, 200, 1));
    }
    flush(&mut log);
    let expected = log.producers().clone();
    let last = log.segments().last().unwrap().base_offset;
    log.advance_start(last).unwrap();
    let end = log.end_offset();
    drop(log);
    dir.crash();
    let known = Known {
        log_start: last,
        recovery_point: end,
        ..Known::default()
    };
    let (mut log, recovery) = open(&dir, small_segments(), known);
    assert_eq!(recovery.corruption, None);
    assert_eq!(*log.producers(), expected);
    assert!(append(&mut log, produced(9, 0, 10, 2)).duplicate);
    assert!(!append(&mut log, produced(9, 0, 12, 2)).duplicate);
}

/// Old events, or a replay of what was set aside long ago: the records' time says nothing about when they were written.
#[test]
fn a_retry_of_old_records_is_recognised_for_as_long_as_any_other() {
    const HOUR: u64 = 3_600_000;
    let written = 1_000 * HOUR;
    for leads in [true, false] {
        let dir = SimDir::new(1);
        let mut log = fresh(&dir);
        log.set_config(LogConfig {
            retention_ms: None,
            ..small_segments()
        });
        let batch = produced(9, 0, 0, 4);
        if leads {
            log.append_as_leader(&mut batch.clone(), EPOCH, now(written))
                .unwrap();
        } else {
            log.append_as_follower(&batch, EPOCH, now(written)).unwrap();
        }
        append_other(&mut log, written);
        let expect = |log: &mut Log<SimDir>, at: u64, known: bool| {
            let end = log.end_offset();
            log.delete_expired(now(at), end).unwrap();
            assert_eq!(log.producers().get(ProducerId(9)).is_some(), known, "{at}");
        };
        expect(&mut log, written + 23 * HOUR, true);
        // Cut back: what is left is learnt again.
        log.truncate_to(Offset(4)).unwrap();
        expect(&mut log, written + 24 * HOUR, true);
        flush(&mut log);
        // Killed, with no snapshot of it: counted from the start of the process.
        dir.kill();
        let opened = written + 30 * HOUR;
        let (mut log, _) = Log::open(
            dir.subdirectory("t-0"),
            LogConfig {
                retention_ms: None,
                ..small_segments()
            },
            Known::default(),
            now(opened),
        )
        .unwrap();
        expect(&mut log, opened + 23 * HOUR, true);
        let retry = log
            .append_as_leader(&mut batch.clone(), EPOCH, now(opened + 23 * HOUR))
            .unwrap();
        assert!(retry.duplicate);
        expect(&mut log, opened + 25 * HOUR, false);
    }
}

fn append_other(log: &mut Log<SimDir>, at: u64) {
    log.append_as_leader(&mut plain(1, 10, 1), EPOCH, now(at))
        .unwrap();
}

#[test]
fn a_truncated_batch_is_no_duplicate() {
    let dir = SimDir::new(1);
    let mut log = fresh(&dir);
    append(&mut log, produced(9, 0, 0, 1));
    append(&mut log, produced(9, 0, 1, 1));
    log.truncate_to(Offset(1)).unwrap();
    append(&mut log, plain(1, 10, 1));
    let retry = append(&mut log, produced(9, 0, 1, 1));
    assert!(!retry.duplicate && retry.first_offset == Offset(2));
}

#[test]
fn a_producer_snapshot_of_a_truncated_history_is_never_loaded() {
    let dir = SimDir::new(1);
    let mut log = fresh(&dir);
    append(&mut log, plain(4, 10, 1));
    append(&mut log, produced(9, 0, 0, 4));
    log.prepare_checkpoint().unwrap();
    log.truncate_to(Offset(4)).unwrap();
    append(&mut log, plain(4, 10, 1));
    flush(&mut log);
    dir.kill();
    let (log, _) = open(&dir, small_segments(), Known::default());
    assert!(log.producers().is_empty());
}

#[test]
fn records_are_found_by_time() {
    let dir = SimDir::new(1);
    let mut log = fresh(&dir);
    for at in 0..60 {
        let mut batch = builder(3, 40, 1, 1_000 + at * 10).build().to_vec();
        log.append_as_leader(&mut batch, EPOCH, now(1)).unwrap();
    }
    let end = log.end_offset();
    for (wanted, offset) in [
        (0, 0),
        (1_000, 0),
        (1_001, 1),
        (1_003, 3),
        (1_010, 3),
        (1_592, 179),
    ] {
        let found = log
            .offset_for_timestamp(Timestamp(wanted), end)
            .unwrap()
            .unwrap();
        assert_eq!(found.1, Offset(offset), "{wanted}");
    }
    assert_eq!(
        log.offset_for_timestamp(Timestamp(1_593), end).unwrap(),
        None
    );
    assert_eq!(
        log.offset_for_timestamp(Timestamp(1_592), Offset(179))
            .unwrap(),
        None
    );
    assert_eq!(log.max_timestamp(end).unwrap().unwrap().1, Offset(179));
    assert_eq!(
        log.max_timestamp(Offset(30)).unwrap().unwrap(),
        (Timestamp(1_092), Offset(29), EPOCH)
    );
    log.advance_start(Offset(100)).unwrap();
    assert_eq!(
        log.offset_for_timestamp(Timestamp(0), end)
            .unwrap()
            .unwrap()
            .1,
        Offset(100)
    );
}

#[test]
fn with_log_append_time_the_log_says_when() {
    let dir = SimDir::new(1);
    let config = LogConfig {
        timestamp_type: TimestampType::LogAppendTime,
        ..small_segments()
    };
    let mut log = open(&dir, config, Known::default()).0;
    let mut batch = plain(2, 10, 1);
    let info = log.append_as_leader(&mut batch, EPOCH, now(5_000)).unwrap();
    assert_eq!(info.log_append_time, Timestamp(5_000));
    let bytes = log.read(Offset(0), Offset(2), 1, true).unwrap();
    let view = BatchView::parse(&bytes).unwrap();
    assert!(view.crc_is_valid() && view.max_timestamp() == Timestamp(5_000));
}

#[test]
fn retention_takes_whole_segments_below_the_high_watermark() {
    let dir = SimDir::new(1);
    let mut log = fresh(&dir);
    for _ in 0..30 {
        append(&mut log, plain(1, 400, 1));
    }
    let segments = log.segments();
    let config = LogConfig {
        retention_bytes: Some(4_000),
        retention_ms: None,
        ..small_segments()
    };
    log.set_config(config);
    let high_watermark = segments[2].base_offset;
    assert_eq!(
        log.delete_expired(now(2_000), high_watermark).unwrap(),
        high_watermark
    );
    log.delete_expired(now(2_000), log.end_offset()).unwrap();
    assert!(log.size_bytes() >= 4_000 && log.size_bytes() < 6_000);
    assert_eq!(log.leader_epochs().entries()[0].start, log.start_offset());
    log.set_config(LogConfig {
        retention_ms: Some(1_000),
        ..small_segments()
    });
    let end = log.end_offset();
    assert_eq!(
        log.delete_expired(now(10_000), end).unwrap(),
        end,
        "the active one is rolled"
    );
    assert_eq!(log.size_bytes(), 0);
    assert_eq!(append(&mut log, plain(1, 10, 1)).first_offset, end);
}

// ---- restarts ----

#[test]
fn a_clean_restart_reads_next_to_nothing() {
    let dir = SimDir::new(1);
    let mut log = fresh(&dir);
    for at in 0..100 {
        append(&mut log, produced(9, 0, at * 5, 5));
    }
    let (bytes, producers) = (everything(&log), log.producers().clone());
    let end = log.close().unwrap();
    dir.crash();
    let known = Known {
        recovery_point: end,
        high_watermark: end,
        clean: true,
        ..Known::default()
    };
    let (log, recovery) = open(&dir, small_segments(), known);
    assert_eq!((log.end_offset(), log.flushed_end()), (end, end));
    assert_eq!(everything(&log), bytes);
    assert_eq!(*log.producers(), producers);
    assert_eq!((recovery.corruption, recovery.truncated_bytes), (None, 0));
}

#[test]
fn a_restart_reads_only_what_was_not_known_flushed() {
    let dir = SimDir::new(1);
    let config = LogConfig {
        index_interval_bytes: 200,
        ..LogConfig::default()
    };
    let mut log = open(&dir, config.clone(), Known::default()).0;
    for at in 0..400 {
        append(&mut log, produced(9, 0, at, 1));
    }
    flush(&mut log);
    let point = log.prepare_checkpoint().unwrap();
    assert_eq!(point.offset, Offset(400));
    for at in 400..410 {
        append(&mut log, produced(9, 0, at, 1));
    }
    let size = log.size_bytes();
    let producers = log.producers().clone();
    dir.kill();
    let known = Known {
        recovery_point: point.offset,
        same_boot: true,
        ..Known::default()
    };
    let (log, recovery) = open(&dir, config, known);
    assert_eq!(log.end_offset(), Offset(410));
    assert_eq!(*log.producers(), producers);
    assert_eq!(recovery.corruption, None);
    assert!(
        recovery.scanned_bytes < size / 10,
        "{} of {size}",
        recovery.scanned_bytes
    );
}

/// D3: whatever happens to the last batch, the log ends before it, and nothing else is lost.
#[test]
fn a_torn_tail_is_cut() {
    for damage in 1..120 {
        let dir = SimDir::new(1);
        let config = LogConfig {
            preallocate: damage % 2 == 0,
            ..small_segments()
        };
        let mut log = open(&dir, config.clone(), Known::default()).0;
        append(&mut log, plain(2, 20, 1));
        append(&mut log, plain(2, 20, 2));
        let whole = log.size_bytes();
        dir.kill();
        let file = dir.subdirectory("t-0").open(&name(0, "log")).unwrap();
        if damage <= 60 {
            file.set_len(whole - damage).unwrap();
        } else {
            let at = whole - (damage - 60);
            let mut byte = [0];
            file.read_full_at(&mut byte, at).unwrap();
            file.write_at(&[byte[0] ^ 0x55], at).unwrap();
        }
        let (mut log, recovery) = open(
            &dir,
            config,
            Known {
                same_boot: true,
                ..Known::default()
            },
        );
        assert_eq!(log.end_offset(), Offset(2), "{damage}");
        assert_eq!(recovery.torn.unwrap().at, Offset(2));
        assert_eq!(recovery.corruption, None);
        assert!(recovery.truncated_bytes > 0);
        assert_eq!(append(&mut log, plain(1, 10, 3)).first_offset, Offset(2));
    }
}

/// A bad batch below the flushed point is corruption, and its bytes are kept.
#[test]
fn damage_below_the_flushed_point_is_not_a_torn_tail() {
    let rows = [
        (
            "recovery point",
            Known {
                recovery_point: Offset(3),
                ..Known::default()
            },
        ),
        (
            "high watermark",
            Known {
                high_watermark: Offset(3),
                ..Known::default()
            },
        ),
        (
            "sound batches follow, and nothing was lost",
            Known {
                same_boot: true,
                ..Known::default()
            },
        ),
    ];
    for (name_of_row, known) in rows {
        let dir = SimDir::new(1);
        let mut log = fresh(&dir);
        let first = append(&mut log, plain(1, 20, 1)).bytes;
        append(&mut log, plain(1, 20, 2));
        append(&mut log, plain(1, 20, 3));
        dir.kill();
        let files = dir.subdirectory("t-0");
        files
            .open(&name(0, "log"))
            .unwrap()
            .write_at(&[0xff; 4], first as u64 + 70)
            .unwrap();
        let (log, recovery) = open(&dir, small_segments(), known);
        assert_eq!(recovery.corruption.unwrap().at, Offset(1), "{name_of_row}");
        assert_eq!(recovery.torn, None);
        assert_eq!(log.end_offset(), Offset(1));
        let kept = files.read_file(&name(1, "damaged")).unwrap().unwrap();
        assert!(kept.len() as u64 >= recovery.truncated_bytes);
    }
}

/// Deletion never goes beyond the high watermark, so a start that the log does not reach proves that records are missing.
#[test]
fn a_log_that_ends_before_its_start_is_not_what_it_was() {
    let dir = SimDir::new(1);
    let mut log = fresh(&dir);
    append(&mut log, plain(2, 20, 1));
    dir.kill();
    let known = Known {
        log_start: Offset(5),
        ..Known::default()
    };
    let (log, recovery) = open(&dir, small_segments(), known);
    assert_eq!(recovery.corruption.unwrap().at, Offset(5));
    assert_eq!(
        (log.start_offset(), log.end_offset()),
        (Offset(5), Offset(5))
    );
}

/// What is left of a log must not be taken for all of it: it would be trusted, lead, and have everybody delete the rest.
#[test]
fn a_log_without_its_oldest_segment_is_not_what_it_was() {
    let restarts = [("clean", true), ("killed", false)];
    for (name_of_row, clean) in restarts {
        for deleted in [0, 2] {
            let dir = SimDir::new(1);
            let mut log = fresh(&dir);
            for fill in 0..60 {
                append(&mut log, plain(1, 100, fill));
            }
            flush(&mut log);
            let segments = log.segments();
            let start = segments[deleted].base_offset;
            log.advance_start(start).unwrap();
            let end = log.end_offset();
            if clean {
                log.close().unwrap();
            }
            dir.kill();
            let files = dir.subdirectory("t-0");
            files.remove(&name(start.0, "log")).unwrap();
            let known = Known {
                recovery_point: end,
                clean,
                same_boot: true,
                ..Known::default()
            };
            let (mut log, recovery) = open(&dir, small_segments(), known);
            let row = format!("{name_of_row}, the first {deleted} had been deleted");
            assert_eq!(recovery.corruption.unwrap().at, start, "{row}");
            assert_eq!((log.start_offset(), log.end_offset()), (start, start));
            let kept = segments[deleted + 1..].iter();
            for segment in kept {
                let damaged = name(segment.base_offset.0, "damaged");
                assert!(files.read_file(&damaged).unwrap().is_some(), "{row}");
            }
            assert_eq!(append(&mut log, plain(1, 10, 1)).first_offset, start);
        }
    }
}

/// A mark that is damaged leaves the checkpoint to say where the log begins, and no room for a segment to be missing.
#[test]
fn a_damaged_mark_is_not_one_that_never_was() {
    for (lost, corrupt) in [(false, false), (true, true)] {
        let dir = SimDir::new(1);
        let mut log = fresh(&dir);
        for fill in 0..60 {
            append(&mut log, plain(1, 100, fill));
        }
        flush(&mut log);
        let segments = log.segments();
        let start = segments[2].base_offset;
        log.advance_start(start).unwrap();
        let known = Known {
            recovery_point: log.end_offset(),
            log_start: start,
            same_boot: true,
            ..Known::default()
        };
        dir.kill();
        let files = dir.subdirectory("t-0");
        write_atomically(&files, "log-start", b"KULS\0\x01").unwrap();
        if lost {
            files.remove(&name(start.0, "log")).unwrap();
        }
        let (log, recovery) = open(&dir, small_segments(), known);
        assert_eq!(recovery.corruption.is_some(), corrupt, "lost: {lost}");
        assert_eq!(log.start_offset(), start);
        dir.kill();
        let mark = files.read_file("log-start").unwrap().unwrap();
        assert_eq!(mark.len(), 18, "it is written again");
    }
}

/// An older version did not note where a log begins. What is there is believed once, and noted.
#[test]
fn a_log_of_an_older_version_begins_where_its_first_segment_does() {
    let dir = SimDir::new(1);
    let mut log = fresh(&dir);
    for fill in 0..60 {
        append(&mut log, plain(1, 100, fill));
    }
    flush(&mut log);
    let segments = log.segments();
    let known = Known {
        recovery_point: log.end_offset(),
        same_boot: true,
        ..Known::default()
    };
    let files = dir.subdirectory("t-0");
    dir.kill();
    files.remove("log-start").unwrap();
    files.remove(&name(0, "log")).unwrap();
    let (log, recovery) = open(&dir, small_segments(), known);
    assert_eq!(recovery.corruption, None);
    assert_eq!(log.start_offset(), segments[1].base_offset);
    dir.kill();
    files
        .remove(&name(segments[1].base_offset.0, "log"))
        .unwrap();
    let (_, recovery) = open(&dir, small_segments(), known);
    assert_eq!(recovery.corruption.unwrap().at, segments[1].base_offset);
}

/// Neither what an epochs file says too little, nor what it says wrongly, moves the start: it is learnt anew.
#[test]
fn epochs_that_do_not_cover_the_log_are_learnt_again() {
    for text in ["0\n2\n0 8\n1 30\n", "0\n1\n1 30\n", "0\n0\n"] {
        for clean in [true, false] {
            let dir = SimDir::new(1);
            let mut log = fresh(&dir);
            for at in 0..60 {
                log.append_as_leader(&mut plain(1, 100, 1), LeaderEpoch(at / 30), now(1))
                    .unwrap();
            }
            let (bytes, epochs) = (everything(&log), log.leader_epochs().clone());
            let end = log.close().unwrap();
            let files = dir.subdirectory("t-0");
            assert_eq!(
                files.read_file(EPOCHS).unwrap().unwrap(),
                b"0\n2\n0 0\n1 30\n"
            );
            write_atomically(&files, EPOCHS, text.as_bytes()).unwrap();
            let known = Known {
                recovery_point: end,
                clean,
                same_boot: true,
                ..Known::default()
            };
            let (log, recovery) = open(&dir, small_segments(), known);
            assert_eq!(recovery.corruption, None, "{text:?}");
            assert_eq!(log.start_offset(), Offset(0), "{text:?}");
            assert_eq!(everything(&log), bytes, "{text:?}");
            assert_eq!(*log.leader_epochs(), epochs, "{text:?}");
        }
    }
}

/// The power goes, or the process is killed, at every single step of a life in which the start moves in every way, while
/// the log-start checkpoint was never written: what is missing was deleted, and nothing that was deleted comes back.
#[test]
fn whatever_moves_the_start_may_be_cut_short() {
    for killed in [true, false] {
        for steps in 0.. {
            let dir = SimDir::new(steps + 1);
            let mut least = Offset(0);
            dir.cut_power_after(steps);
            let lived = life_of_deletions(&dir, &mut least);
            let whole = !dir.is_without_power();
            if killed {
                dir.kill();
            } else {
                dir.crash();
            }
            let known = Known {
                same_boot: killed,
                ..Known::default()
            };
            let (mut log, recovery) = open(&dir, small_segments(), known);
            let row = format!("cut short after {steps}, killed: {killed}");
            assert_eq!(recovery.corruption, None, "{row}");
            assert!(log.start_offset() >= least, "{row}");
            everything(&log);
            append(&mut log, plain(1, 10, 1));
            if whole {
                lived.unwrap();
                assert!(steps > 200, "{row}: the life is shorter than it was");
                break;
            }
        }
    }
}

/// The same for a log that begins anew, above and below what it has, while the checkpoints tell of all it had and are
/// written again on the way: what a reset leaves when it is cut short is less than they tell of, and is not damage.
#[test]
fn a_reset_may_be_cut_short_whatever_the_checkpoints_say() {
    for to in [2, 20, 500] {
        for killed in [true, false] {
            for steps in 0.. {
                let dir = SimDir::new(steps + 1);
                let mut log = fresh(&dir);
                for fill in 0..40 {
                    append(&mut log, plain(1, 100, fill));
                }
                flush(&mut log);
                assert!(log.segments().len() > 2, "several files");
                log.advance_start(Offset(3)).unwrap();
                let mut told = Known {
                    same_boot: killed,
                    ..Known::default()
                };
                tell(&mut log, &mut told).unwrap();
                let before = (Offset(3), log.end_offset());
                let mut least = Offset(-1);
                dir.cut_power_after(steps);
                let done = begin_anew(log, Offset(to), &mut told, &mut least);
                let whole = !dir.is_without_power();
                if killed {
                    dir.kill();
                } else {
                    dir.crash();
                }
                let (mut log, recovery) = open(&dir, small_segments(), told);
                let row = format!("to {to}, cut short after {steps}, killed: {killed}");
                assert_eq!(recovery.corruption, None, "{row}");
                let (start, end) = (log.start_offset(), log.end_offset());
                let reset = start == Offset(to) && end <= Offset(to + 2);
                let not_yet = start == before.0 && end <= before.1;
                assert!(reset || not_yet, "{row}: [{start}, {end})");
                assert!(end >= least, "{row}: {end} where {least} was durable");
                everything(&log);
                append(&mut log, plain(1, 10, 1));
                if whole {
                    done.unwrap();
                    break;
                }
            }
        }
    }
}

/// A follower begins anew at `to`, and gets the batch whole that holds it.
fn begin_anew(
    mut log: Log<SimDir>,
    to: Offset,
    told: &mut Known,
    least: &mut Offset,
) -> Result<(), LogError> {
    log.reset_to(to)?;
    tell(&mut log, told)?;
    *least = to;
    let mut batch = plain(4, 100, 1);
    let mut patched = BatchMut::parse(&mut batch).unwrap();
    patched.set_base_offset(to.plus(-2).max(Offset(0)));
    patched.set_leader_epoch(EPOCH);
    if log.append_as_follower(&batch, EPOCH, now(1)).is_err() {
        return Ok(());
    }
    tell(&mut log, told)?;
    if let Some(job) = log.begin_flush() {
        let result = job.run();
        *least = log.finish_flush(job, result)?;
    }
    tell(&mut log, told)
}

/// A round of checkpoints, as a broker writes them.
fn tell(log: &mut Log<SimDir>, told: &mut Known) -> Result<(), LogError> {
    let point = log.prepare_checkpoint()?;
    told.recovery_point = point.offset;
    told.high_watermark = point.offset.min(log.end_offset());
    told.log_start = log.start_offset();
    log.checkpointed(point)
}

/// What a log that was made or emptied says of its start is as durable as the log itself.
#[test]
fn a_mark_that_says_the_same_is_made_durable_too() {
    for seed in 0..20 {
        let dir = SimDir::new(seed);
        let mut log = fresh(&dir);
        assert!(
            log.dirty_files.is_empty(),
            "a log that is never written keeps no file open for it"
        );
        log.reset_to(Offset(0)).unwrap();
        dir.crash();
        let files = dir.subdirectory("t-0");
        assert_eq!(
            START.read(&files).unwrap(),
            Marked::At(Offset(0)),
            "reset, seed {seed}"
        );

        let dir = SimDir::new(seed);
        let mut log = fresh(&dir);
        append(&mut log, plain(1, 10, 1));
        flush(&mut log);
        dir.crash();
        let files = dir.subdirectory("t-0");
        assert_eq!(
            START.read(&files).unwrap(),
            Marked::At(Offset(0)),
            "flushed, seed {seed}"
        );
        files.remove("log-start").unwrap();
        let mut log = fresh(&dir);
        log.delete_expired(now(1), Offset(0)).unwrap();
        dir.crash();
        assert_eq!(
            START.read(&files).unwrap(),
            Marked::At(Offset(0)),
            "idle, seed {seed}"
        );
    }
}

fn life_of_deletions(dir: &SimDir, least: &mut Offset) -> Result<(), LogError> {
    let (mut log, _) = Log::open(
        dir.subdirectory("t-0"),
        small_segments(),
        Known::default(),
        now(0),
    )?;
    let fill = |log: &mut Log<SimDir>, count: u8| -> Result<(), LogError> {
        for fill in 0..count {
            let mut batch = plain(2, 200, fill);
            if log.append_as_leader(&mut batch, EPOCH, now(1)).is_err() {
                return Ok(());
            }
        }
        if let Some(job) = log.begin_flush() {
            let result = job.run();
            log.finish_flush(job, result)?;
        }
        Ok(())
    };
    fill(&mut log, 12)?;
    // DeleteRecords, within a segment and beyond one.
    for start in [3, 11] {
        *least = log.advance_start(Offset(start))?;
    }
    log.set_config(LogConfig {
        retention_bytes: Some(2_500),
        retention_ms: None,
        ..small_segments()
    });
    fill(&mut log, 8)?;
    let end = log.end_offset();
    *least = log.delete_expired(now(2_000), end)?;
    // A follower hears of its leader's start: that alone need not last.
    log.raise_start(Offset(30))?;
    log.delete_expired(now(2_000), end)?;
    *least = Offset(30);
    log.raise_start(Offset(36))?;
    // A follower begins anew above, then gets the batch whole that holds its start.
    log.reset_to(Offset(5_000))?;
    *least = Offset(5_000);
    let mut batch = plain(4, 100, 1);
    let mut patched = BatchMut::parse(&mut batch).unwrap();
    patched.set_base_offset(Offset(4_998));
    patched.set_leader_epoch(EPOCH);
    if log.append_as_follower(&batch, EPOCH, now(1)).is_err() {
        return Ok(());
    }
    fill(&mut log, 12)?;
    let end = log.end_offset();
    *least = log.delete_expired(now(2_000), end)?;
    // And below, where its leader's log begins.
    *least = Offset(0);
    log.reset_to(Offset(100))?;
    *least = Offset(100);
    fill(&mut log, 12)?;
    log.advance_start(log.end_offset())?;
    Ok(())
}

/// D4: a flipped bit in a flushed segment is found before it is served.
#[test]
fn damage_in_a_flushed_segment_is_not_served() {
    let dir = SimDir::new(1);
    let mut log = fresh(&dir);
    for fill in 0..40 {
        append(&mut log, plain(1, 100, fill));
    }
    let end = log.close().unwrap();
    dir.kill();
    let files = dir.subdirectory("t-0");
    files
        .open(&name(0, "log"))
        .unwrap()
        .write_at(&[0xff], 400)
        .unwrap();
    let known = Known {
        recovery_point: end,
        clean: true,
        ..Known::default()
    };
    let (log, recovery) = open(&dir, small_segments(), known);
    assert_eq!(recovery.corruption, None, "it was not read");
    assert!(log.read(Offset(0), end, 1, true).is_ok());
    let error = log.read(Offset(2), end, 1, true).unwrap_err();
    assert!(matches!(error, ReadError::Corrupt { offset: Offset(2) }));
    assert!(!log.is_news(Offset(2)), "it was told of, once");
    let told = (10..100).filter(|offset| log.is_news(Offset(*offset)));
    assert_eq!(
        told.count(),
        TOLD_AT_MOST - 1,
        "what is remembered has a bound"
    );
    let until_damage = log.read(Offset(0), end, 9_999, true).unwrap();
    assert_eq!(batches(&until_damage).count(), 2);
    assert!(log.read(Offset(20), end, 1, true).is_ok());
}

/// D5: everything beside the log itself can be lost or zeroed.
#[test]
fn indexes_epochs_and_snapshots_are_rebuilt() {
    for clean in [true, false] {
        for zeroed in [true, false] {
            let dir = SimDir::new(1);
            let mut log = fresh(&dir);
            for at in 0..100 {
                log.append_as_leader(&mut produced(9, 0, at, 1), LeaderEpoch(at / 30), now(1))
                    .unwrap();
            }
            let expected = (
                everything(&log),
                log.producers().clone(),
                log.leader_epochs().clone(),
                log.segments(),
            );
            let end = log.close().unwrap();
            let files = dir.subdirectory("t-0");
            let victims: Vec<crate::dir::Entry> = files
                .list()
                .unwrap()
                .into_iter()
                .filter(|entry| !entry.name.ends_with(".log"))
                .collect();
            assert!(victims.len() > 6);
            for victim in victims {
                if zeroed {
                    let file = files.open(&victim.name).unwrap();
                    file.write_at(&vec![0; file.len().unwrap() as usize], 0)
                        .unwrap();
                } else {
                    files.remove(&victim.name).unwrap();
                }
                let known = Known {
                    recovery_point: end,
                    clean,
                    same_boot: true,
                    ..Known::default()
                };
                let (log, recovery) = open(&dir, small_segments(), known);
                assert_eq!(recovery.corruption, None, "{}", victim.name);
                let found = (
                    everything(&log),
                    log.producers().clone(),
                    log.leader_epochs().clone(),
                    log.segments(),
                );
                assert_eq!(
                    found, expected,
                    "{} zeroed={zeroed} clean={clean}",
                    victim.name
                );
                let time = log
                    .offset_for_timestamp(Timestamp(0), end)
                    .unwrap()
                    .unwrap();
                assert_eq!(time.1, Offset(0));
                log.close().unwrap();
            }
        }
    }
}

/// D8: a marker that says "clean" over files that are older than it.
#[test]
fn a_clean_marker_over_an_older_file_is_tolerated_and_told() {
    let dir = SimDir::new(1);
    let mut log = fresh(&dir);
    append(&mut log, plain(1, 50, 1));
    let older = log.size_bytes();
    append(&mut log, plain(1, 50, 2));
    let end = log.close().unwrap();
    dir.subdirectory("t-0")
        .open(&name(0, "log"))
        .unwrap()
        .set_len(older)
        .unwrap();
    let known = Known {
        recovery_point: end,
        high_watermark: end,
        clean: true,
        ..Known::default()
    };
    let (log, recovery) = open(&dir, small_segments(), known);
    assert_eq!(log.end_offset(), Offset(1));
    assert_eq!(recovery.corruption.unwrap().at, Offset(1));
}

#[test]
fn a_recovery_point_from_before_a_truncation_is_not_believed() {
    for seed in 0..60 {
        let dir = SimDir::new(seed);
        let mut log = fresh(&dir);
        for fill in 0..20 {
            append(&mut log, plain(1, 100, fill));
        }
        flush(&mut log);
        let point = log.prepare_checkpoint().unwrap().offset;
        assert_eq!(log.truncate_to(Offset(5)).unwrap(), Offset(5));
        for fill in 20..40 {
            let mut batch = plain(1, 100, fill);
            log.append_as_leader(&mut batch, LeaderEpoch(2), now(1))
                .unwrap();
        }
        dir.crash();
        let known = Known {
            recovery_point: point,
            ..Known::default()
        };
        let (log, recovery) = open(&dir, small_segments(), known);
        assert_eq!(recovery.corruption, None, "seed {seed}");
        assert!(log.end_offset() >= Offset(5));
        let bytes = everything(&log);
        for batch in batches(&bytes[..]).skip(5) {
            assert_eq!(batch.unwrap().leader_epoch(), LeaderEpoch(2), "seed {seed}");
        }
    }
}

/// D7, D10: the power goes at every single step of a life with rolls and a truncation, and again during recovery.
#[test]
fn the_power_may_go_at_any_step() {
    for steps in 0..220 {
        for again in [None, Some(steps % 7)] {
            let dir = SimDir::new(steps + 1);
            let mut flushed: Vec<u8> = Vec::new();
            dir.cut_power_after(steps);
            let _ = life(&dir, &mut flushed);
            dir.crash();
            if let Some(again) = again {
                dir.cut_power_after(again);
                let _ = Log::open(
                    dir.subdirectory("t-0"),
                    small_segments(),
                    Known::default(),
                    now(0),
                );
                dir.crash();
            }
            let (log, recovery) = open(&dir, small_segments(), Known::default());
            assert_eq!(
                recovery.corruption, None,
                "power gone after {steps}, then {again:?}"
            );
            let found = everything(&log);
            assert!(
                found.starts_with(&flushed),
                "power gone after {steps}, then {again:?}"
            );
        }
    }
}

fn life(dir: &SimDir, flushed: &mut Vec<u8>) -> Result<(), LogError> {
    let (mut log, _) = Log::open(
        dir.subdirectory("t-0"),
        small_segments(),
        Known::default(),
        now(0),
    )?;
    let mut written = Vec::new();
    for fill in 0..30 {
        if fill == 17 {
            // The caller knows that what it cuts is promised to nobody.
            let end = Offset(11);
            let keep: usize = batches(&written)
                .map(|batch| batch.unwrap())
                .filter(|batch| batch.next_offset() <= end)
                .map(|batch| batch.size())
                .sum();
            written.truncate(keep);
            flushed.truncate(keep);
            log.truncate_to(end)?;
        }
        let epoch = LeaderEpoch(if fill < 17 { 1 } else { 2 });
        let mut batch = plain(1, 150, fill);
        if log.append_as_leader(&mut batch, epoch, now(1)).is_err() {
            return Ok(());
        }
        written.extend_from_slice(&batch);
        if fill % 3 == 0
            && let Some(job) = log.begin_flush()
        {
            let covers = written.clone();
            let result = job.run();
            log.finish_flush(job, result)?;
            *flushed = covers;
        }
    }
    Ok(())
}

// ---- the model ----

#[derive(Clone, Debug)]
enum Step {
    Append {
        records: i32,
        size: usize,
        producer: Option<i64>,
    },
    Flush,
    BeginFlush,
    FinishFlush,
    Truncate(u8),
    AdvanceStart(u8),
    RaiseStart(u8),
    DeleteRaised,
    Reset(u8),
    NewEpoch,
    Checkpoint,
    Crash,
    Kill,
    Close,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let append = (1..5i32, 1..400usize, prop::option::weighted(0.5, 1..4i64)).prop_map(
        |(records, size, producer)| Step::Append {
            records,
            size,
            producer,
        },
    );
    let step = prop_oneof![
        20 => append,
        5 => Just(Step::Flush),
        2 => Just(Step::BeginFlush),
        2 => Just(Step::FinishFlush),
        2 => any::<u8>().prop_map(Step::Truncate),
        1 => any::<u8>().prop_map(Step::AdvanceStart),
        1 => any::<u8>().prop_map(Step::RaiseStart),
        1 => Just(Step::DeleteRaised),
        1 => any::<u8>().prop_map(Step::Reset),
        2 => Just(Step::NewEpoch),
        2 => Just(Step::Checkpoint),
        2 => Just(Step::Crash),
        1 => Just(Step::Kill),
        1 => Just(Step::Close),
    ];
    prop::collection::vec(step, 1..80)
}

/// What the log must be: batches with their offsets, and how many of them are durable for certain.
struct Model {
    dir: SimDir,
    log: Option<Log<SimDir>>,
    job: Option<(FlushJob<SimDir>, Offset)>,
    batches: Vec<Vec<u8>>,
    start: Offset,
    /// What outlasts a power cut of it.
    noted_start: Offset,
    durable: Offset,
    epoch: LeaderEpoch,
    sequences: std::collections::BTreeMap<i64, i32>,
    checkpoint: Offset,
    /// What the log-start checkpoint says: never more than the log knows itself.
    start_checkpoint: Offset,
    config: LogConfig,
}

impl Model {
    fn new(seed: u64) -> Self {
        let dir = SimDir::new(seed);
        let config = LogConfig {
            preallocate: !seed.is_multiple_of(3),
            ..small_segments()
        };
        let log = Some(open(&dir, config.clone(), Known::default()).0);
        Self {
            dir,
            log,
            job: None,
            batches: Vec::new(),
            start: Offset(0),
            noted_start: Offset(0),
            durable: Offset(0),
            epoch: LeaderEpoch(0),
            sequences: std::collections::BTreeMap::new(),
            checkpoint: Offset(0),
            start_checkpoint: Offset(0),
            config,
        }
    }

    fn log(&mut self) -> &mut Log<SimDir> {
        self.log.as_mut().unwrap()
    }

    fn cut_model(&mut self, end: Offset) {
        self.batches
            .retain(|batch| BatchView::parse(batch).unwrap().next_offset() <= end);
        self.relearn_sequences();
    }

    fn relearn_sequences(&mut self) {
        let known: Vec<(i64, i32)> = self
            .log()
            .producers()
            .iter()
            .filter_map(|(id, producer)| Some((id.0, producer.last_sequence()?.plus(1).0)))
            .collect();
        self.sequences = known.into_iter().collect();
    }

    fn run(&mut self, step: &Step) {
        match step {
            Step::Append {
                records,
                size,
                producer,
            } => {
                let fill = self.batches.len() as u8;
                let mut builder = builder(*records, *size, fill, 1_000 + self.batches.len() as i64);
                if let Some(id) = producer {
                    let next = self.sequences.entry(*id).or_default();
                    builder = builder.producer(ProducerId(*id), ProducerEpoch(0), Sequence(*next));
                    *next += records;
                }
                let mut batch = builder.build().to_vec();
                let epoch = self.epoch;
                let end = self.log().end_offset();
                let info = self
                    .log()
                    .append_as_leader(&mut batch, epoch, now(1))
                    .unwrap();
                assert!(!info.duplicate);
                assert_eq!(info.first_offset, end);
                self.batches.push(batch);
            }
            Step::Flush => {
                if self.job.is_none() {
                    self.durable = flush(self.log());
                    let end = self.log().end_offset();
                    assert_eq!(self.durable, end);
                }
            }
            Step::BeginFlush => {
                if let Some(job) = self.log().begin_flush() {
                    let upto = job.upto();
                    self.job = Some((job, upto));
                }
            }
            Step::FinishFlush => {
                if let Some((job, _)) = self.job.take() {
                    let result = job.run();
                    self.durable = self.log().finish_flush(job, result).unwrap();
                }
            }
            Step::Truncate(at) => {
                let (start, end) = (self.start.0, self.log().end_offset().0);
                let at = Offset(start + (end - start) * i64::from(*at) / 255);
                let new_end = self.log().truncate_to(at).unwrap();
                assert!(new_end <= at.max(self.start));
                self.durable = self.durable.min(new_end);
                if new_end <= self.start && at < Offset(end) {
                    // The log is empty; what lay below its start is gone too.
                    self.batches.clear();
                    self.noted_start = self.start;
                }
                self.cut_model(new_end);
                self.epoch = self.epoch.next();
            }
            Step::AdvanceStart(at) => {
                let (start, end) = (self.start.0, self.durable.0.max(self.start.0));
                let at = Offset(start + (end - start) * i64::from(*at) / 255);
                self.start = self.log().advance_start(at).unwrap();
                self.noted_start = self.start;
            }
            Step::RaiseStart(at) => {
                let (start, end) = (self.start.0, self.durable.0.max(self.start.0));
                let at = Offset(start + (end - start) * i64::from(*at) / 255);
                self.start = self.log().raise_start(at).unwrap();
            }
            Step::DeleteRaised => {
                let high_watermark = self.durable.max(self.start);
                let start = self.log().delete_expired(now(1), high_watermark).unwrap();
                assert_eq!(start, self.start, "nothing has expired");
                self.noted_start = start;
            }
            Step::Reset(ahead) => {
                let at = self
                    .log()
                    .end_offset()
                    .plus(i64::from(*ahead) - 100)
                    .max(Offset(0));
                self.log().reset_to(at).unwrap();
                self.start = at;
                self.noted_start = at;
                self.durable = at;
                self.batches.clear();
                self.sequences.clear();
                self.epoch = self.epoch.next();
            }
            Step::NewEpoch => {
                self.epoch = self.epoch.next();
                let epoch = self.epoch;
                let end = self.log().end_offset();
                self.log().assign_epoch(epoch, end);
            }
            Step::Checkpoint => {
                let point = self.log().prepare_checkpoint().unwrap();
                self.checkpoint = point.offset;
                self.start_checkpoint = self.start;
                self.log().checkpointed(point).unwrap();
            }
            Step::Crash => {
                self.dir.crash();
                self.reopen(false, false);
            }
            Step::Kill => {
                self.dir.kill();
                let end = self.log().end_offset();
                self.reopen(false, true);
                assert_eq!(
                    self.log().end_offset(),
                    end,
                    "a killed process loses nothing"
                );
            }
            Step::Close => {
                let end = self.log.take().unwrap().close().unwrap();
                self.durable = end;
                self.checkpoint = end;
                self.start_checkpoint = self.start;
                self.noted_start = self.start;
                self.dir.crash();
                self.reopen(true, false);
                assert_eq!(self.log().end_offset(), end);
            }
        }
        self.check();
    }

    fn reopen(&mut self, clean: bool, same_boot: bool) {
        self.job = None;
        let known = Known {
            log_start: self.start_checkpoint,
            recovery_point: self.checkpoint,
            high_watermark: self.start,
            clean,
            same_boot,
        };
        let (log, recovery) = open(&self.dir, self.config.clone(), known);
        assert_eq!(recovery.corruption, None);
        let end = log.end_offset();
        assert!(
            end >= self.durable,
            "flushed to {}, found {end}",
            self.durable
        );
        assert_eq!(log.flushed_end(), end);
        let start = log.start_offset();
        assert!(
            start >= self.noted_start && start <= self.start,
            "noted {}, raised to {}, found {start}",
            self.noted_start,
            self.start
        );
        (self.start, self.noted_start) = (start, start);
        self.log = Some(log);
        self.durable = end;
        self.cut_model(end);
        // A restarted leader never goes on in its epoch.
        self.epoch = self.epoch.next();
    }

    fn check(&mut self) {
        let start = self.start;
        let log = self.log.as_ref().unwrap();
        assert_eq!(log.start_offset(), start);
        assert_eq!(log.flushed_end(), self.durable);
        let visible = self
            .batches
            .iter()
            .filter(|batch| BatchView::parse(batch).unwrap().next_offset() > start);
        let expected: Vec<u8> = visible.flatten().copied().collect();
        assert_eq!(everything(log), expected);
    }

    /// Producers and epochs are what a replay of the batches makes of them.
    fn check_replay(&mut self) {
        let mut states = ProducerStates::new();
        let log = self.log.as_ref().unwrap();
        for bytes in &self.batches {
            states.apply(&BatchView::parse(bytes).unwrap(), now(1).wall);
        }
        for (id, producer) in states.iter() {
            assert_eq!(log.producers().get(id), Some(producer));
        }
        for bytes in &self.batches {
            let batch = BatchView::parse(bytes).unwrap();
            if batch.base_offset() >= self.start {
                let known = log.leader_epochs().epoch_at(batch.base_offset());
                assert_eq!(known, Some(batch.leader_epoch()));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn everything_flushed_survives_and_nothing_is_invented(seed in any::<u64>(), steps in steps()) {
        let mut model = Model::new(seed);
        for step in &steps {
            model.run(step);
        }
        model.check_replay();
    }
}

#[test]
fn a_log_that_is_reset_downwards_forgets_its_recovery_point() {
    for seed in 0..20 {
        let mut model = Model::new(seed);
        for step in [
            Step::Reset(101),
            Step::Checkpoint,
            Step::Reset(0),
            Step::Crash,
        ] {
            model.run(&step);
        }
        // The same while a flush is under way that never ends.
        let mut model = Model::new(seed);
        for step in [
            Step::Append {
                records: 1,
                size: 1,
                producer: None,
            },
            Step::BeginFlush,
            Step::Reset(100),
            Step::Checkpoint,
            Step::Reset(0),
            Step::Crash,
        ] {
            model.run(&step);
        }
    }
}

/// The files that Kafka's tools would find, to the byte where the bytes are Kafka's.
#[test]
fn the_layout_on_disk() {
    let dir = SimDir::new(1);
    let mut log = fresh(&dir);
    for at in 0..16 {
        let mut batch = builder(2, 100, 1, 1_000 + at * 10).build().to_vec();
        log.append_as_leader(&mut batch, LeaderEpoch(at as i32 / 10), now(1))
            .unwrap();
    }
    let size = log.read(Offset(0), Offset(2), 1, true).unwrap().len() as u32;
    let bytes = everything(&log);
    log.close().unwrap();
    let files = dir.subdirectory("t-0");
    let names: Vec<String> = files
        .list()
        .unwrap()
        .into_iter()
        .map(|entry| entry.name)
        .collect();
    assert_eq!(
        names,
        [
            "00000000000000000000.index",
            "00000000000000000000.log",
            "00000000000000000000.timeindex",
            "00000000000000000014.index",
            "00000000000000000014.log",
            "00000000000000000014.snapshot",
            "00000000000000000014.timeindex",
            "00000000000000000028.index",
            "00000000000000000028.log",
            "00000000000000000028.snapshot",
            "00000000000000000028.timeindex",
            "00000000000000000032.snapshot",
            "leader-epoch-checkpoint",
            "log-start",
        ]
    );
    let read = |name: &str| files.read_file(name).unwrap().unwrap();
    let logs = [
        "00000000000000000000.log",
        "00000000000000000014.log",
        "00000000000000000028.log",
    ];
    assert_eq!(
        logs.map(read).concat(),
        bytes,
        "batches and nothing else, no reserved space"
    );
    // 279 bytes a batch, an entry every 200: each batch but the first, by its last offset and position.
    let index: Vec<u8> = (1..7u32)
        .flat_map(|at| [(at * 2 + 1).to_be_bytes(), (at * size).to_be_bytes()].concat())
        .collect();
    assert_eq!(read("00000000000000000000.index"), index);
    let times: Vec<u8> = (1..7u32)
        .flat_map(|at| {
            let timestamp = i64::from(1_001 + at * 10).to_be_bytes();
            [timestamp.as_slice(), &(at * 2 + 1).to_be_bytes()].concat()
        })
        .collect();
    assert_eq!(read("00000000000000000000.timeindex"), times);
    assert_eq!(read("leader-epoch-checkpoint"), b"0\n2\n0 0\n1 20\n");
    assert_eq!(read("00000000000000000032.snapshot")[..6], *b"KUPS\0\x02");
}

/// Neither field is checked anew at a start that trusts what was flushed, and the first is not even in the checksum.
#[test]
fn a_batch_whose_place_was_changed_is_refused_and_not_passed_over() {
    const BASE_OFFSET: u64 = 0;
    const LAST_OFFSET_DELTA: u64 = 23;
    for (field, bytes) in [
        (BASE_OFFSET, &9_i64.to_be_bytes()[..]),
        (BASE_OFFSET, &(-9_i64).to_be_bytes()[..]),
        (LAST_OFFSET_DELTA, &900_i32.to_be_bytes()[..]),
        (LAST_OFFSET_DELTA, &(-1_i32).to_be_bytes()[..]),
    ] {
        let dir = SimDir::new(1);
        let mut log = fresh(&dir);
        for _ in 0..40 {
            append(&mut log, plain(2, 100, 1));
        }
        let end = flush(&mut log);
        drop(log);
        dir.kill();
        let file = dir
            .subdirectory("t-0")
            .open("00000000000000000000.log")
            .unwrap();
        file.write_at(bytes, field).unwrap();
        let known = Known {
            recovery_point: end,
            same_boot: true,
            ..Known::default()
        };
        let (log, recovery) = open(&dir, small_segments(), known);
        assert_eq!(recovery.corruption, None, "it was not read");
        let read = log.read(Offset(0), log.end_offset(), 1024, true);
        assert!(
            matches!(read, Err(ReadError::Corrupt { .. })),
            "{bytes:?} at {field}: {read:?}"
        );
    }
}
