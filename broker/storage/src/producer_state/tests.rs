use kuorum_protocol::record::{BatchBuilder, BatchMut, Codec, ControlType, end_marker};

use super::*;

struct Story {
    states: ProducerStates,
    end: i64,
    clock: Timestamp,
}

impl Story {
    fn new() -> Self {
        Self {
            states: ProducerStates::new(),
            end: 0,
            clock: Timestamp(1_000),
        }
    }

    fn batch(epoch: i16, sequence: i32, records: i32, transactional: bool) -> Vec<u8> {
        let mut builder = BatchBuilder::new(Codec::None).producer(
            ProducerId(9),
            ProducerEpoch(epoch),
            Sequence(sequence),
        );
        if transactional {
            builder = builder.transactional();
        }
        for _ in 0..records {
            builder.append(Timestamp(1_000), None, None, &[]);
        }
        builder.build().to_vec()
    }

    /// What a produce answers: a base offset, `dup <base offset>`, or the error.
    fn produce(&mut self, epoch: i16, sequence: i32, records: i32, transactional: bool) -> String {
        let mut bytes = Self::batch(epoch, sequence, records, transactional);
        let mut batch = BatchMut::parse(&mut bytes).unwrap();
        batch.set_base_offset(Offset(self.end));
        match self.states.check(&batch.view()) {
            Ok(Verdict::New) => {
                self.states.apply(&batch.view(), self.clock);
                self.end += i64::from(records);
                (self.end - i64::from(records)).to_string()
            }
            Ok(Verdict::Duplicate(original)) => format!("dup {}", original.first_offset),
            Err(AppendError::OutOfOrderSequence { expected, .. }) => format!("45 {expected}"),
            Err(AppendError::InvalidProducerEpoch { current, .. }) => format!("47 {current}"),
            Err(AppendError::InvalidTransactionState) => "48".to_owned(),
            Err(other) => other.to_string(),
        }
    }

    fn marker(&mut self, epoch: i16) {
        let marker = end_marker(
            ControlType::Commit,
            ProducerId(9),
            ProducerEpoch(epoch),
            0,
            Timestamp(1),
        );
        self.states
            .apply(&BatchView::parse(&marker).unwrap(), self.clock);
        self.end += 1;
    }
}

/// Duplicates, gaps and epochs, as stories: (epoch, first sequence, records) and the answer.
#[test]
fn stories() {
    const MAX: i32 = i32::MAX;
    type Steps = &'static [(i16, i32, i32, &'static str)];
    let stories: [(&str, Steps); 7] = [
        (
            "E1: retries of the last five are duplicates",
            &[
                (0, 0, 1, "0"),
                (0, 1, 1, "1"),
                (0, 2, 1, "2"),
                (0, 3, 1, "3"),
                (0, 4, 1, "4"),
                (0, 0, 1, "dup 0"),
                (0, 2, 1, "dup 2"),
                (0, 4, 1, "dup 4"),
                (0, 5, 1, "5"),
            ],
        ),
        (
            "E2: the sixth is too old",
            &[
                (0, 0, 1, "0"),
                (0, 1, 1, "1"),
                (0, 2, 1, "2"),
                (0, 3, 1, "3"),
                (0, 4, 1, "4"),
                (0, 5, 1, "5"),
                (0, 0, 1, "45 6"),
                (0, 1, 1, "dup 1"),
            ],
        ),
        (
            "E3: a gap",
            &[
                (0, 0, 1, "0"),
                (0, 2, 1, "45 1"),
                (0, 1, 1, "1"),
                (0, 2, 1, "2"),
            ],
        ),
        (
            "E4: sequences wrap to 0, and nothing is known of a new producer",
            &[
                (0, MAX - 1, 2, "0"),
                (0, MAX, 1, "45 0"),
                (0, 0, 1, "2"),
                (0, MAX - 1, 2, "dup 0"),
            ],
        ),
        (
            "a batch that wraps inside",
            &[
                (0, MAX - 1, 4, "0"),
                (0, MAX - 1, 4, "dup 0"),
                (0, 2, 1, "4"),
                (0, 1, 1, "45 3"),
            ],
        ),
        (
            "E5: a new epoch begins at 0, an old one is fenced",
            &[
                (3, 7, 1, "0"),
                (4, 5, 1, "45 0"),
                (4, 0, 1, "1"),
                (3, 8, 1, "47 4"),
                (4, 1, 1, "2"),
            ],
        ),
        (
            "the same first sequence with another count is no duplicate",
            &[(0, 0, 3, "0"), (0, 0, 2, "45 3"), (0, 0, 3, "dup 0")],
        ),
    ];
    for (name, steps) in stories {
        let mut story = Story::new();
        for (epoch, sequence, records, answer) in steps {
            let found = story.produce(*epoch, *sequence, *records, false);
            assert_eq!(found, *answer, "{name}: epoch {epoch} sequence {sequence}");
        }
        let bytes = story.states.to_snapshot();
        assert_eq!(
            ProducerStates::from_snapshot(&bytes, Timestamp(1)),
            Ok(story.states),
            "{name}"
        );
    }
}

#[test]
fn a_transaction_is_open_until_its_marker() {
    let mut story = Story::new();
    assert_eq!(story.produce(0, 0, 1, false), "0");
    assert_eq!(story.states.first_open_transaction(), None);
    assert_eq!(story.produce(0, 1, 2, true), "1");
    assert_eq!(story.produce(0, 3, 1, true), "3");
    assert_eq!(story.states.first_open_transaction(), Some(Offset(1)));
    assert_eq!(story.produce(0, 4, 1, false), "48");
    story.states.expire(Timestamp(i64::MAX), 1);
    assert_eq!(story.states.len(), 1, "never while a transaction is open");
    story.marker(0);
    assert_eq!(story.states.first_open_transaction(), None);
    assert_eq!(story.produce(0, 4, 1, false), "5");
    story.marker(1);
    assert_eq!(
        story.produce(0, 5, 1, false),
        "47 1",
        "a marker of a newer epoch fences"
    );
}

#[test]
fn a_silent_producer_is_forgotten_and_may_go_on() {
    let mut story = Story::new();
    story.produce(0, 0, 1, false);
    story.states.expire(Timestamp(1_000 + 99), 100);
    assert_eq!(story.states.len(), 1);
    story.states.expire(Timestamp(1_000 + 100), 100);
    assert!(story.states.is_empty());
    assert_eq!(story.produce(0, 57, 1, false), "1", "E8");
}

/// The records say 1 000, whatever the clock says: an old event is no reason to forget who wrote it a moment ago.
#[test]
fn it_is_forgotten_by_when_it_was_appended() {
    let mut story = Story::new();
    story.clock = Timestamp(5_000_000);
    story.produce(0, 0, 1, false);
    story.states.expire(Timestamp(5_000_099), 100);
    let bytes = story.states.to_snapshot();
    let read = |bytes: &[u8]| ProducerStates::from_snapshot(bytes, Timestamp(7_000_000)).unwrap();
    let producer = read(&bytes).get(ProducerId(9)).unwrap().clone();
    assert_eq!(producer.last_timestamp, Timestamp(1_000));
    assert_eq!(producer.last_append, Timestamp(5_000_000));
    // The first version of the file said nothing of it.
    let mut body = bytes[10..].to_vec();
    body.drain(23..31);
    let mut older = b"KUPS\0\x01".to_vec();
    older.extend_from_slice(&crc32c::crc32c(&body).to_be_bytes());
    older.extend_from_slice(&body);
    let producer = read(&older).get(ProducerId(9)).unwrap().clone();
    assert_eq!(producer.last_timestamp, Timestamp(1_000));
    assert_eq!(producer.last_append, Timestamp(7_000_000));
}

#[test]
fn followers_take_whatever_is_in_the_log() {
    let mut story = Story::new();
    for sequence in [5, 3, 9] {
        let bytes = Story::batch(0, sequence, 1, false);
        story
            .states
            .apply(&BatchView::parse(&bytes).unwrap(), Timestamp(1));
    }
    let producer = story.states.get(ProducerId(9)).unwrap();
    assert_eq!(producer.last_sequence(), Some(Sequence(9)));
}

#[test]
fn a_damaged_snapshot_is_known_as_one() {
    let mut story = Story::new();
    story.produce(0, 0, 1, false);
    let bytes = story.states.to_snapshot();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        assert!(
            ProducerStates::from_snapshot(&damaged, Timestamp(1)).is_err(),
            "byte {at}"
        );
        assert!(
            ProducerStates::from_snapshot(&bytes[..at], Timestamp(1)).is_err(),
            "cut at {at}"
        );
    }
    let mut newer = bytes;
    newer[5] = 3;
    let known = BadSnapshot::Newer {
        version: 3,
        known: 2,
    };
    assert_eq!(
        ProducerStates::from_snapshot(&newer, Timestamp(1)),
        Err(known)
    );
}
