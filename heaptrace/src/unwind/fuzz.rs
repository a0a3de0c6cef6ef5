//! Properties that must hold for the unwind table of every file, and for every cached table.
//!
//! Stage: unwind.

use std::time::Duration;

use heaptrace_common::rows::{PAGE_BITS, row_offset, row_rule};
use heaptrace_common::unwind::{Memory, Registers, Rule, outcome, step};

use super::table::{Limits, Table, lookup};
use super::{build, cache_format};
use crate::python;
use crate::reader::{Job, decode};

/// Limits so low that small files can exceed them.
const LIMITS: Limits = Limits {
    rows: 20_000,
    functions: 2_000,
    section_bytes: 1 << 16,
    time: Duration::from_secs(3),
};

/// The fingerprint of all cached tables here.
const FINGERPRINT: [u8; 32] = [7; 32];

/// Memory in which every word differs and some words are not readable.
struct Noise;

impl Memory for Noise {
    fn read(&mut self, address: u64) -> Option<u64> {
        let word = address.wrapping_mul(0x9fb2_1c65_1e98_df25).rotate_left(29);
        (!word.is_multiple_of(8)).then_some(word)
    }
}

/// Asserts that the table of a file, if it has one, has the properties that the kernel program relies on.
pub(crate) fn table(data: &[u8]) -> u64 {
    let Ok(table) = build(data, &LIMITS) else {
        return 0;
    };
    assert!(table.rows.len() <= LIMITS.rows);
    table.python.iter().for_each(python::fuzz::image);
    assert_eq!(table.rules.first(), Some(&Rule::NONE));
    sound(&table);
    // Encoding and decoding give the same table.
    if data.first().is_some_and(|_| data.len().is_multiple_of(16)) {
        let bytes = cache_format::encode(&table, &FINGERPRINT);
        assert_eq!(
            cache_format::decode(&bytes, &FINGERPRINT).as_ref(),
            Some(&table)
        );
    }
    let size = |count: usize| u64::from(count.checked_ilog2().unwrap_or(0));
    1 + size(table.rows.len()) * 64 + size(table.rules.len()) * 8 + u64::from(table.damaged.min(7))
}

/// Asserts that every cached table that is accepted is sound. Sets the checksum and the fingerprint to correct values first,
/// as an attacker would.
pub(crate) fn cached_table(data: &[u8]) -> u64 {
    assert!(cache_format::decode(data, &FINGERPRINT).is_none_or(|table| table.is_sound()));
    let mut bytes = data.to_vec();
    let empty = Table {
        pages: vec![0, 1],
        rows: vec![0],
        rules: vec![Rule::NONE],
        first_page: 0,
        damaged: 0,
        python: None,
        v8: None,
    };
    let head = cache_format::encode(&empty, &FINGERPRINT);
    let (head, _) = head.split_at(8 + FINGERPRINT.len());
    if bytes.len() < head.len() + 4 {
        return 0;
    }
    bytes[..head.len()].copy_from_slice(head);
    let end = bytes.len() - 4;
    let checksum = crc32fast::hash(&bytes[..end]);
    bytes[end..].copy_from_slice(&checksum.to_le_bytes());
    let Some(table) = cache_format::decode(&bytes, &FINGERPRINT) else {
        return 0;
    };
    assert!(table.is_sound());
    sound(&table);
    let encoded = cache_format::encode(&table, &FINGERPRINT);
    assert_eq!(
        cache_format::decode(&encoded, &FINGERPRINT).as_ref(),
        Some(&table)
    );
    let kinds = table
        .rules
        .iter()
        .map(|rule| u64::from(rule.cfa) * 8 + u64::from(rule.bp));
    1 + table.rows.len() as u64 * 8 + table.pages.len() as u64 + (kinds.sum::<u64>() << 32)
}

/// Asserts that a reader's answer about a table is refused or sound.
pub(crate) fn answer(job: Job, answer: &[u8]) -> u64 {
    if job == Job::Fingerprint {
        let decoded: Option<Result<super::request::Identified, String>> = decode(answer);
        return decoded.map_or(0, |identified| {
            let python = identified.as_ref().ok().and_then(|it| it.python());
            python.iter().for_each(python::fuzz::image);
            1 + u64::from(identified.is_ok()) + u64::from(python.is_some())
        });
    }
    match super::request::decode_answer(answer) {
        Ok(table) => {
            sound(&table);
            3 + table.rows.len() as u64
        }
        Err(reason) => u64::from(answer.first() == Some(&1)) + u64::from(reason.is_empty()),
    }
}

/// Asserts that a table is sound: looks up every row, and makes a step by each.
fn sound(table: &Table) {
    assert_eq!(table.pages.first(), Some(&0));
    assert_eq!(table.pages.last(), Some(&(table.rows.len() as u32)));
    for (page, ends) in table.pages.windows(2).enumerate() {
        let rows = &table.rows[ends[0] as usize..ends[1] as usize];
        assert_eq!(rows.first().map(|row| row_offset(*row)), Some(0));
        assert!(rows.is_sorted_by(|a, b| row_offset(*a) < row_offset(*b)));
        for row in rows {
            let rule = table.rules[row_rule(*row) as usize];
            let page = u64::from(table.first_page) + page as u64;
            let at = page << PAGE_BITS | u64::from(row_offset(*row));
            assert_eq!(lookup(table, at), Some(rule));
            follow(rule, at);
        }
    }
}

/// Asserts that a step by any rule has a known outcome, and that a step to a caller goes up the stack.
fn follow(rule: Rule, ip: u64) {
    let start = Registers {
        ip,
        sp: 0x7ffe_0000_1000,
        bp: 0x7ffe_0000_2000,
    };
    let mut registers = start;
    let code = step(rule, &mut registers, &mut Noise);
    assert!(code < outcome::COUNT);
    match code {
        outcome::CALLER => assert!(registers.sp > start.sp, "{rule:?}"),
        outcome::CALLER_EXACT => assert_eq!(rule, Rule::SIGNAL),
        _ => assert_eq!(registers, start, "{rule:?}"),
    }
}
