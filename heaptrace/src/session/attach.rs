//! Finds the allocators of the targets, and probes them.
//!
//! Part of the session. Must not know how allocators are found in a file, nor how a probe is made.

use std::collections::HashSet;
use std::path::{self, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::observer::{Observer, Progress};
use super::run::Run;
use crate::config::{RunConfig, Target};
use crate::join::{self, Joiner, Note};
use crate::open::FileId;
use crate::probes::allocators::{self, Allocator, Effort, Found, LookFor, Numbers, Unprobed};
use crate::probes::launch::Held;
use crate::probes::target_events::AttachError;
use crate::proc::owner::Owner;
use crate::proc::processes;
use crate::reader::Reader;
use crate::sys;

/// How many processes are searched between two reports of progress.
const BETWEEN_REPORTS: usize = 8;

/// Most reasons that an error names.
const MOST_REASONS: usize = 3;

/// Whether the streams are read while probes are made.
#[derive(Clone, Copy)]
pub(super) enum Streams {
    /// They are read: the processes of interest are known.
    Read,
    /// They are not read yet: the targets are not followed yet, and earlier events are discarded.
    Wait,
}

/// What to search for in the targets' files.
fn look_for(config: &RunConfig) -> LookFor<'_> {
    LookFor {
        named: &config.allocators,
        mappings: config.mappings,
    }
}

/// Searches the targets for allocators, unless the target is all processes. A command comes with the files that it may
/// map.
pub(super) fn find(
    config: &RunConfig,
    held: Option<&Held>,
    files: Vec<PathBuf>,
    reader: &mut Reader,
    observer: &mut dyn Observer,
) -> Result<Vec<(Owner, Found)>> {
    let wanted = look_for(config);
    match &config.target {
        Target::Command(_) => {
            let held = held.context("the command was not started")?;
            let found = allocators::of_command(reader, files, wanted);
            if found.allocators.is_empty() {
                bail!(none_found("the command", &found));
            }
            Ok(vec![(Owner::of(held.pid), found)])
        }
        Target::Pids(pids) => {
            let mut all = Vec::new();
            for (done, pid) in pids.iter().enumerate() {
                observer.progress(Progress::Searching {
                    done,
                    all: pids.len(),
                });
                let found = allocators::of_process(
                    reader,
                    *pid,
                    wanted,
                    Effort::Thorough,
                    &mut HashSet::new(),
                )
                .map_err(|error| unreadable(*pid, error))?;
                if found.allocators.is_empty() {
                    bail!(none_found(&format!("process {pid}"), &found));
                }
                all.push((Owner::of(*pid), found));
            }
            Ok(all)
        }
        Target::All => Ok(Vec::new()),
    }
}

/// Probes the found allocators of the targets; searches first if the target is all processes. Returns the files that were
/// searched then.
pub(super) fn attach(
    config: &RunConfig,
    held: Option<&Held>,
    found: Vec<(Owner, Found)>,
    reader: &mut Reader,
    run: &mut Run,
    observer: &mut dyn Observer,
) -> Result<HashSet<Numbers>> {
    match &config.target {
        Target::Command(words) => {
            let held = held.context("the command was not started")?;
            add_all(found, Streams::Wait, run, observer)?;
            require_probes("the command", run)?;
            follow(&[held.pid], run)?;
            if let Some(path) = words.first().and_then(|word| path::absolute(word).ok()) {
                run.joiner.set_launched(held.pid, path);
            }
            Ok(HashSet::new())
        }
        Target::Pids(pids) => {
            add_all(found, Streams::Wait, run, observer)?;
            require_probes("these processes", run)?;
            follow(pids, run)?;
            run.joiner.set_begin(sys::boot_time());
            pids.iter().for_each(|pid| run.joiner.add_target(*pid));
            Ok(HashSet::new())
        }
        Target::All => {
            run.joiner.set_begin(sys::boot_time());
            attach_all(reader, look_for(config), run, observer)
        }
    }
}

/// Follows the targets from now on.
fn follow(pids: &[u32], run: &mut Run) -> Result<()> {
    run.drain.forget_earlier();
    for pid in pids {
        run.joiner.add_process(*pid);
        run.probes.add_process(*pid)?;
    }
    Ok(())
}

/// Probes the allocators of every process. Processes that can't be read are counted. Returns the searched files.
fn attach_all(
    reader: &mut Reader,
    wanted: LookFor<'_>,
    run: &mut Run,
    observer: &mut dyn Observer,
) -> Result<HashSet<Numbers>> {
    let mut searched = HashSet::new();
    let pids = processes::processes().context("can't list the processes of /proc")?;
    let mut found = Vec::new();
    let mut unread = 0;
    for (index, some) in pids.chunks(BETWEEN_REPORTS).enumerate() {
        observer.progress(Progress::Searching {
            done: index * BETWEEN_REPORTS,
            all: pids.len(),
        });
        let of_one = |pid: &u32| match allocators::of_process(
            reader,
            *pid,
            wanted,
            Effort::Quick,
            &mut searched,
        ) {
            Ok(found) => Some((Owner::of(*pid), found)),
            Err(error) => {
                unread += u64::from(!sys::is_gone(&error));
                None
            }
        };
        // There are many processes, and new ones start and map files meanwhile.
        found.extend(run.during(|_, _| some.iter().filter_map(of_one).collect::<Vec<_>>())?);
    }
    run.joiner.set_noted(Note::ProcessesNotRead, unread);
    let is_any = found.iter().any(|(_, it)| !it.allocators.is_empty());
    add_all(found, Streams::Read, run, observer)?;
    if !is_any {
        bail!("no process of this machine has an allocator that heaptrace knows");
    }
    require_probes("this machine", run)?;
    Ok(searched)
}

/// Probes all found allocators, and reports the progress.
fn add_all(
    found: Vec<(Owner, Found)>,
    streams: Streams,
    run: &mut Run,
    observer: &mut dyn Observer,
) -> Result<()> {
    let files = found.iter().flat_map(|(_, it)| &it.allocators);
    let files: HashSet<FileId> = files.map(|it| it.id).collect();
    let mut progress = |done| {
        observer.progress(Progress::Attaching {
            done,
            all: files.len(),
        });
    };
    let mut tried = HashSet::new();
    progress(0);
    for (owner, found) in found {
        name_all(found.unprobed, &owner, run);
        for allocator in found.allocators {
            if !run.probes.has(allocator.id) {
                tried.insert(allocator.id);
                add(allocator, &owner, streams, run)?;
                progress(tried.len());
            }
        }
    }
    Ok(())
}

/// Refuses a run in which every file was refused.
fn require_probes(whose: &str, run: &Run) -> Result<()> {
    if run.probes.has_any() {
        return Ok(());
    }
    let reasons: Vec<&str> = run.joiner.unprobed().take(MOST_REASONS).collect();
    bail!("nothing of {whose} can be traced: {}", reasons.join("; "))
}

/// Probes the found allocators that are not probed yet, and reports them to join; returns their files. A file
/// that can't be probed is named in reports. An error means that this machine can't probe at all.
pub(super) fn add_found(
    found: Found,
    owner: &Owner,
    streams: Streams,
    run: &mut Run,
) -> Result<Vec<FileId>> {
    name_all(found.unprobed, owner, run);
    let mut new = Vec::new();
    for allocator in found.allocators {
        let id = allocator.id;
        if !run.probes.has(id) && add(allocator, owner, streams, run)? {
            new.push(id);
        }
    }
    Ok(new)
}

/// Probes an allocator, and reports it to join; returns whether it is probed.
fn add(mut allocator: Allocator, owner: &Owner, streams: Streams, run: &mut Run) -> Result<bool> {
    if run.is_fast() {
        allocator.drop_lone_frees();
        if allocator.functions.is_empty() {
            return Ok(false);
        }
    }
    let added = match streams {
        // The kernel visits every process that has mapped the file, which takes a while.
        Streams::Read => {
            run.during(|program, probes| probes.add_allocator(program, &allocator, owner))??
        }
        Streams::Wait => run
            .probes
            .add_allocator(&mut run.program, &allocator, owner)?,
    };
    let is_probed = added.is_ok();
    if is_probed {
        run.keep_functions(allocator.id, &allocator.functions);
    }
    match added {
        Ok(()) => report_probed(&allocator, &mut run.joiner),
        Err(refusal) => {
            tracing::warn!("not probed: {}: {refusal}", allocator.path);
            name_unprobed(format!("{}: {refusal}", allocator.path), owner, run);
        }
    }
    run.joiner
        .set_noted(Note::FilesRefused, run.probes.refused());
    Ok(is_probed)
}

/// Names the files of which heaptrace found out that they can't be probed.
fn name_all(unprobed: Vec<Unprobed>, owner: &Owner, run: &mut Run) {
    for unprobed in unprobed {
        tracing::info!("not probed: {unprobed}");
        name_unprobed(unprobed.to_string(), owner, run);
    }
}

/// Names a file that is not probed, unless its owner has filled the list; then the file is counted.
fn name_unprobed(words: String, owner: &Owner, run: &mut Run) {
    if run.probes.may_name(owner) {
        run.joiner.add_unprobed(words);
    } else {
        run.joiner.note_one(Note::FilesUnprobedUnnamed);
    }
}

/// Reports a probed allocator to join.
fn report_probed(allocator: &Allocator, joiner: &mut Joiner) {
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
        let probed = join::Allocator {
            hooks,
            kind: kind.to_owned(),
            path: allocator.path.clone(),
        };
        joiner.add_allocator(probed, allocator.id);
    }
}

/// Says why nothing of a target can be traced.
fn none_found(whose: &str, found: &Found) -> String {
    let reasons: Vec<String> = found.unprobed.iter().map(ToString::to_string).collect();
    if reasons.is_empty() {
        format!(
            "{whose} has no allocator that heaptrace knows; if it has one under other names, name its file with \
             `--allocator PATH[:PREFIX]`"
        )
    } else {
        format!("nothing of {whose} can be traced: {}", reasons.join("; "))
    }
}

fn unreadable(pid: u32, error: std::io::Error) -> anyhow::Error {
    match sys::is_gone(&error) {
        true => AttachError::Ended(pid).into(),
        false => {
            anyhow::Error::new(error).context(format!("can't read the mappings of process {pid}"))
        }
    }
}
