//! Tests of the privileges of heaptrace's processes during a run, and of an installation for a group.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use heaptrace_tests::{
    Child, Ended, Heaptrace, Holdings, MINUTE, c, heaptrace, ready_pid, require_tool, run, truths,
    until, workspace,
};

/// A user and a group that exist in no file.
const USER: u32 = 61_234;
const GROUP: u32 = 61_235;

/// Capabilities that a run never has.
const NEVER: [(u32, &str); 6] = [
    (0, "CAP_CHOWN"),
    (12, "CAP_NET_ADMIN"),
    (16, "CAP_SYS_MODULE"),
    (17, "CAP_SYS_RAWIO"),
    (21, "CAP_SYS_ADMIN"),
    (8, "CAP_SETPCAP"),
];

/// The fields of a `status` file.
fn fields(path: &Path) -> Result<BTreeMap<String, String>> {
    let text = fs::read_to_string(path)?;
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    Ok(fields
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect())
}

/// The `status` files of a process's threads.
fn threads(pid: u32) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        all.push(entry?.path().join("status"));
    }
    Ok(all)
}

/// The child processes of a process.
fn children(pid: u32) -> Result<Vec<u32>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        let list = fs::read_to_string(entry?.path().join("children")).unwrap_or_default();
        all.extend(
            list.split_whitespace()
                .filter_map(|it| it.parse::<u32>().ok()),
        );
    }
    Ok(all)
}

fn set(field: &BTreeMap<String, String>, name: &str) -> Result<u64> {
    let digits = field.get(name).with_context(|| format!("no {name}"))?;
    Ok(u64::from_str_radix(digits, 16)?)
}

/// Prints a line about each thread of a process, and returns the fields of each.
fn show(role: &str, pid: u32) -> Result<Vec<BTreeMap<String, String>>> {
    let mut all = Vec::new();
    for status in threads(pid)? {
        let Ok(field) = fields(&status) else { continue };
        let value = |name: &str| field.get(name).map_or("", String::as_str);
        println!(
            "{role:<10} {:<16} {:>17} {:>17} {:>3} {:>7} {:>5} {:>12}",
            value("Name"),
            value("CapEff"),
            value("CapBnd"),
            value("NoNewPrivs"),
            value("Seccomp"),
            value("Uid").split_whitespace().next().unwrap_or_default(),
            value("VmRSS"),
        );
        all.push(field);
    }
    Ok(all)
}

/// Check that every thread of the agent has only the capabilities that a run uses, that its guardian and its readers
/// have almost none, and that none of them can gain privileges or dump core. Prints the rights of each.
#[test]
fn processes_have_few_rights() -> Result<()> {
    let here = Heaptrace::tracing()?;
    for options in [&["--max-overhead", "off"][..], &["--max-overhead", "50"]] {
        let mut arguments = vec!["--all", "--comm", "ht-no-process"];
        arguments.extend(options);
        let _ = fs::remove_file(here.data());
        let mut tracer = here.start_record(&arguments)?;
        here.wait_recording(&mut tracer)?;
        let agent = tracer.pid();
        let guardian = Holdings::of(agent)?.guardian;
        println!(
            "process    thread            effective         bounding          nnp seccomp user  memory"
        );
        let of_agent = show("agent", agent)?;
        let of_guardian = show("guardian", guardian)?;
        for reader in children(agent)? {
            // It gives its rights up right after it was forked.
            until("a reader without rights", MINUTE, || {
                for field in show("reader", reader).unwrap_or_default() {
                    let has_rights = set(&field, "CapEff")? != 0;
                    if has_rights || field["NoNewPrivs"] != "1" || field["Seccomp"] != "2" {
                        return Ok(false);
                    }
                }
                Ok(true)
            })?;
        }
        for field in of_agent.iter().chain(&of_guardian) {
            assert_eq!(field["NoNewPrivs"], "1", "{field:?}");
            for kind in ["CapEff", "CapPrm", "CapBnd"] {
                for (bit, name) in NEVER {
                    let measures =
                        bit == 21 && options[1] != "off" && field["Name"].ends_with("guard");
                    assert!(
                        set(field, kind)? >> bit & 1 == 0 || measures,
                        "{} has {name} in {kind}",
                        field["Name"]
                    );
                }
            }
        }
        for field in &of_guardian {
            assert_eq!(set(field, "CapEff")? & !(1 << 2 | 1 << 21), 0, "{field:?}");
        }
        for pid in [agent, guardian] {
            let limits = fs::read_to_string(format!("/proc/{pid}/limits"))?;
            let core = limits
                .lines()
                .find(|line| line.starts_with("Max core file size"));
            let mut words = core
                .context("no limit of dumps")?
                .split_whitespace()
                .skip(4);
            assert_eq!((words.next(), words.next()), (Some("0"), Some("0")));
        }
        tracer.signal(libc::SIGINT)?;
        tracer.wait()?.success()?;
    }
    Ok(())
}

/// Check that a launched command has the limits, rights and privileges that it would have without a tracer.
#[test]
fn a_command_keeps_its_rights() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let script =
        "ulimit -n; ulimit -c; grep -E 'CapEff|CapBnd|NoNewPrivs|Seccomp:' /proc/self/status";
    let limited = |command: &str| format!("ulimit -Sn 300; ulimit -c 1000; exec {command}");
    let untraced = run(Command::new("sh").args(["-c", &limited(&format!("sh -c \"{script}\""))]))?;
    let binary = heaptrace()?.display();
    let command = format!(
        "{binary} record -o {} -- sh -c \"{script}\"",
        here.data().display()
    );
    let traced = run(Command::new("sh").args(["-c", &limited(&command)]))?.success()?;
    assert_eq!(traced.stdout, untraced.success()?.stdout);
    Ok(())
}

/// The `setcap` line that the program prints for an installation, without the path at its end.
fn printed_line(output: &str) -> Result<String> {
    let line = output.lines().find_map(|line| line.split_once("setcap "));
    let (_, line) = line.with_context(|| format!("no setcap line in:\n{output}"))?;
    let (capabilities, _) = line.split_once(' ').context("no path")?;
    Ok(capabilities.to_owned())
}

/// A command that runs as a member of the group, in a mount namespace of its own with tracefs mounted.
fn as_member(folder: &Path, command: &[&OsStr]) -> Command {
    let script =
        "mount -t tracefs tracefs /sys/kernel/tracing && cd \"$1\" && shift && exec \"$@\"";
    let mut member = Command::new("unshare");
    member.args(["-m", "sh", "-c", script, "sh"]).arg(folder);
    let (user, group) = (USER.to_string(), GROUP.to_string());
    member.args([
        "setpriv", "--reuid", &user, "--regid", &user, "--groups", &group,
    ]);
    member.args(command);
    member
}

/// Check that a file with exactly the capabilities that the program prints, and that the documentation names, lets a
/// member of its group trace commands, other users' processes and the whole machine with exact counts, and gives that
/// member no access to other files.
#[test]
fn a_group_can_trace() -> Result<()> {
    for (tool, package) in [
        ("setcap", "libcap2-bin"),
        ("setpriv", "util-linux"),
        ("unshare", "util-linux"),
    ] {
        require_tool(tool, package)?;
    }
    let here = Heaptrace::tracing()?;
    fs::set_permissions(here.folder(), fs::Permissions::from_mode(0o755))?;
    let (binary, own) = (here.path("heaptrace"), here.path("own"));
    run(Command::new("cp").arg(heaptrace()?).arg(&binary))?.success()?;
    fs::create_dir(&own)?;
    chown(&own, Some(USER), Some(USER))?;
    chown(&binary, None, Some(GROUP))?;
    fs::set_permissions(&binary, fs::Permissions::from_mode(0o750))?;
    let fixture = here.path("older");
    run(Command::new("cp").arg(c("older")?.path).arg(&fixture))?.success()?;

    // Without rights, it prints the line that grants them.
    let words =
        |words: &[&str]| -> Vec<String> { words.iter().map(|it| (*it).to_owned()).collect() };
    let member = |arguments: &[String]| -> Result<Ended> {
        let mut command = vec![binary.as_os_str()];
        command.extend(arguments.iter().map(OsStr::new));
        run(&mut as_member(&own, &command))
    };
    let refused = member(&words(&["record", "--", "true"]))?.fails_clearly()?;
    let granted = printed_line(&refused.stderr)?;
    let page = fs::read_to_string(workspace().join("docs/install-for-a-group.md"))?;
    // The page names this one as an addition, for kernels that restrict perf.
    let without = granted.replace(",cap_sys_admin", "");
    assert_eq!(printed_line(&page)?, without, "the page says otherwise");
    run(Command::new("setcap").arg(&granted).arg(&binary))?.success()?;

    let report = || -> Result<heaptrace_tests::Report> {
        fs::rename(own.join("x.data"), here.data())?;
        here.report()
    };
    let path = fixture.display().to_string();
    let ended = member(&words(&["record", "--exact", "-o", "x.data", "--", &path]))?.success()?;
    let seen = report()?;
    seen.check_nothing_lost()?;
    for truth in truths(&ended.stdout)? {
        truth.matches(&seen.truth(Some(truth.pid)))?;
    }

    // A process of another user, and the whole machine.
    for all in [false, true] {
        let mut target = Child::spawn(&mut Command::new(&fixture))?;
        let pid = ready_pid(&target.line()?)?;
        let pid_text = pid.to_string();
        let mut arguments = vec!["record", "--exact", "--max-overhead", "off", "-o", "x.data"];
        if all {
            arguments.extend(["--all", "--from-birth", "--comm", "older"]);
        } else {
            arguments.extend(["--pid", &pid_text]);
        }
        let mut command = vec![binary.as_os_str()];
        command.extend(arguments.iter().map(OsStr::new));
        let mut tracer = Child::spawn(&mut as_member(&own, &command))?;
        until("the tracer's data file", 3 * MINUTE, || {
            ensure!(tracer.running()?, "{}", tracer.stderr());
            Ok(own.join("x.data").exists())
        })?;
        target.go()?;
        let truth = truths(&target.wait()?.success()?.stdout)?;
        // With its target, the tracer ends by itself. The child is the tracer by now: `sh` and `setpriv` have called `exec`.
        if all {
            tracer.signal(libc::SIGINT)?;
        }
        tracer.wait()?.success()?;
        let seen = report()?;
        for truth in truth.iter().filter(|it| it.role == "main") {
            truth.matches(&seen.truth(Some(pid)))?;
        }
    }

    // It neither reads nor writes a file that only root may.
    let secret = here.path("secret.data");
    fs::copy(here.data(), &secret)?;
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600))?;
    member(&words(&["report", &secret.display().to_string()]))?.fails_clearly()?;
    let written = here.path("written").display().to_string();
    member(&words(&["record", "-o", &written, "--", "true"]))?.fails_clearly()?;
    assert!(!Path::new(&written).exists());
    Ok(())
}
