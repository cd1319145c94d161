//! What the active controller counts while it decides: elections of leaders, and how long decisions take.
//! Law: counting costs a few atomic additions for each entry; only what has been applied counts. Other controllers count
//! nothing, so that a sum over the controllers counts everything once.

use std::time::Duration;

use kuorum_metadata::{MetadataImage, MetadataRecord};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// The numbers. Clones are the same numbers.
#[derive(Clone, Debug)]
pub struct OfficeMetrics {
    elections: Counter,
    elr_elections: Counter,
    unclean_elections: Counter,
    election_seconds: Histogram,
    commit_seconds: Histogram,
}

/// The elections of leaders in one entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Elections {
    leaders: u64,
    /// Of them: from the ELR (KIP-966).
    eligible: u64,
    /// Of them: of a replica that was not known to have everything.
    unclean: u64,
}

impl Elections {
    /// Counts `record` if it elects somebody, judged by the state before it.
    pub(crate) fn count(&mut self, before: &MetadataImage, record: &MetadataRecord) {
        let MetadataRecord::PartitionChange(change) = record else {
            return;
        };
        let Some(Some(leader)) = change.leader else {
            return;
        };
        let Some(partition) = before.partition(change.topic_id, change.partition) else {
            return;
        };
        if partition.leader == Some(leader) {
            return;
        }
        self.leaders += 1;
        if change.last_unclean_epoch.is_some() {
            self.unclean += 1;
        } else if !partition.isr.contains(&leader) && partition.elr.contains(&leader) {
            self.eligible += 1;
        }
    }
}

impl Default for OfficeMetrics {
    fn default() -> Self {
        // 100 µs to 53 s.
        let times = || Histogram::new(exponential_buckets(0.0001, 3.0, 13));
        Self {
            elections: Counter::default(),
            elr_elections: Counter::default(),
            unclean_elections: Counter::default(),
            election_seconds: times(),
            commit_seconds: times(),
        }
    }
}

impl OfficeMetrics {
    /// An entry with these elections has been applied, so long after the first decision in it.
    pub(crate) fn applied(&self, elections: Elections, after: Duration) {
        let seconds = after.as_secs_f64();
        self.commit_seconds.observe(seconds);
        if elections.leaders > 0 {
            self.election_seconds.observe(seconds);
        }
        self.elections.inc_by(elections.leaders);
        self.elr_elections.inc_by(elections.eligible);
        self.unclean_elections.inc_by(elections.unclean);
    }

    /// Shows them in `registry`.
    pub fn register(&self, registry: &mut Registry) {
        const STATS: &str = "kafka_controller_controllerstats";
        let counters = [
            (
                "leaderelections",
                "Leaders elected by this controller",
                &self.elections,
            ),
            (
                "electionfromeligibleleaderreplicas",
                "Of them from the eligible leader replicas",
                &self.elr_elections,
            ),
            (
                "uncleanleaderelections",
                "Of them that may lack acknowledged records",
                &self.unclean_elections,
            ),
        ];
        for (name, help, counter) in counters {
            registry.register(format!("{STATS}_{name}"), help, counter.clone());
        }
        registry.register(
            format!("{STATS}_leaderelectiontime_seconds"),
            "From the decision that elects leaders until a majority has it and it is applied here",
            self.election_seconds.clone(),
        );
        registry.register(
            "kafka_server_raftmetrics_commit_latency_seconds",
            "From any decision until a majority has it and it is applied here",
            self.commit_seconds.clone(),
        );
    }
}

#[cfg(test)]
mod tests {
    use kuorum_metadata::record::{PartitionChange, PartitionRecord};
    use kuorum_protocol::{BrokerId, LeaderEpoch, PartitionEpoch, TopicId};
    use uuid::Uuid;

    use super::*;

    #[test]
    fn which_elections_count_as_what() {
        let topic_id = TopicId(Uuid::from_u128(7));
        let ids = |ids: &[i32]| ids.iter().copied().map(BrokerId).collect::<Vec<_>>();
        let before = MetadataImage::from_records(
            0,
            &[
                MetadataRecord::Topic {
                    name: "t".to_owned(),
                    topic_id,
                },
                MetadataRecord::Partition(PartitionRecord {
                    isr: ids(&[1, 2]),
                    elr: ids(&[3]),
                    leader: Some(BrokerId(1)),
                    ..PartitionRecord::of(topic_id, 0, ids(&[1, 2, 3, 4]))
                }),
            ],
        );
        /// Who is made leader, in which unclean epoch; then what is counted.
        type Row = (Option<Option<i32>>, Option<i32>, [u64; 3]);
        let rows: [Row; 6] = [
            (None, None, [0, 0, 0]),
            (Some(None), None, [0, 0, 0]),
            (Some(Some(1)), None, [0, 0, 0]),
            (Some(Some(2)), None, [1, 0, 0]),
            (Some(Some(3)), None, [1, 1, 0]),
            (Some(Some(4)), Some(5), [1, 0, 1]),
        ];
        for (leader, unclean, [leaders, eligible, unclean_elections]) in rows {
            let mut elections = Elections::default();
            let change = PartitionChange {
                leader: leader.map(|leader| leader.map(BrokerId)),
                last_unclean_epoch: unclean.map(LeaderEpoch),
                ..PartitionChange::of(topic_id, 0, PartitionEpoch(1), "")
            };
            elections.count(&before, &MetadataRecord::PartitionChange(change));
            let expected = Elections {
                leaders,
                eligible,
                unclean: unclean_elections,
            };
            assert_eq!(
                elections, expected,
                "leader {leader:?}, unclean {unclean:?}"
            );
        }
    }
}
