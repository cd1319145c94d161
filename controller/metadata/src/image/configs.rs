//! What is in force: the one place where a configuration value is looked up.
//! Law: topic override → the cluster's dynamic default → the recorded value of the controller's file → built-in. Internal
//! topics never elect uncleanly, whatever anybody set.

use std::collections::BTreeMap;

use imbl::OrdMap;
use kuorum_protocol::BrokerId;

use super::MetadataImage;
use crate::config_def::{
    ConfigKey, Durability, Scope, TopicConfig, broker_keys, cluster_key, file_key, topic_key,
    topic_keys,
};
use crate::record::ConfigResource;

/// The topic of committed offsets.
pub const CONSUMER_OFFSETS: &str = "__consumer_offsets";
/// The topic of transactions' states.
pub const TRANSACTION_STATE: &str = "__transaction_state";

const UNCLEAN: &str = "unclean.leader.election.enable";

/// Whether a topic is the coordinators' own.
pub fn is_internal_topic(name: &str) -> bool {
    name == CONSUMER_OFFSETS || name == TRANSACTION_STATE
}

/// Where a value comes from. The numbers are those of DescribeConfigs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigSource {
    /// 1: the topic's override.
    Topic = 1,
    /// 2: one broker's dynamic value.
    Broker = 2,
    /// 3: the cluster's dynamic default.
    ClusterDefault = 3,
    /// 4: a file; for what the whole cluster shares, the recorded one.
    File = 4,
    /// 5: built in.
    BuiltIn = 5,
}

/// One value in force, with its origin.
#[derive(Clone, Debug, PartialEq)]
pub struct EffectiveValue {
    pub key: &'static ConfigKey,
    /// `None` where another key is looked at instead.
    pub value: Option<String>,
    pub source: ConfigSource,
    /// Whether it can only be changed in a file.
    pub read_only: bool,
    /// Everything that is set or built in for it, the one in force first.
    pub synonyms: Vec<ConfigSynonym>,
}

/// One place where a value is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigSynonym {
    pub name: &'static str,
    pub value: String,
    pub source: ConfigSource,
}

impl MetadataImage {
    /// A topic's configuration. A name nobody knows has the cluster's defaults.
    pub fn effective_topic_config(&self, topic: &str) -> TopicConfig {
        let overrides = self.configs.get(&ConfigResource::Topic(topic.to_owned()));
        let mut config = TopicConfig::from_values(|name| {
            let key = topic_key(name).expect("the typed struct asks for keys of the table");
            self.topic_value(key, overrides)
        });
        config.unclean_leader_election_enable &= !is_internal_topic(topic);
        config
    }

    /// Whether a replica that is not in sync may be elected, as of now.
    pub fn unclean_election_allowed(&self, topic: &str) -> bool {
        let key = topic_key(UNCLEAN).expect("the key is in the table");
        let overrides = self.configs.get(&ConfigResource::Topic(topic.to_owned()));
        !is_internal_topic(topic) && self.topic_value(key, overrides) == "true"
    }

    /// The min.insync.replicas in force for a topic.
    pub fn min_insync_replicas(&self, topic: &str) -> usize {
        let key = topic_key("min.insync.replicas").expect("the key is in the table");
        let overrides = self.configs.get(&ConfigResource::Topic(topic.to_owned()));
        self.topic_value(key, overrides).parse().unwrap_or(1)
    }

    /// The acks.durability in force for a topic.
    pub fn durability(&self, topic: &str) -> Durability {
        let key = topic_key("acks.durability").expect("the key is in the table");
        let overrides = self.configs.get(&ConfigResource::Topic(topic.to_owned()));
        Durability::from_value(&self.topic_value(key, overrides))
    }

    /// A value the whole cluster shares, by its own name; `None` if the table knows no such key or it is null.
    pub fn cluster_value(&self, name: &str) -> Option<String> {
        let key = cluster_key(name)?;
        let resources = [
            ConfigResource::ClusterDefault,
            ConfigResource::ControllerFile,
        ];
        resources
            .iter()
            .find_map(|resource| self.config_value(resource, key.name))
            .or(key.default_value())
            .map(str::to_owned)
    }

    /// The same as a number.
    pub fn cluster_number(&self, name: &str) -> i64 {
        let value = self.cluster_value(name);
        value.and_then(|value| value.parse().ok()).unwrap_or(0)
    }

    /// A number that one broker may have for itself (`ConfigKey::is_per_broker`), as it is in force for `broker`.
    pub fn broker_number(&self, broker: BrokerId, name: &str) -> i64 {
        let own = self.config_value(&ConfigResource::Broker(broker), name);
        own.and_then(|value| value.trim().parse().ok())
            .unwrap_or_else(|| self.cluster_number(name))
    }

    /// One topic key as it is in force for a topic; `None` if there is no such key.
    pub fn effective_topic_value(&self, topic: &str, name: &str) -> Option<String> {
        let overrides = self.configs.get(&ConfigResource::Topic(topic.to_owned()));
        Some(self.topic_value(topic_key(name)?, overrides))
    }

    /// What is set for a resource, by key.
    pub fn configs_of(&self, resource: &ConfigResource) -> Option<&OrdMap<String, String>> {
        self.configs.get(resource)
    }

    /// All topic keys as they are in force for a topic, by name.
    pub fn describe_topic(&self, topic: &str) -> Vec<EffectiveValue> {
        let overrides = self.configs.get(&ConfigResource::Topic(topic.to_owned()));
        topic_keys()
            .map(|key| {
                let mut synonyms: Vec<ConfigSynonym> = Vec::new();
                if let Some(value) = overrides.and_then(|overrides| overrides.get(key.name)) {
                    synonyms.push(ConfigSynonym {
                        name: key.name,
                        value: value.clone(),
                        source: ConfigSource::Topic,
                    });
                }
                synonyms.extend(self.cluster_synonyms(key));
                let pinned = key.name == UNCLEAN && is_internal_topic(topic);
                if pinned {
                    synonyms.retain(|synonym| synonym.source == ConfigSource::BuiltIn);
                }
                let value = self.topic_value(key, overrides.filter(|_| !pinned));
                let source = synonyms
                    .first()
                    .map_or(ConfigSource::BuiltIn, |synonym| synonym.source);
                EffectiveValue {
                    key,
                    value: Some(if pinned { "false".to_owned() } else { value }),
                    source,
                    read_only: pinned,
                    synonyms,
                }
            })
            .collect()
    }

    /// All keys the whole cluster shares, as they are in force.
    pub fn describe_cluster(&self) -> Vec<EffectiveValue> {
        broker_keys()
            .filter(|key| key.scope == Scope::Cluster)
            .map(|key| self.describe_file_key(key, None, None))
            .collect()
    }

    /// All keys of a broker, as they are in force; `file` is what its own file says.
    pub fn describe_broker(
        &self,
        broker: BrokerId,
        file: &BTreeMap<String, String>,
    ) -> Vec<EffectiveValue> {
        broker_keys()
            .map(|key| self.describe_file_key(key, Some(broker), file.get(key.name)))
            .collect()
    }

    fn describe_file_key(
        &self,
        key: &'static ConfigKey,
        broker: Option<BrokerId>,
        own_file: Option<&String>,
    ) -> EffectiveValue {
        let mut synonyms: Vec<ConfigSynonym> = Vec::new();
        let mut add = |value: Option<&str>, source| {
            synonyms.extend(value.map(|value| ConfigSynonym {
                name: key.name,
                value: value.to_owned(),
                source,
            }));
        };
        if let Some(broker) = broker {
            let resource = ConfigResource::Broker(broker);
            add(self.config_value(&resource, key.name), ConfigSource::Broker);
        }
        if key.scope == Scope::Cluster {
            let dynamic = self.config_value(&ConfigResource::ClusterDefault, key.name);
            add(dynamic, ConfigSource::ClusterDefault);
            let recorded = self.config_value(&ConfigResource::ControllerFile, key.name);
            add(recorded, ConfigSource::File);
        } else {
            add(own_file.map(String::as_str), ConfigSource::File);
        }
        add(key.default_value(), ConfigSource::BuiltIn);
        let strongest = synonyms.first();
        EffectiveValue {
            key,
            value: strongest.map(|synonym| synonym.value.clone()),
            source: strongest.map_or(ConfigSource::BuiltIn, |synonym| synonym.source),
            read_only: !key.is_dynamic(),
            synonyms,
        }
    }

    /// The cluster-wide values behind a topic key, the strongest first, under their own names.
    fn cluster_synonyms(&self, key: &'static ConfigKey) -> Vec<ConfigSynonym> {
        let mut found = Vec::new();
        let places = [
            (ConfigResource::ClusterDefault, ConfigSource::ClusterDefault),
            (ConfigResource::ControllerFile, ConfigSource::File),
        ];
        for (resource, source) in places {
            for synonym in key.synonyms {
                if let Some(value) = self.config_value(&resource, synonym.name) {
                    found.push(ConfigSynonym {
                        name: synonym.name,
                        value: value.to_owned(),
                        source,
                    });
                }
            }
        }
        let built_in = key
            .synonyms
            .iter()
            .filter_map(|synonym| Some((synonym.name, file_key(synonym.name)?.default_value()?)))
            .next()
            .or(key.default_value().map(|value| (key.name, value)));
        found.extend(built_in.map(|(name, value)| ConfigSynonym {
            name,
            value: value.to_owned(),
            source: ConfigSource::BuiltIn,
        }));
        found
    }

    fn topic_value(
        &self,
        key: &'static ConfigKey,
        overrides: Option<&OrdMap<String, String>>,
    ) -> String {
        if let Some(value) = overrides.and_then(|overrides| overrides.get(key.name)) {
            return value.trim().to_owned();
        }
        for resource in [
            ConfigResource::ClusterDefault,
            ConfigResource::ControllerFile,
        ] {
            for synonym in key.synonyms {
                if let Some(value) = self.config_value(&resource, synonym.name) {
                    return in_units_of_the_topic(value, synonym.factor);
                }
            }
        }
        key.default_value().unwrap_or_default().to_owned()
    }

    fn config_value(&self, resource: &ConfigResource, name: &str) -> Option<&str> {
        self.configs.get(resource)?.get(name).map(String::as_str)
    }
}

/// Hours and minutes as milliseconds; −1 stays −1.
fn in_units_of_the_topic(value: &str, factor: i64) -> String {
    let value = value.trim();
    match value.parse::<i64>() {
        Ok(number) if factor != 1 && number >= 0 => number.saturating_mul(factor).to_string(),
        _ => value.to_owned(),
    }
}
