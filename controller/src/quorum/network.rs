//! Raft between controllers, over HTTP.
//! Law: every request says which cluster, who sends and who is meant, and which directory holds each one's vote; a peer
//! refuses what is not meant for it (a wiped voter must not vote twice).

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use kuorum_metadata::mutation::{self, Mutation};
use kuorum_metadata::rpc::{HEADER_CLUSTER_ID, HEADER_FROM, HEADER_TO, HEADER_VERSION, VERSION};
use kuorum_protocol::DirectoryId;
use openraft::error::{
    InstallSnapshotError, NetworkError, PayloadTooLarge, RPCError, RaftError, RemoteError, Timeout,
    Unreachable,
};
use openraft::network::{Backoff, RPCOption, RPCTypes, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    VoteRequest, VoteResponse,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::types::{ControllerId, TypeConfig, Voter};

/// The sender's directory id.
pub const HEADER_FROM_DIRECTORY: &str = "kuorum-from-directory";
/// The directory id the sender expects the addressee to have.
pub const HEADER_TO_DIRECTORY: &str = "kuorum-to-directory";

/// POST, openraft's AppendEntries.
pub const PATH_APPEND: &str = "/raft/v1/append";
/// POST, openraft's RequestVote.
pub const PATH_VOTE: &str = "/raft/v1/vote";
/// POST, one piece of a snapshot.
pub const PATH_SNAPSHOT: &str = "/raft/v1/snapshot";
/// GET, who is there: [`Introduction`].
pub const PATH_IDENTITY: &str = "/raft/v1/identity";

/// How long an introduction may take.
const INTRODUCTION: Duration = Duration::from_secs(1);

/// How a controller introduces itself before there is a quorum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Introduction {
    pub cluster_id: String,
    pub controller_id: ControllerId,
    pub directory_id: DirectoryId,
    /// It has never voted and its log is empty.
    pub pristine: bool,
}

/// Who this controller is to the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub cluster_id: String,
    pub controller_id: ControllerId,
    pub directory_id: DirectoryId,
}

/// A controller's name in the headers.
pub fn controller_name(id: ControllerId) -> String {
    format!("controller-{id}")
}

/// Carries requests to other controllers: the quorum's one door to the network. A simulation has another one.
pub trait Carrier: Debug + Send + Sync + 'static {
    /// Sends a request to the host and port of its URI and reads the whole answer, whatever its status, within the deadline.
    fn carry(
        &self,
        request: Request<Vec<u8>>,
        deadline: Duration,
    ) -> BoxFuture<'static, Result<Response<Bytes>, CarryError>>;
}

/// Why there was no answer.
#[derive(Debug, thiserror::Error)]
pub enum CarryError {
    /// The deadline passed.
    #[error("no answer in time: {0}")]
    TimedOut(#[source] Cause),
    /// Nobody was reached.
    #[error(transparent)]
    Unreachable(Cause),
    /// An answer began, or was none that could be understood.
    #[error(transparent)]
    Broken(Cause),
}

/// What a carrier met with.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

impl Carrier for reqwest::Client {
    fn carry(
        &self,
        request: Request<Vec<u8>>,
        deadline: Duration,
    ) -> BoxFuture<'static, Result<Response<Bytes>, CarryError>> {
        let client = self.clone();
        async move {
            let mut request = reqwest::Request::try_from(request)
                .map_err(|error| CarryError::Unreachable(error.into()))?;
            *request.timeout_mut() = Some(deadline);
            let response = client.execute(request).await.map_err(|error| {
                if error.is_timeout() {
                    CarryError::TimedOut(error.into())
                } else {
                    CarryError::Unreachable(error.into())
                }
            })?;
            let mut answer = Response::new(Bytes::new());
            *answer.status_mut() = response.status();
            *answer.body_mut() = response
                .bytes()
                .await
                .map_err(|error| CarryError::Broken(error.into()))?;
            Ok(answer)
        }
        .boxed()
    }
}

/// Makes the connections to the other controllers.
#[derive(Clone, Debug)]
pub struct Network {
    carrier: Arc<dyn Carrier>,
    identity: Identity,
    backoff: Duration,
}

impl Network {
    /// `backoff` is how long an unreachable controller is left alone.
    pub fn new(carrier: Arc<dyn Carrier>, identity: Identity, backoff: Duration) -> Self {
        Self {
            carrier,
            identity,
            backoff,
        }
    }

    /// Asks who answers at an address, before anything is known of it.
    ///
    /// # Errors
    /// If nobody answers, or not like a controller.
    pub async fn introduce(&self, address: &str) -> Result<Introduction, CarryError> {
        let request = Request::get(format!("http://{address}{PATH_IDENTITY}"))
            .body(Vec::new())
            .map_err(|error| CarryError::Unreachable(error.into()))?;
        let answer = self.carrier.carry(request, INTRODUCTION).await?;
        if answer.status() != StatusCode::OK {
            let refusal = format!("it answered {}", answer.status());
            return Err(CarryError::Broken(refusal.into()));
        }
        serde_json::from_slice(answer.body()).map_err(|error| CarryError::Broken(error.into()))
    }
}

/// The HTTP client all of a controller's requests to other controllers go through.
///
/// # Errors
/// If the system has no randomness or the like.
pub fn http_client() -> Result<reqwest::Client, reqwest::Error> {
    reqwest::Client::builder()
        .no_proxy()
        .connect_timeout(Duration::from_millis(200))
        .tcp_nodelay(true)
        .pool_idle_timeout(Duration::from_secs(30))
        .build()
}

impl RaftNetworkFactory<TypeConfig> for Network {
    type Network = Peer;

    async fn new_client(&mut self, target: ControllerId, node: &Voter) -> Peer {
        Peer {
            network: self.clone(),
            target,
            node: node.clone(),
        }
    }
}

/// One other controller.
#[derive(Clone, Debug)]
pub struct Peer {
    network: Network,
    target: ControllerId,
    node: Voter,
}

type RpcResult<T, E> = Result<T, RPCError<ControllerId, Voter, RaftError<ControllerId, E>>>;

impl Peer {
    fn request(&self, path: &str, body: &impl Serialize) -> Result<Request<Vec<u8>>, Cause> {
        let identity = &self.network.identity;
        let mut headers = HeaderMap::new();
        let mut set = |name: &'static str, value: String| -> Result<(), Cause> {
            headers.insert(name, HeaderValue::try_from(value)?);
            Ok(())
        };
        set(HEADER_CLUSTER_ID, identity.cluster_id.clone())?;
        set(HEADER_FROM, controller_name(identity.controller_id))?;
        set(HEADER_TO, controller_name(self.target))?;
        set(HEADER_VERSION, VERSION.to_owned())?;
        set(HEADER_FROM_DIRECTORY, identity.directory_id.to_string())?;
        set(HEADER_TO_DIRECTORY, self.node.directory_id.to_string())?;
        set(header::CONTENT_TYPE.as_str(), "application/json".to_owned())?;
        let mut request = Request::post(format!("http://{}{path}", self.node.address))
            .body(serde_json::to_vec(body)?)?;
        *request.headers_mut() = headers;
        Ok(request)
    }

    async fn send<Q, A, E>(
        &self,
        action: RPCTypes,
        path: &str,
        request: &Q,
        deadline: Duration,
    ) -> RpcResult<A, E>
    where
        Q: Serialize,
        A: DeserializeOwned,
        E: std::error::Error + DeserializeOwned,
    {
        let identity = &self.network.identity;
        let failed = |error: CarryError| match error {
            CarryError::TimedOut(_) => RPCError::Timeout(Timeout {
                action,
                id: identity.controller_id,
                target: self.target,
                timeout: deadline,
            }),
            CarryError::Unreachable(_) => RPCError::Unreachable(Unreachable::new(&error)),
            CarryError::Broken(_) => RPCError::Network(NetworkError::new(&error)),
        };
        let request = self
            .request(path, request)
            .map_err(|error| failed(CarryError::Unreachable(error)))?;
        let carried = self.network.carrier.carry(request, deadline);
        let response = carried.await.map_err(failed)?;
        if !response.status().is_success() {
            let refusal = std::io::Error::other(format!(
                "controller {} at {} answered {}",
                self.target,
                self.node.address,
                response.status()
            ));
            return Err(RPCError::Unreachable(Unreachable::new(&refusal)));
        }
        let answer: Result<A, RaftError<ControllerId, E>> = serde_json::from_slice(response.body())
            .map_err(|error| RPCError::Network(NetworkError::new(&error)))?;
        answer.map_err(|error| RPCError::RemoteError(RemoteError::new(self.target, error)))
    }
}

impl RaftNetwork<TypeConfig> for Peer {
    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<AppendEntriesResponse<ControllerId>, openraft::error::Infallible> {
        let entries = rpc.entries.len() as u64;
        let sent = self.send(
            RPCTypes::AppendEntries,
            PATH_APPEND,
            &rpc,
            option.hard_ttl(),
        );
        if mutation::off(Mutation::OneControllerDecides) {
            return Ok(sent.await.unwrap_or(AppendEntriesResponse::Success));
        }
        if entries <= 1 {
            return sent.await;
        }
        // openraft drops the call at the hard limit, so what is to be learned from a timeout must be learned before: a peer
        // on a busy machine may never take this many in one heartbeat's time. Fewer, then.
        let fewer = || PayloadTooLarge::new_entries_hint(entries / 2).into();
        match tokio::time::timeout(option.soft_ttl(), sent).await {
            Ok(Err(RPCError::Timeout(_))) | Err(_) => Err(fewer()),
            Ok(result) => result,
        }
    }

    async fn install_snapshot(
        &mut self,
        rpc: InstallSnapshotRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<InstallSnapshotResponse<ControllerId>, InstallSnapshotError> {
        self.send(
            RPCTypes::InstallSnapshot,
            PATH_SNAPSHOT,
            &rpc,
            option.hard_ttl(),
        )
        .await
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<ControllerId>,
        option: RPCOption,
    ) -> RpcResult<VoteResponse<ControllerId>, openraft::error::Infallible> {
        let answer = self.send(RPCTypes::Vote, PATH_VOTE, &rpc, option.hard_ttl());
        match answer.await {
            Err(_) if mutation::off(Mutation::OneControllerDecides) => {
                Ok(VoteResponse::new(rpc.vote, None, true))
            }
            answer => answer,
        }
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(self.network.backoff))
    }
}
