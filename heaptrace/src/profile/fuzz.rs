//! Properties that must hold for any data file.
//!
//! Stage: profile.

use super::blocks::WantedBlocks;
use super::datafile::{Kind, ReadOptions, Recording, Window, encode_update, read_with_blocks};
use super::model::Profile;
use crate::join::histogram::BUCKETS;

/// Bytes before each message of an input: its kind and its length.
const HEAD: usize = 3;

/// Every index in the result is in its table, and folding the result again gives the same.
pub(crate) fn data_file(data: &[u8]) -> u64 {
    let wanted = WantedBlocks::at(&[0x1000, 0x1008]).with_memory();
    match read_with_blocks(data, "input", ReadOptions::default(), Some(wanted)) {
        Ok(recording) => sound(&recording),
        Err(error) => {
            assert!(error.to_string().contains("input"));
            0
        }
    }
}

/// The same with whole chunks, so that the messages in them are decoded.
pub(crate) fn messages(data: &[u8]) -> u64 {
    data_file(&framed(data))
}

/// The content of a data file, with its blocks at these addresses.
pub(crate) fn with_blocks(
    file: &[u8],
    options: ReadOptions,
    addresses: &[u64],
) -> Option<Recording> {
    let wanted = WantedBlocks::at(addresses).with_memory();
    read_with_blocks(file, "input", options, Some(wanted)).ok()
}

/// A data file with the messages of an input. Each has a byte for its kind, two for its length, and its bytes. With the highest bit of its
/// first byte, an update is compressed with those before it.
pub(crate) fn framed(data: &[u8]) -> Vec<u8> {
    let mut file = b"\x89HTRACE\n\x02\0\0\0".to_vec();
    let mut window = Window::default();
    let mut rest = data;
    while let Some((head, after)) = rest.split_at_checked(HEAD) {
        let length = usize::from(u16::from_le_bytes([head[1], head[2]])).min(after.len());
        let (payload, after) = after.split_at(length);
        rest = after;
        // One kind more than there are.
        let kind = u32::from(head[0] & 0x7f) % 7;
        if kind == Kind::Update as u32 {
            if head[0] > 0x7f {
                file.extend(encode_update(payload, &mut window).unwrap_or_default());
                continue;
            }
            window.add(payload);
        }
        let Ok(compressed) = zstd::bulk::compress(payload, 1) else {
            break;
        };
        let begin = file.len();
        file.extend(kind.to_le_bytes());
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
    let generations = profile.generations.iter().map(|it| &it.site);
    for site in profile.sites.iter().chain(generations) {
        is_in(site.process.0, profile.processes.len());
        is_in(site.stack.0, profile.stacks.len());
        if let Some(thread) = site.thread {
            is_in(thread.0, profile.threads.len());
        }
    }
    for (site, usage) in &profile.usages {
        is_in(site.0, profile.sites.len());
        for buckets in [&usage.sizes, &usage.lifetimes] {
            assert!(buckets.len() <= BUCKETS);
            assert!(buckets.is_sorted_by(|a, b| a.index < b.index));
        }
    }
    for process in recording.blocks.iter().flat_map(|it| &it.processes) {
        for block in &process.blocks {
            is_in(block.stack.0, profile.stacks.len());
            assert!(process.holding(block.address).is_some());
        }
        assert!(process.blocks.is_sorted_by_key(|it| it.address));
        if let Some(memory) = &process.memory {
            let stacks = memory.blocks.iter().map(|it| it.stack);
            for stack in stacks.chain(memory.map.mapped.iter().map(|it| it.stack)) {
                is_in(stack.0, profile.stacks.len());
            }
        }
        for address in [0, 0x1000, u64::MAX] {
            let (before, after) = process.neighbours(address);
            assert!(before.is_none_or(|it| it.address <= address));
            assert!(after.is_none_or(|it| it.address > address));
        }
    }
    if let Some(symbols) = &recording.symbols {
        for id in symbols.types.of_stacks.values() {
            is_in(*id, symbols.types.types.len());
        }
    }
    // One update leads from an empty profile to the same one.
    let mut again = Profile::new(profile.info.clone());
    assert!(again.fold(profile.to_update()).is_ok());
    assert_eq!(again.sites, profile.sites);
    assert_eq!(again.usages, profile.usages);
    assert_eq!(again.generations, profile.generations);
    assert_eq!(again.marks, profile.marks);
    assert_eq!(again.exceeded, profile.exceeded);
    assert_eq!(again.reachability, profile.reachability);
    [
        profile.modules.len(),
        profile.locations.len(),
        profile.stacks.len(),
        profile.processes.len(),
        profile.sites.len(),
        profile.usages.len(),
        profile.marks.len(),
        profile.generations.len(),
        recording.snapshots.len(),
        recording.warnings.len(),
        usize::from(recording.symbols.is_some()),
        recording.blocks.as_ref().map_or(0, |it| it.processes.len()),
        recording
            .symbols
            .as_ref()
            .map_or(0, |it| it.types.of_stacks.len()),
    ]
    .into_iter()
    .fold(1, |seen, count| seen * 5 + count.min(4) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::RunEnd;

    /// Check that an input reaches updates that are compressed with those before them: it has some, and is read to its end.
    #[test]
    fn inputs_reach_the_window() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../fuzz/corpus/data_messages/window"
        );
        let file = framed(&std::fs::read(path).unwrap());
        let with_window = 1_u32 << 8 | Kind::Update as u32;
        let head = with_window.to_le_bytes();
        assert!(file.windows(4).filter(|it| *it == head).count() >= 3);
        let recording = with_blocks(&file, ReadOptions::default(), &[]).unwrap();
        assert_eq!(recording.profile.end, RunEnd::Orderly);
        assert_eq!(recording.warnings, Vec::<String>::new());
        assert!(recording.snapshots.len() >= 3);
    }
}
