//! Which crate may use which: the arrows of ARCHITECTURE.md are all there are. Reads manifests alone, and is here because the crate at the
//! bottom is built in a moment.
#![allow(missing_docs)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

type Arrows = BTreeMap<String, BTreeSet<String>>;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn manifest(path: &Path) -> toml::Table {
    let text = fs::read_to_string(path.join("Cargo.toml")).unwrap();
    text.parse().unwrap()
}

/// How the document names the crate of a directory.
fn name(dir: &str) -> &str {
    let dir = dir.strip_prefix("crates/").unwrap_or(dir);
    dir.strip_suffix("/native").unwrap_or(dir)
}

/// Everything that is built into a crate: its own tables of dependencies, and those for some targets. Not what its tests need.
fn dependencies(manifest: &toml::Table) -> BTreeSet<String> {
    let targets = manifest.get("target").and_then(|t| t.as_table());
    let tables = targets.into_iter().flat_map(|t| t.values());
    let tables = tables.filter_map(|t| t.as_table()).chain([manifest]);
    tables
        .flat_map(|t| [t.get("dependencies"), t.get("build-dependencies")])
        .filter_map(|t| t?.as_table())
        .flatten()
        .map(|(key, value)| {
            assert!(value.get("path").is_none(), "{key}: not by its workspace");
            key.clone()
        })
        .collect()
}

/// The dependencies of each member, those outside the workspace included, by the document's names.
fn all_dependencies() -> Arrows {
    let workspace = manifest(&root());
    let workspace = workspace["workspace"].as_table().unwrap();
    // By which name the workspace knows each of its crates.
    let known = workspace["dependencies"].as_table().unwrap().iter();
    let known: BTreeMap<_, _> = known
        .filter_map(|(key, value)| Some((key.as_str(), name(value.get("path")?.as_str()?))))
        .collect();
    let members = workspace["members"].as_array().unwrap();
    let members = members.iter().map(|member| member.as_str().unwrap());
    members
        .map(|dir| {
            let used = dependencies(&manifest(&root().join(dir))).into_iter();
            let used = used.map(|key| known.get(&*key).map_or(key, |own| own.to_string()));
            (name(dir).to_owned(), used.collect())
        })
        .collect()
}

/// Those between crates of the workspace.
fn built() -> Arrows {
    let all = all_dependencies();
    let own: BTreeSet<_> = all.keys().cloned().collect();
    all.into_iter()
        .map(|(from, to)| (from, to.intersection(&own).cloned().collect()))
        .filter(|(_, to): &(String, BTreeSet<String>)| !to.is_empty())
        .collect()
}

/// The arrows of the document: `a, b → c d`.
fn drawn() -> Arrows {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let lines = text.lines().filter(|line| line.starts_with("    "));
    let mut arrows = Arrows::new();
    for (from, to) in lines.filter_map(|line| line.split_once(" → ")) {
        for from in from.split(',') {
            let to = to.split_whitespace().map(str::to_owned);
            arrows.entry(from.trim().to_owned()).or_default().extend(to);
        }
    }
    arrows
}

/// Each arrow of `these` that `others` has not.
fn lacking<'a>(these: &'a Arrows, others: &Arrows) -> Vec<(&'a str, &'a str)> {
    these
        .iter()
        .flat_map(|(from, to)| to.iter().map(move |to| (from, to)))
        .filter(|(from, to)| !others.get(*from).is_some_and(|known| known.contains(*to)))
        .map(|(from, to)| (from.as_str(), to.as_str()))
        .collect()
}

#[test]
fn the_document_draws_every_dependency_between_crates_and_no_other() {
    let (built, drawn) = (built(), drawn());
    assert!(built.len() > 15, "{built:?}");
    let (forbidden, unused) = (lacking(&built, &drawn), lacking(&drawn, &built));
    assert!(
        forbidden.is_empty() && unused.is_empty(),
        "dependencies that ARCHITECTURE.md does not draw: {forbidden:?}; arrows without a dependency: {unused:?}"
    );
}

#[test]
fn a_mount_and_a_client_are_built_without_rooms_and_without_sql() {
    let all = all_dependencies();
    for front in ["mount", "metadata-client"] {
        let mut found = BTreeSet::from([front.to_owned()]);
        let mut new = vec![front.to_owned()];
        while let Some(next) = new.pop() {
            let to = all.get(&next).into_iter().flatten();
            new.extend(to.filter(|to| found.insert((*to).clone())).cloned());
        }
        assert!(found.contains("model"), "{found:?}");
        for never in ["room", "catalog", "pages", "rusqlite"] {
            assert!(!found.contains(never), "{front} needs {never}");
        }
    }
}
