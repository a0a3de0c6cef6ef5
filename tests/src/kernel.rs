//! What a tracer has in the kernel, and what of it is left: by the kernel's own lists.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::tracefs::uprobe_events;

/// How long the kernel may take to let go: it closes probes one after the other.
const PATIENCE: Duration = Duration::from_secs(60);

/// A kind of thing that the kernel numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Program,
    Map,
    Link,
}

/// The command of bpf(2) that opens one by its number, and the name of that number in fdinfo.
const KINDS: [(Kind, libc::c_int, &str); 3] = [
    (Kind::Program, 13, "prog_id:"),
    (Kind::Map, 14, "map_id:"),
    (Kind::Link, 30, "link_id:"),
];

/// What a tracer has in the kernel while it runs.
#[derive(Debug)]
pub struct Holdings {
    tracer: u32,
    /// Its guardian.
    pub guardian: u32,
    objects: BTreeSet<(Kind, u32)>,
}

impl Holdings {
    /// Those of a tracer that has attached.
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
                objects.iter().any(|(it, _)| *it == kind),
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

    /// Fails unless nothing of it is left, after the time that the kernel may take.
    pub fn are_gone(&self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = self.left()?;
            if left.is_empty() {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "left behind: {left:?}");
            thread::sleep(Duration::from_millis(50));
        }
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

/// Name of a guardian process.
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

/// The process that cleans up behind a tracer: it has the other end of one of its pipes.
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

fn exists(kind: Kind, id: u32) -> bool {
    let Some((_, command, _)) = KINDS.iter().find(|(it, ..)| *it == kind) else {
        return false;
    };
    let attributes = [id, 0, 0, 0];
    // SAFETY: the attributes are as long as said; the call yields a new descriptor or an error.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            *command,
            attributes.as_ptr(),
            size_of_val(&attributes),
        )
    };
    if result < 0 {
        return false;
    }
    // SAFETY: the kernel has just handed out this descriptor, and nobody else has it.
    drop(unsafe { OwnedFd::from_raw_fd(result as libc::c_int) });
    true
}
