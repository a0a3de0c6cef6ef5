//! A condition: a key, and the names or numbers that it must have.
//!
//! Stage: output. Tests frames, processes and sites one by one. Must not know profiles.

use std::fmt;

use super::key::{Key, Scope};
use super::lexer::written;
use super::pattern::Pattern;
use super::range::Range;
use crate::join::{Kind, Process, Totals};
use crate::output::cgroup::CgroupNames;
use crate::output::frame::StackFrame;
use crate::output::function_name::bare;
use crate::output::label::{Label, kind_name};
use crate::output::readable::readable;
use crate::output::shown::ShownLanguages;
use crate::profile::{BlockCondition, BlockNumber};
use crate::text::file_name;
use crate::units;

/// A condition, as `function=main`.
#[derive(Clone, Debug)]
pub(in crate::output) struct Condition {
    key: Key,
    test: Test,
    /// As it is read again.
    text: String,
}

#[derive(Clone, Debug)]
enum Test {
    /// A name matches.
    Name(Pattern),
    /// A number is in the range.
    Number(Range),
    /// A line of a file is in the range.
    Line(Pattern, Range),
}

/// What a condition on a site is tested with.
#[derive(Clone, Copy, Debug)]
pub(in crate::output) struct SiteNumbers<'a> {
    pub(in crate::output) kind: Kind,
    /// The name of its thread, if it was recorded.
    pub(in crate::output) thread: Option<&'a str>,
    /// The names of its type and of its elements, or what stands for them.
    pub(in crate::output) block_type: &'a str,
    pub(in crate::output) element: &'a str,
    pub(in crate::output) totals: &'a Totals,
}

impl PartialEq for Condition {
    fn eq(&self, other: &Self) -> bool {
        (self.key, &self.text) == (other.key, &other.text)
    }
}

impl Eq for Condition {}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Condition {
    /// The functions that match a glob.
    pub(in crate::output) fn of_function(glob: &str) -> Self {
        let key = Key::Function;
        Self {
            key,
            test: Test::Name(Pattern::glob(glob)),
            text: format!("{}={}", key.name(), written(glob)),
        }
    }

    /// The condition that compares a key with a value. The operator is none that negates. The error says what is wrong with the value.
    pub(super) fn new(key: Key, operator: &str, value: &str) -> Result<Self, String> {
        let name = key.name();
        if value.is_empty() {
            return Err(match key.is_name() {
                true => format!("the pattern is empty; write it as {name}=GLOB"),
                false if key == Key::Size => {
                    format!("the number is empty; write it as {name}>=1KiB")
                }
                false => format!("the number is empty; write it as {name}>=30s"),
            });
        }
        Ok(Self {
            key,
            test: Test::new(key, operator, value)?,
            text: format!("{name}{operator}{}", written(value)),
        })
    }

    /// What has to be known to test it.
    pub(in crate::output) fn scope(&self) -> Scope {
        self.key.scope()
    }

    /// Whether it needs symbols.
    pub(super) fn is_named(&self) -> bool {
        self.key.is_named()
    }

    /// Whether it is about the size of blocks.
    pub(super) fn is_size(&self) -> bool {
        self.key == Key::Size
    }

    /// What it asks of a single block: its age, its time, or its size.
    pub(in crate::output) fn of_block(&self) -> Option<BlockCondition> {
        let number = match self.key {
            Key::Age => BlockNumber::Age,
            Key::Time => BlockNumber::Time,
            Key::Size => BlockNumber::Size,
            _ => return None,
        };
        match &self.test {
            Test::Number(range) => Some(BlockCondition {
                number,
                range: range.ends(),
            }),
            Test::Name(_) | Test::Line(..) => None,
        }
    }

    /// Whether it is about the type of blocks.
    pub(super) fn is_type(&self) -> bool {
        matches!(self.key, Key::Type | Key::Element)
    }

    /// Whether it is about the name of the thread.
    pub(super) fn is_thread(&self) -> bool {
        self.key == Key::Thread
    }

    /// Whether a process matches. A container matches also by its full id and by its runtime.
    pub(in crate::output) fn matches_process(&self, process: &Process) -> bool {
        let pattern = match &self.test {
            Test::Number(range) => return range.contains(process.pid.into(), 1),
            Test::Name(pattern) | Test::Line(pattern, _) => pattern,
        };
        let is = |name: &str| !name.is_empty() && pattern.matches(name);
        match self.key {
            Key::Pid => is(&process.pid.to_string()),
            Key::Container => CgroupNames::of(&process.cgroup)
                .container
                .is_some_and(|it| is(&it.id) || is(it.short()) || is(it.runtime)),
            key => {
                let name = key.label().and_then(|label| label.of_process(process));
                name.is_some_and(|name| is(&name))
            }
        }
    }

    /// Whether a site matches.
    pub(in crate::output) fn matches_site(&self, site: &SiteNumbers<'_>) -> bool {
        match (&self.test, self.key) {
            (Test::Name(pattern), Key::Thread) => {
                site.thread.is_some_and(|name| pattern.matches(name))
            }
            (Test::Name(pattern), Key::Type) => pattern.matches(site.block_type),
            (Test::Name(pattern), Key::Element) => pattern.matches(site.element),
            (Test::Name(pattern), _) => pattern.matches(kind_name(site.kind)),
            // A site has only sums, so this is the mean of its blocks. In a part of a run, it may have older blocks alone.
            (Test::Number(range), _) => {
                let all = &site.totals;
                let sums = [
                    (all.allocated_bytes, all.allocations),
                    (all.live_bytes, all.live_allocations),
                    (all.left_bytes, all.left_allocations),
                    (all.freed_bytes, all.frees),
                ];
                let (bytes, blocks) = sums.into_iter().find(|it| it.1 > 0).unwrap_or_default();
                range.contains(bytes, blocks)
            }
            (Test::Line(..), _) => false,
        }
    }

    /// Whether a frame matches. It matches also by a function's name as reports show it, without a function's parameters or a path's
    /// folders, and a program by the name that started it.
    pub(in crate::output) fn matches_frame(&self, frame: &StackFrame<'_>) -> bool {
        let is_in = |lines: &Range| frame.line > 0 && lines.contains(frame.line.into(), 1);
        match (&self.test, self.key) {
            (Test::Number(lines), _) => is_in(lines),
            (Test::Line(file, lines), _) => is_in(lines) && in_file(file, frame),
            (Test::Name(file), Key::File) => in_file(file, frame),
            (Test::Name(pattern), key) => {
                let Some(label) = key.label() else {
                    return false;
                };
                let Some(name) = label.of_frame(frame) else {
                    return false;
                };
                pattern.matches(&name) || by_other_names(label, &name, pattern, frame)
            }
        }
    }
}

fn by_other_names(label: Label, name: &str, pattern: &Pattern, frame: &StackFrame<'_>) -> bool {
    match label {
        Label::Function if frame.language.is_none() => {
            let shown = readable(name);
            let names = [bare(name), &shown, bare(&shown)];
            names.iter().any(|name| pattern.matches(name))
        }
        Label::Line => pattern.matches(file_name(name)),
        Label::Module => {
            let started_as = frame.module.map_or("", |module| module.name());
            pattern.matches(file_name(name)) || pattern.matches(started_as)
        }
        _ => false,
    }
}

fn in_file(pattern: &Pattern, frame: &StackFrame<'_>) -> bool {
    let is = |path: &str| pattern.matches(path) || pattern.matches(file_name(path));
    frame.file.is_some_and(is)
}

impl Test {
    fn new(key: Key, operator: &str, value: &str) -> Result<Self, String> {
        let name = key.name();
        match operator {
            "~" if key.is_name() => Ok(Self::Name(Pattern::regex(value)?)),
            "~" => Err(format!(
                "`{name}` is a number; compare it with =, <, <=, > or >="
            )),
            "=" => Self::equal(key, value),
            _ if key.is_number() => Ok(Self::Number(Range::of(operator, number(key, value)?))),
            _ => Err(format!(
                "`{name}` is a name; compare it with = (a glob) or ~ (a regular expression)"
            )),
        }
    }

    fn equal(key: Key, value: &str) -> Result<Self, String> {
        let range = |text: &str| Range::parse(text, |text| number(key, text));
        match key {
            Key::Size | Key::Age | Key::Time => range(value).map(Self::Number),
            Key::Line | Key::Pid => {
                let is_digit = |it: char| it.is_ascii_digit() || it == '.';
                match range(value) {
                    Ok(range) => return Ok(Self::Number(range)),
                    // `10..5`
                    Err(why) if value.contains("..") && value.chars().all(is_digit) => {
                        return Err(why);
                    }
                    Err(_) => {}
                }
                // `pool.c:10..20`; `pool.c:10` is a name.
                let parts = value.rsplit_once(':');
                let parts = parts.filter(|(file, lines)| !file.is_empty() && lines.contains(".."));
                let lines = parts.filter(|_| key == Key::Line);
                match lines.map(|(file, lines)| (file, range(lines))) {
                    Some((file, Ok(lines))) => Ok(Self::Line(Pattern::glob(file), lines)),
                    Some((_, Err(why))) => Err(why),
                    None => Ok(Self::Name(Pattern::glob(value))),
                }
            }
            Key::Kind => Self::one_of(value, &[Kind::Heap, Kind::Mapped].map(kind_name)),
            Key::Language => Self::one_of(value, &ShownLanguages::names()),
            _ => Ok(Self::Name(Pattern::glob(value))),
        }
    }

    /// A glob that matches one of these names: any other one would be a mistake.
    fn one_of(value: &str, names: &[&str]) -> Result<Self, String> {
        let pattern = Pattern::glob(value);
        match names.iter().any(|name| pattern.matches(name)) {
            true => Ok(Self::Name(pattern)),
            false => Err(format!(
                "there is no `{value}`; use one of {}",
                names.join(", ")
            )),
        }
    }
}

fn number(key: Key, text: &str) -> Result<u64, String> {
    let text = text.trim();
    match key {
        Key::Size => units::size(text),
        Key::Age | Key::Time => {
            let time = units::time(text)?;
            u64::try_from(time.as_nanos()).map_err(|_| "that time is too long".to_owned())
        }
        _ => text
            .parse()
            .map_err(|_| format!("`{text}` is no whole number")),
    }
}
