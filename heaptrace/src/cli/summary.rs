//! The end of a live run on a terminal: a summary of one screen, with the path to more.
//!
//! Part of the command line. Must not know how the table looks: the view stage does.

use std::io::{self, Write as _};

use super::invocation::Ranking;
use crate::output::{self, Grouping, ReportInput};
use crate::text;
use crate::view::{self, Line, Rows, Table};

/// The number of rows if the user did not choose one.
const ROWS: usize = 5;

/// Prints the summary on standard output. `target`: the arguments that name the target.
pub(super) fn print(
    input: ReportInput<'_>,
    ranking: Ranking,
    target: &str,
    is_colored: bool,
) -> io::Result<()> {
    let width = view::size_of(&io::stdout()).map(|size| size.columns);
    let mut text = String::new();
    for line in lines(input, ranking, target, width) {
        let line = if is_colored {
            line.colored()
        } else {
            line.text
        };
        text.push_str(&line);
        text.push('\n');
    }
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

fn lines(
    input: ReportInput<'_>,
    ranking: Ranking,
    target: &str,
    width: Option<usize>,
) -> Vec<Line> {
    let profile = input.profile;
    let metric = ranking.metric(profile);
    let top = ranking.top.unwrap_or(ROWS);
    let (sites, groups, all);
    let rows = match ranking.grouping(profile) {
        None => {
            let ranked = view::ranked(profile, metric, usize::MAX);
            all = ranked.len();
            sites = ranked;
            Rows::Sites(sites.get(..top).unwrap_or(&sites))
        }
        Some(grouping) => {
            let grouping = Grouping {
                // The table has a single column for each kind of number.
                cumulative: false,
                top: Some(top),
                ..grouping
            };
            (groups, all) = output::groups(&input, grouping);
            Rows::Groups(grouping.by, &groups)
        }
    };
    let table = Table {
        input,
        rows,
        metric,
    };
    let mut lines = table.lines(width);
    if all > top {
        lines.push(format!("  … and {} more", text::count((all - top) as u64)).into());
    }
    lines.push(Line::default());
    lines.push(quality(input).into());
    lines.push(
        format!("More: --details prints the full report at the end; `heaptrace record {target}`")
            .into(),
    );
    for line in [
        "keeps the run in a file, for `heaptrace report`, `flamegraph` and `pprof`.",
        "With --interval 10s, `report --at 20s` and `--at 60s` tell a leak from a cache.",
    ] {
        lines.push(line.to_owned().into());
    }
    lines
}

/// How far the numbers can be trusted, in one line.
fn quality(input: ReportInput<'_>) -> String {
    let profile = input.profile;
    let quality = &profile.quality;
    let whole = match quality.stacks() {
        0 => String::new(),
        all => format!(
            ", {} whole stacks",
            text::share(quality.stacks_complete, all)
        ),
    };
    let lost = match quality.lost.values().all(|count| *count == 0) {
        true => "nothing lost",
        false => "SOME LOST",
    };
    format!(
        "Quality: {lost}{whole}; heaptrace's own cost: {} of CPU time",
        text::duration(quality.agent_cpu_ns)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::{Completeness, Process, ProcessId, Site, Stack, StackId, Totals};
    use crate::output::Label;
    use crate::profile::{Profile, RunInfo, Symbols};

    /// Check that the summary of a run with hundreds of sites fits a small terminal, with the way to more.
    #[test]
    fn summaries_fit_a_screen() {
        let mut profile = Profile::new(RunInfo::exact("--pid 7"));
        profile.processes.push(Process::default());
        profile.stacks.push(Stack {
            locations: Vec::new(),
            completeness: Completeness::Complete,
        });
        for live_bytes in 1..=300 {
            profile.sites.push(Site {
                totals: Totals {
                    live_bytes,
                    ..Totals::default()
                },
                ..Site::of_heap(ProcessId(0), StackId(0), crate::join::SiteId(0))
            });
        }
        profile.quality.lost.insert("ring full".into(), 3);
        let symbols = Symbols::default();
        for by in [None, Some(Label::Function)] {
            let ranking = Ranking {
                by,
                metric: None,
                top: None,
                details: false,
                histogram: false,
            };
            let input = ReportInput::new(&profile, &symbols);
            let lines = lines(input, ranking, "--pid 7", Some(80));
            assert!(lines.len() <= 24, "{lines:?}");
            let text: Vec<_> = lines.iter().map(|it| it.text.as_str()).collect();
            let text = text.join("\n");
            assert_eq!(text.contains("… and 295 more"), by.is_none(), "{text}");
            for words in ["SOME LOST", "--details", "heaptrace record --pid 7"] {
                assert!(text.contains(words), "{text}");
            }
            assert!(text.lines().all(|it| it.chars().count() <= 80), "{text}");
        }
    }
}
