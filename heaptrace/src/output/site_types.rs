//! The types of blocks, for outputs: the names that sites are grouped by, how types were found, and how many elements blocks have.
//!
//! Stage: output. Must not know formats.

use super::metric::Metric;
use super::report_input::ReportInput;
use super::type_name;
use crate::join::{Errors, Kind, Site, Totals};
use crate::profile::{BlockType, Way};
use crate::text::share;

/// What stands for the type of blocks whose type is not known.
pub(super) const UNKNOWN: &str = "(unknown)";

/// What stands for the type of mappings, which are no blocks.
pub(super) const MAPPED: &str = "(mapped memory)";

impl<'a> ReportInput<'a> {
    /// The type of a site's blocks, if it is known.
    pub(super) fn block_type(&self, site: &Site) -> Option<&'a BlockType> {
        match site.kind {
            Kind::Heap => self.symbols.types.of(site.stack),
            Kind::Mapped => None,
        }
    }

    /// Whether any type is known.
    pub(super) fn has_types(&self) -> bool {
        !self.symbols.types.of_stacks.is_empty()
    }

    /// The name of the type of a site's blocks, or what stands for it. Not safe to print.
    pub(super) fn type_name(&self, site: &Site) -> &'a str {
        self.block_type(site)
            .map_or_else(|| no_type(site), |it| &it.name)
    }

    /// The name of what a site's blocks hold, or what stands for it. Not safe to print.
    pub(super) fn element_name(&self, site: &Site) -> &'a str {
        self.block_type(site)
            .map_or_else(|| no_type(site), |it| &it.element)
    }

    /// The name of a type in at most `width` characters, unless all names are shown in full.
    pub fn fitted_type(&self, name: &str, width: usize) -> String {
        match self.full_names {
            true => name.to_owned(),
            false => type_name::fitted(name, width),
        }
    }

    /// By which ways the types were found, and how much is unknown, each with its share of a metric.
    pub(super) fn type_shares(&self, metric: Metric) -> Shares {
        let mut shares = Shares::default();
        for site in &self.profile.sites {
            let value = metric.of(&site.totals);
            let way = self.block_type(site).map(|it| it.way);
            let sum = match (way, site.kind) {
                (Some(way), _) => shares.ways.get_mut(way as usize),
                (None, Kind::Heap) => Some(&mut shares.unknown),
                (None, Kind::Mapped) => Some(&mut shares.mapped),
            };
            if let Some(sum) = sum {
                *sum = sum.saturating_add(value);
            }
        }
        shares
    }
}

fn no_type(site: &Site) -> &'static str {
    match site.kind {
        Kind::Heap => UNKNOWN,
        Kind::Mapped => MAPPED,
    }
}

/// How a type was found, for people: `by its frames`.
pub(super) fn found_by(way: Way) -> &'static str {
    match way {
        Way::Frames => "by its frames",
        Way::AllocType => "by the compiler's note",
        Way::Constructor => "by its constructor",
        Way::Dataflow => "by where it is stored",
        Way::Symbol => "by its symbol",
        Way::Vtable => "by its vtable",
        Way::Runtime => "by its runtime",
    }
}

/// How much of a metric has types by each way, and none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shares {
    pub(super) ways: [u64; Way::ALL.len()],
    pub(super) unknown: u64,
    pub(super) mapped: u64,
}

impl Shares {
    /// The sum of all.
    pub(super) fn all(&self) -> u64 {
        let parts = self.ways.iter().chain([&self.unknown, &self.mapped]);
        parts.fold(0, |sum, it| sum.saturating_add(*it))
    }

    /// The shares in words: `61.2 % by its frames, 14.1 % by its constructor, (unknown) 24.7 %`.
    pub(super) fn words(&self) -> String {
        let all = self.all();
        let ways = Way::ALL.into_iter().zip(self.ways);
        let mut parts: Vec<_> = ways
            .filter(|(_, value)| *value > 0)
            .map(|(way, value)| format!("{} {}", share(value, all), found_by(way)))
            .collect();
        if self.mapped > 0 {
            parts.push(format!("{MAPPED} {}", share(self.mapped, all)));
        }
        parts.push(format!("{UNKNOWN} {}", share(self.unknown, all)));
        parts.join(", ")
    }
}

/// A number of elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Number {
    pub(super) value: u64,
    /// Its standard error; 0 in an exact run.
    pub(super) error: u64,
}

impl Number {
    /// The sum of two numbers.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            value: self.value.saturating_add(other.value),
            error: Errors::both(self.error, other.error),
        }
    }
}

/// The blocks whose elements are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blocks {
    Live,
    Left,
    Allocated,
}

impl Blocks {
    fn metrics(self) -> (Metric, Metric) {
        match self {
            Self::Live => (Metric::LiveAllocations, Metric::LiveBytes),
            Self::Left => (Metric::LeftAllocations, Metric::LeftBytes),
            Self::Allocated => (Metric::TotalAllocations, Metric::TotalBytes),
        }
    }
}

/// The elements of a site's blocks.
///
/// They are known if the size of an element is, and if the smallest and the largest block hold a whole number of them. Then each block has
/// the bytes of its header, and its other bytes are elements. In an exact run, the sum must be a whole number, too.
#[derive(Clone, Copy, Debug)]
pub(super) struct Elements<'a> {
    block_type: &'a BlockType,
    /// The elements of each block, if all blocks have the same size.
    pub(super) each: Option<u64>,
    is_sampled: bool,
}

impl<'a> Elements<'a> {
    /// The elements of a site, if they are known.
    pub(super) fn of(input: &ReportInput<'a>, site: &Site) -> Option<Self> {
        let block_type = input.block_type(site)?;
        let sizes = site.block_sizes?;
        let least = block_type.elements(1, sizes.smallest)?;
        block_type.elements(1, sizes.largest)?;
        Some(Self {
            block_type,
            each: sizes.same().map(|_| least),
            is_sampled: input.profile.info.mode.is_sampled(),
        })
    }

    /// The elements in some blocks.
    pub(super) fn count(&self, totals: &Totals, of: Blocks) -> Option<Number> {
        let (blocks, bytes) = of.metrics();
        let (number, size) = (blocks.of(totals), bytes.of(totals));
        if !self.is_sampled {
            let value = self.block_type.elements(number, size)?;
            return Some(Number { value, error: 0 });
        }
        let BlockType {
            element_bytes,
            header_bytes,
            ..
        } = self.block_type;
        // Estimates are rounded, so they need not be whole elements.
        let size = size.saturating_sub(header_bytes.saturating_mul(number));
        let nearest = size.saturating_add(element_bytes / 2);
        Some(Number {
            value: nearest.checked_div(*element_bytes)?,
            error: bytes.error(totals).div_ceil(*element_bytes),
        })
    }
}
