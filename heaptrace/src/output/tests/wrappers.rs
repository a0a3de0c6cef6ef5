//! Tests that formats begin a stack with the user's function, and that whole stacks can be shown.

use super::{sample, text};
use crate::join::{LocationId, StackId};
use crate::output::groups::groups;
use crate::output::{Format, Grouping, Label, Metric, ReportInput, ReportOptions, Wrappers};
use crate::profile::{Profile, Symbols};

/// The sample, where `grab` is inlined into `handle_request` and both are called through wrappers.
fn sample() -> (Profile, Symbols) {
    let (mut profile, mut symbols) = (sample::profile(), sample::symbols());
    symbols.strings[0] = "std::vector<int>::push_back(int const&)".to_owned();
    profile.stacks[0].locations.insert(2, LocationId(6));
    profile.stacks[2].locations.truncate(2);
    symbols.strings[5] = "xmalloc".to_owned();
    profile.stacks[2].locations.reverse();
    (profile, symbols)
}

fn input<'a>(
    (profile, symbols): &'a (Profile, Symbols),
    by: Option<Label>,
    wrappers: &'a Wrappers,
) -> ReportInput<'a> {
    ReportInput {
        grouping: by.map(|by| Grouping {
            by,
            metric: Metric::LiveBytes,
            cumulative: true,
            top: None,
        }),
        wrappers,
        ..ReportInput::new(profile, symbols)
    }
}

/// Check that sites are titled with the user's function, that the wrappers are one line, and that whole stacks
/// have them all.
#[test]
fn sites_begin_with_the_users_function() {
    let sample = sample();
    let report = |wrappers: &Wrappers| {
        let input = input(&sample, None, wrappers);
        text(&Format::Text(ReportOptions::default()), &input)
    };
    let found = report(&Wrappers::default());
    let block = found.split("  1. ").nth(1).unwrap();
    let lines: Vec<_> = block.lines().map(str::trim).take(4).collect();
    assert_eq!(lines[0], "97.7 KiB (76.9 %)  handle_request  main.c:120");
    assert_eq!(lines[2], "via std::vector<int>::push_back");
    assert!(lines[3].starts_with("handle_request  /home"), "{found}");
    let whole = report(&Wrappers::shown());
    assert!(!whole.contains("via "), "{whole}");
    assert!(
        whole.contains("\n     std::vector<int>::push_back"),
        "{whole}"
    );
    let added = report(&Wrappers::with(&["handle_*".to_owned()]));
    assert!(
        added.contains("via std::vector<int>::push_back ← handle_request (3 frames)"),
        "{added}"
    );
}

/// Check that groups of functions, lines and modules begin with the user's function in text and in JSON, that
/// JSON says so, and that its stacks are whole.
#[test]
fn groups_begin_with_the_users_function() {
    let sample = sample();
    for (by, user, wrapper) in [
        (Label::Function, "handle_request", "xmalloc"),
        (
            Label::Line,
            "/home/user/src/server/main.c:99",
            "/home/user/src/server/main.c:50",
        ),
    ] {
        for (wrappers, expected) in [
            (Wrappers::default(), [Some(20_000), None]),
            (Wrappers::shown(), [Some(0), Some(20_000)]),
        ] {
            let input = input(&sample, Some(by), &wrappers);
            let (found, _) = groups(&input, input.grouping.unwrap());
            let itself = |name| {
                let group = found.iter().find(|group| group.name == name);
                group.map(|group| group.totals.live_bytes)
            };
            // The other site of the function is on another line.
            let more = if by == Label::Function && wrappers == Wrappers::default() {
                100_000
            } else {
                0
            };
            assert_eq!(
                [itself(user), itself(wrapper)],
                [expected[0].map(|it| it + more), expected[1]],
                "{by:?}"
            );
            let json: serde_json::Value =
                serde_json::from_str(&text(&Format::Json, &input)).unwrap();
            assert_eq!(
                json["groups_skip_wrappers"],
                wrappers == Wrappers::default()
            );
            let names = json["groups"].as_array().unwrap().iter();
            assert_eq!(
                names.filter(|group| group["name"] == wrapper).count(),
                usize::from(expected[1].is_some())
            );
            let site = &json["sites"][1];
            assert_eq!(site["stack"][0]["function"], "xmalloc");
            assert_eq!(
                site["user_frame"],
                usize::from(wrappers == Wrappers::default())
            );
        }
    }
}

/// Check that the live view gets the functions from the user's outwards, escaped.
#[test]
fn functions_for_a_row() {
    let sample = sample();
    let wrappers = Wrappers::default();
    let input = input(&sample, None, &wrappers);
    let names = |stack, most| {
        let labels = input.user_functions(StackId(stack), most).into_iter();
        labels.map(|label| label.text).collect::<Vec<_>>()
    };
    assert_eq!(names(0, 2), ["handle_request", "handle_request"]);
    assert_eq!(names(2, 3), ["handle_request"]);
    assert!(names(1, 1)[0].contains("\\x1b"));
}
