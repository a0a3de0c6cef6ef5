//! What has to hold of the unwind table of any file: shared by cargo-fuzz's target and the driver in
//! `tests/`, which needs no nightly compiler.

use heaptrace::unwind::{Limits, build, lookup};
use heaptrace_common::unwind::{
    Memory, PAGE_BITS, Registers, Rule, outcome, row_offset, row_rule, step,
};

/// Memory in which every word differs, some of it not readable.
struct Noise;

impl Memory for Noise {
    fn read(&mut self, address: u64) -> Option<u64> {
        let word = address.wrapping_mul(0x9fb2_1c65_1e98_df25).rotate_left(29);
        (!word.is_multiple_of(8)).then_some(word)
    }
}

/// Builds a file's table, panics where it is not what the kernel program relies on, and walks by all of
/// it. Gives the number of its rows, if there is one.
pub(crate) fn table(data: &[u8], limits: &Limits) -> Option<usize> {
    let table = build(data, limits).ok()?;
    assert!(table.rows.len() <= limits.rows);
    assert_eq!(table.pages.first(), Some(&0));
    assert_eq!(table.pages.last(), Some(&(table.rows.len() as u32)));
    assert_eq!(table.rules.first(), Some(&Rule::NONE));
    for (page, ends) in table.pages.windows(2).enumerate() {
        let rows = &table.rows[ends[0] as usize..ends[1] as usize];
        assert_eq!(rows.first().map(|row| row_offset(*row)), Some(0));
        assert!(rows.is_sorted_by(|a, b| row_offset(*a) < row_offset(*b)));
        for row in rows {
            let rule = table.rules[row_rule(*row) as usize];
            let page = u64::from(table.first_page) + page as u64;
            let at = page << PAGE_BITS | u64::from(row_offset(*row));
            assert_eq!(lookup(&table, at), Some(rule));
            follow(rule, at);
        }
    }
    Some(table.rows.len())
}

/// A step by any rule ends with a known outcome, and goes up the stack if it goes anywhere.
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
