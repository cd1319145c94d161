//! What controllers do not know themselves, asked of the brokers that do.
//! Law: one request a broker, one second; what is missing is missing, and the answer says which broker did not answer.

mod salvage;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use kuorum_metadata::{BrokerImage, MetadataImage};
use kuorum_protocol::{BrokerId, Monotonic, PartitionIndex, TopicId};
use kuorum_transport::Clock;
use parking_lot::Mutex;
use serde::Deserialize;
use serde::de::DeserializeOwned;

pub use salvage::{Held, ProducerReport, SalvageSurvey};

/// How long a broker has to answer.
const DEADLINE: Duration = Duration::from_secs(1);
/// The largest answer taken.
const ANSWER_BYTES: usize = 8 * 1024 * 1024;
/// How many partitions' last known values are remembered, for when nobody leads them.
const REMEMBERED: usize = 20_000;

/// What a broker serves at `GET /internal/v1/partitions?topic=`, an array of these.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct PartitionReport {
    pub topic: String,
    pub partition: PartitionIndex,
    pub leader_epoch: i32,
    /// Where the log ended when its leader took over.
    #[serde(default)]
    pub leader_epoch_start_offset: Option<i64>,
    #[serde(default)]
    pub log_start_offset: Option<i64>,
    #[serde(default)]
    pub high_watermark: Option<i64>,
    #[serde(default)]
    pub last_stable_offset: Option<i64>,
    #[serde(default)]
    pub log_end_offset: Option<i64>,
    /// Bytes of the leader's log.
    #[serde(default)]
    pub size_bytes: Option<u64>,
    #[serde(default)]
    pub replicas: Vec<ReplicaReport>,
}

/// A follower as its leader sees it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ReplicaReport {
    pub broker: i32,
    #[serde(default)]
    pub leo: Option<i64>,
    /// About how many bytes of the leader's log it lacks.
    #[serde(default)]
    pub bytes_behind: Option<u64>,
    #[serde(default)]
    pub last_fetch_ms_ago: Option<u64>,
    #[serde(default)]
    pub caught_up_ms_ago: Option<u64>,
}

/// What a partition's leader serves at `GET /internal/v1/epochs?topic=&partition=`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct EpochReport {
    pub leader_epoch: i32,
    pub log_end_offset: i64,
    /// The epochs that have records in the leader's log, oldest first.
    pub epochs: Vec<EpochStart>,
}

/// Where an epoch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct EpochStart {
    pub epoch: i32,
    pub start_offset: i64,
}

/// What was learned.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// By partition; with how long ago it was said where it had to be remembered, because nobody leads the partition.
    pub reports: BTreeMap<PartitionIndex, (PartitionReport, Option<Duration>)>,
    /// Who was asked and did not answer.
    pub unreachable: BTreeSet<BrokerId>,
}

type Remembered = HashMap<(TopicId, PartitionIndex), Known>;

/// What a leader last said of its partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    pub report: PartitionReport,
    /// When it said so.
    pub at: Monotonic,
}

/// Asks the brokers. Clones share what is remembered.
#[derive(Clone, Debug)]
pub struct Fleet {
    client: reqwest::Client,
    clock: Clock,
    remembered: Arc<Mutex<Remembered>>,
}

impl Fleet {
    /// Has asked nobody yet.
    pub fn new(client: reqwest::Client, clock: Clock) -> Self {
        Self {
            client,
            clock,
            remembered: Arc::default(),
        }
    }

    /// Asks the leaders of some partitions of one topic about them.
    pub async fn survey(
        &self,
        image: &MetadataImage,
        topic_id: TopicId,
        partitions: &[PartitionIndex],
    ) -> Survey {
        let mut survey = Survey::default();
        let Some(topic) = image.topic_by_id(topic_id) else {
            return survey;
        };
        let mut led: BTreeMap<BrokerId, BTreeSet<PartitionIndex>> = BTreeMap::new();
        for index in partitions {
            if let Some(leader) = topic
                .partition(*index)
                .and_then(|partition| partition.leader)
            {
                led.entry(leader).or_default().insert(*index);
            }
        }
        let questions = led.into_iter().map(|(broker, indexes)| async move {
            let answer = match image.broker(broker) {
                Some(image) => self.ask(&image.http, Some(&topic.name)).await,
                None => None,
            };
            (broker, indexes, answer)
        });
        for (broker, indexes, answer) in join_all(questions).await {
            let Some(answer) = answer else {
                survey.unreachable.insert(broker);
                continue;
            };
            for report in answer
                .into_iter()
                .filter(|report| indexes.contains(&report.partition))
            {
                survey.reports.insert(report.partition, (report, None));
            }
        }
        self.remember(topic_id, partitions, image, &mut survey);
        survey
    }

    /// Keeps what was learned, and fills in what was learned before where nobody leads.
    fn remember(
        &self,
        topic_id: TopicId,
        partitions: &[PartitionIndex],
        image: &MetadataImage,
        survey: &mut Survey,
    ) {
        let at = self.clock.now().monotonic;
        let mut remembered = self.remembered.lock();
        if remembered.len() > REMEMBERED {
            remembered.retain(|(topic_id, _), _| image.topic_by_id(*topic_id).is_some());
        }
        for index in partitions {
            match survey.reports.get(index) {
                Some((report, _)) if remembered.len() <= REMEMBERED => {
                    let report = report.clone();
                    remembered.insert((topic_id, *index), Known { report, at });
                }
                Some(_) => {}
                None => {
                    let leaderless = image
                        .partition(topic_id, *index)
                        .is_some_and(|p| p.leader.is_none());
                    if leaderless && let Some(last) = remembered.get(&(topic_id, *index)) {
                        let age = at.since(last.at);
                        let remembered = (last.report.clone(), Some(age));
                        survey.reports.insert(*index, remembered);
                    }
                }
            }
        }
    }

    /// Asks a partition's leader at which offsets the leader epochs begin.
    pub async fn epochs(
        &self,
        leader: &BrokerImage,
        topic: &str,
        partition: PartitionIndex,
    ) -> Option<EpochReport> {
        let http = &leader.http;
        self.get(format!(
            "http://{http}/internal/v1/epochs?topic={topic}&partition={partition}"
        ))
        .await
    }

    /// What the last leader of a partition last said, if anybody asked.
    pub fn last_known(&self, topic_id: TopicId, index: PartitionIndex) -> Option<Known> {
        self.remembered.lock().get(&(topic_id, index)).cloned()
    }

    /// Asks every broker in service about all that it leads, for the day when nobody leads it.
    pub async fn look_around(&self, image: &MetadataImage) {
        let brokers = image.brokers().filter(|broker| !broker.fenced);
        let questions = brokers.map(|broker| self.ask(&broker.http, None));
        let answers = join_all(questions).await;
        let at = self.clock.now().monotonic;
        let mut remembered = self.remembered.lock();
        remembered.retain(|(topic_id, index), _| image.partition(*topic_id, *index).is_some());
        for report in answers.into_iter().flatten().flatten() {
            let Some(topic) = image.topic(&report.topic) else {
                continue;
            };
            let key = (topic.id, report.partition);
            let older = remembered
                .get(&key)
                .is_some_and(|known| known.report.leader_epoch > report.leader_epoch);
            if !older && (remembered.len() < REMEMBERED || remembered.contains_key(&key)) {
                remembered.insert(key, Known { report, at });
            }
        }
    }

    /// Of one topic, or of all that it leads.
    async fn ask(&self, http: &str, topic: Option<&str>) -> Option<Vec<PartitionReport>> {
        self.get(match topic {
            // A topic's name needs no escaping: letters, digits, dot, dash and underscore.
            Some(topic) => format!("http://{http}/internal/v1/partitions?topic={topic}"),
            None => format!("http://{http}/internal/v1/partitions"),
        })
        .await
    }

    async fn get<T: DeserializeOwned>(&self, url: String) -> Option<T> {
        let question = async {
            let mut response = self
                .client
                .get(url)
                .send()
                .await
                .ok()?
                .error_for_status()
                .ok()?;
            let mut body = Vec::new();
            while let Some(chunk) = response.chunk().await.ok()? {
                if body.len() + chunk.len() > ANSWER_BYTES {
                    return None;
                }
                body.extend_from_slice(&chunk);
            }
            serde_json::from_slice(&body).ok()
        };
        tokio::select! {
            answer = question => answer,
            () = self.clock.sleep(DEADLINE) => None,
        }
    }
}
