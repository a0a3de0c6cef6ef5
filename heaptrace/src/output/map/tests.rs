//! Tests of the numbers of a memory map, with made up memory.

use super::account::{Account, Recorded};
use super::pieces::Owned;
use super::pieces::tests::{block, mapped};
use super::row::What;
use crate::join::{Family, StackId};
use crate::proc::residency::{Mapping, MappingKind, PageState, Residency, Run};

const EXACT: Recorded = Recorded {
    family: Some(Family::Glibc),
    is_partial: false,
};

fn runs(runs: &[(u32, PageState)]) -> Vec<Run> {
    let run = |it: &(u32, PageState)| Run {
        pages: it.0,
        state: it.1,
    };
    runs.iter().map(run).collect()
}

/// A mapping whose resident bytes are those of its runs.
fn mapping(start: u64, kind: MappingKind, of: &[(u32, PageState)]) -> Mapping {
    let runs = runs(of);
    let pages = |is: fn(PageState) -> bool| -> u64 {
        let wanted = runs.iter().filter(|it| is(it.state));
        wanted.map(|it| u64::from(it.pages)).sum::<u64>() * 4096
    };
    Mapping {
        start,
        end: start + pages(|_| true),
        kind,
        resident: pages(PageState::is_resident),
        swapped: pages(|it| it == PageState::Swapped),
        runs,
        ..Mapping::default()
    }
}

fn residency(mappings: Vec<Mapping>) -> Residency {
    Residency {
        resident: mappings.iter().map(|it| it.resident).sum(),
        mappings,
        ..Residency::default()
    }
}

/// A heap of 100 pages with one small block of stack 1 on each of the last 90, the first ten full of blocks of stack 0.
fn fragmented() -> (Residency, Vec<Owned>) {
    let heap = mapping(
        0x10000,
        MappingKind::Heap,
        &[(100, PageState::Resident), (4, PageState::Untouched)],
    );
    let full = (0..10 * 128 - 1).map(|at| block(0x10010 + at * 32, 24, 0));
    let single = (10..100).map(|page| block(0x10010 + page * 4096, 24, 1));
    (residency(vec![heap]), full.chain(single).collect())
}

/// Check that every resident byte is in one row, and that the site whose blocks are alone on their pages is named first, with all of their
/// free bytes.
#[test]
fn single_blocks_pin_their_pages() {
    let (residency, owned) = fragmented();
    let account = Account::new(&residency, &owned, EXACT);
    assert_eq!(account.sum(), residency.resident);
    assert_eq!(account.of(What::Live), (10 * 128 - 1 + 90) * 24);
    assert_eq!(account.of(What::Headers), (10 * 128 - 1 + 90) * 8);
    assert_eq!(account.of(What::Rounding), 0);
    assert_eq!(account.of(What::Fragmentation), 90 * (4096 - 32) + 32);
    let first = account.sites[0];
    assert_eq!((first.stack, first.blocks), (StackId(1), 90));
    assert_eq!(first.pinned, 90 * (4096 - 32));
    assert_eq!(account.sites[1].pinned, 0);
}

/// Check that the blocks of a page share its free bytes, and that a page that is not nearly empty is not pinned.
#[test]
fn free_bytes_are_shared_by_blocks() {
    let heap = mapping(0x10000, MappingKind::Heap, &[(2, PageState::Resident)]);
    let owned = [
        // Three blocks on the first page, two of one site; the second page is half full.
        block(0x10010, 24, 0),
        block(0x10100, 24, 1),
        block(0x10200, 24, 1),
        block(0x11010, 2040, 2),
    ];
    let account = Account::new(&residency(vec![heap]), &owned, EXACT);
    let site = |stack| {
        let mut sites = account.sites.iter();
        sites.find(|it| it.stack == StackId(stack)).unwrap()
    };
    let free = 4096 - 3 * 32;
    assert_eq!(site(0).pinned + site(1).pinned, free);
    assert!(site(1).pinned.abs_diff(2 * free / 3) <= 2);
    assert_eq!((site(0).pinned_pages, site(1).pinned_pages), (1, 1));
    assert_eq!((site(2).pinned, site(2).free), (0, 4096 - 2048));
    assert_eq!(account.pages, [0, 1, 1, 0, 0, 0]);
}

/// Check that bytes of blocks are counted by what became of their pages, and that only resident ones are in the table.
#[test]
fn blocks_are_counted_by_the_states_of_their_pages() {
    let heap = mapping(
        0x10000,
        MappingKind::Anonymous,
        &[
            (1, PageState::Resident),
            (1, PageState::Swapped),
            (1, PageState::Huge),
            (1, PageState::Zero),
            (1, PageState::Untouched),
        ],
    );
    let owned = [block(0x10100, 4 * 4096, 0)];
    let account = Account::new(
        &residency(vec![heap]),
        &owned,
        Recorded {
            family: None,
            ..EXACT
        },
    );
    let live = account.live;
    assert_eq!(live.resident.value(), (4096 - 0x100) + 4096);
    assert_eq!(live.huge.value(), 4096);
    assert_eq!(live.swapped.value(), 4096);
    assert_eq!(live.untouched.value(), 4096 + 0x100);
    assert_eq!(account.of(What::Live), live.resident.value());
    assert_eq!(account.sum(), 2 * 4096);
    assert_eq!(account.sites[0].states, live);
}

/// Check that mappings without recorded memory are in rows of their kinds, and that memory that the program mapped is apart from the heap.
#[test]
fn mappings_are_in_rows_of_their_kinds() {
    let page = [(4, PageState::Resident)];
    let mut file = mapping(0x40000, MappingKind::File, &page);
    file.runs.clear();
    let mappings = vec![
        mapping(0x10000, MappingKind::Anonymous, &page),
        mapping(0x20000, MappingKind::Stack, &page),
        mapping(0x30000, MappingKind::Anonymous, &page),
        file,
    ];
    let owned = [mapped(0x30000, 0x2000, 5)];
    let account = Account::new(&residency(mappings), &owned, EXACT);
    assert_eq!(account.of(What::Other), 0x4000 + 0x2000);
    assert_eq!(account.of(What::Stacks), 0x4000);
    assert_eq!(account.of(What::Mapped), 0x2000);
    assert_eq!(account.of(What::Files), 0x4000);
    assert_eq!(account.of(What::FreePages), 0);
    assert_eq!(account.sum(), account.resident);
}

/// Check that a sample tells nothing of pages: what is beside the estimate is one row, and nothing is pinned.
#[test]
fn samples_say_nothing_of_pages() {
    let (residency, mut owned) = fragmented();
    for it in &mut owned {
        it.mean = 64;
    }
    let sampled = Recorded {
        is_partial: true,
        ..EXACT
    };
    let account = Account::new(&residency, &owned, sampled);
    assert_eq!(account.of(What::Fragmentation), 0);
    assert_eq!(account.of(What::FreePages), 0);
    assert!(account.of(What::Live) > (10 * 128 - 1 + 90) * 24);
    assert!(account.rows[0].error > 0);
    assert_eq!(account.sum(), residency.resident);
    assert!(
        account
            .sites
            .iter()
            .all(|it| it.pinned == 0 && it.free == 0)
    );
    assert_eq!(account.pages, [0; 6]);
}

/// Check that without the states of pages the table has the kernel's sums, and says so of the blocks.
#[test]
fn unknown_pages_leave_sums() {
    let (mut residency, owned) = fragmented();
    residency.unknown_pages = Some("not permitted".to_owned());
    let account = Account::new(&residency, &owned, EXACT);
    assert_eq!(account.of(What::Heap), residency.resident);
    assert_eq!(account.rows.len(), 1);
    assert_eq!(account.live.unknown.value(), (10 * 128 - 1 + 90) * 24);
    assert_eq!(account.live.resident.value(), 0);
}
