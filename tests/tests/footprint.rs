//! Tests of the memory that heaptrace itself uses: kernel maps, and the agent beside them.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use heaptrace_tests::{Child, Heaptrace, c, ready_pid};

/// Most bytes of kernel maps in a run of one small program without `--exact`.
const MAPS: u64 = 32 << 20;

/// Most bytes of resident memory of the agent then, without the kernel maps that it has mapped.
const AGENT: u64 = 24 << 20;

/// A run with a limit of samples and all defaults.
const DEFAULTS: [&str; 3] = ["--mmap", "--max-samples-per-second", "10000"];

/// Bytes of the kernel maps of a process, as the kernel counts them.
fn map_bytes(pid: u32) -> Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(format!("/proc/{pid}/fdinfo"))? {
        // The descriptor may be closed by now.
        let info = fs::read_to_string(entry?.path()).unwrap_or_default();
        if info.contains("map_type:") {
            let bytes = info.lines().find_map(|line| line.strip_prefix("memlock:"));
            sum += bytes
                .context("a map without a size")?
                .trim()
                .parse::<u64>()?;
        }
    }
    Ok(sum)
}

/// Resident bytes of a process without the kernel maps that it has mapped, and those of the mapped ones.
fn resident(pid: u32) -> Result<(u64, u64)> {
    let (mut own, mut mapped) = (0, 0);
    let mut is_map = false;
    for line in fs::read_to_string(format!("/proc/{pid}/smaps"))?.lines() {
        if let Some(kib) = line.strip_prefix("Rss:") {
            let kib: u64 = kib.trim().trim_end_matches(" kB").parse()?;
            *(if is_map { &mut mapped } else { &mut own }) += kib << 10;
        } else if line.split(' ').next().is_some_and(|it| it.contains('-')) {
            is_map = line.ends_with("anon_inode:bpf-map");
        }
    }
    Ok((own, mapped))
}

/// Check that a run of one small program uses little memory, that its report says how much, and that the report counts
/// the kernel maps that the agent has mapped once. (Once, a run used 124 MiB of maps, most of it for an empty table of live
/// blocks, and reports counted the ring three times.)
#[test]
fn a_small_program_needs_little_memory() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let mut target = Child::spawn(&mut c("forever")?.command())?;
    let pid = ready_pid(&target.line()?)?;
    let pid_text = pid.to_string();
    let mut options = vec!["--pid", &pid_text, "--interval", "100ms"];
    options.extend(DEFAULTS);
    let mut tracer = here.start_record(&options)?;
    here.wait_attached(&mut tracer, pid)?;
    here.wait_recorded(pid, 1000)?;
    let maps = map_bytes(tracer.pid())?;
    let (own, mapped) = resident(tracer.pid())?;
    target.signal(libc::SIGTERM)?;
    target.wait()?.success()?;
    let report = here.finish(tracer)?.report;
    report.check_nothing_lost()?;
    let quality = &report.quality;
    let figures = format!(
        "maps {maps}, reported {}; agent {own} and {mapped} mapped, reported {}",
        quality.kernel_map_bytes, quality.agent_peak_bytes
    );
    println!("{figures}");
    ensure!(maps > 0 && mapped > 0, "{figures}");
    ensure!(
        maps <= MAPS && quality.kernel_map_bytes <= MAPS,
        "{figures}"
    );
    ensure!(
        own <= AGENT && quality.agent_peak_bytes <= AGENT,
        "{figures}"
    );
    // Nothing is left out of the figures either. Both may have changed a little since they were read here.
    ensure!(quality.kernel_map_bytes >= maps / 2, "{figures}");
    ensure!(quality.agent_peak_bytes >= own / 4 * 3, "{figures}");
    Ok(())
}

/// Check that sizes that the user asks for are kept in such a run.
#[test]
fn explicit_sizes_are_kept() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let mut options = vec![
        "--ring-size",
        "32MiB",
        "--max-live",
        "4000000",
        "--sample",
        "512",
    ];
    options.extend(DEFAULTS);
    let report = here.record(&options, &[c("hooks")?])?.report;
    let maps = report.quality.kernel_map_bytes;
    // The ring, and 16 bytes for each possible block.
    ensure!(maps > (32 << 20) + (64 << 20), "{maps}");
    Ok(())
}
