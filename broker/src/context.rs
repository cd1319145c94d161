//! What a handler is given: who asks, through which door, and the rooms of this broker.
//! Law: a handler reaches everything through here and nothing through a global.

use std::ops::Deref;
use std::sync::Arc;

use kuorum_transport::Clock;
use tokio::sync::Semaphore;

use crate::authorizer::{Authorizer, Operation, Resource};
use crate::cluster::{ControllerClient, Membership, MetadataCache};
use crate::config::BrokerConfig;
use crate::fetch_memory::FetchMemory;
use crate::fetch_session::FetchSessions;
use crate::handlers::log::limits::TopicLimits;
use crate::metrics::Metrics;
use crate::producer_ids::ProducerIds;
use crate::replica_manager::ReplicaManager;
use crate::salvage::Salvage;

/// The listener for Kafka clients.
pub const CLIENT: &str = "CLIENT";

/// The listener for other brokers: the only one through which replicas may fetch.
pub const INTERNAL: &str = "INTERNAL";

/// Who everybody is until there is authentication.
pub const ANONYMOUS: &str = "User:ANONYMOUS";

/// The rooms of one broker, shared by all its connections.
#[derive(Debug)]
pub struct Rooms {
    pub config: Arc<BrokerConfig>,
    pub clock: Clock,
    /// This process as a member of its cluster: its id and broker epoch.
    pub membership: Arc<Membership>,
    pub metadata: Arc<MetadataCache>,
    pub replicas: Arc<ReplicaManager>,
    pub controllers: ControllerClient,
    pub producer_ids: Arc<ProducerIds>,
    pub sessions: FetchSessions,
    pub fetch_memory: Arc<FetchMemory>,
    pub topic_limits: TopicLimits,
    /// So many requests have their compressed batches opened at a time.
    pub unpacking: Semaphore,
    pub metrics: Arc<Metrics>,
    pub salvage: Arc<Salvage>,
    pub authorizer: Authorizer,
}

/// One request's view of the broker. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Context {
    rooms: Arc<Rooms>,
    /// Who asks.
    pub principal: Arc<str>,
    /// Through which listener: [`CLIENT`] or [`INTERNAL`].
    pub listener: Arc<str>,
    /// What the asking program calls itself.
    pub client_id: Option<Arc<str>>,
}

impl Context {
    /// A request that came through `listener`.
    pub fn new(
        rooms: Arc<Rooms>,
        principal: Arc<str>,
        listener: Arc<str>,
        client_id: Option<Arc<str>>,
    ) -> Self {
        Self {
            rooms,
            principal,
            listener,
            client_id,
        }
    }

    /// Whether another broker may be asking.
    pub fn is_internal(&self) -> bool {
        &*self.listener == INTERNAL
    }

    /// Whether the one who asks may do that.
    pub fn may(&self, operation: Operation, resource: Resource<'_>) -> bool {
        self.authorizer.allows(&self.principal, operation, resource)
    }
}

impl Deref for Context {
    type Target = Rooms;

    fn deref(&self) -> &Rooms {
        &self.rooms
    }
}
