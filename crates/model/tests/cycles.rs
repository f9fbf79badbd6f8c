//! The modules of a crate are layers: of two top-level modules at most one uses the other, directly or through others. Reads sources
//! alone, and is here because the crate at the bottom is built in a moment.
//!
//! A module is `src/NAME.rs` or `src/NAME/`, whole. What is defined in `lib.rs` itself is a module too, named `lib`; what it only
//! re-exports counts as where it comes from. Code for tests may use anything.
#![allow(missing_docs)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// What each module uses, and a file that does.
type Uses = BTreeMap<String, BTreeMap<String, String>>;

/// A source file: its path in `src`, and its modules from the top.
struct Source {
    path: PathBuf,
    modules: Vec<String>,
    tokens: Vec<TokenTree>,
}

impl Source {
    fn read(src: &Path, path: &Path) -> Source {
        let text = fs::read_to_string(path).unwrap();
        let tokens: TokenStream = text
            .parse()
            .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let path = path.strip_prefix(src).unwrap().to_owned();
        let mut modules: Vec<String> = path
            .with_extension("")
            .iter()
            .map(|part| part.to_str().unwrap().to_owned())
            .collect();
        modules.pop_if(|last| last == "mod" || last == "lib");
        Source {
            path,
            modules,
            tokens: without_tests(tokens),
        }
    }

    fn top(&self) -> &str {
        self.modules.first().map_or("lib", String::as_str)
    }
}

fn is_word(token: Option<&TokenTree>, word: &str) -> bool {
    matches!(token, Some(TokenTree::Ident(ident)) if ident == word)
}

fn is_sign(token: Option<&TokenTree>, sign: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == sign)
}

fn braced(token: Option<&TokenTree>) -> Option<TokenStream> {
    match token {
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
            Some(group.stream())
        }
        _ => None,
    }
}

/// Leaves out every item of `#[cfg(test)]`.
fn without_tests(tokens: TokenStream) -> Vec<TokenTree> {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let test = is_sign(tokens.get(at), '#')
            && matches!(tokens.get(at + 1), Some(TokenTree::Group(attribute))
                if attribute.stream().to_string().replace(' ', "") == "cfg(test)");
        if !test {
            kept.push(tokens[at].clone());
            at += 1;
            continue;
        }
        let ends = |token: &TokenTree| is_sign(Some(token), ';') || braced(Some(token)).is_some();
        let length = tokens[at..].iter().position(ends);
        at = length.map_or(tokens.len(), |length| at + length + 1);
    }
    kept
}

/// The names that a path leads to which ends here: one, or several in braces.
fn names(tokens: &[TokenTree]) -> Vec<String> {
    match tokens.first() {
        Some(TokenTree::Ident(ident)) => vec![ident.to_string()],
        None => Vec::new(),
        token => {
            let inner: Vec<_> = braced(token).into_iter().flatten().collect();
            let parts = inner.split(|token| is_sign(Some(token), ','));
            parts.flat_map(names).collect()
        }
    }
}

/// Every name at the top of the crate that is mentioned, below `depth` modules.
fn mentioned(tokens: &[TokenTree], depth: usize, found: &mut BTreeSet<String>) {
    let separated = |at: usize| is_sign(tokens.get(at), ':') && is_sign(tokens.get(at + 1), ':');
    let mut at = 0;
    while at < tokens.len() {
        if let TokenTree::Group(group) = &tokens[at] {
            let inline = at >= 2 && is_word(tokens.get(at - 2), "mod");
            let inner: Vec<_> = group.stream().into_iter().collect();
            mentioned(&inner, depth + usize::from(inline), found);
        }
        if is_word(tokens.get(at), "crate") && separated(at + 1) {
            found.extend(names(&tokens[at + 3..]));
        }
        let mut up = 0;
        while is_word(tokens.get(at), "super") && separated(at + 1) {
            up += 1;
            at += 3;
        }
        if up > 0 && up >= depth {
            found.extend(names(&tokens[at.min(tokens.len())..]));
        }
        at += usize::from(up == 0);
    }
}

/// What `lib.rs` itself defines with the help of which modules, and what it re-exports from where.
fn root(
    tokens: &[TokenTree],
    modules: &BTreeSet<String>,
) -> (BTreeSet<String>, BTreeMap<String, String>) {
    let (mut used, mut exported) = (BTreeSet::new(), BTreeMap::new());
    let mut rest = tokens;
    while let Some(token) = rest.first() {
        if is_word(Some(token), "use") {
            let end = rest.iter().position(|token| is_sign(Some(token), ';'));
            let (item, after) = rest.split_at(end.unwrap_or(rest.len()));
            let text = TokenStream::from_iter(item.iter().cloned()).to_string();
            let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
            let mut words = words.filter(|word| !["", "use", "crate", "self"].contains(word));
            if let Some(from) = words.next().filter(|first| modules.contains(*first)) {
                exported.extend(words.map(|name| (name.to_owned(), from.to_owned())));
            }
            rest = after;
            continue;
        }
        if let TokenTree::Group(group) = token {
            let inner: Vec<_> = group.stream().into_iter().collect();
            let (more, _) = root(&inner, modules);
            used.extend(more);
        }
        if is_sign(rest.get(1), ':') && is_sign(rest.get(2), ':') {
            used.extend(
                names(rest)
                    .into_iter()
                    .filter(|name| modules.contains(name)),
            );
        }
        rest = &rest[1..];
    }
    (used, exported)
}

fn files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
}

/// The names of all directories beside this crate's.
fn crates() -> Vec<String> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let entries = fs::read_dir(beside).unwrap().flatten();
    let with_library = entries.filter(|entry| entry.path().join("src/lib.rs").exists());
    let names = with_library.map(|entry| entry.file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

fn uses(krate: &str) -> Uses {
    let src = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(krate)
        .join("src");
    let mut paths = Vec::new();
    files(&src, &mut paths);
    paths.sort();
    let sources = paths.iter().map(|path| Source::read(&src, path));
    // Programs of the crate use its library; tests use what they like.
    let outside = |source: &Source| {
        ["bin", "main"].contains(&source.top()) || source.modules.iter().any(|m| m == "tests")
    };
    let sources: Vec<Source> = sources.filter(|source| !outside(source)).collect();
    let modules: BTreeSet<String> = sources.iter().map(|s| s.top().to_owned()).collect();
    let lib = sources.iter().find(|source| source.modules.is_empty());
    let (used, exported) = root(&lib.expect("lib.rs").tokens, &modules);
    let mut all = Uses::new();
    for source in &sources {
        let mut found = BTreeSet::new();
        match source.modules.is_empty() {
            true => found.clone_from(&used),
            false => mentioned(&source.tokens, source.modules.len(), &mut found),
        }
        let known = all.entry(source.top().to_owned()).or_default();
        for name in found {
            let to = match modules.contains(&name) {
                true => name,
                false => exported.get(&name).map_or("lib".to_owned(), Clone::clone),
            };
            if to != source.top() {
                known.entry(to).or_insert(source.path.display().to_string());
            }
        }
    }
    all
}

/// The shortest way from a module back to itself.
fn cycle<'a>(uses: &'a Uses, from: &'a str) -> Option<Vec<&'a str>> {
    let mut ways = VecDeque::from([vec![from]]);
    let mut seen = BTreeSet::new();
    while let Some(way) = ways.pop_front() {
        for to in uses.get(*way.last()?).into_iter().flat_map(BTreeMap::keys) {
            let longer = [&way[..], &[to.as_str()]].concat();
            if to == from {
                return Some(longer);
            }
            if seen.insert(to) {
                ways.push_back(longer);
            }
        }
    }
    None
}

/// As `a → b (a/file.rs) → a (b.rs)`.
fn shown(uses: &Uses, way: &[&str]) -> String {
    let steps = way.windows(2).map(|step| {
        let file = &uses[step[0]][step[1]];
        format!(" → {} ({file})", step[1])
    });
    way[0].to_owned() + &steps.collect::<String>()
}

#[test]
fn the_modules_of_a_crate_are_layers() {
    let mut found = Vec::new();
    let all = crates();
    assert!(all.len() > 20, "{all:?}");
    for krate in &all {
        let uses = uses(krate);
        assert!(!uses.is_empty(), "{krate}");
        let cycles = uses.keys().filter_map(|module| cycle(&uses, module));
        if let Some(shortest) = cycles.min_by_key(Vec::len) {
            found.push(format!("{krate}: {}", shown(&uses, &shortest)));
        }
    }
    assert!(
        found.is_empty(),
        "modules that use each other:\n{}",
        found.join("\n")
    );
}

#[test]
fn every_way_to_name_a_module_is_seen() {
    let tokens = |text: &str| without_tests(text.parse().unwrap());
    let mut found = BTreeSet::new();
    let text = "use crate::a::X; use crate::{b::{Y, Z}, c}; fn f() { println!(\"{}\", crate::d::n()); super::super::e(); }
        mod inner { use super::super::super::g; use super::super::not_h; }
        /// [`crate::not_i`] \"crate::not_j\"
        #[cfg(test)] mod tests { use crate::not_k; } #[cfg(test)] use crate::not_l; pub(crate) fn l() -> super::super::l::L {}";
    mentioned(&tokens(text), 2, &mut found);
    let all: Vec<_> = found.iter().map(String::as_str).collect();
    assert_eq!(all, ["a", "b", "c", "d", "e", "g", "l"]);

    let modules = ["a", "b", "c"].map(str::to_owned).into();
    let text =
        "mod a; mod b; mod c; pub use a::{X, Y}; pub use b::Z as W; fn f() { c::run(std::b()) }";
    let (used, exported) = root(&tokens(text), &modules);
    assert_eq!(used, BTreeSet::from(["c".to_owned()]));
    assert_eq!((&*exported["Y"], &*exported["W"]), ("a", "b"));

    let edge = |to: &str| BTreeMap::from([(to.to_owned(), "file.rs".to_owned())]);
    let uses = BTreeMap::from([
        ("a".to_owned(), edge("b")),
        ("b".to_owned(), edge("c")),
        ("c".to_owned(), edge("b")),
    ]);
    assert_eq!(cycle(&uses, "a"), None);
    let way = cycle(&uses, "b").unwrap();
    assert_eq!(shown(&uses, &way), "b → c (file.rs) → b (file.rs)");
}
