//! Which argument positions each entry program reads: the one table for both sides.
//!
//! The kernel program takes its positions from here at compile time. The agent takes from here which
//! arguments must still be in known registers at a probe location. It must not know where a probe is placed.

use crate::cookie::ARGUMENTS;

/// What an entry program reads an argument as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// The program does not read it.
    Unread,
    /// Requested bytes, or with [`Argument::Count`] the bytes of one element.
    Size,
    /// Number of elements.
    Count,
    /// The block that is freed or resized, the address that is unmapped, or where `posix_memalign` stores its
    /// result.
    Pointer,
    /// Length of the memory that is unmapped or moved.
    OldSize,
    /// Flags.
    Flags,
}

/// Where the requested bytes of a call are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// In the argument at this position.
    At(usize),
    /// The product of the arguments at these positions: count and size.
    Product(usize, usize),
}

/// What a program at the entry of a function reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryProgram {
    /// Name of the kernel program.
    pub name: &'static str,
    /// The function's first arguments.
    pub arguments: [Argument; ARGUMENTS],
    /// Whether calls with a NULL pointer need not be seen.
    pub ignores_null: bool,
}

use Argument::{Count, Flags, OldSize, Pointer, Size as Bytes, Unread};

/// All entry programs.
pub const ENTRY_PROGRAMS: &[EntryProgram] = &[
    frees("free_entry", [Pointer, Unread, Unread, Unread]),
    frees("heap_free_entry", [Unread, Pointer, Unread, Unread]),
    reads("malloc_entry", [Bytes, Unread, Unread, Unread]),
    reads("aligned_entry", [Unread, Bytes, Unread, Unread]),
    reads("heap_aligned_entry", [Unread, Unread, Bytes, Unread]),
    reads("calloc_entry", [Count, Bytes, Unread, Unread]),
    reads("heap_calloc_entry", [Unread, Count, Bytes, Unread]),
    reads("heap_aligned_calloc_entry", [Unread, Unread, Count, Bytes]),
    reads("posix_memalign_entry", [Pointer, Unread, Bytes, Unread]),
    reads("new_entry", [Bytes, Unread, Unread, Unread]),
    reads("heap_new_entry", [Unread, Bytes, Unread, Unread]),
    reads("new_n_entry", [Count, Bytes, Unread, Unread]),
    reads("heap_new_n_entry", [Unread, Count, Bytes, Unread]),
    reads("realloc_entry", [Pointer, Bytes, Unread, Unread]),
    reads("heap_realloc_entry", [Unread, Pointer, Bytes, Unread]),
    reads("aligned_realloc_entry", [Pointer, Unread, Bytes, Unread]),
    reads("rust_realloc_entry", [Pointer, Unread, Unread, Bytes]),
    reads(
        "heap_aligned_realloc_entry",
        [Unread, Pointer, Unread, Bytes],
    ),
    reads("reallocarray_entry", [Pointer, Count, Bytes, Unread]),
    reads("heap_reallocarray_entry", [Unread, Pointer, Count, Bytes]),
    reads("reallocf_entry", [Pointer, Bytes, Unread, Unread]),
    reads("heap_reallocf_entry", [Unread, Pointer, Bytes, Unread]),
    reads("resize_entry", [Pointer, Bytes, Unread, Unread]),
    reads("new_realloc_entry", [Pointer, Bytes, Unread, Unread]),
    reads("new_reallocn_entry", [Pointer, Count, Bytes, Unread]),
    reads("mmap_entry", [Unread, Bytes, Unread, Flags]),
    reads("munmap_entry", [Pointer, OldSize, Unread, Unread]),
    reads("mremap_entry", [Pointer, OldSize, Bytes, Flags]),
];

const fn reads(name: &'static str, arguments: [Argument; ARGUMENTS]) -> EntryProgram {
    EntryProgram {
        name,
        arguments,
        ignores_null: false,
    }
}

const fn frees(name: &'static str, arguments: [Argument; ARGUMENTS]) -> EntryProgram {
    EntryProgram {
        name,
        arguments,
        ignores_null: true,
    }
}

impl EntryProgram {
    /// The program of a name, if there is one.
    pub const fn find(name: &str) -> Option<&'static Self> {
        let mut index = 0;
        while index < ENTRY_PROGRAMS.len() {
            if is_equal(ENTRY_PROGRAMS[index].name, name) {
                return Some(&ENTRY_PROGRAMS[index]);
            }
            index += 1;
        }
        None
    }

    /// The program of a name. Only for constants: a program without an entry in the table does not compile.
    #[expect(clippy::panic, reason = "evaluated at compile time")]
    pub const fn named(name: &str) -> &'static Self {
        match Self::find(name) {
            Some(program) => program,
            None => panic!("the table has no program of this name"),
        }
    }

    /// The position of an argument, if the program reads it.
    pub const fn position(&self, wanted: Argument) -> Option<usize> {
        let mut index = 0;
        while index < ARGUMENTS {
            if self.arguments[index] as u8 == wanted as u8 {
                return Some(index);
            }
            index += 1;
        }
        None
    }

    /// The position of an argument. Only for constants: a program that reads more than the table says does
    /// not compile.
    #[expect(clippy::panic, reason = "evaluated at compile time")]
    pub const fn at(&self, wanted: Argument) -> usize {
        match self.position(wanted) {
            Some(position) => position,
            None => panic!("the table does not give the program this argument"),
        }
    }

    /// Where the requested bytes are. Only for constants, as [`at`](Self::at).
    pub const fn size(&self) -> Size {
        let size = self.at(Bytes);
        match self.position(Count) {
            Some(count) => Size::Product(count, size),
            None => Size::At(size),
        }
    }

    /// Which arguments the program reads.
    pub const fn reads(&self) -> [bool; ARGUMENTS] {
        let mut reads = [false; ARGUMENTS];
        let mut index = 0;
        while index < ARGUMENTS {
            reads[index] = self.arguments[index] as u8 != Unread as u8;
            index += 1;
        }
        reads
    }
}

const fn is_equal(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    if one.len() != other.len() {
        return false;
    }
    let mut index = 0;
    while index < one.len() {
        if one[index] != other[index] {
            return false;
        }
        index += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that every name stands for one program, and that no program reads two arguments as the same.
    #[test]
    fn names_and_roles_are_unique() {
        for (index, program) in ENTRY_PROGRAMS.iter().enumerate() {
            assert_eq!(EntryProgram::find(program.name), Some(program));
            let others = &ENTRY_PROGRAMS[index + 1..];
            assert!(others.iter().all(|other| other.name != program.name));
            for (position, argument) in program.arguments.into_iter().enumerate() {
                let is_first = program.position(argument) == Some(position);
                assert!(argument == Unread || is_first, "{}", program.name);
            }
            assert!(program.reads().contains(&true), "{}", program.name);
        }
        assert_eq!(EntryProgram::find("malloc_entr"), None);
    }

    /// Check the positions of some programs against the prototypes of the functions that they are for.
    #[test]
    fn positions_follow_the_prototypes() {
        let size = |name| EntryProgram::named(name).size();
        // calloc(count, size)
        assert_eq!(size("calloc_entry"), Size::Product(0, 1));
        // heap_aligned_calloc(heap, alignment, count, size)
        assert_eq!(size("heap_aligned_calloc_entry"), Size::Product(2, 3));
        // realloc(pointer, old_size, alignment, size), as Rust has it
        let rust = EntryProgram::named("rust_realloc_entry");
        assert_eq!((rust.at(Pointer), rust.size()), (0, Size::At(3)));
        assert_eq!(rust.reads(), [true, false, false, true]);
        // posix_memalign(result, alignment, size)
        let aligned = EntryProgram::named("posix_memalign_entry");
        assert_eq!((aligned.at(Pointer), aligned.size()), (0, Size::At(2)));
        // mmap(address, length, protection, flags)
        let map = EntryProgram::named("mmap_entry");
        assert_eq!((map.at(Flags), map.size()), (3, Size::At(1)));
        // heap_free(heap, pointer)
        let free = EntryProgram::named("heap_free_entry");
        assert_eq!(free.reads(), [false, true, false, false]);
        assert!(free.ignores_null && !rust.ignores_null);
    }
}
