//! Whose directory this is: `format` gives a directory its identity, `run` insists on it.
//! Law: a directory without an identity, or with another one, is never written to; a process holds its directory alone.

use std::io;
use std::path::Path;

use kuorum_metadata::rpc::is_cluster_id;
use kuorum_protocol::DirectoryId;
use kuorum_storage::{Dir, RealDir, write_atomically};
use uuid::Uuid;

use crate::quorum::{ControllerId, Identity};

/// The file that holds the identity, in Kafka's format.
const META_PROPERTIES: &str = "meta.properties";
/// The lock that a running process holds.
const LOCK: &str = ".lock";

/// Why a directory cannot be formatted or used. The sentence says what to do.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error(
        "{path} is not formatted: run `kuorum-controller format --config FILE --cluster-id ID` once"
    )]
    Unformatted { path: String },
    #[error(
        "{path} belongs to controller {node} of cluster {cluster}: point metadata.log.dir at this controller's own directory"
    )]
    Foreign {
        path: String,
        node: String,
        cluster: String,
    },
    #[error(
        "{path} is in use by another process: stop it first, or give this controller another metadata.log.dir"
    )]
    Locked { path: String },
    #[error(
        "{path}/meta.properties is damaged ({reason}): restore it, or remove the directory and format it anew"
    )]
    Damaged { path: String, reason: String },
    #[error("{path} cannot be used: {source}; check that it exists, is writable and has room")]
    Io { path: String, source: io::Error },
    #[error(
        "`{0}` is no cluster id: use letters, digits, - and _, at most 64 of them, or --generate"
    )]
    BadClusterId(String),
}

/// A directory whose identity is known, held by this process.
#[derive(Debug)]
pub struct Home {
    /// The directory.
    pub dir: RealDir,
    /// Who lives in it.
    pub identity: Identity,
    /// Released when the process ends, however it ends.
    _lock: <RealDir as Dir>::Lock,
}

/// A new cluster id: 128 random bits as 22 letters, as Kafka makes them.
pub fn generate_cluster_id() -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let bits = Uuid::new_v4().as_u128();
    // The first letter holds the upper two bits, so that 22 letters of 6 bits hold 128.
    let text: String = (0..22)
        .rev()
        .map(|place| char::from(LETTERS[((bits >> (place * 6)) & 63) as usize]))
        .collect();
    // A leading dash would look like an option on a command line.
    if text.starts_with('-') {
        generate_cluster_id()
    } else {
        text
    }
}

/// Gives a directory its identity. Formatting again for the same controller and cluster changes nothing.
///
/// # Errors
/// If it belongs to somebody else or cannot be written.
pub fn format(
    path: &Path,
    cluster_id: &str,
    node: ControllerId,
) -> Result<Identity, IdentityError> {
    if !is_cluster_id(cluster_id) {
        return Err(IdentityError::BadClusterId(cluster_id.to_owned()));
    }
    let dir = RealDir::new(path);
    let failed = |source| IdentityError::Io {
        path: dir.path(),
        source,
    };
    if dir.create().map_err(failed)? {
        dir.sync_parent().map_err(failed)?;
    }
    let _lock = lock(&dir)?;
    match read(&dir)? {
        Some(identity) => expect(&dir, identity, Some(cluster_id), node),
        None => {
            let identity = Identity {
                cluster_id: cluster_id.to_owned(),
                controller_id: node,
                directory_id: DirectoryId(Uuid::new_v4()),
            };
            let text = format!(
                "version=1\ncluster.id={cluster_id}\nnode.id={node}\ndirectory.id={}\n",
                identity.directory_id
            );
            write_atomically(&dir, META_PROPERTIES, text.as_bytes()).map_err(failed)?;
            Ok(identity)
        }
    }
}

/// Opens a formatted directory for a controller, and holds it.
///
/// # Errors
/// If it is not formatted, belongs to somebody else, is in use, or cannot be written.
pub fn open(path: &Path, node: ControllerId) -> Result<Home, IdentityError> {
    let dir = RealDir::new(path);
    let failed = |source| IdentityError::Io {
        path: dir.path(),
        source,
    };
    if !dir.exists().map_err(failed)? {
        return Err(IdentityError::Unformatted { path: dir.path() });
    }
    let identity = read(&dir)?.ok_or_else(|| IdentityError::Unformatted { path: dir.path() })?;
    let identity = expect(&dir, identity, None, node)?;
    let lock = lock(&dir)?;
    Ok(Home {
        dir,
        identity,
        _lock: lock,
    })
}

fn lock(dir: &RealDir) -> Result<<RealDir as Dir>::Lock, IdentityError> {
    match dir.lock(LOCK) {
        Ok(Some(lock)) => Ok(lock),
        Ok(None) => Err(IdentityError::Locked { path: dir.path() }),
        Err(source) => Err(IdentityError::Io {
            path: dir.path(),
            source,
        }),
    }
}

fn expect(
    dir: &RealDir,
    identity: Identity,
    cluster_id: Option<&str>,
    node: ControllerId,
) -> Result<Identity, IdentityError> {
    let same_cluster = cluster_id.is_none_or(|id| id == identity.cluster_id);
    if same_cluster && identity.controller_id == node {
        return Ok(identity);
    }
    Err(IdentityError::Foreign {
        path: dir.path(),
        node: identity.controller_id.to_string(),
        cluster: identity.cluster_id,
    })
}

fn read(dir: &RealDir) -> Result<Option<Identity>, IdentityError> {
    let bytes = dir
        .read_file(META_PROPERTIES)
        .map_err(|source| IdentityError::Io {
            path: dir.path(),
            source,
        })?;
    let Some(bytes) = bytes else { return Ok(None) };
    let damaged = |reason: &str| IdentityError::Damaged {
        path: dir.path(),
        reason: reason.to_owned(),
    };
    let text = String::from_utf8(bytes).map_err(|_| damaged("it is not text"))?;
    let value = |key: &str| {
        text.lines()
            .filter_map(|line| line.split_once('='))
            .find(|(name, _)| name.trim() == key)
            .map(|(_, value)| value.trim().to_owned())
    };
    match value("version").as_deref() {
        Some("1") => {}
        Some(other) => {
            return Err(damaged(&format!(
                "its version is {other}, this program knows version 1"
            )));
        }
        None => return Err(damaged("it has no version")),
    }
    Ok(Some(Identity {
        cluster_id: value("cluster.id").ok_or_else(|| damaged("it has no cluster.id"))?,
        controller_id: value("node.id")
            .and_then(|id| id.parse().ok())
            .ok_or_else(|| damaged("it has no node.id"))?,
        directory_id: value("directory.id")
            .and_then(|id| id.parse().ok())
            .map(DirectoryId)
            .ok_or_else(|| damaged("it has no directory.id"))?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_belongs_to_one_controller_of_one_cluster() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("data");
        assert!(matches!(
            open(&path, 1),
            Err(IdentityError::Unformatted { .. })
        ));
        let first = format(&path, "a-cluster", 1).unwrap();
        assert_eq!(
            format(&path, "a-cluster", 1).unwrap(),
            first,
            "again changes nothing"
        );
        assert!(matches!(
            format(&path, "another", 1),
            Err(IdentityError::Foreign { .. })
        ));
        assert!(matches!(
            format(&path, "a-cluster", 2),
            Err(IdentityError::Foreign { .. })
        ));
        assert!(matches!(open(&path, 2), Err(IdentityError::Foreign { .. })));
        let home = open(&path, 1).unwrap();
        assert_eq!(home.identity, first);
        assert!(matches!(open(&path, 1), Err(IdentityError::Locked { .. })));
        drop(home);
        std::fs::write(path.join(META_PROPERTIES), "version=7\n").unwrap();
        let error = open(&path, 1).unwrap_err().to_string();
        assert!(error.contains("version is 7"), "{error}");
    }

    #[test]
    fn a_cluster_id_is_22_letters_that_format_accepts() {
        let place = tempfile::tempdir().unwrap();
        let id = generate_cluster_id();
        assert_eq!(id.len(), 22);
        format(place.path(), &id, 1).unwrap();
        for bad in ["", "with space", "a/b", &"x".repeat(65)] {
            let refused = format(place.path(), bad, 1);
            assert!(
                matches!(refused, Err(IdentityError::BadClusterId(_))),
                "{bad:?}"
            );
        }
    }
}
