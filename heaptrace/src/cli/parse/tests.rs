//! Tests of parsing whole command lines.

mod moments;
mod names;
mod outputs;

use std::path::PathBuf;
use std::time::Duration;

use super::*;
use crate::cli::{Action, Color, Filters, Format, Input, Moment, Ranking};
use crate::config::{KeptBlocks, Probes, RunConfig, Sampling, Selection, TableConfig, Target};
use crate::output::{Label, Metric, ShownLanguages, Wrappers};
use crate::unwind;

fn parsed(line: &str) -> Result<Invocation, Stop> {
    parse(line.split_whitespace().map(OsString::from))
}

fn run(line: &str) -> RunConfig {
    match parsed(line).unwrap().action {
        Action::Live { run, .. } | Action::Record { run, .. } => run,
        other => panic!("{line}: {other:?}"),
    }
}

fn complaint(line: &str) -> String {
    match parsed(line) {
        Err(Stop::Clap(error)) => {
            assert_eq!(error.exit_code(), 2, "{line}");
            error.to_string()
        }
        other => panic!("{line}: {other:?}"),
    }
}

/// Check that the grammar follows clap's own rules.
#[test]
fn grammar_is_consistent() {
    Cli::command().debug_assert();
}

/// Check that the defaults in help texts are the defaults of the configuration.
#[test]
fn defaults_are_those_of_the_configuration() {
    assert_eq!(
        run("heaptrace --all"),
        RunConfig {
            target: Target::All,
            run_as: None,
            selection: Selection::default(),
            from_birth: false,
            debug_dirs: Vec::new(),
            children: true,
            threads: false,
            histogram: false,
            mappings: true,
            blocks: KeptBlocks::None,
            inspect_live: false,
            reachable: false,
            max_stop: None,
            duration: None,
            mark_every: None,
            live_limit: None,
            interval: RunConfig::DEFAULT_INTERVAL,
            max_stack_depth: RunConfig::MAX_STACK_DEPTH,
            max_memory: RunConfig::DEFAULT_MEMORY,
            max_live: None,
            sampling: Sampling {
                mean: RunConfig::FINEST_MEAN,
                first_shift: RunConfig::FIRST_SHIFT,
                max_per_second: Some(RunConfig::DEFAULT_MAX_SAMPLES),
                ..Sampling::EXACT
            },
            ring_size: None,
            tables: TableConfig {
                max_bytes: RunConfig::DEFAULT_TABLE_MEMORY,
                cache: unwind::default_folder(),
            },
            allocators: Vec::new(),
            max_overhead: Some(RunConfig::DEFAULT_MAX_OVERHEAD),
            fast: false,
            probes: Probes::Full,
            verbose: false,
        }
    );
}

/// Check that live mode and `record` accept all three kinds of target.
#[test]
fn targets_are_read() {
    for mode in ["heaptrace", "heaptrace record"] {
        let pids = run(&format!("{mode} --pid 34 --pid 12 --pid 34"));
        assert_eq!(pids.target, Target::Pids(vec![12, 34]));
        assert_eq!(run(&format!("{mode} --all")).target, Target::All);
        // All words after `--` belong to the command, also those that look like our options.
        let command = run(&format!("{mode} --no-children -- record --pid 1 -- -v"));
        assert_eq!(
            command.target,
            Target::Command(
                ["record", "--pid", "1", "--", "-v"]
                    .map(OsString::from)
                    .into()
            )
        );
        assert!(!command.children && !command.verbose);
    }
}

/// Check that each filter of `--all` is read any number of times, and is refused with other targets.
#[test]
fn process_filters_need_all() {
    let config = run(
        "heaptrace --all --comm a* --comm b --exclude ab --cgroup /x.slice \
                      --user root --user 65534",
    );
    assert_eq!(
        config.selection,
        Selection {
            names: vec!["a*".to_owned(), "b".to_owned()],
            excluded: vec!["ab".to_owned()],
            cgroups: vec!["/x.slice".into()],
            users: vec![0, 65534],
        }
    );
    for option in ["--comm a", "--exclude a", "--cgroup a", "--user 0"] {
        let name = &option[..option.len() - 2];
        for message in [
            complaint(&format!("heaptrace --pid 3 {option}")),
            complaint(&format!("heaptrace record {option} -- ls")),
        ] {
            assert!(message.contains("cannot be used with") && message.contains(name));
        }
    }
}

/// Check that run options are read to the configuration.
#[test]
fn run_options_are_read() {
    let config = run(
        "heaptrace record --exact --threads --no-mmap --duration 1h30m --interval 500ms --max-stack-depth 16 \
                      --max-live 1000 --ring-size 512K --max-memory 64MiB --max-table-memory 8M \
                      --table-cache /a/b --probes empty -v --all",
    );
    assert_eq!(config.duration, Some(Duration::from_secs(5400)));
    assert_eq!(config.sampling, Sampling::EXACT);
    assert_eq!(config.interval, Duration::from_millis(500));
    assert_eq!((config.max_stack_depth, config.max_live), (16, Some(1000)));
    assert_eq!(config.ring_size, Some(512 << 10));
    assert_eq!(config.max_memory, 64 << 20);
    let tables = TableConfig {
        max_bytes: 8 << 20,
        cache: Some(PathBuf::from("/a/b")),
    };
    assert_eq!(config.tables, tables);
    assert_eq!(run("heaptrace --no-table-cache --all").tables.cache, None);
    assert_eq!(config.probes, Probes::Empty);
    assert!(config.verbose && config.threads && !config.mappings);
    assert!(run("heaptrace --mmap --all").mappings);
}

/// Check that the offline commands are read, with their default files.
#[test]
fn offline_commands_are_read() {
    let action = |line: &str| parsed(line).unwrap().action;
    let file = |name: &str| Input {
        file: PathBuf::from(name),
        at: None,
        from: None,
        since_mark: None,
        filters: Filters::default(),
        max_memory: None,
        with_history: false,
        shown: ShownLanguages::default(),
        full_names: false,
    };
    assert_eq!(
        action("heaptrace report"),
        Action::Report {
            input: file("heaptrace.data"),
            format: Format::Text,
            ranking: Ranking {
                by: None,
                metric: None,
                top: None,
                details: false,
                histogram: false,
            },
            wrappers: Wrappers::default(),
        }
    );
    assert_eq!(
        action("heaptrace report x.data --format json --metric temporary --top 3 --details"),
        Action::Report {
            input: file("x.data"),
            format: Format::Json,
            ranking: Ranking {
                by: None,
                metric: Some(Metric::Temporary),
                top: Some(3),
                details: true,
                histogram: false,
            },
            wrappers: Wrappers::default(),
        }
    );
    assert_eq!(
        action("heaptrace flamegraph --metric peak-bytes"),
        Action::Flamegraph {
            input: file("heaptrace.data"),
            force: false,
            output: "heaptrace.svg".into(),
            metric: Some(Metric::PeakBytes),
            by: None,
            types: false,
        }
    );
    assert_eq!(
        action("heaptrace pprof -o -"),
        Action::Pprof {
            input: file("heaptrace.data"),
            force: false,
            output: "-".into(),
        }
    );
    let doctor = |pids| Action::Doctor {
        pids,
        allocators: Vec::new(),
    };
    assert_eq!(action("heaptrace doctor"), doctor(Vec::new()));
    assert_eq!(action("heaptrace doctor --pid 7"), doctor(vec![7]));
}

/// Check that wrappers are added and shown in the live view and in reports.
#[test]
fn wrappers_are_read() {
    let wrappers = |line: &str| match parsed(line).unwrap().action {
        Action::Live { wrappers, .. } | Action::Report { wrappers, .. } => wrappers,
        other => panic!("{line}: {other:?}"),
    };
    for command in ["heaptrace --all", "heaptrace report"] {
        let added = Wrappers::with(&["a*".to_owned(), "b".to_owned()]);
        assert_eq!(
            wrappers(&format!("{command} --wrapper a* --wrapper b")),
            added
        );
        assert_eq!(
            wrappers(&format!("{command} --full-stacks")),
            Wrappers::shown()
        );
    }
}

/// Check that every output accepts languages, as lists and again and again, that `--native` is short for one of them, and that an
/// unknown one is refused with a list of all.
#[test]
fn languages_are_read() {
    let shown = |line: &str| match parsed(line).unwrap().action {
        Action::Live { languages, .. } => languages,
        Action::Report { input, .. }
        | Action::Flamegraph { input, .. }
        | Action::Pprof { input, .. } => input.shown,
        other => panic!("{line}: {other:?}"),
    };
    let python = ShownLanguages::from_name("python").unwrap();
    for command in [
        "heaptrace --all",
        "heaptrace report",
        "heaptrace flamegraph",
        "heaptrace pprof",
    ] {
        for (options, expected) in [
            ("", ShownLanguages::default()),
            ("--native", ShownLanguages::NATIVE),
            ("--language native", ShownLanguages::NATIVE),
            ("--language python", python),
            (
                "--language python,native,javascript,java,jit",
                ShownLanguages::default(),
            ),
            (
                "--language python --language native",
                python.and(ShownLanguages::NATIVE),
            ),
        ] {
            assert_eq!(
                shown(&format!("{command} {options}")),
                expected,
                "{command} {options}"
            );
        }
        for wrong in ["perl", "", "python,", "Python"] {
            let message = complaint(&format!("{command} --language={wrong}"));
            assert!(
                message.contains("use one of native, python, javascript, java, jit"),
                "{message}"
            );
        }
        let both = complaint(&format!("{command} --native --language python"));
        assert!(both.contains("cannot be used with"), "{both}");
    }
    complaint("heaptrace report --snapshots --native");
}

/// Check which groups and filters each command accepts, and that others are refused with a reason.
#[test]
fn groups_and_filters_are_read() {
    for label in Label::ALL {
        let line = format!("heaptrace report --by {}", label.name());
        let Action::Report { ranking, .. } = parsed(&line).unwrap().action else {
            panic!("{line}");
        };
        assert_eq!(ranking.by, Some(label));
        let live = parsed(&format!("heaptrace --all --by {}", label.name()));
        assert_eq!(live.is_ok(), label != Label::Stack, "{label:?}");
        let graph = parsed(&format!("heaptrace flamegraph --by {}", label.name()));
        assert_eq!(graph.is_ok(), !label.is_of_stack(), "{label:?}");
    }
    for command in ["report", "flamegraph", "pprof"] {
        let line = format!("heaptrace {command} --filter function=a=b --filter pid=7 x");
        let (Action::Report { input, .. }
        | Action::Flamegraph { input, .. }
        | Action::Pprof { input, .. }) = parsed(&line).unwrap().action
        else {
            panic!("{line}");
        };
        let shown: Vec<_> = input
            .filters
            .expressions
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(shown, ["function=a=b", "pid=7"], "{line}");
    }
    for (options, reason) in [
        ("--by types", "use one of stack, function"),
        ("--by colour", "use one of stack, function"),
        ("--filter main", "function=main"),
        ("--filter typ=x", "did you mean `type`?"),
        ("--filter stack=x", "no name of its own"),
        ("--filter funtion=x", "did you mean `function`?"),
        ("--filters x", "required"),
        ("--filter function=", "the pattern is empty"),
    ] {
        let message = complaint(&format!("heaptrace report {options}"));
        assert!(message.contains(reason), "{message}");
    }
}

/// Check that every offline command accepts a time, and that the list of snapshots refuses one.
#[test]
fn times_of_snapshots_are_read() {
    for command in ["report", "flamegraph", "pprof"] {
        let (Action::Report { input, .. }
        | Action::Flamegraph { input, .. }
        | Action::Pprof { input, .. }) = parsed(&format!("heaptrace {command} --at 1m30s"))
            .unwrap()
            .action
        else {
            panic!("{command}");
        };
        assert_eq!(input.at, Some(Moment::AfterBegin(Duration::from_secs(90))));
    }
    let action = parsed("heaptrace report --snapshots").unwrap().action;
    assert!(matches!(action, Action::Snapshots { .. }), "{action:?}");
    complaint("heaptrace report --snapshots --at 3s");
}

/// Check that `-v` and `--color` are accepted after a subcommand.
#[test]
fn common_options_follow_a_subcommand() {
    let invocation = parsed("heaptrace report -vv --color never").unwrap();
    assert_eq!((invocation.verbosity, invocation.color), (2, Color::Never));
}

/// Check that two kinds of target are refused, and that the message names both.
#[test]
fn conflicting_targets_are_refused() {
    let both = complaint("heaptrace record --all --pid 3");
    assert!(both.contains("--all") && both.contains("--pid"), "{both}");
    let both = complaint("heaptrace --pid 3 -- ls");
    assert!(both.contains("COMMAND") && both.contains("--pid"), "{both}");
    let both = complaint("heaptrace --all -- ls");
    assert!(both.contains("COMMAND") && both.contains("--all"), "{both}");
}

/// Check that the fast path is refused in an exact run that selects sizes, and only there.
#[test]
fn fast_exact_runs_of_some_sizes_are_refused() {
    for sizes in ["--min-size 64", "--max-size 4KiB"] {
        for exact in ["--exact", "--sample 1"] {
            let line = format!("heaptrace record --fast {exact} {sizes} -- ls");
            assert!(complaint(&line).contains("--fast can't be used"), "{line}");
        }
        assert!(parsed(&format!("heaptrace record --fast {sizes} -- ls")).is_ok());
        assert!(parsed(&format!("heaptrace --exact {sizes} --pid 3")).is_ok());
    }
    assert!(parsed("heaptrace record --fast --exact -- ls").is_ok());
}

/// Check that a missing target gives an explanation, and that no argument at all gives the short help.
#[test]
fn a_missing_target_is_explained() {
    assert!(complaint("heaptrace record").contains("heaptrace record -- ls -l"));
    assert!(complaint("heaptrace --duration 3s").contains("no target"));
    assert!(complaint("heaptrace record --").contains("no target"));
    assert!(matches!(parsed("heaptrace"), Err(Stop::Bare)));
}

/// Check that a command without its `--` gets the hint, and that a mistyped subcommand gets the right name.
#[test]
fn stray_words_get_a_hint() {
    assert!(complaint("heaptrace record ls -l").contains("`-- ls`"));
    assert!(complaint("heaptrace sort").contains("`-- sort`"));
    for (line, name) in [
        ("repot", "report"),
        ("recrd -- ls", "record"),
        ("flamegrap --by cgroup", "flamegraph"),
        ("reports heaptrace.data", "report"),
        ("-v repot", "report"),
        ("docter", "doctor"),
    ] {
        let message = complaint(&format!("heaptrace {line}"));
        assert!(
            message.contains(&format!("did you mean `heaptrace {name}`?")),
            "{message}"
        );
        assert!(!message.contains("to trace a command"), "{message}");
    }
    for word in [
        "sort",
        "redis-server",
        "python3",
        "./report",
        "perl",
        "placement",
    ] {
        let message = complaint(&format!("heaptrace {word}"));
        assert!(message.contains(&format!("`-- {word}`")), "{message}");
    }
    assert!(complaint("heaptrace -v record --all").contains("after the subcommand"));
}

/// Check that values out of bounds are refused, with the name of the option.
#[test]
fn bad_values_are_refused() {
    for (line, option) in [
        ("heaptrace --pid 0", "--pid"),
        ("heaptrace --pid -4", "--pid"),
        ("heaptrace --pid 99999999999", "--pid"),
        ("heaptrace --all --duration 0", "--duration"),
        ("heaptrace --all --interval soon", "--interval"),
        ("heaptrace --all --max-stack-depth 0", "--max-stack-depth"),
        (
            "heaptrace --all --max-stack-depth 4000",
            "--max-stack-depth",
        ),
        ("heaptrace --all --ring-size 3", "--ring-size"),
        ("heaptrace --all --max-live 0", "--max-live"),
        ("heaptrace --all --max-memory 1MiB", "--max-memory"),
        ("heaptrace --all --comm sixteen-letters!", "--comm"),
        ("heaptrace --all --exclude [a", "--exclude"),
        ("heaptrace --all --user no-such-user", "--user"),
        ("heaptrace report --top 0", "--top"),
        ("heaptrace report --metric bytes", "--metric"),
        ("heaptrace report --format xml", "--format"),
    ] {
        let message = complaint(line);
        assert!(message.contains(option), "{line}: {message}");
    }
}

/// Check that help and version exit with 0.
#[test]
fn help_is_success() {
    for line in [
        "heaptrace --help",
        "heaptrace -V",
        "heaptrace record --help",
    ] {
        match parsed(line) {
            Err(Stop::Clap(error)) => assert_eq!(error.exit_code(), 0, "{line}"),
            other => panic!("{line}: {other:?}"),
        }
    }
}

/// Check that options for benchmarks are not listed.
#[test]
fn options_for_benchmarks_are_hidden() {
    let help = Cli::command().render_long_help().to_string();
    assert!(!help.contains("--probes"));
}
