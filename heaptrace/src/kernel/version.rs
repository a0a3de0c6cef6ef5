//! The version of the running kernel, and the oldest version that heaptrace supports.
//!
//! Part of `kernel`. It must not know what depends on the version.

use std::fs;

/// The oldest kernel that heaptrace runs on: the first one with `bpf_loop`.
pub const MINIMUM: (u32, u32) = (5, 17);
/// The oldest kernel that heaptrace is tested on.
pub const RECOMMENDED: (u32, u32) = (6, 1);

/// The running kernel's version; [`MINIMUM`] if it can't be read.
pub fn running() -> (u32, u32) {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    parse(&release).unwrap_or(MINIMUM)
}

/// Major and minor version in a kernel release such as `6.1.0-13-amd64`.
pub fn parse(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.trim().split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}
