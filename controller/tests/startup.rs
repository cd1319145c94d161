//! What the program says when it cannot start: one line, and what to do.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

struct Home {
    dir: TempDir,
}

impl Home {
    fn new() -> Self {
        Self {
            dir: TempDir::new().expect("a temporary directory"),
        }
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Writes a valid file, then `changes` over it; returns where it is.
    fn file(&self, changes: &[(&str, &str)]) -> PathBuf {
        let data = self.data();
        let mut values = vec![
            ("node.id", "1"),
            ("controller.quorum.voters", "1@127.0.0.1:1"),
            ("controller.listener", "127.0.0.1:0"),
            ("admin.listener", "127.0.0.1:0"),
            ("metadata.log.dir", data.to_str().expect("a plain path")),
        ];
        values.retain(|(key, _)| !changes.iter().any(|(changed, _)| changed == key));
        values.extend(changes);
        let lines = values.iter().map(|(key, value)| format!("{key}={value}\n"));
        let path = self.dir.path().join("controller.properties");
        fs::write(&path, lines.collect::<String>()).expect("written");
        path
    }
}

fn controller(arguments: &[&str], config: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kuorum-controller"))
        .args(arguments)
        .arg("--config")
        .arg(config)
        .output()
        .expect("the program runs")
}

fn format(config: &Path, cluster: &str) -> Output {
    controller(&["format", "--cluster-id", cluster], config)
}

/// That it gives up with one line, which says all this.
#[track_caller]
fn complains(output: &Output, words: &[&str]) {
    assert!(!output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = said
        .lines()
        .filter(|line| line.starts_with("kuorum-controller: "))
        .collect();
    let [line] = lines[..] else {
        panic!("one line: {said}");
    };
    for word in words {
        assert!(line.contains(word), "{line:?} should say {word:?}");
    }
}

#[test]
fn configuration() {
    let home = Home::new();
    type Changes<'a> = &'a [(&'a str, &'a str)];
    let rows: [(Changes<'_>, &[&str]); 4] = [
        (
            &[("min.insync.replica", "1")],
            &["min.insync.replica", "min.insync.replicas"],
        ),
        (&[("node.id", "one")], &["node.id"]),
        (
            &[("unclean.leader.election.enable", "maybe")],
            &["unclean.leader.election.enable"],
        ),
        (
            &[("admin.listener", "0.0.0.0:0")],
            &["admin.listener", "admin.allow.unauthenticated"],
        ),
    ];
    for (changes, words) in rows {
        let config = home.file(changes);
        complains(&controller(&["run"], &config), words);
    }
    let nowhere = home.dir.path().join("nowhere.properties");
    complains(
        &controller(&["run"], &nowhere),
        &["nowhere.properties", "cannot read"],
    );
}

#[test]
fn directories() {
    let home = Home::new();
    let config = home.file(&[]);
    complains(
        &controller(&["run"], &config),
        &["not formatted", "kuorum-controller format"],
    );
    assert!(format(&config, "one").status.success());
    let again = format(&config, "one");
    assert!(
        again.status.success(),
        "formatting twice changes nothing: {again:?}"
    );
    complains(&format(&config, "two"), &["belongs to", "one"]);
    let renamed = home.file(&[
        ("node.id", "2"),
        ("controller.quorum.voters", "2@127.0.0.1:1"),
    ]);
    complains(
        &controller(&["run"], &renamed),
        &["belongs to controller 1", "metadata.log.dir"],
    );

    let file = home.dir.path().join("a-file");
    fs::write(&file, "").expect("written");
    let config = home.file(&[("metadata.log.dir", file.to_str().expect("a plain path"))]);
    complains(&format(&config, "one"), &["a-file"]);
}

#[test]
fn ports() {
    let home = Home::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("bound").to_string();
    let config = home.file(&[]);
    assert!(format(&config, "one").status.success());
    for listener in ["controller.listener", "admin.listener"] {
        let config = home.file(&[(listener, &address)]);
        complains(&controller(&["run"], &config), &[&address, listener]);
    }
}
