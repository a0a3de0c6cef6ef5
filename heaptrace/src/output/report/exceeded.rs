//! The limits of live memory that were exceeded.
//!
//! Stage: output.

use std::io;

use super::page::Page;
use super::paragraph;
use crate::output::moments;
use crate::text::count;

/// The largest number that is shown.
const MOST: usize = 5;

/// Writes each limit that was exceeded.
pub(super) fn write(page: &mut Page<'_, '_>) -> io::Result<()> {
    let all = moments::exceeded(page.input);
    for (at, exceeded) in all.iter().take(MOST).enumerate() {
        let name = if at == 0 { "limit" } else { "" };
        let sentence = moments::sentence(exceeded, page.input.profile);
        for line in paragraph::lines(&format!("  {name:<13}"), &sentence, page.width) {
            writeln!(page.out, "{line}")?;
        }
    }
    if all.len() > MOST {
        let rest = count((all.len() - MOST) as u64);
        writeln!(page.out, "  {:<13}and {rest} more (--format json)", "")?;
    }
    Ok(())
}
