//! A data file, read and with names, as every offline command wants it.
//!
//! Part of the command line, no stage of the flow.

use std::path::Path;

use super::{message, naming};
use crate::output::Findings;
use crate::profile::{self, Profile, Symbols};
use crate::symbolize::OnDisk;

/// What a data file holds.
pub(super) struct Loaded {
    pub(super) profile: Profile,
    symbols: Symbols,
    warnings: Vec<String>,
}

/// Reads a data file.
///
/// A recorder that was killed had no time to look up names: then this machine's files give them.
pub(super) fn load(path: &Path) -> anyhow::Result<Loaded> {
    let recording = profile::read(path)?;
    let symbols = match recording.symbols {
        Some(symbols) => symbols,
        None => naming::all(&recording.profile, &OnDisk),
    };
    Ok(Loaded {
        profile: recording.profile,
        symbols,
        warnings: recording.warnings,
    })
}

impl Loaded {
    /// What the outputs read.
    pub(super) fn findings(&self) -> Findings<'_> {
        Findings {
            profile: &self.profile,
            symbols: &self.symbols,
            warnings: &self.warnings,
        }
    }

    /// Says on standard error what limits the worth of an output.
    pub(super) fn warn(&self) {
        for warning in &self.warnings {
            message::warn(warning);
        }
    }
}
