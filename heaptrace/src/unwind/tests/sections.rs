//! Files with unwind information in `.debug_frame`, as the only section or beside `.eh_frame`, also compressed.
//!
//! Stage: unwind.

use std::fs;
use std::time::{Duration, Instant};

use heaptrace_common::unwind::{bp, cfa};
use object::{Object as _, ObjectSection as _};

use crate::unwind::image::Image;
use crate::unwind::{Limits, Table, TableError, build};

const SOURCE: &str = "
    typedef int Other(int *);
    int leaf(int n) { return n + 1; }
    int frame(Other *other, int n) { int a[40]; a[0] = n; return other(a) + other(a + n); }
    int sized(Other *other, int n) { int a[n]; return other(a) + leaf(n); }
    int aligned(Other *other, int n, int b, int c, int d, int e, int f, int g) {
        _Alignas(64) int a[40];
        int v[n];
        return other(a) + other(v) + b + c + d + e + f + g;
    }";

const FOR_EXCEPTIONS: [&str; 2] = ["-fasynchronous-unwind-tables", "-funwind-tables"];

const FOR_DEBUGGERS: [&str; 3] = [
    "-fno-asynchronous-unwind-tables",
    "-fno-unwind-tables",
    "-fno-exceptions",
];

/// A library compiled from C.
fn compiled(flags: &[&str], link: &[&str]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let [source, object, library] =
        ["source.c", "source.o", "library.so"].map(|name| folder.path().join(name));
    fs::write(&source, SOURCE).unwrap();
    let cc = |words: &[&str], more: &[&str]| {
        let status = std::process::Command::new("cc")
            .args(words)
            .args(more)
            .current_dir(folder.path())
            .status()
            .expect("this test needs the C compiler that Rust links with");
        assert!(status.success(), "{status}");
    };
    let common = [
        "-O2",
        "-g",
        "-fPIC",
        "-fvisibility=hidden",
        "-c",
        "source.c",
        "-o",
    ];
    let words = [&common[..], &[object.to_str().unwrap()]].concat();
    cc(&words, flags);
    let other = "int three_times(int n) { return n * 3; }";
    fs::write(folder.path().join("other.c"), other).unwrap();
    let words = ["-shared", "source.o", "-o", library.to_str().unwrap()];
    cc(&words, link);
    fs::read(library).unwrap()
}

fn table(data: &[u8]) -> Table {
    let table = build(data, &Limits::default()).unwrap();
    assert!(table.is_sound());
    table
}

fn has_section(data: &[u8], name: &str) -> bool {
    let file = object::File::parse(data).unwrap();
    let section = file.section_by_name(name);
    section.is_some_and(|section| section.size() > 0)
}

/// Check that a library with only `.debug_frame` has the same rules as with `.eh_frame`, also for a frame that realigns the
/// stack.
#[test]
fn debug_frame_gives_the_same_rules() {
    let usual = table(&compiled(&FOR_EXCEPTIONS, &["-nostdlib"]));
    let data = compiled(&FOR_DEBUGGERS, &["-nostdlib", "-gz=none"]);
    assert!(has_section(&data, ".debug_frame"));
    let table = table(&data);
    assert!(table.rows.len() > 10);
    assert_eq!(table.rules, usual.rules);
    let has = |kind, bp| {
        table
            .rules
            .iter()
            .any(|rule| (rule.cfa, rule.bp) == (kind, bp))
    };
    assert!(
        has(cfa::SP, bp::SAME) && has(cfa::BP, bp::AT_CFA),
        "{table:?}"
    );
    assert!(has(cfa::DEREF_BP, bp::AT_BP), "{table:?}");
}

/// Check that `.debug_frame` is read for functions that a small `.eh_frame` of another object file does not cover.
#[test]
fn debug_frame_fills_gaps() {
    let data = compiled(&FOR_DEBUGGERS, &["-nostdlib", "-gz=none", "other.c"]);
    assert!(has_section(&data, ".eh_frame") && has_section(&data, ".debug_frame"));
    let whole = table(&data);
    let image = Image::read(data.as_slice(), 1 << 20).unwrap();
    assert_eq!(image.frames.len(), 2);
    let stripped = table(&without_debug_frame(&data));
    assert!(
        whole.rows.len() > stripped.rows.len() + 10,
        "{} {}",
        whole.rows.len(),
        stripped.rows.len()
    );
    let rules = |table: &Table| {
        table
            .rules
            .iter()
            .filter(|it| it.cfa == cfa::DEREF_BP)
            .count()
    };
    assert_eq!((rules(&stripped), rules(&whole) > 0), (0, true));
}

/// The file with the name of `.debug_frame` changed.
fn without_debug_frame(data: &[u8]) -> Vec<u8> {
    let name = b"\0.debug_frame\0";
    let at = data.windows(name.len()).position(|it| it == name).unwrap();
    let mut data = data.to_vec();
    data[at + 1] = b'!';
    data
}

/// Check that a compressed section gives the same table, and that a compressed section over the size limit is ignored.
#[test]
fn compressed_sections_are_read() {
    let plain = table(&compiled(&FOR_DEBUGGERS, &["-nostdlib", "-gz=none"]));
    let data = compiled(&FOR_DEBUGGERS, &["-nostdlib", "-gz=zlib"]);
    let file = object::File::parse(data.as_slice()).unwrap();
    let section = file.section_by_name(".debug_frame").unwrap();
    let (offset, size) = section.file_range().unwrap();
    let is_compressed =
        section.compressed_file_range().unwrap().format != object::CompressionFormat::None;
    assert!(is_compressed, "the linker compresses no section so small");
    assert_eq!(table(&data), plain);
    let small = Limits {
        section_bytes: size,
        ..Limits::default()
    };
    assert!(section.compressed_file_range().unwrap().uncompressed_size > size);
    let error = build(data.as_slice(), &small).unwrap_err();
    assert!(matches!(error, TableError::Missing), "{error}");
    for at in offset..offset + size {
        let mut data = data.clone();
        data[at as usize] ^= 0x55;
        let _ = build(data.as_slice(), &Limits::default());
    }
}

/// Check that the build stops at its time limit, with a limit of zero.
#[test]
fn build_stops_at_its_time_limit() {
    let data = fs::read("/proc/self/exe").unwrap();
    let limits = Limits {
        time: Duration::ZERO,
        ..Limits::default()
    };
    let begin = Instant::now();
    let error = build(data.as_slice(), &limits).unwrap_err();
    assert!(matches!(error, TableError::TooSlow), "{error}");
    let short = begin.elapsed();
    build(data.as_slice(), &Limits::default()).unwrap();
    assert!(short < begin.elapsed() - short);
}

/// Check that files with the same unwind information have the same fingerprint, and that a change of the data from which a
/// table is built changes the fingerprint.
#[test]
fn fingerprints_differ_by_content() {
    let limits = Limits::default();
    let data = compiled(&FOR_EXCEPTIONS, &["-nostdlib"]);
    let fingerprint = |data: &[u8]| Image::read(data, 1 << 20).unwrap().fingerprint(&limits);
    let mut longer = data.clone();
    longer.extend([1, 2, 3]);
    assert_eq!(fingerprint(&data), fingerprint(&longer));
    let file = object::File::parse(data.as_slice()).unwrap();
    let (offset, size) = file
        .section_by_name(".eh_frame")
        .unwrap()
        .file_range()
        .unwrap();
    for at in [offset, offset + size - 1] {
        let mut other = data.clone();
        other[at as usize] ^= 1;
        assert_ne!(fingerprint(&data), fingerprint(&other));
    }
    // The first loaded segment's address.
    let mut other = data.clone();
    other[64 + 16] ^= 1;
    assert_ne!(fingerprint(&data), fingerprint(&other));
}
