//! Answers a question about call sites.
//!
//! Stage: types. Runs in a reader. Opens the files of the question, and puts together what each part of them tells. Nothing is kept between
//! questions, but for units in other files, which were passed for names. Must not know what the facts mean.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fs::File;

use gimli::{Dwarf, DwarfSections, EndianSlice, LittleEndian};

use super::code::{self, Call, Code};
use super::debug_info::DebugInfo;
use super::flow::Flow;
use super::names::Names;
use super::units::Part;
use super::{constructor, frames, variables};
use crate::reader::{decode, encode};
use crate::symbolize::{ElfFacts, Image, Passed, Section, catch_panic, demangle_bare};
use crate::types::protocol::{Evidence, MAX_NAME, Site, Target, TypesAnswer, TypesQuestion};

/// Most bytes of files that are mapped or decompressed.
const MAX_HELD: u64 = 2 << 30;

/// Most bytes of an answer. Calls beyond that are not described.
const MAX_ANSWER: usize = 24 << 20;

/// The reader's answer. `passed` has the parts of a file's debug information that are in other files.
pub(crate) fn answer(
    question: &[u8],
    files: &[File],
    passed: impl FnOnce(&File) -> Passed,
) -> Vec<u8> {
    let answered = || {
        let question: TypesQuestion = decode(question)?;
        let debug = files.get(usize::from(question.has_debug))?;
        let passed = passed(debug);
        catch_panic(|| sites(&question, files, &passed)).flatten()
    };
    encode(&answered().unwrap_or_default())
}

fn sites(question: &TypesQuestion, files: &[File], passed: &Passed) -> Option<TypesAnswer> {
    let mut files = files.iter();
    let own = files.next()?;
    let facts = ElfFacts::read(own)?;
    let debug = files.next().filter(|_| question.has_debug);
    let shared = files.next().filter(|_| question.has_shared);
    let image = Image::of(own)?;
    let of_debug = debug.and_then(Image::of);
    let shared = shared.and_then(Image::of);
    let held = [Some(&image), of_debug.as_ref(), shared.as_ref()]
        .into_iter()
        .flatten()
        .fold(0_u64, |sum, it| sum.saturating_add(it.most_bytes));
    if held > MAX_HELD {
        return None;
    }
    let code = Code::of(image.bytes(), of_debug.as_ref().map(Image::bytes));
    let addresses: Vec<u64> = question
        .offsets
        .iter()
        // No function is at the highest address.
        .map(|offset| facts.address(*offset).unwrap_or(u64::MAX))
        .collect();
    let sections = sections(of_debug.as_ref().unwrap_or(&image));
    let of_shared = shared.as_ref().map(self::sections);
    let dwarf: Dwarf<_> = sections.borrow_with_sup(of_shared.as_ref(), borrowed);
    let parts: Vec<Part<'_>> = parts(passed);
    let info = DebugInfo::of(&dwarf, &parts);
    let names = Names::of(&info);
    let flow = code
        .as_ref()
        .map(|code| Flow::of(&names, code, image.bytes()));
    let mut known: HashMap<u64, Site> = HashMap::new();
    let mut bytes = 0;
    let answer = addresses.iter().map(|address| {
        if bytes > MAX_ANSWER {
            return Site::default();
        }
        let site = known.entry(*address).or_insert_with(|| {
            // What one place makes fail is left out.
            catch_panic(|| site(&names, code.as_ref().zip(flow.as_ref()), *address))
                .unwrap_or_default()
        });
        bytes += length(site);
        site.clone()
    });
    Some(answer.collect())
}

fn sections(image: &Image) -> DwarfSections<Section> {
    let Ok(sections) = DwarfSections::load(|id| Ok::<_, Infallible>(image.section(id)));
    sections
}

#[expect(
    deprecated,
    reason = "a unit of a package is given out as whole debug information only"
)]
fn parts(passed: &Passed) -> Vec<Part<'_>> {
    let units = passed.units.iter().map(|(id, of)| (Some(*id), of));
    let types = passed.types.iter().map(|of| (None, of));
    let all = units.chain(types);
    all.map(|(id, of)| Part {
        id,
        dwarf: of.borrow(borrowed),
    })
    .collect()
}

fn borrowed(section: &Section) -> EndianSlice<'_, LittleEndian> {
    EndianSlice::new(section.bytes(), LittleEndian)
}

/// What is known of the call whose last byte is at an address.
fn site<'d>(
    names: &Names<'_, '_>,
    code: Option<(&Code<'d>, &Flow<'_, '_, '_, 'd>)>,
    address: u64,
) -> Site {
    let mut site = Site::default();
    let around = frames::around(names.info, address);
    if let Some(around) = &around {
        site.functions = around
            .functions
            .iter()
            .map(|it| (*names.function(*it)).clone())
            .collect();
        site.noted = around.noted.and_then(|it| names.sized(it));
    }
    let Some((code, flow)) = code else {
        return site;
    };
    let symbol = code.symbol(address);
    if let Some((name, ..)) = symbol {
        site.symbol = bare(name);
    }
    let range = match (&around, symbol) {
        (Some(around), _) => Some((around.code.begin, around.code.end)),
        (None, Some((_, begin, size))) => Some((begin, begin.saturating_add(size))),
        (None, None) => None,
    };
    let Some((begin, end)) = range else {
        return site;
    };
    let calls = code.calls(begin, end);
    let of_allocators = calls.iter().filter(|it| is_of_allocator(it)).count();
    site.allocator_calls = u8::try_from(of_allocators).unwrap_or(u8::MAX);
    let call = calls
        .iter()
        .find(|it| Some(it.returns_to) == address.checked_add(1));
    if let Some(callee) = call.and_then(|it| it.callee) {
        let called = around.as_ref().and_then(|it| it.called);
        let is_merged = callee.address.is_some_and(|it| code.is_merged(it));
        let called = called.filter(|_| !is_merged).or_else(|| {
            let address = callee.address.filter(|_| !is_merged)?;
            let (place, _) = names.info.function(address)?;
            Some(place)
        });
        let is_rust = site.functions.first().is_some_and(|it| it.is_rust);
        let result = called.filter(|_| !is_rust).and_then(|it| {
            let (_, result) = variables::signature(names, it);
            names.sized(names.pointed(result?)?)
        });
        site.target = Some(Target {
            name: bare(callee.name),
            result: result.filter(|it| it.bytes > 0),
        });
    }
    // The functions of Rust's library tell more.
    if site.functions.first().is_some_and(|it| it.is_rust) {
        return site;
    }
    let returns_to = address.saturating_add(1);
    let callee = call.and_then(|it| it.callee);
    let is_array = callee.is_some_and(|it| it.name.starts_with("_Zna"));
    let fate = flow.follow(around.as_ref(), returns_to, (begin, end), is_array);
    // The variables of merged functions are those of one of them.
    site.stored = fate.stored.filter(|_| !code.is_merged(begin));
    site.is_returned = fate.is_returned;
    site.constructed = fate.constructed.or_else(|| {
        let found = constructor::inlined(names, around.as_ref()?, returns_to)?;
        Some((found, Evidence::Inlined))
    });
    site
}

fn is_of_allocator(call: &Call<'_>) -> bool {
    call.callee.is_some_and(|it| code::allocates(it.name))
}

/// A symbol's name without its version, for people, without parameters.
fn bare(name: &str) -> String {
    let plain = name.split('@').next().unwrap_or(name);
    let mut shown = demangle_bare(plain);
    shown.truncate(shown.floor_char_boundary(MAX_NAME));
    shown
}

fn length(site: &Site) -> usize {
    let functions: usize = site
        .functions
        .iter()
        .map(|it| {
            let parameters: usize = it.parameters.iter().map(|it| it.name.len() + 8).sum();
            it.name.len() + it.scope.len() + parameters + 8
        })
        .sum();
    let results = site.target.iter().filter_map(|it| it.result.as_ref());
    let constructed = site.constructed.iter().map(|(of, _)| of);
    let types: usize = results
        .chain(&site.noted)
        .chain(constructed)
        .chain(&site.stored)
        .map(|it| it.name.len() + 24)
        .sum();
    let target = site.target.as_ref().map_or(0, |it| it.name.len());
    functions + types + target + site.symbol.len() + 64
}
