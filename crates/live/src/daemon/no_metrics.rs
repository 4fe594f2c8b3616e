//! What stands for the metrics where the crate is built without the feature `metrics`: there are none.

use super::config::MetricsConfig;
use std::net::SocketAddr;
use superpage_linux::Error;
use superpage_linux::promote::Counters;

/// No metrics.
#[derive(Debug)]
pub struct Metrics(());

impl Metrics {
    /// Nothing.
    ///
    /// # Errors
    /// [`Error::Unable`] if there shall be metrics.
    pub fn start(config: &MetricsConfig, _: Counters) -> Result<Metrics, Error> {
        match *config == MetricsConfig::default() {
            true => Ok(Metrics(())),
            false => Err(Error::Unable(
                "this superpage was built without metrics: build it with the feature `metrics`, or ask for none".into(),
            )),
        }
    }

    /// None.
    pub fn address(&self) -> Option<SocketAddr> {
        None
    }

    /// Nobody is told.
    pub fn update(&self, _: Counters) {}

    /// Nothing is written.
    ///
    /// # Errors
    /// None.
    pub fn write(&self) -> Result<(), Error> {
        Ok(())
    }
}
