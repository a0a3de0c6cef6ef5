//! Looks up locations, a module at a time, and keeps what was found.
//!
//! Stage: symbolize. blazesym does the work; this file decides which file it may open, keeps its
//! memory bounded, and turns its answers into the profile's [`Symbols`].

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Symbolized, Symbolizer as Blazesym};

use super::debug_file;
use super::demangle::{MAX_NAME, demangle, is_mangled};
use super::elf::{ElfFacts, open_regular};
use super::files::ModuleFiles;
use super::quiet::contained;
use crate::join::{LocationId, Module, ModuleId};
use crate::profile::{Frame, Profile, StringId, Symbols};

/// Bytes of ELF files that are kept mapped and indexed between calls.
const MAX_CACHED: u64 = 2 << 30;

/// Most functions that are believed to be inlined at one address.
const MAX_INLINED: usize = 256;

/// Finds the names of code addresses.
pub struct Symbolizer {
    blazesym: Blazesym,
    debug_dirs: Vec<PathBuf>,
    cached: HashMap<(u64, u64), u64>,
    symbols: Symbols,
    strings: HashMap<String, StringId>,
}

impl std::fmt::Debug for Symbolizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Symbolizer")
            .field("locations", &self.symbols.frames.len())
            .field("strings", &self.symbols.strings.len())
            .finish_non_exhaustive()
    }
}

impl Default for Symbolizer {
    fn default() -> Self {
        Self::new()
    }
}

/// One way to look up addresses of a module; the next one is for what this one didn't find.
struct Attempt {
    path: PathBuf,
    /// Keeps `path` valid where it leads through this file's descriptor.
    _debug_file: Option<File>,
    dwarf: bool,
    input: AddressKind,
}

#[derive(Clone, Copy)]
enum AddressKind {
    Offset,
    /// A debug file lacks what the module's offsets count, so addresses it is.
    Linked,
}

/// A function, before its strings are in the table.
struct Found {
    function: String,
    file: Option<String>,
    line: u32,
    inlined: bool,
}

impl Symbolizer {
    /// A symbolizer that knows nothing yet.
    pub fn new() -> Self {
        Self::with_debug_dirs(vec![PathBuf::from("/usr/lib/debug")])
    }

    /// A symbolizer that looks for separate debug files below these folders, which only the
    /// system's administrator should be able to write to.
    pub fn with_debug_dirs(debug_dirs: Vec<PathBuf>) -> Self {
        Self {
            blazesym: blazesym(&debug_dirs),
            debug_dirs,
            cached: HashMap::new(),
            symbols: Symbols::default(),
            strings: HashMap::new(),
        }
    }

    /// A symbolizer that knows what another one has found.
    pub fn knowing(symbols: Symbols) -> Self {
        let ids = (0..).map(StringId);
        let strings = symbols.strings.iter().cloned().zip(ids).collect();
        Self {
            symbols,
            strings,
            ..Self::new()
        }
    }

    /// What was found until now.
    pub fn symbols(&self) -> &Symbols {
        &self.symbols
    }

    /// What was found.
    pub fn into_symbols(self) -> Symbols {
        self.symbols
    }

    /// Looks up those of the `wanted` locations that were not looked up before.
    ///
    /// Nothing here fails: what can't be found gets a frame without a function.
    pub fn symbolize(
        &mut self,
        profile: &Profile,
        files: &dyn ModuleFiles,
        wanted: impl IntoIterator<Item = LocationId>,
    ) {
        let mut modules = BTreeMap::<Option<ModuleId>, Vec<(LocationId, u64)>>::new();
        for id in wanted {
            if let Some(location) = profile.locations.get(id.0 as usize)
                && self.symbols.frames(id).is_empty()
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
                && let Some(path) = files.path(id, module)
            {
                pending = self.module(module, &path, pending);
            }
            for (location, _) in pending {
                self.set(location, Vec::new());
            }
        }
    }

    /// Looks up addresses of one module; gives back those that were not found.
    fn module(
        &mut self,
        module: &Module,
        path: &Path,
        mut pending: Vec<(LocationId, u64)>,
    ) -> Vec<(LocationId, u64)> {
        let Some(file) = open_regular(path) else {
            return pending;
        };
        let Some(facts) = ElfFacts::read(&file) else {
            return pending;
        };
        for attempt in self.attempts(module, &file, &facts) {
            if pending.is_empty() {
                break;
            }
            let addresses: Vec<u64> = pending
                .iter()
                .map(|(_, offset)| match attempt.input {
                    AddressKind::Offset => *offset,
                    // No function is at the last address there is.
                    AddressKind::Linked => facts.address(*offset).unwrap_or(u64::MAX),
                })
                .collect();
            let Some(found) = self.look_up(&attempt, &addresses) else {
                continue;
            };
            let mut found = found.into_iter();
            pending.retain(|(location, _)| match found.next().flatten() {
                Some(frames) => {
                    self.set(*location, frames);
                    false
                }
                None => true,
            });
        }
        pending
    }

    /// The ways to look up addresses of a file, best first.
    ///
    /// blazesym would follow whatever a file names, and a hostile file could name a pipe that no
    /// one writes to; so what it names is looked for here, and only a file that names nothing is
    /// read with its DWARF.
    fn attempts(&self, module: &Module, file: &File, facts: &ElfFacts) -> Vec<Attempt> {
        let mut attempts = Vec::new();
        let own = through_descriptor(file);
        if facts.has_dwarf && !facts.names_files {
            attempts.push(Attempt {
                path: own.clone(),
                _debug_file: None,
                dwarf: true,
                input: AddressKind::Offset,
            });
        } else if let Some(debug) = debug_file::find(facts, &folder(module), &self.debug_dirs) {
            let by_descriptor = through_descriptor(&debug.file);
            attempts.push(Attempt {
                // By its name if it may name others: these are sought beside it.
                path: if debug.trusted {
                    debug.path
                } else {
                    by_descriptor
                },
                _debug_file: Some(debug.file),
                dwarf: true,
                input: AddressKind::Linked,
            });
        }
        attempts.push(Attempt {
            path: own,
            _debug_file: None,
            dwarf: false,
            input: AddressKind::Offset,
        });
        attempts
    }

    /// Asks blazesym; `None` if it can't read the file.
    fn look_up(&mut self, attempt: &Attempt, addresses: &[u64]) -> Option<Vec<Option<Vec<Found>>>> {
        self.make_room(&attempt.path);
        let input = match attempt.input {
            AddressKind::Offset => Input::FileOffset(addresses),
            AddressKind::Linked => Input::VirtOffset(addresses),
        };
        let source = |debug_syms| {
            Source::Elf(Elf {
                debug_syms,
                ..Elf::new(&attempt.path)
            })
        };
        let answer = contained(|| {
            let answer = self
                .blazesym
                .symbolize(&source(attempt.dwarf), input)
                .ok()?;
            let linked = attempt
                .dwarf
                .then(|| self.blazesym.symbolize(&source(false), input).ok())
                .flatten()
                .unwrap_or_default();
            let linked = linked.iter().map(Some).chain(std::iter::repeat(None));
            let frames = answer.iter().zip(linked);
            Some(
                frames
                    .map(|(found, linked)| self::frames(found, linked))
                    .collect::<Vec<_>>(),
            )
        });
        if answer.is_none() {
            // It panicked, and may have left its caches half made.
            self.forget();
        }
        answer.flatten()
    }

    /// Drops blazesym's caches where another file would make them too large.
    fn make_room(&mut self, path: &Path) {
        use std::os::unix::fs::MetadataExt as _;
        let Ok(metadata) = path.metadata() else {
            return;
        };
        self.cached
            .insert((metadata.dev(), metadata.ino()), metadata.len());
        if self.cached.len() > 1 && self.cached.values().sum::<u64>() > MAX_CACHED {
            self.forget();
            self.cached
                .insert((metadata.dev(), metadata.ino()), metadata.len());
        }
    }

    fn forget(&mut self) {
        self.blazesym = blazesym(&self.debug_dirs);
        self.cached.clear();
    }

    /// Keeps the frames of a location; none means that nothing is known of it.
    fn set(&mut self, location: LocationId, found: Vec<Found>) {
        let mut frames: Vec<Frame> = found
            .into_iter()
            .map(|found| Frame {
                function: Some(self.intern(found.function)),
                file: found.file.map(|file| self.intern(file)),
                line: found.line,
                inlined: found.inlined,
            })
            .collect();
        if frames.is_empty() {
            frames.push(Frame {
                function: None,
                file: None,
                line: 0,
                inlined: false,
            });
        }
        let index = location.0 as usize;
        if self.symbols.frames.len() <= index {
            self.symbols.frames.resize(index + 1, Vec::new());
        }
        self.symbols.frames[index] = frames;
    }

    fn intern(&mut self, text: String) -> StringId {
        if let Some(id) = self.strings.get(&text) {
            return *id;
        }
        // Locations are numbered in 32 bits, and each has few strings.
        let id = StringId(u32::try_from(self.symbols.strings.len()).unwrap_or(u32::MAX));
        self.symbols.strings.push(text.clone());
        self.strings.insert(text, id);
        id
    }
}

fn blazesym(debug_dirs: &[PathBuf]) -> Blazesym {
    Blazesym::builder()
        .enable_code_info(true)
        .enable_inlined_fns(true)
        // Done here, with a bound.
        .enable_demangling(false)
        .set_debug_dirs(Some(debug_dirs))
        .build()
}

/// The folder in which a module's neighbours are looked for; empty for a module in another root,
/// where a name leads elsewhere.
fn folder(module: &Module) -> PathBuf {
    match Path::new(&module.path).parent() {
        Some(folder) if module.root.is_empty() => {
            folder.canonicalize().unwrap_or_else(|_| folder.to_owned())
        }
        _ => PathBuf::new(),
    }
}

/// A path that leads to the open file, whatever its name leads to by now.
fn through_descriptor(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// The functions at an address, innermost first. `linked` is the symbol that the linker has for it.
fn frames(answer: &Symbolized<'_>, linked: Option<&Symbolized<'_>>) -> Option<Vec<Found>> {
    let Symbolized::Sym(sym) = answer else {
        return None;
    };
    // DWARF that was cut down to line tables calls every `a::b::new` just `new`.
    let name = match linked {
        Some(Symbolized::Sym(linked)) if is_mangled(&linked.name) && !is_mangled(&sym.name) => {
            &linked.name
        }
        _ => &sym.name,
    };
    if name.is_empty() {
        return None;
    }
    // blazesym's order is outermost first, and only its first function is not inlined.
    let inlined = sym.inlined.iter().rev().take(MAX_INLINED);
    let mut frames: Vec<Found> = inlined
        .map(|inlined| found(&inlined.name, inlined.code_info.as_ref(), true))
        .collect();
    frames.push(found(name, sym.code_info.as_deref(), false));
    Some(frames)
}

fn found(name: &str, code: Option<&CodeInfo<'_>>, inlined: bool) -> Found {
    Found {
        function: demangle(name),
        file: code
            .map(|code| code.to_path().to_string_lossy().into_owned())
            .filter(|file| file.len() <= MAX_NAME),
        line: code.and_then(|code| code.line).unwrap_or(0),
        inlined,
    }
}
