//! The table. Names, types and defaults are Kafka's where the concept is; keys of our own say so.
//! Law: a key stands here or nowhere. Every synonym of a topic key is itself a row, of scope Cluster.

use super::{ConfigKey, KeyDefault, Kind, Scope, Synonym};

const MINUTE: i64 = 60 * 1000;
const HOUR: i64 = 60 * MINUTE;

const fn is(name: &'static str) -> Synonym {
    Synonym { name, factor: 1 }
}

const fn times(name: &'static str, factor: i64) -> Synonym {
    Synonym { name, factor }
}

const fn topic(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    synonyms: &'static [Synonym],
    doc: &'static str,
) -> ConfigKey {
    ConfigKey {
        name,
        scope: Scope::Topic,
        kind,
        default: Is(default),
        synonyms,
        doc,
    }
}

const fn key(
    name: &'static str,
    scope: Scope,
    kind: Kind,
    default: KeyDefault,
    doc: &'static str,
) -> ConfigKey {
    ConfigKey {
        name,
        scope,
        kind,
        default,
        synonyms: &[],
        doc,
    }
}

const fn int(min: i64) -> Kind {
    Kind::Int { min }
}

const fn long(min: i64) -> Kind {
    Kind::Long { min }
}

use KeyDefault::{Is, Null, Required};
use Kind::{Boolean, Choice, List, ListOf, Replicas, Short, Text};
use Scope::{Broker, Cluster, Controller, Process};

const COMPRESSION: Kind = Choice(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]);
const CLEANUP: Kind = ListOf(&["compact", "delete"]);
const TIMESTAMP: Kind = Choice(&["CreateTime", "LogAppendTime"]);
const DURABILITY: Kind = Choice(&["flushed", "page.cache"]);
const RATIO: Kind = Kind::Double { min: 0.0, max: 1.0 };
const FOREVER: &str = "9223372036854775807";

/// All keys: topics first, then what the whole cluster shares, then the roles' own.
#[rustfmt::skip] // a table reads as a table
pub static KEYS: &[ConfigKey] = &[
    topic("acks.durability", DURABILITY, "flushed", &[is("acks.durability")],
        "What an acknowledgement promises (ours): `flushed` = on the disk of every in-sync replica; `page.cache` = in its memory, which a power cut may take."),
    topic("cleanup.policy", CLEANUP, "delete", &[is("log.cleanup.policy")],
        "Whether old segments are deleted. `compact` keeps every record: nothing is compacted yet."),
    topic("compression.type", COMPRESSION, "producer", &[is("compression.type")],
        "No effect yet: every batch keeps the compression that its producer chose."),
    topic("delete.retention.ms", long(0), "86400000", &[is("log.cleaner.delete.retention.ms")],
        "No effect: nothing is compacted yet."),
    topic("file.delete.delay.ms", long(0), "60000", &[is("log.segment.delete.delay.ms")],
        "No effect: a deleted segment's file goes at once."),
    topic("flush.messages", long(1), FOREVER, &[is("log.flush.interval.messages")],
        "After how many records a flush is forced, beyond those that acknowledgements need."),
    topic("flush.ms", long(0), FOREVER, &[is("log.flush.interval.ms")],
        "After how long a flush is forced, beyond those that acknowledgements need."),
    topic("follower.replication.throttled.replicas", Replicas, "", &[],
        "Replicas whose fetching is throttled: partition:broker, or *."),
    topic("index.interval.bytes", int(0), "4096", &[is("log.index.interval.bytes")],
        "How many bytes of log lie between two entries of the offset index."),
    topic("leader.replication.throttled.replicas", Replicas, "", &[],
        "Replicas whose serving of followers is throttled: partition:broker, or *."),
    topic("max.compaction.lag.ms", long(1), FOREVER, &[is("log.cleaner.max.compaction.lag.ms")],
        "No effect: nothing is compacted yet."),
    topic("max.message.bytes", int(0), "1048588", &[is("message.max.bytes")],
        "The largest batch that is accepted."),
    topic("message.timestamp.after.max.ms", long(0), "3600000", &[is("log.message.timestamp.after.max.ms")],
        "How far in the future a record's timestamp may lie."),
    topic("message.timestamp.before.max.ms", long(0), FOREVER, &[is("log.message.timestamp.before.max.ms")],
        "How far in the past a record's timestamp may lie."),
    topic("message.timestamp.type", TIMESTAMP, "CreateTime", &[is("log.message.timestamp.type")],
        "Whether a record's timestamp is the producer's or the moment of the append."),
    topic("min.cleanable.dirty.ratio", RATIO, "0.5", &[is("log.cleaner.min.cleanable.ratio")],
        "No effect: nothing is compacted yet."),
    topic("min.compaction.lag.ms", long(0), "0", &[is("log.cleaner.min.compaction.lag.ms")],
        "No effect: nothing is compacted yet."),
    topic("min.insync.replicas", int(1), "1", &[is("min.insync.replicas")],
        "Replicas that must have a record, the leader's among them, before acks=all succeeds and anybody may read it."),
    topic("preallocate", Boolean, "false", &[is("log.preallocate")],
        "No effect: space is reserved ahead in steps."),
    topic("retention.bytes", long(-1), "-1", &[is("log.retention.bytes")],
        "How large a partition may grow before old segments are deleted; -1 for no limit."),
    topic("retention.ms", long(-1), "604800000",
        &[is("log.retention.ms"), times("log.retention.minutes", MINUTE), times("log.retention.hours", HOUR)],
        "How long records are kept; -1 for ever."),
    topic("salvage.enable", Boolean, "true", &[is("salvage.enable")],
        "Whether what an unclean election makes a replica cut off is set aside first, to be looked at and replayed (ours)."),
    topic("salvage.retention.bytes", long(-1), "-1", &[is("salvage.retention.bytes")],
        "How much is kept set aside of each partition on one broker; the oldest goes first; -1 for no limit (ours)."),
    topic("salvage.retention.ms", long(-1), "604800000", &[is("salvage.retention.ms")],
        "How long it is kept; -1 for ever (ours)."),
    topic("segment.bytes", int(14), "1073741824", &[is("log.segment.bytes")],
        "The size at which a new segment is begun."),
    topic("segment.index.bytes", int(4), "10485760", &[is("log.index.size.max.bytes")],
        "The largest size of an index file."),
    topic("segment.jitter.ms", long(0), "0", &[is("log.roll.jitter.ms"), times("log.roll.jitter.hours", HOUR)],
        "No effect: segments are begun by size and age alone."),
    topic("segment.ms", long(1), "604800000", &[is("log.roll.ms"), times("log.roll.hours", HOUR)],
        "The age at which a new segment is begun."),
    topic("unclean.leader.election.enable", Boolean, "false", &[is("unclean.leader.election.enable")],
        "Whether a replica that is not in sync may lead when no other is left, at the price of records."),

    // One value for the whole cluster: the defaults of topics, and what the controllers decide by.
    key("acks.durability", Cluster, DURABILITY, Is("flushed"), "Default of the topic key (ours)."),
    key("log.cleanup.policy", Cluster, CLEANUP, Is("delete"), "Default of the topic key cleanup.policy."),
    key("compression.type", Cluster, COMPRESSION, Is("producer"), "Default of the topic key."),
    key("log.cleaner.delete.retention.ms", Cluster, long(0), Is("86400000"), "Default of the topic key delete.retention.ms."),
    key("log.segment.delete.delay.ms", Cluster, long(0), Is("60000"), "Default of the topic key file.delete.delay.ms."),
    key("log.flush.interval.messages", Cluster, long(1), Is(FOREVER), "Default of the topic key flush.messages."),
    key("log.flush.interval.ms", Cluster, long(0), Null, "Default of the topic key flush.ms."),
    key("log.index.interval.bytes", Cluster, int(0), Is("4096"), "Default of the topic key index.interval.bytes."),
    key("log.cleaner.max.compaction.lag.ms", Cluster, long(1), Is(FOREVER), "Default of the topic key max.compaction.lag.ms."),
    key("message.max.bytes", Cluster, int(0), Is("1048588"), "Default of the topic key max.message.bytes."),
    key("log.message.timestamp.after.max.ms", Cluster, long(0), Is("3600000"), "Default of the topic key message.timestamp.after.max.ms."),
    key("log.message.timestamp.before.max.ms", Cluster, long(0), Is(FOREVER), "Default of the topic key message.timestamp.before.max.ms."),
    key("log.message.timestamp.type", Cluster, TIMESTAMP, Is("CreateTime"), "Default of the topic key message.timestamp.type."),
    key("log.cleaner.min.cleanable.ratio", Cluster, RATIO, Is("0.5"), "Default of the topic key min.cleanable.dirty.ratio."),
    key("log.cleaner.min.compaction.lag.ms", Cluster, long(0), Is("0"), "Default of the topic key min.compaction.lag.ms."),
    key("min.insync.replicas", Cluster, int(1), Is("1"), "Default of the topic key."),
    key("log.preallocate", Cluster, Boolean, Is("false"), "Default of the topic key preallocate."),
    key("log.retention.bytes", Cluster, long(-1), Is("-1"), "Default of the topic key retention.bytes."),
    key("log.retention.ms", Cluster, long(-1), Null, "Default of the topic key retention.ms; before log.retention.minutes and .hours."),
    key("log.retention.minutes", Cluster, int(-1), Null, "The same in minutes; before log.retention.hours."),
    key("log.retention.hours", Cluster, int(-1), Is("168"), "The same in hours."),
    key("log.segment.bytes", Cluster, int(14), Is("1073741824"), "Default of the topic key segment.bytes."),
    key("log.index.size.max.bytes", Cluster, int(4), Is("10485760"), "Default of the topic key segment.index.bytes."),
    key("log.roll.jitter.ms", Cluster, long(0), Null, "Default of the topic key segment.jitter.ms; before log.roll.jitter.hours."),
    key("log.roll.jitter.hours", Cluster, int(0), Is("0"), "The same in hours."),
    key("log.roll.ms", Cluster, long(1), Null, "Default of the topic key segment.ms; before log.roll.hours."),
    key("log.roll.hours", Cluster, int(1), Is("168"), "The same in hours."),
    key("salvage.enable", Cluster, Boolean, Is("true"), "Default of the topic key (ours)."),
    key("salvage.retention.bytes", Cluster, long(-1), Is("-1"), "Default of the topic key (ours)."),
    key("salvage.retention.ms", Cluster, long(-1), Is("604800000"), "Default of the topic key (ours)."),
    key("unclean.leader.election.enable", Cluster, Boolean, Is("false"), "Default of the topic key. Decide it per topic, never here."),
    key("num.partitions", Cluster, int(1), Is("1"), "Partitions of a topic that does not say."),
    key("default.replication.factor", Cluster, int(1), Is("1"), "Replicas of a topic that does not say."),
    key("delete.topic.enable", Cluster, Boolean, Is("true"), "Whether topics can be deleted."),
    key("offsets.topic.num.partitions", Cluster, int(1), Is("50"), "Partitions of __consumer_offsets."),
    key("offsets.topic.replication.factor", Cluster, Short { min: 1 }, Is("3"), "Replicas of __consumer_offsets."),
    key("offsets.topic.segment.bytes", Cluster, int(14), Is("104857600"), "Segment size of __consumer_offsets."),
    key("transaction.state.log.num.partitions", Cluster, int(1), Is("50"), "Partitions of __transaction_state."),
    key("transaction.state.log.replication.factor", Cluster, Short { min: 1 }, Is("3"), "Replicas of __transaction_state."),
    key("transaction.state.log.min.isr", Cluster, int(1), Is("2"), "min.insync.replicas of __transaction_state."),
    key("transaction.state.log.segment.bytes", Cluster, int(14), Is("104857600"), "Segment size of __transaction_state."),

    // How fast replicas move: for all brokers, or for one.
    key("leader.replication.throttled.rate", Cluster, long(0), Is(FOREVER), "Bytes a second at which a broker serves the replicas in leader.replication.throttled.replicas that are not in sync."),
    key("follower.replication.throttled.rate", Cluster, long(0), Is(FOREVER), "Bytes a second at which a broker fetches the replicas in follower.replication.throttled.replicas that are not in sync."),
    key("replica.alter.log.dirs.io.max.bytes.per.second", Cluster, long(0), Is(FOREVER), "No effect: replicas do not move between a broker's directories. Kafka's tools clear it after every move."),

    // Both roles.
    key("node.id", Process, int(0), Required, "This process's number in its role."),
    key("controller.quorum.voters", Process, List, Required, "The controllers, as id@host:port of their controller.listener."),
    key("broker.session.timeout.ms", Process, int(1), Is("9000"), "A broker that has not been heard from for so long is fenced."),
    key("broker.heartbeat.interval.ms", Process, int(1), Is("2000"), "How often a broker tells the active controller that it lives."),
    key("log.format", Process, Choice(&["text", "json"]), Is("text"), "The form of log lines (ours)."),

    // A broker's own.
    key("log.dirs", Broker, List, Required, "The directories in which partitions are kept."),
    key("listeners", Broker, List, Required, "Where to listen: CLIENT://host:port for clients, INTERNAL://host:port for brokers."),
    key("advertised.listeners", Broker, List, Null, "The addresses told to others; those of listeners if not given."),
    key("http.listener", Broker, Text, Required, "host:port of /livez, /readyz and /metrics (ours)."),
    key("broker.rack", Broker, Text, Null, "The rack this broker stands in: replicas are spread over racks."),
    key("auto.create.topics.enable", Broker, Boolean, Is("true"), "Whether asking for a topic that does not exist creates it."),
    key("replica.lag.time.max.ms", Broker, long(1), Is("30000"), "A follower that has not caught up for so long leaves the in-sync set."),
    key("replica.fetch.min.bytes", Broker, int(0), Is("1"), "How little a follower's fetch waits for."),
    key("replica.fetch.max.bytes", Broker, int(0), Is("1048576"), "How much a follower asks for per partition; one batch comes even if larger."),
    key("replica.fetch.response.max.bytes", Broker, int(0), Is("10485760"), "How much a follower asks for per fetch."),
    key("replica.fetch.wait.max.ms", Broker, int(0), Is("500"), "How long a follower's fetch waits for new records."),
    key("replica.fetch.backoff.ms", Broker, int(0), Is("1000"), "The longest a follower waits after a failed fetch; after the first it waits 20 ms."),
    key("replica.socket.timeout.ms", Broker, int(1), Is("30000"), "No effect: an answer may take five seconds longer than the leader may park the fetch."),
    key("replica.high.watermark.checkpoint.interval.ms", Broker, long(1), Is("5000"), "How often high watermarks are written down, and recovery points and log starts with them."),
    key("num.replica.fetchers", Broker, int(1), Is("1"), "No effect: one fetcher for each leader carries all its partitions, without one waiting for the other."),
    key("fetch.max.bytes", Broker, int(1024), Is("57671680"), "The most that one fetch returns."),
    key("fetch.memory.max.bytes", Broker, long(0), Is("134217728"), "What all answers together hold that consumers have not taken yet: the less is left of it, the less one fetch returns, down to one batch (ours)."),
    key("max.incremental.fetch.session.cache.slots", Broker, int(0), Is("1000"), "How many fetch sessions are kept."),
    key("socket.request.max.bytes", Broker, int(1), Is("104857600"), "The largest request."),
    key("max.connections", Broker, int(0), Is("2147483647"), "How many connections are open at once at most."),
    key("connections.max.idle.ms", Broker, long(1), Is("600000"), "After how long an idle connection is closed."),
    key("controlled.shutdown.enable", Broker, Boolean, Is("true"), "Whether leadership is handed over before the broker stops."),
    key("controlled.shutdown.timeout.ms", Broker, long(0), Is("25000"), "How long handing over may take (ours)."),
    key("log.retention.check.interval.ms", Broker, long(1), Is("300000"), "How often retention is enforced."),
    key("log.flush.scheduler.interval.ms", Broker, long(1), Is(FOREVER), "No effect: flush.ms is looked at ten times a second."),
    key("log.flush.offset.checkpoint.interval.ms", Broker, int(0), Is("60000"), "No effect: recovery points are written with the high watermarks."),
    key("log.flush.start.offset.checkpoint.interval.ms", Broker, int(0), Is("60000"), "No effect: log starts are written with the high watermarks."),
    key("num.recovery.threads.per.data.dir", Broker, int(1), Is("2"), "No effect: eight logs are opened at a time."),
    key("salvage.max.bytes", Broker, long(0), Is("10737418240"), "How much this broker keeps set aside in all; the oldest goes first (ours)."),
    key("salvage.copy.max.ms", Broker, long(0), Is("2000"), "How long a cut waits for the copying of what it cuts; what was copied by then is kept (ours)."),
    key("producer.id.expiration.ms", Broker, int(1), Is("86400000"), "How long a silent idempotent producer is remembered."),
    key("group.initial.rebalance.delay.ms", Broker, int(0), Is("3000"), "No effect yet: there are no consumer groups."),
    key("group.min.session.timeout.ms", Broker, int(1), Is("6000"), "No effect yet: there are no consumer groups."),
    key("group.max.session.timeout.ms", Broker, int(1), Is("1800000"), "No effect yet: there are no consumer groups."),
    key("group.max.size", Broker, int(1), Is("2147483647"), "No effect yet: there are no consumer groups."),
    key("offset.metadata.max.bytes", Broker, int(0), Is("4096"), "No effect yet: there are no consumer groups."),
    key("offsets.retention.minutes", Broker, int(1), Is("10080"), "No effect yet: there are no consumer groups."),
    key("transaction.max.timeout.ms", Broker, int(1), Is("900000"), "No effect yet: there are no transactions."),
    key("transactional.id.expiration.ms", Broker, int(1), Is("604800000"), "No effect yet: there are no transactions."),
    key("transaction.partition.verification.enable", Broker, Boolean, Is("true"), "No effect yet: there are no transactions."),

    // A controller's own.
    key("controller.listener", Controller, Text, Required, "host:port at which controllers and brokers reach this controller (ours)."),
    key("admin.listener", Controller, Text, Required, "host:port of the HTTP admin API (ours)."),
    key("admin.allow.unauthenticated", Controller, Boolean, Is("false"), "Whether the admin API may listen beyond loopback without authentication (ours)."),
    key("metadata.log.dir", Controller, Text, Required, "The directory of the metadata log, its vote and its snapshots."),
    key("broker.disconnect.grace.ms", Controller, int(0), Is("250"), "A broker whose session stream broke without a goodbye is fenced after so long, and after 50 ms at most if its address refuses connections (ours)."),
    key("quorum.heartbeat.interval.ms", Controller, int(1), Is("100"), "How often the leader of the quorum is heard (ours)."),
    key("quorum.election.timeout.min.ms", Controller, int(1), Is("250"), "The shortest silence after which a controller stands for election (ours)."),
    key("quorum.election.timeout.max.ms", Controller, int(1), Is("500"), "The longest silence after which a controller stands for election (ours)."),
    key("quorum.install.snapshot.timeout.ms", Controller, int(1), Is("5000"), "How long sending one piece of a snapshot may take (ours)."),
    key("metadata.log.max.records.between.snapshots", Controller, long(1), Is("10000"), "After how many entries a snapshot is written (ours)."),
    key("metadata.log.kept.after.snapshot", Controller, long(0), Is("5000"), "How many entries stay in the log below a snapshot, for those a little behind (ours)."),
    key("metadata.events.max.count", Controller, long(1), Is("20000"), "How many events are kept, the newest ones; at most 16 MiB of them (ours)."),
    key("auto.leader.rebalance.enable", Controller, Boolean, Is("true"), "Whether leadership goes back to preferred leaders by itself."),
    key("leader.imbalance.check.interval.seconds", Controller, long(1), Is("300"), "How often that is looked at."),
];

/// The rows of topic keys.
pub fn topic_keys() -> impl Iterator<Item = &'static ConfigKey> {
    KEYS.iter().filter(|key| key.scope == Scope::Topic)
}

/// The rows DescribeConfigs shows of a broker.
pub fn broker_keys() -> impl Iterator<Item = &'static ConfigKey> {
    KEYS.iter()
        .filter(|key| matches!(key.scope, Cluster | Broker | Process))
}
