//! Tests of the formats with functions that Python runs.

use super::flamegraph::{data, stacks};
use super::python_sample::{LOOP, python};
use super::sample::EVIL;
use super::{assert_printable, decoded, snapshot, text};
use crate::join::{Language, StackId};
use crate::output::groups::{Group, groups};
use crate::output::{
    Filter, Format, Grouping, Label, Metric, ReportInput, ReportOptions, ShownLanguages, Wrappers,
    select,
};
use crate::profile::{Profile, Symbols};

fn shown(name: &str) -> ShownLanguages {
    ShownLanguages::from_name(name).unwrap()
}

fn input((profile, symbols): &(Profile, Symbols), shown: ShownLanguages) -> ReportInput<'_> {
    ReportInput {
        shown,
        ..ReportInput::new(profile, symbols)
    }
}

/// All choices of languages.
fn choices() -> [ShownLanguages; 3] {
    [ShownLanguages::default(), shown("native"), shown("python")]
}

/// The functions of a stack that are shown, innermost first.
fn names(input: &ReportInput<'_>, stack: u32) -> Vec<String> {
    let frames = input.stack(StackId(stack));
    frames.iter().map(|frame| frame.label()).collect()
}

/// The functions of a row of the live view.
fn row(input: &ReportInput<'_>, stack: u32, most: usize) -> Vec<String> {
    let labels = input.user_functions(StackId(stack), most).into_iter();
    labels.map(|label| label.text).collect()
}

fn grouped(input: &ReportInput<'_>, by: Label) -> Vec<Group> {
    let grouping = Grouping {
        by,
        metric: Metric::LiveBytes,
        cumulative: true,
        top: None,
    };
    groups(input, grouping).0
}

/// Check the text report of a Python program, and its groups.
#[test]
fn report() {
    let sample = python();
    let input = input(&sample, ShownLanguages::default());
    let mut found = text(&Format::Text(ReportOptions::default()), &input);
    for by in [
        Label::Function,
        Label::Line,
        Label::Module,
        Label::Language,
        Label::Stack,
    ] {
        let grouping = Some(Grouping {
            by,
            metric: Metric::LiveBytes,
            cumulative: true,
            top: None,
        });
        let options = ReportOptions {
            width: Some(100),
            top: if by == Label::Stack { 2 } else { 30 },
            ..ReportOptions::default()
        };
        let whole = text(&Format::Text(options), &ReportInput { grouping, ..input });
        let (_, table) = whole.split_once("Top ").unwrap();
        let (table, _) = table.split_once("nothing lost").unwrap();
        found.push_str(&format!("\n--by {}\nTop {table}", by.name()));
    }
    assert_printable(&found);
    snapshot("python.txt", &found);
}

/// Check that the loop of Python is left out beside the functions that it runs, also its cold part and one without a name, and that
/// the languages that are not shown are left out.
#[test]
fn languages_are_chosen() {
    let sample = python();
    let all = input(&sample, ShownLanguages::default());
    assert_eq!(
        names(&all, 0),
        [
            "list_resize",
            "list_append",
            "load",
            "main",
            "<module>",
            "_PyEval_Vector",
            "Py_BytesMain",
            "__libc_start_call_main"
        ]
    );
    assert_eq!(
        names(&all, 1)[6..9],
        ["Shelf.load.<locals>.<lambda>", "method_vectorcall", "main"]
    );
    assert_eq!(names(&all, 3)[4..], ["<module>", "Py_BytesMain"]);

    let native = input(&sample, shown("native"));
    assert_eq!(
        names(&native, 0)[1..4],
        ["list_append", LOOP, "_PyEval_Vector"]
    );
    assert_eq!(
        names(&native, 3)[2..],
        ["[python3.11+0x1113]", "Py_BytesMain"]
    );
    for stack in 0..7 {
        let frames = native.stack(StackId(stack));
        assert!(frames.iter().all(|frame| frame.language.is_none()));
    }

    let python = input(&sample, shown("python"));
    assert_eq!(names(&python, 0), ["load", "main", "<module>"]);
    assert_eq!(names(&python, 2), ["[native]"]);
    assert_eq!(names(&python, 6), ["[python app.py:3]"]);
}

/// Check that reports, graphs and profiles say that languages are left out, and only where a language is.
#[test]
fn left_out_languages_are_named() {
    let sample = python();
    let words = |shown| input(&sample, shown).only();
    assert_eq!(words(ShownLanguages::default()), None);
    assert_eq!(words(shown("native")).unwrap(), "only native frames");
    let filters = ["process=python*".parse().unwrap()];
    let both = ReportInput {
        filters: &filters,
        ..input(&sample, shown("python"))
    };
    let expected = "only process=python*; only python frames";
    assert_eq!(both.only().unwrap(), expected);
    for format in [
        Format::Text(ReportOptions::default()),
        Format::Flamegraph(Metric::LiveBytes),
    ] {
        assert!(text(&format, &both).contains(expected));
    }
    let native = (super::profile(), super::symbols());
    assert_eq!(input(&native, shown("native")).only(), None);
}

/// Check that all bytes stay in every format, whichever languages are shown.
#[test]
fn sums_stay_whole() {
    let sample = python();
    let whole = sample.0.totals.live_bytes;
    for shown in choices() {
        let input = input(&sample, shown);
        let graph = stacks(&input, Metric::LiveBytes);
        assert_eq!(graph.iter().map(|(_, value)| value).sum::<u64>(), whole);
        assert!(graph.iter().all(|(frames, _)| frames != &["[no stack]"]));
        let found = decoded(&input);
        let sum = found
            .sample
            .iter()
            .map(|sample| sample.value[3])
            .sum::<i64>();
        assert_eq!(sum as u64, whole);
        assert!(found.sample.iter().all(|it| !it.location_id.is_empty()));
        for by in Label::ALL {
            let groups = grouped(&input, by);
            let sum: u64 = groups.iter().map(|it| it.totals.live_bytes).sum();
            assert_eq!(sum, whole, "{by:?}");
        }
    }
}

/// Check that the user's function of a Python program is the innermost one that Python runs if only the interpreter is inside of it,
/// else the innermost function of the extension, and that imports count for the module that has them.
#[test]
fn users_functions_are_those_of_python() {
    let sample = python();
    let input = input(&sample, ShownLanguages::default());
    let evil = crate::text::escape(EVIL).into_owned();
    for (stack, expected) in [
        (0, &["load", "main", "<module>"][..]),
        (
            1,
            &[
                "scanstring_unicode",
                "scanner_call",
                "JSONDecoder.decode",
                "Shelf.load.<locals>.<lambda>",
                "main",
            ],
        ),
        (2, &["grab", "work"]),
        (3, &["<module>", "Py_BytesMain"]),
        (4, &["Tree.walk", "Tree.walk"]),
        (5, &[&evil, "_PyEval_Vector"]),
        (6, &["[python app.py:3]", "_PyEval_Vector"]),
    ] {
        assert_eq!(row(&input, stack, expected.len()), expected);
    }
    // The line of Python is in every row with room for it.
    let brief = ["scanstring_unicode", "JSONDecoder.decode"];
    assert_eq!(row(&input, 1, 2), brief);
    assert_eq!(row(&input, 1, 1), brief[..1]);
    let user = |wrappers: &Wrappers, stack| {
        let input = ReportInput { wrappers, ..input };
        row(&input, stack, 1).remove(0)
    };
    // A pattern passes over functions of Python, too, and the interpreter's code between them.
    let wrappers = Wrappers::with(&[
        "JSON*".to_owned(),
        "scan*".to_owned(),
        "*<lambda>".to_owned(),
    ]);
    assert_eq!(user(&wrappers, 1), "main");
    assert_eq!(user(&Wrappers::shown(), 0), "list_resize");
    let native = ReportInput {
        shown: shown("native"),
        ..input
    };
    assert_eq!(row(&native, 1, 2), ["PyUnicode_New", "scanstring_unicode"]);
}

/// Check that two functions of one name in two files are two groups with their files, that lines and modules are those of the source,
/// and that languages are told apart.
#[test]
fn python_functions_are_grouped() {
    let sample = python();
    let input = input(&sample, ShownLanguages::default());
    let functions = grouped(&input, Label::Function);
    let mains: Vec<_> = functions
        .iter()
        .filter(|group| group.name == "main")
        .map(|group| {
            (
                group.source_title(80).unwrap(),
                group.cumulative.unwrap().live_bytes,
            )
        })
        .collect();
    assert_eq!(
        mains,
        [
            ("main (/srv/shop/app.py)".to_owned(), 90_000),
            ("main (/srv/shop/worker.py)".to_owned(), 80_000)
        ]
    );
    let group = functions.iter().find(|group| group.name == "main").unwrap();
    for (width, expected) in [
        (20, "main (…/shop/app.py)"),
        (19, "main (…shop/app.py)"),
        (18, "main"),
        (2, "m…"),
    ] {
        assert_eq!(group.source_title(width).unwrap(), expected);
    }
    let native = functions.iter().find(|group| group.name == "grab").unwrap();
    assert_eq!(native.source_title(80), None);

    let own = |by: Label, name: &str| {
        let groups = grouped(&input, by);
        let group = groups.iter().find(|group| group.name == name).unwrap();
        group.totals.live_bytes
    };
    assert_eq!(own(Label::Line, "/srv/shop/app.py:7"), 90_000);
    assert_eq!(
        own(Label::Module, "/srv/shop/app.py"),
        90_000 + 50_000 + 30_000
    );
    assert_eq!(own(Label::Language, "python"), 420_000 - 80_000 - 70_000);
    assert_eq!(own(Label::Language, "native"), 80_000 + 70_000);
}

/// Check that filters match the functions, lines and files of Python, and its language, also what is not shown.
#[test]
fn filters_match_python() {
    let (profile, symbols) = python();
    for (filter, sites) in [
        ("function=main", 2),
        ("function=load", 1),
        ("function=Shelf.load*", 1),
        ("line=app.py:7", 1),
        ("line=/srv/shop/app.py:40", 2),
        ("module=app.py", 4),
        ("module=/srv/shop/*", 4),
        ("module=python3.11", 6),
        ("language=python", 6),
        ("language=native", 7),
        ("function=_PyEval_EvalFrameDefault", 5),
        ("language=javascript", 0),
    ] {
        let filter: Filter = filter.parse().unwrap();
        let found = select(profile.clone(), &symbols, std::slice::from_ref(&filter));
        assert_eq!(found.sites.len(), sites, "{filter}");
    }
}

/// Check that JSON has the language of each frame, and for a Python function its file and its line, but no module and no address.
#[test]
fn json_has_languages() {
    let sample = python();
    let input = ReportInput {
        grouping: Some(Grouping {
            by: Label::Function,
            metric: Metric::LiveBytes,
            cumulative: true,
            top: None,
        }),
        ..input(&sample, ShownLanguages::default())
    };
    let found: serde_json::Value = serde_json::from_str(&text(&Format::Json, &input)).unwrap();
    let site = &found["sites"][0];
    assert_eq!(site["user_frame"], 2);
    assert_eq!(site["stack"][0]["language"], "native");
    let frame = serde_json::json!({
        "function": "load",
        "module": "",
        "file": "/srv/shop/app.py",
        "line": 7,
        "inlined": false,
        "language": "python",
        "address": "0x0",
    });
    assert_eq!(site["stack"][2], frame);
    assert_eq!(found["quality"]["frames_unsymbolized"], 1);
    let groups = found["groups"].as_array().unwrap();
    let files: Vec<_> = groups
        .iter()
        .filter(|group| group["name"] == "main")
        .map(|group| group["file"].as_str().unwrap())
        .collect();
    assert_eq!(files, ["/srv/shop/app.py", "/srv/shop/worker.py"]);
}

/// Check that pprof gets function, file and line of a Python function, without a mapping, and that it can't take the name for one of
/// C++: it would cut `<module>` to nothing.
#[test]
fn pprof_has_python_functions() {
    let sample = python();
    let found = decoded(&input(&sample, ShownLanguages::default()));
    let string = |index: i64| found.string_table[index as usize].as_str();
    let stack: Vec<_> = found.sample[0]
        .location_id
        .iter()
        .map(|id| &found.location[*id as usize - 1])
        .map(|location| {
            let line = &location.line[0];
            let function = &found.function[line.function_id as usize - 1];
            let names = [function.name, function.system_name, function.filename].map(string);
            (names, line.line, location.mapping_id, location.address)
        })
        .collect();
    assert_eq!(stack[2], (["load", "", "/srv/shop/app.py"], 7, 0, 0));
    assert_eq!(stack[4], (["<module>", "", "/srv/shop/app.py"], 40, 0, 0));
    let (native, _, mapping, _) = stack[0];
    assert_eq!((native, mapping), (["list_resize", "list_resize", ""], 1));
    assert!(
        found
            .string_table
            .iter()
            .any(|it| it == "[python app.py:3]")
    );
}

/// Check that the flame graph names the language and the file of a Python function in the picture and for the page, and keeps functions
/// of one name in different files apart.
#[test]
fn flame_graphs_have_python_functions() {
    let sample = python();
    let input = input(&sample, ShownLanguages::default());
    let svg = text(&Format::Flamegraph(Metric::LiveBytes), &input);
    assert_printable(&svg);
    assert!(
        svg.contains("<title>load [app.py] [python]: 87.9 KiB, "),
        "{svg}"
    );
    assert!(svg.contains("<title>list_append [python3.11]: "));
    assert!(svg.contains(">Python functions</text>"));
    let data = data(&svg);
    let modules = &data["modules"];
    let names = data["names"].as_array().unwrap().iter();
    let mut mains: Vec<_> = names
        .filter(|name| name[0] == "main")
        .map(|name| {
            let module = name[4].as_u64().unwrap() as usize;
            (modules[module].as_str().unwrap(), name[5].as_str().unwrap())
        })
        .collect();
    mains.sort_unstable();
    assert_eq!(mains, [("app.py", "python"), ("worker.py", "python")]);
}

/// Check that the names of languages are those of the types.
#[test]
fn frames_have_languages() {
    let sample = python();
    let input = input(&sample, ShownLanguages::default());
    let frames = input.stack(StackId(0));
    let languages: Vec<_> = frames.iter().map(|frame| frame.language).collect();
    let python = Some(Language::Python);
    assert_eq!(
        languages,
        [None, None, python, python, python, None, None, None]
    );
}
