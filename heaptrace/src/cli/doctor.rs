//! `heaptrace doctor`: the machine's checks, one a line, and the allocators of processes.
//!
//! Part of the command line, no stage of the flow. Only shows: what is checked is decided in
//! `probes/machine.rs`, what is found in `probes/allocators/`.

use std::io::{self, Write};
use std::process::ExitCode;

use super::Color;
use crate::config::NamedAllocator;
use crate::doctor::{self, Check, Verdict};
use crate::probes::allocators::{self, Effort, Found, LookFor, MAPPINGS_KIND};
use crate::reader::{Budget, Limits, Reader};
use crate::text;

pub(super) fn run(
    pids: &[u32],
    named: &[NamedAllocator],
    color: Color,
) -> anyhow::Result<ExitCode> {
    let wanted = LookFor {
        named,
        mappings: true,
    };
    // First, as they may end while the machine is looked at.
    let mut reader = Reader::new(&Budget::default(), Limits::default());
    let found: Vec<_> = pids
        .iter()
        .map(|pid| allocators::of_process(&mut reader, *pid, wanted, Effort::Thorough, |_| false))
        .collect();
    let checks = doctor::examine();
    let mut out = io::stdout().lock();
    write(&mut out, &checks, color.for_stream(&io::stdout()))?;
    let mut has_all = true;
    for (pid, found) in pids.iter().zip(found) {
        has_all &= found.as_ref().is_ok_and(|it| !it.allocators.is_empty());
        process(&mut out, *pid, found)?;
    }
    out.flush()?;
    Ok(if can_trace(&checks) && has_all {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn can_trace(checks: &[Check]) -> bool {
    checks.iter().all(|check| check.verdict != Verdict::NotOk)
}

fn write(out: &mut impl Write, checks: &[Check], color: bool) -> io::Result<()> {
    let width = checks
        .iter()
        .map(|check| check.name.len())
        .max()
        .unwrap_or(0);
    for check in checks {
        let (word, paint) = match check.verdict {
            Verdict::Ok => ("ok", "\x1b[32m"),
            Verdict::Warn => ("warn", "\x1b[33m"),
            Verdict::NotOk => ("not ok", "\x1b[31m"),
        };
        let (paint, plain) = if color { (paint, "\x1b[0m") } else { ("", "") };
        writeln!(
            out,
            "{paint}{word:<6}{plain}  {:width$}  {}",
            check.name,
            text::escape(&check.found)
        )?;
        // Below what was found, so that a command can be copied from a line of its own.
        for line in check.advice.lines() {
            writeln!(out, "{:8}{:width$}  -> {}", "", "", text::escape(line))?;
        }
    }
    let end = if can_trace(checks) {
        "heaptrace can trace on this machine, with these rights."
    } else {
        "heaptrace can't trace: see each line that says `not ok`."
    };
    writeln!(out, "\n{end}")
}

/// What of a process can be traced.
fn process(out: &mut impl Write, pid: u32, found: io::Result<Found>) -> io::Result<()> {
    writeln!(out, "\nprocess {pid}")?;
    let found = match found {
        Ok(found) => found,
        Err(error) => return writeln!(out, "  its mappings can't be read: {error}"),
    };
    for allocator in &found.allocators {
        let path = text::escape(&allocator.path);
        for kind in allocator.kinds() {
            let when = if kind == MAPPINGS_KIND {
                "with --mmap "
            } else {
                ""
            };
            writeln!(out, "  {kind} in {path}, {when}probed at")?;
            for place in allocator.places.iter().filter(|place| place.kind == kind) {
                let names: Vec<_> = place.names.iter().map(|name| text::escape(name)).collect();
                let names = names.join(", ");
                writeln!(out, "    {names}  {:#x}{}", place.offset, place.placed)?;
            }
        }
        if !allocator.rets.is_empty() {
            let count = allocator.rets.len();
            writeln!(
                out,
                "    and at {count} return instructions of functions that may throw"
            )?;
        }
        for note in &allocator.notes {
            writeln!(out, "    {}", text::escape(note))?;
        }
    }
    for unprobed in &found.unprobed {
        writeln!(out, "  not traced: {}", text::escape(&unprobed.to_string()))?;
    }
    if found.allocators.is_empty() && found.unprobed.is_empty() {
        writeln!(
            out,
            "  no allocator that heaptrace knows is mapped; --allocator PATH[:PREFIX] names another"
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(verdict: Verdict, found: &str, advice: &str) -> Check {
        Check {
            name: "tracefs",
            verdict,
            found: found.into(),
            advice: advice.into(),
        }
    }

    fn written(checks: &[Check], color: bool) -> String {
        let mut out = Vec::new();
        write(&mut out, checks, color).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// Check that only `not ok` stands in the way, and that the closing line says which it is.
    #[test]
    fn verdicts() {
        let warn = check(Verdict::Warn, "few", "raise it");
        let bad = check(Verdict::NotOk, "none", "mount it\nor not");
        assert!(can_trace(std::slice::from_ref(&warn)));
        assert!(!can_trace(&[warn.clone(), bad.clone()]));
        assert!(written(std::slice::from_ref(&warn), false).contains("can trace"));
        let text = written(&[warn, bad], false);
        assert!(text.contains("not ok  tracefs  none\n"), "{text}");
        assert!(text.contains("-> mount it\n") && text.contains("-> or not\n"));
        assert!(text.contains("can't trace"));
    }

    /// Check that there is no escape sequence without color, whatever was found.
    #[test]
    fn escapes() {
        let hostile = [check(Verdict::Ok, "a\x1b[2Jb", "")];
        assert!(!written(&hostile, false).contains('\x1b'));
        assert!(written(&hostile, true).contains("\x1b[32mok"));
        assert!(!written(&hostile, true).contains("\x1b[2J"));
    }
}
