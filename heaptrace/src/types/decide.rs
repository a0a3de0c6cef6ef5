//! Decides which type the blocks of a stack have, from what each way tells.
//!
//! Stage: types. The compiler's note is exact, then come the functions of a standard library, a constructor, and what takes the block. A size that does
//! not fit excludes a type. Must not know files and readers.

use super::chain::{Chain, Link, Sizes};
use super::internal::is_internal;
use super::parsed::is_plain_allocator;
use super::protocol::{Evidence, Site, SizedType};
use super::{cpp, people, qt, runtimes, rust};
use crate::profile::{BlockType, Way};

/// The type of the blocks of a stack; `None` if nothing tells it, or if it does not fit.
pub(super) fn decide(chain: &Chain, sizes: &Sizes) -> Option<BlockType> {
    // People who use a runtime know its objects, and not the structures that it is written with.
    if let Some(found) = runtimes::decide(chain, sizes) {
        return Some(found);
    }
    if rust::is_rust(chain) {
        return rust::decide(chain, sizes).or_else(|| by_call(chain, sizes));
    }
    let by_frames =
        qt::decide(&chain.links, sizes).or_else(|| cpp::decide(&chain.links, &chain.sites, sizes));
    let by_frames = by_frames.or_else(|| {
        let symbols = symbols_alone(chain)?;
        cpp::decide(&symbols, &chain.sites, sizes)
    });
    let noted = noted(chain, sizes);
    match (noted, by_frames) {
        (Some(noted), Some(found)) if noted.element == found.element => Some(BlockType {
            way: Way::AllocType,
            ..found
        }),
        (Some(noted), _) => Some(noted),
        (None, Some(found)) => Some(found),
        (None, None) => by_call(chain, sizes),
    }
}

/// The same stack with one function for each call, by the table of symbols; `None` if it has no others.
fn symbols_alone(chain: &Chain) -> Option<Vec<Link>> {
    let is_same = |it: &Link| it.is_symbol && !it.name.is_empty();
    if !chain.links.is_empty() && chain.links.iter().all(is_same) {
        return None;
    }
    let tails = chain.links.iter().filter(|it| it.is_tail).cloned();
    let named = chain.sites.iter().enumerate();
    let named = named.take_while(|(_, site)| !site.symbol.is_empty());
    let symbols = named.map(|(call, site)| Link {
        name: site.symbol.clone(),
        is_symbol: true,
        call,
        ..Link::default()
    });
    Some(tails.chain(symbols).collect())
}

/// The call of the allocator, without functions that only pass it on.
fn allocation(chain: &Chain) -> Option<(usize, &Site)> {
    let mut calls = chain.sites.iter().enumerate();
    calls.find(|(_, site)| !is_plain_allocator(&site.symbol))
}

/// The name of the allocator that a call leads to; empty if it is not known.
fn allocator(site: &Site) -> &str {
    site.target.as_ref().map_or("", |it| it.name.as_str())
}

/// The type that the compiler noted for a `new` expression.
fn noted(chain: &Chain, sizes: &Sizes) -> Option<BlockType> {
    let (_, site) = allocation(chain)?;
    let noted = site.noted.as_ref()?;
    allocated_by_new(noted, allocator(site), sizes, Way::AllocType)
}

/// A type that `new` allocates one or several of.
fn allocated_by_new(of: &SizedType, allocator: &str, sizes: &Sizes, way: Way) -> Option<BlockType> {
    let show = people::cpp;
    if is_internal(&of.name) {
        return None;
    }
    let element = show(&of.name);
    let is_array = allocator.starts_with("operator new[]");
    let typed = |name, header_bytes| {
        Some(BlockType {
            name,
            element: element.clone(),
            element_bytes: of.bytes,
            header_bytes,
            is_capacity: false,
            way,
        })
    };
    if !is_array && (of.bytes == 0 || sizes.may_be(of.bytes)) {
        return typed(element.clone(), 0);
    }
    // Arrays of what has a destructor begin with their length.
    let name = format!("{element}[]");
    if of.bytes > 0 && is_array {
        return [0, 8, 16]
            .into_iter()
            .find(|header| sizes.may_be_several(*header, of.bytes))
            .and_then(|header| typed(name, header));
    }
    None
}

/// What becomes of the result of the call.
fn by_call(chain: &Chain, sizes: &Sizes) -> Option<BlockType> {
    let (at, site) = allocation(chain)?;
    if is_copy_of_text(&site.symbol) {
        return text(sizes);
    }
    let target = allocator(site);
    let is_new = target.starts_with("operator new");
    if let Some((of, evidence)) = &site.constructed {
        let is_standard = of.name.starts_with("std::");
        let is_exact = match evidence {
            // The first member of a class may be of the standard library.
            Evidence::Called | Evidence::Vtable => of.bytes > 0 || !is_standard,
            Evidence::Inlined => of.bytes > 0 && !is_standard,
        };
        if is_exact && let Some(found) = allocated_by_new(of, target, sizes, Way::Constructor) {
            // It may be the constructor of a base class, whose size is the same.
            let other = site.stored.as_ref().filter(|it| {
                *evidence == Evidence::Called && it.bytes == of.bytes && !it.is_virtual
            });
            if other.is_some_and(|it| people::cpp(&it.name) != found.element) {
                return None;
            }
            return Some(found);
        }
    }
    let calls = chain.sites.get(at..)?;
    for site in calls.iter().take(8) {
        if let Some(stored) = &site.stored {
            return stored_as(stored, is_new, target, sizes);
        }
        if let Some(result) = site.target.as_ref().and_then(|it| it.result.as_ref()) {
            return stored_as(result, is_new, target, sizes);
        }
        if !site.is_returned {
            return None;
        }
    }
    None
}

/// Functions of the C library that return text in new memory.
fn is_copy_of_text(symbol: &str) -> bool {
    let plain = symbol.trim_start_matches("__GI_").trim_start_matches('_');
    matches!(
        plain,
        "strdup" | "strndup" | "vasprintf_internal" | "vasprintf" | "asprintf"
    )
}

fn text(sizes: &Sizes) -> Option<BlockType> {
    sizes.may_be_several(0, 1).then(|| BlockType {
        name: "char".to_owned(),
        element: "char".to_owned(),
        element_bytes: 1,
        header_bytes: 0,
        is_capacity: false,
        way: Way::Symbol,
    })
}

fn stored_as(of: &SizedType, is_new: bool, target: &str, sizes: &Sizes) -> Option<BlockType> {
    if of.bytes == 0 || is_internal(&of.name) {
        return None;
    }
    // A base class takes blocks of other classes, too.
    if is_new {
        if of.is_virtual {
            return None;
        }
        return allocated_by_new(of, target, sizes, Way::Dataflow);
    }
    let element = people::cpp(&of.name);
    let is_several = sizes.may_be_several(0, of.bytes);
    let is_open = of.is_open && sizes.may_be_at_least(of.bytes);
    // Behind a structure that ends with an array without a bound, there are elements of that, and no further structures.
    let is_counted = is_several && (!of.is_open || sizes.may_be(of.bytes));
    (is_several || is_open).then(|| BlockType {
        name: element.clone(),
        element,
        element_bytes: if is_counted { of.bytes } else { 0 },
        header_bytes: 0,
        is_capacity: false,
        way: Way::Dataflow,
    })
}
