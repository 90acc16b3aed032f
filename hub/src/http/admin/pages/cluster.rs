//! The part of the overview about the hubs of a database, and about that.

use std::time::Duration;

use maud::{Markup, html};

use super::table::{
    self,
    Head::{Number, Row, Text},
};
use super::{card, moment};
use crate::admin::{Cluster, Database, Lasting, Owner, Owners, counted};

/// Hubs of a database, and that itself.
pub(super) fn section(cluster: &Cluster) -> Markup {
    html! {
        section aria-labelledby="hubs" {
            h2 id="hubs" { "Hubs and their database" }
            (database(&cluster.database))
            @match &cluster.owners {
                Some(owners) => { (unowned(owners)) (hubs(owners)) },
                None => p.empty { "The database does not say which hubs are up." },
            }
        }
    }
}

fn database(database: &Database) -> Markup {
    let durability = match database.durability {
        "proven" => "a standby has what is acknowledged",
        "declared" => "its storage is said to lose nothing",
        _ => "it would lose what it acknowledges",
    };
    html! {
        dl.cards {
            @match &database.away_since {
                Some(since) => (card("Database", "away", html! { "since " (moment(since)) })),
                None => (card("Database", "in use", "")),
            }
            (card("Host", database.host.as_deref().unwrap_or("none"), html! { "timeline " (database.timeline) }))
            (card("Durability", database.durability, durability))
        }
    }
}

fn unowned(owners: &Owners) -> Markup {
    let (shards, late) = (owners.shards_without_owner.len(), owners.laggards_without_owner);
    html! {
        @if shards > 0 {
            p.notice.warn {
                strong { (counted(shards, "shard has", "shards have")) " no owner: " }
                "nothing is delivered there until a hub takes over. "
                (counted(late, "subscription is", "subscriptions are")) " late there."
            }
        }
    }
}

fn hubs(owners: &Owners) -> Markup {
    let heads = [Row("Hub"), Text("Version"), Text("Last heartbeat"), Number("Shards"), Number("Late")];
    table::narrow(heads, owners.hubs.iter().map(row))
}

fn row(hub: &Owner) -> [Markup; 5] {
    let age = Lasting(Duration::from_millis(hub.heartbeat_age_ms));
    [
        html! { (hub.name) @if hub.this { " " strong { "(this hub)" } } },
        html! { (hub.version) },
        html! { @if hub.up { (age) " ago" } @else { strong { "gone" } ", " (age) " ago" } },
        html! { (hub.shards.len()) },
        html! { (hub.laggards) },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hub(name: &str, this: bool, up: bool) -> Owner {
        Owner {
            name: name.to_owned(),
            version: "0.1.0".to_owned(),
            this,
            up,
            started_at: "2026-01-31T12:00:00Z".to_owned(),
            alive_until: "2026-01-31T13:00:05Z".to_owned(),
            heartbeat_age_ms: 1_000,
            shards: vec![1, 2, 3],
            laggards: 4,
        }
    }

    fn cluster(away_since: Option<&str>, owners: Option<Owners>) -> Cluster {
        let database = Database {
            away_since: away_since.map(str::to_owned),
            host: Some("db1.example:5432".to_owned()),
            timeline: 7,
            durability: "declared",
        };
        Cluster { database, owners }
    }

    #[test]
    fn this_hub_is_marked_and_those_that_are_gone_and_shards_without_an_owner_are_named() {
        let owners = Owners {
            hubs: vec![hub("<one>", true, true), hub("two", false, false)],
            shards_without_owner: vec![4],
            laggards_without_owner: 9,
        };
        let page = section(&cluster(None, Some(owners))).0;
        assert!(page.contains("&lt;one&gt; <strong>(this hub)</strong>"), "{page}");
        assert_eq!(page.matches("(this hub)").count(), 1);
        assert_eq!(page.matches("<strong>gone</strong>").count(), 1);
        assert!(page.contains("1 shard has no owner") && page.contains("9 subscriptions are late"), "{page}");
        assert!(page.contains("db1.example:5432") && page.contains("timeline 7"), "{page}");
    }

    #[test]
    fn a_database_that_is_away_says_since_when_and_no_hubs() {
        let page = section(&cluster(Some("2026-01-31T12:00:00Z"), None)).0;
        assert!(page.contains("away") && page.contains("2026-01-31 12:00:00"), "{page}");
        assert!(page.contains("does not say which hubs are up") && !page.contains("<table"), "{page}");
    }
}
