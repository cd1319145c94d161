//! A broker's life in its cluster (KIP-631): it registers, catches up, is unfenced, stays in touch, and takes its leave.
//! Law: it says what is so and asks; whether the broker may serve is the controllers' decision.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use kuorum_metadata::record::Listener;
use kuorum_metadata::rpc::{HeartbeatRequest, RegisterRequest, SessionRequest};
use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::{BrokerEpoch, BrokerId, DirectoryId, IncarnationId, PartitionIndex, TopicId};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::controller_client::{ControllerClient, ControllerPeer};
use super::metadata_cache::MetadataCache;

/// The session stream carries a newline a second; silent for this long, it is taken for dead.
const SESSION_SILENCE: Duration = Duration::from_secs(3);
/// While fenced there is something to wait for, so heartbeats come faster.
const FENCED_INTERVAL: Duration = Duration::from_millis(200);
/// While shutting down likewise.
const LEAVING_INTERVAL: Duration = Duration::from_millis(100);
/// A broker that is leaving and finds no active controller so many times does not wait for one.
const UNHEARD_MOST: u32 = 2;
const REGISTER_PATIENCE: Duration = Duration::from_secs(10);

/// Where this broker process stands; shared by everybody who must name its epoch or ask whether it may serve.
#[derive(Debug)]
pub struct Membership {
    /// The broker's number.
    pub id: BrokerId,
    /// This run of the process.
    pub incarnation: IncarnationId,
    phase: watch::Sender<Phase>,
    offline: Mutex<Vec<DirectoryId>>,
    wants_fence: std::sync::atomic::AtomicBool,
    nudge: Notify,
}

/// What the controllers last said about this broker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phase {
    /// `None` before the registration.
    pub epoch: Option<BrokerEpoch>,
    /// Whether the broker is in service.
    pub unfenced: bool,
}

impl Membership {
    /// Not registered yet.
    pub fn new(id: BrokerId, incarnation: IncarnationId) -> Self {
        Self {
            id,
            incarnation,
            phase: watch::Sender::new(Phase::default()),
            offline: Mutex::new(Vec::new()),
            wants_fence: std::sync::atomic::AtomicBool::new(false),
            nudge: Notify::new(),
        }
    }

    /// The epoch of this broker's registration.
    pub fn epoch(&self) -> Option<BrokerEpoch> {
        self.phase.borrow().epoch
    }

    /// What the controllers last said.
    pub fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Whether the broker is registered and in service.
    pub fn is_unfenced(&self) -> bool {
        self.phase.borrow().unfenced
    }

    /// Wakes whenever the phase changes.
    pub fn subscribe(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    /// Reports a failed log directory with the next heartbeat, which is sent at once.
    pub fn directory_failed(&self, directory: DirectoryId, was_last: bool) {
        let mut offline = self.offline.lock();
        if !offline.contains(&directory) {
            offline.push(directory);
        }
        drop(offline);
        if was_last {
            self.wants_fence
                .store(true, std::sync::atomic::Ordering::Relaxed);
        }
        self.nudge.notify_one();
    }

    /// The log directories that have failed.
    pub fn offline_directories(&self) -> Vec<DirectoryId> {
        self.offline.lock().clone()
    }

    fn set(&self, next: Phase) {
        self.phase.send_if_modified(|phase| {
            let differs = *phase != next;
            *phase = next;
            differs
        });
    }
}

/// What a broker says of itself when it registers.
#[derive(Clone, Debug)]
pub struct Introduction {
    pub listeners: Vec<Listener>,
    /// Where `/livez`, `/readyz` and `/metrics` are served: `host:port`.
    pub http: String,
    pub rack: Option<String>,
    /// The online log directories.
    pub directories: Vec<DirectoryId>,
    pub version: String,
    /// The replicas whose logs are not what they promised to be.
    pub not_intact: Vec<(TopicId, PartitionIndex)>,
}

/// Leads a broker through its life.
#[derive(Debug)]
pub struct Lifecycle {
    pub controllers: ControllerClient,
    pub cache: Arc<MetadataCache>,
    pub membership: Arc<Membership>,
    pub introduction: Introduction,
    pub heartbeat_interval: Duration,
    /// How long a controlled shutdown may take before the broker goes anyway.
    pub shutdown_patience: Duration,
}

/// Why a registered life ended.
enum Ended {
    /// The controllers do not know this registration any more.
    Forgotten,
    /// The controlled shutdown is over, or its time was.
    Left,
}

impl Lifecycle {
    /// Lives until `leave` is cancelled and the controlled shutdown that follows is over. The caller then closes what
    /// is open and says `goodbye`.
    pub async fn run(self, leave: CancellationToken) {
        loop {
            let Some(epoch) = self.register(&leave).await else {
                return;
            };
            if !self.catch_up(epoch, &leave).await {
                return;
            }
            let session = CancellationToken::new();
            let holder = tokio::spawn(hold_session(
                self.controllers.clone(),
                SessionRequest {
                    broker_id: self.membership.id,
                    broker_epoch: epoch,
                },
                session.clone(),
            ));
            let ended = self.heartbeats(epoch, &leave).await;
            if matches!(ended, Ended::Left) {
                // While the stream is still open, so that its end is understood.
                let request = SessionRequest {
                    broker_id: self.membership.id,
                    broker_epoch: epoch,
                };
                if let Err(cause) = self
                    .controllers
                    .goodbye(&request, Duration::from_secs(1))
                    .await
                {
                    warn!(%cause, "the controllers did not hear the goodbye");
                }
            }
            session.cancel();
            // A cancelled holder only drops its stream; a join error means it panicked, which its own log line says.
            drop(holder.await);
            match ended {
                Ended::Left => return,
                Ended::Forgotten => {
                    warn!(
                        broker_epoch = epoch.0,
                        "the controllers do not know this broker any more; registering anew"
                    );
                    self.membership.set(Phase::default());
                }
            }
        }
    }

    /// Registers, however long it takes; `None` when told to leave first.
    async fn register(&self, leave: &CancellationToken) -> Option<BrokerEpoch> {
        let offline = self.membership.offline_directories();
        let mut directories = self.introduction.directories.clone();
        directories.retain(|directory| !offline.contains(directory));
        let request = RegisterRequest {
            broker_id: self.membership.id,
            incarnation_id: self.membership.incarnation,
            listeners: self.introduction.listeners.clone(),
            http: self.introduction.http.clone(),
            rack: self.introduction.rack.clone(),
            directories,
            version: self.introduction.version.clone(),
            not_intact: self.introduction.not_intact.clone(),
        };
        let mut complaints = 0_u32;
        loop {
            let answer = tokio::select! {
                () = leave.cancelled() => return None,
                answer = self.controllers.register(&request, REGISTER_PATIENCE) => answer,
            };
            let error = match answer {
                Ok(reply) => {
                    info!(
                        broker = self.membership.id.0,
                        broker_epoch = reply.broker_epoch.0,
                        not_intact = request.not_intact.len(),
                        "registered"
                    );
                    self.membership.set(Phase {
                        epoch: Some(reply.broker_epoch),
                        unfenced: false,
                    });
                    return Some(reply.broker_epoch);
                }
                Err(error) => error,
            };
            if error.is(ErrorCode::DuplicateBrokerRegistration) {
                if complaints == 0 {
                    error!(
                        broker = self.membership.id.0,
                        cause = %error,
                        "another process is registered as broker {}, and its session is still alive. If two brokers are \
                         configured with the same node.id, or one runs on a copy of the other's directories, stop one. \
                         If this broker's host lost its power or its directories were replaced, it will be let in when \
                         the old session has timed out.",
                        self.membership.id
                    );
                }
            } else {
                warn!(cause = %error, "could not register; trying again");
            }
            complaints += 1;
            tokio::select! {
                () = leave.cancelled() => return None,
                () = tokio::time::sleep(Duration::from_millis(500)) => {}
            }
        }
    }

    /// Waits until the image contains this broker's registration; `false` when told to leave first.
    async fn catch_up(&self, epoch: BrokerEpoch, leave: &CancellationToken) -> bool {
        let mut offset = self.cache.subscribe();
        tokio::select! {
            () = leave.cancelled() => false,
            reached = offset.wait_for(|offset| *offset >= epoch.0) => reached.is_ok(),
        }
    }

    /// Whether this broker still leads partitions, and none of them has another replica in service that might catch up
    /// and take over.
    fn leads_in_vain(&self) -> bool {
        let image = self.cache.image();
        let me = self.membership.id;
        let mut led = image
            .partitions()
            .filter(|(_, _, partition)| partition.leader == Some(me))
            .peekable();
        led.peek().is_some()
            && led.all(|(_, _, partition)| {
                let mut others = partition.replicas.iter().filter(|replica| **replica != me);
                !others.any(|replica| image.is_active(*replica))
            })
    }

    async fn heartbeats(&self, epoch: BrokerEpoch, leave: &CancellationToken) -> Ended {
        let mut leaving_until: Option<Instant> = None;
        let mut unheard = 0;
        loop {
            if leaving_until.is_none() && leave.is_cancelled() {
                info!("asking the controllers for leave");
                leaving_until = Some(Instant::now() + self.shutdown_patience);
            }
            let request = HeartbeatRequest {
                broker_id: self.membership.id,
                broker_epoch: epoch,
                metadata_offset: self.cache.offset(),
                want_fence: self
                    .membership
                    .wants_fence
                    .load(std::sync::atomic::Ordering::Relaxed),
                want_shut_down: leaving_until.is_some(),
                offline_directories: self.membership.offline_directories(),
            };
            let patience = leaving_until.map_or(self.heartbeat_interval, |until| {
                until
                    .saturating_duration_since(Instant::now())
                    .min(self.heartbeat_interval)
            });
            match self.controllers.heartbeat(&request, patience).await {
                Ok(reply) => {
                    unheard = 0;
                    if reply.fenced == self.membership.is_unfenced() {
                        info!(
                            broker_epoch = epoch.0,
                            fenced = reply.fenced,
                            "the controllers changed this broker's state"
                        );
                    }
                    self.membership.set(Phase {
                        epoch: Some(epoch),
                        unfenced: !reply.fenced,
                    });
                    if leaving_until.is_some() && reply.may_shut_down {
                        info!("the controllers gave leave");
                        return Ended::Left;
                    }
                }
                Err(cause)
                    if cause.is(ErrorCode::StaleBrokerEpoch)
                        || cause.is(ErrorCode::BrokerIdNotRegistered) =>
                {
                    return match leaving_until {
                        Some(_) => Ended::Left,
                        None => Ended::Forgotten,
                    };
                }
                Err(cause) => {
                    unheard += 1;
                    warn!(%cause, "a heartbeat was not answered");
                }
            }
            if leaving_until.is_some() && self.leads_in_vain() {
                info!("nobody is there to take over what this broker leads");
                return Ended::Left;
            }
            let nobody_there = unheard >= UNHEARD_MOST;
            if leaving_until.is_some_and(|until| nobody_there || Instant::now() >= until) {
                warn!("the controllers gave no leave in time; going anyway");
                return Ended::Left;
            }
            let interval = match (leaving_until, self.membership.is_unfenced()) {
                (Some(_), _) => LEAVING_INTERVAL,
                (None, true) => self.heartbeat_interval,
                (None, false) => FENCED_INTERVAL.min(self.heartbeat_interval),
            };
            tokio::select! {
                () = tokio::time::sleep(interval) => {}
                () = self.membership.nudge.notified() => {}
                () = leave.cancelled(), if leaving_until.is_none() => {}
            }
        }
    }
}

/// Keeps one session stream open to the active controller. Its unannounced end is how a death is noticed, so after the
/// death of a controller it is opened anew well within the grace that the next one gives.
async fn hold_session(
    controllers: ControllerClient,
    request: SessionRequest,
    stop: CancellationToken,
) {
    let mut turn = 0_usize;
    let mut pause = Duration::from_millis(5);
    loop {
        let mut active = controllers.active();
        let peer = peer_to_hold(&controllers, *active.borrow_and_update(), turn);
        let opened = tokio::select! {
            () = stop.cancelled() => return,
            opened = controllers.session(&peer, &request) => opened,
        };
        match opened {
            Ok(mut stream) => {
                pause = Duration::from_millis(5);
                debug!(controller = peer.id, "session open");
                loop {
                    tokio::select! {
                        () = stop.cancelled() => return,
                        moved = active.wait_for(|active| active.is_some_and(|id| id != peer.id)) => {
                            if moved.is_err() {
                                return;
                            }
                            break;
                        }
                        beat = tokio::time::timeout(SESSION_SILENCE, stream.next()) => {
                            if !matches!(beat, Ok(Some(Ok(_)))) {
                                break;
                            }
                        }
                    }
                }
                debug!(controller = peer.id, "session ended");
                turn += 1;
            }
            Err(cause) => {
                debug!(controller = peer.id, %cause, "no session");
                turn += 1;
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(pause) => {}
                }
                pause = (pause * 2).min(Duration::from_millis(100));
            }
        }
    }
}

/// The active controller if known (every other try), otherwise one after the other.
fn peer_to_hold(
    controllers: &ControllerClient,
    active: Option<u64>,
    turn: usize,
) -> ControllerPeer {
    let all = controllers.controllers();
    let known = active.and_then(|id| all.iter().find(|peer| peer.id == id));
    match known {
        Some(peer) if turn.is_multiple_of(2) => peer.clone(),
        _ => all[turn % all.len()].clone(),
    }
}
