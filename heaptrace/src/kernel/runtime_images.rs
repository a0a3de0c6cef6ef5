//! The kernel program's arrays of files with a runtime, one for each kind.
//!
//! Part of `kernel`. Must not know files, nor which table refers to which entry.

use anyhow::Result;
use aya::maps::{Array, MapData};

use super::pod::{Plain, Wire};
use super::program::Program;

/// An array. An entry never changes once it is set, because a walk may use it at any time.
pub struct RuntimeImages<T: Plain> {
    map: Array<MapData, Wire<T>>,
}

impl<T: Plain> RuntimeImages<T> {
    /// Sets an entry, which must precede the publication of a table that refers to it.
    pub fn set(&mut self, index: u32, image: T) -> Result<()> {
        Ok(self.map.set(index, Wire(image), 0)?)
    }
}

impl Program {
    /// The array with this name, once.
    pub fn take_runtime_images<T: Plain>(&mut self, name: &str) -> Result<RuntimeImages<T>> {
        let map = self.take_map(name)?;
        Ok(RuntimeImages {
            map: Array::try_from(map)?,
        })
    }
}
