//! Flags for timeouts, retries and limits.

use std::time::Duration;

use bytesize::ByteSize;
use clap::Args;
use resync_common::values::{duration, number, size};
use resync_subscriber_kit::fetch::ClientOptions;
use resync_subscriber_kit::sync::SyncOptions;

/// How long one request may take.
#[derive(Debug, Args)]
pub(crate) struct TimeoutArgs {
    /// Time limit for opening a connection
    #[arg(long, default_value = "5s", value_name = "DURATION", value_parser = duration)]
    connect_timeout: Duration,
    /// How long a server may send nothing within a response
    #[arg(long, default_value = "30s", value_name = "DURATION", value_parser = duration)]
    idle_timeout: Duration,
    /// Minimum average bytes per second of a response, once that time has passed
    #[arg(long, default_value = "1 KiB", value_name = "SIZE", value_parser = size)]
    min_rate: ByteSize,
    /// Time limit for one list
    #[arg(long, default_value = "5m", value_name = "DURATION", value_parser = duration)]
    document_timeout: Duration,
    /// Time limit for one resource
    #[arg(long, default_value = "1h", value_name = "DURATION", value_parser = duration)]
    resource_timeout: Duration,
    /// Maximum number of redirects of one request
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = number::<usize>)]
    max_redirects: usize,
}

impl TimeoutArgs {
    pub(crate) fn client_options(&self) -> ClientOptions {
        ClientOptions {
            connect_timeout: self.connect_timeout,
            idle_timeout: self.idle_timeout,
            min_rate: self.min_rate.as_u64(),
            document_timeout: self.document_timeout,
            resource_timeout: self.resource_timeout,
            max_redirects: self.max_redirects,
            ..ClientOptions::default()
        }
    }
}

/// How much one run may do.
#[derive(Debug, Args)]
pub(crate) struct LimitArgs {
    /// How often a request is retried
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = number::<u32>)]
    retries: u32,
    /// The pause before the first retry; doubled for each further one
    #[arg(long, default_value = "250ms", value_name = "DURATION", value_parser = duration)]
    retry_pause: Duration,
    /// The largest accepted resource
    #[arg(long, default_value = "16 GiB", value_name = "SIZE", value_parser = size)]
    max_resource_size: ByteSize,
    /// Maximum number of resources of one list, and of the folders that they need
    #[arg(long, default_value_t = 3_000_000, value_name = "N", value_parser = number::<u64>)]
    max_resources: u64,
    /// Maximum size of all lists and manifests of one run
    #[arg(long, default_value = "16 GiB", value_name = "SIZE", value_parser = size)]
    max_list_size: ByteSize,
    /// Maximum number of lists and packages of one run
    #[arg(long, default_value_t = 100_000, value_name = "N", value_parser = number::<u64>)]
    max_parts: u64,
    /// Maximum transfer of one run; the next run continues
    #[arg(long, default_value = "16 TiB", value_name = "SIZE", value_parser = size)]
    max_run_size: ByteSize,
    /// Time limit of one run; the next run continues
    #[arg(long, default_value = "7d", value_name = "DURATION", value_parser = duration)]
    max_run_time: Duration,
}

impl LimitArgs {
    pub(crate) fn sync_options(&self) -> SyncOptions {
        SyncOptions {
            retries: self.retries,
            retry_pause: self.retry_pause,
            max_resource_bytes: self.max_resource_size.as_u64(),
            max_resources: self.max_resources,
            max_list_bytes: self.max_list_size.as_u64(),
            max_parts: self.max_parts,
            max_run_bytes: self.max_run_size.as_u64(),
            max_run_time: self.max_run_time,
            ..SyncOptions::default()
        }
    }
}
