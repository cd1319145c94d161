//! `docs/configuration.md` is the table of keys, and nothing that is not in it. `KUORUM_UPDATE=1 cargo test -p kuorum-metadata --test
//! configuration_page` writes it anew.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use kuorum_metadata::config_def::{ConfigKey, KEYS, KeyDefault, Kind, Scope};

const INTRODUCTION: &str = "\
# Configuration

Every key there is, made from the table in `controller/metadata/src/config_def/keys.rs`; a test compares the two. Names, types and defaults are
Kafka's where the concept is; keys of our own say so. One table serves both roles: a file may name any key of either, a process ignores those of
the other, and one that is in no table is refused with a suggestion. [deploy/config](../deploy/config) has a commented file for each role.

**Which value holds** for a topic, the strongest first: the topic's own; the cluster's, changed live; what the active controller's file says, which
it records when it takes office; the default. Brokers and the other controllers take these values from the metadata log: a file of theirs that
differs is logged with both values.

A range is written [least, most]. `–` is no value; **required** keys have none.
";

const SECTIONS: [(Scope, &str, &str); 5] = [
    (
        Scope::Topic,
        "Topics",
        "Changed live, for one topic, with `kuorum configs` or `kafka-configs`. *Cluster key* is the name of its default for all topics.",
    ),
    (
        Scope::Cluster,
        "The whole cluster",
        "In the controllers' files, or changed live for all brokers; some for one broker.",
    ),
    (
        Scope::Process,
        "Every process",
        "In the file of each controller and broker, read when it starts.",
    ),
    (
        Scope::Controller,
        "Controllers",
        "In the controllers' files, read when they start.",
    ),
    (
        Scope::Broker,
        "Brokers",
        "In the brokers' files, read when they start.",
    ),
];

fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    for (scope, title, what) in SECTIONS {
        let with_synonyms = scope == Scope::Topic;
        write!(page, "\n## {title}\n{what}\n\n").expect("a string takes everything");
        page.push_str(match with_synonyms {
            true => "| key | type | default | cluster key | |\n|--|--|--|--|--|\n",
            false => "| key | type | default | |\n|--|--|--|--|\n",
        });
        for key in KEYS.iter().filter(|key| key.scope == scope) {
            let cluster_keys = match with_synonyms {
                true => format!(" {} |", synonyms(key)),
                false => String::new(),
            };
            let doc = key.doc.replace('|', "\\|");
            writeln!(
                page,
                "| `{}` | {} | {} |{cluster_keys} {doc} |",
                key.name,
                kind(&key.kind),
                default(key.default)
            )
            .expect("a string takes everything");
        }
    }
    page
}

fn kind(kind: &Kind) -> String {
    let words = |words: &[&str]| words.join(", ");
    match kind {
        Kind::Boolean => "boolean".to_owned(),
        Kind::Short { min } => format!("16 bits, [{min}, …]"),
        Kind::Int { min } => format!("32 bits, [{min}, …]"),
        Kind::Long { min } => format!("64 bits, [{min}, …]"),
        Kind::Double { min, max } => format!("number, [{min}, {max}]"),
        Kind::Text => "text".to_owned(),
        Kind::Choice(choices) => format!("one of {}", words(choices)),
        Kind::List => "list".to_owned(),
        Kind::ListOf(choices) => format!("list of {}", words(choices)),
        Kind::Replicas => "`partition:broker` list, or `*`".to_owned(),
    }
}

fn default(default: KeyDefault) -> String {
    match default {
        KeyDefault::Is("") => "empty".to_owned(),
        KeyDefault::Is(value) => format!("`{value}`"),
        KeyDefault::Null => "–".to_owned(),
        KeyDefault::Required => "**required**".to_owned(),
    }
}

fn synonyms(key: &ConfigKey) -> String {
    let names = key.synonyms.iter().map(|synonym| match synonym.factor {
        1 => format!("`{}`", synonym.name),
        factor => format!("`{}` × {factor}", synonym.name),
    });
    match names.collect::<Vec<_>>() {
        names if names.is_empty() => "–".to_owned(),
        names => names.join(", "),
    }
}

#[test]
fn the_page_is_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let page = page();
    if std::env::var_os("KUORUM_UPDATE").is_some() {
        #[allow(
            clippy::disallowed_methods,
            reason = "whoever asks for it wants the page written"
        )]
        fs::write(&path, &page).expect("written");
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "docs/configuration.md is not the table of keys any more; KUORUM_UPDATE=1 cargo test -p kuorum-metadata --test configuration_page"
    );
}
