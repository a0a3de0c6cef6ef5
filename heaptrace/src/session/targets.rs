//! Whom a run traces: found, launched and probed.
//!
//! Part of the session.

use std::collections::HashSet;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use super::drain::Drain;
use crate::config::{RunConfig, Target};
use crate::join::{self, Joiner, Note};
use crate::kernel::program::Program;
use crate::open::FileId;
use crate::probes::allocators::{self, Allocator, Effort, Found, LookFor};
use crate::probes::attach::{AttachError, Probes, Reach};
use crate::probes::launch::{self, Held, LaunchError};
use crate::proc::maps::Mapping;
use crate::proc::owner::Owner;
use crate::proc::processes;
use crate::reader::Reader;
use crate::unwind::{self, MappedFile, Tables, User};

/// Reasons that an error names.
const MOST_REASONS: usize = 3;

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
pub(super) fn launch(config: &RunConfig) -> Result<Option<Held>> {
    match &config.target {
        Target::Command(words) => Held::new(words, config.run_as.as_ref()).map(Some),
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
            let owner = Owner::of(held.pid);
            add_found(found, &owner, None, program, probes, joiner)?;
            is_any_probed("the command", probes, joiner)?;
            drain.forget_earlier();
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
                add_found(found, &Owner::of(*pid), None, program, probes, joiner)?;
            }
            is_any_probed("these processes", probes, joiner)?;
            drain.forget_earlier();
            for pid in pids {
                joiner.add_process(*pid);
                probes.add_process(*pid)?;
            }
            Ok(())
        }
        Target::All => attach_all(reader, wanted, drain, program, probes, joiner),
    }
}

/// Probes the allocators of every process. One that can't be read is counted.
fn attach_all(
    reader: &mut Reader,
    wanted: LookFor<'_>,
    drain: &mut Drain,
    program: &mut Program,
    probes: &mut Probes,
    joiner: &mut Joiner,
) -> Result<()> {
    let mut seen = HashSet::new();
    let pids = processes::processes().context("/proc")?;
    // There are many, and meanwhile others come and map files.
    let (found, unread) = drain.during(joiner, || {
        let mut unread = 0;
        let of_one = |pid: u32| {
            let is_known = |mapping: &Mapping| !seen.insert((mapping.device, mapping.inode));
            match allocators::of_process(reader, pid, wanted, Effort::Quick, is_known) {
                Ok(found) => Some((Owner::of(pid), found)),
                Err(error) => {
                    let has_ended =
                        matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH));
                    unread += u64::from(!has_ended);
                    None
                }
            }
        };
        let found: Vec<(Owner, Found)> = pids.into_iter().filter_map(of_one).collect();
        (found, unread)
    })?;
    joiner.set_noted(Note::ProcessesNotRead, unread);
    let is_any = found.iter().any(|(_, it)| !it.allocators.is_empty());
    for (owner, found) in found {
        add_found(found, &owner, Some(drain), program, probes, joiner)?;
    }
    if !is_any {
        bail!("no process of this machine has an allocator that heaptrace knows");
    }
    is_any_probed("this machine", probes, joiner)
}

/// Refuses a run in which every file was refused.
fn is_any_probed(whose: &str, probes: &Probes, joiner: &Joiner) -> Result<()> {
    if probes.has_any() {
        return Ok(());
    }
    let reasons: Vec<&str> = joiner.unprobed().take(MOST_REASONS).collect();
    bail!("nothing of {whose} can be traced: {}", reasons.join("; "))
}

/// Probes what was found and is not probed yet, and makes it known. The streams are read meanwhile, where it is known
/// already whom they are about. A file that can't be probed is named; an error is the machine's.
pub(super) fn add_found(
    found: Found,
    owner: &Owner,
    mut drain: Option<&mut Drain>,
    program: &mut Program,
    probes: &mut Probes,
    joiner: &mut Joiner,
) -> Result<Vec<FileId>> {
    for unprobed in found.unprobed {
        tracing::info!("not probed: {unprobed}");
        name_unprobed(unprobed.to_string(), owner, probes, joiner);
    }
    let mut new = Vec::new();
    for allocator in found.allocators {
        if probes.has(allocator.id) {
            continue;
        }
        let mut add = || probes.add_allocator(program, &allocator, owner);
        let added = match &mut drain {
            // The kernel goes through every process that has mapped the file.
            Some(drain) => drain.during(joiner, add)??,
            None => add()?,
        };
        match added {
            Ok(()) => {
                new.push(allocator.id);
                tell(&allocator, joiner);
            }
            Err(refusal) => {
                tracing::warn!("not probed: {}: {refusal}", allocator.path);
                let words = format!("{}: {refusal}", allocator.path);
                name_unprobed(words, owner, probes, joiner);
            }
        }
        joiner.set_noted(Note::FilesRefused, probes.refused());
    }
    Ok(new)
}

/// Names a file that is not probed, as long as its owner has not filled the list.
fn name_unprobed(words: String, owner: &Owner, probes: &mut Probes, joiner: &mut Joiner) {
    if probes.may_name(owner) {
        joiner.add_unprobed(words);
    } else {
        joiner.note_one(Note::FilesUnprobedUnnamed);
    }
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
