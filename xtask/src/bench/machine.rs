//! Describes the machine of a measurement: kernel, processor, versions, date.
//!
//! Part of bench. It must not measure anything itself.

use std::fmt;
use std::fs;
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result};

use crate::{process, workspace};

/// A machine and its programs.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The kernel's release.
    pub kernel: String,
    /// The processor's name.
    pub cpu: String,
    /// Whether it is a virtual machine, in which traps cost several times as much.
    pub virtual_machine: bool,
    /// The number of usable processors.
    pub cpus: usize,
    /// The C library's name and version.
    pub libc: String,
    /// heaptrace's version and commit.
    pub heaptrace: String,
    /// The compiler that built heaptrace.
    pub rustc: String,
    /// The day, in UTC.
    pub date: String,
}

impl Machine {
    /// Describes this machine.
    pub fn look() -> Result<Self> {
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")
            .context("cannot read the kernel's release")?;
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").context("cannot read /proc/cpuinfo")?;
        let version =
            process::output(Command::new(workspace::heaptrace_binary()).arg("--version"))?;
        let commit = ask("git", &["rev-parse", "--short=12", "HEAD"]);
        Ok(Self {
            kernel: kernel.trim().to_owned(),
            cpu: cpu_name(&cpuinfo).to_owned(),
            virtual_machine: is_virtual(&cpuinfo),
            cpus: thread::available_parallelism().map_or(1, usize::from),
            libc: ask("getconf", &["GNU_LIBC_VERSION"]),
            heaptrace: format!("{} ({commit})", version.trim()),
            rustc: ask("rustc", &["--version"]),
            date: ask("date", &["-u", "+%Y-%m-%d"]),
        })
    }
}

/// Writes the lines at the top of a page of results.
impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let guest = if self.virtual_machine {
            ", in a virtual machine"
        } else {
            ""
        };
        writeln!(f, "- Date: {}", self.date)?;
        writeln!(f, "- heaptrace: {}, {}", self.heaptrace, self.rustc)?;
        writeln!(f, "- Kernel: Linux {}", self.kernel)?;
        writeln!(f, "- Processor: {} × {}{guest}", self.cpus, self.cpu)?;
        writeln!(f, "- C library: {}", self.libc)
    }
}

fn cpu_name(cpuinfo: &str) -> &str {
    cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or("unknown", |(_, name)| name.trim())
}

fn is_virtual(cpuinfo: &str) -> bool {
    cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("flags")?.split_once(':'))
        .is_some_and(|(_, flags)| flags.split_whitespace().any(|flag| flag == "hypervisor"))
}

/// Returns the program's output, or "unknown", because a missing version should not fail a measurement.
fn ask(program: &str, args: &[&str]) -> String {
    let output = Command::new(program)
        .args(args)
        .current_dir(workspace::root())
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    match output {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        }
        _ => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the processor's name and the hypervisor's flag are read from the kernel's format.
    #[test]
    fn cpuinfo_is_read() {
        let guest =
            "processor\t: 0\nmodel name\t: Some CPU @ 3 GHz\nflags\t\t: fpu hypervisor sse\n";
        assert_eq!(cpu_name(guest), "Some CPU @ 3 GHz");
        assert!(is_virtual(guest));
        assert!(!is_virtual("flags\t\t: fpu sse\n"));
        assert_eq!(cpu_name(""), "unknown");
    }
}
