//! Tests of the formats, on a small profile with hostile names.
//!
//! The text formats are compared with files in `snapshots/`. Set `HEAPTRACE_BLESS=1` to write these files
//! anew, and review the difference.

mod bombs;
mod chosen_blocks;
mod differences;
mod exports;
mod flamegraph;
mod generations;
mod groups;
mod intervals;
mod kinds;
mod memory;
mod names;
mod paused;
mod python;
mod python_sample;
mod quality;
mod ranges;
mod sample;
mod sampled;
mod source;
mod types;
mod unreachable;
mod usage;
mod who;
mod wide;
mod wrappers;

use std::io::{self, Read as _};
use std::path::Path;

use prost::Message as _;

use super::report_input::ReportInput;
use super::{Format, Metric, OutputError, ReportOptions, proto, write_summary};
use crate::profile::{Profile, RunEnd, Symbols};

use sample::{EVIL, profile, symbols};

fn written(format: &Format, input: &ReportInput<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    format.write(input, &mut out).unwrap();
    out
}

fn text(format: &Format, input: &ReportInput<'_>) -> String {
    String::from_utf8(written(format, input)).unwrap()
}

/// Compares a text with a file of `snapshots/`.
fn snapshot(name: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/output/snapshots")
        .join(name);
    if std::env::var_os("HEAPTRACE_BLESS").is_some() {
        std::fs::write(&path, found).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "{name} differs. Expected:\n{expected}\nFound:\n{found}"
    );
}

/// Checks that a text has no characters that a terminal acts on, except line ends.
fn assert_printable(text: &str) {
    let bad = text
        .chars()
        .find(|c| *c != '\n' && crate::text::is_unsafe(*c));
    assert_eq!(bad, None, "in {text}");
}

/// Check the whole text report at a width, with warnings, and that hostile names are escaped.
#[test]
fn report() {
    let (profile, symbols) = (profile(), symbols());
    let warnings = [format!("{EVIL} is incomplete")];
    let input = ReportInput {
        warnings: &warnings,
        ..ReportInput::new(&profile, &symbols)
    };
    let found = text(&Format::Text(ReportOptions::default()), &input);
    assert_printable(&found);
    snapshot("report.txt", &found);
}

/// Check that a narrow report keeps its width despite long names, ranks by another metric, and shows the
/// requested number of sites.
#[test]
fn narrow_report() {
    let (profile, symbols) = (profile(), symbols());
    let options = ReportOptions {
        metric: Metric::TotalAllocations,
        top: 5,
        details: false,
        histogram: false,
        width: Some(60),
        color: false,
    };
    let mut out = Vec::new();
    write_summary(&ReportInput::new(&profile, &symbols), &options, &mut out).unwrap();
    let found = String::from_utf8(out).unwrap();
    for line in found.lines().filter(|line| line.starts_with("     ")) {
        assert!(line.chars().count() <= 60, "{line}");
    }
    snapshot("summary.txt", &found);
}

/// Check that colours are used on request, and that the text is otherwise the same.
#[test]
fn colors() {
    let (profile, symbols) = (profile(), symbols());
    let input = ReportInput::new(&profile, &symbols);
    let plain = text(&Format::Text(ReportOptions::default()), &input);
    let options = ReportOptions {
        color: true,
        ..ReportOptions::default()
    };
    let mut colored = text(&Format::Text(options), &input);
    assert_ne!(colored, plain);
    for code in ["\x1b[1m", "\x1b[2m", "\x1b[1;36m", "\x1b[1;33m", "\x1b[0m"] {
        assert!(colored.contains(code), "{code:?}");
        colored = colored.replace(code, "");
    }
    assert_eq!(colored, plain);
}

/// Check that the JSON report is stable and safe to print, and that a JSON reader gets hostile names back
/// unchanged.
#[test]
fn json() {
    let (profile, symbols) = (profile(), symbols());
    let found = text(&Format::Json, &ReportInput::new(&profile, &symbols));
    assert_printable(&found);
    let value: serde_json::Value = serde_json::from_str(&found).unwrap();
    assert_eq!(value["processes"][1]["command"], EVIL);
    assert_eq!(value["sites"][2]["stack"][0]["function"], EVIL);
    assert_eq!(value["sites"][2]["totals"]["live_bytes"], 640);
    // The snapshot has one field on each line.
    let lines = found.replace(",\"", ",\n\"").replace("},{", "},\n{");
    snapshot("report.json", &lines);
}

/// Check that every documented field is present and in its documented order.
#[test]
fn json_promise() {
    let (profile, symbols) = (profile(), symbols());
    let found = text(&Format::Json, &ReportInput::new(&profile, &symbols));
    let mut at = 0;
    for field in [
        "schema",
        "version",
        "mode",
        "kind",
        "duration_ns",
        "totals",
        "allocations",
        "allocated_bytes",
        "frees",
        "freed_bytes",
        "live_allocations",
        "live_bytes",
        "peak_live_bytes",
        "temporary_allocations",
        "quality",
        "samples",
        "lost",
        "untracked_frees",
        "failed_allocations",
        "stacks_complete",
        "stacks_truncated",
        "stacks_broken",
        "frames_unsymbolized",
        "processes",
        "pid",
        "command",
        "cgroup",
        "ended",
        "totals",
        "allocators",
        "path",
        "kind",
        "hooks",
        "sites",
        "pid",
        "totals",
        "live_bytes_error",
        "stack",
        "function",
        "module",
        "file",
        "line",
        "inlined",
    ] {
        let key = format!("\"{field}\":");
        at += found[at..]
            .find(&key)
            .unwrap_or_else(|| panic!("{field} is not behind {}", &found[..at]));
    }
}

/// Check that sums that a drawing can't hold are refused.
#[test]
fn sums_beyond_the_format_are_refused() {
    let (mut profile, symbols) = (profile(), symbols());
    for site in &mut profile.sites {
        site.totals.live_bytes = u64::MAX / 2;
    }
    let input = ReportInput::new(&profile, &symbols);
    let result = Format::Flamegraph(Metric::LiveBytes).write(&input, &mut io::sink());
    assert!(matches!(result, Err(OutputError::TooLarge)));
    for format in [
        Format::Text(ReportOptions::default()),
        Format::Json,
        Format::Pprof,
    ] {
        format.write(&input, &mut io::sink()).unwrap();
    }
}

/// Check that a closed pipe is recognised in every format.
#[test]
fn closed_pipes_are_recognised() {
    let (profile, symbols) = (profile(), symbols());
    let input = ReportInput::new(&profile, &symbols);
    for format in [
        Format::Text(ReportOptions::default()),
        Format::Json,
        Format::Flamegraph(Metric::LiveBytes),
        Format::Pprof,
    ] {
        let (reader, mut writer) = io::pipe().unwrap();
        drop(reader);
        match format.write(&input, &mut writer) {
            Err(OutputError::Io(error)) => assert_eq!(error.kind(), io::ErrorKind::BrokenPipe),
            other => panic!("{format:?}: {other:?}"),
        }
    }
}

/// Check that every format can write an empty profile, and names nothing wrong in it.
#[test]
fn empty_profiles_are_written() {
    let mut profile = Profile::new(profile().info);
    let symbols = Symbols::default();
    let input = ReportInput::new(&profile, &symbols);
    let found = text(&Format::Text(ReportOptions::default()), &input);
    assert!(found.contains("No site has any live bytes"));
    assert!(found.contains("not ended"));
    let json: serde_json::Value = serde_json::from_str(&text(&Format::Json, &input)).unwrap();
    assert_eq!(json["end"], "cut-off");
    assert_eq!(decoded(&input).sample, []);
    profile.end = RunEnd::Orderly;
    let found = text(
        &Format::Text(ReportOptions::default()),
        &ReportInput::new(&profile, &symbols),
    );
    assert!(!found.contains("not ended"));
}

/// Check that pprof shows the peak first if everything was freed, and what was allocated if that is not known either.
#[test]
fn pprof_shows_first_what_there_is() {
    let (mut profile, symbols) = (profile(), symbols());
    let first = |profile: &Profile| {
        let found = decoded(&ReportInput::new(profile, &symbols));
        found.string_table[found.default_sample_type as usize].clone()
    };
    assert_eq!(first(&profile), "inuse_space");
    profile
        .sites
        .iter_mut()
        .for_each(|it| it.totals.live_bytes = 0);
    assert_eq!(first(&profile), "peak_space");
    profile.sites[0].totals.left_bytes = 1;
    assert_eq!(first(&profile), "left_space");
    profile.sites[0].totals.left_bytes = 0;
    profile
        .sites
        .iter_mut()
        .for_each(|it| it.totals.peak_live_bytes = 0);
    assert_eq!(first(&profile), "alloc_space");
}

/// Decodes the pprof file as pprof does.
fn decoded(input: &ReportInput<'_>) -> proto::Profile {
    let bytes = written(&Format::Pprof, input);
    let mut raw = Vec::new();
    flate2::read::GzDecoder::new(bytes.as_slice())
        .read_to_end(&mut raw)
        .unwrap();
    proto::Profile::decode(raw.as_slice()).unwrap()
}

/// Check the pprof file: types, sums, mappings that hold their addresses, and inlined lines.
#[test]
fn pprof() {
    let (profile, symbols) = (profile(), symbols());
    let found = decoded(&ReportInput::new(&profile, &symbols));
    let string = |index: i64| found.string_table[index as usize].as_str();
    let types: Vec<_> = found
        .sample_type
        .iter()
        .map(|t| (string(t.r#type), string(t.unit)))
        .collect();
    assert_eq!(
        types,
        [
            ("alloc_objects", "count"),
            ("alloc_space", "bytes"),
            ("inuse_objects", "count"),
            ("inuse_space", "bytes"),
            ("peak_space", "bytes"),
            ("left_objects", "count"),
            ("left_space", "bytes")
        ]
    );
    assert_eq!(string(0), "");
    assert_eq!(string(found.default_sample_type), "inuse_space");
    assert_eq!(found.time_nanos, 1_700_000_000_123_456_789);
    assert_eq!(found.duration_nanos, 12_500_000_000);
    let comments: Vec<_> = found.comment.iter().map(|c| string(*c)).collect();
    assert!(comments[0].contains("exact") && comments.contains(&"lost (ring full): 7"));
    // A reason that has not occurred is no comment.
    assert!(
        !comments.iter().any(|it| it.ends_with(": 0")),
        "{comments:?}"
    );

    let sum = |value: usize| found.sample.iter().map(|s| s.value[value]).sum::<i64>();
    assert_eq!(sum(0), 1_000 + 10 + 200 + 100 + 3);
    assert_eq!(sum(3), 100_000 + 640 + 20_000 + 5);
    assert_eq!(sum(4), 101_000 + 704 + 21_000 + 1_000 + 10);
    let labels: Vec<_> = found.sample[1]
        .label
        .iter()
        .map(|l| (string(l.key), string(l.str), l.num))
        .collect();
    let evil = crate::text::escape(EVIL);
    assert_eq!(
        labels,
        [
            ("pid", "", 42),
            ("process", &*evil, 0),
            ("cgroup", "/user.slice/app\\x1b.scope", 0),
            ("unit", "app\\x1b.scope", 0),
        ]
    );

    // The program is first, with its build id.
    assert_eq!(string(found.mapping[0].filename), "/usr/bin/server");
    assert_eq!(string(found.mapping[0].build_id), "efefefef");
    assert!(found.mapping[0].has_functions && found.mapping[0].has_inline_frames);
    let libc = &found.mapping[1];
    assert_eq!(string(libc.filename), "/usr/lib/x86_64-linux-gnu/libc.so.6");
    assert!(libc.has_functions && !libc.has_filenames && !libc.has_inline_frames);
    for location in found.location.iter().filter(|l| l.mapping_id > 0) {
        let mapping = &found.mapping[location.mapping_id as usize - 1];
        assert_eq!(mapping.id, location.mapping_id);
        assert!(
            (mapping.memory_start..mapping.memory_limit).contains(&location.address),
            "{location:?} {mapping:?}"
        );
    }
    // The file offset that pprof computes is the recorded one.
    let first = &found.location[0];
    let mapping = &found.mapping[first.mapping_id as usize - 1];
    assert_eq!(
        first.address - mapping.memory_start + mapping.file_offset,
        0x1100
    );
    let lines: Vec<_> = first
        .line
        .iter()
        .map(|line| {
            let function = &found.function[line.function_id as usize - 1];
            (string(function.name), string(function.filename), line.line)
        })
        .collect();
    assert_eq!(
        lines,
        [
            ("grab", "/home/user/src/server/alloc/pool.c", 31),
            ("handle_request", "/home/user/src/server/main.c", 120)
        ]
    );
}
