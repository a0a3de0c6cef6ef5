//! The type of a block that Rust code allocates, by the functions of the standard library around the call.
//!
//! Stage: types. A function's source file tells which part of the library it belongs to, at every level of debug information. Its first argument is
//! the element, in the functions listed here. Must not know how the functions were found.

use super::chain::{Chain, Link, Sizes, known_sizes};
use super::people;
use super::text::{Segment, list, segments};
use crate::profile::{BlockType, Way};

/// A part of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Allocator,
    Core,
    RawVec,
    Vec,
    String,
    Boxed,
    Rc,
    Arc,
    BTree,
    LinkedList,
    VecDeque,
    BinaryHeap,
    RawTable,
    Map,
    Set,
    Table,
    Other,
}

/// The part of the library that a function belongs to; `None` if it is not of the library.
fn part(link: &Link) -> Option<Part> {
    if is_allocator_symbol(&link.name) {
        return Some(Part::Allocator);
    }
    let home = home(link)?;
    let of_collection = |name: &str| {
        let rest = home.strip_prefix("alloc/collections/");
        rest.is_some_and(|it| it.starts_with(name))
    };
    Some(match home.as_str() {
        it if it.starts_with("alloc/alloc") || it.starts_with("std/alloc") => Part::Allocator,
        it if it.starts_with("std/sys/alloc") || it.starts_with("std/sys/pal/unix/alloc") => {
            Part::Allocator
        }
        it if it.starts_with("hashbrown/alloc") || it.starts_with("hashbrown/raw/alloc") => {
            Part::Allocator
        }
        it if it.starts_with("core/") => Part::Core,
        it if it.starts_with("alloc/raw_vec") => Part::RawVec,
        it if it.starts_with("alloc/vec") || it.starts_with("alloc/slice") => Part::Vec,
        it if it.starts_with("alloc/string")
            || it.starts_with("alloc/str.rs")
            || it.starts_with("alloc/fmt") =>
        {
            Part::String
        }
        it if it.starts_with("alloc/boxed") => Part::Boxed,
        it if it.starts_with("alloc/rc") => Part::Rc,
        it if it.starts_with("alloc/sync") => Part::Arc,
        _ if of_collection("btree") => Part::BTree,
        _ if of_collection("linked_list") => Part::LinkedList,
        _ if of_collection("vec_deque") => Part::VecDeque,
        _ if of_collection("binary_heap") => Part::BinaryHeap,
        it if it.starts_with("hashbrown/raw") => Part::RawTable,
        it if it.starts_with("hashbrown/map") || it.starts_with("std/collections/hash/map") => {
            Part::Map
        }
        it if it.starts_with("hashbrown/set") || it.starts_with("std/collections/hash/set") => {
            Part::Set
        }
        it if it.starts_with("hashbrown/table") => Part::Table,
        it if it.starts_with("hashbrown/rustc_entry") => Part::Map,
        _ => Part::Other,
    })
}

/// Functions by which a program reaches its allocator.
fn is_allocator_symbol(name: &str) -> bool {
    let last = name.rsplit("::").next().unwrap_or(name);
    last.starts_with("__rust_") || last.starts_with("__rdl_") || last.starts_with("__rg_")
}

/// The place of a function in the library's source: `alloc/vec/mod.rs`.
fn home(link: &Link) -> Option<String> {
    for name in ["alloc", "core", "std"] {
        let folder = format!("library/{name}/src/");
        let found = link.file.find(&folder);
        if let Some(at) = found
            && (at == 0 || link.file.get(..at).is_some_and(|it| it.ends_with('/')))
        {
            let inside = link.file.get(at + folder.len()..).unwrap_or_default();
            return Some(format!("{name}/{inside}"));
        }
    }
    if let Some(at) = link.file.find("/hashbrown-") {
        let (_, inside) = link.file.get(at..)?.split_once("/src/")?;
        return Some(format!("hashbrown/{inside}"));
    }
    if !link.file.is_empty() {
        return None;
    }
    // Without a line, the scope has the same parts. Of symbols, only functions for every element are told apart.
    let symbol = link.name.trim_start_matches('<');
    let is_inner = [
        "alloc::raw_vec::RawVec",
        "alloc::alloc::",
        "hashbrown::raw::RawTableInner",
    ]
    .iter()
    .any(|it| symbol.starts_with(it));
    let parts = match link.is_symbol {
        true if is_inner => segments(symbol.split(['<', '>']).next().unwrap_or(symbol)),
        true => return None,
        false => segments(&link.scope),
    };
    let first = parts.first()?.name;
    if !["alloc", "core", "std", "hashbrown"].contains(&first) {
        return None;
    }
    let names: Vec<&str> = parts.iter().map(|it| it.name).collect();
    Some(names.join("/"))
}

/// Whether Rust code allocates: the innermost function with debug information is in Rust.
pub(super) fn is_rust(chain: &Chain) -> bool {
    let mut known = chain.links.iter().filter(|it| !it.is_symbol);
    known.next().is_some_and(|it| it.is_rust)
}

/// The storage that a function allocates.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Storage<'c> {
    part: Part,
    of: &'c str,
    is_slice: bool,
    at: usize,
}

/// The type of a block.
pub(super) fn decide(chain: &Chain, sizes: &Sizes) -> Option<BlockType> {
    let links = &chain.links;
    let mut storage = storage(links)?;
    // Compilers merge equal functions, and a table of symbols has the name of one of them.
    if links.get(storage.at).is_some_and(|it| it.is_symbol) {
        return None;
    }
    if matches!(storage.part, Part::RawVec | Part::RawTable) {
        // The function may be a merged one of the library, which only its caller can tell.
        let call = links.get(storage.at).map(|it| it.call);
        let caller = links.iter().find(|it| Some(it.call) > call);
        if caller.is_some_and(|it| it.is_symbol) {
            return None;
        }
        storage = merged(links, storage);
    }
    let block = shown(links, &storage)?;
    fits(&block, sizes).then_some(block.typed)
}

/// Whether the sizes allow a type.
fn fits(block: &Block, sizes: &Sizes) -> bool {
    let of = &block.typed;
    if of.element_bytes == 0 {
        return true;
    }
    match block.is_single {
        true => sizes.may_be(of.header_bytes.saturating_add(of.element_bytes)),
        // A table's control bytes are rounded.
        false if block.is_rounded => true,
        false => sizes.may_be_several(of.header_bytes, of.element_bytes),
    }
}

/// The innermost function that names what it allocates.
fn storage(links: &[Link]) -> Option<Storage<'_>> {
    for (at, link) in links.iter().enumerate() {
        let part = part(link)?;
        let function = function(link)?;
        let first = function.arguments.first().copied();
        let several = function.arguments.len() > 1;
        let name = function.name;
        let storage = |of, is_slice| {
            Some(Storage {
                part,
                of,
                is_slice,
                at,
            })
        };
        match part {
            Part::Allocator | Part::Core => {}
            // The others are for every element: `RawVecInner<A>`.
            Part::RawVec if !several => {}
            Part::RawVec => return storage(first?, false),
            Part::Boxed if first.is_none() => {}
            Part::Boxed if is_new(name) => return storage(first?, name.contains("slice")),
            Part::Rc | Part::Arc if name.starts_with('{') || first.is_none() => {}
            Part::Rc | Part::Arc if name.contains("allocate_for") => {
                return storage(first?, name.contains("slice"));
            }
            Part::RawTable if !several => {}
            Part::RawTable if !name.starts_with('{') => return storage(first?, false),
            Part::RawTable => {}
            Part::Vec if first.is_some() && is_of_vec(name) => return storage(first?, false),
            _ => return None,
        }
    }
    None
}

fn function(link: &Link) -> Option<Segment<'_>> {
    segments(&link.name).into_iter().next_back()
}

/// Functions of `Box` that allocate their first argument.
fn is_new(name: &str) -> bool {
    let plain = name.strip_prefix("try_").unwrap_or(name);
    plain == "new"
        || plain == "box_new"
        || plain == "new_in"
        || plain.starts_with("new_uninit")
        || plain.starts_with("new_zeroed")
}

/// Functions of `Vec` and `VecDeque` whose first argument is the element.
fn is_of_vec(name: &str) -> bool {
    const NAMES: [&str; 22] = [
        "push",
        "push_mut",
        "push_back",
        "push_back_mut",
        "push_front",
        "push_front_mut",
        "grow",
        "reserve",
        "reserve_exact",
        "with_capacity",
        "with_capacity_in",
        "insert",
        "insert_mut",
        "extend_from_slice",
        "extend_desugared",
        "extend_trusted",
        "append_elements",
        "resize",
        "extend_with",
        "to_vec",
        "to_vec_in",
        "from_elem",
    ];
    NAMES.contains(&name)
}

/// The storage with the element of the function that calls it. Compilers merge equal functions, so that one of `RawVec<A>` serves elements of other
/// types, too; those that are inlined into another call are not merged.
fn merged<'c>(links: &'c [Link], storage: Storage<'c>) -> Storage<'c> {
    let begin = links.get(storage.at).map(|it| it.call);
    let mut found = storage.clone();
    for (at, link) in links.iter().enumerate().skip(storage.at) {
        let Some(of_link) = part(link) else {
            break;
        };
        let is_inner = of_link == storage.part;
        let is_vec = matches!(of_link, Part::Vec | Part::VecDeque);
        let named = function(link).filter(|it| match is_inner {
            true => it.arguments.len() > 1 && !it.name.starts_with('{'),
            false => is_vec && storage.part == Part::RawVec && is_of_vec(it.name),
        });
        if let Some(of) = named.and_then(|it| it.arguments.first().copied())
            && begin != Some(link.call)
            && of != found.of
        {
            found = Storage { of, at, ..found };
        }
        if !is_inner && of_link != Part::Core {
            break;
        }
    }
    found
}

/// A type, with how its size is made.
struct Block {
    typed: BlockType,
    /// Whether the block has one element.
    is_single: bool,
    is_rounded: bool,
}

fn shown(links: &[Link], storage: &Storage<'_>) -> Option<Block> {
    let show = people::rust;
    let of = storage.of;
    let known = known_sizes(links, str::to_owned);
    let size = |of: &str| known.get(of).copied().or_else(|| size_of(of)).unwrap_or(0);
    let block = |name, element: &str, bytes, header_bytes, is_capacity| Block {
        typed: BlockType {
            name,
            element: show(element),
            element_bytes: bytes,
            header_bytes,
            is_capacity,
            way: Way::Frames,
        },
        is_single: false,
        is_rounded: false,
    };
    let single = |block: Block| Block {
        is_single: true,
        ..block
    };
    match storage.part {
        Part::RawVec | Part::Vec => {
            let name = match adaptor(links, storage) {
                Part::String => "String".to_owned(),
                Part::VecDeque => format!("VecDeque<{}>", show(of)),
                Part::BinaryHeap => format!("BinaryHeap<{}>", show(of)),
                _ => format!("Vec<{}>", show(of)),
            };
            Some(block(name, of, size(of), 0, true))
        }
        Part::RawTable => {
            let (name, element) = table(links, storage);
            let bytes = match size(of) {
                0 => 0,
                bytes => bytes.saturating_add(1),
            };
            Some(Block {
                is_rounded: true,
                ..block(name, element, bytes, 16, true)
            })
        }
        Part::Rc | Part::Arc => Some(counted(storage.part, of, storage.is_slice, &block, &size)),
        Part::Boxed => {
            let whole = segments(of);
            let last = whole.last()?;
            let path: Vec<&str> = whole.iter().map(|it| it.name).collect();
            match (path.as_slice(), last.arguments.as_slice()) {
                (["alloc", "rc", "RcInner" | "RcBox"], [of, ..]) => {
                    Some(single(counted(Part::Rc, of, false, &block, &size)))
                }
                (["alloc", "sync", "ArcInner"], [of, ..]) => {
                    Some(single(counted(Part::Arc, of, false, &block, &size)))
                }
                (["alloc", "collections", "linked_list", "Node"], [of, ..]) => {
                    let bytes = size(of).checked_next_multiple_of(8).unwrap_or(0);
                    let name = format!("LinkedList<{}>", show(of));
                    Some(single(block(name, of, bytes, 16, false)))
                }
                (
                    [
                        "alloc",
                        "collections",
                        "btree",
                        "node",
                        "LeafNode" | "InternalNode",
                    ],
                    [key, value, ..],
                ) => {
                    let is_set = value.ends_with("set_val::SetValZST");
                    let (name, element) = match is_set {
                        true => (format!("BTreeSet<{}>", show(key)), (*key).to_owned()),
                        false => (
                            format!("BTreeMap<{}, {}>", show(key), show(value)),
                            format!("({key}, {value})"),
                        ),
                    };
                    Some(block(name, &element, 0, 0, true))
                }
                _ => Some(boxed(of, storage.is_slice, &block, &size)),
            }
        }
        _ => None,
    }
}

fn boxed(
    of: &str,
    is_slice: bool,
    block: &dyn Fn(String, &str, u64, u64, bool) -> Block,
    size: &dyn Fn(&str) -> u64,
) -> Block {
    let show = people::rust;
    if is_slice {
        return block(format!("Box<[{}]>", show(of)), of, size(of), 0, false);
    }
    let inner = of.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    if let Some((element, _)) = inner.and_then(|it| it.rsplit_once("; ")) {
        return block(
            format!("Box<{}>", show(of)),
            element,
            size(element),
            0,
            false,
        );
    }
    Block {
        is_single: true,
        ..block(format!("Box<{}>", show(of)), of, size(of), 0, false)
    }
}

/// A value with two counters before it.
fn counted(
    part: Part,
    of: &str,
    is_slice: bool,
    block: &dyn Fn(String, &str, u64, u64, bool) -> Block,
    size: &dyn Fn(&str) -> u64,
) -> Block {
    let name = match part {
        Part::Rc => "Rc",
        _ => "Arc",
    };
    let show = people::rust;
    if of == "str" {
        return block(format!("{name}<str>"), "u8", 0, 16, false);
    }
    let slice = of.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let is_array = |it: &str| {
        let length = it.rsplit_once("; ").map(|(_, length)| length);
        length.is_some_and(|it| it.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let slice = slice.filter(|it| !is_slice && !is_array(it));
    let element = slice.unwrap_or(of);
    let name = match is_slice {
        true => format!("{name}<[{}]>", show(of)),
        false => format!("{name}<{}>", show(of)),
    };
    // The size is rounded to that of the counters.
    let bytes = match size(element) {
        bytes if bytes.is_multiple_of(8) => bytes,
        _ => 0,
    };
    block(name, element, bytes, 16, false)
}

/// The container that a vector is in.
fn adaptor(links: &[Link], storage: &Storage<'_>) -> Part {
    let mut found = Part::Vec;
    for link in links.iter().skip(storage.at) {
        let part = part(link);
        let function = function(link);
        let first = function.and_then(|it| it.arguments.first().copied());
        let is_same = first.is_none_or(|it| it == storage.of);
        match part {
            Some(Part::String) if storage.of == "u8" => return Part::String,
            Some(part @ (Part::VecDeque | Part::BinaryHeap)) if is_same => found = part,
            Some(Part::RawVec | Part::Core) => {}
            Some(Part::Vec) if is_same => {}
            _ => break,
        }
    }
    found
}

/// The container that a hash table is in, and its element.
fn table<'c>(links: &[Link], storage: &Storage<'c>) -> (String, &'c str) {
    let show = people::rust;
    let of = storage.of;
    let outside = links
        .iter()
        .skip(storage.at)
        .map(part)
        .find(|it| !matches!(it, Some(Part::RawTable | Part::Core)));
    let pair = of.strip_prefix('(').and_then(|it| it.strip_suffix(')'));
    let pair = pair.map(list);
    match (outside.flatten(), pair.as_deref()) {
        (Some(Part::Table), _) => (format!("HashTable<{}>", show(of)), of),
        (_, Some([key, "()"])) => (format!("HashSet<{}>", show(key)), key),
        (_, Some([key, value])) => (format!("HashMap<{}, {}>", show(key), show(value)), of),
        _ => (format!("HashTable<{}>", show(of)), of),
    }
}

/// The size of a type that is part of the language, on machines of 64 bits.
fn size_of(of: &str) -> Option<u64> {
    Some(match of {
        "u8" | "i8" | "bool" => 1,
        "u16" | "i16" => 2,
        "u32" | "i32" | "f32" | "char" => 4,
        "u64" | "i64" | "f64" | "usize" | "isize" => 8,
        "u128" | "i128" => 16,
        _ => return None,
    })
}
