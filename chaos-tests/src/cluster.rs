//! A local cluster of real processes, driven through the very script that `make up` and `make kill-broker` use.
//! Law: no second way to start or to end a process.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail};

/// Three nodes, six processes, in a directory of their own.
#[derive(Debug)]
pub struct LocalCluster {
    directory: PathBuf,
    port_base: u16,
    binaries: PathBuf,
    delete_on_drop: bool,
    hosts: String,
}

/// Which process, or both of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    Broker(i32),
    Controller(i32),
    Node(i32),
}

impl std::fmt::Display for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [role, id] = self.words();
        write!(f, "{role} {id}")
    }
}

impl Process {
    fn words(self) -> [String; 2] {
        let (role, id) = match self {
            Self::Broker(id) => ("broker", id),
            Self::Controller(id) => ("controller", id),
            Self::Node(id) => ("node", id),
        };
        [role.to_owned(), id.to_string()]
    }
}

/// Where a program's cluster lives, by the names that `make up` has for it.
#[derive(Clone, Debug, clap::Args)]
pub struct Place {
    /// Where the cluster's data lives; a folder of the program's own if left out.
    #[arg(long, env = "CLUSTER_DIR")]
    folder: Option<PathBuf>,
    /// The first port; one of the program's own if left out.
    #[arg(long, env = "PORT_BASE")]
    port_base: Option<u16>,
    /// Settings of all six processes: "key=value …".
    #[arg(long, env = "SET", default_value = "")]
    pub set: String,
}

impl Place {
    /// The cluster there; `folder` and `port_base` are what is taken if nobody says otherwise.
    ///
    /// # Errors
    /// If the programs to run cannot be found.
    pub fn cluster(&self, folder: &str, port_base: u16) -> Result<LocalCluster> {
        let folder = self.folder.clone().unwrap_or_else(|| folder.into());
        let binaries = LocalCluster::built_binaries()?;
        let port_base = self.port_base.unwrap_or(port_base);
        Ok(LocalCluster::at(folder, port_base, binaries))
    }
}

impl LocalCluster {
    /// A cluster kept in `directory`, whose programs are in `binaries`. Nothing is started yet.
    #[must_use]
    pub fn at(directory: impl Into<PathBuf>, port_base: u16, binaries: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            port_base,
            binaries: binaries.into(),
            delete_on_drop: false,
            hosts: String::new(),
        }
    }

    /// The same, each node on a host of its own: `ip=namespace` for each, as `deploy/cluster.sh` takes it.
    #[must_use]
    pub fn on_hosts(mut self, hosts: impl Into<String>) -> Self {
        self.hosts = hosts.into();
        self
    }

    /// The same, for a test: everything ends and is deleted when this value goes.
    #[must_use]
    pub fn for_test(mut self) -> Self {
        self.delete_on_drop = true;
        self
    }

    /// The folder of the running program, where cargo also puts the brokers and the controllers (one up for tests).
    ///
    /// # Errors
    /// When the system does not say where this program is.
    pub fn built_binaries() -> Result<PathBuf> {
        let me = std::env::current_exe().context("where is this program?")?;
        let folder = me.parent().context("a program lies in a folder")?;
        Ok(if folder.ends_with("deps") {
            folder
                .parent()
                .context("cargo's deps folder lies in another")?
                .to_owned()
        } else {
            folder.to_owned()
        })
    }

    /// Starts all six and waits until the cluster is healthy. `set` is a list of `key=value`.
    ///
    /// # Errors
    /// With the script's own words.
    pub fn up(&self, set: &str) -> Result<()> {
        self.script(&["up"], set).map(drop)
    }

    /// SIGKILL; returns when the process is gone.
    ///
    /// # Errors
    /// When it does not run, or does not go.
    pub fn kill(&self, process: Process) -> Result<()> {
        self.act("kill", process)
    }

    /// SIGKILL to several at the same moment; returns when all are gone.
    ///
    /// # Errors
    /// When one does not run, and then none is killed, or does not go.
    pub fn kill_all(&self, processes: &[Process]) -> Result<()> {
        let victims: Vec<String> = processes.iter().flat_map(|one| one.words()).collect();
        let words: Vec<&str> = std::iter::once("kill")
            .chain(victims.iter().map(String::as_str))
            .collect();
        self.script(&words, "").map(drop)
    }

    /// SIGTERM; returns when the process has ended by itself.
    ///
    /// # Errors
    /// When it does not end within a minute.
    pub fn stop(&self, process: Process) -> Result<()> {
        self.act("stop", process)
    }

    /// Starts a process that is not running; returns when its ports are bound.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn start(&self, process: Process) -> Result<()> {
        self.act("start", process)
    }

    /// SIGSTOP.
    ///
    /// # Errors
    /// When it does not run.
    pub fn pause(&self, process: Process) -> Result<()> {
        self.act("pause", process)
    }

    /// SIGCONT.
    ///
    /// # Errors
    /// When it does not run.
    pub fn resume(&self, process: Process) -> Result<()> {
        self.act("resume", process)
    }

    /// One more broker, beside the three nodes: `id` is 4 to 9. Returns when its ports are bound.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn add_broker(&self, id: i32) -> Result<()> {
        self.script(&["add", "broker", &id.to_string()], "")
            .map(drop)
    }

    /// The folder in which a broker keeps its partitions.
    #[must_use]
    pub fn broker_data(&self, id: i32) -> PathBuf {
        self.directory.join(format!("broker-{id}")).join("data")
    }

    /// Deletes a stopped broker's data.
    ///
    /// # Errors
    /// When it still runs.
    pub fn wipe_broker(&self, id: i32) -> Result<()> {
        self.script(&["wipe", "broker", &id.to_string()], "")
            .map(drop)
    }

    /// SIGTERM to all six; returns when they have ended by themselves. The data stays.
    ///
    /// # Errors
    /// When one does not end within a minute.
    pub fn down(&self) -> Result<()> {
        self.script(&["down"], "").map(drop)
    }

    /// Kills whatever runs and deletes everything.
    ///
    /// # Errors
    /// With the script's own words.
    pub fn clean(&self) -> Result<()> {
        self.script(&["clean"], "").map(drop)
    }

    /// Where clients connect: host:port, all brokers, comma separated.
    ///
    /// # Errors
    /// With the script's own words.
    pub fn bootstrap(&self) -> Result<String> {
        self.env("KUORUM_BOOTSTRAP")
    }

    /// The admin API of every controller, as URLs.
    ///
    /// # Errors
    /// With the script's own words.
    pub fn admin(&self) -> Result<Vec<String>> {
        Ok(self
            .env("KUORUM_ADMIN")?
            .split(',')
            .map(str::to_owned)
            .collect())
    }

    /// What a call of make must say to mean this cluster: ` CLUSTER_DIR=…`, or nothing where it is the usual one.
    ///
    /// # Errors
    /// With the script's own words.
    pub fn make_variables(&self) -> Result<String> {
        Ok(self.script(&["variables"], "")?.trim_end().to_owned())
    }

    /// The folder this cluster is kept in.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// What a process keeps: its configuration, its log, its data. A node has two such folders.
    #[must_use]
    pub fn homes(&self, process: Process) -> Vec<PathBuf> {
        let folder = |role: &str, id: i32| self.directory.join(format!("{role}-{id}"));
        match process {
            Process::Broker(id) => vec![folder("broker", id)],
            Process::Controller(id) => vec![folder("controller", id)],
            Process::Node(id) => vec![folder("controller", id), folder("broker", id)],
        }
    }

    fn env(&self, name: &str) -> Result<String> {
        let lines = self.script(&["env"], "")?;
        lines
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
            .map(str::to_owned)
            .with_context(|| format!("`make env` does not name {name}"))
    }

    fn act(&self, verb: &str, process: Process) -> Result<()> {
        let [role, id] = process.words();
        self.script(&[verb, &role, &id], "").map(drop)
    }

    fn script(&self, words: &[&str], set: &str) -> Result<String> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/cluster.sh");
        let Output {
            status,
            stdout,
            stderr,
        } = Command::new("bash")
            .arg(script)
            .args(words)
            .env("CLUSTER_DIR", &self.directory)
            .env("PORT_BASE", self.port_base.to_string())
            .env("BIN_DIR", &self.binaries)
            .env("SET", set)
            .env("HOSTS", &self.hosts)
            .stdin(Stdio::null())
            .output()
            .context("bash is needed to drive a local cluster")?;
        if !status.success() {
            bail!(
                "cluster.sh {}: {}",
                words.join(" "),
                String::from_utf8_lossy(&stderr).trim()
            );
        }
        Ok(String::from_utf8_lossy(&stdout).into_owned())
    }
}

impl Drop for LocalCluster {
    fn drop(&mut self) {
        if self.delete_on_drop
            && let Err(problem) = self.clean()
        {
            eprintln!("could not clean up {}: {problem}", self.directory.display());
        }
    }
}
