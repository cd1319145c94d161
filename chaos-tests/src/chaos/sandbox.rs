//! A machine within the machine: the harness starts itself again in namespaces of its own for processes, mounts and the network.
//! Law: whatever ends the harness, a kill included, the kernel then ends everything inside: no process, host or mount is left behind.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

/// Set for a harness that is inside.
const INSIDE: &str = "KUORUM_CHAOS_SANDBOX";

const UNSHARE: [&str; 7] = [
    "--pid",
    "--net",
    "--mount",
    "--fork",
    "--kill-child",
    "--mount-proc",
    "--propagation=private",
];

/// The shell that is process 1 inside: it gives the place a loopback device and a `/run` of its own, and buries orphans.
const INIT: &str = "mount -t tmpfs none /run && ip link set lo up && \"$0\" \"$@\"";

/// Whether this harness is inside.
#[must_use]
pub fn inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Whether this process may make such a place: as root, or as a user who may become root of a namespace.
fn prefix() -> Option<&'static [&'static str]> {
    let ways: [&[&str]; 2] = [&[], &["--user", "--map-root-user"]];
    ways.into_iter().find(|way| {
        Command::new("unshare")
            .args(*way)
            .args(UNSHARE)
            .args([
                "bash",
                "-c",
                "mount -t tmpfs none /run && ip link set lo up && ip netns add probe",
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    })
}

/// Starts this program again inside, and does not return; returns if that is not possible here, or this is inside already.
///
/// # Errors
/// When it was possible a moment ago and is not now.
pub fn enter() -> Result<()> {
    if inside() {
        return Ok(());
    }
    let Some(prefix) = prefix() else {
        return Ok(());
    };
    let error = Command::new("unshare")
        .args(prefix)
        .args(UNSHARE)
        .args(["bash", "-c", INIT])
        .arg(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(INSIDE, "yes")
        .exec();
    bail!("could not start again in a place of its own: {error}")
}
