//! R15: what a leader says of the end of an epoch is true of everything that was visible, and a caller with another
//! leader epoch than the leader's is told so.

use kuorum_protocol::ErrorCode;

use super::{Checker, Event, State, Verdict};

#[derive(Debug, Default)]
pub struct EpochTable;

impl Checker for EpochTable {
    fn name(&self) -> &'static str {
        "epoch-table"
    }

    fn on_event(&mut self, event: &Event) -> Verdict {
        let Event::EpochAnswer {
            partition,
            leader_epoch,
            log_start,
            log_end,
            current,
            asked,
            answer,
            epochs,
            committed_end,
        } = event
        else {
            return Ok(());
        };
        let expected = match current.cmp(leader_epoch) {
            std::cmp::Ordering::Less => Some(ErrorCode::FencedLeaderEpoch),
            std::cmp::Ordering::Greater => Some(ErrorCode::UnknownLeaderEpoch),
            std::cmp::Ordering::Equal => None,
        };
        match (expected, answer) {
            (Some(code), Err(told)) if code == *told => Ok(()),
            (None, Ok(None)) if asked.0 < 0 || asked > leader_epoch => Ok(()),
            (None, Ok(None)) => Err("nothing is known of an epoch there was".to_owned()),
            (None, Ok(Some(_))) if asked.0 < 0 => Err("there is no such epoch".to_owned()),
            (None, Ok(Some((epoch, _)))) if epoch > asked => {
                Err(format!("the answer is about the later epoch {epoch}"))
            }
            (None, Ok(Some((_, end)))) if asked == leader_epoch && end != log_end => Err(format!(
                "the current epoch ends at {end}, the log at {log_end}"
            )),
            (None, Ok(Some((_, end)))) => {
                // Where the first visible record of a later epoch lies, or where the log starts if that is later.
                let next = epochs.iter().find(|(known, _)| known > asked);
                let earliest = next
                    .map_or(*committed_end, |(_, start)| *start)
                    .min(*log_end);
                let latest = next.map_or(*log_end, |(_, start)| *start.max(log_start));
                if *end < earliest || *end > latest {
                    Err(format!(
                        "it ends at {end}, and must end in [{earliest}, {latest}]"
                    ))
                } else {
                    Ok(())
                }
            }
            _ => Err(format!(
                "asked under epoch {current} of {leader_epoch}: {answer:?}"
            )),
        }
        .map_err(|what| format!("partition {partition}, epoch {asked}: {what}"))
    }

    fn on_state(&mut self, state: &State<'_>) -> Verdict {
        for partition in &state.partitions {
            for replica in &partition.replicas {
                let rising = replica
                    .epochs
                    .windows(2)
                    .all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1);
                if !rising {
                    return Err(format!(
                        "partition {}: the epochs of broker {} do not rise: {:?}",
                        partition.number, replica.broker, replica.epochs
                    ));
                }
            }
        }
        Ok(())
    }
}
