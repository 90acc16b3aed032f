//! A Source whose documents the publisher makes, served from its files, and which changes in rounds.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use resync_publisher::{BaseUrl, HubUrl, Settings, build};
use tempfile::TempDir;

use super::{files, ok, serve, status};

pub(crate) struct Published {
    folder: TempDir,
    url: String,
    hub: Option<String>,
    rounds: std::ops::RangeFrom<u32>,
    /// What each file ever was.
    versions: BTreeMap<String, BTreeSet<Vec<u8>>>,
}

impl Published {
    pub(crate) async fn start(hub: Option<String>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let [collection, site] = ["collection", "site"].map(|name| folder.path().join(name));
        std::fs::create_dir(&collection).unwrap();
        let address = serve(move |request| {
            let path = request.target().trim_start_matches('/');
            let found =
                [&site, &collection].into_iter().find_map(|folder| std::fs::read(folder.join(path)).ok());
            found.map_or_else(|| status("404 Not Found", ""), |bytes| ok("", &bytes))
        })
        .await;
        let url = format!("http://{address}/");
        let mut source = Self { folder, url, hub, rounds: 0.., versions: BTreeMap::new() };
        for number in 0..10 {
            source.put(&format!("{}/{number}", number % 3), &format!("{number} at first"));
        }
        source.change();
        source
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    fn collection(&self) -> PathBuf {
        self.folder.path().join("collection")
    }

    fn put(&mut self, name: &str, text: &str) {
        let path = self.collection().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        self.versions.entry(name.to_owned()).or_default().insert(text.as_bytes().to_vec());
    }

    fn remove(&self, name: &str) {
        // What is away stays away.
        let _ = std::fs::remove_file(self.collection().join(name));
    }

    /// Files come, change and go, and one is a folder in each second round; then all of it is published.
    pub(crate) fn change(&mut self) {
        let round = self.rounds.next().unwrap();
        for number in 0..5 {
            let number = (round + number) % 10;
            self.put(
                &format!("{}/{number}", number % 3),
                &format!("{number} of round {round}\n").repeat(700),
            );
        }
        self.remove(&format!("new/in/{}", round.saturating_sub(2)));
        self.put(&format!("new/in/{round}"), "new");
        let (now, before) =
            if round.is_multiple_of(2) { ("turn", "turn/inside") } else { ("turn/inside", "turn") };
        self.remove(before);
        let _ = std::fs::remove_dir(self.collection().join("turn"));
        self.put(now, &format!("turned in {round}"));
        let mut settings = Settings::new(self.collection(), BaseUrl::parse(&self.url).unwrap());
        if let Some(hub) = &self.hub {
            settings = settings.hub(HubUrl::parse(hub).unwrap());
        }
        build(&settings, &self.folder.path().join("site")).unwrap();
    }

    /// The last Change Notification.
    pub(crate) fn change_notification(&self) -> String {
        let waiting = files(&self.folder.path().join("site/.resync-source/outbox"));
        String::from_utf8(waiting.into_values().next_back().unwrap()).unwrap()
    }

    pub(crate) fn files(&self) -> BTreeMap<String, Vec<u8>> {
        files(&self.collection())
    }

    /// Each file of the copy is what the Source had at some time.
    pub(crate) fn assert_whole(&self, copy: &Path) {
        for (name, bytes) in files(copy) {
            let is_known = self.versions.get(&name).is_some_and(|versions| versions.contains(&bytes));
            assert!(is_known, "{name} is torn: {}", String::from_utf8_lossy(&bytes));
        }
    }
}
