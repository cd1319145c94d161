//! What producers were told and consumers saw, against what the logs hold in the end.
//! Law: what was acknowledged is where it was said to be, once; what was refused is nowhere; what a consumer saw stays; what
//! was acknowledged to one producer is in the order in which it was sent.

use std::collections::{BTreeMap, BTreeSet};

use kuorum_protocol::ProducerId;

/// A partition of a topic.
pub(crate) type Place = (String, i32);

/// What a log holds, by offset.
pub(crate) type Contents = BTreeMap<i64, String>;

/// What a producer knows of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// No answer yet.
    Waiting,
    /// Acknowledged at this offset.
    At(i64),
    /// Nobody knows.
    Unknown,
    /// It is not in the log, whatever was tried.
    Absent,
}

#[derive(Clone, Debug)]
struct Sent {
    place: Place,
    fate: Fate,
}

/// Everything that is known of the records of a run. A record's value is its producer's name, a slash, and a number that grows.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    sent: BTreeMap<String, Sent>,
    seen: BTreeMap<Place, Contents>,
    /// Where each consumer is.
    positions: BTreeMap<(String, Place), i64>,
    producer_ids: BTreeSet<ProducerId>,
    /// The first thing that may not be.
    pub(crate) violation: Option<String>,
}

/// The value of a producer's record.
pub(crate) fn value(producer: &str, number: u64) -> String {
    format!("{producer}/{number:06}")
}

impl Ledger {
    pub(crate) fn violated(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    pub(crate) fn sent(&mut self, value: String, place: Place) {
        let fate = Fate::Waiting;
        self.sent.insert(value, Sent { place, fate });
    }

    pub(crate) fn told(&mut self, value: &str, fate: Fate) {
        if let Some(sent) = self.sent.get_mut(value) {
            sent.fate = fate;
        }
    }

    /// How many records were acknowledged, and of how many nobody knows.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let of = |wanted: fn(Fate) -> bool| {
            let those = self.sent.values().filter(|sent| wanted(sent.fate));
            those.count() as u64
        };
        (
            of(|fate| matches!(fate, Fate::At(_))),
            of(|fate| matches!(fate, Fate::Unknown)),
        )
    }

    /// How many records have no answer yet.
    pub(crate) fn waiting(&self) -> usize {
        let waiting = self.sent.values().filter(|sent| sent.fate == Fate::Waiting);
        waiting.count()
    }

    /// Consumer `who` was given a record.
    pub(crate) fn seen(&mut self, who: &str, place: &Place, offset: i64, value: &str) {
        let position = self
            .positions
            .entry((who.to_owned(), place.clone()))
            .or_default();
        let expected = std::mem::replace(position, offset + 1);
        if expected != offset {
            self.violated(format!(
                "read-in-order: {who} was given offset {offset} of {place:?}, after {}",
                expected - 1
            ));
        }
        let known = self.seen.entry(place.clone()).or_default();
        let first = known.entry(offset).or_insert_with(|| value.to_owned());
        if *first != value {
            let what = format!(
                "committed-is-final: {who} was given {value} at {offset} of {place:?}, where {first} had been read"
            );
            self.violated(what);
        }
    }

    /// Where a consumer goes on reading.
    pub(crate) fn position(&self, who: &str, place: &Place) -> i64 {
        let position = self.positions.get(&(who.to_owned(), place.clone()));
        position.copied().unwrap_or_default()
    }

    /// A broker has handed out a producer id.
    pub(crate) fn producer_id(&mut self, id: ProducerId) {
        if !self.producer_ids.insert(id) {
            self.violated(format!("once: producer id {id} was handed out twice"));
        }
    }

    /// Compares what is known with what the logs hold.
    pub(crate) fn check(&self, logs: &BTreeMap<Place, Contents>) -> Result<(), String> {
        let mut places: BTreeMap<&str, (&Place, i64)> = BTreeMap::new();
        for (place, contents) in logs {
            let mut latest: BTreeMap<&str, &str> = BTreeMap::new();
            for (offset, value) in contents {
                let Some(sent) = self.sent.get(value) else {
                    return Err(format!(
                        "nothing-from-nowhere: {value} at {offset} of {place:?} was never sent"
                    ));
                };
                if sent.place != *place {
                    return Err(format!(
                        "nothing-from-nowhere: {value} was sent to {:?}, and is at {offset} of {place:?}",
                        sent.place
                    ));
                }
                if let Some((_, first)) = places.insert(value, (place, *offset)) {
                    return Err(format!(
                        "once: {value} is at {first} and at {offset} of {place:?}"
                    ));
                }
                // One of which nobody knows may have been on its way for long.
                if !matches!(sent.fate, Fate::At(_)) {
                    continue;
                }
                let producer = value.split('/').next().unwrap_or_default();
                if let Some(before) = latest.insert(producer, value)
                    && before > value.as_str()
                {
                    return Err(format!(
                        "sent-in-order: {value} at {offset} of {place:?} stands behind {before}, which was sent later"
                    ));
                }
            }
        }
        for (value, sent) in &self.sent {
            let found = places.get(value.as_str()).map(|(_, offset)| *offset);
            match (sent.fate, found) {
                (Fate::At(told), Some(offset)) if told == offset => {}
                (Fate::At(told), found) => {
                    return Err(format!(
                        "acknowledged-is-there: {value} was acknowledged at {told} of {:?}; it is at {found:?}",
                        sent.place
                    ));
                }
                (Fate::Absent, Some(offset)) => {
                    return Err(format!(
                        "refused-is-absent: {value} was refused, and is at {offset} of {:?}",
                        sent.place
                    ));
                }
                (Fate::Absent, None) | (Fate::Unknown | Fate::Waiting, _) => {}
            }
        }
        for (place, seen) in &self.seen {
            for (offset, value) in seen {
                let found = logs.get(place).and_then(|contents| contents.get(offset));
                if found != Some(value) {
                    return Err(format!(
                        "committed-is-final: {value} was read at {offset} of {place:?}, where {found:?} is"
                    ));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Place {
        ("t".to_owned(), 0)
    }

    /// Each check has a run it must refuse.
    #[test]
    fn what_may_not_be_is_refused() {
        type Row = (&'static str, fn(&mut Ledger, &mut Contents));
        let rows: [Row; 11] = [
            ("", |_, _| ()),
            ("acknowledged-is-there", |_, log| {
                log.remove(&0);
            }),
            ("acknowledged-is-there", |ledger, _| {
                ledger.told(&value("a", 2), Fate::At(0));
            }),
            ("refused-is-absent", |ledger, _| {
                ledger.told(&value("a", 2), Fate::Absent);
            }),
            ("once", |_, log| {
                log.insert(2, value("a", 1));
            }),
            ("nothing-from-nowhere", |_, log| {
                log.insert(2, value("b", 1));
            }),
            ("nothing-from-nowhere", |ledger, log| {
                ledger.sent(value("a", 3), ("t".to_owned(), 1));
                log.insert(2, value("a", 3));
            }),
            ("sent-in-order", |ledger, log| {
                ledger.sent(value("a", 0), place());
                ledger.told(&value("a", 0), Fate::At(2));
                log.insert(2, value("a", 0));
            }),
            ("committed-is-final", |ledger, _| {
                ledger.seen("y", &place(), 0, &value("a", 2));
            }),
            ("committed-is-final", |_, log| {
                log.remove(&1);
            }),
            ("read-in-order", |ledger, _| {
                ledger.seen("x", &place(), 3, &value("a", 9));
            }),
        ];
        for (check, change) in rows {
            let mut ledger = Ledger::default();
            let mut log = Contents::new();
            for (offset, number) in [(0, 1), (1, 2)] {
                ledger.sent(value("a", number), place());
                ledger.seen("x", &place(), offset, &value("a", number));
                log.insert(offset, value("a", number));
            }
            ledger.told(&value("a", 1), Fate::At(0));
            ledger.told(&value("a", 2), Fate::Unknown);
            change(&mut ledger, &mut log);
            let logs = BTreeMap::from([(place(), log)]);
            let found = ledger.violation.clone().or(ledger.check(&logs).err());
            let named = found.as_deref().and_then(|found| found.split(':').next());
            assert_eq!(named.unwrap_or_default(), check, "{found:?}");
        }
    }
}
