//! A copy of a Source, synchronised by the library.

use std::path::Path;
use std::time::Duration;

use resync_subscriber_kit::sync::{
    AuditReport, Depth, Offer, Report, SyncError, SyncOptions, Target, audit, synchronise,
};
use tempfile::TempDir;
use url::Url;

use super::{Source, client, document};

/// A directory and the Source it is a copy of.
pub(crate) struct Copy {
    pub(crate) directory: TempDir,
    pub(crate) source: Source,
    pub(crate) options: SyncOptions,
}

impl Copy {
    pub(crate) async fn start() -> Self {
        let options =
            SyncOptions { retries: 1, retry_pause: Duration::from_millis(5), ..SyncOptions::default() };
        Self { directory: tempfile::tempdir().unwrap(), source: Source::start().await, options }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) async fn try_sync(&self, delete: bool) -> Result<Report, SyncError> {
        let options = SyncOptions { delete, ..self.options.clone() };
        synchronise(&client(), &self.offer(), &self.target(), &options, Depth::Full).await
    }

    pub(crate) async fn sync(&self) -> Report {
        let report = self.try_sync(true).await.unwrap();
        assert_eq!(report.created + report.updated + report.unchanged + report.failed, report.resources);
        report
    }

    pub(crate) async fn audit(&self) -> AuditReport {
        self.audit_with(&SyncOptions::default()).await
    }

    pub(crate) async fn audit_with(&self, options: &SyncOptions) -> AuditReport {
        audit(&client(), &self.offer(), &self.target(), options).await.unwrap()
    }

    fn offer(&self) -> Offer {
        Offer::list(Url::parse(&self.source.url("/resourcelist.xml")).unwrap())
    }

    pub(crate) fn target(&self) -> Target {
        Target::open(self.path(), Url::parse(&self.source.url("/")).unwrap()).unwrap()
    }

    pub(crate) fn list_of(&self, resources: &[(&str, &str)]) {
        let entries: Vec<String> =
            resources.iter().map(|(path, body)| self.source.resource(path, body.as_bytes())).collect();
        self.source.resource_list("/resourcelist.xml", &entries);
    }

    /// A look as close as this.
    pub(crate) async fn synchronise(&self, how: Depth) -> Report {
        let options = SyncOptions { delete: true, ..self.options.clone() };
        synchronise(&client(), &self.offer(), &self.target(), &options, how).await.unwrap()
    }

    /// An index at the list's place, of these lists, with this time.
    pub(crate) fn index_of(&self, at: &str, parts: &[&str]) {
        let parts: Vec<String> = parts
            .iter()
            .map(|path| format!("<sitemap><loc>{}</loc></sitemap>", self.source.url(path)))
            .collect();
        let index = document("sitemapindex", &resource_list_of(at), &parts);
        self.source.put("/resourcelist.xml", index.as_bytes());
    }

    /// A list under an index, with a time of its own.
    pub(crate) fn part(&self, path: &str, at: &str, resources: &[(&str, &str)]) {
        let entries: Vec<String> =
            resources.iter().map(|(path, body)| self.source.resource(path, body.as_bytes())).collect();
        self.source.put(path, document("urlset", &resource_list_of(at), &entries).as_bytes());
    }
}

fn resource_list_of(at: &str) -> String {
    let at = if at.is_empty() { String::new() } else { format!(r#" at="{at}""#) };
    format!(r#"<rs:md capability="resourcelist"{at}/>"#)
}

/// Created, updated, deleted, unchanged, failed.
pub(crate) fn counts(report: &Report) -> [u64; 5] {
    [report.created, report.updated, report.deleted, report.unchanged, report.failed]
}
