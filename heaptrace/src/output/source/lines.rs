//! The memory that lines of source files allocate, themselves or by what they call.
//!
//! Stage: output. Must not know how lines are shown.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::join::{StackId, Totals};
use crate::output::metric::Metric;
use crate::output::report_input::ReportInput;
use crate::output::sum::add;

/// A source file that allocates.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// Its path, as the compiler or the interpreter wrote it.
    pub path: String,
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
    /// Whether it allocates itself.
    pub is_own: bool,
}

/// The source files whose lines allocate most themselves, and how many there are.
pub fn source_files(
    input: &ReportInput<'_>,
    metric: Metric,
    top: usize,
) -> (Vec<SourceFile>, usize) {
    let mut files = HashMap::<&str, SourceFile>::new();
    for (stack, totals) in by_stack(input) {
        let frames = input.stack(stack);
        let user = input.user_frame(stack, &frames);
        let mut met = HashSet::new();
        for (at, frame) in frames.iter().enumerate().skip(user) {
            let (Some(path), 1..) = (frame.file, frame.line) else {
                continue;
            };
            // A recursive function counts its memory once.
            if !met.insert((path, frame.line)) {
                continue;
            }
            let file = files.entry(path).or_insert_with(|| SourceFile {
                path: path.to_owned(),
                totals: Totals::default(),
                lines: BTreeMap::new(),
            });
            let line = file.lines.entry(frame.line).or_default();
            if line.function.is_empty() {
                line.function = frame.name().into_owned();
            }
            add(&mut line.totals, &totals);
            if at == user {
                line.is_own = true;
                add(&mut file.totals, &totals);
            }
        }
    }
    let mut files: Vec<SourceFile> = files.into_values().collect();
    files.retain(|file| metric.rank(&file.totals) > 0);
    files.sort_by(|a, b| {
        let ranks = metric.rank(&b.totals).cmp(&metric.rank(&a.totals));
        ranks.then_with(|| a.path.cmp(&b.path))
    });
    let all = files.len();
    files.truncate(top);
    (files, all)
}

/// The totals of each stack, of all processes and threads.
fn by_stack(input: &ReportInput<'_>) -> BTreeMap<StackId, Totals> {
    let mut stacks = BTreeMap::<StackId, Totals>::new();
    for site in &input.profile.sites {
        add(stacks.entry(site.stack).or_default(), &site.totals);
    }
    stacks
}
