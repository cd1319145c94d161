//! A directory whose kind is chosen when a process starts: the disk in production, its lossy twin in a simulation.
//! Law: passes everything on and decides nothing. A call more for each system call is what the choice costs.

use std::any::Any;
use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::dir::{Dir, DirFile, Entry};

/// A directory of any kind.
#[derive(Clone, Debug)]
pub struct AnyDir(Arc<dyn Directory>);

/// An open file of any kind.
#[derive(Debug)]
pub struct AnyFile(Box<dyn DirFile>);

/// A lock of any kind.
#[derive(Debug)]
pub struct AnyLock {
    _lock: Box<dyn Lock>,
}

trait Lock: Send + Sync + Debug {}

impl<L: Send + Sync + Debug> Lock for L {}

/// [`Dir`] without its associated types.
trait Directory: Send + Sync + Debug {
    fn path(&self) -> String;
    fn subdirectory(&self, name: &str) -> AnyDir;
    fn create(&self) -> io::Result<bool>;
    fn exists(&self) -> io::Result<bool>;
    fn list(&self) -> io::Result<Vec<Entry>>;
    fn open(&self, name: &str) -> io::Result<AnyFile>;
    fn create_file(&self, name: &str) -> io::Result<AnyFile>;
    fn remove(&self, name: &str) -> io::Result<()>;
    fn remove_all(&self, name: &str) -> io::Result<()>;
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    fn link(&self, name: &str, to: &AnyDir, as_name: &str) -> io::Result<()>;
    fn sync(&self) -> io::Result<()>;
    fn sync_parent(&self) -> io::Result<()>;
    fn lock(&self, name: &str) -> io::Result<Option<AnyLock>>;
    fn boot_id(&self) -> io::Result<String>;
    fn as_any(&self) -> &dyn Any;
}

impl<D: Dir> Directory for D {
    fn path(&self) -> String {
        Dir::path(self)
    }

    fn subdirectory(&self, name: &str) -> AnyDir {
        AnyDir::new(Dir::subdirectory(self, name))
    }

    fn create(&self) -> io::Result<bool> {
        Dir::create(self)
    }

    fn exists(&self) -> io::Result<bool> {
        Dir::exists(self)
    }

    fn list(&self) -> io::Result<Vec<Entry>> {
        Dir::list(self)
    }

    fn open(&self, name: &str) -> io::Result<AnyFile> {
        Ok(AnyFile(Box::new(Dir::open(self, name)?)))
    }

    fn create_file(&self, name: &str) -> io::Result<AnyFile> {
        Ok(AnyFile(Box::new(Dir::create_file(self, name)?)))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        Dir::remove(self, name)
    }

    fn remove_all(&self, name: &str) -> io::Result<()> {
        Dir::remove_all(self, name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Dir::rename(self, from, to)
    }

    fn link(&self, name: &str, to: &AnyDir, as_name: &str) -> io::Result<()> {
        match to.0.as_any().downcast_ref::<D>() {
            Some(to) => Dir::link(self, name, to, as_name),
            None => Err(io::ErrorKind::CrossesDevices.into()),
        }
    }

    fn sync(&self) -> io::Result<()> {
        Dir::sync(self)
    }

    fn sync_parent(&self) -> io::Result<()> {
        Dir::sync_parent(self)
    }

    fn lock(&self, name: &str) -> io::Result<Option<AnyLock>> {
        let lock = Dir::lock(self, name)?;
        Ok(lock.map(|lock| AnyLock {
            _lock: Box::new(lock),
        }))
    }

    fn boot_id(&self) -> io::Result<String> {
        Dir::boot_id(self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl AnyDir {
    /// The same directory, its kind forgotten.
    pub fn new(dir: impl Dir) -> Self {
        Self(Arc::new(dir))
    }

    /// Where it is in the file system, if it is there at all.
    pub fn as_path(&self) -> Option<&Path> {
        let real = self.0.as_any().downcast_ref::<crate::RealDir>();
        real.map(crate::RealDir::as_path)
    }
}

impl Dir for AnyDir {
    type File = AnyFile;
    type Lock = AnyLock;

    fn path(&self) -> String {
        self.0.path()
    }

    fn subdirectory(&self, name: &str) -> Self {
        self.0.subdirectory(name)
    }

    fn create(&self) -> io::Result<bool> {
        self.0.create()
    }

    fn exists(&self) -> io::Result<bool> {
        self.0.exists()
    }

    fn list(&self) -> io::Result<Vec<Entry>> {
        self.0.list()
    }

    fn open(&self, name: &str) -> io::Result<AnyFile> {
        self.0.open(name)
    }

    fn create_file(&self, name: &str) -> io::Result<AnyFile> {
        self.0.create_file(name)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }

    fn remove_all(&self, name: &str) -> io::Result<()> {
        self.0.remove_all(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn link(&self, name: &str, to: &Self, as_name: &str) -> io::Result<()> {
        self.0.link(name, to, as_name)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn sync_parent(&self) -> io::Result<()> {
        self.0.sync_parent()
    }

    fn lock(&self, name: &str) -> io::Result<Option<AnyLock>> {
        self.0.lock(name)
    }

    fn boot_id(&self) -> io::Result<String> {
        self.0.boot_id()
    }
}

impl DirFile for AnyFile {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        self.0.read_at(buf, at)
    }

    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<()> {
        self.0.write_at(buf, at)
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.0.allocate(len)
    }

    fn read_up_to(&self, wanted: usize, at: u64) -> io::Result<Vec<u8>> {
        self.0.read_up_to(wanted, at)
    }
}
