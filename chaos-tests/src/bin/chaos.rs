//! `make chaos`: scenarios with real processes, each with a report of its own.
#![allow(clippy::print_stdout)] // a person watches

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;
use kuorum_chaos_tests::chaos::lab::{Ended, Lab, Options};
use kuorum_chaos_tests::chaos::report::{self, Line};
use kuorum_chaos_tests::chaos::scenarios::{self, Scenario};
use kuorum_chaos_tests::chaos::{history, sandbox};
use kuorum_chaos_tests::cluster::LocalCluster;

/// A story that hangs must not hang everything.
const LIMIT: Duration = Duration::from_secs(600);

/// Breaks a cluster of real processes on purpose, and holds what it promised against what is there.
#[derive(Debug, Parser)]
struct Arguments {
    /// Scenarios by name; all of them if left out.
    #[arg(long = "scenario", value_name = "NAME")]
    scenarios: Vec<String>,
    /// Only those that `make chaos-smoke` runs.
    #[arg(long)]
    smoke: bool,
    /// What there is, with the rules it guards.
    #[arg(long)]
    list: bool,
    /// Divides the sizes of the power cut's story.
    #[arg(long, env = "SCALE", default_value_t = 1)]
    scale: u64,
    /// Decides what a power cut takes.
    #[arg(long, env = "SEED", default_value_t = 1)]
    seed: u64,
    /// Goes on with other seeds until so many minutes are over.
    #[arg(long, env = "MINUTES", default_value_t = 0)]
    minutes: u64,
    /// Where reports are written: a file if one scenario is named and this ends in .html, else a folder.
    #[arg(long, default_value = ".chaos-report")]
    report: PathBuf,
    /// Where clusters live while they are under test.
    #[arg(long, env = "CHAOS_DIR", default_value = ".cluster-chaos")]
    folder: PathBuf,
    /// The first port of a cluster, where nodes share the loopback device.
    #[arg(long, env = "CHAOS_PORT_BASE", default_value_t = 29_092)]
    port_base: u16,
    /// Nodes share the loopback device, even where they could be hosts of their own.
    #[arg(long)]
    loopback: bool,
    /// Runs each scenario once for every rule it guards, with that rule removed from the programs; each time it must fail.
    #[cfg(feature = "mutations")]
    #[arg(long)]
    mutations: bool,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    if arguments.list {
        for scenario in scenarios::ALL {
            println!("{:<28} {}", scenario.name, scenario.story);
            println!("{:<28} guards {}", "", scenario.guards);
            println!("{:<28} without: {}", "", scenario.without);
            println!("{:<28} fails without {:?}", "", scenario.fails_without);
            println!("{:<28} judged by {}\n", "", scenario.checkers.join(", "));
        }
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.scale == 0 {
        bail!("--scale divides: 1 is the story's own size");
    }
    #[cfg(feature = "mutations")]
    if arguments.mutations {
        return without::run(&chosen(&arguments)?, &arguments);
    }
    if !arguments.loopback {
        sandbox::enter()?;
    }
    run(&arguments)
}

/// A scenario that cannot fail proves nothing: each is run with the rules that it guards removed, one at a time.
#[cfg(feature = "mutations")]
mod without {
    use std::process::{Command, ExitCode};

    use anyhow::Result;
    use kuorum_chaos_tests::chaos::scenarios::Scenario;

    use super::Arguments;

    /// What came of one run.
    enum Came {
        /// It failed, and this is the first thing that it says about it.
        Failed(String),
        Held,
        NotRun(String),
        /// It did not come so far as to prove anything.
        Broke(String),
    }

    pub(super) fn run(scenarios: &[&'static Scenario], arguments: &Arguments) -> Result<ExitCode> {
        let (mut missed, mut held, mut broke) = (0, 0, 0);
        for scenario in scenarios {
            for rule in scenario.fails_without {
                let rule = format!("{rule:?}");
                let says = match one(scenario, &rule, arguments)? {
                    Came::Failed(how) => {
                        missed += 1;
                        let how: String = how.chars().take(160).collect();
                        format!("failed, as it must: {how}")
                    }
                    Came::NotRun(why) => format!("not run: {why}"),
                    Came::Broke(how) => {
                        broke += 1;
                        format!("COULD NOT BE RUN: {how}")
                    }
                    Came::Held => {
                        held += 1;
                        "HELD, so it does not guard this rule".to_owned()
                    }
                };
                println!("  {:<26} without {rule}: {says}", scenario.name);
            }
        }
        println!("{missed} rules were missed, {held} were not, {broke} runs broke");
        let proved = missed > 0 && held + broke == 0;
        Ok(ExitCode::from(u8::from(!proved)))
    }

    /// The same program once more, in whose children one rule is off.
    fn one(scenario: &Scenario, rule: &str, arguments: &Arguments) -> Result<Came> {
        let report = arguments.report.join("without").join(rule);
        let output = Command::new(std::env::current_exe()?)
            .args(["--scenario", scenario.name])
            .args(["--seed", &arguments.seed.to_string()])
            .args(["--scale", &arguments.scale.to_string()])
            .arg("--report")
            .arg(report)
            .env("KUORUM_WITHOUT", rule)
            .output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        let mut lines = said
            .lines()
            .skip_while(|line| !line.contains(scenario.name));
        let line = lines.next().unwrap_or_default();
        if let Some((_, why)) = line.split_once("not run: ") {
            return Ok(Came::NotRun(why.to_owned()));
        }
        if output.status.success() {
            return Ok(Came::Held);
        }
        let how = lines.next().unwrap_or_default().trim();
        if !line.contains("FAILED") || how.is_empty() {
            let error = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Ok(Came::Broke(error));
        }
        Ok(Came::Failed(how.to_owned()))
    }
}

/// Runs one scenario in a runtime of its own: what it leaves under way ends with it.
fn one_alone(scenario: &'static Scenario, options: &Options, file: &Path) -> Result<Line> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let line = runtime.block_on(async {
        tokio::select! {
            done = one(scenario, options, file) => done,
            // Dropping what is under way ends its processes.
            _ = tokio::signal::ctrl_c() => bail!("interrupted"),
        }
    });
    runtime.shutdown_timeout(Duration::from_secs(5));
    line
}

fn chosen(arguments: &Arguments) -> Result<Vec<&'static Scenario>> {
    if arguments.scenarios.is_empty() {
        let all = scenarios::ALL.iter();
        return Ok(all
            .filter(|scenario| scenario.smoke || !arguments.smoke)
            .collect());
    }
    arguments
        .scenarios
        .iter()
        .map(|name| {
            scenarios::named(name)
                .with_context(|| format!("there is no scenario {name:?}: --list shows them"))
        })
        .collect()
}

fn run(arguments: &Arguments) -> Result<ExitCode> {
    let scenarios = chosen(arguments)?;
    let mut options = Options {
        folder: arguments.folder.clone(),
        port_base: arguments.port_base,
        binaries: LocalCluster::built_binaries()?,
        seed: arguments.seed,
        scale: arguments.scale,
        hosts: sandbox::inside(),
    };
    let one_file = arguments
        .report
        .extension()
        .is_some_and(|ending| ending == "html");
    if one_file && scenarios.len() != 1 {
        bail!(
            "--report names one file, and there are {} scenarios",
            scenarios.len()
        );
    }
    let folder = match one_file {
        true => arguments
            .report
            .parent()
            .unwrap_or(Path::new("."))
            .to_owned(),
        false => arguments.report.clone(),
    };
    std::fs::create_dir_all(&folder)?;
    println!(
        "{} scenarios, seed {}, scale 1:{}, nodes {}",
        scenarios.len(),
        options.seed,
        options.scale,
        if options.hosts {
            "are hosts of their own"
        } else {
            "share the loopback device"
        }
    );
    let began = Instant::now();
    let mut failed = false;
    loop {
        let mut lines = Vec::new();
        for scenario in &scenarios {
            let file = match one_file {
                true => arguments.report.clone(),
                false => folder.join(format!("{}.html", scenario.name)),
            };
            let line = one_alone(scenario, &options, &file)?;
            failed |= !line.passed;
            lines.push(line);
        }
        if !one_file {
            std::fs::write(folder.join("index.html"), report::index(&lines))?;
        }
        if failed || began.elapsed() >= Duration::from_secs(60 * arguments.minutes) {
            break;
        }
        options.seed += 1;
        println!("again, with seed {}", options.seed);
    }
    let shown = match one_file {
        true => arguments.report.clone(),
        false => folder.join("index.html"),
    };
    println!(
        "{} after {:.0} s; report: {}",
        if failed { "FAILED" } else { "all held" },
        began.elapsed().as_secs_f64(),
        shown.display()
    );
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Runs one scenario, writes its report, and says how it went.
async fn one(scenario: &'static Scenario, options: &Options, file: &Path) -> Result<Line> {
    let missing = if scenario.needs.hosts && !options.hosts {
        Some("needs nodes that are hosts of their own (root, or user namespaces)")
    } else if scenario.needs.chaos_build && !cfg!(feature = "chaos") {
        Some("needs the programs of the chaos build (make chaos-build)")
    } else {
        None
    };
    if let Some(missing) = missing {
        println!("  {:<28} not run: {missing}", scenario.name);
        return Ok(Line {
            name: scenario.name,
            passed: true,
            seconds: 0.0,
            says: missing.to_owned(),
            file: None,
        });
    }
    let began = Instant::now();
    let lab = Lab::begin(scenario.name, scenario.set, options).await?;
    let story = async {
        (scenario.run)(&lab).await?;
        lab.finish().await
    };
    let failure = match tokio::time::timeout(LIMIT, story).await {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(format!("{error:#}")),
        Err(_) => Some(format!("not at its end after {LIMIT:?}")),
    };
    lab.halt().await;
    let ended = lab.judge();
    let broken: Vec<String> = ended
        .verdicts
        .iter()
        .filter_map(|verdict| {
            let first = verdict.wrong.first()?;
            Some(format!(
                "{}: {first} ({} in all)",
                verdict.name,
                verdict.wrong.len()
            ))
        })
        .collect();
    let passed = failure.is_none() && broken.is_empty();
    std::fs::write(file, report::render(scenario, &ended, failure.as_deref()))?;
    history::save(&ended.entries, &file.with_extension("jsonl"))?;
    if !passed {
        lab.keep_logs(&file.with_extension("logs"))?;
    }
    let says = summary(&ended);
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "  {:<28} {} {seconds:5.0} s  {says}",
        scenario.name,
        if passed { "held  " } else { "FAILED" }
    );
    for problem in failure.iter().chain(&broken) {
        println!("      {problem}");
    }
    if !passed {
        println!(
            "      again: chaos --scenario {} --seed {} --scale {}",
            scenario.name, options.seed, options.scale
        );
    }
    Ok(Line {
        name: scenario.name,
        passed,
        seconds,
        says,
        file: file
            .file_name()
            .map(|name| name.to_string_lossy().into_owned()),
    })
}

fn summary(ended: &Ended) -> String {
    format!(
        "{} acknowledged, {} unknown, {} refused; longest pause {} ms",
        ended.acknowledged,
        ended.unknown,
        ended.failed,
        ended.longest_pause.as_millis()
    )
}
