//! What the colors of a memory map show.
//!
//! Stage: output.

/// What the colors of a map show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MapColor {
    /// The site with most bytes.
    #[default]
    Site,
    /// The type of the blocks of that site.
    Type,
    /// How old blocks are.
    Age,
    /// How much of a page is in use.
    Fullness,
}

impl MapColor {
    /// Whether each color stands for sites.
    pub(super) fn is_of_sites(self) -> bool {
        matches!(self, Self::Site | Self::Type)
    }
}
