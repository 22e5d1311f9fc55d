use super::*;

/// A memory node that is started again straight after it was killed, which has its address for
/// as long as its memory is being freed.
#[test]
fn an_address_that_another_process_is_about_to_give_up_is_waited_for() {
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address: TcpAddress = format!("tcp://{}", other.local_addr().unwrap()).parse().unwrap();
    let bind = || Listener::bind(std::slice::from_ref(&address), ListenOptions::default());
    let error = bind().unwrap_err();
    assert!(matches!(error, ListenError::InUse { .. }), "{error}");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(100));
            drop(other);
        });
        bind().unwrap();
    });
}

/// A second memory node began at the name's other address while clients went to the first; and
/// where there was no other, that was told instead.
#[test]
fn a_name_of_which_another_process_has_an_address_is_waited_for() {
    let name: TcpAddress = "tcp://two-addresses.example:1".parse().unwrap();
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = other.local_addr().unwrap();
    // Of no machine.
    let nowhere = Target::Internet(([192, 0, 2, 1], taken.port()).into());
    let (taken, free) = (Target::Internet(taken), Target::Internet(([127, 0, 0, 1], 0).into()));
    let listen = |targets: [&Target; 2]| listen_at_one(&name, &targets.map(Target::clone), &[], false);
    let error = listen([&taken, &free]).unwrap_err();
    assert!(matches!(error, ListenError::InUse { .. }), "{error}");
    assert_eq!(listen([&nowhere, &free]).unwrap().1, free);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(100));
            drop(other);
        });
        assert_eq!(listen([&taken, &nowhere]).unwrap().1, taken);
    });
}

/// An address whose first target is one of this memory node's own ended the start.
#[test]
fn a_name_of_which_this_memory_node_has_an_address_is_served_at_the_next() {
    let name: TcpAddress = "tcp://two-addresses.example:1".parse().unwrap();
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = Target::Internet(socket.local_addr().unwrap());
    let (socket, target) = (socket.into(), taken.clone());
    let own = [Listening { socket, target, is_tls: false, needs_token: false }];
    let free = Target::Internet(([127, 0, 0, 1], 0).into());
    let listen = |targets: &[Target]| listen_at_one(&name, targets, &own, false);
    assert_eq!(listen(&[taken.clone(), free.clone()]).unwrap().1, free);
    let error = listen(&[taken]).unwrap_err();
    assert!(error.to_string().contains("listens already: name it once"), "{error}");
}

/// It was waited for, and then laid to another process.
#[test]
fn an_address_that_is_named_twice_is_told_at_once() {
    let directory = tempfile::tempdir().unwrap();
    // Of no other test.
    let free = std::net::TcpListener::bind("127.83.7.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let of_internet = format!("tcp://127.83.7.1:{port}").parse().unwrap();
    for address in [of_internet, TcpAddress::at_path(directory.path().join("node.sock")).unwrap()] {
        let twice = [address.clone(), address];
        let error = Listener::bind(&twice, ListenOptions::default()).unwrap_err().to_string();
        assert!(!error.contains("process") && error.contains("once"), "{error}");
    }
}

#[test]
fn whoever_may_not_listen_at_a_low_port_is_told_why() {
    let said = |address: &str, errno| {
        let target = Target::Internet(address.parse().unwrap());
        refused(&target, errno).to_string()
    };
    let low = said("127.0.0.1:80", Errno::ACCESS);
    assert!(low.contains("127.0.0.1:80") && low.contains("CAP_NET_BIND_SERVICE"), "{low}");
    for other in [said("127.0.0.1:80", Errno::ADDRNOTAVAIL), said("127.0.0.1:8080", Errno::ACCESS)] {
        assert!(other.starts_with("listening at 127.0.0.1:80") && !other.contains("1024"), "{other}");
    }
}
