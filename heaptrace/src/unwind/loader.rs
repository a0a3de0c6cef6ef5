//! Loads tables into the kernel program's arrays, and evicts tables when the arrays are full.
//!
//! Stage: unwind. Files with the same unwind information share a table. The least recently used table is evicted first. Must
//! not know how tables are built, nor why a table is loaded.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use heaptrace_common::unwind::Rule;
use heaptrace_common::wire::{FileKey, PythonImage, TableRef, table};

use super::image::Fingerprint;
use super::store::{NoRoom, Placement, Store, StoreLimits};
use super::table::Table;
use crate::reader::FileOwner;

/// A table is not evicted for this many seconds after its last use. If all tables in use do not fit, each new table would
/// otherwise evict one that is requested again at once.
const IDLE: u64 = 5;

/// Seconds after which a table for which there was no room may be requested again.
const RETRY: u64 = 30;

/// Most files with a state; three quarters of the entries that the kernel's map can hold.
pub(super) const MAX_FILES: usize = heaptrace_common::limits::MAX_TABLES as usize / 4 * 3;

/// The arrays that the kernel program reads, and the map from files to tables.
pub(super) trait Arrays {
    /// Writes a table that is not published yet. The error is the number of segments, if there is no memory for more.
    fn write(&mut self, placement: &Placement) -> Result<(), u32>;
    /// Adds a file and its table to the map. False if the map is full.
    fn publish(&mut self, file: FileKey, table: TableRef) -> bool;
    /// Removes a file from the map.
    fn unpublish(&mut self, file: FileKey);
    /// The rule for an offset in a file, by its table; [`Rule::NONE`] if the table has none for it.
    fn rule(&self, table: TableRef, at: u64) -> Rule;
    /// Waits until no program uses a table that was removed from the map.
    fn wait_for_walks(&mut self);
    /// Sets the clock by which the kernel program records uses.
    fn set_clock(&mut self, now: u64);
    /// The time of the last use of a table.
    fn last_use(&self, slot: u32) -> u64;
    /// Records a use of a table.
    fn record_use(&mut self, slot: u32, now: u64);
}

/// The state of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Its table is in this slot.
    Loaded(u32),
    /// It has no table.
    Absent,
    /// There was no room for its table, at this time.
    Refused(NoRoom, u64),
}

/// The states of files, which can be read without waiting for a table to be written.
#[derive(Clone, Debug, Default)]
pub(super) struct FileStates(Arc<Mutex<HashMap<FileKey, State>>>);

impl FileStates {
    fn lock(&self) -> MutexGuard<'_, HashMap<FileKey, State>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state of a file; `None` if the file is not known.
    pub(super) fn get(&self, file: FileKey) -> Option<State> {
        self.lock().get(&file).copied()
    }
}

struct Loaded {
    /// The owner whose share it uses; `None` for files of the system.
    owner: Option<FileOwner>,
    table: TableRef,
    fingerprint: Fingerprint,
    files: HashSet<FileKey>,
}

/// Loads and evicts tables.
pub(super) struct Loader<A> {
    arrays: A,
    store: Store,
    states: FileStates,
    /// The latest version of each file, by inode and device.
    versions: HashMap<(u64, u64), FileKey>,
    tables: HashMap<u32, Loaded>,
    by_fingerprint: HashMap<Fingerprint, u32>,
    /// The number of rules that each owner's files added. Rules are never removed.
    rules: HashMap<FileOwner, u32>,
    now: u64,
    evicted: u64,
}

impl<A: Arrays> Loader<A> {
    pub(super) fn new(arrays: A, limits: StoreLimits) -> Self {
        let mut loader = Self {
            arrays,
            store: Store::new(limits),
            states: FileStates::default(),
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

    pub(super) fn states(&self) -> FileStates {
        self.states.clone()
    }

    /// The number of tables that were evicted.
    pub(super) fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Sets the clock, in seconds, which starts at 1.
    pub(super) fn tick(&mut self, now: u64) {
        if now == self.now {
            return;
        }
        self.now = now;
        self.arrays.set_clock(now);
        let is_over = |state: &State| matches!(state, State::Refused(_, at) if at + RETRY <= now);
        self.forget_all(is_over);
    }

    /// Publishes the Python interpreter in a file whose table is not there yet: its frames are read from now on.
    pub(super) fn announce(&mut self, file: FileKey, python: PythonImage) {
        if self.states.get(file).is_some() {
            return;
        }
        let placement = self.store.announce(python);
        if self.arrays.write(&placement).is_ok() {
            self.arrays.publish(file, placement.table);
        }
    }

    /// Assigns a file the loaded table with this fingerprint, if there is one.
    pub(super) fn share(&mut self, file: FileKey, fingerprint: &Fingerprint) -> bool {
        let slot = self.by_fingerprint.get(fingerprint).copied();
        slot.is_some_and(|slot| self.assign(file, slot))
    }

    /// Loads the table of a file of an owner, within the owner's share of the arrays. The system's files have no such limit.
    pub(super) fn load_of(
        &mut self,
        owner: FileOwner,
        file: FileKey,
        fingerprint: &Fingerprint,
        built: &Table,
    ) -> Result<(), NoRoom> {
        if owner.is_system() || self.share(file, fingerprint) {
            return self.load(file, fingerprint, built);
        }
        let slots = Store::slots_for(built);
        let new_rules = self.store.new_rules(built);
        let (max_slots, max_rules) = self.store.share();
        let rules = self.rules.get(&owner).copied().unwrap_or_default();
        if self.slots_of(owner).saturating_add(slots) > max_slots {
            let idle = self.idle_for(IDLE).into_iter();
            let own: Vec<u32> = idle.filter(|slot| self.is_of(*slot, owner)).collect();
            self.evict(&own);
        }
        if self.slots_of(owner).saturating_add(slots) > max_slots
            || rules.saturating_add(new_rules) > max_rules
        {
            self.set(file, State::Refused(NoRoom::Share, self.now));
            return Err(NoRoom::Share);
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

    /// The number of slots of an owner's tables.
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
    ) -> Result<(), NoRoom> {
        // Another thread may have loaded the same table meanwhile.
        if self.share(file, fingerprint) {
            return Ok(());
        }
        let placement = loop {
            match self.store.add(built) {
                Ok(placement) => match self.arrays.write(&placement) {
                    Ok(()) => break placement,
                    Err(segments) => {
                        self.store.remove(placement.table.slot);
                        self.store.stop_growing(segments);
                    }
                },
                Err(NoRoom::Full) if self.make_room(Store::slots_for(built)) => {}
                Err(reason) => {
                    self.set(file, State::Refused(reason, self.now));
                    return Err(reason);
                }
            }
        };
        let slot = placement.table.slot;
        self.arrays.record_use(slot, self.now);
        self.by_fingerprint.insert(*fingerprint, slot);
        let loaded = Loaded {
            owner: None,
            table: placement.table,
            fingerprint: *fingerprint,
            files: HashSet::new(),
        };
        self.tables.insert(slot, loaded);
        self.assign(file, slot);
        Ok(())
    }

    /// Records that a file has no table.
    pub(super) fn set_absent(&mut self, file: FileKey) {
        self.set(file, State::Absent);
    }

    /// Publishes the state of a file again; false if the file has no state.
    pub(super) fn republish(&mut self, file: FileKey) -> bool {
        match self.states.get(file) {
            Some(state) => self.publish(file, state),
            None => false,
        }
    }

    /// The rule for an offset in a file with a table, and whether Python's function that interprets bytecode has that code. `None` in
    /// place of both if the file has no table; `None` if the file is not known.
    pub(super) fn rule(&self, file: FileKey, at: u64) -> Option<Option<(Rule, bool)>> {
        Some(match self.states.get(file)? {
            State::Loaded(slot) => {
                let table = self.tables.get(&slot)?.table;
                let python = self.store.python(table.python);
                let is_loop = python.is_some_and(|image| image.is_loop(at));
                Some((self.arrays.rule(table, at), is_loop))
            }
            State::Absent | State::Refused(..) => None,
        })
    }

    /// Removes the state of a file, so that the kernel program can request its table again.
    pub(super) fn forget(&mut self, file: FileKey) {
        self.arrays.unpublish(file);
        let state = self.states.lock().remove(&file);
        if let Some(State::Loaded(slot)) = state
            && let Some(loaded) = self.tables.get_mut(&slot)
        {
            loaded.files.remove(&file);
        }
        let id = (file.inode, file.device);
        if self.versions.get(&id) == Some(&file) {
            self.versions.remove(&id);
        }
    }

    fn assign(&mut self, file: FileKey, slot: u32) -> bool {
        let Some(loaded) = self.tables.get_mut(&slot) else {
            return false;
        };
        loaded.files.insert(file);
        self.arrays.record_use(slot, self.now);
        self.set(file, State::Loaded(slot));
        true
    }

    fn set(&mut self, file: FileKey, state: State) {
        if self.states.lock().len() >= MAX_FILES {
            self.forget_some();
        }
        // An inode is reused for other files, and a file's content changes: an older version no longer exists.
        let id = (file.inode, file.device);
        if let Some(older) = self.versions.insert(id, file)
            && older != file
        {
            self.forget(older);
        }
        self.states.lock().insert(file, state);
        if !self.publish(file, state) {
            self.forget_some();
            if !self.publish(file, state) {
                self.forget(file);
            }
        }
    }

    fn publish(&mut self, file: FileKey, state: State) -> bool {
        let table = match state {
            State::Loaded(slot) => self.tables.get(&slot).map(|loaded| loaded.table),
            State::Absent | State::Refused(..) => Some(TableRef::none(table::ABSENT)),
        };
        table.is_some_and(|table| self.arrays.publish(file, table))
    }

    /// Forgets all files without a table. If there are none, evicts half of all tables.
    fn forget_some(&mut self) {
        if self.forget_all(|state| !matches!(state, State::Loaded(_))) == 0 {
            let mut slots = self.idle_for(0);
            slots.truncate(slots.len().div_ceil(2));
            self.evict(&slots);
        }
    }

    fn forget_all(&mut self, which: impl Fn(&State) -> bool) -> usize {
        let states = self.states.lock();
        let files = states.iter().filter(|(_, state)| which(state));
        let files: Vec<FileKey> = files.map(|(file, _)| *file).collect();
        drop(states);
        for file in &files {
            self.forget(*file);
        }
        files.len()
    }

    /// Evicts the least recently used tables until this many slots are free. False if that would evict tables in use; then
    /// it evicts none.
    fn make_room(&mut self, slots: u32) -> bool {
        let mut free = self.store.free_slots();
        let mut evicted = Vec::new();
        for slot in self.idle_for(IDLE) {
            evicted.push(slot);
            free += self.store.slots_of(slot);
            if free >= slots {
                self.evict(&evicted);
                return true;
            }
        }
        false
    }

    /// Tables that were not used for this many seconds or have no files, the least recently used first.
    fn idle_for(&self, idle: u64) -> Vec<u32> {
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
        self.arrays.wait_for_walks();
        for slot in slots {
            self.store.remove(*slot);
        }
    }

    #[cfg(test)]
    pub(super) fn arrays(&mut self) -> &mut A {
        &mut self.arrays
    }
}
