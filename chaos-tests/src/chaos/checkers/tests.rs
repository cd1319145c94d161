//! For every property a history that it must refuse, and alone; and one that all accept. These are the mutations of the checkers: a
//! property nobody can break proves nothing.

use super::*;
use crate::chaos::history::Batch;

fn entry(event: Event) -> Entry {
    Entry { at: 0.0, event }
}

fn acked(id: u64, offset: i64) -> Entry {
    entry(Event::Wrote {
        stream: "s".into(),
        topic: "t".into(),
        partition: 0,
        id,
        sent: 0.0,
        outcome: Outcome::Acked,
        offset: Some(offset),
        error: None,
    })
}

fn ended(id: u64, outcome: Outcome, error: &str) -> Entry {
    entry(Event::Wrote {
        stream: "s".into(),
        topic: "t".into(),
        partition: -1,
        id,
        sent: 0.0,
        outcome,
        offset: None,
        error: Some(error.to_owned()),
    })
}

fn assigned(reader: &str) -> Entry {
    entry(Event::Assigned {
        reader: reader.into(),
        topic: "t".into(),
    })
}

fn polled(reader: &str, offset: i64, leader_epoch: i32, id: u64) -> Entry {
    entry(Event::Polled {
        reader: reader.into(),
        topic: "t".into(),
        partition: 0,
        offset,
        leader_epoch,
        id,
    })
}

fn latest(offset: i64) -> Entry {
    entry(Event::Latest {
        topic: "t".into(),
        partition: 0,
        offset,
    })
}

fn led(broker: i32, leader_epoch: i32) -> Entry {
    entry(Event::Led {
        broker,
        topic: "t".into(),
        partition: 0,
        leader_epoch,
    })
}

fn decided(leader: i32, isr: &[i32]) -> Entry {
    entry(Event::Decided {
        topic: "t".into(),
        partition: 0,
        leader: Some(leader),
        leader_epoch: 1,
        partition_epoch: 1,
        isr: isr.to_vec(),
        cause: "a test".to_owned(),
    })
}

fn replica(broker: i32, high_watermark: i64, hashes: &[u64]) -> Entry {
    let batches = hashes.iter().zip(0..).map(|(hash, first)| Batch {
        first,
        end: first + 1,
        leader_epoch: 0,
        hash: *hash,
    });
    entry(Event::Replica {
        broker,
        topic: "t".into(),
        partition: 0,
        high_watermark,
        batches: batches.collect(),
    })
}

fn digest(process: &str, digest: &str) -> Entry {
    entry(Event::Digest {
        process: process.to_owned(),
        digest: digest.to_owned(),
    })
}

fn complaints(entries: &[Entry], allowed: &[Loss]) -> Vec<&'static str> {
    complaints_of(&Run {
        entries,
        allowed,
        repeating: &[],
    })
}

fn complaints_of(run: &Run<'_>) -> Vec<&'static str> {
    let verdicts = check(run).into_iter();
    verdicts
        .filter(|verdict| !verdict.wrong.is_empty())
        .map(|verdict| verdict.name)
        .collect()
}

/// All is well: two records, read by two readers, on two replicas.
fn good() -> Vec<Entry> {
    vec![
        acked(1, 0),
        acked(2, 1),
        ended(3, Outcome::Unknown, "not acknowledged in time"),
        ended(4, Outcome::Failed, "NOT_ENOUGH_REPLICAS"),
        assigned("live"),
        polled("live", 0, 1, 1),
        latest(1),
        latest(2),
        assigned(FINAL),
        polled(FINAL, 0, 1, 1),
        polled(FINAL, 1, 2, 2),
        polled(FINAL, 2, 2, 3),
        led(1, 1),
        led(2, 2),
        decided(2, &[2, 3]),
        replica(1, 2, &[7, 8]),
        replica(2, 3, &[7, 8, 9]),
        digest("controller 1", "5"),
        digest("broker 1", "5"),
    ]
}

#[test]
fn a_good_history_is_accepted() {
    assert_eq!(complaints(&good(), &[]), Vec::<&str>::new());
}

#[test]
fn only_a_producer_that_is_not_idempotent_may_write_twice_and_out_of_turn() {
    let mut entries = good();
    entries.extend([
        acked(9, 5),
        acked(10, 3),
        polled(FINAL, 3, 2, 10),
        polled(FINAL, 4, 2, 9),
        polled(FINAL, 5, 2, 9),
    ]);
    let complaints = |repeating: &[Arc<str>]| {
        complaints_of(&Run {
            entries: &entries,
            allowed: &[],
            repeating,
        })
    };
    assert_eq!(complaints(&[]), ["duplicate", "send-order"]);
    assert_eq!(complaints(&["another".into()]), ["duplicate", "send-order"]);
    assert_eq!(complaints(&["s".into()]), Vec::<&str>::new());
}

#[test]
fn each_property_refuses_its_bad_history() {
    type Row = (&'static str, Vec<Entry>, &'static [&'static str]);
    let rows: Vec<Row> = vec![
        (
            "an acknowledged record is not read at the end",
            vec![acked(9, 3)],
            &["acked-is-read"],
        ),
        (
            "an acknowledged record is read at another offset",
            vec![acked(9, 5), polled(FINAL, 3, 2, 9)],
            &["acked-is-read"],
        ),
        (
            "a record below what was read is missing from every reader",
            vec![
                acked(9, 3),
                polled("other", 4, 2, 10),
                ended(10, Outcome::Unknown, ""),
            ],
            &["acked-is-read", "lost-write"],
        ),
        (
            "a value at two offsets",
            vec![polled(FINAL, 3, 2, 2)],
            &["duplicate"],
        ),
        (
            "a refused record is read",
            vec![polled(FINAL, 3, 2, 4)],
            &["aborted-read"],
        ),
        (
            "a record nobody wrote",
            vec![polled(FINAL, 3, 2, 77)],
            &["aborted-read"],
        ),
        (
            "another value at the same offset, in another epoch",
            vec![assigned("late"), polled("late", 1, 3, 3)],
            &["inconsistent-offsets"],
        ),
        (
            "another value at the same offset, in the same epoch",
            vec![assigned("late"), polled("late", 1, 2, 3)],
            &["inconsistent-offsets", "offset-immutable"],
        ),
        (
            "a reader goes back",
            vec![polled("live", 0, 1, 1)],
            &["poll-order"],
        ),
        (
            "a reader skips",
            vec![polled("live", 2, 2, 3)],
            &["poll-order"],
        ),
        (
            "a producer's later record comes earlier",
            vec![
                acked(9, 4),
                acked(10, 3),
                polled(FINAL, 3, 2, 10),
                polled(FINAL, 4, 2, 9),
            ],
            &["send-order"],
        ),
        ("the end goes back", vec![latest(1)], &["monotone-end"]),
        (
            "two leaders of one epoch",
            vec![led(3, 2)],
            &["one-leader-per-epoch"],
        ),
        (
            "a leader that is not in sync",
            vec![decided(1, &[2, 3])],
            &["leader-in-isr"],
        ),
        (
            "replicas differ below the high watermark",
            vec![replica(3, 3, &[7, 0, 9])],
            &["replicas-identical"],
        ),
        (
            "a replica lacks what is below its high watermark",
            vec![replica(3, 3, &[7])],
            &["replicas-identical"],
        ),
        (
            "a process sees other metadata",
            vec![digest("broker 3", "6")],
            &["metadata-digests"],
        ),
        (
            "an error nobody documented",
            vec![ended(9, Outcome::Failed, "UNKNOWN_SERVER_ERROR: oops")],
            &["documented-errors"],
        ),
    ];
    let mut refused_by = std::collections::BTreeSet::new();
    for (name, bad, expected) in rows {
        let mut entries = good();
        entries.extend(bad);
        assert_eq!(complaints(&entries, &[]), expected, "{name}");
        refused_by.extend(expected);
    }
    let all: std::collections::BTreeSet<&&str> = ALL.iter().map(|checker| &checker.name).collect();
    assert_eq!(refused_by, all, "every property has a history it refuses");
}

#[test]
fn what_an_unclean_election_may_take_is_no_complaint_and_nothing_else_is_excused() {
    let loss = |offsets| Loss {
        topic: "t".into(),
        partition: 0,
        offsets,
    };
    let mut entries = good();
    entries.extend([acked(9, 3), assigned("late"), polled("late", 1, 5, 3)]);
    assert_eq!(
        complaints(&entries, &[loss(1..10)]),
        Vec::<&str>::new(),
        "an offset from the cut on, in another epoch"
    );
    assert_eq!(
        complaints(&entries, &[loss(3..10)]),
        ["inconsistent-offsets"]
    );
    assert_eq!(complaints(&entries, &[loss(1..3)]), ["acked-is-read"]);
    entries.push(polled("later", 1, 5, 1));
    assert_eq!(
        complaints(&entries, &[loss(1..10)]),
        ["offset-immutable"],
        "never in the same epoch"
    );
}
