//! Tests that stated standard errors are the true ones.

use crate::machine::{Machine, numbers};
use crate::random::Random;

/// Check that the true value lies within two standard errors in 93 to 97 % of a thousand runs, for each
/// number that is estimated.
#[test]
fn stated_errors_hold() {
    const RUNS: u64 = 1_000;
    let mut covered = [0_u64; 4];
    for run in 0..RUNS {
        let mut machine = Machine::new(Random::new(1_000 + run), 4 << 10, 1, 1);
        let mut random = Random::new(1_000_000 + run);
        for turn in 0..6_000 {
            let block = machine.allocate(0, 0, random.size(64, 16 << 10));
            if turn % 2 == 0 {
                machine.free(block);
            }
        }
        let truth = machine.truth();
        let totals = machine.report().totals;
        for (covered, number) in covered.iter_mut().zip(numbers(&truth, &totals)) {
            *covered += u64::from(number.stated_sigmas() <= 2.0);
        }
    }
    println!("covered: {covered:?} of {RUNS}");
    for covered in covered {
        let share = covered as f64 / RUNS as f64;
        assert!((0.93..=0.97).contains(&share), "{share}");
    }
}
