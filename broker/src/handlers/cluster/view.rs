//! What a client may see of the image: addresses by listener, leaders, and the bits of what it may do.
//! Law: pure; one image in, plain values out.

use kuorum_metadata::image::{BrokerImage, MetadataImage, PartitionImage};
use kuorum_protocol::BrokerId;
use kuorum_protocol::error_code::ErrorCode;

/// "Not asked for" in every field of authorized operations.
pub const OPERATIONS_NOT_ASKED: i32 = i32::MIN;
/// Everything that may be done with a topic: read, write, create, delete, alter, describe, describe and alter configs.
pub const TOPIC_OPERATIONS: i32 = bits(&[3, 4, 5, 6, 7, 8, 10, 11]);
/// Everything that may be done with a cluster: create, alter, describe, cluster action, describe and alter configs,
/// idempotent write.
pub const CLUSTER_OPERATIONS: i32 = bits(&[5, 7, 8, 9, 10, 11, 12]);

const fn bits(operations: &[u32]) -> i32 {
    let mut set = 0;
    let mut i = 0;
    while i < operations.len() {
        set |= 1 << operations[i];
        i += 1;
    }
    set
}

/// Topics the brokers keep for themselves.
pub fn is_internal(topic: &str) -> bool {
    matches!(topic, "__consumer_offsets" | "__transaction_state")
}

/// A broker as a client of one listener sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub id: i32,
    pub host: String,
    pub port: i32,
    pub rack: Option<String>,
    pub fenced: bool,
}

/// The broker's address on `listener`; `None` if it has none there.
pub fn node(broker: &BrokerImage, listener: &str) -> Option<Node> {
    let address = broker.listener(listener)?;
    Some(Node {
        id: broker.id.0,
        host: address.host.clone(),
        port: i32::from(address.port),
        rack: broker.rack.clone(),
        fenced: broker.fenced,
    })
}

/// The brokers in service that can be reached through `listener`, by id.
pub fn nodes_in_service(image: &MetadataImage, listener: &str) -> Vec<Node> {
    image
        .brokers()
        .filter(|broker| !broker.fenced)
        .filter_map(|broker| node(broker, listener))
        .collect()
}

/// Any broker may play the controller: each forwards what a controller must decide. `draw` picks one; −1 if there is none.
pub fn controller_id(nodes: &[Node], draw: u64) -> i32 {
    if nodes.is_empty() {
        return BrokerId::NONE.0;
    }
    let pick = (draw % nodes.len() as u64) as usize;
    nodes[pick].id
}

/// A partition as a client of one listener sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionView {
    pub error: ErrorCode,
    /// −1 if nobody leads, or the leader cannot be reached through the listener.
    pub leader: i32,
    pub leader_epoch: i32,
    pub replicas: Vec<i32>,
    pub isr: Vec<i32>,
    /// Replicas whose broker is out of service.
    pub offline: Vec<i32>,
}

/// Looks at a partition through `listener`.
pub fn partition(
    image: &MetadataImage,
    partition: &PartitionImage,
    listener: &str,
) -> PartitionView {
    let in_service = |id: BrokerId| image.broker(id).filter(|broker| !broker.fenced);
    let (error, leader) = match partition.leader {
        None => (ErrorCode::LeaderNotAvailable, BrokerId::NONE),
        Some(leader) => match in_service(leader) {
            None => (ErrorCode::LeaderNotAvailable, BrokerId::NONE),
            Some(broker) if broker.listener(listener).is_none() => {
                (ErrorCode::ListenerNotFound, BrokerId::NONE)
            }
            Some(_) => (ErrorCode::None, leader),
        },
    };
    PartitionView {
        error,
        leader: leader.0,
        leader_epoch: partition.leader_epoch.0,
        replicas: numbers(&partition.replicas),
        isr: numbers(&partition.isr),
        offline: partition
            .replicas
            .iter()
            .filter(|replica| in_service(**replica).is_none())
            .map(|replica| replica.0)
            .collect(),
    }
}

/// Broker ids as the wire carries them.
pub fn numbers(brokers: &[BrokerId]) -> Vec<i32> {
    brokers.iter().map(|broker| broker.0).collect()
}

/// A topic's name as Kafka allows it: 1 to 249 of `[a-zA-Z0-9._-]`, and neither `.` nor `..`.
pub fn is_valid_topic_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 249
        && name != "."
        && name != ".."
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}
