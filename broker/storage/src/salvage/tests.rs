//! Stories of cuts and of what is kept of them, told on the lossy twin of the disk.

use std::ops::ControlFlow;

use bytes::Bytes;
use kuorum_protocol::record::{BatchBuilder, BatchMut, BatchView, Codec, ControlType, end_marker};
use kuorum_protocol::{Monotonic, Now, ProducerEpoch, ProducerId, Sequence};

use super::*;
use crate::config::LogConfig;
use crate::log::{Known, Log};
use crate::sim_dir::SimDir;

const TOPIC: &str = "telemetry-logs";
const ALWAYS: Bounds<'_> = Bounds {
    item_bytes: u64::MAX,
    in_time: &|| true,
};

fn now() -> Now {
    Now {
        monotonic: Monotonic::default(),
        wall: Timestamp(1_000),
    }
}

fn topic_id() -> TopicId {
    TopicId("6f1c2d7e-0000-4000-8000-000000000007".parse().unwrap())
}

fn cause() -> Cause<'static> {
    Cause {
        topic: TOPIC,
        topic_id: topic_id(),
        partition: 0,
        unclean_epoch: LeaderEpoch(5),
        words: "unclean election",
        now: Timestamp(77),
    }
}

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 1_000,
        index_interval_bytes: 200,
        ..LogConfig::default()
    }
}

fn open(disk: &SimDir) -> Log<SimDir> {
    Log::open(disk.subdirectory("t-0"), config(), Known::default(), now())
        .unwrap()
        .0
}

fn append(log: &mut Log<SimDir>, batch: &Bytes, epoch: i32) {
    log.append_as_leader(&mut batch.to_vec(), LeaderEpoch(epoch), now())
        .unwrap();
}

/// Three records a batch; record n has the value `n`.
fn plain(first: i64) -> Bytes {
    let mut builder = BatchBuilder::new(Codec::None);
    for at in first..first + 3 {
        let value = format!("{at:050}");
        builder.append(
            Timestamp(10 + at),
            Some(b"key"),
            Some(value.as_bytes()),
            &[],
        );
    }
    builder.build()
}

/// 30 batches: [0, 45) in epoch 1, [45, 60) in epoch 2, [60, 90) in epoch 3.
fn filled(disk: &SimDir) -> Log<SimDir> {
    let mut log = open(disk);
    for batch in 0..30 {
        let epoch = match batch {
            0..15 => 1,
            15..20 => 2,
            _ => 3,
        };
        append(&mut log, &plain(batch * 3), epoch);
    }
    assert!(log.segments().len() > 5, "several files");
    log
}

fn flush(log: &mut Log<SimDir>) {
    if let Some(job) = log.begin_flush() {
        let result = job.run();
        log.finish_flush(job, result).unwrap();
    }
}

fn kept(aside: Result<Option<Aside>, crate::LogError>) -> Item {
    match aside.unwrap().unwrap() {
        Aside::Kept(item) => item,
        other => panic!("{other:?}"),
    }
}

fn values(contents: &Contents<SimDir>, summary: &Summary, from: u64) -> Vec<(u64, i64, String)> {
    let mut seen = Vec::new();
    contents
        .visit(summary, from, |visit| {
            let value = String::from_utf8(visit.record.value.unwrap().to_vec()).unwrap();
            seen.push((visit.index, visit.record.offset.0, value));
            ControlFlow::Continue(())
        })
        .unwrap();
    seen
}

fn raw(log: &Log<SimDir>, from: i64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut at = Offset(from);
    while at < log.end_offset() {
        let read = log.read(at, log.end_offset(), 1, true).unwrap();
        at = BatchView::parse(&read).unwrap().next_offset();
        bytes.extend_from_slice(&read);
    }
    bytes
}

#[test]
fn an_id_is_a_name_and_back() {
    let id = ItemId {
        topic_id: topic_id(),
        partition: 3,
        unclean_epoch: LeaderEpoch(5),
        first_offset: Offset(150_000),
    };
    let text = "6f1c2d7e-0000-4000-8000-000000000007-3-5-150000";
    assert_eq!(id.to_string(), text);
    assert_eq!(text.parse(), Ok(id));
    for bad in [
        "",
        "-",
        "../../etc-1-1-1",
        "6f1c2d7e-0000-4000-8000-000000000007-3-5",
        "6f1c2d7e-0000-4000-8000-000000000007-3-5-",
        "6f1c2d7e-0000-4000-8000-000000000007-3-5-015",
        "6f1c2d7e-0000-4000-8000-000000000007-3-5-+15",
        "6F1C2D7E-0000-4000-8000-000000000007-3-5-15",
        "6f1c2d7e-0000-4000-8000-000000000007-3-5-99999999999999999999",
    ] {
        assert_eq!(bad.parse::<ItemId>(), Err(NotAnId), "{bad:?}");
    }
}

#[test]
fn what_is_cut_is_kept_whole() {
    // (cut at, first offset kept): in the middle of a batch the whole batch goes.
    for (cut, first) in [(60, 60), (50, 48), (45, 45), (89, 87), (1, 0), (0, 0)] {
        let disk = SimDir::new(1);
        let dir = disk.subdirectory("salvage");
        let mut log = filled(&disk);
        let before = raw(&log, first);
        let item = kept(log.set_aside(Offset(cut), &cause(), &dir, ALWAYS));
        assert_eq!(log.end_offset(), Offset(90), "nothing was cut yet");
        assert_eq!(log.truncate_to(Offset(cut)).unwrap(), Offset(first));
        assert_eq!((item.first_offset.0, item.end_offset.0), (first, 90));
        assert!(item.complete);
        assert_eq!(item.bytes, before.len() as u64);
        let epochs: Vec<(i32, i64)> = item
            .epochs
            .iter()
            .map(|began| (began.epoch.0, began.start_offset.0))
            .collect();
        let all = [(1, 0), (2, 45), (3, 60)];
        let expected: Vec<(i32, i64)> = all
            .into_iter()
            .enumerate()
            .filter(|(at, _)| all.get(at + 1).is_none_or(|next| next.1 > first))
            .map(|(_, (epoch, start))| (epoch, start.max(first)))
            .collect();
        assert_eq!(epochs, expected, "cut at {cut}");
        assert_eq!(items(&dir).unwrap(), std::slice::from_ref(&item));
        // What the log does afterwards does not touch it.
        for batch in 0..20 {
            append(&mut log, &plain(9_000 + batch * 3), 5);
        }
        flush(&mut log);
        let contents = Contents::of(&dir, item);
        let summary = contents.summarise().unwrap();
        assert_eq!(summary.records, (90 - first) as u64);
        assert_eq!(summary.damage, None);
        assert_eq!(summary.first_timestamp, Some(Timestamp(10 + first)));
        assert_eq!(summary.last_timestamp, Some(Timestamp(99)));
        assert_eq!(contents.raw(0, usize::MAX / 2).unwrap(), before);
        assert_eq!(contents.raw(7, 5).unwrap(), before[7..12]);
        assert!(contents.raw(before.len() as u64, 10).unwrap().is_empty());
        for from in [0, 1, 2, 3, 17, summary.records - 1, summary.records, 500] {
            let expected: Vec<(u64, i64, String)> = (from..summary.records)
                .map(|index| {
                    let offset = first + index as i64;
                    (index, offset, format!("{offset:050}"))
                })
                .collect();
            assert_eq!(values(&contents, &summary, from), expected, "from {from}");
        }
        assert!(remove(&dir, &contents.id()).unwrap());
        assert!(!remove(&dir, &contents.id()).unwrap());
        assert!(items(&dir).unwrap().is_empty());
    }
}

#[test]
fn nothing_to_cut_keeps_nothing() {
    let disk = SimDir::new(1);
    let dir = disk.subdirectory("salvage");
    let mut log = filled(&disk);
    let none = log.set_aside(Offset(90), &cause(), &dir, ALWAYS).unwrap();
    assert!(none.is_none());
    assert!(!dir.exists().unwrap());
}

#[test]
fn a_log_that_begins_inside_a_batch_keeps_what_it_still_had() {
    let disk = SimDir::new(1);
    let dir = disk.subdirectory("salvage");
    let mut log = filled(&disk);
    log.advance_start(Offset(46)).unwrap();
    let item = kept(log.set_aside(Offset(0), &cause(), &dir, ALWAYS));
    assert_eq!((item.first_offset.0, item.end_offset.0), (46, 90));
    let contents = Contents::of(&dir, item);
    let summary = contents.summarise().unwrap();
    assert_eq!(summary.records, 44);
    assert_eq!(values(&contents, &summary, 0)[0].1, 46);
    assert_eq!(values(&contents, &summary, 2)[0].1, 48);
}

#[test]
fn bounds_are_kept_and_told() {
    let size = plain(0).len() as u64;
    /// Where the item ends, and whether it is complete; none if nothing fits.
    type Kept = Option<(i64, bool)>;
    // (bytes of the item, copying is in time) → what is kept
    let rows: [(u64, bool, Kept); 5] = [
        (u64::MAX, true, Some((90, true))),
        // The first chunk is always copied, and the rest gets names.
        (u64::MAX, false, Some((90, true))),
        (size * 4 + 1, true, Some((73, false))),
        (size, true, Some((64, false))),
        (size - 1, true, None),
    ];
    for (item_bytes, in_time, expected) in rows {
        let disk = SimDir::new(1);
        let dir = disk.subdirectory("salvage");
        let mut log = filled(&disk);
        let time = || in_time;
        let bounds = Bounds {
            item_bytes,
            in_time: &time,
        };
        let aside = log.set_aside(Offset(61), &cause(), &dir, bounds).unwrap();
        match (aside.unwrap(), expected) {
            (Aside::OutOfBounds, None) => assert!(items(&dir).unwrap().is_empty()),
            (Aside::Kept(item), Some((end, complete))) => {
                assert!(item.bytes <= item_bytes);
                assert_eq!(item.complete, complete, "{item_bytes}");
                assert!(item.end_offset.0 <= end, "{item_bytes}: {item:?}");
                let contents = Contents::of(&dir, item);
                let summary = contents.summarise().unwrap();
                assert_eq!(summary.damage, None);
                assert!(summary.records > 0);
            }
            (aside, expected) => panic!("{item_bytes}: {aside:?}, not {expected:?}"),
        }
    }
}

#[test]
fn a_full_disk_does_not_stop_the_cut() {
    let disk = SimDir::new(1);
    let dir = disk.subdirectory("salvage");
    let mut log = filled(&disk);
    flush(&mut log);
    disk.set_full(true);
    let aside = log.set_aside(Offset(60), &cause(), &dir, ALWAYS).unwrap();
    assert!(matches!(aside, Some(Aside::Failed(_))), "{aside:?}");
    disk.set_full(false);
    assert_eq!(log.truncate_to(Offset(60)).unwrap(), Offset(60));
    tidy(&dir).unwrap();
    assert!(dir.list().unwrap().is_empty());
}

/// A replica was moved away, came back empty, and was moved away again: the store has one name for both.
#[test]
fn an_item_never_takes_the_place_of_other_records() {
    let disk = SimDir::new(1);
    let dir = disk.subdirectory("salvage");
    let mut log = filled(&disk);
    flush(&mut log);
    let first = kept(log.set_aside(Offset(60), &cause(), &dir, ALWAYS));
    log.truncate_to(Offset(60)).unwrap();
    for batch in 20..40 {
        append(&mut log, &plain(batch * 3), 6);
    }
    flush(&mut log);
    let refused = log.set_aside(Offset(60), &cause(), &dir, ALWAYS).unwrap();
    assert!(matches!(refused, Some(Aside::Failed(_))), "{refused:?}");
    assert_eq!(items(&dir).unwrap(), [first]);
    assert_eq!(dir.list().unwrap().len(), 1, "nothing unfinished is left");
}

/// The whole replica was set aside because it was moved away, twice: what it had the first time is not kept a second time,
/// as far as it is the same.
#[test]
fn a_later_item_begins_where_an_earlier_one_ends_or_parts_from_it() {
    // (what was cut after the first time, epochs of what came then) => where the second item begins
    for (cut, epochs, first) in [
        (90, 6, 90),
        (75, 6, 75),
        // By the leader of the last records of the first.
        (90, 3, 90),
    ] {
        let disk = SimDir::new(1);
        let dir = disk.subdirectory("salvage");
        let mut log = filled(&disk);
        flush(&mut log);
        let end = log.end_offset();
        assert_eq!(end, Offset(90));
        let one = kept(log.set_aside(Offset(0), &cause(), &dir, ALWAYS));
        assert_eq!((one.first_offset, one.end_offset), (Offset(0), end));
        if cut < 90 {
            log.truncate_to(Offset(cut)).unwrap();
        }
        for batch in cut / 3..40 {
            append(&mut log, &plain(batch * 3), epochs);
        }
        flush(&mut log);
        let later = Cause {
            unclean_epoch: LeaderEpoch(9),
            ..cause()
        };
        let two = kept(log.set_aside(Offset(0), &later, &dir, ALWAYS));
        let place = (two.first_offset, two.end_offset, two.complete);
        assert_eq!(place, (Offset(first), Offset(120), true), "cut at {cut}");
        let contents = Contents::of(&dir, two.clone());
        let summary = contents.summarise().unwrap();
        assert_eq!(summary.records, 120 - first as u64);

        // Between them they have all of it.
        let again = log.set_aside(Offset(0), &later, &dir, ALWAYS).unwrap();
        assert!(matches!(again, Some(Aside::KeptBefore(_))), "{again:?}");
    }
}

/// What a bound cut short is made whole by a later try.
#[test]
fn a_longer_item_takes_the_place_of_its_beginning() {
    let disk = SimDir::new(1);
    let dir = disk.subdirectory("salvage");
    let mut log = filled(&disk);
    flush(&mut log);
    let tight = Bounds {
        item_bytes: plain(0).len() as u64 * 2,
        ..ALWAYS
    };
    let short = kept(log.set_aside(Offset(60), &cause(), &dir, tight));
    assert!(!short.complete);
    let whole = kept(log.set_aside(Offset(60), &cause(), &dir, ALWAYS));
    assert!(whole.complete && whole.end_offset > short.end_offset);
    assert_eq!(items(&dir).unwrap(), [whole]);
}

/// A replica sets aside and cuts; the power goes at every single step of it, and again at the second try.
#[test]
fn a_power_cut_at_any_step_leaves_one_item() {
    let cut = Offset(50);
    let mut ended_early = 0;
    for seed in 0..12 {
        for steps in (0..90).step_by(3) {
            let disk = SimDir::new(seed);
            let dir = disk.subdirectory("salvage");
            let mut log = filled(&disk);
            flush(&mut log);
            let before = raw(&log, 48);
            for attempt in 0..2 {
                disk.cut_power_after(steps + attempt * 7);
                let done = log
                    .set_aside(cut, &cause(), &dir, ALWAYS)
                    .and_then(|_| log.truncate_to(cut));
                ended_early += u32::from(done.is_err());
                disk.crash();
                tidy(&dir).unwrap();
                log = open(&disk);
                forget_uncut(&dir, topic_id(), 0, &log).unwrap();
            }
            log.set_aside(cut, &cause(), &dir, ALWAYS).unwrap();
            log.truncate_to(cut).unwrap();
            let found = items(&dir).unwrap();
            let [item] = found.as_slice() else {
                panic!("seed {seed}, {steps} steps: {found:?}");
            };
            assert!(item.complete, "seed {seed}, {steps} steps");
            let contents = Contents::of(&dir, item.clone());
            let summary = contents.summarise().unwrap();
            assert_eq!(summary.damage, None, "seed {seed}, {steps} steps");
            assert_eq!(
                contents.raw(0, before.len() * 2).unwrap(),
                before,
                "seed {seed}, {steps} steps"
            );
            assert_eq!(summary.records, 42);
        }
    }
    assert!(ended_early > 100, "{ended_early}");
}

#[test]
fn what_was_set_aside_and_not_cut_is_forgotten_and_what_was_cut_is_not() {
    let disk = SimDir::new(1);
    let dir = disk.subdirectory("salvage");
    let mut log = filled(&disk);
    flush(&mut log);
    let item = kept(log.set_aside(Offset(60), &cause(), &dir, ALWAYS));
    let again = log.set_aside(Offset(60), &cause(), &dir, ALWAYS).unwrap();
    assert!(matches!(again, Some(Aside::KeptBefore(same)) if same == item));
    // Another unclean election before the cut: still one item.
    let later = Cause {
        unclean_epoch: LeaderEpoch(8),
        ..cause()
    };
    let again = log.set_aside(Offset(60), &later, &dir, ALWAYS).unwrap();
    assert!(matches!(again, Some(Aside::KeptBefore(same)) if same == item));
    let forgotten = forget_uncut(&dir, topic_id(), 0, &log).unwrap();
    assert_eq!(forgotten, [item]);
    assert!(items(&dir).unwrap().is_empty());

    kept(log.set_aside(Offset(60), &cause(), &dir, ALWAYS));
    log.truncate_to(Offset(60)).unwrap();
    assert!(forget_uncut(&dir, topic_id(), 0, &log).unwrap().is_empty());
    // The same offsets again, in another epoch: other records.
    for batch in 20..30 {
        append(&mut log, &plain(batch * 3), 5);
    }
    assert!(forget_uncut(&dir, topic_id(), 0, &log).unwrap().is_empty());
    assert_eq!(items(&dir).unwrap().len(), 1);
}

#[test]
fn only_committed_records_count() {
    let disk = SimDir::new(1);
    let dir = disk.subdirectory("salvage");
    let mut log = open(&disk);
    let one = |producer: i64, sequence: i32, value: &str| {
        BatchBuilder::new(Codec::Zstd)
            .producer(ProducerId(producer), ProducerEpoch(0), Sequence(sequence))
            .transactional()
            .push(Timestamp(1), None, Some(value.as_bytes()), &[])
            .build()
    };
    let marker = |producer: i64, kind| {
        end_marker(
            kind,
            ProducerId(producer),
            ProducerEpoch(0),
            0,
            Timestamp(1),
        )
    };
    let batches = [
        plain(0),
        one(7, 0, "aborted"),
        one(8, 0, "committed"),
        one(7, 1, "aborted too"),
        marker(7, ControlType::Abort),
        marker(8, ControlType::Commit),
        one(7, 2, "committed later"),
        one(9, 0, "without an end"),
        marker(7, ControlType::Commit),
    ];
    // As a follower got them: whole, with their offsets.
    for batch in batches {
        let mut bytes = batch.to_vec();
        let mut patched = BatchMut::parse(&mut bytes).unwrap();
        patched.set_base_offset(log.end_offset());
        patched.set_leader_epoch(LeaderEpoch(1));
        log.append_as_follower(&bytes, LeaderEpoch(1), now())
            .unwrap();
    }
    let item = kept(log.set_aside(Offset(0), &cause(), &dir, ALWAYS));
    let contents = Contents::of(&dir, item);
    let summary = contents.summarise().unwrap();
    assert_eq!(summary.records, 5);
    let seen = values(&contents, &summary, 3);
    let words: Vec<&str> = seen.iter().map(|(_, _, value)| value.as_str()).collect();
    assert_eq!(words, ["committed", "committed later"]);
    let skipped: Vec<(i64, i64, Option<i64>)> = summary
        .skipped
        .iter()
        .map(|skipped| {
            let until = skipped.until.map(|until| until.0);
            (skipped.producer_id.0, skipped.from.0, until)
        })
        .collect();
    assert_eq!(skipped, [(7, 3, Some(6)), (9, 9, None)]);
}

#[test]
fn damage_is_told_and_the_rest_counts() {
    for (flip, records) in [(None, 30), (Some(70), 0), (Some(300), 3)] {
        let disk = SimDir::new(1);
        let dir = disk.subdirectory("salvage");
        let mut log = filled(&disk);
        let item = kept(log.set_aside(Offset(60), &cause(), &dir, ALWAYS));
        log.truncate_to(Offset(60)).unwrap();
        let lost = item.parts[0].bytes / (item.bytes / 10) * 3;
        if let Some(at) = flip {
            let inside = dir.subdirectory(&item.id().to_string());
            let file = inside.open(&item.parts[0].name).unwrap();
            file.write_at(b"\xff\xff\xff", at).unwrap();
        }
        let contents = Contents::of(&dir, item);
        let summary = contents.summarise().unwrap();
        assert_eq!(summary.damage.is_some(), flip.is_some());
        let expected = match flip {
            None => records,
            Some(_) => 30 - lost + records,
        };
        assert_eq!(summary.records, expected, "{flip:?}");
        assert_eq!(
            values(&contents, &summary, 0).len() as u64,
            summary.records,
            "{flip:?}"
        );
    }
}

#[test]
fn a_description_is_read_as_it_was_written_or_not_at_all() {
    let disk = SimDir::new(1);
    let dir = disk.subdirectory("salvage");
    let mut log = filled(&disk);
    let item = kept(log.set_aside(Offset(60), &cause(), &dir, ALWAYS));
    let text = String::from_utf8(item.to_text()).unwrap();
    assert!(text.starts_with("kuorum salvage 1\n{"));
    assert_eq!(Item::from_text(text.as_bytes()), Ok(item.clone()));
    let rows = [
        (
            text.replace("salvage 1", "salvage 2"),
            BadItem::Newer { version: 2 },
        ),
        (text.replace("telemetry", "Telemetry"), BadItem::Damaged),
        (text[..text.len() - 9].to_owned(), BadItem::Damaged),
        (String::new(), BadItem::Damaged),
        ("kuorum salvage 1".to_owned(), BadItem::Damaged),
    ];
    for (bytes, expected) in rows {
        assert_eq!(
            Item::from_text(bytes.as_bytes()),
            Err(expected),
            "{bytes:?}"
        );
        let inside = dir.subdirectory(&item.id().to_string());
        write_atomically(&inside, ITEM, bytes.as_bytes()).unwrap();
        assert!(items(&dir).unwrap().is_empty());
    }
}

/// Somebody may yet repair it, or read it with the program that wrote it.
#[test]
fn an_item_that_cannot_be_read_keeps_its_records_when_its_name_is_needed() {
    for text in ["kuorum salvage 9\n{}\n00000000\n", "something else"] {
        let disk = SimDir::new(1);
        let mut log = filled(&disk);
        flush(&mut log);
        let into = disk.subdirectory(SALVAGE);
        let item = kept(log.set_aside(Offset(60), &cause(), &into, ALWAYS));
        let name = item.id().to_string();
        let mut unreadable = Vec::new();
        for round in 1..=2 {
            write_atomically(&into.subdirectory(&name), ITEM, text.as_bytes()).unwrap();
            let again = kept(log.set_aside(Offset(60), &cause(), &into, ALWAYS));
            assert_eq!(again.id(), item.id());
            tidy(&into).unwrap();
            assert_eq!(items(&into).unwrap(), [again], "{text:?}");
            let entries = into.list().unwrap().into_iter();
            let others = entries.filter(|entry| entry.name != name);
            unreadable = others.map(|entry| entry.name).collect();
            assert_eq!(unreadable.len(), round, "{text:?}: {unreadable:?}");
        }
        for name in unreadable {
            let inside = into.subdirectory(&name);
            assert_eq!(inside.read_file(ITEM).unwrap().unwrap(), text.as_bytes());
            for part in &item.parts {
                let bytes = inside.read_file(&part.name).unwrap().unwrap();
                assert!(bytes.len() as u64 >= part.bytes, "{name}/{}", part.name);
            }
        }
    }
}
