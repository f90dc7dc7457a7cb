//! What a cloud says of this machine: instance, place, and the kinds of its volumes.
//!
//! The only place of fathom that asks anybody on a network about the machine, and it does so only when it was told to. The services answer
//! within milliseconds on a link-local address, so that what does not answer soon is not there.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use crate::root::{HostRoot, text};

/// Where all three services listen, without TLS and reachable from the machine itself only.
const SERVICE: &str = "169.254.169.254:80";
/// Another place to ask, for tests and for proxies of a container.
const SERVICE_VARIABLE: &str = "FATHOM_CLOUD_METADATA";
/// How long a connection, and how long one part of an answer may take.
const PATIENCE: Duration = Duration::from_millis(800);
/// Largest answer, bytes, and in how many parts it may come.
const ANSWER_MAX: usize = 1 << 20;
const PARTS_MAX: usize = 256;

/// A machine of a cloud.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cloud {
    /// `aws`, `gcp` or `azure`.
    pub provider: &'static str,
    /// `m5d.large`, `n2-standard-8`, `Standard_L8s_v3`.
    pub instance_type: Option<String>,
    /// Name or number of the instance.
    pub instance: Option<String>,
    /// Zone, else region.
    pub zone: Option<String>,
    /// Volumes that the service tells of.
    pub volumes: Vec<Volume>,
    /// What it does not tell.
    pub note: Option<String>,
}

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Volume {
    /// As the cloud calls it.
    pub name: String,
    /// `PERSISTENT`, `LOCAL-SSD`, `Premium_LRS`, `ebs`.
    pub kind: Option<String>,
    /// How it is attached, where that is told.
    pub interface: Option<String>,
}

/// How each service is asked.
const PROVIDERS: [(&str, &str, Asks); 3] = [
    ("Amazon", "aws", aws),
    ("Google", "gcp", gcp),
    ("Microsoft", "azure", azure),
];

/// Asks one service.
type Asks = fn(SocketAddr) -> Option<Cloud>;

impl Cloud {
    /// Asks the service of the cloud that the machine's maker names; where none is known, of each.
    ///
    /// # Errors
    /// A sentence where nobody answers.
    pub fn ask() -> Result<Self, String> {
        let typed = std::env::var(SERVICE_VARIABLE).ok();
        let at = typed.as_deref().unwrap_or(SERVICE);
        let at = at.parse().map_err(|_| {
            format!("{SERVICE_VARIABLE}={at}: expected an address and a port, such as {SERVICE}")
        })?;
        Self::ask_at(&HostRoot::real(), at)
    }

    fn ask_at(root: &HostRoot, at: SocketAddr) -> Result<Self, String> {
        // Without a service each of three would be waited for.
        let open = TcpStream::connect_timeout(&at, PATIENCE);
        let nobody = || format!("no metadata service of AWS, Google or Azure answers at {at}");
        drop(open.map_err(|e| format!("{}: {e}", nobody()))?);
        let maker = text(&root.sys.join("class/dmi/id/sys_vendor")).unwrap_or_default();
        let known = PROVIDERS.iter().find(|p| maker.contains(p.0));
        let all = known.map_or(&PROVIDERS[..], std::slice::from_ref);
        all.iter().find_map(|p| (p.2)(at)).ok_or_else(nobody)
    }
}

fn aws(at: SocketAddr) -> Option<Cloud> {
    let token = "X-aws-ec2-metadata-token";
    let ask = "X-aws-ec2-metadata-token-ttl-seconds: 60";
    let session = http(at, "PUT", "/latest/api/token", ask)?;
    let with = format!("{token}: {}", session.trim());
    let get = |what: &str| {
        let path = format!("/latest/meta-data/{what}");
        http(at, "GET", &path, &with).map(|t| t.trim().to_owned())
    };
    let kind = |name: &str| {
        let local = name.starts_with("ephemeral");
        (if local { "instance store" } else { "ebs" }).to_owned()
    };
    let volumes = get("block-device-mapping/").unwrap_or_default();
    Some(Cloud {
        provider: "aws",
        instance_type: Some(get("instance-type")?),
        instance: get("instance-id"),
        zone: get("placement/availability-zone"),
        volumes: volumes
            .lines()
            .filter(|v| *v != "ami")
            .map(|v| Volume {
                name: v.to_owned(),
                kind: Some(kind(v)),
                interface: None,
            })
            .collect(),
        note: Some(
            "the type of an EBS volume (gp3, io2) is told by: aws ec2 describe-volumes".into(),
        ),
    })
}

fn gcp(at: SocketAddr) -> Option<Cloud> {
    let path = "/computeMetadata/v1/instance/?recursive=true";
    let all: Value =
        serde_json::from_str(&http(at, "GET", path, "Metadata-Flavor: Google")?).ok()?;
    // projects/1/machineTypes/n2-standard-8
    let last = |key: &str| Some(word(&all[key])?.rsplit('/').next()?.to_owned());
    let disks = all["disks"].as_array();
    Some(Cloud {
        provider: "gcp",
        instance_type: Some(last("machineType")?),
        instance: word(&all["name"]),
        zone: last("zone"),
        volumes: disks.map_or_else(Vec::new, |d| {
            d.iter()
                .filter_map(|d| {
                    Some(Volume {
                        name: word(&d["deviceName"])?,
                        kind: word(&d["type"]),
                        interface: word(&d["interface"]),
                    })
                })
                .collect()
        }),
        note: Some(
            "PERSISTENT is any kind of persistent disk or Hyperdisk; which one is told by: gcloud compute disks list".into(),
        ),
    })
}

fn azure(at: SocketAddr) -> Option<Cloud> {
    let path = "/metadata/instance?api-version=2021-02-01";
    let all: Value = serde_json::from_str(&http(at, "GET", path, "Metadata: true")?).ok()?;
    let machine = &all["compute"];
    let disks = &machine["storageProfile"];
    let data = disks["dataDisks"].as_array().into_iter().flatten();
    let volume = |d: &Value| {
        let lun = word(&d["lun"]).map(|l| format!("lun {l}"));
        Some(Volume {
            name: word(&d["name"])?,
            kind: word(&d["managedDisk"]["storageAccountType"]),
            interface: lun,
        })
    };
    let zone = word(&machine["zone"]).filter(|z| !z.is_empty());
    let place = word(&machine["location"]);
    Some(Cloud {
        provider: "azure",
        instance_type: Some(word(&machine["vmSize"])?),
        instance: word(&machine["name"]),
        zone: match (place, zone) {
            (Some(p), Some(z)) => Some(format!("{p} {z}")),
            (p, z) => p.or(z),
        },
        volumes: std::iter::once(&disks["osDisk"])
            .chain(data)
            .filter_map(volume)
            .collect(),
        note: None,
    })
}

/// Text, or a number as text.
fn word(v: &Value) -> Option<String> {
    match v {
        Value::String(s) => Some(s.clone()),
        Value::Number(n) => Some(n.to_string()),
        _ => None,
    }
}

/// The body of an answer that says 200. HTTP 1.0 ends it with the connection and knows no chunks.
fn http(at: SocketAddr, verb: &str, path: &str, header: &str) -> Option<String> {
    let mut link = TcpStream::connect_timeout(&at, PATIENCE).ok()?;
    link.set_read_timeout(Some(PATIENCE)).ok()?;
    link.set_write_timeout(Some(PATIENCE)).ok()?;
    let ask = format!(
        "{verb} {path} HTTP/1.0\r\nHost: {}\r\n{header}\r\nContent-Length: 0\r\n\r\n",
        at.ip()
    );
    link.write_all(ask.as_bytes()).ok()?;
    let (mut answer, mut part) = (Vec::new(), [0; 8192]);
    for _ in 0..PARTS_MAX {
        match link.read(&mut part).ok()? {
            0 => break,
            n if answer.len() + n > ANSWER_MAX => return None,
            n => answer.extend_from_slice(&part[..n]),
        }
    }
    let answer = String::from_utf8(answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split_whitespace().nth(1)?;
    (status == "200").then(|| body.to_owned())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;

    use super::*;

    /// A service that answers as `answers` says, by the beginning of the request and a header it has to have.
    fn service(answers: &'static [(&'static str, &'static str, &'static str)]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for link in listener.incoming() {
                let mut link = link.unwrap();
                let lines = BufReader::new(link.try_clone().unwrap()).lines();
                let head: Vec<String> = lines
                    .map_while(Result::ok)
                    .take_while(|l| !l.is_empty())
                    .collect();
                let fits = |a: &&(&str, &str, &str)| {
                    head.first().is_some_and(|l| l.starts_with(a.0))
                        && head.iter().any(|l| l.starts_with(a.1))
                };
                let answer = match answers.iter().find(fits) {
                    Some(a) => format!("HTTP/1.0 200 OK\r\nServer: stub\r\n\r\n{}", a.2),
                    None => "HTTP/1.0 404 Not Found\r\n\r\nnothing".into(),
                };
                let _ = link.write_all(answer.as_bytes());
            }
        });
        at
    }

    fn ask(maker: &str, at: SocketAddr) -> Result<Cloud, String> {
        let dir = tempfile::tempdir().unwrap();
        let dmi = dir.path().join("sys/class/dmi/id");
        std::fs::create_dir_all(&dmi).unwrap();
        std::fs::write(dmi.join("sys_vendor"), maker).unwrap();
        Cloud::ask_at(&HostRoot::under(dir.path()), at)
    }

    const TOKEN: &str = "X-aws-ec2-metadata-token: T";

    #[test]
    fn amazon_is_asked_with_a_token_and_tells_no_kinds_of_volumes() {
        let at = service(&[
            (
                "PUT /latest/api/token ",
                "X-aws-ec2-metadata-token-ttl",
                "T",
            ),
            ("GET /latest/meta-data/instance-type ", TOKEN, "m5d.large"),
            ("GET /latest/meta-data/instance-id ", TOKEN, "i-07"),
            (
                "GET /latest/meta-data/placement/availability-zone ",
                TOKEN,
                "eu-west-1a",
            ),
            (
                "GET /latest/meta-data/block-device-mapping/ ",
                TOKEN,
                "ami\nebs1\nephemeral0\nroot",
            ),
        ]);
        let cloud = ask("Amazon EC2", at).unwrap();
        assert_eq!(cloud.instance_type.as_deref(), Some("m5d.large"));
        assert_eq!(cloud.zone.as_deref(), Some("eu-west-1a"));
        let kinds: Vec<_> = cloud.volumes.iter().map(|v| v.kind.as_deref()).collect();
        assert_eq!(kinds, [Some("ebs"), Some("instance store"), Some("ebs")]);
        assert!(cloud.note.unwrap().contains("describe-volumes"));
    }

    #[test]
    fn google_and_azure_are_found_where_no_maker_is_known() {
        let google = service(&[(
            "GET /computeMetadata/v1/instance/",
            "Metadata-Flavor: Google",
            r#"{"machineType":"projects/1/machineTypes/n2-standard-8","zone":"projects/1/zones/europe-west4-a","name":"db1",
                "disks":[{"deviceName":"data","type":"LOCAL-SSD","interface":"NVME"}]}"#,
        )]);
        let cloud = ask("", google).unwrap();
        assert_eq!(
            (cloud.provider, cloud.zone.as_deref()),
            ("gcp", Some("europe-west4-a"))
        );
        assert_eq!(cloud.volumes[0].kind.as_deref(), Some("LOCAL-SSD"));
        let azure = service(&[(
            "GET /metadata/instance?api-version=",
            "Metadata: true",
            r#"{"compute":{"vmSize":"Standard_L8s_v3","location":"westeurope","zone":"2","name":"db2","storageProfile":{
                "osDisk":{"name":"os","managedDisk":{"storageAccountType":"Premium_LRS"}},
                "dataDisks":[{"name":"d0","lun":"0","managedDisk":{"storageAccountType":"UltraSSD_LRS"}}]}}}"#,
        )]);
        let cloud = ask("", azure).unwrap();
        assert_eq!(cloud.instance_type.as_deref(), Some("Standard_L8s_v3"));
        assert_eq!(cloud.zone.as_deref(), Some("westeurope 2"));
        let kinds: Vec<_> = cloud.volumes.iter().map(|v| v.kind.as_deref()).collect();
        assert_eq!(kinds, [Some("Premium_LRS"), Some("UltraSSD_LRS")]);
        assert_eq!(cloud.volumes[1].interface.as_deref(), Some("lun 0"));
    }

    #[test]
    fn where_nobody_or_somebody_else_answers_a_sentence_says_so() {
        let stranger = service(&[]);
        let said = ask("", stranger).unwrap_err();
        assert!(said.starts_with("no metadata service"), "{said}");
        let closed = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        assert!(ask("Google", closed).unwrap_err().contains("refused"));
    }
}
