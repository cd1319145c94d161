//! The figures of a run as a table and as a page with pictures, beside what was wanted.

use std::collections::HashMap;
use std::fmt::Write as _;

use kuorum_chaos_tests::chaos::checkers::FINAL;
use kuorum_chaos_tests::chaos::history::{Entry, Event, Outcome};
use kuorum_chaos_tests::chaos::report;
use kuorum_chaos_tests::chaos::stock::Kind;

const PHASES: [(&str, &str, &str); 4] = [
    (
        "detect",
        "detect",
        "from SIGKILL until the active controller has fenced the broker",
    ),
    (
        "elect",
        "elect",
        "until another leader is decided and in the metadata log",
    ),
    (
        "publish",
        "publish",
        "until that broker knows that it leads",
    ),
    (
        "refresh",
        "client refresh",
        "until a client has found it and has a write acknowledged",
    ),
];
const KILLED_MEDIAN: f64 = 1_000.0;
const KILLED_WORST: f64 = 2_000.0;
/// `broker.session.timeout.ms`, and a second.
const FRESH_WORST: f64 = 9_000.0 + 1_000.0;

/// From a fault to the next acknowledgement, phase by phase, in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Phases(pub [f64; 4]);

impl Phases {
    pub fn total(&self) -> f64 {
        self.0.iter().sum()
    }
}

/// One freeze: the phases until a write on a fresh connection was acknowledged, how long the client waited that connected at the moment of
/// the freeze, and how long one with a request in flight.
#[derive(Clone, Copy, Debug, Default)]
pub struct Freeze {
    pub fresh: Phases,
    /// `None`: longer than anything else.
    pub at_once: Option<f64>,
    pub in_flight: f64,
}

/// What was measured with one client.
#[derive(Debug)]
pub struct Series {
    pub name: &'static str,
    /// `None`: our own.
    stock: Option<&'static Kind>,
    pub kills: Vec<Phases>,
    pub pauses: Vec<Freeze>,
}

impl Series {
    pub fn new(name: &'static str, stock: Option<&'static Kind>) -> Self {
        Self {
            name,
            stock,
            kills: Vec::new(),
            pauses: Vec::new(),
        }
    }

    fn totals(&self) -> Vec<f64> {
        sorted(self.kills.iter().map(Phases::total))
    }

    fn fresh(&self) -> Vec<f64> {
        sorted(self.pauses.iter().map(|pause| pause.fresh.total()))
    }

    /// Whether it is as fast as wanted.
    pub fn held(&self) -> bool {
        percentile(&self.totals(), 50) <= KILLED_MEDIAN
            && percentile(&self.totals(), 100) <= KILLED_WORST
            && percentile(&self.fresh(), 100) <= FRESH_WORST
    }
}

/// What became of one client's records, by what is read at the end.
#[derive(Debug, Default)]
pub struct Account {
    name: &'static str,
    acknowledged: usize,
    /// Not acknowledged: the client gave up.
    unknown: usize,
    lost: usize,
    twice: usize,
}

impl Account {
    /// Of all streams whose names begin with the client's.
    pub fn of(name: &'static str, entries: &[Entry]) -> Self {
        let mut read: HashMap<u64, usize> = HashMap::new();
        for entry in entries {
            if let Event::Polled { reader, id, .. } = &entry.event
                && &**reader == FINAL
            {
                *read.entry(*id).or_default() += 1;
            }
        }
        let mut account = Self {
            name,
            ..Self::default()
        };
        for entry in entries {
            let Event::Wrote {
                stream,
                id,
                outcome,
                ..
            } = &entry.event
            else {
                continue;
            };
            if !stream.starts_with(name) {
                continue;
            }
            let places = read.get(id).copied().unwrap_or(0);
            account.twice += usize::from(places > 1);
            if *outcome == Outcome::Acked {
                account.acknowledged += 1;
                account.lost += usize::from(places == 0);
            } else {
                account.unknown += 1;
            }
        }
        account
    }

    fn numbers(&self) -> [usize; 4] {
        [self.acknowledged, self.unknown, self.lost, self.twice]
    }
}

const ACCOUNT: [&str; 4] = ["acknowledged", "given up", "lost", "twice"];

pub fn accounts(accounts: &[Account]) -> String {
    let mut text = format!("{:<44}", "records");
    for name in ACCOUNT {
        write!(text, " {name:>12}").expect("writing to memory does not fail");
    }
    text.push('\n');
    for account in accounts {
        write!(text, "{:<44}", account.name).expect("writing to memory does not fail");
        for number in account.numbers() {
            write!(text, " {number:>12}").expect("writing to memory does not fail");
        }
        text.push('\n');
    }
    text
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The smallest value that so many percent do not exceed; 0 of nothing.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let place = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    sorted.get(place).copied().unwrap_or(0.0)
}

pub fn shown(phases: &[f64]) -> String {
    let words: Vec<String> = PHASES
        .iter()
        .zip(phases)
        .map(|((_, name, _), millis)| format!("{name} {millis:.0}"))
        .collect();
    words.join(" + ")
}

/// A row of the table: what, how often how long, and what was wanted or what else bounds it.
struct Row {
    name: String,
    values: Vec<f64>,
    beside: String,
}

fn row(name: impl Into<String>, values: Vec<f64>, beside: impl Into<String>) -> Row {
    Row {
        name: name.into(),
        values,
        beside: beside.into(),
    }
}

fn rows(series: &[Series]) -> Vec<Row> {
    let mut rows = Vec::new();
    let phase = |values: Vec<[f64; 4]>, index: usize| sorted(values.iter().map(|one| one[index]));
    // What the cluster does is the same for every client.
    let kills = series.iter().max_by_key(|one| one.kills.len());
    for (index, (_, name, _)) in PHASES.iter().enumerate().take(3) {
        let values = kills.iter().flat_map(|one| &one.kills);
        let values = phase(values.map(|kill| kill.0).collect(), index);
        rows.push(row(*name, values, ""));
    }
    let killed = || series.iter().filter(|one| !one.kills.is_empty());
    for one in killed() {
        let values = phase(one.kills.iter().map(|kill| kill.0).collect(), 3);
        rows.push(row(format!("client refresh, {}", one.name), values, ""));
    }
    for one in killed() {
        rows.push(row(
            format!("SIGKILL to acknowledged, {}", one.name),
            one.totals(),
            format!("wanted: median ≤ {KILLED_MEDIAN}, worst ≤ {KILLED_WORST}"),
        ));
    }
    let pauses = series.iter().max_by_key(|one| one.pauses.len());
    for (index, (_, name, _)) in PHASES.iter().enumerate().take(3) {
        let values = pauses.iter().flat_map(|one| &one.pauses);
        let values = phase(values.map(|pause| pause.fresh.0).collect(), index);
        rows.push(row(format!("{name} (SIGSTOP)"), values, ""));
    }
    let frozen = || series.iter().filter(|one| !one.pauses.is_empty());
    for one in frozen() {
        rows.push(row(
            format!("SIGSTOP, fresh connection, {}", one.name),
            one.fresh(),
            format!("wanted: worst ≤ {FRESH_WORST}"),
        ));
    }
    let own = |one: &Series, what: fn(&Kind) -> &'static str| {
        one.stock
            .map_or(String::new(), |kind| format!("its own {}", what(kind)))
    };
    for one in frozen().filter(|one| one.stock.is_some()) {
        let values = one.pauses.iter().filter_map(|pause| pause.at_once);
        rows.push(row(
            format!("SIGSTOP, connected at once, {}", one.name),
            sorted(values),
            own(one, |kind| kind.connected),
        ));
    }
    for one in frozen() {
        rows.push(row(
            format!("SIGSTOP, request in flight, {}", one.name),
            sorted(one.pauses.iter().map(|pause| pause.in_flight)),
            own(one, |kind| kind.in_flight),
        ));
    }
    rows
}

pub fn table(series: &[Series]) -> String {
    let mut text = format!(
        "{:<50} {:>6} {:>9} {:>9} {:>9}\n",
        "ms", "times", "median", "90 %", "worst"
    );
    for Row {
        name,
        values,
        beside,
    } in rows(series)
    {
        let line = format!(
            "{name:<50} {:>6} {:>9.1} {:>9.1} {:>9.1}  {beside}",
            values.len(),
            percentile(&values, 50),
            percentile(&values, 90),
            percentile(&values, 100)
        );
        writeln!(text, "{}", line.trim_end()).expect("writing to memory does not fail");
    }
    text
}

pub fn page(series: &[Series], accounts: &[Account], held: bool) -> String {
    let (class, word) = if held {
        ("good", "held")
    } else {
        ("bad", "missed")
    };
    let mut body = format!(
        "<h1>Failover <span class=\"badge {class}\">{word}</span></h1><p>Streams of acks=all writes into one partition on three brokers, min.insync.replicas=2, every timeout of the brokers and of the other clients their own. Wanted: from SIGKILL to the next acknowledged write at most {:.0} s in the median and {:.0} s at worst; from SIGSTOP at most a session timeout and a second on a fresh connection. All clients write at once, so one kill is measured by each of them.</p>",
        KILLED_MEDIAN / 1e3,
        KILLED_WORST / 1e3
    );
    body.push_str("<h2>Where the time goes</h2><figure>");
    body.push_str(&middle_kills(series));
    body.push_str("<figcaption class=\"legend\">");
    for (class, name, says) in PHASES {
        put(
            &mut body,
            format_args!("<span class=\"key {class}\"><b>{name}</b> {says}</span>"),
        );
    }
    body.push_str("</figcaption></figure><table><tr><th>in milliseconds</th><th class=\"number\">times</th><th class=\"number\">median</th><th class=\"number\">90 %</th><th class=\"number\">worst</th><th></th></tr>");
    for Row {
        name,
        values,
        beside,
    } in rows(series)
    {
        put(
            &mut body,
            format_args!(
                "<tr><td>{name}</td><td class=\"number\">{}</td><td class=\"number\">{:.1}</td><td class=\"number\">{:.1}</td><td class=\"number\">{:.1}</td><td class=\"quiet\">{beside}</td></tr>",
                values.len(),
                percentile(&values, 50),
                percentile(&values, 90),
                percentile(&values, 100)
            ),
        );
    }
    body.push_str("</table><p class=\"quiet\">A client whose request or whose first question lies in the frozen broker's socket waits for its own timeout as well, and no broker can shorten that. A fresh connection of another client is that of one started every quarter of a second, until one is acknowledged.</p>");
    body.push_str("<h2>What was acknowledged is there</h2><table><tr><th>records</th>");
    for name in ACCOUNT {
        put(&mut body, format_args!("<th class=\"number\">{name}</th>"));
    }
    body.push_str("</tr>");
    for account in accounts {
        put(&mut body, format_args!("<tr><td>{}</td>", account.name));
        for number in account.numbers() {
            put(
                &mut body,
                format_args!("<td class=\"number\">{number}</td>"),
            );
        }
        body.push_str("</tr>");
    }
    body.push_str("</table>");
    for one in series.iter().filter(|one| !one.kills.is_empty()) {
        put(
            &mut body,
            format_args!(
                "<h2>Every kill, {}</h2><figure>{}</figure>",
                one.name,
                every_kill(one, longest(series))
            ),
        );
    }
    report::page("Failover", &body)
}

fn put(text: &mut String, what: std::fmt::Arguments<'_>) {
    text.write_fmt(what)
        .expect("writing to memory does not fail");
}

const WIDTH: f64 = 1_000.0;
/// Right of the bars there is room for their sums.
const RIGHT: f64 = 110.0;

/// What all pictures are as wide as: the longest kill of all.
fn longest(series: &[Series]) -> f64 {
    let kills = series.iter().flat_map(|one| &one.kills);
    kills.map(Phases::total).fold(1.0, f64::max)
}

/// A drawing of bars to the right of `left`, `longest` milliseconds wide.
struct Drawing {
    svg: String,
    left: f64,
    longest: f64,
    height: f64,
}

impl Drawing {
    fn new(left: f64, longest: f64, height: f64, says: &str) -> Self {
        Self {
            svg: format!(
                "<svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{says}\">"
            ),
            left,
            longest,
            height,
        }
    }

    fn x(&self, millis: f64) -> f64 {
        self.left + millis * (WIDTH - self.left - RIGHT) / self.longest
    }

    /// One bar, its phases one after the other; returns where it ends.
    fn bar(&mut self, phases: &Phases, (y, height): (f64, f64), title: &str) -> f64 {
        let mut at = 0.0;
        for ((class, name, _), millis) in PHASES.iter().zip(phases.0) {
            let (x, width) = (self.x(at), self.x(at + millis) - self.x(at));
            put(
                &mut self.svg,
                format_args!(
                    "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{height:.1}\"><title>{title}: {name} {millis:.1} ms</title></rect>",
                    width.max(0.4)
                ),
            );
            at += millis;
        }
        self.x(at)
    }

    fn text(&mut self, class: &str, (x, y): (f64, f64), text: &str) {
        put(
            &mut self.svg,
            format_args!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>"),
        );
    }

    fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        put(
            &mut self.svg,
            format_args!(
                "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
            ),
        );
    }

    fn end(mut self) -> String {
        let step = [10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0]
            .into_iter()
            .find(|step| self.longest / step <= 12.0)
            .unwrap_or(5_000.0);
        let mut at = 0.0;
        while at <= self.longest {
            let place = (self.x(at), self.height - 6.0);
            self.text("tick", place, &format!("{at:.0} ms"));
            at += step;
        }
        self.svg.push_str("</svg>");
        self.svg
    }
}

/// A bar for each client: the kill in the middle, and a line to the worst; beside what was wanted of both.
fn middle_kills(series: &[Series]) -> String {
    const ROW: f64 = 26.0;
    const TOP: f64 = 20.0;
    let longest = longest(series).max(KILLED_WORST) * 1.02;
    let series: Vec<&Series> = series.iter().filter(|one| !one.kills.is_empty()).collect();
    let bottom = TOP + ROW * series.len() as f64;
    let mut drawing = Drawing::new(
        170.0,
        longest,
        bottom + 24.0,
        "the median failover of each client by its phases, the worst, and what was wanted",
    );
    for (name, wanted) in [("median", KILLED_MEDIAN), ("worst", KILLED_WORST)] {
        let x = drawing.x(wanted);
        drawing.line("aim", (x, TOP - 4.0), (x, bottom));
        let text = format!("wanted of the {name}: {wanted:.0}");
        drawing.text("tick", (x, TOP - 8.0), &text);
    }
    for (index, one) in series.iter().enumerate() {
        let y = TOP + ROW * index as f64 + 4.0;
        let mut kills = one.kills.clone();
        kills.sort_by(|a, b| a.total().total_cmp(&b.total()));
        let middle = kills[kills.len().div_ceil(2) - 1];
        let worst = percentile(&one.totals(), 100);
        let title = format!("{}, the kill in the middle", one.name);
        let left = drawing.left - 8.0;
        drawing.text("label", (left, y + 12.0), one.name);
        let x = drawing.bar(&middle, (y, ROW - 10.0), &title);
        let end = drawing.x(worst);
        let across = y + (ROW - 10.0) / 2.0;
        drawing.line("worst", (x, across), (end, across));
        drawing.line("worst", (end, y + 2.0), (end, y + ROW - 12.0));
        let text = format!("{:.0}, worst {worst:.0}", middle.total());
        drawing.text("", (end + 6.0, across + 4.0), &text);
    }
    drawing.end()
}

/// A bar for every kill.
fn every_kill(one: &Series, longest: f64) -> String {
    const BAR: f64 = 9.0;
    let mut drawing = Drawing::new(
        50.0,
        longest,
        30.0 + BAR * one.kills.len() as f64,
        "the phases of every failover",
    );
    for (index, kill) in one.kills.iter().enumerate() {
        let y = 4.0 + BAR * index as f64;
        if index % 5 == 4 || index == 0 {
            let left = drawing.left - 8.0;
            drawing.text("label", (left, y + 8.0), &(index + 1).to_string());
        }
        let title = format!("kill {}", index + 1);
        let x = drawing.bar(kill, (y, BAR - 2.0), &title);
        drawing.text("", (x + 5.0, y + 7.5), &format!("{:.0}", kill.total()));
    }
    drawing.end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kuorum_chaos_tests::chaos::stock;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let values = [1.0, 2.0, 3.0, 4.0];
        assert_eq!(percentile(&values, 50), 2.0);
        assert_eq!(percentile(&values, 90), 4.0);
        assert_eq!(percentile(&values, 100), 4.0);
        assert_eq!(percentile(&[], 50), 0.0);
    }

    fn measured() -> Vec<Series> {
        let mut series = vec![Series::new("our own producer", None)];
        series.extend(
            stock::ALL
                .iter()
                .map(|kind| Series::new(kind.name, Some(kind))),
        );
        for (one, refresh) in series.iter_mut().zip([40.0, 100.0, 200.0, 300.0]) {
            one.kills = vec![Phases([250.0, 5.0, 2.0, refresh]); 3];
            one.pauses = vec![Freeze::default()];
        }
        series
    }

    #[test]
    fn the_page_has_rows_for_each_client_and_a_bar_for_each_of_its_kills() {
        let series = measured();
        let page = page(&series, &[Account::default()], true);
        assert_eq!(page.matches("<rect").count(), 4 * 4 + 4 * 4 * 3);
        for name in ["detect", "elect", "publish"] {
            assert!(page.contains(&format!("<td>{name}</td>")), "{name}");
        }
        for one in &series {
            for what in [
                "client refresh",
                "SIGKILL to acknowledged",
                "SIGSTOP, fresh connection",
                "SIGSTOP, request in flight",
            ] {
                let row = format!("<td>{what}, {}</td>", one.name);
                assert!(page.contains(&row), "{row}");
            }
        }
        let table = table(&series);
        for needed in [
            "297.0",
            "557.0",
            "median ≤ 1000",
            "its own request.timeout.ms 30000",
        ] {
            assert!(table.contains(needed), "{needed} in\n{table}");
        }
    }

    #[test]
    fn a_client_that_is_slower_than_wanted_is_noticed() {
        let held = |kills: &[f64], fresh: f64| {
            let mut one = Series::new("one", None);
            one.kills = kills.iter().map(|all| Phases([*all, 0., 0., 0.])).collect();
            one.pauses = vec![Freeze {
                fresh: Phases([fresh, 0.0, 0.0, 0.0]),
                ..Freeze::default()
            }];
            one.held()
        };
        assert!(held(&[900.0, 1_000.0, 2_000.0], 10_000.0));
        assert!(!held(&[900.0, 1_001.0, 1_002.0], 10_000.0));
        assert!(!held(&[900.0, 1_000.0, 2_001.0], 10_000.0));
        assert!(!held(&[900.0], 10_001.0));
    }

    #[test]
    fn an_account_counts_what_is_lost_and_what_is_there_twice() {
        let wrote = |stream: &str, id, outcome| Event::Wrote {
            stream: stream.into(),
            topic: "t".into(),
            partition: 0,
            id,
            sent: 0.0,
            outcome,
            offset: None,
            error: None,
        };
        let read = |offset, id| Event::Polled {
            reader: FINAL.into(),
            topic: "t".into(),
            partition: 0,
            offset,
            leader_epoch: 0,
            id,
        };
        let entries: Vec<Entry> = [
            wrote("Java", 1, Outcome::Acked),
            wrote("Java, fresh", 2, Outcome::Acked),
            wrote("Java", 3, Outcome::Unknown),
            wrote("another", 4, Outcome::Acked),
            read(0, 2),
            read(1, 3),
            read(2, 3),
        ]
        .into_iter()
        .map(|event| Entry { at: 0.0, event })
        .collect();
        assert_eq!(Account::of("Java", &entries).numbers(), [2, 1, 1, 1]);
    }
}
