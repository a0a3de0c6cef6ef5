//! Why a file is not probed, though it has an allocator: what the kernel refuses, and what the limits do.
//!
//! Stage: probes. A refusal belongs to its file: it is named there, and the run goes on. Knows nothing of what is
//! attached.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use thiserror::Error;

use crate::proc::owner::Owner;

/// Most probes on one file. The allocators of the tests have 150 at most.
pub const MOST_OF_FILE: usize = 256;

/// Most probes on the files of one user or container: a few programs with allocators of their own. Each probe takes the
/// kernel some hundredths of a second to take out, one after the other.
pub const MOST_OF_OWNER: usize = 1024;

/// Most files of an owner that are named as not probed; more are only counted.
const MOST_NAMED_OF_OWNER: usize = 64;

/// The kernel's own `ENOTSUPP`, which is none of the numbers that libraries know.
const ENOTSUPP: i32 = 524;

/// Longest instruction of the processor.
#[cfg(target_arch = "x86_64")]
const LONGEST: usize = 15;

/// Why a file is not probed.
#[derive(Debug, Error)]
pub enum Refusal {
    /// It has more to probe than any allocator.
    #[error("it has {0} places to probe, more than the {MOST_OF_FILE} that a file may have")]
    TooManyPlaces(usize),
    /// Its owner has used up what it may have.
    #[error("the {MOST_OF_OWNER} probes that {0} may have are used up")]
    OwnerSpent(Owner),
    /// There are no more descriptors.
    #[error(
        "the {0} files that heaptrace may have open are used up; raise the limit (`ulimit -Hn`, or LimitNOFILE= of its service)"
    )]
    NoDescriptors(u64),
    /// Probes need a process to belong to, and it is gone.
    #[error("heaptrace's guardian process is gone")]
    NoGuardian,
    /// The kernel would not put a breakpoint there.
    #[error("the kernel doesn't probe {0}, which begins with {1}")]
    Instruction(String, &'static str),
    /// The kernel says no.
    #[error("the kernel refuses a probe on {0}: {1}")]
    Kernel(String, io::Error),
}

impl Refusal {
    /// What an error of the kernel's says of a probe on a function.
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

/// What each owner has used up: probes, and names of files that are not probed.
#[derive(Debug, Default)]
pub(super) struct Spent {
    by_owner: HashMap<Owner, usize>,
    named: HashMap<Owner, usize>,
}

impl Spent {
    /// Takes so many probes for a file of this owner.
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

    /// Whether one more file of this owner may be named.
    pub(super) fn take_name(&mut self, owner: &Owner) -> bool {
        let named = self.named.entry(owner.clone()).or_default();
        *named += 1;
        *named <= MOST_NAMED_OF_OWNER
    }

    /// Gives back what was not used.
    pub(super) fn give_back(&mut self, owner: &Owner, count: usize) {
        if let Some(spent) = self.by_owner.get_mut(owner) {
            *spent = spent.saturating_sub(count);
        }
    }
}

/// What the kernel refuses at an offset of a file, as far as that can be told from the code. The kernel itself looks
/// only when a process has the code mapped: one that maps it later would stay without probes, and nobody would know.
#[cfg(target_arch = "x86_64")]
pub(super) fn unprobeable(file: &File, offset: u64) -> Option<&'static str> {
    let mut code = [0; LONGEST];
    match file.read_at(&mut code, offset) {
        Ok(count @ 1..) => refused(code.get(..count)?),
        _ => Some("nothing: the file ends before it"),
    }
}

/// What the kernel refuses at an offset of a file.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn unprobeable(_: &File, _: u64) -> Option<&'static str> {
    None
}

#[cfg(target_arch = "x86_64")]
fn refused(code: &[u8]) -> Option<&'static str> {
    // Operand and address size, segments that are of use, repetition: what may stand before.
    let is_harmless = |byte: &u8| matches!(byte, 0x64..=0x67 | 0xf2 | 0xf3);
    let mut rest = code.iter().skip_while(|byte| is_harmless(byte));
    match rest.next()? {
        0xcc => Some("a breakpoint of its own"),
        0xf0 => Some("a lock prefix"),
        0x26 | 0x2e | 0x36 | 0x3e => Some("a segment prefix"),
        0xcd | 0xce | 0xcf | 0xf1 | 0xf4 | 0xfa | 0xfb => Some("an instruction of the system's"),
        0x6c..=0x6f | 0xe4..=0xe7 | 0xec..=0xef => Some("input or output"),
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
        | 0xea => Some("no instruction"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that what the kernel refuses is told, behind prefixes too, and that ordinary beginnings are not.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn instructions() {
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

    /// Check that one owner's use is no other's, and that what was given back can be taken again.
    #[test]
    fn owners_have_their_own() {
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
