//! Inspects one file: finds the allocators in it, and the locations of their probes.
//!
//! Stage: probes. The file belongs to a traced process and may contain anything, so this runs in a reader. Must not know
//! processes.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;

use object::{Object as _, ObjectSegment as _, ReadRef};

use super::answer::{Answer, Probed, Question};
use super::code::{Code, CodeError, Step, Target};
use super::debug;
use super::markers::linked_allocator;
use super::model::{Hook, OnReturn, ProbedFunction};
use super::recognize::{self, Recognized, Wanted};
use super::symbols::Symbols;
use crate::probes::image;
use crate::probes::placement::{Needs, Placer};
use crate::proc::library_names::{is_allocator, is_c_library};
use crate::reader::{decode, encode};

/// Functions of other files that never return.
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

/// The reader's answer to a question about the first file. The other files are its possible debug files.
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
    let mut symbols = Symbols::read(&image, recognize::is_wanted);
    let named = question.named.as_deref();
    let placer = Placer::new(file, question.kernel);
    let examined = |symbols: &Symbols| examine(&image, &placer, symbols, is_program, question);
    if !recognize::recognize(&symbols, named).is_empty() {
        return examined(&symbols);
    }
    symbols.add_packed(&image, recognize::is_wanted);
    debug::add(&mut symbols, &image, debug);
    let is_found = !recognize::recognize(&symbols, named).is_empty();
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
    let mut found = recognize::recognize(symbols, question.named.as_deref());
    let is_go = is_go(image);
    if found.is_empty() {
        found.extend(recognize::unnamed(symbols, linked_allocator(image)));
    }
    if found.is_empty() && !is_go {
        found.push(recognize::rust(symbols));
    }
    if question.mappings {
        found.extend(recognize::mappings(symbols));
    }
    let mut layout = Layout::new(image, placer, &question.path, is_program, is_go);
    layout.replaces_malloc = !is_program && symbols.exports("malloc") && symbols.exports("free");
    let (functions, returns, mut notes) = layout.lay_out(symbols, &found);
    if is_go {
        let note =
            "Go's own heap is not traced: the stacks of Go's runtime move, and must not be probed";
        if functions.is_empty() {
            return Answer::Unprobed(note.to_owned());
        }
        notes.push(note.to_owned());
    }
    if !functions.is_empty() {
        return Answer::Probed(Probed {
            own_code: layout.own_code(symbols, &functions),
            functions: functions.into_iter().map(Into::into).collect(),
            returns,
            notes,
        });
    }
    if let Some(note) = notes.into_iter().next() {
        return Answer::Unprobed(note);
    }
    if question.named.is_some() {
        return Answer::Unprobed("it has no allocator functions with this prefix".to_owned());
    }
    match linked_allocator(image).filter(|_| is_program) {
        Some(kind) => Answer::Unprobed(format!(
            "{kind} is linked into it, but there are no symbols to find its functions by"
        )),
        None => Answer::Nothing,
    }
}

/// Turns recognized names into functions with probe locations.
struct Layout<'i, 'a, R: ReadRef<'a>> {
    image: &'i object::File<'a, R>,
    placer: &'i Placer<'i>,
    code: Code<'i, 'a, R>,
    /// Whether the file is only an allocator, so that calls from it are the allocator's own.
    is_dedicated: bool,
    /// Whether the file is a library whose `malloc` and `free` the whole process uses, maybe a wrapper around another
    /// allocator's. While such a function runs, calls from the library are the function's own.
    replaces_malloc: bool,
    is_c_library: bool,
    /// Whether Go's tools built the file.
    is_go: bool,
}

/// A function that will be probed.
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
            replaces_malloc: false,
            is_c_library: is_c_library(path),
            is_go,
        }
    }

    /// The probed functions, the offsets of return instructions to probe, and notes on what is not probed.
    fn lay_out(
        &self,
        symbols: &Symbols,
        found: &[Recognized],
    ) -> (Vec<ProbedFunction>, Vec<u64>, Vec<String>) {
        let mut notes = Vec::new();
        let mut functions: BTreeMap<u64, Function> = BTreeMap::new();
        // Allocators whose frees can't be seen: all of their blocks would look like leaks.
        let mut without_frees = HashSet::new();
        for Recognized { kind, wanted } in found {
            for Wanted {
                name,
                hook,
                may_call_others,
            } in wanted
            {
                let Some(symbol) = symbols.get(name) else {
                    continue;
                };
                // Names in C have no dots; every name in Go has one after its package.
                if self.is_go && name.contains('.') {
                    notes.push(format!(
                        "{name} is not probed: it is a Go function, whose stack may move"
                    ));
                    continue;
                }
                if symbol.is_indirect {
                    notes.push(format!(
                        "{name} is not probed: the program selects its code when it starts (IFUNC)"
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
        let returns = self.find_returns(&mut functions, &mut notes);
        (self.locate_probes(functions), returns, notes)
    }

    /// Treats a function that only jumps to another one with the same hook as another name of that one.
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

    /// Finds the return instructions of functions that may throw. Removes functions that only call other
    /// probed functions.
    fn find_returns(
        &self,
        functions: &mut BTreeMap<u64, Function>,
        notes: &mut Vec<String>,
    ) -> Vec<u64> {
        let mut returns_to_probe = HashSet::new();
        let hooks: HashMap<u64, Hook> = functions.iter().map(|(at, it)| (*at, it.hook)).collect();
        let sizes: HashMap<u64, u64> = functions.iter().map(|(at, it)| (*at, it.size)).collect();
        let size_of = |address| sizes.get(&address).copied().filter(|size| *size > 0);
        let never_returns = |target: &Target| matches!(target, Target::Elsewhere(name) if NEVER_RETURN.contains(&name.as_str()));
        let is_hooked = |target: &Target| match target {
            Target::Here(address) => hooks.contains_key(address),
            Target::Elsewhere(name) => recognize::is_hooked_elsewhere(name),
        };
        let mut callers = Vec::new();
        for (address, function) in &*functions {
            // Functions that round their size up must be probed themselves, because the requested size is known only there.
            let rounds = |name: &String| name.ends_with("valloc");
            if function.hook.on_return == OnReturn::Ignored || function.names.iter().any(rounds) {
                continue;
            }
            // Can it return anywhere without having called another probed function?
            let own = self.code.returns(*address, size_of, |target, is_call| {
                let is_other =
                    *target != Target::Here(*address) && (!is_call || function.may_call_others);
                if never_returns(target) || is_other && is_hooked(target) {
                    Step::Stop
                } else {
                    Step::Follow
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
                        Target::Elsewhere(name) => recognize::is_hooked_elsewhere(name),
                    };
                if never_returns(target) || ends_elsewhere {
                    Step::Stop
                } else {
                    Step::Follow
                }
            });
            match returns {
                Ok(returns) => {
                    returns_to_probe.extend(returns);
                    true
                }
                Err(error) => {
                    notes.push(unfollowed(function, &error));
                    false
                }
            }
        });
        let mut offsets: Vec<u64> = returns_to_probe
            .into_iter()
            .filter_map(|address| Some(self.locate(address)?.0))
            .collect();
        offsets.sort_unstable();
        offsets
    }

    fn locate_probes(&self, functions: BTreeMap<u64, Function>) -> Vec<ProbedFunction> {
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
                    Some((start, end)) if !self.is_dedicated && !self.replaces_malloc => {
                        (address.saturating_sub(*start), end.saturating_sub(address))
                    }
                    _ => segment,
                };
                let size = Some(function.size).filter(|size| *size > 0);
                let needs = Needs::of(function.hook.entry);
                let others = offsets.iter().copied();
                let placed = self.placer.place(offset, size, segment.1, others, needs);
                Some(ProbedFunction {
                    offset,
                    size,
                    skipped: self.placer.skipped(offset, segment.1, placed.offset),
                    placed: placed.into(),
                    reach,
                    hook: function.hook,
                    names: function.names,
                    kind: function.kind.to_owned(),
                })
            })
            .collect()
    }

    /// The parts of the file whose mappings of memory are not the program's.
    fn own_code(&self, symbols: &Symbols, functions: &[ProbedFunction]) -> Vec<(u64, u64)> {
        // Stage join recognizes calls from a C library by the name of the file.
        if self.is_dedicated && !self.is_c_library {
            return vec![(0, u64::MAX)];
        }
        let threads = symbols.get(recognize::STARTS_THREADS).and_then(|symbol| {
            let (offset, _) = self.locate(symbol.address)?;
            Some((offset, offset.checked_add(symbol.size)?))
        });
        functions
            .iter()
            .filter(|it| it.hook.on_return != OnReturn::Mapped)
            .filter_map(|it| Some((it.offset, it.offset.checked_add(it.size?)?)))
            .chain(threads)
            .collect()
    }

    /// The offset of an address in the file, and how many bytes of its segment are before and behind it.
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
        "{} is not probed: it may throw, and its return instructions can't be found, because {error}",
        function.names.join("/")
    )
}

/// Whether Go's tools built the file.
fn is_go<'a, R: ReadRef<'a>>(image: &object::File<'a, R>) -> bool {
    image.section_by_name(".note.go.buildid").is_some()
        || image.section_by_name(".go.buildinfo").is_some()
}
