//! One file: which allocators are in it, and where to probe them.
//!
//! Stage: probes. The file is a traced process's and may be anything: this runs in a reader. Knows nothing of processes.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;

use object::{Object as _, ObjectSection as _, ObjectSegment as _, ReadRef};

use super::answer::{Answer, Probed, Question};
use super::code::{Code, CodeError, Go, Target};
use super::debug;
use super::known::{self, Recognised, Wanted};
use super::model::{Hook, OnReturn, Place};
use super::names::{is_allocator, is_c_library};
use super::symbols::Symbols;
use crate::probes::image;
use crate::probes::placement::{Needs, Placer};
use crate::reader::{decode, encode};

/// Most bytes of constants that are searched for what tells an allocator without symbols.
const MAX_CONSTANTS: u64 = 64 << 20;

/// What functions of other files are that never come back.
const NEVER_RETURN: [&str; 8] = [
    "abort",
    "__cxa_throw",
    "__cxa_rethrow",
    "_Unwind_Resume",
    "__stack_chk_fail",
    "__assert_fail",
    "_ZSt17__throw_bad_allocv",
    "_ZSt9terminatev",
];

/// Answers a question about a file; the debug files that were found for it, if any, stand behind it.
pub(crate) fn answer(question: &[u8], files: &[File]) -> Vec<u8> {
    let answered = || {
        let question: Question = decode(question)?;
        let (file, debug) = files.split_first()?;
        Some(inspect(&question, file, debug))
    };
    answered().as_ref().map(encode).unwrap_or_default()
}

fn inspect(question: &Question, file: &File, debug: &[File]) -> Answer {
    let cache = object::ReadCache::new(file);
    let image = match object::File::parse(&cache) {
        Ok(image) if image.architecture() == object::Architecture::X86_64 => image,
        Ok(_) => return Answer::Unprobed("it is not x86-64 code".to_owned()),
        Err(_) => return Answer::Nothing,
    };
    let is_program =
        image::interpreter(&cache).is_some() || image.kind() == object::ObjectKind::Executable;
    let mut symbols = Symbols::read(&image, known::is_wanted);
    let named = question.named.as_deref();
    let placer = Placer::new(file, question.kernel);
    let examined = |symbols: &Symbols| examine(&image, &placer, symbols, is_program, question);
    if !known::recognise(&symbols, named).is_empty() {
        return examined(&symbols);
    }
    symbols.add_packed(&image, known::is_wanted);
    debug::add(&mut symbols, &image, debug);
    let is_found = !known::recognise(&symbols, named).is_empty();
    match debug::wanted(&image) {
        Some(wanted) if debug.is_empty() && !is_found => Answer::Stripped {
            wanted,
            otherwise: Box::new(examined(&symbols)),
        },
        _ => examined(&symbols),
    }
}

fn examine<'a, R: ReadRef<'a>>(
    image: &object::File<'a, R>,
    placer: &Placer<'_>,
    symbols: &Symbols,
    is_program: bool,
    question: &Question,
) -> Answer {
    let mut found = known::recognise(symbols, question.named.as_deref());
    let is_go = is_go(image);
    if found.is_empty() {
        found.extend(known::unnamed(symbols, telltale(image)));
    }
    if found.is_empty() && !is_go {
        found.push(known::rust(symbols));
    }
    if question.mappings {
        found.extend(known::mappings(symbols));
    }
    let layout = Layout::new(image, placer, &question.path, is_program, is_go);
    let (places, rets, mut notes) = layout.place(symbols, &found);
    if is_go {
        let note = "Go's own heap is not traced: its runtime's stacks move, and must not be probed";
        if places.is_empty() {
            return Answer::Unprobed(note.to_owned());
        }
        notes.push(note.to_owned());
    }
    if !places.is_empty() {
        return Answer::Probed(Probed {
            own_code: layout.own_code(symbols, &places),
            places: places.into_iter().map(Into::into).collect(),
            rets,
            notes,
        });
    }
    if let Some(note) = notes.into_iter().next() {
        return Answer::Unprobed(note);
    }
    if question.named.is_some() {
        return Answer::Unprobed("it has no allocator functions of that name".to_owned());
    }
    match telltale(image).filter(|_| is_program) {
        Some(kind) => Answer::Unprobed(format!(
            "{kind} is linked into it, but there are no symbols to find its functions by"
        )),
        None => Answer::Nothing,
    }
}

/// DutyCycle names into places.
struct Layout<'i, 'a, R: ReadRef<'a>> {
    image: &'i object::File<'a, R>,
    placer: &'i Placer<'i>,
    code: Code<'i, 'a, R>,
    /// Whether the file is an allocator and nothing else, so that calls from it are its own.
    is_dedicated: bool,
    is_c_library: bool,
    /// Whether Go's tools made it.
    is_go: bool,
}

/// A function that is to be hooked.
struct Function {
    hook: Hook,
    names: Vec<String>,
    kind: &'static str,
    size: u64,
    may_call_others: bool,
}

impl<'i, 'a, R: ReadRef<'a>> Layout<'i, 'a, R> {
    fn new(
        image: &'i object::File<'a, R>,
        placer: &'i Placer<'i>,
        path: &str,
        is_program: bool,
        is_go: bool,
    ) -> Self {
        Self {
            image,
            placer,
            code: Code::new(image),
            is_dedicated: !is_program && is_allocator(path),
            is_c_library: is_c_library(path),
            is_go,
        }
    }

    fn place(
        &self,
        symbols: &Symbols,
        found: &[Recognised],
    ) -> (Vec<Place>, Vec<u64>, Vec<String>) {
        let mut notes = Vec::new();
        let mut functions: BTreeMap<u64, Function> = BTreeMap::new();
        // Allocators whose frees can't be seen: all that they allocate would look like a leak.
        let mut without_frees = HashSet::new();
        for Recognised { kind, wanted } in found {
            for Wanted {
                name,
                hook,
                may_call_others,
            } in wanted
            {
                let Some(symbol) = symbols.get(name) else {
                    continue;
                };
                // C has no dots in its names; in Go, every name has one behind its package.
                if self.is_go && name.contains('.') {
                    notes.push(format!(
                        "{name} is a function of Go's, whose stack may move, and not probed"
                    ));
                    continue;
                }
                if symbol.is_indirect {
                    notes.push(format!(
                        "{name} is chosen when the program starts (IFUNC), and not probed"
                    ));
                    if hook.on_return == OnReturn::Ignored {
                        without_frees.insert(*kind);
                    }
                    continue;
                }
                let function = functions.entry(symbol.address).or_insert(Function {
                    hook: *hook,
                    names: Vec::new(),
                    kind,
                    size: symbol.size,
                    may_call_others: *may_call_others,
                });
                if !function.names.contains(name) {
                    function.names.push(name.clone());
                }
            }
        }
        functions.retain(|_, function| !without_frees.contains(function.kind));
        self.merge_aliases(&mut functions);
        let rets = self.find_returns(&mut functions, &mut notes);
        (self.places(functions), rets, notes)
    }

    /// A function that only jumps to another one of the same kind is another name for it.
    fn merge_aliases(&self, functions: &mut BTreeMap<u64, Function>) {
        let addresses: Vec<u64> = functions.keys().copied().collect();
        for address in addresses {
            let Some(Target::Here(target)) = self.code.only_jumps_to(address) else {
                continue;
            };
            let Some(entry) = functions.get(&address).map(|it| it.hook.entry) else {
                continue;
            };
            let is_alias = target != address
                && functions
                    .get(&target)
                    .is_some_and(|it| it.hook.entry == entry);
            if is_alias
                && let Some(alias) = functions.remove(&address)
                && let Some(function) = functions.get_mut(&target)
            {
                function.names.extend(alias.names);
            }
        }
    }

    /// Finds the return instructions of functions that may throw, and leaves out functions that only
    /// call others which are probed.
    fn find_returns(
        &self,
        functions: &mut BTreeMap<u64, Function>,
        notes: &mut Vec<String>,
    ) -> Vec<u64> {
        let mut rets = HashSet::new();
        let hooks: HashMap<u64, Hook> = functions.iter().map(|(at, it)| (*at, it.hook)).collect();
        let sizes: HashMap<u64, u64> = functions.iter().map(|(at, it)| (*at, it.size)).collect();
        let size_of = |address| sizes.get(&address).copied().filter(|size| *size > 0);
        let never_returns = |target: &Target| matches!(target, Target::Elsewhere(name) if NEVER_RETURN.contains(&name.as_str()));
        let is_hooked = |target: &Target| match target {
            Target::Here(address) => hooks.contains_key(address),
            Target::Elsewhere(name) => known::is_hooked_elsewhere(name),
        };
        let mut callers = Vec::new();
        for (address, function) in &*functions {
            // What rounds its size up has to tell what it was asked for.
            let rounds = |name: &String| name.ends_with("valloc");
            if function.hook.on_return == OnReturn::Ignored || function.names.iter().any(rounds) {
                continue;
            }
            // Does it come back anywhere without having handed over to another one?
            let own = self.code.returns(*address, size_of, |target, is_call| {
                let is_other =
                    *target != Target::Here(*address) && (!is_call || function.may_call_others);
                if never_returns(target) || is_other && is_hooked(target) {
                    Go::Stop
                } else {
                    Go::On
                }
            });
            if own.is_ok_and(|returns| returns.is_empty()) {
                callers.push(*address);
            }
        }
        for caller in callers {
            functions.remove(&caller);
        }
        functions.retain(|address, function| {
            if function.hook.on_return != OnReturn::Instructions {
                return true;
            }
            let returns = self.code.returns(*address, size_of, |target, is_call| {
                let ends_elsewhere = !is_call
                    && match target {
                        Target::Here(at) => hooks
                            .get(at)
                            .is_some_and(|hook| hook.on_return != OnReturn::Instructions),
                        Target::Elsewhere(name) => known::is_hooked_elsewhere(name),
                    };
                if never_returns(target) || ends_elsewhere {
                    Go::Stop
                } else {
                    Go::On
                }
            });
            match returns {
                Ok(returns) => {
                    rets.extend(returns);
                    true
                }
                Err(error) => {
                    notes.push(unfollowed(function, &error));
                    false
                }
            }
        });
        let mut rets: Vec<u64> = rets
            .into_iter()
            .filter_map(|address| Some(self.locate(address)?.0))
            .collect();
        rets.sort_unstable();
        rets
    }

    fn places(&self, functions: BTreeMap<u64, Function>) -> Vec<Place> {
        let mut spans: HashMap<&'static str, (u64, u64)> = HashMap::new();
        for (address, function) in &functions {
            let end = address.saturating_add(function.size);
            let span = spans.entry(function.kind).or_insert((*address, end));
            *span = (span.0.min(*address), span.1.max(end));
        }
        let offsets: Vec<u64> = functions
            .keys()
            .filter_map(|address| Some(self.locate(*address)?.0))
            .collect();
        functions
            .into_iter()
            .filter_map(|(address, function)| {
                let (offset, segment) = self.locate(address)?;
                let reach = match spans.get(function.kind) {
                    Some((start, end)) if !self.is_dedicated => {
                        (address.saturating_sub(*start), end.saturating_sub(address))
                    }
                    _ => segment,
                };
                let size = Some(function.size).filter(|size| *size > 0);
                let needs = Needs::of(function.hook.entry);
                let others = offsets.iter().copied();
                let placed = self.placer.place(offset, size, segment.1, others, needs);
                Some(Place {
                    offset,
                    size,
                    placed: placed.into(),
                    reach,
                    hook: function.hook,
                    names: function.names,
                    kind: function.kind.to_owned(),
                })
            })
            .collect()
    }

    /// Where the code is that maps memory and is not the program's.
    fn own_code(&self, symbols: &Symbols, places: &[Place]) -> Vec<(u64, u64)> {
        // A C library is known as such by whoever sees it call.
        if self.is_dedicated && !self.is_c_library {
            return vec![(0, u64::MAX)];
        }
        let threads = symbols.get(known::STARTS_THREADS).and_then(|symbol| {
            let (offset, _) = self.locate(symbol.address)?;
            Some((offset, offset.checked_add(symbol.size)?))
        });
        places
            .iter()
            .filter(|place| place.hook.on_return != OnReturn::Mapped)
            .filter_map(|place| Some((place.offset, place.offset.checked_add(place.size?)?)))
            .chain(threads)
            .collect()
    }

    /// Offset in the file of an address, and how far its segment reaches before and behind it.
    fn locate(&self, address: u64) -> Option<(u64, (u64, u64))> {
        self.image.segments().find_map(|segment| {
            let within = address.checked_sub(segment.address())?;
            let (start, size) = segment.file_range();
            let behind = size.checked_sub(within)?;
            (behind > 0).then_some((start.checked_add(within)?, (within, behind)))
        })
    }
}

fn unfollowed(function: &Function, error: &CodeError) -> String {
    format!(
        "{} is not probed: it may throw, and where it returns can't be told, because {error}",
        function.names.join("/")
    )
}

/// Whether Go's tools made it.
fn is_go<'a, R: ReadRef<'a>>(image: &object::File<'a, R>) -> bool {
    image.section_by_name(".note.go.buildid").is_some()
        || image.section_by_name(".go.buildinfo").is_some()
}

/// The allocator that a program has in it, by words that it would say.
fn telltale<'a, R: ReadRef<'a>>(image: &object::File<'a, R>) -> Option<&'static str> {
    const WORDS: [(&str, &[u8]); 4] = [
        ("jemalloc", b"<jemalloc>"),
        ("mimalloc", b"mimalloc: "),
        ("tcmalloc", b"tcmalloc: large alloc"),
        ("glibc", b"malloc(): corrupted top size"),
    ];
    let section = image.section_by_name(".rodata")?;
    if section.size() > MAX_CONSTANTS {
        return None;
    }
    let data = section.data().ok()?;
    let has = |word: &[u8]| data.windows(word.len()).any(|at| at == word);
    WORDS
        .into_iter()
        .find_map(|(kind, word)| has(word).then_some(kind))
}
