//! Address spaces: which file was mapped where, in which process, and when.
//!
//! Stage: join. Events of two streams meet here, so every question names a time: since then, a pid may have
//! called `exec`, or may belong to another process. Knows only executable mappings.

use super::code_ranges::CodeRanges;
use super::keyed_hash::HashMap;
use super::update::ModuleId;

/// Most mappings that are kept of one program image: a JIT compiler can make any number.
const MAX_MAPPINGS: usize = 16_384;

/// A module's position in an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CodeMapping {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Offset of `start` in the file.
    pub(super) offset: u64,
    /// The file's module; none for anonymous code.
    pub(super) module: Option<ModuleId>,
    pub(super) mapped_at: u64,
}

impl CodeMapping {
    fn overlaps(&self, start: u64, end: u64) -> bool {
        self.start < end && start < self.end
    }

    fn covers(&self, address: u64) -> bool {
        self.start <= address && address < self.end
    }

    /// Whether both mean the same by every address that they share.
    fn agrees(&self, other: &Self) -> bool {
        self.module == other.module
            && self.start.wrapping_sub(self.offset) == other.start.wrapping_sub(other.offset)
    }
}

/// One program image of one process.
#[derive(Clone, Debug)]
struct Image {
    began_at: u64,
    /// In the order of `mapped_at`.
    mappings: Vec<CodeMapping>,
    /// Code without a file.
    generated: CodeRanges,
    /// Changes with every mapping. No two images ever have the same version.
    version: u64,
    /// When a mapping last replaced another one; 0 if none has.
    replaced_at: u64,
}

/// The address spaces of all processes of interest.
#[derive(Debug, Default)]
pub(super) struct AddressSpaces {
    /// The images of each pid, in the order of `began_at`.
    by_pid: HashMap<u32, Vec<Image>>,
    last_version: u64,
    /// The latest `replaced_at` of all images: most runs never need to ask for the image.
    replaced_at: u64,
    /// Mappings beyond [`MAX_MAPPINGS`].
    not_kept: u64,
}

impl AddressSpaces {
    /// Whether a process has an image.
    pub(super) fn knows(&self, pid: u32) -> bool {
        self.by_pid.contains_key(&pid)
    }

    /// The processes with images.
    pub(super) fn pids(&self) -> Vec<u32> {
        self.by_pid.keys().copied().collect()
    }

    /// Begins a program image.
    pub(super) fn begin(&mut self, pid: u32, time: u64) {
        self.insert(pid, time, Vec::new(), CodeRanges::default());
    }

    /// Begins a child's image with its parent's mappings.
    pub(super) fn fork(&mut self, pid: u32, parent: u32, time: u64) {
        let (mappings, generated) = self
            .at(parent, time)
            .map(|image| (image.mappings.clone(), image.generated.clone()))
            .unwrap_or_default();
        self.insert(pid, time, mappings, generated);
    }

    fn insert(
        &mut self,
        pid: u32,
        began_at: u64,
        mappings: Vec<CodeMapping>,
        generated: CodeRanges,
    ) {
        self.last_version += 1;
        let image = Image {
            began_at,
            mappings,
            generated,
            version: self.last_version,
            // What was replaced in the parent was replaced before the child's first stack.
            replaced_at: 0,
        };
        let images = self.by_pid.entry(pid).or_default();
        let index = images.partition_point(|other| other.began_at <= began_at);
        images.insert(index, image);
    }

    /// Adds a mapping to the image that the process had at its time.
    pub(super) fn map(&mut self, pid: u32, mapping: CodeMapping) {
        let time = mapping.mapped_at;
        let images = self.by_pid.get_mut(&pid);
        let Some(image) =
            images.and_then(|images| images.iter_mut().rfind(|image| image.began_at <= time))
        else {
            return;
        };
        if image.mappings.len() >= MAX_MAPPINGS {
            self.not_kept += 1;
            return;
        }
        let mut others = image.mappings.iter();
        if others.any(|it| it.overlaps(mapping.start, mapping.end) && !it.agrees(&mapping)) {
            image.replaced_at = image.replaced_at.max(time);
            self.replaced_at = self.replaced_at.max(time);
        }
        let index = image
            .mappings
            .partition_point(|other| other.mapped_at <= time);
        image.mappings.insert(index, mapping);
        self.last_version += 1;
        image.version = self.last_version;
    }

    /// Mappings that were not kept, because their image had too many.
    pub(super) fn not_kept(&self) -> u64 {
        self.not_kept
    }

    /// The version of the image that a process has at a time, if none of its mappings is later: while the
    /// version stays the same, every address in it has the same location. 0 if no image fits.
    pub(super) fn version(&self, pid: u32, time: u64) -> u64 {
        let image = self.at(pid, time);
        let is_past = |image: &&Image| {
            let last = image.mappings.last();
            last.is_none_or(|mapping| mapping.mapped_at <= time)
        };
        image.filter(is_past).map_or(0, |image| image.version)
    }

    /// The mapping that covered an address at a time.
    pub(super) fn find(&self, pid: u32, time: u64, address: u64) -> Option<CodeMapping> {
        let image = self.at(pid, time)?;
        let covers = |mapping: &&CodeMapping| mapping.mapped_at <= time && mapping.covers(address);
        image.mappings.iter().rev().find(covers).copied()
    }

    /// Whether some code of a process was replaced after the first of two times.
    pub(super) fn has_replaced(&self, pid: u32, (from, to): (u64, u64)) -> bool {
        if self.replaced_at <= from {
            return false;
        }
        let image = self.at(pid, to);
        image.is_some_and(|image| image.replaced_at > from)
    }

    /// Whether a mapping came over one of some addresses after the first of two times, and not after the other
    /// one.
    pub(super) fn covered_between(
        &self,
        pid: u32,
        (from, to): (u64, u64),
        mut addresses: impl Iterator<Item = u64>,
    ) -> bool {
        let Some(image) = self.at(pid, to) else {
            return false;
        };
        let came = |time| image.mappings.partition_point(|it| it.mapped_at <= time);
        let new = image.mappings.get(came(from)..came(to));
        let new = new.unwrap_or_default();
        !new.is_empty() && addresses.any(|address| new.iter().any(|it| it.covers(address)))
    }

    /// Whether a process has, or had, code without a file at an address.
    pub(super) fn has_generated(&self, pid: u32, time: u64, address: u64) -> bool {
        let image = self.at(pid, time);
        image.is_some_and(|image| image.generated.contains(address))
    }

    /// Adds anonymous code. As a mapping, it matters only where it hides a file's.
    pub(super) fn map_anonymous(&mut self, pid: u32, start: u64, end: u64, mapped_at: u64) {
        let images = self.by_pid.get_mut(&pid).into_iter().flatten();
        if let Some(image) = images.rev().find(|image| image.began_at <= mapped_at) {
            image.generated.add(start, end);
        }
        let image = self.at(pid, mapped_at);
        let mut before = image
            .into_iter()
            .flat_map(|image| image.mappings.iter().rev());
        let hidden = before.find(|it| it.mapped_at <= mapped_at && it.overlaps(start, end));
        if hidden.is_some_and(|it| it.module.is_some()) {
            let mapping = CodeMapping {
                start,
                end,
                offset: start,
                module: None,
                mapped_at,
            };
            self.map(pid, mapping);
        }
    }

    /// The modules of a process at a time.
    pub(super) fn modules(&self, pid: u32, time: u64) -> impl Iterator<Item = ModuleId> + '_ {
        let image = self.at(pid, time);
        let mappings = image.map_or(&[][..], |image| &image.mappings);
        mappings.iter().filter_map(|mapping| mapping.module)
    }

    /// Forgets the images of a process that began before a time.
    pub(super) fn forget(&mut self, pid: u32, until: u64) {
        if let Some(images) = self.by_pid.get_mut(&pid) {
            images.retain(|image| image.began_at > until);
            if images.is_empty() {
                self.by_pid.remove(&pid);
            }
        }
    }

    /// The image that a process has at a time.
    fn at(&self, pid: u32, time: u64) -> Option<&Image> {
        let images = self.by_pid.get(&pid)?;
        images.iter().rev().find(|image| image.began_at <= time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: u64, module: u32, mapped_at: u64) -> CodeMapping {
        CodeMapping {
            start,
            end: start + 0x100,
            offset: 0,
            module: Some(ModuleId(module)),
            mapped_at,
        }
    }

    fn module_at(spaces: &AddressSpaces, pid: u32, time: u64, address: u64) -> Option<u32> {
        let found = spaces.find(pid, time, address)?;
        found.module.map(|module| module.0)
    }

    /// Check that an address leads to the module that was mapped there at the time, not to a later one.
    #[test]
    fn answers_depend_on_the_time() {
        let mut spaces = AddressSpaces::default();
        spaces.begin(1, 0);
        spaces.map(1, mapping(0x1000, 7, 10));
        spaces.map(1, mapping(0x1000, 8, 20));
        assert_eq!(module_at(&spaces, 1, 15, 0x1050), Some(7));
        assert_eq!(module_at(&spaces, 1, 25, 0x1050), Some(8));
        assert_eq!(module_at(&spaces, 1, 5, 0x1050), None);
        assert_eq!(module_at(&spaces, 1, 25, 0x1100), None);
    }

    /// Check that late events are sorted in by their time.
    #[test]
    fn late_events_are_sorted_in() {
        let mut spaces = AddressSpaces::default();
        spaces.begin(1, 0);
        spaces.begin(1, 100);
        spaces.map(1, mapping(0x1000, 8, 120));
        spaces.map(1, mapping(0x1000, 7, 50));
        assert_eq!(module_at(&spaces, 1, 60, 0x1000), Some(7));
        assert_eq!(module_at(&spaces, 1, 110, 0x1000), None);
    }

    /// Check that a child has its parent's mappings, but not the parent's later ones.
    #[test]
    fn children_inherit_mappings() {
        let mut spaces = AddressSpaces::default();
        spaces.begin(1, 0);
        spaces.map(1, mapping(0x1000, 7, 10));
        spaces.fork(2, 1, 20);
        spaces.map(1, mapping(0x2000, 8, 30));
        assert_eq!(module_at(&spaces, 2, 40, 0x1000), Some(7));
        assert_eq!(module_at(&spaces, 2, 40, 0x2000), None);
    }

    /// Check that every change makes a new version, that a time before the last change has none, and that no
    /// two processes share one.
    #[test]
    fn every_change_makes_a_version() {
        let mut spaces = AddressSpaces::default();
        spaces.begin(1, 0);
        spaces.map(1, mapping(0x1000, 7, 10));
        let first = spaces.version(1, 15);
        assert_eq!(spaces.version(1, 10), first);
        assert_eq!((spaces.version(1, 9), spaces.version(2, 15)), (0, 0));
        spaces.fork(2, 1, 20);
        assert_ne!(spaces.version(2, 20), first);
        assert_eq!(spaces.version(1, 20), first);
        // A late event that changes nothing at the time of the question.
        spaces.map(1, mapping(0x3000, 9, 5));
        let second = spaces.version(1, 15);
        assert!(first != 0 && second != 0 && second != first);
        spaces.begin(1, 30);
        assert_ne!(spaces.version(1, 30), second);
        assert_eq!(spaces.version(1, 29), second);
    }

    /// Check that only a mapping that means something else by an address replaces code, and only for stacks from
    /// before it.
    #[test]
    fn replacements_are_known_by_their_time() {
        let mut spaces = AddressSpaces::default();
        spaces.begin(1, 0);
        spaces.map(1, mapping(0x1000, 7, 10));
        spaces.map(1, mapping(0x2000, 8, 15));
        // The protection of a part of it was changed.
        let part = CodeMapping {
            start: 0x1080,
            offset: 0x80,
            ..mapping(0x1000, 7, 20)
        };
        spaces.map(1, part);
        assert!(!spaces.has_replaced(1, (10, 25)));
        spaces.map(1, mapping(0x10c0, 9, 30));
        assert!(spaces.has_replaced(1, (29, 40)));
        assert!(!spaces.has_replaced(1, (30, 40)));
        assert!(!spaces.has_replaced(2, (29, 40)));
        let covered =
            |times, address| spaces.covered_between(1, times, [0x2000, address].into_iter());
        assert!(covered((29, 30), 0x10c0));
        assert!(!covered((29, 30), 0x10bf) && !covered((29, 29), 0x10c0));
        assert!(!covered((30, 40), 0x10c0));
        // A child has the mappings of its parent, and has replaced none of them.
        spaces.fork(2, 1, 50);
        assert!(!spaces.has_replaced(2, (20, 60)));
    }

    /// Check that anonymous code hides the code of a file, and is not kept where there was none.
    #[test]
    fn anonymous_code_hides_files() {
        let mut spaces = AddressSpaces::default();
        spaces.begin(1, 0);
        spaces.map(1, mapping(0x1000, 7, 10));
        for time in 20..25 {
            spaces.map_anonymous(1, 0x10f0, 0x1200, time);
            spaces.map_anonymous(1, 0x5000, 0x6000, time);
        }
        assert!(spaces.has_generated(1, 30, 0x5fff) && !spaces.has_generated(1, 30, 0x6000));
        spaces.fork(2, 1, 30);
        assert!(spaces.has_generated(2, 30, 0x5000));
        assert_eq!(module_at(&spaces, 1, 15, 0x10ff), Some(7));
        assert_eq!(module_at(&spaces, 1, 30, 0x10ff), None);
        assert_eq!(module_at(&spaces, 1, 30, 0x1000), Some(7));
        assert!(spaces.has_replaced(1, (19, 30)) && !spaces.has_replaced(1, (20, 30)));
    }

    /// Check that mappings beyond the limit of an image are counted, and that a new image has room again.
    #[test]
    fn mappings_beyond_the_limit_are_counted() {
        let mut spaces = AddressSpaces::default();
        spaces.begin(1, 0);
        for number in 0..MAX_MAPPINGS as u64 + 3 {
            spaces.map(1, mapping(number * 0x1000, 7, 10));
        }
        assert_eq!(spaces.not_kept(), 3);
        spaces.begin(1, 20);
        spaces.map(1, mapping(0x1000, 7, 30));
        assert_eq!(spaces.not_kept(), 3);
        // A process that is not of interest has no image.
        spaces.map(2, mapping(0x1000, 7, 30));
        assert_eq!(spaces.not_kept(), 3);
    }

    /// Check that forgetting a process keeps its successor with the same pid.
    #[test]
    fn successors_are_kept() {
        let mut spaces = AddressSpaces::default();
        spaces.begin(1, 0);
        spaces.begin(1, 50);
        spaces.map(1, mapping(0x1000, 9, 60));
        spaces.forget(1, 40);
        assert_eq!(module_at(&spaces, 1, 70, 0x1000), Some(9));
        spaces.forget(1, 80);
        assert!(!spaces.knows(1));
    }
}
