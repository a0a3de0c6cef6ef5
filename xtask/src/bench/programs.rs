//! Measures the cost of tracing for real programs.
//!
//! Part of bench.

use std::ffi::OsString;
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::cell::{cell, middle};
use super::effort::Effort;
use super::figure::Figure;
use super::measured::Runs;
use super::mode::{EXACT, FLOOR, SAMPLED, UNTRACED, measure};
use super::section::Section;
use super::stats::Spread;
use crate::{apt, process, run, workspace};

/// The Debian packages of the programs.
pub const PACKAGES: [&str; 5] = ["python3", "sqlite3", "jq", "g++", "redis-tools"];

const MODES: [super::mode::Mode; 4] = [UNTRACED, FLOOR, SAMPLED, EXACT];

/// A program to trace.
struct Program {
    name: &'static str,
    /// The work that it does.
    work: &'static str,
    /// Prepares the program in a folder of its own, and returns its command.
    command: fn(&Path) -> Result<Vec<OsString>>,
}

const PROGRAMS: [Program; 6] = [
    Program {
        name: "CPython",
        work: "JSON round trips, with `PYTHONMALLOC=malloc`",
        command: |folder| round_trips(folder, 20),
    },
    Program {
        name: "sqlite3",
        work: "a table of 100,000 rows, an index, and a sum by group",
        command: |_| {
            let sql = "with recursive n(i) as (select 1 union all select i+1 from n where i < 100000) \
                       select count(*) from n; create table t(a, b); insert into t with recursive n(i) as \
                       (select 1 union all select i+1 from n where i < 100000) select i, 'row ' || (i % 100) from n; \
                       create index x on t(b); select b, sum(a) from t group by b;";
            Ok(words(&["sqlite3", ":memory:", sql], &[]))
        },
    },
    Program {
        name: "jq",
        work: "50,000 objects created and added up",
        command: |_| {
            Ok(words(
                &["jq", "-n", "[range(50000)|{a:., b:\"x\"}]|map(.a)|add"],
                &[],
            ))
        },
    },
    Program {
        name: "cc1plus",
        work: "a preprocessed source with the standard library's maps and streams, at -O1",
        command: |folder| cplusplus(folder, 0),
    },
    Program {
        name: "redis",
        work: "60,000 requests of redis-benchmark; both are traced",
        command: |folder| redis(folder, 20_000),
    },
    Program {
        name: "Rust",
        work: "words counted in a `BTreeMap<String, Vec<usize>>`",
        command: |folder| counted_words(folder, 40),
    },
];

/// The folder of the programs.
pub(super) fn folder() -> Result<PathBuf> {
    let folder = workspace::target_dir().join("xtask/programs");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

/// Counts words in Rust, so many times.
pub(super) fn counted_words(folder: &Path, rounds: u32) -> Result<Vec<OsString>> {
    let program = folder.join("words");
    let source = workspace::root().join("xtask/bench/words.rs");
    let mut command = Command::new("rustc");
    command.args(["-O", "-g", "--edition", "2024", "-o"]);
    process::run(command.arg(&program).arg(source))?;
    Ok(vec![program.into(), rounds.to_string().into()])
}

/// A program in Python that converts JSON, so many times.
pub fn round_trips_of_json(rounds: u32) -> String {
    format!(
        "import json\n\
         text = json.dumps([{{'id': i, 'tags': ['a', str(i)]}} for i in range(2000)])\n\
         for _ in range({rounds}): assert len(json.dumps(json.loads(text))) == len(text)\n"
    )
}

/// Converts JSON in Python, so many times. Each run has the same hash values: others take some percent more or less.
pub(super) fn round_trips(folder: &Path, rounds: u32) -> Result<Vec<OsString>> {
    let script = round_trips_of_json(rounds);
    let file = written(folder, &format!("round_trips-{rounds}.py"), &script)?;
    let command = [
        "env",
        "PYTHONMALLOC=malloc",
        "PYTHONHASHSEED=0",
        "/usr/bin/python3",
    ];
    Ok(words(&command, &[file]))
}

/// Compiles C++, without the driver, which only starts other programs.
pub fn cplusplus(folder: &Path, types: u32) -> Result<Vec<OsString>> {
    let mut source = "#include <iostream>\n#include <map>\n\
                  void f(const std::map<std::string, int> &m)\n\
                  { for (auto &i : m) std::cout << i.first << i.second; }\n"
        .to_owned();
    for number in 0..types {
        write!(
            source,
            "struct S{number} {{ int i; bool operator<(const S{number} &o) const {{ return i < o.i; }} }};\n\
             int g(std::map<S{number}, std::string> &m) {{ m[S{number}()] = \"x\"; return m.size(); }}\n"
        )?;
    }
    let source = written(folder, &format!("a{types}.cc"), &source)?;
    let preprocessed = folder.join(format!("a{types}.ii"));
    // The driver knows where the headers are.
    let mut driver = Command::new("g++");
    driver.arg("-E").arg(source).arg("-o").arg(&preprocessed);
    process::run(&mut driver)?;
    let program = process::output(Command::new("g++").arg("-print-prog-name=cc1plus"))?;
    let flags = ["-fpreprocessed", "-quiet", "-O1", "-o", "/dev/null"];
    Ok(words(
        &[&[program.trim()][..], &flags].concat(),
        &[preprocessed.into()],
    ))
}

/// The kinds of requests of redis's benchmark, as it prints them.
pub(super) const LATENCIES: [&str; 3] = ["SET", "GET", "LPUSH"];

/// Where it prints them, in the program's folder.
const LATENCY_FILE: &str = "latency.csv";

/// The latency of the slowest percent of each kind of request in the last run of [`redis`], in milliseconds.
pub fn p99(folder: &Path) -> Result<Vec<f64>> {
    let file = folder.join(LATENCY_FILE);
    let text =
        fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    parse_p99(&text).context("redis-benchmark printed no latencies")
}

/// The latencies in the output of redis-benchmark.
pub(super) fn parse_p99(csv: &str) -> Option<Vec<f64>> {
    let lines = csv.lines().map(|line| {
        let words = line.split(',').map(|word| word.trim_matches('"'));
        words.collect::<Vec<_>>()
    });
    let lines: Vec<_> = lines.collect();
    let names = lines.iter().find(|line| line.first() == Some(&"test"))?;
    let column = names.iter().position(|name| *name == "p99_latency_ms")?;
    let of_kind = |kind: &str| {
        let line = lines.iter().find(|line| line.first() == Some(&kind))?;
        line.get(column)?.parse().ok()
    };
    LATENCIES.iter().map(|kind| of_kind(kind)).collect()
}

/// Where it keeps what the server says of the processor time that it has used.
const TIME_FILE: &str = "time.txt";

/// The processor time that the server has used in the last run of [`redis`], by its own account, in nanoseconds.
pub(super) fn server_time(folder: &Path) -> Result<f64> {
    let file = folder.join(TIME_FILE);
    let text =
        fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    parse_time(&text).context("redis printed no processor time")
}

/// The processor time in what a server says of itself, in nanoseconds.
pub(super) fn parse_time(info: &str) -> Option<f64> {
    let of = |name: &str| {
        let mut lines = info.lines();
        let value = lines.find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'));
        value?.parse::<f64>().ok()
    };
    Some((of("used_cpu_user")? + of("used_cpu_sys")?) * 1e9)
}

/// Runs a redis server, under the command in `TRACER` if there is one, and its own benchmark, under the one in `TIMED`.
pub fn redis(folder: &Path, requests: u32) -> Result<Vec<OsString>> {
    redis_of(&server()?, folder, requests)
}

/// Debian's server.
fn server() -> Result<PathBuf> {
    // The server's program is also installed under this name, and behaves by the name that it is called by.
    process::find_program("redis-check-rdb").context("redis-tools has no redis-check-rdb")
}

/// Makes Debian's server available in the folder, by its own name.
pub(super) fn link_server(folder: &Path) -> Result<PathBuf> {
    link_as_server(&server()?, folder)
}

fn link_as_server(server: &Path, folder: &Path) -> Result<PathBuf> {
    let link = folder.join("redis-server");
    let _ = fs::remove_file(&link);
    symlink(server, &link).with_context(|| format!("cannot make {}", link.display()))?;
    Ok(link)
}

/// The same with the server of this path. Its other programs are those in `PATH`.
pub fn redis_of(server: &Path, folder: &Path, requests: u32) -> Result<Vec<OsString>> {
    link_as_server(server, folder)?;
    let script = format!(
        "cd \"$(dirname \"$0\")\" && rm -f socket {LATENCY_FILE} {TIME_FILE}\n\
                  $TRACER ./redis-server --port 0 --unixsocket socket --unixsocketperm 777 --save '' &\n\
                  while ! [ -S socket ]; do [ -d /proc/$! ] || exit 1; sleep 0.01; done\n\
                  $TIMED sh -c 'exec redis-benchmark -s socket --csv -n {requests} -t set,get,lpush > {LATENCY_FILE}'\n\
                  redis-cli -s socket info cpu > {TIME_FILE}\n\
                  redis-cli -s socket shutdown nosave\n\
                  wait\n"
    );
    let file = written(folder, &format!("redis-{requests}.sh"), &script)?;
    Ok(words(&["sh"], &[file]))
}

/// Whether a command is the script that starts a server.
pub(super) fn starts_server(command: &[OsString]) -> bool {
    command.first().is_some_and(|it| it == "sh")
}

pub(super) fn words(words: &[&str], files: &[OsString]) -> Vec<OsString> {
    let mut all: Vec<OsString> = words.iter().map(OsString::from).collect();
    all.extend_from_slice(files);
    all
}

pub(super) fn written(folder: &Path, name: &str, text: &str) -> Result<OsString> {
    let path = folder.join(name);
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path.into())
}

/// Measures the programs that the filter selects.
pub(super) fn measure_all(effort: &Effort) -> Result<Section> {
    let wanted: Vec<&Program> = PROGRAMS.iter().filter(|it| effort.wants(it.name)).collect();
    if wanted.is_empty() {
        return Ok(Section::default());
    }
    apt::ensure(&PACKAGES, "for the programs to measure")?;
    let timed = run::compile_c("xtask/bench/timed.c", &["-O2"])?;
    let folder = folder()?;
    let mut rows = Vec::new();
    for program in wanted {
        let mut command = vec![OsString::from(&timed)];
        command.extend((program.command)(&folder)?);
        let runs = measure(program.name, &command, &MODES, effort.rounds)?;
        rows.push((program, runs));
    }
    let mut section = Section {
        text: text(&rows)?,
        figures: Vec::new(),
    };
    for (program, runs) in &rows {
        let (Some(floor), Some(exact)) = (runs.get(1), runs.get(3)) else {
            continue;
        };
        section
            .figures
            .extend(exact.ratio_to(floor).map(|ratio| Figure {
                name: format!("{}, exact", program.name),
                ratio,
            }));
    }
    Ok(section)
}

fn text(rows: &[(&Program, Vec<Runs>)]) -> Result<String> {
    let mut page = String::new();
    writeln!(page, "\n## Programs\n")?;
    for (program, _) in rows {
        writeln!(page, "- **{}**: {}", program.name, program.work)?;
    }
    writeln!(
        page,
        "\nThe times cover a program from its start to its end. Processor time includes that of its children. The agent's \
         processor time is separate, and includes the kernel's verification of heaptrace's programs at the start.\n"
    )?;
    writeln!(
        page,
        "| program | mode | wall, s | ratio | processor time, ratio | wall, ratio to empty probes | events | agent, s | \
         agent, MiB | kernel's maps, MiB | events lost |"
    )?;
    writeln!(page, "|--|--|--:|--:|--:|--:|--:|--:|--:|--:|--:|")?;
    for (program, runs) in rows {
        let [untraced, floor, ..] = runs.as_slice() else {
            continue;
        };
        for (mode, runs) in MODES.iter().zip(runs) {
            let mib = f64::from(1 << 20);
            writeln!(
                page,
                "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
                program.name,
                mode.name,
                middle(&runs.nanoseconds(), 1e9, 2),
                cell(runs.ratio_to(untraced), 2),
                cell(Spread::of_ratios(&runs.cpu(), &untraced.cpu()), 2),
                cell(runs.ratio_to(floor), 2),
                middle(&runs.tracing(|it| it.events), 1.0, 0),
                middle(&runs.tracing(|it| it.agent_cpu_ns), 1e9, 2),
                middle(&runs.tracing(|it| it.agent_peak_bytes), mib, 0),
                middle(&runs.tracing(|it| it.kernel_map_bytes), mib, 0),
                runs.lost(),
            )?;
        }
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the latencies of all kinds of requests are read, and that a missing one is noticed.
    #[test]
    fn latencies_are_read() {
        let csv = "\"test\",\"rps\",\"p50_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n\
                   \"SET\",\"9\",\"0.1\",\"0.5\",\"2\"\n\"GET\",\"9\",\"0.1\",\"0.25\",\"2\"\n";
        assert_eq!(parse_p99(csv), None);
        let csv = format!("{csv}\"LPUSH\",\"9\",\"0.1\",\"1.5\",\"2\"\n");
        assert_eq!(parse_p99(&csv), Some(vec![0.5, 0.25, 1.5]));
    }
    /// Check that the server's two kinds of processor time are added, also with the line ends of its protocol.
    #[test]
    fn processor_times_are_read() {
        let info =
            "# CPU\r\nused_cpu_sys:0.25\r\nused_cpu_user:1.5\r\nused_cpu_user_children:9\r\n";
        assert_eq!(parse_time(info), Some(1.75e9));
        assert_eq!(parse_time("used_cpu_user:1.5\n"), None);
    }
}
