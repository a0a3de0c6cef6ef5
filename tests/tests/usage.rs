//! Tests of what a recording says about sizes, lifetimes, reallocations and rounding, with a program that knows them.

use std::collections::HashMap;

use anyhow::{Context as _, Result, ensure};
use heaptrace_tests::{Heaptrace, c};
use serde_json::Value;

/// What the program printed: for each name, numbers by their names.
type Truth = HashMap<String, HashMap<String, u64>>;

/// Records the program, and returns what it printed and the report.
fn recorded(options: &[&str]) -> Result<(Truth, Value)> {
    let here = Heaptrace::tracing()?;
    let recording = here.record(options, &[c("usage")?])?;
    ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
    recording.report.check_nothing_lost()?;
    let mut truth = Truth::new();
    for line in recording.ended.stdout.lines() {
        let mut words = line.split_whitespace();
        let Some(name) = words.next() else { continue };
        let words: Vec<_> = words.collect();
        let numbers = words.chunks_exact(2);
        let numbers = numbers.map(|it| Ok((it[0].to_owned(), it[1].parse()?)));
        truth.insert(name.to_owned(), numbers.collect::<Result<_>>()?);
    }
    let data = here.data();
    let data = data.to_str().context("an odd path")?;
    let text = here.run(&["report", "--histogram", data])?.success()?;
    ensure!(text.stdout.contains("lifetimes of "), "{}", text.stdout);
    let json = here.run(&["report", "--format", "json", data])?.success()?;
    Ok((truth, serde_json::from_str(&json.stdout)?))
}

/// The sites with a function on their stacks.
fn sites<'a>(report: &'a Value, function: &str) -> Vec<&'a Value> {
    let has = |site: &&Value| {
        let frames = site["stack"].as_array().into_iter().flatten();
        frames.into_iter().any(|it| it["function"] == function)
    };
    let sites = report["sites"].as_array().into_iter().flatten();
    sites.filter(has).collect()
}

/// A number; 0 if there is none.
fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

/// A number of all these sites: the sum of a field of an entry, or of all entries of a list.
fn sum(sites: &[&Value], entry: &str, field: &str) -> u64 {
    let of = |site: &&Value| match &site[entry] {
        Value::Array(list) => list.iter().map(|it| number(&it[field])).sum(),
        it => number(&it[field]),
    };
    sites.iter().map(of).sum()
}

/// Check that an exact run counts each size in its bucket, that lifetimes are between what the program measured around and inside of the
/// calls, and that reallocations, what they copied, frees by another thread, and what rounding wasted are those of the program.
#[test]
fn an_exact_run_knows_how_blocks_are_used() -> Result<()> {
    let (truth, report) = recorded(&["--histogram", "--exact"])?;
    let of_sizes = sites(&report, "sizes");
    assert_eq!(of_sizes.len(), 1);
    for bucket in of_sizes[0]["sizes"].as_array().context("no sizes")? {
        let (from, to) = (number(&bucket["from"]), number(&bucket["to"]).min(999));
        assert_eq!(number(&bucket["count"]), to - from + 1, "{bucket}");
        assert_eq!(number(&bucket["bytes"]), (from..=to).sum::<u64>());
    }
    assert_eq!(sum(&of_sizes, "sizes", "count"), 1000);
    assert_eq!(sum(&of_sizes, "lifetimes", "bytes"), 499_500);
    for name in ["short_lived", "middle_lived", "long_lived"] {
        let (lives, known) = (sites(&report, name), &truth[name]);
        assert_eq!(sum(&lives, "lifetimes", "count"), known["blocks"]);
        assert_eq!(lives[0]["untimed_frees"]["count"], 0);
        let buckets = lives[0]["lifetimes"].as_array().context("no lifetimes")?;
        let (first, last) = (&buckets[0], &buckets[buckets.len() - 1]);
        assert!(number(&first["to"]) >= known["least"], "{first} {known:?}");
        // The agent keeps times in steps of 128 ns.
        assert!(
            number(&last["from"]) <= known["most"] + 128,
            "{last} {known:?}"
        );
        let median = &lives[0]["lifetime_quantiles"]["p50"];
        assert!(
            number(&median["from"]) >= number(&first["from"]),
            "{median}"
        );
    }
    let (grows, known) = (sites(&report, "grows"), &truth["grows"]);
    assert_eq!(
        sum(&grows, "reallocations", "count"),
        known["reallocations"]
    );
    assert_eq!(sum(&grows, "realloc_chains", "count"), known["chains"]);
    assert_eq!(sum(&grows, "realloc_moves", "count"), known["moves"]);
    assert_eq!(sum(&grows, "realloc_moves", "bytes"), known["copied"]);
    let handed = sites(&report, "hands_over");
    // The C library allocates for the thread, which it keeps.
    assert_eq!(sum(&handed, "freed_by_other_threads", "count"), 30);
    assert_eq!(sum(&handed, "freed_by_other_threads", "bytes"), 6000);
    let functions = ["sizes", "lives", "grows", "hands_over"];
    let mut known = functions
        .iter()
        .flat_map(|it| sites(&report, it))
        .collect::<Vec<_>>();
    known.retain(|site| {
        site["stack"][0]["module"]
            .as_str()
            .is_some_and(|it| it.ends_with("usage"))
    });
    assert_eq!(sum(&known, "rounding", "bytes"), truth["all"]["waste"]);
    assert_eq!(sum(&known, "rounding", "unfreed_bytes"), 0);
    Ok(())
}

/// Check that the histograms of a sample estimate those of the program within five of their errors.
#[test]
fn a_sample_estimates_how_blocks_are_used() -> Result<()> {
    let (_, report) = recorded(&["--histogram", "--sample", "2KiB"])?;
    let of_sizes = sites(&report, "sizes");
    for (list, field, truth) in [
        ("sizes", "count", 1000.0),
        ("sizes", "bytes", 499_500.0),
        ("lifetimes", "bytes", 499_500.0),
    ] {
        let estimate = sum(&of_sizes, list, field) as f64;
        let buckets = of_sizes.iter().flat_map(|it| it[list].as_array()).flatten();
        let errors = buckets.map(|it| number(&it[format!("{field}_error")]) as f64);
        let error = errors.map(|it| it * it).sum::<f64>().sqrt();
        assert!(error > 0.0, "{list} {field}");
        let off = (estimate - truth).abs();
        assert!(
            off <= 5.0 * error + 20.0,
            "{list} {field}: {estimate} ± {error}"
        );
    }
    Ok(())
}
