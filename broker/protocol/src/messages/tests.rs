//! Every message at every version: against itself, against another implementation, and against hostile bytes.

use bytes::{Bytes, BytesMut};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Message as TheirMessage};
use proptest::prelude::*;

use super::sample::{Random, Sample};
use super::{Request, Response, for_every_message};
use crate::api_key::ApiKey;
use crate::frame::decode_body;
use crate::message::Message;
use crate::wire::{Encoder, WireError};

/// What another implementation's message can do.
pub(crate) trait Theirs:
    TheirMessage + HeaderVersion + Encodable + Decodable + std::fmt::Debug
{
}

impl<T: TheirMessage + HeaderVersion + Encodable + Decodable + std::fmt::Debug> Theirs for T {}

/// A check that runs over every message.
pub(crate) trait Visitor {
    fn visit<M: Message + Sample, T: Theirs>(&mut self, name: &str);
}

fn encode<M: Message>(version: i16, message: &M) -> Bytes {
    let mut out = Encoder::new();
    message
        .encode(version, &mut out)
        .expect("a sample has only what its version has");
    out.finish()
}

/// `{:?}` of both implementations says the same once names of types, and what only one of them keeps, are gone.
fn normalised(debug: &str) -> String {
    const WRAPPERS: [&str; 5] = [
        "BrokerId",
        "TopicName",
        "TransactionalId",
        "GroupId",
        "ProducerId",
    ];
    let mut out = String::new();
    let mut wrappers = Vec::new();
    let mut chars = debug.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' => {
                out.push(c);
                while let Some(c) = chars.next() {
                    out.push(c);
                    match c {
                        '\\' => out.extend(chars.next()),
                        '"' => break,
                        _ => {}
                    }
                }
            }
            '(' => {
                wrappers.push(false);
                out.push(c);
            }
            ')' => {
                if !wrappers.pop().expect("parentheses match") {
                    out.push(c);
                }
            }
            c if c.is_alphabetic() => {
                let mut word = String::from(c);
                while let Some(&c) = chars.peek().filter(|c| c.is_alphanumeric() || **c == '_') {
                    word.push(c);
                    chars.next();
                }
                if WRAPPERS.contains(&word.as_str()) && chars.peek() == Some(&'(') {
                    chars.next();
                    wrappers.push(true);
                } else if word == "None"
                    || chars.peek() != Some(&' ')
                    || !word.starts_with(char::is_uppercase)
                {
                    out.push_str(&word);
                }
            }
            c => out.push(c),
        }
    }
    // An absent nullable field is null here and empty there; the bytes tell the two apart where they matter.
    out.replace(", unknown_tagged_fields: {}", "")
        // Fields of versions that are not stable yet, which this crate does not have.
        .replace(", enable_2_pc: false, keep_prepared_txn: false", "")
        .replace(
            ", ongoing_txn_producer_id: -1, ongoing_txn_producer_epoch: -1",
            "",
        )
        .replace("unknown_tagged_fields: {} ", "")
        .replace("Some(\"\")", "None")
        .replace("Some([])", "None")
}

/// What we write we read back, and so does another implementation, name by name and byte for byte.
struct SameAsTheirs(Random);

impl Visitor for SameAsTheirs {
    fn visit<M: Message + Sample, T: Theirs>(&mut self, name: &str) {
        for version in M::API.versions() {
            let theirs = T::VERSIONS;
            assert!(
                (theirs.min..=theirs.max).contains(&version),
                "{name} {version} has no oracle"
            );
            let ours = M::sample(version, &mut self.0);
            let bytes = encode(version, &ours);
            assert!(ours.size_hint() > 0);
            let back: M = decode_body(version, bytes.clone()).expect("what was written is read");
            assert_eq!(back, ours, "{name} {version}");

            let mut input = bytes.clone();
            let theirs = T::decode(&mut input, version)
                .unwrap_or_else(|error| panic!("{name} {version}: {error} on {ours:?}"));
            assert!(input.is_empty(), "{name} {version} leaves bytes");
            assert_eq!(
                normalised(&format!("{ours:?}")),
                normalised(&format!("{theirs:?}")),
                "{name} {version}"
            );
            let mut out = BytesMut::new();
            theirs
                .encode(&mut out, version)
                .expect("what was decoded can be encoded");
            assert_eq!(bytes, out.freeze(), "{name} {version}");
        }
    }
}

/// Every place where bytes can end is an error, and so is a byte too many.
struct Ends(Random);

impl Visitor for Ends {
    fn visit<M: Message + Sample, T: Theirs>(&mut self, name: &str) {
        for version in M::API.versions() {
            let bytes = encode(version, &M::sample(version, &mut self.0));
            for length in 0..bytes.len().min(300) {
                let cut = decode_body::<M>(version, bytes.slice(..length));
                assert!(
                    cut.is_err(),
                    "{name} {version} is whole after {length} bytes"
                );
            }
            let longer: Bytes = bytes.iter().copied().chain([0]).collect();
            assert_eq!(
                decode_body::<M>(version, longer),
                Err(WireError::TrailingBytes(1)),
                "{name} {version}"
            );
        }
    }
}

/// Damaged bytes are an error or another message, and never more.
struct Damage(Random);

impl Visitor for Damage {
    fn visit<M: Message + Sample, T: Theirs>(&mut self, name: &str) {
        const LIES: [&[u8]; 5] = [
            &[0x7f, 0xff, 0xff, 0xff],
            &[0x80, 0, 0, 0],
            &[0xff, 0xff, 0xff, 0xff, 0x0f],
            &[0xff, 0xfe],
            &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80],
        ];
        for version in M::API.versions() {
            let mut bytes = encode(version, &M::sample(version, &mut self.0)).to_vec();
            if bytes.is_empty() {
                continue;
            }
            for _ in 0..16 {
                let at = self.0.below(bytes.len() as u64) as usize;
                let lie = LIES[self.0.below(LIES.len() as u64) as usize];
                let end = (at + lie.len()).min(bytes.len());
                let saved = bytes.clone();
                bytes[at..end].copy_from_slice(&lie[..end - at]);
                if let Ok(message) = decode_body::<M>(version, Bytes::from(bytes.clone())) {
                    let again = decode_body::<M>(version, encode(version, &message));
                    assert_eq!(again.as_ref(), Ok(&message), "{name} {version}");
                }
                bytes = saved;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_message_at_every_version_is_the_same_elsewhere(seed: u64) {
        for_every_message(&mut SameAsTheirs(Random(seed)));
    }

    #[test]
    fn damaged_messages_never_panic(seed: u64) {
        for_every_message(&mut Damage(Random(seed)));
    }
}

#[test]
fn every_message_ends_where_it_ends() {
    for seed in 0..3 {
        for_every_message(&mut Ends(Random(seed)));
    }
}

/// The longest lie an array can tell, in every message that begins with one.
#[test]
fn a_count_is_believed_only_as_far_as_the_bytes_go() {
    struct Liar;
    impl Visitor for Liar {
        fn visit<M: Message + Sample, T: Theirs>(&mut self, name: &str) {
            for version in M::API.versions() {
                for head in 0..24 {
                    for count in [[0x7f, 0xff, 0xff, 0xff].as_slice(), &[0xff; 4], &[0xfe; 4]] {
                        let bytes: Bytes = std::iter::repeat_n(0, head)
                            .chain(count.iter().copied())
                            .collect();
                        let decoded = decode_body::<M>(version, bytes.clone());
                        if let Ok(message) = decoded {
                            // Then the lie sat in a number, which may be anything.
                            assert!(format!("{message:?}").len() < 4096, "{name} {version}");
                        }
                    }
                }
            }
        }
    }
    for_every_message(&mut Liar);
}

#[test]
fn a_body_of_many_small_things_costs_no_more_than_its_budget() {
    // 32 MiB of topics with empty names: each takes 2 bytes here and 40 in memory.
    let count = 16 * 1024 * 1024;
    let mut body = BytesMut::zeroed(4 + 2 * count as usize);
    body[..4].copy_from_slice(&i32::to_be_bytes(count));
    let decoded = Request::decode(ApiKey::Metadata, 0, body.freeze());
    assert_eq!(decoded, Err(WireError::OverBudget));
}

#[test]
fn what_is_unknown_in_a_tagged_section_is_skipped() {
    // DescribeCluster 0: one flag, then tags 3 (unknown, two bytes).
    let body = Bytes::from_static(&[1, 1, 3, 2, 0xaa, 0xbb]);
    let Ok(Request::DescribeCluster(request)) = Request::decode(ApiKey::DescribeCluster, 0, body)
    else {
        panic!("an unknown tag is no error");
    };
    assert!(request.include_cluster_authorized_operations);
    let twice = Bytes::from_static(&[1, 2, 3, 0, 3, 0]);
    assert_eq!(
        Request::decode(ApiKey::DescribeCluster, 0, twice),
        Err(WireError::TagOutOfOrder(3))
    );
}

#[test]
fn null_is_refused_where_a_version_has_none() {
    let all = super::metadata::MetadataRequest::default();
    let mut out = Encoder::new();
    assert_eq!(all.encode(0, &mut out), Err(WireError::UnexpectedNull));
    assert!(all.encode(1, &mut out).is_ok());
    let null = Bytes::from_static(&[0xff; 4]);
    assert_eq!(
        Request::decode(ApiKey::Metadata, 0, null.clone()),
        Err(WireError::UnexpectedNull)
    );
    assert!(Request::decode(ApiKey::Metadata, 1, null).is_ok());
}

#[test]
fn records_are_slices_of_the_frame() {
    use super::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
    let records = Bytes::from(vec![7; 1000]);
    let request = ProduceRequest {
        topic_data: vec![TopicProduceData {
            partition_data: vec![PartitionProduceData {
                index: 1,
                records: Some(records),
            }],
            ..TopicProduceData::default()
        }],
        ..ProduceRequest::default()
    };
    for version in [3, 9, 13] {
        let body = encode(version, &request);
        let Ok(Request::Produce(back)) = Request::decode(ApiKey::Produce, version, body.clone())
        else {
            panic!("what was written is read");
        };
        let slice = back.topic_data[0].partition_data[0]
            .records
            .as_ref()
            .expect("records");
        assert!(
            body.as_ptr_range().contains(&slice.as_ptr()),
            "a copy was made"
        );
    }
}

#[test]
fn a_version_outside_the_table_is_refused() {
    for &api in ApiKey::ALL {
        for version in [
            i16::MIN,
            -1,
            api.versions().start() - 1,
            api.versions().end() + 1,
        ] {
            let refused = WireError::UnsupportedVersion { api, version };
            assert_eq!(
                Request::decode(api, version, Bytes::new()),
                Err(refused.clone())
            );
            assert_eq!(Response::decode(api, version, Bytes::new()), Err(refused));
        }
    }
}

#[test]
fn the_table_has_the_keys_and_forms_of_another_implementation() {
    for &api in ApiKey::ALL {
        let theirs = kafka_protocol::messages::ApiKey::try_from(api.key()).expect("a known key");
        assert_eq!(format!("{theirs:?}"), api.name());
        for version in api.versions() {
            let flexible = api.is_flexible(version);
            assert_eq!(
                theirs.request_header_version(version),
                1 + i16::from(flexible)
            );
            let response = i16::from(flexible && api != ApiKey::ApiVersions);
            assert_eq!(
                theirs.response_header_version(version),
                response,
                "{api} {version}"
            );
        }
        assert!(api.advertised().contains(api.versions().start()));
        assert_eq!(api.advertised().end(), api.versions().end());
    }
}

/// Old clients switch features on only if the range reaches down to certain versions.
#[test]
fn the_ranges_reach_where_old_clients_look() {
    for (api, version, why) in [
        (ApiKey::Produce, 0, "any compression at all"),
        (ApiKey::Produce, 7, "zstd"),
        (ApiKey::Fetch, 4, "batches of format 2"),
        (ApiKey::Fetch, 10, "zstd"),
        (ApiKey::ListOffsets, 1, "time lookups"),
        (ApiKey::FindCoordinator, 0, "groups"),
        (ApiKey::InitProducerId, 0, "idempotence"),
    ] {
        assert!(
            api.advertised().contains(&version),
            "{api} {version}: {why}"
        );
    }
}

#[test]
fn a_message_tells_the_errors_in_it_however_deep() {
    use super::fetch::{FetchResponse, FetchableTopicResponse, PartitionData};

    let partition = |error_code| PartitionData {
        error_code,
        ..PartitionData::default()
    };
    let response = FetchResponse {
        error_code: 71,
        responses: vec![FetchableTopicResponse {
            partitions: [0, 6, 74, 6].map(partition).into(),
            ..FetchableTopicResponse::default()
        }],
        ..FetchResponse::default()
    };
    let mut told = Vec::new();
    response.errors(&mut |code| told.push(code));
    assert_eq!(told, [71, 6, 74, 6]);
    let mut told = Vec::new();
    FetchResponse::default().errors(&mut |code| told.push(code));
    assert_eq!(told, [0; 0]);
}
