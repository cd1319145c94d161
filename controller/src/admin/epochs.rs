//! `GET /topics/{t}/partitions/{p}/epochs`: who led a partition in which epoch, from where, since when and why.
//! Law: who, when and why come from the history of events; where comes from the present leader's log, and is missing if it
//! does not answer.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use kuorum_admin_api::{Epoch, EpochPage, Page, PageQuery, Problem};
use kuorum_metadata::events::EventKind;
use kuorum_metadata::{Event, PartitionImage};
use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::{BrokerId, PartitionIndex, TopicId};

use super::Admin;
use super::page::{number_key, page};
use super::problem::{Path, Query, Refused};
use super::topics::unknown;
use crate::fleet::EpochReport;

/// A partition's leader epochs, oldest first.
#[utoipa::path(get, operation_id = "listLeaderEpochs", tag = "epochs", path = "/api/v1/topics/{topic}/partitions/{partition}/epochs",
    params(("topic" = String, Path), ("partition" = i32, Path), PageQuery), responses(
    (status = 200, body = EpochPage), (status = 404, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn list(
    State(admin): State<Admin>,
    Path((name, index)): Path<(String, PartitionIndex)>,
    Query(query): Query<PageQuery>,
) -> Result<Json<EpochPage>, Refused> {
    let image = admin.quorum.image();
    let topic = image.topic(&name).ok_or_else(|| unknown(&image, &name))?;
    let path = format!("/api/v1/topics/{name}/partitions/{index}/epochs");
    let partition = topic.partition(index).ok_or_else(|| {
        Refused::kafka(
            ErrorCode::UnknownTopicOrPartition,
            format!("topic {name:?} has no partition {index}"),
        )
        .at(&path)
    })?;
    let leader = partition.leader.and_then(|leader| image.broker(leader));
    let report = match leader {
        Some(leader) => admin.fleet.epochs(leader, &name, index).await,
        None => None,
    };
    let epochs = admin.quorum.published().with_history(|history| {
        let events = history.events().map(AsRef::as_ref);
        epochs(topic.id, index, partition, events, report.as_ref())
    });
    let Page {
        items,
        next_page_token,
    } = page(&query, &path, epochs.into_iter(), |epoch| {
        number_key(epoch.epoch)
    })?;
    Ok(Json(EpochPage {
        items,
        next_page_token,
        unreachable_brokers: match (leader, report) {
            (Some(leader), None) => vec![leader.id.0],
            _ => Vec::new(),
        },
    }))
}

/// An epoch of which nothing is known but that there was one.
fn bare(epoch: i32) -> Epoch {
    Epoch {
        epoch,
        leader: None,
        start_offset: None,
        end_offset: None,
        since_ms: None,
        cause: None,
        unclean: None,
        event_id: None,
    }
}

fn epochs<'a>(
    topic_id: TopicId,
    index: PartitionIndex,
    partition: &PartitionImage,
    events: impl Iterator<Item = &'a Event>,
    report: Option<&EpochReport>,
) -> Vec<Epoch> {
    let mut epochs: BTreeMap<i32, Epoch> = BTreeMap::new();
    let plain = |leader: Option<BrokerId>| leader.map(|leader| leader.0);
    for event in events.filter(|event| event.topic_id == Some(topic_id)) {
        let begins = |epoch: i32| Epoch {
            since_ms: Some(event.at.0),
            cause: Some(event.cause.clone()),
            unclean: Some(false),
            event_id: Some(event.id.0),
            ..bare(epoch)
        };
        match &event.what {
            EventKind::TopicCreated { partitions, .. } if (index as usize) < *partitions => {
                epochs.insert(0, begins(0));
            }
            EventKind::PartitionsAdded {
                partitions,
                previous_partitions,
            } if (*previous_partitions..*partitions).contains(&(index as usize)) => {
                epochs.insert(0, begins(0));
            }
            EventKind::LeaderChanged {
                leader,
                previous_leader,
                leader_epoch,
                previous_leader_epoch,
                unclean,
                ..
            } if event.partition == Some(index) => {
                let before = epochs
                    .entry(previous_leader_epoch.0)
                    .or_insert_with(|| bare(previous_leader_epoch.0));
                before.leader = plain(*previous_leader);
                let epoch = Epoch {
                    leader: plain(*leader),
                    unclean: Some(*unclean),
                    ..begins(leader_epoch.0)
                };
                epochs.insert(leader_epoch.0, epoch);
            }
            _ => {}
        }
    }
    let now = partition.leader_epoch.0;
    epochs.entry(now).or_insert_with(|| bare(now)).leader = plain(partition.leader);
    if let Some(report) = report {
        let ends = report
            .epochs
            .iter()
            .skip(1)
            .map(|next| next.start_offset)
            .chain([report.log_end_offset]);
        for (start, end) in report.epochs.iter().zip(ends) {
            let epoch = epochs
                .entry(start.epoch)
                .or_insert_with(|| bare(start.epoch));
            epoch.start_offset = Some(start.start_offset);
            epoch.end_offset = Some(end);
        }
    }
    epochs.into_values().collect()
}

#[cfg(test)]
mod tests {
    use kuorum_metadata::EventId;
    use kuorum_metadata::record::LeaderRecoveryState;
    use kuorum_protocol::{LeaderEpoch, PartitionEpoch, Timestamp};
    use uuid::Uuid;

    use super::*;
    use crate::fleet::EpochStart;

    fn topic(number: u128) -> TopicId {
        TopicId(Uuid::from_u128(number))
    }

    fn event(id: i64, partition: Option<PartitionIndex>, what: EventKind) -> Event {
        Event {
            id: EventId(id),
            at: Timestamp(1_000 + id),
            topic: Some("a".to_owned()),
            topic_id: Some(topic(1)),
            partition,
            broker: None,
            cause: format!("cause {id}"),
            what,
        }
    }

    fn created(id: i64, partitions: usize) -> Event {
        let what = EventKind::TopicCreated {
            partitions,
            replication_factor: 3,
            configs: BTreeMap::new(),
        };
        event(id, None, what)
    }

    fn led(id: i64, epoch: i32, leader: Option<i32>, previous: Option<i32>) -> Event {
        let what = EventKind::LeaderChanged {
            leader: leader.map(BrokerId),
            previous_leader: previous.map(BrokerId),
            leader_epoch: LeaderEpoch(epoch),
            previous_leader_epoch: LeaderEpoch(epoch - 1),
            partition_epoch: PartitionEpoch(epoch),
            unclean: epoch == 3,
        };
        event(id, Some(0), what)
    }

    fn partition(epoch: i32, leader: Option<i32>) -> PartitionImage {
        PartitionImage {
            replicas: Vec::new(),
            directories: Vec::new(),
            isr: Vec::new(),
            leader: leader.map(BrokerId),
            leader_epoch: LeaderEpoch(epoch),
            partition_epoch: PartitionEpoch(9),
            leader_recovery_state: LeaderRecoveryState::Recovered,
            elr: Vec::new(),
            last_known_elr: Vec::new(),
            last_unclean_epoch: None,
            adding_replicas: Vec::new(),
            removing_replicas: Vec::new(),
            original_replicas: Vec::new(),
        }
    }

    /// `epoch: leader [start,end) since cause`, a `!` for unclean.
    fn line(epoch: &Epoch) -> String {
        let shown = |number: Option<i64>| number.map_or("-".to_owned(), |n| n.to_string());
        format!(
            "{}: {} [{},{}) {}{}",
            epoch.epoch,
            shown(epoch.leader.map(i64::from)),
            shown(epoch.start_offset),
            shown(epoch.end_offset),
            shown(epoch.since_ms),
            if epoch.unclean == Some(true) { "!" } else { "" },
        )
    }

    fn report(end: i64, epochs: &[(i32, i64)]) -> EpochReport {
        EpochReport {
            leader_epoch: 0,
            log_end_offset: end,
            epochs: epochs
                .iter()
                .map(|(epoch, start_offset)| EpochStart {
                    epoch: *epoch,
                    start_offset: *start_offset,
                })
                .collect(),
        }
    }

    /// What it is, the events at hand, the partition now, what the leader says, and what is told.
    type Row<'a> = (
        &'a str,
        &'a [Event],
        PartitionImage,
        Option<EpochReport>,
        &'a [&'a str],
    );

    #[test]
    fn rows() {
        let story = [
            created(1, 1),
            led(2, 1, Some(2), Some(1)),
            led(3, 2, None, Some(2)),
            led(4, 3, Some(3), None),
        ];
        let rows: [Row<'_>; 5] = [
            (
                "nothing but its creation",
                &story[..1],
                partition(0, Some(1)),
                Some(report(7, &[(0, 0)])),
                &["0: 1 [0,7) 1001"],
            ),
            (
                "all of the story",
                &story,
                partition(3, Some(3)),
                Some(report(120, &[(0, 0), (1, 100), (3, 110)])),
                &[
                    "0: 1 [0,100) 1001",
                    "1: 2 [100,110) 1002",
                    "2: - [-,-) 1003",
                    "3: 3 [110,120) 1004!",
                ],
            ),
            (
                "no leader to ask",
                &story[..3],
                partition(2, None),
                None,
                &["0: 1 [-,-) 1001", "1: 2 [-,-) 1002", "2: - [-,-) 1003"],
            ),
            (
                "the beginning is no longer kept",
                &story[3..],
                partition(3, Some(3)),
                Some(report(120, &[(0, 0), (1, 100), (3, 110)])),
                &[
                    "0: - [0,100) -",
                    "1: - [100,110) -",
                    "2: - [-,-) -",
                    "3: 3 [110,120) 1004!",
                ],
            ),
            (
                "nothing is kept",
                &[],
                partition(3, Some(3)),
                None,
                &["3: 3 [-,-) -"],
            ),
        ];
        for (what, events, partition, report, expected) in rows {
            let found = epochs(topic(1), 0, &partition, events.iter(), report.as_ref());
            let lines: Vec<String> = found.iter().map(line).collect();
            assert_eq!(lines, expected, "{what}");
        }
        // Another topic's events, and a topic that was smaller when it was created.
        let found = epochs(topic(2), 0, &partition(0, Some(1)), story.iter(), None);
        assert_eq!(found.len(), 1);
        let found = epochs(topic(1), 1, &partition(0, Some(1)), story.iter(), None);
        assert_eq!((found.len(), found[0].since_ms), (1, None));
    }
}
