//! The offsets of struct members in the running kernel, from its own type information (BTF).
//!
//! Part of `kernel`. The kernel program has no relocations. The agent looks offsets up here, and sets them as
//! constants before it loads the program.

use thiserror::Error;

/// Why an offset is not known.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum BtfError {
    /// The data is cut, or is not BTF of a known kind.
    #[error("the kernel's type information can't be read")]
    Malformed,
    /// No such struct, or no such member.
    #[error("the kernel's type information has no {0}.{1}")]
    NotFound(String, String),
}

const MAGIC: u16 = 0xeb9f;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_TYPEDEF: u32 = 8;

/// How deep unnamed structs may be nested.
const MAX_NESTING: u32 = 16;

/// Type information, with an index of the types.
pub struct Btf<'a> {
    types: &'a [u8],
    strings: &'a [u8],
    starts: Vec<usize>,
}

struct Type<'a> {
    name: u32,
    /// Size in bytes; for a typedef, the id of its type.
    size_or_id: u32,
    kind: u32,
    members: &'a [u8],
    has_bitfields: bool,
}

impl<'a> Btf<'a> {
    /// Indexes type information in this machine's byte order.
    pub fn parse(data: &'a [u8]) -> Result<Self, BtfError> {
        let malformed = BtfError::Malformed;
        if u16_at(data, 0) != Some(MAGIC) {
            return Err(malformed);
        }
        let field = |at| u32_at(data, at).map(|value| value as usize);
        let section = |offset: Option<usize>, len: Option<usize>| {
            let start = field(4)?.checked_add(offset?)?;
            data.get(start..start.checked_add(len?)?)
        };
        let types = section(field(8), field(12)).ok_or(BtfError::Malformed)?;
        let strings = section(field(16), field(20)).ok_or(BtfError::Malformed)?;
        let mut btf = Self {
            types,
            strings,
            starts: Vec::new(),
        };
        let mut at = 0;
        while at < types.len() {
            let (_, next) = btf.type_at(at).ok_or(BtfError::Malformed)?;
            btf.starts.push(at);
            at = next;
        }
        Ok(btf)
    }

    /// Offset in bytes of a member of a struct, also if it is in an unnamed struct inside it. A name with a
    /// dot is a member of a member.
    pub fn member_offset(&self, name: &str, member: &str) -> Result<u32, BtfError> {
        self.starts
            .iter()
            .filter_map(|at| Some(self.type_at(*at)?.0))
            .filter(|found| found.kind == KIND_STRUCT && self.string(found.name) == name.as_bytes())
            .find_map(|found| self.find_path(&found, member))
            .map(|bits| bits / 8)
            .ok_or_else(|| BtfError::NotFound(name.to_owned(), member.to_owned()))
    }

    fn find_path(&self, parent: &Type<'_>, path: &str) -> Option<u32> {
        let mut names = path.split('.');
        let (mut offset, mut id) = self.find_member(parent, names.next()?, 0)?;
        for name in names {
            let (inner, more) = self.find_member(&self.named(id)?, name, 0)?;
            offset = offset.checked_add(inner)?;
            id = more;
        }
        Some(offset)
    }

    /// The type of an id, with typedefs resolved.
    fn named(&self, mut id: u32) -> Option<Type<'a>> {
        for _ in 0..MAX_NESTING {
            let start = self.starts.get((id as usize).checked_sub(1)?)?;
            let (found, _) = self.type_at(*start)?;
            if found.kind != KIND_TYPEDEF {
                return Some(found);
            }
            id = found.size_or_id;
        }
        None
    }

    /// Offset in bits and type of a member.
    fn find_member(&self, parent: &Type<'_>, wanted: &str, nesting: u32) -> Option<(u32, u32)> {
        parent.members.chunks_exact(12).find_map(|entry| {
            let (name, id, offset) = (u32_at(entry, 0)?, u32_at(entry, 4)?, u32_at(entry, 8)?);
            let offset = if parent.has_bitfields {
                offset & 0xff_ffff
            } else {
                offset
            };
            let name = self.string(name);
            if name == wanted.as_bytes() {
                return Some((offset, id));
            }
            if !name.is_empty() || nesting == MAX_NESTING {
                return None;
            }
            let start = self.starts.get((id as usize).checked_sub(1)?)?;
            let (inner, _) = self.type_at(*start)?;
            if inner.kind != KIND_STRUCT && inner.kind != KIND_UNION {
                return None;
            }
            let (within, id) = self.find_member(&inner, wanted, nesting + 1)?;
            Some((offset.checked_add(within)?, id))
        })
    }

    /// The type at an offset, and the offset of the next one.
    fn type_at(&self, at: usize) -> Option<(Type<'a>, usize)> {
        let info = u32_at(self.types, at + 4)?;
        let (kind, count) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
        let extra = match kind {
            1 | 14 | 17 => 4,
            3 => 12,
            KIND_STRUCT | KIND_UNION | 15 | 19 => count * 12,
            6 | 13 => count * 8,
            0..=19 => 0,
            _ => return None,
        };
        let next = at + 12 + extra;
        let found = Type {
            name: u32_at(self.types, at)?,
            size_or_id: u32_at(self.types, at + 8)?,
            kind,
            members: self.types.get(at + 12..next)?,
            has_bitfields: info >> 31 != 0,
        };
        Some((found, next))
    }

    fn string(&self, offset: u32) -> &'a [u8] {
        let rest = self.strings.get(offset as usize..).unwrap_or_default();
        rest.split(|byte| *byte == 0).next().unwrap_or_default()
    }
}

fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    let bytes = data.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

fn u16_at(data: &[u8], at: usize) -> Option<u16> {
    let bytes = data.get(at..at.checked_add(2)?)?;
    Some(u16::from_ne_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A struct `s { int a; struct { int b:…; int c; }; }`.
    fn sample() -> Vec<u8> {
        let strings = b"\0s\0a\0c\0int\0";
        let mut types: Vec<u32> = vec![7, 1 << 24, 4, 32]; // [1] int
        types.extend([0, 4 << 24 | 1, 8, 5, 1, 32]); // [2] unnamed, `c` at bit 32
        types.extend([1, 1 << 31 | 4 << 24 | 2, 16, 3, 1, 0, 0, 2, 64]); // [3] s
        types.extend([7, 8 << 24, 3]); // [4] typedef of s
        types.extend([3, 4 << 24 | 1, 24, 1, 4, 64]); // [5] struct a { [4] s at bit 64; }
        let types: Vec<u8> = types.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let mut data = Vec::new();
        data.extend(MAGIC.to_ne_bytes());
        data.extend([1, 0]);
        for word in [
            24,
            0,
            types.len() as u32,
            types.len() as u32,
            strings.len() as u32,
        ] {
            data.extend(word.to_ne_bytes());
        }
        data.extend(types);
        data.extend(strings);
        data
    }

    /// Check that members are found, also in an unnamed struct.
    #[test]
    fn members_are_found() {
        let data = sample();
        let btf = Btf::parse(&data).unwrap();
        assert_eq!(btf.member_offset("s", "a"), Ok(0));
        assert_eq!(btf.member_offset("s", "c"), Ok(12));
        assert!(btf.member_offset("s", "d").is_err());
        assert_eq!(btf.member_offset("a", "s.c"), Ok(20));
        assert!(btf.member_offset("a", "s.d").is_err());
        assert!(btf.member_offset("a", "s.c.a").is_err());
        assert!(btf.member_offset("t", "a").is_err());
    }

    /// Check that the parser does not panic, wherever the data is cut.
    #[test]
    fn every_cut_is_survived() {
        let data = sample();
        for len in 0..data.len() {
            if let Ok(btf) = Btf::parse(&data[..len]) {
                let _ = btf.member_offset("s", "c");
            }
        }
    }

    /// Check that the search ends if an unnamed struct contains itself.
    #[test]
    fn a_loop_is_survived() {
        let mut data = sample();
        let at = 24 + 16 + 12 + 4; // type of the member of [2]
        data[at] = 2;
        let strings = data.len() - 11 + 5;
        data[strings] = 0; // its name becomes empty
        let btf = Btf::parse(&data).unwrap();
        assert!(btf.member_offset("s", "zz").is_err());
    }
}
