//! Where a partition is, for requests that need its leader, and whom to ask instead (KIP-951).
//! Law: "unknown" is said only of what the image does not have; a partition that exists and is not here is "not the leader".

use std::collections::BTreeMap;
use std::sync::Arc;

use kuorum_metadata::image::{MetadataImage, TopicImage};
use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::{BrokerId, PartitionIndex, TopicId};

use crate::context::Context;
use crate::partition::LeaderHint;
use crate::replica_manager::Hosted;

/// Why a partition cannot be asked here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elsewhere {
    /// No such topic or partition.
    UnknownPartition,
    /// No topic has this id.
    UnknownTopicId,
    /// It exists, and its log is not on this broker, or not yet.
    NotHere(LeaderHint),
}

impl From<Elsewhere> for ErrorCode {
    fn from(elsewhere: Elsewhere) -> Self {
        match elsewhere {
            Elsewhere::UnknownPartition => Self::UnknownTopicOrPartition,
            Elsewhere::UnknownTopicId => Self::UnknownTopicId,
            Elsewhere::NotHere(_) => Self::NotLeaderOrFollower,
        }
    }
}

/// Finds a topic by id where the version has ids, by name otherwise.
pub fn topic<'a>(
    image: &'a MetadataImage,
    name: &str,
    id: TopicId,
    by_id: bool,
) -> Result<&'a Arc<TopicImage>, Elsewhere> {
    if by_id {
        image.topic_by_id(id).ok_or(Elsewhere::UnknownTopicId)
    } else {
        image.topic(name).ok_or(Elsewhere::UnknownPartition)
    }
}

/// Finds the replica of a partition on this broker.
pub fn replica(
    cx: &Context,
    topic: &TopicImage,
    index: PartitionIndex,
) -> Result<Arc<Hosted>, Elsewhere> {
    let partition = topic.partition(index).ok_or(Elsewhere::UnknownPartition)?;
    cx.replicas
        .get(topic.id, index)
        .ok_or(Elsewhere::NotHere(LeaderHint {
            leader: partition.leader,
            leader_epoch: partition.leader_epoch,
        }))
}

/// The addresses of leaders that an answer points to, each once.
#[derive(Debug, Default)]
pub struct Endpoints {
    nodes: BTreeMap<BrokerId, Endpoint>,
}

/// Where a broker is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub id: BrokerId,
    pub host: String,
    pub port: u16,
    pub rack: Option<String>,
}

impl Endpoints {
    /// Adds the leader of a hint, as it is reached through `listener`. Returns the leader to name, −1 when there is none.
    pub fn add(&mut self, image: &MetadataImage, listener: &str, hint: LeaderHint) -> BrokerId {
        let Some(leader) = hint.leader else {
            return BrokerId::NONE;
        };
        let Some(broker) = image.broker(leader) else {
            return BrokerId::NONE;
        };
        if let Some(address) = broker.listener(listener) {
            self.nodes.entry(leader).or_insert_with(|| Endpoint {
                id: leader,
                host: address.host.clone(),
                port: address.port,
                rack: broker.rack.clone(),
            });
        }
        leader
    }

    /// All of them, by broker id.
    pub fn into_nodes(self) -> impl Iterator<Item = Endpoint> {
        self.nodes.into_values()
    }
}
