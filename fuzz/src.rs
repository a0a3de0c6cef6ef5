//! What cargo-fuzz's targets share.

use heaptrace::fuzz::Boundary;

/// Checks an input of a boundary.
pub fn check(name: &str, data: &[u8]) {
    let boundary = Boundary::named(name);
    assert!(boundary.is_some(), "there is no boundary {name}");
    boundary.map(|boundary| (boundary.check)(data));
}
