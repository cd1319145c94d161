//! What both the disk and its twin must do: one suite, run by each; and what only the twin can show.

use super::*;
use crate::any_dir::AnyDir;
use crate::checkpoint::write_atomically;
use crate::sim_dir::SimDir;

fn conformance<D: Dir>(root: &D) {
    let dir = root.subdirectory("a").subdirectory("b");
    assert!(!dir.exists().unwrap());
    assert_eq!(dir.open("f").unwrap_err().kind(), io::ErrorKind::NotFound);
    assert!(dir.create().unwrap());
    assert!(!dir.create().unwrap(), "it is there already");
    assert!(dir.exists().unwrap());
    dir.sync_parent().unwrap();
    assert!(dir.path().ends_with("a/b"));

    let file = dir.create_file("f").unwrap();
    file.write_at(b"hello", 3).unwrap();
    assert_eq!(file.len().unwrap(), 8);
    let mut buf = [1; 10];
    assert_eq!(file.read_full_at(&mut buf, 0).unwrap(), 8);
    assert_eq!(&buf[..8], b"\0\0\0hello");
    assert_eq!(file.read_at(&mut buf, 8).unwrap(), 0, "the end");
    assert_eq!(file.read_at(&mut buf, 100).unwrap(), 0, "beyond the end");
    for (wanted, at, there) in [
        (8, 0, &b"\0\0\0hello"[..]),
        (3, 4, b"ell"),
        (100, 3, b"hello"),
        (5, 8, b""),
        (0, 3, b""),
    ] {
        assert_eq!(file.read_up_to(wanted, at).unwrap(), there, "from {at}");
    }
    file.set_len(4).unwrap();
    file.allocate(6).unwrap();
    file.allocate(2).unwrap();
    assert_eq!(
        dir.read_file("f").unwrap().unwrap(),
        b"\0\0\0h",
        "reserving changes no byte"
    );
    file.sync_data().unwrap();
    dir.sync().unwrap();

    let other = dir.open("f").unwrap();
    other.write_at(b"x", 0).unwrap();
    file.read_full_at(&mut buf[..1], 0).unwrap();
    assert_eq!(buf[0], b'x', "one file, two handles");
    assert_eq!(
        dir.create_file("f").unwrap().len().unwrap(),
        0,
        "creating empties"
    );
    dir.rename("f", "g").unwrap();
    assert_eq!(dir.open("f").unwrap_err().kind(), io::ErrorKind::NotFound);
    dir.create_file("f").unwrap();
    dir.rename("f", "g").unwrap();
    assert_eq!(
        dir.rename("f", "g").unwrap_err().kind(),
        io::ErrorKind::NotFound
    );
    dir.subdirectory("c").create().unwrap();
    let names: Vec<(String, bool)> = dir
        .list()
        .unwrap()
        .into_iter()
        .map(|entry| (entry.name, entry.is_dir))
        .collect();
    assert_eq!(names, [("c".to_owned(), true), ("g".to_owned(), false)]);
    assert_eq!(dir.read_file("nothing").unwrap(), None);

    write_atomically(&dir, "g", b"new").unwrap();
    assert_eq!(dir.read_file("g").unwrap().unwrap(), b"new");
    dir.remove("g").unwrap();
    assert_eq!(dir.remove("g").unwrap_err().kind(), io::ErrorKind::NotFound);
    dir.subdirectory("c").create_file("deep").unwrap();
    dir.remove_all("c").unwrap();
    assert!(dir.list().unwrap().is_empty());

    let aside = dir.subdirectory("aside");
    aside.create().unwrap();
    write_atomically(&dir, "f", b"both").unwrap();
    dir.link("f", &aside, "g").unwrap();
    let taken = dir.link("f", &aside, "g").unwrap_err().kind();
    assert_eq!(taken, io::ErrorKind::AlreadyExists);
    dir.remove("f").unwrap();
    let gone = dir.link("f", &aside, "h").unwrap_err().kind();
    assert_eq!(gone, io::ErrorKind::NotFound);
    assert_eq!(aside.read_file("g").unwrap().unwrap(), b"both");

    let lock = dir.lock(".lock").unwrap().unwrap();
    assert!(dir.lock(".lock").unwrap().is_none(), "held");
    drop(lock);
    assert!(dir.lock(".lock").unwrap().is_some());
    assert_eq!(dir.boot_id().unwrap(), root.boot_id().unwrap());
}

#[test]
fn the_disk_conforms() {
    let temporary = tempfile::tempdir().unwrap();
    conformance(&RealDir::new(temporary.path()));
    let temporary = tempfile::tempdir().unwrap();
    conformance(&AnyDir::new(RealDir::new(temporary.path())));
    conformance(&AnyDir::new(SimDir::new(1)));
}

#[test]
fn the_twin_conforms() {
    for seed in 0..10 {
        conformance(&SimDir::new(seed));
    }
}

#[test]
fn a_power_cut_keeps_what_was_synced_and_may_tear_the_rest() {
    let (mut lost, mut kept, mut torn) = (0, 0, 0);
    for seed in 0..300 {
        let dir = SimDir::new(seed);
        let file = dir.create_file("f").unwrap();
        file.write_at(&[1; 1000], 0).unwrap();
        file.sync_data().unwrap();
        dir.sync().unwrap();
        file.write_at(&[2; 3000], 1000).unwrap();
        dir.crash();
        assert!(file.len().is_err(), "a handle does not outlive the power");
        let bytes = dir.read_file("f").unwrap().unwrap();
        assert_eq!(bytes[..1000], [1; 1000]);
        match bytes[1000..].iter().filter(|byte| **byte == 2).count() {
            0 => lost += 1,
            3000 => kept += 1,
            _ => torn += 1,
        }
    }
    assert!(lost > 20 && kept > 20 && torn > 20, "{lost} {kept} {torn}");
}

#[test]
fn a_name_is_durable_after_the_directory_is_synced() {
    let (mut lost, mut kept) = (0, 0);
    for seed in 0..100 {
        let dir = SimDir::new(seed);
        dir.create_file("synced").unwrap();
        dir.sync().unwrap();
        dir.create_file("new").unwrap().sync_data().unwrap();
        dir.crash();
        assert!(dir.open("synced").is_ok());
        if dir.open("new").is_ok() {
            kept += 1
        } else {
            lost += 1
        }
    }
    assert!(lost > 10 && kept > 10);
}

#[test]
fn a_file_replaced_atomically_is_the_old_or_the_new_one() {
    for seed in 0..100 {
        for steps in 0..6 {
            let dir = SimDir::new(seed);
            write_atomically(&dir, "f", b"old").unwrap();
            dir.cut_power_after(steps);
            let done = write_atomically(&dir, "f", b"the new one").is_ok();
            dir.crash();
            let bytes = dir.read_file("f").unwrap().unwrap();
            assert!(
                bytes == b"the new one" || (!done && bytes == b"old"),
                "{seed} {steps}"
            );
        }
    }
}

#[test]
fn a_killed_process_loses_nothing_but_its_handles() {
    let dir = SimDir::new(1);
    let file = dir.create_file("f").unwrap();
    file.write_at(b"here", 0).unwrap();
    let _lock = dir.lock("l").unwrap().unwrap();
    dir.kill();
    assert!(file.sync_data().is_err());
    assert_eq!(dir.read_file("f").unwrap().unwrap(), b"here");
    assert!(dir.lock("l").unwrap().is_some());
    assert_eq!(dir.boot_id().unwrap(), "boot-0");
}

#[test]
fn failures_are_as_ordered() {
    let dir = SimDir::new(1);
    let file = dir.create_file("f").unwrap();
    dir.fail_next_write();
    assert!(file.write_at(b"x", 0).is_err());
    file.write_at(b"x", 0).unwrap();
    dir.fail_next_sync();
    assert!(file.sync_data().is_err());
    file.sync_data().unwrap();
    dir.set_full(true);
    assert_eq!(
        file.write_at(b"xy", 0).unwrap_err().kind(),
        io::ErrorKind::StorageFull
    );
    file.write_at(b"y", 0).unwrap();
    assert!(file.allocate(10).is_err());
    dir.set_full(false);
    file.write_at(b"xy", 0).unwrap();
}
