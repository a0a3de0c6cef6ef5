//! The emulated machine: boots a kernel with a file system, and collects the output until it powers off.
//!
//! Part of `cargo xtask vm`. It knows marks only to show progress, and must not know the comparison.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::console::Mark;

/// Ten times the usual duration on an idle machine.
const LIMIT: Duration = Duration::from_secs(600);

/// The longest pause between two lines. A fixture that hangs ends itself after two minutes.
const SILENCE: Duration = Duration::from_secs(180);

/// The number of console lines in an error message.
const SHOWN: usize = 25;

/// Kills the emulator when this is dropped.
struct Emulator(Child);

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Boots the kernel and returns its output. It uses software emulation, so it needs no KVM.
pub(super) fn boot(image: &Path, initrd: &Path, cpus: u32, more: &str) -> Result<String> {
    let mut command = Command::new("qemu-system-x86_64");
    command
        .args(["-accel", "tcg,thread=multi", "-cpu", "max", "-m", "1024"])
        .args(["-smp", &cpus.to_string()])
        .args(["-nographic", "-vga", "none", "-nic", "none", "-no-reboot"])
        .arg("-kernel")
        .arg(image)
        .arg("-initrd")
        .arg(initrd)
        .arg("-append")
        .arg(format!("console=ttyS0 quiet loglevel=1 panic=-1 {more}"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut emulator = Emulator(command.spawn().context("cannot run qemu-system-x86_64")?);
    let lines = {
        let (stdout, stderr) = (emulator.0.stdout.take(), emulator.0.stderr.take());
        let (sender, lines) = mpsc::channel();
        send_lines(stdout.context("qemu has no output")?, sender.clone());
        send_lines(stderr.context("qemu has no errors")?, sender);
        lines
    };
    let mut console = String::new();
    collect(&lines, &mut console).with_context(|| last_lines(&console))?;
    let status = emulator.0.wait()?;
    ensure!(
        status.success(),
        "qemu failed: {status}\n{}",
        last_lines(&console)
    );
    Ok(console)
}

fn send_lines(pipe: impl Read + Send + 'static, sender: mpsc::Sender<String>) {
    thread::spawn(move || {
        let mut reader = BufReader::new(pipe);
        let mut line = Vec::new();
        while matches!(reader.read_until(b'\n', &mut line), Ok(1..)) {
            if sender
                .send(String::from_utf8_lossy(&line).into_owned())
                .is_err()
            {
                return;
            }
            line.clear();
        }
    });
}

/// Collects lines until both pipes are closed, and shows the running fixture.
fn collect(lines: &Receiver<String>, console: &mut String) -> Result<()> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match lines.recv_timeout(left.min(SILENCE)) {
            Ok(line) => {
                if let Some((Mark::Run, name)) = Mark::of(line.trim_end()) {
                    println!("    {name}");
                }
                console.push_str(&line);
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => bail!("the machine did not end in time"),
        }
    }
}

fn last_lines(console: &str) -> String {
    let lines: Vec<&str> = console.lines().collect();
    let from = lines.len().saturating_sub(SHOWN);
    let tail: Vec<String> = lines
        .get(from..)
        .unwrap_or_default()
        .iter()
        .map(|line| line.chars().take(200).collect::<String>())
        .map(|line| line.replace(|c: char| c.is_control(), ""))
        .collect();
    format!("the console's last lines:\n{}\n", tail.join("\n"))
}
