//! Tests of timelines: numbers against those of a staircase, and the looks of each format.

use super::course::{Highest, Timeline, timeline};
use super::{TimelineFormat, TimelineOptions, write_timeline};
use crate::join::{Completeness, Process, ProcessId, Site, SiteId, Stack, StackId, Totals, Update};
use crate::output::label::Label;
use crate::output::metric::Metric;
use crate::output::report_input::ReportInput;
use crate::profile::{History, Mode, Profile, Range, RunInfo, Snapshot, Symbols};

const SECOND: u64 = 1_000_000_000;
const EVIL: &str = "<b>&\"\x1b[2J=cmd,";

/// A recording: its profile, its history and its snapshots.
struct Recorded {
    profile: Profile,
    history: History,
    snapshots: Vec<Snapshot>,
}

/// What two sites hold after so many seconds: one climbs to 8,000 bytes and comes down, the other has 500 blocks of a byte from the
/// third second on.
fn held(second: u64) -> [(u64, u64); 2] {
    let steps = if second <= 8 { second } else { 16 - second };
    let other = if second >= 3 { 500 } else { 0 };
    [(1_000 * steps, steps), (other, other)]
}

/// Sixteen seconds of two processes, with a snapshot every so many.
fn staircase(every: usize, periods: usize, error: u64) -> Recorded {
    let mut info = RunInfo::exact(EVIL);
    if error > 0 {
        info.mode = Mode::Sampled { mean_bytes: 100 };
    }
    let mut profile = Profile::new(info);
    let mut history = History::with(periods);
    let mut snapshots = Vec::new();
    let mut peak = 0;
    for second in 1..=16_u64 {
        let sum: u64 = held(second).iter().map(|it| it.0).sum();
        peak = sum.max(peak);
        if second % every as u64 != 0 {
            continue;
        }
        let totals = |(bytes, blocks): (u64, u64)| {
            let mut totals = Totals {
                live_bytes: bytes,
                live_allocations: blocks,
                allocations: blocks + 10 * second,
                allocated_bytes: bytes + 100 * second,
                peak_live_bytes: peak,
                ..Totals::default()
            };
            totals.errors.live_bytes = error;
            totals
        };
        let site = |at: u32| Site {
            totals: totals(held(second)[at as usize]),
            ..Site::of_heap(ProcessId(at), StackId(at), SiteId(at))
        };
        let stack = Stack {
            locations: Vec::new(),
            completeness: Completeness::Complete,
        };
        let process = |at: u32| Process {
            pid: at + 1,
            command: [EVIL, "other"][at as usize].to_owned(),
            ..Process::default()
        };
        let is_first = profile.stacks.is_empty();
        let blocks = held(second).iter().map(|it| it.1).sum();
        let update = Update {
            elapsed_ns: second * SECOND,
            stacks: vec![stack; if is_first { 2 } else { 0 }],
            processes: (0..2).map(|at| (ProcessId(at), process(at))).collect(),
            sites: (0..2).map(|at| (SiteId(at), site(at))).collect(),
            totals: totals((sum, blocks)),
            ..Update::default()
        };
        snapshots.push(Snapshot {
            elapsed_ns: update.elapsed_ns,
            totals: update.totals,
        });
        history.record(&update);
        profile.fold(update).unwrap();
    }
    Recorded {
        profile,
        history,
        snapshots,
    }
}

impl Recorded {
    fn followed(&self, metric: Metric, by: Label, top: usize) -> Timeline {
        let symbols = Symbols::default();
        let input = ReportInput::new(&self.profile, &symbols);
        timeline(&input, &self.history, &self.snapshots, metric, by, top)
    }

    fn written(&self, format: TimelineFormat, unicode: bool, width: usize) -> String {
        let symbols = Symbols::default();
        let input = ReportInput::new(&self.profile, &symbols);
        let found = timeline(
            &input,
            &self.history,
            &self.snapshots,
            Metric::LiveBytes,
            Label::Process,
            8,
        );
        let options = TimelineOptions {
            color: false,
            unicode,
            width: Some(width),
        };
        let mut out = Vec::new();
        write_timeline(&input, &found, format, &options, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }
}

fn values(timeline: &Timeline) -> Vec<u64> {
    timeline.total.iter().map(|it| it.value).collect()
}

/// Check that the totals and groups at each snapshot are those of the run, with every metric, from the beginning on.
#[test]
fn numbers_are_those_of_the_run() {
    let run = staircase(1, 240, 0);
    let of = |metric: Metric| run.followed(metric, Label::Pid, 8);
    let bytes = of(Metric::LiveBytes);
    let expected = (0..=16).map(|at| {
        if at == 0 {
            0
        } else {
            held(at)[0].0 + held(at)[1].0
        }
    });
    assert_eq!(values(&bytes), expected.collect::<Vec<_>>());
    let group = |at: usize| -> Vec<u64> {
        let values = bytes.groups[at].values.iter();
        values.map(|it| it.value).collect()
    };
    assert_eq!(
        group(0),
        (0..=16).map(|at| held(at)[0].0).collect::<Vec<_>>()
    );
    assert_eq!(group(1)[2..5], [0, 500, 500]);
    assert_eq!((bytes.groups[0].most, bytes.all), (8_000, 2));
    assert!(bytes.rest.iter().all(|it| *it == 0));
    let peak = Highest {
        after_ns: 8 * SECOND,
        at_ns: 8 * SECOND,
        value: 8_500,
    };
    assert_eq!((bytes.peak, bytes.snapshots), (Some(peak), 16));
    assert_eq!(values(&of(Metric::LiveAllocations))[9], 507);
    let sums = of(Metric::TotalAllocations);
    assert_eq!((values(&sums)[16], sums.peak), (660, None));
    let sum = |at: usize| {
        sums.groups
            .iter()
            .map(|it| it.values[at].value)
            .sum::<u64>()
    };
    assert_eq!(sum(16), 500 + 320);

    let top = run.followed(Metric::LiveBytes, Label::Pid, 1);
    assert_eq!((top.groups.len(), top.all, top.rest[9]), (1, 2, 500));
}

/// Check that a peak between two snapshots is found with the times around it, that many snapshots become few times which lose no
/// maximum, and that a part of a run has its own beginning and peak.
#[test]
fn peaks_are_not_lost() {
    let coarse = staircase(5, 240, 0).followed(Metric::LiveBytes, Label::Pid, 8);
    assert_eq!(coarse.times, [0, 5, 10, 15].map(|at| at * SECOND));
    assert_eq!(values(&coarse), [0, 5_500, 6_500, 1_500]);
    let most: Vec<_> = coarse.total.iter().map(|it| it.most).collect();
    assert_eq!(most, [0, 5_500, 8_500, 6_500]);
    let peak = Highest {
        after_ns: 5 * SECOND,
        at_ns: 10 * SECOND,
        value: 8_500,
    };
    assert_eq!(coarse.peak, Some(peak));

    let few = staircase(1, 4, 0).followed(Metric::LiveBytes, Label::Pid, 8);
    assert!((3..=5).contains(&few.times.len()), "{:?}", few.times);
    assert_eq!(few.total.iter().map(|it| it.most).max(), Some(8_500));

    let mut part = staircase(1, 240, 0);
    part.profile.range = Some(Range {
        from_ns: 10 * SECOND,
        to_ns: 14 * SECOND,
        peak_is_least: true,
    });
    let found = part.followed(Metric::LiveBytes, Label::Pid, 8);
    assert_eq!(found.times, [10, 11, 12, 13, 14].map(|at| at * SECOND));
    assert_eq!(values(&found), [6_500, 5_500, 4_500, 3_500, 2_500]);
    assert_eq!(found.groups[0].values[0].value, 6_000);
    assert_eq!(
        found.peak.map(|it| (it.at_ns, it.value)),
        Some((10 * SECOND, 6_500))
    );
    let sums = part.followed(Metric::TotalBytes, Label::Pid, 8);
    assert_eq!(sums.total[0].value, 0);
    assert_eq!(sums.groups[0].values[4].value, 400);
}

/// Check that a plot fits into its width, marks the peak, draws the stairs, and needs no Unicode.
#[test]
fn plots_show_the_stairs() {
    let run = staircase(1, 240, 0);
    for width in [60, 80, 120] {
        let plot = run.written(TimelineFormat::Text, true, width);
        for line in plot.lines().skip(3) {
            assert!(line.chars().count() <= width, "{width}: {line}");
        }
        let row = |text: &str| plot.lines().find(|it| it.contains(text)).unwrap();
        let peak = row("▼");
        assert!(plot.contains("highest 8.3 KiB at 8.00 s"), "{plot}");
        let at = peak.chars().position(|it| it == '▼').unwrap();
        let rows: Vec<Vec<char>> = plot
            .lines()
            .filter(|it| it.contains(['│', '┤']))
            .map(|it| it.chars().collect())
            .collect();
        let height = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells.filter(|it| **it != ' ').count()
        };
        assert!(
            height(at) > height(at - 20) && height(at) > height(at + 20),
            "{plot}"
        );
        assert!(!plot.contains('\x1b'), "{plot}");
    }
    let ascii = run.written(TimelineFormat::Text, false, 80);
    assert!(ascii.is_ascii() && ascii.contains('#'), "{ascii}");
    assert_eq!(ascii.lines().filter(|it| it.contains("highest")).count(), 1);
}

/// Check that each format has the numbers and the errors of a sample, and that names can end neither a field nor an element.
#[test]
fn formats_are_whole() {
    let run = staircase(1, 240, 40);
    let json: serde_json::Value =
        serde_json::from_str(&run.written(TimelineFormat::Json, true, 80)).unwrap();
    assert_eq!(json["times_ns"].as_array().map(Vec::len), Some(17));
    assert_eq!(json["total"]["values"][8], 8_500);
    assert_eq!(json["total"]["errors"][8], 40);
    assert!(json["total"]["low"][8].as_u64() < json["total"]["high"][8].as_u64());
    assert_eq!(json["groups"][0]["values"][8], 8_000);
    assert_eq!(json["groups"][0]["errors"][8], 40);
    assert_eq!(json["groups"][0]["name"], EVIL);

    let csv = run.written(TimelineFormat::Csv, true, 80);
    let lines: Vec<_> = csv.lines().collect();
    assert_eq!(lines.len(), 18, "{csv}");
    assert!(lines[0].starts_with("seconds,total,most,total_error,total_low,total_high,\""));
    assert!(lines[9].starts_with("8.000,8500,8500,40,"), "{csv}");

    let svg = run.written(TimelineFormat::Svg, true, 80);
    assert!(svg.contains("&lt;b&gt;&amp;") && !svg.contains("<b>"));
    assert!(svg.contains("class=\"band\"") && svg.contains("prefers-color-scheme:dark"));
    assert_eq!(svg.matches("<polygon class=\"area").count(), 2);
    assert!(svg.trim_end().ends_with("</svg>"));
    assert!(run.written(TimelineFormat::Text, true, 80).contains('░'));

    let mut exact = staircase(1, 240, 0);
    let json = exact.written(TimelineFormat::Json, true, 80);
    assert!(!json.contains("errors"));
    exact.history = History::default();
    exact.snapshots.clear();
    let text = exact.written(TimelineFormat::Text, true, 80);
    assert!(text.contains("nothing to draw"), "{text}");
    assert!(
        exact
            .written(TimelineFormat::Svg, true, 80)
            .contains("</svg>")
    );
}
