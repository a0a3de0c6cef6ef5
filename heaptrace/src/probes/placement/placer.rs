//! Places the probes of a file, by the rules of its architecture.
//!
//! Stage: probes. It must not know the rules.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use super::emulated::KernelVersion;
use super::model::{Architecture, Function, Needs, Placement, Reason};
use super::skipped::{self, Skipped};
use super::x86::X86;

/// Maximum bytes of a function that are read.
const MAX_BYTES: u64 = 1 << 16;

/// Probes every function at its entry.
struct Entry;

impl Architecture for Entry {
    fn place(&self, _: Function<'_>, _: Needs) -> Placement {
        Placement::entry(String::new(), Reason::NoRules)
    }

    fn skipped(&self, _: &[u8], _: u64) -> Option<Skipped> {
        None
    }
}

/// Places the probes of one file.
pub struct Placer<'a> {
    file: &'a File,
    architecture: Box<dyn Architecture>,
}

impl<'a> Placer<'a> {
    /// A placer for the code of a file, on a kernel.
    pub fn new(file: &'a File, kernel: KernelVersion) -> Self {
        let architecture: Box<dyn Architecture> = if is_x86_64(file) {
            Box::new(X86 { kernel })
        } else {
            Box::new(Entry)
        };
        Self { file, architecture }
    }

    /// Places a probe on the function at an offset in the file.
    ///
    /// The file's code continues for `behind` bytes, and other probed functions are at `others`.
    pub fn place(
        &self,
        offset: u64,
        size: Option<u64>,
        behind: u64,
        others: impl Iterator<Item = u64>,
        needs: Needs,
    ) -> Placement {
        // The function ends before the next one, whatever the symbol's size is.
        let next = others.filter_map(|other| other.checked_sub(offset));
        let room = next.filter(|gap| *gap > 0).min().unwrap_or(u64::MAX);
        let size = size.filter(|size| *size > 0);
        let room = room.min(behind).min(size.unwrap_or(u64::MAX));
        let mut code = vec![0; room.min(MAX_BYTES) as usize];
        match self.file.read_exact_at(&mut code, offset) {
            Ok(()) => self
                .architecture
                .place(Function { code: &code, size }, needs),
            Err(_) => Placement::entry(String::new(), Reason::Unreadable),
        }
    }

    /// The instructions that a call executes before it is behind a probe, for a copy. `None` if they can't be copied.
    ///
    /// The function is at an offset in the file, whose code continues for `behind` bytes. The probe is at `probed` from the
    /// function's entry.
    pub fn skipped(&self, offset: u64, behind: u64, probed: u64) -> Option<Skipped> {
        let mut code = vec![0; behind.min(skipped::MAX_READ) as usize];
        self.file.read_exact_at(&mut code, offset).ok()?;
        self.architecture.skipped(&code, probed)
    }
}

/// Whether a file is 64-bit code for this processor.
fn is_x86_64(file: &File) -> bool {
    const MACHINE_X86_64: [u8; 2] = [62, 0];
    const CLASS_64: u8 = 2;
    let mut head = [0; 20];
    let is_read = file.read_exact_at(&mut head, 0).is_ok();
    cfg!(target_arch = "x86_64")
        && is_read
        && head.starts_with(b"\x7fELF")
        && head[4] == CLASS_64
        && head[18..] == MACHINE_X86_64
}
