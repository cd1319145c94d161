//! Where a follower cuts, as rows over two histories; and which answers it does not listen to.

use super::*;

const LEADER: BrokerId = BrokerId(1);

/// A history as `(epoch, start)` pairs and where the log ends.
#[derive(Clone, Debug, PartialEq, Eq)]
struct History {
    epochs: Vec<(i32, i64)>,
    end: i64,
}

impl History {
    fn new(epochs: &[(i32, i64)], end: i64) -> Self {
        Self {
            epochs: epochs.to_vec(),
            end,
        }
    }

    fn end_of(&self, epoch: LeaderEpoch) -> Option<(LeaderEpoch, Offset)> {
        let latest = self.epochs.last()?.0;
        if epoch.0 == latest {
            return Some((epoch, Offset(self.end)));
        }
        if epoch.0 > latest {
            return None;
        }
        let next = self.epochs.iter().position(|entry| entry.0 > epoch.0)?;
        let floor = next
            .checked_sub(1)
            .map_or(epoch.0, |index| self.epochs[index].0);
        Some((LeaderEpoch(floor), Offset(self.epochs[next].1)))
    }

    fn cut(&mut self, to: Offset) {
        self.end = self.end.min(to.0);
        self.epochs.retain(|entry| entry.1 < to.0);
    }

    fn view(&self) -> LogView {
        LogView {
            log_start: Offset(0),
            log_end: Offset(self.end),
            flushed_end: Offset(self.end),
            high_watermark: Offset(0),
            latest_epoch: self.epochs.last().map(|entry| LeaderEpoch(entry.0)),
        }
    }
}

fn step(follower: &Follower, log: &History) -> FollowerStep {
    follower.next_step(&log.view(), Durability::Flushed, Monotonic::default())
}

/// Runs the questions and answers until the follower fetches; returns how many questions that took.
fn reconcile(follower: &mut Follower, own: &mut History, leader: &History) -> usize {
    for questions in 0..20 {
        match step(follower, own) {
            FollowerStep::EpochEnd { epoch, ticket, .. } => {
                let before = own.clone();
                let cut = follower.on_epoch_end(&ticket, leader.end_of(epoch), &own.view(), |e| {
                    before.end_of(e)
                });
                let Cut::To(to) = cut else {
                    panic!("an answer about epochs always cuts: {cut:?}")
                };
                own.cut(to);
            }
            FollowerStep::Fetch { offset, .. } => {
                assert_eq!(offset, Offset(own.end));
                return questions;
            }
            FollowerStep::Nothing => panic!("nothing to wait for"),
        }
    }
    panic!("the histories do not come together")
}

#[test]
fn truncation_rows() {
    type Row = (
        &'static str,
        (&'static [(i32, i64)], i64),
        (&'static [(i32, i64)], i64),
        i64,
    );
    let rows: &[Row] = &[
        ("nothing here", (&[], 0), (&[(1, 0)], 50), 0),
        ("a prefix", (&[(1, 0)], 40), (&[(1, 0), (2, 50)], 60), 40),
        (
            "a longer tail in the same epoch",
            (&[(1, 0)], 60),
            (&[(1, 0), (2, 50)], 70),
            50,
        ),
        (
            "an epoch the leader never saw",
            (&[(1, 0), (2, 40)], 60),
            (&[(1, 0), (3, 50)], 70),
            40,
        ),
        (
            "an epoch of its own without a record (KAFKA-10706)",
            (&[(4, 0), (5, 100)], 100),
            (&[(4, 0), (6, 100)], 100),
            100,
        ),
        (
            "three unclean elections in turn (KIP-279)",
            (&[(0, 0), (2, 10), (4, 30)], 40),
            (&[(0, 0), (1, 10), (3, 20), (5, 35)], 50),
            10,
        ),
        (
            "nothing in common",
            (&[(3, 0), (4, 10)], 20),
            (&[(1, 0), (5, 30)], 30),
            0,
        ),
        (
            "the leader is shorter after an unclean election",
            (&[(1, 0)], 100),
            (&[(1, 0), (2, 80)], 80),
            80,
        ),
    ];
    for (story, own, leader, expected) in rows {
        let mut own = History::new(own.0, own.1);
        let leader = History::new(leader.0, leader.1);
        let mut follower = Follower::new(LEADER, LeaderEpoch(9), 0);
        let questions = reconcile(&mut follower, &mut own, &leader);
        assert_eq!(own.end, *expected, "{story}");
        assert!(
            questions <= own.epochs.len() + leader.epochs.len() + 1,
            "{story}"
        );
    }
}

#[test]
fn nothing_is_fetched_before_what_was_fetched_is_flushed() {
    let follower = Follower::new(LEADER, LeaderEpoch(1), 0);
    let view = LogView {
        log_start: Offset(0),
        log_end: Offset(10),
        flushed_end: Offset(5),
        high_watermark: Offset(0),
        latest_epoch: None,
    };
    let now = Monotonic::default();
    assert_eq!(
        follower.next_step(&view, Durability::Flushed, now),
        FollowerStep::Nothing
    );
    assert!(matches!(
        follower.next_step(&view, Durability::PageCache, now),
        FollowerStep::Fetch {
            offset: Offset(10),
            ..
        }
    ));
}

#[test]
fn answers_to_other_questions_do_not_count() {
    let own = History::new(&[(1, 0)], 10);
    let mut follower = Follower::new(LEADER, LeaderEpoch(2), 7);
    let FollowerStep::EpochEnd { ticket, .. } = step(&follower, &own) else {
        panic!("a new epoch begins with a question");
    };
    let rows = [
        ("this one", ticket, true),
        (
            "of another leader epoch",
            Ticket {
                leader_epoch: LeaderEpoch(1),
                ..ticket
            },
            false,
        ),
        (
            "of an earlier generation",
            Ticket {
                generation: ticket.generation - 1,
                ..ticket
            },
            false,
        ),
        (
            "for another offset",
            Ticket {
                offset: Offset(9),
                ..ticket
            },
            false,
        ),
        (
            "for this offset",
            Ticket {
                offset: Offset(10),
                ..ticket
            },
            true,
        ),
    ];
    for (story, ticket, expected) in rows {
        assert_eq!(
            follower.is_current(&ticket, &own.view()),
            expected,
            "{story}"
        );
    }
    let answer = Some((LeaderEpoch(1), Offset(10)));
    let _ = follower.on_epoch_end(&ticket, answer, &own.view(), |epoch| own.end_of(epoch));
    assert!(
        !follower.is_current(&ticket, &own.view()),
        "a second copy comes too late"
    );
}

#[test]
fn a_divergence_in_a_fetch_sends_back_to_truncating() {
    let mut own = History::new(&[(1, 0), (3, 20)], 30);
    let leader = History::new(&[(1, 0), (2, 10), (5, 25)], 40);
    let mut follower = Follower::new(LEADER, LeaderEpoch(5), 0);
    follower.on_fetched();
    let FollowerStep::Fetch {
        ticket,
        last_fetched_epoch,
        ..
    } = step(&follower, &own)
    else {
        panic!("it fetches");
    };
    assert_eq!(last_fetched_epoch, Some(LeaderEpoch(3)));
    let answer = leader.end_of(LeaderEpoch(3)).unwrap();
    assert_eq!(answer, (LeaderEpoch(2), Offset(25)));
    let before = own.clone();
    let cut = follower.on_diverging(&ticket, answer, &own.view(), |epoch| before.end_of(epoch));
    assert_eq!(cut, Cut::To(Offset(20)));
    own.cut(Offset(20));
    assert!(follower.is_truncating());
    reconcile(&mut follower, &mut own, &leader);
    assert_eq!(own.end, 10);
}

/// What was deleted here may be of the same history as the leader's, or of another.
#[test]
fn a_log_of_which_nothing_is_left_begins_anew_after_an_unclean_election() {
    // (own epochs, end), where it begins, last unclean election, the leader's answer => cut
    let rows = [
        (
            &[(5, 50)][..],
            60,
            50,
            Some(7),
            (3, 70),
            Cut::Restart(Offset(0)),
        ),
        (
            &[(5, 50)],
            50,
            50,
            Some(7),
            (3, 70),
            Cut::Restart(Offset(0)),
        ),
        (&[(5, 50)], 60, 50, Some(5), (3, 70), Cut::To(Offset(50))),
        (&[(5, 50)], 60, 50, None, (3, 70), Cut::To(Offset(50))),
        (
            &[(3, 50), (5, 55)],
            60,
            50,
            Some(7),
            (3, 70),
            Cut::To(Offset(55)),
        ),
        (&[(5, 0)], 60, 0, Some(7), (3, 70), Cut::To(Offset(0))),
    ];
    for (row, (epochs, end, log_start, unclean, answer, expected)) in rows.into_iter().enumerate() {
        let own = History::new(epochs, end);
        let view = LogView {
            log_start: Offset(log_start),
            ..own.view()
        };
        let mut follower =
            Follower::new(LEADER, LeaderEpoch(9), 0).after_unclean(unclean.map(LeaderEpoch));
        let step = follower.next_step(&view, Durability::PageCache, Monotonic::default());
        let FollowerStep::EpochEnd { ticket, .. } = step else {
            panic!("a new epoch begins with a question");
        };
        let answer = Some((LeaderEpoch(answer.0), Offset(answer.1)));
        let cut = follower.on_epoch_end(&ticket, answer, &view, |epoch| own.end_of(epoch));
        assert_eq!(cut, expected, "row {row}");
    }
}

#[test]
fn a_log_that_begins_beyond_its_leaders_end_begins_anew() {
    // Everything below 50 was deleted here; the leader, elected uncleanly, ends epoch 1 at 20.
    let own = History::new(&[(1, 50)], 60);
    let view = LogView {
        log_start: Offset(50),
        ..own.view()
    };
    let mut follower = Follower::new(LEADER, LeaderEpoch(2), 0);
    let step = follower.next_step(&view, Durability::Flushed, Monotonic::default());
    let FollowerStep::EpochEnd { ticket, .. } = step else {
        panic!("a new epoch begins with a question");
    };
    let answer = Some((LeaderEpoch(1), Offset(20)));
    let cut = follower.on_epoch_end(&ticket, answer, &view, |epoch| own.end_of(epoch));
    assert_eq!(
        cut,
        Cut::Restart(Offset(0)),
        "what the leader has before 20 is not here either"
    );
    assert!(!follower.is_truncating());
}

#[test]
fn an_empty_log_that_was_begun_for_another_leader_begins_at_the_beginning() {
    /// The log's epochs, end and start; the last unclean epoch; whether the replica is counted on; what is to be done.
    type Row = (&'static [(i32, i64)], i64, i64, Option<i32>, bool, Cut);
    let rows: [Row; 6] = [
        (&[], 50, 50, Some(2), false, Cut::Restart(Offset(0))),
        // It was complete under this history.
        (&[], 50, 50, Some(2), true, Cut::None),
        // Where a log begins is no question as long as no leader may lack what another had.
        (&[], 50, 50, None, false, Cut::None),
        // It can be compared.
        (&[(1, 50)], 50, 50, Some(2), false, Cut::None),
        (&[(1, 50)], 60, 50, Some(2), false, Cut::None),
        (&[], 0, 0, Some(2), false, Cut::None),
    ];
    for (row, (epochs, end, log_start, unclean, counted_on, expected)) in
        rows.into_iter().enumerate()
    {
        let view = LogView {
            log_start: Offset(log_start),
            ..History::new(epochs, end).view()
        };
        let mut follower =
            Follower::new(LEADER, LeaderEpoch(2), 0).after_unclean(unclean.map(LeaderEpoch));
        assert_eq!(follower.at_first(&view, counted_on), expected, "row {row}");
    }
}

#[test]
fn out_of_range_rows() {
    let view = History::new(&[(1, 0)], 10).view();
    let now = Monotonic::default();
    for (story, leader_log_start, expected, truncating) in [
        (
            "the leader begins after this log ends",
            Some(50),
            Cut::Restart(Offset(50)),
            false,
        ),
        ("the leader is the shorter one", Some(5), Cut::None, true),
        ("the answer does not tell", None, Cut::None, true),
    ] {
        let mut follower = Follower::new(LEADER, LeaderEpoch(1), 0);
        follower.on_fetched();
        let failure = FetchFailure::OutOfRange {
            leader_log_start: leader_log_start.map(Offset),
        };
        assert_eq!(
            follower.on_failure(failure, &view, now),
            expected,
            "{story}"
        );
        assert_eq!(follower.is_truncating(), truncating, "{story}");
    }
}
