//! What was counted in salvaged items, remembered so that a start need not read them all: a sled index.
//! Law: worth nothing. It is rebuilt from the files whenever it does not fit them; a damaged one is set aside with one log
//! line, and an error in it is never anybody else's.
//!
//! sled calls a write flushed that is in the page cache, and takes a snapshot that was never finished for one: its file is
//! synced here, and what is unfinished is removed before it is opened (docs/storage.md).

use std::fs::{self, File};
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};

use kuorum_storage::salvage::{Item, ItemId, Summary};
use serde::{Deserialize, Serialize};
use tracing::{debug, warn};

/// Its directory, inside a salvage directory.
pub const DIRECTORY: &str = ".catalogue";
/// The ending of one that was set aside.
const DAMAGED: &str = "-damaged";
/// The largest value: sled keeps larger ones in files that it does not sync.
const VALUE_BYTES: usize = 32 * 1024;
const SEGMENT_BYTES: usize = 8 * 1024 * 1024;
const CACHE_BYTES: u64 = 4 * 1024 * 1024;
const VERSION: u16 = 1;

/// The index.
#[derive(Debug)]
pub struct Catalogue {
    db: sled::Db,
    /// Opened once: the kernel tells of a failed write only to whoever had the file open.
    file: File,
}

/// What is remembered of an item.
#[derive(Debug, Serialize, Deserialize)]
struct Row {
    version: u16,
    /// Of the item it was counted in: another one of the same name is counted again.
    item: Item,
    summary: Summary,
}

impl Catalogue {
    /// Opens the index in `path`. One that is damaged is set aside, and an empty one takes its place; `None` if not even
    /// that works, and then everything is counted at every start.
    pub fn open(path: &Path) -> Option<Self> {
        let trouble = match open_carefully(path) {
            Ok(catalogue) => return Some(catalogue),
            Err(trouble) => trouble,
        };
        let aside = with_ending(path, DAMAGED);
        let emptied = remove_if_there(&aside).and_then(|()| match fs::rename(path, &aside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        });
        let again = emptied
            .map_err(|error| error.to_string())
            .and_then(|()| open_carefully(path));
        match again {
            Ok(catalogue) => {
                warn!(cause = trouble, aside = %aside.display(),
                      "the catalogue of salvaged items was damaged; it is set aside and made again from the files");
                Some(catalogue)
            }
            Err(error) => {
                warn!(
                    cause = error,
                    "there is no catalogue of salvaged items; they are counted at every start"
                );
                None
            }
        }
    }

    /// What was counted in an item.
    pub fn get(&self, item: &Item) -> Option<Summary> {
        let mut json = Vec::new();
        for part in self.db.scan_prefix(prefix(&item.id())) {
            json.extend_from_slice(&part.ok()?.1);
        }
        let row: Row = serde_json::from_slice(&json).ok()?;
        (row.version == VERSION && row.item == *item).then_some(row.summary)
    }

    /// Remembers what was counted in an item.
    pub fn put(&self, item: &Item, summary: &Summary) {
        let row = Row {
            version: VERSION,
            item: item.clone(),
            summary: summary.clone(),
        };
        let json = serde_json::to_vec(&row).expect("a summary holds nothing JSON cannot say");
        let id = item.id();
        let mut changes = self.removals(&id);
        for (at, part) in json.chunks(VALUE_BYTES).enumerate() {
            let mut key = prefix(&id);
            key.extend_from_slice(&(at as u32).to_be_bytes());
            changes.insert(key, part);
        }
        self.change(changes);
    }

    /// Forgets an item.
    pub fn forget(&self, id: &ItemId) {
        self.change(self.removals(id));
    }

    /// Forgets every item that is not there any more.
    pub fn keep_only(&self, is_there: impl Fn(&ItemId) -> bool) {
        let mut changes = sled::Batch::default();
        let mut any = false;
        for key in self.db.iter().keys().flatten() {
            let id = key
                .split(|byte| *byte == 0)
                .next()
                .and_then(|name| std::str::from_utf8(name).ok()?.parse().ok());
            if id.is_none_or(|id| !is_there(&id)) {
                changes.remove(key);
                any = true;
            }
        }
        if any {
            self.change(changes);
        }
    }

    fn removals(&self, id: &ItemId) -> sled::Batch {
        let mut changes = sled::Batch::default();
        for key in self.db.scan_prefix(prefix(id)).keys().flatten() {
            changes.remove(key);
        }
        changes
    }

    fn change(&self, changes: sled::Batch) {
        let changed = self
            .db
            .apply_batch(changes)
            .and_then(|()| self.db.flush())
            .map_err(|error| error.to_string())
            .and_then(|_| self.file.sync_data().map_err(|error| error.to_string()));
        if let Err(error) = changed {
            debug!(
                error,
                "the catalogue of salvaged items took no note of a change"
            );
        }
    }
}

/// Rows of one item: its name, a zero, and the part's number.
fn prefix(id: &ItemId) -> Vec<u8> {
    let mut key = id.to_string().into_bytes();
    key.push(0);
    key
}

fn open_carefully(path: &Path) -> Result<Catalogue, String> {
    remove_unfinished_snapshots(path).map_err(|error| error.to_string())?;
    // What is damaged may also make it panic.
    let opened = panic::catch_unwind(AssertUnwindSafe(|| {
        let db = sled::Config::new()
            .path(path)
            .segment_size(SEGMENT_BYTES)
            .cache_capacity(CACHE_BYTES)
            .flush_every_ms(None)
            .open()?;
        for row in db.iter() {
            row?;
        }
        Ok::<_, sled::Error>(db)
    }));
    let db = match opened {
        Ok(Ok(db)) => db,
        Ok(Err(error)) => return Err(error.to_string()),
        Err(_) => return Err("it cannot be read".to_owned()),
    };
    let blobs = path.join("blobs");
    let has_blobs = fs::read_dir(blobs).is_ok_and(|mut entries| entries.next().is_some());
    if has_blobs {
        return Err("it has values in files of their own, which are not durable".to_owned());
    }
    let file = File::open(path.join("db")).map_err(|error| error.to_string())?;
    Ok(Catalogue { db, file })
}

/// One that a process left half-written would be taken for the newest.
fn remove_unfinished_snapshots(path: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_name().to_string_lossy().ends_with(".generating") {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(ending);
    path.with_file_name(name)
}
