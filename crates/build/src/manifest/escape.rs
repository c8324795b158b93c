//! Escapes of bytes: those of vis(3), which mtree has, and those of composefs.

/// Decodes what vis(3) has encoded, in any of its styles.
pub(super) fn unvis(text: &[u8]) -> Result<Vec<u8>, String> {
    decoded(text, vis_escape)
}

/// Decodes a field of composefs-dump(5).
pub(super) fn undump(text: &[u8]) -> Result<Vec<u8>, String> {
    decoded(text, dump_escape)
}

/// Replaces escapes. `escape` reads one behind its backslash: the byte that it stands for, if any, and its length.
fn decoded(
    text: &[u8],
    escape: impl Fn(&[u8]) -> Option<(Option<u8>, usize)>,
) -> Result<Vec<u8>, String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [byte, tail @ ..] = rest {
        if *byte != b'\\' {
            decoded.push(*byte);
            rest = tail;
            continue;
        }
        let (byte, used) = escape(tail).ok_or_else(|| unknown(tail))?;
        decoded.extend(byte);
        rest = &tail[used..];
    }
    Ok(decoded)
}

fn vis_escape(text: &[u8]) -> Option<(Option<u8>, usize)> {
    let byte = match text {
        [b'0'..=b'7', ..] => return octal(text),
        [b'x', high, low, ..] => return Some((Some(hex(*high)? << 4 | hex(*low)?), 3)),
        [b'M', b'-', byte, ..] => return Some((Some(byte | 0x80), 3)),
        [b'M', b'^', byte, ..] => return Some((Some(control(*byte) | 0x80), 3)),
        [b'^', byte, ..] => return Some((Some(control(*byte)), 2)),
        [b'$', ..] => return Some((None, 1)), // marks an end
        [b'a', ..] => 0x07,
        [b'b', ..] => 0x08,
        [b't', ..] => b'\t',
        [b'n', ..] => b'\n',
        [b'v', ..] => 0x0b,
        [b'f', ..] => 0x0c,
        [b'r', ..] => b'\r',
        [b'E', ..] => 0x1b,
        [b's', ..] => b' ',
        [byte, ..] if byte.is_ascii_punctuation() => *byte,
        _ => return None,
    };
    Some((Some(byte), 1))
}

/// Reads one to three octal digits.
fn octal(text: &[u8]) -> Option<(Option<u8>, usize)> {
    let digits = text.iter().take(3);
    let digits = digits.take_while(|byte| (b'0'..=b'7').contains(byte));
    let (value, used) = digits.fold((0u32, 0), |(value, used), digit| {
        (value << 3 | u32::from(digit - b'0'), used + 1)
    });
    Some((Some(u8::try_from(value).ok()?), used))
}

const fn control(byte: u8) -> u8 {
    match byte {
        b'?' => 0x7f,
        byte => byte & 0x1f,
    }
}

fn dump_escape(text: &[u8]) -> Option<(Option<u8>, usize)> {
    Some(match text {
        [b'x', high, low, ..] => (Some(hex(*high)? << 4 | hex(*low)?), 3),
        [b'\\', ..] => (Some(b'\\'), 1),
        [b'n', ..] => (Some(b'\n'), 1),
        [b'r', ..] => (Some(b'\r'), 1),
        [b't', ..] => (Some(b'\t'), 1),
        _ => return None,
    })
}

fn hex(digit: u8) -> Option<u8> {
    (digit as char).to_digit(16).map(|digit| digit as u8)
}

fn unknown(text: &[u8]) -> String {
    let text = text[..text.len().min(3)].escape_ascii();
    format!("`\\{text}` is no escape that is known")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_of_vis() {
        for (text, expected) in [
            (&br"a\040b\0c\101"[..], &b"a b\0cA"[..]),
            (br"\s\t\n\\\#\a", b" \t\n\\#\x07"),
            (br"\M-C\M-)\M^@\^?\^A\x2f\$", b"\xc3\xa9\x80\x7f\x01/"),
            (br"\303\251", b"\xc3\xa9"),
        ] {
            assert_eq!(unvis(text).unwrap(), expected, "{}", text.escape_ascii());
        }
        for bad in [&br"\"[..], br"\q", br"\400", br"\x1", br"\M", br"\M-"] {
            assert!(unvis(bad).is_err(), "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn escapes_of_composefs() {
        assert_eq!(undump(br"a\x20\\\n\r\t\xff").unwrap(), b"a \\\n\r\t\xff");
        for bad in [&br"\"[..], br"\q", br"\x1", br"\xg0", br"\040"] {
            assert!(undump(bad).is_err(), "{}", bad.escape_ascii());
        }
    }
}
