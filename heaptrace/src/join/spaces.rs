//! Address spaces: which module stood where in which process, and when.
//!
//! Stage: join. Events of two streams meet here, so every question carries a time: a pid may by now
//! be another program, or another process.

use super::keyed_hash::HashMap;
use super::update::ModuleId;

/// Most mappings that are remembered of one program image; a JIT compiler can make any number.
const MAX_SPANS: usize = 16_384;

/// A module's place in an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Offset in the file of `start`.
    pub(super) offset: u64,
    pub(super) module: ModuleId,
    /// When it was mapped.
    pub(super) since: u64,
}

/// One program image of one process.
#[derive(Clone, Debug)]
struct Space {
    born: u64,
    /// By the time when they were mapped.
    spans: Vec<Span>,
    /// No other one has it, nor had this one before its last change.
    version: u64,
}

/// The address spaces of all processes of interest.
#[derive(Debug, Default)]
pub(super) struct Spaces {
    by_pid: HashMap<u32, Vec<Space>>,
    /// Versions that were given.
    versions: u64,
}

impl Spaces {
    /// Whether anything is known of a process.
    pub(super) fn knows(&self, pid: u32) -> bool {
        self.by_pid.contains_key(&pid)
    }

    /// The processes of which something is known.
    pub(super) fn pids(&self) -> Vec<u32> {
        self.by_pid.keys().copied().collect()
    }

    /// A program image begins.
    pub(super) fn begin(&mut self, pid: u32, born: u64) {
        self.insert(pid, born, Vec::new());
    }

    /// A child begins with its parent's mappings.
    pub(super) fn fork(&mut self, pid: u32, parent: u32, born: u64) {
        let spans = self
            .at(parent, born)
            .map(|space| space.spans.clone())
            .unwrap_or_default();
        self.insert(pid, born, spans);
    }

    fn insert(&mut self, pid: u32, born: u64, spans: Vec<Span>) {
        self.versions += 1;
        let space = Space {
            born,
            spans,
            version: self.versions,
        };
        let spaces = self.by_pid.entry(pid).or_default();
        let place = spaces.partition_point(|other| other.born <= space.born);
        spaces.insert(place, space);
    }

    /// A module is mapped.
    pub(super) fn map(&mut self, pid: u32, span: Span) {
        if let Some(space) = self.by_pid.get_mut(&pid).and_then(|spaces| {
            spaces
                .iter_mut()
                .rev()
                .find(|space| space.born <= span.since)
        }) && space.spans.len() < MAX_SPANS
        {
            let place = space
                .spans
                .partition_point(|other| other.since <= span.since);
            space.spans.insert(place, span);
            self.versions += 1;
            space.version = self.versions;
        }
    }

    /// The version of what a process has mapped at a time, if nothing of it is later: what is found in it is the same
    /// as long as that is its version. 0 where it can't be told.
    pub(super) fn version(&self, pid: u32, time: u64) -> u64 {
        let space = self.at(pid, time);
        let last = |space: &&Space| space.spans.last().is_none_or(|span| span.since <= time);
        space.filter(last).map_or(0, |space| space.version)
    }

    /// What was mapped at an address at a time.
    pub(super) fn find(&self, pid: u32, time: u64, address: u64) -> Option<Span> {
        let space = self.at(pid, time)?;
        let covers =
            |span: &&Span| span.since <= time && span.start <= address && address < span.end;
        space.spans.iter().rev().find(covers).copied()
    }

    /// Modules of a process at a time.
    pub(super) fn modules(&self, pid: u32, time: u64) -> impl Iterator<Item = ModuleId> + '_ {
        let spans = self.at(pid, time).map_or(&[][..], |space| &space.spans);
        spans.iter().map(|span| span.module)
    }

    /// Forgets the images of a process that began before a time.
    pub(super) fn forget(&mut self, pid: u32, until: u64) {
        if let Some(spaces) = self.by_pid.get_mut(&pid) {
            spaces.retain(|space| space.born > until);
            if spaces.is_empty() {
                self.by_pid.remove(&pid);
            }
        }
    }

    fn at(&self, pid: u32, time: u64) -> Option<&Space> {
        let spaces = self.by_pid.get(&pid)?;
        spaces.iter().rev().find(|space| space.born <= time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(start: u64, module: u32, since: u64) -> Span {
        Span {
            start,
            end: start + 0x100,
            offset: 0,
            module: ModuleId(module),
            since,
        }
    }

    fn module_at(spaces: &Spaces, pid: u32, time: u64, address: u64) -> Option<u32> {
        spaces.find(pid, time, address).map(|span| span.module.0)
    }

    /// Check that an address means what was mapped there at the time, not what came later.
    #[test]
    fn answers_by_time() {
        let mut spaces = Spaces::default();
        spaces.begin(1, 0);
        spaces.map(1, span(0x1000, 7, 10));
        spaces.map(1, span(0x1000, 8, 20));
        assert_eq!(module_at(&spaces, 1, 15, 0x1050), Some(7));
        assert_eq!(module_at(&spaces, 1, 25, 0x1050), Some(8));
        assert_eq!(module_at(&spaces, 1, 5, 0x1050), None);
        assert_eq!(module_at(&spaces, 1, 25, 0x1100), None);
    }

    /// Check that events that come late are put in their place in time.
    #[test]
    fn sorts_what_comes_late() {
        let mut spaces = Spaces::default();
        spaces.begin(1, 0);
        spaces.begin(1, 100);
        spaces.map(1, span(0x1000, 8, 120));
        spaces.map(1, span(0x1000, 7, 50));
        assert_eq!(module_at(&spaces, 1, 60, 0x1000), Some(7));
        assert_eq!(module_at(&spaces, 1, 110, 0x1000), None);
    }

    /// Check that a child has its parent's mappings, but not those that the parent makes later.
    #[test]
    fn children_inherit() {
        let mut spaces = Spaces::default();
        spaces.begin(1, 0);
        spaces.map(1, span(0x1000, 7, 10));
        spaces.fork(2, 1, 20);
        spaces.map(1, span(0x2000, 8, 30));
        assert_eq!(module_at(&spaces, 2, 40, 0x1000), Some(7));
        assert_eq!(module_at(&spaces, 2, 40, 0x2000), None);
    }

    /// Check that every change makes another version, that a time before the last change has none, and no process that of
    /// another one.
    #[test]
    fn versions() {
        let mut spaces = Spaces::default();
        spaces.begin(1, 0);
        spaces.map(1, span(0x1000, 7, 10));
        let first = spaces.version(1, 15);
        assert_eq!(spaces.version(1, 10), first);
        assert_eq!((spaces.version(1, 9), spaces.version(2, 15)), (0, 0));
        spaces.fork(2, 1, 20);
        assert_ne!(spaces.version(2, 20), first);
        assert_eq!(spaces.version(1, 20), first);
        // One that comes late, and changes nothing of what is asked for.
        spaces.map(1, span(0x3000, 9, 5));
        let second = spaces.version(1, 15);
        assert!(first != 0 && second != 0 && second != first);
        spaces.begin(1, 30);
        assert_ne!(spaces.version(1, 30), second);
        assert_eq!(spaces.version(1, 29), second);
    }

    /// Check that a forgotten process leaves its successor under the same pid alone.
    #[test]
    fn forgets_by_time() {
        let mut spaces = Spaces::default();
        spaces.begin(1, 0);
        spaces.begin(1, 50);
        spaces.map(1, span(0x1000, 9, 60));
        spaces.forget(1, 40);
        assert_eq!(module_at(&spaces, 1, 70, 0x1000), Some(9));
        spaces.forget(1, 80);
        assert!(!spaces.knows(1));
    }
}
