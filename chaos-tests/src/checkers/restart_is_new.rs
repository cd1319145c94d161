//! R24: a leader epoch belongs to one run of one broker's process. A broker that comes back, however fast, leads only
//! in a new epoch; and no two brokers ever lead in the same one.

use std::collections::BTreeMap;

use kuorum_protocol::{BrokerId, LeaderEpoch};

use super::{Checker, Event, PartitionNumber, Verdict};

#[derive(Debug, Default)]
pub struct RestartIsNew {
    led: BTreeMap<(PartitionNumber, LeaderEpoch), (BrokerId, u64)>,
}

impl Checker for RestartIsNew {
    fn name(&self) -> &'static str {
        "restart-is-new"
    }

    fn on_event(&mut self, event: &Event) -> Verdict {
        let Event::Led {
            partition,
            broker,
            run,
            leader_epoch,
        } = event
        else {
            return Ok(());
        };
        let who = (*broker, *run);
        match self.led.insert((*partition, *leader_epoch), who) {
            Some(before) if before != who => Err(format!(
                "partition {partition}: epoch {leader_epoch} was led by broker {} (run {}) and by broker {broker} (run {run})",
                before.0, before.1
            )),
            _ => Ok(()),
        }
    }
}
