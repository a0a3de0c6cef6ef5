//! Hostile data files.
//!
//! Part of hostile. Chunks are built by hand, because a zstd frame can repeat a byte any number of times with
//! four bytes.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use super::suite::{CaseRun, first_line};

/// Kinds of chunks in a data file.
const START: u32 = 1;
const UPDATE: u32 = 2;
const SYMBOLS: u32 = 3;

/// The largest block of a zstd frame.
const BLOCK: usize = 128 << 10;

const RAW: u32 = 0;
const REPEATED: u32 = 1;

/// A zstd frame of blocks. Each block has a kind, the number of its bytes, and its content.
fn frame(length: usize, blocks: &[(u32, usize, &[u8])]) -> Vec<u8> {
    // One segment, with its size in four bytes.
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0xa0];
    frame.extend((length as u32).to_le_bytes());
    for (index, (kind, size, bytes)) in blocks.iter().enumerate() {
        let last = u32::from(index + 1 == blocks.len());
        let head = (*size as u32) << 3 | kind << 1 | last;
        frame.extend(&head.to_le_bytes()[..3]);
        frame.extend(*bytes);
    }
    frame
}

fn chunk(kind: u32, length: usize, compressed: &[u8]) -> Vec<u8> {
    let mut chunk = Vec::new();
    for word in [kind, compressed.len() as u32, length as u32] {
        chunk.extend(word.to_le_bytes());
    }
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&chunk);
    hasher.update(compressed);
    chunk.extend(hasher.finalize().to_le_bytes());
    chunk.extend(compressed);
    chunk
}

/// A chunk with these bytes, not compressed.
fn plain(kind: u32, payload: &[u8]) -> Vec<u8> {
    let blocks: Vec<(u32, usize, &[u8])> = payload
        .chunks(BLOCK)
        .map(|part| (RAW, part.len(), part))
        .collect();
    chunk(kind, payload.len(), &frame(payload.len(), &blocks))
}

/// A chunk of 16 MiB of one byte.
fn repeated(kind: u32, byte: u8) -> Vec<u8> {
    const LENGTH: usize = 16 << 20;
    let byte = [byte];
    let blocks = vec![(REPEATED, BLOCK, &byte[..]); LENGTH / BLOCK];
    chunk(kind, LENGTH, &frame(LENGTH, &blocks))
}

fn head() -> Vec<u8> {
    let mut file = b"\x89HTRACE\n\x01\0\0\0".to_vec();
    // A version, and the mode that every allocation was recorded.
    file.extend(plain(START, &[0x0a, 3, b'0', b'.', b'1', 0x10, 1]));
    file
}

/// Reads a file with every command, and returns the exit statuses.
fn read(case: &CaseRun<'_>, path: &Path) -> Result<Vec<i32>> {
    let mut codes = Vec::new();
    for command in ["report", "flamegraph", "pprof"] {
        let mut arguments = super::ended::words(&[command]);
        if command != "report" {
            arguments.extend(["-o".into(), case.file("drawn").into()]);
        }
        arguments.push(path.into());
        let ended = case.run(&arguments)?;
        let code = ended.status.code().unwrap_or(-1);
        ensure!(
            code == 0 || !ended.errors.trim().is_empty(),
            "{command} ended with {code} and said nothing"
        );
        codes.push(code);
    }
    Ok(codes)
}

fn bomb(case: &CaseRun<'_>, file: &[u8]) -> Result<String> {
    let path = case.file("bomb.data");
    fs::write(&path, file)?;
    let codes = read(case, &path)?;
    Ok(format!(
        "{} kB read within bounds, status {}",
        file.len() / 1000,
        codes[0]
    ))
}

/// Strings and messages that are as long as their tags say: 16 MiB of them in half a kilobyte.
pub(super) fn repeated_records(case: &CaseRun<'_>) -> Result<String> {
    let mut worst = String::new();
    for byte in [0x0a, 0x1a, 0x2a, 0x3a, 0x52, 0x5a] {
        let mut file = head();
        for _ in 0..30 {
            file.extend(repeated(UPDATE, byte));
        }
        worst = bomb(case, &file)?;
    }
    Ok(worst)
}

pub(super) fn repeated_names(case: &CaseRun<'_>) -> Result<String> {
    let mut worst = String::new();
    for byte in [0x0a, 0x12, 0x1a] {
        let mut file = head();
        for _ in 0..30 {
            file.extend(repeated(SYMBOLS, byte));
        }
        worst = bomb(case, &file)?;
    }
    Ok(worst)
}

/// An update in many parts without a last part.
pub(super) fn endless_update(case: &CaseRun<'_>) -> Result<String> {
    // Empty records of two bytes each, of every list. The payload begins with the flag that another part
    // follows.
    let mut payload = vec![8, 1];
    for tag in [0x1a_u8, 0x22, 0x2a, 0x32, 0x3a, 0x5a] {
        for _ in 0..9_000 {
            payload.extend([tag, 0]);
        }
    }
    let mut file = head();
    for _ in 0..20 {
        file.extend(plain(UPDATE, &payload));
    }
    bomb(case, &file)
}

/// Chunks that claim to be larger or smaller than they are, or larger than allowed.
pub(super) fn wrong_lengths(case: &CaseRun<'_>) -> Result<String> {
    let path = case.file("lengths.data");
    for (length, claimed) in [(16 << 20, 100), (100, 16 << 20), (100, u32::MAX as usize)] {
        let byte = [0x2a];
        let blocks = vec![(REPEATED, BLOCK.min(length), &byte[..]); length.div_ceil(BLOCK)];
        let mut file = head();
        file.extend(chunk(UPDATE, claimed, &frame(length, &blocks)));
        fs::write(&path, file)?;
        let codes = read(case, &path)?;
        ensure!(codes[0] != 0, "a damaged file was reported with status 0");
    }
    Ok("refused, with an error status".to_owned())
}

/// A real recording.
fn real(case: &CaseRun<'_>) -> Result<(PathBuf, Vec<u8>)> {
    case.traced(&["plain".as_ref()], 100)?;
    Ok((case.file("spoiled.data"), fs::read(case.data())?))
}

pub(super) fn spoiled(case: &CaseRun<'_>) -> Result<String> {
    let (path, bytes) = real(case)?;
    for at in [bytes.len() / 3, bytes.len() / 2, bytes.len() - 10] {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x10;
        fs::write(&path, bytes)?;
        let codes = read(case, &path)?;
        ensure!(
            codes[0] != 0,
            "a file with a flipped bit at {at} was reported with status 0"
        );
    }
    Ok("each flipped bit reported, also by the exit status".to_owned())
}

/// A recording of a killed writer: it is read up to the cut, with a warning.
pub(super) fn cut(case: &CaseRun<'_>) -> Result<String> {
    let (path, bytes) = real(case)?;
    for end in [0, 5, 11, 13, bytes.len() / 2, bytes.len() - 1] {
        fs::write(&path, &bytes[..end])?;
        let mut arguments = super::ended::words(&["report"]);
        arguments.push(path.clone().into());
        let ended = case.run(&arguments)?;
        let said = ended.output.contains("incomplete") || ended.errors.contains("incomplete");
        ensure!(
            said || ended.status.code() != Some(0),
            "a file cut at {end} was reported as whole"
        );
        ensure!(
            ended.status.code() == Some(0) || !first_line(&ended.errors).is_empty(),
            "nothing was reported"
        );
    }
    Ok("each cut reported".to_owned())
}

/// Files without an end, and files without a beginning.
pub(super) fn no_files(case: &CaseRun<'_>) -> Result<String> {
    let pipe = case.file("pipe.data");
    super::surroundings::make_pipe(&pipe)?;
    for path in ["/dev/zero", "/dev/tty", "/proc/self/mem", "/"].map(PathBuf::from) {
        let mut arguments = super::ended::words(&["report"]);
        arguments.push(path.clone().into());
        let ended = case.run(&arguments)?;
        ensure!(
            ended.status.code() != Some(0),
            "{} was reported",
            path.display()
        );
    }
    Ok("each refused".to_owned())
}
