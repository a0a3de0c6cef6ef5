//! Joins the stacks or groups of two profiles by their names.
//!
//! Stage: output. Addresses, lines, and ids of processes differ between builds and runs, so stacks are the same if their functions are.
//! Knows no format.

use std::collections::HashMap;

use super::change::{Change, Fate};
use super::side::Side;
use crate::join::Totals;
use crate::output::grouping::Grouping;
use crate::output::groups::all_groups;
use crate::output::label::Label;
use crate::output::metric::Metric;
use crate::output::sum;

/// A stack or a group of one or both profiles.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// Its name: the innermost function of the stack, or the group. Safe to print.
    pub(super) name: String,
    /// The functions that called it, the innermost one first. Safe to print. Empty for groups.
    pub(super) callers: Vec<String>,
    pub(super) old: Totals,
    pub(super) new: Totals,
    pub(super) change: Change,
}

/// Stacks by the names of their functions: each name, and each stack below another one, has a number.
#[derive(Default)]
struct Names {
    names: Vec<String>,
    ids: HashMap<String, u32>,
    /// The caller's stack, and the name.
    stacks: Vec<(u32, u32)>,
    stack_ids: HashMap<(u32, u32), u32>,
}

/// The caller of the outermost function.
const NONE: u32 = u32::MAX;

impl Names {
    fn below(&mut self, caller: u32, name: String) -> u32 {
        let next = self.names.len() as u32;
        let name = *self.ids.entry(name).or_insert_with_key(|name| {
            self.names.push(name.clone());
            next
        });
        let next = self.stacks.len() as u32;
        *self.stack_ids.entry((caller, name)).or_insert_with(|| {
            self.stacks.push((caller, name));
            next
        })
    }

    /// The names of a stack, the innermost first.
    fn of(&self, mut stack: u32) -> Vec<String> {
        let mut names = Vec::new();
        while let Some((caller, name)) = self.stacks.get(stack as usize) {
            names.extend(self.names.get(*name as usize).cloned());
            stack = *caller;
        }
        names
    }
}

/// The sums of both profiles by key.
type Sums<K> = HashMap<K, [sum::Sum; 2]>;

/// The rows of two profiles: the largest changes first, and those that can be chance after those that can't.
pub(super) fn rows(old: &Side<'_>, new: &Side<'_>, metric: Metric, by: Label) -> Vec<Row> {
    let row = |name: String, callers: Vec<String>, sums: [sum::Sum; 2]| {
        let [was, is] = sums.map(|it| it.totals());
        Row {
            name,
            callers,
            old: was,
            new: is,
            change: Change::of(metric, (&was, &old.intervals), (&is, &new.intervals)),
        }
    };
    let mut rows: Vec<_> = if by == Label::Stack {
        let mut names = Names::default();
        let mut sums = Sums::new();
        for (index, side) in [old, new].into_iter().enumerate() {
            stacks(side, index, &mut names, &mut sums);
        }
        let rows = sums.into_iter().map(|(stack, sums)| {
            let mut names = names.of(stack).into_iter();
            let name = names.next().unwrap_or_default();
            row(name, names.collect(), sums)
        });
        rows.collect()
    } else {
        let mut sums = Sums::new();
        for (index, side) in [old, new].into_iter().enumerate() {
            groups(side, index, metric, by, &mut sums);
        }
        let rows = sums.into_iter();
        rows.map(|(name, sums)| row(name, Vec::new(), sums))
            .collect()
    };
    rows.retain(|row| metric.rank(&row.old) > 0 || metric.rank(&row.new) > 0);
    let key = |row: &Row| {
        (
            row.change.is_noise(),
            std::cmp::Reverse(row.change.value().abs()),
        )
    };
    rows.sort_by(|a, b| {
        let names = || (&a.name, &a.callers).cmp(&(&b.name, &b.callers));
        key(a).cmp(&key(b)).then_with(names)
    });
    rows
}

fn stacks(side: &Side<'_>, index: usize, names: &mut Names, sums: &mut Sums<u32>) {
    let input = &side.input;
    // Sites of different processes and threads have the same stacks.
    let mut known = HashMap::new();
    for site in &input.profile.sites {
        let stack = *known.entry(site.stack).or_insert_with(|| {
            let frames = input.stack(site.stack);
            let user = input.user_frame(site.stack, &frames);
            let frames = input.without_interpreter(site.stack, &frames, user);
            let mark = input.incomplete_mark(site.stack);
            let mut stack = NONE;
            if let Some(mark) = mark.or(frames.is_empty().then_some("[no stack]")) {
                stack = names.below(stack, mark.to_owned());
            }
            for frame in frames.iter().rev() {
                stack = names.below(stack, frame.label());
            }
            stack
        });
        if let Some(sum) = sums.entry(stack).or_default().get_mut(index) {
            sum.add(&site.totals);
        }
    }
}

fn groups(side: &Side<'_>, index: usize, metric: Metric, by: Label, sums: &mut Sums<String>) {
    let grouping = Grouping {
        by,
        metric,
        cumulative: false,
        top: None,
    };
    for group in all_groups(&side.input, grouping) {
        let title = group.source_title(usize::MAX);
        let title = title.unwrap_or_else(|| crate::text::escape(&group.title()).into_owned());
        if let Some(sum) = sums.entry(title).or_default().get_mut(index) {
            sum.add(&group.totals);
        }
    }
}

/// How many rows have a fate, and their change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) rows: u64,
    pub(super) change: i128,
}

/// What happened in all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Summary {
    /// The rows of each fate, in the order of [`Fate::ALL`], without noise.
    pub(super) by_fate: [Sum; Fate::ALL.len()],
    /// The rows that chance can explain.
    pub(super) noise: Sum,
    /// What is in both runs.
    pub(super) in_common: u64,
}

impl Summary {
    pub(super) fn of(rows: &[Row]) -> Self {
        let mut summary = Self::default();
        for Row { change, .. } in rows {
            summary.in_common = summary.in_common.saturating_add(change.in_common());
            let fate = Fate::ALL.into_iter().position(|it| it == change.fate());
            let sum = match fate.and_then(|fate| summary.by_fate.get_mut(fate)) {
                Some(sum) if !change.is_noise() => sum,
                _ => &mut summary.noise,
            };
            sum.rows += 1;
            sum.change += change.value();
        }
        summary
    }
}
