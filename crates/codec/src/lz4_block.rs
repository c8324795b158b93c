//! A decoder of LZ4 blocks.
//!
//! It accepts the blocks that liblz4 accepts (`LZ4_decompress_safe`, and
//! `LZ4_decompress_safe_partial` for the front of a block), by the same rules about the last bytes
//! of a block. There is one exception: a match of distance 0 is refused. liblz4 lets it pass, and
//! leaves the output as it was or fills it with zeros. The maker of the block could so show the
//! content of a buffer.
//!
//! **Every byte of the output is written before it is told of.** The output grows from its front
//! without gaps: literals come from the stream, and a match from what was written before, at a
//! distance of 1 at least.
//!
//! Copies go forward, in chunks of 16 bytes at most, and each chunk is loaded before it is stored.
//! A copy writes up to 32 bytes beyond its end while there is room. So a block may lie at the end
//! of the buffer that it is decoded into ([`in_place`](crate::in_place)), and the output may be a
//! window whose pages come again ([`rolling`](crate::rolling)).

use crate::Fault;
use crate::error::expect_full;

/// A match is at least this long.
pub(crate) const MATCH_MIN: usize = 4;
/// A nibble of a token with this value is continued in bytes.
pub(crate) const NIBBLE_MAX: usize = 15;
/// States how far beyond their end copies write where there is room.
const SLACK: usize = 32;
/// The last bytes of a block are literals, so many at least.
pub(crate) const LAST_LITERALS: usize = 5;
/// Literals that end closer to the end of the output are the last ones.
const OUTPUT_TAIL: usize = 12;
/// Literals that end closer to the end of the block are the last ones: an offset, a token, and
/// [`LAST_LITERALS`] follow all others.
const INPUT_TAIL: usize = 2 + 1 + LAST_LITERALS;

const MALFORMED: Fault = Fault::Malformed("not an LZ4 block of this length");

/// Decodes the block at `src` until `wanted` bytes lie at `dst`: all of it, or its front if `PARTIAL`.
///
/// # Safety
///
/// `src` must be readable for `src_len` bytes, and `dst` writable and readable for `wanted` bytes. They
/// may overlap; the bytes are then those of the block if the output nowhere overtakes the input.
pub(crate) unsafe fn decode<const PARTIAL: bool>(
    src: *const u8,
    src_len: usize,
    dst: *mut u8,
    wanted: usize,
) -> Result<(), Fault> {
    let input = Input { src, len: src_len };
    if wanted == 0 {
        // SAFETY: there is one byte.
        let is_empty_block = || src_len == 1 && unsafe { input.byte(0) } == 0;
        return match PARTIAL || is_empty_block() {
            true => Ok(()),
            false => Err(MALFORMED),
        };
    }
    let (mut ip, mut op) = (0, 0);
    loop {
        // SAFETY: the caller's.
        let stop = unsafe { decode_middle(input, dst, wanted, ip, op) };
        (ip, op) = (stop.read, stop.written);
        let token = match stop.token {
            Some(token) => token,
            None => {
                // SAFETY: the caller's.
                let last =
                    unsafe { copy_literals::<PARTIAL>(input, dst, wanted, &mut ip, &mut op)? };
                match last {
                    Some(token) => token,
                    None => return expect_full(wanted, op),
                }
            }
        };

        // SAFETY: three bytes are left behind literals, at least, that are not the last.
        let distance = usize::from(unsafe { input.offset(ip) });
        ip += 2;
        if distance == 0 {
            return Err(Fault::Malformed("a match of distance 0"));
        }
        if distance > op {
            return Err(MALFORMED);
        }
        let mut len = (token & NIBBLE_MAX) + MATCH_MIN;
        if len == NIBBLE_MAX + MATCH_MIN {
            len += input.more(&mut ip, LAST_LITERALS - 1)?;
        }
        let left = wanted - op;
        // SAFETY: `distance` is within what was written, and the lengths within what is left.
        unsafe {
            let to = dst.add(op);
            if len + SLACK <= left {
                repeat_wild(to, distance, len);
            } else if PARTIAL && len + OUTPUT_TAIL > left {
                len = len.min(left);
                repeat(to, distance, len, left);
            } else if len + LAST_LITERALS <= left {
                repeat(to, distance, len, left);
            } else {
                return Err(MALFORMED);
            }
        }
        op += len;
        if PARTIAL && op == wanted {
            return Ok(());
        }
    }
}

/// Copies the literals of the sequence at `ip`, and gives its token; or none if nothing follows.
///
/// # Safety
///
/// As for [`decode`]; `ip` and `op` are where it stands.
#[inline(never)]
unsafe fn copy_literals<const PARTIAL: bool>(
    input: Input,
    dst: *mut u8,
    wanted: usize,
    ip: &mut usize,
    op: &mut usize,
) -> Result<Option<usize>, Fault> {
    if *ip >= input.len {
        return Err(MALFORMED);
    }
    // SAFETY: just checked.
    let token = usize::from(unsafe { input.byte(*ip) });
    *ip += 1;
    let mut len = token >> 4;
    if len == NIBBLE_MAX {
        if *ip + NIBBLE_MAX >= input.len {
            return Err(MALFORMED);
        }
        len += input.more(ip, NIBBLE_MAX)?;
    }
    let (read_left, write_left) = (input.len - *ip, wanted - *op);
    // liblz4 asks no more of short ones that are not near the end.
    let is_short = len < NIBBLE_MAX && read_left >= 17 && write_left >= SLACK;
    let is_last = !is_short && (len + INPUT_TAIL > read_left || len + OUTPUT_TAIL > write_left);
    if is_last {
        if !PARTIAL && (len != read_left || len > write_left) {
            return Err(MALFORMED);
        }
        len = len.min(read_left).min(write_left);
    }
    // SAFETY: both have so many bytes left, as was checked in one of three ways.
    unsafe { input.src.add(*ip).copy_to(dst.add(*op), len) };
    *ip += len;
    *op += len;
    let goes_on = !is_last || PARTIAL && *op < wanted && *ip + 2 < input.len;
    Ok(goes_on.then_some(token))
}

/// Tells where [`decode_middle`] stopped.
struct Stop {
    read: usize,
    written: usize,
    /// The token of a sequence whose literals have been copied, and whose match is to come.
    token: Option<usize>,
}

/// Decodes sequences while neither end is near, up to the first that comes near one or is malformed.
/// This is nearly all of a block, so it is written for speed.
///
/// # Safety
///
/// As for [`decode`]; `read` and `written` say where it stands, at a token.
#[inline(always)]
unsafe fn decode_middle(
    input: Input,
    dst: *mut u8,
    wanted: usize,
    read: usize,
    written: usize,
) -> Stop {
    let start = input.src as usize;
    let (mut ip, mut op) = (input.src.wrapping_add(read), dst.wrapping_add(written));
    // Addresses, as the ends may lie in front of the buffers.
    let ip_end = (start + input.len).saturating_sub(17);
    let op_end = (dst as usize + wanted).saturating_sub(2 * SLACK - 1);
    let mut token_left = None;
    while (ip as usize) < ip_end && (op as usize) < op_end {
        // SAFETY: of the input 18 bytes are left at least, a token, 14 literals, an offset and a byte; of
        // the output 64, of which short literals and a short match take 32. Longer ones are checked. What
        // a match refers to lies behind the start of the output.
        unsafe {
            let token = usize::from(ip.read());
            let mut from = ip.add(1);
            let mut literals = token >> 4;
            let mut to = op;
            if literals != NIBBLE_MAX {
                copy::<16>(from, to);
            } else {
                let mut at = from as usize - start;
                match input.more(&mut at, NIBBLE_MAX) {
                    Ok(more) => literals += more,
                    Err(_) => break,
                }
                let left = dst as usize + wanted - op as usize;
                if literals + SLACK > input.len - at || literals + 2 * SLACK > left {
                    break;
                }
                from = input.src.add(at);
                copy_wild(from, to, literals);
            }
            ip = from.add(literals);
            op = to.add(literals);
            token_left = Some(token);
            from = ip;
            to = op;
            let distance = usize::from(u16::from_le(from.cast::<u16>().read_unaligned()));
            from = from.add(2);
            if distance.wrapping_sub(1) >= to as usize - dst as usize {
                break;
            }
            let mut len = token & NIBBLE_MAX;
            if len != NIBBLE_MAX && distance >= 8 {
                let match_at = to.sub(distance).cast_const();
                copy::<8>(match_at, to);
                copy::<8>(match_at.add(8), to.add(8));
                copy::<2>(match_at.add(16), to.add(16));
            } else {
                if len == NIBBLE_MAX {
                    let mut at = from as usize - start;
                    match input.more(&mut at, LAST_LITERALS - 1) {
                        Ok(more) => len += more,
                        Err(_) => break,
                    }
                    from = input.src.add(at);
                }
                if len + MATCH_MIN + SLACK > dst as usize + wanted - to as usize {
                    break;
                }
                repeat_wild(to, distance, len + MATCH_MIN);
            }
            ip = from;
            op = to.add(len + MATCH_MIN);
            token_left = None;
        }
    }
    Stop {
        read: ip as usize - start,
        written: op as usize - dst as usize,
        token: token_left,
    }
}

/// A block. Whatever it says is read once, and checked as it was read: in place, the output may run
/// over what is yet to be read of a hostile one.
#[derive(Clone, Copy)]
struct Input {
    src: *const u8,
    len: usize,
}

impl Input {
    /// # Safety
    ///
    /// There is a byte at `at`.
    #[inline(always)]
    unsafe fn byte(self, at: usize) -> u8 {
        // SAFETY: the caller's.
        unsafe { self.src.add(at).read() }
    }

    /// # Safety
    ///
    /// There are two bytes at `at`.
    #[inline(always)]
    unsafe fn offset(self, at: usize) -> u16 {
        // SAFETY: the caller's.
        u16::from_le(unsafe { self.src.add(at).cast::<u16>().read_unaligned() })
    }

    /// Writes what of a length does not fit its nibble. `behind` bytes must be left after it.
    #[inline(always)]
    fn more(self, ip: &mut usize, behind: usize) -> Result<usize, Fault> {
        let mut more = 0;
        loop {
            if *ip >= self.len {
                return Err(MALFORMED);
            }
            // SAFETY: just checked.
            let byte = unsafe { self.byte(*ip) };
            *ip += 1;
            more += usize::from(byte);
            if *ip + behind > self.len {
                return Err(MALFORMED);
            }
            if byte != 255 {
                return Ok(more);
            }
        }
    }
}

/// Copies `N` bytes, which may overlap.
///
/// # Safety
///
/// `from` has so many bytes, and so has `to`.
#[inline(always)]
unsafe fn copy<const N: usize>(from: *const u8, to: *mut u8) {
    // SAFETY: the caller's; an array of bytes needs no alignment.
    unsafe {
        let chunk = from.cast::<[u8; N]>().read();
        to.cast::<[u8; N]>().write(chunk);
    }
}

/// Copies `len` bytes from in front, or from 16 bytes behind at least.
///
/// # Safety
///
/// Both have so many bytes, and `SLACK` more.
#[inline(always)]
unsafe fn copy_wild(from: *const u8, to: *mut u8, len: usize) {
    let mut at = 0;
    loop {
        // SAFETY: `at < len` or nothing is copied yet, so this ends within the slack.
        unsafe {
            copy::<16>(from.add(at), to.add(at));
            copy::<16>(from.add(at + 16), to.add(at + 16));
        }
        at += 32;
        if at >= len {
            return;
        }
    }
}

/// Writes `len` bytes that are those `distance` before.
///
/// # Safety
///
/// So many bytes are there before `to`, and from it on as many as are written, and `SLACK` more.
#[inline(always)]
unsafe fn repeat_wild(to: *mut u8, distance: usize, len: usize) {
    // SAFETY: the caller's; each copy begins below `len`, and none is longer than the slack.
    unsafe {
        let from = to.sub(distance).cast_const();
        if distance >= 16 {
            copy::<16>(from, to);
            if len > 16 {
                copy_wild(from.add(16), to.add(16), len - 16);
            }
        } else if distance >= 8 {
            copy::<8>(from, to);
            copy::<8>(from.add(8), to.add(8));
            let mut at = 16;
            while at < len {
                copy::<8>(from.add(at), to.add(at));
                at += 8;
            }
        } else {
            repeat_pattern(to, distance, len);
        }
    }
}

/// [`repeat_wild`] of less than 8 bytes: as many of them as fit into a word, again and again.
///
/// # Safety
///
/// As for [`repeat_wild`].
#[inline(always)]
unsafe fn repeat_pattern(to: *mut u8, distance: usize, len: usize) {
    // SAFETY: the caller's; the word begins below `to` and ends within the slack.
    let word = u64::from_le(unsafe { to.sub(distance).cast::<u64>().read_unaligned() });
    let mut bits = distance * 8;
    let mut pattern = word & ((1 << bits) - 1);
    while bits < 64 {
        pattern |= pattern << bits;
        bits *= 2;
    }
    let step = 8 - 8 % distance;
    let mut at = 0;
    while at < len {
        // SAFETY: the caller's; `at` is below `len`.
        unsafe { to.add(at).cast::<u64>().write_unaligned(pattern.to_le()) };
        at += step;
    }
}

/// [`repeat_wild`] that writes nothing at or beyond `left`.
///
/// # Safety
///
/// `distance` bytes are there before `to`, and `left` from it on, which is no less than `len`.
#[cold]
#[inline(never)]
unsafe fn repeat(to: *mut u8, distance: usize, len: usize, left: usize) {
    let bulk = len.min(left.saturating_sub(SLACK));
    // SAFETY: the caller's; the bulk ends `SLACK` before `left`, and the bytes behind it below `len`.
    unsafe {
        if bulk > 0 {
            repeat_wild(to, distance, bulk);
        }
        for at in bulk..len {
            to.add(at).write(to.add(at).sub(distance).read());
        }
    }
}
