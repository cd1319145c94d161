//! The admin API, asked over HTTP.
//! Law: one deadline for all tries. What may have been carried out is not asked for twice, unless asking twice is harmless.

use std::fmt;
use std::time::{Duration, Instant};

use kuorum_admin_api::{BASE_PATH, FieldError, Page, Problem};
use reqwest::{Method, Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Global;
use crate::failure::Failure;
use crate::output::note;

/// How long to wait between tries when nobody says.
const PAUSE: Duration = Duration::from_millis(300);
/// How long one controller may take over an answer before the next one is asked too; four times as long each time around.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long a controller has to show that it is there.
const ALIVE: Duration = Duration::from_secs(1);

/// The controllers.
#[derive(Debug)]
pub(crate) struct Admin {
    addresses: Vec<String>,
    client: reqwest::Client,
    deadline: Instant,
    timeout: Duration,
}

impl Admin {
    pub(crate) fn new(global: &Global) -> Result<Self, Failure> {
        let addresses = addresses(&global.admin)?;
        let client = reqwest::Client::builder()
            .no_proxy()
            .connect_timeout(Duration::from_secs(2).min(global.timeout()))
            .build()
            .map_err(|error| Failure::usage(format!("cannot speak HTTP: {error}")))?;
        let timeout = global.timeout();
        Ok(Self {
            addresses,
            client,
            deadline: Instant::now() + timeout,
            timeout,
        })
    }

    /// Reads one resource.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        read(self.ask(Method::GET, path, None::<&()>).await?).await
    }

    /// Reads one resource if anybody can tell now; nobody is asked a second time.
    pub(crate) async fn get_now<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        read(self.ask_for(1, Method::GET, path, None::<&()>).await?).await
    }

    /// Reads a whole list, page by page.
    pub(crate) async fn list<T: DeserializeOwned>(&self, path: &str) -> Result<Vec<T>, Failure> {
        let mut items = Vec::new();
        let mut token: Option<String> = None;
        loop {
            let path = match &token {
                None => path.to_owned(),
                Some(token) => format!("{path}?page_token={}", escaped(token)),
            };
            let page: Page<T> = self.get(&path).await?;
            items.extend(page.items);
            token = page.next_page_token;
            if token.is_none() {
                return Ok(items);
            }
        }
    }

    /// Sends something and reads the answer.
    pub(crate) async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Failure> {
        read(self.ask(method, path, Some(body)).await?).await
    }

    /// Reads something that is not JSON.
    pub(crate) async fn bytes(&self, path: &str) -> Result<Vec<u8>, Failure> {
        let response = self.ask(Method::GET, path, None::<&()>).await?;
        let bytes = response.bytes().await.map_err(|error| {
            Failure::unreachable(format!("the answer broke off: {}", causes(&error)))
        })?;
        Ok(bytes.into())
    }

    /// Deletes something.
    pub(crate) async fn delete(&self, path: &str) -> Result<(), Failure> {
        self.ask(Method::DELETE, path, None::<&()>)
            .await
            .map(|_| ())
    }

    /// Opens the stream of events at `path` after one that is known, at the controller whose turn it is or the next that
    /// can. Only the beginning has a deadline.
    pub(crate) async fn stream(
        &self,
        path: &str,
        last_id: i64,
        turn: usize,
    ) -> Result<Response, Failure> {
        let mut tries = Tries::of(&self.addresses);
        let mut turn = turn;
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Failure::unreachable(format!(
                    "no stream within {:?}: {tries}",
                    self.timeout
                )));
            }
            let at = turn % self.addresses.len();
            let address = &self.addresses[at];
            let request = self
                .client
                .get(format!("{address}{BASE_PATH}{path}"))
                .header("accept", "text/event-stream")
                .header("last-event-id", last_id);
            let outcome = match tokio::time::timeout(left, request.send()).await {
                Ok(Ok(response)) if response.status().is_success() => return Ok(response),
                Ok(Ok(response)) => {
                    let problem = problem(response).await;
                    if !problem.retriable {
                        return Err(refusal(&problem));
                    }
                    Outcome::Answer(problem.detail)
                }
                Ok(Err(error)) => Outcome::of(&error),
                Err(_) => Outcome::Silence("no answer".to_owned()),
            };
            tries.note(at, outcome);
            turn += 1;
            tokio::time::sleep(PAUSE.min(left)).await;
        }
    }

    /// Asks one controller after the other, until one answers that can.
    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<Response, Failure> {
        self.ask_for(u32::MAX, method, path, body).await
    }

    /// The same, at most so many times around.
    async fn ask_for(
        &self,
        rounds: u32,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<Response, Failure> {
        let mut tries = Tries::of(&self.addresses);
        let mut told = false;
        let mut patience = PATIENCE;
        let mut round = 0;
        loop {
            round += 1;
            let mut pause = PAUSE;
            for (at, address) in self.addresses.iter().enumerate() {
                let left = self.deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(Failure::unreachable(format!(
                        "no answer within {:?}: {tries}{}",
                        self.timeout,
                        tries.hint()
                    )));
                }
                // One that is paused takes the connection and never answers. Reading may be tried elsewhere; what
                // changes something is only given to one that shows to be alive.
                if method != Method::GET
                    && let Err(error) = self.greet(address, left).await
                    && !error.is_connect()
                {
                    tries.note(at, Outcome::of(&error));
                    continue;
                }
                let others = self.addresses.len() > 1;
                let wait = match others && method == Method::GET {
                    true => patience.min(left),
                    false => left,
                };
                let url = format!("{address}{BASE_PATH}{path}");
                let mut request = self.client.request(method.clone(), &url).timeout(left);
                if let Some(body) = body {
                    request = request.json(body);
                }
                let answer = tokio::time::timeout(wait, request.send()).await;
                let Ok(answer) = answer else {
                    tries.note(at, Outcome::Silence(format!("no answer within {wait:?}")));
                    continue;
                };
                let response = match answer {
                    Ok(response) => response,
                    Err(error) if error.is_connect() || method == Method::GET => {
                        tries.note(at, Outcome::of(&error));
                        continue;
                    }
                    Err(error) => {
                        return Err(Failure::unreachable(format!(
                            "{address}: {}; it may have been carried out",
                            causes(&error)
                        )));
                    }
                };
                if response.status().is_success() {
                    return Ok(response);
                }
                let status = response.status();
                let problem = problem(response).await;
                // Only these say that nothing was done.
                let unheard = matches!(
                    status,
                    StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS
                );
                if !(unheard && problem.retriable) {
                    return Err(refusal(&problem));
                }
                tries.note(at, Outcome::Answer(problem.detail));
                pause = problem.retry_after_ms.map_or(PAUSE, Duration::from_millis);
            }
            let left = self.deadline.saturating_duration_since(Instant::now());
            if tries.nobody() && !told {
                told = true;
                note(&format!(
                    "no controller listens at {} (--admin or KUORUM_ADMIN says where); trying for {:?}",
                    self.addresses.join(", "),
                    self.timeout
                ));
            }
            if round >= rounds {
                return Err(Failure::unreachable(format!("{tries}{}", tries.hint())));
            }
            patience = (patience * 4).min(self.timeout);
            tokio::time::sleep(pause.min(left)).await;
        }
    }

    /// Whether somebody who speaks HTTP is there.
    async fn greet(&self, address: &str, left: Duration) -> Result<(), reqwest::Error> {
        let question = self.client.get(format!("{address}/livez"));
        question.timeout(ALIVE.min(left)).send().await.map(drop)
    }
}

/// What came of asking one controller.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    /// It has not been asked.
    Unasked,
    /// Nobody listens there, or the way is barred.
    NoConnection(String),
    /// The connection was taken and closed without a word of HTTP.
    HungUp(String),
    /// The connection was taken, and nothing came in time.
    Silence(String),
    /// It said why it cannot.
    Answer(String),
}

impl Outcome {
    fn of(error: &reqwest::Error) -> Self {
        match (error.is_connect(), error.is_timeout()) {
            (true, _) => Self::NoConnection(format!("cannot connect: {}", root(error))),
            (false, true) => Self::Silence(causes(error)),
            (false, false) => Self::HungUp(causes(error)),
        }
    }

    fn text(&self) -> &str {
        match self {
            Self::Unasked => "not asked",
            Self::NoConnection(text)
            | Self::HungUp(text)
            | Self::Silence(text)
            | Self::Answer(text) => text,
        }
    }
}

/// The last that came of asking each controller. Its display is for the person who waited: what a controller said, or else
/// what happened at every address.
#[derive(Debug)]
struct Tries<'a> {
    outcomes: Vec<(&'a str, Outcome)>,
}

impl<'a> Tries<'a> {
    fn of(addresses: &'a [String]) -> Self {
        let outcomes = addresses.iter();
        Self {
            outcomes: outcomes
                .map(|address| (address.as_str(), Outcome::Unasked))
                .collect(),
        }
    }

    fn note(&mut self, at: usize, outcome: Outcome) {
        self.outcomes[at].1 = outcome;
    }

    /// Whether nobody listens anywhere.
    fn nobody(&self) -> bool {
        let mut outcomes = self.outcomes.iter();
        outcomes.all(|(_, outcome)| matches!(outcome, Outcome::NoConnection(_)))
    }

    /// What to think of it if everybody who was there hung up.
    fn hint(&self) -> &'static str {
        let hung_up = |outcome: &Outcome| matches!(outcome, Outcome::HungUp(_));
        let mut outcomes = self.outcomes.iter().map(|(_, outcome)| outcome);
        let foreign = outcomes
            .clone()
            .all(|outcome| hung_up(outcome) || matches!(outcome, Outcome::NoConnection(_)));
        match foreign && outcomes.any(hung_up) {
            true => {
                "; that is no admin API: is it a broker's port for Kafka clients? The local cluster's admin API is at ports \
                 9132 to 9134"
            }
            false => "",
        }
    }
}

impl fmt::Display for Tries<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_answer = |outcome: &Outcome| matches!(outcome, Outcome::Answer(_));
        let answered = self.outcomes.iter().any(|(_, outcome)| is_answer(outcome));
        // Addresses of which the same is to be said are named together.
        let mut told: Vec<(Vec<&str>, &str)> = Vec::new();
        for (address, outcome) in &self.outcomes {
            if (answered && !is_answer(outcome)) || *outcome == Outcome::Unasked {
                continue;
            }
            match told.iter_mut().find(|(_, text)| *text == outcome.text()) {
                Some((addresses, _)) => addresses.push(address),
                None => told.push((vec![address], outcome.text())),
            }
        }
        for (index, (addresses, text)) in told.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{}: {text}", addresses.join(", "))?;
        }
        Ok(())
    }
}

/// The addresses in `--admin`.
fn addresses(text: &str) -> Result<Vec<String>, Failure> {
    let mut addresses = Vec::new();
    for given in text.split(',').map(str::trim) {
        if given.is_empty() {
            continue;
        }
        let address = match given.contains("://") {
            true => given.to_owned(),
            false => format!("http://{given}"),
        };
        let is_sound = reqwest::Url::parse(&address).is_ok_and(|url| {
            url.scheme() == "http" && url.host_str().is_some_and(|host| !host.is_empty())
        });
        if !is_sound {
            return Err(Failure::usage(format!(
                "--admin: {given:?} is no address of a controller, like http://localhost:9132"
            )));
        }
        addresses.push(address.trim_end_matches('/').to_owned());
    }
    match addresses.is_empty() {
        true => Err(Failure::usage("--admin names no address")),
        false => Ok(addresses),
    }
}

/// A sentence of a refusal, with the fields at fault.
fn refusal(problem: &Problem) -> Failure {
    let said_already = |error: &FieldError| problem.detail.ends_with(&error.detail);
    let message = match problem.errors.as_slice() {
        // A single mistake is the whole sentence already.
        [error] if said_already(error) => format!("{}: {}", problem.code, problem.detail),
        errors => {
            let mut message = match errors.iter().any(said_already) {
                true => format!("{}:", problem.code),
                false => format!("{}: {}", problem.code, problem.detail),
            };
            for error in errors {
                message.push_str(&format!("\n  {}: {}", error.pointer, error.detail));
            }
            message
        }
    };
    match problem.status {
        408 | 504 => Failure::unreachable(message),
        _ => Failure::refused(message),
    }
}

async fn problem(response: Response) -> Problem {
    let status = response.status();
    let text = response.text().await.unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_else(|_| Problem {
        kind: "about:blank".to_owned(),
        title: status.to_string(),
        status: status.as_u16(),
        detail: match text.trim() {
            "" => status.to_string(),
            text => text.chars().take(500).collect(),
        },
        instance: String::new(),
        code: status
            .canonical_reason()
            .unwrap_or("REFUSED")
            .to_uppercase()
            .replace(' ', "_"),
        kafka_error: None,
        retriable: false,
        retry_after_ms: None,
        errors: Vec::new(),
        leader: None,
    })
}

async fn read<T: DeserializeOwned>(response: Response) -> Result<T, Failure> {
    response
        .json()
        .await
        .map_err(|error| Failure::unreachable(format!("unreadable answer: {}", causes(&error))))
}

/// An error with what lies behind it.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

/// What lies behind everything else.
fn root(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

/// A name as one segment of a path, or one value of a query.
pub(crate) fn escaped(name: &str) -> String {
    name.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                char::from(byte).to_string()
            }
            byte => format!("%{byte:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked_before_anybody_is_asked() {
        let rows: &[(&str, Option<&[&str]>)] = &[
            ("localhost:9132", Some(&["http://localhost:9132"])),
            ("http://a:1/, b:2,", Some(&["http://a:1", "http://b:2"])),
            ("foo://x", None),
            ("https://x", None),
            ("http://", None),
            ("http://a:99999", None),
            (" , ", None),
        ];
        for (text, expected) in rows {
            match (addresses(text), expected) {
                (Ok(found), Some(expected)) => assert_eq!(found, *expected, "{text}"),
                (Err(failure), None) => {
                    assert_eq!(failure.exit, crate::failure::Exit::Usage, "{text}");
                }
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
    }

    #[test]
    fn of_all_that_was_tried_the_most_telling_is_said() {
        let refused = || Outcome::NoConnection("cannot connect: connection refused".to_owned());
        let quorum = || Outcome::Answer("no majority of the controllers is up".to_owned());
        let reset = || Outcome::HungUp("connection reset".to_owned());
        let silent = || Outcome::Silence("no answer within 3s".to_owned());
        // (what came of it at a, b and c, whether nobody is there, whether it is no admin API, what is said)
        let rows = [
            (
                [refused(), refused(), refused()],
                true,
                false,
                "a, b, c: cannot connect: connection refused",
            ),
            (
                [quorum(), refused(), refused()],
                false,
                false,
                "a: no majority of the controllers is up",
            ),
            (
                [quorum(), silent(), quorum()],
                false,
                false,
                "a, c: no majority of the controllers is up",
            ),
            (
                [refused(), silent(), Outcome::Unasked],
                false,
                false,
                "a: cannot connect: connection refused; b: no answer within 3s",
            ),
            (
                [refused(), reset(), reset()],
                false,
                true,
                "a: cannot connect: connection refused; b, c: connection reset",
            ),
            (
                [silent(), reset(), reset()],
                false,
                false,
                "a: no answer within 3s; b, c: connection reset",
            ),
        ];
        let addresses = ["a", "b", "c"].map(str::to_owned);
        for (outcomes, nobody, foreign, said) in rows {
            let mut tries = Tries::of(&addresses);
            for (at, outcome) in outcomes.iter().enumerate() {
                tries.note(at, outcome.clone());
            }
            assert_eq!(tries.to_string(), said);
            assert_eq!(tries.nobody(), nobody, "{said}");
            assert_eq!(!tries.hint().is_empty(), foreign, "{said}");
        }
    }

    /// Somebody who takes every connection and hangs up, until the seventh, which it answers.
    #[tokio::test]
    async fn connections_that_are_reset_are_tried_again_until_the_time_is_up() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let address = listener.local_addr().expect("an address");
        let server = tokio::spawn(async move {
            for number in 1.. {
                let (mut socket, _) = listener.accept().await.expect("a connection");
                let mut request = [0; 1024];
                if number > 6 && socket.read(&mut request).await.is_ok_and(|read| read > 0) {
                    let answer =
                        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\nconnection: close\r\n\r\n7";
                    let _ = socket.write_all(answer.as_bytes()).await;
                    return;
                }
            }
        });
        let admin = Admin::new(&Global {
            admin: address.to_string(),
            timeout: Some(30),
            output: crate::output::Output::Json,
        })
        .expect("an address");
        let answer: u32 = admin.get("/seven").await.expect("an answer at last");
        assert_eq!(answer, 7);
        server.await.expect("it ended");
    }

    #[test]
    fn a_refusal_says_each_sentence_once() {
        let said = |detail: &str, errors: &[(&str, &str)]| {
            refusal(&Problem {
                kind: String::new(),
                title: String::new(),
                status: 400,
                detail: detail.to_owned(),
                instance: String::new(),
                code: "NO".to_owned(),
                kafka_error: None,
                retriable: false,
                retry_after_ms: None,
                errors: errors
                    .iter()
                    .map(|(pointer, detail)| FieldError {
                        pointer: (*pointer).to_owned(),
                        detail: (*detail).to_owned(),
                    })
                    .collect(),
                leader: None,
            })
            .message
        };
        for (detail, errors, expected) in [
            ("no", &[][..], "NO: no"),
            ("replicas: bad", &[("/a", "bad")], "NO: replicas: bad"),
            (
                "replicas: bad",
                &[("/a", "bad"), ("/b", "worse")],
                "NO:\n  /a: bad\n  /b: worse",
            ),
            ("no", &[("/a", "bad")], "NO: no\n  /a: bad"),
        ] {
            assert_eq!(said(detail, errors), expected);
        }
    }

    #[test]
    fn names_are_one_segment() {
        assert_eq!(escaped("bank-transfers_1.x"), "bank-transfers_1.x");
        assert_eq!(escaped("../a b?é"), "..%2Fa%20b%3F%C3%A9");
    }
}
