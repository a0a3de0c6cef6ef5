//! Tests of options about moments of a run: limits of live memory, and a command for lack of memory.

use std::ffi::OsString;

use super::{complaint, run};
use crate::cli::{Action, parse};
use crate::config::{LimitedBy, LiveLimit};

/// Check that a limit of live memory is for processes, or for control groups if that is said or groups are selected.
#[test]
fn live_limits_are_read() {
    let limit = |options: &str| run(&format!("heaptrace --all {options}")).live_limit;
    let of = |by| Some(LiveLimit { bytes: 4 << 20, by });
    let option = "--when-live-exceeds 4MiB";
    assert_eq!(limit(option), of(LimitedBy::Process));
    assert_eq!(
        limit(&format!("{option}:cgroup")),
        of(LimitedBy::Group(Vec::new()))
    );
    let selected = vec!["/a.slice".to_owned()];
    assert_eq!(
        limit(&format!("{option} --cgroup /a.slice")),
        of(LimitedBy::Group(selected))
    );
    for wrong in ["0", "4MiB:group", "x"] {
        complaint(&format!("heaptrace --all --when-live-exceeds {wrong}"));
    }
}

/// Check that the command of `--on-oom` is read, and only for recordings.
#[test]
fn commands_for_lack_of_memory_are_read() {
    let line = ["heaptrace", "record", "--on-oom", "a b", "--", "ls"];
    let parsed = parse(line.map(OsString::from)).unwrap();
    let Action::Record { on_oom, .. } = parsed.action else {
        panic!("{parsed:?}");
    };
    assert_eq!(on_oom, Some("a b".into()));
    complaint("heaptrace --on-oom a -- ls");
}
