//! Hostile surroundings of a run: its output path, its limits, and the state of its target.
//!
//! Part of hostile.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use heaptrace_tests::Group;

use super::ended::{start, words};
use super::suite::{CaseRun, first_line};

/// Another user, which owns no files.
const NOBODY: u32 = 65534;

pub(super) fn make_executable(path: &Path) -> Result<()> {
    fs::set_permissions(path, Permissions::from_mode(0o755))
        .with_context(|| format!("cannot change {}", path.display()))
}

pub(super) fn make_pipe(path: &Path) -> Result<()> {
    crate::process::run(Command::new("mkfifo").arg(path))
}

/// A folder of another user, which root writes to.
fn folder_of_another_user(case: &CaseRun<'_>) -> Result<std::path::PathBuf> {
    let folder = case.file("strangers");
    fs::create_dir_all(&folder)?;
    std::os::unix::fs::chown(&folder, Some(NOBODY), Some(NOBODY))?;
    fs::set_permissions(&folder, Permissions::from_mode(0o777))?;
    Ok(folder)
}

fn record_to(case: &CaseRun<'_>, output: &Path) -> Vec<OsString> {
    let mut arguments = words(&["record", "-o"]);
    arguments.extend([output.into(), "--".into()]);
    arguments.extend([case.suite.program.clone().into(), "plain".into()]);
    arguments
}

/// Another user replaces the output path by links to root's file during a run.
pub(super) fn output_race(case: &CaseRun<'_>) -> Result<String> {
    const PRECIOUS: &[u8] = b"root's own\n";
    let folder = folder_of_another_user(case)?;
    let (output, precious) = (folder.join("out.data"), case.file("precious"));
    fs::write(&precious, PRECIOUS)?;
    let stop = AtomicBool::new(false);
    let result = std::thread::scope(|scope| {
        scope.spawn(|| {
            let other = folder.join("other");
            while !stop.load(Ordering::Relaxed) {
                let _ = symlink(&precious, &other);
                let _ = std::os::unix::fs::lchown(&other, Some(NOBODY), Some(NOBODY));
                let _ = fs::rename(&other, &output);
                let _ = fs::write(&other, b"");
                let _ = std::os::unix::fs::chown(&other, Some(NOBODY), Some(NOBODY));
                let _ = fs::rename(&other, &output);
                let _ = fs::remove_file(&output);
            }
        });
        let attempt = || -> Result<u32> {
            let mut refused = 0;
            for _ in 0..12 {
                let ended = case.run(&record_to(case, &output))?;
                refused += u32::from(ended.status.code() != Some(0));
                let content = fs::read(&precious)?;
                ensure!(content == PRECIOUS, "root's file was overwritten");
            }
            Ok(refused)
        };
        let result = attempt();
        stop.store(true, Ordering::Relaxed);
        result
    })?;
    Ok(format!("root's file is unchanged; {result} of 12 refused"))
}

/// Another user's pipe, with and without a reader. The data must not go there, and heaptrace must not wait.
pub(super) fn output_is_a_pipe(case: &CaseRun<'_>) -> Result<String> {
    let folder = folder_of_another_user(case)?;
    let output = folder.join("pipe.data");
    make_pipe(&output)?;
    std::os::unix::fs::chown(&output, Some(NOBODY), Some(NOBODY))?;
    for has_reader in [false, true] {
        let reader = has_reader
            .then(|| {
                Command::new("cat")
                    .arg(&output)
                    .stdout(Stdio::piped())
                    .spawn()
            })
            .transpose()?;
        let ended = case.run(&record_to(case, &output));
        let mut leaked = 0;
        if let Some(mut reader) = reader {
            let _ = reader.kill();
            leaked = reader.wait_with_output()?.stdout.len();
        }
        let ended = ended?;
        ensure!(leaked == 0, "{leaked} bytes went to another user's pipe");
        ensure!(
            ended.status.code() != Some(0),
            "the pipe was treated as a file"
        );
    }
    Ok("refused, with and without a reader".to_owned())
}

/// Another user's file, and a hard link to root's file.
pub(super) fn output_is_of_another_user(case: &CaseRun<'_>) -> Result<String> {
    let folder = folder_of_another_user(case)?;
    let (output, precious) = (folder.join("out.data"), case.file("precious"));
    fs::write(&precious, "root's own\n")?;
    fs::hard_link(&precious, &output)?;
    let ended = case.run(&record_to(case, &output))?;
    ensure!(
        fs::read(&precious)? == b"root's own\n",
        "root's file was overwritten through a link"
    );
    let code = ended.status.code().unwrap_or(-1);
    // If the run succeeded, only root can read the file.
    if code == 0 {
        let meta = fs::metadata(&output)?;
        ensure!(
            meta.uid() == 0 && meta.mode() & 0o77 == 0,
            "others can read it"
        );
    }
    Ok(format!("root's file is unchanged; status {code}"))
}

/// Under these limits a run must end normally, or report what the user can do.
fn limited(case: &CaseRun<'_>, limits: &str) -> Result<String> {
    let mut command = Command::new("sh");
    let script = format!("{limits}; exec \"$@\"");
    command.args(["-c", &script, "sh"]);
    command.arg(crate::workspace::heaptrace_binary());
    command
        .args(record_to(case, &case.data()))
        .current_dir(&case.folder);
    let ended = case.end(start(&mut command, &case.folder)?)?;
    match ended.status.code() {
        Some(0) => {
            case.whole(&ended, 100)?;
            Ok("ended normally".to_owned())
        }
        _ => {
            let says = ["ulimit", "--max-", "--ring-size", "limit"];
            let names = says.iter().any(|word| ended.errors.contains(word));
            let line = first_line(&ended.errors);
            ensure!(names, "failed, and does not report what to do: {line}");
            Ok("refused, and reports what to do".to_owned())
        }
    }
}

pub(super) fn few_descriptors(case: &CaseRun<'_>) -> Result<String> {
    limited(case, "ulimit -n 64")
}

pub(super) fn very_few_descriptors(case: &CaseRun<'_>) -> Result<String> {
    limited(case, "ulimit -n 24")
}

pub(super) fn little_memory(case: &CaseRun<'_>) -> Result<String> {
    let group = Group::of_memory("zoo", 64 << 20)?;
    let procs = group.folder().join("cgroup.procs");
    limited(case, &format!("echo $$ > '{}'", procs.display()))
}

pub(super) fn no_core_no_files(case: &CaseRun<'_>) -> Result<String> {
    limited(case, "ulimit -f 1; ulimit -s 256")
}

/// A running target program and its id.
struct Target {
    child: std::process::Child,
    id: u32,
}

impl Target {
    fn start(case: &CaseRun<'_>, mode: &str) -> Result<Self> {
        let output = case.file("target");
        let child = Command::new(&case.suite.program)
            .args([mode, "-", "30"])
            .stdout(fs::File::create(&output)?)
            .spawn()?;
        let began = Instant::now();
        let mut target = Self { child, id: 0 };
        while target.id == 0 {
            let text = fs::read_to_string(&output)?;
            let number = |line: &str| line.strip_prefix("pid=")?.parse().ok();
            target.id = text.lines().find_map(number).unwrap_or(0);
            if began.elapsed() > Duration::from_secs(10) {
                bail!("the target did not start");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(target)
    }

    fn signal(&self, signal: i32) {
        // SAFETY: a plain system call; the process is our child and was not waited for.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn record_process(case: &CaseRun<'_>, id: u32) -> Vec<OsString> {
    let mut arguments = words(&["record", "--exact", "--duration", "1s", "-o"]);
    arguments.extend([case.data().into(), "--pid".into(), id.to_string().into()]);
    arguments
}

pub(super) fn stopped(case: &CaseRun<'_>) -> Result<String> {
    let target = Target::start(case, "wait")?;
    target.signal(libc::SIGSTOP);
    let ended = case.run(&record_process(case, target.id));
    target.signal(libc::SIGCONT);
    case.whole(&ended?, 0)?;
    Ok("ended on time".to_owned())
}

pub(super) fn zombie(case: &CaseRun<'_>) -> Result<String> {
    let target = Target::start(case, "zombie")?;
    let ended = case.run(&record_process(case, target.id))?;
    ensure!(
        !first_line(&ended.errors).is_empty(),
        "the zombie was not reported"
    );
    Ok(format!("status {}", ended.status.code().unwrap_or(-1)))
}

pub(super) fn no_process(case: &CaseRun<'_>) -> Result<String> {
    let ended = case.run(&record_process(case, 4_194_000))?;
    ensure!(ended.status.code() != Some(0), "it ended with success");
    Ok("refused".to_owned())
}

/// The target is killed during the attach, repeatedly.
pub(super) fn killed_while_attaching(case: &CaseRun<'_>) -> Result<String> {
    for delay in [0, 20, 50, 100, 200] {
        let target = Target::start(case, "wait")?;
        let running = case.start(&record_process(case, target.id))?;
        std::thread::sleep(Duration::from_millis(delay));
        target.signal(libc::SIGKILL);
        case.end(running)?;
    }
    Ok("5 of 5 ended".to_owned())
}

/// Traces all processes, including a hostile one, and ends by a signal.
pub(super) fn everything(case: &CaseRun<'_>) -> Result<String> {
    let broken = case.file("broken.so");
    super::elf::Elf::exporting(&[("malloc", 0x400, 32)]).write(&broken)?;
    let mut arguments = words(&["record", "--all", "--from-birth", "--exact", "-o"]);
    arguments.push(case.data().into());
    let running = case.start(&arguments)?;
    let began = Instant::now();
    let is_ready =
        || fs::read_to_string(case.file("stderr")).is_ok_and(|it| it.contains("tracing"));
    while !is_ready() && began.elapsed() < Duration::from_secs(case.seconds / 2) {
        std::thread::sleep(Duration::from_millis(50));
    }
    for mode in ["plain", "comm", "jit"] {
        let status = Command::new(&case.suite.program)
            .args([mode, "-", "50"])
            .stdout(Stdio::null())
            .status()?;
        ensure!(status.success(), "the program was harmed: {status}");
    }
    let _ = Command::new(&case.suite.program)
        .arg("map")
        .arg(&broken)
        .stdout(Stdio::null())
        .status()?;
    ensure!(running.id() > 0, "no process");
    running.signal(libc::SIGTERM);
    let ended = case.end(running)?;
    let report = case.report()?;
    ensure!(
        report["totals"]["allocations"].as_u64() >= Some(1000),
        "too few allocations were seen: {}",
        first_line(&ended.errors)
    );
    Ok("continued, and ended on the signal".to_owned())
}

/// A script that names itself as its interpreter.
pub(super) fn script_of_itself(case: &CaseRun<'_>) -> Result<String> {
    let script = case.file("loop.sh");
    fs::write(&script, format!("#!{}\n", script.display()))?;
    make_executable(&script)?;
    let mut arguments = words(&["record", "-o"]);
    arguments.extend([case.data().into(), "--".into(), script.into()]);
    let ended = case.run(&arguments)?;
    ensure!(ended.status.code() != Some(0), "it ended with success");
    Ok(format!("status {}", ended.status.code().unwrap_or(-1)))
}

/// A program on an overlay, whose files show other devices than the kernel records.
pub(super) fn overlay(case: &CaseRun<'_>) -> Result<String> {
    for name in ["lower", "upper", "work", "merged"] {
        fs::create_dir_all(case.file(name))?;
    }
    fs::copy(&case.suite.program, case.file("lower/zoo"))?;
    // An overlay can't be mounted on another overlay.
    let mut mount = Command::new("mount");
    mount.args(["-t", "overlay", "overlay", "-o"]);
    mount.arg("lowerdir=lower,upperdir=upper,workdir=work");
    crate::process::run(mount.arg("merged").current_dir(&case.folder))?;
    let mut arguments = words(&["record", "-o"]);
    arguments.extend([case.data().into(), "--".into()]);
    arguments.extend([case.file("merged/zoo").into(), "plain".into()]);
    let result = case
        .run(&arguments)
        .and_then(|ended| case.whole(&ended, 100));
    crate::process::run(Command::new("umount").arg("-l").arg(case.file("merged")))?;
    let names = super::suite::functions(&result?);
    ensure!(names.iter().any(|name| name == "zoo_allocate"), "no names");
    Ok("100 allocations, with names".to_owned())
}
