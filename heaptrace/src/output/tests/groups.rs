//! Tests of groups and filters, on the sample profile.

use super::flamegraph::stacks;
use super::{assert_printable, sample, snapshot, text};
use crate::join::{ProcessId, Site, ThreadNameId};
use crate::output::groups::{Group, groups};
use crate::output::sum::of as sum;
use crate::output::{
    Filter, Format, Grouping, Label, Metric, ReportInput, ReportOptions, select,
    select_with_history,
};
use crate::profile::{History, Profile};

fn by(label: Label) -> Grouping {
    Grouping {
        by: label,
        metric: Metric::LiveBytes,
        cumulative: true,
        top: None,
    }
}

fn found(profile: &Profile, grouping: Grouping) -> Vec<Group> {
    let symbols = sample::symbols();
    groups(&ReportInput::new(profile, &symbols), grouping).0
}

fn filters(words: &[&str]) -> Vec<Filter> {
    words.iter().map(|word| word.parse().unwrap()).collect()
}

fn selected(words: &[&str]) -> Profile {
    select(sample::profile(), &sample::symbols(), &filters(words))
}

/// Check that groups of every kind add up to all sites.
#[test]
fn groups_add_up() {
    let profile = sample::profile();
    let whole = sum(profile.sites.iter().map(|site| &site.totals));
    for label in Label::ALL {
        let metric = Metric::TotalAllocations;
        let groups = found(
            &profile,
            Grouping {
                metric,
                ..by(label)
            },
        );
        let whole = if label.is_of_process() {
            // Their peaks are at other times than the run's.
            sum(&profile
                .sites
                .iter()
                .map(Site::at_own_peak)
                .collect::<Vec<_>>())
        } else {
            whole
        };
        assert_eq!(sum(groups.iter().map(|it| &it.totals)), whole, "{label:?}");
        let ranks: Vec<_> = groups.iter().map(|it| metric.of(&it.totals)).collect();
        assert!(ranks.is_sorted_by(|a, b| a >= b), "{label:?}: {ranks:?}");
    }
}

/// Check that a function's own share and its share with callees differ, that recursion counts once, and that
/// an inlined function has its own group.
#[test]
fn functions_are_grouped() {
    let profile = sample::profile();
    let groups = found(&profile, by(Label::Function));
    let live = |name: &str| {
        let group = groups.iter().find(|it| it.name == name).unwrap();
        let cumulative = group.cumulative.unwrap();
        (group.totals.live_bytes, cumulative.live_bytes, group.sites)
    };
    assert_eq!(live("grab"), (100_000, 100_000, 1));
    // It is below `grab` in one stack, and innermost in another.
    assert_eq!(live("handle_request"), (20_000, 120_000, 2));
    assert_eq!(live("recurse"), (0, 20_000, 1));
    assert_eq!(live("__libc_start_call_main"), (0, 120_640, 3));
}

/// Check that processes of one name share a group, and that control groups, units and containers separate
/// them.
#[test]
fn processes_are_grouped() {
    let mut profile = sample::profile();
    profile.processes[1].command = "server".to_owned();
    let id = "0123456789ab".to_owned() + &"0".repeat(52);
    profile.processes[1].cgroup = format!("/system.slice/docker-{id}.scope");
    let names = |label| -> Vec<_> {
        let groups = found(&profile, by(label));
        let names = groups
            .into_iter()
            .map(|it| (it.name, it.totals.live_bytes, it.processes));
        names.collect()
    };
    assert_eq!(names(Label::Process), [("server".to_owned(), 120_645, 2)]);
    assert_eq!(
        names(Label::Pid),
        [
            ("server (41)".to_owned(), 120_005, 1),
            ("server (42)".to_owned(), 640, 1)
        ]
    );
    assert_eq!(
        names(Label::Container),
        [
            ("[no container]".to_owned(), 120_005, 1),
            ("docker 0123456789ab".to_owned(), 640, 1)
        ]
    );
    assert_eq!(names(Label::Unit)[1].0, format!("docker-{id}.scope"));
    assert_eq!(names(Label::Cgroup)[0].0, "/user.slice/app\u{1b}.scope");
}

/// Check that recorded threads have their own groups across processes, can be filtered, and appear in every
/// format.
#[test]
fn threads_are_grouped() {
    let mut profile = sample::profile();
    profile.threads = vec!["main".to_owned(), "io\u{1b}1".to_owned()];
    profile.sites[0].thread = Some(ThreadNameId(1));
    profile.sites[1].thread = Some(ThreadNameId(1));
    profile.sites[2].thread = Some(ThreadNameId(0));
    let groups = found(&profile, by(Label::Thread));
    let names: Vec<_> = groups
        .iter()
        .map(|it| (it.name.as_str(), it.totals.live_bytes))
        .collect();
    assert_eq!(
        names,
        [
            ("io\u{1b}1", 100_640),
            ("main", 20_000),
            ("[no thread recorded]", 5)
        ]
    );
    let symbols = sample::symbols();
    let io = select(profile, &symbols, &filters(&["thread=io*", "pid=41"]));
    assert_eq!((io.sites.len(), io.processes.len()), (1, 1));
    assert_eq!(io.processes[0].totals.live_bytes, 100_000);
    let input = ReportInput::new(&io, &symbols);
    let report = text(&Format::Text(ReportOptions::default()), &input);
    assert!(report.contains("by thread io\\x1b1"), "{report}");
    assert_printable(&report);
    assert!(text(&Format::Json, &input).contains(r#""thread":"io\u001b1""#));
    let pprof = crate::output::pprof::build(&input);
    assert!(pprof.string_table.iter().any(|text| text == "thread"));
}

/// Check that one stack in several processes is one group, and that the number of groups is limited.
#[test]
fn stacks_are_grouped() {
    let mut profile = sample::profile();
    profile.sites[1].stack = profile.sites[0].stack;
    let groups = found(&profile, by(Label::Stack));
    assert_eq!((groups[0].sites, groups[0].processes), (2, 2));
    assert_eq!(groups[0].totals.live_bytes, 100_640);
    let top = Some(1);
    assert_eq!(
        found(
            &profile,
            Grouping {
                top,
                ..by(Label::Stack)
            }
        )
        .len(),
        1
    );
}

/// Check that every kind of filter selects only matching sites, and that the totals are those of the selected
/// sites.
#[test]
fn filters_select() {
    for (words, sites, live) in [
        (&["process=server"][..], 4, 120_005),
        (&["pid=42"], 1, 640),
        (&["process=*"], 5, 120_645),
        (&["cgroup=/user.slice/*"], 5, 120_645),
        (&["cgroup=user.slice"], 0, 0),
        (&["unit=app*"], 5, 120_645),
        (&["container=*"], 0, 0),
        (&["function=grab"], 1, 100_000),
        // Inlined in one stack and called in another; matched by its name without parameters.
        (&["function=handle_request"], 2, 120_000),
        (&["function=shop::Shelf<*>::put"], 1, 5),
        (&["function=Grab"], 0, 0),
        (&["line=pool.c:31"], 1, 100_000),
        (&["line=/home/*/pool.c:*"], 1, 100_000),
        (&["module=libc.so.6"], 3, 120_640),
        (&["module=/usr/lib/*"], 3, 120_640),
        // These match in one stack, but not in one frame.
        (&["function=grab", "module=libc*"], 1, 100_000),
        (&["function=grab", "function=recurse"], 0, 0),
        (&["pid=41", "module=libc*"], 2, 120_000),
        (&["pid=41", "pid=42"], 0, 0),
    ] {
        let profile = selected(words);
        assert_eq!(profile.sites.len(), sites, "{words:?}");
        assert_eq!(profile.totals.live_bytes, live, "{words:?}");
        assert_eq!(
            profile.totals,
            sum(profile.sites.iter().map(|it| &it.totals))
        );
        for site in &profile.sites {
            assert!((site.process.0 as usize) < profile.processes.len());
        }
    }
}

/// Check that conditions are combined, that `not` is about the whole stack, and that numbers are compared.
#[test]
fn expressions_select() {
    for (text, sites) in [
        ("function=grab or function=recurse", 2),
        ("not function=grab", 4),
        ("function!=grab and process=server", 3),
        ("not (function=grab or pid=42)", 3),
        ("function=grab or pid=42", 2),
        ("function~^(gr|re)", 2),
        // In a stack with several frames, one that matches is enough, and one that does not is not.
        ("function!~^gr and function=handle_request", 1),
        ("file=pool.c", 1),
        ("file=/home/*/main.c", 3),
        ("line=31", 1),
        ("line=99..120", 2),
        ("line>=100", 1),
        ("line=main.c:90..100", 2),
        ("line=pool.c:90..100", 0),
        ("pid=42..50", 1),
        ("pid<42", 4),
        ("pid=4*", 5),
        ("size=1000", 3),
        ("size<64", 1),
        ("size>=64 and size<1KiB", 4),
        ("kind=mmap or kind=heap", 5),
        ("not kind=heap", 0),
        ("language=native", 5),
        ("thread=x", 0),
        ("not thread=x", 5),
    ] {
        assert_eq!(selected(&[text]).sites.len(), sites, "{text}");
    }
    // A filter on processes, written in either way, leaves the peaks of processes their own.
    let [whole, parts] = [&["pid=42 or process=x"][..], &["pid=4*", "not pid=41"]].map(selected);
    assert_eq!(whole, parts);
    assert_eq!(whole.totals.peak_live_bytes, 1_408);
    // With more conditions than a word has bits.
    let many: Vec<_> = (0..200).map(|n| format!("function=f{n}")).collect();
    let many = format!("{} or function=grab", many.join(" or "));
    assert_eq!(selected(&[&many]).sites.len(), 1);
}

/// Check that sites keep their process if earlier processes are filtered out, and that a process's totals are
/// those of its sites.
#[test]
fn sites_follow_their_process() {
    let evil = selected(&["pid=42"]);
    assert_eq!(
        (evil.processes[0].pid, evil.sites[0].process),
        (42, ProcessId(0))
    );
    // The process keeps its own peak, because all of its sites are selected.
    assert_eq!(
        evil.processes[0].totals,
        sample::profile().processes[1].totals
    );

    let grab = selected(&["function=grab"]);
    assert_eq!(grab.processes.len(), 1);
    assert_eq!(grab.processes[0].totals, grab.totals);
    assert_eq!(selected(&["function=nobody"]).processes, []);
}

/// Check that sites keep their history if earlier processes are filtered out. (Once, they had that of the process whose id they got.)
#[test]
fn histories_follow_their_process() {
    let profile = sample::profile();
    let mut history = History::default();
    history.record(&profile.to_update());
    let evil = filters(&["pid=42"]);
    let evil = select_with_history(profile, &mut history, &sample::symbols(), &evil, None);
    let periods = history.of(&evil.sites[0]);
    assert_eq!(periods[0].held, evil.sites[0].totals.live_bytes);
    assert_eq!(history.ends_of_processes().len(), 1);
}

/// Check that a filter on processes, and groups of processes, show the bytes at the peak of each process, and not its
/// part of the run's peak, which may be nothing.
#[test]
fn processes_have_their_own_peaks() {
    let mut profile = sample::profile();
    for site in profile.sites.iter_mut().filter(|site| site.process.0 == 1) {
        site.totals.peak_live_bytes = 0;
    }
    let symbols = sample::symbols();
    let grouping = Grouping {
        metric: Metric::PeakBytes,
        ..by(Label::Pid)
    };
    let groups = found(&profile, grouping);
    let peak = |name: &str| {
        let group = groups.iter().find(|it| it.name.starts_with(name)).unwrap();
        group.totals.peak_live_bytes
    };
    assert_eq!(peak("evil"), 1_408);
    assert_eq!(peak("server"), 246_020);
    let words = ["pid=42"];
    let alone = select(profile.clone(), &symbols, &filters(&words));
    assert_eq!(alone.totals.peak_live_bytes, 1_408);
    assert_eq!(alone.sites[0].totals.peak_live_bytes, 1_408);
    let filters_given = filters(&words);
    let input = ReportInput {
        filters: &filters_given,
        ..ReportInput::new(&alone, &symbols)
    };
    let report = text(&Format::Text(ReportOptions::default()), &input);
    assert!(
        report.contains("peaks are those of each process"),
        "{report}"
    );
    // A filter on sites keeps the moment of the run's peak.
    let grab = select(profile, &symbols, &filters(&["function=grab"]));
    assert_eq!(grab.totals.peak_live_bytes, 101_000);
}

/// Check the text of groups and filters, that hostile names are escaped, and that an empty result is
/// reported.
#[test]
fn groups_and_filters_as_text() {
    let symbols = sample::symbols();
    let mut whole = String::new();
    for (label, words) in [
        (Label::Function, &[][..]),
        (Label::Process, &[]),
        (Label::Stack, &["process=server", "function=handle_request"]),
        (Label::Unit, &["function=\u{1b}*"]),
    ] {
        let filters = filters(words);
        let profile = selected(words);
        let input = ReportInput {
            filters: &filters,
            grouping: Some(by(label)),
            ..ReportInput::new(&profile, &symbols)
        };
        let options = ReportOptions {
            top: 4,
            ..ReportOptions::default()
        };
        whole.push_str(&text(&Format::Text(options), &input));
        whole.push_str("\n----\n\n");
    }
    assert_printable(&whole);
    snapshot("groups.txt", &whole);
}

/// Check that JSON has the requested groups and the filters.
#[test]
fn groups_as_json() {
    let symbols = sample::symbols();
    let words = ["process=server"];
    let (filters, profile) = (filters(&words), selected(&words));
    let input = ReportInput {
        filters: &filters,
        grouping: Some(by(Label::Function)),
        ..ReportInput::new(&profile, &symbols)
    };
    let found: serde_json::Value = serde_json::from_str(&text(&Format::Json, &input)).unwrap();
    assert_eq!(found["filters"], serde_json::json!(words));
    assert_eq!(found["group_by"], "function");
    assert_eq!(found["groups"][0]["name"], "grab");
    assert_eq!(found["groups"][0]["totals"]["live_bytes"], 100_000);
    assert_eq!(found["groups"][1]["cumulative"]["live_bytes"], 120_000);
    assert_eq!(found["totals"]["live_bytes"], 120_005);
}

/// Check that every output shows a program by the name that started it, escaped, and that its path stays and selects it.
#[test]
fn programs_have_the_name_that_started_them() {
    let symbols = sample::symbols();
    let mut profile = sample::profile();
    profile.modules[2].started_as = "link\x1b".to_owned();
    let input = ReportInput {
        grouping: Some(by(Label::Module)),
        ..ReportInput::new(&profile, &symbols)
    };
    let found: serde_json::Value = serde_json::from_str(&text(&Format::Json, &input)).unwrap();
    let group = &found["groups"][0];
    assert_eq!(group["name"], "/usr/bin/server");
    assert_eq!(group["module_name"], "link\x1b");
    let frame = &found["sites"][0]["stack"][0];
    assert_eq!(frame["module"], "/usr/bin/server");
    assert_eq!(frame["module_name"], "link\x1b");
    let shown = text(&Format::Text(ReportOptions::default()), &input);
    assert_printable(&shown);
    assert!(shown.contains("/usr/bin/server (link\\x1b)"), "{shown}");
    let of_sites = text(
        &Format::Text(ReportOptions::default()),
        &ReportInput::new(&profile, &symbols),
    );
    assert!(of_sites.contains("[link\\x1b]") && !of_sites.contains("[server]"));
    let select = |filter| {
        select(profile.clone(), &symbols, &filters(&[filter]))
            .sites
            .len()
    };
    let selected = ["module=link*", "module=server", "module=/usr/bin/server"].map(select);
    assert!(selected[0] > 0 && selected == [selected[0]; 3]);
}

/// Check that the grouping's name is the root of every stack, and is escaped.
#[test]
fn roots_of_flame_graphs() {
    let (profile, symbols) = (sample::profile(), sample::symbols());
    let roots = |label| -> Vec<String> {
        let input = ReportInput {
            grouping: Some(by(label)),
            ..ReportInput::new(&profile, &symbols)
        };
        let stacks = stacks(&input, Metric::LiveBytes);
        let mut roots: Vec<_> = stacks
            .into_iter()
            .map(|(frames, _)| frames[0].clone())
            .collect();
        roots.dedup();
        roots
    };
    assert_eq!(roots(Label::Cgroup), ["/user.slice/app\\x1b.scope"]);
    assert_eq!(roots(Label::Container), ["[no container]"]);
    assert_eq!(roots(Label::Process)[1], "server");
    assert_eq!(roots(Label::Pid)[1], "server (41)");
}
