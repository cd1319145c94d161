//! The disk that forgets what was not synced, and one that lies about it, to show that the checks would notice.

use std::io;

use kuorum_storage::{Dir, DirFile, Entry, SimDir};

/// What is said to be durable and is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// Entries of the log: as if they were acknowledged before they are flushed.
    LogIsSynced,
    /// The vote: as if it were given before it is flushed.
    VoteIsSynced,
    /// Records on brokers: as if they were acknowledged before they are flushed.
    RecordsAreSynced,
}

/// The disk of a controller or of a broker.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    inner: SimDir,
    lie: Option<Lie>,
}

/// A file on it.
#[derive(Clone, Debug)]
pub(crate) struct DiskFile {
    inner: <SimDir as Dir>::File,
    /// Its syncs do nothing.
    deaf: bool,
}

impl Disk {
    pub(crate) fn new(seed: u64, lie: Option<Lie>) -> Self {
        Self {
            inner: SimDir::new(seed),
            lie,
        }
    }

    /// The simulated disk, to let the power go.
    pub(crate) fn simulated(&self) -> &SimDir {
        &self.inner
    }

    fn file(&self, name: &str, inner: <SimDir as Dir>::File) -> DiskFile {
        let deaf = match self.lie {
            None => false,
            Some(Lie::LogIsSynced | Lie::RecordsAreSynced) => name.ends_with(".log"),
            Some(Lie::VoteIsSynced) => name.starts_with("vote"),
        };
        DiskFile { inner, deaf }
    }
}

impl Dir for Disk {
    type File = DiskFile;
    type Lock = <SimDir as Dir>::Lock;

    fn path(&self) -> String {
        self.inner.path()
    }

    fn subdirectory(&self, name: &str) -> Self {
        Self {
            inner: self.inner.subdirectory(name),
            lie: self.lie,
        }
    }

    fn create(&self) -> io::Result<bool> {
        self.inner.create()
    }

    fn exists(&self) -> io::Result<bool> {
        self.inner.exists()
    }

    fn list(&self) -> io::Result<Vec<Entry>> {
        self.inner.list()
    }

    fn open(&self, name: &str) -> io::Result<DiskFile> {
        Ok(self.file(name, self.inner.open(name)?))
    }

    fn create_file(&self, name: &str) -> io::Result<DiskFile> {
        Ok(self.file(name, self.inner.create_file(name)?))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.inner.remove(name)
    }

    fn remove_all(&self, name: &str) -> io::Result<()> {
        self.inner.remove_all(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn link(&self, name: &str, to: &Self, as_name: &str) -> io::Result<()> {
        self.inner.link(name, &to.inner, as_name)
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }

    fn sync_parent(&self) -> io::Result<()> {
        self.inner.sync_parent()
    }

    fn lock(&self, name: &str) -> io::Result<Option<Self::Lock>> {
        self.inner.lock(name)
    }

    fn boot_id(&self) -> io::Result<String> {
        self.inner.boot_id()
    }
}

impl DirFile for DiskFile {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        self.inner.read_at(buf, at)
    }

    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<()> {
        self.inner.write_at(buf, at)
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.deaf {
            return Ok(());
        }
        self.inner.sync_data()
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.inner.allocate(len)
    }
}
