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
    let sound = (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && (0..24).contains(&hour)
        && (0..60).contains(&minute)
        && (0..60).contains(&second)
        && (1970..10_000).contains(&year);
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
            ("yesterday", None),
            ("", None),
            ("m", None),
        ];
        for (text, expected) in rows {
            assert_eq!(parse(text, now).ok(), expected, "{text}");
        }
    }
}
