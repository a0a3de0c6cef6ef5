//! What a Java method is called, and where it stands in its source.
//!
//! Part of `hotspot`.

use super::layout::{Layout, SourceFile};
use super::lines;
use super::memory::Memory;

/// Longest name of a class, a method or a file, in bytes.
const MAX_NAME: u16 = 1 << 10;

/// Most bytes of a table of lines.
const MAX_LINES: usize = 64 << 10;

/// The bit of the flags that tells that there is a table of lines.
const HAS_LINES: u16 = 1;

/// A method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Method {
    /// Its class and its name.
    pub(super) name: String,
    /// The name of its class's source file; empty if that is not known.
    pub(super) file: String,
    lines: Vec<u8>,
}

impl Method {
    /// Reads a method, of which `constant` is the part that does not change.
    pub(super) fn read<M: Memory>(memory: &M, layout: &Layout, constant: u64) -> Option<Self> {
        let at = |base: u64, offset: u16| base.wrapping_add(offset.into());
        let pool = memory.word(at(constant, layout.constant_pool))?;
        let name = memory.short(at(constant, layout.constant_name))?;
        let class = memory.word(at(pool, layout.pool_holder))?;
        let class_name = memory.word(at(class, layout.class_name))?;
        let class_name = class_of(&symbol(memory, layout, class_name)?);
        let name = pooled(memory, layout, pool, name)?;
        let source = match layout.source_file {
            SourceFile::InPool(offset) => memory.short(at(pool, offset)),
            SourceFile::InClass(offset) => memory.short(at(class, offset)),
        };
        let source = source.filter(|index| *index != 0);
        let file = source.and_then(|index| pooled(memory, layout, pool, index));
        let flags = memory.short(at(constant, layout.constant_flags))?;
        let mut found = Vec::new();
        if flags & HAS_LINES != 0 {
            let code_size = memory.short(at(constant, layout.constant_code_size))?;
            let begin = at(at(constant, layout.constant_bytes), code_size);
            found = table(memory, begin);
        }
        Some(Self {
            name: format!("{class_name}.{name}"),
            file: file.unwrap_or_default(),
            lines: found,
        })
    }

    /// The line of a position in the bytecode; 0 if that is not known.
    pub(super) fn line(&self, layout: &Layout, position: u32) -> u32 {
        lines::line(&self.lines, layout.packing, position)
    }

    /// The bytes that it uses beside its own size.
    pub(super) fn bytes(&self) -> usize {
        self.name.len() + self.file.len() + self.lines.len()
    }
}

/// Reads a table of lines, whose length is not stated: its last byte is 0. In the tables of old versions, so are some others; what
/// stands behind the end does no harm.
fn table<M: Memory>(memory: &M, begin: u64) -> Vec<u8> {
    const PIECE: usize = 256;
    let mut found = Vec::new();
    while found.len() < MAX_LINES {
        let mut piece = [0; PIECE];
        let address = begin.wrapping_add(found.len() as u64);
        let read = memory.read(address, &mut piece);
        let piece = piece.get(..read).unwrap_or_default();
        found.extend_from_slice(piece);
        if piece.contains(&0) || read < PIECE {
            break;
        }
    }
    found
}

/// A string of a pool of constants.
fn pooled<M: Memory>(memory: &M, layout: &Layout, pool: u64, index: u16) -> Option<String> {
    let entries = pool.wrapping_add(layout.pool_bytes.into());
    let entry = memory.word(entries.wrapping_add(u64::from(index) * 8))?;
    symbol(memory, layout, entry)
}

/// A symbol: a string that is kept once.
fn symbol<M: Memory>(memory: &M, layout: &Layout, symbol: u64) -> Option<String> {
    let length = memory.short(symbol.wrapping_add(layout.symbol_length.into()))?;
    let body = symbol.wrapping_add(layout.symbol_body.into());
    let bytes = memory.bytes(body, length.min(MAX_NAME).into())?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The name of a class as source code has it. The name of a hidden class has a number that is another one in each run.
fn class_of(internal: &str) -> String {
    let plain = internal
        .split_once("+0x")
        .map_or(internal, |(name, _)| name);
    let is_hidden = plain.len() < internal.len();
    // Up to Java 14, the class of a lambda has a number alone.
    let is_number = |rest: &str| rest.bytes().all(|byte| byte.is_ascii_digit());
    let name = match plain.split_once("$$Lambda$") {
        Some((outer, rest)) if is_hidden || is_number(rest) => format!("{outer}$$Lambda"),
        _ => plain.to_owned(),
    };
    name.replace('/', ".")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that classes have the names of their source, and that those of hidden classes are the same in each run.
    #[test]
    fn classes_have_names() {
        for (internal, name) in [
            ("java/lang/Thread", "java.lang.Thread"),
            ("Main$Inner", "Main$Inner"),
            ("a/Main$$Lambda$14+0x0000000800c03000", "a.Main$$Lambda"),
            ("a/Main$$Lambda+0x0000000800c03000", "a.Main$$Lambda"),
            ("a/Main$$Lambda$14", "a.Main$$Lambda"),
            ("a/Main$$Lambda$Of", "a.Main$$Lambda$Of"),
            (
                "java/lang/invoke/LambdaForm$MH+0x0000000800c00400",
                "java.lang.invoke.LambdaForm$MH",
            ),
        ] {
            assert_eq!(class_of(internal), name);
        }
    }
}
