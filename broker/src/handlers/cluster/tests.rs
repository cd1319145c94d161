//! Rows: one image, several questions.

use kuorum_metadata::MetadataImage;
use kuorum_metadata::record::{Listener, MetadataRecord, PartitionRecord, RegisterBroker};
use kuorum_protocol::{BrokerId, DirectoryId, IncarnationId, LeaderEpoch, PartitionEpoch, TopicId};
use uuid::Uuid;

fn listener(name: &str, port: u16) -> Listener {
    Listener {
        name: name.to_owned(),
        host: "127.0.0.1".to_owned(),
        port,
        security_protocol: "PLAINTEXT".to_owned(),
    }
}

fn broker(id: i32, fenced: bool, listeners: &[&str]) -> MetadataRecord {
    let port = 9000 + u16::try_from(id).expect("a small id");
    MetadataRecord::RegisterBroker(RegisterBroker {
        broker_id: BrokerId(id),
        incarnation_id: IncarnationId(Uuid::from_u128(1)),
        broker_epoch: None,
        listeners: listeners.iter().map(|name| listener(name, port)).collect(),
        http: "127.0.0.1:0".to_owned(),
        rack: None,
        directories: vec![DirectoryId(Uuid::from_u128(7))],
        fenced,
        in_controlled_shutdown: false,
        version: "test".to_owned(),
        last_report: 0,
    })
}

pub(super) fn topic_id(number: u128) -> TopicId {
    TopicId(Uuid::from_u128(number))
}

fn partition(topic: u128, index: i32, replicas: &[i32], leader: Option<i32>) -> MetadataRecord {
    let brokers: Vec<BrokerId> = replicas.iter().copied().map(BrokerId).collect();
    MetadataRecord::Partition(PartitionRecord {
        leader: leader.map(BrokerId),
        leader_epoch: LeaderEpoch(3),
        partition_epoch: PartitionEpoch(4),
        elr: vec![BrokerId(2)],
        ..PartitionRecord::of(topic_id(topic), index, brokers)
    })
}

fn topic(name: &str, number: u128) -> MetadataRecord {
    MetadataRecord::Topic {
        name: name.to_owned(),
        topic_id: topic_id(number),
    }
}

/// Brokers 1 and 2 in service, 3 fenced, 4 only for brokers. `a` has two partitions, `b` one without a leader, `c` one
/// whose leader clients cannot reach.
pub(super) fn image() -> MetadataImage {
    let mut image = MetadataImage::default();
    let records = [
        broker(1, false, &["CLIENT", "INTERNAL"]),
        broker(2, false, &["CLIENT", "INTERNAL"]),
        broker(3, true, &["CLIENT", "INTERNAL"]),
        broker(4, false, &["INTERNAL"]),
        topic("a", 10),
        partition(10, 0, &[1, 2, 3], Some(1)),
        partition(10, 1, &[2, 1], Some(2)),
        topic("b", 11),
        partition(11, 0, &[3, 1], None),
        topic("c", 12),
        partition(12, 0, &[4, 1], Some(4)),
    ];
    image.apply_records(5, &records);
    image
}

mod of_metadata {
    use std::cell::Cell;
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::time::Duration;

    use kuorum_protocol::BrokerId;
    use kuorum_protocol::error_code::ErrorCode;
    use kuorum_protocol::messages::metadata::{
        MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseTopic,
    };
    use tokio::time::Instant;
    use uuid::Uuid;

    use super::super::metadata::{Cluster, Question, wait_for_word};
    use super::{image, partition, topic_id};
    use crate::cluster::MetadataCache;

    fn ask_without(
        lost: &[BrokerId],
        topics: Option<Vec<MetadataRequestTopic>>,
        version: i16,
    ) -> MetadataResponse {
        let request = MetadataRequest {
            topics,
            ..Default::default()
        };
        let refused = BTreeMap::from([("refused".to_owned(), ErrorCode::InvalidTopicException)]);
        let cluster = Cluster {
            id: "c1",
            listener: "CLIENT",
            draw: 1,
            lost,
            refused: &refused,
        };
        Question::read(&request, version).answer(&image(), &cluster, version)
    }

    fn ask(topics: Option<Vec<MetadataRequestTopic>>, version: i16) -> MetadataResponse {
        ask_without(&[], topics, version)
    }

    fn name(name: &str) -> MetadataRequestTopic {
        MetadataRequestTopic {
            name: Some(name.to_owned()),
            ..Default::default()
        }
    }

    fn id(number: u128) -> MetadataRequestTopic {
        MetadataRequestTopic {
            topic_id: Uuid::from_u128(number),
            name: None,
        }
    }

    fn one(topic: MetadataRequestTopic, version: i16) -> MetadataResponseTopic {
        ask(Some(vec![topic]), version).topics.remove(0)
    }

    #[test]
    fn brokers_are_those_in_service_that_this_listener_reaches() {
        let answer = ask(Some(Vec::new()), 12);
        let ids: Vec<i32> = answer.brokers.iter().map(|broker| broker.node_id).collect();
        assert_eq!(ids, [1, 2]);
        assert!(ids.contains(&answer.controller_id));
        assert_eq!(answer.cluster_id.as_deref(), Some("c1"));
        assert!(answer.topics.is_empty());
    }

    #[test]
    fn a_leader_that_was_just_lost_from_sight_is_not_named_and_still_told_of() {
        let answer = ask_without(&[BrokerId(1)], Some(vec![name("a")]), 12);
        let ids: Vec<i32> = answer.brokers.iter().map(|broker| broker.node_id).collect();
        assert_eq!(ids, [1, 2]);
        let leaders = answer.topics[0].partitions.iter();
        let leaders: Vec<(i32, ErrorCode)> = leaders
            .map(|one| (one.leader_id, ErrorCode::from(one.error_code)))
            .collect();
        let lost = (-1, ErrorCode::LeaderNotAvailable);
        assert_eq!(leaders, [lost, (2, ErrorCode::None)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_about_a_leader_lost_from_sight_waits_for_the_controllers_word() {
        let metadata = Arc::new(MetadataCache::new());
        metadata.publish(Arc::new(image()), 5);
        let asks_for = |names: &[&str]| {
            let topics = names.iter().map(|one| name(one)).collect();
            let request = MetadataRequest {
                topics: Some(topics),
                ..Default::default()
            };
            Question::read(&request, 12)
        };
        let (start, found) = (Instant::now(), Cell::new(false));
        let waited = async |question: &Question| {
            let asked = Instant::now();
            let lost = || match found.get() {
                true => Vec::new(),
                false => vec![(BrokerId(1), start)],
            };
            wait_for_word(&metadata, question, lost).await;
            asked.elapsed().as_millis()
        };
        assert_eq!(waited(&asks_for(&["b", "c"])).await, 0, "it leads neither");

        let elected = async {
            tokio::time::sleep(Duration::from_millis(90)).await;
            let mut image = image();
            image.apply_records(6, &[partition(10, 0, &[1, 2, 3], Some(2))]);
            metadata.publish(Arc::new(image), 6);
        };
        let question = asks_for(&["a"]);
        let (waited_for_word, ()) = tokio::join!(waited(&question), elected);
        assert_eq!(waited_for_word, 90);

        // It is found again.
        metadata.publish(Arc::new(image()), 7);
        let is_found = async {
            tokio::time::sleep(Duration::from_millis(40)).await;
            found.set(true);
        };
        let (waited_for_it, ()) = tokio::join!(waited(&question), is_found);
        assert_eq!(waited_for_it, 50);

        // Nothing is decided: it is not waited for longer than for a death to be noticed, and once.
        found.set(false);
        assert!((260..300).contains(&waited(&question).await));
        assert_eq!(waited(&question).await, 0);
    }

    #[test]
    fn all_topics_are_asked_for_in_two_ways() {
        assert_eq!(ask(None, 1).topics.len(), 3);
        assert_eq!(ask(Some(Vec::new()), 0).topics.len(), 3);
        assert_eq!(ask(Some(Vec::new()), 1).topics.len(), 0);
    }

    #[test]
    fn errors_of_topics() {
        use ErrorCode::{
            InvalidRequest, InvalidTopicException, None, UnknownTopicId, UnknownTopicOrPartition,
        };
        let rows = [
            (name("a"), 12, None, Some("a")),
            (name("nobody"), 12, UnknownTopicOrPartition, Some("nobody")),
            (name("refused"), 12, InvalidTopicException, Some("refused")),
            (name("no/body"), 4, InvalidTopicException, Some("no/body")),
            (id(10), 12, None, Some("a")),
            (id(99), 12, UnknownTopicId, Option::None),
            (id(10), 11, InvalidRequest, Some("")),
        ];
        for (topic, version, error, name) in rows {
            let answer = one(topic.clone(), version);
            assert_eq!(
                ErrorCode::from(answer.error_code),
                error,
                "{topic:?} v{version}"
            );
            assert_eq!(answer.name.as_deref(), name, "{topic:?} v{version}");
        }
        assert_eq!(one(name("a"), 12).topic_id, topic_id(10).0);
    }

    #[test]
    fn errors_of_partitions() {
        use ErrorCode::{LeaderNotAvailable, ListenerNotFound, None};
        let rows = [
            ("a", 12, None, 1, vec![3]),
            ("b", 12, LeaderNotAvailable, -1, vec![3]),
            ("c", 12, ListenerNotFound, -1, vec![]),
            ("c", 5, LeaderNotAvailable, -1, vec![]),
        ];
        for (topic, version, error, leader, offline) in rows {
            let answer = one(name(topic), version);
            let partition = &answer.partitions[0];
            assert_eq!(
                ErrorCode::from(partition.error_code),
                error,
                "{topic} v{version}"
            );
            assert_eq!(partition.leader_id, leader, "{topic}");
            assert_eq!(partition.offline_replicas, offline, "{topic}");
            assert_eq!(partition.replica_nodes, partition.isr_nodes, "{topic}");
            assert_eq!(partition.leader_epoch, 3);
        }
    }
}

mod of_topic_partitions {
    use kuorum_protocol::error_code::ErrorCode;
    use kuorum_protocol::messages::describe_topic_partitions::{
        Cursor, DescribeTopicPartitionsRequest, TopicRequest,
    };

    use super::super::describe_topic_partitions::answer;
    use super::image;

    /// A topic and its partitions on one page.
    type Page = (String, Vec<i32>);

    fn page(
        topics: &[&str],
        limit: i32,
        cursor: Option<(&str, i32)>,
    ) -> (Vec<Page>, Option<(String, i32)>) {
        let request = DescribeTopicPartitionsRequest {
            topics: topics
                .iter()
                .map(|name| TopicRequest {
                    name: (*name).to_owned(),
                })
                .collect(),
            response_partition_limit: limit,
            cursor: cursor.map(|(topic, index)| Cursor {
                topic_name: topic.to_owned(),
                partition_index: index,
            }),
        };
        let answer = answer(&image(), &request, "CLIENT");
        let topics = answer
            .topics
            .into_iter()
            .map(|topic| {
                let partitions = topic
                    .partitions
                    .iter()
                    .map(|partition| partition.partition_index);
                (topic.name.unwrap_or_default(), partitions.collect())
            })
            .collect();
        (
            topics,
            answer
                .next_cursor
                .map(|cursor| (cursor.topic_name, cursor.partition_index)),
        )
    }

    fn rows(rows: &[(&str, &[i32])]) -> Vec<Page> {
        rows.iter()
            .map(|(name, partitions)| ((*name).to_owned(), partitions.to_vec()))
            .collect()
    }

    #[test]
    fn pages_end_where_the_next_begins() {
        let all = rows(&[("a", &[0, 1]), ("b", &[0]), ("c", &[0])]);
        assert_eq!(page(&[], 2000, None), (all, None));
        assert_eq!(
            page(&[], 1, None),
            (rows(&[("a", &[0])]), Some(("a".to_owned(), 1)))
        );
        assert_eq!(
            page(&[], 1, Some(("a", 1))),
            (rows(&[("a", &[1])]), Some(("b".to_owned(), 0)))
        );
        assert_eq!(
            page(&[], 2, Some(("b", 0))),
            (rows(&[("b", &[0]), ("c", &[0])]), None)
        );
        assert_eq!(
            page(&["c", "a"], 2, None),
            (rows(&[("a", &[0, 1])]), Some(("c".to_owned(), 0)))
        );
        assert_eq!(page(&["c"], 2, Some(("d", 0))), (rows(&[]), None));
    }

    #[test]
    fn unknown_topics_are_named_and_eligible_replicas_told() {
        let request = DescribeTopicPartitionsRequest {
            topics: ["nobody", "b"]
                .iter()
                .map(|name| TopicRequest {
                    name: (*name).to_owned(),
                })
                .collect(),
            ..Default::default()
        };
        let answer = answer(&image(), &request, "CLIENT");
        assert_eq!(
            answer.topics[0].partitions[0].eligible_leader_replicas,
            Some(vec![2])
        );
        assert_eq!(
            ErrorCode::from(answer.topics[1].error_code),
            ErrorCode::UnknownTopicOrPartition
        );
    }
}

mod of_brokers {
    use kuorum_protocol::error_code::ErrorCode;
    use kuorum_protocol::messages::describe_cluster::DescribeClusterRequest;

    use super::super::describe_cluster::answer;
    use super::super::view;
    use super::image;

    #[test]
    fn fenced_brokers_are_told_of_when_asked_for() {
        for (include_fenced_brokers, ids) in [(false, vec![1, 2]), (true, vec![1, 2, 3])] {
            let request = DescribeClusterRequest {
                include_fenced_brokers,
                endpoint_type: 1,
                ..Default::default()
            };
            let answer = answer(&image(), &request, "c1", "CLIENT", 0);
            assert_eq!(
                answer
                    .brokers
                    .iter()
                    .map(|broker| broker.broker_id)
                    .collect::<Vec<_>>(),
                ids
            );
            assert_eq!(answer.controller_id, 1);
        }
        let request = DescribeClusterRequest {
            endpoint_type: 2,
            ..Default::default()
        };
        let answer = answer(&image(), &request, "c1", "CLIENT", 0);
        assert_eq!(
            ErrorCode::from(answer.error_code),
            ErrorCode::MismatchedEndpointType
        );
    }

    #[test]
    fn names_of_topics() {
        for name in ["a", "A.b_c-9", &"x".repeat(249)] {
            assert!(view::is_valid_topic_name(name), "{name}");
        }
        for name in ["", ".", "..", "a b", "ä", "a/b", &"x".repeat(250)] {
            assert!(!view::is_valid_topic_name(name), "{name}");
        }
    }
}
