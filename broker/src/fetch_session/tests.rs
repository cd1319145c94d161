//! Tables and stories of fetch sessions.

use super::*;

fn key(partition: i32) -> PartitionKey {
    (TopicKey::Id(TopicId(uuid::Uuid::from_u128(7))), partition)
}

fn wanted(partition: i32, fetch_offset: i64) -> Wanted {
    Wanted {
        key: key(partition),
        current_leader_epoch: 3,
        fetch_offset,
        last_fetched_epoch: -1,
        log_start_offset: -1,
        max_bytes: 1 << 20,
    }
}

fn ask(id: i32, epoch: i32) -> SessionAsk {
    SessionAsk {
        id,
        epoch,
        by_id: true,
        privileged: false,
    }
}

fn at(seconds: u64) -> Monotonic {
    Monotonic(Duration::from_secs(seconds))
}

fn finding(high_watermark: i64, has_records: bool) -> Finding {
    Finding {
        told: Told {
            high_watermark,
            log_start_offset: 0,
            last_stable_offset: high_watermark,
        },
        must_tell: has_records,
        has_records,
    }
}

fn offsets(plan: &FetchPlan) -> Vec<(i32, i64)> {
    plan.wanted
        .iter()
        .map(|wanted| (wanted.key.1, wanted.fetch_offset))
        .collect()
}

/// Opens a session over partitions 0..count, answered with nothing to read.
fn opened(sessions: &FetchSessions, count: i32) -> i32 {
    let named = (0..count).map(|partition| wanted(partition, 0)).collect();
    let plan = sessions
        .begin(ask(0, 0), named, &[], at(0), 41)
        .expect("a session");
    let findings = vec![finding(0, false); count as usize];
    assert_eq!(
        sessions.finish(&plan, &findings),
        vec![true; count as usize],
        "the first answer tells all"
    );
    plan.session_id()
}

#[test]
fn a_session_is_named_once_and_told_what_changed() {
    let sessions = FetchSessions::new(10);
    let id = opened(&sessions, 3);
    assert_ne!(id, 0);

    let plan = sessions
        .begin(ask(id, 1), vec![wanted(1, 5)], &[], at(1), 0)
        .expect("resumed");
    assert_eq!(plan.session_id(), id);
    assert_eq!(offsets(&plan), [(0, 0), (1, 5), (2, 0)]);
    let found = [finding(0, false), finding(9, true), finding(4, false)];
    assert_eq!(sessions.finish(&plan, &found), [false, true, true]);

    // Partition 1 had its turn; partition 2 told its watermark and has nothing new.
    let plan = sessions
        .begin(ask(id, 2), vec![], &[], at(2), 0)
        .expect("resumed");
    assert_eq!(offsets(&plan), [(0, 0), (2, 0), (1, 5)]);
    let found = [finding(0, false), finding(4, false), finding(9, false)];
    assert_eq!(sessions.finish(&plan, &found), [false, false, false]);
}

/// R37 (KAFKA-9338): a partition that is named again is asked for as it is named now, in every request that follows.
#[test]
fn what_is_wanted_of_a_partition_may_change_the_leader_epoch_too() {
    let in_epoch = |epoch, offset, last_fetched_epoch| Wanted {
        current_leader_epoch: epoch,
        last_fetched_epoch,
        ..wanted(1, offset)
    };
    // (named in this request) ⇒ what is asked of partition 1
    let rows = [
        (vec![], in_epoch(3, 0, -1)),
        (vec![in_epoch(4, 0, -1)], in_epoch(4, 0, -1)),
        (vec![], in_epoch(4, 0, -1)),
        (vec![in_epoch(7, 5, 4)], in_epoch(7, 5, 4)),
        (vec![wanted(0, 1)], in_epoch(7, 5, 4)),
        (vec![in_epoch(-1, 5, -1)], in_epoch(-1, 5, -1)),
    ];
    let sessions = FetchSessions::new(10);
    let id = opened(&sessions, 3);
    for ((named, expected), epoch) in rows.into_iter().zip(1..) {
        let plan = sessions
            .begin(ask(id, epoch), named, &[], at(1), 0)
            .expect("resumed");
        let epochs: Vec<(i32, i32)> = plan
            .wanted
            .iter()
            .map(|wanted| (wanted.key.1, wanted.current_leader_epoch))
            .collect();
        let now = expected.current_leader_epoch;
        assert_eq!(epochs, [(0, 3), (1, now), (2, 3)], "request {epoch}");
        assert_eq!(plan.wanted[1], expected, "request {epoch}");
    }
}

#[test]
fn forgotten_partitions_leave_and_an_empty_session_ends() {
    let sessions = FetchSessions::new(10);
    let id = opened(&sessions, 2);
    let plan = sessions
        .begin(ask(id, 1), vec![wanted(2, 0)], &[key(0)], at(1), 0)
        .expect("resumed");
    assert_eq!(offsets(&plan), [(1, 0), (2, 0)]);
    let plan = sessions
        .begin(ask(id, 2), vec![], &[key(1), key(2)], at(2), 0)
        .expect("resumed");
    assert_eq!((plan.session_id(), plan.wanted.len()), (0, 0));
    assert_eq!(sessions.counts(), (0, 0));
}

#[test]
fn errors() {
    let sessions = FetchSessions::new(10);
    let id = opened(&sessions, 1);
    let by_name = SessionAsk {
        by_id: false,
        ..ask(id, 1)
    };
    let rows = [
        (ask(id + 1, 1), ErrorCode::FetchSessionIdNotFound),
        (ask(id, 2), ErrorCode::InvalidFetchSessionEpoch),
        (ask(id, i32::MAX), ErrorCode::InvalidFetchSessionEpoch),
        (by_name, ErrorCode::FetchSessionTopicIdError),
    ];
    for (ask, expected) in rows {
        let result = sessions.begin(ask, vec![], &[], at(1), 0);
        assert_eq!(result, Err(expected), "{ask:?}");
    }
    assert!(
        sessions.begin(ask(id, 1), vec![], &[], at(1), 0).is_ok(),
        "an error leaves the session as it was"
    );
}

#[test]
fn the_epoch_wraps_to_one() {
    let sessions = FetchSessions::new(10);
    let id = opened(&sessions, 1);
    sessions
        .state
        .lock()
        .sessions
        .get_mut(&id)
        .expect("open")
        .next_epoch = i32::MAX;
    for epoch in [i32::MAX, 1, 2] {
        sessions
            .begin(ask(id, epoch), vec![], &[], at(1), 0)
            .expect("in step");
    }
}

#[test]
fn no_session_is_kept_for_those_who_want_none_or_end_theirs() {
    let sessions = FetchSessions::new(10);
    let plan = sessions
        .begin(ask(0, -1), vec![wanted(0, 0)], &[], at(0), 1)
        .expect("sessionless");
    assert_eq!(plan.session_id(), 0);
    assert_eq!(sessions.finish(&plan, &[finding(0, false)]), [true]);

    let id = opened(&sessions, 1);
    sessions
        .begin(ask(id, -1), vec![wanted(0, 0)], &[], at(0), 1)
        .expect("ended");
    assert_eq!(sessions.counts().0, 0);

    let id = opened(&sessions, 1);
    let again = sessions
        .begin(ask(id, 0), vec![wanted(0, 0)], &[], at(0), 99)
        .expect("a new one");
    assert_ne!(again.session_id(), id);
    assert_eq!(sessions.counts().0, 1, "the new one takes the place");
}

#[test]
fn who_may_take_whose_slot() {
    let follower = |epoch| SessionAsk {
        privileged: true,
        ..ask(0, epoch)
    };
    // (who holds the one slot, who comes, when) ⇒ gets a session
    let rows = [
        (ask(0, 0), ask(0, 0), 60, false),
        (ask(0, 0), ask(0, 0), 121, true),
        (ask(0, 0), follower(0), 1, true),
        (follower(0), follower(0), 60, false),
        (follower(0), ask(0, 0), 121, true),
    ];
    for (holder, comer, seconds, gets) in rows {
        let sessions = FetchSessions::new(1);
        let open = |ask, now| {
            sessions
                .begin(ask, vec![wanted(0, 0)], &[], at(now), now)
                .expect("answered")
                .session_id()
        };
        assert_ne!(open(holder, 0), 0);
        assert_eq!(
            open(comer, seconds) != 0,
            gets,
            "{holder:?} {comer:?} {seconds}"
        );
        assert_eq!(sessions.counts(), (1, u64::from(gets)));
    }
}

#[test]
fn a_session_evicted_under_a_parked_fetch_tells_everything() {
    let sessions = FetchSessions::new(1);
    let id = opened(&sessions, 2);
    let plan = sessions
        .begin(ask(id, 1), vec![], &[], at(1), 0)
        .expect("resumed");
    sessions.state.lock().sessions.clear();
    let found = [finding(0, false), finding(0, false)];
    assert_eq!(sessions.finish(&plan, &found), [true, true]);
}
