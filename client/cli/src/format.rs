//! How a consumed record is written, in the words of kcat.
//! Law: pure; keys and values go out byte for byte.

use kuorum_client::ConsumerRecord;
use serde_json::{Map, Value, json};

use crate::failure::Failure;

/// One piece of a format string.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(Vec<u8>),
    Topic,
    Partition,
    Offset,
    Key,
    KeyLength,
    Value,
    ValueLength,
    Timestamp,
    Headers,
}

/// A format string, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Format(Vec<Piece>);

impl Format {
    /// Takes apart `%t %p %o %k %s %K %S %T %h`, `%%`, and `\n \t \r \0 \\ \xNN`.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let mut pieces = Vec::new();
        let mut plain = Vec::new();
        let mut chars = text.chars();
        let wrong = |what: &str| Failure::usage(format!("{what} in the format {text:?}"));
        while let Some(char) = chars.next() {
            let piece = match char {
                '%' => match chars.next() {
                    Some('t') => Piece::Topic,
                    Some('p') => Piece::Partition,
                    Some('o') => Piece::Offset,
                    Some('k') => Piece::Key,
                    Some('K') => Piece::KeyLength,
                    Some('s') => Piece::Value,
                    Some('S') => Piece::ValueLength,
                    Some('T') => Piece::Timestamp,
                    Some('h') => Piece::Headers,
                    Some('%') => {
                        plain.push(b'%');
                        continue;
                    }
                    other => return Err(wrong(&format!("%{} means nothing", shown(other)))),
                },
                '\\' => {
                    plain.push(match chars.next() {
                        Some('n') => b'\n',
                        Some('t') => b'\t',
                        Some('r') => b'\r',
                        Some('0') => 0,
                        Some('\\') => b'\\',
                        Some('x') => {
                            let digits: String = chars.by_ref().take(2).collect();
                            u8::from_str_radix(&digits, 16)
                                .map_err(|_| wrong(&format!("\\x{digits} is no byte")))?
                        }
                        other => return Err(wrong(&format!("\\{} means nothing", shown(other)))),
                    });
                    continue;
                }
                char => {
                    plain.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
                    continue;
                }
            };
            if !plain.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut plain)));
            }
            pieces.push(piece);
        }
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Ok(Self(pieces))
    }

    /// Appends a record in this format. What is absent has no bytes, and the length −1.
    pub(crate) fn write(&self, record: &ConsumerRecord, out: &mut Vec<u8>) {
        let length = |bytes: Option<usize>| bytes.map_or(-1, |length| length as i64).to_string();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text),
                Piece::Topic => out.extend_from_slice(record.topic.as_bytes()),
                Piece::Partition => out.extend_from_slice(record.partition.to_string().as_bytes()),
                Piece::Offset => out.extend_from_slice(record.offset.to_string().as_bytes()),
                Piece::Key => out.extend_from_slice(record.key.as_deref().unwrap_or_default()),
                Piece::Value => out.extend_from_slice(record.value.as_deref().unwrap_or_default()),
                Piece::KeyLength => {
                    out.extend_from_slice(length(record.key.as_ref().map(|k| k.len())).as_bytes());
                }
                Piece::ValueLength => {
                    let size = record.value.as_ref().map(|v| v.len());
                    out.extend_from_slice(length(size).as_bytes());
                }
                Piece::Timestamp => out.extend_from_slice(record.timestamp.to_string().as_bytes()),
                Piece::Headers => {
                    for (index, (name, value)) in record.headers.iter().enumerate() {
                        if index > 0 {
                            out.push(b',');
                        }
                        out.extend_from_slice(name.as_bytes());
                        out.push(b'=');
                        out.extend_from_slice(value.as_deref().unwrap_or_default());
                    }
                }
            }
        }
    }
}

fn shown(char: Option<char>) -> String {
    char.map(String::from).unwrap_or_default()
}

/// The record as one line of JSON. Bytes that are no text are written in hex, under a name that says so.
pub(crate) fn to_json(record: &ConsumerRecord) -> Value {
    let mut object = Map::new();
    object.insert("topic".to_owned(), json!(&*record.topic));
    object.insert("partition".to_owned(), json!(record.partition));
    object.insert("offset".to_owned(), json!(record.offset));
    object.insert("timestamp".to_owned(), json!(record.timestamp));
    object.insert("leader_epoch".to_owned(), json!(record.leader_epoch.0));
    insert_bytes(&mut object, "key", record.key.as_deref());
    insert_bytes(&mut object, "value", record.value.as_deref());
    let headers = record
        .headers
        .iter()
        .map(|(name, value)| header_json(name, value.as_deref()));
    object.insert("headers".to_owned(), headers.collect());
    Value::Object(object)
}

/// A record's header as JSON.
pub(crate) fn header_json(name: &str, value: Option<&[u8]>) -> Value {
    let mut header = Map::new();
    header.insert("name".to_owned(), json!(name));
    insert_bytes(&mut header, "value", value);
    Value::Object(header)
}

/// Adds bytes as text under `name`, or in hex under `name_hex`.
pub(crate) fn insert_bytes(object: &mut Map<String, Value>, name: &str, bytes: Option<&[u8]>) {
    match bytes.map(std::str::from_utf8) {
        None => {
            object.insert(name.to_owned(), Value::Null);
        }
        Some(Ok(text)) => {
            object.insert(name.to_owned(), json!(text));
        }
        Some(Err(_)) => {
            let hex = bytes
                .unwrap_or_default()
                .iter()
                .map(|byte| format!("{byte:02x}"));
            object.insert(format!("{name}_hex"), Value::String(hex.collect()));
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use kuorum_protocol::LeaderEpoch;

    use super::*;

    fn record() -> ConsumerRecord {
        ConsumerRecord {
            topic: "payments".into(),
            partition: 2,
            offset: 7,
            timestamp: 1000,
            leader_epoch: LeaderEpoch(4),
            key: Some(Bytes::from_static(b"user_10")),
            value: Some(Bytes::from_static(b"\xff\x00")),
            headers: vec![
                ("a".to_owned(), Some(Bytes::from_static(b"b"))),
                ("c".to_owned(), None),
            ],
        }
    }

    #[test]
    fn formats() {
        let absent = ConsumerRecord {
            key: None,
            value: None,
            ..record()
        };
        let rows: [(&str, &ConsumerRecord, &[u8]); 6] = [
            (
                "%t %p %o %k %T\\n",
                &record(),
                b"payments 2 7 user_10 1000\n",
            ),
            ("%s", &record(), b"\xff\x00"),
            ("%K/%S %h", &record(), b"7/2 a=b,c="),
            ("%K/%S [%k][%s]", &absent, b"-1/-1 [][]"),
            ("100%% \\x41\\t\\\\\\0", &record(), b"100% A\t\\\0"),
            ("\u{e9}%p", &record(), "\u{e9}2".as_bytes()),
        ];
        for (format, record, expected) in rows {
            let mut out = Vec::new();
            Format::parse(format).unwrap().write(record, &mut out);
            assert_eq!(out, expected, "{format}");
        }
        for wrong in ["%", "%q", "\\", "\\q", "\\xZZ"] {
            assert!(Format::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn json_keeps_what_is_no_text() {
        let value = to_json(&record());
        assert_eq!(value["key"], "user_10");
        assert_eq!(value["value_hex"], "ff00");
        assert_eq!(value["headers"][1]["value"], Value::Null);
        assert_eq!(value["offset"], 7);
    }
}
