//! Tests of names from debug files, and from compressed sections.
//!
//! Stage: symbolize.

use super::*;
use crate::proc::build_id::read_build;

/// Check that a stripped file has no names rather than wrong ones, that it has the right names once its debug file is beside
/// it or in a debug folder, and that a debug file of another build is not used.
#[test]
fn stripped_file_needs_its_debug_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = compile(dir.path(), "gcc", C, &["-g", "-rdynamic"]);
    let addresses = [in_function(&path, "hidden"), in_function(&path, "outer")];
    let whole = dir.path().join("whole");
    std::fs::copy(&path, &whole).unwrap();
    run("strip", &[path.to_str().unwrap()]);
    let names = |debug_dirs: Vec<PathBuf>| {
        let profile = profile(module(&path), &addresses);
        let mut symbolizer = with_folders(debug_dirs);
        symbolizer.symbolize(&profile, &OnDisk::default(), all(&profile));
        let symbols = symbolizer.into_symbols();
        (functions(&symbols, 0), plain(&symbols, 1)[0].clone())
    };
    let (hidden, outer) = names(vec![]);
    assert_eq!(hidden, ["?"]);
    assert_eq!(outer, (Some("outer".to_owned()), None, 0, false));

    // By build id, in a debug folder.
    let id: String = module(&path)
        .build_id
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    let debug_dir = dir.path().join("debug");
    let by_id = debug_dir.join(".build-id").join(&id[..2]);
    std::fs::create_dir_all(&by_id).unwrap();
    let debug_file = by_id.join(format!("{}.debug", &id[2..]));
    let [whole_arg, debug_arg] = [&whole, &debug_file].map(|path| path.to_str().unwrap());
    run("objcopy", &["--only-keep-debug", whole_arg, debug_arg]);
    let (hidden, outer) = names(vec![debug_dir.clone()]);
    assert_eq!(hidden, ["hidden"]);
    assert!(outer.1.as_ref().unwrap().ends_with("/fixture.c"));
    assert!((16..20).contains(&outer.2), "{}", outer.2);

    // The same on a machine that has the debug file alone.
    let mut elsewhere = profile(module(&path), &addresses);
    let build = read_build(&*std::fs::read(&path).unwrap());
    let known = &mut elsewhere.modules[0];
    known.text_offset = elsewhere.locations[0].address & !0xfff;
    known.text_address = build.address_of(known.text_offset);
    known.path = "/no/such/fixture".to_owned();
    let alone = |debug_dirs: Vec<PathBuf>, elsewhere: &Profile| {
        let mut symbolizer = with_folders(debug_dirs);
        symbolizer.symbolize(elsewhere, &OnDisk::default(), all(elsewhere));
        let symbols = symbolizer.into_symbols();
        (functions(&symbols, 0), plain(&symbols, 1)[0].clone())
    };
    let found = alone(vec![debug_dir.clone()], &elsewhere);
    assert_eq!(found.0, ["hidden"]);
    assert_eq!(found.1, outer);
    // Or the program as it was built, under its name.
    let builds = dir.path().join("builds");
    std::fs::create_dir(&builds).unwrap();
    std::fs::copy(&whole, builds.join("fixture")).unwrap();
    assert_eq!(alone(vec![builds.clone()], &elsewhere), found);
    elsewhere.modules[0].build_id[3] ^= 1;
    assert_eq!(alone(vec![builds], &elsewhere).0, ["?"]);

    // By name, beside the file.
    let beside = dir.path().join("fixture.debug");
    std::fs::copy(&debug_file, &beside).unwrap();
    let link = format!("--add-gnu-debuglink={}", beside.to_str().unwrap());
    run("objcopy", &[&link, path.to_str().unwrap()]);
    assert_eq!(names(vec![]).0, ["hidden"]);

    // A debug file of another build.
    let other = dir.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let built = compile(&other, "gcc", &C.replace("n * 3", "n * 5"), &["-g"]);
    std::fs::copy(built, &beside).unwrap();
    assert_eq!(names(vec![]).0, ["?"]);
}

/// Check that names are read from compressed debug sections, and that a section which claims another length than it has gets the file
/// refused.
#[test]
fn compressed_sections_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = compile(dir.path(), "gcc", C, &["-g"]);
    let addresses = [in_function(&path, "hidden")];
    let names = |path: &Path| {
        let profile = profile(module(path), &addresses);
        let mut symbolizer = with_folders(vec![]);
        symbolizer.symbolize(&profile, &OnDisk::default(), all(&profile));
        plain(symbolizer.symbols(), 0)[0].clone()
    };
    let plainly = names(&path);
    assert!(plainly.1.as_ref().unwrap().ends_with("/fixture.c"));
    for (kind, number) in [("zlib", 1_u32), ("zstd", 2)] {
        let compressed = dir.path().join(kind);
        let option = format!("--compress-debug-sections={kind}");
        let [from, to] = [&path, &compressed].map(|path| path.to_str().unwrap());
        run("objcopy", &[&option, from, to]);
        assert_eq!(names(&compressed), plainly, "{kind}");
        let mut bytes = std::fs::read(&compressed).unwrap();
        let info = run("readelf", &["-SW", to]);
        let line = info
            .lines()
            .find(|it| it.contains(" .debug_info "))
            .unwrap();
        let at: Vec<&str> = line
            .split(" PROGBITS ")
            .nth(1)
            .unwrap()
            .split_whitespace()
            .collect();
        let at = usize::from_str_radix(at[1], 16).unwrap();
        assert_eq!(bytes[at..at + 4], number.to_le_bytes(), "{kind}");
        bytes[at + 8] ^= 1;
        std::fs::write(&compressed, bytes).unwrap();
        assert_eq!(
            ElfFacts::read(&File::open(&compressed).unwrap()),
            None,
            "{kind}"
        );
    }
}
