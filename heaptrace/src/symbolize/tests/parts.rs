//! Tests of names from debug information in several files (split DWARF), as compilers and packagers make it.
//!
//! Stage: symbolize.

use super::*;

/// The frames at each call of a program, and what is not known of them.
fn frames(path: &Path, folders: Vec<PathBuf>) -> (Vec<Vec<Plain>>, Vec<String>) {
    let addresses = calls(path);
    let profile = profile(module(path), &addresses);
    let mut symbolizer = with_folders(folders);
    symbolizer.symbolize(&profile, &OnDisk::default(), all(&profile));
    let gaps = symbolizer.gaps();
    let symbols = symbolizer.into_symbols();
    let frames = (0..addresses.len() as u32).map(|at| plain(&symbols, at));
    (frames.collect(), gaps)
}

/// How many of these frames are inlined.
fn inlined(frames: &[Vec<Plain>]) -> usize {
    frames.iter().flatten().filter(|frame| frame.3).count()
}

fn files(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|it| it == extension))
        .collect();
    found.sort();
    found
}

/// A C program whose debug information is in a file of its own, that file, and the frames of the same program with all in one file.
fn split(dir: &Path, version: &str) -> (PathBuf, PathBuf, Vec<Vec<Plain>>) {
    let whole = compile(dir, "gcc", C, &["-g", version]);
    let expected = frames(&whole, vec![]).0;
    assert!(inlined(&expected) >= 2, "{expected:?}");
    let path = compile(dir, "gcc", C, &["-g", version, "-gsplit-dwarf"]);
    let [unit] = files(dir, "dwo").try_into().unwrap();
    (path, unit, expected)
}

/// Check that functions, files, lines and inlining of a program with `.dwo` files are those of the same program without, in both versions of
/// DWARF; that these files are found where they were made and in a debug folder; that a file of another build is not used; and that a
/// missing file is named.
#[test]
fn files_of_units_are_read() {
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let dir = tempfile::tempdir().unwrap();
        let (path, unit, expected) = split(dir.path(), version);
        assert_eq!(
            frames(&path, vec![]),
            (expected.clone(), vec![]),
            "{version}"
        );

        let folder = dir.path().join("debug");
        std::fs::create_dir(&folder).unwrap();
        let kept = folder.join(unit.file_name().unwrap());
        std::fs::rename(&unit, &kept).unwrap();
        let (found, gaps) = frames(&path, vec![]);
        assert_eq!((inlined(&found), gaps.len()), (0, 1), "{version}");
        assert!(gaps[0].contains(unit.to_str().unwrap()), "{gaps:?}");
        assert!(
            found
                .iter()
                .any(|frames| frames[0].0.as_deref() == Some("outer"))
        );
        assert_eq!(
            frames(&path, vec![folder]),
            (expected.clone(), vec![]),
            "{version}"
        );

        let other = tempfile::tempdir().unwrap();
        let source = C.replace("n + 1", "n + 7");
        compile(
            other.path(),
            "gcc",
            &source,
            &["-g", version, "-gsplit-dwarf"],
        );
        std::fs::copy(&files(other.path(), "dwo")[0], &unit).unwrap();
        let (found, gaps) = frames(&path, vec![]);
        assert_eq!((inlined(&found), gaps.len()), (0, 1), "{version}");
    }
}

/// Check that a package of units is found beside the program, beside its debug file, and by build id in a debug folder, and that compressed
/// sections in it are read.
#[test]
fn packages_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let (path, unit, expected) = split(dir.path(), "-gdwarf-4");
    let package = dir.path().join("fixture.dwp");
    let [from, to, program] = [&unit, &package, &path].map(|path| path.to_str().unwrap());
    run("dwp", &["-o", to, from]);
    std::fs::remove_file(&unit).unwrap();
    let read = || frames(&path, vec![dir.path().join("debug")]);
    assert_eq!(read(), (expected.clone(), vec![]));
    run("objcopy", &["--compress-debug-sections=zlib", to, to]);
    assert_eq!(read(), (expected.clone(), vec![]));

    let id: String = module(&path)
        .build_id
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let by_id = dir.path().join("debug/.build-id").join(&id[..2]);
    std::fs::create_dir_all(&by_id).unwrap();
    let in_folder = by_id.join(format!("{}.dwp", &id[2..]));
    std::fs::rename(&package, &in_folder).unwrap();
    assert_eq!(read(), (expected.clone(), vec![]));

    let debug = by_id.join(format!("{}.debug", &id[2..]));
    let debug_arg = debug.to_str().unwrap();
    run("objcopy", &["--only-keep-debug", program, debug_arg]);
    run("strip", &[program]);
    let found = read();
    assert_eq!(inlined(&found.0), inlined(&expected));
    assert_eq!(found.1, [""; 0]);
    std::fs::remove_file(in_folder).unwrap();
    assert_eq!(inlined(&read().0), 0);
}

/// Check that a Rust program has the same frames with its debug information in itself, in `.dwo` files, and in a package.
#[test]
fn rust_programs_may_be_split() {
    const RUST: &str = "
        #[inline(always)]
        fn grown(n: usize) -> Vec<u8> { Vec::with_capacity(n) }
        #[inline(never)]
        fn made(n: usize) -> usize { grown(n * 3).capacity() + grown(n).capacity() }
        fn main() { std::process::exit(made(std::env::args().count()) as i32); }
    ";
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("fixture.rs");
    std::fs::write(&source, RUST).unwrap();
    let of_made = |kind: &str, version: u32| {
        let path = dir.path().join(format!("fixture-{kind}-{version}"));
        let kind = format!("-Csplit-debuginfo={kind}");
        let version = format!("-Cdwarf-version={version}");
        let [to, from] = [&path, &source].map(|path| path.to_str().unwrap());
        let options = ["-g", "-O", "-Ccodegen-units=1", &kind, &version];
        run("rustc", &[&options[..], &["-o", to, from]].concat());
        let (found, gaps) = frames(&path, vec![]);
        assert_eq!(gaps.len(), 0, "{gaps:?}");
        let made = found.into_iter().filter(|frames| {
            let function = frames.last().and_then(|frame| frame.0.as_deref());
            function == Some("fixture::made")
        });
        made.map(|frames| frames.into_iter().map(|frame| (frame.0, frame.2, frame.3)))
            .map(Vec::from_iter)
            .collect::<Vec<_>>()
    };
    let expected = of_made("off", 4);
    assert!(
        expected
            .iter()
            .flatten()
            .any(|frame| frame.0.as_deref() == Some("fixture::grown"))
    );
    for version in [4, 5] {
        assert_eq!(of_made("unpacked", version), expected);
        assert_eq!(of_made("packed", version), expected);
    }
}
