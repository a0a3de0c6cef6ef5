//! A table of all sites, as comma-separated values, for spreadsheets and data frames.
//!
//! Stage: output.

use std::io::Write;

use crate::output::error::OutputError;
use crate::output::label::Label;
use crate::output::metric::Metric;
use crate::output::report_input::ReportInput;
use crate::output::stacks::Stacks;
use crate::text::escape;

/// The columns of the process, the thread and the kind of memory.
const CALLERS: [Label; 6] = [
    Label::Process,
    Label::Thread,
    Label::Kind,
    Label::Cgroup,
    Label::Container,
    Label::Unit,
];

/// Writes a row for each site, below a row with the names of the columns.
pub(super) fn write(input: &ReportInput<'_>, out: &mut dyn Write) -> Result<(), OutputError> {
    let numbers = Metric::ALL.map(|metric| metric.name().replace('-', "_"));
    let callers = CALLERS.map(Label::name).join(",");
    let numbers = numbers.map(|name| format!("{name},{name}_error")).join(",");
    writeln!(
        out,
        "pid,{callers},function,file,line,{numbers},stack,type,element"
    )?;
    let mut stacks = Stacks::new(input);
    for site in &input.profile.sites {
        let pid = input.process(site).map_or(0, |process| process.pid);
        write!(out, "{pid}")?;
        for label in CALLERS {
            let name = input.caller(site, label).unwrap_or_default();
            write!(out, ",{}", field(&escape(&name)))?;
        }
        let frames = input.stack(site.stack);
        let user = frames.get(input.user_frame(site.stack, &frames));
        let (function, file) = user.map_or_else(Default::default, |frame| {
            let file = escape(frame.file.unwrap_or_default()).into_owned();
            (frame.label(), file)
        });
        let line = user.map_or(0, |frame| frame.line);
        write!(out, ",{},{},{line}", field(&function), field(&file))?;
        for metric in Metric::ALL {
            let (value, error) = (metric.of(&site.totals), metric.error(&site.totals));
            write!(out, ",{value},{error}")?;
        }
        let node = stacks.inside_process(site);
        write!(out, ",{}", field(&stacks.folded(node)))?;
        for name in [input.type_name(site), input.element_name(site)] {
            write!(out, ",{}", field(&escape(name)))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// A text as a field. A spreadsheet would run a text that begins with one of some characters as a formula, and a process chooses its
/// own name, so such a text gets an apostrophe in front, as spreadsheets have it.
pub(in crate::output) fn field(text: &str) -> String {
    let guard = if text.starts_with(['=', '+', '-', '@']) {
        "'"
    } else {
        ""
    };
    if text.contains([',', '"', ' ']) {
        format!("\"{guard}{}\"", text.replace('"', "\"\""))
    } else {
        format!("{guard}{text}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a text can't end its field, and can't be a formula.
    #[test]
    fn fields_are_quoted() {
        for (text, expected) in [
            ("main", "main"),
            ("f(int, int)", "\"f(int, int)\""),
            ("operator\"\"_s", "\"operator\"\"\"\"_s\""),
            ("=cmd|x", "'=cmd|x"),
            ("-a,b", "\"'-a,b\""),
            ("", ""),
        ] {
            assert_eq!(field(text), expected);
        }
    }
}
