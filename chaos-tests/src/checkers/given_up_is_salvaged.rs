//! What an unclean election gives up is not lost: a replica sets aside exactly what it cuts off, once; and at the end every
//! record that was ever visible, and was not deleted by request, is in the log or set aside on some broker. Whose disk was
//! taken away, or would not take it, has nothing to set aside.

use std::collections::{BTreeMap, BTreeSet};

use kuorum_protocol::{BrokerId, LeaderEpoch, Offset};

use super::{Checker, Event, Logged, PartitionNumber, PartitionState, SetAside, State, Verdict};

#[derive(Debug, Default)]
pub struct GivenUpIsSalvaged {
    given_up: BTreeMap<PartitionNumber, Vec<(Offset, Logged)>>,
    /// How far what a broker has set aside reaches.
    aside: BTreeMap<(PartitionNumber, BrokerId), Offset>,
    /// A disk would not take what was to be set aside.
    failed: BTreeSet<PartitionNumber>,
    disk_lost: bool,
}

impl Checker for GivenUpIsSalvaged {
    fn name(&self) -> &'static str {
        "given-up-is-salvaged"
    }

    fn on_event(&mut self, event: &Event) -> Verdict {
        match event {
            Event::UncleanElection {
                partition,
                gives_up,
                ..
            } => {
                let given_up = self.given_up.entry(*partition).or_default();
                given_up.extend(gives_up);
                Ok(())
            }
            Event::RecordsDeleted {
                partition,
                below,
                epochs,
            } => {
                let given_up = self.given_up.entry(*partition).or_default();
                given_up.retain(|(offset, record)| {
                    *offset >= *below || epoch_at(epochs, *offset) != Some(record.epoch)
                });
                Ok(())
            }
            Event::DiskLost { .. } => {
                self.disk_lost = true;
                Ok(())
            }
            Event::Cut {
                partition,
                broker,
                first,
                end,
                unclean,
                aside,
            } => {
                if *aside == Some(SetAside::Failed) {
                    self.failed.insert(*partition);
                }
                let reach = self.aside.entry((*partition, *broker)).or_default();
                let judged = judge(*first, *end, *unclean, *aside, *reach);
                if let Some(SetAside::Kept { end, .. }) = aside {
                    *reach = (*reach).max(*end);
                }
                judged.map_err(|what| {
                    format!(
                        "partition {partition}, broker {broker}: [{first}, {end}) was cut off: {what}"
                    )
                })
            }
            _ => Ok(()),
        }
    }

    fn at_rest(&mut self, state: &State<'_>) -> Verdict {
        for partition in &state.partitions {
            let number = partition.number;
            once(partition)?;
            if self.disk_lost || self.failed.contains(&number) {
                continue;
            }
            let Some(given_up) = self.given_up.get(&number) else {
                continue;
            };
            let logs = partition.replicas.iter().map(|replica| &replica.records);
            let aside = partition.salvaged.iter().map(|item| &item.records);
            let held: BTreeSet<Place> = logs.chain(aside).flatten().map(place).collect();
            if let Some((offset, record)) = given_up
                .iter()
                .find(|record| !held.contains(&place(record)))
            {
                let items: Vec<(BrokerId, Offset, Offset)> = partition
                    .salvaged
                    .iter()
                    .map(|item| (item.broker, item.first, item.end))
                    .collect();
                return Err(format!(
                    "partition {number}: {record:?} was visible at {offset}; now it is in no log, and not in the salvage {items:?}"
                ));
            }
        }
        Ok(())
    }
}

type Place = (Offset, LeaderEpoch, u64);

fn place((offset, record): &(Offset, Logged)) -> Place {
    (*offset, record.epoch, record.value)
}

fn epoch_at(epochs: &[(LeaderEpoch, Offset)], offset: Offset) -> Option<LeaderEpoch> {
    let mut known = epochs.iter().rev();
    known
        .find(|(_, first)| *first <= offset)
        .map(|(epoch, _)| *epoch)
}

/// Whether the right thing became of a cut. What this broker has set aside before reaches to `before`: only so far may
/// the beginning of an item be missing, and at rest it must be there.
fn judge(
    first: Offset,
    end: Offset,
    unclean: bool,
    aside: Option<SetAside>,
    before: Offset,
) -> Verdict {
    match aside {
        None if unclean && first < end => Err("nothing was set aside".to_owned()),
        Some(_) if !unclean => Err("it was never visible, and was set aside".to_owned()),
        Some(SetAside::Kept {
            first: kept,
            end: until,
            complete,
        }) if kept < first || kept > first.max(before) || (until, complete) != (end, true) => Err(
            format!("[{kept}, {until}) was set aside, complete: {complete}"),
        ),
        Some(SetAside::KeptBefore {
            first: kept,
            end: until,
        }) if kept > first.max(before) || until < end => {
            Err(format!("only [{kept}, {until}) had been set aside"))
        }
        Some(SetAside::OutOfBounds) => Err("there was room, and it was not used".to_owned()),
        _ => Ok(()),
    }
}

/// No broker holds the same record in two items: it would come back twice.
fn once(partition: &PartitionState<'_>) -> Verdict {
    let mut seen: BTreeSet<(BrokerId, Place)> = BTreeSet::new();
    for item in &partition.salvaged {
        for record in &item.records {
            if !seen.insert((item.broker, place(record))) {
                return Err(format!(
                    "partition {}: broker {} has {record:?} in two items",
                    partition.number, item.broker
                ));
            }
        }
    }
    Ok(())
}
