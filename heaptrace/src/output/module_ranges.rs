//! Where the files of a profile are in memory, as formats with code addresses need it.
//!
//! Stage: output. Knows no format.

use std::collections::HashMap;

use super::report_input::ReportInput;
use crate::join::ModuleId;

/// A mapping of a file that has all of its locations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ModuleRange {
    /// Its first address.
    pub(super) start: u64,
    /// The first address after it.
    pub(super) end: u64,
    /// The offset in the file at which it begins.
    pub(super) offset: u64,
}

impl ModuleRange {
    /// The address of an offset in the file.
    pub(super) fn address(&self, offset: u64) -> u64 {
        self.start
            .saturating_add(offset.saturating_sub(self.offset))
    }
}

/// The files with their mappings, the program first, because readers treat the first one as the main binary.
pub(super) fn of(input: &ReportInput<'_>) -> Vec<(ModuleId, ModuleRange)> {
    let offsets = offsets(input);
    let order = order(input).into_iter();
    order
        .filter_map(|id| Some((id, range(input, id, offsets.get(&id).copied())?)))
        .collect()
}

/// The mapping of a module, extended to its lowest and highest location. A file can have several executable mappings, and a crafted
/// data file can have any location.
fn range(
    input: &ReportInput<'_>,
    id: ModuleId,
    offsets: Option<(u64, u64)>,
) -> Option<ModuleRange> {
    let module = input.profile.modules.get(id.0 as usize)?;
    let unused = (module.text_offset, module.text_offset);
    let (lowest, highest) = offsets.unwrap_or(unused);
    let (mut start, mut offset) = (module.text_start, module.text_offset);
    if lowest < offset {
        const PAGE: u64 = 4096;
        let first = lowest - lowest % PAGE;
        start = start.saturating_sub(offset - first);
        offset = first;
    }
    let end = start
        .saturating_add(highest.saturating_sub(offset))
        .saturating_add(1);
    Some(ModuleRange {
        start,
        end: module.text_end.max(end),
        offset,
    })
}

/// The lowest and highest offset of each module's locations.
fn offsets(input: &ReportInput<'_>) -> HashMap<ModuleId, (u64, u64)> {
    let mut offsets = HashMap::new();
    for location in &input.profile.locations {
        if let Some(module) = location.module {
            let at = location.address;
            let range = offsets.entry(module).or_insert((at, at));
            *range = (range.0.min(at), range.1.max(at));
        }
    }
    offsets
}

/// The modules, with the program first.
fn order(input: &ReportInput<'_>) -> Vec<ModuleId> {
    let mut order: Vec<ModuleId> = (0..input.profile.modules.len())
        .filter_map(|index| u32::try_from(index).ok())
        .map(ModuleId)
        .collect();
    // A process has the name of its program, cut to 15 bytes.
    let is_program = |id: &ModuleId| {
        let name = input.profile.modules.get(id.0 as usize);
        let name = name.map_or("", |module| module.name());
        let command = input.profile.processes.first();
        command.is_some_and(|process| {
            !process.command.is_empty()
                && (name == process.command
                    || process.command.len() == 15 && name.starts_with(&process.command))
        })
    };
    if let Some(program) = order.iter().position(is_program) {
        order[..=program].rotate_right(1);
    }
    order
}
