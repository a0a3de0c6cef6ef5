//! Tests that compare the symbolizer with binutils, on files that a compiler builds.
//!
//! Stage: symbolize.

mod debug_files;
mod parallel;
mod parts;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::elf::ElfFacts;
use super::*;
use crate::join::{Function, FunctionId, Language, Location, LocationId, Module, ModuleId};
use crate::profile::{Profile, RunInfo, Symbols};
use crate::random::numbers;

const C: &str = r#"
#include <stdlib.h>
void *volatile sink;
static inline __attribute__((always_inline)) void *innermost(size_t n) {
    return malloc(n + 1);
}
static inline __attribute__((always_inline)) void *middle(size_t n) {
    void *p = innermost(n * 2);
    sink = p;
    return p;
}
__attribute__((noinline)) static void *hidden(size_t n) {
    void *p = malloc(n * 3);
    sink = p;
    return p;
}
__attribute__((noinline)) void *outer(size_t n) {
    void *p = middle(n);
    sink = hidden(n);
    return p;
}
int main(int argc, char **argv) { return outer(argc) == 0; }
"#;

const CPP: &str = r#"
#include <memory>
#include <string>
#include <vector>
namespace shop {
template <typename T> struct Shelf {
    std::vector<T> items;
    __attribute__((noinline)) void put(const T &item) { items.push_back(item); }
};
}
int main(int argc, char **) {
    shop::Shelf<std::string> shelf;
    for (int i = 0; i < argc; i++) shelf.put(std::string(100, 'x'));
    auto p = std::make_unique<std::vector<int>>(argc);
    return shelf.items.size() + p->size();
}
"#;

/// A symbolizer that searches for debug files in these folders.
pub(crate) fn with_folders(debug_dirs: Vec<PathBuf>) -> Symbolizer {
    let sources = DebugSources {
        folders: debug_dirs,
        debuginfod: None,
    };
    Symbolizer::with(crate::jobs::reader_of_tests(), sources)
}

pub(crate) fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn compile(dir: &Path, compiler: &str, source: &str, flags: &[&str]) -> PathBuf {
    let extension = if compiler == "g++" { "cc" } else { "c" };
    let input = dir.join(format!("fixture.{extension}"));
    std::fs::write(&input, source).unwrap();
    let output = dir.join("fixture");
    let mut args = vec!["-O2", "-Wl,--build-id", "-no-pie", "-o"];
    args.extend([output.to_str().unwrap(), input.to_str().unwrap()]);
    args.extend(flags);
    run(compiler, &args);
    output
}

/// A link-time address inside each call instruction of a file's code.
pub(crate) fn calls(path: &Path) -> Vec<u64> {
    let listing = run(
        "objdump",
        &["-d", "--no-show-raw-insn", path.to_str().unwrap()],
    );
    let mut calls = Vec::new();
    let mut after_call = false;
    for line in listing.lines() {
        let Some((address, text)) = line.trim_start().split_once(":\t") else {
            after_call = false;
            continue;
        };
        let address = u64::from_str_radix(address, 16).unwrap();
        if after_call {
            calls.push(address - 1);
        }
        after_call = text.starts_with("call") && text.contains('<');
    }
    calls
}

pub(crate) fn module(path: &Path) -> Module {
    let facts = File::open(path).ok().and_then(|file| ElfFacts::read(&file));
    Module {
        path: path.to_str().unwrap().to_owned(),
        build_id: facts.unwrap_or_default().build_id,
        ..Module::default()
    }
}

/// A profile of one module with these link-time addresses, converted to file offsets.
pub(crate) fn profile(module: Module, addresses: &[u64]) -> Profile {
    let mut profile = Profile::new(RunInfo::exact("--all"));
    let facts = File::open(&module.path)
        .ok()
        .and_then(|file| ElfFacts::read(&file))
        .unwrap_or_default();
    profile.locations = addresses
        .iter()
        .map(|address| Location {
            module: Some(ModuleId(0)),
            address: facts.offset(*address).unwrap_or(*address),
            function: None,
        })
        .collect();
    profile.modules.push(module);
    profile
}

fn all(profile: &Profile) -> impl Iterator<Item = LocationId> + use<> {
    (0..profile.locations.len() as u32).map(LocationId)
}

/// A frame as text: function, file, line, and whether it is inlined.
type Plain = (Option<String>, Option<String>, u32, bool);

fn plain(symbols: &Symbols, location: u32) -> Vec<Plain> {
    symbols
        .frames(LocationId(location))
        .iter()
        .map(|frame| {
            (
                frame.function.map(|id| symbols.text(id).to_owned()),
                frame.file.map(|id| symbols.text(id).to_owned()),
                frame.line,
                frame.inlined,
            )
        })
        .collect()
}

fn functions(symbols: &Symbols, location: u32) -> Vec<String> {
    plain(symbols, location)
        .into_iter()
        .map(|frame| frame.0.unwrap_or_else(|| "?".to_owned()))
        .collect()
}

/// The frames that `addr2line` finds.
fn addr2line(path: &Path, address: u64) -> Vec<Plain> {
    let text = run(
        "addr2line",
        &[
            "-ifC",
            "-e",
            path.to_str().unwrap(),
            &format!("{address:#x}"),
        ],
    );
    let lines: Vec<&str> = text.lines().collect();
    let count = lines.len() / 2;
    lines
        .chunks(2)
        .enumerate()
        .map(|(i, pair)| {
            let place = pair[1].split(" (discriminator").next().unwrap();
            let (file, line) = place.rsplit_once(':').unwrap();
            (
                (pair[0] != "??").then(|| pair[0].to_owned()),
                (file != "??").then(|| file.to_owned()),
                line.parse().unwrap_or(0),
                i + 1 < count,
            )
        })
        .collect()
}

/// Check that a location with a function of an interpreter is never looked up, also if a crafted file gives it a module.
#[test]
fn functions_of_interpreters_need_no_names() {
    let dir = tempfile::tempdir().unwrap();
    let path = compile(dir.path(), "gcc", C, &["-g"]);
    let mut profile = profile(module(&path), &calls(&path));
    profile.functions.push(Function {
        language: Language::Python,
        name: "f".to_owned(),
        file: "app.py".to_owned(),
    });
    profile.locations[0].function = Some(FunctionId(0));
    let mut symbolizer = with_folders(vec![]);
    symbolizer.symbolize(&profile, &OnDisk::default(), all(&profile));
    let symbols = symbolizer.into_symbols();
    assert_eq!(symbols.frames(LocationId(0)), []);
    assert!(!symbols.frames(LocationId(1)).is_empty());
}

/// Check that functions, files, lines and inlining at every call of a C program are the same as in `addr2line`, with three
/// functions at the inlined `malloc`.
#[test]
fn c_frames_equal_addr2line() {
    let dir = tempfile::tempdir().unwrap();
    let path = compile(dir.path(), "gcc", C, &["-g"]);
    let calls = calls(&path);
    let profile = profile(module(&path), &calls);
    let mut symbolizer = with_folders(vec![]);
    symbolizer.symbolize(&profile, &OnDisk::default(), all(&profile));
    let symbols = symbolizer.into_symbols();
    let mut deepest = Vec::new();
    let mut compared = 0;
    for (i, address) in calls.iter().enumerate() {
        let expected = addr2line(&path, *address);
        // The C runtime's own start code has no DWARF.
        if expected[0].2 == 0 {
            continue;
        }
        compared += 1;
        assert_eq!(plain(&symbols, i as u32), expected, "at {address:#x}");
        if expected.len() > deepest.len() {
            deepest = functions(&symbols, i as u32);
        }
    }
    assert!(compared >= 4, "{compared} calls compared");
    assert_eq!(deepest, ["innermost", "middle", "outer"]);
}

/// Check that files, lines and inlining at every call of a C++ program are the same as in `addr2line`, and that its names
/// are demangled.
#[test]
fn cpp_frames_equal_addr2line() {
    let dir = tempfile::tempdir().unwrap();
    let path = compile(dir.path(), "g++", CPP, &["-g"]);
    let calls = calls(&path);
    let profile = profile(module(&path), &calls);
    let mut symbolizer = with_folders(vec![]);
    symbolizer.symbolize(&profile, &OnDisk::default(), all(&profile));
    let symbols = symbolizer.into_symbols();
    let mut names = Vec::new();
    let mut inlined = 0;
    for (i, address) in calls.iter().enumerate() {
        let expected = addr2line(&path, *address);
        if expected[0].2 == 0 {
            continue;
        }
        let places = |frames: Vec<Plain>| -> Vec<_> {
            frames
                .into_iter()
                .map(|(_, file, line, inlined)| {
                    // Both addr2line and blazesym leave `..` in paths, but only blazesym leaves `.`.
                    (
                        file.map(|file| PathBuf::from(file).components().collect::<PathBuf>()),
                        line,
                        inlined,
                    )
                })
                .collect()
        };
        inlined += expected.len() - 1;
        assert_eq!(
            places(plain(&symbols, i as u32)),
            places(expected),
            "at {address:#x}"
        );
        names.extend(functions(&symbols, i as u32));
    }
    assert!(inlined > 10, "{inlined} inlined frames compared");
    assert!(
        names
            .iter()
            .any(|name| name.starts_with("shop::Shelf<std::") && name.contains("::put(")),
        "{names:?}"
    );
}

/// Check that an exported function of a stripped library has its name, and that a file with another build id than the
/// recorded one has no names.
#[test]
fn exported_function_of_libc_has_its_name() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let path = maps
        .lines()
        .filter_map(|line| line.find('/').map(|at| &line[at..]))
        .find(|path| path.ends_with("/libc.so.6"))
        .unwrap();
    let symbols = run("nm", &["-D", path]);
    let malloc = symbols
        .lines()
        .find(|line| line.ends_with(" malloc") || line.contains(" malloc@@"))
        .unwrap();
    let malloc = u64::from_str_radix(malloc.split(' ').next().unwrap(), 16).unwrap();
    let mut libc = module(Path::new(path));
    let known = profile(libc.clone(), &[malloc + 9]);
    let mut symbolizer = with_folders(vec![]);
    symbolizer.symbolize(&known, &OnDisk::default(), [LocationId(0)]);
    let names = functions(symbolizer.symbols(), 0);
    assert!(
        matches!(
            names.last().map(String::as_str),
            Some("malloc" | "__libc_malloc" | "__GI___libc_malloc")
        ),
        "{names:?}"
    );

    libc.build_id[0] ^= 1;
    let replaced = profile(libc, &[malloc + 9]);
    let mut symbolizer = with_folders(vec![]);
    symbolizer.symbolize(&replaced, &OnDisk::default(), [LocationId(0)]);
    assert_eq!(functions(symbolizer.symbols(), 0), ["?"]);
}

/// Check that the name of a Rust function has its module path, even if the DWARF has line tables only, as in this program.
#[test]
fn rust_function_has_its_path() {
    let function: fn(&str) -> String = demangle;
    let address = function as usize as u64 + 4;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let hex = |text| u64::from_str_radix(text, 16).unwrap();
    let (path, offset) = maps
        .lines()
        .find_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let (start, end) = fields[0].split_once('-')?;
            let path = *fields.get(5)?;
            (hex(start)..hex(end))
                .contains(&address)
                .then(|| (path.to_owned(), address - hex(start) + hex(fields[2])))
        })
        .unwrap();
    let mut profile = profile(module(Path::new(&path)), &[0]);
    profile.locations[0].address = offset;
    let mut symbolizer = with_folders(vec![]);
    symbolizer.symbolize(&profile, &OnDisk::default(), [LocationId(0)]);
    let frames = plain(symbolizer.symbols(), 0);
    let (function, file, _, inlined) = frames.last().unwrap();
    assert_eq!(
        function.as_deref(),
        Some("heaptrace::symbolize::demangle::demangle")
    );
    assert!(file.as_ref().unwrap().ends_with("symbolize/demangle.rs"));
    assert!(!inlined);
}

/// The address one byte after a symbol's start.
fn in_function(path: &Path, name: &str) -> u64 {
    let symbols = run("nm", &[path.to_str().unwrap()]);
    let line = symbols
        .lines()
        .find(|line| line.ends_with(&format!(" {name}")))
        .unwrap();
    u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap() + 1
}

/// Check that a location is looked up only once, even if no name was found.
#[test]
fn locations_are_looked_up_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = compile(dir.path(), "gcc", C, &["-g"]);
    let address = in_function(&path, "outer");
    let profile = profile(module(&path), &[address, 1, address]);
    let mut symbolizer = with_folders(vec![]);
    symbolizer.symbolize(&profile, &OnDisk::default(), [LocationId(0), LocationId(1)]);
    assert_eq!(symbolizer.symbols().frames.len(), 2);
    let before = symbolizer.symbols().clone();
    std::fs::remove_file(&path).unwrap();
    symbolizer.symbolize(&profile, &OnDisk::default(), all(&profile));
    assert_eq!(symbolizer.symbols().frames[..2], before.frames);
    assert_eq!(functions(symbolizer.symbols(), 2), ["?"]);
    symbolizer.symbolize(&profile, &OnDisk::default(), [LocationId(99)]);
}

/// Check that damaged files cause no panic, abort or endless wait.
#[test]
fn damaged_files_are_survived() {
    let dir = tempfile::tempdir().unwrap();
    let path = compile(dir.path(), "gcc", C, &["-g", "-gz"]);
    let addresses = calls(&path);
    let good = std::fs::read(&path).unwrap();
    let damaged = dir.path().join("damaged");
    let mut numbers = numbers(1);
    let mut random = |below: usize| numbers(below as u64) as usize;
    let sound = profile(module(&path), &addresses);
    for round in 0..400 {
        let mut bytes = good.clone();
        match round % 4 {
            0 => bytes.truncate(random(good.len())),
            // The headers at both ends of a file have the most effect.
            1 => bytes[random(64)] = random(256) as u8,
            2 => {
                let at = bytes.len() - 1 - random(2500);
                bytes[at] ^= 1 << random(8);
            }
            _ => {
                for _ in 0..50 {
                    let at = random(bytes.len());
                    bytes[at] = random(256) as u8;
                }
            }
        }
        std::fs::write(&damaged, bytes).unwrap();
        let mut profile = sound.clone();
        profile.modules[0].path = damaged.to_str().unwrap().to_owned();
        profile.modules[0].build_id.clear();
        let mut symbolizer = with_folders(vec![]);
        symbolizer.symbolize(&profile, &OnDisk::default(), all(&profile));
        assert_eq!(symbolizer.symbols().frames.len(), addresses.len());
    }
}
