//! Moments on the command line.
//! Law: pure. Milliseconds since 1970, `2026-01-31T12:00:00Z`, or how long ago: `10m`.

use crate::failure::Failure;

/// Reads a moment, in milliseconds since 1970.
pub(crate) fn parse(text: &str, now_ms: i64) -> Result<i64, Failure> {
    let moment = if let Ok(ms) = text.parse() {
        Some(ms)
    } else {
        ago(text, now_ms)
    };
    moment.or_else(|| utc(text)).ok_or_else(|| {
        Failure::usage(format!(
            "{text:?} is no time: give milliseconds since 1970, 2026-01-31T12:00:00Z, or 10m for ten minutes ago"
        ))
    })
}

/// Writes a moment, given in milliseconds since 1970: `2026-01-31T12:00:00Z`.
pub(crate) fn rfc3339(ms: i64) -> String {
    format!("{}Z", to_the_second(ms))
}

/// A moment as people read it: `2026-01-31T12:00:00.000Z`, or `-` if it is unknown.
pub(crate) fn text(ms: i64) -> String {
    if ms < 0 {
        return "-".to_owned();
    }
    format!("{}.{:03}Z", to_the_second(ms), ms % 1000)
}

/// A span of time as people read it: `43 s`, or `120 ms` where that is less than a second.
pub(crate) fn span(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..600_000 => format!("{} s", ms / 1_000),
        _ => format!("{} min", ms / 60_000),
    }
}

fn to_the_second(ms: i64) -> String {
    let (day, second) = (
        ms.div_euclid(86_400_000),
        ms.div_euclid(1_000).rem_euclid(86_400),
    );
    let (year, month, date) = date_of(day);
    format!(
        "{year:04}-{month:02}-{date:02}T{:02}:{:02}:{:02}",
        second / 3_600,
        second / 60 % 60,
        second % 60
    )
}

/// The date that lies so many days after 1970-01-01; the inverse of [`days`]. Years are counted from March, so that a leap day is a year's last; 146,097
/// days are 400 years.
fn date_of(day: i64) -> (i64, i64, i64) {
    let day = day + 719_468;
    let (era, day) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let from_march = (5 * day + 2) / 153;
    let date = day - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    (year + era * 400 + i64::from(month <= 2), month, date)
}

fn ago(text: &str, now_ms: i64) -> Option<i64> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let unit_ms: i64 = match unit {
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    let number: u32 = number.parse().ok()?;
    now_ms.checked_sub(i64::from(number).checked_mul(unit_ms)?)
}

fn utc(text: &str) -> Option<i64> {
    let (date, time) = text.strip_suffix('Z')?.split_once(['T', ' '])?;
    let numbers = |text: &str, separator| -> Option<Vec<i64>> {
        text.split(separator)
            .map(|part| part.parse().ok())
            .collect()
    };
    let [year, month, day] = numbers(date, '-')?.try_into().ok()?;
    let [hour, minute, second] = numbers(time, ':')?.try_into().ok()?;
    let sound = (1970..10_000).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && date_of(days(year, month, day)) == (year, month, day)
        && (0..24).contains(&hour)
        && (0..60).contains(&minute)
        && (0..60).contains(&second);
    sound.then(|| {
        let seconds = hour * 3600 + minute * 60 + second;
        (days(year, month, day) * 86_400 + seconds) * 1000
    })
}

/// Days from 1970-01-01 to a date of the Gregorian calendar. Years are taken to begin in March, so that the leap day is
/// their last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    365 * year + year / 4 - year / 100 + year / 400 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans() {
        for (ms, expected) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (43_210, "43 s"),
            (600_000, "10 min"),
        ] {
            assert_eq!(span(ms), expected);
        }
    }

    #[test]
    fn moments_as_text() {
        for (ms, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_825_601_007, "2000-02-29T12:00:01.007Z"),
            (1_767_225_599_999, "2025-12-31T23:59:59.999Z"),
            (1_767_225_600_000, "2026-01-01T00:00:00.000Z"),
            (-1, "-"),
        ] {
            assert_eq!(text(ms), expected);
        }
        for day in 0..40_000 {
            let (year, month, of_month) = date_of(day);
            assert_eq!(days(year, month, of_month), day);
            assert!((1..=31).contains(&of_month), "{day}");
        }
    }

    #[test]
    fn moments() {
        let now = 1_000_000_000_000;
        let rows = [
            ("0", Some(0)),
            ("1767225600000", Some(1_767_225_600_000)),
            ("10m", Some(now - 600_000)),
            ("2d", Some(now - 172_800_000)),
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2000-02-29T12:00:01Z", Some(951_825_601_000)),
            ("2026-01-01T00:00:00Z", Some(1_767_225_600_000)),
            ("2026-13-01T00:00:00Z", None),
            ("2026-02-29T00:00:00Z", None),
            ("2026-04-31T00:00:00Z", None),
            ("9223372036854775807-01-01T00:00:00Z", None),
            ("yesterday", None),
            ("", None),
            ("m", None),
        ];
        for (text, expected) in rows {
            assert_eq!(parse(text, now).ok(), expected, "{text}");
        }
    }

    #[test]
    fn a_moment_is_written_as_it_is_read() {
        for text in [
            "1970-01-01T00:00:00Z",
            "1999-12-31T23:59:59Z",
            "2000-02-29T12:00:00Z",
            "2024-02-29T00:00:01Z",
            "2026-03-01T07:08:09Z",
            "2100-03-01T00:00:00Z",
        ] {
            assert_eq!(rfc3339(parse(text, 0).unwrap()), text);
        }
    }
}
