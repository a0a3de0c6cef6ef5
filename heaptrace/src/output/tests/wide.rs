//! Tests of flame graphs with more stacks than can be seen.

use std::collections::BTreeMap;

use super::flamegraph::{data, page_frames, stacks};
use super::{sample, text};
use crate::join::{Completeness, Location, LocationId, ProcessId, Site, Stack, StackId};
use crate::output::{Format, Metric, ReportInput, folded};
use crate::profile::{Frame, Profile, StringId, Symbols};
use crate::random::numbers;

const FUNCTIONS: u64 = 5000;

/// Stacks that begin with a few functions and continue with many, half of them through an inlined function.
/// Some have only a few bytes, and some have enough to be seen alone.
fn wide(stacks: u32) -> (Profile, Symbols) {
    let mut random = numbers(1);
    let mut profile = sample::profile();
    profile.processes.truncate(1);
    let location = |address| Location {
        module: None,
        address,
        function: None,
    };
    profile.locations = (0..FUNCTIONS).map(location).collect();
    (profile.stacks, profile.sites) = (Vec::new(), Vec::new());
    for stack in 0..stacks {
        let outer = (0..random(7)).map(|level| 10 * level + random(3));
        let outer: Vec<u64> = outer.collect();
        let inner = (0..random(3)).map(|_| random(FUNCTIONS));
        let locations = outer.into_iter().chain(inner.collect::<Vec<_>>());
        let locations: Vec<_> = locations.map(|it| LocationId(it as u32)).rev().collect();
        profile.stacks.push(Stack {
            locations,
            completeness: Completeness::Complete,
        });
        profile.sites.push(Site {
            totals: sample::totals(1, 1 << random(10), 1),
            ..Site::of_heap(ProcessId(0), StackId(stack), crate::join::SiteId(0))
        });
    }
    let frame = |function| Frame {
        function: Some(StringId(function)),
        file: None,
        line: 0,
        inlined: false,
    };
    let functions = FUNCTIONS as u32;
    let frames = |it: u32| match it % 2 {
        0 => vec![frame(it)],
        _ => vec![frame(it), frame(functions + it % 7)],
    };
    let symbols = Symbols {
        strings: (0..functions + 7).map(|it| format!("f{it}")).collect(),
        frames: (0..functions).map(frames).collect(),
        ..Symbols::default()
    };
    (profile, symbols)
}

/// Every frame of the graph by its path, outermost first, with its bytes, computed in the simple way.
fn frames(profile: &Profile, symbols: &Symbols) -> BTreeMap<Vec<String>, u64> {
    let input = ReportInput::new(profile, symbols);
    let mut frames = BTreeMap::new();
    for site in &profile.sites {
        let stack = input.stack(site.stack);
        let mut path: Vec<_> = stack.iter().rev().map(|it| it.label()).collect();
        if path.is_empty() {
            path.push("[no stack]".to_owned());
        }
        for depth in 0..=path.len() {
            *frames.entry(path[..depth].to_vec()).or_default() += site.totals.live_bytes;
        }
    }
    frames
}

/// Check a graph of thousands of stacks, most of them too thin to be seen. Every frame that is wide enough is
/// drawn with its full value, including callees that are not drawn. No other frame is drawn. The graph states
/// the number of frames that are left out, and the drawing is small.
#[test]
fn drawn_frames_include_hidden_callees() {
    let (profile, symbols) = wide(30_000);
    let all = frames(&profile, &symbols);
    let least = all[&Vec::new()] as f64 * 0.01 / 100.0;
    let is_wide = |path: &[String]| all[path] as f64 >= least;
    let (shown, hidden): (Vec<_>, Vec<_>) = all.iter().partition(|(path, _)| is_wide(path));
    let mut expected: Vec<(String, u64)> = shown
        .into_iter()
        .map(|(path, value)| (path.last().map_or("all", String::as_str).to_owned(), *value))
        .collect();
    let svg = text(
        &Format::Flamegraph(Metric::LiveBytes),
        &ReportInput::new(&profile, &symbols),
    );
    let frames = page_frames(&data(&svg), Metric::LiveBytes);
    let whole = frames.iter().filter(|(depth, ..)| *depth == 0);
    let whole = whole.map(|(.., value)| value).sum();
    let mut found: Vec<(String, u64)> = vec![("all".to_owned(), whole)];
    found.extend(frames.into_iter().map(|(_, name, _, value)| (name, value)));
    let roots = hidden.iter().filter(|(path, _)| path.len() == 1);
    let without = roots.map(|(_, value)| **value).sum();
    assert!(without > 0);
    expected.push((folded::LEFT_OUT.to_owned(), without));
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected);
    assert!(found.len() > 300, "{} are shown", found.len());
    // Callees of a frame that is not drawn are not drawn either.
    let outermost = hidden
        .iter()
        .filter(|(path, _)| is_wide(&path[..path.len() - 1]));
    let left_out = crate::text::count(outermost.count() as u64);
    let words = format!("{left_out} frames below 0.01 % left out");
    assert!(svg.contains(&words), "{words}");
    assert!(svg.len() < 2 << 20, "{} bytes", svg.len());
}

/// Check that folded stacks without a limit have every stack once.
#[test]
fn folded_stacks_without_a_limit_are_complete() {
    let (profile, symbols) = wide(5_000);
    let mut found = BTreeMap::<Vec<String>, u64>::new();
    let mut last = Vec::new();
    for (path, value) in stacks(&ReportInput::new(&profile, &symbols), Metric::LiveBytes) {
        assert!(last < path, "{last:?} before {path:?}");
        last.clone_from(&path);
        for depth in 0..=path.len() {
            *found.entry(path[..depth].to_vec()).or_default() += value;
        }
    }
    assert_eq!(found, frames(&profile, &symbols));
}
