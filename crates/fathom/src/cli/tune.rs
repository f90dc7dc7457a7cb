//! Arguments of `tune`.

use clap::Args;
use fathom_experiments::tune::TuneOptions;

use super::MeasureArgs;

/// Arguments of `tune`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  fathom tune                            settings below the current directory, tried and put back\n  fathom tune /mnt/data --dry-run        say time and bytes to be written, and stop\n  fathom tune /dev/nvme0n1 --only scheduler,queue-depth,idle-states\n  fathom tune /mnt/data --keep           leave in force what was proved\n  fathom tune sim:vm:optane-900p         which part of a model limits it\nEach setting is changed for the length of one pass and put back: also after a signal, a panic or a kill\n(fathom clean puts back what is left). Changing settings needs root; what may not be changed is said."
)]
pub(crate) struct TuneArgs {
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,
    #[command(flatten)]
    pub(crate) options: TuneOptions,
}

/// Arguments of the process that puts settings back.
#[derive(Args)]
pub(crate) struct KeepSettingsArgs {
    /// Whose settings
    pub(crate) pid: u32,
}
