//! Whether a text is a value of a key.
//! Law: what passes here can be read by the typed structs without failing.

use super::{ConfigError, ConfigKey, Kind};

pub(super) fn check(key: &ConfigKey, value: &str) -> Result<(), ConfigError> {
    let refuse = |why: String| {
        Err(ConfigError::new(
            key.name,
            format!(
                "Invalid value {value} for configuration {}: {why}",
                key.name
            ),
        ))
    };
    match key.kind {
        Kind::Boolean => match value.trim() {
            "true" | "false" => Ok(()),
            _ => refuse("Expected value to be either true or false".to_owned()),
        },
        Kind::Short { min } => whole(value, min, i64::from(i16::MAX), "SHORT").or_else(refuse),
        Kind::Int { min } => whole(value, min, i64::from(i32::MAX), "INT").or_else(refuse),
        Kind::Long { min } => whole(value, min, i64::MAX, "LONG").or_else(refuse),
        Kind::Double { min, max } => match value.trim().parse::<f64>() {
            Ok(number) if (min..=max).contains(&number) => Ok(()),
            Ok(_) => refuse(format!("Value must be between {min} and {max}")),
            Err(_) => refuse("Not a number of type DOUBLE".to_owned()),
        },
        Kind::Text | Kind::List => Ok(()),
        Kind::Choice(words) => match words.contains(&value.trim()) {
            true => Ok(()),
            false => refuse(format!("String must be one of: {}", words.join(", "))),
        },
        Kind::ListOf(words) => {
            let stranger = items(value).find(|item| !words.contains(item));
            match stranger {
                None => Ok(()),
                Some(_) => refuse(format!("Each item must be one of: {}", words.join(", "))),
            }
        }
        Kind::Replicas if value.trim() == "*" => Ok(()),
        Kind::Replicas => match items(value).find(|item| !is_replica(item)) {
            None => Ok(()),
            Some(item) => refuse(format!(
                "{item} is not a replica: the value is either * or a list of partition:broker"
            )),
        },
    }
}

/// Whether an item has the form of `partition:broker`.
fn is_replica(item: &str) -> bool {
    let is_number =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<i32>().is_ok();
    item.split_once(':')
        .is_some_and(|(partition, broker)| is_number(partition) && is_number(broker))
}

/// The items of a list, without the space around them.
pub(crate) fn items(value: &str) -> impl Iterator<Item = &str> {
    value
        .split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
}

fn whole(value: &str, min: i64, max: i64, name: &str) -> Result<(), String> {
    let Ok(number) = value.trim().parse::<i64>() else {
        return Err(format!("Not a number of type {name}"));
    };
    if number > max {
        return Err(format!("Not a number of type {name}"));
    }
    if number < min {
        return Err(format!("Value must be at least {min}"));
    }
    Ok(())
}
