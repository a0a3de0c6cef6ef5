//! A process that looks up names for a command that has given up its rights.
//!
//! Part of the command line. If the recorder was killed, the data file has no names, and they must be looked
//! up in files that it lists. The process that reads the data file can open no files. So a second process is
//! started before. It receives addresses and file names, and answers with names. Both messages are data
//! files, whose reader has limits.

use std::fs::File;
use std::io::{self, BufReader};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use anyhow::Context as _;
use rustix::pipe::{PipeFlags, pipe_with};

use super::naming;
use crate::join::Update;
use crate::profile::{DataFileWriter, Profile, ReadOptions, Symbols, read_from};
use crate::symbolize::{DebugSources, OnDisk};

/// The name of the two streams in errors.
const STREAM: &str = "the process that looks up names";

/// The second process, which waits for its question.
pub(super) struct Namer {
    question: File,
    answer: File,
}

impl Namer {
    /// Starts the process, which also searches these sources of debug files. Must be called while this process has a single thread,
    /// because it forks.
    pub(super) fn start(sources: DebugSources) -> io::Result<Self> {
        let (asked, question) = pipe_with(PipeFlags::CLOEXEC)?;
        let (answer, answered) = pipe_with(PipeFlags::CLOEXEC)?;
        let parent = std::process::id();
        // SAFETY: this process has one thread; the child never returns from here.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                drop((question, answer));
                serve(parent, asked, answered, sources);
                // SAFETY: ends this child without the exit handlers of the parent.
                unsafe { libc::_exit(0) }
            }
            _ => Ok(Self {
                question: question.into(),
                answer: answer.into(),
            }),
        }
    }

    /// Looks up names for all addresses of a profile.
    pub(super) fn names(self, profile: &Profile, options: ReadOptions) -> anyhow::Result<Symbols> {
        let Self { question, answer } = self;
        let mut writer = DataFileWriter::to(question, PathBuf::from(STREAM), &profile.info)?;
        writer.update(&Update {
            modules: profile.modules.clone(),
            // Locations refer to them, and a reference must lead somewhere.
            functions: profile.functions.clone(),
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
fn serve(parent: u32, asked: OwnedFd, answered: OwnedFd, sources: DebugSources) {
    // SAFETY: plain system calls on this process alone.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::prctl(libc::PR_SET_NAME, c"heaptrace-names".as_ptr());
        // The parent ended before the death signal was set.
        if libc::getppid() as u32 != parent {
            return;
        }
    }
    let reader = BufReader::new(File::from(asked));
    // Without a question, the parent has ended. With a wrong question, the parent reports that no answer came.
    let Ok(recording) = read_from(reader, STREAM, ReadOptions::default()) else {
        return;
    };
    let symbols = naming::all(&recording.profile, &OnDisk, sources);
    let info = &recording.profile.info;
    let answer = DataFileWriter::to(answered.into(), PathBuf::from(STREAM), info);
    if let Ok(mut writer) = answer
        && writer.symbols(&symbols).is_ok()
    {
        let _ = writer.finish(0);
    }
}
