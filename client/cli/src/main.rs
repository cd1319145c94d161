//! `kuorum`, the tool: records in and out, and everything an operator asks of a cluster.
//! Law: every call has a deadline. Answers go to stdout, notes to stderr, and the exit code says what happened: 0 done,
//! 1 usage, 2 refused, 3 unreachable or out of time, 4 done in part.

mod admin;
mod brokers;
mod configs;
mod consume;
mod dump_log;
mod elect_leaders;
mod events;
mod failure;
mod format;
mod output;
mod produce;
mod reassignments;
mod salvage;
mod status;
mod time;
mod topics;

use std::process::ExitCode;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Parser, Subcommand};

use crate::failure::{Exit, Failure};
use crate::output::Output;

/// Kuorum: a replicated log that speaks Kafka's protocol.
#[derive(Debug, Parser)]
#[command(name = "kuorum", version, about, propagate_version = true)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// The controllers and the brokers of the local cluster.
const LOCAL_ADMIN: &str = "http://localhost:9132,http://localhost:9133,http://localhost:9134";
const LOCAL_BOOTSTRAP: &str = "localhost:9092,localhost:9093,localhost:9094";

/// What the environment says, or else what is usual. Not clap's own `env`: a usage line would then name what is required
/// together with whatever the environment happens to say.
fn said(variable: &str, usual: &str) -> String {
    match std::env::var(variable) {
        Ok(said) if !said.trim().is_empty() => said,
        _ => usual.to_owned(),
    }
}

/// The brokers to begin with when the command line names none.
fn usual_bootstrap() -> String {
    said("KUORUM_BOOTSTRAP", LOCAL_BOOTSTRAP)
}

/// How long a command tries if nobody says.
const TIMEOUT: Duration = Duration::from_secs(30);

/// What every command takes.
#[derive(Clone, Debug, Args)]
struct Global {
    /// Where the controllers serve the admin API; several separated by commas, of which any that answers is enough.
    /// KUORUM_ADMIN says it once for all commands
    #[arg(long, global = true, default_value_t = said("KUORUM_ADMIN", LOCAL_ADMIN))]
    admin: String,
    /// Seconds after which the command gives up, 30 by default
    #[arg(long, global = true, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    timeout: Option<u64>,
    /// How answers are written
    #[arg(short, long, global = true, value_enum, default_value_t = Output::Table)]
    output: Output,
}

impl Global {
    fn timeout(&self) -> Duration {
        self.said_timeout().unwrap_or(TIMEOUT)
    }

    /// The timeout, if the command line names one.
    fn said_timeout(&self) -> Option<Duration> {
        self.timeout.map(Duration::from_secs)
    }
}

/// Where the brokers are.
#[derive(Clone, Debug, Args)]
struct Bootstrap {
    /// Brokers to begin with, host:port separated by commas. KUORUM_BOOTSTRAP says it once for all commands
    #[arg(short, long, default_value_t = usual_bootstrap())]
    bootstrap_server: String,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write lines as records
    Produce(produce::Produce),
    /// Read records
    Consume(consume::Consume),
    /// Create, list, describe, delete and grow topics
    #[command(subcommand)]
    Topics(topics::Topics),
    /// Show and change settings, with the options of kafka-configs
    Configs(configs::Configs),
    /// List, describe, drain and unregister brokers
    #[command(subcommand)]
    Brokers(brokers::Brokers),
    /// Elect preferred leaders, or unclean ones
    ElectLeaders(elect_leaders::ElectLeaders),
    /// Move replicas to other brokers: plan, run, list, cancel
    #[command(subcommand)]
    Reassignments(reassignments::Reassignments),
    /// Show what happened in the cluster, and follow what happens
    Events(events::Events),
    /// Show, export, replay and delete what an unclean election made replicas cut off
    #[command(subcommand)]
    Salvage(salvage::Salvage),
    /// Show the cluster's health, its controllers and its brokers
    Status(status::Status),
    /// Show the batches of log files on this machine
    DumpLog(dump_log::DumpLog),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Clap writes help to stdout and mistakes to stderr; if neither can be written there is nobody to tell.
            let _ = error.print();
            if let Some(tip) = tip(&error) {
                output::note(tip);
            }
            return match error.use_stderr() {
                true => Exit::Usage.into(),
                false => ExitCode::SUCCESS,
            };
        }
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return Failure::usage(format!("cannot start: {error}")).report(),
    };
    let result = runtime.block_on(run(cli));
    // A thread may still be waiting for a line from stdin.
    runtime.shutdown_background();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// What clap cannot know about a wrong command line.
fn tip(error: &clap::Error) -> Option<&'static str> {
    let argument = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(argument)) => argument.as_str(),
        _ => return None,
    };
    let is_unknown = error.kind() == ErrorKind::UnknownArgument;
    (is_unknown && ["--bootstrap-server", "-b"].contains(&argument)).then_some(
        "\nThis command asks the controllers, not the brokers: --admin http://HOST:PORT or KUORUM_ADMIN says where they are. \
         Only produce, consume and configs take --bootstrap-server.",
    )
}

async fn run(cli: Cli) -> Result<(), Failure> {
    let global = cli.global;
    match cli.command {
        Command::Produce(command) => Box::pin(command.run(&global)).await,
        Command::Consume(command) => Box::pin(command.run(&global)).await,
        Command::Topics(command) => Box::pin(command.run(&global)).await,
        Command::Configs(command) => Box::pin(command.run(&global)).await,
        Command::Brokers(command) => command.run(&global).await,
        Command::ElectLeaders(command) => command.run(&global).await,
        Command::Reassignments(command) => Box::pin(command.run(&global)).await,
        Command::Events(command) => Box::pin(command.run(&global)).await,
        Command::Salvage(command) => Box::pin(command.run(&global)).await,
        Command::Status(command) => command.run(&global).await,
        Command::DumpLog(command) => command.run(&global),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_is_wrong_is_said_so_that_it_can_be_mended() {
        let rows: &[(&str, &[&str], &[&str])] = &[
            (
                "topics list --bootstrap-server localhost:9092",
                &["--bootstrap-server", "KUORUM_ADMIN"],
                &[],
            ),
            ("status -b localhost:9092", &["KUORUM_ADMIN"], &[]),
            (
                "produce",
                &["kuorum produce", "--topic <TOPIC>"],
                &["--admin", "--bootstrap-server"],
            ),
            (
                "reassignments run --throttle 5",
                &["required", "--topics", "--file", "--partition"],
                &[],
            ),
            (
                "reassignments cancel",
                &["required", "--topic", "--all"],
                &[],
            ),
        ];
        for (line, wanted, unwanted) in rows {
            let words = std::iter::once("kuorum").chain(line.split_whitespace());
            let error = Cli::try_parse_from(words).expect_err(line);
            let text = format!("{error}{}", tip(&error).unwrap_or_default());
            for part in *wanted {
                assert!(text.contains(part), "{line}: {part:?} is missing in {text}");
            }
            for part in *unwanted {
                assert!(!text.contains(part), "{line}: {part:?} is in {text}");
            }
        }
    }

    #[test]
    fn the_examples_of_the_documentation_parse() {
        let rows = [
            "topics create payments --partitions 3",
            "topics create t --replication-factor 3 --config min.insync.replicas=2",
            "topics add-partitions payments --count 6 --dry-run",
            "topics add-partitions payments --partitions 6 --yes",
            "topics delete a b --yes",
            "produce -t payments -k |",
            "consume -t payments -e",
            "consume -t payments --timeout 2",
            "consume -t payments -p 0 --offset 5 -c 10 -f %t:%p:%o:%k=%s\\n -o json",
            "configs --bootstrap-server localhost:9092 --entity-type topics --entity-name telemetry-logs \
             --alter --add-config unclean.leader.election.enable=true",
            "configs --entity-type topics --entity-name bank-transfers --describe --all",
            "configs --entity-type brokers --entity-default --alter \
             --delete-config unclean.leader.election.enable",
            "status -o json",
            "brokers describe 1",
            "events --follow --topic payments -o json",
            "events --type leader_changed,isr_shrunk --broker 1 --since 10m -n 5",
            "topics epochs payments --partition 2",
            "brokers drain 1",
            "brokers undrain 1",
            "brokers unregister 4 --yes",
            "configs --entity-type brokers --entity-name 1 --describe --all",
            "elect-leaders --type unclean --topic t --partition 0 --yes",
            "reassignments plan --topics payments --brokers 4,5,6 -o json",
            "reassignments run --topics payments,orders --brokers 4,5,6 --throttle 10000000",
            "reassignments run --file plan.json --dry-run",
            "reassignments run --partition payments:0=4,5,6 --partition payments:1=5,6,4",
            "reassignments list",
            "reassignments cancel --topic payments --partition 0,1",
            "reassignments cancel --all",
            "dump-log data/payments-0 --records",
            "salvage list -o json",
            "salvage show a-0-5-150000 --records 3",
            "salvage export a-0-5-150000 --format jsonl --to -",
            "salvage replay a-0-5-150000 --target telemetry-logs",
            "salvage delete a-0-5-150000 --yes",
        ];
        for row in rows {
            let words = std::iter::once("kuorum").chain(row.split_whitespace());
            if let Err(error) = Cli::try_parse_from(words) {
                panic!("{row}: {error}");
            }
        }
    }
}
