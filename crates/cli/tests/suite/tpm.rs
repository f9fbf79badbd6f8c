//! A passphrase that `systemd-creds` seals with a TPM and to its PCRs, as docs/keys.md shows it. The TPM is swtpm.

use std::path::PathBuf;
use std::process::{Command, Output};

use crate::common::process::{Process, until};
use crate::common::{CHEAP, Sandbox};

/// The machine's TPM, in the place of which another one can come.
struct Tpm<'a> {
    s: &'a Sandbox,
    process: Process,
}

impl<'a> Tpm<'a> {
    /// As the machine starts, with what it remembers.
    fn start(s: &'a Sandbox) -> Self {
        let state = s.path("tpm");
        std::fs::create_dir_all(&state).unwrap();
        let mut command = Command::new("swtpm");
        command.args(["socket", "--tpm2", "--flags", "not-need-init,startup-clear"]);
        command.arg("--tpmstate").arg(with("dir=", state.clone()));
        for (option, name) in [("--server", "socket"), ("--ctrl", "socket.ctrl")] {
            let _ = std::fs::remove_file(state.join(name));
            command
                .arg(option)
                .arg(with("type=unixio,path=", state.join(name)));
        }
        let process = Process::start("swtpm", command, &s.path("swtpm.log"));
        until("the TPM listens", || state.join("socket.ctrl").exists());
        Self { s, process }
    }

    /// The machine starts with other firmware.
    fn with_other_firmware(self) -> Self {
        self.process.kill();
        let tpm = Self::start(self.s);
        let digest = format!("7:sha256={}", "a5".repeat(32));
        let extended = tpm.run("tpm2_pcrextend", &["-T", &tpm.name(), &digest]);
        assert!(extended.status.success(), "{extended:?}");
        tpm
    }

    /// Another board: what this one knew is lost.
    fn replaced(self) -> Self {
        self.process.kill();
        std::fs::remove_dir_all(self.s.path("tpm")).unwrap();
        Self::start(self.s)
    }

    /// As libraries of the TPM name it.
    fn name(&self) -> String {
        with("swtpm:path=", self.s.path("tpm/socket"))
    }

    fn run(&self, program: &str, args: &[&str]) -> Output {
        let mut command = Command::new(program);
        command.args(args).current_dir(self.s.path(""));
        command
            .output()
            .expect("systemd, swtpm and tpm2-tools are installed by scripts/setup.sh test")
    }

    /// Seals a passphrase to the state of the firmware.
    fn seal(&self, passphrase: &str) {
        std::fs::write(self.s.path("plain"), passphrase).unwrap();
        let device = with("--tpm2-device=", self.name().into());
        let args = [
            "encrypt",
            "--with-key=tpm2",
            &device,
            "--tpm2-pcrs=7",
            "--name=home",
            "plain",
            "sealed",
        ];
        let sealed = self.run("systemd-creds", &args);
        assert!(
            sealed.status.success(),
            "{sealed:?} {}",
            self.process.said()
        );
        std::fs::remove_file(self.s.path("plain")).unwrap();
    }

    /// What prints the passphrase.
    fn unseal(&self) -> String {
        format!(
            "systemd-creds decrypt --tpm2-device={} --name=home sealed -",
            self.name()
        )
    }

    /// Lists the room with the TPM's passphrase.
    fn list(&self) -> Result<(), String> {
        let print = self.unseal();
        let ran = self.s.run(["ls", "room:", "--passphrase-command", &print]);
        self.clean_up();
        (ran.code == 0).then_some(()).ok_or(ran.err)
    }

    /// It does not unseal, and what it was asked for is named.
    fn assert_refuses(&self) {
        let refused = self.list().unwrap_err();
        let named = "the program that prints the passphrase";
        assert!(refused.contains(named), "{refused}");
    }

    /// Ends what programs left behind, as a machine's resource manager does: a TPM has room for three sessions and three keys.
    fn clean_up(&self) {
        for left in ["--loaded-session", "--transient-object"] {
            let ended = self.run("tpm2_flushcontext", &["-T", &self.name(), left]);
            assert!(ended.status.success(), "{ended:?}");
        }
    }
}

fn with(option: &str, path: PathBuf) -> String {
    format!("{option}{}", path.display())
}

#[test]
fn a_tpm_unseals_the_passphrase_while_the_firmware_is_the_same() {
    let s = Sandbox::with_room();
    let tpm = Tpm::start(&s);
    tpm.seal("from the tpm\n");
    let print = tpm.unseal();
    let add = [
        "key",
        "add",
        "room",
        "--label",
        "tpm",
        "--new-passphrase-command",
        &print,
    ];
    s.with_pass([&add[..], &CHEAP].concat());
    tpm.list().unwrap();

    // The firmware changes: sealed again by who still has the passphrase, it opens the room as before.
    let tpm = tpm.with_other_firmware();
    tpm.assert_refuses();
    tpm.seal("from the tpm\n");
    tpm.list().unwrap();

    // The TPM is lost: another slot opens the room, and this one is removed.
    let tpm = tpm.replaced();
    tpm.assert_refuses();
    assert!(s.with_pass(["key", "list", "room"]).contains("tpm"));
    s.with_pass(["key", "remove", "room", "1"]);
    let ran = s.run(["ls", "room:", "--passphrase-command", "echo from the tpm"]);
    assert_eq!(ran.code, 3, "{}", ran.err);
}
