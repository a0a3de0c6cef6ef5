//! Tables of real files: programs and libraries of this machine, and the kernel's vDSO.
//!
//! Stage: unwind.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use heaptrace_common::unwind::{LOST_BP, Registers, Rule, cfa, outcome, step};
use object::{Object as _, ObjectSegment as _};

use super::oracle::{Noise, Opinion, Oracle};
use super::{Random, assert_sound};
use crate::unwind::{Limits, build, lookup};

/// Programs that are compared if they are installed, in addition to the files that the test itself has loaded.
const PROGRAMS: [&str; 13] = [
    "/usr/bin/bash",
    "/usr/bin/git",
    "/usr/bin/jq",
    "/usr/bin/perl",
    "/usr/bin/python3",
    "/usr/bin/python3.11",
    "/usr/bin/redis-server",
    "/usr/bin/sqlite3",
    "/usr/bin/x86_64-linux-gnu-ld.bfd",
    "/usr/lib/gcc/x86_64-linux-gnu/12/cc1",
    "/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
    "/usr/lib/x86_64-linux-gnu/libperl.so.5.36",
    "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
];

/// Real files: at least the test itself, the C library and its loader.
fn files() -> BTreeSet<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let loaded = maps
        .lines()
        .filter(|line| line.contains(" r-xp "))
        .filter_map(|line| Some(line[line.find('/')?..].to_owned()));
    loaded
        .chain(PROGRAMS.map(str::to_owned))
        .filter_map(|path| fs::canonicalize(path).ok())
        .collect()
}

/// The counts of a comparison.
#[derive(Default)]
struct Tally {
    places: usize,
    callers: usize,
    refused: usize,
    expressible: usize,
}

/// Compares the table of a file with gimli's results at random addresses and around function edges.
fn compare(name: &str, data: &[u8], places: usize) -> Option<Tally> {
    let file = object::File::parse(data).unwrap();
    let mut oracle = Oracle::new(&file)?;
    let start = Instant::now();
    let table = build(data, &Limits::default()).unwrap();
    let took = start.elapsed();
    assert_sound(&table);
    assert_eq!(table.damaged, 0, "{name}");
    let is_python = name.contains("/python3.");
    assert_eq!(table.python.is_some(), is_python, "{name}");

    let executable = |segment: &object::Segment<'_, '_>| {
        segment.permissions().executable().then(|| {
            let (offset, size) = segment.file_range();
            (segment.address(), offset, size)
        })
    };
    let code: Vec<_> = file
        .segments()
        .filter_map(|segment| executable(&segment))
        .collect();
    let edges = oracle.edges();
    let mut random = Random(places as u64);
    let mut tally = Tally::default();
    for index in 0..places {
        let address = if index % 2 == 0 {
            edges[random.below(edges.len())]
                .wrapping_add(random.next() % 4)
                .wrapping_sub(2)
        } else {
            let (address, _, size) = code[random.below(code.len())];
            address + random.next() % size
        };
        let Some((from, offset, _)) = code
            .iter()
            .find(|(from, _, size)| (*from..from + size).contains(&address))
        else {
            continue;
        };
        let mut registers = Registers {
            ip: address,
            sp: 0x7fe0_0000_0000 + random.next() % 4096 * 8,
            bp: 0x7fe0_0010_0000 + random.next() % 4096 * 8,
        };
        let opinion = oracle.ask(address, registers);
        let rule = lookup(&table, address - from + offset).unwrap_or(Rule::NONE);
        let code = step(rule, &mut registers, &mut Noise);
        tally.places += 1;
        let agree = match opinion {
            Opinion::Nothing => code == outcome::NO_RULE,
            Opinion::Outermost => code == outcome::OUTERMOST,
            Opinion::Unknowable => code == outcome::UNSUPPORTED,
            Opinion::Caller { .. } if code == outcome::UNSUPPORTED => {
                tally.expressible += 1;
                true
            }
            Opinion::Caller { ip, sp, bp } => {
                tally.callers += 1;
                let expected = Registers {
                    ip,
                    sp,
                    bp: bp.unwrap_or(LOST_BP),
                };
                code <= outcome::CALLER_EXACT && registers == expected
            }
        };
        tally.refused += usize::from(code == outcome::UNSUPPORTED);
        assert!(
            agree,
            "{name} at {address:x}: {opinion:x?}, but {rule:?} gives {code} {registers:x?}"
        );
    }
    println!(
        "{name}: {} KiB, {} rows, {} pages, {} rules in {took:.1?}; of {} places {} not expressed, {} of them could be",
        data.len() >> 10,
        table.rows.len(),
        table.pages.len() - 1,
        table.rules.len(),
        tally.places,
        tally.refused,
        tally.expressible,
    );
    Some(tally)
}

/// Check that the tables of this machine's files give the same results as gimli at many thousand addresses.
#[test]
fn tables_agree_with_gimli() {
    let mut sum = Tally::default();
    for path in files() {
        let data = fs::read(&path).unwrap();
        let name = path.display().to_string();
        // The comparison needs a search table (`.eh_frame_hdr`), which Go programs do not have.
        let Some(tally) = compare(&name, &data, 8_000) else {
            continue;
        };
        sum.places += tally.places;
        sum.callers += tally.callers;
        sum.refused += tally.refused;
        sum.expressible += tally.expressible;
    }
    assert!(sum.places >= 20_000, "{}", sum.places);
    assert!(sum.callers * 2 > sum.places, "{}", sum.callers);
    // Only hand-written code needs rules that can't be represented.
    assert!(sum.refused * 100 < sum.places, "{}", sum.refused);
    assert!(sum.expressible * 200 < sum.places, "{}", sum.expressible);
}

/// The bytes of the vDSO in this process.
pub(super) fn vdso() -> Vec<u8> {
    use std::os::unix::fs::FileExt as _;
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| line.ends_with("[vdso]")).unwrap();
    let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
    let [from, to] = [from, to].map(|text| u64::from_str_radix(text, 16).unwrap());
    let mut image = vec![0; (to - from) as usize];
    let memory = fs::File::open("/proc/self/mem").unwrap();
    memory.read_exact_at(&mut image, from).unwrap();
    image
}

/// Check that the vDSO has a table, and that the table gives the same results as gimli.
#[test]
fn vdso_table_agrees_with_gimli() {
    let image = vdso();
    let tally = compare("vDSO", &image, 20_000).unwrap();
    assert!(tally.callers > 5_000, "{}", tally.callers);
    assert_eq!(tally.refused, 0);
}

/// Check that the first frame of a thread and the return from a signal handler have rules of their own.
#[test]
fn special_frames_have_their_rules() {
    let path = files()
        .into_iter()
        .find(|path| path.file_name().is_some_and(|name| name == "libc.so.6"))
        .expect("this test needs the GNU C library");
    let table = build(fs::read(path).unwrap().as_slice(), &Limits::default()).unwrap();
    assert!(table.rules.contains(&Rule::SIGNAL));
    assert!(table.rules.contains(&Rule::OUTERMOST));
    let own = fs::read("/proc/self/exe").unwrap();
    let own_table = build(own.as_slice(), &Limits::default()).unwrap();
    let file = object::File::parse(own.as_slice()).unwrap();
    // The entry point's unwind information begins there.
    let (segment, offset) = file
        .segments()
        .find_map(|segment| {
            let within = file.entry().checked_sub(segment.address())?;
            (within < segment.size()).then(|| (within, segment.file_range().0))
        })
        .unwrap();
    assert_eq!(lookup(&own_table, segment + offset), Some(Rule::OUTERMOST));
    let plain = own_table.rules.iter().filter(|rule| rule.cfa == cfa::SP);
    assert!(plain.count() > 10);
}

/// Check that unwind information is found without section headers.
#[test]
fn section_headers_are_not_needed() {
    let mut image = vdso();
    let with = build(image.as_slice(), &Limits::default()).unwrap();
    // e_shoff, and e_shnum with e_shstrndx.
    image[0x28..0x30].fill(0);
    image[0x3c..0x40].fill(0);
    let without = build(image.as_slice(), &Limits::default()).unwrap();
    assert_eq!(with, without);
}
