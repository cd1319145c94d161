//! `/metrics/partitions`: the numbers that each partition has, under the names of Kafka's beans and of kafka_exporter.
//! Law: made at each scrape and not kept. One set of series for each replica here; what is true of a partition, not of a
//! replica, only its leader says, so that a sum over the brokers counts it once.

use std::collections::HashMap;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::Standing;
use crate::context::Rooms;

/// Topic and partition.
type OfPartition = [(&'static str, String); 2];
/// A topic.
type OfTopic = [(&'static str, String); 1];

/// Families of gauges, registered on first use.
#[derive(Default)]
struct Page {
    registry: Registry,
    of_partitions: HashMap<&'static str, Family<OfPartition, Gauge>>,
}

impl Page {
    fn set(&mut self, labels: &OfPartition, name: &'static str, help: &str, value: i64) {
        let Self {
            registry,
            of_partitions,
        } = self;
        let family = of_partitions.entry(name).or_insert_with(|| {
            let family = Family::default();
            registry.register(name, help, Family::clone(&family));
            family
        });
        family.get_or_create(labels).set(value);
    }
}

/// The page, of one topic's replicas here or of all.
pub fn scrape(rooms: &Rooms, topic: Option<&str>) -> String {
    let image = rooms.metadata.image();
    let me = rooms.membership.id;
    let mut page = Page::default();
    let partitions_of = Family::<OfTopic, Gauge>::default();
    page.registry.register(
        "kafka_topic_partitions",
        "Partitions of the topic; the leader of the first says it",
        partitions_of.clone(),
    );
    for hosted in rooms.replicas.all() {
        if topic.is_some_and(|topic| topic != &*hosted.topic) {
            continue;
        }
        let figures = hosted.figures();
        let labels = [
            ("topic", hosted.topic.to_string()),
            ("partition", hosted.index.to_string()),
        ];
        let size = figures.size_bytes.cast_signed();
        page.set(&labels, "kafka_log_log_size", "Bytes of the log here", size);
        let Some(of_topic) = image.topic_by_id(hosted.topic_id) else {
            continue;
        };
        let Some(partition) = of_topic.partition(hosted.index) else {
            continue;
        };
        if partition.leader != Some(me) {
            continue;
        }
        if hosted.index == 0 {
            partitions_of
                .get_or_create(&[("topic", hosted.topic.to_string())])
                .set(of_topic.partitions.len() as i64);
        }
        let standing = Standing::of(partition, image.min_insync_replicas(&of_topic.name));
        let rows = [
            (
                "kafka_topic_partition_current_offset",
                "Where consumers may read up to",
                figures.high_watermark.0,
            ),
            (
                "kafka_topic_partition_oldest_offset",
                "Where the log begins",
                figures.log_start.0,
            ),
            (
                "kafka_topic_partition_leader",
                "The broker that leads",
                i64::from(me.0),
            ),
            (
                "kafka_topic_partition_leader_is_preferred",
                "1 while the first replica leads",
                i64::from(partition.preferred_leader() == Some(me)),
            ),
            (
                "kafka_topic_partition_replicas",
                "Replicas",
                partition.replicas.len() as i64,
            ),
            (
                "kafka_topic_partition_in_sync_replica",
                "Replicas in sync",
                partition.isr.len() as i64,
            ),
            (
                "kafka_topic_partition_under_replicated_partition",
                "1 while not all replicas are in sync",
                i64::from(standing.under_replicated),
            ),
            (
                "kafka_cluster_partition_underreplicated",
                "1 while not all replicas are in sync",
                i64::from(standing.under_replicated),
            ),
            (
                "kafka_cluster_partition_underminisr",
                "1 while fewer are in sync than acks=all needs",
                i64::from(standing.under_min_isr),
            ),
            (
                "kafka_cluster_partition_atminisr",
                "1 while exactly as many are in sync as acks=all needs",
                i64::from(standing.at_min_isr),
            ),
        ];
        for (name, help, value) in rows {
            page.set(&labels, name, help, value);
        }
    }
    let mut text = String::with_capacity(8 * 1024);
    // Writing to a string does not fail.
    let _ = encode(&mut text, &page.registry);
    text
}
