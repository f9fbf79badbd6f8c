//! What all charts share: colours that follow the page, two widths, names for those who hear it.
//!
//! plotters writes colours as numbers. The charts draw in numbers that mean roles, and [`figure`] puts the style
//! sheet's variables in their place, so one drawing serves light and dark.

use maud::{Markup, PreEscaped, html};
use plotters::coord::Shift;
use plotters::prelude::*;

/// Where charts are drawn.
pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// Why a chart could not be drawn: text that cannot be written, coordinates out of range.
pub(super) type Failed = Box<dyn std::error::Error>;

/// Text and axes.
pub(super) const INK: RGBColor = RGBColor(1, 0, 0);
/// Text that matters less.
pub(super) const MUTED: RGBColor = RGBColor(1, 0, 1);
/// Lines of the grid.
pub(super) const GRID: RGBColor = RGBColor(1, 0, 2);
/// Bars of what belongs to no series.
pub(super) const REST: usize = 0;
/// Colours of series; more than these begin again with the first.
const SERIES: usize = 7;

/// Size of the letters of a chart: plotters writes font-size as this divided by 1.24.
pub(super) const LETTERS: f64 = 16.0;
/// About how wide a letter is.
pub(super) const LETTER_WIDTH: f64 = 6.7;

/// The colour of a series, to draw with.
pub(super) fn series(at: usize) -> RGBColor {
    RGBColor(1, 1, slot(at))
}

/// The same for the style sheet.
pub(super) fn css(at: usize) -> String {
    format!("var(--s{})", slot(at))
}

fn slot(at: usize) -> u8 {
    // At most 7: it fits.
    if at == REST {
        0
    } else {
        ((at - 1) % SERIES + 1) as u8
    }
}

/// Text of a chart.
pub(super) fn letters(colour: RGBColor) -> TextStyle<'static> {
    ("sans-serif", LETTERS).into_font().color(&colour)
}

/// A chart, drawn twice: for screens and for phones. `name` is what it shows, for those who do not see it; the drawing gets
/// the area and its width, and `height` gets the width. `None` where it could not be drawn.
pub(super) fn figure(
    name: &str,
    height: impl Fn(u32) -> u32,
    draw: impl Fn(&Area<'_>, u32) -> Result<(), Failed>,
) -> Option<Markup> {
    let mut drawn = Vec::new();
    for (class, width) in [("wide", 800), ("narrow", 360)] {
        let mut svg = String::new();
        {
            let area =
                SVGBackend::with_string(&mut svg, (width, height(width))).into_drawing_area();
            draw(&area, width).ok()?;
            area.present().ok()?;
        }
        drawn.push(dress(&svg, class, name, width, height(width)));
    }
    Some(html! { figure { @for svg in &drawn { (PreEscaped(svg)) } } })
}

/// The drawing with the page's colours, its name, and a size that follows the page.
fn dress(svg: &str, class: &str, name: &str, width: u32, height: u32) -> String {
    let body = svg
        .find("<svg")
        .and_then(|at| Some(&svg[at + svg[at..].find('>')? + 1..]));
    let mut body = body.unwrap_or_default().to_owned();
    for (colour, variable) in [(INK, "--ink"), (MUTED, "--muted"), (GRID, "--grid")] {
        body = body.replace(&written(colour), &format!("\"var({variable})\""));
    }
    for at in 0..=SERIES {
        body = body.replace(&written(series(at)), &format!("\"{}\"", css(at)));
    }
    let name = html! { (name) }.into_string();
    format!(
        "<svg class=\"{class}\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{name}\" \
         xmlns=\"http://www.w3.org/2000/svg\"><title>{name}</title>{body}"
    )
}

/// As plotters writes a colour.
fn written(RGBColor(r, g, b): RGBColor) -> String {
    format!("\"#{r:02X}{g:02X}{b:02X}\"")
}

/// At most `most` of the numbers: each the mean of its neighbours.
pub(super) fn thinned(numbers: &[f64], most: usize) -> Vec<f64> {
    let each = numbers.len().div_ceil(most.max(1)).max(1);
    numbers
        .chunks(each)
        .map(|chunk| chunk.iter().sum::<f64>() / chunk.len() as f64)
        .collect()
}

/// The text, cut to a width in units of the drawing.
pub(super) fn fit(text: &str, width: f64) -> String {
    super::super::layout::cut(text, (width / LETTER_WIDTH) as usize)
}
