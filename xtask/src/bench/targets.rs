//! The targets for the ratios, and how far the measured ratios are from them.
//!
//! Part of bench. It uses the stored figures, so it needs no new measurement.

use super::figure::Figure;

/// A target.
struct Target {
    what: &'static str,
    /// Whether the target is about a figure of this name.
    is_of: fn(&str) -> bool,
    /// The largest allowed ratio.
    at_most: f64,
    /// A remark for readers if the target is missed.
    remark: &'static str,
}

const TARGETS: [Target; 4] = [
    Target {
        what: "a sampled pair, compared with empty probes",
        is_of: |name| name.contains("pair") && name.ends_with(", sampled"),
        at_most: 1.10,
        remark: "the rows above the target differ from run to run",
    },
    Target {
        what: "an exact pair 8 calls deep without frame pointers, compared with empty probes",
        is_of: |name| {
            name.starts_with("a pair 8 calls deep, ")
                && name.ends_with("s, exact")
                && !name.contains("with")
        },
        at_most: 2.0,
        remark: "the remaining cost is an insertion and a removal in the live map, and two events",
    },
    Target {
        what: "sampled, compared with bpftrace",
        is_of: |name| name.starts_with("beside: ") && name.ends_with("bpftrace, one in 8192"),
        at_most: 1.0 / 6.0,
        remark: "with the same probes",
    },
    Target {
        what: "exact, compared with bpftrace",
        is_of: |name| name.starts_with("beside: ") && name.ends_with("bpftrace, exact"),
        at_most: 1.0 / 5.0,
        remark: "bpftrace can't walk CPython's code, so it records stacks of one or two frames, and heaptrace records complete stacks",
    },
];

/// The targets as a part of the page, without those that have no figures.
pub(super) fn section(figures: &[Figure]) -> String {
    let mut text = String::from(
        "\n## Targets\n\n\
         The median ratios of heaptrace's cost to the cost that it is compared with; the tables below have all of them. Further \
         targets: no event is lost at a million calls per second (\"Through the ring\", default), an event costs the agent less \
         than a microsecond, and costs grow at most linearly (\"Growth\").\n\n\
         | target | at most | measured, least to most | met by | remark |\n|--|--:|--:|--:|--|\n",
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

    /// Check that each target counts its own figures, met and missed, and that a target without figures is
    /// omitted.
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
