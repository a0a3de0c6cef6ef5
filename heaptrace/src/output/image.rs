//! Whether the blocks of a program image are those of a process record.
//!
//! Stage: output. An id can be used twice in a run, and an exec begins another image of the same process.

use crate::join::{BlockOwner, Process};

/// Whether a record is of an image, as far as a data file tells them apart.
pub(super) fn is_of(process: &Process, image: &BlockOwner) -> bool {
    process.pid == image.pid
        && process.start_time_ns == image.start_time_ns
        && process.command == image.command
}
