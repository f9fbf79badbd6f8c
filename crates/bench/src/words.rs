//! Numbers as a person reads them: three significant digits, the unit that fits, ratios with their intervals.
//!
//! 1. A number that could not be had is "–", never 0.
//! 2. Nothing here is wider than one column a character.

use crate::model::{Comparison, Unit};

/// The sign where there is nothing.
pub(crate) const NOTHING: &str = "–";

/// Three significant digits, thousands apart: "0.0123", "1.23", "12.3", "123", "1,230".
pub(crate) fn significant(value: f64) -> String {
    if !value.is_finite() {
        return NOTHING.into();
    }
    if value == 0.0 {
        return "0".into();
    }
    // Of the rounded value: 9.996 is 10.0, not 10.00.
    let magnitude = |of: f64| of.abs().log10().floor() as i32;
    let step = 10f64.powi(magnitude(value) - 2);
    let rounded = (value / step).round() * step;
    let digits = usize::try_from(2 - magnitude(rounded * (1.0 + 1e-12))).unwrap_or(0);
    let text = format!("{:.*}", digits, rounded.abs());
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    let mut shown = String::from(if value < 0.0 { "−" } else { "" });
    for (at, digit) in whole.char_indices() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    if !part.is_empty() {
        shown.push('.');
        shown.push_str(part);
    }
    shown
}

/// A number that may be missing.
pub(crate) fn maybe(value: Option<f64>) -> String {
    value.map_or(NOTHING.into(), significant)
}

/// A unit's short name.
pub(crate) fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::MegabytesPerSecond => "MB/s",
        Unit::OperationsPerSecond => "op/s",
        Unit::FilesPerSecond => "files/s",
        Unit::Seconds => "s",
    }
}

/// A time in the unit that fits: "850 ns", "12.3 µs", "4.56 ms", "7.89 s".
pub(crate) fn time_ns(ns: f64) -> String {
    let (value, unit) = match ns.abs() {
        size if size < 999.5 => (ns, "ns"),
        size if size < 999.5e3 => (ns / 1e3, "µs"),
        size if size < 999.5e6 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    format!("{} {unit}", significant(value))
}

/// A size in binary units, whole where it can be: "4 KiB", "1.5 GiB".
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut at = 0;
    while value >= 1024.0 && at + 1 < UNITS.len() {
        value /= 1024.0;
        at += 1;
    }
    if value.fract() == 0.0 {
        format!("{value} {}", UNITS[at])
    } else {
        format!("{} {}", significant(value), UNITS[at])
    }
}

/// A ratio: "0.530", with two digits after the point where three would promise too much: "0.53".
pub(crate) fn ratio(value: f64) -> String {
    if value.is_finite() && (0.095..9.995).contains(&value) {
        format!("{value:.2}")
    } else {
        significant(value)
    }
}

/// A comparison: "0.53 (0.49–0.58)", "no difference seen (±4 %)", "0.93 (0.91–0.95), inside the noise" where the interval leaves
/// out 1 but a store against itself shows as much, or "INVALID".
pub(crate) fn comparison(of: &Comparison) -> String {
    let (Some(middle), Some(low), Some(high)) = (of.ratio, of.low, of.high) else {
        return "INVALID".into();
    };
    if of.invalid.is_some() {
        "INVALID".into()
    } else if of.differs {
        format!("{} ({}–{})", ratio(middle), ratio(low), ratio(high))
    } else if (low..=high).contains(&1.0) {
        no_difference(low, high)
    } else {
        format!(
            "{} ({}–{}), inside the noise",
            ratio(middle),
            ratio(low),
            ratio(high)
        )
    }
}

/// What is lost against the base, in per cent: "47 % (42–51)", "−12 % (−15–−9)" where something is won.
pub(crate) fn loss(of: &Comparison) -> String {
    let (Some(middle), Some(low), Some(high), None) = (of.ratio, of.low, of.high, &of.invalid)
    else {
        return "INVALID".into();
    };
    let has_one = (low..=high).contains(&1.0);
    if !of.differs && has_one {
        return no_difference(low, high);
    }
    let noise = if of.differs { "" } else { ", inside the noise" };
    let lost = |ratio: f64| per_cent(100.0 * (1.0 - ratio));
    format!(
        "{} % ({} to {}){noise}",
        lost(middle),
        lost(high),
        lost(low)
    )
}

/// The interval of two that do not differ, as the widest distance from 1.
fn no_difference(low: f64, high: f64) -> String {
    let distance = 100.0 * (1.0 - low).abs().max((high - 1.0).abs());
    // Rounded up: a smaller number would promise too much.
    if distance < 1.0 {
        format!(
            "no difference seen (±{:.1} %)",
            (10.0 * distance - 1e-6).ceil() / 10.0
        )
    } else {
        format!("no difference seen (±{:.0} %)", (distance - 1e-6).ceil())
    }
}

/// Per cent: one digit after the point below ten, none above.
pub(crate) fn per_cent(value: f64) -> String {
    let text = if value.abs() < 9.95 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    };
    text.replace("-0.0", "0.0").replace('-', "−")
}

/// Something that takes this many seconds: "42 s", "3 min 20 s", "2 h 5 min".
pub(crate) fn duration(seconds: f64) -> String {
    let whole = seconds.round().max(0.0) as u64;
    match whole {
        0..=9 => format!("{} s", significant(seconds)),
        10..=99 => format!("{whole} s"),
        100..=5999 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_three_digits_that_mean_something() {
        for (value, text) in [
            (0.0, "0"),
            (0.012_345, "0.0123"),
            (0.999_6, "1.00"),
            (1.0, "1.00"),
            (9.996, "10.0"),
            (12.34, "12.3"),
            (99.96, "100"),
            (123.4, "123"),
            (999.6, "1,000"),
            (1129.0, "1,130"),
            (30_164.0, "30,200"),
            (10_711_067.0, "10,700,000"),
            (-3.456, "−3.46"),
            (f64::NAN, "–"),
            (f64::INFINITY, "–"),
        ] {
            assert_eq!(significant(value), text, "{value}");
        }
    }

    #[test]
    fn times_and_sizes_take_the_unit_that_fits() {
        assert_eq!(time_ns(0.0), "0 ns");
        assert_eq!(time_ns(999.4), "999 ns");
        assert_eq!(time_ns(999.7), "1.00 µs");
        assert_eq!(time_ns(1_234_567.0), "1.23 ms");
        assert_eq!(time_ns(-2e9), "−2.00 s");
        assert_eq!(bytes(4096), "4 KiB");
        assert_eq!(bytes(1 << 30), "1 GiB");
        assert_eq!(bytes(1_610_612_736), "1.50 GiB");
        assert_eq!(duration(4.2), "4.20 s");
        assert_eq!(duration(200.0), "3 min 20 s");
        assert_eq!(duration(7500.0), "2 h 5 min");
    }

    #[test]
    fn a_difference_in_the_noise_is_no_difference() {
        let mut of = Comparison {
            work: "w".into(),
            base: "a".into(),
            other: "b".into(),
            ratio: Some(0.53),
            low: Some(0.49),
            high: Some(0.58),
            differs: true,
            invalid: None,
        };
        assert_eq!(comparison(&of), "0.53 (0.49–0.58)");
        assert_eq!(loss(&of), "47 % (42 to 51)");
        (of.ratio, of.low, of.high) = (Some(1.2), Some(1.1), Some(1.3));
        assert_eq!(loss(&of), "−20 % (−30 to −10)");
        (of.ratio, of.low, of.high, of.differs) = (Some(0.99), Some(0.96), Some(1.02), false);
        assert_eq!(comparison(&of), "no difference seen (±4 %)");
        assert_eq!(loss(&of), "no difference seen (±4 %)");
        // A ±34 % beside an interval of 0.66 to 0.72 would say that there is no difference.
        (of.ratio, of.low, of.high) = (Some(0.69), Some(0.66), Some(0.72));
        assert_eq!(comparison(&of), "0.69 (0.66–0.72), inside the noise");
        assert_eq!(loss(&of), "31 % (28 to 34), inside the noise");
        of.invalid = Some("no valid round".into());
        assert_eq!(comparison(&of), "INVALID");
        assert_eq!(loss(&of), "INVALID");
    }
}
