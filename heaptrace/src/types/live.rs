//! Inspects the live blocks of a process: which of them begin with an object that has virtual functions, and of which class.
//!
//! Stage: types. Only the first word of each block is read. A reader tells which class has its table of virtual functions there, by the file
//! that is mapped at that place. The memory is untrusted: a word is only compared with mappings. Must not know what becomes of the answer.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::time::{Duration, Instant};

use super::live_protocol::{ClassesAnswer, ClassesQuestion, MAX_PLACES, is_sound};
use crate::join::{Inspected, InspectedStack, LiveBlock, StackId};
use crate::proc::address_space::AddressSpace;
use crate::proc::maps::{self, Mapping};
use crate::reader::{Budget, Job, Limits, Reader};

/// Most different words that are looked up, of a process.
const MAX_WORDS: usize = 1 << 16;

/// The longest time that reading the memory of a process may take.
const MAX_TIME: Duration = Duration::from_secs(2);

/// Bytes of a page.
const PAGE: u64 = 4096;

/// Bytes of the pointer to a table.
const WORD: u64 = 8;

/// Inspects blocks.
#[derive(Debug)]
pub struct Inspector {
    reader: Reader,
}

impl Inspector {
    /// An inspector whose reader uses this budget.
    pub fn new(budget: &Budget) -> Self {
        Self {
            reader: Reader::new(budget, Limits::default()),
        }
    }

    /// Inspects blocks of a process; `None` if its memory can't be read.
    pub fn inspect(&mut self, pid: u32, mut blocks: Vec<LiveBlock>) -> Option<Inspected> {
        let memory = AddressSpace::open(pid).ok()?;
        let mut mappings = maps::of(pid).ok()?;
        mappings.retain(|it| it.inode != 0);
        blocks.sort_unstable_by_key(|it| it.address);
        let words = first_words(&memory, &blocks);
        let tables = self.classes(pid, &mappings, &words);
        Some(collect(&blocks, &words, &tables))
    }

    /// The reader.
    pub fn reader(&mut self) -> &mut Reader {
        &mut self.reader
    }

    /// The class whose table of virtual functions is at each of these offsets of a file; empty if there is none. If the file can't be read, fewer.
    pub fn classes_in(&mut self, name: &str, file: &File, offsets: &[u64]) -> Vec<String> {
        let mut found = Vec::with_capacity(offsets.len());
        for part in offsets.chunks(MAX_PLACES) {
            let question = ClassesQuestion {
                offsets: part.to_vec(),
            };
            let answer: Result<ClassesAnswer, _> =
                self.reader.ask(Job::Classes, &question, name, &[file]);
            match answer.ok().filter(is_sound) {
                Some(names) if names.len() == part.len() => found.extend(names),
                _ => break,
            }
        }
        found
    }

    /// The class for each word that is the address of a table.
    fn classes(&mut self, pid: u32, mappings: &[Mapping], words: &[First]) -> HashMap<u64, String> {
        let mut files: BTreeMap<_, (&Mapping, BTreeMap<u64, u64>)> = BTreeMap::new();
        let mut found = HashMap::new();
        for word in words.iter().filter_map(First::word) {
            let Some(mapping) = mapping_of(mappings, word) else {
                continue;
            };
            let key = (mapping.device, mapping.inode);
            let (_, places) = files.entry(key).or_insert((mapping, BTreeMap::new()));
            if places.len() < MAX_WORDS {
                places.insert(word, word - mapping.start + mapping.offset);
            }
        }
        for (mapping, places) in files.into_values() {
            let Ok(opened) = maps::open_mapped(pid, mapping) else {
                continue;
            };
            let places: Vec<(u64, u64)> = places.into_iter().collect();
            let offsets: Vec<u64> = places.iter().map(|it| it.1).collect();
            let names = self.classes_in(&mapping.path, &opened.file, &offsets);
            let named = places.iter().map(|it| it.0).zip(names);
            found.extend(named.filter(|(_, name)| !name.is_empty()));
        }
        found
    }
}

/// The mapping that a table of virtual functions could be in: a part of a file that is no code.
fn mapping_of(mappings: &[Mapping], word: u64) -> Option<&Mapping> {
    if !word.is_multiple_of(WORD) {
        return None;
    }
    let after = mappings.partition_point(|it| it.start <= word);
    let mapping = mappings.get(after.checked_sub(1)?)?;
    (word < mapping.end && !mapping.executable && mapping.path.starts_with('/')).then_some(mapping)
}

/// The beginning of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    /// Its first word.
    Word(u64),
    /// The block has no whole word.
    Short,
    /// It could not be read.
    Unread,
}

impl First {
    fn word(&self) -> Option<u64> {
        match self {
            Self::Word(word) => Some(*word),
            Self::Short | Self::Unread => None,
        }
    }
}

/// The first words of blocks that are in the order of their addresses. Pages are read at a time, and none of which no block begins in.
fn first_words(memory: &AddressSpace, blocks: &[LiveBlock]) -> Vec<First> {
    let begun = Instant::now();
    let mut buffer = vec![0; (PAGE + WORD) as usize];
    let (mut base, mut read) = (0, 0);
    let words = blocks.iter().map(|block| {
        if block.size < WORD {
            return First::Short;
        }
        let at = |base: u64, read: usize, buffer: &[u8]| {
            let within = usize::try_from(block.address.checked_sub(base)?).ok()?;
            let word = buffer.get(..read)?.get(within..)?.first_chunk()?;
            Some(First::Word(u64::from_le_bytes(*word)))
        };
        if let Some(word) = at(base, read, &buffer) {
            return word;
        }
        if begun.elapsed() > MAX_TIME {
            return First::Unread;
        }
        let to_end = PAGE - block.address % PAGE;
        let length = to_end.max(WORD) as usize;
        base = block.address;
        read = buffer
            .get_mut(..length)
            .map_or(0, |part| memory.read(block.address, part));
        at(base, read, &buffer).unwrap_or(First::Unread)
    });
    words.collect()
}

/// Puts together what was found.
fn collect(blocks: &[LiveBlock], words: &[First], tables: &HashMap<u64, String>) -> Inspected {
    let mut inspected = Inspected::default();
    let mut classes: BTreeMap<&str, u32> = BTreeMap::new();
    let mut stacks: BTreeMap<(StackId, Option<u32>), InspectedStack> = BTreeMap::new();
    for (block, first) in blocks.iter().zip(words) {
        if *first == First::Unread {
            inspected.unread += 1;
            continue;
        }
        inspected.read += 1;
        let name = first.word().and_then(|it| tables.get(&it));
        let class = name.map(|name| {
            *classes.entry(name).or_insert_with(|| {
                inspected.classes.push(name.clone());
                inspected.classes.len() as u32 - 1
            })
        });
        inspected.blocks.extend(class.map(|it| (block.id, it)));
        let empty = InspectedStack {
            stack: block.stack,
            class,
            blocks: 0,
            bytes: 0,
            smallest: u64::MAX,
            largest: 0,
        };
        let sum = stacks.entry((block.stack, class)).or_insert(empty);
        sum.blocks += 1;
        sum.bytes = sum.bytes.saturating_add(block.size);
        sum.smallest = sum.smallest.min(block.size);
        sum.largest = sum.largest.max(block.size);
    }
    inspected.blocks.sort_unstable();
    inspected.stacks = stacks.into_values().collect();
    inspected
}
