//! Measures a server that runs for long: its latencies and its processor time while heaptrace is attached to it, and before.
//!
//! Part of bench. The start of a run is not in it. It must not know how heaptrace traces.

use std::ffi::OsString;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::cell::cell;
use super::effort::Effort;
use super::machine::Machine;
use super::measured::Tracing;
use super::mode::{data_file, wait_for};
use super::programs::{self, LATENCIES, parse_p99, parse_time};
use super::section::Section;
use super::stats::Spread;
use crate::{apt, process, run};

/// Where the server is reached, in its folder.
const SOCKET: &str = "socket";

/// Requests of each kind in a measurement.
const REQUESTS: u32 = 100_000;

/// Requests of each kind before that, while heaptrace finds the server, and moves it if it shall.
const FIRST_REQUESTS: u32 = 50_000;

/// Time that the kernel takes to remove the probes of a run.
const AFTERWARDS: Duration = Duration::from_secs(4);

/// A way to trace the server.
struct Way {
    name: &'static str,
    /// heaptrace's options; the server's process id follows if they end in `--pid`. None: nothing happens.
    options: &'static [&'static str],
}

const WAYS: [Way; 5] = [
    Way {
        name: "untraced",
        options: &[],
    },
    Way {
        name: "--fast --pid",
        options: &["--fast", "--pid"],
    },
    Way {
        name: "--all --fast",
        options: &["--all", "--fast"],
    },
    Way {
        name: "--max-overhead 5 --pid",
        options: &["--max-overhead", "5", "--pid"],
    },
    Way {
        name: "--all",
        options: &["--all"],
    },
];

/// What a server did in a measurement: a latency for each kind of request, and its processor time.
struct Served {
    p99: Vec<f64>,
    cpu: f64,
}

/// A running server.
struct Server {
    folder: PathBuf,
    process: Child,
}

/// Measures the server in all ways that the filter selects.
pub(super) fn measure_all(effort: &Effort) -> Result<Section> {
    let ways: Vec<&Way> = WAYS.iter().filter(|it| effort.wants(it.name)).collect();
    if ways.is_empty() {
        return Ok(Section::default());
    }
    apt::ensure(&programs::PACKAGES, "for the server")?;
    let mut server = Server::start(programs::folder()?)?;
    let ratios = server.in_turns(&ways, effort.rounds);
    server.process.kill().context("cannot end the server")?;
    server
        .process
        .wait()
        .context("cannot wait for the server")?;
    let mut text = format!(
        "\n| heaptrace | {} processor time |\n|--|{}\n",
        LATENCIES.map(|kind| format!("p99 of {kind} |")).join(" "),
        "--:|".repeat(LATENCIES.len() + 1)
    );
    for (way, columns) in ways.iter().zip(ratios?) {
        let cells = columns.iter().map(|it| cell(Spread::of(it), 2));
        writeln!(
            text,
            "| {} | {} |",
            way.name,
            cells.collect::<Vec<_>>().join(" | ")
        )?;
    }
    Ok(Section {
        text,
        figures: Vec::new(),
    })
}

impl Server {
    fn start(folder: PathBuf) -> Result<Self> {
        let program = programs::link_server(&folder)?;
        let socket = folder.join(SOCKET);
        if socket.exists() {
            std::fs::remove_file(&socket).context("cannot remove an old socket")?;
        }
        let mut command = Command::new(program);
        command
            .args(["--port", "0", "--unixsocket", SOCKET, "--save", ""])
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let process = command.spawn().context("cannot start redis-server")?;
        Ok(Self { folder, process })
    }

    /// For each way, the ratios of each column in each round.
    fn in_turns(&self, ways: &[&Way], rounds: u32) -> Result<Vec<Vec<Vec<f64>>>> {
        process::wait_for_file(
            &self.folder.join(SOCKET),
            "redis-server did not begin to serve",
        )?;
        let mut all = vec![vec![Vec::new(); LATENCIES.len() + 1]; ways.len()];
        for round in 1..=rounds {
            for (way, columns) in ways.iter().zip(&mut all) {
                let before = self.serve_warm()?;
                let served = self.serve_traced(way)?;
                let ratios = served
                    .p99
                    .iter()
                    .zip(&before.p99)
                    .map(|(it, base)| it / base);
                let ratios: Vec<f64> = ratios.chain([served.cpu / before.cpu]).collect();
                println!("    {}, round {round} of {rounds}: {ratios:.2?}", way.name);
                for (column, ratio) in columns.iter_mut().zip(ratios) {
                    column.push(ratio);
                }
            }
        }
        Ok(all)
    }

    fn serve_traced(&self, way: &Way) -> Result<Served> {
        if way.options.is_empty() {
            return self.serve_warm();
        }
        let data = data_file()?;
        let mut words: Vec<OsString> = vec!["record".into(), "-o".into(), (&data).into()];
        words.extend(way.options.iter().map(OsString::from));
        if way.options.ends_with(&["--pid"]) {
            words.push(self.process.id().to_string().into());
        }
        let mut tracer = run::heaptrace(&words)?
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start heaptrace")?;
        let served = wait_for(&data).and_then(|()| self.serve_warm());
        process::signal(&tracer, "INT")?;
        tracer.wait().context("cannot wait for heaptrace")?;
        let served = served?;
        let lost = Tracing::of(&data)?.lost;
        if lost > 0 {
            bail!("{}: heaptrace lost {lost} events", way.name);
        }
        sleep(AFTERWARDS);
        Ok(served)
    }

    /// Lets the server answer requests, of which the first ones don't count: after a pause it is slow for a while.
    fn serve_warm(&self) -> Result<Served> {
        self.serve(FIRST_REQUESTS)?;
        self.serve(REQUESTS)
    }

    /// Lets the server answer so many requests of each kind.
    fn serve(&self, requests: u32) -> Result<Served> {
        let before = self.cpu()?;
        let mut printed = String::new();
        // One client for each kind: it ends within a second, before `--all` would trace it, too.
        for kind in LATENCIES {
            let mut client = Command::new("redis-benchmark");
            client
                .args(["-s", SOCKET, "--csv", "-t", &kind.to_lowercase(), "-n"])
                .arg(requests.to_string())
                .current_dir(&self.folder);
            printed += &process::output(&mut client)?;
        }
        let p99 = parse_p99(&printed).context("redis-benchmark printed no latencies")?;
        Ok(Served {
            p99,
            cpu: self.cpu()? - before,
        })
    }

    /// The processor time that the server has used.
    fn cpu(&self) -> Result<f64> {
        let mut client = Command::new("redis-cli");
        client
            .args(["-s", SOCKET, "info", "cpu"])
            .current_dir(&self.folder);
        parse_time(&process::output(&mut client)?).context("redis printed no processor time")
    }
}

/// The top of the page.
pub(super) fn head(machine: &Machine, rounds: u32) -> String {
    format!(
        "# A server that is attached to\n\n\
         Written by `cargo xtask bench --only attached`; run it for your own machine.\n\n\
         {machine}\n\
         A redis server answers {FIRST_REQUESTS} requests of each kind, and {REQUESTS} more that are measured, from 50 connections of redis-benchmark, which uses the other processor, and ends before `--all` would trace it. Then heaptrace begins to record, and the \
         server does the same again. All options have their defaults: so the sampling \
         rate follows the load. The latency p99 is that of the slowest percent of requests. The processor time is what the server says of \
         itself. The first row, with nothing on both sides, shows how exact that is. A ratio is the median of {rounds} rounds, with the smallest and the largest in parentheses.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that one way traces nothing, and that only ways that name no process trace all.
    #[test]
    fn ways_name_their_target() {
        assert_eq!(WAYS.iter().filter(|it| it.options.is_empty()).count(), 1);
        for way in WAYS.iter().filter(|it| !it.options.is_empty()) {
            let (all, pid) = (
                way.options.contains(&"--all"),
                way.options.ends_with(&["--pid"]),
            );
            assert!(all != pid, "{}", way.name);
        }
    }
}
