//! The messages of single blocks: columns, because columns compress well.
//!
//! Stage: profile. Numbers that grow from block to block are stored as differences. A column whose values are all zero is left out.
//! Knows nothing of chunks and of what blocks add up to.

use prost::Message;

use super::error::WireError;
use super::inspected::InspectedMessage;
use super::memory_map::MemoryMapMessage;
use crate::join::{BlockChanges, BlockOwner, BornBlock, FreedBlock, HowFreed, StackId};

/// Most blocks of a message, so that decoding one needs little memory.
const MOST: usize = 1 << 14;

/// [`BlockChanges`], or a part of them, as a message.
#[derive(Clone, PartialEq, Message)]
pub(in crate::profile) struct BlocksMessage {
    #[prost(uint64, tag = "1")]
    serial: u64,
    #[prost(uint32, tag = "2")]
    pid: u32,
    #[prost(uint64, tag = "3")]
    start_time_ns: u64,
    #[prost(string, tag = "4")]
    command: String,
    #[prost(uint64, tag = "5")]
    at_ns: u64,
    #[prost(bool, tag = "6")]
    has_all: bool,
    #[prost(uint64, optional, tag = "7")]
    ended_ns: Option<u64>,
    #[prost(message, optional, tag = "8")]
    born: Option<Born>,
    #[prost(message, optional, tag = "9")]
    freed: Option<Freed>,
    /// Whether the next chunk continues these changes.
    #[prost(bool, tag = "10")]
    pub(in crate::profile) more: bool,
    #[prost(message, optional, tag = "20")]
    memory: Option<MemoryMapMessage>,
    #[prost(bool, tag = "21")]
    is_whole: bool,
    #[prost(message, optional, tag = "22")]
    inspected: Option<InspectedMessage>,
}

/// Columns of allocated blocks.
#[derive(Clone, PartialEq, Message)]
struct Born {
    #[prost(sint64, repeated, tag = "1")]
    ids: Vec<i64>,
    #[prost(sint64, repeated, tag = "2")]
    addresses: Vec<i64>,
    #[prost(uint64, repeated, tag = "3")]
    sizes: Vec<u64>,
    #[prost(uint32, repeated, tag = "4")]
    stacks: Vec<u32>,
    #[prost(sint64, repeated, tag = "5")]
    threads: Vec<i64>,
    #[prost(sint64, repeated, tag = "6")]
    times: Vec<i64>,
    #[prost(sint64, repeated, tag = "7")]
    means: Vec<i64>,
    #[prost(bool, repeated, tag = "8")]
    reallocated: Vec<bool>,
}

/// Columns of freed blocks.
#[derive(Clone, PartialEq, Message)]
struct Freed {
    #[prost(sint64, repeated, tag = "1")]
    ids: Vec<i64>,
    #[prost(sint64, repeated, tag = "2")]
    times: Vec<i64>,
    #[prost(sint64, repeated, tag = "3")]
    threads: Vec<i64>,
    #[prost(uint32, repeated, tag = "4")]
    how: Vec<u32>,
}

impl BlocksMessage {
    /// Changes in parts of bounded size.
    pub(in crate::profile) fn parts(changes: &BlockChanges) -> impl Iterator<Item = Self> {
        let (mut born, mut freed) = (changes.born.chunks(MOST), changes.freed.chunks(MOST));
        // The memory has a message of its own, so that blocks and memory are not in one chunk.
        let blocks = born.len().max(freed.len());
        let own = [changes.memory.is_some(), changes.inspected.is_some()].map(usize::from);
        let count = (blocks + own[0] + own[1]).max(1);
        let of_inspected = count - own[0];
        (0..count).map(move |part| Self {
            serial: changes.owner.serial,
            pid: changes.owner.pid,
            start_time_ns: changes.owner.start_time_ns,
            command: changes.owner.command.clone(),
            at_ns: changes.at_ns,
            has_all: changes.has_all,
            is_whole: changes.is_whole,
            ended_ns: changes.ended_ns,
            born: born.next().map(Born::new),
            freed: freed.next().map(Freed::new),
            more: part + 1 < count,
            memory: changes
                .memory
                .as_ref()
                .filter(|_| part + 1 == count)
                .map(Into::into),
            inspected: changes
                .inspected
                .as_ref()
                .filter(|_| part + 1 == of_inspected)
                .map(Into::into),
        })
    }

    /// The changes, which may be a part of those of an update.
    pub(in crate::profile) fn into_plain(self) -> Result<BlockChanges, WireError> {
        let born = self.born.map_or_else(|| Ok(Vec::new()), Born::into_plain);
        let freed = self.freed.map_or_else(|| Ok(Vec::new()), Freed::into_plain);
        Ok(BlockChanges {
            owner: BlockOwner {
                serial: self.serial,
                pid: self.pid,
                start_time_ns: self.start_time_ns,
                command: self.command,
            },
            is_whole: self.is_whole,
            at_ns: self.at_ns,
            has_all: self.has_all,
            born: born?,
            freed: freed?,
            ended_ns: self.ended_ns,
            memory: self.memory.map(TryInto::try_into).transpose()?,
            inspected: self.inspected.map(TryInto::try_into).transpose()?,
        })
    }
}

impl Born {
    fn new(blocks: &[BornBlock]) -> Self {
        let column = |of: fn(&BornBlock) -> u64| differences(blocks.iter().map(of));
        let reallocated = blocks.iter().map(|it| it.is_reallocated);
        Self {
            ids: column(|it| it.id),
            addresses: column(|it| it.address),
            sizes: blocks.iter().map(|it| it.size).collect(),
            stacks: blocks.iter().map(|it| it.stack.0).collect(),
            threads: column(|it| it.thread.into()),
            times: column(|it| it.born_ns),
            means: without_zeros(column(|it| it.mean)),
            reallocated: without_zeros(reallocated.collect()),
        }
    }

    fn into_plain(self) -> Result<Vec<BornBlock>, WireError> {
        let count = self.ids.len();
        let mut ids = sums(self.ids, count)?;
        let mut addresses = sums(self.addresses, count)?;
        let mut sizes = column(self.sizes, count)?;
        let mut stacks = column(self.stacks, count)?;
        let mut threads = sums(self.threads, count)?;
        let mut times = sums(self.times, count)?;
        let mut means = sums(self.means, count)?;
        let mut reallocated = column(self.reallocated, count)?;
        let blocks = (0..count).map(|_| BornBlock {
            id: ids(),
            address: addresses(),
            size: sizes(),
            stack: StackId(stacks()),
            thread: threads() as u32,
            born_ns: times(),
            mean: means(),
            is_reallocated: reallocated(),
        });
        Ok(blocks.collect())
    }
}

impl Freed {
    fn new(blocks: &[FreedBlock]) -> Self {
        let column = |of: fn(&FreedBlock) -> u64| differences(blocks.iter().map(of));
        let how = blocks.iter().map(|it| number_of(it.how));
        Self {
            ids: column(|it| it.id),
            times: column(|it| it.freed_ns),
            threads: column(|it| it.thread.into()),
            how: without_zeros(how.collect()),
        }
    }

    fn into_plain(self) -> Result<Vec<FreedBlock>, WireError> {
        let count = self.ids.len();
        let mut ids = sums(self.ids, count)?;
        let mut times = sums(self.times, count)?;
        let mut threads = sums(self.threads, count)?;
        let mut how = column(self.how, count)?;
        let blocks = (0..count).map(|_| {
            Ok(FreedBlock {
                id: ids(),
                freed_ns: times(),
                thread: threads() as u32,
                how: how_of(how())?,
            })
        });
        blocks.collect()
    }
}

fn number_of(how: HowFreed) -> u32 {
    match how {
        HowFreed::Freed => 0,
        HowFreed::Reallocated => 1,
        HowFreed::Unseen => 2,
    }
}

fn how_of(number: u32) -> Result<HowFreed, WireError> {
    let all = [HowFreed::Freed, HowFreed::Reallocated, HowFreed::Unseen];
    let known = all.into_iter().find(|it| number_of(*it) == number);
    known.ok_or(WireError::Unknown {
        what: "end of a block",
        value: number,
    })
}

/// Each number as its difference from the one before.
fn differences(numbers: impl Iterator<Item = u64>) -> Vec<i64> {
    let mut before = 0_u64;
    let differences = numbers.map(|number| {
        let difference = number.wrapping_sub(before);
        before = number;
        difference.cast_signed()
    });
    differences.collect()
}

/// A column, or nothing if all of its values are zero.
fn without_zeros<T: Default + PartialEq>(column: Vec<T>) -> Vec<T> {
    let zero = T::default();
    if column.iter().all(|it| *it == zero) {
        return Vec::new();
    }
    column
}

/// The values of a column, one with each call. A column that was left out has zeros.
fn column<T: Default>(column: Vec<T>, count: usize) -> Result<impl FnMut() -> T, WireError> {
    if !column.is_empty() && column.len() != count {
        return Err(WireError::Malformed);
    }
    let mut values = column.into_iter();
    Ok(move || values.next().unwrap_or_default())
}

/// The values of a column of differences, one with each call.
fn sums(differences: Vec<i64>, count: usize) -> Result<impl FnMut() -> u64, WireError> {
    let mut next = column(differences, count)?;
    let mut sum = 0_u64;
    Ok(move || {
        sum = sum.wrapping_add(next().cast_unsigned());
        sum
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::{Inspected, MemoryMap};

    fn changes(blocks: u64) -> BlockChanges {
        let born = |n: u64| BornBlock {
            id: n * 3 + 1,
            address: u64::MAX - n * n,
            size: n % 7 * 1000,
            stack: StackId((n % 5) as u32),
            thread: 1000 + (n % 3) as u32,
            born_ns: n * 1_000_003,
            mean: n % 2 * 4096,
            is_reallocated: n.is_multiple_of(4),
        };
        let freed = |n: u64| FreedBlock {
            id: n * 3 + 1,
            how: [HowFreed::Freed, HowFreed::Reallocated, HowFreed::Unseen][n as usize % 3],
            freed_ns: n * n,
            thread: n as u32,
        };
        BlockChanges {
            owner: BlockOwner {
                serial: 9,
                pid: 42,
                start_time_ns: 7,
                command: "redis".to_owned(),
            },
            is_whole: true,
            at_ns: 1 << 40,
            has_all: true,
            born: (0..blocks).map(born).collect(),
            freed: (0..blocks).map(freed).collect(),
            ended_ns: Some(5),
            memory: Some(MemoryMap {
                at_ns: 6,
                ..MemoryMap::default()
            }),
            inspected: Some(Inspected {
                at_ns: 8,
                ..Inspected::default()
            }),
        }
    }

    fn first(changes: &BlockChanges) -> BlocksMessage {
        BlocksMessage::parts(changes).next().unwrap()
    }

    fn read(message: &BlocksMessage) -> BlockChanges {
        let bytes = message.encode_to_vec();
        let message = BlocksMessage::decode(bytes.as_slice()).unwrap();
        message.into_plain().unwrap()
    }

    /// Check that blocks are read as they were written, also those of several parts, and that zeros need no bytes.
    #[test]
    fn blocks_are_read_as_written() {
        for blocks in [0, 1, 1000, MOST as u64 + 1] {
            let changes = changes(blocks);
            let parts: Vec<_> = BlocksMessage::parts(&changes).collect();
            let (last, others) = parts.split_last().unwrap();
            assert!(!last.more && others.iter().all(|it| it.more));
            let parts: Vec<_> = parts.iter().map(read).collect();
            let owners = parts.iter().map(|it| &it.owner);
            assert!(owners.into_iter().all(|it| *it == changes.owner));
            let born: Vec<_> = parts.iter().flat_map(|it| it.born.clone()).collect();
            let freed: Vec<_> = parts.iter().flat_map(|it| it.freed.clone()).collect();
            assert_eq!((born, freed), (changes.born, changes.freed));
            assert_eq!(parts[0].ended_ns, Some(5));
            let memory: Vec<_> = parts.iter().filter_map(|it| it.memory.clone()).collect();
            assert_eq!(memory, [changes.memory.unwrap()]);
            let inspected: Vec<_> = parts.iter().filter_map(|it| it.inspected.clone()).collect();
            assert_eq!(inspected, [changes.inspected.unwrap()]);
        }
        let mut exact = changes(100);
        for block in &mut exact.born {
            (block.mean, block.is_reallocated) = (0, false);
        }
        let with_zeros = first(&changes(100)).encoded_len();
        let without = first(&exact).encoded_len();
        assert!(without + 250 < with_zeros, "{without} {with_zeros}");
    }

    /// Check that columns of different lengths, and unknown ways in which a block ended, are errors.
    #[test]
    fn damaged_columns_are_errors() {
        let mut short = first(&changes(3));
        short.born.as_mut().unwrap().sizes.pop();
        assert!(matches!(short.into_plain(), Err(WireError::Malformed)));
        let mut long = first(&changes(3));
        long.born.as_mut().unwrap().ids.push(1);
        assert!(matches!(long.into_plain(), Err(WireError::Malformed)));
        let mut unknown = first(&changes(3));
        unknown.freed.as_mut().unwrap().how[1] = 9;
        let error = unknown.into_plain().unwrap_err().to_string();
        assert!(error.contains("unknown end of a block 9"), "{error}");
    }
}
