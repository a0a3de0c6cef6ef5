//! The classes of containers in libstdc++ and libc++.
//!
//! Stage: types. A container consists of several classes, of which one is public. Must not know blocks.

use super::parsed::Parsed;
use super::people;
use super::text::{Segment, first_argument, segments};

/// Classes with the same storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Vector,
    Bits,
    Deque,
    List,
    ForwardList,
    Tree,
    Hash,
    String,
    Valarray,
}

/// The family of a class of the standard library.
pub(super) fn family(class: &str) -> Option<Family> {
    Some(match class {
        "_Vector_base" | "vector" | "_Vector_impl" | "__split_buffer" | "__vector_base" => {
            Family::Vector
        }
        "_Bvector_base" => Family::Bits,
        "_Deque_base" | "deque" | "__deque_base" => Family::Deque,
        "_List_base" | "list" | "__list_imp" => Family::List,
        "_Fwd_list_base" | "forward_list" | "__forward_list_base" => Family::ForwardList,
        "_Rb_tree"
        | "_Reuse_or_alloc_node"
        | "_Alloc_node"
        | "_Auto_node"
        | "map"
        | "multimap"
        | "set"
        | "multiset"
        | "__tree" => Family::Tree,
        "_Hashtable" | "_Hashtable_alloc" | "_Hashtable_base" | "_Map_base" | "_Insert"
        | "_Insert_base" | "_Scoped_node" | "_ReuseOrAllocNode" | "_AllocNode" | "_AllocNode "
        | "unordered_map" | "unordered_multimap" | "unordered_set" | "unordered_multiset"
        | "__hash_table" => Family::Hash,
        "basic_string" | "string" | "wstring" | "_Alloc_hider" => Family::String,
        "valarray" => Family::Valarray,
        _ => return None,
    })
}

/// The element of a class; `None` if its arguments do not tell.
pub(super) fn value(class: &Segment<'_>) -> Option<String> {
    let argument = |index: usize| class.arguments.get(index).map(|it| (*it).to_owned());
    let pair = || {
        let (key, mapped) = (class.arguments.first()?, class.arguments.get(1)?);
        Some(format!("std::pair<{key} const, {mapped}>"))
    };
    match class.name {
        "vector" if class.arguments.first() == Some(&"bool") => Some("unsigned long".to_owned()),
        "map" | "multimap" | "unordered_map" | "unordered_multimap" => pair(),
        "_Rb_tree" | "_Hashtable" | "_Map_base" | "_Insert" | "_Insert_base" => argument(1),
        "__tree" | "__hash_table" => {
            let first = class.arguments.first()?;
            let parts = segments(first);
            match parts.last() {
                Some(last) if matches!(last.name, "__value_type" | "__hash_value_type") => {
                    let (key, mapped) = (last.arguments.first()?, last.arguments.get(1)?);
                    Some(format!("std::pair<{key} const, {mapped}>"))
                }
                _ => argument(0),
            }
        }
        "string" => Some("char".to_owned()),
        "wstring" => Some("wchar_t".to_owned()),
        "_Hashtable_alloc" => {
            // Its argument is an allocator of nodes.
            let node = first_argument(class.arguments.first()?)?;
            first_argument(node).map(str::to_owned)
        }
        "__split_buffer" => argument(0).map(|it| it.trim_end_matches('&').trim_end().to_owned()),
        "_Vector_base"
        | "deque"
        | "_Deque_base"
        | "list"
        | "_List_base"
        | "forward_list"
        | "_Fwd_list_base"
        | "vector"
        | "set"
        | "multiset"
        | "unordered_set"
        | "unordered_multiset"
        | "basic_string"
        | "valarray"
        | "__list_imp"
        | "__deque_base"
        | "__vector_base"
        | "__forward_list_base" => argument(0),
        _ => None,
    }
}

/// The name of a public class; `None` for an internal one.
pub(super) fn public(parsed: &Parsed<'_>, class: &Segment<'_>) -> Option<String> {
    let is_public = matches!(
        class.name,
        "vector"
            | "deque"
            | "list"
            | "forward_list"
            | "map"
            | "multimap"
            | "set"
            | "multiset"
            | "unordered_map"
            | "unordered_multimap"
            | "unordered_set"
            | "unordered_multiset"
            | "basic_string"
            | "string"
            | "wstring"
            | "valarray"
    );
    // Nested classes of a container are named after it.
    (is_public && parsed.scope.len() == 2).then(|| named(class.name, &class.arguments))
}

fn named(name: &str, arguments: &[&str]) -> String {
    match arguments.is_empty() {
        true => format!("std::{name}"),
        false => people::cpp(&format!("std::{name}<{}>", arguments.join(", "))),
    }
}

/// The name of the public class that an internal one stands for, where no function of the public class is on the stack.
pub(super) fn assumed(class: &Segment<'_>, family: Family) -> Option<String> {
    let first = class.arguments.first().copied();
    match (family, class.name) {
        (Family::Bits, _) => Some("std::vector<bool>".to_owned()),
        (Family::Vector, _) => Some(named("vector", &[first?])),
        (Family::Deque, _) => Some(named("deque", &[first?])),
        (Family::List, _) => Some(named("list", &[first?])),
        (Family::ForwardList, _) => Some(named("forward_list", &[first?])),
        (Family::Tree, "_Rb_tree") | (Family::Hash, "_Hashtable" | "_Map_base") => {
            let (key, value) = (first?, class.arguments.get(1).copied()?);
            let (set, map) = match family {
                Family::Tree => ("set", "map"),
                _ => ("unordered_set", "unordered_map"),
            };
            if key == value {
                return Some(named(set, &[key]));
            }
            let mapped = segments(value);
            let mapped = mapped.last()?.arguments.get(1).copied()?;
            Some(named(map, &[key, mapped]))
        }
        (Family::Tree, "__tree") | (Family::Hash, "__hash_table" | "_Hashtable_alloc") => {
            let value = value(class)?;
            let parts = segments(&value);
            let pair = parts.last().filter(|it| it.name == "pair");
            let (set, map) = match family {
                Family::Tree => ("set", "map"),
                _ => ("unordered_set", "unordered_map"),
            };
            match pair.map(|it| it.arguments.as_slice()) {
                Some([key, mapped]) if key.ends_with(" const") => {
                    Some(named(map, &[key.trim_end_matches(" const"), mapped]))
                }
                _ => Some(named(set, &[&value])),
            }
        }
        _ => None,
    }
}

/// The name of an adaptor over a container.
pub(super) fn adapted(class: &Segment<'_>, over: Option<&str>) -> Option<String> {
    let is_adaptor = matches!(class.name, "queue" | "stack" | "priority_queue");
    let [element, container, ..] = class.arguments.as_slice() else {
        return None;
    };
    let is_over = over.is_some_and(|over| over == people::cpp(container));
    (is_adaptor && is_over)
        .then(|| named(class.name, &class.arguments))
        .or_else(|| {
            let plain = format!("{}<{}>", class.name, people::cpp(element));
            let default = match class.name {
                "queue" | "stack" => format!("std::deque<{}>", people::cpp(element)),
                "priority_queue" => format!("std::vector<{}>", people::cpp(element)),
                _ => return None,
            };
            (over == Some(&default)).then(|| format!("std::{plain}"))
        })
}

/// Whether a function always allocates storage of its own class, so that the one call of an allocator in it is for that.
pub(super) fn is_own_storage(function: &str, class: Option<&Segment<'_>>) -> bool {
    const NAMES: [&str; 31] = [
        "_M_realloc_insert",
        "_M_realloc_append",
        "_M_fill_insert",
        "_M_default_append",
        "_M_range_insert",
        "_M_create",
        "_M_allocate",
        "_M_allocate_and_copy",
        "_M_allocate_node",
        "_M_allocate_buckets",
        "_M_allocate_map",
        "_M_create_storage",
        "_M_mutate",
        "_M_construct",
        "_M_assign",
        "_M_append",
        "_M_get_node",
        "_M_create_node",
        "_M_rehash_aux",
        "_M_rehash",
        "_M_emplace_hint_unique",
        "_M_emplace_unique",
        "_M_emplace_equal",
        "_M_insert_",
        "_M_reallocate_map",
        "_M_copy_data",
        "__push_back_slow_path",
        "__emplace_back_slow_path",
        "__append",
        "__grow_by",
        "reserve",
    ];
    NAMES.contains(&function) || class.is_some_and(|it| it.name == function && it.name == "vector")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the element of each class is found in its arguments.
    #[test]
    fn elements_are_in_arguments() {
        let of = |text: &str| value(segments(text).last().unwrap());
        for (class, element) in [
            ("std::vector<int, std::allocator<int> >", "int"),
            ("std::vector<bool, std::allocator<bool> >", "unsigned long"),
            ("std::map<int, Order>", "std::pair<int const, Order>"),
            (
                "std::_Rb_tree<int, std::pair<int const, Order>, X>",
                "std::pair<int const, Order>",
            ),
            (
                "std::__tree<std::__value_type<int, Order>, C, A>",
                "std::pair<int const, Order>",
            ),
            (
                "std::__detail::_Hashtable_alloc<std::allocator<std::__detail::_Hash_node<int, false> > >",
                "int",
            ),
            ("std::__split_buffer<int, std::allocator<int>&>", "int"),
        ] {
            assert_eq!(of(class).as_deref(), Some(element), "{class}");
        }
        assert_eq!(of("std::_Alloc_node"), None);
    }
}
