//! A frame as a broker meets it: header, then body. It is read or refused, and what is read can be written again.

#![no_main]

use bytes::Bytes;
use kuorum_protocol::frame::{decode_request_header, decode_response_header};
use kuorum_protocol::messages::Request;
use kuorum_protocol::{ApiKey, Encoder};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let frame = Bytes::copy_from_slice(data);
    for &api in ApiKey::ALL {
        for version in [*api.versions().start(), *api.versions().end()] {
            let _ = decode_response_header(api, version, &mut frame.clone());
        }
    }

    let mut body = frame;
    let Ok(header) = decode_request_header(&mut body) else {
        return;
    };
    let mut out = Encoder::new();
    header
        .encode(&mut out)
        .expect("a header that was read can be written");
    let mut again = out.finish();
    assert_eq!(decode_request_header(&mut again), Ok(header.clone()));
    assert!(again.is_empty());
    let _ = Request::decode(header.api_key, header.api_version, body);
});
