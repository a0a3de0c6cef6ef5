//! Tests of linkage stubs that are led elsewhere while threads run them.

use std::time::Instant;

use anyhow::{Result, bail, ensure};
use heaptrace::probes::fast::installer::{Answer, LinkPlace, Request};
use heaptrace::probes::fast::patch::Patch;
use heaptrace_tests::{MINUTE, has_ended, require_root, until};

use crate::agent::{Agent, CODE, LONG_MS, PAGE, SIZES, map_request, place};
use crate::target::{Target, Word};

/// Maps with these pages of links. Returns their addresses.
fn map_with(agent: &Agent, target: &Target, at: u64, wanted: Vec<LinkPlace>) -> Result<Vec<u64>> {
    let mut request = map_request(&target.process, target.computing, &[at], LONG_MS);
    if let Request::Map { links, .. } = &mut request {
        *links = wanted;
    }
    match agent.map_by(target, &request)? {
        Answer::Mapped { base, links, .. } if base == at => Ok(links),
        other => bail!("{other:?}"),
    }
}

fn undo(agent: &Agent, pid: u32) -> Result<u32> {
    match agent.ask(&Request::Undo { pid })? {
        Answer::Undone { stubs, .. } => Ok(stubs),
        other => bail!("{other:?}"),
    }
}

/// Check that pages of links are mapped at their first free place for reading alone, that calls through stubs go elsewhere and back
/// while a thread makes them, that the slot keeps its value, and that stubs with other bytes or links elsewhere are left alone.
#[test]
fn stubs_are_redirected_and_put_back() -> Result<()> {
    require_root()?;
    let mut target = Target::start()?;
    let (process, pid) = (&target.process, target.process.pid);
    let before = target.shape()?;
    let agent = Agent::start()?;
    let taken = process.address(Word::Rounds) & !(PAGE - 1);
    let page = process.link_page(0)?;
    let wanted = vec![
        LinkPlace::FirstFree(vec![taken, page, process.link_page(1)?]),
        LinkPlace::FirstFree(vec![taken]),
        LinkPlace::FirstFree(vec![]),
        LinkPlace::Old(taken),
    ];
    let links = map_with(&agent, &target, place(0), wanted)?;
    assert_eq!(links, [page, 0, 0, 0]);
    let mapped = process.mappings(page, page + PAGE)?;
    assert_eq!(mapped, [("r--p".to_owned(), PAGE, String::new())]);
    assert_eq!(target.shape()?, before);
    ensure!(agent.fill(pid, place(0), &CODE)?);

    let stubs = process.redirects(page, place(0))?;
    let mut elsewhere = process.redirects(process.link_page(1)?, place(0))?;
    assert_eq!(agent.redirect(pid, elsewhere.clone())?, [0; 0]);
    elsewhere.clone_from(&stubs);
    elsewhere[0].patch.old += 1;
    elsewhere[1].link = taken;
    assert_eq!(agent.redirect(pid, elsewhere)?, [0; 0]);
    ensure!(process.stubs_are_old()?);
    let addresses = stubs.iter().map(|it| it.patch.address);
    let addresses: Vec<u64> = addresses.collect();
    assert_eq!(agent.redirect(pid, stubs.clone())?, addresses);
    assert_eq!(agent.redirect(pid, stubs.clone())?, addresses);
    for jump in process.jumps()? {
        assert_eq!(jump.word(), Some(stubs[0].link));
    }
    process.stubs_reach(Word::NewCalls)?;
    let old = process.get(Word::OldCalls)?;
    process.compute_on()?;
    assert_eq!(process.get(Word::OldCalls)?, old);
    // A child has the stubs, and restoring the parent leaves them.
    let child = target.fork()?;
    assert_eq!(undo(&agent, pid)?, 2);
    ensure!(target.process.stubs_are_old()? && !child.stubs_are_old()?);
    target.process.stubs_reach(Word::OldCalls)?;
    child.stubs_reach(Word::NewCalls)?;
    child.is_well()?;
    target.is_well()
}

/// Check that a thread is not disturbed however often its stubs are changed.
#[test]
fn stubs_are_changed_under_a_running_thread() -> Result<()> {
    require_root()?;
    let mut target = Target::start()?;
    let (process, pid) = (&target.process, target.process.pid);
    let begin = Instant::now();
    let mut changes = 0;
    for (number, distance) in [1, 0x10].into_iter().enumerate() {
        let agent = Agent::start()?;
        let at = place(number as u64);
        let page = process.link_page(distance)?;
        let wanted = vec![LinkPlace::FirstFree(vec![page])];
        assert_eq!(map_with(&agent, &target, at, wanted)?, [page]);
        ensure!(agent.fill(pid, at, &CODE)?);
        let there = process.redirects(page, at)?;
        let back: Vec<Patch> = there.iter().map(|it| it.patch.undone()).collect();
        let (start_time, slots) = (process.start_time, Vec::new());
        let back = Request::PutBack {
            pid,
            start_time,
            slots,
            stubs: back,
        };
        for _ in 0..20_000 {
            let there = agent.redirect(pid, there.clone())?;
            let back = agent.ask(&back)?;
            match &back {
                Answer::Written { written, .. } if *written == there && there.len() == 2 => {}
                other => {
                    ensure!(target.child.running()?, "ended after {changes} changes");
                    bail!("{there:x?} {other:?}")
                }
            }
            changes += 4;
        }
        undo(&agent, pid)?;
        ensure!(process.stubs_are_old()?);
    }
    println!("{changes} changes in {:?}", begin.elapsed());
    let calls = (process.get(Word::OldCalls)?, process.get(Word::NewCalls)?);
    println!("{calls:?} calls before and behind a change");
    ensure!(calls.1 > 0);
    target.is_well()
}

/// Check that the links of an earlier run are used again, that they are restored when the agent is gone, and that stubs that no
/// installer remembers are put back by value.
#[test]
fn links_of_an_earlier_run_are_used_again() -> Result<()> {
    require_root()?;
    let mut target = Target::start()?;
    let (process, pid) = (&target.process, target.process.pid);
    let page = process.link_page(0)?;
    let first = Agent::start()?;
    first.install(&target, &[place(0)], page, || {})?;
    process.stubs_reach(Word::NewCalls)?;
    let stubs = {
        first.undo(pid)?;
        process.redirects(page, place(0))?
    };
    let installer = first.installer.pid;
    drop(first);
    until("the installer's end", MINUTE, || Ok(has_ended(installer)))?;
    let mappings = process.mappings(0, place(0))?;

    let agent = Agent::start()?;
    let wanted = vec![
        LinkPlace::Old(page + PAGE),
        LinkPlace::Old(page),
        LinkPlace::Old(place(0) + SIZES.code),
    ];
    assert_eq!(map_with(&agent, &target, place(1), wanted)?, [0, page, 0]);
    // The links lead to the earlier code.
    let mut other = stubs.clone();
    other[0].target = place(1);
    assert_eq!(agent.redirect(pid, other)?, [stubs[1].patch.address]);
    assert_eq!(agent.redirect(pid, stubs.clone())?.len(), 2);
    process.stubs_reach(Word::NewCalls)?;
    assert_eq!(process.mappings(0, place(0))?, mappings);
    let installer = agent.installer.pid;
    drop(agent);
    until("the installer's end", MINUTE, || Ok(has_ended(installer)))?;
    ensure!(process.stubs_are_old()?);

    // As after a run that was killed with its installer.
    let patch = stubs[0].patch;
    let word = patch.address - patch.address % 8;
    let shift = 8 * (patch.address % 8);
    let bytes = process.read(word)? & !(u64::from(u32::MAX) << shift);
    process.write(word, bytes | u64::from(patch.new) << shift)?;
    ensure!(!process.stubs_are_old()?);
    let agent = Agent::start()?;
    let back = |start_time| Request::PutBack {
        pid,
        start_time,
        slots: Vec::new(),
        // The other one is not changed, and has other bytes.
        stubs: stubs.iter().map(|it| it.patch.undone()).collect(),
    };
    for (time, expected) in [(process.start_time + 1, 0), (process.start_time, 1)] {
        match agent.ask(&back(time))? {
            Answer::Written { written, .. } => assert_eq!(written.len(), expected),
            other => bail!("{other:?}"),
        }
    }
    ensure!(process.stubs_are_old()?);
    process.stubs_reach(Word::OldCalls)?;
    target.is_well()
}
