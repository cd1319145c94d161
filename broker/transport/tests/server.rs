//! Stories of connections: the order of answers, what overlaps, what is refused, and how a server leaves.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use kuorum_transport::tcp::{self, TcpStream};
use kuorum_transport::{
    CallError, Connection, Instant, Outcome, Peer, Response, Server, ServerConfig, Service,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A service whose requests say what is to become of them: `[verb, id, …]` after four bytes nobody reads.
#[derive(Clone, Default)]
struct Scripted {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    begun: Vec<u8>,
    parked: HashMap<u8, oneshot::Sender<()>>,
    ended: usize,
}

impl Scripted {
    fn release(&self, id: u8) {
        let parked = self.state.lock().expect("state").parked.remove(&id);
        parked.expect("parked").send(()).expect("still waiting");
    }

    fn begun(&self) -> Vec<u8> {
        self.state.lock().expect("state").begun.clone()
    }

    async fn until(&self, condition: impl Fn(&State) -> bool) {
        while !condition(&self.state.lock().expect("state")) {
            tokio::task::yield_now().await;
        }
    }

    fn park(&self, id: u8) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.state.lock().expect("state");
        state.parked.insert(id, sender);
        receiver
    }
}

fn answer(id: u8) -> Outcome {
    Outcome::Reply(Response {
        parts: vec![
            Bytes::from_static(&[0, 0, 0, 5]),
            Bytes::copy_from_slice(&[0, 0, 0, id, id]),
        ],
    })
}

impl Service for Scripted {
    type Session = ();

    fn connected(&self, _peer: &Peer) {}

    async fn handle(&self, (): &mut (), frame: Bytes) -> Outcome {
        // api key, version, correlation id; then the script.
        let (verb, id) = (frame[8], frame[7]);
        self.state.lock().expect("state").begun.push(id);
        match verb {
            b'r' => answer(id),
            b'p' => {
                let released = self.park(id);
                Outcome::Later(Box::pin(async move {
                    let _ = released.await;
                    answer(id)
                }))
            }
            b'w' => {
                let released = self.park(id);
                let _ = released.await;
                answer(id)
            }
            b's' => Outcome::Silent,
            _ => Outcome::Close("the script says so".to_owned()),
        }
    }

    fn disconnected(&self, (): ()) {
        self.state.lock().expect("state").ended += 1;
    }
}

struct World {
    service: Scripted,
    address: String,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

async fn world(adjust: impl FnOnce(&mut ServerConfig)) -> World {
    let service = Scripted::default();
    let socket = tcp::listen("127.0.0.1:0").await.expect("a free port");
    let mut config = ServerConfig::new("CLIENT");
    adjust(&mut config);
    let server = Server::new(socket, config, service.clone());
    let address = server.local_addr().expect("bound").to_string();
    let shutdown = CancellationToken::new();
    let task = tokio::spawn(server.run(shutdown.clone()));
    World {
        service,
        address,
        shutdown,
        task,
    }
}

fn request(verb: u8, id: u8) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_slice(&[0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, id, verb]);
    frame.freeze()
}

async fn send(stream: &mut TcpStream, requests: &[(u8, u8)]) {
    let mut wire = Vec::new();
    for (verb, id) in requests {
        wire.extend_from_slice(&request(*verb, *id));
    }
    stream.write_all(&wire).await.expect("sent");
}

/// The ids of the next `count` answers.
async fn receive(stream: &mut TcpStream, count: usize) -> Vec<u8> {
    let mut ids = Vec::new();
    for _ in 0..count {
        let mut frame = [0; 9];
        within(stream.read_exact(&mut frame))
            .await
            .expect("an answer");
        ids.push(frame[8]);
    }
    ids
}

async fn ends(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    // A reset is an end too.
    let _ = within(stream.read_to_end(&mut rest)).await;
    rest.is_empty()
}

async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(10), future)
        .await
        .expect("within ten seconds")
}

#[tokio::test]
async fn answers_leave_in_the_order_of_requests() {
    let world = world(|_| {}).await;
    let mut stream = tcp::connect(&world.address).await.expect("connected");
    send(
        &mut stream,
        &[(b'p', 1), (b'r', 2), (b'p', 3), (b's', 4), (b'r', 5)],
    )
    .await;
    within(world.service.until(|state| state.begun.len() == 5)).await;
    assert_eq!(world.service.begun(), [1, 2, 3, 4, 5], "all have begun");
    world.service.release(3);
    world.service.release(1);
    assert_eq!(receive(&mut stream, 4).await, [1, 2, 3, 5]);
}

#[tokio::test]
async fn a_parked_answer_leaves_while_the_next_request_is_handled() {
    let world = world(|_| {}).await;
    let mut stream = tcp::connect(&world.address).await.expect("connected");
    send(&mut stream, &[(b'p', 1), (b'w', 2), (b'r', 3)]).await;
    within(world.service.until(|state| state.begun.len() == 2)).await;
    world.service.release(1);
    assert_eq!(receive(&mut stream, 1).await, [1]);
    assert_eq!(
        world.service.begun(),
        [1, 2],
        "what waits parks what follows"
    );
    world.service.release(2);
    assert_eq!(receive(&mut stream, 2).await, [2, 3]);
}

#[tokio::test]
async fn no_more_than_the_limit_is_parked() {
    let world = world(|config| config.max_parked = 4).await;
    let mut stream = tcp::connect(&world.address).await.expect("connected");
    let requests: Vec<(u8, u8)> = (1..=10).map(|id| (b'p', id)).collect();
    send(&mut stream, &requests).await;
    within(world.service.until(|state| state.begun.len() == 4)).await;
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    assert_eq!(world.service.begun(), [1, 2, 3, 4]);
    for id in 1..=10 {
        within(world.service.until(|state| state.parked.contains_key(&id))).await;
        world.service.release(id);
    }
    assert_eq!(
        receive(&mut stream, 10).await,
        (1..=10).collect::<Vec<u8>>()
    );
}

#[tokio::test]
async fn an_offence_closes_after_what_is_owed() {
    let world = world(|_| {}).await;
    let mut stream = tcp::connect(&world.address).await.expect("connected");
    send(&mut stream, &[(b'p', 1), (b'!', 2), (b'r', 3)]).await;
    within(world.service.until(|state| state.begun.len() == 2)).await;
    world.service.release(1);
    assert_eq!(receive(&mut stream, 1).await, [1]);
    assert!(ends(&mut stream).await, "nothing after the offence");
    assert_eq!(world.service.begun(), [1, 2]);
}

#[tokio::test]
async fn hostile_bytes_end_only_their_own_connection() {
    let world = world(|config| config.max_request_bytes = 1024).await;
    let mut good = tcp::connect(&world.address).await.expect("connected");
    let rows: [&[u8]; 7] = [
        &(-1_i32).to_be_bytes(),
        &0_i32.to_be_bytes(),
        &i32::MAX.to_be_bytes(),
        &1025_i32.to_be_bytes(),
        b"GET / HTTP/1.1\r\nHost: kuorum\r\n\r\n",
        &[0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc],
        &[0, 0, 0, 3, 1, 2, 3],
    ];
    for row in rows {
        let mut bad = tcp::connect(&world.address).await.expect("connected");
        bad.write_all(row).await.expect("sent");
        assert!(ends(&mut bad).await, "{row:?}");
    }
    send(&mut good, &[(b'r', 9)]).await;
    assert_eq!(receive(&mut good, 1).await, [9]);
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_their_turn() {
    let world = world(|config| config.max_connections = 1).await;
    let mut first = tcp::connect(&world.address).await.expect("connected");
    send(&mut first, &[(b'r', 1)]).await;
    assert_eq!(receive(&mut first, 1).await, [1]);
    let mut second = tcp::connect(&world.address).await.expect("in the backlog");
    send(&mut second, &[(b'r', 2)]).await;
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    assert_eq!(world.service.begun(), [1]);
    drop(first);
    assert_eq!(receive(&mut second, 1).await, [2]);
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let world = world(|config| config.max_idle = Duration::from_millis(30)).await;
    let mut stream = tcp::connect(&world.address).await.expect("connected");
    assert!(ends(&mut stream).await);
    within(world.service.until(|state| state.ended == 1)).await;
}

#[tokio::test]
async fn a_shutdown_lets_what_began_finish() {
    let world = world(|_| {}).await;
    let mut busy = tcp::connect(&world.address).await.expect("connected");
    let mut idle = tcp::connect(&world.address).await.expect("connected");
    send(&mut idle, &[(b'r', 7)]).await;
    assert_eq!(receive(&mut idle, 1).await, [7]);
    send(&mut busy, &[(b'p', 1)]).await;
    within(world.service.until(|state| state.parked.contains_key(&1))).await;
    world.shutdown.cancel();
    assert!(ends(&mut idle).await, "nothing is under way there");
    world.service.release(1);
    assert_eq!(receive(&mut busy, 1).await, [1]);
    assert!(ends(&mut busy).await);
    within(world.task).await.expect("the server returns");
}

#[tokio::test]
async fn a_shutdown_does_not_wait_for_ever() {
    let world = world(|config| config.drain = Duration::from_millis(20)).await;
    let mut stream = tcp::connect(&world.address).await.expect("connected");
    send(&mut stream, &[(b'w', 1)]).await;
    within(world.service.until(|state| state.parked.contains_key(&1))).await;
    world.shutdown.cancel();
    within(world.task).await.expect("the server returns");
}

fn script(verb: u8) -> impl FnOnce(i32) -> Result<Bytes, CallError> {
    move |correlation_id| Ok(request(verb, correlation_id as u8))
}

#[tokio::test]
async fn calls_share_a_connection() {
    let world = world(|_| {}).await;
    let deadline = Instant::now() + Duration::from_secs(10);
    let connection = Connection::connect(&world.address, Some("test"), deadline)
        .await
        .expect("connected");
    let parked = tokio::spawn({
        let connection = connection.clone();
        async move { connection.exchange(script(b'p'), deadline).await }
    });
    within(world.service.until(|state| state.parked.contains_key(&0))).await;
    let second = connection.exchange(script(b'r'), deadline);
    world.service.release(0);
    assert_eq!(
        &within(second).await.expect("answered")[..],
        [0, 0, 0, 1, 1]
    );
    let first = within(parked).await.expect("joined").expect("answered");
    assert_eq!(&first[..], [0, 0, 0, 0, 0]);
}

#[tokio::test]
async fn a_call_that_gives_up_leaves_the_connection_usable() {
    let world = world(|_| {}).await;
    let deadline = Instant::now() + Duration::from_secs(10);
    let connection = Connection::connect(&world.address, None, deadline)
        .await
        .expect("connected");
    let soon = Instant::now() + Duration::from_millis(20);
    let late = connection.exchange(script(b'p'), soon).await;
    assert!(matches!(late, Err(CallError::TimedOut)), "{late:?}");
    world.service.release(0);
    let next = connection.exchange(script(b'r'), deadline).await;
    assert_eq!(&next.expect("answered")[..], [0, 0, 0, 1, 1]);

    let closed = connection.exchange(script(b'!'), deadline).await;
    assert!(matches!(closed, Err(CallError::Closed(_))), "{closed:?}");
    let after = connection.exchange(script(b'r'), deadline).await;
    assert!(matches!(after, Err(CallError::Closed(_))), "{after:?}");
    assert!(connection.is_closed());
}

#[tokio::test]
async fn nobody_listens() {
    let socket = tcp::listen("127.0.0.1:0").await.expect("a free port");
    let address = socket.local_addr().expect("bound").to_string();
    drop(socket);
    let deadline = Instant::now() + Duration::from_secs(10);
    let refused = Connection::connect(&address, None, deadline).await;
    assert!(matches!(refused, Err(CallError::Connect(_))), "{refused:?}");
}
