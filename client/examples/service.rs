//! A lookup service: answers `GET /KEY` over HTTP from a memory node's table, with a task for each
//! connection.
//!
//! ```text
//! fpcache-memserver --listen tcp://127.0.0.1:7400 &
//! fpcache-cli --url tcp://127.0.0.1:7400 load ipv4
//! cargo run --release -p fpcache-client --features tokio --example service -- tcp://127.0.0.1:7400 127.0.0.1:8080
//! curl http://127.0.0.1:8080/16777216
//! ```
//!
//! Of HTTP it knows no more than it needs. A service of a web framework has the same handler: see
//! the guide.

use std::error::Error;

use fpcache_client::AsyncClient;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or_else(|| "shm://fpcache".to_owned());
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let client = AsyncClient::connect(&url).await?;
    let listener = TcpListener::bind(&address).await?;
    println!("listening at http://{address}");
    loop {
        let (socket, _) = listener.accept().await?;
        // A clone is cheap, and lookups of all connections share doorbells.
        tokio::spawn(serve(socket, client.clone()));
    }
}

/// Answers the requests of a connection, until its other end closes it or asks for what is not
/// understood.
async fn serve(socket: TcpStream, client: AsyncClient) -> Result<(), std::io::Error> {
    let mut socket = BufReader::new(socket);
    let (mut request, mut line) = (String::new(), String::new());
    loop {
        request.clear();
        if socket.read_line(&mut request).await? == 0 {
            return Ok(());
        }
        // What else it says does not matter here.
        loop {
            line.clear();
            if socket.read_line(&mut line).await? <= 2 {
                break;
            }
        }
        let path = request.strip_prefix("GET /").and_then(|rest| rest.split(' ').next());
        let (status, body) = match path.map(str::parse) {
            Some(Ok(key)) => answer(&client, key).await,
            _ => ("400 Bad Request", b"ask for GET /KEY, a whole number\n".to_vec()),
        };
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", body.len());
        socket.write_all(&[head.as_bytes(), &body].concat()).await?;
    }
}

/// The status and the body of the answer for a key.
async fn answer(client: &AsyncClient, key: u64) -> (&'static str, Vec<u8>) {
    match client.get(key).await {
        Ok(Some(value)) => ("200 OK", value),
        Ok(None) => ("404 Not Found", Vec::new()),
        Err(error) if error.is_retryable() => ("503 Service Unavailable", format!("{error}\n").into_bytes()),
        Err(error) => ("500 Internal Server Error", format!("{error}\n").into_bytes()),
    }
}
