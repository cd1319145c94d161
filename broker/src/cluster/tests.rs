//! Stories of a broker and its controllers, told with controllers that are made up.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use futures_util::FutureExt;
use kuorum_metadata::rpc::{
    self, HeartbeatReply, HeartbeatRequest, RegisterReply, RegisterRequest, Reply, RpcError,
    SessionRequest,
};
use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::{BrokerEpoch, BrokerId, IncarnationId};
use kuorum_transport::tcp;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::carrier::http_client;
use super::controller_client::{ControllerClient, ControllerPeer};
use super::lifecycle::{Introduction, Lifecycle, Membership};
use super::metadata_cache::MetadataCache;

const PATIENCE: Duration = Duration::from_secs(20);

/// What a made-up controller was told.
#[derive(Debug, PartialEq)]
enum Heard {
    Register(RegisterRequest),
    Heartbeat(HeartbeatRequest),
    Session(BrokerEpoch),
    Goodbye(BrokerEpoch),
}

#[derive(Clone)]
struct Made {
    registrations: Arc<Mutex<VecDeque<Reply<RegisterReply>>>>,
    heartbeats: Arc<Mutex<VecDeque<Reply<HeartbeatReply>>>>,
    heard: mpsc::UnboundedSender<Heard>,
}

/// A controller that gives these answers, the last of each for ever, and what it hears.
async fn controller(
    id: u64,
    registrations: Vec<Reply<RegisterReply>>,
    heartbeats: Vec<Reply<HeartbeatReply>>,
) -> (ControllerPeer, mpsc::UnboundedReceiver<Heard>) {
    let (heard, hears) = mpsc::unbounded_channel();
    let made = Made {
        registrations: Arc::new(Mutex::new(registrations.into())),
        heartbeats: Arc::new(Mutex::new(heartbeats.into())),
        heard,
    };
    let router = Router::new()
        .route(rpc::PATH_REGISTER, post(register))
        .route(rpc::PATH_HEARTBEAT, post(heartbeat))
        .route(rpc::PATH_SESSION, post(session))
        .route(rpc::PATH_GOODBYE, post(goodbye))
        .with_state(made);
    let socket = tcp::listen("127.0.0.1:0").await.expect("a free port");
    let address = socket.local_addr().expect("a bound socket").to_string();
    tokio::spawn(async move { axum::serve(socket, router).await });
    (ControllerPeer { id, address }, hears)
}

fn next<T: Clone>(answers: &Mutex<VecDeque<Reply<T>>>) -> Json<Reply<T>> {
    let mut answers = answers.lock();
    let answer = match answers.len() {
        1 => answers[0].clone(),
        _ => answers.pop_front().expect("an answer"),
    };
    Json(answer)
}

async fn register(
    State(made): State<Made>,
    Json(request): Json<RegisterRequest>,
) -> Json<Reply<RegisterReply>> {
    drop(made.heard.send(Heard::Register(request)));
    next(&made.registrations)
}

async fn heartbeat(
    State(made): State<Made>,
    Json(request): Json<HeartbeatRequest>,
) -> Json<Reply<HeartbeatReply>> {
    drop(made.heard.send(Heard::Heartbeat(request)));
    next(&made.heartbeats)
}

async fn session(State(made): State<Made>, Json(request): Json<SessionRequest>) -> Response {
    drop(made.heard.send(Heard::Session(request.broker_epoch)));
    let silent = futures_util::stream::pending::<Result<String, std::io::Error>>();
    axum::body::Body::from_stream(silent).into_response()
}

async fn goodbye(State(made): State<Made>, Json(request): Json<SessionRequest>) -> Json<Reply<()>> {
    drop(made.heard.send(Heard::Goodbye(request.broker_epoch)));
    Json(Reply::Ok(()))
}

fn refused<T>(code: ErrorCode, active: Option<u64>) -> Reply<T> {
    let mut error = RpcError::new(code, "made up");
    error.active_controller = active;
    Reply::Err(error)
}

fn epoch(epoch: i64) -> Reply<RegisterReply> {
    Reply::Ok(RegisterReply {
        broker_epoch: BrokerEpoch(epoch),
    })
}

fn beat(fenced: bool, may_shut_down: bool) -> Reply<HeartbeatReply> {
    Reply::Ok(HeartbeatReply {
        fenced,
        caught_up: true,
        may_shut_down,
    })
}

fn client(controllers: Vec<ControllerPeer>) -> ControllerClient {
    let carrier = Arc::new(http_client().expect("a client"));
    ControllerClient::new(carrier, "c1".to_owned(), BrokerId(1), controllers)
}

fn request() -> RegisterRequest {
    RegisterRequest {
        broker_id: BrokerId(1),
        incarnation_id: IncarnationId(Uuid::nil()),
        listeners: Vec::new(),
        http: String::new(),
        rack: None,
        directories: Vec::new(),
        version: String::new(),
        not_intact: Vec::new(),
    }
}

#[tokio::test]
async fn the_active_controller_is_found_by_hints_and_past_the_dead() {
    let hint = refused(ErrorCode::NotController, Some(3));
    let (second, _second) = controller(2, vec![hint], vec![beat(false, false)]).await;
    let (third, _third) = controller(3, vec![epoch(9)], vec![beat(false, false)]).await;
    let dead = ControllerPeer {
        id: 1,
        address: "127.0.0.1:1".to_owned(),
    };
    let client = client(vec![dead, second, third]);
    let reply = client
        .register(&request(), PATIENCE)
        .await
        .expect("a reply");
    assert_eq!(reply.broker_epoch, BrokerEpoch(9));
    assert_eq!(*client.active().borrow(), Some(3));
}

#[tokio::test]
async fn a_refusal_of_the_active_controller_is_final() {
    let no = refused(ErrorCode::DuplicateBrokerRegistration, None);
    let (first, _hears) = controller(1, vec![no], vec![beat(false, false)]).await;
    let error = client(vec![first])
        .register(&request(), PATIENCE)
        .await
        .expect_err("a refusal");
    assert!(error.is(ErrorCode::DuplicateBrokerRegistration));
}

#[tokio::test]
async fn nobody_answers() {
    let dead = ControllerPeer {
        id: 1,
        address: "127.0.0.1:1".to_owned(),
    };
    let error = client(vec![dead])
        .register(&request(), Duration::from_millis(30))
        .await
        .expect_err("nobody");
    assert_eq!(ErrorCode::from(&error), ErrorCode::RequestTimedOut);
}

#[tokio::test]
async fn one_controller_of_another_cluster_is_passed_over() {
    let no = refused(ErrorCode::InconsistentClusterId, None);
    let (first, _first) = controller(1, vec![no], vec![beat(false, false)]).await;
    let (second, _second) = controller(2, vec![epoch(9)], vec![beat(false, false)]).await;
    let (third, _third) = controller(3, vec![epoch(9)], vec![beat(false, false)]).await;
    let client = client(vec![first, second, third]);
    let reply = client
        .register(&request(), PATIENCE)
        .await
        .expect("a reply");
    assert_eq!(reply.broker_epoch, BrokerEpoch(9));
    assert_eq!(*client.active().borrow(), Some(2));
    assert!(client.foreign().now_or_never().is_none());
}

#[tokio::test]
async fn most_controllers_are_of_another_cluster() {
    let no = refused(ErrorCode::InconsistentClusterId, None);
    let (second, _second) = controller(2, vec![no.clone()], vec![beat(false, false)]).await;
    let (third, _third) = controller(3, vec![no], vec![beat(false, false)]).await;
    let dead = ControllerPeer {
        id: 1,
        address: "127.0.0.1:1".to_owned(),
    };
    let client = client(vec![dead, second, third]);
    let request = request();
    let foreign = tokio::select! {
        answer = client.register(&request, PATIENCE) => panic!("{answer:?}"),
        foreign = client.foreign() => foreign,
    };
    assert_eq!(foreign.cluster_id, "c1");
    assert!(
        foreign.controllers.starts_with("controller-2 at ")
            && foreign.controllers.contains("controller-3 at "),
        "{foreign}"
    );
}

struct Story {
    hears: mpsc::UnboundedReceiver<Heard>,
    membership: Arc<Membership>,
    cache: Arc<MetadataCache>,
    leave: CancellationToken,
    life: tokio::task::JoinHandle<()>,
}

impl Story {
    async fn begin(
        registrations: Vec<Reply<RegisterReply>>,
        heartbeats: Vec<Reply<HeartbeatReply>>,
    ) -> Self {
        let (peer, hears) = controller(1, registrations, heartbeats).await;
        let membership = Arc::new(Membership::new(
            BrokerId(1),
            IncarnationId(Uuid::from_u128(5)),
        ));
        let cache = Arc::new(MetadataCache::new());
        let leave = CancellationToken::new();
        let lifecycle = Lifecycle {
            controllers: client(vec![peer]),
            cache: Arc::clone(&cache),
            membership: Arc::clone(&membership),
            introduction: Introduction {
                listeners: Vec::new(),
                http: String::new(),
                rack: None,
                directories: Vec::new(),
                version: String::new(),
                not_intact: Vec::new(),
            },
            heartbeat_interval: Duration::from_millis(20),
            shutdown_patience: PATIENCE,
        };
        let life = tokio::spawn(lifecycle.run(leave.clone()));
        Self {
            hears,
            membership,
            cache,
            leave,
            life,
        }
    }

    async fn hear(&mut self) -> Heard {
        tokio::time::timeout(PATIENCE, self.hears.recv())
            .await
            .expect("to hear something in time")
            .expect("a controller")
    }

    /// The next that satisfies `wanted`; what comes before is passed over.
    async fn hear_of(&mut self, wanted: impl Fn(&Heard) -> bool) -> Heard {
        loop {
            let heard = self.hear().await;
            if wanted(&heard) {
                return heard;
            }
        }
    }

    fn publish(&self, offset: i64) {
        self.cache.publish(self.cache.image(), offset);
    }
}

#[tokio::test]
async fn a_life_from_registration_to_goodbye() {
    let beats = vec![
        beat(true, false),
        beat(false, false),
        beat(false, false),
        beat(false, true),
    ];
    let mut story = Story::begin(vec![epoch(7)], beats).await;
    assert!(matches!(story.hear().await, Heard::Register(_)));
    // Nothing is said before the own registration is in the image.
    story.publish(6);
    assert!(story.hears.try_recv().is_err());
    story.publish(7);
    let mut unfenced = story.membership.subscribe();
    story
        .hear_of(|heard| *heard == Heard::Session(BrokerEpoch(7)))
        .await;
    unfenced
        .wait_for(|phase| phase.unfenced)
        .await
        .expect("a membership");
    story.leave.cancel();
    let last = story
        .hear_of(|heard| matches!(heard, Heard::Heartbeat(beat) if beat.want_shut_down))
        .await;
    let Heard::Heartbeat(last) = last else {
        unreachable!("a heartbeat was waited for")
    };
    assert_eq!(last.metadata_offset, 7);
    story
        .hear_of(|heard| *heard == Heard::Goodbye(BrokerEpoch(7)))
        .await;
    story.life.await.expect("a peaceful end");
}

#[tokio::test]
async fn a_broker_that_was_forgotten_registers_anew() {
    let beats = vec![
        refused(ErrorCode::BrokerIdNotRegistered, None),
        beat(false, false),
    ];
    let mut story = Story::begin(vec![epoch(7), epoch(12)], beats).await;
    story
        .hear_of(|heard| matches!(heard, Heard::Register(_)))
        .await;
    story.publish(7);
    story
        .hear_of(|heard| matches!(heard, Heard::Register(_)))
        .await;
    story.publish(12);
    let beat = story
        .hear_of(
            |heard| matches!(heard, Heard::Heartbeat(beat) if beat.broker_epoch == BrokerEpoch(12)),
        )
        .await;
    assert!(matches!(beat, Heard::Heartbeat(_)));
    story.life.abort();
}

#[tokio::test]
async fn a_failed_directory_is_told_at_once() {
    let mut story = Story::begin(vec![epoch(7)], vec![beat(false, false)]).await;
    story.publish(7);
    let directory = kuorum_protocol::DirectoryId(Uuid::from_u128(3));
    story.membership.directory_failed(directory, true);
    story
        .hear_of(|heard| {
            matches!(heard, Heard::Heartbeat(beat) if beat.offline_directories == [directory] && beat.want_fence)
        })
        .await;
    story.life.abort();
}

mod of_the_feed {
    use bytes::BytesMut;
    use kuorum_metadata::record::MetadataRecord;
    use kuorum_metadata::rpc::FeedLine;
    use kuorum_protocol::TopicId;
    use uuid::Uuid;

    use super::super::metadata_follower::Progress;

    fn topic(number: u128) -> MetadataRecord {
        MetadataRecord::Topic {
            name: format!("t{number}"),
            topic_id: TopicId(Uuid::from_u128(number)),
        }
    }

    fn entry(offset: i64, number: u128) -> FeedLine {
        FeedLine::Entry {
            offset,
            records: vec![topic(number)],
        }
    }

    fn bytes(lines: &[FeedLine]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for line in lines {
            bytes.extend(serde_json::to_vec(line).expect("JSON"));
            bytes.push(b'\n');
        }
        bytes
    }

    #[test]
    fn lines_may_arrive_in_any_pieces() {
        let bytes = bytes(&[entry(0, 1), entry(3, 2), FeedLine::Idle { offset: 5 }]);
        for piece in [1, 7, bytes.len()] {
            let mut progress = Progress::new();
            let mut buffer = BytesMut::new();
            for piece in bytes.chunks(piece) {
                buffer.extend_from_slice(piece);
                progress.take_lines(&mut buffer).expect("lines");
            }
            assert_eq!(progress.offset, 5);
            assert_eq!(progress.image.topic_count(), 2);
            assert!(progress.caught_up);
            assert!(buffer.is_empty());
        }
    }

    #[test]
    fn an_entry_counts_once_and_a_snapshot_starts_over() {
        let mut progress = Progress::new();
        progress.pending = Some(Default::default());
        progress.take(entry(4, 1));
        progress.take(entry(4, 2));
        progress.take(entry(2, 3));
        assert_eq!(progress.image.topic_count(), 1);
        let delta = progress.pending.as_ref().expect("a delta");
        assert_eq!(delta.topics_created.len(), 1);
        progress.take(FeedLine::Snapshot {
            offset: 9,
            records: vec![topic(5), topic(6)],
        });
        assert_eq!((progress.offset, progress.image.topic_count()), (9, 2));
        assert!(progress.image.topic("t1").is_none());
        assert!(progress.pending.is_none(), "everything is to be looked at");
    }

    #[test]
    fn nonsense_ends_the_feed() {
        let mut buffer = BytesMut::from(&b"{\"no\":1}\n"[..]);
        assert!(Progress::new().take_lines(&mut buffer).is_err());
    }
}
