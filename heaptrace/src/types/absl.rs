//! The containers of abseil, by the functions around the call of an allocator.
//!
//! Stage: types. Their storage is allocated as memory without a type; the class that asks for it has the type in its arguments. Must not know how
//! the functions were found.

use super::parsed::Parsed;
use super::people;
use super::text::{Segment, segments};

/// What a block of a container holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Storage {
    /// The container, for people.
    pub(super) name: String,
    /// What it holds several of.
    pub(super) element: String,
}

/// The container that functions belong to, which are innermost first.
pub(super) fn storage<'p, 'c: 'p>(
    functions: impl Iterator<Item = &'p Parsed<'c>>,
) -> Option<Storage> {
    let own = functions.take_while(|it| it.is_in("absl") || it.is_standard());
    own.filter_map(Parsed::class).find_map(|class| {
        let of = segments(class.arguments.first()?).pop()?;
        match class.name {
            "raw_hash_set" | "raw_hash_map" => of_hash_table(&of),
            "btree" | "btree_node" | "btree_container" => of_tree(&of),
            _ => None,
        }
    })
}

/// By what a hash table is made for.
fn of_hash_table(policy: &Segment<'_>) -> Option<Storage> {
    let (name, element) = match (policy.name, policy.arguments.as_slice()) {
        ("FlatHashMapPolicy", [key, mapped]) => (named("flat_hash_map", policy), pair(key, mapped)),
        ("FlatHashSetPolicy", [key]) => (named("flat_hash_set", policy), (*key).to_owned()),
        // The elements are in blocks of their own.
        ("NodeHashMapPolicy", [key, mapped]) => (
            named("node_hash_map", policy) + " (slots)",
            format!("{}*", pair(key, mapped)),
        ),
        ("NodeHashSetPolicy", [key]) => (
            named("node_hash_set", policy) + " (slots)",
            format!("{key}*"),
        ),
        _ => return None,
    };
    Some(Storage { name, element })
}

/// By what a tree is made for.
fn of_tree(parameters: &Segment<'_>) -> Option<Storage> {
    let is_multi = parameters.arguments.last() == Some(&"true");
    let first = |count: usize| Segment {
        name: parameters.name,
        arguments: parameters.arguments.iter().take(count).copied().collect(),
    };
    let (name, element) = match (parameters.name, parameters.arguments.as_slice()) {
        ("map_params", [key, mapped, ..]) => {
            let class = if is_multi {
                "btree_multimap"
            } else {
                "btree_map"
            };
            (named(class, &first(2)), pair(key, mapped))
        }
        ("set_params", [key, ..]) => {
            let class = if is_multi {
                "btree_multiset"
            } else {
                "btree_set"
            };
            (named(class, &first(1)), (*key).to_owned())
        }
        _ => return None,
    };
    Some(Storage {
        name: name + " (nodes)",
        element,
    })
}

fn pair(key: &str, mapped: &str) -> String {
    format!("std::pair<{key} const, {mapped}>")
}

fn named(class: &str, of: &Segment<'_>) -> String {
    people::cpp(&format!("absl::{class}<{}>", of.arguments.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::parsed::parsed;

    fn found(functions: &[&str]) -> Option<(String, String)> {
        let all: Vec<Parsed<'_>> = functions.iter().filter_map(|it| parsed(it)).collect();
        let found = storage(all.iter())?;
        Some((found.name, found.element))
    }

    /// Check that the containers are named by their own class, and that a program's functions end the search.
    #[test]
    fn containers_are_named() {
        let inside = |class: &str| {
            let method = format!("absl::debian3::container_internal::{class}::resize");
            found(&[
                "absl::debian3::container_internal::Allocate<8ul, std::allocator<int> >",
                &method,
                "main",
            ])
        };
        for (class, name, element) in [
            (
                "raw_hash_set<absl::debian3::container_internal::FlatHashMapPolicy<int, app::Order>, H, E, A>",
                "absl::flat_hash_map<int, app::Order>",
                "std::pair<int const, app::Order>",
            ),
            (
                "raw_hash_set<absl::container_internal::NodeHashSetPolicy<app::Order>, H, E, A>",
                "absl::node_hash_set<app::Order> (slots)",
                "app::Order*",
            ),
            (
                "btree<absl::container_internal::map_params<int, app::Order, C, A, 256, false> >",
                "absl::btree_map<int, app::Order> (nodes)",
                "std::pair<int const, app::Order>",
            ),
            (
                "btree_node<absl::container_internal::set_params<long, C, A, 256, true> >",
                "absl::btree_multiset<long> (nodes)",
                "long",
            ),
        ] {
            assert_eq!(inside(class), Some((name.to_owned(), element.to_owned())));
        }
        let behind = "absl::container_internal::btree<absl::container_internal::set_params<long, C, A, 256, true> >::f";
        assert_eq!(found(&["absl::Allocate", "main", behind]), None);
        assert_eq!(inside("raw_hash_set<app::Policy<int>, H, E, A>"), None);
    }
}
