//! Keys that another program has: age plugins, and programs that print a passphrase, also from a PKCS#11 token. Through the real
//! program.
//!
//! `plugins/age-plugin-toy` speaks the plugin protocol in a few lines of shell.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::process::{Process, TIMEOUT, until};
use crate::common::{CHEAP, Ran, Sandbox, can_mount, copy_program, noise, program, words};

/// Bech32 of `toy key`, by name of the plugin.
const RECIPIENT: &str = "age1toy1w3hhjgrtv4us8wu4c0";
const IDENTITY: &str = "AGE-PLUGIN-TOY-1W3HHJGRTV4USZV09ER";
const EVIL_RECIPIENT: &str = "age1evil1w3hhjgrtv4usm3kx2u";
const OTHER_IDENTITY: &str = "AGE-PLUGIN-OTR-1W3HHJGRTV4US682S5X";

/// Adds a slot for the plugin, which opens the room for it too.
const ADD_BY_PLUGIN: [&str; 7] = [
    "key",
    "add",
    "room",
    "--identity",
    "id",
    "--new-recipient",
    RECIPIENT,
];

/// A place where the plugin is in PATH.
struct Place {
    s: Sandbox,
}

impl Place {
    /// With a room that a passphrase opens.
    fn new() -> Self {
        let s = Sandbox::with_room();
        std::fs::create_dir(s.path("bin")).unwrap();
        let place = Self { s };
        for name in ["toy", "otr", "evil"] {
            place.install(name);
        }
        std::fs::write(place.s.path("id"), format!("# toy\n{IDENTITY}\n")).unwrap();
        place
    }

    /// The same with a slot for the plugin.
    fn with_slot() -> Self {
        let place = Self::new();
        place.ok(
            "",
            &pass(&["key", "add", "room", "--new-recipient", RECIPIENT]),
        );
        place
    }

    fn install(&self, name: &str) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plugins/age-plugin-toy");
        copy_program(&script, &self.program(name));
    }

    fn program(&self, name: &str) -> PathBuf {
        self.s.path(format!("bin/age-plugin-{name}"))
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.s.path("log")).unwrap_or_default()
    }

    /// The process of each plugin that was started, and the one that started it.
    fn started(&self) -> Vec<(u32, u32)> {
        let log = self.log();
        let lines = log.lines().filter_map(|line| line.split_once(" process "));
        lines
            .map(|(_, pids)| {
                let (own, parent) = pids.split_once(" of ").unwrap();
                (own.parse().unwrap(), parent.parse().unwrap())
            })
            .collect()
    }

    fn clear_log(&self) {
        let _ = std::fs::remove_file(self.s.path("log"));
    }

    /// Has the program run without a terminal, where plugins would ask.
    fn command(&self, toy: &str, args: &[&str]) -> Command {
        let inner = self.s.command(args);
        let mut command = Command::new("setsid");
        command.arg("--wait").arg(inner.get_program());
        command.args(inner.get_args());
        command.current_dir(self.s.path(""));
        for (name, value) in inner.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = [self.s.path("bin")]
            .into_iter()
            .chain(std::env::split_paths(&path));
        command
            .env("PATH", std::env::join_paths(path).unwrap())
            .env("TOY", toy)
            .env("TOY_LOG", self.s.path("log"))
            .stdin(Stdio::null());
        command
    }

    fn run(&self, toy: &str, args: &[&str]) -> Ran {
        self.command(toy, args).output().unwrap().into()
    }

    fn ok(&self, toy: &str, args: &[&str]) -> String {
        let ran = self.run(toy, args);
        assert_eq!(ran.code, 0, "{args:?}: {}", ran.err);
        ran.text()
    }

    fn fails(&self, toy: &str, code: i32, args: &[&str]) -> String {
        let ran = self.run(toy, args);
        assert_eq!(ran.code, code, "{args:?}: {}", ran.err);
        ran.err
    }
}

/// The processes that a process started, zombies included.
fn children(pid: u32) -> String {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let lists = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("children")));
    // A thread may end meanwhile.
    lists.map(Result::unwrap_or_default).collect()
}

fn is_there(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

fn pass<'a>(args: &[&'a str]) -> Vec<&'a str> {
    [args, &["--passphrase-file", "pass"]].concat()
}

#[test]
fn a_slot_of_a_plugin_is_added_listed_used_and_removed() {
    let place = Place::with_slot();
    let list = place.ok("", &["key", "list", "room"]);
    assert!(list.contains(RECIPIENT), "{list}");
    let list = place.ok("", &["key", "list", "room", "--json"]);
    assert!(list.contains("\"plugins\":[\"age-plugin-toy\"]"), "{list}");
    place.clear_log();
    place.ok("", &["mkdir", "room:/made", "--identity", "id"]);
    assert_eq!(place.ok("", &["ls", "room:", "--identity", "id"]), "made\n");
    // Identity and stanzas are all that the plugin gets; what is neither tests that it passes over what it does not know.
    let log = place.log();
    for line in log.lines().filter(|line| line.starts_with("-> ")) {
        let is_known = line.starts_with("-> add-identity ")
            || line.starts_with("-> recipient-stanza 0 ")
            || line == "-> done"
            || line.contains("grease");
        assert!(is_known, "{line}");
    }
    assert!(log.contains(IDENTITY), "{log}");
    // A plugin without a key of its own in the room.
    std::fs::write(place.s.path("other"), OTHER_IDENTITY).unwrap();
    place.fails("", 3, &["ls", "room:", "--identity", "other"]);
    let own = ["key", "remove", "room", "1", "--identity", "id", "--force"];
    place.ok("", &own);
    place.fails("", 3, &["ls", "room:", "--identity", "id"]);
    place.ok("", &pass(&["ls", "room:"]));
}

#[test]
fn an_error_of_a_plugin_names_it() {
    let place = Place::with_slot();
    let ls = ["ls", "room:", "--identity", "id"];
    for (toy, expected) in [
        ("dies", "ended before it answered"),
        ("babbles", "not the plugin protocol"),
        ("cheats", "returned a wrong key"),
        ("fails", "the token is not plugged in"),
        // Nobody is there to be asked.
        ("asks", "no PIN was given"),
    ] {
        let ran = place.run(toy, &ls);
        assert_ne!(ran.code, 0);
        assert!(ran.err.contains("age-plugin-toy"), "{toy}: {}", ran.err);
        assert!(ran.err.contains(expected), "{toy}: {}", ran.err);
        assert_eq!(ran.err.trim_end().lines().count(), 1, "{toy}: {}", ran.err);
    }
    let add = pass(&["key", "add", "room", "--new-recipient", RECIPIENT]);
    for toy in ["dies", "babbles", "fails", "asks"] {
        let ran = place.run(toy, &add);
        assert_ne!(ran.code, 0);
        assert!(ran.err.contains("age-plugin-toy"), "{toy}: {}", ran.err);
    }
    // Another plugin's failure does not hide an identity that opens.
    std::fs::write(
        place.s.path("two"),
        format!("{OTHER_IDENTITY}\n{IDENTITY}\n"),
    )
    .unwrap();
    std::fs::remove_file(place.program("otr")).unwrap();
    std::fs::write(place.s.path("otr"), "#!/no/such/interpreter\n").unwrap();
    copy_program(&place.s.path("otr"), &place.program("otr"));
    let made = Command::new("chmod")
        .arg("755")
        .arg(place.program("otr"))
        .status();
    assert!(made.unwrap().success());
    place.ok("", &["ls", "room:", "--identity", "two"]);
    std::fs::write(place.s.path("other"), OTHER_IDENTITY).unwrap();
    let ran = place.run("", &["ls", "room:", "--identity", "other"]);
    assert!(
        ran.err.contains("age-plugin-otr could not be started"),
        "{}",
        ran.err
    );

    std::fs::remove_file(place.program("toy")).unwrap();
    let error = place.fails("", 2, &ls);
    assert!(error.contains("age-plugin-toy is not in PATH"), "{error}");
    let error = place.fails("", 2, &add);
    assert!(error.contains("age-plugin-toy is not in PATH"), "{error}");
    // The slots of before are all there.
    assert_eq!(
        place
            .ok("", &pass(&["key", "list", "room"]))
            .lines()
            .count(),
        3
    );
}

/// Someone who can write to the room's directory puts another plugin's name in the header: it must not be started.
#[test]
fn no_program_starts_because_a_header_names_it() {
    let place = Place::with_slot();
    place.clear_log();
    place.ok("", &pass(&["ls", "room:"]));
    place.ok("", &["key", "list", "room"]);
    place.ok("", &pass(&["key", "list", "room"]));
    place.ok("", &["info", "room"]);
    assert_eq!(place.log(), "");

    for name in ["header.json", "header.backup.json"] {
        let path = place.s.path("room").join(name);
        let header = std::fs::read_to_string(&path).unwrap();
        assert!(header.contains(RECIPIENT));
        std::fs::write(&path, header.replace(RECIPIENT, EVIL_RECIPIENT)).unwrap();
    }
    place.ok("", &["key", "list", "room"]);
    for args in [
        pass(&["ls", "room:"]),
        pass(&["rekey", "room"]),
        pass(&["key", "list", "room"]),
        vec!["ls", "room:", "--identity", "id"],
    ] {
        assert_ne!(place.run("", &args).code, 0, "{args:?}");
    }
    let log = place.log();
    assert!(log.contains("as age-plugin-toy"), "{log}");
    assert!(!log.contains("as age-plugin-evil"), "{log}");
}

#[test]
fn a_rekey_wraps_for_the_plugin_again() {
    let place = Place::with_slot();
    place.ok("", &pass(&["rekey", "room"]));
    place.ok("", &["ls", "room:", "--identity", "id"]);
    // A plugin that fails loses its slot, and the command says so.
    let refused = place.fails("dies", 1, &pass(&["rekey", "room"]));
    assert!(refused.contains("1 (recipients)"), "{refused}");
    place.ok("", &["ls", "room:", "--identity", "id"]);
    let dropped = place.ok("dies", &pass(&["rekey", "room", "--drop-slots"]));
    assert!(dropped.contains("key slot 1 (recipients)"), "{dropped}");
    place.ok("", &pass(&["ls", "room:"]));
}

#[test]
fn a_room_is_mounted_with_a_plugin() {
    if !can_mount() {
        return;
    }
    let place = Place::with_slot();
    place.ok("", &["mount", "room", "mnt", "--identity", "id"]);
    std::fs::write(place.s.path("mnt/f"), noise(100_000, 1)).unwrap();
    // The process of this mount can start it.
    place.ok("", &ADD_BY_PLUGIN);
    place.ok("", &["umount", "mnt"]);
    place.ok("", &pass(&["mount", "room", "mnt"]));
    assert_eq!(
        std::fs::read(place.s.path("mnt/f")).unwrap(),
        noise(100_000, 1)
    );
    place.ok("", &["umount", "mnt"]);
    let error = place.fails(
        "",
        1,
        &words("mount room mnt --identity id --confinement required"),
    );
    assert!(error.contains("plugin"), "{error}");
    let ran = place.run("fails", &["mount", "room", "mnt", "--identity", "id"]);
    assert!(ran.err.contains("age-plugin-toy: "), "{}", ran.err);
    assert!(!place.s.is_mounted());
}

/// A plugin that waits for a token that nobody has kept commands of timers and servers waiting for ever.
#[test]
fn a_plugin_that_hangs_is_ended_after_its_time() {
    let place = Place::with_slot();
    place.clear_log();
    let add = pass(&["key", "add", "room", "--new-recipient", RECIPIENT]);
    for args in [&["ls", "room:", "--identity", "id"][..], &add] {
        let mut command = place.command("hangs", args);
        let ran: Ran = command
            .env("STRONGROOM_PLUGIN_TIMEOUT", "1")
            .output()
            .unwrap()
            .into();
        assert_ne!(ran.code, 0);
        let expected = "age-plugin-toy did not answer within 1 s";
        assert!(ran.err.contains(expected), "{}", ran.err);
    }
    let started = place.started();
    assert_eq!(started.len(), 2);
    assert!(started.iter().all(|(plugin, _)| !is_there(*plugin)));
    let mut command = place.command("", &["ls", "room:", "--identity", "id"]);
    command.env("STRONGROOM_PLUGIN_TIMEOUT", "a while");
    let ran: Ran = command.output().unwrap().into();
    assert_eq!(ran.code, 2, "{}", ran.err);
}

/// Processes that handle signals themselves did not end while they waited for a plugin. SIGINT itself is ignored where the tests run in
/// the background.
#[test]
fn a_signal_ends_the_wait_for_a_plugin() {
    let place = Place::with_slot();
    let serve = ["metadata", "serve", "room", "--listen", "127.0.0.1:0"];
    let mut commands = vec![serve.to_vec()];
    if can_mount() {
        commands.push(vec!["mount", "room", "mnt"]);
        commands.push(vec!["mount", "--foreground", "room", "mnt"]);
    }
    for args in commands {
        place.clear_log();
        let args = [&args[..], &["--identity", "id"]].concat();
        let log = place.s.path("process.log");
        let mut process = Process::start("strongroom", place.command("hangs", &args), &log);
        until("the plugin starts", || place.log().contains("-> done"));
        let (plugin, parent) = place.started()[0];
        let terminate = |pid: u32| {
            let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        };
        terminate(parent);
        assert!(process.wait(TIMEOUT).is_some(), "{args:?}");
        until("it has ended", || !is_there(parent));
        // Ctrl-C at a terminal goes to the plugin too.
        terminate(plugin);
        assert_eq!(place.started().len(), 1);
    }
    // Nothing is left in the way of the next one.
    place.ok("", &["mkdir", "room:/d", "--identity", "id"]);
}

#[test]
fn plugins_leave_no_process_in_those_that_stay() {
    let place = Place::with_slot();
    if can_mount() {
        // Two that have answered and do not end: one for the mount, one for the new slot.
        place.ok("lingers", &["mount", "room", "mnt", "--identity", "id"]);
        place.ok("lingers", &ADD_BY_PLUGIN);
        assert_eq!(children(place.s.pid()), "");
        place.ok("", &["umount", "mnt"]);
    }
    // The server asks its plugin once, at its start.
    place.clear_log();
    let serve = words("metadata serve room --listen 127.0.0.1:0 --identity id");
    let log = place.s.path("server.log");
    let server = Process::start("metadata serve", place.command("lingers", &serve), &log);
    until("the server serves", || {
        server.said().contains("is served at")
    });
    assert_eq!(place.started().len(), 1);
    assert_eq!(children(server.id()), "");
    assert!(server.stop().success());
}

/// Recipients of hardware in the age format's own form need no program where a slot is added.
#[test]
fn tagged_recipients_need_no_plugin_to_add() {
    let place = Place::new();
    let tagged = "age1tag1qt8lw0ual6avlwmwatk888yqnmdamm7xfd0wak53ut6elz5c4swx2yqdj4e";
    place.ok(
        "",
        &pass(&["key", "add", "room", "--new-recipient", tagged]),
    );
    let list = place.ok("", &["key", "list", "room", "--json"]);
    assert!(
        list.contains(tagged) && !list.contains("age-plugin-tag"),
        "{list}"
    );
    place.ok("", &pass(&["rekey", "room"]));
    let list = place.ok("", &["key", "list", "room", "--json"]);
    assert!(list.contains(tagged), "{list}");
}

/// Post-quantum recipients, ML-KEM-768 with X25519, through the plugin of the age project, where it is installed.
#[test]
fn a_post_quantum_recipient_opens_a_room() {
    let place = Place::new();
    let run = |program: &str, args: &[&str]| {
        let output = Command::new(program)
            .args(args)
            .current_dir(place.s.path(""))
            .output();
        output.ok().filter(|output| output.status.success())
    };
    // `go install filippo.io/age/cmd/age-keygen@v1.3.1 filippo.io/age/extra/age-plugin-pq@v1.3.1`
    if run("age-keygen", &["-pq", "-o", "native"]).is_none() {
        eprintln!("skipped: age-keygen of age 1.3 is not in PATH");
        return;
    }
    let public = run("age-keygen", &["-y", "native"]).unwrap();
    let recipient = String::from_utf8(public.stdout).unwrap().trim().to_owned();
    assert!(recipient.starts_with("age1pq1"), "{recipient}");
    let Some(_) = run("age-plugin-pq", &["-identity", "-o", "pq", "native"]) else {
        eprintln!("skipped: age-plugin-pq is not in PATH");
        return;
    };
    place.ok(
        "",
        &pass(&["key", "add", "room", "--new-recipient", &recipient]),
    );
    assert_eq!(place.ok("", &["ls", "room:", "--identity", "pq"]), "");
    let error = place.fails("", 2, &["ls", "room:", "--identity", "native"]);
    assert!(error.contains("age-plugin-pq -identity"), "{error}");
    place.ok("", &pass(&["rekey", "room"]));
    place.ok("", &["ls", "room:", "--identity", "pq"]);
    // age does not mix recipients that a quantum computer breaks with those that it does not.
    let both = [
        "key",
        "add",
        "room",
        "--new-recipient",
        &recipient,
        "--new-recipient",
        RECIPIENT,
    ];
    let error = place.run("", &pass(&both)).err;
    assert!(error.contains("postquantum"), "{error}");
}

#[test]
fn a_program_prints_the_passphrase() {
    let place = Place::new();
    let print = ["--passphrase-command", "cat pass"];
    let with = |args: &[&'static str]| [args, &print].concat();
    assert_eq!(place.ok("", &with(&["ls", "room:"])), "");
    let wrong = ["ls", "room:", "--passphrase-command", "cat wrong"];
    place.fails("", 3, &wrong);
    let error = place.fails(
        "",
        1,
        &["ls", "room:", "--passphrase-command", "echo hush; exit 4"],
    );
    assert!(
        error.contains("exit status: 4") && !error.contains("hush"),
        "{error}"
    );
    place.fails("", 2, &pass(&with(&["ls", "room:"])));

    // New keys, alone and as one of two factors.
    std::fs::write(place.s.path("key"), noise(64, 2)).unwrap();
    let add = [
        &[
            "key",
            "add",
            "room",
            "--new-passphrase-command",
            "echo second",
        ],
        &CHEAP[..],
    ]
    .concat();
    place.ok("", &[&add[..], &print].concat());
    place.ok(
        "",
        &["ls", "room:", "--passphrase-command", "printf second"],
    );
    let add = [&add[..], &["--new-key-file", "key"], &print].concat();
    place.ok("", &add);
    let both = ["--key-file", "key", "--passphrase-command", "echo second"];
    place.ok("", &[&["ls", "room:"], &both[..]].concat());
    place.ok(
        "",
        &[
            &["create", "two", "--passphrase-command", "echo x"],
            &CHEAP[..],
        ]
        .concat(),
    );
    place.ok("", &["ls", "two:", "--passphrase-command", "echo x"]);

    // Where the process confines itself before it opens the room.
    std::fs::create_dir(place.s.path("tree")).unwrap();
    std::fs::write(place.s.path("tree/f"), "in").unwrap();
    place.ok(
        "",
        &with(&["import", "tree", "room:/tree", "--as-directory"]),
    );
    assert_eq!(place.ok("", &with(&["cat", "room:/tree/f"])), "in");
    if can_mount() {
        place.ok(
            "",
            &["mount", "room", "mnt", "-o", "passphrase-command=cat pass"],
        );
        place.ok("", &["umount", "mnt"]);
    }
}

/// What OpenSC's `pkcs11-tool` does with a token of SoftHSM, and the keys of docs/keys.md with it.
struct Token<'a> {
    place: &'a Place,
}

impl<'a> Token<'a> {
    const MODULE: &'static str = "/usr/lib/softhsm/libsofthsm2.so";

    /// A token with an RSA key, which `wrapped` was encrypted to.
    fn with_passphrase(place: &'a Place, passphrase: &str) -> Self {
        let token = Self { place };
        std::fs::create_dir(place.s.path("tokens")).unwrap();
        let conf = format!(
            "directories.tokendir = {}\n",
            place.s.path("tokens").display()
        );
        std::fs::write(place.s.path("softhsm2.conf"), conf).unwrap();
        std::fs::write(place.s.path("plain"), passphrase).unwrap();
        let tool = format!("pkcs11-tool --module {} --token-label room", Self::MODULE);
        let made = token
            .shell(&format!(
                "softhsm2-util --init-token --free --label room --pin 1234 --so-pin 5678 &&
                 {tool} --login --pin 1234 --keypairgen --key-type rsa:3072 --id 01 --label room --usage-decrypt &&
                 {tool} --read-object --type pubkey --id 01 --output-file pub &&
                 openssl pkeyutl -encrypt -pubin -keyform DER -inkey pub -pkeyopt rsa_padding_mode:oaep -in plain -out wrapped"
            ))
            .output()
            .expect("opensc, softhsm2 and openssl are installed by scripts/setup.sh test");
        assert!(made.status.success(), "{made:?}");
        std::fs::remove_file(place.s.path("plain")).unwrap();
        token
    }

    /// The command that prints the passphrase: `login` says where the PIN comes from.
    fn decrypt(login: &str) -> String {
        format!(
            "pkcs11-tool --module {} --token-label room --login {login} --decrypt --mechanism RSA-PKCS-OAEP --hash-algorithm SHA-1 \
             --mgf MGF1-SHA1 --id 01 --input-file wrapped",
            Self::MODULE
        )
    }

    fn shell(&self, line: &str) -> Command {
        let mut command = Command::new("sh");
        command
            .args(["-c", line])
            .current_dir(self.place.s.path(""));
        self.set(&mut command);
        command
    }

    fn set(&self, command: &mut Command) {
        command.env("SOFTHSM2_CONF", self.place.s.path("softhsm2.conf"));
    }

    /// Lists the room with the token, the PIN in a variable.
    fn list(&self, pin: &str) -> Ran {
        let print = Self::decrypt("--pin env:PIN");
        let mut command = self
            .place
            .command("", &["ls", "room:", "--passphrase-command", &print]);
        self.set(&mut command);
        command.env("PIN", pin).output().unwrap().into()
    }
}

#[test]
fn a_pkcs11_token_decrypts_the_passphrase() {
    let place = Place::new();
    let token = Token::with_passphrase(&place, "from the token\n");
    let add = [
        "key",
        "add",
        "room",
        "--label",
        "token",
        "--new-passphrase-command",
        "echo from the token",
    ];
    place.ok("", &pass(&[&add[..], &CHEAP].concat()));
    assert_eq!(token.list("1234").code, 0);
    let refused = token.list("4321");
    assert_eq!(refused.code, 1);
    assert!(refused.err.contains("CKR_PIN_INCORRECT"), "{}", refused.err);
    assert!(
        refused
            .err
            .contains("the program that prints the passphrase"),
        "{}",
        refused.err
    );

    // At a terminal it asks for the PIN.
    let print = format!(
        "{} --output-file /dev/fd/3 3>&1 </dev/tty >/dev/tty",
        Token::decrypt("")
    );
    std::fs::write(place.s.path("print"), &print).unwrap();
    let line = format!(
        "{} ls room: --passphrase-command \"$(cat print)\"",
        program().display()
    );
    let mut at_terminal = Command::new("script");
    at_terminal
        .args(["-qec", &line, "/dev/null"])
        .current_dir(place.s.path(""));
    at_terminal.env("XDG_STATE_HOME", place.s.path("state"));
    token.set(&mut at_terminal);
    let mut asked = at_terminal
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = Vec::new();
    let mut output = asked.stdout.take().unwrap();
    while !said.ends_with(b"User PIN: ") {
        let mut byte = [0];
        let got = output.read(&mut byte).unwrap();
        assert_eq!(got, 1, "{}", String::from_utf8_lossy(&said));
        said.push(byte[0]);
    }
    // What is typed before the token's program switches the echo off is thrown away, and it asks before that.
    let mut input = asked.stdin.take().unwrap();
    let mut ended = None;
    until("the PIN is taken", || {
        let _ = input.write_all(b"1234\n");
        ended = asked.try_wait().unwrap();
        ended.is_some()
    });
    assert!(ended.unwrap().success());

    // What was encrypted for the token was changed: the token refuses it, and says so.
    let mut wrapped = std::fs::read(place.s.path("wrapped")).unwrap();
    wrapped[7] ^= 1;
    std::fs::write(place.s.path("wrapped"), wrapped).unwrap();
    assert_eq!(token.list("1234").code, 1);

    // The token is lost: another slot opens the room, and its own can be removed.
    std::fs::remove_dir_all(place.s.path("tokens")).unwrap();
    assert_eq!(token.list("1234").code, 1);
    let list = place.ok("", &["key", "list", "room"]);
    assert!(list.contains("token"), "{list}");
    place.ok("", &pass(&["key", "remove", "room", "1"]));
    place.fails(
        "",
        3,
        &["ls", "room:", "--passphrase-command", "echo from the token"],
    );
}
