//! The type of a block that C++ code allocates, by the functions of the standard library around the call.
//!
//! Stage: types. Knows the names of libstdc++ and libc++. An allocator's argument is the element or a node with it; the class that calls the
//! allocator tells the container. Must not know how the functions were found.

use super::absl;
use super::chain::{Link, Sizes, known_sizes};
use super::containers::{self, Family, family, value};
use super::internal::{element_of_node, is_internal};
use super::parsed::{Parsed, is_plain_allocator, parsed};
use super::people;
use super::protocol::Site;
use super::text::{first_argument, segments};
use crate::profile::{BlockType, Way};

/// What an allocator function allocates.
fn allocated<'c>(parsed: &Parsed<'c>) -> Option<&'c str> {
    let function = &parsed.function;
    let class = parsed.class();
    let of_class = || class?.arguments.first().copied();
    match function.name {
        "allocate" | "allocate_at_least" => {
            let class = class?;
            match class.name {
                "allocator_traits" | "__alloc_traits" if parsed.is_of_library() => {
                    first_argument(of_class()?)
                }
                // Boost's containers hold an allocator.
                "vector_alloc_holder" | "node_alloc_holder" if parsed.is_in("boost") => {
                    first_argument(of_class()?)
                }
                // Its blocks come from larger ones, unless the next function says otherwise.
                "polymorphic_allocator" => None,
                _ => of_class(),
            }
        }
        "__allocate_at_least" | "__allocate_guarded" | "__allocate_guarded_obj"
            if parsed.is_in("std") =>
        {
            first_argument(function.arguments.first()?)
        }
        "__libcpp_allocate"
        | "get_temporary_buffer"
        | "__get_temporary_buffer"
        | "__valarray_get_storage"
        | "__valarray_get_memory"
            if parsed.is_in("std") =>
        {
            function.arguments.first().copied()
        }
        _ => None,
    }
}

/// An element with the part of its container that the block is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Unwrapped {
    element: String,
    kind: Node,
}

/// What a block holds beside an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    /// Elements alone.
    Plain,
    /// A node with one element.
    One,
    /// Pointers to nodes.
    Buckets,
    /// An element with its counters.
    Shared,
    /// Counters of an element elsewhere.
    Counters,
}

/// What an allocator's argument stands for.
fn unwrapped(of: &str) -> Option<Unwrapped> {
    let found = |element: &str, kind| {
        Some(Unwrapped {
            element: element.to_owned(),
            kind,
        })
    };
    let parts = segments(of);
    let is_standard = parts.first().is_some_and(|it| it.name == "std");
    let last = parts.last()?;
    let first = last.arguments.first().copied();
    if !is_standard {
        return match element_of_node(of) {
            Some(element) => found(&element, Node::One),
            None if is_internal(of) => None,
            None => found(of, Node::Plain),
        };
    }
    match last.name {
        "_Rb_tree_node"
        | "_List_node"
        | "_Fwd_list_node"
        | "_Hash_node"
        | "__tree_node"
        | "__hash_node"
        | "__list_node"
        | "__forward_list_node"
        | "_Node" => found(&value_of_libcpp(first?), Node::One),
        "_Hash_node_base*" | "__hash_node_base" => found("bucket", Node::Buckets),
        _ if of.ends_with('*')
            && (of.contains("_Hash_node_base") || of.contains("__hash_node_base")) =>
        {
            found("bucket", Node::Buckets)
        }
        "_Sp_counted_ptr_inplace" | "__shared_ptr_emplace" => found(first?, Node::Shared),
        "_Sp_counted_ptr" | "_Sp_counted_deleter" | "__shared_ptr_pointer" => {
            found(first?.trim_end_matches('*').trim_end(), Node::Counters)
        }
        // Internals of other parts of the library are no elements of a program.
        _ if last.name.starts_with("_Sp_counted") => None,
        _ => found(of, Node::Plain),
    }
}

/// libc++ has types of its own for the pairs in nodes.
fn value_of_libcpp(of: &str) -> String {
    let parts = segments(of);
    match parts.last() {
        Some(last)
            if matches!(last.name, "__value_type" | "__hash_value_type")
                && last.arguments.len() == 2 =>
        {
            format!(
                "std::pair<{} const, {}>",
                last.arguments.first().copied().unwrap_or_default(),
                last.arguments.get(1).copied().unwrap_or_default()
            )
        }
        _ => of.to_owned(),
    }
}

/// The type of a block; `None` if the functions do not tell.
pub(super) fn decide(all: &[Link], sites: &[Site], sizes: &Sizes) -> Option<BlockType> {
    let links: Vec<(&Link, Parsed<'_>)> = all
        .iter()
        .skip_while(|it| is_plain_allocator(&it.name))
        .map_while(|it| Some((it, parsed(&it.name)?)))
        .collect();
    let of_allocators: Vec<&str> = links.iter().map_while(|(_, it)| allocated(it)).collect();
    // A program's own function of this name may allocate anything, unless the library calls it.
    let is_called_by_library = |(_, it): &(&Link, Parsed<'_>)| it.is_of_library();
    let is_known = of_allocators.is_empty()
        || links
            .iter()
            .take(1 + of_allocators.len())
            .any(is_called_by_library);
    if !is_known {
        return None;
    }
    let rest = links.get(of_allocators.len()..)?;
    let by_allocator = match of_allocators.last() {
        Some(of) => match unwrapped(of) {
            Some(found) => Some(found),
            None => return in_abseil(all, rest, sizes),
        },
        None => None,
    };
    let first = links.first()?;
    let way = match first.0.is_symbol && !first.0.is_tail {
        true => Way::Symbol,
        false => Way::Frames,
    };
    if way == Way::Symbol && !may_trust_symbol(sites, first) {
        return None;
    }
    let show = people::cpp;
    let found = match in_container(rest, by_allocator.as_ref()) {
        Some(found) => found,
        None => alone(rest, by_allocator, of_allocators.last().copied())?,
    };
    let known = known_sizes(all, show);
    let element = show(&found.element);
    let size = known
        .get(&element)
        .copied()
        .or_else(|| size_of(&element))
        .unwrap_or(0);
    let node = of_allocators
        .last()
        .and_then(|of| known.get(&show(of)).copied());
    let header_bytes = match (found.node, node) {
        (Node::One | Node::Shared, Some(node)) => node.saturating_sub(size),
        (Node::One, None) if found.is_container => header(&found.name),
        (Node::Shared, None) => 16,
        _ => 0,
    };
    let typed = BlockType {
        name: found.name,
        element,
        element_bytes: match found.node {
            Node::Buckets => 8,
            Node::Counters => 0,
            // Nodes begin with pointers, so how many there are is not known.
            Node::One if header_bytes == 0 => 0,
            _ => size,
        },
        header_bytes,
        is_capacity: matches!(found.node, Node::Buckets)
            || found.node == Node::Plain && found.is_container,
        way,
    };
    let fits = match found.node {
        // Padding behind the element is not known without the node's size.
        Node::One | Node::Shared => {
            node.map_or_else(|| sizes.may_be_at_least(size), |node| sizes.may_be(node))
        }
        Node::Counters | Node::Buckets => true,
        Node::Plain if size == 0 => true,
        Node::Plain => sizes.may_be_several(0, size) || sizes.may_be_several(8, size),
    };
    fits.then_some(typed)
}

/// A block that a container of abseil has asked for as memory without a type.
fn in_abseil(all: &[Link], rest: &[(&Link, Parsed<'_>)], sizes: &Sizes) -> Option<BlockType> {
    let own = rest.iter().take_while(|(link, _)| !link.is_symbol);
    let found = absl::storage(own.map(|(_, parsed)| parsed))?;
    let element = people::cpp(&found.element);
    let known = known_sizes(all, people::cpp).get(&element).copied();
    let least = known.or_else(|| size_of(&element)).unwrap_or(0);
    // How many there is room for is not known: the block also has what says which places are used.
    sizes.may_be_at_least(least).then_some(BlockType {
        name: found.name,
        element,
        element_bytes: 0,
        header_bytes: 0,
        is_capacity: true,
        way: Way::Frames,
    })
}

/// What is found for a block.
struct Found {
    name: String,
    element: String,
    node: Node,
    is_container: bool,
}

/// A stack from the deque on whose table of blocks it allocates. libc++ has one in a buffer of its own class.
fn from_deque<'r, 'l>(rest: &'r [(&'l Link, Parsed<'l>)]) -> Option<&'r [(&'l Link, Parsed<'l>)]> {
    let buffer = |parsed: &Parsed<'_>| {
        let class = parsed.class().filter(|_| parsed.is_standard())?;
        value(class).filter(|_| class.name == "__split_buffer")
    };
    let of_buffer = rest.first().and_then(|(_, parsed)| buffer(parsed))?;
    let at = rest
        .iter()
        .position(|(_, parsed)| buffer(parsed).is_none())?;
    let from = rest.get(at..)?;
    let (_, parsed) = from.first()?;
    let class = parsed.class().filter(|_| parsed.is_standard())?;
    let is_its = family(class.name) == Some(Family::Deque)
        && value(class).is_some_and(|it| is_pointer_to(&of_buffer, &it));
    is_its.then_some(from)
}

/// The container that calls the allocator.
fn in_container(rest: &[(&Link, Parsed<'_>)], by_allocator: Option<&Unwrapped>) -> Option<Found> {
    let rest = from_deque(rest).unwrap_or(rest);
    let (link, parsed) = rest.first()?;
    if !parsed.is_standard() {
        return None;
    }
    let class = parsed.class()?;
    let family = family(class.name)?;
    // With debug information, the allocator's own functions are there, too.
    if by_allocator.is_none() && !link.is_symbol {
        return None;
    }
    let value = value(class);
    let show = people::cpp;
    let (element, node) = match (family, by_allocator, &value) {
        (_, Some(it), _) if it.kind == Node::Buckets => (it.element.clone(), Node::Buckets),
        (Family::Hash, None, Some(_)) if is_of_buckets(parsed.function.name) => {
            ("bucket".to_owned(), Node::Buckets)
        }
        // The pointers to a deque's blocks.
        (Family::Deque, Some(it), Some(value)) if is_pointer_to(&it.element, value) => {
            (format!("{value}*"), Node::Plain)
        }
        (Family::Deque, None, Some(value)) if parsed.function.name.ends_with("_map") => {
            (format!("{value}*"), Node::Plain)
        }
        (Family::Bits, ..) => ("unsigned long".to_owned(), Node::Plain),
        (Family::Tree | Family::List | Family::ForwardList | Family::Hash, _, Some(value)) => {
            (value.clone(), Node::One)
        }
        (Family::Tree | Family::List | Family::ForwardList | Family::Hash, Some(it), None) => {
            (it.element.clone(), it.kind)
        }
        (_, _, Some(value)) => (value.clone(), Node::Plain),
        (_, Some(it), None) => (it.element.clone(), it.kind),
        _ => return None,
    };
    let is_map_of_deque = family == Family::Deque && node == Node::Plain && element.ends_with('*');
    let mut name = None;
    let mut name_value = value;
    for (_, parsed) in rest {
        let Some(class) = parsed.class().filter(|_| parsed.is_standard()) else {
            break;
        };
        let Some(of_class) = containers::family(class.name) else {
            // `std::queue` and its like hold a container as their last argument.
            match containers::adapted(class, name.as_deref()) {
                Some(adaptor) => name = Some(adaptor),
                None => break,
            }
            continue;
        };
        let of_value = containers::value(class);
        if of_class != family {
            break;
        }
        match (&name_value, &of_value) {
            (Some(one), Some(other)) if show(one) != show(other) => break,
            (None, Some(_)) => name_value = of_value.clone(),
            _ => {}
        }
        if let Some(public) = containers::public(parsed, class) {
            name = Some(public);
        }
    }
    let name = match name {
        Some(name) => name,
        None => containers::assumed(class, family)?,
    };
    let part = match (family, node) {
        (Family::Tree | Family::Hash, Node::One) => " (nodes)",
        (Family::List | Family::ForwardList, Node::One) => " (nodes)",
        (_, Node::Buckets) => " (buckets)",
        (Family::Deque, _) if is_map_of_deque => " (map)",
        (Family::Deque, _) => " (blocks)",
        _ => "",
    };
    Some(Found {
        name: format!("{name}{part}"),
        element,
        node,
        is_container: true,
    })
}

/// Whether one type is a pointer to another.
fn is_pointer_to(pointer: &str, to: &str) -> bool {
    let inner = pointer.strip_suffix('*').map(people::cpp);
    inner.is_some_and(|it| it == people::cpp(to))
}

fn is_of_buckets(function: &str) -> bool {
    function.contains("_M_rehash")
        || function.contains("bucket")
        || function == "reserve"
        || function.contains("__rehash")
        || function.contains("__do_rehash")
}

/// A block outside of containers.
fn alone(
    rest: &[(&Link, Parsed<'_>)],
    by_allocator: Option<Unwrapped>,
    argument: Option<&str>,
) -> Option<Found> {
    let show = people::cpp;
    let found = |name, element: &str, node| {
        Some(Found {
            name,
            element: element.to_owned(),
            node,
            is_container: false,
        })
    };
    if let (Some(of), Some(_)) = (&by_allocator, argument) {
        let element = of.element.as_str();
        return match of.kind {
            Node::Shared => found(
                format!("std::shared_ptr<{}>", show(element)),
                element,
                of.kind,
            ),
            Node::Counters => found(
                format!("std::shared_ptr<{}> (control block)", show(element)),
                element,
                of.kind,
            ),
            Node::Plain => {
                let of_valarray = rest
                    .first()
                    .and_then(|(_, it)| it.class())
                    .is_some_and(|it| it.name == "valarray");
                let name = match of_valarray {
                    true => format!("std::valarray<{}>", show(element)),
                    false => show(element),
                };
                found(name, element, of.kind)
            }
            Node::One | Node::Buckets => found(show(element), element, of.kind),
        };
    }
    let (_, parsed) = rest.first()?;
    if !parsed.is_standard() {
        return None;
    }
    let class = parsed.class()?;
    let function = &parsed.function;
    let of_function = function.arguments.first().copied();
    let of_class = class.arguments.first().copied();
    match (class.name, function.name) {
        (_, "make_unique" | "make_unique_for_overwrite") => {
            let of = of_function?;
            let element = of.strip_suffix("[]").unwrap_or(of).trim_end();
            found(
                format!("std::unique_ptr<{}>", show(of).replace(" []", "[]")),
                element,
                Node::Plain,
            )
        }
        ("_Manager_external", _) => found("std::any".to_owned(), of_class?, Node::Plain),
        ("_Base_manager", _) => {
            let public = rest.iter().find_map(|(_, it)| {
                let class = it.class().filter(|_| it.is_in("std"))?;
                (class.name == "function").then(|| class.arguments.first().copied())?
            });
            let name = match public {
                Some(signature) => format!("std::function<{}>", show(signature)),
                None => "std::function".to_owned(),
            };
            found(name, of_class?, Node::Plain)
        }
        ("__shared_count", "__shared_count") => {
            let of = of_function?.strip_suffix('*')?.trim_end();
            let name = format!("std::shared_ptr<{}> (control block)", show(of));
            found(name, of, Node::Counters)
        }
        _ => None,
    }
}

/// Whether a function of a table of symbols has one call of an allocator, for storage of its own.
fn may_trust_symbol(sites: &[Site], (link, parsed): &(&Link, Parsed<'_>)) -> bool {
    let Some(site) = sites.get(link.call) else {
        return false;
    };
    site.allocator_calls == 1
        && (allocated(parsed).is_some()
            || containers::is_own_storage(parsed.function.name, parsed.class()))
}

/// Bytes of a node before its element, where the node's size is not known.
fn header(name: &str) -> u64 {
    match name {
        _ if name.starts_with("std::list<") => 16,
        _ if name.starts_with("std::forward_list<") => 8,
        _ if name.starts_with("std::unordered") => 8,
        _ => 32,
    }
}

/// The size of a type that is part of the language, on Linux with 64 bits.
pub(super) fn size_of(of: &str) -> Option<u64> {
    if of.ends_with('*') {
        return Some(8);
    }
    Some(match of {
        "char" | "signed char" | "unsigned char" | "bool" | "char8_t" => 1,
        "short" | "unsigned short" | "char16_t" => 2,
        "int" | "unsigned int" | "float" | "wchar_t" | "char32_t" => 4,
        "long" | "unsigned long" | "long long" | "unsigned long long" | "double" => 8,
        _ => return None,
    })
}
