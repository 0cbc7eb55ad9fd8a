//! What a service of systemd has to do with it: priorities of log lines, notifications, and the control groups of others.

mod notify;
mod priority;
mod service;

pub use notify::Notifier;
pub use priority::Priority;
pub use service::Systemctl;
