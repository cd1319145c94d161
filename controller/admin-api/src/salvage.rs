//! What unclean elections made replicas cut off, and its replay.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A page of salvaged items, by id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SalvagePage {
    pub items: Vec<SalvageItem>,
    pub next_page_token: Option<String>,
    /// Brokers that were asked and did not answer in time; they may hold more.
    pub unreachable_brokers: Vec<i32>,
}

/// A salvaged item. Equal copies on several brokers are one item, and the longest of them is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SalvageItem {
    /// `{topic_id}-{partition}-{unclean_epoch}-{first_offset}`.
    pub id: String,
    /// The topic's name when it was set aside.
    pub topic: String,
    pub topic_id: String,
    pub partition: i32,
    /// The leader epoch of the unclean election.
    pub unclean_epoch: i32,
    pub first_offset: i64,
    /// Exclusive.
    pub end_offset: i64,
    /// Control records, aborted transactions and those whose end is not here are not counted.
    pub records: u64,
    /// Bytes of its batches, as they lay in the log.
    pub bytes: u64,
    /// Milliseconds since 1970.
    pub first_timestamp: Option<i64>,
    pub last_timestamp: Option<i64>,
    pub epochs: Vec<SalvageEpoch>,
    /// Transactions whose records are not counted.
    #[serde(default)]
    pub skipped_transactions: u64,
    /// False if a bound was reached before all that was cut was set aside.
    pub complete: bool,
    /// Where its bytes are not what was set aside, if anywhere; what lies behind is not counted.
    #[serde(default)]
    pub damage: Option<String>,
    /// The event of the unclean election that made its holders cut it off: `GET /events`. Null when the history does not go
    /// back so far.
    #[serde(default)]
    pub cause: Option<i64>,
    /// The same in words.
    pub reason: String,
    /// Milliseconds since 1970.
    pub created_at: i64,
    /// Who holds a copy.
    #[serde(default)]
    pub brokers: Vec<i32>,
    /// Where it has been replayed into, or is being.
    #[serde(default)]
    pub replays: Vec<SalvageReplay>,
}

/// A leader epoch of an item's records, and its first offset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SalvageEpoch {
    pub epoch: i32,
    pub start_offset: i64,
}

/// One salvaged item, and who could not be asked about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SalvageDetail {
    #[serde(flatten)]
    pub item: SalvageItem,
    pub unreachable_brokers: Vec<i32>,
}

/// A page of an item's records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SalvageRecords {
    pub items: Vec<SalvageRecord>,
    pub next_page_token: Option<String>,
}

/// A record of an item. Bytes that are no text are in hex under `…_hex`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SalvageRecord {
    /// Its place among the records that count.
    pub index: u64,
    pub offset: i64,
    pub leader_epoch: i32,
    pub timestamp: i64,
    #[serde(default)]
    pub key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_hex: Option<String>,
    #[serde(default)]
    pub value: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_hex: Option<String>,
    #[serde(default)]
    pub headers: Vec<SalvageHeader>,
}

/// A header of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SalvageHeader {
    pub name: String,
    #[serde(default)]
    pub value: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_hex: Option<String>,
}

/// `POST /salvage/{id}/replay`. The body may be left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplaySalvage {
    /// The topic to replay into; the one the item is of when left out.
    #[serde(default)]
    pub target: Option<String>,
}

/// How far a replay is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReplayState {
    /// The active controller carries it, whichever that is.
    Running,
    /// It was given up (nobody could be asked for the records, or the target took no more) and goes on when it is asked for
    /// again.
    Stopped,
    /// Every record is in the target.
    Done,
}

/// The replay of an item into a topic. However often it is asked for, each record comes into the topic once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SalvageReplay {
    pub id: String,
    /// The topic it goes into.
    pub target: String,
    /// The partition, in the item as in the target.
    pub partition: i32,
    pub state: ReplayState,
    /// Records that are in the target.
    pub replayed: u64,
    /// Who writes them; the record's index is its sequence.
    pub producer_id: i64,
    /// When it was done, in milliseconds since 1970.
    pub finished_at: Option<i64>,
}

/// What became of `DELETE /salvage/{id}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SalvageDeleted {
    pub id: String,
    /// Who held a copy and does not any more.
    pub deleted_from: Vec<i32>,
    /// Brokers that did not answer: a copy there stays.
    pub unreachable_brokers: Vec<i32>,
}
