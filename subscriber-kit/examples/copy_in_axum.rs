//! A copy that an application in axum keeps: `cargo run --example copy_in_axum -- SOURCE FOLDER ADDRESS`
use resync_subscriber_kit::prelude::*;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Ok([source, folder, address]) = <[String; 3]>::try_from(arguments) else {
        return Err("SOURCE FOLDER ADDRESS".into());
    };
    // Where hubs reach what is mounted below. Behind a proxy, it is the proxy's URL.
    let callback_url = format!("http://{address}/resync/").parse()?;
    let destination = Destination::builder(source, folder).delete(true).open(callback_url)?;

    let app = axum::Router::new().nest_service("/resync", destination.callback());
    let listener = tokio::net::TcpListener::bind(address).await?;
    let server = tokio::spawn(async move { axum::serve(listener, app).await });

    let stop = async { drop(tokio::signal::ctrl_c().await) };
    destination.run(|event| println!("{event}"), stop).await?;
    server.abort();
    Ok(())
}
