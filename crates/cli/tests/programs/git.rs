//! git: what a commit that ended says is in the history, is; and `git fsck` finds nothing.

use std::path::Path;
use std::process::{Command, Stdio};

use super::common::{Sandbox, noise, words};
use super::{moments, mount_again, room_for, rounds, succeeded};

/// Git with its time bounded: git 2.39 asks for the next name of a directory again and again once the mount below it is dead.
fn git(dir: &Path) -> Command {
    let mut command = Command::new("timeout");
    command
        .args(["--kill-after=5", "120", "git"])
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .env("GIT_CEILING_DIRECTORIES", dir.parent().unwrap())
        .args([
            "-c",
            "user.name=A Test",
            "-c",
            "user.email=test@example.org",
            "-c",
            "gc.auto=0",
        ])
        // The histories are to survive: git is to sync what it writes.
        .args(words(
            "-c core.fsync=all -c core.fsyncMethod=fsync -c init.defaultBranch=main",
        ));
    command
}

fn run(dir: &Path, args: &[&str]) -> String {
    succeeded(git(dir).args(args))
}

fn count(dir: &Path) -> u64 {
    run(dir, &["rev-list", "--count", "HEAD"])
        .trim()
        .parse()
        .unwrap()
}

/// Changes some files, commits, and makes that durable. The commit's name, or `None` if anything failed.
fn commit(repo: &Path, number: u64) -> Option<String> {
    for file in 0..4 {
        let path = repo.join(format!("dir-{}/file-{file}", number % 7));
        std::fs::create_dir_all(path.parent()?).ok()?;
        std::fs::write(
            path,
            noise(500 + (number as usize * 37) % 9000, number * 4 + file + 1),
        )
        .ok()?;
    }
    let message = format!("Commit {number}");
    for args in [
        &["add", "-A"][..],
        &["commit", "-q", "-m", &message],
        &["rev-parse", "HEAD"],
    ] {
        let output = git(repo).args(args).stderr(Stdio::null()).output().ok()?;
        if !output.status.success() {
            return None;
        }
        if args[0] == "rev-parse" {
            // Git syncs all its files, but not the directory in which it then renames the branch's.
            let heads = std::fs::File::open(repo.join(".git/refs/heads")).ok()?;
            heads.sync_all().ok()?;
            return Some(String::from_utf8(output.stdout).ok()?.trim().to_owned());
        }
    }
    None
}

fn fsck(repo: &Path) {
    let found = run(repo, &["fsck", "--full", "--strict", "--no-dangling"]);
    assert_eq!(found.trim(), "", "git fsck in {}", repo.display());
}

#[test]
fn a_clone_with_many_commits_is_whole_after_gc_and_mounting_again() {
    let Some(s) = room_for(&["git"]) else { return };
    let (one, two) = (s.path("mnt/one"), s.path("mnt/two"));
    std::fs::create_dir(&one).unwrap();
    run(&one, &["init", "-q"]);
    for number in 0..25 {
        commit(&one, number).unwrap();
    }
    run(&s.path("mnt"), &["clone", "-q", "--no-local", "one", "two"]);
    for number in 25..40 {
        commit(&two, number).unwrap();
    }
    run(&two, &["repack", "-q", "-a", "-d", "-f"]);
    run(&one, &["pull", "-q", "--ff-only", "../two", "main"]);
    for repo in [&one, &two] {
        run(repo, &["gc", "-q", "--prune=now"]);
    }
    mount_again(&s);
    let outside = s.path("outside");
    run(
        &s.path(""),
        &["clone", "-q", "--no-local", "mnt/one", "outside"],
    );
    for repo in [&one, &two, &outside] {
        fsck(repo);
        assert_eq!(count(repo), 40);
        assert_eq!(run(repo, &["status", "--porcelain"]), "");
    }
}

#[test]
fn every_synced_commit_survives_a_kill_of_the_mount() {
    let Some(s) = room_for(&["git"]) else { return };
    let repo = s.path("mnt/repo");
    std::fs::create_dir(&repo).unwrap();
    run(&repo, &["init", "-q"]);
    let mut acknowledged = vec![commit(&repo, 0).unwrap()];
    for (round, moment) in (0..rounds(2)).zip(moments(600)) {
        let killer = s.kill_after(moment);
        for number in (round + 1) * 1000.. {
            let Some(name) = commit(&repo, number) else {
                break;
            };
            acknowledged.push(name);
            if number % 10 == 9 {
                let _ = git(&repo).args(["gc", "-q"]).stderr(Stdio::null()).status();
            }
        }
        killer.join().unwrap();
        s.mount_after_kill();
        tidy(&s);
        fsck(&repo);
        let history = run(&repo, &["rev-list", "HEAD"]);
        for name in &acknowledged {
            assert!(
                history.contains(name.as_str()),
                "round {round}: {name} was acknowledged and is not in the history"
            );
        }
        run(&repo, &["reset", "-q", "--hard"]);
        run(&repo, &["clean", "-q", "-f", "-d"]);
        assert_eq!(run(&repo, &["status", "--porcelain"]), "");
    }
    eprintln!("{} commits acknowledged", acknowledged.len());
    s.umount();
    s.with_pass(["check", "room", "--read-data"]);
}

/// Removes the locks that a git left when it died, as git says to.
fn tidy(s: &Sandbox) {
    let found = super::done(
        &s.path("mnt/repo"),
        "find",
        [".git", "-name", "*.lock", "-delete", "-print"],
    );
    if !found.is_empty() {
        eprintln!("left by a git that died: {}", found.replace('\n', " "));
    }
}
