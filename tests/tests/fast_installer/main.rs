//! Tests of the installer: what it does to a target, and that nothing of it is left if the agent is killed.

mod agent;
mod earlier;
mod killed;
mod stubs;
mod target;

use std::os::unix::fs::FileExt as _;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use heaptrace::probes::fast::installer::{Answer, Request, Slot};
use heaptrace_tests::{Child, MINUTE, Random, has_ended, require_root, send, until};

use agent::{
    Agent, CODE, LONG_MS, PAGE, SIZES, TOTAL, all_slots, attach, flood, fork, map_request, place,
    reap,
};
use target::{Process, SLOTS, Target, Word, signal_thread};

/// Why a request for a mapping failed.
fn refusal(answer: Answer) -> Result<String> {
    match answer {
        Answer::NotMapped { why, .. } => Ok(why),
        other => anyhow::bail!("{other:?}"),
    }
}

/// Check that the parts are mapped with their protections at the first free place, that code and data that were filled in
/// arrive, that hints are shared, and that the target is otherwise as before.
#[test]
fn maps_and_fills() -> Result<()> {
    require_root()?;
    let mut target = Target::start()?;
    let before = target.shape()?;
    let agent = Agent::start()?;
    let (pid, process) = (target.process.pid, &target.process);
    let taken = process.address(Word::Rounds) & !(PAGE - 1);
    let base = agent.mapped(&target, &[taken, place(0), place(1)])?;
    assert_eq!(base, place(0));
    assert_eq!(target.shape()?, before);
    let parts: Vec<(String, u64)> = process
        .mappings(base, base + TOTAL)?
        .into_iter()
        .map(|(permissions, length, _)| (permissions, length))
        .collect();
    let expected = [
        ("r-xp", SIZES.code),
        ("rw-p", SIZES.data),
        ("r--s", SIZES.hints),
        ("r--p", SIZES.mark),
    ];
    assert_eq!(parts, expected.map(|(it, length)| (it.to_owned(), length)));

    ensure!(agent.fill(pid, base, &CODE)?);
    process.set(Word::Function, base)?;
    until("42s", MINUTE, || Ok(process.get(Word::Results)? >= 42 * 3))?;
    let data = base + SIZES.code;
    ensure!(agent.fill(pid, data + 8, &7_u64.to_ne_bytes())?);
    assert_eq!(process.read(data + 8)?, 7);
    agent.hints.write_all_at(&99_u64.to_ne_bytes(), 16)?;
    process.set(Word::Hint, data + SIZES.data + 16)?;
    until(
        "the hint",
        MINUTE,
        || Ok(process.get(Word::HintSeen)? == 99),
    )?;

    // Outside of code and data.
    for address in [base - 8, data + PAGE, process.slot(0), data - 4, u64::MAX] {
        ensure!(!agent.fill(pid, address, &[1; 8])?, "{address:#x}");
    }
    let again = agent.map(&target, &[place(1)])?;
    ensure!(refusal(again)?.contains("already"));

    let installer = format!("/proc/{}/status", agent.installer.pid);
    let status = std::fs::read_to_string(installer)?;
    ensure!(status.contains("CapEff:\t0000000000080002\n"), "{status}");
    ensure!(status.contains("NoNewPrivs:\t1\n"), "{status}");
    target.is_well()
}

/// Check that the mark can be set, and that a forked child does not have it: the kernel's breakpoints in the code may be calls by
/// then, of something that only the parent has.
#[test]
fn a_forked_child_has_no_mark() -> Result<()> {
    require_root()?;
    let mut target = Target::start()?;
    let agent = Agent::start()?;
    let base = agent.mapped(&target, &[place(0)])?;
    let mark = base + TOTAL - SIZES.mark;
    let pid = target.process.pid;
    ensure!(agent.fill(pid, mark, &1_u64.to_ne_bytes())?);
    ensure!(!agent.fill(pid, mark - 4, &1_u64.to_ne_bytes())?);
    ensure!(!agent.fill(pid, base + TOTAL - 4, &1_u64.to_ne_bytes())?);
    let child = target.fork()?;
    assert_eq!((target.process.read(mark)?, child.read(mark)?), (1, 0));
    target.is_well()
}

/// Check that a thread is held for a short time, and computes right however often it is held.
#[test]
fn a_thread_is_held_for_milliseconds() -> Result<()> {
    require_root()?;
    let mut target = Target::start()?;
    let before = target.shape()?;
    let agent = Agent::start()?;
    let mut times = Vec::new();
    for number in 0..200 {
        let places = [place(number)];
        let request = map_request(&target.process, target.computing, &places, LONG_MS);
        agent.ask(&request)?;
        let begin = Instant::now();
        target.signal(libc::SIGURG)?;
        match agent.answer()? {
            Answer::Mapped { .. } => times.push(begin.elapsed()),
            other => ensure!(refusal(other)?.contains("in a system call")),
        }
        agent.undo(target.process.pid)?;
    }
    assert_eq!(target.shape()?, before);
    let longest = Duration::from_nanos(target.process.get(Word::LongestRound)?);
    times.sort();
    let median = times[times.len() / 2];
    println!(
        "{} mappings; from signal to answer at least {:?}, median {median:?}; longest round {longest:?}",
        times.len(),
        times[0],
    );
    ensure!(times.len() > 150, "{} mappings", times.len());
    ensure!(median < Duration::from_millis(50), "{median:?}");
    target.is_well()
}

/// Check that waits in system calls are not interrupted when no signal comes and the patience is over.
#[test]
fn waits_are_not_interrupted() -> Result<()> {
    require_root()?;
    let mut target = Target::start()?;
    let agent = Agent::start()?;
    let process = &target.process;
    for round in 0..20 {
        for tid in [target.waiting, target.sleeping] {
            let request = map_request(process, tid, &[place(0)], 5 + round * 7);
            let answer = agent.ask(&request)?;
            ensure!(matches!(answer, Answer::Seized { .. }), "{answer:?}");
            ensure!(refusal(agent.answer()?)?.contains("in time"));
        }
    }
    let waits = process.get(Word::Waits)?;
    until("waits", MINUTE, || {
        Ok(process.get(Word::Waits)? > waits + 10)
    })?;
    assert_eq!(process.get(Word::Interrupted)?, 0);
    target.is_well()
}

/// Check that a signal that is sent when the patience ends harms nothing: either the thread maps, or the signal is ignored.
#[test]
fn a_late_signal_is_ignored() -> Result<()> {
    require_root()?;
    let mut target = Target::start()?;
    let agent = Agent::start()?;
    let mut random = Random(2);
    let mut mapped = 0;
    for number in 0..200 {
        let places = [place(number)];
        let request = map_request(&target.process, target.computing, &places, 2);
        agent.ask(&request)?;
        std::thread::sleep(Duration::from_micros(random.below(3000) as u64));
        target.signal(libc::SIGURG)?;
        match agent.answer()? {
            Answer::Mapped { .. } => mapped += 1,
            other => drop(refusal(other)?),
        }
        agent.undo(target.process.pid)?;
    }
    println!("mapped {mapped} times");
    target.is_well()
}

/// Check that other signals arrive, each once, while threads are attached and map.
#[test]
fn other_signals_arrive() -> Result<()> {
    require_root()?;
    const COUNT: u64 = 10_000;
    let mut target = Target::start()?;
    let agent = Agent::start()?;
    let (pid, tid) = (target.process.pid, target.computing);
    // A real-time signal: several of them are not merged.
    let sender = std::thread::spawn(move || flood(pid, tid, libc::SIGRTMIN() + 1, COUNT));
    let mut mapped = 0;
    while !sender.is_finished() || mapped < 5 {
        let places = [place(mapped)];
        // The patience of every other attempt is over before the signal.
        let request = map_request(&target.process, tid, &places, 2);
        agent.ask(&request)?;
        refusal(agent.answer()?)?;
        agent.mapped(&target, &places)?;
        agent.undo(pid)?;
        mapped += 1;
    }
    sender.join().ok().context("a panic")??;
    let process = &target.process;
    until("all signals", MINUTE, || {
        Ok(process.get(Word::Signals)? >= COUNT)
    })?;
    assert_eq!(process.get(Word::Signals)?, COUNT);
    target.is_well()
}

/// Whether a process is stopped, by a signal or in tracing.
fn is_stopped(pid: u32) -> Result<bool> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    Ok(stat.contains(") T ") || stat.contains(") t "))
}

/// Check that a process that is stopped while a thread is attached or maps stays stopped until it is continued.
#[test]
fn a_stopped_process_stays_stopped() -> Result<()> {
    require_root()?;
    let mut target = Target::start()?;
    let agent = Agent::start()?;
    let (pid, tid) = (target.process.pid, target.computing);
    let signal = move |number| send(pid as i32, number);
    let stays_stopped = |process: &Process| {
        until("the stop", MINUTE, || is_stopped(pid))?;
        let stopped_at = process.get(Word::Rounds)?;
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(process.get(Word::Rounds)?, stopped_at);
        is_stopped(pid)
    };
    let process = &target.process;
    for patience in [1, LONG_MS] {
        agent.ask(&map_request(process, tid, &[place(0)], patience))?;
        signal(libc::SIGSTOP)?;
        ensure!(stays_stopped(process)?);
        if patience == LONG_MS {
            target.signal(libc::SIGURG)?;
        } else {
            refusal(agent.answer()?)?;
        }
        signal(libc::SIGCONT)?;
        process.compute_on()?;
    }
    // The signal to continue comes before the one of the kernel program.
    drop(agent.answer()?);
    agent.undo(pid)?;

    let end = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&end);
    let sender = std::thread::spawn(move || {
        let mut random = Random(3);
        let mut pause = || std::thread::sleep(Duration::from_micros(random.below(700) as u64));
        while !ended.load(Ordering::Relaxed) {
            signal(libc::SIGSTOP)?;
            pause();
            signal(libc::SIGCONT)?;
            pause();
        }
        signal(libc::SIGSTOP)
    });
    for number in 1..200 {
        agent.mapped(&target, &[place(number)])?;
        agent.undo(pid)?;
    }
    end.store(true, Ordering::Relaxed);
    sender.join().ok().context("a panic")??;
    ensure!(stays_stopped(&target.process)?);
    signal(libc::SIGCONT)?;
    target.is_well()
}

/// Check that a slot without its old value is not written, and that a slot that has changed meanwhile is not restored.
#[test]
fn slots_are_written_by_value() -> Result<()> {
    require_root()?;
    let mut target = Target::start()?;
    let agent = Agent::start()?;
    let pid = target.process.pid;
    let mut slots = all_slots(&target.process);
    ensure!(agent.write(pid, slots.clone())?.is_empty());
    agent.mapped(&target, &[place(0)])?;
    slots[3].old += 1;
    let written = agent.write(pid, slots.clone())?;
    assert_eq!(written.len(), slots.len() - 1);
    ensure!(!written.contains(&slots[3].address));
    let process = &target.process;
    assert_eq!(process.read(slots[3].address)?, Process::slot_value(3));
    assert_eq!(process.read(slots[4].address)?, slots[4].new);
    process.write(slots[5].address, 77)?;
    assert_eq!(agent.undo(pid)?, SLOTS as u32 - 2);
    assert_eq!(process.read(slots[5].address)?, 77);
    process.write(slots[5].address, Process::slot_value(5))?;
    ensure!(process.slots_are_old()?);
    let huge = vec![
        Slot {
            address: u64::MAX,
            old: 0,
            new: 0
        };
        10_000
    ];
    ensure!(agent.send(&Request::Write { pid, slots: huge }).is_err());
    target.is_well()
}

/// Check that each reason for which a process can't be mapped is reported, and that the process is as before.
#[test]
fn refusals_are_clear() -> Result<()> {
    require_root()?;
    let mut target = Target::start()?;
    let before = target.shape()?;
    let agent = Agent::start()?;
    let mut request = map_request(&target.process, target.computing, &[place(0)], LONG_MS);
    if let Request::Map { start_time, .. } = &mut request {
        *start_time += 1;
    }
    ensure!(refusal(agent.ask(&request)?)?.contains("another process has its id"));

    let odd = map_request(&target.process, target.computing, &[place(0) + 1], LONG_MS);
    ensure!(refusal(agent.ask(&odd)?)?.contains("page"));
    let other = map_request(&target.process, std::process::id(), &[place(0)], LONG_MS);
    let answer = agent.ask(&other)?;
    ensure!(refusal(answer)?.contains("the thread has ended"));

    // The first mapping is taken.
    let taken = target.process.address(Word::Rounds) & !(PAGE - 1);
    let answer = agent.map(&target, &[taken])?;
    ensure!(refusal(answer)?.contains("no free addresses"));

    // Files that it may not open: the sockets, one socket, both descriptors, one of them.
    let files = format!("/proc/{}/fd", target.process.pid);
    let is_free = |number: &u64| !std::path::Path::new(&format!("{files}/{number}")).exists();
    for more in 0..4 {
        let limit = (0..).filter(is_free).nth(more).context("no limit")?;
        let limit = target.process.limit_files(limit)?;
        let why = refusal(agent.map(&target, &[place(0)])?)?;
        println!("{more} more files: {why}");
        ensure!(why.contains("open files"), "{why}");
        target.process.limit_files(limit)?;
        assert_eq!(target.shape()?, before, "{more}");
        let left = target.process.mappings(place(0), place(1))?;
        ensure!(left.is_empty(), "{left:?}");
    }
    target.is_well()?;

    let tid = target.computing;
    let debugger = fork(|| {
        attach(tid)?;
        std::thread::sleep(Duration::from_secs(60));
        Ok(())
    })?;
    let status = format!("/proc/{tid}/status");
    let tracer = format!("TracerPid:\t{debugger}\n");
    until("the debugger", MINUTE, || {
        Ok(std::fs::read_to_string(&status)?.contains(&tracer))
    })?;
    let why = refusal(agent.map(&target, &[place(0)])?)?;
    send(debugger as i32, libc::SIGKILL)?;
    reap(debugger);
    ensure!(
        why.contains("traces it already") && why.contains(&debugger.to_string()),
        "{why}"
    );
    target.is_well()
}

/// Check that a process that ends, or runs another program, while its thread is attached is reported.
#[test]
fn ended_processes_are_reported() -> Result<()> {
    require_root()?;
    let agent = Agent::start()?;
    let target = Target::start()?;
    let request = map_request(&target.process, target.computing, &[place(0)], LONG_MS);
    agent.ask(&request)?;
    target.child.signal(libc::SIGKILL)?;
    ensure!(refusal(agent.answer()?)?.contains("has ended"));

    let mut shell =
        Child::spawn(Command::new("sh").args(["-c", "echo ready; read line; exec sleep 60"]))?;
    shell.line()?;
    let pid = shell.pid();
    let process = Process::of(pid, 0)?;
    agent.ask(&map_request(&process, pid, &[place(0)], LONG_MS))?;
    shell.go()?;
    until("exec", MINUTE, || {
        Ok(std::fs::read_to_string(format!("/proc/{pid}/comm"))? == "sleep\n")
    })?;
    signal_thread(pid, pid, libc::SIGURG)?;
    ensure!(refusal(agent.answer()?)?.contains("another program"));
    ensure!(shell.running()?);

    let target = Target::start()?;
    agent.mapped(&target, &[place(0)])?;
    let pid = target.process.pid;
    drop(target);
    assert_eq!(agent.write(pid, Vec::new())?, [] as [u64; 0]);
    assert_eq!(agent.undo(pid)?, 0);
    Ok(())
}

/// Check that a process of another user is mapped.
#[test]
fn processes_of_other_users_are_mapped() -> Result<()> {
    require_root()?;
    let folder = tempfile::tempdir()?;
    let mut target = Target::start_as_nobody(folder.path())?;
    let agent = Agent::start()?;
    agent.install(&target, &[place(0)], target.process.link_page(0)?, || {})?;
    ensure!(!target.process.slots_are_old()?);
    assert_eq!(agent.undo(target.process.pid)?, SLOTS as u32);
    target.is_well()
}

/// Check that a forked process is restored like its parent: one that the agent has named, by a request; one that it has not, at the end.
#[test]
fn forked_processes_are_restored() -> Result<()> {
    require_root()?;
    let mut target = Target::start()?;
    let agent = Agent::start()?;
    agent.install(&target, &[place(0)], target.process.link_page(0)?, || {})?;
    let parent = target.process.pid;
    let (named, unnamed) = (target.fork()?, target.fork()?);
    let adopt = |pid, start_time, parent| {
        agent.ask(&Request::Adopt {
            pid,
            start_time,
            parent,
        })
    };
    let own = std::process::id();
    for (time, parent, ok) in [
        (named.start_time + 1, parent, false),
        (named.start_time, own, false),
        (named.start_time, parent, true),
    ] {
        let pid = named.pid;
        assert_eq!(adopt(pid, time, parent)?, Answer::Adopted { pid, ok });
    }
    ensure!(!named.slots_are_old()? && !unnamed.slots_are_old()?);
    named.stubs_reach(Word::NewCalls)?;
    assert_eq!(agent.undo(named.pid)?, SLOTS as u32);
    ensure!(named.slots_are_old()? && !target.process.slots_are_old()?);
    ensure!(named.stubs_are_old()? && !target.process.stubs_are_old()?);
    unnamed.stubs_reach(Word::NewCalls)?;
    let installer = agent.installer.pid;
    drop(agent);
    until("the installer's end", MINUTE, || Ok(has_ended(installer)))?;
    for process in [&unnamed, &target.process] {
        ensure!(process.slots_are_old()? && process.stubs_are_old()?);
        process.stubs_reach(Word::OldCalls)?;
    }
    named.is_well()?;
    unnamed.is_well()?;
    target.is_well()
}
