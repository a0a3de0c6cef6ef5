//! `heaptrace doctor`: prints the checks of the machine, one a line, and the allocators of processes.
//!
//! Part of the command line. Only prints: the checks are in `doctor/`, and the search for allocators is in
//! `probes/allocators/`.

use std::collections::HashSet;
use std::io::{self, Write};
use std::process::ExitCode;

use super::Color;
use crate::config::NamedAllocator;
use crate::doctor::{self, Check, Verdict};
use crate::probes::allocators::{self, Effort, Found, LookFor, MAPPINGS_KIND};
use crate::probes::fast::plan::Unplanned;
use crate::probes::fast::survey::{Survey, survey};
use crate::reader::{Budget, Limits, Reader};
use crate::text;

/// Most functions of a file that are named because they have no fast path.
const MOST_NAMES: usize = 6;

pub(super) fn run(
    pids: &[u32],
    named: &[NamedAllocator],
    color: Color,
) -> anyhow::Result<ExitCode> {
    let wanted = LookFor {
        named,
        mappings: true,
    };
    // Processes first, because they may end while the machine is examined.
    let mut reader = Reader::new(&Budget::default(), Limits::default());
    let found: Vec<_> = pids
        .iter()
        .map(|pid| {
            let found = allocators::of_process(
                &mut reader,
                *pid,
                wanted,
                Effort::Thorough,
                &mut HashSet::new(),
            )?;
            let fast = survey(&mut reader, *pid, &found);
            Ok((found, fast))
        })
        .collect();
    let checks = doctor::examine();
    let mut out = io::stdout().lock();
    write(&mut out, &checks, color.for_stream(&io::stdout()))?;
    let mut has_all = true;
    for (pid, found) in pids.iter().zip(found) {
        has_all &= found
            .as_ref()
            .is_ok_and(|(found, _)| !found.allocators.is_empty());
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
        // Each command is on a line of its own, so that it can be copied.
        for line in check.advice.lines() {
            writeln!(out, "{:8}{:width$}  -> {}", "", "", text::escape(line))?;
        }
    }
    let end = if can_trace(checks) {
        "heaptrace can trace on this machine with these rights."
    } else {
        "heaptrace can't trace: see each line with `not ok`."
    };
    writeln!(out, "\n{end}")
}

/// Prints what can be traced in a process.
fn process(
    out: &mut impl Write,
    pid: u32,
    found: io::Result<(Found, Result<Survey, Unplanned>)>,
) -> io::Result<()> {
    writeln!(out, "\nprocess {pid}")?;
    let (found, fast) = match found {
        Ok(found) => found,
        Err(error) => return writeln!(out, "  can't read its mappings: {error}"),
    };
    for allocator in &found.allocators {
        let path = text::escape(&allocator.path);
        for kind in allocator.kinds() {
            let option = if kind == MAPPINGS_KIND {
                " (--no-mmap leaves it out)"
            } else {
                ""
            };
            writeln!(out, "  {kind} in {path}{option}, probed at")?;
            for function in allocator.functions.iter().filter(|it| it.kind == kind) {
                let names: Vec<_> = function
                    .names
                    .iter()
                    .map(|name| text::escape(name))
                    .collect();
                let names = names.join(", ");
                writeln!(
                    out,
                    "    {names}  {:#x}{}",
                    function.offset, function.placed
                )?;
            }
        }
        if !allocator.returns.is_empty() {
            let count = allocator.returns.len();
            writeln!(
                out,
                "    and at {count} return instructions of functions that may throw"
            )?;
        }
        for note in &allocator.notes {
            writeln!(out, "    {}", text::escape(note))?;
        }
    }
    fast_path(out, &fast)?;
    for unprobed in &found.unprobed {
        writeln!(out, "  not traced: {}", text::escape(&unprobed.to_string()))?;
    }
    if found.allocators.is_empty() && found.unprobed.is_empty() {
        writeln!(
            out,
            "  it has mapped no allocator that heaptrace knows; name another with --allocator PATH[:PREFIX]"
        )?;
    }
    Ok(())
}

/// Prints whether a run with `--fast` would move a process, and what that would change.
fn fast_path(out: &mut impl Write, fast: &Result<Survey, Unplanned>) -> io::Result<()> {
    let survey = match fast {
        Ok(survey) => survey,
        Err(why) => return writeln!(out, "  fast path (--fast): not possible: {why}"),
    };
    writeln!(out, "  fast path (--fast): possible")?;
    let changed: usize = survey.callers.iter().map(|it| it.changed).sum();
    let changeable: usize = survey.callers.iter().map(|it| it.changeable).sum();
    let provider = text::escape(&survey.provider);
    let rest = if changed < changeable {
        "; the others don't hold the address of such a function, or not yet"
    } else {
        ""
    };
    writeln!(
        out,
        "    it changes {} slots by which files call functions of {provider}{rest}",
        share(changed, changeable)
    )?;
    let stubs: usize = survey.callers.iter().map(|it| it.stubs).sum();
    let all_stubs: usize = survey.callers.iter().map(|it| it.all_stubs).sum();
    if all_stubs > 0 {
        let rest = if stubs < all_stubs {
            "; the others lead elsewhere, are changed already, or have no free addresses near"
        } else {
            ""
        };
        writeln!(
            out,
            "    and {} linkage stubs, whose slots the files' code may also read{rest}",
            share(stubs, all_stubs)
        )?;
    }
    for caller in &survey.callers {
        let path = text::escape(&caller.path);
        let rest = match caller.skipped.join(", ") {
            names if names.is_empty() => String::new(),
            names => format!(
                "; never that of {names}, by which its code calls without a stub, and which it may also read"
            ),
        };
        let slots = share(caller.changed, caller.changeable);
        let stubs = match caller.all_stubs {
            0 => String::new(),
            all => format!(" and {} stubs", share(caller.stubs, all)),
        };
        writeln!(out, "      {slots}{stubs} in {path}{rest}")?;
    }
    for slow in &survey.slow {
        let names: Vec<_> = slow.names.iter().map(|name| text::escape(name)).collect();
        let names = names.join(", ");
        writeln!(out, "    calls of {names} hit its probe: {}", slow.reason)?;
    }
    for others in &survey.others {
        let names = others.names.iter().take(MOST_NAMES);
        let names: Vec<_> = names.map(|name| text::escape(name)).collect();
        let (functions, hit, rest) = match others.names.len() {
            1 => ("function", "always hits its", ""),
            count if count > MOST_NAMES => ("functions", "always hit their", ", …"),
            _ => ("functions", "always hit their", ""),
        };
        writeln!(
            out,
            "    {} other {functions} of {} {hit} probe: {}{rest}",
            others.names.len(),
            text::escape(&others.path),
            names.join(", ")
        )?;
    }
    Ok(())
}

/// A part of a number, or the number if it is all of it.
fn share(part: usize, all: usize) -> String {
    if part == all {
        all.to_string()
    } else {
        format!("{part} of {all}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probes::fast::eligible::Refusal;
    use crate::probes::fast::survey::{Caller, Others, Slow};

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

    /// Check that only `not ok` prevents tracing, and that the last line says whether tracing is possible.
    #[test]
    fn only_not_ok_prevents_tracing() {
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

    /// Check that the section on the fast path has the reason why a process can't have one, or what it changes and what stays
    /// slow, with few names, and no escape sequence of a path.
    #[test]
    fn the_fast_path_is_explained() {
        let written = |fast: &Result<Survey, Unplanned>| {
            let mut out = Vec::new();
            fast_path(&mut out, fast).unwrap();
            String::from_utf8(out).unwrap()
        };
        let refused = written(&Err(Refusal::Traced(7).into()));
        let expected =
            "  fast path (--fast): not possible: process 7 traces it, as a debugger does\n";
        assert_eq!(refused, expected);
        let caller = |path: &str, changed, skipped: &[&'static str]| Caller {
            path: path.to_owned(),
            changed,
            changeable: 6,
            stubs: skipped.len(),
            all_stubs: skipped.len() * 2,
            skipped: skipped.to_vec(),
        };
        let possible = Survey {
            provider: "/lib/libc.so.6".to_owned(),
            callers: vec![
                caller("/bin/a\x1b[2J", 6, &[]),
                caller("/lib/b", 2, &["free"]),
            ],
            slow: vec![Slow {
                names: vec!["calloc".to_owned(), "__libc_calloc".to_owned()],
                reason: "its first instructions can't be copied",
            }],
            others: vec![Others {
                path: "/lib/c".to_owned(),
                names: (0..8).map(|number| format!("mi_{number}")).collect(),
            }],
        };
        let possible = written(&Ok(possible));
        let begin =
            "  fast path (--fast): possible\n    it changes 8 of 12 slots by which files call ";
        assert!(possible.starts_with(begin), "{possible}");
        for line in [
            "    and 1 of 2 linkage stubs, whose slots the files' code may also read; the others lead elsewhere, are changed already, or have no free addresses near",
            "      2 of 6 and 1 of 2 stubs in /lib/b; never that of free, by which its code calls without a stub, and which it may also read",
            "    calls of calloc, __libc_calloc hit its probe: its first instructions can't be copied",
            "    8 other functions of /lib/c always hit their probe: mi_0, mi_1, mi_2, mi_3, mi_4, mi_5, …",
        ] {
            assert!(possible.lines().any(|it| it == line), "{possible}");
        }
        assert!(possible.contains("      6 in /bin/a") && !possible.contains('\x1b'));
    }

    /// Check that no escape sequence of a finding is printed, and that there is none without color.
    #[test]
    fn escape_sequences_are_not_printed() {
        let hostile = [check(Verdict::Ok, "a\x1b[2Jb", "")];
        assert!(!written(&hostile, false).contains('\x1b'));
        assert!(written(&hostile, true).contains("\x1b[32mok"));
        assert!(!written(&hostile, true).contains("\x1b[2J"));
    }
}
