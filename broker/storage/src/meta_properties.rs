//! `meta.properties`: whose directory this is, in Kafka's format; and the text form of ids in it.
//! Law: pure. A file of a newer version, or with a line missing, is refused.

use kuorum_protocol::DirectoryId;
use uuid::Uuid;

/// The file's name.
pub const META_PROPERTIES: &str = "meta.properties";

/// The identity of one log directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaProperties {
    /// The cluster's id.
    pub cluster_id: String,
    /// The node's number.
    pub node_id: i32,
    /// The directory's own id.
    pub directory_id: DirectoryId,
}

impl MetaProperties {
    /// The text of the file.
    pub fn to_text(&self) -> String {
        format!(
            "version=1\ncluster.id={}\nnode.id={}\ndirectory.id={}\n",
            self.cluster_id,
            self.node_id,
            id_to_text(self.directory_id.0)
        )
    }

    /// Reads the text of the file.
    ///
    /// # Errors
    /// A sentence that says which line is wrong.
    pub fn from_text(text: &str) -> Result<Self, String> {
        let value = |key: &str| {
            text.lines()
                .filter(|line| !line.trim_start().starts_with('#'))
                .filter_map(|line| line.split_once('='))
                .find(|(name, _)| name.trim() == key)
                .map(|(_, value)| value.trim().to_owned())
                .ok_or_else(|| format!("{META_PROPERTIES} has no {key}"))
        };
        let version = value("version")?;
        if version != "1" {
            return Err(format!(
                "{META_PROPERTIES} has version {version}, this program knows 1"
            ));
        }
        let node_id = value("node.id")?;
        let directory_id = value("directory.id")?;
        Ok(Self {
            cluster_id: value("cluster.id")?,
            node_id: node_id
                .parse()
                .map_err(|_| format!("node.id={node_id} is no number"))?,
            directory_id: id_from_text(&directory_id)
                .map(DirectoryId)
                .ok_or_else(|| format!("directory.id={directory_id} is no id"))?,
        })
    }

    /// Whether it is the directory of this node of this cluster.
    ///
    /// # Errors
    /// A sentence that says whose it is instead.
    pub fn verify(&self, cluster_id: &str, node_id: i32) -> Result<(), String> {
        if self.cluster_id != cluster_id {
            return Err(format!(
                "it belongs to cluster {}, not {cluster_id}",
                self.cluster_id
            ));
        }
        if self.node_id != node_id {
            return Err(format!(
                "it belongs to node {}, not {node_id}",
                self.node_id
            ));
        }
        Ok(())
    }
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// An id as Kafka writes it: 22 digits of URL-safe base64.
pub fn id_to_text(id: Uuid) -> String {
    // 128 bits and four zeros make 22 digits of six bits.
    let bits = id.as_u128();
    let digit = |at: u32| match at {
        21 => (bits << 4) & 63,
        _ => (bits >> (122 - 6 * at)) & 63,
    };
    (0..22)
        .map(|at| char::from(DIGITS[digit(at) as usize]))
        .collect()
}

/// Reads an id as Kafka writes it, or in the usual form with hyphens.
pub fn id_from_text(text: &str) -> Option<Uuid> {
    if text.len() != 22 {
        return Uuid::parse_str(text).ok();
    }
    let mut bits = 0u128;
    for (at, character) in text.bytes().enumerate() {
        let digit = DIGITS.iter().position(|known| *known == character)? as u128;
        bits = if at == 21 {
            bits << 2 | digit >> 4
        } else {
            bits << 6 | digit
        };
    }
    Some(Uuid::from_u128(bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_twenty_two_digits() {
        let rows = [
            (0u128, "AAAAAAAAAAAAAAAAAAAAAA"),
            (1, "AAAAAAAAAAAAAAAAAAAAAQ"),
            (u128::MAX, "_____________________w"),
            (
                0x0123_4567_89ab_cdef_0123_4567_89ab_cdef,
                "ASNFZ4mrze8BI0VniavN7w",
            ),
        ];
        for (bits, text) in rows {
            assert_eq!(id_to_text(Uuid::from_u128(bits)), text);
            assert_eq!(id_from_text(text), Some(Uuid::from_u128(bits)));
        }
        let hyphens = "01234567-89ab-cdef-0123-456789abcdef";
        assert_eq!(id_from_text(hyphens), Uuid::parse_str(hyphens).ok());
        assert_eq!(id_from_text("AAAAAAAAAAAAAAAAAAAAA!"), None);
    }

    #[test]
    fn the_file_says_whose_directory_it_is() {
        let meta = MetaProperties {
            cluster_id: "c1".to_owned(),
            node_id: 3,
            directory_id: DirectoryId(Uuid::from_u128(77)),
        };
        let text = meta.to_text();
        assert_eq!(MetaProperties::from_text(&text), Ok(meta.clone()));
        let commented = format!("#\n# written by hand\n{text}");
        assert_eq!(MetaProperties::from_text(&commented), Ok(meta.clone()));
        assert_eq!(meta.verify("c1", 3), Ok(()));
        assert!(meta.verify("c2", 3).unwrap_err().contains("cluster c1"));
        assert!(meta.verify("c1", 4).unwrap_err().contains("node 3"));
        for (missing, word) in [("version=1\n", "version"), ("node.id=3\n", "node.id")] {
            assert!(
                MetaProperties::from_text(&text.replace(missing, ""))
                    .unwrap_err()
                    .contains(word)
            );
        }
        assert!(MetaProperties::from_text(&text.replace("version=1", "version=2")).is_err());
    }
}
