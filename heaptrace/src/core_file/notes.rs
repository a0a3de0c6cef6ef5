//! The notes of a core file: threads, the process, the signal, and mapped files.
//!
//! Part of `core_file`. The layouts are those of the kernel's `elf_prstatus`, `elf_prpsinfo` and `siginfo` on x86-64.

use object::elf::{NT_FILE, NT_PRPSINFO, NT_PRSTATUS, NT_SIGINFO, NoteType};

use super::registers::Registers;

/// Most threads of which registers are kept: the first is the one that got the signal.
const MOST_THREADS: usize = 4096;

/// Most mapped files.
const MOST_FILES: u64 = 1 << 18;

/// Offsets in the note of a thread: the signal, the thread's id, and its registers.
const SIGNAL: usize = 12;
const TID: usize = 32;
const REGISTERS: usize = 112;

/// Offsets in the note of the process: its id and its name, with the longest name.
const PID: usize = 24;
const NAME: usize = 40;
const NAME_BYTES: usize = 16;

/// Offsets in the note of the signal: its number, what sent it (above zero: the kernel, and only then there is an address), and the address of
/// a fault.
const NUMBER: usize = 0;
const CODE: usize = 8;
const ADDRESS: usize = 16;

/// Signals that are about an address: SIGILL, SIGBUS, SIGFPE and SIGSEGV.
const WITH_ADDRESS: [u32; 4] = [4, 7, 8, 11];

/// A thread of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Its id.
    pub tid: u32,
    /// The signal that it got; 0 if none.
    pub signal: u16,
    /// Its registers.
    pub registers: Registers,
}

/// What the signal is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The number of the signal.
    pub signal: u32,
    /// The address that was accessed, of signals that have one. The kernel gives 0 where the processor does not tell it, as for
    /// addresses that no mapping can have.
    pub address: Option<u64>,
}

/// A file that was mapped.
#[derive(Debug)]
struct MappedFile {
    start: u64,
    end: u64,
    /// Where it begins in the file.
    offset: u64,
    path: String,
}

/// Everything that notes say.
#[derive(Debug, Default)]
pub(super) struct Notes {
    pub(super) threads: Vec<Thread>,
    pub(super) pid: Option<u32>,
    pub(super) command: String,
    pub(super) fault: Option<Fault>,
    /// In the order of their addresses.
    files: Vec<MappedFile>,
}

impl Notes {
    /// Adds a note. One that is too short is passed over.
    pub(super) fn add(&mut self, kind: NoteType, bytes: &[u8]) {
        match kind {
            NT_PRSTATUS if self.threads.len() < MOST_THREADS => {
                self.threads.extend(thread(bytes));
            }
            NT_PRPSINFO => {
                self.pid = u32_at(bytes, PID);
                let name = bytes.get(NAME..NAME + NAME_BYTES).unwrap_or_default();
                let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
                self.command = String::from_utf8_lossy(name).into_owned();
            }
            // Each thread has one; the first thread's is the one that counts.
            NT_SIGINFO if self.fault.is_none() => {
                let is_of_kernel = u32_at(bytes, CODE).is_some_and(|it| it.cast_signed() > 0);
                self.fault = u32_at(bytes, NUMBER).map(|signal| Fault {
                    signal,
                    address: u64_at(bytes, ADDRESS)
                        .filter(|_| is_of_kernel && WITH_ADDRESS.contains(&signal)),
                });
            }
            NT_FILE => {
                self.files = files(bytes).unwrap_or_default();
                self.files.sort_by_key(|file| file.start);
            }
            _ => {}
        }
    }

    /// The path of the file that is mapped at an address.
    pub(super) fn file_at(&self, address: u64) -> Option<&str> {
        self.mapped_at(address).map(|file| file.path.as_str())
    }

    /// The path of the file that is mapped at an address, and the offset in it.
    pub(super) fn in_file(&self, address: u64) -> Option<(&str, u64)> {
        let file = self.mapped_at(address)?;
        let offset = (address - file.start).checked_add(file.offset)?;
        Some((&file.path, offset))
    }

    fn mapped_at(&self, address: u64) -> Option<&MappedFile> {
        let after = self.files.partition_point(|file| file.start <= address);
        let file = self.files.get(after.checked_sub(1)?)?;
        (address < file.end).then_some(file)
    }
}

fn thread(bytes: &[u8]) -> Option<Thread> {
    Some(Thread {
        tid: u32_at(bytes, TID)?,
        signal: u32_at(bytes, SIGNAL)? as u16,
        registers: Registers::new(bytes.get(REGISTERS..)?)?,
    })
}

/// The mapped files: their number, the size of a page, three words for each, and then the paths.
fn files(bytes: &[u8]) -> Option<Vec<MappedFile>> {
    const HEAD: usize = 16;
    const ENTRY: usize = 24;
    let count = u64_at(bytes, 0).filter(|count| *count <= MOST_FILES)?;
    let page = u64_at(bytes, 8)?;
    let entries = usize::try_from(count).ok()?.checked_mul(ENTRY)?;
    let (entries, paths) = bytes.get(HEAD..)?.split_at_checked(entries)?;
    let paths = paths.split(|byte| *byte == 0);
    let files = entries.chunks_exact(ENTRY).zip(paths);
    let file = |(entry, path): (&[u8], &[u8])| {
        Some(MappedFile {
            start: u64_at(entry, 0)?,
            end: u64_at(entry, 8)?,
            offset: u64_at(entry, 16)?.checked_mul(page)?,
            path: String::from_utf8_lossy(path).into_owned(),
        })
    };
    files.map(file).collect()
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*four))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let eight = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*eight))
}
