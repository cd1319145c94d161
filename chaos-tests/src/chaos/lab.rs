//! A cluster under test, from its first process to the verdict: the place where a scenario happens.
//! Law: it always ends the same way: everything is mended, read from the beginning, stopped, and its disks compared.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kuorum_admin_api::{BrokerState, CreateTopic, Partition};

use super::checkers::{self, FINAL, Loss, Run, Verdict};
use super::faults::Faults;
use super::history::{Entry, Event, History, Outcome};
use super::network::Network;
use super::watch::{self, Watching};
use super::workload::{self, Following, Stream, Waiting, Writing};
use crate::admin::Admin;
use crate::cluster::{LocalCluster, Process};

/// How long anything may take that is not itself measured.
pub const SETTLE: Duration = Duration::from_secs(90);

/// Where and how a scenario runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// Each run is kept in a folder below this one.
    pub folder: PathBuf,
    pub port_base: u16,
    pub binaries: PathBuf,
    pub seed: u64,
    /// The story's sizes and times are divided by this.
    pub scale: u64,
    /// Whether each node is a host of its own.
    pub hosts: bool,
}

/// A cluster under test.
#[derive(Debug)]
pub struct Lab {
    pub faults: Faults,
    pub admin: Admin,
    pub history: History,
    pub seed: u64,
    pub scale: u64,
    bootstrap: String,
    /// When the history began, in milliseconds since 1970.
    wall: f64,
    topics: Mutex<Vec<(String, i32)>>,
    allowed: Mutex<Vec<Loss>>,
    repeating: Mutex<Vec<Arc<str>>>,
    watching: Mutex<Vec<Watching>>,
    following: Mutex<Vec<Following>>,
}

/// How a run ended.
#[derive(Debug)]
pub struct Ended {
    pub entries: Vec<Entry>,
    pub verdicts: Vec<Verdict>,
    /// The longest time between two acknowledgements while a stream was under way.
    pub longest_pause: Duration,
    pub acknowledged: usize,
    pub unknown: usize,
    pub failed: usize,
}

impl Lab {
    /// Brings up a new cluster. `set` is what its processes are configured with beside the defaults.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn begin(scenario: &str, set: &str, options: &Options) -> Result<Self> {
        let directory = options.folder.join(scenario);
        let network = match options.hosts {
            true => Some(Network::build()?),
            false => None,
        };
        let hosts = network.as_ref().map(Network::hosts).unwrap_or_default();
        let cluster = LocalCluster::at(&directory, options.port_base, &options.binaries)
            .on_hosts(hosts)
            .for_test();
        if directory.join("port_base").exists() {
            cluster.clean()?;
        } else if directory.exists() {
            std::fs::remove_dir_all(&directory)?;
        }
        for process in every_process() {
            for home in cluster.homes(process) {
                std::fs::create_dir_all(home.join("chaos"))?;
            }
        }
        let allow = match network {
            // Hosts of the bridge can be reached by nobody but this machine.
            Some(_) => "admin.allow.unauthenticated=true",
            None => "",
        };
        tokio::task::block_in_place(|| cluster.up(&format!("log.format=json {allow} {set}")))?;
        let history = History::default();
        let wall = watch::wall_clock();
        history.note(Event::Began {
            scenario: scenario.to_owned(),
            seed: options.seed,
            scale: options.scale,
            hosts: network.is_some(),
        });
        Ok(Self {
            admin: Admin::new(cluster.admin()?)?,
            bootstrap: cluster.bootstrap()?,
            faults: Faults::new(cluster, network, history.clone()),
            history,
            wall,
            seed: options.seed,
            scale: options.scale,
            topics: Mutex::default(),
            allowed: Mutex::default(),
            repeating: Mutex::default(),
            watching: Mutex::default(),
            following: Mutex::default(),
        })
    }

    /// Where clients connect.
    #[must_use]
    pub fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// Tells the next step of the story.
    pub fn step(&self, text: impl Into<String>) {
        self.history.note(Event::Step { text: text.into() });
    }

    /// Makes a topic with min.insync.replicas=2 unless told otherwise, and watches it: its partitions, a reader and a client that
    /// asks for its end.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn topic(
        &self,
        name: &str,
        partitions: i32,
        replicas: i16,
        configs: &[(&str, &str)],
    ) -> Result<()> {
        self.quiet_topic(name, partitions, replicas, configs)
            .await?;
        let bootstrap = self.bootstrap();
        let history = || self.history.clone();
        let watching = watch::partitions(self.admin.clone(), name, history());
        lock(&self.watching).push(watching);
        let reader = workload::follow(bootstrap, "live", name, partitions, history())?;
        let asker = workload::ask_latest(bootstrap, name, partitions, history())?;
        lock(&self.following).extend([reader, asker]);
        Ok(())
    }

    /// Makes a topic that nobody watches.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn quiet_topic(
        &self,
        name: &str,
        partitions: i32,
        replicas: i16,
        configs: &[(&str, &str)],
    ) -> Result<()> {
        let topic = CreateTopic {
            name: name.to_owned(),
            partitions: Some(partitions),
            replication_factor: Some(replicas),
            configs: configs
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
            dry_run: false,
        };
        self.admin.create(&topic).await?;
        lock(&self.topics).push((name.to_owned(), partitions));
        Ok(())
    }

    /// Begins to write.
    #[must_use]
    pub fn write(&self, stream: Stream) -> Writing {
        workload::write(self.bootstrap.clone(), stream, self.history.clone())
    }

    /// Whether a broker's disk says that partition 0 of a topic is committed up to here.
    ///
    /// # Errors
    /// When the checkpoint cannot be read.
    pub fn has_checkpointed(&self, broker: i32, topic: &str, offset: i64) -> Result<bool> {
        let home = self.faults.homes(Process::Broker(broker)).remove(0);
        let file = home.join("data").join("replication-offset-checkpoint");
        let text = match std::fs::read_to_string(&file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            text => text.with_context(|| file.display().to_string())?,
        };
        let line = format!("{topic} 0 {offset}");
        Ok(text.lines().any(|one| one == line))
    }

    /// A client that will wait at this broker for the answer to its one request.
    ///
    /// # Errors
    /// When it cannot connect.
    pub async fn wait_at(&self, broker: i32, stream: Stream) -> Result<Waiting> {
        let brokers = self.admin.brokers().await?;
        let mut listeners = brokers
            .iter()
            .filter(|one| one.id == broker)
            .flat_map(|one| &one.listeners);
        let client = listeners
            .find(|listener| listener.name == "CLIENT")
            .with_context(|| format!("where clients find broker {broker}"))?;
        let address = format!("{}:{}", client.host, client.port);
        Waiting::at(&address, stream, self.history.clone()).await
    }

    /// From here on records of this partition may be lost, acknowledged or not: an unclean election is coming.
    pub fn may_lose(&self, topic: &str, partition: i32, from: i64, until: i64) {
        lock(&self.allowed).push(Loss {
            topic: topic.into(),
            partition,
            offsets: from..until,
        });
    }

    /// This stream's producer is not idempotent: it may write a record twice.
    pub fn may_repeat(&self, stream: &str) {
        lock(&self.repeating).push(stream.into());
    }

    /// Waits until `more` further records are acknowledged.
    ///
    /// # Errors
    /// When they are not in time.
    pub async fn flow(&self, writing: &Writing, more: u64) -> Result<()> {
        let enough = writing.progress.acknowledged() + more;
        self.until("writes are acknowledged", async || {
            Ok(writing.progress.acknowledged() >= enough)
        })
        .await
    }

    /// Waits for a condition.
    ///
    /// # Errors
    /// When it does not hold in time.
    pub async fn until(
        &self,
        what: &str,
        condition: impl AsyncFnMut() -> Result<bool>,
    ) -> Result<()> {
        self.admin.wait_until(SETTLE, what, condition).await
    }

    /// Waits until a partition is like this.
    ///
    /// # Errors
    /// When it is not in time; the error says how it is.
    pub async fn partition_until(
        &self,
        topic: &str,
        what: &str,
        condition: impl Fn(&Partition) -> bool,
    ) -> Result<Partition> {
        let mut last = None;
        let waited = self
            .until(what, async || {
                let found = self.admin.partition(topic, 0).await?;
                let holds = condition(&found);
                last = Some(found);
                Ok(holds)
            })
            .await;
        waited.with_context(|| format!("{topic}-0 is {last:?}"))?;
        last.context("a partition was seen")
    }

    /// Who leads partition 0.
    ///
    /// # Errors
    /// When nobody does.
    pub async fn leader(&self, topic: &str) -> Result<i32> {
        self.partition_until(topic, "somebody leads", |one| one.leader.is_some())
            .await?
            .leader
            .context("it has a leader")
    }

    /// Waits until another broker than `not` leads partition 0.
    ///
    /// # Errors
    /// When that does not come about.
    pub async fn another_leader(&self, topic: &str, not: i32) -> Result<i32> {
        let found = self
            .partition_until(topic, "another broker leads", |one| {
                one.leader.is_some_and(|leader| leader != not)
            })
            .await?;
        found.leader.context("it has a leader")
    }

    /// Waits until every broker is active and every replica of every topic in sync.
    ///
    /// # Errors
    /// When that does not come about.
    pub async fn whole(&self) -> Result<()> {
        let topics = lock(&self.topics).clone();
        self.until("everything is in sync again", async || {
            let brokers = self.admin.brokers().await?;
            let active = brokers
                .iter()
                .filter(|broker| broker.state == BrokerState::Active)
                .count();
            let mut synced = active == 3;
            for (topic, _) in &topics {
                let partitions = self.admin.partitions(topic).await?;
                synced &= partitions
                    .iter()
                    .all(|one| one.leader.is_some() && one.isr.len() == one.replicas.len());
            }
            Ok(synced)
        })
        .await
    }

    /// Ends the run: the cluster becomes whole, everything is read, stopped and compared.
    ///
    /// # Errors
    /// When the cluster does not become whole, or cannot be read.
    pub async fn finish(&self) -> Result<()> {
        self.whole().await?;
        let following: Vec<Following> = lock(&self.following).drain(..).collect();
        for one in following {
            one.stop().await?;
        }
        let topics = lock(&self.topics).clone();
        for (topic, partitions) in &topics {
            workload::read_all(&self.bootstrap, FINAL, topic, *partitions, &self.history).await?;
        }
        self.note_digests().await?;
        let watching: Vec<Watching> = lock(&self.watching).drain(..).collect();
        for one in watching {
            one.stop().await?;
        }
        tokio::task::block_in_place(|| self.faults.cluster.down())?;
        for (topic, partitions) in &topics {
            watch::read_replicas(&self.faults.cluster, topic, *partitions, &self.history)?;
        }
        Ok(())
    }

    /// Ends what looks and reads on the side, of a story that ended early.
    pub async fn halt(&self) {
        let following: Vec<Following> = lock(&self.following).drain(..).collect();
        for one in following {
            // What it would complain of, the story has already.
            drop(one.stop().await);
        }
        let watching: Vec<Watching> = lock(&self.watching).drain(..).collect();
        for one in watching {
            drop(one.stop().await);
        }
    }

    /// The metadata is at rest once two looks agree; what still differs then differs.
    async fn note_digests(&self) -> Result<()> {
        let start = Instant::now();
        loop {
            let found = watch::digests(&self.admin).await?;
            let same = found.windows(2).all(|pair| match (&pair[0], &pair[1]) {
                (Event::Digest { digest: one, .. }, Event::Digest { digest: other, .. }) => {
                    one == other
                }
                _ => true,
            });
            if same || start.elapsed() > Duration::from_secs(10) {
                for event in found {
                    self.history.note(event);
                }
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The verdict, whether the run came to its end or not.
    #[must_use]
    pub fn judge(&self) -> Ended {
        // A log that cannot be read any more tells nothing.
        drop(watch::read_logs(
            &self.faults.cluster,
            &self.history,
            self.wall,
        ));
        let entries = self.history.entries();
        let allowed = lock(&self.allowed).clone();
        let repeating = lock(&self.repeating).clone();
        let verdicts = checkers::check(&Run {
            entries: &entries,
            allowed: &allowed,
            repeating: &repeating,
        });
        let count = |wanted| {
            let outcomes = entries.iter().filter_map(|entry| match entry.event {
                Event::Wrote { outcome, .. } => Some(outcome),
                _ => None,
            });
            outcomes.filter(|outcome| *outcome == wanted).count()
        };
        Ended {
            longest_pause: longest_pause(&entries),
            acknowledged: count(Outcome::Acked),
            unknown: count(Outcome::Unknown),
            failed: count(Outcome::Failed),
            verdicts,
            entries,
        }
    }

    /// Keeps the logs of all processes beside a report.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn keep_logs(&self, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder)?;
        for process in every_process() {
            for home in self.faults.cluster.homes(process) {
                let name = home.file_name().context("a home has a name")?;
                let target = folder.join(format!("{}.log", name.to_string_lossy()));
                std::fs::copy(home.join("log"), target)?;
            }
        }
        Ok(())
    }

    /// When the history began, in milliseconds since 1970.
    #[must_use]
    pub fn wall(&self) -> f64 {
        self.wall
    }

    /// The longest pause so far between the acknowledgements of one stream.
    #[must_use]
    pub fn longest_pause(&self) -> Duration {
        longest_pause(&self.history.entries())
    }

    /// No write may have ended in an error so far.
    ///
    /// # Errors
    /// When one did.
    pub fn ensure_no_failed_write(&self) -> Result<()> {
        let mut found = String::new();
        for entry in self.history.entries() {
            if let Event::Wrote {
                id,
                error: Some(error),
                ..
            } = entry.event
            {
                writeln!(found, "{id}: {error}").expect("writing to memory does not fail");
            }
        }
        let shown: Vec<&str> = found.lines().take(5).collect();
        let count = found.lines().count();
        ensure!(count == 0, "{count} writes failed:\n{}", shown.join("\n"));
        Ok(())
    }
}

/// The longest time between two acknowledgements of one stream.
fn longest_pause(entries: &[Entry]) -> Duration {
    let mut last: std::collections::HashMap<&str, f64> = std::collections::HashMap::new();
    let mut longest: f64 = 0.0;
    for entry in entries {
        if let Event::Wrote {
            stream,
            sent,
            outcome: Outcome::Acked,
            ..
        } = &entry.event
        {
            // What had not been handed over yet was not waited for.
            let since = last.insert(stream, entry.at).unwrap_or(*sent).max(*sent);
            longest = longest.max(entry.at - since);
        }
    }
    Duration::from_secs_f64(longest / 1e3)
}

/// All six.
#[must_use]
pub fn every_process() -> [Process; 6] {
    [
        Process::Controller(1),
        Process::Controller(2),
        Process::Controller(3),
        Process::Broker(1),
        Process::Broker(2),
        Process::Broker(3),
    ]
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
