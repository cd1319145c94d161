//! What the kernel says of this process, for its metrics.
//! Law: only read; where the kernel says nothing there is a zero.

use std::fs::{read_dir, read_to_string};

/// The kernel counts time for programs in hundredths of a second on every Linux, whatever it does inside.
const TICKS_PER_SECOND: f64 = 100.0;

/// What the kernel says of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Process {
    pub resident_bytes: i64,
    pub virtual_bytes: i64,
    /// Processor time used since it began, in seconds.
    pub cpu_seconds: f64,
    pub open_files: i64,
    /// How many files may be open.
    pub max_files: i64,
    pub threads: i64,
    /// When it began, in seconds since 1970.
    pub start_seconds: f64,
}

impl Process {
    /// Looks now.
    #[must_use]
    pub fn look() -> Self {
        let stat = read_to_string("/proc/self/stat").unwrap_or_default();
        // The second field is the program's name in brackets and may hold anything.
        let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let fields: Vec<&str> = after_name.split_whitespace().collect();
        let number = |place: usize| {
            fields
                .get(place)
                .and_then(|field| field.parse::<i64>().ok())
                .unwrap_or(0)
        };
        Self {
            resident_bytes: resident_bytes(),
            virtual_bytes: number(20),
            cpu_seconds: (number(11) + number(12)) as f64 / TICKS_PER_SECOND,
            open_files: read_dir("/proc/self/fd").map_or(0, |dir| dir.count() as i64),
            max_files: i64::try_from(super::descriptors::limit()).unwrap_or(i64::MAX),
            threads: number(17),
            start_seconds: booted_at() + number(19) as f64 / TICKS_PER_SECOND,
        }
    }
}

fn resident_bytes() -> i64 {
    let status = read_to_string("/proc/self/status").unwrap_or_default();
    let kilobytes = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|number| number.parse::<i64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

/// When the kernel booted, in seconds since 1970.
fn booted_at() -> f64 {
    let stat = read_to_string("/proc/stat").unwrap_or_default();
    let seconds = stat
        .lines()
        .find_map(|line| line.strip_prefix("btime "))
        .and_then(|number| number.trim().parse::<i64>().ok());
    seconds.unwrap_or(0) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_knows_this_process() {
        let process = Process::look();
        assert!(process.resident_bytes > 1024 * 1024, "{process:?}");
        assert!(
            process.virtual_bytes >= process.resident_bytes,
            "{process:?}"
        );
        assert!(process.open_files > 2, "{process:?}");
        assert!(process.max_files >= process.open_files, "{process:?}");
        assert!(process.threads >= 1, "{process:?}");
        let uptime = read_to_string("/proc/uptime").expect("there is one");
        let uptime: f64 = uptime
            .split_whitespace()
            .next()
            .and_then(|seconds| seconds.parse().ok())
            .expect("a number");
        let age = booted_at() + uptime - process.start_seconds;
        assert!((-2.0..3600.0).contains(&age), "{age} of {process:?}");
    }
}
