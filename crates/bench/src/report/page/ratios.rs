//! Bars of ratios with their intervals: a line of text a bar, so that nothing needs a column beside.

use maud::{Markup, html};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::chart::{self, Area, Failed, GRID, INK, MUTED, fit, letters, series};
use super::store_colour;
use crate::model::{Comparison, Report};
use crate::words;

/// Beyond this the axis ends: bars that reach it go on, and their numbers say how far.
const FARTHEST: f64 = 4.0;
const WORK: i32 = 26;
const BAR: i32 = 36;
const FOOT: i32 = 24;
/// Where the bar itself begins, below its words.
const BAR_TOP: i32 = 17;

pub(super) fn chart(report: &Report) -> Markup {
    let works = works(report);
    let height = (works
        .iter()
        .map(|(_, of)| WORK + BAR * of.len() as i32 + 6)
        .sum::<i32>()
        + FOOT) as u32;
    let name = format!(
        "Ratios to {}: the table below has the numbers",
        report.comparisons[0].base
    );
    let drawn = chart::figure(
        &name,
        |_| height,
        |area, width| draw(area, width as i32, height as i32, report, &works),
    );
    drawn.unwrap_or(html! {})
}

fn works(report: &Report) -> Vec<(&str, Vec<&Comparison>)> {
    crate::report::grouped(&report.comparisons, |of| &of.work)
}

/// From where to where lines of the axis are drawn: beside the bars only, so that none crosses a word.
fn bands(works: &[(&str, Vec<&Comparison>)]) -> Vec<(i32, i32)> {
    let mut bands = Vec::new();
    let mut y = 0;
    for (_, of) in works {
        y += WORK;
        for _ in of {
            bands.push((y + BAR_TOP - 2, y + BAR));
            y += BAR;
        }
        y += 6;
    }
    bands
}

fn draw(
    area: &Area<'_>,
    width: i32,
    height: i32,
    report: &Report,
    works: &[(&str, Vec<&Comparison>)],
) -> Result<(), Failed> {
    let most = report
        .comparisons
        .iter()
        .filter_map(|of| of.high)
        .fold(1.1, f64::max)
        .min(FARTHEST);
    let end = f64::from(width - 12);
    let x = |ratio: f64| (1.0 + ratio.clamp(0.0, most) / most * (end - 1.0)) as i32;
    let bottom = height - FOOT;
    // The axis: quarters, or halves or wholes where quarters are too close.
    let step = [0.25, 0.5, 1.0]
        .into_iter()
        .find(|step| step / most * end >= 44.0)
        .unwrap_or(1.0);
    let label = letters(MUTED).pos(Pos::new(HPos::Center, VPos::Top));
    let bands = bands(works);
    for at in 0..=(most / step) as i32 {
        let ratio = f64::from(at) * step;
        let line = if ratio == 1.0 {
            INK.stroke_width(1)
        } else {
            GRID.stroke_width(1)
        };
        for (top, end) in &bands {
            area.draw(&PathElement::new(
                vec![(x(ratio), *top), (x(ratio), *end)],
                line,
            ))?;
        }
        let place = if at == 0 {
            letters(MUTED).pos(Pos::new(HPos::Left, VPos::Top))
        } else {
            label.clone()
        };
        area.draw(&Text::new(
            format!("{ratio}"),
            (x(ratio), bottom + 5),
            place,
        ))?;
    }
    let mut y = 0;
    for (work, of) in works {
        area.draw(&Text::new(fit(work, end), (4, y + 8), letters(INK)))?;
        y += WORK;
        for of in of {
            one(area, end, y, &x, of, store_colour(report, &of.other))?;
            y += BAR;
        }
        y += 6;
    }
    Ok(())
}

fn one(
    area: &Area<'_>,
    end: f64,
    y: i32,
    x: &impl Fn(f64) -> i32,
    of: &Comparison,
    colour: usize,
) -> Result<(), Failed> {
    let said = match &of.invalid {
        Some(why) => format!("{}: INVALID, {why}", of.other),
        None => format!("{}: {}", of.other, words::comparison(of)),
    };
    area.draw(&Text::new(fit(&said, end), (4, y), letters(MUTED)))?;
    let (Some(ratio), Some(low), Some(high), None) = (of.ratio, of.low, of.high, &of.invalid)
    else {
        return Ok(());
    };
    // Pale where the difference is inside the noise.
    let paint = series(colour).mix(if of.differs { 0.85 } else { 0.35 });
    area.draw(&Rectangle::new(
        [(x(0.0), y + BAR_TOP), (x(ratio), y + BAR_TOP + 12)],
        paint.filled(),
    ))?;
    let line = INK.stroke_width(2);
    area.draw(&PathElement::new(
        vec![(x(low), y + 23), (x(high), y + 23)],
        line,
    ))?;
    for end in [low, high] {
        area.draw(&PathElement::new(
            vec![(x(end), y + 18), (x(end), y + 28)],
            line,
        ))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    /// What failed: the line at 1 went from top to bottom, through every label.
    #[test]
    fn no_line_of_the_axis_crosses_a_label() {
        let report = sample::compare();
        let works = works(&report);
        let bands = bands(&works);
        let mut y = 0;
        for (_, of) in &works {
            // The height of a line of text, from its upper edge.
            let mut labels = vec![(y + 8, y + 8 + 13)];
            y += WORK;
            for _ in of {
                labels.push((y, y + 13));
                y += BAR;
            }
            y += 6;
            for (top, end) in labels {
                for (from, to) in &bands {
                    assert!(
                        *to <= top || *from >= end,
                        "{from}..{to} crosses {top}..{end}"
                    );
                }
            }
        }
        assert_eq!(bands.len(), report.comparisons.len());
    }
}
