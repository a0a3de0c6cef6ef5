//! Files with code, and their unwind tables.

/// A file with code, as the kernel identifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct FileKey {
    /// Inode number.
    pub inode: u64,
    /// Device, in the kernel's own encoding.
    pub device: u64,
    /// The time of the file's last change, see [`version_of`]. It tells apart the contents that the file had,
    /// and the files that had this inode number one after another.
    pub version: u64,
}

/// A file's version from the time of its last change (ctime), which no process can set back. Kernels since
/// 6.13 keep a flag in the highest bit of the nanoseconds.
#[inline(always)]
pub const fn version_of(seconds: u64, nanoseconds: u32) -> u64 {
    seconds << 32 | (nanoseconds & 0x7fff_ffff) as u64
}

impl FileKey {
    /// The kernel's vDSO, which has code but is no file. No device has this number.
    pub const VDSO: Self = Self {
        inode: 1,
        device: u64::MAX,
        version: 0,
    };

    /// A check value. It tells whether the memory of a table map's entry was reused for another file.
    #[inline(always)]
    pub const fn check(self) -> u32 {
        let mixed = (self.inode ^ self.device.rotate_left(21) ^ self.version.rotate_left(42))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32) as u32
    }
}

/// Value of the table map: where the unwind table of a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct TableRef {
    /// A constant of [`table`].
    pub state: u32,
    /// Index of the entry of its first page.
    pub pages_at: u32,
    /// Number of its pages.
    pub pages: u32,
    /// Number of the first page in the file.
    pub first_page: u32,
    /// Slot of its last use; 0 if its use is not recorded.
    pub slot: u32,
    /// [`FileKey::check`] of its file; 0 while it has no file.
    pub check: u32,
    /// One more than the index of its [`PythonImage`](super::PythonImage); 0 if it holds no Python interpreter.
    pub python: u32,
    /// One more than the index of its [`V8Image`](super::V8Image); 0 if it does not hold V8.
    pub v8: u32,
}

impl TableRef {
    /// A state without a table.
    pub const fn none(state: u32) -> Self {
        Self {
            state,
            pages_at: 0,
            pages: 0,
            first_page: 0,
            slot: 0,
            check: 0,
            python: 0,
            v8: 0,
        }
    }

    /// The same for a file.
    #[inline(always)]
    pub const fn of(self, file: FileKey) -> Self {
        Self {
            check: file.check(),
            ..self
        }
    }
}

/// State of a [`TableRef`].
pub mod table {
    /// Requested.
    pub const REQUESTED: u32 = 0;
    /// Loaded.
    pub const LOADED: u32 = 1;
    /// The file has no unwind information; frame pointers are used.
    pub const ABSENT: u32 = 2;
}

/// A request for a file's unwind table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct NeedTable {
    /// [`kind::NEED_TABLE`](super::kind::NEED_TABLE).
    pub kind: u16,
    /// Zero.
    pub pad: u16,
    /// A process that has it mapped.
    pub tgid: u32,
    /// Start of the mapping.
    pub start: u64,
    /// End of the mapping.
    pub end: u64,
    /// The file.
    pub file: FileKey,
}

const _: () = {
    assert!(size_of::<FileKey>() == 24);
    assert!(size_of::<TableRef>() == 32);
    assert!(size_of::<NeedTable>() == 48);
};
