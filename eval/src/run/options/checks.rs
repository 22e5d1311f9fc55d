//! Checks of which options of `run` go together.

use anyhow::ensure;
use fpcache_client::{ByteKeys, Plan, PlanChoice, Url};

use super::RunArgs;
use crate::data::KeyLengths;
use crate::run::transport::Transport;
use crate::systems::{SystemName, jakiro};

/// Most points of a timeline.
const MAX_POINTS: u64 = 10_000;

impl RunArgs {
    /// Checks combinations of options, before any work is done.
    pub fn validate(&self) -> anyhow::Result<()> {
        ensure!(
            self.transport.card().is_none(),
            "--transport {}: only `fpcache-eval run` measures in a model of network cards: use shm, tcp, unix, rdma or local here",
            self.transport.as_str()
        );
        ensure!(
            self.clients.is_none(),
            "--clients are those of modelled network cards: use --threads, or add --transport nic:cx6-100g"
        );
        self.model.refuse()?;
        if let Some(modelled) = self.systems.iter().find(|system| system.is_modelled()) {
            anyhow::bail!(
                "{} runs only in a model of network cards: add --transport nic:cx6-100g, or omit it",
                modelled.as_str()
            );
        }
        // Lengths of keys are known with the data.
        self.table(&KeyLengths::every(8)).validate::<ByteKeys>()?;
        self.cache.validate()?;
        self.validate_lookups()?;
        self.check_plan(self.plan)?;
        if let Some(url) = &self.url {
            let _: Url = url.parse()?;
            ensure!(
                self.systems.contains(&SystemName::Fpcache),
                "--url names a memory node, but fpcache is not among the systems: add it with --system"
            );
        }
        ensure!(
            !self.systems.contains(&SystemName::FpcacheClient) || self.systems.contains(&SystemName::Fpcache),
            "fpcache-client asks the memory node of fpcache, which is not among the systems: add it with --system"
        );
        ensure!(
            self.nodes == 1 || self.transport != Transport::Local,
            "--nodes: a memory node in this process has the whole table: omit --transport local"
        );
        ensure!(
            self.store.store_dir.is_none() || self.transport != Transport::Local,
            "--store-dir: only a memory node in a second process keeps its data: omit --transport local"
        );
        let of_second_process =
            |name: &SystemName| matches!(name, SystemName::Jakiro | SystemName::JakiroReply);
        ensure!(
            self.transport != Transport::Local || !self.systems.iter().any(of_second_process),
            "jakiro needs a second process: omit --transport local"
        );
        ensure!(
            self.threads <= u32::from(jakiro::CLIENTS) || !self.systems.iter().any(of_second_process),
            "--threads {}: jakiro's server has channels for {} threads: use as many at most, or omit it",
            self.threads,
            jakiro::CLIENTS
        );
        ensure!(
            self.cache.budget().is_none() || self.systems.contains(&SystemName::Fpcache),
            "--cache is a budget of fpcache, which is not among the systems: add it with --system"
        );
        Ok(())
    }

    /// Refuses a plan that needs the threads of a memory node where there are none to ask.
    ///
    /// # Errors
    /// Names the transports that there are.
    pub fn check_plan(&self, plan: PlanChoice) -> anyhow::Result<()> {
        let is_mapped = matches!(&*self.transport_in_words(), "shm" | "local");
        ensure!(
            plan != PlanChoice::Fixed(Plan::AtNode) || !is_mapped,
            "plan at-node: no thread of the memory node looks keys up over shared memory: add --transport tcp or unix, or choose \
             another plan"
        );
        Ok(())
    }

    fn validate_lookups(&self) -> anyhow::Result<()> {
        let lookups = self.lookups;
        ensure!(
            u64::from(self.batch) <= lookups,
            "a batch of {} keys exceeds the {lookups} lookups: use more lookups or a smaller batch",
            self.batch,
        );
        if let Some(every) = self.shift_every {
            ensure!(
                every < lookups,
                "--shift-every {every}: a pass of {lookups} lookups ends before the popular keys move: use more \
                 lookups or fewer between moves"
            );
        }
        if let Some(every) = self.timeline {
            ensure!(
                every <= lookups && lookups.div_ceil(every) <= MAX_POINTS,
                "--timeline {every} gives {} points of {lookups} lookups: use points between {} lookups and {lookups}",
                lookups / every,
                lookups.div_ceil(MAX_POINTS)
            );
            ensure!(
                every >= u64::from(self.batch),
                "--timeline {every}: a point must hold a batch of {} keys: use longer points or a smaller batch",
                self.batch
            );
        }
        Ok(())
    }
}
