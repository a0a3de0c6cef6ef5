//! Whom a run traces: found, launched and probed.
//!
//! Part of the session.

use std::collections::HashSet;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::config::{RunConfig, Target};
use crate::join::{self, Joiner};
use crate::probes::allocator::{self, Allocator};
use crate::probes::attach::{AttachError, Probes, Reach};
use crate::probes::elf;
use crate::probes::launch::{self, Held, LaunchError};
use crate::probes::program::Program;
use crate::unwind::{self, Loader};

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
pub(super) fn load_tables(config: &RunConfig, loader: &mut Loader) {
    let files = match &config.target {
        Target::Command(words) => {
            let program = words.first().and_then(|word| launch::look_up(word));
            program
                .map(|path| unwind::of_command(&path))
                .unwrap_or_default()
        }
        Target::Pids(pids) => pids
            .iter()
            .flat_map(|pid| unwind::of_process(*pid))
            .collect(),
        // What is needed is asked for; everything that runs would be too much.
        Target::All => Vec::new(),
    };
    for file in files.iter().chain(&unwind::vdso()) {
        loader.load(file);
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

/// Probes the allocators of the targets.
pub(super) fn attach(
    config: &RunConfig,
    held: Option<&Held>,
    program: &Program,
    probes: &mut Probes,
    joiner: &mut Joiner,
) -> Result<()> {
    match &config.target {
        Target::Command(words) => {
            let held = held.context("the command was not started")?;
            let path = words.first().and_then(|word| launch::look_up(word));
            let path = path.context("no command given")?;
            let found = allocator::of_command(&path);
            if found.is_empty() {
                bail!("no glibc was found on this machine; heaptrace knows no other allocator yet");
            }
            add_allocators(found, program, probes, joiner)?;
            joiner.add_process(held.pid);
            probes.add_process(held.pid)
        }
        Target::Pids(pids) => {
            for pid in pids {
                let found = allocator::of_process(*pid).map_err(|error| unreadable(*pid, error))?;
                if found.is_empty() {
                    bail!(
                        "process {pid} has no glibc mapped; heaptrace knows no other allocator yet"
                    );
                }
                add_allocators(found, program, probes, joiner)?;
            }
            for pid in pids {
                joiner.add_process(*pid);
                probes.add_process(*pid)?;
            }
            Ok(())
        }
        Target::All => {
            let mut seen = HashSet::new();
            for pid in processes()? {
                // A process that can't be read ended, or is the kernel's own.
                let found = allocator::of_process(pid).unwrap_or_default();
                let new = found.into_iter().filter(|it| seen.insert(it.id)).collect();
                add_allocators(new, program, probes, joiner)?;
            }
            if seen.is_empty() {
                bail!("no process of this machine has glibc mapped");
            }
            Ok(())
        }
    }
}

fn add_allocators(
    found: Vec<Allocator>,
    program: &Program,
    probes: &mut Probes,
    joiner: &mut Joiner,
) -> Result<()> {
    for allocator in found {
        if probes.has(allocator.id) {
            continue;
        }
        probes.add_allocator(program, &allocator)?;
        tracing::info!(
            "probing {} in {}",
            allocator.placed_names().join(", "),
            allocator.path
        );
        let build_id = elf::build_id(&allocator.file);
        let known = join::Allocator {
            hooks: allocator.hook_names(),
            kind: allocator.kind.to_owned(),
            path: allocator.path,
        };
        joiner.add_allocator(known, build_id);
    }
    Ok(())
}

fn unreadable(pid: u32, error: std::io::Error) -> anyhow::Error {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ESRCH) => AttachError::Ended(pid).into(),
        _ => anyhow::Error::new(error).context(format!("can't read the mappings of process {pid}")),
    }
}

/// Every process but this one.
fn processes() -> Result<Vec<u32>> {
    let own = std::process::id();
    let entries = std::fs::read_dir("/proc").context("/proc")?;
    Ok(entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| *pid != own)
        .collect())
}
