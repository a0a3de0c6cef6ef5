//! Tests with data files of a few bytes that stand for gigabytes. Reading and writing them in every format
//! must stay within the documented memory.

use std::io::{self, Read};
use std::process::Command;

use super::super::{Format, Grouping, Label, Metric, ReportInput, ReportOptions};
use crate::profile::{DataFileError, ReadOptions, Symbols, crafted, read_from};

/// The size of a message in bytes; a chunk may have some more.
const CHUNK: usize = 1 << 20;

/// The memory that the files may use in these tests. It is an eighth of the default, so that the tests take
/// an eighth of the time.
const GIVEN: u64 = 32 << 20;

/// The memory limit including the output and the test program itself.
const MOST: u64 = 3 * GIVEN / 2 + (16 << 20);

/// A protobuf-like field that is a message or a text.
fn field(tag: u32, content: &[u8]) -> Vec<u8> {
    let mut field = number(tag << 3 | 2);
    field.extend(number(content.len() as u32));
    field.extend(content);
    field
}

fn number(mut number: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// As many copies of a record as a chunk holds.
fn many(record: &[u8]) -> Vec<u8> {
    record.repeat((CHUNK / record.len()).max(1))
}

const MODULES: u32 = 3;
const LOCATIONS: u32 = 4;
const STACKS: u32 = 5;
const PROCESSES: u32 = 6;
const SITES: u32 = 7;
const QUALITY: u32 = 9;
const SIZES: u32 = 10;
const RATES: u32 = 11;
const THREADS: u32 = 20;
const FUNCTIONS: u32 = 22;
const MARKS: u32 = 30;
const GENERATIONS: u32 = 31;

/// A complete stack of these code addresses.
fn stack(locations: &[u8]) -> Vec<u8> {
    field(STACKS, &[field(1, locations), vec![0x10, 1]].concat())
}

/// A site of the first process and the first stack.
fn site(id: u32) -> Vec<u8> {
    let allocations = field(4, &[0x08, 1, 0x10, 1, 0x28, 1, 0x30, 1]);
    field(SITES, &[vec![0x08], number(id), allocations].concat())
}

/// Updates with one record repeated up to a chunk's size: once as one long update, once as many short ones.
fn repeated(record: &[u8]) -> Vec<Vec<u8>> {
    let whole = many(record);
    let part = [&[0x08, 1][..], &whole].concat();
    let mut updates = vec![whole; 80];
    updates.extend(vec![part; 80]);
    updates
}

/// The names and contents of the files.
fn bombs() -> Vec<(&'static str, Vec<u8>)> {
    let base = || {
        [
            field(MODULES, b""),
            field(LOCATIONS, b""),
            stack(&[0]),
            field(PROCESSES, b""),
        ]
        .concat()
    };
    let after = |updates: Vec<Vec<u8>>| [vec![base()], updates].concat();
    let of = |record: Vec<u8>| crafted(&after(repeated(&record)), &[]);
    let symbols = |record: Vec<u8>| {
        let part = [&[0x08, 1][..], &many(&record)].concat();
        crafted(&[base()], &vec![part; 80])
    };
    // Many sites share one deep stack, whose frames have long names.
    let deep = [
        vec![
            [
                field(LOCATIONS, b"").repeat(4096),
                field(PROCESSES, b""),
                stack(&(0..4096).flat_map(number).collect::<Vec<u8>>()),
            ]
            .concat(),
        ],
        (0..8)
            .map(|part| (0..2_500).flat_map(|id| site(part * 2_500 + id)).collect())
            .collect(),
    ]
    .concat();
    let frames = field(1, &[0x08, 0, 0x10, 0]);
    let long = vec![b'x'; 1 << 17];
    let names = [field(2, &long), field(3, &frames.repeat(60)).repeat(4096)].concat();
    // All locations of a stack have one function with a long name.
    let functions = [
        vec![
            [
                field(FUNCTIONS, &[vec![0x08, 1], field(2, &long)].concat()),
                field(LOCATIONS, &[0xa0, 0x01, 0]).repeat(4096),
                field(PROCESSES, b""),
                stack(&(0..4096).flat_map(number).collect::<Vec<u8>>()),
            ]
            .concat(),
        ],
        deep[1..].to_vec(),
    ]
    .concat();
    // These sites just fit into the memory limit.
    let sites: Vec<Vec<u8>> = [base()]
        .into_iter()
        .chain((0..5).map(|part| {
            (0..10_000)
                .flat_map(|id| site(part * 10_000 + id))
                .collect()
        }))
        .collect();
    let processes: Vec<u8> = (0..25_000)
        .flat_map(|id| field(PROCESSES, &[vec![0x08], number(id)].concat()))
        .collect();
    let command = field(PROCESSES, &field(4, &long));
    vec![
        ("modules", of(field(MODULES, b""))),
        ("locations", of(field(LOCATIONS, b""))),
        ("stacks", of(field(STACKS, &[0x10, 1]))),
        ("a stack", of(field(STACKS, &many(&[0x08, 0])))),
        ("processes", of(field(PROCESSES, b""))),
        ("allocators", of(field(PROCESSES, &many(&field(10, b""))))),
        (
            "hooks",
            of(field(PROCESSES, &field(10, &many(&field(3, b""))))),
        ),
        ("functions", of(field(FUNCTIONS, &[0x08, 1]))),
        ("sites", of(site(0))),
        ("empty sites", of(field(SITES, b""))),
        ("threads", of(field(THREADS, b""))),
        ("rates", of(field(RATES, b""))),
        ("marks", of(field(MARKS, &[0x18, 1]))),
        ("generations", of(field(GENERATIONS, b""))),
        (
            "survivors",
            of(field(GENERATIONS, &field(5, &vec![0; 256]).repeat(4))),
        ),
        ("sizes", of(field(SIZES, &vec![0; CHUNK]))),
        ("quality", of(field(QUALITY, &many(&field(10, b""))))),
        ("unknown", of(vec![0x78, 0])),
        ("strings", symbols(field(2, b""))),
        ("no frames", symbols(field(3, b""))),
        ("frames", symbols(field(3, &many(&field(1, b""))))),
        ("types", symbols(field(4, b""))),
        (
            "stacks of types",
            symbols([field(4, b""), field(5, &field(2, &vec![1; 1 << 16]))].concat()),
        ),
        ("deep", crafted(&deep, &[])),
        (
            "deep and long",
            crafted(&deep[..2], std::slice::from_ref(&names)),
        ),
        ("long functions", crafted(&functions, &[])),
        ("many sites", crafted(&sites, &[])),
        ("many processes", crafted(&[processes], &[])),
        ("long", crafted(&[base()], &[names])),
        (
            "long command",
            crafted(
                &after(vec![command, field(RATES, &[0x10, 0]).repeat(12_500)]),
                &[],
            ),
        ),
    ]
}

/// A reader that counts the bytes that are read.
struct Counted<'a>(&'a [u8], usize);

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.0.read(buffer)?;
        self.1 += count;
        Ok(count)
    }
}

/// Reads and writes a file, and returns the share of it that was read.
fn explode(file: &[u8]) -> f64 {
    let options = ReadOptions {
        max_memory: Some(GIVEN),
        ..ReadOptions::default()
    };
    let mut reader = Counted(file, 0);
    let recording = match read_from(&mut reader, "it", options) {
        Ok(recording) => recording,
        Err(error) => {
            assert!(matches!(error, DataFileError::TooLarge { .. }), "{error}");
            assert!(error.to_string().contains("--max-memory"), "{error}");
            return 1.0;
        }
    };
    let symbols = recording.symbols.unwrap_or_else(Symbols::default);
    for by in [
        None,
        Some(Label::Line),
        Some(Label::Stack),
        Some(Label::Pid),
    ] {
        let grouping = by.map(|by| Grouping {
            by,
            metric: Metric::default(),
            cumulative: true,
            top: None,
        });
        let input = ReportInput {
            grouping,
            ..ReportInput::new(&recording.profile, &symbols)
        };
        for format in [
            Format::Text(ReportOptions::default()),
            Format::Json,
            Format::Pprof,
            Format::Flamegraph(Metric::TotalBytes),
        ] {
            // Only the memory use matters here.
            let _ = format.write(&input, &mut io::sink());
        }
    }
    reader.1 as f64 / file.len() as f64
}

fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    let kib = line.split_whitespace().nth(1).unwrap();
    kib.parse::<u64>().unwrap() << 10
}

/// Check that files of some kilobytes use no more than the documented memory, in any format, and that most of
/// the endless ones is never read.
#[test]
fn small_files_use_bounded_memory() {
    const NAME: &str = "HEAPTRACE_TEST_BOMB";
    // Each file is read in its own process, which has its own memory peak.
    if let Ok(path) = std::env::var(NAME) {
        let file = std::fs::read(path).unwrap();
        let share = explode(&file);
        println!("[{} {share}]", peak());
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bomb");
    for (name, file) in bombs() {
        std::fs::write(&path, &file).unwrap();
        let ended = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "output::tests::bombs::small_files_use_bounded_memory",
                "--nocapture",
            ])
            .env(NAME, &path)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&ended.stdout);
        let error = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "{name}: {text}{error}");
        let (_, numbers) = text.split_once('[').unwrap();
        let (peak, share) = numbers.split_once(']').unwrap().0.split_once(' ').unwrap();
        let (peak, share): (u64, f64) = (peak.parse().unwrap(), share.parse().unwrap());
        println!(
            "{name}: {} bytes, {peak} of memory, {share} of it read",
            file.len()
        );
        assert!(peak < MOST, "{name} takes {peak}");
        // Reading stops early if a file repeats the same record endlessly.
        let is_whole = ["deep", "many", "long"]
            .iter()
            .any(|it| name.starts_with(it));
        assert!(share < 0.5 || is_whole, "{name}: {share}");
    }
}

/// Check that the memory limit of a file follows from its length, and that the user can change it.
#[test]
fn memory_follows_from_the_length() {
    let read = |file: &[u8], max_memory| {
        let options = ReadOptions {
            max_memory,
            ..ReadOptions::default()
        };
        read_from(file, "it", options).unwrap()
    };
    let threads = vec![many(&field(THREADS, b"")); 12];
    let file = crafted(&threads, &[]);
    let recording = read(&file, None);
    let by_length = (256 << 20) + 256 * file.len() as u64;
    assert!(recording.is_damaged);
    let warning = &recording.warnings[0];
    assert!(warning.contains("--max-memory"), "{warning}");
    assert!(!warning.contains("damaged"), "{warning}");
    // Twice the text and its largest possible heap block.
    let taken = recording.profile.threads.len() as u64 * 2 * (24 + 16);
    assert!(taken <= by_length, "{taken} of {by_length}");
    assert!(taken > by_length / 2, "{taken} of {by_length}");
    let more = read(&file, Some(4 << 30));
    assert_eq!(more.profile.threads.len(), 12 * (CHUNK / 3));
    assert!(!more.is_damaged);
}
