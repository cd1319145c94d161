//! One run: the cluster comes up, is hurt while it is asked for things, heals and must come together, loses its power
//! everywhere, and is compared.
//! Law: nothing waits without end. Whatever should happen and does not within its time is a violation of liveness.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use kuorum_controller::quorum::{ControllerId, Ended};
use kuorum_metadata::MetadataImage;
use kuorum_transport::Clock;
use parking_lot::Mutex;
use rand::RngExt;
use rand::rngs::StdRng;
use turmoil::Sim;

use crate::controller::{self, Running};
use crate::disk::{Disk, Lie};
use crate::history::{History, Tally};
use crate::ledger::Ledger;
use crate::plan::{
    BROKERS, CLIENTS, CONTROLLERS, Fault, Kind, Machine, Plan, broker_host, client_host,
    controller_host,
};
use crate::replicas::Brokers;
use crate::{broker, client, outsider, replicas};

/// The world goes on in steps of this length.
const TICK: Duration = Duration::from_millis(2);
/// How long founding the quorum and introducing the brokers may take.
const COMES_UP: Duration = Duration::from_secs(30);
/// How long after the last fault everything must work again and agree.
const COMES_TOGETHER: Duration = Duration::from_secs(40);
/// How far a wall clock goes wrong: a record may be an hour ahead of its broker (`message.timestamp.after.max.ms`), and is
/// refused beyond that, as it should be.
const CLOCK_DRIFT: Duration = Duration::from_secs(50 * 60);
/// The turn of messages when all is well.
const CALM: Duration = Duration::from_millis(10);
/// How many steps lie between two looks at whether all agree.
const LOOK: u32 = 10;

/// How a run differs from the usual.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// What is built.
    pub kind: Kind,
    /// What the disks say is durable and is not.
    pub lie: Option<Lie>,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub kind: Kind,
    pub seed: u64,
    /// What the seed decided, for people.
    pub plan: String,
    /// What may not be, if there was something.
    pub violation: Option<String>,
    pub tally: Tally,
    /// What was done, and when.
    pub events: Vec<String>,
}

/// What outsiders and clients are to do.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Orders {
    /// Ask for things.
    pub(crate) busy: bool,
    /// Raised when each of them is to have its way once more, however long it takes.
    pub(crate) probe: u64,
}

/// What processes and world share.
pub(crate) struct Cluster {
    pub(crate) plan: Plan,
    pub(crate) history: Mutex<History>,
    pub(crate) ledger: Mutex<Ledger>,
    disks: BTreeMap<Machine, Disk>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    orders: Orders,
    running: BTreeMap<ControllerId, Running>,
    brokers: BTreeMap<i32, broker::Running>,
    /// Who has ended itself, and why.
    ended: Vec<(Machine, Ended)>,
    /// Who has gone down as it was told.
    left: Vec<Machine>,
    /// By host.
    probed: BTreeMap<String, u64>,
    followed: BTreeMap<i32, (i64, MetadataImage)>,
    numbers: u64,
}

impl Cluster {
    fn new(plan: Plan, lie: Option<Lie>) -> Result<Self, String> {
        let seed = plan.seed.wrapping_mul(31);
        let of_controllers = lie.filter(|lie| *lie != Lie::RecordsAreSynced);
        let of_brokers = lie.filter(|lie| *lie == Lie::RecordsAreSynced);
        let mut disks = BTreeMap::new();
        for id in CONTROLLERS {
            let disk = Disk::new(seed.wrapping_add(id), of_controllers);
            disks.insert(Machine::Controller(id), disk);
        }
        if plan.kind == Kind::Brokers {
            for id in BROKERS {
                let disk = Disk::new(seed.wrapping_add(10 + id as u64), of_brokers);
                broker::format(&disk, id).map_err(|error| error.to_string())?;
                disks.insert(Machine::Broker(id), disk);
            }
        }
        Ok(Self {
            plan,
            history: Mutex::default(),
            ledger: Mutex::default(),
            disks,
            inner: Mutex::default(),
        })
    }

    pub(crate) fn disk(&self, machine: Machine) -> &Disk {
        &self.disks[&machine]
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

    pub(crate) fn broker_started(&self, id: i32, running: broker::Running) {
        self.inner.lock().brokers.insert(id, running);
    }

    pub(crate) fn ended(&self, machine: Machine, ended: Ended) {
        self.inner.lock().ended.push((machine, ended));
    }

    pub(crate) fn left(&self, machine: Machine) {
        self.inner.lock().left.push(machine);
    }

    pub(crate) fn orders(&self) -> Orders {
        self.inner.lock().orders
    }

    /// An asker has had its way.
    pub(crate) fn probed(&self, host: String, probe: u64) {
        self.inner.lock().probed.insert(host, probe);
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
        for host in self.askers() {
            if inner.probed.get(&host).copied().unwrap_or_default() < inner.orders.probe {
                return Some(format!("{host} has not had its way"));
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
            let reached = match self.plan.kind {
                Kind::Controllers => inner.followed.get(&id).map(|followed| followed.0),
                Kind::Brokers => {
                    let rooms = inner.brokers.get(&id).and_then(|b| b.rooms.upgrade());
                    rooms.map(|rooms| rooms.metadata.offset())
                }
            };
            if reached.unwrap_or(-1) + 1 != ends[0] {
                return Some(format!(
                    "broker {id} has followed to {reached:?} of {}",
                    ends[0]
                ));
            }
        }
        drop(inner);
        match self.plan.kind {
            Kind::Controllers => None,
            Kind::Brokers => self.records_apart(),
        }
    }

    /// Who asks for things.
    fn askers(&self) -> Vec<String> {
        match self.plan.kind {
            Kind::Controllers => BROKERS.iter().map(|id| broker_host(*id)).collect(),
            Kind::Brokers => CLIENTS.iter().map(|id| client_host(*id)).collect(),
        }
    }

    /// The rooms of the brokers that run.
    fn brokers(&self) -> Brokers {
        let inner = self.inner.lock();
        let running = inner.brokers.iter();
        running
            .filter_map(|(id, running)| Some((*id, running.rooms.upgrade()?)))
            .collect()
    }

    /// What is still missing before every replica has every record, and every consumer has read them.
    fn records_apart(&self) -> Option<String> {
        let brokers = self.brokers();
        let image = brokers.values().next()?.metadata.image();
        let ends = match replicas::ends(&image, &brokers) {
            Ok(ends) => ends,
            Err(missing) => return Some(missing),
        };
        let ledger = self.ledger.lock();
        let waiting = ledger.waiting();
        if waiting > 0 {
            return Some(format!("{waiting} records have no answer"));
        }
        for place in client::places() {
            let Some(end) = ends.get(&place) else {
                return Some(format!("there is no {place:?}"));
            };
            for host in self.askers() {
                let position = ledger.position(&host, &place);
                if position != *end {
                    return Some(format!(
                        "{host} has read to {position} of {end} in {place:?}"
                    ));
                }
            }
        }
        None
    }

    /// Compares the images of everybody, once they have applied the same entries.
    fn compare(&self) -> Result<(), String> {
        let history = self.history.lock();
        history.check()?;
        let image = history.image();
        let built = image.digest();
        let rooms = self.brokers();
        let inner = self.inner.lock();
        let controllers = inner.running.iter();
        let controllers = controllers
            .map(|(id, running)| (controller_host(*id), running.quorum.image().digest()));
        let brokers = inner.followed.iter();
        let brokers = brokers.map(|(id, (_, image))| (broker_host(*id), image.digest()));
        let real = rooms.iter();
        let real = real.map(|(id, rooms)| (broker_host(*id), rooms.metadata.image().digest()));
        for (who, digest) in controllers.chain(brokers).chain(real) {
            if digest != built {
                return Err(format!(
                    "same-image: {who} has {digest:016x}, the log builds {built:016x}"
                ));
            }
        }
        drop(inner);
        if self.plan.kind == Kind::Brokers {
            let logs = replicas::contents(&image, &rooms)?;
            self.ledger.lock().check(&logs)?;
        }
        Ok(())
    }

    fn tally(&self) -> Tally {
        let history = self.history.lock();
        let mut tally = history.tally;
        if self.plan.kind == Kind::Brokers {
            (tally.records, tally.lost_sight_of) = self.ledger.lock().counts();
            let image = history.image();
            let epochs = image
                .partitions()
                .map(|(_, _, partition)| partition.leader_epoch.0);
            tally.elections = epochs.map(|epoch| u64::from(epoch.unsigned_abs())).sum();
        }
        tally
    }
}

/// Runs a seed.
pub fn run(seed: u64, options: Options) -> Outcome {
    let (plan, random) = Plan::new(options.kind, seed);
    let mut outcome = Outcome {
        kind: options.kind,
        seed,
        plan: plan.to_string(),
        violation: None,
        tally: Tally::default(),
        events: Vec::new(),
    };
    let cluster = match Cluster::new(plan, options.lie) {
        Ok(cluster) => Arc::new(cluster),
        Err(error) => {
            outcome.violation = Some(format!("set-up: {error}"));
            return outcome;
        }
    };
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
    Outcome {
        violation,
        tally: cluster.tally(),
        events,
        ..outcome
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
    /// When a machine that is down starts again.
    starts: BTreeMap<Machine, Duration>,
    /// Whose power goes at some change of the disk, and how long it stays away.
    fuses: BTreeMap<Machine, Duration>,
    /// Which brokers have been told to go down, and how long they stay so.
    leaving: BTreeMap<Machine, Duration>,
    /// Which brokers lack a log directory until they are started again.
    sick: BTreeSet<Machine>,
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
            let (kind, cluster) = (plan.kind, Arc::clone(&cluster));
            sim.host(broker_host(id), move || match kind {
                Kind::Controllers => outsider::run(Arc::clone(&cluster), id).boxed_local(),
                Kind::Brokers => broker::run(Arc::clone(&cluster), id).boxed_local(),
            });
        }
        if plan.kind == Kind::Brokers {
            for id in CLIENTS {
                let cluster = Arc::clone(&cluster);
                sim.host(client_host(id), move || {
                    client::run(Arc::clone(&cluster), id)
                });
            }
        }
        Self {
            cluster,
            sim,
            random,
            ill: BTreeMap::new(),
            starts: BTreeMap::new(),
            fuses: BTreeMap::new(),
            leaving: BTreeMap::new(),
            sick: BTreeSet::new(),
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
                let fault = Fault::next(self.cluster.plan.kind, &mut self.random);
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
        self.note("everybody is to have its way once");
        self.cluster.inner.lock().orders.probe += 1;
    }

    fn come_together(&mut self, what: &str, limit: Duration) -> Result<(), String> {
        let until = self.sim.elapsed() + limit;
        loop {
            for _ in 0..LOOK {
                self.step()?;
            }
            let going = self.leaving.keys().chain(self.starts.keys()).next();
            let missing = match going {
                Some(machine) => Some(format!("{} is not up", machine.host())),
                None => self.cluster.apart(),
            };
            let Some(missing) = missing else {
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
        for (machine, ended) in ended {
            let why = &ended.what;
            match self.fuses.get(&machine) {
                Some(&down) => {
                    self.note(&format!("{} has no power: {why}", machine.host()));
                    self.crash(machine, true, down);
                }
                None if self.sick.contains(&machine) => {
                    self.note(&format!("{} is sick: {why}", machine.host()));
                    self.crash(machine, false, Duration::from_secs(1));
                }
                None if ended.starts_anew => {
                    self.note(&format!("{} starts anew: {why}", machine.host()));
                    self.crash(machine, false, TICK);
                }
                None => {
                    let host = machine.host();
                    return Err(format!("runs-on: {host} has ended itself: {why}"));
                }
            }
        }
        // A broker lives on without its disk, so somebody must see that the machine is gone.
        let dark: Vec<(Machine, Duration)> = self
            .fuses
            .iter()
            .filter(|(machine, _)| matches!(machine, Machine::Broker(_)))
            .filter(|(machine, _)| {
                let disk = self.cluster.disk(**machine);
                disk.simulated().is_without_power()
            })
            .map(|(machine, down)| (*machine, *down))
            .collect();
        for (machine, down) in dark {
            self.note(&format!("{} has no power", machine.host()));
            self.crash(machine, true, down);
        }
        let left = std::mem::take(&mut self.cluster.inner.lock().left);
        for machine in left {
            if let Some(down) = self.leaving.get(&machine).copied() {
                self.note(&format!("{} has left", machine.host()));
                self.crash(machine, false, down);
            }
        }
        let now = self.sim.elapsed();
        let due = self.starts.iter().find(|(_, at)| **at <= now);
        if let Some(machine) = due.map(|(machine, _)| *machine) {
            self.starts.remove(&machine);
            self.note(&format!("{} starts", machine.host()));
            self.sim.bounce(machine.host());
        }
        let found = self.cluster.history.lock().violation.take();
        let found = found.or_else(|| self.cluster.ledger.lock().violation.take());
        match found {
            Some(violation) => Err(violation),
            None => Ok(()),
        }
    }

    fn is_up(&self, machine: Machine) -> bool {
        !self.starts.contains_key(&machine)
    }

    /// Ends a process; `power` says whether what was not synced may be lost.
    fn crash(&mut self, machine: Machine, power: bool, down: Duration) {
        if !self.is_up(machine) {
            return;
        }
        self.fuses.remove(&machine);
        self.leaving.remove(&machine);
        self.sick.remove(&machine);
        match machine {
            Machine::Controller(id) => {
                let running = self.cluster.inner.lock().running.remove(&id);
                drop(running);
            }
            Machine::Broker(id) => {
                let running = self.cluster.inner.lock().brokers.remove(&id);
                drop(running);
            }
        }
        self.sim.crash(machine.host());
        let disk = self.cluster.disk(machine).simulated();
        disk.mend();
        if power {
            disk.crash();
        } else {
            disk.kill();
        }
        self.cluster.history.lock().tally.crashes += 1;
        self.starts.insert(machine, self.sim.elapsed() + down);
    }

    /// Every machine whose power may fail.
    fn machines(&self) -> Vec<Machine> {
        self.cluster.disks.keys().copied().collect()
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
            Fault::Isolate(machine) => {
                let is_kin = |other: &Machine| match machine {
                    Machine::Controller(_) => matches!(other, Machine::Controller(_)),
                    Machine::Broker(_) => matches!(other, Machine::Broker(_)),
                };
                for other in self.machines() {
                    if other != machine && is_kin(&other) {
                        self.fall_ill(machine.host(), other.host(), Ill::Cut);
                    }
                }
            }
            Fault::Mend => self.mend_all(),
            Fault::Slow(latency) => self.sim.set_max_message_latency(latency),
            Fault::PowerCut(machine, down) => self.crash(machine, true, down),
            Fault::PowerCutAfter(machine, changes, down) => {
                if self.is_up(machine) {
                    let disk = self.cluster.disk(machine).simulated();
                    disk.cut_power_after(changes);
                    self.fuses.insert(machine, down);
                }
            }
            Fault::Kill(machine, down) => self.crash(machine, false, down),
            Fault::Leave(id, down) => {
                if let Some(running) = self.cluster.inner.lock().brokers.get(&id) {
                    running.leave.cancel();
                    self.leaving.insert(Machine::Broker(id), down);
                }
            }
            Fault::BadSync(id) => {
                let machine = Machine::Broker(id);
                // What a broker lacks when it registers counts as lost, by design; so it fails later.
                let is_registered = {
                    let inner = self.cluster.inner.lock();
                    let running = inner.brokers.get(&id);
                    let rooms = running.and_then(|running| running.rooms.upgrade());
                    rooms.is_some_and(|rooms| rooms.membership.epoch().is_some())
                };
                if is_registered {
                    self.cluster.disk(machine).simulated().fail_next_sync();
                    self.sick.insert(machine);
                }
            }
            Fault::PowerCutEverywhere(down) => {
                for machine in self.machines() {
                    self.crash(machine, true, down);
                }
            }
            Fault::MoveClock(machine, millis) => {
                let inner = self.cluster.inner.lock();
                let clock = match machine {
                    Machine::Controller(id) => inner.running.get(&id).map(|one| &one.clock),
                    Machine::Broker(id) => inner.brokers.get(&id).map(|one| &one.clock),
                };
                if let Some(clock) = clock {
                    let drift = clock.now().wall.0 - Clock::seeded(0).now().wall.0;
                    let most = CLOCK_DRIFT.as_millis() as i64;
                    clock.move_wall((drift + millis).clamp(-most, most) - drift);
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
        let fuses: Vec<Machine> = self.fuses.keys().copied().collect();
        for machine in fuses {
            self.crash(machine, true, Duration::ZERO);
        }
        let sick: Vec<Machine> = self.sick.iter().copied().collect();
        for machine in sick {
            self.crash(machine, false, Duration::ZERO);
        }
        let now = self.sim.elapsed();
        for time in self.starts.values_mut() {
            *time = now;
        }
        for down in self.leaving.values_mut() {
            *down = Duration::ZERO;
        }
    }
}
