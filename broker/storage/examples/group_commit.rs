//! How long it takes to make 4 KiB in each of 100 files durable: one after the other, by several threads, by one syncfs.
//! The figures of docs/adr/0002-group-commit.md. Run it with a directory on the disk that matters:
//! `cargo run -p kuorum-storage --example group_commit -- DIRECTORY [bulk]`; with `bulk` another file grows by 64 MiB
//! unsynced before each round, as topics with page-cache durability do.
#![allow(clippy::print_stdout)]

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const FILES: usize = 100;
const ROUNDS: usize = 30;
/// Instead of a number of threads.
const SYNCFS: usize = 0;
const PREALLOCATED: u64 = 16 * 1024 * 1024;

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next().unwrap_or_else(|| ".".to_owned()));
    let bulk = arguments.next().is_some_and(|word| word == "bulk");
    let directory = directory.join("group-commit");
    fs::create_dir_all(&directory)?;
    let result = measure(&directory, bulk);
    fs::remove_dir_all(&directory)?;
    result
}

fn measure(directory: &std::path::Path, bulk: bool) -> std::io::Result<()> {
    let open = |name: String| {
        let path = directory.join(name);
        File::options()
            .create(true)
            .truncate(true)
            .read(true)
            .write(true)
            .open(path)
    };
    let files = (0..FILES)
        .map(|number| {
            let file = open(format!("{number}.log"))?;
            rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, PREALLOCATED)?;
            file.sync_all()?;
            Ok(file)
        })
        .collect::<std::io::Result<Vec<File>>>()?;
    let other = open("bulk".to_owned())?;
    let ways = [1, 4, 8, 16, 64, SYNCFS];
    let mut times = vec![Vec::new(); ways.len()];
    // Round by round and each time another way first, so that whatever else the machine does disturbs all alike. Every
    // turn writes where nothing was written before: writing again to the same blocks is much cheaper.
    let mut at = 0;
    for round in 0..ROUNDS {
        for turn in 0..ways.len() {
            let which = (round + turn) % ways.len();
            for file in &files {
                file.write_all_at(&[7; 4096], at)?;
            }
            at += 4096;
            if bulk {
                other.write_all_at(&vec![1; 64 * 1024 * 1024], 0)?;
            }
            let begin = Instant::now();
            match ways[which] {
                SYNCFS => rustix::fs::syncfs(&files[0])?,
                threads => sync_all(&files, threads),
            }
            times[which].push(begin.elapsed());
        }
    }
    for (way, mut times) in ways.iter().zip(times) {
        times.sort();
        let name = match *way {
            SYNCFS => "syncfs".to_owned(),
            threads => format!("{threads} threads"),
        };
        let (median, worst): (Duration, Duration) =
            (times[times.len() / 2], times[times.len() - 1]);
        println!("{name:12} median {median:10.2?}  worst {worst:10.2?}");
    }
    Ok(())
}

fn sync_all(files: &[File], threads: usize) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    file.sync_data().expect("the disk works");
                }
            });
        }
    });
}
