//! A copy that an application in bare hyper keeps: `cargo run --example copy_in_hyper -- SOURCE FOLDER ADDRESS`
use hyper::server::conn::http1;
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use resync_subscriber_kit::prelude::*;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Ok([source, folder, address]) = <[String; 3]>::try_from(arguments) else {
        return Err("SOURCE FOLDER ADDRESS".into());
    };
    let callback_url = format!("http://{address}/").parse()?;
    let destination = Destination::builder(source, folder).delete(true).open(callback_url)?;

    let listener = tokio::net::TcpListener::bind(address).await?;
    let callback = destination.callback();
    let server = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = TowerToHyperService::new(callback.clone());
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });

    let stop = async { drop(tokio::signal::ctrl_c().await) };
    destination.run(|event| println!("{event}"), stop).await?;
    server.abort();
    Ok(())
}
