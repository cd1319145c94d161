//! `docs/protocol.md` is the API table, and nothing that is not in it. `KUORUM_UPDATE=1 cargo test -p kuorum-broker --test
//! protocol_page` writes it anew.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use kuorum_broker::authorizer::{Needs, ResourceKind};
use kuorum_broker::handlers::TABLE;

const INTRODUCTION: &str = "\
# The protocol

What a broker serves, as its ApiVersions says it. This page is made from the API table in `broker/src/handlers/mod.rs`;
a test compares the two.

*Advertised* is what a client is told; *read* is what is answered. They differ where old clients switch a feature on only
when the range contains a certain low version: such a version is advertised, and closes the connection when it is used.
From the version under *flexible* on, lengths are compact and structs may carry tagged fields (KIP-482). *Needs* is what an
authorizer is asked for; until there is one, everything is allowed.

A request that cannot be understood (an API not in the table, a version not read, a body too short or too long) closes the
connection without an answer, as clients of Kafka expect. Only ApiVersions always answers: with UNSUPPORTED_VERSION and
the versions it knows.

| key | API | advertised | read | flexible | needs |
|--:|--|--|--|--:|--|
";

fn page() -> String {
    let mut rows: Vec<_> = TABLE.iter().collect();
    rows.sort_by_key(|row| row.api.key());
    let mut page = INTRODUCTION.to_owned();
    for row in rows {
        let api = row.api;
        let (advertised, read) = (api.advertised(), api.versions());
        writeln!(
            page,
            "| {} | {} | {}–{} | {}–{} | {} | {} |",
            api.key(),
            api.name(),
            advertised.start(),
            advertised.end(),
            read.start(),
            read.end(),
            api.flexible_from(),
            needs(&row.needs),
        )
        .expect("a string takes everything");
    }
    page
}

fn needs(needs: &Needs) -> String {
    let operation = format!("{:?}", needs.operation);
    match needs.resource {
        ResourceKind::Nothing => "–".to_owned(),
        ResourceKind::Cluster => format!("{operation} on the cluster"),
        ResourceKind::Topics => format!("{operation} on each topic"),
        ResourceKind::Configs => format!("{operation} on each resource"),
    }
}

#[test]
fn the_page_is_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/protocol.md");
    let page = page();
    if std::env::var_os("KUORUM_UPDATE").is_some() {
        fs::write(&path, &page).expect("written");
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "docs/protocol.md is not the API table any more; KUORUM_UPDATE=1 cargo test -p kuorum-broker --test protocol_page"
    );
}
