//! Tests of the live table on a terminal: its keys, its progress, its end, and that the terminal is restored after each end.

use std::ffi::OsStr;
use std::process::Command;

use anyhow::{Context as _, Result};
use heaptrace_tests::{Child, Heaptrace, Pty, c, ready_pid, send};

/// The sequence that opens the table, and the one that closes it.
const OPEN: &str = "\x1b[?1049h";
const CLOSE: &str = "\x1b[?1049l";

/// A tracer of a fixture that allocates until it is killed, with its table on a terminal.
struct Live {
    terminal: Pty,
    _here: Heaptrace,
    _target: Child,
}

impl Live {
    fn new() -> Result<Self> {
        Self::through(|heaptrace| heaptrace)
    }

    /// The tracer's command may be run by another program.
    fn through(by: impl FnOnce(Command) -> Command) -> Result<Self> {
        let here = Heaptrace::tracing()?;
        let mut target = Child::spawn(&mut c("forever")?.command())?;
        let pid = ready_pid(&target.line()?)?.to_string();
        // By what it has allocated: it frees all.
        let arguments = ["--metric", "total-bytes", "--exact", "--pid", &pid];
        let mut command = by(here.command(&arguments)?);
        let mut terminal = Pty::spawn(&mut command, 80, 24)?;
        terminal.wait_for(OPEN)?;
        terminal.wait_for("truth_")?;
        Ok(Self {
            terminal,
            _here: here,
            _target: target,
        })
    }
}

/// Check that attaching shows its progress before the table, that each key does what the foot says, and that `q` ends the run
/// in order and leaves the terminal as it was.
#[test]
fn keys_do_what_the_foot_says() -> Result<()> {
    let mut live = Live::new()?;
    let terminal = &mut live.terminal;
    let begin = terminal.output();
    let (attaching, table) = (begin.find("Attaching… "), begin.find(OPEN));
    assert!(attaching.is_some() && attaching < table, "{begin:?}");
    let modes = terminal.modes()?;
    assert!(!modes.lines && !modes.echo, "{modes:?}");
    for (key, shown) in [
        ("s", "sort: total allocations"),
        ("S", "sort: total bytes"),
        ("b", "by: function"),
        ("B", "by: site"),
        ("?", "recording goes on"),
        ("p", "PAUSED"),
        ("p", "p pause"),
        // An arrow is no key, though its last letter alone would be one.
        ("\x1bOBs", "by: site"),
    ] {
        terminal.press(key)?;
        terminal
            .wait_for(shown)
            .with_context(|| format!("{key:?}"))?;
    }
    terminal.press("q")?;
    terminal.wait_for(CLOSE)?;
    assert!(terminal.wait()?.success());
    terminal.wait_restored()
}

/// Check that the end on a terminal is a summary of one screen with the way to more, and the full report if that is asked
/// for.
#[test]
fn the_end_is_one_screen() -> Result<()> {
    for details in [false, true] {
        let mut live = Live::through(|mut heaptrace| {
            if details {
                heaptrace.arg("--details");
            }
            heaptrace
        })?;
        let terminal = &mut live.terminal;
        terminal.press("q")?;
        assert!(terminal.wait()?.success());
        let output = terminal.output();
        let (_, end) = output.rsplit_once(CLOSE).context("not closed")?;
        assert_eq!(end.contains("heaptrace record --pid "), !details, "{end}");
        assert!(end.contains("truth_malloc"), "{end}");
        if !details {
            assert!(end.lines().count() <= 24, "{end}");
        }
    }
    Ok(())
}

/// Check that the table is frozen while it is paused, though recording goes on.
#[test]
fn a_paused_table_is_frozen() -> Result<()> {
    let mut live = Live::new()?;
    let terminal = &mut live.terminal;
    terminal.press("p")?;
    terminal.wait_for("PAUSED")?;
    let first = terminal.output().rfind("heaptrace, ").context("no head")?;
    let head: String = terminal.output()[first..].chars().take(20).collect();
    for _ in 0..3 {
        // Each is drawn after an update, because that comes every second.
        terminal.wait_for(&head)?;
    }
    terminal.press("p")?;
    terminal.wait_for("p pause")?;
    let last = terminal.output().rfind("heaptrace, ").context("no head")?;
    assert!(
        !terminal.output()[last..].starts_with(&head),
        "still {head}"
    );
    Ok(())
}

/// Check that the terminal is restored after signals and SIGKILL. After SIGKILL only the guardian can do it.
#[test]
fn every_end_restores_the_terminal() -> Result<()> {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGKILL] {
        let mut live = Live::new()?;
        let terminal = &mut live.terminal;
        send(i32::try_from(terminal.pid())?, signal)?;
        terminal
            .wait_for(CLOSE)
            .with_context(|| format!("signal {signal}"))?;
        terminal.wait_restored()?;
        terminal.wait()?;
        let output = terminal.output();
        let (_, after) = output.rsplit_once(CLOSE).context("not closed")?;
        assert!(output.contains("\x1b[?25h"), "the cursor is hidden");
        assert!(!after.contains(OPEN), "{after:?}");
        assert_eq!(output.matches(CLOSE).count(), 1, "{output:?}");
    }
    Ok(())
}

/// Check that Ctrl-Z gives the terminal back to the shell, that `fg` shows the table again with its keys, and that Ctrl-C
/// ends it.
#[test]
fn a_stopped_table_comes_back() -> Result<()> {
    let mut live = Live::through(|heaptrace| {
        let mut shell = Command::new("bash");
        shell.args(["--norc", "-i", "-m", "-c"]);
        // What follows the stopped command runs in the shell, which then has the terminal.
        shell.arg(
            "\"$@\"; echo stopped: $(stty -a | grep -ow -e '-*icanon'); read go; fg; echo over",
        );
        shell.arg("bash").arg(heaptrace.get_program());
        shell.args(heaptrace.get_args());
        shell.env_remove("SUDO_USER");
        shell
    })?;
    let terminal = &mut live.terminal;
    terminal.press("\x1a")?;
    terminal.wait_for(CLOSE)?;
    terminal.wait_for("stopped: icanon")?;
    terminal.press("\n")?;
    terminal.wait_for(OPEN)?;
    terminal.press("s")?;
    terminal.wait_for("sort: total allocations")?;
    terminal.press("\x03")?;
    terminal.wait_for(CLOSE)?;
    terminal.wait_for("over")?;
    terminal.wait()?;
    terminal.wait_restored()
}

/// Check that the table fills a terminal whose size has changed.
#[test]
fn a_resized_table_is_drawn_anew() -> Result<()> {
    let mut live = Live::new()?;
    let terminal = &mut live.terminal;
    terminal.resize(100, 33)?;
    terminal.wait_for("\x1b[33;1H\x1b[2mq quit")
}

/// Check that a command keeps its terminal: lines, echo and input are its own.
#[test]
fn a_command_owns_the_terminal() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let cat = OsStr::new("cat");
    let mut terminal = Pty::spawn(&mut here.command(&[OsStr::new("--"), cat])?, 80, 24)?;
    terminal.wait_for("\x1b[1;12r")?;
    let modes = terminal.modes()?;
    assert!(modes.lines && modes.echo && modes.suspend, "{modes:?}");
    terminal.press("quick\n")?;
    // The echo, and the command's own output.
    terminal.wait_for("quick")?;
    terminal.wait_for("quick")?;
    terminal.press("\x04")?;
    assert!(terminal.wait()?.success());
    terminal.wait_restored()
}
