//! ApiVersions: what this broker speaks, asked before anything else (API 18).

use kuorum_metadata::image::MetadataImage;
use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::messages::api_versions::{
    ApiVersion, ApiVersionsRequest, ApiVersionsResponse, FinalizedFeatureKey, SupportedFeatureKey,
};

use crate::context::Context;
use crate::handlers::TABLE;

/// The first version in which a client introduces its software (KIP-511).
const INTRODUCES_ITSELF: i16 = 3;

/// Answers from the API table.
pub async fn api_versions(
    cx: &Context,
    request: ApiVersionsRequest,
    version: i16,
) -> ApiVersionsResponse {
    answer(&cx.metadata.image(), &request, version)
}

fn answer(
    image: &MetadataImage,
    request: &ApiVersionsRequest,
    version: i16,
) -> ApiVersionsResponse {
    if version >= INTRODUCES_ITSELF
        && !(is_software_word(&request.client_software_name)
            && is_software_word(&request.client_software_version))
    {
        return ApiVersionsResponse {
            error_code: ErrorCode::InvalidRequest.code(),
            ..ApiVersionsResponse::default()
        };
    }
    let finalized: Vec<(&str, i16)> = image.features().filter(|(_, level)| *level > 0).collect();
    ApiVersionsResponse {
        error_code: ErrorCode::None.code(),
        api_keys: TABLE
            .iter()
            .map(|row| ApiVersion::advertise(row.api))
            .collect(),
        throttle_time_ms: 0,
        supported_features: finalized
            .iter()
            .map(|(name, level)| SupportedFeatureKey {
                name: (*name).to_owned(),
                min_version: 1,
                max_version: *level,
            })
            .collect(),
        // Every change of a feature is a record, and the offset of the log only grows.
        finalized_features_epoch: image.offset().max(0),
        finalized_features: finalized
            .iter()
            .map(|(name, level)| FinalizedFeatureKey {
                name: (*name).to_owned(),
                min_version_level: *level,
                max_version_level: *level,
            })
            .collect(),
        ..ApiVersionsResponse::default()
    }
}

/// Letters and digits, with dots and hyphens between them.
fn is_software_word(word: &str) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric();
    let bytes = word.as_bytes();
    bytes.first().is_some_and(is_plain)
        && bytes.last().is_some_and(is_plain)
        && bytes
            .iter()
            .all(|byte| is_plain(byte) || matches!(byte, b'.' | b'-'))
}

#[cfg(test)]
mod tests {
    use kuorum_protocol::api_key::ApiKey;

    use super::*;

    #[test]
    fn words_a_client_may_call_itself() {
        let rows = [
            ("librdkafka", true),
            ("apache-kafka-java", true),
            ("2.15.0-RC1", true),
            ("x", true),
            ("", false),
            ("-x", false),
            ("x.", false),
            ("a b", false),
            ("a/b", false),
            ("ä", false),
        ];
        for (word, expected) in rows {
            assert_eq!(is_software_word(word), expected, "{word:?}");
        }
    }

    #[test]
    fn the_table_is_what_is_advertised() {
        let request = ApiVersionsRequest {
            client_software_name: "test".to_owned(),
            client_software_version: "1".to_owned(),
        };
        let response = answer(&MetadataImage::default(), &request, 4);
        assert_eq!(response.error_code, 0);
        assert_eq!(response.api_keys.len(), TABLE.len());
        let produce = response
            .api_keys
            .iter()
            .find(|row| row.api_key == ApiKey::Produce.key())
            .expect("Produce is served");
        assert_eq!((produce.min_version, produce.max_version), (0, 13));
        let refused = answer(&MetadataImage::default(), &ApiVersionsRequest::default(), 3);
        assert_eq!(refused.error_code, ErrorCode::InvalidRequest.code());
        let old = answer(&MetadataImage::default(), &ApiVersionsRequest::default(), 2);
        assert_eq!(old.error_code, 0, "old clients do not introduce themselves");
    }
}
