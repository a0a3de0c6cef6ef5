//! Parsers for option values that are one of a few names, as clap defines them.
//!
//! Part of the command line. Must not know the options.

use clap::builder::{PossibleValuesParser, TypedValueParser as _};

use super::invocation::{Color, Format, MapFormat};
use crate::config::Probes;
use crate::output::{
    DiffFormat, ExportFormat, Label, MapColor, Metric, ShownLanguages, SourceChoice,
    TimelineFormat, WantedMark,
};

/// A parser for one of a few names. clap lists the names in help and errors.
fn one_of<T: Clone + Send + Sync + 'static>(
    choices: Vec<(&'static str, T)>,
) -> impl clap::builder::TypedValueParser<Value = T> {
    let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
    PossibleValuesParser::new(names).try_map(move |given| {
        choices
            .iter()
            .find(|(name, _)| *name == given)
            .map(|(_, value)| value.clone())
            // Can't fail: clap has checked the name against the same list.
            .ok_or_else(|| format!("{given}: no such choice"))
    })
}

/// A mark, by its number or `last`.
pub(super) fn mark(text: &str) -> Result<WantedMark, String> {
    match text.parse() {
        Ok(number @ 1..) => Ok(WantedMark::Number(number)),
        _ if text == "last" => Ok(WantedMark::Last),
        _ => Err("write the number of a mark, from 1 on, or last".to_owned()),
    }
}

pub(super) fn metric() -> impl clap::builder::TypedValueParser<Value = Metric> {
    one_of(Metric::ALL.map(|metric| (metric.name(), metric)).to_vec())
}

pub(super) fn by(labels: &[Label]) -> impl clap::builder::TypedValueParser<Value = Label> + use<> {
    let names: Vec<_> = labels.iter().map(|label| label.name()).collect();
    let wanted = labels.to_vec();
    clap::builder::NonEmptyStringValueParser::new().try_map(move |given: String| {
        let found = Label::from_name(&given).filter(|label| wanted.contains(label));
        found.ok_or_else(|| format!("use one of {}", names.join(", ")))
    })
}

pub(super) fn language(text: &str) -> Result<ShownLanguages, String> {
    let found = ShownLanguages::from_name(text);
    found.ok_or_else(|| format!("use one of {}", ShownLanguages::names().join(", ")))
}

pub(super) fn source(text: &str) -> Result<SourceChoice, String> {
    match text {
        "" => Err("the pattern is empty; write it as --source=GLOB".to_owned()),
        _ => Ok(SourceChoice::new(text)),
    }
}

pub(super) fn format() -> impl clap::builder::TypedValueParser<Value = Format> {
    one_of(vec![("text", Format::Text), ("json", Format::Json)])
}

pub(super) fn export_format() -> impl clap::builder::TypedValueParser<Value = ExportFormat> {
    one_of(ExportFormat::ALL.map(|it| (it.name(), it)).to_vec())
}

pub(super) fn diff_format() -> impl clap::builder::TypedValueParser<Value = DiffFormat> {
    one_of(vec![
        ("text", DiffFormat::Text),
        ("json", DiffFormat::Json),
        ("flamegraph", DiffFormat::Flamegraph),
    ])
}

pub(super) fn timeline_metric() -> impl clap::builder::TypedValueParser<Value = Metric> {
    one_of(Metric::OF_SNAPSHOTS.map(|it| (it.name(), it)).to_vec())
}

pub(super) fn timeline_format() -> impl clap::builder::TypedValueParser<Value = TimelineFormat> {
    one_of(vec![
        ("text", TimelineFormat::Text),
        ("svg", TimelineFormat::Svg),
        ("csv", TimelineFormat::Csv),
        ("json", TimelineFormat::Json),
    ])
}

pub(super) fn map_format() -> impl clap::builder::TypedValueParser<Value = MapFormat> {
    one_of(vec![
        ("text", MapFormat::Text),
        ("svg", MapFormat::Svg),
        ("json", MapFormat::Json),
    ])
}

pub(super) fn map_color() -> impl clap::builder::TypedValueParser<Value = MapColor> {
    one_of(vec![
        ("site", MapColor::Site),
        ("type", MapColor::Type),
        ("age", MapColor::Age),
        ("fullness", MapColor::Fullness),
    ])
}

pub(super) fn color() -> impl clap::builder::TypedValueParser<Value = Color> {
    one_of(vec![
        ("auto", Color::Auto),
        ("always", Color::Always),
        ("never", Color::Never),
    ])
}

pub(super) fn probes() -> impl clap::builder::TypedValueParser<Value = Probes> {
    one_of(vec![("full", Probes::Full), ("empty", Probes::Empty)])
}
