//! `kuorum-controller format` gives a directory its identity, `kuorum-controller run` is a controller.
//! Law: what is wrong is said in one line that says what to do; SIGTERM and SIGINT are the one way down.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Args, Parser, Subcommand};
use kuorum_controller::controller::Controller;
use kuorum_controller::identity;
use kuorum_metadata::config_def::{ControllerConfig, LogFormat, parse_properties};
use kuorum_transport::{Clock, descriptors};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A controller of a Kuorum cluster.
#[derive(Debug, Parser)]
#[command(name = "kuorum-controller", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Give this controller's directory its identity, once, before it first runs.
    Format(Format),
    /// Run the controller.
    Run {
        /// The configuration, a .properties file.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
}

#[derive(Debug, Args)]
struct Format {
    /// The configuration, a .properties file.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The cluster's id, the same for every controller and broker.
    #[arg(long, value_name = "ID", required_unless_present = "generate")]
    cluster_id: Option<String>,
    /// Make up a cluster id; give the other processes the one that is printed.
    #[arg(long, conflicts_with = "cluster_id")]
    generate: bool,
}

fn main() -> ExitCode {
    #[cfg(feature = "mutations")]
    if let Ok(rule) = std::env::var("KUORUM_WITHOUT")
        && let Err(error) = kuorum_metadata::mutation::switch_off_everywhere(&rule)
    {
        panic!("KUORUM_WITHOUT: {error}");
    }
    let result = match Cli::parse().command {
        Command::Format(format) => format_directory(&format),
        Command::Run { config } => run(&config),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // One line: the causes stand behind each other.
            #[allow(clippy::print_stderr)] // nothing else may be set up yet
            {
                eprintln!("kuorum-controller: {error:#}");
            }
            ExitCode::FAILURE
        }
    }
}

fn load(path: &Path) -> Result<ControllerConfig> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the configuration {}", path.display()))?;
    let raw = parse_properties(&text).with_context(|| path.display().to_string())?;
    ControllerConfig::load(&raw).with_context(|| path.display().to_string())
}

fn format_directory(format: &Format) -> Result<()> {
    let config = load(&format.config)?;
    let cluster_id = match &format.cluster_id {
        Some(id) => id.clone(),
        None => identity::generate_cluster_id(),
    };
    let identity = identity::format(&config.metadata_log_dir, &cluster_id, config.node_id)?;
    #[allow(clippy::print_stdout)] // this is the command's answer
    {
        println!(
            "formatted {} for controller {} of cluster {}",
            config.metadata_log_dir.display(),
            identity.controller_id,
            identity.cluster_id
        );
    }
    Ok(())
}

fn run(path: &Path) -> Result<()> {
    let config = load(path)?;
    start_logging(config.log_format);
    descriptors::raise();
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?
        .block_on(serve(config))
}

async fn serve(config: ControllerConfig) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let node_id = config.node_id;
    let controller = Controller::start(config, Clock::system()).await?;
    tracing::info!(
        node_id,
        quorum = %controller.rpc_address(),
        admin = %controller.admin_address(),
        version = env!("CARGO_PKG_VERSION"),
        "controller started"
    );
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        ended = controller.failed() => {
            // What is in memory may not be what is on disk: nothing more is written.
            match ended.starts_anew {
                true => return Err(start_anew(&ended.what)),
                false => bail!("{}; repair the cause and start this controller again", ended.what),
            }
        }
    }
    tracing::info!(node_id, "going down");
    controller.stop().await;
    tracing::info!(node_id, "down");
    Ok(())
}

/// Puts a new process in the place of this one, with all it was given; comes back only if that fails.
fn start_anew(why: &str) -> anyhow::Error {
    tracing::warn!("starting anew, as nothing is wrong with the directory");
    let mut arguments = std::env::args_os();
    let program = arguments.next().unwrap_or_default();
    let program = std::env::current_exe().unwrap_or_else(|_| program.into());
    let cause = std::process::Command::new(program).args(arguments).exec();
    anyhow::anyhow!("{why}; it could not be started anew ({cause}): start this controller again")
}

/// Levels come from KUORUM_LOG, as in `info,kuorum_controller=debug`. openraft is silent unless asked: to it every peer that
/// is down is an error, many times a second, and what ends it is reported by `Failure`.
fn start_logging(format: LogFormat) {
    let filter = EnvFilter::try_from_env("KUORUM_LOG")
        .unwrap_or_else(|_| EnvFilter::new("info,openraft=off"));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Json => builder.json().flatten_event(true).init(),
        LogFormat::Text => builder.with_ansi(false).init(),
    }
}
