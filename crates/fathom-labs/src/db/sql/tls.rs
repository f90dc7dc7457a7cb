//! TLS over a connection to a server, by rustls: what is checked of its certificate, and the words for what was wrong.
//! A build without the feature `tls` refuses instead.

use std::path::Path;

use serde::{Deserialize, Serialize};

/// What of a server's certificate is checked, in libpq's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tls {
    /// `disable`: everything goes in clear.
    Off,
    /// `require`: nothing; whoever is in between can read along by answering himself.
    Encrypted,
    /// `verify-ca`: who signed it.
    Authority,
    /// `verify-full`: who signed it, and that it is of the host that was asked for.
    Full,
}

/// What is asked of TLS to a server.
// A build without TLS asks nothing.
#[cfg_attr(not(feature = "tls"), allow(dead_code))]
pub(in crate::db) struct Asked<'a> {
    pub(in crate::db) tls: Tls,
    /// Certificates of the authorities that are trusted; the system's where it is none.
    pub(in crate::db) authorities: Option<&'a Path>,
    pub(in crate::db) host: &'a str,
    pub(in crate::db) trust: &'a Trust,
    /// The server, as errors name it.
    pub(in crate::db) whom: &'a dyn std::fmt::Display,
}

#[cfg(not(feature = "tls"))]
pub(in crate::db) use without::*;

#[cfg(feature = "tls")]
pub(in crate::db) use with::*;

#[cfg(not(feature = "tls"))]
mod without {
    use std::io;
    use std::net::TcpStream;

    use super::super::{Result, SqlError};
    use super::Asked;

    /// What is trusted: nothing.
    #[derive(Debug, Clone, Default)]
    pub(in crate::db) struct Trust {}

    /// What cannot be made.
    pub(in crate::db) enum Channel {}

    impl Channel {
        pub(in crate::db) fn open(
            _: &Asked<'_>,
            _: &TcpStream,
            _: &mut dyn FnMut() -> io::Result<()>,
        ) -> Result<Self> {
            Err(SqlError::here(
                "this fathom was built without TLS: cargo build --release -p fathom --features tls"
                    .into(),
            ))
        }
        pub(in crate::db) fn read(
            &mut self,
            _: &TcpStream,
            _: &mut [u8],
            _: &mut dyn FnMut() -> io::Result<()>,
        ) -> io::Result<usize> {
            match *self {}
        }
        pub(in crate::db) fn write(&mut self, _: &TcpStream, _: &[u8]) -> io::Result<usize> {
            match *self {}
        }
        pub(in crate::db) fn binding(&self) -> Option<Vec<u8>> {
            match *self {}
        }
    }
}

#[cfg(feature = "tls")]
mod with {
    use std::io::{self, Read, Write};
    use std::net::TcpStream;
    use std::path::Path;
    use std::sync::{Arc, OnceLock};

    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
    use rustls::crypto::{CryptoProvider, ring};
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
    use rustls::{
        CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, Error,
        RootCertStore, SignatureScheme,
    };
    use sha2::{Digest, Sha256, Sha384, Sha512};

    use super::super::{Result, SqlError};
    use super::{Asked, Tls};

    /// What is trusted of a server, read once for all connections to it; a session is taken up again where it can be.
    #[derive(Debug, Clone, Default)]
    pub(in crate::db) struct Trust(Arc<OnceLock<Arc<ClientConfig>>>);

    /// Where systems keep the authorities that they trust: Debian, Fedora, openSUSE, Alpine.
    const SYSTEM: [&str; 4] = [
        "/etc/ssl/certs/ca-certificates.crt",
        "/etc/pki/tls/certs/ca-bundle.crt",
        "/etc/ssl/ca-bundle.pem",
        "/etc/ssl/cert.pem",
    ];

    fn here(what: String) -> SqlError {
        SqlError::here(what)
    }

    fn authorities(file: Option<&Path>) -> Result<RootCertStore> {
        let found = SYSTEM.iter().map(Path::new).find(|p| p.exists());
        let file = file.or(found).ok_or_else(|| {
            here("no authorities are known here that could have signed the server's certificate: name theirs with sslrootcert (ssl-ca), or install ca-certificates".into())
        })?;
        let name = file.display();
        let all = CertificateDer::pem_file_iter(file)
            .map_err(|e| here(format!("{name}: cannot be read as certificates: {e}")))?;
        let mut roots = RootCertStore::empty();
        // A system's list has some that are too old to be understood.
        let (taken, _) = roots.add_parsable_certificates(all.flatten());
        match taken {
            0 => Err(here(format!(
                "{name}: has no certificate of an authority: expected PEM"
            ))),
            _ => Ok(roots),
        }
    }

    /// Checks less than rustls does: not the name, or nothing but that the server has the key of what it shows.
    #[derive(Debug)]
    struct Lenient {
        provider: Arc<CryptoProvider>,
        signed: Option<Arc<WebPkiServerVerifier>>,
    }

    impl ServerCertVerifier for Lenient {
        fn verify_server_cert(
            &self,
            certificate: &CertificateDer<'_>,
            others: &[CertificateDer<'_>],
            name: &ServerName<'_>,
            ocsp: &[u8],
            now: UnixTime,
        ) -> std::result::Result<ServerCertVerified, Error> {
            let Some(signed) = &self.signed else {
                return Ok(ServerCertVerified::assertion());
            };
            match signed.verify_server_cert(certificate, others, name, ocsp, now) {
                // The name is asked last: everything else is right.
                Err(Error::InvalidCertificate(
                    CertificateError::NotValidForName
                    | CertificateError::NotValidForNameContext { .. },
                )) => Ok(ServerCertVerified::assertion()),
                other => other,
            }
        }
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> std::result::Result<HandshakeSignatureValid, Error> {
            let known = &self.provider.signature_verification_algorithms;
            rustls::crypto::verify_tls12_signature(message, certificate, signed, known)
        }
        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> std::result::Result<HandshakeSignatureValid, Error> {
            let known = &self.provider.signature_verification_algorithms;
            rustls::crypto::verify_tls13_signature(message, certificate, signed, known)
        }
        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            let known = &self.provider.signature_verification_algorithms;
            known.supported_schemes()
        }
    }

    fn config(asked: &Asked<'_>) -> Result<ClientConfig> {
        let provider = Arc::new(ring::default_provider());
        let wrong = |e: String| here(format!("{}: TLS cannot be set up: {e}", asked.whom));
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|e| wrong(e.to_string()))?;
        let signed = match asked.tls {
            Tls::Encrypted | Tls::Off => None,
            Tls::Authority | Tls::Full => {
                let roots = Arc::new(authorities(asked.authorities)?);
                let all = WebPkiServerVerifier::builder_with_provider(roots, provider.clone());
                Some(all.build().map_err(|e| wrong(e.to_string()))?)
            }
        };
        Ok(match (asked.tls, signed) {
            (Tls::Full, Some(signed)) => builder.with_webpki_verifier(signed).with_no_client_auth(),
            (_, signed) => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Lenient { provider, signed }))
                .with_no_client_auth(),
        })
    }

    /// A connection with TLS; the bytes go over a socket that the caller has.
    pub(in crate::db) struct Channel(Box<ClientConnection>);

    impl Channel {
        /// Shakes hands; `wait` waits until there are bytes to read.
        pub(in crate::db) fn open(
            asked: &Asked<'_>,
            mut socket: &TcpStream,
            wait: &mut dyn FnMut() -> io::Result<()>,
        ) -> Result<Self> {
            let (host, whom) = (asked.host, asked.whom);
            let trust = match asked.trust.0.get() {
                Some(trust) => trust.clone(),
                None => {
                    let made = Arc::new(config(asked)?);
                    asked.trust.0.get_or_init(|| made).clone()
                }
            };
            let name = ServerName::try_from(host.to_owned())
                .map_err(|_| here(format!("{host} is no name of a host")))?;
            let mut tls =
                ClientConnection::new(trust, name).map_err(|e| here(format!("{whom}: {e}")))?;
            while tls.is_handshaking() {
                let mut step = || -> io::Result<()> {
                    while tls.wants_write() {
                        tls.write_tls(&mut socket)?;
                    }
                    if tls.is_handshaking() && tls.wants_read() {
                        wait()?;
                        if tls.read_tls(&mut socket)? == 0 {
                            return Err(io::ErrorKind::UnexpectedEof.into());
                        }
                        if let Err(e) = tls.process_new_packets() {
                            // The server is told why.
                            let _ = tls.write_tls(&mut socket);
                            return Err(io::Error::other(e));
                        }
                    }
                    Ok(())
                };
                step().map_err(|e| here(format!("{whom}: {}", in_words(&e, host))))?;
            }
            Ok(Self(Box::new(tls)))
        }

        pub(in crate::db) fn read(
            &mut self,
            mut socket: &TcpStream,
            buffer: &mut [u8],
            wait: &mut dyn FnMut() -> io::Result<()>,
        ) -> io::Result<usize> {
            loop {
                match self.0.reader().read(buffer) {
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                    other => return other,
                }
                wait()?;
                self.0.read_tls(&mut socket)?;
                self.0.process_new_packets().map_err(io::Error::other)?;
                // A new key of the server's wants an answer.
                self.flush(socket)?;
            }
        }

        pub(in crate::db) fn write(
            &mut self,
            socket: &TcpStream,
            bytes: &[u8],
        ) -> io::Result<usize> {
            let taken = self.0.writer().write(bytes)?;
            self.flush(socket)?;
            Ok(taken)
        }

        fn flush(&mut self, mut socket: &TcpStream) -> io::Result<()> {
            while self.0.wants_write() {
                self.0.write_tls(&mut socket)?;
            }
            Ok(())
        }

        /// `tls-server-end-point` (RFC 5929, section 4.1): the server's certificate by the hash that signed it, SHA-256 in
        /// place of older ones; `None` where that is none of these.
        pub(in crate::db) fn binding(&self) -> Option<Vec<u8>> {
            let certificate = self.0.peer_certificates()?.first()?;
            let name = signature(certificate)?;
            // sha*WithRSAEncryption is 1.2.840.113549.1.1.N, ecdsa-with-SHA* 1.2.840.10045.4.3.N.
            let hash = match name {
                [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, n] => *n,
                [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, n] => n + 9,
                _ => return None,
            };
            Some(match hash {
                4 | 5 | 10 | 11 => Sha256::digest(certificate).to_vec(),
                12 => Sha384::digest(certificate).to_vec(),
                13 => Sha512::digest(certificate).to_vec(),
                _ => return None,
            })
        }
    }

    /// The identifier of the algorithm that signed a certificate: `SEQUENCE { tbs, SEQUENCE { OID, … }, … }`.
    fn signature(certificate: &[u8]) -> Option<&[u8]> {
        /// Contents of the first element, and what follows it.
        fn element(der: &[u8]) -> Option<(&[u8], &[u8])> {
            let (length, rest) = match *der.get(1)? {
                n @ ..128 => (usize::from(n), der.get(2..)?),
                n => {
                    let (bytes, rest) = der.get(2..)?.split_at_checked(usize::from(n & 0x7f))?;
                    let length = bytes.iter().take(4);
                    (length.fold(0, |l, b| l << 8 | usize::from(*b)), rest)
                }
            };
            rest.split_at_checked(length)
        }
        let (whole, _) = element(certificate)?;
        let (_, after) = element(whole)?;
        let (algorithm, _) = element(after)?;
        Some(element(algorithm)?.0)
    }

    /// Why a handshake failed, and what to do.
    fn in_words(error: &io::Error, host: &str) -> String {
        let of = error.get_ref().and_then(|e| e.downcast_ref::<Error>());
        let Some(Error::InvalidCertificate(wrong)) = of else {
            return format!("TLS was not agreed on: {error}");
        };
        match wrong {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "the server's certificate has expired: renew it; sslmode=require asks for none, and anybody in between could read along".into()
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "the server's certificate is not yet valid: is this machine's clock right?".into()
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                format!("the server's certificate is of other hosts than {host}: use a name that it has, or sslmode=verify-ca, which asks for none")
            }
            CertificateError::UnknownIssuer => {
                "nobody who is trusted here has signed the server's certificate: name the authority's file with sslrootcert=FILE (ssl-ca=FILE) in the address".into()
            }
            other => format!("the server's certificate is not accepted: {other:?}"),
        }
    }
}
