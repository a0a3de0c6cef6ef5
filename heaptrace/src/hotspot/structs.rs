//! The lists by which the virtual machine describes its structures to debuggers.
//!
//! Part of `hotspot`. Knows the form of the lists, which has not changed since Java 7, and no structure.

use std::collections::HashMap;

use super::memory::Memory;

/// Most entries of a list. Java 17 has 1,556 in both.
const MAX_ENTRIES: u64 = 8192;

/// Longest name of interest.
const NAME_BYTES: usize = 64;

/// Bytes of an entry of each list.
const STRUCT_BYTES: usize = 48;
const TYPE_BYTES: usize = 40;

/// A member of a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Member {
    /// At this offset.
    At(u64),
    /// A static one, at this address.
    Static(u64),
}

/// The members and types of interest.
#[derive(Debug, Default)]
pub(super) struct Structs {
    members: HashMap<(&'static str, &'static str), Member>,
    sizes: HashMap<&'static str, u64>,
}

impl Structs {
    /// Reads the lists, which begin at these addresses. Keeps the members and sizes of these types.
    pub(super) fn read<M: Memory>(
        memory: &M,
        structs: u64,
        types: u64,
        members: &[(&'static str, &'static [&'static str])],
        sizes: &[&'static str],
    ) -> Self {
        let mut found = Self::default();
        // The names of types are the same strings in many entries.
        let mut known: HashMap<u64, Option<usize>> = HashMap::new();
        for_each_entry::<STRUCT_BYTES, _>(memory, structs, |entry| {
            let of = *known.entry(word(entry, 0)).or_insert_with(|| {
                let name = memory.text(word(entry, 0), NAME_BYTES)?;
                members.iter().position(|(type_name, _)| *type_name == name)
            });
            let Some((type_name, fields)) = of.and_then(|of| members.get(of)) else {
                return;
            };
            let name = memory.text(word(entry, 8), NAME_BYTES);
            let Some(field) = fields.iter().find(|it| Some(**it) == name.as_deref()) else {
                return;
            };
            let is_static = word(entry, 24) as u32 != 0;
            let member = match is_static {
                true => Member::Static(word(entry, 40)),
                false => Member::At(word(entry, 32)),
            };
            found.members.insert((type_name, field), member);
        });
        for_each_entry::<TYPE_BYTES, _>(memory, types, |entry| {
            let name = memory.text(word(entry, 0), NAME_BYTES);
            if let Some(wanted) = sizes.iter().find(|it| Some(**it) == name.as_deref()) {
                found.sizes.insert(wanted, word(entry, 32));
            }
        });
        found
    }

    /// The offset of a member.
    pub(super) fn offset(&self, of: &'static str, member: &'static str) -> Option<u16> {
        match self.members.get(&(of, member)) {
            // No structure of interest is larger.
            Some(Member::At(offset)) if *offset < 4096 => u16::try_from(*offset).ok(),
            _ => None,
        }
    }

    /// The address of a static member.
    pub(super) fn address(&self, of: &'static str, member: &'static str) -> Option<u64> {
        match self.members.get(&(of, member)) {
            Some(Member::Static(address)) => Some(*address),
            _ => None,
        }
    }

    /// The size of a type.
    pub(super) fn size(&self, of: &'static str) -> Option<u16> {
        let size = self.sizes.get(of).filter(|size| **size < 4096)?;
        u16::try_from(*size).ok()
    }
}

/// Calls a function with each entry of a list, up to the one without a name.
fn for_each_entry<const BYTES: usize, M: Memory>(
    memory: &M,
    list: u64,
    mut found: impl FnMut(&[u8; BYTES]),
) {
    const AT_ONCE: usize = 64;
    let mut address = list;
    let mut buffer = vec![0; BYTES * AT_ONCE];
    for _ in 0..MAX_ENTRIES / AT_ONCE as u64 {
        let read = memory.read(address, &mut buffer);
        let entries = buffer.get(..read).unwrap_or_default().as_chunks().0;
        for entry in entries {
            if word(entry, 0) == 0 {
                return;
            }
            found(entry);
        }
        if entries.len() < AT_ONCE {
            return;
        }
        address = address.wrapping_add(buffer.len() as u64);
    }
}

/// The word at an offset of an entry; 0 beyond it.
fn word(entry: &[u8], at: usize) -> u64 {
    let bytes = entry.get(at..).and_then(|rest| rest.first_chunk::<8>());
    bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
}
