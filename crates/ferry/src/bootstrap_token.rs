//! Bootstrap tokens: `<id>.<secret>`, with which a new node asks for its certificate.

use std::str::FromStr;

/// A bootstrap token.
#[derive(Clone, PartialEq, Eq)]
pub struct BootstrapToken {
    /// The public half, six characters.
    pub id: String,
    /// The secret half, sixteen characters.
    pub secret: String,
}

/// A text is not a bootstrap token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a token is six lower-case letters or digits, a dot, and sixteen more, such as abcdef.0123456789abcdef")]
pub struct InvalidToken;

const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";

impl BootstrapToken {
    /// Makes a random token.
    pub fn generate() -> anyhow::Result<Self> {
        Ok(Self { id: random_text(6)?, secret: random_text(16)? })
    }

    /// The name of its Secret in `kube-system`.
    pub fn secret_name(&self) -> String {
        format!("bootstrap-token-{}", self.id)
    }

    /// The whole token.
    pub fn reveal(&self) -> String {
        format!("{}.{}", self.id, self.secret)
    }
}

/// The secret half is never printed by accident.
impl std::fmt::Debug for BootstrapToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BootstrapToken({})", self.id)
    }
}

impl FromStr for BootstrapToken {
    type Err = InvalidToken;

    fn from_str(text: &str) -> Result<Self, InvalidToken> {
        let (id, secret) = text.split_once('.').ok_or(InvalidToken)?;
        let is_valid = |part: &str, length| part.len() == length && part.bytes().all(|byte| ALPHABET.contains(&byte));
        if !is_valid(id, 6) || !is_valid(secret, 16) {
            return Err(InvalidToken);
        }
        Ok(Self { id: id.into(), secret: secret.into() })
    }
}

/// Random characters, each as likely as any other.
fn random_text(length: usize) -> anyhow::Result<String> {
    use ring::rand::SecureRandom;
    let random = ring::rand::SystemRandom::new();
    let mut text = String::new();
    while text.len() < length {
        let mut byte = [0];
        random.fill(&mut byte).map_err(|_| anyhow::anyhow!("the system has no random numbers"))?;
        // Bytes beyond the last whole multiple of the alphabet would favour its beginning.
        if usize::from(byte[0]) < 256 / ALPHABET.len() * ALPHABET.len() {
            text.push(char::from(ALPHABET[usize::from(byte[0]) % ALPHABET.len()]));
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_parsed_strictly() {
        let token = BootstrapToken::generate().unwrap();
        assert_eq!(token.reveal().parse(), Ok(token.clone()));
        assert_eq!(format!("{token:?}"), format!("BootstrapToken({})", token.id), "the secret is not shown");
        for wrong in ["", "abcdef", "abcdef.", "ABCDEF.0123456789abcdef", "abcdef.0123456789abcdef0"] {
            assert_eq!(wrong.parse::<BootstrapToken>(), Err(InvalidToken), "{wrong}");
        }
    }
}
