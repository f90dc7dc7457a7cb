//! How a client shows a server that it knows the password, without saying it: MySQL's scrambles and PostgreSQL's md5 and
//! SCRAM-SHA-256 (RFC 5802, RFC 7677).

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, Mac};
use md5::Md5;
use sha1::{Digest, Sha1};
use sha2::Sha256;

use super::{Result, SqlError};

fn xor(a: &[u8], b: &[u8]) -> Vec<u8> {
    a.iter().zip(b).map(|(a, b)| a ^ b).collect()
}

/// mysql_native_password: `SHA1(p) ^ SHA1(seed + SHA1(SHA1(p)))`; nothing for no password.
pub(super) fn native(password: &str, seed: &[u8]) -> Vec<u8> {
    if password.is_empty() {
        return Vec::new();
    }
    let once = Sha1::digest(password);
    let twice = Sha1::digest(once);
    xor(
        &once,
        &Sha1::new()
            .chain_update(seed)
            .chain_update(twice)
            .finalize(),
    )
}

/// caching_sha2_password: `SHA256(p) ^ SHA256(SHA256(SHA256(p)) + seed)`; nothing for no password.
pub(super) fn caching_sha2(password: &str, seed: &[u8]) -> Vec<u8> {
    if password.is_empty() {
        return Vec::new();
    }
    let once = Sha256::digest(password);
    let twice = Sha256::digest(once);
    xor(
        &once,
        &Sha256::new()
            .chain_update(twice)
            .chain_update(seed)
            .finalize(),
    )
}

/// PostgreSQL's md5: `md5` and `MD5(MD5(p + user) + salt)` as digits.
pub(super) fn md5(user: &str, password: &str, salt: &[u8]) -> String {
    let hex = |bytes: &[u8]| -> String { bytes.iter().map(|b| format!("{b:02x}")).collect() };
    let inner = hex(&Md5::new()
        .chain_update(password)
        .chain_update(user)
        .finalize());
    format!(
        "md5{}",
        hex(&Md5::new().chain_update(inner).chain_update(salt).finalize())
    )
}

fn hmac(key: &[u8], words: &[&[u8]]) -> [u8; 32] {
    // A key of any length is one.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else {
        return [0; 32];
    };
    words.iter().for_each(|w| mac.update(w));
    mac.finalize().into_bytes().into()
}

/// A number that nobody can foretell.
pub(super) fn nonce() -> Result<String> {
    let mut random = [0; 18];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
        .map_err(|e| SqlError::here(format!("the kernel has no random numbers: {e}")))?;
    Ok(BASE64.encode(random))
}

/// An exchange of SCRAM-SHA-256 under way. Passwords are taken as their bytes: SASLprep changes none of ASCII.
pub(super) struct Scram {
    /// The channel's header: `n,,`, or with what binds it to the TLS channel `p=tls-server-end-point,,`.
    header: &'static str,
    binding: Vec<u8>,
    nonce: String,
    /// What the server has to show in the end.
    expected: String,
}

/// Rounds of the password's hash that are done at most: PostgreSQL has 4096.
const ROUNDS_MAX: u32 = 1 << 20;

impl Scram {
    /// `binding`: the hash of the server's certificate, where both ends can.
    pub(super) fn new(nonce: String, binding: Option<Vec<u8>>) -> Self {
        Self {
            header: match binding {
                Some(_) => "p=tls-server-end-point,,",
                None => "n,,",
            },
            binding: binding.unwrap_or_default(),
            nonce,
            expected: String::new(),
        }
    }

    /// Its first message; PostgreSQL knows the user from before.
    pub(super) fn first(&self) -> String {
        format!("{}{}", self.header, self.bare(""))
    }

    fn bare(&self, user: &str) -> String {
        format!("n={user},r={}", self.nonce)
    }

    /// Its answer to the server's first message.
    pub(super) fn second(&mut self, user: &str, password: &str, server: &str) -> Result<String> {
        let wrong = || SqlError::protocol("its half of SCRAM");
        let field = |name: &str| server.split(',').find_map(|f| f.strip_prefix(name));
        let nonce = field("r=").ok_or_else(wrong)?;
        let salt = BASE64
            .decode(field("s=").ok_or_else(wrong)?)
            .map_err(|_| wrong())?;
        let rounds: u32 = field("i=").and_then(|i| i.parse().ok()).ok_or_else(wrong)?;
        if !nonce.starts_with(&self.nonce) || !(1..=ROUNDS_MAX).contains(&rounds) {
            return Err(wrong());
        }
        // PBKDF2 with one block.
        let mut round = hmac(password.as_bytes(), &[&salt, &[0, 0, 0, 1]]);
        let mut salted = round;
        for _ in 1..rounds {
            round = hmac(password.as_bytes(), &[&round]);
            salted.iter_mut().zip(round).for_each(|(s, r)| *s ^= r);
        }
        let key = hmac(&salted, &[b"Client Key"]);
        let channel = BASE64.encode([self.header.as_bytes(), &self.binding].concat());
        let last = format!("c={channel},r={nonce}");
        let said = format!("{},{server},{last}", self.bare(user));
        let proof = xor(&key, &hmac(&Sha256::digest(key), &[said.as_bytes()]));
        let server_key = hmac(&salted, &[b"Server Key"]);
        self.expected = BASE64.encode(hmac(&server_key, &[said.as_bytes()]));
        Ok(format!("{last},p={}", BASE64.encode(proof)))
    }

    /// Whether the server knows the password, too: who does not is somebody else.
    pub(super) fn proven(&self, server: &str) -> Result<()> {
        match server.split(',').find_map(|f| f.strip_prefix("v=")) {
            Some(shown) if !self.expected.is_empty() && shown == self.expected => Ok(()),
            _ => Err(SqlError::here(
                "the server did not show that it knows the password: it is another one, or somebody is in between".into(),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scrambles_are_those_that_were_published() {
        // go-sql-driver/mysql, auth_test.go, TestScrambleSHA256Pass.
        let seed = [
            10, 47, 74, 111, 75, 73, 34, 48, 88, 76, 114, 74, 37, 13, 3, 80, 82, 2, 23, 21,
        ];
        let expected = [
            0xf4, 0x90, 0xe7, 0x6f, 0x66, 0xd9, 0xd8, 0x66, 0x65, 0xce, 0x54, 0xd9, 0x8c, 0x78,
            0xd0, 0xac, 0xfe, 0x2f, 0xb0, 0xb0, 0x8b, 0x42, 0x3d, 0xa8, 0x07, 0x14, 0x48, 0x73,
            0xd3, 0x0b, 0x31, 0x2c,
        ];
        assert_eq!(caching_sha2("secret", &seed), expected);
        assert!(caching_sha2("", &seed).is_empty() && native("", &seed).is_empty());
        // xp-framework/rdbms, MySqlPasswordTest, protocol41.
        let expected = b"}PQn\x0es\x0b\x0b\x1b\x12\xfb\xaa\x1b\xa0\x87o=\xb2\xc4\xdd";
        assert_eq!(native("hello", b"12345678901234567890"), expected);
    }

    #[test]
    fn scram_is_that_of_rfc_7677() {
        let mut s = Scram::new("rOprNGfwEbeRWgbNEkqO".into(), None);
        assert_eq!(s.first(), "n,,n=,r=rOprNGfwEbeRWgbNEkqO");
        let server = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        let said = s.second("user", "pencil", server).unwrap();
        assert_eq!(
            said,
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        );
        s.proven("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
            .unwrap();
        assert!(s.proven("v=AAAA").is_err());
        for wrong in [
            "r=other,s=W22Z,i=4096",
            "s=W22Z",
            "r=rOprNGfwEbeRWgbNEkqO1,s=!,i=1",
        ] {
            assert!(s.second("user", "pencil", wrong).is_err(), "{wrong}");
        }
    }
}
