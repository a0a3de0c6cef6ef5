//! Tests of how files grow with their updates, and of files of earlier versions.

use std::path::Path;

use super::sample::update;
use super::{MAGIC, read_until};
use crate::join::{OwnPeak, Site, SiteId, Totals, Update};
use crate::profile::datafile::{DataFileWriter, ReadOptions, read, read_from};
use crate::profile::{Profile, RunEnd, RunInfo};
use crate::random::Random;

/// Check that a file of version 1 is read: this one is of a run of a shell.
#[test]
fn version_1_is_read() {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../fuzz/corpus/data_file/shell"
    );
    let bytes = std::fs::read(file).unwrap();
    assert_eq!(bytes[MAGIC.len()], 1);
    let recording = read(Path::new(file)).unwrap();
    assert_eq!(recording.profile.end, RunEnd::Orderly);
    assert!(recording.profile.totals.allocations > 0);
    assert_eq!(recording.warnings, Vec::<String>::new());
}

/// Check that updates of 200 sites that go on as before take few bytes, and that a reader that stops at any of them sees every number as it was, also where the writer
/// had forgotten the sites before.
#[test]
fn updates_of_steady_sites_are_small() {
    const SITES: u32 = 200;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("heaptrace.data");
    let mut writer = DataFileWriter::create(&path, &RunInfo::exact("--pid 42")).unwrap();
    let mut sites: Vec<_> = (0..SITES)
        .map(|id| {
            let slot = SiteId(id);
            let site = Site {
                slot,
                thread: None,
                totals: Totals::default(),
                own_peak: OwnPeak::default(),
                ..update(0).sites[0].1
            };
            (slot, site)
        })
        .collect();
    let mut random = Random(7);
    let mut states = vec![Profile::new(RunInfo::exact("--pid 42"))];
    let mut sizes = vec![writer.written()];
    for n in 0..20 {
        for (id, site) in &mut sites {
            let blocks = 10 + random.next() % 4_086;
            let totals = &mut site.totals;
            totals.allocations += blocks;
            totals.allocated_bytes += blocks * u64::from(id.0);
            totals.frees = totals.allocations - 10;
            totals.freed_bytes = totals.allocated_bytes - 10 * u64::from(id.0);
            totals.live_allocations = 10;
            totals.live_bytes = 10 * u64::from(id.0);
        }
        let mut next = match n {
            0 => update(0),
            _ => Update {
                processes: update(0).processes,
                quality: update(0).quality,
                ..Update::default()
            },
        };
        next.elapsed_ns = n * 1_000_000_000;
        next.sites.clone_from(&sites);
        if n == 10 {
            writer.forget_sites();
        }
        writer.update(&next).unwrap();
        sizes.push(writer.written());
        let mut state = states.last().unwrap().clone();
        state.fold(next).unwrap();
        states.push(state);
    }
    // 12 random bits for each site, and some bytes beside.
    let last = sizes[20] - sizes[19];
    assert!(last < u64::from(SITES) * 2 + 150, "{last}: {sizes:?}");
    let bytes = std::fs::read(&path).unwrap();
    for (size, state) in sizes.iter().zip(&states).skip(1) {
        let cut = read_from(&bytes[..*size as usize], "cut", ReadOptions::default());
        assert_eq!(cut.unwrap().profile, *state);
    }
    // One at a time of which later updates are not needed.
    let recording = read_until(&path, 7_000_000_000).unwrap();
    assert_eq!(recording.profile.sites, states[8].sites);
    assert_eq!(recording.snapshots.len(), 20);
}
