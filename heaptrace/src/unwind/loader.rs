//! Which files have a table, and which tables go when the memory for them is full.
//!
//! Stage: unwind. Tables are shared between files of the same content, and the one that was not used for
//! longest goes first. It knows neither how tables are made nor who asks for them.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use heaptrace_common::wire::{FileKey, TableRef, table};

use super::image::Fingerprint;
use super::store::{NoPlace, Placed, Store, StoreLimits};
use super::table::Table;
use crate::reader::FileOwner;

/// How long a table is left in its place after it was used, in seconds. Where all that is in use does not
/// fit, each table would else drive out one that is asked for again at once.
const IDLE: u64 = 5;

/// After how many seconds a table that found no place is asked for again.
const RETRY: u64 = 30;

/// Most files whose state is kept, below the number that the kernel's map takes.
pub(super) const MAX_FILES: usize = heaptrace_common::limits::MAX_TABLES as usize / 4 * 3;

/// The arrays that the kernel program reads, and what names tables in them.
pub(super) trait Arrays {
    /// Writes a table that is named nowhere yet. Where there is no memory for all of its segments: how many
    /// segments there are.
    fn write(&mut self, placed: &Placed) -> Result<(), u32>;
    /// Names the table of a file. False where there is no place for another name.
    fn name(&mut self, file: FileKey, table: TableRef) -> bool;
    /// Takes a name away.
    fn forget(&mut self, file: FileKey);
    /// Returns when no program walks by a table any more whose name was taken away.
    fn settle(&mut self);
    /// Sets the clock that uses are noted by.
    fn set_clock(&mut self, now: u64);
    /// What the clock said when a table was last used.
    fn last_use(&self, slot: u32) -> u64;
    /// Notes a use.
    fn note_use(&mut self, slot: u32, now: u64);
}

/// What is known of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Its table is in this slot.
    Loaded(u32),
    /// It has none.
    Absent,
    /// Its table found no place.
    Refused(NoPlace, u64),
}

/// The states of files: to be looked at without waiting for a table to be written.
#[derive(Clone, Debug, Default)]
pub(super) struct Files(Arc<Mutex<HashMap<FileKey, State>>>);

impl Files {
    fn lock(&self) -> MutexGuard<'_, HashMap<FileKey, State>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of a file.
    pub(super) fn state(&self, file: FileKey) -> Option<State> {
        self.lock().get(&file).copied()
    }
}

struct Loaded {
    /// Whose files it is for, where these have a share only.
    owner: Option<FileOwner>,
    table: TableRef,
    fingerprint: Fingerprint,
    files: HashSet<FileKey>,
}

/// Loads tables, and takes them out again.
pub(super) struct Loader<A> {
    arrays: A,
    store: Store,
    files: Files,
    /// The version of a file that was last seen, by its inode and device.
    versions: HashMap<(u64, u64), FileKey>,
    tables: HashMap<u32, Loaded>,
    by_fingerprint: HashMap<Fingerprint, u32>,
    /// Rules that came with an owner's files. Rules stay.
    rules: HashMap<FileOwner, u32>,
    now: u64,
    evicted: u64,
}

impl<A: Arrays> Loader<A> {
    pub(super) fn new(arrays: A, limits: StoreLimits) -> Self {
        let mut loader = Self {
            arrays,
            store: Store::new(limits),
            files: Files::default(),
            versions: HashMap::new(),
            tables: HashMap::new(),
            by_fingerprint: HashMap::new(),
            rules: HashMap::new(),
            now: 0,
            evicted: 0,
        };
        loader.tick(1);
        loader
    }

    pub(super) fn files(&self) -> Files {
        self.files.clone()
    }

    /// Tables that made room for others.
    pub(super) fn evicted(&self) -> u64 {
        self.evicted
    }

    /// The clock goes on, in seconds from 1 on.
    pub(super) fn tick(&mut self, now: u64) {
        if now == self.now {
            return;
        }
        self.now = now;
        self.arrays.set_clock(now);
        let is_over = |state: &State| matches!(state, State::Refused(_, at) if at + RETRY <= now);
        self.forget_all(is_over);
    }

    /// Gives a file the table of another one with the same content, if there is such a table.
    pub(super) fn share(&mut self, file: FileKey, fingerprint: &Fingerprint) -> bool {
        let slot = self.by_fingerprint.get(fingerprint).copied();
        slot.is_some_and(|slot| self.give(file, slot))
    }

    /// Loads the table of a file of an owner, as far as his share goes: the system's own files have none.
    pub(super) fn load_of(
        &mut self,
        owner: FileOwner,
        file: FileKey,
        fingerprint: &Fingerprint,
        built: &Table,
    ) -> Result<(), NoPlace> {
        if owner.is_system() || self.share(file, fingerprint) {
            return self.load(file, fingerprint, built);
        }
        let slots = Store::slots_for(built);
        let new_rules = self.store.new_rules(built);
        let (most_slots, most_rules) = self.store.share();
        let rules = self.rules.get(&owner).copied().unwrap_or_default();
        if self.slots_of(owner).saturating_add(slots) > most_slots {
            let idle = self.by_use(IDLE).into_iter();
            let own: Vec<u32> = idle.filter(|slot| self.is_of(*slot, owner)).collect();
            self.evict(&own);
        }
        if self.slots_of(owner).saturating_add(slots) > most_slots
            || rules.saturating_add(new_rules) > most_rules
        {
            self.set(file, State::Refused(NoPlace::Share, self.now));
            return Err(NoPlace::Share);
        }
        self.load(file, fingerprint, built)?;
        *self.rules.entry(owner).or_default() += new_rules;
        if let Some(slot) = self.by_fingerprint.get(fingerprint)
            && let Some(loaded) = self.tables.get_mut(slot)
        {
            loaded.owner = Some(owner);
        }
        Ok(())
    }

    fn is_of(&self, slot: u32, owner: FileOwner) -> bool {
        let loaded = self.tables.get(&slot);
        loaded.is_some_and(|loaded| loaded.owner == Some(owner))
    }

    /// Slots that the tables of an owner have.
    fn slots_of(&self, owner: FileOwner) -> u32 {
        let own = self.tables.keys().filter(|slot| self.is_of(**slot, owner));
        own.map(|slot| self.store.slots_of(*slot)).sum()
    }

    /// Loads the table of a file.
    pub(super) fn load(
        &mut self,
        file: FileKey,
        fingerprint: &Fingerprint,
        built: &Table,
    ) -> Result<(), NoPlace> {
        // Another thread may have built the same one meanwhile.
        if self.share(file, fingerprint) {
            return Ok(());
        }
        let placed = loop {
            match self.store.add(built) {
                Ok(placed) => match self.arrays.write(&placed) {
                    Ok(()) => break placed,
                    Err(segments) => {
                        self.store.remove(placed.table.slot);
                        self.store.stop_growing(segments);
                    }
                },
                Err(NoPlace::Full) if self.make_room(Store::slots_for(built)) => {}
                Err(reason) => {
                    self.set(file, State::Refused(reason, self.now));
                    return Err(reason);
                }
            }
        };
        let slot = placed.table.slot;
        self.arrays.note_use(slot, self.now);
        self.by_fingerprint.insert(*fingerprint, slot);
        let loaded = Loaded {
            owner: None,
            table: placed.table,
            fingerprint: *fingerprint,
            files: HashSet::new(),
        };
        self.tables.insert(slot, loaded);
        self.give(file, slot);
        Ok(())
    }

    /// Notes that a file has no table.
    pub(super) fn set_absent(&mut self, file: FileKey) {
        self.set(file, State::Absent);
    }

    /// Says again what is known of a file; false where nothing is.
    pub(super) fn repeat(&mut self, file: FileKey) -> bool {
        match self.files.state(file) {
            Some(state) => self.name(file, state),
            None => false,
        }
    }

    /// Takes back that a file was asked for, so that it can be again.
    pub(super) fn forget(&mut self, file: FileKey) {
        self.arrays.forget(file);
        let state = self.files.lock().remove(&file);
        if let Some(State::Loaded(slot)) = state
            && let Some(loaded) = self.tables.get_mut(&slot)
        {
            loaded.files.remove(&file);
        }
        let place = (file.inode, file.device);
        if self.versions.get(&place) == Some(&file) {
            self.versions.remove(&place);
        }
    }

    fn give(&mut self, file: FileKey, slot: u32) -> bool {
        let Some(loaded) = self.tables.get_mut(&slot) else {
            return false;
        };
        loaded.files.insert(file);
        self.arrays.note_use(slot, self.now);
        self.set(file, State::Loaded(slot));
        true
    }

    fn set(&mut self, file: FileKey, state: State) {
        if self.files.lock().len() >= MAX_FILES {
            self.forget_some();
        }
        // A number is one file's after another's, and a file has one content after another.
        let place = (file.inode, file.device);
        if let Some(older) = self.versions.insert(place, file)
            && older != file
        {
            self.forget(older);
        }
        self.files.lock().insert(file, state);
        if !self.name(file, state) {
            self.forget_some();
            if !self.name(file, state) {
                self.forget(file);
            }
        }
    }

    fn name(&mut self, file: FileKey, state: State) -> bool {
        let table = match state {
            State::Loaded(slot) => self.tables.get(&slot).map(|loaded| loaded.table),
            State::Absent | State::Refused(..) => Some(TableRef::none(table::ABSENT)),
        };
        table.is_some_and(|table| self.arrays.name(file, table))
    }

    /// Forgets files for which a name is all that there is, and if there are none, half of all tables.
    fn forget_some(&mut self) {
        if self.forget_all(|state| !matches!(state, State::Loaded(_))) == 0 {
            let mut slots = self.by_use(0);
            slots.truncate(slots.len().div_ceil(2));
            self.evict(&slots);
        }
    }

    fn forget_all(&mut self, which: impl Fn(&State) -> bool) -> usize {
        let files = self.files.lock();
        let gone = files.iter().filter(|(_, state)| which(state));
        let gone: Vec<FileKey> = gone.map(|(file, _)| *file).collect();
        drop(files);
        for file in &gone {
            self.forget(*file);
        }
        gone.len()
    }

    /// Takes out what was not used for longest, so that as many slots are free. False where that would
    /// take tables that are in use.
    fn make_room(&mut self, slots: u32) -> bool {
        let mut free = self.store.free_slots();
        let mut chosen = Vec::new();
        for slot in self.by_use(IDLE) {
            chosen.push(slot);
            free += self.store.slots_of(slot);
            if free >= slots {
                self.evict(&chosen);
                return true;
            }
        }
        false
    }

    /// Tables that were not used for so many seconds, or whose files are gone, those first that
    /// were not used for longest.
    fn by_use(&self, idle: u64) -> Vec<u32> {
        let tables = self.tables.iter().map(|(slot, loaded)| {
            let used = if loaded.files.is_empty() {
                0
            } else {
                self.arrays.last_use(*slot)
            };
            (used, *slot)
        });
        let mut found: Vec<_> = tables
            .filter(|(used, _)| *used == 0 || used + idle <= self.now)
            .collect();
        found.sort_unstable();
        found.into_iter().map(|(_, slot)| slot).collect()
    }

    fn evict(&mut self, slots: &[u32]) {
        for slot in slots {
            let Some(loaded) = self.tables.remove(slot) else {
                continue;
            };
            self.by_fingerprint.remove(&loaded.fingerprint);
            for file in loaded.files {
                self.forget(file);
            }
            self.evicted += 1;
        }
        self.arrays.settle();
        for slot in slots {
            self.store.remove(*slot);
        }
    }

    #[cfg(test)]
    pub(super) fn arrays(&mut self) -> &mut A {
        &mut self.arrays
    }
}
