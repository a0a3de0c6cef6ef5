//! Tests of several symbolizers that work at the same time, and of files that can be read only in part.
//!
//! Stage: symbolize.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::jobs::{answers, reader_of_tests};
use crate::reader::{Job, Reader, decode};
use crate::symbolize::parallel::look_up_in_ranges;
use crate::symbolize::protocol::NamesQuestion;

/// Functions of the program: enough for three ranges.
const FUNCTIONS: usize = 300;

/// Addresses of a range.
const LEAST: usize = 100;

/// A program with many functions, and a profile with an address in each, in an order that is not theirs.
fn many(dir: &Path) -> Profile {
    let mut source = "#include <stdlib.h>\nvoid *volatile sink;\n".to_owned();
    for number in 0..FUNCTIONS {
        write!(
            source,
            "static inline void in_{number}(int n) {{ sink = malloc(n + {number}); }}
             void function_{number}(int n) {{ in_{number}(n * 2); sink = 0; }}\n"
        )
        .unwrap();
    }
    source += "int main(void) { return sink != 0; }\n";
    let path = compile(dir, "gcc", &source, &["-g"]);
    let mut calls = calls(&path);
    assert!(calls.len() >= FUNCTIONS);
    let mut numbers = numbers(3);
    calls.sort_by_cached_key(|_| numbers(1 << 40));
    profile(module(&path), &calls)
}

fn sources() -> DebugSources {
    DebugSources {
        folders: vec![],
        debuginfod: None,
    }
}

/// A reader that reads debug information only if that is wanted, and else fails at it.
fn failing_at_dwarf() -> Reader {
    Reader::in_thread(|| {
        let mut answers = answers();
        Box::new(move |job, question, files| {
            let names: Option<NamesQuestion> = decode(question);
            let wants_dwarf = names.is_some_and(|it| !it.symbols_only);
            match job == Job::Names && wants_dwarf {
                true => Vec::new(),
                false => answers(job, question, files),
            }
        })
    })
}

/// The names of a profile by a first symbolizer and helpers, what is not known, and how many locations were counted.
fn looked_up(
    profile: &Profile,
    mut first: Symbolizer,
    helpers: Vec<Reader>,
) -> (Symbols, Vec<String>, usize) {
    let mut helpers: Vec<Symbolizer> = helpers
        .into_iter()
        .map(|reader| Symbolizer::helping(reader, sources()))
        .collect();
    let done = AtomicUsize::new(0);
    let files = OnDisk::default();
    let (symbols, gaps) =
        look_up_in_ranges(&mut first, &mut helpers, profile, &files, LEAST, &done);
    (symbols, gaps, done.load(Ordering::Relaxed))
}

/// Check that several readers find exactly what one finds, in the same order, that each location is counted once as done, and that a helper
/// whose reader fails changes nothing.
#[test]
fn several_readers_find_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let profile = many(dir.path());
    let first = || with_folders(vec![]);
    let one = looked_up(&profile, first(), vec![]);
    assert_eq!((&one.1, one.2), (&vec![], profile.locations.len()));
    let is_inlined = |id| plain(&one.0, id).iter().any(|frame| frame.3);
    let inlined = (0..profile.locations.len() as u32).filter(|id| is_inlined(*id));
    assert!(inlined.count() >= FUNCTIONS);
    for _ in 0..3 {
        let two = looked_up(&profile, first(), vec![reader_of_tests()]);
        assert!(two == one, "two readers");
        let helpers = vec![failing_at_dwarf(), reader_of_tests()];
        let failing = looked_up(&profile, first(), helpers);
        assert!(failing == one, "a reader that fails");
    }
}

/// Check that a file whose debug information can't be read has the functions of its symbols, that it is not called a file without names, and that
/// it does not matter how many readers there are.
#[test]
fn a_file_that_is_read_in_part_is_called_that() {
    let dir = tempfile::tempdir().unwrap();
    let profile = many(dir.path());
    let path = profile.modules[0].path.clone();
    let mut found = Vec::new();
    for helpers in [vec![], vec![reader_of_tests()], vec![failing_at_dwarf()]] {
        let first = Symbolizer::with(failing_at_dwarf(), sources());
        let budget = first.budget();
        let (symbols, gaps, _) = looked_up(&profile, first, helpers);
        let frames: Vec<Plain> = (0..profile.locations.len() as u32)
            .flat_map(|id| plain(&symbols, id))
            .collect();
        let is_named = |name: &Option<String>| {
            let name = name.as_deref();
            name.is_some_and(|name| name.starts_with("function_"))
        };
        let named = frames.iter().filter(|frame| is_named(&frame.0));
        assert!(named.count() >= FUNCTIONS);
        assert!(frames.iter().all(|frame| frame.2 == 0 && !frame.3));
        let [gap] = gaps.try_into().unwrap();
        assert!(
            gap.starts_with(&format!("only names of functions from {path}")),
            "{gap}"
        );
        assert_eq!(budget.unread().count, 0);
        found.push((symbols, gap));
    }
    assert!(found.iter().all(|it| *it == found[0]));
}

/// Check that a file without a recorded build id is used only if it has not been changed since the recording began.
#[test]
fn files_that_changed_later_are_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let path = compile(dir.path(), "gcc", C, &["-g", "-Wl,--build-id=none"]);
    let mut profile = profile(module(&path), &calls(&path));
    assert!(profile.modules[0].build_id.is_empty());
    for (began, is_named) in [(u64::MAX, true), (1, false)] {
        profile.info.started_unix_ns = began;
        let mut symbolizer = with_folders(vec![]);
        symbolizer.symbolize(&profile, &OnDisk::of(&profile.info), all(&profile));
        let has_name = functions(symbolizer.symbols(), 0) != ["?"];
        assert_eq!(has_name, is_named, "{began}");
    }
}
