//! Real drivers over emulated devices, in guests: NVMe with namespaces, SCSI units, zones, maps, exports. What must not be
//! written keeps every byte of its image on this machine; what may be written was named by a word that names nothing else.

#[path = "devices_in_guest/commands.rs"]
mod commands;
#[path = "../../fathom-labs/tests/common/mod.rs"]
mod common;
#[path = "devices_in_guest/dead.rs"]
mod dead;
#[path = "devices_in_guest/faults.rs"]
mod faults;
#[path = "devices_in_guest/heads.rs"]
mod heads;
#[path = "devices_in_guest/health.rs"]
mod health;
#[path = "devices_in_guest/latencies.rs"]
mod latencies;
#[path = "devices_in_guest/names.rs"]
mod names;
#[path = "devices_in_guest/plugged.rs"]
mod plugged;
#[path = "devices_in_guest/purge.rs"]
mod purge;
#[path = "devices_in_guest/rig.rs"]
mod rig;
#[path = "devices_in_guest/uses.rs"]
mod uses;
#[path = "devices_in_guest/zones.rs"]
mod zones;
