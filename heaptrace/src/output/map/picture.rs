//! The memory map as a picture: in the order of addresses, a cell for each page or for some pages, light and dark.
//!
//! Stage: output. Escapes every name of a traced process.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, BufWriter, Write};

use super::cells::{self, Area, COLUMNS, Cell, Layout, Part};
use super::color::MapColor;
use super::name;
use super::pieces;
use super::process::ProcessMap;
use crate::output::error::OutputError;
use crate::output::report_input::ReportInput;
use crate::output::svg::{COLORS, content, cut};
use crate::proc::residency::{Mapping, MappingKind};
use crate::text::{bytes, count, duration, escape};

const WIDTH: f64 = 1000.0;
const LEFT: f64 = 36.0;
/// The place of the legend, and the heights of its rows, of rows of cells, and of what stands between them.
const LEGEND: f64 = 92.0;
const LEGEND_ROW: f64 = 20.0;
const ROW: f64 = 8.0;
const COLUMN: f64 = 7.25;
const HEADING: f64 = 24.0;
const GAP: f64 = 18.0;

/// The characters of a name in the legend, and in a title.
const NAME: usize = 46;
const TITLE: usize = 90;

/// The colors of scales on white and on black, from little to much.
const SCALE: [[&str; 2]; 5] = [
    ["#fde0a9", "#5b3a10"],
    ["#f5b45c", "#8f5a12"],
    ["#e07f3a", "#c9791f"],
    ["#b8492f", "#eba145"],
    ["#7a1f2b", "#ffd79a"],
];

/// The ages at which a color ends, with names.
const AGES: [(u64, &str); 4] = [
    (1_000_000_000, "younger than 1 s"),
    (10_000_000_000, "to 10 s"),
    (60_000_000_000, "to 1 min"),
    (600_000_000_000, "to 10 min"),
];
const OLDER: &str = "older";

/// Names of parts of a page in use.
const FULL: [&str; 5] = [
    "to 20 % in use",
    "to 40 %",
    "to 60 %",
    "to 80 %",
    "to 100 %",
];

/// Writes the picture of one process.
pub fn write_map_picture(
    input: &ReportInput<'_>,
    map: &ProcessMap<'_>,
    color: MapColor,
    out: &mut dyn Write,
) -> Result<(), OutputError> {
    let pieces = pieces::pieces(&map.owned, map.family);
    let layout = cells::layout(map, &pieces);
    let mut picture = Picture::new(input, map, &layout, color);
    let mut body = String::new();
    picture.body(&mut body);
    let mut out = BufWriter::new(out);
    picture.head(&mut out)?;
    out.write_all(body.as_bytes())?;
    writeln!(out, "</svg>")?;
    out.flush()?;
    Ok(())
}

struct Picture<'a> {
    input: &'a ReportInput<'a>,
    map: &'a ProcessMap<'a>,
    layout: &'a Layout<'a>,
    color: MapColor,
    /// The color of each site by its number, and the names with their bytes.
    classes: Vec<Option<usize>>,
    names: Vec<(String, u64)>,
    /// Where the next thing is drawn.
    y: f64,
}

impl<'a> Picture<'a> {
    fn new(
        input: &'a ReportInput<'a>,
        map: &'a ProcessMap<'a>,
        layout: &'a Layout<'a>,
        color: MapColor,
    ) -> Self {
        // Several stacks of a function have one color.
        let mut numbers: HashMap<String, usize> = HashMap::new();
        let mut names: Vec<(String, u64)> = Vec::new();
        let sizes: HashMap<_, u64> = map
            .account
            .sites
            .iter()
            .map(|it| ((it.stack, it.kind), it.states.resident.value()))
            .collect();
        let classes = layout
            .sites
            .iter()
            .map(|site| {
                if !map.is_shown(site.0, site.1) {
                    return None;
                }
                let name = match color {
                    MapColor::Type => name::block_type(input, *site, NAME),
                    _ => name::site(input, site.0, NAME),
                };
                let next = numbers.len();
                let number = *numbers.entry(name.clone()).or_insert(next);
                if number == names.len() && number < COLORS.len() {
                    names.push((name, 0));
                }
                let (_, sum) = names.get_mut(number)?;
                *sum = sum.saturating_add(sizes.get(site).copied().unwrap_or(0));
                Some(number)
            })
            .collect();
        Self {
            input,
            map,
            layout,
            color,
            classes,
            names,
            y: 0.0,
        }
    }

    fn head(&self, out: &mut dyn Write) -> io::Result<()> {
        let (mut light, mut dark) = (String::new(), String::new());
        for (class, colors) in [('s', &COLORS[..]), ('k', &SCALE[..])] {
            for (at, [on_white, on_black]) in colors.iter().enumerate() {
                let _ = write!(light, ".{class}{at}{{fill:{on_white}}}");
                let _ = write!(dark, ".{class}{at}{{fill:{on_black}}}");
            }
        }
        let height = self.y + 14.0;
        let title = cut(&format!("Memory of {}", self.map.label()), TITLE);
        let residency = &self.map.map.residency;
        let mut parts = vec![
            format!("{} into the run", duration(self.map.map.at_ns)),
            format!("{} resident", bytes(residency.resident)),
            self.input.profile.chosen(),
            format!("one cell is {}", bytes(self.layout.bytes_per_cell)),
        ];
        if !self.input.warnings.is_empty() {
            parts.push("INCOMPLETE".to_owned());
        }
        parts.extend(self.input.only());
        writeln!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
             role=\"img\">\n<title>{}</title>\n<style>\n\
             svg{{max-width:100%;height:auto;background:#fff}}\n\
             text{{font:13px system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif;fill:#1a1a1a}}\n\
             .back{{fill:#fff}}.title{{font-size:17px;font-weight:600}}.dim{{fill:#595959}}.name{{font-weight:600}}\
             .line{{stroke:#fff;stroke-width:.9}}.apart{{stroke:#b4b4b4;stroke-dasharray:2 4}}\n\
             .none{{fill:#f1f1f1}}.free{{fill:#d2d2d2}}.other{{fill:#c3cbb5}}.rest{{fill:#7d7d7d}}.swap{{fill:#d11149}}\
             .f1{{fill-opacity:.38}}.f2{{fill-opacity:.58}}.f3{{fill-opacity:.8}}.v{{fill-opacity:.16}}{light}\n\
             @media (prefers-color-scheme:dark){{svg{{background:#16181d}}text{{fill:#f2f2f2}}.back{{fill:#16181d}}.dim{{fill:#a8a8a8}}\
             .line{{stroke:#16181d}}.apart{{stroke:#575c66}}.none{{fill:#1f2228}}.free{{fill:#474c55}}.other{{fill:#4d5a42}}\
             .rest{{fill:#a3a7ae}}.swap{{fill:#ff6b8f}}{dark}}}\n</style>\n\
             <defs><pattern id=\"grid\" x=\"{LEFT}\" width=\"{COLUMN}\" height=\"{ROW}\" patternUnits=\"userSpaceOnUse\">\
             <path class=\"line\" fill=\"none\" d=\"M0 0V{ROW}\"/></pattern></defs>\n\
             <rect class=\"back\" width=\"{WIDTH}\" height=\"{height}\"/>\n\
             <text class=\"title\" x=\"20\" y=\"32\">{}</text>\n<text class=\"dim\" x=\"20\" y=\"54\">{}</text>",
            content(&title),
            content(&title),
            content(&cut(&parts.join("; "), 130)),
        )
    }

    fn body(&mut self, out: &mut String) {
        self.legend(out);
        let mut before: Option<&Mapping> = None;
        let layout = self.layout;
        for area in &layout.areas {
            if let Some(before) = before {
                self.apart(out, area.mapping.start.saturating_sub(before.end));
            }
            self.area(out, area);
            before = Some(area.mapping);
        }
        let (left_out, resident) = layout.left_out;
        if left_out > 0 {
            self.y += GAP;
            let words = format!(
                "{} smaller mappings with {} resident are not drawn",
                count(left_out as u64),
                bytes(resident)
            );
            self.text(out, "dim", LEFT, &words);
        }
        if layout.areas.is_empty() {
            self.y += GAP;
            let words = match &self.map.map.residency.unknown_pages {
                Some(why) => format!("The states of pages are not known: {}", escape(why)),
                None => "No memory of an allocator is known".to_owned(),
            };
            self.text(out, "dim", LEFT, &cut(&words, 130));
        }
    }

    fn text(&self, out: &mut String, class: &str, x: f64, words: &str) {
        let _ = writeln!(
            out,
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
            self.y,
            content(words)
        );
    }

    fn legend(&mut self, out: &mut String) {
        let mut entries: Vec<(String, String, String)> = match self.color {
            MapColor::Site | MapColor::Type => {
                let names = self.names.iter().enumerate();
                names
                    .map(|(at, (name, sum))| {
                        (
                            format!("s{at}"),
                            name.clone(),
                            format!("{} resident", bytes(*sum)),
                        )
                    })
                    .collect()
            }
            MapColor::Age => {
                let names = AGES.iter().map(|it| it.1).chain([OLDER]);
                scale(names)
            }
            MapColor::Fullness => scale(FULL.into_iter()),
        };
        let mut add = |class: &str, name: &str| {
            entries.push((class.to_owned(), name.to_owned(), String::new()));
        };
        if self.color.is_of_sites() && self.classes.iter().any(Option::is_none) {
            add("rest", "other sites");
        }
        let cells = || {
            let parts = self
                .layout
                .areas
                .iter()
                .flat_map(|area| area.parts.iter().map(move |part| (area.has_blocks, part)));
            parts.flat_map(|(has_blocks, part)| match part {
                Part::Cells { cells, .. } => cells.iter().map(|it| (has_blocks, *it)).collect(),
                Part::Gap { .. } => Vec::new(),
            })
        };
        if cells().any(|(has_blocks, it)| has_blocks && it.used == 0 && it.resident > 0) {
            add(
                "free",
                match self.map.is_partial() {
                    true => "no recorded block",
                    false if self.map.is_older() => "free, or not recorded",
                    false => "free, and resident",
                },
            );
        }
        if cells().any(|(has_blocks, it)| !has_blocks && it.used == 0 && it.resident > 0) {
            add("other", "not recorded");
        }
        if cells().any(|(_, it)| it.swapped > 0) {
            add("swap", "swapped");
        }
        add("none", "never touched");
        let rows = entries.len().div_ceil(2).max(1);
        for (at, (class, name, words)) in entries.iter().enumerate() {
            let x = LEFT + COLUMN * (COLUMNS / 2) as f64 * (at / rows) as f64;
            let y = LEGEND + LEGEND_ROW * (at % rows) as f64;
            let _ = writeln!(
                out,
                "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{:.1}\" width=\"12\" height=\"12\" rx=\"2\"/>\
                 <text x=\"{:.1}\" y=\"{y:.1}\">{} <tspan class=\"dim\">{}</tspan></text>",
                y - 10.5,
                x + 19.0,
                content(name),
                content(words)
            );
        }
        self.y = LEGEND + LEGEND_ROW * (rows - 1) as f64;
        if self.color.is_of_sites() && !self.map.is_partial() {
            self.y += LEGEND_ROW;
            self.text(
                out,
                "dim",
                LEFT,
                "The weaker the color of a cell, the less of it is in use. The weakest cells have blocks that were never touched.",
            );
        }
    }

    /// Marks the addresses between two mappings.
    fn apart(&mut self, out: &mut String, distance: u64) {
        if distance == 0 {
            self.y += ROW;
            return;
        }
        self.y += GAP;
        let words = format!("{} of other addresses", bytes(distance));
        self.text(out, "dim", LEFT + 24.0, &words);
        let y = self.y - 4.5;
        let right = LEFT + COLUMN * COLUMNS as f64;
        let _ = writeln!(
            out,
            "<line class=\"apart\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <line class=\"apart\" x1=\"{:.1}\" x2=\"{right:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>",
            LEFT + 18.0,
            LEFT + 30.0 + 6.4 * words.chars().count() as f64,
        );
    }

    fn area(&mut self, out: &mut String, area: &Area<'_>) {
        let mapping = area.mapping;
        self.y += HEADING;
        let name = match (mapping.kind, mapping.name.as_str()) {
            (_, name) if !name.is_empty() => cut(&escape(name), 40),
            (MappingKind::File, _) => "variables of a file".to_owned(),
            _ if area.has_blocks => "memory of the allocator".to_owned(),
            _ if area.is_mapped => "mapped by the program".to_owned(),
            _ => "anonymous memory".to_owned(),
        };
        let words = format!(
            "{:#x}, {}, {} resident",
            mapping.start,
            bytes(mapping.end.saturating_sub(mapping.start)),
            bytes(mapping.resident)
        );
        let _ = writeln!(
            out,
            "<text x=\"{LEFT}\" y=\"{:.1}\"><tspan class=\"name\">{}</tspan> <tspan class=\"dim\">{}</tspan></text>",
            self.y,
            content(&name),
            content(&words)
        );
        self.y += 7.0;
        for part in &area.parts {
            match part {
                Part::Gap { bytes: size } => {
                    self.y += GAP - 4.0;
                    let words = format!("… {} never touched", bytes(*size));
                    self.text(out, "dim", LEFT, &words);
                    self.y += 5.0;
                }
                Part::Cells { start, cells } => self.cells(out, area, *start, cells),
            }
        }
    }

    fn cells(&mut self, out: &mut String, area: &Area<'_>, start: u64, cells: &[Cell]) {
        let row_bytes = self.layout.bytes_per_cell.saturating_mul(COLUMNS as u64);
        for (row, at) in cells.chunks(COLUMNS).zip(0..) {
            let start = start.saturating_add(row_bytes.saturating_mul(at));
            let mut column = 0;
            while let Some(cell) = row.get(column) {
                let class = self.class(area, cell);
                let same = row
                    .iter()
                    .skip(column)
                    .take_while(|it| self.class(area, it) == class && it.site == cell.site);
                let run: Vec<&Cell> = same.collect();
                let before = self.layout.bytes_per_cell.saturating_mul(column as u64);
                let address = start.saturating_add(before);
                let title = self.title(area, address, &run);
                let _ = writeln!(
                    out,
                    "<rect class=\"{class}\" x=\"{:.2}\" y=\"{:.1}\" width=\"{:.2}\" height=\"{:.1}\"><title>{}</title></rect>",
                    LEFT + COLUMN * column as f64,
                    self.y,
                    COLUMN * run.len() as f64,
                    ROW - 0.9,
                    content(&title)
                );
                column += run.len();
            }
            let _ = writeln!(
                out,
                "<rect fill=\"url(#grid)\" pointer-events=\"none\" x=\"{LEFT}\" y=\"{:.1}\" width=\"{:.2}\" height=\"{ROW}\"/>",
                self.y,
                COLUMN * row.len() as f64
            );
            self.y += ROW;
        }
    }

    /// The classes of a cell in the style sheet.
    fn class(&self, area: &Area<'_>, cell: &Cell) -> String {
        if cell.swapped > cell.bytes / 2 {
            return "swap".to_owned();
        }
        if cell.used == 0 {
            return match (cell.resident, area.has_blocks) {
                (0, _) => "none",
                (_, true) => "free",
                (_, false) => "other",
            }
            .to_owned();
        }
        // Blocks of which no page was touched.
        if cell.resident == 0 {
            return format!("{} v", self.hue(cell));
        }
        let full = cell
            .used
            .saturating_mul(4)
            .div_ceil(cell.bytes.max(1))
            .clamp(1, 4);
        match (full, self.color) {
            (1..=3, color) if color.is_of_sites() && !self.map.is_partial() => {
                format!("{} f{full}", self.hue(cell))
            }
            _ => self.hue(cell),
        }
    }

    fn hue(&self, cell: &Cell) -> String {
        match self.color {
            MapColor::Site | MapColor::Type => {
                let class = cell
                    .site
                    .and_then(|it| self.classes.get(it).copied().flatten());
                class.map_or("rest".to_owned(), |it| format!("s{it}"))
            }
            MapColor::Age if cell.with_age == 0.0 => "rest".to_owned(),
            MapColor::Age => {
                let age = (cell.aged / cell.with_age) as u64;
                let class = AGES.iter().take_while(|it| it.0 <= age).count();
                format!("k{class}")
            }
            MapColor::Fullness => {
                let class = cell
                    .used
                    .saturating_mul(5)
                    .div_ceil(cell.bytes.max(1))
                    .clamp(1, 5)
                    - 1;
                format!("k{class}")
            }
        }
    }

    /// What is shown where the pointer rests.
    fn title(&self, area: &Area<'_>, address: u64, run: &[&Cell]) -> String {
        let sum =
            |of: fn(&Cell) -> u64| run.iter().fold(0_u64, |sum, it| sum.saturating_add(of(it)));
        let (size, used) = (sum(|it| it.bytes), sum(|it| it.used));
        let (resident, swapped) = (sum(|it| it.resident), sum(|it| it.swapped));
        let mut words = format!("{address:#x}, {}: ", bytes(size));
        if used > 0 {
            let site = run.first().and_then(|it| it.site);
            let site = site.and_then(|it| self.layout.sites.get(it));
            if let Some((stack, _)) = site {
                words.push_str(&format!("{}; ", name::site(self.input, *stack, TITLE)));
            }
            let share = crate::text::share(used, size);
            words.push_str(&match self.map.is_partial() {
                true => "recorded; ".to_owned(),
                false => format!("{share} in use; "),
            });
        } else if area.has_blocks && resident > 0 {
            words.push_str("no live block; ");
        }
        words.push_str(&match (resident, swapped) {
            (0, 0) => "never touched".to_owned(),
            (resident, 0) => format!("{} resident", bytes(resident)),
            (resident, swapped) => {
                format!("{} resident, {} swapped", bytes(resident), bytes(swapped))
            }
        });
        words
    }
}

/// The entries of the legend of a scale.
fn scale<'n>(names: impl Iterator<Item = &'n str>) -> Vec<(String, String, String)> {
    let entries = names.enumerate();
    entries
        .map(|(at, name)| (format!("k{at}"), name.to_owned(), String::new()))
        .collect()
}
