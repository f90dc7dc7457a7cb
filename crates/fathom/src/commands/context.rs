//! What a run's environment holds because it was asked for: the price, and what a cloud says of the machine.

use std::sync::OnceLock;

use fathom_host::Cloud;
use fathom_telemetry::{Price, say};
use serde_json::Value;

/// What was typed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Context {
    /// What the target costs.
    pub(crate) price: Option<Price>,
    /// Whether a cloud's metadata service may be asked.
    pub(crate) cloud: bool,
}

static TYPED: OnceLock<Context> = OnceLock::new();

/// Remembers it for the commands that measure.
pub(crate) fn remember(context: Context) {
    let _ = TYPED.set(context);
}

/// The price that was typed.
pub(super) fn price() -> Option<&'static Price> {
    TYPED.get()?.price.as_ref()
}

/// Adds it to an environment. A cloud that does not answer is said, and its place stays empty.
pub(super) fn add(environment: &mut Value) {
    let Some(typed) = TYPED.get() else { return };
    if let Some(price) = &typed.price {
        price.put(environment);
    }
    let Some(all) = environment.as_object_mut().filter(|_| typed.cloud) else {
        return;
    };
    let told = Cloud::ask().and_then(|c| serde_json::to_value(c).map_err(|e| e.to_string()));
    match told {
        Ok(told) => drop(all.insert("cloud".into(), told)),
        Err(why) => say!("fathom: --cloud: {why}; the run goes on without it"),
    }
}
