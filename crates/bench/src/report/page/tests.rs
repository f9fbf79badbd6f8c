//! The page as text; `tests/page.rs` shows it to a browser.

use super::html;
use crate::model::{PublishedTable, TableRow};
use crate::report::sample;

#[test]
fn names_from_outside_are_text_wherever_they_are() {
    let nasty = "<script>alert(1)</script>\"'&";
    let mut report = sample::compare();
    let mut parts = sample::small_files().parts;
    for row in &mut report.rows {
        row.work = format!("{}{nasty}", row.work);
        row.store = format!("{}{nasty}", row.store);
        for issue in &mut row.verdict.issues {
            issue.said = nasty.into();
        }
    }
    for of in &mut report.comparisons {
        of.work = format!("{}{nasty}", of.work);
        of.other = format!("{}{nasty}", of.other);
        of.base = nasty.into();
        of.invalid = of.invalid.as_ref().map(|_| nasty.into());
    }
    for of in &mut parts {
        of.operation = nasty.into();
        of.store = nasty.into();
        of.parts[0].name = nasty.into();
    }
    report.parts = parts;
    report.command = nasty.into();
    report.options = vec![nasty.into()];
    report.notes = vec![nasty.into()];
    report.machine.processor = nasty.into();
    report.stores[0].label = nasty.into();
    report.stores[0].target = nasty.into();
    report.tables.push(PublishedTable {
        title: nasty.into(),
        source: nasty.into(),
        columns: vec![nasty.into()],
        rows: vec![TableRow {
            name: nasty.into(),
            cells: vec![nasty.into()],
        }],
    });
    let page = html(&report);
    assert!(page.matches("&lt;script&gt;").count() > 40);
    assert!(!page.contains("<script"));
    // No text ends an attribute: every quote of it is written out.
    assert!(!page.contains("</script>\""));
}

#[test]
fn the_page_needs_no_other_file() {
    for (name, report) in sample::all() {
        let page = html(&report);
        assert!(page.contains("default-src 'none'"), "{name}");
        for fetched in ["src=", "url(", "@import", "<script", "<iframe", "https:"] {
            assert!(!page.contains(fetched), "{name}: {fetched}");
        }
        // The only address is the name of SVG's namespace.
        let addresses = page.matches("http:").count();
        assert_eq!(
            addresses,
            page.matches("xmlns=\"http://www.w3.org/2000/svg\"").count(),
            "{name}"
        );
    }
}

#[test]
fn every_chart_is_named_coloured_by_the_page_and_given_in_numbers() {
    let pages = html(&sample::compare()) + &html(&sample::small_files());
    assert!(pages.matches("<svg").count() >= 2 * (1 + 5 + 5 + 2));
    assert_eq!(
        pages.matches("<svg").count(),
        pages.matches("role=\"img\" aria-label=\"").count()
    );
    assert_eq!(
        pages.matches("<svg").count(),
        pages.matches("<title>").count() - 2
    );
    assert_eq!(
        pages.matches("<svg").count(),
        pages.matches("</svg>").count()
    );
    for attribute in ["fill=\"#", "stroke=\"#"] {
        assert!(
            !pages.contains(attribute),
            "a colour that does not follow the page: {attribute}"
        );
    }
    assert!(pages.contains("var(--s2)") && pages.contains("var(--ink)"));
    // A figure is followed by its table.
    for after in pages.split("</figure>").skip(1) {
        assert!(
            after.starts_with("<div class=\"scroll\""),
            "{}",
            &after[..after.len().min(80)]
        );
    }
}
