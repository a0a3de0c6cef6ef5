//! What was promised of the ratios, and how far what was measured is from it.
//!
//! Part of bench. Made of the figures that are kept, so it can be said without measuring anew.

use super::figure::Figure;

/// A promise.
struct Target {
    what: &'static str,
    /// Whether a figure of this name is meant.
    is_of: fn(&str) -> bool,
    /// The ratio that none of them should be over.
    at_most: f64,
    /// What to know of it where it is not kept.
    remark: &'static str,
}

const TARGETS: [Target; 4] = [
    Target {
        what: "a sampled pair, to empty probes",
        is_of: |name| name.contains("pair") && name.ends_with(", sampled"),
        at_most: 1.10,
        remark: "which rows are over it differs from run to run",
    },
    Target {
        what: "an exact pair 8 calls deep without frame pointers, to empty probes",
        is_of: |name| {
            name.starts_with("a pair 8 calls deep, ")
                && name.ends_with("s, exact")
                && !name.contains("with")
        },
        at_most: 2.0,
        remark: "what is left is an entry of the live map made and taken out, and two events",
    },
    Target {
        what: "sampled, to bpftrace",
        is_of: |name| name.starts_with("beside: ") && name.ends_with("bpftrace, one in 8192"),
        at_most: 1.0 / 6.0,
        remark: "by the same probes",
    },
    Target {
        what: "exact, to bpftrace",
        is_of: |name| name.starts_with("beside: ") && name.ends_with("bpftrace, exact"),
        at_most: 1.0 / 5.0,
        remark: "bpftrace can't walk CPython's code: what it is compared with there are stacks of a frame or two, to whole ones",
    },
];

/// The targets as a part of the page; those without figures are left out.
pub(super) fn section(figures: &[Figure]) -> String {
    let mut text = String::from(
        "\n## Targets\n\n\
         Ratios of what heaptrace takes to what it is compared with, medians each; below, the tables that they are from. No \
         event should be lost at a million calls a second (Through the ring, default), an event should cost the agent less than a \
         microsecond, and nothing should grow faster than what it grows with (Growth).\n\n\
         | target | at most | measured, least to most | kept by | remark |\n|--|--:|--:|--:|--|\n",
    );
    for target in TARGETS {
        let of = figures.iter().filter(|it| (target.is_of)(&it.name));
        let mut medians: Vec<f64> = of.map(|it| it.ratio.median).collect();
        medians.sort_unstable_by(f64::total_cmp);
        let (Some(least), Some(most)) = (medians.first(), medians.last()) else {
            continue;
        };
        let kept = medians.iter().filter(|it| **it <= target.at_most).count();
        text.push_str(&format!(
            "| {} | {:.3} | {least:.3}–{most:.3} | {kept} of {} | {} |\n",
            target.what,
            target.at_most,
            medians.len(),
            target.remark,
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::stats::Spread;

    fn figure(name: &str, median: f64) -> Figure {
        let ratio = Spread {
            median,
            min: median,
            max: median,
        };
        Figure {
            name: name.to_owned(),
            ratio,
        }
    }

    /// Check that each target counts its own figures, kept and not, and that one without any is not there.
    #[test]
    fn figures_are_held_against_their_targets() {
        let text = section(&[
            figure("malloc/free pair, 1 threads, sampled", 1.04),
            figure("a pair 8 calls deep, 2 threads, sampled", 1.14),
            figure("a pair 8 calls deep, 2 threads, exact", 1.7),
            figure(
                "a pair 8 calls deep, with frame pointers, 2 threads, exact",
                2.7,
            ),
            figure("a pair 120 calls deep, 2 threads, exact", 3.7),
            figure("beside: CPython: ours to bpftrace, exact", 0.25),
            figure("jq, exact", 9.0),
        ]);
        let rows: Vec<_> = text
            .lines()
            .filter(|line| line.starts_with("| "))
            .skip(1)
            .collect();
        assert!(rows[0].contains("| 1.040–1.140 | 1 of 2 |"), "{text}");
        assert!(rows[1].contains("| 1.700–1.700 | 1 of 1 |"), "{text}");
        assert!(rows[2].contains("| 0.250–0.250 | 0 of 1 |"), "{text}");
        assert_eq!(rows.len(), 3, "{text}");
    }
}
