//! Every configuration key there is: one table, from which validation, descriptions, help and "did you mean" come.
//! Law: after `validate` nothing is a string, and a key that is not in the table does not exist.

mod keys;
mod properties;
mod roles;
mod topic;
mod value;

pub use keys::{KEYS, broker_keys, topic_keys};
pub use properties::RawConfig;
pub use roles::{
    BrokerConfig, CLIENT, ControllerConfig, INTERNAL, ListenAddress, LogFormat, Role, Validated,
    Voter, validate,
};
pub use topic::{CleanupPolicy, CompressionType, Durability, TimestampType, TopicConfig};
pub(crate) use value::items;

/// Reads the text of a `.properties` file.
pub fn parse_properties(text: &str) -> Result<RawConfig, ConfigError> {
    RawConfig::parse(text)
}

/// What is wrong with a configuration, in one sentence that says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ConfigError {
    /// The key it is about, if it is about one.
    pub key: Option<String>,
    /// What is wrong.
    pub message: String,
}

impl ConfigError {
    pub(crate) fn new(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            key: Some(key.into()),
            message: message.into(),
        }
    }
}

/// Whose key it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// An override of one topic.
    Topic,
    /// One value for the whole cluster: the active controller records its file's, and it can be changed live.
    Cluster,
    /// A broker's own file.
    Broker,
    /// A controller's own file.
    Controller,
    /// Both roles' own files.
    Process,
}

/// What a value may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Boolean,
    /// 16 bits.
    Short {
        min: i64,
    },
    /// 32 bits.
    Int {
        min: i64,
    },
    /// 64 bits.
    Long {
        min: i64,
    },
    Double {
        min: f64,
        max: f64,
    },
    Text,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Words separated by commas.
    List,
    /// The same, each one of these.
    ListOf(&'static [&'static str]),
    /// Replicas as `partition:broker`, separated by commas, or `*` for all.
    Replicas,
}

impl Kind {
    /// The number by which DescribeConfigs names the type (KIP-569).
    pub fn wire_type(self) -> i8 {
        match self {
            Self::Boolean => 1,
            Self::Text | Self::Choice(_) => 2,
            Self::Int { .. } => 3,
            Self::Short { .. } => 4,
            Self::Long { .. } => 5,
            Self::Double { .. } => 6,
            Self::List | Self::ListOf(_) | Self::Replicas => 7,
        }
    }

    /// The type's name as Kafka writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Boolean => "boolean",
            Self::Text | Self::Choice(_) => "string",
            Self::Int { .. } => "int",
            Self::Short { .. } => "short",
            Self::Long { .. } => "long",
            Self::Double { .. } => "double",
            Self::List | Self::ListOf(_) | Self::Replicas => "list",
        }
    }

    /// Whether values can be appended and subtracted.
    pub fn is_list(self) -> bool {
        matches!(self, Self::List | Self::ListOf(_) | Self::Replicas)
    }
}

/// What holds where nothing is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyDefault {
    /// This value.
    Is(&'static str),
    /// No value: something else is looked at instead.
    Null,
    /// There is none: the file must say.
    Required,
}

/// A name under which a topic key's cluster-wide value is set, and how many of the topic key's units one of its units is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Synonym {
    pub name: &'static str,
    /// 1, or the milliseconds of a minute or an hour.
    pub factor: i64,
}

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConfigKey {
    pub name: &'static str,
    pub scope: Scope,
    pub kind: Kind,
    pub default: KeyDefault,
    /// With a topic key: the cluster-wide keys behind it, the strongest first.
    pub synonyms: &'static [Synonym],
    pub doc: &'static str,
}

impl ConfigKey {
    /// The default as text, if there is one.
    pub fn default_value(&self) -> Option<&'static str> {
        match self.default {
            KeyDefault::Is(value) => Some(value),
            KeyDefault::Null | KeyDefault::Required => None,
        }
    }

    /// Whether it can be changed while the cluster runs.
    pub fn is_dynamic(&self) -> bool {
        matches!(self.scope, Scope::Topic | Scope::Cluster)
    }

    /// Whether one broker may have a value of its own, changed live, that wins over the cluster's.
    pub fn is_per_broker(&self) -> bool {
        matches!(
            self.name,
            "leader.replication.throttled.rate"
                | "follower.replication.throttled.rate"
                | "replica.alter.log.dirs.io.max.bytes.per.second"
        )
    }

    /// Checks a value against type and range.
    pub fn check(&self, value: &str) -> Result<(), ConfigError> {
        value::check(self, value)
    }
}

/// The row of a topic key.
pub fn topic_key(name: &str) -> Option<&'static ConfigKey> {
    topic_keys().find(|key| key.name == name)
}

/// The row of a key of the files and of the cluster's default.
pub fn file_key(name: &str) -> Option<&'static ConfigKey> {
    KEYS.iter()
        .find(|key| key.scope != Scope::Topic && key.name == name)
}

/// The row of a key that has one value for the whole cluster. A topic key's own name means its strongest synonym.
pub fn cluster_key(name: &str) -> Option<&'static ConfigKey> {
    let is_cluster = |key: &&'static ConfigKey| key.scope == Scope::Cluster;
    file_key(name).filter(is_cluster).or_else(|| {
        let synonym = topic_key(name)?.synonyms.first()?;
        file_key(synonym.name).filter(is_cluster)
    })
}

/// The key that was probably meant.
pub fn did_you_mean(name: &str) -> Option<&'static str> {
    if let Some(synonym) = topic_key(name).and_then(|key| key.synonyms.first()) {
        return Some(synonym.name);
    }
    nearest(
        name,
        KEYS.iter()
            .filter(|key| key.scope != Scope::Topic)
            .map(|key| key.name),
    )
}

/// The topic key that was probably meant.
pub fn did_you_mean_topic_key(name: &str) -> Option<&'static str> {
    let behind = topic_keys().find(|key| key.synonyms.iter().any(|synonym| synonym.name == name));
    behind
        .map(|key| key.name)
        .or_else(|| nearest(name, topic_keys().map(|key| key.name)))
}

/// The name among `names` that `name` was probably to be; `None` if none is near.
pub fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let length = name.chars().count();
    let tolerated = (length / 4).clamp(2, 6);
    names
        .filter(|known| known.chars().count().abs_diff(length) <= tolerated)
        .map(|known| (edit_distance(name, known), known))
        .filter(|(distance, _)| *distance <= tolerated)
        .min()
        .map(|(_, known)| known)
}

/// How many letters must be inserted, deleted or replaced to turn one word into the other.
fn edit_distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    // The row of distances from what was read of `from` to each prefix of `to`. Names are short; a hostile one is cut.
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (read, letter) in from.chars().take(256).enumerate() {
        let mut diagonal = row[0];
        row[0] = read + 1;
        for column in 0..to.len() {
            let replaced = diagonal + usize::from(letter != to[column]);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}
