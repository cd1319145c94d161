//! `.properties` text: comments, continued lines and escapes, as Java reads them.
//! Law: parsing knows no key. A key given twice has its last value.

use std::collections::BTreeMap;

use super::ConfigError;

/// Keys and values as given, not yet looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawConfig {
    values: BTreeMap<String, String>,
}

impl RawConfig {
    /// Reads the text of a file.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let mut raw = Self::default();
        let mut lines = text.lines().map(str::trim_start).enumerate();
        while let Some((number, first)) = lines.next() {
            if first.is_empty() || first.starts_with(['#', '!']) {
                continue;
            }
            let mut line = first.to_owned();
            while is_continued(&line) {
                line.pop();
                match lines.next() {
                    Some((_, next)) => line.push_str(next),
                    None => break,
                }
            }
            let (key, value) = split(&line);
            let read = |text| {
                unescape(text).map_err(|why| ConfigError {
                    key: None,
                    message: format!("line {}: {why}", number + 1),
                })
            };
            raw.values.insert(read(key)?, read(value)?);
        }
        Ok(raw)
    }

    /// Sets a value, over what the file said.
    pub fn set(&mut self, key: impl Into<String>, value: impl Into<String>) {
        self.values.insert(key.into(), value.into());
    }

    /// A value as given.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str)
    }

    /// All that was given, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
    }
}

/// Whether a line ends in an odd number of backslashes.
fn is_continued(line: &str) -> bool {
    line.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

/// Cuts a line at the first `=`, `:` or white space that is not escaped.
fn split(line: &str) -> (&str, &str) {
    let mut escaped = false;
    let end = line.char_indices().find(|(_, letter)| {
        let ends = !escaped && (matches!(letter, '=' | ':') || letter.is_whitespace());
        escaped = *letter == '\\' && !escaped;
        ends
    });
    let Some((end, _)) = end else {
        return (line, "");
    };
    let rest = line[end..].trim_start();
    let value = rest.strip_prefix(['=', ':']).unwrap_or(rest);
    (&line[..end], value.trim_start())
}

fn unescape(text: &str) -> Result<String, String> {
    let mut plain = String::with_capacity(text.len());
    let mut letters = text.trim_end().chars();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            plain.push(letter);
            continue;
        }
        match letters.next() {
            Some('n') => plain.push('\n'),
            Some('t') => plain.push('\t'),
            Some('r') => plain.push('\r'),
            Some('f') => plain.push('\u{c}'),
            Some('u') => {
                let digits: String = letters.by_ref().take(4).collect();
                let code = u32::from_str_radix(&digits, 16).ok();
                let letter = code.filter(|_| digits.len() == 4).and_then(char::from_u32);
                plain.push(letter.ok_or_else(|| format!("\\u{digits} is no character"))?);
            }
            Some(other) => plain.push(other),
            None => {}
        }
    }
    Ok(plain)
}
