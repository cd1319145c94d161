//! `kuorum dump-log`: what lies in log files, on the machine where they lie.
//! Law: reads only, and shows damage where it is instead of guessing what was meant.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use clap::Args;
use kuorum_protocol::record::{
    BatchError, BatchView, ControlType, DecompressLimit, Record, RecordsReader,
};
use serde_json::{Map, Value, json};

use crate::Global;
use crate::failure::Failure;
use crate::format::{header_json, insert_bytes};
use crate::output::{Output, counted, note, say};

/// The directory in which controllers keep the metadata log.
const METADATA: &str = "__cluster_metadata";

/// Show the batches of log files on this machine
#[derive(Debug, Args)]
pub(crate) struct DumpLog {
    /// A .log file, a partition's directory, or a directory of such
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Also the records
    #[arg(long)]
    records: bool,
    /// Read records as entries of the controllers' metadata log; by default that depends on the directory's name
    #[arg(long)]
    metadata: bool,
}

impl DumpLog {
    pub(crate) fn run(self, global: &Global) -> Result<(), Failure> {
        let mut damaged = Vec::new();
        for path in self.files()? {
            if global.output == Output::Table {
                say(&format!("{}:", path.display()))?;
            }
            let bytes = fs::read(&path).map_err(|error| {
                Failure::usage(format!("cannot read {}: {error}", path.display()))
            })?;
            let is_metadata = self.metadata || is_metadata(&path);
            let dump = Dump {
                records: self.records,
                is_metadata,
                output: global.output,
            };
            if let Some(damage) = dump.file(&Bytes::from(bytes))? {
                note(&format!("{}: {damage}", path.display()));
                damaged.push(path);
            }
        }
        match damaged.len() {
            0 => Ok(()),
            count => Err(Failure::refused(counted(
                count as u64,
                "file is damaged",
                "files are damaged",
            ))),
        }
    }

    /// The files named, and those in the directories named, by their base offset.
    fn files(&self) -> Result<Vec<PathBuf>, Failure> {
        let mut files = Vec::new();
        for path in &self.paths {
            let wrong = |error| Failure::usage(format!("cannot read {}: {error}", path.display()));
            if !fs::metadata(path).map_err(wrong)?.is_dir() {
                files.push(path.clone());
                continue;
            }
            let mut inside = Vec::new();
            for entry in fs::read_dir(path).map_err(wrong)? {
                let entry = entry.map_err(wrong)?.path();
                // A data directory holds a directory for each partition.
                match entry.is_dir() {
                    true => inside.extend(log_files(&entry).map_err(wrong)?),
                    false if is_log(&entry) => inside.push(entry),
                    false => {}
                }
            }
            if inside.is_empty() {
                return Err(Failure::usage(format!(
                    "{} holds no .log file",
                    path.display()
                )));
            }
            inside.sort();
            files.extend(inside);
        }
        Ok(files)
    }
}

fn is_log(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "log")
}

/// The .log files of one directory.
fn log_files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory)?.collect::<io::Result<Vec<_>>>()?;
    Ok(entries
        .into_iter()
        .map(|entry| entry.path())
        .filter(|path| is_log(path))
        .collect())
}

fn is_metadata(path: &Path) -> bool {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let directory = path.parent().and_then(Path::file_name);
    directory.is_some_and(|name| name.to_string_lossy().starts_with(METADATA))
}

struct Dump {
    records: bool,
    is_metadata: bool,
    output: Output,
}

impl Dump {
    /// Shows one file; returns what is wrong with it, if anything.
    fn file(&self, bytes: &Bytes) -> Result<Option<String>, Failure> {
        let mut at = 0;
        let mut expected = None;
        let mut damage = None;
        while at < bytes.len() {
            let rest = &bytes[at..];
            if rest.iter().all(|byte| *byte == 0) {
                // Files are made longer in advance; a clean close cuts them.
                if self.output == Output::Table {
                    say(&format!(
                        "  {} bytes from {at} on are allocated and not written",
                        rest.len()
                    ))?;
                }
                break;
            }
            let batch = match BatchView::parse(rest) {
                Ok(batch) => batch,
                Err(error @ BatchError::Truncated { .. }) => {
                    return Ok(Some(format!("the batch at {at} is cut off: {error}")));
                }
                Err(error) => return Ok(Some(format!("no batch at {at}: {error}"))),
            };
            let sound = batch.crc_is_valid();
            if !sound {
                damage
                    .get_or_insert_with(|| format!("the CRC of the batch at {at} does not match"));
            }
            // Compaction leaves gaps; going back is never right.
            if expected.is_some_and(|expected| batch.base_offset() < expected) {
                damage.get_or_insert_with(|| {
                    format!(
                        "the batch at {at} begins at {}, below the one before",
                        batch.base_offset()
                    )
                });
            }
            expected = Some(batch.next_offset());
            self.batch(&batch, at, sound)?;
            if sound && (self.records || self.is_metadata) {
                let own = bytes.slice(at..at + batch.size());
                if let Err(reason) = self.batch_records(&batch, &own)? {
                    damage.get_or_insert_with(|| format!("the batch at {at}: {reason}"));
                }
            }
            at += batch.size();
        }
        Ok(damage)
    }

    fn batch(&self, batch: &BatchView<'_>, at: usize, sound: bool) -> Result<(), Failure> {
        match self.output {
            Output::Json => say(&json!({
                "kind": "batch",
                "position": at,
                "size": batch.size(),
                "base_offset": batch.base_offset(),
                "last_offset": batch.last_offset(),
                "count": batch.record_count(),
                "leader_epoch": batch.leader_epoch(),
                "producer_id": batch.producer_id(),
                "producer_epoch": batch.producer_epoch(),
                "base_sequence": batch.base_sequence(),
                "last_sequence": batch.last_sequence(),
                "base_timestamp": batch.base_timestamp(),
                "max_timestamp": batch.max_timestamp(),
                "log_append_time": batch.is_log_append_time(),
                "compression": batch.compression().name(),
                "transactional": batch.is_transactional(),
                "control": batch.is_control(),
                "crc": batch.crc(),
                "valid": sound,
            })
            .to_string()),
            Output::Table => {
                let mut line = format!(
                    "  {}..{}  {}  epoch {}  time {}  {}  position {at}  {} bytes",
                    batch.base_offset(),
                    batch.last_offset(),
                    counted(
                        u64::from(batch.record_count().unsigned_abs()),
                        "record",
                        "records"
                    ),
                    batch.leader_epoch(),
                    batch.max_timestamp().0,
                    batch.compression(),
                    batch.size(),
                );
                if batch.producer_id().0 >= 0 {
                    line.push_str(&format!(
                        "  producer {}/{} sequence {}..{}",
                        batch.producer_id(),
                        batch.producer_epoch(),
                        batch.base_sequence(),
                        batch.last_sequence()
                    ));
                }
                let marks = [
                    (batch.is_transactional(), "transactional"),
                    (batch.is_control(), "control"),
                    (batch.is_log_append_time(), "log append time"),
                    (!sound, "CRC DOES NOT MATCH"),
                ];
                for (_, mark) in marks.iter().filter(|(set, _)| *set) {
                    line.push_str("  ");
                    line.push_str(mark);
                }
                say(&line)
            }
        }
    }

    /// Shows a batch's records. The inner error is what is wrong with them.
    fn batch_records(
        &self,
        batch: &BatchView<'_>,
        own: &Bytes,
    ) -> Result<Result<(), String>, Failure> {
        let reader = match RecordsReader::new(own, DecompressLimit::CONSUMED) {
            Ok(reader) => reader,
            Err(error) => return Ok(Err(error.to_string())),
        };
        for record in reader {
            let record = match record {
                Ok(record) => record,
                Err(error) => return Ok(Err(error.to_string())),
            };
            if self.is_metadata {
                if let Err(reason) = self.entry(&record)? {
                    return Ok(Err(reason));
                }
            } else {
                self.record(&record, batch.is_control())?;
            }
        }
        Ok(Ok(()))
    }

    fn record(&self, record: &Record, control: bool) -> Result<(), Failure> {
        let marker = control.then(|| match ControlType::of_record(record) {
            Some(ControlType::Abort) => "abort".to_owned(),
            Some(ControlType::Commit) => "commit".to_owned(),
            Some(ControlType::Unknown(kind)) => format!("marker {kind}"),
            None => "marker without a type".to_owned(),
        });
        if self.output == Output::Json {
            let mut object = Map::new();
            object.insert("kind".to_owned(), json!("record"));
            object.insert("offset".to_owned(), json!(record.offset));
            object.insert("timestamp".to_owned(), json!(record.timestamp));
            match marker {
                Some(marker) => {
                    object.insert("marker".to_owned(), Value::String(marker));
                }
                None => {
                    insert_bytes(&mut object, "key", record.key.as_deref());
                    insert_bytes(&mut object, "value", record.value.as_deref());
                    let headers = record
                        .headers
                        .iter()
                        .map(|(name, value)| header_json(name, value.as_deref()));
                    object.insert("headers".to_owned(), headers.collect());
                }
            }
            return say(&Value::Object(object).to_string());
        }
        let text = |bytes: Option<&Bytes>| match bytes {
            None => "null".to_owned(),
            Some(bytes) => String::from_utf8_lossy(bytes).escape_debug().to_string(),
        };
        match marker {
            Some(marker) => say(&format!("    {}  {marker}", record.offset)),
            None => {
                let mut line = format!(
                    "    {}  {}  key {}  value {}",
                    record.offset,
                    record.timestamp.0,
                    text(record.key.as_ref()),
                    text(record.value.as_ref())
                );
                for (name, value) in &record.headers {
                    line.push_str(&format!(
                        "  header {}={}",
                        name.escape_debug(),
                        text(value.as_ref())
                    ));
                }
                say(&line)
            }
        }
    }

    /// Shows an entry of the metadata log: who proposed it, and what it decides.
    fn entry(&self, record: &Record) -> Result<Result<(), String>, Failure> {
        let value = record.value.as_deref().unwrap_or_default();
        let entry: Value = match serde_json::from_slice(value) {
            Ok(entry) => entry,
            Err(error) => return Ok(Err(format!("not an entry of the metadata log: {error}"))),
        };
        if self.output == Output::Json {
            say(&json!({ "kind": "entry", "offset": record.offset, "entry": entry }).to_string())?;
            return Ok(Ok(()));
        }
        let log_id = &entry["log_id"];
        let payload = &entry["payload"];
        let kind = match payload {
            Value::String(kind) => kind.as_str(),
            Value::Object(object) => object.keys().next().map_or("", String::as_str),
            _ => "",
        };
        say(&format!(
            "    index {}  term {}  by controller {}  {}",
            log_id["index"],
            log_id["leader_id"]["term"],
            log_id["leader_id"]["node_id"],
            kind.to_lowercase(),
        ))?;
        let decided = &payload["Normal"];
        if self.records && !decided.is_null() {
            for record in decided["records"].as_array().into_iter().flatten() {
                say(&format!("      {record}"))?;
            }
        }
        Ok(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use kuorum_protocol::record::{BatchBuilder, BatchMut, Codec};
    use kuorum_protocol::{Offset, Timestamp};

    use super::*;

    fn batch(offset: i64, value: &str) -> Vec<u8> {
        let builder = BatchBuilder::new(Codec::None);
        let built = builder
            .push(Timestamp(1), None, Some(value.as_bytes()), &[])
            .build();
        let mut bytes = built.to_vec();
        BatchMut::parse(&mut bytes)
            .unwrap()
            .set_base_offset(Offset(offset));
        bytes
    }

    #[test]
    fn damage_is_told_from_preallocation() {
        let good = [batch(0, "a"), batch(1, "b")].concat();
        let entry =
            r#"{"log_id":{"leader_id":{"term":2,"node_id":1},"index":0},"payload":"Blank"}"#;
        let flipped = [&good[..good.len() - 2], b"zz"].concat();
        let rows: [(&str, Vec<u8>, bool, Option<&str>); 8] = [
            ("whole", good.clone(), false, None),
            ("empty", vec![], false, None),
            (
                "preallocated",
                [&good[..], &[0; 4096]].concat(),
                false,
                None,
            ),
            (
                "cut off",
                good[..good.len() - 1].to_vec(),
                false,
                Some("is cut off"),
            ),
            ("flipped", flipped, false, Some("CRC")),
            (
                "backwards",
                [batch(5, "a"), batch(4, "b")].concat(),
                false,
                Some("below the one before"),
            ),
            ("an entry", batch(0, entry), true, None),
            ("not an entry", batch(0, "a"), true, Some("not an entry")),
        ];
        for (name, bytes, is_metadata, expected) in rows {
            for output in [Output::Table, Output::Json] {
                let dump = Dump {
                    records: true,
                    is_metadata,
                    output,
                };
                let damage = dump.file(&Bytes::from(bytes.clone())).unwrap();
                match expected {
                    None => assert_eq!(damage, None, "{name}"),
                    Some(expected) => {
                        assert!(
                            damage.as_ref().unwrap().contains(expected),
                            "{name}: {damage:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn the_metadata_log_is_known_by_its_directory() {
        let directory = tempfile::tempdir().unwrap();
        for (name, expected) in [("__cluster_metadata-0", true), ("payments-0", false)] {
            let inside = directory.path().join(name);
            fs::create_dir(&inside).unwrap();
            let file = inside.join("00000000000000000000.log");
            fs::write(&file, b"").unwrap();
            assert_eq!(is_metadata(&file), expected);
            let command = DumpLog {
                paths: vec![inside],
                records: false,
                metadata: false,
            };
            assert_eq!(command.files().unwrap(), [file]);
        }
    }
}
