//! What a run wrote and what was read afterwards, and whether the two agree.
//! Law: pure. A write whose outcome is unknown may be there or not; an acknowledged one must be there, once, at the offset it was given.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::Duration;

use kuorum_protocol::{Offset, PartitionIndex};

/// One record that was handed to a producer.
#[derive(Clone, Debug)]
pub struct Write {
    /// Unique in the run, and rising in the order of sending.
    pub id: u64,
    pub partition: PartitionIndex,
    pub outcome: Outcome,
}

/// How a write ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Acknowledged at this offset, so long after the run began.
    Acknowledged { offset: Offset, at: Duration },
    /// Timed out, or the connection broke: it may be in the log or not.
    Unknown,
    /// Refused for certain.
    Refused,
}

/// One record that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    pub partition: PartitionIndex,
    pub offset: Offset,
    pub id: u64,
}

/// What the comparison found. Everything but the counts and the pause must be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    pub acknowledged: usize,
    pub read: usize,
    /// Acknowledged and not read.
    pub lost: Vec<u64>,
    /// Acknowledged at one offset and read at another: (id, acknowledged, read).
    pub moved: Vec<(u64, Offset, Offset)>,
    /// Read more than once.
    pub duplicated: Vec<u64>,
    /// Read after a record of the same partition that was sent later.
    pub out_of_order: Vec<u64>,
    /// Read though it was refused, or never written.
    pub invented: Vec<u64>,
    /// The longest time between two acknowledgements.
    pub longest_pause: Duration,
}

impl Verdict {
    /// Whether nothing that was promised was broken.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.lost.is_empty()
            && self.moved.is_empty()
            && self.duplicated.is_empty()
            && self.out_of_order.is_empty()
            && self.invented.is_empty()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = [
            ("acknowledged", self.acknowledged),
            ("read", self.read),
            ("lost", self.lost.len()),
            ("out of order", self.out_of_order.len()),
            ("moved", self.moved.len()),
            ("duplicated", self.duplicated.len()),
            ("invented", self.invented.len()),
        ];
        for (what, count) in counts {
            writeln!(f, "  {what:<14} {count:>9}")?;
        }
        write!(
            f,
            "  {:<14} {:>6} ms",
            "longest pause",
            self.longest_pause.as_millis()
        )
    }
}

/// Compares what was written with everything that was read, in the order in which it was read.
#[must_use]
pub fn judge(writes: &[Write], reads: &[Read]) -> Verdict {
    let mut verdict = Verdict {
        read: reads.len(),
        ..Verdict::default()
    };
    let mut places: HashMap<u64, Vec<Offset>> = HashMap::with_capacity(reads.len());
    let mut highest: BTreeMap<PartitionIndex, u64> = BTreeMap::new();
    for read in reads {
        places.entry(read.id).or_default().push(read.offset);
        let newest = highest.entry(read.partition).or_insert(read.id);
        if read.id < *newest {
            verdict.out_of_order.push(read.id);
        }
        *newest = read.id.max(*newest);
    }
    let mut acknowledgements = Vec::new();
    for write in writes {
        let found = places.remove(&write.id).unwrap_or_default();
        if found.len() > 1 {
            verdict.duplicated.push(write.id);
        }
        match write.outcome {
            Outcome::Acknowledged { offset, at } => {
                verdict.acknowledged += 1;
                acknowledgements.push(at);
                match found.first() {
                    None => verdict.lost.push(write.id),
                    Some(place) if !found.contains(&offset) => {
                        verdict.moved.push((write.id, offset, *place));
                    }
                    Some(_) => {}
                }
            }
            Outcome::Unknown => {}
            Outcome::Refused if found.is_empty() => {}
            Outcome::Refused => verdict.invented.push(write.id),
        }
    }
    verdict.invented.extend(places.into_keys());
    acknowledgements.sort_unstable();
    verdict.longest_pause = acknowledgements
        .windows(2)
        .map(|pair| pair[1] - pair[0])
        .max()
        .unwrap_or_default();
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acknowledged(id: u64, offset: i64) -> Write {
        let at = Duration::from_millis(id * 10);
        Write {
            id,
            partition: 0,
            outcome: Outcome::Acknowledged {
                offset: Offset(offset),
                at,
            },
        }
    }

    fn write(id: u64, outcome: Outcome) -> Write {
        Write {
            id,
            partition: 0,
            outcome,
        }
    }

    fn read(id: u64, offset: i64) -> Read {
        Read {
            partition: 0,
            offset: Offset(offset),
            id,
        }
    }

    #[test]
    fn each_broken_promise_is_named() {
        type Row = (&'static str, Vec<Write>, Vec<Read>, fn(&Verdict) -> bool);
        let rows: Vec<Row> = vec![
            (
                "all is well",
                vec![acknowledged(1, 0), acknowledged(2, 1)],
                vec![read(1, 0), read(2, 1)],
                Verdict::holds,
            ),
            ("lost", vec![acknowledged(1, 0)], vec![], |v| v.lost == [1]),
            ("moved", vec![acknowledged(1, 0)], vec![read(1, 5)], |v| {
                v.moved == [(1, Offset(0), Offset(5))]
            }),
            (
                "twice",
                vec![acknowledged(1, 0)],
                vec![read(1, 0), read(1, 1)],
                |v| v.duplicated == [1],
            ),
            (
                "out of order",
                vec![acknowledged(1, 1), acknowledged(2, 0)],
                vec![read(2, 0), read(1, 1)],
                |v| v.out_of_order == [1],
            ),
            (
                "unknown may be there",
                vec![write(1, Outcome::Unknown)],
                vec![read(1, 0)],
                Verdict::holds,
            ),
            (
                "unknown may be missing",
                vec![write(1, Outcome::Unknown)],
                vec![],
                Verdict::holds,
            ),
            (
                "refused may not be there",
                vec![write(1, Outcome::Refused)],
                vec![read(1, 0)],
                |v| v.invented == [1],
            ),
            ("never written", vec![], vec![read(7, 0)], |v| {
                v.invented == [7]
            }),
        ];
        for (name, writes, reads, expected) in rows {
            let verdict = judge(&writes, &reads);
            assert!(expected(&verdict), "{name}: {verdict:?}");
        }
    }

    #[test]
    fn the_longest_pause_lies_between_two_acknowledgements() {
        let writes = [acknowledged(1, 0), acknowledged(2, 1), acknowledged(9, 2)];
        assert_eq!(judge(&writes, &[]).longest_pause, Duration::from_millis(70));
    }
}
