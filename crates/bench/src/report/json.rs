//! The document as JSON, and the schema it keeps to: `docs/bench.schema.json`.

use crate::model::Report;

/// One line, for programs; [`read`] takes it back.
pub fn text(report: &Report) -> String {
    // Text for keys, and numbers that serde_json can write: it cannot fail.
    serde_json::to_string(report).expect("a report is JSON")
}

/// The same over several lines, for results that are kept beside sources.
pub fn pretty(report: &Report) -> String {
    let mut text = serde_json::to_string_pretty(report).expect("a report is JSON");
    text.push('\n');
    text
}

/// A report that was written by [`text`] or [`pretty`], by this or an earlier version of the program.
pub fn read(text: &str) -> Result<Report, NotAReport> {
    /// What every version has.
    #[derive(serde::Deserialize)]
    struct Form {
        schema: u32,
    }
    let Form { schema } = serde_json::from_str(text)?;
    if schema != crate::model::SCHEMA {
        return Err(NotAReport::OtherForm { schema });
    }
    let mut report = serde_json::from_str(text)?;
    super::older::mark(&mut report);
    Ok(report)
}

/// The schema of [`text`], JSON Schema 2020-12.
pub fn schema() -> String {
    let mut schema = schemars::schema_for!(Report);
    schema.insert(
        "$comment".into(),
        "Made from crates/bench/src/model by: cargo test -p strongroom-bench schema, with UPDATE=1"
            .into(),
    );
    let mut text = serde_json::to_string_pretty(&schema).expect("a schema is JSON");
    text.push('\n');
    text
}

/// Why a text is not a report.
#[derive(Debug, thiserror::Error)]
pub enum NotAReport {
    /// Not JSON, or not its fields.
    #[error("it is damaged, or no result of a measurement: {0}")]
    Damaged(#[from] serde_json::Error),
    /// From a program with another form.
    #[error(
        "its form is {schema}, and this version reads form {}: use the version that wrote it",
        crate::model::SCHEMA
    )]
    OtherForm {
        /// The form it has.
        schema: u32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    const PLACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/bench.schema.json");

    #[test]
    fn the_published_schema_is_that_of_the_model() {
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(PLACE, schema()).unwrap();
        }
        let published = std::fs::read_to_string(PLACE).unwrap();
        assert!(
            published == schema(),
            "docs/bench.schema.json is old: UPDATE=1 rewrites it"
        );
    }

    #[test]
    fn what_is_written_keeps_to_the_schema() {
        let schema = serde_json::from_str(&schema()).unwrap();
        let schema = jsonschema::draft202012::new(&schema).unwrap();
        for (name, report) in sample::all() {
            let document = serde_json::from_str(&text(&report)).unwrap();
            let wrong: Vec<String> = schema
                .iter_errors(&document)
                .map(|e| e.to_string())
                .collect();
            assert!(wrong.is_empty(), "{name}: {wrong:?}");
        }
    }

    #[test]
    fn the_schema_refuses_what_is_no_report() {
        let schema = serde_json::from_str(&schema()).unwrap();
        let schema = jsonschema::draft202012::new(&schema).unwrap();
        let whole: serde_json::Value = serde_json::from_str(&text(&sample::compare())).unwrap();
        for (place, wrong) in [
            ("rows", serde_json::json!(1)),
            ("seed", "x".into()),
            ("stores", serde_json::Value::Null),
        ] {
            let mut document = whole.clone();
            document[place] = wrong;
            assert!(!schema.is_valid(&document), "{place}");
        }
        let mut document = whole;
        document["rows"][0]["unit"] = "furlongs".into();
        assert!(!schema.is_valid(&document));
    }

    #[test]
    fn what_is_written_is_read_again_and_other_forms_are_named() {
        let report = sample::compare();
        let again = read(&pretty(&report)).unwrap();
        assert_eq!(
            (again.rows.len(), again.seed),
            (report.rows.len(), report.seed)
        );
        let newer = text(&report).replacen("\"schema\":1", "\"schema\":7", 1);
        assert!(matches!(
            read(&newer),
            Err(NotAReport::OtherForm { schema: 7 })
        ));
        assert!(matches!(read(&newer[..1000]), Err(NotAReport::Damaged(_))));
    }
}
