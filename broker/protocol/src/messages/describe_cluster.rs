//! DescribeCluster (60): the brokers and who speaks for the controller (KIP-700).

use crate::message::message;

message! {
    /// Asks for the cluster.
    DescribeClusterRequest (DescribeCluster) {
        /// Whether to say what the client may do with the cluster.
        include_cluster_authorized_operations: bool [0..],
        /// 1 brokers, 2 controllers (KIP-919).
        endpoint_type: i8 [1..] = 1,
        /// Whether to tell of fenced brokers too (KIP-1073).
        include_fenced_brokers: bool [2..],
    }

    /// The cluster.
    DescribeClusterResponse (DescribeCluster) {
        /// How long the client was or should be held back, in milliseconds.
        throttle_time_ms: i32 [0..],
        /// The error, or 0.
        error_code: i16 [0..],
        /// The error in words.
        error_message: Option<String> [0..],
        /// As in the request.
        endpoint_type: i8 [1..] = 1,
        /// The cluster's id.
        cluster_id: String [0..],
        /// A broker that takes requests for the controller.
        controller_id: i32 [0..] = -1,
        /// The brokers, as this listener names them.
        brokers: Vec<DescribeClusterBroker> [0..],
        /// What the client may do with the cluster, as a bit set.
        cluster_authorized_operations: i32 [0..] = i32::MIN,
    }

    /// One broker.
    DescribeClusterBroker {
        /// Its id.
        broker_id: i32 [0..],
        /// Its host.
        host: String [0..],
        /// Its port.
        port: i32 [0..],
        /// Its rack.
        rack: Option<String> [0..],
        /// Whether it is registered but not alive.
        is_fenced: bool [2..],
    }
}
