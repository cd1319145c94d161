//! Other people's producers beside our own: each is a process of its own, which streams with its own defaults and says what became of every
//! record.
//! Law: an outcome is what the client was told. What it was not told, or told as an error, is unknown.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::history::{Event, Outcome};
use super::lab::Lab;
use crate::workload::Progress;

/// Longer than any of these clients waits for an answer by default.
const ENDS_WITHIN: Duration = Duration::from_secs(160);
/// Where the registries may be slow.
const INSTALLS_WITHIN: Duration = Duration::from_secs(300);

/// Which one, and what it is told beside acks=all.
#[derive(Debug, PartialEq, Eq)]
pub struct Kind {
    pub name: &'static str,
    /// As `chaos-tests/conformance/install.sh` calls it.
    client: &'static str,
    settings: &'static str,
    /// Whether what it sends again may be there twice.
    pub idempotent: bool,
    /// What it waits for by its own documentation, with a request in flight to a broker that says nothing any more; in milliseconds.
    pub in_flight: &'static str,
    /// The same, when it has just connected to that broker.
    pub connected: &'static str,
}

/// All of them.
pub const ALL: &[Kind] = &[
    Kind {
        name: "librdkafka",
        client: "librdkafka",
        settings: "",
        idempotent: false,
        in_flight: "socket.timeout.ms 60000, api.version.request.timeout.ms 10000 at the next connection",
        connected: "api.version.request.timeout.ms 10000",
    },
    Kind {
        name: "idempotent librdkafka",
        client: "librdkafka",
        settings: "enable.idempotence=true",
        idempotent: true,
        in_flight: "socket.timeout.ms 60000, api.version.request.timeout.ms 10000 at the next connection",
        connected: "api.version.request.timeout.ms 10000",
    },
    Kind {
        name: "Java",
        client: "java",
        settings: "",
        idempotent: true,
        in_flight: "request.timeout.ms 30000",
        connected: "request.timeout.ms 30000, of each question",
    },
];

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance")
}

/// Where `make conformance` keeps them.
#[must_use]
pub fn usual_folder() -> PathBuf {
    std::path::absolute(scripts().join("../../.conformance")).unwrap_or_default()
}

/// Fetches what is not there yet, the way `make conformance` does.
///
/// # Errors
/// Why that is not possible here: the last thing that was said about it.
pub async fn install(kind: &Kind, folder: &Path) -> Result<()> {
    let child = Command::new("bash")
        .arg(scripts().join("install.sh"))
        .arg(kind.client)
        .env("CONFORMANCE_DIR", folder)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let Ok(done) = timeout(INSTALLS_WITHIN, child).await else {
        bail!("it was not fetched within {} s", INSTALLS_WITHIN.as_secs());
    };
    let done = done.context("bash is needed")?;
    let said = [done.stdout, done.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let last = said.lines().rev().find(|line| !line.trim().is_empty());
    ensure!(
        done.status.success(),
        "{}",
        last.unwrap_or("it could not be installed")
    );
    Ok(())
}

fn command(kind: &Kind, folder: &Path) -> Command {
    let mut command;
    if kind.client == "java" {
        command = Command::new("java");
        command.arg("-cp").arg(folder.join("jars/*"));
        command.arg(scripts().join("java/Failover.java"));
    } else {
        command = Command::new(folder.join("python/bin/python"));
        command.arg("-B").arg(scripts().join("python/failover.py"));
    }
    command
}

/// Whether it is here.
pub async fn installed(kind: &Kind, folder: &Path) -> bool {
    let mut probe;
    if kind.client == "java" {
        if !folder.join("jars").is_dir() {
            return false;
        }
        probe = Command::new("java");
        probe.arg("-version");
    } else {
        probe = Command::new(folder.join("python/bin/python"));
        probe.args(["-c", "import confluent_kafka"]);
    }
    let probe = probe
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    probe.await.is_ok_and(|status| status.success())
}

/// A stream by one of them, until it is stopped.
#[derive(Debug)]
pub struct Streaming {
    pub kind: &'static Kind,
    pub progress: Progress,
    complaints: PathBuf,
    child: Child,
    orders: ChildStdin,
    reading: JoinHandle<Result<()>>,
}

/// The stream's and the topic's name, the number of its first record, and records a second.
#[derive(Clone, Copy, Debug)]
pub struct Stream<'a> {
    pub name: &'a str,
    pub topic: &'a str,
    pub first: u64,
    pub rate: u64,
}

/// What the single record of a fresh producer is called in the history: each producer is a stream of its own.
#[must_use]
pub fn fresh(stream: &str, id: u64) -> String {
    format!("{stream}, fresh {id}")
}

/// One record that has ended, as a client says it; times are in milliseconds since 1970.
#[derive(Debug, Deserialize)]
struct Line {
    kind: String,
    id: u64,
    sent: f64,
    at: f64,
    partition: Option<i32>,
    offset: Option<i64>,
    error: Option<String>,
}

impl Line {
    /// As the history has it; `wall` is when that began.
    fn event(self, stream: &str, topic: &str, wall: f64) -> (f64, Event) {
        let told = self.offset.filter(|_| self.error.is_none());
        let event = Event::Wrote {
            stream: match self.kind.as_str() {
                "fresh" => fresh(stream, self.id).into(),
                _ => stream.into(),
            },
            topic: topic.into(),
            partition: self.partition.unwrap_or(-1),
            id: self.id,
            sent: self.sent - wall,
            outcome: match told {
                Some(_) => Outcome::Acked,
                None => Outcome::Unknown,
            },
            offset: told,
            error: self.error,
        };
        (self.at - wall, event)
    }
}

impl Streaming {
    /// Begins to write. What the client logs goes to a file of that name beside the cluster.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn begin(
        kind: &'static Kind,
        folder: &Path,
        lab: &Lab,
        stream: Stream<'_>,
        log: &str,
    ) -> Result<Self> {
        let (history, wall) = (lab.history.clone(), lab.wall());
        let complaints = lab.faults.cluster.directory().join(log);
        let mut child = command(kind, folder)
            .env("KUORUM_BOOTSTRAP", lab.bootstrap())
            .env("TOPIC", stream.topic)
            .env("FIRST", stream.first.to_string())
            .env("RATE", stream.rate.to_string())
            .env("SETTINGS", kind.settings)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&complaints)?)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| kind.name)?;
        let orders = child.stdin.take().context("its input is a pipe")?;
        let said = child.stdout.take().context("its output is a pipe")?;
        let progress = Progress::default();
        let count = progress.clone();
        let (name, topic): (Arc<str>, Arc<str>) = (stream.name.into(), stream.topic.into());
        let reading = tokio::spawn(async move {
            let mut lines = BufReader::new(said).lines();
            while let Some(line) = lines.next_line().await? {
                let line: Line =
                    serde_json::from_str(&line).with_context(|| format!("{name}: {line}"))?;
                let (at, event) = line.event(&name, &topic, wall);
                if let Event::Wrote {
                    outcome: Outcome::Acked,
                    ..
                } = event
                {
                    count.count_acknowledged();
                }
                history.note_at(at, event);
            }
            Ok(())
        });
        Ok(Self {
            kind,
            progress,
            complaints,
            child,
            orders,
            reading,
        })
    }

    /// Has one more record written, by a producer that is made for it.
    ///
    /// # Errors
    /// When the client is gone.
    pub async fn write_fresh(&mut self, id: u64) -> Result<()> {
        let order = format!("{id}\n");
        let written = self.orders.write_all(order.as_bytes()).await;
        written.with_context(|| last_words(self.kind, &self.complaints))?;
        Ok(self.orders.flush().await?)
    }

    /// Sends nothing more, and waits until every record has ended.
    ///
    /// # Errors
    /// When one has not, or the client ended badly.
    pub async fn stop(self) -> Result<()> {
        let Self {
            kind,
            complaints,
            mut child,
            orders,
            reading,
            ..
        } = self;
        drop(orders);
        let ended = timeout(ENDS_WITHIN, child.wait()).await;
        let status = ended.with_context(|| last_words(kind, &complaints))??;
        ensure!(status.success(), "{}", last_words(kind, &complaints));
        reading.await?
    }
}

fn last_words(kind: &Kind, complaints: &Path) -> String {
    let said = std::fs::read_to_string(complaints).unwrap_or_default();
    let lines: Vec<&str> = said.lines().collect();
    let last = &lines[lines.len().saturating_sub(5)..];
    format!("{} has not ended well:\n{}", kind.name, last.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_says_becomes_history() {
        let event = |line: &str| {
            let line: Line = serde_json::from_str(line).unwrap();
            line.event("java", "t", 1_000.0)
        };
        let (at, acked) =
            event(r#"{"kind":"stream","id":7,"sent":1010.5,"at":1020.5,"partition":0,"offset":3}"#);
        assert_eq!(at, 20.5);
        let wrote = |stream: &str, id, sent, outcome, offset: Option<i64>, error| Event::Wrote {
            stream: stream.into(),
            topic: "t".into(),
            partition: if offset.is_some() { 0 } else { -1 },
            id,
            sent,
            outcome,
            offset,
            error,
        };
        assert_eq!(acked, wrote("java", 7, 10.5, Outcome::Acked, Some(3), None));
        let (_, failed) =
            event(r#"{"kind":"fresh","id":8,"sent":1010,"at":1020,"error":"_MSG_TIMED_OUT"}"#);
        let error = Some("_MSG_TIMED_OUT".to_owned());
        assert_eq!(
            failed,
            wrote("java, fresh 8", 8, 10.0, Outcome::Unknown, None, error),
            "an error leaves it open whether the record is there"
        );
    }
}
