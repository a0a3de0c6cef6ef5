//! The functions that a stack consists of, with what the reader found about each, innermost first.
//!
//! Stage: types. Plain values, which tests write by hand. Must not know where they come from.

use std::collections::BTreeMap;

use super::protocol::{Site, SizedType};
use crate::join::BlockSizes;

/// Most functions whose types are looked at for sizes. The element and its node are those of the innermost ones.
const MAX_SIZED: usize = 48;

/// A function of a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Link {
    /// Its name with template arguments, without parameters. C++: with its scope.
    pub(super) name: String,
    /// The namespaces and types that a Rust function is in.
    pub(super) scope: String,
    /// The file that it was written in.
    pub(super) file: String,
    /// The types that its templates are made for.
    pub(super) parameters: Vec<SizedType>,
    pub(super) is_rust: bool,
    /// Whether the name is from a table of symbols. Then functions may be inlined that are not named.
    pub(super) is_symbol: bool,
    /// Whether it left the stack by a tail call to the allocator.
    pub(super) is_tail: bool,
    /// The number of the call that it belongs to. Functions of one number are inlined into each other.
    pub(super) call: usize,
}

/// A stack.
#[derive(Clone, Debug, Default)]
pub(super) struct Chain {
    pub(super) links: Vec<Link>,
    /// What is known of each call, innermost first.
    pub(super) sites: Vec<Site>,
}

/// The types that any of these functions is made for, by name for people.
pub(super) fn known_sizes(links: &[Link], show: fn(&str) -> String) -> BTreeMap<String, u64> {
    let mut known = BTreeMap::new();
    let innermost = links.iter().take(MAX_SIZED);
    for parameter in innermost.flat_map(|it| &it.parameters) {
        if parameter.bytes > 0 {
            known
                .entry(show(&parameter.name))
                .or_insert(parameter.bytes);
        }
    }
    known
}

/// The sizes of the blocks of a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sizes {
    /// The smallest and the largest, if they are known.
    pub(super) ends: Option<BlockSizes>,
    /// How many blocks there were and how many bytes they had together, if all were recorded.
    pub(super) sum: Option<(u64, u64)>,
}

impl Sizes {
    /// Whether each block may have this size.
    pub(super) fn may_be(&self, bytes: u64) -> bool {
        let by_ends = self
            .ends
            .is_none_or(|it| it.smallest == bytes && it.largest == bytes);
        let by_sum = self
            .sum
            .is_none_or(|(blocks, sum)| blocks.checked_mul(bytes) == Some(sum));
        by_ends && by_sum
    }

    /// Whether each block may consist of a header and one or several elements.
    pub(super) fn may_be_several(&self, header: u64, element: u64) -> bool {
        let is_whole = |bytes: u64, headers: u64| {
            let of_elements = bytes.checked_sub(headers);
            element > 0 && of_elements.is_some_and(|it| it.is_multiple_of(element))
        };
        let by_ends = self
            .ends
            .is_none_or(|it| is_whole(it.smallest, header) && is_whole(it.largest, header));
        let by_sum = self
            .sum
            .is_none_or(|(blocks, sum)| is_whole(sum, header.saturating_mul(blocks)));
        element > 0 && by_ends && by_sum
    }

    /// Whether each block may have at least this size.
    pub(super) fn may_be_at_least(&self, bytes: u64) -> bool {
        self.ends.is_none_or(|it| it.smallest >= bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exactly(sizes: &[u64]) -> Sizes {
        let ends = BlockSizes {
            smallest: sizes.iter().copied().min().unwrap(),
            largest: sizes.iter().copied().max().unwrap(),
        };
        Sizes {
            ends: Some(ends),
            sum: Some((sizes.len() as u64, sizes.iter().sum())),
        }
    }

    /// Check that sizes exclude what does not divide, by the sum and by the ends.
    #[test]
    fn sizes_exclude_what_does_not_fit() {
        let sizes = exactly(&[80, 160]);
        assert!(sizes.may_be_several(0, 40) && !sizes.may_be_several(0, 48));
        assert!(!sizes.may_be(80) && exactly(&[40, 40]).may_be(40));
        assert!(exactly(&[208]).may_be_several(8, 40) && !exactly(&[208]).may_be_several(0, 40));
        assert!(!exactly(&[40, 50, 80]).may_be_several(0, 40), "by the sum");
        assert!(sizes.may_be_at_least(80) && !sizes.may_be_at_least(81));
        let unknown = Sizes::default();
        assert!(unknown.may_be(1) && unknown.may_be_several(0, 7));
        assert!(!unknown.may_be_several(0, 0));
    }
}
