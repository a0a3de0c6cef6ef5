//! Checks that must hold for any data file.
//!
//! Stage: profile. For fuzzers only.

use super::{Profile, ReadOptions, Recording, read_from};

/// The length of a message head in an input, in bytes: kind and length.
const HEAD: usize = 3;

/// Check that a profile's indexes are valid, and that reading it again gives the same profile.
pub(crate) fn data_file(data: &[u8]) -> u64 {
    match read_from(data, "input", ReadOptions::default()) {
        Ok(recording) => sound(&recording),
        Err(error) => {
            assert!(error.to_string().contains("input"));
            0
        }
    }
}

/// The same with complete chunks, so that the fuzzer reaches their content.
pub(crate) fn messages(data: &[u8]) -> u64 {
    data_file(&framed(data))
}

/// A data file with these messages. Each message is a byte for the kind, two for the length, and its content.
pub(crate) fn framed(data: &[u8]) -> Vec<u8> {
    let mut file = b"\x89HTRACE\n\x01\0\0\0".to_vec();
    let mut rest = data;
    while let Some((head, behind)) = rest.split_at_checked(HEAD) {
        let length = usize::from(u16::from_le_bytes([head[1], head[2]])).min(behind.len());
        let (payload, behind) = behind.split_at(length);
        rest = behind;
        let Ok(compressed) = zstd::bulk::compress(payload, 1) else {
            break;
        };
        let begin = file.len();
        // This includes one kind more than exist.
        file.extend(u32::from(head[0] % 6).to_le_bytes());
        file.extend((compressed.len() as u32).to_le_bytes());
        file.extend((payload.len() as u32).to_le_bytes());
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&file[begin..]);
        hasher.update(&compressed);
        file.extend(hasher.finalize().to_le_bytes());
        file.extend(compressed);
    }
    file
}

fn sound(recording: &Recording) -> u64 {
    let profile = &recording.profile;
    let is_in = |index: u32, length: usize| assert!((index as usize) < length);
    for location in &profile.locations {
        if let Some(module) = location.module {
            is_in(module.0, profile.modules.len());
        }
    }
    for stack in &profile.stacks {
        for location in &stack.locations {
            is_in(location.0, profile.locations.len());
        }
    }
    for site in &profile.sites {
        is_in(site.process.0, profile.processes.len());
        is_in(site.stack.0, profile.stacks.len());
        if let Some(thread) = site.thread {
            is_in(thread.0, profile.threads.len());
        }
    }
    // Folding the result again in one step gives the same profile.
    let mut again = Profile::new(profile.info.clone());
    assert!(again.fold(profile.to_update()).is_ok());
    assert_eq!(again.sites, profile.sites);
    [
        profile.modules.len(),
        profile.locations.len(),
        profile.stacks.len(),
        profile.processes.len(),
        profile.sites.len(),
        recording.snapshots.len(),
        recording.warnings.len(),
        usize::from(recording.symbols.is_some()),
    ]
    .into_iter()
    .fold(1, |seen, count| seen * 5 + count.min(4) as u64)
}
