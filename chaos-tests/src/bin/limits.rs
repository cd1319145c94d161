//! What this machine can do at most, measured beside a benchmark in the same run, because a lone figure says nothing.
//! Usage: `limits DIRECTORY`. Prints `name value unit`, a line each.
//!
//! - `append-hop`: a stream sent over three loopback connections and appended to three files, all at once: what replicating it
//!   three times costs at the very least.
//! - `flushed-append`: a stream appended to three files with an fdatasync after each chunk.
//! - `fdatasync` and `round-trip`: the median of one small append made durable, and of one byte there and back, at 50 a second
//!   like the load they stand beside: a processor or disk that has gone to sleep in between takes its time to wake.
#![allow(clippy::print_stdout)] // the table is this program's purpose

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

const CHUNK: usize = 1 << 20;
const STREAM: u64 = 512 << 20;
const COPIES: usize = 3;
/// Between two measurements of what one request costs at low load.
const PACE: Duration = Duration::from_millis(20);
const ROUNDS: u64 = 250;

fn main() -> Result<()> {
    let directory = std::env::args().nth(1).context("usage: limits DIRECTORY")?;
    let directory = Path::new(&directory);
    std::fs::create_dir_all(directory)?;
    let megabytes = (STREAM >> 20) as f64;
    println!(
        "append-hop {:.0} MiB/s",
        megabytes / append_hop(directory)?.as_secs_f64()
    );
    println!(
        "flushed-append {:.0} MiB/s",
        megabytes / flushed_append(directory)?.as_secs_f64()
    );
    println!(
        "fdatasync {:.3} ms",
        fdatasync(directory)?.as_secs_f64() * 1e3
    );
    println!("round-trip {:.3} ms", round_trip()?.as_secs_f64() * 1e3);
    Ok(())
}

/// A file whose space is already there, as a log preallocates it.
fn scratch(directory: &Path, name: &str) -> Result<File> {
    let path = directory.join(name);
    let file = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .read(true)
        .open(&path)?;
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, STREAM)?;
    file.sync_all()?;
    std::fs::remove_file(&path)?; // the space goes with the last handle
    Ok(file)
}

fn append_hop(directory: &Path) -> Result<Duration> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let files = (0..COPIES).map(|i| scratch(directory, &format!("hop-{i}")));
    let files = files.collect::<Result<Vec<_>>>()?;
    let start = Instant::now();
    thread::scope(|scope| -> Result<()> {
        let mut ends = Vec::new();
        for file in files {
            let sender = TcpStream::connect(address)?;
            let (receiver, _) = listener.accept()?;
            ends.push(scope.spawn(move || send(sender)));
            ends.push(scope.spawn(move || append(receiver, &file)));
        }
        ends.into_iter()
            .try_for_each(|end| end.join().expect("a thread that panicked is a bug"))
    })?;
    Ok(start.elapsed())
}

fn send(mut stream: TcpStream) -> Result<()> {
    let chunk = vec![7; CHUNK];
    for _ in 0..STREAM / CHUNK as u64 {
        stream.write_all(&chunk)?;
    }
    Ok(())
}

fn append(mut stream: TcpStream, file: &File) -> Result<()> {
    let mut chunk = vec![0; CHUNK];
    for i in 0..STREAM / CHUNK as u64 {
        stream.read_exact(&mut chunk)?;
        file.write_all_at(&chunk, i * CHUNK as u64)?;
    }
    Ok(())
}

fn flushed_append(directory: &Path) -> Result<Duration> {
    let files = (0..COPIES).map(|i| scratch(directory, &format!("flushed-{i}")));
    let files = files.collect::<Result<Vec<_>>>()?;
    let start = Instant::now();
    thread::scope(|scope| -> Result<()> {
        let ends: Vec<_> = files
            .iter()
            .map(|file| {
                scope.spawn(move || -> Result<()> {
                    let chunk = vec![7; CHUNK];
                    for i in 0..STREAM / CHUNK as u64 {
                        file.write_all_at(&chunk, i * CHUNK as u64)?;
                        file.sync_data()?;
                    }
                    Ok(())
                })
            })
            .collect();
        ends.into_iter()
            .try_for_each(|end| end.join().expect("a thread that panicked is a bug"))
    })?;
    Ok(start.elapsed())
}

fn fdatasync(directory: &Path) -> Result<Duration> {
    let file = scratch(directory, "sync")?;
    let chunk = [7; 4096];
    let mut times = Vec::new();
    for i in 0..ROUNDS {
        thread::sleep(PACE);
        let start = Instant::now();
        file.write_all_at(&chunk, i * chunk.len() as u64)?;
        file.sync_data()?;
        times.push(start.elapsed());
    }
    Ok(median(times))
}

fn round_trip() -> Result<Duration> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut here = TcpStream::connect(listener.local_addr()?)?;
    let (mut there, _) = listener.accept()?;
    here.set_nodelay(true)?;
    there.set_nodelay(true)?;
    thread::spawn(move || {
        let mut byte = [0];
        while there.read_exact(&mut byte).is_ok() && there.write_all(&byte).is_ok() {}
    });
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        thread::sleep(PACE);
        let start = Instant::now();
        here.write_all(&[1])?;
        here.read_exact(&mut [0])?;
        times.push(start.elapsed());
    }
    Ok(median(times))
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
