//! Generations: what each site allocated between two marks, and how much of it still lives.
//!
//! Stage: join. Nothing is counted before the first mark. A block keeps the number of its mark, so a free takes off what its
//! allocation added to a generation. There are never more than [`MOST_ENTRIES`] generations of sites: marks are dropped to make room,
//! and what finds none is counted. Knows nothing of blocks and processes.

use super::estimate::Sums;
use super::marks::{Mark, MarkCause, Marks};
use super::sites::Sites;
use super::update::{Generation, GenerationId, SiteId};

/// Most generations of sites: half a kilobyte each.
const MOST_ENTRIES: usize = 1 << 16;

/// The site of some memory, and the mark after which it was allocated: 0 before the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) site: SiteId,
    pub(super) mark: u32,
}

/// The generations of all sites.
#[derive(Debug, Default)]
pub(super) struct Generations {
    marks: Marks,
    /// The entries of each site, by mark, in the order of the marks.
    by_site: Vec<Vec<(u32, GenerationId)>>,
    entries: Vec<Entry>,
    changed: Vec<GenerationId>,
    vacant: Vec<GenerationId>,
    /// Entries that become vacant with the next update, which says so.
    emptied: Vec<GenerationId>,
    /// Whether something found no room. No entry is added from then on, so that none lacks what was allocated before it.
    is_full: bool,
    /// How many marks and allocations found no room.
    without_room: u64,
}

#[derive(Debug)]
struct Entry {
    owner: Owner,
    sums: Sums,
    /// As in [`Generation`].
    survived: Vec<(u32, u64)>,
    /// The last mark at which its state is known.
    seen: u32,
    is_changed: bool,
}

impl Entry {
    fn held_at(&self, mark: u32) -> u64 {
        let known = self.survived.iter().find(|it| it.0 >= mark);
        known.map_or_else(|| self.sums.held(), |it| it.1)
    }

    /// Keeps what it had at the marks since its last change, before it changes.
    fn see(&mut self, last: u32) {
        if self.seen < last {
            self.survived.push((last, self.sums.held()));
            self.seen = last;
        }
    }
}

impl Generations {
    /// Adds a mark, at a time of both clocks.
    pub(super) fn mark(&mut self, cause: MarkCause, at_ns: u64, time: u64) {
        if !self.marks.has_room() {
            if self.is_full {
                self.without_room += 1;
                return;
            }
            self.thin();
        }
        self.marks.add(cause, at_ns, time);
    }

    /// The number of the last mark; 0 without marks.
    pub(super) fn last_mark(&self) -> u32 {
        self.marks.last()
    }

    /// The number of the mark to which a time belongs; 0 before the first.
    pub(super) fn at(&self, time: u64) -> u32 {
        self.marks.at(time)
    }

    /// All marks, if they have changed since the last call.
    pub(super) fn take_marks(&mut self) -> Vec<Mark> {
        self.marks.take_changed()
    }

    /// How many marks and allocations found no room.
    pub(super) fn without_room(&self) -> u64 {
        self.without_room
    }

    /// Makes room for the sums of an owner, and counts if there is none.
    pub(super) fn add(&mut self, owner: Owner) {
        if owner.mark == 0 || self.find(owner).is_some() {
            return;
        }
        while !self.is_full && self.used() >= MOST_ENTRIES {
            self.make_room();
        }
        // Making room may have dropped its mark for one before.
        let mark = self.marks.kept(owner.mark);
        let owner = Owner { mark, ..owner };
        if self.find(owner).is_some() {
            return;
        }
        if self.is_full {
            self.without_room += 1;
            return;
        }
        self.insert(owner);
    }

    /// The number of entries with sums.
    fn used(&self) -> usize {
        self.entries.len() - self.vacant.len() - self.emptied.len()
    }

    fn make_room(&mut self) {
        if self.marks.len() <= 2 {
            self.is_full = true;
        } else {
            self.thin();
        }
    }

    /// Changes the sums of an owner, if it has any.
    pub(super) fn change(&mut self, owner: Owner, change: impl FnOnce(&mut Sums)) {
        if owner.mark != 0
            && let Some(id) = self.find(owner)
        {
            self.change_entry(id, change);
        }
    }

    /// Changes the sums of all generations of a site.
    pub(super) fn change_all(&mut self, site: SiteId, change: impl Fn(&mut Sums)) {
        for (_, id) in self.of_site(site).to_vec() {
            self.change_entry(id, &change);
        }
    }

    /// Adds the generations of a site to those of another one.
    pub(super) fn merge(&mut self, from: SiteId, into: SiteId) {
        let Some(list) = self.by_site.get_mut(from.0 as usize) else {
            return;
        };
        for (mark, id) in std::mem::take(list) {
            self.move_entry(id, Owner { site: into, mark });
        }
    }

    /// The generations that changed since the last call, in the order of their ids.
    pub(super) fn take_changed(&mut self, sites: &Sites) -> Vec<(GenerationId, Generation)> {
        let mut changed = std::mem::take(&mut self.changed);
        changed.sort_unstable();
        let records = changed.into_iter().filter_map(|id| {
            let entry = self.entries.get_mut(id.0 as usize)?;
            entry.is_changed = false;
            let generation = Generation {
                mark: entry.owner.mark,
                site: sites.with_sums(entry.owner.site, &entry.sums)?,
                survived: entry.survived.clone(),
            };
            Some((id, generation))
        });
        let records = records.collect();
        self.vacant.append(&mut self.emptied);
        records
    }

    fn of_site(&self, site: SiteId) -> &[(u32, GenerationId)] {
        self.by_site.get(site.0 as usize).map_or(&[], Vec::as_slice)
    }

    fn find(&self, owner: Owner) -> Option<GenerationId> {
        let mark = self.marks.kept(owner.mark);
        let list = self.of_site(owner.site);
        let at = list.binary_search_by_key(&mark, |it| it.0).ok()?;
        list.get(at).map(|it| it.1)
    }

    fn insert(&mut self, owner: Owner) {
        let id = match self.vacant.pop() {
            Some(id) => id,
            None => {
                let id = GenerationId(self.entries.len() as u32);
                self.entries.push(Entry {
                    owner,
                    sums: Sums::default(),
                    survived: Vec::new(),
                    seen: 0,
                    is_changed: false,
                });
                id
            }
        };
        let last = self.marks.last();
        if let Some(entry) = self.entries.get_mut(id.0 as usize) {
            entry.owner = owner;
            // An event can come after the next mark: at that mark, this site had nothing of the generation.
            entry.seen = owner.mark;
            entry.see(last);
        }
        self.list(owner, id);
        self.touch(id);
    }

    /// Puts an entry into the list of its site.
    fn list(&mut self, owner: Owner, id: GenerationId) {
        let index = owner.site.0 as usize;
        if self.by_site.len() <= index {
            self.by_site.resize_with(index + 1, Vec::new);
        }
        if let Some(list) = self.by_site.get_mut(index) {
            let at = list.partition_point(|it| it.0 < owner.mark);
            list.insert(at, (owner.mark, id));
        }
    }

    fn change_entry(&mut self, id: GenerationId, change: impl FnOnce(&mut Sums)) {
        let last = self.marks.last();
        if let Some(entry) = self.entries.get_mut(id.0 as usize) {
            entry.see(last);
            change(&mut entry.sums);
            self.touch(id);
        }
    }

    fn touch(&mut self, id: GenerationId) {
        if let Some(entry) = self.entries.get_mut(id.0 as usize)
            && !std::mem::replace(&mut entry.is_changed, true)
        {
            self.changed.push(id);
        }
    }

    /// Gives an entry, which is in no list, to another owner, or adds it to what that has.
    fn move_entry(&mut self, id: GenerationId, owner: Owner) {
        let known = self
            .of_site(owner.site)
            .iter()
            .find(|it| it.0 == owner.mark);
        match known.map(|it| it.1) {
            Some(into) => self.merge_entry(id, into),
            None => {
                if let Some(entry) = self.entries.get_mut(id.0 as usize) {
                    entry.owner = owner;
                    let columns = columns(&self.marks, owner.mark, |mark| entry.held_at(mark));
                    entry.survived = packed(columns);
                    entry.seen = self.marks.last();
                }
                self.list(owner, id);
                self.touch(id);
            }
        }
    }

    fn merge_entry(&mut self, from: GenerationId, into: GenerationId) {
        let Some(entry) = self.entries.get_mut(from.0 as usize) else {
            return;
        };
        let mark = entry.owner.mark;
        let sums = std::mem::take(&mut entry.sums);
        let survived = std::mem::take(&mut entry.survived);
        self.touch(from);
        self.emptied.push(from);
        let last = self.marks.last();
        let Some(entry) = self.entries.get_mut(into.0 as usize) else {
            return;
        };
        let of_other = |at: u32| {
            let known = survived.iter().find(|it| it.0 >= at);
            known.map_or_else(|| sums.held(), |it| it.1)
        };
        let columns = columns(&self.marks, entry.owner.mark, |at| {
            // Nothing of it was there before its own mark.
            let other = if at <= mark { 0 } else { of_other(at) };
            entry.held_at(at).saturating_add(other)
        });
        entry.sums.merge(&sums);
        entry.survived = packed(columns);
        entry.seen = last;
        self.touch(into);
    }

    /// Drops marks: each generation of a dropped one becomes part of the one before.
    fn thin(&mut self) {
        self.marks.thin();
        for index in 0..self.by_site.len() {
            let Some(list) = self.by_site.get_mut(index) else {
                return;
            };
            let site = SiteId(index as u32);
            for (mark, id) in std::mem::take(list) {
                // The first mark stays.
                let mark = self.marks.kept(mark);
                self.move_entry(id, Owner { site, mark });
            }
        }
    }
}

/// A number for each mark after one.
fn columns(marks: &Marks, mark: u32, held: impl Fn(u32) -> u64) -> Vec<(u32, u64)> {
    marks.after(mark).map(|at| (at, held(at))).collect()
}

/// Leaves out numbers that the next one stands for.
fn packed(columns: Vec<(u32, u64)>) -> Vec<(u32, u64)> {
    let mut packed: Vec<(u32, u64)> = Vec::new();
    for (at, held) in columns {
        match packed.last_mut() {
            Some(last) if last.1 == held => last.0 = at,
            _ => packed.push((at, held)),
        }
    }
    packed.shrink_to_fit();
    packed
}
