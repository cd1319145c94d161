//! Who has been heard from: the soft state of the active controller.
//! Law: nothing here is recorded. A controller that takes office begins with a full session for every unfenced broker,
//! so that a change of controllers fences nobody, and a broker that died with its controller is still noticed: soon
//! if its host says so, else when that session is over.

use std::collections::BTreeMap;
use std::time::Duration;

use kuorum_protocol::{BrokerEpoch, BrokerId, Monotonic, Now};

use super::election::Standing;
use crate::image::MetadataImage;
use crate::mutation::{self, Mutation};

/// How long a stream must have been broken before its broker is fenced even though nobody listens at its address: whoever was
/// killed together with it is noticed first, so that none of the dead is elected and none leaves the ISR.
const SETTLE: Duration = Duration::from_millis(50);

/// How long silence is forgiven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timings {
    /// `broker.session.timeout.ms`
    pub session_timeout: Duration,
    /// `broker.disconnect.grace.ms`
    pub disconnect_grace: Duration,
}

impl Default for Timings {
    fn default() -> Self {
        Self {
            session_timeout: Duration::from_secs(9),
            disconnect_grace: Duration::from_millis(250),
        }
    }
}

/// One streaming session request, so that the end of an old one is not taken for the end of its successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionId(u64);

/// What the active controller knows of each broker's life.
#[derive(Clone, Debug, Default)]
pub struct Heartbeats {
    timings: Timings,
    brokers: BTreeMap<BrokerId, Contact>,
    sessions_opened: u64,
    /// The latest moment anything was heard from anybody.
    latest: Monotonic,
}

#[derive(Clone, Debug)]
struct Contact {
    epoch: BrokerEpoch,
    /// When it was last heard from, or when this controller took office.
    last_heard: Monotonic,
    /// Whether it was heard from since this controller took office.
    heard: bool,
    /// How far its image has come; −1 before the first heartbeat.
    metadata_offset: i64,
    stream: Stream,
    /// With a controlled shutdown: the offset every active broker must have applied before it may go.
    shutdown_offset: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stream {
    /// None was opened here, or the end of one is forgiven: only the session timeout counts.
    None,
    Open {
        session: u64,
        /// It said goodbye: the end that follows is no death.
        goodbye: bool,
    },
    /// It ended without a goodbye.
    Broken {
        at: Monotonic,
        /// Its own address refuses connections besides: its process is gone.
        refused: bool,
    },
    /// None was opened here, and its own address refuses connections: its process is gone.
    Refused { at: Monotonic },
    /// It ended after a goodbye: only the session timeout fences, but nobody holds the broker's id any more.
    Left,
}

/// Why a broker is taken for dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// Not heard from for `broker.session.timeout.ms`.
    SessionExpired,
    /// Its session stream broke and was not reopened within `broker.disconnect.grace.ms`, or its address refuses connections.
    Disconnected,
    /// Not heard from by this controller, and its address has refused connections for `broker.disconnect.grace.ms`.
    Refused,
}

impl Silence {
    /// For events and logs.
    pub fn cause(self) -> &'static str {
        match self {
            Self::SessionExpired => "broker fenced: session expired",
            Self::Disconnected => "broker fenced: session stream broken",
            Self::Refused => "broker fenced: its address refuses connections",
        }
    }
}

impl Contact {
    fn new(epoch: BrokerEpoch, now: Monotonic, heard: bool) -> Self {
        Self {
            epoch,
            last_heard: now,
            heard,
            metadata_offset: -1,
            stream: Stream::None,
            shutdown_offset: None,
        }
    }

    fn deadline(&self, timings: &Timings) -> (Monotonic, Silence) {
        let expired = (
            self.last_heard + timings.session_timeout,
            Silence::SessionExpired,
        );
        let sooner = match self.stream {
            Stream::Broken { at, refused } => {
                let grace = if refused {
                    timings.disconnect_grace.min(SETTLE)
                } else {
                    timings.disconnect_grace
                };
                (at + grace, Silence::Disconnected)
            }
            Stream::Refused { at } => (at + timings.disconnect_grace, Silence::Refused),
            Stream::None | Stream::Open { .. } | Stream::Left => return expired,
        };
        if sooner.0 <= expired.0 {
            sooner
        } else {
            expired
        }
    }
}

impl Heartbeats {
    /// Knows nobody yet.
    pub fn new(timings: Timings) -> Self {
        Self {
            timings,
            ..Self::default()
        }
    }

    /// Forgets everything and gives every unfenced broker a full session. To be called when this controller's own
    /// ControllerEpoch record has been applied, and never before.
    pub fn take_office(&mut self, image: &MetadataImage, now: Now) {
        self.brokers = image
            .brokers()
            .filter(|broker| !broker.fenced && !mutation::off(Mutation::DeadBrokersForgotten))
            .map(|broker| (broker.id, Contact::new(broker.epoch, now.monotonic, false)))
            .collect();
    }

    /// A broker's registration was applied: it was heard from, in a new incarnation or not.
    pub fn registered(&mut self, broker: BrokerId, epoch: BrokerEpoch, now: Now) {
        self.contact(broker, epoch, now);
    }

    /// A heartbeat arrived. To be called on arrival, so that a busy controller does not take a queue for silence.
    /// Heartbeats of an older incarnation are ignored.
    pub fn heard(&mut self, broker: BrokerId, epoch: BrokerEpoch, metadata_offset: i64, now: Now) {
        if let Some(contact) = self.contact(broker, epoch, now) {
            contact.metadata_offset = contact.metadata_offset.max(metadata_offset);
        }
    }

    /// A broker opened its session stream.
    pub fn session_opened(&mut self, broker: BrokerId, epoch: BrokerEpoch, now: Now) -> SessionId {
        self.sessions_opened += 1;
        let session = self.sessions_opened;
        if let Some(contact) = self.contact(broker, epoch, now) {
            contact.stream = Stream::Open {
                session,
                goodbye: false,
            };
        }
        SessionId(session)
    }

    /// A broker will close its session stream on purpose.
    pub fn goodbye(&mut self, broker: BrokerId, epoch: BrokerEpoch) {
        if let Some(contact) = self.brokers.get_mut(&broker)
            && contact.epoch == epoch
            && let Stream::Open { goodbye, .. } = &mut contact.stream
        {
            *goodbye = true;
        }
    }

    /// A session stream ended. Only the end of the newest one says anything.
    pub fn session_closed(&mut self, broker: BrokerId, closed: SessionId, now: Now) {
        if let Some(contact) = self.brokers.get_mut(&broker)
            && let Stream::Open { session, goodbye } = contact.stream
            && session == closed.0
        {
            contact.stream = if goodbye {
                Stream::Left
            } else {
                Stream::Broken {
                    at: now.monotonic,
                    refused: false,
                }
            };
        }
    }

    /// The unfenced brokers, and their incarnations, whose stream broke, and those that have not come to this controller although
    /// they had `broker.disconnect.grace.ms` to do so. Whoever died, be it together with the controller before, is among them; so is
    /// who is slow. To be asked of their hosts: does anybody listen there?
    pub fn missing(&self, image: &MetadataImage, now: Now) -> Vec<(BrokerId, BrokerEpoch)> {
        self.deadlines(image)
            .filter_map(|(id, _, _)| Some((id, self.brokers.get(&id)?)))
            .filter(|(_, contact)| match contact.stream {
                Stream::Broken { refused, .. } => !refused,
                Stream::None => {
                    !contact.heard
                        && contact.last_heard + self.timings.disconnect_grace <= now.monotonic
                }
                Stream::Open { .. } | Stream::Refused { .. } | Stream::Left => false,
            })
            .map(|(id, contact)| (id, contact.epoch))
            .collect()
    }

    /// The host of a missing broker answers that nobody listens at the broker's address. Of one that never came here, its first
    /// sign of life makes this forgotten; of one whose stream broke, only another stream does.
    pub fn refused(&mut self, broker: BrokerId, epoch: BrokerEpoch, now: Now) {
        if let Some(contact) = self.brokers.get_mut(&broker)
            && contact.epoch == epoch
        {
            match &mut contact.stream {
                Stream::Broken { refused, .. } => *refused = true,
                stream @ Stream::None if !contact.heard => {
                    *stream = Stream::Refused { at: now.monotonic };
                }
                Stream::None | Stream::Open { .. } | Stream::Refused { .. } | Stream::Left => {}
            }
        }
    }

    /// A broker was forgotten.
    pub fn forget(&mut self, broker: BrokerId) {
        self.brokers.remove(&broker);
    }

    /// The unfenced broker that has been silent for longest beyond what is forgiven, if any.
    pub fn expired(&self, image: &MetadataImage, now: Now) -> Option<(BrokerId, Silence)> {
        self.deadlines(image)
            .filter(|(_, deadline, _)| *deadline <= now.monotonic)
            .min_by_key(|(id, deadline, _)| (*deadline, *id))
            .map(|(id, _, silence)| (id, silence))
    }

    /// Whether an unfenced broker has been silent beyond what is forgiven: it will be fenced next.
    pub fn is_due(&self, image: &MetadataImage, broker: BrokerId, now: Now) -> bool {
        self.deadlines(image)
            .any(|(id, deadline, _)| id == broker && deadline <= now.monotonic)
    }

    /// When the next unfenced broker will be taken for dead if nothing is heard.
    pub fn next_deadline(&self, image: &MetadataImage) -> Option<Monotonic> {
        self.deadlines(image).map(|(_, deadline, _)| deadline).min()
    }

    /// Whether some process holds this broker's id and may well be alive.
    pub fn has_valid_session(&self, broker: BrokerId, now: Now) -> bool {
        self.brokers.get(&broker).is_some_and(|contact| {
            contact.stream != Stream::Left && contact.deadline(&self.timings).0 > now.monotonic
        })
    }

    /// Whether some process holds this broker's id and its session stream is open: it lives, or its host died so suddenly
    /// that nothing closed its connections.
    pub fn has_open_session(&self, broker: BrokerId, now: Now) -> bool {
        let stream = self.brokers.get(&broker).map(|contact| contact.stream);
        matches!(stream, Some(Stream::Open { .. })) && self.has_valid_session(broker, now)
    }

    /// What a broker may do in an election, from its registration and from what has been heard.
    pub fn standing(&self, image: &MetadataImage, id: BrokerId) -> Standing {
        let Some(broker) = image.broker(id) else {
            return Standing::Out;
        };
        if broker.directories.is_empty() {
            return Standing::Out;
        }
        let is_heard = self.brokers.get(&id).is_some_and(|contact| {
            contact.epoch == broker.epoch
                && contact.heard
                && !matches!(contact.stream, Stream::Broken { .. })
        });
        match (broker.fenced, broker.in_controlled_shutdown) {
            (true, false) if is_heard && self.is_recent(id) => Standing::Returning,
            (true, _) => Standing::Out,
            (false, true) => Standing::Leaving,
            (false, false) if is_heard && broker.draining => Standing::Draining,
            (false, false) if is_heard => Standing::Active,
            (false, false) => Standing::Suspect,
        }
    }

    /// Whether a broker was heard from within a session of the latest sign of life of anybody.
    fn is_recent(&self, broker: BrokerId) -> bool {
        self.brokers
            .get(&broker)
            .is_some_and(|contact| self.latest < contact.last_heard + self.timings.session_timeout)
    }

    /// Whether its stream broke just now and nobody listens at its address: a heartbeat of it was under way when it died. Not for longer than
    /// `broker.disconnect.grace.ms`, since a broker may live and not know that its stream broke.
    pub(crate) fn is_gone(&self, broker: BrokerId, now: Now) -> bool {
        let grace = self.timings.disconnect_grace;
        self.brokers.get(&broker).is_some_and(|contact| {
            matches!(contact.stream, Stream::Broken { at, refused: true } if now.monotonic < at + grace)
        })
    }

    /// A broker is about to be unfenced because it was heard from: that its stream once broke is forgiven. Until it opens
    /// another only the session timeout counts.
    pub(crate) fn forgive(&mut self, broker: BrokerId) {
        if let Some(contact) = self.brokers.get_mut(&broker)
            && matches!(contact.stream, Stream::Broken { .. })
        {
            contact.stream = Stream::None;
        }
    }

    /// How far a broker's image has come, −1 if it has not said.
    pub fn metadata_offset(&self, broker: BrokerId) -> i64 {
        self.brokers
            .get(&broker)
            .map_or(-1, |contact| contact.metadata_offset)
    }

    /// Notes that a broker leads nothing any more as of `offset`, unless noted before; returns what is noted.
    pub(crate) fn shutdown_offset(&mut self, broker: BrokerId, offset: i64) -> i64 {
        self.brokers.get_mut(&broker).map_or(offset, |contact| {
            *contact.shutdown_offset.get_or_insert(offset)
        })
    }

    fn deadlines<'a>(
        &'a self,
        image: &'a MetadataImage,
    ) -> impl Iterator<Item = (BrokerId, Monotonic, Silence)> + 'a {
        self.brokers.iter().filter_map(|(id, contact)| {
            image
                .broker(*id)
                .filter(|broker| !broker.fenced && broker.epoch == contact.epoch)?;
            let (deadline, silence) = contact.deadline(&self.timings);
            Some((*id, deadline, silence))
        })
    }

    fn contact(&mut self, broker: BrokerId, epoch: BrokerEpoch, now: Now) -> Option<&mut Contact> {
        self.latest = self.latest.max(now.monotonic);
        let contact = self
            .brokers
            .entry(broker)
            .or_insert_with(|| Contact::new(epoch, now.monotonic, true));
        if epoch < contact.epoch {
            return None;
        }
        if epoch > contact.epoch {
            *contact = Contact::new(epoch, now.monotonic, true);
        }
        contact.last_heard = contact.last_heard.max(now.monotonic);
        contact.heard = true;
        if matches!(contact.stream, Stream::Refused { .. }) {
            contact.stream = Stream::None;
        }
        Some(contact)
    }
}
