//! `/livez`, `/readyz` and `/metrics` of a controller.

use std::sync::atomic::{AtomicI64, AtomicU64};

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use kuorum_admin_api::durability;
use kuorum_metadata::MetadataImage;
use kuorum_metadata::config_def::Durability;
use kuorum_transport::process::Process;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use super::Admin;
use crate::quorum::Status;

/// How many entries may wait to be applied before this controller is not ready.
const BEHIND: i64 = 1_000;

/// The label of what is counted by acks.durability.
const LABEL_DURABILITY: &str = "acks_durability";

/// One label whose name and value are known.
type Label = [(&'static str, &'static str); 1];

/// The process is alive.
pub(super) async fn livez() -> &'static str {
    "ok\n"
}

/// The controller knows a leader and has applied nearly everything it has.
pub(super) async fn readyz(State(admin): State<Admin>) -> Response {
    let status = admin.quorum.status();
    let checks = [
        ("quorum has a leader", status.leader.is_some()),
        ("metadata is applied", waiting(&status) <= BEHIND),
    ];
    let ready = checks.iter().all(|(_, passed)| *passed);
    let text: String = checks
        .iter()
        .map(|(check, passed)| format!("{} {check}\n", if *passed { "[+]" } else { "[-]" }))
        .collect();
    let code = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (code, text).into_response()
}

/// How many entries wait to be applied here.
fn waiting(status: &Status) -> i64 {
    status.log.1 as i64 - status.applied_end
}

/// The names that dashboards for Kafka know.
pub(super) async fn metrics(State(admin): State<Admin>) -> Response {
    let status = admin.quorum.status();
    let published = admin.quorum.published();
    let image = published.image();
    let mut registry = Registry::default();
    let mut gauge = |name: &str, help: &str, value: i64| {
        let gauge = Gauge::<i64, AtomicI64>::default();
        gauge.set(value);
        registry.register(name, help, gauge);
    };
    let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    let active = admin.active.may_decide();
    gauge(
        "kafka_controller_kafkacontroller_activecontrollercount",
        "1 on the active controller",
        i64::from(active),
    );
    let fenced = image.brokers().filter(|broker| broker.fenced).count();
    let unfenced = image.brokers().filter(|broker| !broker.fenced).count();
    gauge(
        "kafka_controller_kafkacontroller_fencedbrokercount",
        "Registered brokers that are fenced",
        count(fenced),
    );
    gauge(
        "kafka_controller_kafkacontroller_activebrokercount",
        "Registered brokers that are not fenced",
        count(unfenced),
    );
    let (mut partitions, mut offline, mut imbalanced) = (0, 0, 0);
    for (_, _, partition) in image.partitions() {
        partitions += 1;
        offline += i64::from(partition.leader.is_none());
        imbalanced += i64::from(partition.leader != partition.preferred_leader());
    }
    gauge(
        "kafka_controller_kafkacontroller_globaltopiccount",
        "Topics",
        count(image.topic_count()),
    );
    gauge(
        "kafka_controller_kafkacontroller_globalpartitioncount",
        "Partitions",
        partitions,
    );
    gauge(
        "kafka_controller_kafkacontroller_offlinepartitionscount",
        "Partitions without a leader",
        offline,
    );
    gauge(
        "kafka_controller_kafkacontroller_preferredreplicaimbalancecount",
        "Partitions not led by their preferred replica",
        imbalanced,
    );
    gauge(
        "kafka_controller_kafkacontroller_lastappliedrecordoffset",
        "The last applied offset of the metadata log",
        status.applied_end - 1,
    );
    gauge(
        "kafka_server_raftmetrics_current_leader",
        "Who leads the quorum, -1 if nobody",
        status
            .leader
            .map_or(-1, |leader| i64::try_from(leader).unwrap_or(-1)),
    );
    gauge(
        "kafka_server_raftmetrics_current_epoch",
        "The term of the quorum",
        i64::try_from(status.term).unwrap_or(i64::MAX),
    );
    gauge(
        "kafka_server_raftmetrics_log_end_offset",
        "The end of the metadata log here",
        status.log.1 as i64,
    );
    gauge(
        "kafka_server_raftmetrics_high_watermark",
        "How far the metadata log is committed and applied here",
        status.applied_end,
    );
    gauge(
        "kafka_brokers",
        "Registered brokers that are not fenced",
        count(unfenced),
    );
    gauge(
        "kafka_server_raftmetrics_current_vote",
        "Whom this controller voted for in this term or follows, -1 if nobody",
        status
            .vote
            .map_or(-1, |vote| i64::try_from(vote).unwrap_or(-1)),
    );
    gauge(
        "kafka_server_raftmetrics_number_of_voters",
        "Members of the quorum",
        count(status.voters.len()),
    );
    let (decided_at, wall) = (published.last_decided_at(), admin.clock.now().wall);
    gauge(
        "kafka_controller_kafkacontroller_lastappliedrecordlagms",
        "How long ago the newest applied decision was taken while others wait to be applied here, 0 if none does",
        match decided_at {
            Some(at) if waiting(&status) > 0 => (wall.0 - at.0).max(0),
            _ => 0,
        },
    );
    if let Some(at) = decided_at {
        gauge(
            "kafka_controller_kafkacontroller_lastappliedrecordtimestamp",
            "When the newest applied decision was taken, in milliseconds since 1970",
            at.0,
        );
    }
    if let Some(snapshot) = published.snapshot() {
        const SNAPSHOT: &str = "kafka_server_snapshotemitter_latestsnapshotgenerated";
        gauge(
            &format!("{SNAPSHOT}bytes"),
            "Bytes of the newest snapshot of the metadata",
            i64::try_from(snapshot.bytes).unwrap_or(i64::MAX),
        );
        gauge(
            "kuorum_controller_snapshot_end_offset",
            "The offset after the last entry in the newest snapshot of the metadata",
            snapshot.end,
        );
        if let Some(as_of) = snapshot.as_of {
            gauge(
                &format!("{SNAPSHOT}agems"),
                "How long ago the newest decision in that snapshot was taken; not known of one that this process did not make",
                (wall.0 - as_of.0).max(0),
            );
        }
    }
    // The chaos tests compare it between processes; too dear to be told at every scrape.
    #[cfg(feature = "chaos")]
    gauge(
        "kuorum_metadata_digest",
        "All of the metadata as one number",
        image.digest().cast_signed(),
    );
    let state = Family::<Label, Gauge>::default();
    state.get_or_create(&[("state", status.role)]).set(1);
    registry.register(
        "kafka_server_raftmetrics_current_state",
        "1 at what this controller is in the quorum",
        state,
    );
    admin.active.metrics().register(&mut registry);
    register_durability(&mut registry, &image);
    register_process(&mut registry);
    let mut text = String::new();
    match encode(&mut text, &registry) {
        Ok(()) => (
            [(
                header::CONTENT_TYPE,
                "application/openmetrics-text; version=1.0.0; charset=utf-8",
            )],
            text,
        )
            .into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// How many topics and partitions have which durability.
fn register_durability(registry: &mut Registry, image: &MetadataImage) {
    let (topics, partitions) = (
        Family::<Label, Gauge>::default(),
        Family::<Label, Gauge>::default(),
    );
    let [flushed, page_cache] = [durability::FLUSHED, durability::PAGE_CACHE].map(|value| {
        let label = [(LABEL_DURABILITY, value)];
        // Also where there is none.
        (
            topics.get_or_create_owned(&label),
            partitions.get_or_create_owned(&label),
        )
    });
    for topic in image.topics() {
        let (topics, partitions) = match image.durability(&topic.name) {
            Durability::Flushed => &flushed,
            Durability::PageCache => &page_cache,
        };
        topics.inc();
        partitions.inc_by(topic.partitions.len() as i64);
    }
    registry.register(
        "kuorum_topics",
        "Topics, by what an acknowledgement promises (acks.durability)",
        topics,
    );
    registry.register(
        "kuorum_partitions",
        "Partitions, by what an acknowledgement promises (acks.durability)",
        partitions,
    );
}

fn register_process(registry: &mut Registry) {
    let process = Process::look();
    registry.register(
        "kuorum_build",
        "The software",
        Info::new([("version", env!("CARGO_PKG_VERSION"))]),
    );
    registry.register(
        "process_cpu_seconds",
        "Processor time used",
        ConstCounter::new(process.cpu_seconds),
    );
    let started = Gauge::<f64, AtomicU64>::default();
    started.set(process.start_seconds);
    registry.register(
        "process_start_time_seconds",
        "When the process began, since 1970",
        started,
    );
    for (name, help, value) in [
        (
            "process_resident_memory_bytes",
            "Memory in use",
            process.resident_bytes,
        ),
        (
            "process_virtual_memory_bytes",
            "Addresses in use",
            process.virtual_bytes,
        ),
        (
            "process_open_fds",
            "Open file descriptors",
            process.open_files,
        ),
        (
            "process_max_fds",
            "How many file descriptors may be open",
            process.max_files,
        ),
        ("process_threads", "Threads", process.threads),
    ] {
        let gauge = Gauge::<i64, AtomicI64>::default();
        gauge.set(value);
        registry.register(name, help, gauge);
    }
}
