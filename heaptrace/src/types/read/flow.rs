//! Follows the result of a call through the code behind it.
//!
//! Stage: types. Runs in a reader. Decodes some instructions in a line, and notes which registers and slots of the frame hold the result. At a call, only
//! the registers that the callee keeps survive. Must not know what allocators are.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register,
};

use super::cfa::Frames;
use super::code::Code;
use super::constructor;
use super::frames::Around;
use super::names::Names;
use super::state::{Known, State, full, number_in_dwarf};
use super::units::Place;
use super::variables::{self, FrameBase, Global, Spot, Variable};
use super::walk::{Fate, Walk};
use crate::symbolize::demangle_bare;
use crate::types::protocol::{Evidence, SizedType};

/// Most instructions that are followed.
const MAX_INSTRUCTIONS: usize = 120;

/// The registers of a call's arguments, in order.
const ARGUMENTS: [Register; 6] = [
    Register::RDI,
    Register::RSI,
    Register::RDX,
    Register::RCX,
    Register::R8,
    Register::R9,
];

/// What is known of functions and units, kept for other calls in them.
pub(super) struct Flow<'n, 'i, 's, 'd> {
    names: &'n Names<'i, 's>,
    code: &'n Code<'d>,
    frames: Option<Frames<'d>>,
    variables: RefCell<HashMap<Place, Rc<Vec<Variable>>>>,
    globals: RefCell<HashMap<u32, Rc<Vec<Global>>>>,
}

impl<'n, 'i, 's, 'd> Flow<'n, 'i, 's, 'd> {
    pub(super) fn of(names: &'n Names<'i, 's>, code: &'n Code<'d>, own: &'d [u8]) -> Self {
        Self {
            names,
            code,
            frames: Frames::of(own),
            variables: RefCell::default(),
            globals: RefCell::default(),
        }
    }

    /// Follows the result of the call that returns to an address, in the function with this code.
    pub(super) fn follow(
        &self,
        around: Option<&Around>,
        returns_to: u64,
        (begin, end): (u64, u64),
        is_array: bool,
    ) -> Fate {
        let variables = around.map_or_else(Rc::default, |it| self.variables_of(it.function));
        let base = around.and_then(|it| variables::frame_base(self.names.info, it.function));
        let mut walk = Walk {
            around,
            variables,
            base,
            fate: Fate::default(),
            bytes: None,
            may_construct: true,
            is_array,
            begin,
            end,
        };
        let _ = self.walk(&mut walk, returns_to);
        if walk.fate.stored.is_none() && !walk.fate.is_returned {
            walk.fate.stored = walk.bytes.take();
        }
        walk.fate
    }

    fn variables_of(&self, function: Place) -> Rc<Vec<Variable>> {
        let mut all = self.variables.borrow_mut();
        let found = all
            .entry(function)
            .or_insert_with(|| Rc::new(variables::of_function(self.names, function)));
        Rc::clone(found)
    }

    fn walk(&self, walk: &mut Walk<'_>, returns_to: u64) -> Option<()> {
        let mut state = State::default();
        state.hold(Register::RAX);
        let mut info = InstructionInfoFactory::new();
        let mut at = returns_to;
        let mut before = returns_to;
        // Whether the last comparison was of the result with 0.
        let mut is_tested = false;
        for _ in 0..MAX_INSTRUCTIONS {
            if !(walk.begin..walk.end).contains(&at) {
                return None;
            }
            self.begun(walk, &state, before, at);
            let bytes = self.code.bytes(at, 16)?;
            let instruction = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode();
            if instruction.is_invalid() {
                return None;
            }
            let is_done = walk.fate.stored.is_some() && !walk.may_construct;
            if is_done || state.is_lost() {
                return None;
            }
            before = at.saturating_add(1);
            at = instruction.next_ip();
            match instruction.flow_control() {
                FlowControl::Return => {
                    walk.give_out_rest(state.is_behind(Register::RAX));
                    self.returned(walk, state.holds(Register::RAX));
                    return None;
                }
                FlowControl::UnconditionalBranch => {
                    let target = instruction.near_branch_target();
                    if (walk.begin..walk.end).contains(&target) {
                        at = target;
                        before = at;
                    } else {
                        self.called(walk, &state, &instruction);
                        self.returned(walk, self.passes_on(&state, &instruction));
                        return None;
                    }
                }
                FlowControl::ConditionalBranch => {
                    if is_tested && instruction.mnemonic() == Mnemonic::Jne {
                        at = instruction.near_branch_target();
                        before = at;
                    }
                }
                FlowControl::Call | FlowControl::IndirectCall => {
                    self.called(walk, &state, &instruction);
                    let passes_on = self.passes_on(&state, &instruction);
                    state.after_call();
                    if passes_on {
                        state.hold(Register::RAX);
                    }
                }
                FlowControl::Next => {
                    self.step(walk, &mut state, &instruction, &mut info);
                }
                _ => return None,
            }
            is_tested = match instruction.mnemonic() {
                Mnemonic::Test => {
                    instruction.op0_kind() == OpKind::Register
                        && instruction.op0_register() == instruction.op1_register()
                        && state.holds(instruction.op0_register())
                }
                Mnemonic::Cmp => {
                    let is_zero = instruction.op1_kind() != OpKind::Register
                        && instruction.op1_kind() != OpKind::Memory
                        && instruction.immediate(1) == 0;
                    let is_held = match instruction.op0_kind() {
                        OpKind::Register => state.holds(instruction.op0_register()),
                        OpKind::Memory => state.has_slot(&instruction),
                        _ => false,
                    };
                    is_zero && is_held
                }
                _ => false,
            };
        }
        None
    }

    /// The function returns, maybe with the result.
    fn returned(&self, walk: &mut Walk<'_>, is_held: bool) {
        let of = walk.around.map(|it| it.function);
        let result = of.map(|it| variables::signature(self.names, it).1);
        // Without a result, the register still has what it had.
        walk.fate.is_returned = is_held && result != Some(None);
        if walk.fate.is_returned {
            let of = result.flatten();
            walk.store_as(of.and_then(|of| self.pointee(of)));
        }
    }

    /// Whether the function that is called with the result returns it.
    fn passes_on(&self, state: &State<'d>, instruction: &Instruction) -> bool {
        let callee = self.code.callee(instruction);
        state.holds(Register::RDI) && callee.is_some_and(|it| self.code.passes_on(it))
    }

    /// Looks for variables that begin to be in a register with the result.
    fn begun(&self, walk: &mut Walk<'_>, state: &State<'d>, from: u64, to: u64) {
        if walk.fate.stored.is_some() {
            return;
        }
        let variables = Rc::clone(&walk.variables);
        let begun = variables.iter().filter(|it| {
            let is_held = match it.spot {
                Spot::Register(number) => state.holds_number(number),
                Spot::Frame(_) => false,
            };
            (from..=to).contains(&it.begin) && is_held
        });
        for found in begun.filter_map(|it| self.pointee(it.of)) {
            walk.store_as(Some(found));
        }
    }

    /// What a pointer type points to, if that has a size.
    fn pointee(&self, of: Place) -> Option<SizedType> {
        let to = self.names.pointed(of)?;
        self.names.sized(to).filter(|it| it.bytes > 0 || it.is_open)
    }

    /// Looks at a call that gets the result.
    fn called(&self, walk: &mut Walk<'_>, state: &State<'d>, instruction: &Instruction) {
        let callee = self.code.callee(instruction);
        let is_first = state.holds(Register::RDI);
        let name = callee.map_or_else(String::new, |it| demangle_bare(it.name));
        let is_constructor = callee.is_some_and(|it| constructor::is_constructor(it.name));
        let address = callee.and_then(|it| it.address);
        let is_merged = address.is_some_and(|it| self.code.is_merged(it));
        if is_first
            && walk.may_construct
            && is_constructor
            && !is_merged
            && let Some(class) = constructor::class_of(&name)
        {
            let place = address.and_then(|address| self.names.info.function(address));
            let sized = place.and_then(|(place, _)| constructor::constructed_by(self.names, place));
            let class = sized.unwrap_or_else(|| self.class(walk, class));
            // The object is of a derived class, which stores its own table afterwards.
            let is_base = address.is_none() && callee.is_some_and(|it| it.name.contains("C2E"));
            if is_base && class.bytes == 0 {
                return;
            }
            walk.fate.constructed = Some((class, Evidence::Called));
            return;
        }
        // The constructor of a member may come before the block's own.
        walk.may_construct &= is_constructor && !is_first;
        if walk.fate.stored.is_some() {
            return;
        }
        let function = address
            .filter(|_| !is_merged)
            .and_then(|address| self.names.info.function(address));
        let Some((function, _)) = function else {
            return;
        };
        let (parameters, _) = variables::signature(self.names, function);
        for (register, of) in ARGUMENTS.into_iter().zip(parameters) {
            if state.holds(register)
                && let Some(of) = of
                && let Some(found) = self.pointee(of)
            {
                walk.store_as(Some(found));
                return;
            }
        }
    }

    /// A class with its size, if its unit has one of this name.
    fn class(&self, walk: &Walk<'_>, name: String) -> SizedType {
        let unit = walk.around.map(|it| it.function.unit);
        let found = unit.and_then(|unit| self.names.class(unit, &name));
        found.unwrap_or(SizedType {
            name,
            ..SizedType::default()
        })
    }

    /// Follows an instruction that only moves values.
    fn step(
        &self,
        walk: &mut Walk<'_>,
        state: &mut State<'d>,
        instruction: &Instruction,
        info: &mut InstructionInfoFactory,
    ) {
        let target = instruction.op0_register();
        let is_wide = instruction.op0_kind() != OpKind::Register || target.is_gpr64();
        if instruction.mnemonic() == Mnemonic::Mov && is_wide {
            match (instruction.op0_kind(), instruction.op1_kind()) {
                (OpKind::Register, OpKind::Register) => {
                    return state.copy(instruction.op1_register(), target);
                }
                (OpKind::Register, OpKind::Memory) => {
                    return self.load(walk, state, instruction, target);
                }
                (OpKind::Memory, OpKind::Register) if instruction.op1_register().is_gpr64() => {
                    return self.store(walk, state, instruction);
                }
                (OpKind::Memory, _) => {
                    // The table of virtual functions of a program at a fixed address.
                    if state.is_first_word(instruction)
                        && instruction.op1_kind() == OpKind::Immediate32to64
                    {
                        self.table(walk, Known::Address(instruction.immediate(1)));
                    }
                    state.overwrite(instruction);
                    return;
                }
                _ => {}
            }
        }
        if instruction.mnemonic() == Mnemonic::Lea {
            let base = full(instruction.memory_base());
            let is_rest_of_array = walk.is_array
                && state.holds(base)
                && instruction.memory_index() == Register::None
                && matches!(instruction.memory_displacement64(), 8 | 16);
            if base == Register::RIP {
                state.know(target, Known::Address(instruction.memory_displacement64()));
            } else if is_rest_of_array {
                state.hold(target);
            } else if state.holds(base) && instruction.memory_index() == Register::None {
                state.be_behind(target);
            } else {
                state.forget(target);
            }
            return;
        }
        if instruction.mnemonic() == Mnemonic::Add
            && instruction.op0_kind() == OpKind::Register
            && instruction.op1_kind() != OpKind::Register
            && instruction.op1_kind() != OpKind::Memory
            && (state.is_known(target)
                || walk.is_array && state.holds(target) && instruction.immediate(1) == 8)
        {
            return;
        }
        if instruction.mnemonic() == Mnemonic::Add && state.holds(target) {
            return state.be_behind(target);
        }
        if matches!(instruction.mnemonic(), Mnemonic::Push | Mnemonic::Pop) {
            state.moved_stack();
        }
        let only_reads = matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Test);
        if instruction.op0_kind() == OpKind::Memory && !only_reads {
            state.overwrite(instruction);
        }
        for used in info.info(instruction).used_registers() {
            let is_written = matches!(
                used.access(),
                OpAccess::Write
                    | OpAccess::ReadWrite
                    | OpAccess::CondWrite
                    | OpAccess::ReadCondWrite
            );
            if is_written {
                state.forget(used.register());
            }
        }
    }

    fn load(
        &self,
        walk: &Walk<'_>,
        state: &mut State<'d>,
        instruction: &Instruction,
        target: Register,
    ) {
        if state.has_slot(instruction) {
            return state.hold(target);
        }
        let base = full(instruction.memory_base());
        let displacement = instruction.memory_displacement64();
        if base == Register::RIP {
            match self.code.slot(displacement) {
                Some(name) => state.know(target, Known::Name(name)),
                None => match self.global(walk, displacement) {
                    Some(of) => state.know(target, Known::Value(of)),
                    None => state.forget(target),
                },
            }
            return;
        }
        let of = self.at(walk, state, instruction);
        match of {
            Some(of) => state.know(target, Known::Value(of)),
            None => state.forget(target),
        }
    }

    /// The type of what is in memory.
    fn at(&self, walk: &Walk<'_>, state: &State<'d>, instruction: &Instruction) -> Option<Place> {
        let base = full(instruction.memory_base());
        let displacement = instruction.memory_displacement64();
        let has_index = instruction.memory_index() != Register::None;
        match base {
            Register::RIP => self.global(walk, displacement),
            Register::None => self.global(walk, displacement),
            Register::RSP | Register::RBP
                if !has_index && self.slot(walk, instruction).is_some() =>
            {
                self.slot(walk, instruction)
            }
            base => match state.known(base) {
                Some(Known::Address(address)) => {
                    self.global(walk, address.wrapping_add(displacement))
                }
                Some(Known::Value(of)) if !has_index => self.member(of, displacement),
                _ if has_index => None,
                _ => {
                    let number = number_in_dwarf(base)?;
                    let ip = instruction.ip();
                    let variable = walk.variables.iter().find(|it| {
                        it.spot == Spot::Register(number) && it.begin <= ip && ip < it.end
                    })?;
                    self.member(variable.of, displacement)
                }
            },
        }
    }

    fn member(&self, pointer: Place, offset: u64) -> Option<Place> {
        let to = self.names.pointed(pointer)?;
        variables::within(self.names, to, offset)
    }

    /// The type of a variable in the frame.
    fn slot(&self, walk: &Walk<'_>, instruction: &Instruction) -> Option<Place> {
        let base = number_in_dwarf(full(instruction.memory_base()))?;
        let displacement = instruction.memory_displacement64() as i64;
        let from_base = match walk.base? {
            FrameBase::Register(register) => (register == base).then_some(displacement)?,
            FrameBase::Cfa => {
                let (register, offset) = self.frames.as_ref()?.base(instruction.ip())?;
                (register == base).then(|| displacement.wrapping_sub(offset))?
            }
        };
        let ip = instruction.ip();
        let next = instruction.next_ip();
        let of_frame = walk.variables.iter().filter(|it| {
            let is_there = it.begin <= ip && ip < it.end || it.begin == next;
            it.spot == Spot::Frame(from_base) && is_there
        });
        of_frame.map(|it| it.of).next()
    }

    fn global(&self, walk: &Walk<'_>, address: u64) -> Option<Place> {
        let unit = walk.around?.function.unit;
        let globals = {
            let mut all = self.globals.borrow_mut();
            let found = all
                .entry(unit)
                .or_insert_with(|| Rc::new(variables::of_unit(self.names, unit)));
            Rc::clone(found)
        };
        let end = globals.partition_point(|it| it.address <= address);
        let global = globals.get(end.checked_sub(1)?)?;
        let within = address - global.address;
        let size = self.names.sized(global.of)?.bytes;
        (within < size.max(1)).then(|| variables::within(self.names, global.of, within))?
    }

    fn store(&self, walk: &mut Walk<'_>, state: &mut State<'d>, instruction: &Instruction) {
        let source = instruction.op1_register();
        if !state.holds(source) {
            if state.is_first_word(instruction)
                && let Some(known) = state.known(source)
            {
                self.table(walk, known);
            }
            state.overwrite(instruction);
            return;
        }
        state.put(instruction);
        // Into the block itself, such as a list that begins with it.
        if state.holds(full(instruction.memory_base())) || walk.fate.stored.is_some() {
            return;
        }
        let of = self.at(walk, state, instruction);
        walk.store_as(of.and_then(|of| self.pointee(of)));
    }

    /// Takes a table of virtual functions that is stored in the block; the last one is that of the most derived class.
    fn table(&self, walk: &mut Walk<'_>, known: Known<'d>) {
        if !walk.may_construct {
            return;
        }
        let symbol = match known {
            Known::Name(name) => Some(name),
            Known::Address(address) => self.code.symbol(address).map(|(name, ..)| name),
            Known::Value(_) => None,
        };
        if let Some(class) = symbol.and_then(constructor::class_of_table) {
            walk.fate.constructed = Some((self.class(walk, class), Evidence::Vtable));
        }
    }
}
