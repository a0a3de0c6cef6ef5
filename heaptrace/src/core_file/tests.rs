//! Core files that are made here, byte by byte.

use super::*;

/// A note with a name as the kernel writes it.
fn note(kind: u32, content: &[u8]) -> Vec<u8> {
    let mut note = Vec::new();
    note.extend(5_u32.to_le_bytes());
    note.extend((content.len() as u32).to_le_bytes());
    note.extend(kind.to_le_bytes());
    note.extend(b"CORE\0\0\0\0");
    note.extend(content);
    note.resize(note.len().next_multiple_of(4), 0);
    note
}

fn thread(tid: u32, signal: u16, rdi: u64, rsp: u64) -> Vec<u8> {
    let mut status = vec![0; 112 + 27 * 8];
    status[12..14].copy_from_slice(&signal.to_le_bytes());
    status[32..36].copy_from_slice(&tid.to_le_bytes());
    for (register, value) in [(14, rdi), (19, rsp)] {
        let at = 112 + register * 8;
        status[at..at + 8].copy_from_slice(&u64::to_le_bytes(value));
    }
    note(1, &status)
}

fn process(pid: u32, name: &[u8]) -> Vec<u8> {
    let mut info = vec![0; 136];
    info[24..28].copy_from_slice(&pid.to_le_bytes());
    info[40..40 + name.len()].copy_from_slice(name);
    note(3, &info)
}

fn signal(number: u32, address: u64) -> Vec<u8> {
    let mut info = vec![0; 128];
    info[..4].copy_from_slice(&number.to_le_bytes());
    info[8..12].copy_from_slice(&1_u32.to_le_bytes());
    info[16..24].copy_from_slice(&address.to_le_bytes());
    note(0x5349_4749, &info)
}

fn files(files: &[(u64, u64, &str)]) -> Vec<u8> {
    let mut content = Vec::new();
    let mut word = |word: u64| content.extend(word.to_le_bytes());
    word(files.len() as u64);
    word(4096);
    for (start, end, _) in files {
        [*start, *end, 0].into_iter().for_each(&mut word);
    }
    for (_, _, path) in files {
        content.extend(path.as_bytes());
        content.push(0);
    }
    note(0x4649_4c45, &content)
}

/// A core file with these notes, and memory at these addresses: readable and writable, the bytes that the file has, and the size.
pub(super) fn core(notes: &[Vec<u8>], memory: &[(u64, &[u8], u64)]) -> Vec<u8> {
    const HEADER: usize = 64;
    const PART: usize = 56;
    let notes = notes.concat();
    let mut file = vec![0; HEADER];
    file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    file[16] = 4;
    file[18] = 62;
    file[20] = 1;
    file[32] = HEADER as u8;
    file[52] = HEADER as u8;
    file[54] = PART as u8;
    file[56] = 1 + memory.len() as u8;
    let mut offset = (HEADER + PART * (1 + memory.len())) as u64;
    let mut part = |kind: u32, flags: u32, start: u64, length: u64, size: u64| {
        file.extend(kind.to_le_bytes());
        file.extend(flags.to_le_bytes());
        for word in [offset, start, 0, length, size, 1] {
            file.extend(word.to_le_bytes());
        }
        offset += length;
    };
    part(4, 0, 0, notes.len() as u64, 0);
    for (start, bytes, size) in memory {
        part(1, 6, *start, bytes.len() as u64, *size);
    }
    file.extend(notes);
    memory.iter().for_each(|(_, bytes, _)| file.extend(*bytes));
    file
}

fn example() -> Vec<u8> {
    core(
        &[
            thread(43, 11, 0x5008, 0x7010),
            process(42, b"server"),
            signal(11, 0x5555),
            files(&[
                (0x1000, 0x2000, "/usr/bin/server"),
                (0x2000, 0x3000, "/lib/x"),
            ]),
            thread(42, 0, 1, 2),
            signal(6, 7),
        ],
        &[
            (0x7000, b"stack", 0x100),
            (0x5000, b"0123456789abcdef", 0x1000),
        ],
    )
}

/// Check that threads, the process, the signal, mappings and memory are read.
#[test]
fn a_core_file_is_read() {
    let file = example();
    let core = CoreFile::read(file.as_slice()).unwrap();
    assert_eq!((core.pid(), core.command()), (42, "server"));
    let thread = core.thread().unwrap();
    assert_eq!((thread.tid, thread.signal), (43, 11));
    assert_eq!(thread.registers.named("rdi"), Some(0x5008));
    assert_eq!(thread.registers.named("rsp"), Some(0x7010));
    assert_eq!(thread.registers.named("eax"), None);
    let fault = Fault {
        signal: 11,
        address: Some(0x5555),
    };
    assert_eq!(core.fault(), Some(fault));
    assert_eq!(core.memory(0x5008, 4), b"89ab");
    assert_eq!(core.memory(0x500c, 64), b"cdef");
    // These bytes are not in the file.
    assert_eq!(core.memory(0x5010, 64), b"");
    assert_eq!(core.memory(0x4fff, 64), b"");
    let mapping = |address| core.mapping(address).unwrap_or_default();
    assert_eq!(mapping(0x1fff), "/usr/bin/server");
    assert_eq!(mapping(0x2000), "/lib/x");
    assert_eq!(mapping(0x5800), "memory without a file");
    assert_eq!(mapping(0x7008), "the stack of the thread");
    assert_eq!(mapping(0x6000), "");
}

/// Check that files that are no core files are refused with the reason, and that a file that is cut anywhere is refused or read
/// without harm.
#[test]
fn other_files_are_refused() {
    let read = |file: &[u8]| CoreFile::read(file).map(|core| core.pid());
    assert_eq!(read(b""), Err(NoCore::Other));
    let mut program = example();
    program[16] = 3;
    assert_eq!(read(&program), Err(NoCore::Other));
    let mut arm = example();
    arm[18] = 183;
    assert_eq!(read(&arm), Err(NoCore::Other));
    let empty = core(&[process(42, b"x")], &[]);
    assert_eq!(read(&empty), Err(NoCore::NoThread));
    let whole = example();
    for len in 0..whole.len() {
        match CoreFile::read(&whole[..len]) {
            Ok(core) => assert!(core.memory(0x5000, 64).len() <= 16),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    let mut many = example();
    // More parts than the file has.
    many[56..58].copy_from_slice(&0x7fff_u16.to_le_bytes());
    assert!(matches!(read(&many), Err(NoCore::Damaged(_))));
}
