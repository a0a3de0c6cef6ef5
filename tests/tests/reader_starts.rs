//! A test of descriptors while readers start. It is alone here: programs that other tests start would have copies of them, too.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use heaptrace::reader::{self, Budget, Job, Limits, Reader};

const ROUNDS: u64 = 300;

/// Check that a descriptor that is closed while no reader starts is closed for good: no reader that starts has a copy of it. (Once,
/// readers had the last descriptors of probes, and removed these probes before they answered.)
#[test]
fn readers_that_start_hold_nothing() -> Result<()> {
    reader::served_by(heaptrace_tests::heaptrace()?.to_owned());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let starting = [(); 2].map(|()| scope.spawn(|| start_until(&is_over)));
        let held: Result<Vec<bool>> = (0..ROUNDS).map(is_held_after_close).collect();
        is_over.store(true, Ordering::Relaxed);
        for thread in starting {
            let started = thread.join().map_err(|_| anyhow!("a thread failed"))??;
            ensure!(started > 0, "no reader was started");
        }
        let held = held?.into_iter().filter(|is_held| *is_held).count();
        ensure!(held == 0, "in {held} of {ROUNDS} rounds");
        Ok(())
    })
}

/// Starts readers, one after the other; returns how many.
fn start_until(is_over: &AtomicBool) -> Result<usize> {
    let file = File::open("/bin/true")?;
    let mut started = 0;
    while !is_over.load(Ordering::Relaxed) {
        let mut reader = Reader::new(&Budget::default(), Limits::default());
        let answer = reader.ask_bytes(Job::Identify, &(), "/bin/true", &[&file]);
        answer.map_err(|reason| anyhow!("{reason}"))?;
        started += 1;
    }
    Ok(started)
}

/// Closes one end of a connection. Whether it is still open elsewhere.
fn is_held_after_close(round: u64) -> Result<bool> {
    let (mut kept, closed) = UnixStream::pair()?;
    kept.set_nonblocking(true)?;
    // Time is the point: readers are at another stage of their start in each round.
    thread::sleep(Duration::from_micros(100 * (round % 30)));
    reader::while_none_starts(|| drop(closed));
    match kept.read(&mut [0]) {
        Ok(read) => Ok(read > 0),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(true),
        Err(error) => Err(error.into()),
    }
}
