//! A broker's configuration, ready to use: its file, and what its formatted directories say.
//! Law: read once, at the start. What belongs to a topic is not here: the metadata image has its one effective value.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::Path;

use anyhow::Context as _;
use kuorum_metadata::config_def;

/// Everything the broker's file and its directories say.
#[derive(Clone, Debug)]
pub struct BrokerConfig {
    values: config_def::BrokerConfig,
    /// What the file itself says, by key.
    pub file: BTreeMap<String, String>,
    /// From `meta.properties`.
    pub cluster_id: String,
}

impl BrokerConfig {
    /// The file's values, for a broker of that cluster.
    pub fn new(values: config_def::BrokerConfig, cluster_id: String) -> Self {
        let file = values.given.clone();
        Self {
            values,
            file,
            cluster_id,
        }
    }

    /// The most one answer to a Fetch carries, in bytes.
    pub fn fetch_max(&self) -> usize {
        usize::try_from(self.values.fetch_max_bytes).unwrap_or(0)
    }
}

impl Deref for BrokerConfig {
    type Target = config_def::BrokerConfig;

    fn deref(&self) -> &Self::Target {
        &self.values
    }
}

/// Reads and checks a file. The error is one line that says what to do.
pub fn load(path: &Path) -> anyhow::Result<config_def::BrokerConfig> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the configuration file {}", path.display()))?;
    let raw = config_def::parse_properties(&text)
        .with_context(|| format!("{} cannot be understood", path.display()))?;
    config_def::BrokerConfig::load(&raw).with_context(|| path.display().to_string())
}
