//! Raft between controllers, over HTTP.
//! Law: every request says which cluster, who sends and who is meant, and which directory holds each one's vote; a peer
//! refuses what is not meant for it (a wiped voter must not vote twice).

use std::time::Duration;

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

/// Makes the connections to the other controllers.
#[derive(Clone, Debug)]
pub struct Network {
    client: reqwest::Client,
    identity: Identity,
    backoff: Duration,
}

impl Network {
    /// `backoff` is how long an unreachable controller is left alone.
    pub fn new(client: reqwest::Client, identity: Identity, backoff: Duration) -> Self {
        Self {
            client,
            identity,
            backoff,
        }
    }

    /// Asks who answers at an address, before anything is known of it.
    ///
    /// # Errors
    /// If nobody answers, or not like a controller.
    pub async fn introduce(&self, address: &str) -> Result<Introduction, reqwest::Error> {
        self.client
            .get(format!("http://{address}{PATH_IDENTITY}"))
            .timeout(Duration::from_secs(1))
            .send()
            .await?
            .error_for_status()?
            .json()
            .await
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
        let failed = |error: reqwest::Error| {
            if error.is_timeout() {
                RPCError::Timeout(Timeout {
                    action,
                    id: identity.controller_id,
                    target: self.target,
                    timeout: deadline,
                })
            } else {
                RPCError::Unreachable(Unreachable::new(&error))
            }
        };
        let response = self
            .network
            .client
            .post(format!("http://{}{path}", self.node.address))
            .header(HEADER_CLUSTER_ID, &identity.cluster_id)
            .header(HEADER_FROM, controller_name(identity.controller_id))
            .header(HEADER_TO, controller_name(self.target))
            .header(HEADER_VERSION, VERSION)
            .header(HEADER_FROM_DIRECTORY, identity.directory_id.to_string())
            .header(HEADER_TO_DIRECTORY, self.node.directory_id.to_string())
            .timeout(deadline)
            .json(request)
            .send()
            .await
            .map_err(failed)?;
        if !response.status().is_success() {
            let refusal = std::io::Error::other(format!(
                "controller {} at {} answered {}",
                self.target,
                self.node.address,
                response.status()
            ));
            return Err(RPCError::Unreachable(Unreachable::new(&refusal)));
        }
        let answer: Result<A, RaftError<ControllerId, E>> = response
            .json()
            .await
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
        self.send(RPCTypes::Vote, PATH_VOTE, &rpc, option.hard_ttl())
            .await
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(self.network.backoff))
    }
}
