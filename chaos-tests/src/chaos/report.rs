//! One run on one page: what was broken when, who led, who was in sync, how many writes were acknowledged, and the verdict.
//! Law: a single HTML file that loads nothing from anywhere, for screens that are light or dark.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::checkers::Verdict;
use super::history::{Entry, Event, Outcome};
use super::lab::Ended;
use super::scenarios::Scenario;

const STYLE: &str = include_str!("report.css");
/// The drawing's width, and where its lanes begin.
const WIDTH: f64 = 1_080.0;
const LEFT: f64 = 130.0;
const LANE: f64 = 20.0;
const CHART: f64 = 110.0;
/// Partitions with lanes of their own.
const SHOWN_PARTITIONS: usize = 6;
/// Complaints shown of one property.
const SHOWN_COMPLAINTS: usize = 20;

/// Text as HTML shows it.
#[must_use]
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// A page of its own, with the style of all reports.
#[must_use]
pub fn page(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>{}</title><style>{STYLE}</style></head>\n<body><main>{body}</main></body></html>\n",
        escape(title)
    )
}

/// What `make chaos` says of one scenario.
#[derive(Debug)]
pub struct Line {
    pub name: &'static str,
    pub passed: bool,
    pub seconds: f64,
    pub says: String,
    /// The report's file name; `None` if the scenario was not run.
    pub file: Option<String>,
}

/// The page that lists the reports of one call.
#[must_use]
pub fn index(lines: &[Line]) -> String {
    let mut body = String::from("<h1>Chaos tests</h1>");
    let failed = lines.iter().filter(|line| !line.passed).count();
    let word = match failed {
        0 => "<p class=\"badge good\">all held</p>".to_owned(),
        n => format!("<p class=\"badge bad\">{n} failed</p>"),
    };
    body.push_str(&word);
    body.push_str("<table><tr><th>scenario</th><th></th><th class=\"number\">seconds</th><th>what it says</th></tr>");
    for line in lines {
        let name = match &line.file {
            Some(file) => format!("<a href=\"{}\">{}</a>", escape(file), escape(line.name)),
            None => escape(line.name),
        };
        let (class, word) = match (line.passed, &line.file) {
            (true, Some(_)) => ("good", "held"),
            (true, None) => ("quiet", "not run"),
            (false, _) => ("bad", "failed"),
        };
        put(
            &mut body,
            format_args!(
                "<tr><td>{name}</td><td><span class=\"badge {class}\">{word}</span></td><td class=\"number\">{:.0}</td><td>{}</td></tr>",
                line.seconds,
                escape(&line.says)
            ),
        );
    }
    body.push_str("</table>");
    page("Chaos tests", &body)
}

fn put(text: &mut String, what: std::fmt::Arguments<'_>) {
    text.write_fmt(what)
        .expect("writing to memory does not fail");
}

/// The page of one run. `failure` is what ended the story early.
#[must_use]
pub fn render(scenario: &Scenario, ended: &Ended, failure: Option<&str>) -> String {
    let entries = &ended.entries;
    let held = failure.is_none()
        && ended
            .verdicts
            .iter()
            .all(|verdict| verdict.wrong.is_empty());
    let end = entries.last().map_or(1.0, |entry| entry.at).max(1.0);
    let mut body = String::new();
    let (class, word) = match held {
        true => ("good", "held"),
        false => ("bad", "failed"),
    };
    put(
        &mut body,
        format_args!(
            "<h1>{} <span class=\"badge {class}\">{word}</span></h1><p>{}</p><p class=\"quiet\">Guards {}. Without the rule: {}.</p>",
            escape(scenario.name),
            escape(scenario.story),
            escape(scenario.guards),
            escape(scenario.without)
        ),
    );
    if let Some(failure) = failure {
        put(
            &mut body,
            format_args!("<pre class=\"bad\">{}</pre>", escape(failure)),
        );
    }
    let began = entries.iter().find_map(|entry| match &entry.event {
        Event::Began {
            seed, scale, hosts, ..
        } => Some(format!(
            "seed {seed}, scale 1:{scale}, {}",
            if *hosts {
                "nodes are hosts of their own"
            } else {
                "nodes share the loopback device"
            }
        )),
        _ => None,
    });
    put(
        &mut body,
        format_args!(
            "<dl class=\"tiles\">{}{}{}{}{}</dl><p class=\"quiet\">{}</p>",
            tile("acknowledged", &ended.acknowledged.to_string()),
            tile("unknown", &ended.unknown.to_string()),
            tile("refused", &ended.failed.to_string()),
            tile(
                "longest pause",
                &format!("{} ms", ended.longest_pause.as_millis())
            ),
            tile("lasted", &format!("{:.1} s", end / 1e3)),
            escape(&began.unwrap_or_default())
        ),
    );
    body.push_str("<figure>");
    body.push_str(&timeline(entries, end));
    body.push_str("<figcaption class=\"legend\"><span class=\"key b1\">broker 1</span><span class=\"key b2\">broker 2</span><span class=\"key b3\">broker 3</span><span class=\"key nobody\">nobody leads</span><span class=\"key fault\">something is broken</span></figcaption></figure>");
    body.push_str("<h2>The story</h2><ol>");
    for entry in entries {
        if let Event::Step { text } = &entry.event {
            put(
                &mut body,
                format_args!(
                    "<li><span class=\"time\">{:.2} s</span> {}</li>",
                    entry.at / 1e3,
                    escape(text)
                ),
            );
        }
    }
    body.push_str(
        "</ol><h2>Verdict</h2><table><tr><th>property</th><th></th><th>what it says</th></tr>",
    );
    for verdict in &ended.verdicts {
        body.push_str(&row(verdict));
    }
    body.push_str("</table>");
    body.push_str(&decisions(entries));
    page(&format!("{}: {word}", scenario.name), &body)
}

fn tile(name: &str, value: &str) -> String {
    format!("<div><dt>{name}</dt><dd>{value}</dd></div>")
}

fn row(verdict: &Verdict) -> String {
    let (class, word) = match verdict.wrong.len() {
        0 => ("good", "holds".to_owned()),
        n => ("bad", format!("{n} broken")),
    };
    let mut complaints = String::new();
    for one in verdict.wrong.iter().take(SHOWN_COMPLAINTS) {
        put(
            &mut complaints,
            format_args!("<br><code>{}</code>", escape(one)),
        );
    }
    format!(
        "<tr><td>{}</td><td><span class=\"badge {class}\">{word}</span></td><td>{}{complaints}</td></tr>",
        verdict.name, verdict.says
    )
}

/// What the controllers decided, behind a fold.
fn decisions(entries: &[Entry]) -> String {
    let mut rows = String::new();
    for entry in entries {
        if let Event::Decided {
            topic,
            partition,
            leader,
            leader_epoch,
            isr,
            cause,
            ..
        } = &entry.event
        {
            put(
                &mut rows,
                format_args!(
                    "<tr><td class=\"number\">{:.3} s</td><td>{}-{partition}</td><td>{}</td><td class=\"number\">{leader_epoch}</td><td>{isr:?}</td><td>{}</td></tr>",
                    entry.at / 1e3,
                    escape(topic),
                    leader.map_or("nobody".to_owned(), |leader| format!("broker {leader}")),
                    escape(cause)
                ),
            );
        }
    }
    format!(
        "<details><summary>What the controllers decided</summary><table><tr><th class=\"number\">at</th><th>partition</th><th>leads</th><th class=\"number\">epoch</th><th>in sync</th><th>cause</th></tr>{rows}</table></details>"
    )
}

/// Draws lanes from top to bottom.
struct Drawing {
    svg: String,
    y: f64,
    end: f64,
}

impl Drawing {
    fn x(&self, at: f64) -> f64 {
        LEFT + (WIDTH - LEFT - 10.0) * (at / self.end).clamp(0.0, 1.0)
    }

    fn label(&mut self, text: &str) {
        put(
            &mut self.svg,
            format_args!(
                "<text class=\"label\" x=\"{:.0}\" y=\"{:.1}\">{}</text>",
                LEFT - 8.0,
                self.y + LANE * 0.68,
                escape(text)
            ),
        );
    }

    fn bar(&mut self, from: f64, until: f64, class: &str, inner: &str, title: &str) {
        let (x, width) = (self.x(from), (self.x(until) - self.x(from)).max(1.5));
        put(
            &mut self.svg,
            format_args!(
                "<g><title>{}</title><rect class=\"{class}\" x=\"{x:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{:.1}\" rx=\"2\"/>",
                escape(title),
                self.y + 3.0,
                LANE - 6.0
            ),
        );
        if width > 9.0 * inner.len() as f64 {
            put(
                &mut self.svg,
                format_args!(
                    "<text class=\"inner\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                    x + 4.0,
                    self.y + LANE * 0.68,
                    escape(inner)
                ),
            );
        }
        self.svg.push_str("</g>");
    }
}

type Place = (String, i32);
/// From when on it is led by whom, under which epoch, with whom in sync.
type Seen = Vec<(f64, Option<i32>, i32, Vec<i32>)>;

fn timeline(entries: &[Entry], end: f64) -> String {
    let mut drawing = Drawing {
        svg: String::new(),
        y: 10.0,
        end,
    };
    throughput(&mut drawing, entries);
    let partitions = seen_partitions(entries);
    for ((topic, partition), seen) in partitions.iter().take(SHOWN_PARTITIONS) {
        drawing.label(&format!("{topic}-{partition}"));
        for (index, (from, leader, epoch, _)) in seen.iter().enumerate() {
            let until = seen.get(index + 1).map_or(end, |next| next.0);
            match leader {
                Some(leader) => drawing.bar(
                    *from,
                    until,
                    &format!("b{leader}"),
                    &format!("{leader} · {epoch}"),
                    &format!(
                        "broker {leader} leads under epoch {epoch}, from {:.2} s",
                        from / 1e3
                    ),
                ),
                None => drawing.bar(
                    *from,
                    until,
                    "nobody",
                    "",
                    &format!(
                        "nobody leads, from {:.2} s to {:.2} s",
                        from / 1e3,
                        until / 1e3
                    ),
                ),
            }
        }
        drawing.y += LANE;
    }
    if let Some(((topic, partition), seen)) = partitions.iter().next() {
        for broker in 1..=3 {
            drawing.label(&format!("in sync: {broker}"));
            for (index, (from, .., isr)) in seen.iter().enumerate() {
                let until = seen.get(index + 1).map_or(end, |next| next.0);
                if isr.contains(&broker) {
                    let title = format!(
                        "broker {broker} is in sync with {topic}-{partition}, from {:.2} s",
                        from / 1e3
                    );
                    drawing.bar(*from, until, &format!("b{broker} thin"), "", &title);
                }
            }
            drawing.y += LANE;
        }
    }
    for (target, spans) in fault_spans(entries, end) {
        drawing.label(&target);
        for (from, until, fault) in spans {
            let title = format!(
                "{target}: {fault}, {:.2} s to {:.2} s",
                from / 1e3,
                until / 1e3
            );
            drawing.bar(from, until, "fault", &fault, &title);
        }
        drawing.y += LANE;
    }
    steps(&mut drawing, entries);
    axis(&mut drawing);
    let height = drawing.y + 34.0;
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"timeline of the run\"><defs><pattern id=\"hatch\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\"><rect class=\"hatch\" width=\"3\" height=\"6\"/></pattern></defs>{}</svg>",
        drawing.svg
    )
}

/// Acknowledgements a second, as an area.
fn throughput(drawing: &mut Drawing, entries: &[Entry]) {
    let buckets = 200;
    let mut counts = vec![0.0_f64; buckets];
    let width = drawing.end / buckets as f64;
    for entry in entries {
        if let Event::Wrote {
            outcome: Outcome::Acked,
            ..
        } = entry.event
        {
            counts[((entry.at / width) as usize).min(buckets - 1)] += 1e3 / width;
        }
    }
    // A single burst must not flatten everything else.
    let mut sorted = counts.clone();
    sorted.sort_by(f64::total_cmp);
    let top = sorted[buckets * 90 / 100].max(1.0) * 1.5;
    let base = drawing.y + CHART;
    let mut path = format!("M{LEFT:.1} {base:.1}");
    for (index, count) in counts.iter().enumerate() {
        let (from, until) = (index as f64 * width, (index as f64 + 1.0) * width);
        let y = base - (CHART - 6.0) * (count / top).min(1.0);
        let (from, until) = (drawing.x(from), drawing.x(until));
        put(
            &mut path,
            format_args!("L{from:.1} {y:.1}L{until:.1} {y:.1}"),
        );
    }
    let right = drawing.x(drawing.end);
    put(
        &mut drawing.svg,
        format_args!(
            "<path class=\"area\" d=\"{path}L{right:.1} {base:.1}Z\"/><text class=\"label\" x=\"{0:.0}\" y=\"{1:.0}\">acknowledged</text><text class=\"label\" x=\"{0:.0}\" y=\"{2:.0}\">a second</text><text class=\"label\" x=\"{0:.0}\" y=\"{3:.0}\">{top:.0}</text>",
            LEFT - 8.0,
            base - 18.0,
            base - 4.0,
            drawing.y + 10.0
        ),
    );
    drawing.y += CHART + 8.0;
}

fn seen_partitions(entries: &[Entry]) -> BTreeMap<Place, Seen> {
    let mut partitions: BTreeMap<Place, Seen> = BTreeMap::new();
    for entry in entries {
        if let Event::Partition {
            topic,
            partition,
            leader,
            leader_epoch,
            isr,
            ..
        } = &entry.event
        {
            let seen = partitions
                .entry((topic.to_string(), *partition))
                .or_default();
            let same = seen
                .last()
                .is_some_and(|last| last.1 == *leader && last.2 == *leader_epoch && last.3 == *isr);
            if !same {
                seen.push((entry.at, *leader, *leader_epoch, isr.clone()));
            }
        }
    }
    partitions
}

/// Of each target, from when to when it suffered what.
fn fault_spans(entries: &[Entry], end: f64) -> BTreeMap<String, Vec<(f64, f64, String)>> {
    let mut open: BTreeMap<(String, String), f64> = BTreeMap::new();
    let mut spans: BTreeMap<String, Vec<(f64, f64, String)>> = BTreeMap::new();
    for entry in entries {
        if let Event::Fault {
            fault,
            target,
            begins,
        } = &entry.event
        {
            let key = (target.clone(), fault.clone());
            if *begins {
                open.entry(key).or_insert(entry.at);
            } else if let Some(from) = open.remove(&key) {
                spans
                    .entry(key.0)
                    .or_default()
                    .push((from, entry.at, key.1));
            }
        }
    }
    for ((target, fault), from) in open {
        spans.entry(target).or_default().push((from, end, fault));
    }
    spans
}

fn steps(drawing: &mut Drawing, entries: &[Entry]) {
    let bottom = drawing.y + 4.0;
    let mut number = 0;
    let mut used = BTreeSet::new();
    for entry in entries {
        if let Event::Step { text } = &entry.event {
            number += 1;
            let x = drawing.x(entry.at);
            put(
                &mut drawing.svg,
                format_args!(
                    "<g><title>{}</title><line class=\"step\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"10\" y2=\"{bottom:.1}\"/>",
                    escape(text)
                ),
            );
            // Numbers that would overlap are left out; the line is there.
            if used.insert((x / 14.0) as i64) {
                put(
                    &mut drawing.svg,
                    format_args!("<text class=\"mark\" x=\"{x:.1}\" y=\"9\">{number}</text>"),
                );
            }
            drawing.svg.push_str("</g>");
        }
    }
}

fn axis(drawing: &mut Drawing) {
    drawing.y += 10.0;
    let seconds = drawing.end / 1e3;
    let step = [1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0]
        .into_iter()
        .find(|step| seconds / step <= 12.0)
        .unwrap_or(1_800.0);
    let mut at = 0.0;
    while at <= seconds {
        let x = drawing.x(at * 1e3);
        put(
            &mut drawing.svg,
            format_args!(
                "<text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\">{at:.0} s</text>",
                drawing.y + 12.0
            ),
        );
        at += step;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::chaos::scenarios;

    #[test]
    fn a_page_shows_everything_and_loads_nothing() {
        let at = |at, event| Entry { at, event };
        let partition = |leader: Option<i32>, leader_epoch| Event::Partition {
            topic: "a<b".into(),
            partition: 0,
            leader,
            leader_epoch,
            isr: vec![1, 2],
            elr: Vec::new(),
            high_watermark: None,
        };
        let fault = |begins| Event::Fault {
            fault: "down".to_owned(),
            target: "broker 1".to_owned(),
            begins,
        };
        let ended = Ended {
            entries: vec![
                at(0.0, partition(Some(1), 4)),
                at(500.0, fault(true)),
                at(600.0, partition(None, 5)),
                at(800.0, partition(Some(2), 6)),
                at(
                    900.0,
                    Event::Step {
                        text: "a step & more".to_owned(),
                    },
                ),
                at(1_500.0, fault(false)),
            ],
            verdicts: vec![Verdict {
                name: "acked-is-read",
                says: "it is read",
                wrong: vec!["7 is <lost>".to_owned()],
            }],
            longest_pause: Duration::from_millis(321),
            acknowledged: 9,
            unknown: 1,
            failed: 0,
        };
        let page = render(&scenarios::ALL[0], &ended, Some("it broke"));
        for needed in [
            "1 · 4",
            "nobody leads",
            "a step &amp; more",
            "7 is &lt;lost&gt;",
            "321 ms",
            "a&lt;b-0",
            "it broke",
            "prefers-color-scheme",
        ] {
            assert!(page.contains(needed), "{needed}");
        }
        for foreign in ["http:", "https:", "<script", "url(/", "@import"] {
            assert!(!page.contains(foreign), "{foreign}");
        }
    }
}
