//! The one door to the disk: a directory, the files in it, and what it takes to make either durable.
//! Law: positioned reads and writes only, no mmap; nothing here decides anything. [`RealDir`] is the disk, and
//! [`crate::SimDir`] its lossy twin; both pass the same conformance suite.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::buffer::spare_capacity;
use rustix::io::Errno;

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The name, without its directory.
    pub name: String,
    /// Whether it is a directory itself.
    pub is_dir: bool,
}

/// A directory. A handle is cheap to clone and says nothing about whether the directory exists.
pub trait Dir: Clone + Send + Sync + Debug + 'static {
    /// An open file of this directory.
    type File: DirFile;
    /// An exclusive lock, held until it is dropped or the process ends.
    type Lock: Send + Sync + Debug + 'static;

    /// Where it is, for messages.
    fn path(&self) -> String;
    /// The directory called `name` inside this one.
    fn subdirectory(&self, name: &str) -> Self;
    /// Makes the directory and those above it; `true` if it did not exist. Durable after `sync_parent`.
    fn create(&self) -> io::Result<bool>;
    /// Whether the directory exists.
    fn exists(&self) -> io::Result<bool>;
    /// Every name in it, in the order of the names.
    fn list(&self) -> io::Result<Vec<Entry>>;
    /// Opens a file that exists, for reading and writing.
    fn open(&self, name: &str) -> io::Result<Self::File>;
    /// Creates a file, or empties the one that is there. The name is durable after `sync`.
    fn create_file(&self, name: &str) -> io::Result<Self::File>;
    /// Removes a file; its name is gone for good after `sync`.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Removes the directory called `name` and all it holds.
    fn remove_all(&self, name: &str) -> io::Result<()>;
    /// Renames a file or directory, replacing a file called `to`; durable after `sync`.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Gives a file a second name, `as_name` in the directory `to`: the same bytes under both, until one of them is removed.
    /// The name is durable after `to.sync`. Not every file system can.
    fn link(&self, name: &str, to: &Self, as_name: &str) -> io::Result<()>;
    /// Makes the names in this directory durable.
    fn sync(&self) -> io::Result<()>;
    /// Makes this directory's own name durable.
    fn sync_parent(&self) -> io::Result<()>;
    /// Takes the exclusive lock called `name`; `None` if somebody else holds it.
    fn lock(&self, name: &str) -> io::Result<Option<Self::Lock>>;
    /// What the running kernel is called since it booted: the page cache lives as long as this.
    fn boot_id(&self) -> io::Result<String>;

    /// The whole of a small file; `None` if there is none.
    fn read_file(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let file = match self.open(name) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(Some(file.read_up_to(file.len()? as usize, 0)?))
    }
}

/// An open file.
pub trait DirFile: Send + Sync + Debug + 'static {
    /// Reads at a position; fewer bytes than asked for only at the end or by the system's whim, 0 at the end.
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize>;
    /// Writes all of `buf` at a position, growing the file if need be.
    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<()>;
    /// The file's length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Cuts or grows the file; new bytes are zero.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Makes everything written to the file so far durable, and its length. Never call it again after an error.
    fn sync_data(&self) -> io::Result<()>;
    /// Reserves space up to `len`, so that a later sync need not. The file stays as long as it is: whoever reads a log while it
    /// is being written finds its last batch at the end.
    fn allocate(&self, len: u64) -> io::Result<()>;

    /// Reads until `buf` is full or the file ends; how many bytes were read.
    fn read_full_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match self.read_at(&mut buf[done..], at + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// The `wanted` bytes from a position on, or those up to the end of the file.
    fn read_up_to(&self, wanted: usize, at: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; wanted];
        let read = self.read_full_at(&mut bytes, at)?;
        bytes.truncate(read);
        Ok(bytes)
    }
}

/// A directory of the file system.
#[derive(Clone, Debug)]
pub struct RealDir {
    path: PathBuf,
}

impl RealDir {
    /// The directory at `path`, whether it exists or not.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Where it is.
    pub fn as_path(&self) -> &Path {
        &self.path
    }
}

impl Dir for RealDir {
    type File = RealFile;
    type Lock = RealLock;

    fn path(&self) -> String {
        self.path.display().to_string()
    }

    fn subdirectory(&self, name: &str) -> Self {
        Self::new(self.path.join(name))
    }

    fn create(&self) -> io::Result<bool> {
        if self.path.is_dir() {
            return Ok(false);
        }
        fs::create_dir_all(&self.path)?;
        Ok(true)
    }

    fn exists(&self) -> io::Result<bool> {
        self.path.try_exists()
    }

    fn list(&self) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            // A name that is not UTF-8 cannot be one of ours.
            if let Ok(name) = entry.file_name().into_string() {
                entries.push(Entry {
                    name,
                    is_dir: entry.file_type()?.is_dir(),
                });
            }
        }
        entries.sort();
        Ok(entries)
    }

    fn open(&self, name: &str) -> io::Result<RealFile> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(self.path.join(name))?;
        Ok(RealFile { file })
    }

    fn create_file(&self, name: &str) -> io::Result<RealFile> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(self.path.join(name))?;
        Ok(RealFile { file })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn remove_all(&self, name: &str) -> io::Result<()> {
        fs::remove_dir_all(self.path.join(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn link(&self, name: &str, to: &Self, as_name: &str) -> io::Result<()> {
        fs::hard_link(self.path.join(name), to.path.join(as_name))
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    fn sync_parent(&self) -> io::Result<()> {
        match self.path.parent() {
            Some(parent) if parent.as_os_str().is_empty() => File::open(".")?.sync_all(),
            Some(parent) => File::open(parent)?.sync_all(),
            None => Ok(()),
        }
    }

    fn lock(&self, name: &str) -> io::Result<Option<RealLock>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.path.join(name))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(RealLock { _file: file })),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }

    fn boot_id(&self) -> io::Result<String> {
        Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?
            .trim()
            .to_owned())
    }
}

/// An open file of the file system.
#[derive(Debug)]
pub struct RealFile {
    file: File,
}

/// An exclusive lock (`flock`), released by the kernel when the process ends, however it ends.
#[derive(Debug)]
pub struct RealLock {
    _file: File,
}

impl DirFile for RealFile {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        self.file.read_at(buf, at)
    }

    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<()> {
        self.file.write_all_at(buf, at)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        rustix::fs::fallocate(&self.file, rustix::fs::FallocateFlags::KEEP_SIZE, 0, len)?;
        Ok(())
    }

    /// Into memory that nobody has written zeros to before.
    fn read_up_to(&self, wanted: usize, at: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(wanted);
        while bytes.len() < wanted {
            let position = at + bytes.len() as u64;
            match rustix::io::pread(&self.file, spare_capacity(&mut bytes), position) {
                Ok(0) => break,
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // The memory may have room for more than was wanted.
        bytes.truncate(wanted);
        Ok(bytes)
    }
}

impl<F: DirFile> DirFile for std::sync::Arc<F> {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        (**self).read_at(buf, at)
    }

    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<()> {
        (**self).write_at(buf, at)
    }

    fn len(&self) -> io::Result<u64> {
        (**self).len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        (**self).set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        (**self).sync_data()
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        (**self).allocate(len)
    }

    fn read_up_to(&self, wanted: usize, at: u64) -> io::Result<Vec<u8>> {
        (**self).read_up_to(wanted, at)
    }
}

#[cfg(test)]
mod tests;
