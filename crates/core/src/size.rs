//! Sizes as people write them.

/// Tells why a size could not be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a size; write bytes, or a number with K, M, G or T (powers of 1024)")]
pub struct ParseSizeError(String);

/// Reads a size: decimal or `0x` hexadecimal bytes, optionally with a suffix K, M, G or T
/// (either case, powers of 1024; `KiB` and `KB` mean the same as `K`).
///
/// # Errors
///
/// [`ParseSizeError`] with the text when it is not a number, has another suffix, or exceeds 64 bits.
///
/// ```
/// use anteros_core::parse_size;
/// assert_eq!(parse_size("64K"), Ok(65536));
/// assert_eq!(parse_size("0x1000"), Ok(4096));
/// assert!(parse_size("64 bananas").is_err());
/// ```
pub fn parse_size(text: &str) -> Result<u64, ParseSizeError> {
    let error = || ParseSizeError(text.into());
    let (radix, rest) = match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(rest) => (16, rest),
        None => (10, text),
    };
    let digits = rest
        .find(|c: char| !c.is_digit(radix))
        .unwrap_or(rest.len());
    let (number, suffix) = rest.split_at(digits);
    let shift = match suffix.to_ascii_lowercase().as_str() {
        "" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(error()),
    };
    let number = u64::from_str_radix(number, radix).map_err(|_| error())?;
    number.checked_mul(1 << shift).ok_or_else(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_people_write() {
        assert_eq!(parse_size("0"), Ok(0));
        assert_eq!(parse_size("512"), Ok(512));
        assert_eq!(parse_size("1M"), Ok(1 << 20));
        assert_eq!(parse_size("3GiB"), Ok(3 << 30));
        for bad in ["", "K", "-1", "1.5M", "64x", "99999999999T"] {
            assert_eq!(parse_size(bad), Err(ParseSizeError(bad.into())), "{bad}");
        }
    }
}
