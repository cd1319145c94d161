//! What the controllers say of the partitions while a run goes on, and what every process has written into its log.
//! Law: it only looks. What it could not see is not there.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde_json::Value;
use tokio::task::JoinHandle;

use super::history::{Batch, Event, History};
use crate::admin::Admin;
use crate::cluster::{LocalCluster, Process};
use kuorum_protocol::record::batch::batches;
use kuorum_storage::checkpoint::{HIGH_WATERMARKS, offsets_from_text};

const EVERY: Duration = Duration::from_millis(50);

/// Looks at a topic's partitions until it is told to stop.
#[derive(Debug)]
pub struct Watching {
    stop: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Watching {
    /// Ends it.
    ///
    /// # Errors
    /// When it has panicked.
    pub async fn stop(self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        Ok(self.task.await?)
    }
}

/// Notes every change of a topic's partitions.
#[must_use]
pub fn partitions(admin: Admin, topic: &str, history: History) -> Watching {
    let topic: Arc<str> = topic.into();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let task = tokio::spawn(async move {
        let mut seen: Vec<Event> = Vec::new();
        while !stopped.load(Ordering::Relaxed) {
            // Without a controller there is nothing to see.
            let found = admin.partitions(&topic).await.unwrap_or_default();
            for one in found {
                let event = Event::Partition {
                    topic: Arc::clone(&topic),
                    partition: one.partition,
                    leader: one.leader,
                    leader_epoch: one.leader_epoch,
                    isr: one.isr,
                    elr: one.elr,
                    high_watermark: one.high_watermark.filter(|_| !one.stale),
                };
                let place = one.partition as usize;
                if seen.get(place) != Some(&event) {
                    seen.resize(seen.len().max(place + 1), event.clone());
                    seen[place] = event.clone();
                    history.note(event);
                }
            }
            tokio::time::sleep(EVERY).await;
        }
    });
    Watching { stop, task }
}

/// Milliseconds since 1970.
#[must_use]
pub fn wall_clock() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |since| since.as_secs_f64() * 1e3)
}

/// One line of a process's log (`log.format=json`).
#[derive(Clone, Debug)]
pub struct LogLine {
    /// Milliseconds since 1970.
    pub at: f64,
    pub message: String,
    pub fields: Value,
}

impl LogLine {
    /// A field that is a number.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<i64> {
        let field = self.fields.get(name)?;
        field.as_i64().or_else(|| field.as_str()?.parse().ok())
    }

    /// A field that is text.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.fields.get(name)?.as_str()
    }
}

/// Every line of a process's log.
///
/// # Errors
/// When there is no log.
pub fn log_lines(home: &Path) -> Result<Vec<LogLine>> {
    let path = home.join("log");
    let text = std::fs::read(&path).with_context(|| path.display().to_string())?;
    let text = String::from_utf8_lossy(&text);
    Ok(text.lines().filter_map(log_line).collect())
}

fn log_line(line: &str) -> Option<LogLine> {
    let fields: Value = serde_json::from_str(line).ok()?;
    Some(LogLine {
        at: millis_of(fields.get("timestamp")?.as_str()?)?,
        message: fields.get("message")?.as_str()?.to_owned(),
        fields,
    })
}

/// `2026-11-30T08:09:40.324398Z` in milliseconds since 1970.
fn millis_of(timestamp: &str) -> Option<f64> {
    let (date, time) = timestamp.strip_suffix('Z')?.split_once('T')?;
    let mut date = date.split('-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let mut time = time.split(':');
    let hours: f64 = time.next()?.parse().ok()?;
    let minutes: f64 = time.next()?.parse().ok()?;
    let seconds: f64 = time.next()?.parse().ok()?;
    // Days since 1970 of a date of the Gregorian calendar, years beginning in March.
    let (year, month) = match month {
        ..=2 => (year - 1, month + 9),
        _ => (year, month - 3),
    };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (month * 306 + 5) / 10 + day - 1;
    let days = (days - 719_468) as f64;
    Some((((days * 24.0 + hours) * 60.0 + minutes) * 60.0 + seconds) * 1e3)
}

/// Adds to the history what the logs of all processes tell. `wall` is when the history began.
///
/// # Errors
/// When a log cannot be read.
pub fn read_logs(cluster: &LocalCluster, history: &History, wall: f64) -> Result<()> {
    for id in 1..=3 {
        for home in cluster.homes(Process::Broker(id)) {
            for line in log_lines(&home)? {
                if line.message == "a partition's leader changed"
                    && line.fields.get("leads") == Some(&Value::Bool(true))
                    && let Some(event) = led(id, &line)
                {
                    history.note_at(line.at - wall, event);
                }
            }
        }
        for home in cluster.homes(Process::Controller(id)) {
            for line in log_lines(&home)? {
                if line.message == "partition changed"
                    && let Some(event) = decided(&line)
                {
                    history.note_at(line.at - wall, event);
                }
            }
        }
    }
    Ok(())
}

fn led(broker: i32, line: &LogLine) -> Option<Event> {
    Some(Event::Led {
        broker,
        topic: line.text("topic")?.into(),
        partition: line.number("partition")? as i32,
        leader_epoch: line.number("leader_epoch")? as i32,
    })
}

fn decided(line: &LogLine) -> Option<Event> {
    let isr = line.text("isr").unwrap_or_default();
    let members = isr.split(|letter: char| !letter.is_ascii_digit());
    Some(Event::Decided {
        topic: line.text("topic")?.into(),
        partition: line.number("partition")? as i32,
        leader: line.number("leader").map(|leader| leader as i32),
        leader_epoch: line.number("leader_epoch")? as i32,
        partition_epoch: line.number("partition_epoch")? as i32,
        isr: members.filter_map(|member| member.parse().ok()).collect(),
        cause: line.text("cause").unwrap_or_default().to_owned(),
    })
}

/// Adds to the history every batch that stopped brokers have of a topic.
///
/// # Errors
/// When a file cannot be read.
pub fn read_replicas(
    cluster: &LocalCluster,
    topic: &str,
    partitions: i32,
    history: &History,
) -> Result<()> {
    for broker in 1..=3 {
        let home = cluster.homes(Process::Broker(broker)).remove(0);
        let data = home.join("data");
        let checkpoint = std::fs::read_to_string(data.join(HIGH_WATERMARKS)).unwrap_or_default();
        let high_watermarks = offsets_from_text(&checkpoint).unwrap_or_default();
        for partition in 0..partitions {
            let folder = data.join(format!("{topic}-{partition}"));
            if !folder.is_dir() {
                continue;
            }
            let known = high_watermarks
                .iter()
                .find(|(name, index, _)| name == topic && *index == partition);
            history.note(Event::Replica {
                broker,
                topic: topic.into(),
                partition,
                high_watermark: known.map_or(0, |(_, _, offset)| offset.0),
                batches: batches_in(&folder)?,
            });
        }
    }
    Ok(())
}

fn batches_in(folder: &Path) -> Result<Vec<Batch>> {
    let mut segments: Vec<_> = std::fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<_>>()?;
    segments.retain(|path| path.extension().is_some_and(|ending| ending == "log"));
    segments.sort();
    let mut found = Vec::new();
    for segment in segments {
        let bytes = std::fs::read(&segment)?;
        for batch in batches(&bytes) {
            // What follows the last whole batch was never flushed.
            let Ok(batch) = batch else { break };
            found.push(Batch {
                first: batch.base_offset().0,
                end: batch.next_offset().0,
                leader_epoch: batch.leader_epoch().0,
                hash: fnv(batch.as_bytes()),
            });
        }
    }
    Ok(found)
}

fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// What every running process makes of the metadata log; nothing from a process that does not tell it.
///
/// # Errors
/// When the brokers cannot be listed.
pub async fn digests(admin: &Admin) -> Result<Vec<Event>> {
    let mut places: Vec<(String, String)> = admin
        .controllers()
        .iter()
        .zip(1..)
        .map(|(url, id)| (format!("controller {id}"), format!("{url}/metrics")))
        .collect();
    for broker in admin.brokers().await? {
        places.push((
            format!("broker {}", broker.id),
            format!("http://{}/metrics", broker.http),
        ));
    }
    let mut found = Vec::new();
    for (process, url) in places {
        let Ok(text) = admin.text(&url).await else {
            continue;
        };
        let value = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
                .map(str::to_owned)
        };
        if let Some(digest) = value("kuorum_metadata_digest") {
            found.push(Event::Digest { process, digest });
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_line_is_understood() {
        let line = r#"{"timestamp":"2026-11-30T08:09:48.104444Z","level":"INFO","message":"a partition's leader changed","topic":"t","partition":0,"leader":1,"leader_epoch":7,"leads":true,"target":"x"}"#;
        let line = log_line(line).unwrap();
        assert_eq!(
            led(3, &line),
            Some(Event::Led {
                broker: 3,
                topic: "t".into(),
                partition: 0,
                leader_epoch: 7
            })
        );
        assert!(log_line("formatted a directory").is_none());
    }

    #[test]
    fn days_are_counted_as_the_calendar_counts_them() {
        for (timestamp, millis) in [
            ("1970-01-01T00:00:00.000000Z", 0.0),
            ("2000-03-01T00:00:00.000000Z", 951_868_800_000.0),
            ("2026-11-30T08:09:48.104444Z", 1_796_026_188_104.444),
        ] {
            assert_eq!(millis_of(timestamp), Some(millis), "{timestamp}");
        }
    }
}
