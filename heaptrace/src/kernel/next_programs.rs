//! The programs that others end with, by a tail call.
//!
//! Part of `kernel`. It must not know what they do.

use std::collections::BTreeSet;

use anyhow::Result;
use aya::maps::ProgramArray;
use heaptrace_common::next;

use super::program::Program;

/// The program that walks stacks. Those on functions that allocate end with it.
pub const WALK_PROGRAM: &str = "walk_stack";

/// The program that records a block which the fast path's code has got.
pub const BLOCK_PROGRAM: &str = "take_block";

impl Program {
    /// Puts those of the named programs that others end with into their places. Must come before any probe is attached.
    pub(super) fn set_next_programs(&mut self, names: &BTreeSet<&str>) -> Result<()> {
        let places = [
            (WALK_PROGRAM, next::WALK),
            (BLOCK_PROGRAM, next::TAKE_BLOCK),
        ];
        for (name, place) in places.into_iter().filter(|(name, _)| names.contains(name)) {
            let program = self.loaded(name)?.try_clone()?;
            let mut next = ProgramArray::try_from(self.map_mut("NEXT_PROGRAMS")?)?;
            next.set(place, &program, 0)?;
        }
        Ok(())
    }
}
