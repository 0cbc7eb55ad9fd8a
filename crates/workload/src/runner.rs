//! A program as a [`Workload`]: its events, and native runs.

use crate::any::AnyProgram;
use crate::memory::{Backing, Digested, Native, Nothing};
use crate::native::{self, NativeRun};
use crate::opencl::device::DeviceChoice;
use crate::opencl::outcome::GpuOutcome;
use crate::pages::NativePages;
use crate::parameters::{self, Declared, Parameters};
use crate::program::Program;
use crate::source::StreamSource;
use crate::thread::Touch;
use crate::{Workload, WorkloadError, WorkloadInfo};
use terrace_trace::{EventSource, Header};

/// A program as a [`Workload`].
struct Runner {
    program: Box<dyn AnyProgram>,
    arguments: Vec<String>,
    seed: Option<u64>,
}

/// Reads the parameters of program `P`.
pub(crate) fn open<P: Program>(text: &str) -> Result<Box<dyn Workload>, WorkloadError> {
    let name = P::INFO.name;
    let given: P::Parameters = parameters::read(name, text)?;
    let program = P::new(&given).map_err(|problem| problem.of(name, &|key| given.get(key)))?;
    let seed = given.get("seed").and_then(|seed| seed.parse().ok());
    Ok(Box::new(Runner {
        program: Box::new(program),
        arguments: parameters::resolved(given.current()),
        seed,
    }))
}

impl Workload for Runner {
    fn info(&self) -> &'static WorkloadInfo {
        self.program.info()
    }

    fn header(&self) -> Header {
        Header {
            program: self.info().name.to_owned(),
            arguments: self.arguments.clone(),
            origin: "workload".to_owned(),
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            seed: self.seed,
            expected_accesses: Some(self.accesses()),
            ..Header::default()
        }
    }

    fn threads(&self) -> u32 {
        self.program.threads()
    }

    fn accesses(&self) -> u64 {
        self.program.kernel_accesses() + Touch::accesses(self.program.layout())
    }

    fn footprint(&self) -> u64 {
        self.program.layout().footprint()
    }

    fn source(&self) -> Box<dyn EventSource> {
        if self.program.needs_contents() {
            Box::new(StreamSource::new(self.program.copy(), self.header(), |program| {
                let backing = Backing::new(program.layout().window_bytes())?.with_huge_pages();
                program.prepare(&backing);
                Ok(backing)
            }))
        } else {
            Box::new(StreamSource::new(self.program.copy(), self.header(), |_| Ok(Nothing)))
        }
    }

    fn run_native(&self, pages: NativePages) -> Result<NativeRun, WorkloadError> {
        let backing = native::prepare(&*self.program, pages)?;
        Ok(native::run::<Native>(&*self.program, &backing).0)
    }

    fn run_on_gpu(&self, device: &DeviceChoice) -> Result<GpuOutcome, WorkloadError> {
        self.program.run_in_opencl(device)
    }

    fn native_digests(&self, pages: NativePages) -> Result<Vec<u64>, WorkloadError> {
        let backing = native::prepare(&*self.program, pages)?;
        let (_, threads) = native::run::<Digested<Native>>(&*self.program, &backing);
        Ok(threads.iter().map(|thread| thread.digest.value()).collect())
    }
}
