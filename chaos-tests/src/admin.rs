//! The HTTP admin API of a cluster under test: whichever controller answers.
//! Law: every call has a deadline, and is asked of another controller when one does not answer.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use kuorum_admin_api::{
    Broker, BrokerState, CreateTopic, Event, EventPage, Health, Page, Partition, PartitionPage,
    Quorum, ReassignmentPage, ReassignmentReport, ReassignmentRequest,
};
use kuorum_protocol::PartitionIndex;
use reqwest::Method;
use serde::de::DeserializeOwned;

const CALL: Duration = Duration::from_secs(5);
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// Asks the controllers of one cluster.
#[derive(Clone, Debug)]
pub struct Admin {
    controllers: Vec<String>,
    http: reqwest::Client,
}

impl Admin {
    /// `controllers` are URLs, as `make env` prints them.
    ///
    /// # Errors
    /// When no HTTP client can be made.
    pub fn new(controllers: Vec<String>) -> Result<Self> {
        let http = reqwest::Client::builder()
            .no_proxy()
            .connect_timeout(Duration::from_millis(500))
            .timeout(CALL)
            .build()?;
        Ok(Self { controllers, http })
    }

    /// Makes a topic, and waits until every partition of it is led.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn create_topic(
        &self,
        name: &str,
        partitions: i32,
        configs: &[(&str, &str)],
    ) -> Result<()> {
        let topic = CreateTopic {
            name: name.to_owned(),
            partitions: Some(partitions),
            replication_factor: Some(3),
            configs: configs
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect::<BTreeMap<_, _>>(),
            dry_run: false,
        };
        let body = serde_json::to_vec(&topic)?;
        let mut problem = String::new();
        for controller in &self.controllers {
            let url = format!("{controller}/api/v1/topics");
            let call = self
                .http
                .post(url)
                .header("content-type", "application/json");
            match call.body(body.clone()).send().await {
                Ok(answer) if answer.status().is_success() => {
                    return self
                        .wait_until(
                            Duration::from_secs(30),
                            &format!("{name} is led"),
                            async || {
                                let all = self.partitions(name).await?;
                                Ok(all.len() == partitions as usize
                                    && all.iter().all(|partition| partition.leader.is_some()))
                            },
                        )
                        .await;
                }
                Ok(answer) => problem = answer.text().await.unwrap_or_default(),
                Err(unreachable) => problem = unreachable.to_string(),
            }
        }
        bail!("could not create {name}: {problem}")
    }

    /// Every partition of a topic.
    ///
    /// # Errors
    /// When no controller answers.
    pub async fn partitions(&self, topic: &str) -> Result<Vec<Partition>> {
        let path = format!("/api/v1/topics/{topic}/partitions?page_size=1000");
        Ok(self.get::<PartitionPage>(&path).await?.items)
    }

    /// One partition.
    ///
    /// # Errors
    /// When no controller answers, or there is none of that number.
    pub async fn partition(&self, topic: &str, index: PartitionIndex) -> Result<Partition> {
        let all = self.partitions(topic).await?;
        all.into_iter()
            .find(|partition| partition.partition == index)
            .with_context(|| format!("{topic} has no partition {index}"))
    }

    /// Every broker.
    ///
    /// # Errors
    /// When no controller answers.
    pub async fn brokers(&self) -> Result<Vec<Broker>> {
        Ok(self.get::<Page<Broker>>("/api/v1/brokers").await?.items)
    }

    /// Everything of these kinds that ever happened in the cluster, oldest first.
    ///
    /// # Errors
    /// When no controller answers, or some of it may be no longer kept.
    pub async fn events(&self, kinds: &str) -> Result<Vec<Event>> {
        let mut events = Vec::new();
        let mut after = 0;
        loop {
            let path = format!("/api/v1/events?type={kinds}&after={after}");
            let page: EventPage = self.get(&path).await?;
            if page.dropped_through > 0 {
                bail!(
                    "events up to {} are no longer kept: what happened is not known",
                    page.dropped_through
                );
            }
            events.extend(page.items);
            match (&page.next_page_token, events.last()) {
                (Some(_), Some(last)) => after = last.id,
                _ => return Ok(events),
            }
        }
    }

    /// What ails the cluster.
    ///
    /// # Errors
    /// When no controller answers.
    pub async fn health(&self) -> Result<Health> {
        self.get("/api/v1/cluster/health").await
    }

    /// Waits until every replica of a topic is in sync again, and every broker that has one is active.
    ///
    /// # Errors
    /// When that takes longer than `limit`.
    pub async fn wait_until_whole(&self, topic: &str, limit: Duration) -> Result<()> {
        self.wait_until(limit, "all replicas are in sync", async || {
            let brokers = self.brokers().await?;
            let is_active = |id: &i32| {
                let mut brokers = brokers.iter();
                brokers.any(|broker| broker.id == *id && broker.state == BrokerState::Active)
            };
            let partitions = self.partitions(topic).await?;
            Ok(partitions.iter().all(|p| {
                p.leader.is_some()
                    && p.isr.len() == p.replicas.len()
                    && p.replicas.iter().all(is_active)
            }))
        })
        .await
    }

    /// Looks again and again until `condition` holds; a look that fails counts as "not yet".
    ///
    /// # Errors
    /// When it does not hold within `limit`.
    pub async fn wait_until(
        &self,
        limit: Duration,
        what: &str,
        mut condition: impl AsyncFnMut() -> Result<bool>,
    ) -> Result<()> {
        let start = Instant::now();
        let mut last = None;
        while start.elapsed() < limit {
            match condition().await {
                Ok(true) => return Ok(()),
                Ok(false) => last = None,
                Err(problem) => last = Some(problem),
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
        match last {
            Some(problem) => Err(problem.context(format!("not so after {limit:?}: {what}"))),
            None => bail!("not so after {limit:?}: {what}"),
        }
    }

    /// Moves replicas; asked of another controller when one does not answer, which is harmless.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn reassign(&self, request: &ReassignmentRequest) -> Result<ReassignmentReport> {
        let body = Some(serde_json::to_vec(request)?);
        let answer = self
            .send(Method::POST, "/api/v1/reassignments", body)
            .await?;
        Ok(serde_json::from_slice(&answer)?)
    }

    /// What is on the move.
    ///
    /// # Errors
    /// When no controller answers.
    pub async fn reassignments(&self) -> Result<ReassignmentPage> {
        self.get("/api/v1/reassignments").await
    }

    /// Takes a move back.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn cancel_reassignment(&self, topic: &str, partition: PartitionIndex) -> Result<()> {
        let path = format!("/api/v1/reassignments/{topic}/{partition}");
        self.send(Method::DELETE, &path, None).await.map(drop)
    }

    /// Deletes a topic.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn delete_topic(&self, topic: &str) -> Result<()> {
        let path = format!("/api/v1/topics/{topic}");
        self.send(Method::DELETE, &path, None).await.map(drop)
    }

    /// Creates a topic with everything said by the caller, and waits until every partition is led.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn create(&self, topic: &CreateTopic) -> Result<()> {
        let body = serde_json::to_vec(topic)?;
        self.send(Method::POST, "/api/v1/topics", Some(body))
            .await?;
        let name = &topic.name;
        let limit = Duration::from_secs(30);
        self.wait_until(limit, &format!("{name} is led"), async || {
            let all = self.partitions(name).await?;
            Ok(!all.is_empty() && all.iter().all(|partition| partition.leader.is_some()))
        })
        .await
    }

    /// Posts a body and returns the answer's.
    ///
    /// # Errors
    /// When no controller answers, or it is refused.
    pub async fn post(&self, path: &str, body: &serde_json::Value) -> Result<serde_json::Value> {
        let body = Some(serde_json::to_vec(body)?);
        let answer = self.send(Method::POST, path, body).await?;
        Ok(serde_json::from_slice(&answer)?)
    }

    /// The text behind a URL.
    ///
    /// # Errors
    /// When nobody answers there.
    pub async fn text(&self, url: &str) -> Result<String> {
        Ok(self.http.get(url).send().await?.text().await?)
    }

    /// The URLs of the controllers.
    #[must_use]
    pub fn controllers(&self) -> &[String] {
        &self.controllers
    }

    /// Gives leadership to preferred leaders wherever that is possible.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn elect_preferred(&self) -> Result<()> {
        let body = Some(br#"{"type":"preferred"}"#.to_vec());
        self.send(Method::POST, "/api/v1/elections", body)
            .await
            .map(drop)
    }

    /// The number of the controller in office.
    ///
    /// # Errors
    /// When no controller answers, or none is in office.
    pub async fn active_controller(&self) -> Result<i32> {
        let quorum: Quorum = self.get("/api/v1/quorum").await?;
        let leader = quorum.leader.context("no controller is in office")?;
        Ok(i32::try_from(leader)?)
    }

    /// Carries out an action without a body: `/brokers/1/drain`.
    ///
    /// # Errors
    /// When no controller answers, or it is refused.
    pub async fn act(&self, path: &str) -> Result<()> {
        let path = format!("/api/v1{path}");
        self.send(Method::POST, &path, Some(b"{}".to_vec()))
            .await
            .map(drop)
    }

    /// Changes settings: `/topics/t/configs`.
    ///
    /// # Errors
    /// When no controller answers, or it is refused.
    pub async fn patch(&self, path: &str, body: &serde_json::Value) -> Result<()> {
        let path = format!("/api/v1{path}");
        let body = Some(serde_json::to_vec(body)?);
        self.send(Method::PATCH, &path, body).await.map(drop)
    }

    /// The body of the first answer that is good.
    async fn send(&self, method: Method, path: &str, body: Option<Vec<u8>>) -> Result<Vec<u8>> {
        let mut problem = String::from("there are no controllers");
        for controller in &self.controllers {
            let url = format!("{controller}{path}");
            let mut call = self.http.request(method.clone(), url);
            if let Some(body) = &body {
                call = call
                    .header("content-type", "application/json")
                    .body(body.clone());
            }
            match call.send().await {
                Ok(answer) if answer.status().is_success() => {
                    return Ok(answer.bytes().await?.to_vec());
                }
                Ok(answer) => problem = answer.text().await.unwrap_or_default(),
                Err(unreachable) => problem = unreachable.to_string(),
            }
        }
        bail!("{method} {path}: {problem}")
    }

    /// Asks for something; every controller in turn until one answers.
    ///
    /// # Errors
    /// When none does.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let mut problem = String::from("there are no controllers");
        for controller in &self.controllers {
            match self.http.get(format!("{controller}{path}")).send().await {
                Ok(answer) if answer.status().is_success() => {
                    let body = answer.bytes().await?;
                    return serde_json::from_slice(&body).with_context(|| {
                        format!("{path} answered {}", String::from_utf8_lossy(&body))
                    });
                }
                Ok(answer) => problem = answer.text().await.unwrap_or_default(),
                Err(unreachable) => problem = unreachable.to_string(),
            }
        }
        bail!("no controller answers {path}: {problem}")
    }
}
