//! Stories of a broker's directories.

use kuorum_protocol::LeaderEpoch;
use kuorum_protocol::Timestamp;
use kuorum_protocol::record::{BatchBuilder, BatchView, Codec};
use uuid::Uuid;

use super::*;
use crate::dir::RealDir;
use crate::error::AppendError;
use crate::sim_dir::SimDir;

const TOPIC: TopicId = TopicId(Uuid::from_u128(5));

fn formatted(disk: &SimDir, names: &[&str]) -> Vec<SimDir> {
    let dirs: Vec<SimDir> = names.iter().map(|name| disk.subdirectory(name)).collect();
    for (number, dir) in dirs.iter().enumerate() {
        let id = DirectoryId(Uuid::from_u128(number as u128 + 1));
        LogDirs::format(dir, "cluster", 1, id).unwrap();
    }
    dirs
}

fn open(dirs: &[SimDir]) -> LogDirs<SimDir> {
    LogDirs::open(dirs.to_vec(), "cluster", 1).unwrap()
}

fn create(dirs: &LogDirs<SimDir>, topic: &str, partition: i32) -> (DirectoryId, Log<SimDir>) {
    dirs.create_log(
        topic,
        partition,
        TOPIC,
        LogConfig::default(),
        Now::default(),
    )
    .unwrap()
}

fn append(log: &mut Log<SimDir>) -> Result<(), AppendError> {
    let batch = BatchBuilder::new(Codec::None).push(Timestamp(1), None, Some(b"value"), &[]);
    let mut bytes = batch.build().to_vec();
    log.append_as_leader(&mut bytes, LeaderEpoch(0), Now::default())
        .map(|_| ())
}

fn flush(log: &mut Log<SimDir>) -> Result<Offset, LogError> {
    let job = log.begin_flush().unwrap();
    let result = job.run();
    log.finish_flush(job, result)
}

#[test]
fn a_directory_must_be_formatted_ours_and_free() {
    let disk = SimDir::new(1);
    let dir = disk.subdirectory("a");
    let refused =
        |cluster: &str, node| LogDirs::open(vec![dir.clone()], cluster, node).unwrap_err();
    assert!(matches!(
        refused("cluster", 1),
        LogDirsError::Unformatted { .. }
    ));
    dir.create().unwrap();
    assert!(matches!(
        refused("cluster", 1),
        LogDirsError::Unformatted { .. }
    ));
    let id = DirectoryId(Uuid::from_u128(1));
    LogDirs::format(&dir, "cluster", 1, id).unwrap();
    LogDirs::format(&dir, "cluster", 1, DirectoryId(Uuid::from_u128(2))).unwrap();
    assert!(LogDirs::format(&dir, "other", 1, id).is_err());
    assert!(matches!(refused("other", 1), LogDirsError::Foreign { .. }));
    assert!(matches!(
        refused("cluster", 2),
        LogDirsError::Foreign { .. }
    ));
    let open = LogDirs::open(vec![dir.clone()], "cluster", 1).unwrap();
    assert_eq!(
        open.directories(),
        vec![(id, true)],
        "its first identity stays"
    );
    assert!(matches!(refused("cluster", 1), LogDirsError::Locked { .. }));
    drop(open);
    LogDirs::open(vec![dir.clone()], "cluster", 1).unwrap();
}

#[test]
fn what_was_flushed_is_found_after_a_power_cut() {
    for seed in 0..50 {
        let disk = SimDir::new(seed);
        let dirs = formatted(&disk, &["a"]);
        let open_dirs = open(&dirs);
        let (id, mut log) = create(&open_dirs, "a-topic", 3);
        append(&mut log).unwrap();
        flush(&mut log).unwrap();
        let point = vec![("a-topic".to_owned(), 3, log.flushed_end())];
        open_dirs.checkpoint_recovery_points(id, &point).unwrap();
        drop(open_dirs);
        disk.crash();
        let open_dirs = open(&dirs);
        assert!(!open_dirs.was_clean() && !open_dirs.same_boot());
        let [found] = open_dirs.found() else {
            panic!("seed {seed}: {:?}", open_dirs.found())
        };
        assert_eq!(
            (found.topic.as_str(), found.partition, found.topic_id),
            ("a-topic", 3, Some(TOPIC))
        );
        assert_eq!(found.known.recovery_point, Offset(1));
        let (log, recovery) = open_dirs
            .open_log(found, LogConfig::default(), Now::default())
            .unwrap();
        assert_eq!((log.end_offset(), recovery.corruption), (Offset(1), None));
    }
}

/// Every batch from the log's start on.
fn everything(log: &Log<SimDir>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut at = log.start_offset();
    while at < log.end_offset() {
        let read = log.read(at, log.end_offset(), 1, true).unwrap();
        let batch = BatchView::parse(&read).unwrap();
        assert!(batch.crc_is_valid());
        at = batch.next_offset();
        bytes.extend_from_slice(&read);
    }
    bytes
}

/// D5: a directory's checkpoint that is lost or garbage says nothing: more of the log is read at the start, and where it begins
/// its own mark knows. No flushed record goes, none that was deleted comes back, and nothing is called damaged. The high
/// watermark of a follower that knows none is the leader's to tell; a leader counts it anew.
#[test]
fn a_checkpoint_that_is_gone_or_garbage_takes_no_record() {
    // What is left of the file; `None` if it is not there any more.
    type Harm = fn(Vec<u8>) -> Option<Vec<u8>>;
    let harms: [(&str, Harm); 6] = [
        ("removed", |_| None),
        ("emptied", |_| Some(Vec::new())),
        ("zeroed", |bytes| Some(vec![0; bytes.len()])),
        ("cut in half", |bytes| {
            Some(bytes[..bytes.len() / 2].to_vec())
        }),
        ("garbage", |bytes| Some(vec![0xa7; bytes.len()])),
        ("of another version", |bytes| {
            Some([&b"7"[..], &bytes[1..]].concat())
        }),
    ];
    let ends = ["a kill", "a power cut", "an orderly shutdown"];
    let names = [RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS];
    let victims = [&names[..1], &names[1..2], &names[2..], &names[..]];
    for (how, harm) in harms {
        for end in ends {
            for victims in victims {
                let story = format!("{victims:?} {how} after {end}");
                let disk = SimDir::new(1);
                let dirs = formatted(&disk, &["a"]);
                let open_dirs = open(&dirs);
                let (id, mut log) = create(&open_dirs, "t", 0);
                for _ in 0..6 {
                    append(&mut log).unwrap();
                }
                flush(&mut log).unwrap();
                log.advance_start(Offset(2)).unwrap();
                let written = everything(&log);
                let line = |offset| vec![("t".to_owned(), 0, Offset(offset))];
                open_dirs.checkpoint_recovery_points(id, &line(6)).unwrap();
                open_dirs.checkpoint_log_starts(id, &line(2)).unwrap();
                open_dirs.checkpoint_high_watermarks(id, &line(5)).unwrap();
                match end {
                    "a kill" => {
                        drop((open_dirs, log));
                        disk.kill();
                    }
                    "a power cut" => {
                        drop((open_dirs, log));
                        disk.crash();
                    }
                    _ => {
                        log.close().unwrap();
                        open_dirs.close().unwrap();
                    }
                }
                for name in victims {
                    let bytes = dirs[0].read_file(name).unwrap().unwrap();
                    match harm(bytes) {
                        Some(bytes) => write_atomically(&dirs[0], name, &bytes).unwrap(),
                        None => dirs[0].remove(name).unwrap(),
                    }
                }

                let open_dirs = open(&dirs);
                let [found] = open_dirs.found() else {
                    panic!("{story}: {:?}", open_dirs.found())
                };
                let known = found.known;
                let known = [known.recovery_point, known.log_start, known.high_watermark];
                for ((name, known), kept) in names.iter().zip(known).zip([6, 2, 5]) {
                    let left = if victims.contains(name) { 0 } else { kept };
                    assert_eq!(known, Offset(left), "{story}: {name}");
                }
                let opened = open_dirs.open_log(found, LogConfig::default(), Now::default());
                let (mut log, recovery) = opened.expect(&story);
                assert_eq!(
                    (recovery.corruption, recovery.torn),
                    (None, None),
                    "{story}"
                );
                let place = (log.start_offset(), log.end_offset());
                assert_eq!(place, (Offset(2), Offset(6)), "{story}");
                assert_eq!(everything(&log), written, "{story}");

                // What the next checkpoint says counts again.
                append(&mut log).unwrap();
                flush(&mut log).unwrap();
                open_dirs.checkpoint_recovery_points(id, &line(7)).unwrap();
                open_dirs.checkpoint_log_starts(id, &line(2)).unwrap();
                open_dirs.checkpoint_high_watermarks(id, &line(7)).unwrap();
                drop((open_dirs, log));
                disk.kill();
                let known = open(&dirs).found()[0].known;
                let known = (known.recovery_point, known.log_start, known.high_watermark);
                assert_eq!(known, (Offset(7), Offset(2), Offset(7)), "{story}");
            }
        }
    }
}

#[test]
fn the_mark_of_an_orderly_shutdown_is_read_once() {
    let disk = SimDir::new(1);
    let dirs = formatted(&disk, &["a"]);
    let open_dirs = open(&dirs);
    let (_, mut log) = create(&open_dirs, "t", 0);
    append(&mut log).unwrap();
    log.close().unwrap();
    open_dirs.close().unwrap();
    let open_dirs = open(&dirs);
    assert!(open_dirs.was_clean() && open_dirs.same_boot());
    assert!(open_dirs.found()[0].known.clean);
    drop(open_dirs);
    disk.kill();
    let open_dirs = open(&dirs);
    assert!(!open_dirs.was_clean(), "it was not closed this time");
    // KAFKA-15375: a log that nobody opened was not made clean by a shutdown.
    open_dirs.close().unwrap();
    let open_dirs = open(&dirs);
    assert!(!open_dirs.was_clean());
    let (log, _) = open_dirs
        .open_log(&open_dirs.found()[0], LogConfig::default(), Now::default())
        .unwrap();
    log.close().unwrap();
    open_dirs.close().unwrap();
    assert!(open(&dirs).was_clean());
}

#[test]
fn the_kernel_that_booted_is_remembered() {
    let disk = SimDir::new(1);
    let dirs = formatted(&disk, &["a"]);
    drop(open(&dirs));
    disk.kill();
    assert!(open(&dirs).same_boot());
    disk.crash();
    assert!(!open(&dirs).same_boot());
}

#[test]
fn one_failing_directory_takes_only_its_own_partitions() {
    let disk = SimDir::new(1);
    let dirs = formatted(&disk, &["a", "b"]);
    let open_dirs = open(&dirs);
    let mut logs: Vec<(DirectoryId, Log<SimDir>)> = (0..4)
        .map(|partition| create(&open_dirs, "t", partition))
        .collect();
    let ids: Vec<u128> = logs.iter().map(|(id, _)| id.0.as_u128()).collect();
    assert_eq!(ids, vec![1, 2, 1, 2], "spread evenly");
    append(&mut logs[0].1).unwrap();
    disk.fail_next_sync();
    assert!(matches!(flush(&mut logs[0].1), Err(LogError::Storage(_))));
    assert!(
        matches!(append(&mut logs[2].1), Err(AppendError::Storage(_))),
        "same directory"
    );
    append(&mut logs[1].1).unwrap();
    append(&mut logs[3].1).unwrap();
    let (one, two) = (
        DirectoryId(Uuid::from_u128(1)),
        DirectoryId(Uuid::from_u128(2)),
    );
    assert_eq!(open_dirs.directories(), vec![(one, false), (two, true)]);
    assert!(open_dirs.failure(one).is_some() && open_dirs.failure(two).is_none());
    assert_eq!(create(&open_dirs, "t", 4).0, two);
    assert!(open_dirs.checkpoint_log_starts(one, &[]).is_err());
    open_dirs.checkpoint_log_starts(two, &[]).unwrap();
}

#[test]
fn a_directory_is_known_by_its_path_whichever_others_could_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let dirs: Vec<RealDir> = ["one", "two"].map(|name| RealDir::new(path(name))).into();
    for (dir, id) in dirs.iter().zip(1..) {
        LogDirs::format(dir, "c", 1, DirectoryId(Uuid::from_u128(id))).unwrap();
    }
    let at = |dirs: &[&RealDir], name: &str| {
        let dirs = dirs.iter().map(|dir| (*dir).clone()).collect();
        let opened = LogDirs::open(dirs, "c", 1).unwrap();
        opened.directory_at(&path(name).display().to_string())
    };
    let id = |number| Some((DirectoryId(Uuid::from_u128(number)), true));
    let [one, two] = [&dirs[0], &dirs[1]];
    assert_eq!(at(&[two, one], "one"), id(1), "in another order");
    assert_eq!(at(&[two], "two"), id(2));
    assert_eq!(at(&[two], "one"), None, "no longer named");
    // A disk that is not there any more.
    std::fs::remove_dir_all(path("one")).unwrap();
    std::fs::write(path("one"), "no directory").unwrap();
    assert_eq!(at(&[one, two], "two"), id(2));
    assert_eq!(at(&[one, two], "one"), None);
}

#[test]
fn a_partition_is_deleted_in_one_step_and_its_name_is_free() {
    let disk = SimDir::new(1);
    let dirs = formatted(&disk, &["a"]);
    let open_dirs = open(&dirs);
    let (id, mut log) = create(&open_dirs, "t", 0);
    append(&mut log).unwrap();
    flush(&mut log).unwrap();
    let again = open_dirs.create_log("t", 0, TOPIC, LogConfig::default(), Now::default());
    assert!(again.is_err(), "it is there already");
    assert_eq!(open_dirs.directories(), vec![(id, true)]);
    open_dirs.remove_log("t", 0, TOPIC, id).unwrap();
    create(&open_dirs, "t", 0);
}

#[test]
fn what_is_left_of_an_older_topic_gives_way() {
    let disk = SimDir::new(1);
    let dirs = formatted(&disk, &["a"]);
    let open_dirs = open(&dirs);
    let (id, mut log) = create(&open_dirs, "t", 0);
    append(&mut log).unwrap();
    flush(&mut log).unwrap();
    let newer = TopicId(Uuid::from_u128(6));
    let made = open_dirs.create_log("t", 0, newer, LogConfig::default(), Now::default());
    assert_eq!(made.unwrap().1.end_offset(), Offset(0));
    // The removal of the older one comes late, and must not take the newer one's log for it.
    open_dirs.remove_log("t", 0, TOPIC, id).unwrap();
    assert_eq!(
        topic_id_of(&dirs[0].subdirectory("t-0")).unwrap(),
        Some(newer)
    );
    open_dirs.remove_log("t", 0, newer, id).unwrap();
    open_dirs.remove_log("t", 0, newer, id).unwrap();
    dirs[0].subdirectory("t-0.9-delete").create().unwrap();
    dirs[0].subdirectory("t-1").create().unwrap();
    drop(open_dirs);
    let open_dirs = open(&dirs);
    assert_eq!(open_dirs.found().len(), 1);
    assert_eq!(open_dirs.found()[0].topic_id, None);
    create(&open_dirs, "t", 1);
    let names: Vec<String> = dirs[0]
        .list()
        .unwrap()
        .into_iter()
        .map(|entry| entry.name)
        .collect();
    let kept: Vec<&String> = names.iter().filter(|name| name.starts_with("t-")).collect();
    assert_eq!(kept, ["t-1", "t-1.0-stray"]);
}

#[test]
fn a_log_put_astray_is_kept_and_never_opened() {
    let disk = SimDir::new(1);
    let dirs = formatted(&disk, &["a"]);
    let open_dirs = open(&dirs);
    let (id, mut log) = create(&open_dirs, "t", 0);
    append(&mut log).unwrap();
    flush(&mut log).unwrap();
    drop(log);
    let stray = open_dirs.put_astray("t", 0, TOPIC, id).unwrap().unwrap();
    assert_eq!(open_dirs.put_astray("t", 0, TOPIC, id).unwrap(), None);
    disk.crash();
    drop(open_dirs);
    let open_dirs = open(&dirs);
    assert_eq!(open_dirs.found().len(), 0);
    let kept = dirs[0].subdirectory(&stray);
    assert_eq!(topic_id_of(&kept).unwrap(), Some(TOPIC));
}

#[test]
fn names_of_directories() {
    let rows = [
        ("t-0", Some(("t", 0))),
        ("a-b-12", Some(("a-b", 12))),
        ("t-0.1-delete", None),
        ("t-1.0-stray", None),
        ("t", None),
        ("-1", None),
        ("t--1", Some(("t-", 1))),
        ("t-99999999999", None),
    ];
    for (name, parsed) in rows {
        assert_eq!(parse_directory_name(name), parsed, "{name}");
    }
}

#[test]
fn new_partitions_cost_a_bounded_number_of_flushes() {
    let disk = SimDir::new(1);
    let dirs = formatted(&disk, &["a"]);
    let open_dirs = open(&dirs);
    let before = disk.sync_count();
    let mut logs: Vec<Log<SimDir>> = (0..50)
        .map(|partition| create(&open_dirs, "t", partition).1)
        .collect();
    for log in &mut logs {
        log.assign_epoch(LeaderEpoch(0), Offset(0));
    }
    assert_eq!(
        disk.sync_count(),
        before,
        "making and leading them costs none"
    );
    append(&mut logs[0]).unwrap();
    flush(&mut logs[0]).unwrap();
    let first = disk.sync_count() - before;
    append(&mut logs[0]).unwrap();
    flush(&mut logs[0]).unwrap();
    // The mark of the log's start among them.
    assert_eq!((first, disk.sync_count() - before - first), (6, 1));
}

/// Whoever was told of a log takes its absence for a loss, so it must be there after a power cut although nothing was written.
#[test]
fn an_empty_log_that_is_named_outlasts_a_power_cut() {
    type Way = fn(&SimDir, &[SimDir], LogDirs<SimDir>, Log<SimDir>) -> Log<SimDir>;
    let ways: [(&str, Way); 3] = [
        ("flushed", |_, _, _, mut log| {
            flush(&mut log).unwrap();
            log
        }),
        ("begun anew", |_, _, _, mut log| {
            log.reset_to(Offset(7)).unwrap();
            log
        }),
        ("opened again", |disk, dirs, open_dirs, log| {
            drop((open_dirs, log));
            disk.kill();
            let open_dirs = open(dirs);
            let found = &open_dirs.found()[0];
            let opened = open_dirs.open_log(found, LogConfig::default(), Now::default());
            let mut log = opened.unwrap().0;
            assert!(!log.is_named(), "nobody knows how far the process got");
            flush(&mut log).unwrap();
            log
        }),
    ];
    for (way, make) in ways {
        for seed in 0..20 {
            let disk = SimDir::new(seed);
            let dirs = formatted(&disk, &["a"]);
            let open_dirs = open(&dirs);
            let (_, log) = create(&open_dirs, "t", 0);
            assert!(!log.is_named());
            assert!(make(&disk, &dirs, open_dirs, log).is_named(), "{way}");
            disk.crash();
            let open_dirs = open(&dirs);
            let ids: Vec<_> = open_dirs.found().iter().map(|log| log.topic_id).collect();
            assert_eq!(ids, [Some(TOPIC)], "{way}, seed {seed}");
        }
    }
}

/// A power cut may leave a directory without the file that says whose it is; the log that was made in its place counts.
#[test]
fn a_log_without_a_topic_stands_in_the_way_of_none() {
    let disk = SimDir::new(1);
    let dirs = formatted(&disk, &["a", "b"]);
    drop(create(&open(&dirs[1..]), "t", 0));
    disk.kill();
    dirs[0].subdirectory("t-0").create().unwrap();
    let open_dirs = open(&dirs);
    let with_topic = open_dirs.found().iter();
    let with_topic: Vec<_> = with_topic
        .filter(|found| found.topic_id.is_some())
        .map(|found| found.dir.path())
        .collect();
    assert_eq!(with_topic, ["/b/t-0"]);
}

/// Checkpoints name a topic and a partition, and outlive a topic if they cannot be written when it is deleted.
#[test]
fn what_checkpoints_say_of_a_deleted_topic_is_not_said_of_the_next_one_of_its_name() {
    for seed in 0..20 {
        for killed in [true, false] {
            for restarted in [true, false] {
                let disk = SimDir::new(seed);
                let dirs = formatted(&disk, &["a"]);
                let mut open_dirs = open(&dirs);
                let (id, mut log) = create(&open_dirs, "a-topic", 3);
                for _ in 0..100 {
                    append(&mut log).unwrap();
                }
                flush(&mut log).unwrap();
                let line = |offset| vec![("a-topic".to_owned(), 3, Offset(offset))];
                open_dirs
                    .checkpoint_recovery_points(id, &line(100))
                    .unwrap();
                open_dirs.checkpoint_log_starts(id, &line(50)).unwrap();
                open_dirs.checkpoint_high_watermarks(id, &line(90)).unwrap();
                if restarted {
                    drop((log, open_dirs));
                    disk.kill();
                    open_dirs = open(&dirs);
                }
                open_dirs.remove_log("a-topic", 3, TOPIC, id).unwrap();
                let config = LogConfig::default();
                let next = TopicId(Uuid::from_u128(6));
                let made = open_dirs.create_log("a-topic", 3, next, config, Now::default());
                let (_, mut log) = made.unwrap();
                for _ in 0..3 {
                    append(&mut log).unwrap();
                }
                flush(&mut log).unwrap();
                drop((log, open_dirs));
                if killed {
                    disk.kill();
                } else {
                    disk.crash();
                }
                let open_dirs = open(&dirs);
                let [found] = open_dirs.found() else {
                    panic!("seed {seed}: {:?}", open_dirs.found())
                };
                let (log, recovery) = open_dirs
                    .open_log(found, LogConfig::default(), Now::default())
                    .unwrap();
                let row = format!("seed {seed}, killed: {killed}, restarted: {restarted}");
                assert_eq!(recovery.corruption, None, "{row}");
                let bounds = (log.start_offset(), log.end_offset());
                assert_eq!(bounds, (Offset(0), Offset(3)), "{row}");
                let high_watermark = recovery.high_watermark(found.known.high_watermark);
                assert_eq!(high_watermark, Offset(0), "{row}");
            }
        }
    }
}
