//! The colors of a flame graph: a hue for each file with code, and shades for its functions.
//!
//! Stage: output. The functions of a file have the same color in every graph with the same files, so that
//! graphs can be compared.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use crate::join::Language;
use crate::output::folded::Name;

/// The hues of files, in degrees, with their saturation, in percent: green looks stronger than blue. Hues
/// between violet and red are left out, because they mark what a search finds.
const HUES: [(i16, i16); 8] = [
    (28, 82),
    (205, 66),
    (135, 42),
    (255, 66),
    (178, 44),
    (47, 70),
    (6, 72),
    (85, 46),
];

/// The shades of a hue: steps of the hue in degrees, and of the lightness in percent.
const SHADES: [(i16, i16); 4] = [(-7, 0), (4, 3), (-3, 6), (7, 9)];

/// What is drawn in gray: roots of the graph, and what is no function.
const ROOT: usize = HUES.len();
/// The runtime libraries of C and C++.
const RUNTIME: usize = HUES.len() + 1;
/// Allocator wrappers and plumbing of libraries, wherever they are compiled in.
const PLUMBING: usize = HUES.len() + 2;
/// The functions that Python runs, in the hue between the marks of a search and the first red.
const PYTHON: usize = HUES.len() + 3;
/// The functions of JavaScript, in the hue between those of files that is furthest from them.
const JAVASCRIPT: usize = HUES.len() + 4;
/// Functions that a runtime has generated: a gray with some blue.
const JIT: usize = HUES.len() + 5;
/// Java's methods.
const JAVA: usize = HUES.len() + 6;
const FAMILIES: usize = HUES.len() + 7;

/// The most entries of the legend.
const MOST_KEYS: usize = 7;

/// The files that are drawn as the C runtime, by the beginning of their name.
const RUNTIMES: [&str; 10] = [
    "libc.so",
    "libc-2",
    "ld-linux",
    "ld-2",
    "ld-musl",
    "libm.so",
    "libpthread",
    "libdl.so",
    "libgcc_s",
    "libstdc++",
];

/// The colors of the names of a graph.
#[derive(Debug)]
pub(super) struct Colors {
    /// The number of each name's color.
    colors: Vec<usize>,
    /// The color and the meaning of the most important colors.
    pub(super) legend: Vec<(usize, String)>,
}

impl Colors {
    /// Chooses colors. Each name has a weight: files with more weight get a hue of their own first.
    pub(super) fn of<'a>(names: impl Iterator<Item = (&'a Name, f64)>) -> Self {
        let names: Vec<_> = names.collect();
        let mut weights = HashMap::<Part<'_>, f64>::new();
        for (name, weight) in &names {
            *weights.entry(Part::of(name)).or_default() += weight;
        }
        let mut parts: Vec<_> = weights.into_iter().collect();
        parts.sort_by(|(a, x), (b, y)| y.total_cmp(x).then_with(|| a.title().cmp(b.title())));
        let mut taken = HashSet::new();
        let mut families = HashMap::new();
        for (part, _) in &parts {
            let family = match part {
                Part::Root => ROOT,
                Part::Runtime => RUNTIME,
                Part::Plumbing => PLUMBING,
                Part::Interpreted(Language::Python) => PYTHON,
                Part::Interpreted(Language::JavaScript) => JAVASCRIPT,
                Part::Interpreted(Language::Jit) => JIT,
                Part::Interpreted(Language::Java) => JAVA,
                Part::File(file) => {
                    let first = hash(file) as usize;
                    let mut hues = (0..HUES.len()).map(|step| (first + step) % HUES.len());
                    let free = hues.find(|hue| !taken.contains(hue));
                    let hue = free.unwrap_or(first % HUES.len());
                    taken.insert(hue);
                    hue
                }
            };
            families.insert(*part, family);
        }
        let family = |part: &Part<'_>| families.get(part).copied().unwrap_or(ROOT);
        let colors = names.iter().map(|(name, _)| {
            let shade = hash(&name.text) as usize % SHADES.len();
            family(&Part::of(name)) * SHADES.len() + shade
        });
        let keys = parts.iter().filter(|(part, _)| *part != Part::Root);
        Self {
            colors: colors.collect(),
            legend: keys
                .take(MOST_KEYS)
                .map(|(part, _)| {
                    let color = family(part) * SHADES.len() + SHADES.len() / 2;
                    (color, part.title().to_owned())
                })
                .collect(),
        }
    }

    /// The color of a name.
    pub(super) fn color(&self, name: u32) -> usize {
        let root = ROOT * SHADES.len();
        self.colors.get(name as usize).copied().unwrap_or(root)
    }

    /// The color of the frame that holds all others.
    pub(super) fn of_all() -> usize {
        ROOT * SHADES.len()
    }
}

/// The part of a program that a name belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Part<'a> {
    Root,
    Runtime,
    Plumbing,
    Interpreted(Language),
    File(&'a str),
}

impl<'a> Part<'a> {
    fn of(name: &'a Name) -> Self {
        if let Some(language) = name.language {
            return Self::Interpreted(language);
        }
        let Some(file) = &name.module else {
            return Self::Root;
        };
        if RUNTIMES.iter().any(|it| file.starts_with(it)) {
            Self::Runtime
        } else if !name.is_user {
            Self::Plumbing
        } else {
            Self::File(file)
        }
    }

    fn title(&self) -> &'a str {
        match self {
            Self::Root => "",
            Self::Runtime => "C and C++ runtime",
            Self::Plumbing => "wrappers and library plumbing",
            Self::Interpreted(Language::Python) => "Python functions",
            Self::Interpreted(Language::JavaScript) => "JavaScript functions",
            Self::Interpreted(Language::Jit) => "generated code",
            Self::Interpreted(Language::Java) => "Java methods",
            Self::File(file) => file,
        }
    }
}

/// A hash that is the same in every version of heaptrace (FNV-1a).
fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

/// The style that gives each color number its color, on a light or a dark background.
pub(super) fn style(is_dark: bool) -> String {
    let mut style = String::new();
    for family in 0..FAMILIES {
        for (shade, (turn, lighter)) in SHADES.iter().enumerate() {
            let (hue, saturation, add) = match family {
                ROOT => (220, 4, 6),
                RUNTIME => (220, 8, 0),
                PLUMBING => (220, 28, 3),
                PYTHON => (322, 62, 5),
                JAVASCRIPT => (108, 66, 5),
                JIT => (40, 12, 5),
                JAVA => (228, 62, 6),
                hue => {
                    let (hue, saturation) = HUES.get(hue).copied().unwrap_or_default();
                    (hue, saturation, 0)
                }
            };
            let hue = (hue + turn).rem_euclid(360);
            // Black text on the light colors and white text on the dark ones has a contrast of 5 and more.
            let (saturation, lightness) = if is_dark {
                (saturation * 6 / 10, 23 + lighter)
            } else {
                (saturation, 71 + lighter + add)
            };
            let color = family * SHADES.len() + shade;
            // Writing to a String can't fail.
            let _ = write!(
                style,
                ".c{color}{{fill:hsl({hue},{saturation}%,{lightness}%)}}"
            );
        }
    }
    style
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str, module: Option<&str>) -> Name {
        Name {
            text: text.to_owned(),
            module: module.map(str::to_owned),
            language: None,
            is_user: !text.starts_with("std::"),
        }
    }

    fn colors(names: &[Name]) -> Colors {
        Colors::of(names.iter().map(|name| (name, 1.0)))
    }

    /// Check that the functions of a file have the hue of the file, that files differ, and that roots,
    /// runtimes and standard libraries have colors of their own.
    #[test]
    fn files_have_their_hues() {
        let names = [
            name("server (41)", None),
            name("main", Some("server")),
            name("serve", Some("server")),
            name("parse", Some("libparse.so.1")),
            name("malloc", Some("libc.so.6")),
            name("std::vector<int>::push_back(int&&)", Some("server")),
            name("std::f()", Some("libparse.so.1")),
        ];
        let colors = colors(&names);
        let families: Vec<_> = (0..7).map(|it| colors.color(it) / SHADES.len()).collect();
        assert_eq!(families[0], ROOT);
        assert_eq!(families[1], families[2]);
        assert_ne!(families[1], families[3]);
        assert!(families[1] < ROOT && families[3] < ROOT);
        assert_eq!(families[4..], [RUNTIME, PLUMBING, PLUMBING]);
        let legend: Vec<_> = colors.legend.iter().map(|(_, it)| it.as_str()).collect();
        assert_eq!(
            legend,
            [
                "server",
                "wrappers and library plumbing",
                "C and C++ runtime",
                "libparse.so.1"
            ]
        );
    }

    /// Check that functions of Python have a color of their own, whatever their files, and are in the legend.
    #[test]
    fn python_has_its_hue() {
        let python = |text: &str, file: &str| Name {
            language: Some(Language::Python),
            ..name(text, Some(file))
        };
        let names = [
            name("list_append", Some("python3.11")),
            python("load", "app.py"),
            python("main", "server.py"),
            python("std::f", "libc.so"),
        ];
        let colors = colors(&names);
        let families: Vec<_> = (0..4).map(|it| colors.color(it) / SHADES.len()).collect();
        assert!(families[0] < ROOT);
        assert_eq!(families[1..], [PYTHON; 3]);
        let legend: Vec<_> = colors.legend.iter().map(|(_, it)| it.as_str()).collect();
        assert_eq!(legend, ["Python functions", "python3.11"]);
    }

    /// Check that generated code has a color of its own, and is in the legend.
    #[test]
    fn generated_code_has_its_hue() {
        let generated = Name {
            language: Some(Language::Jit),
            ..name("f", None)
        };
        let colors = colors(&[generated, name("main", Some("server"))]);
        assert_eq!(colors.color(0) / SHADES.len(), JIT);
        assert!(colors.color(1) / SHADES.len() < ROOT);
        assert_eq!(colors.legend[0].1, "generated code");
    }

    /// Check that as many files as there are hues have different hues, and that more files are drawn, too.
    #[test]
    fn hues_are_shared_last() {
        let names = |files: u32| -> Vec<_> {
            let file = |it| name("f", Some(&format!("lib{it}.so")));
            (0..files).map(file).collect()
        };
        for files in [HUES.len() as u32, 100] {
            let colors = colors(&names(files));
            let hues: HashSet<_> = (0..files)
                .map(|it| colors.color(it) / SHADES.len())
                .collect();
            assert_eq!(hues.len(), HUES.len());
            assert!(colors.legend.len() <= MOST_KEYS);
        }
    }

    /// Check that each text can be read on each color: a contrast of at least 4.5, as WCAG asks for.
    #[test]
    fn texts_have_contrast() {
        // The relative luminance of WCAG 2.
        let luminance = |rgb: [f64; 3]| {
            let linear = rgb.map(|it| {
                if it <= 0.04045 {
                    it / 12.92
                } else {
                    ((it + 0.055) / 1.055).powf(2.4)
                }
            });
            0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
        };
        let rgb = |hue: f64, saturation: f64, lightness: f64| {
            [0.0, 8.0, 4.0].map(|n| {
                let k = (n + hue / 30.0) % 12.0;
                let a = saturation * lightness.min(1.0 - lightness);
                lightness - a * (k - 3.0).min(9.0 - k).clamp(-1.0, 1.0)
            })
        };
        for (is_dark, text) in [(false, [0.1; 3]), (true, [0.95; 3])] {
            let style = style(is_dark);
            let mut count = 0;
            for color in style.split("hsl(").skip(1) {
                let (color, _) = color.split_once(')').unwrap();
                let numbers: Vec<f64> = color
                    .split(',')
                    .map(|it| it.trim_end_matches('%').parse().unwrap())
                    .collect();
                let fill = luminance(rgb(numbers[0], numbers[1] / 100.0, numbers[2] / 100.0));
                let text = luminance(text);
                let contrast = (fill.max(text) + 0.05) / (fill.min(text) + 0.05);
                assert!(contrast >= 4.5, "{color}: {contrast}");
                count += 1;
            }
            assert_eq!(count, FAMILIES * SHADES.len());
        }
    }
}
