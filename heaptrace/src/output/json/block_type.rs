//! The type of a site's blocks, in JSON.
//!
//! Stage: output. Field names and their order are stable.

use serde::Serialize;

use crate::join::{self, StackId};
use crate::output::report_input::ReportInput;
use crate::output::site_types::{Blocks, Elements, Number};

/// The smallest and the largest block.
#[derive(Serialize)]
pub(super) struct BlockSizes {
    smallest: u64,
    largest: u64,
}

impl From<join::BlockSizes> for BlockSizes {
    fn from(sizes: join::BlockSizes) -> Self {
        Self {
            smallest: sizes.smallest,
            largest: sizes.largest,
        }
    }
}

/// The type of the blocks.
#[derive(Serialize)]
pub(in crate::output) struct BlockType<'a> {
    name: &'a str,
    element: &'a str,
    /// The elements of each block. Absent if blocks of different sizes have different numbers of them, and if they are unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    way: &'static str,
    /// Whether a block has room for so many elements, and need not hold them.
    is_capacity: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    element_bytes: Option<u64>,
    #[serde(flatten)]
    elements: Option<Counts>,
}

/// The elements in all blocks of the site.
#[derive(Serialize)]
struct Counts {
    #[serde(skip_serializing_if = "Option::is_none")]
    live_elements: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    left_at_exit_elements: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    allocated_elements: Option<u64>,
    #[serde(flatten)]
    errors: Option<Errors>,
}

/// Standard errors of a sampled run.
#[derive(Serialize)]
struct Errors {
    live_elements_error: u64,
    left_at_exit_elements_error: u64,
    allocated_elements_error: u64,
}

impl<'a> BlockType<'a> {
    pub(super) fn of(input: &ReportInput<'a>, site: &join::Site) -> Option<Self> {
        let block_type = input.block_type(site)?;
        let elements = Elements::of(input, site);
        let is_sampled = input.profile.info.mode.is_sampled();
        Some(Self {
            name: &block_type.name,
            element: &block_type.element,
            count: elements.and_then(|it| it.each),
            way: block_type.way.name(),
            is_capacity: block_type.is_capacity,
            element_bytes: Some(block_type.element_bytes).filter(|it| *it > 0),
            elements: elements.map(|it| Counts::of(&it, site, is_sampled)),
        })
    }
}

impl<'a> BlockType<'a> {
    /// The type of one block, which a stack has allocated.
    pub(in crate::output) fn of_block(
        input: &ReportInput<'a>,
        stack: StackId,
        size: u64,
    ) -> Option<Self> {
        let block_type = input.symbols.types.of(stack)?;
        Some(Self {
            name: &block_type.name,
            element: &block_type.element,
            count: block_type.elements(1, size),
            way: block_type.way.name(),
            is_capacity: block_type.is_capacity,
            element_bytes: Some(block_type.element_bytes).filter(|it| *it > 0),
            elements: None,
        })
    }
}

impl Counts {
    fn of(elements: &Elements<'_>, site: &join::Site, is_sampled: bool) -> Self {
        let [live, left, allocated] = [Blocks::Live, Blocks::Left, Blocks::Allocated]
            .map(|blocks| elements.count(&site.totals, blocks));
        let value = |number: Option<Number>| Some(number?.value);
        let error = |number: Option<Number>| number.map_or(0, |it| it.error);
        Self {
            live_elements: value(live),
            left_at_exit_elements: value(left),
            allocated_elements: value(allocated),
            errors: is_sampled.then(|| Errors {
                live_elements_error: error(live),
                left_at_exit_elements_error: error(left),
                allocated_elements_error: error(allocated),
            }),
        }
    }
}
