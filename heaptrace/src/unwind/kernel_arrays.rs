//! The kernel program's arrays of rows, pages, rules and runtimes, and the map from files to tables.
//!
//! Stage: unwind. The arrays are written through shared memory: a system call for each row would take hundreds of times
//! longer. Must not know files, nor which table is where.

use anyhow::{Context as _, Result};
use aya::maps::{ArrayOfMaps, MapData};
use heaptrace_common::limits::{RULE_CACHE_SLOTS, SEGMENT_SLOTS};
use heaptrace_common::rows::{
    PAGE_BITS, page_first_row, page_rows, row_of_slot, row_offset, row_rule,
};
use heaptrace_common::unwind::Rule;
use heaptrace_common::wire::{FileKey, PythonImage, TableRef, V8Image};

use super::loader::Arrays;
use super::store::Placement;
use crate::kernel::mapped_array::MappedArray;
use crate::kernel::program::{Program, TableMap};
use crate::kernel::runtime_images::RuntimeImages;

/// A segment of rows. The kernel program finds it by its index in the map of segments.
struct Segment {
    map: MapData,
    slots: MappedArray,
}

/// The arrays in the kernel.
pub(super) struct KernelArrays {
    tables: TableMap,
    uses: MappedArray,
    pages: MappedArray,
    rules: MappedArray,
    rule_cache: MappedArray,
    pythons: RuntimeImages<PythonImage>,
    v8s: RuntimeImages<V8Image>,
    rows: ArrayOfMaps<MapData, MapData>,
    segments: Vec<Segment>,
}

impl KernelArrays {
    /// Maps the arrays of a program that has no tables yet.
    pub(super) fn new(program: &mut Program) -> Result<Self> {
        let shared = |name| {
            let (fd, slots) = program.array(name)?;
            MappedArray::map(fd, slots).with_context(|| format!("can't map {name}"))
        };
        let (uses, pages, rules) = (shared("USES")?, shared("PAGES")?, shared("RULES")?);
        Ok(Self {
            rule_cache: shared("RULE_CACHE")?,
            uses,
            pages,
            rules,
            tables: program.take_tables()?,
            rows: program.take_rows()?,
            pythons: program.take_runtime_images("PYTHON_IMAGES")?,
            v8s: program.take_runtime_images("V8_IMAGES")?,
            segments: Vec::new(),
        })
    }

    /// A row; each slot holds two.
    fn row(&self, index: u32) -> u32 {
        let slot = index / 2;
        let segment = self.segments.get((slot / SEGMENT_SLOTS) as usize);
        let slots = segment.map_or(0, |it| it.slots.get((slot % SEGMENT_SLOTS) as usize));
        row_of_slot(slots, index)
    }

    fn grow(&mut self) -> Result<()> {
        let (map, slots) = MappedArray::create("ROWS_SEGMENT", SEGMENT_SLOTS)?;
        self.rows.set(self.segments.len() as u32, &map, 0)?;
        self.segments.push(Segment { map, slots });
        Ok(())
    }
}

impl Arrays for KernelArrays {
    fn write(&mut self, placement: &Placement) -> Result<(), u32> {
        for (at, rule) in (placement.rules.first as usize..).zip(&placement.rules.values) {
            self.rules.set(at, rule_bits(*rule));
        }
        for (index, image) in (placement.pythons.first..).zip(&placement.pythons.values) {
            // The kernel program takes an entry that is not set for no interpreter.
            if let Err(error) = self.pythons.set(index, *image) {
                tracing::warn!("can't set a Python interpreter: {error:#}");
            }
        }
        for (index, image) in (placement.v8s.first..).zip(&placement.v8s.values) {
            // The kernel program finds no function by an entry that is not set.
            if let Err(error) = self.v8s.set(index, *image) {
                tracing::warn!("can't set a file with V8: {error:#}");
            }
        }
        for (segment, write) in &placement.rows {
            while self.segments.len() <= *segment as usize {
                if let Err(error) = self.grow() {
                    tracing::warn!("can't allocate memory for more unwind tables: {error:#}");
                    return Err(self.segments.len() as u32);
                }
            }
            if let Some(segment) = self.segments.get_mut(*segment as usize) {
                for (at, slot) in (write.first as usize..).zip(&write.values) {
                    segment.slots.set(at, *slot);
                }
            }
        }
        for (at, page) in (placement.pages.first as usize..).zip(&placement.pages.values) {
            self.pages.set(at, *page);
        }
        Ok(())
    }

    fn publish(&mut self, file: FileKey, table: TableRef) -> bool {
        let inserted = self.tables.insert(file, table);
        if let Err(error) = &inserted {
            tracing::debug!("can't add a file to the map of unwind tables: {error:#}");
        }
        inserted.is_ok()
    }

    fn unpublish(&mut self, file: FileKey) {
        self.tables.remove(file);
    }

    fn rule(&self, table: TableRef, at: u64) -> Rule {
        let page = (at >> PAGE_BITS).wrapping_sub(table.first_page.into());
        if page >= table.pages.into() {
            return Rule::NONE;
        }
        let page = self.pages.get((u64::from(table.pages_at) + page) as usize);
        let (first, rows) = (page_first_row(page), page_rows(page));
        let offset = (at & 0xffff) as u32;
        let (mut low, mut high) = (first, first.wrapping_add(rows));
        while low < high {
            let middle = low + (high - low) / 2;
            if row_offset(self.row(middle)) <= offset {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        // Every page begins with a row, so there is one before `low`.
        let row = self.row(low.wrapping_sub(1));
        rule_of_bits(self.rules.get(row_rule(row) as usize))
    }

    fn wait_for_walks(&mut self) {
        // A change of a map of maps returns only when every program that could still use the previous content has ended.
        // For this, any change will do: entry 0 is set to the value that it has.
        if let Some(first) = self.segments.first()
            && let Err(error) = self.rows.set(0, &first.map, 0)
        {
            tracing::warn!("can't wait for the kernel program: {error:#}");
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        // The cache may still have rules of the removed tables.
        for slot in 0..RULE_CACHE_SLOTS as usize {
            self.rule_cache.set(slot, 0);
        }
    }

    fn set_clock(&mut self, now: u64) {
        self.uses.set(0, now);
    }

    fn last_use(&self, slot: u32) -> u64 {
        self.uses.get(slot as usize)
    }

    fn record_use(&mut self, slot: u32, now: u64) {
        self.uses.set(slot as usize, now);
    }
}

/// The bits of a rule in the kernel program's memory.
fn rule_bits(rule: Rule) -> u64 {
    u64::from(rule.cfa)
        | u64::from(rule.bp) << 8
        | u64::from(rule.bp_offset as u16) << 16
        | u64::from(rule.cfa_offset as u32) << 32
}

/// The rule of these bits.
fn rule_of_bits(bits: u64) -> Rule {
    Rule {
        cfa: bits as u8,
        bp: (bits >> 8) as u8,
        bp_offset: (bits >> 16) as u16 as i16,
        cfa_offset: (bits >> 32) as u32 as i32,
    }
}

#[cfg(test)]
mod tests {
    use heaptrace_common::unwind::{bp, cfa};

    use super::*;

    /// Check that a rule has the same value after it was packed and unpacked.
    #[test]
    fn packed_rules_unpack() {
        let rule = Rule {
            cfa: cfa::BP,
            bp: bp::AT_CFA,
            bp_offset: -16,
            cfa_offset: -70_000,
        };
        assert_eq!(rule_of_bits(rule_bits(rule)), rule);
        assert_eq!(rule_of_bits(0), Rule::NONE);
    }
}
