//! Rules that a test may switch off, to prove that it would notice: in one thread for the simulation, in a whole process for the
//! scenarios with real ones.
//! Law: without the feature `mutations` every rule holds and [`off`] is the constant `false`.

/// One rule, named by what goes wrong without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mutation {
    /// The high watermark waits for the proposed set only, not for the maximal one.
    HighWatermarkIgnoresMaximalIsr,
    /// One replica in sync is enough, whatever min.insync.replicas says.
    HighWatermarkIgnoresMinIsr,
    /// The high watermark advances although somebody outside the ISR may lead (KIP-966).
    HighWatermarkIgnoresElr,
    /// The leader counts itself up to its log end, flushed or not.
    LeaderCountsUnflushed,
    /// A follower fetches on (and so reports) before what it has is flushed.
    FollowerReportsUnflushed,
    /// A parked produce outlives the epoch that appended it.
    AckOutlivesEpoch,
    /// Who believes that it leads says at once that a sequence does not fit.
    GapsUnconfirmed,
    /// A follower may join the ISR before it has reached the start of the leader's epoch.
    JoinBeforeEpochStart,
    /// A follower may join without having fetched from this very incarnation in this epoch.
    JoinIgnoresBrokerEpoch,
    /// Nobody looks again at the high watermark when the ISR has shrunk.
    ShrinkForgetsHighWatermark,
    /// A new leader epoch does not send the follower back to truncating, and divergence is not looked for.
    NoTruncation,
    /// A follower cuts to its high watermark instead of to the boundary of the epochs (before KIP-101).
    TruncateToHighWatermark,
    /// A fetch that is answered with a divergence still counts as progress (KAFKA-13141).
    DivergenceIsProgress,
    /// A follower appends whatever answer arrives, whichever request it belongs to.
    StaleAnswersAppended,
    /// Metadata does not settle a change whose reply was lost or refused (KAFKA-14144).
    MetadataSettlesNothing,
    /// A proposal that was never answered is never sent again (KAFKA-14144).
    UnansweredIsForgotten,
    /// Only a recent fetch with new data keeps a follower in sync, so idle partitions flap (KAFKA-7152).
    IdleFollowersLeave,
    /// Consumers read up to the log end.
    ConsumersReadToLogEnd,
    /// A new leader forgets the high watermark it had as a follower and tells what it has at once.
    LatestBeforeEpochStart,
    /// A leader goes on although it has been told of another.
    DeposedLeaderStays,
    /// A process that has just started takes up what the process before it led.
    RestartedLeaderResumes,
    /// The leader epoch a caller names is not looked at (before KIP-320).
    EpochsNotCompared,
    /// Every epoch is said to end where the log ends (KAFKA-6857).
    EpochsEndAtLogEnd,
    /// The high watermark is whatever everyone has, even if that is less than before.
    HighWatermarkFalls,
    /// Histories are compared by fetching alone. Safe: this is how Kafka does it since KIP-595.
    NoTruncatingPhase,
    /// Out-of-sync followers are never removed.
    NeverShrinks,
    /// A leader proposes a member that is fenced or shutting down (before KIP-841); the controllers refuse it.
    LeavingIsProposed,
    /// Nobody minds that a new member of the ISR is fenced or shutting down.
    LeavingMayJoin,
    /// A broker that is shutting down hands nothing over.
    LeavingKeepsLeading,
    /// A leader that is shutting down keeps members that are out, and nobody may join it to take over.
    LeavingLeaderKeepsTheDead,
    /// A broker that is shutting down is let go although leaders still wait for it.
    LetGoWhileCountedOn,
    /// Whatever the topic's policy says, a leader that lacks records is better than none.
    UncleanWhateverThePolicy,
    /// A preferred leader is elected whether or not it is in sync.
    PreferredOutsideIsr,
    /// A batch of a controller that is no longer in office counts like any other.
    DeposedControllerDecides,
    /// A controller that takes office does not know whom it has to miss (KIP-631).
    DeadBrokersForgotten,
    /// A follower that must cut below its own log start keeps its start, and a hole where the leader has records.
    CutStopsAtLogStart,
    /// A move completes as soon as one of those that are to stay is in sync.
    MoveCompletesTooSoon,
    /// Who leaves with a move does so under the leader epoch that counted on it.
    MoveKeepsLeaderEpoch,
    /// What an unclean election makes a replica cut off is gone.
    CutWithoutSalvage,
    /// A replica that leaves with a move is deleted, whatever it alone may have.
    DeletedWithoutSalvage,
    /// The high watermark is what the leader alone has: acks=all is no more than acks=1.
    LeaderAcknowledgesAlone,
    /// A broker that comes back keeps the places of its replicas, whatever it has left of them (before KIP-858).
    WipedCountsAsIntact,
    /// A cut that takes no record leaves the epochs that begin where it cuts (KAFKA-10706).
    EmptyEpochsStay,
    /// A broker that finds a log damaged when it opens it keeps that to itself.
    DamageGoesUntold,
    /// Nobody is told that a directory has failed.
    DiskFailureGoesUntold,
    /// A session ends when the wall clock says so.
    SessionsByWallClock,
    /// A controller that nobody answers decides alone.
    OneControllerDecides,
}

impl Mutation {
    /// Every rule.
    pub const ALL: &'static [Self] = &[
        Self::HighWatermarkIgnoresMaximalIsr,
        Self::HighWatermarkIgnoresMinIsr,
        Self::HighWatermarkIgnoresElr,
        Self::LeaderCountsUnflushed,
        Self::FollowerReportsUnflushed,
        Self::AckOutlivesEpoch,
        Self::GapsUnconfirmed,
        Self::JoinBeforeEpochStart,
        Self::JoinIgnoresBrokerEpoch,
        Self::ShrinkForgetsHighWatermark,
        Self::NoTruncation,
        Self::TruncateToHighWatermark,
        Self::DivergenceIsProgress,
        Self::StaleAnswersAppended,
        Self::MetadataSettlesNothing,
        Self::UnansweredIsForgotten,
        Self::IdleFollowersLeave,
        Self::ConsumersReadToLogEnd,
        Self::LatestBeforeEpochStart,
        Self::DeposedLeaderStays,
        Self::RestartedLeaderResumes,
        Self::EpochsNotCompared,
        Self::EpochsEndAtLogEnd,
        Self::HighWatermarkFalls,
        Self::NoTruncatingPhase,
        Self::NeverShrinks,
        Self::LeavingIsProposed,
        Self::LeavingMayJoin,
        Self::LeavingKeepsLeading,
        Self::LeavingLeaderKeepsTheDead,
        Self::LetGoWhileCountedOn,
        Self::UncleanWhateverThePolicy,
        Self::PreferredOutsideIsr,
        Self::DeposedControllerDecides,
        Self::DeadBrokersForgotten,
        Self::CutStopsAtLogStart,
        Self::MoveCompletesTooSoon,
        Self::MoveKeepsLeaderEpoch,
        Self::CutWithoutSalvage,
        Self::DeletedWithoutSalvage,
        Self::LeaderAcknowledgesAlone,
        Self::WipedCountsAsIntact,
        Self::EmptyEpochsStay,
        Self::DamageGoesUntold,
        Self::DiskFailureGoesUntold,
        Self::SessionsByWallClock,
        Self::OneControllerDecides,
    ];

    /// The rule of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let mut all = Self::ALL.iter().copied();
        all.find(|rule| format!("{rule:?}") == name)
    }
}

#[cfg(feature = "mutations")]
mod switch {
    use std::cell::Cell;
    use std::sync::OnceLock;

    use super::Mutation;

    thread_local! {
        static OFF: Cell<Option<Mutation>> = const { Cell::new(None) };
    }

    static OFF_EVERYWHERE: OnceLock<Mutation> = OnceLock::new();

    /// Whether `rule` is switched off in this thread or in the whole process.
    pub fn off(rule: Mutation) -> bool {
        OFF.with(|off| off.get() == Some(rule)) || OFF_EVERYWHERE.get() == Some(&rule)
    }

    /// Switches off, for as long as this process lives, the rule of this name.
    ///
    /// # Errors
    /// If there is none, or another one is switched off already.
    pub fn switch_off_everywhere(name: &str) -> Result<(), String> {
        let rule = Mutation::named(name).ok_or_else(|| format!("no rule is called {name:?}"))?;
        OFF_EVERYWHERE
            .set(rule)
            .map_err(|_| "one rule at a time".to_owned())
    }

    /// Runs `story` with `rule` switched off, in this thread only.
    pub fn without<R>(rule: Option<Mutation>, story: impl FnOnce() -> R) -> R {
        let before = OFF.with(|off| off.replace(rule));
        let result = story();
        OFF.with(|off| off.set(before));
        result
    }
}

#[cfg(feature = "mutations")]
pub use switch::{off, switch_off_everywhere, without};

/// Whether `rule` is switched off: never.
#[cfg(not(feature = "mutations"))]
#[inline(always)]
pub const fn off(_rule: Mutation) -> bool {
    false
}
