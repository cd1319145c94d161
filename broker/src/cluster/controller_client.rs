//! How a broker talks to the controllers: one call to whoever is active, retried until its deadline.
//! Law: it carries requests and finds the active controller; what an answer means is its caller's business.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{Method, Request, Response, header};
use futures_util::TryStreamExt;
use kuorum_metadata::control::{Command, CommandReply};
use kuorum_metadata::rpc::{
    self, AllocateProducerIdsReply, AllocateProducerIdsRequest, AlterPartitionReply,
    AlterPartitionRequest, AssignDirectoriesRequest, HeartbeatReply, HeartbeatRequest,
    RegisterReply, RegisterRequest, Reply, ReportEventsRequest, RpcError, SessionRequest,
};
use kuorum_protocol::BrokerId;
use kuorum_protocol::error_code::ErrorCode;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::carrier::{Body, Carrier, Cause};

/// How long one controller may keep a request before another is asked.
const ATTEMPT: Duration = Duration::from_secs(2);
/// How long to wait before asking again when nobody is known to be active; it doubles up to `PAUSE_MOST`.
const PAUSE_LEAST: Duration = Duration::from_millis(10);
const PAUSE_MOST: Duration = Duration::from_millis(250);

/// One controller: its id and the `host:port` of its `controller.listener`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerPeer {
    pub id: u64,
    pub address: String,
}

/// Why there is no answer to use.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// The active controller said no.
    #[error(transparent)]
    Refused(#[from] RpcError),
    /// Nobody answered as the active controller before the deadline. The request may have been carried out.
    #[error("no active controller answered in time: {0}")]
    Unreachable(String),
}

impl ControllerError {
    /// Whether the active controller answered with this code.
    pub fn is(&self, code: ErrorCode) -> bool {
        matches!(self, Self::Refused(error) if error.code == i16::from(code))
    }
}

impl From<&ControllerError> for ErrorCode {
    fn from(error: &ControllerError) -> Self {
        match error {
            ControllerError::Refused(refusal) => ErrorCode::from(refusal.code),
            ControllerError::Unreachable(_) => ErrorCode::RequestTimedOut,
        }
    }
}

/// The controllers as one broker sees them. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ControllerClient {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    carrier: Arc<dyn Carrier>,
    cluster_id: String,
    from: String,
    controllers: Vec<ControllerPeer>,
    active: watch::Sender<Option<u64>>,
    /// The controllers whose last answer was that they are of another cluster, and how each said it.
    strangers: watch::Sender<BTreeMap<u64, String>>,
}

/// Most of the configured controllers are of another cluster than this broker's directories, so it will never be let in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "log.dirs is of cluster {cluster_id}, but {controllers} say: {answer}. Point log.dirs or controller.quorum.voters \
     elsewhere; nothing in the directories was changed"
)]
pub struct ForeignCluster {
    /// What the directories were formatted for.
    pub cluster_id: String,
    /// `controller-1 at 127.0.0.1:9122, …`
    pub controllers: String,
    /// What one of them says.
    pub answer: String,
}

impl ControllerClient {
    /// A client of `controllers` (never empty) that speaks as broker `me` of `cluster_id`.
    pub fn new(
        carrier: Arc<dyn Carrier>,
        cluster_id: String,
        me: BrokerId,
        controllers: Vec<ControllerPeer>,
    ) -> Self {
        assert!(
            !controllers.is_empty(),
            "a broker without controllers has nobody to follow"
        );
        let shared = Shared {
            carrier,
            cluster_id,
            from: format!("broker-{me}"),
            controllers,
            active: watch::Sender::new(None),
            strangers: watch::Sender::default(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Who is believed to be active, and when that belief changes.
    pub fn active(&self) -> watch::Receiver<Option<u64>> {
        self.shared.active.subscribe()
    }

    /// Ends when most of the controllers have said that they are of another cluster. One alone may be a wrong address.
    pub async fn foreign(&self) -> ForeignCluster {
        let mut strangers = self.shared.strangers.subscribe();
        loop {
            if let Some(foreign) = self.most_are(&strangers.borrow_and_update()) {
                return foreign;
            }
            // The sender lives as long as this client.
            if strangers.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Every controller, in the order of the configuration.
    pub fn controllers(&self) -> &[ControllerPeer] {
        &self.shared.controllers
    }

    /// Asks the active controller to decide something a client wants.
    pub async fn command(
        &self,
        command: &Command,
        patience: Duration,
    ) -> Result<CommandReply, ControllerError> {
        self.call(rpc::PATH_COMMAND, command, patience).await
    }

    /// Introduces this broker process.
    pub async fn register(
        &self,
        request: &RegisterRequest,
        patience: Duration,
    ) -> Result<RegisterReply, ControllerError> {
        self.call(rpc::PATH_REGISTER, request, patience).await
    }

    /// Says that this broker is alive, and how far it has come.
    pub async fn heartbeat(
        &self,
        request: &HeartbeatRequest,
        patience: Duration,
    ) -> Result<HeartbeatReply, ControllerError> {
        self.call(rpc::PATH_HEARTBEAT, request, patience).await
    }

    /// Announces that the session will be closed on purpose.
    pub async fn goodbye(
        &self,
        request: &SessionRequest,
        patience: Duration,
    ) -> Result<(), ControllerError> {
        self.call(rpc::PATH_GOODBYE, request, patience).await
    }

    /// Proposes changes of ISRs.
    pub async fn alter_partition(
        &self,
        request: &AlterPartitionRequest,
        patience: Duration,
    ) -> Result<AlterPartitionReply, ControllerError> {
        self.call(rpc::PATH_ALTER_PARTITION, request, patience)
            .await
    }

    /// Tells where replicas have been placed.
    pub async fn assign_directories(
        &self,
        request: &AssignDirectoriesRequest,
        patience: Duration,
    ) -> Result<(), ControllerError> {
        self.call(rpc::PATH_ASSIGN_DIRECTORIES, request, patience)
            .await
    }

    /// Tells what happened on this broker.
    pub async fn report_events(
        &self,
        request: &ReportEventsRequest,
        patience: Duration,
    ) -> Result<(), ControllerError> {
        self.call(rpc::PATH_REPORT_EVENTS, request, patience).await
    }

    /// Asks for a block of producer ids.
    pub async fn allocate_producer_ids(
        &self,
        request: &AllocateProducerIdsRequest,
        patience: Duration,
    ) -> Result<AllocateProducerIdsReply, ControllerError> {
        self.call(rpc::PATH_PRODUCER_IDS, request, patience).await
    }

    /// Opens the session stream to one controller. `Ok` is its endless body.
    pub async fn session(
        &self,
        controller: &ControllerPeer,
        request: &SessionRequest,
    ) -> Result<Body, ControllerError> {
        let request = written(request)?;
        let response = self
            .open(controller, Method::POST, rpc::PATH_SESSION, request)
            .await?;
        if is_stream(&response) {
            self.greet(controller.id, None);
            self.believe(controller.id);
            return Ok(response.into_body());
        }
        match answer::<()>(response).await? {
            Reply::Ok(()) => Err(ControllerError::Unreachable(
                "the session was not a stream".to_owned(),
            )),
            Reply::Err(refusal) => {
                self.greet(controller.id, Some(&refusal));
                self.heed(controller.id, &refusal);
                Err(refusal.into())
            }
        }
    }

    /// Opens the feed of one controller, beginning at offset `from`.
    pub async fn feed(
        &self,
        controller: &ControllerPeer,
        from: i64,
    ) -> Result<Body, ControllerError> {
        let path = format!("{}?from={from}", rpc::PATH_FEED);
        let response = self
            .open(controller, Method::GET, &path, Vec::new())
            .await?;
        if is_stream(&response) {
            self.greet(controller.id, None);
            return Ok(response.into_body());
        }
        match answer::<()>(response).await? {
            Reply::Ok(()) => Err(ControllerError::Unreachable(
                "the feed was not a stream".to_owned(),
            )),
            Reply::Err(refusal) => {
                self.greet(controller.id, Some(&refusal));
                Err(refusal.into())
            }
        }
    }

    /// Sends `request` to the active controller, looking for it until `patience` runs out. A request whose answer was
    /// lost is sent again, so it may be carried out twice: every one of them is safe to repeat.
    async fn call<Q: Serialize, A: DeserializeOwned>(
        &self,
        path: &str,
        request: &Q,
        patience: Duration,
    ) -> Result<A, ControllerError> {
        let body = written(request)?;
        let deadline = Instant::now() + patience;
        let mut pause = PAUSE_LEAST;
        let mut turn = self.first_choice();
        loop {
            let controller = &self.shared.controllers[turn];
            let wait = ATTEMPT.min(deadline.saturating_duration_since(Instant::now()));
            let trouble = match self
                .attempt::<A>(controller, path, body.clone(), wait)
                .await
            {
                Ok(Reply::Ok(reply)) => {
                    self.greet(controller.id, None);
                    self.believe(controller.id);
                    return Ok(reply);
                }
                Ok(Reply::Err(refusal)) if is_stranger(&refusal) => {
                    self.greet(controller.id, Some(&refusal));
                    self.doubt(controller.id);
                    refusal.message
                }
                Ok(Reply::Err(refusal)) if refusal.code == i16::from(ErrorCode::NotController) => {
                    self.heed(controller.id, &refusal);
                    if let Some(hinted) = refusal
                        .active_controller
                        .filter(|hinted| *hinted != controller.id)
                        .and_then(|hinted| self.position(hinted))
                        && pause < PAUSE_MOST
                    {
                        // A fresh hint is followed at once; `pause` still grows, so two that point at each other
                        // do not keep this loop spinning.
                        turn = hinted;
                        pause = (pause * 2).min(PAUSE_MOST);
                        continue;
                    }
                    refusal.message
                }
                Ok(Reply::Err(refusal)) => {
                    self.greet(controller.id, None);
                    self.believe(controller.id);
                    return Err(refusal.into());
                }
                Err(error) => {
                    self.doubt(controller.id);
                    error
                }
            };
            if Instant::now() + pause >= deadline {
                return Err(ControllerError::Unreachable(format!(
                    "controller-{} at {}: {trouble}",
                    controller.id, controller.address
                )));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MOST);
            turn = (turn + 1) % self.shared.controllers.len();
        }
    }

    async fn attempt<A: DeserializeOwned>(
        &self,
        controller: &ControllerPeer,
        path: &str,
        body: Vec<u8>,
        wait: Duration,
    ) -> Result<Reply<A>, String> {
        let exchange = async {
            let sent = self.send(controller, Method::POST, path, body).await;
            let response = sent.map_err(|cause| describe(&*cause))?;
            answer(response).await.map_err(|error| error.to_string())
        };
        match timeout(wait, exchange).await {
            Ok(reply) => reply,
            Err(_) => Err("no answer in time".to_owned()),
        }
    }

    /// Sends a request and waits a moment for the head of its answer.
    async fn open(
        &self,
        controller: &ControllerPeer,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<Response<Body>, ControllerError> {
        let sent = self.send(controller, method, path, body);
        match timeout(ATTEMPT, sent).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(cause)) => Err(ControllerError::Unreachable(describe(&*cause))),
            Err(_) => Err(ControllerError::Unreachable("no answer".to_owned())),
        }
    }

    async fn send(
        &self,
        controller: &ControllerPeer,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<Response<Body>, Cause> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", controller.address))
            .header(rpc::HEADER_CLUSTER_ID, &self.shared.cluster_id)
            .header(rpc::HEADER_FROM, &self.shared.from)
            .header(rpc::HEADER_TO, format!("controller-{}", controller.id))
            .header(rpc::HEADER_VERSION, rpc::VERSION);
        if !body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        self.shared.carrier.carry(request.body(body)?).await
    }

    /// The one believed active, or else the first of the list.
    fn first_choice(&self) -> usize {
        let active = *self.shared.active.borrow();
        active.and_then(|id| self.position(id)).unwrap_or(0)
    }

    fn position(&self, id: u64) -> Option<usize> {
        self.shared
            .controllers
            .iter()
            .position(|peer| peer.id == id)
    }

    /// Notes whether a controller that answered is of this broker's cluster.
    fn greet(&self, id: u64, refusal: Option<&RpcError>) {
        let strange = refusal.filter(|refusal| is_stranger(refusal));
        self.shared
            .strangers
            .send_if_modified(|strangers| match strange {
                Some(refusal) => strangers.insert(id, refusal.message.clone()).is_none(),
                None => strangers.remove(&id).is_some(),
            });
    }

    fn most_are(&self, strangers: &BTreeMap<u64, String>) -> Option<ForeignCluster> {
        let all = &self.shared.controllers;
        let answer = strangers.values().next()?;
        (strangers.len() > all.len() / 2).then(|| ForeignCluster {
            cluster_id: self.shared.cluster_id.clone(),
            controllers: all
                .iter()
                .filter(|peer| strangers.contains_key(&peer.id))
                .map(|peer| format!("controller-{} at {}", peer.id, peer.address))
                .collect::<Vec<_>>()
                .join(", "),
            answer: answer.clone(),
        })
    }

    fn believe(&self, id: u64) {
        self.shared
            .active
            .send_if_modified(|active| active.replace(id) != Some(id));
    }

    fn doubt(&self, id: u64) {
        self.shared.active.send_if_modified(|active| {
            let held = *active == Some(id);
            if held {
                *active = None;
            }
            held
        });
    }

    /// Takes the hint of a NOT_CONTROLLER, or at least stops believing in the one that sent it.
    fn heed(&self, from: u64, refusal: &RpcError) {
        if refusal.code != i16::from(ErrorCode::NotController) {
            return;
        }
        match refusal.active_controller.filter(|hinted| *hinted != from) {
            Some(hinted) => self.believe(hinted),
            None => self.doubt(from),
        }
    }
}

fn is_stranger(refusal: &RpcError) -> bool {
    refusal.code == i16::from(ErrorCode::InconsistentClusterId)
}

fn written<Q: Serialize>(request: &Q) -> Result<Vec<u8>, ControllerError> {
    serde_json::to_vec(request).map_err(|error| ControllerError::Unreachable(error.to_string()))
}

/// Streams are sent as anything but a JSON document; refusals are one.
fn is_stream(response: &Response<Body>) -> bool {
    let content_type = response
        .headers()
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    response.status().is_success() && content_type != Some("application/json")
}

async fn answer<A: DeserializeOwned>(
    response: Response<Body>,
) -> Result<Reply<A>, ControllerError> {
    let status = response.status();
    let gathered = response
        .into_body()
        .try_fold(Vec::new(), async |mut body, piece| {
            body.extend_from_slice(&piece);
            Ok(body)
        });
    let body = gathered
        .await
        .map_err(|cause| ControllerError::Unreachable(describe(&*cause)))?;
    serde_json::from_slice(&body).map_err(|error| {
        let text = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
        ControllerError::Unreachable(format!(
            "HTTP {status}, unreadable answer ({error}): {text}"
        ))
    })
}

/// reqwest hides the cause behind its first line.
fn describe(error: &(dyn Error + Send + Sync + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}
