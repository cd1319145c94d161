//! `kuorum events`: what happened in the cluster, and what happens.
//! Law: following goes on at another controller after the last event seen; what could not be had is said, never passed over.

use std::time::{Duration, Instant};

use clap::Args;
use kuorum_admin_api::{Event, EventOrder, EventPage, EventQuery, Topic};

use crate::Global;
use crate::admin::{Admin, escaped};
use crate::failure::{Exit, Failure};
use crate::output::{Output, json, note, say, table};
use crate::time;

/// How many events are shown when nobody says.
const LAST: usize = 50;
/// How many before what is followed.
const LAST_BEFORE_FOLLOWING: usize = 10;
/// A stream that is silent for so long is dead: a controller says something every 15 seconds.
const SILENCE: Duration = Duration::from_secs(45);
/// How long to wait before another controller is asked.
const PAUSE: Duration = Duration::from_millis(500);
/// The longest frame that is taken.
const FRAME_BYTES: usize = 1024 * 1024;

/// Show what happened in the cluster, and follow what happens
#[derive(Debug, Args)]
pub(crate) struct Events {
    /// Go on and show events as they happen
    #[arg(short, long)]
    follow: bool,
    /// Only events of these kinds, separated by commas: leader_changed, isr_shrunk, broker_fenced, …
    #[arg(long = "type", value_name = "KINDS")]
    kind: Option<String>,
    /// Only events about this topic
    #[arg(short, long)]
    topic: Option<String>,
    /// Only events about this partition of the topic
    #[arg(short, long, requires = "topic")]
    partition: Option<i32>,
    /// Only events about this broker, or that it had a part in
    #[arg(long)]
    broker: Option<i32>,
    /// Only events since: milliseconds since 1970, 2026-01-31T12:00:00Z, or 10m
    #[arg(long)]
    since: Option<String>,
    /// Only events after the one with this id
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(i64).range(0..))]
    after: Option<i64>,
    /// Show at most so many, the newest ones; 50 by default, and all of them with --since or --after
    #[arg(short = 'n', long)]
    last: Option<usize>,
}

impl Events {
    pub(crate) async fn run(self, global: &Global) -> Result<(), Failure> {
        let query = self.query()?;
        let most = self.last.unwrap_or(match (&self.since, self.after) {
            (None, None) if self.follow => LAST_BEFORE_FOLLOWING,
            (None, None) => LAST,
            _ => usize::MAX,
        });
        let admin = Admin::new(global)?;
        let (events, dropped_through) = newest(&admin, &query, most).await?;
        if events.is_empty()
            && let Some(topic) = &query.topic
            && let Err(failure) = known(&admin, topic).await
        {
            note(&failure.message);
        }
        if self.after.is_some_and(|after| after < dropped_through) {
            note(&format!(
                "events up to {dropped_through} are no longer kept: some after --after may be missing"
            ));
        }
        if !self.follow {
            return match global.output {
                Output::Json => json(&events),
                Output::Table if events.is_empty() => {
                    note("no event is kept that matches");
                    Ok(())
                }
                Output::Table => table(
                    &["ID", "TIME", "TYPE", "WHAT", "CAUSE"],
                    events.into_iter().map(|event| {
                        vec![
                            event.id.to_string(),
                            time::text(event.at_ms),
                            event.kind,
                            event.message,
                            event.cause,
                        ]
                    }),
                ),
            };
        }
        for event in &events {
            show(event, global.output)?;
        }
        // What the list did not name there is nothing of up to where it was read.
        let seen = events.last().map_or(dropped_through, |event| event.id);
        follow(global, &query, seen).await
    }

    fn query(&self) -> Result<EventQuery, Failure> {
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| since.as_millis() as i64);
        Ok(EventQuery {
            kind: self.kind.clone(),
            topic: self.topic.clone(),
            partition: self.partition,
            broker: self.broker,
            since: self
                .since
                .as_deref()
                .map(|since| time::parse(since, now))
                .transpose()?,
            after: self.after,
            ..EventQuery::default()
        })
    }
}

/// `/events?…` with what is asked for.
fn path(query: &EventQuery) -> Result<String, Failure> {
    let fields = serde_json::to_value(query)
        .map_err(|error| Failure::usage(format!("cannot write the query: {error}")))?;
    let fields = fields.as_object().into_iter().flatten();
    let parts: Vec<String> = fields
        .map(|(name, value)| match value.as_str() {
            Some(text) => format!("{name}={}", escaped(text)),
            None => format!("{name}={value}"),
        })
        .collect();
    Ok(match parts.is_empty() {
        true => "/events".to_owned(),
        false => format!("/events?{}", parts.join("&")),
    })
}

/// Whether there is such a topic; one that was deleted has events all the same.
async fn known(admin: &Admin, topic: &str) -> Result<(), Failure> {
    let path = format!("/topics/{}", escaped(topic));
    match admin.get_now::<Topic>(&path).await {
        Err(failure) if failure.exit == Exit::Refused => Err(failure),
        _ => Ok(()),
    }
}

/// The newest events that are wanted, oldest first, and the id up to which none is kept.
async fn newest(
    admin: &Admin,
    query: &EventQuery,
    most: usize,
) -> Result<(Vec<Event>, i64), Failure> {
    let mut events: Vec<Event> = Vec::new();
    let mut query = EventQuery {
        order: Some(EventOrder::Desc),
        ..query.clone()
    };
    loop {
        query.page_size = Some((most - events.len()).clamp(1, 1000));
        let page: EventPage = admin.get(&path(&query)?).await?;
        events.extend(page.items);
        query.page_token = page.next_page_token;
        if events.len() >= most || query.page_token.is_none() {
            events.truncate(most);
            events.reverse();
            return Ok((events, page.dropped_through));
        }
    }
}

fn show(event: &Event, output: Output) -> Result<(), Failure> {
    match output {
        Output::Json => {
            let text = serde_json::to_string(event)
                .map_err(|error| Failure::usage(format!("cannot write JSON: {error}")))?;
            say(&text)
        }
        Output::Table => say(&format!(
            "{}  {}  {}  {} ({})",
            event.id,
            time::text(event.at_ms),
            event.kind,
            event.message,
            event.cause
        )),
    }
}

/// Shows events as they happen, until the process is ended or no controller can be reached for the timeout.
async fn follow(global: &Global, query: &EventQuery, seen: i64) -> Result<(), Failure> {
    let query = EventQuery {
        after: None,
        ..query.clone()
    };
    let path = path(&query)?;
    let mut seen = seen;
    let mut turn = 0;
    loop {
        let mut response = Admin::new(global)?.stream(&path, seen, turn).await?;
        let begun = Instant::now();
        let mut frames = Frames::default();
        let why = loop {
            let chunk = match tokio::time::timeout(SILENCE, response.chunk()).await {
                Ok(Ok(Some(chunk))) => chunk,
                Ok(Ok(None)) => break "it was ended".to_owned(),
                Ok(Err(error)) => break error.to_string(),
                Err(_) => break format!("nothing was heard for {SILENCE:?}"),
            };
            for frame in frames.read(&chunk)? {
                match frame.name.as_str() {
                    "" if !frame.data.is_empty() => {
                        let event: Event = serde_json::from_str(&frame.data).map_err(|error| {
                            Failure::unreachable(format!("unreadable event: {error}"))
                        })?;
                        show(&event, global.output)?;
                    }
                    "reset" => note(&format!(
                        "some events after {seen} are no longer kept and were not shown: {}",
                        frame.data
                    )),
                    _ => {}
                }
                seen = frame.id.unwrap_or(seen);
            }
        };
        note(&format!(
            "the stream of events broke: {why}; going on after {seen}"
        ));
        turn += 1;
        if begun.elapsed() < PAUSE {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// One frame of `text/event-stream`.
#[derive(Debug, Default, PartialEq, Eq)]
struct Frame {
    /// `event:`, empty for an ordinary event.
    name: String,
    data: String,
    id: Option<i64>,
}

/// Cuts a stream into frames.
#[derive(Debug, Default)]
struct Frames {
    rest: Vec<u8>,
}

impl Frames {
    /// The frames that are whole with this chunk.
    fn read(&mut self, chunk: &[u8]) -> Result<Vec<Frame>, Failure> {
        self.rest.extend_from_slice(chunk);
        let mut frames = Vec::new();
        while let Some(end) = self.rest.windows(2).position(|pair| pair == b"\n\n") {
            let text: Vec<u8> = self.rest.drain(..end + 2).collect();
            frames.push(frame(&String::from_utf8_lossy(&text)));
        }
        if self.rest.len() > FRAME_BYTES {
            return Err(Failure::unreachable("the stream of events is none"));
        }
        Ok(frames)
    }
}

fn frame(text: &str) -> Frame {
    let mut frame = Frame::default();
    for line in text.lines() {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut frame.name),
            "data" => {
                if !frame.data.is_empty() {
                    frame.data.push('\n');
                }
                frame.data.push_str(value);
            }
            "id" => frame.id = value.parse().ok(),
            // A comment, or `retry`.
            _ => {}
        }
    }
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_cut_wherever_chunks_end() {
        let text = "id: 0\nretry: 1000\n\nid: 7\ndata: {\"a\":\"é\"}\n\n: still here\nid: 9\n\n\
                    id: 12\nevent: reset\ndata: {\ndata: }\n\n";
        let frame = |name: &str, data: &str, id| Frame {
            name: name.to_owned(),
            data: data.to_owned(),
            id: Some(id),
        };
        let expected = [
            frame("", "", 0),
            frame("", "{\"a\":\"é\"}", 7),
            frame("", "", 9),
            frame("reset", "{\n}", 12),
        ];
        for size in [1, 2, 3, 7, text.len()] {
            let mut frames = Frames::default();
            let mut found = Vec::new();
            for chunk in text.as_bytes().chunks(size) {
                found.extend(frames.read(chunk).unwrap());
            }
            assert_eq!(found, expected, "chunks of {size}");
        }
        let mut frames = Frames::default();
        assert!(frames.read(&vec![b'x'; FRAME_BYTES + 1]).is_err());
    }

    #[test]
    fn a_query_is_a_path() {
        assert_eq!(path(&EventQuery::default()).unwrap(), "/events");
        let query = EventQuery {
            kind: Some("isr_shrunk,isr_expanded".to_owned()),
            partition: Some(3),
            order: Some(EventOrder::Desc),
            ..EventQuery::default()
        };
        let path = path(&query).unwrap();
        let (path, fields) = path.split_once('?').unwrap();
        let mut fields: Vec<&str> = fields.split('&').collect();
        fields.sort_unstable();
        assert_eq!(path, "/events");
        assert_eq!(
            fields,
            [
                "order=desc",
                "partition=3",
                "type=isr_shrunk%2Cisr_expanded"
            ]
        );
    }
}
