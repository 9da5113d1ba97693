//! Ports on nodes: one bit for each in the object that upstream keeps under `/registry/ranges/servicenodeports`, so that
//! either server can take over from the other.

use std::ops::RangeInclusive;

use api::{Value, meta, status::Status};
use apiserver_core::document;
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::json;
use store::{Precondition, WriteRequest};

use crate::Registry;

const KEY: &str = "/registry/ranges/servicenodeports";
/// How often a change is tried again when another server wrote in between.
const RETRIES: usize = 16;

/// Why no port was to be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// None is free.
    #[error("range is full")]
    Full,
    /// Somebody has it.
    #[error("provided port is already allocated")]
    Taken,
    /// It is not one of them.
    #[error("provided port is not in the valid range. The range of valid ports is {0}-{1}")]
    OutOfRange(u16, u16),
    /// It could not be written down.
    #[error("{}", .0.message)]
    Failed(Status),
}

/// A wish for a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// This one, which need not be a port at all.
    Port(i64),
    /// Any that is free.
    Any,
}

/// The range of ports on nodes.
#[derive(Debug)]
pub struct Ports {
    range: RangeInclusive<u16>,
    /// One change at a time in this process; other servers are noticed by the revision.
    changing: tokio::sync::Mutex<()>,
}

/// Which ports of the range are taken.
#[derive(Clone, Debug, Default)]
struct Taken {
    bits: Vec<bool>,
}

impl Ports {
    /// A range.
    pub fn new(range: RangeInclusive<u16>) -> Self {
        Self { range, changing: tokio::sync::Mutex::default() }
    }

    /// Takes all that is wished for or nothing; the ports are in the order of the wishes. The error says which wish could
    /// not be fulfilled.
    pub async fn take(&self, registry: &Registry, wishes: &[Wish]) -> Result<Vec<i64>, (usize, Error)> {
        if wishes.is_empty() {
            return Ok(Vec::new());
        }
        let failed = |status| (0, Error::Failed(status));
        self.change(registry, |taken| self.choose(taken, wishes)).await.map_err(failed)?
    }

    /// What [`Self::take`] would do now, without doing it; any port is as good as another then.
    pub async fn try_take(&self, registry: &Registry, wishes: &[Wish]) -> Result<Vec<i64>, (usize, Error)> {
        let (mut taken, _) = self.read(registry).await.map_err(|status| (0, Error::Failed(status)))?;
        // As upstream: a port of another range is nobody's, so nothing speaks against it yet.
        let outside = |wish: &Wish| match wish {
            Wish::Port(port) => self.offset(*port).is_none().then_some(*port),
            Wish::Any => None,
        };
        let (places, inside): (Vec<usize>, Vec<Wish>) =
            wishes.iter().copied().enumerate().filter(|(_, wish)| outside(wish).is_none()).unzip();
        let chosen = self.choose(&mut taken, &inside).map_err(|(at, error)| (places[at], error))?;
        let mut chosen = chosen.into_iter();
        Ok(wishes.iter().filter_map(|wish| outside(wish).or_else(|| chosen.next())).collect())
    }

    /// Gives ports back.
    pub async fn release(&self, registry: &Registry, ports: &[u16]) -> Result<(), Status> {
        if ports.is_empty() {
            return Ok(());
        }
        self.change(registry, |taken| {
            self.offsets(ports).for_each(|offset| taken.set(offset, false));
        })
        .await
    }

    /// Makes these ports taken and those free.
    pub async fn correct(&self, registry: &Registry, used: &[u16], leaked: &[u16]) -> Result<(), Status> {
        self.change(registry, |taken| {
            self.offsets(leaked).for_each(|offset| taken.set(offset, false));
            self.offsets(used).for_each(|offset| taken.set(offset, true));
        })
        .await
    }

    /// The ports that are taken.
    pub async fn taken(&self, registry: &Registry) -> Result<Vec<u16>, Status> {
        let (taken, _) = self.read(registry).await?;
        Ok(self.range.clone().enumerate().filter(|(offset, _)| taken.get(*offset)).map(|(_, port)| port).collect())
    }

    fn offset(&self, port: i64) -> Option<usize> {
        let port = u16::try_from(port).ok().filter(|port| self.range.contains(port))?;
        Some(usize::from(port - self.range.start()))
    }

    fn offsets(&self, ports: &[u16]) -> impl Iterator<Item = usize> {
        ports.iter().filter_map(|port| self.offset(i64::from(*port)))
    }

    fn choose(&self, taken: &mut Taken, wishes: &[Wish]) -> Result<Vec<i64>, (usize, Error)> {
        // Named ports first: none of them may go to whom any will do.
        for (at, wish) in wishes.iter().enumerate() {
            let Wish::Port(port) = wish else { continue };
            let offset = self.offset(*port).ok_or((at, Error::OutOfRange(*self.range.start(), *self.range.end())))?;
            if taken.get(offset) {
                return Err((at, Error::Taken));
            }
            taken.set(offset, true);
        }
        let mut ports = Vec::with_capacity(wishes.len());
        for (at, wish) in wishes.iter().enumerate() {
            ports.push(match wish {
                Wish::Port(port) => *port,
                Wish::Any => i64::from(self.any(taken).ok_or((at, Error::Full))?),
            });
        }
        Ok(ports)
    }

    /// A free port from a random place of the upper part on, else of the lower one, as upstream chooses.
    fn any(&self, taken: &mut Taken) -> Option<u16> {
        let size = self.range.len();
        let reserved = if size <= 16 { 0 } else { (size / 32).clamp(16, 128) };
        [reserved..size, 0..reserved].into_iter().filter(|band| !band.is_empty()).find_map(|band| {
            let start = fastrand::usize(..band.len());
            let mut offsets = (0..band.len()).map(|step| band.start + (start + step) % band.len());
            let offset = offsets.find(|offset| !taken.get(*offset))?;
            taken.set(offset, true);
            Some(self.range.start() + u16::try_from(offset).ok()?)
        })
    }

    /// Reads, changes and writes if unchanged.
    async fn change<T>(&self, registry: &Registry, mut edit: impl FnMut(&mut Taken) -> T) -> Result<T, Status> {
        let _alone = self.changing.lock().await;
        for _ in 0..RETRIES {
            let (before, guard) = self.read(registry).await?;
            let mut taken = before.clone();
            let outcome = edit(&mut taken);
            if taken.bytes() == before.bytes() && guard != Precondition::Absent {
                return Ok(outcome);
            }
            let write = WriteRequest {
                key: KEY.into(),
                precondition: guard,
                value: Some(document::encode_document(&self.object(&taken))),
                ttl: None,
            };
            match registry.store().write(write).await {
                Ok(_) => return Ok(outcome),
                Err(store::StoreError::Conflict { .. }) => {}
                Err(error) => return Err(Status::internal_error(error)),
            }
        }
        Err(Status::internal_error("the account of node ports changes faster than it can be written"))
    }

    async fn read(&self, registry: &Registry) -> Result<(Taken, Precondition), Status> {
        let Some(record) = registry.store().get(KEY).await.map_err(Status::internal_error)? else {
            return Ok((Taken::default(), Precondition::Absent));
        };
        let object = document::decode_record(&record).map_err(Status::internal_error)?;
        // The bits of another range mean other ports: the next repair fills in what services hold.
        let same = meta::string_at(&object, &["range"]) == self.text();
        let bytes = BASE64_STANDARD.decode(meta::string_at(&object, &["data"])).unwrap_or_default();
        let taken = if same { Taken::of(&bytes) } else { Taken::default() };
        Ok((taken, Precondition::Revision(record.revision)))
    }

    fn text(&self) -> String {
        format!("{}-{}", self.range.start(), self.range.end())
    }

    fn object(&self, taken: &Taken) -> Value {
        let data = BASE64_STANDARD.encode(taken.bytes());
        json!({"apiVersion": "v1", "kind": "RangeAllocation", "metadata": {"name": "servicenodeports"},
            "range": self.text(), "data": data})
    }
}

impl Taken {
    /// The bits of a large number, most significant byte first, as upstream writes it.
    fn of(bytes: &[u8]) -> Self {
        let bits = bytes.iter().rev().flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1 == 1)).collect();
        Self { bits }
    }

    fn bytes(&self) -> Vec<u8> {
        let byte = |bits: &[bool]| bits.iter().enumerate().fold(0_u8, |byte, (at, bit)| byte | u8::from(*bit) << at);
        let bytes: Vec<u8> = self.bits.chunks(8).map(byte).rev().collect();
        bytes.into_iter().skip_while(|byte| *byte == 0).collect()
    }

    fn get(&self, offset: usize) -> bool {
        self.bits.get(offset).copied().unwrap_or_default()
    }

    fn set(&mut self, offset: usize, value: bool) {
        if offset >= self.bits.len() {
            self.bits.resize(offset + 1, false);
        }
        self.bits[offset] = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_those_of_a_large_number() {
        let mut taken = Taken::default();
        taken.set(0, true);
        taken.set(9, true);
        assert_eq!(taken.bytes(), [2, 1]);
        taken.set(9, false);
        assert_eq!(taken.bytes(), [1]);
        let read = Taken::of(&[2, 1]);
        assert!(read.get(0) && read.get(9) && !read.get(8) && !read.get(1000));
    }

    #[test]
    fn named_ports_are_never_given_to_others() {
        let ports = Ports::new(30000..=30001);
        let mut taken = Taken::default();
        assert_eq!(ports.choose(&mut taken, &[Wish::Any, Wish::Port(30000)]).unwrap(), [30001, 30000]);
        assert!(matches!(ports.choose(&mut taken, &[Wish::Any]), Err((0, Error::Full))));
        let error = ports.choose(&mut taken, &[Wish::Port(80)]).unwrap_err().1;
        let want = "provided port is not in the valid range. The range of valid ports is 30000-30001";
        assert_eq!(error.to_string(), want);
    }

    #[test]
    fn the_upper_part_comes_first() {
        let ports = Ports::new(30000..=32767);
        let mut taken = Taken::default();
        for _ in 0..2768 - 86 {
            assert!(ports.any(&mut taken).unwrap() >= 30086);
        }
        assert!(ports.any(&mut taken).unwrap() < 30086);
    }
}
