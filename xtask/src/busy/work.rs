//! The work that keeps the machine busy, and how long it takes.
//!
//! Part of busy. It must not know whether anything is traced.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::bench::programs;
use crate::{process, run};

/// The number of files of the C++ project that is compiled.
const SOURCES: u32 = 6;

/// The number of types in each file.
const TYPES: u32 = 60;

/// The number of requests of each kind to the server.
const REQUESTS: u32 = 100_000;

/// Short commands: shells, one after another, that start three programs each.
const SHORT: &str = "i=0; while [ $i -lt 500 ]; do sh -c '/bin/true; /bin/ls / | /usr/bin/sort' > /dev/null || exit 1; \
                     i=$((i + 1)); done";

/// The forks of the fork bomb, and how many of its processes run at a time.
const BOMB: [&str; 2] = ["5000", "200"];

/// Work that keeps the machine busy.
pub(super) struct Work {
    pub(super) name: &'static str,
    command: Vec<OsString>,
    /// The number of repetitions, one after another.
    times: u32,
    /// The folder of a server and its benchmark.
    serves_in: Option<PathBuf>,
}

/// What doing a work once has shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Done {
    /// The mean, if it was done several times.
    pub(super) took: Duration,
    /// The 99th percentile of a server's response times, in milliseconds.
    pub(super) p99_ms: Option<f64>,
}

/// The programs of work.
pub(super) struct Programs {
    /// Those that run for long enough to be traced in every run.
    pub(super) long: &'static [&'static str],
    /// Those that are only traced from birth.
    pub(super) short: &'static [&'static str],
}

/// The programs of the mix.
pub(super) const MIX: Programs = Programs {
    long: &["cc1plus", "redis-server", "redis-benchmark"],
    short: &["sh", "ls", "sort"],
};

/// The program of the fork bomb.
pub(super) const BOMBS: Programs = Programs {
    long: &[],
    short: &["bomb"],
};

/// A fork bomb within a limit of processes, and nothing else.
pub(super) fn fork_bomb() -> Result<Vec<Work>> {
    let program = run::compile_c("xtask/bench/bomb.c", &["-O2"])?;
    let arguments = BOMB.map(OsString::from);
    Ok(vec![Work {
        name: "a fork bomb",
        command: [program.into()].into_iter().chain(arguments).collect(),
        times: 1,
        serves_in: None,
    }])
}

/// The mix.
pub(super) fn mix(folder: &Path) -> Result<Vec<Work>> {
    Ok(vec![
        Work {
            name: "compiles C++",
            command: programs::cplusplus(folder, TYPES)?,
            times: SOURCES,
            serves_in: None,
        },
        Work {
            name: "serves redis",
            command: programs::redis(folder, REQUESTS)?,
            times: 1,
            serves_in: Some(folder.to_owned()),
        },
        Work {
            name: "2,000 short commands",
            command: ["sh", "-c", SHORT].map(OsString::from).into(),
            times: 1,
            serves_in: None,
        },
    ])
}

/// Does all work, at once or one after another, and again until this time is over; an error if one fails.
pub(super) fn round(all: &[Work], apart: bool, at_least: Duration) -> Result<Vec<Done>> {
    let share = |work: &Work, time: Duration| {
        let done = repeated(work, time)?;
        let p99 = done.p99_ms.map(|p99| format!(", 99 % within {p99} ms"));
        println!(
            "    {}: {:.2} s{}",
            work.name,
            done.took.as_secs_f64(),
            p99.unwrap_or_default()
        );
        Ok(done)
    };
    if apart {
        let time = at_least / u32::try_from(all.len()).unwrap_or(1).max(1);
        return all.iter().map(|work| share(work, time)).collect();
    }
    thread::scope(|scope| {
        let start = |work| scope.spawn(move || share(work, at_least));
        let running: Vec<_> = all.iter().map(start).collect();
        running
            .into_iter()
            .map(|it| it.join().unwrap_or_else(|_| bail!("a thread failed")))
            .collect()
    })
}

fn repeated(work: &Work, at_least: Duration) -> Result<Done> {
    let began = Instant::now();
    let mut times = 0;
    let mut p99s = Vec::new();
    while times == 0 || began.elapsed() < at_least {
        p99s.extend(once(work)?);
        times += 1;
    }
    Ok(Done {
        took: began.elapsed() / times,
        p99_ms: (!p99s.is_empty()).then(|| p99s.iter().sum::<f64>() / p99s.len() as f64),
    })
}

/// Does a work, and returns the 99th percentiles of a server's response times.
fn once(work: &Work) -> Result<Vec<f64>> {
    let (program, args) = work.command.split_first().context("an empty command")?;
    let mut p99s = Vec::new();
    for _ in 0..work.times {
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::null());
        process::output(&mut command)?;
        if let Some(folder) = &work.serves_in {
            p99s.extend(programs::p99(folder)?);
        }
    }
    Ok(p99s)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that work is done again until the time is over, and that failing work is an error.
    #[test]
    fn work_is_repeated() {
        let of = |script: &str| Work {
            name: "work",
            command: ["sh", "-c", script].map(OsString::from).into(),
            times: 1,
            serves_in: None,
        };
        let time = Duration::from_millis(300);
        for apart in [true, false] {
            let began = Instant::now();
            let done = round(&[of("sleep 0.02"), of("true")], apart, time).unwrap();
            assert!(began.elapsed() >= time, "{done:?}");
            assert!(done[0].took < time, "{done:?}");
            assert!(round(&[of("exit 3")], apart, time).is_err());
        }
    }
}
