//! A restart after damage: a log is written, its process killed, bytes of its files changed, and the log opened again.
//! It opens or says why not; what it hands out is sound and in order; and opening it once more loses nothing in
//! silence.

#![no_main]

use kuorum_protocol::record::{BatchBuilder, Codec, batches};
use kuorum_protocol::{LeaderEpoch, Now, Offset, Timestamp};
use kuorum_storage::{Dir, DirFile, Known, Log, LogConfig, SimDir};
use libfuzzer_sys::fuzz_target;

/// What the first bytes of the input decide.
struct Plan {
    batches: u8,
    records: u8,
    flush_after: u8,
    clean: bool,
    small_segments: bool,
}

fn config(plan: &Plan) -> LogConfig {
    let segment_bytes = if plan.small_segments { 512 } else { 64 * 1024 };
    LogConfig {
        segment_bytes,
        index_interval_bytes: 64,
        ..LogConfig::default()
    }
}

fn write(dir: &SimDir, plan: &Plan) -> Known {
    let (mut log, _) = Log::open(dir.clone(), config(plan), Known::default(), Now::default())
        .expect("an empty directory opens");
    let mut known = Known {
        clean: plan.clean,
        ..Known::default()
    };
    for number in 0..plan.batches {
        let builder = (0..=plan.records).fold(BatchBuilder::new(Codec::None), |batch, record| {
            batch.push(
                Timestamp(i64::from(number)),
                Some(&[record]),
                Some(b"value"),
                &[],
            )
        });
        let mut batch = builder.build().to_vec();
        let epoch = LeaderEpoch(i32::from(number / 3));
        log.append_as_leader(&mut batch, epoch, Now::default())
            .expect("a good batch is taken");
        let last = number + 1 == plan.batches;
        if (number == plan.flush_after || plan.clean && last)
            && let Some(job) = log.begin_flush()
        {
            let result = job.run();
            known.recovery_point = log.finish_flush(job, result).expect("a sound disk flushes");
            known.high_watermark = known.recovery_point;
        }
    }
    known
}

/// Changes files by what the input says: which, where, and what to.
fn damage(dir: &SimDir, mut script: &[u8]) {
    let names = dir.list().expect("the directory exists");
    while let [which, high, low, length, rest @ ..] = script {
        let name = &names[usize::from(*which) % names.len()];
        let (bytes, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        script = rest;
        if name.is_dir {
            continue;
        }
        let file = dir.open(&name.name).expect("a name that was listed opens");
        let at = u64::from(u16::from_be_bytes([*high, *low]));
        if bytes.is_empty() {
            file.set_len(at).expect("a file can be cut");
        } else {
            file.write_at(bytes, at).expect("a file can be written");
        }
    }
}

/// Everything the log hands out is whole, sound and without a gap.
fn read_all(log: &Log<SimDir>) {
    let mut next = log.start_offset();
    while next < log.end_offset() {
        let Ok(bytes) = log.read(next, log.end_offset(), 1024, true) else {
            return;
        };
        assert!(!bytes.is_empty(), "there is more to read at {next}");
        for batch in batches(&bytes) {
            let batch = batch.expect("whole batches");
            assert!(batch.crc_is_valid());
            assert!(batch.base_offset() <= next && next <= batch.last_offset());
            next = batch.next_offset();
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let [batches, records, flush_after, flags, script @ ..] = data else {
        return;
    };
    let plan = Plan {
        batches: 1 + batches % 16,
        records: records % 8,
        flush_after: flush_after % 20,
        clean: flags & 1 != 0,
        small_segments: flags & 2 != 0,
    };
    let dir = SimDir::new(u64::from(*flags));
    let log_dir = dir.subdirectory("topic-0");
    let known = write(&log_dir, &plan);
    dir.kill();
    damage(&log_dir, script);

    let opened = Log::open(log_dir.clone(), config(&plan), known, Now::default());
    let Ok((log, _)) = opened else {
        return;
    };
    assert!(log.start_offset() <= log.end_offset());
    read_all(&log);
    let (start, end) = (log.start_offset(), log.end_offset());
    drop(log);

    dir.kill();
    let recovery_point = Offset(known.recovery_point.0.min(end.0));
    let known = Known {
        recovery_point,
        clean: false,
        ..known
    };
    let again = Log::open(log_dir, config(&plan), known, Now::default());
    let (log, recovery) = again.expect("what opened once opens again");
    assert_eq!(log.start_offset(), start);
    assert!(log.end_offset() <= end);
    // The first opening believed what lies below the recovery point; a later one may look, and then has to say so.
    assert!(log.end_offset() == end || recovery.corruption.is_some());
    read_all(&log);
});
