//! The settings, under Kafka's names and with Kafka's defaults.
//! Law: what contradicts itself is refused before anything is sent; a default never overrules what was asked for.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use kuorum_protocol::record::Codec;
use thiserror::Error;

/// Why settings are refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// There is no such setting.
    #[error("there is no setting {name}{}", .suggestion.map(|s| format!("; did you mean {s}?")).unwrap_or_default())]
    Unknown {
        /// The name given.
        name: String,
        /// A name like it.
        suggestion: Option<&'static str>,
    },
    /// The value does not fit.
    #[error("{name} cannot be {value:?}: {expected} is expected")]
    Invalid {
        /// The setting.
        name: &'static str,
        /// The value given.
        value: String,
        /// What would fit.
        expected: &'static str,
    },
    /// Two settings contradict each other.
    #[error("{0}")]
    Conflict(&'static str),
}

/// How many replicas must have a record before it is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Acks {
    /// Nobody; offsets are not known.
    None,
    /// The leader.
    Leader,
    /// Everybody in sync.
    #[default]
    All,
}

impl Acks {
    /// The number on the wire.
    pub fn wire(self) -> i16 {
        match self {
            Self::None => 0,
            Self::Leader => 1,
            Self::All => -1,
        }
    }
}

/// Which records a consumer sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IsolationLevel {
    /// All below the high watermark, those of open and aborted transactions too.
    #[default]
    ReadUncommitted,
    /// Those below the last stable offset, without aborted ones.
    ReadCommitted,
}

/// What a consumer does when its position is not in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OffsetReset {
    /// Goes to the beginning of the log.
    Earliest,
    /// Goes to the end of the log.
    #[default]
    Latest,
    /// Fails.
    None,
}

/// A value that can be read from a properties file.
trait Value: Sized {
    const EXPECTED: &'static str;
    fn parse(text: &str) -> Option<Self>;
    fn show(&self) -> String;
}

macro_rules! number_values {
    ($($type:ty),+) => {$(
        impl Value for $type {
            const EXPECTED: &'static str = "a whole number";
            fn parse(text: &str) -> Option<Self> {
                text.parse().ok()
            }
            fn show(&self) -> String {
                self.to_string()
            }
        }
    )+};
}

number_values!(i32, usize);

/// Durations are written in milliseconds.
impl Value for Duration {
    const EXPECTED: &'static str = "a number of milliseconds";
    fn parse(text: &str) -> Option<Self> {
        text.parse().ok().map(Self::from_millis)
    }
    fn show(&self) -> String {
        self.as_millis().to_string()
    }
}

impl Value for bool {
    const EXPECTED: &'static str = "true or false";
    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }
    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for String {
    const EXPECTED: &'static str = "text";
    fn parse(text: &str) -> Option<Self> {
        Some(text.to_owned())
    }
    fn show(&self) -> String {
        self.clone()
    }
}

/// `host:port`, separated by commas.
impl Value for Vec<String> {
    const EXPECTED: &'static str = "host:port, separated by commas";
    fn parse(text: &str) -> Option<Self> {
        let list: Self = text
            .split(',')
            .map(str::trim)
            .filter(|s| !s.is_empty())
            .map(str::to_owned)
            .collect();
        let sound = |address: &String| {
            address
                .rsplit_once(':')
                .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
        };
        (!list.is_empty() && list.iter().all(sound)).then_some(list)
    }
    fn show(&self) -> String {
        self.join(",")
    }
}

impl<T: Value> Value for Option<T> {
    const EXPECTED: &'static str = T::EXPECTED;
    fn parse(text: &str) -> Option<Self> {
        T::parse(text).map(Some)
    }
    fn show(&self) -> String {
        self.as_ref().map(Value::show).unwrap_or_default()
    }
}

macro_rules! word_values {
    ($($type:ty, $expected:literal: $($word:literal => $value:expr),+;)+) => {$(
        impl Value for $type {
            const EXPECTED: &'static str = $expected;
            fn parse(text: &str) -> Option<Self> {
                $(if text == $word { return Some($value); })+
                None
            }
            fn show(&self) -> String {
                $(if *self == $value { return $word.to_owned(); })+
                String::new()
            }
        }
    )+};
}

word_values! {
    Acks, "all, 1 or 0": "all" => Self::All, "-1" => Self::All, "1" => Self::Leader, "0" => Self::None;
    IsolationLevel, "read_uncommitted or read_committed":
        "read_uncommitted" => Self::ReadUncommitted, "read_committed" => Self::ReadCommitted;
    OffsetReset, "earliest, latest or none":
        "earliest" => Self::Earliest, "latest" => Self::Latest, "none" => Self::None;
    Codec, "none, gzip, snappy, lz4 or zstd": "none" => Self::None, "gzip" => Self::Gzip,
        "snappy" => Self::Snappy, "lz4" => Self::Lz4, "zstd" => Self::Zstd;
}

macro_rules! settings {
    ($(#[$doc:meta])* $struct:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty = $name:literal, $default:expr;)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $struct {
            $(
                #[doc = concat!("`", $name, "`: ")]
                $(#[$field_doc])*
                pub $field: $type,
            )+
        }

        impl Default for $struct {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }

        impl $struct {
            /// The names of all settings.
            pub const NAMES: &'static [&'static str] = &[$($name),+];

            /// Sets one by its name. `Ok(false)` if there is none of that name here.
            fn try_set(&mut self, name: &str, value: &str) -> Result<bool, ConfigError> {
                match name {
                    $($name => {
                        self.$field = <$type as Value>::parse(value.trim()).ok_or_else(|| {
                            ConfigError::Invalid {
                                name: $name,
                                value: value.to_owned(),
                                expected: <$type as Value>::EXPECTED,
                            }
                        })?;
                    })+
                    _ => return Ok(false),
                }
                Ok(true)
            }

            /// Every setting with its value, as a properties file would have it.
            pub fn to_properties(&self) -> BTreeMap<&'static str, String> {
                BTreeMap::from([$(($name, Value::show(&self.$field))),+])
            }
        }
    };
}

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

settings! {
    /// What producers and consumers have in common.
    ClientConfig {
        /// where to begin; the rest of the cluster is learned from there.
        bootstrap_servers: Vec<String> = "bootstrap.servers", vec!["localhost:9092".to_owned()];
        /// the client's name for itself in requests.
        client_id: String = "client.id", "kuorum".to_owned();
        /// after how long what is known of the cluster is asked anew.
        metadata_max_age: Duration = "metadata.max.age.ms", ms(300_000);
        /// how long to wait for an answer before the request counts as failed.
        request_timeout: Duration = "request.timeout.ms", ms(30_000);
        /// how long to wait after a failure, the first time.
        retry_backoff: Duration = "retry.backoff.ms", ms(100);
        /// how long to wait after a failure at most.
        retry_backoff_max: Duration = "retry.backoff.max.ms", ms(1_000);
        /// how long to wait before connecting again, the first time.
        reconnect_backoff: Duration = "reconnect.backoff.ms", ms(50);
        /// how long to wait before connecting again at most.
        reconnect_backoff_max: Duration = "reconnect.backoff.max.ms", ms(1_000);
        /// how long connecting may take.
        connection_setup_timeout: Duration = "socket.connection.setup.timeout.ms", ms(10_000);
        /// whether naming an unknown topic may create it. `None`: producers yes, consumers no.
        allow_auto_create_topics: Option<bool> = "allow.auto.create.topics", None;
    }
}

settings! {
    /// The producer's own settings.
    ProducerSettings {
        /// how many replicas must have a record before it is acknowledged.
        acks: Acks = "acks", Acks::All;
        /// whether retries are recognised by the broker, so that nothing is written twice or out of order. `None`: yes,
        /// unless other settings rule it out.
        enable_idempotence: Option<bool> = "enable.idempotence", None;
        /// how many requests may be under way on one connection.
        max_in_flight: i32 = "max.in.flight.requests.per.connection", 5;
        /// how often a batch is sent again.
        retries: i32 = "retries", i32::MAX;
        /// how long a record may take from `send` to its acknowledgement, retries included.
        delivery_timeout: Duration = "delivery.timeout.ms", ms(120_000);
        /// bytes after which a batch is full.
        batch_size: usize = "batch.size", 16_384;
        /// how long a batch waits for more records.
        linger: Duration = "linger.ms", ms(5);
        /// bytes that records not yet acknowledged may take.
        buffer_memory: usize = "buffer.memory", 33_554_432;
        /// how long `send` may wait for memory or for the topic's partitions.
        max_block: Duration = "max.block.ms", ms(60_000);
        /// bytes of a request.
        max_request_size: usize = "max.request.size", 1_048_576;
        /// how batches are compressed.
        compression_type: Codec = "compression.type", Codec::None;
        /// transactions are not built yet; setting it is refused.
        transactional_id: Option<String> = "transactional.id", None;
    }
}

settings! {
    /// The consumer's own settings.
    ConsumerSettings {
        /// bytes worth an answer.
        fetch_min_bytes: i32 = "fetch.min.bytes", 1;
        /// how long the broker may wait for them.
        fetch_max_wait: Duration = "fetch.max.wait.ms", ms(500);
        /// bytes an answer should not exceed.
        fetch_max_bytes: i32 = "fetch.max.bytes", 52_428_800;
        /// bytes a partition's share of an answer should not exceed.
        max_partition_fetch_bytes: i32 = "max.partition.fetch.bytes", 1_048_576;
        /// records one `poll` returns at most.
        max_poll_records: usize = "max.poll.records", 500;
        /// what to do when a position is not in the log.
        auto_offset_reset: OffsetReset = "auto.offset.reset", OffsetReset::Latest;
        /// which records to see.
        isolation_level: IsolationLevel = "isolation.level", IsolationLevel::ReadUncommitted;
        /// whether to verify the CRC of every batch.
        check_crcs: bool = "check.crcs", true;
    }
}

macro_rules! whole {
    ($(#[$doc:meta])* $struct:ident($own:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $struct {
            /// What producers and consumers have in common.
            pub client: ClientConfig,
            /// The rest.
            pub own: $own,
        }

        impl $struct {
            /// The defaults, for a cluster that is found at `bootstrap_servers` (`host:port`, separated by commas).
            ///
            /// # Errors
            /// If that is not a list of addresses.
            pub fn new(bootstrap_servers: &str) -> Result<Self, ConfigError> {
                Self::default().with("bootstrap.servers", bootstrap_servers)
            }

            /// The same with one setting changed.
            ///
            /// # Errors
            /// If there is no such setting, or the value does not fit.
            pub fn with(mut self, name: &str, value: &str) -> Result<Self, ConfigError> {
                self.set(name, value)?;
                Ok(self)
            }

            /// Changes one setting.
            ///
            /// # Errors
            /// As [`with`](Self::with).
            pub fn set(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
                if self.client.try_set(name, value)? || self.own.try_set(name, value)? {
                    return Ok(());
                }
                let names = ClientConfig::NAMES.iter().chain(<$own>::NAMES);
                let suggestion = names
                    .copied()
                    .map(|known| (distance(known, name), known))
                    .min()
                    .filter(|(distance, _)| *distance <= 3)
                    .map(|(_, known)| known);
                Err(ConfigError::Unknown { name: name.to_owned(), suggestion })
            }
        }
    };
}

whole! {
    /// All settings of a producer.
    ProducerConfig(ProducerSettings)
}
whole! {
    /// All settings of a consumer.
    ConsumerConfig(ConsumerSettings)
}

/// How many letters must be changed, added or taken away to make one word of the other.
fn distance(one: &str, two: &str) -> usize {
    let two: Vec<char> = two.chars().collect();
    let mut row: Vec<usize> = (0..=two.len()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in two.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[two.len()]
}

/// Whether a producer is idempotent after all its settings have been weighed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idempotence {
    /// Whether it is.
    pub enabled: bool,
    /// It would be by default, but another setting rules it out: worth one warning.
    pub ruled_out_by: Option<&'static str>,
}

impl ProducerConfig {
    /// Weighs the settings against each other.
    ///
    /// # Errors
    /// If two that were set on purpose contradict each other, or a number makes no sense.
    pub fn validate(&self) -> Result<Idempotence, ConfigError> {
        let own = &self.own;
        let conflict = |why| Err(ConfigError::Conflict(why));
        if own.max_in_flight < 1 {
            return conflict("max.in.flight.requests.per.connection must be at least 1");
        }
        if own.batch_size > own.buffer_memory {
            return conflict("batch.size must not exceed buffer.memory");
        }
        if own.delivery_timeout < own.linger + self.client.request_timeout {
            return conflict(
                "delivery.timeout.ms must be at least linger.ms plus request.timeout.ms",
            );
        }
        if let Codec::Unknown(_) = own.compression_type {
            return conflict("compression.type must be one of the known codecs");
        }
        if own.transactional_id.is_some() {
            return match own.enable_idempotence {
                Some(false) => conflict("transactional.id needs enable.idempotence"),
                _ => conflict("transactional.id is set and this client has no transactions yet"),
            };
        }
        let ruled_out_by = match own {
            ProducerSettings {
                acks: Acks::None | Acks::Leader,
                ..
            } => Some("acks is not all"),
            ProducerSettings { retries: 0, .. } => Some("retries is 0"),
            _ => None,
        };
        let enabled = match (own.enable_idempotence, ruled_out_by) {
            (Some(true), Some(_)) => {
                return conflict("enable.idempotence needs acks=all and retries above 0");
            }
            (Some(false), _) | (None, Some(_)) => false,
            (Some(true) | None, None) => true,
        };
        if enabled && own.max_in_flight > 5 {
            return conflict(
                "max.in.flight.requests.per.connection above 5 needs enable.idempotence=false",
            );
        }
        let ruled_out_by = ruled_out_by.filter(|_| own.enable_idempotence.is_none());
        Ok(Idempotence {
            enabled,
            ruled_out_by,
        })
    }
}

impl fmt::Display for Acks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.show())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_kafkas() {
        let producer = ProducerConfig::default().own.to_properties();
        let consumer = ConsumerConfig::default().own.to_properties();
        let client = ClientConfig::default().to_properties();
        let rows = [
            (&producer, "acks", "all"),
            (&producer, "batch.size", "16384"),
            (&producer, "buffer.memory", "33554432"),
            (&producer, "delivery.timeout.ms", "120000"),
            (&producer, "linger.ms", "5"),
            (&producer, "max.block.ms", "60000"),
            (&producer, "max.in.flight.requests.per.connection", "5"),
            (&producer, "max.request.size", "1048576"),
            (&producer, "retries", "2147483647"),
            (&producer, "compression.type", "none"),
            (&client, "retry.backoff.ms", "100"),
            (&client, "retry.backoff.max.ms", "1000"),
            (&client, "request.timeout.ms", "30000"),
            (&client, "metadata.max.age.ms", "300000"),
            (&consumer, "auto.offset.reset", "latest"),
            (&consumer, "isolation.level", "read_uncommitted"),
            (&consumer, "fetch.max.bytes", "52428800"),
            (&consumer, "max.poll.records", "500"),
        ];
        for (settings, name, value) in rows {
            assert_eq!(settings[name], value, "{name}");
        }
    }

    #[test]
    fn names_and_values_are_checked() {
        let set = |name: &str, value: &str| ProducerConfig::default().with(name, value);
        assert_eq!(set("acks", "-1").unwrap().own.acks, Acks::All);
        assert_eq!(set("linger.ms", " 20 ").unwrap().own.linger, ms(20));
        let unknown = set("linger.sm", "5").unwrap_err().to_string();
        assert_eq!(
            unknown,
            "there is no setting linger.sm; did you mean linger.ms?"
        );
        let invalid = set("acks", "2").unwrap_err().to_string();
        assert_eq!(invalid, "acks cannot be \"2\": all, 1 or 0 is expected");
        for servers in ["", "host", "host:", ":9092", "a:1,b"] {
            assert!(ProducerConfig::new(servers).is_err(), "{servers}");
        }
        let two = ProducerConfig::new("a:1, b:2").unwrap();
        assert_eq!(two.client.bootstrap_servers, ["a:1", "b:2"]);
    }

    #[test]
    fn idempotence_is_weighed_and_never_forced() {
        type Weighed = Result<Option<(bool, Option<&'static str>)>, ()>;
        type Settings<'a> = &'a [(&'a str, &'a str)];
        let on: Weighed = Ok(Some((true, None)));
        let rows: [(Settings<'_>, Weighed); 14] = [
            (&[], on),
            (&[("enable.idempotence", "true")], on),
            (&[("enable.idempotence", "false")], Ok(Some((false, None)))),
            (&[("acks", "1")], Ok(Some((false, Some("acks is not all"))))),
            (&[("acks", "0")], Ok(Some((false, Some("acks is not all"))))),
            (&[("retries", "0")], Ok(Some((false, Some("retries is 0"))))),
            (&[("acks", "1"), ("enable.idempotence", "true")], Err(())),
            (&[("retries", "0"), ("enable.idempotence", "true")], Err(())),
            (&[("max.in.flight.requests.per.connection", "6")], Err(())),
            (
                &[
                    ("max.in.flight.requests.per.connection", "6"),
                    ("enable.idempotence", "false"),
                ],
                Ok(Some((false, None))),
            ),
            (&[("max.in.flight.requests.per.connection", "1")], on),
            (&[("transactional.id", "t")], Err(())),
            (
                &[("transactional.id", "t"), ("enable.idempotence", "false")],
                Err(()),
            ),
            (&[("delivery.timeout.ms", "30000")], Err(())),
        ];
        for (settings, expected) in rows {
            let mut config = ProducerConfig::default();
            for (name, value) in settings {
                config.set(name, value).unwrap();
            }
            let found = config
                .validate()
                .map(|found| Some((found.enabled, found.ruled_out_by)))
                .map_err(|_| ());
            assert_eq!(found, expected, "{settings:?}");
        }
    }
}
