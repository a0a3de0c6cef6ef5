//! Tests of a mapping that an earlier run has left.

use std::os::unix::fs::FileExt as _;

use anyhow::{Result, bail, ensure};
use heaptrace::probes::fast::code::cookie_at;
use heaptrace::probes::fast::installer::{Answer, Request, Slot};
use heaptrace_tests::{MINUTE, has_ended, require_root, until};

use crate::agent::{Agent, CODE, PAGE, SIZES, TOTAL, all_slots, place};
use crate::refusal;
use crate::target::{Process, SLOTS, Target, Word};

/// Maps and fills as a run does, and ends that run. Returns the hints, which no run changes any more.
fn run_once(target: &Target) -> Result<std::fs::File> {
    let agent = Agent::start()?;
    let (pid, installer) = (target.process.pid, agent.installer.pid);
    assert_eq!(agent.mapped(target, &[place(0)])?, place(0));
    ensure!(agent.fill(pid, place(0), &CODE)?);
    agent.hints.write_all_at(&99_u64.to_ne_bytes(), 16)?;
    agent.undo(pid)?;
    let hints = agent.hints.try_clone()?;
    drop(agent);
    until("the installer's end", MINUTE, || Ok(has_ended(installer)))?;
    Ok(hints)
}

fn mapped_again(agent: &Agent, target: &Target) -> Result<()> {
    match agent.map_again(target, place(0))? {
        Answer::Mapped { base, .. } if base == place(0) => Ok(()),
        other => bail!("{other:?}"),
    }
}

/// Check that an earlier mapping is used again: the process gets no second one and no descriptors, its hints are replaced
/// while a thread reads them, its code runs on, and only the cookie of it can be written.
#[test]
fn an_earlier_mapping_is_used_again() -> Result<()> {
    require_root()?;
    let mut target = Target::start()?;
    let before = target.shape()?;
    let old_hints = run_once(&target)?;
    let (process, pid) = (&target.process, target.process.pid);
    let (base, data) = (place(0), place(0) + SIZES.code);
    let mappings = process.mappings(0, u64::MAX)?;
    process.set(Word::Function, base)?;
    process.set(Word::Hint, data + SIZES.data + 16)?;
    let is_seen = |hint| {
        until("the hint", MINUTE, || {
            Ok(process.get(Word::HintSeen)? == hint)
        })
    };
    is_seen(99)?;
    for round in 0..20_u64 {
        let agent = Agent::start()?;
        agent.hints.write_all_at(&(100 + round).to_ne_bytes(), 16)?;
        mapped_again(&agent, &target)?;
        is_seen(100 + round)?;
        old_hints.write_all_at(&7_u64.to_ne_bytes(), 16)?;
        process.compute_on()?;
        is_seen(100 + round)?;
        assert_eq!(target.shape()?, before);
        assert_eq!(process.mappings(0, u64::MAX)?, mappings);

        let cookie = cookie_at(base);
        for (address, bytes) in [
            (base, &[0; 8][..]),
            (cookie - 8, &[0; 8]),
            (cookie + 8, &[0; 8]),
            (cookie, &[0; 16]),
            (cookie, &[0; 4]),
            (cookie + 4, &[0; 4]),
            (data + PAGE, &[0; 8]),
        ] {
            ensure!(!agent.fill(pid, address, bytes)?, "{address:#x}");
        }
        ensure!(agent.fill(pid, cookie, &round.to_ne_bytes())?);
        assert_eq!(process.read(cookie)?, round);
        ensure!(agent.fill(pid, data, &round.to_ne_bytes())?);
        assert_eq!(process.read(data)?, round);
        assert_eq!(process.read(base)?.to_ne_bytes()[..CODE.len()], CODE);
        let results = process.get(Word::Results)?;
        until("42s", MINUTE, || Ok(process.get(Word::Results)? > results))?;
        let slots = all_slots(process);
        assert_eq!(agent.write(pid, slots)?.len(), SLOTS as usize);
        assert_eq!(agent.undo(pid)?, SLOTS as u32);
        ensure!(process.slots_are_old()?);
    }
    target.is_well()
}

/// Check that slots are restored when the agent is gone, also those of a forked process, if the mapping is an earlier run's.
#[test]
fn slots_of_an_earlier_mapping_are_restored() -> Result<()> {
    require_root()?;
    let mut target = Target::start()?;
    drop(run_once(&target)?);
    let agent = Agent::start()?;
    mapped_again(&agent, &target)?;
    agent.write(target.process.pid, all_slots(&target.process))?;
    let child = target.fork()?;
    ensure!(!target.process.slots_are_old()? && !child.slots_are_old()?);
    let installer = agent.installer.pid;
    drop(agent);
    until("the installer's end", MINUTE, || Ok(has_ended(installer)))?;
    ensure!(target.process.slots_are_old()? && child.slots_are_old()?);
    child.is_well()?;
    target.is_well()
}

/// Check that only a mapping of an earlier run is used again, with all of its parts, and that nothing is changed otherwise.
#[test]
fn other_addresses_are_refused() -> Result<()> {
    require_root()?;
    let mut target = Target::start()?;
    drop(run_once(&target)?);
    let process = &target.process;
    let mappings = process.mappings(0, u64::MAX)?;
    let agent = Agent::start()?;
    let own = process.address(Word::Rounds) & !(PAGE - 1);
    for base in [place(0) + PAGE, place(0) - PAGE, place(1), own] {
        let why = refusal(agent.map_again(&target, base)?)?;
        ensure!(why.contains("no mapping of an earlier run"), "{why}");
    }
    for base in [place(0) + 1, 0, u64::MAX - 4095] {
        ensure!(refusal(agent.map_again(&target, base)?)?.contains("page"));
    }
    // Lengths of another version.
    let (computing, long) = (target.computing, crate::LONG_MS);
    let mut request = crate::map_request(process, computing, &[], long);
    if let Request::Map { old, sizes, .. } = &mut request {
        *old = Some(place(0));
        sizes.hints -= PAGE / 2;
    }
    ensure!(refusal(agent.ask(&request)?)?.contains("page"));
    if let Request::Map { sizes, .. } = &mut request {
        sizes.code -= PAGE;
        sizes.hints = PAGE;
    }
    ensure!(refusal(agent.ask(&request)?)?.contains("no mapping of an earlier run"));
    assert_eq!(process.mappings(0, u64::MAX)?, mappings);

    // Files that it may not open: the first sockets.
    let limit = process.limit_files(0)?;
    let why = refusal(agent.map_again(&target, place(0))?)?;
    ensure!(why.contains("open files"), "{why}");
    process.limit_files(limit)?;
    assert_eq!(process.mappings(0, u64::MAX)?, mappings);
    assert_eq!(process.mappings(place(0), place(0) + TOTAL)?.len(), 4);
    mapped_again(&agent, &target)?;
    target.is_well()
}

/// Check that slots that no installer remembers are put back by value, without a mapping, and stay so.
#[test]
fn left_slots_are_put_back() -> Result<()> {
    require_root()?;
    let mut target = Target::start()?;
    let process = &target.process;
    let written = all_slots(process);
    for slot in &written {
        process.write(slot.address, slot.new)?;
    }
    let back = written.iter().map(|slot| Slot {
        address: slot.address,
        old: slot.new,
        new: slot.old,
    });
    let put_back = |start_time| Request::PutBack {
        pid: process.pid,
        start_time,
        slots: back.clone().collect(),
        stubs: Vec::new(),
    };
    let agent = Agent::start()?;
    let written = |answer| match answer {
        Answer::Written { written, .. } => Ok(written.len()),
        other => bail!("{other:?}"),
    };
    assert_eq!(written(agent.ask(&put_back(process.start_time + 1))?)?, 0);
    process.write(process.slot(3), 77)?;
    assert_eq!(
        written(agent.ask(&put_back(process.start_time))?)?,
        SLOTS as usize - 1
    );
    assert_eq!(process.read(process.slot(3))?, 77);
    process.write(process.slot(3), Process::slot_value(3))?;
    let installer = agent.installer.pid;
    drop(agent);
    until("the installer's end", MINUTE, || Ok(has_ended(installer)))?;
    ensure!(process.slots_are_old()?);
    target.is_well()
}
