//! Checks the report of a busy machine.
//!
//! Part of busy.

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::work::Programs;

/// Checks that the report has every expected process and adds up.
pub(super) fn judge(report: &Value, programs: &Programs, from_birth: bool) -> Result<()> {
    let processes = report["processes"].as_array().context("no processes")?;
    let of = |it: &Value, name: &str| it["totals"][name].as_u64().unwrap_or(0);
    let is = |it: &&Value, name: &str| it["command"].as_str() == Some(name);
    let mut traced = programs.long.to_vec();
    if from_birth {
        traced.extend(programs.short);
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
    for name in programs.short.iter().filter(|_| !from_birth) {
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

    use super::super::work::MIX;
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
        let (long, short) = (MIX.long, MIX.short);
        let of_mix = |report: &Value, from_birth| judge(report, &MIX, from_birth);
        let every = [long, short].concat();
        of_mix(&report(&every, &[], 60), true).unwrap();
        of_mix(&report(long, short, 33), false).unwrap();
        assert!(of_mix(&report(long, short, 50), false).is_err());
        let mut lossy = report(long, short, 30);
        lossy["quality"]["lost"]["ring"] = json!(1);
        assert!(of_mix(&lossy, false).is_err());
        let error = of_mix(&report(long, &short[1..], 30), false).unwrap_err();
        assert!(error.to_string().contains("sh was counted"), "{error}");
        let error = of_mix(&report(long, short, 30), true).unwrap_err();
        assert!(error.to_string().contains("of sh was seen"), "{error}");
        let error = of_mix(&report(&long[..2], short, 20), false).unwrap_err();
        assert!(error.to_string().contains("redis-benchmark"), "{error}");
    }
}
