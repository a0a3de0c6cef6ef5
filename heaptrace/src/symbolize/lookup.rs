//! Looks up names in files that it was handed.
//!
//! Stage: symbolize. Runs in a reader. blazesym does the work; this file decides by which file it looks, keeps its memory
//! bounded, and turns its answers into plain frames.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Symbolized, Symbolizer as Blazesym};

use super::answer::{Facts, FactsQuestion, Found, Names, NamesQuestion};
use super::demangle::{MAX_NAME, demangle, is_mangled};
use super::elf::{ElfFacts, file_crc};
use super::quiet::contained;
use crate::open::descriptor;
use crate::reader::{decode, encode, offer};

/// Bytes of ELF files that are kept mapped and indexed between questions.
const MAX_CACHED: u64 = 2 << 30;

/// Most files that are kept.
const MAX_HELD: usize = 128;

/// Most functions that are believed to be inlined at one address.
pub(super) const MAX_INLINED: usize = 256;

/// Most bytes of names in an answer; addresses beyond get none.
const MAX_ANSWER: usize = 32 << 20;

/// A file with this content.
type Content = (u64, u64, u64, i64, i64);

/// A file that is kept.
struct Held {
    file: File,
    facts: Option<ElfFacts>,
}

/// Answers questions about names, and keeps what it has read for the next.
pub(crate) struct Lookup {
    blazesym: Blazesym,
    held: HashMap<Content, Held>,
}

impl Default for Lookup {
    fn default() -> Self {
        Self {
            blazesym: blazesym(),
            held: HashMap::new(),
        }
    }
}

/// One way to look up addresses of a module; the next one is for what this one didn't find.
struct Attempt {
    path: PathBuf,
    dwarf: bool,
    /// Whether addresses are asked for: a debug file lacks what the module's offsets count.
    is_linked: bool,
}

impl Lookup {
    /// What an ELF file says of itself.
    pub(crate) fn answer_facts(&mut self, question: &[u8], files: Vec<File>) -> Vec<u8> {
        encode(&self.facts(question, files))
    }

    fn facts(&mut self, question: &[u8], files: Vec<File>) -> Option<Facts> {
        let question: FactsQuestion = decode(question)?;
        let content = self.hold(files.into_iter().next()?)?;
        let held = self.held.get(&content)?;
        let facts = held.facts.as_ref()?;
        let is_wanted = question.of.is_some_and(|of| match of.crc {
            Some(crc) if of.build_id.is_empty() => {
                file_crc(&held.file).is_ok_and(|found| found == crc)
            }
            _ => !of.build_id.is_empty() && of.build_id == facts.build_id,
        });
        Some(Facts {
            build_id: facts.build_id.clone(),
            is_whole: facts.has_dwarf && !facts.names_files,
            names_files: facts.names_files,
            debug_link: facts.debug_link.clone().map(|link| (link.name, link.crc)),
            alt_link: facts.alt_link.clone(),
            is_wanted,
        })
    }

    /// The names of addresses.
    pub(crate) fn answer_names(&mut self, question: &[u8], files: Vec<File>) -> Vec<u8> {
        encode(&self.names(question, files).unwrap_or_default())
    }

    fn names(&mut self, question: &[u8], files: Vec<File>) -> Option<Names> {
        let question: NamesQuestion = decode(question)?;
        self.make_room(&files);
        let held: Vec<Content> = files
            .into_iter()
            .filter_map(|file| self.hold(file))
            .collect();
        let path = |index: usize| {
            let held = self.held.get(held.get(index)?)?;
            Some(descriptor(held.file.as_fd()))
        };
        let facts = self.held.get(held.first()?)?.facts.clone()?;
        let attempts = attempts(&question, &facts, path(0)?, path(1));
        self.offer(&question, &held);
        let mut names = vec![Vec::new(); question.offsets.len()];
        let mut bytes = 0;
        for attempt in attempts {
            let pending: Vec<usize> = (0..names.len())
                .filter(|index| names.get(*index).is_some_and(Vec::is_empty))
                .collect();
            let addresses: Vec<u64> = pending
                .iter()
                .filter_map(|index| question.offsets.get(*index))
                .map(|offset| match attempt.is_linked {
                    // No function is at the last address there is.
                    true => facts.address(*offset).unwrap_or(u64::MAX),
                    false => *offset,
                })
                .collect();
            let Some(found) = self.look_up(&attempt, &addresses) else {
                continue;
            };
            for (index, found) in pending.into_iter().zip(found) {
                let length: usize = found.iter().map(length).sum();
                bytes += length;
                if let Some(place) = names.get_mut(index)
                    && bytes <= MAX_ANSWER
                {
                    *place = found;
                }
            }
        }
        Some(names)
    }

    /// Keeps a file, by what it is; the one that is kept already counts.
    fn hold(&mut self, file: File) -> Option<Content> {
        let meta = file.metadata().ok()?;
        let content = (
            meta.dev(),
            meta.ino(),
            meta.len(),
            meta.ctime(),
            meta.ctime_nsec(),
        );
        self.held.entry(content).or_insert_with(|| Held {
            facts: ElfFacts::read(&file),
            file,
        });
        Some(content)
    }

    /// Drops what is kept where more would be too much.
    fn make_room(&mut self, more: &[File]) {
        let more = more
            .iter()
            .map(|file| file.metadata().map_or(0, |meta| meta.len()));
        let kept = self.held.keys().map(|content| content.2);
        if self.held.len() >= MAX_HELD || kept.chain(more).sum::<u64>() > MAX_CACHED {
            self.forget();
            self.held.clear();
        }
    }

    fn forget(&mut self) {
        self.blazesym = blazesym();
    }

    /// Lets the debug file, and what it shares, be found by their paths.
    fn offer(&self, question: &NamesQuestion, held: &[Content]) {
        let paths = [question.debug.as_deref(), question.shared.as_deref()];
        let files = held.get(1..).unwrap_or_default().iter();
        let offered: Vec<_> = paths
            .into_iter()
            .zip(files)
            .filter_map(|(path, content)| {
                let path = path.filter(|path| !path.is_empty())?;
                Some((Path::new(path), self.held.get(content)?.file.as_fd()))
            })
            .collect();
        offer(&offered);
    }

    /// Asks blazesym; `None` if it can't read the file.
    fn look_up(&mut self, attempt: &Attempt, addresses: &[u64]) -> Option<Names> {
        let input = match attempt.is_linked {
            true => Input::VirtOffset(addresses),
            false => Input::FileOffset(addresses),
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
                    .map(|(found, linked)| frames_at(found, linked))
                    .collect(),
            )
        });
        if answer.is_none() {
            // It panicked, and may have left its caches half made.
            self.forget();
        }
        answer.flatten()
    }
}

/// The ways to look up addresses of a file, best first.
///
/// blazesym would follow whatever a file names; so what it names was looked for by the tracer, and only a file that names
/// nothing is read with its DWARF.
fn attempts(
    question: &NamesQuestion,
    facts: &ElfFacts,
    own: PathBuf,
    debug: Option<PathBuf>,
) -> Vec<Attempt> {
    let mut attempts = Vec::new();
    if facts.has_dwarf && !facts.names_files {
        attempts.push(Attempt {
            path: own.clone(),
            dwarf: true,
            is_linked: false,
        });
    } else if let (Some(path), Some(debug)) = (&question.debug, debug) {
        attempts.push(Attempt {
            // By its name if it may name others.
            path: if path.is_empty() {
                debug
            } else {
                PathBuf::from(path)
            },
            dwarf: true,
            is_linked: true,
        });
    }
    attempts.push(Attempt {
        path: own,
        dwarf: false,
        is_linked: false,
    });
    attempts
}

fn blazesym() -> Blazesym {
    Blazesym::builder()
        .enable_code_info(true)
        .enable_inlined_fns(true)
        // Done here, with a bound.
        .enable_demangling(false)
        // Looked for by the tracer.
        .set_debug_dirs(Some([] as [&Path; 0]))
        .build()
}

/// The functions at an address, innermost first. `linked` is the symbol that the linker has for it.
fn frames_at(answer: &Symbolized<'_>, linked: Option<&Symbolized<'_>>) -> Vec<Found> {
    let Symbolized::Sym(sym) = answer else {
        return Vec::new();
    };
    // DWARF that was cut down to line tables calls every `a::b::new` just `new`.
    let name = match linked {
        Some(Symbolized::Sym(linked)) if is_mangled(&linked.name) && !is_mangled(&sym.name) => {
            &linked.name
        }
        _ => &sym.name,
    };
    if name.is_empty() {
        return Vec::new();
    }
    // blazesym's order is outermost first, and only its first function is not inlined.
    let inlined = sym.inlined.iter().rev().take(MAX_INLINED);
    let mut frames: Vec<Found> = inlined
        .map(|inlined| found(&inlined.name, inlined.code_info.as_ref(), true))
        .collect();
    frames.push(found(name, sym.code_info.as_deref(), false));
    frames
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

/// Bytes that a function takes in an answer, about.
fn length(found: &Found) -> usize {
    found.function.len() + found.file.as_ref().map_or(0, String::len) + 16
}
