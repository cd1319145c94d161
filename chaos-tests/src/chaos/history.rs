//! What happened in a run, in the order in which it was noticed: the one thing that checkers and the report look at.
//! Law: an outcome is never guessed: a write that timed out is unknown. One line of JSON an entry.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// How much later than it happened something may be noted, in milliseconds.
const NOTED_LATE: f64 = 5_000.0;

/// One entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Milliseconds since the run began.
    pub at: f64,
    #[serde(flatten)]
    pub event: Event,
}

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It is there, at the offset that was told.
    Acked,
    /// It is certainly not there.
    Failed,
    /// It may be there.
    Unknown,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Event {
    /// The run began.
    Began {
        scenario: String,
        seed: u64,
        scale: u64,
        /// Whether each node is a host of its own.
        hosts: bool,
    },
    /// A step of the story, in words.
    Step { text: String },
    /// Something is broken from now on, or is mended.
    Fault {
        fault: String,
        target: String,
        begins: bool,
    },
    /// A write ended.
    Wrote {
        stream: Arc<str>,
        topic: Arc<str>,
        partition: i32,
        id: u64,
        /// When it was handed to the producer, in milliseconds since the run began.
        sent: f64,
        outcome: Outcome,
        /// Where it is, if that was told; with acks=1 too, although the outcome is then unknown.
        offset: Option<i64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// A reader begins at some place; what it reads next does not follow from what it read before.
    Assigned { reader: Arc<str>, topic: Arc<str> },
    /// A reader received a record.
    Polled {
        reader: Arc<str>,
        topic: Arc<str>,
        partition: i32,
        offset: i64,
        leader_epoch: i32,
        id: u64,
    },
    /// A reader was told that what it had read is gone.
    Told {
        reader: Arc<str>,
        topic: Arc<str>,
        partition: i32,
        position: i64,
        /// Where the log that it read ends now, if that was told.
        end: Option<i64>,
    },
    /// A client was told where a partition ends.
    Latest {
        topic: Arc<str>,
        partition: i32,
        offset: i64,
    },
    /// A partition is found to be like this; only told when it changed.
    Partition {
        topic: Arc<str>,
        partition: i32,
        leader: Option<i32>,
        leader_epoch: i32,
        isr: Vec<i32>,
        elr: Vec<i32>,
        /// As its leader tells it.
        high_watermark: Option<i64>,
    },
    /// A broker began to lead, by its own log.
    Led {
        broker: i32,
        topic: Arc<str>,
        partition: i32,
        leader_epoch: i32,
    },
    /// The controllers decided something about a partition, by their log.
    Decided {
        topic: Arc<str>,
        partition: i32,
        leader: Option<i32>,
        leader_epoch: i32,
        partition_epoch: i32,
        isr: Vec<i32>,
        cause: String,
    },
    /// At the end: what one process makes of the metadata log, as one number.
    Digest { process: String, digest: String },
    /// At the end, of a stopped broker: every batch of a replica.
    Replica {
        broker: i32,
        topic: Arc<str>,
        partition: i32,
        high_watermark: i64,
        batches: Vec<Batch>,
    },
}

/// A batch as it lies in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    pub first: i64,
    /// Exclusive.
    pub end: i64,
    pub leader_epoch: i32,
    /// Of all its bytes.
    pub hash: u64,
}

/// The history of a run that is under way. Clones share it.
#[derive(Clone, Debug)]
pub struct History {
    start: Instant,
    entries: Arc<Mutex<Vec<Entry>>>,
}

impl Default for History {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            entries: Arc::default(),
        }
    }
}

impl History {
    /// Milliseconds since the run began.
    #[must_use]
    pub fn now(&self) -> f64 {
        self.start.elapsed().as_secs_f64() * 1e3
    }

    /// Notes what has just happened.
    pub fn note(&self, event: Event) {
        let entry = Entry {
            at: self.now(),
            event,
        };
        self.lock().push(entry);
    }

    /// Notes what happened at another moment.
    pub fn note_at(&self, at: f64, event: Event) {
        self.lock().push(Entry { at, event });
    }

    /// Everything so far, by time.
    #[must_use]
    pub fn entries(&self) -> Vec<Entry> {
        let mut entries = self.lock().clone();
        entries.sort_by(|a, b| a.at.total_cmp(&b.at));
        entries
    }

    /// When something first happened, not before `since`.
    #[must_use]
    pub fn first(&self, since: f64, matches: impl Fn(&Event) -> bool) -> Option<f64> {
        let entries = self.lock();
        let near = entries.iter().rev();
        near.take_while(|entry| entry.at >= since - NOTED_LATE)
            .filter(|entry| entry.at >= since && matches(&entry.event))
            .map(|entry| entry.at)
            .min_by(f64::total_cmp)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes a history, one entry a line.
///
/// # Errors
/// When the file cannot be written.
pub fn save(entries: &[Entry], path: &Path) -> Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    for entry in entries {
        serde_json::to_writer(&mut file, entry)?;
        file.write_all(b"\n")?;
    }
    Ok(file.flush()?)
}

/// Reads a history that was saved.
///
/// # Errors
/// When the file cannot be read, or a line is not an entry.
pub fn load(path: &Path) -> Result<Vec<Entry>> {
    let file = BufReader::new(File::open(path)?);
    let lines = file.lines().zip(1..);
    lines
        .map(|(line, number)| {
            serde_json::from_str(&line?)
                .with_context(|| format!("line {number} of {}", path.display()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saved_history_is_read_back_as_it_was() {
        let history = History::default();
        history.note(Event::Step {
            text: "one".to_owned(),
        });
        history.note(Event::Wrote {
            stream: "s".into(),
            topic: "t".into(),
            partition: 0,
            id: 7,
            sent: 1.5,
            outcome: Outcome::Unknown,
            offset: None,
            error: Some("timed out".to_owned()),
        });
        history.note_at(
            0.0,
            Event::Latest {
                topic: "t".into(),
                partition: 0,
                offset: 3,
            },
        );
        let latest = |event: &Event| matches!(event, Event::Latest { .. });
        assert_eq!(history.first(0.0, latest), Some(0.0));
        assert_eq!(history.first(0.1, latest), None, "it happened before");
        let entries = history.entries();
        assert!(matches!(entries[0].event, Event::Latest { .. }), "by time");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.jsonl");
        save(&entries, &path).unwrap();
        assert_eq!(load(&path).unwrap(), entries);
    }
}
