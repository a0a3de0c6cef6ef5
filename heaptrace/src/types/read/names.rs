//! The names and sizes of types and functions in debug information.
//!
//! Stage: types. Runs in a reader. Names are built as C++ and Rust write them; references are followed up to a depth. Must not know addresses.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use gimli::{AttributeValue, constants};

use super::debug_info::{DebugInfo, Entry, Loaded};
use super::units::Place;
use crate::symbolize::demangle_bare;
use crate::types::protocol::{Function, MAX_NAME, MAX_PARAMETERS, SizedType};

/// Most references that are followed from a type.
const MAX_DEPTH: usize = 24;

/// Most scopes around an entry.
const MAX_SCOPES: usize = 32;

/// Most types and functions whose names are kept.
const MAX_KNOWN: usize = 1 << 16;

/// The tags of what a template is made for.
const PARAMETERS: [constants::DwTag; 3] = [
    constants::DW_TAG_template_type_parameter,
    constants::DW_TAG_template_value_parameter,
    constants::DW_TAG_GNU_template_parameter_pack,
];

/// Names, kept for the next time that they are asked for.
pub(super) struct Names<'i, 's> {
    pub(super) info: &'i DebugInfo<'s>,
    types: RefCell<HashMap<Place, Option<Rc<SizedType>>>>,
    functions: RefCell<HashMap<Place, Rc<Function>>>,
    /// Classes by unit and name.
    classes: RefCell<HashMap<(u32, String), Option<SizedType>>>,
}

impl<'i, 's> Names<'i, 's> {
    pub(super) fn of(info: &'i DebugInfo<'s>) -> Self {
        Self {
            info,
            types: RefCell::default(),
            functions: RefCell::default(),
            classes: RefCell::default(),
        }
    }

    /// A type; `None` if it has no name.
    pub(super) fn sized(&self, place: Place) -> Option<SizedType> {
        self.within(place, MAX_DEPTH).map(|it| (*it).clone())
    }

    /// The type of an entry.
    pub(super) fn type_of(&self, place: Place, entry: &Entry<'s>) -> Option<Place> {
        let value = entry.attr_value(constants::DW_AT_type)?;
        self.info.referred(place.unit, value)
    }

    fn within(&self, place: Place, depth: usize) -> Option<Rc<SizedType>> {
        if let Some(known) = self.types.borrow().get(&place) {
            return known.clone();
        }
        let depth = depth.checked_sub(1)?;
        // A type that leads to itself has no name there.
        self.keep_type(place, None);
        let found = self.read(place, depth);
        let found = found.filter(|it| it.name.len() <= MAX_NAME).map(Rc::new);
        self.keep_type(place, found.clone());
        found
    }

    fn keep_type(&self, place: Place, found: Option<Rc<SizedType>>) {
        let mut types = self.types.borrow_mut();
        if types.len() >= MAX_KNOWN {
            types.clear();
        }
        types.insert(place, found);
    }

    fn keep_function(&self, place: Place, found: Rc<Function>) {
        let mut functions = self.functions.borrow_mut();
        if functions.len() >= MAX_KNOWN {
            functions.clear();
        }
        functions.insert(place, found);
    }

    fn read(&self, place: Place, depth: usize) -> Option<SizedType> {
        let (unit, entry) = self.info.entry(place)?;
        let bytes = entry
            .attr_value(constants::DW_AT_byte_size)
            .and_then(|it| it.udata_value());
        let target = || self.within(self.type_of(place, &entry)?, depth);
        let own_name = || self.own_name(&unit, &entry);
        let plain = |name, bytes| {
            Some(SizedType {
                name,
                bytes,
                ..SizedType::default()
            })
        };
        let address = u64::from(unit.unit.header.address_size());
        match entry.tag() {
            constants::DW_TAG_base_type | constants::DW_TAG_unspecified_type => {
                plain(own_name()?, bytes.unwrap_or(0))
            }
            constants::DW_TAG_structure_type
            | constants::DW_TAG_class_type
            | constants::DW_TAG_union_type
            | constants::DW_TAG_interface_type
            | constants::DW_TAG_enumeration_type => {
                if let Some(whole) = self.whole(place) {
                    return self.within(whole, depth).map(|it| (*it).clone());
                }
                Some(SizedType {
                    name: self.qualified(place, &unit, &entry, depth)?,
                    bytes: bytes.unwrap_or(0),
                    is_open: self.is_open(place, depth),
                    is_virtual: entry.has_attr(constants::DW_AT_containing_type),
                })
            }
            constants::DW_TAG_typedef => match target() {
                // In C, it is an integer of another name.
                Some(found) if own_name().as_deref() == Some("wchar_t") => {
                    plain("wchar_t".to_owned(), found.bytes)
                }
                Some(found) => Some((*found).clone()),
                None => {
                    // What it names may have no name of its own.
                    let of = self.type_of(place, &entry)?;
                    let (_, inner) = self.info.entry(of)?;
                    let bytes = inner
                        .attr_value(constants::DW_AT_byte_size)
                        .and_then(|it| it.udata_value());
                    Some(SizedType {
                        name: self.qualified(place, &unit, &entry, depth)?,
                        bytes: bytes.unwrap_or(0),
                        is_open: self.is_open(of, depth),
                        is_virtual: false,
                    })
                }
            },
            constants::DW_TAG_pointer_type => {
                if let Some(name) = own_name() {
                    return plain(name, bytes.unwrap_or(address));
                }
                let to = match entry.attr_value(constants::DW_AT_type) {
                    Some(_) => target()?.name.clone(),
                    None => "void".to_owned(),
                };
                plain(format!("{to}*"), bytes.unwrap_or(address))
            }
            constants::DW_TAG_reference_type => plain(format!("{}&", target()?.name), address),
            constants::DW_TAG_rvalue_reference_type => {
                plain(format!("{}&&", target()?.name), address)
            }
            constants::DW_TAG_const_type => {
                let inner = match entry.attr_value(constants::DW_AT_type) {
                    Some(_) => (*target()?).clone(),
                    None => SizedType {
                        name: "void".to_owned(),
                        ..SizedType::default()
                    },
                };
                Some(SizedType {
                    name: format!("{} const", inner.name),
                    ..inner
                })
            }
            constants::DW_TAG_volatile_type
            | constants::DW_TAG_restrict_type
            | constants::DW_TAG_atomic_type => Some((*target()?).clone()),
            constants::DW_TAG_subroutine_type => plain("void ()".to_owned(), 0),
            constants::DW_TAG_array_type => {
                let inner = target()?;
                let count = self.count(place);
                let shown = count.map_or_else(String::new, |it| it.to_string());
                plain(
                    format!("{} [{shown}]", inner.name),
                    inner.bytes.saturating_mul(count.unwrap_or(0)),
                )
            }
            _ => None,
        }
    }

    /// Where a class is whole, if it is in a unit of its own.
    fn whole(&self, class: Place) -> Option<Place> {
        let (_, entry) = self.info.entry(class)?;
        let whole = self.reference(class, &entry, constants::DW_AT_signature)?;
        (whole != class).then_some(whole)
    }

    /// The elements of an array with bounds.
    pub(super) fn count(&self, array: Place) -> Option<u64> {
        let ranges = self
            .info
            .children(array, &[constants::DW_TAG_subrange_type]);
        let mut count = 1_u64;
        for range in &ranges {
            let value = |name| range.attr_value(name).and_then(|it| it.udata_value());
            let upper = || value(constants::DW_AT_upper_bound)?.checked_add(1);
            count = count.checked_mul(value(constants::DW_AT_count).or_else(upper)?)?;
        }
        (!ranges.is_empty()).then_some(count)
    }

    /// Whether a type's last member is an array without bounds.
    fn is_open(&self, place: Place, depth: usize) -> bool {
        if depth == 0 {
            return false;
        }
        let members = self.info.children(place, &[constants::DW_TAG_member]);
        let last = members.last().and_then(|last| {
            let of = self.type_of(place, last)?;
            let (_, entry) = self.info.entry(of)?;
            (entry.tag() == constants::DW_TAG_array_type).then_some(of)
        });
        last.is_some_and(|array| matches!(self.count(array), None | Some(0)))
    }

    fn own_name(&self, unit: &Loaded<'s>, entry: &Entry<'s>) -> Option<String> {
        let value = entry.attr_value(constants::DW_AT_name)?;
        self.info.text(unit, value)
    }

    /// A type's name with the scopes around it.
    fn qualified(
        &self,
        place: Place,
        unit: &Loaded<'s>,
        entry: &Entry<'s>,
        depth: usize,
    ) -> Option<String> {
        let mut name = self.own_name(unit, entry)?;
        if !name.contains('<') && unit.language != Some(constants::DW_LANG_Rust) {
            name.push_str(&self.arguments(place, depth));
        }
        // Rust writes the parts of tuples, slices and references with their scopes.
        if unit.language == Some(constants::DW_LANG_C99)
            || unit.language == Some(constants::DW_LANG_C11)
            || unit.language == Some(constants::DW_LANG_C89)
        {
            return Some(name);
        }
        let mut parts = self.scope(place, depth);
        parts.push(name);
        let whole = parts.join("::");
        (whole.len() <= MAX_NAME).then_some(whole)
    }

    /// Where an entry was declared: it may be defined outside of its scope.
    fn declared(&self, place: Place) -> Place {
        let mut at = place;
        for _ in 0..4 {
            let next = self
                .info
                .entry(at)
                .and_then(|(_, entry)| self.reference(at, &entry, constants::DW_AT_specification));
            match next {
                Some(next) if next != at => at = next,
                _ => break,
            }
        }
        at
    }

    /// The names of the scopes around an entry, outermost first.
    fn scope(&self, place: Place, depth: usize) -> Vec<String> {
        let mut parts = Vec::new();
        let mut at = self.declared(place);
        while let Some((scope, tag)) = self.info.parent(at)
            && parts.len() < MAX_SCOPES
        {
            let Some((unit, entry)) = self.info.entry(scope) else {
                break;
            };
            let is_rust = unit.language == Some(constants::DW_LANG_Rust);
            let name = match tag {
                constants::DW_TAG_subprogram => {
                    let function = self.function_within(scope, depth);
                    parts.push(function.name.clone());
                    if !function.is_rust {
                        break;
                    }
                    None
                }
                constants::DW_TAG_namespace => Some(
                    self.own_name(&unit, &entry)
                        .unwrap_or_else(|| "(anonymous namespace)".to_owned()),
                ),
                _ => {
                    let mut name = self.own_name(&unit, &entry);
                    if let Some(name) = &mut name
                        && !name.contains('<')
                        && !is_rust
                    {
                        name.push_str(&self.arguments(scope, depth));
                    }
                    name
                }
            };
            parts.extend(name);
            at = self.declared(scope);
        }
        parts.reverse();
        parts
    }

    /// The arguments of a template whose name was written without them.
    fn arguments(&self, place: Place, depth: usize) -> String {
        let Some(depth) = depth.checked_sub(1) else {
            return String::new();
        };
        let mut shown = Vec::new();
        for parameter in self.info.children(place, &PARAMETERS).iter().take(16) {
            match parameter.tag() {
                constants::DW_TAG_template_type_parameter => {
                    let of = self.type_of(place, parameter);
                    match of.and_then(|of| self.within(of, depth)) {
                        Some(of) => shown.push(of.name.clone()),
                        None => return String::new(),
                    }
                }
                constants::DW_TAG_template_value_parameter => {
                    let value = parameter.attr_value(constants::DW_AT_const_value);
                    match value.and_then(|it| it.sdata_value()) {
                        Some(value) => shown.push(value.to_string()),
                        None => return String::new(),
                    }
                }
                _ => return String::new(),
            }
        }
        match shown.is_empty() {
            true => String::new(),
            false => format!("<{}>", shown.join(", ")),
        }
    }

    /// A function, whose entry may refer to others for its name.
    pub(super) fn function(&self, place: Place) -> Rc<Function> {
        self.function_within(place, MAX_DEPTH)
    }

    fn function_within(&self, place: Place, depth: usize) -> Rc<Function> {
        if let Some(known) = self.functions.borrow().get(&place) {
            return Rc::clone(known);
        }
        let Some(depth) = depth.checked_sub(1) else {
            return Rc::default();
        };
        self.keep_function(place, Rc::default());
        let found = Rc::new(self.read_function(place, depth).unwrap_or_default());
        self.keep_function(place, Rc::clone(&found));
        found
    }

    fn read_function(&self, place: Place, depth: usize) -> Option<Function> {
        let mut function = Function::default();
        let mut linked = None;
        let mut name = None;
        let mut at = place;
        for _ in 0..8 {
            let (unit, entry) = self.info.entry(at)?;
            function.is_rust |= unit.language == Some(constants::DW_LANG_Rust);
            if name.is_none() {
                name = self.own_name(&unit, &entry);
            }
            if linked.is_none() {
                let value = entry
                    .attr_value(constants::DW_AT_linkage_name)
                    .or_else(|| entry.attr_value(constants::DW_AT_MIPS_linkage_name));
                linked = value.and_then(|value| self.info.text(&unit, value));
            }
            self.add_parameters(at, depth, &mut function.parameters);
            let next = entry
                .attr_value(constants::DW_AT_abstract_origin)
                .or_else(|| entry.attr_value(constants::DW_AT_specification));
            match next.and_then(|value| self.info.referred(at.unit, value)) {
                Some(next) if next != at => at = next,
                _ => break,
            }
        }
        if function.is_rust {
            function.name = name?;
            function.scope = self.scope(at, depth).join("::");
        } else {
            match linked.filter(|it| it.starts_with("_Z")) {
                Some(linked) => function.name = demangle_bare(&linked),
                None => {
                    let mut parts = self.scope(at, depth);
                    parts.push(name?);
                    function.name = parts.join("::");
                }
            }
            if let Some((class, tag)) = self.info.parent(at)
                && matches!(
                    tag,
                    constants::DW_TAG_structure_type | constants::DW_TAG_class_type
                )
            {
                let class = self.whole(class).unwrap_or(class);
                self.add_parameters(class, depth, &mut function.parameters);
            }
        }
        function
            .name
            .truncate(function.name.floor_char_boundary(MAX_NAME));
        function
            .scope
            .truncate(function.scope.floor_char_boundary(MAX_NAME));
        Some(function)
    }

    fn add_parameters(&self, place: Place, depth: usize, to: &mut Vec<SizedType>) {
        let tags = [constants::DW_TAG_template_type_parameter];
        for parameter in self.info.children(place, &tags) {
            if to.len() >= MAX_PARAMETERS {
                return;
            }
            if let Some(of) = self.type_of(place, &parameter)
                && let Some(found) = self.within(of, depth)
                && !to.contains(&found)
            {
                to.push((*found).clone());
            }
        }
    }

    /// A class of a unit, by its name.
    pub(super) fn class(&self, unit: u32, name: &str) -> Option<SizedType> {
        let key = (unit, name.to_owned());
        if let Some(known) = self.classes.borrow().get(&key) {
            return known.clone();
        }
        let show = crate::types::people::cpp;
        let parts = crate::types::text::segments(name);
        let classes = self.info.classes(unit, parts.last()?.name)?;
        let mut all = classes.into_iter().filter_map(|it| self.sized(it));
        let found = all.find(|it| it.bytes > 0 && show(&it.name) == show(name));
        self.classes.borrow_mut().insert(key, found.clone());
        found
    }

    /// What a pointer points to; `None` for other types.
    pub(super) fn pointed(&self, place: Place) -> Option<Place> {
        let mut at = place;
        for _ in 0..MAX_DEPTH {
            let (_, entry) = self.info.entry(at)?;
            match entry.tag() {
                constants::DW_TAG_pointer_type
                | constants::DW_TAG_reference_type
                | constants::DW_TAG_rvalue_reference_type => return self.type_of(at, &entry),
                _ => at = self.stripped(at, &entry)?,
            }
        }
        None
    }

    /// The type behind a typedef or a qualifier.
    fn stripped(&self, place: Place, entry: &Entry<'s>) -> Option<Place> {
        match entry.tag() {
            constants::DW_TAG_typedef
            | constants::DW_TAG_const_type
            | constants::DW_TAG_volatile_type
            | constants::DW_TAG_restrict_type
            | constants::DW_TAG_atomic_type => self.type_of(place, entry),
            _ => None,
        }
    }

    /// A type without typedefs and qualifiers.
    pub(super) fn bare(&self, place: Place) -> Option<(Place, Entry<'s>)> {
        let mut at = place;
        for _ in 0..MAX_DEPTH {
            let (_, entry) = self.info.entry(at)?;
            match self.stripped(at, &entry).or_else(|| self.whole(at)) {
                Some(next) => at = next,
                None => return Some((at, entry)),
            }
        }
        None
    }

    /// A reference in an attribute.
    pub(super) fn reference(
        &self,
        place: Place,
        entry: &Entry<'s>,
        name: constants::DwAt,
    ) -> Option<Place> {
        let value: AttributeValue<_> = entry.attr_value(name)?;
        self.info.referred(place.unit, value)
    }
}
