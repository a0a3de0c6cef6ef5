//! Reasons why a file with an allocator is not probed: the kernel refuses a probe, or a limit is reached.
//!
//! Stage: probes. A refusal concerns one file: the report names the file, and the run continues. Must not know what is
//! attached.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use thiserror::Error;

use crate::proc::owner::Owner;

/// Most probes on one file. The largest allocator of the tests has 150.
pub const MOST_OF_FILE: usize = 256;

/// Most probes on the files of one user or container: enough for a few programs with allocators of their own. The kernel
/// removes one probe after the other, and each takes some hundredths of a second.
pub const MOST_OF_OWNER: usize = 1024;

/// Most unprobed files of an owner that are named. Further ones are only counted.
const MOST_NAMED_OF_OWNER: usize = 64;

/// The kernel's internal `ENOTSUPP`, which C libraries don't define.
const ENOTSUPP: i32 = 524;

/// Length of the processor's longest instruction.
#[cfg(target_arch = "x86_64")]
const LONGEST: usize = 15;

/// Why a file is not probed.
#[derive(Debug, Error)]
pub enum Refusal {
    /// It has more probe locations than any real allocator.
    #[error("it has {0} probe locations, more than the limit of {MOST_OF_FILE} for one file")]
    TooManyPlaces(usize),
    /// The limit of its owner is reached.
    #[error("the limit of {MOST_OF_OWNER} probes for {0} is reached")]
    OwnerSpent(Owner),
    /// The limit of open files is reached.
    #[error(
        "heaptrace's limit of {0} open files is reached; raise it (`ulimit -Hn`, or LimitNOFILE= of its service)"
    )]
    NoDescriptors(u64),
    /// The guardian, whose process the links belong to, is gone.
    #[error("heaptrace's guardian process is gone")]
    NoGuardian,
    /// The kernel can't put a breakpoint on this instruction.
    #[error("the kernel can't probe {0}, which begins with {1}")]
    Instruction(String, &'static str),
    /// The kernel refused for another reason.
    #[error("the kernel refuses a probe on {0}: {1}")]
    Kernel(String, io::Error),
}

impl Refusal {
    /// The refusal for an error that the kernel returned for a probe on a function.
    pub(super) fn of_kernel(function: &str, error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE) => Self::NoDescriptors(crate::sys::most_open_files()),
            Some(ENOTSUPP) => {
                Self::Instruction(function.to_owned(), "an instruction that can't be moved")
            }
            _ => Self::Kernel(function.to_owned(), error),
        }
    }
}

/// Counts per owner: its probes, and its named unprobed files.
#[derive(Debug, Default)]
pub(super) struct Spent {
    by_owner: HashMap<Owner, usize>,
    named: HashMap<Owner, usize>,
}

impl Spent {
    /// Counts probes for a file of this owner, unless a limit would be exceeded.
    pub(super) fn take(&mut self, owner: &Owner, count: usize) -> Result<(), Refusal> {
        if count > MOST_OF_FILE {
            return Err(Refusal::TooManyPlaces(count));
        }
        let spent = self.by_owner.entry(owner.clone()).or_default();
        if *spent + count > MOST_OF_OWNER {
            return Err(Refusal::OwnerSpent(owner.clone()));
        }
        *spent += count;
        Ok(())
    }

    /// Counts one more named file of this owner, and returns whether it may be named.
    pub(super) fn take_name(&mut self, owner: &Owner) -> bool {
        let named = self.named.entry(owner.clone()).or_default();
        *named += 1;
        *named <= MOST_NAMED_OF_OWNER
    }

    /// Takes back probes that were not attached.
    pub(super) fn give_back(&mut self, owner: &Owner, count: usize) {
        if let Some(spent) = self.by_owner.get_mut(owner) {
            *spent = spent.saturating_sub(count);
        }
    }
}

/// Says why the kernel would refuse a probe at an offset of a file, as far as the code shows it. The kernel itself checks
/// only when a process maps the code. A process that maps it later would silently stay without probes.
#[cfg(target_arch = "x86_64")]
pub(super) fn unprobeable(file: &File, offset: u64) -> Option<&'static str> {
    let mut code = [0; LONGEST];
    match file.read_at(&mut code, offset) {
        Ok(count @ 1..) => refused(code.get(..count)?),
        _ => Some("no code: the file ends before it"),
    }
}

/// On other architectures, nothing is known to be refused.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn unprobeable(_: &File, _: u64) -> Option<&'static str> {
    None
}

#[cfg(target_arch = "x86_64")]
fn refused(code: &[u8]) -> Option<&'static str> {
    // Prefixes that are allowed: operand and address size, the segments FS and GS, repetition.
    let is_harmless = |byte: &u8| matches!(byte, 0x64..=0x67 | 0xf2 | 0xf3);
    let mut rest = code.iter().skip_while(|byte| is_harmless(byte));
    match rest.next()? {
        0xcc => Some("a breakpoint instruction"),
        0xf0 => Some("a lock prefix"),
        0x26 | 0x2e | 0x36 | 0x3e => Some("a segment prefix"),
        0xcd | 0xce | 0xcf | 0xf1 | 0xf4 | 0xfa | 0xfb => {
            Some("a privileged or interrupt instruction")
        }
        0x6c..=0x6f | 0xe4..=0xe7 | 0xec..=0xef => Some("an input or output instruction"),
        0x06
        | 0x07
        | 0x0e
        | 0x16
        | 0x17
        | 0x1e
        | 0x1f
        | 0x27
        | 0x2f
        | 0x37
        | 0x3f
        | 0x60
        | 0x61
        | 0x82
        | 0x9a
        | 0xd4..=0xd6
        | 0xea => Some("an invalid instruction"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that instructions that the kernel refuses are recognized, also behind prefixes, and that ordinary ones pass.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn refused_instructions_are_recognized() {
        for code in [
            &[0xcc][..],
            &[0xf0, 0x0f, 0xb1, 0x0f],
            &[0x66, 0xcc],
            &[0xf4],
            &[0x2e, 0x90],
        ] {
            assert!(refused(code).is_some(), "{code:x?}");
        }
        // push, endbr64, mov, jmp, sub, repeated nop.
        for code in [
            &[0x55][..],
            &[0xf3, 0x0f, 0x1e, 0xfa],
            &[0x48, 0x89, 0xe5],
            &[0xe9, 0, 0, 0, 0],
            &[0x48, 0x83, 0xec, 8],
            &[0x66, 0x90],
            &[0xf2, 0xc3],
        ] {
            assert_eq!(refused(code), None, "{code:x?}");
        }
    }

    /// Check that each owner has a limit of its own, and that probes that were given back can be taken again.
    #[test]
    fn owners_have_separate_limits() {
        let mut spent = Spent::default();
        let (one, other) = (Owner::User(1), Owner::User(2));
        assert!(matches!(
            spent.take(&one, MOST_OF_FILE + 1),
            Err(Refusal::TooManyPlaces(_))
        ));
        for _ in 0..MOST_OF_OWNER / MOST_OF_FILE {
            spent.take(&one, MOST_OF_FILE).unwrap();
        }
        assert!(matches!(spent.take(&one, 1), Err(Refusal::OwnerSpent(_))));
        spent.take(&other, MOST_OF_FILE).unwrap();
        spent.give_back(&one, MOST_OF_FILE);
        spent.take(&one, MOST_OF_FILE).unwrap();
    }
}
