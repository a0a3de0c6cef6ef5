//! Tables with aligned columns.
//!
//! Stage: output.

use crate::output::style::Style;
use std::io::{self, Write};

/// The widest cell. A process can choose its own name, so it can be long.
const MAX_CELL: usize = 40;

/// A row of cells.
pub(super) fn row<T: Into<String>, const N: usize>(cells: [T; N]) -> Vec<String> {
    cells.map(Into::into).to_vec()
}

/// Writes rows; the first one is the heading. Cells are aligned to the right, except in the `left` columns.
pub(super) fn write(
    out: &mut dyn Write,
    rows: &[Vec<String>],
    left: &[usize],
    style: Style,
) -> io::Result<()> {
    let columns = rows.first().map_or(0, Vec::len);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            let width = cells.map(|cell| cell.chars().count()).max();
            width.unwrap_or(0).min(MAX_CELL)
        })
        .collect();
    for (index, row) in rows.iter().enumerate() {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let cell: String = cell.chars().take(MAX_CELL).collect();
            line.push_str("  ");
            line.push_str(&if left.contains(&column) {
                format!("{cell:<width$}")
            } else {
                format!("{cell:>width$}")
            });
        }
        let line = line.trim_end();
        if index == 0 {
            writeln!(out, "{}", style.dim(line))?;
        } else {
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}
