//! Produces that wait: for the high watermark, or for the controllers to confirm who leads.
//! Law: each has a deadline and belongs to one leader epoch; whoever changes the epoch takes all of them out first.

use std::collections::BTreeMap;

use kuorum_protocol::Monotonic;

/// Tokens of type `T`, ordered by what they wait for: something that only rises.
#[derive(Debug)]
pub struct Waiters<K, T> {
    parked: BTreeMap<(K, u64), Parked<T>>,
    next: u64,
}

#[derive(Debug)]
struct Parked<T> {
    deadline: Monotonic,
    token: T,
}

impl<K, T> Default for Waiters<K, T> {
    fn default() -> Self {
        Self {
            parked: BTreeMap::new(),
            next: 0,
        }
    }
}

impl<K: Copy + Ord, T> Waiters<K, T> {
    /// Parks `token` until what is waited for reaches `until`, or `deadline` passes.
    pub fn park(&mut self, until: K, deadline: Monotonic, token: T) {
        self.parked
            .insert((until, self.next), Parked { deadline, token });
        self.next += 1;
    }

    /// Takes out, in order, everyone who waits for no more than `reached`, each with what it waited for.
    pub fn release(&mut self, reached: K) -> Vec<(K, T)> {
        let waiting = self.parked.split_off(&(reached, u64::MAX));
        let done = std::mem::replace(&mut self.parked, waiting);
        done.into_iter()
            .map(|((until, _), parked)| (until, parked.token))
            .collect()
    }

    /// Takes out everyone, in order.
    pub fn drain(&mut self) -> Vec<T> {
        std::mem::take(&mut self.parked)
            .into_values()
            .map(|parked| parked.token)
            .collect()
    }

    /// Takes out everyone whose deadline has come.
    pub fn expire(&mut self, now: Monotonic) -> Vec<T> {
        if self.next_deadline().is_none_or(|deadline| deadline > now) {
            return Vec::new();
        }
        let (late, waiting): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(&mut self.parked)
            .into_iter()
            .partition(|(_, parked)| parked.deadline <= now);
        self.parked = waiting;
        late.into_values().map(|parked| parked.token).collect()
    }

    /// The earliest deadline.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Monotonic> {
        self.parked.values().map(|parked| parked.deadline).min()
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.parked.len()
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parked.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kuorum_protocol::Offset;

    use super::*;

    fn at(seconds: u64) -> Monotonic {
        Monotonic(Duration::from_secs(seconds))
    }

    fn parked() -> Waiters<Offset, &'static str> {
        let mut waiters = Waiters::default();
        waiters.park(Offset(20), at(5), "b");
        waiters.park(Offset(10), at(9), "a");
        waiters.park(Offset(20), at(7), "c");
        waiters.park(Offset(30), at(6), "d");
        waiters
    }

    #[test]
    fn released_in_order_up_to_and_with_the_high_watermark() {
        let mut waiters = parked();
        assert_eq!(waiters.release(Offset(9)), vec![]);
        assert_eq!(
            waiters.release(Offset(20)),
            vec![(Offset(10), "a"), (Offset(20), "b"), (Offset(20), "c")]
        );
        assert_eq!(waiters.len(), 1);
    }

    #[test]
    fn expired_by_deadline_whatever_they_wait_for() {
        let mut waiters = parked();
        assert_eq!(waiters.expire(at(4)), Vec::<&str>::new());
        assert_eq!(waiters.expire(at(6)), vec!["b", "d"]);
        assert_eq!(waiters.next_deadline(), Some(at(7)));
        assert_eq!(waiters.drain(), vec!["a", "c"]);
        assert!(waiters.is_empty());
    }
}
