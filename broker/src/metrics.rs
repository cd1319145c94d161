//! The numbers a broker keeps about itself, under the names that boards made for Kafka look for.
//! Law: counting costs an atomic addition; what must be looked up is looked up when it is scraped. No histogram carries a
//! partition or a topic, and what has one set of series for each partition is on a page of its own ([`partitions`]).

pub mod partitions;

use std::collections::HashSet;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use kuorum_metadata::PartitionImage;
use kuorum_metadata::image::MetadataImage;
use kuorum_protocol::BrokerId;
use kuorum_protocol::error_code::ErrorCode;
use kuorum_transport::process::Process;
use kuorum_transport::{Instant, Outcome};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::context::Rooms;
use crate::handlers::TABLE;

/// The label of per-request series.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabel {
    request: &'static str,
}

/// The label of errors: which request, and what went wrong.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ErrorLabel {
    request: &'static str,
    error: &'static str,
}

/// One label whose name and value are known.
type Label = [(&'static str, &'static str); 1];

/// An error that no code says: the connection was closed instead of an answer.
const CLOSED: &str = "CONNECTION_CLOSED";

/// Counts the errors in the answers to one API.
#[derive(Clone, Debug)]
pub struct ErrorCounts {
    errors: Family<ErrorLabel, Counter>,
    request: &'static str,
}

impl ErrorCounts {
    /// An answer had this error code. Errors are rare: each costs a look into a map.
    pub fn count(&self, code: i16) {
        self.count_named(ErrorCode::from(code).name());
    }

    fn count_named(&self, error: &'static str) {
        let request = self.request;
        self.errors
            .get_or_create(&ErrorLabel { request, error })
            .inc();
    }
}

/// All of a broker's metrics.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: Vec<RequestMetrics>,
    gauges: Gauges,

    pub connections: Gauge,
    pub connections_created: Counter,
    pub bytes_in: Counter,
    pub bytes_out: Counter,
    pub messages_in: Counter,
    pub replication_bytes_in: Counter,
    pub replication_bytes_out: Counter,
    pub produce_requests: Counter,
    pub failed_produce_requests: Counter,
    pub fetch_requests: Counter,
    pub failed_fetch_requests: Counter,
    pub isr_shrinks: Counter,
    pub isr_expands: Counter,
    pub failed_isr_updates: Counter,
    pub reassignment_bytes_in: Counter,
    pub flush_seconds: Histogram,
    pub events_dropped: Counter,
}

/// The numbers of one API.
#[derive(Clone, Debug)]
pub struct RequestMetrics {
    total: Counter,
    bytes: Counter,
    errors: ErrorCounts,
    seconds: Histogram,
}

/// What is looked up at each scrape.
#[derive(Debug, Default)]
struct Gauges {
    partitions: Gauge,
    leaders: Gauge,
    under_replicated: Gauge,
    under_min_isr: Gauge,
    at_min_isr: Gauge,
    offline_replicas: Gauge,
    preferred_imbalance: Gauge,
    fetch_sessions: Gauge,
    fetch_session_evictions: Gauge,
    fetch_memory: Gauge,
    metadata_offset: Gauge,
    /// The chaos tests compare it between processes; too dear to be told at every scrape.
    #[cfg(feature = "chaos")]
    metadata_digest: Gauge,
    unfenced: Gauge,
    offline_directories: Gauge,
    isr_shrinks: Gauge,
    isr_expands: Gauge,
    max_lag: Gauge,
    followers_max_lag: Gauge,
    log_bytes: Gauge,
    producer_ids: Gauge,
    purgatory: Family<Label, Gauge>,
    resident_bytes: Gauge<i64, AtomicI64>,
    virtual_bytes: Gauge<i64, AtomicI64>,
    cpu_seconds: Counter<f64, AtomicU64>,
    start_seconds: Gauge<f64, AtomicU64>,
    open_files: Gauge,
    max_files: Gauge,
    threads: Gauge,
}

impl RequestMetrics {
    /// A request of `size` bytes was understood.
    pub fn began(&self, size: usize) {
        self.total.inc();
        self.bytes.inc_by(size as u64);
    }

    /// It is answered, after all its waiting.
    pub fn ended(&self, began: Instant, outcome: &Outcome) {
        self.seconds.observe(began.elapsed().as_secs_f64());
        if matches!(outcome, Outcome::Close(_)) {
            self.errors.count_named(CLOSED);
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Nothing counted yet.
    pub fn new() -> Self {
        let mut registry = Registry::default();
        let requests = request_metrics(&mut registry);
        let gauges = Gauges::default();
        gauges.register(&mut registry);
        registry.register(
            "kuorum_build",
            "The software",
            Info::new([("version", env!("CARGO_PKG_VERSION"))]),
        );
        let mut counter = |name: &str, help: &str| {
            let counter = Counter::default();
            registry.register(name, help, counter.clone());
            counter
        };
        const TOPICS: &str = "kafka_server_brokertopicmetrics";
        let mut topics = |name: &str, help: &str| counter(&format!("{TOPICS}_{name}"), help);
        let bytes_in = topics("bytesin", "Bytes produced by clients");
        let bytes_out = topics("bytesout", "Bytes fetched by consumers");
        let messages_in = topics("messagesin", "Records produced by clients");
        let replication_bytes_in = topics("replicationbytesin", "Bytes fetched from leaders");
        let replication_bytes_out = topics("replicationbytesout", "Bytes fetched by followers");
        let produce_requests = topics("totalproducerequests", "Produce requests");
        let failed_produce_requests = topics(
            "failedproducerequests",
            "Partitions that did not take their batch",
        );
        let fetch_requests = topics("totalfetchrequests", "Fetch requests");
        let failed_fetch_requests =
            topics("failedfetchrequests", "Partitions that could not be read");
        let reassignment_bytes_in = topics(
            "reassignmentbytesin",
            "Bytes fetched from leaders for replicas that a reassignment brings here",
        );
        let isr_shrinks = counter(
            "kafka_server_replicamanager_isrshrinks",
            "In-sync sets made smaller",
        );
        let isr_expands = counter(
            "kafka_server_replicamanager_isrexpands",
            "In-sync sets made larger",
        );
        let failed_isr_updates = counter(
            "kafka_server_replicamanager_failedisrupdates",
            "Changes of in-sync sets that were proposed and not decided so",
        );
        let events_dropped = counter(
            "kuorum_broker_events_dropped",
            "Events that the controllers were never told, because too many waited",
        );
        let connections_created = counter(
            "kafka_server_socketservermetrics_connection_creation",
            "Connections accepted",
        );
        let connections = Gauge::default();
        registry.register(
            "kafka_server_socketservermetrics_connection_count",
            "Open connections",
            connections.clone(),
        );
        let flush_seconds = Histogram::new(times());
        registry.register(
            "kafka_log_logflushstats_logflushtime_seconds",
            "One flush of one log; how many there were is its count",
            flush_seconds.clone(),
        );
        Self {
            registry,
            requests,
            gauges,
            connections,
            connections_created,
            bytes_in,
            bytes_out,
            messages_in,
            replication_bytes_in,
            replication_bytes_out,
            produce_requests,
            failed_produce_requests,
            fetch_requests,
            failed_fetch_requests,
            isr_shrinks,
            isr_expands,
            failed_isr_updates,
            reassignment_bytes_in,
            flush_seconds,
            events_dropped,
        }
    }

    /// The numbers of the API at that place of the table.
    pub fn request(&self, place: usize) -> &RequestMetrics {
        &self.requests[place]
    }

    /// Who counts the errors in the answers of the API at that place of the table.
    pub fn errors(&self, place: usize) -> ErrorCounts {
        self.requests[place].errors.clone()
    }

    /// Everything but what each partition has, as Prometheus reads it.
    pub fn scrape(&self, rooms: &Rooms) -> String {
        self.gauges.look(rooms);
        let copy = |from: &Counter, to: &Gauge| to.set(from.get().cast_signed());
        copy(&self.isr_shrinks, &self.gauges.isr_shrinks);
        copy(&self.isr_expands, &self.gauges.isr_expands);
        let mut text = String::with_capacity(32 * 1024);
        // Writing to a string does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

/// The buckets of times, in seconds: 100 µs to 53 s.
fn times() -> impl Iterator<Item = f64> {
    exponential_buckets(0.0001, 3.0, 13)
}

fn request_metrics(registry: &mut Registry) -> Vec<RequestMetrics> {
    let total = Family::<RequestLabel, Counter>::default();
    let bytes = Family::<RequestLabel, Counter>::default();
    let errors = Family::<ErrorLabel, Counter>::default();
    let buckets = || Histogram::new(times());
    let seconds = Family::<RequestLabel, Histogram>::new_with_constructor(buckets);
    const NAME: &str = "kafka_network_requestmetrics";
    registry.register(format!("{NAME}_requests"), "Requests", total.clone());
    registry.register(
        format!("{NAME}_requestbytes"),
        "Bytes of requests",
        bytes.clone(),
    );
    registry.register(
        format!("{NAME}_errors"),
        "Error codes in answers, each partition's counted, and connections closed instead of an answer",
        errors.clone(),
    );
    registry.register(
        format!("{NAME}_totaltime_seconds"),
        "From the last byte of a request until its answer is ready",
        seconds.clone(),
    );
    TABLE
        .iter()
        .map(|row| {
            let label = RequestLabel {
                request: row.api.name(),
            };
            RequestMetrics {
                total: total.get_or_create(&label).clone(),
                bytes: bytes.get_or_create(&label).clone(),
                errors: ErrorCounts {
                    errors: errors.clone(),
                    request: label.request,
                },
                seconds: seconds.get_or_create(&label).clone(),
            }
        })
        .collect()
}

impl Gauges {
    fn register(&self, registry: &mut Registry) {
        const REPLICAS: &str = "kafka_server_replicamanager";
        let rows: [(String, &str, &Gauge); 22] = [
            (
                format!("{REPLICAS}_partitioncount"),
                "Replicas on this broker",
                &self.partitions,
            ),
            (
                format!("{REPLICAS}_leadercount"),
                "Partitions led by this broker",
                &self.leaders,
            ),
            (
                format!("{REPLICAS}_underreplicatedpartitions"),
                "Partitions led here whose replicas are not all in sync",
                &self.under_replicated,
            ),
            (
                format!("{REPLICAS}_underminisrpartitioncount"),
                "Partitions led here with fewer in sync than acks=all needs",
                &self.under_min_isr,
            ),
            (
                format!("{REPLICAS}_atminisrpartitioncount"),
                "Partitions led here with exactly as many in sync as acks=all needs",
                &self.at_min_isr,
            ),
            (
                format!("{REPLICAS}_offlinereplicacount"),
                "Replicas on this broker of partitions nobody leads",
                &self.offline_replicas,
            ),
            (
                format!("{REPLICAS}_preferredreplicaimbalancecount"),
                "Partitions whose first replica is here and does not lead",
                &self.preferred_imbalance,
            ),
            (
                "kafka_server_fetchsessioncache_numincrementalfetchsessions".to_owned(),
                "Fetch sessions",
                &self.fetch_sessions,
            ),
            (
                "kafka_server_fetchsessioncache_incrementalfetchsessionevictions".to_owned(),
                "Fetch sessions that had to make room",
                &self.fetch_session_evictions,
            ),
            (
                "kuorum_broker_fetch_memory_bytes".to_owned(),
                "What consumers have been answered and not taken yet",
                &self.fetch_memory,
            ),
            (
                "kafka_server_brokermetadatametrics_last_applied_record_offset".to_owned(),
                "How far this broker has followed the metadata log",
                &self.metadata_offset,
            ),
            (
                "kuorum_broker_in_service".to_owned(),
                "1 while the controllers let this broker serve",
                &self.unfenced,
            ),
            (
                "kafka_log_logmanager_offlinelogdirectorycount".to_owned(),
                "Log directories that have failed",
                &self.offline_directories,
            ),
            (
                format!("{REPLICAS}_isrshrinkspersec"),
                "In-sync sets made smaller since the start, as some boards call it",
                &self.isr_shrinks,
            ),
            (
                format!("{REPLICAS}_isrexpandspersec"),
                "In-sync sets made larger since the start, as some boards call it",
                &self.isr_expands,
            ),
            (
                "kafka_server_replicafetchermanager_maxlag".to_owned(),
                "Records that the replica furthest behind here lacks of what its leader last called committed",
                &self.max_lag,
            ),
            (
                "kuorum_broker_followers_maxlag".to_owned(),
                "Records that the follower furthest behind lacks of a log led here",
                &self.followers_max_lag,
            ),
            (
                "kuorum_broker_log_size_bytes".to_owned(),
                "Bytes of all logs here",
                &self.log_bytes,
            ),
            (
                format!("{REPLICAS}_produceridcount"),
                "Idempotent producers that the logs here know, each log's counted",
                &self.producer_ids,
            ),
            (
                "process_max_fds".to_owned(),
                "How many file descriptors may be open",
                &self.max_files,
            ),
            (
                "process_open_fds".to_owned(),
                "Open file descriptors",
                &self.open_files,
            ),
            ("process_threads".to_owned(), "Threads", &self.threads),
        ];
        for (name, help, gauge) in rows {
            registry.register(name, help, gauge.clone());
        }
        #[cfg(feature = "chaos")]
        registry.register(
            "kuorum_metadata_digest",
            "All of the metadata as one number",
            self.metadata_digest.clone(),
        );
        registry.register(
            "process_resident_memory_bytes",
            "Memory in use",
            self.resident_bytes.clone(),
        );
        registry.register(
            "kafka_server_delayedoperationpurgatory_purgatorysize",
            "Requests that wait: produces for the high watermark, fetches for records",
            self.purgatory.clone(),
        );
        registry.register(
            "process_virtual_memory_bytes",
            "Addresses in use",
            self.virtual_bytes.clone(),
        );
        registry.register(
            "process_start_time_seconds",
            "When the process began, since 1970",
            self.start_seconds.clone(),
        );
        registry.register(
            "process_cpu_seconds",
            "Processor time used",
            self.cpu_seconds.clone(),
        );
    }

    fn look(&self, rooms: &Rooms) {
        let image = rooms.metadata.image();
        self.look_at_partitions(&image, rooms.membership.id);
        self.look_at_logs(rooms);
        let (sessions, evictions) = rooms.sessions.counts();
        self.fetch_sessions.set(sessions as i64);
        self.fetch_session_evictions.set(evictions as i64);
        self.fetch_memory.set(rooms.fetch_memory.used() as i64);
        self.metadata_offset.set(image.offset());
        #[cfg(feature = "chaos")]
        self.metadata_digest.set(image.digest().cast_signed());
        self.unfenced.set(i64::from(rooms.membership.is_unfenced()));
        self.offline_directories
            .set(rooms.membership.offline_directories().len() as i64);
        self.look_at_process();
    }

    fn look_at_partitions(&self, image: &MetadataImage, me: BrokerId) {
        let [
            mut here,
            mut led,
            mut under_replicated,
            mut under_min,
            mut at_min,
        ] = [0; 5];
        let [mut offline, mut imbalanced] = [0; 2];
        for topic in image.topics() {
            let mut min_isr = None;
            for partition in topic.partitions.values() {
                if !partition.replicas.contains(&me) {
                    continue;
                }
                here += 1;
                offline += i64::from(partition.leader.is_none());
                let is_leader = partition.leader == Some(me);
                imbalanced += i64::from(partition.preferred_leader() == Some(me) && !is_leader);
                if !is_leader {
                    continue;
                }
                led += 1;
                let min_isr =
                    *min_isr.get_or_insert_with(|| image.min_insync_replicas(&topic.name));
                let standing = Standing::of(partition, min_isr);
                under_replicated += i64::from(standing.under_replicated);
                under_min += i64::from(standing.under_min_isr);
                at_min += i64::from(standing.at_min_isr);
            }
        }
        self.partitions.set(here);
        self.leaders.set(led);
        self.under_replicated.set(under_replicated);
        self.under_min_isr.set(under_min);
        self.at_min_isr.set(at_min);
        self.offline_replicas.set(offline);
        self.preferred_imbalance.set(imbalanced);
    }

    fn look_at_logs(&self, rooms: &Rooms) {
        let [mut bytes, mut lag, mut followers_lag] = [0_u64; 3];
        let [mut parked, mut producers] = [0_usize; 2];
        let mut waiters = HashSet::new();
        for hosted in rooms.replicas.all() {
            let figures = hosted.figures();
            bytes += figures.size_bytes;
            lag = lag.max(figures.lag);
            followers_lag = followers_lag.max(figures.followers_lag);
            parked += figures.parked;
            producers += figures.producers;
            hosted.note_waiters(&mut waiters);
        }
        self.log_bytes.set(bytes.cast_signed());
        self.max_lag.set(lag.cast_signed());
        self.followers_max_lag.set(followers_lag.cast_signed());
        self.producer_ids.set(producers as i64);
        for (operation, waiting) in [("Produce", parked), ("Fetch", waiters.len())] {
            self.purgatory
                .get_or_create(&[("delayedOperation", operation)])
                .set(waiting as i64);
        }
    }

    fn look_at_process(&self) {
        let process = Process::look();
        self.resident_bytes.set(process.resident_bytes);
        self.virtual_bytes.set(process.virtual_bytes);
        // The kernel counts it; a counter of this library holds the bits.
        let cpu_seconds = process.cpu_seconds.to_bits();
        self.cpu_seconds
            .inner()
            .store(cpu_seconds, Ordering::Relaxed);
        self.start_seconds.set(process.start_seconds);
        self.max_files.set(process.max_files);
        self.open_files.set(process.open_files);
        self.threads.set(process.threads);
    }
}

/// How a partition stands, by its in-sync set.
#[derive(Clone, Copy, Debug)]
struct Standing {
    under_replicated: bool,
    under_min_isr: bool,
    at_min_isr: bool,
}

impl Standing {
    fn of(partition: &PartitionImage, min_isr: usize) -> Self {
        let (isr, replicas) = (partition.isr.len(), partition.replication_factor());
        let min_isr = min_isr.min(replicas);
        Self {
            under_replicated: isr < replicas,
            under_min_isr: isr < min_isr,
            at_min_isr: isr == min_isr,
        }
    }
}
