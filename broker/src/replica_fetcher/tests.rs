//! What a leader's answer does to each of the partitions it is about. Nobody is connected to: the tests say what is answered.

use bytes::Bytes;
use kuorum_protocol::messages::fetch::FetchableTopicResponse;
use kuorum_protocol::record::batch::BatchMut;
use kuorum_transport::SystemNetwork;

use super::*;
use crate::testing::{Desk, Topic, batch, topic_id};

/// The hands of the partitions of `orders`, which broker 2 leads.
fn fetcher(desk: &Desk, partitions: i32) -> LeaderFetcher {
    let limits = FetchLimits {
        wait_max: Duration::from_millis(500),
        min_bytes: 1,
        backoff: Duration::from_secs(1),
        partition_max_bytes: 1 << 20,
        response_max_bytes: 1 << 20,
    };
    let fetchers = Fetchers::new(
        desk.rooms.clock.clone(),
        Arc::clone(&desk.rooms.membership),
        limits,
        Arc::new(SystemNetwork),
        Handle::current(),
        CancellationToken::new(),
    );
    let nudge = Arc::new(Notify::new());
    let mut following = HashMap::new();
    for index in 0..partitions {
        let hosted = desk.rooms.replicas.get(topic_id("orders"), index);
        let hosted = hosted.expect("it is hosted");
        // The broker's own fetcher would ask as well.
        desk.fetchers.leave(&hosted);
        hosted.set_fetcher(Some(Arc::clone(&nudge)));
        following.insert(hosted.key(), (hosted, LeaderEpoch(0)));
    }
    let shared = Shared {
        leader: BrokerId(2),
        nudge,
        partitions: Mutex::new(following),
        address: Arc::default(),
        sight: Mutex::default(),
    };
    LeaderFetcher::new(&fetchers, Arc::new(shared))
}

/// What everybody wants once nothing is being flushed and every rest is over.
async fn wishes(fetcher: &mut LeaderFetcher) -> Wishes {
    let nudge = Arc::clone(&fetcher.shared.nudge);
    loop {
        let later = fetcher.clock.now() + Duration::from_secs(1);
        let wishes = fetcher.wishes(later);
        if !wishes.flushing {
            return wishes;
        }
        tokio::time::timeout(Duration::from_secs(10), nudge.notified())
            .await
            .expect("a flush ends");
    }
}

fn indexes(asked: &[Asked]) -> Vec<i32> {
    let mut indexes: Vec<i32> = asked.iter().map(|one| one.hosted.index).collect();
    indexes.sort_unstable();
    indexes
}

/// One record, as the leader has it at this offset.
fn record_at(offset: i64) -> Vec<u8> {
    let mut bytes = batch(&["x"]).to_vec();
    let mut batch = BatchMut::parse(&mut bytes).expect("a batch");
    batch.set_base_offset(Offset(offset));
    batch.set_leader_epoch(LeaderEpoch(0));
    bytes
}

/// The leader answers with these records of partitions 0, 1, …; everything is visible at once.
fn answered(fetcher: &mut LeaderFetcher, asked: Vec<Asked>, records: Vec<Vec<u8>>) {
    let data = |(index, records): (usize, Vec<u8>)| PartitionData {
        partition_index: i32::try_from(index).expect("a few"),
        high_watermark: 100,
        log_start_offset: 0,
        records: Some(Bytes::from(records)),
        ..PartitionData::default()
    };
    let response = FetchResponse {
        responses: vec![FetchableTopicResponse {
            topic_id: topic_id("orders").0,
            partitions: records.into_iter().enumerate().map(data).collect(),
            ..FetchableTopicResponse::default()
        }],
        ..FetchResponse::default()
    };
    fetcher.take(Returned {
        lane: 0,
        number: 0,
        asked,
        connection: None,
        answer: Ok(Answer::Fetched(response)),
    });
}

/// The log's end and the high watermark of each partition of `orders`.
fn places(desk: &Desk) -> Vec<(i64, i64)> {
    let hosted = (0..3).map(|index| desk.rooms.replicas.get(topic_id("orders"), index));
    let place = |hosted: Arc<Hosted>| {
        hosted.with(|partition, _| {
            let log = partition.log_view();
            (log.log_end.0, log.high_watermark.0)
        })
    };
    hosted
        .map(|hosted| place(hosted.expect("it is hosted")))
        .collect()
}

/// R36: what one partition cannot take holds up none of those that came in the same answer, before it or after it.
#[tokio::test]
async fn one_bad_partition_of_an_answer_holds_up_no_other() {
    for bad in 0..3 {
        let desk = Desk::with(&[Topic {
            partitions: 3,
            replicas: &[2, 1],
            ..Topic::default()
        }])
        .await;
        let mut fetcher = fetcher(&desk, 3);
        let with_bad = |bad_ones, others| {
            let mut all = [others; 3];
            all[bad] = bad_ones;
            all
        };
        let asked = wishes(&mut fetcher).await.fetches;
        assert_eq!(indexes(&asked), [0, 1, 2]);
        answered(&mut fetcher, asked, vec![record_at(0); 3]);
        assert_eq!(places(&desk), [(1, 1); 3]);

        let mut asked = wishes(&mut fetcher).await.fetches;
        asked.sort_unstable_by_key(|one| one.hosted.index);
        assert_eq!(indexes(&asked), [0, 1, 2]);
        let mut records = vec![record_at(1); 3];
        *records[bad].last_mut().expect("it has bytes") ^= 1;
        answered(&mut fetcher, asked, records);
        let expected = with_bad((1, 1), (2, 2));
        assert_eq!(places(&desk), expected, "partition {bad} is bad");

        // The others go on fetching while it compares histories.
        let next = wishes(&mut fetcher).await;
        let bad_index = i32::try_from(bad).expect("a few");
        let others: Vec<i32> = (0..3).filter(|index| *index != bad_index).collect();
        assert_eq!(indexes(&next.fetches), others);
        assert_eq!(indexes(&next.epochs), [bad_index]);
        answered(&mut fetcher, next.fetches, vec![record_at(2); 3]);
        let expected = with_bad((1, 1), (3, 3));
        assert_eq!(places(&desk), expected, "partition {bad} is bad");
    }
}

/// Between two fetches, too: whoever is asked then who leads must not name it.
#[tokio::test(start_paused = true)]
async fn a_leader_is_lost_from_sight_when_its_connection_breaks() {
    let connected = || {
        let (near, far) = tokio::io::duplex(64);
        let (from, to) = tokio::io::split(near);
        (Connection::over(from, to, None), far)
    };
    let mut sight = Sight::default();
    assert!(sight.just_lost().is_none(), "nobody has asked it anything");
    let (connection, far) = connected();
    sight.answered(Some(&connection));
    assert!(sight.just_lost().is_none());
    drop(far);
    while !connection.is_closed() {
        tokio::task::yield_now().await;
    }
    assert!(sight.just_lost().is_some());
    tokio::time::advance(DOUBTED / 2).await;
    sight.broke();
    assert!(sight.just_lost().is_some(), "it was refused");
    tokio::time::advance(DOUBTED / 2).await;
    assert!(
        sight.just_lost().is_none(),
        "by now the controllers know better"
    );
    let (connection, _far) = connected();
    sight.answered(Some(&connection));
    assert!(sight.just_lost().is_none());
    tokio::time::advance(10 * DOUBTED).await;
    sight.broke();
    assert!(sight.just_lost().is_some(), "it was found in between");
}
