//! `ioengine=http`: objects of a WebDAV, Swift or S3 server. A write puts one, a read gets it, a trim deletes it, as in fio's
//! engines/http.c; a read of one that is not there gives zeros.

use std::io::Read;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use fathom_io::load::{Performer, PilotIo};
use fathom_telemetry::{Op, say, utc};
use hmac::{Hmac, Mac};
use md5::{Digest, Md5};
use rustix::io::Errno;
use sha2::Sha256;
use ureq::http::{Method, Response};
use ureq::{Agent, Body};

use super::space::whole;
use crate::FioError;
use crate::section::Section;

/// A server that cannot be reached within this time fails the I/O; curl, which fio uses, waits as long.
const CONNECT: Duration = Duration::from_secs(300);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    WebDav,
    Swift,
    S3,
}

/// A job's server and objects, as its section describes them.
#[derive(Debug)]
pub(crate) struct Http {
    mode: Mode,
    /// `http://` or `https://`.
    scheme: &'static str,
    #[cfg_attr(not(feature = "https"), allow(dead_code))]
    insecure: bool,
    host: String,
    /// What names of objects begin with, or what they are: one for each file.
    paths: Vec<String>,
    /// One object for each file, of which reads get parts; otherwise one for each block.
    ranges: bool,
    /// Name and password.
    basic: Option<String>,
    token: String,
    s3: S3,
}

/// How requests to S3 are signed.
#[derive(Debug, Default)]
struct S3 {
    secret: String,
    id: String,
    region: String,
    security_token: Option<String>,
    customer_key: Option<String>,
    customer_algorithm: String,
    storage_class: String,
}

impl Http {
    pub(super) fn of(s: &Section, paths: Vec<String>) -> Result<Self, FioError> {
        let text = |name: &str, default: &str| s.get(name).unwrap_or(default).to_owned();
        let given = |name: &str| s.text(name).map(str::to_owned);
        let host = text("http_host", "localhost");
        if host.is_empty() || host.contains('/') {
            return Err(s.invalid(
                "http_host",
                "expected a host, or HOST:PORT, without http://",
            ));
        }
        if paths.iter().any(|p| !p.starts_with('/')) {
            return Err(s.invalid(
                "filename",
                "names of objects are paths on the server: begin them with /",
            ));
        }
        let (scheme, insecure) = match s.get("https").unwrap_or("off") {
            "on" => ("https://", false),
            "insecure" => ("https://", true),
            _ => ("http://", false),
        };
        if scheme == "https://" && cfg!(not(feature = "https")) {
            return Err(FioError::unsupported(
                &s.name,
                "https",
                "this fathom was built without TLS: cargo build --release --features https",
            ));
        }
        let customer_key = given("http_s3_sse_customer_key");
        if customer_key.as_ref().is_some_and(|k| k.len() > 32) {
            return Err(s.invalid("http_s3_sse_customer_key", "expected at most 32 characters"));
        }
        let basic = given("http_user").zip(given("http_pass"));
        Ok(Self {
            mode: match s.get("http_mode").unwrap_or("webdav") {
                "s3" => Mode::S3,
                "swift" => Mode::Swift,
                _ => Mode::WebDav,
            },
            scheme,
            insecure,
            host,
            paths,
            ranges: s.get("http_object_mode") == Some("range"),
            basic: basic.map(|(user, pass)| {
                format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{pass}")))
            }),
            token: text("http_swift_auth_token", ""),
            s3: S3 {
                secret: text("http_s3_key", ""),
                id: text("http_s3_keyid", ""),
                region: text("http_s3_region", "us-east-1"),
                security_token: given("http_s3_security_token"),
                customer_key,
                customer_algorithm: text("http_s3_sse_customer_algorithm", "AES256"),
                storage_class: text("http_s3_storage_class", "STANDARD"),
            },
        })
    }

    /// What its objects' names begin with, with the host.
    pub(crate) fn objects(&self) -> impl Iterator<Item = String> {
        self.paths.iter().map(|p| format!("{}{p}", self.host))
    }

    /// A thread's connection.
    pub(super) fn open(self: std::sync::Arc<Self>) -> Client {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT))
            .user_agent("fathom");
        #[cfg(feature = "https")]
        let config = config.tls_config(
            ureq::tls::TlsConfig::builder()
                .disable_verification(self.insecure)
                .build(),
        );
        Client {
            agent: config.build().into(),
            http: self,
            failed: false,
        }
    }

    fn path(&self, io: &PilotIo) -> Option<String> {
        let name = self.paths.get(usize::from(io.file))?;
        Some(if self.ranges {
            name.clone()
        } else {
            format!("{name}_{}_{}", io.offset, io.len)
        })
    }

    /// What a request carries beside its body.
    fn headers(&self, method: &Method, path: &str, body: &[u8]) -> Vec<(&'static str, String)> {
        let mut all = Vec::new();
        if let Some(basic) = &self.basic {
            all.push(("authorization", basic.clone()));
        }
        match self.mode {
            Mode::WebDav => {}
            Mode::Swift => {
                if method == Method::PUT {
                    all.push(("etag", hex(&Md5::digest(body))));
                }
                all.push(("x-auth-token", self.token.clone()));
            }
            Mode::S3 => {
                let now = utc::stamp(SystemTime::now());
                all.extend(self.s3.headers(method, &self.host, path, body, &now));
            }
        }
        all
    }
}

impl S3 {
    /// The headers of AWS's signature, version 4, the signature last.
    fn headers(
        &self,
        method: &Method,
        host: &str,
        path: &str,
        body: &[u8],
        now: &str,
    ) -> Vec<(&'static str, String)> {
        let digest = hex(&Sha256::digest(body));
        let mut signed = vec![
            ("host", host.to_owned()),
            ("x-amz-content-sha256", digest),
            ("x-amz-date", now.to_owned()),
        ];
        if let Some(key) = &self.customer_key {
            // As fio does it: of 32 bytes, what the option leaves is 0.
            let mut bytes = [0; 32];
            bytes[..key.len()].copy_from_slice(key.as_bytes());
            let head = "x-amz-server-side-encryption-customer-algorithm";
            signed.push((head, self.customer_algorithm.clone()));
            let head = "x-amz-server-side-encryption-customer-key";
            signed.push((head, BASE64_STANDARD.encode(bytes)));
            let head = "x-amz-server-side-encryption-customer-key-md5";
            signed.push((head, BASE64_STANDARD.encode(Md5::digest(bytes))));
        }
        if let Some(token) = &self.security_token {
            signed.push(("x-amz-security-token", token.clone()));
        }
        signed.push(("x-amz-storage-class", self.storage_class.clone()));
        let authorization = self.authorization(method, path, &signed);
        signed.remove(0); // the client sends it
        signed.push(("authorization", authorization));
        signed
    }

    /// The signature over these headers, which are sorted by name; those of the digest and of the time are among them.
    /// (docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html)
    fn authorization(
        &self,
        method: &Method,
        path: &str,
        headers: &[(&'static str, String)],
    ) -> String {
        let value = |name: &str| {
            let found = headers.iter().find(|h| h.0 == name);
            found.map_or("", |h| h.1.as_str())
        };
        let now = value("x-amz-date");
        let day = &now[..now.len().min(8)];
        let names: Vec<&str> = headers.iter().map(|h| h.0).collect();
        let names = names.join(";");
        let lines: String = headers.iter().map(|(n, v)| format!("{n}:{v}\n")).collect();
        let digest = value("x-amz-content-sha256");
        let request = format!("{method}\n{}\n\n{lines}\n{names}\n{digest}", encoded(path));
        let scope = format!("{day}/{}/s3/aws4_request", self.region);
        let digest = hex(&Sha256::digest(request));
        let text = format!("AWS4-HMAC-SHA256\n{now}\n{scope}\n{digest}");
        let mut key = format!("AWS4{}", self.secret).into_bytes();
        for part in [day, &self.region, "s3", "aws4_request", &text] {
            key = mac(&key, part);
        }
        format!(
            "AWS4-HMAC-SHA256 Credential={}/{scope},SignedHeaders={names},Signature={}",
            self.id,
            hex(&key)
        )
    }
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    // A key of any length will do.
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap_or_else(|_| unreachable!());
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// A path as it is signed.
fn encoded(path: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_-~./".contains(&b);
    path.bytes()
        .map(|b| match plain(b) {
            true => char::from(b).to_string(),
            false => format!("%{b:02X}"),
        })
        .collect()
}

/// A thread's connection.
pub(super) struct Client {
    http: std::sync::Arc<Http>,
    agent: Agent,
    /// Why was said already.
    failed: bool,
}

impl Client {
    fn send(&self, io: &PilotIo, path: &str, data: &[u8]) -> Result<Response<Body>, ureq::Error> {
        let method = match io.op {
            Op::Write => Method::PUT,
            Op::Trim => Method::DELETE,
            Op::Read | Op::Sync => Method::GET,
        };
        let body = if io.op == Op::Write { data } else { &[] };
        let mut request = ureq::http::Request::builder()
            .method(&method)
            .uri(format!("{}{}{path}", self.http.scheme, self.http.host));
        for (name, value) in self.http.headers(&method, path, body) {
            request = request.header(name, value);
        }
        if self.http.ranges && io.op == Op::Read {
            let last = io.offset + u64::from(io.len) - 1;
            request = request.header("range", format!("bytes={}-{last}", io.offset));
        }
        match io.op {
            Op::Write => self.agent.run(request.body(body)?),
            _ => self.agent.run(request.body(())?),
        }
    }

    /// Does it; the error is what the server or the way to it said.
    fn one(&self, io: &PilotIo, data: &mut [u8]) -> Result<(), String> {
        let path = self.http.path(io).ok_or("it has no such file")?;
        let said = |e: &dyn std::fmt::Display| format!("{}{path}: {e}", self.http.host);
        let mut answer = self.send(io, &path, data).map_err(|e| said(&e))?;
        let status = answer.status().as_u16();
        let fine = match io.op {
            Op::Write => (200..=204).contains(&status),
            Op::Trim => [200, 202, 204, 404].contains(&status),
            Op::Read => status == 200 || self.http.ranges && status == 206,
            Op::Sync => true,
        };
        let mut body = answer.body_mut().as_reader();
        if io.op == Op::Read && fine {
            let mut done = 0;
            while done < data.len() {
                match body.read(&mut data[done..]).map_err(|e| said(&e))? {
                    0 => break,
                    n => done += n,
                }
            }
            // What is longer than the block is none of this job's objects.
            let more = body.read(&mut [0; 1]).map_err(|e| said(&e))?;
            if more > 0 {
                return Err(said(&"the server sent more than the block"));
            }
            return Ok(());
        }
        // The connection is used again once the answer is read.
        std::io::copy(&mut body, &mut std::io::sink()).map_err(|e| said(&e))?;
        if io.op == Op::Read && status == 404 {
            data.fill(0);
            return Ok(());
        }
        if fine {
            Ok(())
        } else {
            Err(said(&format!("the server answered {status}")))
        }
    }
}

impl Performer for Client {
    fn perform(&mut self, io: &PilotIo, data: &mut [u8]) -> i64 {
        // There is nothing to be made durable that a PUT that was answered is not.
        if io.op == Op::Sync {
            return 0;
        }
        let len = (io.len as usize).min(data.len());
        let done = self.one(io, &mut data[..len]);
        super::result(match done {
            Ok(()) => Ok(whole(io)),
            Err(why) => {
                if !std::mem::replace(&mut self.failed, true) {
                    say!("fathom: {why}");
                }
                Err(Errno::IO)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// AWS's own example of a signed GET.
    #[test]
    fn requests_are_signed_as_aws_does_it() {
        let s3 = S3 {
            secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".into(),
            id: "AKIAIOSFODNN7EXAMPLE".into(),
            region: "us-east-1".into(),
            ..S3::default()
        };
        let headers = [
            ("host", "examplebucket.s3.amazonaws.com".to_owned()),
            ("range", "bytes=0-9".to_owned()),
            ("x-amz-content-sha256", hex(&Sha256::digest(b""))),
            ("x-amz-date", "20130524T000000Z".to_owned()),
        ];
        let signed = s3.authorization(&Method::GET, "/test.txt", &headers);
        assert_eq!(
            signed,
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,\
             SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,\
             Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
        );
    }

    #[test]
    fn paths_are_encoded_but_for_slashes() {
        assert_eq!(encoded("/a b/ü~_-.%"), "/a%20b/%C3%BC~_-.%25");
    }
}
