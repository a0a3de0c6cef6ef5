//! What a run found unreachable, for its summary.
//!
//! Part of the command line. Must not know how it was found; `heaptrace leaks` shows the rest.

use crate::join::UnreachableSum;
use crate::profile::Profile;
use crate::text::{bytes, counted};

/// Lines for a profile; none if nothing was searched. The argument is the data file's, for `heaptrace leaks`.
pub(super) fn lines(profile: &Profile, argument: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let searched = profile.reachability.iter();
    let refused = searched.clone().filter(|it| !it.refused.is_empty()).count();
    let sites = || searched.clone().flat_map(|it| &it.sites);
    let sum = |of: fn(&UnreachableSum) -> u64| -> u64 {
        let sums = sites().map(|it| of(&it.direct).saturating_add(of(&it.indirect)));
        sums.fold(0, u64::saturating_add)
    };
    let about = match profile.info.mode.is_sampled() {
        true => "about ",
        false => "",
    };
    let next = format!("heaptrace leaks{argument}");
    match sites().count() {
        0 if refused == profile.reachability.len() => {}
        0 => lines.push("  nothing that was recorded was found unreachable".to_owned()),
        number => lines.push(format!(
            "  unreachable: {about}{} in {} from {} ({next} names them)",
            bytes(sum(|it| it.bytes)),
            counted(sum(|it| it.blocks), "block", "blocks"),
            counted(number as u64, "site", "sites"),
        )),
    }
    if refused > 0 {
        lines.push(format!(
            "  not searched for unreachable blocks: {} ({next} says why)",
            counted(refused as u64, "process", "processes"),
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::{Reachability, UnreachableSite};
    use crate::profile::RunInfo;

    /// Check that what was found is summed up over processes, and that processes without a search are told; nothing if none was wanted.
    #[test]
    fn findings_are_summed_up() {
        let mut profile = Profile::new(RunInfo::exact("x"));
        assert_eq!(lines(&profile, ""), Vec::<String>::new());
        profile.reachability.push(Reachability::default());
        assert_eq!(
            lines(&profile, ""),
            ["  nothing that was recorded was found unreachable"]
        );
        let sum = |blocks, bytes| UnreachableSum {
            blocks,
            bytes,
            ..UnreachableSum::default()
        };
        let site = UnreachableSite {
            direct: sum(1, 1000),
            indirect: sum(2, 24),
            ..UnreachableSite::default()
        };
        profile.reachability[0].sites = vec![site; 2];
        profile.reachability.push(Reachability {
            refused: "no".to_owned(),
            ..Reachability::default()
        });
        assert_eq!(
            lines(&profile, " a.data"),
            [
                "  unreachable: 2.0 KiB in 6 blocks from 2 sites (heaptrace leaks a.data names them)",
                "  not searched for unreachable blocks: 1 process (heaptrace leaks a.data says why)",
            ]
        );
        profile.reachability.remove(0);
        assert_eq!(lines(&profile, "").len(), 1);
    }
}
