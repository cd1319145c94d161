//! What happened in the cluster, and who led a partition when.
//! Law: an id only grows, and every controller knows an event by the same one.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Its place in the history of the cluster; ids have gaps.
    pub id: i64,
    /// When the controllers decided or recorded it, in milliseconds since 1970 by the clock of the active one; −1 if unknown.
    pub at_ms: i64,
    /// What kind of thing: `leader_changed`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The topic it is about; `null` also if the topic was gone by then.
    pub topic: Option<String>,
    pub topic_id: Option<String>,
    pub partition: Option<i32>,
    /// The broker it is about.
    pub broker: Option<i32>,
    /// Why it happened.
    pub cause: String,
    /// It in one sentence, for people.
    pub message: String,
    /// The offset of the entry of the metadata log that says so.
    pub metadata_offset: i64,
    /// What is special to its kind: the new leader, the ISR before and after.
    #[schema(value_type = Object)]
    pub details: Map<String, Value>,
}

/// A page of events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EventPage {
    pub items: Vec<Event>,
    pub next_page_token: Option<String>,
    /// Events up to this id are no longer kept; 0 while all are.
    pub dropped_through: i64,
}

/// Which events are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams, ToSchema)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventQuery {
    /// From 1 to 1000; 1000 when left out. Lists only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_size: Option<usize>,
    /// The `next_page_token` of the page before. Lists only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_token: Option<String>,
    /// Oldest first when left out. Lists only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<EventOrder>,
    /// Kinds, separated by commas.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// With `topic`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<i32>,
    /// Events about this broker, and those it had a part in: it led, joined, left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broker: Option<i32>,
    /// Not before this moment, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<i64>,
    /// Only events after this id. A stream's `Last-Event-ID` wins over it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<i64>,
}

/// In which order events are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventOrder {
    /// Oldest first.
    Asc,
    /// Newest first.
    Desc,
}

/// A page of a partition's leader epochs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EpochPage {
    /// Oldest first.
    pub items: Vec<Epoch>,
    pub next_page_token: Option<String>,
    /// The leader, if it was asked for the offsets and did not answer in time.
    pub unreachable_brokers: Vec<i32>,
}

/// One leader epoch: who led, from where and when, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Epoch {
    pub epoch: i32,
    /// Who led. `null` with `since_ms`: nobody did; without: it is no longer known.
    pub leader: Option<i32>,
    /// The first offset of the epoch in the present leader's log; `null` if it has no record of it, or was not reached.
    pub start_offset: Option<i64>,
    /// Where its records end (exclusive).
    pub end_offset: Option<i64>,
    /// When it began, in milliseconds since 1970; `null` if the event is no longer kept.
    pub since_ms: Option<i64>,
    pub cause: Option<String>,
    /// Whether its leader was elected uncleanly; `null` if the event is no longer kept.
    pub unclean: Option<bool>,
    /// The event that says so.
    pub event_id: Option<i64>,
}
