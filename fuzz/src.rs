//! The function that all cargo-fuzz targets share.

use heaptrace::fuzz::Boundary;

/// Runs the check of a boundary on an input.
pub fn check(name: &str, data: &[u8]) {
    let boundary = Boundary::named(name);
    assert!(boundary.is_some(), "there is no boundary {name}");
    boundary.map(|boundary| (boundary.check)(data));
}
