//! What brokers report to be remembered: truncations and the like.
//! Law: a report is recorded once, however often it is sent; of the image it changes only how far the broker's reports have
//! come.

use kuorum_protocol::error_code::ErrorCode;

use super::{Decision, Refusal, brokers};
use crate::image::MetadataImage;
use crate::record::{BrokerEvent, BrokerEventKind, MetadataRecord};
use crate::rpc::{REPORTED_EVENTS_MOST, ReportEventsRequest, ReportedEvent};

/// Records what is new in a report. A report with anything wrong in it is refused whole.
///
/// # Errors
/// STALE_BROKER_EPOCH or BROKER_ID_NOT_REGISTERED if another incarnation is registered, or none; INVALID_REQUEST if
/// there are too many events, their numbers do not rise, or an offset is negative.
pub fn report(
    image: &MetadataImage,
    request: &ReportEventsRequest,
) -> Result<Decision<()>, Refusal> {
    let broker = brokers::known_incarnation(image, request.broker_id, request.broker_epoch)?;
    check(&request.events)?;
    let records = request
        .events
        .iter()
        .filter(|event| event.number > broker.last_report)
        .map(|event| {
            MetadataRecord::BrokerEvent(BrokerEvent {
                broker_id: request.broker_id,
                broker_epoch: request.broker_epoch,
                number: event.number,
                at: event.at,
                topic_id: event.topic_id,
                partition: event.partition,
                what: event.what.clone(),
            })
        })
        .collect();
    Ok(Decision {
        records,
        response: (),
    })
}

/// The longest words of an event, in bytes.
const WORDS_MOST: usize = 256;

fn check(events: &[ReportedEvent]) -> Result<(), Refusal> {
    let refuse = |sentence: String| Err(Refusal::new(ErrorCode::InvalidRequest, sentence));
    if events.len() > REPORTED_EVENTS_MOST {
        return refuse(format!(
            "events holds {} events, more than {REPORTED_EVENTS_MOST}",
            events.len()
        ));
    }
    let mut last = 0;
    for (place, event) in events.iter().enumerate() {
        if event.number <= last {
            return refuse(format!(
                "events[{place}].number is {}, not above {last}",
                event.number
            ));
        }
        last = event.number;
        let is_sound = match &event.what {
            BrokerEventKind::ReplicaTruncated { from, to, .. } => from > to && to.0 >= 0,
            BrokerEventKind::ReplicaRestarted { from, to, .. } => from.0 >= 0 && to.0 >= 0,
            BrokerEventKind::SalvageSetAside {
                item,
                first_offset,
                end_offset,
                ..
            } => item.len() <= WORDS_MOST && first_offset.0 >= 0 && end_offset >= first_offset,
            BrokerEventKind::SalvageDeleted { item, reason, .. } => {
                item.len() <= WORDS_MOST && reason.len() <= WORDS_MOST
            }
        };
        if !is_sound {
            return refuse(format!(
                "events[{place}].what holds offsets that no log can have, or words without end"
            ));
        }
    }
    Ok(())
}
