//! The owners of addresses for people.
//!
//! Stage: output. Shows what was found, and says what can't be known.

use std::io::{self, Write};

use super::page::{Page, ReportOptions};
use super::sections::says;
use super::stack::INDENT;
use super::{header, paragraph, site_type, stack};
use crate::join::{BornBlock, HowFreed, StackId};
use crate::output::ends::signal_name;
use crate::output::error::OutputError;
use crate::output::image::is_of;
use crate::output::report_input::ReportInput;
use crate::output::site_types::found_by;
use crate::output::who::{AskedAddress, CoreFacts, Owned, Owner, Place, Who};
use crate::profile::{PastBlock, ProcessBlocks, Way};
use crate::text::{count, counted, escape, lifetime};

/// Bytes of memory in a line.
const ROW: usize = 16;

/// A block that is this far from an address in no block says nothing about it.
const FAR: u64 = 1 << 20;

/// Writes the answer.
pub fn write_who(
    input: &ReportInput<'_>,
    who: &Who<'_>,
    options: &ReportOptions,
    out: &mut dyn Write,
) -> Result<(), OutputError> {
    let page = &mut Page::new(input, options, out);
    header::write(page)?;
    if let Some(core) = &who.core {
        of_core(page, core)?;
    }
    for owned in &who.owned {
        of_address(page, owned, who.blocks.processes.len() > 1)?;
    }
    limits(page, who)?;
    Ok(())
}

fn of_core(page: &mut Page<'_, '_>, core: &CoreFacts) -> io::Result<()> {
    let process = format!("core file of {} ({})", escape(&core.command), core.pid);
    let mut words = match core.signal {
        0 => format!("{process}, thread {}", core.thread),
        signal => format!(
            "{process}: thread {} got {}",
            core.thread,
            signal_name(signal)
        ),
    };
    if let Some(fault) = core.fault {
        words.push_str(&format!(" at address {fault:#x}"));
        if fault == 0 {
            words.push_str(", or at one that no mapping can have");
        }
    }
    for line in paragraph::lines("", &words, page.width) {
        writeln!(page.out, "{}", page.style.bold(&line))?;
    }
    if !core.others.is_empty() {
        let words = format!(
            "without the address of a recorded block: {}",
            core.others.join(", ")
        );
        for line in paragraph::lines("", &words, page.width) {
            writeln!(page.out, "{}", page.style.dim(&line))?;
        }
    }
    writeln!(page.out)
}

fn of_address(page: &mut Page<'_, '_>, owned: &Owned<'_>, several: bool) -> io::Result<()> {
    let asked = owned.asked;
    let address = match asked.name.as_str() {
        "" => format!("{:#x}", asked.address),
        name => format!("{:#x} ({})", asked.address, escape(name)),
    };
    if owned.owners.is_empty() {
        let words = match owned.others {
            0 => "no process with recorded blocks".to_owned(),
            others => {
                let others = count(others as u64);
                match owned.pid {
                    Some(pid) => {
                        format!("in no recorded block of {others} programs of process {pid}")
                    }
                    None => format!("in no recorded block of {others} processes"),
                }
            }
        };
        heading(page, &address, &words)?;
        place(page, asked, true)?;
    }
    for owner in &owned.owners {
        let mut words = title(owner, asked.address);
        if several {
            let image = &owner.process.owner;
            words.push_str(&format!(" of {} ({})", escape(&image.command), image.pid));
        }
        heading(page, &address, &words)?;
        place(page, asked, owner.is_last)?;
        of_owner(page, owner, asked.address)?;
    }
    memory(page, asked.address, &asked.memory)
}

/// What is mapped at an address. Another program of the process may have been there before.
fn place(page: &mut Page<'_, '_>, asked: &AskedAddress, is_last: bool) -> io::Result<()> {
    let when = match is_last {
        true => "",
        false => " by a later program of this process",
    };
    match &asked.place {
        Place::Unknown => Ok(()),
        Place::Unmapped => line(page, &format!("nothing is mapped there{when}")),
        Place::Mapped(what) => line(page, &format!("mapped there{when}: {}", escape(what))),
    }
}

/// An address with what it is, on a line of its own if there is no room beside it.
fn heading(page: &mut Page<'_, '_>, address: &str, words: &str) -> io::Result<()> {
    let fits = address.chars().count() + 2 + words.chars().count() <= page.width;
    let address = page.style.number(address);
    if fits {
        return writeln!(page.out, "{address}  {}", page.style.bold(words));
    }
    writeln!(page.out, "{address}")?;
    for line in paragraph::lines(&" ".repeat(INDENT), words, page.width) {
        writeln!(page.out, "{}", page.style.bold(&line))?;
    }
    Ok(())
}

/// What an address is: `16 bytes into a live block of 48 bytes`.
fn title(owner: &Owner<'_>, address: u64) -> String {
    let inside = |block: &BornBlock| inside(block, address);
    match (owner.holder, owner.freed.first()) {
        (Some(block), _) => {
            let kind = if owner.process.ended_ns.is_some() {
                "block left at exit"
            } else {
                "live block"
            };
            format!("{} a {kind} of {}", inside(block), bytes(block.size))
        }
        (None, Some(past)) => format!(
            "{} a freed block of {}",
            inside(&past.block),
            bytes(past.block.size)
        ),
        (None, None) => "in no recorded block".to_owned(),
    }
}

/// Where an address is in a block: `the start of`, `16 bytes into`.
fn inside(block: &BornBlock, address: u64) -> String {
    match address.saturating_sub(block.address) {
        0 => "the start of".to_owned(),
        offset => format!("{} into", bytes(offset)),
    }
}

fn of_owner(page: &mut Page<'_, '_>, owner: &Owner<'_>, address: u64) -> io::Result<()> {
    let mut earlier = owner.freed.as_slice();
    match (owner.holder, owner.freed.split_first()) {
        (Some(block), _) => {
            line(page, &from_to(block))?;
            line(page, &birth(block))?;
            block_type(page, block)?;
            class(page, owner.process, block)?;
            frames(page, block.stack)?;
        }
        (None, Some((last, rest))) => {
            line(page, &from_to(&last.block))?;
            line(
                page,
                &format!("{}, {}", birth(&last.block), end(last, owner.process)),
            )?;
            block_type(page, &last.block)?;
            class(page, owner.process, &last.block)?;
            frames(page, last.block.stack)?;
            earlier = rest;
        }
        (None, None) => {}
    }
    history(page, owner, earlier, address)?;
    neighbours(page, owner, address)
}

/// The blocks that were at the address before the last one.
fn history(
    page: &mut Page<'_, '_>,
    owner: &Owner<'_>,
    earlier: &[&PastBlock],
    address: u64,
) -> io::Result<()> {
    if earlier.is_empty() {
        return Ok(());
    }
    section(page, "before it, at this address:")?;
    for (rank, past) in earlier.iter().take(page.options.top).enumerate() {
        let block = &past.block;
        let words = format!(
            "{} at {:#x}{}; the address is {} it",
            bytes(block.size),
            block.address,
            of_type(page.input, owner.process, block),
            inside(block, address)
        );
        let words = page.style.bold(&words);
        writeln!(page.out, "{:>3}. {words}", rank + 1)?;
        let words = format!("{}, {}", birth(block), end(past, owner.process));
        line(page, &words)?;
        frames(page, block.stack)?;
    }
    let shown = earlier.len().min(page.options.top);
    let more = (earlier.len() - shown) as u64 + owner.more_freed;
    if more > 0 {
        let advice = match earlier.len() > shown {
            true => format!("; --top {} shows more", earlier.len()),
            false => String::new(),
        };
        says(
            page,
            &format!("     {} earlier blocks{advice}", count(more)),
        )?;
    }
    Ok(())
}

fn neighbours(page: &mut Page<'_, '_>, owner: &Owner<'_>, address: u64) -> io::Result<()> {
    let is_near = |it: &&BornBlock| {
        let end = it.address.saturating_add(it.size);
        let gap = it.address.saturating_sub(address);
        owner.is_known() || gap.max(address.saturating_sub(end)) < FAR
    };
    let [before, behind] = owner.neighbours.map(|it| it.filter(is_near));
    if before.is_none() && behind.is_none() {
        return Ok(());
    }
    section(page, "neighbours that were not freed:")?;
    let (this, first, last) = match owner.holder {
        Some(block) => (
            "this block",
            block.address,
            block.address.saturating_add(block.size),
        ),
        None => ("this address", address, address),
    };
    if let Some(block) = before {
        let end = block.address.saturating_add(block.size);
        let distance = match first.checked_sub(end) {
            Some(0) => format!("ends at {this}"),
            Some(gap) => format!("ends {} before {this}", bytes(gap)),
            None => format!("reaches into {this}"),
        };
        neighbour(page, owner, block, &distance)?;
    }
    if let Some(block) = behind {
        let distance = match block.address.checked_sub(last) {
            Some(0) => format!("begins where {this} ends"),
            Some(gap) => format!("begins {} behind {this}", bytes(gap)),
            None => format!("begins inside {this}"),
        };
        neighbour(page, owner, block, &distance)?;
    }
    // Whole stacks end with an empty line.
    match shows_stacks(page, owner) {
        true => Ok(()),
        false => writeln!(page.out),
    }
}

/// Whether the whole stacks of neighbours are shown: if that is asked for, or if no block holds the address.
fn shows_stacks(page: &Page<'_, '_>, owner: &Owner<'_>) -> bool {
    page.options.details || !owner.is_known()
}

/// A neighbour, with its function or its whole stack.
fn neighbour(
    page: &mut Page<'_, '_>,
    owner: &Owner<'_>,
    block: &BornBlock,
    distance: &str,
) -> io::Result<()> {
    let words = format!(
        "{} at {:#x} {distance}{}; {}",
        bytes(block.size),
        block.address,
        of_type(page.input, owner.process, block),
        birth(block)
    );
    line(page, &words)?;
    if shows_stacks(page, owner) {
        return frames(page, block.stack);
    }
    let room = page.width.saturating_sub(INDENT + 2);
    let title = stack::title(page.input, block.stack, room, page.style);
    writeln!(page.out, "       {title}")
}

/// The bytes at an address, as a debugger shows them.
fn memory(page: &mut Page<'_, '_>, address: u64, memory: &[u8]) -> io::Result<()> {
    if memory.is_empty() {
        return Ok(());
    }
    section(page, "memory there, when the core file was written:")?;
    for (row, bytes) in memory.chunks(ROW).enumerate() {
        let digits = bytes.iter().map(|byte| format!(" {byte:02x}"));
        let digits: String = digits.collect();
        let letters = bytes.iter().map(|byte| match byte {
            b' '..=b'~' => char::from(*byte),
            _ => '.',
        });
        let letters: String = letters.collect();
        let at = address.saturating_add((row * ROW) as u64);
        writeln!(page.out, "     {at:#x} {digits:<48}  {letters}")?;
    }
    writeln!(page.out)
}

/// What the answer can't tell.
fn limits(page: &mut Page<'_, '_>, who: &Who<'_>) -> io::Result<()> {
    let profile = page.input.profile;
    let is_unknown = who.owned.iter().any(|it| !it.is_known());
    let at = moment(who.blocks.at_ns);
    let mut words = vec![format!("Blocks are those of {at} into the run.")];
    if profile.info.is_partial() {
        words.push(format!(
            "Only a part of all blocks was recorded ({}): other blocks may be or have been at these addresses and between them.",
            profile.chosen()
        ));
    } else if is_unknown {
        words.push(
            "An address in no recorded block can be memory from before tracing began, of an allocator that was not probed, of a \
             mapping or a stack, or between blocks."
                .to_owned(),
        );
    }
    if !who.blocks.has_all {
        words.push(
            "Blocks that were freed before the next update are not in the file; `heaptrace record --events` keeps them."
                .to_owned(),
        );
    }
    if let Some(began) = who.blocks.began_ns {
        words.push(format!(
            "This file begins {} into the run with the blocks that were live then: those that were freed before, and processes that had \
             ended, are in the files before it.",
            moment(began)
        ));
    }
    let mut freed = who.owned.iter().flat_map(|it| &it.owners);
    if freed.any(|it| !it.freed.is_empty()) {
        words.push("Which code freed a block is not recorded.".to_owned());
    } else if who.core.as_ref().is_some_and(|it| !it.others.is_empty()) {
        words.push(
            "No register points to a freed block. The pointer by which the program used one may be in memory alone: gdb shows the variables of \
             each frame (`bt full`), and `heaptrace who --core FILE ADDR` who owns their addresses."
                .to_owned(),
        );
    }
    let is_paused = |owner: &&Owner<'_>| {
        let image = &owner.process.owner;
        let mut records = profile.processes.iter().filter(|it| is_of(it, image));
        records.any(|it| it.duty_cycle.is_some())
    };
    let mut owners = who.owned.iter().flat_map(|it| &it.owners);
    if let Some(paused) = owners.find(is_paused) {
        words.push(format!(
            "{} was paused at times, and its frees in these times were not seen: a block that is called live may be freed.",
            escape(&paused.process.owner.command)
        ));
    }
    says(page, &words.join(" "))
}

/// `block 0x1000 to 0x1030`.
fn from_to(block: &BornBlock) -> String {
    let end = block.address.saturating_add(block.size);
    format!("block {:#x} to {end:#x}", block.address)
}

/// The type of a block, if it is known: `, of type Session`.
fn of_type(input: &ReportInput<'_>, process: &ProcessBlocks, block: &BornBlock) -> String {
    let known = input.symbols.types.of(block.stack);
    if let Some(class) = process.class_of(block).filter(|_| known.is_none()) {
        return format!(", begins with a {}", escape(class));
    }
    known.map_or_else(String::new, |it| format!(", of type {}", escape(&it.name)))
}

/// `allocated 0.012 s into the run by thread 7`.
fn birth(block: &BornBlock) -> String {
    let verb = if block.is_reallocated {
        "reallocated"
    } else {
        "allocated"
    };
    format!(
        "{verb} {} into the run by thread {}",
        moment(block.born_ns),
        block.thread
    )
}

/// `freed 3.0 ms later by thread 7, 0.300 s before the process ended`.
fn end(past: &PastBlock, process: &ProcessBlocks) -> String {
    let end = &past.end;
    let verb = match end.how {
        HowFreed::Freed => "freed",
        HowFreed::Reallocated => "replaced by a reallocation",
        HowFreed::Unseen => return "freed at a time that was not seen".to_owned(),
    };
    let lived = lifetime(end.freed_ns.saturating_sub(past.block.born_ns));
    let by = end.thread;
    let left = process
        .ended_ns
        .map(|ended| lifetime(ended.saturating_sub(end.freed_ns)));
    let left = left.map_or_else(String::new, |left| {
        format!(", {left} before the process ended")
    });
    format!("{verb} {lived} later by thread {by}{left}")
}

/// A time of the run, as exact as snapshots are listed.
fn moment(ns: u64) -> String {
    format!("{:.3} s", ns as f64 / 1e9)
}

fn bytes(number: u64) -> String {
    counted(number, "byte", "bytes")
}

fn section(page: &mut Page<'_, '_>, words: &str) -> io::Result<()> {
    writeln!(page.out, "     {}", page.style.bold(words))
}

fn line(page: &mut Page<'_, '_>, words: &str) -> io::Result<()> {
    for line in paragraph::lines(&" ".repeat(INDENT), words, page.width) {
        writeln!(page.out, "{line}")?;
    }
    Ok(())
}

/// What the block is, if that is known.
fn block_type(page: &mut Page<'_, '_>, block: &BornBlock) -> io::Result<()> {
    let room = page.width.saturating_sub(INDENT);
    match site_type::of_block(page.input, block.stack, block.size, room) {
        Some(words) => line(page, &words),
        None => Ok(()),
    }
}

/// The class of the object that the block begins with, unless its type says the same.
fn class(page: &mut Page<'_, '_>, process: &ProcessBlocks, block: &BornBlock) -> io::Result<()> {
    let by_stack = page.input.symbols.types.of(block.stack);
    let Some(class) = process.class_of(block) else {
        return Ok(());
    };
    if by_stack.is_some_and(|it| it.name == class) {
        return Ok(());
    }
    let words = format!(
        "begins with an object of class {} ({})",
        escape(class),
        found_by(Way::Vtable)
    );
    line(page, &words)
}

fn frames(page: &mut Page<'_, '_>, stack: StackId) -> io::Result<()> {
    for line in stack::lines(page.input, stack, page.width.saturating_sub(2), page.style) {
        writeln!(page.out, "       {line}")?;
    }
    writeln!(page.out)
}
