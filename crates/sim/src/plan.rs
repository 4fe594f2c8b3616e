//! Plans of experiments: a grid of machines, policies and hosts, completely checked before anything
//! runs.

use crate::setup::{self, only};
use crate::{Conditions, Error, KernelModel, Setup};
use std::sync::Arc;
use superpage_mmu::Machine;
use superpage_vm::Policy;

/// The simulations of a grid over one workload: every machine with every policy, `base` always
/// among them, and on every host.
///
/// `machines` are names of built-in ones or paths of machine files; `policies` are names, with
/// parameters after a colon. The policy parameter `sizes=64K+512K` leaves only those superpage
/// sizes, for that policy.
///
/// # Errors
/// A name is unknown or does not fit; nothing has run.
pub fn plan(machines: &[String], policies: &[String], conditions: &Conditions) -> Result<Vec<Setup>, Error> {
    let machines = machines.iter().map(|name| crate::machine(name)).collect::<Result<Vec<_>, Error>>()?;
    plan_machines(&machines, policies, conditions)
}

/// Like [`plan`], for machines that are already loaded.
///
/// # Errors
/// As for [`plan`], or two machines have the same name.
pub fn plan_machines(machines: &[Machine], policies: &[String], conditions: &Conditions) -> Result<Vec<Setup>, Error> {
    let named = policies.iter().map(|text| crate::named(text)).collect::<Result<Vec<_>, Error>>()?;
    plan_policies(machines, &named, conditions)
}

/// Like [`plan_machines`], for policies that need not be built-in ones, such as [`Policy::of`]
/// returns, each with its name in rows.
///
/// # Errors
/// As for [`plan_machines`].
pub fn plan_policies(machines: &[Machine], policies: &[Named], conditions: &Conditions) -> Result<Vec<Setup>, Error> {
    let hosts = conditions.host_policies.iter().map(|text| crate::named(text)).collect::<Result<Vec<_>, Error>>()?;
    let hosts = if hosts.is_empty() { vec![None] } else { with_base(&hosts)?.into_iter().map(Some).collect() };
    on_hosts(machines, policies, &hosts, conditions)
}

/// Like [`plan_policies`], on a host with this policy alone: rows are compared with those of a plan
/// whose host has `base`. The hosts of the conditions are not used.
///
/// # Errors
/// As for [`plan_machines`].
pub fn plan_on_host(
    machines: &[Machine],
    policies: &[Named],
    host: &Named,
    conditions: &Conditions,
) -> Result<Vec<Setup>, Error> {
    on_hosts(machines, policies, &[Some(host.clone())], conditions)
}

/// A policy with its name in rows.
type Named = (String, Policy);

/// These policies, each once, and `base`, which every comparison names, even if nobody asked for
/// it.
fn with_base(policies: &[Named]) -> Result<Vec<Named>, Error> {
    let mut all: Vec<Named> = Vec::new();
    if !policies.iter().any(|(name, _)| name == "base") {
        all.push(crate::named("base")?);
    }
    for policy in policies {
        if !all.contains(policy) {
            all.push(policy.clone());
        }
    }
    Ok(all)
}

fn on_hosts(
    machines: &[Machine],
    policies: &[Named],
    hosts: &[Option<Named>],
    conditions: &Conditions,
) -> Result<Vec<Setup>, Error> {
    let policies = with_base(policies)?;
    // Rows are compared with `base` by their machine's name.
    for (i, machine) in machines.iter().enumerate() {
        if machines[..i].iter().any(|other| other.name == machine.name) {
            let problem = "give each its own `name`, and name none twice";
            return Err(Error::Usage(format!("two machines are called {}: {problem}", machine.name)));
        }
    }
    let kernels = conditions.kernels.iter().map(|text| KernelModel::named(text).map(Some));
    let mut kernels = kernels.collect::<Result<Vec<_>, Error>>()?;
    if kernels.is_empty() {
        kernels.push(None);
    }
    let mut setups = Vec::new();
    for machine in machines {
        let shared = Arc::new(machine.clone());
        let ladder = match &conditions.sizes {
            Some(sizes) => only(machine, &machine.ladder(), sizes)?,
            None => machine.ladder(),
        };
        for host in hosts {
            for (name, policy) in &policies {
                let ladder = setup::ladder(machine, &ladder, policy)?;
                let setup = Setup::new(Arc::clone(&shared), ladder, name, policy.clone(), conditions)?;
                for (setup, kernel) in std::iter::repeat_n(setup, kernels.len()).zip(&kernels) {
                    let setup = match kernel {
                        Some(kernel) => setup.with_kernel(kernel)?,
                        None => setup,
                    };
                    setups.push(match host {
                        Some(host) => setup.on_host(host)?,
                        None => setup,
                    });
                }
            }
        }
    }
    Ok(setups)
}
