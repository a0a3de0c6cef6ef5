//! The linkage stubs of a target that have been led elsewhere.
//!
//! Stage: probes. The installer's memory of them. A stub's code is compared before each write, so what others have made of it stays.
//! Must not know where stubs lead.

use std::collections::HashMap;

use super::messages::Redirect;
use super::patch::Patch;
use super::target_memory::TargetMemory;

/// Bytes of a page of links.
pub(super) const PAGE: u64 = 4096;

/// Bytes of a link.
const LINK: u64 = 8;

/// The stubs of a process that have been written, by the addresses of the bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct WrittenStubs(HashMap<u64, Patch>);

impl WrittenStubs {
    /// Leads stubs elsewhere that have their old bytes. `pages` are the process's pages of links. Returns the addresses of the
    /// bytes that are new now.
    pub(super) fn write(
        &mut self,
        memory: &TargetMemory,
        stubs: &[Redirect],
        pages: &[u64],
    ) -> Vec<u64> {
        let mut written = Vec::new();
        for stub in stubs {
            // The link comes first: a thread may jump by it as soon as the stub is changed.
            let is_ready = is_link(stub.link, pages) && set_link(memory, stub);
            if is_ready && self.patch(memory, &stub.patch) {
                written.push(stub.patch.address);
            }
        }
        written
    }

    /// Writes the bytes of a stub. Returns whether they are new now.
    pub(super) fn patch(&mut self, memory: &TargetMemory, patch: &Patch) -> bool {
        let Ok(bytes) = bytes(memory, patch) else {
            return false;
        };
        if let Some(known) = self.0.get(&patch.address)
            && bytes == known.new
        {
            return known.new == patch.new;
        }
        if bytes != patch.old || !patch.is_sound() {
            return false;
        }
        // Remembered first, as slots are.
        self.0.insert(patch.address, *patch);
        write(memory, patch)
    }

    /// Adds stubs that were written in a process with the same mapping.
    pub(super) fn add(&mut self, others: &Self) {
        for (address, patch) in &others.0 {
            self.0.entry(*address).or_insert(*patch);
        }
    }

    /// Restores the stubs that still have the new bytes. Returns their number.
    pub(super) fn restore(&self, memory: &TargetMemory) -> u32 {
        let mut restored = 0;
        for patch in self.0.values() {
            let is_new = bytes(memory, patch).is_ok_and(|bytes| bytes == patch.new);
            restored += u32::from(is_new && write(memory, &patch.undone()));
        }
        restored
    }
}

fn bytes(memory: &TargetMemory, patch: &Patch) -> std::io::Result<u32> {
    memory.read(patch.address).map(u32::from_ne_bytes)
}

fn write(memory: &TargetMemory, patch: &Patch) -> bool {
    let Some((address, byte)) = patch.write() else {
        return false;
    };
    memory.write(address, &[byte]).is_ok()
}

fn is_link(link: u64, pages: &[u64]) -> bool {
    link.is_multiple_of(LINK) && link != 0 && pages.contains(&(link - link % PAGE))
}

/// Writes a link that is still zero. Returns whether it is the target then.
fn set_link(memory: &TargetMemory, stub: &Redirect) -> bool {
    let is = |value| memory.word(stub.link).is_ok_and(|word| word == value);
    let is_written = !is(0) || memory.write(stub.link, &stub.target.to_ne_bytes()).is_ok();
    is_written && is(stub.target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::processes;

    /// A page whose bytes are those of a target.
    #[repr(align(4096))]
    struct Page([u64; 512]);

    /// Check that only stubs with their old bytes are written, by links on known pages, and that those with other bytes at the
    /// end are left alone.
    #[test]
    fn stubs_are_written_and_restored_by_value() {
        let own = std::process::id();
        let memory = TargetMemory::open(own, processes::start_time(own).unwrap()).unwrap();
        let mut code = Box::new(Page([0x9090_1111_2222_25ff; 512]));
        let mut links = Box::new(Page([0; 512]));
        let (at, page) = (code.0.as_mut_ptr() as u64, links.0.as_mut_ptr() as u64);
        let word = |address| memory.word(address).unwrap();
        let redirect = |number: u64| Redirect {
            patch: Patch {
                address: at + 8 * number + 2,
                old: 0x1111_2222,
                new: 0xff11_2222,
            },
            link: page + 8 * number,
            target: 77 + number,
        };
        let mut stubs = WrittenStubs::default();
        let wrong = [
            Redirect {
                link: page + 4096,
                ..redirect(0)
            },
            Redirect {
                link: page + 4,
                ..redirect(0)
            },
            Redirect {
                link: 0,
                ..redirect(0)
            },
        ];
        assert_eq!(stubs.write(&memory, &wrong, &[page]), [0; 0]);
        let mut unsound = redirect(0);
        unsound.patch = Patch {
            address: at + 5,
            old: 0xff90_9011,
            new: 1,
        };
        let mut other = redirect(0);
        other.patch.old = 5;
        assert_eq!(
            memory.read(at + 5).map(u32::from_le_bytes).unwrap(),
            0xff90_9011
        );
        assert_eq!(stubs.write(&memory, &[unsound, other], &[page]), [0; 0]);
        assert_eq!(word(at), 0x9090_1111_2222_25ff);
        let asked = [redirect(0), redirect(1), redirect(2)];
        // The link of the second one is taken.
        memory.write(page + 8, &5_u64.to_ne_bytes()).unwrap();
        let written = [asked[0].patch.address, asked[2].patch.address];
        assert_eq!(stubs.write(&memory, &asked, &[page]), written);
        assert_eq!((word(at), word(page)), (0x9090_ff11_2222_25ff, 77));
        assert_eq!((word(at + 8), word(page + 8)), (0x9090_1111_2222_25ff, 5));
        assert_eq!(stubs.write(&memory, &asked[..1], &[page]), written[..1]);
        // A breakpoint on the opcode is left, another change of the displacement too.
        memory.write(at, &[0xcc]).unwrap();
        memory.write(at + 16 + 2, &[1]).unwrap();
        assert_eq!(stubs.restore(&memory), 1);
        assert_eq!(word(at), 0x9090_1111_2222_25cc);
        assert_eq!(word(at + 16), 0x9090_ff11_2201_25ff);
        assert_eq!((code.0[5], links.0[0]), (0x9090_1111_2222_25ff, 77));
    }
}
