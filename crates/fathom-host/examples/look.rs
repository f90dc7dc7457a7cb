//! Prints what fathom knows about this machine: `cargo run -p fathom-host --example look [PATH]`.

use std::path::PathBuf;

use fathom_host::{Access, Environment, block_devices, probe_target};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let target = std::env::args().nth(1).map(PathBuf::from);
    for device in block_devices()? {
        let uses: Vec<String> = device.uses.iter().map(ToString::to_string).collect();
        println!(
            "{} {} bytes: {}",
            device.path.display(),
            device.size_bytes,
            uses.join(", ")
        );
        match &device.verdict.write {
            Access::Refused { message, .. } => println!("    {message}"),
            other => println!("    {other:?}"),
        }
    }
    if let Some(path) = &target {
        println!("{}", serde_json::to_string_pretty(&probe_target(path)?)?);
    }
    let environment = Environment::collect(target.as_deref());
    println!("{}", serde_json::to_string_pretty(&environment)?);
    Ok(())
}
