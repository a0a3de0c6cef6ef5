//! The owners of addresses for programs: JSON, schema 1.
//!
//! Stage: output. Field names and their order are stable. Fields can be added, but never changed. Addresses are hexadecimal text,
//! because many JSON readers can't represent 64-bit numbers.

use std::io::Write;

use serde::Serialize;

use super::find::{CoreFacts, Owned, Owner, Place, Who};
use crate::join::{BornBlock, HowFreed};
use crate::output::error::OutputError;
use crate::output::json::{BlockType, Head, Remarks, Stack};
use crate::output::json_escaping::write_line;
use crate::output::report_input::ReportInput;
use crate::profile::{PastBlock, Way};

/// Writes the answer as one line.
pub fn write_who_json(
    input: &ReportInput<'_>,
    who: &Who<'_>,
    out: &mut dyn Write,
) -> Result<(), OutputError> {
    let report = Report {
        head: Head::of(input),
        remarks: Remarks::of(input),
        at_ns: who.blocks.at_ns,
        events: who.blocks.has_all,
        began_ns: who.blocks.began_ns,
        partial: input.profile.info.is_partial(),
        core: who.core.as_ref().map(Core::new),
        addresses: who.owned.iter().map(|it| Asked::new(input, it)).collect(),
    };
    Ok(write_line(&report, out)?)
}

#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    head: Head<'a>,
    #[serde(flatten)]
    remarks: Remarks<'a>,
    /// The time of the run that live blocks are of.
    at_ns: u64,
    /// Whether blocks are known that were freed before the next update.
    events: bool,
    /// When the file began; absent if that was with the run. Blocks that were freed before are not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    began_ns: Option<u64>,
    /// Whether some allocations were left out on purpose: then no block at an address means little.
    partial: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    core: Option<Core<'a>>,
    addresses: Vec<Asked<'a>>,
}

#[derive(Serialize)]
struct Core<'a> {
    pid: u32,
    command: &'a str,
    thread: u32,
    signal: u32,
    fault: Option<String>,
    other_registers: &'a [String],
}

impl<'a> Core<'a> {
    fn new(core: &'a CoreFacts) -> Self {
        Self {
            pid: core.pid,
            command: &core.command,
            thread: core.thread,
            signal: core.signal,
            fault: core.fault.map(hexadecimal),
            other_registers: &core.others,
        }
    }
}

#[derive(Serialize)]
struct Asked<'a> {
    address: String,
    name: &'a str,
    /// What is mapped there; absent if that is unknown, empty if nothing is.
    #[serde(skip_serializing_if = "Option::is_none")]
    mapping: Option<&'a str>,
    /// The bytes there, two digits each.
    #[serde(skip_serializing_if = "String::is_empty")]
    memory: String,
    /// Each process in which a recorded block held the address.
    processes: Vec<InProcess<'a>>,
}

impl<'a> Asked<'a> {
    fn new(input: &'a ReportInput<'a>, owned: &Owned<'a>) -> Self {
        let asked = owned.asked;
        let bytes = asked.memory.iter();
        Self {
            address: hexadecimal(asked.address),
            name: &asked.name,
            mapping: match &asked.place {
                Place::Unknown => None,
                Place::Unmapped => Some(""),
                Place::Mapped(what) => Some(what),
            },
            memory: bytes.map(|byte| format!("{byte:02x}")).collect(),
            processes: owned
                .owners
                .iter()
                .map(|owner| InProcess::new(input, owner, asked.address))
                .collect(),
        }
    }
}

#[derive(Serialize)]
struct InProcess<'a> {
    pid: u32,
    command: &'a str,
    /// When it ended; then its blocks are those that it had not freed.
    ended_ns: Option<u64>,
    /// The block that holds the address.
    block: Option<Block<'a>>,
    /// The freed blocks that held it, the last one first.
    freed: Vec<Freed<'a>>,
    /// How many more there were before them.
    more_freed: u64,
    before: Option<Block<'a>>,
    behind: Option<Block<'a>>,
}

impl<'a> InProcess<'a> {
    fn new(input: &'a ReportInput<'a>, owner: &Owner<'a>, address: u64) -> Self {
        let process = owner.process;
        let block = |block: &BornBlock| Block::new(input, block, process.class_of(block), address);
        let [before, behind] = owner.neighbours;
        Self {
            pid: owner.process.owner.pid,
            command: &owner.process.owner.command,
            ended_ns: owner.process.ended_ns,
            block: owner.holder.map(block),
            freed: owner
                .freed
                .iter()
                .map(|it| Freed::new(block(&it.block), it))
                .collect(),
            more_freed: owner.more_freed,
            before: before.map(block),
            behind: behind.map(block),
        }
    }
}

#[derive(Serialize)]
struct Block<'a> {
    address: String,
    size: u64,
    /// How far the address in question is behind the first byte of the block; negative if it is before it.
    offset: i64,
    born_ns: u64,
    thread: u32,
    reallocated: bool,
    /// The mean bytes between samples under which it was sampled; 0 if every allocation was recorded.
    mean_bytes: u64,
    stack: Stack<'a>,
    /// Absent where it is unknown.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    block_type: Option<BlockType<'a>>,
    /// The class of the object that the block begins with, by its memory. Absent where it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<Class<'a>>,
}

#[derive(Serialize)]
struct Class<'a> {
    name: &'a str,
    way: &'static str,
}

impl<'a> Block<'a> {
    fn new(
        input: &'a ReportInput<'a>,
        block: &BornBlock,
        class: Option<&'a str>,
        address: u64,
    ) -> Self {
        Self {
            address: hexadecimal(block.address),
            size: block.size,
            offset: address.wrapping_sub(block.address).cast_signed(),
            born_ns: block.born_ns,
            thread: block.thread,
            reallocated: block.is_reallocated,
            mean_bytes: block.mean,
            stack: Stack(input, block.stack),
            block_type: BlockType::of_block(input, block.stack, block.size),
            class: class.map(|name| Class {
                name,
                way: Way::Vtable.name(),
            }),
        }
    }
}

#[derive(Serialize)]
struct Freed<'a> {
    #[serde(flatten)]
    block: Block<'a>,
    /// `freed`, `reallocated`, or `unseen`: then neither time nor thread is known.
    how: &'static str,
    freed_ns: Option<u64>,
    freed_by_thread: Option<u32>,
}

impl<'a> Freed<'a> {
    fn new(block: Block<'a>, past: &PastBlock) -> Self {
        let (how, is_seen) = match past.end.how {
            HowFreed::Freed => ("freed", true),
            HowFreed::Reallocated => ("reallocated", true),
            HowFreed::Unseen => ("unseen", false),
        };
        Self {
            block,
            how,
            freed_ns: is_seen.then_some(past.end.freed_ns),
            freed_by_thread: is_seen.then_some(past.end.thread),
        }
    }
}

fn hexadecimal(address: u64) -> String {
    format!("{address:#x}")
}
