//! Stacks of sub-operations: a bar an operation.

use maud::{Markup, html};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::chart::{self, Area, Failed, GRID, INK, MUTED, REST, fit, letters, series};
use crate::model::Parts;
use crate::published::INVALID;
use crate::report::part_names;
use crate::words::time_ns;

const BAR: i32 = 40;
const FOOT: i32 = 26;

/// The parts' names with their colours, and the rest.
pub(super) fn colours(of: &[&Parts]) -> Vec<(String, usize)> {
    let names = part_names(of)
        .into_iter()
        .enumerate()
        .map(|(at, name)| (name, at + 1));
    names
        .chain(std::iter::once(("not covered".to_owned(), REST)))
        .collect()
}

pub(super) fn chart(store: &str, of: &[&Parts]) -> Markup {
    let height = (BAR * of.len() as i32 + FOOT) as u32;
    let name = format!("Sub-operations of {store}: the table below has the numbers");
    chart::figure(
        &name,
        |_| height,
        |area, width| draw(area, width as i32, height as i32, of),
    )
    .unwrap_or(html! {})
}

fn draw(area: &Area<'_>, width: i32, height: i32, of: &[&Parts]) -> Result<(), Failed> {
    // Parts may overlap and add up to more than the whole.
    let sum =
        |of: &Parts| of.parts.iter().map(|part| part.mean_ns).sum::<f64>() + of.rest_ns.max(0.0);
    let valid = |of: &&&Parts| !of.invalid;
    let most = of
        .iter()
        .filter(valid)
        .map(|of| sum(of).max(of.whole_ns))
        .fold(1.0, f64::max);
    let end = f64::from(width - 12);
    let x = |ns: f64| (1.0 + ns.max(0.0) / most * (end - 1.0)) as i32;
    let bottom = height - FOOT;
    let ticks = if width > 500 { 5 } else { 3 };
    for tick in round_ticks(most, ticks) {
        area.draw(&PathElement::new(
            vec![(x(tick), 0), (x(tick), bottom)],
            GRID.stroke_width(1),
        ))?;
        let name = if tick == 0.0 {
            "0".into()
        } else {
            time_ns(tick)
        };
        let side = if tick == 0.0 {
            HPos::Left
        } else if f64::from(x(tick)) > end - 24.0 {
            HPos::Right
        } else {
            HPos::Center
        };
        let place = letters(MUTED).pos(Pos::new(side, VPos::Top));
        area.draw(&Text::new(name, (x(tick), bottom + 6), place))?;
    }
    let colours = colours(of);
    for (at, of) in of.iter().enumerate() {
        let y = BAR * at as i32;
        let time = match of.invalid {
            true => INVALID.to_owned(),
            false => time_ns(of.whole_ns),
        };
        let said = format!("{}: {time}", of.operation);
        area.draw(&Text::new(fit(&said, end), (4, y + 3), letters(INK)))?;
        if of.invalid {
            continue;
        }
        let mut from = 0.0;
        for (name, colour) in &colours {
            let ns = if *colour == REST {
                of.rest_ns.max(0.0)
            } else {
                of.parts
                    .iter()
                    .filter(|part| part.name == *name)
                    .map(|part| part.mean_ns)
                    .sum()
            };
            // A hair of background between two parts.
            let (left, right) = (x(from), x(from + ns));
            if right > left {
                let right = if right - left > 2 { right - 1 } else { right };
                let bar =
                    Rectangle::new([(left, y + 19), (right, y + 34)], series(*colour).filled());
                area.draw(&bar)?;
            }
            from += ns;
        }
    }
    Ok(())
}

/// Round numbers from 0 up to `most`, about as many as asked.
fn round_ticks(most: f64, about: usize) -> Vec<f64> {
    let rough = most / about as f64;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|n| n * power)
        .find(|step| *step >= rough)
        .unwrap_or(rough);
    (0..)
        .map(|at| f64::from(at) * step)
        .take_while(|tick| *tick <= most)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::round_ticks;

    #[test]
    fn ticks_are_round() {
        assert_eq!(
            round_ticks(61_000.0, 5),
            [0.0, 20_000.0, 40_000.0, 60_000.0]
        );
        assert_eq!(round_ticks(9.0, 3), [0.0, 5.0]);
    }
}
