//! The sums of each type.
//!
//! Stage: output. Must not know formats.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::join::histogram::range_of;
use crate::join::{Site, StackId, Totals, Usage};
use crate::output::label::Label;
use crate::output::metric::Metric;
use crate::output::report_input::ReportInput;
use crate::output::site_types::{Blocks, Elements, Number, Shares};
use crate::output::sum;
use crate::profile::Way;

/// The types of a run.
#[derive(Clone, Debug)]
pub struct TypesFound {
    /// The largest ones, the largest first, and what has no type.
    pub(in crate::output) rows: Vec<TypeRow>,
    /// The number of all types.
    pub(in crate::output) all: usize,
    /// What types are named by: the whole type, or its element.
    pub(in crate::output) by: Label,
    /// What they are ranked by.
    pub(in crate::output) metric: Metric,
    /// How they were found.
    pub(in crate::output) shares: Shares,
    /// Whether lifetimes were recorded.
    pub(in crate::output) has_lifetimes: bool,
}

/// A type, with the sums of its sites.
#[derive(Clone, Debug)]
pub(in crate::output) struct TypeRow {
    /// Its name, or what stands for it. Not safe to print.
    pub(in crate::output) name: String,
    /// Whether it is a type, and does not stand for what has none.
    pub(in crate::output) is_known: bool,
    /// The ways by which it was found.
    pub(in crate::output) ways: BTreeSet<Way>,
    /// The names of what the blocks hold. Not safe to print.
    pub(in crate::output) elements: BTreeSet<String>,
    /// Whether blocks have room for elements, and need not hold as many.
    pub(in crate::output) is_capacity: bool,
    pub(in crate::output) totals: Totals,
    pub(in crate::output) sites: u64,
    /// The elements, if they are known of all blocks.
    pub(in crate::output) counted: Counted,
    /// Freed blocks with a known lifetime, and the mean of these in nanoseconds.
    pub(in crate::output) lifetime: Option<(u64, u64)>,
    /// The stack that has most of the metric; the number of stacks that have some.
    pub(in crate::output) made_by: Option<StackId>,
    pub(in crate::output) stacks: u64,
}

/// The elements in the blocks of a type; `None` if they are not known of some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::output) struct Counted {
    pub(in crate::output) live: Option<Number>,
    pub(in crate::output) left: Option<Number>,
    pub(in crate::output) allocated: Option<Number>,
}

impl Counted {
    /// Those of some blocks.
    pub(in crate::output) fn of(&self, blocks: Blocks) -> Option<Number> {
        match blocks {
            Blocks::Live => self.live,
            Blocks::Left => self.left,
            Blocks::Allocated => self.allocated,
        }
    }

    fn add(&mut self, elements: Option<&Elements<'_>>, totals: &Totals) {
        for (sum, blocks, number) in [
            (&mut self.live, Blocks::Live, totals.live_allocations),
            (&mut self.left, Blocks::Left, totals.left_allocations),
            (&mut self.allocated, Blocks::Allocated, totals.allocations),
        ] {
            // What a site has not says nothing of what it would hold.
            if number > 0 {
                let more = elements.and_then(|it| it.count(totals, blocks));
                *sum = sum.zip(more).map(|(a, b)| a.and(b));
            }
        }
    }
}

/// A type while its sites are added.
struct Sum {
    row: TypeRow,
    totals: sum::Sum,
    /// The metric's value of each stack.
    of_stacks: HashMap<StackId, u64>,
    timed: f64,
    lived_ns: f64,
}

/// Finds the types of a profile: the `top` largest by a metric, and what has no type.
pub fn find(input: &ReportInput<'_>, by: Label, metric: Metric, top: Option<usize>) -> TypesFound {
    let mut sums: BTreeMap<(bool, &str), Sum> = BTreeMap::new();
    let mut has_lifetimes = false;
    for site in &input.profile.sites {
        let name = match by {
            Label::Element => input.element_name(site),
            _ => input.type_name(site),
        };
        let is_known = input.block_type(site).is_some();
        let sum = sums
            .entry((is_known, name))
            .or_insert_with(|| Sum::new(name, is_known));
        sum.add(input, site, metric);
        if let Some(usage) = input.profile.usage(site) {
            has_lifetimes = true;
            sum.live_for(usage);
        }
    }
    let mut rows: Vec<_> = sums
        .into_values()
        .map(Sum::finished)
        .filter(|row| metric.rank(&row.totals) > 0 || !row.is_known)
        .collect();
    // Equal ones stay in the order of their names.
    rows.sort_by_key(|row| std::cmp::Reverse(metric.rank(&row.totals)));
    let all = rows.iter().filter(|row| row.is_known).count();
    let mut left = top.unwrap_or(usize::MAX);
    rows.retain(|row| {
        let is_kept = !row.is_known || left > 0;
        left = left.saturating_sub(usize::from(row.is_known));
        is_kept
    });
    TypesFound {
        rows,
        all,
        by,
        metric,
        shares: input.type_shares(metric),
        has_lifetimes,
    }
}

impl Sum {
    fn new(name: &str, is_known: bool) -> Self {
        Self {
            row: TypeRow {
                name: name.to_owned(),
                is_known,
                ways: BTreeSet::new(),
                elements: BTreeSet::new(),
                is_capacity: false,
                totals: Totals::default(),
                sites: 0,
                counted: Counted {
                    live: Some(Number::default()),
                    left: Some(Number::default()),
                    allocated: Some(Number::default()),
                },
                lifetime: None,
                made_by: None,
                stacks: 0,
            },
            totals: sum::Sum::default(),
            of_stacks: HashMap::new(),
            timed: 0.0,
            lived_ns: 0.0,
        }
    }

    fn add(&mut self, input: &ReportInput<'_>, site: &Site, metric: Metric) {
        let row = &mut self.row;
        self.totals.add(&site.totals);
        row.sites += 1;
        let elements = Elements::of(input, site);
        row.counted.add(elements.as_ref(), &site.totals);
        if let Some(block_type) = input.block_type(site) {
            row.ways.insert(block_type.way);
            row.is_capacity |= block_type.is_capacity;
            if !row.elements.contains(&block_type.element) {
                row.elements.insert(block_type.element.clone());
            }
        }
        let value = self.of_stacks.entry(site.stack).or_default();
        *value = value.saturating_add(metric.rank(&site.totals));
    }

    /// Adds lifetimes. A bucket is at most a quarter wider than its beginning, so its middle is near all of its times.
    fn live_for(&mut self, usage: &Usage) {
        for bucket in &usage.lifetimes {
            let (from, to) = range_of(bucket.index);
            let blocks = bucket.blocks.count as f64;
            self.timed += blocks;
            self.lived_ns += blocks * (from as f64 / 2.0 + to as f64 / 2.0);
        }
    }

    fn finished(mut self) -> TypeRow {
        self.row.totals = self.totals.totals();
        let having = self.of_stacks.iter().filter(|it| *it.1 > 0);
        self.row.stacks = having.clone().count() as u64;
        let largest = having.max_by_key(|(stack, value)| (**value, std::cmp::Reverse(**stack)));
        self.row.made_by = largest.map(|it| *it.0);
        self.row.lifetime =
            (self.timed > 0.0).then(|| (self.timed as u64, (self.lived_ns / self.timed) as u64));
        self.row
    }
}
