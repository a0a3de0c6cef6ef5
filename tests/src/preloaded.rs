//! Fixtures that wait until heaptrace has moved them to the fast path, with an allocator preloaded.

use std::ffi::OsStr;

use anyhow::{Context as _, Result, ensure};

use crate::{Fixture, Heaptrace, Recording, WAIT_UNTIL_MOVED};

/// Every allocator, with its kind: that of the C library, and the libraries that can be preloaded.
pub const ALLOCATORS: [(Option<&str>, &str); 4] = [
    (None, "glibc"),
    (Some("libjemalloc.so.2"), "jemalloc"),
    (Some("libtcmalloc.so.4"), "tcmalloc"),
    (Some("libmimalloc.so.2.0"), "mimalloc"),
];

/// Records a fixture that waits until it was moved, with this library preloaded. Fails if it was not moved, or if anything
/// was lost.
pub fn record_moved(
    options: &[&str],
    fixture: &Fixture,
    library: Option<&str>,
    arguments: &[&str],
) -> Result<Recording> {
    let preload = library.map(|library| format!("LD_PRELOAD={library}"));
    let mut command = ["env", WAIT_UNTIL_MOVED].map(OsStr::new).to_vec();
    command.extend(preload.as_deref().map(OsStr::new));
    command.push(fixture.as_ref());
    command.extend(arguments.iter().map(OsStr::new));
    let recording = Heaptrace::tracing()?.record(options, &command)?;
    ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
    recording.report.check_nothing_lost()?;
    assert_eq!(recording.report.moved(), (1, 0));
    Ok(recording)
}

impl Recording {
    /// Fails unless the fixture's process has an allocator of this kind.
    pub fn has_allocator(&self, kind: &str) -> Result<()> {
        println!("{kind}");
        let images = self.report.images(self.truth("main")?.pid);
        let image = images.last().context("the process is not in the report")?;
        ensure!(
            image.allocators.iter().any(|it| it.kind == kind),
            "{image:?}"
        );
        Ok(())
    }
}
