//! Reads a data file without rights: opens the files that it needs, gives up all rights, and only then reads.
//!
//! Part of the command line. A data file may come from anywhere, and is often read as root. An attacker who
//! exploits a fault in its reader gets a process that can open no file, start no program and reach no other
//! process. It has only the file that it reads, and its output.

use std::io;

use anyhow::{Context as _, ensure};

use super::destination::Output;
use super::invocation::Input;
use super::moment::{Moment, Run};
use super::namer::Namer;
use crate::profile::{self, DataFile, ReadOptions, Recording, Symbols, WantedBlocks};
use crate::sandbox::landlock::{self, Access, Allowed};
use crate::sandbox::seccomp::{self, Verdict};
use crate::sandbox::{Kept, rights};
use crate::symbolize::DebugSources;
use crate::sys;

/// System calls that an output file needs at its end, beyond those of every program: it gets its name, or is
/// removed.
const OWN: [i64; 4] = [
    libc::SYS_newfstatat,
    libc::SYS_renameat2,
    libc::SYS_unlinkat,
    libc::SYS_ftruncate,
];

/// An open data file, and the process that looks up names that are not in it.
pub(super) struct Opened {
    file: DataFile,
    namer: io::Result<Namer>,
    from: Option<Moment>,
    to: Option<Moment>,
    options: ReadOptions,
}

/// Opens a data file. Names that are not in it are looked up with these sources of debug files.
pub(super) fn open(input: &Input, sources: DebugSources) -> anyhow::Result<Opened> {
    let file = profile::open(&input.file)?;
    // The time zone is read from a file, and files can be opened only now.
    sys::local_time_ahead(0);
    Ok(Opened {
        file,
        namer: Namer::start(sources),
        from: input.from,
        to: input.at,
        options: ReadOptions {
            max_memory: input.max_memory,
            with_history: input.with_history,
            ..ReadOptions::default()
        },
    })
}

impl Opened {
    /// Keeps a history of at most so many periods.
    pub(super) fn with_periods(mut self, periods: usize) -> Self {
        (self.options.with_history, self.options.periods) = (true, Some(periods));
        self
    }

    /// Reads single blocks, too.
    pub(super) fn with_blocks(mut self, wanted: WantedBlocks) -> Self {
        self.file = self.file.with_blocks(wanted);
        self
    }

    /// Gives up all rights except those to write this output, and reads the file.
    pub(super) fn read(self, to: Option<&Output>) -> anyhow::Result<Read> {
        give_up_rights(to);
        self.read_confined()
    }

    /// The same, with single blocks. Which ones are wanted is asked without rights: the answer may depend on another file.
    pub(super) fn read_blocks(
        mut self,
        wanted: impl FnOnce() -> anyhow::Result<WantedBlocks>,
    ) -> anyhow::Result<Read> {
        give_up_rights(None);
        self.file = self.file.with_blocks(wanted()?);
        self.read_confined()
    }

    /// The same for two files.
    pub(super) fn read_both(both: [Self; 2], to: Option<&Output>) -> anyhow::Result<[Read; 2]> {
        give_up_rights(to);
        let [first, second] = both;
        Ok([first.read_confined()?, second.read_confined()?])
    }

    fn read_confined(self) -> anyhow::Result<Read> {
        let options = self.restricted()?;
        let recording = self.file.read(options)?;
        Ok(Read {
            recording,
            file: self.file,
            namer: self.namer,
            options,
        })
    }

    /// The options for the wanted part of the run.
    fn restricted(&self) -> anyhow::Result<ReadOptions> {
        let mut run = Run::default();
        if [self.from, self.to]
            .into_iter()
            .flatten()
            .any(Moment::needs_run)
        {
            // The file is read twice: its end is known only then.
            let options = ReadOptions {
                until: 0,
                ..self.options
            };
            let recording = self.file.read(options)?;
            let info = &recording.profile.info;
            run = Run {
                started_unix_ns: info.started_unix_ns,
                ahead_s: sys::local_time_ahead(info.started_unix_ns / 1_000_000_000),
                duration_ns: recording.snapshots.last().map_or(0, |it| it.elapsed_ns),
            };
        }
        let elapsed = |moment: Option<Moment>| -> anyhow::Result<Option<u64>> {
            let moment = moment.map(|it| it.elapsed_ns(&run)).transpose();
            moment.map_err(anyhow::Error::msg)
        };
        let (from, until) = (elapsed(self.from)?, elapsed(self.to)?);
        if let (Some(from), Some(until)) = (self.from.zip(from), self.to.zip(until)) {
            ensure!(
                from.1 < until.1,
                "the range from {} to {} has no time: name a --to that is after --from",
                from.0,
                until.0
            );
        }
        Ok(ReadOptions {
            from,
            until: until.unwrap_or(u64::MAX),
            ..self.options
        })
    }
}

/// The content of a data file, and the process that looks up names that are not in it.
pub(super) struct Read {
    pub(super) recording: Recording,
    file: DataFile,
    namer: io::Result<Namer>,
    options: ReadOptions,
}

impl Read {
    /// The recording, with its own names or those from the files of this machine.
    pub(super) fn named(self) -> (Recording, Symbols) {
        let Self {
            mut recording,
            namer,
            options,
            ..
        } = self;
        if let Some(symbols) = recording.symbols.take() {
            return (recording, symbols);
        }
        let names = names(namer, &recording, options);
        // The recording is useful also without names.
        let symbols = names.unwrap_or_else(|error| {
            recording
                .warnings
                .push(format!("names could not be looked up: {error:#}"));
            Symbols::default()
        });
        (recording, symbols)
    }

    /// The recording, the names from the files of this machine, and the data file.
    pub(super) fn looked_up(self) -> anyhow::Result<(Recording, Symbols, DataFile)> {
        let symbols = names(self.namer, &self.recording, self.options)?;
        Ok((self.recording, symbols, self.file))
    }
}

/// The names that the files of this machine have for a recording.
fn names(
    namer: io::Result<Namer>,
    recording: &Recording,
    options: ReadOptions,
) -> anyhow::Result<Symbols> {
    namer
        .context("can't start a process")
        .and_then(|it| it.names(&recording.profile, options))
}

/// Gives up all rights except those to write this output, as far as the kernel can.
fn give_up_rights(to: Option<&Output>) {
    if let Err(error) = confine(to) {
        // The kernel lacks a feature, or a container forbids it. Reading continues: the sandbox only
        // guards against a fault in our own reader.
        tracing::info!("can't give up all rights: {error}");
    }
}

/// Gives up all rights that are not needed any more. Each step is tried, also if another step fails.
fn confine(to: Option<&Output>) -> io::Result<()> {
    // First: another user could not do this.
    let bound = rights::bound(Kept::empty());
    // The owner of the folder may name a file there; root without capabilities may not.
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
    // The standard library uses older calls if this one seems to be missing.
    let missing = (libc::SYS_statx, Verdict::Fail(libc::ENOSYS));
    let calls = seccomp::restrict(allowed.chain([missing]));
    bound.and(without).and(capabilities).and(dumps)?;
    files?;
    calls
}
