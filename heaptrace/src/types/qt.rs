//! The containers of Qt 5 and Qt 6, by the functions around the call of an allocator.
//!
//! Stage: types. QtCore allocates their storage without knowing what for; the class that asks for it has the type in its arguments. Must not know how
//! the functions were found.

use super::chain::{Link, Sizes, known_sizes};
use super::cpp::size_of;
use super::parsed::{Parsed, is_plain_allocator, parsed};
use super::people;
use super::text::{Segment, segments};
use crate::profile::{BlockType, Way};

/// Most of QtCore's own functions without a symbol between a class and its storage.
const MAX_NAMELESS: usize = 2;

/// Bytes before the elements of an array in Qt 5; more if they are aligned to 16.
const HEADERS_5: [u64; 2] = [24, 32];

/// The same in Qt 6, some of whose releases keep two more bytes for the end of a text.
const HEADERS_6: [u64; 4] = [18, 16, 34, 32];

/// The bytes of the part of a hash table of Qt 5 that has its counters.
const HASH_DATA: u64 = 48;

/// What a block consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// Elements behind a header of one of these sizes.
    Array(&'static [u64]),
    /// One element behind a header.
    One(u64),
    /// Places of eight bytes behind a header.
    Places(u64),
    /// An element and other things.
    Within,
    /// Units of two bytes and an end. Which header is before them is not known.
    Text(u64),
    /// No elements.
    Apart,
}

/// What is allocated.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Storage {
    name: String,
    element: String,
    shape: Shape,
    way: Way,
}

impl Storage {
    fn new(name: String, element: &str, shape: Shape) -> Self {
        Self {
            name,
            element: element.to_owned(),
            shape,
            way: Way::Frames,
        }
    }
}

/// A function of a stack.
type Known<'l> = (&'l Link, Parsed<'l>);

/// The type of a block; `None` if the functions do not tell.
pub(super) fn decide(all: &[Link], sizes: &Sizes) -> Option<BlockType> {
    let links: Vec<Known<'_>> = all
        .iter()
        .skip_while(|it| is_plain_allocator(&it.name))
        .map_while(|it| Some((it, parsed(&it.name)?)))
        .collect();
    let known = known_sizes(all, people::cpp);
    let bytes = |of: &str| {
        let of = people::cpp(of);
        known
            .get(&of)
            .copied()
            .or_else(|| size_of(&of))
            .unwrap_or(0)
    };
    let found = storage(&links, sizes, &bytes)?;
    let size = bytes(&found.element);
    let (element_bytes, header_bytes, is_capacity) = match found.shape {
        Shape::Array(_) if size == 0 => (0, 0, true),
        Shape::Array(headers) => {
            let mut headers = headers.iter().copied();
            let header = headers.find(|it| sizes.may_be_several(*it, size))?;
            (size, header, true)
        }
        Shape::One(0) if size > 0 && !sizes.may_be(size) => return None,
        Shape::One(header) if !sizes.may_be_at_least(size.saturating_add(header)) => return None,
        Shape::One(header) => (size, header, false),
        Shape::Places(header) if !sizes.may_be_several(header, 8) => return None,
        Shape::Places(header) => (8, header, true),
        Shape::Within if !sizes.may_be_at_least(size) => return None,
        Shape::Text(unit) if !sizes.may_be_several(0, unit) => return None,
        Shape::Within | Shape::Apart => (0, 0, false),
        Shape::Text(_) => (0, 0, true),
    };
    Some(BlockType {
        name: found.name,
        element: people::cpp(&found.element),
        element_bytes,
        header_bytes,
        is_capacity,
        way: found.way,
    })
}

/// What the innermost functions allocate.
fn storage(links: &[Known<'_>], sizes: &Sizes, bytes: &dyn Fn(&str) -> u64) -> Option<Storage> {
    let ((link, first), rest) = links.split_first()?;
    let class = owner(first)?;
    let function = first.function.name;
    if class.arguments.is_empty() {
        let rest = outside(rest, class.name);
        return match (class.name, function) {
            ("QArrayData", "allocate" | "reallocateUnaligned") => array(rest),
            ("QListData", _) => list(rest, bytes),
            ("QHashData", "allocateNode") => {
                let (name, element) = of_hash(&hash(rest)?);
                Some(Storage::new(name + " (nodes)", &element, Shape::Within))
            }
            ("QHashData", "rehash") => {
                let (name, _) = of_hash(&hash(rest)?);
                Some(Storage::new(
                    name + " (buckets)",
                    "bucket",
                    Shape::Places(0),
                ))
            }
            // It allocates the nodes and the buckets of a copy, too.
            ("QHashData", "detach_helper") => {
                let is_data = sizes.ends.is_some() && sizes.may_be(HASH_DATA);
                let (name, _) = of_hash(&hash(rest).filter(|_| is_data)?);
                Some(Storage::new(name + " (data)", "QHashData", Shape::Apart))
            }
            ("QMapDataBase", "createNode" | "createData") => map(rest, function),
            _ => None,
        };
    }
    // Other functions may be inlined in those that a table of symbols names.
    if link.is_symbol {
        return None;
    }
    let of = *class.arguments.first()?;
    match (class.name, function) {
        ("QList", "node_construct" | "node_copy") => {
            let name = public(links, &[], &["QList", "QQueue"], &[of])?;
            Some(Storage::new(name + " (nodes)", of, Shape::One(0)))
        }
        ("QVarLengthArray" | "QVLABase", _) => {
            let name = links.iter().rev().find_map(|(link, parsed)| {
                let class = owner(parsed).filter(|_| !link.is_symbol)?;
                let is_same = class.name == "QVarLengthArray" && is_same(&class, &[of]);
                is_same.then(|| var_length(&class))
            });
            Some(Storage::new(name?, of, Shape::Array(&[0])))
        }
        ("ExternalRefCountWithContiguousData", "create") => {
            let name = people::cpp(&format!("QSharedPointer<{of}>"));
            Some(Storage::new(name, of, Shape::One(16)))
        }
        ("ExternalRefCountWithCustomDeleter", "create") => {
            let name = people::cpp(&format!("QSharedPointer<{of}>"));
            Some(Storage::new(name + " (control block)", of, Shape::Apart))
        }
        ("Span" | "Data", _) if first.is_in("QHashPrivate") => of_node(of, class.name, function),
        _ => None,
    }
}

/// The class that a function is a member of. Qt's own namespaces are left out.
fn owner<'l>(parsed: &Parsed<'l>) -> Option<Segment<'l>> {
    let is_namespace = |it: &str| matches!(it, "QtPrivate" | "QHashPrivate" | "QtSharedPointer");
    let mut scope = parsed.scope.iter();
    scope.find(|it| !is_namespace(it.name)).cloned()
}

/// The functions outside of a class.
fn outside<'k, 'l>(links: &'k [Known<'l>], class: &str) -> &'k [Known<'l>] {
    let is_own = |(_, parsed): &Known<'_>| {
        owner(parsed).is_some_and(|it| it.name == class && it.arguments.is_empty())
    };
    let at = links.iter().position(|it| !is_own(it));
    at.and_then(|at| links.get(at..)).unwrap_or_default()
}

/// Whether a class is made for these types, and maybe further ones.
fn is_same(class: &Segment<'_>, arguments: &[&str]) -> bool {
    let own = class.arguments.iter().map(|it| people::cpp(it));
    let asked = arguments.iter().map(|it| people::cpp(it));
    class.arguments.len() >= arguments.len() && own.zip(asked).all(|(one, other)| one == other)
}

/// The outermost class for people, of those that are made for the same types and call each other.
fn public(
    links: &[Known<'_>],
    inner: &[&str],
    names: &[&str],
    arguments: &[&str],
) -> Option<String> {
    let mut found = None;
    for (link, parsed) in links {
        let class = owner(parsed).filter(|it| !link.is_symbol && is_same(it, arguments));
        match class {
            Some(class) if names.contains(&class.name) => {
                found = Some(named(class.name, arguments));
            }
            Some(class)
                if inner.contains(&class.name)
                    || parsed.is_in("QtPrivate") && class.name.ends_with("ArrayOps") => {}
            _ => break,
        }
    }
    found
}

fn named(class: &str, arguments: &[&str]) -> String {
    people::cpp(&format!("{class}<{}>", arguments.join(", ")))
}

/// The number of elements that it has room for without a block is written as a cast by some compilers.
fn var_length(class: &Segment<'_>) -> String {
    let arguments = class.arguments.iter();
    let plain = arguments.map(|it| it.strip_prefix("(long long)").unwrap_or(it));
    named(class.name, &plain.collect::<Vec<_>>())
}

/// An array, by the class that is made for its elements, or by the class of a text.
fn array(links: &[Known<'_>]) -> Option<Storage> {
    let (link, first) = links.first()?;
    let class = owner(first).filter(|it| !link.is_symbol && it.name == "QTypedArrayData");
    let Some(class) = class else {
        return by_symbol(links);
    };
    let of = *class.arguments.first()?;
    let inner = ["QTypedArrayData", "QArrayDataPointer"];
    let names = ["QVector", "QList", "QStack", "QQueue"];
    if let Some(name) = public(links, &inner, &names, &[of]) {
        // Each version has one class for them.
        let is_5 = links.iter().any(|(_, parsed)| {
            owner(parsed).is_some_and(|it| it.name == "QVector" && is_same(&it, &[of]))
        });
        let headers = if is_5 { &HEADERS_5[..] } else { &HEADERS_6[..] };
        return Some(Storage::new(name, of, Shape::Array(headers)));
    }
    let mut others = links.iter().filter_map(|(link, parsed)| {
        let class = owner(parsed).filter(|_| !link.is_symbol)?;
        let is_inner = inner.contains(&class.name) || parsed.is_in("QtPrivate");
        (!is_inner).then_some(class)
    });
    match others.next()?.name {
        "QString" if size_of(&people::cpp(of)) == Some(2) => Some(text("QString", Way::Frames)),
        "QByteArray" if of == "char" => Some(text("QByteArray", Way::Frames)),
        _ => None,
    }
}

fn text(class: &str, way: Way) -> Storage {
    let (element, unit) = match class {
        "QString" => ("QChar", 2),
        _ => ("char", 1),
    };
    Storage {
        way,
        ..Storage::new(class.to_owned(), element, Shape::Text(unit))
    }
}

/// A function of QtCore whose array is of its own class, by its symbol.
fn by_symbol(links: &[Known<'_>]) -> Option<Storage> {
    let nameless = links.iter().take_while(|(link, _)| link.name.is_empty());
    let nameless = nameless.count();
    let (_, parsed) = links.get(nameless..)?.first()?;
    let class = owner(parsed)?;
    let function = parsed.function.name;
    let is_text = matches!(class.name, "QString" | "QByteArray");
    let is_own = match function {
        "reallocData" | "reallocGrowData" | "fromLatin1_helper" | "fromLatin1" => nameless == 0,
        "append" | "insert" | "resize" | "reserve" => nameless < MAX_NAMELESS,
        _ => function == class.name && nameless == 0,
    };
    if is_text && is_own && parsed.scope.len() == 1 {
        return Some(text(class.name, Way::Symbol));
    }
    children(links, HEADERS_6.as_slice())
}

/// The children of an object.
fn children(links: &[Known<'_>], headers: &'static [u64]) -> Option<Storage> {
    let nameless = links.iter().take_while(|(link, _)| link.name.is_empty());
    let nameless = nameless.count();
    let (_, parsed) = links.get(nameless..)?.first()?;
    let class = owner(parsed)?;
    let is_it = class.name == "QObjectPrivate" && parsed.function.name == "setParent_helper";
    (is_it && nameless <= MAX_NAMELESS).then(|| Storage {
        way: Way::Symbol,
        ..Storage::new(
            "QList<QObject*>".to_owned(),
            "QObject*",
            Shape::Array(headers),
        )
    })
}

/// A list of Qt 5, which has small elements in places, and pointers to others.
fn list(links: &[Known<'_>], bytes: &dyn Fn(&str) -> u64) -> Option<Storage> {
    let (link, first) = links.first()?;
    let class = owner(first).filter(|it| !link.is_symbol && it.name == "QList");
    let Some(class) = class else {
        return children(links, &[16]);
    };
    let of = *class.arguments.first()?;
    let name = public(links, &[], &["QList", "QQueue"], &[of])?;
    let shown = people::cpp(of);
    let element = match size_of(&shown) {
        Some(_) => shown,
        None if is_movable(&shown) => shown,
        // Smaller ones may be either.
        None if bytes(of) > 8 => format!("{shown}*"),
        None => format!("{}::Node", named("QList", &[of])),
    };
    Some(Storage::new(name, &element, Shape::Places(16)))
}

/// Whether a class of Qt 5 has the size of a pointer, and is declared as one that may be moved.
fn is_movable(of: &str) -> bool {
    let parts = segments(of);
    let [only] = parts.as_slice() else {
        return false;
    };
    matches!(
        (only.name, only.arguments.len()),
        ("QString" | "QByteArray" | "QChar", 0)
            | ("QVector" | "QList" | "QStack" | "QQueue" | "QSet", 1)
            | ("QHash" | "QMap", 2)
    )
}

/// The class that asks for a part of a hash table of Qt 5.
fn hash<'l>(links: &[Known<'l>]) -> Option<Segment<'l>> {
    let (link, first) = links.first()?;
    let is_hash = |it: &Segment<'_>| matches!(it.name, "QHash" | "QMultiHash");
    let class = owner(first).filter(|it| !link.is_symbol && is_hash(it))?;
    let same = links.iter().map_while(|(link, parsed)| {
        let outer = owner(parsed).filter(|it| !link.is_symbol && is_hash(it))?;
        is_same(&outer, &class.arguments).then_some(outer.name)
    });
    let name = same.last()?;
    Some(Segment { name, ..class })
}

/// The name and the element of a hash table.
fn of_hash(class: &Segment<'_>) -> (String, String) {
    match class.arguments.as_slice() {
        [key, "QHashDummyValue"] => (named("QSet", &[key]), (*key).to_owned()),
        arguments => (named(class.name, arguments), pair(arguments)),
    }
}

fn pair(arguments: &[&str]) -> String {
    let argument = |at: usize| arguments.get(at).copied().unwrap_or_default();
    format!("std::pair<{} const, {}>", argument(0), argument(1))
}

/// A part of a map of Qt 5. Those of Qt 6 hold a `std::map`.
fn map(links: &[Known<'_>], function: &str) -> Option<Storage> {
    let (link, first) = links.first()?;
    let class = owner(first).filter(|it| !link.is_symbol && it.name == "QMapData")?;
    let arguments = class.arguments.as_slice();
    let [_, _] = arguments else {
        return None;
    };
    let inner = ["QMapData", "QMapNode"];
    let name = public(links, &inner, &["QMap", "QMultiMap"], arguments);
    let name = name.unwrap_or_else(|| named("QMap", arguments));
    Some(match function {
        "createNode" => Storage::new(name + " (nodes)", &pair(arguments), Shape::Within),
        _ => {
            let element = named("QMapData", arguments);
            Storage::new(name + " (data)", &element, Shape::Apart)
        }
    })
}

/// A part of a hash table of Qt 6, by its node.
fn of_node(node: &str, class: &str, function: &str) -> Option<Storage> {
    let parts = segments(node);
    let last = parts.last()?;
    let of = match last.name {
        "Node" => "QHash",
        "MultiNode" => "QMultiHash",
        _ => return None,
    };
    let (name, element) = of_hash(&Segment {
        name: of,
        arguments: last.arguments.clone(),
    });
    let part = |of: &str| format!("QHashPrivate::{of}<{node}>");
    Some(match (class, function) {
        ("Span", "addStorage") => Storage::new(name + " (nodes)", &element, Shape::Within),
        ("Data", "Data" | "rehash") => {
            Storage::new(name + " (spans)", &part("Span"), Shape::Array(&[8]))
        }
        ("Data", "detached") => Storage::new(name + " (data)", &part("Data"), Shape::One(0)),
        _ => return None,
    })
}
