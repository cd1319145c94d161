//! `/livez`, `/readyz` and `/metrics` of a controller.

use std::sync::atomic::AtomicI64;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::Admin;

/// How many entries may wait to be applied before this controller is not ready.
const BEHIND: i64 = 1_000;

/// The process is alive.
pub(super) async fn livez() -> &'static str {
    "ok\n"
}

/// The controller knows a leader and has applied nearly everything it has.
pub(super) async fn readyz(State(admin): State<Admin>) -> Response {
    let status = admin.quorum.status();
    let waiting = status.log.1 as i64 - status.applied_end;
    let checks = [
        ("quorum has a leader", status.leader.is_some()),
        ("metadata is applied", waiting <= BEHIND),
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

/// The names that dashboards for Kafka know.
pub(super) async fn metrics(State(admin): State<Admin>) -> Response {
    let status = admin.quorum.status();
    let image = admin.quorum.image();
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
    // The chaos tests compare it between processes; too dear to be told at every scrape.
    #[cfg(feature = "chaos")]
    gauge(
        "kuorum_metadata_digest",
        "All of the metadata as one number",
        image.digest().cast_signed(),
    );
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
