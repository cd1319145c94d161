//! How answers are written.
//! Law: stdout carries the answer and nothing else; a reader that stops reading ends the command quietly.

use std::io::{self, IsTerminal, Write};

use clap::ValueEnum;
use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;

use crate::failure::Failure;

/// The forms of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people
    Table,
    /// For programs
    Json,
}

/// Writes a line to stderr.
pub(crate) fn note(text: &str) {
    // Without stderr there is nobody to tell.
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Ends the process quietly if the reader is gone, as tools in a pipe do.
pub(crate) fn written(result: io::Result<()>) -> Result<(), Failure> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        result => Ok(result?),
    }
}

/// Writes text to stdout.
pub(crate) fn say(text: &str) -> Result<(), Failure> {
    written(writeln!(io::stdout().lock(), "{text}"))
}

/// Writes a value as JSON.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::usage(format!("cannot write JSON: {error}")))?;
    say(&text)
}

/// Writes a table, without frames when nobody looks at it.
pub(crate) fn table(
    header: &[&str],
    rows: impl IntoIterator<Item = Vec<String>>,
) -> Result<(), Failure> {
    let mut table = Table::new();
    table.set_header(header.to_vec());
    table.load_style(presets::NOTHING);
    if io::stdout().is_terminal() {
        table.load_style(presets::UTF8_BORDERS_ONLY);
        table.set_content_arrangement(ContentArrangement::Dynamic);
    }
    for row in rows {
        table.add_row(row);
    }
    let text = table.to_string();
    let lines: Vec<_> = text.lines().map(str::trim_end).collect();
    say(&lines.join("\n"))
}

/// `1 record`, `2 records`.
pub(crate) fn counted(count: impl Into<u64>, one: &str, many: &str) -> String {
    match count.into() {
        1 => format!("1 {one}"),
        count => format!("{count} {many}"),
    }
}

/// `1,2,3`, or `-` for none.
pub(crate) fn list<T: ToString>(items: &[T]) -> String {
    match items {
        [] => "-".to_owned(),
        items => items.iter().map(T::to_string).collect::<Vec<_>>().join(","),
    }
}

/// The value, or `-` for none.
pub(crate) fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Asks a person a question that `yes` answers; without a terminal nobody is asked and the answer is no.
pub(crate) fn confirmed(question: &str, yes: bool) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(Failure::usage(format!("{question} Say --yes to go on.")));
    }
    let _ = write!(io::stderr().lock(), "{question} Go on? [y/N] ");
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::refused("nothing was changed")),
    }
}
