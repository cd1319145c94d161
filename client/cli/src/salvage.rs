//! `kuorum salvage`: what unclean elections made replicas cut off, looked at, taken out, and brought back.
//! Law: an export is whole or not there. A replay may be asked for as often as one likes.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use kuorum_admin_api::{
    ReplaySalvage, ReplayState, SalvageDeleted, SalvageDetail, SalvageItem, SalvagePage,
    SalvageRecords, SalvageReplay,
};
use reqwest::Method;

use crate::Global;
use crate::admin::{Admin, escaped};
use crate::failure::Failure;
use crate::output::{Output, confirmed, counted, json, list, note, or_dash, say, table};
use crate::time::rfc3339;

/// Raw bytes asked for at once.
const CHUNK: u64 = 4 * 1024 * 1024;

/// Show, export, replay and delete what an unclean election made replicas cut off
#[derive(Debug, Subcommand)]
pub(crate) enum Salvage {
    /// List what is set aside
    List,
    /// Show one item
    Show(Show),
    /// Write an item to a file: as a log segment, or as lines of JSON
    Export(Export),
    /// Bring an item's records back into a topic, each once however often this is asked for
    Replay(Replay),
    /// Delete an item on every broker
    Delete(Delete),
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// The item's id
    id: String,
    /// Also so many of its records
    #[arg(long, default_value_t = 0)]
    records: usize,
}

/// The forms of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// The batches as they lay in the log: for dump-log and Kafka's own tools
    Segment,
    /// A line of JSON for each record that counts
    Jsonl,
}

#[derive(Debug, Args)]
pub(crate) struct Export {
    /// The item's id
    id: String,
    /// The form
    #[arg(long, value_enum, default_value_t = Format::Segment)]
    format: Format,
    /// The file or the directory to write to, - for stdout; the working directory by default
    #[arg(long, value_name = "PATH")]
    to: Option<PathBuf>,
    /// Replace a file that is there
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// The item's id
    id: String,
    /// The topic to replay into; the one the records were of by default
    #[arg(long)]
    target: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Delete {
    /// The items' ids
    #[arg(required = true)]
    ids: Vec<String>,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

impl Salvage {
    pub(crate) async fn run(self, global: &Global) -> Result<(), Failure> {
        match self {
            Self::List => list_items(global).await,
            Self::Show(command) => command.run(global).await,
            Self::Export(command) => command.run(global).await,
            Self::Replay(command) => command.run(global).await,
            Self::Delete(command) => command.run(global).await,
        }
    }
}

fn path_of(id: &str) -> String {
    format!("/salvage/{}", escaped(id))
}

/// `broker 1`, `brokers 1 and 2`, `brokers 1, 2 and 3`; `no broker`.
fn named(brokers: &[i32]) -> String {
    match brokers {
        [] => "no broker".to_owned(),
        [one] => format!("broker {one}"),
        [most @ .., last] => format!("brokers {} and {last}", list(most).replace(',', ", ")),
    }
}

/// Ends with the code for "in part" if somebody did not answer.
fn partial(unreachable: &[i32]) -> Result<(), Failure> {
    if unreachable.is_empty() {
        return Ok(());
    }
    Err(Failure::partial(format!(
        "no answer from {}: what only {} is missing",
        named(unreachable),
        match unreachable {
            [_] => "it holds",
            _ => "they hold",
        }
    )))
}

async fn list_items(global: &Global) -> Result<(), Failure> {
    let admin = Admin::new(global)?;
    let (mut items, mut unreachable) = (Vec::new(), Vec::new());
    let mut token: Option<String> = None;
    loop {
        let path = match &token {
            None => "/salvage".to_owned(),
            Some(token) => format!("/salvage?page_token={}", escaped(token)),
        };
        let page: SalvagePage = admin.get(&path).await?;
        items.extend(page.items);
        unreachable.extend(page.unreachable_brokers);
        token = page.next_page_token;
        if token.is_none() {
            break;
        }
    }
    unreachable.sort_unstable();
    unreachable.dedup();
    match global.output {
        Output::Json => json(&items)?,
        Output::Table if items.is_empty() => note("nothing is set aside"),
        Output::Table => table(
            &[
                "ID",
                "TOPIC",
                "PARTITION",
                "FROM",
                "TO",
                "RECORDS",
                "BYTES",
                "SET ASIDE",
                "BROKERS",
                "",
            ],
            items.iter().map(row),
        )?,
    }
    partial(&unreachable)
}

fn row(item: &SalvageItem) -> Vec<String> {
    vec![
        item.id.clone(),
        item.topic.clone(),
        item.partition.to_string(),
        item.first_offset.to_string(),
        item.end_offset.to_string(),
        item.records.to_string(),
        item.bytes.to_string(),
        rfc3339(item.created_at),
        list(&item.brokers),
        remarks(item).join(", "),
    ]
}

fn remarks(item: &SalvageItem) -> Vec<String> {
    let mut remarks = Vec::new();
    if !item.complete {
        remarks.push("not all of it".to_owned());
    }
    if item.damage.is_some() {
        remarks.push("damaged".to_owned());
    }
    remarks.extend(item.replays.iter().map(|replay| match replay.state {
        ReplayState::Done => format!("replayed into {}", replay.target),
        ReplayState::Running => format!("being replayed into {}", replay.target),
        ReplayState::Stopped => format!("replayed in part into {}", replay.target),
    }));
    remarks
}

impl Show {
    async fn run(self, global: &Global) -> Result<(), Failure> {
        let admin = Admin::new(global)?;
        let path = path_of(&self.id);
        let detail: SalvageDetail = admin.get(&path).await?;
        let item = &detail.item;
        match global.output {
            Output::Json => json(&detail)?,
            Output::Table => {
                let time = |at: Option<i64>| or_dash(at.map(rfc3339));
                let epochs: Vec<String> = item
                    .epochs
                    .iter()
                    .map(|began| format!("{} from {}", began.epoch, began.start_offset))
                    .collect();
                let lines = [
                    ("id", item.id.clone()),
                    ("topic", format!("{}  id {}", item.topic, item.topic_id)),
                    ("partition", item.partition.to_string()),
                    (
                        "offsets",
                        format!("from {} to before {}", item.first_offset, item.end_offset),
                    ),
                    ("records", item.records.to_string()),
                    ("bytes", item.bytes.to_string()),
                    (
                        "written",
                        format!(
                            "{} to {}",
                            time(item.first_timestamp),
                            time(item.last_timestamp)
                        ),
                    ),
                    ("epochs", epochs.join(", ")),
                    ("cause", cause(item)),
                    ("set aside", rfc3339(item.created_at)),
                    ("brokers", list(&item.brokers)),
                    (
                        "complete",
                        if item.complete { "yes" } else { "no" }.to_owned(),
                    ),
                ];
                for (name, value) in lines {
                    say(&format!("{name:<10} {value}"))?;
                }
                if item.skipped_transactions > 0 {
                    let skipped = counted(item.skipped_transactions, "transaction", "transactions");
                    say(&format!(
                        "{:<10} {skipped} aborted or without an end",
                        "skipped"
                    ))?;
                }
                if let Some(damage) = &item.damage {
                    say(&format!("{:<10} {damage}", "damage"))?;
                }
                for replay in &item.replays {
                    say(&format!("{:<10} {}", "replay", sentence(replay)))?;
                }
            }
        }
        if self.records > 0 {
            let mut left = self.records;
            each_record(global, &path, |line| {
                say(&line)?;
                left -= 1;
                Ok(left > 0)
            })
            .await?;
        }
        partial(&detail.unreachable_brokers)
    }
}

/// Why it was cut off, and the event to look up.
fn cause(item: &SalvageItem) -> String {
    match item.cause {
        Some(event) => format!("{}, event {event}", item.reason),
        None => item.reason.clone(),
    }
}

fn sentence(replay: &SalvageReplay) -> String {
    let records = counted(replay.replayed, "record", "records");
    match (replay.state, replay.finished_at) {
        (ReplayState::Done, Some(at)) => format!(
            "{records} replayed into {}, partition {}, done at {}",
            replay.target,
            replay.partition,
            rfc3339(at)
        ),
        (ReplayState::Stopped, _) => format!(
            "{records} replayed into {}, partition {}, then it stopped: ask for the replay again",
            replay.target, replay.partition
        ),
        _ => format!(
            "{records} replayed into {}, partition {}, and it goes on",
            replay.target, replay.partition
        ),
    }
}

/// Gives every record that counts as a line of JSON to `take`, until it has enough.
async fn each_record(
    global: &Global,
    path: &str,
    mut take: impl FnMut(String) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let mut token: Option<String> = None;
    loop {
        let path = match &token {
            None => format!("{path}/records"),
            Some(token) => format!("{path}/records?page_token={}", escaped(token)),
        };
        // The deadline is that of a page, however long the item.
        let page: SalvageRecords = Admin::new(global)?.get(&path).await?;
        for record in &page.items {
            let line = serde_json::to_string(record)
                .map_err(|error| Failure::usage(format!("cannot write JSON: {error}")))?;
            if !take(line)? {
                return Ok(());
            }
        }
        token = page.next_page_token;
        if token.is_none() {
            return Ok(());
        }
    }
}

impl Export {
    async fn run(self, global: &Global) -> Result<(), Failure> {
        let path = path_of(&self.id);
        let detail: SalvageDetail = Admin::new(global)?.get(&path).await?;
        let item = &detail.item;
        if self.to.as_deref() == Some(Path::new("-")) {
            self.write(global, item, &mut io::stdout().lock()).await?;
            return Ok(());
        }
        let file = self.file(item);
        if file.exists() && !self.force {
            return Err(Failure::usage(format!(
                "{} is there already: say --force to replace it",
                file.display()
            )));
        }
        let mut unfinished = file.clone().into_os_string();
        unfinished.push(".part");
        let written = async {
            let created = File::create(&unfinished).map_err(|error| {
                Failure::usage(format!("cannot write {}: {error}", file.display()))
            })?;
            let mut out = BufWriter::new(created);
            let records = self.write(global, item, &mut out).await?;
            out.into_inner()
                .map_err(|error| error.into_error())?
                .sync_all()?;
            fs::rename(&unfinished, &file)?;
            Ok::<u64, Failure>(records)
        };
        match written.await {
            Ok(count) => say(&format!(
                "{}: {}",
                file.display(),
                match self.format {
                    Format::Segment => format!(
                        "{} in {}",
                        counted(item.records, "record", "records"),
                        counted(count, "byte", "bytes")
                    ),
                    Format::Jsonl => counted(count, "record", "records"),
                }
            ))?,
            Err(failure) => {
                // Half an export is none.
                let _ = fs::remove_file(&unfinished);
                return Err(failure);
            }
        }
        if !item.complete || item.damage.is_some() {
            note(&format!(
                "note: {}",
                item.damage
                    .as_deref()
                    .unwrap_or("not all that was cut could be set aside")
            ));
        }
        Ok(())
    }

    fn file(&self, item: &SalvageItem) -> PathBuf {
        let name = match self.format {
            // Kafka's tools take a segment's first offset from its name.
            Format::Segment => format!("{:020}.log", item.first_offset),
            Format::Jsonl => format!("{}.jsonl", item.id),
        };
        match &self.to {
            None => PathBuf::from(name),
            Some(to) if to.is_dir() => to.join(name),
            Some(to) => to.clone(),
        }
    }

    /// Writes the item; answers with the bytes or the records written.
    async fn write(
        &self,
        global: &Global,
        item: &SalvageItem,
        out: &mut impl Write,
    ) -> Result<u64, Failure> {
        let path = path_of(&self.id);
        match self.format {
            Format::Segment => {
                let mut at = 0;
                while at < item.bytes {
                    // The deadline is that of a page, however long the item.
                    let admin = Admin::new(global)?;
                    let page = format!("{path}/segment?from={at}&max_bytes={CHUNK}");
                    let bytes = admin.bytes(&page).await?;
                    if bytes.is_empty() {
                        return Err(Failure::unreachable("the item became shorter"));
                    }
                    out.write_all(&bytes)?;
                    at += bytes.len() as u64;
                }
                out.flush()?;
                Ok(at)
            }
            Format::Jsonl => {
                let mut count = 0;
                each_record(global, &path, |line| {
                    writeln!(out, "{line}")?;
                    count += 1;
                    Ok(true)
                })
                .await?;
                out.flush()?;
                if count < item.records {
                    return Err(Failure::unreachable("the item became shorter"));
                }
                Ok(count)
            }
        }
    }
}

impl Replay {
    async fn run(self, global: &Global) -> Result<(), Failure> {
        let path = format!("{}/replay", path_of(&self.id));
        let request = ReplaySalvage {
            target: self.target,
        };
        loop {
            // As long as it goes on, the time begins anew.
            let admin = Admin::new(global)?;
            let replay: SalvageReplay = admin.send(Method::POST, &path, &request).await?;
            if replay.state == ReplayState::Done {
                return match global.output {
                    Output::Json => json(&replay),
                    Output::Table => say(&sentence(&replay)),
                };
            }
            note(&sentence(&replay));
        }
    }
}

impl Delete {
    async fn run(self, global: &Global) -> Result<(), Failure> {
        confirmed(
            &format!(
                "{} will be deleted; what is not replayed or exported is gone for good.",
                self.ids.join(", ")
            ),
            self.yes,
        )?;
        let admin = Admin::new(global)?;
        let mut unreachable = Vec::new();
        for id in &self.ids {
            let deleted: SalvageDeleted = admin
                .send(Method::DELETE, &path_of(id), &serde_json::json!({}))
                .await?;
            match global.output {
                Output::Json => json(&deleted)?,
                Output::Table => say(&format!(
                    "{id} deleted from {}",
                    named(&deleted.deleted_from)
                ))?,
            }
            unreachable.extend(deleted.unreachable_brokers);
        }
        unreachable.sort_unstable();
        unreachable.dedup();
        if unreachable.is_empty() {
            return Ok(());
        }
        Err(Failure::partial(format!(
            "no answer from {}: a copy there stays",
            named(&unreachable)
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brokers_are_named_in_words() {
        for (brokers, words) in [
            (&[][..], "no broker"),
            (&[1], "broker 1"),
            (&[1, 2], "brokers 1 and 2"),
            (&[1, 2, 3], "brokers 1, 2 and 3"),
        ] {
            assert_eq!(named(brokers), words);
        }
    }
}
