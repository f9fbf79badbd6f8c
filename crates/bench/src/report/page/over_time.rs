//! The rate over time: rounds one after the other, pale where slices were cut off.

use maud::{Markup, html};
use plotters::prelude::*;

use super::chart::{self, Area, Failed, GRID, MUTED, letters, series, thinned};
use super::store_colour;
use crate::model::{Report, Row};
use crate::words::significant;

/// Slices drawn of a round at most.
const SLICES: usize = 60;

/// Part of a store's line: what was cut off of a round, or what was kept.
struct Piece {
    points: Vec<(f64, f64)>,
    colour: usize,
    pale: bool,
}

pub(super) fn chart(report: &Report, work: &str, rows: &[&Row]) -> Option<Markup> {
    let mut pieces = Vec::new();
    let mut end = 0f64;
    for row in rows.iter().filter(|row| !row.verdict.invalid) {
        let colour = store_colour(report, &row.store);
        let mut at = 0.0;
        for round in row
            .rounds
            .iter()
            .filter(|round| round.is_valid() && round.over_time.len() > 1)
        {
            let slices = thinned(&round.over_time, SLICES);
            let step = round.seconds / slices.len() as f64;
            let cut = (round.cut_off as usize * slices.len())
                .div_ceil(round.over_time.len())
                .min(slices.len());
            let points: Vec<(f64, f64)> = slices
                .iter()
                .enumerate()
                .map(|(slice, rate)| (at + (slice as f64 + 0.5) * step, *rate))
                .collect();
            pieces.push(Piece {
                points: points[..(cut + 1).min(points.len())].to_vec(),
                colour,
                pale: true,
            });
            pieces.push(Piece {
                points: points[cut.min(points.len())..].to_vec(),
                colour,
                pale: false,
            });
            at += round.seconds * 1.06;
        }
        end = end.max(at);
    }
    let most = pieces
        .iter()
        .flat_map(|piece| &piece.points)
        .map(|(_, rate)| *rate)
        .reduce(f64::max)?;
    if most <= 0.0 {
        return None;
    }
    let name = format!("Rate over time, {work}: the table below has the numbers");
    chart::figure(
        &name,
        |width| if width > 500 { 260 } else { 220 },
        |area, width| draw(area, width, &pieces, end, most),
    )
}

fn draw(area: &Area<'_>, width: u32, pieces: &[Piece], end: f64, most: f64) -> Result<(), Failed> {
    let wide = width > 500;
    let mut chart = ChartBuilder::on(area)
        .margin_top(10)
        .margin_right(if wide { 24 } else { 16 })
        .x_label_area_size(28)
        .y_label_area_size(if wide { 64 } else { 58 })
        .build_cartesian_2d(0.0..end, 0.0..most * 1.08)?;
    chart
        .configure_mesh()
        .axis_style(GRID)
        .bold_line_style(GRID.mix(0.8))
        .light_line_style(TRANSPARENT)
        .label_style(letters(MUTED))
        .x_labels(if wide { 8 } else { 5 })
        .y_labels(5)
        .x_label_formatter(&|s: &f64| format!("{} s", (s * 1000.0).round() / 1000.0))
        .y_label_formatter(&|rate: &f64| significant(*rate))
        .draw()?;
    for piece in pieces.iter().filter(|piece| piece.points.len() > 1) {
        let colour = series(piece.colour).mix(if piece.pale { 0.35 } else { 1.0 });
        chart.draw_series(LineSeries::new(
            piece.points.iter().copied(),
            colour.stroke_width(2),
        ))?;
    }
    Ok(())
}

/// The rounds: what was kept of each, and how far it wandered.
pub(super) fn table(rows: &[&Row]) -> Markup {
    html! {
        table {
            thead {
                tr {
                    th { "store" } th.n { "round" } th.n { "rate" } th.n { "least slice" } th.n { "most" }
                    th.n { "slices cut off" } th.n { "seconds" } th {}
                }
            }
            tbody {
                @for row in rows {
                    @for (at, round) in row.rounds.iter().enumerate() {
                        @let kept = round.over_time.get(round.cut_off as usize..).unwrap_or_default();
                        tr {
                            th { (row.store) }
                            td.n { (at + 1) }
                            td.n { @if round.is_valid() { (significant(round.rate)) } }
                            td.n { @if let Some(least) = kept.iter().copied().reduce(f64::min) { (significant(least)) } }
                            td.n { @if let Some(most) = kept.iter().copied().reduce(f64::max) { (significant(most)) } }
                            td.n { (round.cut_off) "/" (round.over_time.len()) }
                            td.n { (significant(round.seconds)) }
                            td { @if !round.is_valid() { span.bad { "INVALID" } } }
                        }
                    }
                }
            }
        }
    }
}
