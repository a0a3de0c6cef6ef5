//! Runtimes that a file has, and whose version or build is not known: their frames have no names.
//!
//! Stage: unwind. Reports say so, or such frames would look as if nothing else could be had.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::image::Image;
use crate::{python, v8};

/// A runtime whose frames have no names.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum UnknownRuntime {
    /// An interpreter of Python.
    #[error(
        "its version or build of Python is not known: Python's functions are not shown (see docs/limits.md)"
    )]
    Python,
    /// V8.
    #[error(
        "its version or build of V8 is not known: JavaScript's functions are not shown (see docs/limits.md)"
    )]
    V8,
}

impl UnknownRuntime {
    /// Such a runtime in a file.
    pub(super) fn find<'data, R: object::read::ReadRef<'data>>(
        data: R,
        image: &Image<'_>,
    ) -> Option<Self> {
        if image.python.is_none() && python::is_in(data) {
            return Some(Self::Python);
        }
        (image.v8.is_none() && v8::is_in(data)).then_some(Self::V8)
    }
}
