//! How a command reads a data file: it opens what it needs, gives up all else, and only then reads.
//!
//! Part of the command line, no stage of the flow. A data file comes from anywhere, and is read by whoever got it,
//! often as root. Whoever finds a fault in its reader finds a process that can open no file, start nothing and reach
//! nobody: it has what it reads, and what it writes.

use std::io;

use anyhow::Context as _;

use super::Input;
use super::destination::Output;
use super::namer::Namer;
use crate::profile::{self, DataFile, ReadOptions, Recording, Symbols};
use crate::sandbox::landlock::{self, Access, Allowed};
use crate::sandbox::seccomp::{self, Verdict};
use crate::sandbox::{Kept, rights};

/// What the end of a file that was written takes, beside what every program needs: its name, or its removal.
const OWN: [i64; 4] = [
    libc::SYS_newfstatat,
    libc::SYS_renameat2,
    libc::SYS_unlinkat,
    libc::SYS_ftruncate,
];

/// A data file that is open, and who looks up names that are not in it.
pub(super) struct Opened {
    file: DataFile,
    namer: io::Result<Namer>,
    options: ReadOptions,
}

/// Opens a data file.
pub(super) fn open(input: &Input) -> anyhow::Result<Opened> {
    let until = input.at.map_or(u64::MAX, |at| {
        u64::try_from(at.as_nanos()).unwrap_or(u64::MAX)
    });
    let file = profile::open(&input.file)?;
    Ok(Opened {
        file,
        namer: Namer::start(),
        options: ReadOptions {
            until,
            max_memory: input.max_memory,
        },
    })
}

impl Opened {
    /// Gives up all rights but those to write to this output, and reads the file.
    pub(super) fn read(self, to: Option<&Output>) -> anyhow::Result<Read> {
        if let Err(error) = confine(to) {
            // A kernel without it, or a container that forbids it: what it guards from is a fault of ours.
            tracing::info!("can't give up all rights: {error}");
        }
        let recording = self.file.read(self.options)?;
        Ok(Read {
            recording,
            namer: self.namer,
            options: self.options,
        })
    }
}

/// What was read, and who knows names that are not in it.
pub(super) struct Read {
    pub(super) recording: Recording,
    namer: io::Result<Namer>,
    options: ReadOptions,
}

impl Read {
    /// The recording, with the names that are in it or that this machine's files give.
    pub(super) fn named(self) -> (Recording, Symbols) {
        let Self {
            mut recording,
            namer,
            options,
        } = self;
        if let Some(symbols) = recording.symbols.take() {
            return (recording, symbols);
        }
        let names = namer
            .context("no process can be started")
            .and_then(|it| it.names(&recording.profile, options));
        // What was recorded is worth something without them, too.
        let symbols = names.unwrap_or_else(|error| {
            recording
                .warnings
                .push(format!("names could not be looked up: {error:#}"));
            Symbols::default()
        });
        (recording, symbols)
    }
}

/// Gives up what is not needed any more. Each part is tried, also where another one can't be had.
fn confine(to: Option<&Output>) -> io::Result<()> {
    // First, as no other user may.
    let bound = rights::bound(Kept::empty());
    // Whom the folder belongs to may give a file its name there, which root without capabilities may not.
    match to.and_then(Output::folder).map(rustix::fs::fstat) {
        Some(Ok(folder)) => rights::become_user(folder.st_uid, folder.st_gid),
        Some(Err(_)) => {}
        None => rights::become_nobody(),
    }
    let without = rights::no_new_privileges();
    let capabilities = rights::keep(Kept::empty());
    let dumps = rights::undumpable();
    let folder = to.and_then(Output::folder).map(|below| Allowed {
        below,
        access: Access::Write,
    });
    let files = landlock::restrict(folder.as_slice());
    let allowed = seccomp::BASIC
        .into_iter()
        .chain(OWN)
        .map(|call| (call, Verdict::Allow));
    // A standard library that is told that this one is not there takes the older ones.
    let missing = (libc::SYS_statx, Verdict::Fail(libc::ENOSYS));
    let calls = seccomp::restrict(allowed.chain([missing]));
    bound.and(without).and(capabilities).and(dumps)?;
    files?;
    calls
}
