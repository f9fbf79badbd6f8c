//! Latency against percentile: a curve a store, both axes such that the tail is seen.

use base64::Engine;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use maud::Markup;
use plotters::prelude::*;

use super::chart::{self, Area, Failed, GRID, MUTED, letters, series};
use super::store_colour;
use crate::model::{Distribution, Report, Row};
use crate::words::time_ns;

/// Points of a curve for each digit of the percentile.
const POINTS: usize = 12;
/// Farther than six nines nothing is drawn.
const DIGITS: f64 = 6.0;

/// A store's curve: (digits of the percentile, nanoseconds), and its colour.
struct Curve {
    points: Vec<(f64, f64)>,
    colour: usize,
}

pub(super) fn chart(report: &Report, work: &str, rows: &[&Row]) -> Option<Markup> {
    let curves: Vec<Curve> = rows
        .iter()
        .filter(|row| !row.verdict.invalid)
        .filter_map(|row| {
            Some(Curve {
                points: points(row.latency.as_ref()?),
                colour: store_colour(report, &row.store),
            })
        })
        .filter(|curve| curve.points.len() > 1)
        .collect();
    let least = curves
        .iter()
        .flat_map(|curve| &curve.points)
        .map(|(_, ns)| *ns)
        .reduce(f64::min)?;
    let most = curves
        .iter()
        .flat_map(|curve| &curve.points)
        .map(|(_, ns)| *ns)
        .reduce(f64::max)?;
    let digits = curves
        .iter()
        .flat_map(|curve| &curve.points)
        .map(|(at, _)| *at)
        .reduce(f64::max)?;
    let name = format!("Latency by percentile, {work}: the table below has the numbers");
    chart::figure(
        &name,
        |width| if width > 500 { 320 } else { 260 },
        |area, width| draw(area, width, &curves, least.max(1.0), most.max(2.0), digits),
    )
}

/// From the whole histogram; from the percentiles where it cannot be read.
fn points(of: &Distribution) -> Vec<(f64, f64)> {
    let Some(histogram) = decoded(&of.histogram).filter(|histogram| !histogram.is_empty()) else {
        let known = [
            (0.5, of.p50_ns),
            (0.9, of.p90_ns),
            (0.99, of.p99_ns),
            (0.999, of.p999_ns),
        ];
        return known
            .into_iter()
            .map(|(quantile, ns)| (place(quantile), ns.max(1) as f64))
            .collect();
    };
    let end = (histogram.len() as f64).log10().clamp(0.5, DIGITS);
    let steps = (end * POINTS as f64).ceil() as usize;
    (0..=steps)
        .map(|step| {
            let digits = end * step as f64 / steps as f64;
            let ns = histogram.value_at_quantile(1.0 - 10f64.powf(-digits));
            (digits, ns.max(1) as f64)
        })
        .collect()
}

/// Digits of a percentile: 90 % has one, 99 % two.
fn place(quantile: f64) -> f64 {
    -(1.0 - quantile).log10()
}

/// A distribution's own histogram.
fn decoded(text: &str) -> Option<Histogram<u64>> {
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(text)
        .ok()?;
    Deserializer::new().deserialize(&mut bytes.as_slice()).ok()
}

fn draw(
    area: &Area<'_>,
    width: u32,
    curves: &[Curve],
    least: f64,
    most: f64,
    digits: f64,
) -> Result<(), Failed> {
    let wide = width > 500;
    let mut chart = ChartBuilder::on(area)
        .margin_top(10)
        .margin_right(if wide { 24 } else { 16 })
        .x_label_area_size(28)
        .y_label_area_size(if wide { 64 } else { 58 })
        .build_cartesian_2d(0.0..digits, (least * 0.8..most * 1.25).log_scale())?;
    chart
        .configure_mesh()
        .axis_style(GRID)
        .bold_line_style(GRID.mix(0.8))
        .light_line_style(TRANSPARENT)
        .label_style(letters(MUTED))
        .x_labels(digits as usize + 1)
        .x_label_formatter(&percentile)
        .y_label_formatter(&|ns: &f64| time_ns(*ns))
        .draw()?;
    for curve in curves {
        let line = series(curve.colour).stroke_width(2);
        chart.draw_series(LineSeries::new(curve.points.iter().copied(), line))?;
    }
    Ok(())
}

/// "0 %" at 0 digits, "90 %" at one, "99.9 %" at three; nothing between.
fn percentile(digits: &f64) -> String {
    let whole = digits.round();
    if (digits - whole).abs() > 1e-6 {
        return String::new();
    }
    match whole as i32 {
        0 => "0 %".into(),
        1 => "90 %".into(),
        2 => "99 %".into(),
        n => format!("99.{} %", "9".repeat((n - 2).clamp(1, 9) as usize)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn the_axis_has_a_digit_for_each_nine() {
        let said: Vec<String> = [0.0, 0.5, 1.0, 2.0, 3.0, 5.0]
            .iter()
            .map(percentile)
            .collect();
        assert_eq!(said, ["0 %", "", "90 %", "99 %", "99.9 %", "99.999 %"]);
    }

    #[test]
    fn a_curve_never_falls_and_meets_the_percentiles() {
        let report = sample::compare();
        let of = report.rows[0].latency.as_ref().unwrap();
        let points = points(of);
        assert!(points.len() > 20);
        assert!(points.windows(2).all(|pair| pair[0].1 <= pair[1].1));
        let near = |digits: f64| {
            points
                .iter()
                .min_by(|a, b| (a.0 - digits).abs().total_cmp(&(b.0 - digits).abs()))
                .unwrap()
                .1
        };
        assert!((near(1.0) / of.p90_ns as f64 - 1.0).abs() < 0.1);
        assert!((near(2.0) / of.p99_ns as f64 - 1.0).abs() < 0.2);
    }

    #[test]
    fn a_histogram_that_cannot_be_read_leaves_its_percentiles() {
        let mut of = sample::compare().rows[0].latency.clone().unwrap();
        of.histogram = "no histogram".into();
        assert_eq!(points(&of).len(), 4);
    }
}
