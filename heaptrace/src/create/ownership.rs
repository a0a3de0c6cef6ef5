//! Which existing files heaptrace has made.
//!
//! No stage of the flow; imports none. Reads no more than the first bytes of a file.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::XattrFlags;

/// The attribute of files that heaptrace makes. Copies, and files of some file systems, don't have it.
const ATTRIBUTE: &str = "user.heaptrace";

/// What the names of files begin with for which the user gave no name.
const NAME: &[u8] = b"heaptrace.";

/// The beginning of data files.
const DATA_FILE: [u8; 7] = *b"\x89HTRACE";

/// Marks a new file as made by heaptrace, where the file system can.
pub(super) fn mark(file: impl AsFd) {
    // Without the mark, only the name says who made the file.
    let _ = rustix::fs::fsetxattr(file, ATTRIBUTE, b"1", XattrFlags::empty());
}

/// Whether heaptrace has made a file: it has the mark, or is a data file.
pub(super) fn is_own(mut file: File) -> bool {
    if rustix::fs::fgetxattr(&file, ATTRIBUTE, &mut [0_u8; 8][..]).is_ok() {
        return true;
    }
    let mut head = [0; DATA_FILE.len()];
    file.read_exact(&mut head).is_ok() && head == DATA_FILE
}

/// Whether it is a name that heaptrace gives.
pub(super) fn is_own_name(name: &OsStr) -> bool {
    name.as_bytes().starts_with(NAME)
}
