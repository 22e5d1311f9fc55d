//! A client's course as one future: it stops wherever the model goes on, and is polled there again.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crate::bench::{Answer, Operation, Progress};
use crate::nic::{Picos, Request};

/// What a client and the model tell each other.
#[derive(Debug, Default)]
pub(super) struct Mail {
    /// When the client goes on.
    pub(super) now: Picos,
    /// What the client is to do next.
    pub(super) operation: Option<Operation>,
    /// What it wants posted.
    pub(super) requests: Vec<Request>,
    /// How its change ended that another client has sent.
    pub(super) answer: Option<Answer>,
    /// What it wants.
    pub(super) progress: Option<Progress>,
}

/// Lets the model go on: until it serves what was posted, brings it back, or has another operation.
pub(super) fn turn() -> impl Future<Output = ()> {
    struct Turn(bool);
    impl Future for Turn {
        type Output = ();

        fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
            if std::mem::replace(&mut self.0, true) { Poll::Ready(()) } else { Poll::Pending }
        }
    }
    Turn(false)
}

/// Clients, each with its mail.
pub(super) struct Courses {
    courses: Vec<Pin<Box<dyn Future<Output = ()>>>>,
}

impl Courses {
    /// These, which never end.
    pub(super) fn new(courses: Vec<Pin<Box<dyn Future<Output = ()>>>>) -> Self {
        Self { courses }
    }

    /// Has a client go on until it lets the model go on.
    pub(super) fn go_on(&mut self, client: usize) {
        // Who goes on when is the model's to know.
        let mut context = Context::from_waker(Waker::noop());
        let polled = self.courses[client].as_mut().poll(&mut context);
        debug_assert!(polled.is_pending(), "clients have no end");
    }
}

/// Takes what a client wants, with its requests.
pub(super) fn taken(mail: &RefCell<Mail>, requests: &mut Vec<Request>) -> Option<Progress> {
    let mut mail = mail.borrow_mut();
    requests.append(&mut mail.requests);
    mail.progress.take()
}
