//! The kernel program's array of files with a Python interpreter.
//!
//! Part of `kernel`. Must not know files, nor which table refers to which entry.

use anyhow::Result;
use aya::maps::{Array, MapData};
use heaptrace_common::wire::PythonImage;

use super::pod::Wire;
use super::program::Program;

/// The array. An entry never changes once it is set, because a walk may use it at any time.
pub struct PythonImages {
    map: Array<MapData, Wire<PythonImage>>,
}

impl PythonImages {
    /// Sets an entry, which must precede the publication of a table that refers to it.
    pub fn set(&mut self, index: u32, image: PythonImage) -> Result<()> {
        Ok(self.map.set(index, Wire(image), 0)?)
    }
}

impl Program {
    /// The array of Python interpreters, once.
    pub fn take_python_images(&mut self) -> Result<PythonImages> {
        let map = self.take_map("PYTHON_IMAGES")?;
        Ok(PythonImages {
            map: Array::try_from(map)?,
        })
    }
}
