//! Mail in a Maildir, delivered and listed by Python's `mailbox`: every message whose delivery was acknowledged is there after the
//! mount was killed, whole and once, and who had read it by then has read it.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::common::{Sandbox, process::until};
use super::{moments, room_for, rounds, succeeded, whole_lines};

const DELIVERERS: u64 = 3;
/// More messages than a process delivers before it is killed.
const MESSAGES: u64 = 100_000;

const COMMON: &str = r#"
import mailbox, os, sys

box = mailbox.Maildir(sys.argv[1])

def text(process, number):
    line = f"{process} wrote this as number {number}.\n"
    return line * (1 + number * 37 % 200)

def sync(*names):
    for name in names:
        directory = os.open(os.path.join(sys.argv[1], name), os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)
"#;

/// Delivers messages, and prints the number of each when it is durable. `mailbox` syncs a message before its name is in `new`.
const DELIVER: &str = r"
process, number = int(sys.argv[2]), int(sys.argv[3])
while True:
    message = mailbox.MaildirMessage()
    message['Message-ID'] = f'{process}-{number}'
    message.set_payload(text(process, number))
    box.add(message)
    sync('new')
    print(number, flush=True)
    number += 1
";

/// Marks messages as read, as mail programs do, and prints which when that is durable.
const READ: &str = r"
while True:
    for name in os.listdir(os.path.join(sys.argv[1], 'new')):
        key = name.split(':')[0]
        ident = box.get_message(key)['Message-ID']
        os.rename(os.path.join(sys.argv[1], 'new', name), os.path.join(sys.argv[1], 'cur', key + ':2,S'))
        sync('new', 'cur')
        print(ident, flush=True)
";

/// Prints of each message its number, its directory, and whether it is what was delivered.
const LIST: &str = r"
for message in box:
    process, number = map(int, message['Message-ID'].split('-'))
    whole = message.get_payload() == text(process, number)
    print(f'{process}-{number}', message.get_subdir(), message.get_flags() or '-', whole)
";

fn python(mailbox: &Path, script: &str) -> Command {
    let mut command = Command::new("python3");
    command
        .arg("-c")
        .arg(format!("{COMMON}{script}"))
        .arg(mailbox);
    command
}

/// Starts a process that runs until its mount is gone, and writes what is acknowledged into a file.
fn start(mut command: Command, acknowledged: &Path) -> Child {
    command
        .stdin(Stdio::null())
        .stdout(File::create(acknowledged).unwrap())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Each message of the mailbox and the directory it is in. Each is whole.
fn messages(mailbox: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for line in succeeded(&mut python(mailbox, LIST)).lines() {
        let fields: Vec<_> = line.split(' ').collect();
        let [message, directory, flags, whole] = fields[..] else {
            panic!("{line}");
        };
        assert_eq!(whole, "True", "{line}: not what was delivered");
        assert_eq!(flags, ["-", "S"][usize::from(directory == "cur")], "{line}");
        let other = found.insert(message.to_owned(), directory.to_owned());
        assert_eq!(other, None, "{message} is there twice");
    }
    found
}

/// The mount is killed while mail is delivered and read, and mounted again. What was acknowledged: messages, and those that were read.
fn round(s: &Sandbox, mailbox: &Path, round: u64, moment: Duration) -> (Vec<String>, Vec<String>) {
    let printed = |process: u64| s.path(format!("acknowledged-{process}"));
    let mut processes = vec![start(python(mailbox, READ), &printed(DELIVERERS))];
    for process in 0..DELIVERERS {
        let mut command = python(mailbox, DELIVER);
        command.args([process.to_string(), (round * MESSAGES).to_string()]);
        processes.push(start(command, &printed(process)));
    }
    // The moment counts from the first message that is read, however slow the machine.
    until("somebody delivers and reads", || {
        printed(DELIVERERS).metadata().unwrap().len() > 0
    });
    s.kill_after(moment).join().unwrap();
    for process in &mut processes {
        process.wait().unwrap();
    }
    s.mount_after_kill();
    let delivered = (0..DELIVERERS).flat_map(|process| {
        let numbers = whole_lines(&printed(process));
        numbers
            .into_iter()
            .map(move |number| format!("{process}-{number}"))
    });
    (delivered.collect(), whole_lines(&printed(DELIVERERS)))
}

#[test]
fn every_acknowledged_message_of_a_mailbox_survives_a_kill_of_the_mount() {
    let Some(s) = room_for(&["python3"]) else {
        return;
    };
    let mailbox = s.path("mnt/mail");
    assert!(messages(&mailbox).is_empty());
    let mut before = BTreeMap::new();
    for (number, moment) in (0..rounds(3)).zip(moments(2000)) {
        let (delivered, read) = round(&s, &mailbox, number, moment);
        let found = messages(&mailbox);
        for message in delivered.iter().chain(before.keys()) {
            assert!(
                found.contains_key(message),
                "round {number}: {message} is lost"
            );
        }
        let was_read = before.iter().filter(|(_, directory)| *directory == "cur");
        for message in read.iter().chain(was_read.map(|(message, _)| message)) {
            assert_eq!(found[message], "cur", "round {number}: {message} was read");
        }
        let more = found.len() - before.len() - delivered.len();
        assert!(
            more as u64 <= DELIVERERS,
            "round {number}: {more} messages that were not acknowledged"
        );
        eprintln!(
            "round {number}: {} delivered, {} read",
            delivered.len(),
            read.len()
        );
        // One that was delivered and not acknowledged counts from here on.
        before = found;
    }
    eprintln!("{} messages", before.len());
    s.umount();
    s.with_pass(["check", "room", "--read-data"]);
}
