//! Compares what a program says with what the oracle says, and with what heaptrace says.
//!
//! Part of differential. It must not know how a program was built or run, except for what that does to the numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::claims::{Claims, Counts};
use super::program::{Place, Program, Root, Through};
use super::seen::{Report, Site};
use super::trial::Trial;
use super::variant::{Build, Run};

/// What a difference is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A program, its oracle or the tool itself is wrong.
    Oracle,
    /// Something did not run or end as it should.
    Run,
    /// Events were lost.
    Lost,
    /// A site's numbers.
    Counts,
    /// A site has blocks that it does not have.
    Remaining,
    /// A stack lacks a function, or has one too many.
    Stack,
    /// A stack is broken or cut.
    Incomplete,
    /// The sum of a process, with what is allocated outside of generated functions.
    Total,
    /// The number of allocations that failed.
    Failed,
}

/// A difference.
#[derive(Clone, Debug)]
pub(super) struct Difference {
    pub(super) kind: Kind,
    pub(super) text: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.text)
    }
}

/// The differences so far.
#[derive(Default)]
struct Found(Vec<Difference>);

impl Found {
    fn add(&mut self, kind: Kind, text: String) {
        self.0.push(Difference { kind, text });
    }
}

/// Compares the program's own counts with the oracle's.
pub(super) fn with_oracle(program: &Program, claims: &Claims) -> Vec<Difference> {
    let mut found = Found::default();
    if claims.witnesses.len() != claims.claims.len() {
        let (witnesses, claims) = (claims.witnesses.len(), claims.claims.len());
        let text = format!("{witnesses} of {claims} processes had an oracle");
        found.add(Kind::Oracle, text);
        return found.0;
    }
    if claims.are_callers_hidden() {
        println!("another tracer hides the oracle's callers: not compared by site");
        return found.0;
    }
    for (site, place) in program.places() {
        // The oracle knows the function that calls the C library.
        if !place.how.is_direct() || place.through != Through::Nothing || place.in_library {
            continue;
        }
        let mut claimed = Counts::default();
        for claim in &claims.claims {
            claimed += claim.sites.get(&site).copied().unwrap_or_default();
        }
        let (allocations, bytes) = claims.witnessed_at(site);
        if (claimed.allocations, claimed.bytes) != (allocations, bytes) {
            let text = format!(
                "s{site:03}_ ({:?}) says {} allocations of {} bytes, the oracle {allocations} of {bytes}",
                place.how, claimed.allocations, claimed.bytes
            );
            found.add(Kind::Oracle, text);
        }
    }
    found.0
}

/// Compares heaptrace's report with the program's own counts, and its sums with those of the oracle.
pub(super) fn with_report(
    program: &Program,
    build: &Build,
    run: &Run,
    trial: &Trial,
    alone: &Claims,
) -> Vec<Difference> {
    let mut found = Found::default();
    let report = &trial.report;
    if !report.is_whole() {
        found.add(Kind::Run, "the recording has no orderly end".to_owned());
    }
    for unprobed in &report.quality.unprobed {
        found.add(Kind::Run, format!("not probed: {unprobed}"));
    }
    let lost = report.lost();
    if lost > 0 && !run.small_ring {
        found.add(Kind::Lost, format!("{:?}", report.quality.lost));
    }
    let places = program.places();
    counts(&trial.claims, report, lost, &places, &mut found);
    stacks(report, &places, &mut found);
    let is_plain = run.allocator.is_none() && run.wrapper.is_none() && !build.wrapped;
    if is_plain && lost == 0 {
        let failed: u64 = trial.claims.claims.iter().map(|it| it.failed).sum();
        let seen = report.quality.failed_allocations;
        if seen != failed {
            let text = format!("{seen} failed allocations instead of {failed}");
            found.add(Kind::Failed, text);
        }
        // A thread that starts may find the memory of one that ended, or not.
        let is_alike = !run.attach && !program.has_threads();
        if is_alike && !alone.witnesses.is_empty() {
            totals(&trial.claims, report, alone, &mut found);
        }
    }
    found.0
}

/// The numbers of a site: what was counted, and what remains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Numbers {
    counts: Counts,
    blocks: u64,
    bytes: u64,
}

impl Numbers {
    fn of(site: &Site) -> Self {
        let (blocks, bytes) = site.remaining();
        Self {
            counts: site.counts(),
            blocks,
            bytes,
        }
    }

    fn claimed(counts: Counts) -> Self {
        Self {
            counts,
            blocks: counts.allocations - counts.frees,
            bytes: counts.bytes - counts.freed_bytes,
        }
    }

    fn add(&mut self, other: Self) {
        self.counts += other.counts;
        self.blocks += other.blocks;
        self.bytes += other.bytes;
    }

    /// What these have more than the others; nothing if they have less of anything.
    fn minus(self, less: Self) -> Option<Self> {
        Some(Self {
            counts: self.counts.minus(less.counts)?,
            blocks: self.blocks.checked_sub(less.blocks)?,
            bytes: self.bytes.checked_sub(less.bytes)?,
        })
    }
}

/// Compares the numbers of each site in each process.
///
/// Where a stack was cut before its site, it may belong to any site of the process; where events were lost,
/// as many may be missing. Nothing may be counted that did not happen, and no block may remain that was freed.
fn counts(
    claims: &Claims,
    report: &Report,
    lost: u64,
    places: &BTreeMap<u32, Place>,
    found: &mut Found,
) {
    let claimed = claims.by_process();
    let mut seen: BTreeMap<(u32, u32), Numbers> = BTreeMap::new();
    let mut anonymous: BTreeMap<u32, Numbers> = BTreeMap::new();
    for site in report.blocks() {
        match number_of(site) {
            Some(number) => seen.entry((site.pid, number)).or_default(),
            None if !site.is_complete() => anonymous.entry(site.pid).or_default(),
            None => continue,
        }
        .add(Numbers::of(site));
    }
    let keys: BTreeSet<_> = claimed.keys().chain(seen.keys()).copied().collect();
    let mut missing: BTreeMap<u32, (Numbers, Vec<String>)> = BTreeMap::new();
    for key in keys {
        let truth = Numbers::claimed(claimed.get(&key).copied().unwrap_or_default());
        let seen = seen.get(&key).copied().unwrap_or_default();
        if seen == truth {
            continue;
        }
        let how = places.get(&key.1).map(|it| (it.how, it.through));
        let text = format!(
            "s{:03}_ {how:?} of process {}: {seen:?} instead of {truth:?}",
            key.1, key.0
        );
        match truth.minus(seen) {
            Some(less) => {
                let (sum, texts) = missing.entry(key.0).or_default();
                sum.add(less);
                texts.push(text);
            }
            None if seen.blocks > truth.blocks
                && seen.counts.allocations <= truth.counts.allocations =>
            {
                found.add(Kind::Remaining, text);
            }
            None => found.add(Kind::Counts, text),
        }
    }
    for (pid, (sum, texts)) in missing {
        let others = anonymous.get(&pid).copied().unwrap_or_default();
        let is_lost = lost > 0 && sum.counts.allocations <= others.counts.allocations + lost;
        if others.minus(sum).is_none() && !is_lost {
            for text in texts {
                found.add(Kind::Counts, text);
            }
        }
    }
}

/// Checks the stack of every site.
fn stacks(report: &Report, places: &BTreeMap<u32, Place>, found: &mut Found) {
    let is_cut = |site: &&Site| !site.is_complete();
    let cut: u64 = report
        .blocks()
        .filter(is_cut)
        .map(|site| site.counts().allocations)
        .sum();
    let is_excused = cut <= report.cut_by_time();
    for site in report.blocks() {
        let place = number_of(site).and_then(|number| places.get(&number));
        let chain = place.map(|it| it.chain.as_slice()).unwrap_or_default();
        if !site.is_complete() {
            if !is_excused {
                found.add(Kind::Incomplete, site.line());
            }
            let seen = site.chain();
            if place.is_some() && !chain.iter().zip(&seen).all(|(a, b)| a == b) {
                let text = format!("{} instead of {}", site.line(), chain.join(" ← "));
                found.add(Kind::Stack, text);
            }
            continue;
        }
        if let Some(frame) = site.stack.iter().find(|it| it.module.is_none()) {
            let text = format!("{} is no function, in {}", frame.address, site.line());
            found.add(Kind::Stack, text);
        }
        let Some(place) = place else {
            continue;
        };
        if site.chain() != chain {
            let text = format!("{} instead of {}", site.line(), chain.join(" ← "));
            found.add(Kind::Stack, text);
        }
        let is_main = |name: &str| name == "main" || name.ends_with("::main");
        let mut functions = site.stack.iter().filter_map(|it| it.function.as_deref());
        if place.root == Root::Main && !functions.any(is_main) {
            found.add(Kind::Stack, format!("no main in {}", site.line()));
        }
    }
}

/// The number of the site whose function is the innermost generated one.
fn number_of(site: &Site) -> Option<u32> {
    let chain = site.chain();
    let name = chain.first()?.strip_prefix('s')?;
    name.strip_suffix('_')?.parse().ok()
}

/// Compares the sums of processes with those that the oracle saw in another run.
fn totals(claims: &Claims, report: &Report, alone: &Claims, found: &mut Found) {
    let mut seen: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for site in report.blocks() {
        let first = claims.claims.iter().find(|it| it.pid == site.pid);
        let sum = seen
            .entry(first.map_or(u32::MAX, |it| it.role))
            .or_default();
        let counts = site.counts();
        sum.0 += counts.allocations;
        sum.1 += counts.bytes;
    }
    for (role, expected) in alone.witnessed() {
        let sum = seen.get(&role).copied().unwrap_or_default();
        if sum != expected {
            let text = format!(
                "the processes of f{role:03}_ have (allocations, bytes) {sum:?} instead of {expected:?}"
            );
            found.add(Kind::Total, text);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::program::{Action, How, Language, Node};
    use super::*;

    /// The kinds of differences between a program's claim of ten blocks, six of which were freed, and a report.
    fn kinds(sites: &serde_json::Value, lost: u64, cut_by_time: u64) -> Vec<Kind> {
        let line = r#"{"role":0,"pid":7,"untracked":0,"failed":0,"sites":{"17":[10,100,6,60]}}"#;
        let report = json!({
            "end": "orderly",
            "quality": {
                "lost": { "ring_full": lost },
                "failed_allocations": 0,
                "unprobed": [],
                "noted": { "stack_broken_no_table_yet": cut_by_time },
            },
            "sites": sites,
        });
        let claims = Claims::parse(line).unwrap();
        let report = Report::parse(&report.to_string()).unwrap();
        let place = Place {
            how: How::Malloc,
            through: Through::Nothing,
            chain: vec!["s017_".to_owned(), "f003_".to_owned()],
            root: Root::Main,
            in_library: false,
        };
        let places = BTreeMap::from([(17, place)]);
        let mut found = Found::default();
        counts(&claims, &report, lost, &places, &mut found);
        stacks(&report, &places, &mut found);
        found.0.iter().map(|it| it.kind).collect()
    }

    fn site(functions: &[&str], end: &str, [allocations, frees]: [u64; 2]) -> serde_json::Value {
        let frame = |function: &&str| json!({ "function": function, "module": "program", "address": "0x1" });
        let live = allocations - frees;
        json!({
            "pid": 7,
            "totals": {
                "allocations": allocations, "allocated_bytes": allocations * 10,
                "frees": frees, "freed_bytes": frees * 10,
                "live_allocations": live, "live_bytes": live * 10,
            },
            "stack": functions.iter().map(frame).collect::<Vec<_>>(),
            "stack_end": end,
        })
    }

    /// Check that sites are compared with those that the oracle saw, except while another tracer hides its callers.
    #[test]
    fn hidden_callers_are_not_compared() {
        let kinds = |hidden: u64, by: &str| {
            let claims = format!(
                r#"{{"role":0,"pid":7,"untracked":0,"failed":0,"sites":{{"1":[1,8,0,0]}}}}
{{"oracle":7,"allocations":1,"bytes":8,"frees":0,"hidden":{hidden},"by":[{by}]}}"#
            );
            let action = Action::Allocate {
                how: How::Malloc,
                through: Through::Nothing,
                base: 8,
                step: 0,
                times: 1,
            };
            let program = Program {
                language: Language::C,
                before: Vec::new(),
                waiting: Vec::new(),
                after: vec![Node { id: 1, action }],
            };
            with_oracle(&program, &Claims::parse(&claims).unwrap()).len()
        };
        assert_eq!(kinds(0, r#"["s001_",1,8]"#), 0);
        assert_eq!(kinds(0, ""), 1);
        assert_eq!(kinds(1, ""), 0);
    }

    const WHOLE: [&str; 3] = ["s017_", "f003_", "main"];

    /// Check that a site with the claimed numbers and functions does not differ, and that one allocation more, one free
    /// less and one function less do.
    #[test]
    fn sites_are_compared() {
        let of = |functions: &[&str], numbers| {
            kinds(&json!([site(functions, "complete", numbers)]), 0, 0)
        };
        assert_eq!(of(&WHOLE, [10, 6]), []);
        assert_eq!(of(&WHOLE, [11, 7]), [Kind::Counts]);
        assert_eq!(of(&WHOLE, [10, 5]), [Kind::Remaining]);
        assert_eq!(of(&WHOLE, [9, 6]), [Kind::Counts]);
        assert_eq!(of(&["s017_", "main"], [10, 6]), [Kind::Stack]);
        assert_eq!(of(&["s017_", "f003_"], [10, 6]), [Kind::Stack]);
    }

    /// Check that a stack that was cut by its time stands for any site if the report has counted it as such, and that no
    /// others do.
    #[test]
    fn cut_stacks_are_excused_if_they_are_counted() {
        let sites = json!([
            site(&WHOLE, "complete", [8, 5]),
            site(&["malloc"], "broken", [2, 1])
        ]);
        assert_eq!(kinds(&sites, 0, 2), []);
        assert_eq!(kinds(&sites, 0, 1), [Kind::Incomplete]);
        let sites = json!([
            site(&WHOLE, "complete", [7, 5]),
            site(&["malloc"], "broken", [2, 1])
        ]);
        assert_eq!(kinds(&sites, 0, 2), [Kind::Counts]);
    }

    /// Check that lost events excuse as many missing allocations, and no block that remains.
    #[test]
    fn losses_excuse_what_is_missing() {
        let of = |numbers| kinds(&json!([site(&WHOLE, "complete", numbers)]), 1, 0);
        assert_eq!(of([9, 6]), []);
        assert_eq!(of([8, 6]), [Kind::Counts]);
        assert_eq!(of([10, 5]), [Kind::Remaining]);
    }
}
