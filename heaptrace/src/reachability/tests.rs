//! Tests of the search with the memory of this process, and of stopping a process.

use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::block_index::LiveBlock;
use super::copy::{self, Wanted, batches, shuffled};
use super::pages::Pages;
use super::places::{Place, PlaceKind, Places};
use super::search::{Found, KnownBlocks, Search, Unreached};
use super::stop::{Registers, Stack, Stopped};
use super::words::{Filter, PAGE, PAGE_WORDS};

const PAGES: usize = 8;

/// Memory of this process with pages of variables, a heap, and a stack.
struct Memory {
    words: Box<[[u64; PAGE_WORDS]]>,
}

impl Memory {
    fn new() -> Self {
        Self {
            words: vec![[0; PAGE_WORDS]; PAGES + 1].into_boxed_slice(),
        }
    }

    fn start(&self) -> u64 {
        (self.words.as_ptr() as u64).next_multiple_of(PAGE)
    }

    /// The address of a word of a page.
    fn at(&self, page: usize, word: usize) -> u64 {
        self.start() + page as u64 * PAGE + word as u64 * 8
    }

    fn set(&mut self, address: u64, value: u64) {
        let first = self.words.as_ptr() as u64;
        let word = (address - first) as usize / 8;
        self.words.as_flattened_mut()[word] = value;
    }

    /// One page of variables, one of glibc's, a stack, and a heap of five pages.
    fn places(&self) -> Places {
        let place = |from: usize, to: usize, kind| Place {
            start: self.at(from, 0),
            end: self.at(to, 0),
            kind,
            is_main_stack: false,
            is_guarded: from == 2,
            runs: vec![(self.at(from, 0), self.at(to, 0))],
        };
        Places {
            all: vec![
                place(0, 1, PlaceKind::Other),
                place(1, 2, PlaceKind::Glibc),
                place(2, 3, PlaceKind::Anonymous),
                place(3, PAGES, PlaceKind::Anonymous),
            ],
            heap_start: self.at(3, 0),
            ..Places::default()
        }
    }

    fn block(&self, id: u64, word: usize, size: u64) -> LiveBlock {
        LiveBlock {
            id,
            address: self.at(3, word),
            size,
            born: id,
        }
    }

    /// The words of all places, which are read in any order.
    fn read(&self, places: &Places) -> Pages {
        let wanted = Wanted {
            filter: Filter::of(places),
            words: true,
            ..Wanted::default()
        };
        let order = shuffled(batches(places.runs()));
        let copied = copy::copy(std::process::id(), order, wanted);
        assert!(copied.is_whole);
        assert_eq!((copied.bytes, copied.failed), (PAGES as u64 * PAGE, 0));
        Pages::new(copied.pieces)
    }

    fn search(&self, known: &KnownBlocks, registers: &Registers, judged_before: u64) -> Found {
        let places = self.places();
        let pages = self.read(&places);
        let mut search = Search::new(&places, known, registers, judged_before);
        search.follow(&pages);
        search.finish(&pages, judged_before)
    }
}

fn found(found: &Found) -> Vec<(u64, bool)> {
    let pairs = found.unreached.iter();
    pairs
        .map(|Unreached { id, is_direct }| (*id, *is_direct))
        .collect()
}

/// Check that blocks are reached from variables, used parts of stacks and registers, by pointers to any of their bytes and over several
/// blocks, also if a block has several pages, and that the others are told apart.
#[test]
fn pointers_are_followed() {
    let mut memory = Memory::new();
    let blocks = vec![
        memory.block(1, 0, 64),
        memory.block(2, 8, 64),
        memory.block(3, 16, 3 * PAGE),
        memory.block(4, 3 * PAGE_WORDS + 20, 24),
        memory.block(5, 3 * PAGE_WORDS + 40, 64),
        memory.block(6, 3 * PAGE_WORDS + 50, 64),
        memory.block(7, 3 * PAGE_WORDS + 60, 64),
        memory.block(8, 3 * PAGE_WORDS + 70, 64),
        memory.block(9, 3 * PAGE_WORDS + 80, 0),
    ];
    let address = |number: usize| blocks[number - 1].address;
    // A variable points to 1, the last byte of which is enough; 1 points into 3, whose last page points to 4.
    memory.set(memory.at(0, 100), address(1) + 63);
    memory.set(address(1), address(3) + 5000);
    memory.set(address(3) + 3 * PAGE - 8, address(4));
    // The stack is used from its 300th word on; 2 is below, 5 above. A register has 9.
    memory.set(memory.at(2, 100), address(2));
    memory.set(memory.at(2, 400), address(5));
    // 6 and 7 point to each other, and 8 to 2. One behind the end is no pointer, and neither is a word that crosses it.
    memory.set(address(6), address(7));
    memory.set(address(7), address(6));
    memory.set(address(8), address(2));
    memory.set(memory.at(0, 101), address(8) + 64);
    memory.set(address(4) + 24, address(8));
    let known = KnownBlocks {
        live: blocks.clone(),
        are_all: true,
        mapped: Vec::new(),
    };
    let registers = Registers {
        words: vec![0, u64::MAX, address(9)],
        stacks: vec![Stack {
            lowest: memory.at(2, 300),
            thread: memory.at(2, 500),
        }],
    };
    let result = memory.search(&known, &registers, u64::MAX);
    assert_eq!(
        found(&result),
        [(2, false), (6, false), (7, false), (8, true)]
    );
    let bytes = blocks.iter().map(|it| it.size).sum();
    assert_eq!((result.judged, result.too_young), ((9, bytes), 0));

    // On a stack that is not a thread's own, all memory counts.
    let mut elsewhere = registers;
    elsewhere.stacks[0].thread = 0;
    let result = memory.search(&known, &elsewhere, u64::MAX);
    assert_eq!(found(&result), [(6, false), (7, false), (8, true)]);
    let registers = elsewhere;

    // Blocks from number 7 on are too young, and count as reached with what they point to.
    let result = memory.search(&known, &registers, 7);
    assert_eq!(found(&result), []);
    assert_eq!((result.judged.0, result.too_young), (6, 3));
}

/// Check that memory between the blocks counts as pointing only if there may be blocks in it that are not known, or if the program
/// mapped it, and that glibc's pointers to headers behind blocks don't count.
#[test]
fn memory_of_the_allocator_is_told_apart() {
    let mut memory = Memory::new();
    let blocks = vec![memory.block(1, 100, 24), memory.block(2, 200, 20)];
    let address = |number: usize| blocks[number - 1].address;
    // A freed block points to 1, and glibc to the header behind it, which shares the last word.
    memory.set(memory.at(3, 300), address(1));
    memory.set(memory.at(1, 5), address(1) + 16);
    memory.set(memory.at(1, 6), address(2) + 16);
    let mut known = KnownBlocks {
        live: blocks.clone(),
        are_all: true,
        mapped: Vec::new(),
    };
    let registers = Registers::default();
    let search = |known: &KnownBlocks| found(&memory.search(known, &registers, u64::MAX));
    assert_eq!(search(&known), [(1, true), (2, true)]);
    known.mapped = vec![(memory.at(3, 299), memory.at(3, 301))];
    assert_eq!(search(&known), [(2, true)]);
    known.mapped.clear();
    known.are_all = false;
    assert_eq!(search(&known), [(2, true)]);
    // The variables of a thread are in the heap of a program that is linked statically.
    known.are_all = true;
    let registers = Registers {
        stacks: vec![Stack {
            lowest: 0,
            thread: memory.at(3, 310),
        }],
        ..Registers::default()
    };
    let result = memory.search(&known, &registers, u64::MAX);
    assert_eq!(found(&result), [(2, true)]);
}

/// Check what readings after the stop show: pointers in blocks, in memory that was mapped since, and in memory that was written since, also in
/// that of a block that seemed to have none; but no stale pointers in freed memory.
#[test]
fn later_readings_show_moved_pointers() {
    let mut memory = Memory::new();
    let blocks: Vec<_> = (1..=7)
        .map(|id| memory.block(id, 20 * id as usize, 64))
        .collect();
    let address = |number: usize| blocks[number - 1].address;
    let free = memory.at(3, 400);
    memory.set(memory.at(0, 100), address(1));
    // Stale pointers: one to 2 in freed memory, one to 3 in a block that nothing points to.
    memory.set(free, address(2));
    memory.set(address(7), address(3));
    let known = KnownBlocks {
        live: blocks.clone(),
        are_all: true,
        mapped: Vec::new(),
    };
    let (places, registers) = (memory.places(), Registers::default());
    let before = memory.read(&places);
    let mut search = Search::new(&places, &known, &registers, u64::MAX);
    search.follow(&before);
    assert_eq!(search.unreached(), Some((address(2), address(7) + 64)));
    assert!(!search.follow_later(&places, &memory.read(&places), &before));
    // Since then, pointers were moved: to 4 into a block, to 5 into a new block, to 6 into the memory of 7, which must be another block now.
    memory.set(address(1) + 8, address(4));
    memory.set(free + 8, address(5));
    memory.set(address(7) + 8, address(6));
    assert!(search.follow_later(&places, &memory.read(&places), &before));
    assert!(!search.follow_later(&places, &memory.read(&places), &before));
    // A mapping is new, and has the same words as freed memory before.
    let mut mapped = places.clone();
    mapped.all[3].start = memory.at(4, 0);
    let new = Place {
        start: memory.at(3, 0),
        end: memory.at(4, 0),
        kind: PlaceKind::Other,
        ..mapped.all[3].clone()
    };
    mapped.all.insert(3, new);
    assert!(!search.follow_later(&mapped, &memory.read(&places), &before));
    let found_now = found(&search.finish(&before, u64::MAX));
    assert_eq!(found_now, [(2, true), (3, false), (7, true)]);
}

/// Check that memory is given up whose reading does not end, soon after a deadline, and that the thread ends when it does.
#[test]
fn reading_without_an_end_is_given_up() {
    static HELD: Mutex<()> = Mutex::new(());
    fn read(_: u32, ranges: &[(u64, u64)], _: &mut [u64]) -> usize {
        if ranges[0].0 == 0 {
            drop(HELD.lock());
        }
        0
    }
    let held = HELD.lock().unwrap();
    let begun = Instant::now();
    let wanted = Wanted {
        deadline: Some(begun + Duration::from_millis(20)),
        ..Wanted::default()
    };
    let runs = || batches([(0, 256 * PAGE)]);
    let copied = copy::copy_by(read, 0, runs(), wanted);
    assert!(copied.is_stuck && !copied.is_whole);
    assert!(begun.elapsed() < Duration::from_secs(3));
    drop(held);
    let copied = copy::copy_by(read, 0, runs(), Wanted::default());
    assert!(!copied.is_stuck && copied.failed == 256);
}

/// Check that a page that can't be read is counted, that the others are read, and that later pieces replace earlier ones.
#[test]
fn unreadable_pages_are_counted() {
    let mut memory = Memory::new();
    let places = memory.places();
    let wanted = Wanted {
        filter: Filter::of(&places),
        words: true,
        hashes: true,
        deadline: None,
    };
    let start = memory.at(3, 0);
    let read = |start: u64| {
        let runs = [(PAGE, 3 * PAGE), (start, start + 2 * PAGE)];
        copy::copy(std::process::id(), batches(runs), wanted)
    };
    memory.set(start + 8, start);
    let first = read(start);
    assert_eq!((first.bytes, first.failed), (2 * PAGE, 2));
    memory.set(start + 8, start + 16);
    let second = read(start);
    assert_ne!(first.pieces[0].hashes[0], second.pieces[0].hashes[0]);
    assert_eq!(first.pieces[0].hashes[1], second.pieces[0].hashes[1]);
    let pages = Pages::new(first.pieces.into_iter().chain(second.pieces).collect());
    let mut words = Vec::new();
    pages.words(start, start + 2 * PAGE, |at, word| words.push((at, word)));
    assert_eq!(words, [(start + 8, start + 16)]);
    let late = Wanted {
        deadline: Some(Instant::now()),
        ..wanted
    };
    let late = copy::copy(std::process::id(), batches([(start, start + PAGE)]), late);
    assert!(!late.is_whole && late.bytes == 0);
}

/// Check that a process is stopped with its registers known, that it can't be stopped twice, and that it goes on afterwards.
#[test]
fn a_process_is_stopped_and_goes_on() {
    let mut child = Command::new("cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    {
        let stopped = Stopped::stop(pid).unwrap();
        assert_eq!(stopped.threads(), 1);
        let registers = stopped.registers();
        let places = Places::of(pid).unwrap();
        assert_eq!(registers.stacks.len(), 1);
        assert!(places.holding(registers.stacks[0].lowest).is_some());
        assert!(registers.words.len() > 27, "{}", registers.words.len());
        let again = Stopped::stop(pid).unwrap_err().to_string();
        assert!(again.contains("traces it already"), "{again}");
    }
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert!(Stopped::stop(u32::MAX >> 1).is_err());
}
