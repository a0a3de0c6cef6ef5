//! Tests of the sideband's records.

use super::*;

fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = kind.to_ne_bytes().to_vec();
    bytes.extend(misc.to_ne_bytes());
    bytes.extend((16 + body.len() as u16).to_ne_bytes());
    bytes.extend(body);
    bytes.extend(77_u64.to_ne_bytes());
    bytes
}

fn mmap2(path: &str, is_shared: bool) -> Vec<u8> {
    let mut body = Vec::new();
    for word in [5_u32, 6] {
        body.extend(word.to_ne_bytes());
    }
    for word in [0x1000_u64, 0x200, 0x3000] {
        body.extend(word.to_ne_bytes());
    }
    body.extend([8, 0, 0, 0, 3, 0, 0, 0, 99, 0, 0, 0, 0, 0, 0, 0]);
    body.resize(56, 0);
    body.extend(libc::PROT_EXEC.to_ne_bytes());
    let flags = if is_shared {
        libc::MAP_SHARED
    } else {
        libc::MAP_PRIVATE
    };
    body.extend(flags.to_ne_bytes());
    body.extend(path.as_bytes());
    body.push(0);
    body.resize(body.len().next_multiple_of(8), 0);
    record(RECORD_MMAP2, 0, &body)
}

/// Check that rings have a size that the kernel accepts, and that many processors share the pages.
#[test]
fn rings_share_the_pages() {
    for (cpus, pages) in [
        (0, 512),
        (2, 512),
        (16, 512),
        (17, 256),
        (48, 128),
        (400, 64),
    ] {
        assert_eq!(pages_of_each(cpus), pages, "{cpus}");
    }
}

/// Check that a mapping has its file, path and time.
#[test]
fn mappings_are_parsed() {
    let Parsed::Event(event) = parse(&mmap2("/lib/a b.so", false)) else {
        panic!("no event");
    };
    assert_eq!((event.time, event.pid), (77, 5));
    assert_eq!(
        event.change,
        Change::Mapped(Mapped {
            start: 0x1000,
            end: 0x1200,
            offset: 0x3000,
            path: "/lib/a b.so".to_owned(),
            file: Expected {
                device: (8, 3),
                inode: 99,
            },
            is_shared: false,
        })
    );
}

/// Check that shared memory is no file with names, and that a file is one, and a program in memory.
#[test]
fn shared_memory_is_no_file() {
    for (path, is_shared, is_memory) in [
        ("//anon", false, true),
        ("/dev/zero (deleted)", true, true),
        ("/memfd:doublemapper (deleted)", true, true),
        ("/SYSV00000000 (deleted)", true, true),
        ("/memfd:program (deleted)", false, false),
        ("/usr/lib/libc.so.6", true, false),
    ] {
        let Parsed::Event(event) = parse(&mmap2(path, is_shared)) else {
            panic!("no event");
        };
        let Change::Mapped(mapped) = event.change else {
            panic!("{event:?}");
        };
        assert_eq!(mapped.is_memory(), is_memory, "{path}");
    }
}

/// Check that a new thread is no fork, and that only a name by `exec` is an exec.
#[test]
fn threads_are_not_forks() {
    let fork = |pid: u32, parent: u32| {
        let body: Vec<u8> = [pid, parent, 8, 9]
            .iter()
            .flat_map(|w| w.to_ne_bytes())
            .collect();
        parse(&record(RECORD_FORK, 0, &body))
    };
    assert!(matches!(fork(5, 5), Parsed::Other));
    assert!(matches!(
        fork(5, 4),
        Parsed::Event(SideEvent {
            pid: 5,
            change: Change::Forked { parent: 4 },
            ..
        })
    ));
    let comm = [&[5, 0, 0, 0, 5, 0, 0, 0][..], b"name\0\0\0\0"].concat();
    assert!(matches!(
        parse(&record(RECORD_COMM, 0, &comm)),
        Parsed::Other
    ));
    assert!(matches!(
        parse(&record(RECORD_COMM, MISC_COMM_EXEC, &comm)),
        Parsed::Event(_)
    ));
}

/// Check that no cut record is read beyond its end.
#[test]
fn cut_records_are_not_read_beyond_their_end() {
    let whole = mmap2("/lib/a b.so", false);
    for len in 0..whole.len() {
        let _ = parse(&whole[..len]);
    }
}
