//! Tests of the names of processes, threads and control groups, of snapshots, and of rotated data files.

use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use heaptrace_tests::{Child, Heaptrace, MINUTE, c, ready_pid, until};
use serde_json::Value;

/// A control group of the unified hierarchy, removed on drop.
struct Cgroup {
    folder: PathBuf,
    path: String,
}

impl Cgroup {
    fn new(name: &str) -> Result<Self> {
        let mounts = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new);
        let root = mounts
            .into_iter()
            .find(|mount| {
                mount.join("cgroup.procs").exists() && mount.join("cgroup.controllers").exists()
            })
            .context("no unified control group hierarchy is mounted")?;
        let path = format!("/heaptrace-test-{}-{name}", std::process::id());
        let folder = root.join(&path[1..]);
        fs::create_dir(&folder).with_context(|| format!("can't make {}", folder.display()))?;
        Ok(Self { folder, path })
    }

    /// A command that runs in this group from its first instruction.
    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let procs = self.folder.join("cgroup.procs");
        let mut command = Command::new(program);
        // SAFETY: the closure opens and writes a file, and touches no lock of the parent.
        unsafe {
            command.pre_exec(move || {
                fs::OpenOptions::new()
                    .write(true)
                    .open(&procs)?
                    .write_all(b"0")
            });
        }
        command
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Processes leave a group some time after they ended. A drop can't fail, so a group may be left.
        let _ = until("the group to be empty", Duration::from_secs(2), || {
            Ok(fs::remove_dir(&self.folder).is_ok())
        });
    }
}

fn json(here: &Heaptrace, options: &[&str]) -> Result<Value> {
    let ended = here
        .run(&[&["report", "--format", "json"], options].concat())?
        .success()?;
    Ok(serde_json::from_str(&ended.stdout)?)
}

/// The name, allocations and number of processes of each group of a report.
fn groups(here: &Heaptrace, options: &[&str]) -> Result<Vec<(String, u64, u64)>> {
    let report = json(here, options)?;
    let groups = report["groups"].as_array().context("no groups")?;
    groups
        .iter()
        .map(|group| {
            let number = |value: &Value| value.as_u64().context("no number");
            Ok((
                group["name"].as_str().context("no name")?.to_owned(),
                number(&group["totals"]["allocations"])?,
                number(&group["processes"])?,
            ))
        })
        .collect()
}

/// Check that processes that end within milliseconds have their name, control group and container, that groups add up,
/// and that filters and every output format use these names.
#[test]
fn short_processes_have_their_names() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let id = "0123456789abcdef".repeat(4);
    let (plain, docker) = (
        Cgroup::new("plain")?,
        Cgroup::new(&format!("docker-{id}.scope"))?,
    );
    // The unified hierarchy has the group below another one; only the last part of the path counts.
    let inner = docker.folder.join(format!("docker-{id}.scope"));
    fs::create_dir(&inner)?;
    let inner = Cgroup {
        path: format!("{}/docker-{id}.scope", docker.path),
        folder: inner,
    };
    let mut shell = Command::new("/bin/sh");
    let script = "read go; for i in 1 2 3; do \
                  sh -c 'echo 0 > $0/cgroup.procs; exec ls / > /dev/null' $1; \
                  sh -c 'echo 0 > $0/cgroup.procs; exec sort /dev/null' $2; done";
    shell
        .args(["-c", script, "sh"])
        .arg(&plain.folder)
        .arg(&inner.folder);
    let mut shell = Child::spawn(&mut shell)?;
    let pid = shell.pid().to_string();
    let mut tracer = here.start_record(&["--pid", &pid])?;
    here.wait_attached(&mut tracer, shell.pid())?;
    shell.go()?;
    shell.wait()?.success()?;
    let recording = here.finish(tracer)?;
    recording.report.check_nothing_lost()?;

    let by_process = groups(&here, &["--by", "process", "--metric", "total-allocations"])?;
    for program in ["ls", "sort"] {
        let group = by_process.iter().find(|(name, ..)| name == program);
        let (_, allocations, processes) = group.with_context(|| format!("{by_process:?}"))?;
        assert!(*processes == 3 && *allocations > 0, "{by_process:?}");
    }
    let sum: u64 = by_process
        .iter()
        .map(|(_, allocations, _)| allocations)
        .sum();
    assert_eq!(sum, recording.report.totals.allocations);

    for process in &recording.report.processes {
        let expected = match process.command.as_str() {
            "ls" => &plain.path,
            "sort" => &inner.path,
            // A shell changes its group while it runs.
            _ => continue,
        };
        assert_eq!(&process.cgroup, expected, "{}", process.command);
    }
    let by_container = groups(&here, &["--by", "container"])?;
    let name = format!("docker {}", &id[..12]);
    assert!(
        by_container.iter().any(|(it, ..)| *it == name),
        "{by_container:?}"
    );

    let filter = format!("container={}", &id[..12]);
    let sorted = json(&here, &["--filter", &filter, "--filter", "process=sort"])?;
    let commands: Vec<_> = sorted["processes"]
        .as_array()
        .context("no processes")?
        .iter()
        .map(|it| (it["command"].as_str(), it["container"]["runtime"].as_str()))
        .collect();
    assert_eq!(commands, [(Some("sort"), Some("docker")); 3]);
    let unit = format!("unit=docker-{id}.scope");
    here.run(&[
        "flamegraph",
        "--by",
        "cgroup",
        "--filter",
        &unit,
        "--metric",
        "total-bytes",
    ])?
    .success()?;
    let svg = fs::read_to_string(here.path("heaptrace.svg"))?;
    assert!(svg.contains(&inner.path) && !svg.contains(&format!("\"{}\"", plain.path)));
    here.run(&["pprof", "--filter", &filter])?.success()?;
    let tags = Command::new("go")
        .args(["tool", "pprof", "-tags", "-sample_index=alloc_space"])
        .arg(here.path("heaptrace.pb.gz"))
        .output()?;
    let tags = String::from_utf8_lossy(&tags.stdout).into_owned();
    for word in ["container:", &name, "unit:", "cgroup:", "process:", "pid:"] {
        assert!(tags.contains(word), "{word} is not in\n{tags}");
    }
    drop(inner);
    Ok(())
}

/// Check that a process has the name of its first thread, and its command line, even if another thread allocates first,
/// and that a filter can select that thread by its own name.
#[test]
fn processes_have_their_own_names() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let group = Cgroup::new("named")?;
    let threads = c("named")?;
    let mut target = Child::spawn(group.command(&threads.path).args(["one word", "two"]))?;
    let pid = ready_pid(&target.line()?)?;
    let mut tracer = here.start_record(&["--threads", "--pid", &pid.to_string()])?;
    here.wait_attached(&mut tracer, pid)?;
    target.go()?;
    // The tracer asks for the thread's name after the first event, and the thread must still exist then.
    let by_thread = ["--by", "thread", "--filter", "thread=work*"];
    until("the thread's name", MINUTE, || {
        Ok(groups(&here, &by_thread).is_ok_and(|threads| !threads.is_empty()))
    })?;
    target.wait()?.success()?;
    let recording = here.finish(tracer)?;
    let threads = groups(&here, &by_thread)?;
    assert_eq!(threads, [("worker".to_owned(), 10, 1)]);
    assert_eq!(recording.report.totals.allocations, 10);
    let report = json(&here, &[])?;
    let process = &report["processes"][0];
    assert_eq!(process["command"], "named");
    let words = process["command_line"].as_str().unwrap_or_default();
    assert!(words.ends_with("/named 'one word' two"), "{words}");
    assert_eq!(process["cgroup"], group.path.as_str());
    Ok(())
}

/// Check that a program that was started by a link has the link's name, whether heaptrace started it or not, and that
/// the path stays the file's. Users don't know `redis-server` as `redis-check-rdb`.
#[test]
fn programs_have_the_name_that_started_them() -> Result<()> {
    const NAME: &str = "a-link-with-a-long-name";
    let here = Heaptrace::tracing()?;
    let program = c("named")?;
    let path = program.path.to_str().context("no path")?;
    let link = here.path(NAME);
    symlink(path, &link)?;
    for is_launched in [true, false] {
        let mut target = match is_launched {
            true => None,
            false => Some(Child::spawn(&mut Command::new(&link))?),
        };
        let mut tracer = match &mut target {
            Some(target) => {
                let pid = ready_pid(&target.line()?)?;
                let mut tracer = here.start_record(&["--pid", &pid.to_string()])?;
                here.wait_attached(&mut tracer, pid)?;
                tracer
            }
            None => here.start_record(&[OsStr::new("--"), link.as_os_str()])?,
        };
        match target {
            Some(mut target) => {
                target.go()?;
                target.wait()?.success()?;
            }
            None => {
                ready_pid(&tracer.line()?)?;
                tracer.go()?;
            }
        }
        here.finish(tracer)?;
        let report = json(&here, &["--by", "module"])?;
        let stack = report["sites"][0]["stack"].as_array().context("no stack")?;
        for frame in stack {
            let name = (frame["module"] == path).then_some(NAME);
            assert_eq!(frame["module_name"].as_str(), name, "{frame}");
        }
        let names = report["groups"].as_array().context("no groups")?.iter();
        let mut names = names.map(|group| (group["name"].as_str(), group["module_name"].as_str()));
        assert!(names.any(|it| it == (Some(path), Some(NAME))), "{report}");
        let by_name = format!("module={NAME}");
        let selected = groups(&here, &["--by", "module", "--filter", &by_name])?;
        let of_program = (path.to_owned(), 10, 1);
        assert!(selected.contains(&of_program), "{selected:?}");
        let shown = here.run(&["report", "--by", "module"])?.success()?.stdout;
        assert!(shown.contains(&format!("({NAME})")), "{shown}");
        here.run(&["flamegraph"])?.success()?;
        let svg = fs::read_to_string(here.path("heaptrace.svg"))?;
        assert!(svg.contains(&format!("\"{NAME}\"")) && !svg.contains("\"named\""));
    }
    Ok(())
}

/// Check that SIGUSR1 makes a recorder write a snapshot though no update is due, that the recorder continues, and that
/// the file lists each snapshot.
#[test]
fn a_signal_asks_for_a_snapshot() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let forever = c("forever")?;
    let options = ["--interval", "1h", "--"].map(OsStr::new);
    let mut tracer = here.start_record(&[&options[..], &[forever.path.as_os_str()]].concat())?;
    ready_pid(&tracer.line()?)?;
    let list = || -> Result<Vec<u64>> {
        let ended = here
            .run(&["report", "--snapshots", "--format", "json"])?
            .success()?;
        let list: Vec<Value> = serde_json::from_str(&ended.stdout)?;
        let times = list.iter().map(|it| it["allocations"].as_u64());
        times.collect::<Option<_>>().context("no counts")
    };
    assert_eq!(list()?, [0; 0]);
    for count in 1..=2 {
        // Time is the point: the target allocates before each snapshot, and no update shows it.
        thread::sleep(Duration::from_millis(300));
        tracer.signal(libc::SIGUSR1)?;
        until("a snapshot", MINUTE, || {
            Ok(list().is_ok_and(|list| list.len() == count))
        })?;
    }
    let [first, second] = list()?[..] else {
        anyhow::bail!("not two snapshots");
    };
    assert!(0 < first && first < second, "{first} {second}");
    tracer.signal(libc::SIGTERM)?;
    let recording = here.finish(tracer)?;
    recording.report.check_nothing_lost()?;
    let times = json(&here, &["--snapshots"])?;
    let at = times[0]["elapsed_ns"].as_u64().context("no time")? / 1_000_000 + 1;
    let then = json(&here, &["--at", &format!("{at}ms")])?;
    assert_eq!(then["totals"]["allocations"], first);
    assert_eq!(then["end"], "went-on");
    assert!(
        then["sites"][0]["stack"][0]["function"]
            .as_str()
            .is_some_and(|name| !name.is_empty())
    );
    Ok(())
}

/// Check that each rotated file is complete and has names, that as many files are kept as asked for, and that a killed
/// recorder leaves all of them readable.
#[test]
fn rotated_files_are_complete() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let forever = c("forever")?;
    let mut target = Child::spawn(&mut forever.command())?;
    let pid = ready_pid(&target.line()?)?;
    let pid_text = pid.to_string();
    let options = [
        "--pid",
        &pid_text,
        "--interval",
        "100ms",
        "--rotate",
        "300ms,3",
    ];
    let mut tracer = here.start_record(&options)?;
    here.wait_attached(&mut tracer, pid)?;
    let names = ["heaptrace.data", "heaptrace.data.1", "heaptrace.data.2"];
    let oldest = || fs::metadata(here.path(names[2])).and_then(|file| file.modified());
    until("three files", MINUTE, || Ok(oldest().is_ok()))?;
    let first = oldest()?;
    // The newest file is made after the others were renamed.
    until("the oldest file to be replaced", MINUTE, || {
        let is_replaced = oldest().is_ok_and(|time| time != first);
        Ok(is_replaced && here.path(names[0]).exists())
    })?;
    tracer.signal(libc::SIGKILL)?;
    tracer.wait()?;
    assert!(!here.path("heaptrace.data.3").exists());
    let mut earlier = u64::MAX;
    for (index, name) in names.iter().enumerate() {
        let report = json(&here, &[name])?;
        let totals = &report["totals"];
        let number = |name: &str| totals[name].as_u64().context("no number");
        let allocations = number("allocations")?;
        // A file begins with the counts at the end of the one before, and may have no later update.
        assert!(allocations > 0 && allocations <= earlier, "{name}");
        earlier = allocations;
        let unfreed = number("live_allocations")? + number("left_at_exit_allocations")?;
        assert_eq!(allocations, number("frees")? + unfreed);
        let sites = report["sites"].as_array().context("no sites")?;
        let sum: u64 = sites
            .iter()
            .filter_map(|it| it["totals"]["allocations"].as_u64())
            .sum();
        assert_eq!(sum, allocations, "{name}");
        assert!(
            sites.iter().any(|site| {
                let stack = site["stack"].as_array();
                stack.is_some_and(|it| it.iter().any(|frame| frame["function"] == "truth_malloc"))
            }),
            "{name} has no names"
        );
        // The newest file was being written, and the one before may not have been finished.
        if index == 2 {
            assert_eq!(report["end"], "orderly", "{name}");
        }
    }
    target.go()?;
    target.wait()?.success()?;
    Ok(())
}
