//! What rounding wastes by size class of the allocator, for people.
//!
//! Stage: output.

use std::io;

use super::page::Page;
use super::{paragraph, stack};
use crate::join::RoundingClass;
use crate::output::usage::Rounded;
use crate::text::{bytes, count, plus_minus, share};

/// Most classes that are shown, those that waste most.
const MOST: usize = 10;

/// Writes a table for each allocator.
pub(super) fn write(page: &mut Page<'_, '_>, families: &[Rounded]) -> io::Result<()> {
    for all in families {
        let it = &all.rounding;
        let mut classes: Vec<&RoundingClass> = it.classes.iter().collect();
        // Where one class is all, the sum says it.
        if classes.len() < 2 {
            continue;
        }
        classes.sort_by_key(|it| std::cmp::Reverse(it.bytes));
        let others = classes.split_off(classes.len().min(MOST));
        let rest = others.iter().map(|it| it.bytes);
        let rest = rest.fold(0, u64::saturating_add);
        classes.sort_by_key(|it| (it.from, it.to));
        let mut rows = vec![
            [
                "class",
                "blocks",
                "requested",
                "beyond",
                "of the class",
                "unfreed",
            ]
            .map(str::to_owned),
        ];
        rows.extend(classes.into_iter().map(row));
        let widths: [usize; 6] = std::array::from_fn(|column| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0)
        });
        let words = format!("by size class of {}:", it.family.name());
        says(page, &words)?;
        for (number, row) in rows.iter().enumerate() {
            let [class, numbers @ ..] = row;
            let mut line = format!(
                "{:indent$}{class:<w$}",
                "",
                indent = stack::INDENT + 2,
                w = widths[0]
            );
            for (cell, width) in numbers.iter().zip(&widths[1..]) {
                line += &format!("  {cell:>width$}");
            }
            let line = line.trim_end();
            match number {
                0 => writeln!(page.out, "{}", page.style.dim(line))?,
                _ => writeln!(page.out, "{line}")?,
            }
        }
        if !others.is_empty() {
            let classes = if others.len() == 1 {
                "class"
            } else {
                "classes"
            };
            says(
                page,
                &format!("  and {} in {} more {classes}", bytes(rest), others.len()),
            )?;
        }
    }
    Ok(())
}

fn row(it: &RoundingClass) -> [String; 6] {
    let usable = it.requested.saturating_add(it.bytes);
    [
        match it.from == it.to {
            true => usable_bytes(it.to),
            false => format!("{} to {}", usable_bytes(it.from), usable_bytes(it.to)),
        },
        count(it.blocks),
        bytes(it.requested),
        format!("{}{}", bytes(it.bytes), plus_minus(it.error, bytes)),
        share(it.bytes, usable),
        bytes(it.unfreed),
    ]
}

/// The size of a class, in bytes while people know it so.
fn usable_bytes(size: u64) -> String {
    match size {
        0..=2_047 => format!("{size} B"),
        _ => bytes(size),
    }
}

/// Writes words as a paragraph below a stack.
pub(super) fn says(page: &mut Page<'_, '_>, words: &str) -> io::Result<()> {
    for line in paragraph::lines(&" ".repeat(stack::INDENT), words, page.width) {
        writeln!(page.out, "{}", page.style.dim(&line))?;
    }
    Ok(())
}
