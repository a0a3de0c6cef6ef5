//! Checks that must hold for any capabilities text of `/proc`. For fuzzers only.

use super::capabilities::{Capabilities, Capability};

/// Check that the parsed capabilities match the text.
pub(crate) fn status(data: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(data);
    let Some(capabilities) = Capabilities::parse(&text) else {
        return 0;
    };
    let all = Capability::REQUIRED;
    let lacking = capabilities.lacking(&all);
    assert!(lacking.len() <= all.len());
    1 + lacking.len() as u64
}
