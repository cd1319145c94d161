//! What an acknowledged record survives, in the words that the CLI, health and the documentation share.
//! Law: one sentence for each value of `acks.durability`; docs/operations.md says it too, and a test compares.

/// The topic key that chooses.
pub const ACKS_DURABILITY: &str = "acks.durability";

/// The value that promises the disk of every in-sync replica; the default.
pub const FLUSHED: &str = "flushed";

/// The value that promises the memory of every in-sync replica's machine.
pub const PAGE_CACHE: &str = "page.cache";

/// What a record that `acks=all` has acknowledged survives under a value of `acks.durability`; `None` for a value that is none.
#[must_use]
pub fn survives(durability: &str) -> Option<&'static str> {
    match durability {
        FLUSHED => Some(
            "the power failing everywhere at once, and the loss of any min.insync.replicas − 1 disks",
        ),
        PAGE_CACHE => Some(
            "the death of any number of processes, and of machines as long as the machine of one in-sync replica stays up; \
             not the power failing everywhere at once",
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_says_the_same() {
        let page = include_str!("../../../docs/operations.md");
        for value in [FLUSHED, PAGE_CACHE] {
            let sentence = survives(value).expect("a value");
            let row = page
                .lines()
                .find(|line| line.contains(&format!("`{ACKS_DURABILITY}={value}`")))
                .unwrap_or_else(|| panic!("docs/operations.md has no row for {value}"));
            assert!(
                row.contains(sentence),
                "{value}: {sentence:?} is not in {row:?}"
            );
        }
        assert_eq!(survives("ram"), None);
    }
}
