//! Names of generated code: the functions of each process by address, and the stacks that wait for a name.
//!
//! Stage: join. A runtime uses the same addresses again for other functions, so an address is looked up when its stack
//! arrives. Some runtimes write names late: then the stacks that wait for them become other stacks. Knows nothing of files.

use std::collections::{BTreeMap, BTreeSet};

use super::keyed_hash::HashMap;
use super::update::{Function, FunctionId, Language, Location, LocationId};
use crate::jit::{Change, Code, CodeMap, Named, Room};

/// Most functions that are kept, and most bytes of their names and lines.
const MOST: Room = Room {
    functions: 1 << 20,
    bytes: 64 << 20,
};

/// Most addresses of stacks that wait for a name.
const MAX_WAITING: usize = 1 << 17;

/// The beginning of names that CPython writes for its own functions, which stacks with Python frames have already.
const OF_PYTHON: &str = "py::";

/// The generated code of all processes.
#[derive(Debug, Default)]
pub(super) struct Jit {
    processes: HashMap<u64, OfProcess>,
    functions: usize,
    bytes: usize,
    /// Addresses of stacks that wait.
    waiting: usize,
    /// When a function last took the place of another one, in any process.
    replaced_at: u64,
    counts: JitCounts,
}

/// What went wrong, or is not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct JitCounts {
    /// Frames without a name.
    pub(super) unnamed: u64,
    /// Functions that were not kept.
    pub(super) not_kept: u64,
    /// Lines or records of files that are not valid.
    pub(super) broken: u64,
}

#[derive(Debug, Default)]
struct OfProcess {
    map: CodeMap,
    replaced_at: u64,
    /// By address.
    waiting: BTreeMap<u64, Waiting>,
}

/// An address without a name.
#[derive(Debug)]
struct Waiting {
    /// When it was first seen.
    time: u64,
    /// The stacks that have it, by the kernel program's ids.
    stacks: BTreeSet<u64>,
    found: Option<LocationId>,
}

/// A stack, as far as it matters here.
#[derive(Clone, Copy, Debug)]
pub(super) struct JitStack<'a> {
    /// The serial number of its process.
    pub(super) process: u64,
    /// The kernel program's id of the stack.
    pub(super) id: u64,
    pub(super) time: u64,
    /// Its return addresses.
    pub(super) frames: &'a [u64],
    /// One bit for each frame that another runtime names, and whether there is such a runtime.
    pub(super) named: [u64; 2],
    pub(super) has_language: bool,
}

/// What adds functions and locations to the tables of the run, and knows which locations have no file.
pub(super) trait Tables {
    fn function(&mut self, function: &Function) -> FunctionId;
    fn location(&mut self, location: &Location) -> LocationId;
    fn is_without_file(&self, location: LocationId) -> bool;
}

impl Jit {
    /// Gives the frames of a stack that have no file their names.
    pub(super) fn name(
        &mut self,
        stack: JitStack<'_>,
        locations: &mut [LocationId],
        tables: &mut impl Tables,
    ) {
        for (index, (frame, location)) in stack.frames.iter().zip(locations).enumerate() {
            let bits = stack.named.get(index / 64).copied().unwrap_or(0);
            let is_named = bits >> (index % 64) & 1 != 0;
            if is_named || !tables.is_without_file(*location) {
                continue;
            }
            // The call is before the address that it returns to.
            let address = frame.saturating_sub(1);
            match self.find(&stack, address, tables) {
                Found::Location(found) => *location = found,
                Found::LeftOut => {}
                Found::Nothing => self.wait(&stack, address),
            }
        }
    }

    fn find(&self, stack: &JitStack<'_>, address: u64, tables: &mut impl Tables) -> Found {
        let Some(process) = self.processes.get(&stack.process) else {
            return Found::Nothing;
        };
        let waiting = process.waiting.get(&address);
        if let Some(found) = waiting.and_then(|it| it.found) {
            return Found::Location(found);
        }
        match process.map.find(address, stack.time) {
            Some(named) if stack.has_language && named.name.starts_with(OF_PYTHON) => {
                Found::LeftOut
            }
            Some(named) => Found::Location(location_of(named, tables)),
            None => Found::Nothing,
        }
    }

    fn wait(&mut self, stack: &JitStack<'_>, address: u64) {
        if self.waiting >= MAX_WAITING {
            self.counts.unnamed += 1;
            return;
        }
        let process = self.processes.entry(stack.process).or_default();
        let waiting = process.waiting.entry(address).or_insert_with(|| Waiting {
            time: stack.time,
            stacks: BTreeSet::new(),
            found: None,
        });
        // A recursive function is in a stack several times, and a stack can be resolved again.
        if waiting.stacks.insert(stack.id) {
            self.waiting += 1;
            self.counts.unnamed += 1;
        }
    }

    /// Takes over what a file of a process says next. `now` is on the clock of events.
    pub(super) fn change(
        &mut self,
        process: u64,
        mut change: Change,
        now: u64,
        tables: &mut impl Tables,
    ) {
        // Some runtimes write times of another clock.
        if let Change::Loaded(Code { time, .. }) | Change::Moved { time, .. } = &mut change
            && *time > now
        {
            *time = 0;
        }
        let room = Room {
            functions: MOST.functions.saturating_sub(self.functions),
            bytes: MOST.bytes.saturating_sub(self.bytes),
        };
        let of_process = self.processes.entry(process).or_default();
        let before = (of_process.map.len(), of_process.map.bytes());
        let loaded = of_process.map.change(change, room);
        self.functions = self.functions + of_process.map.len() - before.0;
        self.bytes = self.bytes + of_process.map.bytes() - before.1;
        self.counts.not_kept += u64::from(loaded.is_full);
        self.counts.broken += u64::from(loaded.is_broken);
        if loaded.is_replaced {
            let time = if loaded.time == 0 { now } else { loaded.time };
            of_process.replaced_at = of_process.replaced_at.max(time);
            self.replaced_at = self.replaced_at.max(time);
        }
        let Some((start, end)) = loaded.range else {
            return;
        };
        for (address, waiting) in of_process.waiting.range_mut(start..end) {
            // The first function that is written after the stack was seen; with times, the last one that was made before.
            let was_there = loaded.time != 0 && loaded.time <= waiting.time;
            if (waiting.found.is_none() || was_there)
                && let Some(named) = of_process.map.find(*address, waiting.time)
            {
                waiting.found = Some(location_of(named, tables));
            }
        }
    }

    /// Counts lines or records of a file that are not valid.
    pub(super) fn count_broken(&mut self, count: u64) {
        self.counts.broken += count;
    }

    /// The stacks of a process for which names were found after they had arrived.
    pub(super) fn named_late(&self, process: u64) -> BTreeSet<u64> {
        let waiting = self.processes.get(&process).map(|it| &it.waiting);
        let waiting = waiting.into_iter().flatten();
        let found = waiting.filter(|(_, it)| it.found.is_some());
        found
            .flat_map(|(_, it)| it.stacks.iter().copied())
            .collect()
    }

    /// Forgets the addresses of a process for which names were found. Their stacks have them now.
    pub(super) fn settle(&mut self, process: u64) {
        let Some(of_process) = self.processes.get_mut(&process) else {
            return;
        };
        let (waiting, unnamed) = (&mut self.waiting, &mut self.counts.unnamed);
        of_process.waiting.retain(|_, it| {
            if it.found.is_some() {
                *waiting -= it.stacks.len();
                *unnamed = unnamed.saturating_sub(it.stacks.len() as u64);
            }
            it.found.is_none()
        });
    }

    /// Whether addresses of a process may belong to other functions at one time than at another.
    pub(super) fn has_replaced(&self, process: u64, one: u64, other: u64) -> bool {
        let (from, to) = (one.min(other), one.max(other));
        if self.replaced_at <= from {
            return false;
        }
        let process = self.processes.get(&process);
        process.is_some_and(|it| it.replaced_at > from && it.replaced_at <= to)
    }

    /// Forgets a process that has ended.
    pub(super) fn forget(&mut self, process: u64) {
        let Some(gone) = self.processes.remove(&process) else {
            return;
        };
        self.functions -= gone.map.len();
        self.bytes -= gone.map.bytes();
        let waiting = gone.waiting.values().map(|it| it.stacks.len());
        self.waiting -= waiting.sum::<usize>();
    }

    pub(super) fn counts(&self) -> JitCounts {
        self.counts
    }
}

enum Found {
    Location(LocationId),
    /// Another frame of the stack says the same.
    LeftOut,
    Nothing,
}

fn location_of(named: Named<'_>, tables: &mut impl Tables) -> LocationId {
    let function = tables.function(&Function {
        language: Language::Jit,
        name: named.name.to_owned(),
        file: named.file.to_owned(),
    });
    tables.location(&Location {
        module: None,
        address: named.line.into(),
        function: Some(function),
    })
}
