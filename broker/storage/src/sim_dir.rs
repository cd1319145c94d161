//! The lossy twin of the disk, by seed: what was not synced may be gone after [`SimDir::crash`], or half there.
//! Law: the same seed and the same calls give the same losses. File bytes survive a power cut by sectors, names by
//! the order they were made in; only what `sync_data` (bytes and length) or `sync` (names) covered is certain.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::dir::{Dir, DirFile, Entry};

const SECTOR: usize = 512;
const ROOT: u64 = 0;

/// A directory of a simulated disk. Clones, and the directories inside it, share the disk.
#[derive(Clone)]
pub struct SimDir {
    disk: Arc<Mutex<Disk>>,
    path: Vec<String>,
}

impl std::fmt::Debug for SimDir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SimDir").field(&self.path()).finish()
    }
}

/// An open file of a simulated disk. It is of no use after a crash.
#[derive(Clone)]
pub struct SimFile {
    disk: Arc<Mutex<Disk>>,
    node: u64,
    generation: u64,
}

impl std::fmt::Debug for SimFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SimFile").field(&self.node).finish()
    }
}

/// A lock on a simulated disk; a crash releases it.
pub struct SimLock {
    disk: Arc<Mutex<Disk>>,
    generation: u64,
    path: String,
}

impl std::fmt::Debug for SimLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SimLock").field(&self.path).finish()
    }
}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut disk = self.disk.lock();
        if disk.generation == self.generation {
            disk.locks.remove(&self.path);
        }
    }
}

struct Disk {
    random: SplitMix,
    /// Raised by every crash; handles of an older one are dead.
    generation: u64,
    /// Raised by every power cut.
    boot: u64,
    nodes: BTreeMap<u64, Node>,
    next_node: u64,
    locks: BTreeSet<String>,
    failing_syncs: u32,
    failing_writes: u32,
    full: bool,
    /// Changes left until the power goes.
    fuse: Option<u64>,
    syncs: u64,
}

enum Node {
    File(FileNode),
    Dir(DirNode),
}

#[derive(Default)]
struct FileNode {
    live: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<FileChange>,
}

enum FileChange {
    Write { at: usize, bytes: Vec<u8> },
    SetLen(usize),
}

#[derive(Default)]
struct DirNode {
    live: BTreeMap<String, u64>,
    durable: BTreeMap<String, u64>,
    pending: Vec<NameChange>,
}

enum NameChange {
    Link(String, u64),
    Unlink(String),
    Rename(String, String),
}

/// A small, well-known generator whose sequence never changes (splitmix64).
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    fn coin(&mut self) -> bool {
        self.next() & 1 == 0
    }
}

fn names_after(mut names: BTreeMap<String, u64>, changes: &[NameChange]) -> BTreeMap<String, u64> {
    for change in changes {
        match change {
            NameChange::Link(name, node) => {
                names.insert(name.clone(), *node);
            }
            NameChange::Unlink(name) => {
                names.remove(name);
            }
            NameChange::Rename(from, to) => {
                if let Some(node) = names.remove(from) {
                    names.insert(to.clone(), node);
                }
            }
        }
    }
    names
}

fn write_into(bytes: &mut Vec<u8>, at: usize, data: &[u8]) {
    if bytes.len() < at + data.len() {
        bytes.resize(at + data.len(), 0);
    }
    bytes[at..at + data.len()].copy_from_slice(data);
}

impl FileNode {
    /// What is left of the file when the power goes.
    fn after_power_cut(&self, random: &mut SplitMix) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        let style = random.below(4);
        let whole = match style {
            0 => 0,
            1 => self.pending.len(),
            2 => random.below(self.pending.len() + 1),
            _ => 0,
        };
        for (index, change) in self.pending.iter().enumerate() {
            match change {
                _ if style < 2 && index >= whole => {}
                FileChange::SetLen(len) => {
                    if index < whole || (style == 3 && random.coin()) {
                        bytes.resize(*len, 0);
                    }
                }
                FileChange::Write { at, bytes: data } => {
                    if index < whole {
                        write_into(&mut bytes, *at, data);
                    } else if style == 3 || index == whole {
                        Self::write_some_sectors(&mut bytes, *at, data, random);
                    }
                }
            }
        }
        bytes
    }

    fn write_some_sectors(bytes: &mut Vec<u8>, at: usize, data: &[u8], random: &mut SplitMix) {
        let mut done = 0;
        while done < data.len() {
            let until = data.len().min((at + done) / SECTOR * SECTOR + SECTOR - at);
            if random.coin() {
                write_into(bytes, at + done, &data[done..until]);
            }
            done = until;
        }
    }
}

fn not_found(name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{name} does not exist"))
}

fn power_is_off() -> io::Error {
    io::Error::other("the power is off")
}

fn input_output_error() -> io::Error {
    io::Error::other("input/output error")
}

impl Disk {
    /// Every change passes here first.
    fn change(&mut self) -> io::Result<()> {
        match &mut self.fuse {
            Some(0) => Err(power_is_off()),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn write_allowed(&mut self, grows: bool) -> io::Result<()> {
        self.change()?;
        if self.failing_writes > 0 {
            self.failing_writes -= 1;
            return Err(input_output_error());
        }
        if self.full && grows {
            return Err(io::Error::new(
                io::ErrorKind::StorageFull,
                "no space left on device",
            ));
        }
        Ok(())
    }

    fn sync_allowed(&mut self) -> io::Result<()> {
        self.change()?;
        self.syncs += 1;
        if self.failing_syncs > 0 {
            self.failing_syncs -= 1;
            return Err(input_output_error());
        }
        Ok(())
    }

    fn find(&self, path: &[String]) -> io::Result<u64> {
        let mut at = ROOT;
        for name in path {
            let Some(Node::Dir(dir)) = self.nodes.get(&at) else {
                return Err(not_found(name));
            };
            at = *dir.live.get(name).ok_or_else(|| not_found(name))?;
        }
        Ok(at)
    }

    fn dir(&mut self, path: &[String]) -> io::Result<&mut DirNode> {
        let node = self.find(path)?;
        match self.nodes.get_mut(&node) {
            Some(Node::Dir(dir)) => Ok(dir),
            _ => Err(io::Error::new(
                io::ErrorKind::NotADirectory,
                "not a directory",
            )),
        }
    }

    fn file(&mut self, node: u64, generation: u64) -> io::Result<&mut FileNode> {
        if self.generation != generation {
            return Err(io::Error::other("the file was opened before the crash"));
        }
        match self.nodes.get_mut(&node) {
            Some(Node::File(file)) => Ok(file),
            _ => Err(io::Error::new(io::ErrorKind::IsADirectory, "not a file")),
        }
    }

    fn add(&mut self, node: Node) -> u64 {
        let id = self.next_node;
        self.next_node += 1;
        self.nodes.insert(id, node);
        id
    }

    fn forget_unreachable(&mut self) {
        let mut reachable = BTreeSet::from([ROOT]);
        let mut queue = vec![ROOT];
        while let Some(node) = queue.pop() {
            if let Some(Node::Dir(dir)) = self.nodes.get(&node) {
                for child in dir.live.values() {
                    if reachable.insert(*child) {
                        queue.push(*child);
                    }
                }
            }
        }
        self.nodes.retain(|node, _| reachable.contains(node));
    }
}

impl SimDir {
    /// The root directory of a new, empty disk.
    pub fn new(seed: u64) -> Self {
        let disk = Disk {
            random: SplitMix(seed),
            generation: 0,
            boot: 0,
            nodes: BTreeMap::from([(ROOT, Node::Dir(DirNode::default()))]),
            next_node: ROOT + 1,
            locks: BTreeSet::new(),
            failing_syncs: 0,
            failing_writes: 0,
            full: false,
            fuse: None,
            syncs: 0,
        };
        Self {
            disk: Arc::new(Mutex::new(disk)),
            path: Vec::new(),
        }
    }

    /// The power goes and comes back: what was not synced is lost, kept or torn, by the seed. Open files are dead.
    pub fn crash(&self) {
        let mut disk = self.disk.lock();
        let disk = &mut *disk;
        disk.generation += 1;
        disk.boot += 1;
        disk.locks.clear();
        disk.fuse = None;
        for node in disk.nodes.values_mut() {
            match node {
                Node::File(file) => {
                    file.live = file.after_power_cut(&mut disk.random);
                    file.durable = file.live.clone();
                    file.pending.clear();
                }
                Node::Dir(dir) => {
                    let kept = disk.random.below(dir.pending.len() + 1);
                    dir.live = names_after(std::mem::take(&mut dir.durable), &dir.pending[..kept]);
                    dir.durable = dir.live.clone();
                    dir.pending.clear();
                }
            }
        }
        disk.forget_unreachable();
    }

    /// The process is killed: open files are dead and locks released, but the page cache keeps every byte and name.
    pub fn kill(&self) {
        let mut disk = self.disk.lock();
        disk.generation += 1;
        disk.locks.clear();
        disk.fuse = None;
    }

    /// The next sync fails, and what it should have made durable stays uncertain for ever.
    pub fn fail_next_sync(&self) {
        self.disk.lock().failing_syncs += 1;
    }

    /// The next write fails.
    pub fn fail_next_write(&self) {
        self.disk.lock().failing_writes += 1;
    }

    /// No failure is pending any more.
    pub fn mend(&self) {
        let mut disk = self.disk.lock();
        disk.failing_syncs = 0;
        disk.failing_writes = 0;
        disk.full = false;
    }

    /// While full, no file grows.
    pub fn set_full(&self, full: bool) {
        self.disk.lock().full = full;
    }

    /// After this many more changes (writes, syncs, names) every call fails, until `crash` or `kill`.
    pub fn cut_power_after(&self, changes: u64) {
        self.disk.lock().fuse = Some(changes);
    }

    /// Whether the power has gone since it was ordered to.
    pub fn is_without_power(&self) -> bool {
        self.disk.lock().fuse == Some(0)
    }

    /// How many syncs there have been, for tests of group commit.
    pub fn sync_count(&self) -> u64 {
        self.disk.lock().syncs
    }
}

impl Dir for SimDir {
    type File = SimFile;
    type Lock = SimLock;

    fn path(&self) -> String {
        format!("/{}", self.path.join("/"))
    }

    fn subdirectory(&self, name: &str) -> Self {
        let mut path = self.path.clone();
        path.push(name.to_owned());
        Self {
            disk: Arc::clone(&self.disk),
            path,
        }
    }

    fn create(&self) -> io::Result<bool> {
        let mut disk = self.disk.lock();
        let mut created = false;
        for depth in 0..self.path.len() {
            if disk.find(&self.path[..=depth]).is_err() {
                disk.change()?;
                let node = disk.add(Node::Dir(DirNode::default()));
                let name = self.path[depth].clone();
                let parent = disk.dir(&self.path[..depth])?;
                parent.live.insert(name.clone(), node);
                parent.pending.push(NameChange::Link(name, node));
                created = true;
            }
        }
        Ok(created)
    }

    fn exists(&self) -> io::Result<bool> {
        Ok(self.disk.lock().find(&self.path).is_ok())
    }

    fn list(&self) -> io::Result<Vec<Entry>> {
        let mut disk = self.disk.lock();
        let names = disk.dir(&self.path)?.live.clone();
        let is_dir = |node: &u64| matches!(disk.nodes.get(node), Some(Node::Dir(_)));
        Ok(names
            .iter()
            .map(|(name, node)| Entry {
                name: name.clone(),
                is_dir: is_dir(node),
            })
            .collect())
    }

    fn open(&self, name: &str) -> io::Result<SimFile> {
        let mut disk = self.disk.lock();
        let node = *disk
            .dir(&self.path)?
            .live
            .get(name)
            .ok_or_else(|| not_found(name))?;
        let generation = disk.generation;
        disk.file(node, generation)?;
        Ok(SimFile {
            disk: Arc::clone(&self.disk),
            node,
            generation,
        })
    }

    fn create_file(&self, name: &str) -> io::Result<SimFile> {
        if let Ok(file) = self.open(name) {
            file.set_len(0)?;
            return Ok(file);
        }
        let mut disk = self.disk.lock();
        disk.dir(&self.path)?;
        disk.write_allowed(true)?;
        let node = disk.add(Node::File(FileNode::default()));
        let generation = disk.generation;
        let dir = disk.dir(&self.path)?;
        dir.live.insert(name.to_owned(), node);
        dir.pending.push(NameChange::Link(name.to_owned(), node));
        Ok(SimFile {
            disk: Arc::clone(&self.disk),
            node,
            generation,
        })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut disk = self.disk.lock();
        disk.change()?;
        let dir = disk.dir(&self.path)?;
        dir.live.remove(name).ok_or_else(|| not_found(name))?;
        dir.pending.push(NameChange::Unlink(name.to_owned()));
        Ok(())
    }

    fn remove_all(&self, name: &str) -> io::Result<()> {
        self.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut disk = self.disk.lock();
        disk.change()?;
        let dir = disk.dir(&self.path)?;
        let node = dir.live.remove(from).ok_or_else(|| not_found(from))?;
        dir.live.insert(to.to_owned(), node);
        dir.pending
            .push(NameChange::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn link(&self, name: &str, to: &Self, as_name: &str) -> io::Result<()> {
        let mut disk = self.disk.lock();
        let node = *disk
            .dir(&self.path)?
            .live
            .get(name)
            .ok_or_else(|| not_found(name))?;
        disk.change()?;
        let dir = disk.dir(&to.path)?;
        if dir.live.contains_key(as_name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        dir.live.insert(as_name.to_owned(), node);
        dir.pending.push(NameChange::Link(as_name.to_owned(), node));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut disk = self.disk.lock();
        disk.sync_allowed()?;
        let dir = disk.dir(&self.path)?;
        dir.durable = dir.live.clone();
        dir.pending.clear();
        Ok(())
    }

    fn sync_parent(&self) -> io::Result<()> {
        let Some((_, parent)) = self.path.split_last() else {
            return Ok(());
        };
        Self {
            disk: Arc::clone(&self.disk),
            path: parent.to_vec(),
        }
        .sync()
    }

    fn lock(&self, name: &str) -> io::Result<Option<SimLock>> {
        let path = format!("{}/{name}", self.path());
        let mut disk = self.disk.lock();
        disk.dir(&self.path)?;
        if !disk.locks.insert(path.clone()) {
            return Ok(None);
        }
        Ok(Some(SimLock {
            disk: Arc::clone(&self.disk),
            generation: disk.generation,
            path,
        }))
    }

    fn boot_id(&self) -> io::Result<String> {
        Ok(format!("boot-{}", self.disk.lock().boot))
    }
}

impl DirFile for SimFile {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        let mut disk = self.disk.lock();
        if disk.fuse == Some(0) {
            return Err(power_is_off());
        }
        let bytes = &disk.file(self.node, self.generation)?.live;
        let at = (at as usize).min(bytes.len());
        let count = buf.len().min(bytes.len() - at);
        buf[..count].copy_from_slice(&bytes[at..at + count]);
        Ok(count)
    }

    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<()> {
        let mut disk = self.disk.lock();
        let at = at as usize;
        let grows = disk.file(self.node, self.generation)?.live.len() < at + buf.len();
        disk.write_allowed(grows)?;
        let file = disk.file(self.node, self.generation)?;
        write_into(&mut file.live, at, buf);
        file.pending.push(FileChange::Write {
            at,
            bytes: buf.to_vec(),
        });
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self
            .disk
            .lock()
            .file(self.node, self.generation)?
            .live
            .len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut disk = self.disk.lock();
        disk.change()?;
        let file = disk.file(self.node, self.generation)?;
        file.live.resize(len as usize, 0);
        file.pending.push(FileChange::SetLen(len as usize));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut disk = self.disk.lock();
        disk.file(self.node, self.generation)?;
        disk.sync_allowed()?;
        let file = disk.file(self.node, self.generation)?;
        file.durable = file.live.clone();
        file.pending.clear();
        Ok(())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let mut disk = self.disk.lock();
        if disk.file(self.node, self.generation)?.live.len() < len as usize {
            disk.write_allowed(true)?;
        }
        Ok(())
    }
}
