//! What the program says when it cannot start: one line, and what to do.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use kuorum_metadata::rpc::{Reply, RpcError};
use kuorum_protocol::error_code::ErrorCode;
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
            ("listeners", "CLIENT://127.0.0.1:0,INTERNAL://127.0.0.1:0"),
            (
                "advertised.listeners",
                "CLIENT://127.0.0.1:9092,INTERNAL://127.0.0.1:9102",
            ),
            ("http.listener", "127.0.0.1:0"),
            ("log.dirs", data.to_str().expect("a plain path")),
        ];
        values.retain(|(key, _)| !changes.iter().any(|(changed, _)| changed == key));
        values.extend(changes);
        let text: String = values
            .iter()
            .map(|(key, value)| format!("{key}={value}\n"))
            .collect();
        let path = self.dir.path().join("broker.properties");
        fs::write(&path, text).expect("written");
        path
    }
}

fn broker(arguments: &[&str], config: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kuorum-broker"))
        .args(arguments)
        .arg("--config")
        .arg(config)
        .output()
        .expect("the program runs")
}

fn format(config: &Path, cluster: &str) -> Output {
    broker(&["format", "--cluster-id", cluster], config)
}

/// The one line the program said before it gave up.
fn complaint(output: &Output) -> String {
    assert!(!output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stderr.clone()).expect("text");
    let lines: Vec<&str> = said
        .lines()
        .filter(|line| line.starts_with("kuorum-broker: "))
        .collect();
    let [line] = lines[..] else {
        panic!("one line: {said}");
    };
    line.to_owned()
}

#[track_caller]
fn says(line: &str, words: &[&str]) {
    for word in words {
        assert!(line.contains(word), "{line:?} should say {word:?}");
    }
}

#[test]
fn configuration() {
    let home = Home::new();
    type Changes<'a> = &'a [(&'a str, &'a str)];
    let rows: [(Changes<'_>, &[&str]); 3] = [
        (
            &[("replica.lag.time.max.mss", "1")],
            &["replica.lag.time.max.mss", "replica.lag.time.max.ms"],
        ),
        (&[("node.id", "one")], &["node.id"]),
        (&[("listeners", "CLIENT://127.0.0.1:0")], &["INTERNAL"]),
    ];
    for (changes, words) in rows {
        let config = home.file(changes);
        says(&complaint(&broker(&["run"], &config)), words);
    }
    let nowhere = home.dir.path().join("nowhere.properties");
    says(
        &complaint(&broker(&["run"], &nowhere)),
        &["nowhere.properties", "cannot read"],
    );
}

#[test]
fn directories() {
    let home = Home::new();
    let config = home.file(&[]);
    says(
        &complaint(&broker(&["run"], &config)),
        &[
            "is not formatted",
            "kuorum-broker format --config FILE --cluster-id ID",
        ],
    );

    for id in ["", "a/../b", "ü", &"x".repeat(65)] {
        says(&complaint(&format(&config, id)), &["no cluster id", "64"]);
    }
    assert!(format(&config, "one").status.success());
    let again = format(&config, "one");
    assert!(
        again.status.success(),
        "formatting twice changes nothing: {again:?}"
    );
    says(
        &complaint(&format(&config, "two")),
        &["belongs to another", "log.dirs"],
    );
    let renamed = home.file(&[("node.id", "2")]);
    says(
        &complaint(&broker(&["run"], &renamed)),
        &["belongs to another", "node.id"],
    );

    let meta = home.data().join("meta.properties");
    let whole = fs::read_to_string(&meta).expect("readable");
    for (line, broken) in [
        ("cluster.id=", "cluster="),
        ("directory.id=", "directory.id=?"),
    ] {
        fs::write(&meta, whole.replace(line, broken)).expect("written");
        says(
            &complaint(&broker(&["run"], &config)),
            &[line.trim_end_matches('='), "put that file back"],
        );
    }
    fs::write(&meta, whole).expect("written");

    let file = home.dir.path().join("a-file");
    fs::write(&file, "").expect("written");
    let config = home.file(&[("log.dirs", file.to_str().expect("a plain path"))]);
    says(&complaint(&format(&config, "one")), &["a-file", "log.dirs"]);
}

#[test]
fn ports() {
    let home = Home::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("bound").to_string();
    let listeners = format!("CLIENT://{address},INTERNAL://127.0.0.1:0");
    let config = home.file(&[("listeners", &listeners)]);
    assert!(format(&config, "one").status.success());
    says(
        &complaint(&broker(&["run"], &config)),
        &[&address, "CLIENT", "ss -ltnp"],
    );
    let config = home.file(&[("http.listener", &address)]);
    says(
        &complaint(&broker(&["run"], &config)),
        &[&address, "http.listener"],
    );
}

/// A controller of another cluster: it refuses whatever it is asked. Returns its address.
fn stranger() -> String {
    let socket = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = socket.local_addr().expect("bound").to_string();
    let error = RpcError::new(ErrorCode::InconsistentClusterId, "this is cluster one");
    let body = serde_json::to_string(&Reply::<()>::Err(error)).expect("JSON");
    let answer = format!(
        "HTTP/1.1 403 Forbidden\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    std::thread::spawn(move || {
        for stream in socket.incoming() {
            let mut stream = stream.expect("a connection");
            let head = BufReader::new(&stream).lines();
            head.map_while(Result::ok)
                .take_while(|line| !line.is_empty())
                .for_each(drop);
            stream.write_all(answer.as_bytes()).expect("answered");
        }
    });
    address
}

#[test]
fn another_cluster() {
    let home = Home::new();
    let controllers = format!("1@{},2@{},3@127.0.0.1:1", stranger(), stranger());
    let config = home.file(&[("controller.quorum.voters", &controllers)]);
    assert!(format(&config, "two").status.success());
    says(
        &complaint(&broker(&["run"], &config)),
        &[
            "log.dirs is of cluster two",
            "this is cluster one",
            "controller-2 at 127.0.0.1",
            "controller.quorum.voters",
        ],
    );
}
