use clap::{FromArgMatches, Parser};

use super::*;

#[derive(Debug, Parser)]
#[command(name = "program")]
struct Program {
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Of,
}

#[derive(Debug, clap::Subcommand)]
enum Of {
    #[command(subcommand)]
    Disk(Disk),
    Other {
        #[arg(long)]
        listen: Option<String>,
    },
}

#[derive(Debug, clap::Subcommand)]
enum Disk {
    Serve(Own),
}

#[derive(Debug, clap::Args)]
struct Own {
    #[arg(long, default_value = "default:0")]
    listen: String,
    #[arg(long)]
    store: PathBuf,
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    connections_max: u32,
    #[arg(long)]
    disk: Vec<String>,
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    common: Common,
}

const SERVERS: [ServerCommand; 1] = [ServerCommand {
    path: &["disk", "serve"],
    word: "disk",
}];

fn parse(arguments: &[&str], variables: &[(&str, &str)]) -> Result<Own, String> {
    let mut all: Vec<OsString> = vec!["program".into(), "disk".into(), "serve".into()];
    all.extend(arguments.iter().map(Into::into));
    let environment = variables.iter().map(|(k, v)| (k.into(), v.into()));
    let command = <Program as clap::CommandFactory>::command();
    let command = fill(command, &all, &SERVERS, environment).map_err(|e| e.to_string())?;
    let matches = command.try_get_matches_from(&all);
    match Program::from_arg_matches(&matches.map_err(|e| e.to_string())?).unwrap() {
        Program {
            command: Of::Disk(Disk::Serve(own)),
            ..
        } => Ok(own),
        other => panic!("{other:?}"),
    }
}

fn file(text: &str) -> (tempfile::NamedTempFile, String) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    let path = file.path().to_str().unwrap().to_owned();
    (file, path)
}

#[test]
fn flags_count_more_than_the_environment_and_that_more_than_the_file() {
    let (_kept, path) = file(
        "listen = 'file:1'\nstore = '/file'\nconnections-max = 1\ndisk = ['a', 'b']\nforce = true\nhealth = 9640\n",
    );
    let variables = [
        ("STRONGROOM_DISK_LISTEN", "variable:2"),
        ("STRONGROOM_DISK_CONNECTIONS_MAX", "2"),
        ("STRONGROOM_DISK_LOG_FORMAT", "json"),
        ("STRONGROOM_METADATA_NONSENSE", "another server's"),
        ("PATH", "/bin"),
    ];
    let own = parse(&["--config", &path, "--listen", "flag:3"], &variables).unwrap();
    assert_eq!(own.listen, "flag:3");
    assert_eq!(own.connections_max, 2);
    assert_eq!(own.store, Path::new("/file"));
    assert_eq!(own.disk, ["a", "b"]);
    assert!(own.force);
    assert_eq!(own.common.health, Some("127.0.0.1:9640".parse().unwrap()));
    assert_eq!(own.common.log_format, LogFormat::Json);
    // A list on the command line takes the place of the file's.
    let own = parse(&["--config", &path, "--disk", "c"], &[]).unwrap();
    assert_eq!((own.disk, own.connections_max), (vec!["c".to_owned()], 1));
}

#[test]
fn what_nobody_sets_has_its_default_and_what_is_required_is_asked_for() {
    let own = parse(&["--store", "s"], &[]).unwrap();
    assert_eq!((own.listen.as_str(), own.connections_max), ("default:0", 5));
    assert!(!own.force);
    let said = parse(&[], &[]).unwrap_err();
    assert!(said.contains("--store"), "{said}");
}

#[test]
fn the_environment_may_name_the_file_and_have_lists() {
    let (_kept, path) = file("connections-max = 7\nforce = false");
    let variables = [
        ("STRONGROOM_DISK_CONFIG", path.as_str()),
        ("STRONGROOM_DISK_STORE", "7000"),
        ("STRONGROOM_DISK_DISK", "a, b"),
        ("STRONGROOM_DISK_FORCE", "true"),
    ];
    let own = parse(&[], &variables).unwrap();
    assert_eq!((own.connections_max, own.force), (7, true));
    assert_eq!(own.store, Path::new("7000"));
    assert_eq!(own.disk, ["a", "b"]);
}

#[test]
fn a_key_that_nobody_knows_is_refused_by_its_name_and_place() {
    for (text, key) in [
        ("conections-max = 7", "conections-max"),
        ("config = 'other'", "config"),
        ("json = true", "json"),
        ("[table]\nlisten = 'x'", "table"),
    ] {
        let (_kept, path) = file(text);
        let said = parse(&["--store", "s", "--config", &path], &[]).unwrap_err();
        assert!(said.contains(&path), "{said}");
        assert!(said.contains(&format!("no setting '{key}'")), "{said}");
        assert!(said.contains("connections-max, "), "{said}");
    }
    let said = parse(
        &["--store", "s"],
        &[("STRONGROOM_DISK_CONECTIONS_MAX", "7")],
    )
    .unwrap_err();
    assert!(said.contains("STRONGROOM_DISK_CONECTIONS_MAX"), "{said}");
}

#[test]
fn a_value_that_is_none_of_its_key_is_refused_with_its_place() {
    for (text, key) in [
        ("connections-max = 'many'", "connections-max"),
        ("connections-max = 101", "101"),
        ("connections-max = [1, 2]", "connections-max"),
        ("connections-max = {}", "connections-max"),
        ("health = 'nowhere'", "health"),
        ("log-format = 'xml'", "possible values: text, json"),
        ("force = 'perhaps'", "force"),
        ("listen = [", "TOML"),
    ] {
        let (_kept, path) = file(text);
        let said = parse(&["--store", "s", "--config", &path], &[]).unwrap_err();
        assert!(said.contains(&path) && said.contains(key), "{said}");
    }
    let said = parse(
        &["--store", "s"],
        &[("STRONGROOM_DISK_CONNECTIONS_MAX", "many")],
    )
    .unwrap_err();
    assert!(said.contains("STRONGROOM_DISK_CONNECTIONS_MAX"), "{said}");
    let said = parse(&["--config", "/nonexistent/settings.toml"], &[]).unwrap_err();
    assert!(said.contains("/nonexistent/settings.toml"), "{said}");
}

#[test]
fn other_commands_are_left_alone() {
    let all: Vec<OsString> = vec!["program".into(), "other".into()];
    let command = <Program as clap::CommandFactory>::command();
    let environment = [("STRONGROOM_DISK_NONSENSE".into(), "x".into())];
    let command = fill(command, &all, &SERVERS, environment).unwrap();
    assert!(command.try_get_matches_from(&all).is_ok());
}
