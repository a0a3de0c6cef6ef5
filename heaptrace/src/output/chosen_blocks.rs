//! What is known of blocks that filters chose one by one.
//!
//! Stage: output. Must not know how they are chosen.

/// What is known of blocks that filters chose one by one. Their peaks never are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChosenBlocks {
    /// Whether blocks that were freed are among them.
    pub has_freed: bool,
}
