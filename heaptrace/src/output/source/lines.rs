//! The memory that lines of source files allocate, themselves or by what they call.
//!
//! Stage: output. Must not know how lines are shown.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

use crate::join::{Language, StackId, Totals};
use crate::output::filter::Condition;
use crate::output::frame::StackFrame;
use crate::output::glob::Glob;
use crate::output::metric::Metric;
use crate::output::report_input::ReportInput;
use crate::output::sum::Sum;
use crate::text::file_name;

/// A source file that allocates.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// Its path, as the compiler or the interpreter wrote it; for Java that of its package.
    pub path: String,
    /// The build of the file with its machine code, if there is one.
    pub build_id: Vec<u8>,
    /// What its lines allocate themselves.
    pub totals: Totals,
    /// Its lines with memory.
    pub lines: BTreeMap<u32, SourceLine>,
}

/// A line with memory.
#[derive(Clone, Debug, Default)]
pub struct SourceLine {
    /// The function that it is in.
    pub function: String,
    /// What it allocates, itself or by what it calls.
    pub totals: Totals,
    /// What it allocates itself.
    pub own: Totals,
    /// Whether it allocates itself.
    pub is_own: bool,
}

/// The files or functions whose lines are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceChoice {
    file: Glob,
    function: Condition,
}

impl SourceChoice {
    /// The files and functions that match a pattern.
    pub fn new(pattern: &str) -> Self {
        Self {
            file: Glob::new(pattern),
            function: Condition::of_function(pattern),
        }
    }

    fn has(&self, path: &str, frame: &StackFrame<'_>) -> bool {
        self.file.matches(path)
            || self.file.matches(file_name(path))
            || self.function.matches_frame(frame)
    }
}

/// The source files whose lines allocate most themselves, and how many there are. With a choice, files that only call what allocates
/// are among them.
pub fn source_files(
    input: &ReportInput<'_>,
    metric: Metric,
    top: usize,
    choice: Option<&SourceChoice>,
) -> (Vec<SourceFile>, usize) {
    let mut files = HashMap::<Cow<'_, str>, Sums>::new();
    for (stack, totals) in by_stack(input) {
        let frames = input.stack(stack);
        let user = input.user_frame(stack, &frames);
        let mut met = HashSet::new();
        for (at, frame) in frames.iter().enumerate().skip(user) {
            let (Some(path), 1..) = (path_of(frame), frame.line) else {
                continue;
            };
            if choice.is_some_and(|it| !it.has(&path, frame)) {
                continue;
            }
            // A recursive function counts its memory once.
            if !met.insert((path.clone(), frame.line)) {
                continue;
            }
            let sums = files.entry(path).or_insert_with_key(|path| Sums {
                file: SourceFile {
                    path: path.clone().into_owned(),
                    build_id: frame.module.map_or(Vec::new(), |it| it.build_id.clone()),
                    totals: Totals::default(),
                    lines: BTreeMap::new(),
                },
                own: Sum::default(),
                of_lines: BTreeMap::new(),
            });
            let line = sums.file.lines.entry(frame.line).or_default();
            if line.function.is_empty() {
                line.function = frame.name().into_owned();
            }
            let [of_line, own] = sums.of_lines.entry(frame.line).or_default();
            of_line.add(&totals);
            if at == user {
                line.is_own = true;
                own.add(&totals);
                sums.own.add(&totals);
            }
        }
    }
    let mut files: Vec<SourceFile> = files.into_values().map(Sums::finished).collect();
    let has_some = |file: &SourceFile| {
        let mut lines = file.lines.values();
        metric.rank(&file.totals) > 0
            || choice.is_some() && lines.any(|line| metric.rank(&line.totals) > 0)
    };
    files.retain(has_some);
    files.sort_by(|a, b| {
        let ranks = metric.rank(&b.totals).cmp(&metric.rank(&a.totals));
        ranks.then_with(|| a.path.cmp(&b.path))
    });
    let all = files.len();
    files.truncate(top);
    (files, all)
}

/// A file while stacks are added.
struct Sums {
    file: SourceFile,
    own: Sum,
    /// The totals of each line, and its own ones.
    of_lines: BTreeMap<u32, [Sum; 2]>,
}

impl Sums {
    fn finished(mut self) -> SourceFile {
        self.file.totals = self.own.totals();
        for (line, [totals, own]) in self.file.lines.values_mut().zip(self.of_lines.values()) {
            (line.totals, line.own) = (totals.totals(), own.totals());
        }
        self.file
    }
}

/// The path of a frame's source file. The runtime of Java knows only a file's name: its folders are those of its package.
fn path_of<'a>(frame: &StackFrame<'a>) -> Option<Cow<'a, str>> {
    let file = frame.file?;
    if frame.language != Some(Language::Java) || file.contains('/') {
        return Some(file.into());
    }
    let class = frame.function.and_then(|it| it.rsplit_once('.'));
    let package = class.and_then(|(class, _)| class.rsplit_once('.'));
    Some(match package {
        Some((package, _)) => format!("{}/{file}", package.replace('.', "/")).into(),
        None => file.into(),
    })
}

/// The totals of each stack, of all processes and threads.
fn by_stack(input: &ReportInput<'_>) -> BTreeMap<StackId, Totals> {
    let mut stacks = BTreeMap::<StackId, Sum>::new();
    for site in &input.profile.sites {
        stacks.entry(site.stack).or_default().add(&site.totals);
    }
    let stacks = stacks.into_iter();
    stacks.map(|(stack, sum)| (stack, sum.totals())).collect()
}
