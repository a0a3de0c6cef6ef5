//! Whether sites have their bytes at the peaks of their own processes.
//!
//! Stage: output.

use crate::profile::Profile;

/// Whether a recording has the bytes of sites at the peaks of their processes: older files don't.
pub fn has_own_peaks(profile: &Profile) -> bool {
    profile.totals.peak_live_bytes == 0 || profile.sites.iter().any(|site| site.own_peak.bytes > 0)
}
