//! The message of the blocks that nothing in their process points to.
//!
//! Stage: profile.

use prost::Message;

use crate::join::{self, ProcessId, StackId, UnreachableSum};

/// [`join::Reachability`], as a message.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Reachability {
    #[prost(uint32, tag = "1")]
    process: u32,
    #[prost(uint64, tag = "2")]
    at_ns: u64,
    #[prost(uint64, tag = "3")]
    stopped_ns: u64,
    #[prost(uint32, tag = "4")]
    threads: u32,
    #[prost(uint64, tag = "5")]
    memory_bytes: u64,
    #[prost(uint64, tag = "6")]
    stopped_bytes: u64,
    #[prost(uint64, tag = "7")]
    unread_bytes: u64,
    #[prost(bool, tag = "8")]
    is_whole: bool,
    #[prost(bool, tag = "9")]
    has_all_blocks: bool,
    #[prost(uint64, tag = "10")]
    judged_blocks: u64,
    #[prost(uint64, tag = "11")]
    judged_bytes: u64,
    #[prost(uint64, tag = "12")]
    young_blocks: u64,
    #[prost(uint64, tag = "13")]
    freed_blocks: u64,
    #[prost(string, tag = "14")]
    refused: String,
    #[prost(message, repeated, tag = "15")]
    sites: Vec<Site>,
    #[prost(uint32, tag = "16")]
    later_readings: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Site {
    #[prost(uint32, tag = "1")]
    stack: u32,
    /// Blocks, the error of their number, what of it was not seen, the same of bytes, and the mean of bytes between samples: first of
    /// those that no other one points to.
    #[prost(uint64, repeated, tag = "2")]
    sums: Vec<u64>,
}

impl From<&join::Reachability> for Reachability {
    fn from(it: &join::Reachability) -> Self {
        let sites = it.sites.iter().map(|site| Site {
            stack: site.stack.0,
            sums: [numbers(&site.direct), numbers(&site.indirect)].concat(),
        });
        Self {
            process: it.process.0,
            at_ns: it.at_ns,
            stopped_ns: it.stopped_ns,
            threads: it.threads,
            memory_bytes: it.memory_bytes,
            stopped_bytes: it.stopped_bytes,
            unread_bytes: it.unread_bytes,
            is_whole: it.is_whole,
            has_all_blocks: it.has_all_blocks,
            judged_blocks: it.judged_blocks,
            judged_bytes: it.judged_bytes,
            young_blocks: it.young_blocks,
            freed_blocks: it.freed_blocks,
            refused: it.refused.clone(),
            sites: sites.collect(),
            later_readings: it.later_readings,
        }
    }
}

impl From<Reachability> for join::Reachability {
    fn from(it: Reachability) -> Self {
        let sites = it.sites.into_iter().map(|site| {
            let mut numbers = site.sums.into_iter();
            join::UnreachableSite {
                stack: StackId(site.stack),
                direct: sum(&mut numbers),
                indirect: sum(&mut numbers),
            }
        });
        Self {
            process: ProcessId(it.process),
            at_ns: it.at_ns,
            stopped_ns: it.stopped_ns,
            threads: it.threads,
            memory_bytes: it.memory_bytes,
            stopped_bytes: it.stopped_bytes,
            unread_bytes: it.unread_bytes,
            is_whole: it.is_whole,
            later_readings: it.later_readings,
            has_all_blocks: it.has_all_blocks,
            judged_blocks: it.judged_blocks,
            judged_bytes: it.judged_bytes,
            young_blocks: it.young_blocks,
            freed_blocks: it.freed_blocks,
            refused: it.refused,
            sites: sites.collect(),
        }
    }
}

fn numbers(sum: &UnreachableSum) -> [u64; 7] {
    [
        sum.blocks,
        sum.blocks_error,
        sum.blocks_unseen,
        sum.bytes,
        sum.bytes_error,
        sum.bytes_unseen,
        sum.mean_bytes,
    ]
}

/// The next seven numbers; those that are missing are zero.
fn sum(numbers: &mut impl Iterator<Item = u64>) -> UnreachableSum {
    let mut next = || numbers.next().unwrap_or(0);
    UnreachableSum {
        blocks: next(),
        blocks_error: next(),
        blocks_unseen: next(),
        bytes: next(),
        bytes_error: next(),
        bytes_unseen: next(),
        mean_bytes: next(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that what was found is read as it was written, and that missing numbers are zero.
    #[test]
    fn findings_are_read_as_written() {
        let sum = |n: u64| UnreachableSum {
            blocks: n,
            blocks_error: n + 1,
            blocks_unseen: n + 2,
            bytes: n + 3,
            bytes_error: n + 4,
            bytes_unseen: n + 5,
            mean_bytes: n + 6,
        };
        let site = |n: u64| join::UnreachableSite {
            stack: StackId(n as u32),
            direct: sum(n * 10),
            indirect: sum(n * 100),
        };
        let found = join::Reachability {
            process: ProcessId(3),
            at_ns: 4,
            stopped_ns: 5,
            threads: 6,
            memory_bytes: 7,
            stopped_bytes: 8,
            unread_bytes: 9,
            is_whole: true,
            later_readings: 14,
            has_all_blocks: true,
            judged_blocks: 10,
            judged_bytes: 11,
            young_blocks: 12,
            freed_blocks: 13,
            refused: "why".to_owned(),
            sites: vec![site(1), site(2)],
        };
        let bytes = Reachability::from(&found).encode_to_vec();
        let read = |bytes: &[u8]| Reachability::decode(bytes).unwrap();
        assert_eq!(join::Reachability::from(read(&bytes)), found);
        let mut short = read(&bytes);
        short.sites[0].sums.truncate(4);
        let short = join::Reachability::from(short).sites[0];
        assert_eq!((short.direct.bytes, short.direct.bytes_error), (13, 0));
        assert_eq!(short.indirect, UnreachableSum::default());
    }
}
