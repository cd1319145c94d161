//! Salvaged items, which only their holders know.
//! Law: of several copies the longest is shown and read. A page of content gets more time than a question.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use kuorum_admin_api::{SalvageItem, SalvageRecord};
use kuorum_metadata::MetadataImage;
use kuorum_metadata::rpc::HEADER_CLUSTER_ID;
use kuorum_protocol::{BrokerId, PartitionIndex, ProducerId, TopicId};
use reqwest::RequestBuilder;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{ANSWER_BYTES, DEADLINE, Fleet};

/// How long a broker has to read a page of content.
const CONTENT_DEADLINE: Duration = Duration::from_secs(10);
/// Where brokers serve items.
const PATH: &str = "/internal/v1/salvage";

/// An item, as the holders of its longest copy have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// With `brokers`: whoever holds a copy.
    pub item: SalvageItem,
    /// Whoever holds a copy as long as the longest.
    pub holders: Vec<BrokerId>,
}

/// What the brokers hold.
#[derive(Clone, Debug, Default)]
pub struct SalvageSurvey {
    /// By id.
    pub items: BTreeMap<String, Held>,
    /// Who was asked and did not answer.
    pub unreachable: BTreeSet<BrokerId>,
}

/// What a partition's leader knows of an idempotent producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct ProducerReport {
    /// `None` if it knows nothing of it.
    pub last_sequence: Option<i32>,
    pub last_offset: Option<i64>,
    pub high_watermark: i64,
}

/// A page of records.
#[derive(Clone, Debug, Deserialize)]
pub struct RecordPage {
    pub items: Vec<SalvageRecord>,
    /// The index of the next record.
    pub next: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct ItemList {
    items: Vec<SalvageItem>,
}

/// What a broker said.
enum Answer<T> {
    Said(T),
    /// It knows nothing of it.
    NotFound,
    /// It did not answer in time, or with an error.
    Nothing,
}

impl SalvageSurvey {
    fn add(&mut self, broker: BrokerId, item: SalvageItem) {
        match self.items.get_mut(&item.id) {
            None => {
                let held = Held {
                    item: SalvageItem {
                        brokers: vec![broker.0],
                        ..item
                    },
                    holders: vec![broker],
                };
                self.items.insert(held.item.id.clone(), held);
            }
            Some(held) => {
                let length = |item: &SalvageItem| (item.end_offset, item.records);
                let mut brokers = std::mem::take(&mut held.item.brokers);
                brokers.push(broker.0);
                match length(&item).cmp(&length(&held.item)) {
                    Ordering::Greater => {
                        held.holders = vec![broker];
                        held.item = item;
                    }
                    Ordering::Equal => held.holders.push(broker),
                    Ordering::Less => {}
                }
                brokers.sort_unstable();
                held.item.brokers = brokers;
            }
        }
    }
}

impl Fleet {
    /// Asks every broker for so many items after the id `after`.
    pub async fn salvage(&self, image: &MetadataImage, after: &str, limit: usize) -> SalvageSurvey {
        let path = format!("{PATH}?after={after}&limit={limit}");
        let answers = self
            .ask_all(image, |client, http| {
                client.get(format!("http://{http}{path}"))
            })
            .await;
        let mut survey = SalvageSurvey::default();
        for (broker, answer) in answers {
            match answer {
                Answer::Said(ItemList { items }) => {
                    for item in items {
                        survey.add(broker, item);
                    }
                }
                Answer::NotFound | Answer::Nothing => {
                    survey.unreachable.insert(broker);
                }
            }
        }
        survey
    }

    /// Asks every broker for one item. The id must be one that needs no escaping.
    pub async fn salvaged(&self, image: &MetadataImage, id: &str) -> SalvageSurvey {
        let answers = self
            .ask_all(image, |client, http| {
                client.get(format!("http://{http}{PATH}/{id}"))
            })
            .await;
        let mut survey = SalvageSurvey::default();
        for (broker, answer) in answers {
            match answer {
                Answer::Said(item) => survey.add(broker, item),
                Answer::NotFound => {}
                Answer::Nothing => {
                    survey.unreachable.insert(broker);
                }
            }
        }
        survey
    }

    /// Has every broker delete an item; answers with who did, and who did not answer.
    pub async fn delete_salvaged(
        &self,
        image: &MetadataImage,
        cluster_id: &str,
        id: &str,
    ) -> (BTreeSet<BrokerId>, BTreeSet<BrokerId>) {
        let answers = self
            .ask_all::<Option<()>>(image, |client, http| {
                client
                    .delete(format!("http://{http}{PATH}/{id}"))
                    .header(HEADER_CLUSTER_ID, cluster_id)
            })
            .await;
        let (mut deleted, mut unreachable) = (BTreeSet::new(), BTreeSet::new());
        for (broker, answer) in answers {
            match answer {
                Answer::Said(_) => deleted.insert(broker),
                Answer::NotFound => false,
                Answer::Nothing => unreachable.insert(broker),
            };
        }
        (deleted, unreachable)
    }

    /// A page of an item's records, from one of its holders.
    pub async fn salvaged_records(
        &self,
        image: &MetadataImage,
        held: &Held,
        from: u64,
        limit: usize,
    ) -> Option<RecordPage> {
        let path = format!("{PATH}/{}/records?from={from}&limit={limit}", held.item.id);
        let bytes = self.content(image, &held.holders, &path).await?;
        serde_json::from_slice(&bytes).ok()
    }

    /// Some of an item's raw batches, from one of its holders.
    pub async fn salvaged_bytes(
        &self,
        image: &MetadataImage,
        held: &Held,
        from: u64,
        max_bytes: usize,
    ) -> Option<Bytes> {
        let path = format!(
            "{PATH}/{}/segment?from={from}&max_bytes={max_bytes}",
            held.item.id
        );
        self.content(image, &held.holders, &path).await
    }

    /// Records of an item as a batch of `producer`, from one of its holders; empty at the end.
    pub async fn salvaged_batch(
        &self,
        image: &MetadataImage,
        held: &Held,
        from: u64,
        max_bytes: usize,
        producer: ProducerId,
    ) -> Option<Bytes> {
        let path = format!(
            "{PATH}/{}/batch?from={from}&max_bytes={max_bytes}&producer_id={producer}",
            held.item.id
        );
        self.content(image, &held.holders, &path).await
    }

    /// What the leader of a partition knows of a producer; `None` if it cannot be asked or does not lead.
    pub async fn producer(
        &self,
        image: &MetadataImage,
        leader: BrokerId,
        producer: ProducerId,
        topic_id: TopicId,
        partition: PartitionIndex,
    ) -> Option<ProducerReport> {
        let http = &image.broker(leader)?.http;
        let question = self.client.get(format!(
            "http://{http}/internal/v1/producers/{producer}?topic_id={topic_id}&partition={partition}"
        ));
        match self.ask_one(question, DEADLINE).await {
            Answer::Said(bytes) => serde_json::from_slice(&bytes).ok(),
            Answer::NotFound | Answer::Nothing => None,
        }
    }

    async fn content(
        &self,
        image: &MetadataImage,
        holders: &[BrokerId],
        path: &str,
    ) -> Option<Bytes> {
        for holder in holders {
            let Some(broker) = image.broker(*holder) else {
                continue;
            };
            let question = self.client.get(format!("http://{}{path}", broker.http));
            if let Answer::Said(bytes) = self.ask_one(question, CONTENT_DEADLINE).await {
                return Some(bytes);
            }
        }
        None
    }

    /// One question to every registered broker; an empty answer is JSON's null.
    async fn ask_all<T: DeserializeOwned>(
        &self,
        image: &MetadataImage,
        question: impl Fn(&reqwest::Client, &str) -> RequestBuilder,
    ) -> Vec<(BrokerId, Answer<T>)> {
        let questions = image.brokers().map(|broker| {
            let question = question(&self.client, &broker.http);
            async move {
                let answer = match self.ask_one(question, DEADLINE).await {
                    Answer::Said(bytes) => {
                        let bytes: &[u8] = if bytes.is_empty() { b"null" } else { &bytes };
                        serde_json::from_slice(bytes).map_or(Answer::Nothing, Answer::Said)
                    }
                    Answer::NotFound => Answer::NotFound,
                    Answer::Nothing => Answer::Nothing,
                };
                (broker.id, answer)
            }
        });
        join_all(questions).await
    }

    async fn ask_one(&self, question: RequestBuilder, deadline: Duration) -> Answer<Bytes> {
        let exchange = async {
            let Ok(mut response) = question.send().await else {
                return Answer::Nothing;
            };
            if response.status() == reqwest::StatusCode::NOT_FOUND {
                return Answer::NotFound;
            }
            if !response.status().is_success() {
                return Answer::Nothing;
            }
            let mut body = Vec::new();
            loop {
                match response.chunk().await {
                    Ok(Some(chunk)) if body.len() + chunk.len() <= ANSWER_BYTES => {
                        body.extend_from_slice(&chunk);
                    }
                    Ok(None) => return Answer::Said(body.into()),
                    Ok(Some(_)) | Err(_) => return Answer::Nothing,
                }
            }
        };
        tokio::select! {
            answer = exchange => answer,
            () = self.clock.sleep(deadline) => Answer::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(end_offset: i64) -> SalvageItem {
        serde_json::from_value(serde_json::json!({
            "id": "a", "topic": "t", "topic_id": "x", "partition": 0, "unclean_epoch": 5, "first_offset": 10,
            "end_offset": end_offset, "records": end_offset - 10, "bytes": 100, "first_timestamp": 1,
            "last_timestamp": 2, "epochs": [], "complete": true, "reason": "", "created_at": 3
        }))
        .expect("an item")
    }

    #[test]
    fn of_equal_copies_the_longest_is_shown() {
        for (copies, end, brokers, holders) in [
            (vec![(1, 20)], 20, vec![1], vec![1]),
            (vec![(2, 20), (1, 20)], 20, vec![1, 2], vec![2, 1]),
            (vec![(1, 20), (2, 30), (3, 20)], 30, vec![1, 2, 3], vec![2]),
            (
                vec![(1, 30), (2, 20), (3, 30)],
                30,
                vec![1, 2, 3],
                vec![1, 3],
            ),
        ] {
            let mut survey = SalvageSurvey::default();
            for (broker, end) in copies {
                survey.add(BrokerId(broker), item(end));
            }
            let held = &survey.items["a"];
            assert_eq!(held.item.end_offset, end);
            assert_eq!(held.item.brokers, brokers);
            let ids: Vec<i32> = held.holders.iter().map(|holder| holder.0).collect();
            assert_eq!(ids, holders);
        }
    }
}
