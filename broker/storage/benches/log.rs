//! What a batch costs at the log: appended into the page cache, appended and flushed, read back.

use std::hint::black_box;
use std::time::Duration;

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use kuorum_protocol::record::{BatchBuilder, Codec};
use kuorum_protocol::{LeaderEpoch, Monotonic, Now, Offset, Timestamp};
use kuorum_storage::{Known, Log, LogConfig, RealDir};

const NOW: Now = Now {
    monotonic: Monotonic(Duration::ZERO),
    wall: Timestamp(1_700_000_000_000),
};

fn batch() -> Bytes {
    let mut builder = BatchBuilder::new(Codec::None);
    for i in 0..64 {
        builder.append(
            Timestamp(NOW.wall.0 + i),
            Some(b"user_10"),
            Some(&[b'x'; 1024]),
            &[],
        );
    }
    builder.build()
}

fn open(folder: &tempfile::TempDir) -> Log<RealDir> {
    let dir = RealDir::new(folder.path().join("bench-0"));
    Log::open(dir, LogConfig::default(), Known::default(), NOW)
        .expect("an empty folder")
        .0
}

fn log(c: &mut Criterion) {
    let batch = batch();
    let mut group = c.benchmark_group("log/64x1KiB");
    group.throughput(Throughput::Bytes(batch.len() as u64));
    group
        .sample_size(50)
        .measurement_time(Duration::from_secs(3));
    group.bench_function("append", |b| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut log = open(&folder);
        let mut patched = batch.to_vec();
        b.iter(|| {
            patched.copy_from_slice(&batch);
            log.append_as_leader(&mut patched, LeaderEpoch(0), NOW)
                .expect("there is room");
        });
    });
    group.bench_function("append and flush", |b| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut log = open(&folder);
        let mut patched = batch.to_vec();
        b.iter(|| {
            patched.copy_from_slice(&batch);
            log.append_as_leader(&mut patched, LeaderEpoch(0), NOW)
                .expect("there is room");
            let job = log.begin_flush().expect("something was appended");
            let result = job.run();
            log.finish_flush(job, result).expect("the disk works");
        });
    });
    group.bench_function("read", |b| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut log = open(&folder);
        let mut patched = batch.to_vec();
        for _ in 0..1_000 {
            patched.copy_from_slice(&batch);
            log.append_as_leader(&mut patched, LeaderEpoch(0), NOW)
                .expect("there is room");
        }
        let (mut from, end) = (0, log.end_offset());
        b.iter(|| {
            from = (from + 64) % (end.0 - 64);
            black_box(
                log.read(Offset(from), end, batch.len(), true)
                    .expect("it was written"),
            )
        });
    });
    group.finish();
}

criterion_group!(benches, log);
criterion_main!(benches);
