//! `kuorum configs`: settings, with the options of kafka-configs.
//! Law: asked over the admin API, or over Kafka's protocol if `--bootstrap-server` is given or one broker is meant; the
//! answer is the same.

use std::collections::BTreeMap;

use clap::{Args, ValueEnum};
use kuorum_admin_api::{ConfigEntry, ConfigPatch, ConfigSource, Page, Topic};
use kuorum_client::{ClientError, Cluster, ConsumerConfig};
use kuorum_protocol::messages::describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResourceResult,
    DescribeConfigsResponse,
};
use kuorum_protocol::messages::incremental_alter_configs::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
};
use kuorum_protocol::{ErrorCode, RequestMessage};
use reqwest::Method;

use crate::Global;
use crate::admin::{Admin, escaped};
use crate::failure::Failure;
use crate::output::{Output, json, note, or_dash, say, table};
use crate::topics;

/// Kafka's numbers for whose settings are meant.
const TOPIC: i8 = 2;
const BROKER: i8 = 4;

/// Show and change settings, with the options of kafka-configs
#[derive(Debug, Args)]
pub(crate) struct Configs {
    /// Ask brokers over Kafka's protocol instead of controllers over HTTP. The settings of one broker are always asked so,
    /// at KUORUM_BOOTSTRAP or the local cluster if this is not said
    #[arg(long, value_name = "HOST:PORT")]
    bootstrap_server: Option<String>,
    /// Whose settings
    #[arg(long, value_enum)]
    entity_type: EntityType,
    /// The topic's name or the broker's id
    #[arg(long, conflicts_with = "entity_default")]
    entity_name: Option<String>,
    /// What brokers and topics get that say nothing themselves
    #[arg(long)]
    entity_default: bool,
    /// Show settings
    #[arg(long, conflicts_with = "alter", required_unless_present = "alter")]
    describe: bool,
    /// With --describe: all settings, not only those that were set
    #[arg(long, requires = "describe")]
    all: bool,
    /// Change settings
    #[arg(long)]
    alter: bool,
    // Rustdoc would take the brackets for a link.
    #[arg(
        long,
        requires = "alter",
        value_name = "NAME=VALUE,…",
        help = "What to set; a value with commas stands in brackets: cleanup.policy=[compact,delete]"
    )]
    add_config: Vec<String>,
    /// What goes back to what it would be if this were not said here, which --describe shows
    #[arg(long, requires = "alter", value_delimiter = ',', value_name = "NAME,…")]
    delete_config: Vec<String>,
    /// With --alter: only check
    #[arg(long, requires = "alter")]
    dry_run: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum EntityType {
    Topics,
    Brokers,
}

/// Whose settings are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Entity {
    Topic(String),
    AllTopics,
    Broker(i32),
    ClusterDefault,
}

impl Entity {
    fn shown(&self) -> String {
        match self {
            Self::Topic(name) => format!("topic {name}"),
            Self::AllTopics => "all topics".to_owned(),
            Self::Broker(id) => format!("broker {id}"),
            Self::ClusterDefault => "the cluster's default".to_owned(),
        }
    }

    /// Where the values come from that were set on it.
    fn own_source(&self) -> ConfigSource {
        match self {
            Self::Topic(_) | Self::AllTopics => ConfigSource::Topic,
            Self::Broker(_) => ConfigSource::Broker,
            Self::ClusterDefault => ConfigSource::ClusterDefault,
        }
    }

    /// Kafka's type and name of it.
    fn resource(&self) -> (i8, String) {
        match self {
            Self::Topic(name) => (TOPIC, name.clone()),
            Self::AllTopics => (TOPIC, String::new()),
            Self::Broker(id) => (BROKER, id.to_string()),
            Self::ClusterDefault => (BROKER, String::new()),
        }
    }
}

impl Configs {
    pub(crate) async fn run(self, global: &Global) -> Result<(), Failure> {
        let entity = self.entity()?;
        let patch = self.patch()?;
        let asked = match (&self.bootstrap_server, &entity) {
            (Some(servers), _) => Asked::Brokers(Box::new(Wire::new(servers, global)?)),
            // A broker's own file is known to nobody else.
            (None, Entity::Broker(_)) => {
                Asked::Brokers(Box::new(Wire::new(&crate::usual_bootstrap(), global)?))
            }
            (None, _) => Asked::Controllers(Admin::new(global)?),
        };
        if let Some(patch) = patch {
            asked.alter(&entity, &patch).await?;
            let replicas = match &entity {
                Entity::Topic(name) if patch.set.contains_key("min.insync.replicas") => {
                    asked.replicas(name).await
                }
                _ => None,
            };
            topics::note_of_settings(&patch.set, replicas);
            let done = if self.dry_run {
                "could be changed"
            } else {
                "changed"
            };
            return say(&format!("{} {done}", entity.shown()));
        }
        let mut shown = BTreeMap::new();
        for entity in asked.entities(entity).await? {
            let mut entries = asked.describe(&entity).await?;
            entries.retain(|entry| self.all || entry.source == entity.own_source());
            shown.insert(entity.shown(), entries);
        }
        match global.output {
            Output::Json => json(&shown),
            Output::Table if shown.values().all(Vec::is_empty) => {
                note("nothing is set; --all shows what is in force");
                Ok(())
            }
            Output::Table => table(
                &["OF", "NAME", "VALUE", "SOURCE", "FALLS BACK TO"],
                shown.into_iter().flat_map(|(of, entries)| {
                    entries.into_iter().map(move |entry| {
                        vec![
                            of.clone(),
                            entry.name,
                            or_dash(entry.value),
                            match (self.entity_type, entry.source) {
                                // A broker does not tell its own file from the controllers'.
                                (EntityType::Brokers, ConfigSource::ControllerFile) => "file",
                                (_, source) => topics::source(source),
                            }
                            .to_owned(),
                            or_dash(entry.fallback),
                        ]
                    })
                }),
            ),
        }
    }

    fn entity(&self) -> Result<Entity, Failure> {
        match (self.entity_type, &self.entity_name, self.entity_default) {
            (EntityType::Topics, Some(name), _) => Ok(Entity::Topic(name.clone())),
            (EntityType::Topics, None, false) if self.describe => Ok(Entity::AllTopics),
            (EntityType::Topics, None, true) => Err(Failure::usage(
                "topics take their defaults from --entity-type brokers --entity-default",
            )),
            (EntityType::Topics, None, false) => Err(Failure::usage("--alter needs --entity-name")),
            (EntityType::Brokers, Some(id), _) => id
                .parse()
                .map(Entity::Broker)
                .map_err(|_| Failure::usage(format!("{id:?} is no broker id"))),
            (EntityType::Brokers, None, _) => Ok(Entity::ClusterDefault),
        }
    }

    fn patch(&self) -> Result<Option<ConfigPatch>, Failure> {
        if !self.alter {
            return Ok(None);
        }
        let mut patch = ConfigPatch {
            dry_run: self.dry_run,
            ..ConfigPatch::default()
        };
        for text in &self.add_config {
            patch.set.extend(assignments(text)?);
        }
        patch.unset.extend(self.delete_config.iter().cloned());
        if patch.set.is_empty() && patch.unset.is_empty() {
            return Err(Failure::usage(
                "--alter needs --add-config or --delete-config",
            ));
        }
        Ok(Some(patch))
    }
}

/// Takes `a=1,b=[x,y],c=` apart.
fn assignments(text: &str) -> Result<Vec<(String, String)>, Failure> {
    let wrong = || Failure::usage(format!("{text:?} is not NAME=VALUE,…"));
    let mut found = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (name, after) = rest.split_once('=').ok_or_else(wrong)?;
        let value;
        if let Some(bracketed) = after.strip_prefix('[') {
            let (inside, behind) = bracketed.split_once(']').ok_or_else(wrong)?;
            value = inside;
            rest = match behind.strip_prefix(',') {
                Some(behind) => behind,
                None if behind.is_empty() => "",
                None => return Err(wrong()),
            };
        } else {
            (value, rest) = after.split_once(',').unwrap_or((after, ""));
        }
        let name = name.trim();
        if name.is_empty() {
            return Err(wrong());
        }
        found.push((name.to_owned(), value.trim().to_owned()));
    }
    Ok(found)
}

/// Who is asked.
enum Asked {
    Controllers(Admin),
    Brokers(Box<Wire>),
}

impl Asked {
    /// The entities that a description is about.
    async fn entities(&self, entity: Entity) -> Result<Vec<Entity>, Failure> {
        match (entity, self) {
            (Entity::AllTopics, Self::Controllers(admin)) => {
                let topics: Vec<Topic> = admin.list("/topics").await?;
                Ok(topics
                    .into_iter()
                    .map(|topic| Entity::Topic(topic.name))
                    .collect())
            }
            (Entity::AllTopics, Self::Brokers(_)) => Err(Failure::usage(
                "--describe over --bootstrap-server needs --entity-name",
            )),
            (entity, _) => Ok(vec![entity]),
        }
    }

    /// How many replicas a topic's partitions have, where that can be asked.
    async fn replicas(&self, topic: &str) -> Option<usize> {
        let Self::Controllers(admin) = self else {
            return None;
        };
        let path = format!("/topics/{}", escaped(topic));
        let topic: Topic = admin.get_now(&path).await.ok()?;
        Some(topic.most_replicas.unwrap_or(topic.replication_factor))
    }

    async fn describe(&self, entity: &Entity) -> Result<Vec<ConfigEntry>, Failure> {
        match self {
            Self::Controllers(admin) => admin.list(&path(entity)?).await,
            Self::Brokers(wire) => wire.describe(entity).await,
        }
    }

    async fn alter(&self, entity: &Entity, patch: &ConfigPatch) -> Result<(), Failure> {
        match self {
            Self::Controllers(admin) => {
                let _: Page<ConfigEntry> = admin.send(Method::PATCH, &path(entity)?, patch).await?;
                Ok(())
            }
            Self::Brokers(wire) => wire.alter(entity, patch).await,
        }
    }
}

fn path(entity: &Entity) -> Result<String, Failure> {
    match entity {
        Entity::Topic(name) => Ok(format!("/topics/{}/configs", escaped(name))),
        Entity::ClusterDefault => Ok("/cluster/configs".to_owned()),
        Entity::Broker(_) | Entity::AllTopics => Err(Failure::usage(
            "the settings of one broker need --bootstrap-server",
        )),
    }
}

/// Brokers, asked over Kafka's protocol.
struct Wire {
    cluster: Cluster,
    timeout: std::time::Duration,
}

impl Wire {
    fn new(servers: &str, global: &Global) -> Result<Self, Failure> {
        let config = ConsumerConfig::new(servers)?.with("client.id", "kuorum-cli")?;
        let cluster = kuorum_client::Consumer::new(config).cluster().clone();
        Ok(Self {
            cluster,
            timeout: global.timeout(),
        })
    }

    /// Asks the broker that is meant, or any.
    async fn ask<Q: RequestMessage>(
        &self,
        entity: &Entity,
        request: &Q,
    ) -> Result<Q::Response, ClientError> {
        let deadline = self.cluster.deadline(self.timeout);
        match entity {
            Entity::Broker(id) => {
                self.cluster.refresh(0, deadline).await?;
                self.cluster
                    .link(*id, deadline)
                    .await?
                    .call(request, deadline)
                    .await
            }
            _ => self.cluster.ask_any(request, deadline, |_| None).await,
        }
    }

    async fn describe(&self, entity: &Entity) -> Result<Vec<ConfigEntry>, Failure> {
        let (resource_type, resource_name) = entity.resource();
        let request = DescribeConfigsRequest {
            resources: vec![DescribeConfigsResource {
                resource_type,
                resource_name,
                configuration_keys: None,
            }],
            include_synonyms: true,
            include_documentation: false,
        };
        let response: DescribeConfigsResponse = self.ask(entity, &request).await?;
        let result = response.results.into_iter().next().ok_or_else(empty)?;
        check(entity, result.error_code, result.error_message)?;
        let own = entity.own_source();
        let configs = result.configs.into_iter();
        Ok(configs.map(|config| entry(config, own)).collect())
    }

    async fn alter(&self, entity: &Entity, patch: &ConfigPatch) -> Result<(), Failure> {
        let (resource_type, resource_name) = entity.resource();
        let change = |name: &String, config_operation, value| AlterableConfig {
            name: name.clone(),
            config_operation,
            value,
        };
        let set = patch
            .set
            .iter()
            .map(|(name, value)| change(name, 0, Some(value.clone())));
        let unset = patch.unset.iter().map(|name| change(name, 1, None));
        let request = IncrementalAlterConfigsRequest {
            resources: vec![AlterConfigsResource {
                resource_type,
                resource_name,
                configs: set.chain(unset).collect(),
            }],
            validate_only: patch.dry_run,
        };
        let response: IncrementalAlterConfigsResponse = self.ask(entity, &request).await?;
        let result = response.responses.into_iter().next().ok_or_else(empty)?;
        check(entity, result.error_code, result.error_message)
    }
}

fn empty() -> Failure {
    Failure::refused("the broker's answer is empty")
}

fn check(entity: &Entity, code: i16, message: Option<String>) -> Result<(), Failure> {
    match ErrorCode::from(code) {
        ErrorCode::None => Ok(()),
        code => {
            let doing = entity.shown();
            let message = message.unwrap_or_default();
            Err(ClientError::Refused {
                doing,
                code,
                message,
            }
            .into())
        }
    }
}

/// Kafka's number of where a value comes from.
fn source(number: i8) -> ConfigSource {
    match number {
        1 => ConfigSource::Topic,
        2 => ConfigSource::Broker,
        3 => ConfigSource::ClusterDefault,
        4 => ConfigSource::ControllerFile,
        _ => ConfigSource::Default,
    }
}

/// A setting of an entity whose `own` values are one of the places it may come from.
fn entry(config: DescribeConfigsResourceResult, own: ConfigSource) -> ConfigEntry {
    let default = config.synonyms.iter().find(|synonym| synonym.source == 5);
    let mut weaker = config.synonyms.iter();
    let weaker = weaker.find(|synonym| source(synonym.source) != own);
    let fallback = weaker.and_then(|synonym| {
        let value = synonym.value.clone()?;
        // Another name may count in another unit, as log.retention.hours does for retention.ms.
        Some(match synonym.name == config.name {
            true => value,
            false => format!("{}={value}", synonym.name),
        })
    });
    ConfigEntry {
        default: default.and_then(|synonym| synonym.value.clone()),
        fallback,
        name: config.name,
        value: config.value,
        source: source(config.config_source),
        read_only: config.read_only,
        doc: config.documentation.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use kuorum_protocol::messages::describe_configs::DescribeConfigsSynonym;

    use super::*;

    #[test]
    fn a_value_falls_back_to_the_next_place_that_has_one() {
        let synonym = |name: &str, value: &str, source| DescribeConfigsSynonym {
            name: name.to_owned(),
            value: Some(value.to_owned()),
            source,
        };
        let min = "min.insync.replicas";
        let rows = [
            (
                min,
                vec![
                    synonym(min, "3", 1),
                    synonym(min, "2", 3),
                    synonym(min, "1", 5),
                ],
                "2",
            ),
            (min, vec![synonym(min, "3", 1), synonym(min, "1", 5)], "1"),
            (min, vec![synonym(min, "1", 5)], "1"),
            (
                "retention.ms",
                vec![
                    synonym("retention.ms", "1", 1),
                    synonym("log.retention.hours", "168", 5),
                ],
                "log.retention.hours=168",
            ),
        ];
        for (name, synonyms, expected) in rows {
            let config = DescribeConfigsResourceResult {
                name: name.to_owned(),
                synonyms: synonyms.clone(),
                ..DescribeConfigsResourceResult::default()
            };
            let found = entry(config, ConfigSource::Topic).fallback;
            assert_eq!(found.as_deref(), Some(expected), "{synonyms:?}");
        }
    }

    #[test]
    fn assignments_may_have_lists() {
        let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs
                .iter()
                .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
                .collect()
        };
        let rows = [
            ("a=1", pairs(&[("a", "1")])),
            ("a=1,b=2", pairs(&[("a", "1"), ("b", "2")])),
            (
                "cleanup.policy=[compact,delete],b=2",
                pairs(&[("cleanup.policy", "compact,delete"), ("b", "2")]),
            ),
            ("a=", pairs(&[("a", "")])),
            ("a=x=y", pairs(&[("a", "x=y")])),
        ];
        for (text, expected) in rows {
            assert_eq!(assignments(text).unwrap(), expected, "{text}");
        }
        for wrong in ["a", "=1", "a=[1", "a=[1]b=2"] {
            assert!(assignments(wrong).is_err(), "{wrong}");
        }
    }
}
