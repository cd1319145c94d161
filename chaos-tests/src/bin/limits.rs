//! What this machine can do at most, measured beside a benchmark in the same run, because a lone figure says nothing.
//! Usage: `limits DIRECTORY NAME…`. Prints `name value unit`, a line each. The files stay until the caller removes the directory:
//! memory that was given back a moment ago is cheaper to write to than what nobody has touched, and a log only grows into the latter.
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

use anyhow::{Context, Result, bail};

const CHUNK: usize = 1 << 20;
const STREAM: u64 = 256 << 20;
const COPIES: usize = 3;
/// Between two measurements of what one request costs at low load.
const PACE: Duration = Duration::from_millis(20);
const ROUNDS: u64 = 250;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().context("usage: limits DIRECTORY NAME…")?;
    let directory = Path::new(&directory);
    std::fs::create_dir_all(directory)?;
    let rate = |took: Duration| (STREAM >> 20) as f64 / took.as_secs_f64();
    let millis = |took: Duration| took.as_secs_f64() * 1e3;
    for name in arguments {
        match &*name {
            "append-hop" => println!("{name} {:.0} MiB/s", rate(append_hop(directory)?)),
            "flushed-append" => println!("{name} {:.0} MiB/s", rate(flushed_append(directory)?)),
            "fdatasync" => println!("{name} {:.3} ms", millis(fdatasync(directory)?)),
            "round-trip" => println!("{name} {:.3} ms", millis(round_trip()?)),
            _ => bail!("there is no limit called {name:?}"),
        }
    }
    Ok(())
}

/// A file whose space is already there, as a log preallocates it.
fn scratch(directory: &Path, name: &str, size: u64) -> Result<File> {
    let file = OpenOptions::new()
        .create_new(true)
        .write(true)
        .open(directory.join(name))?;
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, size)?;
    file.sync_all()?;
    Ok(file)
}

fn append_hop(directory: &Path) -> Result<Duration> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let files = (0..COPIES).map(|i| scratch(directory, &format!("hop-{i}"), STREAM));
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
    let files = (0..COPIES).map(|i| scratch(directory, &format!("flushed-{i}"), STREAM));
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
    let chunk = [7; 4096];
    let file = scratch(directory, "sync", ROUNDS * chunk.len() as u64)?;
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
