//! The body of a response: two bytes choose the API and the version, the rest is the body. What is read can be written, and
//! reads the same again.

#![no_main]

use bytes::Bytes;
use kuorum_protocol::messages::Response;
use kuorum_protocol::{ApiKey, Encoder};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [api, version, body @ ..] = data else {
        return;
    };
    let api = ApiKey::ALL[usize::from(*api) % ApiKey::ALL.len()];
    let (lowest, highest) = api.versions().into_inner();
    let version = lowest + i16::from(*version) % (highest - lowest + 1);
    let Ok(message) = Response::decode(api, version, Bytes::copy_from_slice(body)) else {
        return;
    };
    let mut out = Encoder::new();
    message
        .encode(version, &mut out)
        .expect("what was read can be written");
    let again = Response::decode(api, version, out.finish());
    assert_eq!(again, Ok(message));
});
