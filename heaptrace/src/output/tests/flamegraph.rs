//! Tests of flame graphs: the picture, the data of the page, and what both do with hostile names.

use serde_json::Value;

use super::{assert_printable, sample, snapshot, text};
use crate::join::{Completeness, Errors, LocationId, ProcessId};
use crate::output::folded::Folder;
use crate::output::{Format, Metric, ReportInput, drawn_metric};
use crate::profile::{Mode, Profile};

use sample::{EVIL, profile, symbols};

/// The stacks of a graph, outermost frame first, with the values that no callee has.
pub(super) fn stacks(input: &ReportInput<'_>, metric: Metric) -> Vec<(Vec<String>, u64)> {
    let mut folder = Folder::new(input);
    let folded = folder.fold(metric, 0.0).unwrap();
    assert_eq!(folded.left_out, 0);
    let mut path = Vec::new();
    let mut stacks = Vec::new();
    for frame in &folded.frames {
        path.truncate(frame.depth);
        path.push(folder.names()[frame.name as usize].text.clone());
        if frame.own > 0 {
            stacks.push((path.clone(), frame.own));
        }
    }
    stacks
}

/// The data that the page of an SVG reads, as a browser gets it.
pub(super) fn data(svg: &str) -> Value {
    let begin = "<script type=\"application/json\" id=\"data\">";
    let (_, rest) = svg.split_once(begin).unwrap();
    let (data, _) = rest.split_once("</script>").unwrap();
    assert!(!data.contains(['<', '>', '&']), "markup in the data");
    serde_json::from_str(data).unwrap()
}

/// A frame of the page: the depth, the name, the position and the value.
pub(super) type PageFrame = (u64, String, u64, u64);

/// The frames of a metric, as the page reads them.
pub(super) fn page_frames(data: &Value, metric: Metric) -> Vec<PageFrame> {
    let metrics = data["metrics"].as_array().unwrap();
    let found = metrics.iter().find(|it| it["name"] == metric.name());
    let numbers = found.unwrap()["frames"].as_array().unwrap();
    let numbers: Vec<u64> = numbers.iter().map(|it| it.as_u64().unwrap()).collect();
    let mut begins = vec![0];
    let frames = numbers.chunks_exact(4).map(|frame| {
        begins.truncate(frame[0] as usize + 1);
        let x = begins.last().unwrap() + frame[2];
        begins.push(x);
        let name = data["names"][frame[1] as usize][0].as_str().unwrap();
        (frame[0], name.to_owned(), x, frame[3])
    });
    frames.collect()
}

/// The metrics that the page offers.
fn offered(data: &Value) -> Vec<&str> {
    let metrics = data["metrics"].as_array().unwrap().iter();
    metrics.map(|it| it["name"].as_str().unwrap()).collect()
}

fn svg(profile: &Profile, metric: Metric) -> String {
    let symbols = symbols();
    text(
        &Format::Flamegraph(metric),
        &ReportInput::new(profile, &symbols),
    )
}

/// Check that stacks begin with the outermost frame, have processes as roots, and are marked if their outer
/// frames are missing.
#[test]
fn folded_stacks() {
    let (profile, symbols) = (profile(), symbols());
    let input = ReportInput::new(&profile, &symbols);
    let stacks = stacks(&input, Metric::TotalBytes);
    let lines = stacks
        .iter()
        .map(|(path, own)| format!("{} {own}\n", path.join(" / ")));
    let found: String = lines.collect();
    assert_printable(&found);
    snapshot("folded.txt", &found);
}

/// Check that a single process is not a root, and that a stack without frames is drawn.
#[test]
fn a_single_process_is_no_root() {
    let (mut profile, symbols) = (profile(), symbols());
    profile.processes.truncate(1);
    profile.sites.retain(|site| site.process == ProcessId(0));
    profile.sites.truncate(1);
    let found = |profile: &Profile| {
        let stacks = stacks(&ReportInput::new(profile, &symbols), Metric::LiveBytes);
        stacks
            .iter()
            .map(|(path, _)| path.join(" / "))
            .collect::<Vec<_>>()
    };
    let path = "__libc_start_call_main / handle_request / handle_request / grab";
    assert_eq!(found(&profile), [path]);
    profile.stacks[0].locations.clear();
    profile.stacks[0].completeness = Completeness::Broken;
    assert_eq!(found(&profile), ["[no stack]"]);
}

/// Check that the picture describes itself, that hostile names are escaped in it and in the data of the page,
/// and that the innermost frame is at the top.
#[test]
fn the_picture_shows_one_metric() {
    let svg = svg(&profile(), Metric::LiveBytes);
    let (picture, _) = svg.split_once("<script").unwrap();
    for part in [
        "heaptrace: live bytes of --pid 41 --pid 42",
        "exact · live 127.0 KiB in 130 · total 1.3 MiB in 1,313",
        "LOST 7",
        "<title>grab [server]: 97.7 KiB, 82.9 %</title>",
        "<title>server (41): ",
        ">grab <tspan class=\"v\">97.7 KiB</tspan></text>",
        "&lt;script&gt;alert(1)",
    ] {
        assert!(picture.contains(part), "{part}");
    }
    assert!(!svg.contains("<script>alert"));
    assert_printable(&svg);
    let y = |name: &str| -> f64 {
        let rest = &picture[picture.find(&format!("<title>{name} [")).unwrap()..];
        let rest = &rest[rest.find(" y=\"").unwrap() + 4..];
        rest[..rest.find('"').unwrap()].parse().unwrap()
    };
    assert!(y("grab") < y("__libc_start_call_main"));
}

/// Check that the base of a graph is inside of the drawn part, also where narrow frames at the top are not drawn. (Once,
/// it was cut off.)
#[test]
fn the_base_is_inside_of_the_picture() {
    let svg = svg(&profile(), Metric::LiveBytes);
    let number = |text: &str, name: &str| -> u64 {
        let (_, rest) = text.split_once(&format!(" {name}=\"")).unwrap();
        rest.split_once('"').unwrap().0.parse().unwrap()
    };
    let (_, frames) = svg.split_once("<svg id=\"frames\"").unwrap();
    let (_, base) = frames.split_once("<title>all: ").unwrap();
    let (_, base) = base.split_once("<rect").unwrap();
    assert!(number(base, "y") + number(base, "height") <= number(frames, "height"));
}

/// Check that the SVG needs no other file, and that no name can end its script.
#[test]
fn the_file_is_self_contained() {
    let mut symbols = symbols();
    for name in &mut symbols.strings {
        *name = "]]></script><svg onload=\"alert(1)\">&amp;".to_owned();
    }
    let mut profile = profile();
    profile.info.target = symbols.strings[0].clone();
    for module in &mut profile.modules {
        module.path = format!("/opt/{}", symbols.strings[0]);
    }
    let input = ReportInput::new(&profile, &symbols);
    let svg = text(&Format::Flamegraph(Metric::LiveBytes), &input);
    for (part, times) in [
        ("]]>", 1),
        ("</script>", 2),
        ("<script", 2),
        ("onload=\"", 0),
        // The names of the two languages.
        ("http", 3),
        ("http://www.w3.org/", 3),
        ("url(", 0),
        ("@import", 0),
        ("innerHTML", 0),
        ("eval", 0),
    ] {
        assert_eq!(svg.matches(part).count(), times, "{part}");
    }
    data(&svg);
}

/// Check that the page offers every metric that is not zero everywhere, and has the frames, the sum and the
/// texts of each.
#[test]
fn the_page_has_every_metric() {
    let mut profile = profile();
    for site in &mut profile.sites {
        site.totals.temporary_allocations = 0;
        (site.totals.left_allocations, site.totals.left_bytes) = (1, 2);
    }
    let data = data(&svg(&profile, Metric::TotalBytes));
    let all: Vec<_> = Metric::ALL.iter().map(|it| it.name()).collect();
    let expected = all.iter().copied().filter(|it| *it != "temporary");
    assert_eq!(offered(&data), expected.collect::<Vec<_>>());
    assert_eq!(
        data["metrics"][data["first"].as_u64().unwrap() as usize]["name"],
        "total-bytes"
    );
    for metric in data["metrics"].as_array().unwrap() {
        let metric_name = Metric::from_name(metric["name"].as_str().unwrap()).unwrap();
        let sites = profile.sites.iter();
        let sum: u64 = sites.map(|site| metric_name.of(&site.totals)).sum();
        assert_eq!(metric["sum"], sum);
        let heading = metric["heading"].as_str().unwrap();
        assert!(heading.contains(metric_name.title()), "{heading}");
        assert_eq!(metric["is_bytes"], metric_name.is_bytes());
        let frames = page_frames(&data, metric_name);
        let roots = frames.iter().filter(|(depth, ..)| *depth == 0);
        assert_eq!(roots.map(|(.., value)| value).sum::<u64>(), sum);
    }
    let grab = page_frames(&data, Metric::TotalBytes);
    let grab = grab.iter().find(|(_, name, ..)| name == "grab").unwrap();
    assert_eq!(grab.3, 1_000_000);
}

/// Check that functions whose names begin alike are drawn once, and that the frames of the page lie beside
/// each other, below their callers.
#[test]
fn callers_span_their_callees() {
    let (mut profile, mut symbols) = (profile(), symbols());
    profile.processes.truncate(1);
    profile.sites.retain(|site| site.process == ProcessId(0));
    symbols.strings[5] = "handle_request(int)".to_owned();
    profile.stacks[0].locations = vec![LocationId(0), LocationId(4)];
    profile.stacks[2].locations = vec![LocationId(3), LocationId(4)];
    profile.stacks[3].locations = vec![LocationId(2), LocationId(4)];
    for stack in &mut profile.stacks {
        stack.completeness = Completeness::Complete;
    }
    let input = ReportInput::new(&profile, &symbols);
    let data = data(&text(&Format::Flamegraph(Metric::TotalBytes), &input));
    let frames = page_frames(&data, Metric::TotalBytes);
    let found: Vec<_> = frames
        .iter()
        .map(|(depth, name, x, value)| (*depth, name.as_str(), *x, *value))
        .collect();
    let library = found
        .iter()
        .find(|it| it.1 == "__libc_start_call_main")
        .unwrap();
    let at = library.2;
    for expected in [
        (0, "__libc_start_call_main", at, 1_300_000),
        (1, "handle_request", at, 1_100_000),
        (2, "grab", at + 100_000, 1_000_000),
        (1, "handle_request(int)", at + 1_100_000, 200_000),
    ] {
        assert_eq!(
            found.iter().filter(|it| **it == expected).count(),
            1,
            "{found:?}"
        );
    }
}

/// Check that where all was freed, the peak is drawn, and the title says why.
#[test]
fn the_peak_is_drawn_where_all_was_freed() {
    let mut profile = profile();
    for site in &mut profile.sites {
        site.totals.live_bytes = 0;
        site.totals.live_allocations = 0;
    }
    let svg = svg(&profile, Metric::LiveBytes);
    let title = "heaptrace: bytes at peak of --pid 41 --pid 42 (all was freed)";
    assert!(svg.contains(title));
    let data = data(&svg);
    assert_eq!(
        data["metrics"][data["first"].as_u64().unwrap() as usize]["name"],
        "peak-bytes"
    );
    assert!(!offered(&data).contains(&"live-bytes"));
    // Blocks of zero bytes can still be counted.
    for site in &mut profile.sites {
        site.totals.peak_live_bytes = 0;
        site.totals.allocated_bytes = 0;
    }
    let symbols = symbols();
    let drawn = drawn_metric(&ReportInput::new(&profile, &symbols), Metric::LiveBytes);
    assert_eq!(drawn, Some(Metric::TotalAllocations));
}

/// Check that only a profile without any allocation gives an error, with advice, and no drawing.
#[test]
fn empty_profiles_are_not_drawn() {
    let (mut profile, symbols) = (profile(), symbols());
    profile.sites.clear();
    let mut out = Vec::new();
    for metric in Metric::ALL {
        let error = Format::Flamegraph(metric)
            .write(&ReportInput::new(&profile, &symbols), &mut out)
            .unwrap_err()
            .to_string();
        assert!(error.contains("no allocation was recorded"), "{error}");
        assert!(error.contains("heaptrace report"), "{error}");
        assert!(out.is_empty());
    }
}

/// Check that frames of a sampled run have standard errors, those of the sites below added up.
#[test]
fn frames_have_errors() {
    let mut profile = profile();
    profile.info.mode = Mode::Sampled { mean_bytes: 512 };
    let errors = |live_bytes| Errors {
        live_bytes,
        ..Errors::default()
    };
    profile.sites[0].totals.errors = errors(3_000);
    profile.sites[2].totals.errors = errors(4_000);
    let svg = svg(&profile, Metric::LiveBytes);
    assert!(svg.contains("<title>grab [server]: 97.7 KiB ± 2.9 KiB, "));
    let data = data(&svg);
    let frames = page_frames(&data, Metric::LiveBytes);
    let at = frames
        .iter()
        .position(|(_, name, ..)| name == "server (41)");
    let live = data["metrics"].as_array().unwrap();
    let live = live.iter().find(|it| it["name"] == "live-bytes").unwrap();
    assert_eq!(live["errors"][at.unwrap()], 5_000);
    let total = data["metrics"].as_array().unwrap();
    let total = total.iter().find(|it| it["name"] == "total-bytes").unwrap();
    assert_eq!(total["errors"], serde_json::json!([]));
}

/// Check that a long target and a long subtitle are broken into lines that fit the picture.
#[test]
fn long_headings_are_broken() {
    let mut profile = profile();
    profile.info.target = "server --option=value ".repeat(9);
    let warnings = [EVIL.to_owned()];
    let symbols = symbols();
    let input = ReportInput {
        warnings: &warnings,
        ..ReportInput::new(&profile, &symbols)
    };
    let svg = text(&Format::Flamegraph(Metric::LiveBytes), &input);
    let lines = |class: &str| -> Vec<usize> {
        let begin = format!("<text class=\"{class}\" ");
        let lines = svg.split(&begin).skip(1);
        let texts = lines.map(|line| line.split(['>', '<']).nth(1).unwrap());
        texts.map(|line| line.chars().count()).collect::<Vec<_>>()
    };
    let titles = lines("t");
    assert!(
        titles.len() >= 2 && titles.iter().all(|it| *it <= 118),
        "{titles:?}"
    );
    assert!(lines("s").iter().all(|it| *it <= 168), "{:?}", lines("s"));
}

/// Check that a stack of thousands of frames is drawn, in a file of bounded size.
#[test]
fn deep_stacks_are_drawn() {
    let mut profile = profile();
    profile.stacks[2].locations = vec![LocationId(3); 5_000];
    let svg = svg(&profile, Metric::LiveBytes);
    let frames = page_frames(&data(&svg), Metric::LiveBytes);
    assert!(
        frames.iter().any(|(depth, ..)| *depth == 5_001),
        "{}",
        frames.len()
    );
    assert!(svg.len() < 4 << 20, "{} bytes", svg.len());
}
