//! A test of the installer whose agent is killed at each step.

use std::time::Duration;

use anyhow::{Result, ensure};
use heaptrace_tests::{MINUTE, Random, has_ended, require_root, until};

use crate::agent::{Agent, die, die_later, fork, place, reap};
use crate::target::{Target, Word};

/// Steps of an installation.
const STEPS: u64 = 10;

/// Check that nothing is left if the agent is killed before, between or behind any of its steps.
#[test]
fn a_killed_agent_harms_no_target() -> Result<()> {
    require_root()?;
    let mut target = Target::start()?;
    let before = target.shape()?;
    let mut random = Random(1);
    let (mut written, mut redirected, mut failed) = (0, 0, 0);
    for round in 0..200 {
        let agent = Agent::start()?;
        let installer = agent.installer.pid;
        // First exactly at each step, then some time behind a step.
        let (end, delay) = match round {
            0..30 => (round % STEPS, None),
            _ => (
                random.below(STEPS as usize) as u64,
                Some(random.below(1500)),
            ),
        };
        let shared = &target;
        let links = target.process.link_page(round)?;
        let killed = fork(|| {
            let mut step = 0;
            agent.install(shared, &[place(round)], links, || {
                if step == end {
                    delay.map_or_else(die, die_later);
                }
                step += 1;
            })?;
            std::thread::sleep(Duration::from_secs(60));
            Ok(())
        })?;
        // The forked agent alone has the connection now.
        drop(agent);
        let status = reap(killed);
        // The thread was in a system call.
        failed += u64::from(libc::WIFEXITED(status));
        written += u64::from(!target.process.slots_are_old()?);
        redirected += u64::from(!target.process.stubs_are_old()?);
        until("the installer's end", MINUTE, || Ok(has_ended(installer)))?;
        ensure!(target.process.slots_are_old()?, "round {round}");
        ensure!(target.process.stubs_are_old()?, "round {round}");
        ensure!(target.child.running()?, "round {round}");
    }
    println!(
        "seen with written slots {written} times, with changed stubs {redirected} times; not mapped {failed} times"
    );
    ensure!(target.process.get(Word::NewCalls)? > 0);
    // The last hand may still map.
    until("the target as before", MINUTE, || {
        Ok(target.shape()? == before)
    })?;
    assert_eq!(target.process.get(Word::Interrupted)?, 0);
    target.is_well()
}
