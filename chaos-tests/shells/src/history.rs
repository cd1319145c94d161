//! What was told, what was applied, and whether the two agree.
//! Law: an entry that was applied anywhere is the same everywhere and for ever; what was acknowledged is in the log, once, in
//! the order of the acknowledgements; under one controller epoch one controller is in office.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kuorum_controller::quorum::ControllerId;
use kuorum_metadata::{MetadataImage, MetadataRecord};
use kuorum_protocol::{ControllerEpoch, ProducerId, TopicId};

/// What a client was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// The topic was created, with this id.
    Created(String, TopicId),
    /// The topic exists, after an attempt to create it had no answer.
    Exists(String),
    /// The topic was not created, whatever was tried.
    Refused(String),
    /// Nobody said what became of the topic.
    Unknown(String),
    /// These producer ids belong to the client.
    Block(ProducerId, i32),
}

/// An answer, and between which moments what it speaks of happened.
#[derive(Clone, Debug)]
struct Answer {
    told: Told,
    asked: Duration,
    answered: Duration,
}

/// What happened in a run, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Proposals that were acknowledged.
    pub acknowledged: u64,
    /// Proposals whose outcome nobody knows.
    pub unknown: u64,
    /// Entries of the log.
    pub entries: u64,
    /// Offices taken.
    pub offices: u64,
    /// Processes that were ended, with or without losing what was not synced.
    pub crashes: u64,
    /// Links cut or held.
    pub cuts: u64,
    /// Images taken from a snapshot, by a controller or a follower.
    pub snapshots: u64,
    /// Records that were acknowledged to a producer.
    pub records: u64,
    /// Records of which nobody knows.
    pub lost_sight_of: u64,
    /// Leader epochs that began.
    pub elections: u64,
}

impl Tally {
    /// Adds up.
    pub fn add(&mut self, other: &Self) {
        self.acknowledged += other.acknowledged;
        self.unknown += other.unknown;
        self.entries += other.entries;
        self.offices += other.offices;
        self.crashes += other.crashes;
        self.cuts += other.cuts;
        self.snapshots += other.snapshots;
        self.records += other.records;
        self.lost_sight_of += other.lost_sight_of;
        self.elections += other.elections;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} acknowledged, {} unknown, {} entries, {} offices, {} crashes, {} cuts, {} images from snapshots",
            self.acknowledged,
            self.unknown,
            self.entries,
            self.offices,
            self.crashes,
            self.cuts,
            self.snapshots
        )?;
        if self.elections > 0 {
            write!(
                f,
                ", {} records acknowledged, {} unknown, {} leader epochs",
                self.records, self.lost_sight_of, self.elections
            )?;
        }
        Ok(())
    }
}

/// Everything that is known of a run.
#[derive(Debug, Default)]
pub(crate) struct History {
    log: BTreeMap<i64, Arc<[MetadataRecord]>>,
    offices: BTreeMap<ControllerEpoch, ControllerId>,
    told: Vec<Answer>,
    pub(crate) tally: Tally,
    /// The first thing that may not be.
    pub(crate) violation: Option<String>,
}

impl History {
    pub(crate) fn violated(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    /// Somebody has applied an entry, or was given one to apply.
    pub(crate) fn applied(&mut self, who: &str, offset: i64, records: Arc<[MetadataRecord]>) {
        match self.log.get(&offset) {
            None => {
                self.tally.entries += 1;
                self.log.insert(offset, records);
            }
            Some(known) if *known == records => {}
            Some(known) => {
                let what = format!(
                    "committed-is-final: {who} has applied {records:?} at {offset}, where {known:?} had been applied"
                );
                self.violated(what);
            }
        }
    }

    pub(crate) fn in_office(&mut self, id: ControllerId, epoch: ControllerEpoch) {
        self.tally.offices += 1;
        let first = *self.offices.entry(epoch).or_insert(id);
        if first != id {
            self.violated(format!(
                "one-controller-an-epoch: controllers {first} and {id} were both in office under epoch {epoch}"
            ));
        }
    }

    pub(crate) fn told(&mut self, told: Told, asked: Duration, answered: Duration) {
        match &told {
            Told::Unknown(_) => self.tally.unknown += 1,
            Told::Refused(_) => {}
            Told::Created(..) | Told::Exists(_) | Told::Block(..) => self.tally.acknowledged += 1,
        }
        self.told.push(Answer {
            told,
            asked,
            answered,
        });
    }

    /// The image that the log builds.
    pub(crate) fn image(&self) -> MetadataImage {
        let mut image = MetadataImage::default();
        for (offset, records) in &self.log {
            image.apply_records(*offset, records);
        }
        image
    }

    /// Compares what was told with the log.
    pub(crate) fn check(&self) -> Result<(), String> {
        let mut topics: BTreeMap<&str, Vec<(i64, TopicId)>> = BTreeMap::new();
        let mut blocks: BTreeMap<ProducerId, Vec<i64>> = BTreeMap::new();
        for (offset, records) in &self.log {
            for record in records.iter() {
                match record {
                    MetadataRecord::Topic { name, topic_id } => {
                        topics.entry(name).or_default().push((*offset, *topic_id));
                    }
                    MetadataRecord::ProducerIds {
                        next_producer_id, ..
                    } => blocks.entry(*next_producer_id).or_default().push(*offset),
                    MetadataRecord::ControllerEpoch {
                        epoch,
                        controller_id,
                    } if self
                        .offices
                        .get(epoch)
                        .is_some_and(|id| id != controller_id) =>
                    {
                        return Err(format!(
                            "one-controller-an-epoch: epoch {epoch} belongs to controller {controller_id}, and another was in office under it"
                        ));
                    }
                    _ => {}
                }
            }
        }
        for (name, places) in &topics {
            if places.len() > 1 {
                return Err(format!("once: topic {name} was created at {places:?}"));
            }
        }
        for (next, places) in &blocks {
            if places.len() > 1 {
                return Err(format!(
                    "once: the producer ids below {next} were handed out at {places:?}"
                ));
            }
        }
        let mut acknowledged: Vec<(i64, &Answer)> = Vec::new();
        for answer in &self.told {
            let found = match &answer.told {
                Told::Created(name, id) => topics
                    .get(name.as_str())
                    .and_then(|places| places.iter().find(|place| place.1 == *id))
                    .map(|place| place.0),
                Told::Exists(name) => topics.get(name.as_str()).map(|places| places[0].0),
                Told::Block(first, count) => blocks
                    .get(&ProducerId(first.0 + i64::from(*count)))
                    .map(|places| places[0]),
                Told::Refused(name) if topics.contains_key(name.as_str()) => {
                    return Err(format!(
                        "refused-is-absent: topic {name} was refused, and exists"
                    ));
                }
                Told::Refused(_) | Told::Unknown(_) => continue,
            };
            let Some(offset) = found else {
                return Err(format!(
                    "acknowledged-is-there: {:?}, told after {:?}, is not in the log",
                    answer.told, answer.answered
                ));
            };
            // What exists may have come about at any attempt before.
            if !matches!(answer.told, Told::Exists(_)) {
                acknowledged.push((offset, answer));
            }
        }
        let mut by_answer = acknowledged.clone();
        by_answer.sort_by_key(|(_, answer)| answer.answered);
        acknowledged.sort_by_key(|(_, answer)| answer.asked);
        let mut before = by_answer.into_iter().peekable();
        let mut latest: Option<(i64, &Answer)> = None;
        for (offset, answer) in acknowledged {
            while let Some(earlier) = before.next_if(|(_, earlier)| earlier.answered < answer.asked)
            {
                if latest.is_none_or(|(latest, _)| latest < earlier.0) {
                    latest = Some(earlier);
                }
            }
            if let Some((place, earlier)) = latest
                && place > offset
            {
                return Err(format!(
                    "acknowledged-in-order: {:?} is at {offset}, before {:?} at {place}, which had been acknowledged when it was asked for",
                    answer.told, earlier.told
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn topic(number: u128) -> Arc<[MetadataRecord]> {
        Arc::from([MetadataRecord::Topic {
            name: format!("t{number}"),
            topic_id: TopicId(Uuid::from_u128(number)),
        }])
    }

    fn created(number: u128) -> Told {
        Told::Created(format!("t{number}"), TopicId(Uuid::from_u128(number)))
    }

    /// Each check has a history it must refuse.
    #[test]
    fn what_may_not_be_is_refused() {
        type Row = (&'static str, fn(&mut History));
        let rows: [Row; 7] = [
            ("", |_| ()),
            ("committed-is-final", |history| {
                history.applied("x", 1, topic(9))
            }),
            ("one-controller-an-epoch", |history| {
                history.in_office(1, ControllerEpoch(4));
                history.in_office(2, ControllerEpoch(4));
            }),
            ("once", |history| history.applied("x", 3, topic(1))),
            ("refused-is-absent", |history| {
                let refused = Told::Refused("t1".to_owned());
                history.told(refused, Duration::ZERO, Duration::ZERO);
            }),
            ("acknowledged-is-there", |history| {
                history.told(created(3), Duration::ZERO, Duration::ZERO);
            }),
            ("acknowledged-in-order", |history| {
                history.told(created(2), Duration::from_secs(1), Duration::from_secs(2));
                history.told(created(1), Duration::from_secs(3), Duration::from_secs(4));
            }),
        ];
        for (check, change) in rows {
            let mut history = History::default();
            history.applied("x", 1, topic(1));
            history.applied("y", 2, topic(2));
            change(&mut history);
            let found = history.violation.clone().or(history.check().err());
            let named = found.as_deref().and_then(|found| found.split(':').next());
            assert_eq!(named.unwrap_or_default(), check, "{found:?}");
        }
    }
}
