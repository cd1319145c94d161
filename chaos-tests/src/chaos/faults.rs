//! What may happen to processes, hosts, disks and clocks. Each fault is noted in the history when it begins and when it ends.
//! Law: processes are ended and started by the cluster's own script, hosts cut apart by [`Network`]; disks and clocks fail by the
//! files that programs of the chaos build look at, but for a disk that is full: it is one.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::history::{Event, History};
use super::network::Network;
use crate::cluster::{LocalCluster, Process};

/// The one who hurts a cluster.
#[derive(Debug)]
pub struct Faults {
    pub(crate) cluster: LocalCluster,
    network: Option<Network>,
    history: History,
}

/// What a power cut took from all processes together.
#[derive(Clone, Copy, Debug, Default)]
pub struct PowerCut {
    /// Changes that were not durable when the power went.
    pub pending: usize,
    /// How many of them are undone.
    pub undone: usize,
    /// Bytes at the ends of files that are gone.
    pub bytes_lost: u64,
    /// Writes that are half there.
    pub torn: usize,
}

/// What takes the room of a disk that is full.
const FILLER: &str = "filler";

/// Runs a program of the system.
fn run(program: &str, words: &[&str]) -> Result<()> {
    let done = Command::new(program).args(words).output();
    let done = done.with_context(|| format!("{program} is needed"))?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(
        done.status.success(),
        "{program} {}: {}",
        words.join(" "),
        said.trim()
    );
    Ok(())
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is text")
}

/// Runs something that blocks without holding up the streams.
fn blocking<R>(act: impl FnOnce() -> R) -> R {
    tokio::task::block_in_place(act)
}

impl Faults {
    /// Over this cluster; `network` if its nodes are hosts.
    #[must_use]
    pub fn new(cluster: LocalCluster, network: Option<Network>, history: History) -> Self {
        Self {
            cluster,
            network,
            history,
        }
    }

    /// Whether each node is a host of its own.
    #[must_use]
    pub fn has_hosts(&self) -> bool {
        self.network.is_some()
    }

    fn note(&self, fault: &str, target: &dyn std::fmt::Display, begins: bool) {
        self.history.note(Event::Fault {
            fault: fault.to_owned(),
            target: target.to_string(),
            begins,
        });
    }

    /// SIGKILL.
    ///
    /// # Errors
    /// When it does not run.
    pub fn kill(&self, process: Process) -> Result<()> {
        self.note("down", &process, true);
        blocking(|| self.cluster.kill(process))
    }

    /// SIGKILL to several at the same moment.
    ///
    /// # Errors
    /// When one does not run.
    pub fn kill_all(&self, processes: &[Process]) -> Result<()> {
        for process in processes {
            self.note("down", &process, true);
        }
        blocking(|| self.cluster.kill_all(processes))
    }

    /// SIGTERM; returns when it has ended by itself.
    ///
    /// # Errors
    /// When it does not end.
    pub fn stop(&self, process: Process) -> Result<()> {
        self.note("down", &process, true);
        blocking(|| self.cluster.stop(process))
    }

    /// Starts it.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn start(&self, process: Process) -> Result<()> {
        let started = blocking(|| self.cluster.start(process));
        self.note("down", &process, false);
        started
    }

    /// Starts several, one after the other.
    ///
    /// # Errors
    /// When one does not come up.
    pub fn start_all(&self, processes: &[Process]) -> Result<()> {
        processes
            .iter()
            .try_for_each(|process| self.start(*process))
    }

    /// SIGSTOP.
    ///
    /// # Errors
    /// When it does not run.
    pub fn pause(&self, process: Process) -> Result<()> {
        self.note("paused", &process, true);
        blocking(|| self.cluster.pause(process))
    }

    /// SIGCONT.
    ///
    /// # Errors
    /// When it does not run.
    pub fn resume(&self, process: Process) -> Result<()> {
        let resumed = blocking(|| self.cluster.resume(process));
        self.note("paused", &process, false);
        resumed
    }

    /// What node `from` sends to node `to` is lost.
    ///
    /// # Errors
    /// When the nodes are not hosts.
    pub fn cut(&self, from: i32, to: i32) -> Result<()> {
        self.note("cut", &format!("{from} → {to}"), true);
        self.hosts()?.cut(from, to)
    }

    /// What node `from` sends to node `to` arrives again.
    ///
    /// # Errors
    /// When the nodes are not hosts.
    pub fn mend(&self, from: i32, to: i32) -> Result<()> {
        self.note("cut", &format!("{from} → {to}"), false);
        self.hosts()?.mend(from, to)
    }

    fn hosts(&self) -> Result<&Network> {
        self.network
            .as_ref()
            .context("the nodes of this cluster are no hosts of their own")
    }

    /// Takes node `id` out of the others' sight, and them out of its. Where nodes are no hosts its broker is paused instead.
    ///
    /// # Errors
    /// When that is refused.
    pub fn separate(&self, id: i32) -> Result<()> {
        if !self.has_hosts() {
            return self.pause(Process::Broker(id));
        }
        for other in (1..=3).filter(|other| *other != id) {
            self.cut(id, other)?;
            self.cut(other, id)?;
        }
        Ok(())
    }

    /// Ends [`separate`](Self::separate).
    ///
    /// # Errors
    /// When that is refused.
    pub fn join(&self, id: i32) -> Result<()> {
        if !self.has_hosts() {
            return self.resume(Process::Broker(id));
        }
        for other in (1..=3).filter(|other| *other != id) {
            self.mend(id, other)?;
            self.mend(other, id)?;
        }
        Ok(())
    }

    /// The disk of a stopped broker is replaced by an empty one.
    ///
    /// # Errors
    /// When it still runs.
    pub fn wipe(&self, broker: i32) -> Result<()> {
        self.note("wiped", &Process::Broker(broker), true);
        self.note("wiped", &Process::Broker(broker), false);
        self.new_laboratory(broker)?;
        blocking(|| self.cluster.wipe_broker(broker))
    }

    /// The data of a stopped broker moves to a disk of its own, of so many MiB. Only inside the sandbox: the mount ends with it.
    /// Nobody watches that disk: it forgets nothing and fails by no order.
    ///
    /// # Errors
    /// When that disk cannot be made.
    pub fn small_disk(&self, broker: i32, mib: u32) -> Result<()> {
        let data = self.cluster.broker_data(broker);
        let kept = data.with_extension("kept");
        fs::rename(&data, &kept)?;
        fs::create_dir(&data)?;
        let size = format!("size={mib}m");
        run("mount", &["-t", "tmpfs", "-o", &size, "none", text(&data)?])?;
        run("cp", &["-a", text(&kept.join("."))?, text(&data)?])?;
        fs::remove_dir_all(kept)?;
        let laboratory = self.laboratory(Process::Broker(broker));
        if laboratory.is_dir() {
            fs::remove_dir_all(laboratory)?;
        }
        Ok(())
    }

    /// Takes the last byte of room on a small disk.
    ///
    /// # Errors
    /// When it cannot be filled.
    pub fn fill(&self, broker: i32) -> Result<()> {
        self.note("full", &Process::Broker(broker), true);
        let mut filler = File::create(self.cluster.broker_data(broker).join(FILLER))?;
        let bytes = vec![0; 64 * 1024];
        loop {
            match filler.write(&bytes) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Gives the room back.
    ///
    /// # Errors
    /// When it was not taken.
    pub fn make_room(&self, broker: i32) -> Result<()> {
        fs::remove_file(self.cluster.broker_data(broker).join(FILLER))?;
        self.note("full", &Process::Broker(broker), false);
        Ok(())
    }

    /// The data of a stopped broker moves back from its small disk.
    ///
    /// # Errors
    /// When something there is still in use.
    pub fn usual_disk(&self, broker: i32) -> Result<()> {
        let data = self.cluster.broker_data(broker);
        let kept = data.with_extension("kept");
        fs::create_dir(&kept)?;
        run("cp", &["-a", text(&data.join("."))?, text(&kept)?])?;
        run("umount", &[text(&data)?])?;
        fs::remove_dir(&data)?;
        fs::rename(&kept, &data)?;
        Ok(fs::create_dir(self.laboratory(Process::Broker(broker)))?)
    }

    /// What a stopped broker's laboratory knows of its files is of other files.
    fn new_laboratory(&self, broker: i32) -> Result<()> {
        let laboratory = self.laboratory(Process::Broker(broker));
        if laboratory.is_dir() {
            fs::remove_dir_all(&laboratory)?;
            fs::create_dir(&laboratory)?;
        }
        Ok(())
    }

    /// The power of these processes goes: they are gone at the same moment, and with them what was not synced, as the seed decides.
    ///
    /// # Errors
    /// When the programs are not those of the chaos build.
    pub fn cut_power(&self, processes: &[Process], seed: u64) -> Result<PowerCut> {
        for process in processes {
            self.note("no power", &process, true);
        }
        self.kill_all(processes)?;
        let homes = processes
            .iter()
            .flat_map(|process| self.cluster.homes(*process));
        let mut all = PowerCut::default();
        for (home, number) in homes.zip(0..) {
            let cut = forget_unsynced(&home.join("chaos"), seed.wrapping_mul(31) + number)
                .with_context(|| home.display().to_string())?;
            all.pending += cut.pending;
            all.undone += cut.undone;
            all.bytes_lost += cut.bytes_lost;
            all.torn += cut.torn;
        }
        for process in processes {
            self.note("no power", &process, false);
        }
        Ok(all)
    }

    /// From now on the disk of a process fails as these lines say (`broker/storage/src/chaos_dir.rs`); with none it is well again.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn disk(&self, process: Process, lines: &str) -> Result<()> {
        let name = format!("disk: {}", lines.trim());
        let file = self.laboratory(process).join("faults");
        if lines.is_empty() {
            self.note("disk", &process, false);
        } else {
            self.note(&name, &process, true);
            self.note(&name, &process, false);
            self.note("disk", &process, true);
        }
        // A reader sees the old text or the new one.
        let temporary = file.with_extension("tmp");
        fs::write(&temporary, lines)?;
        Ok(fs::rename(temporary, file)?)
    }

    /// From now on the wall clock of a process is off by so much.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn clock(&self, process: Process, millis: i64) -> Result<()> {
        self.note("clock", &process, millis != 0);
        let file = self.laboratory(process).join("clock-offset-ms");
        Ok(fs::write(file, millis.to_string())?)
    }

    /// What a process keeps.
    #[must_use]
    pub fn homes(&self, process: Process) -> Vec<PathBuf> {
        self.cluster.homes(process)
    }

    fn laboratory(&self, process: Process) -> PathBuf {
        self.cluster.homes(process).remove(0).join("chaos")
    }
}

#[cfg(feature = "chaos")]
fn forget_unsynced(home: &Path, seed: u64) -> Result<PowerCut> {
    let cut = kuorum_storage::chaos_dir::cut_power(home, seed, false)?;
    Ok(PowerCut {
        pending: cut.pending,
        undone: cut.undone,
        bytes_lost: cut.bytes_lost,
        torn: cut.torn,
    })
}

#[cfg(not(feature = "chaos"))]
fn forget_unsynced(_: &Path, _: u64) -> Result<PowerCut> {
    anyhow::bail!("only programs of the chaos build forget what was not synced: `make chaos-build`")
}
