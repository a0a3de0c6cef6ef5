//! A file for speedscope: a profile of weighted stacks for each metric.
//!
//! Stage: output. The format is described by the JSON schema that speedscope's package has.

use std::io::Write;

use serde::Serialize;

use crate::output::error::OutputError;
use crate::output::json_escaping::write_value;
use crate::output::metric::Metric;
use crate::output::report_input::ReportInput;
use crate::output::stacks::Stacks;
use crate::text::escape;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File<'a> {
    exporter: String,
    #[serde(rename = "$schema")]
    schema: &'static str,
    name: &'a str,
    active_profile_index: usize,
    shared: Shared<'a>,
    profiles: Vec<Profile>,
}

#[derive(Serialize)]
struct Shared<'a> {
    frames: Vec<Frame<'a>>,
}

#[derive(Serialize)]
struct Frame<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Profile {
    r#type: &'static str,
    name: String,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    samples: Vec<Vec<u32>>,
    weights: Vec<u64>,
}

/// Writes all metrics that are not zero everywhere; this one is shown first.
pub(super) fn write(
    input: &ReportInput<'_>,
    first: Metric,
    out: &mut dyn Write,
) -> Result<(), OutputError> {
    let mut stacks = Stacks::new(input);
    let nodes: Vec<_> = input.profile.sites.iter().map(|it| stacks.of(it)).collect();
    let is_sampled = input.profile.info.mode.is_sampled();
    let (mut profiles, mut active) = (Vec::new(), 0);
    for metric in Metric::ALL {
        let values = input.profile.sites.iter().map(|it| metric.of(&it.totals));
        let weighted = nodes.iter().zip(values).filter(|(_, value)| *value > 0);
        let (samples, weights): (Vec<_>, Vec<_>) = weighted
            .map(|(node, value)| (stacks.path(*node), value))
            .unzip();
        if samples.is_empty() {
            continue;
        }
        if metric == first {
            active = profiles.len();
        }
        profiles.push(Profile {
            r#type: "sampled",
            name: match is_sampled {
                true => format!("{} (estimate)", metric.title()),
                false => metric.title().to_owned(),
            },
            unit: if metric.is_bytes() { "bytes" } else { "none" },
            start_value: 0,
            end_value: weights.iter().fold(0, |sum, it| sum.saturating_add(*it)),
            samples,
            weights,
        });
    }
    if profiles.is_empty() {
        return Err(OutputError::Nothing);
    }
    let some = |text: &'_ str| !text.is_empty();
    let frames = stacks.places.iter().map(|place| Frame {
        name: &place.name,
        file: Some(match place.file.as_str() {
            "" => place.module.as_str(),
            file => file,
        })
        .filter(|file| some(file)),
        line: Some(place.line).filter(|line| *line > 0),
    });
    let file = File {
        exporter: format!("heaptrace {}", input.profile.info.version),
        schema: "https://www.speedscope.app/file-format-schema.json",
        name: &escape(&input.profile.info.target),
        active_profile_index: active,
        shared: Shared {
            frames: frames.collect(),
        },
        profiles,
    };
    Ok(write_value(&file, out)?)
}
