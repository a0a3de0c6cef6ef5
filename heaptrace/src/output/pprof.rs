//! The profile for pprof: gzipped `profile.proto`.
//!
//! Stage: output. Names are written unescaped; `go tool pprof` quotes them when it shows them.

use std::collections::HashMap;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message as _;

use super::error::OutputError;
use super::frame::StackFrame;
use super::label::{Label as By, kind_name};
use super::metric::Metric;
use super::module_ranges::{self, ModuleRange};
use super::proto::{Function, Label, Line, Location, Mapping, Profile, Sample, ValueType};
use super::rates::rates;
use super::report_input::{ReportInput, process_label};
use crate::join::{Kind, LocationId, ModuleId, Totals};
use crate::profile::Mode;
use crate::text;

/// Name and unit of a value, and its counter.
type Value = (&'static str, &'static str, fn(&Totals) -> u64);

/// The values of each sample. Readers that know pprof's own heap profiles find its four
/// at the same places; further ones are only appended.
const VALUES: [Value; 7] = [
    ("alloc_objects", "count", |it| it.allocations),
    ("alloc_space", "bytes", |it| it.allocated_bytes),
    ("inuse_objects", "count", |it| it.live_allocations),
    ("inuse_space", "bytes", |it| it.live_bytes),
    ("peak_space", "bytes", |it| it.peak_live_bytes),
    ("left_objects", "count", |it| it.left_allocations),
    ("left_space", "bytes", |it| it.left_bytes),
];

/// The values that pprof shows first, if any site has some: what is live, or what processes left when they ended, or
/// what was live at the peak.
const SHOWN_FIRST: [&str; 4] = ["inuse_space", "left_space", "peak_space", "alloc_space"];

/// Writes all sites, each with its allocated blocks and bytes, the live ones, and the bytes at the peak.
pub(super) fn write(input: &ReportInput<'_>, out: &mut dyn Write) -> Result<(), OutputError> {
    let profile = build(input);
    let mut encoder = GzEncoder::new(out, Compression::default());
    encoder.write_all(&profile.encode_to_vec())?;
    encoder.finish()?.flush()?;
    Ok(())
}

/// Builds the message, not yet encoded.
pub(super) fn build(input: &ReportInput<'_>) -> Profile {
    let mut builder = Builder {
        input,
        profile: Profile::default(),
        strings: HashMap::new(),
        mappings: HashMap::new(),
        locations: HashMap::new(),
        functions: HashMap::new(),
    };
    // The format requires that the empty string is first.
    builder.string("");
    builder.head();
    for (id, range) in module_ranges::of(input) {
        builder.mapping(id, range);
    }
    for site in &input.profile.sites {
        builder.sample(site);
    }
    builder.profile
}

struct Builder<'a> {
    input: &'a ReportInput<'a>,
    profile: Profile,
    strings: HashMap<String, i64>,
    /// The index of each module's mapping.
    mappings: HashMap<ModuleId, usize>,
    locations: HashMap<LocationId, u64>,
    functions: HashMap<(i64, i64), u64>,
}

impl Builder<'_> {
    fn head(&mut self) {
        let source = self.input.profile;
        for (name, unit, _) in VALUES {
            let value_type = self.value_type(name, unit);
            self.profile.sample_type.push(value_type);
        }
        self.profile.default_sample_type = self.string(self.shown_first());
        self.profile.period_type = Some(self.value_type("space", "bytes"));
        self.profile.period = match source.info.mode {
            Mode::Exact => 1,
            Mode::Sampled { mean_bytes } => signed(mean_bytes),
        };
        let begin = source.range.map_or(0, |range| range.from_ns);
        let started = source.info.started_unix_ns.saturating_add(begin);
        self.profile.time_nanos = signed(started);
        self.profile.duration_nanos = signed(source.duration_ns.saturating_sub(begin));
        let meaning = match source.info.mode {
            Mode::Exact => "every allocation was recorded",
            Mode::Sampled { .. } => "values are estimates",
        };
        let mode = format!("{}: {meaning}", source.chosen());
        let mut comments = vec![
            format!("heaptrace {}, {mode}", source.info.version),
            format!("target: {}", source.info.target),
            format!("kernel: {}", source.info.kernel),
        ];
        if source.info.mode.is_sampled() {
            comments.extend(Metric::ALL.map(|metric| {
                let (value, error) = (metric.of(&source.totals), metric.error(&source.totals));
                format!("{}: {value}, standard error {error}", metric.title())
            }));
            comments.extend(rates(source).iter().skip(1).map(|stretch| {
                format!(
                    "rate from {} to {}: one in {} bytes, {}",
                    text::duration(stretch.from_ns),
                    text::duration(stretch.to_ns),
                    stretch.mean_bytes,
                    stretch
                        .process
                        .map_or_else(|| "all others".to_owned(), process_label)
                )
            }));
        }
        comments.extend(
            source
                .quality
                .lost
                .iter()
                .filter(|(_, count)| **count > 0)
                .map(|(reason, count)| format!("lost ({reason}): {count}")),
        );
        comments.extend(self.input.warnings.iter().cloned());
        comments.extend(self.input.only());
        for comment in comments {
            // pprof prints comments unescaped.
            let comment = self.string(&text::escape(&comment));
            self.profile.comment.push(comment);
        }
    }

    /// The name of the first values of [`SHOWN_FIRST`] that are not all zero.
    fn shown_first(&self) -> &'static str {
        let sites = &self.input.profile.sites;
        let is_there = |name: &str| {
            let value = VALUES.iter().find(|value| value.0 == name);
            value.is_some_and(|(_, _, of)| sites.iter().any(|site| of(&site.totals) > 0))
        };
        let found = SHOWN_FIRST.into_iter().find(|name| is_there(name));
        found.unwrap_or(SHOWN_FIRST[0])
    }

    fn sample(&mut self, site: &crate::join::Site) {
        let value = VALUES.map(|(_, _, of)| signed(of(&site.totals))).to_vec();
        if value.iter().all(|value| *value == 0) {
            return;
        }
        let mut label = Vec::new();
        if let Some(process) = self.input.process(site) {
            label.push(Label {
                key: self.string("pid"),
                str: 0,
                num: process.pid.into(),
            });
            if site.kind == Kind::Mapped {
                label.push(Label {
                    key: self.string(By::Kind.name()),
                    str: self.string(kind_name(site.kind)),
                    num: 0,
                });
            }
            let types = [By::Type, By::Element].into_iter();
            let types = types.filter(|_| self.input.has_types());
            let callers = [By::Thread, By::Process, By::Cgroup, By::Container, By::Unit];
            for kind in callers.into_iter().chain(types) {
                if let Some(name) = self.input.caller(site, kind) {
                    label.push(Label {
                        key: self.string(kind.name()),
                        str: self.string(&text::escape(&name)),
                        num: 0,
                    });
                }
            }
        }
        let location_id = self
            .input
            .locations(site.stack)
            .iter()
            .map(|location| self.location(*location))
            .collect();
        self.profile.sample.push(Sample {
            location_id,
            value,
            label,
        });
    }

    fn location(&mut self, id: LocationId) -> u64 {
        if let Some(known) = self.locations.get(&id) {
            return *known;
        }
        let source = self.input.profile.locations.get(id.0 as usize);
        let frames = self.input.frames(id);
        let offset = frames.first().map_or(0, |frame| frame.address);
        let mapping = source
            .and_then(|location| location.module)
            .and_then(|module| self.mappings.get(&module).copied());
        let number = self.profile.location.len() as u64 + 1;
        let mut location = Location {
            id: number,
            mapping_id: 0,
            address: offset,
            line: Vec::new(),
        };
        if let Some(mapping) = mapping.and_then(|index| self.profile.mapping.get_mut(index)) {
            location.mapping_id = mapping.id;
            location.address = mapping
                .memory_start
                .saturating_add(offset.saturating_sub(mapping.file_offset));
            for frame in &frames {
                mapping.has_functions |= frame.function.is_some();
                mapping.has_filenames |= frame.file.is_some();
                mapping.has_line_numbers |= frame.line > 0;
                mapping.has_inline_frames |= frame.inlined;
            }
        }
        location.line = frames.iter().filter_map(|frame| self.line(frame)).collect();
        self.profile.location.push(location);
        self.locations.insert(id, number);
        number
    }

    fn line(&mut self, frame: &StackFrame<'_>) -> Option<Line> {
        // pprof shows an address in place of a missing name, and only machine code has one.
        let name = match frame.language {
            None => self.string(frame.function?),
            Some(_) => self.string(&frame.name()),
        };
        // pprof takes a name that equals the system's name for C++, and cuts `<module>` and `f.<locals>` out of it.
        let system_name = if frame.language.is_none() { name } else { 0 };
        let filename = self.string(frame.file.unwrap_or_default());
        let next = self.profile.function.len() as u64 + 1;
        let function_id = *self.functions.entry((name, filename)).or_insert(next);
        if function_id == next {
            self.profile.function.push(Function {
                id: next,
                name,
                system_name,
                filename,
            });
        }
        Some(Line {
            function_id,
            line: frame.line.into(),
        })
    }

    /// Adds the mapping of a module.
    fn mapping(&mut self, id: ModuleId, range: ModuleRange) {
        let Some(module) = self.input.profile.modules.get(id.0 as usize) else {
            return;
        };
        self.mappings.insert(id, self.profile.mapping.len());
        let build_id: String = module
            .build_id
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let mapping = Mapping {
            id: self.profile.mapping.len() as u64 + 1,
            memory_start: range.start,
            memory_limit: range.end,
            file_offset: range.offset,
            filename: self.string(&text::escape(&module.path)),
            build_id: self.string(&build_id),
            ..Mapping::default()
        };
        self.profile.mapping.push(mapping);
    }

    fn value_type(&mut self, name: &str, unit: &str) -> ValueType {
        ValueType {
            r#type: self.string(name),
            unit: self.string(unit),
        }
    }

    fn string(&mut self, text: &str) -> i64 {
        if let Some(index) = self.strings.get(text) {
            return *index;
        }
        let index = self.profile.string_table.len() as i64;
        self.profile.string_table.push(text.to_owned());
        self.strings.insert(text.to_owned(), index);
        index
    }
}

/// Converts to pprof's signed numbers; larger values saturate.
fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
