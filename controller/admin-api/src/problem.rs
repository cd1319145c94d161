//! What went wrong (RFC 9457, `application/problem+json`).
//! Law: every answer that is not 2xx has this body; `code` is stable, `detail` is for people.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// A name for this kind of problem: `urn:kuorum:problem:` and the code in small letters.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind in words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What happened this time, and what to do.
    pub detail: String,
    /// The path that was asked for.
    pub instance: String,
    /// Stable, in capitals: `TOPIC_ALREADY_EXISTS`.
    pub code: String,
    /// The same in Kafka's words, where Kafka has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kafka_error: Option<KafkaError>,
    /// Whether asking again later can help.
    pub retriable: bool,
    /// How long to wait first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// The fields at fault.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
    /// With a missing or busy controller: who is active, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<u64>,
}

/// A Kafka error code and its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KafkaError {
    /// Kafka's number.
    pub code: i16,
    /// Kafka's name.
    pub name: String,
}

/// What is wrong with one field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FieldError {
    /// Where, as a JSON Pointer (RFC 6901) into the request's body: `/replication_factor`.
    pub pointer: String,
    /// What is wrong with it.
    pub detail: String,
}
