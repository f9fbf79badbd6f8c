//! Lines for a terminal: grids that fit a width, wrapped sentences, names that cannot drive the terminal.
//!
//! 1. No line is wider than requested, whatever the texts are.
//! 2. No escape sequence comes out, not even one that was in a name.

use comfy_table::{
    CellAlignment, ColumnConstraint, ContentArrangement, Table, TableComponent, Width,
};
use unicode_width::UnicodeWidthStr;

/// Columns between two columns.
const GAP: usize = 2;
/// The widest a column gets before its text is wrapped.
const WIDEST: usize = 28;

/// A text from outside, without what could move a cursor or turn the direction of writing.
pub(crate) fn shown(text: &str) -> String {
    text.chars()
        .flat_map(|letter| {
            let steers = letter.is_control()
                || matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}');
            let (escaped, same) = if steers {
                (Some(letter.escape_unicode()), None)
            } else {
                (None, Some(letter))
            };
            escaped.into_iter().flatten().chain(same)
        })
        .collect()
}

/// Columns a text takes.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// The text, its end replaced by "…" where it is too wide.
pub(crate) fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.into();
    }
    let mut kept = String::new();
    for letter in text.chars() {
        kept.push(letter);
        if width(&kept) + 1 > columns {
            kept.pop();
            break;
        }
    }
    kept.push('…');
    kept
}

/// A text cut at its spaces into lines no wider than `columns`, from the second on behind `indent` spaces. Words that are
/// too long are cut.
pub(crate) fn wrap(text: &str, columns: usize, indent: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    for word in text.split(' ') {
        let mut word = word.to_owned();
        if width(&line) + 1 + width(&word) > columns && !line.trim().is_empty() {
            lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
        } else if !line.is_empty() {
            line.push(' ');
        }
        while width(&line) + width(&word) > columns {
            let space = columns.saturating_sub(width(&line)).max(1);
            let mut head = String::new();
            while let Some(letter) = word.chars().next() {
                if width(&head) + width(letter.encode_utf8(&mut [0; 4])) > space && !head.is_empty()
                {
                    break;
                }
                head.push(letter);
                word.remove(0);
            }
            line.push_str(&head);
            lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
        }
        line.push_str(&word);
    }
    if !line.trim().is_empty() {
        lines.push(line);
    }
    lines
}

/// A table: the first column to the left, the others to the right. Columns that do not fit beside each other follow below,
/// each time with the first column before them.
pub(crate) fn grid(header: &[String], rows: &[Vec<String>], columns: usize) -> Vec<String> {
    let natural: Vec<usize> = (0..header.len())
        .map(|at| {
            let cells = rows
                .iter()
                .filter_map(|row| row.get(at))
                .map(|cell| width(cell))
                .max();
            let word = header[at].split(' ').map(width).max();
            cells.max(word).unwrap_or(0).clamp(1, WIDEST)
        })
        .collect();
    let first = natural.first().copied().unwrap_or(0);
    let mut blocks: Vec<Vec<usize>> = Vec::new();
    let mut used = columns;
    for (at, wanted) in natural.iter().enumerate().skip(1) {
        if used + GAP + wanted > columns {
            blocks.push(Vec::new());
            used = first;
        }
        used += GAP + wanted;
        // Just pushed if it was not there.
        blocks.last_mut().expect("a block").push(at);
    }
    let mut lines = Vec::new();
    for (number, block) in blocks.iter().enumerate() {
        if number > 0 {
            lines.push(String::new());
        }
        lines.extend(one_block(header, rows, first, block, &natural));
    }
    lines
}

fn one_block(
    header: &[String],
    rows: &[Vec<String>],
    first: usize,
    block: &[usize],
    natural: &[usize],
) -> Vec<String> {
    let empty = String::new();
    let pick = |row: &[String]| -> Vec<String> {
        std::iter::once(&0)
            .chain(block)
            .map(|at| row.get(*at).unwrap_or(&empty).clone())
            .collect()
    };
    let mut table = Table::new();
    table
        .load_preset(comfy_table::presets::NOTHING)
        .set_style(TableComponent::HeaderLines, '─')
        .set_style(TableComponent::MiddleHeaderIntersections, '─')
        .force_no_tty()
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(pick(header));
    for row in rows {
        table.add_row(pick(row));
    }
    for (position, at) in std::iter::once(&0).chain(block).enumerate() {
        let content = if position == 0 { first } else { natural[*at] };
        let Some(column) = table.column_mut(position) else {
            continue;
        };
        // The preset leaves one blank between columns.
        let gap = if position == 0 { 0 } else { GAP - 1 };
        column.set_padding((gap as u16, 0));
        column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(
            (content + gap) as u16,
        )));
        column.set_cell_alignment(if position == 0 {
            CellAlignment::Left
        } else {
            CellAlignment::Right
        });
    }
    table
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_drive_the_terminal() {
        assert_eq!(shown("a\x1b[2Jb\u{202e}c"), "a\\u{1b}[2Jb\\u{202e}c");
        assert_eq!(shown("plain – µs"), "plain – µs");
    }

    #[test]
    fn a_text_is_cut_by_columns_not_by_letters() {
        assert_eq!(cut("random read", 20), "random read");
        assert_eq!(cut("random read", 7), "random…");
        assert_eq!(cut("部屋部屋", 5), "部屋…");
    }

    #[test]
    fn sentences_wrap_and_long_words_are_cut() {
        assert_eq!(wrap("one two three", 9, 2), ["one two", "  three"]);
        assert_eq!(
            wrap("/a/very/long/path here", 8, 1),
            ["/a/very/", " long/pa", " th here"]
        );
        for line in wrap("部屋部屋部屋部屋 and so on", 7, 3) {
            assert!(width(&line) <= 7, "{line}");
        }
    }

    #[test]
    fn columns_that_do_not_fit_follow_below() {
        let header: Vec<String> = (0..9).map(|n| format!("column number {n}")).collect();
        let rows: Vec<Vec<String>> = (0..3)
            .map(|row| {
                (0..9)
                    .map(|n| format!("{}", 10_000_000 + 10 * row + n))
                    .collect()
            })
            .collect();
        let lines = grid(&header, &rows, 40);
        assert!(lines.iter().all(|line| width(line) <= 40), "{lines:#?}");
        for n in 1..9 {
            assert!(
                lines
                    .iter()
                    .any(|line| line.contains(&format!("{}", 10_000_020 + n))),
                "{lines:#?}"
            );
        }
        assert!(
            lines
                .iter()
                .filter(|line| line.starts_with("10000020"))
                .count()
                > 2,
            "{lines:#?}"
        );
    }
}
