//! What an acknowledged record survives, in the words that the CLI, health and the documentation share.
//! Law: one sentence for each value of `acks.durability`; docs/operations.md says it too, and a test compares.

/// The topic key that chooses.
pub const ACKS_DURABILITY: &str = "acks.durability";

/// The value that promises the disk of every in-sync replica; the default.
pub const FLUSHED: &str = "flushed";

/// The value that promises the memory of every in-sync replica's machine.
pub const PAGE_CACHE: &str = "page.cache";

/// What a record that `acks=all` has acknowledged survives; `None` for a `durability` that is no value of `acks.durability`.
/// `min_isr` is how many replicas must be in sync for the acknowledgement, the leader among them; `unclean`, whether
/// one that lacks the record may be elected.
#[must_use]
pub fn survives(durability: &str, min_isr: usize, unclean: bool) -> Option<String> {
    let mut text = match durability {
        FLUSHED => {
            let disks = match min_isr.saturating_sub(1) {
                0 => "; not for certain the loss of a disk (one replica in sync is enough)".to_owned(),
                1 => ", and the loss of any one disk".to_owned(),
                more => format!(", and the loss of any {more} disks"),
            };
            format!("the power failing everywhere at once{disks}")
        }
        PAGE_CACHE => {
            "the death of any number of processes, and of machines as long as the machine of one in-sync replica stays up; \
             not the power failing everywhere at once"
                .to_owned()
        }
        _ => return None,
    };
    if unclean {
        text.push_str(
            ". All of that only while there is no unclean election (unclean.leader.election.enable is true)",
        );
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_says_the_same() {
        let page = include_str!("../../../docs/operations.md");
        for (value, sentence) in [
            (FLUSHED, "the power failing everywhere at once".to_owned()),
            (PAGE_CACHE, survives(PAGE_CACHE, 1, false).expect("a value")),
        ] {
            let row = page
                .lines()
                .find(|line| line.contains(&format!("`{ACKS_DURABILITY}={value}`")))
                .unwrap_or_else(|| panic!("docs/operations.md has no row for {value}"));
            assert!(
                row.contains(&sentence),
                "{value}: {sentence:?} is not in {row:?}"
            );
        }
    }

    #[test]
    fn settings_that_promise_less_say_less() {
        for (durability, min_isr, unclean, words) in [
            (
                FLUSHED,
                3,
                false,
                &["everywhere at once, and the loss of any 2 disks"][..],
            ),
            (FLUSHED, 2, false, &["any one disk"]),
            (FLUSHED, 1, false, &["not for certain the loss of a disk"]),
            (
                FLUSHED,
                2,
                true,
                &["any one disk", "only while there is no unclean election"],
            ),
            (
                PAGE_CACHE,
                2,
                true,
                &["stays up", "only while there is no unclean election"],
            ),
        ] {
            let text = survives(durability, min_isr, unclean).expect("a value");
            for words in words {
                assert!(text.contains(words), "{words:?} is not in {text:?}");
            }
            assert_eq!(text.contains("unclean"), unclean, "{text}");
        }
        assert_eq!(survives("ram", 2, false), None);
    }
}
