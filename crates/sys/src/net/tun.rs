//! TUN links: packets that the kernel routes to the link are read by this process, and those it writes are received.

use std::{fs::File, io, os::fd::AsRawFd};

use rustix::fs::{Mode, OFlags};
use tokio::io::unix::AsyncFd;

const TUN_DEVICE: &str = "/dev/net/tun";
const IFF_TUN: libc::c_short = 0x0001;
const IFF_NO_PI: libc::c_short = 0x1000;
/// `TUNSETIFF`.
const SET_LINK: libc::c_ulong = 0x4004_54ca;

/// A TUN link, which exists as long as this value.
#[derive(Debug)]
pub struct TunLink {
    device: AsyncFd<File>,
}

impl TunLink {
    /// Creates the link. Needs a tokio runtime.
    #[allow(unsafe_code)]
    pub fn create(name: &str) -> io::Result<Self> {
        if name.len() >= libc::IFNAMSIZ || name.bytes().any(|byte| byte == 0) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{name:?} is not a link's name")));
        }
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let device = File::from(rustix::fs::open(TUN_DEVICE, flags, Mode::empty())?);
        // SAFETY: all zeroes is a valid `ifreq`.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = IFF_TUN | IFF_NO_PI;
        // SAFETY: the descriptor is open and the kernel reads and writes no more than an `ifreq`.
        if unsafe { libc::ioctl(device.as_raw_fd(), SET_LINK, &mut request) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the file owns its descriptor, which is never replaced and ends with the registration.
        let device = unsafe { AsyncFd::register(device) }?;
        Ok(Self { device })
    }

    /// Waits for one packet that was routed to the link.
    pub async fn read_packet(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut ready = self.device.readable().await?;
            if let Ok(read) = ready.try_io(|device| Ok(rustix::io::read(device.get_ref(), &mut *buffer)?)) {
                return read;
            }
        }
    }

    /// Has the kernel receive a packet from the link; a full queue is the error `WouldBlock`.
    pub fn write_packet(&self, packet: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(self.device.get_ref(), packet)?)
    }
}
