//! Tests of who owns an address: by a core file of a program that uses a block after it was freed, beside gdb, and in a running
//! process.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use heaptrace_tests::{Child, Heaptrace, MINUTE, c, ready_pid, require_tool, run, until};
use serde_json::Value;

/// Bytes of the block that is used after it was freed, and of the one that is there then.
const SIZE: u64 = 48;

/// The answer about an address, as JSON.
fn asked(here: &Heaptrace, words: &[&str]) -> Result<Value> {
    let data = here.data().display().to_string();
    let mut arguments = vec!["who", "--format", "json"];
    arguments.extend(words);
    arguments.push(&data);
    let ended = here.run(&arguments)?.success()?;
    Ok(serde_json::from_str(&ended.stdout)?)
}

/// The functions of a block's stack.
fn functions(block: &Value) -> Vec<&str> {
    let frames = block["stack"].as_array();
    let names = frames.into_iter().flatten();
    names.filter_map(|it| it["function"].as_str()).collect()
}

/// Lets a process crash in gdb, writes its core file, and ends it.
fn crash(target: &mut Child, core: &Path) -> Result<()> {
    let gdb = require_tool("gdb", "gdb")?;
    let save = format!("generate-core-file {}", core.display());
    let mut debugger = Child::spawn(
        Command::new(gdb)
            .args(["-nx", "-batch", "-ex", "set debuginfod enabled off", "-p"])
            .arg(target.pid().to_string())
            .args(["-ex", "echo attached\\n", "-ex", "continue"])
            .args(["-ex", &save, "-ex", "kill"]),
    )?;
    while !debugger.line()?.ends_with("attached") {}
    target.go()?;
    let ended = debugger.wait()?.success()?;
    ensure!(core.exists(), "gdb: {}\n{}", ended.stdout, ended.stderr);
    Ok(())
}

/// Check that a core file of a program with a use after free leads to the block that is there now, to the code that owns it, and to
/// the freed block that the program meant, in an exact run with all events; that a sampled run with blocks alone has the owner and
/// says that it is a sample; and that gdb shows the same by the value of a variable.
#[test]
fn a_use_after_free_has_an_owner_and_an_earlier_one() -> Result<()> {
    let (exact, sampled) = (Heaptrace::tracing()?, Heaptrace::tracing()?);
    let fixture = c("stale")?;
    let mut target = Child::spawn(&mut fixture.command())?;
    let pid = ready_pid(&target.line()?)?;
    let pid_text = pid.to_string();
    let mut all = exact.start_record(&["--pid", &pid_text, "--events"])?;
    exact.wait_attached(&mut all, pid)?;
    // Blocks of this size are in such a sample but for one in 10¹⁰.
    let mut some = sampled.start_record(&["--pid", &pid_text, "--blocks", "--sample", "2"])?;
    sampled.wait_attached(&mut some, pid)?;
    let core = exact.path("core");
    crash(&mut target, &core)?;
    let core = core.to_str().context("no text")?;
    exact.finish(all)?.report.check_nothing_lost()?;
    sampled.finish(some)?.report.check_nothing_lost()?;

    let answer = asked(&exact, &["--core", core])?;
    assert_eq!(answer["core"]["pid"], pid, "{answer}");
    assert_eq!(answer["core"]["signal"], 11, "{answer}");
    let addresses = answer["addresses"].as_array().context("no list")?;
    let registers = addresses.iter().find(|it| {
        let name = it["name"].as_str().unwrap_or_default();
        name.split(", ").any(|name| name == "rdi")
    });
    let registers = registers.with_context(|| format!("rdi is not in {answer}"))?;
    let process = &registers["processes"][0];
    assert_eq!(process["block"]["size"], SIZE, "{answer}");
    assert_eq!(functions(&process["block"])[..2], ["make_buffer", "main"]);
    let freed = &process["freed"][0];
    assert_eq!(freed["size"], SIZE, "{answer}");
    assert_eq!(freed["how"], "freed", "{answer}");
    assert_eq!(functions(freed)[..2], ["make_session", "main"]);
    assert_eq!(process["behind"]["size"], 100, "{answer}");
    let memory = registers["memory"].as_str().unwrap_or_default();
    assert!(memory.starts_with(&"78".repeat(48)), "{answer}");

    let answer = asked(&sampled, &["--core", core, "rdi"])?;
    assert_eq!(answer["partial"], true, "{answer}");
    let block = &answer["addresses"][0]["processes"][0]["block"];
    assert_eq!(functions(block)[..2], ["make_buffer", "main"]);

    // A core file of another process than those of the recording.
    here_records_another(&exact)?;
    let refused = exact
        .run(&["who", "--core", core, "other.data"])?
        .fails_clearly()?;
    assert!(
        refused.stderr.contains(&format!("({pid})")),
        "{}",
        refused.stderr
    );

    beside_gdb(&exact, &fixture.path, core)
}

/// Records another process to `other.data`.
fn here_records_another(here: &Heaptrace) -> Result<()> {
    let command = ["record", "--blocks", "-o", "other.data", "--", "ls", "/"];
    here.run(&command)?.success()?;
    Ok(())
}

/// Asks the same in gdb, by the name of a variable.
fn beside_gdb(here: &Heaptrace, program: &Path, core: &str) -> Result<()> {
    let script = here.path("heaptrace.gdb.py");
    let commands = here.run(&["who", "--gdb-commands"])?.success()?.stdout;
    std::fs::write(&script, commands)?;
    let ask = format!("heaptrace who session->name + 4 {}", here.data().display());
    let ended = run(Command::new(require_tool("gdb", "gdb")?)
        .env("HEAPTRACE", heaptrace_tests::heaptrace()?)
        .args(["-nx", "-batch", "-ex", "set debuginfod enabled off", "-x"])
        .arg(&script)
        .args(["-ex", "frame function main", "-ex", &ask])
        .arg(program)
        .arg(core))?;
    let shown = &ended.stdout;
    for words in [
        "12 bytes into a block left at exit of 48 bytes",
        "make_buffer",
        "make_session",
    ] {
        assert!(shown.contains(words), "{words}: {shown}\n{}", ended.stderr);
    }
    Ok(())
}

/// Check that the owner of an address in a running process is found without a recording, when a block is allocated there, and that an
/// address at which nothing is mapped is refused at once.
#[test]
fn an_address_of_a_running_process_gets_an_owner() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let fixture = c("addresses")?;
    let mut target = Child::spawn(&mut fixture.command())?;
    let pid = ready_pid(&target.line()?)?.to_string();
    let address = target.line()?;
    let nothing = here.run(&["who", "0x10", "--pid", &pid])?.fails_clearly()?;
    assert!(
        nothing.stderr.contains("nothing mapped at 0x10"),
        "{}",
        nothing.stderr
    );
    let command = [
        "who",
        &address,
        "--pid",
        &pid,
        "--duration",
        "80s",
        "--format",
        "json",
    ];
    let tracer = Child::spawn(&mut here.command(&command)?)?;
    let answer = tracer.wait()?.success()?;
    let answer: Value = serde_json::from_str(&answer.stdout)?;
    let process = &answer["addresses"][0]["processes"][0];
    let block = match &process["block"] {
        Value::Null => &process["freed"][0],
        block => block,
    };
    assert_eq!(block["size"], 1000, "{answer}");
    assert_eq!(functions(block)[..2], ["takes_turns", "main"]);
    assert_eq!(
        answer["addresses"][0]["mapping"],
        "the heap that grows by brk ([heap])"
    );
    target.go()?;
    target.wait()?.success()?;
    Ok(())
}

/// Check that each file of a recording that begins new files names the owner of an address by itself, also of a block that was allocated
/// before the file began, and has a memory map that adds up.
#[test]
fn rotated_files_have_owners_and_maps() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let mut target = Child::spawn(&mut c("fragments")?.command())?;
    let pid = ready_pid(&target.line()?)?;
    let pid_text = pid.to_string();
    let rotating = ["--blocks", "--interval", "200ms", "--rotate", "600ms,9"];
    let options = [&["--pid", &pid_text, "--exact"][..], &rotating].concat();
    let mut tracer = here.start_record(&options)?;
    here.wait_attached(&mut tracer, pid)?;
    target.go()?;
    ensure!(target.line()?.contains("step"), "no step");
    // Files that begin after the last allocation: nothing in them but what was live when they began.
    let mut newest = None;
    for _ in 0..3 {
        // Between a renaming and the new file, there is none.
        until("a new file", MINUTE, || {
            let time = std::fs::metadata(here.data()).and_then(|file| file.created());
            let new = time.ok().filter(|time| newest < Some(*time));
            newest = new.or(newest);
            Ok(new.is_some())
        })?;
    }
    tracer.signal(libc::SIGINT)?;
    here.finish(tracer)?.report.check_nothing_lost()?;
    target.go()?;
    target.wait()?.success()?;

    let mut address = String::new();
    for name in ["heaptrace.data", "heaptrace.data.1"] {
        let json = here.run(&["map", name, "--format", "json"])?.success()?;
        let json: Value = serde_json::from_str(&json.stdout)?;
        let map = &json["processes"][0];
        let number = |name: &str| map[name].as_u64().unwrap_or(0);
        let (sum, resident) = (number("sum_bytes"), number("resident_bytes"));
        assert!(
            sum > 0 && sum.abs_diff(resident) * 50 <= resident,
            "{name}: {sum} {resident}"
        );
        assert_eq!(functions(&map["sites"][0])[..1], ["keep_one"], "{name}");
        let heap = map["mappings"].as_array().context("no mappings")?;
        let heap = heap.iter().find(|it| it["name"] == "[heap]");
        let end = heap.and_then(|it| it["end"].as_str()).context("no heap")?;
        // The last block before the end of the heap is the neighbour of an address there.
        let end = format!("{:#x}", u64::from_str_radix(&end[2..], 16)? - 1);
        let near = here.run(&["who", "--format", "json", &end, name])?;
        let near: Value = serde_json::from_str(&near.success()?.stdout)?;
        let before = &near["addresses"][0]["processes"][0]["before"];
        let found = before["address"].as_str().context("no neighbour")?;
        assert!(address.is_empty() || address == found, "{name}: {near}");
        address = found.to_owned();
        let owned = here.run(&["who", "--format", "json", &address, name])?;
        let owned: Value = serde_json::from_str(&owned.success()?.stdout)?;
        let block = &owned["addresses"][0]["processes"][0]["block"];
        assert_eq!(block["address"], address, "{owned}");
        assert!(!functions(block).is_empty(), "{owned}");
        assert!(
            owned["began_ns"].as_u64() > block["born_ns"].as_u64(),
            "{owned}"
        );
    }
    Ok(())
}
