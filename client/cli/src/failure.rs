//! How a command fails.
//! Law: a script can rely on the exit code, a person on the sentence.

use std::process::ExitCode;

use kuorum_client::{ClientError, ConfigError, ConsumeError, ProduceError};

/// The exit codes besides 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The command line cannot be carried out by anybody.
    Usage = 1,
    /// The cluster said no.
    Refused = 2,
    /// Nobody answered, or not in time.
    Unreachable = 3,
    /// Some of it was done.
    Partial = 4,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command ended early.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self {
            exit: Exit::Usage,
            message: message.into(),
        }
    }

    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self {
            exit: Exit::Refused,
            message: message.into(),
        }
    }

    pub(crate) fn unreachable(message: impl Into<String>) -> Self {
        Self {
            exit: Exit::Unreachable,
            message: message.into(),
        }
    }

    pub(crate) fn partial(message: impl Into<String>) -> Self {
        Self {
            exit: Exit::Partial,
            message: message.into(),
        }
    }

    /// Says it on stderr and gives the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        if !self.message.is_empty() {
            crate::output::note(&self.message);
        }
        self.exit.into()
    }
}

/// What to look at when brokers do not answer: who is up, or who was asked.
const WHOM_TO_ASK: &str = "`kuorum status` says who is up; brokers are looked for at --bootstrap-server or KUORUM_BOOTSTRAP";
/// What to look at when a partition does not take or give records.
const WHY_NOT: &str = "`kuorum status` says which partitions have no leader, why, and what to do";

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let exit = match &error {
            ClientError::UnknownTopic(_)
            | ClientError::UnknownPartition { .. }
            | ClientError::UnsupportedApi { .. }
            | ClientError::Refused { .. } => Exit::Refused,
            ClientError::Unreachable { .. }
            | ClientError::NoLeader { .. }
            | ClientError::Call(_) => Exit::Unreachable,
        };
        let message = match &error {
            ClientError::Unreachable { .. } | ClientError::Call(_) => {
                format!("{error}; {WHOM_TO_ASK}")
            }
            ClientError::NoLeader { .. } => format!("{error}; {WHY_NOT}"),
            _ => error.to_string(),
        };
        Self { exit, message }
    }
}

impl From<ConsumeError> for Failure {
    fn from(error: ConsumeError) -> Self {
        match error {
            ConsumeError::Client(error) => error.into(),
            error => Self::refused(error.to_string()),
        }
    }
}

/// What says more of why a record was not acknowledged.
pub(crate) fn where_to_look(error: &ProduceError) -> Option<&'static str> {
    match error {
        ProduceError::NoMetadata { .. } => Some(WHOM_TO_ASK),
        ProduceError::Timeout { .. } => Some(WHY_NOT),
        ProduceError::Refused { code, .. } if code.is_retriable() => Some(WHY_NOT),
        _ => None,
    }
}

impl From<ProduceError> for Failure {
    fn from(error: ProduceError) -> Self {
        let exit = match &error {
            ProduceError::Timeout { .. }
            | ProduceError::NoMetadata { .. }
            | ProduceError::BufferFull(_)
            | ProduceError::Closed => Exit::Unreachable,
            ProduceError::RecordTooLarge { .. }
            | ProduceError::UnknownPartition { .. }
            | ProduceError::Refused { .. }
            | ProduceError::InvalidNeighbour
            | ProduceError::Fenced(_) => Exit::Refused,
        };
        let message = match where_to_look(&error) {
            Some(hint) => format!("{error}; {hint}"),
            None => error.to_string(),
        };
        Self { exit, message }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::usage(error.to_string())
    }
}

/// What cannot be written or read on this machine.
impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::usage(error.to_string())
    }
}
