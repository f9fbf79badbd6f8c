//! The command line: places become directories of this machine, options of buckets go.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bucket::{LogPlace, Place, SCHEME};
use strongroom_cli::bucket::place_in;
use strongroom_cli::program::bytes;

use crate::proxy::{Settings, note};

/// What the options for buckets say.
#[derive(Debug, Default)]
struct Given {
    cache: Option<PathBuf>,
    settings: Settings,
}

/// The command line without the password of a log, and that password. Command lines are shown to every user of the machine.
pub(crate) fn split_password(arguments: &[OsString]) -> Option<(Vec<OsString>, String)> {
    let mut password = None;
    let mut is_log = false;
    let words = arguments.iter().map(|word| {
        let text = word.to_str().unwrap_or_default();
        let (option, place) = match text.strip_prefix("--log=") {
            Some(place) => ("--log=", place),
            None if is_log => ("", text),
            None => ("", ""),
        };
        is_log = text == "--log";
        let Ok(place) = LogPlace::parse(place) else {
            return word.clone();
        };
        password = place.password().map(str::to_owned).or(password.take());
        OsString::from(format!("{option}{place}"))
    });
    let words = words.collect();
    Some((words, password?))
}

/// The command line without places and without options for buckets. The directories of the places are there afterwards.
pub(crate) fn read(arguments: Vec<OsString>) -> Result<Vec<OsString>, String> {
    let mut given = Given::default();
    // A log of an earlier room at the place is no log of a new one.
    let begins = |with: &[&str]| {
        with.iter()
            .zip(arguments.iter().skip(1))
            .all(|(a, b)| a == b)
    };
    let is_new = begins(&["create"]) || begins(&["disk", "init"]);
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
            // `mount` has an option of this name for a file.
            "--log" => {
                let is_inside = inside.is_some();
                let value = inside.or_else(|| words.next());
                match value {
                    Some(value) if is_log(&value) => option(&mut given, name, &value)?,
                    _ if is_inside => rest.push(word),
                    value => rest.extend([word].into_iter().chain(value)),
                }
            }
            "--cache" | "--cache-size" | "--store-timeout" => {
                let value = inside.or_else(|| words.next());
                let value = value.ok_or_else(|| format!("{name}: a value is missing"))?;
                option(&mut given, name, &value)?;
            }
            "--" => {
                rest.push(word);
                rest.extend(words.by_ref());
            }
            // As in fstab; mount(8) gives them so too.
            "-o" if inside.is_none() => {
                let list = words.next().unwrap_or_default();
                rest.extend([word, mount_options(&mut given, &list)?]);
            }
            _ => rest.push(word),
        }
    }
    let mut places = Vec::new();
    for word in &mut rest {
        let Some(text) = place_in(word) else {
            continue;
        };
        let text = text.to_str().ok_or("a place is not text")?;
        // --store=s3://bucket/prefix
        let option = word.len() - text.len();
        // Within a room or a snapshot of it: s3://bucket/prefix:/path, s3://bucket/prefix@monday:/path.
        let (name, path) = match text[SCHEME.len()..].find([':', '@']) {
            Some(at) => text.split_at(SCHEME.len() + at),
            None => (text, ""),
        };
        let place = Place::parse(name)?;
        let dir = match &given.cache {
            Some(dir) => std::path::absolute(dir).map_err(|e| format!("--cache: {e}"))?,
            None => default_dir(&place)?,
        };
        note(&dir, &place, &given.settings, is_new)?;
        let mut in_place = OsStr::from_bytes(&word.as_bytes()[..option]).to_owned();
        in_place.push(dir);
        in_place.push(path);
        places.push(place);
        *word = in_place;
    }
    places.dedup();
    let is_of_one = [
        (given.cache.is_some(), "--cache is the cache of one room"),
        (given.settings.log.is_some(), "--log is the log of one room"),
    ];
    for (_, what) in is_of_one.iter().filter(|(is_given, _)| *is_given) {
        if places.len() > 1 {
            return Err(format!("{what}, and there are two on the command line"));
        }
    }
    Ok(rest)
}

/// Whether a word is the place of a log, right or wrong.
fn is_log(word: &OsStr) -> bool {
    word.to_string_lossy().contains("://")
}

/// A list of mount options without those that only rooms in buckets have.
fn mount_options(given: &mut Given, list: &OsStr) -> Result<OsString, String> {
    let Some(list) = list.to_str() else {
        return Ok(list.to_owned());
    };
    let mut others = Vec::new();
    for word in list.split(',') {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        // fstab spells options either way.
        match (name.replace('_', "-").as_str(), value) {
            ("take-over", None) => given.settings.take_over = true,
            (name @ ("cache" | "cache-size" | "store-timeout"), value) => {
                let value = value.filter(|value| !value.is_empty());
                let value =
                    value.ok_or_else(|| format!("mount option {name}: a value is missing"))?;
                option(given, &format!("--{name}"), OsStr::new(value))?;
            }
            _ => others.push(word),
        }
    }
    Ok(others.join(",").into())
}

fn option(given: &mut Given, name: &str, value: &OsStr) -> Result<(), String> {
    let text = || value.to_str().ok_or_else(|| format!("{name}: not text"));
    match name {
        "--cache" => given.cache = Some(PathBuf::from(value)),
        "--log" => given.settings.log = Some(LogPlace::parse(text()?)?),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_becomes_the_directory_of_its_cache_wherever_it_is() {
        let cache = tempfile::tempdir().unwrap();
        let dir = cache.path().to_str().unwrap();
        let line = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        let said = ["s", "disk", "init", "--store=s3://rooms/d1", "--cache", dir];
        let read = super::read(line(&said)).unwrap();
        assert_eq!(
            read,
            line(&["s", "disk", "init", &format!("--store={dir}")])
        );
        let said = [
            "s",
            "ls",
            "s3://rooms/d1:/x",
            "s3://rooms/d1@monday:/x",
            "a=s3://rooms/d1",
            "--cache",
            dir,
        ];
        let read = super::read(line(&said)).unwrap();
        assert_eq!(
            read,
            line(&[
                "s",
                "ls",
                &format!("{dir}:/x"),
                &format!("{dir}@monday:/x"),
                "a=s3://rooms/d1"
            ])
        );
    }

    #[test]
    fn options_of_an_fstab_line_are_taken_out_of_the_list() {
        let mut given = Given::default();
        let list =
            OsStr::new("ro,cache=/c,follow,cache_size=2MiB,store-timeout=5s,take_over,x-a=b");
        let rest = mount_options(&mut given, list).unwrap();
        assert_eq!(rest, "ro,follow,x-a=b");
        assert_eq!(given.cache, Some("/c".into()));
        assert_eq!(given.settings.cache_bytes, Some(2 << 20));
        assert_eq!(given.settings.timeout, Some(Duration::from_secs(5)));
        assert!(given.settings.take_over);
        assert!(mount_options(&mut given, OsStr::new("cache=")).is_err());
        assert!(mount_options(&mut given, OsStr::new("store-timeout=soon")).is_err());
    }
}
