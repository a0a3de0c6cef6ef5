//! Hostile files with code: wrong symbols, relocations, debug information and links.
//!
//! Part of hostile.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use heaptrace_tests::Random;

use super::elf::{
    ALLOCATED, CODE, COMPRESSED, DYNSYM, Elf, NOTE, PROGBITS, RELA, STRTAB, SYMTAB, Section,
    symbols,
};
use super::suite::{CaseRun, functions, word};

/// The number of allocations of the program itself, and through each file.
const OWN: u64 = 100;
const EACH: u64 = 10;

/// Maps the files one after another and allocates through each. Every allocation must be seen.
fn mapped(case: &CaseRun<'_>, paths: &[PathBuf]) -> Result<String> {
    let mut mode: Vec<&OsStr> = vec!["map".as_ref()];
    mode.extend(paths.iter().map(|path| word(path)));
    let expected = OWN + EACH * paths.len() as u64;
    case.traced(&mode, expected)?;
    Ok(format!("{expected} allocations, none missing"))
}

fn one(case: &CaseRun<'_>, elf: &Elf) -> Result<String> {
    let path = case.file("x.so");
    elf.write(&path)?;
    mapped(case, &[path])
}

/// The head of a file with code at the given addresses.
fn code(parts: &[(u64, &[u8])]) -> Vec<u8> {
    let mut code = vec![
        0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0xff, 0xd0, 0x5d, 0xc3,
    ];
    for (address, bytes) in parts {
        code.resize(code.len().max((address - CODE) as usize), 0x90);
        code.extend(*bytes);
    }
    code.resize(0xe00, 0xc3);
    code
}

/// An allocator whose `malloc` is this code, which is never called.
fn malloc_is(case: &CaseRun<'_>, bytes: &[u8]) -> Result<String> {
    let mut elf = Elf::exporting(&[("malloc", 0x400, 32), ("free", 0x500, 32)]);
    elf.code = code(&[(0x400, bytes), (0x500, &[0x55, 0x5d, 0xc3])]);
    one(case, &elf)
}

pub(super) fn malloc_begins_with_a_breakpoint(case: &CaseRun<'_>) -> Result<String> {
    malloc_is(case, &[0xcc, 0x48, 0x89, 0xf8, 0xc3])
}

pub(super) fn malloc_begins_with_a_lock(case: &CaseRun<'_>) -> Result<String> {
    malloc_is(case, &[0xf0, 0x0f, 0xb1, 0x0f, 0xc3])
}

/// Twenty copies of an allocator, each with different bits flipped.
pub(super) fn bit_flips(case: &CaseRun<'_>) -> Result<String> {
    let names = ["malloc", "calloc", "realloc", "free", "posix_memalign"];
    let functions: Vec<(&str, u64, u64)> = names
        .iter()
        .zip((0x300..).step_by(0x40))
        .map(|(name, address)| (*name, address, 0x40))
        .collect();
    let whole = case.file("whole.so");
    Elf::exporting(&functions).write(&whole)?;
    let bytes = fs::read(&whole)?;
    let mut paths = Vec::new();
    let mut random = Random(1);
    for number in 0..20 {
        let mut bytes = bytes.clone();
        for _ in 0..=number {
            let at = random.below(bytes.len());
            // The code that is called must stay intact.
            if !(0x200..0x210).contains(&at) {
                bytes[at] ^= 1 << random.below(8);
            }
        }
        let path = case.file(&format!("flipped-{number}.so"));
        fs::write(&path, bytes)?;
        paths.push(path);
    }
    mapped(case, &paths)
}

fn with_sparse(name: &'static str, kind: u32, size: u64, link: u32, entry: u64) -> Elf {
    let mut elf = Elf::exporting(&[("through", CODE, 14)]);
    elf.sections.push(Section {
        sparse: size,
        link,
        entry,
        ..Section::new(name, kind, vec![0; 64])
    });
    elf
}

pub(super) fn sparse_symbols(case: &CaseRun<'_>) -> Result<String> {
    one(case, &with_sparse(".symtab", SYMTAB, 6 << 30, 2, 24))
}

pub(super) fn giant_dwarf(case: &CaseRun<'_>) -> Result<String> {
    one(case, &with_sparse(".debug_info", PROGBITS, 8 << 30, 0, 0))
}

pub(super) fn giant_frames(case: &CaseRun<'_>) -> Result<String> {
    one(case, &with_sparse(".eh_frame", PROGBITS, 4 << 30, 0, 0))
}

/// 900,000 relocations, each of a symbol with a name of 4 kB. The names overlap.
pub(super) fn many_relocations(case: &CaseRun<'_>) -> Result<String> {
    const COUNT: u64 = 900_000;
    let mut names = vec![b'a'; 4096 + 900_000];
    names[0] = 0;
    names.push(0);
    let mut table = vec![0_u8; 24];
    let mut relocations = Vec::new();
    for number in 0..COUNT {
        table.extend((1 + number as u32).to_le_bytes());
        table.extend([0x12, 0, 0, 0]);
        table.extend([0; 16]);
        relocations.extend((0x3000 + number * 8).to_le_bytes());
        relocations.extend(((number + 1) << 32 | 7).to_le_bytes());
        relocations.extend([0; 8]);
    }
    let (functions, function_names) = symbols(&[("malloc", 0x400, 16), ("_Znwm", 0x500, 64)]);
    let section = |name, kind, data, link, entry| Section {
        flags: ALLOCATED,
        link,
        entry,
        ..Section::new(name, kind, data)
    };
    let mut elf = Elf::with(vec![
        section(".dynsym", DYNSYM, table, 2, 24),
        section(".dynstr", STRTAB, names, 0, 0),
        section(".rela.dyn", RELA, relocations, 1, 24),
        section(".symtab", SYMTAB, functions, 5, 24),
        section(".strtab", STRTAB, function_names, 0, 0),
    ]);
    elf.code = code(&[(0x500, &[0xff, 0x25, 0xfa, 0x2a, 0, 0])]);
    one(case, &elf)
}

/// 500 functions that look like Rust's allocator.
pub(super) fn rust_symbols(case: &CaseRun<'_>) -> Result<String> {
    let names: Vec<String> = (0..500)
        .map(|number| format!("_RNvCs{number:x}_7___rustc12___rust_alloc"))
        .chain((0..500).map(|number| format!("__rust_alloc.{number}")))
        .collect();
    let functions: Vec<(&str, u64, u64)> = names
        .iter()
        .zip((0x300..).step_by(2))
        .map(|(name, address)| (name.as_str(), address, 2))
        .collect();
    let (table, names) = symbols(&functions);
    let mut elf = Elf::with(vec![
        Section {
            link: 2,
            entry: 24,
            ..Section::new(".symtab", SYMTAB, table)
        },
        Section::new(".strtab", STRTAB, names),
    ]);
    elf.code = code(&[(0x300, &[0x55; 0x900])]);
    one(case, &elf)
}

/// A file whose interpreter is a script that leaves a mark, named as an argument of a command.
pub(super) fn interpreter(case: &CaseRun<'_>) -> Result<String> {
    let (mark, script, document) = (
        case.file("executed"),
        case.file("loader"),
        case.file("doc.pdf"),
    );
    fs::write(&script, format!("#!/bin/sh\ntouch '{}'\n", mark.display()))?;
    super::surroundings::make_executable(&script)?;
    let mut name = b"loader\0".to_vec();
    if name.len() > 0xf0 {
        name.truncate(0xf0);
    }
    // The path is relative, because the folder's name can be long; heaptrace runs in the folder.
    let elf = Elf {
        interpreter: Some([b"./".as_slice(), &name].concat()),
        ..Elf::default()
    };
    elf.write(&document)?;
    let mut arguments = super::ended::words(&["record", "-o"]);
    arguments.extend([case.data().into(), "--".into(), "sha256sum".into()]);
    arguments.push(document.into());
    let ended = case.run(&arguments)?;
    ensure!(!mark.exists(), "it was executed");
    case.whole(&ended, 1)?;
    Ok("not executed".to_owned())
}

pub(super) fn garbage_frames(case: &CaseRun<'_>) -> Result<String> {
    let mut paths = Vec::new();
    for seed in 0..8_u64 {
        let mut random = Random(seed);
        let noise = (0..20_000).map(|_| random.number() as u8);
        let mut elf = Elf::exporting(&[("through", CODE, 14)]);
        elf.sections.push(Section {
            flags: ALLOCATED,
            ..Section::new(".eh_frame", PROGBITS, noise.collect())
        });
        let path = case.file(&format!("noise-{seed}.so"));
        elf.write(&path)?;
        paths.push(path);
    }
    mapped(case, &paths)
}

/// Entries that name themselves or each other as their common entry.
pub(super) fn cyclic_frames(case: &CaseRun<'_>) -> Result<String> {
    let mut frames = Vec::new();
    for number in 0..4000_u32 {
        frames.extend(20_u32.to_le_bytes());
        // Zero would mark a common entry. This is a distance back to another entry, or to the entry itself.
        frames.extend((number % 5 * 24 + 4).to_le_bytes());
        frames.extend([0x1b; 16]);
    }
    let mut elf = Elf::exporting(&[("through", CODE, 14)]);
    for name in [".eh_frame", ".debug_frame"] {
        elf.sections.push(Section {
            flags: ALLOCATED,
            ..Section::new(name, PROGBITS, frames.clone())
        });
    }
    one(case, &elf)
}

/// 200,000 entries, each a child of the previous one.
pub(super) fn deep_dwarf(case: &CaseRun<'_>) -> Result<String> {
    // A unit has children. Each child is a function of the same code, and has children too.
    let abbreviations = vec![
        1, 0x11, 1, 0x11, 0x01, 0x12, 0x06, 0, 0, // unit: low, length
        2, 0x2e, 1, 0x11, 0x01, 0x12, 0x06, 0x03, 0x08, 0, 0, // function: low, length, name
        0,
    ];
    let place = |info: &mut Vec<u8>| {
        info.extend(CODE.to_le_bytes());
        info.extend(14_u32.to_le_bytes());
    };
    let mut info = vec![4, 0, 0, 0, 0, 0, 8, 1];
    place(&mut info);
    for _ in 0..200_000 {
        info.push(2);
        place(&mut info);
        info.extend(b"f\0");
    }
    info.extend([0; 64]);
    let mut whole = (info.len() as u32).to_le_bytes().to_vec();
    whole.extend(info);
    let (table, names) = symbols(&[("through", CODE, 14)]);
    let elf = Elf::with(vec![
        Section {
            link: 2,
            entry: 24,
            ..Section::new(".symtab", SYMTAB, table)
        },
        Section::new(".strtab", STRTAB, names),
        Section::new(".debug_info", PROGBITS, whole),
        Section::new(".debug_abbrev", PROGBITS, abbreviations),
    ]);
    one(case, &elf)
}

/// Zeros, compressed by a program of the system.
fn compressed_zeros(program: &str, mib: u64) -> Result<Vec<u8>> {
    let script = format!("head -c {} /dev/zero | {program}", mib << 20);
    let output = Command::new("sh")
        .args(["-c", &script])
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {program}"))?;
    ensure!(
        output.status.success() && !output.stdout.is_empty(),
        "{program} failed"
    );
    Ok(output.stdout)
}

/// Debug sections in which 1 MB becomes 1 GB: one with the true size and one with a false size.
pub(super) fn compressed_sections(case: &CaseRun<'_>) -> Result<String> {
    let python = "python3 -c 'import sys,zlib; c=zlib.compressobj(9); w=sys.stdout.buffer.write\n\
                  for i in iter(lambda: sys.stdin.buffer.read(1<<20), b\"\"): w(c.compress(i))\n\
                  w(c.flush())'";
    let packed = compressed_zeros(python, 1024)?;
    let mut paths = Vec::new();
    for (number, claimed) in [1_u64 << 30, 64, 1 << 62].into_iter().enumerate() {
        let mut elf = Elf::exporting(&[("through", CODE, 14)]);
        for name in [".debug_info", ".debug_line", ".debug_frame", ".eh_frame"] {
            // Kind 1 is zlib.
            let mut data = vec![1, 0, 0, 0, 0, 0, 0, 0];
            data.extend(claimed.to_le_bytes());
            data.extend(1_u64.to_le_bytes());
            data.extend(&packed);
            elf.sections.push(Section {
                flags: COMPRESSED,
                ..Section::new(name, PROGBITS, data)
            });
        }
        let path = case.file(&format!("bomb-{number}.so"));
        elf.write(&path)?;
        paths.push(path);
    }
    mapped(case, &paths)
}

pub(super) fn packed_symbols(case: &CaseRun<'_>) -> Result<String> {
    let mut elf = Elf::default();
    let packed = compressed_zeros("xz -9", 2048)?;
    elf.sections
        .push(Section::new(".gnu_debugdata", PROGBITS, packed));
    one(case, &elf)
}

/// Debug links that lead out of their folder.
pub(super) fn debug_links(case: &CaseRun<'_>) -> Result<String> {
    let mut paths = Vec::new();
    let pipe = case.file("pipe.debug");
    super::surroundings::make_pipe(&pipe)?;
    let names = [
        "/dev/zero",
        "../../../../../../dev/zero",
        "pipe.debug",
        "..",
        "/proc/self/mem",
    ];
    for (number, name) in names.iter().enumerate() {
        let mut elf = Elf::exporting(&[("through", CODE, 14)]);
        let mut link = name.as_bytes().to_vec();
        link.push(0);
        link.resize(link.len().next_multiple_of(4), 0);
        link.extend([1, 2, 3, 4]);
        for section in [".gnu_debuglink", ".gnu_debugaltlink"] {
            elf.sections
                .push(Section::new(section, PROGBITS, link.clone()));
        }
        let path = case.file(&format!("linked-{number}.so"));
        elf.write(&path)?;
        paths.push(path);
    }
    mapped(case, &paths)
}

/// Invalid build ids: empty, of one byte, with a path in them, and of 60 kB.
pub(super) fn build_ids(case: &CaseRun<'_>) -> Result<String> {
    let long = vec![b'/'; 60_000];
    let ids: [&[u8]; 6] = [b"", b"a", b"../../../../etc/passwd", b"/", &long, &[0; 20]];
    let mut paths = Vec::new();
    for (number, id) in ids.iter().enumerate() {
        let path = case.file(&format!("id-{number}.so"));
        Elf::exporting(&[("through", CODE, 14)])
            .with_build_id(id)
            .write(&path)?;
        paths.push(path);
    }
    mapped(case, &paths)
}

/// Two files with one build id. Each stack must name its own file's function.
pub(super) fn forged_build_id(case: &CaseRun<'_>) -> Result<String> {
    let (victim, forger) = (case.file("victim.so"), case.file("forger.so"));
    for (path, name) in [(&victim, "victims_function"), (&forger, "forged_name")] {
        Elf::exporting(&[(name, CODE, 14)])
            .with_build_id(&[0x42; 20])
            .write(path)?;
    }
    let report = case.traced(
        &["map".as_ref(), word(&forger), word(&victim)],
        OWN + 2 * EACH,
    )?;
    let sites = report["sites"].as_array().into_iter().flatten();
    for frame in sites.flat_map(|site| site["stack"].as_array().into_iter().flatten()) {
        let module = frame["module"].as_str().unwrap_or("");
        let name = frame["function"].as_str().unwrap_or("");
        ensure!(
            !(module.ends_with("victim.so") && name == "forged_name"
                || module.ends_with("forger.so") && name == "victims_function"),
            "{name} was read of another file than {module}"
        );
    }
    Ok("each file has its own names".to_owned())
}

/// Twenty files that are mapped one after another at one address.
pub(super) fn one_address(case: &CaseRun<'_>) -> Result<String> {
    let mut mode: Vec<PathBuf> = Vec::new();
    for number in 0..20 {
        let path = case.file(&format!("turn-{number}.so"));
        Elf::exporting(&[(&format!("in_turn_{number}"), CODE, 14)]).write(&path)?;
        mode.push(path);
    }
    let mut words: Vec<&OsStr> = vec!["map-one-address".as_ref()];
    words.extend(mode.iter().map(|path| word(path)));
    let report = case.traced(&words, OWN + 20 * EACH)?;
    let sites = report["sites"].as_array().into_iter().flatten();
    let mut named = BTreeSet::new();
    for site in sites {
        for frame in site["stack"].as_array().into_iter().flatten() {
            let module = frame["module"].as_str().unwrap_or("");
            let Some(number) = frame["function"]
                .as_str()
                .and_then(|name| name.strip_prefix("in_turn_"))
            else {
                continue;
            };
            let calls = site["totals"]["allocations"].as_u64().unwrap_or(0);
            ensure!(
                module.ends_with(&format!("turn-{number}.so")) && calls <= EACH,
                "{calls} allocations of several files were read as in_turn_{number} of {module}"
            );
            named.insert(number.to_owned());
        }
    }
    Ok(format!(
        "{} of 20 have names, and no name is wrong",
        named.len()
    ))
}

/// Headers that claim more data than the file has.
pub(super) fn claims(case: &CaseRun<'_>) -> Result<String> {
    let whole = case.file("whole.so");
    Elf::exporting(&[("malloc", CODE, 14)]).write(&whole)?;
    let bytes = fs::read(&whole)?;
    let mut paths = Vec::new();
    for (number, (at, claim)) in [
        (56, 0xffff_u16),
        (60, 0xffff),
        (60, 0),
        (62, 0xfffe),
        (58, 1),
        (54, 0xffff),
        (52, 0),
    ]
    .into_iter()
    .enumerate()
    {
        let mut bytes = bytes.clone();
        bytes[at..at + 2].copy_from_slice(&claim.to_le_bytes());
        let path = case.file(&format!("claim-{number}.so"));
        fs::write(&path, bytes)?;
        paths.push(path);
    }
    mapped(case, &paths)
}

/// A note section of 4 GiB of empty notes.
pub(super) fn endless_notes(case: &CaseRun<'_>) -> Result<String> {
    one(
        case,
        &with_sparse(".note.gnu.build-id", NOTE, 4 << 30, 0, 0),
    )
}

/// A library that is loaded and unloaded 300 times.
pub(super) fn dlopen_storm(case: &CaseRun<'_>) -> Result<String> {
    let (source, library) = (case.file("through.c"), case.file("through.so"));
    let text = "void *through_library(void *(*f)(unsigned long), unsigned long n)\n\
                { void *volatile p = f(n); return p; }\n";
    fs::File::create(&source)?.write_all(text.as_bytes())?;
    compile(&source, &library)?;
    let report = case.traced(
        &["dlopens".as_ref(), word(&library), "300".as_ref()],
        OWN + 300,
    )?;
    let names = functions(&report);
    ensure!(
        names.iter().any(|name| name == "through_library"),
        "no stack names the library"
    );
    Ok("all 300 loads seen, with names".to_owned())
}

fn compile(source: &Path, library: &Path) -> Result<()> {
    let mut command = Command::new("cc");
    command.args(["-O1", "-fno-omit-frame-pointer", "-shared", "-fPIC", "-o"]);
    crate::process::run(command.arg(library).arg(source))
}
