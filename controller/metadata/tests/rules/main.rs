//! The rules of the cluster as tables, stories and properties.
//!
//! Each rule that safety hangs on, and the test that fails when it is taken out:
//!
//! | taken out | fails |
//! |---|---|
//! | `elect`: only members of the ISR and ELR lead | `election::rows`, `properties::histories`, `committed::histories` |
//! | `elr_beside`: nobody is left in the ELR once enough are in sync | `election::rows`, `properties::histories` |
//! | a leader's high watermark stands still while there is an ELR | `committed::histories` |
//! | `elect`: a member of the ELR leads when the ISR is out | `election::rows`, `committed::last_replica_standing` |
//! | `elect`: a broker that is drained gets nothing that another may lead | `election::rows`, `properties::histories` |
//! | `decide`: a setting's consequences are in its own batch | `brokers::the_unclean_policy_counts_from_the_moment_it_is_changed` |
//! | `take_roles`: a broker that was forgotten is as good as unknown | `brokers::a_forgotten_broker_brings_nothing_back` |
//! | `elect`: who is only suspected keeps its leadership, and is not elected | `election::rows`, `brokers::all_killed_at_once_the_first_to_return_leads` |
//! | `elect`: fenced members leave the ISR only under a live leader | `election::rows`, `brokers::the_last_member_keeps_its_place` |
//! | `elect`: an unclean leader only when all known-good members are out | `election::rows` |
//! | `elect`: nobody uncleanly over the head of a member that is starting | `election::rows`, `brokers::nobody_is_elected_uncleanly_over_the_head_of_a_member_that_is_starting` |
//! | `change`: a change of leader raises the leader epoch, leaderless too | `election::rows`, `properties::histories` |
//! | `standing_of_replica`: an offline directory cannot lead | `brokers::an_offline_directory_gives_up_its_leaders` |
//! | `take_roles`: a new incarnation loses leadership | `brokers::a_fast_restart_is_another_replica` |
//! | `take_roles`: a replica that is not intact leaves even as the last | `brokers::not_intact_leaves_even_as_the_last_member` |
//! | `is_still_there`: another directory is not intact | `brokers::a_wiped_broker_is_not_intact` |
//! | `register`: another directory waits for the session's end | `brokers::registration_rows` |
//! | `register`: the same directory waits for the stream's end | `brokers::the_same_directory_is_taken_while_the_session_stream_is_open` |
//! | `heartbeat`: unfence only once its own registration is known | `brokers::unfenced_once_it_has_seen_its_own_registration` |
//! | `may_go`: everybody active has seen the move | `brokers::a_controlled_shutdown_waits_for_those_who_must_know` |
//! | `take_office`: a full session for everybody | `brokers::a_new_controller_fences_nobody_and_still_notices_a_death` |
//! | `refused`: only of who was not heard from or whose stream broke, and forgotten when it is | `brokers::who_died_with_the_controller_is_fenced_as_soon_as_its_host_says_so`, `brokers::a_refusal_says_nothing_about_who_was_heard_from_or_about_its_successor` |
//! | `deadline`: a refusal ends the grace of a broken stream, but not at once | `brokers::a_broken_stream_and_an_address_that_refuses_are_a_death`, `brokers::whoever_is_killed_together_with_the_leader_is_not_elected` |
//! | `session_closed`: only the newest stream counts | `brokers::streams` |
//! | `forgive`: a broken stream fences once | `brokers::a_stream_that_broke_is_forgiven_once_the_broker_is_heard_again` |
//! | AlterPartition: each check, and their order | `isr::rows` |
//! | AlterPartition: the incarnation the leader heard from | `isr::rows` |
//! | `complete`: all that is to stay is in sync, not only what is added | `reassignment::stories` |
//! | `settle`: a set that shrinks raises the leader epoch | `reassignment::stories`, `reassignment::histories` |
//! | `cancel`: the last complete replica does not go | `reassignment::stories`, `reassignment::histories` |
//! | `begin`: what the running move added stays until the end | `reassignment::stories`, `reassignment::histories` |
//! | `apply_batch`: the controller epoch | `image::a_controller_that_left_office_changes_nothing` |
//! | `apply_batch`: of two that open one epoch the first does | `image::of_two_that_take_office_at_once_the_log_lets_one_through` |
//! | `decode`: the checksum | `image::a_damaged_snapshot_is_refused` |
//! | `apply`: an older incarnation's change is passed over | `image::changes_of_an_older_incarnation_are_passed_over` |
//! | `producer_ids`: blocks do not overlap | `topics::producer_id_blocks_never_overlap` |
//! | internal topics are pinned to clean elections | `configs::internal_topics_never_elect_uncleanly` |
//! | `derive`: an older incarnation's change and a repeated report are no events | `events::rows`, `events::a_report_is_recorded_once` |
//! | `History`: what is known is passed over, what was dropped is told | `events::a_history_is_bounded_and_says_what_it_dropped` |
//! | effective value: override, dynamic, recorded, built-in | `configs::one_effective_value` |

#![allow(
    clippy::unwrap_used,
    reason = "a test that finds nothing to unwrap has failed"
)]

mod brokers;
mod committed;
mod configs;
mod election;
mod events;
mod image;
mod isr;
mod properties;
mod reassignment;
mod salvage;
mod topics;
mod world;
