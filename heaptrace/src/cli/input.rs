//! A data file, read and with names, as every offline command wants it.
//!
//! Part of the command line, no stage of the flow.

use std::path::Path;

use super::{message, naming};

use crate::profile::{self, Profile, Symbols};
use crate::symbolize::OnDisk;

/// Reads a data file; what limits its worth is said on standard error.
///
/// A recorder that was killed had no time to look up names: then this machine's files give them.
pub(super) fn load(path: &Path) -> anyhow::Result<(Profile, Symbols)> {
    let recording = profile::read(path)?;
    for warning in &recording.warnings {
        message::warn(warning);
    }
    let symbols = match recording.symbols {
        Some(symbols) => symbols,
        None => naming::all(&recording.profile, &OnDisk),
    };
    Ok((recording.profile, symbols))
}
