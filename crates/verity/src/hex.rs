//! Bytes as hexadecimal digits.

/// The digits of bytes, in lower case.
pub fn encode(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of digits, of which each has two; `None` if there is anything else.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let digit = |character: char| character.to_digit(16).map(|digit| digit as u8);
    let digits: Vec<u8> = text.chars().map(digit).collect::<Option<_>>()?;
    let bytes = digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]);
    (digits.len() % 2 == 0).then(|| bytes.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_from_their_digits() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&bytes)), Some(bytes));
        assert_eq!(decode("00fF10"), Some(vec![0, 0xff, 0x10]));
        assert_eq!(decode(""), Some(Vec::new()));
        for wrong in ["0", "0g", "ä0", "0x00", " 00"] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
    }
}
