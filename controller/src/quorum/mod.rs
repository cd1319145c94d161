//! The controllers' quorum: openraft behind a concrete face that knows proposals, barriers and who is active.
//! Law: what is proposed here either is applied on a majority or fails; "leader" alone proves nothing, so decisions wait
//! for their entry and answers for a majority heard of late.

mod failure;
mod file;
mod log_store;
mod network;
mod state_machine;
mod types;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use kuorum_metadata::{MetadataImage, RecordBatch};
use kuorum_protocol::{DirectoryId, Monotonic};
use kuorum_storage::Dir;
use kuorum_transport::Clock;
use openraft::ServerState;
use openraft::error::{ClientWriteError, InitializeError, InstallSnapshotError, RaftError};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, ClientWriteResult, InstallSnapshotRequest,
    InstallSnapshotResponse, VoteRequest, VoteResponse,
};
use parking_lot::Mutex;
use tokio::runtime::Runtime;
use tokio::sync::{oneshot, watch};

pub use failure::{Ended, Failure};
pub use log_store::LogStore;
pub use network::{
    Carrier, CarryError, Cause, HEADER_FROM_DIRECTORY, HEADER_TO_DIRECTORY, Identity, Introduction,
    Network, PATH_APPEND, PATH_IDENTITY, PATH_SNAPSHOT, PATH_VOTE, controller_name, http_client,
};
pub use state_machine::{AppliedEntry, Next, Published, SnapshotFacts, StateMachine};
pub use types::{ControllerId, Outcome, TypeConfig, Voter};

use types::{Metrics, Raft};

/// openraft 0.9's core ends if it wants to send a snapshot to a member just when that member's replication has heard of a
/// newer vote and is gone: it says this, and nothing is wrong with the directory.
const RACE: &str = "replication channel closed";

/// Threads for Raft itself.
const RAFT_THREADS: usize = 2;

/// Where a member's work is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// Raft has threads of its own, and so has the writer of the log: nothing the process decides or serves may delay a
    /// heartbeat.
    Own,
    /// All of it is tasks of the runtime that opens the member, on that runtime's clock: for simulations. The disk is as slow as
    /// told: each write and each flush takes up to so long.
    Borrowed { slowest_write: Duration },
}

/// The quorum's timers and how much log it keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuorumConfig {
    /// How often the leader lets the others hear from it. One AppendEntries has this long to be answered.
    pub heartbeat_interval: Duration,
    /// The shortest time without a leader after which a member stands for election.
    pub election_timeout_min: Duration,
    /// The longest; also how long a member refuses to vote after it has heard from a leader.
    pub election_timeout_max: Duration,
    /// How long sending and installing one piece of a snapshot may take.
    pub install_snapshot_timeout: Duration,
    /// A snapshot is made when this many entries have been applied since the last one.
    pub snapshot_entries: u64,
    /// How many entries that are in a snapshot stay in the log, for members and brokers that are a little behind.
    pub kept_entries: u64,
    /// How many events are kept, the newest ones.
    pub kept_events: usize,
}

impl Default for QuorumConfig {
    fn default() -> Self {
        Self {
            heartbeat_interval: Duration::from_millis(100),
            election_timeout_min: Duration::from_millis(250),
            election_timeout_max: Duration::from_millis(500),
            install_snapshot_timeout: Duration::from_secs(5),
            snapshot_entries: 10_000,
            kept_entries: 5_000,
            kept_events: 20_000,
        }
    }
}

/// Why a proposal did not come to pass, or may not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// Somebody else leads, or nobody. The proposal may still come to pass if it had been written.
    #[error("this controller does not lead the quorum")]
    NotLeader {
        /// Who does, if known.
        leader: Option<ControllerId>,
    },
    /// A majority does not answer.
    #[error("a majority of the controllers cannot be reached")]
    NoQuorum,
    /// The quorum has stopped here.
    #[error("the quorum has stopped on this controller")]
    Stopped,
}

/// A proposal on its way.
#[derive(Debug)]
pub struct Proposal(oneshot::Receiver<ClientWriteResult<TypeConfig>>);

impl Proposal {
    /// Waits until the entry has been applied here.
    ///
    /// # Errors
    /// If leadership was lost first; the entry may come to pass all the same.
    pub async fn applied(self) -> Result<Outcome, ProposeError> {
        match self.0.await {
            Ok(Ok(response)) => Ok(response.data),
            Ok(Err(ClientWriteError::ForwardToLeader(forward))) => Err(ProposeError::NotLeader {
                leader: forward.leader_id,
            }),
            Ok(Err(ClientWriteError::ChangeMembershipError(_))) => {
                Err(ProposeError::NotLeader { leader: None })
            }
            Err(_) => Err(ProposeError::Stopped),
        }
    }
}

/// One stretch of leadership: a term in which this controller leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Term(pub u64);

/// What the quorum looks like from here.
#[derive(Clone, Debug)]
pub struct Status {
    pub id: ControllerId,
    pub term: u64,
    /// Whom this member has voted for in the term, or taken for its leader.
    pub vote: Option<ControllerId>,
    /// What it is in the quorum: `leader`, `follower`, `candidate`, `learner` or `shutdown`.
    pub role: &'static str,
    pub leader: Option<ControllerId>,
    /// The first index in the log here, and the one after the last.
    pub log: (u64, u64),
    /// The index after the last applied entry.
    pub applied_end: i64,
    /// How long ago a majority answered; only on the leader.
    pub quorum_acked_ms_ago: Option<u64>,
    pub voters: BTreeMap<ControllerId, Voter>,
    /// The index after the last entry each member is known to have; only on the leader.
    pub matched: BTreeMap<ControllerId, Option<i64>>,
}

fn role(state: ServerState) -> &'static str {
    match state {
        ServerState::Learner => "learner",
        ServerState::Follower => "follower",
        ServerState::Candidate => "candidate",
        ServerState::Leader => "leader",
        ServerState::Shutdown => "shutdown",
    }
}

/// The quorum as one member of it. Clones are the same member.
#[derive(Clone)]
pub struct Quorum {
    inner: Arc<Inner>,
}

impl fmt::Debug for Quorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Quorum")
            .field("identity", &self.inner.identity)
            .finish_non_exhaustive()
    }
}

struct Inner {
    raft: Raft,
    /// Raft's own threads, if it has some.
    runtime: Option<Runtime>,
    identity: Identity,
    network: Network,
    config: QuorumConfig,
    published: Arc<Published>,
    log: Box<dyn LogFacts>,
    clock: Clock,
    /// When a majority last answered this leader, by the clock here: it grows old while the process is stopped.
    quorum_acked: Mutex<Option<Monotonic>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // A runtime may not be waited for inside another one.
            runtime.shutdown_background();
        }
    }
}

/// The few things the quorum asks of its log without going through Raft.
trait LogFacts: Send + Sync {
    fn bounds(&self) -> (u64, u64);
    fn is_pristine(&self) -> bool;
    fn mark_durable_end(&self) -> BoxFuture<'_, io::Result<()>>;
}

impl<D: Dir> LogFacts for LogStore<D> {
    fn bounds(&self) -> (u64, u64) {
        Self::bounds(self)
    }

    fn is_pristine(&self) -> bool {
        Self::is_pristine(self)
    }

    fn mark_durable_end(&self) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(Self::mark_durable_end(self))
    }
}

impl Quorum {
    /// Opens the member whose vote, log and snapshots are in `dir`, and starts it. Its requests go out by `carrier`.
    ///
    /// # Errors
    /// If a file cannot be read, is damaged, or is of a newer format.
    pub async fn open<D: Dir>(
        dir: D,
        identity: Identity,
        config: QuorumConfig,
        carrier: Arc<dyn Carrier>,
        clock: Clock,
        failure: Failure,
        threads: Threads,
    ) -> io::Result<Self> {
        let log = LogStore::open_on(dir.clone(), clock.clone(), failure.clone(), threads)?;
        let machine = StateMachine::open(dir, failure.clone(), config.kept_events)?;
        let published = machine.published();
        let network = Network::new(carrier, identity.clone(), config.heartbeat_interval / 2);
        let runtime = match threads {
            Threads::Own => Some(
                tokio::runtime::Builder::new_multi_thread()
                    .worker_threads(RAFT_THREADS)
                    .thread_name("quorum")
                    .enable_all()
                    .build()?,
            ),
            Threads::Borrowed { .. } => None,
        };
        let (id, raft_config) = (
            identity.controller_id,
            Arc::new(raft_config(&identity, &config)?),
        );
        let (raft_network, raft_log) = (network.clone(), log.clone());
        // openraft spawns its tasks where it is made.
        let making =
            async move { Raft::new(id, raft_config, raft_network, raft_log, machine).await };
        let raft = match &runtime {
            Some(runtime) => runtime.spawn(making).await.map_err(io::Error::other)?,
            None => Box::pin(making).await,
        }
        .map_err(io::Error::other)?;
        let quorum = Self {
            inner: Arc::new(Inner {
                raft,
                runtime,
                identity,
                network,
                config,
                published,
                log: Box::new(log),
                clock,
                quorum_acked: Mutex::new(None),
            }),
        };
        tokio::spawn(quorum.clone().watch_over(failure));
        Ok(quorum)
    }

    /// Who this member is.
    pub fn identity(&self) -> &Identity {
        &self.inner.identity
    }

    /// The applied state.
    pub fn published(&self) -> &Arc<Published> {
        &self.inner.published
    }

    /// The image as of the last applied entry here.
    pub fn image(&self) -> Arc<MetadataImage> {
        self.inner.published.image()
    }

    /// How this member introduces itself.
    pub fn introduction(&self) -> Introduction {
        Introduction {
            cluster_id: self.inner.identity.cluster_id.clone(),
            controller_id: self.inner.identity.controller_id,
            directory_id: self.inner.identity.directory_id,
            pristine: self.inner.log.is_pristine(),
        }
    }

    /// Whether a controller of this cluster answers at an address, with the directory that the quorum knows of it.
    pub async fn answers(&self, address: &str, deadline: Duration) -> bool {
        let question = self.inner.network.introduce(address);
        let Ok(Ok(answer)) = tokio::time::timeout(deadline, question).await else {
            return false;
        };
        let metrics = self.inner.raft.metrics();
        let metrics = metrics.borrow();
        let known = metrics
            .membership_config
            .membership()
            .get_node(&answer.controller_id);
        answer.cluster_id == self.inner.identity.cluster_id
            && known.is_none_or(|voter| voter.directory_id == answer.directory_id)
    }

    /// Proposes a batch; proposals are written in the order of these calls.
    ///
    /// # Errors
    /// If the quorum has stopped here. That somebody else leads is learned from the [`Proposal`].
    pub async fn submit(&self, batch: RecordBatch) -> Result<Proposal, ProposeError> {
        let receiver = self
            .inner
            .raft
            .client_write_ff(Arc::new(batch))
            .await
            .map_err(|_| ProposeError::Stopped)?;
        Ok(Proposal(receiver))
    }

    /// Proposes a batch and waits until it has been applied here.
    ///
    /// # Errors
    /// As [`Proposal::applied`].
    pub async fn propose(&self, batch: RecordBatch) -> Result<Outcome, ProposeError> {
        self.submit(batch).await?.applied().await
    }

    /// Waits until everything committed before this call has been applied here, having asked a majority whether this
    /// member still leads.
    ///
    /// # Errors
    /// If it does not, or no majority answers.
    pub async fn read_barrier(&self) -> Result<(), ProposeError> {
        use openraft::error::CheckIsLeaderError::{ForwardToLeader, QuorumNotEnough};
        match self.inner.raft.ensure_linearizable().await {
            Ok(_) => Ok(()),
            Err(RaftError::APIError(ForwardToLeader(forward))) => Err(ProposeError::NotLeader {
                leader: forward.leader_id,
            }),
            Err(RaftError::APIError(QuorumNotEnough(_))) => Err(ProposeError::NoQuorum),
            Err(RaftError::Fatal(_)) => Err(ProposeError::Stopped),
        }
    }

    /// The term in which this member leads, if it does.
    pub fn leading(&self) -> Option<Term> {
        leading(&self.inner.raft.metrics().borrow())
    }

    /// Who leads, as far as this member knows. A leader that has lost its majority leads nobody, and cannot know who does.
    pub fn leader(&self) -> Option<ControllerId> {
        let leader = self.inner.raft.metrics().borrow().current_leader?;
        let me = self.inner.identity.controller_id;
        (leader != me || self.heard_of_late()).then_some(leader)
    }

    /// Whether a majority answered this leader within the longest election timeout: before that has passed, nobody else
    /// can have been elected by them.
    pub fn heard_of_late(&self) -> bool {
        let now = self.inner.clock.now().monotonic;
        self.inner
            .quorum_acked
            .lock()
            .is_some_and(|acked| now.since(acked) <= self.inner.config.election_timeout_max)
    }

    /// Changes whenever the state of the quorum may have.
    pub fn changes(&self) -> Changes {
        Changes(self.inner.raft.metrics())
    }

    /// A member of the quorum, if there is such a one.
    pub fn voter(&self, id: ControllerId) -> Option<Voter> {
        let metrics = self.inner.raft.metrics();
        let metrics = metrics.borrow();
        metrics
            .membership_config
            .membership()
            .get_node(&id)
            .cloned()
    }

    /// Whether this member knows who belongs to the quorum.
    pub fn is_initialised(&self) -> bool {
        let metrics = self.inner.raft.metrics();
        let metrics = metrics.borrow();
        metrics
            .membership_config
            .membership()
            .voter_ids()
            .next()
            .is_some()
    }

    /// The state of the quorum, for people.
    pub fn status(&self) -> Status {
        let leader = self.leader();
        let metrics = self.inner.raft.metrics();
        let metrics = metrics.borrow();
        let membership = metrics.membership_config.membership();
        let mut matched: BTreeMap<ControllerId, Option<i64>> = BTreeMap::new();
        for (id, log_id) in metrics.replication.iter().flatten() {
            matched.insert(*id, log_id.map(|log_id| log_id.index as i64 + 1));
        }
        Status {
            id: metrics.id,
            term: metrics.current_term,
            vote: metrics.vote.leader_id.voted_for(),
            role: role(metrics.state),
            leader,
            log: self.inner.log.bounds(),
            applied_end: self.inner.published.applied_end(),
            quorum_acked_ms_ago: metrics.millis_since_quorum_ack,
            voters: membership
                .voter_ids()
                .filter_map(|id| Some((id, membership.get_node(&id)?.clone())))
                .collect(),
            matched,
        }
    }

    /// Founds the quorum if that falls to this member: the lowest id does it, once, after every voter has answered with
    /// its ids and none of them has ever voted. Returns when the quorum exists.
    ///
    /// `voters` are the configured addresses, this member's among them.
    pub async fn found(&self, voters: BTreeMap<ControllerId, String>) {
        let lowest = voters.keys().next() == Some(&self.inner.identity.controller_id);
        let mut complained = false;
        let mut rounds = 0_u32;
        while !self.is_initialised() {
            if lowest {
                match self.introductions(&voters).await {
                    Ok(members) => self.initialise(members).await,
                    Err(why) => {
                        rounds += 1;
                        // Others may start a moment later than this one.
                        if !complained && rounds >= 20 {
                            complained = true;
                            tracing::warn!("the quorum cannot be founded yet: {why}");
                        }
                    }
                }
            }
            self.inner.clock.sleep(Duration::from_millis(100)).await;
        }
    }

    /// Every voter's introduction, checked.
    async fn introductions(
        &self,
        voters: &BTreeMap<ControllerId, String>,
    ) -> Result<BTreeMap<ControllerId, Voter>, String> {
        let mut members = BTreeMap::new();
        for (id, address) in voters {
            let introduction = if *id == self.inner.identity.controller_id {
                self.introduction()
            } else {
                self.inner
                    .network
                    .introduce(address)
                    .await
                    .map_err(|error| format!("controller {id} at {address}: {error}"))?
            };
            let who = format!("the controller at {address}");
            if introduction.cluster_id != self.inner.identity.cluster_id {
                return Err(format!(
                    "{who} belongs to cluster {}, not to {}",
                    introduction.cluster_id, self.inner.identity.cluster_id
                ));
            }
            if introduction.controller_id != *id {
                return Err(format!(
                    "{who} is controller {}, not {id}",
                    introduction.controller_id
                ));
            }
            if !introduction.pristine {
                return Err(format!("{who} already belongs to a quorum"));
            }
            members.insert(
                *id,
                Voter {
                    address: address.clone(),
                    directory_id: introduction.directory_id,
                },
            );
        }
        Ok(members)
    }

    async fn initialise(&self, members: BTreeMap<ControllerId, Voter>) {
        match self.inner.raft.initialize(members).await {
            Ok(()) => tracing::info!("founded the quorum"),
            // Somebody's vote or entries arrived in between: the quorum exists.
            Err(RaftError::APIError(InitializeError::NotAllowed(_))) => {}
            Err(error) => tracing::error!("cannot found the quorum: {error}"),
        }
    }

    /// Answers a peer's AppendEntries. The result travels back as it is.
    pub async fn on_append(
        &self,
        request: AppendEntriesRequest<TypeConfig>,
    ) -> Result<AppendEntriesResponse<ControllerId>, RaftError<ControllerId>> {
        self.inner.raft.append_entries(request).await
    }

    /// Answers a peer's RequestVote.
    pub async fn on_vote(
        &self,
        request: VoteRequest<ControllerId>,
    ) -> Result<VoteResponse<ControllerId>, RaftError<ControllerId>> {
        self.inner.raft.vote(request).await
    }

    /// Takes a piece of a snapshot.
    pub async fn on_snapshot(
        &self,
        request: InstallSnapshotRequest<TypeConfig>,
    ) -> Result<InstallSnapshotResponse<ControllerId>, RaftError<ControllerId, InstallSnapshotError>>
    {
        self.inner.raft.install_snapshot(request).await
    }

    /// Whether a sender's directory is the one the membership names. Before there is a membership nobody can say.
    pub fn is_member_directory(&self, id: ControllerId, directory: DirectoryId) -> bool {
        if !self.is_initialised() {
            return true;
        }
        self.voter(id)
            .is_some_and(|voter| voter.directory_id == directory)
    }

    /// Stops this member; what was flushed stays.
    pub async fn shut_down(&self) {
        if let Err(error) = self.inner.raft.shutdown().await {
            tracing::warn!("the quorum did not stop in order: {error}");
        }
        if let Err(error) = self.inner.log.mark_durable_end().await {
            tracing::warn!("the metadata log's durable end was not noted: {error}");
        }
    }

    /// Notes when a majority answers, and reports a core that has died.
    async fn watch_over(self, failure: Failure) {
        let mut metrics = self.inner.raft.metrics();
        loop {
            let stopped = {
                let metrics = metrics.borrow_and_update();
                self.note_acknowledgement(&metrics);
                metrics.running_state.clone().err()
            };
            match stopped {
                None => {}
                Some(openraft::error::Fatal::Stopped) => return,
                Some(fatal) => {
                    let fatal = fatal.to_string();
                    let what = format!("the quorum has failed on this controller: {fatal}");
                    match fatal.contains(RACE) {
                        true => failure.report_passing(what),
                        false => failure.report(what),
                    }
                    return;
                }
            }
            if metrics.changed().await.is_err() {
                return;
            }
        }
    }

    fn note_acknowledgement(&self, metrics: &Metrics) {
        let acked = match (metrics.state, metrics.millis_since_quorum_ack) {
            (ServerState::Leader, Some(ago)) => {
                Some(self.inner.clock.now().monotonic - Duration::from_millis(ago))
            }
            _ => None,
        };
        *self.inner.quorum_acked.lock() = acked;
    }
}

/// Tells when the state of the quorum may have changed.
#[derive(Debug)]
pub struct Changes(watch::Receiver<Metrics>);

impl Changes {
    /// The term in which this member leads, if it does.
    pub fn leading(&mut self) -> Option<Term> {
        leading(&self.0.borrow_and_update())
    }

    /// Waits for a change; `false` when there will be none any more.
    pub async fn changed(&mut self) -> bool {
        self.0.changed().await.is_ok()
    }
}

fn leading(metrics: &Metrics) -> Option<Term> {
    (metrics.state == ServerState::Leader && metrics.running_state.is_ok())
        .then_some(Term(metrics.current_term))
}

fn raft_config(identity: &Identity, config: &QuorumConfig) -> io::Result<openraft::Config> {
    let millis = |duration: Duration| duration.as_millis() as u64;
    openraft::Config {
        cluster_name: identity.cluster_id.clone(),
        heartbeat_interval: millis(config.heartbeat_interval),
        election_timeout_min: millis(config.election_timeout_min),
        election_timeout_max: millis(config.election_timeout_max),
        install_snapshot_timeout: millis(config.install_snapshot_timeout),
        // A member further behind than the kept log gets a snapshot; one that is not, entries.
        replication_lag_threshold: config.snapshot_entries + config.kept_entries,
        snapshot_policy: openraft::SnapshotPolicy::LogsSinceLast(config.snapshot_entries),
        snapshot_max_chunk_size: 1024 * 1024,
        max_in_snapshot_log_to_keep: config.kept_entries,
        // The work is done on the core: seldom and then much, but not more than a snapshot frees.
        purge_batch_size: config.snapshot_entries.clamp(1, 256),
        ..openraft::Config::default()
    }
    .validate()
    .map_err(io::Error::other)
}

#[cfg(test)]
mod tests;
