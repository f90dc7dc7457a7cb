//! What the database labs have in common: how large they are, and how they are measured.

use fathom_bench::cpu::CpuSetting;
use fathom_labs::db::DbOptions;
use fathom_labs::db::server::Server;
use fathom_telemetry::Bytes;

use super::measure::Measuring;
use crate::cli::{DbArgs, MeasureArgs, ServerArgs};
use crate::exit::{Failure, refused};

pub(super) fn measuring<'a>(name: &'static str, args: &'a MeasureArgs) -> Measuring<'a> {
    Measuring {
        name,
        args,
        modifies: true,
        cpu: CpuSetting::AsIs,
        recording: 0,
        on_hosts: false,
        on_zones: false,
    }
}

pub(super) fn options(args: &DbArgs) -> DbOptions {
    DbOptions {
        time: args.measure.length.time,
        seed: args.measure.seed,
        embedded: !args.no_embedded,
    }
}

/// The scratch file of the embedded tree must hold a tree and the raw device.
const SCRATCH_MIN: u64 = 64 << 20;

/// How many rows, warehouses or keys of `each` bytes the database has: those that were typed, those that --size holds, or
/// the usual number. The scratch file of the embedded tree is as large as the database.
pub(super) fn sized(
    args: &DbArgs,
    typed: Option<u64>,
    usual: u64,
    (each, one): (u64, &str),
) -> Result<(u64, MeasureArgs), Failure> {
    let mut measure = args.measure.clone();
    let refuse = |why: String| Err(refused(anyhow::anyhow!("--size: {why}")));
    let count = match measure.size {
        Some(size) if size.0 < SCRATCH_MIN && !args.no_embedded => {
            return refuse("the embedded tree and the raw device need 64m or more".into());
        }
        Some(size) if size.0 < each => {
            return refuse(format!("{size} is too small: {one} has {}", Bytes(each)));
        }
        Some(size) => size.0 / each,
        None => typed.unwrap_or(usual),
    };
    if args.no_embedded {
        measure.size = Some(Bytes(SCRATCH_MIN));
    } else if typed.is_some() {
        measure.size = Some(Bytes((count * each).max(SCRATCH_MIN)));
    }
    Ok((count, measure))
}

/// The server of the user's, with its password.
pub(super) fn yours(args: &ServerArgs) -> Result<Option<Server>, Failure> {
    let by_socket = args.socket.as_deref().map(Server::of_socket);
    let server = args.server.clone().or(by_socket);
    let Some(server) = server else {
        return match args.password_file {
            Some(_) => Err(refused(anyhow::anyhow!(
                "--password-file is that of a server of yours: name it with --server"
            ))),
            None => Ok(None),
        };
    };
    let file = args.password_file.as_deref();
    let server = server.find_password(file);
    server
        .map(Some)
        .map_err(|e| refused(anyhow::anyhow!("{e}")))
}
