//! Looks up the names of locations, one module at a time, and stores the results.
//!
//! Stage: symbolize. A reader looks up the names. This file finds the files that the reader needs, and converts its answers
//! to the profile's [`Symbols`].

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::debug_file::{self, Debug, DebugFile, DebugSources, MAX_ADDRESSES};
use super::demangle::MAX_NAME;
use super::elf::MAX_INFLATED;
use super::files::ModuleFiles;
use super::folders::{folder, folder_in_root};
use super::parts::{Parts, Places};
use super::protocol::{Facts, FoundFrame, MAX_INLINED, Names, NamesQuestion};
use super::table::NameTable;
use crate::join::{LocationId, Module, ModuleId};
use crate::open::Identity;
use crate::profile::{Profile, Symbols, Types};
use crate::reader::{Budget, Job, Limits, Reader, Unreadable};
use crate::text::file_name;

/// Most files whose debug files are cached. These debug files are open.
const MAX_DEBUG_FILES: usize = 256;

/// The longest text that is accepted from a reader. Demangling may add a little to a name.
const MAX_TEXT: usize = 4 * MAX_NAME;

/// The memory limit of a reader for names: enough for the debug information of the largest programs.
const MEMORY: u64 = 3 << 30;

/// A reader must reject a file by its size before it runs out of memory.
const _: () = assert!(MAX_INFLATED < MEMORY);

/// The memory limit of a helper's reader: what needs more is left to the first symbolizer.
const HELPER_MEMORY: u64 = 1 << 30;

/// Most bytes of a file and its debug file that several readers read at the same time.
const MAX_SHARED: u64 = 256 << 20;

/// Finds the names of code addresses.
pub struct Symbolizer {
    reader: Reader,
    sources: DebugSources,
    /// The debug files that were found, by module file; `None` for a module that is not an ELF file.
    debug_files: HashMap<Identity, Option<Arc<Debug>>>,
    /// The debug files of modules that are not at hand, by build id.
    debug_files_alone: HashMap<Vec<u8>, Arc<Debug>>,
    /// What was passed of debug information in several files, by path and build id of a module.
    parts: BTreeMap<ModuleKey, Parts>,
    /// The modules whose debug information could not be read, and why.
    harmful: BTreeMap<ModuleKey, Unreadable>,
    /// Whether modules that fail are left to another symbolizer.
    is_helper: bool,
    table: NameTable,
}

/// The path and the build id of a module.
type ModuleKey = (String, Vec<u8>);

fn key(module: &Module) -> ModuleKey {
    (module.path.clone(), module.build_id.clone())
}

impl std::fmt::Debug for Symbolizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Symbolizer")
            .field("locations", &self.symbols().frames.len())
            .field("strings", &self.symbols().strings.len())
            .finish_non_exhaustive()
    }
}

impl Symbolizer {
    /// A symbolizer without names. Its readers use this budget. It searches for separate debug files there.
    pub fn new(budget: &Budget, sources: DebugSources) -> Self {
        let limits = Limits {
            memory: MEMORY,
            time: Limits::default().time * 3,
            ..Limits::default()
        };
        Self::with(Reader::new(budget, limits), sources)
    }

    /// A symbolizer with this reader.
    pub(super) fn with(reader: Reader, sources: DebugSources) -> Self {
        Self {
            reader,
            sources,
            debug_files: HashMap::new(),
            debug_files_alone: HashMap::new(),
            parts: BTreeMap::new(),
            harmful: BTreeMap::new(),
            is_helper: false,
            table: NameTable::default(),
        }
    }

    /// A symbolizer that works beside another one, with less memory: it leaves the modules that fail to the other one.
    pub fn helper(budget: &Budget, sources: DebugSources) -> Self {
        let limits = Limits {
            memory: HELPER_MEMORY,
            processes: 1,
            ..Limits::default()
        };
        Self::helping(Reader::without_records(budget, limits), sources)
    }

    /// A helper with this reader.
    pub(super) fn helping(reader: Reader, sources: DebugSources) -> Self {
        Self {
            is_helper: true,
            ..Self::with(reader, sources)
        }
    }

    /// The budget of its reader.
    #[cfg(test)]
    pub(super) fn budget(&self) -> Budget {
        self.reader.budget()
    }

    /// A symbolizer that already has these names.
    pub fn with_symbols(symbols: Symbols, budget: &Budget, sources: DebugSources) -> Self {
        Self {
            table: NameTable::of(symbols),
            ..Self::new(budget, sources)
        }
    }

    /// The names that were found so far.
    pub fn symbols(&self) -> &Symbols {
        self.table.symbols()
    }

    /// Adds the types of stacks that have none.
    pub fn add_types(&mut self, types: &Types) {
        self.table.add_types(types);
    }

    /// The names that were found.
    pub fn into_symbols(self) -> Symbols {
        self.table.into_symbols()
    }

    /// What is not known although names were found, in sentences.
    pub fn gaps(&self) -> Vec<String> {
        let parts = self.parts.iter();
        let of_parts = parts.filter(|(key, _)| !self.harmful.contains_key(*key));
        let mut gaps: Vec<String> = of_parts
            .flat_map(|((program, _), parts)| parts.gaps(program))
            .collect();
        if !self.is_helper {
            gaps.extend(self.harmful.iter().map(|((file, _), reason)| {
                format!("only names of functions from {file}, no lines and no inlined functions: {reason}")
            }));
        }
        gaps
    }

    /// Whether a module could not be read, or only in part.
    pub(super) fn has_failed(&self, module: &Module) -> bool {
        self.harmful.contains_key(&key(module))
    }

    /// Forgets that the file of a module could not be read.
    pub(super) fn forget_failures(&mut self, module: &Module) {
        self.harmful.remove(&key(module));
        self.parts.remove(&key(module));
    }

    /// Forgets the names that were found.
    pub(super) fn forget_names(&mut self, locations: &[LocationId]) {
        self.table.forget(locations);
    }

    /// Whether several readers may look up names in a module at the same time: each needs memory for it.
    pub(super) fn may_be_shared(
        &mut self,
        profile: &Profile,
        files: &dyn ModuleFiles,
        id: ModuleId,
    ) -> bool {
        let module = profile.modules.get(id.0 as usize);
        let found = module.and_then(|module| {
            let file = files.file(&mut self.reader, id, module)?;
            let debug = self.debug_file(module, &file)?;
            let of_debug = debug.file.as_ref().map(|debug| &debug.file);
            let lengths = [Some(&*file), of_debug].into_iter().flatten();
            let bytes: u64 = lengths
                .map(|file| file.metadata().map_or(u64::MAX, |meta| meta.len()))
                .fold(0, u64::saturating_add);
            Some(bytes <= MAX_SHARED && !debug.may_have_parts)
        });
        found.unwrap_or(false)
    }

    /// Looks up the `wanted` locations that were not looked up before, without those of interpreters: these have a name.
    ///
    /// This does not fail: a location without a name gets a frame without a function.
    pub fn symbolize(
        &mut self,
        profile: &Profile,
        files: &dyn ModuleFiles,
        wanted: impl IntoIterator<Item = LocationId>,
    ) {
        let mut modules = BTreeMap::<Option<ModuleId>, Vec<(LocationId, u64)>>::new();
        for id in wanted {
            if let Some(location) = profile.locations.get(id.0 as usize)
                && location.function.is_none()
                && self.symbols().frames(id).is_empty()
            {
                let addresses = modules.entry(location.module).or_default();
                addresses.push((id, location.address));
            }
        }
        for (id, mut pending) in modules {
            pending.sort_unstable_by_key(|(location, address)| (*address, location.0));
            pending.dedup();
            if let Some(id) = id
                && let Some(module) = profile.modules.get(id.0 as usize)
            {
                pending = match files.file(&mut self.reader, id, module) {
                    Some(file) => self.module(module, &file, pending),
                    None => self.debug_file_alone(module, pending),
                };
            }
            for (location, _) in pending {
                self.table.set(location, Vec::new());
            }
        }
    }

    /// Looks up addresses of one module; returns the ones that were not found.
    fn module(
        &mut self,
        module: &Module,
        file: &File,
        pending: Vec<(LocationId, u64)>,
    ) -> Vec<(LocationId, u64)> {
        let Some(debug) = self.debug_file(module, file) else {
            if self.is_helper {
                self.harmful.insert(key(module), Unreadable::Failed);
            }
            return pending;
        };
        self.names(pending, |symbolizer, offsets| {
            symbolizer.ask(module, Some(file), &debug, offsets)
        })
    }

    /// Looks up addresses of a module that is not at hand, in its debug file alone; returns the ones that were not found.
    fn debug_file_alone(
        &mut self,
        module: &Module,
        pending: Vec<(LocationId, u64)>,
    ) -> Vec<(LocationId, u64)> {
        let (Some(text_address), false) = (module.text_address, module.build_id.is_empty()) else {
            return pending;
        };
        let debug = match self.debug_files_alone.get(&module.build_id) {
            Some(debug) => Arc::clone(debug),
            None => {
                let facts = Facts {
                    build_id: module.build_id.clone(),
                    ..Facts::default()
                };
                let debug = self.search(module, &facts, Path::new(""));
                let debug = Arc::new(debug);
                if self.debug_files_alone.len() >= MAX_DEBUG_FILES {
                    self.debug_files_alone.clear();
                }
                let known = &mut self.debug_files_alone;
                known.insert(module.build_id.clone(), Arc::clone(&debug));
                debug
            }
        };
        if debug.file.is_none() {
            return pending;
        }
        let bias = text_address.wrapping_sub(module.text_offset);
        self.names(pending, |symbolizer, offsets| {
            let addresses = offsets.into_iter().map(|it| it.wrapping_add(bias));
            symbolizer.ask(module, None, &debug, addresses.collect())
        })
    }

    /// Asks for the names of offsets, some at a time, and stores them; returns the ones that were not found.
    fn names(
        &mut self,
        pending: Vec<(LocationId, u64)>,
        mut ask: impl FnMut(&mut Self, Vec<u64>) -> Names,
    ) -> Vec<(LocationId, u64)> {
        let mut left = Vec::new();
        for pending in pending.chunks(MAX_ADDRESSES) {
            let names = ask(self, pending.iter().map(|(_, offset)| *offset).collect());
            for (index, (location, offset)) in pending.iter().enumerate() {
                match names.get(index).filter(|found| !found.is_empty()) {
                    Some(found) => self.table.set(*location, found.clone()),
                    None => left.push((*location, *offset)),
                }
            }
        }
        left
    }

    /// Asks a reader for names. Without the module's file, its debug file stands for it, and the offsets are addresses.
    fn ask(
        &mut self,
        module: &Module,
        file: Option<&File>,
        debug: &Debug,
        offsets: Vec<u64>,
    ) -> Names {
        let key = key(module);
        let is_harmful = self.harmful.contains_key(&key);
        if is_harmful && self.is_helper {
            return Names::new();
        }
        if debug.may_have_parts && !is_harmful {
            self.pass_parts(module, file, debug.file.as_ref(), &offsets);
        }
        let debug = debug.file.as_ref();
        let shared = debug.and_then(|debug| debug.shared.as_ref());
        let mut question = NamesQuestion {
            symbols_only: is_harmful,
            offsets,
            are_addresses: file.is_none(),
            debug: debug.map(|debug| {
                let path = Some(debug.path.to_string_lossy()).filter(|_| debug.names_files);
                path.unwrap_or_default().into_owned()
            }),
            shared: shared.map(|(path, _)| path.clone()),
        };
        let of_debug = debug.map(|debug| &debug.file);
        let mut files: Vec<&File> = file.or(of_debug).into_iter().chain(of_debug).collect();
        files.extend(shared.map(|(_, file)| file));
        let mut names = self.reader.try_ask(Job::Names, &question, &files);
        if let Err(reason) = &names
            && !is_harmful
            && (self.is_helper || is_of_content(reason))
        {
            tracing::debug!("{}: {reason}", module.path);
            self.harmful.insert(key, reason.clone());
            if self.is_helper {
                return Names::new();
            }
            question.symbols_only = true;
            names = self.reader.try_ask(Job::Names, &question, &files);
        }
        if let Err(reason) = &names {
            self.reader.record_unread(&module.path, reason);
        }
        let names: Names = names.unwrap_or_default();
        let is_sound = |found: &FoundFrame| {
            let file = found.file.as_ref().map_or(0, String::len);
            found.function.len() <= MAX_TEXT && file <= MAX_TEXT
        };
        let are_sound = names
            .iter()
            .all(|frames| frames.len() <= MAX_INLINED + 1 && frames.iter().all(is_sound));
        if are_sound { names } else { Names::new() }
    }

    /// Asks a reader about these locations, in the files of their modules. `question` makes a question from offsets in a module, whether its
    /// debug file is passed, and whether a supplementary file is. `take` gets each answer.
    pub(crate) fn ask_about<Q: Serialize, A: DeserializeOwned>(
        &mut self,
        profile: &Profile,
        files: &dyn ModuleFiles,
        (job, wanted): (Job, &[LocationId]),
        question: impl Fn(Vec<u64>, bool, bool) -> Q,
        mut take: impl FnMut(&[LocationId], A),
    ) {
        let mut modules = BTreeMap::<ModuleId, Vec<(u64, LocationId)>>::new();
        for id in wanted {
            if let Some(location) = profile.locations.get(id.0 as usize)
                && let (Some(module), None) = (location.module, location.function)
            {
                let addresses = modules.entry(module).or_default();
                addresses.push((location.address, *id));
            }
        }
        for (id, mut pending) in modules {
            pending.sort_unstable();
            let module = profile.modules.get(id.0 as usize);
            let found = module.and_then(|module| {
                let file = files.file(&mut self.reader, id, module)?;
                Some((module, self.debug_file(module, &file)?, file))
            });
            let Some((module, debug, file)) = found else {
                continue;
            };
            let may_have_parts = debug.may_have_parts && !self.harmful.contains_key(&key(module));
            let most = debug.most_addresses();
            let debug = debug.file.as_ref();
            let shared = debug.and_then(|it| it.shared.as_ref());
            let mut passed = vec![&*file];
            passed.extend(debug.map(|it| &it.file));
            passed.extend(shared.map(|(_, file)| file));
            for part in pending.chunks(most) {
                let (offsets, ids): (Vec<u64>, Vec<LocationId>) = part.iter().copied().unzip();
                if may_have_parts {
                    self.pass_parts(module, Some(&file), debug, &offsets);
                }
                let question = question(offsets, debug.is_some(), shared.is_some());
                match self.reader.ask(job, &question, &module.path, &passed) {
                    Ok(answer) => take(&ids, answer),
                    Err(_) => break,
                }
            }
        }
    }

    /// Passes the files of units that the reader needs for offsets in a module.
    fn pass_parts(
        &mut self,
        module: &Module,
        file: Option<&File>,
        debug: Option<&DebugFile>,
        offsets: &[u64],
    ) {
        let of_debug = debug.map(|debug| (&debug.file, debug.path.as_path()));
        let Some(first) = file.or(debug.map(|debug| &debug.file)) else {
            return;
        };
        let places = Places {
            program: &module.path,
            folder: &folder_in_root(module),
            root: &module.root,
            build_id: &module.build_id,
            file: first,
            debug: of_debug.filter(|_| file.is_some()),
            folders: &self.sources.folders,
        };
        if self.parts.len() >= MAX_DEBUG_FILES {
            self.parts.clear();
        }
        let parts = self.parts.entry(key(module)).or_default();
        parts.pass(&mut self.reader, &places, offsets, file.is_none());
    }

    /// The debug file of a module, which is searched for once; `None` if the module is not an ELF file.
    fn debug_file(&mut self, module: &Module, file: &File) -> Option<Arc<Debug>> {
        let identity = Identity::of(file).ok()?;
        if let Some(cached) = self.debug_files.get(&identity) {
            return cached.clone();
        }
        let facts = debug_file::facts(&mut self.reader, &module.path, file, None);
        let found = facts.map(|facts| {
            Arc::new(match facts.is_self_contained {
                true => Debug {
                    file: None,
                    may_have_parts: facts.may_have_parts,
                    is_own: true,
                },
                false => self.search(module, &facts, &folder(module)),
            })
        });
        if self.debug_files.len() >= MAX_DEBUG_FILES {
            self.debug_files.clear();
        }
        self.debug_files.insert(identity, found.clone());
        found
    }

    fn search(&mut self, module: &Module, facts: &Facts, folder: &Path) -> Debug {
        let name = file_name(&module.path);
        let file = debug_file::find(&mut self.reader, facts, name, folder, &mut self.sources);
        Debug {
            may_have_parts: file.as_ref().is_some_and(|file| file.may_have_parts),
            file,
            is_own: false,
        }
    }
}

/// Whether a question failed because of what is in the file, so that one about less of it may succeed.
fn is_of_content(reason: &Unreadable) -> bool {
    use Unreadable::{Failed, Nonsense, Slow};
    matches!(reason, Failed | Nonsense | Slow(_))
}
