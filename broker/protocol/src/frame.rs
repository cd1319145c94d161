//! Frames: a size of four bytes, a header, a body.
//! Law: only headers are known here; what a body means is the business of `messages`.
//!
//! A request's header is in the second form (a tagged section at its end) when its API is flexible in that version;
//! its client id is a legacy string in both. A response's header has a tagged section under the same condition,
//! except that of ApiVersions, which a client must read before it knows what the broker speaks.

use bytes::Bytes;

use crate::api_key::ApiKey;
use crate::error_code::ErrorCode;
use crate::message::{Message, RequestMessage};
use crate::messages::api_versions::{ApiVersion, ApiVersionsResponse};
use crate::wire::{Decoder, Encoder, Tagged, WireError};

/// Bytes of the size field in front of every frame.
pub const SIZE_LENGTH: usize = 4;

/// What stands before the body of every request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// The kind of the request.
    pub api_key: ApiKey,
    /// The form of its body. The header can be read even if the body's version is not known.
    pub api_version: i16,
    /// The client's number for it; the response carries it back.
    pub correlation_id: i32,
    /// The client's name for itself.
    pub client_id: Option<String>,
}

impl RequestHeader {
    /// Writes it in the form that its API and version ask for.
    pub fn encode(&self, out: &mut Encoder) -> Result<(), WireError> {
        out.put_i16(self.api_key.key());
        out.put_i16(self.api_version);
        out.put_i32(self.correlation_id);
        out.put_legacy_string(self.client_id.as_deref())?;
        if self.api_key.is_flexible(self.api_version) {
            Tagged::new().write(out);
        }
        Ok(())
    }

    /// Reads it; the body stays in `input`. An API that is not in the table is an error.
    pub fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let header = Self {
            api_key: ApiKey::try_from(input.get_i16()?)?,
            api_version: input.get_i16()?,
            correlation_id: input.get_i32()?,
            client_id: input.get_legacy_string()?,
        };
        if header.api_key.is_flexible(header.api_version) {
            input.get_tagged(|_, _| Ok(false))?;
        }
        Ok(header)
    }
}

/// Whether the header of that response ends in a tagged section.
fn response_header_is_flexible(api: ApiKey, version: i16) -> bool {
    api != ApiKey::ApiVersions && api.is_flexible(version)
}

/// A whole request, size included. The body has the header's version.
pub fn encode_request<M: RequestMessage>(
    header: &RequestHeader,
    message: &M,
) -> Result<Bytes, WireError> {
    assert_eq!(
        header.api_key,
        M::API,
        "the header speaks of the body it stands before"
    );
    let mut out = start(message.size_hint());
    header.encode(&mut out)?;
    message.encode(header.api_version, &mut out)?;
    end(&mut out)?;
    Ok(out.finish())
}

/// A whole response, size included, in parts: records are not copied.
pub fn encode_response<M: Message>(
    api: ApiKey,
    version: i16,
    correlation_id: i32,
    message: &M,
) -> Result<Vec<Bytes>, WireError> {
    assert_eq!(api, M::API, "an answer belongs to the API that was asked");
    let mut out = start(message.size_hint());
    out.put_i32(correlation_id);
    if response_header_is_flexible(api, version) {
        Tagged::new().write(&mut out);
    }
    message.encode(version, &mut out)?;
    end(&mut out)?;
    Ok(out.finish_parts())
}

fn start(body: usize) -> Encoder {
    let mut out = Encoder::with_capacity(SIZE_LENGTH + 64 + body);
    out.put_i32(0);
    out
}

fn end(out: &mut Encoder) -> Result<(), WireError> {
    let size = out.len() - SIZE_LENGTH;
    out.set_first_i32(i32::try_from(size).map_err(|_| WireError::TooLong(size))?);
    Ok(())
}

/// Reads the header of a frame whose size is already cut off; the body stays in `frame`.
pub fn decode_request_header(frame: &mut Bytes) -> Result<RequestHeader, WireError> {
    let mut input = Decoder::new(frame.clone());
    let header = RequestHeader::decode(&mut input)?;
    *frame = input.into_rest();
    Ok(header)
}

/// Reads the header of a response whose size is already cut off, and returns the correlation id; the body stays in
/// `frame`.
pub fn decode_response_header(
    api: ApiKey,
    version: i16,
    frame: &mut Bytes,
) -> Result<i32, WireError> {
    let mut input = Decoder::new(frame.clone());
    let correlation_id = input.get_i32()?;
    if response_header_is_flexible(api, version) {
        input.get_tagged(|_, _| Ok(false))?;
    }
    *frame = input.into_rest();
    Ok(correlation_id)
}

/// Reads a body to its last byte.
pub fn decode_body<M: Message>(version: i16, body: Bytes) -> Result<M, WireError> {
    let mut input = Decoder::new(body);
    let message = M::decode(version, &mut input)?;
    input.finish()?;
    Ok(message)
}

/// Reads the body of an answer to ApiVersions. A broker that does not know the version asked for answers in version 0
/// with UNSUPPORTED_VERSION and the versions it does know (KIP-511).
pub fn decode_api_versions_body(
    version: i16,
    body: Bytes,
) -> Result<ApiVersionsResponse, WireError> {
    let error = Decoder::new(body.clone()).get_i16()?;
    let refused = ErrorCode::from(error) == ErrorCode::UnsupportedVersion;
    decode_body(if refused { 0 } else { version }, body)
}

/// The answer to an ApiVersions request of an unknown version, whose body must not be read (KIP-511): version 0,
/// UNSUPPORTED_VERSION, and the one row that tells the client which version to ask with.
pub fn api_versions_fallback(correlation_id: i32) -> Bytes {
    let message = ApiVersionsResponse {
        error_code: ErrorCode::UnsupportedVersion.code(),
        api_keys: vec![ApiVersion::advertise(ApiKey::ApiVersions)],
        ..ApiVersionsResponse::default()
    };
    encode_response(ApiKey::ApiVersions, 0, correlation_id, &message)
        .expect("one row of fixed size has a form in version 0")
        .concat()
        .into()
}

#[cfg(test)]
mod tests;
