//! Source text as tokens, without what the compiler leaves out: comments, strings, and what is for tests alone.

use std::iter::Peekable;
use std::str::Chars;

/// A word, a number, `::`, or a single sign; with the line on which it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) text: String,
    pub(super) line: usize,
}

/// Keywords that begin an item.
const ITEMS: [&str; 15] = [
    "async",
    "const",
    "enum",
    "extern",
    "fn",
    "impl",
    "macro_rules",
    "mod",
    "pub",
    "static",
    "struct",
    "trait",
    "type",
    "unsafe",
    "use",
];

/// Returns the tokens of production code.
pub(super) fn production(text: &str) -> Vec<Token> {
    let all = Lexer::new(text).tokens();
    if starts_with(&all, &["#", "!", "[", "cfg", "(", "test", ")", "]"]) {
        return Vec::new();
    }
    let mut kept = Vec::new();
    let mut at = 0;
    while at < all.len() {
        if starts_with(&all[at..], &["#", "[", "cfg", "(", "test", ")", "]"]) {
            at += annotated(&all[at..]);
        } else {
            kept.push(all[at].clone());
            at += 1;
        }
    }
    kept
}

/// Returns whether the first tokens are these.
pub(super) fn starts_with(tokens: &[Token], words: &[&str]) -> bool {
    tokens.len() >= words.len()
        && tokens
            .iter()
            .zip(words)
            .all(|(token, word)| token.text == *word)
}

/// Counts the tokens of an item, a field or a statement with the attributes in front of it.
fn annotated(tokens: &[Token]) -> usize {
    let mut at = 0;
    while starts_with(&tokens[at..], &["#", "["]) {
        at += 1 + group(&tokens[at + 1..]);
    }
    let Some(first) = tokens.get(at) else {
        return at;
    };
    let is_item = ITEMS.contains(&first.text.as_str());
    let ends_at_brace = is_item
        && !tokens[at..]
            .iter()
            .take_while(|token| !matches!(token.text.as_str(), "{" | ";" | "=" | "fn"))
            .any(|token| matches!(token.text.as_str(), "use" | "static" | "type"));
    while let Some(token) = tokens.get(at) {
        match token.text.as_str() {
            ";" => return at + 1,
            "," if !is_item => return at + 1,
            "}" | ")" | "]" => return at,
            "{" => {
                at += group(&tokens[at..]);
                if ends_at_brace {
                    return at;
                }
            }
            "(" | "[" => at += group(&tokens[at..]),
            _ => at += 1,
        }
    }
    at
}

/// Counts the tokens from an opening sign to the one that closes it.
fn group(tokens: &[Token]) -> usize {
    let mut depth = 0usize;
    for (at, token) in tokens.iter().enumerate() {
        match token.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

/// Cuts text into tokens.
struct Lexer<'a> {
    chars: Peekable<Chars<'a>>,
    line: usize,
    tokens: Vec<Token>,
}

impl<'a> Lexer<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            chars: text.chars().peekable(),
            line: 1,
            tokens: Vec::new(),
        }
    }

    fn tokens(mut self) -> Vec<Token> {
        while let Some(first) = self.next() {
            match first {
                _ if first.is_whitespace() => {}
                '/' if self.next_is('/') => self.skip_line(),
                '/' if self.next_is('*') => self.skip_comment(),
                '"' => self.skip_string(),
                '\'' => self.skip_char_or_lifetime(),
                ':' if self.next_is(':') => {
                    self.next();
                    self.push("::".into());
                }
                _ if is_word(first) => self.word(first),
                _ => self.push(first.into()),
            }
        }
        self.tokens
    }

    fn next(&mut self) -> Option<char> {
        let next = self.chars.next();
        self.line += usize::from(next == Some('\n'));
        next
    }

    fn next_is(&mut self, wanted: char) -> bool {
        self.chars.peek() == Some(&wanted)
    }

    fn push(&mut self, text: String) {
        let line = self.line;
        self.tokens.push(Token { text, line });
    }

    fn skip_line(&mut self) {
        while self.chars.peek().is_some_and(|&next| next != '\n') {
            self.next();
        }
    }

    /// Skips a comment of which the first sign was read; such comments may contain others.
    fn skip_comment(&mut self) {
        self.next();
        let mut depth = 1;
        while depth > 0 {
            match self.next() {
                Some('/') if self.next_is('*') => depth += 1,
                Some('*') if self.next_is('/') => depth -= 1,
                Some(_) => continue,
                None => return,
            }
            self.next();
        }
    }

    /// Skips a string of which the first quotation mark was read.
    fn skip_string(&mut self) {
        while let Some(next) = self.next() {
            match next {
                '\\' => {
                    self.next();
                }
                '"' => return,
                _ => {}
            }
        }
    }

    /// Skips a string in which a backslash means nothing, from its first `#` or quotation mark on.
    fn skip_raw_string(&mut self) {
        let mut hashes = 0;
        while self.next_is('#') {
            self.next();
            hashes += 1;
        }
        self.next();
        loop {
            match self.next() {
                None => return,
                Some('"') => {
                    let mut closed = 0;
                    while closed < hashes && self.next_is('#') {
                        self.next();
                        closed += 1;
                    }
                    if closed == hashes {
                        return;
                    }
                }
                Some(_) => {}
            }
        }
    }

    /// Skips `'x'`, or the sign in front of a lifetime, whose name stays as a word of no meaning.
    fn skip_char_or_lifetime(&mut self) {
        let mut ahead = self.chars.clone();
        match (ahead.next(), ahead.next()) {
            (Some('\\'), _) => {
                self.next();
                self.next();
                while self.next().is_some_and(|next| next != '\'') {}
            }
            (Some(_), Some('\'')) => {
                self.next();
                self.next();
            }
            _ => {}
        }
    }

    fn word(&mut self, first: char) {
        let mut word = String::from(first);
        while let Some(&next) = self.chars.peek() {
            if !is_word(next) {
                break;
            }
            word.push(next);
            self.next();
        }
        let prefix = matches!(word.as_str(), "r" | "b" | "br" | "c" | "cr");
        if prefix && self.next_is('"') && !word.ends_with('r') {
            self.next();
            self.skip_string();
        } else if prefix && word.ends_with('r') && self.is_raw_string() {
            self.skip_raw_string();
        } else {
            self.push(word);
        }
    }

    fn is_raw_string(&self) -> bool {
        let mut ahead = self.chars.clone();
        ahead.find(|&next| next != '#') == Some('"')
    }
}

fn is_word(sign: char) -> bool {
    sign.is_alphanumeric() || sign == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> String {
        let words: Vec<_> = production(text)
            .into_iter()
            .map(|token| token.text)
            .collect();
        words.join(" ")
    }

    #[test]
    fn comments_and_strings_are_no_code() {
        let text =
            "a /* b /* c */ d */ e // f\n'g' 'h \"i \\\" j\" r#\"k \" l\"# b\"m\" b'n' '\\'' o::p";
        assert_eq!(words(text), "a e h b o :: p");
        let lines: Vec<_> = production("a\n\"\n\"\nb")
            .iter()
            .map(|token| token.line)
            .collect();
        assert_eq!(lines, [1, 4]);
    }

    #[test]
    fn what_is_for_tests_alone_is_no_production_code() {
        for (text, left) in [
            ("#[cfg(test)]\nmod tests { fn a() {} }\nb", "b"),
            ("#[cfg(test)]\nmod tests;\nb", "b"),
            ("#[cfg(test)]\nuse a::{c, d};\nb", "b"),
            (
                "#[cfg(test)]\n#[inline]\npub(crate) fn a<T, U>(c: T) -> U { c }\nb",
                "b",
            ),
            ("#[cfg(test)]\nstatic A: [u8; 2] = { [1, 2] };\nb", "b"),
            (
                "struct A { #[cfg(test)] b: Vec<u8>, c: u8 }",
                "struct A { c : u8 }",
            ),
            ("#![cfg(test)]\nb", ""),
            ("#[cfg(unix)] mod a;", "# [ cfg ( unix ) ] mod a ;"),
        ] {
            assert_eq!(words(text), left, "{text}");
        }
    }
}
