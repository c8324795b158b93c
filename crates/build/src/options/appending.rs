//! The options with which an image can be appended to.

use anteros_core::Algorithm;
use anteros_format::compr_cfg::ComprCfgs;
use anteros_format::features::Incompat;

use super::Options;
use crate::Error;

/// Refuses options with which nothing can be appended.
pub(super) fn check(options: &Options) -> Result<(), Error> {
    let Some(append) = &options.append else {
        let text = "a patch needs an image that it is of";
        return match options.is_patch() {
            false => Ok(()),
            true => Err(Error::Option(text.into())),
        };
    };
    let sb = append.parsed()?;
    let is_patch = options.is_patch();
    let action = match &options.renew {
        Some(_) => "to build over an older image",
        None if is_patch => "to patch an image",
        None => "to append to an image",
    };
    let refuse = |why: String| Err(Error::Option(format!("{action}: {why}")));
    let packs = is_patch && options.renew.is_none();
    let cannot = [
        (
            sb.metabox.is_some() || options.metabox.is_some(),
            "compressed metadata",
        ),
        (sb.extra_devices > 0, "an image of several devices"),
        (
            options.fragments.is_some() && !packs,
            "packing files together",
        ),
        (options.compress_directories, "compressed directories"),
        (options.hash_tree.is_some(), "a hash tree"),
        (options.offset > 0, "an offset"),
        (options.android_sparse, "the sparse form of Android"),
        (
            is_patch && sb.digest_prefix.is_some(),
            "digests of content in attributes",
        ),
        (options.has_devices(), "extra devices"),
        (options.has_prefixes(), "prefixes or digests as attributes"),
        (
            options.xattr_share_above.is_none(),
            "leaving attributes out",
        ),
        (
            options.is_wide() != sb.incompat.contains(Incompat::FORTY_EIGHT_BIT),
            "another form of addresses (-E48bit)",
        ),
        (
            !options.exclude.is_empty() && !is_patch,
            "leaving paths out",
        ),
        (
            options.fs_config.is_some() || options.file_contexts.is_some(),
            "lists of owners or labels",
        ),
        (options.block_list.is_some(), "a list of blocks"),
        (
            options.root_xattr_bytes > 0,
            "room for attributes of the root",
        ),
    ];
    if let Some((_, what)) = cannot.iter().find(|(is_told, _)| *is_told) {
        return refuse(format!("{what} cannot be"));
    }
    if options.block_bits != sb.block_bits {
        return refuse(format!(
            "blocks of {} bytes, and it has {}",
            options.block_bytes(),
            sb.block_bytes()
        ));
    }
    let (told, found) = (options.algorithms(), sb.algorithms);
    let is_known = told.iter().all(|algorithm| found.contains(algorithm));
    if options.compression.is_some()
        && !(is_known && covers(&append.cfgs, &options.cfgs(), options))
    {
        return refuse(
            "its superblock says nothing of that compression, or of clusters or windows that large"
                .into(),
        );
    }
    Ok(())
}

/// Returns whether decoders for one configuration can do what another asks for.
fn covers(found: &ComprCfgs, told: &ComprCfgs, options: &Options) -> bool {
    let has_lz4 = options.algorithms().contains(Algorithm::Lz4);
    let lz4 = !has_lz4 || found.lz4_max_pcluster_blocks >= told.lz4_max_pcluster_blocks;
    lz4 && found.lzma_dict_bytes >= told.lzma_dict_bytes
        && found.deflate_window_bits >= told.deflate_window_bits
        && found.zstd_window_log >= told.zstd_window_log
}
