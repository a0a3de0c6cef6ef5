//! `--on-oom`: a command that is run when the kernel has killed a traced process for lack of memory.
//!
//! Part of the command line. The command runs in the shell of a side process, which has the rights of the user that started heaptrace, and not
//! those of the run. What the killed process chose, its name, reaches the command in its environment only. Must not know what
//! is in the data file.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use super::message;
use super::side_process::SideProcess;
use crate::account::{self, Account};
use crate::join::{EndCause, Update};

/// Most runs of the command.
const MOST: usize = 16;

/// The longest time for a run of the command, and for all that still run when the recording is over.
const LIMIT: Duration = Duration::from_secs(60);

/// A process that was killed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Killed {
    pid: u32,
    start_time_ns: u64,
    command: String,
}

/// The command, and the process that runs it.
#[derive(Debug)]
pub(super) struct OnOom {
    side: SideProcess,
    /// The processes that it was run for.
    done: BTreeSet<Killed>,
    /// How many more there were.
    left_out: usize,
}

impl OnOom {
    /// Starts the process that runs the command. Must be called while this process has a single thread, because it forks.
    pub(super) fn start(command: OsString, file: &Path) -> anyhow::Result<Self> {
        let file = std::path::absolute(file)?;
        let user = Account::caller().context("--on-oom can't run as you")?;
        let side = SideProcess::start(c"heaptrace-oom", |asked, _answered| {
            serve(
                asked,
                &Shell {
                    command,
                    file,
                    user,
                },
            );
        });
        Ok(Self {
            side: side.context("can't start the process for --on-oom")?,
            done: BTreeSet::new(),
            left_out: 0,
        })
    }

    /// The processes of an update that were killed for lack of memory, and that the command was not run for.
    pub(super) fn killed(&self, update: &Update) -> Vec<Killed> {
        let is_killed = |cause| cause == EndCause::OutOfMemory;
        let processes = update.processes.iter().map(|(_, process)| process);
        processes
            .filter(|it| it.end.is_some_and(|end| is_killed(end.cause)))
            .map(|it| Killed {
                pid: it.pid,
                start_time_ns: it.start_time_ns,
                command: it.command.clone(),
            })
            .filter(|it| !self.done.contains(it))
            .collect()
    }

    /// Lets the command run for each of these processes. Does not wait for it.
    pub(super) fn run(&mut self, killed: Vec<Killed>) {
        for it in killed {
            if self.done.len() >= MOST {
                self.left_out += 1;
                continue;
            }
            if let Err(error) = self.side.question.write_all(&question(&it)) {
                message::warn(format_args!("the command of --on-oom was not run: {error}"));
            }
            self.done.insert(it);
        }
    }

    /// Waits until the command has run, for a limited time.
    pub(super) fn finish(self) {
        if self.left_out > 0 {
            message::warn(format_args!(
                "{} more processes were killed for lack of memory; the command of --on-oom is run {MOST} times at most",
                self.left_out
            ));
        }
        let SideProcess { question, answer } = self.side;
        // Without more questions, the process ends when the last command has.
        drop(question);
        let limit = Timespec {
            tv_sec: LIMIT.as_secs() as i64,
            tv_nsec: 0,
        };
        let mut end = [PollFd::new(&answer, PollFlags::IN)];
        if self.done.is_empty() {
            return;
        }
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        if !matches!(poll(&mut end, Some(&at_once)), Ok(0)) {
            return;
        }
        message::note("waiting for the command of --on-oom, for a minute at most");
        match poll(&mut end, Some(&limit)) {
            Ok(0) => message::warn("the command of --on-oom takes too long, and is ended"),
            Err(_) => message::warn("the command of --on-oom is ended before its time"),
            Ok(_) => {}
        }
    }
}

/// A question: the id of the process, and its name.
fn question(killed: &Killed) -> Vec<u8> {
    let name = killed.command.as_bytes();
    let name = name.get(..name.len().min(255)).unwrap_or_default();
    let mut bytes = killed.pid.to_ne_bytes().to_vec();
    bytes.push(name.len() as u8);
    bytes.extend_from_slice(name);
    bytes
}

/// Reads a question; `None` if there are no more.
fn read_question(asked: &mut File) -> Option<(u32, OsString)> {
    let mut head = [0; 5];
    asked.read_exact(&mut head).ok()?;
    let [pid @ .., length] = head;
    let mut name = vec![0; length.into()];
    asked.read_exact(&mut name).ok()?;
    Some((u32::from_ne_bytes(pid), OsString::from_vec(name)))
}

/// What the side process runs, and as whom.
struct Shell {
    command: OsString,
    file: PathBuf,
    /// The user, if it is not that of this process.
    user: Option<Account>,
}

/// Runs the command for each question.
fn serve(mut asked: File, shell: &Shell) {
    // Ctrl-C ends the run, and not the command that tells of it.
    // SAFETY: a plain system call on this process alone.
    unsafe { libc::setsid() };
    account::pass_no_rights_on();
    if let Err(error) = shell.user.as_ref().map_or(Ok(()), Account::assume) {
        return message::warn(format_args!(
            "the command of --on-oom can't be run: {error}"
        ));
    }
    end_with_parent();
    while let Some((pid, name)) = read_question(&mut asked) {
        match shell.start(pid, &name).and_then(|child| wait(child, LIMIT)) {
            Ok(None) => {}
            Ok(Some(why)) => message::warn(format_args!("the command of --on-oom {why}")),
            Err(error) => {
                message::warn(format_args!(
                    "the command of --on-oom can't be run: {error}"
                ));
            }
        }
    }
}

/// Lets this process be killed when its parent ends. The kernel forgets this at a change of the user.
fn end_with_parent() {
    // SAFETY: a plain system call on this process alone.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

impl Shell {
    fn start(&self, pid: u32, name: &OsStr) -> io::Result<Child> {
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(&self.command);
        if let Some(user) = &self.user {
            user.set_environment(&mut command);
        }
        command
            .env("HEAPTRACE_PID", pid.to_string())
            .env("HEAPTRACE_COMMAND", name)
            .env("HEAPTRACE_FILE", &self.file)
            .stdin(Stdio::null())
            .process_group(0);
        // SAFETY: between fork and exec only one system call is made.
        unsafe {
            command.pre_exec(|| {
                end_with_parent();
                Ok(())
            });
        }
        command.spawn()
    }
}

/// Waits for a command, for so long at most. Returns what is wrong with its end, if anything is.
fn wait(mut child: Child, limit: Duration) -> io::Result<Option<String>> {
    const PAUSE: Duration = Duration::from_millis(20);
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((!status.success()).then(|| format!("ended with {status}")));
        }
        if begin.elapsed() > limit {
            // Its group has its pid.
            // SAFETY: a plain system call; the child was not waited for, so the number is still its own.
            unsafe { libc::kill(-(child.id() as libc::pid_t), libc::SIGKILL) };
            child.wait()?;
            return Ok(Some(format!("took longer than {limit:?}, and was killed")));
        }
        std::thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::{End, Process, ProcessId};

    fn killed(pid: u32) -> Killed {
        Killed {
            pid,
            start_time_ns: 7,
            command: "na\nme; $(touch x)".to_owned(),
        }
    }

    fn update(pid: u32, cause: EndCause) -> Update {
        let process = Process {
            pid,
            start_time_ns: 7,
            command: killed(pid).command,
            end: Some(End { cause, at_ns: 1 }),
            ..Process::default()
        };
        Update {
            processes: vec![(ProcessId(0), process)],
            ..Update::default()
        }
    }

    fn shell(command: &str) -> Shell {
        Shell {
            command: command.into(),
            file: "/a b/x.data".into(),
            user: None,
        }
    }

    /// Check that only processes that were killed for lack of memory are found, each once, and never more than the limit.
    #[test]
    fn each_killed_process_counts_once() {
        let (asked, question) = io::pipe().unwrap();
        let file = |fd: std::os::fd::OwnedFd| File::from(fd);
        let mut on_oom = OnOom {
            side: SideProcess {
                question: file(question.into()),
                answer: File::open("/dev/null").unwrap(),
            },
            done: BTreeSet::new(),
            left_out: 0,
        };
        assert!(on_oom.killed(&update(1, EndCause::Exit(9))).is_empty());
        for pid in [1, 1, 2] {
            let found = on_oom.killed(&update(pid, EndCause::OutOfMemory));
            on_oom.run(found);
        }
        let mut asked = file(asked.into());
        for pid in [1, 2] {
            let name = OsString::from(killed(pid).command);
            assert_eq!(read_question(&mut asked), Some((pid, name)));
        }
        on_oom.run((3..30).map(killed).collect());
        assert_eq!((on_oom.done.len(), on_oom.left_out), (MOST, 13));
        drop(on_oom);
        while read_question(&mut asked).is_some() {}
    }

    /// Check that the command gets what it is told in its environment, where no shell reads it.
    #[test]
    fn the_environment_tells_the_command() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        let script = format!(
            "cd {}; printf '%s|%s|%s' \"$HEAPTRACE_PID\" \"$HEAPTRACE_COMMAND\" \"$HEAPTRACE_FILE\" > out",
            folder.path().display()
        );
        let child = shell(&script).start(12, OsStr::new(&killed(12).command));
        assert_eq!(wait(child.unwrap(), LIMIT).unwrap(), None);
        let told = std::fs::read_to_string(out).unwrap();
        assert_eq!(told, "12|na\nme; $(touch x)|/a b/x.data");
        assert!(!folder.path().join("x").exists());
    }

    /// Check that a command that fails or takes too long is reported, and ended with what it started.
    #[test]
    fn bad_ends_are_reported() {
        let ended = |script: &str, limit| {
            let child = shell(script).start(1, OsStr::new("a")).unwrap();
            wait(child, limit).unwrap().unwrap()
        };
        assert!(ended("exit 3", LIMIT).contains("exit status: 3"));
        let begin = Instant::now();
        let why = ended("sleep 300 & sleep 300", Duration::from_millis(50));
        assert!(why.contains("was killed"), "{why}");
        assert!(begin.elapsed() < LIMIT);
    }
}
