//! Tests of the types of blocks in every format.

use std::io::Read as _;

use flate2::read::GzDecoder;
use prost::Message as _;

use super::{EVIL, assert_printable, sample, snapshot, text, written};
use crate::join::{BlockSizes, Bucket, Errors, Kind, SiteId, StackId, Tally, Usage};
use crate::output::folded::Folder;
use crate::output::{
    Export, ExportFormat, Filter, Format, Grouping, Label, Metric, ReportInput, ReportOptions,
    find_types, groups, proto, select, write_types, write_types_json,
};
use crate::profile::{BlockType, LiveClass, Mode, Profile, Symbols, Way};

/// A type with a name that is too long for a table.
const LONG: &str = "std::unordered_map<std::string, shop::Shelf<std::vector<shop::Item>, shop::ByPrice<shop::Currency>>> (nodes)";

/// A profile with blocks of three types, blocks without one, and mapped memory.
fn profile() -> Profile {
    let mut profile = sample::profile();
    let sizes = |smallest, largest| Some(BlockSizes { smallest, largest });
    profile.sites[0].block_sizes = sizes(1_000, 1_000);
    profile.sites[1].block_sizes = sizes(64, 64);
    // A header of 16 bytes, and one to three elements.
    profile.sites[2].block_sizes = sizes(16 + 984, 16 + 3 * 984);
    profile.sites[4].kind = Kind::Mapped;
    for (slot, site) in (0..).zip(&mut profile.sites) {
        site.slot = SiteId(slot);
    }
    profile
}

fn symbols() -> Symbols {
    let mut symbols = sample::symbols();
    let block_type = |name: &str, element: &str, bytes, header, way| BlockType {
        name: name.to_owned(),
        element: element.to_owned(),
        element_bytes: bytes,
        header_bytes: header,
        is_capacity: way == Way::Frames,
        way,
    };
    let evil = format!("{EVIL}<int>");
    symbols.types.types = vec![
        block_type(
            "std::vector<shop::Order>",
            "shop::Order",
            40,
            0,
            Way::Frames,
        ),
        block_type(&evil, EVIL, 0, 0, Way::Constructor),
        block_type(LONG, "shop::Item", 984, 16, Way::Dataflow),
    ];
    symbols.types.of_stacks = (0..3).map(|id| (StackId(id), id)).collect();
    // A mapping has no type.
    symbols.types.of_stacks.insert(StackId(4), 0);
    symbols
}

fn grouping(by: Label, top: Option<usize>) -> Grouping {
    Grouping {
        by,
        metric: Metric::LiveBytes,
        cumulative: true,
        top,
    }
}

fn filtered(words: &str) -> Vec<u32> {
    let filter: Filter = words.parse().unwrap();
    let found = select(profile(), &symbols(), &[filter]);
    found.sites.iter().map(|site| site.stack.0).collect()
}

/// The text of `heaptrace types` at a width.
fn types(profile: &Profile, symbols: &Symbols, width: usize) -> String {
    let input = ReportInput::new(profile, symbols);
    let options = ReportOptions {
        width: Some(width),
        ..ReportOptions::default()
    };
    let found = find_types(&input, Label::Type, options.metric, Some(options.top));
    let mut out = Vec::new();
    write_types(&input, &found, &options, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn json(profile: &Profile, symbols: &Symbols, by: Label) -> serde_json::Value {
    let input = ReportInput::new(profile, symbols);
    let found = find_types(&input, by, Metric::LiveBytes, None);
    let mut out = Vec::new();
    write_types_json(&input, &found, &mut out).unwrap();
    serde_json::from_slice(&out).unwrap()
}

/// Lifetimes of 3 to 3.5 and of 12 to 14 µs.
fn with_lifetimes(mut profile: Profile) -> Profile {
    let bucket = |index, count| Bucket {
        index,
        blocks: Tally {
            count,
            ..Tally::default()
        },
    };
    let usage = Usage {
        lifetimes: vec![bucket(42, 30), bucket(50, 10)],
        ..Usage::default()
    };
    profile.usages.insert(SiteId(0), usage);
    profile
}

/// Check the list of types and the groups at the widths of terminals, with long and hostile names, with and without lifetimes.
#[test]
fn types_as_text() {
    let symbols = symbols();
    let mut whole = String::new();
    for (width, profile) in [(80, profile()), (120, with_lifetimes(profile()))] {
        whole.push_str(&types(&profile, &symbols, width));
        whole.push_str("\n----\n\n");
        let input = ReportInput {
            grouping: Some(grouping(Label::Type, None)),
            ..ReportInput::new(&profile, &symbols)
        };
        let options = ReportOptions {
            top: 2,
            width: Some(width),
            ..ReportOptions::default()
        };
        whole.push_str(&text(&Format::Text(options), &input));
        whole.push_str("\n----\n\n");
        let input = ReportInput::new(&profile, &symbols);
        let options = ReportOptions { top: 5, ..options };
        whole.push_str(&text(&Format::Text(options), &input));
        whole.push_str("\n----\n\n");
    }
    assert_printable(&whole);
    for line in whole.lines().filter(|it| !it.starts_with("heaptrace")) {
        assert!(line.chars().count() <= 120, "{line}");
    }
    snapshot("types.txt", &whole);
}

/// Check that a site's JSON has the type and the elements, and that what is not known of it is absent.
#[test]
fn sites_have_types_in_json() {
    let (profile, symbols) = (profile(), symbols());
    let input = ReportInput::new(&profile, &symbols);
    let found: serde_json::Value = serde_json::from_str(&text(&Format::Json, &input)).unwrap();
    let sites = found["sites"].as_array().unwrap();
    let sizes = |site: &serde_json::Value| site.get("block_sizes").map(|it| it["largest"].clone());
    assert_eq!(sizes(&sites[1]), Some(2_968.into()));
    assert_eq!(sites.iter().filter_map(sizes).count(), 3);
    let of = |bytes: u64, allocations: u64| {
        let is_it = |it: &&serde_json::Value| {
            it["totals"]["live_bytes"] == bytes && it["totals"]["allocations"] == allocations
        };
        &sites.iter().find(is_it).unwrap()["type"]
    };
    let vector = of(100_000, 1_000);
    assert_eq!(vector["name"], "std::vector<shop::Order>");
    assert_eq!(vector["element"], "shop::Order");
    assert_eq!(
        (&vector["count"], &vector["way"]),
        (&25.into(), &"frames".into())
    );
    assert_eq!(vector["is_capacity"], true);
    assert_eq!(vector["live_elements"], 2_500);
    assert_eq!(vector["allocated_elements"], 25_000);
    assert_eq!(vector.get("live_elements_error"), None);
    // The size of an element is not known.
    let evil = of(640, 10);
    assert_eq!(evil["way"], "constructor");
    assert_eq!((evil.get("count"), evil.get("live_elements")), (None, None));
    // Blocks have different sizes: what each holds is not known, but all together.
    let nodes = of(20_000, 200);
    assert_eq!(
        (nodes.get("count"), &nodes["live_elements"]),
        (None, &20.into())
    );
    assert_eq!(
        (nodes["name"].as_str(), &nodes["is_capacity"]),
        (Some(LONG), &false.into())
    );
    assert_eq!(
        sites.iter().filter(|it| it.get("type").is_some()).count(),
        3
    );
}

/// Check that a number of elements is given only if blocks hold whole ones, and not for files without sizes.
#[test]
fn elements_are_whole() {
    let symbols = symbols();
    let count = |smallest, largest| {
        let mut profile = profile();
        profile.sites[0].block_sizes = Some(BlockSizes { smallest, largest });
        let found = json(&profile, &symbols, Label::Type);
        found["types"][0]["live_elements"]["count"].as_u64()
    };
    assert_eq!(count(1_000, 1_000), Some(2_500));
    assert_eq!(count(40, 2_000), Some(2_500));
    assert_eq!(count(41, 2_000), None);
    assert_eq!(count(40, 2_001), None);
    let mut older = profile();
    older.sites[0].block_sizes = None;
    let found = json(&older, &symbols, Label::Type);
    assert_eq!(found["types"][0].get("live_elements"), None);
}

/// Check that types are listed by whole types and by elements, with their shares, and that what has no type is always there.
#[test]
fn types_as_json() {
    let (profile, mut symbols) = (with_lifetimes(profile()), symbols());
    let found = json(&profile, &symbols, Label::Type);
    let list = found["types"].as_array().unwrap();
    let names: Vec<_> = list.iter().map(|it| it["name"].as_str().unwrap()).collect();
    let evil = format!("{EVIL}<int>");
    assert_eq!(
        names,
        [
            "std::vector<shop::Order>",
            LONG,
            &evil,
            "(mapped memory)",
            "(unknown)"
        ]
    );
    assert_eq!(found["all_types"], 3);
    assert_eq!(found["found"]["frames"], 100_000);
    assert_eq!(
        (&found["found"]["unknown"], &found["found"]["mapped"]),
        (&0.into(), &5.into())
    );
    assert_eq!(list[0]["made_by"]["stack"][0]["function"], "grab");
    assert_eq!(
        (&list[0]["stacks"], &list[0]["sites"]),
        (&1.into(), &1.into())
    );
    // The middles of the two buckets, 30 and 10 times.
    let mean = list[0]["lifetime"]["mean_ns"].as_u64().unwrap();
    assert!((5_000..7_000).contains(&mean), "{mean}");
    assert_eq!(list[1].get("lifetime"), None);

    // Two containers of the same element are one.
    symbols.types.types[0].element = "shop::Item".to_owned();
    let found = json(&profile, &symbols, Label::Element);
    assert_eq!(found["types"][0]["name"], "shop::Item");
    assert_eq!(found["types"][0]["totals"]["live_bytes"], 120_000);
    assert_eq!(found["types"][0]["live_elements"]["count"], 2_520);
}

/// Check that the group without a type is shown in any case, and that no other label has one.
#[test]
fn unknown_types_stay_in_sight() {
    let (profile, symbols) = (profile(), symbols());
    let input = ReportInput::new(&profile, &symbols);
    let names = |by, metric| {
        let grouping = Grouping {
            metric,
            ..grouping(by, Some(1))
        };
        let (groups, _) = groups(&input, grouping);
        groups.into_iter().map(|it| it.name).collect::<Vec<_>>()
    };
    let metric = Metric::TotalBytes;
    assert_eq!(
        names(Label::Type, metric),
        ["std::vector<shop::Order>", "(unknown)"]
    );
    assert_eq!(names(Label::Element, metric), ["shop::Order", "(unknown)"]);
    assert_eq!(names(Label::Process, metric), ["server"]);
}

/// Check that filters select by the type and by the element, also what has none.
#[test]
fn types_are_filtered() {
    for (words, expected) in [
        ("type=std::vector<*", &[0][..]),
        ("type~^std::", &[0, 2]),
        ("element=shop::*", &[0, 2]),
        ("type=(unknown)", &[3]),
        ("type=\"(mapped memory)\"", &[4]),
        ("not type=std::* and kind=heap", &[1, 3]),
        ("type=std::vector<* or type=(unknown)", &[0, 3]),
        ("type=Vec<*", &[]),
    ] {
        assert_eq!(filtered(words), expected, "{words}");
    }
}

/// Check that pprof has labels and CSV has columns of types, escaped.
#[test]
fn other_formats_have_types() {
    let (profile, symbols) = (profile(), symbols());
    let input = ReportInput::new(&profile, &symbols);
    let mut bytes = Vec::new();
    GzDecoder::new(&*written(&Format::Pprof, &input))
        .read_to_end(&mut bytes)
        .unwrap();
    let pprof = proto::Profile::decode(&*bytes).unwrap();
    let string = |id: i64| pprof.string_table[id as usize].as_str();
    let labels = pprof.sample.iter().map(|sample| {
        let label = sample.label.iter().find(|it| string(it.key) == "type");
        string(label.unwrap().str)
    });
    let labels: Vec<_> = labels.collect();
    assert_eq!(labels[0], "std::vector<shop::Order>");
    assert_eq!(labels[3..], ["(unknown)", "(mapped memory)"]);
    assert_printable(labels[1]);

    let csv = Format::Export(Export {
        format: ExportFormat::Csv,
        metric: Metric::LiveBytes,
        is_compressed: false,
    });
    let csv = text(&csv, &input);
    let mut lines = csv.lines();
    assert!(lines.next().unwrap().ends_with(",stack,type,element"));
    let first = lines.next().unwrap();
    assert!(
        first.ends_with(",std::vector<shop::Order>,shop::Order"),
        "{first}"
    );
    assert_printable(&csv);

    // Without any type, there are no labels.
    let symbols = sample::symbols();
    let pprof = written(&Format::Pprof, &ReportInput::new(&profile, &symbols));
    bytes.clear();
    GzDecoder::new(&*pprof).read_to_end(&mut bytes).unwrap();
    let pprof = proto::Profile::decode(&*bytes).unwrap();
    assert!(!pprof.string_table.iter().any(|it| it == "(unknown)"));
}

/// Check that a flame graph has types at its root or as innermost frames, and neither unless it is asked for.
#[test]
fn flame_graphs_have_types() {
    let (profile, symbols) = (profile(), symbols());
    let names = |by: Option<Label>, with_types| {
        let input = ReportInput {
            grouping: by.map(|by| grouping(by, None)),
            with_types,
            ..ReportInput::new(&profile, &symbols)
        };
        let mut folder = Folder::new(&input);
        let folded = folder.fold(Metric::TotalBytes, 0.0).unwrap();
        let frames = folded.frames.iter();
        let frames = frames.map(|it| {
            let is_leaf = it.own > 0;
            (
                it.depth,
                is_leaf,
                folder.names()[it.name as usize].text.clone(),
            )
        });
        frames.collect::<Vec<_>>()
    };
    let vector = "[std::vector<shop::Order>]";
    assert!(
        !names(None, false)
            .iter()
            .any(|it| it.2.contains("vector<shop"))
    );
    let leaves = names(None, true);
    assert!(leaves.iter().any(|it| it.1 && it.2 == vector), "{leaves:?}");
    assert!(
        leaves.iter().any(|it| it.1 && it.2 == "[mmap]"),
        "{leaves:?}"
    );
    let roots = names(Some(Label::Type), false);
    let root = (0, false, "std::vector<shop::Order>".to_owned());
    assert!(roots.contains(&root), "{roots:?}");
}

/// Check that a sampled run has errors of its elements, and says what a sample can't tell.
#[test]
fn samples_have_errors() {
    let (mut profile, symbols) = (profile(), symbols());
    profile.info.mode = Mode::Sampled {
        mean_bytes: 512 << 10,
    };
    let site = &mut profile.sites[0].totals;
    site.live_bytes = 100_013;
    site.errors = Errors {
        live_bytes: 20_000,
        ..Errors::default()
    };
    let found = json(&profile, &symbols, Label::Type);
    let elements = &found["types"][0]["live_elements"];
    assert_eq!(
        (&elements["count"], &elements["count_error"]),
        (&2_500.into(), &500.into())
    );
    assert!(found["types"][0]["totals"]["live_bytes_low"].is_u64());
    let shown = types(&profile, &symbols, 80);
    for line in shown.lines().filter(|it| !it.starts_with("heaptrace")) {
        assert!(line.chars().count() <= 80, "{line}");
    }
    for part in ["2,500 ± 500", "a sample: ", " to "] {
        assert!(shown.contains(part), "{part} is not in:\n{shown}");
    }
}

/// Check that files without types say so.
#[test]
fn files_without_types_say_so() {
    let (profile, symbols) = (sample::profile(), sample::symbols());
    let shown = types(&profile, &symbols, 80);
    assert!(shown.contains("no type is known"), "{shown}");
    assert!(shown.contains("(unknown) 100.0 %"), "{shown}");
    let found = json(&profile, &symbols, Label::Type);
    assert_eq!(found["types"].as_array().unwrap().len(), 1);
    assert_eq!(found["types"][0]["is_known"], false);
}

/// Check that classes of live blocks are listed with their shares, safe to print and within the width, and that a run without them has no such list.
#[test]
fn classes_of_live_blocks_are_listed() {
    let class = |name: &str, blocks, bytes| LiveClass {
        name: name.to_owned(),
        blocks,
        bytes,
    };
    let mut symbols = symbols();
    symbols.types.classes = vec![
        class("", 10, 2_000),
        class(LONG, 20, 1_000),
        class(EVIL, 3, 1_000),
    ];
    for width in [80, 120] {
        let text = types(&profile(), &symbols, width);
        assert_printable(&text);
        let (_, list) = text.split_once("ive blocks by what was in them").unwrap();
        let (list, _) = list.split_once("\n\n  of live bytes").unwrap();
        let lines: Vec<_> = list.lines().collect();
        assert!(lines.iter().all(|it| it.chars().count() <= width), "{list}");
        assert!(
            lines.iter().any(|it| it.contains("25.0 %        20  ")),
            "{list}"
        );
        assert!(
            lines
                .last()
                .unwrap()
                .ends_with("50.0 %        10  (unknown)"),
            "{list}"
        );
    }
    let found = json(&profile(), &symbols, Label::Type);
    let classes = found["live_classes"].as_array().unwrap();
    assert_eq!((classes.len(), classes[0].get("name")), (3, None));
    assert_eq!(classes[1]["name"], LONG);
    symbols.types.classes.clear();
    assert!(!types(&profile(), &symbols, 80).contains("ive blocks by"));
    assert_eq!(
        json(&profile(), &symbols, Label::Type).get("live_classes"),
        None
    );
}
