//! Descriptors over unix sockets, and pseudo-terminals.

use std::{
    io::{self, IoSlice, IoSliceMut},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{Mode, OFlags},
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
        SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
    },
};

/// Most descriptors in one message.
const MOST_DESCRIPTORS: usize = 8;

/// Returns two connected sockets that keep the bounds of messages.
pub fn message_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Returns two connected stream sockets.
pub fn stream_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

/// Sends bytes with descriptors; returns how many bytes were taken.
pub fn send_with_descriptors(socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    loop {
        match sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL) {
            Err(rustix::io::Errno::INTR) => {}
            sent => return Ok(sent?),
        }
    }
}

/// Receives bytes, and adds descriptors that come with them; zero bytes are the end.
pub fn receive_with_descriptors(
    socket: impl AsFd,
    bytes: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> io::Result<usize> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match recvmsg(&socket, &mut [IoSliceMut::new(bytes)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            received => break received?,
        }
    };
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    Ok(received.bytes)
}

/// A pseudo-terminal.
#[derive(Debug)]
pub struct Terminal {
    /// The side of the user.
    pub master: OwnedFd,
    /// The side of the program.
    pub slave: OwnedFd,
    /// The number in its `devpts`.
    pub number: u32,
}

/// Opens a new pseudo-terminal of the `devpts` whose `ptmx` is at a path.
#[allow(unsafe_code)]
pub fn open_terminal(ptmx: &Path) -> io::Result<Terminal> {
    use std::os::fd::{AsRawFd, FromRawFd};
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let master = rustix::fs::open(ptmx, flags, Mode::empty())?;
    let (mut number, unlock): (libc::c_uint, libc::c_int) = (0, 0);
    // SAFETY: the calls read and write the numbers that are passed; the peer's descriptor is new and has no other owner.
    unsafe {
        if libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK, &raw const unlock) < 0
            || libc::ioctl(master.as_raw_fd(), libc::TIOCGPTN, &raw mut number) < 0
        {
            return Err(io::Error::last_os_error());
        }
        let slave = libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC);
        if slave < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Terminal { master, slave: OwnedFd::from_raw_fd(slave), number })
    }
}

/// Makes a terminal that of the calling process, which leads a session.
#[allow(unsafe_code)]
pub fn take_terminal(slave: BorrowedFd<'_>) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    // SAFETY: the call takes a number.
    let result = unsafe { libc::ioctl(slave.as_raw_fd(), libc::TIOCSCTTY, 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sets the size of a terminal.
#[allow(unsafe_code)]
pub fn resize_terminal(terminal: BorrowedFd<'_>, width: u16, height: u16) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let size = libc::winsize { ws_row: height, ws_col: width, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the kernel reads the structure during the call.
    let result = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
