//! Tests of estimates: of allocated and of live memory.

use crate::machine::{Machine, Number, Sampler, numbers};
use crate::random::Random;

const MEAN: u64 = 512 << 10;

fn all_within(sigmas: f64, numbers: &[Number]) {
    for number in numbers {
        let (what, off) = (number.what, number.sigmas());
        assert!(off <= sigmas, "{what} are {off} off: {number:?}");
    }
}

/// Check sizes from 1 B to 1 GiB in one site, half of them freed.
#[test]
fn mixed_sizes() {
    let mut machine = Machine::new(Random::new(1), MEAN, 1, 1);
    let mut sizes = Random::new(2);
    for turn in 0..300_000 {
        let block = machine.allocate(0, 0, sizes.size(1, 1 << 30));
        if turn % 2 == 0 {
            machine.free(block);
        }
    }
    let truth = machine.truth();
    all_within(4.0, &numbers(&truth, &machine.report().totals));
}

/// Check small and large blocks from one stack, with the same number of bytes of each, half of them freed. Weights by the
/// mean size of a site's samples would be wrong here.
#[test]
fn small_and_large_blocks_from_one_stack() {
    let mut machine = Machine::new(Random::new(3), MEAN, 1, 1);
    for _ in 0..16 {
        // Half of the blocks stay, half are freed.
        machine.allocate_many(0, 0, 16, 2 << 20, false);
        machine.allocate_many(0, 0, 16, 2 << 20, true);
        machine.allocate_many(0, 0, 32 << 20, 1, false);
        machine.allocate_many(0, 0, 32 << 20, 1, true);
    }
    let truth = machine.truth();
    assert_eq!(truth.allocated_bytes, 2_048 << 20);
    assert_eq!(truth.live_bytes, 1_024 << 20);
    assert_eq!(truth.live_allocations, 33_554_448);
    all_within(3.0, &numbers(&truth, &machine.report().totals));
}

/// Check that changes of the rate during the run, common or per process, cause no bias, and that a block is freed with the
/// weight of its allocation.
#[test]
fn changing_rates() {
    let mut machine = Machine::new(Random::new(4), 16 << 10, 3, 2);
    let mut random = Random::new(5);
    let mut live = Vec::new();
    for turn in 0..2_000_000 {
        if turn % 1_000 == 0 {
            machine.sampler.mean = 1 << (10 + random.below(10));
            for shift in &mut machine.sampler.shifts {
                *shift = random.below(6) as u32;
            }
        }
        let process = random.below(3) as usize;
        let size = random.size(8, 64 << 10);
        live.push(machine.allocate(process, usize::from(size > 512), size));
        if live.len() > 5_000 {
            let index = random.below(live.len() as u64) as usize;
            machine.free(live.swap_remove(index));
        }
    }
    let truths: Vec<_> = (0..3).flat_map(|it| machine.truths(it).to_vec()).collect();
    let truth = machine.truth();
    let update = machine.report();
    all_within(4.0, &numbers(&truth, &update.totals));
    assert_eq!(update.sites.len(), truths.len());
    let processes = update.sites.iter().map(|(_, site)| {
        // Sites are numbered in the order of their first samples, so they are found by process and size.
        let is_large = site.totals.allocated_bytes > site.totals.allocations * 600;
        (
            site.process.0 as usize * 2 + usize::from(is_large),
            site.totals,
        )
    });
    for (index, totals) in processes {
        all_within(4.5, &numbers(&truths[index], &totals));
    }
}

/// Check that live memory and its error are zero when everything is freed.
#[test]
fn frees_take_away_what_was_added() {
    let mut machine = Machine::new(Random::new(6), 4 << 10, 1, 3);
    let mut random = Random::new(7);
    let mut blocks = Vec::new();
    for turn in 0..100_000 {
        machine.sampler.mean = 4 << (10 + turn % 5);
        let size = random.size(1, 1 << 20);
        blocks.push(machine.allocate(0, (turn % 3) as usize, size));
    }
    for block in blocks {
        machine.free(block);
    }
    let totals = machine.report().totals;
    assert!(totals.allocations > 0 && totals.errors.allocations > 0);
    assert_eq!((totals.live_allocations, totals.live_bytes), (0, 0));
    assert_eq!(totals.errors.live_allocations, 0);
    assert_eq!(totals.errors.live_bytes, 0);
    assert_eq!(totals.frees, totals.allocations);
}

/// Check that a mean of 1 samples every call, without an error.
#[test]
fn a_mean_of_one_is_exact() {
    let mut machine = Machine::new(Random::new(8), 1, 1, 1);
    let mut random = Random::new(9);
    for turn in 0..10_000 {
        let block = machine.allocate(0, 0, random.below(100));
        if turn % 3 == 0 {
            machine.free(block);
        }
    }
    let truth = machine.truth();
    let totals = machine.report().totals;
    for number in numbers(&truth, &totals) {
        assert_eq!((number.estimate, number.error), (number.truth, 0));
    }
    assert_eq!(totals.errors, heaptrace::join::Errors::default());
}

/// Check that programs that interrupt each other on a CPU, between the end of a countdown and the start of the next, change
/// no probability: at any depth, and with rates of their own.
#[test]
fn preemption_biases_nothing() {
    const MEAN: u64 = 256;
    let mut sampler = Sampler::new(Random::new(10), MEAN, 2);
    sampler.shifts = vec![0, 2];
    let sizes = [40_u64, 150, 700];
    // Per process and size: the number of calls, and of sampled calls.
    let mut seen = [[(0_u64, 0_u64); 3]; 2];
    fn call(
        sampler: &mut Sampler,
        seen: &mut [[(u64, u64); 3]; 2],
        sizes: [u64; 3],
        cpu: usize,
        depth: u32,
    ) {
        let process = sampler.random.below(2) as usize;
        let which = sampler.random.below(3) as usize;
        let mut inner = |sampler: &mut Sampler, cpu: usize| {
            while depth < 3 && sampler.random.below(3) > 0 {
                call(sampler, seen, sizes, cpu, depth + 1);
            }
        };
        let taken = sampler.decide_on(cpu, process, sizes[which], &mut inner);
        let (all, some) = &mut seen[process][which];
        *all += 1;
        *some += u64::from(taken.is_some());
    }
    for turn in 0..1_000_000 {
        call(&mut sampler, &mut seen, sizes, turn % 2, 0);
    }
    for (process, mean) in [(0, MEAN as f64), (1, 4.0 * MEAN as f64)] {
        for (size, (all, some)) in sizes.iter().zip(seen[process]) {
            let p = -(-(*size as f64) / mean).exp_m1();
            let error = (all as f64 * p * (1.0 - p)).sqrt();
            let off = (some as f64 - all as f64 * p) / error;
            println!(
                "process {process}, size {size}: {some} of {all}, {off:.2} standard errors off"
            );
            assert!(off.abs() < 4.0, "{process} {size}: {off}");
        }
    }
}
