//! Tests of names as people and programs get them.

use super::{sample, text, written};
use crate::output::{
    Format, Grouping, Label, Metric, ReportInput, ReportOptions, Wrappers, select,
};

const POOLED: &str = "void std::vector<int, Pool<int> >::push_back(int)";
const PLAIN: &str = "void std::vector<int, std::allocator<int> >::push_back(int)";
const EXPLICIT: &str = "void std::vector<int>::push_back(int)";

/// Check that functions with the same readable name stay different groups, that programs get full names, that people get readable ones
/// unless they want full ones, and that a filter matches either.
#[test]
fn names_are_readable_and_stay_distinct() {
    let (profile, mut symbols) = (sample::profile(), sample::symbols());
    symbols.strings[0] = PLAIN.to_owned();
    symbols.strings[2] = EXPLICIT.to_owned();
    symbols.strings[7] = POOLED.to_owned();
    let wrappers = Wrappers::shown();
    let input = |full_names| ReportInput {
        grouping: Some(Grouping {
            by: Label::Function,
            metric: Metric::LiveBytes,
            cumulative: true,
            top: None,
        }),
        wrappers: &wrappers,
        full_names,
        ..ReportInput::new(&profile, &symbols)
    };
    let report = Format::Text(ReportOptions::default());
    let lines = |name: &str, full_names| {
        let report = text(&report, &input(full_names));
        let ending = format!("  {name}");
        report.lines().filter(|it| it.ends_with(&ending)).count()
    };
    assert_eq!((lines(PLAIN, false), lines(EXPLICIT, false)), (0, 2));
    assert_eq!((lines(PLAIN, true), lines(EXPLICIT, true)), (1, 1));
    assert_eq!(
        lines("void std::vector<int, Pool<int>>::push_back(int)", false),
        1
    );
    let found: serde_json::Value =
        serde_json::from_str(&text(&Format::Json, &input(false))).unwrap();
    let groups = found["groups"].as_array().unwrap().iter();
    let names: Vec<_> = groups.filter_map(|it| it["name"].as_str()).collect();
    for name in [PLAIN, EXPLICIT, POOLED] {
        assert_eq!(
            names.iter().filter(|it| **it == name).count(),
            1,
            "{names:?}"
        );
    }
    let graph = |full_names| {
        let graph = text(&Format::Flamegraph(Metric::LiveBytes), &input(full_names));
        graph.contains("std::allocator")
    };
    assert_eq!([graph(false), graph(true)], [false, true]);
    let mut pprof = Vec::new();
    let packed = written(&Format::Pprof, &input(false));
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&*packed), &mut pprof).unwrap();
    assert!(pprof.windows(PLAIN.len()).any(|it| it == PLAIN.as_bytes()));
    let matching = |glob: &str| {
        let filter = format!("function={glob}").parse().unwrap();
        select(profile.clone(), &symbols, &[filter]).sites.len()
    };
    let plain = matching("*std::allocator<int> >::push_back*");
    assert!(plain > 0 && matching("*std::vector<int>::push_back") > plain);
}
