//! What a power cut may take, what it may not, and that failures come as ordered.

use super::*;
use crate::checkpoint::write_atomically;
use crate::log::Known;
use crate::{Log, LogConfig};
use kuorum_protocol::record::Codec;
use kuorum_protocol::record::writer::BatchBuilder;
use kuorum_protocol::{LeaderEpoch, Monotonic, Now, Offset, Timestamp};

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("data")).unwrap();
        Self { folder }
    }

    fn home(&self) -> PathBuf {
        self.folder.path().join("chaos")
    }

    /// The disk, as a process sees it that starts now.
    fn dir(&self) -> ChaosDir {
        ChaosDir::watched(self.folder.path().join("data"), &self.home()).unwrap()
    }

    fn cut(&self, seed: u64) -> PowerCut {
        cut_power(&self.home(), seed, false).unwrap()
    }
}

#[test]
fn a_power_cut_keeps_what_was_synced_and_may_tear_the_rest() {
    let (mut lost, mut kept, mut torn) = (0, 0, 0);
    for seed in 0..60 {
        let place = Place::new();
        let dir = place.dir();
        let file = dir.create_file("f").unwrap();
        file.write_at(&[1; 1000], 0).unwrap();
        file.sync_data().unwrap();
        dir.sync().unwrap();
        file.write_at(&[2; 3000], 1000).unwrap();
        place.cut(seed);
        let bytes = dir.read_file("f").unwrap().unwrap();
        assert_eq!(bytes[..1000], [1; 1000], "seed {seed}");
        match bytes[1000..].iter().filter(|byte| **byte == 2).count() {
            0 => lost += 1,
            3000 => kept += 1,
            _ => torn += 1,
        }
    }
    assert!(lost > 3 && kept > 3 && torn > 3, "{lost} {kept} {torn}");
}

#[test]
fn what_was_cut_off_or_overwritten_without_a_sync_comes_back() {
    let place = Place::new();
    let dir = place.dir();
    let file = dir.create_file("f").unwrap();
    file.write_at(b"0123456789", 0).unwrap();
    file.sync_data().unwrap();
    dir.sync().unwrap();
    file.set_len(4).unwrap();
    file.write_at(b"XX", 2).unwrap();
    file.write_at(b"abcdefghijkl", 4).unwrap();
    let cut = cut_power(&place.home(), 0, true).unwrap();
    assert_eq!((cut.pending, cut.undone), (3, 3));
    assert_eq!(dir.read_file("f").unwrap().unwrap(), b"0123456789");
}

#[test]
fn names_are_durable_after_their_directory_is_synced() {
    let place = Place::new();
    let dir = place.dir();
    dir.create_file("synced").unwrap();
    dir.create_file("old").unwrap().write_at(b"old", 0).unwrap();
    dir.open("old").unwrap().sync_data().unwrap();
    dir.sync().unwrap();
    dir.create_file("new").unwrap().sync_data().unwrap();
    dir.rename("new", "old").unwrap();
    dir.remove("synced").unwrap();
    let below = dir.subdirectory("below");
    assert!(below.create().unwrap());
    below.create_file("deep").unwrap();
    cut_power(&place.home(), 0, true).unwrap();
    let names: Vec<String> = dir.list().unwrap().into_iter().map(|e| e.name).collect();
    assert_eq!(names, ["old", "synced"]);
    assert_eq!(dir.read_file("old").unwrap().unwrap(), b"old");
}

#[test]
fn a_directory_that_was_removed_or_renamed_without_a_sync_comes_back() {
    let place = Place::new();
    let dir = place.dir();
    for name in ["a", "b"] {
        let below = dir.subdirectory(name);
        below.create().unwrap();
        below.sync_parent().unwrap();
        let file = below.create_file("f").unwrap();
        file.write_at(name.as_bytes(), 0).unwrap();
        file.sync_data().unwrap();
        below.sync().unwrap();
    }
    dir.rename("a", "a-delete").unwrap();
    dir.subdirectory("a-delete").remove("f").unwrap();
    dir.remove_all("b").unwrap();
    cut_power(&place.home(), 0, true).unwrap();
    for name in ["a", "b"] {
        let bytes = dir.subdirectory(name).read_file("f").unwrap();
        assert_eq!(bytes.as_deref(), Some(name.as_bytes()));
    }
}

#[test]
fn a_second_name_is_durable_after_its_directory_is_synced() {
    let place = Place::new();
    let dir = place.dir();
    let file = dir.create_file("f").unwrap();
    file.write_at(b"here", 0).unwrap();
    file.sync_data().unwrap();
    dir.sync().unwrap();
    let aside = dir.subdirectory("aside");
    aside.create().unwrap();
    aside.sync_parent().unwrap();
    dir.link("f", &aside, "kept").unwrap();
    aside.sync().unwrap();
    dir.link("f", &aside, "forgotten").unwrap();
    dir.remove("f").unwrap();
    dir.sync().unwrap();
    cut_power(&place.home(), 0, true).unwrap();
    let names = aside.list().unwrap().into_iter();
    assert_eq!(names.map(|entry| entry.name).collect::<Vec<_>>(), ["kept"]);
    assert_eq!(aside.read_file("kept").unwrap().unwrap(), b"here");
}

#[test]
fn a_file_replaced_atomically_is_the_old_or_the_new_one() {
    for seed in 0..40 {
        let place = Place::new();
        let dir = place.dir();
        write_atomically(&dir, "f", b"old").unwrap();
        let temporary = dir.create_file("f.tmp").unwrap();
        temporary.write_at(b"the new one", 0).unwrap();
        temporary.sync_data().unwrap();
        dir.rename("f.tmp", "f").unwrap();
        place.cut(seed);
        let bytes = dir.read_file("f").unwrap().unwrap();
        assert!(
            bytes == b"old" || bytes == b"the new one",
            "seed {seed}: {bytes:?}"
        );
    }
}

#[test]
fn a_killed_process_loses_nothing_and_a_later_cut_still_may() {
    let place = Place::new();
    let dir = place.dir();
    let file = dir.create_file("f").unwrap();
    dir.sync().unwrap();
    file.write_at(b"here", 0).unwrap();
    let boot = dir.boot_id().unwrap();
    let reborn = place.dir();
    assert_eq!(reborn.read_file("f").unwrap().unwrap(), b"here");
    assert_eq!(
        reborn.boot_id().unwrap(),
        boot,
        "the kernel has not restarted"
    );
    reborn.open("f").unwrap().write_at(b"!", 4).unwrap();
    cut_power(&place.home(), 0, true).unwrap();
    assert_eq!(reborn.read_file("f").unwrap().unwrap(), b"");
    assert_ne!(place.dir().boot_id().unwrap(), boot);
    assert_eq!(place.cut(1).pending, 0, "all that is left is durable");
}

#[test]
fn the_same_seed_takes_the_same() {
    let run = |seed| {
        let place = Place::new();
        let dir = place.dir();
        let file = dir.create_file("f").unwrap();
        dir.sync().unwrap();
        for step in 0..20_u8 {
            file.write_at(&[step; 700], u64::from(step) * 700).unwrap();
        }
        let cut = place.cut(seed);
        (cut, dir.read_file("f").unwrap())
    };
    for seed in 0..10 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}

#[test]
fn a_log_keeps_what_it_called_flushed() {
    let now = Now {
        monotonic: Monotonic(Duration::ZERO),
        wall: Timestamp(1),
    };
    for seed in 0..30 {
        let place = Place::new();
        let dir = place.dir().subdirectory("t-0");
        dir.create().unwrap();
        let config = LogConfig {
            segment_bytes: 2_000,
            ..LogConfig::default()
        };
        let (mut log, _) = Log::open(dir, config.clone(), Known::default(), now).unwrap();
        let append = |log: &mut Log<ChaosDir>| {
            let mut batch = BatchBuilder::new(Codec::None)
                .push(Timestamp(1), None, Some(&[7; 300]), &[])
                .build()
                .to_vec();
            log.append_as_leader(&mut batch, LeaderEpoch(3), now)
                .unwrap();
        };
        (0..20).for_each(|_| append(&mut log));
        let job = log.begin_flush().unwrap();
        let result = job.run();
        let flushed = log.finish_flush(job, result).unwrap();
        assert_eq!(flushed, Offset(20));
        (0..15).for_each(|_| append(&mut log));
        drop(log);
        place.cut(seed);
        let dir = place.dir().subdirectory("t-0");
        let (log, recovery) = Log::open(dir, config, Known::default(), now).unwrap();
        assert!(log.end_offset() >= flushed, "seed {seed}: {recovery:?}");
        assert!(recovery.corruption.is_none(), "seed {seed}: {recovery:?}");
    }
}

#[test]
fn failures_are_as_ordered() {
    let place = Place::new();
    let dir = place.dir();
    let file = dir.create_file("f").unwrap();
    let other = dir.create_file("other").unwrap();
    let faults = place.home().join(FAULTS);
    fs::write(&faults, "write data/f enospc\nsync data/f eio\n").unwrap();
    let full = file.write_at(b"x", 0).unwrap_err();
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    assert!(file.sync_data().is_err());
    other.write_at(b"x", 0).unwrap();
    fs::write(&faults, "write data/f short").unwrap();
    assert!(file.write_at(b"1234", 0).is_err());
    assert_eq!(file.len().unwrap(), 2);
    fs::remove_file(&faults).unwrap();
    file.write_at(b"1234", 0).unwrap();
    for bad in [
        "",
        "write x",
        "write x eio more",
        "look x eio",
        "sync * delay=soon",
    ] {
        assert_eq!(Fault::parse(bad), None, "{bad:?}");
    }
}
