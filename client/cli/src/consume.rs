//! `kuorum consume`: records become lines.
//! Law: records of a partition are written in their order.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use kuorum_client::{
    ClientError, ConsumeError, Consumer, ConsumerConfig, PositionReset, StartAt, TopicPartition,
};

use crate::failure::Failure;
use crate::format::{Format, to_json};
use crate::output::{Output, note, written};
use crate::{Bootstrap, Global, time};

/// How long one wait for records takes; then it is looked whether the end is reached.
const POLL: Duration = Duration::from_millis(250);

/// How long brokers may say that there is no such topic before they are believed: one that was just made is new to some.
const TO_BE_KNOWN: Duration = Duration::from_secs(1);

/// Read records; with --timeout until none came for so long (exit code 0, or 3 if -c or -e asked for more)
#[derive(Debug, Args)]
pub(crate) struct Consume {
    #[command(flatten)]
    bootstrap: Bootstrap,
    /// The topic
    #[arg(short, long)]
    topic: String,
    /// The partitions; all by default
    #[arg(short, long, value_delimiter = ',')]
    partition: Vec<i32>,
    /// Begin with the first record that is there: the default
    #[arg(long, group = "start")]
    from_beginning: bool,
    /// Begin with what is written from now on
    #[arg(long, group = "start")]
    from_end: bool,
    /// Begin with this offset; -5 begins with the last five records of each partition
    #[arg(long, group = "start", allow_negative_numbers = true)]
    offset: Option<i64>,
    /// Begin at a time: milliseconds since 1970, 2026-01-31T12:00:00Z, or 10m for ten minutes ago
    #[arg(long, group = "start", value_name = "TIME")]
    from_time: Option<String>,
    /// Stop at what is now the end, as the leaders tell it: a broker that was frozen and goes on tells its old end until it
    /// has heard that somebody else leads, some tens of milliseconds later
    #[arg(short, long)]
    exit: bool,
    /// Stop after so many records
    #[arg(short, long)]
    count: Option<u64>,
    /// How a record is written: %t topic, %p partition, %o offset, %k key, %s value, %T timestamp, %h headers, %K and %S
    /// lengths; \n, \t, \xNN
    #[arg(short, long, default_value = "%s\\n")]
    format: String,
    /// Pass over the records of open and aborted transactions
    #[arg(long)]
    read_committed: bool,
    /// A setting of the consumer, by Kafka's name
    #[arg(short = 'X', long = "property", value_name = "NAME=VALUE")]
    property: Vec<String>,
}

impl Consume {
    pub(crate) async fn run(self, global: &Global) -> Result<(), Failure> {
        let format = Format::parse(&self.format)?;
        let mut config = ConsumerConfig::new(&self.bootstrap.bootstrap_server)?;
        config.set("client.id", "kuorum-cli")?;
        // Who names an offset wants that one and no other.
        let reset = if self.offset.is_some_and(|offset| offset >= 0) {
            "none"
        } else {
            "earliest"
        };
        config.set("auto.offset.reset", reset)?;
        if self.read_committed {
            config.set("isolation.level", "read_committed")?;
        }
        for property in &self.property {
            let (name, value) = property.split_once('=').ok_or_else(|| {
                Failure::usage(format!("property {property:?} is not NAME=VALUE"))
            })?;
            config.set(name, value)?;
        }
        let start = self.start()?;
        let mut consumer = Consumer::new(config);
        let first = TO_BE_KNOWN.min(global.timeout());
        let count = match consumer
            .assign_topic(&self.topic, StartAt::Beginning, first)
            .await
        {
            Err(ClientError::UnknownTopic(topic)) => {
                return Err(Failure::refused(format!("there is no topic {topic}")));
            }
            Err(_) if first < global.timeout() => {
                let left = global.timeout().saturating_sub(first);
                consumer
                    .assign_topic(&self.topic, StartAt::Beginning, left)
                    .await?
            }
            result => result?,
        };
        if let Some(partition) = self.partition.iter().find(|p| !(0..count).contains(*p)) {
            return Err(Failure::refused(format!(
                "topic {} has no partition {partition}",
                self.topic
            )));
        }
        let partitions: Vec<TopicPartition> = consumer
            .assignment()
            .filter(|tp| self.partition.is_empty() || self.partition.contains(&tp.partition))
            .cloned()
            .collect();
        let needs_ends = self.exit || matches!(start, StartAt::Offset(offset) if offset < 0);
        let ends = match needs_ends {
            true => {
                consumer
                    .offsets(&partitions, StartAt::End, global.timeout())
                    .await?
            }
            false => BTreeMap::new(),
        };
        let begin_at = partitions.iter().map(|partition| {
            let start = match (start, ends.get(partition)) {
                (StartAt::Offset(offset), Some(end)) if offset < 0 => {
                    StartAt::Offset((end + offset).max(0))
                }
                (StartAt::End, Some(end)) => StartAt::Offset(*end),
                (start, _) => start,
            };
            (partition.clone(), start)
        });
        if let (StartAt::Offset(offset), true) = (start, self.exit)
            && ends.values().all(|end| *end < offset)
        {
            let ends: Vec<String> = ends
                .iter()
                .map(|(partition, end)| format!("{partition} ends at {end}"))
                .collect();
            return Err(Failure::unreachable(format!(
                "nothing has offset {offset} yet: {}",
                ends.join(", ")
            )));
        }
        consumer.assign(begin_at.collect::<Vec<_>>());
        tokio::select! {
            result = self.read(&mut consumer, &ends, &format, global) => result,
            _ = tokio::signal::ctrl_c() => Ok(()),
        }
    }

    fn start(&self) -> Result<StartAt, Failure> {
        Ok(match (self.offset, &self.from_time) {
            (Some(offset), _) => StartAt::Offset(offset),
            (None, Some(text)) => {
                let now = SystemTime::now()
                    .duration_since(UNIX_EPOCH)
                    .unwrap_or_default();
                StartAt::Timestamp(time::parse(text, now.as_millis() as i64)?)
            }
            (None, None) if self.from_end => StartAt::End,
            (None, None) => StartAt::Beginning,
        })
    }

    /// How long no record may come.
    fn idle_limit(&self, global: &Global) -> Option<Duration> {
        // Without an end that was asked for, reading goes on until somebody says when to stop.
        global
            .said_timeout()
            .or_else(|| self.exit.then(|| global.timeout()))
    }

    /// What it means that no record came for so long, with so many still to come of those asked for.
    fn idle(&self, limit: Duration, left: u64) -> Result<(), Failure> {
        let why = match (self.exit, self.count) {
            (true, _) => "the end is not reached".to_owned(),
            (false, Some(count)) => format!("{} of {count} came", count.saturating_sub(left)),
            (false, None) => {
                note(&format!("no record came for {limit:?}"));
                return Ok(());
            }
        };
        Err(Failure::unreachable(format!(
            "no record came for {limit:?}, and {why}"
        )))
    }

    async fn read(
        &self,
        consumer: &mut Consumer,
        ends: &BTreeMap<TopicPartition, i64>,
        format: &Format,
        global: &Global,
    ) -> Result<(), Failure> {
        let mut left = self.count.unwrap_or(u64::MAX);
        let mut last_progress = Instant::now();
        let mut out = Vec::new();
        while left > 0 {
            if self.exit && is_at_end(consumer, ends)? {
                break;
            }
            let records = match consumer.poll(POLL).await {
                Ok(records) => records,
                Err(error) => return Err(error.into()),
            };
            for (partition, reset) in consumer.take_resets() {
                note(&told(&partition, reset));
            }
            if !records.is_empty() {
                last_progress = Instant::now();
            } else if let Some(limit) = self.idle_limit(global)
                && last_progress.elapsed() > limit
            {
                return self.idle(limit, left);
            }
            out.clear();
            for record in records {
                let partition = TopicPartition::new(record.topic.clone(), record.partition);
                let beyond = ends
                    .get(&partition)
                    .is_some_and(|end| record.offset >= *end);
                if left == 0 || (self.exit && beyond) {
                    continue;
                }
                left -= 1;
                match global.output {
                    Output::Table => format.write(&record, &mut out),
                    Output::Json => {
                        out.extend_from_slice(to_json(&record).to_string().as_bytes());
                        out.push(b'\n');
                    }
                }
            }
            let mut stdout = io::stdout().lock();
            written(stdout.write_all(&out).and_then(|()| stdout.flush()))?;
        }
        if left > 0 && self.count.is_some() {
            note("the end is reached");
        }
        Ok(())
    }
}

/// What a reader must know when its position was not in the log any more.
fn told(partition: &TopicPartition, reset: PositionReset) -> String {
    let offset = reset.offset;
    match reset.cut_at {
        Some(cut_at) => format!(
            "{partition}: the log was cut at {cut_at} by an unclean election, and what was read from there to {offset} is not in \
             it any more; reading goes on at {cut_at} (`kuorum salvage list` shows what was set aside)"
        ),
        None => format!(
            "{partition}: offset {offset} is not in the log; reading goes on where auto.offset.reset says"
        ),
    }
}

/// Whether every partition has been read up to its end.
fn is_at_end(
    consumer: &Consumer,
    ends: &BTreeMap<TopicPartition, i64>,
) -> Result<bool, ConsumeError> {
    for (partition, end) in ends {
        // Where a position is still being found, an empty log has no more to give than a full one.
        if *end > 0
            && consumer
                .position(partition)?
                .is_none_or(|position| position < *end)
        {
            return Ok(false);
        }
    }
    Ok(true)
}
