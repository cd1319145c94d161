//! `kuorum-broker format` gives log directories their identity, `kuorum-broker run` is a broker.
//! Law: what is wrong is said in one line that says what to do; SIGTERM and SIGINT are the one way down.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use kuorum_broker::broker::{self, Broker, Failure, Outside};
use kuorum_broker::config;
use kuorum_metadata::config_def::LogFormat;
use kuorum_transport::{Clock, descriptors};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Threads for work that blocks: opening and closing logs, checkpoints, retention.
const BLOCKING_THREADS: usize = 16;

/// A broker of a Kuorum cluster.
#[derive(Debug, Parser)]
#[command(name = "kuorum-broker", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Give this broker's log directories their identity, once, before it first runs.
    Format {
        /// The configuration, a .properties file.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// The cluster's id, the same for every controller and broker.
        #[arg(long, value_name = "ID")]
        cluster_id: String,
    },
    /// Run the broker.
    Run {
        /// The configuration, a .properties file.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
}

fn main() -> ExitCode {
    #[cfg(feature = "mutations")]
    if let Ok(rule) = std::env::var("KUORUM_WITHOUT")
        && let Err(error) = kuorum_metadata::mutation::switch_off_everywhere(&rule)
    {
        panic!("KUORUM_WITHOUT: {error}");
    }
    let result = match Cli::parse().command {
        Command::Format { config, cluster_id } => format(&config, &cluster_id),
        Command::Run { config } => run(&config),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // One line: the causes stand behind each other.
            #[allow(clippy::print_stderr)] // nothing else may be set up yet
            {
                eprintln!("kuorum-broker: {error:#}");
            }
            ExitCode::FAILURE
        }
    }
}

fn format(path: &Path, cluster_id: &str) -> Result<()> {
    let values = config::load(path)?;
    let formatted = broker::format(&values, cluster_id)?;
    #[allow(clippy::print_stdout)] // this is the command's answer
    {
        match formatted.is_empty() {
            true => println!(
                "already formatted for broker {} of cluster {cluster_id}",
                values.node_id
            ),
            false => println!(
                "formatted {} for broker {} of cluster {cluster_id}",
                formatted.join(", "),
                values.node_id
            ),
        }
    }
    Ok(())
}

fn run(path: &Path) -> Result<()> {
    let values = config::load(path)?;
    start_logging(values.log_format);
    descriptors::raise();
    tokio::runtime::Builder::new_multi_thread()
        .max_blocking_threads(BLOCKING_THREADS)
        .enable_all()
        .build()
        .context("cannot start the runtime")?
        .block_on(serve(values))
}

async fn serve(values: kuorum_metadata::config_def::BrokerConfig) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let node_id = values.node_id.0;
    let outside = Outside::machine(&values, Clock::system())?;
    let broker = Broker::start(values, outside).await?;
    tracing::info!(
        node_id,
        client = %broker.client_address(),
        internal = %broker.internal_address(),
        http = %broker.http_address(),
        version = env!("CARGO_PKG_VERSION"),
        "broker started"
    );
    let mut failure = None;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        why = broker.failed() => match why {
            // Others take over, and a restart reads everything anew.
            Failure::Task(_) => bail!(why),
            Failure::ForeignCluster(_) => failure = Some(why),
        }
    }
    tracing::info!(node_id, "going down");
    tokio::select! {
        () = broker.stop() => {}
        // A second signal does not wait for anybody; what that leaves undone is checked at the next start.
        _ = terminate.recv() => tracing::warn!(node_id, "told twice: going down at once"),
        _ = interrupt.recv() => tracing::warn!(node_id, "told twice: going down at once"),
    }
    tracing::info!(node_id, "down");
    failure.map_or(Ok(()), |failure| bail!(failure))
}

/// Levels come from KUORUM_LOG, as in `info,kuorum_broker=debug`.
fn start_logging(format: LogFormat) {
    let filter = EnvFilter::try_from_env("KUORUM_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Json => builder.json().flatten_event(true).init(),
        LogFormat::Text => builder.with_ansi(false).init(),
    }
}
