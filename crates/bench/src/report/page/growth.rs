//! Cost by size, both axes logarithmic: a line an operation.

use maud::Markup;
use plotters::prelude::*;

use super::chart::{self, Area, Failed, GRID, MUTED, letters, series};
use crate::model::{Growth, GrowthPoint};
use crate::words::{bytes, time_ns};

/// What grows, in the order it comes, with its operations.
pub(super) fn overs(growth: &[Growth]) -> Vec<(&str, Vec<&Growth>)> {
    crate::report::grouped(growth, |of| &of.over)
}

/// The time, and the memory; what has fewer than two valid sizes is in no chart.
pub(super) fn charts(over: &str, growth: &[&Growth]) -> Vec<Markup> {
    let time = |point: &GrowthPoint| point.seconds.map(|seconds| seconds * 1e9);
    let memory = |point: &GrowthPoint| point.peak_bytes.map(|peak| peak as f64);
    let one = |what: &str, of: &dyn Fn(&GrowthPoint) -> Option<f64>, unit: fn(f64) -> String| {
        let name = format!("{what} by {over}: the tables below have the numbers");
        draw_lines(&name, over, growth, of, unit)
    };
    let charts = [
        one("Time of one operation", &time, time_ns),
        one("Memory at the peak", &memory, |peak| bytes(peak as u64)),
    ];
    charts.into_iter().flatten().collect()
}

struct Line {
    colour: usize,
    points: Vec<(f64, f64)>,
}

fn draw_lines(
    name: &str,
    over: &str,
    growth: &[&Growth],
    of: &dyn Fn(&GrowthPoint) -> Option<f64>,
    unit: fn(f64) -> String,
) -> Option<Markup> {
    let lines = growth.iter().enumerate().map(|(at, growth)| {
        let points = growth.points.iter();
        let valid = points.filter_map(|point| Some((point.size as f64, of(point)?)));
        Line {
            colour: at + 1,
            points: valid
                .filter(|(size, cost)| *size > 0.0 && *cost > 0.0)
                .collect(),
        }
    });
    let lines: Vec<Line> = lines.filter(|line| line.points.len() > 1).collect();
    let all = || lines.iter().flat_map(|line| &line.points).copied();
    let ends = |of: fn((f64, f64)) -> f64| {
        let least = all().map(of).reduce(f64::min)?;
        Some((least, all().map(of).reduce(f64::max)?))
    };
    let (sizes, costs) = (ends(|point| point.0)?, ends(|point| point.1)?);
    let size = if over.starts_with("bytes") {
        |size: f64| bytes(size as u64)
    } else {
        |size: f64| format!("{size}")
    };
    chart::figure(
        name,
        |width| if width > 500 { 280 } else { 240 },
        |area, width| draw(area, width, &lines, sizes, costs, size, unit),
    )
}

fn draw(
    area: &Area<'_>,
    width: u32,
    lines: &[Line],
    sizes: (f64, f64),
    costs: (f64, f64),
    size: fn(f64) -> String,
    unit: fn(f64) -> String,
) -> Result<(), Failed> {
    let wide = width > 500;
    let mut chart = ChartBuilder::on(area)
        .margin_top(10)
        .margin_right(if wide { 32 } else { 24 })
        .x_label_area_size(28)
        .y_label_area_size(if wide { 64 } else { 58 })
        .build_cartesian_2d(
            (sizes.0..sizes.1 * 1.01).log_scale(),
            (costs.0 * 0.8..costs.1 * 1.25).log_scale(),
        )?;
    chart
        .configure_mesh()
        .axis_style(GRID)
        .bold_line_style(GRID.mix(0.8))
        .light_line_style(TRANSPARENT)
        .label_style(letters(MUTED))
        .x_labels(if wide { 6 } else { 4 })
        .y_labels(5)
        .x_label_formatter(&|of: &f64| size(*of))
        .y_label_formatter(&|of: &f64| unit(*of))
        .draw()?;
    for line in lines {
        let style = series(line.colour).stroke_width(2);
        chart.draw_series(LineSeries::new(line.points.iter().copied(), style).point_size(3))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_two_valid_sizes_is_drawn_and_nothing_else() {
        let point = |size: u64, seconds: Option<f64>| GrowthPoint {
            size,
            work: "open".into(),
            seconds,
            peak_bytes: None,
        };
        let of = |points: Vec<GrowthPoint>| Growth {
            store: "room".into(),
            operation: "open".into(),
            over: "bytes in one file".into(),
            points,
            time_per_decade: None,
            memory_per_decade: None,
        };
        let drawn = |growth: &Growth| charts(&growth.over, &[growth]);
        let two = of(vec![point(1 << 20, Some(0.01)), point(1 << 24, Some(0.02))]);
        let charts = drawn(&two);
        assert_eq!(charts.len(), 1, "no memory was seen");
        assert!(
            charts[0]
                .0
                .contains("Time of one operation by bytes in one file")
        );
        let one = of(vec![point(1 << 20, Some(0.01)), point(1 << 24, None)]);
        assert!(drawn(&one).is_empty());
    }
}
