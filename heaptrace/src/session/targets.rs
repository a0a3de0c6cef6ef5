//! Whom a run traces: found, launched and probed.
//!
//! Part of the session.

use std::collections::HashSet;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use super::drain::Drain;
use crate::config::{RunConfig, Target};
use crate::join::{self, Joiner};
use crate::open::FileId;
use crate::probes::allocators::{self, Allocator, Effort, Found, LookFor};
use crate::probes::attach::{AttachError, Probes, Reach};
use crate::probes::launch::{self, Held, LaunchError};
use crate::probes::maps::Mapping;
use crate::probes::program::Program;
use crate::probes::running;
use crate::reader::Reader;
use crate::unwind::{self, MappedFile, Tables, User};

/// Refuses targets that aren't there, before anything is set up.
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

/// Starts a command, held before its first instruction.
pub(super) fn launch(target: &Target) -> Result<Option<Held>> {
    match target {
        Target::Command(words) => Held::new(words).map(Some),
        Target::Pids(_) | Target::All => Ok(None),
    }
}

/// Whether every process of the machine is of interest.
pub(super) fn follows_all(target: &Target) -> bool {
    matches!(target, Target::All)
}

/// Whom the probes must reach.
pub(super) fn reach(config: &RunConfig) -> Reach {
    match (&config.target, config.children) {
        (Target::All, _) => Reach::All,
        (_, true) => Reach::Tree,
        (_, false) => Reach::Processes,
    }
}

/// Loads the unwind tables of what the targets run, so that their first stacks are whole.
pub(super) fn load_tables(
    config: &RunConfig,
    held: Option<&Held>,
    reader: &mut Reader,
    tables: &Tables,
) {
    let files = match &config.target {
        Target::Command(words) => {
            let program = words.first().map(Path::new).and_then(Path::file_name);
            let user = held.zip(program).map(|(held, program)| User {
                pid: held.pid,
                name: Some(program.to_string_lossy().into_owned()),
            });
            allocators::files_of_command(reader, words)
                .iter()
                .filter_map(|path| MappedFile::open(path, user.clone()))
                .collect()
        }
        Target::Pids(pids) => pids
            .iter()
            .flat_map(|pid| unwind::of_process(*pid))
            .collect(),
        // What is needed is asked for; everything that runs would be too much.
        Target::All => Vec::new(),
    };
    if !tables.load_now(files.into_iter().chain(unwind::vdso())) {
        tracing::warn!(
            "some unwind tables take long; the first stacks through their files are broken off"
        );
    }
}

/// The processes that are probed from the beginning.
pub(super) fn pids(target: &Target, held: Option<&Held>) -> Vec<u32> {
    match target {
        Target::Command(_) => held.iter().map(|held| held.pid).collect(),
        Target::Pids(pids) => pids.clone(),
        Target::All => Vec::new(),
    }
}

/// What is looked for in the targets' files.
fn looks_for(config: &RunConfig) -> LookFor<'_> {
    LookFor {
        named: &config.allocators,
        mappings: config.mappings,
    }
}

/// Probes the allocators of the targets.
pub(super) fn attach(
    config: &RunConfig,
    held: Option<&Held>,
    reader: &mut Reader,
    drain: &mut Drain,
    program: &mut Program,
    probes: &mut Probes,
    joiner: &mut Joiner,
) -> Result<()> {
    let wanted = looks_for(config);
    match &config.target {
        Target::Command(words) => {
            let held = held.context("the command was not started")?;
            let found = allocators::of_command(reader, words, wanted);
            if found.allocators.is_empty() {
                bail!(none_found("the command", &found));
            }
            add_found(found, None, program, probes, joiner)?;
            joiner.add_process(held.pid);
            probes.add_process(held.pid)
        }
        Target::Pids(pids) => {
            for pid in pids {
                let found =
                    allocators::of_process(reader, *pid, wanted, Effort::Thorough, |_| false)
                        .map_err(|error| unreadable(*pid, error))?;
                if found.allocators.is_empty() {
                    bail!(none_found(&format!("process {pid}"), &found));
                }
                add_found(found, None, program, probes, joiner)?;
            }
            for pid in pids {
                joiner.add_process(*pid);
                probes.add_process(*pid)?;
            }
            Ok(())
        }
        Target::All => {
            let mut seen = HashSet::new();
            let pids = running::processes().context("/proc")?;
            // There are many, and meanwhile others come and map files.
            let found: Vec<Found> = drain.during(joiner, || {
                let of_one = |pid: u32| {
                    let is_known =
                        |mapping: &Mapping| !seen.insert((mapping.device, mapping.inode));
                    // A process that can't be read ended, or is the kernel's own.
                    allocators::of_process(reader, pid, wanted, Effort::Quick, is_known).ok()
                };
                pids.into_iter().filter_map(of_one).collect()
            })?;
            let is_any = found.iter().any(|it| !it.allocators.is_empty());
            for found in found {
                add_found(found, Some(drain), program, probes, joiner)?;
            }
            if !is_any {
                bail!("no process of this machine has an allocator that heaptrace knows");
            }
            Ok(())
        }
    }
}

/// Probes what was found and is not probed yet, and makes it known. The streams are read meanwhile, where it is known
/// already whom they are about.
pub(super) fn add_found(
    found: Found,
    mut drain: Option<&mut Drain>,
    program: &mut Program,
    probes: &mut Probes,
    joiner: &mut Joiner,
) -> Result<Vec<FileId>> {
    for unprobed in found.unprobed {
        tracing::info!("not probed: {unprobed}");
        joiner.add_unprobed(unprobed.to_string());
    }
    let mut new = Vec::new();
    for allocator in found.allocators {
        if probes.has(allocator.id) {
            continue;
        }
        let mut add = || probes.add_allocator(program, &allocator);
        match &mut drain {
            // The kernel goes through every process that has mapped the file.
            Some(drain) => drain.during(joiner, add)??,
            None => add()?,
        }
        new.push(allocator.id);
        tell(&allocator, joiner);
    }
    Ok(new)
}

/// Makes an allocator known that is probed.
fn tell(allocator: &Allocator, joiner: &mut Joiner) {
    joiner.add_own_code(
        allocator.path.clone(),
        allocator.id,
        allocator.own_code.clone(),
    );
    for note in &allocator.notes {
        tracing::info!("{}: {note}", allocator.path);
        joiner.add_unprobed(format!("{}: {note}", allocator.path));
    }
    for kind in allocator.kinds() {
        let hooks = allocator.hook_names(kind);
        tracing::info!(
            "probing {} in {} ({kind})",
            hooks.join(", "),
            allocator.path
        );
        let known = join::Allocator {
            hooks,
            kind: kind.to_owned(),
            path: allocator.path.clone(),
        };
        joiner.add_allocator(known, allocator.id);
    }
}

/// Why nothing of a target can be traced.
fn none_found(whose: &str, found: &Found) -> String {
    let reasons: Vec<String> = found.unprobed.iter().map(ToString::to_string).collect();
    if reasons.is_empty() {
        format!(
            "{whose} has no allocator that heaptrace knows; if one has other names, `--allocator PATH[:PREFIX]` tells them"
        )
    } else {
        format!("nothing of {whose} can be traced: {}", reasons.join("; "))
    }
}

fn unreadable(pid: u32, error: std::io::Error) -> anyhow::Error {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ESRCH) => AttachError::Ended(pid).into(),
        _ => anyhow::Error::new(error).context(format!("can't read the mappings of process {pid}")),
    }
}
