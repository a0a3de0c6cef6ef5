//! Checks the report of a busy machine.
//!
//! Part of busy.

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The names of programs that run for long enough to be traced in every run.
const LONG: [&str; 3] = ["cc1plus", "redis-server", "redis-benchmark"];

/// The names of programs that are only traced from birth.
const SHORT: [&str; 3] = ["sh", "ls", "sort"];

/// Checks that the report has every expected process and adds up.
pub(super) fn judge(report: &Value, from_birth: bool) -> Result<()> {
    let processes = report["processes"].as_array().context("no processes")?;
    let of = |it: &Value, name: &str| it["totals"][name].as_u64().unwrap_or(0);
    let is = |it: &&Value, name: &str| it["command"].as_str() == Some(name);
    let mut traced = LONG.to_vec();
    if from_birth {
        traced.extend(SHORT);
    }
    for name in traced {
        let named = processes.iter().filter(|it| is(it, name));
        let allocations: u64 = named.map(|it| of(it, "allocations")).sum();
        if allocations == 0 {
            bail!("no allocation of {name} was seen");
        }
        println!("    {name}: {allocations} allocations");
    }
    let ended = report["quality"]["short_lived"].as_array();
    for name in SHORT.iter().filter(|_| !from_birth) {
        let named = ended
            .into_iter()
            .flatten()
            .filter(|it| it["command"] == *name);
        let ended: u64 = named.filter_map(|it| it["processes"].as_u64()).sum();
        if ended == 0 {
            bail!("no {name} was counted as short-lived");
        }
        println!("    {name}: {ended} processes ended before they were traced");
    }
    for name in ["allocations", "frees"] {
        let sum: u64 = processes.iter().map(|it| of(it, name)).sum();
        let total = report["totals"][name].as_u64().unwrap_or(0);
        // In a sampled run each number is rounded on its own.
        if sum.abs_diff(total) > processes.len() as u64 {
            bail!("total {name}: {total}, but the processes have {sum}");
        }
    }
    let lost = report["quality"]["lost"].as_object().context("no losses")?;
    for (reason, count) in lost {
        if count.as_u64() != Some(0) {
            bail!("lost, {reason}: {count}");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report(traced: &[&str], ended: &[&str], total: u64) -> Value {
        let processes: Vec<Value> = traced
            .iter()
            .map(|name| json!({ "command": name, "totals": { "allocations": 10, "frees": 4 } }))
            .collect();
        let ended: Vec<Value> = ended
            .iter()
            .map(|name| json!({ "command": name, "processes": 7 }))
            .collect();
        let frees = 4 * processes.len();
        json!({
            "processes": processes,
            "totals": { "allocations": total, "frees": frees },
            "quality": { "short_lived": ended, "lost": { "ring": 0 } },
        })
    }

    /// Check that a report that adds up apart from rounding is accepted. One that does not, that has a loss, or that lacks
    /// an expected process, is refused.
    #[test]
    fn reports_are_judged() {
        let every = [LONG, SHORT].concat();
        judge(&report(&every, &[], 60), true).unwrap();
        judge(&report(&LONG, &SHORT, 33), false).unwrap();
        assert!(judge(&report(&LONG, &SHORT, 50), false).is_err());
        let mut lossy = report(&LONG, &SHORT, 30);
        lossy["quality"]["lost"]["ring"] = json!(1);
        assert!(judge(&lossy, false).is_err());
        let error = judge(&report(&LONG, &SHORT[1..], 30), false).unwrap_err();
        assert!(error.to_string().contains("sh was counted"), "{error}");
        let error = judge(&report(&LONG, &SHORT, 30), true).unwrap_err();
        assert!(error.to_string().contains("of sh was seen"), "{error}");
        let error = judge(&report(&LONG[..2], &SHORT, 20), false).unwrap_err();
        assert!(error.to_string().contains("redis-benchmark"), "{error}");
    }
}
