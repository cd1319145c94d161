//! Metadata: which topics there are, who leads their partitions, and how to reach the brokers (API 3).
//! Law: one answer shows one image, through the listener the question came in by.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kuorum_metadata::image::{MetadataImage, TopicImage};
use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::messages::metadata::{
    MetadataRequest, MetadataResponse, MetadataResponseBroker, MetadataResponsePartition,
    MetadataResponseTopic,
};
use kuorum_protocol::{BrokerId, TopicId};
use tokio::time::Instant;

use super::view;
use crate::cluster::MetadataCache;
use crate::context::Context;
use crate::dispatch::Answer;
use crate::handlers::forward;

/// How long a request that makes topics waits for them before it answers with a retriable error.
const CREATION_PATIENCE: Duration = Duration::from_millis(1500);

/// How long, from the moment when a leader is lost from sight, a question about it waits for the controllers' word: the default of
/// `broker.disconnect.grace.ms`, and an election. A client that is told that nobody leads may rest for most of a second.
const WORD_PATIENCE: Duration = Duration::from_millis(400);
/// How soon it is noticed that such a leader was found again.
const LOOK_AGAIN: Duration = Duration::from_millis(25);

/// Answers from the newest image; topics that do not exist are made if both the request and the broker allow it.
pub async fn metadata(
    cx: &Context,
    request: MetadataRequest,
    version: i16,
) -> Answer<MetadataResponse> {
    let question = Question::read(&request, version);
    let image = cx.metadata.image();
    let mut refused = BTreeMap::new();
    if question.may_create && cx.config.auto_create_topics_enable {
        let missing: Vec<String> = question
            .names()
            .filter(|name| image.topic(name).is_none() && view::is_valid_topic_name(name))
            .map(str::to_owned)
            .collect();
        if !missing.is_empty() {
            refused = forward::create_missing_topics(cx, missing, CREATION_PATIENCE).await;
        }
    }
    if question
        .doubted(&cx.metadata.image(), &cx.replicas.just_lost())
        .is_none()
    {
        return Answer::Now(answer(cx, &question, &refused, version));
    }
    let cx = cx.clone();
    Answer::Later(Box::pin(async move {
        wait_for_word(&cx.metadata, &question, || cx.replicas.just_lost()).await;
        answer(&cx, &question, &refused, version)
    }))
}

fn answer(
    cx: &Context,
    question: &Question,
    refused: &BTreeMap<String, ErrorCode>,
    version: i16,
) -> MetadataResponse {
    let lost = cx.replicas.just_lost();
    let lost: Vec<BrokerId> = lost.into_iter().map(|(leader, _)| leader).collect();
    let cluster = Cluster {
        lost: &lost,
        id: &cx.config.cluster_id,
        listener: &cx.listener,
        draw: cx.clock.random(),
        refused,
    };
    question.answer(&cx.metadata.image(), &cluster, version)
}

/// Waits until others lead what is asked, its leaders are found again, or the controllers have had their time.
pub(super) async fn wait_for_word(
    metadata: &MetadataCache,
    question: &Question,
    lost: impl Fn() -> Vec<(BrokerId, Instant)>,
) {
    while let Some(leader) = question.doubted(&metadata.image(), &lost()) {
        let word = |image: &MetadataImage| !question.is_led_by(image, leader);
        metadata.wait_until(word, LOOK_AGAIN).await;
    }
}

/// What a request asks, whatever its version.
#[derive(Debug)]
pub(super) struct Question {
    wanted: Wanted,
    may_create: bool,
    topic_operations: bool,
    cluster_operations: bool,
}

#[derive(Debug)]
enum Wanted {
    Everything,
    These(Vec<Subject>),
}

#[derive(Debug)]
enum Subject {
    Name(String),
    Id(TopicId),
    /// What this version cannot ask.
    Nonsense {
        name: Option<String>,
        id: TopicId,
    },
}

impl Subject {
    fn find<'a>(&self, image: &'a MetadataImage) -> Option<&'a Arc<TopicImage>> {
        match self {
            Self::Name(name) => image.topic(name),
            Self::Id(id) => image.topic_by_id(*id),
            Self::Nonsense { .. } => None,
        }
    }
}

/// What of the answer does not come from the image.
#[derive(Debug)]
pub(super) struct Cluster<'a> {
    pub(super) id: &'a str,
    pub(super) listener: &'a str,
    pub(super) draw: u64,
    /// Leaders that are not named: this broker has just lost sight of them.
    pub(super) lost: &'a [BrokerId],
    /// Topics that could not be made, and why.
    pub(super) refused: &'a BTreeMap<String, ErrorCode>,
}

impl Question {
    pub(super) fn read(request: &MetadataRequest, version: i16) -> Self {
        let wanted = match &request.topics {
            None => Wanted::Everything,
            Some(topics) if topics.is_empty() && version == 0 => Wanted::Everything,
            Some(topics) => Wanted::These(
                topics
                    .iter()
                    .map(|topic| {
                        let id = TopicId(topic.topic_id);
                        match &topic.name {
                            Some(name) if id.is_zero() => Subject::Name(name.clone()),
                            None if !id.is_zero() && version >= 12 => Subject::Id(id),
                            name if version >= 12 && !id.is_zero() && name.is_some() => {
                                Subject::Id(id)
                            }
                            name => Subject::Nonsense {
                                name: name.clone(),
                                id,
                            },
                        }
                    })
                    .collect(),
            ),
        };
        Self {
            wanted,
            may_create: version < 4 || request.allow_auto_topic_creation,
            topic_operations: request.include_topic_authorized_operations,
            cluster_operations: request.include_cluster_authorized_operations,
        }
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        let subjects = match &self.wanted {
            Wanted::Everything => &[][..],
            Wanted::These(subjects) => subjects,
        };
        subjects.iter().filter_map(|subject| match subject {
            Subject::Name(name) => Some(name.as_str()),
            Subject::Id(_) | Subject::Nonsense { .. } => None,
        })
    }

    /// A leader of what is asked that was lost so short a time ago that the controllers may still have their word.
    fn doubted(&self, image: &MetadataImage, lost: &[(BrokerId, Instant)]) -> Option<BrokerId> {
        lost.iter()
            .filter(|(_, since)| since.elapsed() < WORD_PATIENCE)
            .map(|(leader, _)| *leader)
            .find(|leader| self.is_led_by(image, *leader))
    }

    /// Whether this broker leads any of what is asked.
    fn is_led_by(&self, image: &MetadataImage, broker: BrokerId) -> bool {
        let leads = |topic: &Arc<TopicImage>| {
            let mut partitions = topic.partitions.values();
            partitions.any(|partition| partition.leader == Some(broker))
        };
        match &self.wanted {
            Wanted::Everything => image.topics().any(leads),
            Wanted::These(subjects) => subjects
                .iter()
                .filter_map(|subject| subject.find(image))
                .any(leads),
        }
    }

    pub(super) fn answer(
        &self,
        image: &MetadataImage,
        cluster: &Cluster<'_>,
        version: i16,
    ) -> MetadataResponse {
        let nodes = view::nodes_in_service(image, cluster.listener);
        let topics = match &self.wanted {
            Wanted::Everything => image
                .topics()
                .map(|topic| self.topic(image, topic, cluster, version))
                .collect(),
            Wanted::These(subjects) => subjects
                .iter()
                .map(|subject| self.subject(image, subject, cluster, version))
                .collect(),
        };
        MetadataResponse {
            controller_id: view::controller_id(&nodes, cluster.draw),
            cluster_id: Some(cluster.id.to_owned()),
            brokers: nodes
                .into_iter()
                .map(|node| MetadataResponseBroker {
                    node_id: node.id,
                    host: node.host,
                    port: node.port,
                    rack: node.rack,
                })
                .collect(),
            topics,
            cluster_authorized_operations: if self.cluster_operations {
                view::CLUSTER_OPERATIONS
            } else {
                view::OPERATIONS_NOT_ASKED
            },
            ..Default::default()
        }
    }

    fn subject(
        &self,
        image: &MetadataImage,
        subject: &Subject,
        cluster: &Cluster<'_>,
        version: i16,
    ) -> MetadataResponseTopic {
        if let Some(topic) = subject.find(image) {
            return self.topic(image, topic, cluster, version);
        }
        let (error, name, id) = match subject {
            Subject::Name(name) => (missing(name, cluster), Some(name.clone()), TopicId::ZERO),
            Subject::Id(id) => (ErrorCode::UnknownTopicId, None, *id),
            Subject::Nonsense { name, id } => (ErrorCode::InvalidRequest, name.clone(), *id),
        };
        MetadataResponseTopic {
            error_code: error.code(),
            // Only the newest versions can say that there is no name.
            name: if version < 12 {
                Some(name.unwrap_or_default())
            } else {
                name
            },
            topic_id: id.0,
            topic_authorized_operations: view::OPERATIONS_NOT_ASKED,
            ..Default::default()
        }
    }

    fn topic(
        &self,
        image: &MetadataImage,
        topic: &TopicImage,
        cluster: &Cluster<'_>,
        version: i16,
    ) -> MetadataResponseTopic {
        let partitions = topic.partitions.iter().map(|(index, partition)| {
            let mut seen = view::partition(image, partition, cluster.listener);
            if cluster.lost.contains(&BrokerId(seen.leader)) {
                seen.error = ErrorCode::LeaderNotAvailable;
                seen.leader = BrokerId::NONE.0;
            }
            let error = match seen.error {
                // Older clients do not know the code.
                ErrorCode::ListenerNotFound if version < 6 => ErrorCode::LeaderNotAvailable,
                error => error,
            };
            MetadataResponsePartition {
                error_code: error.code(),
                partition_index: *index,
                leader_id: seen.leader,
                leader_epoch: seen.leader_epoch,
                replica_nodes: seen.replicas,
                isr_nodes: seen.isr,
                offline_replicas: seen.offline,
            }
        });
        MetadataResponseTopic {
            error_code: ErrorCode::None.code(),
            name: Some(topic.name.clone()),
            topic_id: topic.id.0,
            is_internal: view::is_internal(&topic.name),
            partitions: partitions.collect(),
            topic_authorized_operations: if self.topic_operations {
                view::TOPIC_OPERATIONS
            } else {
                view::OPERATIONS_NOT_ASKED
            },
        }
    }
}

/// Why a topic that was asked for by name is not there. While one is being made the answer is retriable.
fn missing(name: &str, cluster: &Cluster<'_>) -> ErrorCode {
    if !view::is_valid_topic_name(name) {
        return ErrorCode::InvalidTopicException;
    }
    cluster
        .refused
        .get(name)
        .copied()
        .unwrap_or(ErrorCode::UnknownTopicOrPartition)
}
