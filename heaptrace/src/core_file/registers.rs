//! The registers of a thread, by their names.
//!
//! Part of `core_file`.

/// The registers of x86-64, in the order of a core file.
const NAMES: [&str; 27] = [
    "r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx", "rdx", "rsi",
    "rdi", "orig_rax", "rip", "cs", "eflags", "rsp", "ss", "fs_base", "gs_base", "ds", "es", "fs",
    "gs",
];

/// Those that can hold an address of data, the ones that arguments and results are in first.
const HOLDERS: [&str; 16] = [
    "rdi", "rsi", "rdx", "rcx", "r8", "r9", "rax", "rbx", "rbp", "r10", "r11", "r12", "r13", "r14",
    "r15", "rsp",
];

/// The names of the registers that can hold an address of data.
pub fn register_names() -> impl Iterator<Item = &'static str> {
    HOLDERS.into_iter()
}

/// The registers of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registers([u64; NAMES.len()]);

impl Registers {
    /// Out of the bytes of a core file; `None` if there are too few.
    pub(super) fn new(bytes: &[u8]) -> Option<Self> {
        let mut registers = [0; NAMES.len()];
        let (words, _) = bytes.as_chunks::<8>();
        let words = words.get(..registers.len())?;
        for (register, word) in registers.iter_mut().zip(words) {
            *register = u64::from_le_bytes(*word);
        }
        Some(Self(registers))
    }

    /// The value of a register, by its name.
    pub fn named(&self, name: &str) -> Option<u64> {
        let at = NAMES.iter().position(|it| *it == name)?;
        self.0.get(at).copied()
    }

    /// The stack pointer.
    pub(super) fn stack_pointer(&self) -> u64 {
        self.named("rsp").unwrap_or_default()
    }
}
