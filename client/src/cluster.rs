//! What a client knows of the cluster, and its connections into it.
//! Law: a leader epoch never goes back for one topic id; every question has a deadline; a broker that does not answer
//! costs one try, not the whole wait.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use kuorum_protocol::messages::api_versions::ApiVersionsRequest;
use kuorum_protocol::messages::metadata::{
    MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseTopic,
};
use kuorum_protocol::{ApiKey, ErrorCode, LeaderEpoch, Monotonic, RequestMessage, TopicId};
use kuorum_transport::{Backoff, CallError, Clock, Connection, Dialing, Instant, SystemNetwork};
use parking_lot::Mutex;

use crate::config::ClientConfig;
use crate::error::ClientError;

/// How long the first broker asked for metadata may take; each further one may take twice as long.
const FIRST_TRY: Duration = Duration::from_secs(1);

/// For so long a broker that failed to answer is asked after the others.
const ASKED_LAST: Duration = Duration::from_secs(10);

/// A connection whose other side has said which versions it serves. Clones share it.
#[derive(Clone, Debug)]
pub struct Link {
    broker: i32,
    connection: Connection,
    versions: Arc<HashMap<i16, (i16, i16)>>,
}

impl Link {
    /// Connects to `address` and asks what is served there.
    async fn open(
        network: &dyn Dialing,
        broker: i32,
        address: &str,
        client_id: &str,
        deadline: Instant,
    ) -> Result<Self, ClientError> {
        let connection = network.dial(address, Some(client_id), deadline).await?;
        let request = ApiVersionsRequest {
            client_software_name: "kuorum".to_owned(),
            client_software_version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let response = connection.api_versions(&request, deadline).await?;
        let versions = response
            .api_keys
            .iter()
            .map(|row| (row.api_key, (row.min_version, row.max_version)))
            .collect();
        Ok(Self {
            broker,
            connection,
            versions: Arc::new(versions),
        })
    }

    /// The broker at the other side; −1 for one of the bootstrap addresses.
    pub fn broker(&self) -> i32 {
        self.broker
    }

    /// Whether no further call can succeed.
    pub fn is_closed(&self) -> bool {
        self.connection.is_closed()
    }

    /// Ends the connection; calls under way fail.
    pub fn close(&self) {
        self.connection.close();
    }

    /// The highest version of `api` that both sides speak.
    ///
    /// # Errors
    /// `UnsupportedApi` if there is none.
    pub fn version(&self, api: ApiKey) -> Result<i16, ClientError> {
        let ours = api.versions();
        let theirs = self.versions.get(&api.key()).copied();
        theirs
            .map(|(min, max)| (min.max(*ours.start()), max.min(*ours.end())))
            .filter(|(min, max)| min <= max)
            .map(|(_, max)| max)
            .ok_or(ClientError::UnsupportedApi {
                api: api.name(),
                broker: self.broker,
            })
    }

    /// Asks, in the highest version that both sides speak. Calls go out in the order in which their futures are first
    /// polled.
    ///
    /// # Errors
    /// If the connection fails or there is no common version.
    pub async fn call<Q: RequestMessage>(
        &self,
        request: &Q,
        deadline: Instant,
    ) -> Result<Q::Response, ClientError> {
        let version = self.version(Q::API)?;
        Ok(self.connection.call(version, request, deadline).await?)
    }

    /// Sends a request that has no answer.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub async fn tell<Q: RequestMessage>(
        &self,
        request: &Q,
        deadline: Instant,
    ) -> Result<(), ClientError> {
        let version = self.version(Q::API)?;
        Ok(self.connection.tell(version, request, deadline).await?)
    }
}

/// One partition, as last heard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionView {
    /// Who leads it, if anybody.
    pub leader: Option<i32>,
    /// The leader's epoch, or −1.
    pub leader_epoch: LeaderEpoch,
    /// Who holds it.
    pub replicas: Vec<i32>,
    /// Who is in sync.
    pub isr: Vec<i32>,
}

/// One topic, as last heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicView {
    /// Its name.
    pub name: String,
    /// Its id; zero if the brokers are too old to say.
    pub id: TopicId,
    /// Its partitions, by number. None if the topic is not there (yet).
    pub partitions: Vec<PartitionView>,
    /// What the broker said of it, if not all is well.
    pub error: Option<ErrorCode>,
}

/// What is known of the cluster at one moment.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Rises with every answer.
    pub version: u64,
    /// Brokers with their addresses.
    pub brokers: BTreeMap<i32, String>,
    /// Topics that were asked for.
    pub topics: BTreeMap<String, Arc<TopicView>>,
    /// The cluster's id.
    pub cluster_id: Option<String>,
    /// A broker that takes requests for the controller.
    pub controller: Option<i32>,
    refreshed: Option<Monotonic>,
}

impl View {
    /// Who leads a partition.
    pub fn leader(&self, topic: &str, partition: i32) -> Option<(i32, LeaderEpoch)> {
        let partition = usize::try_from(partition).ok()?;
        let partition = self.topics.get(topic)?.partitions.get(partition)?;
        let leader = partition
            .leader
            .filter(|leader| self.brokers.contains_key(leader))?;
        Some((leader, partition.leader_epoch))
    }

    /// Takes over what a broker says. What it says of a partition is left aside if it is older than what is known.
    fn merge(&mut self, response: MetadataResponse, now: Monotonic) {
        self.version += 1;
        self.refreshed = Some(now);
        self.brokers = response
            .brokers
            .into_iter()
            .map(|broker| (broker.node_id, address(&broker.host, broker.port)))
            .collect();
        self.cluster_id = response.cluster_id;
        self.controller = Some(response.controller_id).filter(|id| *id >= 0);
        for topic in response.topics {
            if let Some(name) = topic.name.clone() {
                let known = self.topics.get(&name);
                let merged = merge_topic(name.clone(), topic, known.map(Arc::as_ref));
                self.topics.insert(name, Arc::new(merged));
            }
        }
    }

    /// Takes over who leads, as a broker says that does not; only if it knows better.
    fn learn_leader(
        &mut self,
        topic: &str,
        partition: i32,
        leader: i32,
        epoch: LeaderEpoch,
    ) -> bool {
        let (Some(known), Ok(index)) = (self.topics.get_mut(topic), usize::try_from(partition))
        else {
            return false;
        };
        let newer = known
            .partitions
            .get(index)
            .is_some_and(|p| p.leader_epoch < epoch);
        if !newer || leader < 0 || !self.brokers.contains_key(&leader) {
            return false;
        }
        let partition = &mut Arc::make_mut(known).partitions[index];
        partition.leader = Some(leader);
        partition.leader_epoch = epoch;
        self.version += 1;
        true
    }

    fn learn_leaders<'a>(
        &mut self,
        told: impl IntoIterator<Item = (&'a str, i32, i32, LeaderEpoch)>,
    ) -> usize {
        let mut news = 0;
        for (topic, partition, leader, epoch) in told {
            news += usize::from(self.learn_leader(topic, partition, leader, epoch));
        }
        news
    }
}

/// `host:port`, with brackets around an IPv6 address.
fn address(host: &str, port: i32) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

fn merge_topic(name: String, topic: MetadataResponseTopic, known: Option<&TopicView>) -> TopicView {
    let error = Some(ErrorCode::from(topic.error_code)).filter(|code| *code != ErrorCode::None);
    let id = TopicId(topic.topic_id);
    let known = known.filter(|known| known.id == id);
    // Only a contiguous list can be indexed; what a broker left out counts as leaderless.
    let count = topic
        .partitions
        .iter()
        .map(|p| p.partition_index + 1)
        .max()
        .unwrap_or(0);
    let count = usize::try_from(count)
        .unwrap_or(0)
        .min(topic.partitions.len().max(1) * 2);
    let mut partitions = vec![
        PartitionView {
            leader_epoch: LeaderEpoch::UNKNOWN,
            ..PartitionView::default()
        };
        count
    ];
    for partition in topic.partitions {
        let Ok(index) = usize::try_from(partition.partition_index) else {
            continue;
        };
        let Some(place) = partitions.get_mut(index) else {
            continue;
        };
        let heard = PartitionView {
            leader: Some(partition.leader_id).filter(|leader| *leader >= 0),
            leader_epoch: LeaderEpoch(partition.leader_epoch),
            replicas: partition.replica_nodes,
            isr: partition.isr_nodes,
        };
        let before = known.and_then(|known| known.partitions.get(index));
        *place = match before {
            Some(before) if heard.leader_epoch < before.leader_epoch => before.clone(),
            _ => heard,
        };
    }
    TopicView {
        name,
        id,
        partitions,
        error,
    }
}

/// A handle to the cluster. Clones share what is known and the connections.
#[derive(Clone, Debug)]
pub struct Cluster {
    inner: Arc<Inner>,
}

type Slot = Arc<tokio::sync::Mutex<Option<Link>>>;

#[derive(Debug)]
struct Inner {
    config: ClientConfig,
    auto_create: bool,
    clock: Clock,
    network: Arc<dyn Dialing>,
    view: Mutex<Arc<View>>,
    wanted: Mutex<BTreeSet<String>>,
    /// Held by who asks for metadata; the others wait for its answer instead of asking too.
    refreshing: tokio::sync::Mutex<()>,
    links: Mutex<HashMap<String, Slot>>,
    /// Addresses that failed to answer, and when last.
    silent: Mutex<HashMap<String, Instant>>,
}

impl Cluster {
    /// A cluster of which nothing is known yet but where to ask. `auto_create`: whether naming an unknown topic may
    /// create it, unless the settings say otherwise.
    pub fn new(config: ClientConfig, auto_create: bool, clock: Clock) -> Self {
        Self::over(Arc::new(SystemNetwork), config, auto_create, clock)
    }

    /// The same over another network than the machine's.
    pub fn over(
        network: Arc<dyn Dialing>,
        config: ClientConfig,
        auto_create: bool,
        clock: Clock,
    ) -> Self {
        let auto_create = config.allow_auto_create_topics.unwrap_or(auto_create);
        Self {
            inner: Arc::new(Inner {
                config,
                auto_create,
                clock,
                network,
                view: Mutex::default(),
                wanted: Mutex::default(),
                refreshing: tokio::sync::Mutex::default(),
                links: Mutex::default(),
                silent: Mutex::default(),
            }),
        }
    }

    /// The settings.
    pub fn config(&self) -> &ClientConfig {
        &self.inner.config
    }

    /// The clock that everything here is timed by.
    pub fn clock(&self) -> &Clock {
        &self.inner.clock
    }

    /// The moment that lies `timeout` ahead, as calls take it.
    pub fn deadline(&self, timeout: Duration) -> Instant {
        Instant::now() + timeout
    }

    /// What is known now.
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.inner.view.lock())
    }

    /// Whether what is known is older than `metadata.max.age.ms`.
    pub fn is_stale(&self) -> bool {
        let now = self.inner.clock.now().monotonic;
        let refreshed = self.inner.view.lock().refreshed;
        refreshed.is_none_or(|at| now.since(at) >= self.inner.config.metadata_max_age)
    }

    /// From now on `topic` is asked for too.
    pub fn want(&self, topic: &str) {
        let mut wanted = self.inner.wanted.lock();
        if !wanted.contains(topic) {
            wanted.insert(topic.to_owned());
        }
    }

    /// Who leads, as a broker says that was asked in vain. `true` if that is news.
    pub fn learn_leader(
        &self,
        topic: &str,
        partition: i32,
        leader: i32,
        epoch: LeaderEpoch,
    ) -> bool {
        Arc::make_mut(&mut *self.inner.view.lock()).learn_leader(topic, partition, leader, epoch)
    }

    /// The same for many partitions; answers how many of these were news. Each counts, so whoever was told of all leaders
    /// need not ask.
    pub fn learn_leaders<'a>(
        &self,
        told: impl IntoIterator<Item = (&'a str, i32, i32, LeaderEpoch)>,
    ) -> usize {
        Arc::make_mut(&mut *self.inner.view.lock()).learn_leaders(told)
    }

    /// Asks the cluster, unless somebody else has done so since `seen`, a [`View::version`].
    ///
    /// # Errors
    /// `Unreachable` if nobody answers before the deadline.
    pub async fn refresh(&self, seen: u64, deadline: Instant) -> Result<Arc<View>, ClientError> {
        let begin = Instant::now();
        let late = |last: &str| ClientError::Unreachable {
            waited: begin.elapsed(),
            last: last.to_owned(),
        };
        let _turn = tokio::time::timeout_at(deadline, self.inner.refreshing.lock())
            .await
            .map_err(|_| late("another request for metadata is still waiting"))?;
        if self.view().version > seen {
            return Ok(self.view());
        }
        let wanted: Vec<_> = self
            .inner
            .wanted
            .lock()
            .iter()
            .map(|name| MetadataRequestTopic {
                name: Some(name.clone()),
                ..MetadataRequestTopic::default()
            })
            .collect();
        let request = MetadataRequest {
            topics: Some(wanted),
            allow_auto_topic_creation: self.inner.auto_create,
            ..MetadataRequest::default()
        };
        let response = self
            .ask_any(
                &request,
                deadline,
                |response: &MetadataResponse| match ErrorCode::from(response.error_code) {
                    ErrorCode::None if response.brokers.is_empty() => {
                        Some("it knows no broker".into())
                    }
                    ErrorCode::None => None,
                    code => Some(code.name().into()),
                },
            )
            .await?;
        let now = self.inner.clock.now().monotonic;
        let mut view = self.inner.view.lock();
        Arc::make_mut(&mut *view).merge(response, now);
        Ok(Arc::clone(&view))
    }

    /// Asks one broker after the other, those known first and then the bootstrap addresses, until one gives an answer
    /// that `refuse` has nothing against.
    ///
    /// # Errors
    /// `Unreachable` if none does before the deadline.
    pub async fn ask_any<Q: RequestMessage>(
        &self,
        request: &Q,
        deadline: Instant,
        refuse: impl Fn(&Q::Response) -> Option<String>,
    ) -> Result<Q::Response, ClientError> {
        let begin = Instant::now();
        let mut backoff = Backoff::new(
            self.inner.config.retry_backoff,
            self.inner.config.retry_backoff_max,
        );
        let mut patience = FIRST_TRY;
        let mut last = "no address to ask".to_owned();
        loop {
            for (broker, address) in self.candidates() {
                let now = Instant::now();
                if now >= deadline {
                    return Err(ClientError::Unreachable {
                        waited: begin.elapsed(),
                        last,
                    });
                }
                let try_until = deadline.min(now + patience);
                let answer = async {
                    let link = self.link_to(broker, &address, try_until).await?;
                    let answer = link.call(request, try_until).await;
                    if answer.is_err() {
                        // What did not answer in time may be stopped: the next call begins anew.
                        link.close();
                    }
                    answer
                };
                match answer.await {
                    Ok(response) => {
                        self.inner.silent.lock().remove(&address);
                        match refuse(&response) {
                            None => return Ok(response),
                            Some(reason) => last = format!("{address}: {reason}"),
                        }
                    }
                    Err(error @ ClientError::UnsupportedApi { .. }) => return Err(error),
                    Err(error) => {
                        last = format!("{address}: {error}");
                        self.inner.silent.lock().insert(address, Instant::now());
                    }
                }
            }
            patience = (patience * 2).min(self.inner.config.request_timeout);
            let wait = backoff.next_wait(self.inner.clock.random());
            if Instant::now() + wait >= deadline {
                tokio::time::sleep_until(deadline).await;
                return Err(ClientError::Unreachable {
                    waited: begin.elapsed(),
                    last,
                });
            }
            self.inner.clock.sleep(wait).await;
        }
    }

    /// Brings them into an order of chance.
    pub(crate) fn shuffle<T>(&self, all: &mut [T]) {
        all.sort_by_cached_key(|_| self.inner.clock.random());
    }

    /// Brokers to ask, in an order that spreads the load; last those that have just failed to answer.
    fn candidates(&self) -> Vec<(i32, String)> {
        let view = self.view();
        let mut known: Vec<_> = view
            .brokers
            .iter()
            .map(|(id, address)| (*id, address.clone()))
            .collect();
        if !known.is_empty() {
            let first = self.inner.clock.random_below(known.len() as u64) as usize;
            known.rotate_left(first);
        }
        let bootstrap = &self.inner.config.bootstrap_servers;
        let unknown = bootstrap
            .iter()
            .filter(|address| !view.brokers.values().any(|b| b == *address));
        known.extend(unknown.map(|address| (-1, address.clone())));
        let mut silent = self.inner.silent.lock();
        silent.retain(|_, at| at.elapsed() < ASKED_LAST);
        known.sort_by_key(|(_, address)| silent.contains_key(address));
        known
    }

    /// The shared connection to an address, opened if need be. Who connects makes the others wait for the result.
    async fn link_to(
        &self,
        broker: i32,
        address: &str,
        deadline: Instant,
    ) -> Result<Link, ClientError> {
        let slot = Arc::clone(
            self.inner
                .links
                .lock()
                .entry(address.to_owned())
                .or_default(),
        );
        let mut slot = tokio::time::timeout_at(deadline, slot.lock())
            .await
            .map_err(|_| ClientError::Call(CallError::TimedOut))?;
        if let Some(link) = slot.as_ref().filter(|link| !link.is_closed()) {
            return Ok(Link {
                broker,
                ..link.clone()
            });
        }
        let deadline = deadline.min(Instant::now() + self.inner.config.connection_setup_timeout);
        let link = self.open(broker, address, deadline).await?;
        *slot = Some(link.clone());
        Ok(link)
    }

    /// The shared connection to a broker.
    ///
    /// # Errors
    /// If it is not known or cannot be reached before the deadline.
    pub async fn link(&self, broker: i32, deadline: Instant) -> Result<Link, ClientError> {
        let address = self.address_of(broker)?;
        self.link_to(broker, &address, deadline).await
    }

    /// A connection of the caller's own to a broker.
    ///
    /// # Errors
    /// As [`link`](Self::link).
    pub async fn open_link(&self, broker: i32, deadline: Instant) -> Result<Link, ClientError> {
        let address = self.address_of(broker)?;
        let deadline = deadline.min(Instant::now() + self.inner.config.connection_setup_timeout);
        self.open(broker, &address, deadline).await
    }

    async fn open(
        &self,
        broker: i32,
        address: &str,
        deadline: Instant,
    ) -> Result<Link, ClientError> {
        let client_id = &self.inner.config.client_id;
        Link::open(&*self.inner.network, broker, address, client_id, deadline).await
    }

    fn address_of(&self, broker: i32) -> Result<String, ClientError> {
        self.view()
            .brokers
            .get(&broker)
            .cloned()
            .ok_or_else(|| ClientError::Unreachable {
                waited: Duration::ZERO,
                last: format!("broker {broker} is not among the live ones"),
            })
    }

    /// The partitions of a topic, asked for until they are known.
    ///
    /// # Errors
    /// `UnknownTopic` if they are not before the deadline, `Refused` at once if there can be no such topic or the client
    /// may not see it, `Unreachable`.
    pub async fn topic(
        &self,
        name: &str,
        deadline: Instant,
    ) -> Result<Arc<TopicView>, ClientError> {
        self.want(name);
        let mut backoff = Backoff::new(
            self.inner.config.retry_backoff,
            self.inner.config.retry_backoff_max,
        );
        loop {
            let mut view = self.view();
            if view
                .topics
                .get(name)
                .is_none_or(|topic| topic.partitions.is_empty())
            {
                view = self.refresh(view.version, deadline).await?;
            }
            let topic = view.topics.get(name);
            if let Some(topic) = topic.filter(|topic| !topic.partitions.is_empty()) {
                return Ok(Arc::clone(topic));
            }
            if let Some(code) = topic.and_then(|topic| topic.error)
                && !code.is_retriable()
            {
                return Err(ClientError::Refused {
                    doing: format!("metadata of {name}"),
                    code,
                    message: "the topic cannot be used".to_owned(),
                });
            }
            let wait = backoff.next_wait(self.inner.clock.random());
            if Instant::now() + wait >= deadline {
                return Err(ClientError::UnknownTopic(name.to_owned()));
            }
            self.inner.clock.sleep(wait).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use kuorum_protocol::messages::metadata::{MetadataResponseBroker, MetadataResponsePartition};
    use uuid::Uuid;

    use super::*;

    fn heard(id: u128, leader: i32, epoch: i32) -> MetadataResponse {
        MetadataResponse {
            brokers: [1, 2, 3]
                .map(|id| MetadataResponseBroker {
                    node_id: id,
                    host: "::1".to_owned(),
                    port: 9091 + id,
                    ..Default::default()
                })
                .to_vec(),
            topics: vec![MetadataResponseTopic {
                name: Some("t".to_owned()),
                topic_id: Uuid::from_u128(id),
                partitions: vec![MetadataResponsePartition {
                    leader_id: leader,
                    leader_epoch: epoch,
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        }
    }

    #[test]
    fn an_epoch_never_goes_back_for_one_topic_id() {
        let rows = [
            // (topic id, leader, epoch, what is believed afterwards)
            (7, 1, 4, Some((1, 4))),
            (7, 2, 5, Some((2, 5))),
            (7, 1, 4, Some((2, 5))),
            (7, -1, 6, None),
            (7, 3, 7, Some((3, 7))),
            (8, 1, 0, Some((1, 0))),
            (8, 9, 1, None),
        ];
        let mut view = View::default();
        for (id, leader, epoch, expected) in rows {
            view.merge(heard(id, leader, epoch), Monotonic::default());
            let believed = view.leader("t", 0).map(|(leader, epoch)| (leader, epoch.0));
            assert_eq!(
                believed, expected,
                "topic {id}, leader {leader}, epoch {epoch}"
            );
        }
        assert_eq!(view.brokers[&1], "[::1]:9092");
        assert!(!view.learn_leader("t", 0, 2, LeaderEpoch(1)), "not newer");
        assert!(
            !view.learn_leader("t", 0, 5, LeaderEpoch(2)),
            "not a broker"
        );
        assert!(view.learn_leader("t", 0, 2, LeaderEpoch(2)));
        assert_eq!(view.leader("t", 0), Some((2, LeaderEpoch(2))));
        assert_eq!(view.leader("t", 1), None);
        assert_eq!(view.leader("t", -1), None);
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_just_failed_to_answer_is_asked_last() {
        let config = ClientConfig {
            bootstrap_servers: vec!["a:1".to_owned(), "b:1".to_owned(), "c:1".to_owned()],
            ..ClientConfig::default()
        };
        let cluster = Cluster::new(config, false, Clock::system());
        let order = || -> Vec<String> {
            let candidates = cluster.candidates().into_iter();
            candidates.map(|(_, address)| address).collect()
        };
        assert_eq!(order(), ["a:1", "b:1", "c:1"]);
        let silent = &cluster.inner.silent;
        silent.lock().insert("a:1".to_owned(), Instant::now());
        assert_eq!(order(), ["b:1", "c:1", "a:1"]);
        tokio::time::advance(ASKED_LAST).await;
        assert_eq!(order(), ["a:1", "b:1", "c:1"]);
    }

    /// An answer to many partitions names many leaders.
    #[test]
    fn every_leader_that_is_told_is_learned() {
        let mut view = View::default();
        let mut response = heard(7, 1, 0);
        let first = response.topics[0].partitions[0].clone();
        response.topics[0].partitions = (0..5)
            .map(|partition_index| MetadataResponsePartition {
                partition_index,
                ..first.clone()
            })
            .collect();
        view.merge(response, Monotonic::default());
        let told = |partition| ("t", partition, 3, LeaderEpoch(1));
        assert_eq!(view.learn_leaders((0..4).map(told)), 4);
        assert_eq!(
            view.learn_leaders((3..6).map(told)),
            1,
            "the others are no news, or not there"
        );
        let leaders: Vec<_> = (0..5)
            .filter_map(|p| Some(view.leader("t", p)?.0))
            .collect();
        assert_eq!(leaders, [3, 3, 3, 3, 3]);
    }
}
