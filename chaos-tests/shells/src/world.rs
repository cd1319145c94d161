//! One run: the cluster comes up, is hurt while brokers ask it for things, heals and must come together, loses its power
//! everywhere, and is compared.
//! Law: nothing waits without end. Whatever should happen and does not within its time is a violation of liveness.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use kuorum_controller::quorum::ControllerId;
use kuorum_metadata::MetadataImage;
use parking_lot::Mutex;
use rand::RngExt;
use rand::rngs::StdRng;
use turmoil::Sim;

use crate::broker;
use crate::controller::{self, Running};
use crate::disk::{Disk, Lie};
use crate::history::{History, Tally};
use crate::plan::{BROKERS, CONTROLLERS, Fault, Plan, broker_host, controller_host};

/// The world goes on in steps of this length.
const TICK: Duration = Duration::from_millis(2);
/// How long founding the quorum and introducing the brokers may take.
const COMES_UP: Duration = Duration::from_secs(30);
/// How long after the last fault everything must work again and agree.
const COMES_TOGETHER: Duration = Duration::from_secs(40);
/// The turn of messages when all is well.
const CALM: Duration = Duration::from_millis(10);

/// How a run differs from the usual.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// What the disks say is durable and is not.
    pub lie: Option<Lie>,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub seed: u64,
    /// What the seed decided, for people.
    pub plan: String,
    /// What may not be, if there was something.
    pub violation: Option<String>,
    pub tally: Tally,
    /// What was done, and when.
    pub events: Vec<String>,
}

/// What the brokers are to do.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Orders {
    /// Ask for things.
    pub(crate) busy: bool,
    /// Raised when every broker is to create one more topic, however long it takes.
    pub(crate) probe: u64,
}

/// What processes and world share.
pub(crate) struct Cluster {
    pub(crate) plan: Plan,
    pub(crate) history: Mutex<History>,
    disks: BTreeMap<ControllerId, Disk>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    orders: Orders,
    running: BTreeMap<ControllerId, Running>,
    ended: Vec<(ControllerId, String)>,
    probed: BTreeMap<i32, u64>,
    followed: BTreeMap<i32, (i64, MetadataImage)>,
    numbers: u64,
}

impl Cluster {
    fn new(plan: Plan, lie: Option<Lie>) -> Self {
        let disks = CONTROLLERS
            .iter()
            .map(|id| (*id, Disk::new(plan.seed.wrapping_mul(31) + id, lie)))
            .collect();
        Self {
            plan,
            history: Mutex::default(),
            disks,
            inner: Mutex::default(),
        }
    }

    pub(crate) fn disk(&self, id: ControllerId) -> &Disk {
        &self.disks[&id]
    }

    /// A seed for a process, another one each time.
    pub(crate) fn number(&self, salt: u64) -> u64 {
        let mut inner = self.inner.lock();
        inner.numbers += 1;
        let place = inner.numbers.wrapping_mul(1_000) + salt;
        self.plan.seed ^ place.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    pub(crate) fn started(&self, id: ControllerId, running: Running) {
        self.inner.lock().running.insert(id, running);
    }

    pub(crate) fn ended(&self, id: ControllerId, why: String) {
        self.inner.lock().ended.push((id, why));
    }

    pub(crate) fn orders(&self) -> Orders {
        self.inner.lock().orders
    }

    pub(crate) fn probed(&self, id: i32, probe: u64) {
        self.inner.lock().probed.insert(id, probe);
    }

    pub(crate) fn followed(&self, id: i32, offset: i64, image: &MetadataImage) {
        self.inner
            .lock()
            .followed
            .insert(id, (offset, image.clone()));
    }

    /// What is still missing before everybody agrees; nothing if they do.
    fn apart(&self) -> Option<String> {
        let inner = self.inner.lock();
        if inner.running.len() < CONTROLLERS.len() {
            return Some("not all controllers run".to_owned());
        }
        for id in BROKERS {
            if inner.probed.get(&id).copied().unwrap_or_default() < inner.orders.probe {
                return Some(format!("broker {id} could not create a topic"));
            }
        }
        let ends: Vec<i64> = inner
            .running
            .values()
            .map(|running| running.quorum.published().applied_end())
            .collect();
        if ends.iter().any(|end| *end != ends[0]) {
            return Some(format!("the controllers have applied {ends:?} entries"));
        }
        let offices = inner.running.values();
        let offices = offices.filter(|running| running.active.office().is_some());
        let offices = offices.count();
        if offices != 1 {
            return Some(format!("{offices} controllers are in office"));
        }
        for id in BROKERS {
            let reached = inner.followed.get(&id).map_or(-1, |followed| followed.0);
            if reached + 1 != ends[0] {
                return Some(format!(
                    "broker {id} has followed to {reached} of {}",
                    ends[0]
                ));
            }
        }
        None
    }

    /// Compares the images of everybody, once they have applied the same entries.
    fn compare(&self) -> Result<(), String> {
        let history = self.history.lock();
        history.check()?;
        let built = history.image().digest();
        let inner = self.inner.lock();
        let controllers = inner.running.iter();
        let controllers = controllers
            .map(|(id, running)| (controller_host(*id), running.quorum.image().digest()));
        let brokers = inner.followed.iter();
        let brokers = brokers.map(|(id, (_, image))| (broker_host(*id), image.digest()));
        for (who, digest) in controllers.chain(brokers) {
            if digest != built {
                return Err(format!(
                    "same-image: {who} has {digest:016x}, the log builds {built:016x}"
                ));
            }
        }
        Ok(())
    }
}

/// Runs a seed.
pub fn run(seed: u64, options: Options) -> Outcome {
    let (plan, random) = Plan::new(seed);
    let text = plan.to_string();
    let cluster = Arc::new(Cluster::new(plan, options.lie));
    let mut events = Vec::new();
    let ended = catch_unwind(AssertUnwindSafe(|| {
        World::new(Arc::clone(&cluster), random, &mut events).run()
    }));
    let violation = match ended {
        Ok(result) => result.err(),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or(panic.downcast_ref::<&str>().copied());
            Some(format!("panic: {}", text.unwrap_or("without words")))
        }
    };
    let tally = cluster.history.lock().tally;
    Outcome {
        seed,
        plan: text,
        violation,
        tally,
        events,
    }
}

/// What a link between two hosts suffers from.
#[derive(Clone, Copy, Debug)]
enum Ill {
    Cut,
    OneWay,
    Held,
}

struct World<'a> {
    cluster: Arc<Cluster>,
    sim: Sim<'a>,
    random: StdRng,
    ill: BTreeMap<(String, String), Ill>,
    /// When a controller that is down starts again.
    starts: BTreeMap<ControllerId, Duration>,
    /// Whose power goes at some change of the disk, and how long it stays away.
    fuses: BTreeMap<ControllerId, Duration>,
    events: &'a mut Vec<String>,
}

impl<'a> World<'a> {
    fn new(cluster: Arc<Cluster>, random: StdRng, events: &'a mut Vec<String>) -> Self {
        let plan = &cluster.plan;
        let mut builder = turmoil::Builder::new();
        builder
            .rng_seed(plan.seed)
            .epoch(SystemTime::UNIX_EPOCH)
            .tick_duration(TICK)
            .simulation_duration(Duration::from_secs(3_600))
            .min_message_latency(Duration::from_millis(1))
            .max_message_latency(plan.latency)
            .ephemeral_ports(10_000..=65_535)
            .tcp_capacity(16_384);
        if plan.shuffled {
            builder.enable_random_order();
        }
        let mut sim = builder.build();
        for id in CONTROLLERS {
            let cluster = Arc::clone(&cluster);
            sim.host(controller_host(id), move || {
                controller::run(Arc::clone(&cluster), id)
            });
        }
        for id in BROKERS {
            let cluster = Arc::clone(&cluster);
            sim.host(broker_host(id), move || {
                broker::run(Arc::clone(&cluster), id)
            });
        }
        Self {
            cluster,
            sim,
            random,
            ill: BTreeMap::new(),
            starts: BTreeMap::new(),
            fuses: BTreeMap::new(),
            events,
        }
    }

    fn run(mut self) -> Result<(), String> {
        self.probe();
        self.come_together("come up", COMES_UP)?;
        self.cluster.inner.lock().orders.busy = true;
        let end = self.sim.elapsed() + self.cluster.plan.trouble;
        let mut next = self.sim.elapsed();
        while self.sim.elapsed() < end {
            if self.sim.elapsed() >= next {
                let fault = Fault::next(&mut self.random);
                self.suffer(fault);
                let most = self.cluster.plan.pause.as_millis() as u64;
                next += Duration::from_millis(self.random.random_range(20..=most));
            }
            self.step()?;
        }
        self.cluster.inner.lock().orders.busy = false;
        self.heal();
        self.probe();
        self.come_together("come together", COMES_TOGETHER)?;
        self.cluster.compare()?;
        // Whatever is agreed is durable.
        self.suffer(Fault::PowerCutEverywhere(Duration::from_millis(100)));
        self.probe();
        self.come_together("come together after a power cut", COMES_TOGETHER)?;
        self.cluster.compare()
    }

    fn note(&mut self, what: &str) {
        let at = self.sim.elapsed();
        self.events.push(format!("{at:>9.3?} {what}"));
    }

    fn probe(&mut self) {
        self.note("every broker is to create a topic");
        self.cluster.inner.lock().orders.probe += 1;
    }

    fn come_together(&mut self, what: &str, limit: Duration) -> Result<(), String> {
        let until = self.sim.elapsed() + limit;
        loop {
            self.step()?;
            let Some(missing) = self.cluster.apart() else {
                self.note("all agree");
                return Ok(());
            };
            if self.sim.elapsed() > until {
                return Err(format!(
                    "liveness: the cluster does not {what} within {limit:?}: {missing}"
                ));
            }
        }
    }

    fn step(&mut self) -> Result<(), String> {
        self.sim.step().map_err(|error| error.to_string())?;
        let ended = std::mem::take(&mut self.cluster.inner.lock().ended);
        for (id, why) in ended {
            match self.fuses.get(&id) {
                Some(&down) => {
                    self.note(&format!("controller {id} has no power: {why}"));
                    self.crash(id, true, down);
                }
                None => return Err(format!("runs-on: controller {id} has ended itself: {why}")),
            }
        }
        let now = self.sim.elapsed();
        let due = self.starts.iter().find(|(_, at)| **at <= now);
        if let Some(id) = due.map(|(id, _)| *id) {
            self.starts.remove(&id);
            self.note(&format!("controller {id} starts"));
            self.sim.bounce(controller_host(id));
        }
        match self.cluster.history.lock().violation.take() {
            Some(violation) => Err(violation),
            None => Ok(()),
        }
    }

    fn is_up(&self, id: ControllerId) -> bool {
        !self.starts.contains_key(&id)
    }

    /// Ends a process; `power` says whether what was not synced may be lost.
    fn crash(&mut self, id: ControllerId, power: bool, down: Duration) {
        if !self.is_up(id) {
            return;
        }
        self.fuses.remove(&id);
        let running = self.cluster.inner.lock().running.remove(&id);
        drop(running);
        self.sim.crash(controller_host(id));
        let disk = self.cluster.disk(id).simulated();
        if power {
            disk.crash();
        } else {
            disk.kill();
        }
        self.cluster.history.lock().tally.crashes += 1;
        self.starts.insert(id, self.sim.elapsed() + down);
    }

    fn mend(&mut self, link: &(String, String)) {
        let (from, to) = (link.0.as_str(), link.1.as_str());
        match self.ill.remove(link) {
            None => {}
            Some(Ill::Cut) => self.sim.repair(from, to),
            Some(Ill::OneWay) => self.sim.repair_oneway(from, to),
            Some(Ill::Held) => self.sim.release(from, to),
        }
    }

    fn fall_ill(&mut self, from: String, to: String, ill: Ill) {
        // One illness a link: turmoil does not mix them.
        let back = (to.clone(), from.clone());
        self.mend(&back);
        let link = (from, to);
        self.mend(&link);
        let (from, to) = (link.0.as_str(), link.1.as_str());
        match ill {
            Ill::Cut => self.sim.partition(from, to),
            Ill::OneWay => self.sim.partition_oneway(from, to),
            Ill::Held => self.sim.hold(from, to),
        }
        self.cluster.history.lock().tally.cuts += 1;
        self.ill.insert(link, ill);
    }

    fn suffer(&mut self, fault: Fault) {
        self.note(&format!("{fault:?}"));
        match fault {
            Fault::Cut(from, to) => self.fall_ill(from, to, Ill::Cut),
            Fault::CutOneWay(from, to) => self.fall_ill(from, to, Ill::OneWay),
            Fault::Hold(from, to) => self.fall_ill(from, to, Ill::Held),
            Fault::Isolate(id) => {
                for other in CONTROLLERS.iter().filter(|other| **other != id) {
                    self.fall_ill(controller_host(id), controller_host(*other), Ill::Cut);
                }
            }
            Fault::Mend => self.mend_all(),
            Fault::Slow(latency) => self.sim.set_max_message_latency(latency),
            Fault::PowerCut(id, down) => self.crash(id, true, down),
            Fault::PowerCutAfter(id, changes, down) => {
                if self.is_up(id) {
                    self.cluster.disk(id).simulated().cut_power_after(changes);
                    self.fuses.insert(id, down);
                }
            }
            Fault::Kill(id, down) => self.crash(id, false, down),
            Fault::PowerCutEverywhere(down) => {
                for id in CONTROLLERS {
                    self.crash(id, true, down);
                }
            }
            Fault::MoveClock(id, millis) => {
                if let Some(running) = self.cluster.inner.lock().running.get(&id) {
                    running.clock.move_wall(millis);
                }
            }
        }
    }

    fn mend_all(&mut self) {
        let links: Vec<(String, String)> = self.ill.keys().cloned().collect();
        for link in links {
            self.mend(&link);
        }
    }

    fn heal(&mut self) {
        self.note("everything heals");
        self.mend_all();
        self.sim.set_max_message_latency(CALM);
        let fuses: Vec<ControllerId> = self.fuses.keys().copied().collect();
        for id in fuses {
            self.crash(id, true, Duration::ZERO);
        }
        let now = self.sim.elapsed();
        for start in self.starts.values_mut() {
            *start = now;
        }
    }
}
