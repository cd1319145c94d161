//! Whether the cluster is well, and if not, why.
//! Law: `healthy` is false exactly when there is a reason; a reason says how often, where, why and what to do. A note is
//! chosen, not wrong, and makes nothing unhealthy.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The state of the whole cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    pub healthy: bool,
    pub reasons: Vec<HealthReason>,
    /// What somebody has chosen and others should know.
    #[serde(default)]
    pub notes: Vec<HealthNote>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HealthReason {
    /// Stable, in capitals: `LEADERLESS_PARTITIONS`.
    pub code: String,
    /// How many things are affected, all of them counted.
    pub count: usize,
    /// The first few of them.
    pub sample: Vec<String>,
    /// What brings this about.
    pub cause: String,
    /// What to do.
    pub cure: String,
}

/// One thing that is as somebody wants it, and worth knowing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HealthNote {
    /// Stable, in capitals: `PAGE_CACHE_DURABILITY`.
    pub code: String,
    /// How many things it is about, all of them counted.
    pub count: usize,
    /// The first few of them.
    pub sample: Vec<String>,
    /// What it means.
    pub meaning: String,
}
