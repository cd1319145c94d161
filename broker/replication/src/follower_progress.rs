//! How far one follower has come, as its leader knows it from the follower's fetches.
//! Law: known only from fetches of this leader epoch; a new epoch, or a new incarnation of the follower, starts over.

use std::time::Duration;

use kuorum_protocol::{BrokerEpoch, Monotonic, Offset};

use crate::mutation::{self, Mutation};

/// One follower's place in the leader's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowerProgress {
    broker_epoch: BrokerEpoch,
    /// Everything before this is on the follower, as durably as it counts. `None` until it fetched in this epoch.
    log_end: Option<Offset>,
    last_caught_up: Option<Monotonic>,
    last_fetch: Option<LastFetch>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LastFetch {
    at: Monotonic,
    /// Where the leader's log ended when that fetch was answered, before anything was read.
    leader_end: Offset,
}

impl FollowerProgress {
    /// A follower the leader has not heard from in this epoch. A member of the ISR has the benefit of the doubt: it
    /// counts as caught up from `now` on.
    #[must_use]
    pub fn unheard(in_sync_since: Option<Monotonic>) -> Self {
        Self {
            broker_epoch: BrokerEpoch::UNKNOWN,
            log_end: None,
            last_caught_up: in_sync_since,
            last_fetch: None,
        }
    }

    /// The incarnation that fetched last, −1 if none did.
    #[must_use]
    pub fn broker_epoch(&self) -> BrokerEpoch {
        self.broker_epoch
    }

    /// Where the follower's log ends, if it has said so in this epoch.
    #[must_use]
    pub fn log_end(&self) -> Option<Offset> {
        self.log_end
    }

    /// When it fetched last.
    #[must_use]
    pub fn last_fetch(&self) -> Option<Monotonic> {
        self.last_fetch.map(|fetch| fetch.at)
    }

    /// When it had everything last.
    #[must_use]
    pub fn last_caught_up(&self) -> Option<Monotonic> {
        self.last_caught_up
    }

    /// The follower asks for what follows `from`, so it has everything before. `leader_end` is the leader's log end
    /// from before anything was read for this fetch: what is appended meanwhile must not make it look behind.
    pub(crate) fn on_fetch(
        &mut self,
        now: Monotonic,
        broker_epoch: BrokerEpoch,
        from: Offset,
        leader_end: Offset,
    ) {
        if broker_epoch != self.broker_epoch && broker_epoch > self.broker_epoch {
            self.restart(broker_epoch);
        }
        let caught_up = if from >= leader_end {
            Some(now)
        } else {
            match self.last_fetch {
                Some(last) if from >= last.leader_end => Some(last.at),
                _ => None,
            }
        };
        let nothing_new = self.log_end == Some(from) && mutation::off(Mutation::IdleFollowersLeave);
        self.last_caught_up = self.last_caught_up.max(caught_up.filter(|_| !nothing_new));
        self.log_end = Some(from);
        self.last_fetch = Some(LastFetch {
            at: now,
            leader_end,
        });
    }

    /// Another process serves this replica now: what the one before it had is hearsay.
    pub(crate) fn restart(&mut self, broker_epoch: BrokerEpoch) {
        if mutation::off(Mutation::JoinIgnoresBrokerEpoch) {
            self.broker_epoch = broker_epoch;
            return;
        }
        let first_heard = self.broker_epoch == BrokerEpoch::UNKNOWN;
        *self = Self {
            broker_epoch,
            log_end: None,
            last_caught_up: self.last_caught_up.filter(|_| first_heard),
            last_fetch: None,
        };
    }

    /// In sync: its log ends where the leader's does, or it had everything at most `lag` ago.
    #[must_use]
    pub fn is_caught_up(&self, now: Monotonic, leader_end: Offset, lag: Duration) -> bool {
        let at_the_end =
            self.log_end == Some(leader_end) && !mutation::off(Mutation::IdleFollowersLeave);
        at_the_end || self.last_caught_up.is_some_and(|at| now.since(at) <= lag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAG: Duration = Duration::from_secs(30);

    fn at(seconds: u64) -> Monotonic {
        Monotonic(Duration::from_secs(seconds))
    }

    /// Rows: fetches as (second, from, leader end before the read), then the second asked about with the leader's end.
    #[test]
    fn caught_up_rows() {
        type Row = (&'static str, &'static [(u64, i64, i64)], (u64, i64), bool);
        let rows: &[Row] = &[
            ("never fetched", &[], (1, 10), false),
            ("at the end, long idle", &[(1, 10, 10)], (1000, 10), true),
            ("at the end, then silent", &[(1, 10, 10)], (32, 11), false),
            (
                "at the end, silent not too long",
                &[(1, 10, 10)],
                (31, 11),
                true,
            ),
            (
                "behind from the start",
                &[(1, 3, 10), (40, 5, 10)],
                (41, 10),
                false,
            ),
            (
                "always one round behind a busy leader",
                &[(1, 0, 10), (21, 10, 20), (41, 20, 30), (61, 30, 40)],
                (62, 50),
                true,
            ),
            (
                "fetches often and never reaches what was there",
                &[(1, 0, 100), (21, 10, 200), (41, 20, 300), (61, 30, 400)],
                (62, 500),
                false,
            ),
        ];
        for (story, fetches, (second, end), expected) in rows {
            let mut progress = FollowerProgress::unheard(None);
            for (second, from, leader_end) in *fetches {
                progress.on_fetch(
                    at(*second),
                    BrokerEpoch(7),
                    Offset(*from),
                    Offset(*leader_end),
                );
            }
            let is = progress.is_caught_up(at(*second), Offset(*end), LAG);
            assert_eq!(is, *expected, "{story}");
        }
    }

    #[test]
    fn a_new_incarnation_starts_over() {
        let mut progress = FollowerProgress::unheard(Some(at(0)));
        progress.on_fetch(at(1), BrokerEpoch(7), Offset(10), Offset(10));
        assert_eq!(progress.last_caught_up(), Some(at(1)));
        progress.on_fetch(at(2), BrokerEpoch(9), Offset(0), Offset(10));
        assert_eq!(progress.last_caught_up(), None);
        assert_eq!(progress.log_end(), Some(Offset(0)));
    }

    #[test]
    fn the_benefit_of_the_doubt_survives_the_first_word() {
        let mut progress = FollowerProgress::unheard(Some(at(5)));
        progress.on_fetch(at(6), BrokerEpoch(7), Offset(3), Offset(10));
        assert!(progress.is_caught_up(at(35), Offset(10), LAG));
        assert!(!progress.is_caught_up(at(36), Offset(10), LAG));
    }
}
