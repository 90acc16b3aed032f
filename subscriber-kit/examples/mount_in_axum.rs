//! A whole subscriber in axum: `cargo run --example mount_in_axum -- TOPIC ADDRESS STATE`
use resync_subscriber_kit::fetch::{AddressPolicy, Client, ClientOptions};
use resync_subscriber_kit::receive::{Callback, CallbackOptions};
use resync_subscriber_kit::state::Subscriptions;
use resync_subscriber_kit::subscribe::{Subscriber, SubscriberOptions, keep_topic};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Ok([topic, address, state]) = <[String; 3]>::try_from(arguments) else {
        return Err("TOPIC ADDRESS STATE".into());
    };
    let subscriptions = Subscriptions::open(state.as_ref())?;
    let (callback, mut deliveries) = Callback::new(&subscriptions, CallbackOptions::default());

    let app = axum::Router::new().nest_service("/resync", callback);
    let listener = tokio::net::TcpListener::bind(address).await?;
    let prefix = format!("http://{}/resync", listener.local_addr()?).parse()?;
    tokio::spawn(async move { axum::serve(listener, app).await });

    // Public addresses, and those that are as near as the topic, which the user of this program gave.
    let address_policy = AddressPolicy::NetworkOf(vec![topic.parse()?]);
    let client = Client::new(ClientOptions { address_policy, ..ClientOptions::default() })?;
    let subscriber = Subscriber::new(client, subscriptions, SubscriberOptions::new(prefix));
    tokio::spawn(async move { keep_topic(&subscriber, &topic, |event| println!("{event}")).await });
    while let Some(delivery) = deliveries.next().await {
        println!("{}: {}", delivery.topic.as_str(), String::from_utf8_lossy(delivery.body.body()));
        delivery.done().await?;
    }
    Ok(())
}
