//! Three hosts on one machine: a network namespace each, joined by a bridge, on which this process is the clients' host.
//! Law: a packet from one host to another is lost by giving it a hardware address that nobody has: one way, at once, in silence, and
//! with nothing but `ip`. What was made is deleted again.

use std::process::Command;

use anyhow::{Context, Result, bail};

const BRIDGE: &str = "kuorum-chaos";
const NOBODY: &str = "02:00:00:00:00:99";
/// The host of the clients.
pub const CLIENTS: &str = "10.77.0.254";

/// The hosts 1 to 3.
#[derive(Debug)]
pub struct Network {
    prefix: String,
}

impl Network {
    /// Makes the hosts.
    ///
    /// # Errors
    /// When this process may not, or `ip` is missing.
    pub fn build() -> Result<Self> {
        let network = Self {
            prefix: format!("kuorum-{}-", std::process::id()),
        };
        ip(&format!("link add {BRIDGE} type bridge"))?;
        ip(&format!("addr add {CLIENTS}/24 dev {BRIDGE}"))?;
        ip(&format!("link set {BRIDGE} up"))?;
        for id in 1..=3 {
            let (name, address) = (network.namespace(id), address(id));
            ip(&format!("netns add {name}"))?;
            ip(&format!(
                "link add kuorum-v{id} type veth peer name eth0 netns {name}"
            ))?;
            ip(&format!("link set kuorum-v{id} master {BRIDGE} up"))?;
            ip(&format!("-n {name} addr add {address}/24 dev eth0"))?;
            ip(&format!("-n {name} link set eth0 up"))?;
            ip(&format!("-n {name} link set lo up"))?;
        }
        Ok(network)
    }

    /// What `deploy/cluster.sh` is told of the hosts.
    #[must_use]
    pub fn hosts(&self) -> String {
        let words: Vec<String> = (1..=3)
            .map(|id| format!("{}={}", address(id), self.namespace(id)))
            .collect();
        words.join(" ")
    }

    /// What `from` sends to `to` is lost from now on; the other direction is not touched.
    ///
    /// # Errors
    /// When `ip` refuses.
    pub fn cut(&self, from: i32, to: i32) -> Result<()> {
        let (name, address) = (self.namespace(from), address(to));
        ip(&format!(
            "-n {name} neigh replace {address} lladdr {NOBODY} dev eth0 nud permanent"
        ))
    }

    /// What `from` sends to `to` arrives again.
    ///
    /// # Errors
    /// When `ip` refuses.
    pub fn mend(&self, from: i32, to: i32) -> Result<()> {
        let (name, address) = (self.namespace(from), address(to));
        // Asking anew finds the right hardware address.
        ip(&format!("-n {name} neigh del {address} dev eth0"))
    }

    fn namespace(&self, id: i32) -> String {
        format!("{}{id}", self.prefix)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for id in 1..=3 {
            let name = self.namespace(id);
            // What is not there any more need not be deleted.
            drop(ip(&format!("link del kuorum-v{id}")));
            drop(ip(&format!("netns del {name}")));
        }
        drop(ip(&format!("link del {BRIDGE}")));
    }
}

fn address(id: i32) -> String {
    format!("10.77.0.{id}")
}

fn ip(words: &str) -> Result<()> {
    let output = Command::new("ip")
        .args(words.split_whitespace())
        .output()
        .context("`ip` (iproute2) is needed to make hosts")?;
    if !output.status.success() {
        bail!(
            "ip {words}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}
