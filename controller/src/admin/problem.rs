//! Refusals and how they look on the wire.
//! Law: a refusal names the field at fault where there is one, says whether trying again helps, and has one stable code.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use kuorum_admin_api::{FieldError, KafkaError, PROBLEM_JSON, Problem};
use kuorum_metadata::control::command::Outcome;
use kuorum_metadata::rpc::RpcError;
use kuorum_protocol::error_code::ErrorCode;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A refusal on its way to becoming a [`Problem`].
#[derive(Clone, Debug)]
pub(super) struct Refused(Box<Refusal>);

#[derive(Clone, Debug)]
struct Refusal {
    status: StatusCode,
    code: String,
    detail: String,
    kafka: Option<ErrorCode>,
    retry_after: Option<Duration>,
    retriable: bool,
    errors: Vec<FieldError>,
    leader: Option<u64>,
    instance: String,
}

impl Refused {
    /// A refusal of our own kind.
    pub(super) fn new(status: StatusCode, code: &str, detail: impl Into<String>) -> Self {
        Self(Box::new(Refusal {
            status,
            code: code.to_owned(),
            detail: detail.into(),
            kafka: None,
            retry_after: None,
            retriable: false,
            errors: Vec::new(),
            leader: None,
            instance: String::new(),
        }))
    }

    /// A refusal that Kafka has a code for.
    pub(super) fn kafka(code: ErrorCode, detail: impl Into<String>) -> Self {
        let status = status_of(code);
        let name = code.name();
        let mut refused = Self::new(
            status,
            name.strip_suffix("_EXCEPTION").unwrap_or(name),
            detail,
        );
        let refusal = &mut *refused.0;
        refusal.kafka = Some(code);
        // Kafka's clients wait for a topic that is about to appear; here it does not exist.
        refusal.retriable = code.is_retriable() && status != StatusCode::NOT_FOUND;
        if matches!(
            status,
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS
        ) {
            refusal.retry_after = Some(Duration::from_secs(1));
            refusal.retriable = true;
        }
        refused
    }

    /// What a decision said about one thing.
    pub(super) fn outcome(outcome: &Outcome) -> Self {
        let code = outcome.code();
        let detail = outcome
            .message
            .clone()
            .unwrap_or_else(|| code.name().to_owned());
        Self::kafka(code, detail)
    }

    /// Nobody is active, or this controller cannot reach the one who is.
    pub(super) fn no_controller(leader: Option<u64>, detail: impl Into<String>) -> Self {
        let mut refused = Self::kafka(ErrorCode::NotController, detail);
        refused.0.leader = leader;
        refused
    }

    /// Names a field at fault, as a JSON Pointer into the body.
    #[must_use]
    pub(super) fn field(mut self, pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        self.0.errors.push(FieldError {
            pointer: pointer.into(),
            detail: detail.into(),
        });
        self
    }

    /// Names the field at fault with the sentence of the whole.
    #[must_use]
    pub(super) fn in_field(self, pointer: impl Into<String>) -> Self {
        let detail = self.0.detail.clone();
        self.field(pointer, detail)
    }

    /// Says at which path it happened.
    #[must_use]
    pub(super) fn at(mut self, path: &str) -> Self {
        path.clone_into(&mut self.0.instance);
        self
    }

    /// The Kafka code, if there is one.
    pub(super) fn kafka_code(&self) -> Option<ErrorCode> {
        self.0.kafka
    }
}

impl From<RpcError> for Refused {
    fn from(error: RpcError) -> Self {
        let mut refused = Self::kafka(ErrorCode::from(error.code), error.message);
        refused.0.leader = error.active_controller;
        refused
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let refusal = *self.0;
        let problem = Problem {
            kind: format!(
                "urn:kuorum:problem:{}",
                refusal.code.to_ascii_lowercase().replace('_', "-")
            ),
            title: title(&refusal.code),
            status: refusal.status.as_u16(),
            detail: refusal.detail,
            instance: refusal.instance,
            code: refusal.code,
            kafka_error: refusal.kafka.map(|code| KafkaError {
                code: code.into(),
                name: code.name().to_owned(),
            }),
            retriable: refusal.retriable,
            retry_after_ms: refusal.retry_after.map(|after| after.as_millis() as u64),
            errors: refusal.errors,
            leader: refusal.leader,
        };
        let mut response = (refusal.status, Json(problem)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if let Some(after) = refusal.retry_after {
            headers.insert(
                header::RETRY_AFTER,
                HeaderValue::from(after.as_secs().max(1)),
            );
        }
        response
    }
}

/// A code in words: `TOPIC_ALREADY_EXISTS` → `Topic already exists`.
fn title(code: &str) -> String {
    let mut words = code.to_ascii_lowercase().replace('_', " ");
    if let Some(first) = words.get_mut(0..1) {
        first.make_ascii_uppercase();
    }
    words
}

fn status_of(code: ErrorCode) -> StatusCode {
    match code {
        ErrorCode::UnknownTopicOrPartition
        | ErrorCode::UnknownTopicId
        | ErrorCode::BrokerIdNotRegistered
        | ErrorCode::NoReassignmentInProgress
        | ErrorCode::ResourceNotFound => StatusCode::NOT_FOUND,
        ErrorCode::TopicAlreadyExists
        | ErrorCode::DuplicateResource
        | ErrorCode::ReassignmentInProgress
        | ErrorCode::ElectionNotNeeded
        | ErrorCode::PreferredLeaderNotAvailable
        | ErrorCode::EligibleLeadersNotAvailable
        | ErrorCode::DuplicateBrokerRegistration => StatusCode::CONFLICT,
        ErrorCode::TopicDeletionDisabled
        | ErrorCode::PolicyViolation
        | ErrorCode::TopicAuthorizationFailed
        | ErrorCode::ClusterAuthorizationFailed => StatusCode::FORBIDDEN,
        ErrorCode::NotController
        | ErrorCode::BrokerNotAvailable
        | ErrorCode::LeaderNotAvailable => StatusCode::SERVICE_UNAVAILABLE,
        ErrorCode::ThrottlingQuotaExceeded => StatusCode::TOO_MANY_REQUESTS,
        ErrorCode::RequestTimedOut => StatusCode::GATEWAY_TIMEOUT,
        ErrorCode::UnknownServerError => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::BAD_REQUEST,
    }
}

/// A JSON body, refused in the words of this API.
pub(super) struct Body<T>(pub(super) T);

/// A JSON object and nothing else: by itself serde takes an array for a struct, the fields in their order, and so `[]` for a request
/// that leaves everything out.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(fields)).map(Object)
            }
        }

        deserializer.deserialize_map(Fields(PhantomData))
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let path = path_of(request.extensions(), request.uri().path());
        match Json::<Object<T>>::from_request(request, state).await {
            Ok(Json(Object(value))) => Ok(Self(value)),
            Err(rejection) => Err(refuse_body(&rejection).at(&path).into_response()),
        }
    }
}

/// The parts of a path, refused in the words of this API.
pub(super) struct Path<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        match axum::extract::Path::<T>::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(value)) => Ok(Self(value)),
            Err(rejection) => {
                let path = path_of(&parts.extensions, parts.uri.path());
                Err(refuse_path(&rejection).at(&path).into_response())
            }
        }
    }
}

/// The query, refused in the words of this API.
pub(super) struct Query<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        match axum::extract::Query::<T>::from_request_parts(parts, state).await {
            Ok(axum::extract::Query(value)) => Ok(Self(value)),
            Err(rejection) => {
                let path = path_of(&parts.extensions, parts.uri.path());
                Err(refuse_query(&rejection).at(&path).into_response())
            }
        }
    }
}

/// What was asked for, before routers cut anything off.
#[derive(Clone, Debug)]
pub(super) struct Asked(pub(super) Uri);

/// The path as it was asked for.
pub(super) fn path_of(extensions: &axum::http::Extensions, nested: &str) -> String {
    extensions
        .get::<Asked>()
        .map_or(nested, |asked| asked.0.path())
        .to_owned()
}

fn refuse_body(rejection: &JsonRejection) -> Refused {
    let text = rejection.body_text();
    let code = match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => "BODY_TOO_LARGE",
        StatusCode::UNSUPPORTED_MEDIA_TYPE => "UNSUPPORTED_MEDIA_TYPE",
        _ => "INVALID_BODY",
    };
    let status = match rejection.status() {
        // Kinds of "the body is not what was asked for" are one kind to a client.
        StatusCode::UNPROCESSABLE_ENTITY => StatusCode::BAD_REQUEST,
        status => status,
    };
    let refused = Refused::new(status, code, text.clone());
    match pointer_in(&text) {
        Some(pointer) => refused.in_field(pointer),
        None => refused,
    }
}

fn refuse_path(rejection: &PathRejection) -> Refused {
    Refused::new(
        StatusCode::BAD_REQUEST,
        "INVALID_PATH",
        rejection.body_text(),
    )
}

fn refuse_query(rejection: &QueryRejection) -> Refused {
    Refused::new(
        StatusCode::BAD_REQUEST,
        "INVALID_QUERY",
        rejection.body_text(),
    )
}

/// The fields of bodies that are maps from configuration keys to values.
const CONFIG_MAPS: [&str; 2] = ["set", "configs"];

/// The field that serde's sentence is about, as a JSON Pointer.
fn pointer_in(text: &str) -> Option<String> {
    let text = text.strip_prefix("Failed to deserialize the JSON body into the target type: ")?;
    // An unknown or a missing field is named in backquotes; a wrong one stands in front, as `a.b[0]: …`.
    for words in ["unknown field `", "missing field `"] {
        if let Some((before, rest)) = text.split_once(words)
            && let Some((name, _)) = rest.split_once('`')
        {
            let parent = before.split_once(": ").map_or("", |(parent, _)| parent);
            let parent = parent
                .strip_suffix(name)
                .unwrap_or(parent)
                .trim_end_matches('.');
            return Some(pointer(&if parent.is_empty() {
                name.to_owned()
            } else {
                format!("{parent}.{name}")
            }));
        }
    }
    let (path, _) = text.split_once(": ")?;
    (!path.is_empty() && !path.contains(' ')).then(|| pointer(path))
}

fn pointer(path: &str) -> String {
    // The keys of maps of configuration values have dots in them.
    let key = CONFIG_MAPS.iter().find_map(|map| {
        let key = path.strip_prefix(map)?.strip_prefix('.')?;
        Some([*map, key])
    });
    let parts: Vec<&str> = match &key {
        Some(parts) => parts.to_vec(),
        None => path.split(['.', '[', ']']).collect(),
    };
    let mut pointer = String::new();
    for part in parts.into_iter().filter(|part| !part.is_empty()) {
        pointer.push('/');
        pointer.push_str(&part.replace('~', "~0").replace('/', "~1"));
    }
    pointer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_at_fault_is_found_in_serde_sentences() {
        let head = "Failed to deserialize the JSON body into the target type: ";
        for (sentence, expected) in [
            (
                "partitions: invalid type: string \"x\", expected i32 at line 1 column 9",
                Some("/partitions"),
            ),
            (
                "partitions[2].topic: invalid type: integer `3`",
                Some("/partitions/2/topic"),
            ),
            (
                "unknown field `nmae`, expected one of `name`",
                Some("/nmae"),
            ),
            (
                "nmae: unknown field `nmae`, expected one of `name`",
                Some("/nmae"),
            ),
            (
                "partitions[0]: missing field `topic` at line 1",
                Some("/partitions/0/topic"),
            ),
            ("missing field `name` at line 1 column 2", Some("/name")),
            (
                "set.retention.ms: invalid type: integer `3`, expected a string",
                Some("/set/retention.ms"),
            ),
            (
                "configs.retention.ms: invalid type: boolean `true`, expected a string",
                Some("/configs/retention.ms"),
            ),
            ("expected value at line 1 column 1", None),
        ] {
            assert_eq!(
                pointer_in(&format!("{head}{sentence}")).as_deref(),
                expected,
                "{sentence}"
            );
        }
    }

    #[test]
    fn a_code_reads_as_a_title() {
        assert_eq!(title("TOPIC_ALREADY_EXISTS"), "Topic already exists");
        assert_eq!(title(""), "");
    }
}
