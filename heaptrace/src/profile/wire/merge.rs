//! Decodes updates and symbols record by record, and charges each record to the budget before it is kept.
//!
//! Stage: profile. Knows nothing of chunks.

use prost::Message;

use super::blocks::BlocksMessage;
use super::changes::Changes;
use super::counters::Counters;
use super::error::WireError;
use super::fields::{Fields, Value, number};
use super::function::Function;
use super::marks::{Exceeded, Generation, Mark};
use super::quality::QualityMessage;
use super::reachability::Reachability;
use super::site::Site;
use super::started::Started;
use super::symbols::Frames;
use super::types::{BlockType, LiveClass, StacksOfType};
use super::update::{Location, Module, Process, Rate, Stack};
use super::usage::Usage;
use crate::join::{self, BlockChanges, Update};
use crate::profile::budget::{Budget, Cost};
use crate::profile::symbols::{Frame, Symbols};
use crate::profile::types;

/// Most code addresses of a stack, and most functions of a code address. Writers stay far below it, so that a
/// later version can write more.
const MAX_DEPTH: usize = 4096;

/// Most classes of sizes; there are 65.
const MAX_SIZES: usize = 1024;

/// Most marks. Writers keep fewer.
const MAX_MARKS: usize = 256;

/// The memory for the type of a stack.
const OF_STACK: u64 = 32;

/// Adds the records of a part to its update. Returns whether another part follows. `known` are the sites as all updates before leave them; without
/// them, changes of sites are passed over.
pub(in crate::profile) fn update(
    part: &[u8],
    update: &mut Update,
    known: Option<&[join::Site]>,
    budget: &mut Budget,
) -> Result<bool, WireError> {
    let mut more = false;
    // The values that are no lists are in the last part.
    update.elapsed_ns = 0;
    update.totals = join::Totals::default();
    update.quality = join::Quality::default();
    update.sizes.clear();
    update.marks.clear();
    for field in Fields::new(part) {
        match field? {
            (1, Value::Number(value)) => more = value != 0,
            (2, Value::Number(value)) => update.elapsed_ns = value,
            (3, Value::Bytes(bytes)) => {
                let module = join::Module::from(record::<Module>(bytes, budget)?);
                keep(&mut update.modules, module, budget)?;
            }
            (4, Value::Bytes(bytes)) => {
                let location = join::Location::from(record::<Location>(bytes, budget)?);
                keep(&mut update.locations, location, budget)?;
            }
            (5, Value::Bytes(bytes)) => {
                let stack = join::Stack::try_from(record::<Stack>(bytes, budget)?)?;
                if stack.locations.len() > MAX_DEPTH {
                    return Err(WireError::TooMany {
                        what: "frames of a stack",
                    });
                }
                keep(&mut update.stacks, stack, budget)?;
            }
            (6, Value::Bytes(bytes)) => {
                let process = record::<Process>(bytes, budget)?.into_plain();
                budget.charge(process.1.cost())?;
                update.processes.push(process);
            }
            (7, Value::Bytes(bytes)) => {
                let site = record::<Site>(bytes, budget)?.into_plain()?;
                budget.charge(site.1.cost())?;
                update.sites.push(site);
            }
            (8, Value::Bytes(bytes)) => {
                update.totals = record::<Counters>(bytes, budget)?.into();
            }
            (9, Value::Bytes(bytes)) => {
                update.quality = record::<QualityMessage>(bytes, budget)?.into();
                budget.charge(update.quality.cost())?;
            }
            (10, Value::Number(size)) => add_size(&mut update.sizes, size)?,
            (10, Value::Bytes(mut packed)) => {
                while !packed.is_empty() {
                    let size = number(&mut packed).ok_or(WireError::Malformed)?;
                    add_size(&mut update.sizes, size)?;
                }
            }
            (11, Value::Bytes(bytes)) => {
                let rate = join::RateChange::from(record::<Rate>(bytes, budget)?);
                keep(&mut update.rates, rate, budget)?;
            }
            (20, Value::Bytes(bytes)) => {
                keep(&mut update.threads, text(bytes)?, budget)?;
            }
            (21, Value::Bytes(bytes)) => {
                let started = record::<Started>(bytes, budget)?.into_plain();
                keep(&mut update.started, started, budget)?;
            }
            (22, Value::Bytes(bytes)) => {
                let function = join::Function::try_from(record::<Function>(bytes, budget)?)?;
                keep(&mut update.functions, function, budget)?;
            }
            (23, Value::Bytes(bytes)) => {
                let usage = record::<Usage>(bytes, budget)?.into_plain()?;
                budget.charge(usage.1.cost())?;
                update.usages.push(usage);
            }
            (30, Value::Bytes(bytes)) => {
                if update.marks.len() >= MAX_MARKS {
                    return Err(WireError::TooMany { what: "marks" });
                }
                let mark = join::Mark::try_from(record::<Mark>(bytes, budget)?)?;
                keep(&mut update.marks, mark, budget)?;
            }
            (31, Value::Bytes(bytes)) => {
                let generation = record::<Generation>(bytes, budget)?.into_plain()?;
                if generation.1.survived.len() > MAX_MARKS {
                    return Err(WireError::TooMany { what: "marks" });
                }
                budget.charge(generation.1.cost())?;
                update.generations.push(generation);
            }
            (40, Value::Bytes(bytes)) => {
                if let Some(known) = known {
                    let changes = record::<Changes>(bytes, budget)?;
                    changes.apply(known, &mut update.sites, budget)?;
                }
            }
            (50, Value::Bytes(bytes)) => {
                let exceeded = join::Exceeded::from(record::<Exceeded>(bytes, budget)?);
                keep(&mut update.exceeded, exceeded, budget)?;
            }
            (60, Value::Bytes(bytes)) => {
                let found = join::Reachability::from(record::<Reachability>(bytes, budget)?);
                keep(&mut update.reachability, found, budget)?;
            }
            // A field of a later version.
            _ => {}
        }
    }
    Ok(more)
}

/// Adds the records of a part to its symbols. Returns whether another part follows.
pub(in crate::profile) fn symbols(
    part: &[u8],
    symbols: &mut Symbols,
    budget: &mut Budget,
) -> Result<bool, WireError> {
    let mut more = false;
    for field in Fields::new(part) {
        match field? {
            (1, Value::Number(value)) => more = value != 0,
            (2, Value::Bytes(bytes)) => keep(&mut symbols.strings, text(bytes)?, budget)?,
            (3, Value::Bytes(bytes)) => {
                let frames = record::<Frames>(bytes, budget)?.into_plain();
                if frames.len() > MAX_DEPTH {
                    return Err(WireError::TooMany {
                        what: "functions of an address",
                    });
                }
                budget.charge((size_of::<Vec<Frame>>() + 16 + size_of_val(&*frames)) as u64)?;
                symbols.frames.push(frames);
            }
            (4, Value::Bytes(bytes)) => {
                let it = types::BlockType::try_from(record::<BlockType>(bytes, budget)?)?;
                keep(&mut symbols.types.types, it, budget)?;
            }
            (5, Value::Bytes(bytes)) => {
                let stacks = record::<StacksOfType>(bytes, budget)?;
                let added = stacks.add_to(&mut symbols.types)?;
                budget.charge(OF_STACK.saturating_mul(added as u64))?;
            }
            (6, Value::Bytes(bytes)) => {
                let it = types::LiveClass::try_from(record::<LiveClass>(bytes, budget)?)?;
                keep(&mut symbols.types.classes, it, budget)?;
            }
            _ => {}
        }
    }
    Ok(more)
}

/// Decodes the blocks of a chunk. The other value is whether another part of them follows.
pub(in crate::profile) fn blocks(
    message: &[u8],
    budget: &Budget,
) -> Result<(BlockChanges, bool), WireError> {
    let message = record::<BlocksMessage>(message, budget)?;
    let more = message.more;
    Ok((message.into_plain()?, more))
}

/// Decodes a record, which may need many times its bytes meanwhile.
fn record<M: Message + Default>(bytes: &[u8], budget: &Budget) -> Result<M, WireError> {
    budget.decode(bytes.len())?;
    Ok(M::decode(bytes)?)
}

fn keep<T: Cost>(list: &mut Vec<T>, record: T, budget: &mut Budget) -> Result<(), WireError> {
    budget.charge(record.cost())?;
    list.push(record);
    Ok(())
}

fn text(bytes: &[u8]) -> Result<String, WireError> {
    let text = std::str::from_utf8(bytes).map_err(|_| WireError::Malformed)?;
    Ok(text.to_owned())
}

fn add_size(sizes: &mut Vec<u64>, size: u64) -> Result<(), WireError> {
    if sizes.len() >= MAX_SIZES {
        return Err(WireError::TooMany {
            what: "classes of sizes",
        });
    }
    sizes.push(size);
    Ok(())
}
