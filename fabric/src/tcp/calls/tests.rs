use std::io::Write;
use std::os::unix::net::UnixStream;

use super::*;
use crate::verbs::MAX_REQUEST_BYTES;

/// A caller, and the memory node's end of its socket.
fn caller(call_reply: u32) -> (Caller, UnixStream) {
    patient_caller(call_reply, Duration::from_secs(5))
}

fn patient_caller(call_reply: u32, patience: Duration) -> (Caller, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let stream = Stream::new(Bell::new(ours.into()), None);
    let link = Arc::new(Link::new("a test").unwrap());
    let silence = Arc::new(SilenceTimer::new(patience));
    let limits = Limits { batch_bytes: 4096, reply_bytes: 4096, call_request: 4096, call_reply };
    (Caller::new((stream, link, silence), limits, Duration::ZERO, Arc::default()), theirs)
}

/// The head of a reply, as it comes.
fn head(bytes: u32, tag: u16, body: &[u8]) -> Vec<u8> {
    let words = ReplyHead { bytes, tag, status: SERVED, word: checksum(body) }.encode();
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

#[test]
fn a_call_ends_with_its_deadline_though_more_of_its_reply_is_there() {
    let most = MAX_REQUEST_BYTES as u32;
    let (mut caller, mut node) = caller(most);
    node.set_nonblocking(true).unwrap();
    node.write_all(&head(most, 0, &[])).unwrap();
    let (mut held, some) = (0, [0; 4096]);
    while let Ok(bytes) = node.write(&some) {
        held += bytes;
    }
    // One look, and one more for what may have come with the deadline.
    let taken = 2 * READS * INPUT;
    assert!(held > taken, "the socket holds {held} bytes");
    caller.post(&[1]).unwrap();
    let outcome = caller.wait(&mut Vec::new(), Deadline::at(Instant::now()));
    assert!(matches!(outcome, Err(FabricError::DeadlinePassed { .. })), "{outcome:?}");
    assert!(caller.body.len() <= taken, "{} of {held} bytes were taken", caller.body.len());
}

/// All of the wait counted as silence as soon as a quarter of the patience was silent.
#[test]
fn a_memory_node_that_answers_what_was_given_up_is_not_silent() {
    let patience = Duration::from_secs(5);
    let (mut caller, mut node) = patient_caller(4096, patience);
    caller.post(&[0]).unwrap();
    caller.post(&[1]).unwrap();
    let began = Instant::now() - (ALONE + 1) * patience;
    caller.waited = (ALONE * patience, began);
    // Of the one that is given up.
    node.write_all(&head(0, 0, &[])).unwrap();
    assert!(!caller.poll(&mut Vec::new()).unwrap());
    assert!(!caller.note_silence(began), "bytes have come since the wait began");
    caller.waited = (Duration::ZERO, began);
    assert!(caller.note_silence(began));
}

#[test]
fn replies_arrive_in_whatever_pieces() {
    let bodies: Vec<Vec<u8>> = [0, 1, 7, 8, 9, 5_000, 3 * INPUT + 5].map(|len| vec![len as u8; len]).into();
    for piece in [1, 3, HEAD_BYTES - 1, HEAD_BYTES + 1, INPUT - 1, INPUT, 5 * INPUT] {
        let (mut caller, mut node) = caller(1 << 20);
        for (tag, body) in bodies.iter().enumerate() {
            // One that is given up comes before.
            let tag = 2 * tag as u16;
            let mut bytes = head(3, tag, b"old");
            bytes.extend_from_slice(b"old\0\0\0\0\0");
            bytes.extend_from_slice(&head(body.len() as u32, tag + 1, body));
            bytes.extend_from_slice(body);
            bytes.resize(bytes.len() + padding(body.len()), 0);
            caller.post(&[1]).unwrap();
            caller.post(&[2]).unwrap();
            let mut reply = Vec::new();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for bytes in bytes.chunks(piece) {
                        node.write_all(bytes).unwrap();
                    }
                });
                caller.wait(&mut reply, Deadline::after(Duration::from_secs(10))).unwrap();
            });
            assert!(reply == *body, "{} bytes in pieces of {piece}", body.len());
        }
    }
}
