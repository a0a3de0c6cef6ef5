//! Writes the snapshots of a recording, for people or for programs: the live memory at each time.
//!
//! Stage: output.

use std::io::{self, BufWriter, Write};

use serde::Serialize;

use super::error::OutputError;
use crate::profile::Snapshot;
use crate::text::{bytes, count};

/// One snapshot in JSON.
#[derive(Serialize)]
struct Entry {
    elapsed_ns: u64,
    live_bytes: u64,
    live_allocations: u64,
    peak_live_bytes: u64,
    allocated_bytes: u64,
    allocations: u64,
}

/// Writes a line for each snapshot, in order of time.
pub fn write_snapshots(snapshots: &[Snapshot], out: &mut dyn Write) -> Result<(), OutputError> {
    let mut out = BufWriter::new(out);
    let heads = ["TIME", "LIVE", "BLOCKS", "PEAK", "ALLOCATED", "ALLOCATIONS"];
    let rows = snapshots.iter().map(|Snapshot { elapsed_ns, totals }| {
        [
            // So exact that `--at` with this time finds this snapshot.
            format!("{:.3} s", *elapsed_ns as f64 / 1e9),
            bytes(totals.live_bytes),
            count(totals.live_allocations),
            bytes(totals.peak_live_bytes),
            bytes(totals.allocated_bytes),
            count(totals.allocations),
        ]
    });
    for row in std::iter::once(heads.map(str::to_owned)).chain(rows) {
        let line: String = row.map(|cell| format!("  {cell:>12}")).concat();
        writeln!(out, "{line}")?;
    }
    out.flush()?;
    Ok(())
}

/// Writes all snapshots as one JSON array.
pub fn write_snapshots_json(
    snapshots: &[Snapshot],
    out: &mut dyn Write,
) -> Result<(), OutputError> {
    let entries: Vec<Entry> = snapshots
        .iter()
        .map(|Snapshot { elapsed_ns, totals }| Entry {
            elapsed_ns: *elapsed_ns,
            live_bytes: totals.live_bytes,
            live_allocations: totals.live_allocations,
            peak_live_bytes: totals.peak_live_bytes,
            allocated_bytes: totals.allocated_bytes,
            allocations: totals.allocations,
        })
        .collect();
    let mut out = BufWriter::new(out);
    serde_json::to_writer(&mut out, &entries).map_err(io::Error::from)?;
    writeln!(out)?;
    out.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::Totals;

    /// Check that a list of snapshots is written correctly as text and as JSON.
    #[test]
    fn snapshots_as_text_and_json() {
        let snapshot = |ms: u64, live_bytes| Snapshot {
            elapsed_ns: ms * 1_000_000,
            totals: Totals {
                live_bytes,
                live_allocations: 2,
                allocations: 1_234,
                ..Totals::default()
            },
        };
        let snapshots = [snapshot(10_041, 2_048), snapshot(20_000, 17)];
        let mut out = Vec::new();
        write_snapshots(&snapshots, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let words: Vec<_> = text.lines().nth(1).unwrap().split_whitespace().collect();
        // So exact that `--at` finds this snapshot by it, and no other.
        assert_eq!(words[..5], ["10.041", "s", "2.0", "KiB", "2"]);
        assert_eq!(words.last(), Some(&"1,234"));
        assert_eq!(text.lines().count(), 3);

        let mut out = Vec::new();
        write_snapshots_json(&snapshots, &mut out).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(value[1]["elapsed_ns"], 20_000_000_000u64);
        assert_eq!(value[1]["live_bytes"], 17);
    }
}
