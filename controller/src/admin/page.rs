//! Cutting a list into pages.
//! Law: a token holds the list's name and the last key seen, so that it fits no other list, and things that come and go
//! in between shift nothing.

use axum::http::StatusCode;
use kuorum_admin_api::{MAX_PAGE_SIZE, Page, PageQuery};

use super::problem::Refused;

/// One page of `items`, which are in the order of their keys. `list` is the list's name, filters included.
pub(super) fn page<T>(
    query: &PageQuery,
    list: &str,
    items: impl Iterator<Item = T>,
    key: impl Fn(&T) -> String,
) -> Result<Page<T>, Refused> {
    let size = query.page_size.unwrap_or(MAX_PAGE_SIZE);
    let after = after(query, list)?;
    let mut page: Vec<T> = Vec::new();
    let mut more = false;
    for item in items {
        if after.as_ref().is_some_and(|after| key(&item) <= *after) {
            continue;
        }
        if page.len() == size {
            more = true;
            break;
        }
        page.push(item);
    }
    let next_page_token = match page.last() {
        Some(last) if more => Some(token(list, &key(last))),
        _ => None,
    };
    Ok(Page {
        items: page,
        next_page_token,
    })
}

/// The last key of the page before, as the query's token says; checks the page's size too.
pub(super) fn after(query: &PageQuery, list: &str) -> Result<Option<String>, Refused> {
    let size = query.page_size.unwrap_or(MAX_PAGE_SIZE);
    if size == 0 || size > MAX_PAGE_SIZE {
        return Err(Refused::new(
            StatusCode::BAD_REQUEST,
            "INVALID_QUERY",
            format!("page_size is a number from 1 to {MAX_PAGE_SIZE}, not {size}"),
        ));
    }
    query
        .page_token
        .as_deref()
        .map(|token| read_token(token, list))
        .transpose()
}

/// A number as a key that sorts like the number.
pub(super) fn number_key(number: i32) -> String {
    format!("{number:010}")
}

/// The token of the page after the key `last`.
pub(super) fn token(list: &str, last: &str) -> String {
    format!("{list}\0{last}")
        .bytes()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn read_token(token: &str, list: &str) -> Result<String, Refused> {
    let decoded = (token.is_ascii() && token.len().is_multiple_of(2))
        .then(|| {
            (0..token.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&token[at..at + 2], 16).ok())
                .collect::<Option<Vec<u8>>>()
        })
        .flatten()
        .and_then(|bytes| String::from_utf8(bytes).ok());
    decoded
        .as_deref()
        .and_then(|text| text.split_once('\0'))
        .filter(|(name, _)| *name == list)
        .map(|(_, last)| last.to_owned())
        .ok_or_else(|| {
            Refused::new(
                StatusCode::BAD_REQUEST,
                "INVALID_PAGE_TOKEN",
                "page_token is not one that this list gave out",
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_each_other_and_tokens_fit_one_list() {
        let all = || (0..5).map(|n| n * 3);
        let key = |n: &i32| number_key(*n);
        let query = |size, token| PageQuery {
            page_size: Some(size),
            page_token: token,
        };
        let mut seen = Vec::new();
        let mut token = None;
        loop {
            let page = page(&query(2, token), "numbers", all(), key).unwrap();
            seen.extend(page.items);
            token = page.next_page_token;
            if token.is_none() {
                break;
            }
        }
        assert_eq!(seen, [0, 3, 6, 9, 12]);
        let first = page(&query(2, None), "numbers", all(), key).unwrap();
        let foreign = query(2, first.next_page_token);
        for (query, list) in [
            (query(0, None), "numbers"),
            (query(1001, None), "numbers"),
            (foreign, "letters"),
            (query(2, Some("zz".to_owned())), "numbers"),
            (query(2, Some("é".to_owned())), "numbers"),
        ] {
            assert!(page(&query, list, all(), key).is_err(), "{query:?}");
        }
        let whole = page(&PageQuery::default(), "numbers", all(), key).unwrap();
        assert_eq!((whole.items.len(), whole.next_page_token), (5, None));
    }
}
