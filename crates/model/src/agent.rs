//! Agents: what accesses memory.

use serde::{Deserialize, Serialize};

/// What runs a stream of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum AgentKind {
    /// A CPU thread.
    #[default]
    Cpu,
    /// A GPU's warps.
    Gpu,
}

/// The processor or device that accesses memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Agent {
    /// A CPU, by the number of its node.
    Cpu(u16),
    /// A GPU, by its number.
    Gpu(u16),
}

impl Default for Agent {
    fn default() -> Agent {
        Agent::Cpu(0)
    }
}
