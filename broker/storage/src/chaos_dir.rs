//! The disk of the chaos build: the real one, with a journal of everything that is not durable yet, and with failures by schedule.
//! Law: what the kernel's memory survives, a killed process survives; only [`cut_power`] takes it away, and never what a finished
//! sync covered. Built with the feature `chaos` only, and then it stands in for [`RealDir`] under that name.
//!
//! A process keeps its laboratory in the directory that `KUORUM_CHAOS_DIR` names; without it this is the plain disk. In it lie the
//! `journal`, `removed` files that may have to come back, `faults` (what fails now, see [`Fault`]) and `boot-id`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::dir::{Dir, DirFile, Entry, RealDir, RealFile, RealLock};

/// Names the laboratory of a process.
pub const CHAOS_DIR: &str = "KUORUM_CHAOS_DIR";

const JOURNAL: &str = "journal";
const REMOVED: &str = "removed";
const FAULTS: &str = "faults";
const BOOT_ID: &str = "boot-id";
/// A disk writes this much as a whole.
const SECTOR: u64 = 512;

/// One change, told before it is made, or one sync, told after it is done. Files and directories go by their inode: names change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Line {
    Made {
        path: PathBuf,
        parent: u64,
    },
    Created {
        dir: u64,
        name: String,
    },
    Removed {
        dir: u64,
        name: String,
        kept: String,
    },
    Renamed {
        dir: u64,
        from: String,
        to: String,
        node: u64,
        replaced: Option<String>,
    },
    Written {
        node: u64,
        at: u64,
        len: u64,
        before: u64,
        saved: Option<String>,
    },
    Resized {
        node: u64,
        before: u64,
        saved: Option<(u64, String)>,
    },
    /// Everything about this file or directory in the first `lines` lines is durable.
    Synced {
        node: u64,
        lines: u64,
    },
}

impl Line {
    /// Which file's bytes, or which directory's names, it changes.
    fn node(&self) -> u64 {
        match self {
            Self::Made { parent, .. } => *parent,
            Self::Created { dir, .. } | Self::Removed { dir, .. } | Self::Renamed { dir, .. } => {
                *dir
            }
            Self::Written { node, .. } | Self::Resized { node, .. } | Self::Synced { node, .. } => {
                *node
            }
        }
    }

    fn kept(&self) -> Option<&str> {
        match self {
            Self::Removed { kept, .. } => Some(kept),
            Self::Renamed { replaced, .. } => replaced.as_deref(),
            Self::Written { saved, .. } => saved.as_deref(),
            Self::Resized { saved, .. } => saved.as_ref().map(|(_, name)| name.as_str()),
            Self::Made { .. } | Self::Created { .. } | Self::Synced { .. } => None,
        }
    }
}

/// Something that fails, or takes longer, for as long as its line stands in the file `faults`: `OPERATION PATH EFFECT`, where the
/// operation is `write`, `sync` or `any`, PATH is part of the file's path (`*` for every file), and the effect `eio`, `enospc`,
/// `short` (half of it is written, then an error) or `delay=MILLISECONDS`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    operation: String,
    path: String,
    effect: Effect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    InputOutput,
    NoSpace,
    Short,
    Delay(Duration),
}

impl Fault {
    /// Reads one line; `None` if it is not of that form.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let (operation, path, effect) = (words.next()?, words.next()?, words.next()?);
        let effect = match effect {
            "eio" => Effect::InputOutput,
            "enospc" => Effect::NoSpace,
            "short" => Effect::Short,
            other => Effect::Delay(Duration::from_millis(
                other.strip_prefix("delay=")?.parse().ok()?,
            )),
        };
        let known = matches!(operation, "write" | "sync" | "any") && words.next().is_none();
        known.then(|| Self {
            operation: operation.to_owned(),
            path: path.to_owned(),
            effect,
        })
    }

    fn hits(&self, operation: &str, path: &Path) -> bool {
        (self.operation == "any" || self.operation == operation)
            && (self.path == "*" || path.to_string_lossy().contains(&self.path))
    }
}

/// The journal of one process, and what is to fail.
#[derive(Debug)]
struct Laboratory {
    home: PathBuf,
    journal: Mutex<Journal>,
}

#[derive(Debug)]
struct Journal {
    file: File,
    lines: u64,
    kept: u64,
}

impl Laboratory {
    /// Opens the laboratory in `home`, made if need be; lines that no power cut could undo any more are dropped.
    fn open(home: &Path) -> io::Result<Self> {
        let removed = home.join(REMOVED);
        fs::create_dir_all(&removed)?;
        let pending = pending_lines(&read_journal(home)?);
        let wanted: BTreeSet<&str> = pending.iter().filter_map(|(_, line)| line.kept()).collect();
        let mut kept = 0;
        for entry in fs::read_dir(&removed)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            kept = kept.max(name.parse().unwrap_or(0));
            if !wanted.contains(name.as_str()) {
                remove(&entry.path())?;
            }
        }
        let temporary = home.join("journal.tmp");
        let mut text = Vec::new();
        for (_, line) in &pending {
            serde_json::to_writer(&mut text, line)?;
            text.push(b'\n');
        }
        fs::write(&temporary, text)?;
        fs::rename(&temporary, home.join(JOURNAL))?;
        let file = OpenOptions::new().append(true).open(home.join(JOURNAL))?;
        Ok(Self {
            home: home.to_owned(),
            journal: Mutex::new(Journal {
                file,
                lines: pending.len() as u64,
                kept,
            }),
        })
    }

    /// What `faults` orders for one operation.
    fn fault(&self, operation: &str, path: &Path) -> io::Result<Option<Effect>> {
        let Ok(text) = fs::read_to_string(self.home.join(FAULTS)) else {
            return Ok(None);
        };
        let hit = text
            .lines()
            .filter_map(Fault::parse)
            .find(|fault| fault.hits(operation, path));
        match hit.map(|fault| fault.effect) {
            Some(Effect::InputOutput) => Err(io::Error::from_raw_os_error(5)),
            Some(Effect::NoSpace) => Err(io::Error::new(
                io::ErrorKind::StorageFull,
                "no space left on device",
            )),
            Some(Effect::Delay(delay)) => {
                std::thread::sleep(delay);
                Ok(None)
            }
            other => Ok(other),
        }
    }

    /// Tells a change, then makes it: a process that dies between the two has told what it did not do, and undoing that is harmless.
    fn change<R>(
        &self,
        line: impl FnOnce(&mut Journal) -> io::Result<Line>,
        make: impl FnOnce() -> io::Result<R>,
    ) -> io::Result<R> {
        let mut journal = self.journal.lock();
        let line = line(&mut journal)?;
        journal.tell(&line)?;
        make()
    }

    /// Keeps a second name of a file that is about to lose its first.
    fn keep(&self, journal: &mut Journal, path: &Path) -> io::Result<String> {
        let name = journal.next_name();
        fs::hard_link(path, self.home.join(REMOVED).join(&name))?;
        Ok(name)
    }

    /// Keeps bytes that are about to be overwritten.
    fn save(&self, journal: &mut Journal, bytes: &[u8]) -> io::Result<String> {
        let name = journal.next_name();
        fs::write(self.home.join(REMOVED).join(&name), bytes)?;
        Ok(name)
    }

    /// Runs a sync; what was told before it began is durable once it is done.
    fn synced(&self, node: u64, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let lines = self.journal.lock().lines;
        sync()?;
        self.journal.lock().tell(&Line::Synced { node, lines })
    }
}

impl Journal {
    fn tell(&mut self, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.file.write_all(&text)?;
        self.lines += 1;
        Ok(())
    }

    fn next_name(&mut self) -> String {
        self.kept += 1;
        self.kept.to_string()
    }
}

fn read_journal(home: &Path) -> io::Result<Vec<Line>> {
    let file = match File::open(home.join(JOURNAL)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut lines = Vec::new();
    for text in BufReader::new(file).lines() {
        // The last line may be half there: what it would have told was not done.
        match serde_json::from_str(&text?) {
            Ok(line) => lines.push(line),
            Err(_) => break,
        }
    }
    Ok(lines)
}

/// The lines that no sync covers, with their numbers.
fn pending_lines(lines: &[Line]) -> Vec<(u64, Line)> {
    let mut durable: HashMap<u64, u64> = HashMap::new();
    for line in lines {
        if let Line::Synced { node, lines } = line {
            let until = durable.entry(*node).or_default();
            *until = (*until).max(*lines);
        }
    }
    let numbered = lines.iter().zip(0..);
    numbered
        .filter(|(line, number)| {
            !matches!(line, Line::Synced { .. })
                && *number >= durable.get(&line.node()).copied().unwrap_or(0)
        })
        .map(|(line, number)| (number, line.clone()))
        .collect()
}

fn remove(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    }
}

/// A directory of the file system, watched.
#[derive(Clone, Debug)]
pub struct ChaosDir {
    real: RealDir,
    laboratory: Option<Arc<Laboratory>>,
}

impl ChaosDir {
    /// The directory at `path`, watched by this process's laboratory if it has one.
    ///
    /// # Panics
    /// When the laboratory cannot be opened: an unwatched disk would prove nothing.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        static MINE: OnceLock<Option<Arc<Laboratory>>> = OnceLock::new();
        let laboratory = MINE.get_or_init(|| {
            let home = PathBuf::from(std::env::var_os(CHAOS_DIR)?);
            Some(Arc::new(Laboratory::open(&home).expect(
                "the directory that KUORUM_CHAOS_DIR names can be written",
            )))
        });
        Self {
            real: RealDir::new(path),
            laboratory: laboratory.clone(),
        }
    }

    /// The directory at `path`, watched from the laboratory in `home`, as a process does that begins now.
    ///
    /// # Errors
    /// When the laboratory cannot be opened.
    pub fn watched(path: impl Into<PathBuf>, home: &Path) -> io::Result<Self> {
        Ok(Self {
            real: RealDir::new(path),
            laboratory: Some(Arc::new(Laboratory::open(home)?)),
        })
    }

    /// Where it is.
    pub fn as_path(&self) -> &Path {
        self.real.as_path()
    }

    fn node(&self) -> io::Result<u64> {
        Ok(fs::metadata(self.as_path())?.ino())
    }

    fn file(&self, name: &str, real: RealFile) -> io::Result<ChaosFile> {
        let path = self.as_path().join(name);
        Ok(ChaosFile {
            node: fs::metadata(&path)?.ino(),
            path,
            real,
            laboratory: self.laboratory.clone(),
        })
    }
}

impl Dir for ChaosDir {
    type File = ChaosFile;
    type Lock = RealLock;

    fn path(&self) -> String {
        self.real.path()
    }

    fn subdirectory(&self, name: &str) -> Self {
        Self {
            real: self.real.subdirectory(name),
            laboratory: self.laboratory.clone(),
        }
    }

    fn create(&self) -> io::Result<bool> {
        let Some(laboratory) = &self.laboratory else {
            return self.real.create();
        };
        let missing: Vec<&Path> = self
            .as_path()
            .ancestors()
            .take_while(|path| !path.as_os_str().is_empty() && !path.is_dir())
            .collect();
        for path in missing.iter().rev() {
            laboratory.change(
                |_| {
                    let parent = path
                        .parent()
                        .filter(|parent| !parent.as_os_str().is_empty());
                    Ok(Line::Made {
                        path: path.to_path_buf(),
                        parent: fs::metadata(parent.unwrap_or(Path::new(".")))?.ino(),
                    })
                },
                || fs::create_dir(path),
            )?;
        }
        Ok(!missing.is_empty())
    }

    fn exists(&self) -> io::Result<bool> {
        self.real.exists()
    }

    fn list(&self) -> io::Result<Vec<Entry>> {
        self.real.list()
    }

    fn open(&self, name: &str) -> io::Result<ChaosFile> {
        self.file(name, self.real.open(name)?)
    }

    fn create_file(&self, name: &str) -> io::Result<ChaosFile> {
        let path = self.as_path().join(name);
        if let Some(laboratory) = &self.laboratory {
            laboratory.fault("write", &path)?;
            // Emptying what is there is a change of its bytes, not of its name.
            match self.open(name) {
                Ok(file) => {
                    file.set_len(0)?;
                    return Ok(file);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
            let dir = self.node()?;
            let name_of_line = name.to_owned();
            let real = laboratory.change(
                |_| {
                    Ok(Line::Created {
                        dir,
                        name: name_of_line,
                    })
                },
                || self.real.create_file(name),
            )?;
            return self.file(name, real);
        }
        self.file(name, self.real.create_file(name)?)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let Some(laboratory) = &self.laboratory else {
            return self.real.remove(name);
        };
        let path = self.as_path().join(name);
        if !path.exists() {
            return self.real.remove(name);
        }
        let dir = self.node()?;
        laboratory.change(
            |journal| {
                let kept = laboratory.keep(journal, &path)?;
                Ok(Line::Removed {
                    dir,
                    name: name.to_owned(),
                    kept,
                })
            },
            || self.real.remove(name),
        )
    }

    fn remove_all(&self, name: &str) -> io::Result<()> {
        let Some(laboratory) = &self.laboratory else {
            return self.real.remove_all(name);
        };
        let dir = self.node()?;
        let path = self.as_path().join(name);
        let mut journal = laboratory.journal.lock();
        let kept = journal.next_name();
        journal.tell(&Line::Removed {
            dir,
            name: name.to_owned(),
            kept: kept.clone(),
        })?;
        // A directory cannot have two names: it moves.
        fs::rename(path, laboratory.home.join(REMOVED).join(kept))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let Some(laboratory) = &self.laboratory else {
            return self.real.rename(from, to);
        };
        let source = self.as_path().join(from);
        let node = fs::metadata(&source)?.ino();
        let target = self.as_path().join(to);
        let dir = self.node()?;
        laboratory.change(
            |journal| {
                let replaced = match target.is_file() {
                    true => Some(laboratory.keep(journal, &target)?),
                    false => None,
                };
                Ok(Line::Renamed {
                    dir,
                    from: from.to_owned(),
                    to: to.to_owned(),
                    node,
                    replaced,
                })
            },
            || self.real.rename(from, to),
        )
    }

    fn link(&self, name: &str, to: &Self, as_name: &str) -> io::Result<()> {
        let Some(laboratory) = &self.laboratory else {
            return self.real.link(name, &to.real, as_name);
        };
        let dir = to.node()?;
        laboratory.change(
            |_| {
                Ok(Line::Created {
                    dir,
                    name: as_name.to_owned(),
                })
            },
            || self.real.link(name, &to.real, as_name),
        )
    }

    fn sync(&self) -> io::Result<()> {
        let Some(laboratory) = &self.laboratory else {
            return self.real.sync();
        };
        laboratory.fault("sync", self.as_path())?;
        laboratory.synced(self.node()?, || self.real.sync())
    }

    fn sync_parent(&self) -> io::Result<()> {
        let Some(laboratory) = &self.laboratory else {
            return self.real.sync_parent();
        };
        let Some(parent) = self.as_path().parent() else {
            return Ok(());
        };
        let parent = match parent.as_os_str().is_empty() {
            true => Path::new("."),
            false => parent,
        };
        laboratory.fault("sync", parent)?;
        laboratory.synced(fs::metadata(parent)?.ino(), || self.real.sync_parent())
    }

    fn lock(&self, name: &str) -> io::Result<Option<RealLock>> {
        self.real.lock(name)
    }

    fn boot_id(&self) -> io::Result<String> {
        let other = self
            .laboratory
            .as_ref()
            .and_then(|laboratory| fs::read_to_string(laboratory.home.join(BOOT_ID)).ok());
        match other {
            Some(id) => Ok(id.trim().to_owned()),
            None => self.real.boot_id(),
        }
    }
}

/// An open file of the file system, watched.
#[derive(Debug)]
pub struct ChaosFile {
    real: RealFile,
    node: u64,
    /// Where it was opened, for `faults`.
    path: PathBuf,
    laboratory: Option<Arc<Laboratory>>,
}

impl ChaosFile {
    /// The bytes from `at` on, as far as `len` and the file go, kept aside; `None` if there are none.
    fn save(
        &self,
        laboratory: &Laboratory,
        journal: &mut Journal,
        at: u64,
        len: u64,
    ) -> io::Result<Option<String>> {
        let mut bytes = vec![0; len as usize];
        let read = self.real.read_full_at(&mut bytes, at)?;
        match read {
            0 => Ok(None),
            _ => laboratory.save(journal, &bytes[..read]).map(Some),
        }
    }
}

impl DirFile for ChaosFile {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        self.real.read_at(buf, at)
    }

    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<()> {
        let Some(laboratory) = &self.laboratory else {
            return self.real.write_at(buf, at);
        };
        let short = laboratory.fault("write", &self.path)? == Some(Effect::Short);
        let bytes = match short {
            true => &buf[..buf.len() / 2],
            false => buf,
        };
        laboratory.change(
            |journal| {
                let before = self.real.len()?;
                Ok(Line::Written {
                    node: self.node,
                    at,
                    len: bytes.len() as u64,
                    before,
                    saved: match at < before {
                        true => self.save(laboratory, journal, at, bytes.len() as u64)?,
                        false => None,
                    },
                })
            },
            || self.real.write_at(bytes, at),
        )?;
        match short {
            true => Err(io::Error::from_raw_os_error(5)),
            false => Ok(()),
        }
    }

    fn len(&self) -> io::Result<u64> {
        self.real.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let Some(laboratory) = &self.laboratory else {
            return self.real.set_len(len);
        };
        laboratory.fault("write", &self.path)?;
        laboratory.change(
            |journal| {
                let before = self.real.len()?;
                let cut = before.saturating_sub(len);
                Ok(Line::Resized {
                    node: self.node,
                    before,
                    saved: self
                        .save(laboratory, journal, len, cut)?
                        .map(|name| (len, name)),
                })
            },
            || self.real.set_len(len),
        )
    }

    fn sync_data(&self) -> io::Result<()> {
        let Some(laboratory) = &self.laboratory else {
            return self.real.sync_data();
        };
        laboratory.fault("sync", &self.path)?;
        laboratory.synced(self.node, || self.real.sync_data())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        if let Some(laboratory) = &self.laboratory {
            laboratory.fault("write", &self.path)?;
        }
        self.real.allocate(len)
    }
}

/// What a power cut took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PowerCut {
    /// Changes of files and names that were not durable when the power went.
    pub pending: usize,
    /// How many of them are undone.
    pub undone: usize,
    /// Bytes at the ends of files that are gone.
    pub bytes_lost: u64,
    /// Writes that are half there.
    pub torn: usize,
}

/// Takes away what a power cut may take from a process that has been killed: for every file some of the writes since its last
/// sync, for every directory some of the names, by seed; with `everything`, all of them. The process must not run.
///
/// # Errors
/// When the files cannot be changed.
pub fn cut_power(home: &Path, seed: u64, everything: bool) -> io::Result<PowerCut> {
    let lines = read_journal(home)?;
    let pending = pending_lines(&lines);
    let mut random = StdRng::seed_from_u64(seed);
    // Of each file or directory, how many of its pending changes reached the disk.
    let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
    for (_, line) in &pending {
        *counts.entry(line.node()).or_default() += 1;
    }
    let survive: BTreeMap<u64, usize> = counts
        .iter()
        .map(|(node, count)| {
            let style: u32 = random.random_range(0..4);
            let survive = match style {
                _ if everything => 0,
                0 => 0,
                1 => *count,
                _ => random.random_range(0..=*count),
            };
            (*node, survive)
        })
        .collect();
    let mut cut = PowerCut {
        pending: pending.len(),
        ..PowerCut::default()
    };
    let root = home.parent().unwrap_or(home);
    let files = open_all(root, &pending)?;
    let mut left = counts;
    for (_, line) in pending.iter().rev() {
        let node = line.node();
        let index = left.get_mut(&node).expect("every node was counted");
        *index -= 1;
        if *index < survive[&node] {
            continue;
        }
        let tear = *index == survive[&node] && !everything && random.random_bool(0.5);
        cut.undone += 1;
        undo(
            home,
            root,
            line,
            files.get(&node),
            tear.then_some(&mut random),
            &mut cut,
        )?;
    }
    drop(files);
    remove(&home.join(REMOVED))?;
    fs::create_dir(home.join(REMOVED))?;
    fs::write(home.join(JOURNAL), b"")?;
    fs::write(
        home.join(BOOT_ID),
        format!("{:016x}", random.random::<u64>()),
    )?;
    Ok(cut)
}

/// The files whose bytes are to be changed, opened before any name changes.
fn open_all(root: &Path, pending: &[(u64, Line)]) -> io::Result<HashMap<u64, File>> {
    let wanted: BTreeSet<u64> = pending
        .iter()
        .filter(|(_, line)| matches!(line, Line::Written { .. } | Line::Resized { .. }))
        .map(|(_, line)| line.node())
        .collect();
    let mut files = HashMap::new();
    walk(root, &mut |path, node, is_dir| {
        if !is_dir && wanted.contains(&node) {
            files.insert(node, OpenOptions::new().read(true).write(true).open(path)?);
        }
        Ok(())
    })?;
    Ok(files)
}

fn walk(path: &Path, visit: &mut impl FnMut(&Path, u64, bool) -> io::Result<()>) -> io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    visit(path, metadata.ino(), metadata.is_dir())?;
    if metadata.is_dir() {
        for entry in fs::read_dir(path)? {
            walk(&entry?.path(), visit)?;
        }
    }
    Ok(())
}

/// The directory of this inode, wherever it is by now; `None` if it is gone.
fn directory(root: &Path, node: u64) -> io::Result<Option<PathBuf>> {
    let mut found = None;
    walk(root, &mut |path, inode, is_dir| {
        if is_dir && inode == node {
            found = Some(path.to_owned());
        }
        Ok(())
    })?;
    Ok(found)
}

fn undo(
    home: &Path,
    root: &Path,
    line: &Line,
    file: Option<&File>,
    tear: Option<&mut StdRng>,
    cut: &mut PowerCut,
) -> io::Result<()> {
    let kept = |name: &String| home.join(REMOVED).join(name);
    match line {
        Line::Made { path, .. } if path.is_dir() => fs::remove_dir_all(path),
        Line::Created { dir, name } => match directory(root, *dir)? {
            Some(dir) if dir.join(name).exists() => fs::remove_file(dir.join(name)),
            _ => Ok(()),
        },
        Line::Removed {
            dir,
            name,
            kept: place,
        } => match directory(root, *dir)? {
            Some(dir) if !dir.join(name).exists() && kept(place).exists() => {
                fs::rename(kept(place), dir.join(name))
            }
            _ => Ok(()),
        },
        Line::Renamed {
            dir,
            from,
            to,
            node,
            replaced,
        } => {
            let Some(dir) = directory(root, *dir)? else {
                return Ok(());
            };
            let moved = fs::metadata(dir.join(to)).is_ok_and(|there| there.ino() == *node);
            if moved {
                fs::rename(dir.join(to), dir.join(from))?;
                if let Some(place) = replaced {
                    fs::rename(kept(place), dir.join(to))?;
                }
            }
            Ok(())
        }
        Line::Written {
            at,
            len,
            before,
            saved,
            ..
        } => {
            let Some(file) = file else { return Ok(()) };
            let after = file.metadata()?.len();
            let mut written = vec![0; *len as usize];
            let got = file.read_at(&mut written, *at).unwrap_or(0);
            written.truncate(got);
            if let Some(place) = saved {
                file.write_all_at(&fs::read(kept(place))?, *at)?;
            }
            if after > *before {
                file.set_len(*before)?;
                cut.bytes_lost += after - before;
            }
            if let Some(random) = tear {
                cut.torn += 1;
                let mut done = 0;
                while done < written.len() as u64 {
                    let until =
                        (((at + done) / SECTOR + 1) * SECTOR - at).min(written.len() as u64);
                    if random.random_bool(0.5) {
                        file.write_all_at(&written[done as usize..until as usize], at + done)?;
                    }
                    done = until;
                }
            }
            Ok(())
        }
        Line::Resized { before, saved, .. } => {
            let Some(file) = file else { return Ok(()) };
            file.set_len(*before)?;
            if let Some((at, place)) = saved {
                file.write_all_at(&fs::read(kept(place))?, *at)?;
            }
            Ok(())
        }
        Line::Made { .. } | Line::Synced { .. } => Ok(()),
    }
}

#[cfg(test)]
mod tests;
