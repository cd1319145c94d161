//! The life of brokers, as stories.

use std::collections::BTreeMap;

use kuorum_metadata::control::heartbeats::Silence;
use kuorum_metadata::control::tick::Ticked;
use kuorum_metadata::record::{ConfigResource, MetadataRecord};
use kuorum_metadata::rpc::AssignDirectoriesRequest;
use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::{BrokerEpoch, BrokerId, DirectoryId, TopicId};
use uuid::Uuid;

use crate::world::{World, home, ids};

const SESSION: u64 = 9000;
const GRACE: u64 = 250;
/// How long a death that its host confirms is waited with, in milliseconds.
const SETTLE: u64 = 50;

fn other_place() -> DirectoryId {
    DirectoryId(Uuid::from_u128(0xfeed))
}

#[test]
fn a_broker_starts_fenced_and_its_epoch_is_the_offset_of_its_registration() {
    let mut world = World::new();
    let request = world.request(1);
    let epoch = world.register(&request).unwrap();
    assert_eq!(epoch, BrokerEpoch(world.image.offset()));
    assert!(world.image.broker(BrokerId(1)).unwrap().fenced);
}

#[test]
fn unfenced_once_it_has_seen_its_own_registration() {
    let mut world = World::new();
    let request = world.request(1);
    world.register(&request).unwrap();
    let mut beat = world.heartbeat(1);
    beat.metadata_offset = beat.broker_epoch.0 - 1;
    assert!(world.send(&beat).unwrap().fenced);
    // Being level with a busy log is not asked for.
    beat.metadata_offset = beat.broker_epoch.0;
    assert!(!world.send(&beat).unwrap().fenced);
}

#[test]
fn a_broker_that_wants_to_stay_fenced_does() {
    let mut world = World::new();
    let request = world.request(1);
    world.register(&request).unwrap();
    let mut beat = world.heartbeat(1);
    beat.want_fence = true;
    assert!(world.send(&beat).unwrap().fenced);
}

#[test]
fn heartbeats_of_strangers_and_of_the_past_are_refused() {
    let mut world = World::with_brokers(1);
    let mut beat = world.heartbeat(1);
    beat.broker_id = BrokerId(7);
    assert_eq!(
        world.send(&beat).unwrap_err().code,
        ErrorCode::BrokerIdNotRegistered
    );
    let old = world.heartbeat(1);
    world.start(1);
    assert_eq!(
        world.send(&old).unwrap_err().code,
        ErrorCode::StaleBrokerEpoch
    );
}

/// Who may register as broker 1 while an earlier incarnation is known.
#[test]
fn registration_rows() {
    let rows = [
        // (same incarnation, same directory, milliseconds since last heard) => error, new epoch
        (true, true, 0, ErrorCode::None, false),
        (false, true, 0, ErrorCode::None, true),
        (false, true, SESSION, ErrorCode::None, true),
        (
            false,
            false,
            0,
            ErrorCode::DuplicateBrokerRegistration,
            false,
        ),
        (
            false,
            false,
            SESSION - 1,
            ErrorCode::DuplicateBrokerRegistration,
            false,
        ),
        (false, false, SESSION, ErrorCode::None, true),
    ];
    for (row, (same_incarnation, same_place, silent, error, new_epoch)) in
        rows.into_iter().enumerate()
    {
        let mut world = World::new();
        let first = world.request(1);
        world.register(&first).unwrap();
        world.beat(1);
        let epoch = world.epoch(1);
        world.pass(silent);
        let mut second = world.request(1);
        if same_incarnation {
            second.incarnation_id = first.incarnation_id;
        }
        if !same_place {
            second.directories = vec![other_place()];
        }
        let registered = world.register(&second);
        let code = registered.map_or_else(|refusal| refusal.code, |_| ErrorCode::None);
        assert_eq!(code, error, "row {row}");
        assert_eq!(world.epoch(1) != epoch, new_epoch, "row {row}");
    }
}

/// A process that was killed closes its stream by dying. Where the stream is still open, the directory that comes again
/// is a copy, or its host lost its power and was faster to start again than its session is to end.
#[test]
fn the_same_directory_is_taken_while_the_session_stream_is_open() {
    let mut world = World::with_brokers(1);
    let one = BrokerId(1);
    world.open(1);
    let again = world.request(1);
    let before = world.epoch(1);
    assert_eq!(
        world.register(&again).unwrap_err().code,
        ErrorCode::DuplicateBrokerRegistration
    );
    world.pass(SESSION - 1);
    assert_eq!(
        world.register(&again).unwrap_err().code,
        ErrorCode::DuplicateBrokerRegistration
    );
    world.pass(1);
    world.register(&again).unwrap();
    assert_ne!(world.epoch(1), before, "its session is over");

    world.beat(1);
    let session = world.open(1);
    let again = world.request(1);
    let before = world.epoch(1);
    assert!(world.register(&again).is_err());
    world.soft.session_closed(one, session, world.now);
    world.register(&again).unwrap();
    assert_ne!(world.epoch(1), before, "its stream has ended");
}

#[test]
fn the_same_incarnation_asking_again_changes_nothing() {
    let mut world = World::with_brokers(1);
    let request = world.request(1);
    world.register(&request).unwrap();
    world.beat(1);
    let before = world.image.clone();
    world.register(&request).unwrap();
    assert_eq!(world.image, before);
}

#[test]
fn a_broken_session_stream_frees_the_id_after_the_grace() {
    let mut world = World::with_brokers(1);
    let session = world.open(1);
    world.soft.session_closed(BrokerId(1), session, world.now);
    let mut request = world.request(1);
    request.directories = vec![other_place()];
    assert!(world.register(&request).is_err());
    world.pass(GRACE);
    assert!(world.register(&request).is_ok());
}

#[test]
fn bad_registrations() {
    let mut world = World::with_brokers(2);
    let mut nowhere = world.request(3);
    nowhere.directories.clear();
    let mut twice = world.request(3);
    twice.directories = vec![home(3), home(3)];
    let mut copied = world.request(3);
    copied.directories = vec![home(2)];
    let mut negative = world.request(3);
    negative.broker_id = BrokerId(-1);
    for request in [nowhere, twice, copied, negative] {
        let refusal = world.register(&request).unwrap_err();
        assert_eq!(refusal.code, ErrorCode::InvalidRegistration, "{request:?}");
    }
}

#[test]
fn silence_ends_a_session() {
    let mut world = World::with_brokers(2);
    world.topic("t", "1,2");
    world.pass(SESSION - 1);
    world.beat(2);
    assert_eq!(world.tick(), []);
    world.pass(1);
    assert_eq!(
        world.tick(),
        [Ticked::Fenced(BrokerId(1), Silence::SessionExpired)]
    );
    assert_eq!(world.line("t"), "leader=2 epoch=1 isr=2");
}

#[test]
fn streams() {
    let mut world = World::with_brokers(2);
    let fenced = Ticked::Fenced(BrokerId(1), Silence::Disconnected);
    let one = BrokerId(1);

    // Reopened within the grace.
    let session = world.open(1);
    world.soft.session_closed(one, session, world.now);
    world.pass(GRACE - 1);
    assert_eq!(world.tick(), []);
    let next = world.open(1);
    world.pass(GRACE);
    assert_eq!(world.tick(), []);

    // The late news of the first stream's end says nothing of the second.
    world.soft.session_closed(one, session, world.now);
    world.pass(GRACE);
    assert_eq!(world.tick(), []);

    // Closed on purpose: only the session timeout counts.
    world.soft.goodbye(one, world.epoch(1));
    world.soft.session_closed(one, next, world.now);
    world.pass(GRACE);
    assert_eq!(world.tick(), []);

    // Broken and not reopened.
    let last = world.open(1);
    world.soft.session_closed(one, last, world.now);
    world.pass(GRACE);
    assert_eq!(world.tick(), [fenced]);
}

#[test]
fn who_said_goodbye_holds_its_id_no_longer() {
    let mut world = World::with_brokers(1);
    let one = BrokerId(1);
    let session = world.open(1);
    let mut elsewhere = world.request(1);
    elsewhere.directories = vec![other_place()];

    world.soft.goodbye(one, world.epoch(1));
    assert_eq!(
        world.register(&elsewhere).unwrap_err().code,
        ErrorCode::DuplicateBrokerRegistration,
        "its stream is still open"
    );
    world.soft.session_closed(one, session, world.now);
    let before = world.epoch(1);
    world.register(&elsewhere).unwrap();
    assert_ne!(world.epoch(1), before);
}

#[test]
fn the_last_member_keeps_its_place() {
    let mut world = World::with_brokers(3);
    world.topic("t", "1,2,3");
    world.fence(2);
    world.fence(3);
    assert_eq!(world.line("t"), "leader=1 epoch=0 isr=1");
    world.fence(1);
    assert_eq!(world.line("t"), "leader=none epoch=1 isr=1");
    world.start(2);
    world.start(3);
    assert_eq!(
        world.line("t"),
        "leader=none epoch=1 isr=1",
        "only 1 has everything"
    );
    world.start(1);
    assert_eq!(world.line("t"), "leader=1 epoch=2 isr=1");
}

#[test]
fn a_fast_restart_is_another_replica() {
    let mut world = World::with_brokers(3);
    world.topic("t", "1,2,3");
    let request = world.request(1);
    world.register(&request).unwrap();
    assert_eq!(world.line("t"), "leader=2 epoch=1 isr=2,3");
    world.beat(1);
    assert_eq!(
        world.line("t"),
        "leader=2 epoch=1 isr=2,3",
        "it joins by catching up"
    );
}

#[test]
fn a_fast_restart_of_a_follower_leaves_the_leader_alone() {
    let mut world = World::with_brokers(3);
    world.topic("t", "1,2,3");
    world.start(3);
    assert_eq!(world.line("t"), "leader=1 epoch=0 isr=1,2");
}

#[test]
fn a_fast_restart_of_the_only_member_leads_again_under_a_new_epoch() {
    let mut world = World::with_brokers(2);
    world.topic("t", "1,2");
    world.fence(2);
    let request = world.request(1);
    world.register(&request).unwrap();
    assert_eq!(world.line("t"), "leader=none epoch=1 isr=1");
    world.beat(1);
    assert_eq!(world.line("t"), "leader=1 epoch=2 isr=1");
}

#[test]
fn all_killed_at_once_the_first_to_return_leads() {
    for order in [
        [1, 2, 3],
        [1, 3, 2],
        [2, 1, 3],
        [2, 3, 1],
        [3, 1, 2],
        [3, 2, 1],
    ] {
        let mut world = World::with_brokers(3);
        world.topic("t", "1,2,3");
        for broker in 1..=3 {
            let session = world.open(broker);
            world
                .soft
                .session_closed(BrokerId(broker), session, world.now);
        }
        world.pass(GRACE);
        world.tick();
        assert_eq!(world.line("t"), "leader=none epoch=1 isr=1,2,3");
        world.start(order[0]);
        let first = order[0];
        assert_eq!(
            world.line("t"),
            format!("leader={first} epoch=2 isr={first}")
        );
        world.start(order[1]);
        world.start(order[2]);
        assert_eq!(
            world.line("t"),
            format!("leader={first} epoch=2 isr={first}")
        );
    }
}

#[test]
fn all_six_processes_killed_at_once_and_one_machine_lost() {
    // The image says all is well, and a new controller has heard from nobody. 1 led, and never returns.
    let mut world = World::with_brokers(3);
    world.topic("t", "1,2,3");
    world.new_controller(2, &BTreeMap::new());
    world.start(2);
    world.start(3);
    assert_eq!(
        world.line("t"),
        "leader=1 epoch=0 isr=1,2,3",
        "1 may be alive"
    );
    world.pass(SESSION - 1);
    world.beat(2);
    world.beat(3);
    world.pass(1);
    world.tick();
    assert_eq!(
        world.line("t"),
        "leader=2 epoch=1 isr=2,3",
        "what 2 and 3 have is complete"
    );
}

#[test]
fn not_intact_leaves_the_isr() {
    let mut world = World::with_brokers(3);
    let topic = world.topic("t", "1,2,3");
    for broker in 1..=3 {
        let session = world.open(broker);
        world
            .soft
            .session_closed(BrokerId(broker), session, world.now);
    }
    world.pass(GRACE);
    world.tick();
    let mut request = world.request(1);
    request.not_intact = vec![(topic, 0)];
    world.register(&request).unwrap();
    world.beat(1);
    assert_eq!(
        world.line("t"),
        "leader=none epoch=1 isr=2,3",
        "1 must not lead"
    );
    world.start(3);
    assert_eq!(world.line("t"), "leader=3 epoch=2 isr=3");
}

#[test]
fn not_intact_leaves_even_as_the_last_member() {
    let mut world = World::with_brokers(2);
    let topic = world.topic("t", "1,2");
    world.fence(2);
    world.fence(1);
    let mut request = world.request(1);
    request.not_intact = vec![(topic, 0)];
    world.register(&request).unwrap();
    world.beat(1);
    world.start(2);
    assert_eq!(world.line("t"), "leader=none epoch=1 isr=");
    assert_eq!(
        world.partition("t", 0).last_known_elr,
        ids("1"),
        "for the operator to know"
    );
    // Whoever accepts the loss may say so.
    world.set(
        ConfigResource::Topic("t".to_owned()),
        "unclean.leader.election.enable",
        Some("true"),
    );
    world.tick();
    assert_eq!(world.line("t"), "leader=1 epoch=2 isr=1");
    assert_eq!(world.partition("t", 0).last_known_elr, []);
}

#[test]
fn a_wiped_broker_is_not_intact() {
    let mut world = World::with_brokers(3);
    world.topic("t", "1,2,3");
    world.fence(3);
    world.fence(2);
    world.fence(1);
    assert_eq!(world.line("t"), "leader=none epoch=1 isr=1");
    world.pass(SESSION);
    let mut request = world.request(1);
    request.directories = vec![other_place()];
    world.register(&request).unwrap();
    world.beat(1);
    assert_eq!(world.line("t"), "leader=none epoch=1 isr=");
}

/// Broker 2 with two directories, and topics that it leads, of which nobody knows yet where it keeps them.
fn two_directories(topics: &[&str]) -> (World, Vec<TopicId>) {
    let mut world = World::with_brokers(1);
    let mut request = world.request(2);
    request.directories = vec![home(2), other_place()];
    world.register(&request).unwrap();
    world.beat(2);
    let topics = topics.iter().map(|name| world.topic(name, "2,1")).collect();
    (world, topics)
}

fn assign(world: &mut World, broker: i32, places: &[(TopicId, DirectoryId)]) {
    let assignments = places.iter().map(|(topic, place)| (*topic, 0, *place));
    let request = AssignDirectoriesRequest {
        broker_id: BrokerId(broker),
        broker_epoch: world.epoch(broker),
        assignments: assignments.collect(),
    };
    let decision =
        kuorum_metadata::control::brokers::assign_directories(&world.image, &world.soft, &request);
    world.commit(decision.unwrap());
}

#[test]
fn an_offline_directory_gives_up_its_leaders() {
    let (mut world, topics) = two_directories(&["here", "there"]);
    assign(
        &mut world,
        2,
        &[(topics[0], home(2)), (topics[1], other_place())],
    );
    let mut beat = world.heartbeat(2);
    beat.offline_directories = vec![other_place()];
    world.send(&beat).unwrap();
    assert_eq!(world.line("here"), "leader=2 epoch=0 isr=2,1");
    assert_eq!(world.line("there"), "leader=1 epoch=1 isr=1");
    let settled = world.image.clone();
    world.send(&beat).unwrap();
    assert_eq!(world.image, settled, "it is said once");
}

#[test]
fn a_replica_told_of_after_its_directory_failed_leads_no_more() {
    let (mut world, topics) = two_directories(&["here", "there"]);
    let mut beat = world.heartbeat(2);
    beat.offline_directories = vec![other_place()];
    world.send(&beat).unwrap();
    assert_eq!(
        world.line("there"),
        "leader=2 epoch=0 isr=2,1",
        "nobody knows yet"
    );
    let places = [(topics[0], home(2)), (topics[1], other_place())];
    assign(&mut world, 2, &places);
    assert_eq!(world.line("here"), "leader=2 epoch=0 isr=2,1");
    assert_eq!(world.line("there"), "leader=1 epoch=1 isr=1");
    let settled = world.image.clone();
    assign(&mut world, 2, &places);
    assert_eq!(world.image, settled, "it is said once");
    // It comes back with both.
    let mut request = world.request(2);
    request.directories = vec![home(2), other_place()];
    world.register(&request).unwrap();
    world.beat(2);
    assert_eq!(world.line("there"), "leader=1 epoch=1 isr=1");
}

/// A log that was made, was empty, and did not outlast its directory: the replica leads no more, and has lost nothing.
#[test]
fn a_replica_lost_before_anything_was_in_it_is_intact() {
    let (mut world, topics) = two_directories(&["t"]);
    world.fence(1);
    assert_eq!(world.line("t"), "leader=2 epoch=0 isr=2");
    let mut beat = world.heartbeat(2);
    beat.offline_directories = vec![other_place()];
    world.send(&beat).unwrap();
    assign(&mut world, 2, &[(topics[0], DirectoryId::LOST)]);
    assert_eq!(world.line("t"), "leader=none epoch=1 isr=2");
    let mut request = world.request(2);
    request.directories = vec![home(2)];
    world.register(&request).unwrap();
    world.beat(2);
    assert_eq!(
        world.line("t"),
        "leader=none epoch=1 isr=2",
        "it has no log yet"
    );
    assign(&mut world, 2, &[(topics[0], home(2))]);
    world.tick();
    assert_eq!(world.line("t"), "leader=2 epoch=2 isr=2");
}

#[test]
fn a_controlled_shutdown_waits_for_those_who_must_know() {
    let mut world = World::with_brokers(3);
    world.topic("t", "1,2,3");
    let mut leave = world.heartbeat(1);
    leave.want_shut_down = true;
    assert!(!world.send(&leave).unwrap().may_shut_down);
    assert_eq!(world.line("t"), "leader=2 epoch=1 isr=2,3");
    let moved = world.image.offset();
    assert!(
        !world.send(&leave).unwrap().may_shut_down,
        "2 and 3 have not seen it"
    );
    world.beat(2);
    let mut behind = world.heartbeat(3);
    behind.metadata_offset = moved - 1;
    world.send(&behind).unwrap();
    assert!(
        !world.send(&leave).unwrap().may_shut_down,
        "3 has not seen it"
    );
    world.beat(3);
    let reply = world.send(&leave).unwrap();
    assert!(reply.may_shut_down && reply.fenced);
    assert!(world.image.broker(BrokerId(1)).unwrap().fenced);
    assert!(
        world.send(&leave).unwrap().may_shut_down,
        "asked again, the same answer"
    );
}

#[test]
fn a_broker_that_is_leaving_is_not_unfenced_again() {
    let mut world = World::with_brokers(2);
    let mut leave = world.heartbeat(1);
    leave.want_shut_down = true;
    world.send(&leave).unwrap();
    world.beat(2);
    assert!(world.send(&leave).unwrap().may_shut_down);
    assert!(world.beat(1).fenced);
    world.start(1);
}

#[test]
fn the_only_member_leads_until_it_is_gone() {
    let mut world = World::with_brokers(2);
    world.topic("t", "1,2");
    world.fence(2);
    world.start(2);
    let mut leave = world.heartbeat(1);
    leave.want_shut_down = true;
    world.send(&leave).unwrap();
    assert_eq!(world.line("t"), "leader=1 epoch=0 isr=1");
    assert!(!world.send(&leave).unwrap().may_shut_down);
    world.fence(1);
    assert_eq!(world.line("t"), "leader=none epoch=1 isr=1");
}

#[test]
fn nobody_is_let_go_whom_a_leader_still_counts_on() {
    let mut world = World::with_brokers(3);
    world.topic("t", "1,2,3");
    // Only the one that leaves has been heard from by the new controller.
    world.new_controller(2, &BTreeMap::new());
    let mut leave = world.heartbeat(3);
    leave.want_shut_down = true;
    assert!(!world.send(&leave).unwrap().may_shut_down);
    assert_eq!(world.line("t"), "leader=1 epoch=0 isr=1,2,3", "not yet");
    assert!(!world.send(&leave).unwrap().may_shut_down, "1 waits for it");
    world.beat(1);
    world.beat(2);
    world.tick();
    assert_eq!(world.line("t"), "leader=1 epoch=0 isr=1,2");
    world.beat(1);
    world.beat(2);
    world.send(&leave).unwrap();
    world.beat(1);
    world.beat(2);
    assert!(world.send(&leave).unwrap().may_shut_down);
}

#[test]
fn a_leader_that_is_leaving_does_not_keep_members_that_are_out() {
    let mut world = World::with_brokers(3);
    world.topic("t", "1,2,3");
    world.fence(3);
    // 2 dies together with the controller.
    world.new_controller(2, &BTreeMap::new());
    let mut leave = world.heartbeat(1);
    leave.want_shut_down = true;
    world.send(&leave).unwrap();
    assert_eq!(world.line("t"), "leader=1 epoch=0 isr=1,2");
    world.pass(SESSION - 1);
    assert!(!world.send(&leave).unwrap().may_shut_down);
    world.pass(1);
    assert_eq!(
        world.tick(),
        [Ticked::Fenced(BrokerId(2), Silence::SessionExpired)]
    );
    assert_eq!(world.line("t"), "leader=1 epoch=0 isr=1");
    assert!(!world.send(&leave).unwrap().may_shut_down);
}

#[test]
fn a_new_controller_fences_nobody_and_still_notices_a_death() {
    let mut world = World::with_brokers(3);
    world.topic("t", "1,2,3");
    world.pass(SESSION - 1);
    for broker in 1..=3 {
        world.beat(broker);
    }
    world.pass(SESSION - 1);
    // 1 dies together with the controller.
    world.new_controller(2, &BTreeMap::new());
    assert_eq!(world.tick(), []);
    world.pass(2000);
    world.beat(2);
    world.beat(3);
    assert_eq!(world.tick(), [], "a full session for everybody");
    assert_eq!(world.line("t"), "leader=1 epoch=0 isr=1,2,3");
    world.pass(SESSION - 2000);
    assert_eq!(
        world.tick(),
        [Ticked::Fenced(BrokerId(1), Silence::SessionExpired)]
    );
    assert_eq!(world.line("t"), "leader=2 epoch=1 isr=2,3");
}

#[test]
fn who_died_with_the_controller_is_fenced_as_soon_as_its_host_says_so() {
    let (one, two) = (BrokerId(1), BrokerId(2));
    let missing = |world: &World| -> Vec<BrokerId> {
        let missing = world.soft.missing(&world.image, world.now);
        missing.into_iter().map(|(id, _)| id).collect()
    };
    let mut world = World::with_brokers(3);
    world.topic("t", "1,2,3");
    world.new_controller(2, &BTreeMap::new());
    world.beat(3);
    assert_eq!(missing(&world), [], "they have had no time to come");
    world.pass(GRACE);
    assert_eq!(missing(&world), [one, two]);

    // Nobody listens at 1 and 2; but 2 comes all the same: it was restarted, or something stood in the way.
    for broker in [one, two] {
        let epoch = world.image.broker(broker).unwrap().epoch;
        world.soft.refused(broker, epoch, world.now);
    }
    assert_eq!(missing(&world), [], "asked once is enough");
    world.pass(GRACE - 1);
    world.beat(2);
    assert_eq!(world.tick(), []);
    world.pass(1);
    assert_eq!(world.tick(), [Ticked::Fenced(one, Silence::Refused)]);
    assert_eq!(world.line("t"), "leader=2 epoch=1 isr=2,3");
    world.pass(SESSION - 2);
    world.beat(3);
    assert_eq!(world.tick(), [], "2 has a session like everybody");
    assert_eq!(missing(&world), []);
}

#[test]
fn a_refusal_says_nothing_about_who_was_heard_from_or_about_its_successor() {
    let mut world = World::with_brokers(2);
    world.new_controller(2, &BTreeMap::new());
    let epoch = world.image.broker(BrokerId(1)).unwrap().epoch;
    // The look was under way when broker 1 came.
    world.pass(GRACE);
    world.beat(1);
    world.soft.refused(BrokerId(1), epoch, world.now);
    // The look was under way when broker 2 came back as another incarnation.
    let before = world.image.broker(BrokerId(2)).unwrap().epoch;
    let again = world.request(2);
    world.register(&again).unwrap();
    world.soft.refused(BrokerId(2), before, world.now);
    world.pass(GRACE);
    assert_eq!(world.tick(), []);
}

fn break_stream(world: &mut World, broker: i32) {
    let session = world.open(broker);
    world
        .soft
        .session_closed(BrokerId(broker), session, world.now);
}

fn refuse(world: &mut World, broker: i32) {
    let epoch = world.epoch(broker);
    world.soft.refused(BrokerId(broker), epoch, world.now);
}

#[test]
fn a_broken_stream_and_an_address_that_refuses_are_a_death() {
    let mut world = World::with_brokers(3);
    world.topic("t", "1,2,3");
    let epoch = world.epoch(1);
    break_stream(&mut world, 1);
    assert_eq!(
        world.soft.missing(&world.image, world.now),
        [(BrokerId(1), epoch)],
        "its host is asked at once"
    );
    refuse(&mut world, 1);
    assert_eq!(world.soft.missing(&world.image, world.now), []);
    world.pass(SETTLE - 1);
    // A heartbeat that was still under way.
    world.beat(1);
    assert_eq!(world.tick(), []);
    world.pass(1);
    assert_eq!(
        world.tick(),
        [Ticked::Fenced(BrokerId(1), Silence::Disconnected)]
    );
    assert_eq!(world.line("t"), "leader=2 epoch=1 isr=2,3");
    assert!(world.beat(1).fenced, "so was this one");

    // It was alive all the same, and does not know that its stream broke.
    world.pass(GRACE - SETTLE);
    assert!(!world.beat(1).fenced);

    // One that does has another.
    break_stream(&mut world, 2);
    refuse(&mut world, 2);
    world.pass(SETTLE);
    assert_eq!(world.tick().len(), 1);
    assert!(world.beat(2).fenced);
    world.open(2);
    assert!(!world.beat(2).fenced);
    break_stream(&mut world, 2);
    refuse(&mut world, 2);
    world.open(2);
    world.pass(GRACE);
    assert_eq!(world.tick(), []);
}

#[test]
fn whoever_is_killed_together_with_the_leader_is_not_elected() {
    let mut world = World::with_brokers(3);
    world.topic("t", "1,2,3");
    let dies = |world: &mut World, broker| {
        break_stream(world, broker);
        refuse(world, broker);
    };
    dies(&mut world, 1);
    world.pass(SETTLE - 1);
    assert_eq!(world.tick(), []);
    dies(&mut world, 2);
    world.pass(1);
    assert_eq!(world.tick().len(), 1);
    assert_eq!(world.line("t"), "leader=3 epoch=1 isr=2,3");

    // When all are, nobody leaves the ISR.
    let mut world = World::with_brokers(3);
    world.topic("t", "1,2,3");
    for broker in 1..=3 {
        dies(&mut world, broker);
        world.pass(SETTLE / 5);
        assert_eq!(world.tick(), []);
    }
    for _ in 0..10 {
        world.pass(SETTLE / 5);
        world.tick();
    }
    assert_eq!(world.line("t"), "leader=none epoch=1 isr=1,2,3");
}

#[test]
fn one_broker_is_fenced_per_decision_the_longest_silent_first() {
    let mut world = World::with_brokers(2);
    world.pass(1);
    world.beat(1);
    world.pass(SESSION);
    assert_eq!(
        world
            .soft
            .next_deadline(&world.image)
            .map(|at| at <= world.now.monotonic),
        Some(true)
    );
    assert_eq!(
        world.tick(),
        [
            Ticked::Fenced(BrokerId(2), Silence::SessionExpired),
            Ticked::Fenced(BrokerId(1), Silence::SessionExpired)
        ]
    );
}

#[test]
fn a_living_broker_is_not_forgotten() {
    use kuorum_metadata::control::{Command, CommandReply};
    let mut world = World::with_brokers(2);
    world.topic("t", "1,2");
    let forget = |world: &mut World, id| {
        let reply = world.command(&Command::UnregisterBroker {
            broker_id: BrokerId(id),
        });
        let CommandReply::UnregisterBroker(outcome) = reply else {
            panic!("an answer to another command");
        };
        outcome.code()
    };
    assert_eq!(forget(&mut world, 1), ErrorCode::InvalidRequest);
    assert_eq!(forget(&mut world, 9), ErrorCode::BrokerIdNotRegistered);
    world.start(3);
    assert_eq!(forget(&mut world, 3), ErrorCode::InvalidRequest, "it lives");
    world.fence(1);
    world.fence(3);
    assert_eq!(
        forget(&mut world, 1),
        ErrorCode::InvalidRequest,
        "it holds a replica"
    );
    assert_eq!(forget(&mut world, 3), ErrorCode::None);
    assert!(world.image.broker(BrokerId(3)).is_none());
    assert_eq!(forget(&mut world, 3), ErrorCode::BrokerIdNotRegistered);
}

#[test]
fn a_stream_that_broke_is_forgiven_once_the_broker_is_heard_again() {
    let mut world = World::with_brokers(1);
    world.topic("t", "1");
    let session = world.open(1);
    world.soft.session_closed(BrokerId(1), session, world.now);
    world.pass(GRACE);
    world.tick();
    assert_eq!(world.line("t"), "leader=none epoch=1 isr=1");
    assert!(!world.beat(1).fenced);
    assert_eq!(world.line("t"), "leader=1 epoch=2 isr=1");
    world.pass(GRACE);
    assert_eq!(
        world.tick(),
        [],
        "it is not fenced a second time for the same stream"
    );
}

#[test]
fn nobody_is_elected_uncleanly_over_the_head_of_a_member_that_is_starting() {
    let mut world = World::with_brokers(2);
    world.topic("t", "1,2");
    let resource = ConfigResource::Topic("t".to_owned());
    world.set(resource, "unclean.leader.election.enable", Some("true"));
    world.fence(2);
    world.start(2);
    assert_eq!(world.line("t"), "leader=1 epoch=0 isr=1");
    let request = world.request(1);
    world.register(&request).unwrap();
    world.tick();
    assert_eq!(
        world.line("t"),
        "leader=none epoch=1 isr=1",
        "1 is about to return with everything"
    );
    // It dies on the way.
    world.pass(SESSION);
    world.beat(2);
    world.tick();
    assert_eq!(world.line("t"), "leader=2 epoch=2 isr=2");
}

#[test]
fn a_broker_without_any_directory_leads_nothing_and_gets_nothing() {
    let mut world = World::with_brokers(2);
    world.topic("t", "1,2");
    let mut beat = world.heartbeat(1);
    beat.offline_directories = vec![home(1)];
    world.send(&beat).unwrap();
    assert_eq!(world.line("t"), "leader=2 epoch=1 isr=2");
    world.topic("u", "1,2");
    assert_eq!(world.line("u"), "leader=2 epoch=0 isr=2");
}

/// T(2,1): the leader dies alone in the ISR, the follower returns. R18 to R20.
fn only_the_incomplete_one_is_alive(world: &mut World, topics: &[&str]) {
    for topic in topics {
        world.topic(topic, "1,2");
    }
    world.fence(2);
    world.fence(1);
    world.start(2);
}

#[test]
fn a_clean_topic_stays_offline_and_remembers_its_isr() {
    let mut world = World::with_brokers(2);
    only_the_incomplete_one_is_alive(&mut world, &["bank-transfers"]);
    assert_eq!(world.line("bank-transfers"), "leader=none epoch=1 isr=1");
    for _ in 0..10 {
        world.pass(1000);
        world.beat(2);
        assert_eq!(world.tick(), []);
    }
    world.start(1);
    assert_eq!(world.line("bank-transfers"), "leader=1 epoch=2 isr=1");
    assert_eq!(
        world.partition("bank-transfers", 0).last_unclean_epoch,
        None
    );
}

#[test]
fn the_unclean_policy_counts_from_the_moment_it_is_changed() {
    let policy = "unclean.leader.election.enable";
    let topic = |name: &str| ConfigResource::Topic(name.to_owned());
    // (what is set, the partitions that are led by that very entry of the log)
    let rows = [
        (topic("telemetry-logs"), "telemetry-logs"),
        (ConfigResource::ClusterDefault, "telemetry-logs,other"),
    ];
    for (resource, led) in rows {
        let mut world = World::with_brokers(2);
        let names = ["telemetry-logs", "other", "bank-transfers"];
        only_the_incomplete_one_is_alive(&mut world, &names);
        world.set(topic("bank-transfers"), policy, Some("false"));
        let entries = world.log.len();
        assert!(world.set(resource.clone(), policy, Some("true")).is_ok());
        assert_eq!(world.log.len(), entries + 1, "one decision, one entry");
        for name in names {
            let partition = world.partition(name, 0);
            let epoch = match led.split(',').any(|led| led == name) {
                true => {
                    assert_eq!(world.line(name), "leader=2 epoch=2 isr=2", "{resource:?}");
                    Some(partition.leader_epoch)
                }
                false => {
                    assert_eq!(
                        world.line(name),
                        "leader=none epoch=1 isr=1",
                        "{resource:?}"
                    );
                    None
                }
            };
            assert_eq!(partition.last_unclean_epoch, epoch, "{resource:?} {name}");
        }
        // Who was complete comes back as a follower, under an epoch that is newer than all it had.
        world.start(1);
        assert_eq!(world.line("telemetry-logs"), "leader=2 epoch=2 isr=2");
        assert_eq!(world.line("bank-transfers"), "leader=1 epoch=2 isr=1");
    }
}

#[test]
fn the_unclean_policy_counts_when_a_broker_returns() {
    let mut world = World::with_brokers(3);
    world.topic("t", "1,2,3");
    let resource = ConfigResource::Topic("t".to_owned());
    world.set(resource, "unclean.leader.election.enable", Some("true"));
    world.fence(3);
    world.fence(2);
    world.fence(1);
    assert_eq!(world.line("t"), "leader=none epoch=1 isr=1");
    world.start(3);
    assert_eq!(world.line("t"), "leader=3 epoch=2 isr=3");
}

/// Both died in one moment, and are found out in one: the second must not be given what the first has, only to be fenced next.
#[test]
fn nobody_who_is_due_to_be_fenced_is_elected() {
    for (isr, expected) in [("1", "isr=1"), ("1,2", "isr=1,2")] {
        let mut world = World::with_brokers(3);
        world.topic("t", "1,2");
        let resource = ConfigResource::Topic("t".to_owned());
        world.set(resource, "unclean.leader.election.enable", Some("true"));
        if isr == "1" {
            world.fence(2);
            world.start(2);
        }
        world.pass(SESSION / 2);
        world.beat(1);
        world.beat(2);
        world.pass(SESSION / 2);
        world.beat(3);
        world.pass(SESSION / 2);
        let fenced = |id| Ticked::Fenced(BrokerId(id), Silence::SessionExpired);
        assert_eq!(world.tick(), [fenced(1), fenced(2)]);
        assert_eq!(world.line("t"), format!("leader=none epoch=1 {expected}"));
    }
}

#[test]
fn a_lower_minimum_empties_the_elr_in_the_same_entry() {
    let mut world = World::with_brokers(3);
    world.topic("t", "1,2,3");
    let resource = ConfigResource::Topic("t".to_owned());
    world.set(resource.clone(), "min.insync.replicas", Some("2"));
    world.fence(2);
    world.fence(3);
    assert_eq!(world.line("t"), "leader=1 epoch=0 isr=1 elr=3");
    let entries = world.log.len();
    world.set(resource.clone(), "min.insync.replicas", Some("1"));
    assert_eq!(world.line("t"), "leader=1 epoch=0 isr=1");
    assert_eq!(world.log.len(), entries + 1);
    // A higher one brings nobody back: what 3 has may be less by now.
    world.set(resource, "min.insync.replicas", Some("3"));
    assert_eq!(world.line("t"), "leader=1 epoch=0 isr=1");
}

#[test]
fn the_minimum_of_another_controller_counts_too() {
    let mut world = World::with_brokers(3);
    let file = |min: &str| BTreeMap::from([("min.insync.replicas".to_owned(), min.to_owned())]);
    world.new_controller(2, &file("2"));
    for broker in 1..=3 {
        world.beat(broker);
    }
    world.topic("t", "1,2,3");
    world.fence(2);
    world.fence(3);
    assert_eq!(world.line("t"), "leader=1 epoch=0 isr=1 elr=3");
    world.new_controller(3, &file("1"));
    world.tick();
    assert_eq!(world.line("t"), "leader=1 epoch=0 isr=1");
}

#[test]
fn a_controlled_shutdown_below_the_minimum_stays_electable() {
    let mut world = World::with_brokers(2);
    world.topic("t", "1,2");
    let resource = ConfigResource::Topic("t".to_owned());
    world.set(resource, "min.insync.replicas", Some("2"));
    let mut leave = world.heartbeat(1);
    leave.want_shut_down = true;
    world.send(&leave).unwrap();
    assert_eq!(world.line("t"), "leader=2 epoch=1 isr=2 elr=1");
    world.beat(2);
    assert!(world.send(&leave).unwrap().may_shut_down);
    world.fence(2);
    world.start(1);
    assert_eq!(world.line("t"), "leader=1 epoch=3 isr=1 elr=2");
}

#[test]
fn who_is_not_intact_leaves_the_elr_and_is_remembered_while_nobody_leads() {
    let mut world = World::with_brokers(3);
    let topic = world.topic("t", "1,2,3");
    let resource = ConfigResource::Topic("t".to_owned());
    world.set(resource.clone(), "min.insync.replicas", Some("2"));
    world.fence(2);
    world.fence(3);
    let lose = |world: &mut World, broker| {
        let mut request = world.request(broker);
        request.not_intact = vec![(topic, 0)];
        world.register(&request).unwrap();
        world.beat(broker);
    };
    let known = |world: &World| world.partition("t", 0).last_known_elr.clone();
    // Under a leader nobody needs to be remembered.
    lose(&mut world, 3);
    assert_eq!(world.line("t"), "leader=1 epoch=0 isr=1");
    assert_eq!(known(&world), []);
    // Both lose power, and their page caches with it.
    world.set(resource.clone(), "min.insync.replicas", Some("1"));
    world.fence(3);
    world.set(resource.clone(), "min.insync.replicas", Some("2"));
    let mut record = world.partition("t", 0).to_record(topic, 0);
    record.isr = ids("1,3");
    world.put(MetadataRecord::Partition(record));
    world.start(3);
    world.fence(3);
    world.fence(1);
    assert_eq!(world.line("t"), "leader=none epoch=1 isr=1 elr=3");
    lose(&mut world, 3);
    assert_eq!(world.line("t"), "leader=none epoch=1 isr=1");
    assert_eq!(known(&world), ids("3"));
    lose(&mut world, 1);
    assert_eq!(world.line("t"), "leader=none epoch=1 isr=");
    assert_eq!(known(&world), ids("3,1"));
    // While the policy is false even the last known leader does not lead.
    world.start(2);
    assert_eq!(world.line("t"), "leader=none epoch=1 isr=");
    world.set(resource, "unclean.leader.election.enable", Some("true"));
    assert_eq!(world.line("t"), "leader=1 epoch=2 isr=1");
    assert_eq!(known(&world), []);
}

#[test]
fn a_forgotten_broker_brings_nothing_back() {
    for (same_place, line) in [
        (true, "leader=1 epoch=2 isr=1"),
        (false, "leader=none epoch=1 isr="),
    ] {
        let mut world = World::with_brokers(2);
        world.topic("t", "1,2");
        world.fence(2);
        world.fence(1);
        let broker_epoch = world.epoch(1);
        world.put(MetadataRecord::UnregisterBroker {
            broker_id: BrokerId(1),
            broker_epoch,
        });
        assert_eq!(world.line("t"), "leader=none epoch=1 isr=1");
        let mut request = world.request(1);
        if !same_place {
            request.directories = vec![other_place()];
        }
        world.register(&request).unwrap();
        world.beat(1);
        assert_eq!(world.line("t"), line, "the same directory: {same_place}");
    }
}

fn drain(world: &mut World, broker: i32, draining: bool) -> ErrorCode {
    use kuorum_metadata::control::{Command, CommandReply};
    let reply = world.command(&Command::DrainBroker {
        broker_id: BrokerId(broker),
        draining,
    });
    let CommandReply::DrainBroker(outcome) = reply else {
        panic!("an answer to another command");
    };
    outcome.code()
}

#[test]
fn draining_takes_leadership_and_outlives_restarts_and_controllers() {
    let mut world = World::with_brokers(3);
    world.topic("a", "1,2,3");
    world.topic("b", "2,1,3");
    world.topic("c", "1");
    assert_eq!(drain(&mut world, 9, true), ErrorCode::BrokerIdNotRegistered);
    assert_eq!(drain(&mut world, 1, true), ErrorCode::None);
    assert_eq!(world.line("a"), "leader=2 epoch=1 isr=1,2,3");
    assert_eq!(world.line("b"), "leader=2 epoch=0 isr=2,1,3");
    assert_eq!(
        world.line("c"),
        "leader=1 epoch=0 isr=1",
        "nobody else could"
    );
    let settled = world.image.clone();
    assert_eq!(drain(&mut world, 1, true), ErrorCode::None);
    assert_eq!(world.image, settled, "it is said once");
    // New partitions too, and elections of the preferred leader.
    world.topic("d", "1,2");
    assert_eq!(world.line("d"), "leader=2 epoch=0 isr=1,2");
    let given = kuorum_metadata::control::leaders::rebalance(&world.image, &world.soft, 10);
    assert_eq!(given.response, 0);
    // Its own restart and another controller change nothing of it.
    world.start(1);
    world.new_controller(2, &BTreeMap::new());
    for broker in 1..=3 {
        world.beat(broker);
    }
    world.tick();
    assert!(world.image.broker(BrokerId(1)).unwrap().draining);
    assert_eq!(world.line("d"), "leader=2 epoch=0 isr=2");
    // As the last one alive it leads rather than nobody, and gives back what another can lead.
    world.fence(2);
    world.fence(3);
    assert_eq!(world.line("d"), "leader=none epoch=1 isr=2");
    world.start(2);
    assert_eq!(world.line("d"), "leader=2 epoch=2 isr=2");
    assert_eq!(drain(&mut world, 1, false), ErrorCode::None);
    assert!(!world.image.broker(BrokerId(1)).unwrap().draining);
}
