//! Tests of the rules, with stacks written by hand.

mod cpp;
mod files;
mod qt;
mod results;
mod runtimes;
mod rust;
mod vtables;

use super::chain::{Chain, Link, Sizes};
use super::decide::decide;
use super::protocol::{Site, SizedType};
use crate::join::BlockSizes;
use crate::profile::{BlockType, Way};

/// A stack of C++ functions, innermost first; `|` begins another call.
fn cpp_stack(functions: &[&str]) -> Chain {
    let mut chain = Chain {
        sites: vec![Site::default()],
        ..Chain::default()
    };
    for name in functions {
        if *name == "|" {
            chain.sites.push(Site::default());
            continue;
        }
        chain.links.push(Link {
            name: (*name).to_owned(),
            call: chain.sites.len() - 1,
            ..Link::default()
        });
    }
    chain
}

/// Blocks of one size.
fn of_size(bytes: u64) -> Sizes {
    Sizes {
        ends: Some(BlockSizes {
            smallest: bytes,
            largest: bytes,
        }),
        sum: Some((1, bytes)),
    }
}

fn sized(name: &str, bytes: u64) -> SizedType {
    SizedType {
        name: name.to_owned(),
        bytes,
        ..SizedType::default()
    }
}

/// The name and the element.
fn shown(found: Option<BlockType>) -> (String, String) {
    found.map_or_else(Default::default, |it| (it.name, it.element))
}

fn pair(name: &str, element: &str) -> (String, String) {
    (name.to_owned(), element.to_owned())
}
