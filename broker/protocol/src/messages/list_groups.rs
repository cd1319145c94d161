//! ListGroups (16): the groups one broker coordinates.

use crate::message::message;

message! {
    /// Asks for groups.
    ListGroupsRequest (ListGroups) {
        /// Only groups in these states; empty for all (KIP-518).
        states_filter: Vec<String> [4..],
        /// Only groups of these types; empty for all (KIP-848).
        types_filter: Vec<String> [5..],
    }

    /// The groups.
    ListGroupsResponse (ListGroups) {
        /// How long the client was or should be held back, in milliseconds.
        throttle_time_ms: i32 [1..],
        /// The error, or 0.
        error_code: i16 [0..],
        /// The groups.
        groups: Vec<ListedGroup> [0..],
    }

    /// One group.
    ListedGroup {
        /// Its id.
        group_id: String [0..],
        /// What its members speak among themselves.
        protocol_type: String [0..],
        /// Its state.
        group_state: String [4..],
        /// Its type.
        group_type: String [5..],
    }
}
