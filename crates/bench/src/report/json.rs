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
    Ok(serde_json::from_str(text)?)
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
