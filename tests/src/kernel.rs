//! The kernel objects of a tracer, and those of them that are left after its end.
//!
//! Part of the harness. It reads the kernel's own lists, and asks no tracer.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context as _, Result, ensure};

use crate::child::{has_ended, send};
use crate::tracefs::uprobe_events;
use crate::until::{MINUTE, until};

/// A kind of kernel object that has a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Program,
    Map,
    Link,
}

/// For each kind, the command of bpf(2) that names the object with the next larger number, and the name of the number in fdinfo.
const KINDS: [(Kind, libc::c_int, &str); 3] = [
    (Kind::Program, 11, "prog_id:"),
    (Kind::Map, 12, "map_id:"),
    (Kind::Link, 31, "link_id:"),
];

/// The kernel objects that a tracer holds while it runs, and its guardian.
#[derive(Debug)]
pub struct Holdings {
    tracer: u32,
    /// The process id of its guardian.
    pub guardian: u32,
    objects: BTreeSet<(Kind, u32)>,
}

impl Holdings {
    /// Reads those of a tracer that has attached.
    pub fn of(tracer: u32) -> Result<Self> {
        let mut objects = BTreeSet::new();
        for entry in fs::read_dir(format!("/proc/{tracer}/fdinfo"))? {
            let info = fs::read_to_string(entry?.path()).unwrap_or_default();
            for (kind, _, name) in KINDS {
                let ids = info.lines().filter_map(|line| line.strip_prefix(name));
                objects.extend(ids.filter_map(|id| Some((kind, id.trim().parse().ok()?))));
            }
        }
        for (kind, ..) in KINDS {
            ensure!(
                objects
                    .iter()
                    .any(|(it, id)| *it == kind && exists(kind, *id)),
                "the tracer has no {kind:?} in the kernel: {objects:?}"
            );
        }
        ensure!(!definitions(tracer)?.is_empty(), "it has defined no probe");
        Ok(Self {
            tracer,
            guardian: guardian_of(tracer)?,
            objects,
        })
    }

    /// Waits until nothing is left. The kernel takes its time: it closes probes one after the other.
    pub fn are_gone(&self) -> Result<()> {
        let mut left = Vec::new();
        let waited = until("the kernel to remove everything", 3 * MINUTE, || {
            left = self.left()?;
            Ok(left.is_empty())
        });
        waited.with_context(|| format!("left behind: {left:?}"))
    }

    /// Kills the guardian, and waits for its end.
    pub fn kill_guardian(&self) -> Result<()> {
        send(i32::try_from(self.guardian)?, libc::SIGKILL)?;
        until("the guardian's end", MINUTE, || {
            Ok(has_ended(self.guardian))
        })
    }

    fn left(&self) -> Result<Vec<String>> {
        let mut left = definitions(self.tracer)?;
        for (kind, id) in &self.objects {
            if exists(*kind, *id) {
                left.push(format!("{kind:?} {id}"));
            }
        }
        if name_of(self.guardian).as_deref() == Some(GUARDIAN) {
            left.push(format!("process {}", self.guardian));
        }
        Ok(left)
    }
}

/// The name of guardian processes.
const GUARDIAN: &str = "heaptrace-guard";

/// The uprobe events that a tracer has defined.
pub fn definitions(tracer: u32) -> Result<Vec<String>> {
    let group = format!("heaptrace_{tracer}/");
    Ok(uprobe_events()?
        .lines()
        .filter(|line| line.contains(&group))
        .map(str::to_owned)
        .collect())
}

/// The guardian, which cleans up after a tracer. It has the other end of one of the tracer's pipes.
fn guardian_of(tracer: u32) -> Result<u32> {
    let own = pipes(tracer);
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        if name_of(pid).as_deref() == Some(GUARDIAN) && !pipes(pid).is_disjoint(&own) {
            return Ok(pid);
        }
    }
    anyhow::bail!("the tracer {tracer} has no guardian");
}

fn pipes(pid: u32) -> BTreeSet<String> {
    fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            Some(
                fs::read_link(entry.ok()?.path())
                    .ok()?
                    .display()
                    .to_string(),
            )
        })
        .filter(|target| target.starts_with("pipe:"))
        .collect()
}

fn name_of(pid: u32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

/// Whether an object is still there. It must not be opened: a map of programs that is closed again, while the kernel still has to
/// clear it because its last user is gone, is never removed (seen with Linux 6.18: the second order to clear it takes a reference that
/// is never given back).
fn exists(kind: Kind, id: u32) -> bool {
    let Some((_, command, _)) = KINDS.iter().find(|(it, ..)| *it == kind) else {
        return false;
    };
    let mut attributes = [id - 1, 0, 0, 0];
    // SAFETY: the attributes are as long as said, and writable: the call writes the number that it finds.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            *command,
            attributes.as_mut_ptr(),
            size_of_val(&attributes),
        )
    };
    result == 0 && attributes[1] == id
}
