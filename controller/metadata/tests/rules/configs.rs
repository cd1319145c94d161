//! Configuration: files, effective values, live changes.

use std::collections::BTreeMap;
use std::time::Duration;

use kuorum_metadata::config_def::{
    BrokerConfig, ControllerConfig, Durability, KEYS, RawConfig, Scope, TopicConfig, cluster_key,
    file_key, parse_properties, topic_key, topic_keys,
};
use kuorum_metadata::control::command::{
    AlterConfigs, AlterConfigsResource, ConfigOp, ConfigOpKind, Outcome, ReplaceConfigs,
    ReplaceConfigsResource,
};
use kuorum_metadata::control::{Command, CommandReply};
use kuorum_metadata::image::ConfigSource;
use kuorum_metadata::record::ConfigResource;
use kuorum_protocol::BrokerId;
use kuorum_protocol::error_code::ErrorCode;

use crate::world::World;

const BROKER: &str = "
    node.id=1
    controller.quorum.voters=1@127.0.0.1:9122,2@127.0.0.1:9123, 3@127.0.0.1:9124
    listeners=CLIENT://127.0.0.1:9092,INTERNAL://127.0.0.1:9102
    http.listener=127.0.0.1:9112
    log.dirs=/a,/b
";
const CONTROLLER: &str = "
    node.id=2
    controller.quorum.voters=1@127.0.0.1:9122,2@127.0.0.1:9123
    controller.listener=127.0.0.1:9123
    admin.listener=127.0.0.1:9133
    metadata.log.dir=/c
";

fn topic(name: &str) -> ConfigResource {
    ConfigResource::Topic(name.to_owned())
}

fn broker(more: &str) -> Result<BrokerConfig, String> {
    let raw = parse_properties(&format!("{BROKER}\n{more}")).unwrap();
    BrokerConfig::load(&raw).map_err(|error| error.to_string())
}

fn controller(more: &str) -> Result<ControllerConfig, String> {
    let raw = parse_properties(&format!("{CONTROLLER}\n{more}")).unwrap();
    ControllerConfig::load(&raw).map_err(|error| error.to_string())
}

#[test]
fn the_table_is_sound() {
    for key in KEYS {
        if let Some(default) = key.default_value() {
            assert_eq!(key.check(default), Ok(()), "default of {}", key.name);
        }
        assert!(key.doc.ends_with('.'), "{}", key.name);
        for synonym in key.synonyms {
            let row = file_key(synonym.name).expect(synonym.name);
            assert_eq!(row.scope, Scope::Cluster, "{}", synonym.name);
        }
        let same = KEYS
            .iter()
            .filter(|other| other.name == key.name)
            .filter(|other| (other.scope == Scope::Topic) == (key.scope == Scope::Topic));
        assert_eq!(same.count(), 1, "{}", key.name);
    }
}

#[test]
fn properties_are_read_as_java_reads_them() {
    let text = "
# a comment
! another
a=1
  b : 2
c 3
d = one, \\
    two
e\\=f=g\\:h
path=C:\\\\temp
empty=
bare
unicode=\\u00e4
a=4
trailing=x  ";
    let raw = RawConfig::parse(text).unwrap();
    let rows = [
        ("a", "4"),
        ("b", "2"),
        ("c", "3"),
        ("d", "one, two"),
        ("e=f", "g:h"),
        ("path", "C:\\temp"),
        ("empty", ""),
        ("bare", ""),
        ("unicode", "ä"),
        ("trailing", "x"),
    ];
    for (key, value) in rows {
        assert_eq!(raw.get(key), Some(value), "{key}");
    }
    assert_eq!(raw.iter().count(), rows.len());
    let error = RawConfig::parse("a=1\nb=\\uzzzz").unwrap_err();
    assert_eq!(error.to_string(), "line 2: \\uzzzz is no character");
}

#[test]
fn a_broker_with_its_defaults() {
    let config = broker("").unwrap();
    assert_eq!(config.node_id, BrokerId(1));
    assert_eq!(config.voters.len(), 3);
    assert_eq!(config.voters[2].address.to_string(), "127.0.0.1:9124");
    assert_eq!(config.client_listener.port, 9092);
    assert_eq!(config.internal_listener.port, 9102);
    assert_eq!(config.advertised_listeners[0].port, 9092);
    assert_eq!(config.replica_lag_time_max, Duration::from_secs(30));
    assert_eq!(config.heartbeat_interval, Duration::from_secs(2));
    assert_eq!(config.log_dirs.len(), 2);
    assert!(config.auto_create_topics_enable);
}

/// The files that are shipped, with their placeholders filled in.
#[test]
fn the_shipped_files_are_valid() {
    let fill = |text: &str| {
        let mut text = text.to_owned();
        for (name, value) in [
            ("@NODE_ID@", "1"),
            ("@VOTERS@", "1@127.0.0.1:9122"),
            ("@HOST@", "127.0.0.1"),
            ("@CLIENT_PORT@", "9092"),
            ("@INTERNAL_PORT@", "9102"),
            ("@HTTP_PORT@", "9112"),
            ("@QUORUM_PORT@", "9122"),
            ("@ADMIN_PORT@", "9132"),
            ("@DATA_DIR@", "data"),
        ] {
            text = text.replace(name, value);
        }
        assert!(!text.contains("=@"), "a placeholder is left");
        parse_properties(&text).unwrap()
    };
    let broker = fill(include_str!("../../../../deploy/config/broker.properties"));
    BrokerConfig::load(&broker).unwrap();
    let controller = fill(include_str!(
        "../../../../deploy/config/controller.properties"
    ));
    let config = ControllerConfig::load(&controller).unwrap();
    let recorded = config.recorded_values();
    assert_eq!(
        recorded.get("min.insync.replicas").map(String::as_str),
        Some("2")
    );
}

#[test]
fn a_controller_with_its_defaults() {
    let config = controller("").unwrap();
    assert_eq!(config.session_timeout, Duration::from_secs(9));
    assert_eq!(config.disconnect_grace, Duration::from_millis(250));
    assert_eq!(config.quorum_heartbeat_interval, Duration::from_millis(100));
    assert_eq!(
        config.quorum_election_timeout_min,
        Duration::from_millis(250)
    );
    assert_eq!(
        config.quorum_election_timeout_max,
        Duration::from_millis(500)
    );
    assert!(
        config.recorded_values().is_empty(),
        "defaults are not recorded"
    );
}

#[test]
fn one_table_serves_both_roles() {
    // A key of the other role is passed over, whatever it says; a shared one is checked by both.
    assert!(broker("admin.allow.unauthenticated=perhaps").is_ok());
    assert!(controller("replica.lag.time.max.ms=soon").is_ok());
    assert!(broker("min.insync.replicas=0").is_err());
    let config = controller("min.insync.replicas=2\nlog.retention.hours=1\nlog.dirs=/x").unwrap();
    let recorded: Vec<(String, String)> = config.recorded_values().into_iter().collect();
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(
        recorded,
        [
            pair("log.retention.hours", "1"),
            pair("min.insync.replicas", "2")
        ]
    );
}

#[test]
fn throttled_replicas_are_pairs_of_numbers_or_all() {
    for name in [
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
    ] {
        let key = topic_key(name).unwrap();
        for good in ["", "*", " * ", "0:1", "0:1,12:3", " 0:1 , 1:2 ", "0:1,"] {
            assert_eq!(key.check(good), Ok(()), "{good:?}");
        }
        let rows = [
            ("0", "0"),
            ("0:1,x:2", "x:2"),
            ("0:1,0:-2", "0:-2"),
            ("0:+1", "0:+1"),
            (":1", ":1"),
            ("0:", "0:"),
            ("0:1:2", "0:1:2"),
            ("0:1;1:2", "0:1;1:2"),
            ("0:99999999999", "0:99999999999"),
            ("*,0:1", "*"),
        ];
        for (value, item) in rows {
            assert_eq!(
                key.check(value).unwrap_err().message,
                format!(
                    "Invalid value {value} for configuration {name}: {item} is not a replica: the value is either * or a \
                     list of partition:broker"
                )
            );
        }
    }
}

#[test]
fn what_is_wrong_with_a_file_is_one_sentence() {
    let rows = [
        (
            broker("log.dir=/x").err(),
            "unknown configuration key log.dir; did you mean log.dirs?",
        ),
        (
            broker("min.insync.replica=2").err(),
            "unknown configuration key min.insync.replica; did you mean min.insync.replicas?",
        ),
        (
            broker("retention.ms=1").err(),
            "unknown configuration key retention.ms; did you mean log.retention.ms?",
        ),
        (
            broker("zookeeper.connect=x").err(),
            "unknown configuration key zookeeper.connect",
        ),
        (
            broker("replica.lag.time.max.ms=x").err(),
            "Invalid value x for configuration replica.lag.time.max.ms: Not a number of type LONG",
        ),
        (
            broker("socket.request.max.bytes=0").err(),
            "Invalid value 0 for configuration socket.request.max.bytes: Value must be at least 1",
        ),
        (
            broker("node.id=3000000000").err(),
            "Invalid value 3000000000 for configuration node.id: Not a number of type INT",
        ),
        (
            broker("auto.create.topics.enable=yes").err(),
            "Invalid value yes for configuration auto.create.topics.enable: Expected value to be either true or false",
        ),
        (
            broker("log.format=xml").err(),
            "Invalid value xml for configuration log.format: String must be one of: text, json",
        ),
        (
            broker("listeners=CLIENT://127.0.0.1:1").err(),
            "listeners has no INTERNAL; write INTERNAL://host:port",
        ),
        (
            broker("listeners=SSL://127.0.0.1:1").err(),
            "listeners: there is no listener SSL, only CLIENT and INTERNAL",
        ),
        (
            broker("listeners=127.0.0.1:1").err(),
            "listeners: `127.0.0.1:1` is not NAME://host:port",
        ),
        (
            broker("listeners=CLIENT://0.0.0.0:1,INTERNAL://127.0.0.1:2").err(),
            "CLIENT would be advertised as 0.0.0.0:1, which nobody can connect to; set advertised.listeners",
        ),
        (
            broker("http.listener=9112").err(),
            "http.listener must be host:port, not `9112`",
        ),
        (
            broker("log.dirs=/a,/a").err(),
            "log.dirs must name at least one directory, and none twice",
        ),
        (
            broker("controller.quorum.voters=1:2").err(),
            "controller.quorum.voters: `1:2` is not id@host:port",
        ),
        (
            broker("broker.heartbeat.interval.ms=9000").err(),
            "broker.heartbeat.interval.ms must be below broker.session.timeout.ms",
        ),
        (
            controller("node.id=7").err(),
            "node.id 7 is not among controller.quorum.voters",
        ),
        (
            controller("quorum.heartbeat.interval.ms=250").err(),
            "quorum.heartbeat.interval.ms must be below quorum.election.timeout.min.ms",
        ),
        (
            controller("quorum.election.timeout.min.ms=500").err(),
            "quorum.election.timeout.min.ms must be below quorum.election.timeout.max.ms",
        ),
        (
            controller("admin.listener=0.0.0.0:1").err(),
            "admin.listener 0.0.0.0:1 can be reached from other machines and nobody would have to authenticate; use a loopback address, or set admin.allow.unauthenticated=true",
        ),
        (
            controller("controller.quorum.voters=2@a:1,2@b:1").err(),
            "controller.quorum.voters names controller 2 twice",
        ),
    ];
    for (error, sentence) in rows {
        assert_eq!(error.as_deref(), Some(sentence));
    }
    assert!(controller("admin.listener=0.0.0.0:1\nadmin.allow.unauthenticated=true").is_ok());
    assert!(broker("listeners=PLAINTEXT://127.0.0.1:1,INTERNAL://[::1]:2").is_ok());
    let missing = BrokerConfig::load(&RawConfig::default()).unwrap_err();
    assert!(
        missing.to_string().starts_with("missing key node.id"),
        "{missing}"
    );
}

#[test]
fn one_effective_value() {
    let mut world = World::with_brokers(1);
    world.topic("t", "1");
    let in_force = |world: &World| {
        let described = world.image.describe_topic("t");
        let value = described
            .into_iter()
            .find(|value| value.key.name == "retention.ms")
            .unwrap();
        let typed = world
            .image
            .effective_topic_config("t")
            .retention_ms
            .unwrap();
        assert_eq!(value.value, Some(typed.to_string()));
        (typed, value.source)
    };
    let week = 7 * 24 * 3600 * 1000;
    assert_eq!(in_force(&world), (week, ConfigSource::BuiltIn));

    let file = BTreeMap::from([("log.retention.hours".to_owned(), "2".to_owned())]);
    world.new_controller(2, &file);
    assert_eq!(in_force(&world), (2 * 3600 * 1000, ConfigSource::File));

    assert!(
        world
            .set(
                ConfigResource::ClusterDefault,
                "log.retention.minutes",
                Some("3")
            )
            .is_ok()
    );
    assert_eq!(in_force(&world), (180_000, ConfigSource::ClusterDefault));
    assert!(
        world
            .set(
                ConfigResource::ClusterDefault,
                "log.retention.ms",
                Some("4")
            )
            .is_ok()
    );
    assert_eq!(in_force(&world), (4, ConfigSource::ClusterDefault));

    assert!(world.set(topic("t"), "retention.ms", Some("5")).is_ok());
    assert_eq!(in_force(&world), (5, ConfigSource::Topic));
    let described = world.image.describe_topic("t");
    let value = described
        .iter()
        .find(|value| value.key.name == "retention.ms")
        .unwrap();
    let synonyms: Vec<(&str, &str)> = value
        .synonyms
        .iter()
        .map(|synonym| (synonym.name, synonym.value.as_str()))
        .collect();
    assert_eq!(
        synonyms,
        [
            ("retention.ms", "5"),
            ("log.retention.ms", "4"),
            ("log.retention.minutes", "3"),
            ("log.retention.hours", "2"),
            ("log.retention.hours", "168"),
        ]
    );

    assert!(world.set(topic("t"), "retention.ms", None).is_ok());
    assert_eq!(in_force(&world), (4, ConfigSource::ClusterDefault));
    assert!(world.set(topic("t"), "retention.ms", Some("-1")).is_ok());
    assert_eq!(world.image.effective_topic_config("t").retention_ms, None);

    // The next controller's file says nothing any more.
    world.new_controller(3, &BTreeMap::new());
    assert_eq!(
        world.image.configs_of(&ConfigResource::ControllerFile),
        None
    );
}

#[test]
fn the_built_in_defaults_are_kafkas() {
    let config = TopicConfig::default();
    assert_eq!(config.acks_durability, Durability::Flushed);
    assert!(config.cleanup_policy.delete && !config.cleanup_policy.compact);
    assert_eq!(config.max_message_bytes, 1_048_588);
    assert_eq!(config.min_insync_replicas, 1);
    assert_eq!(config.segment_bytes, 1 << 30);
    assert_eq!(config.retention_ms, Some(604_800_000));
    assert_eq!(config.retention_bytes, None);
    assert_eq!(config.flush_messages, i64::MAX);
    assert_eq!(config.message_timestamp_after_max_ms, 3_600_000);
    assert!(!config.unclean_leader_election_enable);
    assert_eq!(World::new().image.effective_topic_config("any"), config);
    assert_eq!(
        World::new().image.describe_topic("any").len(),
        topic_keys().count()
    );
}

#[test]
fn internal_topics_never_elect_uncleanly() {
    let mut world = World::with_brokers(3);
    world.topic("__consumer_offsets", "1,2,3");
    world.topic("t", "1,2,3");
    let key = "unclean.leader.election.enable";
    assert!(
        world
            .set(ConfigResource::ClusterDefault, key, Some("true"))
            .is_ok()
    );
    assert!(world.image.unclean_election_allowed("t"));
    assert!(
        world
            .image
            .effective_topic_config("t")
            .unclean_leader_election_enable
    );
    assert!(!world.image.unclean_election_allowed("__consumer_offsets"));
    let config = world.image.effective_topic_config("__consumer_offsets");
    assert!(!config.unclean_leader_election_enable);
    let described = world.image.describe_topic("__consumer_offsets");
    let value = described
        .iter()
        .find(|value| value.key.name == key)
        .unwrap();
    assert_eq!(value.value.as_deref(), Some("false"));
    assert!(value.read_only);
    let refused = world.set(topic("__consumer_offsets"), key, Some("true"));
    assert_eq!(refused.code(), ErrorCode::InvalidConfig);
    for broker in [2, 3, 1] {
        world.fence(broker);
    }
    world.start(2);
    world.tick();
    assert_eq!(
        world.line("__consumer_offsets"),
        "leader=none epoch=1 isr=1"
    );
    assert_eq!(world.line("t"), "leader=2 epoch=2 isr=2");
}

/// What may be set where. The resource is `topic`, `cluster` or `broker`.
#[test]
fn alter_rows() {
    use ErrorCode::{InvalidConfig, None as Fine, UnknownTopicOrPartition};
    let rows = [
        ("topic", "retention.ms", "1", Fine, ""),
        (
            "topic",
            "retention.ms",
            "-2",
            InvalidConfig,
            "Value must be at least -1",
        ),
        (
            "topic",
            "retention.ms",
            "soon",
            InvalidConfig,
            "Not a number of type LONG",
        ),
        (
            "topic",
            "retention.msec",
            "1",
            InvalidConfig,
            "did you mean retention.ms?",
        ),
        (
            "topic",
            "log.retention.hours",
            "1",
            InvalidConfig,
            "did you mean retention.ms?",
        ),
        ("topic", "cleanup.policy", "compact,delete", Fine, ""),
        (
            "topic",
            "cleanup.policy",
            "shred",
            InvalidConfig,
            "compact, delete",
        ),
        ("topic", "acks.durability", "page.cache", Fine, ""),
        (
            "topic",
            "acks.durability",
            "hope",
            InvalidConfig,
            "flushed, page.cache",
        ),
        (
            "topic",
            "min.cleanable.dirty.ratio",
            "1.5",
            InvalidConfig,
            "between 0 and 1",
        ),
        ("topic", "max.compaction.lag.ms", "5", Fine, ""),
        (
            "topic",
            "min.compaction.lag.ms",
            "9223372036854775807",
            Fine,
            "",
        ),
        ("topic", "num.partitions", "5", InvalidConfig, "unknown"),
        (
            "missing",
            "retention.ms",
            "1",
            UnknownTopicOrPartition,
            "there is no topic missing",
        ),
        ("cluster", "min.insync.replicas", "2", Fine, ""),
        (
            "cluster",
            "min.insync.replicas",
            "0",
            InvalidConfig,
            "at least 1",
        ),
        ("cluster", "retention.ms", "7", Fine, ""),
        ("cluster", "num.partitions", "3", Fine, ""),
        (
            "cluster",
            "log.dirs",
            "/x",
            InvalidConfig,
            "can only be changed in the file",
        ),
        (
            "cluster",
            "log.cleanup.polic",
            "x",
            InvalidConfig,
            "did you mean log.cleanup.policy?",
        ),
        (
            "broker",
            "min.insync.replicas",
            "2",
            InvalidConfig,
            "one value for the whole cluster",
        ),
        (
            "broker",
            "log.dirs",
            "/x",
            InvalidConfig,
            "can only be changed in the broker's file",
        ),
    ];
    for (resource, name, value, error, says) in rows {
        let mut world = World::with_brokers(1);
        world.topic("t", "1");
        let outcome = world.set(resource_named(resource), name, Some(value));
        let message = outcome.message.clone().unwrap_or_default();
        assert_eq!(
            outcome.code(),
            error,
            "{resource} {name}={value}: {message}"
        );
        assert!(
            message.contains(says),
            "{resource} {name}={value}: {message}"
        );
        if error == Fine {
            let stored = cluster_key(name).filter(|_| resource == "cluster");
            let stored = stored.map_or(name, |key| key.name);
            let values = world.image.configs_of(&resource_named(resource)).unwrap();
            assert_eq!(values.get(stored).map(String::as_str), Some(value));
        }
    }
}

fn resource_named(name: &str) -> ConfigResource {
    match name {
        "topic" => topic("t"),
        "cluster" => ConfigResource::ClusterDefault,
        "broker" => ConfigResource::Broker(BrokerId(1)),
        other => topic(other),
    }
}

fn ops(world: &mut World, ops: &[(&str, ConfigOpKind, Option<&str>)]) -> Outcome {
    let ops = ops.iter().map(|(name, kind, value)| ConfigOp {
        name: (*name).to_owned(),
        kind: *kind,
        value: value.map(str::to_owned),
    });
    let command = Command::AlterConfigs(AlterConfigs {
        resources: vec![AlterConfigsResource {
            resource: topic("t"),
            ops: ops.collect(),
        }],
        validate_only: false,
    });
    let CommandReply::AlterConfigs(results) = world.command(&command) else {
        panic!("an answer to another command");
    };
    results[0].outcome.clone()
}

fn stored(world: &World) -> String {
    let values = world.image.configs_of(&topic("t"));
    let pairs = values.into_iter().flatten();
    let texts: Vec<String> = pairs
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    texts.join(" ")
}

#[test]
fn operations() {
    use ConfigOpKind::{Append, Delete, Set, Subtract};
    let mut world = World::with_brokers(1);
    world.topic("t", "1");
    // Appending to what is not set appends to what is in force.
    assert!(ops(&mut world, &[("cleanup.policy", Append, Some("compact"))]).is_ok());
    assert_eq!(stored(&world), "cleanup.policy=delete,compact");
    assert!(ops(&mut world, &[("cleanup.policy", Append, Some("compact"))]).is_ok());
    assert_eq!(stored(&world), "cleanup.policy=delete,compact");
    assert!(ops(&mut world, &[("cleanup.policy", Subtract, Some("delete"))]).is_ok());
    assert_eq!(stored(&world), "cleanup.policy=compact");
    assert!(
        ops(
            &mut world,
            &[
                ("cleanup.policy", Delete, None),
                ("retention.ms", Set, Some("1"))
            ]
        )
        .is_ok()
    );
    assert_eq!(stored(&world), "retention.ms=1");

    // All or none.
    let mixed = ops(
        &mut world,
        &[
            ("retention.ms", Set, Some("2")),
            ("segment.ms", Set, Some("0")),
        ],
    );
    assert_eq!(mixed.code(), ErrorCode::InvalidConfig);
    let list = ops(&mut world, &[("retention.ms", Append, Some("2"))]);
    assert_eq!(list.code(), ErrorCode::InvalidConfig);
    let twice = ops(
        &mut world,
        &[
            ("retention.ms", Set, Some("2")),
            ("retention.ms", Delete, None),
        ],
    );
    assert_eq!(twice.code(), ErrorCode::InvalidRequest);
    let nothing = ops(&mut world, &[("retention.ms", Set, None)]);
    assert_eq!(nothing.code(), ErrorCode::InvalidRequest);
    let lags = ops(
        &mut world,
        &[
            ("min.compaction.lag.ms", Set, Some("9")),
            ("max.compaction.lag.ms", Set, Some("8")),
        ],
    );
    assert_eq!(lags.code(), ErrorCode::InvalidConfig);
    assert_eq!(stored(&world), "retention.ms=1");

    // Nothing new needs no entry.
    let entries = world.log.len();
    assert!(ops(&mut world, &[("retention.ms", Set, Some("1"))]).is_ok());
    assert_eq!(world.log.len(), entries);
}

#[test]
fn the_old_way_replaces_everything() {
    let mut world = World::with_brokers(1);
    world.topic("t", "1");
    world.set(topic("t"), "retention.ms", Some("1"));
    let replace = |validate_only| {
        Command::ReplaceConfigs(ReplaceConfigs {
            resources: vec![ReplaceConfigsResource {
                resource: topic("t"),
                values: vec![("segment.ms".to_owned(), Some("2".to_owned()))],
            }],
            validate_only,
        })
    };
    world.command(&replace(true));
    assert_eq!(stored(&world), "retention.ms=1", "only validated");
    world.command(&replace(false));
    assert_eq!(stored(&world), "segment.ms=2");
}

#[test]
fn a_resource_named_twice_is_refused() {
    let mut world = World::with_brokers(1);
    world.topic("t", "1");
    let change = AlterConfigsResource {
        resource: topic("t"),
        ops: Vec::new(),
    };
    let reply = world.command(&Command::AlterConfigs(AlterConfigs {
        resources: vec![change.clone(), change],
        validate_only: false,
    }));
    let CommandReply::AlterConfigs(results) = reply else {
        panic!("an answer to another command");
    };
    assert!(
        results
            .iter()
            .all(|result| result.outcome.code() == ErrorCode::InvalidRequest)
    );
}

#[test]
fn a_broker_is_described_with_where_each_value_comes_from() {
    let mut world = World::with_brokers(1);
    world.set(
        ConfigResource::ClusterDefault,
        "min.insync.replicas",
        Some("2"),
    );
    let file = broker("replica.lag.time.max.ms=5000").unwrap().given;
    let described = world.image.describe_broker(BrokerId(1), &file);
    let rows = [
        (
            "min.insync.replicas",
            Some("2"),
            ConfigSource::ClusterDefault,
            false,
        ),
        (
            "replica.lag.time.max.ms",
            Some("5000"),
            ConfigSource::File,
            true,
        ),
        ("node.id", Some("1"), ConfigSource::File, true),
        (
            "num.replica.fetchers",
            Some("1"),
            ConfigSource::BuiltIn,
            true,
        ),
        ("log.retention.ms", None, ConfigSource::BuiltIn, false),
        (
            "log.retention.hours",
            Some("168"),
            ConfigSource::BuiltIn,
            false,
        ),
    ];
    for (name, value, source, read_only) in rows {
        let found = described
            .iter()
            .find(|found| found.key.name == name)
            .unwrap();
        assert_eq!(found.value.as_deref(), value, "{name}");
        assert_eq!(found.source, source, "{name}");
        assert_eq!(found.read_only, read_only, "{name}");
    }
}
