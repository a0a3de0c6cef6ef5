//! The targets of a run: checks them, starts a command, and says which processes the probes must reach.
//!
//! Part of the session. Must not know how a target is probed.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::config::{RunConfig, Target};
use crate::join::Follow;
use crate::open::{self, FileId};
use crate::probes::allocators;
use crate::probes::fast::plan;
use crate::probes::launch::{self, Held, LaunchError};
use crate::probes::target_events::{AttachError, Reach};
use crate::reader::Reader;
use crate::unwind::{self, MappedFile, Tables, UsingProcess};

/// Refuses targets that don't exist, before anything is set up.
pub(super) fn check(target: &Target) -> Result<()> {
    match target {
        Target::Pids(pids) => {
            for pid in pids {
                if !Path::new(&format!("/proc/{pid}")).exists() {
                    return Err(AttachError::NoProcess(*pid).into());
                }
                if *pid == std::process::id() {
                    bail!("heaptrace can't trace itself");
                }
            }
        }
        Target::Command(words) => {
            let word = words.first().context("no command given")?;
            if launch::look_up(word).is_none() {
                return Err(LaunchError::NotFound(word.to_string_lossy().into_owned()).into());
            }
        }
        Target::All => {}
    }
    Ok(())
}

/// Starts the command, held before its first instruction; `None` for other targets.
pub(super) fn launch(config: &RunConfig) -> Result<Option<Held>> {
    match &config.target {
        Target::Command(words) => Held::new(words, config.run_as.as_ref()).map(Some),
        Target::Pids(_) | Target::All => Ok(None),
    }
}

/// Which processes the join follows.
pub(super) fn follow(config: &RunConfig) -> Follow {
    match reach(config) {
        Reach::All => Follow::All,
        Reach::OneByOne => Follow::Reached,
        Reach::Tree | Reach::Processes => Follow::Family,
    }
}

/// Which processes the probes must reach.
pub(super) fn reach(config: &RunConfig) -> Reach {
    match &config.target {
        Target::All if config.from_birth => Reach::All,
        Target::All => Reach::OneByOne,
        _ if config.children => Reach::Tree,
        _ => Reach::Processes,
    }
}

/// Loads the unwind tables of the files that the targets run, so that their first stacks are complete. Returns
/// the files that a command may map.
pub(super) fn load_tables(
    config: &RunConfig,
    held: Option<&Held>,
    reader: &mut Reader,
    tables: &Tables,
) -> Vec<PathBuf> {
    let mut of_command = Vec::new();
    let files = match &config.target {
        Target::Command(words) => {
            let program = words.first().map(Path::new).and_then(Path::file_name);
            let user = held.zip(program).map(|(held, program)| UsingProcess {
                pid: held.pid,
                name: Some(program.to_string_lossy().into_owned()),
            });
            of_command = allocators::files_of_command(reader, words);
            of_command
                .iter()
                .filter_map(|path| MappedFile::open(path, user.clone()))
                .collect()
        }
        Target::Pids(pids) => pids
            .iter()
            .flat_map(|pid| unwind::of_process(*pid))
            .collect(),
        // The kernel program requests the tables that it needs; those of all processes would be too many.
        Target::All => Vec::new(),
    };
    if !tables.load_now(files.into_iter().chain(unwind::vdso())) {
        tracing::warn!(
            "some unwind tables take long to make; the first stacks through their files are incomplete"
        );
    }
    of_command
}

/// The files that the targets have mapped, or that a command may map, to be read before they are traced.
pub(super) fn modules(config: &RunConfig, of_command: &[PathBuf]) -> Vec<(FileId, String, File)> {
    let of_paths = of_command.iter().filter_map(|path| {
        let opened = open::named(path).ok()?;
        let path = path.to_string_lossy().into_owned();
        Some((opened.identity.file, path, opened.file))
    });
    let pids = match &config.target {
        Target::Pids(pids) => pids.as_slice(),
        Target::Command(_) | Target::All => &[],
    };
    let of_pids = pids.iter().flat_map(|pid| plan::modules(*pid));
    of_paths
        .chain(of_pids.map(|module| (module.id, module.path, module.file)))
        .collect()
}

/// The processes that are probed from the beginning.
pub(super) fn pids(target: &Target, held: Option<&Held>) -> Vec<u32> {
    match target {
        Target::Command(_) => held.iter().map(|held| held.pid).collect(),
        Target::Pids(pids) => pids.clone(),
        Target::All => Vec::new(),
    }
}
