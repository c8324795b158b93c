//! Our reader equals the kernel: the same content, the same inode numbers, the same space used, the same holes, the
//! same order of names, for every fixture that the kernel mounts.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anteros_core::FileSystem;
use anteros_image::ImageFs;
use anteros_tests::host::HostFs;
use anteros_tests::judge::{has_kernel, say};
use anteros_tests::manifest::{details, difference, holes, listing, manifest};
use anteros_tests::mount::KernelMount;
use anteros_tests::{fixtures, open};

/// States what the kernel may be unable to mount: options it was built without.
const MAY_BE_UNKNOWN: [&str; 4] = ["deflate", "lzma", "zstd", "48bit"];

#[test]
fn our_reader_equals_the_kernel() {
    if !has_kernel() {
        return;
    }
    let mut judged = 0;
    for (path, extra) in fixtures() {
        let mount = match KernelMount::new(&path, &extra) {
            Ok(mount) => mount,
            Err(error) => {
                let name = path.file_name().unwrap().to_str().unwrap();
                assert!(
                    MAY_BE_UNKNOWN.iter().any(|part| name.contains(part)),
                    "{error}"
                );
                say(format_args!(
                    "MISSING JUDGE: the kernel does not mount {name}: {error}"
                ));
                continue;
            }
        };
        compare(&path, &extra, &HostFs::new(mount.path()));
        judged += 1;
    }
    say(format_args!(
        "our reader equals the kernel: {judged} images"
    ));
    assert!(judged >= 20, "only {judged} images were judged");
}

fn compare(path: &Path, extra: &[PathBuf], kernel: &dyn FileSystem) {
    let ours = ImageFs::new(Arc::new(open(path, extra)));
    for view in [manifest, details, holes, listing] {
        let (found, expected) = (view(&ours).unwrap(), view(kernel).unwrap());
        if let Some(difference) = difference(&found, &expected) {
            panic!("{}: {difference}", path.display());
        }
    }
}
