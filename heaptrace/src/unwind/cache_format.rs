//! The byte format of a cached table.
//!
//! Stage: unwind. A header, pages, rows, rules, a Python interpreter and V8, all in 32-bit words, then a checksum of everything
//! before it. The checksum detects accidental damage only. So a decoded table must also be sound, and within the limits of
//! built tables.

use heaptrace_common::unwind::{Rule, bp, cfa};

use super::image::Fingerprint;
use super::table::{Limits, Table};
use crate::{python, v8};

/// The first bytes of each entry.
const MAGIC: &[u8; 7] = b"heaptab";

/// The format version, after the magic. Incremented with every change of the format, or of the meaning of a rule.
const FORMAT_VERSION: u8 = 3;

/// Bytes of the header: magic, format version, fingerprint, and six numbers.
const HEADER: usize = 8 + 32 + 6 * 4;

/// Bits of the last number of the header: which runtimes the file holds.
mod runtimes {
    pub(super) const PYTHON: u32 = 1;
    pub(super) const V8: u32 = 2;
    pub(super) const ALL: u32 = 3;
}

/// Most words of runtimes.
const RUNTIME_WORDS: usize = python::IMAGE_WORDS + v8::IMAGE_WORDS;

/// Encodes a table.
pub(super) fn encode(table: &Table, fingerprint: &Fingerprint) -> Vec<u8> {
    let words = table.pages.len() + table.rows.len() + 2 * table.rules.len();
    let mut bytes = Vec::with_capacity(HEADER + (words + RUNTIME_WORDS) * 4 + 4);
    bytes.extend(MAGIC);
    bytes.push(FORMAT_VERSION);
    bytes.extend(fingerprint);
    let lengths = [table.pages.len(), table.rows.len(), table.rules.len()];
    let mut word = |word: u32| bytes.extend(word.to_le_bytes());
    lengths.into_iter().for_each(|length| word(length as u32));
    word(table.first_page);
    word(table.damaged);
    let has_python = u32::from(table.python.is_some()) * runtimes::PYTHON;
    let has_v8 = u32::from(table.v8.is_some()) * runtimes::V8;
    word(has_python | has_v8);
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
    let python = table.python.as_ref().map(python::to_words);
    python.iter().flatten().for_each(|it| word(*it));
    let v8 = table.v8.as_ref().map(v8::to_words);
    v8.iter().flatten().for_each(|it| word(*it));
    let checksum = crc32fast::hash(&bytes);
    bytes.extend(checksum.to_le_bytes());
    bytes
}

/// Decodes a table. `None` if the bytes are not a sound table with this fingerprint.
pub(super) fn decode(bytes: &[u8], fingerprint: &Fingerprint) -> Option<Table> {
    let (content, checksum) = bytes.split_last_chunk::<4>()?;
    if crc32fast::hash(content) != u32::from_le_bytes(*checksum) {
        return None;
    }
    let rest = content
        .strip_prefix(MAGIC)?
        .strip_prefix(&[FORMAT_VERSION])?;
    let words = rest.strip_prefix(fingerprint)?.as_chunks::<4>();
    if !words.1.is_empty() {
        return None;
    }
    let mut words = words.0.iter().map(|word| u32::from_le_bytes(*word));
    let [pages, rows, rules] = [words.next()?, words.next()?, words.next()?];
    let (first_page, damaged) = (words.next()?, words.next()?);
    let runtimes = words.next()?;
    let has = |runtime| runtimes & runtime != 0;
    let all = u64::from(pages) + u64::from(rows) + 2 * u64::from(rules);
    let of_python = u64::from(has(runtimes::PYTHON)) * python::IMAGE_WORDS as u64;
    let of_v8 = u64::from(has(runtimes::V8)) * v8::IMAGE_WORDS as u64;
    if runtimes & !runtimes::ALL != 0 || all + of_python + of_v8 != words.len() as u64 {
        return None;
    }
    let mut take = |count: u32| words.by_ref().take(count as usize).collect::<Vec<u32>>();
    let (pages, rows, rules) = (take(pages), take(rows), take(2 * rules));
    let mut python = None;
    if has(runtimes::PYTHON) {
        let words = take(python::IMAGE_WORDS as u32);
        python = Some(python::from_words(*words.first_chunk()?)?);
    }
    let mut v8 = None;
    if has(runtimes::V8) {
        let words = take(v8::IMAGE_WORDS as u32);
        v8 = Some(v8::from_words(*words.first_chunk()?)?);
    }
    let rules = rules.as_chunks::<2>().0.iter().map(|[kinds, cfa_offset]| {
        let rule = Rule {
            cfa: *kinds as u8,
            bp: (*kinds >> 8) as u8,
            bp_offset: (*kinds >> 16) as u16 as i16,
            cfa_offset: *cfa_offset as i32,
        };
        (rule.cfa <= cfa::UNSUPPORTED && rule.bp <= bp::AT_BP).then_some(rule)
    });
    let rules = rules.collect::<Option<_>>()?;
    let table = Table {
        rules,
        pages,
        rows,
        first_page,
        damaged,
        python,
        v8,
    };
    let limits = Limits::default();
    // A builder makes at most half of the pages that a `u32` offset can address.
    let fits = table.rows.len() <= limits.rows && table.pages.len() <= 1 << 16;
    (fits && table.is_sound()).then_some(table)
}

/// Bytes of the longest possible table.
pub(super) fn max_bytes(limits: &Limits) -> u64 {
    let words = limits.rows as u64 + (1 << 16) + 2 * (1 << 16);
    HEADER as u64 + (words + RUNTIME_WORDS as u64) * 4 + 4
}

#[cfg(test)]
mod tests {
    use std::fs;

    use heaptrace_common::wire::{PythonImage, V8Image};

    use super::*;
    use crate::unwind::build;

    const FINGERPRINT: Fingerprint = [7; 32];

    fn small() -> Table {
        Table {
            pages: vec![0, 2, 3],
            rows: vec![0, 1 << 16 | 5, 0],
            rules: vec![Rule::NONE, Rule::SIGNAL],
            first_page: 3,
            damaged: 1,
            python: None,
            v8: None,
        }
    }

    fn with_python() -> Table {
        let image = PythonImage {
            key_at: 1 << 33,
            loops: [[4096, 8192], [64, 128]],
            layout: python::layout(11).unwrap(),
        };
        Table {
            python: Some(image),
            ..small()
        }
    }

    fn with_v8() -> Table {
        Table {
            v8: v8::from_words([11 << 16 | 3]),
            ..with_python()
        }
    }

    /// The bytes with a correct checksum, as an attacker who can write the file would make it.
    fn with_checksum(mut bytes: Vec<u8>) -> Vec<u8> {
        bytes.truncate(bytes.len() - 4);
        let checksum = crc32fast::hash(&bytes);
        bytes.extend(checksum.to_le_bytes());
        bytes
    }

    /// Check that an encoded table decodes to the same table, and only with its own fingerprint.
    #[test]
    fn tables_survive_a_round_trip() {
        let data = fs::read("/proc/self/exe").unwrap();
        let table = build(data.as_slice(), &Limits::default()).unwrap();
        assert!(with_v8().v8.is_some());
        for table in [table, small(), with_python(), with_v8()] {
            let bytes = encode(&table, &FINGERPRINT);
            assert!(bytes.len() as u64 <= max_bytes(&Limits::default()));
            assert_eq!(decode(&bytes, &FINGERPRINT).as_ref(), Some(&table));
            assert_eq!(decode(&bytes, &[8; 32]), None);
        }
    }

    /// Check that cut and accidentally changed bytes are refused, and that deliberately changed bytes are refused or give a
    /// sound table.
    #[test]
    fn invalid_tables_are_refused() {
        let bytes = encode(&with_v8(), &FINGERPRINT);
        for end in 0..bytes.len() {
            assert_eq!(decode(&bytes[..end], &FINGERPRINT), None);
        }
        let mut accepted = 0;
        for at in 0..bytes.len() - 4 {
            for flip in 1..=255 {
                let mut bytes = bytes.clone();
                bytes[at] ^= flip;
                assert_eq!(decode(&bytes, &FINGERPRINT), None, "{at}");
                if let Some(table) = decode(&with_checksum(bytes), &FINGERPRINT) {
                    assert!(table.is_sound());
                    accepted += 1;
                }
            }
        }
        // A change of a rule or of an offset can still give a sound table.
        assert!(accepted > 0);
        let broken_image = |change: fn(&mut PythonImage)| {
            let mut table = with_python();
            table.python.iter_mut().for_each(change);
            table
        };
        for broken in [
            broken_image(|image| image.key_at = 0),
            broken_image(|image| image.layout.minor = 14),
            broken_image(|image| image.layout.thread_data = 2),
            broken_image(|image| image.loops[0] = [8192, 4096]),
            broken_image(|image| image.loops[1] = [1, 1 << 30]),
            Table {
                v8: Some(V8Image {
                    version: 5 << 16,
                    ..V8Image::default()
                }),
                ..small()
            },
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
            assert_eq!(
                decode(&encode(&broken, &FINGERPRINT), &FINGERPRINT),
                None,
                "{broken:?}"
            );
        }
    }
}
