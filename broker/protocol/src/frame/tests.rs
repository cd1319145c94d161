//! Frames byte by byte: the forms of the headers, and the way out of a version nobody knows.

use bytes::{Buf, Bytes};

use super::*;
use crate::messages::Request;
use crate::messages::api_versions::ApiVersionsRequest;
use crate::messages::describe_cluster::{DescribeClusterRequest, DescribeClusterResponse};
use crate::messages::metadata::{MetadataRequest, MetadataResponse};

fn header(api_key: ApiKey, api_version: i16, client_id: Option<&str>) -> RequestHeader {
    RequestHeader {
        api_key,
        api_version,
        correlation_id: 7,
        client_id: client_id.map(Into::into),
    }
}

#[test]
fn request_headers() {
    for (header, bytes) in [
        (
            header(ApiKey::Metadata, 8, Some("me")),
            [0, 3, 0, 8, 0, 0, 0, 7, 0, 2, b'm', b'e'].as_slice(),
        ),
        (
            header(ApiKey::Metadata, 8, None),
            &[0, 3, 0, 8, 0, 0, 0, 7, 0xff, 0xff],
        ),
        // The flexible form keeps the legacy string and adds a tagged section.
        (
            header(ApiKey::Metadata, 9, Some("me")),
            &[0, 3, 0, 9, 0, 0, 0, 7, 0, 2, b'm', b'e', 0],
        ),
        (
            header(ApiKey::ApiVersions, 2, None),
            &[0, 18, 0, 2, 0, 0, 0, 7, 0xff, 0xff],
        ),
        (
            header(ApiKey::ApiVersions, 3, None),
            &[0, 18, 0, 3, 0, 0, 0, 7, 0xff, 0xff, 0],
        ),
        // A version from the future still has a header that can be read.
        (
            header(ApiKey::ApiVersions, 99, None),
            &[0, 18, 0, 99, 0, 0, 0, 7, 0xff, 0xff, 0],
        ),
    ] {
        let mut out = Encoder::new();
        header.encode(&mut out).expect("a short client id");
        assert_eq!(out.finish(), bytes);
        let mut frame: Bytes = bytes.iter().copied().chain([1, 2, 3]).collect();
        assert_eq!(decode_request_header(&mut frame), Ok(header));
        assert_eq!(frame, [1, 2, 3].as_slice(), "the body stays");
    }
}

#[test]
fn hostile_request_headers() {
    let cut = |needed, remaining| WireError::Truncated { needed, remaining };
    for (bytes, error) in [
        ([].as_slice(), cut(2, 0)),
        (&[0], cut(2, 1)),
        (&[0, 99], WireError::UnknownApi(99)),
        (&[0xff, 0xff], WireError::UnknownApi(-1)),
        (&[0, 3, 0, 8, 0, 0], cut(4, 2)),
        (&[0, 3, 0, 8, 0, 0, 0, 7, 0x7f, 0xff], cut(32_767, 0)),
        (
            &[0, 3, 0, 8, 0, 0, 0, 7, 0x80, 0],
            WireError::NegativeLength(-32_768),
        ),
        (
            &[
                0, 3, 0, 9, 0, 0, 0, 7, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f,
            ],
            cut(1, 0),
        ),
    ] {
        assert_eq!(
            decode_request_header(&mut Bytes::from_static(bytes)),
            Err(error),
            "{bytes:?}"
        );
    }
}

#[test]
fn a_request_and_its_answer_go_round() {
    for version in ApiKey::Metadata.versions() {
        let header = header(ApiKey::Metadata, version, Some("me"));
        let request = MetadataRequest {
            topics: Some(Vec::new()),
            ..MetadataRequest::default()
        };
        let mut frame = encode_request(&header, &request).expect("a form in every version");
        assert_eq!(frame.get_i32() as usize, frame.len());
        assert_eq!(decode_request_header(&mut frame), Ok(header));
        let back = Request::decode(ApiKey::Metadata, version, frame);
        assert_eq!(back, Ok(Request::Metadata(request)));

        let response = MetadataResponse {
            controller_id: -1,
            ..MetadataResponse::default()
        };
        let mut frame: Bytes = encode_response(ApiKey::Metadata, version, 7, &response)
            .expect("a form in every version")
            .concat()
            .into();
        assert_eq!(frame.get_i32() as usize, frame.len());
        assert_eq!(
            decode_response_header(ApiKey::Metadata, version, &mut frame),
            Ok(7)
        );
        assert_eq!(decode_body(version, frame), Ok(response));
    }
}

#[test]
fn response_headers() {
    let whole = |api, version, tail: &[u8]| {
        let mut frame: Bytes = [0, 0, 0, 7].iter().chain(tail).copied().collect();
        let correlation_id = decode_response_header(api, version, &mut frame);
        (correlation_id, frame.len())
    };
    assert_eq!(whole(ApiKey::Metadata, 8, &[0, 1]), (Ok(7), 2));
    assert_eq!(whole(ApiKey::Metadata, 9, &[0, 1]), (Ok(7), 1));
    assert_eq!(
        whole(ApiKey::ApiVersions, 4, &[0, 1]),
        (Ok(7), 2),
        "never flexible"
    );
    let response = DescribeClusterResponse::default();
    let frame = encode_response(ApiKey::DescribeCluster, 0, 7, &response)
        .expect("a form")
        .concat();
    assert_eq!(&frame[4..9], [0, 0, 0, 7, 0]);
}

#[test]
fn an_unknown_version_of_api_versions_is_told_which_one_to_use() {
    let mut frame = api_versions_fallback(7);
    let expected: [u8; 20] = [
        0, 0, 0, 16, // size
        0, 0, 0, 7, // correlation id
        0, 35, // UNSUPPORTED_VERSION
        0, 0, 0, 1, // one row
        0, 18, 0, 0, 0, 4, // ApiVersions 0–4
    ];
    assert_eq!(frame, expected.as_slice());

    frame.advance(SIZE_LENGTH);
    assert_eq!(
        decode_response_header(ApiKey::ApiVersions, 4, &mut frame),
        Ok(7)
    );
    let answer = decode_api_versions_body(4, frame).expect("version 0 whatever was asked");
    assert_eq!(
        answer.api_keys,
        [ApiVersion::advertise(ApiKey::ApiVersions)]
    );
}

#[test]
fn an_answer_to_api_versions_in_the_version_asked_for() {
    let answer = ApiVersionsResponse {
        api_keys: ApiKey::ALL
            .iter()
            .map(|&api| ApiVersion::advertise(api))
            .collect(),
        finalized_features_epoch: 3,
        ..ApiVersionsResponse::default()
    };
    let parts = encode_response(ApiKey::ApiVersions, 3, 7, &answer).expect("a form");
    let frame = Bytes::from(parts.concat());
    assert_eq!(decode_api_versions_body(3, frame.slice(8..)), Ok(answer));
}

#[test]
#[should_panic(expected = "the header speaks of the body it stands before")]
fn a_header_of_another_api_is_a_mistake_of_the_caller() {
    let header = header(ApiKey::DescribeCluster, 0, None);
    let _ = encode_request(&header, &ApiVersionsRequest::default());
}

#[test]
fn a_version_that_does_not_exist_is_not_written() {
    let header = header(ApiKey::DescribeCluster, 3, None);
    let refused = WireError::UnsupportedVersion {
        api: ApiKey::DescribeCluster,
        version: 3,
    };
    assert_eq!(
        encode_request(&header, &DescribeClusterRequest::default()),
        Err(refused)
    );
}
