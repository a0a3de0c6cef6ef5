//! Folded stacks: `outermost;…;innermost value`, the common input format of flame graph tools.
//!
//! Stage: output. Builds the graph from the outermost frame inwards, and only below frames that are large
//! enough. So time and memory depend on the frames that are shown, not on the size of the profile.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use super::error::OutputError;
use super::label::{Label, kind_name};
use super::metric::Metric;
use super::report_input::{ReportInput, process_label};
use crate::join::{Kind, LocationId, Site};
use crate::text;

/// Folded stacks.
#[derive(Debug)]
pub(super) struct Folded {
    names: Names,
    stacks: Vec<(Vec<u32>, u64)>,
    /// The number of frames that were too small; their callees are not counted.
    pub(super) left_out: u64,
}

impl Folded {
    /// The stacks, outermost frame first, with their values. Stacks with the same outer frames are adjacent,
    /// which sorting whole lines would not give. The value of a frame that was left out is added to its
    /// caller.
    pub(super) fn stacks(&self) -> impl Iterator<Item = (Vec<&str>, u64)> {
        self.stacks.iter().map(|(frames, value)| {
            let frames = frames.iter().map(|name| self.names.text(*name));
            (frames.collect(), *value)
        })
    }

    /// One line for each stack.
    pub(super) fn lines(&self) -> Vec<String> {
        let stacks = self.stacks();
        stacks.map(|(frames, value)| line(&frames, value)).collect()
    }
}

/// Folds the stacks of a metric. Frames with less than `least_part` of the sum are left out.
pub(super) fn fold(
    input: &ReportInput<'_>,
    metric: Metric,
    least_part: f64,
) -> Result<Folded, OutputError> {
    let mut folder = Folder::new(input);
    let mut sum = 0u64;
    for (index, site) in (0..).zip(&input.profile.sites) {
        let value = metric.of(&site.totals);
        // Only a crafted file has such a sum, and a drawing would show wrong numbers.
        sum = sum
            .checked_add(value)
            .filter(|sum| i64::try_from(*sum).is_ok())
            .ok_or(OutputError::TooLarge)?;
        if value > 0 {
            folder.cursors.push(Cursor::first(index, value));
        }
    }
    folder.fold(sum as f64 * least_part)?;
    Ok(Folded {
        names: folder.names,
        stacks: folder.stacks,
        left_out: folder.left_out,
    })
}

/// The limit for the text of all stacks: several hundred times that of a large graph.
const MOST_TEXT: usize = 256 << 20;

/// The name that replaces the outermost frames that were left out.
pub(super) const LEFT_OUT: &str = "[left out]";

/// The position in a site's stack up to which the graph is built.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    site: u32,
    /// The number of code addresses that are done, counting the root of the graph as one.
    address: u32,
    /// The number of functions that are done at the next address.
    function: u32,
    /// The name of the next frame.
    next: u32,
    value: u64,
}

/// The stack has no further frame.
const NONE: u32 = u32::MAX;

impl Cursor {
    fn first(site: u32, value: u64) -> Self {
        Self {
            site,
            address: 0,
            function: 0,
            next: NONE,
            value,
        }
    }
}

/// A frame whose callees are not handled yet.
#[derive(Debug)]
struct Open {
    depth: usize,
    name: u32,
    /// The cursors of the sites below the frame.
    sites: Range<usize>,
}

struct Folder<'a> {
    input: &'a ReportInput<'a>,
    /// The root of the graph, if it is not a function.
    root: Root,
    names: Names,
    /// The range in `of_addresses` that holds the names of each code address, outermost function first.
    at: Vec<Option<(u32, u32)>>,
    of_addresses: Vec<u32>,
    cursors: Vec<Cursor>,
    stacks: Vec<(Vec<u32>, u64)>,
    left_out: u64,
}

#[derive(Clone, Copy, Debug)]
enum Root {
    Function,
    Process,
    Label(Label),
}

impl<'a> Folder<'a> {
    fn new(input: &'a ReportInput<'a>) -> Self {
        // Only names of processes and threads can be the root; a stack has many functions.
        let label = input.grouping.map(|grouping| grouping.by);
        let label = label.filter(|label| !label.is_of_stack());
        let is_one = input.profile.processes.len() <= 1;
        Self {
            input,
            root: match label {
                Some(label) => Root::Label(label),
                None if is_one => Root::Function,
                None => Root::Process,
            },
            names: Names::default(),
            at: vec![None; input.profile.locations.len()],
            of_addresses: Vec::new(),
            cursors: Vec::new(),
            stacks: Vec::new(),
            left_out: 0,
        }
    }

    /// Visits the graph depth first. It does not recurse, because the file decides how deep a stack is.
    fn fold(&mut self, least: f64) -> Result<(), OutputError> {
        let mut text = 0;
        let mut open = vec![Open {
            depth: 0,
            name: NONE,
            sites: 0..self.cursors.len(),
        }];
        let mut path = Vec::new();
        while let Some(frame) = open.pop() {
            path.truncate(frame.depth.saturating_sub(1));
            if frame.depth > 0 {
                path.push(frame.name);
            }
            let mut callees = Vec::new();
            // The frame's own value, and the values of the callees that are left out.
            let mut rest = 0;
            for (name, sites, value) in self.callees(frame.sites) {
                if name != NONE && value as f64 >= least {
                    callees.push(Open {
                        depth: frame.depth + 1,
                        name,
                        sites,
                    });
                } else {
                    rest += value;
                    self.left_out += u64::from(name != NONE);
                }
            }
            if rest > 0 {
                let mut frames = path.clone();
                // A graph can't show a value without a frame.
                if frames.is_empty() {
                    frames.push(self.names.id(LEFT_OUT));
                }
                text += frames
                    .iter()
                    .map(|name| self.names.text(*name).len() + 1)
                    .sum::<usize>();
                if text > MOST_TEXT {
                    return Err(OutputError::TooMuch);
                }
                self.stacks.push((frames, rest));
            }
            callees.sort_unstable_by(|a, b| {
                let name = |open: &Open| self.names.text(open.name);
                name(b).cmp(name(a))
            });
            open.append(&mut callees);
        }
        Ok(())
    }

    /// Groups the sites of a frame by their next frame. Returns each next frame's name, its cursors and their
    /// sum.
    fn callees(&mut self, sites: Range<usize>) -> Vec<(u32, Range<usize>, u64)> {
        for index in sites.clone() {
            let Some(mut cursor) = self.cursors.get(index).copied() else {
                continue;
            };
            cursor.next = self.step(&mut cursor).unwrap_or(NONE);
            if let Some(old) = self.cursors.get_mut(index) {
                *old = cursor;
            }
        }
        let start = sites.start;
        let Some(cursors) = self.cursors.get_mut(sites) else {
            return Vec::new();
        };
        cursors.sort_unstable_by_key(|cursor| cursor.next);
        let mut at = start;
        cursors
            .chunk_by(|a, b| a.next == b.next)
            .map(|same| {
                let sites = at..at + same.len();
                at = sites.end;
                let name = same.first().map_or(NONE, |cursor| cursor.next);
                (name, sites, same.iter().map(|cursor| cursor.value).sum())
            })
            .collect()
    }

    /// Moves a site's cursor forward, and returns the next frame.
    fn step(&mut self, cursor: &mut Cursor) -> Option<u32> {
        let site = self.input.profile.sites.get(cursor.site as usize)?;
        let locations = self.input.locations(site.stack);
        // The order is: root, code addresses from the outermost one on, kind of memory.
        if cursor.address == 0 {
            cursor.address = 1;
            if let Some(root) = self.root_of(site) {
                return Some(self.names.id(&root));
            }
        }
        let at = cursor.address as usize;
        let Some(left) = locations.len().checked_sub(at) else {
            cursor.address = cursor.address.checked_add(1)?;
            if at == 1 {
                return Some(self.names.id("[no stack]"));
            }
            // A caller of mmap must look different from a caller of malloc.
            let is_next = at == locations.len().max(1) + 1;
            let is_shown = is_next && site.kind == Kind::Mapped;
            return is_shown.then(|| self.names.id(&format!("[{}]", kind_name(site.kind))));
        };
        let names = self.names_at(*locations.get(left)?);
        let functions = self.of_addresses.get(names)?;
        let name = functions.get(cursor.function as usize).copied()?;
        cursor.function += 1;
        if cursor.function as usize == functions.len() {
            (cursor.address, cursor.function) = (cursor.address + 1, 0);
        }
        Some(name)
    }

    /// The range of the names at a code address. They are looked up once per address.
    fn names_at(&mut self, location: LocationId) -> Range<usize> {
        let index = location.0 as usize;
        if let Some(Some((start, end))) = self.at.get(index) {
            return *start as usize..*end as usize;
        }
        let start = self.of_addresses.len();
        for frame in self.input.frames(location).iter().rev() {
            let name = self.names.id(&frame.label());
            self.of_addresses.push(name);
        }
        let end = self.of_addresses.len();
        if let Some(range) = self.at.get_mut(index) {
            *range = Some((start as u32, end as u32));
        }
        start..end
    }

    /// The name at the root of the graph, if it is not a function.
    fn root_of(&self, site: &Site) -> Option<String> {
        match self.root {
            Root::Function => None,
            Root::Process => self.input.process(site).map(process_label),
            Root::Label(label) => Some(match self.input.caller(site, label) {
                Some(name) => text::escape(&name).into_owned(),
                None => label.none().to_owned(),
            }),
        }
    }
}

/// Names of frames, each stored once.
#[derive(Debug, Default)]
struct Names {
    texts: Vec<Rc<str>>,
    ids: HashMap<Rc<str>, u32>,
}

impl Names {
    fn id(&mut self, name: &str) -> u32 {
        let name = frame_name(name);
        if let Some(id) = self.ids.get(name.as_ref()) {
            return *id;
        }
        let id = self.texts.len() as u32;
        let text: Rc<str> = name.into();
        self.texts.push(Rc::clone(&text));
        self.ids.insert(text, id);
        id
    }

    fn text(&self, id: u32) -> &str {
        self.texts.get(id as usize).map_or("", |text| text)
    }
}

/// One line of a folded stack.
fn line(frames: &[&str], value: u64) -> String {
    let mut line = frames.join(";");
    // Flame graph tools read a number behind a space as the value, and `# ` as a comment.
    if let Some(space) = line.rfind(' ')
        && line[space + 1..]
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.')
    {
        line.replace_range(space..=space, "\u{a0}");
    }
    if line.starts_with("# ") {
        line.replace_range(1..2, "\u{a0}");
    }
    format!("{line} {value}")
}

/// A name without the separator `;`, which occurs in Rust's `[u8; 4]`.
fn frame_name(name: &str) -> Cow<'_, str> {
    match name.trim() {
        "" => "[no name]".into(),
        name if name.contains(';') => name.replace(';', ",").trim().to_owned().into(),
        name => name.into(),
    }
}
