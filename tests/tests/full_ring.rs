//! Tests of a ring that is far too small: what has no room in it may be missing, but no freed block stands as live.

use anyhow::{Result, ensure};
use heaptrace_tests::{Heaptrace, c};

/// Check that no block of a process that freed all of them stands as live or as left, however full the ring was when
/// the process ended: the marks of frees were once swept only after its end. (Of two runs each left thousands.)
#[test]
fn no_freed_block_outlives_its_process() -> Result<()> {
    let fixture = c("crammed")?;
    let mut marked = 0;
    for round in 0..4 {
        let here = Heaptrace::tracing()?;
        let interval = ["50ms", "1s", "5s", "60s"][round];
        let recording = here.record(
            &["--ring-size", "64KiB", "--interval", interval],
            &[fixture.as_ref(), "15".as_ref()],
        )?;
        ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
        let report = &recording.report;
        let quality = &report.quality;
        marked += quality.noted["frees_marked"];
        for reason in ["frees_lost", "ends_lost", "unjoined", "unread"] {
            let lost = quality.lost.get(reason).copied();
            ensure!(lost.unwrap_or_default() == 0, "{:?}", quality.lost);
        }
        let totals = report.within("crammed_thread");
        ensure!(
            totals.allocations > 0 && totals.allocations == totals.frees,
            "every {interval}: {totals:?}, {quality:?}"
        );
    }
    ensure!(marked > 0, "the ring was never full");
    Ok(())
}
