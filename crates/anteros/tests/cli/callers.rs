//! Programs that call mkfs.erofs, each with its own line: the kernel shows the tree that it expects, and erofs-utils
//! accepts the image. `tests/data/callers` has the lines.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, Stdio};

use anteros_tests::callers::{Caller, callers};
use anteros_tests::host::HostFs;
use anteros_tests::judge;
use anteros_tests::manifest::{Column, difference, edit, manifest};
use anteros_tests::mount::KernelMount;
use anteros_tests::peers::Peers;

use crate::{NOBODY, Run, Workshop, run};

/// Fills the directory `tree` with one of everything, as a build system does under fakeroot.
const TREE: &str = r#"
    umask 022; rm -rf tree
    mkdir -p tree/bin tree/boot tree/dev tree/etc tree/lib tree/root tree/squash_root tree/tmp tree/empty
    cd tree
    seq 40000 >lib/numbers.so; seq 1 3 40000 >lib/thirds.so; head -c 70000 lib/numbers.so >lib/again.so
    seq 60000 | gzip -n >lib/noise.xz; head -c 12288 /dev/zero >lib/zeros
    ln lib/thirds.so lib/linked.so
    echo tool >bin/tool; ln -s tool bin/symlink; echo 'with a blank' >'etc/a b'
    echo welcome >etc/motd; : >etc/nothing; echo kernel >boot/kernel; echo profile >root/.profile
    echo unpack >squash_root/init; mkfifo -m 640 dev/pipe
    chown -h -R 0:0 .
    mknod -m 600 dev/console c 5 1; mknod dev/disk b 259 70
    chown 7:70000 lib/noise.xz; chown -h 3:4 bin/symlink; chmod 4755 bin/tool; chmod 1777 tmp; chmod 2750 root
    setfattr -n user.note -v kept etc/motd
    setfattr -n security.capability -v 0x0100000200040000000000000000000000000000 bin/tool
    setfattr -n security.selinux -v 0x73797374656d00 etc
    find . -exec touch -h -d @1600000000.123456789 {} +
    touch -h -d @900000000 lib/numbers.so bin/symlink; touch -d @1800000000.5 etc/motd lib
"#;

/// Makes the files that lines name, and the tree.
fn shop() -> Workshop {
    let shop = Workshop::new();
    for name in ["mkfs.erofs", "fsck.erofs", "dump.erofs"] {
        symlink(&shop.program, shop.path(name)).unwrap();
    }
    fs::write(shop.path("hints"), "16384 [.]so$\n0 [.]xz$\n").unwrap();
    let labels =
        "/vendor(/.*)? u:object_r:vendor_file:s0\n/vendor/bin/tool u:object_r:tool_exec:s0\n";
    fs::write(shop.path("labels"), labels).unwrap();
    for name in ["product", "faked"] {
        fs::create_dir(shop.path(name)).unwrap();
    }
    fs::set_permissions(shop.path("faked"), fs::Permissions::from_mode(0o777)).unwrap();
    make_tree(&shop);
    fs::write(shop.path("owners"), owners(&view(&shop.path("tree")))).unwrap();
    shop
}

fn make_tree(shop: &Workshop) {
    let mut shell = Command::new("sh");
    let made = run(shell.args(["-euc", TREE]).current_dir(shop.path("")));
    assert_eq!((made.status, &made.err[..]), (Some(0), ""));
}

fn view(tree: &Path) -> String {
    manifest(&HostFs::new(tree)).unwrap()
}

/// The owner, the permissions and the capabilities that Android's list gives a path.
fn listed(path: &str, kind: &str) -> (&'static str, &'static str, u64) {
    match (path, kind) {
        ("/bin/tool", _) => ("1000", "0750", 0xc0),
        (_, "d") => ("0", "0751", 0),
        (_, "l") => ("0", "0777", 0),
        _ => ("0", "0640", 0),
    }
}

/// The list of owners of a vendor image.
fn owners(tree: &str) -> String {
    let line = |line: &str| {
        let mut columns = line.split('\t');
        let (path, kind) = (columns.next().unwrap(), columns.next().unwrap());
        let (uid, perm, capabilities) = listed(path, kind);
        let path = match path {
            "/" => "/".to_owned(),
            path => format!("vendor{}", path.replace("%20", "\\040")),
        };
        format!("{path} {uid} 2000 {perm} capabilities={capabilities:#x}\n")
    };
    tree.lines().map(line).collect()
}

/// The manifest that a caller expects of its image.
fn expected(caller: &Caller, tree: &str) -> String {
    edit(tree, |columns| {
        let path = columns[Column::Path as usize].clone();
        own(caller, &path, columns);
        let time = &mut columns[Column::Mtime as usize];
        *time = time_kept(caller, time);
        let xattrs = &mut columns[Column::Xattrs as usize];
        match caller.held("xattrs").unwrap_or("tree") {
            "none" => *xattrs = "-".into(),
            "policy" => *xattrs = by_policy(&path, xattrs),
            _ => {}
        }
        // A directory that is left out is no link to the root any more.
        if path == "/" && is_left_out(caller, "/squash_root") {
            let links = &mut columns[Column::Nlink as usize];
            *links = (links.parse::<u32>().unwrap() - 1).to_string();
        }
        !is_left_out(caller, &path)
    })
}

/// Returns whether a path, or one above it, is not in the image.
fn is_left_out(caller: &Caller, path: &str) -> bool {
    let is_below = |gone: &str| {
        let rest = path.strip_prefix(gone);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let gone = caller.held("without").map(|gone| gone.split(','));
    gone.is_some_and(|mut gone| gone.any(is_below))
}

fn own(caller: &Caller, path: &str, columns: &mut [String]) {
    let (uid, gid) = match caller.held("owners").unwrap_or("tree") {
        "tree" => return,
        "list" => {
            let (uid, perm, _) = listed(path, &columns[Column::Kind as usize]);
            columns[Column::Mode as usize] = perm.into();
            (uid, "2000")
        }
        owners => owners.split_once(':').unwrap(),
    };
    columns[Column::Uid as usize] = uid.into();
    columns[Column::Gid as usize] = gid.into();
}

/// The time of a file in the image, of that which it has in the tree.
fn time_kept(caller: &Caller, time: &str) -> String {
    let number = |time: &str| time.parse::<f64>().unwrap();
    let Some(told) = caller.held("times") else {
        return time.to_owned();
    };
    match told.strip_prefix("..") {
        Some(latest) if number(time) <= number(latest) => time.to_owned(),
        latest => format!("{}.000000000", latest.unwrap_or(told)),
    }
}

/// The attributes that a policy and a list leave, as columns have them.
fn by_policy(path: &str, found: &str) -> String {
    let is_tool = path == "/bin/tool";
    let label = match is_tool {
        true => "u:object_r:tool_exec:s0",
        false => "u:object_r:vendor_file:s0",
    };
    let label: String = label.bytes().map(|byte| format!("{byte:02x}")).collect();
    let capability = "security.capability=01000002c0000000000000000000000000000000";
    let mut kept = vec![format!("security.selinux={label}00")];
    kept.extend(is_tool.then(|| capability.into()));
    kept.extend(
        found
            .split(',')
            .filter(|one| one.starts_with("user."))
            .map(str::to_owned),
    );
    kept.sort();
    kept.join(",")
}

/// An argument with the path that it stands for.
fn resolved(shop: &Workshop, caller: &Caller, argument: &str) -> OsString {
    let (option, value) = argument.rsplit_once('=').unwrap_or(("", argument));
    let place = match value {
        "OUT" => place(caller),
        "TREE" => tree(caller).to_owned(),
        "DIR" => "extracted".into(),
        "HINTS" | "OWNERS" | "LABELS" | "BLOCKS" | "PRODUCT" => value.to_lowercase(),
        _ => return argument.into(),
    };
    let equals = if option.is_empty() { "" } else { "=" };
    format!("{option}{equals}{}", shop.path(&place).display()).into()
}

/// The directory of the source.
fn tree(caller: &Caller) -> &'static str {
    if caller.is_faked() {
        "faked/tree"
    } else {
        "tree"
    }
}

/// The place of the image.
fn place(caller: &Caller) -> String {
    match caller.place("out") {
        Some(out) => format!("{}/{out}", tree(caller)),
        None => "image".into(),
    }
}

/// Has mkfs.erofs, ours or theirs, make an image where the caller does. What its kernel shows is the answer.
fn make(shop: &Workshop, caller: &Caller, program: &Command) -> (KernelMount, String) {
    let image = shop.path(&place(caller));
    let _ = fs::remove_file(&image);
    let mut command = match caller.is_faked() {
        false => Command::new("env"),
        true => faked(shop),
    };
    command
        .env_remove("SOURCE_DATE_EPOCH")
        .envs(caller.variables());
    command.arg(program.get_program()).args(program.get_args());
    command.args(
        caller
            .mkfs
            .iter()
            .map(|argument| resolved(shop, caller, argument)),
    );
    command.stdin(match caller.is_piped() {
        true => archive(shop).into(),
        false => Stdio::null(),
    });
    let made = good(caller, command);
    assert_eq!(made.err, "", "{}", caller.name);
    let mount = KernelMount::new(&image, &[]).unwrap();
    let shown = view(mount.path());
    (mount, shown)
}

/// A session of fakeroot, of a user without rights, in which the tree is made anew before a command runs.
fn faked(shop: &Workshop) -> Command {
    let mut session = Command::new("fakeroot");
    let script = format!("({TREE})\nexec \"$@\"");
    session.args(["sh", "-euc", &script, "sh"]);
    session
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir(shop.path("faked"));
    session
}

/// The tree as an archive on a pipe.
fn archive(shop: &Workshop) -> std::process::ChildStdout {
    let mut tar = Command::new("tar");
    tar.args([
        "--format=posix",
        "--xattrs",
        "--xattrs-include=*",
        "-cf",
        "-",
        "-C",
        "tree",
        ".",
    ]);
    let tar = tar
        .current_dir(shop.path(""))
        .stdout(Stdio::piped())
        .spawn();
    tar.unwrap().stdout.unwrap()
}

#[track_caller]
fn good(caller: &Caller, mut command: Command) -> Run {
    let done = run(&mut command);
    assert_eq!(
        done.status,
        Some(0),
        "{}: {command:?}: {done:?}",
        caller.name
    );
    done
}

/// Does what a caller does with its image besides making it, and has erofs-utils check it.
fn read(shop: &Workshop, caller: &Caller, shown: &str) {
    let peers = Peers::find();
    let run_all = |name: &str, arguments: &[String]| -> Vec<Run> {
        let ours = Command::new(shop.path(name));
        let theirs = peers.as_ref().map(|peers| peers.command(name));
        let run_one = |mut program: Command| {
            program.args(
                arguments
                    .iter()
                    .map(|argument| resolved(shop, caller, argument)),
            );
            let done = good(caller, program);
            compare_extracted(shop, caller, shown);
            done
        };
        std::iter::once(ours).chain(theirs).map(run_one).collect()
    };
    let check = [
        vec!["OUT".to_owned()],
        vec!["--extract".into(), "OUT".into()],
    ];
    for arguments in caller.fsck.iter().chain(&check) {
        run_all("fsck.erofs", arguments);
    }
    for arguments in &caller.dump {
        let told = run_all("dump.erofs", arguments);
        let differs = difference(&told[0].out, &told.last().unwrap().out);
        assert_same(caller, &format!("{arguments:?}"), differs);
    }
}

/// Compares what has been extracted, if something has, with the image, but for attributes.
fn compare_extracted(shop: &Workshop, caller: &Caller, shown: &str) {
    let extracted = shop.path("extracted");
    if !extracted.exists() {
        return;
    }
    let bare = |tree: &str| {
        edit(tree, |columns| {
            columns[Column::Xattrs as usize] = "-".into();
            true
        })
    };
    let differs = difference(&bare(&view(&extracted)), &bare(shown));
    assert_same(caller, "extracted", differs);
    fs::remove_dir_all(extracted).unwrap();
}

fn assert_same(caller: &Caller, what: &str, differs: Option<String>) {
    if let Some(differs) = differs {
        panic!("{}, {what}: {differs}", caller.name);
    }
}

/// Checks the UUID and the label that the caller gives its image.
fn compare_names(shop: &Workshop, caller: &Caller) {
    let dump = shop.json(&format!("dump --json -s {}", place(caller)));
    for word in ["uuid", "label"] {
        if let Some(told) = caller.held(word) {
            assert_eq!(dump["superblock"][word], told, "{}: {dump}", caller.name);
        }
    }
}

/// Has the image of a caller made and judged. Where erofs-utils can be given the line, it makes the same of it.
fn judge_caller(shop: &Workshop, mut caller: Caller, tree: &str) {
    let (mount, shown) = make(shop, &caller, &Command::new(shop.path("mkfs.erofs")));
    let differs = difference(&shown, &expected(&caller, tree));
    assert_same(&caller, "mounted", differs);
    compare_names(shop, &caller);
    read(shop, &caller, &shown);
    drop(mount);
    if let (Some(peers), None) = (Peers::find(), &caller.bench) {
        // A user without rights cannot start it.
        caller.within.retain(|word| word != "fakeroot");
        let (_mount, by_them) = make(shop, &caller, peers.command("mkfs.erofs").arg("-d1"));
        assert_same(&caller, "by erofs-utils", difference(&shown, &by_them));
    }
    if caller.place("out").is_some() {
        make_tree(shop);
    }
}

#[test]
fn each_caller_gets_what_it_expects() {
    let mut programs = ["setfattr", "fakeroot", "tar"].iter();
    if !judge::has_kernel() || !programs.all(|program| judge::has_program(program)) {
        return;
    }
    let shop = shop();
    let tree = view(&shop.path("tree"));
    let callers = callers();
    assert!(callers.len() > 20, "{}", callers.len());
    let fails = |caller| {
        let judged = AssertUnwindSafe(|| judge_caller(&shop, caller, &tree));
        catch_unwind(judged).is_err()
    };
    let failed = callers.into_iter().filter(|caller| fails(caller.clone()));
    let failed: Vec<_> = failed.map(|caller| caller.name).collect();
    assert_eq!(failed, [""; 0]);
}
