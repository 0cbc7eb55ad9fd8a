//! Timing and organisation of a device.

use serde::{Deserialize, Serialize};

/// Placeholder shape; see the device room.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceParameters {}
