//! Rewrites `docs/performance.md` from the results beside the sources: `make performance`.
//!
//! `performance RESULTS REMARKS OUTPUT`: a directory of `*.json` and of `*.md` (what scripts measured with programs of their own), a file of
//! Markdown that ends the document, and the document.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

use bench::model::Report;
use bench::report::{json, markdown};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [results, remarks, output] = &arguments[..] else {
        return Err("write: performance RESULTS REMARKS OUTPUT".into());
    };
    let reports = read(Path::new(results))?;
    let mut after = String::new();
    for path in listed(Path::new(results), "md")? {
        after += &fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        after.push('\n');
    }
    after += &fs::read_to_string(remarks).map_err(|e| format!("{remarks}: {e}"))?;
    fs::write(output, markdown::performance(&reports, &after))
        .map_err(|e| format!("{output}: {e}"))?;
    println!("{output} from {} results", reports.len());
    Ok(())
}

/// The files of a directory with this ending, sorted.
fn listed(dir: &Path, ending: &str) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|found| found == ending) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// Results by their names, sorted.
fn read(dir: &Path) -> Result<Vec<(String, Report)>, Box<dyn Error>> {
    let mut reports = Vec::new();
    for path in listed(dir, "json")? {
        let named = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
        let text = fs::read_to_string(&path).map_err(|e| named(&e))?;
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        match json::read(&text) {
            Ok(report) => reports.push((name, report)),
            Err(e) => eprintln!("skipped {}", named(&e)),
        }
    }
    Ok(reports)
}
