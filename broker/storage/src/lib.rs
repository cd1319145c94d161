//! One partition's log on disk: segments, indexes, epochs, producer state, group commit, and what a restart makes of them.
//! Law: synchronous, no async runtime and no clock. Every byte passes through [`Dir`]; nothing is durable before a flush
//! that began after it was written; an IO error is final for the log and for the directory it happened in.

pub mod any_dir;
#[cfg(feature = "chaos")]
pub mod chaos_dir;
pub mod checkpoint;
pub mod config;
pub mod dir;
mod entry_file;
pub mod error;
pub mod flush;
pub mod leader_epochs;
pub mod log;
pub mod log_dirs;
mod mark;
pub mod meta_properties;
mod offset_index;
pub mod producer_state;
pub mod recovery;
mod retention;
pub mod salvage;
mod scan;
mod segment;
mod segments;
pub mod sim_dir;
mod time_index;

pub use any_dir::{AnyDir, AnyFile, AnyLock};
#[cfg(feature = "chaos")]
pub use chaos_dir::ChaosDir as RealDir;
pub use checkpoint::write_atomically;
pub use config::{LogConfig, TimestampType};
#[cfg(not(feature = "chaos"))]
pub use dir::RealDir;
pub use dir::{Dir, DirFile, Entry};
pub use error::{AppendError, LogError, ReadError, StorageFailure};
pub use flush::{DueFlush, FlushHandle, FlushJob, Flushable, Flusher, Flushes};
pub use leader_epochs::{EpochEntry, LeaderEpochs};
pub use log::{AppendInfo, Known, Log, RecoveryPoint, SegmentInfo};
pub use log_dirs::{DirHealth, FoundLog, LogDirs, LogDirsError, PutAside};
pub use meta_properties::MetaProperties;
pub use producer_state::ProducerStates;
pub use recovery::{Corruption, Recovery, TornTail};
pub use sim_dir::SimDir;
