//! The command line from outside: the real binary on real files and loop devices.
//!
//! One program for all of it, so that it is linked once and its tests can take turns.

mod app;
mod beside;
mod common;
mod compare;
mod compress;
mod conditioning;
mod context;
mod contract;
mod db;
mod db_failures;
mod device_errors;
mod devices_and_reports;
mod doctor;
mod false_numbers;
mod first_steps;
mod fleet;
mod fleet_commands;
mod full;
mod hostile;
mod interruption;
mod killed_labs;
mod kills;
mod labs;
mod models;
mod outputs;
mod postgres;
mod presented;
mod query;
mod replay;
mod run;
mod runs;
mod safety;
mod schema;
mod seeds;
mod served;
mod simulated;
mod stack;
mod survey;
mod tune;
mod usage;
mod view;
mod watch;
mod without_io_uring;
mod zfs;
