//! Configuration values.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One effective value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConfigEntry {
    pub name: String,
    pub value: Option<String>,
    /// Where the value comes from.
    pub source: ConfigSource,
    /// What it would be if nobody had said anything.
    pub default: Option<String>,
    /// What it would be if this topic, or the cluster's default, said nothing: what unsetting it goes back to.
    #[serde(default)]
    pub fallback: Option<String>,
    pub read_only: bool,
    /// What the key does.
    #[serde(default)]
    pub doc: String,
}

/// Where an effective value comes from, the strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConfigSource {
    /// The topic's own override.
    Topic,
    /// A live value of one broker.
    Broker,
    /// The cluster's default, changed live.
    ClusterDefault,
    /// The value in the controllers' file, as recorded in the metadata log.
    ControllerFile,
    /// Built in.
    Default,
}

/// A change: `{"set":{"retention.ms":"1000"},"unset":["cleanup.policy"]}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfigPatch {
    #[serde(default)]
    pub set: BTreeMap<String, String>,
    /// Keys that go back to their default.
    #[serde(default)]
    pub unset: BTreeSet<String>,
    /// Only check, change nothing.
    #[serde(default)]
    pub dry_run: bool,
}
