//! Which methods a position in compiled code belongs to: that of the code, and those that are inlined into it.
//!
//! Part of `hotspot`.

use super::layout::{Begin, Description, Layout, Methods};
use super::memory::Memory;
use super::packed::Packed;

/// Most bytes of a compiled method's table of positions.
const MAX_POSITIONS: u64 = 1 << 20;

/// Most methods at a position.
const MAX_INLINED: usize = 64;

/// Most bytes of a scope that are read: three numbers.
const SCOPE_BYTES: usize = 15;

/// A method at a position in compiled code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scope {
    /// Its address.
    pub(super) method: u64,
    /// The position in its bytecode; `None` if that is not known.
    pub(super) position: Option<u32>,
}

/// The methods at a return address in the code of a blob, given as its distance from the blob: innermost first. Empty if the address
/// is not known.
pub(super) fn scopes<M: Memory>(
    memory: &M,
    layout: &Layout,
    blob: u64,
    place: u32,
) -> Option<Vec<Scope>> {
    let code = begin(memory, blob, layout.blob_code)?;
    let place = blob.wrapping_add(place.into()).wrapping_sub(code);
    let found = Found::read(memory, layout, blob)?;
    let bytes = found.positions_end.wrapping_sub(found.positions);
    if bytes > MAX_POSITIONS {
        return None;
    }
    let table = memory.bytes(found.positions, bytes as usize)?;
    let Some(first) = scope_at(&table, layout.position_bytes.into(), place) else {
        return Some(Vec::new());
    };
    let mut scopes = Vec::new();
    let mut next = first;
    while next != 0 && scopes.len() < MAX_INLINED {
        let mut bytes = [0; SCOPE_BYTES];
        let read = memory.read(found.scopes.wrapping_add(next.into()), &mut bytes);
        let bytes = bytes.get(..read).unwrap_or_default();
        let mut packed = Packed::new(bytes, layout.packing);
        let (sender, method, position) = (packed.number()?, packed.number()?, packed.number()?);
        let index = u64::from(method.checked_sub(1)?);
        let method = memory.word(found.methods.wrapping_add(index * 8))?;
        // The number is one more than the position, which is -1 at the entry of a method.
        scopes.push(Scope {
            method,
            position: position.checked_sub(1),
        });
        next = sender;
    }
    Some(scopes)
}

/// The offset of the scope at a distance from the begin of the code. A call has an entry for its return address.
fn scope_at(table: &[u8], entry_bytes: usize, place: u64) -> Option<u32> {
    if entry_bytes < 8 {
        return None;
    }
    let half = |entry: &[u8], at: usize| {
        let bytes = entry.get(at..).and_then(|rest| rest.first_chunk::<4>());
        bytes.map(|bytes| u32::from_le_bytes(*bytes))
    };
    let mut entries = table.chunks_exact(entry_bytes);
    let entry = entries.find(|entry| half(entry, 0).map(u64::from) == Some(place))?;
    half(entry, 4)
}

/// Where a part of a blob begins.
fn begin<M: Memory>(memory: &M, blob: u64, part: Begin) -> Option<u64> {
    match part {
        Begin::Address(at) => memory.word(blob.wrapping_add(at.into())),
        Begin::Offset(at) => {
            let distance = memory.half(blob.wrapping_add(at.into()))?;
            Some(blob.wrapping_add(distance.into()))
        }
    }
}

/// Where the description of a blob's code is.
struct Found {
    positions: u64,
    positions_end: u64,
    scopes: u64,
    methods: u64,
}

impl Found {
    fn read<M: Memory>(memory: &M, layout: &Layout, blob: u64) -> Option<Self> {
        let at = |offset: u16| blob.wrapping_add(offset.into());
        let half = |offset: u16| Some(u64::from(memory.half(at(offset))?));
        Some(match layout.description {
            Description::InBlob {
                positions,
                positions_end,
                scopes,
                methods,
            } => Self {
                positions: blob.wrapping_add(half(positions)?),
                positions_end: blob.wrapping_add(half(positions_end)?),
                scopes: begin(memory, blob, scopes)?,
                methods: blob.wrapping_add(half(methods)?),
            },
            Description::Apart {
                memory: apart,
                positions,
                scopes,
                methods,
            } => {
                let apart = memory.word(at(apart))?;
                let scopes = apart.wrapping_add(half(scopes)?);
                let methods = match methods {
                    Methods::InData { data, methods } => {
                        let data = blob.wrapping_add(half(data)?);
                        data.wrapping_add(memory.short(at(methods))?.into())
                    }
                    Methods::Apart { memory: of, before } => {
                        memory.word(at(of))?.wrapping_add(half(before)?)
                    }
                };
                Self {
                    positions: apart.wrapping_add(half(positions)?),
                    positions_end: scopes,
                    scopes,
                    methods,
                }
            }
        })
    }
}
