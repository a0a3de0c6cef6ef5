//! Tests of the unwind step and tables against framehop, on this machine's files and on running programs: single steps at
//! random addresses, and whole walks.

mod interrupted;
mod peer;
mod stopped;
mod walker;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use heaptrace::unwind::{Limits, build, lookup};
use heaptrace_common::unwind::{LOST_BP, Memory, Registers, Rule, cfa, outcome, step};
use heaptrace_tests::{
    Compiler, Fixture, Random, c_optimized, cpp_optimized, require_tool, rust_optimized,
};
use object::{Object as _, ObjectSection as _, ObjectSegment as _};

use interrupted::interrupted;
use peer::{Opinion, Peer};
use stopped::{Next, Stopped};
use walker::Walker;

/// Memory in which every word is a different high address.
struct Noise;

impl Memory for Noise {
    fn read(&mut self, address: u64) -> Option<u64> {
        Some(mix(address) & 0xffff_fff8 | 0x7ff0_0000_0000)
    }
}

/// A number that depends on every bit of another one.
fn mix(number: u64) -> u64 {
    Random(number).number()
}

/// Programs and libraries of this machine, and fixtures of all compilers.
fn files() -> Result<BTreeSet<PathBuf>> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    let mut files: Vec<PathBuf> = maps
        .lines()
        .filter(|line| line.contains(" r-xp "))
        .filter_map(|line| Some(PathBuf::from(&line[line.find('/')?..])))
        .collect();
    for (tool, package) in [
        ("gdb", "gdb"),
        ("git", "git"),
        ("jq", "jq"),
        ("perl", "perl"),
        ("python3", "python3"),
        ("redis-check-rdb", "redis-tools"),
        ("sqlite3", "sqlite3"),
    ] {
        // An earlier program of that name in the path may be a script.
        require_tool(tool, package)?;
        files.push(PathBuf::from("/usr/bin").join(tool));
    }
    let named = Command::new("cc")
        .args(["-print-file-name=libstdc++.so.6", "-print-prog-name=cc1"])
        .output()?;
    files.extend(String::from_utf8(named.stdout)?.lines().map(PathBuf::from));
    for compiler in Compiler::all() {
        files.push(c_optimized("frames", compiler, &["-DTRAPS"])?.path);
        files.push(cpp_optimized("throws", compiler)?.path);
    }
    files.push(rust_optimized("frames")?.path);
    let real = files.iter().map(fs::canonicalize);
    Ok(real.collect::<Result<_, _>>()?)
}

/// Compares the caller by both unwinders at so many random addresses of a file. Returns at how many there is a caller, and
/// at how many our tables have no rule for the unwind information.
fn compare(data: &[u8], places: u64) -> Result<(u64, u64)> {
    const BIAS: u64 = 0x5500_0000_0000;
    let file = object::File::parse(data)?;
    let table = build(data, &Limits::default())?;
    let code: Vec<(u64, u64, u64)> = file
        .sections()
        .filter(|section| section.kind() == object::SectionKind::Text)
        .filter_map(|section| {
            let (offset, size) = section.file_range()?;
            Some((section.address(), offset, size))
        })
        .collect();
    let end = file.segments().map(|it| it.address() + it.size()).max();
    let mut peer = Peer::new();
    peer.add(&file, BIAS, (BIAS, BIAS + end.context("no segments")?));
    let all: u64 = code.iter().map(|section| section.2).sum();
    let (mut callers, mut refused) = (0, 0);
    for place in 0..places {
        let mut at = mix(place) % all;
        let mut sections = code.iter();
        let (address, offset) = loop {
            let (address, offset, size) = sections.next().context("no code")?;
            if at < *size {
                break (address + at, offset + at);
            }
            at -= size;
        };
        let start = Registers {
            ip: BIAS + address,
            sp: 0x7fe0_0000_0000 + mix(place + 1) % 4096 * 8,
            bp: 0x7fe0_0010_0000 + mix(place + 2) % 4096 * 8,
        };
        let rule = lookup(&table, offset).unwrap_or(Rule::NONE);
        let mut ours = start;
        let outcome = step(rule, &mut ours, &mut Noise);
        // framehop can't follow a frame address that is read from memory.
        if matches!(rule.cfa, cfa::DEREF_BP | cfa::DEREF_SP) {
            continue;
        }
        let theirs = match rule.cfa {
            cfa::SIGNAL => {
                interrupted(start, &mut Noise).map_or(Opinion::Outermost, Opinion::Caller)
            }
            _ => peer.step(start, true, &mut Noise),
        };
        let agree = match (outcome, theirs) {
            (outcome::CALLER | outcome::CALLER_EXACT, Opinion::Caller(theirs)) => {
                callers += 1;
                // framehop assumes that the frame pointer is unchanged in some cases in which we assume that it is lost.
                let bp_agrees = ours.bp == theirs.bp || ours.bp == LOST_BP;
                bp_agrees && (ours.ip, ours.sp) == (theirs.ip, theirs.sp)
            }
            (outcome::OUTERMOST, Opinion::Outermost) => true,
            // In an innermost frame without unwind information, framehop assumes a return address on top of the stack.
            (outcome::NO_RULE, Opinion::Caller(theirs)) => theirs.sp == start.sp + 8,
            // clang's assembler writes offsets that don't fit as negative numbers.
            (outcome::STUCK, Opinion::Caller(theirs)) => theirs.sp <= start.sp,
            (outcome::UNSUPPORTED, _) => {
                refused += 1;
                true
            }
            _ => false,
        };
        ensure!(
            agree,
            "at {address:#x}: {rule:?} gives {outcome} {ours:x?}, framehop {theirs:x?}"
        );
    }
    Ok((callers, refused))
}

/// Check that a step from a random address with random registers finds framehop's caller, in the machine's programs and
/// libraries and in fixtures of gcc, clang and rustc.
#[test]
fn steps_agree_with_framehop() -> Result<()> {
    let (mut places, mut callers, mut refused) = (0, 0, 0);
    let files = files()?;
    for path in &files {
        const PLACES: u64 = 10_000;
        let name = path.display().to_string();
        let (called, unsupported) =
            compare(&fs::read(path)?, PLACES).with_context(|| name.clone())?;
        println!("{name}: {called} callers, {unsupported} of {PLACES} places without a rule");
        places += PLACES;
        callers += called;
        refused += unsupported;
    }
    println!(
        "{callers} callers agree, of {places} places in {} files",
        files.len()
    );
    // Much of a small program is the C library's start code, and a part of that has no unwind information.
    assert!(callers * 10 >= places * 8, "{callers} of {places}");
    assert!(refused * 100 < places, "{refused} of {places}");
    Ok(())
}

/// Whether the stack at a trap may end so, by the requested size.
fn ends_well(size: u64, end: u32) -> bool {
    match size {
        1009 => end == 0,
        1014 => matches!(end, outcome::UNSUPPORTED | outcome::STUCK),
        _ => end == outcome::OUTERMOST,
    }
}

/// Walks at each trap. Returns the depth of each stack by the requested size.
fn walk_at_traps(fixture: &Fixture) -> Result<BTreeMap<u64, usize>> {
    let mut depths = BTreeMap::new();
    Stopped::start(&mut fixture.command())?.run(|program, stop| {
        let mut walker = Walker::new(program)?;
        let (ours, theirs) = walker.both(program, stop.registers, 128);
        let size = stop.argument;
        ensure!(ends_well(size, ours.end), "{size}: {ours:x?}, {theirs:x?}");
        if size == 1014 {
            let common = ours.addresses.len();
            ensure!(theirs.addresses.get(..common) == Some(&ours.addresses[..]));
        } else {
            ensure!(ours == theirs, "{size}: {ours:x?}, {theirs:x?}");
        }
        depths.insert(size, ours.addresses.len());
        Ok(Next::Trap)
    })?;
    Ok(depths)
}

/// Check that walks of real stacks, through every kind of frame, have framehop's addresses, with each compiler at every
/// level of optimization.
#[test]
fn walks_agree_with_framehop() -> Result<()> {
    for compiler in Compiler::all() {
        let fixture = c_optimized("frames", compiler, &["-DTRAPS"])?;
        let depths = walk_at_traps(&fixture).with_context(|| format!("{compiler:?}"))?;
        let sizes: Vec<u64> = depths.keys().copied().collect();
        assert_eq!(sizes, (1001..=1014).collect::<Vec<_>>(), "{compiler:?}");
        assert_eq!(depths[&1009], 128);
        assert!(depths[&1001] >= 7, "{compiler:?}: {depths:?}");
    }
    Ok(())
}

/// Check that walks agree at every single instruction of a program, also inside of prologues, epilogues and linkage stubs,
/// and that almost all are complete.
#[test]
fn walks_agree_at_every_instruction() -> Result<()> {
    const STEPS: usize = 20_000;
    const LIMIT: usize = 40;
    for name in ["gcc", "clang"] {
        let compiler = Compiler { name, level: "-O2" };
        let fixture = c_optimized("frames", compiler, &["-DTRAPS"])?;
        let mut walker = None;
        let (mut steps, mut followed, mut other) = (0, 0, BTreeMap::<u32, usize>::new());
        // The loader's code for binding a function at its first call finds its frame by a register that walks don't follow.
        let mut command = fixture.command();
        command.env("LD_BIND_NOW", "1");
        Stopped::start(&mut command)?.run(|program, stop| {
            if !walker
                .as_ref()
                .is_some_and(|it: &Walker| it.knows(stop.registers.ip))
            {
                walker = Some(Walker::new(program)?);
            }
            let walker = walker.as_mut().context("made above")?;
            let (ours, theirs) = walker.both(program, stop.registers, LIMIT);
            // Return probes of a tracer of the whole machine replace return addresses by the address of their own code.
            const TRAMPOLINE: u64 = 0x7fff_ffff_e000;
            if ours
                .addresses
                .last()
                .is_some_and(|last| last & !0xfff == TRAMPOLINE)
            {
                return Ok(Next::Instruction);
            }
            match ours.end {
                0 | outcome::OUTERMOST => {
                    ensure!(ours == theirs, "{ours:x?}, {theirs:x?}");
                    followed += 1;
                }
                end => *other.entry(end).or_default() += 1,
            }
            steps += 1;
            Ok(if steps < STEPS {
                Next::Instruction
            } else {
                Next::Kill
            })
        })?;
        println!(
            "{name}: at {followed} of {steps} instructions the same, incomplete by outcome: {other:?}"
        );
        assert!(followed * 1000 >= steps * 998, "{followed} of {steps}");
    }
    Ok(())
}
