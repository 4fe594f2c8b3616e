//! The replacement for the metrics if the crate is built without the feature `metrics`: there are
//! none.

use super::config::MetricsConfig;
use super::services::Counted;
use std::net::SocketAddr;
use superpage_linux::Error;

/// No metrics.
#[derive(Debug)]
pub struct Metrics(());

impl Metrics {
    /// Does nothing.
    ///
    /// # Errors
    /// [`Error::Unable`] if metrics are configured.
    pub fn start(config: &MetricsConfig, _: Vec<Counted>) -> Result<Metrics, Error> {
        if *config == MetricsConfig::default() {
            Ok(Metrics(()))
        } else {
            Err(Error::Unable(
                "this superpage was built without metrics: build it with the feature `metrics`, or ask for none".into(),
            ))
        }
    }

    /// None.
    pub fn address(&self) -> Option<SocketAddr> {
        None
    }

    /// Does nothing.
    pub fn update(&self, _: Vec<Counted>) {}

    /// Writes nothing.
    ///
    /// # Errors
    /// None.
    pub fn write(&self) -> Result<(), Error> {
        Ok(())
    }
}
