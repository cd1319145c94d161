//! `kuorum produce`: lines become records.
//! Law: lines of one key, or of one partition, are written in their order; a line that was not acknowledged is said so.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kuorum_client::{
    Delivery, ProduceError, Producer, ProducerConfig, ProducerRecord, RecordMetadata,
};
use serde_json::json;
use tokio::sync::mpsc;

use crate::failure::{Exit, Failure, where_to_look};
use crate::output::{Output, counted, note, say};
use crate::{Bootstrap, Global};

/// Lines read ahead of the producer.
const READ_AHEAD: usize = 1024;
/// Records whose outcome is open; the producer's memory bounds them too.
const MAX_OPEN: usize = 100_000;
/// How many failures are told one by one.
const TOLD: u64 = 10;
/// A longer line is refused instead of filling the memory.
const MAX_LINE: u64 = 100 * 1024 * 1024;
/// How long what is still to be read may take to be counted, when nothing of it is sent any more.
const COUNTING: Duration = Duration::from_secs(2);

/// Write lines as records
#[derive(Debug, Args)]
pub(crate) struct Produce {
    #[command(flatten)]
    bootstrap: Bootstrap,
    /// The topic
    #[arg(short, long)]
    topic: String,
    /// The partition; by default the key decides
    #[arg(short, long)]
    partition: Option<i32>,
    /// What separates the key from the value in a line; without it lines have no key
    #[arg(short, long)]
    key_separator: Option<String>,
    /// The file to read lines from; stdin by default
    #[arg(short, long)]
    file: Option<PathBuf>,
    /// Who must have a record before it counts: all, 1 or 0 (all: on the disks of the replicas in sync)
    #[arg(long, default_value = "all")]
    acks: String,
    /// none, gzip, snappy, lz4 or zstd
    #[arg(short = 'z', long, default_value = "none")]
    compression: String,
    /// A header for every record, name=value
    #[arg(short = 'H', long, value_name = "NAME=VALUE")]
    header: Vec<String>,
    /// A value that stands for none: a tombstone is written instead
    #[arg(long)]
    null_value: Option<String>,
    /// A setting of the producer, by Kafka's name
    #[arg(short = 'X', long = "property", value_name = "NAME=VALUE")]
    property: Vec<String>,
    /// Say where each record went
    #[arg(short, long)]
    verbose: bool,
}

/// What has become of the records so far.
#[derive(Debug, Default)]
struct Tally {
    written: u64,
    failed: u64,
    first_failure: Option<ProduceError>,
}

impl Produce {
    pub(crate) async fn run(self, global: &Global) -> Result<(), Failure> {
        let config = self.config(global)?;
        let headers = self
            .header
            .iter()
            .map(|header| match header.split_once('=') {
                Some((name, value)) => Ok((
                    name.to_owned(),
                    Some(Bytes::copy_from_slice(value.as_bytes())),
                )),
                None => Err(Failure::usage(format!(
                    "header {header:?} is not NAME=VALUE"
                ))),
            })
            .collect::<Result<Vec<_>, _>>()?;
        let source: Box<dyn Read + Send> = match &self.file {
            None => Box::new(io::stdin()),
            Some(path) => Box::new(File::open(path).map_err(|error| {
                Failure::usage(format!("cannot read {}: {error}", path.display()))
            })?),
        };
        let mut lines = read_lines(source);
        let producer = Producer::new(config)?;
        let progress = progress();

        let mut tally = Tally::default();
        let mut open = FuturesUnordered::<Delivery>::new();
        let mut unreadable = None;
        let mut refused = false;
        let mut number: u64 = 0;
        loop {
            tokio::select! {
                biased;
                Some(outcome) = open.next(), if !open.is_empty() => {
                    self.count(outcome, &mut tally, &progress, global.output)?;
                }
                line = lines.recv(), if open.len() < MAX_OPEN => match line {
                    None => break,
                    Some(Err(error)) => {
                        unreadable = Some(format!("cannot read on: {error}"));
                        break;
                    }
                    Some(Ok(line)) => {
                        number += 1;
                        let record = match self.record(&line, &headers) {
                            Ok(record) => record,
                            Err(why) => {
                                unreadable = Some(format!("line {number}: {why}"));
                                break;
                            }
                        };
                        match producer.send(record).await {
                            Ok(delivery) => open.push(delivery),
                            Err(error) => {
                                refused = !matches!(error, ProduceError::RecordTooLarge { .. });
                                self.count(Err(error), &mut tally, &progress, global.output)?;
                                if refused {
                                    // What refuses one record refuses all: there is no topic, no memory, no producer.
                                    break;
                                }
                            }
                        }
                    }
                },
            }
        }
        // Nothing more comes: what lingers need not.
        let flush = producer.flush();
        tokio::pin!(flush);
        let mut flushed = false;
        while !open.is_empty() {
            tokio::select! {
                Some(outcome) = open.next() => {
                    self.count(outcome, &mut tally, &progress, global.output)?;
                }
                () = &mut flush, if !flushed => flushed = true,
            }
        }
        progress.finish_and_clear();
        if refused {
            tally.failed += count_rest(&mut lines).await;
        }
        match unreadable {
            Some(why) => Err(tally.cut_short(&why)),
            None => tally.result(),
        }
    }

    fn config(&self, global: &Global) -> Result<ProducerConfig, Failure> {
        let mut config = ProducerConfig::new(&self.bootstrap.bootstrap_server)?;
        config.set("client.id", "kuorum-cli")?;
        config.set("acks", &self.acks)?;
        config.set("compression.type", &self.compression)?;
        // The limit of the whole command is the limit of every wait in it.
        config.own.delivery_timeout = global.timeout();
        config.own.max_block = global.timeout();
        for property in &self.property {
            let (name, value) = property.split_once('=').ok_or_else(|| {
                Failure::usage(format!("property {property:?} is not NAME=VALUE"))
            })?;
            config.set(name, value)?;
        }
        let room = config
            .own
            .delivery_timeout
            .saturating_sub(config.own.linger);
        config.client.request_timeout = config.client.request_timeout.min(room);
        config.validate()?;
        Ok(config)
    }

    fn record(
        &self,
        line: &Bytes,
        headers: &[(String, Option<Bytes>)],
    ) -> Result<ProducerRecord, String> {
        let (key, value) = match &self.key_separator {
            None => (None, line.clone()),
            Some(text) => {
                let separator = text.as_bytes();
                let at = line
                    .windows(separator.len().max(1))
                    .position(|window| window == separator)
                    .ok_or_else(|| {
                        let line = String::from_utf8_lossy(line);
                        format!("no key separator {text:?} in {line:?}")
                    })?;
                (Some(line.slice(..at)), line.slice(at + separator.len()..))
            }
        };
        let is_null = self
            .null_value
            .as_ref()
            .is_some_and(|null| value == null.as_bytes());
        Ok(ProducerRecord {
            topic: self.topic.clone(),
            partition: self.partition,
            key,
            value: (!is_null).then_some(value),
            headers: headers.to_vec(),
            timestamp: None,
        })
    }

    fn count(
        &self,
        outcome: Result<RecordMetadata, ProduceError>,
        tally: &mut Tally,
        progress: &ProgressBar,
        output: Output,
    ) -> Result<(), Failure> {
        match outcome {
            Ok(place) => {
                tally.written += 1;
                progress.inc(1);
                let RecordMetadata {
                    topic,
                    partition,
                    offset,
                    timestamp,
                } = place;
                match (output, self.verbose) {
                    (Output::Json, _) => say(&json!({
                        "topic": &*topic, "partition": partition, "offset": offset, "timestamp": timestamp,
                    }).to_string()),
                    (Output::Table, true) => say(&format!("{topic}-{partition}@{offset}")),
                    (Output::Table, false) => Ok(()),
                }
            }
            Err(error) => {
                tally.failed += 1;
                if tally.failed <= TOLD {
                    let why = error.to_string();
                    let why = match why.starts_with("not acknowledged") {
                        true => why,
                        false => format!("not acknowledged: {why}"),
                    };
                    progress.suspend(|| note(&why));
                }
                tally.first_failure.get_or_insert(error);
                Ok(())
            }
        }
    }
}

impl Tally {
    /// The input was given up before its end.
    fn cut_short(&self, why: &str) -> Failure {
        let written = counted(self.written, "record", "records");
        let failed = match self.failed {
            0 => String::new(),
            failed => format!(", {failed} not acknowledged"),
        };
        let message = format!("{why}; {written} written before it{failed}, nothing after it");
        match self.written {
            0 => Failure::usage(message),
            _ => Failure::partial(message),
        }
    }

    fn result(self) -> Result<(), Failure> {
        let Self {
            written,
            failed,
            first_failure,
        } = self;
        let Some(error) = first_failure else {
            note(&counted(written, "record written", "records written"));
            return Ok(());
        };
        let hint = where_to_look(&error).map_or(String::new(), |hint| format!("; {hint}"));
        let exit = match written {
            0 => Failure::from(error).exit,
            _ => Exit::Partial,
        };
        let written = counted(written, "record written", "records written");
        let message = format!("{written}, {failed} not acknowledged{hint}");
        Err(Failure { exit, message })
    }
}

/// How many lines are still to come, as far as they come at once.
async fn count_rest(lines: &mut mpsc::Receiver<io::Result<Bytes>>) -> u64 {
    let mut count = 0;
    let counting = async {
        while let Some(Ok(_)) = lines.recv().await {
            count += 1;
        }
    };
    // Who types, or writes without end, is not waited for.
    let _ = tokio::time::timeout(COUNTING, counting).await;
    count
}

/// Reads lines in a thread of its own, because a read from a terminal cannot be given up.
fn read_lines(source: Box<dyn Read + Send>) -> mpsc::Receiver<io::Result<Bytes>> {
    let (sender, receiver) = mpsc::channel(READ_AHEAD);
    std::thread::spawn(move || {
        let mut reader = BufReader::new(source);
        loop {
            let mut line = Vec::new();
            let result = match reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
                Ok(0) => return,
                Ok(read) if read as u64 == MAX_LINE && line.last() != Some(&b'\n') => Err(
                    io::Error::other(format!("a line is longer than {MAX_LINE} bytes")),
                ),
                Ok(_) => {
                    if line.last() == Some(&b'\n') {
                        line.pop();
                    }
                    Ok(Bytes::from(line))
                }
                Err(error) => Err(error),
            };
            let last = result.is_err();
            if sender.blocking_send(result).is_err() || last {
                return;
            }
        }
    });
    receiver
}

/// A count on stderr, if somebody looks at it.
fn progress() -> ProgressBar {
    let target = match io::stderr().is_terminal() && !io::stdin().is_terminal() {
        true => ProgressDrawTarget::stderr_with_hz(10),
        false => ProgressDrawTarget::hidden(),
    };
    let style = ProgressStyle::with_template("{spinner} {pos} records, {per_sec}");
    let bar = ProgressBar::with_draw_target(None, target);
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_input_that_was_given_up() {
        for (written, failed, exit, message) in [
            (
                0,
                0,
                Exit::Usage,
                "line 1: x; 0 records written before it, nothing after it",
            ),
            (
                1,
                0,
                Exit::Partial,
                "line 1: x; 1 record written before it, nothing after it",
            ),
            (
                2,
                3,
                Exit::Partial,
                "line 1: x; 2 records written before it, 3 not acknowledged, nothing after it",
            ),
        ] {
            let tally = Tally {
                written,
                failed,
                first_failure: None,
            };
            let failure = tally.cut_short("line 1: x");
            assert_eq!((failure.exit, failure.message.as_str()), (exit, message));
        }
    }

    #[tokio::test]
    async fn lines_that_are_not_sent_are_counted() {
        let text: String = (0..3_000).map(|number| format!("{number}\n")).collect();
        let mut lines = read_lines(Box::new(io::Cursor::new(text)));
        lines.recv().await.expect("a line").expect("readable");
        assert_eq!(count_rest(&mut lines).await, 2_999);
    }
}
