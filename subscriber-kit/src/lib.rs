//! What a ResourceSync Destination needs: finds a Source, subscribes to its notifications, and keeps a copy in step.
//!
//! # A copy that your application keeps
//!
//! ```no_run
//! use resync_subscriber_kit::prelude::*;
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let destination = Destination::builder("https://source.example/", "copy")
//!         .delete(true)
//!         .open("https://me.example/resync/".parse()?)?;
//!     let app = axum::Router::new().nest_service("/resync", destination.callback());
//!     let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
//!     let server = tokio::spawn(async move { axum::serve(listener, app).await });
//!     let stop = async { drop(tokio::signal::ctrl_c().await) };
//!     destination.run(|event| println!("{event}"), stop).await?;
//!     server.abort();
//!     Ok(())
//! }
//! ```
//!
//! The URL given to [`open`](listen::DestinationBuilder::open) is how hubs reach the place where the callback is mounted. The state is
//! in the folder `copy`, so that a restart goes on with the same subscriptions. See [`Destination`](listen::Destination);
//! `examples/copy_in_hyper.rs` does the same without axum.
//!
//! # Modules
//!
//! | module | purpose |
//! |---|---|
//! | [`discover`] | from any URL of a Source to its sets, lists and channels |
//! | [`subscribe`] | requests to hubs, renewal of leases, topics and channels that move |
//! | [`receive`] | the callback for axum and hyper, and an inbox that hands over each notification once |
//! | [`notification`] | what a notification means for a copy |
//! | [`sync`] | brings a directory in step with a Source's lists, and audits it |
//! | [`listen`] | all of these: keeps copies in step, in an application or with a server of its own |
//! | [`forward`] | notifications of any WebSub topics, without a copy |
//! | [`memento`] | past states of resources: what leads to them, and what proves them |
//! | [`state`] | what is saved between runs |
//! | [`fetch`] | the HTTP client and its limits |
//!
//! # Notifications without a copy
//!
//! ```
//! use resync_subscriber_kit::receive::{Callback, CallbackOptions};
//! use resync_subscriber_kit::fetch::{Client, ClientOptions};
//! use resync_subscriber_kit::state::Subscriptions;
//! use resync_subscriber_kit::subscribe::{Subscriber, SubscriberOptions, keep_topic};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let state = tempfile::tempdir()?;
//! # let state_folder = state.path();
//! let subscriptions = Subscriptions::open(state_folder)?;
//! let (callback, mut deliveries) = Callback::new(&subscriptions, CallbackOptions::default());
//!
//! // One line mounts it: every subscription gets its own unguessable path below.
//! let app: axum::Router = axum::Router::new().nest_service("/resync", callback);
//!
//! tokio::spawn(async move {
//!     while let Some(delivery) = deliveries.next().await {
//!         // Its signature is checked, and it was not here before.
//!         println!("{} bytes about {}", delivery.body.body().len(), delivery.topic.as_str());
//!         if let Err(error) = delivery.done().await {
//!             eprintln!("{error}");
//!         }
//!     }
//! });
//!
//! // Once the application is served under https://me.example/, subscribe and stay subscribed, also when the topic moves, and
//! // after a denial. Each lease and each failure is an event.
//! let client = Client::new(ClientOptions::default())?;
//! let options = SubscriberOptions::new("https://me.example/resync".parse()?);
//! let subscriber = Subscriber::new(client, subscriptions, options);
//! # let _ = app;
//! # if false {
//! let topic = "https://source.example/topic";
//! keep_topic(&subscriber, topic, |event| println!("{event}")).await;
//! # }
//! # Ok(())
//! # }
//! ```
#![deny(missing_docs)]

mod blocking;
pub mod discover;
mod disk_error;
pub mod fetch;
pub mod forward;
pub mod listen;
pub mod memento;
pub mod notification;
pub mod prelude;
pub mod receive;
mod space;
pub mod state;
mod state_folder;
pub mod subscribe;
pub mod sync;
mod text;
mod timing;

/// The example of the README is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
