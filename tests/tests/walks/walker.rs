//! Whole walks of a stopped program's stack: by our tables and step, as in the kernel program, and by framehop.

use std::collections::HashMap;

use anyhow::Result;
use heaptrace::unwind::{Limits, Table, build, lookup};
use heaptrace_common::unwind::{Registers, Rule, cfa, outcome, step, step_frame_pointer};
use object::{Object as _, ObjectSegment as _};

use crate::interrupted::interrupted;
use crate::peer::{Opinion, Peer};
use crate::stopped::{CodeMapping, Stopped};

/// The mappings and tables of a program, for both unwinders.
pub(crate) struct Walker {
    mappings: Vec<CodeMapping>,
    tables: HashMap<String, Table>,
    peer: Peer,
}

/// A walk: an address per frame, and a constant of [`outcome`], or 0 if the limit was reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Walk {
    /// The address of each frame, the innermost first.
    pub(crate) addresses: Vec<u64>,
    /// How it ended.
    pub(crate) end: u32,
}

/// Information about a frame that framehop can't find by itself.
#[derive(Clone, Copy, Debug)]
enum Hint {
    /// Nothing.
    Nothing,
    /// A signal interrupted its caller.
    Signal,
    /// The caller's registers, because the frame address is read from memory.
    Caller(Registers),
}

impl Walker {
    /// Reads the program's mappings and their files.
    pub(crate) fn new(program: &Stopped) -> Result<Self> {
        let mut walker = Self {
            mappings: program.code()?,
            tables: HashMap::new(),
            peer: Peer::new(),
        };
        for mapping in &walker.mappings {
            let image = program.image(mapping)?;
            let Ok(file) = object::File::parse(image.as_slice()) else {
                continue;
            };
            let segment = file.segments().find_map(|segment| {
                let (offset, size) = segment.file_range();
                let holds = (offset..offset + size).contains(&mapping.offset);
                holds.then(|| (segment.address(), offset))
            });
            if let Some((address, offset)) = segment {
                let bias = mapping.range.0 - mapping.offset + offset - address;
                walker.peer.add(&file, bias, mapping.range);
            }
            if let Ok(table) = build(image.as_slice(), &Limits::default()) {
                walker.tables.insert(mapping.path.clone(), table);
            }
        }
        Ok(walker)
    }

    /// Whether an address is in code that was mapped when this was made.
    pub(crate) fn knows(&self, address: u64) -> bool {
        self.mapping(address).is_some()
    }

    fn mapping(&self, address: u64) -> Option<&CodeMapping> {
        self.mappings
            .iter()
            .find(|mapping| (mapping.range.0..mapping.range.1).contains(&address))
    }

    fn rule(&self, address: u64) -> Rule {
        let rule = self.mapping(address).and_then(|mapping| {
            let table = self.tables.get(&mapping.path)?;
            lookup(table, address - mapping.range.0 + mapping.offset)
        });
        rule.unwrap_or_default()
    }

    /// Both walks from these registers outward: ours and framehop's.
    pub(crate) fn both(
        &mut self,
        program: &Stopped,
        start: Registers,
        limit: usize,
    ) -> (Walk, Walk) {
        let (ours, hints) = self.ours(program, start, limit);
        (ours, self.peers(program, start, limit, &hints))
    }

    /// Our walk, and the hints that framehop needs for its own.
    fn ours(&self, mut program: &Stopped, start: Registers, limit: usize) -> (Walk, Vec<Hint>) {
        let mut walk = Walk {
            addresses: vec![start.ip],
            end: 0,
        };
        let mut hints = Vec::new();
        let mut exact = true;
        let mut registers = start;
        while walk.addresses.len() < limit {
            let rule = self.rule(registers.ip - u64::from(!exact));
            let mut code = step(rule, &mut registers, &mut program);
            if code == outcome::NO_RULE {
                code = step_frame_pointer(&mut registers, &mut program);
            }
            if code > outcome::CALLER_EXACT {
                walk.end = code;
                break;
            }
            exact = code == outcome::CALLER_EXACT;
            hints.push(match rule.cfa {
                _ if exact => Hint::Signal,
                cfa::DEREF_BP | cfa::DEREF_SP => Hint::Caller(registers),
                _ => Hint::Nothing,
            });
            walk.addresses.push(registers.ip);
        }
        (walk, hints)
    }

    /// framehop's walk.
    fn peers(
        &mut self,
        mut program: &Stopped,
        start: Registers,
        limit: usize,
        hints: &[Hint],
    ) -> Walk {
        let mut walk = Walk {
            addresses: vec![start.ip],
            end: 0,
        };
        let mut exact = true;
        let mut registers = start;
        for frame in 0..limit - 1 {
            let hint = hints.get(frame).copied().unwrap_or(Hint::Nothing);
            let opinion = match hint {
                Hint::Signal => match interrupted(registers, &mut program) {
                    Some(caller) => Opinion::Caller(caller),
                    None => Opinion::Outermost,
                },
                Hint::Caller(caller) => Opinion::Caller(caller),
                Hint::Nothing => self.peer.step(registers, exact, &mut program),
            };
            exact = matches!(hint, Hint::Signal);
            match opinion {
                Opinion::Caller(caller) => registers = caller,
                Opinion::Outermost => {
                    walk.end = outcome::OUTERMOST;
                    break;
                }
                Opinion::None(_) => {
                    walk.end = outcome::UNREADABLE;
                    break;
                }
            }
            walk.addresses.push(registers.ip);
        }
        walk
    }
}
