//! A simulated machine: CPUs that sample with the kernel program's arithmetic, and the real join behind them.

use heaptrace::events::record::Event;
use heaptrace::join::{Joiner, Totals, Update};
use heaptrace_common::sampling::{self, Cpu};
use heaptrace_common::wire::{
    Alloc, Free, ProcessBegin, SIZE_CLASSES, StackHead, kind, size_class,
};

use crate::random::Random;

/// Ids of simulated processes begin here; no real process has such an id.
const FIRST_PID: u32 = u32::MAX - 100;

/// The true numbers of a machine's allocations.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Truth {
    pub(crate) allocations: u64,
    pub(crate) allocated_bytes: u64,
    pub(crate) live_allocations: u64,
    pub(crate) live_bytes: u64,
    /// True variances of the estimates of these numbers.
    variances: [f64; 4],
}

impl Truth {
    fn add(&mut self, size: u64, mean: u64) {
        self.allocations += 1;
        self.allocated_bytes += size;
        self.live_allocations += 1;
        self.live_bytes += size;
        let [count, bytes] = variances(size, mean);
        for (sum, variance) in self.variances.iter_mut().zip([count, bytes, count, bytes]) {
            *sum += variance;
        }
    }

    fn take(&mut self, size: u64, mean: u64) {
        self.live_allocations -= 1;
        self.live_bytes -= size;
        let [count, bytes] = variances(size, mean);
        self.variances[2] -= count;
        self.variances[3] -= bytes;
    }
}

/// The variances that an allocation adds to the estimates of allocations and of bytes.
fn variances(size: u64, mean: u64) -> [f64; 2] {
    if mean <= 1 {
        return [0.0; 2];
    }
    let points = size.max(1) as f64 / mean as f64;
    let odds = (-points).exp() / -(-points).exp_m1();
    [odds, odds * size as f64 * size as f64]
}

/// A block; it has an `id` if it was sampled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    process: usize,
    site: usize,
    size: u64,
    /// The mean at its allocation.
    mean: u64,
    id: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Countdown {
    left: i64,
    mean: u64,
}

/// The state that decides which calls are sampled.
#[derive(Clone, Debug)]
pub(crate) struct Sampler {
    pub(crate) random: Random,
    /// The common mean, which may change.
    pub(crate) mean: u64,
    /// The power of two by which each process's mean is larger.
    pub(crate) shifts: Vec<u32>,
    cpus: Vec<Countdown>,
}

impl Sampler {
    pub(crate) fn new(mut random: Random, mean: u64, processes: usize) -> Self {
        let cpus = (0..2)
            .map(|_| Countdown {
                left: sampling::gap(mean, random.bits()) as i64,
                mean,
            })
            .collect();
        Self {
            random,
            mean,
            shifts: vec![0; processes],
            cpus,
        }
    }

    /// The mean under which a call is sampled, if it is sampled.
    pub(crate) fn decide(&mut self, process: usize, size: u64) -> Option<u64> {
        let cpu = (self.random.bits() >> 60) as usize % self.cpus.len();
        self.decide_on(cpu, process, size, &mut |_, _| {})
    }

    /// Decides on a given CPU. `preempt` runs on that CPU between the end of a countdown and the start of the next.
    pub(crate) fn decide_on(
        &mut self,
        cpu: usize,
        process: usize,
        size: u64,
        preempt: &mut dyn FnMut(&mut Self, usize),
    ) -> Option<u64> {
        let mut on = On {
            sampler: self,
            cpu,
            process,
            preempt,
        };
        sampling::decide(&mut on, size)
    }
}

struct On<'a> {
    sampler: &'a mut Sampler,
    cpu: usize,
    process: usize,
    preempt: &'a mut dyn FnMut(&mut Sampler, usize),
}

impl Cpu for On<'_> {
    fn random(&mut self) -> u64 {
        self.sampler.random.bits()
    }

    fn mean(&mut self) -> u64 {
        self.sampler.mean
    }

    fn shift(&mut self) -> u32 {
        self.sampler.shifts[self.process]
    }

    fn subtract(&mut self, span: u64) -> i64 {
        let left = &mut self.sampler.cpus[self.cpu].left;
        let before = *left;
        *left = left.wrapping_sub(span as i64);
        before
    }

    fn mean_at_start(&mut self) -> u64 {
        let mean = self.sampler.cpus[self.cpu].mean;
        (self.preempt)(self.sampler, self.cpu);
        assert_eq!(self.sampler.cpus[self.cpu].mean, mean, "begun by another");
        mean
    }

    fn restart(&mut self, mean: u64, gap: u64) {
        self.sampler.cpus[self.cpu] = Countdown {
            left: gap as i64,
            mean,
        };
    }
}

/// Programs that allocate, and the join of their events.
pub(crate) struct Machine {
    pub(crate) sampler: Sampler,
    joiner: Joiner,
    sites: usize,
    last_id: u64,
    /// The truth per process and site.
    truths: Vec<Truth>,
    /// Calls by the class of their size, as the kernel program counts them.
    sizes: Vec<u64>,
}

impl Machine {
    pub(crate) fn new(random: Random, mean: u64, processes: usize, sites: usize) -> Self {
        let mut joiner = Joiner::new(
            heaptrace::join::Follow::Family,
            heaptrace::join::EndedLimits::within(1 << 30),
        );
        for process in 0..processes {
            joiner.event(Event::ProcessBegin(ProcessBegin {
                kind: kind::PROCESS_BEGIN,
                pad: 0,
                tgid: FIRST_PID + process as u32,
                time: 1,
                process: process as u64,
                start_time: 1,
                cgroup: 0,
                comm: [0; 16],
            }));
            for site in 0..sites {
                let head = StackHead {
                    kind: kind::STACK,
                    pad: 0,
                    depth: 1,
                    time: 2,
                    process: process as u64,
                    id: stack_id(process, site),
                    walk: 0,
                    raw: 0,
                    hash: [0; 2],
                    language: 0,
                    language_frames: [0; 2],
                };
                joiner.event(Event::Stack(head, vec![stack_id(process, site)]));
            }
        }
        Self {
            sampler: Sampler::new(random, mean, processes),
            joiner,
            sites,
            last_id: 0,
            truths: vec![Truth::default(); processes * sites],
            sizes: vec![0; SIZE_CLASSES as usize],
        }
    }

    pub(crate) fn allocate(&mut self, process: usize, site: usize, size: u64) -> Block {
        let cpu = (self.sampler.random.bits() >> 60) as usize % self.sampler.cpus.len();
        self.allocate_on(cpu, process, site, size)
    }

    pub(crate) fn allocate_on(
        &mut self,
        cpu: usize,
        process: usize,
        site: usize,
        size: u64,
    ) -> Block {
        let mean = sampling::shifted(self.sampler.mean, self.sampler.shifts[process]);
        self.truths[process * self.sites + site].add(size, mean);
        self.sizes[size_class(size) as usize] += 1;
        let taken = self.sampler.decide_on(cpu, process, size, &mut |_, _| {});
        let id = taken.map(|mean| {
            self.last_id += 1;
            self.joiner.event(Event::Alloc(Alloc {
                kind: kind::ALLOC,
                flags: 0,
                tid: 1,
                time: 3,
                process: process as u64,
                id: self.last_id,
                stack: stack_id(process, site),
                address: self.last_id << 4,
                size,
                freed: 0,
                replaced: 0,
                mean,
            }));
            self.last_id
        });
        Block {
            process,
            site,
            size,
            mean,
            id,
        }
    }

    pub(crate) fn free(&mut self, block: Block) {
        self.truths[block.process * self.sites + block.site].take(block.size, block.mean);
        if let Some(id) = block.id {
            self.joiner.event(Event::Free(Free {
                kind: kind::FREE,
                flags: 0,
                tid: 1,
                time: 4,
                process: block.process as u64,
                id,
            }));
        }
    }

    /// Allocates many blocks of one size on one CPU, and frees each or none. Calls that only reduce the countdown are
    /// simulated together.
    pub(crate) fn allocate_many(
        &mut self,
        process: usize,
        site: usize,
        size: u64,
        many: u64,
        free: bool,
    ) {
        let mut left = many;
        while left > 0 {
            let countdown = &mut self.sampler.cpus[0].left;
            let passed = ((*countdown - 1) as u64 / size).min(left);
            *countdown -= (passed * size) as i64;
            self.sizes[size_class(size) as usize] += passed;
            let truth = &mut self.truths[process * self.sites + site];
            let mean = self.sampler.mean;
            let [count, bytes] = variances(size, mean);
            for (index, variance) in [count, bytes, count, bytes].into_iter().enumerate() {
                if index < 2 || !free {
                    truth.variances[index] += variance * passed as f64;
                }
            }
            truth.allocations += passed;
            truth.allocated_bytes += passed * size;
            if !free {
                truth.live_allocations += passed;
                truth.live_bytes += passed * size;
            }
            left -= passed;
            if left > 0 {
                let block = self.allocate_on(0, process, site, size);
                if free {
                    self.free(block);
                }
                left -= 1;
            }
        }
    }

    /// Makes a call that only reduces the countdown of the first CPU. Returns whether it does; otherwise nothing happens. The
    /// truth does not count such a call.
    pub(crate) fn declines(&mut self, size: u64) -> bool {
        let countdown = &mut self.sampler.cpus[0].left;
        let span = sampling::span(size) as i64;
        let is_declined = *countdown > span;
        if is_declined {
            *countdown -= span;
            self.sizes[size_class(size) as usize] += 1;
        }
        is_declined
    }

    /// The truth of all sites together.
    pub(crate) fn truth(&self) -> Truth {
        let mut sum = Truth::default();
        for truth in &self.truths {
            sum.allocations += truth.allocations;
            sum.allocated_bytes += truth.allocated_bytes;
            sum.live_allocations += truth.live_allocations;
            sum.live_bytes += truth.live_bytes;
            for (sum, variance) in sum.variances.iter_mut().zip(truth.variances) {
                *sum += variance;
            }
        }
        sum
    }

    /// The truth of each site of a process.
    pub(crate) fn truths(&self, process: usize) -> &[Truth] {
        &self.truths[process * self.sites..][..self.sites]
    }

    /// The update of the join.
    pub(crate) fn report(mut self) -> Update {
        self.joiner.set_sizes(self.sizes);
        self.joiner.take_update(5)
    }
}

fn stack_id(process: usize, site: usize) -> u64 {
    (process << 32 | site << 4) as u64 + 1
}

/// A true number, its estimate, the stated standard error, and the true one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Number {
    pub(crate) what: &'static str,
    pub(crate) truth: u64,
    pub(crate) estimate: u64,
    pub(crate) error: u64,
    pub(crate) true_error: f64,
}

impl Number {
    /// The distance of the estimate from the truth, in true standard errors.
    pub(crate) fn sigmas(&self) -> f64 {
        self.off() / self.true_error.max(1e-9)
    }

    /// The distance in stated standard errors.
    pub(crate) fn stated_sigmas(&self) -> f64 {
        if self.off() == 0.0 {
            0.0
        } else {
            self.off() / self.error as f64
        }
    }

    /// The same in true standard errors, with its sign.
    pub(crate) fn signed_sigmas(&self) -> f64 {
        self.sigmas()
            * if self.estimate < self.truth {
                -1.0
            } else {
                1.0
            }
    }

    fn off(&self) -> f64 {
        self.estimate.abs_diff(self.truth) as f64
    }
}

/// The four numbers of a truth with their estimates.
pub(crate) fn numbers(truth: &Truth, totals: &Totals) -> [Number; 4] {
    let number = |what, index: usize, it, estimate, error| Number {
        what,
        truth: it,
        estimate,
        error,
        true_error: truth.variances[index].max(0.0).sqrt(),
    };
    let errors = &totals.errors;
    [
        number(
            "allocations",
            0,
            truth.allocations,
            totals.allocations,
            errors.allocations,
        ),
        number(
            "allocated bytes",
            1,
            truth.allocated_bytes,
            totals.allocated_bytes,
            errors.allocated_bytes,
        ),
        number(
            "live allocations",
            2,
            truth.live_allocations,
            totals.live_allocations,
            errors.live_allocations,
        ),
        number(
            "live bytes",
            3,
            truth.live_bytes,
            totals.live_bytes,
            errors.live_bytes,
        ),
    ]
}
