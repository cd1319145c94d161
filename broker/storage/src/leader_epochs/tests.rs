use super::*;

fn epochs(pairs: &[(i32, i64)]) -> LeaderEpochs {
    let mut epochs = LeaderEpochs::new();
    for (epoch, start) in pairs {
        epochs.assign(LeaderEpoch(*epoch), Offset(*start));
    }
    epochs
}

fn pairs(epochs: &LeaderEpochs) -> Vec<(i32, i64)> {
    epochs
        .entries()
        .iter()
        .map(|entry| (entry.epoch.0, entry.start.0))
        .collect()
}

#[test]
fn an_epoch_assigned_takes_back_what_contradicts_it() {
    type Pairs = &'static [(i32, i64)];
    let rows: [(Pairs, (i32, i64), Pairs); 8] = [
        (&[], (0, 0), &[(0, 0)]),
        (&[(0, 0)], (0, 5), &[(0, 0)]),
        (&[(0, 0)], (2, 5), &[(0, 0), (2, 5)]),
        (&[(0, 0), (2, 5)], (3, 5), &[(0, 0), (3, 5)]),
        (&[(0, 0), (2, 5)], (3, 3), &[(0, 0), (3, 3)]),
        (&[(0, 0), (2, 5), (4, 9)], (3, 7), &[(0, 0), (2, 5), (3, 7)]),
        (&[(0, 0), (2, 5)], (2, 3), &[(0, 0), (2, 3)]),
        (&[(5, 0)], (-1, 3), &[(5, 0)]),
    ];
    for (before, (epoch, start), after) in rows {
        let mut found = epochs(before);
        let changed = found.assign(LeaderEpoch(epoch), Offset(start));
        assert_eq!(pairs(&found), after, "{before:?} + {epoch}@{start}");
        assert_eq!(changed, before != after);
    }
}

/// R15: every case of where an epoch ends.
#[test]
fn where_an_epoch_ends() {
    let known = epochs(&[(2, 10), (4, 20), (7, 30)]);
    let rows = [
        (-1, None),
        (0, Some((0, 10))),
        (1, Some((1, 10))),
        (2, Some((2, 20))),
        (3, Some((2, 20))),
        (4, Some((4, 30))),
        (6, Some((4, 30))),
        (7, Some((7, 50))),
        (8, None),
    ];
    for (epoch, expected) in rows {
        let found = known.end_offset_for(LeaderEpoch(epoch), Offset(50));
        assert_eq!(
            found.map(|(epoch, end)| (epoch.0, end.0)),
            expected,
            "{epoch}"
        );
    }
    assert_eq!(
        LeaderEpochs::new().end_offset_for(LeaderEpoch(0), Offset(50)),
        None
    );
}

#[test]
fn both_ends_are_cut() {
    let rows = [
        (5, vec![]),
        (10, vec![]),
        (11, vec![(2, 10)]),
        (31, vec![(2, 10), (4, 20), (7, 30)]),
    ];
    for (end, after) in rows {
        let mut found = epochs(&[(2, 10), (4, 20), (7, 30)]);
        found.truncate_from_end(Offset(end));
        assert_eq!(pairs(&found), after, "end {end}");
    }
    let rows = [
        (5, vec![(2, 10), (4, 20), (7, 30)]),
        (10, vec![(2, 10), (4, 20), (7, 30)]),
        (15, vec![(2, 15), (4, 20), (7, 30)]),
        (20, vec![(4, 20), (7, 30)]),
        (99, vec![(7, 99)]),
    ];
    for (start, after) in rows {
        let mut found = epochs(&[(2, 10), (4, 20), (7, 30)]);
        found.truncate_from_start(Offset(start));
        assert_eq!(pairs(&found), after, "start {start}");
    }
}

#[test]
fn the_text_is_kafkas() {
    let known = epochs(&[(0, 0), (3, 12)]);
    assert_eq!(known.to_text(), "0\n2\n0 0\n3 12\n");
    assert_eq!(LeaderEpochs::from_text(&known.to_text()), Some(known));
    for bad in [
        "",
        "0\n2\n0 0\n",
        "1\n0\n",
        "0\n2\n3 12\n0 0\n",
        "0\n1\nx 0\n",
        "\0\0\0\0",
    ] {
        assert_eq!(LeaderEpochs::from_text(bad), None, "{bad:?}");
    }
}
