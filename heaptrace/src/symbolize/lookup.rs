//! Looks up names in the files of a question.
//!
//! Stage: symbolize. Runs in a reader. blazesym finds the names. This file selects the file that blazesym reads, limits its
//! memory, and converts its results to plain frames.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Symbolized, Symbolizer as Blazesym};

use super::demangle::{MAX_NAME, demangle, is_mangled};
use super::elf::{ElfFacts, file_crc};
use super::packed::PackedSymbols;
use super::panics::catch_panic;
use super::protocol::{
    Facts, FactsQuestion, FoundFrame, MAX_INLINED, Names, NamesQuestion, UnitsAnswer, UnitsQuestion,
};
use super::split::{Passed, Programs};
use crate::open::descriptor;
use crate::reader::{decode, encode, offer};

/// Most bytes of ELF files that stay mapped and indexed between questions.
const MAX_CACHED_BYTES: u64 = 2 << 30;

/// Most files that are cached.
const MAX_CACHED_FILES: usize = 128;

/// Most bytes of names in an answer. Addresses beyond the limit get no names.
const MAX_ANSWER: usize = 32 << 20;

/// Identifies a file and its content: device, inode, length, and time of the last change.
type ContentKey = (u64, u64, u64, i64, i64);

struct CachedFile {
    file: File,
    facts: Option<ElfFacts>,
}

/// Answers questions about names, and caches the files that it has read.
pub(crate) struct Lookup {
    blazesym: Blazesym,
    programs: Programs,
    packed: HashMap<ContentKey, PackedSymbols>,
    cache: HashMap<ContentKey, CachedFile>,
}

impl Default for Lookup {
    fn default() -> Self {
        Self {
            blazesym: blazesym(),
            programs: Programs::default(),
            packed: HashMap::new(),
            cache: HashMap::new(),
        }
    }
}

/// One way to look up addresses of a module. Addresses that it does not find are left to the next attempt.
struct Attempt {
    path: PathBuf,
    from: Information,
    /// Whether to look up link-time addresses instead of file offsets. A debug file does not have the module's content, so
    /// the module's offsets mean nothing in it.
    is_by_address: bool,
}

/// What an attempt reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Information {
    /// Debug information in several files: those of units, or a supplementary file.
    Parts,
    /// Debug information in this file.
    Dwarf,
    /// Tables of symbols.
    Symbols,
    /// A compressed table of symbols, and the others. blazesym reads none of them if one is compressed.
    Packed,
}

impl Lookup {
    /// Answers with the facts of an ELF file.
    pub(crate) fn answer_facts(&mut self, question: &[u8], files: Vec<File>) -> Vec<u8> {
        encode(&self.facts(question, files))
    }

    fn facts(&mut self, question: &[u8], files: Vec<File>) -> Option<Facts> {
        let question: FactsQuestion = decode(question)?;
        let key = self.add_to_cache(files.into_iter().next()?)?;
        let cached = self.cache.get(&key)?;
        let facts = cached.facts.as_ref()?;
        let is_wanted = question.of.is_some_and(|of| match of.crc {
            Some(crc) if of.build_id.is_empty() => {
                file_crc(&cached.file).is_ok_and(|found| found == crc)
            }
            _ => !of.build_id.is_empty() && of.build_id == facts.build_id,
        });
        Some(Facts {
            build_id: facts.build_id.clone(),
            is_self_contained: facts.is_self_contained(),
            names_files: facts.names_files,
            debug_link: facts.debug_link.clone().map(|link| (link.name, link.crc)),
            alt_link: facts.alt_link.clone(),
            is_wanted,
            may_have_parts: facts.may_have_parts(),
        })
    }

    /// Takes the units that come with a question, and answers which others are needed. `None` if the program's debug information is in one
    /// file.
    pub(crate) fn answer_units(&mut self, question: &[u8], files: Vec<File>) -> Vec<u8> {
        encode(&self.units(question, files))
    }

    fn units(&mut self, question: &[u8], files: Vec<File>) -> Option<UnitsAnswer> {
        let question: UnitsQuestion = decode(question)?;
        let mut files = files.into_iter();
        let own: Vec<File> = files
            .by_ref()
            .take(1 + usize::from(question.has_debug))
            .collect();
        self.make_room(&own);
        let keys: Vec<ContentKey> = own
            .into_iter()
            .filter_map(|file| self.add_to_cache(file))
            .collect();
        let facts = self.cache.get(keys.first()?)?.facts.clone()?;
        let addresses: Vec<u64> = question
            .offsets
            .iter()
            .map(|offset| match question.are_addresses {
                true => *offset,
                false => facts.address(*offset).unwrap_or(u64::MAX),
            })
            .collect();
        let cached = self.cache.get(keys.last()?)?;
        if !cached.facts.as_ref()?.may_have_parts() {
            return None;
        }
        self.programs.with(&cached.file, None, |program| {
            for (number, file) in files.enumerate() {
                match number < question.packages {
                    true => program.add_package(&file),
                    false => program.add_units(&file),
                }
            }
            program.wanted(&addresses)
        })
    }

    /// The parts of a file's debug information that were passed to this reader.
    pub(crate) fn passed(&mut self, file: &File) -> Passed {
        if !ElfFacts::read(file).is_some_and(|it| it.may_have_parts()) {
            return Passed::default();
        }
        let passed = self.programs.with(file, None, |program| program.passed());
        passed.unwrap_or_default()
    }

    /// Answers with the names of addresses.
    pub(crate) fn answer_names(&mut self, question: &[u8], files: Vec<File>) -> Vec<u8> {
        encode(&self.names(question, files).unwrap_or_default())
    }

    fn names(&mut self, question: &[u8], files: Vec<File>) -> Option<Names> {
        let question: NamesQuestion = decode(question)?;
        self.make_room(&files);
        let keys: Vec<ContentKey> = files
            .into_iter()
            .filter_map(|file| self.add_to_cache(file))
            .collect();
        let path = |index: usize| {
            let cached = self.cache.get(keys.get(index)?)?;
            Some(descriptor(cached.file.as_fd()))
        };
        let facts = self.cache.get(keys.first()?)?.facts.clone()?;
        let attempts = attempts(&question, &facts, path(0)?, path(1));
        // The file with the debug information.
        let debug = match facts.is_self_contained() {
            true => keys.first(),
            false => keys.get(1),
        };
        let shared = question.shared.as_ref().and_then(|_| keys.get(2));
        self.offer(&question, &keys);
        let mut names = vec![Vec::new(); question.offsets.len()];
        let mut bytes = 0;
        for attempt in attempts {
            let pending: Vec<usize> = (0..names.len())
                .filter(|index| names.get(*index).is_some_and(Vec::is_empty))
                .collect();
            let addresses: Vec<u64> = pending
                .iter()
                .filter_map(|index| question.offsets.get(*index))
                .map(
                    |offset| match attempt.is_by_address && !question.are_addresses {
                        // No function is at the highest address.
                        true => facts.address(*offset).unwrap_or(u64::MAX),
                        false => *offset,
                    },
                )
                .collect();
            let found = match (attempt.from, debug) {
                (Information::Parts, Some(debug)) => {
                    self.in_parts(&attempt, debug, shared, &addresses)
                }
                (Information::Packed, _) => self.packed(*keys.first()?, &addresses),
                _ => self.look_up(&attempt, &addresses),
            };
            let Some(found) = found else {
                continue;
            };
            for (index, found) in pending.into_iter().zip(found) {
                let length: usize = found.iter().map(length).sum();
                bytes += length;
                if let Some(names) = names.get_mut(index)
                    && bytes <= MAX_ANSWER
                {
                    *names = found;
                }
            }
        }
        Some(names)
    }

    /// Adds a file to the cache, unless the cache has it already.
    fn add_to_cache(&mut self, file: File) -> Option<ContentKey> {
        let key = content_key(&file)?;
        self.cache.entry(key).or_insert_with(|| CachedFile {
            facts: ElfFacts::read(&file),
            file,
        });
        Some(key)
    }

    /// Empties the cache if these files would exceed its limits.
    fn make_room(&mut self, more: &[File]) {
        let new = more.iter().filter_map(content_key);
        let new: Vec<u64> = new
            .filter(|key| !self.cache.contains_key(key))
            .map(|(_, _, length, ..)| length)
            .collect();
        let cached = self.cache.keys().map(|(_, _, length, ..)| *length);
        if new.is_empty() {
            return;
        }
        if self.cache.len() >= MAX_CACHED_FILES || cached.chain(new).sum::<u64>() > MAX_CACHED_BYTES
        {
            self.reset_blazesym();
            self.programs = Programs::default();
            self.packed.clear();
            self.cache.clear();
        }
    }

    fn reset_blazesym(&mut self) {
        self.blazesym = blazesym();
    }

    /// Offers the debug file and the supplementary file under their paths, so that blazesym can open them.
    fn offer(&self, question: &NamesQuestion, keys: &[ContentKey]) {
        let paths = [question.debug.as_deref(), question.shared.as_deref()];
        let files = keys.get(1..).unwrap_or_default().iter();
        let offered: Vec<_> = paths
            .into_iter()
            .zip(files)
            .filter_map(|(path, key)| {
                let path = path.filter(|path| !path.is_empty())?;
                Some((Path::new(path), self.cache.get(key)?.file.as_fd()))
            })
            .collect();
        offer(&offered);
    }

    /// Looks up addresses in debug information that is in several files; `None` if the program's is in one.
    fn in_parts(
        &mut self,
        attempt: &Attempt,
        debug: &ContentKey,
        shared: Option<&ContentKey>,
        addresses: &[u64],
    ) -> Option<Names> {
        let Self {
            blazesym,
            programs,
            cache,
            ..
        } = self;
        let debug = cache.get(debug)?;
        let shared = shared.and_then(|key| Some(&cache.get(key)?.file));
        if shared.is_none() && !debug.facts.as_ref()?.may_have_parts() {
            return None;
        }
        programs.with(&debug.file, shared, |program| {
            let linked = symbols(blazesym, attempt, addresses, false).unwrap_or_default();
            let linked = linked.iter().map(|found| match found {
                Symbolized::Sym(found) => Some(&*found.name),
                Symbolized::Unknown(_) => None,
            });
            let linked = linked.chain(std::iter::repeat(None));
            let addresses = addresses.iter().zip(linked);
            addresses
                .map(|(address, linked)| program.frames(*address, linked))
                .collect()
        })
    }

    /// Looks up addresses in the compressed table of symbols.
    fn packed(&mut self, key: ContentKey, addresses: &[u64]) -> Option<Names> {
        let file = &self.cache.get(&key)?.file;
        let symbols = self.packed.entry(key).or_insert_with(|| {
            catch_panic(|| PackedSymbols::of(file))
                .flatten()
                .unwrap_or_default()
        });
        let names = addresses.iter().map(|address| symbols.frames(*address));
        Some(names.collect())
    }

    /// Looks up addresses by blazesym; `None` if it can't read the file.
    fn look_up(&mut self, attempt: &Attempt, addresses: &[u64]) -> Option<Names> {
        let has_dwarf = attempt.from == Information::Dwarf;
        let answer = catch_panic(|| {
            let answer = symbols(&self.blazesym, attempt, addresses, has_dwarf)?;
            let linked = has_dwarf
                .then(|| symbols(&self.blazesym, attempt, addresses, false))
                .flatten()
                .unwrap_or_default();
            let linked = linked.iter().map(Some).chain(std::iter::repeat(None));
            let frames = answer.iter().zip(linked);
            Some(
                frames
                    .map(|(found, linked)| frames_at(found, linked))
                    .collect(),
            )
        });
        if answer.is_none() {
            // After a panic, its caches may be inconsistent.
            self.reset_blazesym();
        }
        answer.flatten()
    }
}

fn content_key(file: &File) -> Option<ContentKey> {
    let meta = file.metadata().ok()?;
    Some((
        meta.dev(),
        meta.ino(),
        meta.len(),
        meta.ctime(),
        meta.ctime_nsec(),
    ))
}

/// The ways to look up addresses of a file, best first.
///
/// blazesym would open every file that a file refers to. So the tracer searches for these files, and blazesym reads DWARF
/// only from a file that refers to no other file, or from a debug file that the tracer found.
fn attempts(
    question: &NamesQuestion,
    facts: &ElfFacts,
    own: PathBuf,
    debug: Option<PathBuf>,
) -> Vec<Attempt> {
    let mut attempts = Vec::new();
    let mut read_dwarf = |path: PathBuf, is_by_address| {
        attempts.push(Attempt {
            path: path.clone(),
            from: Information::Parts,
            is_by_address: true,
        });
        attempts.push(Attempt {
            path,
            from: Information::Dwarf,
            is_by_address,
        });
    };
    if facts.is_self_contained() {
        read_dwarf(own.clone(), question.are_addresses);
    } else if let (Some(path), Some(debug)) = (&question.debug, debug) {
        // By its own path if it refers to other files: blazesym searches for these relative to that path.
        let path = Some(PathBuf::from(path)).filter(|path| !path.as_os_str().is_empty());
        read_dwarf(path.unwrap_or(debug.clone()), true);
        // Its symbols are of use also if its debug information is not.
        attempts.push(Attempt {
            path: debug,
            from: Information::Symbols,
            is_by_address: true,
        });
    }
    attempts.push(Attempt {
        path: own.clone(),
        from: Information::Symbols,
        is_by_address: question.are_addresses,
    });
    if facts.has_packed_symbols {
        attempts.push(Attempt {
            path: own,
            from: Information::Packed,
            is_by_address: true,
        });
    }
    if question.symbols_only {
        attempts.retain(|attempt| attempt.from != Information::Parts);
        for attempt in &mut attempts {
            if attempt.from == Information::Dwarf {
                attempt.from = Information::Symbols;
            }
        }
    }
    attempts
}

/// What blazesym finds at addresses, with or without debug information; `None` if it can't read the file.
fn symbols<'b>(
    blazesym: &'b Blazesym,
    attempt: &Attempt,
    addresses: &[u64],
    has_dwarf: bool,
) -> Option<Vec<Symbolized<'b>>> {
    let input = match attempt.is_by_address {
        true => Input::VirtOffset(addresses),
        false => Input::FileOffset(addresses),
    };
    let source = Source::Elf(Elf {
        debug_syms: has_dwarf,
        ..Elf::new(&attempt.path)
    });
    blazesym.symbolize(&source, input).ok()
}

fn blazesym() -> Blazesym {
    Blazesym::builder()
        .enable_code_info(true)
        .enable_inlined_fns(true)
        // `demangle` does this with a length limit.
        .enable_demangling(false)
        // The tracer searches for debug files.
        .set_debug_dirs(Some([] as [&Path; 0]))
        .build()
}

/// The functions at an address, innermost first. `linked` is the symbol of the symbol table at this address.
fn frames_at(answer: &Symbolized<'_>, linked: Option<&Symbolized<'_>>) -> Vec<FoundFrame> {
    let Symbolized::Sym(sym) = answer else {
        return Vec::new();
    };
    // DWARF with line tables only has the name `new` for every function `a::b::new`.
    let name = match linked {
        Some(Symbolized::Sym(linked)) if is_mangled(&linked.name) && !is_mangled(&sym.name) => {
            &linked.name
        }
        _ => &sym.name,
    };
    if name.is_empty() {
        return Vec::new();
    }
    // blazesym lists inlined functions from the outermost to the innermost.
    let inlined = sym.inlined.iter().rev().take(MAX_INLINED);
    let mut frames: Vec<FoundFrame> = inlined
        .map(|inlined| frame(&inlined.name, inlined.code_info.as_ref(), true))
        .collect();
    frames.push(frame(name, sym.code_info.as_deref(), false));
    frames
}

fn frame(name: &str, code: Option<&CodeInfo<'_>>, inlined: bool) -> FoundFrame {
    FoundFrame {
        function: demangle(name),
        file: code
            .map(|code| code.to_path().to_string_lossy().into_owned())
            .filter(|file| file.len() <= MAX_NAME),
        line: code.and_then(|code| code.line).unwrap_or(0),
        inlined,
    }
}

/// The approximate number of bytes of a frame in an answer.
fn length(frame: &FoundFrame) -> usize {
    frame.function.len() + frame.file.as_ref().map_or(0, String::len) + 16
}
