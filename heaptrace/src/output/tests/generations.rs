//! Reports of what was allocated since a mark.

use super::sample;
use crate::join::{Generation, Mark, MarkCause, ProcessId, Site, Totals};
use crate::output::{Filter, WantedMark, select, since_mark};
use crate::profile::{Profile, Symbols};

fn generation(mark: u32, mut site: Site, live: u64) -> Generation {
    site.totals = Totals {
        allocations: 2,
        allocated_bytes: live + 1,
        frees: 1,
        freed_bytes: 1,
        live_allocations: 1,
        live_bytes: live,
        ..Totals::default()
    };
    Generation {
        mark,
        site,
        survived: Vec::new(),
    }
}

/// The sample with generations of its first sites.
fn marked() -> Profile {
    let mut profile = sample::profile();
    let sites = profile.sites.clone();
    profile.marks = [1, 3, 4]
        .map(|number| Mark {
            number,
            at_ns: u64::from(number) * 1_000_000_000,
            cause: MarkCause::Timer,
        })
        .to_vec();
    profile.generations = vec![
        generation(1, sites[0], 5),
        generation(3, sites[0], 70),
        generation(4, sites[0], 900),
        generation(3, sites[1], 2_000),
        generation(1, sites[2], 30_000),
    ];
    profile
}

/// Check that only what was allocated since the mark is left, and that sums and filters agree with that.
#[test]
fn earlier_allocations_are_left_out() {
    let since = since_mark(marked(), 3);
    let live: Vec<_> = since.sites.iter().map(|it| it.totals.live_bytes).collect();
    assert_eq!(live, [970, 2_000]);
    assert_eq!(since.totals.live_bytes, 2_970);
    assert_eq!(since.totals.allocations, 6);
    assert_eq!(since.totals.peak_live_bytes, 0);
    let processes: Vec<_> = since
        .processes
        .iter()
        .map(|it| it.totals.live_bytes)
        .collect();
    assert_eq!(processes, [970, 2_000]);
    let filters: Vec<Filter> = vec!["pid=42".parse().unwrap()];
    let selected = select(since, &Symbols::default(), &filters);
    assert_eq!(selected.totals.live_bytes, 2_000);
    assert_eq!(selected.generations.len(), 1);
    assert_eq!(selected.generations[0].site.process, ProcessId(0));
    assert!(since_mark(marked(), 5).sites.is_empty());
}

/// Check that a mark is found by its number, and that an error names those that are there.
#[test]
fn marks_are_named() {
    let marks = marked().marks;
    assert_eq!(WantedMark::Last.find(&marks).unwrap().number, 4);
    assert_eq!(
        WantedMark::Number(3).find(&marks).unwrap().at_ns,
        3_000_000_000
    );
    let error = WantedMark::Number(2).find(&marks).unwrap_err();
    assert!(
        error.contains("no mark 2; its marks are 1 (1.00 s), 3 (3.00 s)"),
        "{error}"
    );
    assert!(
        WantedMark::Last
            .find(&[])
            .unwrap_err()
            .contains("--mark-every")
    );
}
