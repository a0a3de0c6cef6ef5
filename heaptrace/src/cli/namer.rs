//! A process that looks up names for a command that has given up its rights.
//!
//! Part of the command line, no stage of the flow. A recorder that was killed left no names, so files have to be opened
//! that the data file names. Who reads the data file can't open any. So a second process is started before the file
//! is read. It gets addresses and files' names, and answers with names: both as a data file, whose reader has limits.

use std::fs::File;
use std::io::{self, BufReader};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use anyhow::Context as _;
use rustix::pipe::{PipeFlags, pipe_with};

use super::naming;
use crate::join::Update;
use crate::profile::{DataFileWriter, Profile, ReadOptions, Symbols, read_from};
use crate::symbolize::OnDisk;

/// What errors call the two streams.
const STREAM: &str = "the process that looks up names";

/// The other process, which waits for its question.
pub(super) struct Namer {
    question: File,
    answer: File,
}

impl Namer {
    /// Starts it. Must be called while this process has one thread only: the other one is a fork of it.
    pub(super) fn start() -> io::Result<Self> {
        let (asked, question) = pipe_with(PipeFlags::CLOEXEC)?;
        let (answer, answered) = pipe_with(PipeFlags::CLOEXEC)?;
        let parent = std::process::id();
        // SAFETY: this process has one thread; the child never returns from here.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                drop((question, answer));
                serve(parent, asked, answered);
                // SAFETY: ends this child without running what the parent wants to be run at its end.
                unsafe { libc::_exit(0) }
            }
            _ => Ok(Self {
                question: question.into(),
                answer: answer.into(),
            }),
        }
    }

    /// Names for all addresses of a profile.
    pub(super) fn names(self, profile: &Profile, options: ReadOptions) -> anyhow::Result<Symbols> {
        let Self { question, answer } = self;
        let mut writer = DataFileWriter::to(question, PathBuf::from(STREAM), &profile.info)?;
        writer.update(&Update {
            modules: profile.modules.clone(),
            locations: profile.locations.clone(),
            ..Update::default()
        })?;
        writer.finish(0)?;
        let options = ReadOptions {
            until: u64::MAX,
            ..options
        };
        read_from(BufReader::new(answer), STREAM, options)
            .ok()
            .filter(|answer| !answer.is_damaged)
            .and_then(|answer| answer.symbols)
            .with_context(|| format!("{STREAM} ended early"))
    }
}

/// Waits for a question, and answers it.
fn serve(parent: u32, asked: OwnedFd, answered: OwnedFd) {
    // SAFETY: plain system calls on this process alone.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::prctl(libc::PR_SET_NAME, c"heaptrace-names".as_ptr());
        // It ended before it could be heard of.
        if libc::getppid() as u32 != parent {
            return;
        }
    }
    let reader = BufReader::new(File::from(asked));
    // One who had no question has gone; what is wrong with one that came is for who asked to find out.
    let Ok(recording) = read_from(reader, STREAM, ReadOptions::default()) else {
        return;
    };
    let symbols = naming::all(&recording.profile, &OnDisk);
    let info = &recording.profile.info;
    let answer = DataFileWriter::to(answered.into(), PathBuf::from(STREAM), info);
    if let Ok(mut writer) = answer
        && writer.symbols(&symbols).is_ok()
    {
        let _ = writer.finish(0);
    }
}
