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

/// How long a command tries if nobody says.
const TIMEOUT: Duration = Duration::from_secs(30);

/// What every command takes.
#[derive(Clone, Debug, Args)]
struct Global {
    /// Where the controllers serve the admin API; several separated by commas, of which any that answers is enough
    #[arg(
        long,
        global = true,
        env = "KUORUM_ADMIN",
        default_value = "http://localhost:9132,http://localhost:9133,http://localhost:9134"
    )]
    admin: String,
    /// Seconds after which the command gives up, 30 by default; consume ends when no record came for so long, and only if
    /// this is said
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
    /// Brokers to begin with, host:port separated by commas
    #[arg(
        short,
        long,
        env = "KUORUM_BOOTSTRAP",
        default_value = "localhost:9092,localhost:9093,localhost:9094"
    )]
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
    /// List, describe and drain brokers
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
    fn the_examples_of_the_documentation_parse() {
        let rows = [
            "topics create payments --partitions 3",
            "topics create t --replication-factor 3 --config min.insync.replicas=2",
            "topics add-partitions payments --count 6 --dry-run",
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
