//! The configuration of a process, ready to use.
//! Law: a process uses its own role's keys, passes over the other's, and refuses a key of neither.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use kuorum_protocol::BrokerId;

use super::value::items;
use super::{ConfigError, ConfigKey, KeyDefault, RawConfig, Scope, did_you_mean, file_key};
use crate::record::Listener;

/// The listener clients use.
pub const CLIENT: &str = "CLIENT";
/// The listener brokers use among themselves.
pub const INTERNAL: &str = "INTERNAL";
const PLAINTEXT: &str = "PLAINTEXT";

/// Which process a file is read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Broker,
    Controller,
}

/// A file's values, checked, defaults filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Validated {
    /// The effective values of the role's own keys.
    values: BTreeMap<&'static str, String>,
    /// What the file itself says of the role's own and the cluster's keys, for descriptions.
    pub given: BTreeMap<String, String>,
}

/// Checks a file for a role.
pub fn validate(raw: &RawConfig, role: Role) -> Result<Validated, ConfigError> {
    let mut given = BTreeMap::new();
    for (name, value) in raw.iter() {
        let Some(key) = file_key(name) else {
            return Err(unknown(name));
        };
        if concerns(key, role) {
            key.check(value)?;
            given.insert(name.to_owned(), value.to_owned());
        }
    }
    let mut values = BTreeMap::new();
    for key in super::KEYS.iter().filter(|key| concerns(key, role)) {
        match (given.get(key.name), key.default) {
            (Some(value), _) => values.insert(key.name, value.clone()),
            (None, KeyDefault::Is(value)) => values.insert(key.name, value.to_owned()),
            (None, KeyDefault::Null) => None,
            (None, KeyDefault::Required) => {
                return Err(ConfigError::new(
                    key.name,
                    format!("missing key {}: {}", key.name, key.doc),
                ));
            }
        };
    }
    Ok(Validated { values, given })
}

fn concerns(key: &ConfigKey, role: Role) -> bool {
    match key.scope {
        Scope::Topic => false,
        Scope::Cluster | Scope::Process => true,
        Scope::Broker => role == Role::Broker,
        Scope::Controller => role == Role::Controller,
    }
}

fn unknown(name: &str) -> ConfigError {
    let suggestion = match did_you_mean(name) {
        Some(known) => format!("; did you mean {known}?"),
        None => String::new(),
    };
    ConfigError::new(
        name,
        format!("unknown configuration key {name}{suggestion}"),
    )
}

impl Validated {
    fn text(&self, name: &'static str) -> &str {
        self.values
            .get(name)
            .map(|value| value.trim())
            .expect("a key of the role that is required or has a default")
    }

    fn optional(&self, name: &'static str) -> Option<&str> {
        self.values
            .get(name)
            .map(|value| value.trim())
            .filter(|value| !value.is_empty())
    }

    fn number<T: TryFrom<i64>>(&self, name: &'static str) -> T {
        let number: i64 = self
            .text(name)
            .parse()
            .expect("checked to be a whole number");
        T::try_from(number)
            .ok()
            .expect("the key's range fits the field")
    }

    fn millis(&self, name: &'static str) -> Duration {
        Duration::from_millis(self.number(name))
    }

    fn flag(&self, name: &'static str) -> bool {
        self.text(name) == "true"
    }

    fn address(&self, name: &'static str) -> Result<ListenAddress, ConfigError> {
        ListenAddress::parse(self.text(name)).ok_or_else(|| {
            ConfigError::new(
                name,
                format!("{name} must be host:port, not `{}`", self.text(name)),
            )
        })
    }

    fn voters(&self) -> Result<Vec<Voter>, ConfigError> {
        let name = "controller.quorum.voters";
        let mut voters = Vec::new();
        let mut seen = BTreeSet::new();
        for item in items(self.text(name)) {
            let voter = item.split_once('@').and_then(|(id, address)| {
                let id = id.trim().parse().ok()?;
                let address = ListenAddress::parse(address)?;
                Some(Voter { id, address })
            });
            let voter = voter.ok_or_else(|| {
                ConfigError::new(name, format!("{name}: `{item}` is not id@host:port"))
            })?;
            if !seen.insert(voter.id) {
                return Err(ConfigError::new(
                    name,
                    format!("{name} names controller {} twice", voter.id),
                ));
            }
            voters.push(voter);
        }
        if voters.is_empty() {
            return Err(ConfigError::new(name, format!("{name} is empty")));
        }
        Ok(voters)
    }

    fn log_format(&self) -> LogFormat {
        match self.text("log.format") {
            "json" => LogFormat::Json,
            _ => LogFormat::Text,
        }
    }
}

/// Where to listen, or whom to reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    pub host: String,
    pub port: u16,
}

impl ListenAddress {
    /// Reads host:port; an IPv6 host stands in brackets.
    pub fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.trim().rsplit_once(':')?;
        let host = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host);
        Some(Self {
            host: Some(host).filter(|host| !host.is_empty())?.to_owned(),
            port: port.parse().ok()?,
        })
    }

    /// Whether only this machine can reach it.
    pub fn is_loopback(&self) -> bool {
        self.host == "localhost"
            || self
                .host
                .parse::<std::net::IpAddr>()
                .is_ok_and(|address| address.is_loopback())
    }

    /// Whether it stands for every address of this machine, and so for none that could be told to others.
    pub fn is_unspecified(&self) -> bool {
        self.host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_unspecified())
    }
}

impl std::fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// One controller of the quorum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Voter {
    /// Its `node.id`.
    pub id: u64,
    /// Its `controller.listener`.
    pub address: ListenAddress,
}

/// The form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

/// A broker's configuration. What topics share is not here: it is read from the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerConfig {
    pub node_id: BrokerId,
    pub voters: Vec<Voter>,
    /// Where Kafka clients connect.
    pub client_listener: ListenAddress,
    /// Where other brokers connect.
    pub internal_listener: ListenAddress,
    /// CLIENT and INTERNAL as others shall use them.
    pub advertised_listeners: Vec<Listener>,
    pub http_listener: ListenAddress,
    pub log_dirs: Vec<PathBuf>,
    pub rack: Option<String>,
    pub log_format: LogFormat,
    pub session_timeout: Duration,
    pub heartbeat_interval: Duration,
    pub auto_create_topics_enable: bool,
    pub replica_lag_time_max: Duration,
    pub replica_fetch_min_bytes: i32,
    pub replica_fetch_max_bytes: i32,
    pub replica_fetch_response_max_bytes: i32,
    pub replica_fetch_wait_max: Duration,
    pub replica_fetch_backoff: Duration,
    pub high_watermark_checkpoint_interval: Duration,
    pub fetch_max_bytes: i32,
    pub fetch_memory_max_bytes: usize,
    pub fetch_session_slots: usize,
    pub socket_request_max_bytes: usize,
    pub max_connections: usize,
    pub connections_max_idle: Duration,
    pub controlled_shutdown_enable: bool,
    pub controlled_shutdown_timeout: Duration,
    pub log_retention_check_interval: Duration,
    /// How much is kept set aside in all.
    pub salvage_max_bytes: u64,
    /// How long a cut waits for the copying of what it cuts.
    pub salvage_copy_max: Duration,
    pub producer_id_expiration: Duration,
    /// What the file itself says, by key, for DescribeConfigs.
    pub given: BTreeMap<String, String>,
}

impl BrokerConfig {
    /// Checks a file and makes it ready.
    pub fn load(raw: &RawConfig) -> Result<Self, ConfigError> {
        let values = validate(raw, Role::Broker)?;
        let listeners = listeners(&values, "listeners")?;
        let find = |name: &str| {
            let found = listeners.iter().find(|(listener, _)| listener == name);
            found.map(|(_, address)| address.clone()).ok_or_else(|| {
                ConfigError::new(
                    "listeners",
                    format!("listeners has no {name}; write {name}://host:port"),
                )
            })
        };
        let session_timeout = values.millis("broker.session.timeout.ms");
        let heartbeat_interval = values.millis("broker.heartbeat.interval.ms");
        if heartbeat_interval >= session_timeout {
            return Err(ConfigError::new(
                "broker.heartbeat.interval.ms",
                "broker.heartbeat.interval.ms must be below broker.session.timeout.ms",
            ));
        }
        let log_dirs: Vec<PathBuf> = items(values.text("log.dirs")).map(PathBuf::from).collect();
        let distinct: BTreeSet<&PathBuf> = log_dirs.iter().collect();
        if log_dirs.is_empty() || distinct.len() != log_dirs.len() {
            return Err(ConfigError::new(
                "log.dirs",
                "log.dirs must name at least one directory, and none twice",
            ));
        }
        Ok(Self {
            node_id: BrokerId(values.number("node.id")),
            voters: values.voters()?,
            client_listener: find(CLIENT)?,
            internal_listener: find(INTERNAL)?,
            advertised_listeners: advertised(&values, &listeners)?,
            http_listener: values.address("http.listener")?,
            log_dirs,
            rack: values.optional("broker.rack").map(str::to_owned),
            log_format: values.log_format(),
            session_timeout,
            heartbeat_interval,
            auto_create_topics_enable: values.flag("auto.create.topics.enable"),
            replica_lag_time_max: values.millis("replica.lag.time.max.ms"),
            replica_fetch_min_bytes: values.number("replica.fetch.min.bytes"),
            replica_fetch_max_bytes: values.number("replica.fetch.max.bytes"),
            replica_fetch_response_max_bytes: values.number("replica.fetch.response.max.bytes"),
            replica_fetch_wait_max: values.millis("replica.fetch.wait.max.ms"),
            replica_fetch_backoff: values.millis("replica.fetch.backoff.ms"),
            high_watermark_checkpoint_interval: values
                .millis("replica.high.watermark.checkpoint.interval.ms"),
            fetch_max_bytes: values.number("fetch.max.bytes"),
            fetch_memory_max_bytes: values.number("fetch.memory.max.bytes"),
            fetch_session_slots: values.number("max.incremental.fetch.session.cache.slots"),
            socket_request_max_bytes: values.number("socket.request.max.bytes"),
            max_connections: values.number("max.connections"),
            connections_max_idle: values.millis("connections.max.idle.ms"),
            controlled_shutdown_enable: values.flag("controlled.shutdown.enable"),
            controlled_shutdown_timeout: values.millis("controlled.shutdown.timeout.ms"),
            log_retention_check_interval: values.millis("log.retention.check.interval.ms"),
            salvage_max_bytes: values.number("salvage.max.bytes"),
            salvage_copy_max: values.millis("salvage.copy.max.ms"),
            producer_id_expiration: values.millis("producer.id.expiration.ms"),
            given: values.given,
        })
    }

    /// What the file says of values the whole cluster shares. They count only in the file of the controller in office.
    pub fn cluster_values(&self) -> BTreeMap<String, String> {
        cluster_values(&self.given)
    }
}

/// A controller's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerConfig {
    pub node_id: u64,
    pub voters: Vec<Voter>,
    /// Where controllers and brokers connect.
    pub controller_listener: ListenAddress,
    /// The HTTP admin API.
    pub admin_listener: ListenAddress,
    pub admin_allow_unauthenticated: bool,
    pub metadata_log_dir: PathBuf,
    pub log_format: LogFormat,
    pub session_timeout: Duration,
    pub disconnect_grace: Duration,
    pub quorum_heartbeat_interval: Duration,
    pub quorum_election_timeout_min: Duration,
    pub quorum_election_timeout_max: Duration,
    pub quorum_install_snapshot_timeout: Duration,
    pub max_records_between_snapshots: u64,
    pub records_kept_after_snapshot: u64,
    pub max_events: usize,
    pub auto_leader_rebalance_enable: bool,
    pub leader_imbalance_check_interval: Duration,
    /// What the file itself says, by key, for descriptions.
    pub given: BTreeMap<String, String>,
}

impl ControllerConfig {
    /// Checks a file and makes it ready.
    pub fn load(raw: &RawConfig) -> Result<Self, ConfigError> {
        let values = validate(raw, Role::Controller)?;
        let config = Self {
            node_id: values.number("node.id"),
            voters: values.voters()?,
            controller_listener: values.address("controller.listener")?,
            admin_listener: values.address("admin.listener")?,
            admin_allow_unauthenticated: values.flag("admin.allow.unauthenticated"),
            metadata_log_dir: PathBuf::from(values.text("metadata.log.dir")),
            log_format: values.log_format(),
            session_timeout: values.millis("broker.session.timeout.ms"),
            disconnect_grace: values.millis("broker.disconnect.grace.ms"),
            quorum_heartbeat_interval: values.millis("quorum.heartbeat.interval.ms"),
            quorum_election_timeout_min: values.millis("quorum.election.timeout.min.ms"),
            quorum_election_timeout_max: values.millis("quorum.election.timeout.max.ms"),
            quorum_install_snapshot_timeout: values.millis("quorum.install.snapshot.timeout.ms"),
            max_records_between_snapshots: values
                .number("metadata.log.max.records.between.snapshots"),
            records_kept_after_snapshot: values.number("metadata.log.kept.after.snapshot"),
            max_events: values.number("metadata.events.max.count"),
            auto_leader_rebalance_enable: values.flag("auto.leader.rebalance.enable"),
            leader_imbalance_check_interval: Duration::from_secs(
                values.number("leader.imbalance.check.interval.seconds"),
            ),
            given: values.given,
        };
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), ConfigError> {
        if !self.voters.iter().any(|voter| voter.id == self.node_id) {
            return Err(ConfigError::new(
                "controller.quorum.voters",
                format!(
                    "node.id {} is not among controller.quorum.voters",
                    self.node_id
                ),
            ));
        }
        if self.quorum_heartbeat_interval >= self.quorum_election_timeout_min {
            return Err(ConfigError::new(
                "quorum.heartbeat.interval.ms",
                "quorum.heartbeat.interval.ms must be below quorum.election.timeout.min.ms",
            ));
        }
        if self.quorum_election_timeout_min >= self.quorum_election_timeout_max {
            return Err(ConfigError::new(
                "quorum.election.timeout.min.ms",
                "quorum.election.timeout.min.ms must be below quorum.election.timeout.max.ms",
            ));
        }
        if !self.admin_listener.is_loopback() && !self.admin_allow_unauthenticated {
            return Err(ConfigError::new(
                "admin.listener",
                format!(
                    "admin.listener {} can be reached from other machines and nobody would have to authenticate; \
                     use a loopback address, or set admin.allow.unauthenticated=true",
                    self.admin_listener
                ),
            ));
        }
        Ok(())
    }

    /// The values this controller records in the metadata log when it takes office.
    pub fn recorded_values(&self) -> BTreeMap<String, String> {
        cluster_values(&self.given)
    }

    /// How long silence is forgiven.
    pub fn timings(&self) -> crate::control::heartbeats::Timings {
        crate::control::heartbeats::Timings {
            session_timeout: self.session_timeout,
            disconnect_grace: self.disconnect_grace,
        }
    }
}

fn cluster_values(given: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    given
        .iter()
        .filter(|(name, _)| file_key(name).is_some_and(|key| key.scope == Scope::Cluster))
        .map(|(name, value)| (name.clone(), value.trim().to_owned()))
        .collect()
}

/// Reads NAME://host:port, …; PLAINTEXT, Kafka's usual name, means CLIENT.
fn listeners(
    values: &Validated,
    key: &'static str,
) -> Result<Vec<(String, ListenAddress)>, ConfigError> {
    let mut listeners: Vec<(String, ListenAddress)> = Vec::new();
    for item in items(values.text(key)) {
        let parsed = item
            .split_once("://")
            .and_then(|(name, address)| Some((name, ListenAddress::parse(address)?)));
        let Some((name, address)) = parsed else {
            return Err(ConfigError::new(
                key,
                format!("{key}: `{item}` is not NAME://host:port"),
            ));
        };
        let name = if name == PLAINTEXT { CLIENT } else { name };
        if name != CLIENT && name != INTERNAL {
            return Err(ConfigError::new(
                key,
                format!("{key}: there is no listener {name}, only {CLIENT} and {INTERNAL}"),
            ));
        }
        if listeners.iter().any(|(known, _)| known == name) {
            return Err(ConfigError::new(key, format!("{key} names {name} twice")));
        }
        listeners.push((name.to_owned(), address));
    }
    Ok(listeners)
}

fn advertised(
    values: &Validated,
    bound: &[(String, ListenAddress)],
) -> Result<Vec<Listener>, ConfigError> {
    let key = "advertised.listeners";
    let mut told = match values.optional(key) {
        Some(_) => listeners(values, key)?,
        None => Vec::new(),
    };
    for (name, address) in bound {
        if !told.iter().any(|(known, _)| known == name) {
            told.push((name.clone(), address.clone()));
        }
    }
    if let Some((name, address)) = told.iter().find(|(_, address)| address.is_unspecified()) {
        return Err(ConfigError::new(
            key,
            format!(
                "{name} would be advertised as {address}, which nobody can connect to; set {key}"
            ),
        ));
    }
    let told = told.into_iter().map(|(name, address)| Listener {
        name,
        host: address.host,
        port: address.port,
        security_protocol: PLAINTEXT.to_owned(),
    });
    Ok(told.collect())
}
