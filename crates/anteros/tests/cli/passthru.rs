//! A directory mirrored through FUSE behaves like the directory.

use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anteros_tests::judge;
use anteros_tests::peers::posix_judge;
use rustix::io::Errno;

use crate::mirror::{WAYS, Way, has_passthrough};
use crate::{Signal, Workshop, file_system_at, kill, run, same, wait_until, wait_until_served};

fn shop() -> Workshop {
    let shop = Workshop::new();
    fs::create_dir(shop.path("mnt")).unwrap();
    fs::create_dir(shop.path("behind")).unwrap();
    shop
}

/// A directory `behind`, mirrored at `mnt`.
fn mirror(options: &str) -> Workshop {
    let shop = shop();
    shop.good(&format!("passthru behind mnt {options}"));
    shop
}

/// Unmounts as soon as no process that another thread is about to start shares our open files.
fn unmount(shop: &Workshop) {
    wait_until(|| shop.run("umount mnt").status == Some(0));
}

/// States what programs do with files, which they must not see any difference in.
pub const SCRIPTS: [&str; 10] = [
    "umask 027; mkdir -p a/b; echo one >a/f; echo two >>a/f; cp a/f a/b/g; ln a/f a/h; ln -s b a/s; stat -c '%n %A %h %s' a/* a/b/*",
    "mv a/f a/b/f; mv -T a/b a/c; cat a/c/f a/h; mv a/c/f a/c/g; ls -lR a | sed 's/ [A-Z].*:.. / /'; rmdir a/c",
    "mkfifo p; mknod n c 1 3; stat -c '%F %t %T' p n; chmod 4755 a/h; stat -c %a a/h; rm p n; rm missing",
    "dd if=/dev/zero of=big bs=100k count=30 2>/dev/null; truncate -s 5000001 big; stat -c %s big; cksum big; : >big; stat -c %s big",
    "touch -d '2001-02-03 04:05:06.789' big; stat -c %y big; touch -a -d @77 big; stat -c %X big",
    "fallocate -l 300000 sparse; fallocate -p -o 4096 -l 100000 sparse; stat -c '%s %b' sparse; fallocate -z -o 200000 -l 50000 sparse; cksum sparse",
    "for i in $(seq 300); do echo $i >file$i; done; ls | wc -l; cat file* | cksum; rm file*; ls",
    "exec 3>open; echo before >&3; rm open; echo after >&3; cat /proc/self/fd/3; ls open",
    "cp /bin/echo prog; ./prog ran; exec 3<prog; ./prog again; cp prog other; ./other third; rm prog other",
    "cp -a a copy; diff -r a copy && tar cf - a | tar tf - | sort; mkdir x y; mv x y; mv y x; mv x x/y",
];

/// Returns what a shell script prints, run in a directory, with its status.
pub fn script(directory: &Path, text: &str) -> String {
    let result = run(Command::new("sh")
        .args(["-c", text])
        .current_dir(directory)
        .env("LC_ALL", "C"));
    format!("{:?}\n{}{}", result.status, result.out, result.err)
}

#[test]
fn programs_do_the_same_on_both_sides() {
    if !judge::has_fuse() {
        return;
    }
    for way in WAYS {
        let shop = shop();
        fs::create_dir(shop.path("plain")).unwrap();
        shop.good(&format!("passthru behind mnt --data {way}"));
        assert_eq!(
            file_system_at(&shop.path("mnt")).as_deref(),
            Some("fuse.anteros")
        );
        for text in SCRIPTS {
            let wanted = script(&shop.path("plain"), text);
            assert_eq!(script(&shop.path("mnt"), text), wanted, "{way}: {text}");
        }
        assert!(same(&shop.path("plain"), &shop.path("mnt")), "{way}");
        unmount(&shop);
        assert!(same(&shop.path("plain"), &shop.path("behind")), "{way}");
    }
}

#[test]
fn both_sides_see_at_once_what_is_written() {
    if !judge::has_fuse() {
        return;
    }
    for way in WAYS {
        if way.to_string() == "auto" && !has_passthrough() {
            judge::missing("passthrough (Linux 6.9, root)");
            continue;
        }
        let shop = mirror(&format!("--data {way} --timeout 0"));
        let (near, far) = (shop.path("mnt/file"), shop.path("behind/file"));
        let mut writer = File::create(&near).unwrap();
        for n in 0..50_u64 {
            let piece = vec![n as u8; 7001];
            writer.write_all(&piece).unwrap();
            assert_eq!(fs::metadata(&near).unwrap().len(), (n + 1) * 7001, "{way}");
            if !way.fails_at_write {
                // Those who look behind the mount see what was written back.
                writer.sync_data().unwrap();
            }
            let mut found = vec![0; 7001];
            File::open(&far)
                .unwrap()
                .read_exact_at(&mut found, n * 7001)
                .unwrap();
            assert_eq!(found, piece, "{way}");
        }
        writer.sync_all().unwrap();
        fs::write(&far, "changed behind").unwrap();
        if !way.fails_at_write {
            // The kernel's size of a file that is open is its own; the daemon hears of the close a moment later.
            writer = File::open(&far).unwrap();
            wait_until(|| fs::read(&near).unwrap() == b"changed behind");
        }
        assert_eq!(
            fs::read_to_string(&near).unwrap(),
            "changed behind",
            "{way}"
        );
        assert_eq!(fs::metadata(&near).unwrap().len(), 14, "{way}");
        drop(writer);
        unmount(&shop);
    }
}

#[test]
fn appenders_do_not_overwrite_each_other() {
    if !judge::has_fuse() {
        return;
    }
    for way in WAYS {
        let shop = mirror(&format!("--data {way}"));
        let log = shop.path("mnt/log");
        std::thread::scope(|scope| {
            for name in ["a", "b", "c"] {
                let log = &log;
                scope.spawn(move || {
                    let mut file = OpenOptions::new()
                        .append(true)
                        .create(true)
                        .open(log)
                        .unwrap();
                    for _ in 0..500 {
                        file.write_all(name.repeat(100).as_bytes()).unwrap();
                    }
                });
            }
        });
        let text = fs::read_to_string(shop.path("behind/log")).unwrap();
        assert_eq!(text.len(), 3 * 500 * 100, "{way}");
        for piece in text.as_bytes().chunks(100) {
            assert!(piece.iter().all(|&byte| byte == piece[0]), "{way}");
        }
        unmount(&shop);
    }
}

/// `cp` copies ranges, `O_TRUNC` cuts off, a file that is written to loses its set-id bits.
#[test]
fn users_without_rights_write_their_own_files() {
    if !judge::has_fuse() || !judge::is_root() {
        return judge::missing("a user beside root");
    }
    for way in WAYS {
        let shop = mirror(&format!("--data {way} --timeout 0"));
        let text = "chmod 1777 . && setpriv --reuid 65534 --regid 65534 --clear-groups sh -c '
            umask 022; echo mine >mine; mkdir dir; ln -s mine link; cp mine dir/copy; chmod 4755 mine; echo more >>mine;
            stat -c \"%n %u %g %a\" mine dir link dir/copy; echo no >root; cat root; rm root; chown 0 mine'; rm -r mine dir link";
        fs::create_dir(shop.path("plain")).unwrap();
        for directory in ["plain", "mnt"] {
            fs::write(shop.path(directory).join("root"), "root's\n").unwrap();
        }
        let wanted = script(&shop.path("plain"), text);
        assert!(wanted.contains("mine 65534 65534 755"), "{wanted}");
        assert_eq!(script(&shop.path("mnt"), text), wanted, "{way}");
        unmount(&shop);
    }
}

#[test]
fn files_without_names_can_be_read_to_the_end() {
    if !judge::has_fuse() {
        return;
    }
    for way in WAYS {
        let shop = mirror(&format!("--data {way}"));
        let path = shop.path("mnt/gone");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .unwrap();
        file.write_all(b"still here").unwrap();
        fs::remove_file(&path).unwrap();
        file.set_len(5).unwrap();
        assert_eq!(
            (
                file.metadata().unwrap().len(),
                file.metadata().unwrap().nlink()
            ),
            (5, 0)
        );
        let mut text = String::new();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "still", "{way}");
        drop(file);
        unmount(&shop);
    }
}

/// Random operations on one file, checked against a copy in memory.
/// The daemon holds a descriptor for each inode that the kernel knows, and may have only so many.
#[test]
fn more_files_are_known_than_descriptors_allowed() {
    if !judge::has_fuse() {
        return;
    }
    let shop = shop();
    let mount = format!(
        "ulimit -n 512; exec {} passthru behind mnt",
        shop.program.display()
    );
    let mut shell = Command::new("sh");
    if judge::is_root() {
        // Without the privilege to raise the limit.
        shell = Command::new("setpriv");
        shell.args(["--bounding-set", "-sys_resource"]);
        shell.args(["--inh-caps", "-sys_resource", "sh"]);
    }
    shell.args(["-c", &mount]).current_dir(shop.dir.path());
    assert_eq!(run(&mut shell).status, Some(0));
    let file = |n: u32| shop.path(&format!("mnt/{}/{n}", n % 3));
    for n in 0..3 {
        fs::create_dir(shop.path(&format!("mnt/{n}"))).unwrap();
    }
    for n in 0..2000 {
        fs::write(file(n), n.to_string()).unwrap();
    }
    for n in 0..2000 {
        assert_eq!(fs::read_to_string(file(n)).unwrap(), n.to_string());
    }
    if forgets_by_number() {
        fs::create_dir(shop.path("behind/many")).unwrap();
        for n in 0..5000 {
            fs::write(shop.path(&format!("behind/many/{n}")), "").unwrap();
        }
        let listing = || {
            fs::read_dir(shop.path("mnt/many"))
                .unwrap()
                .map(Result::unwrap)
        };
        assert_eq!(listing().count(), 5000);
        for entry in listing() {
            assert!(entry.metadata().unwrap().is_file(), "{entry:?}");
        }
    }
    unmount(&shop);
}

/// Returns whether the kernel forgets inodes that it is told the numbers of. Older ones forget names, and that only
/// while nobody looks anything up in their directory.
fn forgets_by_number() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release
        .split('.')
        .map_while(|part| part.parse::<u32>().ok());
    let is_able = (numbers.next(), numbers.next()) >= (Some(6), Some(18));
    if !is_able {
        judge::missing("a kernel that forgets inodes by number (Linux 6.18)");
    }
    is_able
}

#[test]
fn a_program_that_runs_is_not_cut_off() {
    use rustix::fs::{Mode, OFlags};
    if !judge::has_fuse() {
        return;
    }
    for way in WAYS {
        let shop = mirror(&format!("--data {way} --timeout 0"));
        let program = shop.path("mnt/program");
        assert_eq!(
            run(Command::new("cp").arg("/bin/sleep").arg(&program)).status,
            Some(0)
        );
        let size = fs::metadata(&program).unwrap().len();
        let mut running = Command::new(&program).arg("60").spawn().unwrap();
        for flags in [OFlags::RDONLY | OFlags::TRUNC, OFlags::WRONLY] {
            let opened = rustix::fs::open(&program, flags, Mode::empty());
            assert_eq!(opened.err(), Some(Errno::TXTBSY), "{way}: {flags:?}");
        }
        let now = fs::metadata(shop.path("behind/program")).unwrap().len();
        assert_eq!(now, size, "{way}");
        running.kill().unwrap();
        running.wait().unwrap();
        unmount(&shop);
    }
}

#[test]
fn fsx_finds_nothing() {
    if !judge::has_fuse() || posix_judge("fsx").is_none() {
        return;
    }
    let by_writers = ["buffer", "entries"].map(|way| format!("{way} --flush-by-writers"));
    let ways = WAYS
        .map(|way| way.to_string())
        .into_iter()
        .chain(by_writers);
    for (seed, way) in (1..).zip(ways) {
        let shop = mirror(&format!("--data {way}"));
        let mut fsx = posix_judge("fsx").unwrap();
        fsx.args(["-N", "5000", "-S", &format!("{seed}"), "mnt/file"])
            .current_dir(shop.dir.path());
        let found = run(&mut fsx);
        assert_eq!(found.status, Some(0), "{way}, seed {seed}: {}", found.out);
        assert!(
            same(&shop.path("mnt/file"), &shop.path("behind/file")),
            "{way}"
        );
        unmount(&shop);
    }
}

/// Tests what POSIX says of names, owners, permissions, times and errors.
#[test]
fn pjdfstest_finds_nothing() {
    if !has_pjdfstest() {
        return;
    }
    for way in WAYS {
        let shop = shop();
        shop.good(&format!("passthru behind mnt --data {way} --timeout 0"));
        run_pjdfstest(&shop, way);
        unmount(&shop);
    }
}

/// Returns whether pjdfstest can be run.
pub fn has_pjdfstest() -> bool {
    let is_there = judge::has_fuse() && posix_judge("pjdfstest").is_some();
    if is_there && !judge::is_root() {
        judge::missing("pjdfstest (only root can act for others)");
    }
    is_there && judge::is_root()
}

/// Runs pjdfstest in what is mounted at `mnt`, which must pass all of it.
pub fn run_pjdfstest(shop: &Workshop, place: impl Display) {
    const SETTINGS: &str = "[features]\nposix_fallocate = {}\n[settings]\nnaptime = 0.01\nallow_remount = false\n\
        [dummy_auth]\nentries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"]]\n";
    fs::write(shop.path("settings"), SETTINGS).unwrap();
    let everybody = fs::Permissions::from_mode(0o777);
    fs::set_permissions(shop.path("mnt"), everybody).unwrap();
    let mut pjdfstest = posix_judge("pjdfstest").unwrap();
    pjdfstest
        .args(["-c", "settings", "-p", "mnt"])
        .current_dir(shop.dir.path());
    let found = run(&mut pjdfstest);
    let summary = found.out.lines().last().unwrap_or_default();
    let failed = found.out.lines().filter(|line| line.contains("FAILED"));
    let failed: String = failed.collect::<Vec<_>>().join("\n");
    assert!(
        summary.starts_with("Summary: 0 failed"),
        "{place}: {summary}\n{failed}"
    );
    let passed = summary
        .split(", ")
        .find_map(|part| part.strip_suffix(" passed"));
    let passed: u32 = passed.unwrap().parse().unwrap();
    assert!(passed > 300, "{place}: {summary}");
}

#[test]
fn what_was_synced_outlives_a_daemon_that_is_killed() {
    if !judge::has_fuse() {
        return;
    }
    for way in WAYS {
        if way.to_string() == "auto" && !has_passthrough() {
            judge::missing("passthrough (Linux 6.9, root)");
            continue;
        }
        let shop = shop();
        fs::write(shop.path("behind/other"), "as it was").unwrap();
        let mut daemon = shop
            .command(&format!(
                "passthru behind mnt --foreground --data {way} --interval 60000"
            ))
            .spawn()
            .unwrap();
        wait_until_served(&shop.path("mnt"));
        let mut file = File::create(shop.path("mnt/file")).unwrap();
        file.write_all(b"synced, ").unwrap();
        file.sync_all().unwrap();
        file.write_all(b"not ").unwrap();
        file.write_all(b"synced").unwrap();
        kill(&daemon, Signal::KILL);
        daemon.wait().unwrap();
        drop(file);
        wait_until(|| shop.run("umount mnt").status == Some(0));
        let text = fs::read_to_string(shop.path("behind/file")).unwrap();
        let wanted: &[&str] = match way.to_string().as_str() {
            _ if way.writes_at_once => &["synced, not synced"],
            // The first write after a sync does not wait.
            "buffer" => &["synced, not "],
            // The kernel writes what it keeps when it likes to.
            "cache" => &["synced, ", "synced, not ", "synced, not synced"],
            _ => &["synced, "],
        };
        assert!(wanted.contains(&&*text), "{way}: {text}");
        let other = fs::read_to_string(shop.path("behind/other")).unwrap();
        assert_eq!(other, "as it was", "{way}");
    }
}

/// A mirror of a file system that has room for no more.
fn mirror_of_20_mib(way: Way) -> Workshop {
    let shop = shop();
    let mut tmpfs = Command::new("mount");
    tmpfs
        .args(["-t", "tmpfs", "-o", "size=20m", "none"])
        .arg(shop.path("behind"));
    assert_eq!(run(&mut tmpfs).status, Some(0));
    shop.good(&format!("passthru behind mnt --data {way}"));
    shop
}

#[test]
fn time_flushes_nothing_where_writers_do() {
    if !judge::has_fuse() {
        return;
    }
    // The first write does not wait in our buffer.
    for (way, early) in [("buffer", "not much"), ("entries", "")] {
        let shop = mirror(&format!("--data {way} --interval 1 --flush-by-writers"));
        // In a process of its own: each child of this one may close our files, which writes.
        let mut writer = Command::new("dd")
            .args(["bs=8", "status=none", "of=mnt/file"])
            .current_dir(shop.dir.path())
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut text = writer.stdin.take().unwrap();
        wait_until(|| shop.path("behind/file").exists());
        text.write_all(b"not much, really").unwrap();
        let behind = || fs::read_to_string(shop.path("behind/file")).unwrap();
        wait_until(|| {
            shop.good("stat --prometheus mnt")
                .contains("\nanteros_buffer_writes_in_total 2\n")
        });
        // A thread would have had time for it, many times over.
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(behind(), early, "{way}");
        drop(text);
        writer.wait().unwrap();
        assert_eq!(behind(), "not much, really", "{way}");
        unmount(&shop);
    }
}

/// Nothing that is accepted is lost for lack of space without a word.
#[test]
fn a_full_device_is_told_of() {
    if !judge::has_fuse() || !judge::is_root() {
        return judge::missing("a full device (only root can mount one)");
    }
    for way in WAYS {
        let shop = mirror_of_20_mib(way);
        if !way.fails_at_write {
            // What the kernel keeps, it finds no room for later.
            let mut file = File::create(shop.path("mnt/file")).unwrap();
            file.write_all(&vec![7; 30 << 20]).unwrap();
            let error = file.sync_all().unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
            file.sync_all().unwrap();
            drop(file);
            unmount(&shop);
            wait_until(|| run(Command::new("umount").arg(shop.path("behind"))).status == Some(0));
            continue;
        }
        let mut file = File::create(shop.path("mnt/file")).unwrap();
        let piece = vec![7; 100_000];
        let mut accepted = 0;
        let error = loop {
            match file.write(&piece) {
                Ok(len) => accepted += len as u64,
                Err(error) => break error,
            }
            assert!(accepted < 21 << 20, "{way}");
        };
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{way}");
        file.sync_all().unwrap();
        assert_eq!(file.metadata().unwrap().len(), accepted, "{way}");
        assert_eq!(
            fs::metadata(shop.path("behind/file")).unwrap().len(),
            accepted,
            "{way}"
        );
        assert!(accepted > 19 << 20, "{way}: {accepted}");
        drop(file);
        fs::remove_file(shop.path("mnt/file")).unwrap();
        // The daemon hears a moment later that the kernel has forgotten the file.
        wait_until(|| fs::write(shop.path("mnt/small"), "there is room again").is_ok());
        unmount(&shop);
        wait_until(|| run(Command::new("umount").arg(shop.path("behind"))).status == Some(0));
    }
}

#[test]
fn what_cannot_be_mirrored_is_refused() {
    let shop = shop();
    fs::create_dir(shop.path("mnt/inside")).unwrap();
    let error = shop.bad(2, "passthru mnt mnt/inside");
    assert!(error.contains("lies in mnt"), "{error}");
    let error = shop.bad(5, "passthru missing mnt");
    assert!(error.contains("missing"), "{error}");
    let error = shop.bad(5, "passthru anteros mnt");
    assert!(error.contains("not a directory"), "{error}");
    let error = shop.bad(2, "passthru src mnt --unit 5000");
    assert!(error.contains("a power of two"), "{error}");
    let limit = anteros_fuse::request_len_limit();
    if limit < 16 << 20 {
        let error = shop.bad(2, "passthru src mnt --unit 16M");
        assert!(error.contains("fs.fuse.max_pages_limit"), "{error}");
    }
    for seconds in ["-1", "soon", "1.5", "4294967296"] {
        let error = shop.bad(2, &format!("passthru src mnt --timeout {seconds}"));
        assert!(error.contains("whole seconds from 0"), "{error}");
    }
    for (bytes, least) in [
        ("--buffer 0", "8K"),
        ("--buffer 8191", "8K"),
        ("--region 1K", "4K"),
    ] {
        let error = shop.bad(2, &format!("passthru src mnt --data buffer {bytes}"));
        assert!(error.contains(&format!("at least {least}")), "{error}");
    }
}
