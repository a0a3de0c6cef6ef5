//! A table as bytes, as it is kept on disk.
//!
//! Stage: unwind. A header, pages, rows and rules, all in 32-bit words, and a checksum over all that. A
//! checksum finds accidents; what anybody could have written has to be sound, too, and no larger than what
//! is made from files.

use heaptrace_common::unwind::{Rule, bp, cfa};

use super::image::Fingerprint;
use super::table::{Limits, Table};

/// Counted up with every change of the form, or of what a rule means.
const MAGIC: &[u8; 8] = b"heaptab\x01";

/// Magic, fingerprint, and five numbers.
const HEADER: usize = 8 + 32 + 5 * 4;

/// Bytes of a table.
pub(super) fn encode(table: &Table, fingerprint: &Fingerprint) -> Vec<u8> {
    let words = table.pages.len() + table.rows.len() + 2 * table.rules.len();
    let mut bytes = Vec::with_capacity(HEADER + words * 4 + 4);
    bytes.extend(MAGIC);
    bytes.extend(fingerprint);
    let lengths = [table.pages.len(), table.rows.len(), table.rules.len()];
    let mut word = |word: u32| bytes.extend(word.to_le_bytes());
    lengths.into_iter().for_each(|length| word(length as u32));
    word(table.first_page);
    word(table.damaged);
    table
        .pages
        .iter()
        .chain(&table.rows)
        .for_each(|it| word(*it));
    for rule in &table.rules {
        word(
            u32::from(rule.cfa) | u32::from(rule.bp) << 8 | u32::from(rule.bp_offset as u16) << 16,
        );
        word(rule.cfa_offset as u32);
    }
    let checksum = crc32fast::hash(&bytes);
    bytes.extend(checksum.to_le_bytes());
    bytes
}

/// The table in these bytes, if it is one, and made from this.
pub(super) fn decode(bytes: &[u8], fingerprint: &Fingerprint) -> Option<Table> {
    let (content, checksum) = bytes.split_last_chunk::<4>()?;
    if crc32fast::hash(content) != u32::from_le_bytes(*checksum) {
        return None;
    }
    let rest = content.strip_prefix(MAGIC)?;
    let words = rest.strip_prefix(fingerprint)?.as_chunks::<4>();
    if !words.1.is_empty() {
        return None;
    }
    let mut words = words.0.iter().map(|word| u32::from_le_bytes(*word));
    let [pages, rows, rules] = [words.next()?, words.next()?, words.next()?];
    let (first_page, damaged) = (words.next()?, words.next()?);
    let all = u64::from(pages) + u64::from(rows) + 2 * u64::from(rules);
    if all != words.len() as u64 {
        return None;
    }
    let mut take = |count: u32| words.by_ref().take(count as usize).collect::<Vec<u32>>();
    let (pages, rows, rules) = (take(pages), take(rows), take(2 * rules));
    let rules = rules.as_chunks::<2>().0.iter().map(|[kinds, cfa_offset]| {
        let rule = Rule {
            cfa: *kinds as u8,
            bp: (*kinds >> 8) as u8,
            bp_offset: (*kinds >> 16) as u16 as i16,
            cfa_offset: *cfa_offset as i32,
        };
        (rule.cfa <= cfa::UNSUPPORTED && rule.bp <= bp::AT_BP).then_some(rule)
    });
    let table = Table {
        rules: rules.collect::<Option<_>>()?,
        pages,
        rows,
        first_page,
        damaged,
    };
    let limits = Limits::default();
    // A table reaches no further than half of what its pages could be counted in.
    let fits = table.rows.len() <= limits.rows && table.pages.len() <= 1 << 16;
    (fits && table.is_sound()).then_some(table)
}

/// Bytes of the longest table there can be.
pub(super) fn longest(limits: &Limits) -> u64 {
    let words = limits.rows as u64 + (1 << 16) + 2 * (1 << 16);
    HEADER as u64 + words * 4 + 4
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::unwind::build;

    const PRINT: Fingerprint = [7; 32];

    fn small() -> Table {
        Table {
            pages: vec![0, 2, 3],
            rows: vec![0, 1 << 16 | 5, 0],
            rules: vec![Rule::NONE, Rule::SIGNAL],
            first_page: 3,
            damaged: 1,
        }
    }

    /// The bytes with a checksum that is right, as whoever can write the file makes it.
    fn with_checksum(mut bytes: Vec<u8>) -> Vec<u8> {
        bytes.truncate(bytes.len() - 4);
        let checksum = crc32fast::hash(&bytes);
        bytes.extend(checksum.to_le_bytes());
        bytes
    }

    /// Check that a real table comes back as it was, and only for what it was made from.
    #[test]
    fn tables_come_back() {
        let data = fs::read("/proc/self/exe").unwrap();
        let table = build(data.as_slice(), &Limits::default()).unwrap();
        for table in [table, small()] {
            let bytes = encode(&table, &PRINT);
            assert!(bytes.len() as u64 <= longest(&Limits::default()));
            assert_eq!(decode(&bytes, &PRINT).as_ref(), Some(&table));
            assert_eq!(decode(&bytes, &[8; 32]), None);
        }
    }

    /// Check that no cut and no accident goes through, and that what was written on purpose is sound or
    /// refused.
    #[test]
    fn nothing_is_believed() {
        let bytes = encode(&small(), &PRINT);
        for end in 0..bytes.len() {
            assert_eq!(decode(&bytes[..end], &PRINT), None);
        }
        let mut believed = 0;
        for at in 0..bytes.len() - 4 {
            for flip in 1..=255 {
                let mut bytes = bytes.clone();
                bytes[at] ^= flip;
                assert_eq!(decode(&bytes, &PRINT), None, "{at}");
                if let Some(table) = decode(&with_checksum(bytes), &PRINT) {
                    assert!(table.is_sound());
                    believed += 1;
                }
            }
        }
        // Other rules and other places in the code can be a table.
        assert!(believed > 0);
        for broken in [
            Table {
                pages: vec![0, 2, 4],
                ..small()
            },
            Table {
                pages: vec![0],
                ..small()
            },
            Table {
                rows: vec![0, 2 << 16 | 5, 0],
                ..small()
            },
            Table {
                rows: vec![0, 1 << 16, 0],
                ..small()
            },
            Table {
                rules: vec![
                    Rule {
                        cfa: 99,
                        ..Rule::NONE
                    };
                    2
                ],
                ..small()
            },
            Table {
                rules: vec![
                    Rule {
                        bp: 99,
                        ..Rule::NONE
                    };
                    2
                ],
                ..small()
            },
        ] {
            assert_eq!(decode(&encode(&broken, &PRINT), &PRINT), None, "{broken:?}");
        }
    }
}
