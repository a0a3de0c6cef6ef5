//! Tables kept on disk, for the next run.
//!
//! Stage: unwind.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::image::Fingerprint;
use super::table::Table;

pub(super) struct Cache;

/// Where.
pub fn default_folder() -> Option<PathBuf> {
    None
}

impl Cache {
    pub(super) fn open(_: &Path) -> Option<Self> {
        None
    }
    pub(super) fn read(&self, _: &Fingerprint) -> Option<Table> {
        None
    }
    pub(super) fn keep(&self, _: &Fingerprint, _: &Table, _: Duration) {}
}
