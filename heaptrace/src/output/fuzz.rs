//! Checks for fuzzers: any path of a control group, any filter, and the reports of any profile.
//!
//! Stage: output.

use std::io::{self, Write};

use super::cgroup::CgroupNames;
use super::export::{Export, ExportFormat};
use super::format::Format;
use super::generations::since_mark;
use super::label::Label;
use super::leaks;
use super::map::{MapColor, process_maps, write_map_json, write_map_picture};
use super::metric::Metric;
use super::report::{ReportOptions, write_leaks, write_map, write_types, write_who};
use super::report_input::ReportInput;
use super::shown::ShownLanguages;
use super::timeline::{TimelineFormat, TimelineOptions, timeline, write_timeline};
use super::types::{self, write_types_json};
use super::who::{AskedAddress, Place, Who, find, write_who_json};
use crate::profile::{self, History, Recording, Symbols};

pub(crate) use super::filter::fuzz::filters;

/// Checks that names are parts of the path, and can be shortened.
pub(crate) fn cgroup(data: &[u8]) -> u64 {
    let path = String::from_utf8_lossy(data);
    let place = CgroupNames::of(&path);
    let mut seen = 0;
    if let Some(container) = &place.container {
        assert!(!container.runtime.is_empty() && container.id.len() <= path.len());
        assert!(container.id.starts_with(container.short()));
        seen = 1 + container.runtime.len() as u64;
    }
    for (bit, name) in [&place.pod, &place.unit, &place.slice]
        .into_iter()
        .enumerate()
    {
        if let Some(name) = name {
            assert!(name.len() <= path.len());
            seen |= 64 << bit;
        }
    }
    seen
}

/// A writer that counts bytes and looks for escape sequences.
#[derive(Default)]
struct Text {
    bytes: u64,
    is_unsafe: bool,
}

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes += bytes.len() as u64;
        self.is_unsafe |= bytes.contains(&0x1b);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Checks that the memory over time can be written in all forms.
fn timelines(input: &ReportInput<'_>, recording: &Recording, metric: Metric) {
    let none = History::default();
    let history = recording.history.as_ref().unwrap_or(&none);
    let snapshots = &recording.snapshots;
    let by = Label::ALL[snapshots.len() % Label::ALL.len()];
    let found = timeline(input, history, snapshots, metric, by, 3);
    for format in [
        TimelineFormat::Text,
        TimelineFormat::Svg,
        TimelineFormat::Csv,
        TimelineFormat::Json,
    ] {
        let options = TimelineOptions {
            color: false,
            unicode: snapshots.len().is_multiple_of(2),
            width: None,
        };
        let mut out = Text::default();
        assert!(write_timeline(input, &found, format, &options, &mut out).is_ok());
        assert!(out.bytes > 0 && !out.is_unsafe);
    }
}

/// The addresses whose owners are shown.
const ADDRESSES: [u64; 3] = [0x1000, 0x1024, u64::MAX];

/// Checks that the owners of addresses can be written in all forms. Returns how many addresses have one.
fn owners(input: &ReportInput<'_>, recording: &Recording) -> u64 {
    let Some(blocks) = &recording.blocks else {
        return 0;
    };
    let asked = ADDRESSES.map(|address| AskedAddress {
        address,
        name: String::new(),
        place: Place::Unknown,
        memory: vec![0x1b; 20],
    });
    let who = Who {
        blocks,
        core: None,
        owned: find(blocks, &asked, None),
    };
    let (mut text, mut json) = (Text::default(), Text::default());
    assert!(write_who(input, &who, &ReportOptions::default(), &mut text).is_ok());
    assert!(write_who_json(input, &who, &mut json).is_ok());
    assert!(!text.is_unsafe && !json.is_unsafe);
    1 + who.owned.iter().filter(|it| it.is_known()).count() as u64
}

/// Checks that types can be listed.
fn types_of(input: &ReportInput<'_>, options: &ReportOptions, by: Label) {
    let found = types::find(input, by, options.metric, Some(options.top));
    let mut out = Text::default();
    assert!(write_types(input, &found, options, &mut out).is_ok());
    assert!(write_types_json(input, &found, &mut out).is_ok());
    assert!(out.bytes > 0 && !out.is_unsafe);
}

/// Checks that memory maps can be written in all forms. Returns how many there are.
fn maps(input: &ReportInput<'_>, recording: &Recording) -> u64 {
    let Some(blocks) = &recording.blocks else {
        return 0;
    };
    let maps = process_maps(input, &blocks.processes, None);
    let (mut text, mut json) = (Text::default(), Text::default());
    assert!(write_map(input, &maps, &ReportOptions::default(), &mut text).is_ok());
    assert!(write_map_json(input, &maps, 3, &mut json).is_ok());
    assert!(!text.is_unsafe && !json.is_unsafe);
    for (map, color) in maps
        .iter()
        .zip([MapColor::Site, MapColor::Age, MapColor::Fullness])
    {
        let mut picture = Text::default();
        assert!(write_map_picture(input, map, color, &mut picture).is_ok());
        assert!(!picture.is_unsafe);
    }
    maps.len() as u64
}

/// Checks that every format can be written for any profile, without escape sequences.
pub(crate) fn reports(data: &[u8]) -> u64 {
    let file = profile::fuzz::framed(data);
    let options = profile::ReadOptions {
        from: data.last().filter(|it| **it < 64).map(|it| u64::from(*it)),
        with_history: true,
        ..profile::ReadOptions::default()
    };
    let Some(recording) = profile::fuzz::with_blocks(&file, options, &ADDRESSES) else {
        return 0;
    };
    let none = Symbols::default();
    let symbols = recording.symbols.as_ref().unwrap_or(&none);
    let languages = ShownLanguages::names();
    let shown = languages.get(data.len() % (languages.len() + 1));
    let shown = shown.and_then(|name| ShownLanguages::from_name(name));
    let input = ReportInput {
        warnings: &recording.warnings,
        shown: shown.unwrap_or_default(),
        with_types: data.len().is_multiple_of(3),
        ..ReportInput::new(&recording.profile, symbols)
    };
    let metric = Metric::ALL[data.len() % Metric::ALL.len()];
    let report = ReportOptions {
        metric,
        histogram: data.len().is_multiple_of(2),
        ..ReportOptions::default()
    };
    for by in [Label::Type, Label::Element] {
        types_of(&input, &report, by);
    }
    let mut seen = 1;
    for format in [
        Format::Text(report),
        Format::Json,
        Format::Flamegraph(metric),
    ] {
        let mut out = Text::default();
        if format.write(&input, &mut out).is_ok() {
            assert!(out.bytes > 0 && !out.is_unsafe);
            seen = seen * 32 + u64::from(out.bytes.ilog2());
        }
    }
    for format in ExportFormat::ALL {
        let mut out = Text::default();
        let export = Export {
            format,
            metric,
            is_compressed: false,
        };
        // heaptrack's file has a line for each block of the profile.
        if format != ExportFormat::Heaptrack && export.write(&input, &mut out).is_ok() {
            assert!(out.bytes > 0 && !out.is_unsafe);
            seen = seen * 2 + 1;
        }
    }
    timelines(&input, &recording, metric);
    seen += owners(&input, &recording);
    seen += maps(&input, &recording);
    let history = recording.history.clone().unwrap_or_default();
    let found = leaks::find(&input, &history, &leaks::Options::default());
    let (mut text, mut json) = (Text::default(), Text::default());
    assert!(write_leaks(&input, &found, &report, &mut text).is_ok());
    assert!(leaks::write_leaks_json(&input, &found, usize::MAX, &mut json).is_ok());
    assert!(!text.is_unsafe && !json.is_unsafe);
    seen = seen * 4 + found.generations.all.len().min(3) as u64;
    if let Some(mark) = recording.profile.marks.last() {
        let since = since_mark(recording.profile.clone(), mark.number);
        let input = ReportInput {
            since: Some(*mark),
            ..ReportInput::new(&since, symbols)
        };
        assert!(Format::Json.write(&input, &mut Text::default()).is_ok());
    }
    // A gzipped message, which may contain any byte.
    let _ = Format::Pprof.write(&input, &mut Text::default());
    seen
}
