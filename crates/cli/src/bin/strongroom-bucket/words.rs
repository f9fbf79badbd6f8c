//! The command line: places become directories of this machine, options of buckets go.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bucket::{Place, SCHEME};
use strongroom_cli::program::bytes;

use crate::proxy::{Settings, note};

/// What the options for buckets say.
#[derive(Debug, Default)]
struct Given {
    cache: Option<PathBuf>,
    settings: Settings,
}

/// The command line without places and without options for buckets. The directories of the places are there afterwards.
pub(crate) fn read(arguments: Vec<OsString>) -> Result<Vec<OsString>, String> {
    let mut given = Given::default();
    let mut rest = Vec::new();
    let mut words = arguments.into_iter();
    while let Some(word) = words.next() {
        let text = word.to_string_lossy().into_owned();
        let (name, inside) = match text.split_once('=') {
            Some((name, value)) => (name, Some(OsString::from(value))),
            None => (&*text, None),
        };
        match name {
            "--take-over" if inside.is_none() => given.settings.take_over = true,
            "--cache" | "--cache-size" | "--store-timeout" => {
                let value = inside.or_else(|| words.next());
                let value = value.ok_or_else(|| format!("{name}: a value is missing"))?;
                option(&mut given, name, &value)?;
            }
            "--" => {
                rest.push(word);
                rest.extend(words.by_ref());
            }
            _ => rest.push(word),
        }
    }
    let is_place = |word: &OsString| word.to_string_lossy().starts_with(SCHEME);
    let mut places = Vec::new();
    for word in rest.iter_mut().filter(|word| is_place(word)) {
        let text = word.to_str().ok_or("a place is not text")?;
        // Within a room: s3://bucket/prefix:/path.
        let (name, path) = match text[SCHEME.len()..].find(':') {
            Some(at) => text.split_at(SCHEME.len() + at),
            None => (text, ""),
        };
        let place = Place::parse(name)?;
        let dir = match &given.cache {
            Some(dir) => std::path::absolute(dir).map_err(|e| format!("--cache: {e}"))?,
            None => default_dir(&place)?,
        };
        note(&dir, &place, &given.settings)?;
        let mut in_place = dir.into_os_string();
        in_place.push(path);
        places.push(place);
        *word = in_place;
    }
    places.dedup();
    if given.cache.is_some() && places.len() > 1 {
        return Err(
            "--cache is the cache of one room, and there are two on the command line".into(),
        );
    }
    Ok(rest)
}

fn option(given: &mut Given, name: &str, value: &OsStr) -> Result<(), String> {
    let text = || value.to_str().ok_or_else(|| format!("{name}: not text"));
    match name {
        "--cache" => given.cache = Some(PathBuf::from(value)),
        "--cache-size" => given.settings.cache_bytes = Some(bytes(text()?)?),
        _ => {
            let seconds: u64 = text()?
                .trim_end_matches('s')
                .parse()
                .map_err(|_| format!("{name}: not a number of seconds"))?;
            given.settings.timeout = Some(Duration::from_secs(seconds.max(1)));
        }
    }
    Ok(())
}

/// `$XDG_CACHE_HOME/strongroom/BUCKET+PREFIX`, else below `~/.cache`.
fn default_dir(place: &Place) -> Result<PathBuf, String> {
    let absolute = |name: &str| {
        let dir = std::env::var_os(name).map(PathBuf::from);
        dir.filter(|dir| dir.is_absolute())
    };
    let cache =
        absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    let cache = cache.ok_or("there is no place for a cache: set HOME, or give --cache DIR")?;
    Ok(Path::new(&cache).join("strongroom").join(place.file_name()))
}
